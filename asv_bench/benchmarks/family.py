"""Sums, norms, and windows by a rule or given one by one. Maxima are in `pooling`, averages in `averages`."""

from __future__ import annotations

import fastpool as fp

from ._common import CALLS, RANGE_BINS, copy_bandwidth, random_array, seconds


class Forward:
    params = tuple(CALLS)
    param_names = ("call",)

    def setup(self, name):
        self.call = CALLS[name]
        self.x = self.call.array()
        self.call.run(self.x)  # the plan is made

    def time_call(self, name):
        self.call.run(self.x)


class Roofline:
    """As of averages, where the result is so small that it does not matter that it is fresh."""

    params = (
        "adaptive avg 7^2 16x512x37x53",
        "global avg nhwc 8x56^2x512",
        "global avg 1x1x256^3",
        "window avg 200 bins 16x64x16000",
    )
    param_names = ("call",)
    unit = "share"

    def track_roofline_share(self, name):
        call = CALLS[name]
        x = call.array()
        moved = x.nbytes + call.run(x).nbytes
        return moved / copy_bandwidth() / seconds(lambda: call.run(x))


class Backward:
    def setup(self):
        self.adaptive = random_array((16, 512, 7, 7), "f4")
        self.whole = random_array((8, 512, 1, 1), "f4")
        self.bins = random_array((16, 64, 200), "f4")

    def time_adaptive_avg(self):
        fp.adaptive_avg_pool_backward(self.adaptive, (16, 512, 37, 53))

    def time_global_avg(self):
        fp.global_avg_pool_backward(self.whole, (8, 512, 56, 56))

    def time_window_avg(self):
        fp.window_pool_backward(self.bins, (16, 64, 16000), [RANGE_BINS], "avg")


class NormBackward:
    def setup(self):
        self.x = random_array((8, 64, 112, 112), "f4")
        self.norms = fp.lp_pool(self.x, 2, (3, 3), 2, 1)
        self.grad = random_array(self.norms.shape, "f4")

    def time_lp2(self):
        fp.lp_pool_backward(self.grad, self.x, self.norms, 2, (3, 3), 2, 1)
