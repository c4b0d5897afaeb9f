"""Threads: how many, whose setting, many callers at once, forks, and other libraries in the process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from arrays import assert_same_bits

import fastpool as fp
from fastpool.options import threads_of

LARGE = (8, 3, 200, 200)
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")


def openmp():
    from fastpool import _cpu

    return _cpu.compiled_with_openmp()


def run(code, timeout=60, **environment):
    """Run code in another process; a hang is a failure."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


@pytest.fixture
def threads_used(monkeypatch):
    """The number of threads that every large call from now on is given, by Python thread."""
    used = []

    def spy(settings):
        count = threads_of(settings)
        used.append((threading.get_ident(), count))
        return count

    for name, module in list(sys.modules.items()):
        if name.startswith("fastpool.") and getattr(module, "threads_of", None) is threads_of:
            monkeypatch.setattr(module, "threads_of", spy)
    return used


@pytest.fixture(autouse=True)
def restore_default():
    yield
    fp.set_num_threads(None)


# ---- settings


@pytest.mark.parametrize("bad", [0, -2, -(2**70), 2**70, 1.0, "1", True, (1,)])
def test_bad_counts(bad):
    with pytest.raises(fp.GeometryError, match="num_threads"):
        fp.set_num_threads(bad)
    with pytest.raises(fp.GeometryError, match="num_threads"), fp.options(num_threads=bad):
        pass
    with pytest.raises(fp.GeometryError, match="num_threads"):
        fp.max_pool([1], (1,), num_threads=bad)
    assert fp.get_num_threads() >= 1


def test_every_function_uses_the_setting(threads_used):
    x = np.zeros(LARGE, np.float32)
    pooled = fp.max_pool(x, (2, 2), return_indices=True)
    calls = [
        lambda **o: fp.max_pool(x, (2, 2), **o),
        lambda **o: fp.min_pool(x, (3, 3), return_indices=True, **o),
        lambda **o: fp.global_max_pool(x, **o),
        lambda **o: fp.max_pool_backward(pooled.values, pooled.indices, LARGE, **o),
        lambda **o: fp.max_pool_backward(pooled.values, pooled.indices, LARGE, sparse=True, **o),
        lambda **o: fp.max_unpool(pooled.values, pooled.indices, LARGE, **o),
        lambda **o: fp.max_unpool_backward(x, pooled.indices, **o),
    ]
    for call in calls:
        for count in (1, 2, 5):
            del threads_used[:]
            call(num_threads=count)
            with fp.options(num_threads=count):
                call()
                call(num_threads=None if count == 1 else count)
            fp.set_num_threads(count)
            call()
            fp.set_num_threads(None)
            wanted = {count} | ({fp.get_num_threads()} if count == 1 else set())
            assert threads_used
            assert {used for _, used in threads_used} <= wanted


def test_set_num_threads_is_the_default_of_every_thread(threads_used):
    x = np.zeros(LARGE, np.float32)
    fp.set_num_threads(3)
    assert fp.get_num_threads() == 3
    thread = threading.Thread(target=fp.max_pool, args=(x, (2, 2)))
    thread.start()
    thread.join()
    assert threads_used == [(thread.ident, 3)]
    fp.set_num_threads(-1)
    assert fp.get_num_threads() >= 1
    fp.set_num_threads(None)
    fp.max_pool(x, (2, 2))
    assert threads_used[-1][1] == fp.get_num_threads()


