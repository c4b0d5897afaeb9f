"""Build of the extension modules; everything declarative is in pyproject.toml.

Each kernel source is compiled once per instruction-set level, into sibling modules that differ only in their
flags: ``fastpool._kernels._<kernel>_<level>``. What the compiler can do is asked of the compiler, by small
probes, so that cross-compiling, ``ARCHFLAGS`` and unusual targets need no table of platform names.

Environment variables (``1`` switches on):

FASTPOOL_REQUIRE_ISA     fail if a level that this target should have cannot be built, not just leave it out
FASTPOOL_REQUIRE_OPENMP  fail if OpenMP does not work
FASTPOOL_NO_OPENMP       build without threads
FASTPOOL_DEBUG_BUILD     ``-O1 -g`` and Cython's bounds checks
FASTPOOL_SANITIZE        a list for ``-fsanitize=``, e.g. ``address,undefined`` (GCC and Clang)
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CompileError, LinkError

KERNEL_DIR = "fastpool/_kernels"
KERNELS = ("pool_forward", "pool_backward", "conv", "unfold")

# Convolution may differ between levels, within its bound, and is far faster where products and sums are one operation.
CONTRACTED = ("conv",)

# Cython's memoryview code, once for all modules rather than once in each.
SHARED_MODULE = "fastpool._cyutility"

DIRECTIVES = {
    "language_level": 3,
    "binding": True,
    "boundscheck": False,
    "cdivision": True,
    "embedsignature": True,
    "freethreading_compatible": True,
    "initializedcheck": False,
    "wraparound": False,
}
DEBUG_DIRECTIVES = {"boundscheck": True, "initializedcheck": True}


@dataclass(frozen=True)
class Level:
    """An instruction-set level: flags by compiler family (none: not built there); code that needs them."""

    flags: dict[str, list[str]]
    probe: str = ""


_V3 = ["-mavx", "-mavx2", "-mfma", "-mbmi", "-mbmi2", "-mlzcnt", "-mf16c", "-mmovbe"]
_V4 = ["-mavx512f", "-mavx512cd", "-mavx512vl", "-mavx512bw", "-mavx512dq"]

# fastpool/_cpu.h holds the run-time side of this table.
LEVELS = {
    "baseline": Level({"unix": [], "msvc": []}),
    "x86_64_v3": Level(
        {"unix": _V3, "msvc": ["/arch:AVX2"]},
        "#include <immintrin.h>\n__m256 probe(__m256 a) { return _mm256_fmadd_ps(a, a, a); }\n",
    ),
    "x86_64_v4": Level(
        {"unix": [*_V3, *_V4, "-mprefer-vector-width=512"]},
        "#include <immintrin.h>\n__m512i probe(__m512i a) { return _mm512_max_epi8(a, a); }\n",
    ),
}

# Targets with levels above the baseline. Not Intel Macs: under Rosetta CPUID is no guide. Not MinGW: its
# stack is not aligned for 32-byte vectors. Every slice of a universal binary must pass, so arm64 says no.
LEVELLED_TARGET = """
#if !(defined(__x86_64__) || defined(_M_X64)) || defined(__APPLE__) || defined(__MINGW32__)
#error "only the baseline level is built for this target"
#endif
"""

# No contraction: fused multiply-adds would make results depend on the level. No -ffast-math: NaN is data.
COMPILE_FLAGS = {
    "unix": ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden"],
    "msvc": ["/O2", "/fp:precise"],
}
CONTRACT_FLAGS = {"unix": ["-ffp-contract=fast"], "msvc": ["/fp:contract"]}
DEBUG_FLAGS = {"unix": ["-O1", "-g", "-UNDEBUG"], "msvc": ["/Od", "/Z7"]}

# (compile flags, link flags) to try in turn. The second pair is Apple's Clang with a libomp from elsewhere.
OPENMP_FLAGS = {
    "unix": [(["-fopenmp"], ["-fopenmp"]), (["-Xpreprocessor", "-fopenmp"], ["-lomp"])],
    "msvc": [(["/openmp"], [])],
}
OPENMP_PROBE = """
#include <omp.h>
int main(void) {
    int i, sum = 0;
    #pragma omp parallel for reduction(+:sum) num_threads(2)
    for (i = 0; i < 100; i++) sum += i;
    return !(sum == 4950 && omp_get_max_threads() >= 1);
}
"""


def switched_on(variable: str) -> bool:
    return os.environ.get(variable, "") not in ("", "0")


class FastpoolExtension(Extension):
    def __init__(self, name: str, sources: list[str], level: str = "baseline", contracted: bool = False) -> None:
        headers = [*glob("fastpool/*.h"), *glob(f"{KERNEL_DIR}/*.h"), *glob(f"{KERNEL_DIR}/*.pxd")]
        depends = ["setup.py", *sorted(headers)]
        super().__init__(name, sources, include_dirs=["fastpool", KERNEL_DIR], depends=depends)
        self.level = level
        self.contracted = contracted


class BuildExtensions(build_ext):
    """Asks the compiler what it can do, then translates and compiles what is possible."""

    extensions: list[FastpoolExtension]

    def finalize_options(self) -> None:
        super().finalize_options()
        if self.parallel is None:
            # Bounded, since containers often show all the cores of their host.
            self.parallel = min(4, os.cpu_count() or 1)

    def build_extensions(self) -> None:
        self.family = "msvc" if self.compiler.compiler_type == "msvc" else "unix"
        levels = self.find_levels()
        openmp = self.find_openmp()
        print(f"fastpool: levels {', '.join(levels)}; OpenMP {openmp or 'NOT USED'}", flush=True)
        # In place: setuptools indexes this list too.
        self.extensions[:] = [ext for ext in self.extensions if ext.level in levels]
        self.set_flags(*(openmp or ([], [])))
        for level in levels:
            self.translate(level)
        super().build_extensions()

    def find_levels(self) -> list[str]:
        eligible = self.probe(LEVELLED_TARGET)
        found, missing = [], []
        for name, level in LEVELS.items():
            flags = level.flags.get(self.family)
            if flags is not None and (eligible or not flags):
                works = not flags or self.probe(level.probe, flags)
                (found if works else missing).append(name)
        if missing:
            message = f"the compiler cannot build {', '.join(missing)}, which this target should have"
            if switched_on("FASTPOOL_REQUIRE_ISA"):
                raise BaseError(f"{message} (FASTPOOL_REQUIRE_ISA is set)")
            print(f"fastpool: WARNING: {message}", flush=True)
        return found

    def find_openmp(self) -> tuple[list[str], list[str]] | None:
        required = switched_on("FASTPOOL_REQUIRE_OPENMP")
        if switched_on("FASTPOOL_NO_OPENMP"):
            if required:
                raise BaseError("FASTPOOL_NO_OPENMP and FASTPOOL_REQUIRE_OPENMP are both set")
            return None
        for compile_flags, link_flags in OPENMP_FLAGS[self.family]:
            if self.probe(OPENMP_PROBE, compile_flags, link_flags):
                return compile_flags, link_flags
        message = "no working OpenMP was found, so every function would run on ONE thread"
        if required:
            raise BaseError(f"{message} (FASTPOOL_REQUIRE_OPENMP is set)")
        print("*" * 79, f"fastpool: WARNING: {message}.", "*" * 79, sep="\n", flush=True)
        return None

    def probe(self, source: str, compile_flags: Sequence[str] = (), link_flags: Sequence[str] | None = None) -> bool:
        """Whether the source compiles and, with link flags, also links and runs."""
        link = list(link_flags or ())
        if self.family == "unix":
            # setuptools heeds these when it links an extension, but not for an executable.
            link += shlex.split(f"{os.environ.get('ARCHFLAGS', '')} {os.environ.get('LDFLAGS', '')}")
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "probe.c")
            path.write_text(source)
            try:
                objects = self.compiler.compile([str(path)], output_dir=directory, extra_postargs=list(compile_flags))
                if link_flags is None:
                    return True
                self.compiler.link_executable(objects, "probe", output_dir=directory, extra_postargs=link)
            except (CompileError, LinkError):
                return False
            program = Path(directory, self.compiler.executable_filename("probe"))
            try:
                return subprocess.run([program], check=False, timeout=60).returncode == 0
            except subprocess.TimeoutExpired:
                return False
            except OSError:
                # Built for another machine: that it links is all that can be known here.
                return True

    def set_flags(self, openmp_compile: list[str], openmp_link: list[str]) -> None:
        debug = DEBUG_FLAGS[self.family] if switched_on("FASTPOOL_DEBUG_BUILD") else []
        sanitize = []
        if sanitizers := os.environ.get("FASTPOOL_SANITIZE"):
            # Python's own -fwrapv would hide integer overflow from the sanitizer.
            sanitize = [f"-fsanitize={sanitizers}", "-fno-omit-frame-pointer", "-fno-wrapv", "-g"]
            if "undefined" in sanitizers:
                sanitize.append("-fno-sanitize-recover=undefined")
        for ext in self.extensions:
            level = LEVELS[ext.level].flags[self.family]
            contract = CONTRACT_FLAGS[self.family] if ext.contracted else []
            ext.extra_compile_args = [
                *COMPILE_FLAGS[self.family],
                *contract,
                *level,
                *openmp_compile,
                *debug,
                *sanitize,
            ]
            ext.extra_link_args = [*openmp_link, *sanitize]
        # setuptools compares dates alone, so other flags would leave old modules in place.
        flags = [(ext.name, ext.extra_compile_args, ext.extra_link_args) for ext in self.extensions]
        settings = repr((flags, [os.environ.get(name) for name in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS")]))
        record = Path(self.build_temp, "settings.txt")
        self.force = self.force or not record.exists() or record.read_text() != settings
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(settings)

    def translate(self, level: str) -> None:
        """Cython source to C. One build directory per level: the levels share their sources' file names."""
        from Cython.Build import cythonize

        debug = switched_on("FASTPOOL_DEBUG_BUILD")
        extensions = [ext for ext in self.extensions if ext.level == level]
        translated = cythonize(
            [Extension(ext.name, ext.sources) for ext in extensions],
            build_dir=os.path.join(self.build_temp, "cython-debug" if debug else "cython", level),
            compiler_directives=DIRECTIVES | (DEBUG_DIRECTIVES if debug else {}),
            include_path=[KERNEL_DIR],
            shared_utility_qualified_name=SHARED_MODULE,
            # The shared module's, which would otherwise also register itself without its package.
            module_name=SHARED_MODULE,
        )
        for ext, c_ext in zip(extensions, translated, strict=True):
            ext.sources = c_ext.sources


setup(
    cmdclass={"build_ext": BuildExtensions},
    ext_modules=[
        FastpoolExtension(SHARED_MODULE, []),
        FastpoolExtension("fastpool._buffers", ["fastpool/_buffers.pyx"]),
        FastpoolExtension("fastpool._cpu", ["fastpool/_cpu.pyx"]),
        *(
            FastpoolExtension(
                f"fastpool._kernels._{kernel}_{level}", [f"{KERNEL_DIR}/{kernel}.pyx"], level, kernel in CONTRACTED
            )
            for level in LEVELS
            for kernel in KERNELS
        ),
    ],
)
