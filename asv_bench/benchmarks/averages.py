"""Averages forward and backward, and how near they come to what memory allows."""

from __future__ import annotations

from ._common import CASES, copy_bandwidth, random_array, seconds

AVERAGES = (
    "2d k2s2 8x64x224^2",
    "2d k3s2p1 8x64x112^2",
    "2d k31s1p15 4x16x256^2",
    "2d nhwc k3s2p1 8x112^2x64",
    "2d u8 k2s2 8192^2",
    "3d k3s1p1 1x32x64^3",
    "3d k2s2 1x1x256^3",
    "4d k2s2 2x24x48^3",
    "4d k3s1p1 24x48^3",
)


class Forward:
    """Integers are averaged to their own dtype."""

    params = AVERAGES
    param_names = ("case",)

    def setup(self, name):
        self.case = CASES[name]
        self.x = self.case.array()
        self.case.average(self.x)  # the plan is made

    def time_average(self, name):
        self.case.average(self.x)


class Backward:
    params = tuple(name for name in AVERAGES if CASES[name].dtype == "f4")
    param_names = ("case",)

    def setup(self, name):
        self.case = CASES[name]
        self.grad = random_array(self.case.output_shape(), "f4")
        self.out = self.case.average_backward(self.grad)

    def time_out(self, name):
        self.case.average_backward(self.grad, out=self.out)

    def time_out_padding_not_counted(self, name):
        """Windows at the border then have fewer taps than others."""
        self.case.average_backward(self.grad, count_include_pad=False, out=self.out)

    time_out_padding_not_counted.params = (
        "2d k3s2p1 8x64x112^2",
        "3d k3s1p1 1x32x64^3",
        "4d k3s1p1 24x48^3",
    )


class Roofline:
    """Time that the bytes which must move take at copy bandwidth, over the time taken with `out=`: 1 is the limit."""

    params = (
        "2d k2s2 8x64x224^2",
        "2d u8 k2s2 8192^2",
        "3d k3s1p1 1x32x64^3",
        "3d k2s2 1x1x256^3",
    )
    param_names = ("case",)
    unit = "share"

    def track_roofline_share(self, name):
        case = CASES[name]
        return _share(case.average, case.array())

    def track_roofline_share_backward(self, name):
        case = CASES[name]
        return _share(case.average_backward, random_array(case.output_shape(), "f4"))

    track_roofline_share_backward.params = ("2d k2s2 8x64x224^2", "3d k2s2 1x1x256^3")


def _share(run, given):
    out = run(given)
    taken = seconds(lambda: run(given, out=out))
    return (given.nbytes + out.nbytes) / copy_bandwidth() / taken
