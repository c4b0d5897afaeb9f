"""Pooling over windows that no stride describes: adaptive, or given one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from . import _guards, _plan
from ._extremes import run_maximum
from ._geometry import (
    Geometry,
    adaptive_geometry,
    adaptive_window,
    bounds_of,
    integer,
    normalize_axes,
    sequence,
    shape_tuple,
)
from ._sums import Array, check_gradient, checked_gradient, mean_dtype, run_sums, spread, sum_dtype
from .errors import GeometryError
from .options import Options, resolve

__all__ = [
    "adaptive_avg_pool",
    "adaptive_avg_pool_backward",
    "adaptive_max_pool",
    "window_pool",
    "window_pool_backward",
    "windows_from_edges",
]


# ---------------------------------------------------------------------------------------------- adaptive


def adaptive_max_pool(
    x: npt.ArrayLike,
    output_size: Any,
    *,
    axes: int | Sequence[int] | None = None,
    return_indices: bool = False,
    out: Any = None,
    **options: Unpack[Options],
) -> Any:
    """Maximum over windows that cut each axis into a given number of parts.

    Parameters
    ----------
    x : array_like
        Input of any dtype that `max_pool` takes.
    output_size : tuple of int or None
        Number of outputs per pooled axis, the last ``len(output_size)`` axes or those that `axes` names; None keeps an
        axis as it is. An int needs `axes`. It may exceed the length of the axis.
    axes, return_indices, out, **options
        As in `max_pool`.

    Returns
    -------
    ndarray or Pooled
        The maxima, of the dtype of `x` and its shape with `output_size` on the pooled axes, or the named tuple
        ``(values, indices)``; `max_pool_backward` takes these indices.

    Raises
    ------
    GeometryError
        If `output_size` is not positive, or the axes are not there or empty.
    DtypeError, ContiguityError
        As in `max_pool`.

    Notes
    -----
    Window ``i`` of ``O`` over an axis of length ``L`` is ``[i*L // O, ceil((i+1)*L / O))``, in integers of any size:
    PyTorch's rule. Windows may overlap by an element, and differ by one in size. Ties and NaN are as in `max_pool`.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.adaptive_max_pool(np.array([3, 1, 4, 1, 5, 9, 2]), (3,), return_indices=True)
    Pooled(values=array([4, 5, 9]), indices=array([2, 4, 5]))
    """
    settings = resolve(options, "adaptive_max_pool")
    array = _guards.as_input("x", x, settings)
    plan = _plan.maximum_plan(adaptive_geometry(array.shape, output_size, axes), array.dtype, False, return_indices)
    return settings.record.done(run_maximum(plan, array, return_indices, out, (x, array), settings))


def adaptive_avg_pool(
    x: npt.ArrayLike,
    output_size: Any,
    *,
    dtype: npt.DTypeLike | None = None,
    axes: int | Sequence[int] | None = None,
    out: Array | None = None,
    **options: Unpack[Options],
) -> Array:
    """Average over windows that cut each axis into a given number of parts.

    Parameters
    ----------
    x : array_like
        Input of any dtype that `avg_pool` takes.
    output_size : tuple of int or None
        Number of outputs per pooled axis, the last ``len(output_size)`` axes or those that `axes` names; None keeps an
        axis as it is. An int needs `axes`. It may exceed the length of the axis.
    dtype, axes, out, **options
        As in `avg_pool`.

    Returns
    -------
    ndarray
        The averages, in the shape of `x` with `output_size` on the pooled axes, of the dtype of `x` if that is a float,
        and float64 otherwise, unless `dtype` is given. Windows are those of `adaptive_max_pool`.

    Raises
    ------
    GeometryError
        If `output_size` is not positive, or the axes are not there or empty.
    DtypeError, ContiguityError
        As in `avg_pool`.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.adaptive_avg_pool(np.arange(7.0), (3,))
    array([1., 3., 5.])
    """
    settings = resolve(options, "adaptive_avg_pool")
    array = _guards.as_input("x", x, settings)
    result = mean_dtype(array.dtype, dtype)
    geometry = adaptive_geometry(array.shape, output_size, axes)
    plan = _plan.sum_plan(geometry, array.dtype, result, "real")
    return settings.record.done(run_sums(plan, x, array, result, out, settings))


def adaptive_avg_pool_backward(
    grad_output: npt.ArrayLike,
    input_shape: Sequence[int],
    *,
    axes: int | Sequence[int] | None = None,
    out: Array | None = None,
    **options: Unpack[Options],
) -> Array:
    """Gradient of `adaptive_avg_pool` by its input.

    Parameters
    ----------
    grad_output : array_like
        Gradient by the averages, of their shape, which tells `output_size`; any integer or floating dtype.
    input_shape : tuple of int
        Shape of the pooling's input.
    axes : int or tuple of int, optional
        The pooled axes. By default every axis, since an axis that kept its length is left as it is.
    out, **options
        As in `avg_pool_backward`.

    Returns
    -------
    ndarray
        Of `input_shape` and the dtype of `grad_output`; float64 for integers.

    Raises
    ------
    GeometryError
        If `grad_output` and `input_shape` differ in rank, or on an axis that is not pooled.
    DtypeError, ContiguityError
        As in `avg_pool_backward`.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.adaptive_avg_pool_backward(np.array([3.0, 3.0]), (3,))
    array([1.5, 3. , 1.5])
    """
    settings = resolve(options, "adaptive_avg_pool_backward")
    shape = shape_tuple("input_shape", input_shape)
    grad = _guards.as_input("grad_output", grad_output, settings)
    if grad.ndim != len(shape):
        raise GeometryError(
            f"grad_output has {grad.ndim} dimensions {grad.shape}, input_shape has {len(shape)} {shape}"
        )
    positions = tuple(range(grad.ndim)) if axes is None else normalize_axes(axes, grad.ndim)
    if axes is None:
        positions = tuple(axis for axis in positions if grad.shape[axis] != shape[axis])
    for axis in positions:
        if grad.shape[axis] == 0 or shape[axis] == 0:
            raise GeometryError(
                f"axis {axis} has length {shape[axis]} and {grad.shape[axis]} outputs; both must be positive"
            )
    windows = {axis: adaptive_window(shape[axis], grad.shape[axis]) for axis in positions}
    geometry = Geometry.of(shape, windows)
    check_gradient(grad, geometry.output_shape, "the averages")
    return settings.record.done(
        spread(grad_output, grad, geometry, "real", mean_dtype(grad.dtype, None), out, settings)
    )


# ---------------------------------------------------------------------------------------------- windows one by one


def windows_from_edges(coordinates: npt.ArrayLike, edges: npt.ArrayLike) -> tuple[Array, Array]:
    """Windows of `window_pool` from physical coordinates: the elements between two edges make one window.

    Parameters
    ----------
    coordinates : array_like
        Where the elements of an axis lie (time of a frame, range of a LiDAR return), in any unit: one number per
        element, not decreasing.
    edges : array_like
        One number more than there are windows, increasing, in the same unit.

    Returns
    -------
    starts, stops : ndarray of int64
        Window ``i`` holds the elements with ``edges[i] <= coordinate < edges[i+1]``, the last one also those on its
        upper edge, as in `numpy.histogram`. A window may be empty, which only sums allow; elements beyond the edges are
        in none.

    Raises
    ------
    GeometryError
        If either is not one-dimensional, not in order, not finite, or too short.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> metres = np.array([0.5, 1.0, 2.5, 4.0, 9.0])
    >>> windows = fp.windows_from_edges(metres, [0, 2, 4, 10])
    >>> fp.window_pool(np.array([7, 3, 5, 1, 2]), [windows], "max")
    array([7, 5, 2])
    """
    places, limits = _numbers("coordinates", coordinates), _numbers("edges", edges)
    if len(limits) < 2:
        raise GeometryError(f"edges has {len(limits)} entries; a window needs two")
    for name, numbers, bad in (
        ("coordinates", places, places[1:] < places[:-1]),
        ("edges", limits, limits[1:] <= limits[:-1]),
    ):
        if bad.any():
            i = int(bad.argmax())
            rule = "must not decrease" if name == "coordinates" else "must increase"
            raise GeometryError(f"{name}[{i + 1}] is {numbers[i + 1]} after {numbers[i]}; {name} {rule}")
    starts = np.searchsorted(places, limits[:-1], "left").astype(np.int64)
    stops = np.append(starts[1:], np.searchsorted(places, limits[-1], "right")).astype(np.int64)
    return starts, stops


def _numbers(name: str, value: Any) -> Array:
    array = _guards.as_array(name, value)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise GeometryError(f"{name} must be one-dimensional numbers, got shape {array.shape} and dtype {array.dtype}")
    if not np.isfinite(array).all():
        raise GeometryError(f"{name} holds {array[~np.isfinite(array)][0]}; coordinates must be finite")
    return array


def _window_bounds(
    input_shape: tuple[int, ...], windows: Any, axes: Any, empty_allowed: bool
) -> dict[int, tuple[list[int], list[int]]]:
    """Per pooled axis the starts and stops of its windows, checked."""
    pairs = sequence("windows", windows, "a list with one (starts, stops) pair per pooled axis")
    if not pairs:
        raise GeometryError("windows is empty; give one (starts, stops) pair per pooled axis")
    if axes is None and len(pairs) > len(input_shape):
        raise GeometryError(f"windows has {len(pairs)} pairs but the input has only {len(input_shape)} dimensions")
    positions = normalize_axes(axes, len(input_shape), len(pairs))
    if len(positions) != len(pairs):
        raise GeometryError(
            f"windows has {len(pairs)} pairs for {len(positions)} axes; give one (starts, stops) pair each"
        )
    bounds = {}
    for i, (axis, pair) in enumerate(zip(positions, pairs, strict=True)):
        ends = sequence(f"windows[{i}]", pair, "a pair (starts, stops)")
        if len(ends) != 2:
            raise GeometryError(f"windows[{i}] has {len(ends)} entries; it must be a pair (starts, stops)")
        starts, stops = (_places(f"windows[{i}][{j}]", end) for j, end in enumerate(ends))
        if len(starts) != len(stops) or not starts:
            raise GeometryError(
                f"windows[{i}] has {len(starts)} starts and {len(stops)} stops; they must be as many, and some"
            )
        length = input_shape[axis]
        for o, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            if not 0 <= start <= stop <= length:
                raise GeometryError(
                    f"window {o} along axis {axis} is [{start}, {stop}); it must lie in [0, {length}) "
                    f"and not end before it starts"
                )
            if start == stop and not empty_allowed:
                raise GeometryError(
                    f"window {o} along axis {axis} is empty: [{start}, {stop}); only op='sum' has a value for it"
                )
        bounds[axis] = starts, stops
    return bounds


def _places(name: str, value: Any) -> list[int]:
    array = np.asarray(value) if isinstance(value, np.ndarray) else None
    if array is not None:
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise GeometryError(
                f"{name} must be one-dimensional integers, got shape {array.shape} and dtype {array.dtype}"
            )
        return [integer(name, number) for number in array.tolist()]
    return [integer(f"{name}[{i}]", number) for i, number in enumerate(sequence(name, value, "a sequence of integers"))]


def _geometry_of(input_shape: tuple[int, ...], bounds: dict[int, tuple[list[int], list[int]]]) -> Geometry:
    windows = {
        axis: bounds_of(input_shape[axis], starts, [stop - start for start, stop in zip(starts, stops, strict=True)])
        for axis, (starts, stops) in bounds.items()
    }
    return Geometry.of(input_shape, windows)


def window_pool(
    x: npt.ArrayLike,
    windows: Sequence[tuple[Any, Any]],
    op: str = "max",
    *,
    axes: int | Sequence[int] | None = None,
    return_indices: bool = False,
    out: Any = None,
    **options: Unpack[Options],
) -> Any:
    """Maximum, minimum, average or sum over windows that are given one by one.

    Parameters
    ----------
    x : array_like
        Input of any dtype that `max_pool` takes.
    windows : sequence of (starts, stops)
        Per pooled axis two one-dimensional arrays of integers: window ``i`` holds the elements
        ``[starts[i], stops[i])``. Windows may overlap, nest, leave gaps, and come in any order. A window of the result
        is the product of one window along each axis. `windows_from_edges` makes a pair from coordinates.
    op : {"max", "min", "avg", "sum"}
        What to compute.
    axes : int or tuple of int, optional
        The pooled axes, in the order of `windows`; the last ``len(windows)`` by default.
    return_indices : bool, optional
        Also return the flat index of every maximum or minimum.
    out, **options
        As in `max_pool`.

    Returns
    -------
    ndarray or Pooled
        The pooled values, in the shape of `x` with the number of windows on the pooled axes; dtypes as those of
        `max_pool`, `min_pool`, `avg_pool` and `sum_pool`. With `return_indices` the named tuple ``(values, indices)``;
        `max_pool_backward` takes these indices.

    Raises
    ------
    GeometryError
        If a window does not lie on its axis; if one is empty, unless `op` is ``"sum"``, where it gives 0; if `op` is
        none of the four, or an average or sum and `return_indices` is set.
    DtypeError, ContiguityError
        As in `max_pool`.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> x = np.arange(10).reshape(2, 5)
    >>> fp.window_pool(x, [([0, 1], [1, 5])], "sum")
    array([[ 0, 10],
           [ 5, 30]])
    """
    settings = resolve(options, "window_pool")
    if not isinstance(op, str) or op not in ("max", "min", "avg", "sum"):
        raise GeometryError(f"op={op!r} is not known; use 'max', 'min', 'avg' or 'sum'")
    if return_indices and op in ("avg", "sum"):
        raise GeometryError(f"op={op!r} takes no single element, so it has no indices")
    array = _guards.as_input("x", x, settings)
    geometry = _geometry_of(array.shape, _window_bounds(array.shape, windows, axes, op == "sum"))
    if op in ("max", "min"):
        plan = _plan.maximum_plan(geometry, array.dtype, op == "min", return_indices)
        return settings.record.done(run_maximum(plan, array, return_indices, out, (x, array), settings))
    result = mean_dtype(array.dtype, None) if op == "avg" else sum_dtype(array.dtype, None)
    plan = _plan.sum_plan(geometry, array.dtype, result, "real" if op == "avg" else "no")
    return settings.record.done(run_sums(plan, x, array, result, out, settings))


def window_pool_backward(
    grad_output: npt.ArrayLike,
    input_shape: Sequence[int],
    windows: Sequence[tuple[Any, Any]],
    op: str,
    *,
    axes: int | Sequence[int] | None = None,
    **options: Unpack[Options],
) -> Array:
    """Gradient of `window_pool` by its input, for averages and sums.

    Parameters
    ----------
    grad_output : array_like
        Gradient by the pooled values, of their shape; any integer or floating dtype.
    input_shape : tuple of int
        Shape of the pooling's input.
    windows, axes
        What `window_pool` was given.
    op : {"avg", "sum"}
        What `window_pool` computed; maxima and minima go back by their indices, with `max_pool_backward`.
    **options
        See `fastpool.options`.

    Returns
    -------
    ndarray
        Of `input_shape` and the dtype of `grad_output`; of integers as in `avg_pool_backward` and `sum_pool_backward`.

    Raises
    ------
    GeometryError
        If the shapes disagree, or as in `window_pool`.
    DtypeError
        As in `avg_pool_backward`.

    Notes
    -----
    Windows that nest, or are not in order, go back in parts whose windows are in order; that takes time for each part,
    and a few more arrays of the size of the input, of float64 for floats.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.window_pool_backward(np.array([2.0, 6.0]), (5,), [([0, 1], [1, 4])], "avg")
    array([2., 2., 2., 2., 0.])
    """
    settings = resolve(options, "window_pool_backward")
    if op not in ("avg", "sum"):
        raise GeometryError(f"op={op!r} has no gradient here; use 'avg' or 'sum', and max_pool_backward for indices")
    shape = shape_tuple("input_shape", input_shape)
    bounds = _window_bounds(shape, windows, axes, op == "sum")
    geometry = _geometry_of(shape, bounds)
    grad = checked_gradient(grad_output, geometry.output_shape, "the pooled values", settings)
    dtype = mean_dtype(grad.dtype, None) if op == "avg" else sum_dtype(grad.dtype, None)
    divide: _plan.Divide = "real" if op == "avg" else "no"
    chains = {axis: _chains(*pair) for axis, pair in bounds.items()}
    if all(chain == [list(range(len(bounds[axis][0])))] for axis, chain in chains.items()):
        result = spread(grad_output, grad, geometry, divide, dtype, None, settings)
        return settings.record.done(result)
    # Windows that nest or come in any order: axis by axis, and along each in parts whose windows are in order.
    wide = np.dtype(np.float64) if dtype.kind == "f" or dtype.itemsize == 2 else dtype
    with np.errstate(invalid="ignore", over="ignore"):
        result = grad
        for axis, (starts, stops) in bounds.items():
            sums = _PairwiseSum()
            for chain in chains[axis]:
                part = np.ascontiguousarray(np.take(result, chain, axis))
                along = {axis: ([starts[o] for o in chain], [stops[o] for o in chain])}
                full = (*part.shape[:axis], shape[axis], *part.shape[axis + 1 :])
                sums.add(spread(None, part, _geometry_of(full, along), divide, wide, None, settings))
            result = sums.total()
        return settings.record.done(result.astype(dtype, copy=False))


class _PairwiseSum:
    """A sum of arrays in pairs of pairs, so that rounding errors grow with the logarithm of their number."""

    def __init__(self) -> None:
        self._sums: list[tuple[int, Array]] = []

    def add(self, array: Array) -> None:
        count = 1
        while self._sums and self._sums[-1][0] == count:
            array += self._sums.pop()[1]
            count *= 2
        self._sums.append((count, array))

    def total(self) -> Array:
        total = self._sums.pop()[1]
        while self._sums:
            total += self._sums.pop()[1]
        return total


def _chains(starts: list[int], stops: list[int]) -> list[list[int]]:
    """Windows in as few rows as the first fit finds, each with starts and stops in order."""
    chains: list[list[int]] = []
    for o in sorted(range(len(starts)), key=lambda o: (starts[o], stops[o])):
        for chain in chains:
            if stops[chain[-1]] <= stops[o]:
                chain.append(o)
                break
        else:
            chains.append([o])
    return chains
