/* Passes over lanes of one type. Included by pool_lanes.h with LANE, CODE, BITS, SUFFIX, LOWEST and perhaps FLOATING; for
 * x86, KIND and REGISTER name the intrinsics of AVX-512, and where MAXIMUM_256 and MAXIMUM_128 do, narrower ones of them. */

#define NAME(stem) FASTPOOL_PASTE(stem, SUFFIX)
#define VALUES NAME(vector)
#define CODES NAME(code_vector)

#if FASTPOOL_VECTORS
/* may_alias and element alignment: loads and stores at any lane */
typedef LANE VALUES __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), aligned(sizeof(LANE)), may_alias));
typedef CODE CODES __attribute__((vector_size(FASTPOOL_VECTOR_BYTES), aligned(sizeof(CODE)), may_alias));
#else
typedef LANE VALUES;
typedef CODE CODES;
#endif

/* Comparisons make a MASK of lanes, by which SELECT and SELECT_CODES choose; LARGER is what GREATER would select. Left to
 * itself the compiler finds neither the instructions for a maximum nor those that choose by a mask. */
#if FASTPOOL_VECTORS && defined(__AVX512BW__)
#define MASK FASTPOOL_PASTE(__mmask, FASTPOOL_PASTE(FASTPOOL_LANES_, BITS))
#define MM512(operation, kind) FASTPOOL_PASTE(_mm512_##operation##_, kind)
#define MM512_MASK(operation) FASTPOOL_PASTE(FASTPOOL_PASTE(_mm512_##operation##_, KIND), _mask)
#define SELECT(mask, yes, no) ((VALUES)MM512(mask_blend, KIND)(mask, (REGISTER)(no), (REGISTER)(yes)))
#define SELECT_CODES(mask, yes, no)                                                                              \
    ((CODES)MM512(mask_blend, FASTPOOL_PASTE(epi, BITS))(mask, (__m512i)(no), (__m512i)(yes)))
#define LARGER(later, earlier) ((VALUES)MM512(max, KIND)((REGISTER)(later), (REGISTER)(earlier)))
#ifdef FLOATING
#define COMPARE(a, b, how) MM512_MASK(cmp)((REGISTER)(a), (REGISTER)(b), how)
#define GREATER(later, earlier) COMPARE(later, earlier, _CMP_GT_OQ)
#define NOT_LESS_OR_EQUAL(later, earlier) COMPARE(later, earlier, _CMP_NLE_UQ)
#define UNORDERED(a, b) COMPARE(a, b, _CMP_UNORD_Q)
#else
#define GREATER(later, earlier) MM512_MASK(cmpgt)((REGISTER)(later), (REGISTER)(earlier))
#endif
#else
#if FASTPOOL_VECTORS
#define MASK CODES
#define AS_MASK(condition) ((CODES)(condition))
#if defined(__AVX2__)
#define CHOOSE(type, mask, yes, no) ((type)_mm256_blendv_epi8((__m256i)(no), (__m256i)(yes), (__m256i)(mask)))
#else
#define CHOOSE(type, mask, yes, no) ((type)(((CODES)(yes) & (mask)) | ((CODES)(no) & ~(mask))))
#endif
#else
#define MASK CODE
#define AS_MASK(condition) ((CODE)-(CODE)(condition))
#define CHOOSE(type, mask, yes, no) ((mask) ? (yes) : (no))
#endif
#define SELECT(mask, yes, no) CHOOSE(VALUES, mask, yes, no)
#define SELECT_CODES(mask, yes, no) CHOOSE(CODES, mask, yes, no)
#define GREATER(later, earlier) AS_MASK((later) > (earlier))
#define NOT_LESS_OR_EQUAL(later, earlier) (~AS_MASK((later) <= (earlier)))
#define UNORDERED(a, b) (AS_MASK((a) != (a)) | AS_MASK((b) != (b)))
#if defined(__AVX2__) && defined(MAXIMUM_256)
#define LARGER(later, earlier) ((VALUES)FASTPOOL_PASTE(_mm256_max_, KIND)((MAXIMUM_256)(later), (MAXIMUM_256)(earlier)))
#elif defined(__SSE2__) && defined(MAXIMUM_128)
#define LARGER(later, earlier) ((VALUES)FASTPOOL_PASTE(_mm_max_, KIND)((MAXIMUM_128)(later), (MAXIMUM_128)(earlier)))
#else
#define LARGER(later, earlier) SELECT(GREATER(later, earlier), later, earlier)
#endif
#endif

