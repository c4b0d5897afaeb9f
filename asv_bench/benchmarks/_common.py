"""Cases, arrays and the machine's copy bandwidth, which several benchmarks share."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import fastpool as fp

Array = npt.NDArray[Any]


class Case(NamedTuple):
    """A shape, its dtype, and the arguments of the pooling."""

    shape: tuple[int, ...]
    dtype: str
    kernel: tuple[int, ...]
    stride: int | tuple[int, ...]
    padding: int | tuple[int, ...] = 0
    dilation: int = 1
    axes: tuple[int, ...] | None = None

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def array(self) -> Array:
        return random_array(self.shape, self.dtype)

    def pool(self, x: Array, **more: Any) -> Any:
        return fp.max_pool(x, self.kernel, self.stride, self.padding, self.dilation, axes=self.axes, **more)

    def average(self, x: Array, **more: Any) -> Any:
        # Pixels are averaged to pixels, as an image pyramid wants them.
        dtype = None if x.dtype.kind == "f" else x.dtype
        return fp.avg_pool(
            x, self.kernel, self.stride, self.padding, self.dilation, axes=self.axes, dtype=dtype, **more
        )

    def average_backward(self, grad: Array, **more: Any) -> Any:
        return fp.avg_pool_backward(
            grad, self.shape, self.kernel, self.stride, self.padding, self.dilation, axes=self.axes, **more
        )

    def output_shape(self) -> tuple[int, ...]:
        return fp.output_shape(self.shape, self.kernel, self.stride, self.padding, self.dilation, axes=self.axes)

    def outputs(self) -> fp.Pooled:
        """Arrays for `out=`, their pages touched."""
        return fp.Pooled(np.full(self.output_shape(), 1, self.dtype), np.full(self.output_shape(), 1, np.int64))


# Names are kept in results for good: a changed case takes a new name.
CASES = {
    "1d k4s4 32x64x16000": Case((32, 64, 16000), "f4", (4,), 4),
    "2d k3s2p1 8x64x112^2": Case((8, 64, 112, 112), "f4", (3, 3), 2, 1),
    "2d k2s2 8x64x224^2": Case((8, 64, 224, 224), "f4", (2, 2), 2),
    "2d k5s1p2 8x256x20^2": Case((8, 256, 20, 20), "f4", (5, 5), 1, 2),
    "2d k13s1p6 8x256x20^2": Case((8, 256, 20, 20), "f4", (13, 13), 1, 6),
    "2d k7s1p3 4x64x128^2": Case((4, 64, 128, 128), "f4", (7, 7), 1, 3),
    "2d k31s1p15 4x16x256^2": Case((4, 16, 256, 256), "f4", (31, 31), 1, 15),
    "2d k3d2s1p2 8x64x112^2": Case((8, 64, 112, 112), "f4", (3, 3), 1, 2, 2),
    "2d nhwc k3s2p1 8x112^2x64": Case((8, 112, 112, 64), "f4", (3, 3), 2, 1, axes=(1, 2)),
    "2d u8 k2s2 8192^2": Case((8192, 8192), "u1", (2, 2), 2),
    "3d k3s1p1 1x32x64^3": Case((1, 32, 64, 64, 64), "f4", (3, 3, 3), 1, 1),
    "3d k3s2p1 1x32x64^3": Case((1, 32, 64, 64, 64), "f4", (3, 3, 3), 2, 1),
    "3d k2s2 1x1x256^3": Case((1, 1, 256, 256, 256), "f4", (2, 2, 2), 2),
    "3d u16 k2s2 128x512^2": Case((128, 512, 512), "u2", (2, 2, 2), 2),
    "3d f64 k3s2p1 1x32x64^3": Case((1, 32, 64, 64, 64), "f8", (3, 3, 3), 2, 1),
    "4d k2s2 2x24x48^3": Case((2, 24, 48, 48, 48), "f4", (2, 2, 2, 2), 2),
    "4d k3s1p1 24x48^3": Case((24, 48, 48, 48), "f4", (3, 3, 3, 3), 1, 1),
    "4d k3s2p1 24x48^3": Case((24, 48, 48, 48), "f4", (3, 3, 3, 3), 2, 1),
}


class Call(NamedTuple):
    """A function of the family with its arguments, and the shape of its float32 input."""

    shape: tuple[int, ...]
    run: Callable[[Array], Any]

    def array(self) -> Array:
        return np.random.default_rng(7).random(self.shape, np.float32)


# Bins whose widths grow with the distance, as of a LiDAR waveform, and bins of other widths along every axis.
RANGE_BINS = fp.windows_from_edges(np.arange(50, 16050), np.geomspace(50, 16050, 201))
UNEVEN = [fp.windows_from_edges(np.arange(64), 64 * np.linspace(0, 1, 14) ** power) for power in (1.5, 1.0, 0.7)]

# Likewise kept for good.
CALLS = {
    "sum 4d k3s2p1 24x48^3": Call((24, 48, 48, 48), lambda x: fp.sum_pool(x, (3, 3, 3, 3), 2, 1)),
    "lp2 2d k3s2p1 8x64x112^2": Call((8, 64, 112, 112), lambda x: fp.lp_pool(x, 2, (3, 3), 2, 1)),
    "adaptive avg 7^2 16x512x37x53": Call((16, 512, 37, 53), lambda x: fp.adaptive_avg_pool(x, (7, 7))),
    "adaptive max+idx 7^2 16x512x37x53": Call(
        (16, 512, 37, 53), lambda x: fp.adaptive_max_pool(x, (7, 7), return_indices=True)
    ),
    "global avg 8x512x56^2": Call((8, 512, 56, 56), fp.global_avg_pool),
    "global avg nhwc 8x56^2x512": Call((8, 56, 56, 512), lambda x: fp.global_avg_pool(x, axes=(1, 2))),
    "global avg 1x1x256^3": Call((1, 1, 256, 256, 256), fp.global_avg_pool),
    "fractional k2 79^2 8x64x112^2": Call(
        (8, 64, 112, 112), lambda x: fp.fractional_max_pool(x, (2, 2), (79, 79), random_samples=[0.3, 0.7])
    ),
    "fractional by plane k2 79^2 8x64x112^2": Call(
        (8, 64, 112, 112), lambda x: fp.fractional_max_pool(x, (2, 2), (79, 79), rng=7)
    ),
    "window avg 200 bins 16x64x16000": Call((16, 64, 16000), lambda x: fp.window_pool(x, [RANGE_BINS], "avg")),
    "window max+idx 200 bins 16x64x16000": Call(
        (16, 64, 16000), lambda x: fp.window_pool(x, [RANGE_BINS], "max", return_indices=True)
    ),
    "window sum 3d uneven 13^3 32x64^3": Call((32, 64, 64, 64), lambda x: fp.window_pool(x, UNEVEN, "sum")),
}


def random_array(shape: tuple[int, ...], dtype: str) -> Array:
    """Random values, every page written."""
    rng = np.random.default_rng(7)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, np.iinfo(dtype).max, shape, dtype)
    return rng.standard_normal(shape, dtype)


def seconds(function: Callable[[], object], span: float = 0.15) -> float:
    """The median of calls over at least `span` seconds."""
    function()
    times: list[float] = []
    while len(times) < 3 or sum(times) < span:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def copy_bandwidth() -> float:
    """Bytes read and written in a second by a copy that uses as many threads as fastpool does."""
    threads = fp.get_num_threads()
    source, target = np.ones(16 << 20, np.float32), np.zeros(16 << 20, np.float32)
    parts = list(zip(np.array_split(source, threads), np.array_split(target, threads), strict=True))
    with ThreadPoolExecutor(threads) as pool:  # NumPy releases the GIL while it copies
        copy = lambda: list(pool.map(lambda pair: np.copyto(pair[1], pair[0]), parts))  # noqa: E731
        return 2 * source.nbytes / seconds(copy)
