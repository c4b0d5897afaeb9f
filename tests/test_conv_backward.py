"""`conv_backward`: gradients against the slow twin and central differences, and `needs`."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from arrays import FLOAT_DTYPES, INTEGERS, NUMERIC_DTYPES, assert_same_bits, fill
from convs import CASES, arrays_of, assert_in_bound, wide_and_positive
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import conv_calls

import fastpool as fp
from fastpool import testing

NAMES = ("x", "weight", "bias")
EVERY_NEED = [needs for n in range(4) for needs in itertools.permutations(NAMES, n)]


@settings(max_examples=120)
@given(conv_calls(dtypes=NUMERIC_DTYPES), st.integers(0, 2**32 - 1))
def test_generated_calls(call, seed):
    x, arguments = call
    weight, bias = arguments.pop("weight"), arguments.pop("bias")
    y = fp.conv(x, weight, bias, **arguments)
    grad = fill("random", x.dtype, y.shape, np.random.default_rng(seed))
    exact = testing.conv_backward(grad, x, weight, **arguments)
    magnitudes = testing.conv_backward(*wide_and_positive(grad, x, weight), **arguments)
    places = math.prod(grad.shape[-(weight.ndim - 2) :]) * max(1, *grad.shape[: 2 - weight.ndim])
    # an element may be copied to many places of its padding
    terms = (arguments["groups"] * weight.size + x.size, places, places)
    for algorithm in ("auto", "direct", "gemm"):
        found = fp.conv_backward(grad, x, weight, **arguments, algorithm=algorithm)
        assert type(found) is fp.ConvGradients
        for one, other, magnitude, count in zip(found, exact, magnitudes, terms, strict=True):
            assert_in_bound(one, other, magnitude, count)


@settings(max_examples=25)
@given(conv_calls(dtypes=("float64",), kinds=("random",)))
def test_gradcheck(call):
    x, arguments = call
    weight, bias = arguments.pop("weight"), arguments.pop("bias")
    if 0 in (x.size, weight.size) or x.size + weight.size > 400:
        return
    bias = np.zeros(len(weight)) if bias is None else bias
    assert testing.gradcheck(
        lambda x, weight, bias: fp.conv(x, weight, bias, **arguments),
        lambda grad, x, weight, _: tuple(fp.conv_backward(grad, x, weight, **arguments)),
        (x, weight, bias),
    )


@pytest.mark.parametrize("name", CASES)
def test_gradcheck_of_cases(name, rng):
    """In a random direction, since the arrays are large: the function is linear in each of its arrays."""
    x, weight, bias = arrays_of(name, "float64")
    arguments = CASES[name][2]
    y = fp.conv(x, weight, bias, **arguments)
    grad = rng.standard_normal(y.shape)
    found = fp.conv_backward(grad, x, weight, **arguments)
    to_x, to_weight, to_bias = (rng.standard_normal(array.shape) for array in (x, weight, bias))
    changes = (
        fp.conv(to_x, weight, **arguments),
        fp.conv(x, to_weight, **arguments),
        fp.conv(np.zeros_like(x), weight, to_bias, **arguments),
    )
    for gradient, direction, change in zip(found, (to_x, to_weight, to_bias), changes, strict=True):
        scale = np.abs(grad * change).sum()
        assert abs((gradient * direction).sum() - (grad * change).sum()) <= 1e-13 * scale


@pytest.mark.parametrize("needs", EVERY_NEED)
@pytest.mark.parametrize("name", ["image", "circular", "depthwise", "one channel"])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_needs(needs, name, dtype):
    x, weight, bias = arrays_of(name, dtype)
    arguments = CASES[name][2]
    grad = fill("random", dtype, fp.conv(x, weight, bias, **arguments).shape, np.random.default_rng(0))
    everything = fp.conv_backward(grad, x, weight, **arguments)
    found = fp.conv_backward(grad, x, weight, **arguments, needs=needs)
    for field, one, other in zip(NAMES, found, everything, strict=True):
        if field in needs:
            assert_same_bits(one, other)
        else:
            assert one is None


def test_what_is_not_needed_is_not_computed():
    x, weight = np.ones((2, 3, 9, 9), np.float32), np.ones((4, 3, 3, 3), np.float32)
    grad = np.ones((2, 4, 7, 7), np.float32)
    with fp.options(debug_mode=True):
        for needs in EVERY_NEED:
            fp.conv_backward(grad, x, weight, needs=needs)
            report = fp.last_report()
            assert len(report.runs) == len({"x", "weight"} & set(needs))
            assert [array.name for array in report.outputs] == [name for name in NAMES if name in needs]


@pytest.mark.parametrize("dtype", [*FLOAT_DTYPES, *INTEGERS])
def test_dtypes(dtype):
    x, weight, _ = arrays_of("image", dtype)
    y = fp.conv(x, weight, padding=1)
    grad = np.ones(y.shape, dtype)
    for gradient, like in zip(
        fp.conv_backward(grad, x, weight, padding=1), (x, weight, weight[:, 0, 0, 0]), strict=True
    ):
        assert gradient.shape == like.shape
        assert gradient.dtype == y.dtype


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_empty(mode):
    weight = np.ones((4, 2, 3), np.float32)
    found = fp.conv_backward(np.ones((0, 4, 7), "f4"), np.ones((0, 2, 7), "f4"), weight, padding=1, padding_mode=mode)
    assert found.x.shape == (0, 2, 7)
    assert found.weight.shape == weight.shape
    assert not found.weight.any()
    assert found.bias.tolist() == [0] * 4
    found = fp.conv_backward(
        np.ones((1, 0, 7), "f4"), np.ones((1, 2, 7), "f4"), weight[:0], padding=1, padding_mode=mode
    )
    assert not found.x.any()
    assert found.x.shape == (1, 2, 7)
    assert found.weight.shape == (0, 2, 3)
    assert found.bias.shape == (0,)
    no_channels = fp.conv_backward(np.ones((1, 4, 7), "f4"), np.ones((1, 0, 7), "f4"), weight[:, :0], padding=1)
    assert no_channels.weight.shape == (4, 0, 3)
    assert no_channels.x.shape == (1, 0, 7)
    assert no_channels.bias.tolist() == [7] * 4


def test_cropped_elements_have_no_gradient(rng):
    x, weight = rng.standard_normal((1, 2, 9, 10)), rng.standard_normal((3, 2, 2, 3))
    for mode in ("zeros", "reflect", "replicate", "circular"):
        arguments = {"padding": ((-2, 1), (1, -3)), "padding_mode": mode}
        grad = rng.standard_normal(fp.conv(x, weight, **arguments).shape)
        found = fp.conv_backward(grad, x, weight, **arguments).x
        assert not found[:, :, :2].any()
        assert not found[:, :, :, -3:].any()
        assert found[:, :, 2:, :-3].all()


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        ("x", r"needs=\('x',\)"),
        (("x", "x"), "at most once"),
        (("y",), "weight"),
        ((1,), "weight"),
        (None, "needs"),
        (3, "needs"),
    ],
)
def test_bad_needs(needs, words):
    with pytest.raises(fp.GeometryError, match=words):
        fp.conv_backward(np.ones((1, 1, 3)), np.ones((1, 1, 4)), np.ones((1, 1, 2)), needs=needs)


@pytest.mark.parametrize(
    ("grad", "words"),
    [
        ((1, 4, 4), r"axis 2, the outputs have 3"),
        ((1, 3, 3), r"axis 1, the outputs have 4"),
        ((2, 4, 3), r"axis 0, the outputs have 1"),
        ((4, 3), r"2 dimensions"),
        ((0, 4, 3), r"axis 0"),
    ],
)
def test_bad_shapes(grad, words):
    x, weight = np.ones((1, 2, 4)), np.ones((4, 2, 2))
    with pytest.raises(fp.GeometryError, match=f"grad_output.*{words}"):
        fp.conv_backward(np.ones(grad), x, weight)
    with pytest.raises(fp.DtypeError, match=r"grad_output has dtype float32, x has dtype float64"):
        fp.conv_backward(np.ones((1, 4, 3), "f4"), x, weight)
