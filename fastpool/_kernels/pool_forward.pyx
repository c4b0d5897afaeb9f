"""Pooling over tiles: maxima, values only or with flat indices, and sums and means, for every dtype and rank.

A plan (see ``fastpool/_spec.py``) lists the levels of the canonical form, outermost first, with their tiles, slots and
passes; ``_forward_walk.pxd`` runs it. Here it is translated to C, once, and run on arrays.

No function of the walk checks windows against arrays: `ForwardPlan` does so when it is made, and `run` checks sizes.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t, uint8_t, uintptr_t
from libc.string cimport memset

from fastpool._kernels._forward_plan cimport (
    FASTPOOL_SLACK_BYTES,
    MAX_LEVELS,
    Level,
    Pass,
    Plan,
    fastpool_choose_lanes,
    fastpool_choose_sum_lanes,
)
from fastpool._kernels._forward_walk cimport run_unit
from fastpool._kernels._window cimport window_first_tap, window_is_sound, window_output_length


cdef inline int64_t rounded(int64_t size) noexcept nogil:
    return (size + 63) // 64 * 64


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
        p.joined = spec.joined
        if p.joined:
            p.lanes.load = p.lanes.load_joined
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
        taps = len(bounds.offsets)
        if max(bounds.counts) > taps or min(bounds.counts) < 0 or len(bounds.codes) < taps or bounds.most > taps:
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
