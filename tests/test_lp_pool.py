"""lp_pool and lp_pool_backward against the slow twin, central differences and values worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from arrays import DTYPES, FLOAT_DTYPES, FLOATS, assert_same_bits, dirty, fill, is_float, layouts
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import pool_calls

import fastpool as fp
from fastpool import testing

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
float_dtypes = pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
NORMS = (1, 2, 3, 4, 0.5, 1.5, 2.5, 7, math.inf)


def assert_close(found, expected):
    """Powers and roots are rounded: a few units of float64, and one rounding to a narrower dtype."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    a, b = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    rtol = max(1e-13, float(np.spacing(np.ones((), found.dtype))))
    smallest = float(np.nextafter(np.zeros((), found.dtype), np.ones((), found.dtype)))
    np.testing.assert_allclose(a, b, rtol=rtol, atol=smallest)


def compare(x, norm_type, **arguments):
    expected = testing.lp_pool(x, norm_type, **arguments)
    found = fp.lp_pool(x, norm_type, **arguments)
    assert_close(found, expected)
    if math.isinf(norm_type):
        assert_same_bits(found, expected)
    out = dirty(found)
    assert fp.lp_pool(x, norm_type, **arguments, out=out) is out
    assert_same_bits(out, found)
    return found


# ---- against the twin


