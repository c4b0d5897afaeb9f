"""Pooling over tiles: maxima, values only or with flat indices, and sums and means, for every dtype and rank.

A plan (see ``fastpool/_plan.py``) lists the levels of the canonical form, outermost first. A *slot* of a level is one
of its input positions, holding the pooled block of all inner levels; slots are laid out by stride phase, so that tap j
of all outputs of a pass is one contiguous run. The walker fills the slots of a level from the level below, innermost
rows from the input, then runs the level's passes; the last pass of level 0 is stored to the output.

Windows given by bounds have slots in plain order, and every output is reduced on its own. Sums, whose axes may go in
any order, *fold* the taps of the last but one level: they add rows while these are loaded, before they are split.

No function here checks windows against arrays: `ForwardPlan` does so once, when it is made, and `run` checks sizes.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t, uint8_t, uintptr_t
from libc.string cimport memset

from fastpool._kernels._forward_plan cimport (
    FASTPOOL_SLACK_BYTES,
    MAX_LEVELS,
    SCAN_CHUNK,
    Level,
    Output,
    Pass,
    Plan,
    Tile,
    fastpool_choose_lanes,
    fastpool_choose_sum_lanes,
    fastpool_plan_row,
    fastpool_row,
    fastpool_stream,
    fastpool_stream_fence,
)
from fastpool._kernels._window cimport window_first_tap, window_is_sound, window_output_length


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
    cdef int leaf_level = p.levels - 1
    cdef const Level *leaf = &p.level[leaf_level]
    cdef void *lanes = at(work, leaf.values_at)
    cdef fastpool_row stretch
    cdef int64_t zero = 0
    cdef int64_t all_of_it
    cdef int64_t w, start, begin, end, chunk, where
    cdef int64_t[2] best    # room for any lane type
    stretch.phases = 1
    stretch.pairs = False
    stretch.stride = 1
    stretch.residue = &zero
    stretch.inside = &zero
    stretch.outside = &all_of_it
    for w in range(tile.count[leaf_level]):
        if leaf.period:
            start = tile.origin[leaf_level] + tile.starts[leaf_level][w]
            end = start + tile.counts[leaf_level][w]
        else:
            start = (tile.first[leaf_level] + w) * leaf.stride - leaf.before
            end = start + leaf.kernel
        begin = start if start > 0 else 0
        if end > leaf.length:
            end = leaf.length
        where = -1
        best[0] = best[1] = 0
        while begin < end:
            chunk = end - begin if end - begin < SCAN_CHUNK else SCAN_CHUNK
            stretch.start = begin
            stretch.count = chunk
            stretch.elements = chunk
            all_of_it = chunk
            stretch.low = 0
            stretch.high = chunk
            stretch.first = begin
            stretch.beyond = begin + chunk
            p.lanes.load(lanes, 0, 0, row, 0, 1, 1, 0, at(work, p.scratch_at), &stretch, p.flip, p.lanes.lowest, 0)
            if p.power != 0:
                p.lanes.power(lanes, chunk, p.flip, p.power)
            p.lanes.scan(best, &where, lanes, begin - start, chunk)
            begin += chunk
        p.lanes.put(dst, dst_codes, w, best, where * p.scan_code)


cdef inline int64_t folded(const Level *level, const Tile *tile, int at_level, int64_t q, int64_t *taps) noexcept nogil:
    """The input position of the first real tap of output q of a folded level, and how many there are."""
    cdef int64_t start, first
    if level.period:
        taps[0] = tile.counts[at_level][q]
        return tile.origin[at_level] + tile.starts[at_level][q]
    start = tile.origin[at_level] + q * level.stride
    if tile.whole_from <= q < tile.whole_to:
        taps[0] = level.kernel
        return start
    first = window_first_tap(0, level.stride, level.dilation, -start)
    taps[0] = 0
    if start < level.length:
        taps[0] = min(level.kernel, (level.length - 1 - start) // level.dilation + 1) - first
    return start + first * level.dilation


cdef void walk_rows(
    const Plan *p, const uint8_t *x, int64_t above, const Tile *tile, void *work, void *slots, void *slot_codes
) noexcept nogil:
    """Fill the slots of the last but one level: rows of the input, pooled along the innermost axis, some at a time.

    Where a level above is folded, rows are sums of `above` rows each.
    """
    cdef int at_level = p.levels - 2
    cdef const Level *level = &p.level[at_level]
    cdef const Level *leaf = &p.level[at_level + 1]
    cdef int64_t block = level.block
    cdef int64_t bytes = p.lanes.lane_bytes
    cdef int64_t origin = tile.origin[at_level]
    cdef int64_t run = level.phases * p.rows * p.pitch  # lanes of one phase of the innermost axis
    cdef int64_t row_bytes = level.input_stride * p.lanes.stored_bytes
    cdef bint in_place = leaf.direct or p.scan
    cdef int64_t place, end, q, stop, position, skip, taps
    cdef int phase, i
    cdef const int64_t *needed
    cdef const uint8_t *row
    cdef void *lanes
    cdef void *raw = at(work, leaf.values_at)
    place = 0
    while place < tile.places[at_level]:
        end = min(place + p.rows, tile.places[at_level])
        for phase in range(level.phases):
            needed = level.needed + phase * level.places
            q = place
            while q < end:
                if needed[q] > tile.count[at_level]:
                    q += 1
                    continue
                taps = above
                if level.fold:
                    position = folded(level, tile, at_level, q, &taps)
                else:
                    position = origin + q * level.stride + level.residue[phase]
                row = x + position * row_bytes
                skip = (level.start[phase] + q * block) * bytes
                if in_place:
                    lanes = at(slots, skip)
                else:
                    lanes = at(raw, (phase * p.rows + q - place) * p.pitch * bytes)
                stop = q + 1
                if position < 0 or position >= level.length or taps < 1:
                    if in_place:
                        p.lanes.fill(lanes, at(slot_codes, skip) if p.codes else NULL, block)
                    else:
                        for i in range(leaf.phases):
                            p.lanes.fill(at(lanes, i * run * bytes), NULL, p.pitch)
                elif p.scan:
                    scan_row(p, row, tile, work, lanes, at(slot_codes, skip) if p.codes else NULL)
                else:
                    # all rows alike up to the next that is not
                    if not level.fold:
                        while (stop < end and needed[stop] <= tile.count[at_level]
                               and position + (stop - q) * level.stride < level.length):
                            stop += 1
                    elif level.period == 0 and tile.whole_from <= q < tile.whole_to:
                        stop = min(end, tile.whole_to)
                    # folded windows by bounds are loaded one by one, and have their rows to themselves
                    p.lanes.load(lanes, run, p.pitch, row,
                                 (taps if level.fold and level.period else level.stride) * level.input_stride,
                                 stop - q, taps,
                                 p.fold_stride, at(work, p.scratch_at), &tile.row, p.flip, p.lanes.lowest, p.ahead)
                    if p.power != 0:
                        for i in range(leaf.phases):
                            p.lanes.power(at(lanes, i * run * bytes), (stop - q) * p.pitch, p.flip, p.power)
                q = stop
        if not in_place:
            for phase in range(level.phases):
                needed = level.needed + phase * level.places
                stop = end      # a phase may have fewer places than others: nothing may be written beyond them
                while stop > place and needed[stop - 1] > tile.count[at_level]:
                    stop -= 1
                skip = (level.start[phase] + place * block) * bytes
                if stop == place:
                    continue
                lanes = at(raw, phase * p.rows * p.pitch * bytes)
                if leaf.period:
                    pool_rows_by_bounds(p, tile, stop - place, work, lanes, at(slots, skip),
                                        at(slot_codes, skip) if p.codes else NULL)
                else:
                    run_passes(p, leaf, leaf.passes, 0, (stop - place) * block, work, lanes, NULL, at(slots, skip),
                               at(slot_codes, skip) if p.codes else NULL)
        place = end


cdef void pool_rows_by_bounds(
    const Plan *p, const Tile *tile, int64_t rows, void *work, void *src, void *dst, void *dst_codes
) noexcept nogil:
    """Loaded rows, pooled along the innermost axis whose windows are given by bounds."""
    cdef int leaf_level = p.levels - 1
    cdef const Level *leaf = &p.level[leaf_level]
    cdef int64_t bytes = p.lanes.lane_bytes
    cdef int64_t block = p.level[leaf_level - 1].block
    cdef int64_t run = p.rows * p.pitch
    cdef void *temp = at(work, leaf.temp_values_at)
    cdef int64_t row
    cdef int r
    # outputs of a period that lie alike in it are a stride apart, so they make one run
    for r in range(leaf.weaves):
        if leaf.counts[r] == 0:
            p.lanes.fill(at(temp, r * run * bytes), NULL, rows * p.pitch)
        else:
            p.lanes.reduce(at(temp, r * run * bytes), NULL, at(src, leaf.starts[r] * bytes), NULL, NULL, NULL,
                           leaf.tap_offset, leaf.tap_code, <int>leaf.counts[r], rows * p.pitch)
    if not leaf.weaves:
        p.lanes.windows(dst, dst_codes, src, rows, block, p.pitch, tile.starts[leaf_level], tile.counts[leaf_level],
                        leaf.step, tile.count[leaf_level], p.scan_code, temp, leaf.most)
        return
    for row in range(rows):
        p.lanes.weave(at(dst, row * block * bytes), at(temp, row * p.pitch * bytes), run, leaf.period, leaf.phase,
                      tile.count[leaf_level])


cdef void reduce_by_bounds(
    const Plan *p, int at_level, const Tile *tile, int64_t begin, int64_t count, void *src, void *src_codes, void *dst,
    void *dst_codes
) noexcept nogil:
    """Outputs [begin, begin + count) of a tile, one by one, from slots in plain order."""
    cdef const Level *level = &p.level[at_level]
    cdef int64_t bytes = p.lanes.lane_bytes
    cdef int64_t i, skip, taps
    for i in range(count):
        skip = i * level.block * bytes
        taps = tile.counts[at_level][begin + i]
        if taps == 0:
            p.lanes.fill(at(dst, skip), at(dst_codes, skip) if p.codes else NULL, level.block)
            continue
        p.lanes.reduce(
            at(dst, skip), at(dst_codes, skip) if p.codes else NULL,
            at(src, tile.starts[at_level][begin + i] * level.block * bytes),
            at(src_codes, tile.starts[at_level][begin + i] * level.block * bytes) if p.codes and level.coded else NULL,
            NULL, NULL, level.tap_offset, level.tap_code, <int>taps, level.block,
        )


cdef void walk(
    const Plan *p, int at_level, const uint8_t *x, int64_t above, const Tile *tile, void *work, void *dst,
    void *dst_codes
) noexcept nogil:
    """The pooled block of levels `at_level` and inner, into dst; level 0 leaves its last pass to `run_unit`."""
    cdef const Level *level = &p.level[at_level]
    cdef int64_t bytes = p.lanes.lane_bytes
    cdef void *slots = dst
    cdef void *slot_codes = dst_codes
    cdef int64_t taps = above
    cdef int64_t q, position, skip
    cdef int phase
    if not level.direct:
        slots = at(work, level.values_at)
        slot_codes = at(work, level.codes_at) if p.codes else NULL
    if at_level == p.levels - 2:
        walk_rows(p, x, above, tile, work, slots, slot_codes)
    else:
        for q in range(tile.places[at_level]):
            for phase in range(level.phases):
                if level.needed[phase * level.places + q] > tile.count[at_level]:
                    continue
                if level.fold:
                    position = folded(level, tile, at_level, q, &taps)
                else:
                    position = tile.origin[at_level] + q * level.stride + level.residue[phase]
                skip = (level.start[phase] + q * level.block) * bytes
                if position < 0 or position >= level.length or taps < 1:
                    p.lanes.fill(at(slots, skip), at(slot_codes, skip) if p.codes else NULL, level.block)
                else:
                    walk(p, at_level + 1, x + position * level.input_stride * p.lanes.stored_bytes, taps, tile, work,
                         at(slots, skip), at(slot_codes, skip) if p.codes else NULL)
    if level.direct:
        return
    if level.period == 0:
        run_passes(p, level, level.passes - 1 if at_level == 0 else level.passes, tile.count[at_level], 0, work,
                   slots, slot_codes, dst, dst_codes)
    elif at_level:
        reduce_by_bounds(p, at_level, tile, 0, tile.count[at_level], slots, slot_codes, dst, dst_codes)


cdef void flush(const Plan *p, Output *output) noexcept nogil:
    """Stream what is staged to its place."""
    fastpool_stream(output.y + output.place * p.lanes.result_bytes, output.stage_y,
                    output.staged * p.lanes.result_bytes)
    if output.indices != NULL:
        fastpool_stream(output.indices + output.place, output.stage_indices, output.staged * 8)
    output.place += output.staged
    output.staged = 0


cdef inline double taps_of(const Level *level, int64_t o) noexcept nogil:
    """Taps along one axis that count in the mean of output o."""
    if not level.divides:
        return 1
    if o < level.lead:
        return level.taps[o]
    if o >= level.out - level.trail:
        return level.taps[level.lead + o - (level.out - level.trail)]
    return level.middle


cdef void finish_row(
    const Plan *p, const Level *leaf, int64_t first, int64_t count, const void *values, uint8_t *y, double divisor
) noexcept nogil:
    """A finished row of sums to results: outputs at either end of the axis may have fewer taps than those between."""
    cdef int64_t begin = 0
    cdef int64_t end
    cdef const double *taps
    while begin < count:
        taps = NULL
        end = count
        if leaf.divides:
            if first + begin < leaf.lead:
                end = min(count, leaf.lead - first)
                taps = leaf.taps + first + begin
            elif first + begin >= leaf.out - leaf.trail:
                taps = leaf.taps + leaf.lead + first + begin - (leaf.out - leaf.trail)
            else:
                end = min(count, leaf.out - leaf.trail - first)
        p.lanes.finish(y + begin * p.lanes.result_bytes, (<const uint8_t *>values) + begin * p.lanes.lane_bytes,
                       end - begin, divisor * (leaf.middle if leaf.divides and taps == NULL else 1), taps, p.power)
        begin = end


cdef void store_row(const Plan *p, const Tile *tile, const void *values, const void *codes, const uint8_t *x,
                    Output *output, int64_t place, int64_t base, int64_t shift, double divisor) noexcept nogil:
    """One finished row; x is the whole input, `place` counts outputs, `base` is the index of the row's first tap."""
    cdef int leaf_level = p.levels - 1
    cdef const Level *leaf = &p.level[leaf_level]
    cdef int64_t first = tile.first[leaf_level]
    cdef int64_t count = tile.count[leaf_level]
    cdef int64_t *indices = NULL
    cdef uint8_t *y
    cdef int64_t i
    if p.stage:
        if output.place + output.staged != place or output.staged + count > p.stage:
            flush(p, output)
            output.place = place
        y = output.stage_y + output.staged * p.lanes.result_bytes
        if output.indices != NULL:
            indices = output.stage_indices + output.staged
        output.staged += count
    else:
        y = output.y + place * p.lanes.result_bytes
        if output.indices != NULL:
            indices = output.indices + place
    if p.sums:
        finish_row(p, leaf, first, count, values, y, divisor)
    elif leaf.period == 0:
        p.lanes.store(y, indices, values, codes, count, p.flip, x, base + first * leaf.stride - leaf.before,
                      leaf.stride, p.table)
        if indices != NULL and (shift != 0 or first < p.lead):
            p.lanes.settle(indices, values, count, shift, p.lead_shift + first if first < p.lead else NULL,
                           p.lead - first if first < p.lead else 0)
    elif p.half:
        # values are taken from the input, and no stride leads from window to window: one by one
        base += tile.origin[leaf_level]
        for i in range(count):
            p.lanes.store(y + i * p.lanes.result_bytes, indices + i if indices != NULL else NULL,
                          (<const uint8_t *>values) + i * p.lanes.lane_bytes,
                          (<const uint8_t *>codes) + i * p.lanes.lane_bytes,
                          1, p.flip, x, base + tile.starts[leaf_level][i], 0, p.table)
    else:
        p.lanes.store(y, indices, values, codes, count, p.flip, x, base + tile.origin[leaf_level], 0, p.table)
        if indices != NULL:
            for i in range(count):
                indices[i] += tile.starts[leaf_level][i]
    if indices != NULL and leaf.period and shift != 0:
        p.lanes.settle(indices, values, count, shift, NULL, 0)


