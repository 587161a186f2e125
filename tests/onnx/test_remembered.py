"""The tables of the reader over nodes and models: they do not grow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphcore as gc
from graphcore import Graph
from graphcore.errors import ModelError
from graphcore.onnx.read import bodies, statements
from graphcore.onnx.schemas import node_inference


def save(path: Path, nodes: list[onnx.NodeProto], results: list[str], rank: int = 2) -> str:
    dims: list[int | str] = ["n", 4, 4]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims[:rank])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], outputs), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, path)
    return str(path)


def test_large_constants_of_nodes_are_read_as_they_are_in_the_file(tmp_path: Path) -> None:
    first, second = (np.random.default_rng(i).standard_normal((4, 1024)).astype(np.float32) for i in (0, 1))
    nodes = [
        helper.make_node("Constant", [], ["small"], value=numpy_helper.from_array(np.ones(4, np.float32))),
        helper.make_node("Constant", [], ["a"], value=numpy_helper.from_array(first)),
        helper.make_node("Add", ["x", "small"], ["sum"]),
        helper.make_node("Constant", [], ["b"], value=numpy_helper.from_array(second)),
        helper.make_node("MatMul", ["sum", "a"], ["p"]),
        helper.make_node("MatMul", ["sum", "b"], ["q"]),
    ]
    path = save(tmp_path / "m.onnx", nodes, ["p", "q"])
    x = np.random.default_rng(2).standard_normal((3, 4)).astype(np.float32)
    p, q = gc.InferenceSession().load(Graph.load(path))(x)
    np.testing.assert_allclose(p, (x + 1) @ first, rtol=1e-5)
    np.testing.assert_allclose(q, (x + 1) @ second, rtol=1e-5)


def test_large_constant_of_another_size_than_it_says_is_refused(tmp_path: Path) -> None:
    tensor = numpy_helper.from_array(np.zeros((4, 1024), np.float32), "w")
    tensor.dims[1] = 1000
    nodes = [helper.make_node("Constant", [], ["a"], value=tensor), helper.make_node("MatMul", ["x", "a"], ["y"])]
    with pytest.raises(ModelError, match=r"tensor 'w' is float32\[4, 1000\], but holds 16384 bytes"):
        Graph.load(save(tmp_path / "m.onnx", nodes, ["y"]))


def test_attributes_of_like_nodes_are_lists_of_their_own(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Transpose", ["t"], ["y"], perm=[1, 0]),
    ]
    path = save(tmp_path / "m.onnx", nodes, ["y"])
    for _ in range(2):
        first, second = Graph.load(path).nodes
        assert first.attributes["perm"] == second.attributes["perm"] == [1, 0]
        first.attributes["perm"].append(2)


def test_faults_of_one_of_many_like_nodes_are_found(tmp_path: Path) -> None:
    like = [helper.make_node("Softmax", ["x"], [f"y{i}"], axis=1) for i in range(5)]
    path = save(tmp_path / "right.onnx", like, ["y0"])
    assert len(Graph.load(path).nodes) == 5
    wrong = [*like, helper.make_node("Softmax", ["x"], ["z"], axis=2)]
    with pytest.raises(ModelError, match="axis is 2, but the operand has 2 axes"):
        Graph.load(save(tmp_path / "axis.onnx", wrong, ["z"]))
    more = [*like, helper.make_node("Softmax", ["x", "x"], ["z"], axis=1)]
    with pytest.raises(ModelError, match="has 2 operands, but needs 1"):
        Graph.load(save(tmp_path / "operands.onnx", more, ["z"]))
    with pytest.raises(ModelError, match="axis is 1, but the operand has 1 axes"):
        Graph.load(save(tmp_path / "rank.onnx", like, ["y0"], rank=1))


def test_what_is_remembered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (bodies, node_inference, statements):
        monkeypatch.setattr(module, "_MAX_REMEMBERED", 8)
    nodes = [helper.make_node("Softmax", [f"t{i}"], [f"y{i}"], axis=i % 2 - i // 30) for i in range(30)]
    nodes = [helper.make_node("LeakyRelu", ["x"], [f"t{i}"], alpha=float(i)) for i in range(30)] + nodes
    for number in range(2):
        graph = Graph.load(save(tmp_path / f"{number}.onnx", nodes, ["y29"]))
        assert [n.attributes["alpha"] for n in graph.nodes[:30]] == [float(i) for i in range(30)]
    for table in (node_inference._answers, bodies._remembered, statements.signatures):
        assert len(table) <= 4096
    assert len(statements.signatures) <= 8
