/* Rows of unfold.pyx: moved by the size of their elements, added by their type. */
#ifndef FASTPOOL_UNFOLD_ROWS_H
#define FASTPOOL_UNFOLD_ROWS_H

#include <stdint.h>
#include <string.h>

#include "half.h"

/* to[i] = from[i * stride] */
#define FASTPOOL_MOVE(NAME, TYPE)                                                                                      \
    static void fastpool_move_##NAME(void *to, const void *from, int64_t stride, int64_t n) {                          \
        TYPE *t = (TYPE *)to;                                                                                          \
        const TYPE *f = (const TYPE *)from;                                                                            \
        if (stride == 1) memcpy(t, f, (size_t)n * sizeof(TYPE));                                                       \
        else if (stride == 2) for (int64_t i = 0; i < n; i++) t[i] = f[i * 2];                                         \
        else for (int64_t i = 0; i < n; i++) t[i] = f[i * stride];                                                     \
    }

/* sums[i * stride] += row[i] */
#define FASTPOOL_ADD(NAME, SUM, STORED, WIDENED)                                                                       \
    static void fastpool_add_##NAME(void *sums, int64_t stride, const void *row, int64_t n) {                          \
        SUM *s = (SUM *)sums;                                                                                          \
        const STORED *r = (const STORED *)row;                                                                         \
        if (stride == 1) for (int64_t i = 0; i < n; i++) s[i] = (SUM)(s[i] + WIDENED(r[i]));                           \
        else for (int64_t i = 0; i < n; i++) s[i * stride] = (SUM)(s[i * stride] + WIDENED(r[i]));                     \
    }

/* result[i] = sums[i], rounded */
#define FASTPOOL_ROUND(NAME, ROUNDED)                                                                                  \
    static void fastpool_round_##NAME(void *result, const float *sums, int64_t n) {                                    \
        uint16_t *r = (uint16_t *)result;                                                                              \
        for (int64_t i = 0; i < n; i++) r[i] = ROUNDED(sums[i]);                                                       \
    }

FASTPOOL_MOVE(8, uint8_t)
FASTPOOL_MOVE(16, uint16_t)
FASTPOOL_MOVE(32, uint32_t)
FASTPOOL_MOVE(64, uint64_t)

/* Integers wrap around, which C defines for unsigned ones only. */
FASTPOOL_ADD(8, uint8_t, uint8_t, )
FASTPOOL_ADD(16, uint16_t, uint16_t, )
FASTPOOL_ADD(32, uint32_t, uint32_t, )
FASTPOOL_ADD(64, uint64_t, uint64_t, )
FASTPOOL_ADD(float16, float, uint16_t, fastpool_from_float16)
FASTPOOL_ADD(bfloat16, float, uint16_t, fastpool_from_bfloat16)
FASTPOOL_ADD(float32, float, float, )
FASTPOOL_ADD(float64, double, double, )

FASTPOOL_ROUND(float16, fastpool_to_float16)
FASTPOOL_ROUND(bfloat16, fastpool_to_bfloat16)

typedef struct {
    int item;  /* bytes of an element */
    int sum;   /* and of a sum */
    void (*move)(void *, const void *, int64_t, int64_t);
    void (*add)(void *, int64_t, const void *, int64_t);
    void (*round)(void *, const float *, int64_t);  /* NULL: sums are the result */
} fastpool_rows;

/* Element types as in _spec.py; returns whether there are rows of this type. */
static int fastpool_choose_rows(fastpool_rows *rows, int element) {
    static const fastpool_rows table[] = {
        {1, 1, fastpool_move_8, fastpool_add_8, NULL},   {2, 2, fastpool_move_16, fastpool_add_16, NULL},
        {4, 4, fastpool_move_32, fastpool_add_32, NULL}, {8, 8, fastpool_move_64, fastpool_add_64, NULL},
        {2, 4, fastpool_move_16, fastpool_add_float16, fastpool_round_float16},
        {2, 4, fastpool_move_16, fastpool_add_bfloat16, fastpool_round_bfloat16},
        {4, 4, fastpool_move_32, fastpool_add_float32, NULL}, {8, 8, fastpool_move_64, fastpool_add_float64, NULL},
    };
    if (element < 0 || element > 11) return 0;
    *rows = table[element < 8 ? element / 2 : element - 4];
    return 1;
}

#endif
