"""What averages, sums and norms share: dtypes of results, a run of sums, and the way back.

A gradient is a sum too: every element of the input collects the outputs whose windows hold it. So both ways run on the
same plans, the way back over adjoint windows (`adjoint_window`, `adjoint_bounds` in ``_geometry.py``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from . import _buffers, _guards, _plan
from ._geometry import Bounds, Geometry, Window, adjoint_bounds, adjoint_window, counted_taps, int64_of, integer
from ._report import pool_run
from ._spec import ELEMENTS
from .errors import DtypeError, GeometryError
from .options import Settings, threads_of

Array = npt.NDArray[Any]

FLOAT64 = np.dtype(np.float64)


def mean_dtype(given: np.dtype[Any], asked: Any) -> np.dtype[Any]:
    """The dtype of a mean: that of floats, float64 of integers, or what was asked for."""
    if asked is None:
        return FLOAT64 if given.kind in "biu" else given
    return _asked_dtype(given, asked)


def sum_dtype(given: np.dtype[Any], asked: Any) -> np.dtype[Any]:
    """The dtype of a sum: that of floats, 64 bits of integers, or what was asked for."""
    if asked is None:
        return given if given.kind not in "biu" else np.dtype(np.uint64 if given.kind == "u" else np.int64)
    return _asked_dtype(given, asked)


def _asked_dtype(given: np.dtype[Any], asked: Any) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(asked)
    except TypeError as error:
        raise DtypeError(f"dtype={asked!r} is not a dtype: {error}") from None
    dtype = dtype.newbyteorder("=")
    if dtype.name not in ELEMENTS or dtype.kind == "b":
        raise DtypeError(f"dtype={dtype} cannot hold a mean or a sum; use an integer, float16, float32 or float64")
    if dtype.kind in "iu" and given.kind not in "biu":
        raise DtypeError(
            f"dtype={dtype} of {given} input would lose what is behind the point; round the result instead"
        )
    return dtype


def run_sums(plan: _plan.PoolPlan, given: Any, x: Array, dtype: np.dtype[Any], out: Any, settings: Settings) -> Array:
    """Run a plan of sums from x to `out`, or to a new array."""
    record, shape = settings.record, plan.geometry.output_shape
    threads = threads_of(settings) if plan.parallel else 1
    record.planned(pool_run, plan, threads)
    result = _buffers.empty(shape, dtype) if out is None else _guards.check_out("out", out, shape, dtype, (given, x))
    record.step("write", result if out is None else None)
    if plan.compiled is not None:
        plan.compiled.run(_guards.as_bytes(x), _guards.as_bytes(result), None, threads)
        record.step("kernel")
    return result


def divide_by(count_include_pad: Any, divisor_override: Any) -> _plan.Divide:
    if type(count_include_pad).__name__ not in ("bool", "bool_", "int") or count_include_pad not in (0, 1):
        raise GeometryError(f"count_include_pad must be True or False, got {count_include_pad!r}")
    if divisor_override is None:
        return "padded" if count_include_pad else "real"
    divisor = integer("divisor_override", divisor_override)
    if divisor < 1:
        raise GeometryError(f"divisor_override is {divisor}; it must be at least 1")
    return divisor


def checked_gradient(grad_output: Any, shape: tuple[int, ...], what: str, settings: Settings) -> Array:
    """A gradient of the shape of the result whose gradient it is."""
    grad = _guards.as_input("grad_output", grad_output, settings)
    check_gradient(grad, shape, what)
    return grad


def check_gradient(grad: Array, shape: tuple[int, ...], what: str) -> None:
    """Refuse a gradient that does not add up, or is not of the shape of the result whose gradient it is."""
    if grad.dtype.kind == "b":
        raise DtypeError("grad_output has dtype bool, which does not add up; cast it to a number")
    _guards.check_shape("grad_output", grad, shape, what)


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
    divisor = 1
    counts: list[Array] = []
    for axis, window in zip(geometry.axes, geometry.windows, strict=True):
        if isinstance(divide, int):
            break
        if divide != "no":
            taps = counted_taps(window, divide == "padded")
            if taps.lead or taps.trail:
                numbers = [*taps.lead, *[taps.middle] * (window.out - len(taps.lead) - len(taps.trail)), *taps.trail]
                counts.append(np.array(numbers, np.float64).reshape(-1, *[1] * (grad.ndim - axis - 1)))
            else:
                divisor *= taps.middle
    for along in counts:  # windows of different sizes: divided before they are spread
        grad = grad / (along if grad.dtype == np.float64 else along.astype(_wide(grad.dtype)))
        settings.record.step("kernel", grad)
    kept = [slice(None) for _ in grad.shape]
    windows: dict[int, Window | Bounds] = {}
    shape = list(geometry.input_shape)
    for axis, window in zip(geometry.axes, geometry.windows, strict=True):
        kept[axis] = slice(window.crop, window.crop + window.length)
        shape[axis] = window.length
        alone = _only_window(window)
        if alone is not None:  # no sum: every element of the window is given the same
            kept[axis] = slice(window.crop + alone[0], window.crop + alone[1])
            shape[axis] = 1
        else:
            windows[axis] = adjoint_window(window) if isinstance(window, Window) else _adjoint_of(window)
    adjoint = Geometry(grad.shape, tuple(windows), tuple(windows.values()), tuple(shape))
    total = divide if isinstance(divide, int) else divisor
    plan = _plan.sum_plan(adjoint, grad.dtype, dtype, int(total) if total != 1 else "no")
    whole = all(n == len(range(*part.indices(n))) for n, part in zip(geometry.input_shape, kept, strict=True))
    if whole and adjoint.output_shape == geometry.input_shape:
        return run_sums(plan, given, grad, dtype, out, settings)
    # what no window reaches, and what negative padding cut off, gets nothing
    inner = run_sums(plan, given, grad, dtype, None, settings)
    result = _buffers.empty(geometry.input_shape, dtype) if out is None else out
    settings.record.step("write", result if out is None else None)
    part = result[tuple(kept)]
    if not whole:
        result.fill(0)
    part[...] = inner
    return result


def _only_window(window: Window | Bounds) -> tuple[int, int] | None:
    """Where the only window of an axis begins and ends, if it has no gaps."""
    if window.out > 1:
        return None
    if isinstance(window, Bounds):
        first, count = int64_of(window.starts)[0], int64_of(window.counts)[0]
        return first, first + count
    return (0, max(0, min(window.length, window.kernel - window.before))) if window.dilation == 1 else None


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float64) if dtype.kind in "iu" else np.dtype(np.float32)


def _adjoint_of(bounds: Bounds) -> Bounds:
    starts, counts = int64_of(bounds.starts), int64_of(bounds.counts)
    return adjoint_bounds(bounds.length, starts, [a + n for a, n in zip(starts, counts, strict=True)])
