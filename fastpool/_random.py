"""Pooling with chance: windows at random distances, and elements drawn by their value."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Unpack, cast

import numpy as np
import numpy.typing as npt

from . import _guards, _plan
from ._extremes import run_maximum
from ._geometry import Geometry, Window, bounds_of, integer, named_or_last_axes, pooling_geometry
from ._results import Pooled
from .errors import GeometryError, NonFiniteError
from .options import Options, Settings, resolve

__all__ = ["fractional_max_pool", "stochastic_pool"]

Array = npt.NDArray[Any]


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
        The maxima, of the dtype of `x` and its shape with `output_size` on the pooled axes, or the named tuple
        ``(values, indices)``; `max_pool_backward` takes these indices.

    Raises
    ------
    GeometryError
        If ``output_size + kernel_size - 1`` exceeds the length of an axis, or samples do not fit or lie outside [0, 1).
    DtypeError
        As in `max_pool`.

    Notes
    -----
    With sample u, window i of O starts at ``int((i + u) * a) - int(u * a)`` with ``a = (L - k) / (O - 1)``, and the
    last one at ``L - k`` (B. Graham, Fractional Max-Pooling, 2014, arXiv:1412.6071, overlapping regions, in the form
    that PyTorch uses; its 2-D function takes samples in the order of the last axis first). The same samples or seed
    give the same result for any number of threads. Ties and NaN are as in `max_pool`.

    Windows by plane over axes that are not the last take a copy of the input with these axes last, and with indices
    several int64 arrays of the size of the result.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.fractional_max_pool(np.arange(10), (2,), (6,), random_samples=[0.5])
    array([1, 3, 5, 6, 8, 9])
    """
    settings = resolve(options, "fractional_max_pool")
    array = _guards.as_input("x", x, settings)
    places, kernel = named_or_last_axes("kernel_size", kernel_size, axes, array.ndim)
    _, sizes = named_or_last_axes("output_size", output_size, places, array.ndim)
    kernel = [integer(f"kernel_size[{i}]", k) for i, k in enumerate(kernel)]
    sizes = [integer(f"output_size[{i}]", size) for i, size in enumerate(sizes)]
    for i, (axis, k, size) in enumerate(zip(places, kernel, sizes, strict=True)):
        if k < 1 or size < 1:
            name, value = ("kernel_size", k) if k < 1 else ("output_size", size)
            raise GeometryError(f"{name}[{i}] is {value}; it must be at least 1")
        if size + k - 1 > array.shape[axis]:
            raise GeometryError(
                f"{size} windows of {k} elements do not fit axis {axis} of length {array.shape[axis]}: "
                f"output_size + kernel_size - 1 must not exceed the length"
            )
    planes = tuple(n for axis, n in enumerate(array.shape) if axis not in places)
    samples = _samples(random_samples, rng, planes, len(places), settings)
    flat = samples.reshape(-1, len(places))
    last = tuple(range(array.ndim - len(places), array.ndim))
    if len(flat) == 1 or places == last:
        found = _fractional(x, array, places, kernel, sizes, flat, return_indices, settings)
        return settings.record.done(found)
    # Planes of their own windows must lie one after the other; the pooled axes in ascending order, so that the first of
    # equal maxima stays the first.
    order = sorted(range(len(places)), key=lambda j: places[j])
    places, kernel, sizes = tuple(places[j] for j in order), [kernel[j] for j in order], [sizes[j] for j in order]
    moved = np.ascontiguousarray(np.moveaxis(array, places, last))
    settings.record.step("guard", moved)
    found = _fractional(x, moved, last, kernel, sizes, flat[:, order], return_indices, settings)
    values = np.ascontiguousarray(np.moveaxis(found.values if return_indices else found, last, places))
    if not return_indices:
        settings.record.step("write", values)
        return settings.record.done(values)
    # indices speak of the input, not of what was moved
    found_at = np.unravel_index(np.moveaxis(found.indices, last, places), moved.shape)
    came_from = [axis for axis in range(array.ndim) if axis not in places] + list(places)
    along = [found_at[came_from.index(axis)] for axis in range(array.ndim)]
    indices = np.asarray(np.ravel_multi_index(along, array.shape))
    settings.record.step("write", values, indices)
    return settings.record.done(Pooled(values, indices))


