"""The slow twin against values worked by hand, and gradcheck against right and wrong gradients."""

from __future__ import annotations

import numpy as np
import pytest
from arrays import BFLOAT16, DTYPES, FLOATS, assert_same_bits, fill, nans
from hypothesis import given
from strategies import count_windows, pool_calls, real_taps

import fastpool as fp
from fastpool import testing


@given(pool_calls())
def test_twin_against_an_independent_window_finder(call):
    """Windows found by another rule, and their maxima by `numpy.argmax`."""
    x, arguments = call
    count = len(arguments["kernel_size"])
    axes = [axis % x.ndim for axis in arguments.get("axes", range(-count, 0))]
    values, indices = testing.max_pool(x, **arguments, return_indices=True)
    out = list(x.shape)
    parameters = {}
    for i, axis in enumerate(axes):
        geometry = (
            arguments["kernel_size"][i],
            arguments["stride"][i],
            arguments["dilation"][i],
            *arguments["padding"][i],
        )
        parameters[axis] = (x.shape[axis], *geometry)
        out[axis] = count_windows(*parameters[axis], arguments["ceil_mode"])
    assert values.shape == indices.shape == tuple(out)
    places = np.arange(x.size).reshape(x.shape)
    for position in np.ndindex(*out):
        window = np.ix_(*(real_taps(o, *parameters[i]) if i in parameters else [o] for i, o in enumerate(position)))
        taps = x[window].ravel()
        best = int(taps.astype(np.float64).argmax() if taps.dtype == BFLOAT16 else taps.argmax())
        assert indices[position] == places[window].ravel()[best]
    assert_same_bits(values, x.ravel()[indices])


def test_known_maxima():
    x = np.array([1.0, 2, 3, 4, 5])
    assert testing.max_pool(x, (3,), 1, 2, 2).tolist() == [3, 4, 5, 4, 5]
    assert testing.max_pool([[1, 2], [2, 2]], (2, 2), return_indices=True).indices.tolist() == [[1]]
    assert testing.max_pool([2**53, 2**53 + 1], (2,), return_indices=True).indices.tolist() == [1]
    assert testing.max_pool(np.array([0.0, -0.0]), (2,), return_indices=True).indices.tolist() == [0]
    assert testing.min_pool(np.array([0.0, -0.0]), (2,), return_indices=True).indices.tolist() == [0]
    assert testing.max_pool(np.full(4, -128, np.int8), (3,), 1, 1, return_indices=True).indices.tolist() == [
        0,
        0,
        1,
        2,
    ]
    assert testing.max_pool(np.arange(10.0), (3,), 1, ((-2, -1),)).tolist() == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("dtype", FLOATS)
def test_known_nans(dtype):
    x = np.concatenate([np.array([np.inf, 1], dtype), nans(dtype)])
    for function in (testing.max_pool, testing.min_pool):
        pooled = function(x, (len(x),), return_indices=True)
        assert pooled.indices.tolist() == [2]
        assert_same_bits(pooled.values, x[2:3])


def test_known_gradients():
    x = np.zeros((5, 5))
    x[1, 1] = 9
    indices = testing.max_pool(x, (3, 3), 2, 1, return_indices=True).indices
    assert testing.max_pool_backward(np.ones((3, 3)), indices, (5, 5))[1, 1] == 4
    ones = np.ones(4096, np.float16)
    assert testing.max_pool_backward(ones, np.zeros(4096, np.int64), (1,)).tolist() == [4096]
    top = np.array([127, 1], np.int8)
    assert testing.max_pool_backward(top, [0, 0], (1,)).tolist() == [-128]


def test_twin_refuses_what_the_library_refuses():
    for error, call in [
        (fp.DtypeError, lambda: testing.max_pool(np.zeros(3, complex), (1,))),
        (fp.DtypeError, lambda: testing.max_pool(np.ma.zeros(3), (1,))),
        (fp.DtypeError, lambda: testing.max_pool_backward(np.zeros(3, bool), np.zeros(3, int), (3,))),
        (fp.DtypeError, lambda: testing.max_unpool(np.zeros(3), np.zeros(3), (3,))),
        (fp.GeometryError, lambda: testing.max_unpool(np.zeros(3), np.zeros(2, int), (3,))),
        (fp.GeometryError, lambda: testing.global_max_pool(np.zeros((3, 3)))),
        (fp.GeometryError, lambda: testing.max_pool(np.zeros(5), (2,), 2, ((2, 3),))),
        (fp.IndexOutOfBoundsError, lambda: testing.max_unpool(np.zeros(3), np.array([0, 3, 1]), (3,))),
        (fp.IndexOutOfBoundsError, lambda: testing.max_unpool_backward(np.zeros(3), np.array([0, -1]))),
    ]:
        with pytest.raises(error):
            call()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_twin_takes_every_dtype(dtype, rng):
    x = fill("random", dtype, (2, 3, 4), rng)
    values, indices = testing.max_pool(x, (2, 2), return_indices=True)
    assert values.dtype == x.dtype
    assert indices.dtype == np.int64
    out = np.zeros_like(values), np.zeros_like(indices)
    assert testing.max_pool(x, (2, 2), return_indices=True, out=out).values is out[0]
    assert_same_bits(out[0], values)
    assert_same_bits(out[1], indices)


