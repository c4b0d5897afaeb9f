"""Windows as columns of a matrix, and columns added up where their windows lie, over any number of axes.

`planes` is how many arrays of the windows' axes there are. A work unit is a slab of the first axis of one of them, and
goes through all taps, so that what it reads (unfolding) or adds to (folding) stays in the cache. Of each tap, the
windows whose tap lies in the array, and in the slab, are a range along every axis.
"""

from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset


cdef extern from "unfold_rows.h" nogil:
    ctypedef struct fastpool_rows:
        int item
        int sum
        void (*move)(void *, const void *, int64_t, int64_t) noexcept nogil
        void (*add)(void *, int64_t, const void *, int64_t) noexcept nogil
        void (*round)(void *, const float *, int64_t) noexcept nogil
    int fastpool_choose_rows(fastpool_rows *, int)


cdef enum:
    MOST_AXES = 64


ctypedef struct Axis:
    int64_t length
    int64_t kernel
    int64_t stride
    int64_t dilation
    int64_t before
    int64_t out
    int64_t element_stride
    int64_t output_stride


ctypedef struct Windows:
    fastpool_rows rows
    int axes
    Axis axis[MOST_AXES]
    int64_t elements        # of a plane
    int64_t outputs
    int64_t taps
    int64_t step            # of the first axis, per slab
    int64_t slabs


# The windows along every axis whose tap lies where it is wanted.
ctypedef struct Range:
    int64_t first[MOST_AXES]
    int64_t end[MOST_AXES]


cdef int fill_in(Windows *w, int element, const int64_t[:, ::1] axes, int64_t step) except -1:
    """The windows from rows of (length, kernel, stride, dilation, before, out)."""
    cdef int64_t a
    cdef Axis *axis
    if not fastpool_choose_rows(&w.rows, element):
        raise ValueError(f"no rows of element type {element}")
    if not 1 <= axes.shape[0] <= MOST_AXES or axes.shape[1] != 6 or step < 1:
        raise ValueError("the windows have no axes, or too many, or slabs of no elements")
    w.axes = <int>axes.shape[0]
    w.step = step
    w.elements = w.outputs = w.taps = 1
    for a in range(w.axes - 1, -1, -1):
        axis = &w.axis[a]
        axis.length = axes[a, 0]
        axis.kernel = axes[a, 1]
        axis.stride = axes[a, 2]
        axis.dilation = axes[a, 3]
        axis.before = axes[a, 4]
        axis.out = axes[a, 5]
        if min(axis.length, axis.kernel, axis.stride, axis.dilation, axis.out) < 1:
            raise ValueError("an axis is empty")
        axis.element_stride = w.elements
        axis.output_stride = w.outputs
        w.elements *= axis.length
        w.outputs *= axis.out
        w.taps *= axis.kernel
    return 0


cdef inline int64_t quotient_upwards(int64_t a, int64_t b) noexcept nogil:
    """Ceiling division; b > 0."""
    return (a + b - 1) // b if a > 0 else -(-a // b)


cdef bint find_range(const Windows *w, int64_t tap, int64_t low, int64_t high, int64_t *shift, Range *r) noexcept nogil:
    """The windows whose tap lies in the array, and in [low, high) of the first axis; whether there are any.

    `shift` becomes the element under this tap of the first window, as if the array went on beyond its ends.
    """
    cdef bint found = True
    cdef int64_t place
    cdef const Axis *axis
    cdef int a = w.axes - 1
    shift[0] = 0
    while a >= 0:
        axis = &w.axis[a]
        place = tap % axis.kernel * axis.dilation - axis.before
        tap = tap // axis.kernel
        r.first[a] = max(0, quotient_upwards((low if a == 0 else 0) - place, axis.stride))
        r.end[a] = min(axis.out, quotient_upwards((high if a == 0 else axis.length) - place, axis.stride))
        found = found and r.first[a] < r.end[a]
        shift[0] += place * axis.element_stride
        a -= 1
    return found


cdef void unfold_slab(const Windows *w, int64_t unit, const uint8_t *x, uint8_t *columns) noexcept nogil:
    """All taps of a slab of windows."""
    cdef int64_t plane = unit // w.slabs
    cdef int64_t slab = unit % w.slabs * w.step
    cdef int64_t slab_end = min(slab + w.step, w.axis[0].out)
    cdef int leaf = w.axes - 1
    cdef int64_t stride = w.axis[leaf].stride
    cdef int64_t item = w.rows.item
    cdef int64_t low = slab if leaf == 0 else 0
    cdef int64_t high = slab_end if leaf == 0 else w.axis[leaf].out
    cdef int64_t place[MOST_AXES]
    cdef int64_t tap, shift, at, begin, end
    cdef bint any_inside, inside
    cdef int a
    cdef Range r
    cdef uint8_t *row
    x += plane * w.elements * item
    for tap in range(w.taps):
        any_inside = find_range(w, tap, 0, w.axis[0].length, &shift, &r)
        begin = min(max(low, r.first[leaf]), high)
        end = max(min(high, r.end[leaf]), begin)
        for a in range(leaf):
            place[a] = slab if a == 0 else 0
        while True:
            inside = any_inside
            at = shift + begin * stride
            row = columns + (plane * w.taps + tap) * w.outputs * item
            for a in range(leaf):
                inside = inside and r.first[a] <= place[a] < r.end[a]
                at += place[a] * w.axis[a].stride * w.axis[a].element_stride
                row += place[a] * w.axis[a].output_stride * item
            if not inside or begin == end:
                memset(row + low * item, 0, <size_t>((high - low) * item))
            else:
                if begin > low:
                    memset(row + low * item, 0, <size_t>((begin - low) * item))
                w.rows.move(row + begin * item, x + at * item, stride, end - begin)
                if end < high:
                    memset(row + end * item, 0, <size_t>((high - end) * item))
            a = leaf - 1
            while a >= 0:
                place[a] += 1
                if place[a] < (slab_end if a == 0 else w.axis[a].out):
                    break
                place[a] = slab if a == 0 else 0
                a -= 1
            if a < 0:
                break


