"""Max pooling over tiles, values only or with flat indices, for every dtype and rank.

A plan (see ``fastpool/_plan.py``) lists the levels of the canonical form, outermost first. A *slot* of a level is one
of its input positions, holding the pooled block of all inner levels; slots are laid out by stride phase, so that tap j
of all outputs of a pass is one contiguous run. The walker fills the slots of a level from the level below, innermost
rows from the input, then runs the level's passes; the last pass of level 0 is stored to the output.

No function here checks windows against arrays: `ForwardPlan` does so once, when it is made, and `run` checks sizes.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t, uint8_t, uintptr_t
from libc.string cimport memset

from fastpool._kernels._window cimport window_first_tap, window_is_sound, window_output_length


cdef extern from "pool_lanes.h" nogil:
    enum:
        FASTPOOL_SLACK_BYTES
    ctypedef struct fastpool_row:
        int phases
        int64_t stride
        int64_t start
        int64_t count
        int64_t elements
        int64_t low
        int64_t high
        const int64_t *residue
        int64_t *inside
        int64_t *outside
    void fastpool_plan_row(fastpool_row *, int64_t)
    ctypedef struct fastpool_lanes:
        int lane_bytes
        int stored_bytes
        int64_t lowest
        void (*fill)(void *, void *, int64_t) noexcept nogil
        void (*load)(void *, int64_t, int64_t, const void *, int64_t, int64_t, const fastpool_row *, int64_t, int64_t,
                     int64_t) noexcept nogil
        void (*reduce)(void *, void *, const void *, const void *, const void *, const void *, const int64_t *,
                       const int64_t *, int, int64_t) noexcept nogil
        void (*scan)(void *, int64_t *, const void *, int64_t, int64_t) noexcept nogil
        void (*store)(void *, int64_t *, const void *, const void *, int64_t, int64_t, const void *, int64_t, int64_t,
                      const int64_t *) noexcept nogil
        void (*settle)(int64_t *, const void *, int64_t, int64_t, const int64_t *, int64_t) noexcept nogil
        void (*put)(void *, void *, int64_t, const void *, int64_t) noexcept nogil
    int fastpool_choose_lanes(fastpool_lanes *, int, int, int)
    void fastpool_stream(void *, const void *, int64_t)
    void fastpool_stream_fence()


cdef enum:
    MAX_LEVELS = 64
    SCAN_CHUNK = 4096


ctypedef struct Pass:
    # One pass of a level: dst[i] = first maximum over taps of source[i + offset], after temp[i] where `seeded`.
    bint from_temp
    bint to_temp
    bint seeded
    bint coded
    int taps
    int64_t extra       # outputs beyond the tile's that later passes need
    int64_t *offset     # elements, per tap
    int64_t *code       # per tap


ctypedef struct Level:
    int64_t length
    int64_t kernel
    int64_t stride
    int64_t dilation
    int64_t before
    int64_t out
    int64_t input_stride
    int64_t output_stride
    int64_t tile        # outputs of a full tile
    int64_t tiles
    int64_t block       # elements of one slot
    bint direct         # kernel 1: slots are the result, nothing to pass over
    int phases
    int64_t places      # of the phase that has most
    int64_t *residue    # per phase: input position of place 0, relative to the tile's first tap
    int64_t *start      # per phase: element of the slots at which its places begin
    int64_t *needed     # per phase and place: the smallest tile that reads it
    int64_t slot_elements
    int passes
    Pass *pass_
    int64_t values_at   # byte offsets into a thread's workspace
    int64_t codes_at
    int64_t temp_values_at
    int64_t temp_codes_at


ctypedef struct Tile:
    int64_t first[MAX_LEVELS]   # first output per level
    int64_t count[MAX_LEVELS]   # outputs per level
    fastpool_row row            # how its rows are read


ctypedef struct Plan:
    fastpool_lanes lanes
    int levels
    Level level[MAX_LEVELS]
    int64_t flip
    bint codes              # indices are wanted, or lanes are not the elements
    int64_t *table          # code to offset, or NULL where the code is the offset
    int64_t outer
    int64_t outer_input
    int64_t outer_output
    int64_t input_offset
    int64_t units_per_outer
    # innermost level
    int64_t rows            # places of the level above whose rows are loaded at a time
    bint scan               # long windows along rows are scanned, not passed over
    int64_t lead            # outputs whose window starts in the padding before the row
    int64_t *lead_shift
    int64_t scan_code       # code of one step along the row
    int64_t group           # outputs of level 0 stored at a time
    int64_t result_values_at
    int64_t result_codes_at
    int64_t row_plan_at
    int64_t ahead           # bytes to prefetch ahead
    int64_t stage           # outputs gathered before they are streamed to memory, 0 to store them directly
    int64_t stage_values_at
    int64_t stage_indices_at
    int64_t workspace_bytes


ctypedef struct Output:
    # Where finished rows go: straight to the arrays, or, staged, in contiguous stretches past the caches.
    uint8_t *y
    int64_t *indices
    uint8_t *stage_y
    int64_t *stage_indices
    int64_t place           # of the first staged output
    int64_t staged


cdef inline int64_t rounded(int64_t size) noexcept nogil:
    return (size + 63) // 64 * 64


cdef inline void *at(void *base, int64_t offset) noexcept nogil:
    return <void *>((<uint8_t *>base) + offset)


cdef void run_passes(const Plan *p, const Level *level, int last, int64_t outputs, int64_t extra_elements,
                     void *work, void *src, void *src_codes, void *dst, void *dst_codes) noexcept nogil:
    """The first `last` passes of a level over `outputs` outputs whose slots start at src."""
    cdef const Pass *step
    cdef void *temp = at(work, level.temp_values_at)
    cdef void *temp_codes = at(work, level.temp_codes_at) if p.codes else NULL
    cdef int i
    for i in range(last):
        step = &level.pass_[i]
        p.lanes.reduce(
            temp if step.to_temp else dst,
            NULL if not p.codes else (temp_codes if step.to_temp else dst_codes),
            temp if step.from_temp else src,
            NULL if not (p.codes and step.coded) else (temp_codes if step.from_temp else src_codes),
            temp if step.seeded else NULL,
            temp_codes if step.seeded else NULL,
            step.offset,
            step.code,
            step.taps,
            (outputs + step.extra) * level.block + extra_elements,
        )


cdef void scan_row(
    const Plan *p, const uint8_t *row, const Tile *tile, void *work, void *dst, void *dst_codes
) noexcept nogil:
    """The innermost axis by scanning each window from the input: few long windows that hardly overlap."""
    cdef const Level *leaf = &p.level[p.levels - 1]
    cdef void *lanes = at(work, leaf.values_at)
    cdef fastpool_row stretch
    cdef int64_t zero = 0
    cdef int64_t all_of_it
    cdef int64_t w, start, begin, end, chunk, where
    cdef int64_t best = 0    # room for any lane type
    stretch.phases = 1
    stretch.stride = 1
    stretch.residue = &zero
    stretch.inside = &zero
    stretch.outside = &all_of_it
    for w in range(tile.count[p.levels - 1]):
        start = (tile.first[p.levels - 1] + w) * leaf.stride - leaf.before
        begin = start if start > 0 else 0
        end = start + leaf.kernel
        if end > leaf.length:
            end = leaf.length
        where = -1
        while begin < end:
            chunk = end - begin if end - begin < SCAN_CHUNK else SCAN_CHUNK
            stretch.start = begin
            stretch.count = chunk
            all_of_it = chunk
            stretch.low = 0
            stretch.high = chunk
            p.lanes.load(lanes, 0, 0, row, 0, 1, &stretch, p.flip, p.lanes.lowest, 0)
            p.lanes.scan(&best, &where, lanes, begin - start, chunk)
            begin += chunk
        p.lanes.put(dst, dst_codes, w, &best, where * p.scan_code)


cdef void walk_rows(
    const Plan *p, const uint8_t *x, const Tile *tile, void *work, void *slots, void *slot_codes
) noexcept nogil:
    """Fill the slots of the last but one level: rows of the input, pooled along the innermost axis, some at a time."""
    cdef int at_level = p.levels - 2
    cdef const Level *level = &p.level[at_level]
    cdef const Level *leaf = &p.level[at_level + 1]
    cdef int64_t pitch = level.block
    cdef int64_t bytes = p.lanes.lane_bytes
    cdef int64_t origin = tile.first[at_level] * level.stride - level.before
    cdef int64_t run = level.phases * p.rows * pitch    # lanes of one phase of the innermost axis
    cdef bint in_place = leaf.direct or p.scan
    cdef int64_t place, end, q, stop, position, skip
    cdef int phase, i
    cdef const int64_t *needed
    cdef const uint8_t *row
    cdef void *lanes
    cdef void *raw = at(work, leaf.values_at)
    place = 0
    while place < level.places:
        end = min(place + p.rows, level.places)
        for phase in range(level.phases):
            needed = level.needed + phase * level.places
            q = place
            while q < end:
                if needed[q] > tile.count[at_level]:
                    q += 1
                    continue
                position = origin + q * level.stride + level.residue[phase]
                row = x + position * level.input_stride * p.lanes.stored_bytes
                skip = (level.start[phase] + q * pitch) * bytes
                if in_place:
                    lanes = at(slots, skip)
                else:
                    lanes = at(raw, (phase * p.rows + q - place) * pitch * bytes)
                stop = q + 1
                if position < 0 or position >= level.length:
                    if in_place:
                        p.lanes.fill(lanes, at(slot_codes, skip) if p.codes else NULL, pitch)
                    else:
                        for i in range(leaf.phases):
                            p.lanes.fill(at(lanes, i * run * bytes), NULL, pitch)
                elif p.scan:
                    scan_row(p, row, tile, work, lanes, at(slot_codes, skip) if p.codes else NULL)
                else:
                    # all rows alike up to the next that is not
                    while (stop < end and needed[stop] <= tile.count[at_level]
                           and position + (stop - q) * level.stride < level.length):
                        stop += 1
                    p.lanes.load(lanes, run, pitch, row, level.stride * level.input_stride, stop - q, &tile.row, p.flip,
                                 p.lanes.lowest, p.ahead)
                q = stop
        if not in_place:
            for phase in range(level.phases):
                needed = level.needed + phase * level.places
                stop = end      # a phase may have fewer places than others: nothing may be written beyond them
                while stop > place and needed[stop - 1] > tile.count[at_level]:
                    stop -= 1
                skip = (level.start[phase] + place * pitch) * bytes
                if stop > place:
                    run_passes(p, leaf, leaf.passes, 0, (stop - place) * pitch, work,
                               at(raw, phase * p.rows * pitch * bytes), NULL, at(slots, skip),
                               at(slot_codes, skip) if p.codes else NULL)
        place = end


cdef void walk(
    const Plan *p, int at_level, const uint8_t *x, const Tile *tile, void *work, void *dst, void *dst_codes
) noexcept nogil:
    """The pooled block of levels `at_level` and inner, into dst; level 0 leaves its last pass to `run_unit`."""
    cdef const Level *level = &p.level[at_level]
    cdef int64_t bytes = p.lanes.lane_bytes
    cdef void *slots = dst
    cdef void *slot_codes = dst_codes
    cdef int64_t origin, q, position, skip
    cdef int phase
    if not level.direct:
        slots = at(work, level.values_at)
        slot_codes = at(work, level.codes_at) if p.codes else NULL
    if at_level == p.levels - 2:
        walk_rows(p, x, tile, work, slots, slot_codes)
    else:
        origin = tile.first[at_level] * level.stride - level.before
        for q in range(level.places):
            for phase in range(level.phases):
                if level.needed[phase * level.places + q] > tile.count[at_level]:
                    continue
                position = origin + q * level.stride + level.residue[phase]
                skip = (level.start[phase] + q * level.block) * bytes
                if position < 0 or position >= level.length:
                    p.lanes.fill(at(slots, skip), at(slot_codes, skip) if p.codes else NULL, level.block)
                else:
                    walk(p, at_level + 1, x + position * level.input_stride * p.lanes.stored_bytes, tile, work,
                         at(slots, skip), at(slot_codes, skip) if p.codes else NULL)
    if not level.direct:
        run_passes(p, level, level.passes - 1 if at_level == 0 else level.passes, tile.count[at_level], 0, work,
                   slots, slot_codes, dst, dst_codes)


cdef void flush(const Plan *p, Output *output) noexcept nogil:
    """Stream what is staged to its place."""
    fastpool_stream(output.y + output.place * p.lanes.stored_bytes, output.stage_y,
                    output.staged * p.lanes.stored_bytes)
    if output.indices != NULL:
        fastpool_stream(output.indices + output.place, output.stage_indices, output.staged * 8)
    output.place += output.staged
    output.staged = 0


cdef void store_row(const Plan *p, const Tile *tile, const void *values, const void *codes, const uint8_t *x,
                    Output *output, int64_t place, int64_t base, int64_t shift) noexcept nogil:
    """One finished row; x is the whole input, `place` counts outputs, `base` is the index of the row's first tap."""
    cdef const Level *leaf = &p.level[p.levels - 1]
    cdef int64_t first = tile.first[p.levels - 1]
    cdef int64_t count = tile.count[p.levels - 1]
    cdef int64_t *indices = NULL
    cdef uint8_t *y
    if p.stage:
        if output.place + output.staged != place or output.staged + count > p.stage:
            flush(p, output)
            output.place = place
        y = output.stage_y + output.staged * p.lanes.stored_bytes
        if output.indices != NULL:
            indices = output.stage_indices + output.staged
        output.staged += count
    else:
        y = output.y + place * p.lanes.stored_bytes
        if output.indices != NULL:
            indices = output.indices + place
    p.lanes.store(y, indices, values, codes, count, p.flip, x, base + first * leaf.stride - leaf.before, leaf.stride,
                  p.table)
    if indices != NULL and (shift != 0 or first < p.lead):
        p.lanes.settle(indices, values, count, shift, p.lead_shift + first if first < p.lead else NULL,
                       p.lead - first if first < p.lead else 0)


