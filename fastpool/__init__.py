"""fastpool: pooling of NumPy arrays of any number of dimensions, forward and backward, with compiled kernels."""

from .errors import (
    ContiguityError,
    ContiguityWarning,
    DtypeError,
    FastpoolError,
    GeometryError,
    IndexOutOfBoundsError,
    NonFiniteError,
    NonFiniteWarning,
)
from .options import Options, Report, get_num_threads, last_report, options, set_num_threads, show_runtime
from .plans import output_shape
from .pooling import (
    Pooled,
    SparseGradient,
    convert_indices,
    global_max_pool,
    max_pool,
    max_pool_backward,
    max_unpool,
    max_unpool_backward,
    min_pool,
)
from .testing import gradcheck

__version__ = "0.1.0"

__all__ = [
    "ContiguityError",
    "ContiguityWarning",
    "DtypeError",
    "FastpoolError",
    "GeometryError",
    "IndexOutOfBoundsError",
    "NonFiniteError",
    "NonFiniteWarning",
    "Options",
    "Pooled",
    "Report",
    "SparseGradient",
    "convert_indices",
    "get_num_threads",
    "global_max_pool",
    "gradcheck",
    "last_report",
    "max_pool",
    "max_pool_backward",
    "max_unpool",
    "max_unpool_backward",
    "min_pool",
    "options",
    "output_shape",
    "set_num_threads",
    "show_runtime",
]
