"""Calls of every public function that takes arrays, for tests that go over all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fastpool as fp

# Public functions without an array among their arguments.
NO_ARRAYS = {
    "explain",
    "get_num_threads",
    "last_report",
    "options",
    "output_shape",
    "set_num_threads",
    "show_runtime",
}

_rng = np.random.default_rng(11)
X = _rng.standard_normal((2, 3, 16, 20)).astype(np.float32)
HALVES = X.astype(np.float16)
WINDOW: dict[str, Any] = {"kernel_size": (3, 2), "stride": (2, 2), "padding": (1, 0)}
POOLED = fp.max_pool(X, **WINDOW, return_indices=True)
SHAPE = POOLED.values.shape
GRADIENT = fp.avg_pool(X, **WINDOW)
# windows of several sizes along the last axis: nested ones, and in no order
WINDOWS = [(np.array([3, 0, 8]), np.array([9, 20, 12]))]
FILTERS = _rng.standard_normal((4, 3, 3, 2)).astype(np.float32)
BIAS = _rng.standard_normal(4).astype(np.float32)
CONVOLVED = fp.conv(X, FILTERS, padding=1)
COLUMNS = fp.unfold(X, **WINDOW)
ROWS = fp.window_pool(X, WINDOWS, "sum")

# Keyword arguments, several sets where a function has several ways to go.
ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "max_pool": [
        {"x": X, **WINDOW},
        {"x": X, **WINDOW, "return_indices": True},
        {"x": X[:, :, ::-1], "kernel_size": (3, 3), "return_indices": True},
        {"x": X, **WINDOW, "return_indices": True, "out": (np.empty(SHAPE, X.dtype), np.empty(SHAPE, np.int64))},
        {"x": HALVES, **WINDOW},
    ],
    "min_pool": [{"x": X, **WINDOW, "return_indices": True}, {"x": X, **WINDOW, "out": np.empty(SHAPE, X.dtype)}],
    "global_max_pool": [{"x": X}, {"x": X, "axes": (0, 2), "keepdims": False, "return_indices": True}],
    "max_pool_backward": [
        {"grad_output": POOLED.values, "indices": POOLED.indices, "input_shape": X.shape},
        {"grad_output": POOLED.values, "indices": POOLED.indices, "input_shape": X.shape, "sparse": True},
        {"grad_output": POOLED.values, "indices": POOLED.indices, "input_shape": X.shape, "out": np.empty_like(X)},
        {"grad_output": POOLED.values.astype(np.float16), "indices": POOLED.indices, "input_shape": X.shape},
    ],
    "max_unpool": [
        {"values": POOLED.values, "indices": POOLED.indices, "output_shape": X.shape},
        {"values": POOLED.values, "indices": POOLED.indices.astype(np.int32), "output_shape": X.shape},
        {"values": POOLED.values, "indices": POOLED.indices, "output_shape": X.shape, "out": np.empty_like(X)},
    ],
    "max_unpool_backward": [{"grad_output": X, "indices": POOLED.indices}],
    "avg_pool": [
        {"x": X, **WINDOW},
        {"x": X, **WINDOW, "count_include_pad": False, "out": np.empty(SHAPE, X.dtype)},
        {"x": X[:, ::-1], "kernel_size": (2, 2), "dilation": 3, "divisor_override": 3},
        {"x": HALVES, **WINDOW, "dtype": np.float64},
    ],
    "sum_pool": [{"x": X, **WINDOW}, {"x": HALVES, **WINDOW, "out": np.empty(SHAPE, HALVES.dtype)}],
    "lp_pool": [
        {"x": X, "norm_type": 2, **WINDOW},
        {"x": X, "norm_type": 2.5, **WINDOW, "out": np.empty(SHAPE, X.dtype)},
        {"x": HALVES, "norm_type": 3, **WINDOW, "signed": True},
        {"x": X, "norm_type": np.inf, **WINDOW},
        {"x": X, "norm_type": np.inf, **WINDOW, "out": np.empty(SHAPE, X.dtype)},
    ],
    "adaptive_max_pool": [
        {"x": X, "output_size": (5, 3), "return_indices": True},
        {"x": X, "output_size": (5, 3), "out": np.empty((2, 3, 5, 3), X.dtype)},
    ],
    "adaptive_avg_pool": [
        {"x": X, "output_size": (5, None)},
        {"x": HALVES, "output_size": (8, 5), "out": np.empty((2, 3, 8, 5), HALVES.dtype)},
    ],
    "global_avg_pool": [{"x": X}, {"x": HALVES, "axes": (0, 2), "keepdims": False, "dtype": np.float32}],
    "fractional_max_pool": [
        {"x": X, "kernel_size": (2, 3), "output_size": (7, 5), "rng": 3, "return_indices": True},
        {"x": X, "kernel_size": (2, 3), "output_size": (7, 5), "random_samples": np.array([0.25, 0.5])},
        {
            "x": X,
            "kernel_size": 2,
            "output_size": 2,
            "axes": (1, 3),
            "random_samples": _rng.random((2, 16, 2)),
            "return_indices": True,
        },
    ],
    "stochastic_pool": [
        {"x": abs(X), **WINDOW, "rng": 3},
        {"x": abs(HALVES), **WINDOW, "rng": 3, "return_indices": True},
    ],
    "window_pool": [
        {"x": X, "windows": WINDOWS, "op": "min", "return_indices": True},
        {"x": X, "windows": WINDOWS, "op": "sum", "out": np.empty(ROWS.shape, X.dtype)},
        {"x": HALVES, "windows": [*WINDOWS, ([0, 4], [8, 5])], "op": "avg", "axes": (3, 2)},
    ],
    "windows_from_edges": [{"coordinates": np.linspace(0, 1, 20), "edges": np.array([0.0, 0.3, 0.35, 1.0])}],
    "avg_pool_backward": [
        {"grad_output": GRADIENT, "input_shape": X.shape, **WINDOW},
        {
            "grad_output": GRADIENT,
            "input_shape": X.shape,
            **WINDOW,
            "count_include_pad": False,
            "out": np.empty_like(X),
        },
        {"grad_output": ROWS[..., :2], "input_shape": (2, 3, 16, 9), "kernel_size": (3,), "padding": -1},
        {
            "grad_output": ROWS[..., :2],
            "input_shape": (2, 3, 16, 9),
            "kernel_size": (3,),
            "padding": -1,
            "out": np.empty((2, 3, 16, 9), X.dtype),
        },
    ],
    "sum_pool_backward": [{"grad_output": GRADIENT.astype(np.float16), "input_shape": X.shape, **WINDOW}],
    "lp_pool_backward": [
        {"grad_output": GRADIENT, "x": X, "y": fp.lp_pool(X, p, **WINDOW), "norm_type": p, **WINDOW, **more}
        for p in (2, 2.5, np.inf)
        for more in ({}, {"out": np.empty_like(X)})
    ],
    "adaptive_avg_pool_backward": [
        {"grad_output": GRADIENT, "input_shape": (2, 3, 20, 15)},
        {"grad_output": GRADIENT, "input_shape": (2, 3, 20, 15), "out": np.empty((2, 3, 20, 15), X.dtype)},
    ],
    "global_avg_pool_backward": [
        {"grad_output": GRADIENT[:, :, :1, :1], "input_shape": X.shape},
        {"grad_output": np.ones((3, 20), np.float16), "input_shape": X.shape, "axes": (0, 2)},
    ],
    "window_pool_backward": [
        {"grad_output": ROWS, "input_shape": X.shape, "windows": WINDOWS, "op": "avg"},
        {"grad_output": ROWS[..., 1:], "input_shape": X.shape, "windows": [((0, 8), (9, 20))], "op": "sum"},
    ],
    "conv": [
        {"x": X, "weight": FILTERS, "bias": BIAS, "padding": 1},
        {"x": X, "weight": FILTERS, "stride": 2, "algorithm": "gemm", "out": np.empty((2, 4, 7, 10), X.dtype)},
        {"x": X[0], "weight": FILTERS[:3, :1], "groups": 3, "padding": 1, "padding_mode": "reflect"},
        {"x": HALVES, "weight": FILTERS.astype(np.float16), "bias": BIAS.astype(np.float16)},
    ],
    "conv_backward": [
        {"grad_output": CONVOLVED, "x": X, "weight": FILTERS, "padding": 1},
        {"grad_output": CONVOLVED, "x": X, "weight": FILTERS, "padding": 1, "padding_mode": "circular"},
        {"grad_output": CONVOLVED, "x": X, "weight": FILTERS, "padding": 1, "needs": ("weight",)},
    ],
    "conv_transpose": [
        {"x": CONVOLVED, "weight": FILTERS, "bias": BIAS[:3], "stride": 2, "output_padding": 1},
        {"x": CONVOLVED, "weight": FILTERS, "padding": 1, "out": np.empty(X.shape, X.dtype)},
    ],
    "conv_transpose_backward": [{"grad_output": X, "x": CONVOLVED, "weight": FILTERS, "padding": 1}],
    "unfold": [{"x": X, **WINDOW}, {"x": X[0] > 0, **WINDOW}],
    "fold": [
        {"columns": COLUMNS, "output_size": X.shape[2:], **WINDOW},
        {"columns": COLUMNS.astype(np.float16), "output_size": X.shape[2:], **WINDOW},
    ],
    "pad": [{"x": X, "padding": ((1, -2), 3)}, {"x": X, "padding": 2, "mode": "circular", "axes": 1}],
    "convert_indices": [{"indices": POOLED.indices, "input_shape": X.shape, "spatial_ndim": 2, "to": "tensorflow"}],
    "gradcheck": [{"function": lambda x: x * x, "backward": lambda g, x: 2 * x * g, "inputs": np.array([3.0])}],
}
CONVOLUTION = {"conv", "conv_backward", "conv_transpose", "conv_transpose_backward", "unfold", "fold", "pad"}
FUNCTIONS = {name for name in fp.__all__ if inspect.isfunction(getattr(fp, name))}
# those that take the options
RECORDED = sorted(
    name for name in FUNCTIONS & set(ARGUMENTS) if "options" in inspect.signature(getattr(fp, name)).parameters
)


def calls(name: str) -> Iterator[tuple[Callable[..., Any], dict[str, Any]]]:
    """The function and its arguments, once for every set of them."""
    for arguments in ARGUMENTS[name]:
        yield getattr(fp, name), arguments


def arrays_in(arguments: dict[str, Any]) -> list[np.ndarray]:
    """Every array among the arguments, in tuples and lists too."""
    found: list[np.ndarray] = []
    values = list(arguments.values())
    while values:
        value = values.pop()
        if isinstance(value, (tuple, list)):
            values += value
        elif isinstance(value, np.ndarray):
            found.append(value)
    return found
