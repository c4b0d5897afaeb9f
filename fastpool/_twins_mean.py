"""The slow twins of averages, sums and Lp norms, and of their ways back.

Averages and sums are exact: the elements of a window are added as fractions, divided, and rounded once to the dtype of
the result. The fast functions agree bit for bit on integers, and on floats within 4 ulp of the mean (or sum) of
``abs(x)``, since they round along the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from ._geometry import Geometry, integer, pooling_geometry, reduced_axes, shape_tuple
from ._twins import (
    Array,
    Windows,
    along_axes,
    as_array,
    check_flag,
    check_shape,
    exact_sum,
    is_floating,
    lattice,
    python_numbers,
    round_to,
    written,
)
from .errors import DtypeError, GeometryError

__all__ = [
    "avg_pool",
    "avg_pool_backward",
    "global_avg_pool",
    "global_avg_pool_backward",
    "lp_pool",
    "lp_pool_backward",
    "sum_pool",
    "sum_pool_backward",
]

# How many elements the sum over a window is divided by, from the position of its output.
Divisor = Callable[[tuple[int, ...]], int]


# ---- what averages and sums share


def mean_dtype(given: np.dtype[Any], asked: Any = None) -> np.dtype[Any]:
    """The dtype of averages: that of floats, float64 of integers, or what is asked for."""
    if asked is not None:
        return _asked_dtype(given, asked)
    return given if is_floating(given) else np.dtype(np.float64)


def sum_dtype(given: np.dtype[Any], asked: Any = None) -> np.dtype[Any]:
    """The dtype of sums: that of floats, 64 bits of integers, or what is asked for."""
    if asked is not None:
        return _asked_dtype(given, asked)
    return given if is_floating(given) else np.dtype(np.uint64 if given.kind == "u" else np.int64)


def _asked_dtype(given: np.dtype[Any], asked: Any) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(asked).newbyteorder("=")
    except TypeError as error:
        raise DtypeError(f"dtype={asked!r} is not a dtype") from error
    if dtype.kind not in "iu" and not (is_floating(dtype) and dtype.itemsize <= 8):
        raise DtypeError(f"dtype={dtype} cannot hold a mean or a sum")
    if dtype.kind in "iu" and is_floating(given):
        raise DtypeError(f"dtype={dtype} cannot hold means or sums of {given}")
    return dtype


def sums(array: Array, windows: Windows, divisor: Divisor, dtype: np.dtype[Any], out: Any = None) -> Array:
    """The sum over every window, divided, and rounded once."""
    numbers = dict(zip(np.ndindex(*array.shape), python_numbers(array.ravel()), strict=True))
    result = np.empty(windows.output_shape, dtype)
    for position in np.ndindex(*windows.output_shape):
        total = exact_sum(numbers[tap] for tap in windows.at(position))
        result[position] = round_to(total / divisor(position), dtype)
    return written(result, out)


def sums_backward(grad: Array, windows: Windows, divisor: Divisor, dtype: np.dtype[Any], out: Any = None) -> Array:
    """Every output gives each element of its window its gradient, divided; an element adds up what it is given."""
    check_shape("grad_output", grad, windows.output_shape)
    shares: dict[tuple[int, ...], list[Any]] = {}
    for position, number in zip(np.ndindex(*grad.shape), python_numbers(grad.ravel()), strict=True):
        share = Fraction(number) / divisor(position) if math.isfinite(number) else number
        for tap in windows.at(position):
            shares.setdefault(tap, []).append(share)
    result = np.zeros(windows.input_shape, dtype)
    for tap, given in shares.items():
        result[tap] = round_to(exact_sum(given), dtype)
    return written(result, out)


def one(position: tuple[int, ...]) -> int:
    """The divisor of sums."""
    return 1


def taps_of(windows: Windows) -> Divisor:
    """The divisor of averages over the elements of a window."""
    return lambda position: math.prod(len(along[o]) for along, o in zip(windows.taps, position, strict=True))


def _average_divisor(geometry: Geometry, count_include_pad: Any, divisor_override: Any) -> Divisor:
    check_flag("count_include_pad", count_include_pad)
    if divisor_override is not None:
        override = integer("divisor_override", divisor_override)
        if override < 1:
            raise GeometryError(f"divisor_override is {override}; it must be at least 1")
        return lambda _: override

    def counted(position: tuple[int, ...]) -> int:
        count = 1
        for axis, window in along_axes(geometry):
            # Padding counts if it is asked to; what hangs over the padding in ceil mode never does.
            before, after = (window.before, window.after) if count_include_pad else (0, 0)
            count *= len(lattice(window, position[axis], -before, window.length + after))
        return count

    return counted


def as_gradient(grad_output: npt.ArrayLike) -> Array:
    """A gradient that can be added up."""
    grad = as_array("grad_output", grad_output)
    if grad.dtype.kind == "b":
        raise DtypeError("grad_output is boolean, and booleans do not add up")
    return grad


# ---- averages


def avg_pool(
    x: npt.ArrayLike,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
    dtype: Any = None,
    axes: Any = None,
    out: Any = None,
    **options: Any,
) -> Array:
    """Average of every window: the slow twin of `fastpool.avg_pool`.

    Parameters
    ----------
    x, kernel_size, stride, padding, dilation, ceil_mode, count_include_pad, divisor_override, dtype, axes, out
        As in `fastpool.avg_pool`.
    **options
        Accepted and ignored: they change how the result is computed, not the result.

    Returns
    -------
    ndarray
        The sum over each window, divided by `divisor_override`, by the taps that lie on elements or padding, or by
        those that lie on elements, and rounded once.

    Raises
    ------
    GeometryError
        If the windows are not possible; with ``count_include_pad=False``, if one of them has no tap inside the input.
    DtypeError
        If `x` or `dtype` is not taken.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.avg_pool([1.0, 2, 3, 4, 5], (2,), ceil_mode=True)
    array([1.5, 3.5, 5. ])
    >>> testing.avg_pool([1, 2, 4], (2,), stride=1, dtype=int)
    array([2, 3])
    """
    array = as_array("x", x)
    real = not count_include_pad and divisor_override is None
    geometry = pooling_geometry(
        array.shape, kernel_size, stride, padding, dilation, ceil_mode, axes, padding_counts=not real
    )
    divisor = _average_divisor(geometry, count_include_pad, divisor_override)
    return sums(array, Windows.strided(geometry), divisor, mean_dtype(array.dtype, dtype), out)


def avg_pool_backward(
    grad_output: npt.ArrayLike,
    input_shape: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
    axes: Any = None,
    out: Any = None,
    **options: Any,
) -> Array:
    """Gradient of `avg_pool`: the slow twin of `fastpool.avg_pool_backward`.

    Parameters
    ----------
    grad_output, input_shape, kernel_size, stride, padding, dilation
        As in `fastpool.avg_pool_backward`.
    ceil_mode, count_include_pad, divisor_override, axes, out
        As in `fastpool.avg_pool_backward`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray
        For every element, the sum of the gradients of the windows that hold it, each divided as in `avg_pool`.

    Raises
    ------
    GeometryError
        As `avg_pool`, and if `grad_output` has another shape than the averages.
    DtypeError
        If `grad_output` is not numeric.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.avg_pool_backward([4.0, 2.0], (3,), (2,), stride=1)
    array([2., 3., 1.])
    """
    grad = as_gradient(grad_output)
    real = not count_include_pad and divisor_override is None
    shape = shape_tuple("input_shape", input_shape)
    geometry = pooling_geometry(shape, kernel_size, stride, padding, dilation, ceil_mode, axes, padding_counts=not real)
    divisor = _average_divisor(geometry, count_include_pad, divisor_override)
    return sums_backward(grad, Windows.strided(geometry), divisor, mean_dtype(grad.dtype), out)


# ---- sums


def sum_pool(
    x: npt.ArrayLike,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    dtype: Any = None,
    axes: Any = None,
    out: Any = None,
    **options: Any,
) -> Array:
    """Sum over every window: the slow twin of `fastpool.sum_pool`.

    Parameters
    ----------
    x, kernel_size, stride, padding, dilation, ceil_mode, dtype, axes, out
        As in `fastpool.sum_pool`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray
        The sums, rounded once; integers wrap around. A window of nothing but padding sums to 0.

    Raises
    ------
    GeometryError, DtypeError
        As `avg_pool`.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.sum_pool([100, 100, 100], (2,), stride=1, dtype="int8")
    array([-56, -56], dtype=int8)
    """
    array = as_array("x", x)
    geometry = pooling_geometry(
        array.shape, kernel_size, stride, padding, dilation, ceil_mode, axes, padding_counts=True
    )
    return sums(array, Windows.strided(geometry), one, sum_dtype(array.dtype, dtype), out)


def sum_pool_backward(
    grad_output: npt.ArrayLike,
    input_shape: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    axes: Any = None,
    out: Any = None,
    **options: Any,
) -> Array:
    """Gradient of `sum_pool`: the slow twin of `fastpool.sum_pool_backward`.

    Parameters
    ----------
    grad_output, input_shape, kernel_size, stride, padding, dilation, ceil_mode, axes, out
        As in `fastpool.sum_pool_backward`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray
        For every element, the sum of the gradients of the windows that hold it.

    Raises
    ------
    GeometryError, DtypeError
        As `avg_pool_backward`.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.sum_pool_backward([4.0, 2.0], (3,), (2,), stride=1)
    array([4., 6., 2.])
    """
    grad = as_gradient(grad_output)
    shape = shape_tuple("input_shape", input_shape)
    geometry = pooling_geometry(shape, kernel_size, stride, padding, dilation, ceil_mode, axes, padding_counts=True)
    return sums_backward(grad, Windows.strided(geometry), one, sum_dtype(grad.dtype), out)


# ---- Lp norms


def _norm(norm_type: Any) -> float:
    if isinstance(norm_type, (bool, np.bool_, str, bytes)):
        raise GeometryError(f"norm_type must be a number, got {norm_type!r}")
    try:
        p = float(norm_type)
    except (TypeError, ValueError, OverflowError) as error:
        raise GeometryError(f"norm_type must be a number, got {norm_type!r}") from error
    if not p > 0:  # NaN is refused too
        raise GeometryError(f"norm_type is {p}; it must be greater than 0")
    return p


def _power(base: float, exponent: float) -> float:
    """A power in float64, NaN where it is not a real number."""
    with np.errstate(all="ignore"):
        return float(np.power(np.float64(base), np.float64(exponent)))


def lp_pool(
    x: npt.ArrayLike,
    norm_type: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    signed: bool = False,
    axes: Any = None,
    out: Any = None,
    **options: Any,
) -> Array:
    """Lp norm of every window: the slow twin of `fastpool.lp_pool`.

    Parameters
    ----------
    x, norm_type, kernel_size, stride, padding, dilation, ceil_mode, signed, axes, out
        As in `fastpool.lp_pool`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray
        The root of the sum of powers, in float64 and rounded to the dtype of the result. A window of nothing but
        padding has norm 0.

    Raises
    ------
    GeometryError
        If `norm_type` is not greater than 0, or as `avg_pool`.
    DtypeError
        If `x` is not taken.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.lp_pool([3.0, -4.0, 0.0, 2.0], 2, (2,))
    array([5., 2.])
    """
    array = as_array("x", x)
    p = _norm(norm_type)
    check_flag("signed", signed)
    geometry = pooling_geometry(
        array.shape, kernel_size, stride, padding, dilation, ceil_mode, axes, padding_counts=True
    )
    windows = Windows.strided(geometry)
    numbers = array.astype(np.float64)
    result = np.empty(windows.output_shape, np.float64)
    for position in np.ndindex(*windows.output_shape):
        taps = [float(numbers[tap]) for tap in windows.at(position)]
        if math.isinf(p):
            magnitudes = [abs(tap) for tap in taps]
            result[position] = math.nan if any(map(math.isnan, taps)) else max(magnitudes, default=0.0)
        else:
            powers = [_power(tap if signed else abs(tap), p) for tap in taps]
            result[position] = _power(round_to(exact_sum(powers), result.dtype), 1 / p)
    with np.errstate(over="ignore"):
        return written(result.astype(mean_dtype(array.dtype)), out)


def lp_pool_backward(
    grad_output: npt.ArrayLike,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    norm_type: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    signed: bool = False,
    axes: Any = None,
    out: Any = None,
    **options: Any,
) -> Array:
    """Gradient of `lp_pool`: the slow twin of `fastpool.lp_pool_backward`.

    Parameters
    ----------
    grad_output, x, y, norm_type, kernel_size, stride, padding, dilation, ceil_mode, signed, axes, out
        As in `fastpool.lp_pool_backward`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray
        For every element the sum over its windows of ``grad * (|x| / y)**(p-1) * sign(x)``, or, `signed`, of
        ``grad * (x / y)**(p-1)``. A norm of 0 gives nothing. For ``norm_type=inf`` the first element of the largest
        magnitude takes all.

    Raises
    ------
    GeometryError
        As `lp_pool`, and if `grad_output` or `y` has another shape than the norms.
    DtypeError
        If an array is not taken.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.lp_pool_backward([1.0], [3.0, -4.0], [5.0], 2, (2,))
    array([ 0.6, -0.8])
    """
    grad, array, norms = as_gradient(grad_output), as_array("x", x), as_array("y", y)
    p = _norm(norm_type)
    check_flag("signed", signed)
    geometry = pooling_geometry(
        array.shape, kernel_size, stride, padding, dilation, ceil_mode, axes, padding_counts=True
    )
    windows = Windows.strided(geometry)
    check_shape("grad_output", grad, windows.output_shape)
    check_shape("y", norms, windows.output_shape)
    slopes: dict[tuple[int, ...], list[float]] = {}
    for position in np.ndindex(*windows.output_shape):
        g, norm = float(grad[position]), float(norms[position])
        for tap, slope in _slopes(array, list(windows.at(position)), norm, p, signed):
            slopes.setdefault(tap, []).append(g * slope)
    result = np.zeros(array.shape, np.float64)
    for tap, given in slopes.items():
        result[tap] = round_to(exact_sum(given), result.dtype)
    with np.errstate(over="ignore"):
        return written(result.astype(mean_dtype(grad.dtype)), out)


def _slopes(
    x: Array, taps: list[tuple[int, ...]], norm: float, p: float, signed: bool
) -> Iterator[tuple[tuple[int, ...], float]]:
    """The derivative of one norm by each element of its window, where it is not 0."""
    if norm == 0 or not taps:
        return
    if math.isinf(p):
        numbers = [float(x[tap]) for tap in taps]
        nan = [math.isnan(number) for number in numbers]
        first = nan.index(True) if any(nan) else max(range(len(taps)), key=lambda i: abs(numbers[i]))
        yield taps[first], math.nan if nan[first] else float(np.sign(numbers[first]))
    else:
        for tap in taps:
            number = float(x[tap])
            if signed:
                # 0**0 is 1, but the infinite slope of a root at 0 is left out
                yield tap, 0.0 if number == 0 and p != 1 else _power(number / norm, p - 1)
            else:
                yield tap, 0.0 if number == 0 else _power(abs(number) / norm, p - 1) * math.copysign(1, number)


# ---- whole axes


def global_avg_pool(
    x: npt.ArrayLike,
    *,
    axes: Any = None,
    keepdims: bool = True,
    dtype: Any = None,
    **options: Any,
) -> Array:
    """Average over whole axes: the slow twin of `fastpool.global_avg_pool`.

    Parameters
    ----------
    x, axes, keepdims, dtype
        As in `fastpool.global_avg_pool`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray
        One average per leading index.

    Raises
    ------
    GeometryError
        If there is nothing to reduce.
    DtypeError
        If `x` or `dtype` is not taken.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.global_avg_pool([[1, 5], [7, 0]], axes=1, keepdims=False)
    array([3. , 3.5])
    """
    array = as_array("x", x)
    reduced = reduced_axes(array.shape, axes)
    windows = Windows.of(array.shape, {axis: [range(array.shape[axis])] for axis in reduced})
    result = sums(array, windows, taps_of(windows), mean_dtype(array.dtype, dtype))
    return result if keepdims else result.squeeze(reduced)


def global_avg_pool_backward(
    grad_output: npt.ArrayLike, input_shape: Any, *, axes: Any = None, **options: Any
) -> Array:
    """Gradient of `global_avg_pool`: the slow twin of `fastpool.global_avg_pool_backward`.

    Parameters
    ----------
    grad_output, input_shape, axes
        As in `fastpool.global_avg_pool_backward`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray
        The gradient of each average, divided evenly among its elements.

    Raises
    ------
    GeometryError
        If `grad_output` has not the shape of the averages, with or without the reduced axes.
    DtypeError
        If `grad_output` is not numeric.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.global_avg_pool_backward([3.0, 6.0], (2, 3), axes=1).tolist()
    [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    """
    grad = as_gradient(grad_output)
    shape = shape_tuple("input_shape", input_shape)
    reduced = reduced_axes(shape, axes)
    windows = Windows.of(shape, {axis: [range(shape[axis])] for axis in reduced})
    if grad.shape == tuple(length for axis, length in enumerate(shape) if axis not in reduced):
        grad = grad.reshape(windows.output_shape)
    return sums_backward(grad, windows, taps_of(windows), mean_dtype(grad.dtype))