def test_options_are_the_setting_of_one_thread(threads_used):
    x = np.zeros(LARGE, np.float32)
    both_inside = threading.Barrier(2, timeout=30)

    def work(count):
        with fp.options(num_threads=count):
            both_inside.wait()
            for _ in range(5):
                fp.max_pool(x, (2, 2))

    threads = [threading.Thread(target=work, args=(count,)) for count in (2, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for thread, count in zip(threads, (2, 4), strict=True):
        assert {used for ident, used in threads_used if ident == thread.ident} == {count}


def test_options_are_the_setting_of_one_task(threads_used):
    x = np.zeros(LARGE, np.float32)
    found = {}

    async def work(count):
        with fp.options(num_threads=count):
            for _ in range(5):
                await asyncio.sleep(0)
                del threads_used[:]
                fp.max_pool(x, (2, 2))
                found.setdefault(count, set()).update(used for _, used in threads_used)

    async def main():
        await asyncio.gather(work(2), work(4), work(7))

    asyncio.run(main())
    assert found == {2: {2}, 4: {4}, 7: {7}}


SHOW = "import fastpool as fp; print(fp.get_num_threads())"


def test_environment_and_affinity_bound_the_default():
    assert run(SHOW, OMP_NUM_THREADS="1") == ["1"]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert int(run(SHOW, OMP_NUM_THREADS="64")[0]) <= cores
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=True)
    assert 1 <= int(done.stdout) <= cores


@linux
def test_affinity_is_asked_at_every_call():
    bind = "import os, fastpool as fp; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    assert run(bind + SHOW) == ["1"]


def test_threadpoolctl_bounds_the_default():
    threadpoolctl = pytest.importorskip("threadpoolctl")
    if not openmp():
        pytest.skip("built without OpenMP")
    with threadpoolctl.threadpool_limits(1, user_api="openmp"):
        assert fp.get_num_threads() == 1


@linux
def test_threads_that_are_really_started():
    """Counted by the operating system: none for small or serial calls, and OpenMP's own setting stays as it was."""
    if not openmp():
        pytest.skip("built without OpenMP")
    code = """
import os
import numpy as np, fastpool as fp
from fastpool import _cpu
x = np.zeros((8, 3, 200, 200), np.float32)
def started():
    return len(os.listdir("/proc/self/task")) - before
before = 0
before = started()
default = _cpu.openmp_max_threads()
fp.max_pool(np.zeros((4, 10, 10)), (2, 2), num_threads=3)
print(started())
fp.max_pool(x, (2, 2), num_threads=1)
print(started())
with fp.options(num_threads=1):
    fp.max_pool_backward(*fp.max_pool(x, (2, 2), return_indices=True), x.shape)
print(started())
fp.max_pool(x, (2, 2), num_threads=3)
print(started())
print(_cpu.openmp_max_threads() == default)
"""
    environment = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "MKL", "BLIS")}
    assert run(code, **environment) == ["0", "0", "0", "2", "True"]


# ---- many callers


def test_sixteen_threads_at_once(rng):
    inputs = [rng.standard_normal((2, 70 + i, 120)).astype(np.float32) for i in range(16)]
    arguments = [((2 + i % 3, 3), 1 + i % 2, 1) for i in range(16)]
    expected = [fp.max_pool(x, *a, return_indices=True, num_threads=1) for x, a in zip(inputs, arguments, strict=True)]
    start = threading.Barrier(16, timeout=60)
    failures = []

    def work(i):
        try:
            start.wait()
            for repeat in range(15):
                pooled = fp.max_pool(inputs[i], *arguments[i], return_indices=True, num_threads=1 + (i + repeat) % 3)
                assert_same_bits(pooled, expected[i])
                gradient = fp.max_pool_backward(pooled.values, pooled.indices, inputs[i].shape, num_threads=2)
                again = fp.max_pool_backward(pooled.values, pooled.indices, inputs[i].shape, num_threads=1)
                assert_same_bits(gradient, again)
                with pytest.raises(fp.IndexOutOfBoundsError):
                    fp.max_unpool(pooled.values, pooled.indices, (2, 3), num_threads=2)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    assert not failures


def test_one_plan_is_made_by_many_threads_at_once(rng):
    """The caches of plans are shared: emptied and filled from sixteen sides."""
    from fastpool import _plan

    x = rng.standard_normal((3, 40, 41)).astype(np.float32)
    expected = fp.max_pool(x, (3, 3), return_indices=True)
    start = threading.Barrier(16, timeout=60)
    failures = []

    def work():
        try:
            start.wait()
            for _ in range(40):
                _plan.clear_cache()
                assert_same_bits(fp.max_pool(x, (3, 3), return_indices=True), expected)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    assert not failures


