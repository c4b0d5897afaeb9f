/* Lane primitives of the pooling kernels, shared by every instruction-set build of pool_forward.pyx.
 *
 * A lane holds one value of a window's running maximum, and beside it a code of the same width that says which tap it
 * came from. Everything here works on long contiguous runs: the walker in pool_forward.pyx lays tiles out so that tap j
 * of *all* outputs of a pass is one run at a constant offset.
 *
 * GCC and Clang vector types keep the running maximum of a whole chain of taps in registers; GCC turns the bit selects
 * below into blends (AVX2) and masked moves (AVX-512). Other compilers get the same code with one lane per "vector".
 *
 * The rule of a maximum: a later tap replaces the earlier only if it is greater, or is NaN while the earlier is not.
 * So the first of several equal taps wins, and the first NaN. Minima are maxima of order-reversed values, see `flip`.
 */
#ifndef FASTPOOL_POOL_LANES_H
#define FASTPOOL_POOL_LANES_H

#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "stream.h"

#if defined(__GNUC__) || defined(__clang__)
#define FASTPOOL_VECTORS 1
#define FASTPOOL_INLINE static inline __attribute__((always_inline))
#define FASTPOOL_RESTRICT __restrict__
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
#define FASTPOOL_RESTRICT __restrict
#define FASTPOOL_VECTOR_BYTES 16
#endif

/* Keep a loaded vector in a register: left alone, GCC loads it again for every use, which doubles the traffic, and makes
 * the loads of a blend wait for its mask. */
#if defined(__AVX512F__)
#define FASTPOOL_IN_REGISTER(vector) __asm__("" : "+v"(vector))
#elif FASTPOOL_VECTORS && defined(__SSE2__)
#define FASTPOOL_IN_REGISTER(vector) __asm__("" : "+x"(vector))
#else
#define FASTPOOL_IN_REGISTER(vector) (void)0
#endif

/* Elements that a pass may read or write beyond the end of a run: buffers are allocated with this much to spare. */
#define FASTPOOL_SLACK_BYTES (4 * FASTPOOL_VECTOR_BYTES)

/* Taps up to which windows given by bounds are gathered, as in fastpool/_spec.py. */
#define FASTPOOL_GATHERED_TAPS 64

/* Lanes of a row up to which padding is filled in for whole rows. */
#define FASTPOOL_SHORT_ROW 64

/* How stored elements become lanes. */
enum { FASTPOOL_INTEGER = 0, FASTPOOL_FLOAT = 1, FASTPOOL_HALF = 2 };

/* How the rows of a tile are read: place q of phase p is element start + residue[p] + q*stride, if it lies in the row. */
typedef struct {
    int phases;
    int64_t stride;
    int64_t start;
    int64_t count;             /* places per phase */
    int64_t elements;          /* of a row that the tile reads, to be asked for ahead of time */
    int64_t low, high;         /* places that every phase of a stride up to 4 has inside the row, read in one go */
    int64_t joined;            /* > 0: a place is the maximum (or sum) of so many elements; low and high: all of them inside */
    int64_t first, beyond;     /* elements of the row that are read */
    const int64_t *residue;
    int64_t *inside, *outside; /* per phase: places [inside, outside) lie in the row */
} fastpool_row;

