"""Initializers of models that were read are constants to `Graph.optimize`, unless they are kept or replaced before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphcore as gc
from graphcore import Graph
from graphcore.errors import GraphError, ModelError
from tests.support.optimised import Array, f32, operators

W = np.arange(12, dtype=np.float32).reshape(3, 4)
X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)


def _value(name: str, shape: list[int | str], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _i64(values: Any) -> Array:
    return np.array(values, np.int64)


def _model(nodes: list[onnx.NodeProto], **arrays: Array) -> onnx.ModelProto:
    results = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "read", [_value("x", ["n", 3])], [_value("y", ["n", "m"])], results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _scaled() -> onnx.ModelProto:
    """x @ (w * scale + shift): two nodes that constants give."""
    nodes = [
        helper.make_node("Mul", ["w", "scale"], ["a"]),
        helper.make_node("Add", ["a", "shift"], ["b"]),
        helper.make_node("MatMul", ["x", "b"], ["y"]),
    ]
    return _model(nodes, w=W, scale=f32([2]), shift=f32([0.5]))


def _run(model: onnx.ModelProto, x: Array) -> Array:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    result: Array = session.run(None, {"x": x})[0]
    return result


def test_optimize_folds_initializers_bit_for_bit() -> None:
    model = _scaled()
    graph = Graph.load(model).optimize()
    assert operators(graph) == ["MatMul"]
    assert _run(graph.to_onnx(target="onnx"), X).tobytes() == _run(model, X).tobytes()
    assert not graph.weights


@pytest.mark.parametrize("name", ["w", "scale", "shift"])
def test_replacing_a_folded_weight_names_the_pass(name: str) -> None:
    changed = Graph.load(_scaled()).optimize()
    array = {"w": W}.get(name, f32([3]))
    for graph in (changed, changed.copy(), changed.with_dims(n=2), changed.optimize()):
        with pytest.raises(GraphError, match=rf"with_weights: weight '{name}' cannot be replaced.*pass fold_constants"):
            graph.with_weights({name: array})
    with pytest.raises(GraphError, match=rf"with_inputs: weight '{name}' cannot be replaced"):
        changed.with_inputs("x", name)
    with pytest.raises(ModelError, match=rf"optimize folded cannot be replaced: '{name}', by the pass fold_constants"):
        gc.InferenceSession().load(changed, weights={name: array})


def test_optimize_keeps_weights_that_can_be_replaced() -> None:
    graph = Graph.load(_scaled())
    for keep in ("scale", ["sc*"], "*"):
        changed = graph.optimize(keep=keep)
        assert "scale" in changed.weights
        other = changed.with_weights({"scale": f32([3])})
        assert _run(other.to_onnx(target="onnx"), X).tobytes() == (X @ (W * 3 + f32(0.5))).tobytes()
    assert operators(graph.optimize(keep="*")) == ["Mul", "Add", "MatMul"]
    assert operators(graph.optimize(keep="shift")) == ["Add", "MatMul"]


def test_optimize_leaves_a_weight_that_was_replaced_a_weight() -> None:
    graph = Graph.load(_scaled()).with_weights({"scale": f32([3])})
    changed = graph.optimize()
    assert {*changed.weights} == {"w", "scale", "shift"}
    assert operators(changed) == ["Mul", "Add", "MatMul"]


def test_optimize_refuses_patterns_that_match_no_weight() -> None:
    graph = Graph.load(_scaled())
    with pytest.raises(GraphError, match="no weight is called 'scales'") as raised:
        graph.optimize(keep="scales")
    assert "'scale'" in str(raised.value)
    with pytest.raises(GraphError, match="keep must contain names or patterns, got 3"):
        graph.optimize(keep=[3])  # type: ignore[list-item]


def test_a_weight_that_is_read_elsewhere_too_cannot_be_replaced_by_halves() -> None:
    nodes = [
        helper.make_node("Mul", ["w", "scale"], ["a"]),
        helper.make_node("MatMul", ["x", "a"], ["b"]),
        helper.make_node("MatMul", ["x", "w"], ["c"]),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    graph = Graph.load(_model(nodes, w=W, scale=f32([2]))).optimize()
    assert [*graph.weights] == ["w"]
    with pytest.raises(GraphError, match="pass fold_constants"):
        graph.with_weights({"w": W})


def test_equal_initializers_become_one() -> None:
    nodes = [
        helper.make_node("Mul", ["x", "one"], ["a"]),
        helper.make_node("Mul", ["x", "other"], ["b"]),
        helper.make_node("Sub", ["a", "b"], ["y"]),
    ]
    graph = Graph.load(_model(nodes, one=f32([2]), other=f32([2]))).optimize()
    assert operators(graph) == ["Mul", "Sub"]
    for name in ("one", "other"):
        with pytest.raises(GraphError, match="pass common_subexpressions"):
            graph.with_weights({name: f32([1])})


def test_folding_is_bounded_by_the_limit_or_by_what_it_replaces() -> None:
    large = np.ones((3, 100_000), np.float32)
    nodes = [helper.make_node("Transpose", ["large"], ["t"]), helper.make_node("Transpose", ["t"], ["u"], perm=[1, 0]),
             helper.make_node("Neg", ["u"], ["v"]), helper.make_node("MatMul", ["x", "v"], ["y"])]  # fmt: skip
    graph = Graph.load(_model(nodes, large=large)).optimize(limit=64)
    assert operators(graph) == ["MatMul"]  # as large as what goes
    nodes = [helper.make_node("Expand", ["one", "shape"], ["v"]), helper.make_node("MatMul", ["x", "v"], ["y"])]
    grown = _model(nodes, one=f32([[1]]), shape=_i64([3, 1000]))
    assert operators(Graph.load(grown).optimize(limit=64)) == ["Expand", "MatMul"]
    assert operators(Graph.load(grown).optimize()) == ["MatMul"]


def test_parts_of_a_large_weight_are_folded_where_they_are_all_of_it() -> None:
    large = np.arange(3 * 90_000, dtype=np.float32).reshape(3, 90_000)
    bounds = {f"p{i}": _i64([i * 30_000]) for i in range(4)}
    parts = [helper.make_node("Slice", ["large", f"p{i}", f"p{i + 1}", "one"], [f"c{i}"]) for i in range(3)]
    joined = helper.make_node("Concat", ["c1", "c0", "c2"], ["v"], axis=1)
    product = helper.make_node("MatMul", ["x", "v"], ["y"])
    graph = Graph.load(_model([*parts, joined, product], large=large, one=_i64([1]), **bounds))
    changed = graph.optimize(limit=64)
    assert operators(changed) == ["MatMul"]
    another = [*parts[:1], helper.make_node("MatMul", ["x", "large"], ["b"]),
               helper.make_node("MatMul", ["x", "c0"], ["a"]),
               helper.make_node("Concat", ["a", "b"], ["y"], axis=1)]  # fmt: skip
    graph = Graph.load(_model(another, large=large, one=_i64([1]), **bounds))
    assert "Slice" in operators(graph.optimize(limit=64))  # the weight stays, and a part would come on top


def test_all_that_is_folded_is_bounded() -> None:
    names = [f"s{i}" for i in range(40)]
    nodes = [helper.make_node("Expand", [name, "shape"], [f"{name}e"]) for name in names]
    nodes += [helper.make_node("MatMul", ["x", f"{name}e"], [f"{name}m"]) for name in names]
    nodes += [helper.make_node("Sum", [f"{name}m" for name in names], ["y"])]
    arrays = {name: f32([[i]]) for i, name in enumerate(names)}
    graph = Graph.load(_model(nodes, shape=_i64([3, 10]), **arrays)).optimize(limit=120)
    count = operators(graph).count("Expand")
    assert 40 - 17 <= count < 40  # 16 times the limit, and what goes with them


def test_initializers_of_a_file_are_still_those_of_the_graph(tmp_path: Path) -> None:
    onnx.save(_scaled(), tmp_path / "model.onnx")
    graph = Graph.load(tmp_path / "model.onnx")
    before = {name: s.producer.array.tobytes() for name, s in graph.weights.items()}  # type: ignore[union-attr]
    graph.optimize()
    assert {name: s.producer.array.tobytes() for name, s in graph.weights.items()} == before  # type: ignore[union-attr]
    assert not graph.folded
