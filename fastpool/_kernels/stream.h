/* Writing past the caches: included by the lanes of pooling and of convolution. */
#ifndef FASTPOOL_STREAM_H
#define FASTPOOL_STREAM_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* Copy past the caches, in whole lines: a large output would otherwise be read before it is written, and push out the
 * input. Lines that the run only touches in part are stored as usual. fastpool_stream_fence() ends a series. */
#if defined(__SSE2__)
static void fastpool_stream(void *to, const void *from, int64_t bytes) {
    char *dst = to;
    const char *src = from;
    int64_t head = (int64_t)(-(uintptr_t)dst & 63);
    if (head > bytes) head = bytes;
    memcpy(dst, src, (size_t)head);
    dst += head, src += head, bytes -= head;
    for (; bytes >= 64; dst += 64, src += 64, bytes -= 64) {
#if defined(__AVX512F__)
        _mm512_stream_si512((void *)dst, _mm512_loadu_si512((const void *)src));
#elif defined(__AVX2__)
        _mm256_stream_si256((void *)dst, _mm256_loadu_si256((const void *)src));
        _mm256_stream_si256((void *)(dst + 32), _mm256_loadu_si256((const void *)(src + 32)));
#else
        for (int i = 0; i < 64; i += 16) _mm_stream_si128((void *)(dst + i), _mm_loadu_si128((const void *)(src + i)));
#endif
    }
    memcpy(dst, src, (size_t)bytes);
}
static inline void fastpool_stream_fence(void) { _mm_sfence(); }
#else
static void fastpool_stream(void *to, const void *from, int64_t bytes) { memcpy(to, from, (size_t)bytes); }
static inline void fastpool_stream_fence(void) {}
#endif
#endif