cdef void store_rows(
    const Plan *p, int at_level, int64_t begin, int64_t end, const Tile *tile, const void *values, const void *codes,
    const uint8_t *x, Output *output, int64_t place, int64_t base, int64_t shift, double divisor
) noexcept nogil:
    """Store outputs [begin, end) of a level and all of the inner ones."""
    cdef const Level *level = &p.level[at_level]
    cdef const void *row
    cdef const void *row_codes
    cdef int64_t skip, i, o, row_place, row_base, row_shift, first_tap
    cdef double row_divisor
    for i in range(begin, end):
        o = tile.first[at_level] + i
        skip = (i - begin) * level.block * p.lanes.lane_bytes
        row = at(<void *>values, skip)
        row_codes = at(<void *>codes, skip) if p.codes else NULL
        row_place = place + i * level.output_stride
        row_divisor = divisor * taps_of(level, o)
        row_shift = shift
        if level.period:
            first_tap = tile.origin[at_level] + tile.starts[at_level][i]
        else:
            first_tap = o * level.stride - level.before
            row_shift += (window_first_tap(o, level.stride, level.dilation, level.before) * level.dilation
                          * level.input_stride)
        row_base = base + first_tap * level.input_stride
        if at_level == p.levels - 2:
            store_row(p, tile, row, row_codes, x, output, row_place, row_base, row_shift, row_divisor)
        else:
            store_rows(p, at_level + 1, 0, tile.count[at_level + 1], tile, row, row_codes, x, output, row_place,
                       row_base, row_shift, row_divisor)


