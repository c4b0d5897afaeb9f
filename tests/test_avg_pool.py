"""avg_pool and sum_pool against the exact twin, and against values worked by hand."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from arrays import (
    BFLOAT16,
    DTYPES,
    FLOAT_DTYPES,
    FLOATS,
    INTEGERS,
    KINDS,
    assert_same_bits,
    assert_within_ulps,
    dirty,
    fill,
    is_float,
    layouts,
    tame,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import pool_calls

import fastpool as fp
from fastpool import testing

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
float_dtypes = pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
FINITE = ("random", "ties", "extremes", "lowest_but_one", "signed_zeros")


def compare(fast, slow, x, **arguments):
    """Integers bit for bit, floats within 4 ulp; into `out` the same bits as into a new array."""
    exact = slow(x, **arguments)
    found = fast(x, **arguments)
    if is_float(x.dtype):
        assert_within_ulps(found, exact, slow(np.abs(x), **arguments))
    elif fast is fp.avg_pool and is_float(exact.dtype) and x.dtype.itemsize == 8:
        # a sum beyond 2**53 is rounded to float64 before it is divided
        assert_within_ulps(found, exact, exact, 1)
    else:
        assert_same_bits(found, exact)
    out = dirty(found)
    assert fast(x, **arguments, out=out) is out
    assert_same_bits(out, found)
    return found


# ---- against the twin


@settings(max_examples=60)
@given(pool_calls(empty_windows=True), st.sampled_from((None, None, 1, 3, 7)))
def test_generated_averages(call, override):
    compare(fp.avg_pool, testing.avg_pool, tame(call.x), **call.arguments, divisor_override=override)


@settings(max_examples=60)
@given(pool_calls())
def test_generated_averages_without_padding(call):
    compare(fp.avg_pool, testing.avg_pool, tame(call.x), **call.arguments, count_include_pad=False)


@settings(max_examples=60)
@given(pool_calls(empty_windows=True))
def test_generated_sums(call):
    compare(fp.sum_pool, testing.sum_pool, tame(call.x), **call.arguments)


@every_dtype
def test_rows_of_every_length(dtype, rng):
    """Every lane of a vector and every remainder of a row, for strides that have their own code."""
    for length, (kernel, stride, dilation, before, after) in itertools.product(
        (1, 2, 5, 8, 17, 67),
        [(2, 2, 1, 0, 1), (3, 1, 1, 1, 1), (3, 2, 1, 1, 1), (3, 4, 1, 1, 2), (5, 3, 2, 4, 4), (7, 1, 1, 3, 3)],
    ):
        x = fill("random", dtype, (length,), rng)
        arguments = {"kernel_size": (kernel,), "stride": stride, "dilation": dilation, "padding": ((before, after),)}
        if length + before + after < dilation * (kernel - 1) + 1:
            continue
        compare(fp.avg_pool, testing.avg_pool, x, **arguments)
        compare(fp.sum_pool, testing.sum_pool, x, **arguments)


def box_sums(x, kernel, stride, padding, dilation):
    """Sums over the windows of the last axes in NumPy's own terms, in integers or, rounded once, in float64."""
    count = len(kernel)
    if x.dtype == np.float64:
        coarse = np.rint(x * 2**20).astype(np.int64)  # integers are added exactly, and the rest is small
        parts = (coarse, np.rint((x - coarse / 2**20) * 2**62).astype(np.int64))
        high, low = (box_sums(part, kernel, stride, padding, dilation) for part in parts)
        return high / 2**20 + low / 2**62
    pads = ((0, 0),) * (x.ndim - count) + padding
    spans = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    steps = (..., *(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilation))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, pads), spans, tuple(range(-count, 0)))[steps]
    return windows.sum(tuple(range(-count, 0)))


