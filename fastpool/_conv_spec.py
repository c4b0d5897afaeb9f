"""What a compiled plan of a convolution is made from: axes, roles, tiles. Pure; `_plan` keeps the cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple, cast

from ._geometry import Geometry, Window, kept, per_axis, pooling_geometry
from ._tiles import CACHES, CORES, asked_tile_bytes
from .errors import GeometryError

RUN_BYTES = 32 << 10  # of the sums of one run, so that they stay in the first-level cache
PANEL = 512  # positions of one part of the weight gradient, as in _kernels/conv_lanes.h
FEW = 4  # filters of a group whose weight gradient may go by tiles, as in _kernels/conv.pyx
GRADIENT_BYTES, GRADIENT_MOST_BYTES = 64 << 10, 1 << 20  # of the input of such a tile: wanted, and at most
ROW_CYCLES = 25  # cost of starting a row
CALL_CYCLES = 40  # and of a register block
LONE_VECTOR = 0.2  # what a vector costs in addition that is left when three at a time are taken
WEIGHT_CYCLES = 0.6  # of reading a weight once more
GATHER_CYCLES = 44  # of gathering a stretch of a row for one row of the product
STREAM_BYTES = 12 << 20  # results from this size on are written past the caches,
STREAM_ROW = 32  # if their rows are not too short for that
RUN = 96  # outputs whose input is gathered at a time, as in _kernels/conv.pyx
MOST_LANES = 2**31 - 1  # of a tile, counted by the kernel in 32 bits
LANES = 16  # of a vector, for the choice of tiles alone
UNITS, MANY_UNITS = 4, 16  # work units per core that a call should have, and that it may have
DEAR, CHEAP = 1.25, 1.03  # what more units may cost, up to the first number and up to the second


class ConvWindow(NamedTuple):
    """The windows along one axis: tap ``j`` of output ``o`` is element ``o*stride + j*dilation - before``.

    Negative padding is a negative `before`.
    """

    length: int
    kernel: int
    stride: int
    dilation: int
    before: int
    out: int

    @property
    def is_plain(self) -> bool:
        """Whether every output is its own element."""
        return self.kernel == self.stride == 1 and self.before == 0 and self.out == self.length


class Channels(NamedTuple):
    """Groups, and per group the channels on both sides of the convolution that the weight belongs to."""

    batch: int
    groups: int
    inputs: int
    outputs: int


class ConvAxis(NamedTuple):
    """An axis of the plan: the batch, then the axes of the input."""

    length: int
    step: int  # input elements from output to output
    input_stride: int
    tile: int
    tiles: int
    shared: int = 0  # padding of a row that is the start of the next row's as well


class ConvRole(NamedTuple):
    """Outputs that have the same taps: their numbers and strides, the first one, and each tap's weight and shifts."""

    counts: tuple[int, ...]
    strides: tuple[int, ...]
    base: int
    weight: tuple[int, ...]
    shifts: tuple[tuple[int, ...], ...]


class ConvSpec(NamedTuple):
    """Everything that a compiled plan is made from."""

    element: int
    groups: int
    inputs: int
    outputs: int
    input_channel: int
    output_channel: int
    weight_strides: tuple[int, int, int]
    kernel: int
    axes: tuple[ConvAxis, ...]
    roles: tuple[ConvRole, ...]
    filled: bool  # roles have all outputs; otherwise the rest is the bias alone
    direct: bool = False
    flat: int = 1
    parts: int = 1
    stream: bool = False  # results are more than the caches hold
    gradient: bool = False
    panel: int = PANEL
    row_step: int = 1

    @property
    def products(self) -> int:
        """Multiplications that the call needs."""
        positions = sum(math.prod(role.counts) * len(role.weight) for role in self.roles)
        return positions * self.groups * self.inputs * self.outputs


@kept
def conv_geometry(shape: tuple[int, ...], kernel: Sequence[int], stride: Any, padding: Any, dilation: Any) -> Geometry:
    """The windows of a convolution along the last axes of an array, as many as the kernel has."""
    strides = per_axis("stride", stride, len(kernel), 1)  # where pooling has a default that convolution has not
    return pooling_geometry(shape, kernel, strides, padding, dilation, padding_counts=True)


