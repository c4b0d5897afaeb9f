/* Lane primitives of the convolution kernels, shared by every instruction-set build of conv.pyx.
 *
 * A lane holds one output while its products are added up. The walk in conv.pyx lays input out so that a tap of all
 * outputs of a row is one run at a constant offset (or gathers such runs), and so that the weights of a block of
 * filters are read one after the other. What remains is a register block of rows times vectors, which GCC and Clang
 * vector types keep in registers; elsewhere the same code runs with one lane per "vector".
 *
 * Compiled with -ffp-contract=fast: a product and its sum are one fused operation where the level has it.
 */
#ifndef FASTPOOL_CONV_LANES_H
#define FASTPOOL_CONV_LANES_H

#include <stdint.h>
#include <string.h>

#include "half.h"
#include "stream.h"

#if defined(__GNUC__) || defined(__clang__)
#define FASTPOOL_VECTORS 1
#define FASTPOOL_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define FASTPOOL_UNROLL _Pragma("unroll")
#else
#define FASTPOOL_UNROLL _Pragma("GCC unroll 16")
#endif
#if defined(__AVX512BW__)
#define FASTPOOL_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define FASTPOOL_VECTOR_BYTES 32
#else
#define FASTPOOL_VECTOR_BYTES 16
#endif
#else
#define FASTPOOL_VECTORS 0
#define FASTPOOL_INLINE static inline
#define FASTPOOL_UNROLL
#define FASTPOOL_VECTOR_BYTES 16
#endif

/* Register blocks, as rows times vectors: as many sums as there are registers, with enough of them to hide the latency
 * of a fused multiply-add, and few loads per sum. Measured on Zen 4: AVX-512 reaches the peak in all of 8 and 4 rows. */
#if FASTPOOL_VECTOR_BYTES == 64
#define FASTPOOL_BLOCKS(X)                                                                                             \
    X(8, 3) X(8, 2) X(8, 1) X(4, 6) X(4, 3) X(4, 2) X(4, 1) X(2, 8) X(2, 4) X(2, 2) X(2, 1) X(1, 8) X(1, 4) X(1, 2) X(1, 1)
enum { FASTPOOL_MOST_ROWS = 8, FASTPOOL_MOST_VECTORS = 8 };
#elif FASTPOOL_VECTOR_BYTES == 32
#define FASTPOOL_BLOCKS(X) X(4, 3) X(4, 2) X(4, 1) X(2, 4) X(2, 2) X(2, 1) X(1, 8) X(1, 4) X(1, 2) X(1, 1)
enum { FASTPOOL_MOST_ROWS = 4, FASTPOOL_MOST_VECTORS = 8 };
#else
#define FASTPOOL_BLOCKS(X) X(4, 2) X(4, 1) X(2, 4) X(2, 2) X(2, 1) X(1, 8) X(1, 4) X(1, 2) X(1, 1)
enum { FASTPOOL_MOST_ROWS = 4, FASTPOOL_MOST_VECTORS = 8 };
#endif

/* Vectors (of two and more) and kernel heights for which four rows of outputs share what is loaded. Without fused
 * operations, products take longer than loads. */
#define FASTPOOL_SHARED_HEIGHTS(X, v) X(v, 3) X(v, 5) X(v, 7)
#if FASTPOOL_VECTOR_BYTES == 64
enum { FASTPOOL_SHARED_VECTORS = 4 };
#define FASTPOOL_SHARED(X) FASTPOOL_SHARED_HEIGHTS(X, 4) FASTPOOL_SHARED_HEIGHTS(X, 3) FASTPOOL_SHARED_HEIGHTS(X, 2)
#elif FASTPOOL_VECTOR_BYTES == 32
enum { FASTPOOL_SHARED_VECTORS = 3 };
#define FASTPOOL_SHARED(X) FASTPOOL_SHARED_HEIGHTS(X, 3) FASTPOOL_SHARED_HEIGHTS(X, 2)
#else
enum { FASTPOOL_SHARED_VECTORS = 0 };
#endif

/* Lanes from one row of a panel of the weight gradient to the next: its positions, and a little so that rows do not
 * fall into one set of the cache. */
enum { FASTPOOL_PANEL = 512, FASTPOOL_PANEL_PITCH = 528 };

/* Rows of the next register block where `rows` are left; a block may have more rows than are left, filled up with 0. */
static inline int fastpool_conv_rows(int64_t rows) {
    if (FASTPOOL_MOST_ROWS == 8 && rows >= 6) return 8;
    return rows >= 3 ? 4 : (int)rows;
}

