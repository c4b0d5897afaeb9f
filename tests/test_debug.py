"""`debug_mode`: what is printed, what `last_report` returns, and that neither is there without it."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import json
import subprocess
import sys
import threading
import time
from contextlib import nullcontext

import numpy as np
import pytest
from arrays import assert_same_bits
from calls import ARGUMENTS, RECORDED, X, calls

import fastpool as fp
from fastpool import _dispatch, _plan

EVERY_CALL = [
    pytest.param(function, arguments, id=f"{name}-{i}")
    for name in RECORDED
    for i, (function, arguments) in enumerate(calls(name))
]

# Functions that hold arrays between input and result, beside the workspace of kernels; those that run no kernel; and
# arrays that must be finite, whatever `check_finite` says.
ARRAYS_BETWEEN = {
    "avg_pool_backward",
    "adaptive_avg_pool_backward",
    "lp_pool",
    "lp_pool_backward",
    "window_pool_backward",
}
NUMPY_ALONE = {"stochastic_pool"}
ALWAYS_FINITE = {("stochastic_pool", "x"), ("fractional_max_pool", "random_samples")}


def recorded(function, *arguments, **keywords):
    """The result of a call under `debug_mode`, and its report."""
    result = function(*arguments, **keywords, debug_mode=True)
    return result, fp.last_report()


def parts(result):
    return [part for part in result if part is not None] if isinstance(result, tuple) else [result]


# ---- every function


@pytest.mark.parametrize(("function", "arguments"), EVERY_CALL)
def test_every_call_is_reported(function, arguments, capsys):
    began = time.perf_counter_ns()
    result, report = recorded(function, **arguments)
    elapsed = time.perf_counter_ns() - began
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"{report}\n"
    assert printed.err.startswith(f"fastpool.{function.__name__} ({_dispatch.ISA})\n")

    assert report.function == function.__name__
    assert report.isa == _dispatch.ISA
    given = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray) and name != "out"}
    assert {a.name: a.shape for a in report.inputs} == {name: value.shape for name, value in given.items()}
    assert [a.shape for a in report.outputs] == [part.shape for part in parts(result)]
    assert [a.dtype for a in report.outputs] == [part.dtype.name for part in parts(result)]
    if isinstance(result, tuple):
        assert [a.name for a in report.outputs] == [n for n in result._fields if getattr(result, n) is not None]

    steps = dataclasses.astuple(report.steps)
    assert all(seconds >= 0 for seconds, _ in steps)
    assert sum(seconds for seconds, _ in steps) * 1e9 <= elapsed
    made = 0 if "out" in arguments else sum(part.nbytes for part in parts(result))
    assert report.steps.write.bytes >= made
    assert bool(report.runs) == (function.__name__ not in NUMPY_ALONE)
    workspace = sum(run.threads * run.workspace for run in report.runs)
    assert report.steps.kernel.bytes >= workspace
    if function.__name__ not in ARRAYS_BETWEEN | NUMPY_ALONE:
        assert report.steps.kernel.bytes == workspace
    for run in report.runs:
        assert 1 <= run.threads <= run.units
        assert run.tile
        assert len(run.tile) == len(run.passes)
        assert min(run.tile) >= 1


@pytest.mark.parametrize(("function", "arguments"), EVERY_CALL)
def test_results_are_the_same(function, arguments, capsys):
    expected = [part.copy() for part in parts(function(**arguments))]
    for found, wanted in zip(parts(function(**arguments, debug_mode=True)), expected, strict=True):
        assert_same_bits(found, wanted)
    assert capsys.readouterr().err


@pytest.mark.parametrize(("function", "arguments"), EVERY_CALL)
def test_nothing_is_recorded_without_it(function, arguments, capsys):
    def call():
        function(**arguments)
        with fp.options(debug_mode=True):
            function(**arguments, debug_mode=False)
        return fp.last_report()

    assert contextvars.Context().run(call) is None
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("function", "arguments"), EVERY_CALL)
def test_reports_are_plain_data(function, arguments, capsys):
    _, report = recorded(function, **arguments)
    data = report.to_dict()
    read = json.loads(json.dumps(data))
    assert [tuple(array["shape"]) for array in read["inputs"]] == [array.shape for array in report.inputs]
    assert [(run["units"], tuple(run["tile"])) for run in read["runs"]] == [
        (run.units, run.tile) for run in report.runs
    ]
    assert set(data) == {"function", "isa", "inputs", "outputs", "runs", "steps"}
    assert list(data["steps"]) == ["guard", "plan", "kernel", "write"]
    assert data["steps"]["write"] == {"seconds": report.steps.write.seconds, "bytes": report.steps.write.bytes}
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.isa = "other"
    capsys.readouterr()


# ---- check_finite goes over every array


@pytest.mark.parametrize(("function", "arguments"), EVERY_CALL)
def test_check_finite_looks_at_every_array(function, arguments):
    floats = [n for n, v in arguments.items() if isinstance(v, np.ndarray) and v.dtype.kind == "f" and n != "out"]
    for name in floats:
        for value in (np.nan, np.inf, -np.inf):
            spoiled = arguments[name].copy()
            spoiled[(-1,) * spoiled.ndim] = value
            with pytest.raises(fp.NonFiniteError, match=rf"^{name} holds"):
                function(**{**arguments, name: spoiled}, check_finite="raise")
            refused = (function.__name__, name) in ALWAYS_FINITE
            with (
                pytest.warns(fp.NonFiniteWarning, match=rf"^{name} holds") as caught,
                pytest.raises(fp.FastpoolError, match=rf"^{name} holds") if refused else nullcontext(),
            ):
                function(**{**arguments, name: spoiled}, check_finite="warn")
            assert len(caught) == 1
    function(**arguments, check_finite="raise")


# ---- the report of one call


@pytest.fixture
def quiet(capsys):
    yield
    capsys.readouterr()


pytestmark = pytest.mark.usefixtures("quiet")


class Holder:
    """An object that keeps an array and hands it out."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


