"""Gradients of averages and sums against the exact twin, central differences and values worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from arrays import (
    FLOAT_DTYPES,
    NUMERIC_DTYPES,
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

numeric_dtypes = pytest.mark.parametrize("dtype", NUMERIC_DTYPES, ids=str)
float_dtypes = pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)


def compare(fast, slow, grad, input_shape, **arguments):
    """Integers that are only added bit for bit, anything else within 4 ulp; into `out` the same bits as anew."""
    exact = slow(grad, input_shape, **arguments)
    found = fast(grad, input_shape, **arguments)
    if is_float(grad.dtype) or fast is fp.avg_pool_backward:
        wide = grad if is_float(grad.dtype) else grad.astype(np.float64)
        assert_within_ulps(found, exact, slow(np.abs(wide), input_shape, **arguments))
    else:
        assert_same_bits(found, exact)
    out = dirty(found)
    assert fast(grad, input_shape, **arguments, out=out) is out
    assert_same_bits(out, found)
    return found


def gradient_of(call, dtype, kind, seed, **arguments):
    shape = testing.sum_pool(np.zeros(call.x.shape, np.int8), **call.arguments).shape
    return tame(fill(kind, dtype, shape, np.random.default_rng(seed)))


gradients = (
    st.sampled_from(NUMERIC_DTYPES),
    st.sampled_from(("random", "ties", "extremes", "some_nan", "many_nan")),
    st.integers(0, 2**32 - 1),
)


# ---- against the twin


@settings(max_examples=80)
@given(
    pool_calls(dtypes=("int8",), kinds=("ties",), empty_windows=True),
    *gradients,
    st.sampled_from((None, None, 1, 3, 7)),
)
def test_generated_averages(call, dtype, kind, seed, override):
    grad = gradient_of(call, dtype, kind, seed)
    arguments = call.arguments | {"divisor_override": override}
    compare(fp.avg_pool_backward, testing.avg_pool_backward, grad, call.x.shape, **arguments)


@settings(max_examples=80)
@given(pool_calls(dtypes=("int8",), kinds=("ties",)), *gradients)
def test_generated_averages_without_padding(call, dtype, kind, seed):
    grad = gradient_of(call, dtype, kind, seed)
    arguments = call.arguments | {"count_include_pad": False}
    compare(fp.avg_pool_backward, testing.avg_pool_backward, grad, call.x.shape, **arguments)


@settings(max_examples=80)
@given(pool_calls(dtypes=("int8",), kinds=("ties",), empty_windows=True), *gradients)
def test_generated_sums(call, dtype, kind, seed):
    grad = gradient_of(call, dtype, kind, seed)
    compare(fp.sum_pool_backward, testing.sum_pool_backward, grad, call.x.shape, **call.arguments)


@numeric_dtypes
@pytest.mark.parametrize(("shape", "kernel", "stride", "padding", "dilation"), [
    ((3, 70, 67), (3, 3), (2, 2), 1, 1),
    ((2, 40, 41), (13, 13), (1, 1), 6, 1),
    ((1, 20, 21, 22), (2, 2, 2), None, 0, 1),
    ((5000,), (5,), (3,), 2, 2),
    ((300, 40), (64, 1), (3, 1), (9, 0), 1),
    ((60, 70), (3, 4), (4, 3), 0, (2, 3)),
])  # fmt: skip
def test_larger_calls(dtype, shape, kernel, stride, padding, dilation, rng):
    """Against the scattered sum in NumPy's own terms: a slice of the input per tap."""
    probe = np.zeros(shape, np.int8)
    out_shape = fp.sum_pool(probe, kernel, stride, padding, dilation).shape
    grad = fill("random", dtype, out_shape, rng)
    wide = grad.astype(np.float64 if is_float(dtype) else np.uint64 if grad.dtype.kind == "u" else np.int64)
    count = len(kernel)
    stride = kernel if stride is None else stride
    padding, dilation = (value if isinstance(value, tuple) else (value,) * count for value in (padding, dilation))
    padded = [n + 2 * p for n, p in zip(shape[-count:], padding, strict=True)]
    inside = (..., *(slice(p, p + n) for p, n in zip(padding, shape[-count:], strict=True)))

    def scattered(values):
        total = np.zeros((*shape[:-count], *padded), values.dtype)
        for taps in np.ndindex(*kernel):
            places = zip(taps, dilation, stride, out_shape[-count:], strict=True)
            total[(..., *(slice(j * d, j * d + (o - 1) * s + 1, s) for j, d, s, o in places))] += values
        return np.ascontiguousarray(total[inside])

    found = fp.sum_pool_backward(grad, shape, kernel, stride, padding, dilation)
    if is_float(dtype):
        magnitude = scattered(np.abs(wide))
        assert_within_ulps(found, scattered(wide).astype(dtype), magnitude)
        taps = math.prod(kernel)
        found = fp.avg_pool_backward(grad, shape, kernel, stride, padding, dilation)
        assert_within_ulps(found, (scattered(wide) / taps).astype(dtype), magnitude / taps)
    else:
        assert_same_bits(found, scattered(wide))


