"""Nodes of models that others wrote: casts, halves and Fourier transforms that keep the numbers of the kernels."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.ir.transform.intervals import Interval
from graphcore.ir.transform.ranges import range_of

pytestmark = pytest.mark.releases

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def written(nodes: list[Any], x: Any, inits: dict[str, Any] | None = None, opset: int = 20) -> Any:
    """Return a model of another tool. x: the type of its input as NumPy array."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    weights = [numpy_helper.from_array(np.asarray(a), name) for name, a in (inits or {}).items()]
    graph = helper.make_graph(
        nodes,
        "others",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_empty_tensor_value_info("y")],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def bare(model: Any, x: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def operators(model: gc.Model) -> Counter[str]:
    model._read()
    assert model._lowered is not None
    return Counter(node.op_type for node in model._lowered.nodes)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64])
def test_cast_to_an_integer_is_one_node_when_others_wrote_it(name: str, source: Any) -> None:
    info = np.iinfo(name)
    x = np.array([0.0, -0.0, 0.9, 1.5, 2.0, 100.9, max(-3.7, info.min), max(-100.0, info.min)], source)
    model = written([helper.make_node("Cast", ["x"], ["y"], to=helper.np_dtype_to_tensor_dtype(np.dtype(name)))], x)
    loaded = gc.InferenceSession().load(model)
    assert operators(loaded) == {"Cast": 1}
    assert (loaded(x)[0] == np.trunc(x).astype(name)).all()


@pytest.mark.numbers
@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("how", ["clip", "bounded", "of integers", "of bytes"])
def test_cast_of_a_known_range_saturates_when_it_is_built(name: str, how: str) -> None:
    x = np.array(
        [np.nan, -np.inf, np.inf, 1e30, -1e30, 2.7, -2.7, -0.5, 9.3e18, 2.0**63, -(2.0**63), 2.0**31], np.float32
    )
    least = 0 if name.startswith("u") else -10
    graph = Graph("cast", {"x": TensorType(DType.float32, [len(x)])})
    result = {
        "clip": lambda s: ops.clip(s, least, 100),
        "bounded": lambda s: ops.sigmoid(s) if least == 0 else ops.tanh(s),
        "of integers": lambda s: ops.floor(s.cast(DType.int32).cast(DType.float32)),
        "of bytes": lambda s: ops.floor(s.cast(DType.uint8).cast(DType.float32) * 0.5 + 0.25),
    }[how](graph["x"])
    graph.output(result.cast(DType.of(name)), result)
    got, floats = gc.InferenceSession().load(graph)(x)
    info = np.iinfo(name)
    wide = floats.astype(np.float64)
    want = [0 if np.isnan(v) else max(int(info.min), min(int(info.max), int(v))) for v in wide]
    assert [int(v) for v in got] == want


def test_cast_to_int64_needs_no_workaround_when_its_range_is_known() -> None:
    counts = {}
    for how in ("unknown", "clip"):
        graph = Graph("cast", {"x": TensorType(DType.float32, [4])})
        value = graph["x"] if how == "unknown" else ops.clip(graph["x"], 0, 9)
        graph.output(value.cast(DType.int64))
        counts[how] = sum(operators(gc.InferenceSession().load(graph)).values())
    assert counts["clip"] == 4 < counts["unknown"]  # Clip, IsNaN, Where, Cast


