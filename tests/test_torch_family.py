"""Averages, norms, adaptive and fractional pooling agree with PyTorch in value and gradient, in 1-D to 3-D."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fastpool as fp

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@st.composite
def torch_calls(draw: st.DrawFn, padded: bool) -> tuple[np.ndarray, dict[str, Any]]:
    """Geometry that PyTorch takes too (symmetric padding of at most half a window), different on every axis."""
    ndim = draw(st.integers(1, 3), label="ndim")
    longest = (30, 12, 8)[ndim - 1]
    axes = []
    for _ in range(ndim):
        kernel = draw(st.integers(1, 5))
        padding = draw(st.integers(0, kernel // 2)) if padded else 0
        shortest = kernel if ndim == 3 else max(1, kernel - 2 * padding)  # avg_pool3d forgets the padding
        axes.append((draw(st.integers(shortest, longest)), kernel, draw(st.integers(1, 4)), padding))
    lengths, kernel, stride, padding = (tuple(column) for column in zip(*axes, strict=True))
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *lengths)
    x = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).permutation(math.prod(shape)).reshape(shape) / 16 - 2
    arguments = {"kernel_size": kernel, "stride": stride, "ceil_mode": draw(st.booleans())}
    return x, arguments | ({"padding": padding} if padded else {})


def theirs(name: str, x: np.ndarray, *arguments: Any, **named: Any) -> tuple[np.ndarray, Any, Any]:
    """PyTorch's result, its indices if any, and a function that gives its gradient for a gradient of the result."""
    tensor = torch.from_numpy(x).requires_grad_()
    result = getattr(torch.nn.functional, f"{name}{x.ndim - 2}d")(tensor, *arguments, **named)
    values, indices = result if isinstance(result, tuple) else (result, None)

    def backward(grad: np.ndarray) -> np.ndarray:
        (found,) = torch.autograd.grad(values, tensor, torch.from_numpy(grad))
        return found.numpy()

    return values.detach().numpy(), None if indices is None else indices.numpy(), backward


def gradient_like(values: np.ndarray) -> np.ndarray:
    return np.random.default_rng(values.size).standard_normal(values.shape)


def assert_close(found: np.ndarray, expected: np.ndarray, scale: float = 1) -> None:
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13 * scale)


# ---- averages


@settings(max_examples=80)
@given(torch_calls(padded=True), st.booleans(), st.sampled_from((None, None, 1, 7)))
def test_averages(call, include, override):
    x, arguments = call
    more = {"count_include_pad": include}
    if x.ndim > 3:
        more["divisor_override"] = override  # which avg_pool1d does not have
    expected, _, backward = theirs("avg_pool", x, **arguments, **more)
    scale = float(np.abs(x).max(initial=0)) * 125
    assert_close(fp.avg_pool(x, **arguments, **more), expected, scale)
    grad = gradient_like(expected)
    assert_close(fp.avg_pool_backward(grad, x.shape, **arguments, **more), backward(grad), 125)


@settings(max_examples=40)
@given(torch_calls(padded=True))
def test_sums_are_averages_with_divisor_one(call):
    x, arguments = call
    assume(x.ndim > 3)
    expected, _, backward = theirs("avg_pool", x, **arguments, divisor_override=1)
    assert_close(fp.sum_pool(x, **arguments), expected, float(np.abs(x).max(initial=0)) * 125)
    grad = gradient_like(expected)
    assert_close(fp.sum_pool_backward(grad, x.shape, **arguments), backward(grad), 125)


# ---- norms


def their_norms(x: np.ndarray, norm_type: float, kernel_size: Any, **named: Any) -> tuple[np.ndarray, Any, Any]:
    """lp_pool1d takes an int alone."""
    return theirs("lp_pool", x, norm_type, kernel_size[0] if x.ndim == 3 else kernel_size, **named)


def overhangs(x: np.ndarray, arguments: dict[str, Any]) -> bool:
    """Whether ceil mode makes a window that hangs over the end."""
    return fp.output_shape(x.shape, **arguments) != fp.output_shape(x.shape, **arguments | {"ceil_mode": False})


@settings(max_examples=80)
@given(torch_calls(padded=False), st.sampled_from((1, 2, 3, 4, 1.5, 0.5)))
def test_norms(call, norm_type):
    x, arguments = call
    x = x + 2.5 if norm_type not in (2, 4) else x  # odd and broken powers of negative numbers: see below
    assume(not overhangs(x, arguments))
    expected, _, backward = their_norms(x, norm_type, **arguments)
    found = fp.lp_pool(x, norm_type, **arguments, signed=True)
    assert_close(found, expected)
    grad = gradient_like(expected)
    back = fp.lp_pool_backward(grad, x, found, norm_type, **arguments, signed=True)
    np.testing.assert_allclose(back, backward(grad), rtol=1e-10, atol=1e-11)


@settings(max_examples=40)
@given(torch_calls(padded=False), st.sampled_from((3, 1.5)))
def test_norms_that_are_not_real_are_nan(call, norm_type):
    x, arguments = call
    assume(not overhangs(x, arguments))
    x = x - float(x.max()) - 1
    expected, _, _ = their_norms(x, norm_type, **arguments)
    assert np.isnan(expected).all()
    assert np.isnan(fp.lp_pool(x, norm_type, **arguments, signed=True)).all()


