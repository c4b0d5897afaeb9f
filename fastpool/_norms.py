"""Lp norms over windows, and their gradient."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from . import _guards, _plan
from ._extremes import run_maximum
from ._geometry import Geometry, pooling_geometry
from ._sums import FLOAT64, Array, checked_gradient, mean_dtype, run_sums, spread
from ._unpool import max_pool_backward
from .errors import GeometryError
from .options import Options, Settings, resolve

__all__ = ["lp_pool", "lp_pool_backward"]


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
    """Lp norm over windows of any number of axes: ``(sum(abs(x)**p)) ** (1/p)``.

    Parameters
    ----------
    x : array_like
        Input of any dtype that `avg_pool` takes.
    norm_type : float
        The exponent p, greater than 0; infinity gives the largest magnitude.
    kernel_size, stride, padding, dilation, ceil_mode, axes
        As in `max_pool`.
    signed : bool, optional
        Raise x itself and not its magnitude to the power, as PyTorch does. A power that is not real is NaN, and so is
        the root of a negative sum, but for p = 1. Infinity takes magnitudes all the same.
    out, **options
        As in `avg_pool`.

    Returns
    -------
    ndarray
        The norms, in the shape that `output_shape` tells, of the dtype of `x` if that is a float and float64 otherwise.
        A window of nothing but padding has norm 0.

    Raises
    ------
    GeometryError
        If `norm_type` is not greater than 0, or the arguments describe no window.
    DtypeError, ContiguityError
        As in `avg_pool`.

    Notes
    -----
    This is ONNX's LpPool; with `signed` it is PyTorch's. Powers are added up in float64, so that float32 does not
    overflow in between. In ceil mode the taps of a window that hangs over are those that exist (PyTorch scales their
    sum up to a whole window). For infinity a copy of the magnitudes is made.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.lp_pool(np.array([3.0, -4.0, 0.0, 2.0]), 2, (2,))
    array([5., 2.])
    >>> fp.lp_pool(np.array([3.0, -4.0, 0.0, 2.0]), np.inf, (2,))
    array([4., 2.])
    """
    settings = resolve(options, "lp_pool")
    p = _norm(norm_type, signed)
    array = _guards.as_input("x", x, settings)
    result = mean_dtype(array.dtype, None)
    if math.isinf(p):
        norms = _largest_magnitude(x, array, kernel_size, stride, padding, dilation, ceil_mode, axes, out, settings)
        return settings.record.done(norms)
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
    return settings.record.done(run_sums(plan, x, array, result, out, settings))


def _magnitude(x: Array, settings: Settings) -> Array:
    magnitude: Array = np.abs(x.astype(np.float64) if x.dtype.kind in "biu" else x)
    settings.record.step("kernel", magnitude)
    return magnitude


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
    """The norm at infinity; 0 for a window of nothing but padding."""
    geometry = pooling_geometry(x.shape, kernel_size, stride, padding, dilation, ceil_mode, axes, padding_counts=True)
    dtype = mean_dtype(x.dtype, None)
    if out is not None:
        _guards.check_out("out", out, geometry.output_shape, dtype, (given, x))
    # the maximum of half floats is taken from the input, where a window without taps has nothing to take
    magnitude = _magnitude(x, settings).astype(np.float32 if dtype.itemsize == 2 else dtype, copy=False)
    plan = _plan.maximum_plan(geometry, magnitude.dtype, False, False)
    direct = out if magnitude.dtype == dtype else None
    result: Array = run_maximum(plan, magnitude, False, direct, (given, x), settings)
    np.maximum(result, 0, out=result)  # -inf is what a window without taps leaves; NaN stays
    if result.dtype == dtype:
        return result
    if out is None:
        return result.astype(dtype)
    out[...] = result
    return out  # type: ignore[no-any-return]


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
        Input and result of `lp_pool`, of any dtype that it takes.
    norm_type, kernel_size, stride, padding, dilation, ceil_mode, signed, axes
        What `lp_pool` was given.
    out, **options
        As in `avg_pool_backward`.

    Returns
    -------
    ndarray
        Of the shape of `x` and the dtype of `grad_output`; float64 for integers.

    Raises
    ------
    GeometryError
        If the shapes disagree, or as in `lp_pool`.
    DtypeError, ContiguityError
        As in `avg_pool_backward`.

    Notes
    -----
    An element gets ``grad_output * (abs(x) / y)**(p - 1) * sign(x)`` of every window that holds it; with `signed`,
    ``grad_output * (x / y)**(p - 1)``. Windows of norm 0 give 0, and an element that is 0 gets 0, but for `signed` with
    p = 1, where the gradient is that of a sum. For infinity, ``grad_output * sign(x)`` goes to the first element of the
    largest magnitude. All is computed in float64, in a few arrays of the size of `x` and `y`.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> x = np.array([3.0, -4.0])
    >>> fp.lp_pool_backward(np.ones(1), x, fp.lp_pool(x, 2, (2,)), 2, (2,))
    array([ 0.6, -0.8])
    """
    settings = resolve(options, "lp_pool_backward")
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
    with np.errstate(all="ignore"):
        if math.isinf(p):
            slope = _slope_at_infinity(grad, array, geometry, settings)
        else:
            slope = _slope(p, bool(signed), grad, array, norms, geometry, settings)
    if out is None:
        result = slope.astype(dtype, copy=False)
        settings.record.step("write", result)
        return settings.record.done(result)
    out[...] = slope
    return settings.record.done(out)


def _slope(
    p: float, signed: bool, grad: Array, x: Array, norms: Array, geometry: Geometry, settings: Settings
) -> Array:
    """y**(1-p) on the way back, and afterwards x**(p-1), which belongs to an element."""
    weights = norms.astype(np.float64)
    zero = weights == 0
    np.power(weights, 1 - p, out=weights)
    weights *= grad
    weights[zero] = 0
    settings.record.step("kernel", weights, zero)
    slope = spread(None, weights, geometry, "no", FLOAT64, None, settings)
    if p == 1 and signed:
        return slope
    local = x.astype(np.float64)
    zero = local == 0
    if signed:
        np.power(local, p - 1, out=local)
    elif p == 1:
        np.sign(local, out=local)  # of NaN is NaN, unlike its power 0
    else:
        sign = local < 0
        np.abs(local, out=local)
        np.power(local, p - 1, out=local)
        np.negative(local, out=local, where=sign)
    local[zero] = 0
    slope *= local
    settings.record.step("kernel", local, zero)
    return slope


def _slope_at_infinity(grad: Array, x: Array, geometry: Geometry, settings: Settings) -> Array:
    """The gradient of every window at its first element of the largest magnitude, with the sign of that element."""
    plan = _plan.maximum_plan(geometry, FLOAT64, False, True)
    magnitude = _magnitude(x, settings).astype(np.float64, copy=False)
    largest, indices = run_maximum(plan, magnitude, True, None, (), settings)
    indices[largest < 0] = 0  # a window without taps has no index
    weights = np.sign(x.reshape(-1)[indices], dtype=np.float64)
    weights *= grad
    weights[largest <= 0] = 0
    settings.record.step("kernel", weights)
    slope: Array = max_pool_backward(
        weights, indices, x.shape, num_threads=settings.num_threads, check_finite="ignore", debug_mode=False
    )
    settings.record.step("kernel", slope)
    return slope
