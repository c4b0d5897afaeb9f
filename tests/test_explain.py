"""`explain`: its numbers against windows laid out one by one, its texts, and the command."""

from __future__ import annotations

import dataclasses
import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from strategies import count_windows, pool_calls, real_taps

import fastpool as fp
from fastpool import _plan

LONG = 19_199_998


@st.composite
def axis_arguments(draw):
    """(length, kernel, stride, dilation, before, after), ceil_mode of an axis without empty windows."""
    limits = ((1, 40), (1, 6), (1, 9), (1, 7), (-3, 9), (-3, 9))
    axis = tuple(draw(st.integers(*limit)) for limit in limits)
    ceil_mode = draw(st.booleans())
    assume(is_legal(axis, ceil_mode))
    return axis, ceil_mode


def is_legal(axis, ceil_mode):
    length, *_, before, after = axis
    if length + min(before, 0) + min(after, 0) < 1:
        return False
    out = count_windows(*axis, ceil_mode)
    return out >= 1 and all(real_taps(o, *axis) for o in range(out))


def plan_of(axis, ceil_mode):
    length, kernel, stride, dilation, *pads = axis
    return fp.explain((length,), (kernel,), stride, (tuple(pads),), dilation, ceil_mode=ceil_mode).axes[0]


def stretches(elements):
    found = []
    for element in sorted(elements):
        if found and found[-1].stop == element:
            found[-1] = range(found[-1].start, element + 1)
        else:
            found.append(range(element, element + 1))
    return found


@given(axis_arguments())
@example(((225, 2, 2, 1, 0, 0), True))
@example(((5, 3, 3, 1, 1, 1), True))  # ceil mode drops a window again
@example(((50, 3, 7, 5, 4, 4), True))  # the last window steps across the padding
@example(((40, 1, 9, 1, -3, -3), False))
@example(((12, 6, 4, 2, 0, 0), False))  # only even elements
def test_axis_against_windows_laid_out(given):
    axis, ceil_mode = given
    length, kernel, stride, dilation, before, after = axis
    plan = plan_of(axis, ceil_mode)
    out = count_windows(*axis, ceil_mode)
    assert plan.out == out
    assert plan.padding == (before, after)
    left, _, right = plan.formula.partition(" = ")
    assert eval(left) == int(right) == out

    taps = [[o * stride + j * dilation - before for j in range(kernel)] for o in range(out)]
    end = length + after
    for o, window in enumerate(taps):
        told = plan.taps(o)
        assert list(told.elements) == real_taps(o, *axis)
        assert told.before == sum(tap < 0 for tap in window)
        assert told.after == sum(length <= tap < end for tap in window)
        assert told.beyond == sum(tap >= end for tap in window)
    assert list(plan.on_padding[0]) == [o for o in range(out) if plan.taps(o).before]
    assert list(plan.on_padding[1]) == [o for o in range(out) if plan.taps(o).after]
    assert plan.overhang == max(0, (out - 1) * stride + dilation * (kernel - 1) + 1 - before - end)

    kept = range(max(-before, 0), length - max(-after, 0))
    assert [*plan.cropped[0], *kept, *plan.cropped[1]] == list(range(length))
    touched = {tap for o in range(out) for tap in real_taps(o, *axis)}
    assert [plan.touches(element) for element in kept] == [element in touched for element in kept]
    free = [element for element in kept if element not in touched]
    assert plan.untouched.total == len(free)
    both = [*plan.untouched.first, *plan.untouched.last]
    every = stretches(free)
    assert both == (every if len(every) <= 8 else every[:4] + every[-4:])
    assert list(plan.trailing) == list(range(max(touched) + 1, kept.stop))


@given(axis_arguments())
@example(((6, 2, 2, 1, 0, 0), True))
@example(((3, 2, 4, 1, 1, 2), True))  # without ceil mode a window would lie in the padding
def test_other_ceil_mode(given):
    axis, ceil_mode = given
    plan = plan_of(axis, ceil_mode)
    text = plan.other_ceil_mode
    assert text.startswith(f"ceil_mode={not ceil_mode} would ")
    if not is_legal(axis, not ceil_mode):
        assert plan.out_of_other_ceil_mode is None
        assert "would be an error" in text
        with pytest.raises(fp.GeometryError):
            plan_of(axis, not ceil_mode)
        return
    other = plan_of(axis, not ceil_mode)
    assert plan.out_of_other_ceil_mode == other.out
    if other.out == plan.out:
        assert "would change nothing" in text
    else:
        by = max(plan.overhang, other.overhang)
        assert f"would give {other.out}:" in text
        assert text.endswith(f"hangs over by {by} element{'' if by == 1 else 's'}")


