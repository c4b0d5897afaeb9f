"""The same bits for any number of threads, any tile, any instruction set and any memory layout."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from arrays import DTYPES, assert_same_bits, canonical_nan, fill, layouts

import fastpool as fp

# Shape, and the arguments of the windows: below and above the sizes from which on calls use threads.
CASES = {
    "small": ((3, 5, 9), {"kernel_size": (2, 3)}),
    "rows": ((40, 1000), {"kernel_size": (3,), "stride": 2, "padding": 1}),
    "one row": ((60_001,), {"kernel_size": (5,), "stride": 3, "padding": 2}),
    "long windows": ((30, 2000), {"kernel_size": (300,), "stride": 7, "padding": 150}),
    "wide dilation": ((20, 3000), {"kernel_size": (9,), "stride": 4, "dilation": 31}),
    "image": ((2, 3, 100, 90), {"kernel_size": (3, 3), "stride": 2, "padding": 1}),
    "large windows": ((2, 70, 80), {"kernel_size": (13, 11), "stride": 1, "padding": (6, 5)}),
    "strided": (
        (2, 101, 130),
        {"kernel_size": (4, 3), "stride": (4, 5), "dilation": (2, 3), "ceil_mode": True},
    ),
    "volume": (
        (1, 33, 34, 35),
        {"kernel_size": (3, 2, 3), "stride": (2, 1, 1), "padding": ((0, 1), (1, 0), (1, 1))},
    ),
    "one volume": ((48, 40, 36), {"kernel_size": (2, 2, 2)}),
    "four axes": ((9, 10, 11, 40), {"kernel_size": (2, 3, 2, 3), "stride": (1, 2, 2, 3), "padding": 1}),
    "channels last": (
        (2, 40, 50, 13),
        {"kernel_size": (3, 3), "stride": (2, 1), "padding": 1, "axes": (1, 2)},
    ),
    "outer axes": ((30, 20, 70), {"kernel_size": (3, 4), "stride": (1, 2), "padding": 1, "axes": (0, 1)}),
    "outermost axis": ((500, 90), {"kernel_size": (64,), "stride": 3, "padding": 9, "axes": 0}),
    "cropped": ((4, 90, 120), {"kernel_size": (3, 3), "stride": 2, "padding": ((-3, 2), (1, -7))}),
}
# Averages, sums and norms beyond these: strides that the way back weaves or not, with a common divisor of dilation and
# stride or without one; windows so long that they are scanned, or that float32 is summed in float64.
SUMMED = {
    **CASES,
    "far apart": ((35, 2000), {"kernel_size": (50,), "stride": 40, "padding": 20}),
    "far apart and dilated": ((35, 2000), {"kernel_size": (9,), "stride": 36, "dilation": 8, "padding": (30,)}),
    "woven and dilated": (
        (5, 70, 200),
        {"kernel_size": (4, 5), "stride": (4, 6), "dilation": (6, 4), "padding": ((2, 9), (7, 3)), "ceil_mode": True},
    ),
    "scanned": ((17, 4000), {"kernel_size": (64,), "padding": 5}),
    "scanned, above an axis": ((5, 500, 30), {"kernel_size": (100, 2), "stride": (60, 1)}),
    "more than 1024 taps": ((8, 9000), {"kernel_size": (1500,), "stride": 35, "padding": 30}),
    "more than 1024 taps of an image": ((250, 270), {"kernel_size": (40, 40), "stride": (1, 33), "padding": (20, 0)}),
}
SOME_DTYPES = ("uint8", "float16", "float32", "int64")


def results(x, arguments, seed, **options):
    """Everything that issues from pooling an array: forwards, backwards and unpooling."""
    pooled = fp.max_pool(x, **arguments, return_indices=True, **options)
    found = [*pooled, *fp.min_pool(x, **arguments, return_indices=True, **options)]
    found += [fp.max_pool(x, **arguments, **options), fp.min_pool(x, **arguments, **options)]
    found += fp.global_max_pool(x, axes=tuple(range(x.ndim)), return_indices=True, **options)
    dtype = x.dtype if x.dtype != bool else np.dtype(np.float32)
    grad = fill("random", dtype, pooled.indices.shape, np.random.default_rng(seed))
    found.append(fp.max_pool_backward(grad, pooled.indices, x.shape, **options))
    found += fp.max_pool_backward(grad, pooled.indices, x.shape, sparse=True, **options)
    found.append(fp.max_unpool(pooled.values, pooled.indices, x.shape, **options))
    found.append(fp.max_unpool_backward(x, pooled.indices, **options))
    return found


def gradient(dtype, shape):
    """A gradient of some dtype for results of a shape."""
    return fill("random", dtype, shape, np.random.default_rng(7))


def asked(x):
    """A dtype that a mean of x does not have by itself."""
    return np.dtype("int16" if x.dtype.kind in "biu" else "float64" if x.dtype.itemsize == 2 else "float16")


def sums(arguments, x, **options):
    """Everything that issues from adding up windows of an array: forwards and backwards."""
    summed = fp.sum_pool(x, **arguments, **options)
    grad = gradient(asked(x) if x.dtype.kind == "b" else x.dtype, summed.shape)
    found = [summed, fp.sum_pool_backward(grad, x.shape, **arguments, **options)]
    for more in ({}, {"count_include_pad": False}, {"divisor_override": 5}):
        found.append(fp.avg_pool(x, **arguments, **more, **options))
        found.append(fp.avg_pool_backward(grad, x.shape, **arguments, **more, **options))
    found.append(fp.avg_pool(x, **arguments, dtype=asked(x), **options))
    for p, signed in ((2, False), (1, True), (np.inf, False)):
        norms = fp.lp_pool(x, p, **arguments, signed=signed, **options)
        found += [norms, fp.lp_pool_backward(grad, x, norms, p, **arguments, signed=signed, **options)]
    return found


def adaptive(output_size, axes=None):
    def results(x, **options):
        found = [*fp.adaptive_max_pool(x, output_size, axes=axes, return_indices=True, **options)]
        found.append(fp.adaptive_max_pool(x, output_size, axes=axes, **options))
        found.append(fp.adaptive_avg_pool(x, output_size, axes=axes, **options))
        found.append(fp.adaptive_avg_pool(x, output_size, axes=axes, dtype=asked(x), **options))
        grad = gradient(asked(x) if x.dtype.kind == "b" else x.dtype, found[0].shape)
        return [*found, fp.adaptive_avg_pool_backward(grad, x.shape, **options)]

    return results


def whole(axes=None):
    def results(x, **options):
        found = [fp.global_avg_pool(x, axes=axes, keepdims=False, **options)]
        found.append(fp.global_avg_pool(x, axes=axes, dtype=asked(x), **options))
        grad = gradient(asked(x) if x.dtype.kind == "b" else x.dtype, found[0].shape)
        return [*found, fp.global_avg_pool_backward(grad, x.shape, axes=axes, **options)]

    return results


def given(windows, axes=None):
    def results(x, **options):
        found = []
        for op in ("max", "min"):
            found += fp.window_pool(x, windows, op, axes=axes, return_indices=True, **options)
            found.append(fp.window_pool(x, windows, op, axes=axes, **options))
        for op in ("avg", "sum"):
            found.append(fp.window_pool(x, windows, op, axes=axes, **options))
            grad = gradient(asked(x) if x.dtype.kind == "b" else x.dtype, found[0].shape)
            found.append(fp.window_pool_backward(grad, x.shape, windows, op, axes=axes, **options))
        return found

    return results


def fractional(kernel_size, output_size, planes, axes=None):
    def results(x, **options):
        rng = np.random.default_rng(3)
        arguments = {"kernel_size": kernel_size, "output_size": output_size, "axes": axes, **options}
        found = []
        for shape in ((len(kernel_size),), (*planes, len(kernel_size))):
            samples = rng.random(shape)
            found += fp.fractional_max_pool(x, **arguments, random_samples=samples, return_indices=True)
            found.append(fp.fractional_max_pool(x, **arguments, random_samples=samples))
        return [*found, fp.fractional_max_pool(x, **arguments, rng=5)]

    return results


def drawn(**arguments):
    def results(x, **options):
        weights = x if x.dtype.kind in "bu" else np.where(x > 0, x, np.array(0, x.dtype))
        weights = np.where(np.isfinite(weights), weights, np.array(1, x.dtype))
        return fp.stochastic_pool(weights, **arguments, rng=9, return_indices=True, **options)

    return results


def some_windows(length, count, longest):
    """Windows of many sizes, nested and repeated ones among them, in no order."""
    rng = np.random.default_rng(length)
    starts = rng.integers(0, length - 1, count)
    stops = np.minimum(starts + rng.integers(1, longest, count), length)
    return np.append(starts, (starts[0], 0)), np.append(stops, (stops[0], min(longest, length)))


# Shape, and what is computed of an array of it.
WINDOWED = {
    "bins": ((3, 37, 53), adaptive((7, 7))),
    "more bins than elements": ((2, 9, 11), adaptive((13, 30))),
    "bins of rows": ((200, 1001), adaptive((17,))),
    "bins of channels last": ((3, 67, 59, 13), adaptive((5, 7), axes=(1, 2))),
    "bins of the outer axis": ((300, 70), adaptive(7, axes=0)),
    "long bins": ((2, 9, 3001), adaptive((4, 7))),
    "bins of more than 1024": ((40, 11_000), adaptive((3,))),
    "whole planes": ((2, 3, 100, 90), whole()),
    "whole volume": ((90, 80, 100), whole((0, 1, 2))),
    "whole outer axis": ((1000, 70), whole(0)),
    "two axes apart": ((30, 40, 60), whole((0, 2))),
    "windows": ((24, 50, 60), given([some_windows(50, 9, 20), some_windows(60, 11, 40)])),
    "windows of rows": ((15, 5000), given([some_windows(5000, 30, 3000)])),
    "windows of channels last": ((3, 60, 13), given([some_windows(60, 20, 9)], axes=1)),
    "windows of more than 1024": ((2, 70, 80), given([some_windows(70, 3, 60), some_windows(80, 4, 79)])),
    "fractions": ((3, 4, 40, 50), fractional((2, 3), (23, 17), (3, 4))),
    "fractions of a row": ((30, 3000), fractional((5,), (700,), (30,))),
    "fractions of channels last": ((2, 90, 80, 5), fractional((3, 2), (17, 23), (2, 5), axes=(1, 2))),
    "draws": ((3, 60, 70), drawn(kernel_size=(3, 2), stride=(2, 1), padding=1)),
}
SUMMED_ARRAYS = (
    ("uint8", "random"),
    ("int64", "extremes"),
    ("float16", "random"),
    ("float32", "some_nan"),
    ("float64", "random"),
)


def arrays_of(name, dtypes, kinds=("ties", "some_nan")):
    shape, arguments = CASES[name]
    for seed, (dtype, kind) in enumerate(itertools.product(dtypes, kinds)):
        yield seed, fill(kind, dtype, shape, np.random.default_rng(seed)), arguments


def family_of(name, arrays=SUMMED_ARRAYS):
    """Arrays of one case of sums or windows, each with a function of an array and options."""
    shape, case = SUMMED[name] if name in SUMMED else WINDOWED[name]
    function = functools.partial(sums, case) if name in SUMMED else case
    for seed, (dtype, kind) in enumerate(arrays):
        yield fill(kind, dtype, shape, np.random.default_rng(seed)), function


every_of_the_family = pytest.mark.parametrize("name", [*SUMMED, *WINDOWED])


def assert_agree(found, expected):
    """The same bits, but for NaN that were computed, whose payload is open."""
    for one, other in zip(found, expected, strict=True):
        assert_same_bits(canonical_nan(one), canonical_nan(other))


@pytest.fixture
def tile_bytes(monkeypatch):
    """A function that sets the size of tiles for the plans made from then on."""
    from fastpool import _plan

    def set_size(size):
        if size is None:
            monkeypatch.delenv("FASTPOOL_TILE_BYTES", raising=False)
        else:
            monkeypatch.setenv("FASTPOOL_TILE_BYTES", str(size))
        _plan.clear_cache()

    yield set_size
    monkeypatch.undo()
    _plan.clear_cache()


@pytest.mark.parametrize("name", CASES)
def test_threads_and_tiles(name, tile_bytes):
    expected = {}
    tile_bytes(None)
    for seed, x, arguments in arrays_of(name, SOME_DTYPES):
        expected[seed] = results(x, arguments, seed, num_threads=1)
    for size in (None, 4096, 5000, 65536, 2**22):
        tile_bytes(size)
        for seed, x, arguments in arrays_of(name, SOME_DTYPES):
            for threads in (1, 2, 3):
                for one, other in zip(results(x, arguments, seed, num_threads=threads), expected[seed], strict=True):
                    assert_same_bits(one, other)


@every_of_the_family
def test_threads_and_tiles_of_the_family(name, tile_bytes):
    tile_bytes(None)
    expected = [function(x, num_threads=1) for x, function in family_of(name)]
    for size, some_threads in ((None, (1, 2, 3)), (4096, (1, 3)), (30_000, (2,))):
        tile_bytes(size)
        for (x, function), wanted in zip(family_of(name), expected, strict=True):
            for threads in some_threads:
                assert_agree(function(x, num_threads=threads), wanted)


def guarded(shape, dtype):
    """An array between two fences, and a function that says whether the fences still stand."""
    size, fence = int(np.prod(shape)) * np.dtype(dtype).itemsize, 4096
    buffer = np.full(size + 2 * fence, 0xA5, np.uint8)
    return buffer[fence : fence + size].view(dtype).reshape(
        shape
    ), lambda: (buffer[:fence] == 0xA5).all() and (buffer[fence + size :] == 0xA5).all()


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_written_outside_of_out(name, tile_bytes):
    for size in (None, 5000):
        tile_bytes(size)
        for seed, x, arguments in arrays_of(name, SOME_DTYPES):
            shape = fp.output_shape(x.shape, **arguments)
            values, values_stand = guarded(shape, x.dtype)
            indices, indices_stand = guarded(shape, np.int64)
            indices[...] = -1
            fp.max_pool(x, **arguments, return_indices=True, out=(values, indices), num_threads=1 + seed % 3)
            assert values_stand()
            assert indices_stand()
            assert indices.min() >= 0
            fp.min_pool(x, **arguments, out=values, num_threads=1 + seed % 3)
            assert values_stand()
            gradient, gradient_stands = guarded(x.shape, x.dtype)
            fp.max_pool_backward(values, indices, x.shape, out=gradient, num_threads=1 + seed % 3)
            fp.max_unpool(values, indices, x.shape, out=gradient, num_threads=1 + seed % 3)
            assert gradient_stands()


@pytest.mark.parametrize("name", SUMMED)
def test_sums_write_nothing_outside_of_out(name, tile_bytes):
    shape, arguments = SUMMED[name]
    for size in (None, 5000):
        tile_bytes(size)
        for seed, (dtype, kind) in enumerate((("uint8", "random"), ("float16", "random"), ("float32", "random"))):
            x = fill(kind, dtype, shape, np.random.default_rng(seed))
            options = {**arguments, "num_threads": 1 + seed}
            means, means_stand = guarded(fp.output_shape(shape, **arguments), "f8" if dtype == "uint8" else dtype)
            spread, spread_stands = guarded(shape, means.dtype)
            sums_out, sums_stand = guarded(means.shape, "u8" if dtype == "uint8" else dtype)
            assert fp.avg_pool(x, **options, out=means) is means
            fp.avg_pool(x, **options, count_include_pad=False, out=means)
            fp.sum_pool(x, **options, out=sums_out)
            for p in (2, np.inf):
                fp.lp_pool(x, p, **options, out=means)
                fp.lp_pool_backward(means, x, means, p, **options, out=spread)
            for include in (True, False):
                fp.avg_pool_backward(means, shape, **options, count_include_pad=include, out=spread)
            fp.sum_pool_backward(means, shape, **options, out=spread)
            assert means_stand()
            assert sums_stand()
            assert spread_stands()
            bytes_out, bytes_stand = guarded(means.shape, np.int8 if dtype == "uint8" else dtype)
            fp.avg_pool(x, **options, dtype=bytes_out.dtype, out=bytes_out)
            assert bytes_stand()


@pytest.mark.parametrize(
    ("shape", "sizes", "windows"),
    [
        ((3, 37, 53), (7, 7), [some_windows(37, 9, 20), some_windows(53, 11, 40)]),
        ((2, 9, 11), (13, 30), [some_windows(9, 20, 9), some_windows(11, 40, 5)]),
        ((20, 3001), (7,), [some_windows(3001, 30, 2000)]),
        ((20, 3001), (1,), [((5,), (2900,))]),
    ],
)
def test_windows_write_nothing_outside_of_out(shape, sizes, windows, tile_bytes):
    leading = shape[: -len(sizes)]
    results_of = {
        (*leading, *sizes): ((fp.adaptive_max_pool, sizes), (fp.adaptive_avg_pool, sizes)),
        (*leading, *(len(starts) for starts, _ in windows)): (
            (fp.window_pool, windows, "max"),
            (fp.window_pool, windows, "avg"),
            (fp.window_pool, windows, "sum"),
        ),
    }
    for size in (None, 5000):
        tile_bytes(size)
        for threads, dtype in enumerate(("float16", "float32", "float64"), start=1):
            x = gradient(dtype, shape)
            for result_shape, makes in results_of.items():
                for function, *arguments in makes:
                    out, stands = guarded(result_shape, dtype)
                    assert function(x, *arguments, out=out, num_threads=threads) is out
                    assert stands()
            out, stands = guarded(shape, dtype)
            fp.adaptive_avg_pool_backward(gradient(dtype, (*leading, *sizes)), shape, out=out, num_threads=threads)
            assert stands()


@pytest.mark.parametrize("size", [4096, 65536])
def test_tiles_are_really_cut(size, tile_bytes):
    """If the variable did nothing, the tests above would be empty."""
    from fastpool import _plan

    tiles = set()
    for limit in (size, 2**22):
        tile_bytes(limit)
        plan = _plan.pool_plan(np.dtype("f4"), False, True, (2, 300, 300), False, (3, 3), 1, 1, 1, None)
        tiles.add(tuple(level.tile for level in plan.spec.levels))
    assert len(tiles) == 2


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_layouts(name, dtype):
    shape, arguments = CASES[name]
    x = fill("ties", dtype, shape, np.random.default_rng(0))
    for _, view in layouts(x):
        copy = np.array(view, dtype, order="C")
        for one, other in zip(results(view, arguments, 0), results(copy, arguments, 0, num_threads=1), strict=True):
            assert_same_bits(one, other)


@pytest.mark.parametrize(
    "name",
    [
        "image",
        "outer axes",
        "cropped",
        "channels last",
        "woven and dilated",
        "bins",
        "bins of channels last",
        "whole planes",
        "two axes apart",
        "windows",
        "windows of channels last",
        "fractions of channels last",
        "draws",
    ],
)
def test_layouts_of_the_family(name):
    for x, function in family_of(name, (("uint8", "random"), ("float32", "some_nan"))):
        for _, view in layouts(x):
            copy = np.array(view, x.dtype, order="C")
            assert_agree(function(view), function(copy, num_threads=1))


def digests():
    """For every case a number for the bits of everything; NaN sums, whose payload is open, count as NaN."""
    found = {}

    def note(name, arrays):
        state = found.setdefault(name, hashlib.sha256())
        for array in arrays:
            state.update(canonical_nan(array).tobytes())

    for name in CASES:
        for seed, x, arguments in arrays_of(name, DTYPES, ("some_nan",)):
            note(name, results(x, arguments, seed))
    for name in (*SUMMED, *WINDOWED):
        for x, function in family_of(name, (*((dtype, "random") for dtype in DTYPES), ("float32", "some_nan"))):
            note(f"{name}, summed", function(x))
    shape, arguments = CASES["image"]
    for p in (0.5, 2.5, 3):
        x = fill("random", "float32", shape, np.random.default_rng(0))
        norms = fp.lp_pool(x, p, **arguments)
        note(f"p = {p}", (norms, fp.lp_pool_backward(norms, x, norms, p, **arguments)))
    return {name: state.hexdigest() for name, state in found.items()}


def digests_of(**environment):
    run = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_instruction_sets():
    from fastpool import _dispatch

    levels = _dispatch.runnable_levels()
    expected = digests_of(FASTPOOL_ISA=levels[0])
    assert expected.pop("isa") == levels[0]
    for level in levels[1:]:
        assert digests_of(FASTPOOL_ISA=level) == {**expected, "isa": level}


def test_other_defaults():
    """Settings of the environment that must not show in results; one has the C library fill memory with rubbish."""
    one = digests_of(OMP_NUM_THREADS="1", FASTPOOL_TILE_BYTES="6000", MALLOC_PERTURB_="165")
    assert one == digests_of(OMP_NUM_THREADS="3", OMP_SCHEDULE="static,1", OMP_DYNAMIC="true", MALLOC_PERTURB_="90")


if __name__ == "__main__":
    from fastpool import _dispatch

    print(json.dumps({"isa": _dispatch.ISA, **digests()}))
