"""`Graph.optimize`: all passes together change no bit, no name and no type."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import graphcore as gc
from benchmarks.bench_fewer_nodes import count
from graphcore import DType, Graph, Symbol, TensorType, load_tensors, ops, passes
from graphcore.arrays.casting import cast_array
from graphcore.errors import GraphError
from graphcore.ir.graph import TargetName
from graphcore.ir.symbol import Constant
from graphcore.models import minilm
from graphcore.support.source_lines import Imported
from tests.sampling import drawn
from tests.support.optimised import assert_same, bits, f32, graph_of, i8, operators, run, unchanged, vector
from tests.support.trained import PACKAGES, models


def test_optimize_keeps_names_layers_lines_weights_and_metadata() -> None:
    array = np.ones(4, np.float32)
    graph = Graph("kept", {"x": vector(DType.float32, "batch", 4)}, promotion="array_api", strict=True)
    graph.metadata["author"] = "someone"
    with graph.layer("block"):
        hidden = (graph["x"] * 1.0) @ graph.weight("w", np.ones((4, 4), np.float32)) + graph.weight("b", array)
    hidden.name = "hidden"
    twice = unchanged(hidden)
    graph.output(ops.exp(twice), copy=twice)
    before = str(graph)
    changed = graph.optimize()
    assert str(graph) == before
    assert operators(changed) == ["MatMul", "Add", "Exp"]
    assert list(changed.output_types) == list(graph.output_types)
    assert changed["hidden"].producer.layer == "block/"  # type: ignore[union-attr]
    assert changed["hidden"].line == hidden.line
    producer = changed["b"].producer
    assert isinstance(producer, Constant)
    assert producer.array is array
    assert (changed.promotion, changed.strict, changed.metadata) == (graph.promotion, True, graph.metadata)
    restored = pickle.loads(pickle.dumps(changed))
    assert str(restored) == str(changed)
    assert [bits(a) for a in run(restored, np.eye(4, dtype=np.float32))] == [
        bits(a) for a in run(graph, np.eye(4, dtype=np.float32))
    ]


def test_optimize_where_outputs_are_inputs_and_each_other() -> None:
    graph = Graph("test", {"x": vector(), "y": vector()})
    x, y = graph.inputs
    graph.output(x, x * 1.0, named=unchanged(y), twice=x * 1.0, known=graph.constant([1.0]) + 1.0)
    result = assert_same(graph, f32([1, -0.0]), f32([np.nan, 2]))
    assert not result.nodes
    for target in ("onnx", "cpu"):
        model = result.to_onnx(target=target)
        onnx.checker.check_model(model, full_check=True)
        assert [o.name for o in model.graph.output] == list(graph.output_types)
    assert result.optimize().output_types == result.output_types == graph.output_types


@pytest.mark.parametrize("target", ["onnx", "cpu"])
def test_export_optimizes_where_it_is_told_to(target: TargetName, tmp_path: Path) -> None:
    graph = graph_of(lambda x: ops.exp(unchanged(x)), vector(), output="y")
    assert [n.op_type for n in graph.to_onnx(target=target, optimize="exact").graph.node] == ["Exp"]
    assert len(graph.to_onnx(target=target).graph.node) == 3
    graph.export(tmp_path / "model.onnx", target=target, optimize="exact")
    assert [n.op_type for n in onnx.load(tmp_path / "model.onnx").graph.node] == ["Exp"]


def test_optimize_refuses_what_it_does_not_know() -> None:
    graph = Graph("test", {"x": vector()})
    with pytest.raises(GraphError, match="no outputs"):
        graph.optimize()
    graph.output(graph["x"] + 1.0)
    with pytest.raises(GraphError, match="'unroll' is not a pass"):
        graph.optimize(["unroll"])
    with pytest.raises(GraphError, match="limit must be a number of bytes, got -1"):
        graph.optimize(limit=-1)
    assert len(graph.optimize([]).nodes) == 1
    assert len(graph.optimize([passes.dead_code, "remove_identities"]).nodes) == 1


def test_optimize_goes_into_bodies() -> None:
    graph = Graph("test", {"x": vector(DType.float32, 3), "flag": TensorType(DType.bool, [])})
    x, flag = graph.inputs
    outside = x.cast(DType.float64).cast(DType.float32)  # what bodies capture is simplified outside
    unused = ops.sin(x)
    del unused
    expected = graph.constant(f32([2]))
    graph.output(
        ops.cond(
            flag,
            lambda: (unchanged(outside), ops.exp(outside * (expected + expected))),
            lambda: (outside + 1.0, outside),
        )
    )
    for value in (False, True):
        result = assert_same(graph, f32([1, -0.0, np.inf]), np.array(value))
    (node,) = result.nodes
    assert node.op_type == "If"
    then, otherwise = node.attributes["then_branch"], node.attributes["else_branch"]
    assert operators(then) == ["Neg", "Neg", "Mul", "Exp"]  # a result of a body is that of a node of its own
    assert operators(otherwise) == ["Add", "Identity"]
    assert str(pickle.loads(pickle.dumps(result))) == str(result)
    onnx.checker.check_model(result.to_onnx(), full_check=True)
    assert operators(result.optimize()) == operators(result)


def test_optimize_refuses_a_body_alone() -> None:
    graph = Graph("test", {"x": vector(), "flag": TensorType(DType.bool, [])})
    x, flag = graph.inputs
    graph.output(ops.cond(flag, lambda: x + 1.0, lambda: x))
    with pytest.raises(GraphError, match="is a body"):
        graph.nodes[0].attributes["then_branch"].optimize()


def test_optimize_leaves_dtypes_that_are_only_a_default() -> None:
    graph = Graph("test", {"x": vector(DType.float64, 3)}, promotion="anvil")
    expected = graph.constant([1.0, 2.0, 3.0], ambiguous=True)
    tenth = graph.constant([0.1, 0.1, 0.1], ambiguous=True)
    graph.output(graph["x"] + (expected + tenth), graph["x"] * (expected + tenth))
    result = assert_same(graph, np.array([1.1, 2.2, 3.3]))
    assert operators(result) == operators(graph)


def test_optimize_of_expressions_of_many_terms() -> None:
    graph = Graph("test", {"x": vector(DType.int(5), 3), "y": vector(DType.int(9), 3)}, promotion="allo_hls")
    x, y = graph.inputs
    graph.output(x + y + x + y, (x + y) * 1, x * y * x - (-x), unchanged(x))
    result = assert_same(graph, i8([1, -16, 15]), np.array([255, -256, 3], np.int16))
    assert len(result.nodes) < len(graph.nodes)


def test_optimize_of_a_loop() -> None:
    graph = Graph("test", {"x": vector(DType.float32, 3)})
    x = graph["x"]
    graph.output(ops.while_loop(lambda y: ops.sum(y * 1.0) < 100.0, lambda y: unchanged(y + x) + x * 1.0, x))
    assert_same(graph, f32([1, 2, 3]))


def test_optimize_goes_into_functions() -> None:
    @gc.function
    def gated(x: Symbol, w: Symbol) -> Symbol:
        return unchanged(ops.exp(unchanged(x @ w) * 1.0)) + 1.0

    graph = Graph("test", {"x": vector(DType.float32, 3, 3), "w": vector(DType.float32, 3, 3)})
    x, w = graph.inputs
    graph.output(gated(gated(x, w) * 0.001, w) + gated(x, w))
    result = assert_same(graph, np.eye(3, dtype=np.float32), np.ones((3, 3), np.float32))
    calls = [node.attributes["definition"] for node in result.nodes if "definition" in node.attributes]
    assert len(calls) == 3
    assert all(call is calls[0] for call in calls)
    assert operators(calls[0].body) == ["MatMul", "Exp", "Add"]
    assert str(pickle.loads(pickle.dumps(result))) == str(result)
    assert str(result.optimize()) == str(result)


def test_optimize_of_minilm() -> None:
    graph = minilm.build(load_tensors(Path(minilm.folder()) / "model.safetensors"))
    changed = graph.optimize()
    assert len(graph.optimize(passes.BASIC).nodes) == len(graph.nodes)  # nothing is built twice
    assert len(changed.nodes) == len(graph.nodes) - 2  # views of views are one, but for those that check a rebind
    assert {name: id(s.producer.array) for name, s in changed.weights.items()} == {  # type: ignore[union-attr]
        name: id(s.producer.array)  # type: ignore[union-attr]
        for name, s in graph.weights.items()
    }
    ids = np.array([[101, 2023, 2003, 102], [101, 7592, 102, 0]], np.int64)
    feeds = ids, (ids != 0).astype(np.int64)
    for one, other in zip(run(graph, *feeds), run(changed, *feeds), strict=True):
        assert bits(one) == bits(other)


# Nodes that ONNX refuses, which `Graph.op` makes


@pytest.mark.parametrize(
    ("operator", "count"), [("Add", 1), ("Add", 3), ("Equal", 1), ("Equal", 3), ("And", 3), ("Not", 2), ("Neg", 0),
    ("Cast", 1), ("Concat", 2), ("Gather", 2), ("Slice", 2), ("Transpose", 2), ("Where", 2), ("BitShift", 2)],
)  # fmt: skip
def test_optimize_leaves_nodes_that_onnx_refuses(operator: str, count: int) -> None:
    graph = Graph("test", {"x": vector()})
    arrays = [np.array([7, -9, 3], np.int32) for _ in range(count)]
    (result,) = graph.op(operator, arrays, {}, [TensorType(DType.int32, [2])])
    graph.output(result, ops.exp(graph["x"]))
    optimised = graph.optimize()
    assert sorted(operators(optimised)) == sorted([operator, "Exp"])
    for symbol in optimised.symbols:
        if isinstance(symbol.producer, Constant):
            assert symbol.producer.array.tolist() == [7, -9, 3]


# Models that others wrote


def _model() -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Sigmoid", ["same"], ["s"]),
        helper.make_node("Sigmoid", ["x"], ["t"]),
        helper.make_node("Exp", ["x"], ["unused"]),
        helper.make_node("Add", ["s", "t"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "read", [info("x", TensorProto.FLOAT, ["n"])], [info("y", TensorProto.FLOAT, ["n"])]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_optimize_of_a_model_that_others_wrote() -> None:
    graph = Graph.load(_model())
    built = ops.sigmoid(graph["x"])
    graph.build.outputs([*(graph.named_outputs or []), ("built", built)])
    result = assert_same(graph, f32([-90, -20, 0, 20]))
    assert operators(result) == ["Sigmoid", "Add", *(n.op_type for n in [built.producer])]  # type: ignore[union-attr]
    for one in (result, result.optimize()):
        results = [type(node.origin) is Imported for node in one.nodes]
        assert results == [True, True, False], "nodes that were read keep the runtime's kernel, and no others have it"


# Any graph


def _unary(x: Symbol, which: int) -> Symbol:
    table: tuple[Callable[[Symbol], Symbol], ...] = (
        lambda x: -x if not x.dtype.is_unsigned and x.dtype is not DType.bool else x,
        lambda x: x.cast(DType.float32),
        lambda x: x.cast(DType.float16),
        lambda x: x.cast(DType.int8),
        lambda x: x.cast(DType.int32),
        lambda x: x.permute(1, 0),
        lambda x: x.reshape(2, 2),
        lambda x: x.reshape(4).reshape(2, 2),
        lambda x: x[0:2],
        lambda x: x.graph.op("Identity", [x])[0],
    )
    return table[which % len(table)](x)


def _binary(x: Symbol, y: Symbol, which: int) -> Symbol:
    table: tuple[Callable[[Symbol, Symbol], Symbol], ...] = (
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * y,
        lambda x, y: ops.where(x < y, x, y),
        lambda x, y: x + 0,
        lambda x, y: x * 1,
    )
    return table[which % len(table)](x, y)


@settings(max_examples=drawn(40), deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 59), st.integers(0, 99), st.integers(0, 99)), max_size=20),
    st.sampled_from([DType.float32, DType.float16, DType.int8, DType.int32]),
    st.lists(st.integers(0, 99), min_size=1, max_size=3),
)
@pytest.mark.filterwarnings("ignore::graphcore.errors.LossyCastWarning")
def test_optimize_changes_no_bit_of_any_graph(
    steps: list[tuple[bool, int, int, int]], dtype: DType, chosen: list[int]
) -> None:
    graph = Graph("drawn", {"x": TensorType(dtype, [2, 2]), "y": TensorType(DType.float32, [2, 2])})
    values = [
        *graph.inputs,
        graph.constant(f32([[0.0, -0.0], [1.0, 2.5]])),
        graph.constant(i8([[-128, 1]])),
    ]
    values[3] = ops.concat([values[3], values[3]])
    for is_unary, which, i, j in steps:
        x, y = values[i % len(values)], values[j % len(values)]
        values.append(_unary(x, which) if is_unary else _binary(x, y, which))
    graph.output(
        **{f"y{k}": values[i % len(values)] for k, i in enumerate(dict.fromkeys(c % len(values) for c in chosen))}
    )
    result = assert_same(
        graph,
        cast_array(f32([[1, -0.0], [np.inf, -3.5]]), DType.float32, dtype),
        f32([[0, -0.0], [9, -1]]),
    )
    assert len(result.nodes) <= len(graph.nodes)
    again = result.optimize()
    assert str(again) == str(result)


@pytest.mark.parametrize("package", PACKAGES)
def test_optimized_models_of_packages_have_no_more_nodes_than_their_files(package: str) -> None:
    for path in models(package, 1 << 26):
        before = onnx.load(path, load_external_data=False)
        after = Graph.load(path).optimize().to_onnx(target="onnx", optimize="off")
        assert count(after) <= count(before), path
