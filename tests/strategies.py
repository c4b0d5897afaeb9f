"""Hypothesis strategies for pooling calls, and an oracle for windows that counts taps one by one."""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import numpy as np
from arrays import DTYPES, KINDS, fill
from hypothesis import strategies as st


class Call(NamedTuple):
    """An array and the arguments of a pooling call with it."""

    x: np.ndarray
    arguments: dict[str, Any]


def count_windows(
    length: int, kernel: int, stride: int, dilation: int, before: int, after: int, ceil_mode: bool
) -> int:
    """Number of windows by laying them out one after the other. Crops are negative `before` and `after`."""
    end = length + before + after
    span = dilation * (kernel - 1) + 1
    count = 0
    while count * stride + span <= end or (ceil_mode and (count - 1) * stride + span < end):
        count += 1
    if ceil_mode and count and (count - 1) * stride >= length + before:
        count -= 1
    return count


def real_taps(out: int, length: int, kernel: int, stride: int, dilation: int, before: int, after: int) -> list[int]:
    """Elements of one window that exist and are not cropped away."""
    kept = range(max(-before, 0), length - max(-after, 0))
    taps = [out * stride + j * dilation - before for j in range(kernel)]
    return [tap for tap in taps if tap in kept]


@functools.cache
def possible_axes(ceil_mode: bool, cost: int, empty_windows: bool) -> list[tuple[int, ...]]:
    """(length, kernel, stride, dilation, before, after) of axes with, or without, empty windows; out*kernel <= cost."""
    found = []
    choices = (range(1, 9), range(1, 5), range(1, 5), range(1, 4), range(-2, 5), range(-2, 5))
    for axis in itertools.product(*choices):
        count = count_windows(*axis, ceil_mode)
        length, kernel, _, _, before, after = axis
        if length - max(-before, 0) - max(-after, 0) < 1 or not 1 <= count <= cost // kernel:
            continue
        if empty_windows or all(real_taps(out, *axis) for out in range(count)):
            found.append(axis)
    return found


COSTS = {1: 60, 2: 30, 3: 16, 4: 9, 5: 6}  # taps along one of so many pooled axes


def draw_array(
    draw: st.DrawFn, leading: list[int], lengths: tuple[int, ...], dtypes: tuple[Any, ...], kinds: tuple[str, ...]
) -> tuple[np.ndarray, dict[str, Any]]:
    """An array whose pooled axes are the last, or anywhere and then named."""
    ndim, shape = len(leading) + len(lengths), (*leading, *lengths)
    named: dict[str, Any] = {}
    if draw(st.booleans(), label="named axes"):
        places = draw(st.permutations(range(ndim)))[: len(lengths)]
        full = list(leading)
        for place, length in sorted(zip(places, lengths, strict=True)):
            full.insert(place, length)
        shape = tuple(full)
        named["axes"] = tuple(draw(st.sampled_from((place, place - ndim))) for place in places)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    return fill(draw(st.sampled_from(kinds)), draw(st.sampled_from(dtypes)), shape, rng), named


def draw_ranks(draw: st.DrawFn) -> tuple[list[int], int]:
    """Lengths of the leading axes, and how many axes to pool: rank 1 to 5 in all."""
    ndim = draw(st.integers(1, 5), label="ndim")
    count = draw(st.integers(1, ndim), label="pooled axes")
    return [draw(st.sampled_from((2, 1, 3, 2, 3, 0))) for _ in range(ndim - count)], count


@st.composite
def pool_calls(
    draw: st.DrawFn, dtypes: tuple[Any, ...] = DTYPES, kinds: tuple[str, ...] = KINDS, empty_windows: bool = False
) -> Call:
    """Calls of rank 1 to 5, with every argument drawn for every axis on its own."""
    leading, count = draw_ranks(draw)
    ceil_mode = draw(st.booleans(), label="ceil_mode")
    axes = [draw(st.sampled_from(possible_axes(ceil_mode, COSTS[count], empty_windows))) for _ in range(count)]
    lengths, kernel, stride, dilation, before, after = (tuple(column) for column in zip(*axes, strict=True))
    x, named = draw_array(draw, leading, lengths, dtypes, kinds)
    arguments: dict[str, Any] = {
        "kernel_size": kernel,
        "stride": stride,
        "padding": tuple(zip(before, after, strict=True)),
        "dilation": dilation,
        "ceil_mode": ceil_mode,
    }
    return Call(x, arguments | named)


@st.composite
def adaptive_calls(draw: st.DrawFn, dtypes: tuple[Any, ...] = DTYPES, kinds: tuple[str, ...] = KINDS) -> Call:
    """Calls that cut axes into fewer or more parts than they have elements; None keeps an axis."""
    leading, count = draw_ranks(draw)
    longest = {1: 40, 2: 12, 3: 7, 4: 4, 5: 3}[count]
    lengths = tuple(draw(st.integers(1, longest)) for _ in range(count))
    sizes = tuple(draw(st.none() | st.integers(1, longest)) for _ in range(count))
    x, named = draw_array(draw, leading, lengths, dtypes, kinds)
    return Call(x, {"output_size": sizes} | named)


@st.composite
def window_calls(
    draw: st.DrawFn, dtypes: tuple[Any, ...] = DTYPES, kinds: tuple[str, ...] = KINDS, empty_windows: bool = False
) -> Call:
    """Calls with windows given one by one: in any order, nested, overlapping, repeated or apart."""
    leading, count = draw_ranks(draw)
    longest, most = {1: (30, 9), 2: (10, 6), 3: (6, 4), 4: (4, 3), 5: (3, 2)}[count]
    lengths, windows = [], []
    for _ in range(count):
        length = draw(st.integers(1, longest))
        places = st.tuples(st.integers(0, length), st.integers(0, length)).map(sorted)
        some = places if empty_windows else places.filter(lambda pair: pair[0] < pair[1])
        pairs = draw(st.lists(some, min_size=1, max_size=most))
        lengths.append(length)
        windows.append(tuple(np.array(ends) for ends in zip(*pairs, strict=True)))
    x, named = draw_array(draw, leading, tuple(lengths), dtypes, kinds)
    return Call(x, {"windows": windows} | named)


