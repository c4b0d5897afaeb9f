"""Convolution and transposed convolution."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, Unpack

import numpy as np
import numpy.typing as npt

from . import _buffers, _guards, _padding, _plan
from ._conv_spec import Channels, ConvWindow, conv_geometry, pads_of, windows_of
from ._geometry import Geometry, integer, kept, transposed_windows
from ._padding import PaddingMode
from ._report import conv_run
from .errors import DtypeError, GeometryError
from .options import ConvOptions, Settings, resolve, threads_of

__all__ = ["conv", "conv_transpose"]

Array = npt.NDArray[Any]

_BYTES = np.dtype(np.uint8)
_NONE = np.empty(0, _BYTES)
# Sums of products of small integers need more bits than these have; 64 bits wrap around.
_WIDER = {"int8": np.dtype(np.int32), "uint8": np.dtype(np.uint32)}
_WIDEST = {"i": np.dtype(np.int64), "u": np.dtype(np.uint64)}


# ---------------------------------------------------------------------------------------------- arguments


def operands(settings: Settings, **given: Any) -> list[Array]:
    """Inputs that are multiplied with each other: of one dtype, and not bool."""
    arrays = {name: _guards.as_input(name, value, settings) for name, value in given.items()}
    first, one = next(iter(arrays.items()))
    for name, array in arrays.items():
        if array.dtype.kind == "b":
            raise DtypeError(f"{name} is bool, which is not multiplied; cast it: {name}.astype(np.uint8)")
        if array.dtype != one.dtype:
            raise DtypeError(
                f"{first} has dtype {one.dtype}, {name} has dtype {array.dtype}; they must share one: "
                f"cast with {name}.astype(np.{one.dtype.name})"
            )
    return list(arrays.values())


@lru_cache(maxsize=64)
def result_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of sums of products."""
    return _WIDER.get(dtype.name) or _WIDEST.get(dtype.kind) or dtype


def batched(name: str, array: Array, weight: Array) -> Array:
    """The array with its batch axis, which it may lack."""
    if weight.ndim < 3:
        raise GeometryError(
            f"weight has {weight.ndim} dimensions {weight.shape}; it has two axes of channels, then one or more others"
        )
    if array.ndim == weight.ndim:
        return array
    if array.ndim == weight.ndim - 1:
        return array[None]
    raise GeometryError(
        f"{name} has {array.ndim} dimensions {array.shape}; with a weight of {weight.ndim} dimensions it has "
        f"{weight.ndim}, or {weight.ndim - 1} without a batch"
    )