static void fastpool_plan_row(fastpool_row *plan, int64_t length) {
    const int64_t s = plan->stride;
    plan->low = 0, plan->high = plan->count;
    plan->first = length, plan->beyond = 0;
    for (int p = 0; p < plan->phases; p++) {
        int64_t first = plan->start + plan->residue[p];
        int64_t inside = first < 0 ? (-first + s - 1) / s : 0;
        int64_t outside = length > first ? (length - first + s - 1) / s : 0;
        if (inside > plan->count) inside = plan->count;
        if (outside > plan->count) outside = plan->count;
        if (outside < inside) outside = inside;
        plan->inside[p] = inside, plan->outside[p] = outside;
        if (inside > plan->low) plan->low = inside;
        if (outside < plan->high) plan->high = outside;
        if (outside > inside) {
            if (first + inside * s < plan->first) plan->first = first + inside * s;
            if (first + (outside - 1) * s >= plan->beyond) plan->beyond = first + (outside - 1) * s + 1;
        }
    }
    if (plan->beyond == 0) plan->first = 0;
    if (plan->joined) {
        const int64_t first = plan->start, k = plan->joined, end = first + s * (plan->count - 1) + k;
        plan->low = first < 0 ? (-first + s - 1) / s : 0;
        plan->high = length - first >= k ? (length - first - k) / s + 1 : 0;
        if (plan->low > plan->count) plan->low = plan->count;
        if (plan->high > plan->count) plan->high = plan->count;
        if (plan->high < plan->low) plan->high = plan->low;
        plan->first = first > 0 ? first : 0;
        plan->beyond = end < length ? end : length;
        if (plan->first > plan->beyond) plan->first = plan->beyond;
        return;
    }
    if (s > 4 || plan->phases != s || plan->high < plan->low) plan->high = plan->low = 0;
}

/* Short rows with padding at either end: it costs less to fill all of them with it first. */
FASTPOOL_INLINE int fastpool_is_padded_short(const fastpool_row *plan) {
    int padded = 0;
    for (int p = 0; p < plan->phases; p++) padded |= plan->inside[p] > 0 || plan->outside[p] < plan->count;
    return padded && plan->count <= FASTPOOL_SHORT_ROW;
}

typedef struct {
    int lane_bytes;
    int stored_bytes;
    int result_bytes;
    int64_t lowest; /* bits of the lane that never wins: what padding holds */
    /* n lanes of the value that never wins; its codes are 0 */
    void (*fill)(void *values, void *codes, int64_t n);
    /* rows into runs of lanes, one per phase and `pitch` lanes apart; rows are `row_pitch` lanes apart there, `row_stride`
     * elements in the input; `ahead` bytes further on memory is asked for. load_joined: windows of one run. Sums: every row is the sum of `taps` rows that
     * are `tap_stride` elements apart, with room for one in `scratch` */
    void (*load)(void *lanes, int64_t pitch, int64_t row_pitch, const void *input, int64_t row_stride, int64_t rows,
                 int64_t taps, int64_t tap_stride, void *scratch, const fastpool_row *plan, int64_t flip, int64_t lowest,
                 int64_t ahead);
    void (*load_joined)(void *lanes, int64_t pitch, int64_t row_pitch, const void *input, int64_t row_stride, int64_t rows,
                        int64_t taps, int64_t tap_stride, void *scratch, const fastpool_row *plan, int64_t flip,
                        int64_t lowest, int64_t ahead);
    /* dst[i] = first maximum over taps j of src[i + offset[j]], after `seed[i]` where given; [0] where no lane is NaN */
    void (*reduce[2])(void *dst, void *dst_codes, const void *src, const void *src_codes, const void *seed,
                      const void *seed_codes, const int64_t *offset, const int64_t *code, int taps, int64_t n);
    /* maxima of floats: whether any lane is NaN; otherwise NULL */
    int (*unordered)(const void *lanes, int64_t n);
    /* rows whose windows are given by bounds: output o has counts[o] taps from lane starts[o] of its row on, `step` lanes
     * apart; `most` > 0: no window has more taps, and `temp` has room for as many of every output */
    void (*windows)(void *dst, void *dst_codes, const void *src, int64_t rows, int64_t dst_pitch, int64_t src_pitch,
                    const int64_t *starts, const int64_t *counts, int64_t step, int64_t n, int64_t code, void *temp,
                    int64_t most);
    /* sums: output o of a row is lane (o + phase) / period of run (o + phase) % period */
    void (*weave)(void *dst, const void *src, int64_t run, int64_t period, int64_t phase, int64_t n);
    /* continue the maximum of one long window (value, position) over n more lanes whose first is at `position` */
    void (*scan)(void *value, int64_t *where, const void *lanes, int64_t position, int64_t n);
    /* finished rows to results, `pitch` and `y_pitch` bytes apart: flipped back; or sums, divided by `divisor` and, where
     * given, by `taps`, or their root taken. Not for maxima of half floats */
    void (*finish)(void *y, int64_t y_pitch, const void *values, int64_t pitch, int64_t rows, int64_t n, int64_t flip,
                   double divisor, const double *taps, double power);
    /* the flat indices of a finished row (may be NULL for half floats, whose values are taken from x and go to y) */
    void (*locate)(void *y, int64_t *indices, const void *codes, int64_t n, const void *x, int64_t base, int64_t step,
                   const int64_t *table);
    /* add `shift[i]` to the index of every lane that holds the value of padding */
    void (*settle)(int64_t *indices, const void *values, int64_t n, int64_t row_shift, const int64_t *shift, int64_t shifts);
    /* put a code or a value where a scan found it */
    void (*put)(void *values, void *codes, int64_t i, const void *value, int64_t code);
    /* sums: raise lanes to a power */
    void (*power)(void *lanes, int64_t n, int64_t flip, double power);
} fastpool_lanes;

