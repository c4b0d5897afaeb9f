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

/* Every phase at once, from one contiguous stretch: compilers vectorise these for a constant stride. */
#define SPLIT(STRIDE)                                                                                           \
    FASTPOOL_INLINE void NAME(split##STRIDE)(LANE_BITS *FASTPOOL_RESTRICT lanes, int64_t pitch,                 \
                                             const STORED *FASTPOOL_RESTRICT from, int64_t count, int64_t flip) { \
        KEY_PARAMETERS                                                                                          \
        LANE_BITS *const a = lanes, *const b = lanes + pitch, *const c = lanes + 2 * pitch, *const d = lanes + 3 * pitch; \
        for (int64_t q = 0; q < count; q++) {                                                                   \
            a[q] = KEY(from[q * STRIDE]);                                                                       \
            if (STRIDE > 1) b[q] = KEY(from[q * STRIDE + 1]);                                                   \
            if (STRIDE > 2) c[q] = KEY(from[q * STRIDE + 2]);                                                   \
            if (STRIDE > 3) d[q] = KEY(from[q * STRIDE + 3]);                                                   \
        }                                                                                                       \
    }
SPLIT(2)
SPLIT(3)
SPLIT(4)

static void NAME(load)(void *lanes, int64_t pitch, const void *row, int64_t length, int64_t start, int64_t stride,
                       const int64_t *residue, int phases, int64_t count, int64_t flip, int64_t lowest) {
    KEY_PARAMETERS
    const STORED *x = row;
    /* places [low, high) of every phase lie inside the row */
    int64_t low = start < 0 ? (-start + stride - 1) / stride : 0;
    int64_t high = length - start - residue[phases - 1] > 0 ? (length - start - residue[phases - 1] + stride - 1) / stride : 0;
    int64_t split = 0;
    if (high > count) high = count;
    if (phases == stride && stride >= 2 && stride <= 4 && high > low) {
        LANE_BITS *to = (LANE_BITS *)lanes + low;
        const STORED *from = x + start + low * stride;
        if (stride == 2) NAME(split2)(to, pitch, from, high - low, flip);
        else if (stride == 3) NAME(split3)(to, pitch, from, high - low, flip);
        else NAME(split4)(to, pitch, from, high - low, flip);
        split = 1;
    }
    for (int p = 0; p < phases; p++) {
        LANE_BITS *to = (LANE_BITS *)lanes + p * pitch;
        int64_t first = start + residue[p];
        int64_t inside = first < 0 ? (-first + stride - 1) / stride : 0;
        int64_t outside = length - first > 0 ? (length - first + stride - 1) / stride : 0;
        int64_t q = 0;
        if (inside > count) inside = count;
        if (outside > count) outside = count;
        for (; q < inside; q++) to[q] = (LANE_BITS)lowest;
        if (split) {
            for (; q < low && q < outside; q++) to[q] = KEY(x[first + q * stride]);
            if (q < high) q = high;
        }
        if (stride == 1) {
            const STORED *from = x + first;
            for (; q < outside; q++) to[q] = KEY(from[q]);
        } else {
            for (; q < outside; q++) to[q] = KEY(x[first + q * stride]);
        }
        for (; q < count; q++) to[q] = (LANE_BITS)lowest;
    }
}

/* The index of lane i is base + i*step + the offset that its code stands for. */
#define INDEX(i) (base + (i) * step + (table ? table[(CODE_BITS)c[i]] : (int64_t)c[i]))

static void NAME(store)(void *y, int64_t *indices, const void *values, const void *codes, int64_t n, int64_t flip,
                        const void *x, int64_t base, int64_t step, const int64_t *table) {
    STORED *FASTPOOL_RESTRICT out = y;
    const LANE_BITS *c = codes;
#ifdef HALF
    /* lanes order half floats but are not their bits (-0.0, payloads of NaN): take the element itself */
    const STORED *from = x;
    for (int64_t i = 0; i < n; i++) {
        int64_t index = INDEX(i);
        out[i] = from[index];
        if (indices) indices[i] = index;
    }
#else
    const LANE_BITS *v = values;
    const STORED mask = (STORED)flip;
    for (int64_t i = 0; i < n; i++) out[i] = (STORED)((STORED)v[i] ^ mask);
    if (indices && table) {
        for (int64_t i = 0; i < n; i++) indices[i] = base + i * step + table[(CODE_BITS)c[i]];
    } else if (indices) {
        for (int64_t i = 0; i < n; i++) indices[i] = base + i * step + c[i];
    }
#endif
}

#undef INDEX
#undef NAME
#undef KEY
#undef KEY_PARAMETERS
#undef SPLIT
#undef HALF
#undef STORED
#undef LANE_BITS
#undef CODE_BITS
#undef SUFFIX
