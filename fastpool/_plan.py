"""Choices: lanes, tiles, passes and threads for a call in canonical form. Pure, and cached by what was asked.

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
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _cpu, _dispatch
from ._geometry import Canonical, Geometry, Level, Window, canonical_form, pooling_geometry
from .errors import GeometryError

# Kinds of lanes, as in _kernels/pool_lanes.h.
INTEGER, FLOAT, HALF = 0, 1, 2

DIRECT_TAPS = 6  # windows up to this many taps are one pass
RADIX = 4  # runs combined by one later pass
SCAN_TAPS = 64  # rows of long windows that hardly overlap are scanned window by window
SCAN_CHUNK = 4096  # lanes, as in _kernels/pool_forward.pyx
SLACK_BYTES = 256  # what a pass may write beyond its run, as in _kernels/pool_lanes.h
ROW_BYTES = 16 << 10  # rows loaded at a time, so that they stay in the first-level cache
RESULT_ELEMENTS = 2048  # outputs of level 0 finished at a time, likewise
ROW_OVERHEAD = 24  # cost of starting a row, in elements
SERIAL_ELEMENTS = 1 << 16  # calls that read fewer elements do not open a parallel region
STREAM_BYTES = 8 << 20  # outputs from this size on are written past the caches
STAGE_ELEMENTS = 1024  # outputs gathered for that
AHEAD_BYTES = 16 << 10  # how far ahead of the rows being read memory is asked for
SMALL_ORDINALS = 1 << 12  # taps that 2-byte lanes count, beyond 8 bits; a larger table would not stay in the cache
GLOBAL_ROWS = 64  # rows that one window of a reduction over rows takes
GLOBAL_CHUNKS = 64  # parts that a reduction to few results is cut into
LONGEST_CHUNK = 1 << 24  # taps of one window of such a reduction
BLOCK = 2048  # indices whose range is known, in scattering
MAX_ORDINALS = 1 << 24  # entries of the table from tap to offset

_CACHES = _cpu.cache_sizes()
_CORES = os.cpu_count() or 1  # tiles are cut for every core, however many threads a call is given


class Pass(NamedTuple):
    """``dst[i] = first maximum over taps of source[i + offset]``; see Pass in pool_forward.pyx."""

    from_temp: bool
    to_temp: bool
    seeded: bool
    coded: bool
    extra: int
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


class ForwardSpec(NamedTuple):
    """Everything that a compiled forward plan is made from."""

    form: Canonical
    input_elements: int
    output_elements: int
    kind: int
    stored_bytes: int
    lane_bytes: int
    flip: int
    codes: bool
    table: tuple[int, ...] | None
    levels: tuple[LevelPlan, ...]
    rows: int
    scan: bool
    scan_code: int
    group: int
    raw_elements: int
    result_elements: int
    stage: int
    ahead: int


class Phases(NamedTuple):
    """The stride phases that the taps of a window fall into, ascending, and the reach of each in places."""

    residues: tuple[int, ...]
    reach: tuple[int, ...]

    def places(self, tile: int) -> tuple[int, ...]:
        """Places per phase that a tile reads."""
        return tuple(tile + reach for reach in self.reach)


def phases_of(window: Window) -> Phases:
    s, d = window.stride, window.dilation
    reach: dict[int, int] = {}
    # the pattern of phases repeats after s // gcd taps; the last taps reach furthest
    period = s // math.gcd(s, d)
    for j in {*range(min(period, window.kernel)), *range(max(0, window.kernel - period), window.kernel)}:
        reach[j * d % s] = max(reach.get(j * d % s, 0), j * d // s)
    residues = tuple(sorted(reach))
    return Phases(residues, tuple(reach[r] for r in residues))


def passes_of(
    window: Window, starts: Sequence[int], residues: Sequence[int], unit: int, code: int, coded: bool
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


def scans(window: Window) -> bool:
    """Whether rows are scanned window by window: long windows that hardly overlap."""
    return (
        window.dilation == 1 and window.kernel >= SCAN_TAPS and (2 * window.stride >= window.kernel or window.out == 1)
    )


class _Sizes(NamedTuple):
    """What a choice of tiles costs."""

    workspace: int
    cost: float


def _sizes(
    form: Canonical,
    phases: Sequence[Phases],
    tiles: Sequence[int],
    lane_bytes: int,
    codes: bool,
    scan: bool,
    direct_leaf: bool,
) -> _Sizes:
    """Workspace of a thread in bytes, and the relative cost: elements computed per element needed."""
    leaf = len(tiles) - 1
    block = tiles[leaf] if scan or direct_leaf else tiles[leaf] + max(phases[leaf].reach)
    overhead = (block + ROW_OVERHEAD) / tiles[leaf]
    elements = 0
    for i in range(leaf - 1, -1, -1):
        level, tile = form.levels[i], tiles[i]
        slots = sum(phases[i].places(tile))
        overhead *= slots / (tile * len(phases[i].residues))
        if level.window.kernel > 1:
            elements += slots * block * (2 if level.window.kernel > DIRECT_TAPS else 1)
        block *= tile
    if form.levels[0].window.kernel == 1:
        elements += block
    else:
        elements += min(block, max(RESULT_ELEMENTS, block // tiles[0]))
    return _Sizes(elements * lane_bytes * (2 if codes else 1), overhead)


def _tile_bytes() -> int:
    """The workspace that FASTPOOL_TILE_BYTES asks for, 0 for the default."""
    text = os.environ.get("FASTPOOL_TILE_BYTES") or "0"
    if not text.isascii() or not text.isdigit():
        raise GeometryError(f"FASTPOOL_TILE_BYTES={text!r} is not a number of bytes")
    return int(text)


def choose_tiles(
    form: Canonical, phases: Sequence[Phases], lane_bytes: int, codes: bool, scan: bool, direct_leaf: bool
) -> list[int]:
    """Outputs per level that one work unit computes.

    From whole axes downwards, the cheapest halving is taken again and again; of the choices on the way the cheapest is
    kept: computed elements, weighed by whether the workspace fits the first or second cache and by idle threads.
    """
    outs = [level.window.out for level in form.levels]
    limit = _tile_bytes()
    l1, l2 = _CACHES["l1d"], _CACHES["l2"]
    tiles, best, best_cost = list(outs), list(outs), math.inf
    while True:
        workspace, overhead = _sizes(form, phases, tiles, lane_bytes, codes, scan, direct_leaf)
        units = form.outer * math.prod(-(-out // tile) for out, tile in zip(outs, tiles, strict=True))
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
            cost *= -(-units // _CORES) * _CORES / units
            if cost < best_cost:
                best, best_cost = list(tiles), cost
            if workspace < l1 // 8 and units >= 4 * _CORES:
                return best
        cheapest, chosen = math.inf, -1
        for i, tile in enumerate(tiles):
            if tile > 1:
                tiles[i] = (tile + 1) // 2
                halved = _sizes(form, phases, tiles, lane_bytes, codes, scan, direct_leaf).cost
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
    window = Window(form.outer, 1, 1, 1, 0, 0, form.outer)
    rows = Level(window, form.outer_input_stride, form.outer_output_stride)
    return form._replace(outer=1, outer_input_stride=0, outer_output_stride=0, levels=(rows, *form.levels))


def choose_lanes(
    form: Canonical, stored_bytes: int, codes: bool
) -> tuple[int, tuple[int, ...], tuple[int, ...] | None]:
    """Bytes per lane, the code of one tap step per level, and the table from code to offset where codes are ordinals.

    A code has the width of its lane. Lanes of 4 and 8 bytes hold the tap's offset itself; narrow ones hold the tap's
    ordinal in its window, and are widened where a window has more taps than that can count.
    """
    windows = [level.window for level in form.levels]
    steps = [level.window.dilation * level.input_stride for level in form.levels]
    if not codes:
        return stored_bytes, (0,) * len(steps), None
    taps = math.prod(window.kernel for window in windows)
    lane = stored_bytes
    if lane == 1 and taps > 1 << 8:
        lane = 2
    if lane == 2 and taps > SMALL_ORDINALS:
        lane = 4
    reach = sum((window.kernel - 1) * step for window, step in zip(windows, steps, strict=True))
    if lane == 8 or (lane == 4 and reach < 1 << 31):
        return lane, tuple(steps), None
    if taps > MAX_ORDINALS:
        raise GeometryError(
            f"a window of {taps} taps that spans {reach + 1} elements is more than the kernels can index"
        )
    table = [0]
    for window, step in zip(windows, steps, strict=True):
        table = [offset + j * step for offset in table for j in range(window.kernel)]
    weights = [math.prod(window.kernel for window in windows[i + 1 :]) for i in range(len(windows))]
    return lane, tuple(weights), tuple(table)


def forward_spec(geometry: Geometry, kind: int, stored_bytes: int, flip: int, indices: bool) -> ForwardSpec:
    """Plan a maximum over `geometry` (minima differ in `flip` alone)."""
    form = _kernel_form(geometry)
    codes = indices or kind == HALF
    lane_bytes, steps, table = choose_lanes(form, stored_bytes, codes)
    leaf = len(form.levels) - 1
    scan = scans(form.levels[leaf].window)
    phases = [phases_of(level.window) for level in form.levels[:leaf]]
    phases.append(Phases((0,), (0,)) if scan else phases_of(form.levels[leaf].window))
    direct_leaf = form.levels[leaf].window.kernel == 1 and any(level.window.kernel > 1 for level in form.levels)
    tiles = choose_tiles(form, phases, lane_bytes, codes, scan, direct_leaf)

    # innermost level: rows are loaded, one run of lanes per phase of theirs and of the level above
    window, tile = form.levels[leaf].window, tiles[leaf]
    reach = max(phases[leaf].reach)
    pitch = tile if scan or direct_leaf else tile + reach
    above = max(phases[leaf - 1].places(tiles[leaf - 1]))
    across = len(phases[leaf - 1].residues)
    row_bytes = across * len(phases[leaf].residues) * pitch * lane_bytes
    rows = max(1, min(above, ROW_BYTES // row_bytes))
    passes: tuple[Pass, ...] = ()
    raw = temp = 0
    if scan:
        raw = SCAN_CHUNK
    elif not direct_leaf:
        starts = [i * across * rows * pitch for i in range(len(phases[leaf].residues))]
        passes = passes_of(window, starts, phases[leaf].residues, 1, steps[leaf], False)
        passes = tuple(p._replace(extra=0) for p in passes)  # a pass goes over whole rows, reach included
        raw = len(starts) * across * rows * pitch + reach
        temp = rows * pitch + reach if any(p.to_temp for p in passes) else 0
    plans = [LevelPlan(tile, 0, direct_leaf, phases[leaf].residues, (), (), (), 0, passes, temp)]

    slack = SLACK_BYTES // lane_bytes
    block, coded = pitch, not direct_leaf
    for i in range(leaf - 1, -1, -1):
        window, tile = form.levels[i].window, tiles[i]
        places = phases[i].places(tile)
        starts = list(accumulate((count * block + slack for count in places), initial=0))
        needed = tuple(tuple(_needed(window, r, max(places))) for r in phases[i].residues)
        direct = window.kernel == 1
        passes, temp = (), 0
        if not direct:
            passes = passes_of(window, starts[:-1], phases[i].residues, block, steps[i], coded)
            temp = max((tile + p.extra) * block if p.to_temp else 0 for p in passes)
            coded = True
        plans.append(
            LevelPlan(
                tile,
                block,
                direct,
                phases[i].residues,
                places,
                tuple(starts[:-1]),
                needed,
                starts[-1],
                passes,
                temp,
            )
        )
        block *= tile
    group = max(1, min(tiles[0], RESULT_ELEMENTS // plans[-1].block))
    result = block if plans[-1].direct else group * plans[-1].block
    outputs = math.prod(geometry.output_shape)
    inputs = math.prod(geometry.input_shape)
    streams = outputs * (stored_bytes + (8 if indices else 0)) >= STREAM_BYTES
    stage = max(STAGE_ELEMENTS, tiles[leaf]) if streams else 0
    ahead = AHEAD_BYTES if inputs * stored_bytes >= _CACHES["l2"] else 0
    return ForwardSpec(
        form, inputs, outputs, kind, stored_bytes, lane_bytes, flip, codes,
        table, tuple(reversed(plans)), rows, scan, steps[leaf], group, raw, result, stage, ahead,
    )  # fmt: skip


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


# ---------------------------------------------------------------------------------------------- plans, and their cache


class PoolPlan(NamedTuple):
    """A forward plan that can run: `compiled` holds the spec in C. An empty result needs neither."""

    geometry: Geometry
    spec: ForwardSpec | None
    compiled: _dispatch.pool_forward.ForwardPlan | None
    parallel: bool


def _order_flip(dtype_kind: str, bytes_: int, half: int, minimum: bool) -> int:
    """The bits to flip so that the kernel's signed maximum is the wanted extremum (half floats: bits of infinity)."""
    if half:
        return -half if minimum else half
    top = 1 << (8 * bytes_ - 1)
    if dtype_kind == "f":
        return -top if minimum else 0
    if dtype_kind == "i":
        return -1 if minimum else 0
    return top - 1 if minimum else -top


