# The contract of every build of conv.pyx.

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fastpool._conv_spec import ConvSpec

_Bytes: TypeAlias = npt.NDArray[np.uint8]

MOST_DIMENSIONS: int

class ConvPlan:
    units: int
    workspace_bytes: int
    packed_bytes: int
    def __init__(self, spec: ConvSpec) -> None: ...
    def run(
        self, x: _Bytes, weight: _Bytes, bias: _Bytes, y: _Bytes, packed: _Bytes, work: _Bytes, threads: int
    ) -> None: ...
    def run_gradient(self, x: _Bytes, grad: _Bytes, result: _Bytes, work: _Bytes, threads: int) -> None: ...
