/* What this CPU and operating system can run, how large the caches are, and which OpenMP runtime is loaded.
 *
 * Compiled for the baseline only. The levels are those of setup.py, and each asks for every feature that its flags
 * let the compiler use: a CPU, or a virtual machine, may well have AVX2 without FMA.
 */
#ifndef FASTPOOL_CPU_H
#define FASTPOOL_CPU_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) || defined(__i386__) || defined(_M_X64) || defined(_M_IX86)
#define FASTPOOL_X86
#ifdef _MSC_VER
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#endif

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <dlfcn.h>
#endif
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

/* ---- Instruction sets --------------------------------------------------------------------------------------- */

enum { FASTPOOL_EAX, FASTPOOL_EBX, FASTPOOL_ECX, FASTPOOL_EDX };

#define FASTPOOL_YMM 0x06u /* bits of XCR0: the operating system saves xmm and ymm */
#define FASTPOOL_ZMM 0xe6u /* and the mask registers and both halves of the zmm file */

typedef struct {
    const char *macro;
    const char *expansion; /* "1" if this file, hence every baseline module, was compiled with the feature */
    int level;             /* the lowest x86-64 level that needs it; 0: only a user's own flags bring it in */
    uint32_t leaf, subleaf;
    int reg, bit;
    uint32_t states;
} fastpool_feature;