@every_dtype
def test_images_and_volumes_of_many_sizes(dtype):
    """Too large for the twin: rows, planes and tiles of every length, at the default settings."""
    rng = np.random.default_rng(2)
    for _ in range(12):
        count = int(rng.integers(1, 4))
        longest = ((9000,), (60, 700), (20, 20, 120))[count - 1]
        shape = (int(rng.integers(1, 4)), *(int(rng.integers(10, n)) for n in longest))
        kernel, stride = (tuple(int(n) for n in rng.integers(1, 6, count)) for _ in range(2))
        dilation = tuple(int(n) for n in rng.integers(1, 3, count))
        padding = tuple((int(rng.integers(k)), int(rng.integers(k))) for k in kernel)
        x = fill("random", dtype, shape, rng)
        wide = x.astype(np.float64) if is_float(dtype) else x.astype(np.uint64 if x.dtype.kind == "u" else np.int64)
        sums = box_sums(wide, kernel, stride, padding, dilation)
        found = fp.sum_pool(x, kernel, stride, padding, dilation)
        if is_float(dtype):
            magnitude = box_sums(np.abs(wide), kernel, stride, padding, dilation)
            assert_within_ulps(found, sums.astype(dtype), magnitude)
            taps = math.prod(kernel)
            found = fp.avg_pool(x, kernel, stride, padding, dilation)
            assert_within_ulps(found, (sums / taps).astype(dtype), magnitude / taps)
        else:
            assert_same_bits(found, sums)


@pytest.mark.parametrize("ndim", range(1, 8))
def test_any_number_of_pooled_axes(ndim, rng):
    x = rng.standard_normal((2, *(3,) * ndim)).astype(np.float32)
    compare(fp.avg_pool, testing.avg_pool, x, kernel_size=(2,) * ndim, stride=1)


# ---- dtypes


@every_dtype
@pytest.mark.parametrize("asked", DTYPES, ids=str)
@pytest.mark.parametrize(("fast", "slow"), [(fp.avg_pool, testing.avg_pool), (fp.sum_pool, testing.sum_pool)])
def test_asked_dtypes(fast, slow, dtype, asked, rng):
    if asked == "bool" or (is_float(dtype) and not is_float(asked)):
        with pytest.raises(fp.DtypeError, match="dtype=") as caught:
            fast(np.zeros((2, 2), dtype), (2,), dtype=asked)
        assert isinstance(caught.value, TypeError)
        return
    for kind in ("ties", "random"):
        x = fill(kind, dtype, (2, 5, 4), rng)
        exact = slow(x, (2, 3), (1, 2), 1, dtype=asked)
        found = fast(x, (2, 3), (1, 2), 1, dtype=asked)
        if is_float(asked):
            magnitude = slow(np.abs(x.astype(np.float64)), (2, 3), (1, 2), 1, dtype=asked)
            assert_within_ulps(found, exact, magnitude)
        else:
            assert_same_bits(found, exact)
        out = dirty(exact)
        assert fast(x, (2, 3), (1, 2), 1, dtype=asked, out=out) is out
        assert_same_bits(out, found)


def test_results_have_the_dtypes_of_numpy():
    for dtype in DTYPES:
        x = np.ones(4, dtype)
        if dtype != BFLOAT16:
            assert fp.avg_pool(x, (2,)).dtype == x.mean().dtype
            if np.dtype(dtype).kind in "iu":
                assert fp.sum_pool(x, (2,)).dtype == (np.uint64 if x.dtype.kind == "u" else np.int64)
    assert fp.sum_pool(np.ones(4, bool), (2,)).dtype == np.int64
    for name in ("float16", "float32", "float64"):
        assert fp.sum_pool(np.ones(4, name), (2,)).dtype == name


