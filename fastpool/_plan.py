"""Plans that can run, cached by what was asked, and choices that need no plan: chunks, slabs, what is worth threads."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _dispatch
from ._conv_spec import Channels, ConvSpec, ConvWindow, forward_spec, gradient_spec, transposed_spec, with_tiles
from ._geometry import Bounds, Geometry, Window, counted_taps, int64_of, is_plain, pooling_geometry
from ._spec import (
    ABSOLUTE,
    ABSOLUTE_POWER,
    CONV_LANE_BYTES,
    ELEMENTS,
    FLOAT,
    FLOAT32_TAPS,
    HALF,
    INTEGER,
    PLAIN,
    SIGNED_POWER,
    SQUARE,
    SUM_F32,
    SUM_F64,
    SUM_PAIR,
    SUM_S16,
    SUM_S32,
    SUM_S64,
    Divisors,
    ForwardSpec,
    Sums,
    maximum_spec,
    sum_spec,
)
from ._tiles import CACHES, CORES

SERIAL_ELEMENTS = 1 << 16  # calls that read and write fewer elements do not open a parallel region
GLOBAL_ROWS = 64  # rows that one window of a reduction over rows takes
GLOBAL_CHUNKS = 64  # parts that a reduction to few results is cut into
LONGEST_CHUNK = 1 << 24  # taps of one window of such a reduction
BLOCK = 2048  # indices whose range is known, in scattering


# ---------------------------------------------------------------------------------------------- maxima and minima


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
    spec = maximum_spec(geometry, kind, itemsize, _order_flip(dtype_kind, itemsize, half, minimum), indices)
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
    plain = type(ceil_mode) is bool and is_plain(arguments)
    key = (dtype, minimum, indices, input_shape, ceil_mode, arguments)
    found = _recent.get(key) if plain else None
    if found is not None:
        return found
    kernel_size, stride, padding, dilation, axes = arguments
    geometry = pooling_geometry(input_shape, kernel_size, stride, padding, dilation, ceil_mode, axes)
    plan = maximum_plan(geometry, dtype, minimum, indices)
    return _remembered(key, plan) if plain else plan


def maximum_plan(geometry: Geometry, dtype: np.dtype[Any], minimum: bool, indices: bool) -> PoolPlan:
    """The plan of a maximum (or minimum) over windows that are known already."""
    half = 0 if dtype.itemsize != 2 or dtype.kind in "iu" else 0x7C00 if dtype.kind == "f" else 0x7F80
    make = _pool_plan if is_worth_keeping(geometry) else _pool_plan.__wrapped__
    return make(geometry, dtype.kind, dtype.itemsize, half, minimum, indices)


def is_worth_keeping(geometry: Geometry) -> bool:
    """Whether a plan may be asked for again: not where windows were drawn at random for every outer index."""
    return not any(isinstance(w, Bounds) and len(w.starts) > len(w.counts) for w in geometry.windows)


# Plans by the arguments as given, so that a repeated call computes no geometry.
_recent: dict[Any, PoolPlan] = {}


def _remembered(key: Any, plan: PoolPlan) -> PoolPlan:
    if len(_recent) >= 512:
        _recent.clear()
    _recent[key] = plan
    return plan


def clear_cache() -> None:
    """Forget every plan, e.g. after FASTPOOL_TILE_BYTES was changed."""
    _recent.clear()
    _pool_plan.cache_clear()
    _sum_plan.cache_clear()
    conv_plan.cache_clear()


# ---------------------------------------------------------------------------------------------- sums and means

# What a sum is divided by: nothing, the taps in the input and its padding, the taps in the input, or a number.
Divide = Literal["no", "padded", "real"] | int


def _most_taps(geometry: Geometry) -> int:
    """The most taps that a window can have."""
    return math.prod(w.kernel if isinstance(w, Window) else max(int64_of(w.counts)) for w in geometry.windows)


def choose_sum_lane(stored: str, result: str, taps: int, divided: bool, power: float) -> int:
    """The lanes that hold sums of so many taps: exactly for integers, and wide enough for floats not to drift."""
    dtype = _BITS.get(stored)
    if power:
        return SUM_F64
    if dtype is None:
        wide = stored == "float64" or result == "float64" or taps > FLOAT32_TAPS
        return SUM_F64 if wide else SUM_F32
    bits, largest = dtype
    if bits == 64:
        return SUM_S64 if not divided and result in _BITS else SUM_PAIR
    if bits == 8 and taps * largest < 1 << 15:
        return SUM_S16
    return SUM_S32 if bits <= 16 and taps * largest < 1 << 31 else SUM_S64


# Bits of an integer, and its largest magnitude.
_BITS = {
    f"{sign}int{bits}": (bits, (1 << bits - (not sign)) - (sign == "u"))
    for bits in (8, 16, 32, 64)
    for sign in ("", "u")
}
_BITS["bool"] = _BITS["uint8"]


@lru_cache(maxsize=512)
def _sum_plan(
    geometry: Geometry,
    stored: str,
    stored_bytes: int,
    result: str,
    result_bytes: int,
    divide: Divide,
    power: float,
    signed: bool,
) -> PoolPlan:
    if 0 in geometry.output_shape:
        return PoolPlan(geometry, None, None, False)
    divisor = 1
    taps: Divisors = {}
    if isinstance(divide, int):
        divisor = divide
    elif divide != "no":
        for axis, window in zip(geometry.axes, geometry.windows, strict=True):
            counted = counted_taps(window, divide == "padded")
            if counted.lead or counted.trail:
                taps[axis] = counted
            else:
                divisor *= counted.middle
    lane = choose_sum_lane(stored, result, _most_taps(geometry), divide != "no", power)
    how = PLAIN
    if power:
        how = SIGNED_POWER if signed else ABSOLUTE_POWER
        if power == 2:
            how = SQUARE
        elif power == 1:
            how = PLAIN if signed else ABSOLUTE
    sums = Sums(ELEMENTS[stored], lane, ELEMENTS[result], float(divisor), power)
    spec = sum_spec(geometry, sums, stored_bytes, result_bytes, how, taps)
    compiled = _dispatch.pool_forward.ForwardPlan(spec)
    return PoolPlan(geometry, spec, compiled, max(spec.input_elements, spec.output_elements) >= SERIAL_ELEMENTS)


def sum_plan(
    geometry: Geometry,
    stored: np.dtype[Any],
    result: np.dtype[Any],
    divide: Divide = "no",
    power: float = 0.0,
    signed: bool = False,
) -> PoolPlan:
    """The plan of sums, divided as `divide` says, or of the root of a sum of powers."""
    make = _sum_plan if is_worth_keeping(geometry) else _sum_plan.__wrapped__
    return make(geometry, stored.name, stored.itemsize, result.name, result.itemsize, divide, power, signed)


def mean_plan(
    stored: np.dtype[Any],
    result: np.dtype[Any],
    divide: Divide,
    power: float,
    signed: bool,
    input_shape: tuple[int, ...],
    ceil_mode: Any,
    *arguments: Any,
) -> PoolPlan:
    """`sum_plan` by the geometry arguments of a call, from the cache where it was made before."""
    plain = type(ceil_mode) is bool and is_plain(arguments)
    key = (stored, result, divide, power, signed, input_shape, ceil_mode, arguments)
    found = _recent.get(key) if plain else None
    if found is not None:
        return found
    kernel_size, stride, padding, dilation, axes = arguments
    geometry = pooling_geometry(
        input_shape, kernel_size, stride, padding, dilation, ceil_mode, axes, padding_counts=divide != "real"
    )
    plan = sum_plan(geometry, stored, result, divide, power, signed)
    return _remembered(key, plan) if plain else plan


# ---------------------------------------------------------------------------------------------- convolution

SERIAL_PRODUCTS = 1 << 20  # convolutions of fewer multiplications do not open a parallel region


class ConvPlan(NamedTuple):
    """A plan of a convolution that can run."""

    spec: ConvSpec
    compiled: _dispatch.conv.ConvPlan
    parallel: bool


@lru_cache(maxsize=512)
def conv_plan(
    role: Literal["conv", "transpose", "weight"],
    dtype: np.dtype[Any],
    channels: Channels,
    windows: tuple[ConvWindow, ...],
    algorithm: str,
) -> ConvPlan | None:
    """The plan of a convolution, of its transpose, or of its gradient by the weight; its arrays are not empty.

    None for a transpose whose taps all lie outside the result.
    """
    element = ELEMENTS[dtype.name]
    lane_bytes = CONV_LANE_BYTES[element]
    if role == "weight":
        spec = gradient_spec(element, channels, windows, lane_bytes)
    else:
        spec = (forward_spec if role == "conv" else transposed_spec)(element, channels, windows)
        if not spec.roles:
            return None
        spec = with_tiles(spec, lane_bytes, algorithm)
    return ConvPlan(spec, _dispatch.conv.ConvPlan(spec), spec.products >= SERIAL_PRODUCTS)


# ---------------------------------------------------------------------------------------------- whole axes, scattering


def global_chunk(shape: tuple[int, ...], axes: tuple[int, ...]) -> int | None:
    """Length of the chunks that the outermost reduced axis is cut into, None where it stays whole.

    Cut where few results would leave cores idle, and where the rows of one window would not stay in the cache.
    """
    length = shape[axes[0]]
    if math.prod(shape[axes[-1] + 1 :]) > 1:
        return GLOBAL_ROWS if length > 4 * GLOBAL_ROWS else None
    results = math.prod(n for axis, n in enumerate(shape) if axis not in axes)
    chunks = GLOBAL_CHUNKS if results < 4 * CORES and math.prod(shape) >= 8 * SERIAL_ELEMENTS else 1
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
    slab = max(1024, min(CACHES["l2"] // 4 // itemsize, -(-size // (4 * CORES))))
    if len(low):
        slab = max(slab, min(4 * int(np.median(high - low)), -(-size // threads)))
    begin = np.arange(-(-size // slab), dtype=np.int64) * slab
    first = np.searchsorted(np.maximum.accumulate(high), begin, "left")
    last = np.searchsorted(np.minimum.accumulate(low[::-1])[::-1], begin + slab, "left")
    return Slabs(slab, first, last)


def scatters_in_parallel(sources: int, size: int) -> bool:
    """Whether scattering is worth a parallel region."""
    return sources + size >= SERIAL_ELEMENTS
