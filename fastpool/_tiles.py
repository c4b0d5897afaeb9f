"""How the outputs of a call are cut into tiles, which are what a thread works on at a time."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import NamedTuple

from . import _cpu
from ._canonical import Canonical
from ._geometry import Bounds, Window
from ._passes import DIRECT_TAPS, Phases, Spread
from .errors import GeometryError

RESULT_ELEMENTS = 2048  # outputs of level 0 finished at a time
ROW_OVERHEAD = 24  # cost of starting a row, in elements

CACHES = _cpu.cache_sizes()
CORES = os.cpu_count() or 1  # tiles are cut for every core, however many threads a call is given


class _Sizes(NamedTuple):
    """What a choice of tiles costs."""

    workspace: int
    cost: float


class Shape(NamedTuple):
    """A call in canonical form, as far as tiles depend on it."""

    form: Canonical
    phases: tuple[Phases | Spread, ...]
    lane_bytes: int
    codes: bool
    scan: bool
    direct_leaf: bool
    fold: int  # the level whose taps are added while rows are loaded, -1 for none

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
        return (tile,) if i == self.fold else self.phases[i].places(tile)

    def is_direct(self, i: int) -> bool:
        """Whether the slots of a level are its result."""
        return taps_along(self.form.levels[i].window) == 1 or i == self.fold


def taps_along(window: Window | Bounds) -> int:
    """Taps of a window along its axis, 2 where they differ."""
    return window.kernel if isinstance(window, Window) else 2


def _sizes(shape: Shape, tiles: Sequence[int]) -> _Sizes:
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
            elements += sum(places) * block * (2 if taps_along(shape.form.levels[i].window) > DIRECT_TAPS else 1)
        block *= tile
    if shape.is_direct(0):
        elements += block
    else:
        elements += min(block, max(RESULT_ELEMENTS, block // tiles[0]))
    return _Sizes(elements * shape.lane_bytes * (2 if shape.codes else 1), overhead)


def asked_tile_bytes() -> int:
    """The workspace that FASTPOOL_TILE_BYTES asks for, 0 for the default."""
    text = os.environ.get("FASTPOOL_TILE_BYTES") or "0"
    if not text.isascii() or not text.isdigit():
        raise GeometryError(f"FASTPOOL_TILE_BYTES={text!r} is not a number of bytes")
    return int(text)


def choose_tiles(shape: Shape) -> list[int]:
    """Outputs per level that one work unit computes.

    From whole axes downwards, the cheapest halving is taken again and again; of the choices on the way the cheapest is
    kept: computed elements, weighed by whether the workspace fits the first or second cache and by idle threads.
    """
    outs = [level.window.out for level in shape.form.levels]
    limit = asked_tile_bytes()
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
