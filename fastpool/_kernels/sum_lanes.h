/* Lane primitives of sums and means: the counterparts of pool_lanes.h, with the same signatures.
 *
 * A lane holds the running sum of a window. Integers add up exactly, in lanes that are wide enough for all taps (the
 * plan sees to that); 64-bit integers are split into high and low halves, which are summed side by side, where their
 * exact sum is wanted. Every order of additions is written out here, so that it does not depend on the width of vectors.
 */
#ifndef FASTPOOL_SUM_LANES_H
#define FASTPOOL_SUM_LANES_H

#include "half.h"
#include "pool_lanes.h"

/* Element types and lane types, as in fastpool/_plan.py. */
enum { FASTPOOL_U8, FASTPOOL_I8, FASTPOOL_U16, FASTPOOL_I16, FASTPOOL_U32, FASTPOOL_I32, FASTPOOL_U64, FASTPOOL_I64,
       FASTPOOL_F16, FASTPOOL_BF16, FASTPOOL_F32, FASTPOOL_F64 };
enum { FASTPOOL_SUM_S16, FASTPOOL_SUM_S32, FASTPOOL_SUM_S64, FASTPOOL_SUM_PAIR, FASTPOOL_SUM_F32, FASTPOOL_SUM_F64 };
/* How elements are raised to a power: while they are loaded, or, by the general powers, after. */
enum { FASTPOOL_PLAIN, FASTPOOL_ABSOLUTE, FASTPOOL_SQUARE, FASTPOOL_ABSOLUTE_POWER, FASTPOOL_SIGNED_POWER };

/* Taps of a window given by bounds are added in groups, whose sums are added in turn: rounding errors grow slowly. */
#define FASTPOOL_GROUP 8
/* Partial sums of a long run: whole vectors, whatever their width. */
#define FASTPOOL_PARTIALS 32

/* Integers wrap around, which C defines for unsigned ones only. */
#define LANE uint16_t
#define SUFFIX _s16
#define PER 1
#include "sum_lanes_template.h"

#define LANE uint32_t
#define SUFFIX _s32
#define PER 1
#include "sum_lanes_template.h"

#define LANE uint64_t
#define SUFFIX _s64
#define PER 1
#include "sum_lanes_template.h"

#define LANE uint64_t
#define SUFFIX _pair
#define PER 2
#include "sum_lanes_template.h"

#define LANE float
#define SUFFIX _sf32
#define PER 1
#include "sum_lanes_template.h"

#define LANE double
#define SUFFIX _sf64
#define PER 1
#include "sum_lanes_template.h"

/* ---- rows of elements to lanes ---- */

typedef void (*fastpool_load)(void *, int64_t, int64_t, const void *, int64_t, int64_t, int64_t, int64_t, void *,
                              const fastpool_row *, int64_t, int64_t, int64_t);

FASTPOOL_INLINE void fastpool_prefetch_taps(const char *row, int64_t row_bytes, int64_t tap_bytes, int64_t taps,
                                            const fastpool_row *plan, int64_t element, int64_t ahead) {
    /* rows that the outputs before have not read */
    int64_t fresh = tap_bytes && row_bytes ? row_bytes / tap_bytes : 1;
    if (fresh < 1) fresh = 1;
    if (fresh > taps) fresh = taps;
    for (int64_t t = taps - fresh; t < taps; t++) {
        fastpool_prefetch(row + t * tap_bytes + plan->first * element + ahead, (plan->beyond - plan->first) * element);
    }
}

/* Sum of `taps` rows, converted to lanes. */
#define ADD_TAPS(sum, type, CONVERT)                                                                            \
    {                                                                                                           \
        const type *FASTPOOL_RESTRICT a = from;                                                                 \
        int64_t t = 1;                                                                                          \
        if (taps == 1) {                                                                                        \
            for (int64_t i = 0; i < n; i++) sum[i] = CONVERT(a[i]);                                             \
        } else if (taps == 2) {                                                                                 \
            const type *FASTPOOL_RESTRICT b = a + tap_stride;                                                   \
            for (int64_t i = 0; i < n; i++) sum[i] = CONVERT(a[i]) + CONVERT(b[i]);                             \
            t = 2;                                                                                              \
        } else {                                                                                                \
            const type *FASTPOOL_RESTRICT b = a + tap_stride, *FASTPOOL_RESTRICT c = b + tap_stride;            \
            for (int64_t i = 0; i < n; i++) sum[i] = CONVERT(a[i]) + CONVERT(b[i]) + CONVERT(c[i]);             \
            t = 3;                                                                                              \
        }                                                                                                       \
        for (; t + 2 <= taps; t += 2) {                                                                         \
            const type *FASTPOOL_RESTRICT b = from + t * tap_stride, *FASTPOOL_RESTRICT c = b + tap_stride;     \
            for (int64_t i = 0; i < n; i++) sum[i] = sum[i] + CONVERT(b[i]) + CONVERT(c[i]);                    \
        }                                                                                                       \
        if (t < taps) {                                                                                         \
            const type *FASTPOOL_RESTRICT b = from + t * tap_stride;                                            \
            for (int64_t i = 0; i < n; i++) sum[i] = sum[i] + CONVERT(b[i]);                                    \
        }                                                                                                       \
    }

#define DEFINE_SCALAR_ADD(suffix, type, lane, CONVERT)                                                                  \
    FASTPOOL_INLINE void add_taps##suffix(lane *FASTPOOL_RESTRICT sum, const type *from, int64_t tap_stride, int64_t taps, \
                                          int64_t n) {                                                                  \
        ADD_TAPS(sum, type, CONVERT)                                                                                    \
    }

