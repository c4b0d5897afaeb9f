"""The slow twins of pooling that picks one element of every window, of its way back, and of names of indices."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ._geometry import integer, pooling_geometry, reduced_axes, shape_tuple
from ._results import Pooled, SparseGradient
from ._twins import Array, Windows, as_array, as_indices, flat_index, is_floating, python_numbers, written
from .errors import DtypeError, GeometryError, IndexOutOfBoundsError

__all__ = [
    "convert_indices",
    "global_max_pool",
    "max_pool",
    "max_pool_backward",
    "max_unpool",
    "max_unpool_backward",
    "min_pool",
]


# ---- maximum and minimum


def extremes(
    array: Array, windows: Windows, is_better: Callable[[Any, Any], bool], return_indices: bool, out: Any = None
) -> Array | Pooled:
    """The best tap of every window. Comparing elements is all that maxima of any windows have in common."""
    flat = array.ravel()  # C order of the logical array, whatever the memory order
    numbers = python_numbers(flat)
    indices = np.empty(windows.output_shape, np.int64)
    for position in np.ndindex(*windows.output_shape):
        best = -1
        for tap in windows.at(position):
            index = flat_index(tap, array.shape)
            if best < 0 or _replaces(numbers[index], numbers[best], is_better):
                best = index
        indices[position] = best
    values = flat[indices]  # gathered, so that no bit of a value changes
    if not return_indices:
        return written(values, out)
    return Pooled(*map(written, (values, indices), (None, None) if out is None else out))


def _replaces(number: Any, best: Any, is_better: Callable[[Any, Any], bool]) -> bool:
    """Whether a later tap takes over. The first of equal taps stays, and so does the first NaN."""
    if best != best:  # NaN
        return False
    return number != number or is_better(number, best)


def max_pool(
    x: npt.ArrayLike,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    axes: Any = None,
    return_indices: bool = False,
    out: Any = None,
    **options: Any,
) -> Array | Pooled:
    """Maximum of every window: the slow twin of `fastpool.max_pool`.

    Parameters
    ----------
    x, kernel_size, stride, padding, dilation, ceil_mode, axes, return_indices, out
        As in `fastpool.max_pool`.
    **options
        Accepted and ignored: they change how the result is computed, not the result.

    Returns
    -------
    ndarray, or Pooled(values, indices)
        The maxima, and where `return_indices` asks for it their flat indices.

    Raises
    ------
    GeometryError
        If the windows are not possible, or one of them has no tap inside the input.
    DtypeError
        If `x` does not hold booleans, integers or floats of at most 64 bits.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.max_pool([1, 5, 2, 2, 0, 3], (2,), return_indices=True)
    Pooled(values=array([5, 2, 3]), indices=array([1, 2, 5]))
    """
    array = as_array("x", x)
    geometry = pooling_geometry(array.shape, kernel_size, stride, padding, dilation, ceil_mode, axes)
    return extremes(array, Windows.strided(geometry), operator.gt, return_indices, out)


def min_pool(
    x: npt.ArrayLike,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    axes: Any = None,
    return_indices: bool = False,
    out: Any = None,
    **options: Any,
) -> Array | Pooled:
    """Minimum of every window: the slow twin of `fastpool.min_pool`.

    Parameters
    ----------
    x, kernel_size, stride, padding, dilation, ceil_mode, axes, return_indices, out
        As in `fastpool.min_pool`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray, or Pooled(values, indices)
        The minima, and where `return_indices` asks for it their flat indices.

    Raises
    ------
    GeometryError, DtypeError
        As `max_pool`.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.min_pool([1, 5, 2, 2, 0, 3], (2,), return_indices=True)
    Pooled(values=array([1, 2, 0]), indices=array([0, 2, 4]))
    """
    array = as_array("x", x)
    geometry = pooling_geometry(array.shape, kernel_size, stride, padding, dilation, ceil_mode, axes)
    return extremes(array, Windows.strided(geometry), operator.lt, return_indices, out)


def global_max_pool(
    x: npt.ArrayLike,
    *,
    axes: Any = None,
    keepdims: bool = True,
    return_indices: bool = False,
    **options: Any,
) -> Array | Pooled:
    """Maximum over whole axes: the slow twin of `fastpool.global_max_pool`.

    Parameters
    ----------
    x, axes, keepdims, return_indices
        As in `fastpool.global_max_pool`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray, or Pooled(values, indices)
        One maximum per leading index, and where `return_indices` asks for it their flat indices.

    Raises
    ------
    GeometryError, DtypeError
        As `max_pool`.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.global_max_pool([[1, 5, 2], [7, 0, 7]], axes=1, keepdims=False, return_indices=True)
    Pooled(values=array([5, 7]), indices=array([1, 3]))
    """
    array = as_array("x", x)
    # One window per axis, as long as the axis.
    reduced = reduced_axes(array.shape, axes)
    windows = Windows.of(array.shape, {axis: [range(array.shape[axis])] for axis in reduced})
    pooled = extremes(array, windows, operator.gt, return_indices)
    if keepdims:
        return pooled
    if isinstance(pooled, Pooled):
        return Pooled(pooled.values.squeeze(reduced), pooled.indices.squeeze(reduced))
    return pooled.squeeze(reduced)


def max_pool_backward(
    grad_output: npt.ArrayLike,
    indices: npt.ArrayLike,
    input_shape: Any,
    *,
    sparse: bool = False,
    out: Any = None,
    **options: Any,
) -> Array | SparseGradient:
    """Gradient of every pooling that returns indices: the slow twin of `fastpool.max_pool_backward`.

    Each output was a copy of one input element, so its gradient belongs to that element alone. Where windows
    overlap an element may have been chosen several times: its gradients are added, in C order of the outputs.
    Half precision is added in float32 and rounded once at the end.

    Parameters
    ----------
    grad_output, indices, input_shape, sparse, out
        As in `fastpool.max_pool_backward`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray, or SparseGradient(indices, values)
        The gradient in the shape of the input, or its touched positions alone.

    Raises
    ------
    IndexOutOfBoundsError
        If an index does not lie inside the input.
    GeometryError
        If `grad_output` and `indices` differ in shape.
    DtypeError
        If `grad_output` is not numeric, or `indices` are not int64 or int32.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.max_pool_backward([1.0, 2.0, 4.0], [0, 2, 2], (4,))
    array([1., 0., 6., 0.])
    >>> testing.max_pool_backward([1.0, 2.0, 4.0], [0, 2, 2], (4,), sparse=True)
    SparseGradient(indices=array([0, 2]), values=array([1., 6.]))
    """
    grad = as_array("grad_output", grad_output)
    if grad.dtype.kind == "b":
        raise DtypeError("grad_output is boolean, and booleans do not add up")
    shape = shape_tuple("input_shape", input_shape)
    where = as_indices(indices, grad.shape, "grad_output", math.prod(shape))

    half = grad.dtype.itemsize == 2 and is_floating(grad.dtype)
    terms = grad.ravel().astype(np.float32 if half else grad.dtype)
    total: dict[int, Any] = {}
    with np.errstate(all="ignore"):  # integers wrap, floats may reach infinity
        for index, term in zip(where.ravel().tolist(), terms, strict=True):
            total[index] = total.get(index, terms.dtype.type(0)) + term
        touched = np.array(sorted(total), np.int64)
        values = np.array([total[index] for index in touched.tolist()], terms.dtype).astype(grad.dtype)
    if sparse:
        return SparseGradient(touched, values)
    result = np.zeros(math.prod(shape), grad.dtype)
    result[touched] = values
    return written(result.reshape(shape), out)


# ---- unpooling


def max_unpool(
    values: npt.ArrayLike,
    indices: npt.ArrayLike,
    output_shape: Any,
    *,
    out: Any = None,
    **options: Any,
) -> Array:
    """Put values back to where they came from, and zero elsewhere: the slow twin of `fastpool.max_unpool`.

    Parameters
    ----------
    values, indices, output_shape, out
        As in `fastpool.max_unpool`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray
        An array of `output_shape`. Where an index occurs several times, the last value in C order stands.

    Raises
    ------
    IndexOutOfBoundsError
        If an index does not lie inside `output_shape`.
    GeometryError
        If `values` and `indices` differ in shape.
    DtypeError
        If `values` have a dtype that pooling does not take, or `indices` are not int64 or int32.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.max_unpool([5, 7, 8], [1, 3, 3], (4,))
    array([0, 5, 0, 8])
    """
    array = as_array("values", values)
    shape = shape_tuple("output_shape", output_shape)
    where = as_indices(indices, array.shape, "values", math.prod(shape))
    result = np.zeros(math.prod(shape), array.dtype)
    for index, value in zip(where.ravel().tolist(), array.ravel(), strict=True):
        result[index] = value
    return written(result.reshape(shape), out)


def max_unpool_backward(grad_output: npt.ArrayLike, indices: npt.ArrayLike, **options: Any) -> Array:
    """Gradient of `max_unpool`: the slow twin of `fastpool.max_unpool_backward`.

    Parameters
    ----------
    grad_output, indices
        As in `fastpool.max_unpool_backward`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray
        For every value that was put back, the gradient at its place.

    Raises
    ------
    IndexOutOfBoundsError
        If an index does not lie inside `grad_output`.
    DtypeError
        If `grad_output` is not numeric, or `indices` are not int64 or int32.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.max_unpool_backward([0.1, 0.2, 0.3, 0.4], [1, 3])
    array([0.2, 0.4])
    """
    grad = as_array("grad_output", grad_output)
    where = as_indices(indices, None, "", grad.size)
    flat = grad.ravel()
    result = np.empty(where.shape, grad.dtype)
    for position in np.ndindex(*where.shape):
        result[position] = flat[where[position]]
    return result


# ---- names of indices


def convert_indices(
    indices: npt.ArrayLike,
    input_shape: Any,
    spatial_ndim: int,
    *,
    to: str = "flat",
    frm: str = "flat",
    channels_last: bool | None = None,
) -> npt.NDArray[np.int64]:
    """Rename positions of maxima: the slow twin of `fastpool.convert_indices`.

    Parameters
    ----------
    indices, input_shape, spatial_ndim, to, frm, channels_last
        As in `fastpool.convert_indices`.

    Returns
    -------
    ndarray of int64
        The new names, in the shape of `indices`.

    Raises
    ------
    IndexOutOfBoundsError
        If an index does not exist in the numbering `frm`.
    GeometryError
        If a name is not known.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.convert_indices([[[5]], [[11]]], (2, 2, 3), 2, to="onnx_column_major").tolist()
    [[[5]], [[11]]]
    >>> testing.convert_indices([[[1]], [[7]]], (2, 2, 3), 2, to="onnx_column_major").tolist()
    [[[2]], [[8]]]
    """
    given = np.asarray(indices)
    shape = shape_tuple("input_shape", input_shape)
    if channels_last is None:
        channels_last = to.startswith("tensorflow") or frm.startswith("tensorflow")
    spatial_ndim = integer("spatial_ndim", spatial_ndim)
    needed = spatial_ndim + (1 if channels_last or "tensorflow" in to + frm else 0)
    if not 1 <= spatial_ndim <= needed <= len(shape):
        raise GeometryError(f"an input of shape {shape} does not have {spatial_ndim} spatial axes")
    # Give every element of the input its name in both numberings, the long way round.
    names = {
        element: [_name(element, shape, spatial_ndim, way, channels_last) for way in (frm, to)]
        for element in np.ndindex(*shape)
    }
    fixed = _uncounted_axes(frm, len(shape), spatial_ndim, channels_last)
    if any(given.ndim != len(shape) or given.shape[axis] != shape[axis] for axis in fixed):
        raise GeometryError(f'"{frm}" does not count axes {fixed}, where indices must be as long as the input')
    result = np.empty(given.shape, np.int64)
    for position in np.ndindex(*given.shape):
        # An axis that the numbering does not count is known from where the index stands.
        found = [
            new
            for element, (old, new) in names.items()
            if old == given[position] and all(element[axis] == position[axis] for axis in fixed)
        ]
        if not found:
            raise IndexOutOfBoundsError(f'indices{list(position)} is {given[position]}, no number in "{frm}"')
        result[position] = found[0]
    return result


def _name(
    element: tuple[int, ...], shape: tuple[int, ...], spatial_ndim: int, numbering: str, channels_last: bool
) -> int:
    """Number of one element of the input in a numbering."""
    if numbering == "flat":
        return flat_index(element, shape)
    if channels_last:
        batch, spatial, channel = element[: -spatial_ndim - 1], element[-spatial_ndim - 1 : -1], element[-1]
        n, lengths, channels = shape[: -spatial_ndim - 1], shape[-spatial_ndim - 1 : -1], shape[-1]
    else:
        # A missing channel axis is one of length 1.
        element, shape = (0, *element), (1, *shape)
        batch, channel, spatial = (
            element[: -spatial_ndim - 1],
            element[-spatial_ndim - 1],
            element[-spatial_ndim:],
        )
        n, channels, lengths = shape[: -spatial_ndim - 1], shape[-spatial_ndim - 1], shape[-spatial_ndim:]
    if numbering == "plane":
        return flat_index(spatial, lengths)
    if numbering == "onnx_column_major":
        return flat_index((*batch, channel, *spatial[::-1]), (*n, channels, *lengths[::-1]))
    if numbering == "tensorflow":
        return flat_index((*spatial, channel), (*lengths, channels))
    if numbering == "tensorflow_batch":
        return flat_index((*batch, *spatial, channel), (*n, *lengths, channels))
    raise GeometryError(f"{numbering!r} is not a numbering of indices")


def _uncounted_axes(numbering: str, ndim: int, spatial_ndim: int, channels_last: bool) -> tuple[int, ...]:
    """Axes of the input that the numbers say nothing about."""
    if numbering == "plane":
        return (*range(ndim - spatial_ndim - 1), ndim - 1) if channels_last else tuple(range(ndim - spatial_ndim))
    if numbering == "tensorflow":
        return tuple(range(ndim - spatial_ndim - 1))
    return ()
