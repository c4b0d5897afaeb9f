"""Windows given one by one or drawn at random, against the slow twin and values worked by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from arrays import (
    DTYPES,
    FLOAT_DTYPES,
    INTEGERS,
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
from strategies import fractional_calls, pool_calls, window_calls

import fastpool as fp
from fastpool import testing

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
float_dtypes = pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)


def compare_picks(fast, slow, x, *arguments, **named):
    """Functions that pick elements: with and without indices the bits of the twin, and indices that lead back."""
    expected = slow(x, *arguments, **named, return_indices=True)
    found = fast(x, *arguments, **named, return_indices=True)
    assert_same_bits(found, expected)
    assert_same_bits(fast(x, *arguments, **named), expected.values)
    assert_same_bits(x.ravel()[found.indices], found.values)
    return found


# ---- windows one by one


@settings(max_examples=60)
@given(window_calls(), st.sampled_from(("max", "min")))
def test_generated_extremes(call, op):
    arguments = call.arguments | {"op": op}
    expected = compare_picks(fp.window_pool, testing.window_pool, call.x, **arguments)
    out = dirty(expected.values), dirty(expected.indices)
    found = fp.window_pool(call.x, **arguments, return_indices=True, out=out)
    assert found[0] is out[0]
    assert found[1] is out[1]
    assert_same_bits(found, expected)


@settings(max_examples=60)
@given(window_calls(empty_windows=True))
def test_generated_sums(call):
    check_sums(tame(call.x), call.arguments | {"op": "sum"})


@settings(max_examples=60)
@given(window_calls())
def test_generated_averages(call):
    check_sums(tame(call.x), call.arguments | {"op": "avg"})


def check_sums(x, arguments):
    exact = testing.window_pool(x, **arguments)
    found = fp.window_pool(x, **arguments)
    if is_float(x.dtype):
        assert_within_ulps(found, exact, testing.window_pool(np.abs(x), **arguments))
    elif arguments["op"] == "avg" and x.dtype.itemsize == 8:
        assert_within_ulps(found, exact, exact, 1)
    else:
        assert_same_bits(found, exact)
    out = dirty(found)
    assert fp.window_pool(x, **arguments, out=out) is out
    assert_same_bits(out, found)


@settings(max_examples=60)
@given(
    window_calls(dtypes=("int8",), kinds=("ties",)),
    st.sampled_from(NUMERIC_DTYPES),
    st.sampled_from(("random", "extremes", "some_nan")),
    st.sampled_from(("avg", "sum")),
)
def test_generated_gradients(call, dtype, kind, op):
    arguments = call.arguments | {"op": op}
    shape = testing.window_pool(call.x, **arguments).shape
    grad = tame(fill(kind, dtype, shape, np.random.default_rng(len(shape))))
    exact = testing.window_pool_backward(grad, call.x.shape, **arguments)
    found = fp.window_pool_backward(grad, call.x.shape, **arguments)
    if is_float(dtype) or op == "avg":
        wide = grad if is_float(dtype) else grad.astype(np.float64)
        assert_within_ulps(found, exact, testing.window_pool_backward(np.abs(wide), call.x.shape, **arguments))
    else:
        assert_same_bits(found, exact)


@pytest.mark.parametrize("ndim", range(1, 6))
@pytest.mark.parametrize("op", ["max", "min", "avg", "sum"])
def test_central_differences(ndim, op, rng):
    """Windows that nest, repeat, overlap, leave gaps and run backwards; other ones on every axis."""
    lengths = ((8, 6, 5, 3, 4), (5, 4, 4, 3, 3))[ndim > 3][:ndim]
    windows = []
    for length in lengths:
        starts = rng.integers(0, length, 3)
        windows.append((starts, starts + 1 + rng.integers(0, length - starts)))
    x = rng.permutation(math.prod(lengths)).reshape(lengths) / 10

    def backward(grad, x):
        if op in ("avg", "sum"):
            return fp.window_pool_backward(grad, x.shape, windows, op)
        return fp.max_pool_backward(grad, fp.window_pool(x, windows, op, return_indices=True).indices, x.shape)

    assert fp.gradcheck(lambda x: fp.window_pool(x, windows, op), backward, x, eps=1e-4)


@float_dtypes
def test_gradients_of_many_nested_windows(dtype):
    """The elements in the middle lie in every one of 300 windows, none of which ends after the one before."""
    starts = np.arange(300)
    for seed in range(4):
        grad = np.random.default_rng(seed).random(300).astype(dtype)
        rising = [math.fsum(grad[: i + 1].astype(np.float64)) for i in range(300)]
        exact = np.array(rising + rising[::-1]).astype(dtype)
        found = fp.window_pool_backward(grad, (600,), [(starts, 600 - starts)], "sum")
        assert_within_ulps(found, exact, exact)


def test_known_windows():
    x = np.arange(10).reshape(2, 5)
    ends = [0, 3, 1, 1], [5, 4, 4, 2]
    assert fp.window_pool(x, [ends]).tolist() == [[4, 3, 3, 1], [9, 8, 8, 6]]
    assert fp.window_pool(x, [ends], "min").tolist() == [[0, 3, 1, 1], [5, 8, 6, 6]]
    assert fp.window_pool(x, [ends], "avg").tolist() == [[2, 3, 2, 1], [7, 8, 7, 6]]
    assert fp.window_pool(x, [ends], "sum").tolist() == [[10, 3, 6, 1], [35, 8, 21, 6]]
    assert fp.window_pool(x, [([0, 1], [2, 2]), ends], "sum").tolist() == [[45, 11, 27, 7], [35, 8, 21, 6]]
    assert fp.window_pool(x, [([1], [2])], return_indices=True, axes=0).indices.tolist() == [[5, 6, 7, 8, 9]]
    assert fp.window_pool(x, [([2, 5, 0], [2, 5, 0])], "sum").tolist() == [[0] * 3] * 2


def test_windows_are_taken_as_any_integers():
    x = np.arange(6.0)
    for kind in (
        list,
        tuple,
        np.array,
        lambda v: np.array(v, np.int8),
        lambda v: np.array(v, np.uint64),
        lambda v: np.array(v, ">i4"),
    ):
        assert fp.window_pool(x, [(kind([0, 2]), kind([3, 6]))]).tolist() == [2, 5]
    assert fp.window_pool(x, (np.array([[0, 2], [3, 6]]),)).tolist() == [2, 5]


def test_adaptive_and_global_pooling_are_windows(rng):
    x = rng.standard_normal((3, 11, 13))
    windows = [
        ([i * n // o for i in range(o)], [-(-(i + 1) * n // o) for i in range(o)]) for n, o in ((11, 4), (13, 5))
    ]
    assert_same_bits(
        fp.window_pool(x, windows, return_indices=True), fp.adaptive_max_pool(x, (4, 5), return_indices=True)
    )
    assert_same_bits(fp.window_pool(x, windows, "avg"), fp.adaptive_avg_pool(x, (4, 5)))
    assert_same_bits(
        fp.window_pool(x, [([0], [13])], return_indices=True), fp.global_max_pool(x, axes=2, return_indices=True)
    )


@float_dtypes
def test_nan_in_every_place(dtype):
    starts, stops = np.array([0, 7, 3, 20, 39, 0]), np.array([3, 40, 5, 21, 40, 33])
    for place in range(40):
        x = np.linspace(1, 2, 40).astype(dtype)
        x[place] = nans(dtype)[place % 5]
        over = (starts <= place) & (place < stops)
        for op in ("max", "min", "avg", "sum"):
            np.testing.assert_array_equal(np.isnan(fp.window_pool(x, [(starts, stops)], op)), over)
        assert (fp.window_pool(x, [(starts, stops)], return_indices=True).indices[over] == place).all()


@pytest.mark.parametrize(("windows", "named"), [
    ([], "windows"),
    (None, "windows"),
    ([([0], [1])] * 3, "windows"),
    ([([0], [1], [2])], "windows"),
    ([([0, 1], [1])], "windows"),
    ([([], [])], "windows"),
    ([([0.0], [1.0])], "windows"),
    ([(np.array([0.0]), np.array([1.0]))], "windows"),
    ([(np.zeros((1, 1), int), np.ones((1, 1), int))], "windows"),
    ([([True], [True])], "windows"),
    ([([-1], [2])], "window 0 along axis 1"),
    ([([0, 3], [2, 6])], "window 1 along axis 1"),
    ([([0, 3], [2, 2])], "window 1 along axis 1"),
    ([([6], [6])], "window 0 along axis 1"),
    ([([2**64], [2**65])], "windows"),
    ([([0, 1, 2], [1, 2, 2])], "window 2 along axis 1.*empty"),
    ([([0], [1]), ([1], [1])], "window 0 along axis 1.*empty"),
])  # fmt: skip
def test_bad_windows(windows, named):
    for op in ("max", "min", "avg"):
        with pytest.raises(fp.GeometryError, match=named):
            fp.window_pool(np.ones((2, 5)), windows, op)
    if "empty" not in named:
        with pytest.raises(fp.GeometryError, match=named):
            fp.window_pool(np.ones((2, 5)), windows, "sum")
        with pytest.raises(fp.GeometryError, match=named):
            fp.window_pool_backward(np.ones((2, 1)), (2, 5), windows, "sum")


def test_bad_operations():
    x, windows = np.ones(4), [([0, 1], [2, 4])]
    for op in ("mean", "MAX", None, 0, ["max"], b"max"):
        with pytest.raises(fp.GeometryError, match="op="):
            fp.window_pool(x, windows, op)
    for op in ("avg", "sum"):
        with pytest.raises(fp.GeometryError, match="indices"):
            fp.window_pool(x, windows, op, return_indices=True)
    for op in ("max", "min", "mean", None):
        with pytest.raises(fp.GeometryError, match="max_pool_backward"):
            fp.window_pool_backward(np.ones(2), (4,), windows, op)
    for axis, shape in enumerate(((3, 2), (2, 3))):
        with pytest.raises(fp.GeometryError, match=f"axis {axis}"):
            fp.window_pool_backward(np.ones(shape), (2, 4), windows, "sum")
    with pytest.raises(fp.DtypeError, match="grad_output"):
        fp.window_pool_backward(np.ones(2, bool), (4,), windows, "sum")
    with pytest.raises(fp.GeometryError, match="axes"):
        fp.window_pool(x, windows, axes=(0, 0))
    for out in (np.zeros(3), np.zeros(2, np.float32), x[:2]):
        with pytest.raises(fp.FastpoolError, match="out"):
            fp.window_pool(x, windows, out=out)


# ---- windows in physical units


def test_known_edges():
    metres = np.array([0.5, 1.0, 2.5, 4.0, 9.0])
    starts, stops = fp.windows_from_edges(metres, [0, 1, 4, 9])
    assert starts.dtype == stops.dtype == np.int64
    assert (starts.tolist(), stops.tolist()) == ([0, 1, 3], [1, 3, 5])
    assert [ends.tolist() for ends in fp.windows_from_edges(metres, [10, 20, 30])] == [[5, 5], [5, 5]]
    assert [ends.tolist() for ends in fp.windows_from_edges(metres, [-3, -2, 0.6])] == [[0, 0], [0, 1]]
    assert [ends.tolist() for ends in fp.windows_from_edges([1, 1, 1, 2, 2], [1, 2])] == [[0], [5]]
    assert [ends.tolist() for ends in fp.windows_from_edges([], [1, 2])] == [[0], [0]]


@given(
    st.lists(st.integers(-20, 20), max_size=30).map(sorted),
    st.lists(st.integers(-25, 25), min_size=2, max_size=9, unique=True).map(sorted),
    st.sampled_from((0.25, 1.0)),
)
def test_edges_are_those_of_the_histogram(coordinates, edges, unit):
    places, limits = np.array(coordinates, np.float64) * unit, np.array(edges) * unit
    starts, stops = fp.windows_from_edges(places, limits)
    np.testing.assert_array_equal(stops - starts, np.histogram(places, limits)[0])
    expected = testing.windows_from_edges(places, limits)
    np.testing.assert_array_equal(starts, expected[0])
    np.testing.assert_array_equal(stops, expected[1])
    assert (places[starts[0] : stops[-1]] >= limits[0]).all()
    if len(places):
        sums = fp.window_pool(places, [(starts, stops)], "sum")
        np.testing.assert_array_equal(sums, np.histogram(places, limits, weights=places)[0])


def test_edges_of_large_integers_are_exact():
    """Times in nanoseconds do not pass through float64."""
    times = np.array([2**62, 2**62 + 1, 2**62 + 2])
    starts, stops = fp.windows_from_edges(times, np.array([2**62, 2**62 + 1, 2**62 + 2]))
    assert (starts.tolist(), stops.tolist()) == ([0, 1], [1, 3])


@pytest.mark.parametrize(("coordinates", "edges", "named"), [
    ([2, 1], [0, 3], "coordinates"),
    ([[1, 2]], [0, 3], "coordinates"),
    ([1, np.nan], [0, 3], "coordinates"),
    ([1, np.inf], [0, 3], "coordinates"),
    (["1"], [0, 3], "coordinates"),
    ([1, 2], [0], "edges"),
    ([1, 2], [], "edges"),
    ([1, 2], 3, "edges"),
    ([1, 2], [0, 0], "edges"),
    ([1, 2], [0, 2, 1], "edges"),
    ([1, 2], [0, np.nan], "edges"),
    ([1, 2], [-np.inf, 3], "edges"),
])  # fmt: skip
def test_bad_edges(coordinates, edges, named):
    with pytest.raises(fp.FastpoolError, match=named):
        fp.windows_from_edges(coordinates, edges)


# ---- fractional


@settings(max_examples=80)
@given(fractional_calls())
def test_generated_fractional(call):
    compare_picks(fp.fractional_max_pool, testing.fractional_max_pool, call.x, **call.arguments)


@settings(max_examples=40)
@given(fractional_calls(dtypes=("float32", "int64")), st.integers(0, 2**32 - 1))
def test_generated_fractional_from_a_seed(call, seed):
    arguments = {key: value for key, value in call.arguments.items() if key != "random_samples"}
    compare_picks(fp.fractional_max_pool, testing.fractional_max_pool, call.x, **arguments, rng=seed)


def test_known_fractions():
    x = np.arange(10)
    # a = (10 - 2) / (6 - 1) = 1.6: starts 0, 2, 4, 5, 7 and, the last, 8
    assert fp.fractional_max_pool(x, (2,), (6,), random_samples=[0.5]).tolist() == [1, 3, 5, 6, 8, 9]
    assert fp.fractional_max_pool(x, (2,), (6,), random_samples=[0.0]).tolist() == [1, 2, 4, 5, 7, 9]
    assert fp.fractional_max_pool(x, (3,), (1,), random_samples=[0.7]).tolist() == [9]
    assert fp.fractional_max_pool(-x, (3,), (1,), random_samples=[0.7], return_indices=True) == ([-7], [7])
    assert fp.fractional_max_pool(x, (10,), (1,), random_samples=[0.7]).tolist() == [9]
    assert fp.fractional_max_pool(x, (1,), (10,), random_samples=[0.99]).tolist() == x.tolist()


def test_samples_belong_to_axes_and_planes(rng):
    x = rng.standard_normal((2, 3, 12, 15))
    samples = rng.random((2, 3, 2))
    whole = fp.fractional_max_pool(x, (2, 3), (5, 4), random_samples=samples)
    for plane in np.ndindex(2, 3):
        own = fp.fractional_max_pool(x[plane], (2, 3), (5, 4), random_samples=samples[plane])
        assert_same_bits(np.ascontiguousarray(whole[plane]), own)
    swapped = fp.fractional_max_pool(x, (3, 2), (4, 5), random_samples=samples[..., ::-1], axes=(3, 2))
    assert_same_bits(swapped, whole)
    last = np.moveaxis(x, 1, -1)
    moved = fp.fractional_max_pool(last, (2, 3), (5, 4), random_samples=samples, axes=(1, 2), return_indices=True)
    assert_same_bits(np.ascontiguousarray(np.moveaxis(moved.values, -1, 1)), whole)
    assert_same_bits(np.ascontiguousarray(last).ravel()[moved.indices], moved.values)


def test_seeds_and_generators(rng):
    x = rng.standard_normal((2, 30, 31))
    arguments = ((2, 3), (11, 12))
    expected = fp.fractional_max_pool(x, *arguments, rng=5)
    for threads in (1, 2, 3):
        assert_same_bits(fp.fractional_max_pool(x, *arguments, rng=5, num_threads=threads), expected)
    assert_same_bits(fp.fractional_max_pool(x, *arguments, rng=np.random.default_rng(5)), expected)
    samples = np.random.default_rng(5).random((2, 2))
    assert_same_bits(fp.fractional_max_pool(x, *arguments, random_samples=samples), expected)
    generator = np.random.default_rng(5)
    first, second = (fp.fractional_max_pool(x, *arguments, rng=generator) for _ in range(2))
    assert_same_bits(first, expected)
    assert (second != first).any()
    assert (fp.fractional_max_pool(x, *arguments, rng=6) != expected).any()
    assert fp.fractional_max_pool(x, *arguments).shape == expected.shape


def test_central_differences_of_fractional(rng):
    for ndim in range(1, 6):
        lengths = ((13, 7, 6, 5, 4), (4, 3, 2, 3, 2))[ndim > 2][:ndim]
        x = rng.permutation(2 * math.prod(lengths)).reshape(2, *lengths) / 10
        sizes, kernel = tuple(n // 2 for n in lengths), (2, 3, 1, 2, 2)[:ndim]
        samples = rng.random((2, ndim))

        def pool(x, kernel=kernel, sizes=sizes, samples=samples, **more):
            return fp.fractional_max_pool(x, kernel, sizes, random_samples=samples, **more)

        def backward(grad, x, pool=pool):
            return fp.max_pool_backward(grad, pool(x, return_indices=True).indices, x.shape)

        assert fp.gradcheck(pool, backward, x, eps=1e-4)


@pytest.mark.parametrize(("arguments", "named"), [
    ({"kernel_size": 2, "output_size": (2,)}, "kernel_size"),
    ({"kernel_size": (0,), "output_size": (2,)}, "kernel_size"),
    ({"kernel_size": (2.0,), "output_size": (2,)}, "kernel_size"),
    ({"kernel_size": (2,), "output_size": (0,)}, "output_size"),
    ({"kernel_size": (2,), "output_size": (0.5,)}, "output_size"),
    ({"kernel_size": (2,), "output_size": (None,)}, "output_size"),
    ({"kernel_size": (2,), "output_size": (2, 2)}, "output_size"),
    ({"kernel_size": (2,), "output_size": (10,)}, "axis 2"),
    ({"kernel_size": (10, 2), "output_size": (1, 1)}, "axis 1"),
    ({"kernel_size": (2, 2, 2, 2), "output_size": (1, 1, 1, 1)}, "kernel_size"),
])  # fmt: skip
def test_bad_fractional_geometry(arguments, named):
    with pytest.raises(fp.GeometryError, match=named):
        fp.fractional_max_pool(np.ones((2, 8, 10)), **arguments)


@pytest.mark.parametrize("samples", [
    [0.5, 0.5], 0.5, [[0.5]], [1.0], [-0.1], [np.nan], [np.inf], np.ones((2, 8, 2)) / 2, np.ones((8, 2, 1)) / 2,
    ["a"], [0.5j],
])  # fmt: skip
def test_bad_samples(samples):
    with pytest.raises(fp.FastpoolError, match="random_samples"):
        fp.fractional_max_pool(np.ones((2, 8, 10)), (2,), (3,), random_samples=samples)


@pytest.mark.parametrize("rng", ["seed", -1, 1.5, [0.5], object()])
def test_bad_generators(rng):
    with pytest.raises(fp.GeometryError, match="rng"):
        fp.fractional_max_pool(np.ones(10), (2,), (3,), rng=rng)
    with pytest.raises(fp.GeometryError, match="rng"):
        fp.stochastic_pool(np.ones(10), (2,), rng=rng)


# ---- stochastic


@settings(max_examples=60)
@given(
    pool_calls(dtypes=("bool", *INTEGERS, *FLOAT_DTYPES), kinds=("random", "ties", "lowest_but_one")),
    st.integers(0, 2**32 - 1),
)
def test_generated_stochastic(call, seed):
    arguments = {key: value for key, value in call.arguments.items() if key not in ("dilation", "ceil_mode")}
    zero = call.x.dtype.type(0)
    x = np.where((call.x > zero) & np.isfinite(call.x.astype(np.float64)), call.x, zero)
    try:
        expected = testing.stochastic_pool(x, **arguments, rng=seed)
    except fp.GeometryError:
        with pytest.raises(fp.GeometryError):
            fp.stochastic_pool(x, **arguments, rng=seed)
        return
    assert_same_bits(
        compare_picks(fp.stochastic_pool, testing.stochastic_pool, x, **arguments, rng=seed).values, expected
    )


def test_known_draws():
    x = np.array([0.0, 5, 0, 0, 0, 2])
    for seed in range(20):
        pooled = fp.stochastic_pool(x, (3,), rng=seed, return_indices=True)
        assert pooled.indices.tolist() == [1, 5]
        assert fp.stochastic_pool(x[:3], (2,), 1, 1, rng=seed).tolist()[1] == 5
    generator = np.random.default_rng(3)
    draws = np.random.default_rng(3).random(1000)
    pooled = fp.stochastic_pool(np.tile([1.0, 3.0], 1000), (2,), rng=generator)
    np.testing.assert_array_equal(pooled, np.where(draws < 0.25, 1, 3))


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float32", "float64"])
def test_draws_follow_the_weights(dtype):
    """100 000 windows of weights 1, 2, 3, 4: every share within five standard deviations."""
    x = np.tile(np.array([1, 2, 3, 4], dtype), (100_000, 1))
    indices = fp.stochastic_pool(x, (4,), rng=0, return_indices=True).indices.ravel() % 4
    shares = np.bincount(indices, minlength=4) / len(x)
    expected = np.arange(1, 5) / 10
    assert (np.abs(shares - expected) < 5 * np.sqrt(expected * (1 - expected) / len(x))).all()


def test_windows_of_zeros_take_any_real_tap():
    x = np.zeros(100_000)
    indices = fp.stochastic_pool(x, (4,), rng=0, return_indices=True).indices
    assert (np.abs(np.bincount(indices % 4) / len(indices) - 0.25) < 0.02).all()
    indices = fp.stochastic_pool(x[:2], (4,), 1, 2, rng=0, return_indices=True).indices
    assert ((indices >= 0) & (indices < 2)).all()
    assert fp.stochastic_pool(np.zeros(40, bool), (4,), rng=1).dtype == bool


def test_draws_do_not_depend_on_threads(rng):
    x = rng.random((3, 200, 210)).astype(np.float32)
    expected = fp.stochastic_pool(x, (3, 3), 2, 1, rng=9, return_indices=True)
    for threads in (1, 2, 3):
        found = fp.stochastic_pool(x, (3, 3), 2, 1, rng=9, return_indices=True, num_threads=threads)
        assert_same_bits(found, expected)
    grad = np.ones(expected.values.shape)
    assert fp.max_pool_backward(grad, expected.indices, x.shape).sum() == grad.size


@pytest.mark.parametrize(("bad", "error", "words"), [
    (-1.0, "GeometryError", "negative"),
    (-np.inf, "NonFiniteError", "not finite"),
    (np.nan, "NonFiniteError", "not finite"),
    (np.inf, "NonFiniteError", "not finite"),
])  # fmt: skip
def test_weights_that_are_none(bad, error, words):
    x = np.ones((2, 3, 4))
    x[1, 2, 1], x[1, 2, 3] = bad, bad
    with pytest.raises(getattr(fp, error), match=rf"\(1, 2, 1\).*{words}"):
        fp.stochastic_pool(x, (2,))
    with pytest.raises(fp.GeometryError, match="negative"):
        fp.stochastic_pool(np.array([1, -1]), (2,))


def test_bad_stochastic_geometry():
    for arguments in (
        {"kernel_size": 2},
        {"kernel_size": (0,)},
        {"kernel_size": (2,), "stride": 0},
        {"kernel_size": (9,)},
        {"kernel_size": (2,), "padding": ((2, 3),)},
    ):
        with pytest.raises(fp.GeometryError):
            fp.stochastic_pool(np.ones((2, 5)), **arguments)


# ---- arrays and options


@every_dtype
def test_memory_layouts(dtype, rng):
    x = fill("random", dtype, (3, 4, 5), rng)
    x = np.where(x.astype(np.float64) < 0, x.dtype.type(1), x)
    windows = [([0, 1, 0], [2, 4, 3]), ([4, 0], [5, 4])]
    for name, view in layouts(x):
        before = view.tobytes()
        straight = np.ascontiguousarray(np.asarray(view)).astype(np.dtype(dtype))
        for call in (
            lambda x: fp.window_pool(x, windows, return_indices=True),
            lambda x: fp.window_pool(x, windows, "sum"),
            lambda x: fp.fractional_max_pool(x, (2, 2), (2, 3), rng=3, return_indices=True),
            lambda x: fp.fractional_max_pool(x, (2, 2), (2, 3), rng=3, return_indices=True, axes=(0, 2)),
            lambda x: fp.stochastic_pool(x, (2, 2), rng=3, return_indices=True),
        ):
            assert_same_bits(call(view), call(straight))
        assert view.tobytes() == before, name


@pytest.mark.parametrize("shape", [(0, 4, 4), (2, 0, 4, 4)])
def test_empty_leading_axes(shape):
    x = np.zeros(shape)
    windows = [([0, 1], [2, 4]), ([0, 0, 3], [4, 1, 4])]
    for op in ("max", "min", "avg", "sum"):
        assert fp.window_pool(x, windows, op).shape == (*shape[:-2], 2, 3)
    for op in ("avg", "sum"):
        assert fp.window_pool_backward(np.zeros((*shape[:-2], 2, 3)), shape, windows, op).shape == shape
    for found in (
        fp.fractional_max_pool(x, (2, 2), (2, 3), rng=1, return_indices=True),
        fp.fractional_max_pool(x, (2, 2), (2, 3), random_samples=[0.1, 0.2], return_indices=True),
        fp.stochastic_pool(x, (2, 2), (2, 1), rng=1, return_indices=True),
    ):
        assert found.values.shape == found.indices.shape == (*shape[:-2], 2, 3)
        assert fp.max_pool_backward(found.values, found.indices, shape).shape == shape


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_no_bit(threads, rng):
    x = rng.standard_normal((2, 150, 160)).astype(np.float32)
    starts = [np.sort(rng.integers(0, n, 40)) for n in x.shape[1:]]
    windows = [(s, np.minimum(s + 1 + rng.integers(0, 30, 40), n)) for s, n in zip(starts, x.shape[1:], strict=True)]
    for op, indices in itertools.chain(
        itertools.product(("max", "min"), (True, False)), (("avg", False), ("sum", False))
    ):
        expected = fp.window_pool(x, windows, op, return_indices=indices)
        assert_same_bits(fp.window_pool(x, windows, op, return_indices=indices, num_threads=threads), expected)
    grad = rng.standard_normal((2, 40, 40)).astype(np.float32)
    for op in ("avg", "sum"):
        expected = fp.window_pool_backward(grad, x.shape, windows, op)
        assert_same_bits(fp.window_pool_backward(grad, x.shape, windows, op, num_threads=threads), expected)
