"""max_unpool and its backward."""

from __future__ import annotations

import numpy as np
import pytest
from arrays import DTYPES, KINDS, NUMERIC_DTYPES, assert_same_bits, fill, layouts
from hypothesis import given, settings
from strategies import pool_calls

import fastpool as fp
from fastpool import testing

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def compare(values, indices, output_shape):
    expected = testing.max_unpool(values, indices, output_shape)
    found = fp.max_unpool(values, indices, output_shape)
    assert_same_bits(found, expected)
    out = np.empty(found.shape, found.dtype)
    out.view(np.uint8)[...] = 0xFF
    assert fp.max_unpool(values, indices, output_shape, out=out) is out
    assert_same_bits(out, expected)
    return found


@settings(max_examples=200)
@given(pool_calls())
def test_generated_calls(call):
    pooled = fp.max_pool(call.x, **call.arguments, return_indices=True)
    found = compare(pooled.values, pooled.indices, call.x.shape)
    # What was pooled is back in its place, and all else is zero.
    flat = found.ravel()
    assert_same_bits(flat[pooled.indices], pooled.values)
    untouched = np.ones(found.size, bool)
    untouched[pooled.indices] = False
    assert not flat[untouched].any()
    assert_same_bits(fp.max_unpool_backward(call.x, pooled.indices), pooled.values)


@every_dtype
@pytest.mark.parametrize("kind", KINDS)
def test_arbitrary_indices(dtype, kind, rng):
    for size, count in ((1, 5), (7, 0), (7, 100), (5000, 3000)):
        values, indices = fill(kind, dtype, (count,), rng), rng.integers(0, size, count)
        compare(values, indices, (size,))
        whole = fill(kind, dtype, (size,), rng)
        assert_same_bits(fp.max_unpool_backward(whole, indices), testing.max_unpool_backward(whole, indices))


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("order", ["shuffled", "ascending", "descending", "crowded"])
def test_the_last_of_equal_indices_wins(threads, order, rng):
    size, count = 150_000, 300_000
    indices = rng.integers(0, size, count)
    if order in ("ascending", "descending"):
        indices.sort()
    if order == "descending":
        indices = indices[::-1].copy()
    if order == "crowded":
        indices //= 1000
    values = rng.standard_normal(count).astype(np.float32)
    expected = np.zeros(size, np.float32)
    last = {int(index): place for place, index in enumerate(indices)}
    expected[list(last)] = values[list(last.values())]
    assert_same_bits(fp.max_unpool(values, indices, (size,), num_threads=threads), expected)
    assert_same_bits(fp.max_unpool_backward(expected, indices, num_threads=threads), expected[indices])


def test_by_hand():
    assert fp.max_unpool([5, 7, 8], [1, 3, 3], (2, 3)).tolist() == [[0, 5, 0], [8, 0, 0]]
    assert fp.max_unpool_backward([[0.0, 1, 2], [3, 4, 5]], [[5, 0], [0, 1]]).tolist() == [[5, 0], [0, 1]]


def test_negative_zero_and_nan_come_back_bit_for_bit():
    values = np.array([-0.0, np.nan], np.float32)
    values.view(np.uint32)[1] |= 5
    compare(values, np.array([2, 0]), (4,))


@every_dtype
def test_memory_layouts(dtype, rng):
    values, indices = fill("random", dtype, (3, 4, 5), rng), rng.integers(0, 70, (3, 4, 5))
    for _, view in layouts(values):
        compare(view, indices, (7, 10))
    for _, view in layouts(indices):
        compare(values, view, (7, 10))
    whole = fill("random", dtype, (7, 10), rng)
    for _, view in layouts(whole):
        assert_same_bits(fp.max_unpool_backward(view, indices), testing.max_unpool_backward(view, indices))


