"""Arrays of more than 2**31 elements, and how much memory a call takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastpool as fp


def memory_bytes():
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


large = pytest.mark.skipif(memory_bytes() < 8 * 2**30 or sys.maxsize < 2**32, reason="needs 8 GiB of memory")


@large
def test_indices_beyond_31_bits():
    shape = (3, 1100, 1024, 640)
    size = 3 * 1100 * 1024 * 640
    assert size > 2**31
    x = np.zeros(shape, np.uint8)
    flat = x.reshape(-1)
    places = np.array([0, 1, 2**31 - 1, 2**31, 2**31 + 12345, size - 1])
    flat[places] = np.arange(1, 7)
    values, indices = fp.max_pool(x, (20, 32, 64), return_indices=True)
    assert values.shape == (3, 55, 32, 10)
    assert np.array_equal(flat[indices.ravel()], values.ravel())
    found = indices[values > 0]
    assert found.tolist() == [1, 2**31 - 1, 2**31, 2**31 + 12345, size - 1]
    # Windows of nothing but zeros point at their first element.
    d, h, w = np.indices((55, 32, 10))
    corner = (d * 20 * 1024 + h * 32) * 640 + w * 64
    for image in range(3):
        still = values[image] == 0
        assert np.array_equal(indices[image][still], corner[still] + image * (size // 3))

    whole = fp.global_max_pool(x, axes=(0, 1, 2, 3), return_indices=True)
    assert (whole.values.item(), whole.indices.item()) == (6, size - 1)
    sparse = fp.max_pool_backward(np.ones(len(found)), found, shape, sparse=True)
    assert sparse.indices.tolist() == sorted(found.tolist())
    assert np.array_equal(fp.max_unpool_backward(x, places), np.arange(1, 7))
    del x, flat
    back = fp.max_unpool(np.arange(1, 7, dtype=np.uint8), places, shape).reshape(-1)
    assert np.array_equal(back[places], np.arange(1, 7))
    assert np.count_nonzero(back) == 6


@large
@pytest.mark.parametrize("window", [2**22, 2**26, 2**30])
def test_memory_and_time_do_not_grow_with_the_window(window):
    """A window of very many taps takes no list of its taps."""
    (found,) = run(
        f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
del x
y = np.zeros(2**31 + 5, np.uint8)
y[[7, 2**31 + 1]] = 1
shape = fp.output_shape(y.shape, ({window},), {window}, ((0, {window} - 5),))
values, indices = fp.max_pool(y, ({window},), {window}, ((0, {window} - 5),), return_indices=True)
assert indices[[0, -1]].tolist() == [7, 2**31 + 1]
assert (indices[1:-1] == np.arange(1, 2**31 // {window}) * {window}).all()
print(status("VmHWM") / 2**20)
""",
        timeout=30,
    )
    assert found < 400


@large
def test_adaptive_windows_without_memory():
    """So many windows are not listed until memory is full."""
    run(
        """
import resource
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
for function in (fp.adaptive_avg_pool, fp.adaptive_max_pool):
    try:
        function(np.ones(5), (2**40,))
    except MemoryError:
        continue
    raise AssertionError(function)
""",
        timeout=30,
    )


@large
def test_input_behind_one_element():
    """A broadcast array of 2**33 elements is one element of memory, and would be 8 GiB if it were copied."""
    with pytest.raises(fp.ContiguityError):
        fp.max_pool(np.broadcast_to(np.uint8(1), (2**33,)), (2**20,), contiguity="require")


def test_sparse_gradients_make_no_dense_array():
    indices = np.array([2**55, 3, 2**55, 2**40])
    sparse = fp.max_pool_backward(np.array([1.0, 2, 4, 8]), indices, (2**26, 2**30), sparse=True)
    assert sparse.indices.tolist() == [3, 2**40, 2**55]
    assert sparse.values.tolist() == [2, 8, 5]


MEASURE = """
import numpy as np
import fastpool as fp

def peak_of(function):
    "Bytes by which a call raises the process's peak of resident memory."
    function()  # what is allocated once, such as threads and plans
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = status("VmRSS")
    result = function()
    return status("VmHWM") - before

def status(name):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024

x = np.random.default_rng(0).standard_normal((1, 64, 512, 512)).astype(np.float32)  # 64 MiB
"""


