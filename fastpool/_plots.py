"""Pictures of a `PoolingPlan`. The only module that imports matplotlib, and nothing of its global state.

A picture is one set of axes whose unit is a cell: the side of an element, or of a mark for elements left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ._geometry import extent

if TYPE_CHECKING:
    from .plans import AxisPlan

CELL = 0.32  # inches
LETTER, BOLD = 0.22, 0.25  # cells that a letter of a line takes on average, at most
WHOLE_AXIS = 32  # cells up to which an axis is drawn whole
WHOLE_WINDOW = 5  # cells, or taps, up to which a window is drawn whole on a longer one
ENDS = 3  # windows drawn at either end, where there are more than
MOST_WINDOWS = 10
LINE = 0.8  # cells from one line of text to the next
GAP = "\u00b7\u00b7\u00b7"

# Okabe and Ito's colours, which colour-blind readers can tell apart; what matters is hatched or crossed out as well.
INK, PALE = "#222222", "#6b6b6b"
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")
STYLES: dict[str, dict[str, Any]] = {
    "element": {"facecolor": "#ffffff", "edgecolor": "#8c8c8c"},
    "untouched": {"facecolor": "#f0e442", "edgecolor": INK},
    "padding": {"facecolor": "#f0f0f0", "edgecolor": "#a8a8a8", "hatch": "////"},
    "cropped": {"facecolor": "#6b6b6b", "edgecolor": INK},
    "overhang": {"facecolor": "#ffffff", "edgecolor": "#d55e00", "hatch": "xxxx"},
    "tap": {"facecolor": COLOURS[0], "edgecolor": COLOURS[0]},
    "dot": {"facecolor": INK, "edgecolor": INK},
    "window": {"facecolor": f"{COLOURS[0]}1c", "edgecolor": COLOURS[0], "linewidth": 1.8},
    "bar": {"facecolor": "#cfe3f1", "edgecolor": COLOURS[0]},
    "label": {"facecolor": "#f4f4f4", "edgecolor": INK},
    "other": {"facecolor": "none", "edgecolor": "#d55e00", "linestyle": (0, (3, 2)), "linewidth": 1.6},
}
WORDS = {
    "tap": "tap on an element",
    "window": "window, named by its output",
    "dot": "its taps, in its colour",
    "untouched": "element in no window",
    "padding": "padding",
    "cropped": "cropped by negative padding",
    "overhang": "hangs over the end (ceil mode)",
    "other": "window that ceil_mode=True would add",
}


FORMULA = (
    "windows = (length + before + after - extent + ceil) // stride + 1",
    "extent = dilation * (kernel_size - 1) + 1,  ceil = stride - 1 in ceil mode, else 0",
)


class Run(NamedTuple):
    """Neighbouring cells of one kind, from `place` on."""

    kind: str
    place: int
    positions: range


class Track:
    """An axis as it is drawn: which positions, at which place each, and which windows. Long axes are cut short."""

    def __init__(self, plan: AxisPlan) -> None:
        self.plan = plan
        self.adds = (plan.out_of_other_ceil_mode or 0) > plan.out
        self.windows = list(range(plan.out))
        if plan.out > MOST_WINDOWS:
            self.windows = [*range(ENDS), *range(plan.out - ENDS, plan.out)]
        self.low = -max(plan.padding[0], 0)
        self.padded = plan.length + max(plan.padding[1], 0)
        self.high = max(self.padded, self.span(plan.out - 1 + self.adds)[1])
        positions = list(range(self.low, self.high)) if self.high - self.low <= WHOLE_AXIS else self._telling()
        # a mark for what is left out takes a cell
        self.place: dict[int, int] = {}
        self.gaps: list[int] = []
        at = 0
        for position in positions:
            if self.place and position - 1 not in self.place:
                self.gaps.append(at)
                at += 1
            self.place[position] = at
            at += 1
        self.width = at

    def span(self, window: int) -> tuple[int, int]:
        """Position of a window's first tap, and the position after its last."""
        plan = self.plan
        start = window * plan.stride - plan.padding[0]
        return start, start + extent(plan.kernel_size, plan.dilation)

    def cells(self, window: int) -> tuple[int, int]:
        """Where a window is drawn: its first cell, and the one after its last."""
        start, stop = self.span(window)
        return self.place[start], self.place[stop - 1] + 1

    def _telling(self) -> list[int]:
        """What tells something of a long axis: its ends and those of its padding and windows, with what lies beside."""
        plan = self.plan
        found: set[int] = set()
        for window in [*self.windows, plan.out] if self.adds else self.windows:
            start, stop = self.span(window)
            found.update((start, start + 1, stop - 2, stop - 1))
            if stop - start <= WHOLE_WINDOW:
                found.update(range(start, stop))
            elif plan.kernel_size <= WHOLE_WINDOW:
                found.update(range(start, stop, plan.dilation))
        kept = [cropped.stop if i == 0 else cropped.start for i, cropped in enumerate(plan.cropped)]
        for edge in (self.low, 0, *kept, plan.length, self.padded):
            found.update((edge - 1, edge))
        ordered = sorted(position for position in found if self.low <= position < self.high)
        for position, following in pairwise(ordered[:]):
            if following - position <= 3:
                ordered += range(position + 1, following)
        return sorted(ordered)

    def kind(self, position: int) -> str:
        """What is at a position; nothing where a window would be with the other ceil mode alone."""
        plan = self.plan
        if position >= self.padded:
            return "overhang" if position < self.span(plan.out - 1)[1] else ""
        if not 0 <= position < plan.length:
            return "padding"
        if any(position in cropped for cropped in plan.cropped):
            return "cropped"
        return "element" if plan.touches(position) else "untouched"

    def runs(self) -> Iterator[Run]:
        """The cells by stretches of one kind."""
        for (kind, _), group in groupby(self.place, key=lambda p: (self.kind(p), self.place[p] - p)):
            positions = list(group)
            if kind:
                yield Run(kind, self.place[positions[0]], range(positions[0], positions[-1] + 1))

    def taps(self, window: int) -> Iterator[tuple[int, str]]:
        """The taps of a window that are drawn: where, and on what."""
        start, stop = self.span(window)
        for position, place in self.place.items():
            if start <= position < stop and (position - start) % self.plan.dilation == 0:
                yield place, self.kind(position)

    def lanes(self) -> dict[int, int]:
        """Windows to lanes, such that no two in a lane overlap; with the one that the other ceil mode would add."""
        ends: list[int] = []
        lanes = {}
        for window in [*self.windows, self.plan.out] if self.adds else self.windows:
            first, stop = self.cells(window)
            lane = next((i for i, end in enumerate(ends) if end <= first), len(ends))
            ends[lane : lane + 1] = [stop]
            lanes[window] = lane
        return lanes

    @property
    def label_height(self) -> float:
        """Cells that positions take above their cells, none where they fit inside."""
        digits = len(str(self.plan.length - 1))
        return 0.0 if digits <= 3 else 0.22 * digits + 0.2