#if FASTPOOL_SHUFFLES
/* The same with the sums of some vectors kept in registers; the last vector of a row overlaps the one before. */
#define ADD_STEP(lane, OPERATION, unroll)                                                                               \
    {                                                                                                                   \
        values total[4];                                                                                                \
        for (int u = 0; u < unroll; u++) {                                                                              \
            const values x = __builtin_convertvector(*(const elements *)(from + i + u * width), values);                \
            total[u] = OPERATION(x);                                                                                    \
        }                                                                                                               \
        for (int64_t t = 1; t < taps; t++) {                                                                            \
            const elements *row = (const elements *)(from + t * tap_stride + i);                                        \
            for (int u = 0; u < unroll; u++) {                                                                          \
                const values x = __builtin_convertvector(row[u], values);                                               \
                total[u] += OPERATION(x);                                                                               \
            }                                                                                                           \
        }                                                                                                               \
        for (int u = 0; u < unroll; u++) *(values *)(sum + i + u * width) = total[u];                                   \
    }
#define DEFINE_VECTOR_ADD(suffix, type, lane, CONVERT, OPERATION)                                                       \
    FASTPOOL_INLINE void add_taps##suffix(lane *FASTPOOL_RESTRICT sum, const type *from, int64_t tap_stride, int64_t taps, \
                                          int64_t n) {                                                                  \
        enum { width = FASTPOOL_VECTOR_BYTES / sizeof(lane) };                                                          \
        typedef lane values __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), aligned(sizeof(lane)), may_alias));      \
        typedef type elements __attribute__((vector_size(width * sizeof(type)), aligned(sizeof(type)), may_alias));     \
        if (n < width) {                                                                                                \
            ADD_TAPS(sum, type, CONVERT)                                                                                \
            return;                                                                                                     \
        }                                                                                                               \
        int64_t i = 0;                                                                                                  \
        for (; i + 4 * width <= n; i += 4 * width) ADD_STEP(lane, OPERATION, 4)                                         \
        for (; i + width <= n; i += width) ADD_STEP(lane, OPERATION, 1)                                                 \
        if (i < n) {                                                                                                    \
            i = n - width;                                                                                              \
            ADD_STEP(lane, OPERATION, 1)                                                                                \
        }                                                                                                               \
    }
typedef int64_t fastpool_double_bits __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), aligned(8), may_alias));
typedef double fastpool_doubles __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), aligned(8), may_alias));
#define VECTOR_ITSELF(x) (x)
#define VECTOR_SQUARE(x) ((x) * (x))
#define VECTOR_MAGNITUDE(x) ((fastpool_doubles)((fastpool_double_bits)(x) & INT64_MAX))
#else
#define DEFINE_VECTOR_ADD(suffix, type, lane, CONVERT, OPERATION) DEFINE_SCALAR_ADD(suffix, type, lane, CONVERT)
#endif

/* Split the row of sums by stride, lane by lane. */
#define DEFINE_SPLIT(suffix, function)                                                                                  \
    FASTPOOL_INLINE void split_row##suffix(void *lanes, int64_t pitch, const void *row, const fastpool_row *plan) {     \
        function(lanes, pitch, 0, row, 0, 1, 1, 0, NULL, plan, 0, 0, 0);                                                \
    }
DEFINE_SPLIT(_s16, load_16_16)
DEFINE_SPLIT(_s32, load_32_32)
DEFINE_SPLIT(_s64, load_64_64)
DEFINE_SPLIT(_sf32, load_32_32)
DEFINE_SPLIT(_sf64, load_64_64)

FASTPOOL_INLINE void split_row_pair(void *lanes, int64_t pitch, const void *row, const fastpool_row *plan) {
    for (int p = 0; p < plan->phases; p++) {
        uint64_t *to = (uint64_t *)lanes + p * pitch * 2;
        const uint64_t *from = (const uint64_t *)row + (plan->start + plan->residue[p]) * 2;
        for (int64_t q = 0; q < plan->count; q++) {
            const int inside = q >= plan->inside[p] && q < plan->outside[p];
            to[2 * q] = inside ? from[2 * q * plan->stride] : 0;
            to[2 * q + 1] = inside ? from[2 * q * plan->stride + 1] : 0;
        }
    }
}

/* Stride 2, which halves images and volumes: rows are added up and split into even and odd elements in one go; or added
 * up in `pairs`, where windows are two elements wide and nothing else is left to do. */
#if FASTPOOL_SHUFFLES
#define BY_2_START(type, lane)                                                                                          \
    enum { width = FASTPOOL_VECTOR_BYTES / sizeof(lane) };                                                              \
    typedef lane values __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), aligned(sizeof(lane)), may_alias));          \
    if (n < width) return 0;                                                                                            \
    for (int64_t i = 0; i < n; i += width) {                                                                            \
        if (i + width > n) i = n - width; /* the last vector overlaps the one before */                                 \
        const type *row = from + 2 * i;
#define BY_2_END                                                                                                        \
    }                                                                                                                   \
    return 1;
#define BY_2_HEAD(suffix, type, lane)                                                                                   \
    FASTPOOL_INLINE int by_2##suffix(lane *even, lane *odd, const type *from, int64_t tap_stride, int64_t taps, int64_t n, \
                                     const int pairs)

/* Floats are added first, then shuffled. */
#define DEFINE_BY_2_FLOAT(suffix, lane, LANES)                                                                          \
    BY_2_HEAD(suffix, lane, lane) {                                                                                     \
        BY_2_START(lane, lane)                                                                                          \
        values a = *(const values *)row, b = *(const values *)(row + width);                                            \
        for (int64_t t = 1; t < taps; t++) {                                                                            \
            row += tap_stride;                                                                                          \
            a += *(const values *)row, b += *(const values *)(row + width);                                             \
        }                                                                                                               \
        const values even_ones = __builtin_shufflevector(a, b, FASTPOOL_PASTE(FASTPOOL_EVEN_, LANES));                  \
        const values odd_ones = __builtin_shufflevector(a, b, FASTPOOL_PASTE(FASTPOOL_ODD_, LANES));                    \
        if (pairs) {                                                                                                    \
            *(values *)(even + i) = even_ones + odd_ones;                                                               \
        } else {                                                                                                        \
            *(values *)(even + i) = even_ones;                                                                          \
            *(values *)(odd + i) = odd_ones;                                                                            \
        }                                                                                                               \
        BY_2_END                                                                                                        \
    }
