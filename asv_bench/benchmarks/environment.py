"""What the other results of a run were measured with: without it they mean nothing."""

from fastpool.options import runtime


def track_isa_level():
    """0 for the baseline, else the x86-64 level."""
    return {"baseline": 0, "x86_64_v3": 3, "x86_64_v4": 4}[runtime()["isa"]["active"]]


def track_threads():
    return runtime()["threads"]["default"]


track_isa_level.unit = "level"
track_threads.unit = "threads"
