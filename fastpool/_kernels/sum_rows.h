/* Rows of elements to lanes: converted, raised to a power, added up over the taps of a folded level, split by stride.
 * Part of sum_lanes.h. */
#ifndef FASTPOOL_SUM_ROWS_H
#define FASTPOOL_SUM_ROWS_H

typedef void (*fastpool_load)(void *, int64_t, int64_t, const void *, int64_t, int64_t, int64_t, int64_t, void *,
                              const fastpool_row *, int64_t, int64_t, int64_t);

/* Taps of a row of sums that the rows before it have not read. */
FASTPOOL_INLINE int64_t fastpool_fresh_taps(int64_t row_stride, int64_t tap_stride, int64_t taps) {
    const int64_t fresh = tap_stride && row_stride ? row_stride / tap_stride : 1;
    return fresh < 1 ? 1 : fresh > taps ? taps : fresh;
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
/* The same with the sums of some vectors, `beside` elements apart, kept in registers; the last vector of a row overlaps the
 * one before. */
#define ADD_STEP(type, OPERATION, unroll)                                                                               \
    {                                                                                                                   \
        values total[4];                                                                                                \
        for (int u = 0; u < unroll; u++) {                                                                              \
            const values x = __builtin_convertvector(*(const elements *)(from + i + u * beside), values);               \
            total[u] = OPERATION(x);                                                                                    \
        }                                                                                                               \
        for (int64_t t = 1; t < taps; t++) {                                                                            \
            const type *row = from + t * tap_stride + i;                                                                \
            for (int u = 0; u < unroll; u++) {                                                                          \
                const values x = __builtin_convertvector(*(const elements *)(row + u * beside), values);                \
                total[u] += OPERATION(x);                                                                               \
            }                                                                                                           \
        }                                                                                                               \
        for (int u = 0; u < unroll; u++) *(values *)(sum + i + u * beside) = total[u];                                  \
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
        for (; i + 4 * width <= n; i += 4 * width) {                                                                    \
            const int64_t beside = width;                                                                               \
            ADD_STEP(type, OPERATION, 4)                                                                                \
        }                                                                                                               \
        for (; i + width < n; i += 2 * width) {                                                                         \
            const int64_t beside = i + 2 * width <= n ? width : n - width - i;                                          \
            ADD_STEP(type, OPERATION, 2)                                                                                \
        }                                                                                                               \
        if (i < n) {                                                                                                    \
            const int64_t beside = 0;                                                                                   \
            i = n - width;                                                                                              \
            ADD_STEP(type, OPERATION, 1)                                                                                \
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

/* Stride 2, which halves images and volumes: rows are added up and split into even and odd elements in one go; or, `joined`,
 * windows of 2 or 4 neighbours are added up too, and nothing else is left to do. */
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
                                     const int joined)

/* Floats are added first, then shuffled. */
#define DEFINE_BY_2_FLOAT(suffix, lane, LANES)                                                                          \
    static int join_4##suffix(lane *to, const lane *from, int64_t tap_stride, int64_t taps, int64_t n) {                \
        BY_2_START(lane, lane)                                                                                          \
        values part[4], pair[2];                                                                                        \
        row += 2 * i;                                                                                                   \
        for (int v = 0; v < 4; v++) part[v] = *(const values *)(row + v * width);                                       \
        for (int64_t t = 1; t < taps; t++) {                                                                            \
            row += tap_stride;                                                                                          \
            for (int v = 0; v < 4; v++) part[v] += *(const values *)(row + v * width);                                  \
        }                                                                                                               \
        for (int v = 0; v < 2; v++) {                                                                                   \
            pair[v] = __builtin_shufflevector(part[2 * v], part[2 * v + 1], FASTPOOL_PASTE(FASTPOOL_EVEN_, LANES)) +    \
                      __builtin_shufflevector(part[2 * v], part[2 * v + 1], FASTPOOL_PASTE(FASTPOOL_ODD_, LANES));      \
        }                                                                                                               \
        *(values *)(to + i) = __builtin_shufflevector(pair[0], pair[1], FASTPOOL_PASTE(FASTPOOL_EVEN_, LANES)) +        \
                              __builtin_shufflevector(pair[0], pair[1], FASTPOOL_PASTE(FASTPOOL_ODD_, LANES));          \
        BY_2_END                                                                                                        \
    }                                                                                                                   \
    BY_2_HEAD(suffix, lane, lane) {                                                                                     \
        if (joined == 4) return join_4##suffix(even, from, tap_stride, taps, n);                                        \
        BY_2_START(lane, lane)                                                                                          \
        values a = *(const values *)row, b = *(const values *)(row + width);                                            \
        for (int64_t t = 1; t < taps; t++) {                                                                            \
            row += tap_stride;                                                                                          \
            a += *(const values *)row, b += *(const values *)(row + width);                                             \
        }                                                                                                               \
        const values even_ones = __builtin_shufflevector(a, b, FASTPOOL_PASTE(FASTPOOL_EVEN_, LANES));                  \
        const values odd_ones = __builtin_shufflevector(a, b, FASTPOOL_PASTE(FASTPOOL_ODD_, LANES));                    \
        if (joined) {                                                                                                   \
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
        if (joined == 4) return 0;                                                                                      \
        BY_2_START(type, lane)                                                                                          \
        typedef word words __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), aligned(sizeof(type)), may_alias));       \
        words x = *(const words *)row;                                                                                  \
        values a = (values)LOW(x, shift), b = (values)(x >> shift);                                                     \
        for (int64_t t = 1; t < taps; t++) {                                                                            \
            row += tap_stride;                                                                                          \
            x = *(const words *)row;                                                                                    \
            a += (values)LOW(x, shift), b += (values)(x >> shift);                                                      \
        }                                                                                                               \
        if (joined) {                                                                                                   \
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
#define NOT_BY_2(even, odd, from, tap_stride, taps, n, joined) 0
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

#define PREFETCH_FRESH(type)                                                                                            \
    for (int64_t t = taps - fresh; t < taps; t++) {                                                                     \
        fastpool_prefetch((const char *)(from + t * tap_stride) + ahead, n * (int64_t)sizeof(type));                    \
    }

/* Rows, or sums of `taps` rows each: at stride 1 straight to where they belong, otherwise by way of the scratch row,
 * unless BY_2 can do it. */
#define DEFINE_LOAD(name, type, lane, per, lanes_suffix, CONVERT, BY_2, ...)                                            \
    static void name(void *lanes, int64_t pitch, int64_t row_pitch, const void *input, int64_t row_stride, int64_t rows, \
                     int64_t taps, int64_t tap_stride, void *scratch, const fastpool_row *plan, int64_t flip,           \
                     int64_t lowest, int64_t ahead) {                                                                   \
        const int64_t first = plan->first, n = plan->beyond - first;                                                    \
        const int64_t low = plan->low, high = plan->high;                                                               \
        const int by_2 = plan->stride == 2 && high > low;                                                               \
        const int64_t fresh = ahead ? fastpool_fresh_taps(row_stride, tap_stride, taps) : 0;                            \
        fastpool_row shifted = *plan;                                                                                   \
        (void)flip, (void)lowest;                                                                                       \
        shifted.start -= first;                                                                                         \
        if (plan->stride == 1 && plan->phases == 1) {                                                                   \
            const int64_t inside = plan->inside[0] * per, outside = plan->outside[0] * per, count = plan->count * per;  \
            const int filled = fastpool_is_padded_short(plan);                                                          \
            if (filled) memset(lanes, 0, (size_t)((rows - 1) * row_pitch * per + count) * sizeof(lane));                \
            for (int64_t r = 0; r < rows; r++) {                                                                        \
                const type *from = (const type *)input + r * row_stride + first;                                        \
                lane *to = (lane *)lanes + r * row_pitch * per, *sum = to + inside;                                     \
                PREFETCH_FRESH(type)                                                                                    \
                __VA_ARGS__                                                                                             \
                if (filled) continue;                                                                                   \
                for (int64_t q = 0; q < inside; q++) to[q] = 0;                                                         \
                for (int64_t q = outside; q < count; q++) to[q] = 0;                                                    \
            }                                                                                                           \
            return;                                                                                                     \
        }                                                                                                               \
        for (int64_t r = 0; r < rows; r++) {                                                                            \
            const type *row = (const type *)input + r * row_stride, *from = row + first;                                \
            lane *to = (lane *)lanes + r * row_pitch * per, *sum = scratch;                                             \
            PREFETCH_FRESH(type)                                                                                        \
            if (plan->joined) {                                                                                         \
                const int64_t k = plan->joined;                                                                         \
                const type *x = row + plan->start;                                                                      \
                const int done = BY_2(to + low, to + low, x + k * low, tap_stride, taps, high - low, (int)k);           \
                for (int64_t q = 0; q < plan->count; q++) {                                                             \
                    lane column[4] = {0};                                                                               \
                    if (done && q == low) q = high;                                                                     \
                    if (q == plan->count) break;                                                                        \
                    for (int64_t e = k * q; e < k * q + k; e++) {                                                       \
                        if (x + e < from || x + e >= row + plan->beyond) continue;                                      \
                        column[e - k * q] = (lane)CONVERT(x[e]);                                                        \
                        for (int64_t t = 1; t < taps; t++) column[e - k * q] += (lane)CONVERT(x[e + t * tap_stride]);   \
                    }                                                                                                   \
                    to[q] = column[0] + column[1];                                                                      \
                    if (k == 4) to[q] += column[2] + column[3];                                                         \
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
            split_row##lanes_suffix(to, pitch, scratch, &shifted);                                                      \
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
    const fastpool_load load = taps == 1 && !plan->joined ? load_32_32 : load_f32_sf32;
    load(lanes, pitch, row_pitch, input, row_stride, rows, taps, tap_stride, scratch, plan, 0, lowest, ahead);
    (void)flip;
}
static void load_f64_as_it_is(void *lanes, int64_t pitch, int64_t row_pitch, const void *input, int64_t row_stride,
                              int64_t rows, int64_t taps, int64_t tap_stride, void *scratch, const fastpool_row *plan,
                              int64_t flip, int64_t lowest, int64_t ahead) {
    const int plain = flip != FASTPOOL_SQUARE && flip != FASTPOOL_ABSOLUTE;
    const fastpool_load load = !plain ? load_f64_sf64 : taps == 1 && !plan->joined ? load_64_64 : load_f64_plain;
    load(lanes, pitch, row_pitch, input, row_stride, rows, taps, tap_stride, scratch, plan, plain ? 0 : flip, lowest,
         ahead);
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
#endif