@given(pool_calls(kinds=("random",)))
def test_plan_is_that_of_the_call(call):
    values, indices = fp.max_pool(call.x, **call.arguments, return_indices=True)
    plan = fp.explain(call.x.shape, **call.arguments, dtype=call.x.dtype, return_indices=True)
    assert plan.output_shape == values.shape
    assert plan.dtype == call.x.dtype.name
    assert fp.explain(call.x.shape, **call.arguments).indices_bytes == 0
    assert (plan.input_bytes, plan.output_bytes, plan.indices_bytes) == (call.x.nbytes, values.nbytes, indices.nbytes)
    axes = call.arguments.get("axes", range(-len(call.arguments["kernel_size"]), 0))
    order = sorted(range(len(axes)), key=lambda i: axes[i] % call.x.ndim)
    assert [axis.axis for axis in plan.axes] == [axes[i] % call.x.ndim for i in order]
    for axis, i in zip(plan.axes, order, strict=True):
        assert axis.length == call.x.shape[axis.axis]
        assert axis.out == values.shape[axis.axis]
        for name in ("kernel_size", "stride", "dilation", "padding"):
            assert getattr(axis, name) == call.arguments[name][i], name
    assert json.loads(json.dumps(plan.to_dict())) == plan.to_dict()
    assert all(f"window {axis.out - 1}" in str(axis) for axis in plan.axes)


# ---- texts


def test_text_of_known_windows():
    assert str(fp.explain((225,), (2,), ceil_mode=True).axes[0]) == (
        "axis 0: length 225, kernel_size 2, stride 2, dilation 1, padding (0, 0)\n"
        "  (225 + 0 + 0 - 2 + 1) // 2 + 1 = 113 windows\n"
        "  window 0    0 1\n"
        "  window 1    2 3\n"
        "  window 2    4 5\n"
        "  ...         107 more\n"
        "  window 110  220 221\n"
        "  window 111  222 223\n"
        "  window 112  224 over\n"
        "  hanging over the end: window 112, by 1 element\n"
        "  ceil_mode=False would give 112: without the last window, which hangs over by 1 element"
    )
    assert str(fp.explain((30,), (2,), 3, ((-2, -1),)).axes[0]).splitlines()[1:] == [
        "  (30 - 2 - 1 - 2 + 0) // 3 + 1 = 9 windows",
        "  window 0  2 3",
        "  window 1  5 6",
        "  window 2  8 9",
        "  ...       3 more",
        "  window 6  20 21",
        "  window 7  23 24",
        "  window 8  26 27",
        "  cropped by negative padding: 0-1, 29",
        "  untouched: 9 of 30 elements: 4, 7, 10, 13 ... 19, 22, 25, 28 (1 after the last tap)",
        "  ceil_mode=True would change nothing: one more window would start after the last element",
    ]
    assert str(fp.explain((5,), (3,), 3, 1, ceil_mode=True).axes[0]).splitlines()[1:] == [
        "  (5 + 1 + 1 - 3 + 2) // 3 + 1 - 1 = 2 windows",
        "  window 0  pad 0 1",
        "  window 1  2 3 4",
        "  with taps on padding: window 0",
        "  ceil_mode=False would change nothing: one more window would start after the last element",
    ]


def test_text_of_dilated_windows():
    assert str(fp.explain((5,), (3,), 1, 2, 2).axes[0]).splitlines()[2:7] == [
        "  window 0  pad 0 2",
        "  window 1  pad 1 3",
        "  window 2  0 2 4",
        "  window 3  1 3 pad",
        "  window 4  2 4 pad",
    ]


def test_text_of_a_long_axis():
    text = str(fp.explain((LONG,), (1921,), 1, 960))
    assert "  window 0         pad x 960 0 1 2 ... 959 960\n" in text
    assert f"  ...              {LONG - 6} more\n" in text
    assert f"with taps on padding: windows 0-959 and windows {LONG - 960}-{LONG - 1}\n" in text
    assert "untouched" not in text
    assert len(text.splitlines()) < 30


def test_text_of_a_call():
    plan = fp.explain((8, 3, 225, 225), (2, 2), return_indices=True)
    text = str(plan)
    assert text.startswith("pooling (8, 3, 225, 225) -> (8, 3, 112, 112), float32, ceil_mode=False\n")
    assert "axes 2, 3, each: length 225," in text
    assert text.count("106 more") == 1
    assert f"bytes: input 4,860,000, output 1,204,224, indices 2,408,448, workspace {plan.workspace_bytes:,}" in text
    assert str(fp.explain((225, 220), (2, 2))).count("axis 1: length 220") == 1