@float_dtypes
def test_error_of_many_overlapping_windows(dtype, rng):
    """Thousands of windows over one element, far away from a running sum's error."""
    for shape, kernel, padding in (((1, 200), (130,), ((90, 60),)), ((1, 5), (5000,), 4999)):
        grad = rng.random(fp.output_shape(shape, kernel, 1, padding)).astype(dtype)
        grad[::3, ::7] *= grad.dtype.type(1000)
        for fast, slow in (
            (fp.sum_pool_backward, testing.sum_pool_backward),
            (fp.avg_pool_backward, testing.avg_pool_backward),
        ):
            exact = slow(grad, shape, kernel, 1, padding)
            assert_within_ulps(fast(grad, shape, kernel, 1, padding), exact, exact)


# ---- central differences


@pytest.mark.parametrize("ndim", range(1, 6))
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("divisor", ["padded", "real", "override", "sum"])
def test_central_differences(ndim, ceil_mode, divisor, rng):
    """Every argument differs on every axis: padding on both sides, crops, dilation, steps wider than windows."""
    lengths = ((7, 6, 5, 4, 4), (5, 4, 4, 3, 3))[ndim > 3][:ndim]
    kernel, stride, dilation = (3, 2, 2, 1, 2)[:ndim], (2, 1, 3, 2, 2)[:ndim], (1, 2, 1, 1, 1)[:ndim]
    padding = ((1, 2), (2, 0), (-1, 1), (0, 1), (1, 0))[:ndim]
    arguments = {
        "kernel_size": kernel, "stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode,
    }  # fmt: skip
    forward, backward = fp.avg_pool, fp.avg_pool_backward
    if divisor == "sum":
        forward, backward = fp.sum_pool, fp.sum_pool_backward
    elif divisor == "override":
        arguments["divisor_override"] = 5
    else:
        arguments["count_include_pad"] = divisor == "padded"
    x = rng.standard_normal(lengths)
    assert fp.gradcheck(
        lambda x: forward(x, **arguments), lambda grad, x: backward(grad, x.shape, **arguments), x, eps=1e-4
    )


def test_central_differences_of_named_axes(rng):
    x = rng.standard_normal((3, 4, 2, 5))
    arguments = {"kernel_size": (2, 3), "stride": (1, 2), "padding": ((0, 1), (2, 1)), "axes": (3, 0)}
    assert fp.gradcheck(
        lambda x: fp.avg_pool(x, **arguments),
        lambda grad, x: fp.avg_pool_backward(grad, x.shape, **arguments),
        x,
        eps=1e-4,
    )


