"""`conv_transpose` and its backward: against the slow twin, and as the adjoint of `conv`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from arrays import NUMERIC_DTYPES, assert_same_bits, dirty, fill
from convs import CASES, arrays_of, assert_in_bound, wide_and_positive
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import conv_calls, transposed_calls

import fastpool as fp
from fastpool import testing


@settings(max_examples=120)
@given(transposed_calls(dtypes=NUMERIC_DTYPES))
def test_generated_calls(call):
    x, arguments = call
    weight, bias = arguments.pop("weight"), arguments.pop("bias")
    exact = testing.conv_transpose(x, weight, bias, **arguments)
    magnitude = testing.conv_transpose(*wide_and_positive(x, weight, bias), **arguments)
    terms = math.prod(weight.shape[2:]) * len(weight)
    for algorithm in ("auto", "direct", "gemm"):
        found = fp.conv_transpose(x, weight, bias, **arguments, algorithm=algorithm)
        assert_in_bound(found, exact, magnitude, terms)
    out = dirty(found)
    assert fp.conv_transpose(x, weight, bias, **arguments, algorithm=algorithm, out=out) is out
    assert_same_bits(out, found)


@settings(max_examples=60)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 70), st.integers(1, 4), st.sampled_from((1, 2, 5, 8, 16)))
def test_wide_rows(kernel, stride, columns, rows, filters):
    """Outputs that take turns along rows, and weights that are read where they are: small integers, so exact."""
    rng = np.random.default_rng(columns)
    for dtype in ("float32", "int64", "int8"):
        x = rng.integers(-9, 9, (1, 2, rows, columns)).astype(dtype)
        weight = rng.integers(-9, 9, (2, filters, kernel, kernel)).astype(dtype)
        exact = testing.conv_transpose(x, weight, stride=stride)
        for algorithm in ("direct", "gemm"):
            found = fp.conv_transpose(x, weight, stride=stride, algorithm=algorithm)
            np.testing.assert_array_equal(found, exact)


@settings(max_examples=100)
@given(transposed_calls(dtypes=NUMERIC_DTYPES), st.integers(0, 2**32 - 1))
def test_generated_backwards(call, seed):
    x, arguments = call
    weight, bias = arguments.pop("weight"), arguments.pop("bias")
    y = fp.conv_transpose(x, weight, bias, **arguments)
    grad = fill("random", x.dtype, y.shape, np.random.default_rng(seed))
    exact = testing.conv_transpose_backward(grad, x, weight, **arguments)
    magnitudes = testing.conv_transpose_backward(*wide_and_positive(grad, x, weight), **arguments)
    count = weight.ndim - 2
    batch = max(1, *x.shape[: -count - 1]) if x.ndim > count + 1 else 1
    terms = (weight.size, math.prod(x.shape[-count:]) * batch, math.prod(grad.shape[-count:]) * batch)
    found = fp.conv_transpose_backward(grad, x, weight, **arguments)
    for one, other, magnitude, n in zip(found, exact, magnitudes, terms, strict=True):
        assert_in_bound(one, other, magnitude, n)
    for needs in (("x",), ("weight",), ("bias",), ()):
        some = fp.conv_transpose_backward(grad, x, weight, **arguments, needs=needs)
        for name, one, other in zip(some._fields, some, found, strict=True):
            if name in needs:
                assert_same_bits(one, other)
            else:
                assert one is None


@settings(max_examples=25)
@given(transposed_calls(dtypes=("float64",)))
def test_gradcheck(call):
    x, arguments = call
    weight, bias = arguments.pop("weight"), arguments.pop("bias")
    if 0 in (x.size, weight.size) or x.size + weight.size > 400:
        return
    bias = np.zeros(weight.shape[1] * arguments["groups"]) if bias is None else bias
    assert testing.gradcheck(
        lambda x, weight, bias: fp.conv_transpose(x, weight, bias, **arguments),
        lambda grad, x, weight, _: tuple(fp.conv_transpose_backward(grad, x, weight, **arguments)),
        (x, weight, bias),
    )


@settings(max_examples=100)
@given(conv_calls(dtypes=("float64",), modes=False), st.integers(0, 2**32 - 1))
def test_adjoint_of_conv(call, seed):
    """<conv(x, w), y> = <x, conv_transpose(y, w)>, with an output padding for what no window of x reaches."""
    x, arguments = call
    weight = arguments.pop("weight")
    del arguments["bias"]
    y = np.random.default_rng(seed).standard_normal(fp.conv(x, weight, **arguments).shape)
    count = weight.ndim - 2
    plain = [
        (out - 1) * s - before - after + d * (k - 1) + 1
        for out, k, s, d, (before, after) in zip(
            y.shape[-count:],
            weight.shape[2:],
            arguments["stride"],
            arguments["dilation"],
            arguments["padding"],
            strict=True,
        )
    ]
    rest = tuple(n - m for n, m in zip(x.shape[-count:], plain, strict=True))
    back = fp.conv_transpose(y, weight, output_padding=rest, **arguments)
    assert back.shape == x.shape
    forward = fp.conv(x, weight, **arguments)
    scale = np.abs(forward * y).sum() + np.abs(x * back).sum() + 1
    assert abs((forward * y).sum() - (x * back).sum()) <= 1e-13 * scale
    assert_same_bits(back, fp.conv_backward(y, x, weight, **arguments, needs=("x",)).x)


@pytest.mark.parametrize("name", [name for name in CASES if "padding_mode" not in CASES[name][2]])
def test_adjoint_of_cases(name, rng):
    x, weight, _ = arrays_of(name, "float64")
    arguments = CASES[name][2]
    y = rng.standard_normal(fp.conv(x, weight, **arguments).shape)
    back = fp.conv_backward(y, x, weight, **arguments, needs=("x",)).x
    one, other = (fp.conv(x, weight, **arguments) * y).sum(), (x * back).sum()
    assert abs(one - other) <= 1e-13 * np.abs(x * back).sum()


@pytest.mark.parametrize("length", [7, 8])
def test_two_lengths_with_the_same_outputs(length):
    x, weight = np.zeros((1, 1, length)), np.zeros((1, 1, 3))
    y = fp.conv(x, weight, stride=2, dilation=2, padding=1)
    assert y.shape == (1, 1, 3)
    back = fp.conv_transpose(y, weight, stride=2, dilation=2, padding=1, output_padding=length - 7)
    assert back.shape == x.shape


@pytest.mark.parametrize(
    ("stride", "dilation", "extra", "good"),
    [(1, 1, 1, False), (1, 3, 2, True), (2, 1, 1, True), (2, 1, 2, False), (2, 3, 3, False), (1, 1, 0, True)],
)
def test_output_padding(stride, dilation, extra, good):
    x, weight = np.ones((1, 1, 4)), np.ones((1, 1, 2))
    arguments = {"stride": stride, "dilation": dilation, "output_padding": extra}
    if good:
        assert fp.conv_transpose(x, weight, **arguments).shape[-1] == 3 * stride + dilation + 1 + extra
        return
    with pytest.raises(fp.GeometryError, match=f"output_padding is {extra}.*stride {stride}.*dilation {dilation}"):
        fp.conv_transpose(x, weight, **arguments)


@pytest.mark.parametrize("padding", ["same", "same_lower"])
@pytest.mark.parametrize(
    ("stride", "kernel", "dilation", "extra"), [(2, 3, 1, 0), (2, 4, 1, 1), (3, 2, 1, 2), (1, 4, 2, 0), (5, 1, 1, 0)]
)
def test_same_padding_leaves_stride_times_the_length(padding, stride, kernel, dilation, extra):
    x, weight = np.ones((1, 1, 6)), np.arange(1.0, kernel + 1).reshape(1, 1, kernel)
    arguments = {"stride": stride, "dilation": dilation, "output_padding": extra, "padding": padding}
    found = fp.conv_transpose(x, weight, **arguments)
    assert found.shape == (1, 1, 6 * stride)
    np.testing.assert_array_equal(found, testing.conv_transpose(x, weight, **arguments))


def test_outputs_without_a_tap_are_the_bias():
    y = fp.conv_transpose([[[1.0, 2.0]]], [[[3.0], [4.0]]], [10.0, 20.0], stride=3, output_padding=1)
    assert y.tolist() == [[[13, 10, 10, 16, 10], [14 + 10, 20, 20, 28, 20]]]
    nothing = fp.conv_transpose(np.ones((1, 0, 3)), np.ones((0, 2, 2)), np.array([1.0, 2.0]))
    assert nothing.tolist() == [[[1] * 4, [2] * 4]]


def test_empty():
    weight = np.ones((2, 3, 2), np.float32)
    assert fp.conv_transpose(np.ones((0, 2, 4), "f4"), weight).shape == (0, 3, 5)
    assert fp.conv_transpose(np.ones((1, 2, 4), "f4"), weight[:, :0]).shape == (1, 0, 5)
    found = fp.conv_transpose_backward(np.ones((0, 3, 5), "f4"), np.ones((0, 2, 4), "f4"), weight)
    assert [array.shape for array in found] == [(0, 2, 4), (2, 3, 2), (3,)]
    assert not found.weight.any()


@pytest.mark.parametrize(
    ("x", "weight", "arguments", "error", "words"),
    [
        ((1, 4, 5), (2, 1, 3), {"groups": 2}, fp.GeometryError, r"\(2, 1, 3\).*\(4, 1, 3\)"),
        ((1, 3, 5), (3, 1, 3), {"groups": 2}, fp.GeometryError, "groups=2.*3 input channels"),
        ((1, 3, 5), (3, 1), {}, fp.GeometryError, "weight has 2 dimensions"),
        ((1, 3, 0), (3, 1, 2), {}, fp.GeometryError, "length 0"),
        ((1, 3, 5), (3, 1, 0), {}, fp.GeometryError, "at least one tap"),
        ((1, 3, 1), (3, 1, 2), {"padding": 1}, fp.GeometryError, r"leaves a length of 0 along axis 2"),
        ((1, 3, 5), (3, 1, 2), {"output_padding": -1}, fp.GeometryError, "output_padding"),
        ((1, 3, 5), (3, 1, 2), {"stride": 0}, fp.GeometryError, "stride"),
        ((1, 3, 5), (3, 1, 2), {"stride": None}, fp.GeometryError, "stride"),
        ((1, 3, 5), (3, 2, 2), {"bias": np.zeros(3)}, fp.GeometryError, r"bias has shape \(3,\).*\(2,\)"),
        ((1, 3, 5), (3, 2, 2), {"bias": np.zeros(2, int)}, fp.DtypeError, "bias has dtype int64"),
        ((1, 3, 2**20), (3, 2, 2), {"stride": 2**62}, fp.GeometryError, "address"),
        ((1, 3, 5), (3, 2, 2), {"padding_mode": "zeros"}, TypeError, "padding_mode"),
    ],
)  # fmt: skip
def test_bad_arguments(x, weight, arguments, error, words):
    with pytest.raises(error, match=words):
        fp.conv_transpose(np.zeros(x), np.zeros(weight), **arguments)


def test_bad_gradients():
    x, weight = np.ones((1, 2, 4)), np.ones((2, 3, 2))
    with pytest.raises(fp.GeometryError, match=r"grad_output.*axis 2, the outputs have 5"):
        fp.conv_transpose_backward(np.ones((1, 3, 4)), x, weight)
    with pytest.raises(fp.GeometryError, match=r"needs=\('weight',\)"):
        fp.conv_transpose_backward(np.ones((1, 3, 5)), x, weight, needs="weight")
    with pytest.raises(fp.DtypeError, match="float32"):
        fp.conv_transpose_backward(np.ones((1, 3, 5)), x, weight.astype("f4"))
