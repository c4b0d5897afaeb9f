"""The slow twins of pooling over windows that no stride describes: adaptive, given one by one, or drawn at random."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._geometry import (
    integer,
    named_or_last_axes,
    normalize_axes,
    pooling_geometry,
    sequence,
    shape_tuple,
)
from ._results import Pooled
from ._twins import Array, Windows, as_array, flat_index
from ._twins_max import extremes
from ._twins_mean import as_gradient, mean_dtype, one, sum_dtype, sums, sums_backward, taps_of
from .errors import GeometryError, NonFiniteError

__all__ = [
    "adaptive_avg_pool",
    "adaptive_avg_pool_backward",
    "adaptive_max_pool",
    "fractional_max_pool",
    "stochastic_pool",
    "window_pool",
    "window_pool_backward",
    "windows_from_edges",
]


# ---- adaptive


def _parts(length: int, count: int) -> list[range]:
    """An axis cut into parts that are as equal as elements allow; they overlap where it does not come out even."""
    return [range(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]


def _adaptive_windows(shape: tuple[int, ...], output_size: Any, axes: Any) -> Windows:
    places, sizes = named_or_last_axes("output_size", output_size, axes, len(shape))
    pooled = {}
    for axis, size in zip(places, sizes, strict=True):
        count = shape[axis] if size is None else integer("output_size", size)
        if count < 1 or shape[axis] < 1:
            raise GeometryError(
                f"{count} windows over the {shape[axis]} elements of axis {axis}; both must be positive"
            )
        pooled[axis] = _parts(shape[axis], count)
    return Windows.of(shape, pooled)


def adaptive_max_pool(
    x: npt.ArrayLike,
    output_size: Any,
    *,
    axes: Any = None,
    return_indices: bool = False,
    out: Any = None,
    **options: Any,
) -> Array | Pooled:
    """Maximum over a given number of windows: the slow twin of `fastpool.adaptive_max_pool`.

    Parameters
    ----------
    x, output_size, axes, return_indices, out
        As in `fastpool.adaptive_max_pool`.
    **options
        Accepted and ignored: they change how the result is computed, not the result.

    Returns
    -------
    ndarray, or Pooled(values, indices)
        The maxima, and where `return_indices` asks for it their flat indices.

    Raises
    ------
    GeometryError
        If `output_size` is not positive, or does not fit the axes.
    DtypeError
        If `x` is not taken.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.adaptive_max_pool([3, 1, 4, 1, 5, 9, 2], (3,), return_indices=True)
    Pooled(values=array([4, 5, 9]), indices=array([2, 4, 5]))
    """
    array = as_array("x", x)
    return extremes(array, _adaptive_windows(array.shape, output_size, axes), operator.gt, return_indices, out)


def adaptive_avg_pool(
    x: npt.ArrayLike,
    output_size: Any,
    *,
    dtype: Any = None,
    axes: Any = None,
    out: Any = None,
    **options: Any,
) -> Array:
    """Average over a given number of windows: the slow twin of `fastpool.adaptive_avg_pool`.

    Parameters
    ----------
    x, output_size, dtype, axes, out
        As in `fastpool.adaptive_avg_pool`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray
        The averages.

    Raises
    ------
    GeometryError
        As `adaptive_max_pool`.
    DtypeError
        If `x` or `dtype` is not taken.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.adaptive_avg_pool([0, 1, 2, 3, 4, 5, 6], (3,))
    array([1., 3., 5.])
    >>> testing.adaptive_avg_pool([1.0, 5.0], (5,))
    array([1., 1., 3., 5., 5.])
    """
    array = as_array("x", x)
    windows = _adaptive_windows(array.shape, output_size, axes)
    return sums(array, windows, taps_of(windows), mean_dtype(array.dtype, dtype), out)


def adaptive_avg_pool_backward(
    grad_output: npt.ArrayLike, input_shape: Any, *, axes: Any = None, out: Any = None, **options: Any
) -> Array:
    """Gradient of `adaptive_avg_pool`: the slow twin of `fastpool.adaptive_avg_pool_backward`.

    Parameters
    ----------
    grad_output, input_shape, axes, out
        As in `fastpool.adaptive_avg_pool_backward`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray
        For every element, the sum of the gradients of the windows that hold it, each divided by the window's elements.

    Raises
    ------
    GeometryError
        If `grad_output` and `input_shape` differ in rank, or on an axis that is not pooled.
    DtypeError
        If `grad_output` is not numeric.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.adaptive_avg_pool_backward([3.0, 3.0], (3,))
    array([1.5, 3. , 1.5])
    """
    grad = as_gradient(grad_output)
    shape = shape_tuple("input_shape", input_shape)
    if grad.ndim != len(shape):
        raise GeometryError(f"grad_output has shape {grad.shape}, which does not fit an input of shape {shape}")
    # Windows that cut an axis into as many parts as it has elements leave it as it is.
    places = range(grad.ndim) if axes is None else normalize_axes(axes, grad.ndim)
    pooled = [axis for axis in places if axes is not None or grad.shape[axis] != shape[axis]]
    windows = Windows.of(shape, {})
    if pooled:
        windows = _adaptive_windows(shape, [grad.shape[axis] for axis in pooled], pooled)
    return sums_backward(grad, windows, taps_of(windows), mean_dtype(grad.dtype), out)


# ---- windows one by one


def windows_from_edges(
    coordinates: npt.ArrayLike, edges: npt.ArrayLike
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Windows between physical coordinates: the slow twin of `fastpool.windows_from_edges`.

    Parameters
    ----------
    coordinates, edges
        As in `fastpool.windows_from_edges`.

    Returns
    -------
    starts, stops : ndarray of int64
        Window ``i`` holds the elements with ``edges[i] <= coordinate < edges[i+1]``, the last also its upper edge.

    Raises
    ------
    GeometryError
        If either is not a row of finite numbers in order.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.windows_from_edges([0.5, 1.0, 2.5, 4.0, 9.0], [0, 1, 4, 9])
    (array([0, 1, 3]), array([1, 3, 5]))
    """
    places, limits = (_row(name, value) for name, value in (("coordinates", coordinates), ("edges", edges)))
    if any(b < a for a, b in itertools.pairwise(places)):
        raise GeometryError("coordinates must not decrease")
    if len(limits) < 2 or any(b <= a for a, b in itertools.pairwise(limits)):
        raise GeometryError("edges must be two or more, and increase")
    starts, stops = [], []
    for i, (low, high) in enumerate(itertools.pairwise(limits)):
        closed = i == len(limits) - 2  # the last window holds its upper edge
        starts.append(sum(place < low for place in places))
        stops.append(sum(place < high or (closed and place == high) for place in places))
    return np.array(starts, np.int64), np.array(stops, np.int64)


