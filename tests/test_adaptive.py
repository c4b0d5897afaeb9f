"""Adaptive and global pooling, and back, against the slow twin and values worked by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from arrays import (
    DTYPES,
    FLOAT_DTYPES,
    NUMERIC_DTYPES,
    assert_same_bits,
    assert_within_ulps,
    dirty,
    fill,
    is_float,
    layouts,
    nans,
    tame,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import adaptive_calls

import fastpool as fp
from fastpool import testing

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
float_dtypes = pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)


def assert_means_agree(found, x, slow, *arguments, **named):
    """Floats within 4 ulp of the mean of magnitudes; means of integers are rounded once, of 64-bit sums twice."""
    exact = slow(x, *arguments, **named)
    if is_float(x.dtype):
        assert_within_ulps(found, exact, slow(np.abs(x), *arguments, **named))
    elif x.dtype.itemsize == 8:
        assert_within_ulps(found, exact, exact, 1)
    else:
        assert_same_bits(found, exact)


# ---- against the twin


@settings(max_examples=60)
@given(adaptive_calls())
def test_generated_maxima(call):
    expected = testing.adaptive_max_pool(call.x, **call.arguments, return_indices=True)
    assert_same_bits(fp.adaptive_max_pool(call.x, **call.arguments, return_indices=True), expected)
    assert_same_bits(fp.adaptive_max_pool(call.x, **call.arguments), expected.values)
    out = dirty(expected.values), dirty(expected.indices)
    found = fp.adaptive_max_pool(call.x, **call.arguments, return_indices=True, out=out)
    assert found[0] is out[0]
    assert found[1] is out[1]
    assert_same_bits(found, expected)


@settings(max_examples=60)
@given(adaptive_calls())
def test_generated_averages(call):
    x = tame(call.x)
    found = fp.adaptive_avg_pool(x, **call.arguments)
    assert_means_agree(found, x, testing.adaptive_avg_pool, **call.arguments)
    out = dirty(found)
    assert fp.adaptive_avg_pool(x, **call.arguments, out=out) is out
    assert_same_bits(out, found)


@settings(max_examples=60)
@given(
    adaptive_calls(dtypes=("int8",), kinds=("ties",)),
    st.sampled_from(NUMERIC_DTYPES),
    st.sampled_from(("random", "extremes", "some_nan")),
    st.booleans(),
)
def test_generated_gradients(call, dtype, kind, named):
    shape = testing.adaptive_max_pool(call.x, **call.arguments).shape
    grad = tame(fill(kind, dtype, shape, np.random.default_rng(len(shape))))
    arguments = {}
    if named:
        count = len(call.arguments["output_size"])
        arguments["axes"] = call.arguments.get("axes", tuple(range(-count, 0)))
    exact = testing.adaptive_avg_pool_backward(grad, call.x.shape, **arguments)
    found = fp.adaptive_avg_pool_backward(grad, call.x.shape, **arguments)
    wide = grad if is_float(dtype) else grad.astype(np.float64)
    magnitude = testing.adaptive_avg_pool_backward(np.abs(wide), call.x.shape, **arguments)
    assert_within_ulps(found, exact, magnitude)
    out = dirty(found)
    assert fp.adaptive_avg_pool_backward(grad, call.x.shape, **arguments, out=out) is out
    assert_same_bits(out, found)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float16", "float32", "float64"])
@pytest.mark.parametrize(("shape", "size"), [
    ((2, 3, 37, 53), (7, 7)), ((1, 2, 50, 50), (7, 9)), ((3, 5877), (2855,)), ((2, 300), (700,)),
    ((1, 23, 29, 31), (5, 7, 11)), ((4, 64, 64), (8, 16)), ((4, 64, 60), (1, 60)),
])  # fmt: skip
def test_larger_inputs(dtype, shape, size, rng):
    """Window by window in NumPy's own terms."""
    x = fill("ties", dtype, shape, rng)
    wide = x.astype(np.float64)
    mean, largest = fp.adaptive_avg_pool(x, size), fp.adaptive_max_pool(x, size, return_indices=True)
    places = np.arange(x.size).reshape(shape)
    leading = x.ndim - len(size)
    for position in itertools.islice(np.ndindex(*size), 0, None, 1 + math.prod(size) // 150):
        window = (..., *(
            slice(i * n // o, -(-(i + 1) * n // o)) for i, n, o in zip(position, shape[leading:], size, strict=True)
        ))  # fmt: skip
        taps = wide[window].reshape(*shape[:leading], -1)
        assert_within_ulps(mean[(..., *position)], np.asarray(taps.mean(-1)).astype(mean.dtype), taps.mean(-1))
        first = taps.argmax(-1)[..., None]
        indices = np.take_along_axis(places[window].reshape(taps.shape), first, -1)[..., 0]
        np.testing.assert_array_equal(largest.indices[(..., *position)], indices)
    assert_same_bits(largest.values, x.ravel()[largest.indices])


# ---- central differences


@pytest.mark.parametrize("ndim", range(1, 6))
@pytest.mark.parametrize("wider", [False, True])
def test_central_differences(ndim, wider, rng):
    lengths = ((7, 5, 6, 4, 3), (5, 4, 4, 3, 3))[ndim > 3][:ndim]
    sizes = (9, 3, 6, 5, 2)[:ndim] if wider else (3, 2, 4, 1, 2)[:ndim]
    x = rng.permutation(math.prod(lengths)).reshape(lengths) / 10

    def back_by_indices(grad, x):
        return fp.max_pool_backward(grad, fp.adaptive_max_pool(x, sizes, return_indices=True).indices, x.shape)

    assert fp.gradcheck(
        lambda x: fp.adaptive_avg_pool(x, sizes),
        lambda grad, x: fp.adaptive_avg_pool_backward(grad, x.shape),
        x,
        eps=1e-4,
    )
    assert fp.gradcheck(lambda x: fp.adaptive_max_pool(x, sizes), back_by_indices, x, eps=1e-4)
    named = {"axes": tuple(range(-1, -ndim - 1, -1))}
    assert fp.gradcheck(
        lambda x: fp.adaptive_avg_pool(x, sizes[::-1], **named),
        lambda grad, x: fp.adaptive_avg_pool_backward(grad, x.shape, **named),
        x, eps=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axes", [None, -1, (0, 2), (3, 1), (0, 1, 2, 3)])
def test_central_differences_of_global_averages(keepdims, axes, rng):
    x = rng.standard_normal((2, 3, 4, 5))
    assert fp.gradcheck(
        lambda x: fp.global_avg_pool(x, axes=axes, keepdims=keepdims),
        lambda grad, x: fp.global_avg_pool_backward(grad, x.shape, axes=axes),
        x, eps=1e-4,
    )  # fmt: skip


# ---- values worked by hand


def test_windows_are_cut_in_integers():
    x = np.arange(5877)
    values, indices = fp.adaptive_max_pool(x, (2855,), return_indices=True)
    assert values[-1] == indices[-1] == 5876
    assert fp.adaptive_avg_pool(x, (2855,))[-1] == np.mean(x[2854 * 5877 // 2855 :])
    assert fp.adaptive_avg_pool([0, 1, 2, 3, 4, 5, 6], (3,)).tolist() == [1, 3, 5]
    assert fp.adaptive_max_pool(-np.arange(10), (4,), return_indices=True).indices.tolist() == [0, 2, 5, 7]


def test_more_windows_than_elements():
    x = np.array([1.0, 5.0])
    assert fp.adaptive_avg_pool(x, (5,)).tolist() == [1, 1, 3, 5, 5]
    assert fp.adaptive_max_pool(x, (5,), return_indices=True).indices.tolist() == [0, 0, 1, 1, 1]
    assert fp.adaptive_avg_pool_backward(np.array([1.0, 2, 4, 8, 16]), (2,)).tolist() == [5, 26]
    found = fp.adaptive_avg_pool_backward(np.ones((64, 64), np.float16), (1, 1))
    assert found.tolist() == [[4096]]
    assert fp.adaptive_avg_pool(np.full((1, 1), 7.0), (64, 64)).tolist() == [[7.0] * 64] * 64


@every_dtype
def test_as_many_windows_as_elements_change_nothing(dtype, rng):
    x = fill("random", dtype, (3, 4, 5), rng)
    identity = fp.adaptive_avg_pool(x, (4, 5))
    assert_same_bits(identity, x if is_float(dtype) else x.astype(np.float64))
    assert_same_bits(fp.adaptive_avg_pool(x, (None, None, None)), identity)
    assert_same_bits(fp.adaptive_max_pool(x, (None, 5)), x)
    assert fp.adaptive_max_pool(x, (4, None), return_indices=True).indices.ravel().tolist() == list(range(60))
    if dtype != "bool":
        assert_same_bits(fp.adaptive_avg_pool_backward(x, x.shape), identity)


def test_none_keeps_an_axis_and_an_int_needs_names(rng):
    x = rng.standard_normal((3, 6, 8))
    assert_same_bits(fp.adaptive_avg_pool(x, (2, None)), fp.adaptive_avg_pool(x, (2,), axes=1))
    assert_same_bits(fp.adaptive_avg_pool(x, 2, axes=(1, 2)), fp.adaptive_avg_pool(x, (2, 2)))
    assert_same_bits(fp.adaptive_max_pool(x, (4, 3), axes=(2, 0)), fp.adaptive_max_pool(x, (3, None, 4)))
    for function in (fp.adaptive_avg_pool, fp.adaptive_max_pool):
        for size in (2, None):
            with pytest.raises(fp.GeometryError, match="output_size"):
                function(x, size)


@every_dtype
@pytest.mark.parametrize("asked", ["float16", "float32", "float64", "uint8", "int64"])
def test_asked_dtypes(dtype, asked, rng):
    if is_float(dtype) and not is_float(asked):
        for call in (
            lambda x: fp.adaptive_avg_pool(x, (2,), dtype=asked),
            lambda x: fp.global_avg_pool(x, axes=0, dtype=asked),
        ):
            with pytest.raises(fp.DtypeError):
                call(np.zeros(4, dtype))
        return
    x = fill("ties", dtype, (3, 7, 6), rng)
    for found, exact in (
        (fp.adaptive_avg_pool(x, (2, 4), dtype=asked), testing.adaptive_avg_pool(x, (2, 4), dtype=asked)),
        (fp.global_avg_pool(x, dtype=asked), testing.global_avg_pool(x, dtype=asked)),
    ):
        if is_float(asked):
            assert_within_ulps(found, exact, np.abs(exact))
        else:
            assert_same_bits(found, exact)


@float_dtypes
def test_nan_in_every_place(dtype):
    """One NaN reaches the windows over it, and no other window."""
    for length, size in ((70, 9), (33, 32), (20, 30), (64, 1), (65, 5)):
        windows = [(i * length // size, -(-(i + 1) * length // size)) for i in range(size)]
        for place in range(length):
            x = np.linspace(1, 2, length).astype(dtype)
            x[place] = nans(dtype)[place % 5]
            over = [start <= place < stop for start, stop in windows]
            assert np.isnan(fp.adaptive_avg_pool(x, (size,))).tolist() == over
            values, indices = fp.adaptive_max_pool(x, (size,), return_indices=True)
            assert np.isnan(values).tolist() == over
            assert (indices[over] == place).all()
            assert_same_bits(values, x[indices])
            assert_same_bits(fp.adaptive_max_pool(x, (size,)), values)


# ---- whole axes


@every_dtype
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (1, 1, 2, 3, 4), (0, 3, 4, 5)])
def test_global_averages(dtype, shape, rng):
    for kind in ("random", "ties", "some_nan"):
        x = tame(fill(kind, dtype, shape, rng))
        for keepdims, axes in itertools.product(
            (True, False), (None, -1, (2,), (1, 2), (2, 1), (-1, 2) if len(shape) > 3 else (-1,))
        ):
            found = fp.global_avg_pool(x, axes=axes, keepdims=keepdims)
            assert_means_agree(found, x, testing.global_avg_pool, axes=axes, keepdims=keepdims)


@every_dtype
def test_global_averages_of_large_arrays(dtype, rng):
    """Long axes are added up in stages."""
    for shape, axes in (((1, 1, 70, 80, 90), None), ((2, 300_001), 1), ((250_000, 2), 0), ((40, 3, 5000), (0, 2))):
        x = np.abs(fill("random", dtype, shape, rng).astype(np.float64)).astype(dtype)
        reduced = tuple(range(2, x.ndim)) if axes is None else axes if isinstance(axes, tuple) else (axes,)
        found = fp.global_avg_pool(x, axes=axes)
        taps = math.prod(x.shape[axis] for axis in reduced)
        rows = np.moveaxis(x, reduced, range(-len(reduced), 0)).reshape(-1, taps)
        if is_float(dtype):
            means = [math.fsum(row) / taps for row in rows.astype(np.float64)]
        else:
            means = [sum(row.tolist()) / taps for row in rows]
        exact = np.array(means).astype(found.dtype).reshape(found.shape)
        assert_within_ulps(found, exact, exact, 4 if is_float(dtype) else 1)


@float_dtypes
def test_global_average_of_ones_is_one(dtype):
    for shape in ((1, 1, 64, 64, 64), (1, 2, 300_007)):
        assert (fp.global_avg_pool(np.ones(shape, dtype)) == 1).all()
        assert (fp.adaptive_avg_pool(np.ones(shape, dtype), (1,) * (len(shape) - 2)) == 1).all()


def test_global_averages_back():
    x = np.arange(24.0).reshape(2, 3, 4)
    for grad in (np.full((2, 3), 4.0), np.full((2, 3, 1), 4.0)):
        assert fp.global_avg_pool_backward(grad, x.shape).tolist() == np.ones((2, 3, 4)).tolist()
    assert fp.global_avg_pool_backward(np.array(24.0), x.shape, axes=(0, 1, 2)).tolist() == np.ones((2, 3, 4)).tolist()
    assert fp.global_avg_pool_backward(np.array([[8], [16]]), (2, 4), axes=1).tolist() == [[2] * 4, [4] * 4]
    assert fp.global_avg_pool_backward(np.zeros((0, 3)), (0, 3, 4, 5)).shape == (0, 3, 4, 5)
    for dtype in NUMERIC_DTYPES:
        grad = np.ones((2, 1), dtype)
        found = fp.global_avg_pool_backward(grad, (2, 3), axes=1)
        assert_same_bits(found, testing.global_avg_pool_backward(grad, (2, 3), axes=1))


# ---- arrays and options


@every_dtype
def test_memory_layouts(dtype, rng):
    x = fill("random", dtype, (3, 4, 5), rng)
    for name, view in layouts(x):
        before = view.tobytes()
        straight = np.ascontiguousarray(np.asarray(view)).astype(np.dtype(dtype))
        assert_same_bits(fp.adaptive_avg_pool(view, (3, 2)), fp.adaptive_avg_pool(straight, (3, 2)))
        expected = testing.adaptive_max_pool(straight, (3, 2), return_indices=True)
        assert_same_bits(fp.adaptive_max_pool(view, (3, 2), return_indices=True), expected)
        assert_same_bits(fp.global_avg_pool(view), fp.global_avg_pool(straight))
        if dtype != "bool":
            found = fp.adaptive_avg_pool_backward(view, (3, 7, 2))
            assert_same_bits(found, fp.adaptive_avg_pool_backward(straight, (3, 7, 2)))
        assert view.tobytes() == before, name


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_no_bit(threads, rng):
    x = rng.standard_normal((2, 3, 137, 153)).astype(np.float32)
    options = {"num_threads": threads}
    for size in ((7, 7), (50, 60), (1, 1), (200, 200)):
        y = fp.adaptive_avg_pool(x, size)
        assert_same_bits(fp.adaptive_avg_pool(x, size, **options), y)
        found = fp.adaptive_max_pool(x, size, return_indices=True, **options)
        assert_same_bits(found, fp.adaptive_max_pool(x, size, return_indices=True))
        back = fp.adaptive_avg_pool_backward(y, x.shape)
        assert_same_bits(fp.adaptive_avg_pool_backward(y, x.shape, **options), back)
    assert_same_bits(fp.global_avg_pool(x, **options), fp.global_avg_pool(x))
    assert_same_bits(fp.global_avg_pool(x, axes=(0, 1, 2, 3), **options), fp.global_avg_pool(x, axes=(0, 1, 2, 3)))


def test_options_are_heeded():
    x = np.ones((2, 3, 4))
    x[1, 2, 3] = np.inf
    for call in (lambda x, **o: fp.adaptive_avg_pool(x, (2,), **o), lambda x, **o: fp.adaptive_max_pool(x, (2,), **o),
                 fp.global_avg_pool):  # fmt: skip
        with pytest.raises(fp.ContiguityError, match="C-contiguous"):
            call(x.T, contiguity="require")
        with pytest.raises(fp.NonFiniteError, match=r"x holds inf at \(1, 2, 3\)"):
            call(x, check_finite="raise")
    with pytest.raises(fp.NonFiniteError, match="grad_output"):
        fp.adaptive_avg_pool_backward(x, (2, 3, 8), check_finite="raise")
    with pytest.raises(fp.NonFiniteError, match="grad_output"):
        fp.global_avg_pool_backward(x, (2, 3, 4, 8), axes=3, check_finite="raise")


@pytest.mark.parametrize("shape", [(0, 4, 4), (2, 0, 4, 4), (0, 3, 1, 4, 4)])
@every_dtype
def test_empty_leading_axes(shape, dtype):
    x = np.zeros(shape, dtype)
    expected = (*shape[:-2], 3, 2)
    assert fp.adaptive_avg_pool(x, (3, 2)).shape == expected
    pooled = fp.adaptive_max_pool(x, (3, 2), return_indices=True)
    assert pooled.values.shape == pooled.indices.shape == expected
    if dtype != "bool":
        assert fp.adaptive_avg_pool_backward(np.zeros(expected, dtype), shape, axes=(-2, -1)).shape == shape


# ---- bad arguments


@pytest.mark.parametrize("size", [(), (0,), (-1,), (2.0,), ("2",), (True,), (2, 2, 2, 2), (2**70,), 2.5, "2", {2: 2}])
def test_bad_output_sizes(size):
    for function in (fp.adaptive_avg_pool, fp.adaptive_max_pool):
        with pytest.raises(fp.GeometryError, match="output"):
            function(np.ones((2, 3, 4)), size)


@pytest.mark.parametrize("axes", [3, -4, (0, 0), (1, -2), (), 1.5, "0"])
def test_bad_axes(axes):
    x = np.ones((2, 3, 4))
    for call in (
        lambda: fp.adaptive_avg_pool(x, 2, axes=axes),
        lambda: fp.adaptive_max_pool(x, 2, axes=axes),
        lambda: fp.adaptive_avg_pool_backward(x, (2, 3, 4), axes=axes),
        lambda: fp.global_avg_pool(x, axes=axes),
        lambda: fp.global_avg_pool_backward(x, (2, 3, 4), axes=axes),
    ):
        with pytest.raises(fp.GeometryError, match="axes"):
            call()


def test_nothing_to_pool():
    for x in (np.zeros((2, 3)), np.zeros(3), np.zeros(())):
        with pytest.raises(fp.GeometryError):
            fp.global_avg_pool(x)
    for call in (
        lambda: fp.global_avg_pool(np.zeros((2, 3, 0))),
        lambda: fp.adaptive_avg_pool(np.zeros((2, 3, 0)), (2,)),
        lambda: fp.adaptive_max_pool(np.zeros((2, 3, 0)), (2,)),
    ):
        with pytest.raises(fp.GeometryError, match="axis 2 has length 0"):
            call()
    for grad, shape in ((np.zeros((2, 0)), (2, 3)), (np.zeros((2, 3)), (2, 0))):
        with pytest.raises(fp.GeometryError, match="axis 1"):
            fp.adaptive_avg_pool_backward(grad, shape)


def test_gradients_of_other_shapes():
    for shape, input_shape, axes in [
        ((2, 3), (2, 3, 4), None), ((2, 3, 4), (2, 3), None), ((2, 3, 4), (2, 5, 4), 2), ((2, 3, 4), (3, 3, 4), (1, 2)),
    ]:  # fmt: skip
        with pytest.raises(fp.GeometryError, match="grad_output"):
            fp.adaptive_avg_pool_backward(np.ones(shape), input_shape, axes=axes)
    for shape in ((2,), (3, 2), (2, 3, 4), (2, 3, 1, 1), (2, 1, 3), (6,)):
        with pytest.raises(fp.GeometryError, match="grad_output"):
            fp.global_avg_pool_backward(np.ones(shape), (2, 3, 4))
    for function in (fp.adaptive_avg_pool_backward, fp.global_avg_pool_backward):
        with pytest.raises(fp.DtypeError, match="grad_output"):
            function(np.ones((2, 3, 1), bool), (2, 3, 4))


def test_unfit_outputs():
    x = np.ones((3, 4))
    for out, error in [
        (np.full((3, 2), 7, np.float32), fp.DtypeError),
        (np.full((2, 3), 7.0), fp.GeometryError),
        (np.full((2, 3), 7.0).T, fp.ContiguityError),
    ]:
        for call in (
            lambda out: fp.adaptive_avg_pool(x, (2,), out=out),
            lambda out: fp.adaptive_max_pool(x, (2,), out=out),
            lambda out: fp.adaptive_avg_pool_backward(x, (3, 2), out=out),
        ):
            with pytest.raises(error, match="out"):
                call(out)
            assert (out == 7).all()
    with pytest.raises(fp.FastpoolError, match="out"):
        fp.adaptive_max_pool(x, (2,), return_indices=True, out=np.zeros((3, 2)))


@pytest.mark.parametrize("function", [fp.adaptive_avg_pool, fp.adaptive_max_pool])
def test_more_windows_than_memory_holds(function):
    """Refused before they are listed one by one."""
    with pytest.raises(fp.GeometryError, match="more elements than memory"):
        function(np.ones(5), (2**62,))
