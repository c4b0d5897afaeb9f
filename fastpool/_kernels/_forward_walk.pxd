# How a compiled plan is run: one tile of outputs at a time, from the input to the output.
#
# A *slot* of a level is one of its input positions, holding the pooled block of all inner levels; slots are laid out by
# stride phase, so that tap j of all outputs of a pass is one contiguous run. The walker fills the slots of a level from
# the level below, innermost rows from the input, then runs the level's passes; the last pass of level 0 is stored.
#
# Windows given by bounds have slots in plain order, and every output is reduced on its own. Sums, whose axes may go in
# any order, *fold* the taps of the second-innermost pooled axis: they add rows while these are loaded.

from libc.stdint cimport int64_t, uint8_t

from fastpool._kernels._forward_plan cimport (
    MAX_LEVELS,
    SCAN_CHUNK,
    Level,
    Output,
    Pass,
    Plan,
    Tile,
    fastpool_plan_row,
    fastpool_row,
    fastpool_stream,
    fastpool_stream_fence,
)
from fastpool._kernels._window cimport window_first_tap


cdef inline void *at(void *base, int64_t offset) noexcept nogil:
    return <void *>((<uint8_t *>base) + offset)


cdef inline void run_passes(
    const Plan *p, const Level *level, const Tile *tile, int last, int64_t outputs, int64_t extra_elements, void *work,
    void *src, void *src_codes, void *dst, void *dst_codes
) noexcept nogil:
    """The first `last` passes of a level over `outputs` outputs whose slots start at src."""
    cdef const Pass *step
    cdef void *temp = at(work, level.temp_values_at)
    cdef void *temp_codes = at(work, level.temp_codes_at) if p.codes else NULL
    cdef int i
    for i in range(last):
        step = &level.pass_[i]
        p.lanes.reduce[tile.unordered](
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


cdef inline void scan_row(
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
    stretch.joined = 0
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


cdef inline void look_for_nan(
    const Plan *p, Tile *tile, const void *lanes, int runs, int64_t run_bytes, int64_t count
) noexcept nogil:
    """Note whether lanes that were loaded have NaN among them: without, maxima take half as many instructions."""
    cdef int i
    if p.lanes.unordered == NULL:
        return
    for i in range(runs):
        if tile.unordered:
            return
        tile.unordered = p.lanes.unordered(at(<void *>lanes, i * run_bytes), count)


cdef inline void walk_rows(
    const Plan *p, const uint8_t *x, int64_t above, Tile *tile, void *work, void *slots, void *slot_codes
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
        if in_place and p.lanes.unordered == NULL:
            place = end
            continue
        for phase in range(level.phases):
            needed = level.needed + phase * level.places
            stop = end      # a phase may have fewer places than others: nothing may be written beyond them
            while stop > place and needed[stop - 1] > tile.count[at_level]:
                stop -= 1
            skip = (level.start[phase] + place * block) * bytes
            if stop == place:
                continue
            lanes = at(raw, phase * p.rows * p.pitch * bytes)
            if in_place:
                look_for_nan(p, tile, at(slots, skip), 1, 0, (stop - place) * block)
                continue
            look_for_nan(p, tile, lanes, leaf.phases, run * bytes, (stop - place) * p.pitch)
            if leaf.period:
                pool_rows_by_bounds(p, tile, stop - place, work, lanes, at(slots, skip),
                                    at(slot_codes, skip) if p.codes else NULL)
            else:
                run_passes(p, leaf, tile, leaf.passes, 0, (stop - place) * block, work, lanes, NULL, at(slots, skip),
                           at(slot_codes, skip) if p.codes else NULL)
        place = end


cdef inline void pool_rows_by_bounds(
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
            p.lanes.reduce[tile.unordered](at(temp, r * run * bytes), NULL, at(src, leaf.starts[r] * bytes), NULL, NULL,
                                           NULL, leaf.tap_offset, leaf.tap_code, <int>leaf.counts[r], rows * p.pitch)
    if not leaf.weaves:
        p.lanes.windows(dst, dst_codes, src, rows, block, p.pitch, tile.starts[leaf_level], tile.counts[leaf_level],
                        leaf.step, tile.count[leaf_level], p.scan_code, temp, leaf.most)
        return
    for row in range(rows):
        p.lanes.weave(at(dst, row * block * bytes), at(temp, row * p.pitch * bytes), run, leaf.period, leaf.phase,
                      tile.count[leaf_level])


cdef inline void reduce_by_bounds(
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
        p.lanes.reduce[tile.unordered](
            at(dst, skip), at(dst_codes, skip) if p.codes else NULL,
            at(src, tile.starts[at_level][begin + i] * level.block * bytes),
            at(src_codes, tile.starts[at_level][begin + i] * level.block * bytes) if p.codes and level.coded else NULL,
            NULL, NULL, level.tap_offset, level.tap_code, <int>taps, level.block,
        )


cdef inline void walk(
    const Plan *p, int at_level, const uint8_t *x, int64_t above, Tile *tile, void *work, void *dst, void *dst_codes
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
        run_passes(p, level, tile, level.passes - 1 if at_level == 0 else level.passes, tile.count[at_level], 0, work,
                   slots, slot_codes, dst, dst_codes)
    elif at_level:
        reduce_by_bounds(p, at_level, tile, 0, tile.count[at_level], slots, slot_codes, dst, dst_codes)


cdef inline void flush(const Plan *p, Output *output) noexcept nogil:
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


cdef inline void finish_sums(
    const Plan *p, const Tile *tile, int64_t rows, const void *values, int64_t pitch, uint8_t *y, int64_t y_pitch,
    double divisor
) noexcept nogil:
    """Finished rows of sums to results: outputs at either end of the axis may have fewer taps than those between."""
    cdef int leaf_level = p.levels - 1
    cdef const Level *leaf = &p.level[leaf_level]
    cdef int64_t first = tile.first[leaf_level]
    cdef int64_t count = tile.count[leaf_level]
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
        p.lanes.finish(y + begin * p.lanes.result_bytes, y_pitch, at(<void *>values, begin * p.lanes.lane_bytes),
                       pitch, rows, end - begin, 0, divisor * (leaf.middle if leaf.divides and taps == NULL else 1),
                       taps, p.power)
        begin = end


cdef inline void locate_row(const Plan *p, const Tile *tile, const void *values, const void *codes, const uint8_t *x,
                            uint8_t *y, int64_t *indices, int64_t base, int64_t shift) noexcept nogil:
    """The indices of one finished row (and its values, of half floats); `base` is the index of the row's first tap."""
    cdef int leaf_level = p.levels - 1
    cdef const Level *leaf = &p.level[leaf_level]
    cdef int64_t first = tile.first[leaf_level]
    cdef int64_t count = tile.count[leaf_level]
    cdef int64_t i
    if leaf.period == 0:
        p.lanes.locate(y, indices, codes, count, x, base + first * leaf.stride - leaf.before, leaf.stride, p.table)
        if indices != NULL and (shift != 0 or first < p.lead):
            p.lanes.settle(indices, values, count, shift, p.lead_shift + first if first < p.lead else NULL,
                           p.lead - first if first < p.lead else 0)
        return
    base += tile.origin[leaf_level]
    if p.half:
        # values are taken from the input, and no stride leads from window to window: one by one
        for i in range(count):
            p.lanes.locate(y + i * p.lanes.result_bytes, indices + i if indices != NULL else NULL,
                           (<const uint8_t *>codes) + i * p.lanes.lane_bytes, 1, x,
                           base + tile.starts[leaf_level][i], 0, p.table)
    else:
        p.lanes.locate(y, indices, codes, count, x, base, 0, p.table)
        for i in range(count):
            indices[i] += tile.starts[leaf_level][i]
    if indices != NULL and shift != 0:
        p.lanes.settle(indices, values, count, shift, NULL, 0)


cdef inline void store_rows(
    const Plan *p, int64_t begin, int64_t end, const Tile *tile, const void *values, const void *codes,
    const uint8_t *x, Output *output, int64_t place, int64_t base, int64_t shift, double divisor
) noexcept nogil:
    """Store rows [begin, end) of the last but one level: all that are alike and, staged, have room at a time."""
    cdef int at_level = p.levels - 2
    cdef const Level *level = &p.level[at_level]
    cdef int64_t count = tile.count[at_level + 1]
    cdef int64_t pitch = level.block * p.lanes.lane_bytes
    cdef int64_t y_pitch = level.output_stride
    cdef int64_t *indices = NULL
    cdef int64_t row = begin
    cdef int64_t stop, skip, to, row_base, row_shift, i
    cdef uint8_t *y
    while row < end:
        stop = end
        if level.divides and not level.lead <= tile.first[at_level] + row < level.out - level.trail:
            stop = row + 1
        elif level.divides:
            stop = min(end, level.out - level.trail - tile.first[at_level])
        to = place + row * level.output_stride
        if p.stage:
            if output.place + output.staged != to or output.staged + count > p.stage:
                flush(p, output)
                output.place = to
            stop = min(stop, row + ((p.stage - output.staged) // count if level.output_stride == count else 1))
            y = output.stage_y + output.staged * p.lanes.result_bytes
            if output.indices != NULL:
                indices = output.stage_indices + output.staged
            output.staged += (stop - row) * count
        else:
            y = output.y + to * p.lanes.result_bytes
            if output.indices != NULL:
                indices = output.indices + to
        skip = (row - begin) * pitch
        if p.sums:
            finish_sums(p, tile, stop - row, at(<void *>values, skip), pitch, y, y_pitch * p.lanes.result_bytes,
                        divisor * taps_of(level, tile.first[at_level] + row))
        elif not p.half:
            p.lanes.finish(y, y_pitch * p.lanes.result_bytes, at(<void *>values, skip), pitch, stop - row, count,
                           p.flip, 1, NULL, 0)
        if indices == NULL and not p.half:
            row = stop
            continue
        for i in range(row, stop):
            row_base, row_shift = base, shift
            tap_of(level, tile, at_level, i, &row_base, &row_shift)
            skip = (i - begin) * pitch
            to = (i - row) * y_pitch
            locate_row(p, tile, at(<void *>values, skip), at(<void *>codes, skip), x, y + to * p.lanes.result_bytes,
                       indices + to if indices != NULL else NULL, row_base, row_shift)
        row = stop


cdef inline void tap_of(
    const Level *level, const Tile *tile, int at_level, int64_t i, int64_t *base, int64_t *shift
) noexcept nogil:
    """Add where the first tap of output i of a tile is, and, to `shift`, how much further the first real one."""
    cdef int64_t o = tile.first[at_level] + i
    if level.period:
        base[0] += (tile.origin[at_level] + tile.starts[at_level][i]) * level.input_stride
    else:
        base[0] += (o * level.stride - level.before) * level.input_stride
        shift[0] += (window_first_tap(o, level.stride, level.dilation, level.before) * level.dilation
                     * level.input_stride)


cdef inline void store_outputs(
    const Plan *p, int at_level, int64_t begin, int64_t end, const Tile *tile, const void *values, const void *codes,
    const uint8_t *x, Output *output, int64_t place, int64_t base, int64_t shift, double divisor
) noexcept nogil:
    """Store outputs [begin, end) of a level and all of the inner ones.

    x is the whole input, `place` counts outputs, `base` is the index of the first tap of what lies inside.
    """
    cdef const Level *level = &p.level[at_level]
    cdef int64_t skip, i, inner_base, inner_shift
    if at_level == p.levels - 2:
        store_rows(p, begin, end, tile, values, codes, x, output, place, base, shift, divisor)
        return
    for i in range(begin, end):
        skip = (i - begin) * level.block * p.lanes.lane_bytes
        inner_base, inner_shift = base, shift
        tap_of(level, tile, at_level, i, &inner_base, &inner_shift)
        store_outputs(p, at_level + 1, 0, tile.count[at_level + 1], tile, at(<void *>values, skip),
                      at(<void *>codes, skip) if p.codes else NULL, x, output, place + i * level.output_stride,
                      inner_base, inner_shift, divisor * taps_of(level, tile.first[at_level] + i))


cdef inline void find_bounds(const Level *level, Tile *tile, int at_level, int64_t outer, void *work) noexcept nogil:
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


cdef inline void run_unit(
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
    tile.unordered = False
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
    tile.row.joined = p.joined
    tile.row.inside = <int64_t *>at(work, p.row_plan_at)
    tile.row.outside = tile.row.inside + level.phases
    fastpool_plan_row(&tile.row, level.length)
    level = &p.level[0]
    walk(p, 0, x + base * p.lanes.stored_bytes, 1, &tile, work, result, result_codes)
    if level.direct:
        store_outputs(p, 0, 0, tile.count[0], &tile, result, result_codes, x, &output, place, base, 0, p.divisor)
    else:
        begin = 0
        while begin < tile.count[0]:
            end = min(begin + p.group, tile.count[0])
            run_last_pass(p, &tile, begin, end - begin, work, result, result_codes)
            store_outputs(p, 0, begin, end, &tile, result, result_codes, x, &output, place, base, 0, p.divisor)
            begin = end
    if p.stage:
        flush(p, &output)
        fastpool_stream_fence()


cdef inline void run_last_pass(
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
    p.lanes.reduce[tile.unordered](
        result, result_codes, src, codes if step.coded else NULL,
        at(work, level.temp_values_at + skip) if step.seeded else NULL,
        at(work, level.temp_codes_at + skip) if step.seeded and p.codes else NULL,
        step.offset, step.code, step.taps, count * level.block,
    )
