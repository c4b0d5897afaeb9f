"""Convolution, its transpose and its gradient by the weight over any number of axes, by products of matrices that are
never made as a whole.

A `Plan` describes outputs that are sums of weight times input over taps at constant distances. The batch is its first
axis. A convolution has one `Role`; a transposed convolution, which is also the gradient by the input, has one for every
remainder of an output's coordinates modulo the strides, since these outputs have the same taps.

Direct: a work unit copies the input of a tile of outputs, padding included, into its thread's workspace, one plane for
every remainder of a coordinate modulo the step, so that each tap of a row of outputs is a run at a constant offset.
Runs of several rows are one run where the places between them are cheap to compute and to drop.
Gemm: a work unit gathers the taps of a run of outputs, some rows of the product at a time.
In both, an output is one chain of sums: the bias, then channel by channel, tap by tap.
"""

from cython.parallel cimport prange, threadid
from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memset

import numpy as np


cdef extern from "conv_lanes.h" nogil:
    enum:
        FASTPOOL_PANEL
        FASTPOOL_PANEL_PITCH
        FASTPOOL_MOST_ROWS
    ctypedef struct fastpool_conv_lanes:
        int lane_bytes
        int stored_bytes
        int result_bytes
        int lanes
        void (*load)(void *, const void *, int64_t, int64_t) noexcept nogil
        void (*load_rows)(void *, int64_t, const void *, int64_t, int64_t, int64_t, int64_t, int64_t,
                          int64_t) noexcept nogil
        void (*pack)(void *, int64_t, int64_t, const void *, int64_t, int64_t, int64_t, const int64_t *,
                     int64_t) noexcept nogil
        void (*store)(void *, const void *, int64_t, int64_t) noexcept nogil
        void (*store_rows)(void *, int64_t, const void *, int64_t, int64_t, int64_t, int64_t) noexcept nogil
        void (*store_pairs)(void *, int64_t, const void *, const void *, int64_t, int64_t, int64_t,
                            int64_t) noexcept nogil
        void (*multiply)(const void *, int64_t, int64_t, const void *, const int32_t *, int64_t, void *, int64_t,
                         const void *, int, int64_t) noexcept nogil
        void (*rows)(const void *, const void *, const int32_t *, int64_t, int64_t, int64_t, int64_t, void *,
                     const void *, int64_t, int64_t) noexcept nogil
        void (*outer)(const void *, const int32_t *, int64_t, int64_t, const int32_t *, const void *, int64_t, void *,
                      int64_t, int, int64_t) noexcept nogil
        void (*dot)(const void *, int64_t, int64_t, const void *, const int32_t *, int64_t, int64_t, const int32_t *,
                    void *, int, int64_t) noexcept nogil
        void (*turn)(void *, int64_t, const void *, int64_t, int64_t, int64_t) noexcept nogil
    void fastpool_stream_rows(void *, int64_t, const void *, int64_t, int64_t, int64_t)
    void fastpool_stream_fence()
    int fastpool_choose_conv_lanes(fastpool_conv_lanes *, int)
    int fastpool_conv_rows(int64_t)


cdef enum:
    MOST_AXES = 64
    RUN = 96            # outputs of a gemm unit: whole vectors, whatever their length
    DEPTH = 256         # rows of the product that it gathers at a time
    ALIGNMENT = 64      # bytes
    TURNED = 16         # rows of a gradient that are turned at a time
    FEW_WEIGHTS = 1 << 14   # are packed by one thread: waking another would take as long
    FEW = 4             # filters of a group for which the weight gradient may have lanes along positions

MOST_DIMENSIONS = MOST_AXES
SHARED_HEIGHTS = (7, 5, 3)      # as in conv_lanes.h


ctypedef struct Axis:
    int64_t length          # of the input
    int64_t step            # input elements from output to output
    int64_t input_stride
    int64_t tile            # outputs of a full tile
    int64_t tiles
    int64_t low             # place of the first tap of output 0
    int64_t span            # places that a tile needs beyond its outputs
    int64_t pitch           # lanes from place to place
    int64_t places          # of a full tile
    int64_t shared          # of them, padding that is the start of the next row's (or plane's) as well
    int64_t phases
    int64_t *residue        # per phase: place j is input element (j + low) * step + residue


ctypedef struct Role:
    int64_t count[MOST_AXES]        # outputs
    int64_t output_stride[MOST_AXES]
    int64_t base                    # the first output
    int64_t taps
    int64_t depth                   # channels times taps
    int64_t weights_at              # in the packed weights of a group
    int64_t first_run               # of the gemm units of a group
    int64_t *weight                 # per tap: place in the kernel
    int64_t *shift                  # per tap and axis: input element of output 0
    int32_t *offset                 # direct, per channel and tap: lane of output 0 in the tile
    bint paired                     # direct: the outputs of the next role lie between those of this one
    int64_t tall                    # > 0: so many taps along the second axis from the end, `wide` along the last, for
    int64_t wide                    # which a row of outputs reads what the one before it does, a row (`step`) on
    int64_t step


ctypedef struct Plan:
    fastpool_conv_lanes lanes
    int axes
    Axis axis[MOST_AXES]
    int roles
    Role *role
    int64_t groups
    int64_t inputs                  # channels of a group
    int64_t outputs
    int64_t input_channel           # elements from channel to channel
    int64_t output_channel
    int64_t weight_input            # elements of the weight from channel to channel
    int64_t weight_output
    int64_t weight_group
    # filters, in blocks of as many rows as a register block has
    int64_t blocks
    int64_t *block_rows
    int64_t *block_first            # first filter
    int64_t *block_at               # first row, counting those filled up with zeros
    int64_t rows
    bint in_place                   # weights are read where they are, not packed,
    int64_t weight_step             # so far apart from row to row of the product
    int64_t packed_group            # lanes of the packed weights of a group
    # direct
    bint direct
    bint stream                     # results are written past the caches
    int64_t flat                    # innermost axes that are one run
    int64_t channel_pitch
    int64_t plane                   # lanes of one phase of a channel
    int64_t phases
    int64_t tiles
    int64_t parts                   # of the blocks
    int64_t run                     # lanes of the longest run
    int64_t rows_of_tile            # for the gradient by the weight
    int64_t lines_at                # bytes into a thread's workspace: its gradients, where its rows start
    int64_t turned_at
    int64_t row_at
    # gemm
    int64_t runs                    # of a group
    int32_t *panel_offset
    int64_t units
    int64_t scratch_at              # bytes into a thread's workspace
    int64_t segments_at
    int64_t workspace


ctypedef struct Segment:
    # Outputs of a row, gathered as one.
    int64_t lane
    int64_t count
    int64_t place               # element of the result
    int64_t at                  # of the input, for a tap without shift
    int64_t coordinate[MOST_AXES]


