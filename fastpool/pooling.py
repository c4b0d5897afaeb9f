"""Pooling of any number of axes, and back: the public functions, whichever module each is written in.

A call flows one way: arguments are checked (`_guards`, `_geometry`), a plan is looked up or made (`_plan`), and a
compiled kernel (`_dispatch`) writes the result.
"""

from ._extremes import global_max_pool, max_pool, min_pool
from ._indices import convert_indices
from ._results import Pooled, SparseGradient
from ._unpool import max_pool_backward, max_unpool, max_unpool_backward

__all__ = [
    "Pooled",
    "SparseGradient",
    "convert_indices",
    "global_max_pool",
    "max_pool",
    "max_pool_backward",
    "max_unpool",
    "max_unpool_backward",
    "min_pool",
]