READ_ONLY = X.copy()
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("x", "copied"),
    [
        pytest.param(X, 0, id="array"),
        pytest.param(READ_ONLY, 0, id="read-only"),
        pytest.param(Holder(X), 0, id="object"),
        pytest.param(memoryview(X), 0, id="buffer"),
        pytest.param(X.astype(np.float16), 0, id="half"),
        pytest.param(X[:1], 0, id="part"),
        pytest.param(X[::-1], X.nbytes, id="reversed"),
        pytest.param(X.astype(">f4"), X.nbytes, id="byte order"),
        pytest.param(Holder(X[::-1]), X.nbytes, id="object, reversed"),
        pytest.param(X.tolist(), 2 * X.nbytes, id="list"),  # of Python floats: float64
        pytest.param(np.broadcast_to(X[0, 0, 0, 0], X.shape), X.nbytes, id="broadcast"),
    ],
)
def test_copies_of_inputs(x, copied):
    _, report = recorded(fp.max_pool, x, (2, 2))
    assert [a.copied for a in report.inputs] == [copied > 0]
    assert report.steps.guard.bytes == copied
    assert (", copied" in str(report)) == (copied > 0)


def test_the_check_of_values_takes_a_mask():
    _, report = recorded(fp.max_pool, X, (2, 2), check_finite="raise")
    assert report.steps.guard.bytes == X.size
    _, report = recorded(fp.max_pool, X.astype(np.int8), (2, 2), check_finite="raise")
    assert report.steps.guard.bytes == 0


def test_indices_that_are_converted_are_copied():
    values, indices = fp.max_pool(X, (2, 2), return_indices=True)
    _, kept = recorded(fp.max_unpool, values, indices, X.shape)
    _, converted = recorded(fp.max_unpool, values, indices.astype(np.int32), X.shape)
    assert [a.copied for a in kept.inputs] == [False, False]
    assert [a.copied for a in converted.inputs] == [False, True]
    assert converted.steps.guard.bytes == kept.steps.guard.bytes + indices.nbytes


def test_results_count_where_they_are_made():
    shape = (2, 3, 8, 10)
    out = np.empty(shape, np.float32), np.empty(shape, np.int64)
    assert recorded(fp.max_pool, X, (2, 2))[1].steps.write.bytes == out[0].nbytes
    assert recorded(fp.max_pool, X, (2, 2), return_indices=True)[1].steps.write.bytes == out[0].nbytes + out[1].nbytes
    assert recorded(fp.max_pool, X, (2, 2), out=out[0])[1].steps.write.bytes == 0
    assert recorded(fp.max_pool, X, (2, 2), return_indices=True, out=out)[1].steps.write.bytes == 0


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_plan_of_a_forward(threads):
    x = np.zeros((4, 6, 100, 120), np.float32)
    _, report = recorded(fp.max_pool, x, (9, 3), 1, return_indices=True, num_threads=threads)
    plan = _plan.pool_plan(x.dtype, False, True, x.shape, False, (9, 3), 1, 0, 1, None)
    (run,) = report.runs
    assert run.threads == min(threads, plan.compiled.units)
    assert run.units == plan.compiled.units
    assert run.workspace == plan.compiled.workspace_bytes
    assert run.tile == tuple(level.tile for level in plan.spec.levels)
    assert run.passes == tuple(len(level.passes) for level in plan.spec.levels)
    assert max(run.passes) > 1
    assert report.steps.kernel.bytes == run.workspace * run.threads > 0


def test_small_calls_have_one_thread():
    _, report = recorded(fp.max_pool, X[0, 0], (2, 2), num_threads=4)
    assert report.runs[0].threads == 1


def test_an_empty_result_has_no_run():
    result, report = recorded(fp.max_pool, np.empty((0, 4, 4)), (2, 2))
    assert result.shape == (0, 2, 2)
    assert report.runs == ()
    assert report.steps.kernel == type(report.steps.kernel)(0.0, 0)


def test_stages_of_a_global_maximum():
    x = np.zeros((1, 1, 1000, 1000), np.float32)
    result, report = recorded(fp.global_max_pool, x, return_indices=True)
    assert len(report.runs) == 2
    assert [a.name for a in report.inputs] == ["x"]
    assert report.outputs[0].shape == result.values.shape == (1, 1, 1, 1)