@lru_cache(maxsize=512)
def _pool_plan(geometry: Geometry, dtype_kind: str, itemsize: int, half: int, minimum: bool, indices: bool) -> PoolPlan:
    if 0 in geometry.output_shape:
        return PoolPlan(geometry, None, None, False)
    kind = HALF if half else FLOAT if dtype_kind == "f" else INTEGER
    spec = forward_spec(geometry, kind, itemsize, _order_flip(dtype_kind, itemsize, half, minimum), indices)
    compiled = _dispatch.pool_forward.ForwardPlan(spec)
    return PoolPlan(geometry, spec, compiled, spec.input_elements >= SERIAL_ELEMENTS)


def pool_plan(
    dtype: np.dtype[Any],
    minimum: bool,
    indices: bool,
    input_shape: tuple[int, ...],
    ceil_mode: Any,
    *arguments: Any,
) -> PoolPlan:
    """The plan of a maximum (or minimum) with these geometry arguments, from the cache where it was made before."""
    key = (dtype, minimum, indices, input_shape, ceil_mode, arguments)
    plain = type(ceil_mode) is bool and _is_plain(arguments)
    if plain:
        found = _recent.get(key)
        if found is not None:
            return found
    kernel_size, stride, padding, dilation, axes = arguments
    geometry = pooling_geometry(input_shape, kernel_size, stride, padding, dilation, ceil_mode, axes)
    half = 0 if dtype.itemsize != 2 or dtype.kind in "iu" else 0x7C00 if dtype.kind == "f" else 0x7F80
    plan = _pool_plan(geometry, dtype.kind, dtype.itemsize, half, minimum, indices)
    if plain:
        if len(_recent) >= 512:
            _recent.clear()
        _recent[key] = plan
    return plan


