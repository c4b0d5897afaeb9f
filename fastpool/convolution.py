"""Convolution of any number of axes, and back: the public functions, whichever module each is written in.

A call flows one way: arguments are checked (`_guards`, `_geometry`), a plan is looked up or made (`_plan`), and a
compiled kernel (`_dispatch`) writes the result.
"""

from ._conv import conv, conv_transpose
from ._conv_backward import conv_backward, conv_transpose_backward
from ._padding import pad
from ._results import ConvGradients
from ._unfold import fold, unfold

__all__ = [
    "ConvGradients",
    "conv",
    "conv_backward",
    "conv_transpose",
    "conv_transpose_backward",
    "fold",
    "pad",
    "unfold",
]
