"""What a call would do, without arrays: the shape of its result, and why it is what it is."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack, cast

import numpy as np

from . import _dispatch
from ._coverage import Untouched, WindowTaps, overhang, touched_below, untouched, window_taps, windows_on_padding
from ._geometry import (
    Window,
    extent,
    normalize_axes,
    output_length,
    pooling_geometry,
    shape_tuple,
    window_without_tap,
    windows_by_formula,
)
from ._guards import check_dtype
from ._plan import pool_plan
from .errors import DtypeError, GeometryError
from .options import Options, _threads, get_num_threads, resolve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["AxisPlan", "PoolingPlan", "TilePlan", "explain", "output_shape"]

SHOWN_WINDOWS = 3  # at either end of an axis
SHOWN_TAPS = 8  # of a window, before its middle is left out
SHOWN_STRETCHES = 4  # of untouched elements, at either end


def output_shape(
    input_shape: Sequence[int],
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    axes: Any = None,
) -> tuple[int, ...]:
    """Shape of a pooling's result, in exact integers; nothing is allocated.

    Parameters
    ----------
    input_shape : tuple of int
        Shape of the input.
    kernel_size, stride, padding, dilation, ceil_mode, axes
        As in `fastpool.max_pool`.

    Returns
    -------
    tuple of int
        The shape of the result.

    Raises
    ------
    GeometryError
        If the arguments describe no pooling.

    Examples
    --------
    >>> import fastpool as fp
    >>> fp.output_shape((8, 64, 112, 112), (3, 3), stride=2, padding=1)
    (8, 64, 56, 56)
    >>> fp.output_shape((1, 1, 225, 225), (2, 2), ceil_mode=True)
    (1, 1, 113, 113)
    """
    shape = shape_tuple("input_shape", input_shape)
    return pooling_geometry(shape, kernel_size, stride, padding, dilation, ceil_mode, axes).output_shape


# ---------------------------------------------------------------------------------------------- one axis


@dataclass(frozen=True)
class AxisPlan:
    """The windows along one pooled axis; ``str()`` tells them, long axes by their ends.

    Attributes
    ----------
    axis, length : int
        Which axis of the input, and its elements.
    kernel_size, stride, dilation : int
        Of the window along this axis.
    padding : tuple of int
        Before and after the axis; negative padding crops.
    ceil_mode : bool
        Whether the last window may hang over the end.
    out : int
        Windows along the axis: the length of the result.
    """

    axis: int
    length: int
    kernel_size: int
    stride: int
    dilation: int
    padding: tuple[int, int]
    ceil_mode: bool
    out: int

    @cached_property
    def _window(self) -> Window:
        before, after = self.padding
        kept = self.length + min(before, 0) + min(after, 0)
        sizes = (self.kernel_size, self.stride, self.dilation)
        return Window(kept, *sizes, max(before, 0), max(after, 0), self.out, max(-before, 0))

    def taps(self, window: int) -> WindowTaps:
        """The taps of a window: the number on padding before the axis, the elements, and the number after it."""
        if not 0 <= window < self.out:
            raise GeometryError(f"window {window} does not exist; axis {self.axis} has windows 0 to {self.out - 1}")
        return window_taps(self._window, window)

    def touches(self, element: int) -> bool:
        """Whether an element of the axis is a tap of some window."""
        at = element - self._window.crop
        return touched_below(self._window, at + 1) > touched_below(self._window, at)

    @property
    def formula(self) -> str:
        """``(length + before + after - extent + ceil) // stride + 1 = out`` in numbers."""
        (before, after), s = self.padding, self.stride
        e = extent(self.kernel_size, self.dilation)
        ceil = s - 1 if self.ceil_mode else 0
        size = windows_by_formula(self.length, self.kernel_size, s, self.dilation, before, after, self.ceil_mode)
        signed = " ".join(f"{'-' if n < 0 else '+'} {abs(n)}" for n in (before, after))
        dropped = f" - {size - self.out}" if size != self.out else ""
        return f"({self.length} {signed} - {e} + {ceil}) // {s} + 1{dropped} = {self.out}"

    @property
    def overhang(self) -> int:
        """Elements by which the last window hangs over the axis and its padding."""
        return overhang(self._window)

    @property
    def on_padding(self) -> tuple[range, range]:
        """The windows with taps on the padding before the axis, and those with taps on the padding after it."""
        return windows_on_padding(self._window)

    @property
    def cropped(self) -> tuple[range, range]:
        """The elements that negative padding crops from either end."""
        before, after = (max(-pad, 0) for pad in self.padding)
        return range(before), range(self.length - after, self.length)

    @cached_property
    def untouched(self) -> Untouched:
        """The elements, other than cropped ones, in no window: how many, and their first and last stretches."""
        return untouched(self._window, SHOWN_STRETCHES)

    @property
    def trailing(self) -> range:
        """The elements after the last tap of all windows."""
        end = self.cropped[1].start
        stretches = self.untouched.last or self.untouched.first
        return stretches[-1] if stretches and stretches[-1].stop == end else range(end, end)

    @property
    def out_of_other_ceil_mode(self) -> int | None:
        """Windows along the axis with the other `ceil_mode`; None where that would be an error."""
        window = self._window
        out = output_length(*window[:6], not self.ceil_mode)
        return out if out >= 1 and window_without_tap(window._replace(out=out)) is None else None

    @property
    def other_ceil_mode(self) -> str:
        """What the other `ceil_mode` would change, in a sentence."""
        window, other = self._window, self.out_of_other_ceil_mode
        name = f"ceil_mode={not self.ceil_mode}"
        if other is None:
            if output_length(*window[:6], not self.ceil_mode) < 1:
                return f"{name} would be an error: no window would fit"
            return f"{name} would be an error: a window would have no tap inside the input"
        if other > self.out:
            by = overhang(window._replace(out=other))
            return f"{name} would give {other}: one more window, which hangs over by {_count(by, 'element')}"
        if other < self.out:
            by = self.overhang
            return f"{name} would give {other}: without the last window, which hangs over by {_count(by, 'element')}"
        if (window.length + window.before + window.after - window.extent) % window.stride:
            return f"{name} would change nothing: one more window would start after the last element"
        end = "the padding" if window.after else "the axis"
        return f"{name} would change nothing: the last window ends where {end} does"

    def to_dict(self) -> dict[str, Any]:
        """The plan of the axis as dicts, lists, strings and numbers; of many windows the first and the last."""
        first, last = _ends(self.out, SHOWN_WINDOWS)
        stretches = self.untouched
        return {
            **{f.name: getattr(self, f.name) for f in fields(self)},
            "padding": list(self.padding),
            "extent": extent(self.kernel_size, self.dilation),
            "formula": self.formula,
            "windows": [_taps_dict(i, self.taps(i)) for i in (*first, *last)],
            "on_padding": [_span(windows) for windows in self.on_padding],
            "overhang": self.overhang,
            "cropped": [_span(elements) for elements in self.cropped],
            "untouched": {
                "total": stretches.total,
                "first": [_span(elements) for elements in stretches.first],
                "last": [_span(elements) for elements in stretches.last],
                "trailing": _span(self.trailing),
            },
            "other_ceil_mode": {"out": self.out_of_other_ceil_mode, "text": self.other_ceil_mode},
        }

    def __str__(self) -> str:
        return "\n".join(_axis_text(self, f"axis {self.axis}"))


