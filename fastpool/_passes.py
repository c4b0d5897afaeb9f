"""One axis of a forward plan: the slots that a tile reads, and the passes that reduce them.

A *slot* is one input position along the axis. Slots are ordered by stride phase: tap j of output o of a tile is slot
``start[phase] + o + shift``, with ``phase = j*d % s`` and ``shift = j*d // s``, so a pass over all outputs reads each
tap as one contiguous run. Windows given by bounds have their slots in plain order.

Long windows take few passes: with ``p = s // gcd(s, d)`` taps to a group, the window is `m` whole groups and a rest.
Maxima combine groups by doubling and quadrupling (the last step overlaps), sums in runs whose lengths multiply up. So
the cost of an axis grows with ``log(k)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ._geometry import Bounds, Window

DIRECT_TAPS = 6  # windows up to this many taps are one pass
MOST_RUNS = 8  # added up by one pass of a sum
RADIX = 4  # runs combined by one later pass
SCAN_TAPS = 64  # rows of long windows that hardly overlap are scanned window by window


class Pass(NamedTuple):
    """``dst[i] = first maximum over taps of source[i + offset]``; see Pass in _kernels/_forward_plan.pxd."""

    from_temp: bool
    to_temp: bool
    seeded: bool
    coded: bool
    extra: int
    offsets: tuple[int, ...]
    codes: tuple[int, ...]


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

    @property
    def is_scanned(self) -> bool:
        """Whether rows are scanned window by window: where some are long."""
        return not self.is_periodic and self.most >= SCAN_TAPS

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


@lru_cache(maxsize=1024)
def summing_widths(groups: int) -> tuple[int, ...]:
    """Runs of groups to add up, one pass after the other, so that their product leaves few of `groups` for the rest.

    Sums cannot overlap as maxima can. A pass costs as much as two taps.
    """
    best: tuple[int, ...] = (groups,)
    lowest = groups

    def search(widths: tuple[int, ...], product: int) -> None:
        nonlocal best, lowest
        cost = sum(widths) + groups - product + 2 * len(widths)
        if len(widths) > 1 and cost < lowest:
            best, lowest = widths, cost
        for width in range(2, min(MOST_RUNS, groups // product, widths[-1] if widths else MOST_RUNS) + 1):
            search((*widths, width), product * width)

    search((), 1)
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


def scans(window: Window) -> bool:
    """Whether rows are scanned window by window: long windows that hardly overlap."""
    return (
        window.dilation == 1 and window.kernel >= SCAN_TAPS and (2 * window.stride >= window.kernel or window.out == 1)
    )


def needed_tiles(window: Window, residue: int, places: int) -> list[int]:
    """Per place of a phase, the smallest tile that reads it (beyond any tile where none does)."""
    s, d = window.stride, window.dilation
    shifts = [j * d // s for j in range(window.kernel) if j * d % s == residue]
    needed, last = [], -1
    for q in range(places):
        while last + 1 < len(shifts) and shifts[last + 1] <= q:
            last += 1
        needed.append(q - shifts[last] + 1 if last >= 0 else places + 1)
    return needed
