"""Options that every call takes, for one call or for a block; threads; what this installation runs on."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

from . import _cpu, _dispatch
from ._geometry import integer
from ._report import OFF, Record, Recording, Report, debug_by_default, last_report
from .errors import GeometryError

__all__ = [
    "ConvOptions",
    "Options",
    "Report",
    "get_num_threads",
    "last_report",
    "options",
    "set_num_threads",
    "show_runtime",
]

MOST_THREADS = 1024


class Options(TypedDict, total=False):
    """The keyword options of every public function."""

    contiguity: Literal["copy", "warn", "require"]
    num_threads: int | None
    check_finite: Literal["ignore", "warn", "raise"]
    debug_mode: bool


class ConvOptions(Options, total=False):
    """The keyword options of convolutions."""

    algorithm: Literal["auto", "direct", "gemm"]


class Settings(NamedTuple):
    """Options in force for a call, and where it is recorded."""

    contiguity: str = "copy"
    num_threads: int | None = None
    check_finite: str = "ignore"
    debug_mode: bool = False
    record: Record = OFF
    algorithm: str = "auto"


_CHOICES = {
    "contiguity": ("copy", "warn", "require"),
    "check_finite": ("ignore", "warn", "raise"),
    "algorithm": ("auto", "direct", "gemm"),
}
_DEFAULTS = Settings(debug_mode=debug_by_default())
_settings: ContextVar[Settings] = ContextVar("fastpool_options", default=_DEFAULTS)


def _checked(values: dict[str, Any], known: Iterable[str]) -> dict[str, Any]:
    for name, value in values.items():
        if name not in known:
            raise TypeError(f"unexpected keyword argument {name!r}; the options are {', '.join(known)}")
        if name in _CHOICES:
            if not isinstance(value, str) or value not in _CHOICES[name]:
                raise GeometryError(f"{name} must be one of {', '.join(map(repr, _CHOICES[name]))}, got {value!r}")
        elif name == "num_threads":
            if value is not None:
                values[name] = _thread_count(value)
        elif not isinstance(value, bool):
            raise GeometryError(f"{name} must be True or False, got {value!r}")
    return values


def _thread_count(value: Any) -> int:
    count = integer("num_threads", value)
    if count == -1:
        return available_cores()
    if not 1 <= count <= MOST_THREADS:
        raise GeometryError(f"num_threads is {count}; give None (the default), -1 (every core) or 1 to {MOST_THREADS}")
    return count


def resolve(given: Any, function: str | None = None, known: type[Any] = Options) -> Settings:
    """The settings of a call: its own options over those of the enclosing `options` blocks.

    With `debug_mode`, and the name of the public function, they hold a record of the call that begins here.
    """
    settings = _settings.get()
    if given:
        settings = settings._replace(**_checked(given, known.__annotations__))
    if settings.debug_mode and function is not None:
        settings = settings._replace(record=Recording(function))
    return settings


@contextmanager
def options(**values: Unpack[ConvOptions]) -> Iterator[None]:
    """Set options for a block of code, in this thread and this async task only.

    Parameters
    ----------
    contiguity : {"copy", "warn", "require"}
        What to do with an input that is not C-contiguous: copy it, copy it with a `ContiguityWarning`, or refuse it
        with a `ContiguityError`.
    num_threads : int or None
        Threads of a call; None is the default (see `get_num_threads`), -1 every core.
    check_finite : {"ignore", "warn", "raise"}
        What to do about NaN and infinity in an input: nothing, a `NonFiniteWarning`, or a `NonFiniteError`.
    debug_mode : bool
        Print a table of every call's steps to stderr, with time, bytes and the plan; `last_report` returns it as data.
        The environment variable ``FASTPOOL_DEBUG=1`` makes it the default.
    algorithm : {"auto", "direct", "gemm"}
        How convolutions are computed, with the same bits: from input that is copied tile by tile (``"direct"``), or
        from taps that are gathered row by row (``"gemm"``), whichever is expected to be faster (``"auto"``).

    Raises
    ------
    GeometryError
        If a value is not allowed.
    TypeError
        If an option is not known.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> with fp.options(num_threads=1, contiguity="warn"):
    ...     fp.max_pool(np.arange(6.0), (2,))
    array([1., 3., 5.])
    """
    token = _settings.set(resolve(values, known=ConvOptions))
    try:
        yield
    finally:
        _settings.reset(token)


# ---------------------------------------------------------------------------------------------- threads


def _cgroup_cores() -> int | None:
    """Cores that a container's CPU quota amounts to, rounded up; None without a quota."""
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return None
    for _, controllers, path in groups:
        if controllers and "cpu" not in controllers.split(","):
            continue
        for root in ("cpu", "cpu,cpuacct") if controllers else (".",):
            # inside a container its own group is usually mounted at the root, whatever path the kernel reports
            for folder in (Path("/sys/fs/cgroup") / root / path.lstrip("/"), Path("/sys/fs/cgroup") / root):
                try:
                    if controllers:
                        quota = (folder / "cpu.cfs_quota_us").read_text()
                        period = (folder / "cpu.cfs_period_us").read_text()
                    else:
                        quota, period = (folder / "cpu.max").read_text().split()
                    if quota.strip() not in ("max", "-1"):
                        return max(1, math.ceil(int(quota) / int(period)))
                except (OSError, ValueError, ZeroDivisionError):
                    continue
    return None


