"""The slow twins of unfolding windows into columns, of folding columns back, and of padding."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from ._geometry import (
    Geometry,
    is_integer,
    named_or_last_axes,
    padding_pairs,
    per_axis,
    pooling_geometry,
    sequence,
    shape_tuple,
)
from ._twins import Array, added_up, along_axes, as_array, python_numbers, source
from .errors import DtypeError, GeometryError

__all__ = ["fold", "pad", "unfold"]


# ---- windows as columns


def _places(geometry: Geometry) -> list[list[tuple[int, ...] | None]]:
    """The element under every tap of every window, by tap (row) and window (column); None on padding."""
    along = []  # by axis, window and tap
    for _, (length, kernel, s, d, before, _, out, crop) in along_axes(geometry):
        starts = [o * s - before for o in range(out)]
        along.append([[(source("zeros", i + j * d, length), crop) for j in range(kernel)] for i in starts])
    rows = []
    for taps in itertools.product(*(range(len(windows[0])) for windows in along)):
        row: list[tuple[int, ...] | None] = []
        for outputs in itertools.product(*(range(len(windows)) for windows in along)):
            found = [windows[o][j] for windows, o, j in zip(along, outputs, taps, strict=True)]
            inside = [crop + place for place, crop in found if place is not None]
            row.append(tuple(inside) if len(inside) == len(found) else None)
        rows.append(row)
    return rows


def _kernel(kernel_size: Any, count: int) -> list[Any]:
    """The kernel along every spatial axis; one number stands for all of them."""
    if is_integer(kernel_size):
        if count < 1:
            raise GeometryError(f"kernel_size={kernel_size!r} needs an array with a batch axis, channels and others")
        return [kernel_size] * count
    kernel = sequence("kernel_size", kernel_size, "an integer or a tuple with one entry per spatial axis")
    if not kernel:
        raise GeometryError("kernel_size is empty; give one entry per spatial axis")
    return kernel


def unfold(
    x: npt.ArrayLike, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, **options: Any
) -> Array:
    """Every window as a column: the slow twin of `fastpool.unfold`.

    Parameters
    ----------
    x, kernel_size, stride, padding, dilation
        As in `fastpool.unfold`.
    **options
        Accepted and ignored: they change how the result is computed, not the result.

    Returns
    -------
    ndarray
        One row for every channel and tap, one column for every window, both in C order; taps on padding are 0.

    Raises
    ------
    GeometryError
        If the windows are not possible.
    DtypeError
        If `x` is not taken.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.unfold([[1, 2, 3, 4]], (2,), padding=((1, 0),))
    array([[0, 1, 2, 3],
           [1, 2, 3, 4]])
    """
    array = as_array("x", x)
    kernel = _kernel(kernel_size, array.ndim - 2)
    if array.ndim not in (len(kernel) + 1, len(kernel) + 2):
        raise GeometryError(
            f"x has {array.ndim} dimensions; for kernel_size={tuple(kernel)} it must have one or two more"
        )
    strides = per_axis("stride", stride, len(kernel), 1)
    geometry = pooling_geometry(array.shape, kernel, strides, padding, dilation, False, None, padding_counts=True)
    rows = _places(geometry)
    leading = array.shape[: -len(kernel)]
    result = np.zeros((*leading, len(rows), len(rows[0])), array.dtype)
    for position in np.ndindex(*leading):
        for r, row in enumerate(rows):
            for column, place in enumerate(row):
                if place is not None:
                    result[(*position, r, column)] = array[position + place]
    return result.reshape(*leading[:-1], leading[-1] * len(rows), len(rows[0]))


def fold(
    columns: npt.ArrayLike,
    output_size: Any,
    kernel_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    **options: Any,
) -> Array:
    """Columns added up where their windows lie: the slow twin of `fastpool.fold`.

    Parameters
    ----------
    columns, output_size, kernel_size, stride, padding, dilation
        As in `fastpool.fold`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray
        For every element the sum of the taps that lie on it, rounded once; integers wrap around.

    Raises
    ------
    GeometryError
        If the windows are not possible, or `columns` has not the rows and columns that they make.
    DtypeError
        If `columns` does not hold numbers that add up.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.fold([[1, 2, 3], [10, 20, 30]], (4,), (2,))
    array([[ 1, 12, 23, 30]])
    """
    array = as_array("columns", columns)
    if array.dtype.kind == "b":
        raise DtypeError("columns is boolean, and booleans do not add up")
    sizes = shape_tuple("output_size", output_size)
    kernel = _kernel(kernel_size, len(sizes))
    if len(kernel) != len(sizes):
        raise GeometryError(f"kernel_size has {len(kernel)} entries, output_size {len(sizes)}")
    if array.ndim not in (2, 3):
        raise GeometryError(f"columns has {array.ndim} dimensions; it must have 3, or 2 without a batch axis")
    strides = per_axis("stride", stride, len(kernel), 1)
    geometry = pooling_geometry(sizes, kernel, strides, padding, dilation, False, None, padding_counts=True)
    rows = _places(geometry)
    *batch, channel_rows, windows = array.shape
    if channel_rows % len(rows):
        raise GeometryError(f"columns has {channel_rows} rows, which are not a multiple of {len(rows)} taps")
    if windows != len(rows[0]):
        raise GeometryError(f"columns has {windows} columns, but there are {len(rows[0])} windows")
    leading = (*batch, channel_rows // len(rows))
    terms = []
    numbers = iter(python_numbers(array.ravel()))
    for position in np.ndindex(*leading):
        for place in itertools.chain.from_iterable(rows):
            number = next(numbers)
            terms.append((None if place is None else position + place, number))
    return added_up(terms, (*leading, *sizes), array.dtype)


# ---- padding

PAD_MODES = ("constant", "zeros", "reflect", "replicate", "circular")


def pad(x: npt.ArrayLike, padding: Any, mode: str = "constant", value: Any = 0, *, axes: Any = None) -> Array:
    """Pad or crop: the slow twin of `fastpool.pad`.

    Parameters
    ----------
    x, padding, mode, value, axes
        As in `fastpool.pad`.

    Returns
    -------
    ndarray
        The array after cropping with `value`, or copies of its elements, around it.

    Raises
    ------
    GeometryError
        If the axes or the padding are not possible.
    DtypeError
        If `x` is not taken, or cannot hold `value`.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.pad([1, 2, 3, 4], ((2, -1),))
    array([0, 0, 1, 2, 3])
    >>> testing.pad([1, 2, 3, 4], 2, "reflect")
    array([3, 2, 1, 2, 3, 4, 3, 2])
    """
    array = as_array("x", x)
    if not isinstance(mode, str) or mode not in PAD_MODES:
        raise GeometryError(f"mode={mode!r} must be one of {', '.join(map(repr, PAD_MODES))}")
    if isinstance(padding, str):
        raise GeometryError(f"padding={padding!r} is a string; there are no windows that it could fit")
    if is_integer(padding) and axes is None:
        axes = tuple(range(array.ndim))
    if is_integer(padding) and axes == ():
        return array.copy()  # no axis to pad
    positions, entries = named_or_last_axes("padding", padding, axes, array.ndim)
    ones = (1,) * len(entries)
    pairs = dict(zip(positions, padding_pairs(entries, ones, ones, ones, ones), strict=True))
    copies = []  # by axis: the element that each place of the result is a copy of, None for `value`
    for axis, length in enumerate(array.shape):
        before, after = pairs.get(axis, (0, 0))
        crop = max(-before, 0)
        kept = length - crop - max(-after, 0)
        if kept < 0 or (kept == 0 and max(before, after) > 0 and mode not in ("constant", "zeros")):
            raise GeometryError(f"padding {(before, after)} of axis {axis} of length {length} leaves nothing to copy")
        around = "zeros" if mode == "constant" else mode
        places = [source(around, i, kept) for i in range(-max(before, 0), kept + max(after, 0))]
        copies.append([None if place is None else crop + place for place in places])
    result = np.full([len(along) for along in copies], _fitting(value if mode == "constant" else 0, array.dtype))
    for position in np.ndindex(*result.shape):
        place = [along[i] for along, i in zip(copies, position, strict=True)]
        if None not in place:
            result[position] = array[tuple(place)]
    return result


def _fitting(value: Any, dtype: np.dtype[Any]) -> Any:
    """A number as an element of a dtype, which must be able to hold it."""
    if dtype.kind in "biu":
        lowest, highest = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        try:
            number = int(value) if isinstance(value, (bool, np.bool_)) else operator.index(value)
        except TypeError:
            raise DtypeError(f"value={value!r} is not an integer, as {dtype} needs") from None
        if not lowest <= number <= highest:
            raise DtypeError(f"value {value!r} does not fit {dtype}")
        return dtype.type(number)
    try:
        return dtype.type(float(value))
    except (TypeError, ValueError):
        raise DtypeError(f"value={value!r} is not a number") from None