def test_calls_release_the_gil():
    """While one thread pools, another runs; without that a long call would stop a whole server."""
    x = np.zeros((1, 1, 300, 300, 300), np.float32)
    fp.max_pool(x, (5, 5, 5), 1, 2, num_threads=1)
    done = threading.Event()
    ticks = []

    def work():
        fp.max_pool(x, (5, 5, 5), 1, 2, num_threads=1)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.wait(0.001):
        ticks.append(1)
    thread.join()
    assert len(ticks) > 5


# ---- processes

CHILD = """
import multiprocessing, sys
import numpy as np
import fastpool as fp

def work(seed):
    x = np.random.default_rng(seed).standard_normal((8, 3, 200, 200)).astype(np.float32)
    values, indices = fp.max_pool(x, (3, 3), 2, 1, return_indices=True)
    gradient = fp.max_pool_backward(values, indices, x.shape)
    return float(values.sum()), int(indices.sum()), float(gradient.sum())

def child(seed, connection):
    connection.send(work(seed))
    connection.close()

if __name__ == "__main__":
    method, before = sys.argv[1:]
    if before == "after":
        fp.set_num_threads(2)
        work(0)
    context = multiprocessing.get_context(method)
    for seed in (1, 2):
        mine, theirs = context.Pipe(False)
        process = context.Process(target=child, args=(seed, theirs))
        process.start()
        assert mine.poll(60), "the child hangs"
        assert mine.recv() == work(seed)
        process.join(20)
        assert process.exitcode == 0, process.exitcode
    print("done")
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("before", ["after", "fresh"])
def test_children(method, before, tmp_path):
    """Children of a process that has, or has not yet, run a parallel region."""
    import multiprocessing

    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), method, before],
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["done"]


@linux
def test_forked_grandchildren_and_threads():
    """os.fork from a Python thread, twice over, after parallel regions."""
    code = """
import os, threading
import numpy as np, fastpool as fp
x = np.random.default_rng(0).standard_normal((8, 3, 200, 200)).astype(np.float32)
fp.set_num_threads(2)
expected = fp.max_pool(x, (2, 2)).tobytes()

def fork(depth):
    pid = os.fork()
    if pid == 0:
        good = all(fp.max_pool(x, (2, 2), num_threads=n).tobytes() == expected for n in (None, 1, 3))
        if depth:
            good = good and fork(depth - 1)
        os._exit(0 if good else 1)
    return os.waitpid(pid, 0)[1] == 0

results = []
thread = threading.Thread(target=lambda: results.append(fork(1)))
thread.start()
thread.join(60)
print(results, fp.max_pool(x, (2, 2)).tobytes() == expected)
"""
    assert run("import warnings; warnings.simplefilter('ignore')\n" + code, timeout=100) == ["[True]", "True"]


# ---- other libraries with an OpenMP runtime

TORCH = """
import torch
t = torch.rand(64, 64, 32, 32)
torch.nn.functional.max_pool2d(t, 2)
torch_threads = torch.get_num_threads()
"""
SKLEARN = """
import numpy as np
from sklearn.cluster import KMeans
KMeans(3, n_init=1).fit(np.random.default_rng(0).random((3000, 4)))
"""
OURS = """
import numpy as np, fastpool as fp
x = np.random.default_rng(0).standard_normal((8, 3, 200, 200)).astype(np.float32)
one = fp.max_pool(x, (3, 3), 1, 1, num_threads=1)
assert (fp.max_pool(x, (3, 3), 1, 1, num_threads=2) == one).all()
"""


@pytest.mark.torch
@pytest.mark.parametrize("order", ["first", "last", "between"])
def test_with_torch(order):
    pytest.importorskip("torch")
    code = {"first": OURS + TORCH, "last": TORCH + OURS, "between": "import fastpool\n" + TORCH + OURS}[order]
    code += "\nassert torch.get_num_threads() == torch_threads"
    code += "\ntorch.nn.functional.max_pool2d(t, 2)\n" + OURS + "\ntorch.set_num_threads(1)\n" + OURS + "print('done')"
    assert run(code, timeout=120) == ["done"]


@pytest.mark.parametrize("order", ["first", "last"])
def test_with_sklearn(order):
    pytest.importorskip("sklearn")
    code = {"first": OURS + SKLEARN, "last": SKLEARN + OURS}[order]
    assert run(code + OURS + "print('done')", timeout=120) == ["done"]
