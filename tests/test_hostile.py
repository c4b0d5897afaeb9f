"""Many thousand sets of arguments, many of them absurd: a result equal to the slow twin's, or an error of ours.

The calls run in a process of their own, so that one that crashed would be seen, and not take the tests with it.
"""

from __future__ import annotations

import collections
import faulthandler
import json
import math
import random
import subprocess
import sys
import warnings

import numpy as np
from arrays import (
    DTYPES,
    KINDS,
    NUMERIC_DTYPES,
    assert_same_bits,
    assert_within_ulps,
    canonical_nan,
    fill,
    is_float,
    layouts,
    tame,
)
from calls import ARGUMENTS, CONVOLUTION

import fastpool as fp
from fastpool import testing
from fastpool._geometry import pooling_geometry

SEED = 271828
COUNT = 18_000
HUGE = (2**15, 2**31 - 1, 2**31, 2**32, 2**40, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, 10**30, 8608480567731124087)
ODD = (
    0,
    -1,
    -2,
    -(2**31),
    -(2**63),
    1.0,
    2.5,
    float("nan"),
    None,
    "2",
    "same",
    b"1",
    True,
    (),
    [],
    {},
    object(),
    np.nan,
    1j,
)
NOT_ARRAYS = (
    None,
    "x",
    {},
    object(),
    np.zeros(3, complex),
    np.array(["a"]),
    np.ma.zeros(3),
    np.zeros(2, "M8[s]"),
    [[1], [1, 2]],
)
LARGEST_RESULT = 50_000
LARGEST_FOR_TWIN = 3_000


def number(rng, small):
    """Mostly a number that makes sense, sometimes one that does not."""
    roll = rng.random()
    if roll < 0.98:
        value = rng.choice(small)
        return rng.choice((value, value, value, np.int64(value)))
    return rng.choice(HUGE) if roll < 0.985 else rng.choice(ODD)


def per_axis(rng, count, small, entry=number):
    roll = rng.random()
    if roll < 0.3:
        return entry(rng, small)
    if roll < 0.33:
        count = rng.choice((0, 1, 2, 3, 7))
    values = tuple(entry(rng, small) for _ in range(count))
    return rng.choice((values, values, values, list(values)))


def pad_entry(rng, small):
    return number(rng, small) if rng.random() < 0.5 else (number(rng, small), number(rng, small))


def an_array(rng, shape, dtypes=DTYPES, kinds=KINDS, change=lambda array: array):
    if rng.random() < 0.02:
        return rng.choice(NOT_ARRAYS)
    array = np.asarray(
        change(fill(rng.choice(kinds), rng.choice(dtypes), shape, np.random.default_rng(rng.getrandbits(32))))
    )
    return rng.choice([array, *(view for _, view in layouts(array))]) if rng.random() < 0.4 else array


def some_options(rng):
    roll = rng.random()
    if roll < 0.7:
        return {}
    name = rng.choice(("contiguity", "num_threads", "check_finite", "unknown"))
    good = {"contiguity": ("copy", "warn"), "num_threads": (None, 1, 2, -1), "check_finite": ("ignore", "warn")}
    return {name: rng.choice(good[name]) if roll < 0.95 and name in good else rng.choice((*ODD, *HUGE))}


def a_shape(rng, highest=4, longest=7):
    return tuple(
        rng.choice(range(longest + 1)) if rng.random() < 0.15 else rng.randint(min(2, longest), longest)
        for _ in range(rng.choice((0, 1, 1, 2, 2, 3, highest)))
    )


def some_axes(rng, ndim, count):
    """Mostly as many axes as there are, in any order."""
    if rng.random() < 0.15:
        return per_axis(rng, count, range(-4, 4))
    return tuple(rng.choice((axis, axis - ndim)) for axis in rng.sample(range(ndim), min(count, ndim)))