cdef void store_rows(
    const Plan *p, int at_level, int64_t begin, int64_t end, const Tile *tile, const void *values, const void *codes,
    const uint8_t *x, Output *output, int64_t place, int64_t base, int64_t shift
) noexcept nogil:
    """Store outputs [begin, end) of a level and all of the inner ones."""
    cdef const Level *level = &p.level[at_level]
    cdef const void *row
    cdef const void *row_codes
    cdef int64_t skip, i, o, row_place, row_base, row_shift
    for i in range(begin, end):
        o = tile.first[at_level] + i
        skip = (i - begin) * level.block * p.lanes.lane_bytes
        row = at(<void *>values, skip)
        row_codes = at(<void *>codes, skip) if p.codes else NULL
        row_place = place + i * level.output_stride
        row_base = base + (o * level.stride - level.before) * level.input_stride
        row_shift = window_first_tap(o, level.stride, level.dilation, level.before) * level.dilation
        row_shift = shift + row_shift * level.input_stride
        if at_level == p.levels - 2:
            store_row(p, tile, row, row_codes, x, output, row_place, row_base, row_shift)
        else:
            store_rows(p, at_level + 1, 0, tile.count[at_level + 1], tile, row, row_codes, x, output, row_place,
                       row_base, row_shift)


cdef void run_unit(
    const Plan *p, int64_t unit, const uint8_t *x, uint8_t *y, int64_t *indices, void *work
) noexcept nogil:
    """One tile of one outer index, from input to output."""
    cdef Tile tile
    cdef Output output
    cdef const Level *level
    cdef int64_t outer = unit // p.units_per_outer
    cdef int64_t rest = unit % p.units_per_outer
    cdef int64_t place = outer * p.outer_output
    cdef int64_t base = outer * p.outer_input + p.input_offset
    cdef int64_t begin, end
    cdef int i
    cdef void *result = at(work, p.result_values_at)
    cdef void *result_codes = at(work, p.result_codes_at) if p.codes else NULL
    for i in range(p.levels - 1, -1, -1):
        level = &p.level[i]
        tile.first[i] = rest % level.tiles * level.tile
        tile.count[i] = min(level.tile, level.out - tile.first[i])
        rest = rest // level.tiles
        place += tile.first[i] * level.output_stride
    output.y = y
    output.indices = indices
    output.stage_y = <uint8_t *>at(work, p.stage_values_at)
    output.stage_indices = <int64_t *>at(work, p.stage_indices_at)
    output.place = place
    output.staged = 0
    level = &p.level[p.levels - 1]
    tile.row.phases = level.phases
    tile.row.stride = level.stride
    tile.row.start = tile.first[p.levels - 1] * level.stride - level.before
    tile.row.count = p.level[p.levels - 2].block
    tile.row.elements = min(tile.count[p.levels - 1] * level.stride, level.length)
    tile.row.residue = level.residue
    tile.row.inside = <int64_t *>at(work, p.row_plan_at)
    tile.row.outside = tile.row.inside + level.phases
    fastpool_plan_row(&tile.row, level.length)
    level = &p.level[0]
    walk(p, 0, x + base * p.lanes.stored_bytes, &tile, work, result, result_codes)
    if level.direct:
        store_rows(p, 0, 0, tile.count[0], &tile, result, result_codes, x, &output, place, base, 0)
    else:
        begin = 0
        while begin < tile.count[0]:
            end = min(begin + p.group, tile.count[0])
            run_last_pass(p, begin, end - begin, work, result, result_codes)
            store_rows(p, 0, begin, end, &tile, result, result_codes, x, &output, place, base, 0)
            begin = end
    if p.stage:
        flush(p, &output)
        fastpool_stream_fence()


