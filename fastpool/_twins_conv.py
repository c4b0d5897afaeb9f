"""The slow twins of convolution, of transposed convolution, and of their ways back.

A convolution is a list of products (`Convolution.products`): an element of the input times an element of the weight,
added to an element of the output. Everything here walks that one list. Forward adds up what belongs to the same output;
the gradients add up, of the same products, what belongs to the same input or the same weight; and the transposed
convolution is the gradient by the input, taken as a function of its own.

All sums are exact and rounded once to the dtype of the result (see `exact_numbers`); integers wrap around. The fast
functions agree bit for bit on integers. On floats they round after every product, one after the other, so they are
within ``(taps + 2) * eps`` of the sum of the magnitudes of the products.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._geometry import (
    check_size,
    extent,
    integer,
    padding_pairs,
    per_axis,
    pooling_geometry,
    sequence,
)
from ._results import ConvGradients
from ._twins import (
    Array,
    Position,
    added_up,
    along_axes,
    as_array,
    check_shape,
    exact_numbers,
    is_floating,
    source,
    written,
)
from .errors import DtypeError, GeometryError

__all__ = ["conv", "conv_backward", "conv_transpose", "conv_transpose_backward"]

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")

# Along one axis: `places[o][j]` is the element of the input under tap j of output o, None for a zero of the padding.
Places = list[list[int | None]]


# ---- the products of a convolution


class Convolution(NamedTuple):
    """What a convolution from `x` to `y` multiplies, by shapes (all with a batch axis) and places along every axis."""

    x_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    y_shape: tuple[int, ...]
    groups: int
    places: tuple[Places, ...]

    def products(self) -> Iterator[tuple[Position, Position, Position | None]]:
        """Positions in `y`, in the weight and in `x`, for every product, in the order in which they are added.

        That is, for every output, the C order of the weight's elements: input channels, then taps.
        """
        outputs_per_group = self.weight_shape[0] // max(self.groups, 1)
        inputs_per_group = self.weight_shape[1]
        for y in np.ndindex(*self.y_shape):
            sample, channel, *place = y
            first_input = channel // outputs_per_group * inputs_per_group
            for c in range(inputs_per_group):
                for taps in itertools.product(*map(range, self.weight_shape[2:])):
                    spatial = [along[o][j] for along, o, j in zip(self.places, place, taps, strict=True)]
                    real = [element for element in spatial if element is not None]
                    # one tap beside the input along one axis is enough to lie on padding
                    x = (sample, first_input + c, *real) if len(real) == len(spatial) else None
                    yield y, (channel, c, *taps), x


def result_dtype(given: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of sums of products: that of floats; a wider one of integers, at most 64 bits."""
    if is_floating(given):
        return given
    wide = {"int8": "int32", "uint8": "uint32"}.get(given.name, "uint64" if given.kind == "u" else "int64")
    return np.dtype(wide)


# ---- arguments


def _arrays(**given: Any) -> list[Array]:
    """Arrays that share a dtype whose numbers can be multiplied."""
    arrays = {name: as_array(name, value) for name, value in given.items()}
    (first, one), *_ = arrays.items()
    for name, array in arrays.items():
        if array.dtype.kind == "b":
            raise DtypeError(f"{name} is boolean, and booleans do not multiply; cast it: {name}.astype(np.uint8)")
        if array.dtype != one.dtype:
            raise DtypeError(
                f"{first} has dtype {one.dtype} and {name} has dtype {array.dtype}; they must share one: "
                f"cast with {name}.astype(np.{one.dtype})"
            )
    return list(arrays.values())


def _batched(name: str, array: Array, weight: Array) -> Array:
    """The array with a batch axis, which an array of one dimension less than the weight does not have."""
    if weight.ndim < 3:
        raise GeometryError(
            f"weight has {weight.ndim} dimensions; it needs two for the channels and one or more others"
        )
    if array.ndim not in (weight.ndim, weight.ndim - 1):
        raise GeometryError(
            f"{name} has {array.ndim} dimensions; with a weight of {weight.ndim} it must have {weight.ndim}, "
            f"or {weight.ndim - 1} without a batch axis"
        )
    return array if array.ndim == weight.ndim else array[None]


def _group_count(groups: Any, **channels: int) -> int:
    count = integer("groups", groups)
    if count < 1:
        raise GeometryError(f"groups is {count}; it must be at least 1")
    for name, channel_count in channels.items():
        if channel_count % count:
            raise GeometryError(f"groups={count} does not divide the {channel_count} {name}")
    return count


def _check_bias(bias: Array, channels: int) -> None:
    if bias.shape != (channels,):
        raise GeometryError(f"bias has shape {bias.shape}; it must be ({channels},), one for every output channel")