/* Vectors of the next register block of m rows where `vectors` are left: the widest, but 4 as 2 and 2, not 3 and 1. */
static inline int fastpool_conv_vectors(int m, int64_t vectors) {
    int most = 1;
#define FASTPOOL_WIDEST(rows, v) if (m == rows && v <= vectors && v > most) most = v;
    FASTPOOL_BLOCKS(FASTPOOL_WIDEST)
#undef FASTPOOL_WIDEST
    return most == 3 && vectors == 4 ? 2 : most;
}

#define LANE float
#define NAME(x) fastpool_f32_##x
#include "conv_lanes_template.h"
#undef LANE
#undef NAME

#define LANE double
#define NAME(x) fastpool_f64_##x
#include "conv_lanes_template.h"
#undef LANE
#undef NAME

/* unsigned: integers wrap around */
#define LANE uint32_t
#define NAME(x) fastpool_u32_##x
#include "conv_lanes_template.h"
#undef LANE
#undef NAME

#define LANE uint64_t
#define NAME(x) fastpool_u64_##x
#include "conv_lanes_template.h"
#undef LANE
#undef NAME

/* n bytes, a multiple of 4 and often few, to a place apart: the last vector may overlap the one before. */
FASTPOOL_INLINE void fastpool_copy(void *to, const void *from, int64_t n) {
    uint8_t *dst = to;
    const uint8_t *src = from;
#define FASTPOOL_ENDS(size) memcpy(dst, src, size), memcpy(dst + n - size, src + n - size, size)
    if (n > 1024) memcpy(to, from, (size_t)n);
    else if (n >= 64) {
        for (int64_t i = 0; i + 64 < n; i += 64) memcpy(dst + i, src + i, 64);
        memcpy(dst + n - 64, src + n - 64, 64);
    } else if (n >= 32) FASTPOOL_ENDS(32);
    else if (n >= 16) FASTPOOL_ENDS(16);
    else if (n >= 8) FASTPOOL_ENDS(8);
    else if (n) memcpy(to, from, 4);
#undef FASTPOOL_ENDS
}

FASTPOOL_INLINE void fastpool_clear(void *to, int64_t n) {
    uint8_t *dst = to;
#define FASTPOOL_ENDS(size) memset(dst, 0, size), memset(dst + n - size, 0, size)
    if (n > 64) memset(to, 0, (size_t)n);
    else if (n >= 32) FASTPOOL_ENDS(32);
    else if (n >= 16) FASTPOOL_ENDS(16);
    else if (n >= 8) FASTPOOL_ENDS(8);
    else if (n) memset(to, 0, 4);
#undef FASTPOOL_ENDS
}

