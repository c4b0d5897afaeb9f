"""Averages, sums and Lp norms over windows and over whole axes, and their gradients.

A gradient is a sum too: every element of the input collects the outputs whose windows hold it. So both ways run on the
same plans, the way back over adjoint windows (`adjoint_window`, `adjoint_bounds` in ``_geometry.py``).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from . import _buffers, _guards, _plan
from ._geometry import (
    Bounds,
    Geometry,
    Window,
    adaptive_geometry,
    adaptive_window,
    adjoint_bounds,
    adjoint_window,
    counted_taps,
    int64_of,
    integer,
    normalize_axes,
    pooling_geometry,
    reduced_axes,
    shape_tuple,
)
from ._unpool import max_pool_backward
from .errors import DtypeError, GeometryError
from .options import Options, Settings, resolve, threads_of

__all__ = [
    "adaptive_avg_pool",
    "adaptive_avg_pool_backward",
    "avg_pool",
    "avg_pool_backward",
    "global_avg_pool",
    "global_avg_pool_backward",
    "lp_pool",
    "lp_pool_backward",
    "sum_pool",
    "sum_pool_backward",
]

Array = npt.NDArray[Any]

_FLOAT64 = np.dtype(np.float64)


# ---------------------------------------------------------------------------------------------- what all share


def mean_dtype(given: np.dtype[Any], asked: Any) -> np.dtype[Any]:
    """The dtype of a mean: that of floats, float64 of integers, or what was asked for."""
    if asked is None:
        return _FLOAT64 if given.kind in "biu" else given
    return _asked_dtype(given, asked)


def sum_dtype(given: np.dtype[Any], asked: Any) -> np.dtype[Any]:
    """The dtype of a sum: that of floats, 64 bits of integers, or what was asked for."""
    if asked is None:
        return given if given.kind not in "biu" else np.dtype(np.uint64 if given.kind == "u" else np.int64)
    return _asked_dtype(given, asked)


def _asked_dtype(given: np.dtype[Any], asked: Any) -> np.dtype[Any]:
    try:
        dtype = np.dtype(asked)
    except TypeError as error:
        raise DtypeError(f"dtype={asked!r} is not a dtype: {error}") from None
    dtype = dtype.newbyteorder("=")
    if dtype.name not in _plan.ELEMENTS or dtype.kind == "b":
        raise DtypeError(f"dtype={dtype} cannot hold a mean or a sum; use an integer, float16, float32 or float64")
    if dtype.kind in "iu" and given.kind not in "biu":
        raise DtypeError(
            f"dtype={dtype} of {given} input would lose what is behind the point; round the result instead"
        )
    return dtype


def run_sums(plan: _plan.PoolPlan, given: Any, x: Array, dtype: np.dtype[Any], out: Any, settings: Settings) -> Array:
    """Run a plan of sums from x to `out`, or to a new array."""
    shape = plan.geometry.output_shape
    if out is None:
        result = _buffers.empty(shape, dtype)
    else:
        result = _guards.check_out("out", out, shape, dtype, (given, x))
    if plan.compiled is not None:
        threads = threads_of(settings) if plan.parallel else 1
        plan.compiled.run(_guards.as_bytes(x), _guards.as_bytes(result), None, threads)
    return result


def _divide(count_include_pad: Any, divisor_override: Any) -> _plan.Divide:
    if type(count_include_pad).__name__ not in ("bool", "bool_", "int") or count_include_pad not in (0, 1):
        raise GeometryError(f"count_include_pad must be True or False, got {count_include_pad!r}")
    if divisor_override is None:
        return "padded" if count_include_pad else "real"
    divisor = integer("divisor_override", divisor_override)
    if divisor < 1:
        raise GeometryError(f"divisor_override is {divisor}; it must be at least 1")
    return divisor


# ---------------------------------------------------------------------------------------------- averages and sums


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
    """Average over windows of any number of axes.

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
        Divide every sum by this instead.
    dtype : dtype, optional
        Of the result; a float, or, for integer input, an integer: then the exact sum is divided and rounded half to
        even, and what does not fit wraps around as in `ndarray.astype`.
    out : ndarray, optional
        Where to write: of the result's shape and dtype, C-contiguous, not overlapping `x`.
    **options
        See `fastpool.options`.

    Returns
    -------
    ndarray
        The averages, of the dtype of `x` if that is a float, and float64 otherwise, unless `dtype` is given.

    Raises
    ------
    GeometryError
        If the arguments describe no window; without `count_include_pad`, also if a window has no tap inside the input
        (otherwise its average is 0).
    DtypeError
        If `x` or `dtype` is not taken.
    ContiguityError
        As in `max_pool`.

    Notes
    -----
    Integers are summed exactly. Half floats are summed in float32, float32 in float32, or in float64 where windows have
    more than 1024 taps; the order of additions is fixed by the windows alone, so that results do not depend on threads,
    tiles or the instruction set. A NaN or infinity spoils the windows that hold it and no others.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.avg_pool(np.array([[1.0, 2.0], [3.0, 6.0]]), (2, 2))
    array([[3.]])
    >>> fp.avg_pool(np.array([1, 2, 4], np.uint8), (2,), stride=1, dtype=np.uint8)
    array([2, 3], dtype=uint8)
    """
    settings = resolve(options)
    array = _guards.as_input("x", x, settings)
    result = mean_dtype(array.dtype, dtype)
    divide = _divide(count_include_pad, divisor_override)
    plan = _plan.mean_plan(
        array.dtype, result, divide, 0.0, False, array.shape, ceil_mode, kernel_size, stride, padding, dilation, axes
    )
    return run_sums(plan, x, array, result, out, settings)


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
        Of the result.
    out, **options
        As in `avg_pool`.

    Returns
    -------
    ndarray
        The sums: of the dtype of `x` if that is a float, int64 for signed integers and bool, uint64 for unsigned ones,
        unless `dtype` is given. A window of nothing but padding sums to 0.

    Raises
    ------
    GeometryError, DtypeError, ContiguityError
        As in `avg_pool`.

    Notes
    -----
    Integer sums are exact, and wrap around where the result's dtype cannot hold them, as those of `numpy.sum` do.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.sum_pool(np.arange(6), (3,), stride=1)
    array([ 3,  6,  9, 12])
    """
    settings = resolve(options)
    array = _guards.as_input("x", x, settings)
    result = sum_dtype(array.dtype, dtype)
    plan = _plan.mean_plan(
        array.dtype, result, "no", 0.0, False, array.shape, ceil_mode, kernel_size, stride, padding, dilation, axes
    )
    return run_sums(plan, x, array, result, out, settings)