cdef void find_bounds(const Level *level, Tile *tile, int at_level, int64_t outer, void *work) noexcept nogil:
    """The windows of a tile, relative to the first position that any of them has."""
    cdef int64_t *starts = <int64_t *>at(work, level.bounds_at)
    cdef int64_t *counts = starts + level.tile
    cdef const int64_t *given = level.starts + outer * level.shared
    cdef int64_t i, r, t, start, stop
    cdef int64_t lowest = 0
    cdef int64_t highest = 0    # one beyond
    cdef bint none = True
    r = (tile.first[at_level] + level.phase) % level.period
    t = (tile.first[at_level] + level.phase) // level.period
    if level.weaves:
        # woven outputs have their places by period, as `pool_rows_by_bounds` expects
        tile.origin[at_level] = t + level.before
        tile.places[at_level] = (r + tile.count[at_level] - 1) // level.period + level.reach
        return
    for i in range(tile.count[at_level]):
        start = given[r] + t
        counts[i] = level.counts[r]
        starts[i] = start
        r += 1
        if r == level.period:
            r = 0
            t += 1
        if counts[i] == 0:
            continue
        stop = start + (counts[i] - 1) * level.step + 1
        if none or start < lowest:
            lowest = start
        if none or stop > highest:
            highest = stop
        none = False
    for i in range(tile.count[at_level]):
        starts[i] -= lowest
    tile.starts[at_level] = starts
    tile.counts[at_level] = counts
    tile.origin[at_level] = lowest
    tile.places[at_level] = highest - lowest


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
        if level.period:
            find_bounds(level, &tile, i, outer, work)
        else:
            tile.origin[i] = tile.first[i] * level.stride - level.before
            tile.places[i] = level.places
        if level.fold:
            tile.places[i] = tile.count[i]
            # outputs whose taps all lie inside, and so need no further thought
            tile.whole_from = min(tile.count[i], (max(0, -tile.origin[i]) + level.stride - 1) // level.stride)
            end = level.length - (level.kernel - 1) * level.dilation - tile.origin[i]
            tile.whole_to = min(tile.count[i], (end + level.stride - 1) // level.stride) if end > 0 else 0
    output.y = y
    output.indices = indices
    output.stage_y = <uint8_t *>at(work, p.stage_values_at)
    output.stage_indices = <int64_t *>at(work, p.stage_indices_at)
    output.place = place
    output.staged = 0
    level = &p.level[p.levels - 1]
    tile.row.phases = level.phases
    tile.row.stride = level.stride
    tile.row.start = tile.origin[p.levels - 1]
    tile.row.count = p.pitch
    tile.row.elements = min(p.pitch if level.period else tile.count[p.levels - 1] * level.stride, level.length)
    tile.row.residue = level.residue
    tile.row.pairs = p.pairs
    tile.row.inside = <int64_t *>at(work, p.row_plan_at)
    tile.row.outside = tile.row.inside + level.phases
    fastpool_plan_row(&tile.row, level.length)
    level = &p.level[0]
    walk(p, 0, x + base * p.lanes.stored_bytes, 1, &tile, work, result, result_codes)
    if level.direct:
        store_rows(p, 0, 0, tile.count[0], &tile, result, result_codes, x, &output, place, base, 0, p.divisor)
    else:
        begin = 0
        while begin < tile.count[0]:
            end = min(begin + p.group, tile.count[0])
            run_last_pass(p, &tile, begin, end - begin, work, result, result_codes)
            store_rows(p, 0, begin, end, &tile, result, result_codes, x, &output, place, base, 0, p.divisor)
            begin = end
    if p.stage:
        flush(p, &output)
        fastpool_stream_fence()


cdef void run_last_pass(
    const Plan *p, const Tile *tile, int64_t begin, int64_t count, void *work, void *result, void *result_codes
) noexcept nogil:
    """The last pass of level 0 for some outputs, while the result stays in the first-level cache."""
    cdef const Level *level = &p.level[0]
    cdef const Pass *step
    cdef int64_t skip = begin * level.block * p.lanes.lane_bytes
    cdef void *src
    cdef void *codes
    if level.period:
        reduce_by_bounds(p, 0, tile, begin, count, at(work, level.values_at),
                         at(work, level.codes_at) if p.codes else NULL, result, result_codes)
        return
    step = &level.pass_[level.passes - 1]
    src = at(work, (level.temp_values_at if step.from_temp else level.values_at) + skip)
    codes = at(work, (level.temp_codes_at if step.from_temp else level.codes_at) + skip) if p.codes else NULL
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


cdef double *copied_doubles(object numbers) except NULL:
    """A C array of Python floats."""
    cdef Py_ssize_t n = len(numbers)
    cdef double *array = <double *>PyMem_RawMalloc(max(n, 1) * sizeof(double))
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
            PyMem_RawFree(self.plan.level[i].starts)
            PyMem_RawFree(self.plan.level[i].counts)
            PyMem_RawFree(self.plan.level[i].tap_offset)
            PyMem_RawFree(self.plan.level[i].tap_code)
            PyMem_RawFree(self.plan.level[i].taps)
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
        p.sums = spec.sums is not None
        if p.sums:
            if fastpool_choose_sum_lanes(&p.lanes, spec.sums.stored, spec.sums.lane, spec.sums.result) != 0:
                raise ValueError(f"no lanes for {spec.sums}")
            p.power = spec.sums.power
            p.divisor = spec.sums.divisor
        elif fastpool_choose_lanes(&p.lanes, spec.kind, spec.stored_bytes, spec.lane_bytes) != 0:
            raise ValueError(
                f"no lanes of {spec.lane_bytes} bytes for elements of {spec.stored_bytes} bytes, kind {spec.kind}"
            )
        if p.lanes.lane_bytes != spec.lane_bytes or p.lanes.stored_bytes != spec.stored_bytes:
            raise ValueError("the plan and its lanes differ in size")
        if not 2 <= len(form.levels) <= MAX_LEVELS:
            raise ValueError(f"a plan has 2 to {MAX_LEVELS} levels, not {len(form.levels)}")
        p.flip = spec.flip
        p.half = spec.half
        p.codes = spec.codes
        p.outer = form.outer
        p.outer_input = form.outer_input_stride
        p.outer_output = form.outer_output_stride
        p.input_offset = form.input_offset
        p.rows = spec.rows
        p.pitch = spec.pitch
        p.scan = spec.scan
        p.pairs = spec.pairs
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
            self.fill_level(level, form.levels[i], spec.levels[i], form.outer)
            p.units_per_outer *= level.tiles
        if spec.fold >= 0:
            p.fold_stride = p.level[spec.fold].input_stride * max(p.level[spec.fold].step, p.level[spec.fold].dilation)
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
        if not leaf.period:
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
        for i in range(p.levels):
            p.level[i].bounds_at = size
            if p.level[i].period:
                size += rounded(2 * p.level[i].tile * 8)
        p.scratch_at = size
        size += rounded(spec.scratch_elements * bytes + FASTPOOL_SLACK_BYTES)
        p.stage = spec.stage
        p.ahead = spec.ahead
        p.stage_values_at = size
        size += rounded(p.stage * p.lanes.result_bytes)
        p.stage_indices_at = size
        if p.codes:
            size += rounded(p.stage * 8)
        p.workspace_bytes = size
        self.workspace_bytes = size
        return 0

    cdef int fill_level(self, Level *level, form, spec, int64_t outer) except -1:
        cdef int j
        cdef Pass *step
        window = form.window
        level.length = window.length
        level.out = window.out
        if spec.bounds is not None:
            level.stride = level.dilation = 1
            self.fill_bounds(level, spec.bounds, outer)
        else:
            level.kernel = window.kernel
            level.stride = window.stride
            level.dilation = window.dilation
            level.before = window.before
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
        level.fold = spec.fold
        level.coded = spec.coded
        level.phases = len(spec.residues)
        level.places = max(spec.places, default=0)
        level.slot_elements = spec.slot_elements
        level.residue = copied(spec.residues)
        level.start = copied(spec.starts)
        level.needed = copied([n for phase in spec.needed for n in phase])
        if spec.taps is not None:
            level.divides = True
            level.lead, level.trail, level.middle = len(spec.taps.lead), len(spec.taps.trail), spec.taps.middle
            if level.lead + level.trail > level.out:
                raise ValueError("more outputs have taps of their own than there are outputs")
            level.taps = copied_doubles((*spec.taps.lead, *spec.taps.trail))
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

    cdef int fill_bounds(self, Level *level, bounds, int64_t outer) except -1:
        """Windows given by bounds: none may reach beyond the slots that its tile has."""
        level.period = bounds.period
        level.phase = bounds.phase
        level.step = bounds.step
        level.weaves = bounds.weaves
        level.before = bounds.before
        level.reach = bounds.reach
        level.shared = bounds.shared
        level.most = bounds.most
        level.starts = copied(bounds.starts)
        level.counts = copied(bounds.counts)
        level.tap_offset = copied(bounds.offsets)
        level.tap_code = copied(bounds.codes)
        if not (level.period >= 1 and 0 <= level.phase and level.step >= 1 and level.weaves in (0, level.period)):
            raise ValueError("windows by bounds need a period and a step")
        if level.shared not in (0, level.period) or len(bounds.counts) != level.period:
            raise ValueError("the bounds are not of the size of their period")
        if len(bounds.starts) != level.period * (outer if level.shared else 1):
            raise ValueError("every outer index needs starts of its own, or all the same")
        if max(bounds.counts) > len(bounds.offsets) or min(bounds.counts) < 0 or len(bounds.codes) < len(bounds.offsets):
            raise ValueError("a window has more taps than the plan has offsets")
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
        if x.shape[0] != self.input_bytes or y.shape[0] != self.output_elements * p.lanes.result_bytes:
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
