"""`unfold`, `fold` and `pad`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from arrays import BFLOAT16, DTYPES, FLOAT_DTYPES, KINDS, NUMERIC_DTYPES, assert_same_bits, fill, layouts
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import CONV_COSTS, possible_axes

import fastpool as fp
from fastpool import _padding, testing

MODES = ("constant", "zeros", "reflect", "replicate", "circular")


@pytest.fixture
def tile_bytes(monkeypatch):
    def set_to(size):
        monkeypatch.setenv("FASTPOOL_TILE_BYTES", str(size))

    return set_to


@st.composite
def unfold_calls(draw):
    """Leading axes, lengths and the arguments of windows over 1 to 5 axes."""
    count = draw(st.integers(1, 5), label="axes")
    axes = [draw(st.sampled_from(possible_axes(False, CONV_COSTS[count], True))) for _ in range(count)]
    lengths, kernel, stride, dilation, before, after = (tuple(column) for column in zip(*axes, strict=True))
    leading = draw(st.sampled_from(((2,), (1, 3), (2, 1), (0, 2), (2, 0), (0,))))
    pads = tuple(zip(before, after, strict=True))
    return leading, lengths, {"kernel_size": kernel, "stride": stride, "padding": pads, "dilation": dilation}


@settings(max_examples=120)
@given(unfold_calls(), st.sampled_from(DTYPES), st.sampled_from(KINDS), st.integers(0, 2**32 - 1))
def test_generated_unfolds(call, dtype, kind, seed):
    leading, lengths, arguments = call
    x = fill(kind, dtype, (*leading, *lengths), np.random.default_rng(seed))
    assert_same_bits(fp.unfold(x, **arguments), testing.unfold(x, **arguments))


@settings(max_examples=120)
@given(unfold_calls(), st.sampled_from(NUMERIC_DTYPES), st.sampled_from(("random", "ties")), st.integers(0, 2**32 - 1))
def test_generated_folds(call, dtype, kind, seed):
    leading, lengths, arguments = call
    shape = fp.unfold(np.zeros((*leading, *lengths), np.bool_), **arguments).shape
    columns = fill(kind, dtype, shape, np.random.default_rng(seed))
    found = fp.fold(columns, lengths, **arguments)
    exact = testing.fold(columns, lengths, **arguments)
    if np.dtype(dtype).kind in "iu" or kind == "ties":
        assert_same_bits(found, exact)
        return
    magnitude = testing.fold(np.abs(columns.astype(np.float64)), lengths, **arguments)
    taps = math.prod(arguments["kernel_size"])
    accumulated = np.float32 if np.dtype(dtype).itemsize == 2 else dtype
    bound = taps * np.finfo(accumulated).eps * magnitude
    if accumulated is np.float32:
        bound = bound + np.abs(exact.astype(np.float64)) / (128 if dtype == BFLOAT16 else 1024)
    assert found.dtype == exact.dtype
    assert (np.abs(found.astype(np.float64) - exact.astype(np.float64)) <= bound).all()


@settings(max_examples=60)
@given(unfold_calls(), st.integers(0, 2**32 - 1))
def test_fold_is_the_adjoint_of_unfold(call, seed):
    leading, lengths, arguments = call
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((*leading, *lengths))
    columns = fp.unfold(x, **arguments)
    y = rng.standard_normal(columns.shape)
    back = fp.fold(y, lengths, **arguments)
    assert abs((columns * y).sum() - (x * back).sum()) <= 1e-12 * (np.abs(columns * y).sum() + 1)


@settings(max_examples=40)
@given(unfold_calls(), st.integers(0, 2**32 - 1))
def test_unfold_makes_convolution_a_product_of_matrices(call, seed):
    leading, lengths, arguments = call
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((*leading, *lengths))
    kernel = arguments.pop("kernel_size")
    weight = rng.standard_normal((3, leading[-1], *kernel))
    columns = fp.unfold(x, kernel, **arguments)
    y = fp.conv(x, weight, **arguments)
    product = weight.reshape(3, math.prod(weight.shape[1:])) @ columns
    np.testing.assert_allclose(y.reshape(product.shape), product, atol=1e-11)


@settings(max_examples=15)
@given(unfold_calls())
def test_gradcheck(call):
    leading, lengths, arguments = call
    x = np.random.default_rng(0).standard_normal((*leading, *lengths))
    if not 0 < x.size < 150 or 0 in leading:
        return
    assert testing.gradcheck(
        lambda x: fp.unfold(x, **arguments), lambda grad, x: fp.fold(grad, x.shape[len(leading) :], **arguments), x
    )


LARGER = {
    "1-D": ((3, 40_001), {"kernel_size": (5,), "stride": 2, "padding": 3}),
    "image": ((2, 7, 90, 100), {"kernel_size": (3, 4), "padding": (1, 2)}),
    "strided image": ((2, 7, 90, 101), {"kernel_size": (7, 5), "stride": (2, 3), "padding": 3, "dilation": (1, 2)}),
    "patches": ((3, 3, 128, 96), {"kernel_size": (16, 8), "stride": (16, 8)}),
    "volume": ((1, 2, 30, 31, 32), {"kernel_size": (3, 2, 3), "padding": ((1, 0), (2, 1), (-1, 1))}),
    "one row of channels": ((300, 8, 1, 9), {"kernel_size": (1, 3), "padding": (0, 1)}),
}


@pytest.mark.parametrize("name", LARGER)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", BFLOAT16])
def test_threads_and_tiles(name, dtype, tile_bytes):
    if dtype is None:
        pytest.skip("needs ml_dtypes")
    shape, arguments = LARGER[name]
    spatial = len(arguments["kernel_size"])
    x = fill("random", dtype, shape, np.random.default_rng(0))
    columns = fp.unfold(x, **arguments, num_threads=1)
    back = fp.fold(columns, shape[-spatial:], **arguments, num_threads=1)
    for size in (0, 1, 4096, 65536):
        tile_bytes(size)
        for threads in (1, 2, 3):
            assert_same_bits(fp.unfold(x, **arguments, num_threads=threads), columns)
            assert_same_bits(fp.fold(columns, shape[-spatial:], **arguments, num_threads=threads), back)


@pytest.mark.parametrize("name", LARGER)
def test_larger_unfolds_by_sliding_windows(name):
    shape, arguments = LARGER[name]
    kernel = arguments["kernel_size"]
    count = len(kernel)
    x = fill("random", "float32", shape, np.random.default_rng(0))
    strides, dilations = (np.broadcast_to(arguments.get(name, 1), count) for name in ("stride", "dilation"))
    padding = arguments.get("padding", 0)
    padded = fp.pad(x, (padding,) * count if isinstance(padding, int) else padding)
    axes = tuple(range(x.ndim - count, x.ndim))
    extents = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(padded, extents, axes)
    step = [slice(None, None, s) for s in (*strides, *dilations)]
    windows = windows[(..., *step)]
    lead = x.ndim - count
    windows = np.moveaxis(windows, range(lead + count, lead + 2 * count), range(lead, lead + count))
    columns = fp.unfold(x, **arguments)
    assert_same_bits(columns, np.ascontiguousarray(windows).reshape(columns.shape))


@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_layouts(dtype):
    x = fill("random", dtype, (2, 3, 7, 8), np.random.default_rng(0))
    columns = fp.unfold(x, 3, 2, 1)
    for _, view in layouts(x):
        assert_same_bits(fp.unfold(view, 3, 2, 1), fp.unfold(np.array(view, dtype, order="C"), 3, 2, 1))
    for _, view in layouts(columns):
        expected = fp.fold(np.array(view, dtype, order="C"), (7, 8), 3, 2, 1)
        assert_same_bits(fp.fold(view, (7, 8), 3, 2, 1), expected)


def test_one_number_is_for_every_axis():
    x = np.arange(2 * 3 * 4 * 5 * 6).reshape(2, 3, 4, 5, 6)
    assert_same_bits(fp.unfold(x, 2), fp.unfold(x, (2, 2, 2)))
    columns = fp.unfold(x, 2)
    assert_same_bits(fp.fold(columns, (4, 5, 6), 2), fp.fold(columns, (4, 5, 6), (2, 2, 2)))
    # without a batch the length of the kernel tells
    assert fp.unfold(x[0], (2, 2, 2)).shape == columns.shape[1:]
    assert fp.unfold(x[0], (2, 2)).shape == (3, 16, 20)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_halves_are_rounded_once(dtype):
    ones = np.ones((300, 1), dtype)
    ones[0] = 2048
    total = fp.fold(ones, (1,), (300,), padding=((0, 299),))
    assert total.tolist() == [[2048.0]]  # only the first tap lies inside
    columns = np.ones((2049, 2049), dtype)  # taps of an element are on a diagonal
    assert float(fp.fold(columns, (4097,), (2049,))[0, 2048]) == float(np.array(2049).astype(dtype))


@pytest.mark.parametrize(
    ("shape", "arguments", "words"),
    [
        ((1, 2, 5), {"kernel_size": ()}, "kernel_size is empty"),
        ((5,), {"kernel_size": (2,)}, r"x has 1 dimensions.*3, or 2"),
        ((1, 1, 1, 5), {"kernel_size": (2,)}, r"x has 4 dimensions"),
        ((2, 5), {"kernel_size": 2}, "batch"),
        ((1, 2, 5), {"kernel_size": 6}, "6"),
        ((1, 2, 5), {"kernel_size": 0}, "kernel_size"),
        ((1, 2, 5), {"kernel_size": 2, "stride": None}, "stride"),
        ((1, 2, 5), {"kernel_size": 2, "stride": 0}, "stride"),
        ((1, 2, 0), {"kernel_size": 1}, "length 0"),
        ((1, 2, 5), {"kernel_size": 2, "padding": -3}, "padding"),
        ((1, 2, 5), {"kernel_size": 2**40, "padding": 2**41}, "address"),
    ],
)
def test_bad_unfolds(shape, arguments, words):
    with pytest.raises(fp.GeometryError, match=words):
        fp.unfold(np.zeros(shape), **arguments)


@pytest.mark.parametrize(
    ("shape", "sizes", "kernel", "error", "words"),
    [
        ((1, 5, 3), (4,), (2,), fp.GeometryError, "5 rows, not a multiple of 2 taps"),
        ((1, 4, 4), (4,), (2,), fp.GeometryError, "4 columns, but there are 3 windows"),
        ((4, 3), (4, 4), (2,), fp.GeometryError, "output_size"),
        ((4,), (4,), (2,), fp.GeometryError, "1 dimensions"),
        ((1, 1, 4, 3), (4,), (2,), fp.GeometryError, "4 dimensions"),
        ((4, 3), (), (2,), fp.GeometryError, "output_size|kernel_size"),
        ((4, 3), (-4,), (2,), fp.GeometryError, "negative"),
        ((4, 3), (0,), (2,), fp.GeometryError, "length 0"),
        ((4, 3), (4,), (), fp.GeometryError, "kernel_size is empty"),
        ((4, 3), 2**64, (2,), fp.GeometryError, "output_size"),
    ],
)
def test_bad_folds(shape, sizes, kernel, error, words):
    with pytest.raises(error, match=words):
        fp.fold(np.zeros(shape), sizes, kernel)


def test_bools_move_but_do_not_add_up():
    x = np.array([[True, False, True]])
    assert fp.unfold(x, (2,)).tolist() == [[True, False], [False, True]]
    with pytest.raises(fp.DtypeError, match=r"columns.astype\(np.uint8\)"):
        fp.fold(x, (4,), (1,))


# ---- padding


@st.composite
def pad_calls(draw, dtypes=DTYPES):
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    mode = draw(st.sampled_from(MODES))
    pairs = []
    for length in shape:
        before = draw(st.integers(-length + 1, 6))
        pairs.append((before, draw(st.integers(-length + 1 - min(before, 0), 6))))
    x = fill(draw(st.sampled_from(KINDS)), draw(st.sampled_from(dtypes)), shape, np.random.default_rng(len(shape)))
    return x, tuple(pairs), mode


@settings(max_examples=200)
@given(pad_calls(), st.sampled_from((0, 1)))
def test_generated_pads(call, value):
    x, pairs, mode = call
    found = fp.pad(x, pairs, mode, value)
    assert_same_bits(found, testing.pad(x, pairs, mode, value))
    assert found.flags.c_contiguous
    assert not np.shares_memory(found, x)


@settings(max_examples=100)
@given(pad_calls(dtypes=("float64",)), st.integers(0, 2**32 - 1))
def test_gradient_of_padding(call, seed):
    x, pairs, mode = call
    grad = np.random.default_rng(seed).integers(-9, 9, fp.pad(x, pairs, mode).shape).astype(np.float64)
    found = _padding.pad_backward(grad, x.shape, pairs, mode)
    # an array of places shows which element every place of the result is a copy of
    places = fp.pad(np.arange(1, x.size + 1).reshape(x.shape), pairs, mode)
    expected = np.bincount(places.ravel(), grad.ravel(), x.size + 1)[1:].reshape(x.shape)
    np.testing.assert_array_equal(found, expected)


def test_gradient_of_padding_in_halves():
    grad = np.ones(4096, np.float16)
    assert _padding.pad_backward(grad, (1,), [(4000, 95)], "replicate").tolist() == [4096.0]


@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_pad_takes_any_layout(dtype):
    x = fill("random", dtype, (3, 4, 5), np.random.default_rng(0))
    for mode in MODES:
        for _, view in layouts(x):
            expected = fp.pad(np.array(view, dtype, order="C"), ((1, 2), (-1, 3)), mode)
            assert_same_bits(fp.pad(view, ((1, 2), (-1, 3)), mode), expected)


def test_axes_of_pads():
    x = np.arange(6).reshape(2, 3)
    assert fp.pad(x, 1).shape == (4, 5)
    assert fp.pad(x, 1, axes=0).shape == (4, 3)
    assert fp.pad(x, 1, axes=()).shape == (2, 3)
    assert fp.pad(x, (1,)).shape == (2, 5)
    assert fp.pad(x, ((1, 2), 3), axes=(1, 0)).shape == (8, 6)
    assert fp.pad(np.float32(3), 1).shape == ()
    assert fp.pad(x, ((0, 1),), value=-7)[:, -1].tolist() == [-7, -7]
    assert fp.pad(np.zeros((0, 2)), ((2, 1), (0, 0))).shape == (3, 2)


@pytest.mark.parametrize(
    ("shape", "padding", "arguments", "error", "words"),
    [
        ((3,), "same", {}, fp.GeometryError, "string"),
        ((3,), 1, {"mode": "wrap"}, fp.GeometryError, "mode='wrap'.*circular"),
        ((3,), 1, {"mode": None}, fp.GeometryError, "mode"),
        ((3,), (1, 2), {}, fp.GeometryError, "2 entries"),
        ((3,), ((1, 2, 3),), {}, fp.GeometryError, r"\(1, 2, 3\)"),
        ((3,), 1.5, {}, fp.GeometryError, "padding"),
        ((3,), -2, {}, fp.GeometryError, "less than nothing"),
        ((3,), ((-3, 1),), {"mode": "reflect"}, fp.GeometryError, "nothing to copy"),
        ((0,), 1, {"mode": "circular"}, fp.GeometryError, "nothing to copy"),
        ((3, 3), 2**62, {}, fp.GeometryError, "address"),
        ((3,), 1, {"axes": 1}, fp.GeometryError, "axes|axis"),
        ((3,), 1, {"value": "x"}, fp.DtypeError, "value='x'"),
        ((3,), 1, {"value": None}, fp.DtypeError, "value=None"),
    ],
)
def test_bad_pads(shape, padding, arguments, error, words):
    with pytest.raises(error, match=words):
        fp.pad(np.zeros(shape), padding, **arguments)


@pytest.mark.parametrize(
    ("dtype", "value"), [("uint8", -1), ("uint8", 256), ("int8", 128), ("bool", 2), ("int64", 2**63)]
)
def test_values_that_do_not_fit(dtype, value):
    with pytest.raises(fp.DtypeError, match="does not fit"):
        fp.pad(np.zeros(3, dtype), 1, value=value)
    for pad in (fp.pad, testing.pad):
        with pytest.raises(fp.DtypeError, match=r"value=0.5 is not an integer"):
            pad(np.zeros(3, dtype), 1, value=0.5)