class Pen:
    """Draws shapes and text in cells, and remembers what the legend must tell."""

    def __init__(self, axes: Any) -> None:
        self.axes = axes
        self.used: set[str] = set()

    def box(self, x: float, y: float, width: float, height: float, kind: str, name: str | None = None) -> None:
        """A rectangle in the style of `kind`."""
        self.used.add(kind)
        style = {"linewidth": 0.8, **STYLES[kind]}
        self.axes.add_patch(Rectangle((x, y), width, height, gid=name, **style))

    def cell(self, x: float, y: float, kind: str, side: float = 1.0) -> None:
        """A cell of the axis or grid; untouched elements are crossed out too."""
        self.box(x, y, side, side, kind)
        if kind == "untouched":
            for ends in ((y, y + side), (y + side, y)):
                self.axes.plot((x, x + side), ends, color=INK, linewidth=0.6, solid_capstyle="butt")

    def text(self, x: float, y: float, text: str, **style: Any) -> None:
        """Text, centred on its point unless told otherwise."""
        style = {"ha": "center", "va": "center", "fontsize": 8, "color": INK, **style}
        self.axes.text(x, y, text, **style)

    def fitted(self, x: float, y: float, text: str, room: float, **style: Any) -> None:
        """Text no wider than `room` cells, smaller than other text if need be, or none where it would be too small."""
        size = min(8.0, 8 * room / (0.21 * len(text)))
        if size >= 5:
            self.text(x, y, text, fontsize=size, **style)

    def lines(self, lines: Sequence[str], y: float, **style: Any) -> float:
        """Lines of text from `y` downwards; returns where they end."""
        for line in lines:
            self.text(0, y + LINE / 2, line, ha="left", fontsize=9, **style)
            y += LINE
        return y


