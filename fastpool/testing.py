"""What the functions of fastpool mean, as plain loops; and a check of gradients.

Every function here has the name and the arguments of the fast one and gives the same bits, slowly. It is
the reference that the tests hold the compiled kernels to, and a place to read how pooling works: `_taps`
finds the elements of a window, `_extreme_pool` picks one, and the backward passes send values along indices.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._geometry import Geometry, integer, normalize_axes, pooling_geometry, shape_tuple
from ._results import Pooled, SparseGradient
from .errors import DtypeError, GeometryError, IndexOutOfBoundsError

__all__ = [
    "convert_indices",
    "global_max_pool",
    "gradcheck",
    "max_pool",
    "max_pool_backward",
    "max_unpool",
    "max_unpool_backward",
    "min_pool",
]

Array = npt.NDArray[Any]


# ---- windows


def _taps(output_position: tuple[int, ...], geometry: Geometry) -> Iterator[tuple[int, ...]]:
    """Positions in the input of the real taps of one window, in C order. Taps on padding are left out."""
    along: list[Sequence[int]] = [(place,) for place in output_position]  # without windows: the same place
    for axis, window in zip(geometry.axes, geometry.windows, strict=True):
        # The lattice of the window starts here, perhaps left of the input, and is never moved.
        start = output_position[axis] * window.stride - window.before
        stop = start + window.kernel * window.dilation
        on_padding = max(0, -(start // window.dilation))  # taps left of element 0
        inside = range(start + on_padding * window.dilation, min(stop, window.length), window.dilation)
        along[axis] = [window.crop + place for place in inside]
    return itertools.product(*along)


def _flat_index(position: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Place of an element in the C-order raveled array."""
    index = 0
    for place, length in zip(position, shape, strict=True):
        index = index * length + place
    return index


# ---- maximum and minimum


def _extreme_pool(
    x: npt.ArrayLike,
    is_better: Callable[[Any, Any], bool],
    geometry_arguments: tuple[Any, ...],
    return_indices: bool,
    out: Any,
) -> Array | Pooled:
    array = _as_array("x", x)
    geometry = pooling_geometry(array.shape, *geometry_arguments)
    flat = array.ravel()  # C order of the logical array, whatever the memory order
    numbers = _python_numbers(flat)
    indices = np.empty(geometry.output_shape, np.int64)
    for position in np.ndindex(*geometry.output_shape):
        best = -1
        for tap in _taps(position, geometry):
            index = _flat_index(tap, array.shape)
            if best < 0 or _replaces(numbers[index], numbers[best], is_better):
                best = index
        indices[position] = best
    values = flat[indices]  # gathered, so that no bit of a value changes
    if not return_indices:
        return _written(values, out)
    return Pooled(*map(_written, (values, indices), (None, None) if out is None else out))


def _replaces(number: Any, best: Any, is_better: Callable[[Any, Any], bool]) -> bool:
    """Whether a later tap takes over. The first of equal taps stays, and so does the first NaN."""
    if best != best:  # NaN
        return False
    return number != number or is_better(number, best)


def _python_numbers(flat: Array) -> list[Any]:
    """Python integers, which are exact at any width, or Python floats, which hold every smaller float."""
    numbers: list[Any] = (flat if flat.dtype.kind in "biu" else flat.astype(np.float64)).tolist()
    return numbers


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
    geometry = (kernel_size, stride, padding, dilation, ceil_mode, axes)
    return _extreme_pool(x, lambda a, b: a > b, geometry, return_indices, out)


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
    geometry = (kernel_size, stride, padding, dilation, ceil_mode, axes)
    return _extreme_pool(x, lambda a, b: a < b, geometry, return_indices, out)


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
    array = _as_array("x", x)
    if axes is None:
        if array.ndim < 3:
            raise GeometryError(f"x has shape {array.shape}: no axis is left after the first two; use axes=")
        axes = tuple(range(2, array.ndim))
    # One window per axis, as long as the axis.
    places = normalize_axes(axes, array.ndim)
    kernel = tuple(array.shape[axis] for axis in places)
    pooled = max_pool(array, kernel, axes=places, return_indices=return_indices)
    if keepdims:
        return pooled
    if isinstance(pooled, Pooled):
        return Pooled(pooled.values.squeeze(places), pooled.indices.squeeze(places))
    return pooled.squeeze(places)


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
    grad = _as_array("grad_output", grad_output)
    if grad.dtype.kind == "b":
        raise DtypeError("grad_output is boolean, and booleans do not add up")
    shape = shape_tuple("input_shape", input_shape)
    where = _as_indices(indices, grad.shape, "grad_output", math.prod(shape))

    half = grad.dtype.itemsize == 2 and _is_floating(grad)
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
    return _written(result.reshape(shape), out)


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
    array = _as_array("values", values)
    shape = shape_tuple("output_shape", output_shape)
    where = _as_indices(indices, array.shape, "values", math.prod(shape))
    result = np.zeros(math.prod(shape), array.dtype)
    for index, value in zip(where.ravel().tolist(), array.ravel(), strict=True):
        result[index] = value
    return _written(result.reshape(shape), out)


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
    grad = _as_array("grad_output", grad_output)
    where = _as_indices(indices, None, "", grad.size)
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
        return _flat_index(element, shape)
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
        return _flat_index(spatial, lengths)
    if numbering == "onnx_column_major":
        return _flat_index((*batch, channel, *spatial[::-1]), (*n, channels, *lengths[::-1]))
    if numbering == "tensorflow":
        return _flat_index((*spatial, channel), (*lengths, channels))
    if numbering == "tensorflow_batch":
        return _flat_index((*batch, *spatial, channel), (*n, *lengths, channels))
    raise GeometryError(f"{numbering!r} is not a numbering of indices")


