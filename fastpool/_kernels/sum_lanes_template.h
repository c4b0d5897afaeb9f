/* Sums over lanes of one type. Included by sum_lanes.h with LANE, SUFFIX and PER, the numbers of LANE that make a lane. */

#define NAME(stem) FASTPOOL_PASTE(stem, SUFFIX)
#define VALUES NAME(vector)

#if FASTPOOL_VECTORS
typedef LANE VALUES __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), aligned(sizeof(LANE)), may_alias));
#else
typedef LANE VALUES;
#endif

enum { NAME(width) = sizeof(VALUES) / sizeof(LANE) };

static void NAME(fill)(void *values, void *codes, int64_t n) {
    (void)codes;
    memset(values, 0, (size_t)n * PER * sizeof(LANE));
}

/* Lanes [i, i + unroll*width): the sum of a chain of taps. Long chains are added in pairs of pairs, so that few of the
 * additions round the whole sum; a seed comes last. */
FASTPOOL_INLINE void NAME(sum_step)(LANE *dst, const LANE *src, const LANE *seed, const int64_t *offset, const int taps,
                                    int64_t i, const int unroll) {
    VALUES total[4];
    int j = 1;
#define TAP(j) (*(const VALUES *)(src + offset[j] * PER + i + u * NAME(width)))
    for (int u = 0; u < unroll; u++) total[u] = TAP(0);
    if (taps < 4) {
        for (; j < taps; j++) {
            for (int u = 0; u < unroll; u++) total[u] += TAP(j);
        }
    } else {
        for (int u = 0; u < unroll; u++) total[u] = (total[u] + TAP(1)) + (TAP(2) + TAP(3));
        for (j = 4; j + 8 <= taps; j += 8) {
            for (int u = 0; u < unroll; u++) {
                total[u] += ((TAP(j) + TAP(j + 1)) + (TAP(j + 2) + TAP(j + 3))) +
                            ((TAP(j + 4) + TAP(j + 5)) + (TAP(j + 6) + TAP(j + 7)));
            }
        }
        for (; j + 2 <= taps; j += 2) {
            for (int u = 0; u < unroll; u++) total[u] += TAP(j) + TAP(j + 1);
        }
        if (j < taps) {
            for (int u = 0; u < unroll; u++) total[u] += TAP(j);
        }
    }
#undef TAP
    if (seed) {
        for (int u = 0; u < unroll; u++) total[u] += *(const VALUES *)(seed + i + u * NAME(width));
    }
    for (int u = 0; u < unroll; u++) *(VALUES *)(dst + i + u * NAME(width)) = total[u];
}

FASTPOOL_INLINE void NAME(sum_run)(LANE *dst, const LANE *src, const LANE *seed, const int64_t *offset, const int taps,
                                   int64_t n) {
    int64_t i = 0;
    for (; i + 4 * NAME(width) <= n; i += 4 * NAME(width)) NAME(sum_step)(dst, src, seed, offset, taps, i, 4);
    for (; i < n; i += NAME(width)) NAME(sum_step)(dst, src, seed, offset, taps, i, 1);
}

static void NAME(reduce)(void *dst, void *dst_codes, const void *src, const void *src_codes, const void *seed,
                         const void *seed_codes, const int64_t *offset, const int64_t *code, int taps, int64_t n) {
    (void)dst_codes, (void)src_codes, (void)seed_codes, (void)code;
    if (seed) NAME(sum_run)(dst, src, seed, offset, taps, n * PER);
    else if (taps == 1) NAME(sum_run)(dst, src, NULL, offset, 1, n * PER);
    else if (taps == 2) NAME(sum_run)(dst, src, NULL, offset, 2, n * PER);
    else if (taps == 3) NAME(sum_run)(dst, src, NULL, offset, 3, n * PER);
    else NAME(sum_run)(dst, src, NULL, offset, taps, n * PER);
}