class Bars:
    """One axis: a row of elements, and below it one bar per window."""

    def __init__(self, plan: AxisPlan) -> None:
        self.track = track = Track(plan)
        self.title = (
            f"axis {plan.axis}, ceil_mode={plan.ceil_mode}: {plan.out} {'window' if plan.out == 1 else 'windows'}"
        )
        self.head = [_sizes(plan)]
        self.foot = [plan.other_ceil_mode]
        self.margin = 0.3 + LETTER * len(f"(window {plan.out})")
        rows = len(track.windows) + track.adds + (len(track.windows) < plan.out)
        self.width = max(self.margin + track.width, _line_width(self.title, *self.head, *self.foot))
        self.height = 2 * LINE + 0.5 + track.label_height + 1.2 + rows + 0.3 + LINE

    def draw(self, pen: Pen, top: float, name: str) -> None:
        """Draw it below `top`."""
        track, plan, left = self.track, self.track.plan, self.margin
        y = pen.lines(self.head, pen.lines([self.title], top, fontweight="bold")) + 0.5 + track.label_height
        for run in track.runs():
            if run.kind != "overhang":
                self._draw_elements(pen, run, y)
        for gap in track.gaps:
            pen.text(left + gap + 0.5, y + 0.5, GAP, color=PALE)
        y += 1.2
        previous, end = -1, 0
        for window in track.windows:
            first, stop = track.cells(window)
            if window > previous + 1:
                pen.text(left - 0.3, y + 0.5, f"{window - previous - 1} more", ha="right", color=PALE)
                pen.text(left + (end + first) / 2, y + 0.5, GAP, color=PALE)
                y += 1
            self._draw_window(pen, window, y, f"{name}-window-{window}")
            previous, end, y = window, stop, y + 1
        if track.adds:
            first, stop = track.cells(plan.out)
            pen.box(left + first + 0.08, y + 0.17, stop - first - 0.16, 0.66, "other", f"{name}-other")
            pen.text(left - 0.3, y + 0.5, f"(window {plan.out})", ha="right", color="#d55e00")
            y += 1
        pen.lines(self.foot, y + 0.3)

    def _draw_elements(self, pen: Pen, run: Run, y: float) -> None:
        """Cells with their positions in them or, where these are long, above the first and the last."""
        inside = self.track.label_height == 0
        for i, position in enumerate(run.positions):
            x = self.margin + run.place + i
            pen.cell(x, y, run.kind)
            if run.kind == "padding":
                continue
            if inside:
                plate = {"facecolor": STYLES[run.kind]["facecolor"], "edgecolor": "none", "pad": 0.8}
                colour = "#ffffff" if run.kind == "cropped" else INK
                pen.text(x + 0.5, y + 0.5, str(position), fontsize=7, color=colour, bbox=plate)
            elif i in (0, len(run.positions) - 1):
                pen.text(x + 0.5, y - 0.15, str(position), fontsize=7, rotation=90, va="bottom")

    def _draw_window(self, pen: Pen, window: int, y: float, name: str) -> None:
        track, left = self.track, self.margin
        first, stop = track.cells(window)
        pen.text(left - 0.3, y + 0.5, f"window {window}", ha="right")
        pen.box(left + first + 0.08, y + 0.17, stop - first - 0.16, 0.66, "bar", name)
        for place, kind in track.taps(window):
            shown = {"element": "tap", "cropped": "overhang"}.get(kind, kind)
            pen.box(left + place + 0.17, y + 0.26, 0.66, 0.48, shown)
        for gap in track.gaps:
            if first < gap < stop:
                pen.text(left + gap + 0.5, y + 0.5, GAP, color=COLOURS[0])


