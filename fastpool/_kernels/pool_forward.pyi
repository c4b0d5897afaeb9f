# The contract of every build of pool_forward.pyx.

import numpy as np
import numpy.typing as npt

from fastpool._spec import ForwardSpec

class ForwardPlan:
    units: int
    workspace_bytes: int
    def __init__(self, spec: ForwardSpec) -> None: ...
    def run(
        self,
        x: npt.NDArray[np.uint8],
        y: npt.NDArray[np.uint8],
        indices: npt.NDArray[np.int64] | None,
        threads: int,
    ) -> None: ...

def output_length(
    length: int, kernel: int, stride: int, dilation: int, before: int, after: int, ceil_mode: bool
) -> int: ...
