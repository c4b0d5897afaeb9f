"""What arrays are taken, what happens to their memory, what `out` may be, and the options."""

from __future__ import annotations

import array as python_array
import asyncio
import threading
import warnings

import numpy as np
import pytest
from arrays import DTYPES, Subclass, assert_same_bits, fill

import fastpool as fp

# Every function, with arguments that differ in the array of that name alone.
INDICES = np.array([[0, 5], [3, 3]])
CALLS = {
    "max_pool": ("x", lambda a, **o: fp.max_pool(a, (2,), **o)),
    "min_pool": ("x", lambda a, **o: fp.min_pool(a, (2,), return_indices=True, **o)),
    "global_max_pool": ("x", lambda a, **o: fp.global_max_pool(a, axes=1, **o)),
    "max_pool_backward": ("grad_output", lambda a, **o: fp.max_pool_backward(a, INDICES, (6,), **o)),
    "max_unpool": ("values", lambda a, **o: fp.max_unpool(a, INDICES, (6,), **o)),
    "max_unpool_backward": ("grad_output", lambda a, **o: fp.max_unpool_backward(a, INDICES % 4, **o)),
}
every_function = pytest.mark.parametrize("name", CALLS)


# ---- dtypes and kinds of arrays


@every_function
@pytest.mark.parametrize(
    "dtype", ["complex64", "complex128", "object", "U3", "S3", "M8[s]", "m8[s]", [("a", "f4")]], ids=str
)
def test_dtypes_that_are_not_taken(name, dtype):
    argument, call = CALLS[name]
    with pytest.raises(fp.DtypeError, match=argument) as caught:
        call(np.zeros((2, 2), dtype))
    assert isinstance(caught.value, TypeError)


@every_function
def test_long_double_is_not_taken(name):
    if np.dtype(np.longdouble) == np.float64:
        pytest.skip("longdouble is float64 here")
    with pytest.raises(fp.DtypeError, match=r"longdouble|float128|float96"):
        CALLS[name][1](np.zeros((2, 2), np.longdouble))


@every_function
def test_other_formats_of_ml_dtypes_are_not_taken(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.int4):
        with pytest.raises(fp.DtypeError):
            CALLS[name][1](np.zeros((2, 2), dtype))


@every_function
def test_masked_arrays_are_refused(name):
    for mask in (False, [[True, False], [False, False]]):
        with pytest.raises(fp.DtypeError, match="masked"):
            CALLS[name][1](np.ma.array(np.ones((2, 2)), mask=mask))


def test_masked_indices_are_refused():
    with pytest.raises(fp.DtypeError, match="masked"):
        fp.max_unpool(np.ones(2), np.ma.array([0, 1]), (3,))


@every_function
@pytest.mark.parametrize("value", [None, "text", {}, {1, 2}, object(), [[1, 2], [3]], [[1, "a"], [2, 3]]], ids=repr)
def test_values_that_are_no_arrays(name, value):
    with pytest.raises(fp.DtypeError):
        CALLS[name][1](value)


@every_function
def test_array_whose_conversion_fails(name):
    class Broken:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("no memory on this device")

    with pytest.raises(fp.DtypeError, match="no memory on this device"):
        CALLS[name][1](Broken())


class WithArray:
    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


class WithDlpack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@every_function
def test_what_can_be_made_an_array(name):
    call = CALLS[name][1]
    x = np.array([[1.5, 4.0], [2.0, 0.5]])
    expected = call(x)
    for value in (
        x.tolist(),
        WithArray(x),
        WithDlpack(x),
        memoryview(x),
        x.view(Subclass),
        x.view(np.matrix),
    ):
        assert_same_bits(call(value), expected)
    one = python_array.array("d", [1.5, 4.0])
    assert_same_bits(fp.max_pool(one, (2,)), np.array([4.0]))
    assert_same_bits(fp.max_pool(bytearray(b"\x01\x05"), (2,)), np.array([5], np.uint8))


def test_results_are_plain_arrays():
    for kind in (Subclass, np.matrix):
        x = np.arange(6.0).reshape(2, 3).view(kind)
        values, indices = fp.max_pool(x, (2, 3), return_indices=True)
        assert type(values) is type(indices) is np.ndarray
        assert type(fp.max_pool_backward(values.view(kind), indices.view(kind), (6,))) is np.ndarray


@pytest.mark.torch
def test_torch_tensors():
    torch = pytest.importorskip("torch")
    x = torch.arange(6.0).reshape(2, 3)
    assert fp.max_pool(x, (3,)).tolist() == [[2], [5]]
    assert fp.max_pool(x.T, (2,)).tolist() == [[3], [4], [5]]
    with pytest.raises(fp.DtypeError):
        fp.max_pool(x.requires_grad_(), (3,))


