"""Convolution, unfolding and padding with thousands of sets of arguments, many of them absurd, as in test_hostile."""

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
from arrays import NUMERIC_DTYPES, assert_same_bits, is_float
from calls import CONVOLUTION
from convs import assert_in_bound, wide_and_positive
from test_hostile import HUGE, NOT_ARRAYS, ODD, an_array, nearly, outcome, pad_entry, per_axis, some_options

import fastpool as fp
from fastpool import testing
from fastpool._conv_spec import conv_geometry
from fastpool._geometry import transposed_windows

SEED = 141421
COUNT = 6_000
LARGEST = 20_000  # elements of a result
LARGEST_FOR_TWIN = 30_000  # products
KINDS = ("random", "ties")
MODES = ("zeros", "reflect", "replicate", "circular")


def windows_of_conv(rng, count):
    arguments = {}
    if rng.random() < 0.5:
        arguments["stride"] = per_axis(rng, count, (1, 1, 2, 3))
    if rng.random() < 0.6:
        arguments["padding"] = per_axis(rng, count, (0, 1, 1, 2, -1), pad_entry)
    elif rng.random() < 0.2:
        arguments["padding"] = rng.choice(("same", "valid", "same_lower", "full"))
    if rng.random() < 0.4:
        arguments["dilation"] = per_axis(rng, count, (1, 1, 2, 3))
    if rng.random() < 0.03:
        arguments |= dict.fromkeys(rng.sample(("stride", "padding", "dilation"), 2), (rng.choice(HUGE),))
    return arguments


def channels(rng):
    """Groups, and the channels of a group on both sides."""
    return (
        rng.choice((1, 1, 1, 2, 3)),
        rng.choice((1, 2, 3)) if rng.random() < 0.95 else 0,
        rng.choice((1, 2, 3)) if rng.random() < 0.95 else 0,
    )


def lengths(rng, count, least):
    return tuple(rng.randint(least, 6) if rng.random() < 0.97 else 0 for _ in range(count))


def conv_call(rng):
    transposed = rng.random() < 0.45
    backward = rng.random() < 0.5
    count = rng.choice((1, 1, 2, 2, 3, 4))
    groups, inputs, outputs = channels(rng)
    kernel = tuple(rng.randint(1, 3) if rng.random() < 0.98 else 0 for _ in range(count))
    batch = rng.choice(((), (1,), (2,), (0,)))
    space = lengths(rng, count, 1 if transposed else 3)
    dtype = rng.choice(NUMERIC_DTYPES)
    arguments = windows_of_conv(rng, count)
    if groups > 1 or rng.random() < 0.03:
        arguments["groups"] = groups if rng.random() < 0.97 else rng.choice(ODD)
    if transposed and rng.random() < 0.4:
        arguments["output_padding"] = per_axis(rng, count, (0, 0, 1))
    if not transposed and rng.random() < 0.4:
        arguments["padding_mode"] = rng.choice(MODES) if rng.random() < 0.95 else rng.choice(ODD)

    def array(shape, own=dtype):
        odd = rng.random() < 0.01
        return an_array(
            rng, nearly(rng, shape) if rng.random() < 0.3 else shape, (own, "bool") if odd else (own,), KINDS
        )

    x = array((*batch, groups * inputs, *space))
    first, second = (groups * inputs, outputs) if transposed else (groups * outputs, inputs)
    other = rng.choice(NUMERIC_DTYPES) if rng.random() < 0.03 else dtype
    weight = array((first, second, *kernel), other)
    if not backward:
        if rng.random() < 0.5:
            arguments["bias"] = array((groups * outputs,))
        return "conv_transpose" if transposed else "conv", (x, weight), arguments
    if rng.random() < 0.5:
        needs = rng.sample(("x", "weight", "bias"), rng.randint(0, 3))
        arguments["needs"] = tuple(needs) if rng.random() < 0.9 else rng.choice((*ODD, "x", ("x", "x"), ("y",)))
    try:
        out = outputs_of(transposed, np.shape(x), np.shape(weight), arguments)
    except Exception:  # the function itself has to say what is wrong  # noqa: BLE001
        out = space
    if math.prod(out) > LARGEST:
        out = space
    grad = array((*batch, groups * outputs, *out))
    return "conv_transpose_backward" if transposed else "conv_backward", (grad, x, weight), arguments


def outputs_of(transposed, shape, weight_shape, arguments):
    """Lengths of the result."""
    kernel = weight_shape[2:]
    stride, padding, dilation = (arguments.get(n, v) for n, v in (("stride", 1), ("padding", 0), ("dilation", 1)))
    if transposed:
        extra = arguments.get("output_padding", 0)
        return tuple(row[0] for row in transposed_windows(shape, kernel, stride, padding, extra, dilation))
    return conv_geometry(shape, kernel, stride, padding, dilation).output_shape[-len(kernel) :]


def unfold_call(rng):
    count = rng.choice((1, 1, 2, 2, 3, 4))
    leading = rng.choice(((2,), (1, 2), (2, 3), (0, 2), (2, 0)))
    space = lengths(rng, count, 3)
    kernel = tuple(rng.randint(1, 3) for _ in range(count)) if rng.random() < 0.9 else per_axis(rng, count, (1, 2, 3))
    arguments = windows_of_conv(rng, count)
    if rng.random() < 0.5:
        return "unfold", (an_array(rng, (*leading, *space)), kernel), arguments
    try:
        windows = [arguments.get(n, v) for n, v in (("stride", 1), ("padding", 0), ("dilation", 1))]
        out = conv_geometry(space, kernel, *windows).output_shape
        shape = (*leading[:-1], leading[-1] * math.prod(kernel), math.prod(out))
        if math.prod(shape) > LARGEST:
            shape = (2, 5)
    except Exception:  # the function itself has to say what is wrong  # noqa: BLE001
        shape = (*leading[:-1], leading[-1] * 2, 5)
    columns = an_array(rng, nearly(rng, shape), NUMERIC_DTYPES if rng.random() < 0.95 else ("bool",), KINDS)
    sizes = space if rng.random() < 0.95 else per_axis(rng, count, range(1, 6))
    return "fold", (columns, sizes, kernel), arguments


