"""The choice of instruction-set level, in subprocesses: it is made once, at import."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from fastpool import _cpu, _dispatch

ALIASES = {"avx2": "x86_64_v3", "avx512": "x86_64_v4"}

# Runs before fastpool is imported. `after_import` changes fastpool._cpu, or breaks a kernel, once the module
# is loaded and before it is used.
HOOK = """
from importlib.machinery import ExtensionFileLoader
load = ExtensionFileLoader.exec_module
def exec_module(self, module):
    load(self, module)
    after_import(module, module.__name__)
ExtensionFileLoader.exec_module = exec_module
"""

REPORT = """
import sys
from fastpool import _dispatch
loaded = sorted(name for name in sys.modules if name.startswith("fastpool._kernels._"))
print(_dispatch.ISA, *loaded)
"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a new process that sees the installed package, not the current directory."""
    inherited = {name: value for name, value in os.environ.items() if name != "FASTPOOL_ISA"}
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def level_after_import(**environment: str) -> str:
    process = run(REPORT, **environment)
    assert process.returncode == 0, process.stderr
    level, *loaded = process.stdout.split()
    # A module of another level might not even be loadable.
    assert loaded
    assert all(name.endswith(f"_{level}") for name in loaded), loaded
    return level


def import_error(code: str = "import fastpool", **environment: str) -> str:
    process = run(code, **environment)
    assert process.returncode == 1, (process.returncode, process.stderr)
    last = process.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: "), process.stderr
    return last


@pytest.mark.parametrize("level", _dispatch.LEVELS)
def test_a_level_can_be_asked_for(level: str) -> None:
    if level in _dispatch.runnable_levels():
        assert level_after_import(FASTPOOL_ISA=level) == level
    elif level in _dispatch.built_levels():
        assert "cannot run" in import_error(FASTPOOL_ISA=level)
    else:
        assert "built without" in import_error(FASTPOOL_ISA=level)


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_mean_their_levels(alias: str) -> None:
    if ALIASES[alias] in _dispatch.runnable_levels():
        assert level_after_import(FASTPOOL_ISA=alias) == ALIASES[alias]
    else:
        assert repr(alias) in import_error(FASTPOOL_ISA=alias)


@pytest.mark.parametrize(
    "environment", [{}, {"FASTPOOL_ISA": ""}, {"FASTPOOL_ISA": "auto"}, {"FASTPOOL_ISA": " AUTO "}]
)
def test_the_highest_runnable_level_is_the_default(environment: dict[str, str]) -> None:
    assert level_after_import(**environment) == _dispatch.runnable_levels()[0]


@pytest.mark.parametrize("value", ["sse9", "x86_64_v2", "avx2,avx512", "0", "x86_64_v3;import os"])
def test_an_unknown_level_is_an_error_that_lists_the_known_ones(value: str) -> None:
    message = import_error(FASTPOOL_ISA=value)
    assert repr(value) in message
    assert "baseline, x86_64_v3, x86_64_v4" in message


NOT_RUNNABLE = f"""
def after_import(module, name):
    if name == "fastpool._cpu":
        module.supports = lambda level: level == "baseline"
{HOOK}
"""


def test_a_level_that_the_cpu_lacks_is_not_chosen() -> None:
    process = run(NOT_RUNNABLE + REPORT)
    assert process.returncode == 0, process.stderr
    level, *loaded = process.stdout.split()
    assert level == "baseline"
    assert all(name.endswith("_baseline") for name in loaded)


@pytest.mark.parametrize("level", [level for level in _dispatch.built_levels() if level != "baseline"])
def test_a_level_that_the_cpu_lacks_is_refused_by_name(level: str) -> None:
    message = import_error(f"{NOT_RUNNABLE}\nimport fastpool", FASTPOOL_ISA=level)
    assert f"cannot run {level}" in message
    assert message.endswith("it can run baseline")


@pytest.mark.parametrize("level", [level for level in _dispatch.LEVELS if level != "baseline"])
def test_a_level_that_was_not_built_is_refused_by_name(level: str) -> None:
    code = f"""
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name.endswith({level!r}) else find_spec(name)
import fastpool
"""
    assert f"built without {level}" in import_error(code, FASTPOOL_ISA=level)


def test_a_broken_module_is_an_error_and_not_a_fallback() -> None:
    best = _dispatch.runnable_levels()[0]
    code = f"""
def after_import(module, name):
    if name.startswith("fastpool._kernels.") and name.endswith({best!r}):
        raise ImportError("broken on purpose")
{HOOK}
import fastpool
"""
    assert import_error(code) == "ImportError: broken on purpose"


