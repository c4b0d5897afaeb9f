/* One lane type of conv_lanes.h: included once for each, with LANE (the C type) and NAME(x) defined. */

#if FASTPOOL_VECTORS
typedef LANE NAME(vec) __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), may_alias));
typedef LANE NAME(loose) __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), may_alias, aligned(sizeof(LANE))));
typedef __typeof__((NAME(vec)){0} < (NAME(vec)){0}) NAME(mask);
/* not {0} + value, an addition that floating point cannot leave out: -0 + 0 is 0 */
#define NAME_SPREAD(value) ((value) - (NAME(vec)){0})
#else
typedef LANE NAME(vec);
typedef LANE NAME(loose);
#define NAME_SPREAD(value) (value)
#endif
enum { NAME(lanes) = sizeof(NAME(vec)) / sizeof(LANE) };

/* Every other one of 2n - 1 lanes, as far as whole vectors go: how many were taken. Nothing beyond these is read. */
static inline int64_t NAME(evens)(LANE *to, const LANE *from, int64_t n) {
#if FASTPOOL_VECTORS && !defined(__clang__)
    const int64_t step = NAME(lanes);
    NAME(mask) choice;
    FASTPOOL_UNROLL for (int j = 0; j < NAME(lanes); j++) choice[j] = 2 * j + (2 * j >= NAME(lanes));
    if (n < step) return 0;
    for (int64_t i = 0;; i = i + 2 * step <= n ? i + step : n - step) {
        const NAME(vec) low = *(const NAME(loose) *)(from + 2 * i);
        const NAME(vec) high = *(const NAME(loose) *)(from + 2 * i + step - 1);
        *(NAME(loose) *)(to + i) = __builtin_shuffle(low, high, choice);
        if (i + step == n) return n;
    }
#else
    (void)to, (void)from, (void)n;
    return 0;
#endif
}

/* n lanes of one and n of another in turn, as far as whole vectors go: how many of each were written. */
static inline int64_t NAME(interleave)(LANE *to, const LANE *even, const LANE *odd, int64_t n) {
#if FASTPOOL_VECTORS && !defined(__clang__)
    const int64_t step = NAME(lanes);
    NAME(mask) low, high;
    FASTPOOL_UNROLL for (int j = 0; j < NAME(lanes); j++) {
        low[j] = j / 2 + (j % 2) * NAME(lanes);
        high[j] = low[j] + NAME(lanes) / 2;
    }
    if (n < step) return 0;
    for (int64_t i = 0;; i = i + 2 * step <= n ? i + step : n - step) {
        const NAME(vec) a = *(const NAME(loose) *)(even + i), b = *(const NAME(loose) *)(odd + i);
        *(NAME(loose) *)(to + 2 * i) = __builtin_shuffle(a, b, low);
        *(NAME(loose) *)(to + 2 * i + step) = __builtin_shuffle(a, b, high);
        if (i + step == n) return n;
    }
#else
    (void)to, (void)even, (void)odd, (void)n;
    return 0;
#endif
}

/* c[i][q] = seed[i] + sum over k of a[i * row_step + k * step] * b[offset[k] + q], one chain per element, for m rows and v
 * vectors of q. Without a seed the chain goes on from what c holds. m and v are constants where this is inlined, so that
 * all sums stay in registers, and one of the steps is 1. */
