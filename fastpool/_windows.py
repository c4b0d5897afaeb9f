"""Pooling over windows that no stride describes: adaptive, given one by one, or drawn at random."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from . import _buffers, _guards, _plan
from ._extremes import run_maximum
from ._geometry import (
    Geometry,
    Window,
    adaptive_geometry,
    bounds_of,
    integer,
    named_or_last_axes,
    normalize_axes,
    pooling_geometry,
    sequence,
    shape_tuple,
)
from ._means import checked_gradient, mean_dtype, run_sums, spread, sum_dtype
from ._results import Pooled
from .errors import DtypeError, GeometryError, NonFiniteError
from .options import Options, Settings, resolve

__all__ = [
    "adaptive_max_pool",
    "fractional_max_pool",
    "stochastic_pool",
    "window_pool",
    "window_pool_backward",
    "windows_from_edges",
]

Array = npt.NDArray[Any]


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
        The maxima, or the named tuple ``(values, indices)``; `max_pool_backward` takes these indices. Window ``i`` of
        ``O`` over an axis of length ``L`` is ``[i*L // O, ceil((i+1)*L / O))``, in integers.

    Raises
    ------
    GeometryError
        If `output_size` is not positive, or the axes are not there.
    DtypeError, ContiguityError
        As in `max_pool`.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.adaptive_max_pool(np.array([3, 1, 4, 1, 5, 9, 2]), (3,), return_indices=True)
    Pooled(values=array([4, 5, 9]), indices=array([2, 4, 5]))
    """
    settings = resolve(options)
    array = _guards.as_input("x", x, settings)
    plan = _plan.maximum_plan(adaptive_geometry(array.shape, output_size, axes), array.dtype, False, return_indices)
    return run_maximum(plan, x, array, return_indices, out, settings)


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
        upper edge, as in `numpy.histogram`. A window may be empty.

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
            word = "decrease" if name == "coordinates" else "increase"
            raise GeometryError(
                f"{name}[{i + 1}] is {numbers[i + 1]} after {numbers[i]}; they must {'not ' if name == 'coordinates' else ''}{word}"
            )
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
                    f"window {o} along axis {axis} is [{start}, {stop}); it must lie in [0, {length}) and not end before it starts"
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
        Per pooled axis two arrays of integers: window ``i`` holds the elements ``[starts[i], stops[i])``. Windows may
        overlap, leave gaps, and come in any order.
    op : {"max", "min", "avg", "sum"}
        What to compute.
    axes : int or tuple of int, optional
        The pooled axes; the last ``len(windows)`` by default.
    return_indices : bool, optional
        Also return the flat index of every maximum or minimum.
    out, **options
        As in `max_pool`.

    Returns
    -------
    ndarray or Pooled
        With dtypes as those of `max_pool`, `min_pool`, `avg_pool` and `sum_pool`.

    Raises
    ------
    GeometryError
        If a window does not lie on its axis; if one is empty, unless `op` is ``"sum"``, where it gives 0.
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
    settings = resolve(options)
    if not isinstance(op, str) or op not in ("max", "min", "avg", "sum"):
        raise GeometryError(f"op={op!r} is not known; use 'max', 'min', 'avg' or 'sum'")
    if return_indices and op in ("avg", "sum"):
        raise GeometryError(f"op={op!r} takes no single element, so it has no indices")
    array = _guards.as_input("x", x, settings)
    geometry = _geometry_of(array.shape, _window_bounds(array.shape, windows, axes, op == "sum"))
    if op in ("max", "min"):
        plan = _plan.maximum_plan(geometry, array.dtype, op == "min", return_indices)
        return run_maximum(plan, x, array, return_indices, out, settings)
    result = mean_dtype(array.dtype, None) if op == "avg" else sum_dtype(array.dtype, None)
    plan = _plan.sum_plan(geometry, array.dtype, result, "real" if op == "avg" else "no")
    return run_sums(plan, x, array, result, out, settings)


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

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.window_pool_backward(np.array([2.0, 6.0]), (5,), [([0, 1], [1, 4])], "avg")
    array([2., 2., 2., 2., 0.])
    """
    settings = resolve(options)
    if op not in ("avg", "sum"):
        raise GeometryError(f"op={op!r} has no gradient here; use 'avg' or 'sum', and max_pool_backward for indices")
    shape = shape_tuple("input_shape", input_shape)
    bounds = _window_bounds(shape, windows, axes, op == "sum")
    geometry = _geometry_of(shape, bounds)
    grad = checked_gradient(grad_output, geometry.output_shape, "the pooled values", settings)
    dtype = mean_dtype(grad.dtype, None) if op == "avg" else sum_dtype(grad.dtype, None)
    divide: _plan.Divide = "real" if op == "avg" else "no"
    total: Array | None = None
    for part, chosen in _ordered_parts(grad, bounds):
        share = spread(grad_output, part, _geometry_of(shape, chosen), divide, dtype, None, settings)
        total = share if total is None else np.add(total, share, out=total)
    if total is None:
        raise AssertionError("windows make at least one part")
    return total


def _ordered_parts(
    grad: Array, bounds: dict[int, tuple[list[int], list[int]]]
) -> Iterator[tuple[Array, dict[int, tuple[list[int], list[int]]]]]:
    """The gradient in parts whose windows neither start nor stop before the one before: one part unless windows nest."""
    chains = {axis: _chains(*pair) for axis, pair in bounds.items()}
    for choice in itertools.product(*chains.values()):
        part, chosen = grad, {}
        for axis, chain in zip(chains, choice, strict=True):
            starts, stops = bounds[axis]
            if chain != list(range(len(starts))):
                part = np.ascontiguousarray(np.take(part, chain, axis))
            chosen[axis] = [starts[o] for o in chain], [stops[o] for o in chain]
        yield part, chosen


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


# ---------------------------------------------------------------------------------------------- at random


def _generator(rng: Any) -> np.random.Generator:
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise GeometryError(f"rng={rng!r} is neither None, a seed, nor a numpy.random.Generator: {error}") from None


def fractional_max_pool(
    x: npt.ArrayLike,
    kernel_size: Any,
    output_size: Any,
    *,
    random_samples: npt.ArrayLike | None = None,
    rng: Any = None,
    axes: int | Sequence[int] | None = None,
    return_indices: bool = False,
    **options: Unpack[Options],
) -> Any:
    """Maximum over windows whose distances are drawn at random, so that the output may have any size.

    Parameters
    ----------
    x : array_like
        Input of any dtype that `max_pool` takes.
    kernel_size : tuple of int
        Elements of a window along each pooled axis; an int needs `axes`.
    output_size : tuple of int
        Number of windows along each pooled axis.
    random_samples : array_like, optional
        Numbers in [0, 1), one per pooled axis in the order of `kernel_size`: of shape ``(n,)`` for the same windows
        everywhere, or of the shape of the other axes followed by ``n`` for windows of its own in every plane.
    rng : None, int or numpy.random.Generator, optional
        Where samples are drawn from if none are given, one for each plane and axis.
    axes, return_indices, **options
        As in `max_pool`.

    Returns
    -------
    ndarray or Pooled
        The maxima, or the named tuple ``(values, indices)``; `max_pool_backward` takes these indices.

    Raises
    ------
    GeometryError
        If ``output_size + kernel_size - 1`` exceeds the length of an axis, or samples do not fit or lie outside [0, 1).
    DtypeError
        As in `max_pool`.

    Notes
    -----
    With sample u, window i of O starts at ``int((i + u) * a) - int(u * a)`` with ``a = (L - k) / (O - 1)``, and the last
    one at ``L - k`` (B. Graham, Fractional Max-Pooling, 2014, in the form that the frameworks use). The same samples or
    seed give the same result for any number of threads.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.fractional_max_pool(np.arange(10), (2,), (6,), random_samples=[0.5])
    array([1, 3, 4, 6, 8, 9])
    """
    settings = resolve(options)
    array = _guards.as_input("x", x, settings)
    axes, kernel = named_or_last_axes("kernel_size", kernel_size, axes, array.ndim)
    _, sizes = named_or_last_axes("output_size", output_size, axes, array.ndim)
    kernel = [integer(f"kernel_size[{i}]", k) for i, k in enumerate(kernel)]
    sizes = [integer(f"output_size[{i}]", size) for i, size in enumerate(sizes)]
    for i, (axis, k, size) in enumerate(zip(axes, kernel, sizes, strict=True)):
        if k < 1 or size < 1:
            name, value = ("kernel_size", k) if k < 1 else ("output_size", size)
            raise GeometryError(f"{name}[{i}] is {value}; it must be at least 1")
        if size + k - 1 > array.shape[axis]:
            raise GeometryError(
                f"{size} windows of {k} elements do not fit axis {axis} of length {array.shape[axis]}: "
                f"output_size + kernel_size - 1 must not exceed the length"
            )
    planes = tuple(n for axis, n in enumerate(array.shape) if axis not in axes)
    samples = _samples(random_samples, rng, planes, len(axes))
    if samples.ndim == 1 or math.prod(planes) <= 1:
        return _fractional(x, array, axes, kernel, sizes, samples.reshape(-1, len(axes)), return_indices, settings)
    # in ascending order, so that the first of equal maxima stays the first
    order = sorted(range(len(axes)), key=lambda j: axes[j])
    axes, kernel, sizes = tuple(axes[j] for j in order), [kernel[j] for j in order], [sizes[j] for j in order]
    samples = samples[..., order]
    last = tuple(range(array.ndim - len(axes), array.ndim))
    moved = array if axes == last else np.ascontiguousarray(np.moveaxis(array, axes, last))
    found = _fractional(x, moved, last, kernel, sizes, samples.reshape(-1, len(axes)), return_indices, settings)
    if axes == last:
        return found
    values = np.ascontiguousarray(np.moveaxis(found[0] if return_indices else found, last, axes))
    if not return_indices:
        return values
    # indices speak of the input, not of what was moved
    places = np.unravel_index(np.moveaxis(found.indices, last, axes), moved.shape)
    came_from = [axis for axis in range(array.ndim) if axis not in axes] + list(axes)
    along = [places[came_from.index(axis)] for axis in range(array.ndim)]
    return Pooled(values, np.asarray(np.ravel_multi_index(along, array.shape)))


def _samples(given: Any, rng: Any, planes: tuple[int, ...], count: int) -> Array:
    if given is None:
        return _generator(rng).random((*planes, count))
    samples = _guards.as_array("random_samples", given)
    if samples.dtype.kind not in "fiu" or samples.shape not in ((count,), (*planes, count)):
        raise GeometryError(
            f"random_samples has shape {samples.shape} and dtype {samples.dtype}; it must be numbers of shape "
            f"{(count,)}, or {(*planes, count)} for samples of its own in every plane"
        )
    samples = samples.astype(np.float64)
    bad = ~((samples >= 0) & (samples < 1))
    if bad.any():
        raise GeometryError(f"random_samples holds {samples[bad][0]}; samples lie in [0, 1)")
    return samples


def _fractional(
    given: Any,
    x: Array,
    axes: Sequence[int],
    kernel: list[int],
    sizes: list[int],
    samples: Array,
    return_indices: bool,
    settings: Settings,
) -> Any:
    """Fractional maxima with samples of shape (planes or 1, axes)."""
    windows = {}
    for j, (axis, k, size) in enumerate(zip(axes, kernel, sizes, strict=True)):
        length = x.shape[axis]
        starts = np.full((len(samples), size), length - k, np.int64)
        if size > 1:
            step, u = (length - k) / (size - 1), samples[:, j, None]
            ahead = ((np.arange(size - 1) + u) * step).astype(np.int64)
            starts[:, :-1] = ahead - (u * step).astype(np.int64)
        windows[axis] = bounds_of(length, starts.ravel().tolist(), [k] * size)
    plan = _plan.maximum_plan(Geometry.of(x.shape, windows), x.dtype, False, return_indices)
    return run_maximum(plan, given, x, return_indices, None, settings)


def stochastic_pool(
    x: npt.ArrayLike,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    *,
    rng: Any = None,
    axes: int | Sequence[int] | None = None,
    return_indices: bool = False,
    **options: Unpack[Options],
) -> Any:
    """One element of every window, drawn with a probability proportional to its value.

    Parameters
    ----------
    x : array_like
        Non-negative, finite input of any dtype that `max_pool` takes.
    kernel_size, stride, padding, axes
        As in `max_pool`; padding is never drawn.
    rng : None, int or numpy.random.Generator, optional
        Where randomness comes from: one number per output, in C order.
    return_indices, **options
        As in `max_pool`.

    Returns
    -------
    ndarray or Pooled
        The drawn values, or the named tuple ``(values, indices)``; `max_pool_backward` takes these indices.

    Raises
    ------
    GeometryError
        If `x` holds a negative number, or as in `max_pool`.
    NonFiniteError
        If `x` holds NaN or infinity.
    DtypeError
        As in `max_pool`.

    Notes
    -----
    M. D. Zeiler and R. Fergus, Stochastic Pooling for Regularization of Deep Convolutional Neural Networks, 2013. Of
    the window's elements in C order the first is taken whose running sum exceeds ``u`` times the window's sum, in
    float64; from a window of zeros any element, with equal probability.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.stochastic_pool(np.array([0, 5, 3, 0]), (2,), rng=1)
    array([5, 3])
    """
    settings = resolve(options)
    array = _guards.as_input("x", x, settings)
    geometry = pooling_geometry(array.shape, kernel_size, stride, padding, 1, False, axes)
    weights = array.astype(np.float64)
    for bad, error, what in (
        (~np.isfinite(weights), NonFiniteError, "is not finite"),
        (weights < 0, GeometryError, "is negative"),
    ):
        if bad.any():
            where = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), array.shape))
            raise error(f"x holds {array[where]} at {where}, which {what}; values are probabilities up to a factor")
    draws = _generator(rng).random(geometry.output_shape)
    indices = _drawn(weights, draws, geometry)
    values = array.reshape(-1)[indices] if array.size else np.empty(geometry.output_shape, array.dtype)
    return Pooled(values, indices) if return_indices else values


def _drawn(weights: Array, draws: Array, geometry: Geometry) -> Array:
    """Flat index of the tap that each draw points to: all outputs at once, one tap after the other."""
    totals, taps = np.zeros(geometry.output_shape), np.zeros(geometry.output_shape, np.int64)
    for outputs, elements in _tap_slices(geometry):
        totals[outputs] += weights[elements]
        taps[outputs] += 1
    # of a window of zeros every tap weighs the same
    zero = totals == 0
    targets = np.where(zero, np.floor(draws * taps), draws * totals)
    running = np.zeros(geometry.output_shape)
    chosen = np.full(geometry.output_shape, -1, np.int64)
    latest = np.zeros(geometry.output_shape, np.int64)  # the last tap that weighs anything, should rounding pass it by
    flat = np.arange(weights.size, dtype=np.int64).reshape(weights.shape) if weights.size else chosen
    for outputs, elements in _tap_slices(geometry):
        weight, empty = weights[elements], zero[outputs]
        running[outputs] += np.where(empty, 1.0, weight)
        here = np.broadcast_to(flat[elements], weight.shape)
        latest[outputs] = np.where((weight > 0) | empty, here, latest[outputs])
        found = (chosen[outputs] < 0) & (running[outputs] > targets[outputs])
        chosen[outputs] = np.where(found, here, chosen[outputs])
    return np.where(chosen < 0, latest, chosen)


def _tap_slices(geometry: Geometry) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Tap by tap in C order: the outputs that have it inside the input, and the elements that it is for them."""
    along: list[list[tuple[slice, slice]]] = [[(slice(None), slice(None))] for _ in geometry.input_shape]
    for axis, window in zip(geometry.axes, geometry.windows, strict=True):
        if not isinstance(window, Window):
            raise AssertionError("stochastic windows have a stride")
        length, k, s, d, before, _, out, crop = window
        choices = []
        for j in range(k):
            first = max(0, -((j * d - before) // s))
            last = min(out, (length - 1 + before - j * d) // s + 1)
            if first < last:
                start = crop + first * s + j * d - before
                choices.append((slice(first, last), slice(start, start + (last - first - 1) * s + 1, s)))
        along[axis] = choices
    for taps in itertools.product(*along):
        yield tuple(outputs for outputs, _ in taps), tuple(elements for _, elements in taps)
