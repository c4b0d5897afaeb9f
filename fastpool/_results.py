"""The named tuples that functions with more than one result return."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Pooled(NamedTuple):
    """Pooled values, and where in the input each came from: ``x.ravel()[indices]`` equals ``values``."""

    values: npt.NDArray[Any]
    indices: npt.NDArray[np.int64]


class SparseGradient(NamedTuple):
    """A gradient by its touched positions: flat indices, ascending and each once, and their values."""

    indices: npt.NDArray[np.int64]
    values: npt.NDArray[Any]


class ConvGradients(NamedTuple):
    """Gradients of a convolution by each of its arrays; None for one that was not asked for."""

    x: npt.NDArray[Any] | None
    weight: npt.NDArray[Any] | None
    bias: npt.NDArray[Any] | None
