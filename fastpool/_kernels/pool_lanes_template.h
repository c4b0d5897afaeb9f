/* Passes over lanes of one type. Included by pool_lanes.h with LANE, CODE, SUFFIX, LOWEST and perhaps FLOATING. */

#define NAME(stem) FASTPOOL_PASTE(stem, SUFFIX)
#define VALUES NAME(vector)
#define CODES NAME(code_vector)

#if FASTPOOL_VECTORS
/* may_alias and element alignment: loads and stores at any lane */
typedef LANE VALUES __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), aligned(sizeof(LANE)), may_alias));
typedef CODE CODES __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), aligned(sizeof(CODE)), may_alias));
#define SELECT(type, mask, yes, no) ((type)(((CODES)(yes) & (mask)) | ((CODES)(no) & ~(mask))))
#define MASK(condition) ((CODES)(condition))
#else
typedef LANE VALUES;
typedef CODE CODES;
#define SELECT(type, mask, yes, no) ((mask) ? (yes) : (no))
#define MASK(condition) ((CODES)-(CODES)(condition))
#endif

#ifdef FLOATING
/* later > earlier, or later is NaN; and earlier is not NaN */
#define WINS(later, earlier) (~MASK((later) <= (earlier)) & MASK((earlier) == (earlier)))
#define SCALAR_WINS(later, earlier) (!((later) <= (earlier)) && (earlier) == (earlier))
#define SAME(a, b) ((a) == (b) || ((a) != (a) && (b) != (b)))
#define SAME_LANES(values, one) ((one) == (one) ? MASK((values) == (one)) : MASK((values) != (values)))
#else
#define WINS(later, earlier) MASK((later) > (earlier))
#define SCALAR_WINS(later, earlier) ((later) > (earlier))
#define SAME(a, b) ((a) == (b))
#define SAME_LANES(values, one) MASK((values) == (one))
#endif

enum { NAME(width) = sizeof(VALUES) / sizeof(LANE) };

static void NAME(fill)(void *values, void *codes, int64_t n) {
    LANE *v = values;
    for (int64_t i = 0; i < n; i++) v[i] = LOWEST;
    if (codes) memset(codes, 0, (size_t)n * sizeof(CODE));
}

/* Lanes [i, i + unroll*width). Several vectors at a time: the latency of one chain of compare and blend hides behind the
 * others. */
FASTPOOL_INLINE void NAME(values_step)(LANE *dst, const LANE *src, const LANE *seed, const int64_t *offset, const int taps,
                                       int64_t i, const int unroll) {
    VALUES best[4];
    const LANE *first = seed ? seed + i : src + offset[0] + i;
    for (int u = 0; u < unroll; u++) best[u] = *(const VALUES *)(first + u * NAME(width));
    for (int j = seed ? 0 : 1; j < taps; j++) {
        const LANE *tap = src + offset[j] + i;
        for (int u = 0; u < unroll; u++) {
            VALUES value = *(const VALUES *)(tap + u * NAME(width));
            FASTPOOL_IN_REGISTER(value);
            CODES wins = WINS(value, best[u]);
            best[u] = SELECT(VALUES, wins, value, best[u]);
        }
    }
    for (int u = 0; u < unroll; u++) *(VALUES *)(dst + i + u * NAME(width)) = best[u];
}

FASTPOOL_INLINE void NAME(reduce_values)(LANE *dst, const LANE *src, const LANE *seed, const int64_t *offset,
                                         const int taps, int64_t n) {
    int64_t i = 0;
    for (; i + 4 * NAME(width) <= n; i += 4 * NAME(width)) NAME(values_step)(dst, src, seed, offset, taps, i, 4);
    for (; i < n; i += NAME(width)) NAME(values_step)(dst, src, seed, offset, taps, i, 1);
}