DEFINE_BY_2_FLOAT(_f32_sf32, float, FASTPOOL_LANES_32)
DEFINE_BY_2_FLOAT(_f64_sf64, double, FASTPOOL_LANES_64)

/* Two small integers are the halves of one lane. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define DEFINE_BY_2_INTEGER(suffix, type, lane, word, LOW, shift)                                                       \
    BY_2_HEAD(suffix, type, lane) {                                                                                     \
        BY_2_START(type, lane)                                                                                          \
        typedef word words __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), aligned(sizeof(type)), may_alias));       \
        words x = *(const words *)row;                                                                                  \
        values a = (values)LOW(x, shift), b = (values)(x >> shift);                                                     \
        for (int64_t t = 1; t < taps; t++) {                                                                            \
            row += tap_stride;                                                                                          \
            x = *(const words *)row;                                                                                    \
            a += (values)LOW(x, shift), b += (values)(x >> shift);                                                      \
        }                                                                                                               \
        if (pairs) {                                                                                                    \
            *(values *)(even + i) = a + b;                                                                              \
        } else {                                                                                                        \
            *(values *)(even + i) = a;                                                                                  \
            *(values *)(odd + i) = b;                                                                                   \
        }                                                                                                               \
        BY_2_END                                                                                                        \
    }
#define LOW_UNSIGNED(x, shift) ((x) & ((1 << shift) - 1))
#define LOW_SIGNED(x, shift) ((words)((values)(x) << shift) >> shift)
DEFINE_BY_2_INTEGER(_u8_s16, uint8_t, uint16_t, uint16_t, LOW_UNSIGNED, 8)
DEFINE_BY_2_INTEGER(_i8_s16, int8_t, uint16_t, int16_t, LOW_SIGNED, 8)
DEFINE_BY_2_INTEGER(_u16_s32, uint16_t, uint32_t, uint32_t, LOW_UNSIGNED, 16)
DEFINE_BY_2_INTEGER(_i16_s32, int16_t, uint32_t, int32_t, LOW_SIGNED, 16)
#define FASTPOOL_INTEGERS_BY_2 1
#endif
#endif

/* No fast way: the row goes by way of the scratch row. */
#define NOT_BY_2(even, odd, from, tap_stride, taps, n, pairs) 0
#if !FASTPOOL_SHUFFLES
#define by_2_f32_sf32 NOT_BY_2
#define by_2_f64_sf64 NOT_BY_2
#endif
#ifndef FASTPOOL_INTEGERS_BY_2
#define by_2_u8_s16 NOT_BY_2
#define by_2_i8_s16 NOT_BY_2
#define by_2_u16_s32 NOT_BY_2
#define by_2_i16_s32 NOT_BY_2
#endif

/* Rows, or sums of `taps` rows each: at stride 1 straight to where they belong, otherwise by way of the scratch row,
 * unless BY_2 can do it. */
#define DEFINE_LOAD(name, type, lane, per, lanes_suffix, CONVERT, BY_2, ...)                                            \
    static void name(void *lanes, int64_t pitch, int64_t row_pitch, const void *input, int64_t row_stride, int64_t rows, \
                     int64_t taps, int64_t tap_stride, void *scratch, const fastpool_row *plan, int64_t flip,           \
                     int64_t lowest, int64_t ahead) {                                                                   \
        const int64_t first = plan->first, n = plan->beyond - first;                                                    \
        const int64_t low = plan->low, high = plan->high;                                                               \
        const int plain = plan->stride == 1 && plan->phases == 1, by_2 = plan->stride == 2 && high > low;               \
        fastpool_row shifted = *plan;                                                                                   \
        (void)flip, (void)lowest;                                                                                       \
        shifted.start -= first;                                                                                         \
        for (int64_t r = 0; r < rows; r++) {                                                                            \
            const type *row = (const type *)input + r * row_stride, *from = row + first;                                \
            lane *to = (lane *)lanes + r * row_pitch * per;                                                             \
            lane *sum = plain ? to + plan->inside[0] * per : (lane *)scratch;                                           \
            if (ahead) {                                                                                                \
                fastpool_prefetch_taps((const char *)row, row_stride * (int64_t)sizeof(type),                           \
                                       tap_stride * (int64_t)sizeof(type), taps, plan, sizeof(type), ahead);            \
            }                                                                                                           \
            if (plan->pairs) {                                                                                          \
                const int done = BY_2(to + low, to + low, row + plan->start + 2 * low, tap_stride, taps, high - low, 1); \
                for (int64_t q = 0; q < plan->count; q++) {                                                             \
                    lane total = 0;                                                                                     \
                    if (done && q == low) q = high;                                                                     \
                    if (q == plan->count) break;                                                                        \
                    for (int64_t e = plan->start + 2 * q; e < plan->start + 2 * q + 2; e++) {                           \
                        if (e < first || e >= plan->beyond) continue;                                                   \
                        lane column = (lane)CONVERT(row[e]);                                                            \
                        for (int64_t t = 1; t < taps; t++) column += (lane)CONVERT(row[e + t * tap_stride]);            \
                        total += column;                                                                                \
                    }                                                                                                   \
                    to[q] = total;                                                                                      \
                }                                                                                                       \
                continue;                                                                                               \
            }                                                                                                           \
            if (by_2 && BY_2(to + low, to + pitch + low, row + plan->start + 2 * low, tap_stride, taps, high - low, 0)) { \
                for (int p = 0; p < 2; p++) {                                                                           \
                    lane *run = to + p * pitch;                                                                         \
                    for (int64_t q = 0; q < plan->count; q++) {                                                         \
                        if (q == low) q = high; /* done */                                                              \
                        if (q == plan->count) break;                                                                    \
                        const type *x = row + plan->start + plan->residue[p] + 2 * q;                                   \
                        lane total = 0;                                                                                 \
                        if (q >= plan->inside[p] && q < plan->outside[p]) {                                             \
                            total = (lane)CONVERT(x[0]);                                                                \
                            for (int64_t t = 1; t < taps; t++) total += (lane)CONVERT(x[t * tap_stride]);               \
                        }                                                                                               \
                        run[q] = total;                                                                                 \
                    }                                                                                                   \
                }                                                                                                       \
                continue;                                                                                               \
            }                                                                                                           \
            __VA_ARGS__                                                                                                 \
            if (plain) {                                                                                                \
                for (int64_t q = 0; q < plan->inside[0] * per; q++) to[q] = 0;                                          \
                for (int64_t q = plan->outside[0] * per; q < plan->count * per; q++) to[q] = 0;                         \
            } else {                                                                                                    \
                split_row##lanes_suffix(to, pitch, scratch, &shifted);                                                  \
            }                                                                                                           \
        }                                                                                                               \
    }