def _uncounted_axes(numbering: str, ndim: int, spatial_ndim: int, channels_last: bool) -> tuple[int, ...]:
    """Axes of the input that the numbers say nothing about."""
    if numbering == "plane":
        return (*range(ndim - spatial_ndim - 1), ndim - 1) if channels_last else tuple(range(ndim - spatial_ndim))
    if numbering == "tensorflow":
        return tuple(range(ndim - spatial_ndim - 1))
    return ()


# ---- gradients


def gradcheck(
    function: Callable[..., Any],
    backward: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-6,
    rtol: float = 1e-5,
    seed: int = 0,
) -> bool:
    """Check a backward pass against central differences, in float64 and without any framework.

    Each element of each floating-point input is moved by `eps` both ways; the change of the output, weighted
    with one random `grad_output`, must agree with what `backward` says about that element. Choose inputs away
    from kinks: for a maximum, no two elements of a window closer than ``2 * eps``.

    Parameters
    ----------
    function : callable
        ``function(*inputs)`` returns an array, or a tuple that starts with one (such as ``Pooled``).
    backward : callable
        ``backward(grad_output, *inputs)`` returns the gradient, or a tuple with one gradient per
        floating-point input. None stands for a gradient that is not checked.
    inputs : array_like, or tuple or list of arrays
        Where to check. Floating-point inputs are taken as float64; others (indices, say) are passed on.
    eps : float, default 1e-6
        The step.
    atol, rtol : float
        Allowed difference: ``atol + rtol * abs(numerical)``.
    seed : int, default 0
        Of the random `grad_output`.

    Returns
    -------
    bool
        True. A wrong gradient raises.

    Raises
    ------
    AssertionError
        If a gradient is missing, has the wrong shape, or is wrong; the message names the worst element.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpool import testing
    >>> testing.gradcheck(lambda x: x**2, lambda grad, x: 2 * x * grad, np.array([1.0, -3.0]))
    True
    >>> wrong = lambda grad, x: x * grad
    >>> testing.gradcheck(lambda x: x**2, wrong, np.array([1.0, -3.0]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    AssertionError: gradient 0 at [1]: backward gives 0.396..., central differences give 0.792...
    """
    given = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    points = [np.array(x, np.float64) if _is_floating(np.asarray(x)) else x for x in given]
    moved = [point for x, point in zip(given, points, strict=True) if _is_floating(np.asarray(x))]
    if not moved:
        raise AssertionError("no input is floating-point, so there is no gradient to check")

    def evaluate() -> Array:
        result = function(*copy.deepcopy(points))
        return np.array(result[0] if isinstance(result, tuple) else result, np.float64)

    grad_output = np.random.default_rng(seed).standard_normal(evaluate().shape)
    answer = backward(grad_output.copy(), *copy.deepcopy(points))
    gradients = answer if isinstance(answer, tuple) else (answer,)
    if len(gradients) != len(moved):
        raise AssertionError(f"backward returned {len(gradients)} gradients for {len(moved)} inputs")

    for number, (point, gradient) in enumerate(zip(moved, gradients, strict=True)):
        if gradient is None:
            continue
        found = np.array(gradient, np.float64)
        if found.shape != point.shape:
            raise AssertionError(f"gradient {number} has shape {found.shape}, its input {point.shape}")
        numerical = np.empty(point.shape)
        for position in np.ndindex(*point.shape):
            here = point[position]
            point[position] = here + eps
            above = evaluate()
            point[position] = here - eps
            below = evaluate()
            point[position] = here
            step = (here + eps) - (here - eps)  # what was really moved, after rounding
            numerical[position] = np.sum((above - below) * grad_output) / step
        excess = np.abs(found - numerical) - (atol + rtol * np.abs(numerical))
        if not np.all(excess <= 0):  # NaN is wrong too
            worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
            raise AssertionError(
                f"gradient {number} at {[int(i) for i in worst]}: backward gives {float(found[worst])!r}, "
                f"central differences give {float(numerical[worst])!r}"
            )
    return True


# ---- arguments


def _is_floating(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def _as_array(name: str, value: Any) -> Array:
    """An array in native byte order of a dtype that pooling takes."""
    array = np.asarray(value)
    known = array.dtype.kind in "biu" or (_is_floating(array) and array.dtype.itemsize <= 8)
    if not known or isinstance(value, np.ma.MaskedArray):
        raise DtypeError(f"{name} is {type(value).__name__} of dtype {array.dtype}, which pooling does not take")
    return array.astype(array.dtype.newbyteorder("="))


def _as_indices(indices: Any, shape: tuple[int, ...] | None, partner: str, size: int) -> npt.NDArray[np.int64]:
    """Indices in int64, each of them inside an array of `size` elements."""
    array = np.asarray(indices)
    if array.dtype.kind != "i" or array.dtype.itemsize < 4:
        raise DtypeError(f"indices have dtype {array.dtype}; only int64 and int32 are indices")
    if shape is not None and array.shape != shape:
        raise GeometryError(f"indices have shape {array.shape}, {partner} has {shape}")
    for position in np.ndindex(*array.shape):
        if not 0 <= array[position] < size:
            raise IndexOutOfBoundsError(f"indices{list(position)} is {array[position]}; there are {size} elements")
    return array.astype(np.int64)


def _written(result: Array, out: Any) -> Array:
    """The result itself, or `out` filled with it."""
    if out is None:
        return result
    out[...] = result
    return np.asarray(out)