def window_arguments(rng, ndim):
    count = rng.randint(1, max(ndim, 1))
    arguments = {"kernel_size": tuple(number(rng, (1, 2, 2, 3)) for _ in range(count))}
    if rng.random() < 0.1:
        arguments["kernel_size"] = per_axis(rng, count, (1, 2, 3))
    if rng.random() < 0.6:
        arguments["stride"] = per_axis(rng, count, (1, 2, 3))
    if rng.random() < 0.6:
        arguments["padding"] = per_axis(rng, count, (0, 1, 1, 2, -1), pad_entry)
    elif rng.random() < 0.2:
        arguments["padding"] = rng.choice(("same", "valid", "same_lower", "full"))
    if rng.random() < 0.4:
        arguments["dilation"] = per_axis(rng, count, (1, 1, 2, 3))
    if rng.random() < 0.4:
        arguments["ceil_mode"] = rng.choice((True, False) if rng.random() < 0.9 else ODD)
    if rng.random() < 0.3:
        arguments["axes"] = some_axes(rng, ndim, count)
    if rng.random() < 0.03:  # wide enough to hold the input many times
        arguments |= dict.fromkeys(rng.sample(("kernel_size", "stride", "padding", "dilation"), 2), (rng.choice(HUGE),))
    return arguments


def pooling_call(rng):
    shape = a_shape(rng)
    arguments = window_arguments(rng, len(shape))
    if rng.random() < 0.5:
        arguments["return_indices"] = True
    return rng.choice(("max_pool", "min_pool")), (an_array(rng, shape),), arguments


def average_arguments(rng):
    arguments = {}
    if rng.random() < 0.4:
        arguments["count_include_pad"] = rng.choice((True, False, False) if rng.random() < 0.95 else ODD)
    if rng.random() < 0.3:
        arguments["divisor_override"] = number(rng, (1, 2, 5, 7))
    return arguments


def a_dtype(rng):
    return {"dtype": rng.choice((*DTYPES, "f2", "f4", "f8", None, "complex64", "x", 3.5))} if rng.random() < 0.2 else {}


def a_norm(rng):
    return rng.choice((1, 2, 2, 3, 2.5, 0.5, np.inf, np.float32(2))) if rng.random() < 0.95 else rng.choice((*ODD, -2))


def adding_call(rng):
    shape = a_shape(rng, longest=6)
    name = rng.choice(("avg_pool", "sum_pool", "lp_pool"))
    arguments = window_arguments(rng, len(shape))
    if name == "lp_pool":
        x = an_array(rng, shape, kinds=("random", "ties", "signed_zeros"))
        arguments |= {"norm_type": a_norm(rng), "signed": rng.choice((False, True) if rng.random() < 0.95 else ODD)}
        return name, (x,), arguments
    if name == "avg_pool":
        arguments |= average_arguments(rng)
    return name, (an_array(rng, shape, change=tame),), arguments | a_dtype(rng)


def geometry_of(shape, arguments):
    known = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "axes")
    return pooling_geometry(shape, **{key: arguments[key] for key in known if key in arguments}, padding_counts=True)


def windows_in(shape, arguments):
    """Results, or the windows along the axes where an empty axis leaves no result."""
    return math.prod(max(1, length) for length in geometry_of(shape, arguments).output_shape)


def shape_of_results(shape, arguments):
    """Shape of the results of windows, or one that is as good as any where they are impossible or too many."""
    try:
        found = geometry_of(shape, arguments).output_shape
    except Exception:  # the function itself has to say what is wrong  # noqa: BLE001
        return shape
    return found if math.prod(found) <= LARGEST_FOR_TWIN else shape


def nearly(rng, shape):
    """A shape, or sometimes one that differs."""
    if rng.random() < 0.95 or not shape:
        return shape
    axis = rng.randrange(len(shape))
    other = max(0, shape[axis] + rng.choice((-1, 1)))
    return rng.choice((shape[1:], (*shape, 1), (*shape[:axis], other, *shape[axis + 1 :])))