#define AS_IT_IS(x) (x)
#define AS_U16(x) ((uint16_t)(x))
#define AS_U32(x) ((uint32_t)(x))
#define AS_U64(x) ((uint64_t)(x))
#define AS_DOUBLE(x) ((double)(x))
#define HALF_AS_DOUBLE(x) ((double)fastpool_from_float16(x))
#define BRAIN_AS_DOUBLE(x) ((double)fastpool_from_bfloat16(x))

#define LOAD(stored, type, lanes_name, lane, CONVERT, BY_2)                                                             \
    DEFINE_VECTOR_ADD(stored##lanes_name, type, lane, CONVERT, VECTOR_ITSELF)                                           \
    DEFINE_LOAD(load##stored##lanes_name, type, lane, 1, lanes_name, CONVERT, BY_2,                                     \
                add_taps##stored##lanes_name(sum, from, tap_stride, taps, n);)
#define LOAD_HALF(stored, CONVERT)                                                                                      \
    DEFINE_SCALAR_ADD(stored##_sf32, uint16_t, float, CONVERT)                                                          \
    DEFINE_LOAD(load##stored##_sf32, uint16_t, float, 1, _sf32, CONVERT, NOT_BY_2,                                      \
                add_taps##stored##_sf32(sum, from, tap_stride, taps, n);)

/* with powers: lanes are double */
#define LOAD_BY_POWER(stored, type, CONVERT)                                                                            \
    DEFINE_LOAD(load##stored##_sf64, type, double, 1, _sf64, CONVERT, NOT_BY_2, {                                                        \
        if (flip == FASTPOOL_SQUARE) add_taps_square##stored(sum, from, tap_stride, taps, n);                           \
        else if (flip == FASTPOOL_ABSOLUTE) add_taps_magnitude##stored(sum, from, tap_stride, taps, n);                 \
        else add_taps_itself##stored(sum, from, tap_stride, taps, n);                                                   \
    })
#define LOAD_POWERS(stored, type)                                                                                       \
    DEFINE_VECTOR_ADD(_itself##stored, type, double, AS_DOUBLE, VECTOR_ITSELF)                                          \
    DEFINE_VECTOR_ADD(_magnitude##stored, type, double, MAGNITUDE_DOUBLE, VECTOR_MAGNITUDE)                             \
    DEFINE_VECTOR_ADD(_square##stored, type, double, SQUARE_DOUBLE, VECTOR_SQUARE)                                      \
    LOAD_BY_POWER(stored, type, AS_DOUBLE)
#define LOAD_HALF_POWERS(stored, CONVERT, MAGNITUDE, SQUARE)                                                            \
    DEFINE_SCALAR_ADD(_itself##stored, uint16_t, double, CONVERT)                                                       \
    DEFINE_SCALAR_ADD(_magnitude##stored, uint16_t, double, MAGNITUDE)                                                  \
    DEFINE_SCALAR_ADD(_square##stored, uint16_t, double, SQUARE)                                                        \
    LOAD_BY_POWER(stored, uint16_t, CONVERT)

#define MAGNITUDE_DOUBLE(x) fabs((double)(x))
#define MAGNITUDE_HALF(x) fabs(HALF_AS_DOUBLE(x))
#define MAGNITUDE_BRAIN(x) fabs(BRAIN_AS_DOUBLE(x))
#define SQUARE_DOUBLE(x) ((double)(x) * (double)(x))
#define SQUARE_HALF(x) (HALF_AS_DOUBLE(x) * HALF_AS_DOUBLE(x))
#define SQUARE_BRAIN(x) (BRAIN_AS_DOUBLE(x) * BRAIN_AS_DOUBLE(x))

LOAD(_f32, float, _sf32, float, AS_IT_IS, by_2_f32_sf32)
LOAD_HALF(_f16, fastpool_from_float16)
LOAD_HALF(_bf16, fastpool_from_bfloat16)
LOAD_HALF_POWERS(_f16, HALF_AS_DOUBLE, MAGNITUDE_HALF, SQUARE_HALF)
LOAD_HALF_POWERS(_bf16, BRAIN_AS_DOUBLE, MAGNITUDE_BRAIN, SQUARE_BRAIN)
LOAD_POWERS(_f32, float)
LOAD_POWERS(_f64, double)
LOAD_POWERS(_u8, uint8_t)
LOAD_POWERS(_i8, int8_t)
LOAD_POWERS(_u16, uint16_t)
LOAD_POWERS(_i16, int16_t)
LOAD_POWERS(_u32, uint32_t)
LOAD_POWERS(_i32, int32_t)
LOAD_POWERS(_u64, uint64_t)
LOAD_POWERS(_i64, int64_t)
LOAD(_u8, uint8_t, _s16, uint16_t, AS_U16, by_2_u8_s16)
LOAD(_i8, int8_t, _s16, uint16_t, AS_U16, by_2_i8_s16)
LOAD(_u8, uint8_t, _s32, uint32_t, AS_U32, NOT_BY_2)
LOAD(_i8, int8_t, _s32, uint32_t, AS_U32, NOT_BY_2)
LOAD(_u16, uint16_t, _s32, uint32_t, AS_U32, by_2_u16_s32)
LOAD(_i16, int16_t, _s32, uint32_t, AS_U32, by_2_i16_s32)
LOAD(_u8, uint8_t, _s64, uint64_t, AS_U64, NOT_BY_2)
LOAD(_i8, int8_t, _s64, uint64_t, AS_U64, NOT_BY_2)
LOAD(_u16, uint16_t, _s64, uint64_t, AS_U64, NOT_BY_2)
LOAD(_i16, int16_t, _s64, uint64_t, AS_U64, NOT_BY_2)
LOAD(_u32, uint32_t, _s64, uint64_t, AS_U64, NOT_BY_2)
LOAD(_i32, int32_t, _s64, uint64_t, AS_U64, NOT_BY_2)
LOAD(_u64, uint64_t, _s64, uint64_t, AS_U64, NOT_BY_2)
LOAD(_i64, int64_t, _s64, uint64_t, AS_U64, NOT_BY_2)

/* 64-bit integers as their low and their (signed) high half */
#define DEFINE_PAIR(stored, type, HIGH)                                                          \
    DEFINE_LOAD(load##stored##_pair, type, uint64_t, 2, _pair, AS_U64, NOT_BY_2, {                              \
        for (int64_t i = 0; i < n; i++) {                                                        \
            uint64_t low = 0, high = 0;                                                          \
            for (int64_t t = 0; t < taps; t++) {                                                 \
                const type x = from[t * tap_stride + i];                                         \
                low += (uint64_t)x & 0xffffffffu;                                                \
                high += HIGH(x);                                                                 \
            }                                                                                    \
            sum[2 * i] = low, sum[2 * i + 1] = high;                                             \
        }                                                                                        \
    })
#define HIGH_SIGNED(x) ((uint64_t)((x) >> 32))
#define HIGH_UNSIGNED(x) ((x) >> 32)
DEFINE_PAIR(_u64, uint64_t, HIGH_UNSIGNED)
DEFINE_PAIR(_i64, int64_t, HIGH_SIGNED)

/* Elements that are lanes already are split as they are, where no rows are added up. */
DEFINE_LOAD(load_f64_plain, double, double, 1, _sf64, AS_IT_IS, by_2_f64_sf64, add_taps_itself_f64(sum, from, tap_stride, taps, n);)

static void load_f32_as_it_is(void *lanes, int64_t pitch, int64_t row_pitch, const void *input, int64_t row_stride,
                              int64_t rows, int64_t taps, int64_t tap_stride, void *scratch, const fastpool_row *plan,
                              int64_t flip, int64_t lowest, int64_t ahead) {
    const fastpool_load load = taps == 1 && !plan->pairs ? load_32_32 : load_f32_sf32;
    load(lanes, pitch, row_pitch, input, row_stride, rows, taps, tap_stride, scratch, plan, 0, lowest, ahead);
    (void)flip;
}
static void load_f64_as_it_is(void *lanes, int64_t pitch, int64_t row_pitch, const void *input, int64_t row_stride,
                              int64_t rows, int64_t taps, int64_t tap_stride, void *scratch, const fastpool_row *plan,
                              int64_t flip, int64_t lowest, int64_t ahead) {
    const int plain = flip != FASTPOOL_SQUARE && flip != FASTPOOL_ABSOLUTE;
    const fastpool_load load = !plain ? load_f64_sf64 : taps == 1 && !plan->pairs ? load_64_64 : load_f64_plain;
    load(lanes, pitch, row_pitch, input, row_stride, rows, taps, tap_stride, scratch, plan, plain ? 0 : flip, lowest,
         ahead);
}

/* ---- powers and roots ---- */

/* The root of a sum of powers; of a negative one there is none, unless p is 1. */
FASTPOOL_INLINE double fastpool_root(double x, double p) {
    if (p == 1) return x;
    if (p == 2) return sqrt(x);
    if (p == 3) return x < 0 ? (double)NAN : cbrt(x);
    if (p == 4) return sqrt(sqrt(x));
    if (p == 0.5) return x < 0 ? (double)NAN : x * x;
    return pow(x, 1 / p);
}

/* The common powers without the library's, which takes an element at a time. */
static void power_sf64(void *lanes, int64_t n, int64_t flip, double p) {
    double *v = lanes;
    if (flip == FASTPOOL_ABSOLUTE_POWER) {
        for (int64_t i = 0; i < n; i++) v[i] = fabs(v[i]);
    } else if (flip != FASTPOOL_SIGNED_POWER) {
        return;
    }
    if (p == 1) return;
    if (p == 3) {
        for (int64_t i = 0; i < n; i++) v[i] = v[i] * v[i] * v[i];
    } else if (p == 4) {
        for (int64_t i = 0; i < n; i++) v[i] = (v[i] * v[i]) * (v[i] * v[i]);
    } else if (p == 0.5) {
        for (int64_t i = 0; i < n; i++) v[i] = sqrt(v[i]);
    } else if (p == 1.5) {
        for (int64_t i = 0; i < n; i++) v[i] = v[i] * sqrt(v[i]);
    } else {
        for (int64_t i = 0; i < n; i++) v[i] = pow(v[i], p);
    }
}

/* ---- sums to results ---- */

/* Multiplying by the inverse of a power of two is as exact as dividing. */
FASTPOOL_INLINE int fastpool_has_exact_inverse(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int exponent = (int)(bits >> 52);  /* of a positive number */
    return (bits & 0xfffffffffffff) == 0 && exponent > 1023 - 60 && exponent < 1023 + 60;
}

#define FLOAT_RESULT(x) ((float)(x))
#define DOUBLE_RESULT(x) ((double)(x))
#define HALF_RESULT(x) fastpool_to_float16((float)(x))
#define BRAIN_RESULT(x) fastpool_to_bfloat16((float)(x))

/* Sums of floats: divided by the number of taps, or their root taken. */
#define FINISH_FLOAT(lanes_name, lane, result, type, RESULT)                                                        \
    static void finish##lanes_name##result(void *y, const void *values, int64_t n, double divisor, const double *taps, \
                                           double power) {                                                          \
        type *FASTPOOL_RESTRICT out = y;                                                                            \
        const lane *FASTPOOL_RESTRICT v = values;                                                                   \
        if (power != 0) {                                                                                           \
            for (int64_t i = 0; i < n; i++) out[i] = RESULT(fastpool_root((double)v[i], power));                    \
        } else if (taps) {                                                                                          \
            for (int64_t i = 0; i < n; i++) out[i] = RESULT((lane)((double)v[i] / (divisor * taps[i])));            \
        } else if (fastpool_has_exact_inverse(divisor)) {                                                           \
            const lane inverse = (lane)(1 / divisor);                                                               \
            for (int64_t i = 0; i < n; i++) out[i] = RESULT(v[i] * inverse);                                        \
        } else if ((double)(lane)divisor == divisor) {                                                              \
            const lane by = (lane)divisor;                                                                          \
            for (int64_t i = 0; i < n; i++) out[i] = RESULT(v[i] / by);                                             \
        } else {                                                                                                    \
            for (int64_t i = 0; i < n; i++) out[i] = RESULT((lane)((double)v[i] / divisor));                        \
        }                                                                                                           \
    }
#define FINISH_FLOATS(lanes_name, lane)                                  \
    FINISH_FLOAT(lanes_name, lane, _f16, uint16_t, HALF_RESULT)          \
    FINISH_FLOAT(lanes_name, lane, _bf16, uint16_t, BRAIN_RESULT)        \
    FINISH_FLOAT(lanes_name, lane, _f32, float, FLOAT_RESULT)            \
    FINISH_FLOAT(lanes_name, lane, _f64, double, DOUBLE_RESULT)
FINISH_FLOATS(_sf32, float)
FINISH_FLOATS(_sf64, double)

#if FASTPOOL_VECTORS
/* The commonest: lanes are results, and all are divided by one number. Rows are short, so no loop is left for their end. */
#define FINISH_SAME(lanes_name, lane, result)                                                                       \
    static void finish_same##lanes_name(void *y, const void *values, int64_t n, double divisor, const double *taps, \
                                        double power) {                                                             \
        enum { width = FASTPOOL_VECTOR_BYTES / sizeof(lane) };                                                      \
        typedef lane vector __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), aligned(sizeof(lane)), may_alias));  \
        const lane by = (lane)divisor;                                                                              \
        lane *out = y;                                                                                              \
        const lane *v = values;                                                                                     \
        if (n < width || taps || power != 0 || (double)by != divisor) {                                             \
            finish##lanes_name##result(y, values, n, divisor, taps, power);                                         \
        } else if (fastpool_has_exact_inverse(divisor)) {                                                           \
            const lane inverse = (lane)(1 / divisor);                                                               \
            for (int64_t i = 0; i < n; i += width) {                                                                \
                if (i + width > n) i = n - width;                                                                   \
                *(vector *)(out + i) = *(const vector *)(v + i) * inverse;                                          \
            }                                                                                                       \
        } else {                                                                                                    \
            for (int64_t i = 0; i < n; i += width) {                                                                \
                if (i + width > n) i = n - width;                                                                   \
                *(vector *)(out + i) = *(const vector *)(v + i) / by;                                               \
            }                                                                                                       \
        }                                                                                                           \
    }
FINISH_SAME(_sf32, float, _f32)
FINISH_SAME(_sf64, double, _f64)
#else
#define finish_same_sf32 finish_sf32_f32
#define finish_same_sf64 finish_sf64_f64
#endif

/* Adding and subtracting this rounds what is small enough to an integer, half to even, on any machine. */
#define FASTPOOL_ROUND_32(x) (((x) + 12582912.0f) - 12582912.0f)
#define FASTPOOL_ROUND_64(x) (((x) + 6755399441055744.0) - 6755399441055744.0)

/* Integer sums of up to 32 bits: their quotients by a number of taps are exact enough in `real` to be rounded right. */
#define FINISH_SMALL(lanes_name, lane, signed_lane, real, ROUND, result, type, RESULT, FROM_ROUNDED)                 \
    static void finish##lanes_name##result(void *y, const void *values, int64_t n, double divisor, const double *taps, \
                                           double power) {                                                          \
        type *FASTPOOL_RESTRICT out = y;                                                                            \
        const signed_lane *FASTPOOL_RESTRICT v = values;                                                            \
        const real by = (real)divisor, inverse = (real)(1 / divisor);                                               \
        (void)power;                                                                                                \
        if (taps) {                                                                                                 \
            for (int64_t i = 0; i < n; i++) out[i] = FROM_ROUNDED(ROUND((real)v[i] / (real)(divisor * taps[i])));   \
        } else if (divisor == 1) {                                                                                  \
            for (int64_t i = 0; i < n; i++) out[i] = RESULT(v[i]);                                                  \
        } else if (fastpool_has_exact_inverse(divisor)) {                                                           \
            for (int64_t i = 0; i < n; i++) out[i] = FROM_ROUNDED(ROUND((real)v[i] * inverse));                     \
        } else {                                                                                                    \
            for (int64_t i = 0; i < n; i++) out[i] = FROM_ROUNDED(ROUND((real)v[i] / by));                          \
        }                                                                                                           \
    }
#define NOT_ROUNDED(x) (x)
#define SMALL(lanes_name, lane, signed_lane, real, ROUND, whole)                                                    \
    FINISH_SMALL(lanes_name, lane, signed_lane, double, NOT_ROUNDED, _f16, uint16_t, HALF_RESULT, HALF_RESULT)      \
    FINISH_SMALL(lanes_name, lane, signed_lane, double, NOT_ROUNDED, _bf16, uint16_t, BRAIN_RESULT, BRAIN_RESULT)   \
    FINISH_SMALL(lanes_name, lane, signed_lane, double, NOT_ROUNDED, _f32, float, FLOAT_RESULT, FLOAT_RESULT)       \
    FINISH_SMALL(lanes_name, lane, signed_lane, double, NOT_ROUNDED, _f64, double, DOUBLE_RESULT, DOUBLE_RESULT)    \
    FINISH_SMALL(lanes_name, lane, signed_lane, real, ROUND, _u8, uint8_t, (uint8_t), (uint8_t)(whole))             \
    FINISH_SMALL(lanes_name, lane, signed_lane, real, ROUND, _i8, int8_t, (int8_t), (int8_t)(whole))                \
    FINISH_SMALL(lanes_name, lane, signed_lane, real, ROUND, _u16, uint16_t, (uint16_t), (uint16_t)(whole))         \
    FINISH_SMALL(lanes_name, lane, signed_lane, real, ROUND, _i16, int16_t, (int16_t), (int16_t)(whole))            \
    FINISH_SMALL(lanes_name, lane, signed_lane, real, ROUND, _u32, uint32_t, (uint32_t), (uint32_t)(whole))         \
    FINISH_SMALL(lanes_name, lane, signed_lane, real, ROUND, _i32, int32_t, (int32_t), (int32_t)(whole))            \
    FINISH_SMALL(lanes_name, lane, signed_lane, real, ROUND, _u64, uint64_t, (uint64_t), (uint64_t)(int64_t)(whole)) \
    FINISH_SMALL(lanes_name, lane, signed_lane, real, ROUND, _i64, int64_t, (int64_t), (int64_t)(whole))
SMALL(_s16, uint16_t, int16_t, float, FASTPOOL_ROUND_32, int32_t)

#if FASTPOOL_SHUFFLES
/* Means of bytes over 2, 4, ... 128 taps, as of 2x2 blocks of an image: half of the divisor is added, less what makes a
 * tie even, and the sum shifted. */
#define FINISH_BYTES(result, type)                                                                                      \
    static void finish_bytes##result(void *y, const void *values, int64_t n, double divisor, const double *taps,        \
                                     double power) {                                                                    \
        enum { width = FASTPOOL_VECTOR_BYTES / 2 };                                                                     \
        typedef int16_t sums __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), aligned(2), may_alias));                \
        typedef type bytes __attribute__((vector_size(width), aligned(1), may_alias));                                  \
        if (taps || n < width || divisor < 2 || divisor > 128 || !fastpool_has_exact_inverse(divisor)) {                \
            finish_s16##result(y, values, n, divisor, taps, power);                                                     \
            return;                                                                                                     \
        }                                                                                                               \
        type *out = y;                                                                                                  \
        const int16_t *v = values;                                                                                      \
        const int16_t half = (int16_t)((int)divisor / 2 - 1);                                                           \
        int shift = 1;                                                                                                  \
        while (1 << shift < (int)divisor) shift++;                                                                      \
        for (int64_t i = 0; i < n; i += width) {                                                                        \
            if (i + width > n) i = n - width;                                                                           \
            const sums x = *(const sums *)(v + i);                                                                      \
            *(bytes *)(out + i) = __builtin_convertvector((x + half + ((x >> shift) & 1)) >> shift, bytes);             \
        }                                                                                                               \
    }