# ---- gradcheck


def double_of(x, y):
    return x * np.sin(y)


def double_backward(grad, x, y):
    return grad * np.sin(y), grad * x * np.cos(y)


def gather_backward(grad, x, order):
    result = np.zeros(x.size)
    result[order] = grad
    return result.reshape(x.shape)


def test_right_gradients_are_accepted(rng):
    x, y = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    assert fp.gradcheck is testing.gradcheck
    assert fp.gradcheck(double_of, double_backward, (x, y)) is True
    assert fp.gradcheck(double_of, double_backward, [x.astype(np.float32), y.astype(np.float16)]) is True
    assert fp.gradcheck(np.tanh, lambda grad, x: grad / np.cosh(x) ** 2, x) is True
    assert fp.gradcheck(np.tanh, lambda grad, x: (grad / np.cosh(x) ** 2,), x) is True
    # Results of another shape, several results, a gradient that is not wanted, an input that is not moved.
    assert fp.gradcheck(lambda x: (x.sum(0), "more"), lambda grad, x: np.broadcast_to(grad, x.shape), x)
    assert fp.gradcheck(double_of, lambda grad, x, y: (None, double_backward(grad, x, y)[1]), (x, y))
    order = rng.permutation(12)
    assert fp.gradcheck(lambda x, order: x.ravel()[order], gather_backward, (x, order))
    assert fp.gradcheck(np.zeros_like, lambda _, x: np.zeros(x.shape), x)
    assert fp.gradcheck(np.tanh, lambda _, x: np.zeros(x.shape), np.zeros((0, 2)))


@pytest.mark.parametrize("fault", ["factor", "one element", "sign", "transposed", "zero", "nan", "small"])
def test_wrong_gradients_are_refused(fault, rng):
    x = rng.standard_normal((4, 4))

    def backward(grad, x):
        right = 3 * grad * x**2
        if fault == "factor":
            return right * 1.001
        if fault == "one element":
            right[2, 1] = right[2, 2]
        if fault == "nan":
            right[2, 1] = np.nan
        if fault == "small":
            right[2, 1] += 1e-3
        return {"sign": -right, "transposed": right.T, "zero": right * 0}.get(fault, right)

    with pytest.raises(AssertionError, match="gradient 0 at") as caught:
        fp.gradcheck(lambda x: x**3, backward, x)
    if fault in ("one element", "nan", "small"):
        assert "[2, 1]" in str(caught.value)


def test_the_wrong_one_of_several_is_named(rng):
    x, y = rng.standard_normal(3), rng.standard_normal(3)
    with pytest.raises(AssertionError, match="gradient 1 at"):
        fp.gradcheck(double_of, lambda grad, x, y: (grad * np.sin(y), grad * x * np.sin(y)), (x, y))
    with pytest.raises(AssertionError, match="1 gradients for 2 inputs"):
        fp.gradcheck(double_of, lambda grad, *_: grad, (x, y))
    with pytest.raises(AssertionError, match=r"shape \(1, 3\).*\(3,\)"):
        fp.gradcheck(np.sin, lambda grad, x: (grad * np.cos(x))[None], x)
    with pytest.raises(AssertionError, match="floating"):
        fp.gradcheck(np.sin, lambda grad, _: grad, np.arange(3))


def test_tolerances_and_step(rng):
    x = rng.standard_normal(5) + 3

    def backward(grad, x):
        return grad * x * 2 * (1 + 1e-3)

    with pytest.raises(AssertionError):
        fp.gradcheck(np.square, backward, x)
    assert fp.gradcheck(np.square, backward, x, rtol=2e-3)
    assert fp.gradcheck(np.square, backward, x, atol=1.0)
    assert fp.gradcheck(np.square, lambda grad, x: 2 * grad * x, x, eps=1e-3)
    # A step too large for the function shows: it is really used.
    with pytest.raises(AssertionError):
        fp.gradcheck(np.sin, lambda grad, x: grad * np.cos(x), x, eps=1.0)


def test_functions_that_write_to_their_inputs_do_not_disturb(rng):
    x = rng.standard_normal(5)
    before = x.copy()

    def function(x):
        result = x**2
        x[...] = 0
        return result

    assert fp.gradcheck(function, lambda grad, x: 2 * grad * x, x)
    assert (x == before).all()


def test_wrong_pooling_gradients_are_refused(rng):
    x = rng.permutation(36).reshape(6, 6) / 10

    def pool(x):
        return fp.max_pool(x, (3, 3), 2)

    def backward(grad, x):
        return fp.max_pool_backward(grad, fp.max_pool(x, (3, 3), 2, return_indices=True).indices, x.shape)

    assert fp.gradcheck(pool, backward, x)
    with pytest.raises(AssertionError):
        fp.gradcheck(pool, lambda grad, x: backward(grad.T, x), x)
    with pytest.raises(AssertionError):
        fp.gradcheck(pool, lambda grad, x: np.where(backward(np.ones_like(grad), x) > 0, 1.0, 0), x)
