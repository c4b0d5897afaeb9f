"""Arrays that break pooling code: awkward values in every dtype, and the same values in awkward memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
DTYPES: tuple[Any, ...] = ("bool", *INTEGERS, *FLOATS)

try:
    import ml_dtypes
except ImportError:
    BFLOAT16 = None
else:
    BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
    DTYPES = (*DTYPES, BFLOAT16)

FLOAT_DTYPES = tuple(dtype for dtype in DTYPES if dtype in FLOATS or dtype == BFLOAT16)
NUMERIC_DTYPES = tuple(dtype for dtype in DTYPES if dtype != "bool")


def raw(array: np.ndarray) -> np.ndarray:
    """The bits of an array as unsigned integers, so that NaN payloads and zero signs count."""
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    return array.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[array.dtype.itemsize])


def assert_same_bits(found: Any, expected: Any) -> None:
    """Same shape, same native dtype, same bits; tuples of arrays entry by entry."""
    if isinstance(expected, tuple):
        assert isinstance(found, tuple)
        assert type(found).__name__ == type(expected).__name__
        assert found._fields == expected._fields
        for one, other in zip(found, expected, strict=True):
            assert_same_bits(one, other)
        return
    assert isinstance(found, np.ndarray)
    assert found.dtype == expected.dtype
    assert found.dtype.isnative
    assert found.shape == expected.shape
    np.testing.assert_array_equal(raw(found), raw(expected))


def canonical_nan(array: np.ndarray) -> np.ndarray:
    """Sums of NaNs keep no particular payload: give every NaN the same one."""
    if is_float(array.dtype):
        array = array.copy()
        array[np.isnan(array)] = np.nan
    return array


def is_float(dtype: Any) -> bool:
    dtype = np.dtype(dtype)
    return dtype.kind == "f" or dtype == BFLOAT16


def extremes(dtype: Any) -> np.ndarray:
    """Lowest and highest numbers of a dtype, and neighbours that a conversion would make equal."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    if is_float(dtype):
        finfo = np.finfo(dtype) if dtype.kind == "f" else ml_dtypes.finfo(dtype)
        tiny = finfo.smallest_subnormal
        numbers = [-np.inf, finfo.min, -1, -tiny, -0.0, 0.0, tiny, finfo.tiny, 1, finfo.max, np.inf]
        return np.array([float(number) for number in numbers]).astype(dtype)
    info = np.iinfo(dtype)
    numbers = [info.min, info.min + 1, 0, 1, info.max - 1, info.max]
    numbers += [n for n in (2**24, 2**24 + 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63) if n <= info.max]
    return np.array(sorted(numbers), dtype)


def nans(dtype: Any) -> np.ndarray:
    """Quiet NaNs of a float dtype with several payloads and both signs."""
    bits = np.dtype(dtype).itemsize * 8
    quiet = {"float16": 0x7E00, "bfloat16": 0x7FC0, "float32": 0x7FC00000, "float64": 0x7FF8000000000000}[
        np.dtype(dtype).name
    ]
    patterns = [quiet, quiet | 1, quiet | 5, quiet | (1 << (bits - 1)), quiet | 3 | (1 << (bits - 1))]
    return np.array(patterns, f"uint{bits}").view(dtype)


def lowest(dtype: Any) -> Any:
    return extremes(dtype)[0]


KINDS = (
    "random",
    "ties",
    "extremes",
    "lowest",
    "highest",
    "signed_zeros",
    "some_nan",
    "many_nan",
    "all_nan",
    "lowest_but_one",
)