FINISH_BYTES(_u8, uint8_t)
FINISH_BYTES(_i8, int8_t)
#else
#define finish_bytes_u8 finish_s16_u8
#define finish_bytes_i8 finish_s16_i8
#endif
SMALL(_s32, uint32_t, int32_t, double, FASTPOOL_ROUND_64, int64_t)

/* Wider sums need integer division. Where the compiler has no integer of 128 bits, sums beyond 2^53 are rounded first. */
#ifdef __SIZEOF_INT128__
typedef __int128 fastpool_wide;
#define FASTPOOL_JOIN(low, high) ((fastpool_wide)(int64_t)(high) * 4294967296 + (fastpool_wide)(low))
FASTPOOL_INLINE uint64_t fastpool_divide(fastpool_wide sum, double divisor) {
    const fastpool_wide by = (fastpool_wide)divisor;
    fastpool_wide quotient = sum / by, rest = sum % by;
    if (rest < 0) quotient--, rest += by;
    if (2 * rest > by || (2 * rest == by && (quotient & 1))) quotient++;
    return (uint64_t)quotient;
}
#else
typedef double fastpool_wide;
#define FASTPOOL_JOIN(low, high) ((double)(int64_t)(high) * 4294967296.0 + (double)(low))
FASTPOOL_INLINE uint64_t fastpool_divide(fastpool_wide sum, double divisor) {
    const double quotient = sum / divisor;
    const double whole = fabs(quotient) < 4503599627370496.0 ? FASTPOOL_ROUND_64(quotient) : quotient;
    return whole < 0 ? (uint64_t)(int64_t)whole : (uint64_t)whole;
}
#endif

