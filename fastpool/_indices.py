"""The names that other libraries give to the position of a maximum, and the way between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ._geometry import integer, shape_tuple
from .errors import DtypeError, GeometryError, IndexOutOfBoundsError

__all__ = ["convert_indices"]

_CHANNELS_LAST = ("tensorflow", "tensorflow_batch")
_NUMBERINGS = ("flat", "plane", "onnx_column_major", *_CHANNELS_LAST)


def convert_indices(
    indices: npt.ArrayLike,
    input_shape: Any,
    spatial_ndim: int,
    *,
    to: str = "flat",
    frm: str = "flat",
    channels_last: bool | None = None,
) -> npt.NDArray[np.int64]:
    """Rename the positions of maxima between fastpool and other libraries.

    Every numbering counts elements of the same input, but along other axes or in another order of them:

    ===================== ======================================================= ========================
    name                  an element at batch b, channel c, position (y, x) is    used by
    ===================== ======================================================= ========================
    ``flat``              its place in ``x.ravel()``                              fastpool; ONNX MaxPool
    ``plane``             ``y*W + x``                                             PyTorch
    ``onnx_column_major`` ``(b*C + c)*H*W + x*H + y``                             ONNX, ``storage_order=1``
    ``tensorflow``        ``(y*W + x)*C + c``                                     TensorFlow
    ``tensorflow_batch``  ``((b*H + y)*W + x)*C + c``                             TensorFlow with
                                                                                  ``include_batch_in_index``
    ===================== ======================================================= ========================

    and so on for any number of spatial axes. ``flat`` follows the layout of the input itself.

    Parameters
    ----------
    indices : array_like of int64 or int32
        The indices, in the shape of the pooled output. ``plane`` leaves the batch and the channel to
        the place where an index stands, and ``tensorflow`` the batch: to convert from these, the
        axes of `indices` that are not counted must be those of `input_shape`.
    input_shape : tuple of int
        Shape of the array that was pooled: ``(*batch, channels, *spatial)``, or
        ``(*batch, *spatial, channels)`` if the channels are last. There may be any number of batch axes;
        a channel axis is needed by the TensorFlow names alone.
    spatial_ndim : int
        The number of spatial axes.
    to, frm : str, default "flat"
        Numbering of the result, and of `indices`.
    channels_last : bool, optional
        Whether `input_shape` has its channels last. By default it has if `to` or `frm` is a TensorFlow
        name, since TensorFlow pools arrays of that layout.

    Returns
    -------
    ndarray of int64
        A new array in the shape of `indices`.

    Raises
    ------
    DtypeError
        If `indices` are not int64 or int32.
    IndexOutOfBoundsError
        If an index does not exist in the numbering `frm`.
    GeometryError
        For a name that is not known, or shapes that do not fit.

    Examples
    --------
    The last element of two planes of 2 x 3 elements, as PyTorch counts it and back:

    >>> import numpy as np
    >>> import fastpool as fp
    >>> flat = np.array([[[5]], [[11]]])
    >>> plane = fp.convert_indices(flat, (2, 2, 3), 2, to="plane")
    >>> plane.tolist()
    [[[5]], [[5]]]
    >>> fp.convert_indices(plane, (2, 2, 3), 2, frm="plane").tolist()
    [[[5]], [[11]]]
    """
    for name, value in (("to", to), ("frm", frm)):
        if not isinstance(value, str) or value not in _NUMBERINGS:
            known = ", ".join(map(repr, _NUMBERINGS))
            raise GeometryError(f"{name}={value!r} is not a numbering; use one of {known}")
    shape = shape_tuple("input_shape", input_shape)
    spatial = integer("spatial_ndim", spatial_ndim)
    uses_channels = to in _CHANNELS_LAST or frm in _CHANNELS_LAST
    if channels_last is None:
        channels_last = uses_channels
    needed = spatial + (1 if uses_channels or channels_last else 0)
    if spatial < 1 or needed > len(shape):
        raise GeometryError(
            f"spatial_ndim is {spatial}; it must be at least 1, and input_shape {shape} have as many axes"
            + (" and one for the channels" if needed > spatial else "")
        )
    given = np.asarray(indices)
    if given.dtype.newbyteorder("=") not in (np.dtype(np.int64), np.dtype(np.int32)):
        raise DtypeError(f"indices have dtype {given.dtype}; only int64 and int32 are indices")

    counted = _axes_counted(frm, len(shape), spatial, channels_last)
    number = given.astype(np.int64, order="C")
    _check_range(number, _count(shape, counted), frm)
    for axis in range(len(shape)):
        if axis not in counted and (number.ndim != len(shape) or number.shape[axis] != shape[axis]):
            raise GeometryError(
                f'"{frm}" does not count axis {axis} of the input, so indices must have {len(shape)} axes, '
                f"with length {shape[axis]} there; they have shape {number.shape}"
            )

    # The position of every index along the axes of the input: digits of its number, or where it stands.
    places: dict[int, npt.NDArray[np.int64]] = {}
    for axis in reversed(counted):
        number, places[axis] = np.divmod(number, max(shape[axis], 1))
    for axis in set(range(len(shape))).difference(counted):
        along = [1] * len(shape)
        along[axis] = shape[axis]
        places[axis] = np.arange(shape[axis], dtype=np.int64).reshape(along)
    result = np.zeros(given.shape, np.int64)
    for axis in _axes_counted(to, len(shape), spatial, channels_last):
        result *= shape[axis]
        result += places[axis]
    return result


def _axes_counted(numbering: str, ndim: int, spatial_ndim: int, channels_last: bool) -> tuple[int, ...]:
    """The axes that a numbering runs over, slowest first."""
    end = ndim - 1 if channels_last else ndim
    spatial = tuple(range(end - spatial_ndim, end))
    if numbering == "flat":
        return tuple(range(ndim))
    if numbering == "plane":
        return spatial
    # Without channels a numbering that needs none has only batch axes.
    channel = (ndim - 1,) if channels_last else (spatial[0] - 1,) if spatial[0] > 0 else ()
    batch = tuple(axis for axis in range(ndim) if axis not in spatial and axis not in channel)
    if numbering == "onnx_column_major":
        return batch + channel + spatial[::-1]
    if numbering == "tensorflow":
        return spatial + channel
    return batch + spatial + channel


def _count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    count = 1
    for axis in axes:
        count *= shape[axis]
    return count


def _check_range(number: npt.NDArray[np.int64], count: int, frm: str) -> None:
    bad = (number < 0) | (number >= count)
    if bad.any():
        position = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
        raise IndexOutOfBoundsError(
            f"indices[{', '.join(map(str, position))}] is {int(number[position])}; "
            f'"{frm}" has {count} numbers here, 0 to {count - 1}'
        )