@lru_cache(maxsize=512)
def windows_of(geometry: Geometry) -> tuple[ConvWindow, ...]:
    """The windows along every axis of the geometry of a convolution."""
    windows = cast(tuple[Window, ...], geometry.windows)
    lengths = (geometry.input_shape[axis] for axis in geometry.axes)
    return tuple(
        ConvWindow(length, w.kernel, w.stride, w.dilation, w.before - w.crop, w.out)
        for length, w in zip(lengths, windows, strict=True)
    )


def pads_of(geometry: Geometry) -> list[tuple[int, int]]:
    """What is added before and after every axis, negative where it is cropped."""
    pairs = [(0, 0)] * len(geometry.input_shape)
    for axis, w in zip(geometry.axes, cast(tuple[Window, ...], geometry.windows), strict=True):
        cropped = geometry.input_shape[axis] - w.length - w.crop
        pairs[axis] = (w.before - w.crop, w.after - cropped)
    return pairs


def merged(windows: Sequence[ConvWindow]) -> list[ConvWindow]:
    """Neighbouring axes along which every output is its own element, as one."""
    result: list[ConvWindow] = []
    for window in windows:
        if result and window.is_plain and result[-1].is_plain:
            length = result[-1].length * window.length
            result[-1] = ConvWindow(length, 1, 1, 1, 0, length)
        else:
            result.append(window)
    return result


def _strides(lengths: Sequence[int]) -> list[int]:
    """Elements from one to the next along every axis of a C-order array."""
    return [math.prod(lengths[i + 1 :]) for i in range(len(lengths))]


def forward_spec(element: int, channels: Channels, windows: Sequence[ConvWindow]) -> ConvSpec:
    """A convolution, before its tiles are chosen."""
    batch, groups, inputs, outputs = channels
    windows = merged(windows)
    lengths, outs = [w.length for w in windows], [w.out for w in windows]
    spatial, places = math.prod(lengths), math.prod(outs)
    taps = math.prod(w.kernel for w in windows)
    axes = [ConvAxis(batch, 1, max(groups * inputs, 1) * spatial, batch, 1)]
    for window, stride in zip(windows, _strides(lengths), strict=True):
        axes.append(ConvAxis(window.length, window.stride, stride, window.out, 1))
    shifts = product((0,), *([j * w.dilation - w.before for j in range(w.kernel)] for w in windows))
    role = ConvRole((batch, *outs), (groups * outputs * places, *_strides(outs)), 0, tuple(range(taps)), tuple(shifts))
    return ConvSpec(
        element, groups, inputs, outputs, spatial, places, (taps, inputs * taps, outputs * inputs * taps), taps,
        tuple(axes), (role,), True,
    )  # fmt: skip