@dataclass
class _Threads:
    """What is remembered about threads in this process."""

    default: int | None = None
    used: bool = False
    forked_after_use: bool = False


_QUOTA = _cgroup_cores()
_threads = _Threads()


def _after_fork() -> None:
    # The threads of the parent's OpenMP pool do not exist here, and libgomp would wait for them for ever.
    _threads.forked_after_use |= _threads.used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def available_cores() -> int:
    """Cores that this process may use: the smaller of its CPU affinity and its container's quota."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(affinity, _QUOTA) if _QUOTA else affinity


def threads_of(settings: Settings) -> int:
    """Threads for a call that is large enough for more than one."""
    if _threads.forked_after_use:
        return 1
    count = settings.num_threads or get_num_threads()
    if count > 1:
        _threads.used = True
    return count


def get_num_threads() -> int:
    """Threads that a large call uses unless told otherwise.

    Returns
    -------
    int
        What `set_num_threads` set; otherwise the smallest of the CPU affinity, the container's CPU quota, and what the
        OpenMP runtime answers now (so ``OMP_NUM_THREADS`` and threadpoolctl are respected). Small calls use one, and so
        does a process that was forked after its parent had used several: OpenMP's threads do not survive a fork.

    Examples
    --------
    >>> import fastpool as fp
    >>> fp.get_num_threads() >= 1
    True
    """
    if _threads.default is not None:
        return _threads.default
    return min(_cpu.openmp_max_threads(), available_cores())


def set_num_threads(n: int | None) -> None:
    """Set the threads that large calls use unless told otherwise, in the whole process.

    OpenMP's own setting, which other libraries share, is not touched.

    Parameters
    ----------
    n : int or None
        1 or more; -1 for every core; None to return to the default.

    Raises
    ------
    GeometryError
        If `n` is 0, below -1, or not an integer.

    Examples
    --------
    >>> import fastpool as fp
    >>> fp.set_num_threads(1)
    >>> fp.get_num_threads()
    1
    >>> fp.set_num_threads(None)
    """
    _threads.default = None if n is None else _thread_count(n)


def runtime() -> dict[str, Any]:
    """What `show_runtime` prints, as data."""
    from . import __version__

    return {
        "version": __version__,
        "python": sys.version.split()[0],
        "isa": {
            "active": _dispatch.ISA,
            "built": list(_dispatch.built_levels()),
            "runnable": list(_dispatch.runnable_levels()),
            "FASTPOOL_ISA": os.environ.get("FASTPOOL_ISA"),
        },
        "threads": {
            "default": get_num_threads(),
            "set_num_threads": _threads.default,
            "affinity": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "cgroup_quota": _QUOTA,
            "openmp_max": _cpu.openmp_max_threads(),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
            "serial_after_fork": _threads.forked_after_use,
        },
        "openmp": {"compiled": _cpu.compiled_with_openmp(), "runtime": _cpu.openmp_runtime()},
        "caches": dict(_cpu.cache_sizes()),
        "FASTPOOL_TILE_BYTES": os.environ.get("FASTPOOL_TILE_BYTES"),
        "FASTPOOL_DEBUG": os.environ.get("FASTPOOL_DEBUG"),
    }


def show_runtime() -> None:
    """Print what this installation runs on: version, instruction sets, threads and why, OpenMP, caches.

    Examples
    --------
    >>> import fastpool as fp
    >>> fp.show_runtime()  # doctest: +ELLIPSIS
    version: ...
    """
    for name, value in runtime().items():
        if isinstance(value, dict):
            print(f"{name}:")
            for key, entry in value.items():
                print(f"  {key}: {entry}")
        else:
            print(f"{name}: {value}")
