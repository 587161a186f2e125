"""Replacing values and nodes."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Buffer, DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.ir.symbol import Constant
from graphcore.ir.transform.walk import reads
from tests.surgery.test_replace_all import F32, ROWS, W, X, bytes_of, kinds, net, node, run, swish

# One value


def test_readers_of_a_value_read_what_stands_for_it_and_the_old_graph_stays() -> None:
    g = net()
    before = bytes_of(g)
    graph = g.replace("hidden", lambda h: h * 2)
    hidden = np.maximum(X @ W, 0)
    for item, want in zip(run(graph, X), (swish(hidden * 2), hidden * 2 + 1), strict=True):
        np.testing.assert_allclose(item, want, rtol=1e-5)
    assert bytes_of(g) == before
    assert [name for name, _ in graph.named_outputs] == ["swish", "shifted"]
    assert graph["hidden"].producer.op_type == "Relu"  # type: ignore[union-attr]
    assert [n.layer for n in graph.nodes] == ["dense/", "dense/", "dense/", "", "", ""]


@pytest.mark.parametrize("what", ["x", "w", "hidden", "swish", "shifted"])
def test_a_value_is_given_by_name_or_as_a_symbol_whatever_makes_it(what: str) -> None:
    g = net()
    by_name = g.replace(what, lambda v: -v)
    by_symbol = g.replace(g[what], lambda v: -v)
    assert bytes_of(by_name) == bytes_of(by_symbol)
    assert kinds(by_name).count("Neg") == 1
    x, w = (-X if what == "x" else X), (-W if what == "w" else W)
    hidden = np.maximum(x @ w, 0) * (-1 if what == "hidden" else 1)
    wants = swish(hidden) * (-1 if what == "swish" else 1), (hidden + 1) * (-1 if what == "shifted" else 1)
    for item, want in zip(run(by_name, X), wants, strict=True):
        np.testing.assert_allclose(item, want, rtol=1e-5, atol=1e-6)


def test_a_value_without_a_name_is_found_under_the_one_that_is_printed() -> None:
    g = net()
    sigmoid = next(n for n in g.nodes if n.op_type == "Sigmoid").outputs[0]
    graph = g.replace(sigmoid.name, lambda s: 1 - s)
    np.testing.assert_allclose(run(graph, X)[0], (h := np.maximum(X @ W, 0)) * (1 - 1 / (1 + np.exp(-h))), rtol=1e-5)


def test_numbers_and_arrays_stand_for_values_and_what_only_fed_them_goes() -> None:
    result = net().replace("hidden", lambda _: 2)
    assert not result.weights
    assert kinds(result) == ["Sigmoid", "Mul", "Add"]
    assert run(result, X)[1] == 3
    ones = np.ones((3, 4), np.float32)
    result = net().replace("w", lambda _: np.eye(4, dtype=np.float32))
    np.testing.assert_array_equal(run(result, ones)[1], ones + 1)


def test_what_was_made_before_is_read_from_the_graph_of_the_value() -> None:
    result = net().replace("hidden", lambda h: h + h.graph["x"])
    np.testing.assert_allclose(run(result, X)[1], np.maximum(X @ W, 0) + X + 1, rtol=1e-5)


def test_weights_are_the_same_arrays_and_keep_their_order() -> None:
    g = Graph("many", {"x": ROWS})
    weights = [g.weight(f"w{i}", W) for i in range(4)]
    g.output(y=g["x"] @ weights[2] @ weights[0] @ weights[3])
    graph = g.replace("w3", lambda w: w + 0)
    assert [*graph.weights] == ["w0", "w2", "w3"], "what nothing reads goes"
    for symbol in graph.weights.values():
        assert isinstance(symbol.producer, Constant)
        assert symbol.producer.array is W


# One node


def test_a_node_is_replaced_and_what_only_fed_it_goes() -> None:
    g = net()
    graph = g.replace(node(g["hidden"]), lambda x: ops.abs(x))
    assert kinds(graph) == ["MatMul", "Abs", "Sigmoid", "Mul", "Add"]
    assert graph["hidden"].producer.op_type == "Abs"  # type: ignore[union-attr]
    np.testing.assert_allclose(run(graph, X)[1], np.abs(X @ W) + 1, rtol=1e-5)
    graph = g.replace(node(g["hidden"]), lambda x: x.graph["x"])
    assert kinds(graph) == ["Sigmoid", "Mul", "Add"]
    assert not graph.weights


def test_a_node_with_several_results_takes_as_many() -> None:
    g = Graph("top", {"x": ROWS})
    values, indices = ops.top_k(g["x"], 2)
    g.output(values=values, indices=indices)
    graph = g.replace(node(values), lambda x, k, *, axis: (x[:, :2], ops.argsort(x, axis=axis)[:, :2]))
    np.testing.assert_array_equal(run(graph, X)[0], X[:, :2])
    np.testing.assert_array_equal(run(graph, X)[1], np.argsort(X, axis=1)[:, :2])
    with pytest.raises(GraphError, match="returned 1 values to replace 2"):
        g.replace(node(values), lambda x, k: x)


def test_attributes_are_given_to_keyword_only_parameters_defaults_included() -> None:
    seen = []
    g = Graph("g", {"x": ROWS})
    (y,) = g.op("LeakyRelu", [g["x"]], {}, [ROWS])
    g.output(y=y)

    def leaky(x: Symbol, *, alpha: float) -> Symbol:
        seen.append(alpha)
        return ops.where(x > 0, x, x * alpha)

    graph = g.replace(node(y), leaky)
    assert seen == [pytest.approx(0.01)]
    np.testing.assert_allclose(run(graph, X)[0], np.where(X > 0, X, X * np.float32(0.01)), rtol=1e-6)


def test_an_absent_operand_is_none() -> None:
    g = Graph("g", {"x": ROWS})
    (y,) = g.op("Clip", [g["x"], None, np.asarray(0.5, np.float32)], {}, [ROWS])
    g.output(y=y)
    graph = g.replace(node(y), lambda x, low, high: ops.minimum(x, high) if low is None else x)
    np.testing.assert_array_equal(run(graph, X)[0], np.minimum(X, 0.5))


# Types


def test_what_reads_another_type_is_typed_again() -> None:
    graph = net().replace_all("Relu", lambda x: ops.abs(x.cast("float16")))
    assert [str(t) for t in graph.output_types.values()] == ["float16[n, 4]"] * 2
    np.testing.assert_allclose(run(graph, X)[1], np.abs((X @ W).astype(np.float16)) + np.float16(1), rtol=1e-2)


def test_a_node_that_mixes_types_is_named_at_the_line_of_the_user() -> None:
    g = Graph("g", {"x": ROWS})
    h = ops.relu(g["x"])
    g.output(total=h + g["x"])
    with pytest.raises(DTypeError, match=r"Add 'total' mixes float16 and float32") as caught:
        g.replace_all("Relu", lambda x: x.cast("float16"))  # the line
    assert caught.value.line is not None
    assert caught.value.line.path == __file__
    assert "# the line" in caught.value.line.text
    with pytest.raises(ShapeError, match="Add 'total'"):
        g.replace(h, lambda h: ops.concat([h, h], axis=1))


def test_shapes_are_worked_out_again() -> None:
    g = Graph("g", {"x": TensorType(F32, [2, 4])})
    h = ops.relu(g["x"])
    g.output(y=ops.concat([h, h], axis=0))
    graph = g.replace(h, lambda h: h.transpose(1, 0))
    assert str(graph.outputs[0].type) == "float32[8, 2]"
    assert run(graph, X[:2])[0].shape == (8, 2)


# Bodies, functions and buffers


def branching() -> Graph:
    g = Graph("branching", {"x": ROWS, "flag": TensorType(DType.bool, [])})
    h = ops.relu(g["x"])
    h.name = "h"
    g.output(y=ops.cond(g["flag"], lambda: ops.relu(h - 1) * 2, lambda: ops.exp(h)))
    return g


def body(graph: Graph, key: str) -> Graph:
    result = next(n for n in graph.nodes if n.op_type == "If").attributes[key]
    assert isinstance(result, Graph)
    return result


YES, NO = np.array(True), np.array(False)


def test_values_in_bodies_and_captured_ones_are_replaced() -> None:
    g = branching()
    graph = g.replace("h", lambda h: h + 1)
    np.testing.assert_allclose(run(graph, X, NO)[0], np.exp(np.maximum(X, 0) + 1), rtol=1e-5)
    inner = next(n for n in body(g, "then_branch").nodes if n.op_type == "Relu")
    by_value = g.replace(inner.outputs[0], lambda v: v + 3)
    by_node = g.replace(inner, lambda v: ops.relu(v) + 3)
    for each in (by_value, by_node):
        np.testing.assert_allclose(run(each, X, YES)[0], (np.maximum(np.maximum(X, 0) - 1, 0) + 3) * 2, rtol=1e-5)
        np.testing.assert_allclose(run(each, X, NO)[0], np.exp(np.maximum(X, 0)), rtol=1e-5)
    captured = next(s for n in body(g, "else_branch").nodes for s in n.inputs if s is not None)
    graph = g.replace(captured, lambda v: v * 0)
    np.testing.assert_array_equal(run(graph, X, NO)[0], np.ones((3, 4), np.float32))
    np.testing.assert_array_equal(run(graph, X, YES)[0], run(g, X, YES)[0])


def test_a_result_of_a_body_may_become_any_value() -> None:
    g = branching()
    result = body(g, "then_branch").outputs[0]
    graph = g.replace(node(result), lambda a, b: 5)
    np.testing.assert_allclose(run(graph, X, YES)[0], 5)
    last = body(g, "else_branch").outputs[0]
    graph = g.replace(node(last), lambda h: h)
    np.testing.assert_array_equal(run(graph, X, NO)[0], np.maximum(X, 0))


def test_patterns_are_found_in_bodies() -> None:
    g = branching()
    assert len(g.find_all("Relu")) == 2
    graph = g.replace_all("Relu", lambda x: ops.abs(x))
    assert not graph.find_all("Relu")
    np.testing.assert_allclose(run(graph, X, YES)[0], np.abs(np.abs(X) - 1) * 2, rtol=1e-5)


def test_a_loop_is_typed_again() -> None:
    g = Graph("loop", {"x": ROWS})
    h = ops.relu(g["x"])
    g.output(y=ops.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, ops.abs(s) * s), (np.int64(0), h))[1])
    graph = g.replace(h, lambda h: (h * 2).cast("float64"))
    assert str(graph.outputs[0].type) == "float64[n, 4]"
    want = np.maximum(X, 0).astype(np.float64) * 2
    for _ in range(3):
        want = want * want
    np.testing.assert_allclose(run(graph, X)[0], want, rtol=1e-5)


def test_a_condition_of_more_than_one_element_is_named() -> None:
    g = Graph("g", {"x": TensorType(F32, [2, 4])})
    h = ops.relu(g["x"])
    g.output(y=ops.cond(ops.max(h) > 0, lambda: g["x"] + 1, lambda: g["x"]))
    with pytest.raises(ShapeError, match="If 'y': the condition must be a single bool"):
        g.replace(h, lambda h: h.unsqueeze(0))


def test_functions_are_rewritten_once() -> None:
    calls = []

    @gc.function
    def block(x: Symbol) -> Symbol:
        return ops.relu(x) + 1

    g = Graph("g", {"x": ROWS})
    g.output(y=block(block(g["x"])))
    before = bytes_of(g)

    def absolute(x: Symbol) -> Symbol:
        calls.append(x)
        return ops.abs(x)

    graph = g.replace_all("Relu", absolute)
    assert len(calls) == 1
    assert kinds(graph) == ["block", "block"]
    assert len({id(n.attributes["definition"]) for n in graph.nodes}) == 1
    np.testing.assert_allclose(run(graph, X)[0], np.abs(X) + 2, rtol=1e-6)
    np.testing.assert_array_equal(run(g, X)[0], np.maximum(X, 0) + 2)
    assert bytes_of(g) == before


def test_a_function_on_operands_of_another_dtype_has_the_change_too() -> None:
    @gc.function
    def block(x: Symbol) -> Symbol:
        return ops.relu(x) * ops.sigmoid(x)

    g = Graph("g", {"x": ROWS})
    h = g["x"] + 1
    g.output(y=block(h))
    graph = g.replace(h, lambda h: h.cast("float64"))
    assert str(graph.outputs[0].type) == "float64[n, 4]"
    np.testing.assert_allclose(run(graph, X)[0], np.maximum(X + 1, 0) / (1 + np.exp(-(X + 1))), rtol=1e-5)


def accumulating() -> Graph:
    g = Graph("g", {"x": ROWS, "total": Buffer(F32, [1, 4])})
    h = ops.relu(g["x"]).print("seen")
    g["total"] = g["total"] + ops.max(h, axis=0, keepdims=True)
    g.output(h=h, total_now=g["total"] * 1)
    return g


def test_a_value_in_a_function_is_replaced_for_all_calls() -> None:
    @gc.function
    def block(x: Symbol) -> Symbol:
        return ops.relu(x) + 1

    g = Graph("g", {"x": ROWS})
    g.output(y=block(block(g["x"])))
    inside = g.nodes[0].attributes["definition"].body
    relu = inside.nodes[0]
    for item in (g.replace(relu.outputs[0], lambda v: v * 3), g.replace(relu, lambda v: ops.relu(v) * 3)):
        np.testing.assert_allclose(run(item, X)[0], np.maximum(np.maximum(X, 0) * 3 + 1, 0) * 3 + 1, rtol=1e-6)


def test_buffers_and_watched_values_stay() -> None:
    g = accumulating()
    graph = g.replace_all("Relu", lambda x: ops.abs(x))
    assert [*graph.buffers] == ["total"]
    assert [*graph.watched] == ["seen"]
    assert node(graph.watched["seen"]).op_type == "Abs"
    model = gc.InferenceSession().load(graph)
    most = np.abs(X).max(axis=0, keepdims=True)
    for count in (1, 2, 3):
        np.testing.assert_allclose(model(X)[1], count * most, rtol=1e-6)
    model = gc.InferenceSession().load(g.replace("total", lambda t: t * 0.5))
    most, want = np.maximum(X, 0).max(axis=0, keepdims=True), np.zeros((1, 4), np.float32)
    for _ in range(3):
        want = want * np.float32(0.5) + most
        np.testing.assert_allclose(model(X)[1], want, rtol=1e-6)


def test_a_buffer_is_replaced_as_what_it_holds_at_first() -> None:
    g = accumulating()
    assert bytes_of(g.replace(g["total"], lambda t: t * 2)) == bytes_of(g.replace("total", lambda t: t * 2))


def test_a_buffer_that_would_hold_another_type_is_named() -> None:
    g = Graph("g", {"x": TensorType(F32, [1, 4]), "last": Buffer(F32, [1, 4])})
    h = ops.relu(g["x"])
    g["last"] = h
    g.output(y=h)
    with pytest.raises(DTypeError, match=r"buffer 'last' is float32\[1, 4\], and .* has become float64"):
        g.replace_all("Relu", lambda x: x.cast("float64"))
    with pytest.raises(ShapeError, match="buffer 'last'"):
        g.replace_all("Relu", lambda x: x[:, :2])


def test_settings_of_the_graph_stay() -> None:
    g = Graph("settings", {"x": ROWS}, promotion="anvil", strict=True)
    g.metadata["author"] = "me"
    g.opsets["com.example"] = 3
    g.output(y=ops.relu(g["x"]))
    graph = g.replace_all("Relu", lambda x: ops.abs(x))
    assert (graph.name, graph.promotion, graph.strict) == (g.name, g.promotion, True)
    assert (graph.metadata, graph.opsets) == (g.metadata, g.opsets)
    graph.replace_all("Abs", lambda x: ops.relu(x)).verify()


# Errors

WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda g: g.replace("hiden", lambda h: h),
        r"nothing in graph 'net' is called 'hiden'[\s\S]*did you mean 'hidden'",
    ),
    (lambda g: g.replace(3, lambda h: h), "must be a name, Symbol or node, got int"),
    (lambda g: g.replace(net()["hidden"], lambda h: h), "not a value of graph 'net', but of another graph"),
    (lambda g: g.replace(node(net()["hidden"]), lambda h: h), "not a node of graph 'net'"),
    (lambda g: g.replace("hidden", 3), "the replacement must be a function, got int"),
    (lambda g: g.replace("hidden", lambda: 3), "does not accept its arguments"),
    (lambda g: g.replace("hidden", lambda h: None), "must return a Symbol, array or number, got NoneType"),
    (lambda g: g.replace("hidden", lambda h: (h, h)), "returned 2 values to replace 1"),
    (lambda g: g.replace("hidden", lambda h: g["x"]), "returned 'x' of the old graph"),
    (lambda g: g.replace("hidden", lambda h: h + g["x"]), "belongs to graph 'net'"),
    (lambda g: g.replace_all(3, lambda h: h), "must be an operator's name or a function, got int"),
    (lambda g: g.replace_all(lambda x: x, lambda x: x), "the pattern must end in a node"),
    (lambda g: g.replace_all(lambda x: 3, lambda x: x), "the pattern must return Symbols, got int"),
    (lambda g: g.replace_all(lambda: 3, lambda x: x), "must take one or more positional parameters"),
    (lambda g: g.replace_all(lambda *x: x[0], lambda x: x), "must take one or more positional parameters"),
    (lambda g: g.replace_all(lambda x: ops.conv2d(x, x, groups=3), lambda x: x), "pattern cannot be traced"),
    (lambda g: g.replace_all("Relu", lambda x, *, beta: x), "does not accept its arguments"),
    (lambda g: Graph("empty", {"x": ROWS}).replace("x", lambda x: x), "no outputs"),
]


@pytest.mark.parametrize(("do", "message"), WRONG)
def test_what_cannot_be_done_is_said_and_the_graph_stays(do: Callable[[Graph], Any], message: str) -> None:
    g = net()
    before = bytes_of(g)
    with pytest.raises(GraphError, match=message) as caught:
        do(g)
    assert caught.value.line is not None
    assert caught.value.line.path == __file__
    assert caught.value.help
    assert bytes_of(g) == before


def test_a_value_that_no_output_is_made_of_cannot_be_replaced() -> None:
    g = Graph("g", {"x": ROWS})
    unused = ops.exp(g["x"])
    g.output(y=g["x"] + 1)
    with pytest.raises(GraphError, match="no output depends on it"):
        g.replace(unused, lambda v: v)


@pytest.mark.parametrize("number", [1, 0.1])
def test_numbers_take_the_dtype_that_the_other_operand_has_now(number: float) -> None:
    g = Graph("g", {"x": ROWS})
    g.output(y=number * ops.relu(g["x"]))
    for dtype in ("float16", "float64"):
        graph = g.replace_all("Relu", lambda x, dtype=dtype: x.cast(dtype))
        assert str(graph.outputs[0].type) == f"{dtype}[n, 4]"
        np.testing.assert_allclose(run(graph, X)[0], X * np.float32(number), rtol=2e-3)
    big = Graph("big", {"x": ROWS})
    big.output(y=ops.relu(big["x"]) * 1e30)
    with pytest.raises(DTypeError, match="Mul 'y' mixes float16 and float32"):
        big.replace_all("Relu", lambda x: x.cast("float16"))


# Any graph


def step(kind: int, a: Symbol, b: Symbol) -> Symbol:
    builds: list[Callable[[], Symbol]] = [
        lambda: a + b,
        lambda: a * b,
        lambda: ops.abs(a),
        lambda: ops.relu(a),
        lambda: ops.softmax(a, axis=-1),
        lambda: ops.cond(ops.max(a) > 0, lambda: ops.abs(a) + b, lambda: ops.relu(b) + a),
    ]
    return builds[kind]()


def chance(seed: int) -> tuple[Graph, list[Symbol]]:
    """Return a graph of random nodes with bodies, and its values."""
    pick = random.Random(seed)
    g = Graph("chance", {"x": ROWS, "y": ROWS})
    values: list[Symbol] = [*g.inputs, g.weight("w", X[:1])]
    for _ in range(pick.randrange(3, 12)):
        result = step(pick.randrange(6), pick.choice(values), pick.choice(values))
        if pick.random() < 0.3:
            result.name = f"value{len(values)}"
        values.append(result)
    g.output([*dict.fromkeys([values[-1], pick.choice(values[3:])])])
    return g, values


def leads_somewhere(graph: Graph, value: Symbol) -> bool:
    """Return True if an output is made of a value. An input of the graph always may be read."""
    used = {id(s) for s in (*graph.outputs, *graph.inputs, *graph.weights.values())}
    for each in reversed(graph.nodes):
        if any(id(s) in used for s in each.outputs):
            used.update(id(s) for s in reads(each))
    return id(value) in used


@pytest.mark.parametrize("seed", range(25))
def test_replacing_values_by_themselves_changes_nothing(seed: int) -> None:
    g, values = chance(seed)
    before = bytes_of(g)
    feeds = (X, X[::-1].copy())
    want = run(g, *feeds)
    for value in values:
        if not leads_somewhere(g, value):
            with pytest.raises(GraphError, match="no output depends on it"):
                g.replace(value, lambda v: v)
            continue
        same, doubled = g.replace(value, lambda v: v), g.replace(value, lambda v: v + v - v)
        assert [n.op_type for n in same.nodes] == [n.op_type for n in g.replace(g.outputs[0], lambda v: v).nodes]
        for a, b, c in zip(run(same, *feeds), run(doubled, *feeds), want, strict=True):
            np.testing.assert_array_equal(a, c)
            np.testing.assert_allclose(b, c, rtol=1e-4, atol=1e-5)
        assert [name or s.name for name, s in same.named_outputs] == [name or s.name for name, s in g.named_outputs]
    for pattern, fn in itertools.product(("Relu", lambda x: ops.relu(x)), (lambda x: ops.maximum(x, 0),)):
        graph = g.replace_all(pattern, fn, missing_ok=True)
        assert not graph.find_all("Relu")
        for a, c in zip(run(graph, *feeds), want, strict=True):
            np.testing.assert_array_equal(a, c)
    assert bytes_of(g) == before


@pytest.mark.parametrize("seed", range(12))
def test_a_value_of_another_dtype_gives_right_numbers_or_an_error_that_names_a_node(seed: int) -> None:
    g, values = chance(seed)
    feeds = (X, X[::-1].copy())
    want = run(g, *feeds)
    for value in values:
        if not leads_somewhere(g, value):
            continue
        try:
            graph = g.replace(value, lambda v: v.cast("float64"))
        except DTypeError as error:
            names = " ".join(f"{n.op_type} {s.name!r}" for n in g.nodes for s in n.outputs)
            _check_mix(error, names)
            continue
        for item, expected, symbol in zip(run(graph, *feeds), want, graph.outputs, strict=True):
            assert item.dtype == symbol.dtype.numpy
            np.testing.assert_allclose(item, expected, rtol=1e-4, atol=1e-5)


def _check_mix(error: DTypeError, names: str) -> None:
    """Check that an error says which node of a graph or of its bodies does not take what it reads."""
    assert error.help
    named = re.search(r": (\w+ '[^']+')", error.summary)
    assert named, error.summary
    assert named[1] in names or any(word in error.summary for word in ("mixes", "branch")), error.summary