def adding_backward_call(rng):
    shape = a_shape(rng, longest=6)
    arguments = window_arguments(rng, len(shape))
    name = rng.choice(("avg_pool_backward", "sum_pool_backward", "lp_pool_backward"))
    if name == "avg_pool_backward":
        arguments |= average_arguments(rng)
    results = tuple(max(0, n) for n in nearly(rng, shape_of_results(shape, arguments)))
    if math.prod(results) > LARGEST_FOR_TWIN:
        results = shape
    grad = an_array(rng, results, (*NUMERIC_DTYPES, "bool") if rng.random() < 0.1 else NUMERIC_DTYPES, change=tame)
    if name != "lp_pool_backward":
        return name, (grad, shape if rng.random() < 0.9 else per_axis(rng, len(shape), range(1, 6))), arguments
    x = an_array(rng, shape, kinds=("random", "ties", "signed_zeros"))
    y = an_array(rng, nearly(rng, results) if rng.random() < 0.1 else results, kinds=("random", "ties"), change=np.abs)
    return name, (grad, x, y, a_norm(rng)), arguments


def adaptive_call(rng):
    shape = a_shape(rng)
    count = rng.randint(1, max(len(shape), 1))
    sizes = per_axis(rng, count, (1, 2, 3, 5, 8), lambda rng, small: None if rng.random() < 0.1 else number(rng, small))
    arguments = {"axes": some_axes(rng, len(shape), count)} if rng.random() < 0.3 else {}
    name = rng.choice(("adaptive_max_pool", "adaptive_avg_pool", "adaptive_avg_pool_backward"))
    if name == "adaptive_avg_pool_backward":
        results = nearly(rng, tuple(n if rng.random() < 0.5 else rng.randint(1, 8) for n in shape))
        return name, (an_array(rng, results, NUMERIC_DTYPES, change=tame), shape), arguments
    if name == "adaptive_max_pool":
        return name, (an_array(rng, shape), sizes), arguments | {"return_indices": rng.random() < 0.5}
    return name, (an_array(rng, shape, change=tame), sizes), arguments | a_dtype(rng)


def global_average_call(rng):
    shape = tuple(rng.randint(0 if rng.random() < 0.1 else 1, 5) for _ in range(rng.randint(0, 5)))
    arguments = {"axes": some_axes(rng, len(shape), rng.randint(1, 3))} if rng.random() < 0.7 else {}
    if rng.random() < 0.5:
        keep = {"keepdims": rng.choice((True, False))}
        return "global_avg_pool", (an_array(rng, shape, change=tame),), arguments | keep | a_dtype(rng)
    axes = arguments.get("axes", range(2, len(shape)))
    named = axes if isinstance(axes, (tuple, list, range)) else (axes,)
    reduced = {axis % max(len(shape), 1) for axis in named if isinstance(axis, (int, np.int64))}
    results = tuple(1 if axis in reduced else n for axis, n in enumerate(shape))
    if rng.random() < 0.3:
        results = tuple(n for axis, n in enumerate(shape) if axis not in reduced)
    grad = an_array(rng, nearly(rng, results), NUMERIC_DTYPES, change=tame)
    return "global_avg_pool_backward", (grad, shape), arguments


def by_chance_call(rng):
    shape = a_shape(rng, highest=3)
    count = rng.randint(1, max(len(shape), 1))
    odd = [value for value in ODD if value is not None]  # without a seed every call draws other numbers
    arguments = {"rng": rng.choice((1, 2, 3, 3, 3, *odd)) if rng.random() < 0.1 else rng.randint(0, 99)}
    arguments["return_indices"] = rng.random() < 0.5
    if rng.random() < 0.3:
        arguments["axes"] = some_axes(rng, len(shape), count)
    if rng.random() < 0.4:
        windows = window_arguments(rng, len(shape))
        arguments |= {key: windows[key] for key in ("kernel_size", "stride", "padding") if key in windows}
        x = an_array(rng, shape, kinds=("random", "ties", "ties", "lowest_but_one"), change=np.abs)
        return "stochastic_pool", (x,), arguments
    if rng.random() < 0.6:
        planes = shape[: max(0, len(shape) - count)] if rng.random() < 0.5 else ()
        samples = np.random.default_rng(rng.getrandbits(32)).random((*planes, count))
        if rng.random() < 0.1:
            samples = rng.choice((samples * 3, samples - 0.5, samples * np.nan, samples[..., :-1], [0.5] * count, "x"))
        arguments["random_samples"] = samples
    kernel = tuple(number(rng, (1, 2, 2, 3)) for _ in range(count))
    sizes = per_axis(rng, count, (1, 2, 2, 3, 4)) if rng.random() < 0.1 else tuple(rng.randint(1, 5) for _ in kernel)
    return "fractional_max_pool", (an_array(rng, shape), kernel, sizes), arguments