/* `coded`: the source has codes of its own, to which a tap's code is added; otherwise a tap's code is the whole code */
FASTPOOL_INLINE void NAME(codes_step)(LANE *dst, CODE *dst_codes, const LANE *src, const CODE *src_codes,
                                      const LANE *seed, const CODE *seed_codes, const int64_t *offset,
                                      const int64_t *code, const int taps, int64_t i, const int coded, const int unroll) {
    VALUES best[2];
    CODES where[2];
    if (seed) {
        for (int u = 0; u < unroll; u++) {
            best[u] = *(const VALUES *)(seed + i + u * NAME(width));
            where[u] = *(const CODES *)(seed_codes + i + u * NAME(width));
        }
    } else {
        const CODES add = (CODES){0} + (CODE)code[0];
        for (int u = 0; u < unroll; u++) {
            best[u] = *(const VALUES *)(src + offset[0] + i + u * NAME(width));
            where[u] = add;
            if (coded) where[u] += *(const CODES *)(src_codes + offset[0] + i + u * NAME(width));
        }
    }
    for (int j = seed ? 0 : 1; j < taps; j++) {
        const LANE *tap = src + offset[j] + i;
        const CODES add = (CODES){0} + (CODE)code[j];
        for (int u = 0; u < unroll; u++) {
            VALUES value = *(const VALUES *)(tap + u * NAME(width));
            CODES there = add;
            if (coded) there += *(const CODES *)(src_codes + offset[j] + i + u * NAME(width));
            FASTPOOL_IN_REGISTER(value);
            FASTPOOL_IN_REGISTER(there);
            CODES wins = WINS(value, best[u]);
            best[u] = SELECT(VALUES, wins, value, best[u]);
            where[u] = SELECT(CODES, wins, there, where[u]);
        }
    }
    for (int u = 0; u < unroll; u++) {
        *(VALUES *)(dst + i + u * NAME(width)) = best[u];
        *(CODES *)(dst_codes + i + u * NAME(width)) = where[u];
    }
}

FASTPOOL_INLINE void NAME(reduce_codes)(LANE *dst, CODE *dst_codes, const LANE *src, const CODE *src_codes,
                                        const LANE *seed, const CODE *seed_codes, const int64_t *offset,
                                        const int64_t *code, const int taps, int64_t n, const int coded) {
    int64_t i = 0;
    for (; i + 2 * NAME(width) <= n; i += 2 * NAME(width)) {
        NAME(codes_step)(dst, dst_codes, src, src_codes, seed, seed_codes, offset, code, taps, i, coded, 2);
    }
    for (; i < n; i += NAME(width)) NAME(codes_step)(dst, dst_codes, src, src_codes, seed, seed_codes, offset, code, taps, i, coded, 1);
}

/* The chains of two and three taps are unrolled at compile time. */
static void NAME(reduce)(void *dst, void *dst_codes, const void *src, const void *src_codes, const void *seed,
                         const void *seed_codes, const int64_t *offset, const int64_t *code, int taps, int64_t n) {
    if (!dst_codes) {
        if (seed) NAME(reduce_values)(dst, src, seed, offset, taps, n);
        else if (taps == 2) NAME(reduce_values)(dst, src, NULL, offset, 2, n);
        else if (taps == 3) NAME(reduce_values)(dst, src, NULL, offset, 3, n);
        else NAME(reduce_values)(dst, src, NULL, offset, taps, n);
    } else if (seed) {
        if (src_codes) NAME(reduce_codes)(dst, dst_codes, src, src_codes, seed, seed_codes, offset, code, taps, n, 1);
        else NAME(reduce_codes)(dst, dst_codes, src, NULL, seed, seed_codes, offset, code, taps, n, 0);
    } else if (src_codes) {
        if (taps == 2) NAME(reduce_codes)(dst, dst_codes, src, src_codes, NULL, NULL, offset, code, 2, n, 1);
        else if (taps == 3) NAME(reduce_codes)(dst, dst_codes, src, src_codes, NULL, NULL, offset, code, 3, n, 1);
        else NAME(reduce_codes)(dst, dst_codes, src, src_codes, NULL, NULL, offset, code, taps, n, 1);
    } else {
        if (taps == 2) NAME(reduce_codes)(dst, dst_codes, src, NULL, NULL, NULL, offset, code, 2, n, 0);
        else if (taps == 3) NAME(reduce_codes)(dst, dst_codes, src, NULL, NULL, NULL, offset, code, 3, n, 0);
        else NAME(reduce_codes)(dst, dst_codes, src, NULL, NULL, NULL, offset, code, taps, n, 0);
    }
}