@settings(max_examples=80)
@given(
    pool_calls(kinds=("random", "ties", "signed_zeros", "some_nan"), empty_windows=True),
    st.sampled_from(NORMS),
    st.booleans(),
)
def test_generated_norms(call, norm_type, signed):
    x = call.x
    if signed and norm_type != math.inf and not is_float(x.dtype) and x.dtype.itemsize > 1:
        x = (x // x.dtype.type(2) ** x.dtype.type(8 * x.dtype.itemsize - 8)).astype(x.dtype)
    if signed:
        x = np.abs(x)  # signed powers that cancel have no bound of error; see below for negative numbers
    compare(x, norm_type, **call.arguments, signed=signed)


@settings(max_examples=60)
@given(
    pool_calls(dtypes=("float64", "float32"), kinds=("random", "ties"), empty_windows=True),
    st.sampled_from(NORMS),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_generated_gradients(call, norm_type, signed, seed):
    x, arguments = (np.abs(call.x) if signed else call.x), call.arguments | {"signed": signed}
    y = testing.lp_pool(x, norm_type, **arguments)
    grad = np.random.default_rng(seed).standard_normal(y.shape).astype(x.dtype)
    expected = testing.lp_pool_backward(grad, x, y, norm_type, **arguments)
    found = fp.lp_pool_backward(grad, x, y, norm_type, **arguments)
    assert found.dtype == expected.dtype
    bound = testing.lp_pool_backward(np.abs(grad), np.abs(x), y, norm_type, **arguments)
    tolerance = (1e-13 if x.dtype == np.float64 else 2.0**-22) * bound
    assert (np.abs(found - expected) <= tolerance).all()
    out = dirty(found)
    assert fp.lp_pool_backward(grad, x, y, norm_type, **arguments, out=out) is out
    assert_same_bits(out, found)


@every_dtype
@pytest.mark.parametrize("norm_type", [1, 2, 3, 2.5, math.inf])
def test_larger_images(dtype, norm_type, rng):
    """In NumPy's own terms: norms of sliding windows."""
    for shape, kernel, stride in (
        ((2, 61, 70), (3, 5), (2, 3)),
        ((1, 2000), (64,), (1,)),
        ((9, 10, 11), (2, 3, 2), (1, 1, 2)),
    ):
        x = fill("random", dtype, shape, rng)
        axes = tuple(range(-len(kernel), 0))
        windows = np.lib.stride_tricks.sliding_window_view(np.abs(x.astype(np.float64)), kernel, axes)
        windows = windows[(..., *(slice(None, None, s) for s in stride), *(slice(None) for _ in kernel))]
        exact = windows.max(axes) if math.isinf(norm_type) else (windows**norm_type).sum(axes) ** (1 / norm_type)
        with np.errstate(over="ignore"):
            expected = exact.astype(dtype if is_float(dtype) else np.float64)
        assert_close(fp.lp_pool(x, norm_type, kernel, stride), expected)


# ---- central differences


@pytest.mark.parametrize("ndim", range(1, 6))
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(("norm_type", "signed"), [
    (1, False), (2, False), (3, False), (0.5, False), (2.5, False), (math.inf, False),
    (1, True), (3, True), (1.7, True),
])  # fmt: skip
def test_central_differences(ndim, ceil_mode, norm_type, signed, rng):
    lengths = ((7, 6, 5, 4, 4), (5, 4, 4, 3, 3))[ndim > 3][:ndim]
    arguments = {
        "norm_type": norm_type,
        "kernel_size": (3, 2, 2, 1, 2)[:ndim],
        "stride": (2, 1, 3, 2, 2)[:ndim],
        "padding": ((1, 2), (2, 0), (-1, 1), (0, 1), (1, 0))[:ndim],
        "dilation": (1, 2, 1, 1, 1)[:ndim],
        "ceil_mode": ceil_mode,
        "signed": signed,
    }
    # no element near the kink at 0, and no two of nearly the same magnitude
    x = (1 + rng.permutation(math.prod(lengths)).reshape(lengths)) / math.prod(lengths) + 0.2
    if not signed:
        x *= rng.choice((-1, 1), lengths)

    def backward(grad, x):
        return fp.lp_pool_backward(grad, x, fp.lp_pool(x, **arguments), **arguments)

    assert fp.gradcheck(lambda x: fp.lp_pool(x, **arguments), backward, x)


# ---- values worked by hand


def test_magnitudes_or_signs():
    x = np.array([-1.0, -2, -3, 1, 2, 3])
    assert_close(fp.lp_pool(x, 3, (1,)), np.array([1.0, 2, 3, 1, 2, 3]))
    signed = fp.lp_pool(x, 3, (1,), signed=True)
    np.testing.assert_array_equal(np.isnan(signed), x < 0)
    assert_close(fp.lp_pool(x, 2, (1,), signed=True), np.abs(x))
    assert_close(fp.lp_pool(x, 1, (2,), signed=True), np.array([-3.0, -2, 5]))
    assert_close(fp.lp_pool(x, 3, (6,), signed=True), np.zeros(1))
    assert np.isnan(fp.lp_pool(x, 0.5, (6,), signed=True)).all()
    assert np.isnan(fp.lp_pool(x, 1.5, (3,), signed=True)).tolist() == [True, False]


def test_known_norms():
    x = np.array([3.0, -4.0, 0.0, 0.0, 5.0, 12.0])
    assert fp.lp_pool(x, 2, (2,)).tolist() == [5, 0, 13]
    assert fp.lp_pool(x, 1, (3,)).tolist() == [7, 17]
    assert fp.lp_pool(x, math.inf, (3,)).tolist() == [4, 12]
    assert fp.lp_pool(x, np.inf, (3,), signed=True).tolist() == [4, 12]
    assert_close(fp.lp_pool(x, 0.5, (2,)), np.array([(3**0.5 + 2) ** 2, 0, (5**0.5 + 12**0.5) ** 2]))
    assert fp.lp_pool(np.array([3, -4, 6, 8]), 2, (2,)).tolist() == [5, 10]
    assert fp.lp_pool(np.array([True, True, True, True]), 2, (4,)).tolist() == [2]
    assert fp.lp_pool(np.array([-128, 0], np.int8), math.inf, (2,)).tolist() == [128]
    assert fp.lp_pool(np.array([-(2**63), 0]), math.inf, (2,)).tolist() == [2.0**63]


def test_windows_that_hang_over_are_not_scaled_up():
    x = np.array([3.0, 4.0, 7.0])
    assert fp.lp_pool(x, 2, (2,), ceil_mode=True).tolist() == [5, 7]
    assert fp.lp_pool(x, 1, (2,), 2, 1).tolist() == [3, 11]
    assert fp.lp_pool(x, 2, (2,), 2, ((2, 3),)).tolist() == [0, 5, 7, 0]
    assert fp.lp_pool(-x, math.inf, (2,), 2, ((2, 3),)).tolist() == [0, 4, 7, 0]


@pytest.mark.parametrize("norm_type", [2, 3, 5, 1.5, math.inf])
def test_float32_powers_do_not_overflow(norm_type):
    for scale in (1e-20, 1e20, 3e37):
        x = np.array([scale, 0, 0, 0], np.float32)
        np.testing.assert_allclose(fp.lp_pool(x, norm_type, (4,)), x[:1], rtol=1e-6)
        y = fp.lp_pool(x, norm_type, (4,))
        np.testing.assert_allclose(
            fp.lp_pool_backward(np.ones(1, np.float32), x, y, norm_type, (4,)), [1, 0, 0, 0], rtol=1e-5
        )
    x = np.full(4, 60000, np.float16)
    assert fp.lp_pool(x, 2, (4,)).tolist() == [np.inf]
    assert fp.lp_pool(x[:1], 2, (1,)).tolist() == [60000]


@float_dtypes
@pytest.mark.parametrize("norm_type", [1, 2, 3, 2.5, math.inf])
def test_a_bad_element_spoils_its_windows_alone(dtype, norm_type):
    for bad in (np.nan, np.inf, -np.inf):
        for place in range(40):
            x = np.ones(40, dtype)
            x[place] = bad
            found = fp.lp_pool(x, norm_type, (3,), 1).astype(np.float64)
            starts = np.arange(38)
            over = (starts <= place) & (place < starts + 3)
            np.testing.assert_array_equal(~np.isfinite(found), over)
            np.testing.assert_array_equal(found[over], np.abs(bad))


# ---- gradients worked by hand


@pytest.mark.parametrize("norm_type", NORMS)
@pytest.mark.parametrize("signed", [False, True])
def test_gradient_of_zeros_is_zero(norm_type, signed):
    x = np.array([0.0, -0.0, 0.0, 0.0])
    y = fp.lp_pool(x, norm_type, (2,), signed=signed)
    assert y.tolist() == [0, 0]
    assert fp.lp_pool_backward(np.array([1.0, np.inf]), x, y, norm_type, (2,), signed=signed).tolist() == [0] * 4


@pytest.mark.parametrize("norm_type", [1, 2, 0.5, 1.5, 3, math.inf])
def test_gradient_of_a_zero_among_others_is_zero(norm_type):
    x = np.array([0.0, 2.0, 0.0])
    y = fp.lp_pool(x, norm_type, (3,))
    np.testing.assert_allclose(fp.lp_pool_backward(np.ones(1), x, y, norm_type, (3,)), [0, 1, 0], atol=1e-15)


def test_known_gradients():
    x = np.array([3.0, -4.0])
    assert_close(fp.lp_pool_backward(np.ones(1), x, np.array([5.0]), 2, (2,)), np.array([0.6, -0.8]))
    assert fp.lp_pool_backward(np.full(1, 2.0), x, np.array([7.0]), 1, (2,)).tolist() == [2, -2]
    assert fp.lp_pool_backward(np.full(1, 2.0), x, np.array([-1.0]), 1, (2,), signed=True).tolist() == [2, 2]
    # the first of equal magnitudes takes all
    assert fp.lp_pool_backward(np.ones(1), np.array([-4.0, 4.0, 1.0]), np.array([4.0]), np.inf, (3,)).tolist() == [
        -1,
        0,
        0,
    ]
    overlap = fp.lp_pool_backward(
        np.array([1.0, 10.0]), np.array([1.0, -7.0, 2.0]), np.array([7.0, 7.0]), np.inf, (2,), 1
    )
    assert overlap.tolist() == [0, -11, 0]
    padded = fp.lp_pool_backward(np.arange(4.0), x, np.zeros(4) + 9, np.inf, (1,), 1, 1)
    assert padded.tolist() == [1, -2]


def test_nan_takes_the_gradient_with_it():
    for norm_type in (1, 2, 3, math.inf):
        x = np.array([1.0, np.nan, 2.0, 3.0])
        y = fp.lp_pool(x, norm_type, (2,))
        found = fp.lp_pool_backward(np.ones(2), x, y, norm_type, (2,))
        assert np.isnan(found[1])
        assert np.isfinite(found[2:]).all()


def test_integer_gradients_and_inputs():
    found = fp.lp_pool_backward(np.array([2]), np.array([3, -4]), np.array([5]), 2, (2,))
    assert found.dtype == np.float64
    assert_close(found, np.array([1.2, -1.6]))
    assert fp.lp_pool_backward(np.ones(1, np.float32), np.array([3, -4]), np.array([5.0]), 2, (2,)).dtype == np.float32


@every_dtype
@pytest.mark.parametrize("norm_type", [1, 2, 2.5, math.inf])
def test_gradients_of_every_input(dtype, norm_type):
    x = np.array([0, 1, 1, 1, 0, 0], dtype)
    y = fp.lp_pool(x, norm_type, (2,))
    expected = testing.lp_pool_backward(np.ones(3), x, y, norm_type, (2,))
    assert_close(fp.lp_pool_backward(np.ones(3), x, y, norm_type, (2,)), expected)


# ---- arrays and options


@every_dtype
def test_memory_layouts(dtype, rng):
    x = fill("random", dtype, (3, 4, 5), rng)
    for name, view in layouts(x):
        before = view.tobytes()
        straight = np.ascontiguousarray(np.asarray(view)).astype(np.dtype(dtype))
        for norm_type in (2, math.inf):
            expected = fp.lp_pool(straight, norm_type, (2, 3), 1)
            assert_same_bits(fp.lp_pool(view, norm_type, (2, 3), 1), expected)
            if is_float(dtype):
                found = fp.lp_pool_backward(expected, view, expected, norm_type, (2, 3), 1)
                assert_same_bits(found, fp.lp_pool_backward(expected, straight, expected, norm_type, (2, 3), 1))
        assert view.tobytes() == before, name


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("norm_type", [2, 3, 2.5, math.inf])
def test_threads_change_no_bit(threads, norm_type, rng):
    x = rng.standard_normal((2, 3, 60, 70)).astype(np.float32)
    y = fp.lp_pool(x, norm_type, (3, 3), 2)
    assert_same_bits(fp.lp_pool(x, norm_type, (3, 3), 2, num_threads=threads), y)
    grad = rng.standard_normal(y.shape).astype(np.float32)
    expected = fp.lp_pool_backward(grad, x, y, norm_type, (3, 3), 2)
    assert_same_bits(fp.lp_pool_backward(grad, x, y, norm_type, (3, 3), 2, num_threads=threads), expected)


def test_options_are_heeded():
    x, nan = np.ones((4, 6)), np.full((4, 3), np.nan)
    with pytest.raises(fp.ContiguityError, match="C-contiguous"):
        fp.lp_pool(x.T, 2, (2,), contiguity="require")
    for grad, values, y, name in (
        (nan, x, x[:, :3], "grad_output"),
        (x[:, :3], x, nan, "y"),
        (nan, nan.repeat(2, 1), x, "x"),
    ):
        with pytest.raises(fp.NonFiniteError, match=f"{name} holds nan"):
            fp.lp_pool_backward(grad, values, y, 2, (2,), check_finite="raise")


@pytest.mark.parametrize("norm_type", [2, 2.5, math.inf])
@pytest.mark.parametrize("shape", [(0, 4, 4), (2, 0, 4, 4)])
def test_empty_leading_axes(shape, norm_type):
    x = np.zeros(shape)
    y = fp.lp_pool(x, norm_type, (2, 2))
    assert y.shape == (*shape[:-2], 2, 2)
    assert fp.lp_pool_backward(y, x, y, norm_type, (2, 2)).shape == shape


# ---- bad arguments


@pytest.mark.parametrize("norm_type", [0, -1, -0.0, -math.inf, math.nan, True, np.True_, "2", None, [2], 1j, b"2"])
def test_bad_norms(norm_type):
    with pytest.raises(fp.GeometryError, match="norm_type"):
        fp.lp_pool(np.ones(4), norm_type, (2,))
    with pytest.raises(fp.GeometryError, match="norm_type"):
        fp.lp_pool_backward(np.ones(2), np.ones(4), np.ones(2), norm_type, (2,))


@pytest.mark.parametrize("signed", [None, 2, "yes", [True]])
def test_bad_flags(signed):
    with pytest.raises(fp.GeometryError, match="signed"):
        fp.lp_pool(np.ones(4), 2, (2,), signed=signed)


@pytest.mark.parametrize("name", ["grad_output", "y"])
@pytest.mark.parametrize("axis", range(3))
def test_a_wrong_length_on_one_axis(name, axis):
    shapes = {"grad_output": [2, 3, 4], "y": [2, 3, 4]}
    shapes[name][axis] += 1
    with pytest.raises(fp.GeometryError, match=f"{name}.* axis {axis}"):
        fp.lp_pool_backward(np.ones(shapes["grad_output"]), np.ones((2, 6, 8)), np.ones(shapes["y"]), 2, (2, 2))


def test_bad_geometry_and_dtypes():
    for arguments in (
        {"kernel_size": 2},
        {"kernel_size": (0,)},
        {"kernel_size": (2,), "stride": 0},
        {"kernel_size": (9,)},
    ):
        with pytest.raises(fp.GeometryError):
            fp.lp_pool(np.ones((2, 4)), 2, **arguments)
        with pytest.raises(fp.GeometryError):
            fp.lp_pool(np.ones((2, 4)), math.inf, **arguments)
    for dtype in ("complex64", "object", "U1"):
        with pytest.raises(fp.DtypeError, match="x has dtype"):
            fp.lp_pool(np.zeros(4, dtype), 2, (2,))
    with pytest.raises(fp.DtypeError, match="grad_output"):
        fp.lp_pool_backward(np.ones(2, bool), np.ones(4), np.ones(2), 2, (2,))


@pytest.mark.parametrize("norm_type", [2, 2.5, math.inf])
def test_unfit_outputs(norm_type):
    x = np.ones((3, 4))
    y, grad = fp.lp_pool(x, norm_type, (2,)), np.ones((3, 2))
    for out, error in [
        (np.full((3, 2), 7, np.float32), fp.DtypeError),
        (np.full((2, 3), 7.0), fp.GeometryError),
        (np.full((2, 3), 7.0).T, fp.ContiguityError),
    ]:
        with pytest.raises(error, match="out"):
            fp.lp_pool(x, norm_type, (2,), out=out)
        assert (out == 7).all()
    with pytest.raises(fp.ContiguityError, match="overlaps"):
        fp.lp_pool(x, norm_type, (2,), out=x.reshape(-1)[:6].reshape(3, 2))
    with pytest.raises(fp.ContiguityError, match="overlaps"):
        fp.lp_pool_backward(grad, x, y, norm_type, (2,), out=x)
    assert (x == 1).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_results_have_the_dtype_of_floats(dtype):
    for norm_type in (2, 2.5, math.inf):
        assert fp.lp_pool(np.ones(4, dtype), norm_type, (2,)).dtype == dtype
        assert fp.lp_pool(np.ones(4, np.int16), norm_type, (2,)).dtype == np.float64