# ---------------------------------------------------------------------------------------------- back


def checked_gradient(grad_output: Any, shape: tuple[int, ...], what: str, settings: Settings) -> Array:
    """A gradient of the shape of the result whose gradient it is."""
    grad = _guards.as_input("grad_output", grad_output, settings)
    if grad.dtype.kind == "b":
        raise DtypeError("grad_output has dtype bool, which does not add up; cast it to a number")
    _guards.check_shape("grad_output", grad, shape, what)
    return grad


def spread(
    given: Any,
    grad: Array,
    geometry: Geometry,
    divide: _plan.Divide,
    dtype: np.dtype[Any],
    out: Any,
    settings: Settings,
) -> Array:
    """Every gradient added to all the elements of its window, divided as the pooling divided: the way back of sums."""
    if out is not None:
        _guards.check_out("out", out, geometry.input_shape, dtype, (given, grad))
    divisor, counts = 1, []
    for axis, window in zip(geometry.axes, geometry.windows, strict=True):
        if isinstance(divide, int):
            break
        if divide != "no":
            taps = counted_taps(window, divide == "padded")
            if taps.lead or taps.trail:
                along = [*taps.lead, *[taps.middle] * (window.out - len(taps.lead) - len(taps.trail)), *taps.trail]
                counts.append(np.array(along, np.float64).reshape(-1, *[1] * (grad.ndim - axis - 1)))
            else:
                divisor *= taps.middle
    for along in counts:  # windows of different sizes: divided before they are spread
        grad = grad / (along if grad.dtype == np.float64 else along.astype(_wide(grad.dtype)))
    kept = tuple(slice(None) for _ in grad.shape)
    cropped = False
    windows: list[Window | Bounds] = []
    shape = list(geometry.input_shape)
    for axis, window in zip(geometry.axes, geometry.windows, strict=True):
        cropped |= window.length != shape[axis]
        kept = (*kept[:axis], slice(window.crop, window.crop + window.length), *kept[axis + 1 :])
        shape[axis] = window.length
        windows.append(adjoint_window(window) if isinstance(window, Window) else _adjoint_of(window))
    adjoint = Geometry(grad.shape, geometry.axes, tuple(windows), tuple(shape))
    total = divide if isinstance(divide, int) else divisor
    plan = _plan.sum_plan(adjoint, grad.dtype, dtype, int(total) if total != 1 else "no")
    if not cropped:
        return run_sums(plan, given, grad, dtype, out, settings)
    # what negative padding cut off has no part in any window
    result = _buffers.empty(geometry.input_shape, dtype) if out is None else out
    result.fill(0)
    result[kept] = run_sums(plan, given, grad, dtype, None, settings)
    return result


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float64) if dtype.kind in "iu" else np.dtype(np.float32)


