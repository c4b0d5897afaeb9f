"""Gradients and values by flat index: the backward of every pooling that returns indices, and unpooling.

Work is cut by *destination*: a worker owns a slab of the result, clears it, and goes through the sources in C order, so
that sums have one fixed order and the last of several assignments wins, for any number of threads. Sources are grouped
in blocks whose smallest and largest index are known, so that a worker looks only at blocks that reach into its slab.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset


cdef extern from "half.h" nogil:
    float fastpool_from_float16(uint16_t)
    uint16_t fastpool_to_float16(float)
    float fastpool_from_bfloat16(uint16_t)
    uint16_t fastpool_to_bfloat16(float)


# Integers wrap around, which C defines for unsigned ones only; signed arrays come as unsigned views.
ctypedef fused element_t:
    uint8_t
    uint16_t
    uint32_t
    uint64_t
    float
    double


def block_ranges(const int64_t[::1] indices, int64_t size, int64_t block, int64_t[::1] low, int64_t[::1] high,
                 int threads):
    """Smallest and largest index of every block of `block` indices; returns whether all lie in [0, size)."""
    cdef int64_t blocks = low.shape[0]
    cdef int64_t n = indices.shape[0]
    cdef int64_t b
    if high.shape[0] != blocks or (n + block - 1) // block != blocks:
        raise ValueError("the ranges are not of the size that the blocks need")
    cdef bint good = True
    if threads > 1:
        for b in prange(blocks, nogil=True, num_threads=threads, schedule="static"):
            block_range(&indices[b * block], min(block, n - b * block), &low[b], &high[b])
    else:
        with nogil:
            for b in range(blocks):
                block_range(&indices[b * block], min(block, n - b * block), &low[b], &high[b])
    for b in range(blocks):
        good = good and low[b] >= 0 and high[b] < size
    return good


cdef void block_range(const int64_t *indices, int64_t n, int64_t *low, int64_t *high) noexcept nogil:
    cdef int64_t smallest = indices[0]
    cdef int64_t largest = indices[0]
    cdef int64_t i
    for i in range(n):
        smallest = indices[i] if indices[i] < smallest else smallest
        largest = indices[i] if indices[i] > largest else largest
    low[0] = smallest
    high[0] = largest


cdef struct Scatter:
    const int64_t *indices
    int64_t n
    int64_t block
    const int64_t *low
    const int64_t *high
    int64_t size
    int64_t slab
    const int64_t *first    # per slab: the blocks [first, last) that can reach into it
    const int64_t *last


cdef void scatter_slab(
    const Scatter *s, int64_t slab, const element_t *source, element_t *result, bint add
) noexcept nogil:
    """Clear a slab, then add (or assign) the sources that point into it, in order."""
    cdef int64_t begin = slab * s.slab
    cdef int64_t end = min(begin + s.slab, s.size)
    cdef int64_t b, i, stop
    memset(&result[begin], 0, <size_t>(end - begin) * sizeof(element_t))
    for b in range(s.first[slab], s.last[slab]):
        if s.high[b] < begin or s.low[b] >= end:
            continue
        i = b * s.block
        stop = min(i + s.block, s.n)
        if s.low[b] >= begin and s.high[b] < end:
            if add:
                while i < stop:
                    result[s.indices[i]] = <element_t>(result[s.indices[i]] + source[i])
                    i += 1
            else:
                while i < stop:
                    result[s.indices[i]] = source[i]
                    i += 1
        else:
            while i < stop:
                if begin <= s.indices[i] < end:
                    if add:
                        result[s.indices[i]] = <element_t>(result[s.indices[i]] + source[i])
                    else:
                        result[s.indices[i]] = source[i]
                i += 1


cdef void scatter_half_slab(
    const Scatter *s, int64_t slab, const uint16_t *source, uint16_t *result, float *sums, bint brain
) noexcept nogil:
    """The same for half floats, whose sums are kept in float32 and rounded once."""
    cdef int64_t begin = slab * s.slab
    cdef int64_t end = min(begin + s.slab, s.size)
    cdef int64_t b, i, stop
    memset(sums, 0, <size_t>(end - begin) * sizeof(float))
    for b in range(s.first[slab], s.last[slab]):
        if s.high[b] < begin or s.low[b] >= end:
            continue
        stop = min(b * s.block + s.block, s.n)
        for i in range(b * s.block, stop):
            if begin <= s.indices[i] < end:
                if brain:
                    sums[s.indices[i] - begin] += fastpool_from_bfloat16(source[i])
                else:
                    sums[s.indices[i] - begin] += fastpool_from_float16(source[i])
    for i in range(end - begin):
        result[begin + i] = fastpool_to_bfloat16(sums[i]) if brain else fastpool_to_float16(sums[i])


cdef int fill_in(Scatter *s, const int64_t[::1] indices, int64_t block, const int64_t[::1] low, const int64_t[::1] high,
                 int64_t size, int64_t slab, const int64_t[::1] first, const int64_t[::1] last) except -1:
    """Check that the parts fit each other; indices themselves were checked by `block_ranges`."""
    cdef int64_t slabs = (size + slab - 1) // slab
    cdef int64_t i
    s.n = indices.shape[0]
    s.block = block
    s.size = size
    s.slab = slab
    cdef int64_t blocks = (s.n + block - 1) // block
    if low.shape[0] != blocks or high.shape[0] != blocks or first.shape[0] != slabs or last.shape[0] != slabs:
        raise ValueError("the blocks and slabs are not of the size of the arrays")
    for i in range(slabs):
        if first[i] < 0 or last[i] > blocks:
            raise ValueError("a slab names blocks that are not there")
    for i in range(blocks):
        if low[i] < 0 or high[i] >= size:
            raise ValueError("an index lies outside the result")
    s.indices = &indices[0] if s.n else NULL
    s.low = &low[0] if blocks else NULL
    s.high = &high[0] if blocks else NULL
    s.first = &first[0] if slabs else NULL
    s.last = &last[0] if slabs else NULL
    return 0


def scatter(const element_t[::1] source, const int64_t[::1] indices, element_t[::1] result, bint add, int64_t block,
            const int64_t[::1] low, const int64_t[::1] high, int64_t slab, const int64_t[::1] first,
            const int64_t[::1] last, int threads):
    """result = 0; result[indices] += source (`add`) or = source, in C order of the sources."""
    cdef Scatter s
    cdef int64_t i
    cdef const element_t *from_
    fill_in(&s, indices, block, low, high, result.shape[0], slab, first, last)
    if source.shape[0] != s.n:
        raise ValueError("source and indices differ in size")
    cdef int64_t slabs = first.shape[0]
    if slabs == 0:
        return
    from_ = &source[0] if s.n else NULL
    if threads > 1:
        for i in prange(slabs, nogil=True, num_threads=threads, schedule="dynamic"):
            scatter_slab(&s, i, from_, &result[0], add)
    else:
        with nogil:
            for i in range(slabs):
                scatter_slab(&s, i, from_, &result[0], add)


def scatter_half(const uint16_t[::1] source, const int64_t[::1] indices, uint16_t[::1] result, bint brain,
                 int64_t block, const int64_t[::1] low, const int64_t[::1] high, int64_t slab, const int64_t[::1] first,
                 const int64_t[::1] last, int threads):
    """The same sums for float16 (or bfloat16: `brain`)."""
    cdef Scatter s
    cdef int64_t i
    cdef const uint16_t *from_
    cdef float *sums
    fill_in(&s, indices, block, low, high, result.shape[0], slab, first, last)
    if source.shape[0] != s.n:
        raise ValueError("source and indices differ in size")
    cdef int64_t slabs = first.shape[0]
    if slabs == 0:
        return
    from_ = &source[0] if s.n else NULL
    threads = <int>max(1, min(threads, slabs))
    sums = <float *>PyMem_RawMalloc(<size_t>(slab * threads) * sizeof(float))
    if sums == NULL:
        raise MemoryError
    if threads > 1:
        for i in prange(slabs, nogil=True, num_threads=threads, schedule="dynamic"):
            scatter_half_slab(&s, i, from_, &result[0], sums + threadid() * slab, brain)
    else:
        with nogil:
            for i in range(slabs):
                scatter_half_slab(&s, i, from_, &result[0], sums, brain)
    PyMem_RawFree(sums)


def gather(const element_t[::1] source, const int64_t[::1] indices, element_t[::1] result, int threads):
    """result = source[indices]; the indices were checked."""
    cdef int64_t n = indices.shape[0]
    cdef int64_t i
    if result.shape[0] != n:
        raise ValueError("result and indices differ in size")
    if threads > 1:
        for i in prange(n, nogil=True, num_threads=threads, schedule="static"):
            result[i] = source[indices[i]]
    else:
        with nogil:
            for i in range(n):
                result[i] = source[indices[i]]