def test_range_is_wider_than_its_numbers_by_what_rounding_adds() -> None:
    graph = Graph("range", {"x": TensorType(DType.int32, [4]), "y": TensorType(DType.float32, [4])})
    whole = range_of(graph["x"].cast(DType.float32))
    assert whole is not None
    assert whole.low <= -(2.0**31)
    assert whole.high >= 2.0**31  # what 2^31 - 1 rounds to
    assert range_of(graph["y"]) is None
    assert range_of(graph["y"] + 1.0) is None
    assert range_of(ops.clip(graph["y"], -1.0, 1.0)) == Interval(-1.0, 1.0, may_be_nan=True)
    assert range_of(ops.tanh(graph["y"])) == Interval(-1.0 - 2**-23, 1.0 + 2**-23, may_be_nan=True)
    tenth = float(np.float32(0.1))
    product = range_of(ops.clip(graph["y"], 0.0, tenth) * tenth)
    assert product is not None
    assert tenth * tenth < product.high  # which float32 does not hold


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16", "int32"])
@pytest.mark.parametrize("move", ["DepthToSpace", "SpaceToDepth", "ReverseSequence", "Compress", "Transpose"])
def test_what_a_float_moves_of_an_integer_goes_back_without_a_workaround(name: str, move: str) -> None:
    info = np.iinfo(name)
    x = np.linspace(int(info.min), int(info.max), 16).astype(name).reshape(1, 4, 2, 2)
    floats = DType.float64 if name == "int32" else DType.float32
    graph = Graph("moves", {"x": TensorType(DType.of(name), x.shape)})
    y, op = graph["x"].cast(floats), ops.onnx
    deep, wide = x.reshape(1, 2, 2, 1, 2, 2), x.reshape(1, 4, 1, 2, 1, 2)
    results: dict[str, Any] = {
        "DepthToSpace": lambda: (op.DepthToSpace(y, blocksize=2), deep.transpose(0, 3, 4, 1, 5, 2)),
        "SpaceToDepth": lambda: (op.SpaceToDepth(y, blocksize=2), wide.transpose(0, 3, 5, 1, 2, 4)),
        "ReverseSequence": lambda: (op.ReverseSequence(y, np.array([4]), batch_axis=0, time_axis=1), x[:, ::-1]),
        "Compress": lambda: (op.Compress(y, np.array([True, False, True, True]), axis=1), x[:, [0, 2, 3]]),
        "Transpose": lambda: (ops.permute(y, (0, 3, 1, 2)), x.transpose(0, 3, 1, 2)),
    }
    moved, want = results[move]()
    graph.output(moved.cast(DType.of(name)))
    model = gc.InferenceSession().load(graph)
    assert model(x)[0].tobytes() == want.astype(name).tobytes()
    assert not operators(model).keys() & {"Clip", "IsNaN", "Where"}


@pytest.mark.parametrize(
    "op_type", ["Add", "Mul", "Div", "Exp", "HardSigmoid", "Softmax", "ReduceMean", "Conv", "MatMul"]
)
def test_float16_gives_the_numbers_of_bare_onnxruntime_when_others_wrote_it(op_type: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 4, 4, 4)).astype(np.float16)
    inits: dict[str, Any] = {"w": (rng.random((4, 4, 1, 1) if op_type == "Conv" else (4, 4)) + 0.5).astype(np.float16)}
    second = ["w"] if op_type in ("Add", "Mul", "Div", "Conv", "MatMul") else []
    nodes = [helper.make_node(op_type, ["x", *second], ["h"]), helper.make_node("Mul", ["h", "h"], ["y"])]
    model = written(nodes, x, inits if second else {})
    loaded = gc.InferenceSession().load(model)
    assert set(operators(loaded)) == {op_type, "Mul"}
    assert loaded(x)[0].tobytes() == bare(model, x).tobytes()


@pytest.mark.numbers
def test_float16_rounds_after_every_op_when_exactness_is_asked_for() -> None:
    x = np.linspace(0.1, 3, 64).astype(np.float16)
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["a"]),
        helper.make_node("Add", ["a", "x"], ["b"]),
        helper.make_node("Div", ["b", "c"], ["y"]),
    ]
    model = written(nodes, x, {"c": np.float16(3)})
    got = gc.InferenceSession(precision="exact").load(model)(x)[0]
    assert (got == (x * x + x) / np.float16(3)).all()