/* Whether a mask chooses any lane, and a mask of the lanes that are NaN in either of two vectors. */
#if FASTPOOL_VECTORS && defined(__AVX512BW__)
#define ANY(mask) ((mask) != 0)
#else
#define ANY(mask) NAME(any)(mask)
#endif
#ifdef FLOATING
#define JOIN_NAN(mask, a, b) (mask) |= UNORDERED(a, b);
#else
#define JOIN_NAN(mask, a, b)
#endif

#ifdef FLOATING
/* later > earlier, or later is NaN; and earlier is not NaN */
#define WINS(later, earlier) (NOT_LESS_OR_EQUAL(later, earlier) & ~UNORDERED(earlier, earlier))
#define SCALAR_WINS(later, earlier) (!((later) <= (earlier)) && (earlier) == (earlier))
#define SAME(a, b) ((a) == (b) || ((a) != (a) && (b) != (b)))
#define SAME_LANES(values, one) ((CODES)((one) == (one) ? (values) == (one) : (values) != (values)))
#else
#define WINS(later, earlier) GREATER(later, earlier)
#define SCALAR_WINS(later, earlier) ((later) > (earlier))
#define SAME(a, b) ((a) == (b))
#define SAME_LANES(values, one) ((CODES)((values) == (one)))
#endif

enum { NAME(width) = sizeof(VALUES) / sizeof(LANE) };

#if FASTPOOL_VECTORS
FASTPOOL_INLINE int NAME(any)(CODES mask) {
    union {
        CODES mask;
        uint64_t words[sizeof(CODES) / 8];
    } bits = {mask};
    uint64_t any = 0;
    for (int w = 0; w < (int)(sizeof(CODES) / 8); w++) any |= bits.words[w];
    return any != 0;
}
#endif

static void NAME(fill)(void *values, void *codes, int64_t n) {
    LANE *v = values;
    for (int64_t i = 0; i < n; i++) v[i] = LOWEST;
    if (codes) memset(codes, 0, (size_t)n * sizeof(CODE));
}

#ifdef FLOATING
/* Whether any of n lanes is NaN. */
static int NAME(unordered)(const void *lanes, int64_t n) {
    const LANE *v = lanes;
    int64_t i = 0;
#if FASTPOOL_VECTORS
    MASK nan = (MASK){0};
    for (; i + 2 * NAME(width) <= n; i += 2 * NAME(width)) {
        const VALUES a = *(const VALUES *)(v + i), b = *(const VALUES *)(v + i + NAME(width));
        nan |= UNORDERED(a, b);
    }
    if (ANY(nan)) return 1;
#endif
    for (; i < n; i++) {
        if (v[i] != v[i]) return 1;
    }
    return 0;
}
#endif

/* Lanes [i, i + unroll*width). Several vectors at a time: the latency of one chain of compare and choice hides behind the
 * others. `ordered`: no lane is NaN. */
FASTPOOL_INLINE void NAME(values_step)(LANE *dst, const LANE *src, const LANE *seed, const int64_t *offset, const int taps,
                                       int64_t i, const int ordered, const int unroll) {
    VALUES best[4];
    const LANE *first = seed ? seed + i : src + offset[0] + i;
    for (int u = 0; u < unroll; u++) best[u] = *(const VALUES *)(first + u * NAME(width));
    for (int j = seed ? 0 : 1; j < taps; j++) {
        const LANE *tap = src + offset[j] + i;
        for (int u = 0; u < unroll; u++) {
            VALUES value = *(const VALUES *)(tap + u * NAME(width));
            if (ordered) {
                best[u] = LARGER(value, best[u]);
                continue;
            }
            FASTPOOL_IN_REGISTER(value);
            const MASK wins = WINS(value, best[u]);
            best[u] = SELECT(wins, value, best[u]);
        }
    }
    for (int u = 0; u < unroll; u++) *(VALUES *)(dst + i + u * NAME(width)) = best[u];
}