def _samples(given: Any, rng: Any, planes: tuple[int, ...], count: int, settings: Settings) -> Array:
    if given is None:
        return _generator(rng).random((*planes, count))
    samples = _guards.as_input("random_samples", given, settings)
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
    return run_maximum(plan, x, return_indices, None, (given, x), settings)


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
        The drawn values, of the dtype of `x`, in the shape that `output_shape` tells, or the named tuple
        ``(values, indices)``; `max_pool_backward` takes these indices.

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
    M. D. Zeiler and R. Fergus, Stochastic Pooling for Regularization of Deep Convolutional Neural Networks, 2013,
    arXiv:1301.3557. Of the window's elements in C order the first is taken whose running sum exceeds ``u`` times the
    window's sum, in float64; from a window of zeros any element, with equal probability. The same seed gives the same
    result.

    It goes over all outputs once per tap, in NumPy, with two float64 or int64 arrays of the size of the input, and
    several of the size of the result.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.stochastic_pool(np.array([0, 5, 3, 0]), (2,), rng=1)
    array([5, 3])
    """
    settings = resolve(options, "stochastic_pool")
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
    settings.record.step("guard", weights)
    draws = _generator(rng).random(geometry.output_shape)
    settings.record.step("plan", draws)
    indices = _drawn(weights, draws, geometry, settings)
    values = array.reshape(-1)[indices] if array.size else np.empty(geometry.output_shape, array.dtype)
    settings.record.step("write", values, indices)
    return settings.record.done(Pooled(values, indices) if return_indices else values)


def _drawn(weights: Array, draws: Array, geometry: Geometry, settings: Settings) -> Array:
    """Flat index of the tap that each draw points to: all outputs at once, one tap after the other."""
    if draws.size == 0:
        return np.empty(draws.shape, np.int64)
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
    flat = np.arange(weights.size, dtype=np.int64).reshape(weights.shape)
    for made in (totals, taps, targets, running, latest, flat):
        settings.record.step("kernel", made)
    for outputs, elements in _tap_slices(geometry):
        weight, empty = weights[elements], zero[outputs]
        running[outputs] += np.where(empty, 1.0, weight)
        here = np.broadcast_to(flat[elements], weight.shape)
        latest[outputs] = np.where((weight > 0) | empty, here, latest[outputs])
        found = (chosen[outputs] < 0) & (running[outputs] > targets[outputs])
        chosen[outputs] = np.where(found, here, chosen[outputs])
    np.copyto(chosen, latest, where=chosen < 0)
    settings.record.step("kernel")
    return chosen


def _tap_slices(geometry: Geometry) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Tap by tap in C order: the outputs that have it inside the input, and the elements that it is for them."""
    along: list[list[tuple[slice, slice]]] = [[(slice(None), slice(None))] for _ in geometry.input_shape]
    for axis, window in zip(geometry.axes, geometry.windows, strict=True):
        length, k, s, d, before, _, out, crop = cast(Window, window)
        choices = []
        # of very wide windows only the taps that some output has inside the input
        inside: Sequence[int] = range(k)
        if k > length:
            reached = (range(max(0, before - o * s), min(k, before - o * s + length)) for o in range(out))
            inside = sorted(set(itertools.chain.from_iterable(reached)))
        for j in inside:
            first = max(0, -((j * d - before) // s))
            last = min(out, (length - 1 + before - j * d) // s + 1)
            if first < last:
                start = crop + first * s + j * d - before
                choices.append((slice(first, last), slice(start, start + (last - first - 1) * s + 1, s)))
        along[axis] = choices
    for taps in itertools.product(*along):
        yield tuple(outputs for outputs, _ in taps), tuple(elements for _, elements in taps)