@settings(max_examples=60)
@given(pool_calls(dtypes=("float64",), kinds=("random",), empty_windows=True), st.integers(0, 2**32 - 1))
def test_backward_is_the_adjoint(call, seed):
    """<pool(x), g> equals <x, backward(g)>, here with integers, so that no rounding blurs it."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-99, 99, call.x.shape)
    y = fp.sum_pool(x, **call.arguments)
    grad = rng.integers(-99, 99, y.shape)
    back = fp.sum_pool_backward(grad, x.shape, **call.arguments)
    assert (y * grad).sum() == (x * back).sum()


# ---- values worked by hand


def test_overlap_adds_up():
    grad = fp.avg_pool_backward(np.full((3, 3), 9.0), (5, 5), (3, 3), 2, 1)
    assert grad[1, 1] == 4
    assert grad[0, 0] == 1
    assert grad.tolist() == [[1, 2, 1, 2, 1], [2, 4, 2, 4, 2], [1, 2, 1, 2, 1], [2, 4, 2, 4, 2], [1, 2, 1, 2, 1]]


def test_divisors_in_the_backward():
    ones = np.ones(3)
    assert fp.avg_pool_backward(ones, (5,), (2,), ceil_mode=True).tolist() == [0.5, 0.5, 0.5, 0.5, 1]
    assert fp.avg_pool_backward(ones, (5,), (2,), ceil_mode=True, divisor_override=4).tolist() == [0.25] * 5
    assert fp.sum_pool_backward(ones, (5,), (2,), ceil_mode=True).tolist() == [1] * 5
    assert fp.avg_pool_backward(ones, (4,), (2,), 2, 1).tolist() == [0.5] * 4
    assert fp.avg_pool_backward(ones, (4,), (2,), 2, 1, count_include_pad=False).tolist() == [1, 0.5, 0.5, 1]
    assert (
        fp.avg_pool_backward(ones, (4,), (2,), 2, 1, count_include_pad=False, divisor_override=2).tolist() == [0.5] * 4
    )


@pytest.mark.parametrize("include", [True, False])
def test_divisor_override_wins(include):
    grad = fp.avg_pool_backward(np.ones((4, 4)), (4, 4), (3, 3), 1, 1, count_include_pad=include, divisor_override=2)
    assert grad[0].tolist() == [2, 3, 3, 2]
    assert grad[1].tolist() == [3, 4.5, 4.5, 3]


def test_elements_of_no_window_get_nothing():
    out = np.full(11, np.nan)
    fp.sum_pool_backward(np.array([1.0, 2, 4]), (11,), (2,), 4, out=out)
    assert out.tolist() == [1, 1, 0, 0, 2, 2, 0, 0, 4, 4, 0]
    fp.sum_pool_backward(np.array([1.0, 2]), (11,), (3,), 4, ((-2, -2),), out=out)
    assert out.tolist() == [0, 0, 1, 1, 1, 0, 2, 2, 2, 0, 0]
    out = np.full((3, 7), np.nan, np.float32)
    fp.avg_pool_backward(np.array([[6.0]], np.float32), (3, 7), (1, 2), None, ((-1, -1), (-3, -2)), out=out)
    assert out.tolist() == [[0] * 7, [0, 0, 0, 3, 3, 0, 0], [0] * 7]


def test_windows_of_padding_alone_go_nowhere():
    grad = np.array([np.nan, 1, 2, 3, np.inf])
    assert fp.avg_pool_backward(grad, (5,), (2,), 2, ((2, 3),)).tolist() == [0.5, 0.5, 1, 1, 1.5]
    assert fp.sum_pool_backward(grad, (5,), (2,), 2, ((2, 3),)).tolist() == [1, 1, 2, 2, 3]
    with pytest.raises(fp.GeometryError, match="window 0 along axis 0"):
        fp.avg_pool_backward(grad, (5,), (2,), 2, ((2, 3),), count_include_pad=False)


def test_float16_gradients_do_not_stall():
    """Thousands of windows over one element: 4096 is beyond what a float16 running sum of ones reaches."""
    assert fp.sum_pool_backward(np.ones(4096, np.float16), (1,), (4096,), 1, 4095).tolist() == [4096]
    grad = np.ones((64, 64), np.float16)
    found = fp.adaptive_avg_pool_backward(grad, (1, 1))
    assert found.dtype == np.float16
    assert found.tolist() == [[4096]]


def test_dtypes_of_gradients():
    for dtype in NUMERIC_DTYPES:
        grad = np.ones(3, dtype)
        integer = np.dtype(np.uint64 if np.dtype(dtype).kind == "u" else np.int64)
        assert fp.avg_pool_backward(grad, (6,), (2,)).dtype == (dtype if is_float(dtype) else np.float64)
        assert fp.sum_pool_backward(grad, (6,), (2,)).dtype == (dtype if is_float(dtype) else integer)
    assert fp.sum_pool_backward(np.full(2, 2**63 - 1), (1,), (2,), 1, 1).tolist() == [-2]
    assert fp.sum_pool_backward(np.full(2, 200, np.uint8), (1,), (2,), 1, 1).tolist() == [400]


@float_dtypes
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_gradient_reaches_its_window_alone(dtype, bad):
    for length, kernel, stride in [(70, 2, 2), (70, 3, 1), (67, 3, 2), (70, 5, 4), (130, 64, 1), (9, 9, 1), (40, 2, 3)]:
        count = (length - kernel) // stride + 1
        for place in range(count):
            grad = np.ones(count, dtype)
            grad[place] = bad
            reached = np.zeros(length, bool)
            reached[place * stride : place * stride + kernel] = True
            for function in (fp.avg_pool_backward, fp.sum_pool_backward):
                found = function(grad, (length,), (kernel,), stride)
                np.testing.assert_array_equal(~np.isfinite(found), reached)


# ---- arrays and options


@numeric_dtypes
def test_memory_layouts(dtype, rng):
    grad = fill("random", dtype, (3, 4, 5), rng)
    for name, view in layouts(grad):
        before = view.tobytes()
        straight = np.ascontiguousarray(np.asarray(view)).astype(np.dtype(dtype))
        for function in (fp.avg_pool_backward, fp.sum_pool_backward):
            expected = function(straight, (3, 5, 7), (2, 3), 1)
            assert_same_bits(function(view, (3, 5, 7), (2, 3), 1), expected)
        assert view.tobytes() == before, name


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_no_bit(threads, rng):
    for shape, kernel, stride in (((2, 3, 60, 70), (3, 3), 2), ((200_001,), (5,), 3), ((40, 41, 42), (3, 3, 2), 1)):
        grad = rng.standard_normal(fp.output_shape(shape, kernel, stride)).astype(np.float32)
        expected = fp.avg_pool_backward(grad, shape, kernel, stride)
        assert_same_bits(fp.avg_pool_backward(grad, shape, kernel, stride, num_threads=threads), expected)


def test_options_are_heeded():
    grad = np.ones((3, 2))
    grad[2, 1] = np.nan
    for function in (fp.avg_pool_backward, fp.sum_pool_backward):
        with pytest.raises(fp.ContiguityError, match="grad_output"):
            function(grad.T, (2, 6), (2,), contiguity="require")
        with pytest.raises(fp.NonFiniteError, match=r"grad_output holds nan at \(2, 1\)"):
            function(grad, (3, 4), (2,), check_finite="raise")


@pytest.mark.parametrize("shape", [(0, 4, 4), (2, 0, 4, 4), (0, 3, 1, 4, 4)])
@float_dtypes
def test_empty_leading_axes(shape, dtype):
    grad = np.zeros((*shape[:-2], 2, 2), dtype)
    for function, slow in (
        (fp.avg_pool_backward, testing.avg_pool_backward),
        (fp.sum_pool_backward, testing.sum_pool_backward),
    ):
        assert compare(function, slow, grad, shape, kernel_size=(2, 2)).shape == shape


# ---- bad arguments


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("change", [-1, 1])
def test_a_wrong_length_on_one_axis(axis, change):
    shape = [2, 3, 4, 5]
    shape[axis] += change
    for function in (fp.avg_pool_backward, fp.sum_pool_backward):
        out = np.full((2, 3, 8, 10), 7.0)
        with pytest.raises(fp.GeometryError, match=f"axis {axis}"):
            function(np.ones(shape), (2, 3, 8, 10), (2, 2), out=out)
        assert (out == 7).all()


def test_same_size_is_not_same_shape():
    for shape in ((6,), (3, 2), (1, 2, 3), (2, 3, 1), ()):
        with pytest.raises(fp.GeometryError, match="grad_output"):
            fp.avg_pool_backward(np.ones(shape), (2, 6), (2,))


@pytest.mark.parametrize("shape", [(-1, 4), (2.0, 2), "22", None, (2**40, 2**40), (True, 2), (2**63,), (2, 0), ()])
def test_bad_input_shape(shape):
    for function in (fp.avg_pool_backward, fp.sum_pool_backward):
        with pytest.raises(fp.GeometryError):
            function(np.ones((2, 1)), shape, (2,))


@pytest.mark.parametrize("dtype", ["bool", "complex128", "object", "U3", "M8[s]"])
def test_gradients_of_other_dtypes(dtype):
    for function in (fp.avg_pool_backward, fp.sum_pool_backward):
        with pytest.raises(fp.DtypeError, match="grad_output"):
            function(np.zeros(3, dtype), (6,), (2,))


@pytest.mark.parametrize("divisor", [0, -1, 2.0, True, "2"])
def test_bad_divisors(divisor):
    with pytest.raises(fp.GeometryError, match="divisor_override"):
        fp.avg_pool_backward(np.ones(2), (4,), (2,), divisor_override=divisor)


def test_unfit_outputs():
    grad = np.ones((3, 2))
    for function in (fp.avg_pool_backward, fp.sum_pool_backward):
        for out, error in [
            (np.full((3, 4), 7, np.float32), fp.DtypeError),
            (np.full((4, 3), 7.0), fp.GeometryError),
            (np.full((4, 3), 7.0).T, fp.ContiguityError),
            ([[7.0] * 4] * 3, fp.DtypeError),
        ]:
            with pytest.raises(error, match="out"):
                function(grad, (3, 4), (2,), out=out)
            assert (np.asarray(out) == 7).all()
        shared = np.full((3, 4), 7.0)
        with pytest.raises(fp.ContiguityError, match="overlaps"):
            function(shared.reshape(-1)[:6].reshape(3, 2), (3, 4), (2,), out=shared)
