"""Benchmarks of fastpool. Prints what they run on; `environment` records it with the results."""

import sys

from fastpool.options import runtime

# asv imports this once to find the benchmarks, and then again for each of them.
if {"check", "discover"} & set(sys.argv):
    _runtime = runtime()
    print(
        f"fastpool {_runtime['version']}: ISA {_runtime['isa']['active']} "
        f"(built {', '.join(_runtime['isa']['built'])}; runnable {', '.join(_runtime['isa']['runnable'])}), "
        f"{_runtime['threads']['default']} threads, OpenMP {_runtime['openmp']['runtime']}, "
        f"L2 {_runtime['caches']['l2'] // 1024} KiB",
        flush=True,
    )
