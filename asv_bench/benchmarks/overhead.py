"""What a call costs before it pools anything."""

from __future__ import annotations

import itertools

import numpy as np

import fastpool as fp

from ._common import random_array


class SmallCall:
    def setup(self):
        self.x = random_array((1, 16, 32, 32), "f4")
        self.strided = self.x[:, :, ::-1]
        self.values, self.indices = fp.max_pool(self.x, (2, 2), return_indices=True)

    def time_values(self):
        fp.max_pool(self.x, (2, 2))

    def time_with_indices(self):
        fp.max_pool(self.x, (2, 2), return_indices=True)

    def time_every_argument(self):
        fp.max_pool(self.x, (2, 3), (1, 2), ((1, 0), (0, 1)), (1, 1), ceil_mode=True, axes=(2, 3), num_threads=1)

    def time_not_contiguous(self):
        fp.max_pool(self.strided, (2, 2))

    def time_out(self):
        fp.max_pool(self.x, (2, 2), out=self.values)

    def time_backward(self):
        fp.max_pool_backward(self.values, self.indices, self.x.shape)

    def time_avg_pool(self):
        fp.avg_pool(self.x, (2, 2))

    def time_avg_pool_backward(self):
        fp.avg_pool_backward(self.values, self.x.shape, (2, 2))

    def time_adaptive_avg_pool(self):
        fp.adaptive_avg_pool(self.x, (7, 7))

    def time_window_pool(self):
        fp.window_pool(self.x, [([0, 5, 9], [5, 9, 32])], "avg")

    def time_output_shape(self):
        fp.output_shape((1, 16, 32, 32), (3, 3), 2, 1)

    def time_convert_indices(self):
        fp.convert_indices(self.indices, self.x.shape, 2, to="plane")


class FirstCall:
    """With a geometry that was not seen before, so that the plan has to be made."""

    def setup(self):
        # More shapes than plans are kept for, so that each is new again when its turn comes.
        x = random_array((32 * 4096,), "f4")
        self.arrays = itertools.cycle([x[: 32 * n].reshape(32, n) for n in range(64, 2112)])

    def time_values(self):
        fp.max_pool(next(self.arrays), (3, 3), 2, 1)

    def time_with_indices(self):
        fp.max_pool(next(self.arrays), (3, 3), 2, 1, return_indices=True)

    def time_avg_pool(self):
        fp.avg_pool(next(self.arrays), (3, 3), 2, 1)


class LargeConversion:
    params = ("plane", "onnx_column_major", "tensorflow")
    param_names = ("to",)

    def setup(self, to):
        channels_last = to == "tensorflow"
        self.shape = (8, 112, 112, 64) if channels_last else (8, 64, 112, 112)
        x = random_array(self.shape, "f4")
        axes = (1, 2) if channels_last else (2, 3)
        self.indices = fp.max_pool(x, (2, 2), axes=axes, return_indices=True).indices
        assert self.indices.dtype == np.int64

    def time_convert_indices(self, to):
        fp.convert_indices(self.indices, self.shape, 2, to=to)