def unfold(const uint8_t[::1] x, uint8_t[::1] columns, int element, const int64_t[:, ::1] axes, int64_t planes,
           int64_t step, int threads):
    """Write the element under every tap of every window, 0 on padding: a row per tap, a column per window."""
    cdef Windows w
    cdef int64_t i, chunk
    fill_in(&w, element, axes, step)
    w.slabs = (w.axis[0].out + step - 1) // step
    if planes < 1 or (
        x.shape[0] < planes * w.elements * w.rows.item or columns.shape[0] < planes * w.taps * w.outputs * w.rows.item
    ):
        raise ValueError("the arrays are smaller than the windows need")
    if threads > 1:
        chunk = max(1, planes * w.slabs // (16 * threads))  # taking a unit costs as much as a small one takes
        for i in prange(planes * w.slabs, nogil=True, num_threads=threads, schedule="dynamic", chunksize=chunk):
            unfold_slab(&w, i, &x[0], &columns[0])
    else:
        with nogil:
            for i in range(planes * w.slabs):
                unfold_slab(&w, i, &x[0], &columns[0])


cdef void fold_slab(const Windows *w, int64_t unit, const uint8_t *columns, uint8_t *result,
                    uint8_t *work) noexcept nogil:
    """Sums of the elements of a slab: clear, then tap by tap."""
    cdef int64_t plane = unit // w.slabs
    cdef int64_t slab = unit % w.slabs * w.step
    cdef int64_t slab_end = min(slab + w.step, w.axis[0].length)
    cdef int64_t slab_at = slab * w.axis[0].element_stride
    cdef int64_t n = (slab_end - slab) * w.axis[0].element_stride
    cdef int leaf = w.axes - 1
    cdef int64_t stride = w.axis[leaf].stride
    cdef int64_t place[MOST_AXES]
    cdef int64_t tap, shift, at, row
    cdef int a
    cdef Range r
    cdef uint8_t *sums
    result += (plane * w.elements + slab_at) * w.rows.item
    sums = result if w.rows.round == NULL else work
    memset(sums, 0, <size_t>(n * w.rows.sum))
    columns += plane * w.taps * w.outputs * w.rows.item
    for tap in range(w.taps):
        if not find_range(w, tap, slab, slab_end, &shift, &r):
            continue
        for a in range(leaf):
            place[a] = r.first[a]
        while True:
            at = shift - slab_at + r.first[leaf] * stride
            row = tap * w.outputs + r.first[leaf]
            for a in range(leaf):
                at += place[a] * w.axis[a].stride * w.axis[a].element_stride
                row += place[a] * w.axis[a].output_stride
            w.rows.add(sums + at * w.rows.sum, stride, columns + row * w.rows.item, r.end[leaf] - r.first[leaf])
            a = leaf - 1
            while a >= 0:
                place[a] += 1
                if place[a] < r.end[a]:
                    break
                place[a] = r.first[a]
                a -= 1
            if a < 0:
                break
    if w.rows.round != NULL:
        w.rows.round(result, <const float *>sums, n)


def fold(const uint8_t[::1] columns, uint8_t[::1] result, int element, const int64_t[:, ::1] axes, int64_t planes,
         int64_t step, uint8_t[::1] work, int threads):
    """Write for every element the sum of the taps that lie on it, in C order of the taps.

    `work` holds a slab of float32 sums per thread where elements are float16 or bfloat16, and may be empty elsewhere.
    """
    cdef Windows w
    cdef int64_t i, chunk
    cdef int64_t room = 0
    cdef uint8_t *sums = NULL
    fill_in(&w, element, axes, step)
    w.slabs = (w.axis[0].length + step - 1) // step
    threads = max(1, threads)
    if w.rows.round != NULL:
        room = min(step, w.axis[0].length) * w.axis[0].element_stride * w.rows.sum
    if planes < 1 or (
        result.shape[0] < planes * w.elements * w.rows.item
        or columns.shape[0] < planes * w.taps * w.outputs * w.rows.item
        or work.shape[0] < room * threads
    ):
        raise ValueError("the arrays are smaller than the windows need")
    if work.shape[0]:
        sums = &work[0]
    if threads > 1:
        chunk = max(1, planes * w.slabs // (16 * threads))  # taking a unit costs as much as a small one takes
        for i in prange(planes * w.slabs, nogil=True, num_threads=threads, schedule="dynamic", chunksize=chunk):
            fold_slab(&w, i, &columns[0], &result[0], sums + threadid() * room)
    else:
        with nogil:
            for i in range(planes * w.slabs):
                fold_slab(&w, i, &columns[0], &result[0], sums)
