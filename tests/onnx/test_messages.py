"""Messages of small models that are decoded without the package onnx, beside those of onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from graphcore.onnx.proto import messages


def decoded(content: bytes) -> Any:
    return messages.decoded(memoryview(content))


def assert_same(own: Any, theirs: Any) -> None:
    """Compare all fields that messages have, and which of them are set."""
    for name, _, is_repeated in messages._ROWS[type(own).__name__].values():
        if name == "other":
            continue
        if name in ("training_info", "functions", "sparse_initializer"):  # nothing reads more than their number
            assert len(getattr(own, name)) == len(getattr(theirs, name))
            continue
        first, second = getattr(own, name), getattr(theirs, name)
        pairs = zip(first, second, strict=True) if is_repeated else [(first, second)]
        if not is_repeated:
            assert own.HasField(name) == theirs.HasField(name), name
        for ours, other in pairs:
            if isinstance(ours, messages.Message):
                assert_same(ours, other)
            else:
                value = bytes(ours) if isinstance(ours, memoryview) else ours
                assert value == other or value != value, name


def example(rows: int = 2) -> onnx.ModelProto:
    branch = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["inner"], doc_string="text")],
        "branch",
        [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
        helper.make_node("Conv", ["x", "w"], ["z"], "conv", kernel_shape=[1, 1], auto_pad="VALID", strides=[-1, 2]),
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.arange(3))),
        helper.make_node("Constant", [], ["f"], value_floats=[0.5, -1.0]),
        helper.make_node("Selu", ["z"], ["s"], alpha=0.25),
    ]
    tensors = [
        numpy_helper.from_array(np.ones((rows, 3), np.float32), "w"),
        TensorProto(name="i", data_type=TensorProto.INT32, dims=[2], int32_data=[-1, 1 << 30]),
        TensorProto(name="l", data_type=TensorProto.INT64, dims=[2], int64_data=[-1, 1 << 62]),
        TensorProto(name="d", data_type=TensorProto.DOUBLE, dims=[1], double_data=[0.1]),
        TensorProto(name="s", data_type=TensorProto.STRING, dims=[1], string_data=[b"\xff"]),
        TensorProto(name="e", data_type=TensorProto.FLOAT, dims=[0], data_location=TensorProto.EXTERNAL),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, None, 0]),
         helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("s", TensorProto.FLOAT, None), onnx.ValueInfoProto(name="y")],
        tensors,
        value_info=[helper.make_tensor_value_info("z", TensorProto.FLOAT, [1])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    helper.set_model_props(model, {"key": "text"})
    return model


def test_message_has_the_fields_of_onnx() -> None:
    model = example()
    own = decoded(model.SerializeToString())
    assert own is not None
    assert_same(own, model)
    assert own.graph.node[1].attribute[0].SerializeToString() == model.graph.node[1].attribute[0].SerializeToString()


def test_large_contents_are_not_copied() -> None:
    own = decoded(example(2000).SerializeToString())
    assert type(own.graph.initializer[0].raw_data) is memoryview
    assert len(own.graph.initializer[0].raw_data) == 24000


@given(st.data())
def test_damaged_message_is_that_of_onnx_or_left_to_it(data: st.DataObject) -> None:
    content = bytearray(example().SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    own = decoded(bytes(content))
    if own is None:
        return
    try:
        theirs = onnx.ModelProto.FromString(bytes(content))
    except Exception:  # a part that no load reads
        return
    assert_same(own, theirs)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.opset_import.add(domain="ai.onnx.ml", version=3),
        lambda model: model.graph.output[1].type.sequence_type.elem_type.tensor_type.SetInParent(),
        lambda model: model.graph.node.extend([helper.make_node("Relu", ["x" * 9000], ["y"])] * 8),
    ],
    ids=["domain", "list", "nodes"],
)
def test_other_models_are_left_to_onnx(change: Any) -> None:
    model = example()
    change(model)
    assert decoded(model.SerializeToString()) is None