def channels_of(x: Array, weight: Array, groups: Any) -> Channels:
    """The channels of a convolution of `x`, which must fit its weight."""
    count = group_count(groups)
    inputs, filters = x.shape[1], weight.shape[0]
    for what, channels in (("input channels of x", inputs), ("filters of weight", filters)):
        if channels % count:
            raise GeometryError(f"groups={count} does not divide the {channels} {what}")
    expected = (filters, inputs // count, *weight.shape[2:])
    if weight.shape != expected:
        raise GeometryError(
            f"weight has shape {weight.shape}; for {inputs} input channels in {count} groups {expected} is expected"
        )
    return Channels(x.shape[0], count, inputs // count, filters // count)


def transposed_channels_of(x: Array, weight: Array, groups: Any) -> Channels:
    """The channels of the convolution whose transpose is applied to `x`: its filters are the channels of `x`."""
    count = group_count(groups)
    if x.shape[1] % count:
        raise GeometryError(f"groups={count} does not divide the {x.shape[1]} input channels of x")
    if weight.shape[0] != x.shape[1]:
        raise GeometryError(
            f"weight has shape {weight.shape}; for {x.shape[1]} input channels {(x.shape[1], *weight.shape[1:])} is "
            f"expected"
        )
    return Channels(x.shape[0], count, weight.shape[1], x.shape[1] // count)


def group_count(groups: Any) -> int:
    count = integer("groups", groups)
    if count < 1:
        raise GeometryError(f"groups is {count}; it must be at least 1")
    return count


def check_bias(bias: Array | None, filters: int) -> None:
    if bias is not None and bias.shape != (filters,):
        raise GeometryError(f"bias has shape {bias.shape}; it must be {(filters,)}, one number for every filter")


@kept
def transposed_windows_of(
    shape: tuple[int, ...], kernel: tuple[int, ...], stride: Any, padding: Any, output_padding: Any, dilation: Any
) -> tuple[ConvWindow, ...]:
    """The windows of the convolution whose transpose is applied to an input of `shape`."""
    rows = transposed_windows(shape, kernel, stride, padding, output_padding, dilation)
    return tuple(ConvWindow(*row) for row in rows)


def kernel_of(weight: Array) -> tuple[int, ...]:
    """The taps along every axis."""
    if 0 in weight.shape[2:]:
        raise GeometryError(f"weight has shape {weight.shape}; a kernel needs at least one tap")
    return weight.shape[2:]


# ---------------------------------------------------------------------------------------------- running


def run_conv(
    transposed: bool,
    x: Array,
    weight: Array,
    bias: Array | None,
    channels: Channels,
    windows: tuple[ConvWindow, ...],
    out: Any,
    inputs: tuple[Any, ...],
    batch: bool,
    settings: Settings,
) -> Array:
    """Convolve arrays that were checked, or apply the transpose; `inputs` are what `out` must not overlap."""
    record = settings.record
    count = channels.inputs if transposed else channels.outputs
    shape = (
        channels.batch,
        channels.groups * count,
        *(window.length if transposed else window.out for window in windows),
    )
    dtype = result_dtype(x.dtype)
    given = shape if batch else shape[1:]
    plan = None
    if 0 not in shape:
        role: Literal["conv", "transpose"] = "transpose" if transposed else "conv"
        plan = _plan.conv_plan(role, x.dtype, channels, windows, settings.algorithm)
    threads = threads_of(settings) if plan is not None and plan.parallel else 1
    record.planned(conv_run, plan, threads)
    if out is None:
        result = _buffers.empty(given, dtype)
        record.step("write", result)
    else:
        result = _guards.check_out("out", out, given, dtype, inputs)
        record.step("write")
    if plan is None or not plan.spec.filled:
        # outputs that no tap reaches
        whole = result.reshape(shape)
        whole[...] = 0 if bias is None else bias.reshape(-1, *(1,) * len(windows))
    if plan is not None:
        compiled = plan.compiled
        packed = _buffers.empty((compiled.packed_bytes,), _BYTES)
        work = _buffers.empty((compiled.workspace_bytes * min(threads, compiled.units),), _BYTES)
        compiled.run(
            _guards.as_bytes(x),
            _guards.as_bytes(weight),
            _NONE if bias is None else _guards.as_bytes(bias),
            _guards.as_bytes(result),
            packed,
            work,
            threads,
        )
    record.step("kernel")
    return result


def conv(
    x: npt.ArrayLike,
    weight: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    padding_mode: PaddingMode = "zeros",
    out: Array | None = None,
    **options: Unpack[ConvOptions],
) -> Array:
    """Convolution (cross-correlation, as in neural networks) over any number of axes.

    Parameters
    ----------
    x : array_like
        Input of shape ``(N, C, *spatial)``, or ``(C, *spatial)`` without a batch: integers, float16, float32, float64,
        or ml_dtypes' bfloat16.
    weight : array_like
        Filters of shape ``(F, C // groups, *kernel)``, of the dtype of `x`; its axes tell how many of `x` are spatial.
    bias : array_like, optional
        One number per filter, of the dtype of `x`, added to its outputs.
    stride, padding, dilation
        As in `max_pool`, for the spatial axes; the stride is 1 by default.
    groups : int, optional
        Cut the channels into so many groups, each convolved with its own filters.
    padding_mode : {"zeros", "reflect", "replicate", "circular"}, optional
        What the padding holds; see `pad`.
    out : ndarray, optional
        Where to write: of the result's shape and dtype, C-contiguous, not overlapping an input.
    **options
        See `fastpool.options`; `algorithm` too.

    Returns
    -------
    ndarray
        Of shape ``(N, F, *windows)``, or ``(F, *windows)``, with as many windows as `output_shape` tells. Floats keep
        their dtype; int8 gives int32 and uint8 uint32, other integers int64 and uint64, which wrap around.

    Raises
    ------
    GeometryError
        If the shapes do not fit each other, or the arguments describe no window.
    DtypeError
        If a dtype is not taken, or the arrays do not share one.
    ContiguityError
        As in `max_pool`.

    Notes
    -----
    ``y[n, f, o] = bias[f] + sum(x[n, c, o*stride + j*dilation - padding] * weight[f, c, j])`` over channels ``c`` and
    taps ``j``, added up in this order, for every output one by one. Float16 and bfloat16 are multiplied and added in
    float32 and rounded once. A float result is within ``(taps + 2) * eps`` of the sum of the products' magnitudes,
    where taps counts channels too. It does not depend on threads, tiles, batch or algorithm; another instruction set
    may round differently, within the same bound, since only some fuse a product and its sum.

    Besides the result, a call takes the weights once more and a tile of the input per thread, of half the second-level
    cache; padding modes other than zeros take a padded copy of `x`.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> x = np.array([[[1.0, 2.0, 4.0, 8.0]]])
    >>> fp.conv(x, np.array([[[1.0, -1.0]]]))
    array([[[-1., -2., -4.]]])
    >>> fp.conv(x, np.ones((1, 1, 3)), stride=2, padding=1, padding_mode="circular")
    array([[[11., 14.]]])
    """
    settings = resolve(options, "conv", ConvOptions)
    arrays = operands(settings, x=x, weight=weight, **({} if bias is None else {"bias": bias}))
    array, filters = arrays[:2]
    added = arrays[2] if bias is not None else None
    whole = batched("x", array, filters)
    channels = channels_of(whole, filters, groups)
    check_bias(added, filters.shape[0])
    geometry = conv_geometry(whole.shape, kernel_of(filters), stride, padding, dilation)
    whole, windows = padded_input(whole, geometry, padding_mode, settings)
    inputs = (x, weight, bias)
    batch = array.ndim == filters.ndim
    return settings.record.done(run_conv(False, whole, filters, added, channels, windows, out, inputs, batch, settings))


def padded_input(x: Array, geometry: Geometry, mode: Any, settings: Settings) -> tuple[Array, tuple[ConvWindow, ...]]:
    """The input with its padding, unless that is zeros; then its windows need none."""
    _padding.check_mode("padding_mode", mode)
    windows = windows_of(geometry)
    if mode == "zeros" or 0 in x.shape:
        return x, windows
    padded = _padding.padded(x, pads_of(geometry), mode)
    settings.record.step("guard", padded)
    return padded, tuple(w._replace(length=n, before=0) for w, n in zip(windows, padded.shape[2:], strict=True))


def conv_transpose(
    x: npt.ArrayLike,
    weight: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    out: Array | None = None,
    **options: Unpack[ConvOptions],
) -> Array:
    """Transposed convolution over any number of axes: what `conv` does to its input, the other way round.

    Parameters
    ----------
    x : array_like
        Input of shape ``(N, C, *spatial)``, or ``(C, *spatial)`` without a batch, of any dtype that `conv` takes.
    weight : array_like
        Filters of shape ``(C, F // groups, *kernel)``, of the dtype of `x`.
    bias : array_like, optional
        One number per output channel, of the dtype of `x`.
    stride, padding, dilation, groups
        Of the convolution that this is the transpose of: a stride spreads `x`, and padding crops the result. With
        ``"same"`` the result is `stride` times as long as `x`.
    output_padding : int or tuple of int, optional
        Elements more at the end of each axis, less than its stride or its dilation.
    out : ndarray, optional
        Where to write: of the result's shape and dtype, C-contiguous, not overlapping an input.
    **options
        See `fastpool.options`; `algorithm` too.

    Returns
    -------
    ndarray
        Of shape ``(N, F, *lengths)``, or ``(F, *lengths)``: along an axis of length L there are ``(L-1)*stride +
        dilation*(kernel-1) + 1 + output_padding - before - after`` elements. Dtypes are those of `conv`.

    Raises
    ------
    GeometryError
        If the shapes do not fit each other, the result would be empty, or `output_padding` is too large.
    DtypeError, ContiguityError
        As in `conv`.

    Notes
    -----
    The adjoint of `conv` with the same arguments: ``(conv(y, w) * x).sum() == (y * conv_transpose(x, w)).sum()``.
    Sums have the order of `conv`: the bias, then channel by channel, tap by tap. Beyond the ends of `x` there are
    zeros, so that a weight that is not finite makes NaN of outputs whose taps reach there.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.conv_transpose(np.array([[[1.0, 2.0]]]), np.array([[[1.0, 10.0, 100.0]]]), stride=2)
    array([[[  1.,  10., 102.,  20., 200.]]])
    """
    settings = resolve(options, "conv_transpose", ConvOptions)
    arrays = operands(settings, x=x, weight=weight, **({} if bias is None else {"bias": bias}))
    array, filters = arrays[:2]
    added = arrays[2] if bias is not None else None
    whole = batched("x", array, filters)
    channels = transposed_channels_of(whole, filters, groups)
    check_bias(added, channels.groups * channels.inputs)
    windows = transposed_windows_of(whole.shape, kernel_of(filters), stride, padding, output_padding, dilation)
    batch = array.ndim == filters.ndim
    return settings.record.done(
        run_conv(True, whole, filters, added, channels, windows, out, (x, weight, bias), batch, settings)
    )
