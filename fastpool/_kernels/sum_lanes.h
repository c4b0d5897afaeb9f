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

/* Element types and lane types, as in fastpool/_spec.py. */
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

#include "sum_rows.h"
#include "sum_results.h"

static const int fastpool_element_bytes[] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};

#define FINISHES(lanes_name)                                                                                       \
    {finish##lanes_name##_u8,  finish##lanes_name##_i8,  finish##lanes_name##_u16, finish##lanes_name##_i16,       \
     finish##lanes_name##_u32, finish##lanes_name##_i32, finish##lanes_name##_u64, finish##lanes_name##_i64,       \
     finish##lanes_name##_f16, finish##lanes_name##_bf16, finish##lanes_name##_f32, finish##lanes_name##_f64}
#define FLOAT_FINISHES(lanes_name)                                                                                 \
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,                                                               \
     finish##lanes_name##_f16, finish##lanes_name##_bf16, finish##lanes_name##_f32, finish##lanes_name##_f64}

typedef void (*fastpool_finish)(void *, int64_t, const void *, int64_t, int64_t, int64_t, int64_t, double, const double *,
                                double);

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
    lanes->load = lanes->load_joined = loads[lane][stored];
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
    lanes->unordered = NULL;
#define SUM_LANES(suffix)                \
    lanes->fill = fill##suffix;          \
    lanes->reduce[0] = reduce##suffix;   \
    lanes->reduce[1] = reduce##suffix;   \
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