@pytest.mark.parametrize("asked", ["complex64", "object", "U3", "M8[s]", "no such dtype", "f4, f4", object()])
def test_dtypes_that_hold_no_mean(asked):
    for function in (fp.avg_pool, fp.sum_pool):
        with pytest.raises(fp.DtypeError):
            function(np.ones(4), (2,), dtype=asked)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integer_means_round_half_to_even(dtype):
    """Every pair of bytes, and every sum of four."""
    info = np.iinfo(dtype)
    numbers = np.arange(info.min, info.max + 1)
    pairs = np.stack(np.meshgrid(numbers, numbers), -1).astype(dtype)
    exact = np.rint(pairs.astype(np.float64).mean(-1, keepdims=True)).astype(dtype)
    assert_same_bits(fp.avg_pool(pairs, (2,), dtype=dtype), exact)
    images = np.moveaxis(pairs, -1, 1)  # two rows of 256
    exact = np.rint(images.astype(np.float64).reshape(256, 2, 128, 2).mean((1, 3)))[:, None].astype(dtype)
    assert_same_bits(fp.avg_pool(images, (2, 2), dtype=dtype), exact)
    triples = np.concatenate([pairs, pairs[::-1, :, :1]], -1)
    sums = triples.astype(np.int64).sum(-1, keepdims=True)
    for divisor in (None, 1, 2, 6, 12, 1000):
        found = fp.avg_pool(triples, (3,), dtype="int16", divisor_override=divisor)
        exact = [round(Fraction(total, divisor or 3)) for total in range(sums.min(), sums.max() + 1)]
        assert_same_bits(found, np.array(exact, np.int16)[sums - sums.min()])


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_means_of_64_bit_integers_are_exact(dtype):
    info = np.iinfo(dtype)
    for numbers in (
        [info.max] * 3,
        [info.min] * 3,
        [info.max, info.max - 1],
        [info.min, info.max, info.max, 5, 2**53 + 1],
    ):
        x = np.array(numbers, dtype)
        mean = Fraction(sum(numbers), len(numbers))
        assert fp.avg_pool(x, x.shape, dtype=dtype).tolist() == [round(mean)]
        assert fp.avg_pool(x, x.shape).tolist() == [float(mean)]
        assert fp.sum_pool(x, x.shape, dtype=np.float64).tolist() == [float(sum(numbers))]


def test_integers_wrap_as_astype_does():
    assert fp.sum_pool(np.array([2**63 - 1, 1]), (2,)).tolist() == [-(2**63)]
    assert fp.sum_pool(np.array([2**64 - 1, 3], np.uint64), (2,)).tolist() == [2]
    assert fp.sum_pool(np.array([200, 100], np.uint8), (2,), dtype=np.uint8).tolist() == [44]
    assert fp.sum_pool(np.array([200, 100], np.uint8), (2,), dtype=np.int8).tolist() == [44]
    assert fp.avg_pool(np.array([300, 302]), (2,), dtype=np.uint8).tolist() == [45]
    assert fp.avg_pool(np.array([-1, -3]), (2,), dtype=np.uint16).tolist() == [2**16 - 2]
    x = np.arange(-300, 300).reshape(100, 6)
    assert_same_bits(fp.avg_pool(x, (1,), dtype="int8"), x.astype(np.int8))


