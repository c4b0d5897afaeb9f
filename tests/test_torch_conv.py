"""Convolution, its transpose, their gradients, unfold and fold agree with PyTorch, in 1-D to 3-D."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastpool as fp

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}


@st.composite
def torch_calls(draw: st.DrawFn, transposed: bool) -> tuple[list[np.ndarray | None], dict[str, Any]]:
    """Input, weight and bias, and the arguments, different on every axis."""
    ndim = draw(st.integers(1, 3), label="ndim")
    longest = (20, 9, 6)[ndim - 1]
    axes = []
    while len(axes) < ndim:
        kernel, stride, dilation = (draw(st.integers(1, 4)) for _ in range(3))
        padding = draw(st.integers(0, 3))
        length = draw(st.integers(1, longest))
        extra = draw(st.integers(0, max(stride, dilation) - 1))
        outputs = (length - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1 + extra
        if (outputs >= 1) if transposed else (length + 2 * padding > dilation * (kernel - 1)):
            axes.append((length, kernel, stride, dilation, padding, extra))
    lengths, kernel, stride, dilation, padding, extra = (tuple(column) for column in zip(*axes, strict=True))
    groups, inputs, outputs = (draw(st.integers(1, 3)) for _ in range(3))
    batch = draw(st.sampled_from(((), (1,), (2,))))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (groups * inputs, outputs, *kernel) if transposed else (groups * outputs, inputs, *kernel)
    weight = rng.standard_normal(shape)
    bias = draw(st.sampled_from((None, rng.standard_normal(groups * outputs))))
    x = rng.standard_normal((*batch, groups * inputs, *lengths))
    arguments = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return [x, weight, bias], arguments | ({"output_padding": extra} if transposed else {})


def tensors(arrays: list[np.ndarray | None]) -> list[Any]:
    return [None if array is None else torch.from_numpy(array).requires_grad_() for array in arrays]


def assert_close(found: np.ndarray, expected: Any) -> None:
    expected = expected.detach().numpy()
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-11)


def compare(ours: np.ndarray, gradients: Any, theirs: Any, given_tensors: list[Any]) -> None:
    """Values, and gradients by input, weight and bias."""
    assert_close(ours, theirs)
    grad = np.random.default_rng(ours.size).standard_normal(ours.shape)
    wanted = [tensor for tensor in given_tensors if tensor is not None]
    expected = torch.autograd.grad(theirs, wanted, torch.from_numpy(grad))
    for one, other in zip(gradients(grad), expected, strict=False):
        assert_close(one, other)


@settings(max_examples=150)
@given(torch_calls(transposed=False))
def test_conv(call):
    arrays, arguments = call
    given_tensors = tensors(arrays)
    theirs = getattr(torch.nn.functional, f"conv{arrays[1].ndim - 2}d")(*given_tensors, **arguments)
    compare(
        fp.conv(*arrays, **arguments),
        lambda grad: fp.conv_backward(grad, *arrays[:2], **arguments),
        theirs,
        given_tensors,
    )


@settings(max_examples=100)
@given(torch_calls(transposed=False), st.sampled_from(("reflect", "replicate", "circular")))
def test_padding_modes(call, mode):
    arrays, arguments = call
    padding = arguments.pop("padding")
    lengths = arrays[1].ndim - 2
    # PyTorch copies an element at most once
    if any(p >= n if mode == "reflect" else p > n for p, n in zip(padding, arrays[0].shape[-lengths:], strict=True)):
        return
    given_tensors = tensors(arrays)
    pads = [p for p in reversed(padding) for _ in range(2)]
    batched = given_tensors[0] if arrays[0].ndim > lengths + 1 else given_tensors[0][None]
    theirs = getattr(torch.nn.functional, f"conv{lengths}d")(
        torch.nn.functional.pad(batched, pads, MODES[mode]), *given_tensors[1:], **arguments
    )
    arguments |= {"padding": padding, "padding_mode": mode}
    compare(
        fp.conv(*arrays, **arguments),
        lambda grad: fp.conv_backward(grad, *arrays[:2], **arguments),
        theirs if arrays[0].ndim > lengths + 1 else theirs[0],
        given_tensors,
    )


@settings(max_examples=150)
@given(torch_calls(transposed=True))
def test_conv_transpose(call):
    arrays, arguments = call
    given_tensors = tensors(arrays)
    theirs = getattr(torch.nn.functional, f"conv_transpose{arrays[1].ndim - 2}d")(*given_tensors, **arguments)
    compare(
        fp.conv_transpose(*arrays, **arguments),
        lambda grad: fp.conv_transpose_backward(grad, *arrays[:2], **arguments),
        theirs,
        given_tensors,
    )


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # that PyTorch makes a copy
@pytest.mark.parametrize("kernel", [2, 3, 4, 5])
@pytest.mark.parametrize("dilation", [1, 2])
def test_same_padding(kernel, dilation):
    rng = np.random.default_rng(kernel)
    x, weight = rng.standard_normal((2, 3, 11, 12)), rng.standard_normal((4, 3, kernel, kernel - 1))
    theirs = torch.nn.functional.conv2d(
        torch.from_numpy(x), torch.from_numpy(weight), padding="same", dilation=dilation
    )
    assert_close(fp.conv(x, weight, padding="same", dilation=dilation), theirs)


@settings(max_examples=60)
@given(torch_calls(transposed=False))
def test_unfold_and_fold(call):
    (x, weight, _), arguments = call
    if weight.ndim != 4 or x.ndim != 4:
        return
    del arguments["groups"]
    kernel = weight.shape[2:]
    columns = torch.nn.functional.unfold(torch.from_numpy(x), kernel, **arguments)
    ours = fp.unfold(x, kernel, **arguments)
    np.testing.assert_array_equal(ours, columns.numpy())
    assert_close(
        fp.fold(ours, x.shape[2:], kernel, **arguments),
        torch.nn.functional.fold(columns, x.shape[2:], kernel, **arguments),
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_lower_precisions(dtype):
    """Float32 of many terms, and float16, which PyTorch adds up in float32 too."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 48, 20, 21)).astype(dtype)
    weight = (rng.standard_normal((32, 48, 3, 3)) / 20).astype(dtype)
    theirs = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(weight), padding=1).numpy()
    eps = 1e-3 if dtype == "float16" else 1e-6
    np.testing.assert_allclose(fp.conv(x, weight, padding=1), theirs, rtol=4 * eps, atol=4 * eps)
