/* Rows of stored elements to lanes and back. Included by pool_lanes.h with STORED, STORED_UNSIGNED, LANE_BITS, SUFFIX and
 * perhaps HALF. Works on bit patterns: unsigned integers become signed ones of the same order, and minima become maxima,
 * by flipping bits; floats keep their bits (the sign flipped for minima). */

#define NAME(stem) FASTPOOL_PASTE(stem, SUFFIX)

#ifdef HALF
#define KEY(bits) ((LANE_BITS)fastpool_half_key((bits), infinity, sign))
#define KEY_PARAMETERS                                           \
    const int16_t infinity = (int16_t)(flip < 0 ? -flip : flip); \
    const int16_t sign = (int16_t)(flip < 0 ? -1 : 0);
#define KEY_VECTOR(type, name, bits)                                     \
    type name##_size = (bits) & 0x7fff, name##_sign = ((bits) >> 15) ^ sign; \
    type name##_nan = name##_size > infinity;                            \
    type name = (((name##_size ^ name##_sign) - name##_sign) & ~name##_nan) | (name##_nan & INT16_MAX);
#else
#define KEY(bits) ((LANE_BITS)(STORED)((bits) ^ mask))
#define KEY_PARAMETERS const STORED mask = (STORED)flip;
#define KEY_VECTOR(type, name, bits) type name = (bits) ^ mask;
#endif

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

/* `count` places of every phase at once, from one contiguous stretch. */
#define SPLIT_SCALAR(STRIDE)                                                                     \
    for (int64_t i = 0; i < count; i++) {                                                        \
        for (int r = 0; r < STRIDE; r++) lanes[r * pitch + i] = KEY(from[STRIDE * i + r]);       \
    }
#ifdef VECTOR_ROWS
typedef STORED NAME(wide) __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), aligned(sizeof(STORED)), may_alias));
typedef STORED NAME(narrow) __attribute__((vector_size(16), aligned(sizeof(STORED)), may_alias));

#define EVEN(N, a, b) __builtin_shufflevector(a, b, FASTPOOL_PASTE(FASTPOOL_EVEN_, N))
#define ODD(N, a, b) __builtin_shufflevector(a, b, FASTPOOL_PASTE(FASTPOOL_ODD_, N))
#define PUT(type, to, value)                 \
    do {                                     \
        KEY_VECTOR(type, key, value)         \
        *(type *)(to) = key;                 \
    } while (0)

/* n lanes from place i */
#define SPLIT_1(type, N, i) PUT(type, lanes + (i), *(const type *)(from + (i)));
#define SPLIT_2(type, N, i)                                                                       \
    {                                                                                             \
        const type a = *(const type *)(from + 2 * (i)), b = *(const type *)(from + 2 * (i) + N);  \
        PUT(type, lanes + (i), EVEN(N, a, b));                                                    \
        PUT(type, lanes + (i) + pitch, ODD(N, a, b));                                             \
    }
#define SPLIT_4(type, N, i)                                                                           \
    {                                                                                                 \
        const type a = *(const type *)(from + 4 * (i)), b = *(const type *)(from + 4 * (i) + N);      \
        const type c = *(const type *)(from + 4 * (i) + 2 * N), d = *(const type *)(from + 4 * (i) + 3 * N); \
        const type even = EVEN(N, a, b), odd = ODD(N, a, b), even2 = EVEN(N, c, d), odd2 = ODD(N, c, d); \
        PUT(type, lanes + (i), EVEN(N, even, even2));                                                 \
        PUT(type, lanes + (i) + pitch, EVEN(N, odd, odd2));                                           \
        PUT(type, lanes + (i) + 2 * pitch, ODD(N, even, even2));                                      \
        PUT(type, lanes + (i) + 3 * pitch, ODD(N, odd, odd2));                                        \
    }
/* whole vectors; the last one overlaps the one before */
#define SPLIT_BY(STRIDE, type, N)                                        \
    {                                                                    \
        int64_t i = 0;                                                   \
        for (; i + N <= count; i += N) SPLIT_##STRIDE(type, N, i)        \
        if (i < count) SPLIT_##STRIDE(type, N, count - N)                \
        return;                                                          \
    }