#define SUM_S64(i) ((int64_t)v[i])
#define SUM_PAIR(i) FASTPOOL_JOIN(v[2 * (i)], v[2 * (i) + 1])
/* modulo 2^64 */
#define WRAPPED_S64(i) (v[i])
#define WRAPPED_PAIR(i) (v[2 * (i)] + (v[2 * (i) + 1] << 32))

#define FINISH_WIDE_FLOAT(lanes_name, SUM, result, type, RESULT)                                                    \
    static void finish##lanes_name##result(void *y, const void *values, int64_t n, double divisor, const double *taps, \
                                           double power) {                                                          \
        type *FASTPOOL_RESTRICT out = y;                                                                            \
        const uint64_t *FASTPOOL_RESTRICT v = values;                                                               \
        (void)power;                                                                                                \
        for (int64_t i = 0; i < n; i++) out[i] = RESULT((double)SUM(i) / (taps ? divisor * taps[i] : divisor));     \
    }
#define FINISH_WIDE_INTEGER(lanes_name, SUM, WRAPPED, result, type)                                                 \
    static void finish##lanes_name##result(void *y, const void *values, int64_t n, double divisor, const double *taps, \
                                           double power) {                                                          \
        type *FASTPOOL_RESTRICT out = y;                                                                            \
        const uint64_t *FASTPOOL_RESTRICT v = values;                                                               \
        (void)power;                                                                                                \
        if (!taps && divisor == 1) {                                                                                \
            for (int64_t i = 0; i < n; i++) out[i] = (type)WRAPPED(i);                                              \
        } else {                                                                                                    \
            for (int64_t i = 0; i < n; i++) {                                                                       \
                out[i] = (type)fastpool_divide((fastpool_wide)SUM(i), taps ? divisor * taps[i] : divisor);          \
            }                                                                                                       \
        }                                                                                                           \
    }