def pad_call(rng):
    shape = tuple(rng.randint(1, 4) if rng.random() < 0.95 else 0 for _ in range(rng.randint(0, 4)))
    count = rng.randint(1, max(1, len(shape)))
    arguments = {"mode": rng.choice(("constant", *MODES)) if rng.random() < 0.95 else rng.choice(ODD)}
    if rng.random() < 0.3:
        arguments["value"] = rng.choice((0, 1, 2.0, -1, True, np.int8(3)) if rng.random() < 0.9 else (*ODD, *HUGE))
    if rng.random() < 0.4:
        arguments["axes"] = per_axis(rng, count, range(-3, 4))
    return "pad", (an_array(rng, shape), per_axis(rng, count, (0, 1, 2, 5, -1), pad_entry)), arguments


MAKERS = {conv_call: 6, unfold_call: 3, pad_call: 1}


def largest(value):
    """The largest integer in nested tuples and lists."""
    if isinstance(value, (tuple, list)):
        return max(map(largest, value), default=0)
    return abs(int(value)) if isinstance(value, (int, np.integer)) else 0


def work_of(name, positional, arguments):
    """Elements of the result, and products that the twin goes through, as far as they can be told."""
    try:
        if name == "pad":
            return math.prod(n + 2 * largest(positional[1]) for n in np.shape(positional[0])), 0
        if name in ("unfold", "fold"):
            shape, kernel = (positional[0].shape, positional[1]) if name == "unfold" else (positional[1], positional[2])
            count = max(1, len(shape) - 2)
            kernel = (kernel,) * count if np.ndim(kernel) == 0 else tuple(kernel)
            windows = [arguments.get(n, v) for n, v in (("stride", 1), ("padding", 0), ("dilation", 1))]
            geometry = conv_geometry(shape, kernel, *windows)
            size = math.prod(max(n, 1) for n in geometry.output_shape) * math.prod(kernel)
            return size, size
        x, weight = positional[-2:]
        transposed = "transpose" in name
        out = outputs_of(transposed, np.shape(x), np.shape(weight), arguments)
        kernel = np.shape(weight)[2:]
        places = np.shape(x)[-len(kernel) :] if transposed else out
        padded = 0
        if arguments.get("padding_mode", "zeros") != "zeros":
            # a copy with all of the padding
            stride, dilation = arguments.get("stride", 1), arguments.get("dilation", 1)
            windows = conv_geometry(np.shape(x), kernel, stride, arguments.get("padding", 0), dilation).windows
            padded = math.prod(w.length + w.before + w.after for w in windows) * 9
        return max(padded, math.prod(out) * 18), math.prod(places) * np.size(weight) * 2
    except (fp.FastpoolError, TypeError, ValueError, OverflowError, AttributeError):
        return 0, 0


def assert_agree(name, positional, arguments, found, expected):
    if name in ("unfold", "pad"):
        assert_same_bits(found, expected)
        return
    arrays = [np.asarray(array) for array in positional]
    if not is_float(arrays[0].dtype):
        for one, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, expected)), strict=True):
            if other is None:
                assert one is None
            else:
                assert_same_bits(one, other)
        return
    magnitudes = getattr(testing, name)(
        *(wide_and_positive(array)[0] if np.ndim(array) and name != "fold" else array for array in positional)
        if name != "fold"
        else (*wide_and_positive(positional[0]), *positional[1:]),
        **{key: wide_and_positive(value)[0] if key == "bias" else value for key, value in arguments.items()},
    )
    terms = max(array.size for array in arrays) * 4
    for one, other, magnitude in zip(
        *(r if isinstance(r, tuple) else (r,) for r in (found, expected, magnitudes)), strict=True
    ):
        if other is None:
            assert one is None
        else:
            assert_in_bound(one, other, magnitude, terms)


def check(rng):
    """Make one call and judge its outcome, as in test_hostile."""
    make = rng.choices(list(MAKERS), list(MAKERS.values()))[0]
    name, positional, arguments = make(rng)
    options = some_options(rng) if name != "pad" else {}
    if name.startswith("conv") and rng.random() < 0.4:
        options |= {"algorithm": rng.choice(("auto", "direct", "gemm")) if rng.random() < 0.95 else rng.choice(ODD)}
    if any(any(value is odd for odd in NOT_ARRAYS) for value in positional) and rng.random() < 0.5:
        options = {}
    size, products = work_of(name, positional, arguments)
    if size > LARGEST * 20:
        return name, "skipped"
    found, error = outcome(getattr(fp, name), positional, {**arguments, **options})
    if error is not None and not isinstance(error, fp.FastpoolError):
        assert "unknown" in options, repr(error)
    if products > LARGEST_FOR_TWIN:
        return name, "result" if error is None else "error"
    try:
        expected = getattr(testing, name)(*positional, **arguments)
    except Exception:  # the twin does not check everything it is given  # noqa: BLE001
        assert error is not None, "there should have been an error"
        return name, "error"
    if error is not None:
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
    names = {name for name, _ in tally}
    assert names == CONVOLUTION
    for name in names:
        results, errors, skipped = (tally.get((name, end), 0) for end in ("result", "error", "skipped"))
        assert min(results, errors) > (results + errors) // 8, (name, results, errors)
        assert skipped <= (results + errors) // 10, (name, skipped)


if __name__ == "__main__":
    main()
