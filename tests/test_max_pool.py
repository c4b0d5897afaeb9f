"""max_pool, min_pool and global_max_pool against the slow twin, and against values worked by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from arrays import (
    DTYPES,
    FLOAT_DTYPES,
    FLOATS,
    KINDS,
    NUMERIC_DTYPES,
    assert_same_bits,
    dirty,
    extremes,
    fill,
    layouts,
    lowest,
    nans,
    raw,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import pool_calls

import fastpool as fp
from fastpool import testing

PAIRS = [(fp.max_pool, testing.max_pool), (fp.min_pool, testing.min_pool)]
both = pytest.mark.parametrize(("fast", "slow"), PAIRS, ids=["max", "min"])
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
float_dtypes = pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)


def compare(fast, slow, x, **arguments):
    """Every way to ask for the result gives the bits of the twin."""
    expected = slow(x, **arguments, return_indices=True)
    pooled = fast(x, **arguments, return_indices=True)
    assert_same_bits(pooled, expected)
    assert_same_bits(np.asarray(x)[...].ravel()[pooled.indices].astype(pooled.values.dtype), pooled.values)
    assert_same_bits(fast(x, **arguments), expected.values)
    out = dirty(expected.values)
    assert fast(x, **arguments, out=out) is out
    assert_same_bits(out, expected.values)
    outs = dirty(expected.values), dirty(expected.indices)
    pooled = fast(x, **arguments, return_indices=True, out=outs)
    assert pooled[0] is outs[0]
    assert pooled[1] is outs[1]
    assert_same_bits(pooled, expected)
    return expected


# ---- against the twin


@both
@settings(max_examples=250)
@given(call=pool_calls())
def test_generated_calls(fast, slow, call):
    compare(fast, slow, call.x, **call.arguments)


@both
@every_dtype
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_every_length(fast, slow, dtype, kind, rng):
    """Every lane of a vector and every remainder of a row, for strides that have their own code."""
    for length in (1, 2, 3, 5, 8, 15, 17, 33, 67, 130):
        for kernel, stride, dilation, before, after in [
            (2, 2, 1, 0, 1), (3, 1, 1, 1, 1), (3, 2, 1, 1, 1), (3, 4, 1, 1, 2), (5, 3, 2, 4, 4),
            (1, 2, 1, 0, 0), (7, 1, 1, 3, 3),
        ]:  # fmt: skip
            x = fill(kind, dtype, (length,), rng)
            try:
                expected = slow(x, (kernel,), stride, ((before, after),), dilation, return_indices=True)
            except fp.GeometryError:
                continue
            found = fast(x, (kernel,), stride, ((before, after),), dilation, return_indices=True)
            assert_same_bits(found, expected)
            assert_same_bits(fast(x, (kernel,), stride, ((before, after),), dilation), expected.values)


@both
@pytest.mark.parametrize("dtype", ["uint8", "float32", "int64"])
@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "padding"),
    [
        ((3, 70, 67), (3, 3), (2, 2), 1),
        ((2, 20, 21, 22), (2, 2, 2), None, 0),
        ((1, 1, 40, 41), (13, 13), (1, 1), 6),
        ((2, 9, 10, 11, 12), (2, 3, 2, 3), (1, 2, 2, 1), 1),
        ((1, 40, 50), (1, 9), (1, 1), (0, 4)),
        ((1, 50, 40), (9, 1), (1, 1), (4, 0)),
        ((300,), (256,), (1,), ((0, 0),)),
        ((600,), (300,), (7,), ((200, 100),)),
    ],
)
def test_larger_calls(fast, slow, dtype, shape, kernel, stride, padding, rng):
    for kind in ("random", "ties", "some_nan"):
        x = fill(kind, dtype, shape, rng)
        compare(fast, slow, x, kernel_size=kernel, stride=stride, padding=padding)


@both
@pytest.mark.parametrize("dtype", ["int8", "uint16", "float32", "float64"])
def test_long_windows(fast, slow, dtype, rng):
    """Windows that are longer than a vector, a row buffer and the ordinals of a one-byte lane."""
    for kind, length, kernel, stride, dilation in itertools.product(
        KINDS, (200, 1000), (64, 100, 129, 257, 300), (1, 3, 64), (1, 3)
    ):
        x = fill(kind, dtype, (length,), rng)
        if dilation * (kernel - 1) + 1 > length:
            continue
        reference = fast(x, (kernel,), stride, 0, dilation, return_indices=True)
        windows = np.lib.stride_tricks.sliding_window_view(x, dilation * (kernel - 1) + 1)[::stride, ::dilation]
        chosen = windows.argmax(1) if fast is fp.max_pool else windows.argmin(1)
        expected = chosen * dilation + np.arange(len(windows)) * stride
        np.testing.assert_array_equal(reference.indices, expected)
        assert_same_bits(reference.values, x[expected])
        assert_same_bits(fast(x, (kernel,), stride, 0, dilation), x[expected])


def numpy_pool(x, kernel, stride, padding, dilation, minimum):
    """Pooling of the last axes in NumPy's own terms, for values that padding cannot equal."""
    count = len(kernel)
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x
    fill_value = extremes(wide.dtype)[-1 if minimum else 0]
    pads = ((0, 0),) * (x.ndim - count) + padding
    numbers = np.pad(wide, pads, constant_values=fill_value)
    places = np.pad(np.arange(x.size).reshape(x.shape), pads, constant_values=-1)
    spans = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    steps = (..., *(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilation))
    flat = []
    for array in (numbers, places):
        windows = np.lib.stride_tricks.sliding_window_view(array, spans, tuple(range(-count, 0)))[steps]
        flat.append(windows.reshape(*windows.shape[:-count], -1))
    chosen = flat[0].argmin(-1) if minimum else flat[0].argmax(-1)
    indices = np.take_along_axis(flat[1], chosen[..., None], -1)[..., 0]
    return fp.Pooled(x.ravel()[indices], indices)