FASTPOOL_INLINE void NAME(block)(const int m, const int v, const LANE *a, int64_t row_step, int64_t step, const LANE *b,
                                 const int32_t *offset, int64_t depth, LANE *c, int64_t pitch, const LANE *seed) {
    NAME(vec) sum[FASTPOOL_MOST_ROWS][FASTPOOL_MOST_VECTORS];
    FASTPOOL_UNROLL for (int i = 0; i < m; i++)
        FASTPOOL_UNROLL for (int j = 0; j < v; j++)
            if (seed) sum[i][j] = NAME_SPREAD(seed[i]);
            else sum[i][j] = *(const NAME(loose) *)(c + i * pitch + j * NAME(lanes));
    for (int64_t k = 0; k < depth; k++, a += step) {
        const LANE *row = b + offset[k];
        NAME(vec) x[FASTPOOL_MOST_VECTORS];
        FASTPOOL_UNROLL for (int j = 0; j < v; j++) x[j] = *(const NAME(loose) *)(row + j * NAME(lanes));
        FASTPOOL_UNROLL for (int i = 0; i < m; i++) {
            const NAME(vec) w = NAME_SPREAD(a[i * row_step]);
            FASTPOOL_UNROLL for (int j = 0; j < v; j++) sum[i][j] += w * x[j];
        }
    }
    FASTPOOL_UNROLL for (int i = 0; i < m; i++)
        FASTPOOL_UNROLL for (int j = 0; j < v; j++) *(NAME(loose) *)(c + i * pitch + j * NAME(lanes)) = sum[i][j];
}

#define FASTPOOL_CASE(m, v)                                                                                            \
    case (m) * 16 + (v):                                                                                               \
        if (row_step == 1) NAME(block)(m, v, a, 1, step, b, offset, depth, c, pitch, seed);                            \
        else if (m == FASTPOOL_MOST_ROWS) NAME(block)(m, v, a, row_step, 1, b, offset, depth, c, pitch, seed);         \
        break;
static void NAME(multiply)(const void *weights, int64_t row_step, int64_t step, const void *input, const int32_t *offset,
                           int64_t depth, void *result, int64_t pitch, const void *seeds, int m, int64_t vectors) {
    const LANE *a = weights, *b = input, *seed = seeds;
    LANE *c = result;
    while (vectors > 0) {
        const int v = fastpool_conv_vectors(m, vectors);
        switch (m * 16 + v) { FASTPOOL_BLOCKS(FASTPOOL_CASE) }
        b += v * NAME(lanes), c += v * NAME(lanes), vectors -= v;
    }
}
#undef FASTPOOL_CASE

#ifdef FASTPOOL_SHARED
/* The same for one filter and four rows of outputs `step` lanes apart, each of which reads what the one before does, that
 * far on: what is loaded serves up to four sums, where a load per product would take longer than the product. A tap is
 * [outer][tall][wide]; the order of every chain is that of NAME(block). */
FASTPOOL_INLINE void NAME(rows_block)(const int v, const int tall, const LANE *a, const LANE *b, const int32_t *offset,
                                      int64_t outer, int64_t wide, int64_t step, LANE *c, const LANE *seed) {
    NAME(vec) sum[4][FASTPOOL_MOST_VECTORS];
    FASTPOOL_UNROLL for (int i = 0; i < 4; i++)
        FASTPOOL_UNROLL for (int j = 0; j < v; j++) sum[i][j] = NAME_SPREAD(seed[0]);
    for (int64_t o = 0; o < outer; o++, a += tall * wide, offset += tall * wide) {
        FASTPOOL_UNROLL for (int row = 0; row < tall + 3; row++) {
            for (int64_t t = 0; t < wide; t++) {
                const LANE *from = b + offset[t] + row * step;
                NAME(vec) x[FASTPOOL_MOST_VECTORS];
                FASTPOOL_UNROLL for (int j = 0; j < v; j++) x[j] = *(const NAME(loose) *)(from + j * NAME(lanes));
                FASTPOOL_UNROLL for (int i = 0; i < 4; i++) {
                    if (row < i || row >= i + tall) continue;
                    const NAME(vec) w = NAME_SPREAD(a[(row - i) * wide + t]);
                    FASTPOOL_UNROLL for (int j = 0; j < v; j++) sum[i][j] += w * x[j];
                }
            }
        }
    }
    FASTPOOL_UNROLL for (int i = 0; i < 4; i++)
        FASTPOOL_UNROLL for (int j = 0; j < v; j++) *(NAME(loose) *)(c + i * step + j * NAME(lanes)) = sum[i][j];
}

