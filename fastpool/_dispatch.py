"""Which build of the kernels runs: chosen once, when fastpool is imported.

The only module that imports compiled kernels. The highest level is taken that was built, that this CPU and
operating system can run, and that the environment variable ``FASTPOOL_ISA`` allows. It must then import: to
fall back quietly would hide a broken installation behind a slow one.

To import a module of a level that the CPU lacks is not an ImportError but the end of the process, so nothing
else may import from ``fastpool._kernels``, and nothing here imports before asking.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

from fastpool import _cpu

__all__ = ["ISA", "LEVELS", "built_levels", "conv", "pool_backward", "pool_forward", "runnable_levels", "unfold"]

LEVELS = ("x86_64_v4", "x86_64_v3", "baseline")
_ALIASES = {"avx2": "x86_64_v3", "avx512": "x86_64_v4"}


# Plain import statements, which PyInstaller and Nuitka can follow.
def _import_baseline() -> tuple[ModuleType, ...]:
    import fastpool._kernels._conv_baseline as conv
    import fastpool._kernels._pool_backward_baseline as pool_backward
    import fastpool._kernels._pool_forward_baseline as pool_forward
    import fastpool._kernels._unfold_baseline as unfold

    return pool_forward, pool_backward, conv, unfold


def _import_x86_64_v3() -> tuple[ModuleType, ...]:
    import fastpool._kernels._conv_x86_64_v3 as conv
    import fastpool._kernels._pool_backward_x86_64_v3 as pool_backward
    import fastpool._kernels._pool_forward_x86_64_v3 as pool_forward
    import fastpool._kernels._unfold_x86_64_v3 as unfold

    return pool_forward, pool_backward, conv, unfold


def _import_x86_64_v4() -> tuple[ModuleType, ...]:
    import fastpool._kernels._conv_x86_64_v4 as conv
    import fastpool._kernels._pool_backward_x86_64_v4 as pool_backward
    import fastpool._kernels._pool_forward_x86_64_v4 as pool_forward
    import fastpool._kernels._unfold_x86_64_v4 as unfold

    return pool_forward, pool_backward, conv, unfold


_IMPORTERS = {"baseline": _import_baseline, "x86_64_v3": _import_x86_64_v3, "x86_64_v4": _import_x86_64_v4}


def built_levels() -> tuple[str, ...]:
    """The levels that this installation contains, highest first."""
    # One module stands for its level: if others are missing, the import says so.
    return tuple(level for level in LEVELS if find_spec(f"fastpool._kernels._pool_forward_{level}") is not None)


def runnable_levels() -> tuple[str, ...]:
    """The built levels that this machine can run, highest first."""
    return tuple(level for level in built_levels() if _cpu.supports(level))


def _choose(requested: str) -> str:
    name = requested.strip().lower()
    level = _ALIASES.get(name, name)
    built, runnable = built_levels(), runnable_levels()
    if not runnable:
        raise ImportError("fastpool has no kernels for this machine: it was not built, or only in part")
    if level in ("", "auto"):
        return runnable[0]
    if level not in LEVELS:
        known = ", ".join(("auto", *reversed(LEVELS), *_ALIASES))
        raise ImportError(f"FASTPOOL_ISA={requested!r} is not a level that fastpool knows; use one of {known}")
    if level not in built:
        raise ImportError(
            f"FASTPOOL_ISA={requested!r}: this fastpool was built without {level}; it has {', '.join(built)}"
        )
    if level not in runnable:
        raise ImportError(
            f"FASTPOOL_ISA={requested!r}: this CPU or its operating system cannot run {level}; "
            f"it can run {', '.join(runnable)}"
        )
    return level


if _missing := _cpu.baseline_macros_missing():
    raise ImportError(
        f"fastpool was compiled for a CPU with {', '.join(_missing)}, which this one lacks; "
        "build it without -march in CFLAGS: it selects its instruction sets at run time"
    )

ISA = _choose(os.environ.get("FASTPOOL_ISA", "auto"))
if TYPE_CHECKING:
    # stubs that every build of a kernel keeps to
    from fastpool._kernels import conv, pool_backward, pool_forward, unfold
else:
    pool_forward, pool_backward, conv, unfold = _IMPORTERS[ISA]()