@pytest.mark.parametrize(
    "dtype", [dtype for dtype in DTYPES if np.dtype(dtype).itemsize > 1 and np.dtype(dtype).kind != "V"]
)
def test_results_are_native(dtype, rng):
    x = fill("random", dtype, (3, 8), rng).astype(np.dtype(dtype).newbyteorder(">"))
    values = fp.max_pool(x, (3,))
    assert values.dtype == np.dtype(dtype)
    assert values.dtype.isnative


@every_function
def test_inputs_are_left_alone(name):
    for x in (np.array([[3.0, 1.0], [2.0, 4.0]]), np.array([[3.0, 1.0], [2.0, 4.0]]).T):
        before = x.copy()
        CALLS[name][1](x)
        assert (x == before).all()


# ---- the contiguity guard


@every_function
def test_contiguity(name):
    argument, call = CALLS[name]
    x = np.arange(4, dtype=np.float64).reshape(2, 2)
    expected = call(x)
    for option in ("copy", "warn", "require"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert_same_bits(call(x, contiguity=option), expected)
    view = np.zeros((4, 4))[::2, ::2]
    view[...] = x
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_bits(call(view), expected)
        assert_same_bits(call(view, contiguity="copy"), expected)
    with pytest.warns(fp.ContiguityWarning) as caught:
        assert_same_bits(call(view, contiguity="warn"), expected)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with pytest.raises(fp.ContiguityError) as refused:
        call(view, contiguity="require")
    assert isinstance(refused.value, ValueError)
    for text in (str(caught[0].message), str(refused.value)):
        for part in (argument, "(2, 2)", "(64, 16)", "32 bytes"):
            assert part in text


def test_contiguity_of_indices():
    indices = np.array([[0, 9], [3, 9], [1, 9]])[:, 0]
    for call in (
        lambda **o: fp.max_unpool(np.ones(3), indices, (4,), **o),
        lambda **o: fp.max_unpool_backward(np.ones(4), indices, **o),
        lambda **o: fp.max_pool_backward(np.ones(3), indices, (4,), **o),
        lambda **o: fp.max_pool_backward(np.ones(3), indices, (4,), sparse=True, **o),
    ):
        with pytest.raises(fp.ContiguityError, match=r"indices.*\(3,\).*\(16,\).*24 bytes"):
            call(contiguity="require")
        with pytest.warns(fp.ContiguityWarning, match=r"indices.*\(3,\).*\(16,\).*24 bytes"):
            call(contiguity="warn")


@pytest.mark.parametrize("contiguity", ["warn", "require"])
def test_strides_of_axes_without_neighbours_do_not_matter(contiguity):
    for x in (
        np.zeros((1, 4, 4))[::-1],
        np.zeros((2, 4, 4))[:1],
        np.zeros((4, 4, 3))[:, :, :1][:1, :, :][:, :1],
        np.zeros((0, 4))[::-1],
    ):
        if x.flags.c_contiguous:
            fp.max_pool(x, (1,), contiguity=contiguity)


# ---- out


X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def outs(values, indices):
    """Calls that write to `out`, and the result they are to write."""
    pooled = fp.max_pool(X, (2,), return_indices=True)
    return [
        (lambda: fp.max_pool(X, (2,), out=values), values),
        (lambda: fp.min_pool(X, (2,), out=values), values),
        (lambda: fp.max_pool(X, (2,), return_indices=True, out=(values, indices)), values),
        (lambda: fp.max_unpool(pooled.values, pooled.indices % 12, (2, 3, 2), out=values), values),
        (lambda: fp.max_pool_backward(pooled.values, pooled.indices % 12, (2, 3, 2), out=values), values),
    ]


def fresh(dtype=np.float32, shape=(2, 3, 2)):
    return np.full(shape, 7, dtype)


def test_out_of_another_dtype():
    for dtype in (np.float64, np.int32, np.float16, np.bool_, ">f4", object):
        for call, out in outs(fresh(dtype), fresh(np.int64)):
            with pytest.raises(fp.DtypeError, match=r"out.*float32"):
                call()
            assert (out == 7).all() or dtype is np.bool_
    for dtype in (np.int32, np.uint64, np.float64, ">i8"):
        values = fresh()
        with pytest.raises(fp.DtypeError, match=r"out\[1\].*int64"):
            fp.max_pool(X, (2,), return_indices=True, out=(values, fresh(dtype)))
        assert (values == 7).all()


def test_out_of_another_shape():
    for shape in ((2, 3, 3), (2, 3), (12,), (3, 2, 2), (1, 2, 3, 2), ()):
        for call, out in outs(fresh(shape=shape), fresh(np.int64)):
            with pytest.raises(fp.GeometryError, match="out"):
                call()
            assert (out == 7).all()
        values = fresh()
        with pytest.raises(fp.GeometryError, match=r"out\[1\]"):
            fp.max_pool(X, (2,), return_indices=True, out=(values, fresh(np.int64, shape)))
        assert (values == 7).all()


def test_out_that_is_not_contiguous():
    for view in (fresh(shape=(2, 3, 4))[..., ::2], fresh(shape=(2, 3, 2))[::-1], np.asfortranarray(fresh())):
        for call, out in outs(view, fresh(np.int64)):
            with pytest.raises(fp.ContiguityError, match=r"out.*C-contiguous"):
                call()
            assert (out == 7).all()


def test_out_that_is_not_aligned():
    buffer = np.zeros(12 * 4 + 1, np.uint8)
    view = buffer[1:].view(np.float32).reshape(2, 3, 2)
    for call, _ in outs(view, fresh(np.int64)):
        with pytest.raises(fp.ContiguityError, match="aligned"):
            call()
    assert not buffer.any()


def test_out_that_is_read_only():
    values = fresh()
    values.flags.writeable = False
    for call, out in outs(values, fresh(np.int64)):
        with pytest.raises(fp.FastpoolError, match="read-only"):
            call()
        assert (out == 7).all()


@pytest.mark.parametrize(
    "out",
    [[[1.0]], "out", 3, object(), np.ma.zeros((2, 3, 2), np.float32), memoryview(b"")],
    ids=lambda out: type(out).__name__,
)
def test_out_that_is_no_array(out):
    for call, _ in outs(out, fresh(np.int64)):
        with pytest.raises(fp.FastpoolError, match="out"):
            call()


def test_out_of_one_where_a_pair_is_due_and_the_other_way_round():
    values, indices = fresh(), fresh(np.int64)
    for pair in (
        values,
        (values,),
        (values, indices, indices),
        (values, None),
        (None, indices),
        (indices, values),
        (),
    ):
        with pytest.raises(fp.FastpoolError, match="out"):
            fp.max_pool(X, (2,), return_indices=True, out=pair)
        assert (values == 7).all()
        assert (indices == 7).all()
    for one in ((values, indices), [values], (values,)):
        with pytest.raises(fp.FastpoolError, match="out"):
            fp.max_pool(X, (2,), out=one)
        assert (values == 7).all()


def test_out_that_overlaps_an_input():
    buffer = np.arange(40, dtype=np.float32)
    before = buffer.copy()
    x = buffer[:24].reshape(2, 3, 4)
    for start in (0, 1, 12, 23):
        out = buffer[start : start + 12].reshape(2, 3, 2)
        for given in (x, x[:, ::-1], memoryview(x), WithArray(x), WithDlpack(x), x.view(Subclass)):
            with pytest.raises(fp.ContiguityError, match="overlap"):
                fp.max_pool(given, (2,), out=out)
            assert (buffer == before).all()
    fp.max_pool(x, (2,), out=buffer[24:36].reshape(2, 3, 2))
    assert (buffer[24:36] == before[1:24:2]).all()


def test_out_that_overlaps_in_backward_and_unpool():
    values = np.arange(12, dtype=np.float64)
    indices = np.arange(12)
    for function in (fp.max_unpool, fp.max_pool_backward):
        for given in (values, memoryview(values), WithArray(values)):
            with pytest.raises(fp.ContiguityError, match="overlap"):
                function(given, indices, (12,), out=values)
        with pytest.raises(fp.ContiguityError, match="overlap"):
            function(values, indices, (12,), out=indices.view(np.float64))
        with pytest.raises(fp.ContiguityError, match="overlap"):
            function(values, memoryview(indices), (12,), out=indices.view(np.float64))
    assert (values == np.arange(12)).all()
    assert (indices == np.arange(12)).all()


def test_pair_of_outs_that_overlap_each_other():
    x = np.zeros((4, 4), np.int64)
    buffer = np.full(8, 7)
    with pytest.raises(fp.ContiguityError, match="overlap"):
        fp.max_pool(x, (2,), return_indices=True, out=(buffer.reshape(4, 2), buffer.reshape(4, 2)))
    assert (buffer == 7).all()


def test_out_is_not_written_before_the_geometry_is_checked():
    out = fresh()
    for arguments in (
        {"kernel_size": (5,)},
        {"kernel_size": (2,), "padding": 9},
        {"kernel_size": (2,), "dilation": 0},
    ):
        with pytest.raises(fp.GeometryError):
            fp.max_pool(X, out=out, **arguments)
    with pytest.raises(fp.GeometryError):
        fp.max_pool(X, (2,), out=out, num_threads=0)
    with pytest.raises(TypeError):
        fp.max_pool(X, (2,), out=out, threads=1)
    assert (out == 7).all()


def test_out_may_be_a_part_or_a_subclass():
    big = np.full((5, 2, 3, 2), 7, np.float32)
    assert fp.max_pool(X, (2,), out=big[2]).base is big
    assert (big[2] == X[..., 1::2]).all()
    assert (big[[0, 1, 3, 4]] == 7).all()
    mine = fresh().view(Subclass)
    assert fp.max_pool(X, (2,), out=mine) is mine
    assert (mine == X[..., 1::2]).all()


# ---- options


@every_function
@pytest.mark.parametrize(
    "option",
    [
        *({"contiguity": value} for value in ("no", None, True, np.array(["copy", "warn"]))),
        *({"check_finite": value} for value in ("always", True, ["raise"])),
        *({"num_threads": value} for value in (0, -2, 1.0, "1", True, 2**40, -(2**70), (1,), np.array([1, 2]))),
    ],
    ids=str,
)
def test_bad_options(name, option):
    x = np.ones((2, 2))
    with pytest.raises(fp.FastpoolError, match=next(iter(option))):
        CALLS[name][1](x, **option)
    with pytest.raises(fp.FastpoolError, match=next(iter(option))), fp.options(**option):
        pass


@every_function
def test_unknown_options(name):
    with pytest.raises(TypeError, match="contigous"):
        CALLS[name][1](np.ones((2, 2)), contigous="copy")
    with pytest.raises(TypeError, match="contigous"), fp.options(contigous="copy"):
        pass


@every_function
def test_check_finite(name):
    argument, call = CALLS[name]
    if name == "max_unpool":
        bad = np.array([[1.0, 2.0], [-np.inf, np.nan]])
    else:
        bad = np.array([[1.0, 2.0], [np.nan, np.inf]])
    expected = call(bad)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_bits(call(bad, check_finite="ignore"), expected)
        for fine in (np.ones((2, 2)), np.ones((2, 2), np.int8), np.ones((2, 2), np.float16)):
            for option in ("warn", "raise"):
                call(fine, check_finite=option)
    with pytest.warns(fp.NonFiniteWarning, match=rf"{argument}.*\(1, 0\)") as caught:
        assert_same_bits(call(bad, check_finite="warn"), expected)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with pytest.raises(fp.NonFiniteError, match=rf"{argument}.*\(1, 0\)") as refused:
        call(bad, check_finite="raise")
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if np.dtype(dtype).kind in "fV"], ids=str)
def test_check_finite_for_every_float(dtype):
    for bad in (np.nan, np.inf, -np.inf):
        x = np.ones((3, 5), dtype)
        x[2, 3] = bad
        with pytest.raises(fp.NonFiniteError, match=r"\(2, 3\)"):
            fp.max_pool(x, (5,), check_finite="raise")
        with pytest.raises(fp.NonFiniteError, match=r"\(3, 2\)"):
            fp.max_pool(x.T, (3,), check_finite="raise")