def transposed_spec(element: int, channels: Channels, windows: Sequence[ConvWindow]) -> ConvSpec:
    """The transpose of the convolution that is described: its input has the convolution's output shape."""
    batch, groups, outputs, inputs = channels
    windows = merged(windows)
    lengths, outs = [w.length for w in windows], [w.out for w in windows]
    spatial, places = math.prod(outs), math.prod(lengths)
    taps = math.prod(w.kernel for w in windows)
    # per axis and remainder: the number of elements, and per tap its place in the kernel and its shift
    remainders: list[list[tuple[int, int, list[tuple[int, int]]]]] = []
    filled = True
    for window in windows:
        found: dict[int, list[tuple[int, int]]] = {}
        for j in range(window.kernel):
            shift, r = divmod(j * window.dilation - window.before, window.stride)
            if r < window.length:
                found.setdefault(r, []).append((j, -shift))
        remainders.append([(r, -(-(window.length - r) // window.stride), found[r]) for r in sorted(found)])
        filled &= len(found) == min(window.stride, window.length)
    output_strides, kernel_strides = _strides(lengths), _strides([w.kernel for w in windows])
    batch_stride = groups * outputs * places
    roles = []
    for chosen in product(*remainders):
        pairs = list(product(*(found for _, _, found in chosen)))
        roles.append(
            ConvRole(
                (batch, *(count for _, count, _ in chosen)),
                (batch_stride, *(s * w.stride for s, w in zip(output_strides, windows, strict=True))),
                sum(r * s for (r, _, _), s in zip(chosen, output_strides, strict=True)),
                tuple(sum(j * s for (j, _), s in zip(pair, kernel_strides, strict=True)) for pair in pairs),
                tuple((0, *(shift for _, shift in pair)) for pair in pairs),
            )
        )
    grid = [max((role.counts[a] for role in roles), default=1) for a in range(len(windows) + 1)]
    axes = [ConvAxis(batch, 1, max(groups * inputs, 1) * spatial, grid[0], 1)]
    for i, (window, stride) in enumerate(zip(windows, _strides(outs), strict=True)):
        axes.append(ConvAxis(window.out, 1, stride, grid[i + 1], 1))
    return ConvSpec(
        element, groups, inputs, outputs, spatial, places, (outputs * taps, taps, outputs * inputs * taps), taps,
        tuple(axes), tuple(roles), filled,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- tiles


class _Shape(NamedTuple):
    """A plan, as far as its tiles depend on it."""

    grid: tuple[int, ...]
    span: tuple[int, ...]
    shared: tuple[int, ...]  # where a tile has all of an axis
    phases: int
    inputs: int
    rows: int
    depth: int
    lane_bytes: int

    def places(self, tile: Sequence[int]) -> list[int]:
        return [n + span for n, span in zip(tile, self.span, strict=True)]

    def sharing(self, tile: Sequence[int]) -> list[int]:
        return [shared if n == all_ else 0 for n, all_, shared in zip(tile, self.grid, self.shared, strict=True)]

    def run(self, tile: Sequence[int], flat: int) -> int:
        """Lanes of the run of the innermost axes."""
        places = self.places(tile)
        pitches = _strides([n - shared for n, shared in zip(places, self.sharing(tile), strict=True)])
        return 1 + sum((n - 1) * p for n, p in zip(tile[-flat:], pitches[-flat:], strict=True))

    def workspace(self, tile: Sequence[int]) -> int:
        return self.inputs * self.phases * math.prod(self.places(tile)) * self.lane_bytes

    def cost(self, tile: Sequence[int], flat: int) -> float:
        """Cycles of the whole call, roughly."""
        places = self.places(tile)
        tiles = math.prod(-(-n // t) for n, t in zip(self.grid, tile, strict=True))
        calls = math.prod(tile[:-flat])
        run = -(-self.run(tile, flat) // LANES)
        vectors = calls * (run + LONE_VECTOR * (run % 3 == 1))
        sums = vectors * self.rows * (self.depth + 2) + calls * -(-self.rows // 8) * CALL_CYCLES
        sums += math.prod(tile[:-1]) * self.rows * ROW_CYCLES / 2 + self.rows * self.depth * WEIGHT_CYCLES
        rows = self.inputs * self.phases * math.prod(places[:-1])
        return tiles * (sums + rows * (ROW_CYCLES + places[-1] / LANES * 3))

    def gemm_cost(self, roles: Sequence[ConvRole]) -> float:
        """The same with the input gathered, in which no lanes lie between rows."""
        cost = 0.0
        for role in roles:
            outputs, depth = math.prod(role.counts), len(role.weight) * self.inputs
            runs = -(-outputs // RUN)
            stretches = outputs // role.counts[-1] + runs
            cost += -(-outputs // LANES) * self.rows * (depth + 2) + runs * self.rows * depth * WEIGHT_CYCLES
            cost += stretches * (depth * GATHER_CYCLES + self.rows * ROW_CYCLES / 2)
        return cost

    def split(self, tile: tuple[int, ...], flat: int) -> tuple[int, ...] | None:
        """The cheapest of the tiles half as large, None for a single output."""
        halves = []
        for a, n in enumerate(tile):
            if n > 1:
                pieces = 2 * -(-self.grid[a] // n)
                half = (*tile[:a], -(-self.grid[a] // pieces), *tile[a + 1 :])
                halves.append((self.cost(half, flat), half))
        return min(halves)[1] if halves else None

    def cut(self, flat: int, most: int, limit: int) -> tuple[int, ...]:
        """The first tile whose run and workspace are within bounds, or a single output."""
        tile = self.grid
        while self.workspace(tile) > limit or self.run(tile, flat) > most:
            half = self.split(tile, flat)
            if half is None:
                break
            tile = half
        return tile


def _shape(spec: ConvSpec, lane_bytes: int) -> _Shape:
    phases, spans, shared = 1, [], []
    for a, axis in enumerate(spec.axes):
        shifts = {shift[a] for role in spec.roles for shift in role.shifts} or {0}
        residues = {shift % axis.step for shift in shifts}
        low, span = min(shifts) // axis.step, max(shifts) // axis.step - min(shifts) // axis.step
        phases *= len(residues)
        spans.append(span)
        # padding that all phases have at both ends: places before the first element, and after the last
        ends = [span]
        for residue in residues:
            first = low * axis.step + residue
            ends += [-(first // axis.step), axis.tile + span + (first - axis.length) // axis.step]
        shared.append(max(0, min(ends)))
    depth = sum(len(role.weight) for role in spec.roles) * spec.inputs
    rows = -(-spec.outputs // 4) * 4 if spec.outputs > 2 else spec.outputs
    grid = tuple(axis.tile for axis in spec.axes)
    return _Shape(grid, tuple(spans), tuple(shared), phases, spec.inputs, rows, depth, lane_bytes)


def gradient_spec(element: int, channels: Channels, windows: Sequence[ConvWindow], lane_bytes: int) -> ConvSpec:
    """The gradient of a convolution by its weight. What groups its sums depends on the shapes alone."""
    spec = forward_spec(element, channels, windows)
    depth = channels.inputs * spec.kernel
    ranges = 1 if channels.groups >= 2 * CORES or spec.products < 1 << 20 else CORES
    step = -(-depth // ranges)
    panel = PANEL if channels.outputs <= 128 else PANEL // 2
    spec = spec._replace(gradient=True, panel=panel, row_step=max(-(-step // 8) * 8, 8))
    shape = _shape(spec, lane_bytes)
    tile = shape.cut(1, panel, GRADIENT_BYTES if channels.outputs <= FEW else 4 * GRADIENT_BYTES)
    while math.prod(tile) > panel and channels.outputs > FEW:
        tile = shape.split(tile, 1) or tile
    if shape.workspace(tile) > GRADIENT_MOST_BYTES:
        return spec
    return spec._replace(axes=_tiled(spec, tile), direct=True)


def with_tiles(spec: ConvSpec, lane_bytes: int, algorithm: str) -> ConvSpec:
    """The plan with its algorithm chosen, and tiles if that is direct."""
    if algorithm == "gemm":
        return spec
    shape = _shape(spec, lane_bytes)
    most = RUN_BYTES // lane_bytes // min(shape.rows, 8)
    limit = asked_tile_bytes() or CACHES["l2"] // 2
    choices = []
    for flat in range(1, len(shape.grid) + 1):
        tile = shape.cut(flat, most, limit)
        choices.append((shape.cost(tile, flat), flat, tile))
    cheapest, flat, tile = min(choices)
    if algorithm == "auto" and (shape.workspace(tile) > CACHES["l2"] or shape.gemm_cost(spec.roles) < cheapest):
        return spec
    if shape.workspace(tile) // lane_bytes > MOST_LANES:
        raise GeometryError(
            f"algorithm='direct' would take a copy of {shape.workspace(tile)} bytes of the input at a time; use 'auto'"
        )
    # enough work units for every core, of tiles or, where smaller ones would cost too much, of filters
    # many, so that cores which other work slows down do little harm, if that is cheap
    units = spec.groups * _tiles(shape, tile)
    least, many = (UNITS * CORES, MANY_UNITS * CORES) if spec.products >= 1 << 20 else (1, 1)
    while units < many:
        half = shape.split(tile, flat)
        if half is None or shape.cost(half, flat) > cheapest * (DEAR if units < least else CHEAP):
            break
        tile = half
        units = spec.groups * _tiles(shape, tile)
    parts = max(1, min(-(-least // units), spec.outputs // 8))
    axes = [a._replace(shared=n) for a, n in zip(_tiled(spec, tile), shape.sharing(tile), strict=True)]
    outputs = spec.groups * spec.outputs * sum(math.prod(role.counts) for role in spec.roles)
    stream = outputs * lane_bytes >= STREAM_BYTES and tile[-1] >= STREAM_ROW
    return spec._replace(axes=tuple(axes), direct=True, flat=flat, parts=parts, stream=stream)


def _tiled(spec: ConvSpec, tile: Sequence[int]) -> tuple[ConvAxis, ...]:
    return tuple(axis._replace(tile=n, tiles=-(-axis.tile // n)) for axis, n in zip(spec.axes, tile, strict=True))


def _tiles(shape: _Shape, tile: Sequence[int]) -> int:
    return math.prod(-(-n // t) for n, t in zip(shape.grid, tile, strict=True))