FASTPOOL_INLINE void NAME(reduce_values)(LANE *dst, const LANE *src, const LANE *seed, const int64_t *offset,
                                         const int taps, int64_t n, const int ordered) {
    int64_t i = 0;
    for (; i + 4 * NAME(width) <= n; i += 4 * NAME(width)) NAME(values_step)(dst, src, seed, offset, taps, i, ordered, 4);
    for (; i < n; i += NAME(width)) NAME(values_step)(dst, src, seed, offset, taps, i, ordered, 1);
}

/* `coded`: the source has codes of its own, to which a tap's code is added; otherwise a tap's code is the whole code */
FASTPOOL_INLINE void NAME(codes_step)(LANE *dst, CODE *dst_codes, const LANE *src, const CODE *src_codes,
                                      const LANE *seed, const CODE *seed_codes, const int64_t *offset,
                                      const int64_t *code, const int taps, int64_t i, const int coded, const int ordered,
                                      const int unroll) {
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
            MASK wins;
            if (ordered) wins = GREATER(value, best[u]), best[u] = LARGER(value, best[u]);
            else wins = WINS(value, best[u]), best[u] = SELECT(wins, value, best[u]);
            where[u] = SELECT_CODES(wins, there, where[u]);
        }
    }
    for (int u = 0; u < unroll; u++) {
        *(VALUES *)(dst + i + u * NAME(width)) = best[u];
        *(CODES *)(dst_codes + i + u * NAME(width)) = where[u];
    }
}

FASTPOOL_INLINE void NAME(reduce_codes)(LANE *dst, CODE *dst_codes, const LANE *src, const CODE *src_codes,
                                        const LANE *seed, const CODE *seed_codes, const int64_t *offset,
                                        const int64_t *code, const int taps, int64_t n, const int coded,
                                        const int ordered) {
    int64_t i = 0;
    for (; i + 2 * NAME(width) <= n; i += 2 * NAME(width)) {
        NAME(codes_step)(dst, dst_codes, src, src_codes, seed, seed_codes, offset, code, taps, i, coded, ordered, 2);
    }
    for (; i < n; i += NAME(width)) {
        NAME(codes_step)(dst, dst_codes, src, src_codes, seed, seed_codes, offset, code, taps, i, coded, ordered, 1);
    }
}

/* The chains of two and three taps are unrolled at compile time. */
FASTPOOL_INLINE void NAME(reduce_as)(void *dst, void *dst_codes, const void *src, const void *src_codes, const void *seed,
                                     const void *seed_codes, const int64_t *offset, const int64_t *code, int taps,
                                     int64_t n, const int ordered) {
    if (!dst_codes) {
        if (seed) NAME(reduce_values)(dst, src, seed, offset, taps, n, ordered);
        else if (taps == 2) NAME(reduce_values)(dst, src, NULL, offset, 2, n, ordered);
        else if (taps == 3) NAME(reduce_values)(dst, src, NULL, offset, 3, n, ordered);
        else NAME(reduce_values)(dst, src, NULL, offset, taps, n, ordered);
    } else if (seed) {
        if (src_codes) {
            NAME(reduce_codes)(dst, dst_codes, src, src_codes, seed, seed_codes, offset, code, taps, n, 1, ordered);
        } else {
            NAME(reduce_codes)(dst, dst_codes, src, NULL, seed, seed_codes, offset, code, taps, n, 0, ordered);
        }
    } else if (src_codes) {
        if (taps == 2) NAME(reduce_codes)(dst, dst_codes, src, src_codes, NULL, NULL, offset, code, 2, n, 1, ordered);
        else if (taps == 3) NAME(reduce_codes)(dst, dst_codes, src, src_codes, NULL, NULL, offset, code, 3, n, 1, ordered);
        else NAME(reduce_codes)(dst, dst_codes, src, src_codes, NULL, NULL, offset, code, taps, n, 1, ordered);
    } else {
        if (taps == 2) NAME(reduce_codes)(dst, dst_codes, src, NULL, NULL, NULL, offset, code, 2, n, 0, ordered);
        else if (taps == 3) NAME(reduce_codes)(dst, dst_codes, src, NULL, NULL, NULL, offset, code, 3, n, 0, ordered);
        else NAME(reduce_codes)(dst, dst_codes, src, NULL, NULL, NULL, offset, code, taps, n, 0, ordered);
    }
}

