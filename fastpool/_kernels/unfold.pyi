# The contract of every build of unfold.pyx.

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Axes: TypeAlias = npt.NDArray[np.int64]

def unfold(x: _Bytes, columns: _Bytes, element: int, axes: _Axes, planes: int, step: int, threads: int) -> None: ...
def fold(
    columns: _Bytes, result: _Bytes, element: int, axes: _Axes, planes: int, step: int, work: _Bytes, threads: int
) -> None: ...