def test_empty():
    assert compare(np.zeros((0, 3)), np.zeros((0, 3), np.int64), (0, 5)).shape == (0, 5)
    assert not compare(np.zeros((0, 3)), np.zeros((0, 3), np.int64), (2, 5)).any()
    assert fp.max_unpool_backward(np.zeros((0, 5)), np.zeros((0, 3), np.int64)).shape == (0, 3)
    assert fp.max_unpool_backward(np.zeros((2, 5)), np.zeros((0, 3), np.int64)).shape == (0, 3)


def test_central_differences(rng):
    indices = rng.permutation(20)[:12].reshape(3, 4)
    values = rng.standard_normal((3, 4))
    assert fp.gradcheck(
        lambda values: fp.max_unpool(values, indices, (4, 5)),
        lambda grad, _: fp.max_unpool_backward(grad, indices),
        values,
    )


@pytest.mark.parametrize("bad", [-1, 6, 2**32, 2**40, -(2**63), 2**63 - 1])
def test_bad_index(bad):
    indices = np.array([[0, 1], [bad, -9]])
    out = np.full((2, 3), 7.0)
    with pytest.raises(fp.IndexOutOfBoundsError, match=rf"\[1, 0\] is {bad}\b.*6"):
        fp.max_unpool(np.ones((2, 2)), indices, (2, 3), out=out)
    assert (out == 7).all()
    with pytest.raises(fp.IndexOutOfBoundsError, match=rf"\[1, 0\] is {bad}\b.*6"):
        fp.max_unpool_backward(np.ones((2, 3)), indices)


def test_every_index_is_outside_of_an_empty_array():
    with pytest.raises(fp.IndexOutOfBoundsError):
        fp.max_unpool(np.ones(1), np.zeros(1, np.int64), (0,))
    with pytest.raises(fp.IndexOutOfBoundsError):
        fp.max_unpool_backward(np.ones((0, 2)), np.zeros(1, np.int64))


@pytest.mark.parametrize("axis", [0, 1])
def test_values_and_indices_disagree_on_one_axis(axis):
    shape = [2, 3]
    shape[axis] += 1
    with pytest.raises(fp.GeometryError, match=f"axis {axis}"):
        fp.max_unpool(np.ones((2, 3)), np.zeros(shape, np.int64), (9,))


@pytest.mark.parametrize("dtype", ["float64", "uint64", "int16", "bool", "object"])
def test_indices_of_other_dtypes(dtype):
    with pytest.raises(fp.DtypeError, match="indices"):
        fp.max_unpool(np.ones(3), np.zeros(3, dtype), (3,))
    with pytest.raises(fp.DtypeError, match="indices"):
        fp.max_unpool_backward(np.ones(3), np.zeros(3, dtype))


@pytest.mark.parametrize("shape", [(-1, 4), (2.0, 2), "22", None, (2**40, 2**40), (2**63,)])
def test_bad_output_shape(shape):
    with pytest.raises(fp.GeometryError, match="output_shape"):
        fp.max_unpool(np.ones(2), np.zeros(2, np.int64), shape)


@pytest.mark.parametrize("dtype", ["complex64", "object", "U2", "M8[s]"])
def test_other_dtypes(dtype):
    with pytest.raises(fp.DtypeError, match="values"):
        fp.max_unpool(np.zeros(3, dtype), np.zeros(3, np.int64), (3,))
    with pytest.raises(fp.DtypeError, match="grad_output"):
        fp.max_unpool_backward(np.zeros(3, dtype), np.zeros(3, np.int64))


def test_unpooling_undoes_pooling_of_disjoint_windows(rng):
    for dtype in NUMERIC_DTYPES:
        x = fill("random", dtype, (2, 4, 6), rng)
        pooled = fp.max_pool(x, (2, 3), return_indices=True)
        again = fp.max_pool(
            fp.max_unpool(pooled.values, pooled.indices, x.shape).view(np.ndarray),
            (1, 1),
            return_indices=True,
        )
        assert_same_bits(again.values.ravel()[pooled.indices], pooled.values)