@every_dtype
def test_images_and_volumes_of_many_sizes(dtype):
    """Too large for the twin: rows, planes and tiles of every length, at the default settings."""
    rng = np.random.default_rng(1)
    for case in range(60):
        count = int(rng.integers(1, 4))
        longest = ((9000,), (60, 700), (20, 20, 120))[count - 1]
        shape = (int(rng.integers(1, 4)), *(int(rng.integers(10, n)) for n in longest))
        kernel, stride = (tuple(int(n) for n in rng.integers(1, 6, count)) for _ in range(2))
        dilation = tuple(int(n) for n in rng.integers(1, 3, count))
        padding = tuple(
            (int(rng.integers(k)), int(rng.integers(k))) if d == 1 else (0, 0)
            for k, d in zip(kernel, dilation, strict=True)
        )
        x = fill(("ties", "some_nan", "random")[case % 3], dtype, shape, rng)
        for minimum in (False, True):
            # Values that padding could equal become another.
            lowest_place = raw(x) == raw(extremes(dtype)[-1 if minimum else 0].reshape(1))[0]
            x = np.where(lowest_place, extremes(dtype)[0 if minimum else -1], x)
            function = fp.min_pool if minimum else fp.max_pool
            expected = numpy_pool(x, kernel, stride, padding, dilation, minimum)
            found = function(x, kernel, stride, padding, dilation, return_indices=True)
            np.testing.assert_array_equal(found.indices, expected.indices)
            assert_same_bits(found.values, expected.values)
            assert_same_bits(function(x, kernel, stride, padding, dilation), expected.values)


@pytest.mark.parametrize("ndim", range(1, 8))
def test_any_number_of_pooled_axes(ndim, rng):
    x = rng.standard_normal((2, *(3,) * ndim)).astype(np.float32)
    compare(fp.max_pool, testing.max_pool, x, kernel_size=(2,) * ndim, stride=1)


# ---- values worked by hand


def test_taps_stay_on_the_lattice():
    x = np.array([1.0, 2, 3, 4, 5])
    assert fp.max_pool(x, (3,), 1, 2, 2).tolist() == [3, 4, 5, 4, 5]
    assert fp.max_pool(x, (3,), 1, 2, 2, return_indices=True).indices.tolist() == [2, 3, 4, 3, 4]