def _axis_text(plan: AxisPlan, name: str) -> list[str]:
    first, last = _ends(plan.out, SHOWN_WINDOWS)
    width = len(f"window {plan.out - 1}")
    lines = [f"{plan.formula} {'window' if plan.out == 1 else 'windows'}"]
    lines += [f"{f'window {i}':<{width}}  {_taps_text(plan.taps(i))}" for i in first]
    if last:
        lines.append(f"{'...':<{width}}  {plan.out - len(first) - len(last)} more")
        lines += [f"{f'window {i}':<{width}}  {_taps_text(plan.taps(i))}" for i in last]
    on_padding = [_windows_text(windows) for windows in plan.on_padding if windows]
    if on_padding:
        lines.append(f"with taps on padding: {' and '.join(on_padding)}")
    if plan.overhang:
        lines.append(f"hanging over the end: window {plan.out - 1}, by {_count(plan.overhang, 'element')}")
    cropped = [_elements_text(elements) for elements in plan.cropped if elements]
    if cropped:
        lines.append(f"cropped by negative padding: {', '.join(cropped)}")
    if plan.untouched.total:
        lines.append(f"untouched: {_untouched_text(plan)}")
    sizes = (
        f"length {plan.length}, kernel_size {plan.kernel_size}, stride {plan.stride}, dilation {plan.dilation}, "
        f"padding {plan.padding}"
    )
    return [f"{name}: {sizes}", *(f"  {line}" for line in (*lines, plan.other_ceil_mode))]