@st.composite
def fractional_calls(draw: st.DrawFn, dtypes: tuple[Any, ...] = DTYPES, kinds: tuple[str, ...] = KINDS) -> Call:
    """Calls with samples for all planes together or each on its own."""
    leading, count = draw_ranks(draw)
    longest, widest = {1: (40, 6), 2: (12, 4), 3: (7, 3), 4: (4, 3), 5: (3, 2)}[count]
    lengths = tuple(draw(st.integers(1, longest)) for _ in range(count))
    kernel = tuple(draw(st.integers(1, min(widest, length))) for length in lengths)
    sizes = tuple(draw(st.integers(1, length - k + 1)) for length, k in zip(lengths, kernel, strict=True))
    x, named = draw_array(draw, leading, lengths, dtypes, kinds)
    pooled = {axis % x.ndim for axis in named.get("axes", range(-count, 0))}
    planes = [length for axis, length in enumerate(x.shape) if axis not in pooled]
    shape = (count,) if draw(st.booleans(), label="same windows everywhere") else (*planes, count)
    samples = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).random(shape)
    edges = draw(st.sampled_from((None, 0.0, np.nextafter(1.0, 0.0))))
    if edges is not None:
        samples[...] = edges
    return Call(x, {"kernel_size": kernel, "output_size": sizes, "random_samples": samples} | named)


# ---- convolution

CONV_COSTS = {1: 40, 2: 15, 3: 8, 4: 5, 5: 4}  # taps along one of so many axes
CONV_KINDS = ("random", "ties")


def draw_channels(draw: st.DrawFn) -> tuple[int, int, int, tuple[int, ...]]:
    """Groups, channels of a group on both sides, and the batch if there is one."""
    groups = draw(st.sampled_from((1, 1, 2, 3)), label="groups")
    inputs, outputs = draw(st.sampled_from((1, 2, 3, 0))), draw(st.sampled_from((1, 2, 5)))
    return groups, inputs, outputs, draw(st.sampled_from(((), (1,), (2,), (0,))), label="batch")


@st.composite
def conv_calls(
    draw: st.DrawFn, dtypes: tuple[Any, ...] = DTYPES, kinds: tuple[str, ...] = CONV_KINDS, modes: bool = True
) -> Call:
    """Convolutions over 1 to 5 axes, with every argument drawn for every axis on its own."""
    count = draw(st.integers(1, 5), label="axes")
    axes = [draw(st.sampled_from(possible_axes(False, CONV_COSTS[count], True))) for _ in range(count)]
    lengths, kernel, stride, dilation, before, after = (tuple(column) for column in zip(*axes, strict=True))
    groups, inputs, outputs, batch = draw_channels(draw)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    dtype, kind = draw(st.sampled_from(dtypes)), draw(st.sampled_from(kinds))
    weight = fill(kind, dtype, (groups * outputs, inputs, *kernel), rng)
    arguments = {
        "weight": weight,
        "bias": draw(st.sampled_from((None, fill(kind, dtype, weight.shape[:1], rng)))),
        "stride": stride,
        "padding": tuple(zip(before, after, strict=True)),
        "dilation": dilation,
        "groups": groups,
    }
    if modes:
        arguments["padding_mode"] = draw(st.sampled_from(("zeros", "zeros", "reflect", "replicate", "circular")))
    return Call(fill(kind, dtype, (*batch, groups * inputs, *lengths), rng), arguments)


@functools.cache
def transposed_axes(cost: int) -> list[tuple[int, ...]]:
    """(length, kernel, stride, dilation, before, after, output_padding) of axes with at least one output."""
    found = []
    choices = (range(1, 6), range(1, 5), range(1, 5), range(1, 4), range(-2, 5), range(-2, 5), range(4))
    for length, kernel, stride, dilation, before, after, extra in itertools.product(*choices):
        outputs = (length - 1) * stride + dilation * (kernel - 1) + 1 + extra - before - after
        if extra < max(stride, dilation) and outputs >= 1 and length * kernel <= cost:
            found.append((length, kernel, stride, dilation, before, after, extra))
    return found


@st.composite
def transposed_calls(draw: st.DrawFn, dtypes: tuple[Any, ...] = DTYPES) -> Call:
    """Transposed convolutions over 1 to 5 axes."""
    count = draw(st.integers(1, 5), label="axes")
    axes = [draw(st.sampled_from(transposed_axes(CONV_COSTS[count]))) for _ in range(count)]
    lengths, kernel, stride, dilation, before, after, extra = (tuple(column) for column in zip(*axes, strict=True))
    groups, inputs, outputs, batch = draw_channels(draw)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    dtype, kind = draw(st.sampled_from(dtypes)), draw(st.sampled_from(CONV_KINDS))
    arguments = {
        "weight": fill(kind, dtype, (groups * inputs, outputs, *kernel), rng),
        "bias": draw(st.sampled_from((None, fill(kind, dtype, (groups * outputs,), rng)))),
        "stride": stride,
        "padding": tuple(zip(before, after, strict=True)),
        "output_padding": extra,
        "dilation": dilation,
        "groups": groups,
    }
    return Call(fill(kind, dtype, (*batch, groups * inputs, *lengths), rng), arguments)