def test_first_of_equal_values_wins():
    x = np.array([[1, 2], [2, 2]])
    assert fp.max_pool(x, (2, 2), return_indices=True).indices.tolist() == [[1]]
    assert fp.min_pool(-x, (2, 2), return_indices=True).indices.tolist() == [[1]]


@float_dtypes
def test_signed_zeros_tie(dtype):
    for first, second in ((0.0, -0.0), (-0.0, 0.0)):
        x = np.array([first, second]).astype(dtype)
        for function in (fp.max_pool, fp.min_pool):
            pooled = function(x, (2,), return_indices=True)
            assert pooled.indices.tolist() == [0]
            assert_same_bits(pooled.values, x[:1])
            assert_same_bits(function(x, (2,)), x[:1])


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
@pytest.mark.parametrize("base", [2**53, 2**62, 2**63 - 2])
def test_64_bit_integers_are_compared_exactly(dtype, base):
    x = np.array([base, base + 1, base], dtype)
    assert fp.max_pool(x, (3,), return_indices=True) == ([base + 1], [1])
    assert fp.min_pool(x[1:], (2,), return_indices=True) == ([base], [2 - 1])
    y = np.array([2**64 - 2, 2**64 - 1, 2**63 - 1], np.uint64)
    assert fp.max_pool(y, (3,), return_indices=True) == ([2**64 - 1], [1])
    assert fp.min_pool(y, (3,), return_indices=True) == ([2**63 - 1], [2])


@float_dtypes
@pytest.mark.parametrize("fast", [fp.max_pool, fp.min_pool])
def test_nan_in_every_lane(fast, dtype):
    """One NaN at every place of a row reaches every window over it, and no other window."""
    for length, kernel, stride in [
        (70, 2, 2),
        (70, 3, 1),
        (67, 3, 2),
        (70, 5, 4),
        (130, 64, 1),
        (9, 9, 1),
        (65, 2, 1),
    ]:
        for place in range(length):
            x = np.linspace(-3, 3, length).astype(dtype)
            x[place] = nans(dtype)[place % 5]
            values, indices = fast(x, (kernel,), stride, return_indices=True)
            starts = np.arange(len(values)) * stride
            over = (starts <= place) & (place < starts + kernel)
            np.testing.assert_array_equal(np.isnan(values), over)
            np.testing.assert_array_equal(indices[over], place)
            assert_same_bits(values, x[indices])
            assert_same_bits(fast(x, (kernel,), stride), values)


@float_dtypes
def test_nan_in_every_place_of_a_volume(dtype):
    for place in range(4 * 5 * 6):
        x = np.zeros((4, 5, 6), dtype)
        x.flat[place] = np.nan
        values, indices = fp.max_pool(x, (3, 3, 3), 2, 1, return_indices=True)
        expected = testing.max_pool(x, (3, 3, 3), 2, 1, return_indices=True)
        assert_same_bits(values, expected.values)
        assert_same_bits(indices, expected.indices)
        assert np.isnan(values).any()


@float_dtypes
@pytest.mark.parametrize("fast", [fp.max_pool, fp.min_pool])
def test_the_first_nan_wins(fast, dtype):
    payloads = nans(dtype)
    x = np.concatenate([extremes(dtype), payloads, extremes(dtype)])
    first = len(extremes(dtype))
    pooled = fast(x, (len(x),), return_indices=True)
    assert pooled.indices.tolist() == [first]
    assert_same_bits(pooled.values, x[first : first + 1])
    assert_same_bits(fast(x, (len(x),)), x[first : first + 1])
    # In two dimensions the first in C order, though another is first along the inner axis.
    y = np.zeros((3, 3), dtype)
    y[1, 2], y[2, 0] = payloads[1], payloads[3]
    pooled = fast(y, (3, 3), return_indices=True)
    assert pooled.indices.tolist() == [[5]]
    assert_same_bits(fast(y, (3, 3)).ravel(), payloads[1:2])


@float_dtypes
def test_windows_of_nan_are_nan(dtype):
    x = np.resize(nans(dtype), (7, 9))
    for padding in (0, 1):
        pooled = fp.max_pool(x, (3, 3), 2, padding, return_indices=True)
        assert np.isnan(pooled.values).all()
        assert_same_bits(pooled, testing.max_pool(x, (3, 3), 2, padding, return_indices=True))
        assert_same_bits(fp.max_pool(x, (3, 3), 2, padding), pooled.values)


