"""What the tests of convolution share: cases beyond generated ones, and the bound that results keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from arrays import BFLOAT16, assert_same_bits, fill, is_float

import fastpool as fp

# Shapes of input and weight, and the arguments: below and above the sizes from which on calls use threads, with every
# way that tiles, runs and register blocks come out.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "one axis": ((2, 5, 300), (7, 5, 9), {"padding": 4}),
    "one axis, strided": ((3, 6, 251), (8, 3, 5), {"stride": 3, "padding": ((2, 0),), "groups": 2}),
    "image": ((2, 12, 23, 33), (20, 12, 3, 3), {"padding": 1}),
    "narrow image": ((3, 9, 40, 7), (10, 9, 3, 3), {"padding": "same"}),
    "1x1": ((2, 30, 20, 21), (13, 30, 1, 1), {}),
    "first layer": ((2, 3, 40, 45), (16, 3, 7, 7), {"stride": 2, "padding": 3}),
    "one channel": ((2, 1, 30, 31), (5, 1, 5, 4), {"dilation": (2, 3), "padding": ((3, 4), (2, 6))}),
    "depthwise": ((2, 21, 25, 26), (21, 1, 3, 3), {"padding": 1, "groups": 21}),
    "two filters for each channel": ((2, 6, 25, 26), (12, 1, 3, 5), {"stride": (2, 1), "groups": 6}),
    "groups": ((2, 24, 17, 18), (20, 6, 3, 3), {"groups": 4, "padding": 1}),
    "far apart": ((2, 8, 60, 50), (9, 8, 3, 2), {"dilation": (17, 9), "stride": (2, 5), "padding": (20, 3)}),
    "volume": ((1, 8, 14, 15, 16), (9, 8, 3, 3, 3), {"padding": 1}),
    "strided volume": ((1, 6, 13, 14, 15), (16, 6, 3, 2, 3), {"stride": (1, 2, 2), "padding": ((0, 1), (1, 0), 1)}),
    "cropped volume": ((2, 4, 12, 13, 14), (6, 4, 2, 3, 3), {"padding": ((-2, 1), (1, -3), (-1, -1))}),
    "four axes": ((1, 4, 7, 8, 9, 10), (5, 4, 3, 2, 3, 2), {"padding": 1, "stride": (1, 2, 1, 1)}),
    "five axes": ((1, 2, 5, 4, 5, 6, 5), (3, 2, 2, 3, 2, 3, 2), {"padding": 1, "dilation": (1, 1, 2, 1, 1)}),
    "many channels": ((2, 300, 6, 5), (130, 300, 3, 3), {"padding": 1}),
    "circular": ((2, 7, 20, 22), (9, 7, 3, 5), {"padding": ((2, 1), (3, 4)), "padding_mode": "circular"}),
}  # fmt: skip


def arrays_of(name: str, dtype: Any, kind: str = "random") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Input, weight and bias of a case."""
    shape, weight_shape, _ = CASES[name]
    rng = np.random.default_rng(len(name))
    x, weight = fill(kind, dtype, shape, rng), fill("random", dtype, weight_shape, rng)
    return x, weight, fill("random", dtype, weight_shape[:1], rng)


def results(
    name: str, dtype: Any, change: Callable[[np.ndarray], np.ndarray] = np.asarray, **options: Any
) -> list[Any]:
    """Everything that issues from the arrays of a case, each of them changed first."""
    x, weight, bias = (change(array) for array in arrays_of(name, dtype))
    arguments = CASES[name][2]
    y = fp.conv(x, weight, bias, **arguments, **options)
    grad = change(fill("random", dtype, y.shape, np.random.default_rng(1)))
    found = [y, *fp.conv_backward(grad, x, weight, **arguments, **options)]
    if "padding_mode" not in arguments:
        found.append(fp.conv_transpose(grad, weight, **arguments, **options))
        found += fp.conv_transpose_backward(
            change(fill("random", dtype, found[-1].shape, np.random.default_rng(2))),
            grad,
            weight,
            **arguments,
            **options,
        )
    return found


def accumulated(dtype: Any) -> np.dtype[Any]:
    """The dtype that sums are added up in."""
    dtype = np.dtype(dtype)
    return np.dtype(np.float32) if dtype in (np.dtype(np.float16), BFLOAT16) else dtype


def assert_in_bound(found: np.ndarray, exact: np.ndarray, magnitude: np.ndarray, terms: int) -> None:
    """Sums of so many terms, whose magnitudes sum up to `magnitude`, are `exact` for integers, else in the bound."""
    if not is_float(exact.dtype):
        assert_same_bits(found, exact)
        return
    assert found.dtype == exact.dtype
    assert found.shape == exact.shape
    wide = exact.astype(np.float64)
    error = np.abs(found.astype(np.float64) - wide)
    bound = (terms + 2) * np.finfo(accumulated(exact.dtype)).eps * magnitude
    if accumulated(exact.dtype) != exact.dtype:
        bound = bound + np.abs(wide) / (128 if exact.dtype == BFLOAT16 else 1024) + 2.0**-24
    worst = np.max(error - bound, initial=0)
    assert worst <= 0, worst


def wide_and_positive(*arrays: Any) -> list[Any]:
    """Magnitudes in float64, None as it is."""
    return [None if array is None else np.abs(np.asarray(array).astype(np.float64)) for array in arrays]
