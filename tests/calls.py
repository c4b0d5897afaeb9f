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
    "convert_indices": [{"indices": POOLED.indices, "input_shape": X.shape, "spatial_ndim": 2, "to": "tensorflow"}],
    "gradcheck": [{"function": lambda x: x * x, "backward": lambda g, x: 2 * x * g, "inputs": np.array([3.0])}],
}
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
    """Every array among the arguments, in tuples too."""
    found: list[np.ndarray] = []
    for value in arguments.values():
        found += [entry for entry in (value if isinstance(value, tuple) else (value,)) if isinstance(entry, np.ndarray)]
    return found
