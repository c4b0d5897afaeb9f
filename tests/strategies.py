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
def possible_axes(ceil_mode: bool, cost: int) -> list[tuple[int, ...]]:
    """(length, kernel, stride, dilation, before, after) of axes without empty windows; out*kernel <= cost."""
    found = []
    choices = (range(1, 9), range(1, 5), range(1, 5), range(1, 4), range(-2, 5), range(-2, 5))
    for axis in itertools.product(*choices):
        count = count_windows(*axis, ceil_mode)
        length, kernel, _, _, before, after = axis
        if length - max(-before, 0) - max(-after, 0) < 1 or not 1 <= count <= cost // kernel:
            continue
        if all(real_taps(out, *axis) for out in range(count)):
            found.append(axis)
    return found


@st.composite
def pool_calls(draw: st.DrawFn, dtypes: tuple[Any, ...] = DTYPES, kinds: tuple[str, ...] = KINDS) -> Call:
    """Calls of rank 1 to 5, with every argument drawn for every axis on its own."""
    ndim = draw(st.integers(1, 5), label="ndim")
    count = draw(st.integers(1, ndim), label="pooled axes")
    ceil_mode = draw(st.booleans(), label="ceil_mode")
    cost = {1: 60, 2: 30, 3: 16, 4: 9, 5: 6}[count]
    axes = [draw(st.sampled_from(possible_axes(ceil_mode, cost))) for _ in range(count)]
    lengths, kernel, stride, dilation, before, after = (tuple(column) for column in zip(*axes, strict=True))
    leading = [draw(st.sampled_from((2, 1, 3, 2, 3, 0))) for _ in range(ndim - count)]
    arguments: dict[str, Any] = {
        "kernel_size": kernel,
        "stride": stride,
        "padding": tuple(zip(before, after, strict=True)),
        "dilation": dilation,
        "ceil_mode": ceil_mode,
    }
    shape = (*leading, *lengths)
    if draw(st.booleans(), label="named axes"):
        places = draw(st.permutations(range(ndim)))[:count]
        full = list(leading)
        for place, length in sorted(zip(places, lengths, strict=True)):
            full.insert(place, length)
        shape = tuple(full)
        signed = [draw(st.sampled_from((place, place - ndim))) for place in places]
        arguments["axes"] = tuple(signed)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    x = fill(draw(st.sampled_from(kinds)), draw(st.sampled_from(dtypes)), shape, rng)
    return Call(x, arguments)
