"""What a call would do, without arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._geometry import pooling_geometry, shape_tuple

__all__ = ["output_shape"]


def output_shape(
    input_shape: Sequence[int],
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    axes: Any = None,
) -> tuple[int, ...]:
    """Shape of a pooling's result, in exact integers; nothing is allocated.

    Parameters
    ----------
    input_shape : tuple of int
        Shape of the input.
    kernel_size, stride, padding, dilation, ceil_mode, axes
        As in `fastpool.max_pool`.

    Returns
    -------
    tuple of int
        The shape of the result.

    Raises
    ------
    GeometryError
        If the arguments describe no pooling.

    Examples
    --------
    >>> import fastpool as fp
    >>> fp.output_shape((8, 64, 112, 112), (3, 3), stride=2, padding=1)
    (8, 64, 56, 56)
    >>> fp.output_shape((1, 1, 225, 225), (2, 2), ceil_mode=True)
    (1, 1, 113, 113)
    """
    shape = shape_tuple("input_shape", input_shape)
    return pooling_geometry(shape, kernel_size, stride, padding, dilation, ceil_mode, axes).output_shape