def test_half_gradients_take_a_workspace_of_their_own():
    values, indices = fp.max_pool(X, (2, 2), return_indices=True)
    single, half = (recorded(fp.max_pool_backward, values.astype(d), indices, X.shape)[1] for d in ("f4", "f2"))
    assert single.runs[0].workspace == 0
    assert half.runs[0].workspace == 4 * half.runs[0].tile[0]


def test_the_table():
    _, report = recorded(fp.max_pool, X[:, :, ::-1], (2, 2), return_indices=True)
    name, given, values, indices, run, head, *steps = str(report).splitlines()
    assert name == f"fastpool.max_pool ({_dispatch.ISA})"
    assert given == "  in   x float32 (2, 3, 16, 20), copied"
    assert values == "  out  values float32 (2, 3, 8, 10)"
    assert indices == "  out  indices int64 (2, 3, 8, 10)"
    assert run.startswith("  run  1 thread, ")
    assert f"workspace {report.runs[0].workspace:,} bytes per thread" in run
    assert head.split() == ["step", "ms", "bytes"]
    rows = [line.split() for line in steps]
    assert [row[0] for row in rows] == ["guard", "plan", "kernel", "write", "total"]
    sizes = [int(row[2].replace(",", "")) for row in rows]
    assert sizes[0] == X.nbytes
    assert sizes[-1] == sum(sizes[:-1]) == sum(size for _, size in dataclasses.astuple(report.steps))
    assert len({len(line) for line in (head, *steps)}) == 1


# ---- whose report


def test_each_thread_has_its_own():
    recorded(fp.max_pool, X, (2, 2))
    found = {}

    def work(name, function):
        found[name, "before"] = fp.last_report()
        function(X, (2, 2), debug_mode=True)
        barrier.wait(timeout=30)
        found[name, "after"] = fp.last_report().function

    barrier = threading.Barrier(2)
    threads = [threading.Thread(target=work, args=pair) for pair in (("a", fp.max_pool), ("b", fp.min_pool))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert found == {
        ("a", "before"): None,
        ("b", "before"): None,
        ("a", "after"): "max_pool",
        ("b", "after"): "min_pool",
    }


def test_each_task_has_its_own():
    async def work(function):
        function(X, (2, 2), debug_mode=True)
        await asyncio.sleep(0)
        return fp.last_report().function

    async def both():
        return await asyncio.gather(work(fp.max_pool), work(fp.min_pool)), fp.last_report()

    assert contextvars.Context().run(asyncio.run, both()) == (["max_pool", "min_pool"], None)


def test_a_call_that_raises_leaves_the_report_before(capsys):
    _, report = recorded(fp.max_pool, X, (2, 2))
    capsys.readouterr()
    with pytest.raises(fp.GeometryError):
        fp.min_pool(X, (2, 2), stride=0, debug_mode=True)
    assert fp.last_report() is report
    assert capsys.readouterr().err == ""


def test_options_of_a_block(capsys):
    with fp.options(debug_mode=True):
        fp.min_pool(X, (2, 2))
        assert fp.last_report().function == "min_pool"
    capsys.readouterr()
    fp.max_pool(X, (2, 2))
    assert capsys.readouterr().err == ""
    assert fp.last_report().function == "min_pool"


@pytest.mark.parametrize("bad", [1, 0, "yes", None, np.array([True, False])])
def test_bad_values(bad):
    with pytest.raises(fp.GeometryError, match="debug_mode must be True or False"):
        fp.max_pool(X, (2, 2), debug_mode=bad)
    with pytest.raises(fp.GeometryError, match="debug_mode"), fp.options(debug_mode=bad):
        pass


def test_without_a_stderr(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    _, report = recorded(fp.max_pool, X, (2, 2))
    assert report.function == "max_pool"


@pytest.mark.parametrize(("text", "on"), [("1", True), ("0", False), ("", False)])
def test_the_default_comes_from_the_environment(text, on, monkeypatch):
    monkeypatch.setenv("FASTPOOL_DEBUG", text)
    code = (
        "import threading, fastpool as fp\n"
        "fp.max_pool([1, 2], (2,)); fp.max_pool([1, 2], (2,), debug_mode=False)\n"
        "thread = threading.Thread(target=fp.min_pool, args=([1, 2], (2,))); thread.start(); thread.join()"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == ""
    reports = [line.split()[0] for line in run.stderr.splitlines() if line.startswith("fastpool")]
    assert reports == (["fastpool.max_pool", "fastpool.min_pool"] if on else [])
    assert bool(run.stderr) == on


def test_an_environment_that_says_nothing_is_an_error(monkeypatch):
    monkeypatch.setenv("FASTPOOL_DEBUG", "yes")
    command = [sys.executable, "-c", "import fastpool"]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert run.returncode != 0
    assert "FASTPOOL_DEBUG='yes'" in run.stderr


def test_every_function_with_options_is_here():
    assert len(RECORDED) >= 6
    assert {param.values[0].__name__ for param in EVERY_CALL} == set(RECORDED) <= set(ARGUMENTS)
