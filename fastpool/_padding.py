"""Padding and cropping: values around an array, and gradients on their way back through them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import _guards
from ._geometry import check_size, is_integer, named_or_last_axes, padding_pairs
from .errors import DtypeError, GeometryError

__all__ = ["pad"]

Array = npt.NDArray[Any]
PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]
Pairs = Sequence[tuple[int, int]]

# what np.pad calls the modes that copy elements
_COPYING: dict[str, Literal["reflect", "edge", "wrap"]] = {
    "reflect": "reflect",
    "replicate": "edge",
    "circular": "wrap",
}


def check_mode(name: str, mode: Any, also: tuple[str, ...] = ()) -> None:
    """Refuse a mode that is unknown."""
    known = (*also, "zeros", *_COPYING)
    if not isinstance(mode, str) or mode not in known:
        raise GeometryError(f"{name}={mode!r} must be one of {', '.join(map(repr, known))}")


def padded(x: Array, pairs: Pairs, mode: str, value: Any = 0) -> Array:
    """The array, cropped where pairs are negative, then padded; `pairs` has one for every axis."""
    for axis, ((before, after), length) in enumerate(zip(pairs, x.shape, strict=True)):
        kept = length - max(-before, 0) - max(-after, 0)
        if kept < 0 or (kept == 0 and mode in _COPYING and max(before, after) > 0):
            raise GeometryError(
                f"padding {(before, after)} of axis {axis} of length {length} leaves "
                f"{'less than nothing' if kept < 0 else 'nothing to copy'}"
            )
    check_size("the padded array", [n + before + after for n, (before, after) in zip(x.shape, pairs, strict=True)])
    kept = x[_inner(pairs, x.shape, -1)]
    widths = [(max(before, 0), max(after, 0)) for before, after in pairs]
    if mode in _COPYING:
        result = np.pad(kept, widths, _COPYING[mode])
    else:
        result = np.pad(kept, widths, "constant", constant_values=value)
    return np.ascontiguousarray(result)


def _inner(pairs: Pairs, shape: tuple[int, ...], sign: int) -> tuple[slice, ...]:
    """What is left without the elements that `pairs` adds (sign 1) or crops (sign -1)."""
    return tuple(
        slice(max(sign * before, 0), n - max(sign * after, 0)) for (before, after), n in zip(pairs, shape, strict=True)
    )


def pad_backward(grad: Array, shape: tuple[int, ...], pairs: Pairs, mode: str) -> Array:
    """Gradient by an array of `shape` of what it is padded to: copies add to what they were copied from.

    Along every axis in turn an element has the sum of its copies in their order. Float16 and bfloat16 are added in
    float32 and rounded once.
    """
    dtype = grad.dtype
    if dtype.itemsize == 2 and dtype.kind not in "iu":
        grad = grad.astype(np.float32)
    with np.errstate(all="ignore"):  # as kernels add up
        for axis, ((before, after), length) in enumerate(zip(pairs, shape, strict=True)):
            if before or after:
                grad = _axis_backward(np.moveaxis(grad, axis, 0), length, before, after, mode, axis)
        return np.ascontiguousarray(grad, dtype)


def _axis_backward(grad: Array, length: int, before: int, after: int, mode: str, axis: int) -> Array:
    """`pad_backward` along the first axis of `grad`, which it moves back to `axis`."""
    crop, add, add_after = max(-before, 0), max(before, 0), max(after, 0)
    kept = length - crop - max(-after, 0)
    result = np.zeros((*grad.shape[1 : axis + 1], length, *grad.shape[axis + 1 :]), grad.dtype)
    target = np.moveaxis(result, axis, 0)[crop : crop + kept]
    if mode not in _COPYING:
        target += grad[add : add + kept]
        return result
    origin = np.pad(np.arange(kept), (add, add_after), _COPYING[mode])
    for place in range(add):
        target[origin[place]] += grad[place]
    target += grad[add : add + kept]
    for place in range(add + kept, len(origin)):
        target[origin[place]] += grad[place]
    return result


def _as_element(value: Any, dtype: np.dtype[Any]) -> Any:
    """A number as an element of `dtype`, which must be able to hold it."""
    if dtype.kind in "biu":
        lowest, highest = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        try:
            number = int(value) if isinstance(value, (bool, np.bool_)) else operator.index(value)
        except TypeError:
            raise DtypeError(f"value={value!r} is not an integer, as {dtype} needs") from None
        if not lowest <= number <= highest:
            raise DtypeError(f"value={value!r} does not fit {dtype}, which holds {lowest} to {highest}")
        return dtype.type(number)
    try:
        return dtype.type(float(value))
    except (TypeError, ValueError):
        raise DtypeError(f"value={value!r} is not a number") from None


def pad(
    x: npt.ArrayLike,
    padding: Any,
    mode: Literal["constant", "zeros", "reflect", "replicate", "circular"] = "constant",
    value: Any = 0,
    *,
    axes: Any = None,
) -> Array:
    """Pad an array, or crop it, along any of its axes.

    Parameters
    ----------
    x : array_like
        Of any shape; bool, integers, float16, float32, float64, or ml_dtypes' bfloat16.
    padding : int or tuple
        Elements to add at both ends of every axis, or for each of the last axes a number or a pair ``(before, after)``.
        Negative numbers crop, before anything is added.
    mode : {"constant", "zeros", "reflect", "replicate", "circular"}, optional
        What is added: `value`, zeros, the elements inside in reversed order without the edge, the edge, or those from
        the other end. They repeat as often as the padding needs.
    value : number, optional
        What ``"constant"`` adds; the dtype must hold it.
    axes : int or tuple of int, optional
        The axes that `padding` is for, in its order.

    Returns
    -------
    ndarray
        Of the dtype of `x`, C-contiguous, never a view of `x`.

    Raises
    ------
    GeometryError
        If `padding` does not fit the axes, crops more than there is, or leaves nothing that could be copied.
    DtypeError
        If the dtype of `x` is not taken, or cannot hold `value`.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.pad([1, 2, 3, 4], 2, "reflect")
    array([3, 2, 1, 2, 3, 4, 3, 2])
    >>> fp.pad(np.arange(6).reshape(2, 3), ((-1, 2),), value=9)
    array([[1, 2, 9, 9],
           [4, 5, 9, 9]])
    """
    array = _guards.as_array("x", x)
    _guards.check_dtype("x", array.dtype)
    check_mode("mode", mode, ("constant",))
    if isinstance(padding, str):
        raise GeometryError(f"padding={padding!r} is a string, but there are no windows that it could fit")
    native = array.dtype.newbyteorder("=")
    element = _as_element(value if mode == "constant" else 0, native)
    if is_integer(padding) and axes is None:
        axes = tuple(range(array.ndim))
    if is_integer(padding) and isinstance(axes, (tuple, list)) and len(axes) == 0:
        return np.array(array, native, order="C")
    positions, entries = named_or_last_axes("padding", padding, axes, array.ndim)
    ones = (1,) * len(entries)
    pairs = [(0, 0)] * array.ndim
    for axis, pair in zip(positions, padding_pairs(entries, ones, ones, ones, ones), strict=True):
        pairs[axis] = pair
    return padded(array.astype(native, copy=False), pairs, mode, element)