/* float16 and bfloat16 become integers of the same order: sign and magnitude to two's complement (so -0.0 ties 0.0),
 * and every NaN the largest of all (so the first NaN wins). `flip` carries the bits of infinity, negated for minima. */
FASTPOOL_INLINE int16_t fastpool_half_key(int16_t bits, int16_t infinity, int16_t sign) {
    int16_t magnitude = bits & 0x7fff;
    int16_t negative = (int16_t)((bits >> 15) ^ sign);
    int16_t key = (int16_t)((magnitude ^ negative) - negative);
    return magnitude > infinity ? INT16_MAX : key;
}

/* Ask for memory that will be read soon; a hint, so it may lie beyond the array. */
FASTPOOL_INLINE void fastpool_prefetch(const void *from, int64_t bytes) {
#if FASTPOOL_VECTORS
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)from + i, 0, 2);
#else
    (void)from, (void)bytes;
#endif
}

#define FASTPOOL_PASTE_(a, b) a##b
#define FASTPOOL_PASTE(a, b) FASTPOOL_PASTE_(a, b)

/* Lanes as plain numbers, since they are pasted into names. */
#if FASTPOOL_VECTOR_BYTES == 64
#define FASTPOOL_LANES_8 64
#define FASTPOOL_LANES_16 32
#define FASTPOOL_LANES_32 16
#define FASTPOOL_LANES_64 8
#elif FASTPOOL_VECTOR_BYTES == 32
#define FASTPOOL_LANES_8 32
#define FASTPOOL_LANES_16 16
#define FASTPOOL_LANES_32 8
#define FASTPOOL_LANES_64 4
#else
#define FASTPOOL_LANES_8 16
#define FASTPOOL_LANES_16 8
#define FASTPOOL_LANES_32 4
#define FASTPOOL_LANES_64 2
#endif

/* Rows of vectors need shuffles across two of them; 8, 16, 32 and 64 bits. */
#if FASTPOOL_VECTORS && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector) && __has_builtin(__builtin_convertvector)
#define FASTPOOL_SHUFFLES 1
#endif
#endif
#ifndef FASTPOOL_SHUFFLES
#define FASTPOOL_SHUFFLES 0
#endif
#define FASTPOOL_EVEN_2 0, 2
#define FASTPOOL_ODD_2 1, 3
#define FASTPOOL_EVEN_4 0, 2, 4, 6
#define FASTPOOL_ODD_4 1, 3, 5, 7
#define FASTPOOL_EVEN_8 0, 2, 4, 6, 8, 10, 12, 14
#define FASTPOOL_ODD_8 1, 3, 5, 7, 9, 11, 13, 15
#define FASTPOOL_EVEN_16 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define FASTPOOL_ODD_16 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define FASTPOOL_EVEN_32 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62
#define FASTPOOL_ODD_32 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63
#define FASTPOOL_EVEN_64 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62, 64, 66, 68, 70, 72, 74, 76, 78, 80, 82, 84, 86, 88, 90, 92, 94, 96, 98, 100, 102, 104, 106, 108, 110, 112, 114, 116, 118, 120, 122, 124, 126
#define FASTPOOL_ODD_64 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63, 65, 67, 69, 71, 73, 75, 77, 79, 81, 83, 85, 87, 89, 91, 93, 95, 97, 99, 101, 103, 105, 107, 109, 111, 113, 115, 117, 119, 121, 123, 125, 127