@every_dtype
@both
def test_padding_never_wins_and_is_never_indexed(fast, slow, dtype):
    """Windows of nothing but the value that padding is filled with point at their first real tap."""
    worst = lowest(dtype) if fast is fp.max_pool else extremes(dtype)[-1]
    x = np.full((2, 5, 6), worst, dtype)
    for kernel, stride, padding, dilation in [
        ((3, 3), 1, 1, 1),
        ((3, 3), 2, 2, 1),
        ((3, 3), 1, 2, 2),
        ((2, 4), (2, 1), ((1, 0), (2, 3)), 1),
    ]:
        expected = compare(fast, slow, x, kernel_size=kernel, stride=stride, padding=padding, dilation=dilation)
        assert (raw(expected.values) == raw(x).flat[0]).all()
        gradient = np.ones(expected.indices.shape)
        assert fp.max_pool_backward(gradient, expected.indices, x.shape).sum() == gradient.size
    assert fp.max_pool(x, (3, 3), 1, 1, return_indices=True).indices[0, 0, 0] == 0
    assert fp.max_pool(x[0, 0], (3,), 1, 2, 2, return_indices=True).indices.tolist() == [0, 1, 0, 1, 2, 3]


@pytest.mark.parametrize("dtype", FLOATS)
def test_infinite_values_are_indexed(dtype):
    x = np.full((1, 4, 4), -np.inf, dtype)
    x[0, 3, 3] = np.finfo(dtype).min
    pooled = fp.max_pool(x, (2, 2), 2, 1, return_indices=True)
    assert pooled.indices.tolist() == [[[0, 1, 3], [4, 5, 7], [12, 13, 15]]]
    assert pooled.values[0, 2, 2] == np.finfo(dtype).min


@pytest.mark.parametrize("dtype", FLOATS)
def test_subnormals_are_not_flushed(dtype):
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array([0, tiny, -tiny, 0, 2 * tiny, tiny], dtype)
    assert fp.max_pool(x, (3,), return_indices=True).indices.tolist() == [1, 4]
    assert fp.min_pool(x, (3,), return_indices=True).indices.tolist() == [2, 3]


def test_overlapping_windows_choose_one_element_four_times():
    x = np.zeros((1, 1, 5, 5), np.float32)
    x[0, 0, 1, 1] = 9
    pooled = fp.max_pool(x, (3, 3), 2, 1, return_indices=True)
    assert (pooled.indices == 6).sum() == 4
    assert fp.max_pool_backward(np.ones_like(pooled.values), pooled.indices, x.shape)[0, 0, 1, 1] == 4


def test_indices_count_through_the_whole_input():
    x = np.arange(2 * 3 * 4 * 4).reshape(2, 3, 4, 4)
    pooled = fp.max_pool(x, (4, 4), return_indices=True)
    assert pooled.indices.ravel().tolist() == [15, 31, 47, 63, 79, 95]
    channels_last = fp.max_pool(np.ascontiguousarray(np.moveaxis(x, 1, 3)), (4, 4), axes=(1, 2), return_indices=True)
    assert channels_last.indices.ravel().tolist() == [45, 46, 47, 93, 94, 95]


def test_axes_pair_with_the_entries_in_the_order_given(rng):
    x = rng.standard_normal((5, 6, 7))
    expected = testing.max_pool(x, (2, 3), (1, 2), (1, 0), return_indices=True, axes=(0, 2))
    for axes, kernel, stride, padding in [
        ((0, 2), (2, 3), (1, 2), (1, 0)),
        ((2, 0), (3, 2), (2, 1), (0, 1)),
        ((-1, -3), (3, 2), (2, 1), (0, 1)),
    ]:
        assert_same_bits(fp.max_pool(x, kernel, stride, padding, axes=axes, return_indices=True), expected)
    moved = testing.max_pool(np.moveaxis(x, 1, 0), (2, 3), (1, 2), (1, 0))
    assert_same_bits(expected.values, np.ascontiguousarray(np.moveaxis(moved, 0, 1)))