def _untouched_text(plan: AxisPlan) -> str:
    total, first, last = plan.untouched
    text = ", ".join(map(_elements_text, first))
    if last:
        text += ", " if sum(map(len, (*first, *last))) == total else " ... "
        text += ", ".join(map(_elements_text, last))
    trailing = len(plan.trailing)
    if trailing:
        text += f" ({'' if trailing == total else f'{trailing} '}after the last tap)"
    return f"{total} of {_count(plan.length, 'element')}: {text}"


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _ends(count: int, shown: int) -> tuple[range, range]:
    """The first and last of `count` things: all in the first range where leaving one out would save nothing."""
    if count <= 2 * shown + 1:
        return range(count), range(0)
    return range(shown), range(count - shown, count)


def _span(numbers: range) -> list[int]:
    return [numbers.start, numbers.stop]


def _elements_text(elements: range) -> str:
    return str(elements[0]) if len(elements) == 1 else f"{elements[0]}-{elements[-1]}"


def _windows_text(windows: range) -> str:
    if len(windows) == 1:
        return f"window {windows[0]}"
    return f"windows {windows[0]}-{windows[-1]}"


def _taps_text(taps: WindowTaps) -> str:
    """Taps in order: elements by number, ``pad`` and ``over`` for those on padding and those that hang over."""
    before, elements, after, beyond = taps
    short = before + len(elements) + after + beyond <= SHOWN_TAPS

    def repeated(word: str, times: int) -> list[str]:
        return [word] * times if short or times <= 2 else [f"{word} x {times}"]

    if short or len(elements) <= 6:
        numbers = [str(element) for element in elements]
    else:
        numbers = [*map(str, elements[:3]), "...", *map(str, elements[-2:])]
    return " ".join([*repeated("pad", before), *numbers, *repeated("pad", after), *repeated("over", beyond)])


def _taps_dict(window: int, taps: WindowTaps) -> dict[str, int]:
    before, elements, after, beyond = taps
    return {
        "window": window,
        "taps_on_padding_before": before,
        "first_element": elements[0],
        "last_element": elements[-1],
        "elements": len(elements),
        "taps_on_padding_after": after,
        "taps_hanging_over": beyond,
    }


# ---------------------------------------------------------------------------------------------- a call


class TilePlan(NamedTuple):
    """Outputs that a unit of work computes along an axis of the kernel; `axis` is None where several axes are one."""

    axis: int | None
    tile: int
    out: int


