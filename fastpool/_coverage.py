"""Which elements the windows of an axis take, counted without going through them. Integers only, as `_geometry`.

Whatever the length of an axis, an answer costs a number of steps that grows with its digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ._geometry import Window


class WindowTaps(NamedTuple):
    """The taps of one window: how many lie on padding before the axis, on which elements, how many after it.

    `elements` are positions along the whole axis, crops included; `beyond` are taps that ceil mode lets hang over, past
    the padding.
    """

    before: int
    elements: range
    after: int
    beyond: int


class Untouched(NamedTuple):
    """Elements that are no tap of any window: how many, and the first and last stretches of them."""

    total: int
    first: tuple[range, ...]
    last: tuple[range, ...]


def window_taps(window: Window, index: int) -> WindowTaps:
    """The taps of the window of output `index`, in order."""
    length, k, s, d, before, after, _, crop = window
    start = index * s - before

    def taps_below(position: int) -> int:
        return min(k, max(0, -(-(position - start) // d)))

    first, last, padded = taps_below(0), taps_below(length), taps_below(length + after)
    begin = start + first * d + crop
    return WindowTaps(first, range(begin, begin + (last - first) * d, d), padded - last, k - padded)


def overhang(window: Window) -> int:
    """Elements by which the last window reaches past the axis and its padding: 0 without ceil mode."""
    return max(0, (window.out - 1) * window.stride + window.extent - window.before - window.length - window.after)


def windows_on_padding(window: Window) -> tuple[range, range]:
    """The outputs with a tap on the padding before the axis, and those with one on the padding after it."""
    length, k, s, d, before, _, out, _ = window
    lead = min(out, -(-before // s))
    trail = max(0, min(out, -(-(length + before - (k - 1) * d) // s)))
    # only the last window can hang over, and it may step across the padding
    stop = out - (trail < out and window_taps(window, out - 1).after == 0)
    return range(lead), range(trail, max(trail, stop))


# ---------------------------------------------------------------------------------------------- elements in no window


def _floor_sum(count: int, divisor: int, step: int, start: int) -> int:
    """``sum((start + i*step) // divisor for i in range(count))`` for `step`, `start` >= 0, by Euclid's algorithm."""
    total = 0
    while True:
        total += count * (count - 1) // 2 * (step // divisor) + count * (start // divisor)
        step, start = step % divisor, start % divisor
        top = step * count + start
        if top < divisor:
            return total
        count, start, divisor, step = top // divisor, top % divisor, step, divisor


def _points_below(a: int, b: int, limit: int) -> int:
    """How many pairs ``(i, j)`` of numbers >= 0 have ``i*a + j*b < limit``."""
    if limit <= 0:
        return 0
    count = -(-limit // a)
    return _floor_sum(count, b, a, limit - (count - 1) * a + b - 1)


def touched_below(window: Window, n: int) -> int:
    """How many of the first `n` elements, after the crop, are a tap of some window.

    Tap ``j`` of output ``o`` lies ``o*stride + j*dilation`` after the first tap of all. With common factors taken out,
    pairs ``(o, j)`` meet in an element only if they differ by a multiple of ``(dilation, -stride)``. So the elements
    are as many as the pairs less those that have such a neighbour; and the pairs below a limit are those of a triangle,
    less what lies outside the rectangle of outputs and taps.
    """
    common = math.gcd(window.stride, window.dilation)
    s, d = window.stride // common, window.dilation // common

    def pairs(outs: int, taps: int, limit: int) -> int:
        if outs <= 0 or taps <= 0:
            return 0
        return (
            _points_below(s, d, limit)
            - _points_below(s, d, limit - outs * s)
            - _points_below(s, d, limit - taps * d)
            + _points_below(s, d, limit - outs * s - taps * d)
        )

    def positions(limit: int) -> int:
        return pairs(window.out, window.kernel, limit) - pairs(window.out - d, window.kernel - s, limit - s * d)

    n = min(n, window.length)
    return positions(-(-(n + window.before) // common)) - positions(-(-window.before // common))


def _position_of(count_below: Callable[[int], int], number: int, start: int, stop: int) -> int:
    """The smallest n from `start` on with ``count_below(n + 1) > number``, or `stop`; what is near is found first."""
    low, step = start, 1
    while low + step < stop and count_below(low + step) <= number:
        low, step = low + step, 2 * step
    high = min(low + step, stop)
    while low < high:
        middle = (low + high) // 2
        if count_below(middle + 1) > number:
            high = middle
        else:
            low = middle + 1
    return low


def untouched(window: Window, most: int) -> Untouched:
    """The elements in no window, and at most `most` stretches of them from either end."""
    length, crop = window.length, window.crop

    def touched(n: int) -> int:
        return touched_below(window, n)

    def free(n: int) -> int:
        return n - touched_below(window, n)

    total = free(length)
    if total == 0:
        return Untouched(0, (), ())
    first: list[range] = []
    at = found = 0
    while found < total and len(first) < most:
        start = _position_of(free, found, at, length)
        at = _position_of(touched, touched(start), start, length)
        found = free(at)
        first.append(range(crop + start, crop + at))
    last: list[range] = []
    left = total
    while found < left and len(last) < most:
        # mirrored: count from the end, so that what is near is found first
        stop = length - _position_of(lambda n: total - free(length - n), total - left, 0, length)
        start = length - _position_of(
            lambda n: touched(length) - touched(length - n), touched(length) - touched(stop), length - stop, length
        )
        left = free(start)
        last.append(range(crop + start, crop + stop))
    return Untouched(total, tuple(first), tuple(reversed(last)))
