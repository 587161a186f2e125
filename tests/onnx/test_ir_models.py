"""Graphs from models of onnx-ir, and such models of graphs: arrays are shared, and what files keep is kept."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphcore as gc
from graphcore import DType, Graph, TensorType, errors, ops
from graphcore.ir.symbol import Constant

ir: Any = pytest.importorskip("onnx_ir", reason="onnx-ir is not installed: the extra ir")

W = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
X = np.arange(128, dtype=np.float32).reshape(2, 64)


def model(w: Any = W) -> Any:
    """Return x @ w + b as a model of onnx-ir, which has no protobuf message."""
    x = ir.val("x", ir.DataType.FLOAT, ["n", 64])
    weight = ir.Value(name="w", const_value=ir.Tensor(w, name="w"))
    bias = ir.Value(name="b", const_value=ir.Tensor(np.ones(64, np.float32), name="b"))
    product = ir.node("MatMul", [x, weight])
    total = ir.node("Add", [product.outputs[0], bias], name="sum", metadata_props={"origin": "here"})
    y = total.outputs[0]
    y.name, y.dtype, y.shape = "y", ir.DataType.FLOAT, ir.Shape(["n", 64])
    nodes = [product, total]
    graph = ir.Graph([x], [y], nodes=nodes, initializers=[weight, bias], opset_imports={"": 21}, name="linear")
    return ir.Model(graph, ir_version=10, metadata_props={"author": "me"})


def array(graph: Graph, name: str) -> np.ndarray[Any, Any]:
    producer = graph.weights[name].producer
    assert isinstance(producer, Constant)
    return producer.array


def test_from_ir_shares_arrays() -> None:
    source = model()
    graph = Graph.from_ir(source)
    assert np.shares_memory(array(graph, "w"), W)
    assert str(graph.outputs[0].type) == "float32[n, 64]"
    assert graph.metadata["author"] == "me"
    np.testing.assert_array_equal(gc.InferenceSession().load(graph)(X)[0], X @ W + 1)
    assert source.graph.initializers["w"].const_value.numpy() is W
    assert source.graph.initializers["w"].name == "w"


def test_to_ir_shares_arrays() -> None:
    g = Graph("g", {"x": TensorType(DType.float32, ["n", 64])})
    g.output(y=ops.relu(g["x"] @ g.weight("w", W)))
    result = g.to_ir(target="onnx")
    assert np.shares_memory(result.graph.initializers["w"].const_value.numpy(), W)
    assert [node.op_type for node in result.graph] == ["MatMul", "Relu"]
    onnx.checker.check_model(ir.to_proto(result), full_check=True)
    assert ir.to_proto(result) == ir.to_proto(ir.from_proto(g.to_onnx(target="onnx")))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int4", "uint8", "int64", "bool", "float8_e4m3fn"])
@pytest.mark.parametrize("size", [3, 9001])
def test_dtypes_there_and_back(dtype: str, size: int) -> None:
    kind = DType.of(dtype)
    values = np.arange(size).astype(np.int8).astype(kind.numpy)
    g = Graph("g")
    g.output(y=ops.unsqueeze(g.weight("w", values, dtype), 0))
    there = g.to_ir(target="onnx")
    np.testing.assert_array_equal(there.graph.initializers["w"].const_value.numpy(), values)
    back = Graph.from_ir(there)
    assert back.weights["w"].type == TensorType(dtype, [size])
    np.testing.assert_array_equal(array(back, "w"), values)


def test_as_the_file(tmp_path: Path) -> None:
    """A model with bodies, text, functions, defaults and external data is read as its file is."""
    body = [
        helper.make_graph(
            [helper.make_node("Mul", ["x", name], ["z"])],
            "body",
            [],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.full((64,), value, np.float32), name)],
        )
        for name, value in (("two", 2), ("three", 3))
    ]
    values = {"w": W, "text": np.array(["a", "b"], object), "d": np.full(2000, 1.5, np.float32)}
    graph = helper.make_graph(
        [
            helper.make_node("If", ["c"], ["z"], then_branch=body[0], else_branch=body[1]),
            helper.make_node("MatMul", ["z", "w"], ["zw"]),
            helper.make_node("twice", ["zw"], ["y"], domain="local"),
            helper.make_node("Identity", ["text"], ["t"]),
            helper.make_node("Neg", ["d"], ["e"]),
        ],
        "whole",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("d", TensorProto.FLOAT, [2000]),
        ],
        [helper.make_tensor_value_info(n, k, None) for n, k in (("y", 1), ("t", TensorProto.STRING), ("e", 1))],
        [numpy_helper.from_array(v, n) for n, v in values.items()],
    )
    node = helper.make_node("Add", ["a", "a"], ["b"])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "twice", ["a"], ["b"], [node], opsets[:1])
    proto = helper.make_model(graph, ir_version=10, opset_imports=opsets, functions=[function])
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="m.data", size_threshold=1000)
    for defaults in (False, True):
        read = Graph.from_ir(ir.load(path), defaults=defaults)
        expected = Graph.load(path, defaults=defaults)
        assert read.to_onnx(target="onnx") == expected.to_onnx(target="onnx")
        assert read.defaults.keys() == ({"d"} if defaults else set())
    back = read.to_ir()
    model = gc.InferenceSession().load(ir.to_proto(back))
    y, text, e = model(X, np.array(True), d=np.zeros(2000, np.float32))
    np.testing.assert_array_equal(y, 2 * (2 * X @ W))
    assert [*text] == ["a", "b"]
    assert not e.any()


def test_errors() -> None:
    with pytest.raises(errors.ModelError, match=r"must be an onnx_ir.Model, got ModelProto"):
        Graph.from_ir(onnx.ModelProto())
    with pytest.raises(errors.ModelError, match="the model has no outputs"):
        Graph.from_ir(ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": 21}), ir_version=10))
    with pytest.raises(errors.ModelError, match="float16"):
        Graph.from_ir(model(W.astype(np.float16)))


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx_ir", None)
    g = Graph("g", {"x": TensorType(DType.float32, [2])})
    g.output(y=-g["x"])
    for convert in (g.to_ir, lambda: Graph.from_ir(g)):
        with pytest.raises(errors.ModelError, match=r"(?s)onnx-ir cannot be imported.*graphcore-engine\[ir\]"):
            convert()
