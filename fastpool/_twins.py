"""What every slow twin needs: windows as plain lists of elements, exact arithmetic, and arguments."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._geometry import Geometry, Window
from .errors import DtypeError, GeometryError, IndexOutOfBoundsError

Array = npt.NDArray[Any]
Position = tuple[int, ...]


# ---- windows


class Windows(NamedTuple):
    """Windows as lists: `taps[axis][o]` are the elements of window ``o`` along an axis.

    Along an axis that is not pooled every element is a window of its own.
    """

    input_shape: tuple[int, ...]
    taps: tuple[Sequence[range], ...]

    @classmethod
    def of(cls, input_shape: tuple[int, ...], pooled: Mapping[int, Sequence[range]]) -> Windows:
        """The windows along the pooled axes, by axis."""
        single = [[range(i, i + 1) for i in range(length)] for length in input_shape]
        return cls(input_shape, tuple(pooled.get(axis, windows) for axis, windows in enumerate(single)))

    @classmethod
    def strided(cls, geometry: Geometry) -> Windows:
        """The real taps of windows that lie at equal distances; taps on padding are left out."""
        pooled = {}
        for axis, window in along_axes(geometry):
            inside = [lattice(window, o, 0, window.length) for o in range(window.out)]
            pooled[axis] = [range(window.crop + r.start, window.crop + r.stop, r.step) for r in inside]
        return cls.of(geometry.input_shape, pooled)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """One output per window."""
        return tuple(len(windows) for windows in self.taps)

    def at(self, position: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Positions in the input of the taps of one window, in C order."""
        return itertools.product(*(windows[o] for windows, o in zip(self.taps, position, strict=True)))


def along_axes(geometry: Geometry) -> list[tuple[int, Window]]:
    """Every pooled axis and its windows, which lie at equal distances."""
    pairs = zip(geometry.axes, geometry.windows, strict=True)
    return [(axis, window) for axis, window in pairs if isinstance(window, Window)]