cdef void run_last_pass(
    const Plan *p, int64_t begin, int64_t count, void *work, void *result, void *result_codes
) noexcept nogil:
    """The last pass of level 0 for some outputs, while the result stays in the first-level cache."""
    cdef const Level *level = &p.level[0]
    cdef const Pass *step = &level.pass_[level.passes - 1]
    cdef int64_t skip = begin * level.block * p.lanes.lane_bytes
    cdef void *src = at(work, (level.temp_values_at if step.from_temp else level.values_at) + skip)
    cdef void *codes = at(work, (level.temp_codes_at if step.from_temp else level.codes_at) + skip) if p.codes else NULL
    p.lanes.reduce(
        result, result_codes, src, codes if step.coded else NULL,
        at(work, level.temp_values_at + skip) if step.seeded else NULL,
        at(work, level.temp_codes_at + skip) if step.seeded and p.codes else NULL,
        step.offset, step.code, step.taps, count * level.block,
    )


cdef int64_t *copied(object numbers) except NULL:
    """A C array of Python integers."""
    cdef Py_ssize_t n = len(numbers)
    cdef int64_t *array = <int64_t *>PyMem_RawMalloc(max(n, 1) * sizeof(int64_t))
    cdef Py_ssize_t i
    if array == NULL:
        raise MemoryError
    try:
        for i in range(n):
            array[i] = numbers[i]
    except BaseException:
        PyMem_RawFree(array)
        raise
    return array