def some_windows(rng, length):
    count = rng.choice((1, 1, 2, 3, 5)) if rng.random() < 0.97 else 0
    pairs = [sorted(rng.choices(range(length + 1), k=2)) for _ in range(count)]
    starts, stops = [start for start, _ in pairs], [max(stop, start + (rng.random() < 0.9)) for start, stop in pairs]
    if rng.random() < 0.05 and stops:
        stops[-1] = rng.choice((-1, *HUGE[:8]))
    pair = (starts, stops)
    if rng.random() < 0.5:
        pair = tuple(
            np.array(ends, rng.choice(("i8", "i4", "u1", ">i2", "i8", "f8")))
            for ends in pair
            if all(0 <= end < 99 for end in ends)
        )
    return pair if rng.random() < 0.97 else rng.choice(((starts,), (starts, stops, stops), None, starts, "12"))


def window_call(rng):
    shape = a_shape(rng)
    count = rng.randint(1, max(len(shape), 1))
    windows = [some_windows(rng, length) for length in shape[len(shape) - count :]]
    arguments = {"axes": some_axes(rng, len(shape), count)} if rng.random() < 0.1 else {}
    op = (
        rng.choice(("max", "min", "avg", "sum", "avg", "sum")) if rng.random() < 0.97 else rng.choice(("mean", None, 2))
    )
    if rng.random() < 0.6:
        if rng.random() < 0.4:
            arguments["return_indices"] = rng.choice((True, False))
        return "window_pool", (an_array(rng, shape, change=tame), windows, op), arguments
    try:
        results = (*shape[: len(shape) - count], *(len(starts) for starts, _ in windows))
    except (TypeError, ValueError):
        results = shape
    return (
        "window_pool_backward",
        (an_array(rng, nearly(rng, results), NUMERIC_DTYPES, change=tame), shape, windows, op),
        arguments,
    )


def edges_call(rng):
    entry = rng.choice(
        (lambda: rng.randint(-9, 9), lambda: rng.choice((rng.random(), -1.5, 2.0)), lambda: rng.choice(HUGE[:8]))
    )
    coordinates = [entry() for _ in range(rng.randint(0, 8))]
    edges = [entry() for _ in range(rng.randint(0, 5))]
    if rng.random() < 0.8:
        coordinates, edges = sorted(coordinates), sorted(set(edges))
    if rng.random() < 0.05:
        coordinates = rng.choice(([coordinates], np.nan, [np.inf], "x", None, [1, None]))
    return "windows_from_edges", (coordinates, edges), {}


def global_call(rng):
    shape = tuple(rng.randint(0 if rng.random() < 0.1 else 1, 5) for _ in range(rng.randint(0, 5)))
    arguments = {"axes": per_axis(rng, rng.randint(1, 3), range(-5, 5))} if rng.random() < 0.7 else {}
    for name in ("keepdims", "return_indices"):
        if rng.random() < 0.5:
            arguments[name] = rng.choice((True, False))
    return "global_max_pool", (an_array(rng, shape),), arguments


