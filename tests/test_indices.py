"""convert_indices: against the twin, by hand, and against the libraries whose numberings these are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from arrays import assert_same_bits
from hypothesis import given
from hypothesis import strategies as st

import fastpool as fp
from fastpool import testing

NAMES = ("flat", "plane", "onnx_column_major", "tensorflow", "tensorflow_batch")


@given(st.data())
def test_against_the_twin(data):
    spatial = data.draw(st.integers(1, 4))
    leading = data.draw(st.integers(1, 3))
    shape = tuple(data.draw(st.integers(1, 4 if spatial < 4 else 2)) for _ in range(leading + spatial))
    to, frm = data.draw(st.sampled_from(NAMES)), data.draw(st.sampled_from(NAMES))
    channels_last = data.draw(st.sampled_from((None, True, False)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    # Indices as a pooling makes them: of elements with the same leading places.
    last = channels_last or (channels_last is None and "tensorflow" in to + frm)
    pooled = range(len(shape) - 1 - spatial, len(shape) - 1) if last else range(leading, len(shape))
    out = tuple(data.draw(st.integers(1, 3)) if axis in pooled else n for axis, n in enumerate(shape))
    places = [rng.integers(0, n, out) if axis in pooled else np.indices(out)[axis] for axis, n in enumerate(shape)]
    flat = np.ravel_multi_index(places, shape)
    options = {"channels_last": bool(last)}
    given_indices = testing.convert_indices(flat, shape, spatial, to=frm, **options)
    expected = testing.convert_indices(flat, shape, spatial, to=to, **options)
    for function in (fp.convert_indices, testing.convert_indices):
        assert_same_bits(function(flat, shape, spatial, to=frm, **options), given_indices)
        assert_same_bits(function(given_indices, shape, spatial, to=to, frm=frm, channels_last=channels_last), expected)
        assert_same_bits(function(given_indices, shape, spatial, frm=frm, **options), flat)


def test_by_hand():
    # Batch 1, channel 2, row 3, column 4 of (2, 3, 5, 7).
    flat = np.full((2, 3, 1, 1), ((1 * 3 + 2) * 5 + 3) * 7 + 4)
    shape = (2, 3, 5, 7)
    assert fp.convert_indices(flat, shape, 2, to="plane").flat[0] == 3 * 7 + 4
    assert fp.convert_indices(flat, shape, 2, to="onnx_column_major").flat[0] == (1 * 3 + 2) * 35 + 4 * 5 + 3
    first = {"channels_last": False}
    assert fp.convert_indices(flat, shape, 2, to="tensorflow", **first).flat[0] == (3 * 7 + 4) * 3 + 2
    assert fp.convert_indices(flat, shape, 2, to="tensorflow_batch", **first).flat[0] == ((1 * 5 + 3) * 7 + 4) * 3 + 2
    # The same element of (2, 5, 7, 3), where the channels are last.
    flat, shape = np.full((2, 1, 1, 3), ((1 * 5 + 3) * 7 + 4) * 3 + 2), (2, 5, 7, 3)
    assert fp.convert_indices(flat, shape, 2, to="tensorflow").flat[0] == (3 * 7 + 4) * 3 + 2
    assert fp.convert_indices(flat, shape, 2, to="tensorflow_batch").flat[0] == flat.flat[0]
    assert fp.convert_indices(flat, shape, 2, to="plane", channels_last=True).flat[0] == 3 * 7 + 4


def test_back_needs_the_place_of_every_index():
    x = np.arange(2 * 3 * 4 * 4).reshape(2, 3, 4, 4)
    flat = fp.max_pool(x, (2, 2), return_indices=True).indices
    plane = fp.convert_indices(flat, x.shape, 2, to="plane")
    assert_same_bits(fp.convert_indices(plane, x.shape, 2, frm="plane"), flat)
    assert_same_bits(fp.convert_indices(plane[..., :1], x.shape, 2, frm="plane"), flat[..., :1].copy())
    for wrong in (plane[:1], plane[:, :2], plane[0], plane.ravel(), plane[None]):
        with pytest.raises(fp.GeometryError, match="indices"):
            fp.convert_indices(wrong, x.shape, 2, frm="plane")


def test_numberings_that_count_everything_take_any_shape():
    flat = np.array([3, 0, 23])
    column = fp.convert_indices(flat, (2, 3, 4), 2, to="onnx_column_major")
    assert column.tolist() == [9, 0, 23]
    assert fp.convert_indices(column, (2, 3, 4), 2, frm="onnx_column_major").tolist() == [3, 0, 23]
    assert fp.convert_indices(5, (2, 3), 2, to="plane").shape == ()
    assert fp.convert_indices(np.zeros((0, 4), np.int64), (2, 3), 1, to="plane").shape == (0, 4)


def test_result_is_new_and_int64():
    flat = np.array([1, 2], np.int32)
    found = fp.convert_indices(flat, (3,), 1)
    assert found.dtype == np.int64
    flat = np.array([1, 2])
    found = fp.convert_indices(flat, (3,), 1)
    found[0] = 0
    assert flat.tolist() == [1, 2]
    swapped = fp.convert_indices(np.array([1, 2], ">i8"), (3,), 1)
    assert_same_bits(swapped, flat)


def test_large_inputs_need_no_memory():
    shape = (2**20, 2**10, 2**20)
    flat = np.array([[[2**50 - 1]]])
    assert fp.convert_indices(flat, shape, 2, to="plane").item() == 2**30 - 1
    assert fp.convert_indices(flat - 1, shape, 1, to="plane").item() == 2**20 - 2


@pytest.mark.parametrize("bad", [-1, 24, 2**40, -(2**63), 2**63 - 1])
def test_bad_index(bad):
    for function in (fp.convert_indices, testing.convert_indices):
        for name in ("flat", "onnx_column_major", "tensorflow_batch"):
            with pytest.raises(fp.IndexOutOfBoundsError, match=rf"\[0, 1\] is {bad}\b"):
                function(np.array([[23, bad]]), (2, 3, 4), 2, to="flat", frm=name)
    with pytest.raises(fp.IndexOutOfBoundsError, match=r"\[1, 0, 0\] is 12\b.*12"):
        fp.convert_indices(np.array([[[11]], [[12]]]), (2, 3, 4), 2, frm="plane")


def test_empty_input():
    with pytest.raises(fp.IndexOutOfBoundsError):
        fp.convert_indices([[0]], (0, 4), 1, to="plane")
    assert fp.convert_indices(np.zeros((0, 2), np.int64), (0, 4), 1, to="plane").shape == (0, 2)
    assert fp.convert_indices(np.zeros((0, 2), np.int64), (0, 4), 1, frm="plane").shape == (0, 2)


@pytest.mark.parametrize("dtype", ["float64", "uint64", "int16", "bool", "object", "U1"])
def test_indices_of_other_dtypes(dtype):
    with pytest.raises(fp.DtypeError, match="indices"):
        fp.convert_indices(np.zeros(3, dtype), (3,), 1)


@pytest.mark.parametrize("arguments", [
    {"to": "torch"}, {"frm": "FLAT"}, {"to": None}, {"frm": ["flat"]}, {"to": np.array(["flat", "plane"])},
    {"spatial_ndim": 0}, {"spatial_ndim": -1}, {"spatial_ndim": 4}, {"spatial_ndim": 1.0},
    {"spatial_ndim": "2"}, {"spatial_ndim": 2**70},
    {"spatial_ndim": 3, "to": "tensorflow"}, {"spatial_ndim": 3, "channels_last": True},
    {"input_shape": (-1, 2, 3)}, {"input_shape": None}, {"input_shape": (2**40, 2**40)}, {"input_shape": ()},
])  # fmt: skip
def test_bad_arguments(arguments):
    arguments = {
        "indices": np.zeros((2, 1, 1), np.int64),
        "input_shape": (2, 3, 4),
        "spatial_ndim": 2,
        **arguments,
    }
    with pytest.raises(fp.GeometryError):
        fp.convert_indices(**arguments)


# ---- other libraries


def distinct(shape, rng):
    return rng.permutation(int(np.prod(shape))).astype(np.float32).reshape(shape)


@pytest.mark.torch
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_pytorch(ndim, rng):
    torch = pytest.importorskip("torch")
    x = distinct((2, 3, 7, 6, 5)[: ndim + 2], rng)
    kernel, stride, padding = (3, 2, 2)[:ndim], (2, 1, 2)[:ndim], (1, 0, 1)[:ndim]
    function = getattr(torch.nn.functional, f"max_pool{ndim}d")
    theirs = function(torch.from_numpy(x), kernel, stride, padding, return_indices=True)[1].numpy()
    ours = fp.max_pool(x, kernel, stride, padding, return_indices=True).indices
    assert_same_bits(fp.convert_indices(ours, x.shape, ndim, to="plane"), theirs)
    assert_same_bits(fp.convert_indices(theirs, x.shape, ndim, frm="plane"), ours)


@pytest.mark.parametrize(("ndim", "storage_order"), list(itertools.product([1, 2, 3], [0, 1])))
def test_onnx_runtime(ndim, storage_order, rng):
    onnx = pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    x = distinct((2, 3, 7, 6, 5)[: ndim + 2], rng)
    kernel, stride, padding = (3, 2, 2)[:ndim], (2, 1, 2)[:ndim], (1, 0, 1)[:ndim]
    node = onnx.helper.make_node(
        "MaxPool",
        ["x"],
        ["y", "i"],
        kernel_shape=kernel,
        strides=stride,
        pads=padding * 2,
        storage_order=storage_order,
    )
    value = onnx.helper.make_tensor_value_info
    float32, int64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    graph = onnx.helper.make_graph(
        [node], "g", [value("x", float32, x.shape)], [value("y", float32, None), value("i", int64, None)]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 12)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    theirs = session.run(["i"], {"x": x})[0]
    ours = fp.max_pool(x, kernel, stride, padding, return_indices=True).indices
    name = ("flat", "onnx_column_major")[storage_order]
    assert_same_bits(fp.convert_indices(ours, x.shape, ndim, to=name), theirs)
    assert_same_bits(fp.convert_indices(theirs, x.shape, ndim, frm=name), ours)


def test_tensorflow(rng):
    tensorflow = pytest.importorskip("tensorflow")
    x = distinct((2, 6, 8, 3), rng)
    ours = fp.max_pool(x, (2, 2), axes=(1, 2), return_indices=True).indices
    for batch, name in ((False, "tensorflow"), (True, "tensorflow_batch")):
        theirs = tensorflow.nn.max_pool_with_argmax(x, 2, 2, "VALID", include_batch_in_index=batch)[1].numpy()
        assert_same_bits(fp.convert_indices(ours, x.shape, 2, to=name), theirs)
        assert_same_bits(fp.convert_indices(theirs, x.shape, 2, frm=name), ours)
