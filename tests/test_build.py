"""What the compiled modules may contain, export and need, and what importing them may not do."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import fastpool
from fastpool import _cpu, _dispatch

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
PACKAGE = Path(fastpool.__file__).parent
MODULES = sorted(PACKAGE.rglob(f"*{SUFFIX}"))
KERNELS = [path for path in MODULES if path.parent.name == "_kernels"]
IS_X86_64 = platform.machine().lower() in ("x86_64", "amd64")


def module_name(path: Path) -> str:
    return path.name.removesuffix(SUFFIX)


def by_name(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=module_name)


def output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


class Elf:
    """The dynamic section of a 64-bit little-endian ELF file: libraries needed and symbols exported."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        assert data[:6] == b"\x7fELF\x02\x01", "not a 64-bit little-endian ELF file"
        (table,) = struct.unpack_from("<Q", data, 0x28)
        size, count = struct.unpack_from("<HH", data, 0x3A)
        sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]

        def text(strings: tuple[int, ...], place: int) -> str:
            start = strings[4] + place
            return data[start : data.index(b"\0", start)].decode()

        self.needed: list[str] = []
        self.exports: list[str] = []
        for section in sections:
            kind, offset, length, link = section[1], section[4], section[5], section[6]
            if kind == 6:  # SHT_DYNAMIC
                for tag, value in struct.iter_unpack("<qQ", data[offset : offset + length]):
                    if tag == 1:  # DT_NEEDED
                        self.needed.append(text(sections[link], value))
            elif kind == 11:  # SHT_DYNSYM
                for symbol in struct.iter_unpack("<IBBHQQ", data[offset : offset + length]):
                    if symbol[3] != 0:  # defined here
                        self.exports.append(text(sections[link], symbol[0]))


def exports_and_needs(path: Path) -> tuple[list[str], list[str]]:
    if sys.platform == "linux":
        elf = Elf(path)
        return elf.exports, elf.needed
    if sys.platform == "darwin":
        exports = [line.split()[-1].removeprefix("_") for line in output(tool("nm"), "-gU", path).splitlines()]
        needs = [line.split()[0] for line in output(tool("otool"), "-L", path).splitlines()[1:]]
        return exports, needs
    pytest.skip("a Windows module exports what it declares and names its needs at link time")


def test_every_kernel_was_built_for_every_level() -> None:
    built: dict[str, set[str]] = {}
    for path in KERNELS:
        level = next(level for level in _dispatch.LEVELS if module_name(path).endswith(f"_{level}"))
        built.setdefault(level, set()).add(module_name(path).removesuffix(f"_{level}"))
    assert sorted(built) == sorted(_dispatch.built_levels())
    assert all(kernels == built["baseline"] for kernels in built.values())


@by_name(MODULES)
def test_modules_export_their_init_function_alone(path: Path) -> None:
    exports, _ = exports_and_needs(path)
    assert exports == [f"PyInit_{module_name(path)}"]


@by_name(KERNELS)
def test_kernels_need_the_openmp_runtime(path: Path) -> None:
    _, needs = exports_and_needs(path)
    # A repaired wheel renames the libraries that it contains: libgomp-a34b3233.so.1.
    found = [need for need in needs if re.search(r"lib(g|i)?omp\d*\b", need)]
    assert bool(found) == _cpu.compiled_with_openmp()


@pytest.mark.skipif(not IS_X86_64, reason="an x86-64 matter")
@by_name(MODULES)
def test_modules_use_the_registers_of_their_level(path: Path) -> None:
    assembly = output(tool("objdump"), "-d", path)
    avx = re.search(r"\tv\w+ .*%[xy]mm", assembly) is not None
    avx512 = re.search(r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])|%k[0-7]", assembly) is not None
    level = next((level for level in _dispatch.LEVELS if module_name(path).endswith(level)), "baseline")
    assert "%xmm" in assembly
    assert avx == (level != "baseline")
    assert avx512 == (level == "x86_64_v4")


def test_import_leaves_subnormals_alone() -> None:
    """A library linked with -ffast-math makes the whole process flush them to zero."""
    code = """
import numpy as np
import fastpool
for dtype, exponent in ((np.float32, -140), (np.float64, -1060)):
    tiny = np.ldexp(np.ones(64, dtype), exponent)
    assert (tiny > 0).all() and (tiny * dtype(0.5) == np.ldexp(np.ones(64, dtype), exponent - 1)).all()
    assert np.finfo(dtype).smallest_subnormal > 0
"""
    process = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has a GIL")
def test_import_does_not_bring_the_gil_back() -> None:
    code = "import sys, numpy; assert not sys._is_gil_enabled(); import fastpool; print(sys._is_gil_enabled())"
    assert output(sys.executable, "-P", "-W", "error", "-c", code).strip() == "False"


def test_the_version_is_that_of_the_metadata() -> None:
    assert importlib.metadata.version("fastpool") == fastpool.__version__


def test_the_installation_holds_what_runs_and_no_sources() -> None:
    distribution = importlib.metadata.distribution("fastpool")
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        pytest.skip("an editable installation is the source tree")
    files = [file for file in distribution.files or [] if file.parts[0] == "fastpool"]
    assert {"py.typed", "_cpu.pyi"} <= {file.name for file in files}
    expected = {".py", ".pyi", ".pyc", ".typed", Path(SUFFIX).suffix}
    assert {file.suffix for file in files} <= expected
