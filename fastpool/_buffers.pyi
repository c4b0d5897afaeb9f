from typing import Any

import numpy as np
import numpy.typing as npt

BOUND: int

def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]: ...
def held_bytes() -> int: ...
def release() -> None: ...
