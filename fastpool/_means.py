"""Averages and sums over windows and over whole axes, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Unpack

import numpy.typing as npt

from . import _guards, _plan
from ._geometry import Geometry, adaptive_window, pooling_geometry, reduced_axes, shape_tuple
from ._sums import FLOAT64, Array, check_gradient, checked_gradient, divide_by, mean_dtype, run_sums, spread, sum_dtype
from .options import Options, resolve

__all__ = [
    "avg_pool",
    "avg_pool_backward",
    "global_avg_pool",
    "global_avg_pool_backward",
    "sum_pool",
    "sum_pool_backward",
]


def avg_pool(
    x: npt.ArrayLike,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    dtype: npt.DTypeLike | None = None,
    axes: int | Sequence[int] | None = None,
    out: Array | None = None,
    **options: Unpack[Options],
) -> Array:
    """Average over windows of any number of axes: their sum over the number of their taps.

    Parameters
    ----------
    x : array_like
        Input of any rank; bool, any integer, float16, float32, float64, or ml_dtypes' bfloat16.
    kernel_size, stride, padding, dilation, ceil_mode, axes
        As in `max_pool`.
    count_include_pad : bool, optional
        Divide by the taps in the input and its padding (what ceil mode lets hang over never counts), or, if False, by
        those in the input alone.
    divisor_override : int, optional
        Divide every sum by this positive number instead.
    dtype : dtype, optional
        Of the result; a float, or, for integer or bool input, an integer: then the exact sum is divided and rounded
        half to even, and what does not fit wraps around as in `ndarray.astype`.
    out : ndarray, optional
        Where to write: of the result's shape and dtype, C-contiguous, not overlapping `x`.
    **options
        See `fastpool.options`.

    Returns
    -------
    ndarray
        The averages, in the shape that `output_shape` tells, of the dtype of `x` if that is a float, and float64
        otherwise, unless `dtype` is given.

    Raises
    ------
    GeometryError
        If the arguments describe no window, or `divisor_override` is below 1; with ``count_include_pad=False``, also if
        a window has no tap inside the input (otherwise its average is 0).
    DtypeError
        If `x` is not taken, or `dtype` is bool, or an integer for floats.
    ContiguityError
        As in `max_pool`.

    Notes
    -----
    Integers are summed exactly. Half floats are summed in float32, float32 in float32, or in float64 where windows have
    more than 1024 taps. The result is within 4 ulp of the mean of ``abs(x)`` for windows of up to 64^3 taps, and the
    mean of ones is 1. The order of additions is fixed by the windows alone, so that results do not depend on threads,
    tiles or the instruction set. A NaN or infinity spoils the windows that hold it and no others.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.avg_pool(np.array([[1.0, 2.0], [3.0, 6.0]]), (2, 2))
    array([[3.]])
    >>> fp.avg_pool(np.array([1, 2, 4], np.uint8), (2,), stride=1, dtype=np.uint8)
    array([2, 3], dtype=uint8)
    >>> fp.avg_pool(np.array([10.0, 20.0]), (3,), stride=2, padding=((0, 1),), count_include_pad=False)
    array([15.])
    """
    settings = resolve(options, "avg_pool")
    array = _guards.as_input("x", x, settings)
    result = mean_dtype(array.dtype, dtype)
    divide = divide_by(count_include_pad, divisor_override)
    plan = _plan.mean_plan(
        array.dtype, result, divide, 0.0, False, array.shape, ceil_mode, kernel_size, stride, padding, dilation, axes
    )
    return settings.record.done(run_sums(plan, x, array, result, out, settings))


def sum_pool(
    x: npt.ArrayLike,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    dtype: npt.DTypeLike | None = None,
    axes: int | Sequence[int] | None = None,
    out: Array | None = None,
    **options: Unpack[Options],
) -> Array:
    """Sum over windows of any number of axes.

    Parameters
    ----------
    x : array_like
        Input of any dtype that `avg_pool` takes.
    kernel_size, stride, padding, dilation, ceil_mode, axes
        As in `max_pool`.
    dtype : dtype, optional
        Of the result; a float, or, for integer or bool input, an integer.
    out, **options
        As in `avg_pool`.

    Returns
    -------
    ndarray
        The sums, in the shape that `output_shape` tells: of the dtype of `x` if that is a float, int64 for signed
        integers and bool, uint64 for unsigned ones, unless `dtype` is given. A window of nothing but padding sums to 0.

    Raises
    ------
    GeometryError, DtypeError, ContiguityError
        As in `avg_pool`.

    Notes
    -----
    Integer sums are exact, and wrap around where the result's dtype cannot hold them, as those of `numpy.sum` do; a
    float `dtype` gets the exact sum, rounded once. Floats are added as in `avg_pool`.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.sum_pool(np.arange(6), (3,), stride=1)
    array([ 3,  6,  9, 12])
    """
    settings = resolve(options, "sum_pool")
    array = _guards.as_input("x", x, settings)
    result = sum_dtype(array.dtype, dtype)
    plan = _plan.mean_plan(
        array.dtype, result, "no", 0.0, False, array.shape, ceil_mode, kernel_size, stride, padding, dilation, axes
    )
    return settings.record.done(run_sums(plan, x, array, result, out, settings))


def avg_pool_backward(
    grad_output: npt.ArrayLike,
    input_shape: Sequence[int],
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    axes: int | Sequence[int] | None = None,
    out: Array | None = None,
    **options: Unpack[Options],
) -> Array:
    """Gradient of `avg_pool` by its input.

    Parameters
    ----------
    grad_output : array_like
        Gradient by the averages, of their shape; any integer or floating dtype.
    input_shape : tuple of int
        Shape of the pooling's input.
    kernel_size, stride, padding, dilation, ceil_mode, count_include_pad, divisor_override, axes
        What `avg_pool` was given.
    out : ndarray, optional
        Where to write the gradient: of its shape and dtype, C-contiguous, not overlapping `grad_output`.
    **options
        See `fastpool.options`.

    Returns
    -------
    ndarray
        Of `input_shape` and the dtype of `grad_output`; float64 for integers.

    Raises
    ------
    GeometryError
        If `grad_output` has not the shape that the arguments give the result, or as in `avg_pool`.
    DtypeError
        If `grad_output` is bool, or of a dtype that `avg_pool` does not take.
    ContiguityError
        As in `avg_pool`.

    Notes
    -----
    An element gets ``grad_output / divisor`` of every window that holds it. These are added axis by axis, in C order of
    the outputs along each. Elements that negative padding crops, and those in no window, get 0.

    Windows that differ in their number of taps (padding with ``count_include_pad=False``, or overhang in ceil mode)
    take up to two more arrays of the size of `grad_output` (float32 for half floats, float64 for integers); negative
    padding takes one of the size of what it leaves.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.avg_pool_backward(np.array([4.0, 2.0]), (4,), (2,))
    array([2., 2., 1., 1.])
    """
    settings = resolve(options, "avg_pool_backward")
    divide = divide_by(count_include_pad, divisor_override)
    shape = shape_tuple("input_shape", input_shape)
    geometry = pooling_geometry(
        shape, kernel_size, stride, padding, dilation, ceil_mode, axes, padding_counts=divide != "real"
    )
    grad = checked_gradient(grad_output, geometry.output_shape, "the averages", settings)
    return settings.record.done(
        spread(grad_output, grad, geometry, divide, mean_dtype(grad.dtype, None), out, settings)
    )


def sum_pool_backward(
    grad_output: npt.ArrayLike,
    input_shape: Sequence[int],
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    axes: int | Sequence[int] | None = None,
    out: Array | None = None,
    **options: Unpack[Options],
) -> Array:
    """Gradient of `sum_pool` by its input.

    Parameters
    ----------
    grad_output : array_like
        Gradient by the sums, of their shape; any integer or floating dtype.
    input_shape : tuple of int
        Shape of the pooling's input.
    kernel_size, stride, padding, dilation, ceil_mode, axes
        What `sum_pool` was given.
    out, **options
        As in `avg_pool_backward`.

    Returns
    -------
    ndarray
        Of `input_shape` and the dtype of `grad_output`; int64 or uint64 for integers.

    Raises
    ------
    GeometryError, DtypeError, ContiguityError
        As in `avg_pool_backward`.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.sum_pool_backward(np.array([1.0, 2.0, 4.0]), (4,), (2,), stride=1)
    array([1., 3., 6., 4.])
    """
    settings = resolve(options, "sum_pool_backward")
    shape = shape_tuple("input_shape", input_shape)
    geometry = pooling_geometry(shape, kernel_size, stride, padding, dilation, ceil_mode, axes, padding_counts=True)
    grad = checked_gradient(grad_output, geometry.output_shape, "the sums", settings)
    result = spread(grad_output, grad, geometry, "no", sum_dtype(grad.dtype, None), out, settings)
    return settings.record.done(result)


# ---------------------------------------------------------------------------------------------- whole axes


def global_avg_pool(
    x: npt.ArrayLike,
    *,
    axes: int | Sequence[int] | None = None,
    keepdims: bool = True,
    dtype: npt.DTypeLike | None = None,
    **options: Unpack[Options],
) -> Array:
    """Average over whole axes.

    Parameters
    ----------
    x : array_like
        Input of any dtype that `avg_pool` takes.
    axes : int or tuple of int, optional
        Axes to reduce; all but the first two by default, for which `x` needs three dimensions or more.
    keepdims : bool, optional
        Keep the reduced axes with length 1; otherwise they are left out of the result.
    dtype, **options
        As in `avg_pool`.

    Returns
    -------
    ndarray
        The averages, of the dtype of `x` if that is a float, and float64 otherwise, unless `dtype` is given.

    Raises
    ------
    GeometryError
        If an axis does not exist, is named twice or has length 0, or if there is no axis to reduce.
    DtypeError
        As in `avg_pool`.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.global_avg_pool(np.arange(8.0).reshape(1, 2, 2, 2), keepdims=False)
    array([[1.5, 5.5]])
    >>> fp.global_avg_pool(np.array([[1, 2], [4, 4]], np.uint8), axes=0, dtype=np.uint8)
    array([[2, 3]], dtype=uint8)
    """
    settings = resolve(options, "global_avg_pool")
    array = _guards.as_input("x", x, settings)
    reduced = reduced_axes(array.shape, axes)
    result = mean_dtype(array.dtype, dtype)
    count = math.prod(array.shape[axis] for axis in reduced)
    shape = tuple(n for axis, n in enumerate(array.shape) if axis not in reduced)
    if keepdims:
        shape = tuple(1 if axis in reduced else length for axis, length in enumerate(array.shape))

    # neighbouring axes are one; then a long one is cut into chunks, so that one volume occupies every core
    sums, where = array, reduced
    if reduced == tuple(range(reduced[0], reduced[-1] + 1)) and array.size:
        after = array.shape[reduced[-1] + 1 :]
        sums, where = array.reshape(*array.shape[: reduced[0]], -1, *after), reduced[:1]
    exact = array.dtype.kind in "biu"
    while (chunk := _plan.global_chunk(sums.shape, where)) is not None and not (exact and array.dtype.itemsize == 8):
        kernel = [sums.shape[axis] for axis in where]
        kernel[0] = chunk
        partial = sum_dtype(sums.dtype, None) if exact else FLOAT64
        geometry = pooling_geometry(sums.shape, kernel, None, 0, 1, True, where)
        plan = _plan.sum_plan(geometry, sums.dtype, partial)
        sums = run_sums(plan, None, sums, partial, None, settings)
    geometry = pooling_geometry(sums.shape, [sums.shape[axis] for axis in where], None, 0, 1, False, where)
    plan = _plan.sum_plan(geometry, sums.dtype, result, count)
    return settings.record.done(run_sums(plan, x, sums, result, None, settings).reshape(shape))


def global_avg_pool_backward(
    grad_output: npt.ArrayLike,
    input_shape: Sequence[int],
    *,
    axes: int | Sequence[int] | None = None,
    **options: Unpack[Options],
) -> Array:
    """Gradient of `global_avg_pool` by its input.

    Parameters
    ----------
    grad_output : array_like
        Gradient by the averages, with or without the reduced axes; any integer or floating dtype.
    input_shape : tuple of int
        Shape of the pooling's input.
    axes : int or tuple of int, optional
        The reduced axes; all but the first two by default.
    **options
        See `fastpool.options`.

    Returns
    -------
    ndarray
        Of `input_shape` and the dtype of `grad_output`; float64 for integers.

    Raises
    ------
    GeometryError
        If `grad_output` has not the shape of the averages, or as in `global_avg_pool`.
    DtypeError
        As in `avg_pool_backward`.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.global_avg_pool_backward(np.array([[8.0]]), (1, 1, 2, 2))
    array([[[[2., 2.],
             [2., 2.]]]])
    """
    settings = resolve(options, "global_avg_pool_backward")
    shape = shape_tuple("input_shape", input_shape)
    reduced = reduced_axes(shape, axes)
    windows = {axis: adaptive_window(shape[axis], 1) for axis in reduced}
    geometry = Geometry.of(shape, windows)
    grad = _guards.as_input("grad_output", grad_output, settings)
    if grad.shape == tuple(n for axis, n in enumerate(shape) if axis not in reduced):
        grad = grad.reshape(geometry.output_shape)
    check_gradient(grad, geometry.output_shape, "the averages")
    return settings.record.done(
        spread(grad_output, grad, geometry, "real", mean_dtype(grad.dtype, None), None, settings)
    )
