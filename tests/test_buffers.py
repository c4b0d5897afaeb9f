"""Memory of released results serves the next ones, and never two at a time."""

import gc
import subprocess
import sys
import threading

import numpy as np
import pytest

import fastpool as fp
from fastpool import _buffers

SHAPE = (64, 128, 128)  # 4 MiB of float32


@pytest.fixture(autouse=True)
def nothing_kept():
    gc.collect()
    _buffers.release()
    yield
    _buffers.release()


def filled(value):
    array = _buffers.empty(SHAPE, np.dtype(np.float32))
    array.fill(value)
    return array


def test_memory_of_a_released_result_is_used_again():
    first = filled(1)
    address = first.ctypes.data
    assert _buffers.held_bytes() == 0
    del first
    assert _buffers.held_bytes() == 4 << 20
    assert filled(2).ctypes.data == address


@pytest.mark.parametrize("keep", [lambda a: a[3:5, ::2], lambda a: a.T, memoryview, lambda a: a.view(np.int32).ravel()])
def test_memory_that_a_view_refers_to_is_not(keep):
    array = filled(7)
    view = keep(array)
    before = bytes(np.asarray(view).tobytes())
    del array
    others = [filled(value) for value in range(5)]
    assert np.asarray(view).tobytes() == before
    assert all((other == value).all() for value, other in enumerate(others))


def test_results_do_not_depend_on_what_memory_held():
    x = np.random.default_rng(3).standard_normal((16, 128, 257), dtype=np.float32)
    wanted = fp.max_pool(x, (3, 3), 1, 1, return_indices=True)
    values, indices = wanted.values.tobytes(), wanted.indices.tobytes()
    wanted.values.fill(np.nan)
    wanted.indices.fill(-999)
    del wanted
    again = fp.max_pool(x, (3, 3), 1, 1, return_indices=True)
    assert again.values.tobytes() == values
    assert again.indices.tobytes() == indices
    gradient = fp.max_pool_backward(again.values, again.indices, x.shape)
    known = gradient.tobytes()
    gradient.fill(999)
    del gradient
    assert fp.max_pool_backward(again.values, again.indices, x.shape).tobytes() == known


def test_what_is_kept_is_bounded():
    arrays = [_buffers.empty((40 << 20,), np.dtype(np.uint8)) for _ in range(12)]
    del arrays
    assert 0 < _buffers.held_bytes() <= _buffers.BOUND
    huge = _buffers.empty((_buffers.BOUND + 1,), np.dtype(np.uint8))
    del huge
    assert _buffers.held_bytes() <= _buffers.BOUND
    _buffers.release()
    assert _buffers.held_bytes() == 0


def test_small_results_own_their_memory():
    assert fp.max_pool(np.zeros((8, 8)), (2, 2)).flags.owndata


def test_threads_share_it():
    wrong = []

    def work(value):
        for _ in range(50):
            array = filled(value)
            if not (array == value).all():
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(("text", "kept"), [("0", "0"), ("5000000", str(4 << 20)), ("", str(4 << 20))])
def test_the_bound_comes_from_the_environment(text, kept, monkeypatch):
    monkeypatch.setenv("FASTPOOL_CACHE_BYTES", text)
    code = (
        "import numpy as np; from fastpool import _buffers as b\n"
        "a = b.empty((1 << 20,), np.dtype('f4')); del a; print(b.held_bytes())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == kept


def test_a_bound_that_is_no_number_is_an_error(monkeypatch):
    monkeypatch.setenv("FASTPOOL_CACHE_BYTES", "many")
    command = [sys.executable, "-c", "import fastpool"]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert run.returncode != 0
    assert "FASTPOOL_CACHE_BYTES='many'" in run.stderr