def _row(name: str, value: npt.ArrayLike) -> list[Any]:
    array = as_array(name, value)
    if array.ndim != 1 or array.dtype.kind == "b" or not np.isfinite(array).all():
        raise GeometryError(f"{name} must be one-dimensional and finite numbers")
    numbers: list[Any] = array.tolist()
    return numbers


def _given_windows(shape: tuple[int, ...], windows: Any, axes: Any, op: str) -> Windows:
    pairs = sequence("windows", windows, "one (starts, stops) pair per pooled axis")
    if not pairs:
        raise GeometryError("windows is empty")
    places = normalize_axes(axes, len(shape), len(pairs))
    if len(places) != len(pairs):
        raise GeometryError(f"windows has {len(pairs)} pairs for {len(places)} axes")
    pooled: dict[int, list[range]] = {}
    for axis, pair in zip(places, pairs, strict=True):
        ends = [_integers(end) for end in sequence("windows", pair, "a pair (starts, stops)")]
        if len(ends) != 2 or len(ends[0]) != len(ends[1]) or not ends[0]:
            raise GeometryError(f"the windows along axis {axis} need as many starts as stops, and at least one")
        pooled[axis] = [range(start, stop) for start, stop in zip(*ends, strict=True)]
        for i, window in enumerate(pooled[axis]):
            if not 0 <= window.start <= window.stop <= shape[axis]:
                raise GeometryError(f"window {i} along axis {axis} does not lie in [0, {shape[axis]})")
            if not window and op != "sum":
                raise GeometryError(f"window {i} along axis {axis} is empty, and only a sum has a value for it")
    return Windows.of(shape, pooled)


def _integers(values: Any) -> list[int]:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise GeometryError(f"starts and stops must be one-dimensional integers, got dtype {array.dtype}")
    return [int(value) for value in array]


