"""Ten thousand sets of arguments, many of them absurd: a result equal to the slow twin's, or an error of ours.

The calls run in a process of their own, so that one that crashed would be seen, and not take the tests with it.
"""

from __future__ import annotations

import faulthandler
import math
import random
import subprocess
import sys
import warnings

import numpy as np
from arrays import DTYPES, KINDS, assert_same_bits, canonical_nan, fill, layouts

import fastpool as fp
from fastpool import testing

SEED = 271828
COUNT = 10_000
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


def an_array(rng, shape, dtypes=DTYPES):
    if rng.random() < 0.02:
        return rng.choice(NOT_ARRAYS)
    array = fill(rng.choice(KINDS), rng.choice(dtypes), shape, np.random.default_rng(rng.getrandbits(32)))
    return rng.choice([array, *(view for _, view in layouts(array))]) if rng.random() < 0.4 else array


def some_options(rng):
    roll = rng.random()
    if roll < 0.7:
        return {}
    name = rng.choice(("contiguity", "num_threads", "check_finite", "unknown"))
    good = {"contiguity": ("copy", "warn"), "num_threads": (None, 1, 2, -1), "check_finite": ("ignore", "warn")}
    return {name: rng.choice(good[name]) if roll < 0.95 and name in good else rng.choice((*ODD, *HUGE))}


def pooling_call(rng):
    ndim = rng.choice((0, 1, 1, 2, 2, 3, 4))
    shape = tuple(
        rng.choice((0, 1, 2, 3, 4, 5, 6, 7)) if rng.random() < 0.15 else rng.randint(2, 7) for _ in range(ndim)
    )
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
        arguments["ceil_mode"] = rng.choice((True, False, True, False, *ODD))
    if rng.random() < 0.3:
        arguments["axes"] = per_axis(rng, count, range(-4, 4))
    if rng.random() < 0.5:
        arguments["return_indices"] = True
    return rng.choice(("max_pool", "min_pool")), (an_array(rng, shape),), arguments


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


def too_large(name, positional, arguments, limit):
    """Whether the result alone would fill memory, or the twin take for ever."""
    try:
        if name in ("max_pool", "min_pool"):
            rest = {key: value for key, value in arguments.items() if key not in ("return_indices", "out")}
            return math.prod(fp.output_shape(np.shape(positional[0]), **rest)) > limit
        if name == "convert_indices":
            return math.prod(int(n) for n in positional[1]) > limit and limit == LARGEST_FOR_TWIN
        if name in ("max_pool_backward", "max_unpool"):
            shape = positional[2] if isinstance(positional[2], (tuple, list)) else (positional[2],)
            return math.prod(int(n) for n in shape) > limit and not arguments.get("sparse")
    except (fp.FastpoolError, TypeError, ValueError, OverflowError):
        pass
    return False


def outcome(function, positional, arguments):
    try:
        return function(*positional, **arguments), None
    except (fp.FastpoolError, TypeError) as error:
        return None, error


def check(rng):
    """Make one call and judge its outcome: "result" or "error"."""
    make = rng.choices((pooling_call, global_call, by_index_call, convert_call), (6, 1, 3, 1))[0]
    name, positional, arguments = make(rng)
    options = some_options(rng) if name != "convert_indices" else {}
    if too_large(name, positional, arguments, LARGEST_RESULT):
        return "skipped"
    found, error = outcome(getattr(fp, name), positional, {**arguments, **options})
    if error is not None and not isinstance(error, fp.FastpoolError):
        assert "unknown" in options, repr(error)
    if too_large(name, positional, arguments, LARGEST_FOR_TWIN):
        return "result" if error is None else "error"
    try:
        expected = getattr(testing, name)(*positional, **arguments)
    except Exception:  # the twin does not check everything it is given  # noqa: BLE001
        assert error is not None, "there should have been an error"
        return "error"
    if error is not None:
        # What the twin can do, only an option may forbid.
        assert options, repr(error)
        return "error"
    for one, other in zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, expected)), strict=True):
        assert_same_bits(canonical_nan(one), canonical_nan(other)) if "backward" in name else assert_same_bits(
            one, other
        )
    return "result"


def main():
    faulthandler.enable()
    warnings.simplefilter("ignore")
    tally = dict.fromkeys(("result", "error", "skipped"), 0)
    for i in range(COUNT):
        rng = random.Random(SEED + i)
        try:
            tally[check(rng)] += 1
        except BaseException:
            print(f"call {SEED + i} failed: check(random.Random({SEED + i}))", file=sys.stderr)
            raise
    print(tally["result"], tally["error"], tally["skipped"])


def test_hostile_arguments():
    print(f"seed {SEED}")
    run = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=170, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    results, errors, skipped = (int(word) for word in run.stdout.split())
    assert results + errors + skipped == COUNT
    # The generator must reach both sides.
    assert results > COUNT // 4
    assert errors > COUNT // 4
    assert skipped < COUNT // 50


if __name__ == "__main__":
    main()