/* n elements, `step` apart, to lanes; and lanes to elements (`same`: of the same type). Rows of them: see conv.pyx. */
#define FASTPOOL_MOVE(name, to_type, from_type, convert, to_step, from_step, same, pairs)                              \
    FASTPOOL_INLINE void name##_row(to_type *dst, const from_type *src, int64_t n, int64_t step) {                     \
        if (step == 1 && same) fastpool_copy(dst, src, n * (int64_t)sizeof(to_type));                                  \
        else if (step == 1)                                                                                            \
            for (int64_t i = 0; i < n; i++) dst[i] = (to_type)convert(src[i]);                                         \
        else if (step == 2) {                                                                                          \
            int64_t i = pairs;                                                                                         \
            for (; i < n; i++) dst[i * (to_step ? 2 : 1)] = (to_type)convert(src[i * (from_step ? 2 : 1)]);            \
        } else                                                                                                         \
            for (int64_t i = 0; i < n; i++)                                                                            \
                dst[i * (to_step ? step : 1)] = (to_type)convert(src[i * (from_step ? step : 1)]);                     \
    }                                                                                                                  \
    static void name(void *to, const void *from, int64_t n, int64_t step) { name##_row(to, from, n, step); }
#define FASTPOOL_LOAD(name, lane, stored, convert, same, pairs)                                                        \
    FASTPOOL_MOVE(fastpool_load_##name, lane, stored, convert, 0, 1, same, pairs)                                      \
    static void fastpool_load_rows_##name(void *to, int64_t pitch, const void *from, int64_t row_step, int64_t rows,   \
                                          int64_t begin, int64_t end, int64_t n, int64_t step) {                       \
        lane *dst = to;                                                                                                \
        const stored *src = from;                                                                                      \
        for (int64_t r = 0; r < rows; r++, dst += pitch, src += row_step) {                                            \
            fastpool_clear(dst, begin * (int64_t)sizeof(lane));                                                        \
            fastpool_load_##name##_row(dst + begin, src, end - begin, step);                                           \
            fastpool_clear(dst + end, (n - end) * (int64_t)sizeof(lane));                                              \
        }                                                                                                              \
    }                                                                                                                  \
    FASTPOOL_PACK(name, lane, stored, convert)
/* Weights of some filters, a row of the product after the other, filled up with zeros to `rows` filters. */
#define FASTPOOL_PACK(name, lane, stored, convert)                                                                     \
    static void fastpool_pack_##name(void *to, int64_t rows, int64_t filters, const void *from, int64_t filter_step,   \
                                     int64_t inputs, int64_t input_step, const int64_t *tap, int64_t taps) {           \
        lane *dst = to;                                                                                                \
        const stored *weights = from;                                                                                  \
        for (int64_t c = 0; c < inputs; c++, weights += input_step) {                                                  \
            for (int64_t t = 0; t < taps; t++, dst += rows) {                                                          \
                const stored *src = weights + tap[t];                                                                  \
                int64_t f = 0;                                                                                         \
                if (filters == FASTPOOL_MOST_ROWS)                                                                     \
                    for (; f < FASTPOOL_MOST_ROWS; f++) dst[f] = (lane)convert(src[f * filter_step]);                  \
                for (; f < filters; f++) dst[f] = (lane)convert(src[f * filter_step]);                                 \
                for (; f < rows; f++) dst[f] = 0;                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
#define FASTPOOL_STORE(name, stored, lane, convert, same, vectors)                                                     \
    FASTPOOL_MOVE(fastpool_store_##name, stored, lane, convert, 1, 0, same, 0)                                         \
    static void fastpool_store_rows_##name(void *to, int64_t row_step, const void *from, int64_t pitch, int64_t rows,  \
                                           int64_t n, int64_t step) {                                                  \
        stored *dst = to;                                                                                              \
        const lane *src = from;                                                                                        \
        for (int64_t r = 0; r < rows; r++, dst += row_step, src += pitch)                                              \
            fastpool_store_##name##_row(dst, src, n, step);                                                            \
    }                                                                                                                  \
    /* and in turn: n of one, and n or one fewer of another */                                                         \
    static void fastpool_store_pairs_##name(void *to, int64_t row_step, const void *even, const void *odd, int64_t pitch,\
                                            int64_t rows, int64_t n, int64_t beside) {                                 \
        stored *dst = to;                                                                                              \
        const lane *a = even, *b = odd;                                                                                \
        for (int64_t r = 0; r < rows; r++, dst += row_step, a += pitch, b += pitch) {                                  \
            int64_t i = vectors;                                                                                       \
            for (; i < beside; i++) dst[2 * i] = (stored)convert(a[i]), dst[2 * i + 1] = (stored)convert(b[i]);        \
            if (beside < n) dst[2 * beside] = (stored)convert(a[beside]);                                              \
        }                                                                                                              \
    }
/* Rows of results that are lanes, past the caches. */
static void fastpool_stream_rows(void *to, int64_t row_bytes, const void *from, int64_t pitch_bytes, int64_t rows,
                                 int64_t bytes) {
    for (int64_t r = 0; r < rows; r++)
        fastpool_stream((char *)to + r * row_bytes, (const char *)from + r * pitch_bytes, bytes);
}

FASTPOOL_LOAD(f32, float, float,, 1, fastpool_f32_evens(dst, src, n))
FASTPOOL_LOAD(f64, double, double,, 1, fastpool_f64_evens(dst, src, n))
FASTPOOL_LOAD(f16, float, uint16_t, fastpool_from_float16, 0, 0)
FASTPOOL_LOAD(bf16, float, uint16_t, fastpool_from_bfloat16, 0, 0)
FASTPOOL_LOAD(s8, uint32_t, int8_t, (int32_t), 0, 0)
FASTPOOL_LOAD(u8, uint32_t, uint8_t,, 0, 0)
FASTPOOL_LOAD(s16, uint64_t, int16_t, (int64_t), 0, 0)
FASTPOOL_LOAD(u16, uint64_t, uint16_t,, 0, 0)
FASTPOOL_LOAD(s32, uint64_t, int32_t, (int64_t), 0, 0)
FASTPOOL_LOAD(u32, uint64_t, uint32_t,, 0, 0)
FASTPOOL_LOAD(u64, uint64_t, uint64_t,, 1, fastpool_u64_evens(dst, src, n))
FASTPOOL_STORE(f32, float, float,, 1, fastpool_f32_interleave(dst, a, b, beside))
FASTPOOL_STORE(f64, double, double,, 1, fastpool_f64_interleave(dst, a, b, beside))
FASTPOOL_STORE(f16, uint16_t, float, fastpool_to_float16, 0, 0)
FASTPOOL_STORE(bf16, uint16_t, float, fastpool_to_bfloat16, 0, 0)
FASTPOOL_STORE(u32, uint32_t, uint32_t,, 1, fastpool_u32_interleave(dst, a, b, beside))
FASTPOOL_STORE(u64, uint64_t, uint64_t,, 1, fastpool_u64_interleave(dst, a, b, beside))

typedef struct {
    int lane_bytes, stored_bytes, result_bytes;
    int lanes; /* of a vector */
    void (*load)(void *lanes, const void *stored, int64_t n, int64_t step);
    void (*load_rows)(void *lanes, int64_t pitch, const void *stored, int64_t row_step, int64_t rows, int64_t begin,
                      int64_t end, int64_t n, int64_t step);
    void (*pack)(void *lanes, int64_t rows, int64_t filters, const void *stored, int64_t filter_step, int64_t inputs,
                 int64_t input_step, const int64_t *tap, int64_t taps);
    void (*store)(void *stored, const void *lanes, int64_t n, int64_t step);
    void (*store_rows)(void *stored, int64_t row_step, const void *lanes, int64_t pitch, int64_t rows, int64_t n,
                       int64_t step);
    void (*store_pairs)(void *stored, int64_t row_step, const void *even, const void *odd, int64_t pitch, int64_t rows,
                        int64_t n, int64_t beside);
    /* weights are `row_step` lanes apart from filter to filter, `step` from row to row of the product; one of these is 1,
     * and m is the most where it is not the first */
    void (*multiply)(const void *weights, int64_t row_step, int64_t step, const void *input, const int32_t *offset,
                     int64_t depth, void *result, int64_t pitch, const void *seeds, int m, int64_t vectors);
    /* NULL where it would not be faster than `multiply` */
    void (*rows)(const void *weights, const void *input, const int32_t *offset, int64_t outer, int64_t tall, int64_t wide,
                 int64_t step, void *result, const void *seed, int64_t rows, int64_t vectors);
    void (*outer)(const void *input, const int32_t *row_at, int64_t rows, int64_t n, const int32_t *offset,
                  const void *columns, int64_t column_pitch, void *result, int64_t pitch, int m, int64_t vectors);
    void (*dot)(const void *lines, int64_t line_pitch, int64_t pitch, const void *input, const int32_t *row_at,
                int64_t rows, int64_t n, const int32_t *offset, void *result, int m, int64_t taps);
    void (*turn)(void *to, int64_t to_pitch, const void *from, int64_t pitch, int64_t rows, int64_t n);
} fastpool_conv_lanes;

/* Element types, numbered as in fastpool/_spec.py (ELEMENTS). Returns -1 for one that is not taken. */
static int fastpool_choose_conv_lanes(fastpool_conv_lanes *chosen, int element) {
#ifdef FASTPOOL_SHARED
#define FASTPOOL_ROWS(lane) fastpool_##lane##_rows
#else
#define FASTPOOL_ROWS(lane) NULL
#endif
#define FASTPOOL_LANES(lane, type, stored, from, result, to)                                                           \
    *chosen = (fastpool_conv_lanes){sizeof(type), sizeof(stored), sizeof(result), fastpool_##lane##_lanes,             \
                                    fastpool_load_##from, fastpool_load_rows_##from, fastpool_pack_##from,             \
                                    fastpool_store_##to, fastpool_store_rows_##to, fastpool_store_pairs_##to,          \
                                    fastpool_##lane##_multiply, FASTPOOL_ROWS(lane), fastpool_##lane##_outer,          \
                                    fastpool_##lane##_dot, fastpool_##lane##_turn};                                    \
    return 0
    switch (element) {
    case 0: FASTPOOL_LANES(u32, uint32_t, uint8_t, u8, uint32_t, u32);
    case 1: FASTPOOL_LANES(u32, uint32_t, int8_t, s8, uint32_t, u32);
    case 2: FASTPOOL_LANES(u64, uint64_t, uint16_t, u16, uint64_t, u64);
    case 3: FASTPOOL_LANES(u64, uint64_t, int16_t, s16, uint64_t, u64);
    case 4: FASTPOOL_LANES(u64, uint64_t, uint32_t, u32, uint64_t, u64);
    case 5: FASTPOOL_LANES(u64, uint64_t, int32_t, s32, uint64_t, u64);
    case 6: FASTPOOL_LANES(u64, uint64_t, uint64_t, u64, uint64_t, u64);
    case 7: FASTPOOL_LANES(u64, uint64_t, uint64_t, u64, uint64_t, u64);
    case 8: FASTPOOL_LANES(f32, float, uint16_t, f16, uint16_t, f16);
    case 9: FASTPOOL_LANES(f32, float, uint16_t, bf16, uint16_t, bf16);
    case 10: FASTPOOL_LANES(f32, float, float, f32, float, f32);
    case 11: FASTPOOL_LANES(f64, double, double, f64, double, f64);
    default: return -1;
    }
#undef FASTPOOL_LANES
#undef FASTPOOL_ROWS
}

#endif