def by_index_call(rng):
    shape = tuple(rng.randint(0 if rng.random() < 0.1 else 1, 5) for _ in range(rng.randint(0, 3)))
    target = (
        per_axis(rng, rng.randint(1, 3), range(1, 6)) if rng.random() < 0.3 else (rng.randint(1, 9), rng.randint(1, 9))
    )
    size = (
        target[0] * target[1]
        if isinstance(target, tuple) and len(target) == 2 and all(type(n) is int for n in target)
        else 20
    )
    generator = np.random.default_rng(rng.getrandbits(32))
    indices = generator.integers(0, max(min(size, 2**40), 1), shape)
    if rng.random() < 0.15 and indices.size:
        indices.flat[generator.integers(indices.size)] = rng.choice((-1, size, 2**31, 2**40, 2**63 - 1, -(2**63)))
    if rng.random() < 0.1:
        indices = indices.astype(rng.choice(("int32", "int16", "uint64", "float64", "bool", ">i8", "object")))
    if rng.random() < 0.1:
        indices = rng.choice((indices.tolist(), indices[None], indices.ravel(), indices.T, "0", None))
    name = rng.choice(("max_pool_backward", "max_pool_backward", "max_unpool", "max_unpool_backward"))
    if name == "max_unpool_backward":
        return name, (an_array(rng, (rng.randint(0, 9), rng.randint(1, 9))), indices), {}
    arguments = {"sparse": rng.choice((True, False))} if name == "max_pool_backward" and rng.random() < 0.5 else {}
    return name, (an_array(rng, shape), indices, target), arguments


def convert_call(rng):
    shape = tuple(number(rng, range(1, 5)) for _ in range(rng.randint(2, 4)))
    size = math.prod(n for n in shape if isinstance(n, int) and 0 < n < 9)
    indices = np.random.default_rng(rng.getrandbits(32)).integers(
        0, size, tuple(rng.choice((n if type(n) is int and 0 <= n < 9 else 1, rng.randint(1, 3))) for n in shape)
    )
    if rng.random() < 0.5:
        indices = np.broadcast_to(indices[..., :1], indices.shape)
    names = ("flat", "plane", "onnx_column_major", "tensorflow", "tensorflow_batch", "flat", None, "x")
    arguments = {name: rng.choice(names) for name in ("to", "frm") if rng.random() < 0.7}
    if rng.random() < 0.3:
        arguments["channels_last"] = rng.choice((True, False, None))
    return "convert_indices", (indices, shape, number(rng, (1, 1, 2))), arguments


WITHOUT_OPTIONS = ("convert_indices", "windows_from_edges")
BY_INDEX = ("max_pool_backward", "max_unpool")


def result_size(name, positional, arguments):
    """Elements of the result, as far as they can be told."""
    if name in BY_INDEX or (name.endswith("_backward") and name != "max_unpool_backward"):
        if arguments.get("sparse"):
            return 0
        shape = positional[2] if name in BY_INDEX else positional[1]
        if name == "lp_pool_backward":
            shape = np.shape(shape)
        shape = tuple(int(n) for n in (shape if isinstance(shape, (tuple, list)) else (shape,)))
        return max(math.prod(shape), windows_in(shape, arguments) if "kernel_size" in arguments else 0)
    if "kernel_size" in arguments:
        return windows_in(np.shape(positional[0]), arguments)
    if name.startswith("adaptive"):
        sizes = positional[1] if isinstance(positional[1], (tuple, list)) else [positional[1]] * 4
        return math.prod(max(1, int(n)) for n in (*np.shape(positional[0]), *sizes) if n is not None)
    return 0


def too_large(name, positional, arguments, limit):
    """Whether the result alone would fill memory, or the twin take for ever."""
    try:
        if name == "convert_indices":
            return math.prod(int(n) for n in positional[1]) > limit and limit == LARGEST_FOR_TWIN
        return result_size(name, positional, arguments) > limit
    except (fp.FastpoolError, TypeError, ValueError, OverflowError):
        return False


def outcome(function, positional, arguments):
    try:
        return function(*positional, **arguments), None
    except (fp.FastpoolError, TypeError) as error:
        return None, error