cdef inline int64_t quotient(int64_t a, int64_t b) noexcept nogil:
    """Floor division; b > 0."""
    if b == 1:
        return a
    return a // b if a >= 0 else -((b - 1 - a) // b)


cdef inline int64_t rounded_up(int64_t a, int64_t b) noexcept nogil:
    return (a + b - 1) // b * b


cdef inline bint advance(int64_t *place, const int64_t *count, int first, int last) noexcept nogil:
    """The next place of axes [first, last) in C order; after the last one False, and the first place again."""
    cdef int a = last - 1
    while a >= first:
        place[a] += 1
        if place[a] < count[a]:
            return True
        place[a] = 0
        a -= 1
    return False


cdef inline uint8_t *aligned(uint8_t *at) noexcept nogil:
    return <uint8_t *>((<uintptr_t>at + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT)


# ---------------------------------------------------------------------------------------------- weights


cdef void pack_block(const Plan *p, int64_t group, int64_t r, int64_t b, const uint8_t *weight,
                     uint8_t *packed) noexcept nogil:
    """Weights of a block of filters, one row of the product after the other."""
    cdef const Role *role = &p.role[r]
    cdef int64_t lane = p.lanes.lane_bytes
    cdef int64_t stored = p.lanes.stored_bytes
    cdef int64_t rows = p.block_rows[b]
    cdef int64_t filters = min(rows, p.outputs - p.block_first[b])
    p.lanes.pack(packed + (group * p.packed_group + role.weights_at + p.block_at[b] * role.depth) * lane, rows, filters,
                 weight + (group * p.weight_group + p.block_first[b] * p.weight_output) * stored, p.weight_output,
                 p.inputs, p.weight_input, role.weight, role.taps)


cdef inline const uint8_t *weights_of(const Plan *p, const Role *role, int64_t group, int64_t b, int64_t k,
                                      const uint8_t *weights) noexcept nogil:
    """The weights of a block of filters from row k of the product on: in the array, or packed."""
    if p.in_place:
        return weights + (group * p.weight_group + p.block_first[b] * p.weight_output
                          + k * p.weight_step) * p.lanes.lane_bytes
    return weights + (group * p.packed_group + role.weights_at + p.block_at[b] * role.depth
                      + k * p.block_rows[b]) * p.lanes.lane_bytes


cdef inline int64_t filter_step(const Plan *p) noexcept nogil:
    """Lanes from the weight of a filter to that of the next one."""
    return p.weight_output if p.in_place else 1


cdef inline int64_t depth_step(const Plan *p, int64_t b) noexcept nogil:
    """Lanes from a weight of a filter to its next one, in a block of filters."""
    return p.weight_step if p.in_place else p.block_rows[b]


# ---------------------------------------------------------------------------------------------- direct


cdef inline void inside(const Axis *axis, int64_t element, int64_t n, int64_t *begin, int64_t *end) noexcept nogil:
    """Which of n places, the first of which is `element`, lie inside the input."""
    begin[0] = min(n, max(0, -quotient(element, axis.step)))
    end[0] = max(begin[0], min(n, -quotient(element - axis.length, axis.step)))


cdef void load_tile(const Plan *p, const int64_t *first, const int64_t *count, int64_t channel, int64_t last_channel,
                    const uint8_t *x, uint8_t *tile) noexcept nogil:
    """Input of some channels of a tile, zero where there is none, by channel, phase and place."""
    cdef int leaf = p.axes - 1
    cdef int outer = leaf - 1           # axes outside of the rows that are loaded as one
    cdef int64_t lane = p.lanes.lane_bytes
    cdef int64_t stored = p.lanes.stored_bytes
    cdef int64_t place[MOST_AXES]
    cdef int64_t places[MOST_AXES]
    cdef int64_t phase[MOST_AXES]
    cdef const Axis *axis = &p.axis[leaf]
    cdef const Axis *above = &p.axis[outer]
    cdef int64_t n = count[leaf] + axis.span
    cdef int64_t rows = count[outer] + above.span
    cdef int64_t pitch = above.pitch
    cdef int64_t plane, begin, end, first_row, last_row, element, at, from_
    cdef int a, outside
    cdef uint8_t *to
    for a in range(outer):
        places[a] = count[a] + p.axis[a].span
    while channel < last_channel:
        for a in range(p.axes):
            phase[a] = 0
        for plane in range(p.phases):
            element = (first[leaf] + axis.low) * axis.step + axis.residue[phase[leaf]]
            inside(axis, element, n, &begin, &end)
            from_ = (element + begin * axis.step) * axis.input_stride + channel * p.input_channel
            element = (first[outer] + above.low) * above.step + above.residue[phase[outer]]
            inside(above, element, rows, &first_row, &last_row)
            from_ += (element + first_row * above.step) * above.input_stride
            for a in range(outer):
                place[a] = 0
            while True:
                to = tile + (channel * p.channel_pitch + plane * p.plane) * lane
                at = from_
                outside = begin == end
                for a in range(outer):
                    element = (first[a] + p.axis[a].low + place[a]) * p.axis[a].step + p.axis[a].residue[phase[a]]
                    outside |= element < 0 or element >= p.axis[a].length
                    at += element * p.axis[a].input_stride
                    to += place[a] * p.axis[a].pitch * lane
                if outside:
                    clear_rows(to, rows, pitch * lane, n * lane)
                else:
                    clear_rows(to, first_row, pitch * lane, n * lane)
                    p.lanes.load_rows(to + first_row * pitch * lane, pitch, x + at * stored,
                                      above.step * above.input_stride, last_row - first_row, begin, end, n,
                                      axis.step * axis.input_stride)
                    clear_rows(to + last_row * pitch * lane, rows - last_row, pitch * lane, n * lane)
                if not advance(place, places, 0, outer):
                    break
            a = leaf
            while a >= 0:
                phase[a] += 1
                if phase[a] < p.axis[a].phases:
                    break
                phase[a] = 0
                a -= 1
        channel += 1


cdef inline void clear_rows(uint8_t *to, int64_t rows, int64_t pitch, int64_t n) noexcept nogil:
    """Zeros, n bytes in each row; what lies between them may be overwritten too."""
    if rows > 0:
        memset(to, 0, <size_t>((rows - 1) * pitch + n))


cdef void direct_unit(const Plan *p, int64_t unit, const uint8_t *x, const uint8_t *weights, const uint8_t *seeds,
                      uint8_t *y, uint8_t *work) noexcept nogil:
    """The outputs of a tile: its input, then role by role and block by block the runs of its rows."""
    cdef int64_t lane = p.lanes.lane_bytes
    cdef int64_t result = p.lanes.result_bytes
    cdef int64_t first[MOST_AXES]
    cdef int64_t count[MOST_AXES]
    cdef int64_t place[MOST_AXES]
    cdef int64_t part = unit % p.parts
    cdef int64_t tile = unit // p.parts % p.tiles
    cdef int64_t group = unit // p.parts // p.tiles
    cdef int64_t b, run, pitch, at, to, row, source, beside
    cdef int a
    cdef int r = 0
    cdef int outer = p.axes - <int>p.flat
    cdef int leaf = p.axes - 1
    cdef const Role *role
    cdef uint8_t *scratch = work + p.scratch_at
    cdef uint8_t *other
    a = leaf
    while a >= 0:
        first[a] = tile % p.axis[a].tiles * p.axis[a].tile
        tile = tile // p.axis[a].tiles
        count[a] = 0
        for r in range(p.roles):
            count[a] = max(count[a], min(p.axis[a].tile, p.role[r].count[a] - first[a]))
        a -= 1
    load_tile(p, first, count, 0, p.inputs, x + group * p.inputs * p.input_channel * p.lanes.stored_bytes, work)
    y += group * p.outputs * p.output_channel * result
    seeds += group * p.rows * lane
    r = 0
    while r < p.roles:
        role = &p.role[r]
        run = 1
        at = role.base
        for a in range(p.axes):
            count[a] = min(p.axis[a].tile, role.count[a] - first[a])
            if count[a] <= 0:
                run = 0
                break
            at += first[a] * role.output_stride[a]
            if a >= outer:
                run += (count[a] - 1) * p.axis[a].pitch
        # outputs of the next role that lie between those of this one
        beside = min(p.axis[leaf].tile, p.role[r + 1].count[leaf] - first[leaf]) if role.paired else 0
        r += 2 if role.paired else 1
        if run == 0:
            continue
        pitch = rounded_up(run, p.lanes.lanes)
        other = scratch + FASTPOOL_MOST_ROWS * pitch * lane
        for b in range(p.blocks * part // p.parts, p.blocks * (part + 1) // p.parts):
            for a in range(leaf):
                place[a] = 0
            while True:
                source = 0
                to = at + p.block_first[b] * p.output_channel
                for a in range(outer):
                    source += place[a] * p.axis[a].pitch
                    to += place[a] * role.output_stride[a]
                multiply_run(p, role, group, b, count, weights, work + source * lane, seeds, scratch, pitch)
                if beside > 0:
                    multiply_run(p, role + 1, group, b, count, weights, work + source * lane, seeds, other, pitch)
                for row in range(min(p.block_rows[b], p.outputs - p.block_first[b])):
                    put_run(p, role, count, outer, y + (to + row * p.output_channel) * result,
                            scratch + row * pitch * lane, other + row * pitch * lane, beside)
                if not advance(place, count, 0, outer):
                    break
    if p.stream:
        fastpool_stream_fence()


cdef inline void multiply_run(const Plan *p, const Role *role, int64_t group, int64_t b, const int64_t *count,
                              const uint8_t *weights, const uint8_t *tile, const uint8_t *seeds, uint8_t *run,
                              int64_t pitch) noexcept nogil:
    """The outputs of a run, and what lies between its rows, of a block of filters."""
    weights = weights_of(p, role, group, b, 0, weights)
    seeds += p.block_at[b] * p.lanes.lane_bytes
    if shares_rows(p, role, count):
        multiply_rows(p, role, count, weights, tile, run, seeds)
    else:
        p.lanes.multiply(weights, filter_step(p), depth_step(p, b), tile, role.offset, role.depth, run, pitch, seeds,
                         <int>p.block_rows[b], pitch // p.lanes.lanes)


cdef inline bint shares_rows(const Plan *p, const Role *role, const int64_t *count) noexcept nogil:
    """Whether the outputs of a run are better computed four rows at a time: where these fill their vectors."""
    cdef int leaf = p.axes - 1
    return (role.tall and count[leaf - 1] >= 4 and count[leaf] > p.lanes.lanes
            and 4 * rounded_up(count[leaf], p.lanes.lanes) <= 5 * p.axis[leaf - 1].pitch)


cdef inline void multiply_rows(const Plan *p, const Role *role, const int64_t *count, const uint8_t *weights,
                               const uint8_t *tile, uint8_t *run, const uint8_t *seed) noexcept nogil:
    """The outputs of a run of one filter, by rows that share what they load."""
    cdef int leaf = p.axes - 1
    cdef int outer = p.axes - <int>p.flat
    cdef int64_t place[MOST_AXES]
    cdef int64_t at
    cdef int a
    for a in range(outer, leaf - 1):
        place[a] = 0
    while True:
        at = 0
        for a in range(outer, leaf - 1):
            at += place[a] * p.axis[a].pitch
        at *= p.lanes.lane_bytes
        p.lanes.rows(weights, tile + at, role.offset, role.depth // (role.tall * role.wide), role.tall, role.wide,
                     role.step, run + at, seed, count[leaf - 1],
                     (count[leaf] + p.lanes.lanes - 1) // p.lanes.lanes)
        if not advance(place, count, outer, leaf - 1):
            break


cdef inline void put_run(const Plan *p, const Role *role, const int64_t *count, int outer, uint8_t *y,
                         const uint8_t *run, const uint8_t *other, int64_t beside) noexcept nogil:
    """Write the outputs of a run, and not what lies between its rows; `beside` > 0: those of the other in between."""
    cdef int leaf = p.axes - 1
    cdef int64_t result = p.lanes.result_bytes
    cdef int64_t lane = p.lanes.lane_bytes
    cdef int64_t place[MOST_AXES]
    cdef int64_t from_, to
    cdef int64_t rows = count[leaf - 1] if outer < leaf else 1
    cdef int64_t row_step = role.output_stride[leaf - 1]
    cdef int64_t pitch = p.axis[leaf - 1].pitch
    cdef int a
    for a in range(outer, leaf - 1):
        place[a] = 0
    while True:
        from_ = to = 0
        for a in range(outer, leaf - 1):
            from_ += place[a] * p.axis[a].pitch
            to += place[a] * role.output_stride[a]
        if beside > 0:
            p.lanes.store_pairs(y + to * result, row_step, run + from_ * lane, other + from_ * lane, pitch, rows,
                                count[leaf], beside)
        elif p.stream:
            fastpool_stream_rows(y + to * result, row_step * result, run + from_ * lane, pitch * lane, rows,
                                 count[leaf] * result)
        else:
            p.lanes.store_rows(y + to * result, row_step, run + from_ * lane, pitch, rows, count[leaf],
                               role.output_stride[leaf])
        if not advance(place, count, outer, leaf - 1):
            break


# ---------------------------------------------------------------------------------------------- gathering


cdef int64_t cut_in_segments(const Plan *p, const Role *role, int64_t first, int64_t n,
                             Segment *segment) noexcept nogil:
    """Outputs [first, first + n) of a role, in C order, by the rows that they lie in."""
    cdef int64_t coordinate[MOST_AXES]
    cdef int leaf = p.axes - 1
    cdef int64_t segments = 0
    cdef int64_t lane = 0
    cdef int a = leaf
    while a >= 0:
        coordinate[a] = first % role.count[a]
        first //= role.count[a]
        a -= 1
    while lane < n:
        segment.lane = lane
        segment.count = min(n - lane, role.count[leaf] - coordinate[leaf])
        segment.place = role.base
        segment.at = 0
        for a in range(p.axes):
            segment.coordinate[a] = coordinate[a] * p.axis[a].step
            segment.place += coordinate[a] * role.output_stride[a]
            segment.at += segment.coordinate[a] * p.axis[a].input_stride
        lane += segment.count
        segments += 1
        segment += 1
        coordinate[leaf] = 0
        a = leaf - 1
        while a >= 0:
            coordinate[a] += 1
            if coordinate[a] < role.count[a]:
                break
            coordinate[a] = 0
            a -= 1
    return segments


cdef void gather(const Plan *p, const Role *role, int64_t depth, const Segment *segment, int64_t segments,
                 const uint8_t *x, uint8_t *to) noexcept nogil:
    """One row of the product: the tap of the outputs of all segments, zero where it lies outside the input."""
    cdef int leaf = p.axes - 1
    cdef int64_t lane = p.lanes.lane_bytes
    cdef int64_t stored = p.lanes.stored_bytes
    cdef const int64_t *shift = role.shift + depth % role.taps * p.axes
    cdef const Axis *axis = &p.axis[leaf]
    cdef int64_t i, element, begin, end, n
    cdef int64_t at = depth // role.taps * p.input_channel
    cdef int a, outside
    cdef uint8_t *row
    for a in range(p.axes):
        at += shift[a] * p.axis[a].input_stride
    for i in range(segments):
        outside = 0
        for a in range(leaf):
            element = segment[i].coordinate[a] + shift[a]
            outside |= element < 0 or element >= p.axis[a].length
        n = segment[i].count
        row = to + segment[i].lane * lane
        element = segment[i].coordinate[leaf] + shift[leaf]
        if element >= 0 and element + (n - 1) * axis.step < axis.length:
            begin = 0
            end = n
        else:
            begin = min(n, max(0, -quotient(element, axis.step)))
            end = max(begin, min(n, -quotient(element - axis.length, axis.step)))
        if outside or begin == end:
            memset(row, 0, <size_t>(n * lane))
            continue
        if begin:
            memset(row, 0, <size_t>(begin * lane))
        p.lanes.load(row + begin * lane, x + (at + segment[i].at + begin * axis.step * axis.input_stride) * stored,
                     end - begin, axis.step * axis.input_stride)
        if end < n:
            memset(row + end * lane, 0, <size_t>((n - end) * lane))


cdef void gemm_unit(const Plan *p, int64_t unit, const uint8_t *x, const uint8_t *packed, const uint8_t *seeds,
                    uint8_t *y, uint8_t *work) noexcept nogil:
    cdef int64_t lane = p.lanes.lane_bytes
    cdef int64_t group = unit // p.runs
    cdef int64_t first = unit % p.runs
    cdef int64_t total = 1
    cdef int64_t n, segments, k, depth, b, row, i, filters, vectors
    cdef int a
    cdef int r = p.roles - 1
    cdef const Role *role
    cdef Segment *segment = <Segment *>(work + p.segments_at)
    cdef uint8_t *scratch = work + p.scratch_at
    cdef uint8_t *to
    while p.role[r].first_run > first:
        r -= 1
    role = &p.role[r]
    for a in range(p.axes):
        total *= role.count[a]
    first = (first - role.first_run) * RUN
    n = min(RUN, total - first)
    vectors = (n + p.lanes.lanes - 1) // p.lanes.lanes
    segments = cut_in_segments(p, role, first, n, segment)
    x += group * p.inputs * p.input_channel * p.lanes.stored_bytes
    y += group * p.outputs * p.output_channel * p.lanes.result_bytes
    seeds += group * p.rows * lane
    k = 0
    while True:
        depth = min(DEPTH, role.depth - k)
        for i in range(depth):
            gather(p, role, k + i, segment, segments, x, work + i * RUN * lane)
        for b in range(p.blocks):
            p.lanes.multiply(weights_of(p, role, group, b, k, packed), filter_step(p), depth_step(p, b), work,
                             p.panel_offset, depth, scratch + p.block_at[b] * RUN * lane, RUN,
                             seeds + p.block_at[b] * lane if k == 0 else NULL, <int>p.block_rows[b], vectors)
        k += depth
        if k >= role.depth:
            break
    for b in range(p.blocks):
        filters = min(p.block_rows[b], p.outputs - p.block_first[b])
        for row in range(filters):
            to = y + (p.block_first[b] + row) * p.output_channel * p.lanes.result_bytes
            for i in range(segments):
                p.lanes.store(to + segment[i].place * p.lanes.result_bytes,
                              scratch + ((p.block_at[b] + row) * RUN + segment[i].lane) * lane, segment[i].count,
                              role.output_stride[p.axes - 1])


# ---------------------------------------------------------------------------------------------- gradient by the weight


cdef void panel_unit(const Plan *p, int64_t unit, int64_t panel, int64_t row_step, const uint8_t *x,
                     const uint8_t *grad, uint8_t *result, uint8_t *work) noexcept nogil:
    """Gradient of some rows (channel and tap) of a group's weights: a sum of one part for every panel of positions."""
    cdef const Role *role = p.role
    cdef int64_t lane = p.lanes.lane_bytes
    cdef int64_t ranges = (role.depth + row_step - 1) // row_step
    cdef int64_t group = unit // ranges
    cdef int64_t begin = unit % ranges * row_step
    cdef int64_t end = min(begin + row_step, role.depth)
    cdef int64_t columns = rounded_up(p.outputs, p.lanes.lanes)
    cdef int64_t total = 1
    cdef int64_t first, n, segments, row, i, j, m, c
    cdef int32_t start = 0
    cdef int a
    cdef Segment *segment = <Segment *>(work + p.segments_at)
    cdef uint8_t *rows = work                                                   # taps of the input
    cdef uint8_t *turned = work + FASTPOOL_MOST_ROWS * FASTPOOL_PANEL_PITCH * lane   # positions by filters
    cdef uint8_t *lines = turned + panel * columns * lane                       # filters by positions
    cdef uint8_t *sums = work + p.scratch_at
    for a in range(p.axes):
        total *= role.count[a]
    x += group * p.inputs * p.input_channel * p.lanes.stored_bytes
    grad += group * p.outputs * p.output_channel * p.lanes.stored_bytes
    memset(sums, 0, <size_t>((end - begin) * columns * lane))
    memset(lines, 0, <size_t>(TURNED * FASTPOOL_PANEL_PITCH * lane))
    memset(turned, 0, <size_t>(panel * columns * lane))
    first = 0
    while first < total:
        n = min(panel, total - first)
        segments = cut_in_segments(p, role, first, n, segment)
        first += n
        c = 0
        while c < p.outputs:
            m = min(TURNED, p.outputs - c)
            for j in range(m):
                for i in range(segments):
                    p.lanes.load(lines + (j * FASTPOOL_PANEL_PITCH + segment[i].lane) * lane,
                                 grad + (segment[i].place + (c + j) * p.output_channel) * p.lanes.stored_bytes,
                                 segment[i].count, role.output_stride[p.axes - 1])
            p.lanes.turn(turned + c * lane, columns, lines, FASTPOOL_PANEL_PITCH, m, n)
            c += m
        row = begin
        while row < end:
            m = min(fastpool_conv_rows(end - row), end - row)
            for j in range(m):
                gather(p, role, row + j, segment, segments, x, rows + j * FASTPOOL_PANEL_PITCH * lane)
            # a block may have more rows than are left; theirs land behind those that count
            p.lanes.outer(rows, &start, 1, n, p.panel_offset, turned, columns, sums + (row - begin) * columns * lane,
                          columns, fastpool_conv_rows(m), columns // p.lanes.lanes)
            row += m
    store_gradient(p, group, begin, end, columns, sums, result,
                   sums + (row_step + FASTPOOL_MOST_ROWS) * columns * lane)


cdef void tile_unit(const Plan *p, int64_t unit, int64_t row_step, const uint8_t *x, const uint8_t *grad,
                    uint8_t *result, uint8_t *work) noexcept nogil:
    """The same from tiles of the input, whose taps are read where they lie: one part for every tile.

    Vectors run along the filters, or along rows of positions where the filters are few.
    """
    cdef const Role *role = p.role
    cdef int leaf = p.axes - 1
    cdef bint few = p.outputs <= FEW
    cdef int64_t lane = p.lanes.lane_bytes
    cdef int64_t ranges = (role.depth + row_step - 1) // row_step
    cdef int64_t group = unit // ranges
    cdef int64_t begin = unit % ranges * row_step
    cdef int64_t end = min(begin + row_step, role.depth)
    cdef int64_t columns = p.rows if few else rounded_up(p.outputs, p.lanes.lanes)
    cdef int64_t pitch = rounded_up(p.axis[leaf].tile, p.lanes.lanes)
    cdef int64_t line_pitch = p.rows_of_tile * pitch
    cdef int64_t first[MOST_AXES]
    cdef int64_t count[MOST_AXES]
    cdef int64_t place[MOST_AXES]
    cdef int64_t t, tile, rows, n, at, row, m, c, f, line_rows, taken
    cdef int a
    cdef uint8_t *lines = work + p.lines_at
    cdef uint8_t *turned = work + p.turned_at
    cdef int32_t *row_at = <int32_t *>(work + p.row_at)
    cdef uint8_t *sums = work + p.scratch_at
    cdef uint8_t *line
    x += group * p.inputs * p.input_channel * p.lanes.stored_bytes
    grad += group * p.outputs * p.output_channel * p.lanes.stored_bytes
    memset(lines, 0, <size_t>(p.turned_at - p.lines_at))
    memset(turned, 0, <size_t>(p.row_at - p.turned_at))
    memset(sums, 0, <size_t>((end - begin) * columns * lane))
    for t in range(p.tiles):
        tile = t
        rows = 1
        a = leaf
        while a >= 0:
            first[a] = tile % p.axis[a].tiles * p.axis[a].tile
            count[a] = min(p.axis[a].tile, role.count[a] - first[a])
            tile = tile // p.axis[a].tiles
            rows *= count[a]
            a -= 1
        n = count[leaf]
        rows //= n
        taken = pitch if few else n
        load_tile(p, first, count, begin // role.taps, (end - 1) // role.taps + 1, x, work)
        line_rows = count[leaf - 1]
        row = 0
        for a in range(leaf):
            place[a] = 0
        while True:
            row_at[row] = 0
            for a in range(leaf):
                row_at[row] += <int32_t>(place[a] * p.axis[a].pitch)
            row += 1
            if not advance(place, count, 0, leaf):
                break
        c = 0
        while c < p.outputs:
            m = p.outputs if few else min(TURNED, p.outputs - c)
            for f in range(m):
                line = lines + f * line_pitch * lane
                for a in range(leaf - 1):
                    place[a] = 0
                while True:
                    at = role.base + first[leaf] * role.output_stride[leaf] + (c + f) * p.output_channel
                    at += first[leaf - 1] * role.output_stride[leaf - 1]
                    for a in range(leaf - 1):
                        at += (first[a] + place[a]) * role.output_stride[a]
                    p.lanes.load_rows(line, taken, grad + at * p.lanes.stored_bytes,
                                      role.output_stride[leaf - 1], line_rows, 0, n, taken,
                                      role.output_stride[leaf])
                    line += line_rows * taken * lane
                    if not advance(place, count, 0, leaf - 1):
                        break
            if not few:
                p.lanes.turn(turned + c * lane, columns, lines, line_pitch, m, rows * n)
            c += m
        if few:
            p.lanes.dot(lines, line_pitch, pitch, work, row_at, rows, n, role.offset + begin, sums, <int>p.rows,
                        end - begin)
            continue
        row = begin
        while row < end:
            m = fastpool_conv_rows(end - row)
            # a block may have more rows than are left; theirs land behind those that count
            p.lanes.outer(work, row_at, rows, n, role.offset + row, turned, columns,
                          sums + (row - begin) * columns * lane, columns, <int>m, columns // p.lanes.lanes)
            row += min(m, end - row)
    store_gradient(p, group, begin, end, columns, sums, result,
                   sums + (row_step + FASTPOOL_MOST_ROWS) * columns * lane)


cdef inline void store_gradient(const Plan *p, int64_t group, int64_t begin, int64_t end, int64_t columns,
                                const uint8_t *sums, uint8_t *result, uint8_t *turned) noexcept nogil:
    cdef int64_t taps = p.role.taps
    cdef int64_t row = begin
    cdef int64_t n
    result += group * p.weight_group * p.lanes.result_bytes
    if p.weight_input != taps:
        for row in range(begin, end):
            p.lanes.store(result + (row // taps * p.weight_input + row % taps) * p.lanes.result_bytes,
                          sums + (row - begin) * columns * p.lanes.lane_bytes, p.outputs, p.weight_output)
        return
    # a filter's weights lie side by side, filters far apart: whole lines of the cache, not one number at a time
    while row < end:
        n = min(TURNED, end - row)
        p.lanes.turn(turned, TURNED, sums + (row - begin) * columns * p.lanes.lane_bytes, columns, n, p.outputs)
        p.lanes.store_rows(result + row * p.lanes.result_bytes, p.weight_output, turned, TURNED, p.outputs, n, 1)
        row += n


# ---------------------------------------------------------------------------------------------- plans


cdef class ConvPlan:
    """A plan that can run; see `ConvSpec` in fastpool/_conv_spec.py for what it is made from."""

    cdef Plan p
    cdef object tables              # keeps the arrays that the plan points into
    cdef int64_t input_elements, output_elements, weight_elements
    cdef int64_t panel, row_step
    cdef bint gradient
    cdef readonly int64_t units
    cdef readonly int64_t workspace_bytes
    cdef readonly int64_t packed_bytes

    def __cinit__(self, spec):
        cdef Plan *p = &self.p
        cdef int64_t a, i
        cdef int64_t lane
        self.tables = []
        if fastpool_choose_conv_lanes(&p.lanes, spec.element) < 0:
            raise ValueError(f"no lanes for element type {spec.element}")
        lane = p.lanes.lane_bytes
        p.axes = len(spec.axes)
        p.roles = len(spec.roles)
        if not 2 <= p.axes <= MOST_AXES or p.roles < 1:
            raise ValueError("a plan has the batch and some more axes, and roles")
        p.groups, p.inputs, p.outputs = spec.groups, spec.inputs, spec.outputs
        p.input_channel, p.output_channel = spec.input_channel, spec.output_channel
        p.weight_input, p.weight_output, p.weight_group = spec.weight_strides
        if min(p.groups, p.outputs) < 1 or min(p.inputs, p.input_channel, p.output_channel) < 0:
            raise ValueError("the plan has no channels")
        for a in range(p.axes):
            self.set_axis(spec.axes[a], &p.axis[a])
        p.role = <Role *>self.table(np.zeros(p.roles * sizeof(Role), np.uint8))
        self.set_blocks()
        p.packed_group = 0
        p.runs = 0
        for i in range(p.roles):
            self.set_role(spec.roles[i], &p.role[i])
        self.set_elements(spec.kernel)
        self.gradient = spec.gradient
        p.direct = spec.direct
        self.find_weights(spec)
        if p.in_place:
            p.packed_group = 0
        if self.gradient:
            self.set_gradient(spec)
        elif p.direct:
            self.set_direct(spec)
        else:
            self.set_gemm()
        self.units = p.units
        # one more line of the cache, so that neighbouring threads share none
        self.workspace_bytes = rounded_up(p.workspace, ALIGNMENT) + ALIGNMENT
        self.packed_bytes = p.groups * (p.packed_group + p.rows) * lane + ALIGNMENT

    cdef void *table(self, array) except? NULL:
        """Memory that lives as long as the plan does."""
        cdef const uint8_t[::1] view
        if array.size == 0:
            array = np.zeros(1, array.dtype)
        view = array.view(np.uint8)
        self.tables.append(array)
        return <void *>&view[0]

    cdef int set_axis(self, given, Axis *axis) except -1:
        axis.length, axis.step, axis.input_stride, axis.tile, axis.tiles, axis.shared = given
        if min(axis.length, axis.step, axis.input_stride, axis.tile, axis.tiles) < 1:
            raise ValueError("an axis is empty")
        if axis.shared < 0 or (axis.shared and axis.tiles > 1):
            raise ValueError("only whole rows share their padding")
        return 0

    cdef int set_blocks(self) except -1:
        cdef Plan *p = &self.p
        cdef int64_t left = p.outputs
        cdef int64_t n
        rows, first, at = [], [], []
        p.rows = 0
        while left > 0:
            n = fastpool_conv_rows(left)
            rows.append(n)
            first.append(p.outputs - left)
            at.append(p.rows)
            p.rows += n
            left -= min(left, n)
        p.blocks = len(rows)
        p.block_rows = <int64_t *>self.table(np.array(rows, np.int64))
        p.block_first = <int64_t *>self.table(np.array(first, np.int64))
        p.block_at = <int64_t *>self.table(np.array(at, np.int64))
        return 0

    cdef int set_role(self, given, Role *role) except -1:
        cdef Plan *p = &self.p
        cdef int64_t a, n
        cdef int64_t total = 1
        counts, strides, role.base, weight, shifts = given
        role.taps = len(weight)
        shift = np.array(shifts, np.int64).reshape(role.taps, p.axes)
        if len(counts) != p.axes or len(strides) != p.axes or role.base < 0 or min(weight, default=0) < 0:
            raise ValueError("a role does not fit the axes")
        for a in range(p.axes):
            n = counts[a]
            role.count[a], role.output_stride[a] = n, strides[a]
            if n < 1 or n > p.axis[a].tile * p.axis[a].tiles or role.output_stride[a] < 0:
                raise ValueError("the outputs of a role do not fit the tiles")
            total *= n
        role.depth = role.taps * p.inputs
        role.weights_at = p.packed_group
        p.packed_group += role.depth * p.rows
        role.first_run = p.runs
        p.runs += (total + RUN - 1) // RUN
        role.weight = <int64_t *>self.table(np.array(weight, np.int64))
        role.shift = <int64_t *>self.table(shift.reshape(-1))
        return 0

    cdef int find_weights(self, spec) except -1:
        """Whether weights can be read where they are: full blocks, with those of a filter or of a tap side by side."""
        cdef Plan *p = &self.p
        cdef const Role *role = p.role
        if p.roles > 1 or p.inputs == 0 or p.lanes.stored_bytes != p.lanes.lane_bytes or p.rows != p.outputs:
            return 0
        if p.outputs % FASTPOOL_MOST_ROWS == 0 and p.weight_input == role.taps:
            p.weight_step = 1
            p.in_place = spec.roles[0].weight == tuple(range(role.taps))
        elif role.taps == 1 and p.weight_output == 1:
            p.weight_step = p.weight_input
            p.in_place = True
        return 0

    cdef int set_elements(self, int64_t kernel) except -1:
        """Elements that the arrays must have."""
        cdef Plan *p = &self.p
        cdef int64_t a, i, j, last
        self.input_elements = (p.groups * p.inputs - 1) * p.input_channel + 1
        for a in range(p.axes):
            self.input_elements += (p.axis[a].length - 1) * p.axis[a].input_stride
        self.output_elements = 0
        for i in range(p.roles):
            last = p.role[i].base + (p.groups * p.outputs - 1) * p.output_channel
            for a in range(p.axes):
                last += (p.role[i].count[a] - 1) * p.role[i].output_stride[a]
            self.output_elements = max(self.output_elements, last + 1)
            for j in range(p.role[i].taps):
                if p.role[i].weight[j] >= kernel:
                    raise ValueError("a tap lies outside the kernel")
        self.weight_elements = (
            (p.groups - 1) * p.weight_group + (p.inputs - 1) * p.weight_input + (p.outputs - 1) * p.weight_output
            + kernel
        )
        if p.inputs == 0:
            self.input_elements = self.weight_elements = 0
        if min(p.weight_group, p.weight_input, p.weight_output) < 0:
            raise ValueError("the strides of the weight are negative")
        return 0

    cdef int set_direct(self, spec) except -1:
        cdef Plan *p = &self.p
        cdef int64_t lane = p.lanes.lane_bytes
        cdef int64_t a, i, j, low, high, q, pitch
        cdef Role *role
        p.flat = spec.flat
        p.parts = spec.parts
        p.stream = spec.stream and p.lanes.result_bytes == lane and p.role[0].output_stride[p.axes - 1] == 1
        if not 1 <= p.flat <= p.axes or not 1 <= p.parts <= p.blocks:
            raise ValueError("the plan has no run or no parts")
        pitch = 1
        p.plane = 1
        p.phases = 1
        p.tiles = 1
        residues = []
        for a in range(p.axes - 1, -1, -1):
            seen = set()
            low = high = 0
            first = True
            for i in range(p.roles):
                role = &p.role[i]
                for j in range(role.taps):
                    q = quotient(role.shift[j * p.axes + a], p.axis[a].step)
                    seen.add(role.shift[j * p.axes + a] - q * p.axis[a].step)
                    low = q if first else min(low, q)
                    high = q if first else max(high, q)
                    first = False
            residues.insert(0, sorted(seen) or [0])
            p.axis[a].residue = <int64_t *>self.table(np.array(residues[0], np.int64))
            p.axis[a].phases = len(residues[0])
            p.axis[a].low = low
            p.axis[a].span = high - low
            p.axis[a].places = p.axis[a].tile + high - low
            p.axis[a].pitch = pitch
            self.check_shared(&p.axis[a])
            p.plane += (p.axis[a].places - 1) * pitch
            pitch *= p.axis[a].places - p.axis[a].shared
            p.phases *= p.axis[a].phases
            p.tiles *= p.axis[a].tiles
        # an odd number of lines of the cache, so that the channels do not fall into one set
        p.channel_pitch = rounded_up(p.plane * p.phases * lane, ALIGNMENT)
        if p.channel_pitch // ALIGNMENT % 2 == 0:
            p.channel_pitch += ALIGNMENT
        p.channel_pitch //= lane
        if p.channel_pitch * max(p.inputs, 1) >= 1 << 31:
            raise ValueError("a tile has more lanes than its offsets can count")
        for i in range(p.roles):
            role = &p.role[i]
            offsets = []
            for j in range(role.taps):
                plane = 0
                at = 0
                for a in range(p.axes):
                    q = quotient(role.shift[j * p.axes + a], p.axis[a].step)
                    residue = role.shift[j * p.axes + a] - q * p.axis[a].step
                    plane = plane * p.axis[a].phases + residues[a].index(residue)
                    at += (q - p.axis[a].low) * p.axis[a].pitch
                offsets.append(plane * p.plane + at)
            whole = np.arange(p.inputs)[:, None] * p.channel_pitch + np.array(offsets, np.int64)
            # and some more, for blocks with more rows than are left
            role.offset = <int32_t *>self.table(np.pad(whole.astype(np.int32).reshape(-1), (0, FASTPOOL_MOST_ROWS)))
            if p.lanes.rows != NULL and p.outputs == 1 and p.flat >= 2 and role.depth:
                self.share_rows(role, np.array(offsets, np.int64))
        p.run = 1
        for a in range(p.axes - p.flat, p.axes):
            p.run += (p.axis[a].tile - 1) * p.axis[a].pitch
        p.scratch_at = rounded_up((p.channel_pitch * p.inputs + p.run + p.lanes.lanes) * lane, ALIGNMENT)
        self.pair_roles()
        a = 2 if p.role[0].paired else 1
        p.workspace = p.scratch_at + a * FASTPOOL_MOST_ROWS * rounded_up(p.run, p.lanes.lanes) * lane
        p.units = p.groups * p.tiles * p.parts
        return 0

    cdef int pair_roles(self) except -1:
        """Mark the first of two roles whose outputs take turns along rows, if all roles are such pairs."""
        cdef Plan *p = &self.p
        cdef int64_t i, a
        cdef bint pairs = p.roles % 2 == 0
        cdef const Role *one
        cdef const Role *next_one
        for i in range(0, p.roles - 1, 2):
            one, next_one = &p.role[i], &p.role[i + 1]
            pairs = pairs and one.output_stride[p.axes - 1] == 2 and next_one.base == one.base + 1
            pairs = pairs and 0 <= one.count[p.axes - 1] - next_one.count[p.axes - 1] <= 1
            for a in range(p.axes):
                pairs = pairs and one.output_stride[a] == next_one.output_stride[a]
                pairs = pairs and (one.count[a] == next_one.count[a] or a == p.axes - 1)
        for i in range(0, p.roles, 2):
            p.role[i].paired = pairs
        return 0

    cdef int check_shared(self, const Axis *axis) except -1:
        """Whether the places that rows share are padding at the end of one and at the start of the next."""
        cdef int64_t i, begin, end
        for i in range(axis.phases):
            inside(axis, axis.low * axis.step + axis.residue[i], axis.places, &begin, &end)
            if axis.shared > min(begin, axis.places - end) or axis.shared > axis.span:
                raise ValueError("rows share places that are not padding")
        return 0

    cdef int share_rows(self, Role *role, offsets) except -1:
        """Find out whether the taps of one row of outputs are those of the one before, a row of lanes on."""
        cdef Plan *p = &self.p
        pitch = p.axis[p.axes - 2].pitch
        for tall in SHARED_HEIGHTS:
            for wide in range(1, len(offsets) // tall + 1):
                if len(offsets) % (tall * wide) or abs(offsets[wide] - offsets[0]) != pitch:
                    continue
                rows = np.diff(offsets.reshape(-1, tall, wide), axis=1)
                if (rows == rows[0, 0, 0]).all():
                    role.tall, role.wide, role.step = tall, wide, rows[0, 0, 0]
                    return 0
        return 0

    cdef int set_gemm(self) except -1:
        cdef Plan *p = &self.p
        cdef int64_t lane = p.lanes.lane_bytes
        p.panel_offset = <int32_t *>self.table(np.arange(DEPTH, dtype=np.int32) * RUN)
        p.segments_at = DEPTH * RUN * lane
        p.scratch_at = rounded_up(p.segments_at + RUN * <int64_t>sizeof(Segment), ALIGNMENT)
        p.workspace = p.scratch_at + p.rows * RUN * lane
        p.units = p.groups * p.runs
        return 0

    cdef int set_gradient(self, spec) except -1:
        cdef Plan *p = &self.p
        cdef int64_t lane = p.lanes.lane_bytes
        cdef int64_t columns, at, a
        self.panel, self.row_step = spec.panel, spec.row_step
        if p.roles != 1 or not 1 <= self.panel <= FASTPOOL_PANEL or self.row_step < 1 or p.role[0].depth < 1:
            raise ValueError("a gradient has one role, with taps, and panels of bounded length")
        if p.direct:
            self.set_direct(spec)
            p.rows_of_tile = 1
            for a in range(p.axes - 1):
                p.rows_of_tile *= p.axis[a].tile
            if p.flat != 1 or p.parts != 1:
                raise ValueError("tiles of a gradient are whole")
            columns = p.rows if p.outputs <= FEW else rounded_up(p.outputs, p.lanes.lanes)
            at = p.rows_of_tile * rounded_up(p.axis[p.axes - 1].tile, p.lanes.lanes) * lane
            p.lines_at = p.scratch_at
            p.turned_at = p.lines_at + rounded_up(at * (p.rows if p.outputs <= FEW else TURNED), ALIGNMENT)
            p.row_at = p.turned_at + (0 if p.outputs <= FEW else at * columns)
            p.scratch_at = p.row_at + rounded_up(p.rows_of_tile * <int64_t>sizeof(int32_t), ALIGNMENT)
            p.workspace = p.scratch_at + (self.row_step + FASTPOOL_MOST_ROWS + TURNED) * columns * lane
        else:
            columns = rounded_up(p.outputs, p.lanes.lanes)
            at = (FASTPOOL_MOST_ROWS + TURNED) * FASTPOOL_PANEL_PITCH * lane + self.panel * columns * lane
            p.segments_at = rounded_up(at, ALIGNMENT)
            p.scratch_at = rounded_up(p.segments_at + self.panel * <int64_t>sizeof(Segment), ALIGNMENT)
            p.workspace = p.scratch_at + (self.row_step + FASTPOOL_MOST_ROWS + TURNED) * columns * lane
            p.panel_offset = <int32_t *>self.table(
                np.arange(FASTPOOL_MOST_ROWS, dtype=np.int32) * FASTPOOL_PANEL_PITCH
            )
        p.units = p.groups * ((p.role[0].depth + self.row_step - 1) // self.row_step)
        p.packed_group = 0
        return 0

    def run(self, const uint8_t[::1] x, const uint8_t[::1] weight, const uint8_t[::1] bias, uint8_t[::1] y,
            uint8_t[::1] packed, uint8_t[::1] work, int threads):
        """Write the outputs of `x` and `weight` to `y`; `bias` may be empty. `packed` and `work` are memory to use."""
        cdef Plan *p = &self.p
        cdef int64_t lane = p.lanes.lane_bytes
        cdef int64_t step = self.workspace_bytes
        cdef int64_t i, b, pieces, chunk
        cdef const uint8_t *from_ = &x[0] if x.shape[0] else NULL
        cdef const uint8_t *weights = &weight[0] if weight.shape[0] else NULL
        cdef uint8_t *to
        cdef uint8_t *filters
        cdef const uint8_t *packed_or_not
        cdef uint8_t *seeds
        cdef uint8_t *room
        if self.gradient:
            raise ValueError("a plan of a gradient by the weight")
        threads = <int>max(1, min(threads, p.units))
        chunk = max(1, p.units // (16 * threads))   # taking a unit costs as much as a small one takes
        if (
            x.shape[0] < self.input_elements * p.lanes.stored_bytes
            or weight.shape[0] < self.weight_elements * p.lanes.stored_bytes
            or y.shape[0] < self.output_elements * p.lanes.result_bytes
            or packed.shape[0] < self.packed_bytes
            or work.shape[0] < step * threads
            or (bias.shape[0] and bias.shape[0] != p.groups * p.outputs * p.lanes.stored_bytes)
        ):
            raise ValueError("the arrays are smaller than the plan needs")
        to = &y[0]
        filters = aligned(&packed[0])
        packed_or_not = weights if p.in_place else filters
        room = aligned(&work[0])
        seeds = filters + p.groups * p.packed_group * lane
        pieces = 0 if p.in_place else p.groups * p.roles * p.blocks
        with nogil:
            memset(seeds, 0, <size_t>(p.groups * p.rows * lane))
            if bias.shape[0]:
                for i in range(p.groups * p.blocks):
                    b = i % p.blocks
                    p.lanes.load(
                        seeds + (i // p.blocks * p.rows + p.block_at[b]) * lane,
                        &bias[(i // p.blocks * p.outputs + p.block_first[b]) * p.lanes.stored_bytes],
                        min(p.block_rows[b], p.outputs - p.block_first[b]), 1,
                    )
            if threads == 1 or p.groups * p.packed_group <= FEW_WEIGHTS:
                for i in range(pieces):
                    pack_block(p, i // p.blocks // p.roles, i // p.blocks % p.roles, i % p.blocks, weights, filters)
                pieces = 0
        if threads > 1:
            for i in prange(pieces, nogil=True, num_threads=threads, schedule="static"):
                pack_block(p, i // p.blocks // p.roles, i // p.blocks % p.roles, i % p.blocks, weights, filters)
            for i in prange(p.units, nogil=True, num_threads=threads, schedule="dynamic", chunksize=chunk):
                if p.direct:
                    direct_unit(p, i, from_, packed_or_not, seeds, to, room + threadid() * step)
                else:
                    gemm_unit(p, i, from_, packed_or_not, seeds, to, room + threadid() * step)
        else:
            with nogil:
                for i in range(p.units):
                    if p.direct:
                        direct_unit(p, i, from_, packed_or_not, seeds, to, room)
                    else:
                        gemm_unit(p, i, from_, packed_or_not, seeds, to, room)

    def run_gradient(self, const uint8_t[::1] x, const uint8_t[::1] grad, uint8_t[::1] result, uint8_t[::1] work,
                     int threads):
        """Write the gradient by the weight, from the input and the gradient by the outputs."""
        cdef Plan *p = &self.p
        cdef int64_t step = self.workspace_bytes
        cdef int64_t i, chunk
        cdef uint8_t *room
        if not self.gradient:
            raise ValueError("not a plan of a gradient by the weight")
        threads = <int>max(1, min(threads, p.units))
        chunk = max(1, p.units // (16 * threads))
        if (
            x.shape[0] < self.input_elements * p.lanes.stored_bytes
            or grad.shape[0] < self.output_elements * p.lanes.stored_bytes
            or result.shape[0] < self.weight_elements * p.lanes.result_bytes
            or work.shape[0] < step * threads
        ):
            raise ValueError("the arrays are smaller than the plan needs")
        room = aligned(&work[0])
        if threads > 1:
            for i in prange(p.units, nogil=True, num_threads=threads, schedule="dynamic", chunksize=chunk):
                if p.direct:
                    tile_unit(p, i, self.row_step, &x[0], &grad[0], &result[0], room + threadid() * step)
                else:
                    panel_unit(p, i, self.panel, self.row_step, &x[0], &grad[0], &result[0], room + threadid() * step)
        else:
            with nogil:
                for i in range(p.units):
                    if p.direct:
                        tile_unit(p, i, self.row_step, &x[0], &grad[0], &result[0], room)
                    else:
                        panel_unit(p, i, self.panel, self.row_step, &x[0], &grad[0], &result[0], room)