# ---- error bound


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["positive", "signed", "cancelling", "wide"])
def test_error_of_large_windows(dtype, kind, rng):
    """At most 4 ulp of the mean of the magnitudes, in windows of up to 64**3 taps."""
    for edge, ndim in ((64, 3), (31, 2), (1000, 1), (17, 3)):
        x = rng.standard_normal((2, *(edge,) * ndim))
        if kind == "positive":
            x = np.abs(x)
        elif kind == "cancelling":
            x[1] = -x[0]
            x = x.reshape(-1)[rng.permutation(x.size)].reshape(1, 2 * edge, *(edge,) * (ndim - 1))
        elif kind == "wide":
            x *= np.exp2(rng.integers(-10, 10, x.shape))
        x = x.astype(dtype)
        kernel = (edge,) * ndim if kind != "cancelling" else (2 * edge, *(edge,) * (ndim - 1))
        taps = math.prod(kernel)
        rows = x.astype(np.float64).reshape(len(x), -1)
        exact = np.array([math.fsum(row) / taps for row in rows])
        magnitude = np.array([math.fsum(np.abs(row)) / taps for row in rows])
        shape = (len(x), *(1,) * ndim)
        found = fp.avg_pool(x, kernel)
        assert_within_ulps(found, exact.astype(dtype).reshape(shape), magnitude.reshape(shape))


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
@pytest.mark.parametrize(("kernel", "stride"), [((31, 33), 1), ((64, 2), (3, 2)), ((1, 200), 1), ((128, 1), 2)])
def test_error_of_overlapping_windows(dtype, kernel, stride, rng):
    """No running sum: a large number leaves no trace in the windows that it has left."""
    x = rng.random((130, 210)).astype(dtype)
    x[::9, ::11] = 1000
    padding = tuple((k // 2, k // 3) for k in kernel)
    steps = (stride, stride) if isinstance(stride, int) else stride
    exact = box_sums(x.astype(np.float64), kernel, steps, padding, (1, 1)) / math.prod(kernel)
    assert_within_ulps(fp.avg_pool(x, kernel, stride, padding), exact.astype(dtype), exact)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
def test_mean_of_ones_is_one(dtype):
    for shape in ((64, 64), (64, 64, 64), (100_003,), (3, 5, 7, 11)):
        x = np.ones(shape, dtype)
        assert fp.avg_pool(x, shape).item() == 1
        assert fp.global_avg_pool(x[None, None]).item() == 1
        same = fp.avg_pool(x, (3,) * len(shape), 1, "same", count_include_pad=False)
        assert (same == 1).all()
    assert float(fp.sum_pool(np.ones((64, 64), dtype), (64, 64)).item()) == 4096


def test_mean_of_more_ones_than_float32_counts():
    """Beyond 2**24 a running float32 sum stands still."""
    x = np.ones((320, 320, 330), np.float32)
    assert fp.avg_pool(x, x.shape).item() == 1
    assert fp.sum_pool(x, x.shape).item() == x.size


# ---- values worked by hand


def test_ceil_mode_does_not_count_what_hangs_over():
    x = np.array([1.0, 2, 3, 4, 5])
    assert fp.avg_pool(x, (2,), ceil_mode=True).tolist() == [1.5, 3.5, 5]
    assert fp.avg_pool(x, (2,), ceil_mode=True, divisor_override=2).tolist() == [1.5, 3.5, 2.5]
    # on its way over the end the window still counts the padding: two elements and one pad
    assert fp.avg_pool(np.array([1.0, 2, 3, 4]), (4,), 2, ((0, 1),), ceil_mode=True).tolist() == [2.5, 7 / 3]


def test_ones_without_padding():
    x = np.ones((1, 1, 8, 8))
    found = fp.avg_pool(x, (3, 3), (3, 4), ceil_mode=True, count_include_pad=False)
    assert found.tolist() == [[[[1, 1], [1, 1], [1, 1]]]]
    found = fp.avg_pool(x, (3, 3), 1, 2, 2, count_include_pad=False)
    assert (found == 1).all()


def test_each_side_has_its_own_padding():
    x = np.ones((2, 2))
    assert fp.avg_pool(x, (2, 2), 1, ((0, 1), (0, 1))).tolist() == [[1, 0.5], [0.5, 0.25]]
    assert fp.avg_pool(x, (2, 2), 1, ((1, 0), (0, 1))).tolist() == [[0.5, 0.25], [1, 0.5]]
    x = np.array([10.0, 20])
    assert fp.avg_pool(x, (3,), 2, ((0, 1),)).tolist() == [10]
    assert fp.avg_pool(x, (3,), 2, ((0, 1),), count_include_pad=False).tolist() == [15]


def test_windows_of_padding_alone():
    x = np.array([1.0, 2, 3, 4, 5])
    assert fp.avg_pool(x, (2,), 2, ((2, 3),)).tolist() == [0, 1.5, 3.5, 2.5, 0]
    assert fp.sum_pool(x, (2,), 2, ((2, 3),)).tolist() == [0, 3, 7, 5, 0]
    assert fp.avg_pool(x, (2,), 2, ((2, 3),), count_include_pad=False, divisor_override=4).tolist() == [
        0, 0.75, 1.75, 1.25, 0,
    ]  # fmt: skip
    with pytest.raises(fp.GeometryError, match="window 0 along axis 0"):
        fp.avg_pool(x, (2,), 2, ((2, 3),), count_include_pad=False)


def test_partial_last_block():
    x = np.full(11, 10.0)
    assert fp.avg_pool(x, (10,), ceil_mode=True).tolist() == [10, 10]
    assert fp.avg_pool(x, (10,), ceil_mode=True, count_include_pad=False).tolist() == [10, 10]
    assert fp.avg_pool(x.astype(np.int16), (10,), ceil_mode=True, dtype=np.int16).tolist() == [10, 10]


@pytest.mark.parametrize("include", [True, False])
def test_divisor_override_wins(include):
    x = np.ones((4, 4))
    found = fp.avg_pool(x, (3, 3), 1, 1, count_include_pad=include, divisor_override=2)
    assert found[0].tolist() == [2, 3, 3, 2]
    assert found[1].tolist() == [3, 4.5, 4.5, 3]
    huge = fp.avg_pool(x, (3, 3), 1, 1, count_include_pad=include, divisor_override=2**40)
    assert_same_bits(huge, found / 2**39)


def test_float16_sums_do_not_stall():
    x = np.ones((64, 64), np.float16)
    assert fp.avg_pool(x, (64, 64)).tolist() == [[1]]
    assert fp.avg_pool(x, (64, 64)).dtype == np.float16
    assert fp.sum_pool(x, (64, 64), dtype=np.float32).tolist() == [[4096]]
    # the sum has no place in float16, the mean has
    assert fp.avg_pool(np.full(100, 60000, np.float16), (100,)).tolist() == [60000]
    assert fp.sum_pool(np.full(100, 60000, np.float16), (100,), dtype=np.float64).tolist() == [6_000_000]
    assert fp.sum_pool(np.full(100, 60000, np.float16), (100,)).tolist() == [np.inf]


def test_axes_pair_with_the_entries_in_the_order_given(rng):
    x = rng.integers(-9, 9, (5, 6, 7))
    expected = testing.avg_pool(x, (2, 3), (1, 2), (1, 0), axes=(0, 2))
    for axes, kernel, stride, padding in [
        ((0, 2), (2, 3), (1, 2), (1, 0)),
        ((2, 0), (3, 2), (2, 1), (0, 1)),
        ((-1, -3), (3, 2), (2, 1), (0, 1)),
    ]:
        assert_same_bits(fp.avg_pool(x, kernel, stride, padding, axes=axes), expected)
    assert_same_bits(fp.avg_pool(x, 2, axes=(0, 1, 2)), testing.avg_pool(x, (2, 2, 2)))


def test_windows_much_larger_than_the_input():
    x = np.array([3.0, 5.0, 4.0, 5.0, 1.0])
    for kernel, padding in ((100, 50), (10**6 + 1, 5 * 10**5), (2**31 + 11, 2**30 + 5), (2**40 + 1, 2**39)):
        assert fp.sum_pool(x, (kernel,), 1, padding).tolist() == [18] * (6 + 2 * padding - kernel)
        found = fp.avg_pool(x, (kernel,), 1, padding)
        assert_within_ulps(found, testing.avg_pool(x, (kernel,), 1, padding), found)
        assert_within_ulps(
            fp.avg_pool(x, (kernel,), 1, padding, count_include_pad=False),
            np.full(len(found), 3.6),
            np.full(len(found), 3.6),
        )


@pytest.mark.parametrize("large", [7, 2**31 - 1, 2**32 + 1, 2**40, 2**61])
def test_large_strides_and_dilations(large):
    x = np.arange(1, 7, dtype=np.float32)
    for kernel, stride, padding in [((2,), 1, ((large, 0),)), ((2,), 1, ((0, large),)), ((3,), 1, large)]:
        arguments = {"kernel_size": kernel, "stride": stride, "padding": padding, "dilation": large}
        compare(fp.avg_pool, testing.avg_pool, x, **arguments)
        compare(fp.sum_pool, testing.sum_pool, x, **arguments)
    compare(fp.sum_pool, testing.sum_pool, x, kernel_size=(2,), stride=large)


# ---- NaN and infinity


@float_dtypes
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_element_spoils_its_windows_alone(dtype, bad):
    """At every place of a row, and in every position of a lane."""
    for length, kernel, stride in [(70, 2, 2), (35, 3, 1), (67, 3, 2), (70, 5, 4), (80, 64, 1), (9, 9, 1)]:
        for place in range(length):
            x = np.linspace(1, 2, length).astype(dtype)
            x[place] = bad
            starts = np.arange((length - kernel) // stride + 1) * stride
            over = (starts <= place) & (place < starts + kernel)
            for function in (fp.avg_pool, fp.sum_pool):
                found = function(x, (kernel,), stride)
                np.testing.assert_array_equal(~np.isfinite(found), over)
                np.testing.assert_array_equal(found[over].astype(np.float64), bad)


@float_dtypes
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_element_in_every_place_of_a_volume(dtype, bad):
    for place in range(4 * 5 * 6):
        x = np.ones((4, 5, 6), dtype)
        x.flat[place] = bad
        found = fp.avg_pool(x, (3, 3, 3), 2, 1, count_include_pad=False)
        reached = testing.max_pool(~np.isfinite(x), (3, 3, 3), 2, 1)
        np.testing.assert_array_equal(~np.isfinite(found), reached)
        assert (found[~reached] == 1).all()


def test_opposite_infinities_are_nan():
    x = np.array([np.inf, 1, -np.inf, 2, np.inf, np.inf])
    np.testing.assert_array_equal(fp.avg_pool(x, (3,), 1), [np.nan, -np.inf, np.nan, np.inf])


@pytest.mark.parametrize("dtype", FLOATS)
def test_subnormals_are_not_flushed(dtype):
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array([tiny, tiny, 3 * tiny, -tiny, 2 * tiny, 4 * tiny], dtype)
    assert_same_bits(fp.sum_pool(x, (2,)), np.array([2, 2, 6], dtype) * tiny)
    assert_same_bits(fp.avg_pool(x, (2,)), np.array([1, 1, 3], dtype) * tiny)


# ---- arrays and options


@every_dtype
def test_memory_layouts(dtype, rng):
    for shape, kernel in [((3, 4, 5), (2, 3)), ((1, 10, 20), (3, 3)), ((7,), (3,)), ((2, 3, 1, 4), (2, 2))]:
        x = fill("random", dtype, shape, rng)
        arguments = {"stride": 1, "padding": ((1, 0),) + ((0, 1),) * (len(kernel) - 1)}
        for name, view in layouts(x):
            before = view.tobytes()
            straight = np.ascontiguousarray(np.asarray(view)).astype(np.dtype(dtype))
            for function in (fp.avg_pool, fp.sum_pool):
                assert_same_bits(function(view, kernel, **arguments), function(straight, kernel, **arguments))
            assert view.tobytes() == before, name


@pytest.mark.parametrize(
    "options", [{"num_threads": 1}, {"num_threads": 2}, {"num_threads": 3}, {"contiguity": "require"}]
)
def test_options_change_no_bit(options, rng):
    for shape, kernel, stride in (((2, 3, 60, 70), (3, 3), 2), ((200_001,), (5,), 3), ((40, 41, 42), (2, 2, 2), None)):
        x = rng.standard_normal(shape).astype(np.float32)
        for function in (fp.avg_pool, fp.sum_pool):
            assert_same_bits(function(x, kernel, stride, **options), function(x, kernel, stride))
        with fp.options(**options):
            assert_same_bits(fp.avg_pool(x, kernel, stride), fp.avg_pool(x, kernel, stride, num_threads=1))


def test_options_are_heeded():
    x = np.ones((6, 4))
    x[2, 1] = np.nan
    with pytest.raises(fp.ContiguityError, match="C-contiguous"):
        fp.avg_pool(x.T, (2,), contiguity="require")
    with pytest.warns(fp.ContiguityWarning):
        fp.sum_pool(x.T, (2,), contiguity="warn")
    with pytest.raises(fp.NonFiniteError, match=r"x holds nan at \(2, 1\)"):
        fp.avg_pool(x, (2,), check_finite="raise")
    with pytest.warns(fp.NonFiniteWarning):
        fp.sum_pool(x, (2,), check_finite="warn")


@pytest.mark.parametrize("shape", [(0, 4, 4), (2, 0, 4, 4), (0, 0, 4, 4), (0, 3, 1, 4, 4)])
@every_dtype
def test_empty_leading_axes(shape, dtype):
    x = np.zeros(shape, dtype)
    compare(fp.avg_pool, testing.avg_pool, x, kernel_size=(2, 3), stride=1, padding=1)
    assert fp.sum_pool(x, (2, 2)).shape == (*shape[:-2], 2, 2)


def test_lists_and_scalars_of_python():
    assert fp.avg_pool([1, 5, 2, 4], (2,)).tolist() == [3, 3]
    assert fp.sum_pool([[1.5, 0.5]], (1, 2)).tolist() == [[2]]
    assert fp.sum_pool([True, True, False, True], (2,)).tolist() == [2, 1]


@settings(max_examples=60)
@given(pool_calls(dtypes=(*INTEGERS, *FLOAT_DTYPES), kinds=FINITE, empty_windows=True), st.data())
def test_each_leading_index_on_its_own(call, data):
    """Pooling a slice gives the slice of the pooled, to the bit: the batch leaves no trace in a sample."""
    arguments = call.arguments
    pooled_axes = {axis % call.x.ndim for axis in arguments.get("axes", range(-len(arguments["kernel_size"]), 0))}
    leading = [axis for axis in range(call.x.ndim) if axis not in pooled_axes and call.x.shape[axis]]
    if not leading:
        return
    axis = data.draw(st.sampled_from(leading))
    place = data.draw(st.integers(0, call.x.shape[axis] - 1))
    keep = (slice(None),) * axis + (slice(place, place + 1),)
    whole = fp.avg_pool(call.x, **arguments)
    assert_same_bits(fp.avg_pool(call.x[keep], **arguments), np.ascontiguousarray(whole[keep]))


# ---- bad arguments


@pytest.mark.parametrize("function", [fp.avg_pool, fp.sum_pool])
@pytest.mark.parametrize(("arguments", "named"), [
    ({"kernel_size": 2}, "axes="),
    ({"kernel_size": ()}, "kernel_size"),
    ({"kernel_size": (0,)}, "kernel_size"),
    ({"kernel_size": (2, 2, 2, 2)}, "kernel_size"),
    ({"kernel_size": (2.0,)}, "kernel_size"),
    ({"kernel_size": (8608480567731124087,), "dilation": 1250999896764}, "kernel_size"),
    ({"kernel_size": (2,), "stride": 0}, "stride"),
    ({"kernel_size": (2,), "stride": (1, 1)}, "stride"),
    ({"kernel_size": (2,), "dilation": -1}, "dilation"),
    ({"kernel_size": (2,), "padding": ((-3, -4),)}, "axis 2"),
    ({"kernel_size": (2,), "padding": "full"}, "padding"),
    ({"kernel_size": (2, 9)}, "axis 2"),
    ({"kernel_size": (2,), "ceil_mode": 2}, "ceil_mode"),
    ({"kernel_size": (2,), "axes": 3}, "axes"),
])  # fmt: skip
def test_bad_geometry(function, arguments, named):
    with pytest.raises(fp.GeometryError, match=named) as caught:
        function(np.ones((2, 3, 4)), **arguments)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("divisor", [0, -1, -(2**70), 2**70, 2.0, 1.5, True, "2", (2,), np.nan])
def test_bad_divisors(divisor):
    with pytest.raises(fp.GeometryError, match="divisor_override"):
        fp.avg_pool(np.ones(4), (2,), divisor_override=divisor)


@pytest.mark.parametrize("flag", [None, 2, "yes", 0.5, [True]])
def test_bad_flags(flag):
    with pytest.raises(fp.GeometryError, match="count_include_pad"):
        fp.avg_pool(np.ones(4), (2,), count_include_pad=flag)
    assert fp.avg_pool(np.ones(4), (2,), count_include_pad=np.True_).tolist() == [1, 1]


@pytest.mark.parametrize("dtype", ["complex128", "object", "U3", "M8[s]", "longdouble"])
def test_inputs_of_other_dtypes(dtype):
    if dtype == "longdouble" and np.dtype(dtype) == np.float64:
        pytest.skip("longdouble is float64 here")
    for function in (fp.avg_pool, fp.sum_pool):
        with pytest.raises(fp.DtypeError, match="x has dtype"):
            function(np.zeros(3, dtype), (2,))
        with pytest.raises(fp.DtypeError, match="masked"):
            function(np.ma.zeros(3), (2,))


@pytest.mark.parametrize("function", [fp.avg_pool, fp.sum_pool])
def test_unfit_outputs(function):
    x = np.arange(12.0).reshape(3, 4)
    good = np.full((3, 2), 7.0)
    for out, error in [
        (np.full((3, 2), 7, np.float32), fp.DtypeError),
        (np.full((3, 2), 7, ">f8"), fp.DtypeError),
        (np.full((2, 3), 7.0), fp.GeometryError),
        (np.full((2, 3), 7.0).T, fp.ContiguityError),
        (x.reshape(-1)[:6].reshape(3, 2), fp.ContiguityError),
        ((good, good), fp.DtypeError),
        ([[7.0] * 2] * 3, fp.DtypeError),
    ]:
        before = np.array(out)
        with pytest.raises(error, match="out"):
            function(x, (2,), out=out)
        np.testing.assert_array_equal(np.array(out), before)
    good.flags.writeable = False
    with pytest.raises(fp.ContiguityError, match="read-only"):
        function(x, (2,), out=good)
    unfit = np.full((3, 2), 7.0)
    with pytest.raises(fp.GeometryError, match="stride"):
        function(x, (2,), stride=0, out=unfit)
    assert (unfit == 7).all()


def test_one_name_of_every_kind_is_generated():
    """The kinds that these tests leave out are those that no sum can tell apart."""
    assert set(FINITE) < set(KINDS)


# ---- windows far beyond the axis


@pytest.mark.parametrize("far", [2**20, 2**31, 2**40, 2**62])
def test_strides_far_beyond_the_axis(far):
    """A window before the axis, one on it, one after it: no product of large numbers may wrap around."""
    x = np.array([3.0, 5.0, 1.0, 1.0, 1.0])
    assert fp.sum_pool(x, (2,), far, far).tolist() == [0, 8, 0]
    assert fp.avg_pool(x, (2,), far, far).tolist() == [0, 4, 0]
    assert fp.sum_pool_backward(np.array([1.0, 2.0, 4.0]), (5,), (2,), far, far).tolist() == [2, 2, 0, 0, 0]


@pytest.mark.parametrize("far", [2**31, 2**40, 2**61])
def test_dilation_far_beyond_the_axis(far):
    """The taps at -far, 0 and far: only the one in the middle is an element."""
    x = np.array([3.0, 5.0, 1.0, 2.0])
    arguments = {"stride": 3, "padding": far, "dilation": far}
    assert fp.sum_pool(x, (3,), **arguments).tolist() == [3, 2]
    assert fp.sum_pool_backward(np.array([1.0, 2.0]), (4,), (3,), **arguments).tolist() == [1, 0, 0, 2]
    assert fp.max_pool(x, (3,), **arguments, return_indices=True).indices.tolist() == [0, 3]
