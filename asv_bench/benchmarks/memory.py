"""Memory. Beyond its results a call may take a workspace of a few L2 caches per thread (`Workspace`)."""

from __future__ import annotations

import sys

import fastpool as fp

from ._common import CALLS, CASES, random_array

# Inputs of 64 MiB and more, where a hidden copy would show.
LARGE = ("2d u8 k2s2 8192^2", "2d k2s2 8x64x224^2", "3d k2s2 1x1x256^3", "3d u16 k2s2 128x512^2")


class Peak:
    """Of the whole process, with its input."""

    params = LARGE
    param_names = ("case",)

    def setup(self, name):
        self.x = CASES[name].array()

    def peakmem_values(self, name):
        CASES[name].pool(self.x)

    def peakmem_with_indices(self, name):
        CASES[name].pool(self.x, return_indices=True)

    def peakmem_backward(self, name):
        pooled = CASES[name].pool(self.x, return_indices=True)
        if self.x.dtype.kind == "f":
            fp.max_pool_backward(pooled.values, pooled.indices, self.x.shape)


class PeakOfFamily:
    """Of the whole process, with its input."""

    param_names = ("case",)

    def peakmem_average(self, name):
        CASES[name].average(CASES[name].array())

    def peakmem_average_backward(self, name):
        CASES[name].average_backward(random_array(CASES[name].output_shape(), "f4"))

    def peakmem_call(self, name):
        CALLS[name].run(CALLS[name].array())

    peakmem_average.params = ("2d u8 k2s2 8192^2", "3d k2s2 1x1x256^3")
    peakmem_average_backward.params = ("2d k2s2 8x64x224^2", "3d k2s2 1x1x256^3")
    peakmem_call.params = (
        "lp2 2d k3s2p1 8x64x112^2",
        "adaptive avg 7^2 16x512x37x53",
        "global avg 1x1x256^3",
        "window avg 200 bins 16x64x16000",
    )


class Workspace:
    """Bytes by which a call raises the peak of the process beyond the arrays that it returns."""

    params = LARGE
    param_names = ("case",)
    unit = "bytes"

    def track_beyond_results(self, name):
        # Not on Windows, which counts otherwise.
        try:
            import resource
        except ImportError:
            return float("nan")
        scale = 1 if sys.platform == "darwin" else 1024
        case = CASES[name]
        x = case.array()
        # The peak must be of now, or arrays that are gone would hide what the call takes.
        results = case.outputs()
        expected = results.values.nbytes + results.indices.nbytes
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
        kept = case.pool(x, return_indices=True)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
        del kept
        return after - before - expected
