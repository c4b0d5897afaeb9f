"""Gradients of convolution and of transposed convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from . import _buffers, _guards, _padding, _plan
from ._conv import (
    batched,
    channels_of,
    kernel_of,
    operands,
    padded_input,
    result_dtype,
    run_conv,
    transposed_channels_of,
    transposed_windows_of,
)
from ._conv_spec import Channels, ConvWindow, conv_geometry, pads_of
from ._geometry import sequence
from ._padding import PaddingMode
from ._report import conv_run
from ._results import ConvGradients
from .errors import GeometryError
from .options import ConvOptions, Settings, resolve, threads_of

__all__ = ["conv_backward", "conv_transpose_backward"]

Array = npt.NDArray[Any]

_BYTES = np.dtype(np.uint8)


def _needed(needs: Any) -> frozenset[str]:
    """The gradients that are asked for."""
    if isinstance(needs, str):
        raise GeometryError(f"needs={needs!r} is a string; write needs=({needs!r},)")
    names = sequence("needs", needs, 'a tuple of "x", "weight" and "bias"')
    for i, name in enumerate(names):
        if not isinstance(name, str) or name not in ConvGradients._fields or name in names[:i]:
            raise GeometryError(f'needs={tuple(names)!r} must hold "x", "weight" and "bias", each at most once')
    return frozenset(names)


def _weight_gradient(
    x: Array, grad: Array, shape: tuple[int, ...], channels: Channels, windows: tuple[ConvWindow, ...],
    settings: Settings,
) -> Array:  # fmt: skip
    """Gradient by the weight of a convolution of `x`, with `grad` by its outputs."""
    record = settings.record
    dtype = result_dtype(x.dtype)
    empty = 0 in x.shape or 0 in grad.shape
    plan = None if empty else _plan.conv_plan("weight", x.dtype, channels, windows, settings.algorithm)
    threads = threads_of(settings) if plan is not None and plan.parallel else 1
    record.planned(conv_run, plan, threads)
    result = np.zeros(shape, dtype) if plan is None else _buffers.empty(shape, dtype)
    record.step("write", result)
    if plan is not None:
        compiled = plan.compiled
        work = _buffers.empty((compiled.workspace_bytes * min(threads, compiled.units),), _BYTES)
        compiled.run_gradient(_guards.as_bytes(x), _guards.as_bytes(grad), _guards.as_bytes(result), work, threads)
    record.step("kernel")
    return result


def _bias_gradient(grad: Array, settings: Settings) -> Array:
    """Sums over the batch and the spatial axes, by NumPy."""
    axes = (0, *range(2, grad.ndim))
    dtype = result_dtype(grad.dtype)
    result: Array
    if grad.dtype.kind in "iu":
        result = grad.sum(axes, dtype=dtype)
    else:
        wide = grad.astype(np.float32) if grad.dtype.itemsize == 2 else grad
        with np.errstate(all="ignore"):  # as kernels add up
            result = wide.sum(axes).astype(dtype, copy=False)
    settings.record.step("kernel")
    settings.record.step("write", result)
    return result


def conv_backward(
    grad_output: npt.ArrayLike,
    x: npt.ArrayLike,
    weight: npt.ArrayLike,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    padding_mode: PaddingMode = "zeros",
    needs: Sequence[str] = ("x", "weight", "bias"),
    **options: Unpack[ConvOptions],
) -> ConvGradients:
    """Gradients of `conv` by its input, its weight and its bias.

    Parameters
    ----------
    grad_output : array_like
        Gradient by the result of `conv`: of its shape, and of the dtype of `x`.
    x, weight, stride, padding, dilation, groups, padding_mode
        What `conv` was given.
    needs : sequence of {"x", "weight", "bias"}, optional
        The gradients that are computed.
    **options
        See `fastpool.options`; `algorithm` too.

    Returns
    -------
    ConvGradients
        ``x``, ``weight`` and ``bias``, each of its array's shape and of the dtype that `conv` gives its results, or
        None where it is not needed.

    Raises
    ------
    GeometryError
        If `grad_output` has not the shape of the result, a name in `needs` is unknown or named twice, or as in `conv`.
    DtypeError, ContiguityError
        As in `conv`.

    Notes
    -----
    The gradient by the input is added up filter by filter, tap by tap; that by the weight in parts
    of neighbouring positions, which are added in their order. Neither depends on threads or tiles.

    Besides the results, a call takes the workspace of `conv`, and for the weight's gradient, per thread, a panel of
    positions times filters, or a tile of the input, and its share of the gradient.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> x, w = np.array([[[1.0, 2.0, 4.0]]]), np.array([[[1.0, -1.0]]])
    >>> fp.conv_backward(np.array([[[1.0, 10.0]]]), x, w, needs=("x", "bias"))
    ConvGradients(x=array([[[  1.,   9., -10.]]]), weight=None, bias=array([11.]))
    """
    settings = resolve(options, "conv_backward", ConvOptions)
    names = _needed(needs)
    grad, array, filters = operands(settings, grad_output=grad_output, x=x, weight=weight)
    whole = batched("x", array, filters)
    batch = array.ndim == filters.ndim
    channels = channels_of(whole, filters, groups)
    geometry = conv_geometry(whole.shape, kernel_of(filters), stride, padding, dilation)
    padded, windows = padded_input(whole, geometry, padding_mode, settings)
    shape = (whole.shape[0], filters.shape[0], *(w.out for w in windows))
    _guards.check_shape("grad_output", grad, shape if batch else shape[1:], "the outputs")
    grad = grad.reshape(shape)

    by_x = by_weight = by_bias = None
    if "x" in names:
        by_x = run_conv(True, grad, filters, None, channels, windows, None, (), True, settings)
        if padded is not whole:
            by_x = _padding.pad_backward(by_x, whole.shape, pads_of(geometry), padding_mode)
            settings.record.step("write", by_x)
        by_x = by_x.reshape(array.shape)
    if "weight" in names:
        by_weight = _weight_gradient(padded, grad, filters.shape, channels, windows, settings)
    if "bias" in names:
        by_bias = _bias_gradient(grad, settings)
    return settings.record.done(ConvGradients(by_x, by_weight, by_bias))


def conv_transpose_backward(
    grad_output: npt.ArrayLike,
    x: npt.ArrayLike,
    weight: npt.ArrayLike,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    needs: Sequence[str] = ("x", "weight", "bias"),
    **options: Unpack[ConvOptions],
) -> ConvGradients:
    """Gradients of `conv_transpose` by its input, its weight and its bias.

    Parameters
    ----------
    grad_output : array_like
        Gradient by the result of `conv_transpose`: of its shape, and of the dtype of `x`.
    x, weight, stride, padding, output_padding, dilation, groups
        What `conv_transpose` was given.
    needs, **options
        As in `conv_backward`.

    Returns
    -------
    ConvGradients
        As of `conv_backward`.

    Raises
    ------
    GeometryError, DtypeError, ContiguityError
        As in `conv_backward`.

    Notes
    -----
    The gradient by the input is the convolution of `grad_output`, the gradient by the weight that of this convolution.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> x, w = np.array([[[1.0, 2.0]]]), np.array([[[1.0, 10.0]]])
    >>> fp.conv_transpose_backward(np.array([[[1.0, 0.0, 1.0]]]), x, w, needs=("x", "weight"))
    ConvGradients(x=array([[[ 1., 10.]]]), weight=array([[[1., 2.]]]), bias=None)
    """
    settings = resolve(options, "conv_transpose_backward", ConvOptions)
    names = _needed(needs)
    grad, array, filters = operands(settings, grad_output=grad_output, x=x, weight=weight)
    whole = batched("x", array, filters)
    batch = array.ndim == filters.ndim
    channels = transposed_channels_of(whole, filters, groups)
    windows = transposed_windows_of(whole.shape, kernel_of(filters), stride, padding, output_padding, dilation)
    shape = (whole.shape[0], channels.groups * channels.inputs, *(w.length for w in windows))
    _guards.check_shape("grad_output", grad, shape if batch else shape[1:], "the outputs")
    grad = grad.reshape(shape)

    by_x = by_weight = by_bias = None
    if "x" in names:
        by_x = run_conv(False, grad, filters, None, channels, windows, None, (), batch, settings)
    if "weight" in names:
        by_weight = _weight_gradient(grad, whole, filters.shape, channels, windows, settings)
    if "bias" in names:
        by_bias = _bias_gradient(grad, settings)
    return settings.record.done(ConvGradients(by_x, by_weight, by_bias))