def magnitude_of(name, positional, arguments):
    """What the magnitudes of the terms add up to."""
    first = np.asarray(positional[0]).astype(np.float64)
    rest = {key: value for key, value in arguments.items() if key != "dtype"}
    return getattr(testing, name)(np.abs(first), *positional[1:], **rest)


def assert_agree(name, positional, arguments, found, expected):
    """Where floats are added or raised to a power, within a few units; the same bits otherwise."""
    if isinstance(expected, tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_agree(name, positional, {}, one, other)
    elif "lp_pool" in name:
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        if not arguments.get("signed") and name == "lp_pool":
            np.testing.assert_allclose(
                found.astype(np.float64),
                expected.astype(np.float64),
                np.spacing(np.ones((), found.dtype)) + 1e-13,
                1e-7,
            )
    elif "backward" in name and not adds_up(name, positional):
        assert_same_bits(canonical_nan(found), canonical_nan(expected))
    elif is_float(expected.dtype) and adds_up(name, positional):
        assert_within_ulps(found, expected, magnitude_of(name, positional, arguments))
    else:
        assert_same_bits(found, expected)


def adds_up(name, positional):
    """Whether floats are added in an order that is not the twin's."""
    if name == "window_pool":
        return positional[2] in ("avg", "sum")
    return "avg" in name or "sum" in name or name == "window_pool_backward"


MAKERS = {
    pooling_call: 6,
    global_call: 1,
    by_index_call: 3,
    convert_call: 1,
    adding_call: 5,
    adding_backward_call: 4,
    adaptive_call: 2,
    global_average_call: 1,
    by_chance_call: 2,
    window_call: 3,
    edges_call: 1,
}


def check(rng):
    """Make one call and judge its outcome: "result", "error" or "skipped", after the function's name."""
    make = rng.choices(list(MAKERS), list(MAKERS.values()))[0]
    name, positional, arguments = make(rng)
    options = some_options(rng) if name not in WITHOUT_OPTIONS else {}
    if too_large(name, positional, arguments, LARGEST_RESULT):
        return name, "skipped"
    found, error = outcome(getattr(fp, name), positional, {**arguments, **options})
    if error is not None and not isinstance(error, fp.FastpoolError):
        assert "unknown" in options, repr(error)
    if too_large(name, positional, arguments, LARGEST_FOR_TWIN):
        return name, "result" if error is None else "error"
    try:
        expected = getattr(testing, name)(*positional, **arguments)
    except Exception:  # the twin does not check everything it is given  # noqa: BLE001
        assert error is not None, "there should have been an error"
        return name, "error"
    if error is not None:
        # What the twin can do, only an option may forbid.
        assert options, repr(error)
        return name, "error"
    assert_agree(name, positional, arguments, found, expected)
    return name, "result"


def main():
    faulthandler.enable()
    warnings.simplefilter("ignore")
    tally = collections.Counter()
    for i in range(COUNT):
        rng = random.Random(SEED + i)
        try:
            tally[check(rng)] += 1
        except BaseException:
            print(f"call {SEED + i} failed: check(random.Random({SEED + i}))", file=sys.stderr)
            raise
    print(json.dumps([(*key, count) for key, count in tally.items()]))


def test_hostile_arguments():
    print(f"seed {SEED}")
    run = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=170, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    tally = {(name, end): count for name, end, count in json.loads(run.stdout)}
    assert sum(tally.values()) == COUNT
    # The generator must reach both sides, and those of every function.
    ends = collections.Counter()
    for (_, end), count in tally.items():
        ends[end] += count
    assert ends["result"] > COUNT // 4
    assert ends["error"] > COUNT // 4
    assert ends["skipped"] < COUNT // 50
    for name in {name for name, _ in tally}:
        results, errors, skipped = (tally.get((name, end), 0) for end in ("result", "error", "skipped"))
        assert min(results, errors) > (results + errors) // 8, (name, results, errors)
        assert skipped <= (results + errors) // 10, (name, skipped)
    assert {name for name, _ in tally} == set(ARGUMENTS) - CONVOLUTION - {"gradcheck"}


if __name__ == "__main__":
    main()
