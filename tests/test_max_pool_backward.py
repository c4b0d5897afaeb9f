"""max_pool_backward, dense and sparse, against the slow twin, `numpy.add.at` and values worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from arrays import (
    BFLOAT16,
    FLOAT_DTYPES,
    INTEGERS,
    KINDS,
    NUMERIC_DTYPES,
    assert_same_bits,
    canonical_nan,
    fill,
    is_float,
    layouts,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import pool_calls

import fastpool as fp
from fastpool import testing

numeric_dtypes = pytest.mark.parametrize("dtype", NUMERIC_DTYPES, ids=str)


def compare(grad, indices, input_shape, **options):
    """Dense, into `out`, and sparse: the bits of the twin (payloads of NaN apart: sums do not keep them)."""
    expected = testing.max_pool_backward(grad, indices, input_shape)
    dense = fp.max_pool_backward(grad, indices, input_shape, **options)
    assert_same_bits(canonical_nan(dense), canonical_nan(expected))
    out = np.empty(dense.shape, dense.dtype)
    out.view(np.uint8)[...] = 0xFF
    assert fp.max_pool_backward(grad, indices, input_shape, out=out, **options) is out
    assert_same_bits(out, dense)
    sparse = fp.max_pool_backward(grad, indices, input_shape, sparse=True, **options)
    touched = testing.max_pool_backward(grad, indices, input_shape, sparse=True)
    assert isinstance(sparse, fp.SparseGradient)
    assert_same_bits(sparse.indices, touched.indices)
    assert_same_bits(canonical_nan(sparse.values), canonical_nan(touched.values))
    return dense


# ---- against the twin


@settings(max_examples=200)
@given(pool_calls(), st.sampled_from(NUMERIC_DTYPES), st.sampled_from(KINDS), st.integers(0, 2**32 - 1))
def test_generated_calls(call, dtype, kind, seed):
    indices = fp.max_pool(call.x, **call.arguments, return_indices=True).indices
    compare(fill(kind, dtype, indices.shape, np.random.default_rng(seed)), indices, call.x.shape)


@numeric_dtypes
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 7, 100, 5000])
def test_arbitrary_indices(dtype, kind, size, rng):
    """Any indices at all, from none at some places to very many at one."""
    for count in (0, 1, 10, 3000):
        indices = rng.integers(0, size, count)
        compare(fill(kind, dtype, (count,), rng), indices, (size,))
    compare(fill(kind, dtype, (5000,), rng), np.full(5000, size - 1), (size,))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "uint64"])
@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled", "crowded"])
def test_additions_follow_the_order_of_the_outputs(dtype, order, rng):
    """Large enough for several threads; sums of floats show any other order."""
    size, count = 200_000, 400_000
    indices = rng.integers(0, size, count)
    if order != "shuffled":
        indices.sort()
    if order == "descending":
        indices = indices[::-1].copy()
    if order == "crowded":
        indices //= 1000
    grad = (
        (rng.standard_normal(count) * 10.0 ** rng.integers(0, 5, count))
        .astype("float64" if "f" in dtype else "int64")
        .astype(dtype)
    )
    expected = np.zeros(size, dtype)
    np.add.at(expected, indices, grad)
    for threads in (1, 2, 3, 7):
        assert_same_bits(fp.max_pool_backward(grad, indices, (size,), num_threads=threads), expected)
        sparse = fp.max_pool_backward(grad, indices, (size,), sparse=True, num_threads=threads)
        np.testing.assert_array_equal(sparse.indices, np.unique(indices))
        assert_same_bits(sparse.values, expected[sparse.indices])


@pytest.mark.parametrize("dtype", [dtype for dtype in FLOAT_DTYPES if np.dtype(dtype).itemsize == 2], ids=str)
def test_half_precision_is_rounded_once(dtype):
    """Added in float32: in half precision itself the sum would stall."""
    count = 70_000
    for number in (1.0, 0.1):
        grad = np.full(count, number).astype(dtype)
        total = np.float32(0)
        for value in grad.astype(np.float32):
            total += value
        with np.errstate(over="ignore"):
            expected = np.array([total]).astype(dtype)
        assert_same_bits(fp.max_pool_backward(grad, np.zeros(count, np.int64), (1,)), expected)
    large = np.array([60000, 60000, -60000, -50000]).astype(dtype)
    found = fp.max_pool_backward(large, np.zeros(4, np.int64), (1,))
    assert_same_bits(found, large.astype(np.float32).sum(keepdims=True).astype(dtype))


@pytest.mark.skipif(BFLOAT16 is None, reason="needs ml_dtypes")
def test_bfloat16_rounds_to_even():
    for addend in np.arange(1, 400, dtype=np.float32):
        grad = np.array([256, addend / 16]).astype(BFLOAT16)
        expected = grad.astype(np.float32).sum(keepdims=True).astype(BFLOAT16)
        assert_same_bits(fp.max_pool_backward(grad, np.array([0, 0]), (1,)), expected)


def test_float16_rounds_to_even_and_keeps_subnormals():
    bits = np.arange(0, 2**16, 7, dtype=np.uint16)
    grad = bits.view(np.float16)
    for other in (0.0, 6e-8, 0.33, -1.0, 1000.5):
        pairs = np.stack([grad, np.full_like(grad, other)], 1)
        with np.errstate(over="ignore", invalid="ignore"):
            expected = (pairs[:, 0].astype(np.float32) + pairs[:, 1].astype(np.float32)).astype(np.float16)
        indices = np.repeat(np.arange(len(grad)), 2).reshape(-1, 2)
        found = fp.max_pool_backward(pairs, indices, (len(grad),))
        assert_same_bits(canonical_nan(found), canonical_nan(expected))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap(dtype):
    info = np.iinfo(dtype)
    found = fp.max_pool_backward(np.array([info.max, 1, 1], dtype), np.array([0, 0, 0]), (2,))
    assert_same_bits(found, np.array([info.min + 1, 0], dtype))


# ---- values worked by hand


def test_overlap_adds_up():
    x = np.zeros((1, 1, 5, 5))
    x[0, 0, 1, 1] = 9
    pooled = fp.max_pool(x, (3, 3), 2, 1, return_indices=True)
    grad = compare(np.arange(1.0, 10).reshape(1, 1, 3, 3), pooled.indices, x.shape)
    assert grad[0, 0, 1, 1] == 1 + 2 + 4 + 5
    assert grad.sum() == 45


def test_zero_gradients_touch_their_positions():
    sparse = fp.max_pool_backward(np.array([0.0, 1.0, -1.0]), np.array([5, 2, 2]), (9,), sparse=True)
    assert sparse.indices.tolist() == [2, 5]
    assert sparse.values.tolist() == [0, 0]


@numeric_dtypes
@pytest.mark.parametrize("value", ["lowest", "all_nan"])
def test_gradient_is_conserved_when_only_padding_could_win(dtype, value, rng):
    x = fill(value, dtype, (2, 6, 7), rng)
    pooled = fp.max_pool(x, (3, 3), 1, 1, 2, return_indices=True)
    gradient = rng.integers(-50, 50, pooled.values.shape).astype(np.float64)
    assert fp.max_pool_backward(gradient, pooled.indices, x.shape).sum() == gradient.sum()


@pytest.mark.parametrize("function", [fp.max_pool, fp.min_pool])
@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation", "axes"), [
    ((2, 2), None, 0, 1, None), ((3, 2), (1, 2), (1, 0), (2, 1), None),
    ((2, 3), (2, 1), ((1, 0), (0, 2)), 1, (0, 2)),
])  # fmt: skip
def test_central_differences(function, kernel, stride, padding, dilation, axes, rng):
    x = rng.permutation(5 * 4 * 6).reshape(5, 4, 6) / 10
    arguments = (kernel, stride, padding, dilation)

    def backward(grad, x):
        indices = function(x, *arguments, axes=axes, return_indices=True).indices
        return fp.max_pool_backward(grad, indices, x.shape)

    assert fp.gradcheck(lambda x: function(x, *arguments, axes=axes), backward, x)


def test_global_pooling_goes_by_its_indices(rng):
    x = rng.permutation(2 * 3 * 20).reshape(2, 3, 4, 5) / 10
    for keepdims in (True, False):

        def backward(grad, x, keepdims=keepdims):
            pooled = fp.global_max_pool(x, keepdims=keepdims, return_indices=True)
            return fp.max_pool_backward(grad, pooled.indices, x.shape)

        assert fp.gradcheck(lambda x, keepdims=keepdims: fp.global_max_pool(x, keepdims=keepdims), backward, x)


# ---- arrays


@numeric_dtypes
def test_memory_layouts(dtype, rng):
    grad = fill("random", dtype, (3, 4, 5), rng)
    indices = rng.integers(0, 50, (3, 4, 5))
    expected = compare(grad, indices, (50,))
    for name, view in layouts(grad):
        assert_same_bits(fp.max_pool_backward(view, indices, (50,)), testing.max_pool_backward(view, indices, (50,)))
        if name not in ("broadcast", "constant"):
            assert_same_bits(fp.max_pool_backward(view, indices, (50,)), expected)
    for name, view in layouts(indices):
        if name not in ("broadcast", "constant"):
            assert_same_bits(fp.max_pool_backward(grad, view, (50,)), expected)
        else:
            compare(grad, view, (50,))


def test_int32_indices_are_converted(rng):
    indices = rng.integers(0, 20, (4, 5))
    grad = rng.standard_normal((4, 5))
    expected = fp.max_pool_backward(grad, indices, (20,))
    assert_same_bits(fp.max_pool_backward(grad, indices.astype(np.int32), (20,)), expected)
    assert_same_bits(fp.max_pool_backward(grad, indices.astype(">i4"), (20,)), expected)
    sparse = fp.max_pool_backward(grad, indices.astype(np.int32), (20,), sparse=True)
    assert sparse.indices.dtype == np.int64


@pytest.mark.parametrize("shape", [(0, 3), (0, 0), (2, 0, 4)])
def test_empty_gradients(shape):
    for input_shape in ((0, 6), (5, 4), (0,)):
        found = compare(np.zeros(shape), np.zeros(shape, np.int64), input_shape)
        assert found.shape == input_shape
        assert not found.any()


def test_scalars():
    assert fp.max_pool_backward(np.float32(2), np.int64(3), (2, 2)).tolist() == [[0, 0], [0, 2]]
    assert fp.max_pool_backward(np.float32(2), np.int64(0), ()).shape == ()


# ---- bad arguments


@pytest.mark.parametrize("bad", [-1, 24, 25, 2**31, 2**32, 2**40, 2**62, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("threads", [1, 2])
def test_bad_index(bad, threads):
    indices = np.arange(24).reshape(2, 3, 4)
    indices[1, 2, 1] = bad
    indices[1, 2, 3] = -7
    grad = np.ones((2, 3, 4), np.float32)
    for sparse, out in ((False, None), (True, None), (False, np.full(24, 7, np.float32))):
        with pytest.raises(fp.IndexOutOfBoundsError, match=rf"\[1, 2, 1\] is {bad}\b.*24") as caught:
            fp.max_pool_backward(grad, indices, (24,), sparse=sparse, out=out, num_threads=threads)
        assert isinstance(caught.value, IndexError)
        if out is not None:
            assert (out == 7).all()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_bad_index_at_either_end_of_many(threads):
    for place in (0, 99_999, 199_999):
        indices = np.arange(200_000)
        indices[place] = 200_000
        out = np.full(200_000, 7, np.float32)
        with pytest.raises(fp.IndexOutOfBoundsError, match=rf"\[{place}\] is 200000"):
            fp.max_pool_backward(np.ones(200_000, np.float32), indices, (200_000,), out=out, num_threads=threads)
        assert (out == 7).all()


def test_every_index_is_outside_of_an_empty_input():
    for sparse in (False, True):
        with pytest.raises(fp.IndexOutOfBoundsError):
            fp.max_pool_backward(np.ones(1), np.zeros(1, np.int64), (0, 3), sparse=sparse)


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "uint64", "uint32", "int16", "int8", "bool", "complex64", "object", "U1", "M8[s]"],
)
def test_indices_of_other_dtypes(dtype):
    for sparse in (False, True):
        with pytest.raises(fp.DtypeError, match="indices"):
            fp.max_pool_backward(np.ones(3), np.zeros(3, dtype), (3,), sparse=sparse)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gradient_and_indices_disagree_on_one_axis(axis):
    grad = np.ones((2, 3, 4))
    shape = [2, 3, 4]
    shape[axis] += 1
    with pytest.raises(fp.GeometryError, match=f"axis {axis}"):
        fp.max_pool_backward(grad, np.zeros(shape, np.int64), (5, 5, 5))


def test_same_size_is_not_same_shape():
    for shape in ((3, 2), (6,), (1, 2, 3), (2, 3, 1)):
        with pytest.raises(fp.GeometryError):
            fp.max_pool_backward(np.ones((2, 3)), np.zeros(shape, np.int64), (9,))


@pytest.mark.parametrize("shape", [(-1, 4), (2.0, 2), "22", None, (2**40, 2**40), (True, 2), (2**63,)])
def test_bad_input_shape(shape):
    with pytest.raises(fp.GeometryError, match="input_shape"):
        fp.max_pool_backward(np.ones(2), np.zeros(2, np.int64), shape)


@pytest.mark.parametrize("dtype", ["bool", "complex128", "object", "U3", "M8[s]", "longdouble"])
def test_gradients_of_other_dtypes(dtype):
    if dtype == "longdouble" and np.dtype(dtype) == np.float64:
        pytest.skip("longdouble is float64 here")
    with pytest.raises(fp.DtypeError, match="grad_output"):
        fp.max_pool_backward(np.zeros(3, dtype), np.zeros(3, np.int64), (3,))


def test_out_is_for_the_dense_gradient():
    with pytest.raises(fp.FastpoolError, match="out"):
        fp.max_pool_backward(np.ones(2), np.zeros(2, np.int64), (3,), sparse=True, out=np.zeros(3))


@pytest.mark.torch
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_pytorch_agrees(ndim, rng):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(
        rng.permutation(2 * 3 * 9**ndim).astype(np.float64).reshape(2, 3, *(9,) * ndim)
    ).requires_grad_()
    y = getattr(torch.nn.functional, f"max_pool{ndim}d")(x, 3, 2, 1)
    grad = rng.standard_normal(tuple(y.shape))
    y.backward(torch.from_numpy(grad))
    indices = fp.max_pool(x.detach().numpy(), (3,) * ndim, 2, 1, return_indices=True).indices
    found = fp.max_pool_backward(grad, indices, tuple(x.shape))
    np.testing.assert_allclose(found, x.grad.numpy(), rtol=1e-14, atol=1e-14)
    assert is_float(found.dtype)