def run(code, timeout=120):
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("needs the /proc of Linux")
    done = subprocess.run(
        [sys.executable, "-c", MEASURE + code], capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr
    return [float(number) for number in done.stdout.split()]


def test_peak_memory_is_the_result_and_little_more():
    """A workspace of a few caches, whatever the size of the call."""
    found = run("""
for arguments in [
    ((2, 2, 2),), ((3, 3, 3), 2, 1), ((3, 3, 3), 1, 1), ((1, 9, 9), 1, (0, 4, 4)), ((64, 1, 1), 1), ((1, 1, 300), 1)
]:
    shape = fp.output_shape(x.shape, *arguments)
    out = np.zeros(shape, x.dtype), np.zeros(shape, np.int64)
    print(peak_of(lambda: fp.max_pool(x, *arguments, out=out[0])) / 2**20)
    print(peak_of(lambda: fp.max_pool(x, *arguments, return_indices=True, out=out)) / 2**20)
    result = out[0].nbytes + out[1].nbytes
    del out
    print(peak_of(lambda: fp.max_pool(x, *arguments, return_indices=True)) / 2**20 - result / 2**20)
""")
    assert max(found) < 24, found


def test_peak_memory_of_backward():
    found = run("""
values, indices = fp.max_pool(x, (3, 3, 3), 2, 1, return_indices=True)
print(peak_of(lambda: fp.max_pool_backward(values, indices, x.shape)) / 2**20 - x.nbytes / 2**20)
print(peak_of(lambda: fp.max_unpool(values, indices, x.shape)) / 2**20 - x.nbytes / 2**20)
out = np.zeros_like(x)
print(peak_of(lambda: fp.max_pool_backward(values, indices, x.shape, out=out)) / 2**20)
""")
    assert max(found) < 16, found


def test_peak_memory_of_convolution():
    """The weights once more, and a few caches for each thread; the matrix of windows would have 270 and 546 MiB."""
    found = run("""
rng = np.random.default_rng(0)
for shape, weight in (((1, 32, 40, 44, 48), (32, 32, 3, 3, 3)), ((1, 8, 16, 24, 24, 24), (16, 8, 3, 3, 3, 3))):
    x, w = rng.standard_normal(shape, np.float32), rng.standard_normal(weight, np.float32)
    y = fp.conv(x, w, padding=1)
    for threads in (1, 2):
        for algorithm in ("direct", "gemm"):
            options = {"padding": 1, "num_threads": threads, "algorithm": algorithm}
            print((peak_of(lambda: fp.conv(x, w, **options)) - y.nbytes) / 2**20)
            print(peak_of(lambda: fp.conv(x, w, **options, out=y)) / 2**20)
            print((peak_of(lambda: fp.conv_transpose(y, w, **options)) - x.nbytes) / 2**20)
        for needs, size in ((("x",), x.nbytes), (("weight",), w.nbytes)):
            call = lambda: fp.conv_backward(y, x, w, padding=1, num_threads=threads, needs=needs)
            print((peak_of(call) - size) / 2**20)
""")
    assert max(found) < 12, found


def test_peak_memory_of_unfolding():
    found = run("""
x = np.ascontiguousarray(x.reshape(2, 8, 64, 128, 128)[:, :4])
columns = fp.unfold(x, 2, 2)
print((peak_of(lambda: fp.unfold(x, 2, 2)) - columns.nbytes) / 2**20)
print((peak_of(lambda: fp.fold(columns, x.shape[2:], 2, 2)) - x.nbytes) / 2**20)
""")
    assert max(found) < 8, found


def test_measure_sees_memory():
    (found,) = run("print(peak_of(lambda: np.ones(2**24)) / 2**20)")
    assert 120 < found < 140


def test_calls_do_not_leak():
    found = run("""
import itertools
x = np.ascontiguousarray(x[:, :2])
values, indices = fp.max_pool(x, (3, 3), 2, 1, return_indices=True)
bad = indices.copy()
bad[..., -1] = -1

def calls():
    for i in range(20):
        fp.max_pool(x[:, :, i:], (3, 3), 2, 1, return_indices=True)
        fp.min_pool(x, (3, 3), 2, 1)
        fp.max_pool_backward(values, indices, x.shape)
        fp.max_pool_backward(values, indices, x.shape, sparse=True)
        fp.max_unpool(values, indices, x.shape)
        for call in (lambda: fp.max_pool_backward(values, bad, x.shape), lambda: fp.max_pool(x, (3, 3), 0)):
            try:
                call()
            except fp.FastpoolError:
                pass

calls()
before = status("VmRSS")
for _ in range(3):
    calls()
print((status("VmRSS") - before) / 2**20)
""")
    assert max(found) < 8, found
