"""Exceptions and warnings raised by fastpool.

Every exception derives from `FastpoolError` and from the builtin that fits, so both
``except FastpoolError`` and ``except ValueError`` work as one would expect.
"""

from __future__ import annotations

__all__ = [
    "ContiguityError",
    "ContiguityWarning",
    "DtypeError",
    "FastpoolError",
    "GeometryError",
    "IndexOutOfBoundsError",
    "NonFiniteError",
    "NonFiniteWarning",
]


class FastpoolError(Exception):
    """Base class of every exception that fastpool raises."""


class GeometryError(FastpoolError, ValueError):
    """Shapes, windows, axes or options that do not describe a possible operation."""


class ContiguityError(FastpoolError, ValueError):
    """An array whose memory layout is refused (``contiguity="require"``, or an unusable ``out``)."""


class DtypeError(FastpoolError, TypeError):
    """An array, or a dtype, that the operation does not take."""


class IndexOutOfBoundsError(FastpoolError, IndexError):
    """A flat index that does not lie inside the array it points into."""


class NonFiniteError(FastpoolError, ValueError):
    """NaN or infinity in an input under ``check_finite="raise"``."""


class ContiguityWarning(UserWarning):
    """An input was copied because it is not C-contiguous (``contiguity="warn"``)."""


class NonFiniteWarning(UserWarning):
    """NaN or infinity in an input under ``check_finite="warn"``."""
