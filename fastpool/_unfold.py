"""Windows as the columns of a matrix, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from . import _buffers, _dispatch, _guards
from ._conv_spec import ConvWindow, conv_geometry, merged, windows_of
from ._geometry import check_size, is_integer, sequence, shape_tuple
from ._plan import SERIAL_ELEMENTS
from ._report import Run
from ._spec import ELEMENTS
from ._tiles import CACHES, CORES, asked_tile_bytes
from .errors import DtypeError, GeometryError
from .options import Options, Settings, resolve, threads_of

__all__ = ["fold", "unfold"]

Array = npt.NDArray[Any]

_BYTES = np.dtype(np.uint8)
UNITS = 4  # slabs per core that a large call should have


class _Slabs(NamedTuple):
    """How a call is cut: slabs of `step` along the first axis of every plane."""

    axes: npt.NDArray[np.int64]
    planes: int
    step: int
    units: int
    row_bytes: int  # what a thread keeps in the cache of one place of the first axis

    def run(self, threads: int) -> Run:
        kernels, outs = tuple(self.axes[:, 1].tolist()), self.axes[:, 5].tolist()
        return Run(min(threads, self.units), self.units, (self.step, *outs[1:]), kernels, 0)


def _slabs(windows: Sequence[ConvWindow], planes: int, lane_bytes: int, folds: bool) -> _Slabs:
    """Slabs whose elements stay in half the second-level cache while all taps are read from them or added to them."""
    axes = merged(windows)
    first = axes[0]
    row = lane_bytes * math.prod(w.length for w in axes[1:])
    places = first.length if folds else first.out
    per_place = row if folds else row * min(first.stride, first.length)
    step = max(1, (asked_tile_bytes() or CACHES["l2"] // 2) // per_place)
    step = min(step, -(-places // -(-UNITS * CORES // planes)), places)
    return _Slabs(np.array(axes, np.int64), planes, step, planes * -(-places // step), row)


def _kernel(kernel_size: Any, axes: int) -> list[Any]:
    """The kernel along every axis; one number stands for all of them."""
    if is_integer(kernel_size):
        if axes < 1:
            raise GeometryError(f"kernel_size={kernel_size!r} needs an array with a batch, channels and other axes")
        return [kernel_size] * axes
    kernel = sequence("kernel_size", kernel_size, "an integer or a tuple with one entry per spatial axis")
    if not kernel:
        raise GeometryError("kernel_size is empty; give one entry per spatial axis")
    return kernel


def unfold(
    x: npt.ArrayLike,
    kernel_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    **options: Unpack[Options],
) -> Array:
    """Every window as a column: the matrix that makes a convolution a product of matrices (im2col).

    Parameters
    ----------
    x : array_like
        Input of shape ``(N, C, *spatial)``, or ``(C, *spatial)`` without a batch, of any dtype that `max_pool` takes.
    kernel_size : int or tuple of int
        Taps along every spatial axis; its length tells how many axes are spatial. One number stands for all axes but
        the batch and the channels.
    stride, padding, dilation
        As in `conv`; padding holds zeros.
    **options
        See `fastpool.options`.

    Returns
    -------
    ndarray
        Of shape ``(N, C * taps, windows)``, or ``(C * taps, windows)``: a row for every channel and tap, a column for
        every window, both in C order.

    Raises
    ------
    GeometryError
        If the arguments do not fit `x`, or describe no window.
    DtypeError, ContiguityError
        As in `max_pool`.

    See Also
    --------
    fold : The adjoint, which is its gradient.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.unfold([[1, 2, 3, 4]], (2,), padding=((1, 0),))
    array([[0, 1, 2, 3],
           [1, 2, 3, 4]])
    """
    settings = resolve(options, "unfold")
    array = _guards.as_input("x", x, settings)
    kernel = _kernel(kernel_size, array.ndim - 2)
    if array.ndim not in (len(kernel) + 1, len(kernel) + 2):
        raise GeometryError(
            f"x has {array.ndim} dimensions {array.shape}; for kernel_size={tuple(kernel)} it has "
            f"{len(kernel) + 2}, or {len(kernel) + 1} without a batch"
        )
    windows = windows_of(conv_geometry(array.shape, kernel, stride, padding, dilation))
    taps, outputs = math.prod(w.kernel for w in windows), math.prod(w.out for w in windows)
    *batch, channels = array.shape[: -len(kernel)]
    shape = (*batch, channels * taps, outputs)
    check_size("the matrix of windows", shape)
    planes = math.prod(batch) * channels
    slabs = _slabs(windows, planes, array.itemsize, False) if planes else None
    threads = _threads(slabs, planes * taps * outputs, settings)
    result = _buffers.empty(shape, array.dtype)
    settings.record.step("write", result)
    if slabs is not None:
        _dispatch.unfold.unfold(
            _guards.as_bytes(array),
            _guards.as_bytes(result),
            ELEMENTS[array.dtype.name],
            slabs.axes,
            planes,
            slabs.step,
            threads,
        )
    settings.record.step("kernel")
    return settings.record.done(result)


def _threads(slabs: _Slabs | None, elements: int, settings: Settings) -> int:
    """Threads of a call that reads or writes so many elements; ends its plan step."""
    threads = threads_of(settings) if slabs is not None and elements >= SERIAL_ELEMENTS else 1
    settings.record.planned(_run, slabs, threads)
    return threads if slabs is None else min(threads, slabs.units)


def _run(slabs: _Slabs | None, threads: int) -> Run | None:
    return None if slabs is None else slabs.run(threads)


def fold(
    columns: npt.ArrayLike,
    output_size: Any,
    kernel_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    **options: Unpack[Options],
) -> Array:
    """Add columns up where their windows lie (col2im): the adjoint of `unfold`, and its gradient.

    Parameters
    ----------
    columns : array_like
        Of shape ``(N, C * taps, windows)``, or ``(C * taps, windows)`` without a batch; integers, float16, float32,
        float64, or ml_dtypes' bfloat16.
    output_size : tuple of int
        Lengths of the result's spatial axes.
    kernel_size, stride, padding, dilation
        What `unfold` was given; one number stands for all spatial axes.
    **options
        See `fastpool.options`.

    Returns
    -------
    ndarray
        Of shape ``(N, C, *output_size)``, or ``(C, *output_size)``: for every element the sum of the taps that lie on
        it, of the dtype of `columns`. Integers wrap around; float16 and bfloat16 are added in float32 and rounded once.

    Raises
    ------
    GeometryError
        If the arguments describe no window, or `columns` has not the rows and columns that they make.
    DtypeError, ContiguityError
        As in `unfold`; bool does not add up.

    Notes
    -----
    Every element is one chain of sums, in C order of the taps, and does not depend on threads or tiles.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.fold([[1, 2, 3], [10, 20, 30]], (4,), (2,))
    array([[ 1, 12, 23, 30]])
    """
    settings = resolve(options, "fold")
    array = _guards.as_input("columns", columns, settings)
    if array.dtype.kind == "b":
        raise DtypeError("columns is bool, which does not add up; cast it: columns.astype(np.uint8)")
    sizes = shape_tuple("output_size", output_size)
    kernel = _kernel(kernel_size, len(sizes))
    if len(kernel) != len(sizes):
        raise GeometryError(f"kernel_size={tuple(kernel)} has {len(kernel)} entries, output_size={sizes} {len(sizes)}")
    if array.ndim not in (2, 3):
        raise GeometryError(f"columns has {array.ndim} dimensions {array.shape}; it has 3, or 2 without a batch")
    windows = windows_of(conv_geometry(sizes, kernel, stride, padding, dilation))
    taps, outputs = math.prod(w.kernel for w in windows), math.prod(w.out for w in windows)
    *batch, rows, count = array.shape
    if rows % taps:
        raise GeometryError(f"columns of shape {array.shape} has {rows} rows, not a multiple of {taps} taps")
    if count != outputs:
        raise GeometryError(f"columns of shape {array.shape} has {count} columns, but there are {outputs} windows")
    shape = (*batch, rows // taps, *sizes)
    check_size("the result", shape)
    half = array.itemsize == 2 and array.dtype.kind not in "iu"
    planes = math.prod(batch) * (rows // taps)
    slabs = _slabs(windows, planes, 4 if half else array.itemsize, True) if planes else None
    threads = _threads(slabs, array.size, settings)
    result = _buffers.empty(shape, array.dtype)
    settings.record.step("write", result)
    if slabs is not None:
        work = _buffers.empty((slabs.step * slabs.row_bytes * threads if half else 0,), _BYTES)
        _dispatch.unfold.fold(
            _guards.as_bytes(array),
            _guards.as_bytes(result),
            ELEMENTS[array.dtype.name],
            slabs.axes,
            planes,
            slabs.step,
            work,
            threads,
        )
    settings.record.step("kernel")
    return settings.record.done(result)
