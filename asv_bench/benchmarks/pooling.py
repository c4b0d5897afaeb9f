"""Forward and backward of max pooling, and how near they come to what memory allows."""

from __future__ import annotations

import numpy as np

import fastpool as fp

from ._common import CASES, copy_bandwidth, random_array, seconds

# Small ones fit a cache, which is faster than the memory that they would be held to.
LARGE = tuple(name for name, case in CASES.items() if case.nbytes >= 32 << 20)


class Forward:
    params = tuple(CASES)
    param_names = ("case",)

    def setup(self, name):
        self.case = CASES[name]
        self.x = self.case.array()
        self.out = self.case.outputs()
        self.case.pool(self.x)  # the plan is made

    def time_values(self, name):
        self.case.pool(self.x)

    def time_values_out(self, name):
        self.case.pool(self.x, out=self.out.values)

    def time_with_indices(self, name):
        self.case.pool(self.x, return_indices=True)

    def time_with_indices_out(self, name):
        self.case.pool(self.x, return_indices=True, out=self.out)


class Roofline:
    """Time that the bytes which must move take at the copy bandwidth, over the time taken. 1 is the limit."""

    params = (LARGE, ("values", "with indices"))
    param_names = ("case", "result")
    unit = "share"

    # The machine's speed drifts, so bandwidth and pooling are measured next to each other.
    def track_roofline_share(self, name, result):
        case = CASES[name]
        x, out = case.array(), case.outputs()
        moved = x.nbytes + out.values.nbytes
        if result == "values":
            taken = seconds(lambda: case.pool(x, out=out.values))
        else:
            moved += out.indices.nbytes
            taken = seconds(lambda: case.pool(x, return_indices=True, out=out))
        return moved / copy_bandwidth() / taken


class Backward:
    params = (
        "1d k4s4 32x64x16000",
        "2d k3s2p1 8x64x112^2",
        "2d k2s2 8x64x224^2",
        "2d k13s1p6 8x256x20^2",
        "3d k3s1p1 1x32x64^3",
        "3d k2s2 1x1x256^3",
        "4d k3s2p1 24x48^3",
    )
    param_names = ("case",)

    def setup(self, name):
        case = CASES[name]
        x = case.array()
        self.shape = x.shape
        self.values, self.indices = case.pool(x, return_indices=True)
        self.grad = random_array(self.values.shape, "f4")
        self.out = np.ones(self.shape, np.float32)

    def time_dense(self, name):
        fp.max_pool_backward(self.grad, self.indices, self.shape)

    def time_dense_out(self, name):
        fp.max_pool_backward(self.grad, self.indices, self.shape, out=self.out)

    def time_sparse(self, name):
        fp.max_pool_backward(self.grad, self.indices, self.shape, sparse=True)

    def time_unpool(self, name):
        fp.max_unpool(self.values, self.indices, self.shape)

    def time_unpool_backward(self, name):
        fp.max_unpool_backward(self.out, self.indices)


class Global:
    params = (((8, 512, 56, 56), (1, 1, 256, 256, 256)),)
    param_names = ("shape",)

    def setup(self, shape):
        self.x = random_array(shape, "f4")

    def time_values(self, shape):
        fp.global_max_pool(self.x)

    def time_with_indices(self, shape):
        fp.global_max_pool(self.x, return_indices=True)
