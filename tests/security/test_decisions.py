"""What is refused of files by decision, and what is read: see docs/security.md."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphcore as gc
from graphcore.errors import GraphError, ModelError
from tests.support.onnx_models import FLOAT, model, refused, tensor

BOOL = TensorProto.BOOL


def simple() -> onnx.ModelProto:
    return model([helper.make_node("Neg", ["x"], ["y"])])


@pytest.mark.parametrize("version", [-1, -(2**31), onnx.IR_VERSION + 1, 2**31])
def test_ir_version_is_refused_when_it_is_of_the_future_or_below_0(version: int) -> None:
    proto = simple()
    proto.ir_version = version
    refused(proto, "IR version", str(version), run=True)


@pytest.mark.parametrize("dim", [-2, -(2**63)])
def test_dim_is_refused_when_it_is_negative(dim: int) -> None:
    proto = simple()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = dim
    refused(proto, "'x'", "negative", run=True)


def test_dim_is_unknown_when_it_is_minus_1() -> None:
    proto = simple()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert gc.Graph.load(proto).inputs[0].shape[0].is_dynamic
    np.testing.assert_array_equal(gc.InferenceSession().load(proto)(np.ones(3, np.float32))[0], -np.ones(3))


@pytest.mark.parametrize("value", [{"raw": b"\x00\x07"}, {"int32_data": [0, 7]}, {"int32_data": [0, -1]}])
def test_bools_are_refused_when_they_are_neither_0_nor_1(value: dict[str, object]) -> None:
    constant = tensor("b", BOOL, [2], **value)  # type: ignore[arg-type]
    node = helper.make_node("Where", ["b", "x", "x"], ["y"])
    refused(model([node], constants=[constant]), "'b'", "bool", run=True)


def test_file_is_refused_when_it_is_its_own_external_data(tmp_path: Path) -> None:
    constant = onnx.TensorProto(name="w", data_type=FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, text in (("location", "model.onnx"), ("length", "8")):
        constant.external_data.add(key=key, value=text)
    path = tmp_path / "model.onnx"
    path.write_bytes(model([helper.make_node("Add", ["x", "w"], ["y"])], constants=[constant]).SerializeToString())
    refused(path, "own file", run=True)


def test_nodes_are_sorted_when_they_are_out_of_order() -> None:
    nodes = [helper.make_node("Abs", ["a"], ["y"]), helper.make_node("Neg", ["x"], ["a"])]
    np.testing.assert_array_equal(gc.InferenceSession().load(model(nodes))(np.ones(2, np.float32))[0], np.ones(2))


def test_ring_of_nodes_names_its_values() -> None:
    nodes = [helper.make_node("Neg", ["second"], ["first"]), helper.make_node("Abs", ["first"], ["second"])]
    refused(model([*nodes, helper.make_node("Neg", ["first"], ["y"])]), "'first'", "'second'", run=True)


# onnxruntime's own format


def test_bytes_of_the_own_format_are_refused_unless_the_user_says_so(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "m.ort")
    ort.InferenceSession(simple().SerializeToString(), options, providers=["CPUExecutionProvider"])
    content = (tmp_path / "m.ort").read_bytes()
    assert content[4:8] == b"ORTM"
    session, x = gc.InferenceSession(), np.ones(2, np.float32)
    refused(content, "onnxruntime's own format", 'format="ort"', run=True)
    other = tmp_path / "m.onnx"
    other.write_bytes(content)
    refused(other, "onnxruntime's own format", run=True)
    for item in (session.load(tmp_path / "m.ort"), session.load(content, format="ort")):
        np.testing.assert_array_equal(item(x)[0], -x)


def test_hostile_bytes_of_the_own_format_never_reach_onnxruntime() -> None:
    refused(b"\x18\x00\x00\x00ORTM" + b"\x00" * 64, "onnxruntime's own format", run=True)


def test_format_is_refused_when_there_is_none_of_the_name() -> None:
    with pytest.raises(GraphError, match="format='keras' is not a format"):
        gc.InferenceSession().load(simple(), format="keras")  # type: ignore[arg-type]


def test_path_that_ends_in_ort_and_is_missing_is_a_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a file"):
        gc.InferenceSession().load(tmp_path / "gone.ort")