# ---- choices


def test_choices_are_those_of_the_call():
    shape = (4, 8, 64, 96)
    arguments = (False, (3, 3), 2, 1, 1, None)
    plan = fp.explain(shape, (3, 3), 2, 1, dtype=np.float64, return_indices=True, num_threads=2)
    made = _plan.pool_plan(np.dtype(np.float64), False, True, shape, *arguments)
    assert made.parallel
    assert (plan.units, plan.workspace_bytes) == (made.compiled.units, made.compiled.workspace_bytes)
    assert [tile.tile for tile in plan.tile] == [level.tile for level in made.spec.levels]
    assert [tile.axis for tile in plan.tile] == [2, 3]
    assert plan.isa in str(plan)
    assert plan.threads == 2
    with fp.options(num_threads=1):
        assert fp.explain(shape, (3, 3)).threads == 1
    assert fp.explain((1, 4), (2,), num_threads=2).threads == 1
    assert fp.explain((1, 1 << 20), (1 << 20,), num_threads=64).threads <= 2


def test_foreign_byte_order_and_empty_arrays():
    assert dataclasses.replace(fp.explain((8,), (2,), dtype=">f8")) == fp.explain((8,), (2,), dtype=np.float64)
    plan = fp.explain((0, 8), (2,))
    assert (plan.output_shape, plan.output_bytes, plan.workspace_bytes, plan.units) == ((0, 4), 0, 0, 0)
    assert "window 3  6 7" in str(plan)
    assert plan.threads == 1


@pytest.mark.parametrize(
    ("shape", "arguments"),
    [
        ((LONG,), {"kernel_size": (1921,), "stride": 1, "padding": 960}),
        ((LONG,), {"kernel_size": (2,), "stride": 3}),
        ((LONG,), {"kernel_size": (3,), "stride": 5, "dilation": 2, "ceil_mode": True}),
        ((2**56,), {"kernel_size": (2**10,), "stride": 2**10 + 1, "dilation": 2**10}),
    ],
)
def test_cost_does_not_grow_with_the_axis(shape, arguments):
    tracemalloc.start()
    try:
        plan = fp.explain(shape, **arguments)
        text, data = str(plan), json.dumps(plan.to_dict())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < LONG
    assert len(text) < 4000
    assert len(data) < 8000
    axis = plan.axes[0]
    k, s = axis.kernel_size, axis.stride
    if axis.dilation == 1 and s > k:
        assert axis.untouched.total == shape[0] - axis.out * k
    assert all(not axis.touches(e) for part in axis.untouched.first + axis.untouched.last for e in (part[0], part[-1]))


# ---- the contract


def test_plans_cannot_be_changed():
    plan = fp.explain((4,), (2,))
    assert isinstance(plan, fp.PoolingPlan)
    assert plan == fp.explain((4,), (2,))
    assert hash(plan) == hash(fp.explain((4,), (2,)))
    for frozen in (plan, plan.axes[0]):
        with pytest.raises(dataclasses.FrozenInstanceError):
            frozen.ceil_mode = True


@pytest.mark.parametrize(
    ("shape", "arguments", "message"),
    [
        ((4,), {"kernel_size": (5,)}, "no window fits along axis 0"),
        ((4,), {"kernel_size": (2,), "padding": ((3, 0),)}, "has no tap inside the input"),
        ((4,), {"kernel_size": 2}, "does not say how many axes"),
        ((4, -1), {"kernel_size": (2,)}, "cannot be negative"),
        ((4,), {"kernel_size": (2,), "stride": 0}, "stride is 0"),
        ((4,), {"kernel_size": (8608480567731124087,), "dilation": 1250999896764}, "kernel_size"),
        ((4,), {"kernel_size": (2,), "num_threads": 0}, "num_threads is 0"),
    ],
)
def test_bad_arguments(shape, arguments, message):
    with pytest.raises(fp.GeometryError, match=message):
        fp.explain(shape, **arguments)


@pytest.mark.parametrize("dtype", ["complex64", object, "U3", "nonsense"])
def test_bad_dtypes(dtype):
    with pytest.raises(fp.DtypeError):
        fp.explain((4,), (2,), dtype=dtype)


def test_bad_windows_and_options():
    axis = fp.explain((4,), (2,)).axes[0]
    for window in (-1, 2):
        with pytest.raises(fp.GeometryError, match=f"window {window} does not exist"):
            axis.taps(window)
    with pytest.raises(TypeError, match="unexpected keyword"):
        fp.explain((4,), (2,), colour="red")
