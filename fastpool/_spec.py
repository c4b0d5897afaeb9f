"""Choices: lanes, tiles and passes for a call in canonical form. Pure; see `_plan` for the cache.

A forward plan lists, per level of the canonical form, the *slots* that a tile needs and the *passes* that reduce them.
A slot is one input position along the level's axis. Slots are ordered by stride phase: tap j of output o of a tile is
slot ``start[phase] + o + shift``, with ``phase = j*d % s`` and ``shift = j*d // s``, so a pass over all outputs reads
each tap as one contiguous run.

Long windows take few passes: with ``p = s // gcd(s, d)`` taps to a group, the window is `m` whole groups, combined by
doubling and quadrupling (the last step overlaps), and a rest. So the cost of an axis grows with ``log(k)``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from . import _cpu
from ._geometry import (
    Bounds,
    Canonical,
    Geometry,
    Level,
    Taps,
    Window,
    canonical_form,
)
from .errors import GeometryError

# Kinds of lanes, as in _kernels/pool_lanes.h.
INTEGER, FLOAT, HALF = 0, 1, 2

# Element types and types of sums, as in _kernels/sum_lanes.h.
ELEMENTS = {
    name: number
    for number, name in enumerate(
        ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
        + ("float16", "bfloat16", "float32", "float64")
    )
} | {"bool": 0}
SUM_S16, SUM_S32, SUM_S64, SUM_PAIR, SUM_F32, SUM_F64 = range(6)
SUM_BYTES = (2, 4, 8, 16, 4, 8)
PLAIN, ABSOLUTE, SQUARE, ABSOLUTE_POWER, SIGNED_POWER = range(5)

DIRECT_TAPS = 6  # windows up to this many taps are one pass
FOLD_TAPS = 8  # rows that are added while they are loaded
FOLD_BOUNDED_TAPS = 16  # likewise, where windows are given by bounds
WOVEN_PERIOD = 32  # strides up to this are woven from one run per phase
FLOAT32_TAPS = 1 << 10  # windows of more taps add float32 up in float64
RADIX = 4  # runs combined by one later pass
SCAN_TAPS = 64  # rows of long windows that hardly overlap are scanned window by window
SCAN_CHUNK = 4096  # lanes, as in _kernels/pool_forward.pyx
SLACK_BYTES = 256  # what a pass may write beyond its run, as in _kernels/pool_lanes.h
ROW_BYTES = 16 << 10  # rows loaded at a time, so that they stay in the first-level cache
RESULT_ELEMENTS = 2048  # outputs of level 0 finished at a time, likewise
ROW_OVERHEAD = 24  # cost of starting a row, in elements
STREAM_BYTES = 8 << 20  # outputs from this size on are written past the caches
STAGE_ELEMENTS = 1024  # outputs gathered for that
LONG_ROW_BYTES = 4 << 10  # rows beyond this are read without asking ahead
AHEAD_BYTES = 16 << 10  # how far ahead of the rows being read memory is asked for
SMALL_ORDINALS = 1 << 12  # taps that 2-byte lanes count, beyond 8 bits; a larger table would not stay in the cache
MAX_ORDINALS = 1 << 24  # entries of the table from tap to offset

CACHES = _cpu.cache_sizes()
CORES = os.cpu_count() or 1  # tiles are cut for every core, however many threads a call is given


class Pass(NamedTuple):
    """``dst[i] = first maximum over taps of source[i + offset]``; see Pass in pool_forward.pyx."""

    from_temp: bool
    to_temp: bool
    seeded: bool
    coded: bool
    extra: int
    offsets: tuple[int, ...]
    codes: tuple[int, ...]


class BoundsPlan(NamedTuple):
    """Windows given by bounds, as the kernels take them; see Level in _kernels/_forward_plan.pxd."""

    period: int
    phase: int
    step: int
    shared: int
    weaves: int
    before: int
    reach: int
    starts: tuple[int, ...]
    counts: tuple[int, ...]
    offsets: tuple[int, ...]
    codes: tuple[int, ...]


class LevelPlan(NamedTuple):
    """One level of a plan: its tile, its slots and its passes."""

    tile: int
    block: int
    direct: bool
    residues: tuple[int, ...]
    places: tuple[int, ...]
    starts: tuple[int, ...]
    needed: tuple[tuple[int, ...], ...]
    slot_elements: int
    passes: tuple[Pass, ...]
    temp_elements: int
    fold: bool = False
    coded: bool = False
    bounds: BoundsPlan | None = None
    taps: Taps | None = None


class Sums(NamedTuple):
    """What is added up, in which lanes, and what becomes of a sum: divided by `divisor`, or its root taken."""

    stored: int
    lane: int
    result: int
    divisor: float
    power: float  # 0: none


class ForwardSpec(NamedTuple):
    """Everything that a compiled forward plan is made from."""

    form: Canonical
    input_elements: int
    output_elements: int
    kind: int
    stored_bytes: int
    lane_bytes: int
    flip: int
    half: bool
    codes: bool
    table: tuple[int, ...] | None
    levels: tuple[LevelPlan, ...]
    rows: int
    pitch: int
    scan: bool
    scan_code: int
    group: int
    raw_elements: int
    scratch_elements: int
    result_elements: int
    stage: int
    ahead: int
    sums: Sums | None


# Per axis the taps that count in a mean, where their number differs from output to output.
Divisors = dict[int | None, Taps]


class Phases(NamedTuple):
    """The stride phases that the taps of a window fall into, ascending, and the reach of each in places."""

    residues: tuple[int, ...]
    reach: tuple[int, ...]

    def places(self, tile: int) -> tuple[int, ...]:
        """Places per phase that a tile reads."""
        return tuple(tile + reach for reach in self.reach)


class Spread:
    """The slots of windows given by bounds: one phase, every position from the first to the last that a tile reads."""

    residues = (0,)

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.starts = np.frombuffer(bounds.starts, np.int64).reshape(-1, bounds.period)
        self.counts = np.frombuffer(bounds.counts, np.int64)
        used = self.counts > 0
        stops = self.starts + (self.counts - 1) * bounds.step + 1
        self.first = np.where(used, self.starts, np.iinfo(np.int64).max)
        self.beyond = np.where(used, stops, np.iinfo(np.int64).min)
        self.most = int(self.counts.max())
        # of periodic windows: positions from the lowest start of a period to the highest stop
        self.reach = max(1, int(self.beyond.max()) - int(self.first.min())) if used.any() else 1

    @property
    def is_periodic(self) -> bool:
        """Whether the windows repeat with a period, some perhaps reaching over the ends of the axis."""
        whole = self.bounds.period >= self.bounds.out and self.bounds.phase == 0
        return not whole or int(self.first.min()) < 0 or int(self.beyond.max()) > self.bounds.length

    def places(self, tile: int) -> tuple[int, ...]:
        """The most positions that a tile reads."""
        if self.bounds.period < self.bounds.out or self.bounds.phase > 0:
            return (self.reach + (tile - 1) // self.bounds.period + 1,)
        at = np.arange(0, self.bounds.out, tile)
        first = np.minimum.reduceat(self.first, at, axis=1)
        beyond = np.maximum.reduceat(self.beyond, at, axis=1)
        return (max(1, int(np.where(beyond > first, beyond - first, 0).max())),)


def phases_of(window: Window | Bounds) -> Phases | Spread:
    if isinstance(window, Bounds):
        return Spread(window)
    s, d = window.stride, window.dilation
    reach: dict[int, int] = {}
    # the pattern of phases repeats after s // gcd taps; the last taps reach furthest
    period = s // math.gcd(s, d)
    for j in {*range(min(period, window.kernel)), *range(max(0, window.kernel - period), window.kernel)}:
        reach[j * d % s] = max(reach.get(j * d % s, 0), j * d // s)
    residues = tuple(sorted(reach))
    return Phases(residues, tuple(reach[r] for r in residues))


def summing_widths(groups: int) -> list[int]:
    """Runs of groups to add up, one pass after the other, so that their product leaves few of `groups` for the rest.

    Sums cannot overlap as maxima can. So that a pass costs as much as a few taps, widths differ by 1 at most.
    """
    best, lowest = [groups], groups
    for passes in range(2, groups.bit_length()):
        low = 1
        while (low + 1) ** passes <= groups:
            low += 1
        for higher in range(passes):
            widths = [low + 1] * higher + [low] * (passes - higher)
            rest = groups - math.prod(widths)
            if low > 1 and rest >= 0 and sum(widths) + rest + 2 * passes < lowest:
                best, lowest = widths, sum(widths) + rest + 2 * passes
    return best


def passes_of(
    window: Window, starts: Sequence[int], residues: Sequence[int], unit: int, code: int, coded: bool, sums: bool
) -> tuple[Pass, ...]:
    """The passes over one axis; `starts` in elements per phase, `unit` elements from one place to the next."""
    k, s, d = window.kernel, window.stride, window.dilation
    start = dict(zip(residues, starts, strict=True))

    def taps(first: int, last: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        places = range(first, last)
        return tuple(start[j * d % s] + j * d // s * unit for j in places), tuple(j * code for j in places)

    common = math.gcd(s, d)
    per_group = s // common
    groups, hop = k // per_group, d // common
    if k <= DIRECT_TAPS or groups < 3:
        return (Pass(False, False, False, coded, 0, *taps(0, k)),)
    if sums:
        widths = summing_widths(groups)
        reached = math.prod(widths)
        width = widths[0]
        done = [Pass(False, True, False, False, (reached - width) * hop, *taps(0, width * per_group))]
        for runs in widths[1:]:
            offsets = tuple(i * width * hop * unit for i in range(runs))
            width *= runs
            done.append(Pass(True, True, False, False, (reached - width) * hop, offsets, (0,) * runs))
        if reached * per_group < k:
            done.append(Pass(False, False, True, False, 0, *taps(reached * per_group, k)))
        else:
            done[-1] = done[-1]._replace(to_temp=False)
        return tuple(done)
    rest = k % per_group
    width = min(groups, max(1, RADIX // per_group))
    done = [Pass(False, True, False, coded, (groups - width) * hop, *taps(0, width * per_group))]
    while width < groups:
        steps = min(RADIX, -(-groups // width))
        at = [min(i * width, groups - width) for i in range(steps)]
        width = min(at[-1] + width, groups)
        final = width == groups and not rest
        offsets, codes = tuple(i * hop * unit for i in at), tuple(i * per_group * code for i in at)
        done.append(Pass(True, not final, False, True, (groups - width) * hop, offsets, codes))
    if rest:
        done.append(Pass(False, False, True, coded, 0, *taps(groups * per_group, k)))
    elif done[-1].to_temp:  # one step did it all
        done[-1] = done[-1]._replace(to_temp=False)
    return tuple(done)


def scans(window: Window | Bounds, phases: Phases | Spread) -> bool:
    """Whether rows are scanned window by window: long windows that hardly overlap."""
    if isinstance(phases, Spread):
        return not phases.is_periodic and phases.most >= SCAN_TAPS
    assert isinstance(window, Window)
    return (
        window.dilation == 1 and window.kernel >= SCAN_TAPS and (2 * window.stride >= window.kernel or window.out == 1)
    )


class _Sizes(NamedTuple):
    """What a choice of tiles costs."""

    workspace: int
    cost: float


class _Shape(NamedTuple):
    """A call in canonical form, as far as tiles depend on it."""

    form: Canonical
    phases: tuple[Phases | Spread, ...]
    lane_bytes: int
    codes: bool
    scan: bool
    direct_leaf: bool
    fold: bool

    @property
    def leaf(self) -> int:
        return len(self.form.levels) - 1

    def pitch(self, tile: int) -> int:
        """Lanes of a row while it is loaded, per phase."""
        return tile if self.scan or self.direct_leaf else max(self.phases[self.leaf].places(tile))

    def block(self, tile: int) -> int:
        """Lanes of a pooled row: windows at a stride leave what they read behind their outputs."""
        return tile if isinstance(self.phases[self.leaf], Spread) else self.pitch(tile)

    def places(self, i: int, tile: int) -> tuple[int, ...]:
        """Slots of a level per phase."""
        return (tile,) if self.fold and i == self.leaf - 1 else self.phases[i].places(tile)

    def is_direct(self, i: int) -> bool:
        """Whether the slots of a level are its result."""
        return _taps_along(self.form.levels[i].window) == 1 or (self.fold and i == self.leaf - 1)


def _taps_along(window: Window | Bounds) -> int:
    """Taps of a window along its axis, 2 where they differ."""
    return window.kernel if isinstance(window, Window) else 2


def _sizes(shape: _Shape, tiles: Sequence[int]) -> _Sizes:
    """Workspace of a thread in bytes, and the relative cost: elements computed per element needed."""
    leaf = shape.leaf
    block = shape.block(tiles[leaf])
    overhead = (shape.pitch(tiles[leaf]) + ROW_OVERHEAD) / tiles[leaf]
    elements = 0
    for i in range(leaf - 1, -1, -1):
        tile = tiles[i]
        places, read = shape.places(i, tile), shape.phases[i].places(tile)
        overhead *= sum(read) / (tile * len(read))
        if not shape.is_direct(i):
            elements += sum(places) * block * (2 if _taps_along(shape.form.levels[i].window) > DIRECT_TAPS else 1)
        block *= tile
    if shape.is_direct(0):
        elements += block
    else:
        elements += min(block, max(RESULT_ELEMENTS, block // tiles[0]))
    return _Sizes(elements * shape.lane_bytes * (2 if shape.codes else 1), overhead)


def _tile_bytes() -> int:
    """The workspace that FASTPOOL_TILE_BYTES asks for, 0 for the default."""
    text = os.environ.get("FASTPOOL_TILE_BYTES") or "0"
    if not text.isascii() or not text.isdigit():
        raise GeometryError(f"FASTPOOL_TILE_BYTES={text!r} is not a number of bytes")
    return int(text)


def choose_tiles(shape: _Shape) -> list[int]:
    """Outputs per level that one work unit computes.

    From whole axes downwards, the cheapest halving is taken again and again; of the choices on the way the cheapest is
    kept: computed elements, weighed by whether the workspace fits the first or second cache and by idle threads.
    """
    outs = [level.window.out for level in shape.form.levels]
    limit = _tile_bytes()
    l1, l2 = CACHES["l1d"], CACHES["l2"]
    tiles, best, best_cost = list(outs), list(outs), math.inf
    while True:
        workspace, overhead = _sizes(shape, tiles)
        units = shape.form.outer * math.prod(-(-out // tile) for out, tile in zip(outs, tiles, strict=True))
        if limit:
            best = list(tiles)
            if workspace <= limit:
                return best
        else:
            cost = overhead
            cost *= (
                1.0 if workspace <= l1 // 2 else 1.1 if workspace <= l2 // 4 else 1.25 if workspace <= l2 // 2 else 2.0
            )
            if workspace > 4 * l2:
                cost *= workspace / l2
            cost *= -(-units // CORES) * CORES / units
            if cost < best_cost:
                best, best_cost = list(tiles), cost
            if workspace < l1 // 8 and units >= 4 * CORES:
                return best
        cheapest, chosen = math.inf, -1
        for i, tile in enumerate(tiles):
            if tile > 1:
                tiles[i] = (tile + 1) // 2
                halved = _sizes(shape, tiles).cost
                tiles[i] = tile
                if halved < cheapest:
                    cheapest, chosen = halved, i
        if chosen < 0:
            return best
        tiles[chosen] = (tiles[chosen] + 1) // 2


def _kernel_form(geometry: Geometry) -> Canonical:
    """The canonical form with at least two levels: a single one gets the outer axis above it."""
    form = canonical_form(geometry)
    if len(form.levels) > 1:
        return form
    window = form.levels[0].window
    if isinstance(window, Bounds) and len(window.starts) > len(window.counts):  # windows of its own per outer index
        return form._replace(levels=(Level(Window(1, 1, 1, 1, 0, 0, 1), 0, 0), *form.levels))
    rows = Level(Window(form.outer, 1, 1, 1, 0, 0, form.outer), form.outer_input_stride, form.outer_output_stride)
    return form._replace(outer=1, outer_input_stride=0, outer_output_stride=0, levels=(rows, *form.levels))


def choose_lanes(
    form: Canonical, phases: Sequence[Phases | Spread], stored_bytes: int, codes: bool
) -> tuple[int, tuple[int, ...], tuple[int, ...] | None]:
    """Bytes per lane, the code of one tap step per level, and the table from code to offset where codes are ordinals.

    A code has the width of its lane. Lanes of 4 and 8 bytes hold the tap's offset itself; narrow ones hold the tap's
    ordinal in its window, and are widened where a window has more taps than that can count.
    """
    along = [phase.most if isinstance(phase, Spread) else 0 for phase in phases]
    steps = []
    for i, (window, input_stride, *_) in enumerate(form.levels):
        if isinstance(window, Window):
            along[i] = window.kernel
            steps.append(window.dilation * input_stride)
        else:
            steps.append(window.step * input_stride)
    if not codes:
        return stored_bytes, (0,) * len(steps), None
    taps = math.prod(along)
    lane = stored_bytes
    if lane == 1 and taps > 1 << 8:
        lane = 2
    if lane == 2 and taps > SMALL_ORDINALS:
        lane = 4
    reach = sum((count - 1) * step for count, step in zip(along, steps, strict=True))
    if lane == 8 or (lane == 4 and reach < 1 << 31):
        return lane, tuple(steps), None
    if taps > MAX_ORDINALS:
        raise GeometryError(
            f"a window of {taps} taps that spans {reach + 1} elements is more than the kernels can index"
        )
    table = [0]
    for count, step in zip(along, steps, strict=True):
        table = [offset + j * step for offset in table for j in range(count)]
    weights = [math.prod(along[i + 1 :]) for i in range(len(along))]
    return lane, tuple(weights), tuple(table)


def maximum_spec(geometry: Geometry, kind: int, stored_bytes: int, flip: int, indices: bool) -> ForwardSpec:
    """Plan a maximum over `geometry` (minima differ in `flip` alone)."""
    form = _kernel_form(geometry)
    phases = tuple(phases_of(level.window) for level in form.levels)
    codes = indices or kind == HALF
    lane_bytes, steps, table = choose_lanes(form, phases, stored_bytes, codes)
    shape = _shape_of(form, phases, lane_bytes, codes, fold=False)
    result_bytes = stored_bytes + (8 if indices else 0)
    return _spec(geometry, shape, kind, stored_bytes, result_bytes, flip, steps, table, {}, None)


def sum_spec(
    geometry: Geometry, sums: Sums, stored_bytes: int, result_bytes: int, power: int, taps: Divisors
) -> ForwardSpec:
    """Plan sums over `geometry`, whose elements are raised to a power in the way that `power` says."""
    form = _kernel_form(geometry)
    phases = tuple(phases_of(level.window) for level in form.levels)
    # rows are added up while they are loaded where that leaves fewer rows to be split, and elements are what is added
    above = form.levels[-2].window
    spread = phases[-2]
    if isinstance(spread, Spread):
        few = 1 <= spread.most <= FOLD_BOUNDED_TAPS and not spread.is_periodic and above.out <= above.length
    else:
        few = 1 < above.kernel <= FOLD_TAPS  # type: ignore[union-attr]
    fold = few and power < ABSOLUTE_POWER and not scans(form.levels[-1].window, phases[-1])
    shape = _shape_of(form, phases, SUM_BYTES[sums.lane], False, fold)
    steps = (0,) * len(form.levels)
    return _spec(geometry, shape, 0, stored_bytes, result_bytes, power, steps, None, taps, sums)


def _shape_of(form: Canonical, phases: tuple[Phases | Spread, ...], lane_bytes: int, codes: bool, fold: bool) -> _Shape:
    scan = scans(form.levels[-1].window, phases[-1])
    if scan and isinstance(phases[-1], Phases):
        phases = (*phases[:-1], Phases((0,), (0,)))
    carried = _taps_along(form.levels[-1].window) == 1
    direct_leaf = carried and any(_taps_along(level.window) > 1 for level in form.levels)
    return _Shape(form, phases, lane_bytes, codes, scan, direct_leaf, fold)


def _spec(
    geometry: Geometry,
    shape: _Shape,
    kind: int,
    stored_bytes: int,
    result_bytes: int,
    flip: int,
    steps: tuple[int, ...],
    table: tuple[int, ...] | None,
    taps: Divisors,
    sums: Sums | None,
) -> ForwardSpec:
    form, phases, leaf, codes = shape.form, shape.phases, shape.leaf, shape.codes
    tiles = choose_tiles(shape)
    spread = phases[leaf]
    woven = isinstance(spread, Spread) and spread.is_periodic and spread.bounds.period <= WOVEN_PERIOD
    if woven:  # a tile starts with a period
        period = spread.bounds.period  # type: ignore[union-attr]
        tiles[leaf] = min(form.levels[leaf].window.out, -(-tiles[leaf] // period) * period)

    # innermost level: rows are loaded, one run of lanes per phase of theirs and of the level above
    window, tile, residues = form.levels[leaf].window, tiles[leaf], spread.residues
    pitch, block = shape.pitch(tile), shape.block(tile)
    above = shape.places(leaf - 1, tiles[leaf - 1])
    across = len(above)
    row_bytes = across * len(residues) * pitch * shape.lane_bytes
    rows = max(1, min(max(above), ROW_BYTES // row_bytes))
    passes: tuple[Pass, ...] = ()
    raw = temp = 0
    bounds = None
    if isinstance(spread, Spread):
        bounds = _bounds_plan(spread, woven, 1, steps[leaf])
        if not shape.scan:
            raw = across * rows * pitch + spread.reach
            temp = spread.bounds.period * rows * pitch if woven else 0
    elif not shape.scan and not shape.direct_leaf:
        assert isinstance(window, Window)
        starts = [i * across * rows * pitch for i in range(len(residues))]
        passes = passes_of(window, starts, residues, 1, steps[leaf], False, sums is not None)
        passes = tuple(p._replace(extra=0) for p in passes)  # a pass goes over whole rows, reach included
        raw = len(starts) * across * rows * pitch + max(spread.reach)
        temp = rows * pitch + max(spread.reach) if any(p.to_temp for p in passes) else 0
    if shape.scan:
        raw = SCAN_CHUNK
    stride = window.stride if isinstance(window, Window) else 1
    tile_bytes = tile * stride * stored_bytes
    scratch = 0
    if sums is not None and not shape.scan and (stride > 1 or len(residues) > 1):
        scratch = (pitch - 1) * stride + max(residues) + 1
    plans = [
        LevelPlan(
            tile, 0, shape.direct_leaf, residues, (), (), (), 0, passes, temp,
            bounds=bounds, taps=taps.get(form.levels[leaf].axis),
        )
    ]  # fmt: skip

    slack = SLACK_BYTES // shape.lane_bytes
    coded = not shape.direct_leaf
    for i in range(leaf - 1, -1, -1):
        window, tile, residues = form.levels[i].window, tiles[i], phases[i].residues
        places = shape.places(i, tile)
        fold = shape.fold and i == leaf - 1
        if fold:
            residues = (0,)
        starts = list(accumulate((count * block + slack for count in places), initial=0))
        bounds = None
        if isinstance(window, Bounds):
            bounds = _bounds_plan(phases[i], False, block, steps[i])  # type: ignore[arg-type]
            needed: tuple[tuple[int, ...], ...] = ((0,) * places[0],)
        if fold:
            needed = (tuple(range(1, tile + 1)),)
        elif isinstance(window, Window):
            needed = tuple(tuple(_needed(window, r, max(places))) for r in residues)
        direct = shape.is_direct(i)
        passes, temp = (), 0
        if isinstance(window, Window) and not direct:
            passes = passes_of(window, starts[:-1], residues, block, steps[i], coded, sums is not None)
            temp = max((tile + p.extra) * block if p.to_temp else 0 for p in passes)
        plans.append(
            LevelPlan(
                tile,
                block,
                direct,
                residues,
                places,
                tuple(starts[:-1]),
                needed,
                starts[-1],
                passes,
                temp,
                fold,
                coded,
                bounds,
                taps.get(form.levels[i].axis),
            )
        )
        coded = coded or not direct
        block *= tile
    group = max(1, min(tiles[0], RESULT_ELEMENTS // plans[-1].block))
    result = block if plans[-1].direct else group * plans[-1].block
    outputs = math.prod(geometry.output_shape)
    inputs = math.prod(geometry.input_shape)
    streams = outputs * result_bytes >= STREAM_BYTES
    stage = max(STAGE_ELEMENTS, tiles[leaf]) if streams else 0
    # long rows are left to the hardware, which follows them by itself
    short = tile_bytes <= LONG_ROW_BYTES
    ahead = AHEAD_BYTES if inputs * stored_bytes >= CACHES["l2"] and short else 0
    return ForwardSpec(
        form, inputs, outputs, kind, stored_bytes, shape.lane_bytes, flip, kind == HALF, codes,
        table, tuple(reversed(plans)), rows, pitch, shape.scan, steps[leaf], group, raw, scratch, result, stage, ahead,
        sums,
    )  # fmt: skip


def _bounds_plan(spread: Spread, woven: bool, unit: int, code: int) -> BoundsPlan:
    """Windows given by bounds for the kernels: `unit` elements from one position to the next."""
    _, _, period, phase, step, _, _, _ = spread.bounds
    starts = spread.starts
    lowest = int(spread.first.min()) if woven and spread.most else 0
    return BoundsPlan(
        period,
        phase,
        step,
        period if len(starts) > 1 else 0,
        period if woven else 0,
        lowest,
        spread.reach,
        tuple((np.where(spread.counts > 0, starts, lowest) - lowest).ravel().tolist()),
        tuple(spread.counts.tolist()),
        tuple(j * step * unit for j in range(spread.most)),
        tuple(j * code for j in range(spread.most)),
    )


def _needed(window: Window, residue: int, places: int) -> list[int]:
    """Per place of a phase, the smallest tile that reads it (beyond any tile where none does)."""
    s, d = window.stride, window.dilation
    shifts = [j * d // s for j in range(window.kernel) if j * d % s == residue]
    needed, last = [], -1
    for q in range(places):
        while last + 1 < len(shifts) and shifts[last + 1] <= q:
            last += 1
        needed.append(q - shifts[last] + 1 if last >= 0 else places + 1)
    return needed
