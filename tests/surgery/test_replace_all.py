"""Replacing all that a pattern describes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops, patterns
from graphcore.errors import GraphError
from graphcore.ir.symbol import Node
from graphcore.support.source_lines import Imported

F32 = DType.float32
ROWS = TensorType(F32, ["n", 4])
rng = np.random.default_rng(0)
X = rng.standard_normal((3, 4)).astype(np.float32)
W = rng.standard_normal((4, 4)).astype(np.float32)


def net() -> Graph:
    """Return relu(x @ w), named `hidden`, and what two outputs make of it."""
    g = Graph("net", {"x": ROWS})
    with g.layer("dense"):
        hidden = ops.relu(g["x"] @ g.weight("w", W))
    hidden.name = "hidden"
    g.output(swish=hidden * ops.sigmoid(hidden), shifted=hidden + 1)
    return g


def run(graph: Graph, *arrays: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    return tuple(gc.InferenceSession().load(graph)(*arrays))


def node(symbol: Symbol) -> Node:
    assert isinstance(symbol.producer, Node)
    return symbol.producer


def kinds(graph: Graph) -> list[str]:
    return [n.op_type for n in graph.nodes]


def _clear_names(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        node.ClearField("name")
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _clear_names(attribute.g)


def bytes_of(graph: Graph, *, has_names: bool = True) -> bytes:
    """The graph as written: at an opset that no file has, so that no file is written as it was read."""
    model = graph.to_onnx(target="onnx", opset=26)
    if not has_names:  # new nodes have the names of their results
        _clear_names(model.graph)
    result: bytes = model.SerializeToString()
    return result


def swish(x: Any) -> Any:
    return x / (1 + np.exp(-x))


# Patterns


def test_a_pattern_is_a_function_of_symbols_in_any_order_and_dtype() -> None:
    for dtype in ("float32", "float16", "float64", "bfloat16"):
        builds: list[Callable[[Any], Symbol]] = [lambda x: x * ops.sigmoid(x), lambda x: ops.sigmoid(x) * x]
        for build in builds:
            g = Graph("g", {"x": TensorType(dtype, ["n", 4])})
            g.output(y=build(g["x"]))
            graph = g.replace_all(lambda x: x * ops.sigmoid(x), lambda x: ops.silu(x))
            assert kinds(graph) == ["Swish"]
            assert str(graph.outputs[0].type) == f"{dtype}[n, 4]"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_constants_are_those_of_the_dtype(dtype: str) -> None:
    def gelu(x: Symbol) -> Symbol:
        return 0.5 * x * (1 + ops.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))

    g = Graph("g", {"x": TensorType(dtype, [4])})
    g.output(y=gelu(g["x"]))
    graph = g.replace_all(gelu, lambda x: ops.gelu(x, "tanh"))
    assert kinds(graph) == ["Gelu"]
    with pytest.raises(GraphError, match="nothing in graph 'g' matches"):
        g.replace_all(lambda x: 0.25 * x, lambda x: x)


def layer_norm(x: Symbol, w: Symbol, b: Symbol, eps: Symbol) -> Symbol:
    d = x - ops.mean(x, axis=-1, keepdims=True)
    return d / ops.sqrt(ops.mean(patterns.either(d**2, d * d), axis=-1, keepdims=True) + eps) * w + b


@pytest.mark.parametrize("shape", [["n", 4], ["a", "b", 4], [2, 3, 3, 4]])
@pytest.mark.parametrize("axis", [-1, "last"])
def test_axes_are_those_of_any_rank(shape: list[str | int], axis: int | str) -> None:
    g = Graph("g", {"x": TensorType(F32, shape), "w": TensorType(F32, [4])})
    x, last = g["x"], len(shape) - 1 if axis == "last" else -1
    d = x - ops.mean(x, axis=last, keepdims=True)
    g.output(y=d / ops.sqrt(ops.mean(d * d, axis=last, keepdims=True) + 1e-5) * g["w"] + g["w"])
    (result,) = g.find_all(layer_norm)
    assert result["x"] is g["x"]
    assert result["w"] is result["b"] is g["w"]
    assert result.result is g.outputs[0]
    assert [n.op_type for n in result.nodes] == kinds(g)
    graph = g.replace_all(layer_norm, lambda x, eps: x * eps)
    assert kinds(graph) == ["Mul"]
    assert not g.find_all(lambda x: x - ops.mean(x, axis=0, keepdims=True))


def test_defaults_are_stated_or_not() -> None:
    g = Graph("g", {"x": ROWS})
    types = [ROWS]
    for attributes in ({}, {"axis": -1}, {"axis": 1}, {"axis": 0}):
        g.op("Softmax", [g["x"]], attributes, types)
    results = [n.outputs[0] for n in g.nodes]
    g.output(results)
    assert [m.result for m in g.find_all(lambda x: ops.softmax(x, axis=-1))] == results[:3]
    assert [m.result for m in g.find_all(lambda x: ops.softmax(x, axis=0))] == results[3:]
    assert len(g.find_all(lambda x: patterns.op("Softmax", x))) == 4, "op says nothing of what it does not state"


def test_what_a_pattern_of_ops_does_not_state_is_not_there() -> None:
    g = Graph("g", {"x": TensorType(F32, [1, 2, 8, 8]), "w": TensorType(F32, [2, 2, 3, 3])})
    results = [
        g.op("Conv", [g["x"], g["w"]], a)[0] for a in ({}, {"strides": [1, 1]}, {"strides": [2, 2]}, {"group": 1})
    ]
    g.output(results)
    matchs = g.find_all(lambda x, w: ops.onnx.Conv(x, w))
    assert [m.result for m in matchs] == [results[0], results[1], results[3]]


def test_an_operator_of_another_domain_is_named_with_it() -> None:
    g = Graph("g", {"x": ROWS})
    (y,) = g.op("Gelu", [g["x"]], {}, [ROWS], domain="com.microsoft")
    g.output(y=y)
    with pytest.raises(GraphError, match=r"did you mean 'com\.microsoft::Gelu'"):
        g.replace_all("Gelu", lambda x: x)
    graph = g.replace_all("com.microsoft::Gelu", lambda x: ops.gelu(x))
    assert [n.domain for n in graph.nodes] == [""]
    assert len(g.find_all(lambda x: patterns.op("com.microsoft::Gelu", x))) == 1


def test_operators_of_the_library_are_found_as_they_are_and_as_files_have_them() -> None:
    g = Graph("g", {"x": ROWS})
    y = ops.rsqrt(g["x"])
    g.output(y=y)
    assert len(g.find_all(lambda x: ops.rsqrt(x))) == 1
    assert len(g.find_all(f"graphcore::{node(y).op_type}")) == 1
    written = Graph.load(bytes_of(g))
    assert len(written.find_all(lambda x: ops.rsqrt(x))) == 1


def test_conditions_and_where_choose() -> None:
    g = net()
    scaled = patterns.Pattern(lambda x, w: x @ w, w=lambda s: s.is_constant)
    assert len(g.find_all(scaled)) == 1
    assert not g.find_all(patterns.Pattern(lambda x, w: x @ w, x=lambda s: s.is_constant))
    seen = []

    def is_named(match: patterns.Match) -> bool:
        seen.append(match)
        return match.result.given_name == "hidden"

    assert kinds(g.replace_all("Relu", lambda x: x, where=is_named)) == ["MatMul", "Sigmoid", "Mul", "Add"]
    assert [m.node for m in seen] == [node(g["hidden"])]
    with pytest.raises(GraphError, match="where= rejects all 1 matches"):
        g.replace_all("Relu", lambda x: x, where=lambda match: False)
    assert repr(seen[0]) == "<Match of Relu 'hidden'>"
    assert repr(g.find_all(scaled)[0]) == f"<Match of MatMul {g.nodes[0].outputs[0].name!r}: x=x, w=w>"
    with pytest.raises(GraphError, match="no parameter 'z'"):
        seen[0]["z"]


def test_values_in_a_match_that_are_used_elsewhere_stay() -> None:
    g = Graph("g", {"x": ROWS})
    s = ops.sigmoid(g["x"])
    g.output(y=g["x"] * s, s=s)
    graph = g.replace_all(lambda x: x * ops.sigmoid(x), lambda x: ops.silu(x))
    assert sorted(kinds(graph)) == ["Sigmoid", "Swish"]
    np.testing.assert_allclose(run(graph, X)[1], 1 / (1 + np.exp(-X)), rtol=1e-5)


def test_matches_do_not_overlap_and_are_taken_from_the_outputs_back() -> None:
    for count in range(2, 7):
        g = Graph("g", {"x": ROWS})
        y = g["x"]
        for _ in range(count):
            y = ops.abs(y)
        g.output(y=y)
        graph = g.replace_all(lambda x: ops.abs(ops.abs(x)), lambda x: -x)
        assert kinds(graph) == ["Abs"] * (count % 2) + ["Neg"] * (count // 2)


def test_a_shared_part_is_a_part_of_each_match() -> None:
    g = Graph("g", {"x": ROWS, "y": ROWS})
    shared = ops.exp(g["x"])
    g.output(a=shared + g["y"], b=shared + 1)
    graph = g.replace_all(lambda x, y: ops.exp(x) + y, lambda y, x: y - x)
    assert sorted(kinds(graph)) == ["Sub", "Sub"]
    np.testing.assert_allclose(run(graph, X, X * 3)[0], X * 3 - X, rtol=1e-6)
    np.testing.assert_allclose(run(graph, X, X)[1], 1 - X, rtol=1e-6)


def test_the_function_takes_parameters_by_name_or_by_position_and_other_values() -> None:
    g = net()
    assert len(g.find_all(lambda a, b: a @ b)) == 1
    named = g.replace_all(lambda a, b: a @ b, lambda b, a: a @ (b * 2))
    placed = g.replace_all(lambda a, b: a @ b, lambda x, w: x @ (w * 2))
    assert bytes_of(named) == bytes_of(placed)
    some = g.replace_all(lambda a, b: a @ b, lambda a, scale=2.0: a * scale)
    np.testing.assert_allclose(run(some, X)[1], np.maximum(X * 2, 0) + 1, rtol=1e-6)
    others = g.replace_all(lambda x: ((s := ops.sigmoid(x)) * x, s), lambda x, s: x + s)
    hidden = np.maximum(X @ W, 0)
    np.testing.assert_allclose(run(others, X)[0], hidden + 1 / (1 + np.exp(-hidden)), rtol=1e-5)


def test_the_other_results_of_a_matched_node_stay() -> None:
    g = Graph("g", {"x": ROWS})
    values, indices = ops.top_k(g["x"], 2)
    g.output(values=values, indices=indices)
    graph = g.replace_all(lambda x, k: patterns.op("TopK", x, k), lambda x, k: x[:, :2])
    np.testing.assert_array_equal(run(graph, X)[0], X[:, :2])
    np.testing.assert_array_equal(run(graph, X)[1], run(g, X)[1])


def test_operands_of_several_dtypes_are_found() -> None:
    g = Graph("g", {"x": ROWS, "c": TensorType(DType.bool, ["n", 4])})
    g.output(y=ops.where(g["c"], g["x"], 0.0))
    assert len(g.find_all(lambda c, x: ops.where(c, x, 0.0))) == 1
    graph = g.replace_all(lambda c, x: ops.where(c, x, 0.0), lambda c, x: x * c.cast("float32"))
    np.testing.assert_array_equal(run(graph, X, X > 0)[0], np.maximum(X, 0))


def test_sizes_are_not_numbers_that_happen_to_be_equal() -> None:
    def by_size(x: Symbol) -> Symbol:
        return x / float(int(x.shape[-1]))

    for size in (8, 19, 23):
        g = Graph("g", {"x": TensorType(F32, [2, size])})
        g.output(y=g["x"] / float(size))
        with pytest.raises(GraphError, match="a pattern"):
            g.replace_all(by_size, lambda x: x)
        assert len(g.find_all(lambda x, size=size: x / float(size))) == 1, "a parameter with a default is not a value"


def test_an_error_of_the_function_itself_is_raised_as_it_is() -> None:
    with pytest.raises(AttributeError, match="foo"):
        net().find_all(lambda x: x.foo)
    with pytest.raises(ZeroDivisionError):
        net().replace("hidden", lambda h: 1 / 0)


def test_axes_are_counted_by_the_rank_of_the_operand() -> None:
    g = Graph("g", {"x": TensorType(F32, [2, 3, 4])})
    g.output([ops.argmax(g["x"], axis=axis) for axis in (0, 1, 2)])
    for axis in (0, 1, 2, -1, -2, -3):
        (result,) = g.find_all(lambda x, axis=axis: ops.argmax(x, axis=axis))
        assert result.result is g.outputs[axis]


def test_a_later_result_of_a_node_is_that_one() -> None:
    g = Graph("g", {"x": ROWS})
    values, indices = ops.top_k(g["x"], 2)
    g.output(a=ops.abs(values), b=ops.abs(indices))
    (result,) = g.find_all(lambda x: ops.abs(ops.top_k(x, 2)[1]))
    assert result.result is g.outputs[1]
    (result,) = g.find_all(lambda x: ops.abs(ops.top_k(x, 2)[0]))
    assert result.result is g.outputs[0]
    with pytest.raises(GraphError, match="ends in a second or later result"):
        g.find_all(lambda x: ops.top_k(x, 2)[1])


def test_nothing_that_matches_is_an_error_unless_it_may_be() -> None:
    g = net()
    patterns_: list[Any] = ["Tanh", lambda x: ops.tanh(x), "relu"]
    for pattern in patterns_:
        with pytest.raises(GraphError, match="nothing in graph 'net' matches"):
            g.replace_all(pattern, lambda x: x)
        assert bytes_of(g.replace_all(pattern, lambda x: x, missing_ok=True)) == bytes_of(g)


# Third-party models


def of_package(package: str, path: str) -> Graph:
    result = importlib.util.find_spec(package)
    if result is None or not result.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    file = Path(result.submodule_search_locations[0]) / path
    if not file.exists():
        pytest.skip(f"{package} has no {path}")
    return Graph.load(file)


MODELS = [
    ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx"),
    ("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
    ("silero_vad", "data/silero_vad.onnx"),
    ("nudenet", "320n.onnx"),
    ("magika", "models/standard_v3_3/model.onnx"),
    ("piper", "tashkeel/model.onnx"),
]


@pytest.mark.parametrize(("package", "path"), MODELS)
def test_a_model_of_others_keeps_what_is_not_replaced(package: str, path: str) -> None:
    g = of_package(package, path)
    assert bytes_of(g.replace(g.outputs[0], lambda v: v)) == bytes_of(g)
    before = bytes_of(g, has_names=False)
    for pattern, fn in (("Relu", lambda x: ops.relu(x)), ("Sigmoid", lambda x: ops.sigmoid(x))):
        graph = g.replace_all(pattern, fn, missing_ok=True)
        assert bytes_of(graph, has_names=False) == before
        changed = [n for n in graph.nodes if not isinstance(n.origin, Imported)]
        assert {n.op_type for n in changed} <= {pattern}
        for name, symbol in graph.weights.items():
            assert symbol.producer.array is g.weights[name].producer.array  # type: ignore[union-attr]


def test_a_model_of_others_has_its_nodes_and_their_origin() -> None:
    helper = onnx.helper
    value = helper.make_tensor_value_info
    proto = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("MatMul", ["x", "w"], ["h"]),
                helper.make_node("Relu", ["h"], ["r"]),
                helper.make_node("Sigmoid", ["r"], ["s"]),
                helper.make_node("Mul", ["s", "r"], ["y"]),
            ],
            "theirs",
            [value("x", onnx.TensorProto.FLOAT, ["n", 4])],
            [value("y", onnx.TensorProto.FLOAT, ["n", 4])],
            [onnx.numpy_helper.from_array(W, "w")],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    g = Graph.load(proto)
    graph = g.replace_all(lambda x: x * ops.sigmoid(x), lambda x: ops.silu(x))
    assert [(n.op_type, isinstance(n.origin, Imported)) for n in graph.nodes] == [
        ("MatMul", True),
        ("Relu", True),
        ("Swish", False),
    ]
    assert [s.name for s in graph.outputs] == ["y"]
    assert graph.weights["w"].producer.array is g.weights["w"].producer.array  # type: ignore[union-attr]
    np.testing.assert_allclose(run(graph, X)[0], swish(np.maximum(X @ W, 0)), rtol=1e-5)


SWISH = [("nudenet", "320n.onnx", (1, 3, 320, 320), 57), ("piper", "tashkeel/model.onnx", None, 9)]


@pytest.mark.parametrize(("package", "path", "shape", "count"), SWISH)
def test_a_model_of_others_gives_the_same_with_one_node_for_several(
    package: str, path: str, shape: tuple[int, ...] | None, count: int
) -> None:
    g = of_package(package, path)
    assert len(g.find_all(lambda x: x * ops.sigmoid(x))) == count
    graph = g.replace_all(lambda x: x * ops.sigmoid(x), lambda x: ops.silu(x))
    assert len(graph.nodes) == len(g.nodes) - count
    if shape is not None:
        image = rng.random(shape).astype(np.float32)
        for item, want in zip(run(graph, image), run(g, image), strict=True):
            np.testing.assert_allclose(item, want, rtol=1e-3, atol=1e-3)


def test_layer_norms_of_a_model_of_others_are_found() -> None:
    g = of_package("piper", "tashkeel/model.onnx")
    pattern = patterns.Pattern(layer_norm, w=lambda s: s.is_constant, eps=lambda s: s.is_constant)
    assert len(g.find_all(pattern)) == 16
    graph = g.replace_all(
        pattern, lambda x, w, b: ops.layer_norm(x, w, b, epsilon=1e-5), where=lambda m: m.node.line is not None
    )
    assert not graph.find_all(pattern)
    graph.verify()
    assert graph.to_onnx().graph.node