def test_options_of_a_block():
    view = np.zeros((4, 4))[:, ::2]
    with fp.options(contiguity="require"):
        with pytest.raises(fp.ContiguityError):
            fp.max_pool(view, (2,))
        fp.max_pool(view, (2,), contiguity="copy")  # the call's own option wins
        with fp.options(contiguity="warn", check_finite="raise"), pytest.warns(fp.ContiguityWarning):
            fp.max_pool(view, (2,))
        with fp.options(check_finite="raise"), pytest.raises(fp.ContiguityError):
            fp.max_pool(view, (2,))
        with pytest.raises(fp.ContiguityError):
            fp.max_pool(view, (2,))
    fp.max_pool(view, (2,))


def test_options_end_with_an_exception():
    view = np.zeros((4, 4))[:, ::2]
    with pytest.raises(ZeroDivisionError), fp.options(contiguity="require"):
        raise ZeroDivisionError
    fp.max_pool(view, (2,))


def test_options_of_a_function():
    view = np.zeros((4, 4))[:, ::2]

    @fp.options(contiguity="require")
    def strict():
        return fp.max_pool(view, (2,))

    for _ in range(2):
        with pytest.raises(fp.ContiguityError):
            strict()
        fp.max_pool(view, (2,))


def test_options_belong_to_a_thread():
    view = np.zeros((4, 4))[:, ::2]
    failures = []

    def work():
        try:
            fp.max_pool(view, (2,))
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    with fp.options(contiguity="require"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        with pytest.raises(fp.ContiguityError):
            fp.max_pool(view, (2,))
    assert not failures


def test_options_belong_to_a_task():
    view = np.zeros((4, 4))[:, ::2]

    async def strict(entered, release):
        with fp.options(contiguity="require"):
            entered.set()
            await release.wait()
            with pytest.raises(fp.ContiguityError):
                fp.max_pool(view, (2,))

    async def lenient(entered, release):
        await entered.wait()
        fp.max_pool(view, (2,))
        release.set()

    async def main():
        entered, release = asyncio.Event(), asyncio.Event()
        await asyncio.gather(strict(entered, release), lenient(entered, release))

    asyncio.run(main())
