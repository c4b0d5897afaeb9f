"""`conv`: values against the slow twin, dtypes, arguments, and the same bits whichever way a call takes."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from arrays import DTYPES, FLOAT_DTYPES, INTEGERS, NUMERIC_DTYPES, assert_same_bits, dirty, fill, layouts
from convs import CASES, arrays_of, assert_in_bound, results, wide_and_positive
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import conv_calls

import fastpool as fp
from fastpool import testing

ALGORITHMS = ("auto", "direct", "gemm")


@pytest.fixture
def tile_bytes(monkeypatch):
    """Set the size of tiles; plans made before are forgotten."""
    from fastpool import _plan

    def set_to(size):
        if size is None:
            monkeypatch.delenv("FASTPOOL_TILE_BYTES", raising=False)
        else:
            monkeypatch.setenv("FASTPOOL_TILE_BYTES", str(size))
        _plan.clear_cache()

    yield set_to
    monkeypatch.undo()
    _plan.clear_cache()


# ---- values


def assert_like_the_twin(call, **options):
    x, arguments = call
    given = {name: value for name, value in arguments.items() if name not in ("weight", "bias")}
    weight, bias = arguments["weight"], arguments["bias"]
    exact = testing.conv(x, weight, bias, **given)
    terms = math.prod(weight.shape[1:])
    magnitude = testing.conv(*wide_and_positive(x, weight, bias), **given)
    for algorithm in ALGORITHMS:
        assert_in_bound(fp.conv(x, **arguments, algorithm=algorithm, **options), exact, magnitude, terms)


@settings(max_examples=150)
@given(conv_calls(dtypes=NUMERIC_DTYPES))
def test_generated_calls(call):
    assert_like_the_twin(call)


@pytest.mark.parametrize("padding", ["same", "same_lower", "valid"])
@pytest.mark.parametrize(("length", "kernel", "stride", "dilation"), [(7, 4, 1, 1), (8, 3, 2, 2), (5, 2, 3, 3)])
def test_named_padding(padding, length, kernel, stride, dilation, rng):
    x, weight = fill("random", "float64", (2, 3, length), rng), fill("random", "float64", (4, 3, kernel), rng)
    found = fp.conv(x, weight, stride=stride, padding=padding, dilation=dilation)
    exact = testing.conv(x, weight, stride=stride, padding=padding, dilation=dilation)
    np.testing.assert_allclose(found, exact, rtol=1e-13, atol=1e-13)
    if padding != "valid":
        assert found.shape[-1] == -(-length // stride)


def by_sliding_windows(x, weight, bias, stride=1, padding=0, dilation=1, groups=1, padding_mode="zeros"):
    """The convolution by NumPy, in float64, of arrays too large for the slow twin."""
    count = weight.ndim - 2
    x, weight = x.astype(np.float64), weight.astype(np.float64)
    axes = tuple(range(2, 2 + count))
    strides, dilations = np.broadcast_to(stride, count), np.broadcast_to(dilation, count)
    extents = [d * (k - 1) + 1 for k, d in zip(weight.shape[2:], dilations, strict=True)]
    if padding == "same":
        padding = tuple(((e - 1) // 2, e // 2) for e in extents)
    pairs = [
        p if isinstance(p, tuple) else (p, p) for p in ((padding,) * count if isinstance(padding, int) else padding)
    ]
    for axis, (before, after) in zip(axes, pairs, strict=True):
        length = x.shape[axis]
        x = np.take(x, range(max(-before, 0), length - max(-after, 0)), axis)
    mode = {"zeros": "constant", "circular": "wrap"}[padding_mode]
    x = np.pad(x, [(0, 0), (0, 0), *((max(b, 0), max(a, 0)) for b, a in pairs)], mode)
    windows = np.lib.stride_tricks.sliding_window_view(x, extents, axes)
    keep = tuple(slice(None, None, int(s)) for s in strides)
    inner = tuple(slice(None, None, int(d)) for d in dilations)
    windows = windows[(slice(None), slice(None), *keep, *inner)]
    parts = []
    for part, filters in zip(np.split(windows, groups, 1), np.split(weight, groups), strict=True):
        over = [1, *range(2 + count, 2 + 2 * count)]
        parts.append(np.moveaxis(np.tensordot(part, filters, (over, list(range(1, 2 + count)))), -1, 1))
    return np.concatenate(parts, 1) + bias.astype(np.float64).reshape(-1, *(1,) * count)


@pytest.mark.parametrize("dtype", [*FLOAT_DTYPES, "int8"])
@pytest.mark.parametrize("name", CASES)
def test_cases_against_numpy(name, dtype):
    x, weight, bias = arrays_of(name, dtype)
    arguments = CASES[name][2]
    exact = by_sliding_windows(x, weight, bias, **arguments)
    magnitude = by_sliding_windows(abs(x.astype("f8")), abs(weight.astype("f8")), abs(bias.astype("f8")), **arguments)
    found = fp.conv(x, weight, bias, **arguments)
    if dtype == "int8":
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, exact)
    else:
        # NumPy's float64 has a rounding of its own
        scale = 2 if dtype == "float64" else 1
        assert_in_bound(found, exact.astype(found.dtype), magnitude * scale, math.prod(weight.shape[1:]))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_nan_spoils_its_windows_and_no_other(algorithm):
    x = np.ones((1, 1, 1000), np.float32)
    x[0, 0, 500] = np.nan
    y = fp.conv(x, np.ones((1, 1, 200), np.float32), algorithm=algorithm)
    assert np.flatnonzero(np.isnan(y[0, 0])).tolist() == list(range(301, 501))
    assert (y[0, 0, :301] == 200).all()
    volume = np.ones((1, 2, 9, 10, 11), np.float32)
    volume[0, 1, 4, 5, 6] = np.inf
    y = fp.conv(volume, np.ones((3, 2, 3, 3, 3), np.float32), padding=1, algorithm=algorithm)
    assert np.isinf(y[:, :, 3:6, 4:7, 5:8]).all()
    assert np.isinf(y).sum() == 3 * 27
    assert not np.isnan(y).any()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_around(dtype, rng):
    x, weight = fill("extremes", dtype, (2, 40, 9), rng), fill("extremes", dtype, (3, 40, 5), rng)
    bias = fill("extremes", dtype, (3,), rng)
    found = fp.conv(x, weight, bias)
    assert_same_bits(found, testing.conv(x, weight, bias))
    assert found.dtype == {"int8": "int32", "uint8": "uint32"}.get(dtype, "int64" if dtype[0] == "i" else "uint64")


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_halves_are_added_up_in_float32(dtype):
    """A sum that would stand still in the dtype itself, and products that would overflow it."""
    x = np.ones((1, 5000), dtype)
    assert float(fp.conv(x, np.ones((1, 1, 5000), dtype)).item()) == np.array(5000, dtype)
    if np.dtype(dtype) == np.float16:
        large = np.array([[300, 300]], dtype)
        assert fp.conv(large, np.array([[[300, -300]]], dtype)).item() == 0


def test_order_of_the_sum():
    """The bias, then channel by channel, tap by tap: one chain."""
    x = np.array([[1.0, 1.0], [1.0, 1.0]], np.float32)
    weight = np.array([[[2**24, 1], [1, -(2**24)]]], np.float32)
    assert fp.conv(x, weight).item() == 0
    assert fp.conv(x, weight, np.array([1.0], np.float32)).item() == 0
    assert fp.conv(x, weight[:, ::-1, ::-1].copy()).item() == 2
    assert fp.conv(x[:1], np.array([[[1.0, 2**24]]], np.float32), np.array([-(2**24)], np.float32)).item() == 1


def test_mlp_of_one_pixel(rng):
    """A kernel of one tap is a product of matrices."""
    x, weight = rng.standard_normal((5, 30, 4)), rng.standard_normal((7, 30, 1))
    np.testing.assert_allclose(fp.conv(x, weight), np.einsum("nct,fc->nft", x, weight[..., 0]), rtol=1e-12, atol=1e-13)


def test_circular_padding_is_on_its_axis(rng):
    x, weight = rng.standard_normal((1, 1, 20, 10)), rng.standard_normal((1, 1, 3, 3))
    found = fp.conv(x, weight, padding=(0, 1), padding_mode="circular")
    assert found.shape == (1, 1, 18, 10)
    assert_same_bits(found, fp.conv(np.pad(x, [(0, 0), (0, 0), (0, 0), (1, 1)], mode="wrap"), weight))


# ---- the same bits


@pytest.mark.parametrize("name", CASES)
def test_same_bits(name, tile_bytes):
    for dtype in ("float32", "float64", "float16", "int16"):
        expected = results(name, dtype, num_threads=1)
        for size in (None, 4096, 65536):
            tile_bytes(size)
            for threads, algorithm in ((1, "direct"), (2, "gemm"), (3, "auto")):
                found = results(name, dtype, num_threads=threads, algorithm=algorithm)
                for one, other in zip(found, expected, strict=True):
                    assert_same_bits(one, other)
        tile_bytes(None)


@pytest.mark.parametrize("name", CASES)
def test_a_sample_does_not_depend_on_its_batch(name):
    for dtype in ("float32", "int8"):
        x, weight, bias = arrays_of(name, dtype)
        arguments = CASES[name][2]
        x = np.concatenate([x, fill("random", dtype, (2, *x.shape[1:]), np.random.default_rng(0))])
        together = fp.conv(x, weight, bias, **arguments)
        grads = fill("random", dtype, together.shape, np.random.default_rng(1))
        back = fp.conv_backward(grads, x, weight, **arguments, needs=("x",)).x
        for i, (sample, y) in enumerate(zip(x, together, strict=True)):
            assert_same_bits(fp.conv(sample, weight, bias, **arguments), y)
            assert_same_bits(fp.conv(sample[None], weight, bias, **arguments)[0], y)
            assert_same_bits(fp.conv_backward(grads[i], sample, weight, **arguments, needs=("x",)).x, back[i])


@pytest.mark.parametrize("name", ["image", "one axis, strided", "four axes", "circular"])
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_layouts(name, dtype):
    expected = results(name, dtype, num_threads=1)
    kinds = [kind for kind, _ in layouts(np.zeros((2, 2), dtype)) if kind not in ("broadcast", "constant")]
    for kind in kinds:
        found = results(name, dtype, lambda array, kind=kind: dict(layouts(array))[kind])
        for one, other in zip(found, expected, strict=True):
            assert_same_bits(one, other)


def test_broadcast_input():
    x = np.broadcast_to(np.float32(3), (2, 4, 9, 9))
    weight = np.broadcast_to(np.float32(0.5), (3, 4, 3, 3))
    assert_same_bits(fp.conv(x, weight), fp.conv(np.array(x), np.array(weight)))


def digests():
    """Sums of the results of all cases, and their magnitudes, for another process to compare."""
    found = {}
    for name in CASES:
        for dtype in ("float32", "float64", "float16", "uint16"):
            arrays = results(name, dtype)
            found[f"{name} {dtype}"] = [
                array.astype(np.float64).ravel()[:: max(1, array.size // 50)].tolist() for array in arrays
            ]
    return found


def test_instruction_sets_agree_in_the_bound():
    from fastpool import _dispatch

    found = {}
    for level in _dispatch.runnable_levels():
        run = subprocess.run(
            [sys.executable, __file__],
            env={**os.environ, "FASTPOOL_ISA": level},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        found[level] = json.loads(run.stdout)
    for level, one in found.items():
        for name, arrays in one.items():
            for values, baseline in zip(arrays, found["baseline"][name], strict=True):
                case, _, dtype = name.rpartition(" ")
                if dtype == "uint16":
                    assert values == baseline, (level, name)
                    continue
                # terms of standard normal numbers: the magnitude of a sum is about their number, or of some rows of it
                terms = max(math.prod(CASES[case][1]), math.prod(CASES[case][0]))
                eps = {"float32": 2.0**-23, "float64": 2.0**-52, "float16": 2.0**-10}[dtype]
                np.testing.assert_allclose(values, baseline, rtol=4 * eps, atol=eps * terms**0.5 * 4)


# ---- out


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint64"])
@pytest.mark.parametrize("name", ["image", "one axis, strided", "depthwise", "volume"])
def test_out(name, dtype):
    x, weight, bias = arrays_of(name, dtype)
    arguments = CASES[name][2]
    expected = fp.conv(x, weight, bias, **arguments)
    size, fence = expected.nbytes, 4096
    buffer = np.full(size + 2 * fence, 0xA5, np.uint8)
    out = buffer[fence : fence + size].view(expected.dtype).reshape(expected.shape)
    out[...] = dirty(expected)
    assert fp.conv(x, weight, bias, **arguments, out=out) is out
    assert_same_bits(out, expected)
    assert (buffer[:fence] == 0xA5).all()
    assert (buffer[fence + size :] == 0xA5).all()


def test_bad_out():
    x, weight = np.zeros((1, 2, 9), np.float32), np.zeros((3, 2, 2), np.float32)
    wide = np.zeros((1, 3, 16), np.float32)
    frozen = np.zeros((1, 3, 8), np.float32)
    frozen.flags.writeable = False
    shared = np.zeros(100, np.float32)
    for out, error, words in (
        (np.zeros((1, 3, 7), np.float32), fp.GeometryError, r"\(1, 3, 7\).*\(1, 3, 8\)"),
        (np.zeros((1, 3, 8), np.float64), fp.DtypeError, "float64.*float32"),
        (wide[..., ::2], fp.ContiguityError, "C-contiguous"),
        (frozen, fp.ContiguityError, "read-only"),
        ([0], fp.DtypeError, "list"),
    ):
        with pytest.raises(error, match=words):
            fp.conv(x, weight, out=out)
    with pytest.raises(fp.ContiguityError, match="overlaps"):
        fp.conv(shared[:18].reshape(1, 2, 9), weight, out=shared[10:34].reshape(1, 3, 8))
    with pytest.raises(fp.ContiguityError, match="overlaps"):
        fp.conv(x, shared[:12].reshape(3, 2, 2), out=shared[10:34].reshape(1, 3, 8))


# ---- empty


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_nothing_to_do(dtype):
    weight = np.ones((4, 2, 3, 3), dtype)
    assert fp.conv(np.ones((0, 2, 5, 5), dtype), weight).shape == (0, 4, 3, 3)
    assert fp.conv(np.ones((2, 2, 5, 5), dtype), weight[:0]).shape == (2, 0, 3, 3)
    bias = np.arange(4).astype(dtype)
    y = fp.conv(np.ones((2, 0, 5, 5), dtype), weight[:, :0], bias)
    assert (y == bias.reshape(4, 1, 1).astype(y.dtype)).all()
    assert y.shape == (2, 4, 3, 3)
    assert not fp.conv(np.ones((2, 0, 5, 5), dtype), weight[:, :0]).any()
    only_padding = fp.conv(np.ones((1, 2, 2, 1), dtype), weight, bias, padding=((7, -1), (3, 3)), stride=(9, 6))
    assert (only_padding == bias.reshape(4, 1, 1).astype(y.dtype)).all()


# ---- bad arguments


@pytest.mark.parametrize(
    ("x", "weight", "arguments", "error", "words"),
    [
        ((1, 2, 5, 5), (4, 2, 3, 3), {"groups": 2}, fp.GeometryError, r"\(4, 2, 3, 3\).*\(4, 1, 3, 3\)"),
        ((1, 4, 5), (3, 2, 3), {"groups": 2}, fp.GeometryError, "groups=2.*3 filters"),
        ((1, 3, 5), (4, 1, 3), {"groups": 2}, fp.GeometryError, "groups=2.*3 input channels"),
        ((1, 3, 5), (3, 1, 3), {"groups": 0}, fp.GeometryError, "groups is 0"),
        ((1, 3, 5), (3, 1, 3), {"groups": 1.5}, fp.GeometryError, "groups"),
        ((1, 3, 5), (4, 2, 3), {}, fp.GeometryError, r"\(4, 2, 3\).*\(4, 3, 3\)"),
        ((1, 3, 5), (4, 3), {}, fp.GeometryError, "weight has 2 dimensions"),
        ((5,), (4, 3, 3), {}, fp.GeometryError, "x has 1 dimensions"),
        ((1, 1, 3, 5), (4, 3, 3), {}, fp.GeometryError, "x has 4 dimensions"),
        ((1, 3, 5), (4, 3, 0), {}, fp.GeometryError, "at least one tap"),
        ((1, 3, 0), (4, 3, 1), {}, fp.GeometryError, "length 0"),
        ((1, 3, 5), (4, 3, 6), {}, fp.GeometryError, "6"),
        ((1, 3, 5), (4, 3, 2), {"stride": 0}, fp.GeometryError, "stride"),
        ((1, 3, 5), (4, 3, 2), {"stride": None}, fp.GeometryError, "stride"),
        ((1, 3, 5), (4, 3, 2), {"stride": (1, 1)}, fp.GeometryError, "stride"),
        ((1, 3, 5), (4, 3, 2), {"dilation": -1}, fp.GeometryError, "dilation"),
        ((1, 3, 5), (4, 3, 2), {"dilation": 1250999896764}, fp.GeometryError, "dilation|1250999896764"),
        ((1, 3, 5), (4, 3, 2), {"padding": -3}, fp.GeometryError, "padding"),
        ((1, 3, 5), (4, 3, 2), {"padding": "full"}, fp.GeometryError, "padding='full'"),
        ((1, 3, 5), (4, 3, 2), {"padding_mode": "wrap"}, fp.GeometryError, "padding_mode='wrap'.*circular"),
        ((1, 3, 5), (4, 3, 2), {"padding_mode": ["zeros"]}, fp.GeometryError, "padding_mode"),
        ((1, 3, 5), (4, 3, 2), {"bias": np.zeros(3)}, fp.GeometryError, r"bias has shape \(3,\).*\(4,\)"),
        ((1, 3, 5), (4, 3, 2), {"bias": np.zeros((4, 1))}, fp.GeometryError, "bias has shape"),
        ((1, 3, 5), (4, 3, 2), {"bias": np.zeros(4, "f4")}, fp.DtypeError, r"bias.*float32.*bias.astype\(np.float64\)"),
        ((1, 3, 5), (4, 3, 2), {"algorithm": "winograd"}, ValueError, "algorithm"),
        ((1, 3, 5), (4, 3, 2), {"unknown": 1}, TypeError, "unknown"),
    ],
)  # fmt: skip
def test_bad_arguments(x, weight, arguments, error, words):
    with pytest.raises(error, match=words):
        fp.conv(np.zeros(x), np.zeros(weight), **arguments)


def test_bad_dtypes():
    x = np.zeros((1, 1, 5), np.float32)
    with pytest.raises(
        fp.DtypeError, match=r"x has dtype float32, weight has dtype float64.*weight.astype\(np.float32\)"
    ):
        fp.conv(x, np.zeros((1, 1, 2)))
    with pytest.raises(fp.DtypeError, match=r"bool.*uint8"):
        fp.conv(x > 0, np.zeros((1, 1, 2), bool))
    with pytest.raises(fp.DtypeError, match="complex"):
        fp.conv(x.astype(complex), np.zeros((1, 1, 2), complex))
    with pytest.raises(fp.NonFiniteError, match="weight"):
        fp.conv(x, np.full((1, 1, 2), np.nan, np.float32), check_finite="raise")


def test_a_tile_too_large_for_the_direct_way():
    """Only `algorithm="direct"` would need a copy of the input between the taps."""
    x, weight = np.ones((1, 1, 9), np.float32), np.ones((1, 1, 2), np.float32)
    far = {"padding": 2**32, "dilation": 2**33}
    exact = testing.conv(x, weight, **far)
    assert_same_bits(fp.conv(x, weight, **far), exact)
    with pytest.raises(fp.GeometryError, match="direct"):
        fp.conv(x, weight, **far, algorithm="direct")


def test_debug_mode(capsys):
    x, weight = np.ones((2, 3, 20, 20), np.float32), np.ones((5, 3, 3, 3), np.float32)
    for algorithm in ("direct", "gemm"):
        fp.conv(x, weight, debug_mode=True, algorithm=algorithm)
        run = fp.last_report().runs[0]
        assert run.algorithm == algorithm
        assert run.passes == (1, 3, 3)
        assert f", {algorithm}" in capsys.readouterr().err


@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 40), st.integers(1, 130))
@settings(max_examples=40)
def test_every_number_of_filters_and_outputs(inputs, taps, outputs, filters):
    """Register blocks that are not full, at the end of filters and of runs."""
    rng = np.random.default_rng(outputs)
    for dtype in ("float32", "int64"):
        x = rng.integers(-9, 9, (1, inputs, outputs + taps - 1)).astype(dtype)
        weight = rng.integers(-9, 9, (filters, inputs, taps)).astype(dtype)
        windows = np.lib.stride_tricks.sliding_window_view(x, taps, -1)
        for algorithm in ("direct", "gemm"):
            found = fp.conv(x, weight, algorithm=algorithm)
            np.testing.assert_array_equal(found, np.einsum("nctk,fck->nft", windows, weight))


@given(st.sampled_from((3, 5, 7, 9)), st.integers(1, 3), st.integers(17, 80), st.integers(4, 9), st.integers(1, 3))
@settings(max_examples=60)
def test_one_filter_on_wide_rows(tall, wide, columns, rows, inputs):
    """Rows of outputs that share what they load: the same sums in the same order, forwards and backwards."""
    rng = np.random.default_rng(columns)
    kernel, padding = (2, tall, wide), (0, tall // 2, 0)
    for dtype in ("float32", "float64", "int32"):
        x = rng.integers(-99, 99, (2, 2 * inputs, 3, rows, columns)).astype(dtype)
        weight = (rng.integers(-99, 99, (2, inputs, *kernel)) / (3 if dtype != "int32" else 1)).astype(dtype)
        found = fp.conv(x, weight, padding=padding, groups=2, algorithm="direct")
        assert_same_bits(found, fp.conv(x, weight, padding=padding, groups=2, algorithm="gemm"))
        turned = np.ascontiguousarray(weight[:, :1])
        found = fp.conv_transpose(x[:, :2], turned, padding=padding, groups=2, algorithm="direct")
        assert_same_bits(found, fp.conv_transpose(x[:, :2], turned, padding=padding, groups=2, algorithm="gemm"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_larger_than_the_caches(dtype):
    """They are written past the caches, in whole lines, whatever their rows begin with."""
    x = np.random.default_rng(0).standard_normal((2, 1, 901, 1103)).astype(dtype)
    weight = np.random.default_rng(1).standard_normal((3, 1, 2, 3)).astype(dtype)
    exact = fp.conv(x, weight, algorithm="gemm")
    assert exact.nbytes > 16 << 20
    for threads in (1, 3):
        assert_same_bits(fp.conv(x, weight, algorithm="direct", num_threads=threads), exact)


if __name__ == "__main__":
    print(json.dumps(digests()))