cdef class ForwardPlan:
    """A forward plan in C, made once per geometry and dtype, and run on any arrays of that shape."""

    cdef Plan plan
    cdef int64_t input_bytes
    cdef int64_t output_elements
    cdef readonly int64_t units
    cdef readonly int64_t workspace_bytes

    def __cinit__(self, spec):
        memset(&self.plan, 0, sizeof(Plan))
        self.fill_in(spec)

    def __dealloc__(self):
        cdef int i, j
        for i in range(self.plan.levels):
            PyMem_RawFree(self.plan.level[i].residue)
            PyMem_RawFree(self.plan.level[i].start)
            PyMem_RawFree(self.plan.level[i].needed)
            if self.plan.level[i].pass_ != NULL:
                for j in range(self.plan.level[i].passes):
                    PyMem_RawFree(self.plan.level[i].pass_[j].offset)
                    PyMem_RawFree(self.plan.level[i].pass_[j].code)
                PyMem_RawFree(self.plan.level[i].pass_)
        PyMem_RawFree(self.plan.lead_shift)
        PyMem_RawFree(self.plan.table)

    cdef int fill_in(self, spec) except -1:
        cdef Plan *p = &self.plan
        cdef Level *level
        cdef Level *leaf
        cdef int64_t bytes, size, o, temp_slots
        cdef int i
        form = spec.form
        if fastpool_choose_lanes(&p.lanes, spec.kind, spec.stored_bytes, spec.lane_bytes) != 0:
            raise ValueError(
                f"no lanes of {spec.lane_bytes} bytes for elements of {spec.stored_bytes} bytes, kind {spec.kind}"
            )
        if not 2 <= len(form.levels) <= MAX_LEVELS:
            raise ValueError(f"a plan has 2 to {MAX_LEVELS} levels, not {len(form.levels)}")
        p.flip = spec.flip
        p.codes = spec.codes
        p.outer = form.outer
        p.outer_input = form.outer_input_stride
        p.outer_output = form.outer_output_stride
        p.input_offset = form.input_offset
        p.rows = spec.rows
        p.scan = spec.scan
        p.group = spec.group
        p.scan_code = spec.scan_code
        if spec.table is not None:
            p.table = copied(spec.table)
        bytes = p.lanes.lane_bytes
        p.units_per_outer = 1
        self.input_bytes = spec.input_elements * p.lanes.stored_bytes
        self.output_elements = spec.output_elements
        for i in range(len(form.levels)):
            level = &p.level[i]
            p.levels = i + 1
            self.fill_level(level, form.levels[i], spec.levels[i])
            p.units_per_outer *= level.tiles
        self.units = p.outer * p.units_per_outer
        # the last line of defence: the outermost elements that the plan can touch lie in the arrays
        first = form.input_offset
        last_input = first + (p.outer - 1) * p.outer_input
        last_output = (p.outer - 1) * p.outer_output
        for level_form in form.levels:
            last_input += (level_form.window.length - 1) * level_form.input_stride
            last_output += (level_form.window.out - 1) * level_form.output_stride
        if p.outer and (first < 0 or last_input >= spec.input_elements or last_output >= spec.output_elements):
            raise ValueError("the plan reaches beyond its arrays")
        leaf = &p.level[p.levels - 1]
        p.lead = min(leaf.out, (leaf.before + leaf.stride - 1) // leaf.stride)
        p.lead_shift = copied([
            window_first_tap(o, leaf.stride, leaf.dilation, leaf.before) * leaf.dilation for o in range(p.lead)
        ])

        # a thread's workspace: per level its slots and its temporary, then the result of level 0
        size = 0
        for i in range(p.levels):
            level = &p.level[i]
            temp_slots = spec.levels[i].temp_elements
            level.values_at = size
            if i == p.levels - 1:
                size += rounded(spec.raw_elements * bytes + FASTPOOL_SLACK_BYTES)
            elif not level.direct:
                size += rounded(level.slot_elements * bytes + FASTPOOL_SLACK_BYTES)
                level.codes_at = size
                if p.codes:
                    size += rounded(level.slot_elements * bytes + FASTPOOL_SLACK_BYTES)
            level.temp_values_at = size
            if temp_slots:
                size += rounded(temp_slots * bytes + FASTPOOL_SLACK_BYTES)
                level.temp_codes_at = size
                if p.codes:
                    size += rounded(temp_slots * bytes + FASTPOOL_SLACK_BYTES)
        p.result_values_at = size
        size += rounded(spec.result_elements * bytes + FASTPOOL_SLACK_BYTES)
        p.result_codes_at = size
        if p.codes:
            size += rounded(spec.result_elements * bytes + FASTPOOL_SLACK_BYTES)
        p.row_plan_at = size
        size += rounded(2 * leaf.phases * 8)
        p.stage = spec.stage
        p.ahead = spec.ahead
        p.stage_values_at = size
        size += rounded(p.stage * p.lanes.stored_bytes)
        p.stage_indices_at = size
        if p.codes:
            size += rounded(p.stage * 8)
        p.workspace_bytes = size
        self.workspace_bytes = size
        return 0

    cdef int fill_level(self, Level *level, form, spec) except -1:
        cdef int j
        cdef Pass *step
        window = form.window
        level.length = window.length
        level.kernel = window.kernel
        level.stride = window.stride
        level.dilation = window.dilation
        level.before = window.before
        level.out = window.out
        if not window_is_sound(
            level.length, level.kernel, level.stride, level.dilation, level.before, window.after, level.out
        ):
            raise ValueError(f"{window} does not lie on its axis")
        level.input_stride = form.input_stride
        level.output_stride = form.output_stride
        level.tile = spec.tile
        level.tiles = (level.out + level.tile - 1) // level.tile
        level.block = spec.block
        level.direct = spec.direct
        level.phases = len(spec.residues)
        level.places = max(spec.places, default=0)
        level.slot_elements = spec.slot_elements
        level.residue = copied(spec.residues)
        level.start = copied(spec.starts)
        level.needed = copied([n for phase in spec.needed for n in phase])
        level.pass_ = <Pass *>PyMem_RawMalloc(max(len(spec.passes), 1) * sizeof(Pass))
        if level.pass_ == NULL:
            raise MemoryError
        memset(level.pass_, 0, max(len(spec.passes), 1) * sizeof(Pass))
        for j in range(len(spec.passes)):
            level.passes = j + 1
            step = &level.pass_[j]
            step.from_temp = spec.passes[j].from_temp
            step.to_temp = spec.passes[j].to_temp
            step.seeded = spec.passes[j].seeded
            step.coded = spec.passes[j].coded
            step.extra = spec.passes[j].extra
            step.taps = len(spec.passes[j].offsets)
            step.offset = copied(spec.passes[j].offsets)
            step.code = copied(spec.passes[j].codes)
        return 0

    def run(self, const uint8_t[::1] x, uint8_t[::1] y, int64_t[::1] indices, int threads):
        """Pool the bytes of x into y and, where not None, flat indices; `threads` > 1 opens a parallel region."""
        cdef Plan *p = &self.plan
        cdef int64_t *index = NULL
        cdef int64_t unit, chunk
        cdef uint8_t *work
        cdef uint8_t *aligned
        cdef int64_t each = p.workspace_bytes
        cdef int64_t units = self.units
        if x.shape[0] != self.input_bytes or y.shape[0] != self.output_elements * p.lanes.stored_bytes:
            raise ValueError("the arrays are not of the plan's size")
        if indices is not None:
            if indices.shape[0] != self.output_elements or not p.codes:
                raise ValueError("the indices are not of the plan's size")
            if self.output_elements:
                index = &indices[0]
        if self.output_elements == 0:
            return
        threads = <int>max(1, min(threads, units))
        work = <uint8_t *>PyMem_RawMalloc(<size_t>(each * threads + 64))
        if work == NULL:
            raise MemoryError(f"a workspace of {each * threads} bytes")
        aligned = <uint8_t *>((<uintptr_t>work + 63) // 64 * 64)
        if threads == 1:
            with nogil:
                for unit in range(units):
                    run_unit(p, unit, &x[0], &y[0], index, aligned)
        else:
            chunk = max(1, units // (16 * threads))
            for unit in prange(units, nogil=True, num_threads=threads, schedule="dynamic", chunksize=chunk):
                run_unit(p, unit, &x[0], &y[0], index, aligned + threadid() * each)
        PyMem_RawFree(work)


def output_length(int64_t length, int64_t kernel, int64_t stride, int64_t dilation, int64_t before, int64_t after,
                  bint ceil_mode):
    """The compiled twin of ``fastpool._geometry.output_length``: 0 where no window fits. A test sweeps both."""
    return window_output_length(length, kernel, stride, dilation, before, after, ceil_mode)