def test_windows_much_larger_than_the_input():
    x = np.array([3.0, 5.0, 4.0, 5.0, 1.0])
    for kernel, padding in ((100, 50), (10**6 + 1, 5 * 10**5), (2**31 + 11, 2**30 + 5), (2**40 + 1, 2**39)):
        pooled = fp.max_pool(x, (kernel,), 1, padding, return_indices=True)
        assert_same_bits(pooled, testing.max_pool(x, (kernel,), 1, padding, return_indices=True))
        assert (pooled.values == 5).all()
        assert_same_bits(fp.max_pool(x, (kernel,), 1, padding), pooled.values)


@pytest.mark.parametrize("large", [7, 2**31 - 1, 2**31, 2**32 + 1, 2**40, 2**61])
def test_large_strides_and_dilations(large):
    x = np.arange(6, dtype=np.float32)
    assert_same_bits(
        fp.max_pool(x, (2,), large, return_indices=True),
        testing.max_pool(x, (2,), large, return_indices=True),
    )
    for kernel, stride, padding in [
        ((2,), 1, ((large, 0),)),
        ((2,), 1, ((0, large),)),
        ((3,), 1, large),
        ((2,), large, ((large, 0),)),
        ((1,), 1, 0),
    ]:
        arguments = {"kernel_size": kernel, "stride": stride, "padding": padding, "dilation": large}
        compare(fp.max_pool, testing.max_pool, x, **arguments)


# ---- arrays


@both
@every_dtype
def test_memory_layouts(fast, slow, dtype, rng):
    for kind in ("random", "many_nan", "ties"):
        for shape, kernel in [
            ((3, 4, 5), (2, 3)),
            ((1, 10, 20), (3, 3)),
            ((7,), (3,)),
            ((2, 3, 1, 4), (2, 2)),
        ]:
            x = fill(kind, dtype, shape, rng)
            for name, view in layouts(x):
                before = view.tobytes()
                compare(
                    fast,
                    slow,
                    view,
                    kernel_size=kernel,
                    stride=1,
                    padding=((1, 0),) + ((0, 1),) * (len(kernel) - 1),
                )
                assert view.tobytes() == before, name


def test_negative_stride_of_a_length_one_axis():
    x = np.zeros((1, 10, 20))[::-1]
    x[0, 3, 7] = 1
    assert x.strides[0] < 0
    assert fp.max_pool(x, (10, 20), return_indices=True).indices.tolist() == [[[67]]]


def test_indices_are_logical_positions():
    x = np.zeros((4, 6))
    x[1, 4] = 1
    for view, place in [(x, 10), (x.T, 17), (x[::-1], 16), (x[:, ::-1], 7), (np.asfortranarray(x), 10)]:
        pooled = fp.max_pool(view, view.shape, return_indices=True)
        assert pooled.indices.item() == place
        assert view.ravel()[place] == 1


@pytest.mark.parametrize("shape", [(0, 4, 4), (2, 0, 4, 4), (0, 0, 4, 4), (0, 3, 1, 4, 4)])
@every_dtype
def test_empty_leading_axes(shape, dtype):
    x = np.zeros(shape, dtype)
    compare(fp.max_pool, testing.max_pool, x, kernel_size=(2, 3), stride=1, padding=1)
    pooled = fp.max_pool(x, (2, 2), return_indices=True)
    assert pooled.values.shape == (*shape[:-2], 2, 2)
    if dtype != "bool":
        assert fp.max_pool_backward(pooled.values, pooled.indices, shape).shape == shape


def test_lists_and_scalars_of_python():
    assert fp.max_pool([1, 5, 2, 4], (2,)).tolist() == [5, 4]
    assert fp.max_pool([[1.5, 0.5]], (1, 2)).tolist() == [[1.5]]


# ---- global


