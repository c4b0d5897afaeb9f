"""Convolution: time, its rate, and memory beyond the results."""

from __future__ import annotations

import math
import sys
import time
from typing import Any, NamedTuple

import fastpool as fp

from ._common import random_array


class Conv(NamedTuple):
    """Shapes of input and weight, and the arguments."""

    shape: tuple[int, ...]
    weight: tuple[int, ...]
    stride: int | tuple[int, ...] = 1
    padding: int = 0
    groups: int = 1
    dtype: str = "f4"

    def arrays(self) -> tuple[Any, Any]:
        return random_array(self.shape, self.dtype), random_array(self.weight, self.dtype)

    def run(self, x: Any, weight: Any, **more: Any) -> Any:
        return fp.conv(x, weight, None, self.stride, self.padding, 1, self.groups, **more)

    def backward(self, grad: Any, x: Any, weight: Any, needs: tuple[str, ...]) -> Any:
        return fp.conv_backward(grad, x, weight, self.stride, self.padding, 1, self.groups, needs=needs)


# Names are kept in results for good: a changed case takes a new name.
CASES = {
    "1d k9 8x64x4000->64": Conv((8, 64, 4000), (64, 64, 9), 1, 4),
    "2d k3 8x64x56^2->64": Conv((8, 64, 56, 56), (64, 64, 3, 3), 1, 1),
    "2d k3 8x256x14^2->256": Conv((8, 256, 14, 14), (256, 256, 3, 3), 1, 1),
    "2d k1 8x256x56^2->64": Conv((8, 256, 56, 56), (64, 256, 1, 1)),
    "2d k7s2 8x3x224^2->64": Conv((8, 3, 224, 224), (64, 3, 7, 7), 2, 3),
    "2d depthwise k3 8x96x56^2": Conv((8, 96, 56, 56), (96, 1, 3, 3), 1, 1, 96),
    "2d i8 k3 4x32x56^2->32": Conv((4, 32, 56, 56), (32, 32, 3, 3), 1, 1, dtype="i1"),
    "2d f8 k3 4x32x56^2->32": Conv((4, 32, 56, 56), (32, 32, 3, 3), 1, 1, dtype="f8"),
    "3d k3 1x32x64^3->32": Conv((1, 32, 64, 64, 64), (32, 32, 3, 3, 3), 1, 1),
    "3d k3s2 1x16x32^3->32": Conv((1, 16, 32, 32, 32), (32, 16, 3, 3, 3), 2, 1),
    "3d depthwise k3 1x32x48^3": Conv((1, 32, 48, 48, 48), (32, 1, 3, 3, 3), 1, 1, 32),
    "4d k3 1x8x16x24^3->16": Conv((1, 8, 16, 24, 24, 24), (16, 8, 3, 3, 3, 3), 1, 1),
}
FLOATS = [name for name, case in CASES.items() if case.dtype == "f4"]


class Forward:
    params = tuple(CASES)
    param_names = ("case",)

    def setup(self, name):
        self.x, self.weight = CASES[name].arrays()

    def time_conv(self, name):
        CASES[name].run(self.x, self.weight)

    def track_gflops(self, name):
        """Products and sums, in thousands of millions a second: the best of several calls."""
        best = math.inf
        for _ in range(5):
            start = time.perf_counter()
            y = CASES[name].run(self.x, self.weight)
            best = min(best, time.perf_counter() - start)
        return 2e-9 * y.size * math.prod(CASES[name].weight[1:]) / best

    track_gflops.unit = "GFLOP/s"


class Backward:
    params = (tuple(FLOATS), ("x", "weight"))
    param_names = ("case", "needs")

    def setup(self, name, needs):
        self.x, self.weight = CASES[name].arrays()
        self.grad = CASES[name].run(self.x, self.weight)

    def time_conv_backward(self, name, needs):
        CASES[name].backward(self.grad, self.x, self.weight, (needs,))


class Columns:
    params = ("2d k3 8x64x56^2->64", "3d k3s2 1x16x32^3->32")
    param_names = ("case",)

    def setup(self, name):
        case = CASES[name]
        self.x, self.arguments = case.arrays()[0], (case.weight[2:], case.stride, case.padding)
        self.columns = fp.unfold(self.x, *self.arguments)

    def time_unfold(self, name):
        fp.unfold(self.x, *self.arguments)

    def time_fold(self, name):
        fp.fold(self.columns, self.x.shape[2:], *self.arguments)


class Memory:
    """Never the matrix of all windows: that of the 3-D case has 864 MiB, that of the 4-D case 546 MiB."""

    params = ("3d k3 1x32x64^3->32", "4d k3 1x8x16x24^3->16")
    param_names = ("case",)

    def setup(self, name):
        self.x, self.weight = CASES[name].arrays()

    def peakmem_conv(self, name):
        CASES[name].run(self.x, self.weight)

    def peakmem_conv_backward(self, name):
        CASES[name].backward(CASES[name].run(self.x, self.weight), self.x, self.weight, ("x", "weight"))

    def track_beyond_results(self, name):
        """Bytes by which a call raises the peak of the process beyond the array that it returns."""
        try:
            import resource
        except ImportError:  # as on Windows
            return math.nan
        unit = 1 if sys.platform == "darwin" else 1024
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        y = CASES[name].run(self.x, self.weight)
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit - y.nbytes

    track_beyond_results.unit = "bytes"
