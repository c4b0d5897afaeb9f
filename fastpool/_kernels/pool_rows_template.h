/* Rows of stored elements to lanes and back. Included by pool_lanes.h with STORED, STORED_UNSIGNED, LANE_BITS, SUFFIX and
 * perhaps HALF. Works on bit patterns: unsigned integers become signed ones of the same order, and minima become maxima,
 * by flipping bits; floats keep their bits (the sign flipped for minima). */

#define NAME(stem) FASTPOOL_PASTE(stem, SUFFIX)

#ifdef HALF
#define KEY(bits) ((LANE_BITS)fastpool_half_key((bits), infinity, sign))
#define KEY_PARAMETERS                                           \
    const int16_t infinity = (int16_t)(flip < 0 ? -flip : flip); \
    const int16_t sign = (int16_t)(flip < 0 ? -1 : 0);
#else
#define KEY(bits) ((LANE_BITS)(STORED)((bits) ^ mask))
#define KEY_PARAMETERS const STORED mask = (STORED)flip;
#endif

/* `body(q, n)` must handle n places from q. Whole blocks have a constant length, so that compilers vectorise them without
 * a tail; the last block overlaps the one before. */
#define BLOCK (FASTPOOL_VECTOR_BYTES / (int)sizeof(LANE_BITS))
#define SMALL_BLOCK (BLOCK >= 16 ? BLOCK / 4 : 4)
#define IN_BLOCKS(count, body)                                        \
    if ((count) >= BLOCK) {                                           \
        int64_t q_ = 0;                                               \
        for (; q_ + BLOCK <= (count); q_ += BLOCK) {                  \
            body(q_, BLOCK)                                           \
        }                                                             \
        if (q_ < (count)) {                                           \
            body((count) - BLOCK, BLOCK)                              \
        }                                                             \
    } else if ((count) >= SMALL_BLOCK) {                              \
        int64_t q_ = 0;                                               \
        for (; q_ + SMALL_BLOCK <= (count); q_ += SMALL_BLOCK) {      \
            body(q_, SMALL_BLOCK)                                     \
        }                                                             \
        if (q_ < (count)) {                                           \
            body((count) - SMALL_BLOCK, SMALL_BLOCK)                  \
        }                                                             \
    } else {                                                          \
        body(0, (count))                                              \
    }

/* The few elements at the ends of a row: vector code for them costs more to enter than it saves. */
#if FASTPOOL_VECTORS
#define EDGE(statement)      \
    do {                     \
        statement;           \
        __asm__ volatile(""); \
    } while (0)
#else
#define EDGE(statement) statement
#endif

/* Every phase at once, from one contiguous stretch. */
#define SPLIT(STRIDE)                                                                                             \
    FASTPOOL_INLINE void NAME(split##STRIDE)(LANE_BITS *FASTPOOL_RESTRICT lanes, int64_t pitch,                   \
                                             const STORED *FASTPOOL_RESTRICT from, int64_t count, int64_t flip) { \
        KEY_PARAMETERS                                                                                            \
        SPLIT_BLOCKS(count, STRIDE)                                                                               \
    }
#define SPLIT_BODY1(q, n) \
    for (int64_t i = (q); i < (q) + (n); i++) lanes[i] = KEY(from[i]);
#define SPLIT_BODY2(q, n)                                                  \
    for (int64_t i = (q); i < (q) + (n); i++) lanes[i] = KEY(from[2 * i]); \
    for (int64_t i = (q); i < (q) + (n); i++) lanes[i + pitch] = KEY(from[2 * i + 1]);
#define SPLIT_BODY3(q, n)                                                              \
    for (int64_t i = (q); i < (q) + (n); i++) lanes[i] = KEY(from[3 * i]);             \
    for (int64_t i = (q); i < (q) + (n); i++) lanes[i + pitch] = KEY(from[3 * i + 1]); \
    for (int64_t i = (q); i < (q) + (n); i++) lanes[i + 2 * pitch] = KEY(from[3 * i + 2]);