#define LANE int8_t
#define CODE uint8_t
#define BITS 8
#define SUFFIX _i8
#define LOWEST INT8_MIN
#define KIND epi8
#define REGISTER __m512i
#define MAXIMUM_256 __m256i
#include "pool_lanes_template.h"

#define LANE int16_t
#define CODE uint16_t
#define BITS 16
#define SUFFIX _i16
#define LOWEST INT16_MIN
#define KIND epi16
#define REGISTER __m512i
#define MAXIMUM_256 __m256i
#define MAXIMUM_128 __m128i
#include "pool_lanes_template.h"

#define LANE int32_t
#define CODE uint32_t
#define BITS 32
#define SUFFIX _i32
#define LOWEST INT32_MIN
#define KIND epi32
#define REGISTER __m512i
#define MAXIMUM_256 __m256i
#include "pool_lanes_template.h"

#define LANE int64_t
#define CODE uint64_t
#define BITS 64
#define SUFFIX _i64
#define LOWEST INT64_MIN
#define KIND epi64
#define REGISTER __m512i
#include "pool_lanes_template.h"

#define LANE float
#define CODE uint32_t
#define BITS 32
#define SUFFIX _f32
#define LOWEST (-INFINITY)
#define FLOATING
#define KIND ps
#define REGISTER __m512
#define MAXIMUM_256 __m256
#define MAXIMUM_128 __m128
#include "pool_lanes_template.h"

#define LANE double
#define CODE uint64_t
#define BITS 64
#define SUFFIX _f64
#define LOWEST (-INFINITY)
#define FLOATING
#define KIND pd
#define REGISTER __m512d
#define MAXIMUM_256 __m256d
#define MAXIMUM_128 __m128d
#include "pool_lanes_template.h"

#define FASTPOOL_INDEX_LANES (FASTPOOL_VECTOR_BYTES / 8)
#if FASTPOOL_SHUFFLES
typedef int64_t fastpool_index_vector __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), aligned(8), may_alias));
#endif

#define STORED int8_t
#define LANE_BITS int8_t
#define CODE_BITS uint8_t
#define SUFFIX _8_8
#if FASTPOOL_SHUFFLES
#define VECTOR_ROWS
#define WIDE_LANES FASTPOOL_LANES_8
#define NARROW_LANES 16
#endif
#include "pool_rows_template.h"

#define STORED int8_t
#define LANE_BITS int16_t
#define CODE_BITS uint16_t
#define SUFFIX _8_16
#include "pool_rows_template.h"

#define STORED int8_t
#define LANE_BITS int32_t
#define CODE_BITS uint32_t
#define SUFFIX _8_32
#if FASTPOOL_SHUFFLES
#define VECTOR_INDICES
#endif
#include "pool_rows_template.h"

#define STORED int16_t
#define LANE_BITS int16_t
#define CODE_BITS uint16_t
#define SUFFIX _16_16
#if FASTPOOL_SHUFFLES
#define VECTOR_ROWS
#define WIDE_LANES FASTPOOL_LANES_16
#define NARROW_LANES 8
#endif
#include "pool_rows_template.h"

#define STORED int16_t
#define LANE_BITS int32_t
#define CODE_BITS uint32_t
#define SUFFIX _16_32
#if FASTPOOL_SHUFFLES
#define VECTOR_INDICES
#endif
#include "pool_rows_template.h"

#define STORED int32_t
#define LANE_BITS int32_t
#define CODE_BITS uint32_t
#define SUFFIX _32_32
#if FASTPOOL_SHUFFLES
#define VECTOR_ROWS
#define VECTOR_INDICES
#define WIDE_LANES FASTPOOL_LANES_32
#define NARROW_LANES 4
#endif
#include "pool_rows_template.h"

