#!/usr/bin/env bash
# Build fastpool with AddressSanitizer and UndefinedBehaviorSanitizer (GCC, Linux) and run its tests.
#
#     tools/sanitize.sh [pytest arguments]
#
# PYTHON chooses the interpreter and FASTPOOL_ISA the level. Everything is built outside the source tree and
# removed at the end.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Python itself is not sanitised, so the runtime has to be there before it.
asan=$(gcc -print-file-name=libasan.so)
[[ -e $asan ]] || { echo "sanitize.sh: GCC has no libasan here" >&2; exit 1; }

"${PYTHON:-python3}" -m venv "$work/venv"
# A copy, so that no sanitised object stays where the next ordinary build looks for its own.
mkdir "$work/source"
tar -C "$root" --exclude=./.git --exclude=./build --exclude='*.so' -cf - . | tar -C "$work/source" -xf -
FASTPOOL_DEBUG_BUILD=1 FASTPOOL_SANITIZE=address,undefined FASTPOOL_REQUIRE_OPENMP=1 \
    "$work/venv/bin/pip" install --quiet "$work/source[test]"

# Leaks: Python and NumPy keep memory until the end, so none can be told from a cache. PYTHONMALLOC: every object is
# an allocation of its own, with red zones around it. --capture=sys: reports of C code must reach the terminal.
cd "$work/source"
LD_PRELOAD=$asan \
ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
PYTHONMALLOC=malloc \
    "$work/venv/bin/pytest" --capture=sys -p no:cacheprovider -o timeout=1800 "${@:-tests}"
