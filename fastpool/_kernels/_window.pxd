# Window arithmetic of the compiled plans; the same rules as fastpool/_geometry.py, against which a test sweeps them.

from libc.stdint cimport int64_t


cdef inline int64_t window_output_length(
    int64_t length, int64_t kernel, int64_t stride, int64_t dilation, int64_t before, int64_t after, bint ceil_mode
) noexcept nogil:
    """Number of windows along an axis, 0 where none fits."""
    cdef int64_t room = length + before + after - (dilation * (kernel - 1) + 1)
    cdef int64_t out
    if ceil_mode:
        room += stride - 1
    if room < 0:
        return 0
    out = room // stride + 1
    if ceil_mode and (out - 1) * stride >= length + before:
        out -= 1
    return out


cdef inline int64_t window_first_tap(int64_t output, int64_t stride, int64_t dilation, int64_t before) noexcept nogil:
    """The first tap of a window that does not lie in the padding before the axis."""
    cdef int64_t hidden = before - output * stride
    return (hidden + dilation - 1) // dilation if hidden > 0 else 0


cdef inline bint window_is_sound(
    int64_t length, int64_t kernel, int64_t stride, int64_t dilation, int64_t before, int64_t after, int64_t out
) noexcept nogil:
    """Whether every window starts on the axis or its padding: what the kernels rely on, checked once per plan."""
    return (
        length >= 1 and kernel >= 1 and stride >= 1 and dilation >= 1 and before >= 0 and after >= 0 and out >= 1
        and (out - 1) * stride < length + before + after
    )