@every_dtype
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (1, 1, 2, 3, 4), (0, 3, 4, 5)])
def test_global_max_pool(dtype, shape, rng):
    for kind in ("random", "ties", "many_nan", "lowest"):
        x = fill(kind, dtype, shape, rng)
        for keepdims, axes in itertools.product(
            (True, False), (None, -1, (2,), (1, 2), (2, 1), (-1, 2) if len(shape) > 3 else (-1,))
        ):
            arguments = {"keepdims": keepdims, "axes": axes}
            expected = testing.global_max_pool(x, **arguments, return_indices=True)
            assert_same_bits(fp.global_max_pool(x, **arguments, return_indices=True), expected)
            assert_same_bits(fp.global_max_pool(x, **arguments), expected.values)


def test_global_max_pool_has_nothing_to_pool():
    for x in (np.zeros((2, 3)), np.zeros(3), np.zeros(())):
        with pytest.raises(fp.GeometryError):
            fp.global_max_pool(x)
    with pytest.raises(fp.GeometryError, match="length 0"):
        fp.global_max_pool(np.zeros((2, 3, 0)))
    with pytest.raises(fp.GeometryError, match="axes"):
        fp.global_max_pool(np.zeros((2, 3, 4)), axes=3)
    with pytest.raises(fp.GeometryError, match="axes"):
        fp.global_max_pool(np.zeros((2, 3, 4)), axes=())


# ---- relations that need no twin


@given(pool_calls(dtypes=("int32", "float64"), kinds=("random", "ties", "extremes")))
def test_minimum_is_the_maximum_of_the_negated(call):
    x = np.where(call.x == np.iinfo(np.int32).min, 0, call.x) if call.x.dtype == np.int32 else call.x
    lower = fp.min_pool(x, **call.arguments, return_indices=True)
    upper = fp.max_pool(-x, **call.arguments, return_indices=True)
    np.testing.assert_array_equal(lower.indices, upper.indices)
    np.testing.assert_array_equal(lower.values, -upper.values)


@given(pool_calls(dtypes=NUMERIC_DTYPES), st.data())
def test_each_leading_index_on_its_own(call, data):
    """Pooling a slice gives the slice of the pooled: nothing leaks between leading indices."""
    arguments = call.arguments
    pooled_axes = {axis % call.x.ndim for axis in arguments.get("axes", range(-len(arguments["kernel_size"]), 0))}
    leading = [axis for axis in range(call.x.ndim) if axis not in pooled_axes and call.x.shape[axis]]
    if not leading:
        return
    axis = data.draw(st.sampled_from(leading))
    place = data.draw(st.integers(0, call.x.shape[axis] - 1))
    keep = (slice(None),) * axis + (slice(place, place + 1),)
    whole = fp.max_pool(call.x, **arguments)
    assert_same_bits(fp.max_pool(call.x[keep], **arguments), np.ascontiguousarray(whole[keep]))


# ---- PyTorch


@pytest.mark.torch
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_pytorch_agrees_without_nan(ndim, rng):
    torch = pytest.importorskip("torch")
    x = rng.permutation(2 * 3 * 11**ndim).astype(np.float32).reshape(2, 3, *(11,) * ndim)
    function = getattr(torch.nn.functional, f"max_pool{ndim}d")
    for kernel, stride, padding, dilation, ceil_mode in [
        (2, 2, 0, 1, False),
        (3, 2, 1, 1, False),
        (3, 2, 1, 2, True),
        (5, 3, 2, 1, True),
    ]:
        values, indices = function(
            torch.from_numpy(x), kernel, stride, padding, dilation, ceil_mode, return_indices=True
        )
        pooled = fp.max_pool(x, (kernel,) * ndim, stride, padding, dilation, ceil_mode=ceil_mode, return_indices=True)
        np.testing.assert_array_equal(pooled.values, values.numpy())
        plane = fp.convert_indices(pooled.indices, x.shape, ndim, to="plane")
        np.testing.assert_array_equal(plane, indices.numpy())


@pytest.mark.parametrize("far", [2**20 + 1, 2**31 - 1, 2**40 + 1])
def test_windows_far_wider_than_the_axis(far):
    """Two dilated windows that hold every second element each, and nothing else but padding."""
    found = fp.max_pool(np.arange(5.0), (far,), None, far, 2, ceil_mode=True, return_indices=True)
    assert found.indices.tolist() == [3, 4]
    assert found.values.tolist() == [3, 4]
