"""Arrays: what is taken, how it is laid out, what may be written to. Owns every error text about arrays."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import (
    ContiguityError,
    ContiguityWarning,
    DtypeError,
    GeometryError,
    IndexOutOfBoundsError,
    NonFiniteError,
    NonFiniteWarning,
)
from .options import Settings

Array = npt.NDArray[Any]

_BYTES = np.dtype(np.uint8)
_INT64 = np.dtype(np.int64)
_TAKEN = "bool, integers, float16, float32, float64, or ml_dtypes' bfloat16"


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Whether the dtype is ml_dtypes' bfloat16, without importing ml_dtypes."""
    return dtype.itemsize == 2 and dtype.name == "bfloat16"


def check_dtype(name: str, dtype: np.dtype[Any]) -> None:
    """Refuse dtypes that have no order or no kernel."""
    if (
        dtype.kind in "biu" or (dtype.kind == "f" and dtype.itemsize <= 8) or is_bfloat16(dtype)
    ) and not dtype.hasobject:
        return
    raise DtypeError(f"{name} has dtype {dtype}, which is not taken; use {_TAKEN}")


def as_array(name: str, value: Any) -> Array:
    """`value` as a base-class ndarray: anything with ``__array__``, the buffer protocol or DLPack, or nested lists."""
    if isinstance(value, np.ma.MaskedArray):
        raise DtypeError(f"{name} is a masked array; fill or compress it first: its mask would be ignored")
    if isinstance(value, np.ndarray):
        return value if type(value) is np.ndarray else value.view(np.ndarray)
    try:
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            return np.from_dlpack(value)
        array = np.asarray(value)
    except Exception as error:
        raise DtypeError(f"{name} of type {type(value).__name__} cannot be made a NumPy array: {error}") from error
    return array if type(array) is np.ndarray else array.view(np.ndarray)


def as_input(name: str, value: Any, settings: Settings) -> Array:
    """An input as a C-contiguous, aligned, native ndarray; copies as the contiguity guard allows."""
    array = given = value if type(value) is np.ndarray else as_array(name, value)
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned and array.dtype.isnative and array.dtype.char in _FAST_CHARS):
        check_dtype(name, array.dtype)
        if not flags.c_contiguous:
            _mind_the_layout(name, array, settings.contiguity)
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=None if flags.aligned else True)
    if settings.check_finite != "ignore":
        _mind_the_values(name, array, settings.check_finite)
    if settings.debug_mode:
        _record(name, value, given, array, settings)
    return array


def _record(name: str, value: Any, given: Array, array: Array, settings: Settings) -> None:
    """Record an input: `value` became the array `given`, and that `array`."""
    # of an object with __array__ the array is that object's affair; of a list it was made here
    made = given.flags.owndata and not hasattr(value, "__array__")
    copied = array is not given and not np.may_share_memory(array, given)
    checked = array.size if settings.check_finite != "ignore" and array.dtype.kind not in "biu" else 0
    bytes_ = (given.nbytes if made else 0) + (array.nbytes if copied else 0) + checked
    settings.record.input(name, array, made or copied, bytes_)


_FAST_CHARS = "?bBhHiIlLqQefd"


def _mind_the_layout(name: str, array: Array, contiguity: str) -> None:
    if contiguity == "copy":
        return
    message = (
        f"{name} of shape {array.shape} and strides {array.strides} is not C-contiguous; "
        f"{'copying' if contiguity == 'warn' else 'a copy would take'} {array.nbytes} bytes"
    )
    if contiguity == "require":
        raise ContiguityError(f"{message}; pass np.ascontiguousarray({name}), or contiguity='copy'")
    warnings.warn(message, ContiguityWarning, stacklevel=_level_of_the_caller())