/* Add n more lanes to the sum of one long window. */
static void NAME(scan)(void *value, int64_t *where, const void *lanes, int64_t position, int64_t n) {
    const LANE *v = lanes;
    LANE *sum = value, partial[FASTPOOL_PARTIALS * PER];
    VALUES parallel[FASTPOOL_PARTIALS * PER / NAME(width)];
    int64_t i = 0;
    (void)where, (void)position;
    memset(parallel, 0, sizeof parallel);
    for (; i + FASTPOOL_PARTIALS <= n; i += FASTPOOL_PARTIALS) {
        for (int u = 0; u < FASTPOOL_PARTIALS * PER / NAME(width); u++) {
            parallel[u] += *(const VALUES *)(v + i * PER + u * NAME(width));
        }
    }
    memcpy(partial, parallel, sizeof partial);
    for (int64_t l = 0; l < (n - i) * PER; l++) partial[l] += v[i * PER + l];
    for (int half = FASTPOOL_PARTIALS / 2; half; half /= 2) {
        for (int l = 0; l < half * PER; l++) partial[l] += partial[half * PER + l];
    }
    for (int l = 0; l < PER; l++) sum[l] += partial[l];
}

/* Rows whose windows are given by bounds. */
static void NAME(windows)(void *dst, void *dst_codes, const void *src, int64_t rows, int64_t dst_pitch, int64_t src_pitch,
                          const int64_t *starts, const int64_t *counts, int64_t step, int64_t n, int64_t code, void *temp,
                          int64_t most) {
    (void)dst_codes, (void)code, (void)temp, (void)most;
    for (int64_t r = 0; r < rows; r++) {
        LANE *sums = (LANE *)dst + r * dst_pitch * PER;
        for (int64_t o = 0; o < n; o++) {
            for (int l = 0; l < PER; l++) {
                const LANE *v = (const LANE *)src + (r * src_pitch + starts[o]) * PER + l;
                LANE total = 0;
                for (int64_t j = 0; j < counts[o];) {
                    const int64_t end = counts[o] - j < FASTPOOL_GROUP ? counts[o] : j + FASTPOOL_GROUP;
                    LANE part = v[j * step * PER];
                    for (j++; j < end; j++) part += v[j * step * PER];
                    total += part;
                }
                sums[o * PER + l] = total;
            }
        }
    }
}

/* A row from one run for every output of a period: output o is place (o + phase) / period of run (o + phase) % period. */
FASTPOOL_INLINE void NAME(weave_by)(LANE *FASTPOOL_RESTRICT dst, const LANE *FASTPOOL_RESTRICT src, int64_t run,
                                    const int64_t period, int64_t phase, int64_t n) {
    int64_t o = 0, place = 0;
    for (; phase && phase < period && o < n; phase++, o++) {
        for (int l = 0; l < PER; l++) dst[o * PER + l] = src[phase * run * PER + l];
        place = 1;
    }
    for (; o + period <= n; o += period, place++) {
        for (int64_t r = 0; r < period; r++) {
            for (int l = 0; l < PER; l++) dst[(o + r) * PER + l] = src[(r * run + place) * PER + l];
        }
    }
    for (int64_t r = 0; o < n; r++, o++) {
        for (int l = 0; l < PER; l++) dst[o * PER + l] = src[(r * run + place) * PER + l];
    }
}

static void NAME(weave)(void *dst, const void *src, int64_t run, int64_t period, int64_t phase, int64_t n) {
    if (period == 2) NAME(weave_by)(dst, src, run, 2, phase, n);
    else if (period == 3) NAME(weave_by)(dst, src, run, 3, phase, n);
    else if (period == 4) NAME(weave_by)(dst, src, run, 4, phase, n);
    else NAME(weave_by)(dst, src, run, period, phase, n);
}

static void NAME(put)(void *values, void *codes, int64_t i, const void *value, int64_t code) {
    (void)codes, (void)code;
    memcpy((LANE *)values + i * PER, value, PER * sizeof(LANE));
}

#undef NAME
#undef VALUES
#undef LANE
#undef SUFFIX
#undef PER