#define WIDE(lanes_name, SUM, WRAPPED)                                    \
    FINISH_WIDE_FLOAT(lanes_name, SUM, _f16, uint16_t, HALF_RESULT)       \
    FINISH_WIDE_FLOAT(lanes_name, SUM, _bf16, uint16_t, BRAIN_RESULT)     \
    FINISH_WIDE_FLOAT(lanes_name, SUM, _f32, float, FLOAT_RESULT)         \
    FINISH_WIDE_FLOAT(lanes_name, SUM, _f64, double, DOUBLE_RESULT)       \
    FINISH_WIDE_INTEGER(lanes_name, SUM, WRAPPED, _u8, uint8_t)           \
    FINISH_WIDE_INTEGER(lanes_name, SUM, WRAPPED, _i8, int8_t)            \
    FINISH_WIDE_INTEGER(lanes_name, SUM, WRAPPED, _u16, uint16_t)         \
    FINISH_WIDE_INTEGER(lanes_name, SUM, WRAPPED, _i16, int16_t)          \
    FINISH_WIDE_INTEGER(lanes_name, SUM, WRAPPED, _u32, uint32_t)         \
    FINISH_WIDE_INTEGER(lanes_name, SUM, WRAPPED, _i32, int32_t)          \
    FINISH_WIDE_INTEGER(lanes_name, SUM, WRAPPED, _u64, uint64_t)         \
    FINISH_WIDE_INTEGER(lanes_name, SUM, WRAPPED, _i64, int64_t)
