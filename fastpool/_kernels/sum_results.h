/* Sums to results: divided by the number of taps, or their root taken, and converted. Part of sum_lanes.h. */
#ifndef FASTPOOL_SUM_RESULTS_H
#define FASTPOOL_SUM_RESULTS_H

/* The root of a sum of powers; of a negative one there is none, unless p is 1. */
FASTPOOL_INLINE double fastpool_root(double x, double p) {
    if (p == 1) return x;
    if (p == 2) return sqrt(x);
    if (p == 3) return x < 0 ? (double)NAN : cbrt(x);
    if (p == 4) return sqrt(sqrt(x));
    if (p == 0.5) return x < 0 ? (double)NAN : x * x;
    return pow(x, 1 / p);
}

/* Multiplying by the inverse of a power of two is as exact as dividing. */
FASTPOOL_INLINE int fastpool_has_exact_inverse(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int exponent = (int)(bits >> 52);  /* of a positive number */
    return (bits & 0xfffffffffffff) == 0 && exponent > 1023 - 60 && exponent < 1023 + 60;
}

/* A float that a half float can be rounded from as if from the double: what is cut off shows in the last bit. */
FASTPOOL_INLINE float fastpool_to_odd(double x) {
    const float nearest = (float)x;
    if ((double)nearest == x || x != x) return nearest;
    uint32_t bits = fastpool_float_to_bits(nearest);
    if (fabs((double)nearest) > fabs(x)) bits--;
    return fastpool_bits_to_float(bits | 1);
}

#define FLOAT_RESULT(x) ((float)(x))
#define DOUBLE_RESULT(x) ((double)(x))
#define HALF_RESULT(x) fastpool_to_float16(fastpool_to_odd((double)(x)))
#define BRAIN_RESULT(x) fastpool_to_bfloat16(fastpool_to_odd((double)(x)))

/* From here on: one row, and by FINISH_ROWS the primitive that takes several. */
#define FINISH_ROWS(suffix)                                                                                         \
    static void finish##suffix(void *y, int64_t y_pitch, const void *values, int64_t pitch, int64_t rows, int64_t n, \
                               int64_t flip, double divisor, const double *taps, double power) {                    \
        (void)flip;                                                                                                 \
        for (int64_t r = 0; r < rows; r++) {                                                                        \
            finish_row##suffix((char *)y + r * y_pitch, (const char *)values + r * pitch, n, divisor, taps, power); \
        }                                                                                                           \
    }

/* Sums of floats: divided by the number of taps, or their root taken. */
#define FINISH_FLOAT(lanes_name, lane, result, type, RESULT)                                                        \
    FASTPOOL_INLINE void finish_row##lanes_name##result(void *y, const void *values, int64_t n, double divisor,     \
                                                        const double *taps, double power) {                         \
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
    }                                                                                                               \
    FINISH_ROWS(lanes_name##result)
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
    FASTPOOL_INLINE void finish_row_same##lanes_name(void *y, const void *values, int64_t n, double divisor,        \
                                                     const double *taps, double power) {                            \
        enum { width = FASTPOOL_VECTOR_BYTES / sizeof(lane) };                                                      \
        typedef lane vector __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), aligned(sizeof(lane)), may_alias));  \
        const lane by = (lane)divisor;                                                                              \
        lane *out = y;                                                                                              \
        const lane *v = values;                                                                                     \
        if (n < width || taps || power != 0 || (double)by != divisor) {                                             \
            finish_row##lanes_name##result(y, values, n, divisor, taps, power);                                     \
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
    }                                                                                                               \
    FINISH_ROWS(_same##lanes_name)
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
    FASTPOOL_INLINE void finish_row##lanes_name##result(void *y, const void *values, int64_t n, double divisor,     \
                                                        const double *taps, double power) {                         \
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
    }                                                                                                               \
    FINISH_ROWS(lanes_name##result)
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
    FASTPOOL_INLINE void finish_row_bytes##result(void *y, const void *values, int64_t n, double divisor,           \
                                                  const double *taps, double power) {                               \
        enum { width = FASTPOOL_VECTOR_BYTES / 2 };                                                                     \
        typedef int16_t sums __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), aligned(2), may_alias));                \
        typedef type bytes __attribute__((vector_size(width), aligned(1), may_alias));                                  \
        if (taps || n < width || divisor < 2 || divisor > 128 || !fastpool_has_exact_inverse(divisor)) {                \
            finish_row_s16##result(y, values, n, divisor, taps, power);                                                 \
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
    }                                                                                                               \
    FINISH_ROWS(_bytes##result)
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
    FASTPOOL_INLINE void finish_row##lanes_name##result(void *y, const void *values, int64_t n, double divisor,     \
                                                        const double *taps, double power) {                         \
        type *FASTPOOL_RESTRICT out = y;                                                                            \
        const uint64_t *FASTPOOL_RESTRICT v = values;                                                               \
        (void)power;                                                                                                \
        for (int64_t i = 0; i < n; i++) out[i] = RESULT((double)SUM(i) / (taps ? divisor * taps[i] : divisor));     \
    }                                                                                                               \
    FINISH_ROWS(lanes_name##result)
#define FINISH_WIDE_INTEGER(lanes_name, SUM, WRAPPED, result, type)                                                 \
    FASTPOOL_INLINE void finish_row##lanes_name##result(void *y, const void *values, int64_t n, double divisor,     \
                                                        const double *taps, double power) {                         \
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
    }                                                                                                               \
    FINISH_ROWS(lanes_name##result)
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
#endif
