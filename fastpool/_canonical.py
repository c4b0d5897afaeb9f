"""The canonical form: a call of any rank as a short list of axes, before any kernel sees it. Integers only."""

from __future__ import annotations

from typing import NamedTuple

from ._geometry import WIDEST, Bounds, Geometry, Window, by_places, nowhere


class Level(NamedTuple):
    """One axis of the canonical form: its window, and the distance between neighbours in the input and output.

    `axis` is the axis that it came from, None where several merged into one.
    """

    window: Window | Bounds
    input_stride: int
    output_stride: int
    axis: int | None = None


class Canonical(NamedTuple):
    """``(outer, levels)``: what a kernel sees of a call of any rank. The last level is contiguous in memory."""

    outer: int
    outer_input_stride: int
    outer_output_stride: int
    input_offset: int
    levels: tuple[Level, ...]


def canonical_form(geometry: Geometry) -> Canonical:
    """Reduce a call of any rank to ``(outer, levels)``.

    Leading axes that are not pooled merge into `outer`; neighbouring axes without windows merge into one carried
    level (kernel 1, stride 1); an axis of length 1 that is only carried disappears. Windows keep no taps, strides or
    padding far beyond the axis, so that no product of two large numbers is left for the kernels.
    """
    pooled = dict(zip(geometry.axes, geometry.windows, strict=True))
    input_stride = output_stride = 1
    offset = 0
    levels: list[Level] = []  # innermost first while building
    for axis in range(len(geometry.input_shape) - 1, -1, -1):
        length = geometry.input_shape[axis]
        window = pooled.get(axis, Window(length, 1, 1, 1, 0, 0, length))
        if isinstance(window, Window):
            window = _by_real_taps(_without_idle_taps(window))
        offset += window.crop * input_stride
        out = window.out
        inner = levels[-1] if levels else None
        # two axes can be one if neither is cropped: then their elements follow each other without gaps
        adjacent = (
            inner is not None and window.length == length and inner.window.length * inner.input_stride == input_stride
        )
        if length == 1 and is_carried(window):
            pass
        elif inner is not None and adjacent and is_carried(window) and is_carried(inner.window):
            merged = length * inner.window.length
            levels[-1] = inner._replace(window=Window(merged, 1, 1, 1, 0, 0, merged), axis=None)
        elif inner is not None and adjacent and is_whole(window) and is_whole(inner.window):
            merged = length * inner.window.length
            levels[-1] = inner._replace(window=Window(merged, merged, 1, 1, 0, 0, 1), axis=None)
        else:
            levels.append(Level(window, input_stride, output_stride, axis))
        input_stride *= length
        output_stride *= out
    outer, outer_in, outer_out = 1, input_stride, output_stride
    if len(levels) > 1 and is_carried(levels[-1].window):
        top = levels.pop()
        outer, outer_in, outer_out = top.window.length, top.input_stride, top.output_stride
    if not levels:
        levels.append(Level(Window(1, 1, 1, 1, 0, 0, 1), 1, 1))
    return Canonical(outer, outer_in, outer_out, offset, tuple(reversed(levels)))


def _without_idle_taps(window: Window) -> Window:
    """The window without the taps that fall on padding in every output, and without strides that are never taken.

    What is left is not much wider than the axis, however wide the window was.
    """
    length, kernel, stride, dilation, before, _, out, crop = window
    stride = 1 if out == 1 else stride
    idle = min(kernel - 1, max(0, -(-(before - (out - 1) * stride) // dilation)))
    before -= idle * dilation
    if length + before <= 0:  # not even the last tap reaches the axis: one tap before it stands for all
        return nowhere(length, out, crop)
    if before < 0:  # the first tap that is left lies inside
        crop, length, before = crop - before, length + before, 0
    kernel = min(kernel - idle, (length - 1 + before) // dilation + 1)
    dilation = 1 if kernel == 1 else dilation
    after = max(0, (out - 1) * stride + 1 - length - before)  # as much as makes the windows start on it
    return Window(length, kernel, stride, dilation, before, after, out, crop)


def _by_real_taps(window: Window) -> Window | Bounds:
    """Few windows that reach far beyond the axis, by the taps that they have on it."""
    length, kernel, stride, dilation, before, _, out, crop = window
    if out > WIDEST or max(kernel, stride, dilation, before) <= max(length, WIDEST):
        return window
    starts = (o * stride - before for o in range(out))
    return by_places(length, [range(start, start + kernel * dilation, dilation) for start in starts], crop)


def is_carried(window: Window | Bounds) -> bool:
    """Whether the axis is only carried along: one tap, every element."""
    if isinstance(window, Bounds):
        return False
    return window.kernel == 1 and window.stride == 1 and window.before == 0 and window.out == window.length


def is_whole(window: Window | Bounds) -> bool:
    """Whether the axis is pooled by one window that is exactly the axis."""
    if isinstance(window, Bounds):
        return False
    return window.kernel == window.length and window.dilation == 1 and window.out == 1 and window.before == 0
