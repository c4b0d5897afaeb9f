"""By flat index: the gradient of every pooling that returns indices, unpooling, and its gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from . import _buffers, _dispatch, _guards, _plan
from ._geometry import shape_tuple
from ._report import Run
from ._results import SparseGradient
from .errors import DtypeError, GeometryError
from .options import Options, Settings, resolve, threads_of

__all__ = ["max_pool_backward", "max_unpool", "max_unpool_backward"]

Array = npt.NDArray[Any]

_INT64 = np.dtype(np.int64)


def _scatter(
    name: str, source: Array, indices: npt.NDArray[np.int64], result: Array, add: bool, settings: Settings
) -> None:
    """Result = 0, then add or assign source at indices, in C order; indices are checked before anything is written."""
    flat = indices.reshape(-1)
    threads = threads_of(settings) if _plan.scatters_in_parallel(flat.size, result.size) else 1
    low, high = _checked_ranges(name, indices, result.size, threads, settings)
    cut = _plan.cut_in_slabs(low, high, result.size, result.itemsize, threads)
    half = add and result.itemsize == 2 and result.dtype.kind not in "iu"
    settings.record.step("plan", cut.first, cut.last)
    settings.record.planned(_half_run if half else _scatter_run, cut, threads)
    kernels = _dispatch.pool_backward
    where = (flat, add, _plan.BLOCK, low, high, cut.slab, cut.first, cut.last, threads)
    if half:
        halves = source.reshape(-1).view(np.uint16), result.reshape(-1).view(np.uint16)
        brain = _guards.is_bfloat16(result.dtype)
        kernels.scatter_half(halves[0], flat, halves[1], brain, *where[2:])
        settings.record.step("kernel")
        return
    if add and result.dtype.kind == "f":
        element, view = ("float", np.float32) if result.itemsize == 4 else ("double", np.float64)
    else:
        element, view = _UNSIGNED[result.itemsize]
    kernels.scatter[element](source.reshape(-1).view(view), flat, result.reshape(-1).view(view), *where[1:])
    settings.record.step("kernel")


def _scatter_run(cut: _plan.Slabs, threads: int) -> Run:
    units = len(cut.first)
    return Run(min(threads, units), units, (cut.slab,), (1,), 0)


def _half_run(cut: _plan.Slabs, threads: int) -> Run:
    return replace(_scatter_run(cut, threads), workspace=4 * cut.slab)  # sums in float32


def _checked_ranges(
    name: str, indices: npt.NDArray[np.int64], size: int, threads: int, settings: Settings
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Smallest and largest index of every block of indices, once all are known to lie in `size` elements."""
    flat = indices.reshape(-1)
    blocks = -(-flat.size // _plan.BLOCK)
    low, high = np.empty(blocks, _INT64), np.empty(blocks, _INT64)
    if not _dispatch.pool_backward.block_ranges(flat, size, _plan.BLOCK, low, high, threads):
        _guards.refuse_indices(name, indices, size)
    settings.record.step("guard", low, high)
    return low, high


_UNSIGNED: dict[int, tuple[str, Any]] = {
    1: ("uint8_t", np.uint8),
    2: ("uint16_t", np.uint16),
    4: ("uint32_t", np.uint32),
    8: ("uint64_t", np.uint64),
}


def max_pool_backward(
    grad_output: Any,
    indices: Any,
    input_shape: Sequence[int],
    *,
    sparse: bool = False,
    out: Array | None = None,
    **options: Unpack[Options],
) -> Any:
    """Gradient of any pooling that returned indices: `grad_output` added up at `indices`.

    Parameters
    ----------
    grad_output : array_like
        Gradient by the pooled values; any integer or floating dtype that `max_pool` takes.
    indices : array_like of int64
        Flat indices that the pooling returned, of the shape of `grad_output` (int32 is converted).
    input_shape : tuple of int
        Shape of the pooling's input.
    sparse : bool, optional
        Return only the touched positions, and no dense array.
    out : ndarray, optional
        Where to write the dense gradient.
    **options
        See `fastpool.options`.

    Returns
    -------
    ndarray or SparseGradient
        The gradient by the input, of the dtype of `grad_output`; with `sparse` the named tuple ``(indices, values)``,
        every touched position once, ascending.

    Raises
    ------
    IndexOutOfBoundsError
        If an index does not lie in `input_shape`; nothing is written to `out` before this is known.
    GeometryError
        If `grad_output` and `indices` differ in shape, or `input_shape` is no shape.
    DtypeError
        If `indices` are not int64 or int32, or `grad_output` has no kernel.

    Notes
    -----
    Where windows overlap, contributions are added in C order of the outputs, for any number of threads. Half floats are
    added in float32 and rounded once.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> x = np.array([1.0, 3.0, 2.0, 0.0])
    >>> values, indices = fp.max_pool(x, (2,), stride=1, return_indices=True)
    >>> fp.max_pool_backward(np.ones(3), indices, x.shape)
    array([0., 2., 1., 0.])
    """
    settings = resolve(options, "max_pool_backward")
    grad = _guards.as_input("grad_output", grad_output, settings)
    if grad.dtype.kind == "b":
        raise DtypeError("grad_output has dtype bool, which does not add up; cast it to a number")
    where = _guards.as_indices("indices", indices, settings)
    shape = shape_tuple("input_shape", input_shape)
    _guards.check_same_shape("grad_output", grad, "indices", where)
    if sparse:
        if out is not None:
            raise GeometryError("out holds a dense gradient; it cannot be given with sparse=True")
        size = math.prod(shape)
        touched, inverse = np.unique(where, return_inverse=True)
        if touched.size and (touched[0] < 0 or touched[-1] >= size):
            _guards.refuse_indices("indices", where, size)
        settings.record.step("plan", inverse)
        sums = np.empty(touched.shape, grad.dtype)
        settings.record.step("write", touched, sums)
        _scatter("indices", grad, inverse.reshape(where.shape), sums, True, settings)
        return settings.record.done(SparseGradient(touched, sums))
    if out is None:
        result = _buffers.empty(shape, grad.dtype)
        settings.record.step("write", result)
    else:
        result = _guards.check_out("out", out, shape, grad.dtype, (grad_output, grad, indices, where))
        settings.record.step("write")
    _scatter("indices", grad, where, result, True, settings)
    return settings.record.done(result)


def max_unpool(
    values: Any,
    indices: Any,
    output_shape: Sequence[int],
    *,
    out: Array | None = None,
    **options: Unpack[Options],
) -> Array:
    """Zeros, with every value put back to where its index points.

    Parameters
    ----------
    values : array_like
        Pooled values, of any dtype that `max_pool` takes.
    indices : array_like of int64
        Flat indices of the shape of `values`.
    output_shape : tuple of int
        Shape of the result, which is that of the pooling's input.
    out : ndarray, optional
        Where to write.
    **options
        See `fastpool.options`.

    Returns
    -------
    ndarray
        Of `output_shape` and the dtype of `values`. Of several values with one index the last in C order wins.

    Raises
    ------
    IndexOutOfBoundsError
        If an index does not lie in `output_shape`.
    GeometryError
        If `values` and `indices` differ in shape, or `output_shape` is no shape.
    DtypeError
        If `indices` are not int64 or int32.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.max_unpool(np.array([3.0, 5.0]), np.array([1, 2]), (4,))
    array([0., 3., 5., 0.])
    """
    settings = resolve(options, "max_unpool")
    array = _guards.as_input("values", values, settings)
    where = _guards.as_indices("indices", indices, settings)
    shape = shape_tuple("output_shape", output_shape)
    _guards.check_same_shape("values", array, "indices", where)
    if out is None:
        result = _buffers.empty(shape, array.dtype)
        settings.record.step("write", result)
    else:
        result = _guards.check_out("out", out, shape, array.dtype, (values, array, indices, where))
        settings.record.step("write")
    _scatter("indices", array, where, result, False, settings)
    return settings.record.done(result)


def max_unpool_backward(grad_output: Any, indices: Any, **options: Unpack[Options]) -> Array:
    """Gradient of `max_unpool` by its values: `grad_output` read at `indices`.

    Parameters
    ----------
    grad_output : array_like
        Gradient by the unpooled array.
    indices : array_like of int64
        The indices that `max_unpool` was given.
    **options
        See `fastpool.options`.

    Returns
    -------
    ndarray
        Of the shape of `indices` and the dtype of `grad_output`.

    Raises
    ------
    IndexOutOfBoundsError
        If an index does not lie in `grad_output`.
    DtypeError
        If `indices` are not int64 or int32.

    Notes
    -----
    Where several values share an index, each receives the whole gradient there, as in the frameworks.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.max_unpool_backward(np.array([0.5, 1.0, 2.0, 4.0]), np.array([1, 2]))
    array([1., 2.])
    """
    settings = resolve(options, "max_unpool_backward")
    grad = _guards.as_input("grad_output", grad_output, settings)
    where = _guards.as_indices("indices", indices, settings)
    flat = where.reshape(-1)
    threads = threads_of(settings) if _plan.scatters_in_parallel(flat.size, grad.size) else 1
    _checked_ranges("indices", where, grad.size, threads, settings)
    settings.record.planned(_gather_run, flat.size, threads)
    result = _buffers.empty(where.shape, grad.dtype)
    settings.record.step("write", result)
    element, view = _UNSIGNED[grad.itemsize]
    _dispatch.pool_backward.gather[element](grad.reshape(-1).view(view), flat, result.reshape(-1).view(view), threads)
    settings.record.step("kernel")
    return settings.record.done(result)


def _gather_run(size: int, threads: int) -> Run:
    return Run(threads, threads, (-(-size // threads),), (1,), 0)
