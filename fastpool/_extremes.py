"""Maxima and minima over windows and over whole axes, with flat indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Unpack, overload

import numpy as np
import numpy.typing as npt

from . import _buffers, _guards, _plan
from ._geometry import reduced_axes
from ._report import pool_run
from ._results import Pooled
from .errors import GeometryError
from .options import Options, Settings, resolve, threads_of

__all__ = ["global_max_pool", "max_pool", "min_pool"]

Array = npt.NDArray[Any]

_INT64 = np.dtype(np.int64)


def _extremum(
    minimum: bool,
    x: Array,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: Any,
    axes: Any,
    return_indices: bool,
    out: Any,
    inputs: tuple[Any, ...],
    settings: Settings,
) -> Any:
    """Pool an array that was checked; `inputs` are what `out` must not overlap."""
    plan = _plan.pool_plan(
        x.dtype, minimum, return_indices, x.shape, ceil_mode, kernel_size, stride, padding, dilation, axes
    )
    return run_maximum(plan, x, return_indices, out, inputs, settings)


def run_maximum(
    plan: _plan.PoolPlan, x: Array, return_indices: bool, out: Any, inputs: tuple[Any, ...], settings: Settings
) -> Any:
    """Run a plan of maxima (or minima) from x to `out`, or to new arrays."""
    record = settings.record
    threads = threads_of(settings) if plan.parallel else 1
    record.planned(pool_run, plan, threads)
    shape = plan.geometry.output_shape
    indices = None
    if out is None:
        values = _buffers.empty(shape, x.dtype)
        if return_indices:
            indices = _buffers.empty(shape, _INT64)
        record.step("write", values, indices)
    else:
        if return_indices:
            values, indices = _checked_pair(out, shape, x.dtype, inputs)
        else:
            values = _guards.check_out("out", out, shape, x.dtype, inputs)
        record.step("write")
    if plan.compiled is not None:
        flat = None if indices is None else indices.reshape(-1)
        plan.compiled.run(_guards.as_bytes(x), _guards.as_bytes(values), flat, threads)
        record.step("kernel")
    return values if indices is None else Pooled(values, indices)


def _checked_pair(
    out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], inputs: tuple[Any, ...]
) -> tuple[Array, Array]:
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise GeometryError("out must be a pair (values, indices) where return_indices=True")
    values = _guards.check_out("out[0]", out[0], shape, dtype, inputs)
    indices = _guards.check_out("out[1]", out[1], shape, _INT64, (*inputs, values))
    return values, indices


@overload
def max_pool(
    x: npt.ArrayLike,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = ...,
    padding: int | str | Sequence[int | Sequence[int]] = ...,
    dilation: int | Sequence[int] = ...,
    *,
    ceil_mode: bool = ...,
    axes: int | Sequence[int] | None = ...,
    return_indices: Literal[False] = ...,
    out: Array | None = ...,
    **options: Unpack[Options],
) -> Array: ...
@overload
def max_pool(
    x: npt.ArrayLike,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = ...,
    padding: int | str | Sequence[int | Sequence[int]] = ...,
    dilation: int | Sequence[int] = ...,
    *,
    ceil_mode: bool = ...,
    axes: int | Sequence[int] | None = ...,
    return_indices: Literal[True],
    out: tuple[Array, Array] | None = ...,
    **options: Unpack[Options],
) -> Pooled: ...
def max_pool(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    axes: Any = None,
    return_indices: bool = False,
    out: Any = None,
    **options: Unpack[Options],
) -> Any:
    """Maximum over windows of any number of axes.

    Along a pooled axis, tap ``j`` of output ``i`` is element ``i*stride + j*dilation - before``; `output_shape` says
    how many outputs there are. Padding never wins and is never indexed.

    Parameters
    ----------
    x : array_like
        Input of any rank; bool, any integer, float16, float32, float64, or ml_dtypes' bfloat16.
    kernel_size : tuple of int
        Taps of the window, one entry per pooled axis. A single int is taken only together with `axes`.
    stride : int or tuple of int, optional
        Distance between neighbouring windows; `kernel_size` by default.
    padding : int, tuple, or {"valid", "same", "same_lower"}, optional
        An int, one int per axis, or one ``(before, after)`` pair per axis; negative padding crops. ``"same"`` gives
        ``ceil(L / stride)`` outputs with the odd element after, ``"same_lower"`` with the odd element before.
    dilation : int or tuple of int, optional
        Distance between the taps of a window.
    ceil_mode : bool, optional
        Let the last window hang over the end, if it starts inside the input or its left padding.
    axes : int or tuple of int, optional
        The pooled axes; the last ``len(kernel_size)`` by default. ``axes=(1, 2)`` pools NHWC.
    return_indices : bool, optional
        Also return the flat index of every maximum.
    out : ndarray or (ndarray, ndarray), optional
        Where to write: of the result's shape and dtype, C-contiguous, not overlapping `x`; with `return_indices` the
        pair ``(values, indices)``.
    **options
        See `fastpool.options`.

    Returns
    -------
    ndarray or Pooled
        The maxima, of the dtype of `x`. With `return_indices` the named tuple ``(values, indices)``; indices are int64
        positions in the C-order raveled input, and ``x.ravel()[indices]`` equals ``values`` bit for bit.

    Raises
    ------
    GeometryError
        If the arguments describe no window, or one that has no tap inside the input.
    DtypeError
        If `x` has a dtype that is not taken, or is a masked array.
    ContiguityError
        If `out` cannot be written to, or `x` is not C-contiguous under ``contiguity="require"``.

    Notes
    -----
    Of equal maxima the first in C order wins, as in `numpy.argmax`; -0.0 and 0.0 are equal. A NaN in the window makes
    the result NaN, and of several the first wins (PyTorch takes the last). Results do not depend on threads, tiles or
    the instruction set.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> x = np.array([[1, 5, 2, 0], [3, 4, 8, 7]])
    >>> fp.max_pool(x, (2, 2))
    array([[5, 8]])
    >>> values, indices = fp.max_pool(x, (2, 2), stride=1, return_indices=True)
    >>> indices
    array([[1, 6, 6]])
    """
    settings = resolve(options, "max_pool")
    array = _guards.as_input("x", x, settings)
    pooled = _extremum(
        False,
        array,
        kernel_size,
        stride,
        padding,
        dilation,
        ceil_mode,
        axes,
        return_indices,
        out,
        (x, array),
        settings,
    )
    return settings.record.done(pooled)


def min_pool(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    axes: Any = None,
    return_indices: bool = False,
    out: Any = None,
    **options: Unpack[Options],
) -> Any:
    """Minimum over windows of any number of axes: `max_pool` with the order reversed.

    Parameters
    ----------
    x : array_like
        Input of any rank and of any dtype that `max_pool` takes.
    kernel_size, stride, padding, dilation, ceil_mode, axes, return_indices, out, **options
        As in `max_pool`.

    Returns
    -------
    ndarray or Pooled
        The minima, or the named tuple ``(values, indices)``.

    Raises
    ------
    GeometryError, DtypeError, ContiguityError
        As `max_pool`.

    Notes
    -----
    Of equal minima the first in C order wins, and so does the first NaN: NaN propagates as in `numpy.min`.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> fp.min_pool(np.array([4, 1, 1, 3]), (2,), return_indices=True)
    Pooled(values=array([1, 1]), indices=array([1, 2]))
    """
    settings = resolve(options, "min_pool")
    array = _guards.as_input("x", x, settings)
    pooled = _extremum(
        True,
        array,
        kernel_size,
        stride,
        padding,
        dilation,
        ceil_mode,
        axes,
        return_indices,
        out,
        (x, array),
        settings,
    )
    return settings.record.done(pooled)


def global_max_pool(
    x: Any,
    *,
    axes: Any = None,
    keepdims: bool = True,
    return_indices: bool = False,
    **options: Unpack[Options],
) -> Any:
    """Maximum over whole axes, with its position.

    Parameters
    ----------
    x : array_like
        Input of any dtype that `max_pool` takes.
    axes : int or tuple of int, optional
        Axes to reduce; all but the first two by default.
    keepdims : bool, optional
        Keep the reduced axes with length 1.
    return_indices : bool, optional
        Also return the flat index of every maximum.
    **options
        See `fastpool.options`.

    Returns
    -------
    ndarray or Pooled
        The maxima, or the named tuple ``(values, indices)``; `max_pool_backward` takes these indices.

    Raises
    ------
    GeometryError
        If an axis does not exist, is named twice or has length 0, or if there is no axis to reduce.
    DtypeError
        As `max_pool`.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> x = np.arange(24).reshape(2, 3, 2, 2)
    >>> fp.global_max_pool(x, keepdims=False)
    array([[ 3,  7, 11],
           [15, 19, 23]])
    """
    settings = resolve(options, "global_max_pool")
    array = _guards.as_input("x", x, settings)
    reduced = reduced_axes(array.shape, axes)
    kept = tuple(1 if axis in reduced else length for axis, length in enumerate(array.shape))
    shape = kept if keepdims else tuple(n for axis, n in enumerate(array.shape) if axis not in reduced)

    # neighbouring axes are one; then a long one is cut into chunks, so that one volume occupies every core
    flat, where = array, reduced
    if reduced == tuple(range(reduced[0], reduced[-1] + 1)) and array.size:
        after = array.shape[reduced[-1] + 1 :]
        flat, where = array.reshape(*array.shape[: reduced[0]], -1, *after), reduced[:1]
    values, indices = flat, None
    while True:
        chunk = _plan.global_chunk(values.shape, where)
        kernel = [values.shape[axis] for axis in where]
        if chunk is not None:
            kernel[0] = chunk
        pooled = _extremum(False, values, kernel, None, 0, 1, True, where, return_indices, None, (), settings)
        if return_indices:
            values, found = pooled
            if indices is None:
                indices = found
            else:
                indices = indices.reshape(-1)[found]
                settings.record.step("write", indices)
        else:
            values = pooled
        if chunk is None:
            break
    if indices is None:
        return settings.record.done(values.reshape(shape))
    return settings.record.done(Pooled(values.reshape(shape), indices.reshape(shape)))