/* rows >= 4, the last four of which may overlap those before; vectors >= 2. step < 0: the last row reads first. */
static void NAME(rows)(const void *weights, const void *input, const int32_t *offset, int64_t outer, int64_t tall,
                       int64_t wide, int64_t step, void *result, const void *seed, int64_t rows, int64_t vectors) {
    const int64_t pitch = step < 0 ? -step : step;
    for (int64_t r = 0; r < rows; r += 4) {
        if (r + 4 > rows) r = rows - 4;
        const int64_t first = (step < 0 ? r + 3 : r) * pitch;
        const LANE *b = (const LANE *)input + first;
        LANE *c = (LANE *)result + first;
        for (int64_t left = vectors; left > 0;) {
            const int most = FASTPOOL_SHARED_VECTORS;
            const int v = left == most + 1 ? most - 1 : left < most ? (int)left : most; /* a single one is never left */
#define FASTPOOL_CASE(v, tall)                                                                                         \
    case (tall) * 16 + (v):                                                                                            \
        NAME(rows_block)(v, tall, weights, b, offset, outer, wide, step, c, seed);                                     \
        break;
            switch (tall * 16 + v) { FASTPOOL_SHARED(FASTPOOL_CASE) }
#undef FASTPOOL_CASE
            b += v * NAME(lanes), c += v * NAME(lanes), left -= v;
        }
    }
}
#endif

/* c[i][j] += sum over rows r and p < n of a[row_at[r] + offset[i] + p] * b[r * n + p][j], each such sum a chain of its own,
 * for m offsets and v vectors of j */
FASTPOOL_INLINE void NAME(outer_block)(const int m, const int v, const LANE *a, const int32_t *row_at, int64_t rows,
                                       int64_t n, const int32_t *offset, const LANE *b, int64_t b_pitch, LANE *c,
                                       int64_t pitch) {
    NAME(vec) sum[FASTPOOL_MOST_ROWS][FASTPOOL_MOST_VECTORS];
    FASTPOOL_UNROLL for (int i = 0; i < m; i++)
        FASTPOOL_UNROLL for (int j = 0; j < v; j++) sum[i][j] = NAME_SPREAD((LANE)0);
    for (int64_t r = 0; r < rows; r++) {
        const LANE *tap[FASTPOOL_MOST_ROWS];
        FASTPOOL_UNROLL for (int i = 0; i < m; i++) tap[i] = a + row_at[r] + offset[i];
        for (int64_t p = 0; p < n; p++, b += b_pitch) {
            NAME(vec) y[FASTPOOL_MOST_VECTORS];
            FASTPOOL_UNROLL for (int j = 0; j < v; j++) y[j] = *(const NAME(loose) *)(b + j * NAME(lanes));
            FASTPOOL_UNROLL for (int i = 0; i < m; i++) {
                const NAME(vec) x = NAME_SPREAD(tap[i][p]);
                FASTPOOL_UNROLL for (int j = 0; j < v; j++) sum[i][j] += x * y[j];
            }
        }
    }
    FASTPOOL_UNROLL for (int i = 0; i < m; i++)
        FASTPOOL_UNROLL for (int j = 0; j < v; j++) *(NAME(loose) *)(c + i * pitch + j * NAME(lanes)) += sum[i][j];
}

#define FASTPOOL_CASE(m, v)                                                                                            \
    case (m) * 16 + (v):                                                                                               \
        NAME(outer_block)(m, v, a, row_at, rows, n, offset, b, column_pitch, c, pitch);                                \
        break;
static void NAME(outer)(const void *input, const int32_t *row_at, int64_t rows, int64_t n, const int32_t *offset,
                        const void *columns, int64_t column_pitch, void *result, int64_t pitch, int m,
                        int64_t vectors) {
    const LANE *a = input, *b = columns;
    LANE *c = result;
    while (vectors > 0) {
        const int v = fastpool_conv_vectors(m, vectors);
        switch (m * 16 + v) { FASTPOOL_BLOCKS(FASTPOOL_CASE) }
        b += v * NAME(lanes), c += v * NAME(lanes), vectors -= v;
    }
}
#undef FASTPOOL_CASE