def test_a_baseline_beyond_the_cpu_is_an_error() -> None:
    code = f"""
def after_import(module, name):
    if name == "fastpool._cpu":
        module.baseline_macros_missing = lambda: ("__AVX2__",)
{HOOK}
import fastpool
"""
    assert "__AVX2__" in import_error(code)


def test_this_baseline_suits_this_cpu() -> None:
    assert _cpu.baseline_macros_missing() == ()


def test_levels_are_those_the_kernel_reports() -> None:
    """The operating system's own list of CPU features is a second opinion on CPUID."""
    cpuinfo = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not cpuinfo.exists():
        pytest.skip("no x86 /proc/cpuinfo")
    line = next(line for line in cpuinfo.read_text().splitlines() if line.startswith("flags"))
    flags = set(line.partition(":")[2].split())
    v3 = {
        "pni",
        "ssse3",
        "sse4_1",
        "sse4_2",
        "popcnt",
        "avx",
        "avx2",
        "fma",
        "bmi1",
        "bmi2",
        "abm",
        "f16c",
        "movbe",
    }
    v4 = v3 | {"avx512f", "avx512cd", "avx512vl", "avx512bw", "avx512dq"}
    assert _cpu.supports("baseline")
    assert _cpu.supports("x86_64_v3") == (v3 <= flags)
    assert _cpu.supports("x86_64_v4") == (v4 <= flags)


def test_an_unknown_level_is_not_supported_silently() -> None:
    with pytest.raises(ValueError, match="x86_64_v5"):
        _cpu.supports("x86_64_v5")


def test_cache_sizes_are_believable() -> None:
    sizes = _cpu.cache_sizes()
    assert list(sizes) == ["l1d", "l2", "l3"]
    assert 4 << 10 <= sizes["l1d"] <= 1 << 20
    assert 64 << 10 <= sizes["l2"] <= 64 << 20
    assert 256 << 10 <= sizes["l3"] <= 4 << 30


def test_cache_sizes_from_a_linux_description(tmp_path: Path) -> None:
    """Two clusters of four cores with two threads each: an L2 to a cluster, an L3 to all."""
    files = {
        "topology/thread_siblings_list": "0-1",
        "cache/index0/level": "1",
        "cache/index0/type": "Data",
        "cache/index0/size": "64K",
        "cache/index0/shared_cpu_list": "0-1",
        "cache/index1/level": "1",
        "cache/index1/type": "Instruction",
        "cache/index1/size": "32K",
        "cache/index1/shared_cpu_list": "0-1",
        "cache/index2/level": "2",
        "cache/index2/type": "Unified",
        "cache/index2/size": "4096K",
        "cache/index2/shared_cpu_list": "0-3,8,9-11",
        "cache/index3/level": "3",
        "cache/index3/type": "Unified",
        "cache/index3/size": "32768K",
        "cache/index3/shared_cpu_list": "0-15",
        "cache/index4/level": "4",
        "cache/index4/type": "Unified",
        "cache/index4/size": "nonsense",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    assert _cpu._linux_cache_sizes(tmp_path) == {"l1d": 64 << 10, "l2": 1 << 20, "l3": 32 << 20}
    assert _cpu._linux_cache_sizes(tmp_path / "absent") == {}


@pytest.mark.parametrize("threads", [1, 3])
def test_the_openmp_runtime_is_asked_for_its_threads(threads: int) -> None:
    code = "from fastpool import _cpu; print(_cpu.openmp_max_threads())"
    process = run(code, OMP_NUM_THREADS=str(threads))
    assert process.returncode == 0, process.stderr
    assert int(process.stdout) == (threads if _cpu.compiled_with_openmp() else 1)


def test_threadpoolctl_is_heard_at_each_call() -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    before = _cpu.openmp_max_threads()
    with threadpoolctl.threadpool_limits(1, user_api="openmp"):
        assert _cpu.openmp_max_threads() == 1
    assert _cpu.openmp_max_threads() == before


def test_the_openmp_runtime_is_named() -> None:
    runtime = _cpu.openmp_runtime()
    if not _cpu.compiled_with_openmp():
        assert runtime is None
    else:
        assert runtime is not None
        assert any(name in Path(runtime).name.lower() for name in ("gomp", "omp", "vcomp"))
