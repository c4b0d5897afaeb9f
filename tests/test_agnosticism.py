"""The same bits for any number of threads, any tile, any instruction set and any memory layout."""

from __future__ import annotations

import hashlib
import itertools
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


def arrays_of(name, dtypes, kinds=("ties", "some_nan")):
    shape, arguments = CASES[name]
    for seed, (dtype, kind) in enumerate(itertools.product(dtypes, kinds)):
        yield seed, fill(kind, dtype, shape, np.random.default_rng(seed)), arguments


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


def digest():
    """A number for the bits of everything on all cases; NaN sums, whose payload is open, count as NaN."""
    state = hashlib.sha256()
    for name in CASES:
        for seed, x, arguments in arrays_of(name, DTYPES, ("some_nan",)):
            for result in results(x, arguments, seed):
                state.update(canonical_nan(result).tobytes())
    return state.hexdigest()


def digest_of(**environment):
    run = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_instruction_sets():
    from fastpool import _dispatch

    found = {}
    for level in _dispatch.runnable_levels():
        name, found[level] = digest_of(FASTPOOL_ISA=level)
        assert name == level
    assert len(set(found.values())) == 1, found


def test_other_defaults():
    """Settings of the environment that must not show in results; one has the C library fill memory with rubbish."""
    one = digest_of(OMP_NUM_THREADS="1", FASTPOOL_TILE_BYTES="6000", MALLOC_PERTURB_="165")
    assert one == digest_of(OMP_NUM_THREADS="3", OMP_SCHEDULE="static,1", OMP_DYNAMIC="true", MALLOC_PERTURB_="90")


if __name__ == "__main__":
    from fastpool import _dispatch

    print(_dispatch.ISA, digest())