def fill(kind: str, dtype: Any, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """An array of one of `KINDS`; kinds that a dtype does not have fall back on one that it has."""
    dtype = np.dtype(dtype)
    if not is_float(dtype) and kind in ("signed_zeros", "some_nan", "many_nan", "all_nan"):
        kind = "ties"
    edge = extremes(dtype)
    if kind == "random":
        if is_float(dtype):
            return rng.standard_normal(shape).astype(dtype)
        if dtype.kind == "b":
            return rng.integers(0, 2, shape).astype(bool)
        return rng.integers(edge.min(), edge.max(), shape, dtype=dtype, endpoint=True)
    if kind == "ties":
        return rng.integers(0, 3, shape).astype(dtype)
    if kind == "extremes":
        return rng.choice(edge, shape)
    if kind == "lowest":
        return np.full(shape, edge.min(), dtype)
    if kind == "highest":
        return np.full(shape, edge.max(), dtype)
    if kind == "signed_zeros":
        return rng.choice(np.array([0.0, -0.0]).astype(dtype), shape)
    if kind == "lowest_but_one":
        array = np.full(shape, edge.min(), dtype)
        if array.size:
            array.flat[int(rng.integers(array.size))] = edge.max()
        return array
    share = {"some_nan": 0.05, "many_nan": 0.5, "all_nan": 1.0}[kind]
    array = fill("random" if rng.random() < 0.5 else "extremes", dtype, shape, rng)
    return np.where(rng.random(shape) < share, rng.choice(nans(dtype), shape), array)


def dirty(like: np.ndarray) -> np.ndarray:
    """An output array that holds the worst that a buffer may hold from its last use."""
    out = np.empty(like.shape, like.dtype)
    out.view(np.uint8)[...] = 0xFF if out.size and np.random.default_rng(out.size).random() < 0.5 else 0x63
    return out


def tame(array: np.ndarray) -> np.ndarray:
    """The array with its largest numbers made so small that no sum of 4096 of them reaches infinity."""
    if not is_float(array.dtype):
        return array
    finite = np.where(np.isfinite(array), array, array.dtype.type(0))
    share = array.dtype.type(1 / 4096)
    large = np.abs(finite) > extremes(array.dtype)[-2] * share
    return np.where(large, finite * share, array)


def assert_within_ulps(found: Any, exact: Any, magnitude: Any, ulps: float = 4) -> None:
    """`found` is `exact` within some ulp of what the magnitudes of the terms add up to; no NaN or infinity differs."""
    assert isinstance(found, np.ndarray)
    assert found.dtype == exact.dtype
    assert found.shape == exact.shape
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    rest = np.isfinite(exact)
    infinite = np.isinf(exact)
    np.testing.assert_array_equal(found[infinite], exact[infinite])
    half = float(extremes(found.dtype)[-2]) / 2  # the largest number has no neighbour to be away from
    scale = np.minimum(np.abs(np.asarray(magnitude, np.float64)[rest]), half)
    ulp = np.spacing(scale.astype(found.dtype)).astype(np.float64)
    error = np.abs(found[rest].astype(np.float64) - exact[rest].astype(np.float64)) / ulp
    assert not error.size or error.max() <= ulps, f"{error.max()} ulp"


class Subclass(np.ndarray):
    """A subclass that keeps its type in every NumPy operation."""


def layouts(array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The values of a C-contiguous array in every kind of memory that NumPy can describe."""
    yield "fortran", np.asfortranarray(array)
    yield "transposed", np.ascontiguousarray(array.T).T
    yield "reversed", np.ascontiguousarray(array[::-1])[::-1] if array.ndim else array
    flip = tuple(slice(None, None, -1) for _ in array.shape)
    yield "all reversed", np.ascontiguousarray(array[flip])[flip]
    if array.ndim:
        wide = np.zeros([2 * n + 3 for n in array.shape], array.dtype)
        sliced = wide[tuple(slice(1, 1 + 2 * n, 2) for n in array.shape)]
        sliced[...] = array
        yield "sliced", sliced
        rolled = np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 0, -1)), -1, 0)
        yield "axis moved", rolled
    read_only = array.copy()
    read_only.flags.writeable = False
    yield "read-only", read_only
    if array.dtype.kind != "V" and array.dtype.itemsize > 1:
        yield "byte-swapped", array.astype(array.dtype.newbyteorder("S"))
    buffer = np.zeros(array.nbytes + 1, np.uint8)
    unaligned = buffer[1:].view(array.dtype).reshape(array.shape)
    unaligned[...] = array
    yield "unaligned", unaligned
    if array.dtype.itemsize > 1:
        record = np.zeros(array.shape, [("tag", np.uint8), ("value", array.dtype)])
        record["value"] = array
        yield "field of a record", record["value"]
    yield "subclass", array.view(Subclass)
    if array.size and array.dtype.kind != "V":
        with tempfile.TemporaryFile() as file:
            file.write(array.tobytes())
            file.flush()
            yield "memmap", np.memmap(file, array.dtype, "r", shape=array.shape)
    if array.ndim and array.shape[0]:
        yield "broadcast", np.broadcast_to(array[:1], array.shape)
        yield "constant", np.broadcast_to(array[(slice(0, 1),) * array.ndim], array.shape)