def window_pool(
    x: npt.ArrayLike,
    windows: Any,
    op: str = "max",
    *,
    axes: Any = None,
    return_indices: bool = False,
    out: Any = None,
    **options: Any,
) -> Array | Pooled:
    """Pool over windows given one by one: the slow twin of `fastpool.window_pool`.

    Parameters
    ----------
    x, windows, op, axes, return_indices, out
        As in `fastpool.window_pool`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray, or Pooled(values, indices)
        One value per window, and where `return_indices` asks for it the flat indices of maxima or minima.

    Raises
    ------
    GeometryError
        If a window does not lie on its axis, or is empty and `op` is not ``"sum"``; if `op` is not known, or has no
        indices.
    DtypeError
        If `x` is not taken.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.window_pool([[0, 1, 2, 3, 4]], [([0, 1, 2], [1, 5, 2])], "sum")
    array([[ 0, 10,  0]])
    """
    if op not in ("max", "min", "avg", "sum"):
        raise GeometryError(f"op={op!r} is not known")
    if return_indices and op in ("avg", "sum"):
        raise GeometryError(f"op={op!r} takes no single element, so it has no indices")
    array = as_array("x", x)
    along = _given_windows(array.shape, windows, axes, op)
    if op in ("max", "min"):
        return extremes(array, along, operator.gt if op == "max" else operator.lt, return_indices, out)
    if op == "avg":
        return sums(array, along, taps_of(along), mean_dtype(array.dtype), out)
    return sums(array, along, one, sum_dtype(array.dtype), out)


def window_pool_backward(
    grad_output: npt.ArrayLike, input_shape: Any, windows: Any, op: str, *, axes: Any = None, **options: Any
) -> Array:
    """Gradient of `window_pool`: the slow twin of `fastpool.window_pool_backward`.

    Parameters
    ----------
    grad_output, input_shape, windows, op, axes
        As in `fastpool.window_pool_backward`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray
        For every element, the sum of the gradients of the windows that hold it, for averages each divided by the
        window's elements.

    Raises
    ------
    GeometryError
        As `window_pool`, if `op` is neither ``"avg"`` nor ``"sum"``, or if `grad_output` has another shape.
    DtypeError
        If `grad_output` is not numeric.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.window_pool_backward([2.0, 6.0], (5,), [([0, 1], [1, 4])], "avg")
    array([2., 2., 2., 2., 0.])
    """
    if op not in ("avg", "sum"):
        raise GeometryError(f"op={op!r} has no gradient here; maxima and minima go back by max_pool_backward")
    grad = as_gradient(grad_output)
    shape = shape_tuple("input_shape", input_shape)
    along = _given_windows(shape, windows, axes, op)
    if op == "avg":
        return sums_backward(grad, along, taps_of(along), mean_dtype(grad.dtype))
    return sums_backward(grad, along, one, sum_dtype(grad.dtype))


# ---- at random


def _generator(rng: Any) -> np.random.Generator:
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise GeometryError(f"rng={rng!r} is neither None, a seed, nor a generator") from error