WIDE(_s64, SUM_S64, WRAPPED_S64)
WIDE(_pair, SUM_PAIR, WRAPPED_PAIR)

/* ---- the choice ---- */

static const int fastpool_element_bytes[] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};

#define FINISHES(lanes_name)                                                                                       \
    {finish##lanes_name##_u8,  finish##lanes_name##_i8,  finish##lanes_name##_u16, finish##lanes_name##_i16,       \
     finish##lanes_name##_u32, finish##lanes_name##_i32, finish##lanes_name##_u64, finish##lanes_name##_i64,       \
     finish##lanes_name##_f16, finish##lanes_name##_bf16, finish##lanes_name##_f32, finish##lanes_name##_f64}
#define FLOAT_FINISHES(lanes_name)                                                                                 \
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,                                                               \
     finish##lanes_name##_f16, finish##lanes_name##_bf16, finish##lanes_name##_f32, finish##lanes_name##_f64}

typedef void (*fastpool_finish)(void *, const void *, int64_t, double, const double *, double);

/* The primitives for sums of `stored` elements in lanes of a type, with results of a type; -1 where there are none. */
static int fastpool_choose_sum_lanes(fastpool_lanes *lanes, int stored, int lane, int result) {
    static const fastpool_finish finishes[6][12] = {FINISHES(_s16),  FINISHES(_s32),        FINISHES(_s64),
                                                    FINISHES(_pair), FLOAT_FINISHES(_sf32), FLOAT_FINISHES(_sf64)};
    static const fastpool_load loads[6][12] = {
        {load_u8_s16, load_i8_s16},
        {load_u8_s32, load_i8_s32, load_u16_s32, load_i16_s32},
        {load_u8_s64, load_i8_s64, load_u16_s64, load_i16_s64, load_u32_s64, load_i32_s64, load_u64_s64, load_i64_s64},
        {NULL, NULL, NULL, NULL, NULL, NULL, load_u64_pair, load_i64_pair},
        {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, load_f16_sf32, load_bf16_sf32, load_f32_as_it_is},
        {load_u8_sf64, load_i8_sf64, load_u16_sf64, load_i16_sf64, load_u32_sf64, load_i32_sf64, load_u64_sf64,
         load_i64_sf64, load_f16_sf64, load_bf16_sf64, load_f32_sf64, load_f64_as_it_is},
    };
    static const int lane_bytes[] = {2, 4, 8, 16, 4, 8};
    if (stored < 0 || stored >= 12 || lane < 0 || lane >= 6 || result < 0 || result >= 12) return -1;
    lanes->load = loads[lane][stored];
    lanes->finish = finishes[lane][result];
    if (lane == FASTPOOL_SUM_F32 && result == FASTPOOL_F32) lanes->finish = finish_same_sf32;
    if (lane == FASTPOOL_SUM_F64 && result == FASTPOOL_F64) lanes->finish = finish_same_sf64;
    if (lane == FASTPOOL_SUM_S16 && result == FASTPOOL_U8) lanes->finish = finish_bytes_u8;
    if (lane == FASTPOOL_SUM_S16 && result == FASTPOOL_I8) lanes->finish = finish_bytes_i8;
    if (!lanes->load || !lanes->finish) return -1;
    lanes->stored_bytes = fastpool_element_bytes[stored];
    lanes->result_bytes = fastpool_element_bytes[result];
    lanes->lane_bytes = lane_bytes[lane];
    lanes->lowest = 0;
    lanes->power = power_sf64;
#define SUM_LANES(suffix)                \
    lanes->fill = fill##suffix;          \
    lanes->reduce = reduce##suffix;      \
    lanes->windows = windows##suffix;    \
    lanes->weave = weave##suffix;        \
    lanes->scan = scan##suffix;          \
    lanes->put = put##suffix;
    switch (lane) {
    case FASTPOOL_SUM_S16: SUM_LANES(_s16) break;
    case FASTPOOL_SUM_S32: SUM_LANES(_s32) break;
    case FASTPOOL_SUM_S64: SUM_LANES(_s64) break;
    case FASTPOOL_SUM_PAIR: SUM_LANES(_pair) break;
    case FASTPOOL_SUM_F32: SUM_LANES(_sf32) break;
    default: SUM_LANES(_sf64) break;
    }
#undef SUM_LANES
    return 0;
}
#endif
