"""Memory of large results, kept for the next result of about the same size.

Fresh memory costs page faults: filling it takes two to three times as long as filling mapped memory, longer than most
pooling. So the memory of a released result waits here for the next one, up to a bound. A block belongs to
exactly one result at a time: arrays and views hold the `Block` itself, and only its end gives the memory back.
"""

import os

import numpy as np

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.pythread cimport PyThread_acquire_lock, PyThread_allocate_lock, PyThread_release_lock, PyThread_type_lock
from libc.stdint cimport uintptr_t


cdef extern from *:
    """
    #if defined(__linux__)
    #include <sys/mman.h>
    /* what NumPy does for its own large arrays */
    static void fastpool_ask_for_huge_pages(void *from, size_t bytes) {
    #ifdef MADV_HUGEPAGE
        (void)madvise(from, bytes, MADV_HUGEPAGE);
    #endif
    }
    #else
    static void fastpool_ask_for_huge_pages(void *from, size_t bytes) { (void)from, (void)bytes; }
    #endif
    """
    void fastpool_ask_for_huge_pages(void *, size_t) nogil


cdef enum:
    KEPT = 16               # blocks at most
    PAGE = 2 << 20          # a huge page: blocks start at one
    LEAST = 1 << 20         # smaller results are NumPy's


cdef struct Memory:
    void *raw
    size_t size             # usable, from the first huge page


cdef Memory kept[KEPT]
cdef int count = 0
cdef size_t held = 0
cdef PyThread_type_lock lock = PyThread_allocate_lock()

BOUND = 256 << 20
_text = os.environ.get("FASTPOOL_CACHE_BYTES") or str(BOUND)
if not (_text.isascii() and _text.isdigit()):
    raise ImportError(f"FASTPOOL_CACHE_BYTES={_text!r} is not a number of bytes")
cdef size_t bound = int(_text)


cdef Memory take(size_t size) noexcept nogil:
    """The smallest kept block that fits without waste, else new memory (raw is NULL where there is none)."""
    cdef Memory found
    cdef int i
    cdef int best = -1
    global count, held
    size = (size + PAGE - 1) // PAGE * PAGE
    found.raw = NULL
    found.size = size
    PyThread_acquire_lock(lock, 1)
    for i in range(count):
        if size <= kept[i].size <= size + size // 4 and (best < 0 or kept[i].size < kept[best].size):
            best = i
    if best >= 0:
        found = kept[best]
        count -= 1
        held -= found.size
        for i in range(best, count):    # the oldest stays first
            kept[i] = kept[i + 1]
    PyThread_release_lock(lock)
    if best < 0:
        found.raw = PyMem_RawMalloc(size + PAGE)
        if found.raw != NULL:
            fastpool_ask_for_huge_pages(start(found.raw), size)
    return found


cdef void give_back(Memory memory) noexcept nogil:
    """Keep a block, and free the oldest ones that no longer fit the bound."""
    cdef Memory old
    cdef int i
    global count, held
    if memory.size > bound:
        PyMem_RawFree(memory.raw)
        return
    while True:
        old.raw = NULL
        PyThread_acquire_lock(lock, 1)
        if count < KEPT and held + memory.size <= bound:
            kept[count] = memory
            count += 1
            held += memory.size
        else:
            old = kept[0]
            count -= 1
            held -= old.size
            for i in range(count):
                kept[i] = kept[i + 1]
        PyThread_release_lock(lock)
        if old.raw == NULL:
            return
        PyMem_RawFree(old.raw)


cdef inline void *start(void *raw) noexcept nogil:
    return <void *>((<uintptr_t>raw + PAGE - 1) // PAGE * PAGE)


cdef class Block:
    """Memory of one result, for as long as any array or view refers to it."""

    cdef Memory memory
    cdef Py_ssize_t length

    def __cinit__(self, Py_ssize_t length):
        self.memory = take(<size_t>length)
        if self.memory.raw == NULL:
            raise MemoryError(f"a result of {length} bytes")
        self.length = length

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, start(self.memory.raw), self.length, False, flags)

    def __dealloc__(self):
        if self.memory.raw != NULL:
            give_back(self.memory)


def empty(tuple shape, dtype):
    """An uninitialised array as by `numpy.empty`; large ones in recycled memory."""
    cdef Py_ssize_t size = dtype.itemsize
    cdef Py_ssize_t n
    for n in shape:
        size *= n
    if size < LEAST or bound == 0:
        return np.empty(shape, dtype)
    return np.frombuffer(Block(size), dtype=np.uint8).view(dtype).reshape(shape)


def held_bytes():
    """Bytes that are kept for later results."""
    return held


def release():
    """Free all memory that is kept for later results."""
    cdef Memory old
    global count, held
    while True:
        old.raw = NULL
        PyThread_acquire_lock(lock, 1)
        if count:
            count -= 1
            old = kept[count]
            held -= old.size
        PyThread_release_lock(lock)
        if old.raw == NULL:
            return
        PyMem_RawFree(old.raw)
