"""One volume on one thread and on two: tiles must cut inside a plane, and OpenMP must be there."""

from __future__ import annotations

import fastpool as fp

from ._common import random_array


class OneVolume:
    params = (("f4", "u2"), (1, 2))
    param_names = ("dtype", "threads")

    def setup(self, dtype, threads):
        self.x = random_array((1, 1, 256, 256, 256), dtype)
        values, self.indices = fp.max_pool(self.x, (3, 3, 3), 2, 1, return_indices=True)
        self.grad = random_array(values.shape, "f4")

    def time_forward(self, dtype, threads):
        fp.max_pool(self.x, (3, 3, 3), 2, 1, return_indices=True, num_threads=threads)

    def time_backward(self, dtype, threads):
        fp.max_pool_backward(self.grad, self.indices, self.x.shape, num_threads=threads)
