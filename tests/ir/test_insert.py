"""Symbol.insert_transformation: nodes between a value and its uses."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, InferenceSession, Symbol, TensorType, ops, quantization
from graphcore.errors import DTypeError, GraphError, RunError, ShapeError
from graphcore.ir.symbol import Captured
from graphcore.support.source_lines import Imported
from tests.sampling import drawn

X = np.array([[0.0, 0.5], [1.0, -2.0]], np.float32)


def graph_of(promotion: str = "max") -> Graph:
    return Graph("edited", {"x": TensorType(DType.float32, ["n", 2])}, promotion=promotion)


def run(graph: Graph, *arrays: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    check(graph)
    return InferenceSession().load(graph)(*(arrays or (X,)))


def check(graph: Graph) -> None:
    """That every Symbol has its place as its number, and is made before it is read."""
    graph.verify()
    assert [s.id for s in graph.symbols] == list(range(len(graph.symbols)))
    results = [node.outputs[0].id for node in graph.nodes if node.outputs]
    assert results == sorted(results)
    for node in graph.nodes:
        for value in node.attributes.values():
            if isinstance(value, Graph):
                for number, captured in value.scope.captured.items():
                    assert isinstance(captured.producer, Captured)
                    assert graph.symbols[number] is captured.producer.symbol


@pytest.mark.parametrize("which", ["x", "h"])
def test_sizes_that_were_put_together_later_are_found_by_the_transformation(which: str) -> None:
    graph = Graph("edited", {"x": TensorType(DType.float32, ["n", "m"])})
    x = graph["x"]
    n, m = x.shape
    h = ops.exp(x)
    graph.output(y=h.reshape(n * m, 1).reshape(n, m, 1, 1))
    value = x if which == "x" else h
    value.insert_transformation(lambda s: s.reshape(n * m).reshape(n, m, 1, 1).reshape(n, m) * 2)
    (y,) = run(graph)
    np.testing.assert_allclose(y[..., 0, 0], np.exp(2 * X) if which == "x" else 2 * np.exp(X), rtol=1e-6)


def test_everything_reads_the_result_but_the_transformation() -> None:
    graph = graph_of()
    h = ops.exp(graph["x"])
    graph.output(a=h * 2, b=h + h, c=ops.sum(h))
    result = h.insert_transformation(lambda s: s * 10)
    want = np.exp(X) * 10
    a, b, c = run(graph)
    np.testing.assert_allclose(a, want * 2, rtol=1e-6)
    np.testing.assert_allclose(b, want + want, rtol=1e-6)
    np.testing.assert_allclose(c, want.sum(), rtol=1e-6)
    assert result.type is h.type
    assert result.id == h.id + 2  # after the constant 10


def test_later_uses_read_the_symbol_itself() -> None:
    graph = graph_of()
    h = ops.exp(graph["x"])
    before = h.cast(DType.float16)
    result = h.insert_transformation(lambda s: s.cast(DType.float16).cast(DType.float32) * 10)
    after, cast = h + 0.5, h.cast(DType.float16)
    assert result.cast(DType.float16) is before
    graph.output(before, after, cast)
    seen = run(graph)
    exact = np.exp(X)
    np.testing.assert_array_equal(seen[0], (exact.astype(np.float16).astype(np.float32) * 10).astype(np.float16))
    np.testing.assert_allclose(seen[1], exact + 0.5, rtol=1e-6)
    np.testing.assert_array_equal(seen[2], exact.astype(np.float16))


def test_outputs_change_and_keep_their_names() -> None:
    graph = graph_of()
    h = ops.exp(graph["x"])
    graph.output(h, graph["x"], y=h, z=h + 1)
    names = list(graph.output_types)
    text = str(h.name)
    h.insert_transformation(lambda s: -s)
    assert list(graph.output_types) == names
    seen = run(graph)
    np.testing.assert_allclose(seen[0], -np.exp(X), rtol=1e-6)
    np.testing.assert_array_equal(seen[1], X)
    np.testing.assert_array_equal(seen[2], seen[0])
    np.testing.assert_allclose(seen[3], 1 - np.exp(X), rtol=1e-6)
    assert list(InferenceSession().load(graph).outputs) == names
    assert h.name != text


def test_outputs_without_a_name_keep_the_one_they_had_by_number() -> None:
    graph = graph_of()
    h = ops.exp(graph["x"])
    graph.output(h + 1, ops.abs(h))
    names = list(graph.output_types)
    h.insert_transformation(lambda s: ops.tanh(ops.tanh(s)))
    assert list(graph.output_types) == names
    assert list(InferenceSession().load(graph).outputs) == names


def test_inputs_weights_and_constants_can_be_transformed() -> None:
    graph = Graph("leaves", {"x": TensorType(DType.float32, [2, 2])})
    x, w = graph["x"], graph.weight("w", X)
    c = graph.constant(X, name="c")
    graph.output(y=x + w + c, x_again=x)
    x.insert_transformation(lambda s: s * 10)
    w.insert_transformation(lambda s: s * 100)
    c.insert_transformation(lambda s: s * 1000)
    y, again = run(graph)
    np.testing.assert_allclose(y, X * 1110)
    np.testing.assert_allclose(again, X * 10)
    assert list(graph.weights) == ["w"]
    assert [s.name for s in graph.inputs] == ["x"]


def test_bodies_that_capture_the_symbol_read_the_result() -> None:
    graph = graph_of()
    h = ops.exp(graph["x"])

    def nested() -> Any:
        return ops.cond(ops.sum(h) > 1e9, lambda: h, lambda: h * 2)

    chosen = ops.cond(ops.sum(h) > 0, nested, lambda: h)
    total = ops.for_loop(3, lambda i, s: s + h, graph["x"])
    graph.output(chosen, total)
    h.insert_transformation(lambda s: s * 10)
    for each in (graph, pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph), graph.optimize()):
        first, second = run(each)
        np.testing.assert_allclose(first, np.exp(X) * 20, rtol=1e-6)
        np.testing.assert_allclose(second, X + 30 * np.exp(X), rtol=1e-6)


def test_bodies_that_capture_the_result_already_read_it_once() -> None:
    graph = graph_of()
    h, other = ops.exp(graph["x"]), graph["x"] * 3
    graph.output(ops.cond(ops.sum(h) > 0, lambda: ops.cond(ops.sum(h) > 0, lambda: h + other, lambda: h), lambda: h))
    h.insert_transformation(lambda s: other)
    np.testing.assert_allclose(run(graph)[0], np.where(X.sum() * 3 > 0, X * 6, X * 3))


def test_the_transformation_may_build_bodies_and_call_functions() -> None:
    @gc.function
    def halved(x: Symbol) -> Symbol:
        return x / 2

    graph = graph_of()
    h = ops.exp(graph["x"])
    graph.output(h + 1)
    h.insert_transformation(lambda s: ops.cond(ops.sum(s) > 0, lambda: halved(s), lambda: s))
    np.testing.assert_allclose(run(graph)[0], np.exp(X) / 2 + 1, rtol=1e-6)


def test_calls_of_functions_read_the_result_and_bodies_being_traced_can_be_edited() -> None:
    @gc.function
    def body(x: Symbol) -> Symbol:
        inner = x + 1
        result = inner * 2
        inner.insert_transformation(lambda s: s * 10)
        return result

    graph = graph_of()
    h = ops.exp(graph["x"])
    graph.output(body(h))
    h.insert_transformation(lambda s: -s)
    np.testing.assert_allclose(run(graph)[0], (1 - np.exp(X)) * 20, rtol=1e-5)


def test_what_comes_later_moves_when_the_transformation_reads_it() -> None:
    graph = graph_of()
    h = ops.exp(graph["x"])
    use = h + 1
    pieces = ops.split(ops.abs(graph["x"]), [1, 1], axis=1)
    late = ops.concat(list(pieces), axis=1) * graph.constant(X[0], name="late")
    graph.output(use, late)
    h.insert_transformation(lambda s: s * late)
    first, second = run(graph)
    np.testing.assert_array_equal(second, np.abs(X) * X[0])
    np.testing.assert_allclose(first, np.exp(X) * second + 1, rtol=1e-6)


def test_one_output_of_several_can_be_transformed() -> None:
    graph = graph_of()
    left, right = ops.split(graph["x"], [1, 1], axis=1)
    graph.output(left + right, left, right)
    left.insert_transformation(lambda s: s + right * 100)
    total, first, second = run(graph)
    np.testing.assert_array_equal(first, X[:, :1] + X[:, 1:] * 100)
    np.testing.assert_array_equal(total, first + second)


def test_sizes_are_those_of_the_symbol_where_its_type_tells_them() -> None:
    graph = graph_of()
    h = ops.exp(graph["x"])
    grid = h.reshape(-1).reshape("n", 2)
    sizes = ops.shape_of(h)
    graph.output(grid, sizes)
    h.insert_transformation(lambda s: s + ops.zeros(["n", 2], "float32") + 1)
    first, second = run(graph)
    np.testing.assert_allclose(first, np.exp(X) + 1, rtol=1e-6)
    assert second.tolist() == [2, 2]


def test_sizes_follow_the_result_where_they_are_unknown() -> None:
    graph = Graph("unknown", {"x": TensorType(DType.float32, ["?"])})
    x = graph["x"]
    graph.output(ops.shape_of(x), x * 2)
    x.insert_transformation(lambda s: ops.reshape(s[:1], ops.shape_of(s[:1]), out_dims=["?"]))
    sizes, values = run(graph, np.array([3, 4], np.float32))
    assert sizes.tolist() == [1]
    assert values.tolist() == [6]


def test_several_insertions_stack() -> None:
    graph = graph_of()
    h = ops.exp(graph["x"])
    graph.output(y=h)
    first = h.insert_transformation(lambda s: s + 1)
    h.insert_transformation(lambda s: s * 2)  # between the Symbol and the first one
    first.insert_transformation(lambda s: s * 100)
    np.testing.assert_allclose(run(graph)[0], (np.exp(X) * 2 + 1) * 100, rtol=1e-6)


def test_nothing_changes_when_the_result_is_the_symbol() -> None:
    graph = graph_of()
    h = ops.exp(graph["x"])
    half = h.cast(DType.float16)
    taps: list[Symbol] = []

    def tap(s: Symbol) -> Symbol:
        taps.append(ops.sum(s))
        return s

    assert h.insert_transformation(tap) is h
    assert h.cast(DType.float16) is half
    graph.output(h, *taps)
    np.testing.assert_allclose(run(graph)[1], np.exp(X).sum(), rtol=1e-6)


@pytest.mark.parametrize(
    ("transform", "kind", "text"),
    [
        (lambda s: s.cast(DType.float16), DTypeError, r"changes the type: float32\[n, 2\] to float16\[n, 2\]"),
        (lambda s: s[:, :1], ShapeError, r"changes the shape: \[n, 2\] to \[n, 1\]"),
        (lambda s: s + np.zeros((3, 1, 2), np.float32), ShapeError, "changes the shape"),
        (lambda s: None, GraphError, "must return a Symbol, got NoneType"),
        (lambda s: graph_of()["x"], GraphError, "belongs to graph"),
        (lambda s: graph_of()["y"], GraphError, "nothing in graph"),
    ],
)
def test_the_graph_is_as_before_when_a_transformation_fails(
    transform: Callable[[Symbol], Any], kind: type[Exception], text: str
) -> None:
    graph = graph_of()
    h = ops.exp(graph["x"])
    graph.output(h.cast(DType.float16) + h)
    before = str(graph), pickle.dumps(graph)

    def transformed(s: Symbol) -> Any:
        s.cast(DType.float64).name = "aside"
        s.print("seen")
        return transform(s)

    with pytest.raises(kind, match=text):
        h.insert_transformation(transformed)
    assert (str(graph), pickle.dumps(graph)) == before
    check(graph)
    h.name = "aside"  # the name is free again
    assert graph["aside"] is h


def test_a_quantised_tensor_is_made_a_constant_again_when_a_transformation_with_it_fails() -> None:
    graph = Graph("edited", {"x": TensorType(DType.float32, ["n", 64])})
    value = quantization.encode(np.eye(64, dtype=np.float32), "int8")
    hidden = graph[0] * 2

    def fail(h: Symbol) -> Symbol:
        y = ops.qmatmul("int8", h, value)
        raise ValueError(f"Symbol {y.id}")

    with pytest.raises(ValueError, match="Symbol"):
        hidden.insert_transformation(fail)
    graph.output(ops.qmatmul("int8", hidden, value))
    x = np.ones((1, 64), np.float32)
    np.testing.assert_allclose(run(graph, x)[0], 2 * x, rtol=1e-2)


def test_a_result_made_of_what_reads_the_symbol_is_refused() -> None:
    graph = graph_of()
    h = ops.exp(graph["x"])
    use = h + 1
    chosen = ops.cond(ops.sum(graph["x"]) > 0, lambda: h, lambda: h)
    for reads in (use, use * 2, chosen):
        with pytest.raises(GraphError, match="would depend on itself"):
            h.insert_transformation(functools.partial(ops.add, reads))
    graph.output(use)
    np.testing.assert_allclose(run(graph)[0], np.exp(X) + 1, rtol=1e-6)


def test_symbols_of_bodies_are_refused_from_outside_and_the_other_way_round() -> None:
    graph = graph_of()
    x = graph["x"]
    inside: list[Symbol] = []

    def edits_around() -> Symbol:
        with pytest.raises(GraphError, match="has a body under construction"):
            x.insert_transformation(ops.exp)
        inside.append(ops.exp(x))
        result = inside[0] + 1
        inside[0].insert_transformation(lambda s: s * 10)
        return result

    graph.output(ops.cond(ops.sum(x) > -1e9, edits_around, lambda: x))
    with pytest.raises(GraphError, match="is finished"):
        inside[0].insert_transformation(ops.exp)
    np.testing.assert_allclose(run(graph)[0], np.exp(X) * 10 + 1, rtol=1e-6)


def test_constants_that_were_cast_are_refused() -> None:
    graph = graph_of()
    c = graph.constant(X)
    graph.output(c.cast(DType.float16))
    with pytest.raises(GraphError, match="the constant was cast already"):
        c.insert_transformation(ops.exp)


def test_expressions_read_the_result_when_their_terms_are_promoted_as_one() -> None:
    graph = Graph("terms", [TensorType(DType.int8, ["n"]), TensorType(DType.int8, ["n"])], promotion="allo_hls")
    a, b = graph.inputs
    total = a + b
    a.insert_transformation(lambda s: ops.bitwise_xor(s, s))
    longer = total + b
    graph.output(longer)
    values = np.array([100, -3], np.int8)
    np.testing.assert_array_equal(run(graph, values, values)[0], 2 * values.astype(np.int32))
    with pytest.raises(GraphError, match="name the Symbol where it is computed"):
        total.insert_transformation(lambda s: -s)


def test_values_that_buffers_hold_change() -> None:
    graph = Graph("kept", {"x": TensorType(DType.float32, []), "total": gc.Buffer(DType.float32, [])})
    stored = graph.buffers["total"]
    value = stored + graph["x"]
    ops.buffer_store(stored, value)
    graph.output(value)
    value.insert_transformation(lambda s: s * 2)
    model = InferenceSession().load(graph)
    assert [float(model(np.float32(1))[0]) for _ in range(3)] == [2.0, 6.0, 14.0]


def test_rebind_and_print_work_inside() -> None:
    graph = Graph("both", {"x": TensorType(DType.float32, ["?"])})
    h = ops.exp(graph["x"])
    graph.output(h + 1)
    h.insert_transformation(lambda s: s.print("plain").rebind(2).rebind("?"))
    model = InferenceSession().load(graph)
    np.testing.assert_allclose(model.debug(X[0])["plain"], np.exp(X[0]), rtol=1e-6)
    with pytest.raises(RunError, match=r"has size 3, and 2 was stated"):
        model(np.zeros(3, np.float32))


def test_a_loaded_model_stays_what_it_was() -> None:
    graph = graph_of()
    h = ops.exp(graph["x"])
    graph.output(h)
    model = InferenceSession().load(graph)
    h.insert_transformation(lambda s: -s)
    np.testing.assert_allclose(model(X)[0], np.exp(X), rtol=1e-6)
    for look in (lambda: model.debug(X, watch="*"), lambda: model.profile(X), model.placement):
        with pytest.raises(GraphError, match="nodes were inserted into the graph since"):
            look()


def test_a_model_that_others_wrote_can_be_edited() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n, 2] x) => (float[n, 2] y)'
        "{ hidden = Exp(x) more = Add(hidden, hidden) y = Abs(more) }"
    )
    graph = Graph.load(proto)
    assert [type(node.origin) is Imported for node in graph.nodes] == [True] * 3
    graph["hidden"].insert_transformation(lambda s: s // 1)
    assert [n.op_type for n in graph.nodes if type(n.origin) is Imported] == ["Exp", "Add", "Abs"]
    np.testing.assert_allclose(run(graph)[0], np.floor(np.exp(X)) * 2)


def scaled(number: int, s: Symbol) -> Symbol:
    return s * 2 + number


@settings(max_examples=drawn(40), deadline=None)
@given(st.data())
def test_insertions_give_what_building_with_them_gives(data: st.DataObject) -> None:
    """A chain of random ops, edited at random places, against NumPy that was told beforehand."""
    graph = Graph("random", {"x": TensorType(DType.int64, [3])})
    count = data.draw(st.integers(2, 8))
    operands = [data.draw(st.tuples(st.integers(0, i), st.integers(0, i))) for i in range(count)]
    symbols = [graph["x"]]
    for a, b in operands:
        symbols.append(symbols[a] + symbols[b] * 3)
    graph.output(*symbols[1:])
    edits: dict[int, list[int]] = {}
    for _ in range(data.draw(st.integers(1, 4))):
        place, number = data.draw(st.integers(0, count)), data.draw(st.integers(1, 9))
        symbols[place].insert_transformation(functools.partial(scaled, number))
        edits.setdefault(place, []).append(number)
        check(graph)
    x = np.array([1, -2, 5])
    read: list[np.ndarray[Any, Any]] = []
    for place in range(count + 1):
        value = x if not place else read[operands[place - 1][0]] + read[operands[place - 1][1]] * 3
        for number in reversed(edits.get(place, [])):
            value = value * 2 + number
        read.append(value)
    for got, want in zip(run(graph, x), read[1:], strict=True):
        np.testing.assert_array_equal(got, want)
