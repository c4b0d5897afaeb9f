"""No function keeps memory, and the memory that kernels take is seen by tracemalloc."""

from __future__ import annotations

import gc
import os
import sys
import tracemalloc
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from calls import ARGUMENTS, FUNCTIONS, NO_ARRAYS, RECORDED, arrays_in, calls

import fastpool as fp
from fastpool import _buffers

TIMES = 1000  # calls of every function, in the several ways it has to go
TRACED = 8  # bytes per call: less than the smallest object
RESIDENT = 1 << 20  # bytes: less than the result or the workspace of any call


def test_every_function_is_in_the_table():
    assert set(ARGUMENTS) | NO_ARRAYS == FUNCTIONS
    assert not set(ARGUMENTS) & NO_ARRAYS


@pytest.fixture
def tracing():
    if tracemalloc.is_tracing():
        pytest.skip("tracemalloc is in use")
    gc.collect()
    _buffers.release()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    _buffers.release()


def resident_bytes():
    """Resident memory of this process; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def leaks(call, times=TIMES):
    """Whether many calls leave memory, traced or resident, every time anew: caches fill up and are full."""
    for _ in range(12):
        gc.collect()
        traced, resident = tracemalloc.get_traced_memory()[0], resident_bytes()
        for _ in range(times):
            call()
        gc.collect()
        traced, resident = tracemalloc.get_traced_memory()[0] - traced, resident_bytes() - resident
        if traced < TRACED * times and resident < RESIDENT:
            return False
    return True


@pytest.mark.usefixtures("tracing")
@pytest.mark.parametrize(
    ("name", "debug_mode"), [*((name, False) for name in sorted(ARGUMENTS)), *((name, True) for name in RECORDED)]
)
def test_no_function_leaks(name, debug_mode, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)  # nothing collects what is printed
    with fp.options(debug_mode=debug_mode):
        ways = list(islice(calls(name), 1 if debug_mode else None))
        for function, arguments in ways:
            arrays = arrays_in(arguments)
            gc.collect()
            before = [sys.getrefcount(array) for array in arrays]
            times = TIMES // (4 if debug_mode else len(ways))
            assert not leaks(lambda call=function, given=arguments: call(**given), times), arguments
            assert [sys.getrefcount(array) for array in arrays] == before


@pytest.mark.usefixtures("tracing")
def test_the_measure_sees_leaks():
    kept = []
    assert leaks(lambda: kept.append(object()))
    assert not leaks(lambda: bytearray(1 << 16))
    tracemalloc.stop()
    tracemalloc.start()
    assert leaks(lambda: kept.append(np.ones(512)))


def peak_of(call):
    """Traced bytes that a call takes at its peak beyond what there was before, and what it returns."""
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    result = call()
    return tracemalloc.get_traced_memory()[1] - before, result


SOME = 1 << 16  # bytes for Python's own objects


@pytest.mark.usefixtures("tracing")
@pytest.mark.parametrize("threads", [1, 2])
def test_workspace_is_traced(threads, rng, capsys):
    x = rng.standard_normal((1, 4, 512, 512), np.float32)
    pooled = fp.max_pool(x, (9, 9), 1, 4, return_indices=True, num_threads=threads, debug_mode=True)
    forward = fp.last_report().steps.kernel.bytes
    assert forward > SOME
    found, _ = peak_of(lambda: fp.max_pool(x, (9, 9), 1, 4, return_indices=True, out=pooled, num_threads=threads))
    assert forward <= found < forward + SOME

    halves, out = pooled.values.astype(np.float16), np.empty(x.shape, np.float16)
    fp.max_pool_backward(halves, pooled.indices, x.shape, out=out, num_threads=threads, debug_mode=True)
    backward = fp.last_report().steps.kernel.bytes
    assert backward > SOME
    found, _ = peak_of(lambda: fp.max_pool_backward(halves, pooled.indices, x.shape, out=out, num_threads=threads))
    assert backward <= found < backward + SOME
    capsys.readouterr()


@pytest.mark.usefixtures("tracing")
def test_large_results_are_traced_while_they_live_and_while_they_are_kept(rng):
    x = rng.standard_normal((16, 512, 512), np.float32)
    before = tracemalloc.get_traced_memory()[0]
    found, result = peak_of(lambda: fp.max_pool(x, (2, 2)))
    huge_page = 2 << 20
    assert result.nbytes <= found < result.nbytes + huge_page + (1 << 20)
    assert _buffers.held_bytes() == 0
    del result
    assert _buffers.held_bytes() <= tracemalloc.get_traced_memory()[0] - before
    assert _buffers.held_bytes() >= 4 << 20
    _buffers.release()
    assert tracemalloc.get_traced_memory()[0] - before < SOME
