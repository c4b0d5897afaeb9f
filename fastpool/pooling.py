"""Pooling of any number of axes, and back: the public functions, whichever module each is written in.

A call flows one way: arguments are checked (`_guards`, `_geometry`), a plan is looked up or made (`_plan`), and a
compiled kernel (`_dispatch`) writes the result.
"""

from ._extremes import global_max_pool, max_pool, min_pool
from ._indices import convert_indices
from ._means import (
    avg_pool,
    avg_pool_backward,
    global_avg_pool,
    global_avg_pool_backward,
    sum_pool,
    sum_pool_backward,
)
from ._norms import lp_pool, lp_pool_backward
from ._random import fractional_max_pool, stochastic_pool
from ._results import Pooled, SparseGradient
from ._unpool import max_pool_backward, max_unpool, max_unpool_backward
from ._windows import (
    adaptive_avg_pool,
    adaptive_avg_pool_backward,
    adaptive_max_pool,
    window_pool,
    window_pool_backward,
    windows_from_edges,
)

__all__ = [
    "Pooled",
    "SparseGradient",
    "adaptive_avg_pool",
    "adaptive_avg_pool_backward",
    "adaptive_max_pool",
    "avg_pool",
    "avg_pool_backward",
    "convert_indices",
    "fractional_max_pool",
    "global_avg_pool",
    "global_avg_pool_backward",
    "global_max_pool",
    "lp_pool",
    "lp_pool_backward",
    "max_pool",
    "max_pool_backward",
    "max_unpool",
    "max_unpool_backward",
    "min_pool",
    "stochastic_pool",
    "sum_pool",
    "sum_pool_backward",
    "window_pool",
    "window_pool_backward",
    "windows_from_edges",
]
