# The compiled plan of a forward pass, and the primitives that it runs: what pool_forward.pyx fills in and walks.

from libc.stdint cimport int64_t, uint8_t


cdef extern from "sum_lanes.h" nogil:
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
        int64_t joined
        int64_t first
        int64_t beyond
        const int64_t *residue
        int64_t *inside
        int64_t *outside
    void fastpool_plan_row(fastpool_row *, int64_t)
    ctypedef struct fastpool_lanes:
        int lane_bytes
        int stored_bytes
        int result_bytes
        int64_t lowest
        void (*fill)(void *, void *, int64_t) noexcept nogil
        void (*load)(void *, int64_t, int64_t, const void *, int64_t, int64_t, int64_t, int64_t, void *,
                     const fastpool_row *, int64_t, int64_t, int64_t) noexcept nogil
        void (*load_joined)(void *, int64_t, int64_t, const void *, int64_t, int64_t, int64_t, int64_t, void *,
                            const fastpool_row *, int64_t, int64_t, int64_t) noexcept nogil
        void (*reduce[2])(void *, void *, const void *, const void *, const void *, const void *, const int64_t *,
                       const int64_t *, int, int64_t) noexcept nogil
        int (*unordered)(const void *, int64_t) noexcept nogil
        void (*windows)(void *, void *, const void *, int64_t, int64_t, int64_t, const int64_t *, const int64_t *,
                        int64_t, int64_t, int64_t, void *, int64_t) noexcept nogil
        void (*weave)(void *, const void *, int64_t, int64_t, int64_t, int64_t) noexcept nogil
        void (*scan)(void *, int64_t *, const void *, int64_t, int64_t) noexcept nogil
        void (*finish)(void *, int64_t, const void *, int64_t, int64_t, int64_t, int64_t, double, const double *,
                       double) noexcept nogil
        void (*locate)(void *, int64_t *, const void *, int64_t, const void *, int64_t, int64_t,
                       const int64_t *) noexcept nogil
        void (*settle)(int64_t *, const void *, int64_t, int64_t, const int64_t *, int64_t) noexcept nogil
        void (*put)(void *, void *, int64_t, const void *, int64_t) noexcept nogil
        void (*power)(void *, int64_t, int64_t, double) noexcept nogil
    int fastpool_choose_lanes(fastpool_lanes *, int, int, int)
    int fastpool_choose_sum_lanes(fastpool_lanes *, int, int, int)
    void fastpool_stream(void *, const void *, int64_t)
    void fastpool_stream_fence()


cdef enum:
    MAX_LEVELS = 64
    SCAN_CHUNK = 4096


ctypedef struct Pass:
    # One pass of a level: dst[i] = first maximum (or sum) over taps of source[i + offset], after a `seeded` temp[i].
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
    bint direct         # slots are the result, nothing to pass over
    bint fold           # the taps of an output are added while its rows are loaded
    int phases
    int64_t places      # of the phase that has most
    int64_t *residue    # per phase: input position of place 0, relative to the tile's first tap
    int64_t *start      # per phase: element of the slots at which its places begin
    int64_t *needed     # per phase and place: the smallest tile that reads it
    int64_t slot_elements
    int passes
    Pass *pass_
    # windows that are given by bounds (see Bounds in fastpool/_geometry.py)
    int64_t period      # 0 for windows at a stride
    int64_t phase
    int64_t step
    int64_t shared      # entries of starts per outer index, 0 where all share them
    int64_t *starts
    int64_t *counts
    int weaves          # > 0: outputs of a period that are passed over one by one, then woven together
    int64_t reach       # positions that a woven output reads
    int64_t most        # innermost level, maxima: taps up to which windows are gathered, 0 where they differ too much
    int64_t *tap_offset
    int64_t *tap_code
    bint coded
    # mean: taps that count, where they differ from output to output (then `divides`)
    bint divides
    int64_t lead
    int64_t trail
    double middle
    double *taps        # of the first `lead` and of the last `trail` outputs
    int64_t values_at   # byte offsets into a thread's workspace
    int64_t codes_at
    int64_t temp_values_at
    int64_t temp_codes_at
    int64_t bounds_at


ctypedef struct Tile:
    int64_t first[MAX_LEVELS]       # first output per level
    int64_t count[MAX_LEVELS]       # outputs per level
    int64_t origin[MAX_LEVELS]      # input position of place 0 of phase 0
    int64_t places[MAX_LEVELS]      # of the phase that has most
    int64_t *starts[MAX_LEVELS]     # windows given by bounds: per output the first place, and the number of taps
    int64_t *counts[MAX_LEVELS]
    int64_t whole_from              # folded level: outputs [whole_from, whole_to) have all their taps
    int64_t whole_to
    fastpool_row row                # how its rows are read
    bint unordered                  # maxima: some of the lanes loaded so far are NaN


ctypedef struct Plan:
    fastpool_lanes lanes
    int levels
    Level level[MAX_LEVELS]
    bint sums
    int64_t flip            # maximum: bits to flip; sum: how elements are raised to a power
    double power
    bint half               # values are taken from the input by their codes
    bint codes              # indices are wanted, or lanes are not the elements
    int64_t *table          # code to offset, or NULL where the code is the offset
    double divisor
    int64_t outer
    int64_t outer_input
    int64_t outer_output
    int64_t input_offset
    int64_t units_per_outer
    # innermost level
    int64_t rows            # places of the level above whose rows are loaded at a time
    int64_t pitch           # lanes of a loaded row
    int64_t joined          # > 0: rows are loaded as maxima (or sums) of so many neighbours
    bint scan               # long windows along rows are scanned, not passed over
    int64_t lead            # outputs whose window starts in the padding before the row
    int64_t *lead_shift
    int64_t fold_stride     # elements from tap to tap of the folded level
    int64_t scan_code       # code of one step along the row
    int64_t group           # outputs of level 0 stored at a time
    int64_t result_values_at
    int64_t result_codes_at
    int64_t row_plan_at
    int64_t scratch_at      # one row whose taps are added up before it is split
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