#define SPLIT_VECTORS(STRIDE)                                                  \
    if (count >= WIDE_LANES) SPLIT_BY(STRIDE, NAME(wide), WIDE_LANES)          \
    if (count >= NARROW_LANES) SPLIT_BY(STRIDE, NAME(narrow), NARROW_LANES)
#else
#define SPLIT_VECTORS(STRIDE)
#endif
#define SPLIT(STRIDE, VECTORS)                                                                                    \
    FASTPOOL_INLINE void NAME(split##STRIDE)(LANE_BITS *FASTPOOL_RESTRICT lanes, int64_t pitch,                   \
                                             const STORED *FASTPOOL_RESTRICT from, int64_t count, int64_t flip) { \
        KEY_PARAMETERS                                                                                            \
        (void)pitch;                                                                                              \
        VECTORS                                                                                                   \
        SPLIT_SCALAR(STRIDE)                                                                                      \
    }
SPLIT(1, SPLIT_VECTORS(1))
SPLIT(2, SPLIT_VECTORS(2))
SPLIT(3, )
SPLIT(4, SPLIT_VECTORS(4))

/* places [first, last) of a phase, in every row: elements, or the value of padding */
#define COPY_EDGE(first, last)                                                                          \
    if ((first) < (last)) {                                                                             \
        for (int64_t r = 0; r < rows; r++) {                                                            \
            for (int64_t q = (first); q < (last); q++) {                                                \
                EDGE(to[r * row_pitch + q] = KEY(from[r * row_stride + q * stride]));                   \
            }                                                                                           \
        }                                                                                               \
    }
#define FILL_EDGE(first, last)                                                                          \
    if ((first) < (last)) {                                                                             \
        for (int64_t r = 0; r < rows; r++) {                                                            \
            for (int64_t q = (first); q < (last); q++) EDGE(to[r * row_pitch + q] = (LANE_BITS)lowest); \
        }                                                                                               \
    }
#define SPLIT_ROWS(STRIDE)                                                                                        \
    for (int64_t r = 0; r < rows; r++) {                                                                          \
        const STORED *from = x + r * row_stride;                                                                  \
        if (ahead) fastpool_prefetch((const char *)(from + first) + ahead, bytes);                                \
        NAME(split##STRIDE)((LANE_BITS *)lanes + r * row_pitch + low, pitch, from + plan->start + low * STRIDE,   \
                            high - low, flip);                                                                    \
    }

static void NAME(load)(void *lanes, int64_t pitch, int64_t row_pitch, const void *input, int64_t row_stride, int64_t rows,
                       int64_t taps, int64_t tap_stride, void *scratch, const fastpool_row *plan, int64_t flip,
                       int64_t lowest, int64_t ahead) {
    KEY_PARAMETERS
    (void)taps, (void)tap_stride, (void)scratch;
    const int64_t stride = plan->stride, low = plan->low, high = plan->high, count = plan->count;
    const int64_t first = plan->start > 0 ? plan->start : 0;
    const int64_t bytes = plan->elements * (int64_t)sizeof(STORED);
    const STORED *x = input;
    const int joint = high > low, filled = fastpool_is_padded_short(plan);
    for (int p = 0; filled && p < plan->phases; p++) {
        LANE_BITS *to = (LANE_BITS *)lanes + p * pitch;
        for (int64_t i = 0; i < (rows - 1) * row_pitch + count; i++) to[i] = (LANE_BITS)lowest;
    }
    if (joint) {
        if (stride == 1) SPLIT_ROWS(1)
        else if (stride == 2) SPLIT_ROWS(2)
        else if (stride == 3) SPLIT_ROWS(3)
        else SPLIT_ROWS(4)
    } else if (ahead) {
        for (int64_t r = 0; r < rows; r++) fastpool_prefetch((const char *)(x + r * row_stride + first) + ahead, bytes);
    }
    for (int p = 0; p < plan->phases; p++) {
        LANE_BITS *to = (LANE_BITS *)lanes + p * pitch;
        const STORED *from = x + plan->start + plan->residue[p];
        const int64_t inside = plan->inside[p], outside = plan->outside[p];
        if (!filled) {
            FILL_EDGE(0, inside)
            FILL_EDGE(outside, count)
        }
        if (joint) {
            COPY_EDGE(inside, low)
            COPY_EDGE(high, outside)
        } else {
            COPY_EDGE(inside, outside)
        }
    }
}