/* rows of `n` lanes, `pitch` apart, to columns: to[j * to_pitch + i] = from[i * pitch + j] */
static void NAME(turn)(void *to, int64_t to_pitch, const void *from, int64_t pitch, int64_t rows, int64_t n) {
    LANE *dst = to;
    const LANE *src = from;
    int64_t i = 0;
    for (; i + 16 <= rows; i += 16)
        for (int64_t j = 0; j < n; j++)
            for (int r = 0; r < 16; r++) dst[j * to_pitch + i + r] = src[(i + r) * pitch + j];
    for (; i < rows; i++)
        for (int64_t j = 0; j < n; j++) dst[j * to_pitch + i] = src[i * pitch + j];
}

/* c[t][i] += sum over rows r and p < n of a[i][r][p] * b[row_at[r] + offset[t] + p], the lanes of a vector added up last,
 * for m lines a and v taps t. Lanes behind the n-th count nothing: those of a are 0, and those of b are made so. */
FASTPOOL_INLINE void NAME(dot_block)(const int m, const int v, const LANE *a, int64_t line_pitch, int64_t pitch,
                                     const LANE *b, const int32_t *row_at, int64_t rows, int64_t n,
                                     const int32_t *offset, LANE *c) {
    NAME(vec) sum[FASTPOOL_MOST_ROWS][FASTPOOL_MOST_VECTORS];
    FASTPOOL_UNROLL for (int i = 0; i < m; i++)
        FASTPOOL_UNROLL for (int j = 0; j < v; j++) sum[i][j] = NAME_SPREAD((LANE)0);
    const int64_t whole = n / NAME(lanes) * NAME(lanes);
#if FASTPOOL_VECTORS
    LANE place[NAME(lanes)];
    for (int i = 0; i < NAME(lanes); i++) place[i] = (LANE)i;
    const NAME(mask) kept = *(const NAME(loose) *)place < NAME_SPREAD((LANE)(n - whole));
#endif
    for (int64_t r = 0; r < rows; r++) {
        const LANE *line = a + r * pitch, *row = b + row_at[r];
        for (int64_t p = 0; p < n; p += NAME(lanes)) {
            NAME(vec) y[FASTPOOL_MOST_ROWS];
            FASTPOOL_UNROLL for (int i = 0; i < m; i++)
                y[i] = *(const NAME(loose) *)(line + i * line_pitch + p);
            FASTPOOL_UNROLL for (int j = 0; j < v; j++) {
                NAME(vec) x = *(const NAME(loose) *)(row + offset[j] + p);
#if FASTPOOL_VECTORS
                if (p == whole) x = (NAME(vec))((NAME(mask))x & kept);
#endif
                FASTPOOL_UNROLL for (int i = 0; i < m; i++) sum[i][j] += x * y[i];
            }
        }
    }
    FASTPOOL_UNROLL for (int i = 0; i < m; i++)
        FASTPOOL_UNROLL for (int j = 0; j < v; j++) {
            LANE lane[NAME(lanes)];
            memcpy(lane, &sum[i][j], sizeof lane);
            FASTPOOL_UNROLL for (int step = NAME(lanes) / 2; step > 0; step /= 2)
                FASTPOOL_UNROLL for (int q = 0; q < step; q++) lane[q] += lane[q + step];
            c[j * m + i] += lane[0];
        }
}

#define FASTPOOL_CASE(m, v)                                                                                            \
    case (m) * 16 + (v):                                                                                               \
        NAME(dot_block)(m, v, a, line_pitch, pitch, b, row_at, rows, n, offset, c);                                    \
        break;
static void NAME(dot)(const void *lines, int64_t line_pitch, int64_t pitch, const void *input, const int32_t *row_at,
                      int64_t rows, int64_t n, const int32_t *offset, void *result, int m, int64_t taps) {
    const LANE *a = lines, *b = input;
    LANE *c = result;
    while (taps > 0) {
        const int v = fastpool_conv_vectors(m, taps);
        switch (m * 16 + v) { FASTPOOL_BLOCKS(FASTPOOL_CASE) }
        offset += v, c += v * m, taps -= v;
    }
}
#undef FASTPOOL_CASE
#undef NAME_SPREAD