# Plans by the arguments as given, so that a repeated call computes no geometry. Only for arguments made of nothing but
# int, str, None and tuples of them: equal keys must mean equal calls, and 2.0 == 2 == 2 + 0j, True == 1.
_recent: dict[Any, PoolPlan] = {}
_PLAIN = {int, str, type(None)}


def _is_plain(arguments: tuple[Any, ...]) -> bool:
    for argument in arguments:
        if type(argument) not in _PLAIN and not (type(argument) is tuple and _is_plain(argument)):
            return False
    return True


def clear_cache() -> None:
    """Forget every plan, e.g. after FASTPOOL_TILE_BYTES was changed."""
    _recent.clear()
    _pool_plan.cache_clear()


# ---------------------------------------------------------------------------------------------- whole axes, scattering


def global_chunk(shape: tuple[int, ...], axes: tuple[int, ...]) -> int | None:
    """Length of the chunks that the outermost reduced axis is cut into, None where it stays whole.

    Cut where few results would leave cores idle, and where the rows of one window would not stay in the cache.
    """
    length = shape[axes[0]]
    if math.prod(shape[axes[-1] + 1 :]) > 1:
        return GLOBAL_ROWS if length > 4 * GLOBAL_ROWS else None
    results = math.prod(n for axis, n in enumerate(shape) if axis not in axes)
    chunks = GLOBAL_CHUNKS if results < 4 * _CORES and math.prod(shape) >= 8 * SERIAL_ELEMENTS else 1
    chunks = min(length, max(chunks, -(-length // LONGEST_CHUNK)))
    return -(-length // chunks) if chunks > 1 else None


class Slabs(NamedTuple):
    """How the result of a scattering is cut: `slab` elements a worker, and per slab the blocks that reach into it."""

    slab: int
    first: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]


def cut_in_slabs(
    low: npt.NDArray[np.int64], high: npt.NDArray[np.int64], size: int, itemsize: int, threads: int
) -> Slabs:
    """Slabs for sources whose blocks of `BLOCK` indices lie in ``[low, high]`` each.

    A slab fits the second-level cache, unless a block reaches over several such slabs: then every one of them would go
    through the whole block, and larger slabs cost less.
    """
    slab = max(1024, min(_CACHES["l2"] // 4 // itemsize, -(-size // (4 * _CORES))))
    if len(low):
        slab = max(slab, min(4 * int(np.median(high - low)), -(-size // threads)))
    begin = np.arange(-(-size // slab), dtype=np.int64) * slab
    first = np.searchsorted(np.maximum.accumulate(high), begin, "left")
    last = np.searchsorted(np.minimum.accumulate(low[::-1])[::-1], begin + slab, "left")
    return Slabs(slab, first, last)


def scatters_in_parallel(sources: int, size: int) -> bool:
    """Whether scattering is worth a parallel region."""
    return sources + size >= SERIAL_ELEMENTS