def lattice(window: Window, o: int, low: int, high: int) -> range:
    """The taps of window `o` along an axis that lie in ``[low, high)``."""
    # The lattice of the window starts here, perhaps left of the input, and is never moved.
    start = o * window.stride - window.before
    before_low = max(0, -((start - low) // window.dilation))
    stop = min(start + window.kernel * window.dilation, high)
    return range(start + before_low * window.dilation, stop, window.dilation)


def flat_index(position: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Place of an element in the C-order raveled array."""
    index = 0
    for place, length in zip(position, shape, strict=True):
        index = index * length + place
    return index


def source(mode: str, place: int, length: int) -> int | None:
    """The element of an axis whose copy stands at a place, which may lie outside; None stands for a zero."""
    if mode == "zeros":
        return place if 0 <= place < length else None
    if mode == "replicate":
        return min(max(place, 0), length - 1)
    if mode == "circular":
        return place % length
    if length == 1:
        return 0
    # "reflect" goes to and fro without repeating the ends: 0 1 2 3 2 1, 0 1 2 3 ...
    place %= 2 * (length - 1)
    return min(place, 2 * (length - 1) - place)


# ---- exact sums


def exact_sum(terms: Iterable[float | Fraction]) -> float | Fraction:
    """The sum without any rounding; NaN and infinities as floats add them."""
    terms = list(terms)
    special = [term for term in terms if isinstance(term, float) and not math.isfinite(term)]
    if special:
        return sum(special)  # a finite term changes none of them; inf - inf is NaN
    # Every float is a fraction: over the common denominator they are integers, which Python adds exactly.
    ratios = [term.as_integer_ratio() for term in terms]
    common = math.lcm(*(denominator for _, denominator in ratios))
    return Fraction(sum(numerator * (common // denominator) for numerator, denominator in ratios), common)


def round_to(value: float | Fraction, dtype: np.dtype[Any]) -> Any:
    """The nearest number of a dtype, the even one of two; integers that do not fit wrap around."""
    if dtype.kind in "iu":
        return np.array(round(value) % 2 ** (8 * dtype.itemsize), np.uint64).astype(dtype)
    if not isinstance(value, Fraction):
        return dtype.type(value)
    digits, lowest = {"float16": (11, -24), "bfloat16": (8, -133), "float32": (24, -149), "float64": (53, -1074)}[
        dtype.name
    ]
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    if abs(value) < Fraction(2) ** exponent:
        exponent -= 1  # now 2**exponent <= abs(value) < 2**(exponent + 1)
    unit = Fraction(2) ** max(exponent + 1 - digits, lowest)  # distance of the floats around the value
    nearest = round(value / unit) * unit
    if abs(nearest) >= 2**1024:
        return dtype.type(math.inf if nearest > 0 else -math.inf)
    with np.errstate(over="ignore"):
        return np.float64(nearest).astype(dtype)


def exact_numbers(array: Array) -> dict[Position | None, Any]:
    """The elements by position, so that the product of two of them is exact; at None stands the zero of the padding.

    Products of float32 and of smaller floats are exact in Python's floats, which have twice the digits; float64
    becomes fractions (but for NaN and infinity). Python's integers are exact anyway.
    """
    numbers = python_numbers(array.ravel())
    if array.dtype == np.float64:
        numbers = [Fraction(number) if math.isfinite(number) else number for number in numbers]
    return {None: 0, **dict(zip(np.ndindex(*array.shape), numbers, strict=True))}


def added_up(terms: Iterable[tuple[Position | None, Any]], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array of sums: every term is added to the element at its position, exactly, and each sum is rounded once."""
    given: dict[Position, list[Any]] = {}
    for position, term in terms:
        if position is not None:
            given.setdefault(position, []).append(term)
    result = np.zeros(shape, dtype)
    for position, own in given.items():
        result[position] = round_to(exact_sum(own), dtype)
    return result


# ---- arguments and results


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Whether numbers of a dtype have a fraction: bfloat16 is not of kind "f"."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


def as_array(name: str, value: Any) -> Array:
    """An array in native byte order of a dtype that pooling takes."""
    array = np.asarray(value)
    known = array.dtype.kind in "biu" or (is_floating(array.dtype) and array.dtype.itemsize <= 8)
    if not known or isinstance(value, np.ma.MaskedArray):
        raise DtypeError(f"{name} is {type(value).__name__} of dtype {array.dtype}, which is not taken")
    return array.astype(array.dtype.newbyteorder("="))


def as_indices(indices: Any, shape: tuple[int, ...] | None, partner: str, size: int) -> npt.NDArray[np.int64]:
    """Indices in int64, each of them inside an array of `size` elements."""
    array = np.asarray(indices)
    if array.dtype.kind != "i" or array.dtype.itemsize < 4:
        raise DtypeError(f"indices have dtype {array.dtype}; only int64 and int32 are indices")
    if shape is not None and array.shape != shape:
        raise GeometryError(f"indices have shape {array.shape}, {partner} has {shape}")
    for position in np.ndindex(*array.shape):
        if not 0 <= array[position] < size:
            raise IndexOutOfBoundsError(f"indices{list(position)} is {array[position]}; there are {size} elements")
    return array.astype(np.int64)


def written(result: Array, out: Any) -> Array:
    """The result itself, or `out` filled with it."""
    if out is None:
        return result
    out[...] = result
    return np.asarray(out)


def python_numbers(flat: Array) -> list[Any]:
    """Python integers, which are exact at any width, or Python floats, which hold every smaller float."""
    numbers: list[Any] = (flat if flat.dtype.kind in "biu" else flat.astype(np.float64)).tolist()
    return numbers


def check_shape(name: str, array: Array, shape: tuple[int, ...]) -> None:
    """Refuse an array that has not the shape of the results."""
    if array.shape != shape:
        raise GeometryError(f"{name} has shape {array.shape}, the results have {shape}")


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False."""
    if type(value).__name__ not in ("bool", "bool_", "int") or value not in (0, 1):
        raise GeometryError(f"{name} must be True or False, got {value!r}")