/* First the maximum of the run, lane by lane; its place is looked for only if it beats what the window had. */
static void NAME(scan)(void *value, int64_t *where, const void *lanes, int64_t position, int64_t n) {
    const LANE *v = lanes;
    LANE best = v[0];
    int64_t i = 1;
    if (n >= 4 * NAME(width)) {
        VALUES parallel[4];
        LANE spilled[NAME(width)];
        for (int u = 0; u < 4; u++) parallel[u] = *(const VALUES *)(v + u * NAME(width));
        for (i = 4 * NAME(width); i + 4 * NAME(width) <= n; i += 4 * NAME(width)) {
            for (int u = 0; u < 4; u++) {
                VALUES next = *(const VALUES *)(v + i + u * NAME(width));
                CODES wins = WINS(next, parallel[u]);
                parallel[u] = SELECT(VALUES, wins, next, parallel[u]);
            }
        }
        for (int u = 1; u < 4; u++) {
            CODES wins = WINS(parallel[u], parallel[0]);
            parallel[0] = SELECT(VALUES, wins, parallel[u], parallel[0]);
        }
        memcpy(spilled, parallel, sizeof spilled);
        for (int l = 0; l < NAME(width); l++) {
            if (SCALAR_WINS(spilled[l], best)) best = spilled[l];
        }
    }
    for (; i < n; i++) {
        if (SCALAR_WINS(v[i], best)) best = v[i];
    }
    if (*where < 0 || SCALAR_WINS(best, *(LANE *)value)) {
        i = 0;
#if FASTPOOL_VECTORS
        for (; i + 4 * NAME(width) <= n; i += 4 * NAME(width)) {
            union {
                CODES lanes;
                uint64_t words[sizeof(CODES) / 8];
            } found = {{0}};
            uint64_t any = 0;
            for (int u = 0; u < 4; u++) {
                const VALUES next = *(const VALUES *)(v + i + u * NAME(width));
                found.lanes |= SAME_LANES(next, best);
            }
            for (int w = 0; w < (int)(sizeof(CODES) / 8); w++) any |= found.words[w];
            if (any) break;
        }
#endif
        for (; !SAME(v[i], best); i++) {
        }
        *(LANE *)value = v[i];
        *where = position + i;
    }
}

/* Windows of about one size are gathered, tap by tap, so that all of them are reduced at once; a window with fewer taps
 * repeats its last one, which never wins a second time. */
static void NAME(windows)(void *dst, void *dst_codes, const void *src, int64_t rows, int64_t dst_pitch, int64_t src_pitch,
                          const int64_t *starts, const int64_t *counts, int64_t step, int64_t n, int64_t code, void *temp,
                          int64_t most) {
    LANE *values = dst, *gathered = temp;
    CODE *codes = dst_codes;
    int64_t offset[FASTPOOL_GATHERED_TAPS], tap_code[FASTPOOL_GATHERED_TAPS];
    if (most > 0 && most <= FASTPOOL_GATHERED_TAPS && dst_pitch == n) {
        for (int64_t j = 0; j < most; j++) {
            LANE *to = gathered + j * rows * n;
            offset[j] = j * rows * n;
            tap_code[j] = j * code;
            for (int64_t o = 0; o < n; o++) {
                const LANE *from = (const LANE *)src + starts[o] + (j < counts[o] ? j : counts[o] - 1) * step;
                for (int64_t r = 0; r < rows; r++) to[r * n + o] = from[r * src_pitch];
            }
        }
        NAME(reduce)(dst, dst_codes, gathered, NULL, NULL, NULL, offset, tap_code, (int)most, rows * n);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t o = 0; o < n; o++) {
            const LANE *v = (const LANE *)src + r * src_pitch + starts[o];
            LANE best = v[0];
            int64_t where = 0;
            for (int64_t j = 1; j < counts[o]; j++) {
                const LANE next = v[j * step];
                if (SCALAR_WINS(next, best)) best = next, where = j;
            }
            values[r * dst_pitch + o] = best;
            if (codes) codes[r * dst_pitch + o] = (CODE)(where * code);
        }
    }
}

static void NAME(settle)(int64_t *indices, const void *values, int64_t n, int64_t row_shift, const int64_t *shift,
                         int64_t shifts) {
    const LANE *v = values;
    int64_t i = 0;
    for (; i < (shifts < n ? shifts : n); i++) {
        if (v[i] == LOWEST) indices[i] += row_shift + shift[i];
    }
    if (row_shift) {
        for (; i < n; i++) indices[i] += v[i] == LOWEST ? row_shift : 0;
    }
}

static void NAME(put)(void *values, void *codes, int64_t i, const void *value, int64_t code) {
    ((LANE *)values)[i] = *(const LANE *)value;
    if (codes) ((CODE *)codes)[i] = (CODE)code;
}

#undef NAME
#undef VALUES
#undef CODES
#undef SELECT
#undef MASK
#undef WINS
#undef SCALAR_WINS
#undef SAME
#undef SAME_LANES
#undef LANE
#undef CODE
#undef SUFFIX
#undef LOWEST
#undef FLOATING