#ifdef VECTOR_ROWS
/* whole vectors of a row; the last one overlaps the one before */
#define FINISH_BY(type, N)                                                                             \
    {                                                                                                  \
        for (; i + N <= n; i += N) *(type *)(out + i) = *(const type *)(v + i) ^ mask;                 \
        if (i < n) *(type *)(out + n - N) = *(const type *)(v + n - N) ^ mask;                         \
        continue;                                                                                      \
    }
#endif

/* Finished rows of values to results. */
static void NAME(finish)(void *y, int64_t y_pitch, const void *values, int64_t pitch, int64_t rows, int64_t n, int64_t flip,
                         double divisor, const double *taps, double power) {
    (void)divisor, (void)taps, (void)power;
    for (int64_t r = 0; r < rows; r++) {
        STORED *FASTPOOL_RESTRICT out = (STORED *)((char *)y + r * y_pitch);
        const LANE_BITS *v = (const LANE_BITS *)((const char *)values + r * pitch);
        const STORED mask = (STORED)flip;
        int64_t i = 0;
#ifdef VECTOR_ROWS
        if (n >= WIDE_LANES) FINISH_BY(NAME(wide), WIDE_LANES)
        if (n >= NARROW_LANES) FINISH_BY(NAME(narrow), NARROW_LANES)
#endif
        for (; i < n; i++) out[i] = (STORED)((STORED)v[i] ^ mask);
    }
}

/* The index of lane i is base + i*step + the offset that its code stands for. Half floats: lanes order them but are not
 * their bits (-0.0, payloads of NaN), so the elements themselves are taken. */
static void NAME(locate)(void *y, int64_t *indices, const void *codes, int64_t n, const void *x, int64_t base, int64_t step,
                         const int64_t *table) {
    const LANE_BITS *c = codes;
#ifdef HALF
    STORED *FASTPOOL_RESTRICT out = y;
    const STORED *from = x;
    for (int64_t i = 0; i < n; i++, base += step) {
        int64_t index = base + (table ? table[(CODE_BITS)c[i]] : (int64_t)c[i]);
        out[i] = from[index];
        if (indices) indices[i] = index;
    }
#else
    int64_t i = 0;
    (void)y, (void)x;
    if (table) {
        /* restrict lets the compiler look several up at once */
        int64_t *FASTPOOL_RESTRICT to = indices;
        const int64_t *FASTPOOL_RESTRICT offsets = table;
        const LANE_BITS *FASTPOOL_RESTRICT taps = c;
        for (i = 0; i < n; i++) to[i] = base + i * step + offsets[(CODE_BITS)taps[i]];
        return;
    }
    i = 0;
#ifdef VECTOR_INDICES
    if (n >= FASTPOOL_INDEX_LANES) {
        typedef LANE_BITS part __attribute__((vector_size(FASTPOOL_INDEX_LANES * sizeof(LANE_BITS)),
                                              aligned(sizeof(LANE_BITS)), may_alias));
        fastpool_index_vector ramp;
        for (int l = 0; l < FASTPOOL_INDEX_LANES; l++) ramp[l] = base + l * step;
        for (; i + FASTPOOL_INDEX_LANES <= n; i += FASTPOOL_INDEX_LANES, ramp += FASTPOOL_INDEX_LANES * step) {
            *(fastpool_index_vector *)(indices + i) =
                __builtin_convertvector(*(const part *)(c + i), fastpool_index_vector) + ramp;
        }
    }
#endif
    for (; i < n; i++) indices[i] = base + i * step + c[i];
#endif
}

#undef NAME
#undef KEY
#undef KEY_PARAMETERS
#undef KEY_VECTOR
#undef EDGE
#undef COPY_EDGE
#undef FILL_EDGE
#undef SPLIT_ROWS
#undef SPLIT
#undef SPLIT_SCALAR
#undef SPLIT_VECTORS
#undef SPLIT_BY
#undef FINISH_BY
#undef SPLIT_1
#undef SPLIT_2
#undef SPLIT_4
#undef EVEN
#undef ODD
#undef PUT
#undef WIDE_LANES
#undef NARROW_LANES
#undef VECTOR_ROWS
#undef VECTOR_INDICES
#undef HALF
#undef STORED
#undef LANE_BITS
#undef CODE_BITS
#undef SUFFIX