#define STORED int64_t
#define LANE_BITS int64_t
#define CODE_BITS uint64_t
#define SUFFIX _64_64
#if FASTPOOL_SHUFFLES
#define VECTOR_ROWS
#define VECTOR_INDICES
#define WIDE_LANES FASTPOOL_LANES_64
#define NARROW_LANES 2
#endif
#include "pool_rows_template.h"

#define STORED int16_t
#define LANE_BITS int16_t
#define CODE_BITS uint16_t
#define SUFFIX _half_16
#if FASTPOOL_SHUFFLES
#define VECTOR_ROWS
#define WIDE_LANES FASTPOOL_LANES_16
#define NARROW_LANES 8
#endif
#define HALF
#include "pool_rows_template.h"

#define STORED int16_t
#define LANE_BITS int32_t
#define CODE_BITS uint32_t
#define SUFFIX _half_32
#define HALF
#include "pool_rows_template.h"

#define INTEGER_LANES(lane, rows, low) LANES(lane, rows, low, lane, NULL)
#define LANES(lane, rows, low, any, nan)                                                                               \
    do {                                                                                                               \
        lanes->lowest = (low);                                                                                         \
        lanes->fill = fill_##lane;                                                                                     \
        lanes->reduce[0] = reduce_##lane, lanes->reduce[1] = reduce_##any;                                             \
        lanes->unordered = nan;                                                                                        \
        lanes->windows = windows_##lane;                                                                               \
        lanes->scan = scan_##lane;                                                                                     \
        lanes->settle = settle_##lane;                                                                                 \
        lanes->put = put_##lane;                                                                                       \
        lanes->load_joined = joined_##lane;                                                                            \
        lanes->load = load_##rows;                                                                                     \
        lanes->finish = finish_##rows;                                                                                 \
        lanes->locate = locate_##rows;                                                                                 \
        return 0;                                                                                                      \
    } while (0)

/* The primitives for elements of `stored` bytes in lanes of `lane` bytes; -1 where there are none. */
static int fastpool_choose_lanes(fastpool_lanes *lanes, int kind, int stored, int lane) {
    lanes->stored_bytes = stored;
    lanes->result_bytes = stored;
    lanes->lane_bytes = lane;
    switch (kind * 10000 + stored * 100 + lane) {
    case FASTPOOL_INTEGER * 10000 + 101: INTEGER_LANES(i8, 8_8, INT8_MIN);
    case FASTPOOL_INTEGER * 10000 + 102: INTEGER_LANES(i16, 8_16, INT16_MIN);
    case FASTPOOL_INTEGER * 10000 + 104: INTEGER_LANES(i32, 8_32, INT32_MIN);
    case FASTPOOL_INTEGER * 10000 + 202: INTEGER_LANES(i16, 16_16, INT16_MIN);
    case FASTPOOL_INTEGER * 10000 + 204: INTEGER_LANES(i32, 16_32, INT32_MIN);
    case FASTPOOL_INTEGER * 10000 + 404: INTEGER_LANES(i32, 32_32, INT32_MIN);
    case FASTPOOL_INTEGER * 10000 + 808: INTEGER_LANES(i64, 64_64, INT64_MIN);
    case FASTPOOL_HALF * 10000 + 202: INTEGER_LANES(i16, half_16, INT16_MIN);
    case FASTPOOL_HALF * 10000 + 204: INTEGER_LANES(i32, half_32, INT32_MIN);
    case FASTPOOL_FLOAT * 10000 + 404: LANES(f32, 32_32, (int64_t)(int32_t)0xff800000, any_f32, unordered_f32);
    case FASTPOOL_FLOAT * 10000 + 808: LANES(f64, 64_64, (int64_t)0xfff0000000000000, any_f64, unordered_f64);
    default: return -1;
    }
}
#undef LANES
#undef INTEGER_LANES
#endif