@settings(max_examples=60)
@given(torch_calls(padded=False), st.sampled_from((1, 2, 3)))
def test_norms_that_hang_over_are_scaled_up_by_pytorch(call, norm_type):
    """The one difference: PyTorch multiplies the mean of the real taps by the taps of a whole window."""
    x, arguments = call
    x, arguments = x + 2.5, arguments | {"ceil_mode": True}
    expected, _, _ = their_norms(x, norm_type, **arguments)
    taps = fp.sum_pool(np.ones(x.shape), **arguments)
    share = taps / math.prod(arguments["kernel_size"])
    assert_close(fp.lp_pool(x, norm_type, **arguments), expected * share ** (1 / norm_type))


def test_gradients_at_zero():
    """The same, but for p < 1, where PyTorch's are NaN and infinite."""
    x = np.array([[[0.0, 0.0, 0.0, 2.0]]])
    grad = np.ones((1, 1, 2))
    for norm_type in (1, 1.5, 2, 3, 0.5):
        y, _, backward = their_norms(x, norm_type, (2,))
        found = fp.lp_pool_backward(grad, x, y, norm_type, (2,), signed=True)
        if norm_type < 1:
            slopes = backward(grad)[0, 0]
            assert np.isnan(slopes[:2]).all()
            assert np.isinf(slopes[2])
            assert_close(found, np.array([[[0.0, 0, 0, 1]]]))
        else:
            assert_close(found, backward(grad))


def test_infinite_norms():
    x = np.array([[[-1.0, 2, -3, 1]]])
    expected, _, _ = their_norms(x, math.inf, (2,))
    assert_close(fp.lp_pool(x, math.inf, (2,), signed=True), expected)


# ---- adaptive


@settings(max_examples=80)
@given(st.integers(1, 3), st.data())
def test_adaptive(ndim, data):
    longest = (40, 12, 7)[ndim - 1]
    lengths = tuple(data.draw(st.integers(1, longest)) for _ in range(ndim))
    sizes = tuple(data.draw(st.integers(1, longest)) for _ in range(ndim))
    shape = (data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3)), *lengths)
    x = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))).permutation(math.prod(shape)).reshape(shape) / 16

    expected, _, backward = theirs("adaptive_avg_pool", x, sizes if ndim > 1 else sizes[0])
    assert_close(fp.adaptive_avg_pool(x, sizes), expected)
    grad = gradient_like(expected)
    assert_close(fp.adaptive_avg_pool_backward(grad, x.shape), backward(grad), 125)

    expected, places, backward = theirs("adaptive_max_pool", x, sizes if ndim > 1 else sizes[0], return_indices=True)
    pooled = fp.adaptive_max_pool(x, sizes, return_indices=True)
    np.testing.assert_array_equal(pooled.values, expected)
    np.testing.assert_array_equal(fp.convert_indices(pooled.indices, x.shape, ndim, to="plane"), places)
    assert_close(fp.max_pool_backward(grad, pooled.indices, x.shape), backward(grad), 125)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_global_average_is_adaptive_to_one(ndim, rng):
    x = rng.standard_normal((2, 3, 7, 8, 5)[: ndim + 2])
    expected, _, backward = theirs("adaptive_avg_pool", x, 1)
    assert_close(fp.global_avg_pool(x), expected)
    grad = gradient_like(expected)
    assert_close(fp.global_avg_pool_backward(grad, x.shape), backward(grad))


# ---- fractional


@settings(max_examples=80)
@given(st.integers(1, 3), st.data())
def test_fractional(ndim, data):
    """Of PyTorch's samples in 2-D the first belongs to the last axis; 1-D is 2-D with one row."""
    longest = (40, 12, 8)[ndim - 1]
    spare = 1 if ndim == 3 else 0  # fractional_max_pool3d asks for one element more
    lengths = tuple(data.draw(st.integers(1 + spare, longest)) for _ in range(ndim))
    kernel = tuple(data.draw(st.integers(1, min(4, n - spare))) for n in lengths)
    sizes = tuple(data.draw(st.integers(1, n - k + 1 - spare)) for n, k in zip(lengths, kernel, strict=True))
    shape = (data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3)), *lengths)
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x = generator.permutation(math.prod(shape)).reshape(shape) / 16
    samples = generator.random((*shape[:2], ndim))

    row = ndim == 1
    wide = x[:, :, None] if row else x
    order = np.concatenate([samples, samples], -1) if row else samples[..., ::-1] if ndim == 2 else samples
    expected, places, backward = theirs(
        "fractional_max_pool", wide, (1, *kernel) if row else kernel, (1, *sizes) if row else sizes,
        return_indices=True, _random_samples=torch.from_numpy(np.ascontiguousarray(order)),
    )  # fmt: skip
    pooled = fp.fractional_max_pool(x, kernel, sizes, random_samples=samples, return_indices=True)
    np.testing.assert_array_equal(pooled.values, expected.reshape(pooled.values.shape))
    plane = fp.convert_indices(pooled.indices, x.shape, ndim, to="plane")
    np.testing.assert_array_equal(plane, places.reshape(plane.shape))
    grad = gradient_like(expected)
    found = fp.max_pool_backward(grad.reshape(pooled.values.shape), pooled.indices, x.shape)
    assert_close(found, backward(grad).reshape(x.shape), 125)
