# The contract of every build of pool_backward.pyx.

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

_Indices: TypeAlias = npt.NDArray[np.int64]

def block_ranges(indices: _Indices, size: int, block: int, low: _Indices, high: _Indices, threads: int) -> bool: ...
def scatter_half(
    source: npt.NDArray[np.uint16],
    indices: _Indices,
    result: npt.NDArray[np.uint16],
    brain: bool,
    block: int,
    low: _Indices,
    high: _Indices,
    slab: int,
    first: _Indices,
    last: _Indices,
    threads: int,
) -> None: ...

# Kernels for several element types, by the C name of the type.
scatter: Mapping[str, Callable[..., Any]]
gather: Mapping[str, Callable[..., Any]]