@dataclass(frozen=True)
class PoolingPlan:
    """What a maximum or minimum pooling would do, from `explain`: ``str()`` tells it, `plot` draws it.

    Attributes
    ----------
    input_shape, output_shape : tuple of int
        Shapes of the input and of the result.
    axes : tuple of AxisPlan
        The windows along each pooled axis, ascending: `length`, `kernel_size`, `stride`, `dilation`, `padding`, `out`,
        `formula`, ``taps(window)``, `on_padding`, `overhang`, `cropped`, `untouched`, `trailing` and `other_ceil_mode`.
    dtype : str
        Name of the dtype of input and result.
    ceil_mode, return_indices : bool
        As given.
    input_bytes, output_bytes, indices_bytes : int
        Bytes of the arrays; no indices are 0 bytes.
    workspace_bytes : int
        Bytes that each thread works in.
    tile : tuple of TilePlan
        Outputs per unit of work, along each axis that the kernel sees: ``(axis, tile, out)``.
    units, threads : int
        Units of work, and the threads that share them.
    isa : str
        Instruction-set level of the kernels.
    """

    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    axes: tuple[AxisPlan, ...]
    dtype: str
    ceil_mode: bool
    return_indices: bool
    input_bytes: int
    output_bytes: int
    indices_bytes: int
    workspace_bytes: int
    tile: tuple[TilePlan, ...]
    units: int
    threads: int
    isa: str

    def to_dict(self) -> dict[str, Any]:
        """The plan as dicts, lists, strings and numbers, which JSON takes."""
        return {
            **{f.name: getattr(self, f.name) for f in fields(self)},
            "input_shape": list(self.input_shape),
            "output_shape": list(self.output_shape),
            "axes": [axis.to_dict() for axis in self.axes],
            "tile": [level._asdict() for level in self.tile],
        }

    def plot(self, path: str | os.PathLike[str] | None = None, axes: int | Sequence[int] | None = None) -> Figure:
        """Draw the windows: of one axis as bars over its elements, of two as boxes on their grid.

        Padding, overhanging taps and untouched elements are marked, and so is the window that the other `ceil_mode`
        would add. Of long axes the ends are drawn. Needs matplotlib (``pip install 'fastpool[plot]'``), but nothing of
        `matplotlib.pyplot`.

        Parameters
        ----------
        path : path_like, optional
            Where to save the picture too; the suffix is ``.svg`` or ``.png``.
        axes : int or tuple of int, optional
            Pooled axes to draw: two give a grid, any other number one panel of bars each. All by default.

        Returns
        -------
        matplotlib.figure.Figure
            The picture.

        Raises
        ------
        GeometryError
            If `axes` names an axis that is not pooled, or `path` has another suffix.
        ModuleNotFoundError
            If matplotlib is missing.
        """
        chosen = self.axes
        if axes is not None:
            pooled = {axis.axis: axis for axis in self.axes}
            wanted = normalize_axes(axes, len(self.input_shape))
            for axis in wanted:
                if axis not in pooled:
                    raise GeometryError(f"axis {axis} is not pooled; the pooled axes are {', '.join(map(str, pooled))}")
            chosen = tuple(pooled[axis] for axis in wanted)
        if path is not None and not os.fspath(path).lower().endswith((".svg", ".png")):
            raise GeometryError(f"path {os.fspath(path)!r} must end in .svg or .png")
        try:
            from . import _plots
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "matplotlib":
                raise
            message = "drawing a plan needs matplotlib, which is missing: pip install 'fastpool[plot]'"
            raise ModuleNotFoundError(message, name="matplotlib") from error
        figure: Figure = _plots.draw([chosen] if len(chosen) == 2 else [(axis,) for axis in chosen])
        if path is not None:
            _plots.save(figure, path)
        return figure

    def __str__(self) -> str:
        groups: dict[AxisPlan, list[int]] = {}
        for axis in self.axes:
            groups.setdefault(replace(axis, axis=0), []).append(axis.axis)
        lines = [f"pooling {self.input_shape} -> {self.output_shape}, {self.dtype}, ceil_mode={self.ceil_mode}"]
        for plan, axes in groups.items():
            names = f"axis {axes[0]}" if len(axes) == 1 else f"axes {', '.join(map(str, axes))}, each"
            lines += ["", *_axis_text(plan, names)]
        tile = ", ".join(f"{t.tile} of {t.out} along {_level_text(t.axis)}" for t in self.tile)
        sizes = f"input {self.input_bytes:,}, output {self.output_bytes:,}"
        if self.return_indices:
            sizes += f", indices {self.indices_bytes:,}"
        lines += [
            "",
            "windows = (length + before + after - extent + ceil) // stride + 1",
            "extent = dilation * (kernel_size - 1) + 1, ceil = stride - 1 in ceil mode, else 0",
            "in ceil mode, a last window that would start after the last element is left out",
            "",
            f"bytes: {sizes}, workspace {self.workspace_bytes:,} per thread",
            f"work: {_count(self.units, 'unit')}" + (f", tile {tile}" if tile else ""),
            f"runs on: {_count(self.threads, 'thread')}, {self.isa}",
        ]
        return "\n".join(lines)