def fractional_max_pool(
    x: npt.ArrayLike,
    kernel_size: Any,
    output_size: Any,
    *,
    random_samples: Any = None,
    rng: Any = None,
    axes: Any = None,
    return_indices: bool = False,
    **options: Any,
) -> Array | Pooled:
    """Maximum over windows at random distances: the slow twin of `fastpool.fractional_max_pool`.

    Parameters
    ----------
    x, kernel_size, output_size, random_samples, rng, axes, return_indices
        As in `fastpool.fractional_max_pool`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray, or Pooled(values, indices)
        The maxima, and where `return_indices` asks for it their flat indices.

    Raises
    ------
    GeometryError
        If ``output_size + kernel_size - 1`` exceeds an axis, or the samples do not fit or lie outside [0, 1).
    DtypeError
        If `x` is not taken.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.fractional_max_pool(list(range(10)), (2,), (6,), random_samples=[0.5])
    array([1, 3, 5, 6, 8, 9])
    """
    array = as_array("x", x)
    places, kernel = named_or_last_axes("kernel_size", kernel_size, axes, array.ndim)
    _, sizes = named_or_last_axes("output_size", output_size, places, array.ndim)
    output_shape = list(array.shape)
    for axis, k, size in zip(places, kernel, sizes, strict=True):
        if integer("kernel_size", k) < 1 or integer("output_size", size) < 1 or size + k - 1 > array.shape[axis]:
            raise GeometryError(
                f"{size} windows of {k} elements do not fit axis {axis} of {array.shape[axis]} elements"
            )
        output_shape[axis] = size

    leading = [axis for axis in range(array.ndim) if axis not in places]
    planes = tuple(array.shape[axis] for axis in leading)
    if random_samples is None:
        samples = _generator(rng).random((*planes, len(places)))
    else:
        samples = as_array("random_samples", random_samples).astype(np.float64)
    if samples.shape not in ((len(places),), (*planes, len(places))) or not ((samples >= 0) & (samples < 1)).all():
        raise GeometryError(
            f"random_samples of shape {samples.shape} must be one number in [0, 1) per axis (and plane)"
        )

    values = np.empty(output_shape, array.dtype)
    indices = np.empty(output_shape, np.int64)
    for plane in np.ndindex(*planes):
        own = samples if samples.ndim == 1 else samples[plane]
        pooled = {axis: [range(i, i + 1)] for axis, i in zip(leading, plane, strict=True)}
        for axis, k, size, u in zip(places, kernel, sizes, own.tolist(), strict=True):
            pooled[axis] = _fractional_windows(array.shape[axis], k, size, u)
        found = extremes(array, Windows.of(array.shape, pooled), operator.gt, return_indices=True)
        here = tuple(slice(pooled[axis][0].start, pooled[axis][0].stop) if axis in leading else slice(None)
                     for axis in range(array.ndim))  # fmt: skip
        values[here], indices[here] = found
    return Pooled(values, indices) if return_indices else values


def _fractional_windows(length: int, kernel: int, count: int, u: float) -> list[range]:
    """Windows that start at multiples of a fraction, shifted by the sample and rounded down; the last at the end."""
    starts = []
    if count > 1:
        step = (length - kernel) / (count - 1)
        starts = [int((i + u) * step) - int(u * step) for i in range(count - 1)]
    return [range(start, start + kernel) for start in (*starts, length - kernel)]


def stochastic_pool(
    x: npt.ArrayLike,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    *,
    rng: Any = None,
    axes: Any = None,
    return_indices: bool = False,
    **options: Any,
) -> Array | Pooled:
    """One element of every window, drawn in proportion to its value: the slow twin of `fastpool.stochastic_pool`.

    Parameters
    ----------
    x, kernel_size, stride, padding, rng, axes, return_indices
        As in `fastpool.stochastic_pool`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray, or Pooled(values, indices)
        The drawn elements, and where `return_indices` asks for it their flat indices.

    Raises
    ------
    GeometryError
        If `x` holds a negative number, or the windows are not possible.
    NonFiniteError
        If `x` holds NaN or infinity.
    DtypeError
        If `x` is not taken.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.stochastic_pool([0, 5, 3, 0], (2,), rng=1)
    array([5, 3])
    """
    array = as_array("x", x)
    geometry = pooling_geometry(array.shape, kernel_size, stride, padding, 1, False, axes)
    windows = Windows.strided(geometry)
    weights = array.astype(np.float64)
    if not np.isfinite(weights).all():
        raise NonFiniteError("x holds NaN or infinity, which are no weights")
    if (weights < 0).any():
        raise GeometryError("x holds negative numbers, which are no weights")
    draws = _generator(rng).random(windows.output_shape)
    indices = np.empty(windows.output_shape, np.int64)
    for position in np.ndindex(*windows.output_shape):
        taps = list(windows.at(position))
        drawn = taps[_drawn([float(weights[tap]) for tap in taps], float(draws[position]))]
        indices[position] = flat_index(drawn, array.shape)
    values = array.ravel()[indices]
    return Pooled(values, indices) if return_indices else values


def _drawn(weights: Sequence[float], u: float) -> int:
    """The first tap at which the running sum of the weights exceeds a share `u` of all of them."""
    total = 0.0
    for weight in weights:
        total += weight
    if total == 0:  # every tap weighs the same
        return int(u * len(weights))
    running, last = 0.0, 0
    for i, weight in enumerate(weights):
        running += weight
        if running > u * total:
            return i
        if weight > 0:
            last = i
    return last  # where rounding has made the share as large as the sum