def _needed(needs: Any) -> Sequence[str]:
    if isinstance(needs, str):
        raise GeometryError(f"needs={needs!r} is one string; write ({needs!r},)")
    names = sequence("needs", needs, 'a tuple of names among "x", "weight" and "bias"')
    for i, name in enumerate(names):
        if not isinstance(name, str) or name not in ConvGradients._fields or name in names[:i]:
            raise GeometryError(f'needs={tuple(names)!r} must hold "x", "weight" and "bias", each at most once')
    return names


def _convolution(
    x: Array, weight: Array, stride: Any, padding: Any, dilation: Any, groups: Any, padding_mode: Any
) -> Convolution:
    """The convolution of an array `x` that has a batch axis."""
    if not isinstance(padding_mode, str) or padding_mode not in PADDING_MODES:
        raise GeometryError(f"padding_mode={padding_mode!r} must be one of {', '.join(map(repr, PADDING_MODES))}")
    groups = _group_count(groups, **{"input channels": x.shape[1], "output channels": weight.shape[0]})
    expected = (weight.shape[0], x.shape[1] // groups, *weight.shape[2:])
    if weight.shape != expected:
        raise GeometryError(
            f"weight has shape {weight.shape}; with groups={groups} and {x.shape[1]} input channels expected {expected}"
        )
    strides = per_axis("stride", stride, weight.ndim - 2, 1)
    geometry = pooling_geometry(x.shape, weight.shape[2:], strides, padding, dilation, False, None, padding_counts=True)
    places = []
    for _, (length, kernel, s, d, before, _, out, crop) in along_axes(geometry):
        # Negative padding has cropped the axis to `length` elements from `crop` on.
        taps = [[source(padding_mode, o * s + j * d - before, length) for j in range(kernel)] for o in range(out)]
        places.append([[None if place is None else crop + place for place in window] for window in taps])
    y_shape = (x.shape[0], weight.shape[0], *geometry.output_shape[2:])
    check_size("the output shape", y_shape)
    return Convolution(x.shape, weight.shape, y_shape, groups, tuple(places))


def _adjoint(
    y: Array, weight: Array, stride: Any, padding: Any, output_padding: Any, dilation: Any, groups: Any
) -> Convolution:
    """The convolution that leads from the result of a transposed convolution to its input `y`, with a batch axis."""
    count = weight.ndim - 2
    groups = _group_count(groups, **{"input channels": y.shape[1]})
    if weight.shape[0] != y.shape[1]:
        expected = (y.shape[1], *weight.shape[1:])
        raise GeometryError(f"weight has shape {weight.shape}; with {y.shape[1]} input channels expected {expected}")
    kernels = per_axis("kernel_size", weight.shape[2:], count, 1)
    strides = per_axis("stride", stride, count, 1)
    dilations = per_axis("dilation", dilation, count, 1)
    extras = per_axis("output_padding", output_padding, count, 0)
    for i, (extra, s, d) in enumerate(zip(extras, strides, dilations, strict=True)):
        if extra >= max(s, d):
            raise GeometryError(
                f"output_padding[{i}] is {extra}; it must be smaller than the stride {s} or the dilation {d}"
            )
    pads = _transposed_padding(padding, kernels, strides, dilations, extras)
    lengths, places = [], []
    for axis, (old, k, s, d, extra, (before, after)) in enumerate(
        zip(y.shape[2:], kernels, strides, dilations, extras, pads, strict=True), start=2
    ):
        if old == 0:
            raise GeometryError(f"axis {axis} has length 0; a convolution needs at least one element")
        length = (old - 1) * s - before - after + extent(k, d) + extra
        if length < 1:
            raise GeometryError(f"padding {(before, after)} leaves a length of {length} along axis {axis}")
        lengths.append(length)
        # Element o is spread over the window that starts at o*s; what falls on the padding is lost.
        places.append([[source("zeros", o * s + j * d - before, length) for j in range(k)] for o in range(old)])
    x_shape = (y.shape[0], weight.shape[1] * groups, *lengths)
    check_size("the output shape", x_shape)
    return Convolution(x_shape, weight.shape, y.shape, groups, tuple(places))


def _transposed_padding(
    padding: Any, kernels: Sequence[int], strides: Sequence[int], dilations: Sequence[int], extras: Sequence[int]
) -> Sequence[tuple[int, int]]:
    """What is cut from both ends of every axis; "same" leaves stride times the input's length."""
    if not isinstance(padding, str) or padding not in ("same", "same_lower"):
        return padding_pairs(padding, (1,) * len(kernels), kernels, strides, dilations)
    pairs = []
    for k, s, d, extra in zip(kernels, strides, dilations, extras, strict=True):
        total = extent(k, d) - s + extra
        small = max(total, 0) // 2  # what a short window leaves too little is appended, not put in front
        large = max(total, 0) - small
        before = small if padding == "same" else large
        pairs.append((before, total - before))
    return pairs


# ---- convolution


def conv(
    x: npt.ArrayLike,
    weight: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
    *,
    padding_mode: str = "zeros",
    out: Any = None,
    **options: Any,
) -> Array:
    """Convolution (cross-correlation): the slow twin of `fastpool.conv`.

    Parameters
    ----------
    x, weight, bias, stride, padding, dilation, groups, padding_mode, out
        As in `fastpool.conv`.
    **options
        Accepted and ignored: they change how the result is computed, not the result.

    Returns
    -------
    ndarray
        For every output the bias plus the sum over input channels and taps of weight times input, rounded once;
        integers wrap around. A tap on the padding multiplies the zero, or the copy, that the padding holds there.

    Raises
    ------
    GeometryError
        If the shapes do not fit each other, or no window fits.
    DtypeError
        If the arrays do not share one dtype, or it is not taken.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.conv([[1.0, 2, 3, 4]], [[[1.0, 10]]])
    array([[21., 32., 43.]])
    >>> testing.conv([[1.0, 2, 3, 4]], [[[1.0, 10]]], padding=((1, 0),), padding_mode="circular")
    array([[14., 21., 32., 43.]])
    """
    array, weight, *biases = _arrays(x=x, weight=weight, **({} if bias is None else {"bias": bias}))
    batched = _batched("x", array, weight)
    convolution = _convolution(batched, weight, stride, padding, dilation, groups, padding_mode)
    for one in biases:
        _check_bias(one, weight.shape[0])
    weights, elements = exact_numbers(weight), exact_numbers(batched)
    terms = [(y, weights[w] * elements[place]) for y, w, place in convolution.products()]
    result = _with_bias(terms, biases, convolution.y_shape, result_dtype(array.dtype))
    return written(result if array.ndim == weight.ndim else result[0], out)


def _with_bias(terms: list[tuple[Any, Any]], biases: list[Array], shape: tuple[int, ...], dtype: Any) -> Array:
    """Sums over the terms and the bias of their channel, if there is one."""
    for bias in biases:
        shares = exact_numbers(bias)
        terms += [(position, shares[position[1:2]]) for position in np.ndindex(*shape)]
    return added_up(terms, shape, dtype)


def conv_backward(
    grad_output: npt.ArrayLike,
    x: npt.ArrayLike,
    weight: npt.ArrayLike,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
    *,
    padding_mode: str = "zeros",
    needs: Sequence[str] = ("x", "weight", "bias"),
    **options: Any,
) -> ConvGradients:
    """Gradients of `conv`: the slow twin of `fastpool.conv_backward`.

    Parameters
    ----------
    grad_output, x, weight, stride, padding, dilation, groups, padding_mode, needs
        As in `fastpool.conv_backward`.
    **options
        Accepted and ignored.

    Returns
    -------
    ConvGradients(x, weight, bias)
        An element of the input gets weight times gradient of every product it is part of, an element of the weight
        input times gradient, and the bias of a channel the sum of its gradients. None where `needs` does not ask.

    Raises
    ------
    GeometryError
        As `conv`, if `grad_output` has another shape than its result, or `needs` names something else.
    DtypeError
        If the arrays do not share one dtype, or it is not taken.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.conv_backward([[1.0, 2]], [[3.0, 4, 5]], [[[1.0, 10]]], needs=("x", "weight"))
    ConvGradients(x=array([[ 1., 12., 20.]]), weight=array([[[11., 14.]]]), bias=None)
    """
    grad, array, weight = _arrays(grad_output=grad_output, x=x, weight=weight)
    needed = _needed(needs)
    batched = _batched("x", array, weight)
    convolution = _convolution(batched, weight, stride, padding, dilation, groups, padding_mode)
    check_shape("grad_output", grad, convolution.y_shape if array.ndim == weight.ndim else convolution.y_shape[1:])
    grads, weights, elements = (
        exact_numbers(_batched("grad_output", grad, weight)),
        *map(exact_numbers, (weight, batched)),
    )
    dtype = result_dtype(grad.dtype)
    by_x = by_weight = by_bias = None
    if "x" in needed:
        terms = ((place, weights[w] * grads[y]) for y, w, place in convolution.products())
        by_x = added_up(terms, convolution.x_shape, dtype).reshape(array.shape)
    if "weight" in needed:
        terms = ((w, elements[place] * grads[y]) for y, w, place in convolution.products())
        by_weight = added_up(terms, weight.shape, dtype)
    if "bias" in needed:
        terms = ((y[1:2], grads[y]) for y in np.ndindex(*convolution.y_shape))
        by_bias = added_up(terms, weight.shape[:1], dtype)
    return ConvGradients(by_x, by_weight, by_bias)


# ---- transposed convolution


def conv_transpose(
    x: npt.ArrayLike,
    weight: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
    *,
    out: Any = None,
    **options: Any,
) -> Array:
    """Transposed convolution: the slow twin of `fastpool.conv_transpose`.

    Parameters
    ----------
    x, weight, bias, stride, padding, output_padding, dilation, groups, out
        As in `fastpool.conv_transpose`.
    **options
        Accepted and ignored.

    Returns
    -------
    ndarray
        Element ``i`` of the input, times tap ``k``, is added to the result at ``i*stride + k*dilation - before``.

    Raises
    ------
    GeometryError
        If the shapes do not fit each other, nothing is left of the result, or `output_padding` is not smaller than
        stride or dilation.
    DtypeError
        If the arrays do not share one dtype, or it is not taken.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.conv_transpose([[1.0, 2]], [[[1.0, 10, 100]]], stride=2)
    array([[  1.,  10., 102.,  20., 200.]])
    """
    array, weight, *biases = _arrays(x=x, weight=weight, **({} if bias is None else {"bias": bias}))
    batched = _batched("x", array, weight)
    convolution = _adjoint(batched, weight, stride, padding, output_padding, dilation, groups)
    for one in biases:
        _check_bias(one, convolution.x_shape[1])
    weights, elements = exact_numbers(weight), exact_numbers(batched)
    # the same products as those of the convolution, from its results to its input
    terms = [(place, weights[w] * elements[y]) for y, w, place in convolution.products()]
    result = _with_bias(terms, biases, convolution.x_shape, result_dtype(array.dtype))
    return written(result if array.ndim == weight.ndim else result[0], out)


def conv_transpose_backward(
    grad_output: npt.ArrayLike,
    x: npt.ArrayLike,
    weight: npt.ArrayLike,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
    *,
    needs: Sequence[str] = ("x", "weight", "bias"),
    **options: Any,
) -> ConvGradients:
    """Gradients of `conv_transpose`: the slow twin of `fastpool.conv_transpose_backward`.

    Parameters
    ----------
    grad_output, x, weight, stride, padding, output_padding, dilation, groups, needs
        As in `fastpool.conv_transpose_backward`.
    **options
        Accepted and ignored.

    Returns
    -------
    ConvGradients(x, weight, bias)
        The gradient by the input is the convolution of `grad_output`. None where `needs` does not ask.

    Raises
    ------
    GeometryError
        As `conv_transpose`, if `grad_output` has another shape than its result, or `needs` names something else.
    DtypeError
        If the arrays do not share one dtype, or it is not taken.

    Examples
    --------
    >>> from fastpool import testing
    >>> testing.conv_transpose_backward([[1.0, 2, 3, 4]], [[1.0, 5]], [[[1.0, 10]]], stride=2)
    ConvGradients(x=array([[21., 43.]]), weight=array([[[16., 22.]]]), bias=array([10.]))
    """
    grad, array, weight = _arrays(grad_output=grad_output, x=x, weight=weight)
    needed = _needed(needs)
    batched = _batched("x", array, weight)
    convolution = _adjoint(batched, weight, stride, padding, output_padding, dilation, groups)
    check_shape("grad_output", grad, convolution.x_shape if array.ndim == weight.ndim else convolution.x_shape[1:])
    grads, weights, elements = (
        exact_numbers(_batched("grad_output", grad, weight)),
        *map(exact_numbers, (weight, batched)),
    )
    dtype = result_dtype(grad.dtype)
    by_x = by_weight = by_bias = None
    if "x" in needed:
        terms = ((y, weights[w] * grads[place]) for y, w, place in convolution.products())
        by_x = added_up(terms, convolution.y_shape, dtype).reshape(array.shape)
    if "weight" in needed:
        terms = ((w, elements[y] * grads[place]) for y, w, place in convolution.products())
        by_weight = added_up(terms, weight.shape, dtype)
    if "bias" in needed:
        terms = ((place[1:2], grads[place]) for place in np.ndindex(*convolution.x_shape))
        by_bias = added_up(terms, convolution.x_shape[1:2], dtype)
    return ConvGradients(by_x, by_weight, by_bias)
