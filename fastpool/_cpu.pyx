"""What this machine can run: instruction-set levels, cache sizes, the OpenMP runtime.

Compiled for the baseline, so that it may be imported before anything is known about the CPU.
"""

from pathlib import Path

from libc.stdint cimport int64_t


cdef extern from "_cpu.h" nogil:
    int FASTPOOL_FEATURE_COUNT
    int fastpool_level_usable(int level) noexcept
    const char *fastpool_baseline_macro_missing(int i) noexcept
    void fastpool_cache_sizes(int64_t *sizes) noexcept
    int fastpool_compiled_with_openmp() noexcept
    int fastpool_openmp_max_threads() noexcept
    int fastpool_openmp_runtime(char *path, int size) noexcept


def supports(str level not None):
    """Whether the CPU has every feature of the level and the operating system saves its registers."""
    if level == "baseline":
        return True
    if level == "x86_64_v3":
        return bool(fastpool_level_usable(3))
    if level == "x86_64_v4":
        return bool(fastpool_level_usable(4))
    raise ValueError(f"unknown instruction-set level {level!r}")


def baseline_macros_missing():
    """The features that the baseline was compiled with, by its user's own flags, and this machine lacks."""
    cdef int i
    cdef const char *macro
    missing = []
    for i in range(FASTPOOL_FEATURE_COUNT):
        macro = fastpool_baseline_macro_missing(i)
        if macro != NULL:
            missing.append(macro.decode("ascii"))
    return tuple(missing)


# What is believed, as (least, most, used instead). Virtual machines and emulators report zeros and fancies.
_CACHES = {
    "l1d": (4 << 10, 1 << 20, 32 << 10),
    "l2": (64 << 10, 64 << 20, 512 << 10),
    "l3": (256 << 10, 4 << 30, 8 << 20),
}


def cache_sizes():
    """Bytes of cache that one core can use, by level; of the L3, the whole that it shares with others.

    The machine is asked anew at each call, which is slow in a virtual machine: keep the answer.
    """
    cdef int64_t sizes[3]
    fastpool_cache_sizes(sizes)
    kernel_view = None
    result = {}
    for i, (name, (least, most, default)) in enumerate(_CACHES.items()):
        size = sizes[i]
        if not least <= size <= most:
            if kernel_view is None:
                kernel_view = _linux_cache_sizes()
            size = kernel_view.get(name, 0)
        result[name] = size if least <= size <= most else default
    return result


def _linux_cache_sizes(cpu=Path("/sys/devices/system/cpu/cpu0")):
    """The same as Linux tells it, without what it does not tell."""
    result = {}
    for index in sorted(cpu.glob("cache/index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
            if kind == "Instruction" or not size.endswith("K"):
                continue
            bytes_ = int(size.removesuffix("K")) << 10
            if level in ("1", "2"):
                sharers = _count_cpus((index / "shared_cpu_list").read_text())
                threads_per_core = _count_cpus((cpu / "topology/thread_siblings_list").read_text())
                bytes_ //= max(1, sharers // threads_per_core)
            result[{"1": "l1d", "2": "l2", "3": "l3"}[level]] = bytes_
        except (OSError, ValueError, KeyError):
            continue
    return result


def _count_cpus(cpu_list):
    """The number of CPUs in a list such as ``0-3,8``."""
    count = 0
    for part in cpu_list.strip().split(","):
        first, _, last = part.partition("-")
        count += int(last or first) - int(first) + 1
    return count


def compiled_with_openmp():
    return bool(fastpool_compiled_with_openmp())


def openmp_max_threads():
    """The threads that a parallel region would have now: OMP_NUM_THREADS, threadpoolctl and the like are heard."""
    return fastpool_openmp_max_threads()


def openmp_runtime():
    """The path of the OpenMP library in use, or None."""
    cdef char path[4096]
    if not fastpool_openmp_runtime(path, sizeof(path)):
        return None
    return path.decode("utf-8", "replace")