@pytest.mark.numbers
@pytest.mark.parametrize("length", [2, 3, 6, 16, 400])
def test_dft_of_others_is_a_product_with_the_matrix_of_the_transform(length: int) -> None:
    rng = np.random.default_rng(length)
    for axis, parts, inverse, onesided in itertools.product((0, 1, -2, -3), (1, 2), (0, 1), (0, 1)):
        if onesided and (inverse or parts == 2):
            continue
        shape = [3, 4, 5, parts]
        shape[axis] = length
        x = rng.standard_normal(shape).astype(np.float32)
        node = helper.make_node("DFT", ["x", "", "axis"], ["y"], onesided=onesided, inverse=inverse)
        got = gc.InferenceSession().load(written([node], x, {"axis": np.int64(axis)}))(x)[0]
        whole = x[..., 0].astype(np.complex128) + (1j * x[..., 1] if parts == 2 else 0)
        along = axis if axis >= 0 else axis + 1
        want = np.fft.ifft(whole, axis=along) if inverse else np.fft.fft(whole, axis=along)
        want = np.take(want, range(length // 2 + 1), axis=along) if onesided else want
        assert np.abs(got[..., 0] + 1j * got[..., 1] - want).max() <= 2e-6 * np.abs(want).max()


@pytest.mark.numbers
@pytest.mark.parametrize("padded", [20, 32])
def test_dft_of_others_is_padded_with_zeros_when_it_is_longer(padded: int) -> None:
    x = np.random.default_rng(1).standard_normal((2, 12, 1)).astype(np.float32)
    node = helper.make_node("DFT", ["x", "n", "axis"], ["y"], onesided=1)
    got = gc.InferenceSession().load(written([node], x, {"axis": np.int64(1), "n": np.int64(padded)}))(x)[0]
    want = np.fft.rfft(x[..., 0].astype(np.float64), padded)
    assert np.abs(got[..., 0] + 1j * got[..., 1] - want).max() <= 2e-6 * np.abs(want).max()


@pytest.mark.numbers
@pytest.mark.parametrize("length", [5, 16, 30])
@pytest.mark.parametrize("windowed", [True, False])
@pytest.mark.parametrize("message", [{}, {"onesided": 1}], ids=["default", "onesided"])
def test_stft_of_others_is_that_of_numpy(length: int, windowed: bool, message: dict[str, Any]) -> None:
    rng = np.random.default_rng(length)
    x = rng.standard_normal((2, 90, 1)).astype(np.float32)
    window = rng.random(length).astype(np.float32)
    inits = {"step": np.int64(7), "w": window} if windowed else {"step": np.int64(7), "n": np.int64(length)}
    node = helper.make_node("STFT", ["x", "step", "w"] if windowed else ["x", "step", "", "n"], ["y"], **message)
    got = gc.InferenceSession().load(written([node], x, inits))(x)[0]
    frames = np.lib.stride_tricks.sliding_window_view(x[..., 0].astype(np.float64), length, 1)[:, ::7]
    want = np.fft.rfft(frames * (window if windowed else 1.0))
    assert got.shape == (*want.shape, 2)
    assert np.abs(got[..., 0] + 1j * got[..., 1] - want).max() <= 2e-6 * np.abs(want).max()


# Scan


def scanned(axis: int, out_axis: int, reverse: int = 0) -> Any:
    """Return a model of running sums along an axis of float32[3, n], stacked along another."""
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Add", ["state", "part"], ["next"]), helper.make_node("Neg", ["next"], ["out"])]
    parts = [value("state", 1, None), value("part", 1, None)]
    body = helper.make_graph(nodes, "body", parts, [value("next", 1, None), value("out", 1, None)])
    attributes: dict[str, Any] = {
        "scan_input_axes": [axis],
        "scan_output_axes": [out_axis],
        "scan_output_directions": [reverse],
    }
    node = helper.make_node("Scan", ["zero", "x"], ["last", "y"], body=body, num_scan_inputs=1, **attributes)
    zero = [numpy_helper.from_array(np.zeros([3], np.float32), "zero")]
    results = [value("last", 1, [3]), value("y", 1, None)]
    graph = helper.make_graph([node], "sums", [value("x", 1, [3, "n"])], results, zero)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("axis", "out_axis", "reverse"), [(1, 0, 0), (1, 1, 0), (-1, -1, 1), (1, -2, 1)])
def test_scan_along_an_axis_that_may_be_empty_goes_along_the_first(axis: int, out_axis: int, reverse: int) -> None:
    """onnxruntime ends the process where it has no elements: it divides by their number."""
    model = scanned(axis, out_axis, reverse)
    loaded = gc.InferenceSession().load(model)
    assert operators(loaded)["Transpose"] == 1 + (out_axis % 2)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    right = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    for item, want in zip(loaded(x), right, strict=True):
        np.testing.assert_array_equal(item, want)
    with pytest.raises(gc.GraphcoreError, match="the scanned axis has no elements"):
        loaded(x[:, :0])


def test_scan_along_an_inner_axis_of_a_known_size_is_as_it_was() -> None:
    model = scanned(1, 1)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4
    assert "Transpose" not in operators(gc.InferenceSession().load(model))
