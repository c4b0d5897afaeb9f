"""Output sizes, padding, axes and their errors: integers in, integers out."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import count_windows, pool_calls, real_taps

import fastpool as fp
from fastpool import _geometry, testing
from fastpool._canonical import canonical_form
from fastpool._geometry import Window, output_length, pooling_geometry, window_without_tap
from fastpool._twins import Windows, flat_index

HUGE = 8608480567731124087


def shape_of(length, kernel, stride=None, padding=0, dilation=1, ceil_mode=False):
    """Output length of one axis through the public function."""
    (out,) = fp.output_shape((length,), (kernel,), stride, padding, dilation, ceil_mode=ceil_mode)
    return out


# ---- sizes with known answers


@pytest.mark.parametrize(
    ("length", "kernel", "stride", "padding", "out"),
    [
        (6, 1, 2, 0, 3),
        (32, 1, 2, 0, 16),
        (8, 3, 4, 0, 2),
        (5, 2, 2, 1, 3),
        (3, 3, 3, 1, 2),
        (6, 3, 3, 1, 3),
        (5, 3, 3, 1, 2),
        (2, 3, 3, 1, 1),
    ],
)
def test_ceil_mode_makes_no_window_of_padding_alone(length, kernel, stride, padding, out):
    assert shape_of(length, kernel, stride, padding, ceil_mode=True) == out


def test_ceil_mode_on_several_axes():
    assert fp.output_shape((3, 6, 5), (3, 3, 3), 3, 1, ceil_mode=True) == (2, 3, 2)
    assert fp.output_shape((2, 2), (3, 3), 3, 1, ceil_mode=True) == (1, 1)
    assert fp.output_shape((4, 7, 3, 6, 5), (3, 3, 3), 3, 1, ceil_mode=True) == (4, 7, 2, 3, 2)


def test_sizes_beyond_the_integers_that_floats_hold():
    assert shape_of(19199998, 1921, 1, 960) == 19199998
    assert shape_of(2**53 + 1, 1, 1) == 2**53 + 1
    assert shape_of(2**53 + 1, 2, 2, ceil_mode=True) == 2**52 + 1


def test_dilated_windows_longer_than_twice_the_padding():
    assert shape_of(1000, 3, 2, 2, 10) == 492


def test_division_is_a_true_floor():
    with pytest.raises(fp.GeometryError, match="length 1"):
        shape_of(1, 2, 2)
    with pytest.raises(fp.GeometryError, match="no window fits"):
        shape_of(3, 7, 7)


def test_same_padding():
    assert fp.output_shape((1, 3, 28, 31), (3, 5), 1, "same", (2, 3)) == (1, 3, 28, 31)
    assert fp.output_shape((500,), (5,), 10, "same") == (50,)
    for lengths, kernel, stride, dilation, name, expected in [
        ((5,), (2,), (1,), (1,), "same", ((0, 1),)),
        ((5,), (2,), (1,), (1,), "same_lower", ((1, 0),)),
        ((500,), (5,), (10,), (1,), "same", ((0, 0),)),
        ((5,), (3,), (2,), (1,), "same", ((1, 1),)),
        ((9, 9), (4, 5), (2, 3), (1, 2), "same", ((1, 2), (3, 3))),
    ]:
        assert _geometry.padding_pairs(name, lengths, kernel, stride, dilation) == expected


@pytest.mark.parametrize("name", ["same", "same_lower"])
def test_same_padding_gives_one_output_per_stride(name):
    for length, k, s, d in itertools.product(range(1, 12), range(1, 5), range(1, 5), range(1, 4)):
        try:
            out = shape_of(length, k, s, name, d)
        except fp.GeometryError as error:
            assert "no tap inside" in str(error)  # noqa: PT017
            continue
        assert out == -(-length // s)


def test_valid_padding_is_none():
    assert shape_of(7, 3, 2, "valid") == shape_of(7, 3, 2, 0) == 3


def test_every_argument_goes_to_its_own_axis():
    assert fp.output_shape((20, 30, 40), (2, 3, 5), (1, 2, 3), ((0, 1), (1, 0), (2, 1)), (3, 2, 1)) == (
        18,
        14,
        13,
    )
    # The same windows, with the pooled axes named in another order and from the end.
    out = fp.output_shape((20, 30, 40), (5, 2, 3), (3, 1, 2), ((2, 1), (0, 1), (1, 0)), (1, 3, 2), axes=(-1, 0, 1))
    assert out == (18, 14, 13)
    assert fp.output_shape((8, 9, 10, 3), (2, 3), axes=(1, 2)) == (8, 4, 3, 3)


def test_negative_padding_crops():
    assert shape_of(10, 3, 1, ((-2, -1),)) == 5
    assert shape_of(10, 3, 1, ((-2, 2),)) == 8
    with pytest.raises(fp.GeometryError, match="to nothing"):
        shape_of(3, 1, 1, ((-2, -1),))


def test_stride_none_is_the_kernel():
    assert fp.output_shape((12, 12), (3, 4)) == (4, 3)
    assert fp.output_shape((12, 12), 3, axes=(0, 1)) == (4, 4)


def test_integers_of_numpy_are_integers():
    assert fp.output_shape((np.int64(12),), (np.uint8(3),), np.int16(2), np.int8(1), np.int32(1)) == (6,)
    assert fp.output_shape(np.array([12, 12]), np.array([3, 4]), np.array([1, 2]), np.array([[0, 1], [1, 0]])) == (
        11,
        5,
    )


# ---- sizes against other definitions


def test_output_length_against_windows_laid_out_one_by_one():
    for length, k, s, d, pb, pa in itertools.product(
        range(1, 9), range(1, 5), range(1, 5), range(1, 4), range(4), range(4)
    ):
        for ceil_mode in (False, True):
            found = output_length(length, k, s, d, pb, pa, ceil_mode)
            room = Fraction(length + pb + pa - d * (k - 1) - 1, s)
            rule = (math.ceil(room) if ceil_mode else math.floor(room)) + 1
            if ceil_mode and (rule - 1) * s >= length + pb:
                rule -= 1
            assert found == rule
            assert max(found, 0) == count_windows(length, k, s, d, pb, pa, ceil_mode)


def test_compiled_output_length_agrees():
    from fastpool import _dispatch

    compiled = _dispatch.pool_forward.output_length
    choices = (range(1, 9), range(1, 5), range(1, 5), range(1, 4), range(4), range(4), (False, True))
    for arguments in itertools.product(*choices):
        assert compiled(*arguments) == max(output_length(*arguments), 0), arguments  # 0 says that none fits
    big = (2**53 + 1, 2**31 + 1, 2**40)
    for arguments in itertools.product(big, big, big, (1, 2**10), big, big, (False, True)):
        assert compiled(*arguments) == max(output_length(*arguments), 0), arguments  # 0 says that none fits


def test_windows_without_taps_against_counting():
    choices = (range(1, 6), range(1, 5), range(1, 5), range(1, 8), range(9), range(9), (False, True))
    for length, k, s, d, pb, pa, ceil_mode in itertools.product(*choices):
        out = output_length(length, k, s, d, pb, pa, ceil_mode)
        if out < 1:
            continue
        empty = [o for o in range(out) if not real_taps(o, length, k, s, d, pb, pa)]
        found = window_without_tap(Window(length, k, s, d, pb, pa, out))
        assert found == (empty[0] if empty else None), (length, k, s, d, pb, pa, ceil_mode)


@given(pool_calls())
def test_output_shape_against_the_twin(call):
    expected = testing.max_pool(call.x, **call.arguments).shape
    assert fp.output_shape(call.x.shape, **call.arguments) == expected


@given(pool_calls(dtypes=("uint8",), kinds=("lowest",)))
def test_canonical_form_visits_the_same_elements(call):
    """Outer index and levels, expanded again, give every output the taps that the axes give it."""
    arguments = dict(call.arguments)
    geometry = pooling_geometry(call.x.shape, **arguments)
    outer, outer_in, outer_out, offset, levels = canonical_form(geometry)
    assert not levels or levels[-1].input_stride == levels[-1].output_stride == 1
    found = {}
    for top in range(outer):
        for place in itertools.product(*(range(level.window.out) for level in levels)):
            output = top * outer_out + sum(o * level.output_stride for o, level in zip(place, levels, strict=True))
            along = []
            for o, (window, input_stride, _, _) in zip(place, levels, strict=True):
                taps = [o * window.stride + j * window.dilation - window.before for j in range(window.kernel)]
                along.append([tap * input_stride for tap in taps if 0 <= tap < window.length])
            assert output not in found
            found[output] = [offset + top * outer_in + sum(taps) for taps in itertools.product(*along)]
    expected = {}
    windows = Windows.strided(geometry)
    for output, place in enumerate(np.ndindex(*geometry.output_shape)):
        expected[output] = [flat_index(tap, geometry.input_shape) for tap in windows.at(place)]
    if 0 in geometry.output_shape:
        assert expected == {}
    else:
        assert found == expected


def test_canonical_form_is_short():
    def form(shape, *arguments, **keywords):
        outer, _, _, _, levels = canonical_form(pooling_geometry(shape, *arguments, **keywords))
        return outer, [level.window.kernel for level in levels]

    assert form((2, 3, 4, 8, 8), (2, 2)) == (24, [2, 2])
    assert form((2, 8, 8, 3), (2, 2), axes=(1, 2)) == (2, [2, 2, 1])
    assert form((2, 8, 8, 3, 5), (2, 2), axes=(1, 2)) == (2, [2, 2, 1])
    assert form((4, 5, 6, 70), (1, 1, 1, 7)) == (120, [7])
    assert form((3, 8, 5, 6, 8), (2, 2), axes=(1, 4)) == (3, [2, 1, 2])


# ---- bad arguments

BAD = {
    "kernel_size": [
        (0,),
        (-1,),
        (2.0,),
        ("2",),
        (None,),
        (True,),
        (),
        (2, 2, 2),
        (HUGE,),
        [[2]],
        "2",
        None,
        2.5,
        {2: 2},
        object(),
    ],
    "stride": [0, -1, (0,), (1, 1), (), 1.0, "1", (None,), HUGE, -HUGE, 10**30, True, [[1]], {1: 1}],
    "dilation": [0, -1, (0,), (1, 1), (), 1.0, "1", None, HUGE, 10**30, True, [[1]]],
    "padding": [
        1.0,
        "full",
        (1, 1),
        ((1,),),
        ((1, 1, 1),),
        (),
        None,
        ((0.5, 1),),
        HUGE,
        -HUGE,
        True,
        ((0, "1"),),
        b"same",
    ],
    "ceil_mode": ["yes", 2, None, 0.5],
    "axes": [1, -2, (0, 0), (), 0.5, "0", ((0,),), HUGE],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_bad_argument_is_a_geometry_error_that_names_it(name, value):
    arguments = {"kernel_size": (2,), name: value}
    for function, first in ((fp.output_shape, (8,)), (fp.max_pool, np.zeros(8))):
        with pytest.raises(fp.GeometryError) as caught:
            function(first, **arguments)
        assert isinstance(caught.value, ValueError)
        assert name in str(caught.value)
    with pytest.raises(fp.GeometryError):
        testing.max_pool(np.zeros(8), **arguments)


@pytest.mark.parametrize("name", ["kernel_size", "stride", "dilation", "padding"])
def test_numbers_too_long_to_print(name):
    with pytest.raises(fp.GeometryError, match=name):
        fp.output_shape((8,), **{"kernel_size": (2,), name: (10**5000,)})


@pytest.mark.parametrize("shape", [(-1,), (2.0,), "8", None, (2**70,), (2**40, 2**40), (None,), {8: 8}])
def test_bad_input_shape(shape):
    with pytest.raises(fp.GeometryError, match="input_shape"):
        fp.output_shape(shape, (2,))


def test_numbers_that_overflow_64_bits_name_their_argument():
    with pytest.raises(fp.GeometryError, match="kernel_size"):
        fp.max_pool(np.zeros((4, 4)), (HUGE, 2), dilation=1250999896764)
    with pytest.raises(fp.GeometryError, match="kernel_size"):
        fp.max_pool(np.zeros((4, 4)), (2**61, 2**61), dilation=2**61)
    with pytest.raises(fp.GeometryError, match="output shape"):
        fp.output_shape((4, 4), (2**40 + 1, 2**40 + 1), 1, 2**40)


def test_int_kernel_needs_axes():
    with pytest.raises(fp.GeometryError, match="axes="):
        fp.max_pool(np.zeros((4, 4)), 2)
    assert fp.max_pool(np.zeros((4, 4)), 2, axes=(0, 1)).shape == (2, 2)
    assert fp.max_pool(np.zeros((4, 4)), 2, axes=1).shape == (4, 2)


def test_more_windows_than_dimensions():
    with pytest.raises(fp.GeometryError, match=r"2 entries.*only 1 dimension$"):
        fp.max_pool(np.zeros(8), (2, 2))
    with pytest.raises(fp.GeometryError, match="0 dimensions"):
        fp.max_pool(np.float32(3), (1,))


def test_messages_about_one_axis_speak_of_one_axis():
    with pytest.raises(fp.GeometryError, match=r"2 entries for 1 pooled axis$"):
        fp.max_pool(np.zeros(8), (2,), (1, 1))
    with pytest.raises(fp.GeometryError, match=r"^stride is 0; it must be at least 1"):
        fp.max_pool(np.zeros(8), (2,), 0)
    with pytest.raises(fp.GeometryError, match=r"^stride\[1\] is 0; it must be at least 1"):
        fp.max_pool(np.zeros((8, 8)), (2, 2), (1, 0))


def test_errors_say_which_axis():
    with pytest.raises(fp.GeometryError, match=r"axis 3: length 3 .*kernel_size 4.* 4 elements"):
        fp.max_pool(np.zeros((2, 2, 5, 3)), (2, 4))
    with pytest.raises(fp.GeometryError, match=r"axis 1: length 3"):
        fp.max_pool(np.zeros((2, 3, 5, 3)), (2, 4), axes=(2, 1))


def test_window_without_a_real_tap():
    with pytest.raises(fp.GeometryError, match=r"window 0 along axis 0.*no tap"):
        fp.max_pool(np.arange(1.0, 6), (2,), 2, ((2, 3),))
    with pytest.raises(fp.GeometryError, match=r"window 3 along axis 0.*no tap"):
        fp.max_pool(np.arange(1.0, 6), (2,), 2, ((0, 5),))
    # A dilation that steps over the whole axis.
    with pytest.raises(fp.GeometryError, match=r"window 2 along axis 1.*no tap"):
        fp.max_pool(np.zeros((2, 2)), (3,), 1, ((4, 5),), 4)


def test_zero_length_axes():
    with pytest.raises(fp.GeometryError, match="axis 1 has length 0"):
        fp.max_pool(np.zeros((3, 0)), (1,))
    with pytest.raises(fp.GeometryError, match="axis 1 has length 0"):
        fp.max_pool(np.zeros((3, 0)), (1,), padding=1)
    assert fp.output_shape((0, 8), (2,)) == (0, 4)


@pytest.mark.parametrize(
    "call",
    [
        "(10**12,), (2,), 1, ((2 * 10**12, 0),), 2 * 10**12",
        "(5,), (2**40,), 1, 2**40",
        "(5,), (3,), 2**61, 2**61, 2**61",
        "(2**40,), (2,), 2**20 + 1, ((2**50, 0),), 2**50",
        "(10**12,), (1001,), 2 * 10**12 + 1, ((2 * 10**15, 10**15),), 2 * 10**12",
        "(5,), (2,), 1, 'same', 2**40",
    ],
)
def test_huge_windows_are_answered_at_once(call):
    code = f"import fastpool as fp\ntry:\n    fp.output_shape({call})\nexcept fp.GeometryError:\n    pass"
    subprocess.run([sys.executable, "-c", code], timeout=20, check=True)


@given(
    st.integers(1, 2**63), st.integers(-1, 2**70), st.integers(-1, 2**70), st.integers(-1, 2**70),
    st.integers(-(2**70), 2**70), st.integers(-(2**70), 2**70), st.booleans(),
)  # fmt: skip
@example(5, 2**31, 1, 1, 2**30, 2**30, False)
@example(5, 3, 2**62, 2**62, 2**62, 2**62, True)
def test_hostile_integers_end_in_a_shape_or_an_error(length, kernel, stride, dilation, before, after, ceil_mode):
    try:
        (out,) = fp.output_shape((length,), (kernel,), stride, ((before, after),), dilation, ceil_mode=ceil_mode)
    except fp.GeometryError:
        return
    kept = length + min(before, 0) + min(after, 0)
    assert out == output_length(kept, kernel, stride, dilation, max(before, 0), max(after, 0), ceil_mode)
    assert 1 <= out <= 2**62


# ---- PyTorch


@pytest.mark.torch
def test_output_shape_against_pytorch():
    torch = pytest.importorskip("torch")
    choices = (range(1, 9), range(1, 5), range(1, 5), range(1, 4), range(3), (False, True))
    compared = 0
    for length, k, s, d, p, ceil_mode in itertools.product(*choices):
        if p > k // 2:
            continue
        try:
            theirs = torch.nn.functional.max_pool1d(torch.zeros(1, 1, length), k, s, p, d, ceil_mode).shape[-1]
        except RuntimeError:
            continue
        try:
            ours = shape_of(length, k, s, p, d, ceil_mode)
        except fp.GeometryError as error:
            assert "no tap inside" in str(error)  # noqa: PT017
            continue
        assert ours == theirs, (length, k, s, d, p, ceil_mode)
        compared += 1
    assert compared > 1000