def _level_of_the_caller() -> int:
    """The `stacklevel` that makes a warning point at the first frame outside the package."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        level, frame = level + 1, frame.f_back
    return level


def _mind_the_values(name: str, array: Array, check_finite: str) -> None:
    if array.dtype.kind in "biu":
        return
    finite = np.isfinite(array)
    if finite.all():
        return
    bad = ~finite
    position = np.unravel_index(int(bad.argmax()), array.shape)
    where = tuple(int(i) for i in position)
    message = f"{name} holds {array[where]} at {where}, the first of {int(bad.sum())} values that are not finite"
    if check_finite == "raise":
        raise NonFiniteError(message)
    warnings.warn(message, NonFiniteWarning, stacklevel=_level_of_the_caller())


def check_out(name: str, out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], inputs: tuple[Any, ...]) -> Array:
    """`out` if a kernel can write there; nothing is written before."""
    if not isinstance(out, np.ndarray) or isinstance(out, (np.ma.MaskedArray, np.matrix)):
        raise DtypeError(f"{name} must be a NumPy array, got {type(out).__name__}")
    if out.dtype != dtype or not out.dtype.isnative:
        raise DtypeError(f"{name} has dtype {out.dtype}, the result has {dtype}")
    if out.shape != shape:
        raise GeometryError(f"{name} has shape {out.shape}, the result has {shape}")
    if not out.flags.c_contiguous or not out.flags.aligned:
        raise ContiguityError(f"{name} of shape {out.shape} and strides {out.strides} must be C-contiguous and aligned")
    if not out.flags.writeable:
        raise ContiguityError(f"{name} is read-only")
    for other in inputs:
        if isinstance(other, np.ndarray) and overlap(out, other):
            raise ContiguityError(f"{name} overlaps an input or another output; give it memory of its own")
    return out


def overlap(a: Array, b: Array) -> bool:
    """Whether two arrays share an element; where that is too hard to tell, whether their bounds do."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=100_000)  # type: ignore[arg-type]  # the stub knows only 0 and -1
    except np.exceptions.TooHardError:
        return True


def as_bytes(array: Array) -> npt.NDArray[np.uint8]:
    """A flat byte view of a C-contiguous array: what the forward kernels take."""
    return array.reshape(-1).view(_BYTES)


def as_indices(name: str, value: Any, settings: Settings) -> npt.NDArray[np.int64]:
    """Flat indices as C-contiguous int64; int32 is converted, anything else refused."""
    given = as_array(name, value)
    if given.dtype.kind != "i" or given.dtype.itemsize not in (4, 8):
        raise DtypeError(f"{name} has dtype {given.dtype}; flat indices are int64 (int32 is converted)")
    if not given.flags.c_contiguous:
        _mind_the_layout(name, given, settings.contiguity)
    indices = np.require(given, _INT64, ("C", "A"))
    if settings.debug_mode:
        _record(name, value, given, indices, settings)
    return indices


def refuse_indices(name: str, indices: npt.NDArray[np.int64], size: int) -> None:
    """Raise for the first index that lies outside an array of `size` elements."""
    flat = int(((indices < 0) | (indices >= size)).argmax())
    position = tuple(int(i) for i in np.unravel_index(flat, indices.shape))
    raise IndexOutOfBoundsError(
        f"{name}{list(position)} is {indices[position]}, but the array it points into has {size} elements"
    )


def check_shape(name: str, array: Array, shape: tuple[int, ...], what: str) -> None:
    """Refuse an array that has not the shape of what it belongs to."""
    if array.shape == shape:
        return
    if array.ndim != len(shape):
        raise GeometryError(f"{name} has {array.ndim} dimensions {array.shape}, {what} have {len(shape)} {shape}")
    axis = next(i for i, (m, n) in enumerate(zip(array.shape, shape, strict=True)) if m != n)
    raise GeometryError(
        f"{name} of shape {array.shape} has {array.shape[axis]} elements on axis {axis}, {what} have {shape[axis]}"
    )


def check_same_shape(first: str, a: Array, second: str, b: Array) -> None:
    """Refuse arrays that must agree on every axis and do not."""
    if a.shape == b.shape:
        return
    if a.ndim != b.ndim:
        raise GeometryError(
            f"{first} has {a.ndim} dimensions {a.shape}, {second} has {b.ndim} {b.shape}; they must agree"
        )
    axis = next(i for i, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)) if m != n)
    raise GeometryError(
        f"{first} of shape {a.shape} and {second} of shape {b.shape} disagree on axis {axis}: "
        f"{a.shape[axis]} and {b.shape[axis]}"
    )