static void NAME(reduce)(void *dst, void *dst_codes, const void *src, const void *src_codes, const void *seed,
                         const void *seed_codes, const int64_t *offset, const int64_t *code, int taps, int64_t n) {
    NAME(reduce_as)(dst, dst_codes, src, src_codes, seed, seed_codes, offset, code, taps, n, 1);
}
#ifdef FLOATING
static void NAME(reduce_any)(void *dst, void *dst_codes, const void *src, const void *src_codes, const void *seed,
                             const void *seed_codes, const int64_t *offset, const int64_t *code, int taps, int64_t n) {
    NAME(reduce_as)(dst, dst_codes, src, src_codes, seed, seed_codes, offset, code, taps, n, 0);
}
#define REDUCE_ANY NAME(reduce_any)
#else
#define REDUCE_ANY NAME(reduce)
#endif

/* Element bits to a lane. */
FASTPOOL_INLINE LANE NAME(key)(LANE element, CODE flip) {
    CODE bits;
    memcpy(&bits, &element, sizeof bits);
    bits ^= flip;
    memcpy(&element, &bits, sizeof bits);
    return element;
}

#if FASTPOOL_SHUFFLES
/* n >= width whole windows of `taps` elements, `stride` apart, from a row of elements; 0 if `ordered` and some are NaN.
 * Vectors of one phase hold a tap of every window; the last vector overlaps the one before. */
FASTPOOL_INLINE int NAME(join)(LANE *to, const LANE *from, int64_t n, CODE flip, const int stride, const int taps,
                               const int ordered) {
    enum { W = NAME(width) };
#define AT(place) ((VALUES)(*(const CODES *)(from + i * stride + (place)) ^ flip))
#define EVEN(a, b) __builtin_shufflevector(a, b, FASTPOOL_PASTE(FASTPOOL_EVEN_, FASTPOOL_PASTE(FASTPOOL_LANES_, BITS)))
#define ODD(a, b) __builtin_shufflevector(a, b, FASTPOOL_PASTE(FASTPOOL_ODD_, FASTPOOL_PASTE(FASTPOOL_LANES_, BITS)))
    MASK nan = (MASK){0};
    for (int64_t i = 0; i < n; i += W) {
        if (i + W > n) i = n - W;
        VALUES best = {0};
        for (int j = 0; j < taps; j += stride) {
            VALUES tap[4];
            if (stride == 1) {
                tap[0] = AT(j);
            } else if (stride == 2) {
                const VALUES a = AT(j), b = AT(j + W);
                tap[0] = EVEN(a, b), tap[1] = ODD(a, b);
            } else {
                const VALUES a = AT(j), b = AT(j + W), c = AT(j + 2 * W), d = AT(j + 3 * W);
                const VALUES even = EVEN(a, b), odd = ODD(a, b), even2 = EVEN(c, d), odd2 = ODD(c, d);
                tap[0] = EVEN(even, even2), tap[1] = EVEN(odd, odd2), tap[2] = ODD(even, even2), tap[3] = ODD(odd, odd2);
            }
            for (int r = 0; r < stride && j + r < taps; r++) {
                if (j + r == 0) {
                    best = tap[0];
                } else if (ordered) {
                    JOIN_NAN(nan, tap[r], best)
                    best = LARGER(tap[r], best);
                } else {
                    const MASK wins = WINS(tap[r], best);
                    best = SELECT(wins, tap[r], best);
                }
            }
        }
        *(VALUES *)(to + i) = best;
    }
#undef AT
#undef EVEN
#undef ODD
    return !ANY(nan);
}