class Grid:
    """Two axes: their elements as a grid with the windows on it, and the windows along each axis beside it."""

    def __init__(self, rows: AxisPlan, columns: AxisPlan) -> None:
        self.rows, self.columns = Track(rows), Track(columns)
        self.title = (
            f"axes {rows.axis} and {columns.axis}, ceil_mode={rows.ceil_mode}: {rows.out} x {columns.out} windows"
        )
        self.head = _for_each(rows, columns, _sizes(rows), _sizes(columns))
        if len(self.head) == 1:
            self.head = [f"each axis: {self.head[0]}"]
        self.foot = _for_each(rows, columns, rows.other_ceil_mode, columns.other_ceil_mode)
        self.row_lanes, self.column_lanes = self.rows.lanes(), self.columns.lanes()
        self.overlaps = max(*self.row_lanes.values(), *self.column_lanes.values()) > 0
        self.row_labels = 0.4 + 0.21 * len(str(rows.length - 1))
        self.column_labels = max(0.9, self.columns.label_height)
        self.margin = 1.1 + max(self.row_lanes.values()) + 1 + self.row_labels
        self.above = 0.9 + max(self.column_lanes.values()) + 1 + self.column_labels
        self.width = max(self.margin + self.columns.width, _line_width(self.title, *self.head, *self.foot))
        self.height = LINE * (1 + len(self.head + self.foot)) + 0.5 + self.above + self.rows.width + 0.3

    def draw(self, pen: Pen, top: float, name: str) -> None:
        """Draw it below `top`."""
        rows, columns, left = self.rows, self.columns, self.margin
        y = pen.lines(self.head, pen.lines([self.title], top, fontweight="bold")) + 0.5
        middle = left + columns.width / 2
        pen.text(middle, y + 0.3, f"windows along axis {columns.plan.axis}", color=PALE)
        for window, lane in self.column_lanes.items():
            first, stop = columns.cells(window)
            x, at = left + first, y + 0.9 + lane
            pen.box(x + 0.07, at + 0.12, stop - first - 0.14, 0.76, self._kind(columns, window))
            pen.fitted(x + (stop - first) / 2, at + 0.5, str(window), stop - first - 0.3)
        y += self.above
        pen.text(0.4, y + rows.width / 2, f"windows along axis {rows.plan.axis}", color=PALE, rotation=90)
        for window, lane in self.row_lanes.items():
            first, stop = rows.cells(window)
            x, at = 1.1 + lane, y + first
            pen.box(x + 0.12, at + 0.07, 0.76, stop - first - 0.14, self._kind(rows, window))
            pen.fitted(x + 0.5, at + (stop - first) / 2, str(window), stop - first - 0.3, rotation=90)
        self._draw_cells(pen, y)
        self._draw_positions(pen, y)
        for i in rows.windows:
            for j in columns.windows:
                self._draw_window(pen, i, j, y, f"{name}-window-{i}-{j}")
        pen.lines(self.foot, y + rows.width + 0.3)

    @staticmethod
    def _kind(track: Track, window: int) -> str:
        return "label" if window < track.plan.out else "other"

    def _draw_window(self, pen: Pen, i: int, j: int, top: float, name: str) -> None:
        (above, below), (first, stop) = self.rows.cells(i), self.columns.cells(j)
        number = 2 * (i % 2) + j % 2
        colour = COLOURS[number]
        inset = 0.05 + 0.06 * number if self.overlaps else 0.07
        pen.used.add("window")
        box = Rectangle(
            (self.margin + first + inset, top + above + inset),
            stop - first - 2 * inset,
            below - above - 2 * inset,
            facecolor=f"{colour}1c",
            edgecolor=colour,
            linewidth=1.8,
            gid=name,
        )
        pen.axes.add_patch(box)
        if max(self.rows.plan.dilation, self.columns.plan.dilation) > 1:
            pen.used.add("dot")
            for y, _ in self.rows.taps(i):
                for x, _ in self.columns.taps(j):
                    corner = (self.margin + x + 0.25 + 0.3 * (j % 2), top + y + 0.25 + 0.3 * (i % 2))
                    pen.axes.add_patch(Rectangle(corner, 0.2, 0.2, facecolor=colour, edgecolor="none"))
        else:
            plate = {"facecolor": "#ffffffb0", "edgecolor": "none", "pad": 0.6}
            middle = (self.margin + (first + stop) / 2, top + (above + below) / 2)
            room = min(stop - first - 2 * inset, self.columns.plan.stride - 0.1)
            pen.fitted(*middle, f"{i},{j}", room, bbox=plate)

    def _draw_cells(self, pen: Pen, top: float) -> None:
        order = ("overhang", "padding", "cropped", "untouched", "element")
        for across in self.rows.runs():
            for along in self.columns.runs():
                kind = min(across.kind, along.kind, key=order.index)
                for i in range(len(across.positions)):
                    for j in range(len(along.positions)):
                        pen.cell(self.margin + along.place + j, top + across.place + i, kind)

    def _draw_positions(self, pen: Pen, top: float) -> None:
        style = {"color": PALE, "fontsize": 7}
        turned = 90 if self.columns.label_height else 0
        for run in self.columns.runs():
            for i, position in enumerate(run.positions):
                if 0 <= position < self.columns.plan.length:
                    x = self.margin + run.place + i + 0.5
                    pen.text(x, top - 0.2, str(position), rotation=turned, va="bottom", **style)
        for run in self.rows.runs():
            for i, position in enumerate(run.positions):
                if 0 <= position < self.rows.plan.length:
                    pen.text(self.margin - 0.2, top + run.place + i + 0.5, str(position), ha="right", **style)
        for gap in self.columns.gaps:
            pen.text(self.margin + gap + 0.5, top - 0.4, GAP, color=PALE)
        for gap in self.rows.gaps:
            pen.text(self.margin - 0.4, top + gap + 0.5, GAP, color=PALE, rotation=90)