def _adjoint_of(bounds: Bounds) -> Bounds:
    starts, counts = int64_of(bounds.starts), int64_of(bounds.counts)
    return adjoint_bounds(bounds.length, starts, [a + n for a, n in zip(starts, counts, strict=True)])


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
        Where to write the gradient.
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
    DtypeError, ContiguityError
        As in `avg_pool`.

    Notes
    -----
    An element adds up the gradients of its windows axis by axis, in C order of the outputs along each.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.avg_pool_backward(np.array([4.0, 2.0]), (4,), (2,))
    array([2., 2., 1., 1.])
    """
    settings = resolve(options)
    divide = _divide(count_include_pad, divisor_override)
    shape = shape_tuple("input_shape", input_shape)
    geometry = pooling_geometry(
        shape, kernel_size, stride, padding, dilation, ceil_mode, axes, padding_counts=divide != "real"
    )
    grad = checked_gradient(grad_output, geometry.output_shape, "the averages", settings)
    return spread(grad_output, grad, geometry, divide, mean_dtype(grad.dtype, None), out, settings)


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
    settings = resolve(options)
    shape = shape_tuple("input_shape", input_shape)
    geometry = pooling_geometry(shape, kernel_size, stride, padding, dilation, ceil_mode, axes, padding_counts=True)
    grad = checked_gradient(grad_output, geometry.output_shape, "the sums", settings)
    return spread(grad_output, grad, geometry, "no", sum_dtype(grad.dtype, None), out, settings)


# ---------------------------------------------------------------------------------------------- Lp norms


def _norm(norm_type: Any, signed: Any) -> float:
    if type(signed).__name__ not in ("bool", "bool_", "int") or signed not in (0, 1):
        raise GeometryError(f"signed must be True or False, got {signed!r}")
    try:
        if isinstance(norm_type, (bool, np.bool_, str, bytes)):
            raise TypeError
        p = float(operator.index(norm_type)) if hasattr(type(norm_type), "__index__") else float(norm_type)
    except (TypeError, ValueError, OverflowError):
        raise GeometryError(f"norm_type must be a number greater than 0, or infinity, got {norm_type!r}") from None
    if not p > 0:
        raise GeometryError(f"norm_type is {norm_type!r}; it must be greater than 0")
    return p


def lp_pool(
    x: npt.ArrayLike,
    norm_type: float,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    signed: bool = False,
    axes: int | Sequence[int] | None = None,
    out: Array | None = None,
    **options: Unpack[Options],
) -> Array:
    """Lp norm over windows of any number of axes: ``(sum |x|**p) ** (1/p)``.

    Parameters
    ----------
    x : array_like
        Input of any dtype that `avg_pool` takes.
    norm_type : float
        The exponent p, greater than 0; infinity gives the largest magnitude.
    kernel_size, stride, padding, dilation, ceil_mode, axes
        As in `max_pool`.
    signed : bool, optional
        Raise x itself and not its magnitude to the power, as PyTorch does; the root of a negative sum is NaN.
    out, **options
        As in `avg_pool`.

    Returns
    -------
    ndarray
        The norms, of the dtype of `x` if that is a float and float64 otherwise. A window of nothing but padding has
        norm 0.

    Raises
    ------
    GeometryError
        If `norm_type` is not greater than 0, or as in `avg_pool`.
    DtypeError, ContiguityError
        As in `avg_pool`.

    Notes
    -----
    Powers are added up in float64, so that float32 does not overflow in between. In ceil mode the taps of a window that
    hangs over are those that exist (PyTorch scales their sum up to a whole window).

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.lp_pool(np.array([3.0, -4.0, 0.0, 2.0]), 2, (2,))
    array([5., 2.])
    """
    settings = resolve(options)
    p = _norm(norm_type, signed)
    array = _guards.as_input("x", x, settings)
    result = mean_dtype(array.dtype, None)
    if math.isinf(p):
        return _largest_magnitude(x, array, kernel_size, stride, padding, dilation, ceil_mode, axes, out, settings)
    plan = _plan.mean_plan(
        array.dtype,
        result,
        "no",
        p,
        bool(signed),
        array.shape,
        ceil_mode,
        kernel_size,
        stride,
        padding,
        dilation,
        axes,
    )
    return run_sums(plan, x, array, result, out, settings)


def _magnitude(x: Array) -> Array:
    return np.abs(x.astype(np.float64) if x.dtype.kind in "biu" else x)


def _largest_magnitude(
    given: Any,
    x: Array,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: Any,
    axes: Any,
    out: Any,
    settings: Settings,
) -> Array:
    """The norm at infinity. A window of nothing but padding has norm 0: padding is laid around x where that may happen."""
    geometry = pooling_geometry(x.shape, kernel_size, stride, padding, dilation, ceil_mode, axes, padding_counts=True)
    if out is not None:
        _guards.check_out("out", out, geometry.output_shape, mean_dtype(x.dtype, None), (given, x))
    plan = _plan.maximum_plan(geometry, mean_dtype(x.dtype, None), False, False)
    magnitude = _magnitude(x)
    result = _buffers.empty(geometry.output_shape, magnitude.dtype) if out is None else out
    if plan.compiled is not None:
        threads = threads_of(settings) if plan.parallel else 1
        plan.compiled.run(_guards.as_bytes(magnitude), _guards.as_bytes(result), None, threads)
    return np.maximum(result, 0, out=result)  # -inf is what a window without taps leaves; NaN stays


def lp_pool_backward(
    grad_output: npt.ArrayLike,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    norm_type: float,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    signed: bool = False,
    axes: int | Sequence[int] | None = None,
    out: Array | None = None,
    **options: Unpack[Options],
) -> Array:
    """Gradient of `lp_pool` by its input.

    Parameters
    ----------
    grad_output : array_like
        Gradient by the norms, of their shape; any integer or floating dtype.
    x, y : array_like
        Input and result of `lp_pool`.
    norm_type, kernel_size, stride, padding, dilation, ceil_mode, signed, axes
        What `lp_pool` was given.
    out, **options
        As in `avg_pool_backward`.

    Returns
    -------
    ndarray
        Of the shape of `x` and the dtype of `grad_output`; float64 for integers: ``sum over windows of grad_output *
        (|x| / y)**(p-1) * sign(x)``. Where y is 0 it is 0, and an element that is 0 gets 0. For ``norm_type=inf`` the
        gradient goes to the first element of the largest magnitude.

    Raises
    ------
    GeometryError
        If the shapes disagree, or as in `lp_pool`.
    DtypeError, ContiguityError
        As in `lp_pool`.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> x = np.array([3.0, -4.0])
    >>> fp.lp_pool_backward(np.ones(1), x, fp.lp_pool(x, 2, (2,)), 2, (2,))
    array([ 0.6, -0.8])
    """
    settings = resolve(options)
    p = _norm(norm_type, signed)
    array = _guards.as_input("x", x, settings)
    norms = _guards.as_input("y", y, settings)
    geometry = pooling_geometry(
        array.shape, kernel_size, stride, padding, dilation, ceil_mode, axes, padding_counts=True
    )
    grad = checked_gradient(grad_output, geometry.output_shape, "the norms", settings)
    _guards.check_shape("y", norms, geometry.output_shape, "the norms")
    dtype = mean_dtype(grad.dtype, None)
    if out is not None:
        _guards.check_out("out", out, array.shape, dtype, (grad_output, x, y, grad, array, norms))
    values = array.astype(np.float64, copy=False)
    scale = norms.astype(np.float64, copy=False)
    with np.errstate(all="ignore"):
        if math.isinf(p):
            slope = _slope_at_infinity(grad, array, geometry, settings)
        else:
            # y**(1-p) on the way back, and what belongs to an element afterwards
            weights = np.where(scale == 0, 0.0, grad.astype(np.float64) * np.power(scale, 1 - p))
            slope = spread(None, weights, geometry, "no", _FLOAT64, None, settings)
            if signed:
                local = np.power(values, p - 1)
            else:
                local = np.sign(values) * np.power(np.abs(values), p - 1)
            slope *= np.where(values == 0, 0.0, local) if p != 1 or not signed else 1.0
    if out is None:
        return slope.astype(dtype, copy=False)
    out[...] = slope
    return out


def _slope_at_infinity(grad: Array, x: Array, geometry: Geometry, settings: Settings) -> Array:
    plan = _plan.maximum_plan(geometry, _FLOAT64, False, True)
    magnitude = _magnitude(x).astype(np.float64, copy=False)
    largest = np.empty(geometry.output_shape)
    indices = np.empty(geometry.output_shape, np.int64)
    if plan.compiled is None:
        return np.zeros(x.shape)
    threads = threads_of(settings) if plan.parallel else 1
    plan.compiled.run(_guards.as_bytes(magnitude), _guards.as_bytes(largest), indices.reshape(-1), threads)
    real = largest >= 0  # a window without taps has no index
    indices[~real] = 0
    signs = np.sign(x.reshape(-1)[indices])
    weights = np.where(real, grad.astype(np.float64) * signs, 0.0)
    return max_pool_backward(weights, indices, x.shape, num_threads=settings.num_threads)  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------------------- adaptive and global


def adaptive_avg_pool(
    x: npt.ArrayLike,
    output_size: Any,
    *,
    dtype: npt.DTypeLike | None = None,
    axes: int | Sequence[int] | None = None,
    out: Array | None = None,
    **options: Unpack[Options],
) -> Array:
    """Average over windows that cut each axis into a given number of parts.

    Parameters
    ----------
    x : array_like
        Input of any dtype that `avg_pool` takes.
    output_size : tuple of int or None
        Number of outputs per pooled axis, the last ``len(output_size)`` axes or those that `axes` names; None keeps an
        axis as it is. An int needs `axes`. It may exceed the length of the axis.
    dtype, axes, out, **options
        As in `avg_pool`.

    Returns
    -------
    ndarray
        Window ``i`` of ``O`` over an axis of length ``L`` is ``[i*L // O, ceil((i+1)*L / O))``, in integers.

    Raises
    ------
    GeometryError
        If `output_size` is not positive, or the axes are not there.
    DtypeError, ContiguityError
        As in `avg_pool`.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.adaptive_avg_pool(np.arange(7.0), (3,))
    array([1., 3., 5.])
    """
    settings = resolve(options)
    array = _guards.as_input("x", x, settings)
    result = mean_dtype(array.dtype, dtype)
    geometry = adaptive_geometry(array.shape, output_size, axes)
    plan = _plan.sum_plan(geometry, array.dtype, result, "real")
    return run_sums(plan, x, array, result, out, settings)


def adaptive_avg_pool_backward(
    grad_output: npt.ArrayLike,
    input_shape: Sequence[int],
    *,
    axes: int | Sequence[int] | None = None,
    out: Array | None = None,
    **options: Unpack[Options],
) -> Array:
    """Gradient of `adaptive_avg_pool` by its input.

    Parameters
    ----------
    grad_output : array_like
        Gradient by the averages; any integer or floating dtype.
    input_shape : tuple of int
        Shape of the pooling's input.
    axes : int or tuple of int, optional
        The pooled axes. By default every axis, since an axis that kept its length is left as it is.
    out, **options
        As in `avg_pool_backward`.

    Returns
    -------
    ndarray
        Of `input_shape` and the dtype of `grad_output`; float64 for integers.

    Raises
    ------
    GeometryError
        If `grad_output` and `input_shape` differ in rank, or on an axis that is not pooled.
    DtypeError, ContiguityError
        As in `avg_pool_backward`.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.adaptive_avg_pool_backward(np.array([3.0, 3.0]), (3,))
    array([1.5, 3. , 1.5])
    """
    settings = resolve(options)
    shape = shape_tuple("input_shape", input_shape)
    grad = _guards.as_input("grad_output", grad_output, settings)
    if grad.ndim != len(shape):
        raise GeometryError(
            f"grad_output has {grad.ndim} dimensions {grad.shape}, input_shape has {len(shape)} {shape}"
        )
    positions = tuple(range(grad.ndim)) if axes is None else normalize_axes(axes, grad.ndim)
    if axes is None:
        positions = tuple(axis for axis in positions if grad.shape[axis] != shape[axis])
    for axis in positions:
        if grad.shape[axis] == 0 or shape[axis] == 0:
            raise GeometryError(
                f"axis {axis} has length {shape[axis]} and {grad.shape[axis]} outputs; both must be positive"
            )
    windows = {axis: adaptive_window(shape[axis], grad.shape[axis]) for axis in positions}
    geometry = Geometry.of(shape, windows)
    grad = checked_gradient(grad, geometry.output_shape, "the averages", settings._replace(check_finite="ignore"))
    return spread(grad_output, grad, geometry, "real", mean_dtype(grad.dtype, None), out, settings)


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
        Axes to reduce; all but the first two by default.
    keepdims : bool, optional
        Keep the reduced axes with length 1.
    dtype, **options
        As in `avg_pool`.

    Returns
    -------
    ndarray
        The averages.

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
    """
    settings = resolve(options)
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
        partial = sum_dtype(sums.dtype, None) if exact else _FLOAT64
        geometry = pooling_geometry(sums.shape, kernel, None, 0, 1, True, where)
        plan = _plan.sum_plan(geometry, sums.dtype, partial)
        sums = run_sums(plan, None, sums, partial, None, settings)
    geometry = pooling_geometry(sums.shape, [sums.shape[axis] for axis in where], None, 0, 1, False, where)
    plan = _plan.sum_plan(geometry, sums.dtype, result, count)
    return run_sums(plan, x, sums, result, None, settings).reshape(shape)


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
        If `grad_output` has not the shape of the averages.
    DtypeError
        As in `avg_pool_backward`.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.global_avg_pool_backward(np.array([[8.0]]), (1, 1, 2, 2))
    array([[[[2., 2.],
             [2., 2.]]]])
    """
    settings = resolve(options)
    shape = shape_tuple("input_shape", input_shape)
    reduced = reduced_axes(shape, axes)
    windows = {axis: adaptive_window(shape[axis], 1) for axis in reduced}
    geometry = Geometry.of(shape, windows)
    grad = _guards.as_input("grad_output", grad_output, settings)
    if grad.shape == tuple(n for axis, n in enumerate(shape) if axis not in reduced):
        grad = grad.reshape(geometry.output_shape)
    grad = checked_gradient(grad, geometry.output_shape, "the averages", settings._replace(check_finite="ignore"))
    return spread(grad_output, grad, geometry, "real", mean_dtype(grad.dtype, None), None, settings)