FASTPOOL_INLINE int NAME(join_by)(LANE *to, const LANE *from, int64_t n, CODE flip, int64_t stride, int64_t taps,
                                  const int ordered) {
#define JOIN(s, k) \
    if (stride == s && taps == k) return NAME(join)(to, from, n, flip, s, k, ordered);
    JOIN(1, 2) JOIN(1, 3) JOIN(2, 2) JOIN(2, 3) JOIN(4, 4)
#undef JOIN
    if (stride == 1) return NAME(join)(to, from, n, flip, 1, (int)taps, ordered);
    if (stride == 2) return NAME(join)(to, from, n, flip, 2, (int)taps, ordered);
    return NAME(join)(to, from, n, flip, 4, (int)taps, ordered);
}
#endif

/* Rows of elements to rows of maxima: windows at stride 1, 2 or 4 that lie side by side or overlap. */
static void NAME(joined)(void *lanes, int64_t pitch, int64_t row_pitch, const void *input, int64_t row_stride,
                         int64_t rows, int64_t taps, int64_t tap_stride, void *scratch, const fastpool_row *plan,
                         int64_t flip, int64_t lowest, int64_t ahead) {
    const int64_t stride = plan->stride, k = plan->joined, bytes = (plan->beyond - plan->first) * (int64_t)sizeof(LANE);
    (void)pitch, (void)taps, (void)tap_stride, (void)scratch, (void)lowest;
    for (int64_t r = 0; r < rows; r++) {
        const LANE *row = (const LANE *)input + r * row_stride;
        LANE *to = (LANE *)lanes + r * row_pitch;
        int64_t low = plan->count, high = plan->count;
        if (ahead) fastpool_prefetch((const char *)(row + plan->first) + ahead, bytes);
#if FASTPOOL_SHUFFLES
        if (plan->high - plan->low >= NAME(width)) {
            low = plan->low, high = plan->high;
            const LANE *from = row + plan->start + low * stride;
            if (!NAME(join_by)(to + low, from, high - low, (CODE)flip, stride, k, 1)) {
                NAME(join_by)(to + low, from, high - low, (CODE)flip, stride, k, 0);
            }
        }
#endif
        for (int64_t q = 0; q < plan->count; q++) {
            if (q == low) q = high;
            if (q == plan->count) break;
            LANE best = LOWEST;
            int64_t e = plan->start + q * stride, end = e + k < plan->beyond ? e + k : plan->beyond;
            for (e = e > plan->first ? e : plan->first; e < end; e++) {
                const LANE next = NAME(key)(row[e], (CODE)flip);
                if (SCALAR_WINS(next, best)) best = next;
            }
            to[q] = best;
        }
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
                const MASK wins = WINS(next, parallel[u]);
                parallel[u] = SELECT(wins, next, parallel[u]);
            }
        }
        for (int u = 1; u < 4; u++) {
            const MASK wins = WINS(parallel[u], parallel[0]);
            parallel[0] = SELECT(wins, parallel[u], parallel[0]);
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
            CODES found = {0};
            for (int u = 0; u < 4; u++) {
                const VALUES next = *(const VALUES *)(v + i + u * NAME(width));
                found |= SAME_LANES(next, best);
            }
            if (NAME(any)(found)) break;
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
        REDUCE_ANY(dst, dst_codes, gathered, NULL, NULL, NULL, offset, tap_code, (int)most, rows * n);
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
#undef MASK
#undef MM512
#undef MM512_MASK
#undef COMPARE
#undef AS_MASK
#undef CHOOSE
#undef SELECT
#undef SELECT_CODES
#undef GREATER
#undef NOT_LESS_OR_EQUAL
#undef UNORDERED
#undef LARGER
#undef WINS
#undef SCALAR_WINS
#undef SAME
#undef SAME_LANES
#undef REDUCE_ANY
#undef ANY
#undef JOIN_NAN
#undef LANE
#undef CODE
#undef SUFFIX
#undef BITS
#undef KIND
#undef REGISTER
#undef MAXIMUM_256
#undef MAXIMUM_128
#undef LOWEST
#undef FLOATING