def _level_text(axis: int | None) -> str:
    return "merged axes" if axis is None else f"axis {axis}"


def explain(
    input_shape: Sequence[int],
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    axes: Any = None,
    dtype: Any = "float32",
    return_indices: bool = False,
    **options: Unpack[Options],
) -> PoolingPlan:
    """Why a pooling's result has its size, and what the call would do; nothing of the input's size is allocated.

    Parameters
    ----------
    input_shape : tuple of int
        Shape of the input.
    kernel_size, stride, padding, dilation, ceil_mode, axes
        As in `fastpool.max_pool`.
    dtype : dtype, optional
        Of the input, which decides on bytes and tiles.
    return_indices : bool, optional
        Whether indices are asked for.
    **options
        See `fastpool.options`; only `num_threads` matters here.

    Returns
    -------
    PoolingPlan
        The plan of `max_pool` or `min_pool` with these arguments. Print it, or take its attributes, ``to_dict()`` or
        ``plot()``. The windows of other poolings with these arguments are the same; their workspace and tiles differ.

    Raises
    ------
    GeometryError
        If the arguments describe no pooling.
    DtypeError
        If the dtype is not taken.

    Examples
    --------
    >>> import fastpool as fp
    >>> plan = fp.explain((1, 1, 225, 225), (2, 2))
    >>> plan.output_shape
    (1, 1, 112, 112)
    >>> print(plan.axes[0])
    axis 2: length 225, kernel_size 2, stride 2, dilation 1, padding (0, 0)
      (225 + 0 + 0 - 2 + 0) // 2 + 1 = 112 windows
      window 0    0 1
      window 1    2 3
      window 2    4 5
      ...         106 more
      window 109  218 219
      window 110  220 221
      window 111  222 223
      untouched: 1 of 225 elements: 224 (after the last tap)
      ceil_mode=True would give 113: one more window, which hangs over by 1 element
    """
    settings = resolve(options)
    shape = shape_tuple("input_shape", input_shape)
    try:
        stored = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise DtypeError(f"dtype={dtype!r} is no dtype: {error}") from error
    check_dtype("the input", stored)
    indices = bool(return_indices)
    plan = pool_plan(
        stored.newbyteorder("="), False, indices, shape, ceil_mode, kernel_size, stride, padding, dilation, axes
    )
    geometry = plan.geometry

    plans = []
    for axis, window in zip(geometry.axes, cast("tuple[Window, ...]", geometry.windows), strict=True):
        kept, k, s, d, before, after, out, crop = window
        cut = shape[axis] - crop - kept
        pads = (-crop if crop else before, -cut if cut else after)
        plans.append(AxisPlan(axis, shape[axis], k, s, d, pads, bool(ceil_mode), out))

    tile: tuple[TilePlan, ...] = ()
    workspace = units = 0
    if plan.spec is not None and plan.compiled is not None:
        levels = zip(plan.spec.form.levels, plan.spec.levels, strict=True)
        tile = tuple(TilePlan(level.axis, chosen.tile, level.window.out) for level, chosen in levels)
        workspace, units = plan.compiled.workspace_bytes, plan.compiled.units
    threads = 1
    if plan.parallel and not _threads.forked_after_use:
        threads = min(settings.num_threads or get_num_threads(), units)
    outputs = math.prod(geometry.output_shape)
    return PoolingPlan(
        shape,
        geometry.output_shape,
        tuple(plans),
        stored.name,
        bool(ceil_mode),
        indices,
        math.prod(shape) * stored.itemsize,
        outputs * stored.itemsize,
        8 * outputs if indices else 0,
        workspace,
        tile,
        units,
        threads,
        _dispatch.ISA,
    )