#define FASTPOOL_STRING(text) #text
#define FASTPOOL_FEATURE(macro, level, leaf, subleaf, reg, bit, states) \
    { #macro, FASTPOOL_STRING(macro), level, leaf, subleaf, FASTPOOL_##reg, bit, states }

/* Named in full, since "macro" above must reach the # operator unexpanded and FASTPOOL_STRING expanded. */
static const fastpool_feature fastpool_features[] = {
    FASTPOOL_FEATURE(__SSE3__, 3, 1, 0, ECX, 0, 0),
    FASTPOOL_FEATURE(__SSSE3__, 3, 1, 0, ECX, 9, 0),
    FASTPOOL_FEATURE(__SSE4_1__, 3, 1, 0, ECX, 19, 0),
    FASTPOOL_FEATURE(__SSE4_2__, 3, 1, 0, ECX, 20, 0),
    FASTPOOL_FEATURE(__POPCNT__, 3, 1, 0, ECX, 23, 0),
    FASTPOOL_FEATURE(__AVX__, 3, 1, 0, ECX, 28, FASTPOOL_YMM),
    FASTPOOL_FEATURE(__AVX2__, 3, 7, 0, EBX, 5, FASTPOOL_YMM),
    FASTPOOL_FEATURE(__FMA__, 3, 1, 0, ECX, 12, FASTPOOL_YMM),
    FASTPOOL_FEATURE(__BMI__, 3, 7, 0, EBX, 3, 0),
    FASTPOOL_FEATURE(__BMI2__, 3, 7, 0, EBX, 8, 0),
    FASTPOOL_FEATURE(__LZCNT__, 3, 0x80000001u, 0, ECX, 5, 0),
    FASTPOOL_FEATURE(__F16C__, 3, 1, 0, ECX, 29, FASTPOOL_YMM),
    FASTPOOL_FEATURE(__MOVBE__, 3, 1, 0, ECX, 22, 0),
    FASTPOOL_FEATURE(__AVX512F__, 4, 7, 0, EBX, 16, FASTPOOL_ZMM),
    FASTPOOL_FEATURE(__AVX512CD__, 4, 7, 0, EBX, 28, FASTPOOL_ZMM),
    FASTPOOL_FEATURE(__AVX512VL__, 4, 7, 0, EBX, 31, FASTPOOL_ZMM),
    FASTPOOL_FEATURE(__AVX512BW__, 4, 7, 0, EBX, 30, FASTPOOL_ZMM),
    FASTPOOL_FEATURE(__AVX512DQ__, 4, 7, 0, EBX, 17, FASTPOOL_ZMM),
    /* What -march=native may add and a compiler may use without being asked to. */
    FASTPOOL_FEATURE(__FMA4__, 0, 0x80000001u, 0, ECX, 16, FASTPOOL_YMM),
    FASTPOOL_FEATURE(__XOP__, 0, 0x80000001u, 0, ECX, 11, FASTPOOL_YMM),
    FASTPOOL_FEATURE(__TBM__, 0, 0x80000001u, 0, ECX, 21, 0),
    FASTPOOL_FEATURE(__ADX__, 0, 7, 0, EBX, 19, 0),
    FASTPOOL_FEATURE(__GFNI__, 0, 7, 0, ECX, 8, 0),
    FASTPOOL_FEATURE(__AVXVNNI__, 0, 7, 1, EAX, 4, FASTPOOL_YMM),
    FASTPOOL_FEATURE(__AVX512IFMA__, 0, 7, 0, EBX, 21, FASTPOOL_ZMM),
    FASTPOOL_FEATURE(__AVX512VBMI__, 0, 7, 0, ECX, 1, FASTPOOL_ZMM),
    FASTPOOL_FEATURE(__AVX512VBMI2__, 0, 7, 0, ECX, 6, FASTPOOL_ZMM),
    FASTPOOL_FEATURE(__AVX512VNNI__, 0, 7, 0, ECX, 11, FASTPOOL_ZMM),
    FASTPOOL_FEATURE(__AVX512BITALG__, 0, 7, 0, ECX, 12, FASTPOOL_ZMM),
    FASTPOOL_FEATURE(__AVX512VPOPCNTDQ__, 0, 7, 0, ECX, 14, FASTPOOL_ZMM),
    FASTPOOL_FEATURE(__AVX512BF16__, 0, 7, 1, EAX, 5, FASTPOOL_ZMM),
    FASTPOOL_FEATURE(__AVX512FP16__, 0, 7, 0, EDX, 23, FASTPOOL_ZMM),
};

enum { FASTPOOL_FEATURE_COUNT = sizeof fastpool_features / sizeof *fastpool_features };

#ifdef FASTPOOL_X86

/* All zeros where the CPU has no such leaf. */
static void fastpool_cpuid(uint32_t leaf, uint32_t subleaf, uint32_t registers[4])
{
    registers[0] = registers[1] = registers[2] = registers[3] = 0;
#ifdef _MSC_VER
    int values[4];
    __cpuid(values, (int)(leaf & 0x80000000u));
    if (leaf <= (uint32_t)values[0]) {
        __cpuidex(values, (int)leaf, (int)subleaf);
        for (int i = 0; i < 4; i++) registers[i] = (uint32_t)values[i];
    }
#else
    __get_cpuid_count(leaf, subleaf, &registers[0], &registers[1], &registers[2], &registers[3]);
#endif
}

/* XCR0: the register states that the operating system saves. */
static uint64_t fastpool_saved_states(void)
{
    uint32_t registers[4];
    fastpool_cpuid(1, 0, registers);
    if (!(registers[FASTPOOL_ECX] >> 27 & 1)) return 0; /* no OSXSAVE: xgetbv itself would fault */
#ifdef _MSC_VER
    return _xgetbv(0);
#else
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
#endif
}

static int fastpool_feature_usable(const fastpool_feature *feature)
{
    uint32_t registers[4];
    if (feature->states && (fastpool_saved_states() & feature->states) != feature->states) return 0;
    /* Subleaves of leaf 7 above the last return zeros on AMD, and the data of another leaf on some Intel CPUs. */
    if (feature->leaf == 7 && feature->subleaf) {
        fastpool_cpuid(7, 0, registers);
        if (feature->subleaf > registers[FASTPOOL_EAX]) return 0;
    }
    fastpool_cpuid(feature->leaf, feature->subleaf, registers);
    return registers[feature->reg] >> feature->bit & 1;
}

static int fastpool_is_x86_64(void) { return sizeof(void *) == 8; }

#else

static int fastpool_feature_usable(const fastpool_feature *feature)
{
    (void)feature;
    return 0;
}

static int fastpool_is_x86_64(void) { return 0; }

#endif /* FASTPOOL_X86 */

/* Whether an x86-64 level, 3 or 4, can run. */
static int fastpool_level_usable(int level)
{
    if (!fastpool_is_x86_64()) return 0;
    for (int i = 0; i < FASTPOOL_FEATURE_COUNT; i++) {
        const fastpool_feature *feature = &fastpool_features[i];
        if (feature->level && feature->level <= level && !fastpool_feature_usable(feature)) return 0;
    }
    return 1;
}

/* The macro of a feature that the baseline was compiled with and that cannot run here; NULL if all is well. */
static const char *fastpool_baseline_macro_missing(int i)
{
    const fastpool_feature *feature = &fastpool_features[i];
    int compiled = feature->expansion[0] != '_';
    return compiled && !fastpool_feature_usable(feature) ? feature->macro : NULL;
}

/* ---- Caches ------------------------------------------------------------------------------------------------- */

/* Bytes of L1 data, L2 and L3 cache that one core has; L3 whole, as cores share it. 0 where not known. */
static void fastpool_cache_sizes(int64_t sizes[3])
{
    sizes[0] = sizes[1] = sizes[2] = 0;
#if defined(FASTPOOL_X86)
    uint32_t registers[4];
    fastpool_cpuid(0, 0, registers);
    /* "AuthenticAMD" and "HygonGenuine" keep Intel's leaf 4 elsewhere, in the same format. */
    uint32_t vendor = registers[FASTPOOL_EBX];
    uint32_t leaf = vendor == 0x68747541u || vendor == 0x6f677948u ? 0x8000001du : 4;

    fastpool_cpuid(0xb, 0, registers);
    uint32_t threads_per_core = registers[FASTPOOL_EBX] ? 1u << (registers[FASTPOOL_EAX] & 31) : 0;

    for (uint32_t subleaf = 0; subleaf < 16; subleaf++) {
        fastpool_cpuid(leaf, subleaf, registers);
        uint32_t type = registers[FASTPOOL_EAX] & 31, level = registers[FASTPOOL_EAX] >> 5 & 7;
        if (type == 0) break;
        if (type == 2 || level < 1 || level > 3) continue; /* 2: instructions */
        int64_t size = (int64_t)(registers[FASTPOOL_EBX] >> 22) + 1;
        size *= (registers[FASTPOOL_EBX] >> 12 & 0x3ff) + 1;
        size *= (registers[FASTPOOL_EBX] & 0xfff) + 1;
        size *= (int64_t)registers[FASTPOOL_ECX] + 1;
        uint32_t threads = (registers[FASTPOOL_EAX] >> 14 & 0xfff) + 1;
        if (level < 3 && threads_per_core && threads > threads_per_core) size /= threads / threads_per_core;
        sizes[level - 1] = size;
    }
#elif defined(__APPLE__)
    /* Performance level 0 are the fast cores. A cluster of them shares one L2. */
    static const char *const names[3] = {
        "hw.perflevel0.l1dcachesize", "hw.perflevel0.l2cachesize", "hw.perflevel0.l3cachesize"};
    for (int i = 0; i < 3; i++) {
        size_t length = sizeof sizes[i];
        if (sysctlbyname(names[i], &sizes[i], &length, NULL, 0) != 0) sizes[i] = 0;
    }
    int cores = 0;
    size_t length = sizeof cores;
    if (sysctlbyname("hw.perflevel0.cpusperl2", &cores, &length, NULL, 0) == 0 && cores > 1) sizes[1] /= cores;
#endif
}

/* ---- OpenMP ------------------------------------------------------------------------------------------------- */

#ifdef _OPENMP

static int fastpool_compiled_with_openmp(void) { return 1; }
static int fastpool_openmp_max_threads(void) { return omp_get_max_threads(); }

/* Writes the path of the library that this process took its OpenMP runtime from; returns 0 if that is unknown. */
static int fastpool_openmp_runtime(char *path, int size)
{
#ifdef _WIN32
    HMODULE module;
    DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
    if (!GetModuleHandleExA(flags, (LPCSTR)(void *)omp_get_max_threads, &module)) return 0;
    DWORD length = GetModuleFileNameA(module, path, (DWORD)size);
    return length > 0 && length < (DWORD)size;
#else
    Dl_info info;
    int length = 0;
    if (!dladdr((void *)omp_get_max_threads, &info) || !info.dli_fname) return 0;
    while (info.dli_fname[length] && length < size - 1) {
        path[length] = info.dli_fname[length];
        length++;
    }
    path[length] = 0;
    return 1;
#endif
}

#else

static int fastpool_compiled_with_openmp(void) { return 0; }
static int fastpool_openmp_max_threads(void) { return 1; }
static int fastpool_openmp_runtime(char *path, int size)
{
    (void)path;
    (void)size;
    return 0;
}

#endif /* _OPENMP */

#endif /* FASTPOOL_CPU_H */