def _line_width(title: str, *lines: str) -> float:
    return max(BOLD * len(title), LETTER * max(map(len, lines)))


def _sizes(plan: AxisPlan) -> str:
    text = f"{plan.length} elements, kernel_size {plan.kernel_size}, stride {plan.stride}"
    if plan.dilation > 1:
        text += f", dilation {plan.dilation}"
    if any(plan.padding):
        text += f", padding {plan.padding}"
    return f"{text}:  {plan.formula}"


def _for_each(first: AxisPlan, second: AxisPlan, one: str, other: str) -> list[str]:
    """What is said of two axes: once where it is the same."""
    return [one] if one == other else [f"axis {first.axis}: {one}", f"axis {second.axis}: {other}"]


def draw(panels: Sequence[Sequence[AxisPlan]]) -> Figure:
    """One picture of panels below each other: bars for one axis, a grid for two."""
    parts = [Bars(*plans) if len(plans) == 1 else Grid(*plans) for plans in panels]
    figure = Figure(facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    pen = Pen(axes)
    top = 0.0
    for number, part in enumerate(parts):
        part.draw(pen, top, f"panel-{number}")
        top += part.height + 0.9
    width = max(LETTER * max(map(len, FORMULA)), *(part.width for part in parts))
    told = [word for word in WORDS if word in pen.used]
    column = 1.5 + LETTER * max(map(len, WORDS.values()))
    across = max(1, int(width // column))
    for i, word in enumerate(told):
        x, y = column * (i % across), top + 1.15 * (i // across)
        pen.cell(x, y, word, 0.8)
        pen.text(x + 1.2, y + 0.4, WORDS[word], ha="left")
    top += 1.15 * -(-len(told) // across) + 0.4
    top = pen.lines(FORMULA, top, color=PALE)
    height, margin = top, 0.6
    axes.set_xlim(-margin, width + margin)
    axes.set_ylim(height + margin, -margin)
    figure.set_size_inches((width + 2 * margin) * CELL, (height + 2 * margin) * CELL)
    return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a picture; the same picture is the same file."""
    with mpl.rc_context({"svg.hashsalt": "fastpool", "svg.fonttype": "none"}):
        if os.fspath(path).lower().endswith(".svg"):
            figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        else:
            figure.savefig(path, format="png", dpi=150)
