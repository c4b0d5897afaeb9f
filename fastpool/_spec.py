"""What a compiled forward plan is made from: lanes, tiles, slots and passes. Pure; `_plan` keeps the cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, cast

import numpy as np

from ._canonical import Canonical, Level, canonical_form
from ._geometry import Bounds, Geometry, Taps, Window
from ._passes import DIRECT_TAPS, Pass, Phases, Spread, needed_tiles, passes_of, phases_of, scans
from ._tiles import CACHES, RESULT_ELEMENTS, Shape, choose_tiles, taps_along
from .errors import GeometryError

# Kinds of lanes, as in _kernels/pool_lanes.h.
INTEGER, FLOAT, HALF = 0, 1, 2

# Element types and types of sums, as in _kernels/sum_lanes.h.
ELEMENTS = {"bool": 0, "uint8": 0, "int8": 1, "uint16": 2, "int16": 3, "uint32": 4, "int32": 5, "uint64": 6, "int64": 7}
ELEMENTS |= {"float16": 8, "bfloat16": 9, "float32": 10, "float64": 11}
# Lanes of convolution by element type, as in _kernels/conv_lanes.h.
CONV_LANE_BYTES = (4, 4, 8, 8, 8, 8, 8, 8, 4, 4, 4, 8)
SUM_S16, SUM_S32, SUM_S64, SUM_PAIR, SUM_F32, SUM_F64 = range(6)
SUM_BYTES = (2, 4, 8, 16, 4, 8)
# Elements and lanes whose rows are loaded as sums of so many neighbours.
JOINED_SUMS: dict[tuple[int, int], tuple[int, ...]] = {(10, SUM_F32): (2, 4), (11, SUM_F64): (2, 4)}
JOINED_SUMS |= {(0, SUM_S16): (2,), (1, SUM_S16): (2,), (2, SUM_S32): (2,), (3, SUM_S32): (2,)}
PLAIN, ABSOLUTE, SQUARE, ABSOLUTE_POWER, SIGNED_POWER = range(5)

JOINED_STRIDES = (1, 2, 4)  # along rows, where maxima can be taken while a row is loaded
JOINED_BYTES = 64  # of a row of results at least, so that it fills a vector
JOINED_PARTS = 8  # whole windows to one that reaches over the ends of its row
FOLD_TAPS = 8  # rows that are added while they are loaded
FOLD_BOUNDED_TAPS = 16  # likewise, where windows are given by bounds
WOVEN_PERIOD = 32  # strides up to this are woven from one run per phase
FLOAT32_TAPS = 1 << 10  # windows of more taps add float32 up in float64
SCAN_CHUNK = 4096  # lanes, as in _kernels/_forward_plan.pxd
GATHERED_TAPS = 64  # as in _kernels/pool_lanes.h
SLACK_BYTES = 256  # what a pass may write beyond its run, as in _kernels/pool_lanes.h
ROW_BYTES = 16 << 10  # rows loaded at a time, so that they stay in the first-level cache
STREAM_BYTES = 8 << 20  # outputs from this size on are written past the caches
STAGE_ELEMENTS = 1024  # outputs gathered for that
LONG_ROW_BYTES = 4 << 10  # rows beyond this are read without asking ahead
AHEAD_BYTES = 16 << 10  # how far ahead of the rows being read memory is asked for
SMALL_ORDINALS = 1 << 12  # taps that 2-byte lanes count, beyond 8 bits; a larger table would not stay in the cache
MAX_ORDINALS = 1 << 24  # entries of the table from tap to offset


class BoundsPlan(NamedTuple):
    """Windows given by bounds, as the kernels take them; see Level in _kernels/_forward_plan.pxd."""

    period: int
    phase: int
    step: int
    shared: int
    weaves: int
    before: int
    reach: int
    most: int
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
    fold: int
    joined: int
    sums: Sums | None


# Per axis the taps that count in a mean, where their number differs from output to output.
Divisors = dict[int | None, Taps]


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


def _phases_of_levels(form: Canonical) -> tuple[Phases | Spread, ...]:
    """The slots of every level; rows that are scanned need none."""
    *outer, leaf = (level.window for level in form.levels)
    scanned = isinstance(leaf, Window) and scans(leaf)
    return (*map(phases_of, outer), Phases((0,), (0,)) if scanned else phases_of(leaf))


def _is_scanned(form: Canonical, phases: tuple[Phases | Spread, ...]) -> bool:
    """Whether rows are scanned window by window."""
    leaf, spread = form.levels[-1].window, phases[-1]
    return spread.is_scanned if isinstance(spread, Spread) else scans(cast(Window, leaf))


def maximum_spec(geometry: Geometry, kind: int, stored_bytes: int, flip: int, indices: bool) -> ForwardSpec:
    """Plan a maximum over `geometry` (minima differ in `flip` alone)."""
    form = _kernel_form(geometry)
    phases = _phases_of_levels(form)
    codes = indices or kind == HALF
    lane_bytes, steps, table = choose_lanes(form, phases, stored_bytes, codes)
    shape = _shape_of(form, phases, lane_bytes, codes, fold=-1)
    joined = 0 if codes else _joined_taps(form.levels[-1].window, stored_bytes)
    shape = _joined(shape) if joined else shape
    result_bytes = stored_bytes + (8 if indices else 0)
    return _spec(geometry, shape, kind, stored_bytes, result_bytes, flip, steps, table, {}, None, joined)


def _joined_taps(window: Window | Bounds, lane_bytes: int) -> int:
    """Taps of windows that are pooled while their rows are loaded, 0 where loading and pooling are apart.

    Windows that reach over the ends of a row are pooled one by one, so they have to be few.
    """
    if not isinstance(window, Window) or window.dilation > 1 or window.stride not in JOINED_STRIDES:
        return 0
    if not 2 <= window.kernel <= DIRECT_TAPS or window.out * lane_bytes < JOINED_BYTES:
        return 0
    whole = (window.length + window.before - window.kernel) // window.stride + 1 - -(-window.before // window.stride)
    return window.kernel if JOINED_PARTS * (window.out - whole) <= window.out else 0


def _joined(shape: Shape) -> Shape:
    """The shape of a call whose rows need nothing more once they are loaded."""
    return shape._replace(phases=(*shape.phases[:-1], Phases((0,), (0,))), direct_leaf=True)


def sum_spec(
    geometry: Geometry, sums: Sums, stored_bytes: int, result_bytes: int, power: int, taps: Divisors
) -> ForwardSpec:
    """Plan sums over `geometry`, whose elements are raised to a power in the way that `power` says."""
    form = _kernel_form(geometry)
    phases = _phases_of_levels(form)
    # Rows are added up while they are loaded where that leaves fewer rows to be split, and elements are what is added.
    # Which axis comes first depends on the pooled axes alone, so that sums do not depend on axes that are only carried.
    fold = -1
    pooled = [i for i, level in enumerate(form.levels) if taps_along(level.window) > 1]
    if len(pooled) > 1 and power < ABSOLUTE_POWER and not _is_scanned(form, phases):
        above, spread = form.levels[pooled[-2]].window, phases[pooled[-2]]
        if isinstance(spread, Spread):
            few = spread.most <= FOLD_BOUNDED_TAPS and not spread.is_periodic and above.out <= above.length
        else:
            few = cast(Window, above).kernel <= FOLD_TAPS
            if power != PLAIN:  # what is costly to load is loaded once
                few = few and cast(Window, above).kernel <= cast(Window, above).stride
        fold = pooled[-2] if few else -1
    shape = _shape_of(form, phases, SUM_BYTES[sums.lane], False, fold)
    leaf = form.levels[-1].window
    joined = 0
    if isinstance(leaf, Window) and leaf.kernel == leaf.stride and leaf.dilation == 1 and power == PLAIN:
        joined = leaf.kernel if leaf.kernel in JOINED_SUMS.get((sums.stored, sums.lane), ()) else 0
    shape = _joined(shape) if joined else shape
    steps = (0,) * len(form.levels)
    return _spec(geometry, shape, 0, stored_bytes, result_bytes, power, steps, None, taps, sums, joined)


def _shape_of(form: Canonical, phases: tuple[Phases | Spread, ...], lane_bytes: int, codes: bool, fold: int) -> Shape:
    scan = _is_scanned(form, phases)
    carried = taps_along(form.levels[-1].window) == 1
    direct_leaf = carried and any(taps_along(level.window) > 1 for level in form.levels)
    return Shape(form, phases, lane_bytes, codes, scan, direct_leaf, fold)


def _spec(
    geometry: Geometry,
    shape: Shape,
    kind: int,
    stored_bytes: int,
    result_bytes: int,
    flip: int,
    steps: tuple[int, ...],
    table: tuple[int, ...] | None,
    taps: Divisors,
    sums: Sums | None,
    joined: int = 0,
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
        # maxima gather windows of about one size
        even = sums is None and spread.most * len(spread.counts) <= 2 * int(spread.counts.sum())
        gathered = spread.most if even and spread.most <= GATHERED_TAPS else 0
        bounds = _bounds_plan(spread, woven, 1, steps[leaf], gathered)
        if not shape.scan:
            raw = across * rows * pitch + spread.reach
            temp = spread.bounds.period * rows * pitch if woven else gathered * rows * tile
    elif not shape.scan and not shape.direct_leaf:
        starts = [i * across * rows * pitch for i in range(len(residues))]
        passes = passes_of(cast(Window, window), starts, residues, 1, steps[leaf], False, sums is not None)
        passes = tuple(p._replace(extra=0) for p in passes)  # a pass goes over whole rows, reach included
        raw = len(starts) * across * rows * pitch + max(spread.reach)
        temp = rows * pitch + max(spread.reach) if any(p.to_temp for p in passes) else 0
    if shape.scan:
        raw = SCAN_CHUNK
    stride = window.stride if isinstance(window, Window) else 1
    tile_bytes = tile * stride * stored_bytes
    scratch = 0
    if sums is not None and not shape.scan and (stride > 1 or len(residues) > 1):
        scratch = min((pitch - 1) * stride + max(residues) + 1, window.length)
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
        fold = i == shape.fold
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
            needed = tuple(tuple(needed_tiles(window, r, max(places))) for r in residues)
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
        shape.fold, joined, sums,
    )  # fmt: skip


def _bounds_plan(spread: Spread, woven: bool, unit: int, code: int, gathered: int = 0) -> BoundsPlan:
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
        gathered,
        tuple((np.where(spread.counts > 0, starts, lowest) - lowest).ravel().tolist()),
        tuple(spread.counts.tolist()),
        tuple(j * step * unit for j in range(spread.most)),
        tuple(j * code for j in range(spread.most)),
    )