#define SPLIT_BODY4(q, n)                                                                  \
    for (int64_t i = (q); i < (q) + (n); i++) lanes[i] = KEY(from[4 * i]);                 \
    for (int64_t i = (q); i < (q) + (n); i++) lanes[i + pitch] = KEY(from[4 * i + 1]);     \
    for (int64_t i = (q); i < (q) + (n); i++) lanes[i + 2 * pitch] = KEY(from[4 * i + 2]); \
    for (int64_t i = (q); i < (q) + (n); i++) lanes[i + 3 * pitch] = KEY(from[4 * i + 3]);
#define SPLIT_BLOCKS(count, STRIDE) IN_BLOCKS(count, SPLIT_BODY##STRIDE)
SPLIT(1)
SPLIT(2)
SPLIT(3)
SPLIT(4)

static void NAME(load)(void *lanes, int64_t pitch, const void *row, const fastpool_row *plan, int64_t flip, int64_t lowest) {
    KEY_PARAMETERS
    const int64_t stride = plan->stride, low = plan->low, high = plan->high;
    const STORED *x = row;
    if (high > low) {
        LANE_BITS *to = (LANE_BITS *)lanes + low;
        const STORED *from = x + plan->start + low * stride;
        if (stride == 1) NAME(split1)(to, pitch, from, high - low, flip);
        else if (stride == 2) NAME(split2)(to, pitch, from, high - low, flip);
        else if (stride == 3) NAME(split3)(to, pitch, from, high - low, flip);
        else NAME(split4)(to, pitch, from, high - low, flip);
    }
    for (int p = 0; p < plan->phases; p++) {
        LANE_BITS *to = (LANE_BITS *)lanes + p * pitch;
        const STORED *from = x + plan->start + plan->residue[p];
        const int64_t inside = plan->inside[p], outside = plan->outside[p];
        int64_t q = 0;
        for (; q < inside; q++) EDGE(to[q] = (LANE_BITS)lowest);
        if (high > low) {
            for (; q < low; q++) EDGE(to[q] = KEY(from[q * stride]));
            q = high;
            for (; q < outside; q++) EDGE(to[q] = KEY(from[q * stride]));
        } else {
            for (; q < outside; q++) to[q] = KEY(from[q * stride]);
        }
        for (; q < plan->count; q++) EDGE(to[q] = (LANE_BITS)lowest);
    }
}

/* The index of lane i is base + i*step + the offset that its code stands for. */
static void NAME(store)(void *y, int64_t *indices, const void *values, const void *codes, int64_t n, int64_t flip,
                        const void *x, int64_t base, int64_t step, const int64_t *table) {
    STORED *FASTPOOL_RESTRICT out = y;
    const LANE_BITS *c = codes;
#ifdef HALF
    /* lanes order half floats but are not their bits (-0.0, payloads of NaN): take the element itself */
    const STORED *from = x;
    (void)values, (void)flip;
    for (int64_t i = 0; i < n; i++) {
        int64_t index = base + i * step + (table ? table[(CODE_BITS)c[i]] : (int64_t)c[i]);
        out[i] = from[index];
        if (indices) indices[i] = index;
    }
#else
    const LANE_BITS *v = values;
    const STORED mask = (STORED)flip;
    (void)x;
#define STORE_VALUES(q, count) \
    for (int64_t i = (q); i < (q) + (count); i++) out[i] = (STORED)((STORED)v[i] ^ mask);
#define STORE_INDICES(q, count) \
    for (int64_t i = (q); i < (q) + (count); i++) indices[i] = base + i * step + c[i];
    IN_BLOCKS(n, STORE_VALUES)
    if (indices && table) {
        for (int64_t i = 0; i < n; i++) indices[i] = base + i * step + table[(CODE_BITS)c[i]];
    } else if (indices) {
        IN_BLOCKS(n, STORE_INDICES)
    }
#undef STORE_VALUES
#undef STORE_INDICES
#endif
}

#undef BLOCK
#undef SMALL_BLOCK
#undef IN_BLOCKS
#undef EDGE
#undef SPLIT_BODY1
#undef SPLIT_BODY2
#undef SPLIT_BODY3
#undef SPLIT_BODY4
#undef SPLIT_BLOCKS
#undef NAME
#undef KEY
#undef KEY_PARAMETERS
#undef SPLIT
#undef HALF
#undef STORED
#undef LANE_BITS
#undef CODE_BITS
#undef SUFFIX
