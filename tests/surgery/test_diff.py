"""`Graph.diff`: what differs is told, and what only looks different is not."""

from __future__ import annotations

import dataclasses
import html
import itertools
import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Graph, Symbol, TensorType, ops
from graphcore.errors import GraphError
from graphcore.ir.buffers import Buffer
from graphcore.surgery.diff import Diff
from graphcore.surgery.diff.alignment import common
from tests.support.calls import growth
from tests.support.every_op import CASES, graph_of
from tests.support.trained import Trained, trained

__all__ = ["trained"]

WEIGHT = np.arange(16, dtype=np.float32).reshape(4, 4)


def built(
    *,
    turned: bool = False,
    act: Callable[[Symbol], Symbol] = ops.relu,
    factor: float = 2.0,
    axis: int = -1,
    weight: Any = WEIGHT,
    name: str = "w",
    dim: Any = "b",
    output: str = "z",
) -> Graph:
    g = Graph("g", {"x": TensorType("float32", [dim, 4])})
    x = g["x"]
    w = g.weight(name, weight)
    if turned:
        other = ops.exp(x)
        first = x @ w
    else:
        first = x @ w
        other = ops.exp(x)
    g.output(**{output: ops.softmax(act(first * factor) + other, axis=axis)})
    return g


def lines(diff: Diff) -> list[str]:
    return [line.strip() for line in str(diff).split("\n")]


def test_the_same_graph_does_not_differ_whatever_its_order_and_numbers() -> None:
    for other in (built(), built(turned=True), built().rename({})):
        difference = built().diff(other)
        assert not difference
        assert str(difference) == "no differences"


@pytest.mark.parametrize("family", range(5))
def test_no_op_differs_from_itself_and_any_does_from_itself_in_another_dtype(family: int) -> None:
    for name in itertools.islice(CASES, family, None, 5):
        case = CASES[name]
        dtypes = [d for d in (gc.DType.float32, gc.DType.float64, gc.DType.int32) if d not in case.refused]
        graphs = [graph_of([name], d)[0] for d in dtypes]
        for graph, dtype in zip(graphs, dtypes, strict=True):
            difference = graph.diff(graph_of([name], dtype)[0])
            assert not difference, f"{name}: {difference}"
            json.dumps(difference.as_dict())
        if len(graphs) > 1 and any(o.dtype is None for o in case.operands):
            assert graphs[0].diff(graphs[1]), name


def test_another_operator_is_a_node_less_and_one_more_and_its_reader_is_changed() -> None:
    difference = built().diff(built(act=ops.gelu))
    assert [(n.kind, n.op_type) for n in difference.nodes] == [("-", "Relu"), ("~", "Add"), ("+", "Gelu")]
    assert not difference.weights
    assert not difference.types


def test_an_inserted_node_changes_its_readers_alone() -> None:
    difference = built().diff(built(act=lambda x: ops.relu(ops.abs(x))))
    assert [(n.kind, n.op_type) for n in difference.nodes] == [("~", "Relu"), ("+", "Abs")]


def test_attributes_are_told_with_both_values() -> None:
    (node,) = built().diff(built(axis=0)).nodes
    assert node.kind == "~"
    assert node.details == ("axis: 1 -> 0",)


def test_floats_of_attributes_are_compared_as_files_have_them() -> None:
    graph = Graph("g", {"x": TensorType("float32", [4])})
    graph.output(y=ops.leaky_relu(graph["x"], 0.1), z=ops.leaky_relu(graph["x"], 0.01))
    assert not graph.diff(Graph.load(graph.to_onnx(target="onnx")))


def test_weights_are_compared_by_what_they_hold() -> None:
    other = WEIGHT.copy()
    assert not built().diff(built(weight=other))
    other[0, 0] += 3
    other[1, 1] -= 0.5
    (weight,) = built().diff(built(weight=other)).weights
    assert (weight.kind, weight.name, weight.size, weight.differing, weight.largest) == ("~", "w", 16, 2, 3.0)
    assert "2 of 16 differ, by 3 at most" in str(weight)
    (renamed,) = built().diff(built(name="v")).weights
    assert (renamed.name, renamed.other, renamed.differing) == ("w", "v", 0)
    (constant,) = built().diff(built(factor=2.5)).weights
    assert (constant.differing, constant.largest) == (1, 0.5)
    nan = WEIGHT.copy()
    nan[0] = np.nan
    assert not built(weight=nan).diff(built(weight=nan.copy()))


def test_nan_differs_from_every_number_and_from_no_nan() -> None:
    old = WEIGHT.copy()
    old[0] = np.nan
    new = old.copy()
    new[0, 0] = -np.nan  # other bits, and NaN as well
    new[0, 1], new[1, :3], new[2, 0] = 1, np.nan, 7
    (weight,) = built(weight=old).diff(built(weight=new)).weights
    assert weight.differing == 16 - np.isclose(old, new, rtol=0, atol=0, equal_nan=True).sum() == 5
    assert weight.largest is not None
    assert np.isnan(weight.largest)


def test_a_dim_with_another_name_or_size_is_told_once() -> None:
    for dim in ("batch", 3):
        difference = built().diff(built(dim=dim))
        assert [(d.name, d.other) for d in difference.dims] == [("b", str(dim))]
        assert lines(difference) == ["dims:", f"~ b -> {dim}"]


def layers(
    batch: Any, seq: Any, past: Any, offset: Any, *, total: Any = None, image: str = "x", bias: float = 1.0
) -> Graph:
    """A graph of twenty layers with four dims, one of which is only in an expression."""
    rows = f"{past} + {offset}" if total is None else total
    types = {image: TensorType("float32", [batch, seq, 4]), "y": TensorType("float32", [batch, past, 4])}
    g = Graph("g", {**types, "z": TensorType("float32", [rows, 4])})
    hidden, other = g[image], g["y"]
    for _ in range(20):
        hidden, other = ops.relu(hidden @ WEIGHT) + 1.0, ops.tanh(other)
        hidden = ops.softmax(hidden @ other.permute([0, 2, 1])) @ other
    g.output(o=hidden, p=other, q=ops.exp(ops.tanh(g["z"] + bias)))
    return g


NAMES = ("batch", "seq", "past", "offset")
RENAMED = ["~ batch -> b", "~ seq -> s", "~ past -> p", "~ offset -> o"]
UNKNOWN = ["~ batch -> ?", "~ seq -> ?", "~ past -> ?", "~ n -> ?"]
FEWER = ["~ batch -> b", "~ seq -> s", "~ past -> p", "~ offset + past -> total"]


def backwards(line: str) -> str:
    old, new = line.removeprefix("~ ").split(" -> ")
    return f"~ {new} -> {old}"


@pytest.mark.parametrize(
    ("old", "new", "dims"),
    [
        (layers(*NAMES), layers(*"bspo"), RENAMED),
        (layers(*NAMES), layers(*"bspo", image="image"), RENAMED),
        (layers(*NAMES), layers("seq", "batch", "past", "offset"), ["~ batch -> seq", "~ seq -> batch"]),
        (layers(*NAMES), layers(*"bspo", total="total"), FEWER),
        (layers(*"bspo", total="total"), layers(*NAMES), [*map(backwards, FEWER)]),
        (layers(*NAMES), layers("b", "s", "s", "o"), ["~ batch -> b", "~ seq -> s", "~ past -> s", "~ offset -> o"]),
        (layers("b", "s", "s", "o"), layers("b", "s", "p", "o"), ["~ s -> p", "~ o + s -> o + p"]),
        (layers(2, 3, 5, 1), layers(*NAMES), ["~ 2 -> batch", "~ 3 -> seq", "~ 5 -> past", "~ 6 -> offset + past"]),
        (layers(*NAMES), layers(2, 3, 5, 1), ["~ batch -> 2", "~ seq -> 3", "~ past -> 5", "~ offset + past -> 6"]),
        (layers(*NAMES, total="n"), layers("?", "?", "?", 1, total="?"), UNKNOWN),
        (layers("?", "?", "?", 1, total="?"), layers(*NAMES, total="n"), [*map(backwards, UNKNOWN)]),
    ],
)  # fmt: skip
def test_renamed_dims_are_told_once(old: Graph, new: Graph, dims: list[str]) -> None:
    difference = old.diff(new)
    assert [str(dim) for dim in difference.dims] == dims
    assert not difference.types
    assert [(d["name"], d["other"]) for d in difference.as_dict()["dims"]] == [
        (d.name, d.other) for d in difference.dims
    ]
    assert all(f"  {html.escape(dim)}\n" in difference._repr_html_().replace("</pre>", "\n") for dim in dims)


def test_a_real_difference_is_told_beside_renamed_dims() -> None:
    difference = layers(*NAMES).diff(layers("batch", "s", "past", "offset", bias=2.0))
    assert lines(difference)[:2] == ["dims:", "~ seq -> s"]
    assert [(weight.differing, weight.largest) for weight in difference.weights] == [(1, 1.0)]
    assert len(lines(difference)) == 4
    other = layers(*"bspo").astype("float16")
    assert {(t.before, t.after) for t in layers(*NAMES).diff(other).types} >= {
        ("float32[batch, seq, 4]", "float16[b, s, 4]")
    }


def test_names_that_no_input_has_may_be_renamed_in_expressions() -> None:
    def selected(name: str, factor: int) -> Graph:
        g = Graph("g", {"x": TensorType("float32", ["b"])})
        sizes = (f"{factor} * {name} + b", f"{name} + 1")
        ends = [g.build.emit("Identity", (g["x"],), TensorType("float32", [size])) for size in sizes]
        g.output(y=ops.exp(ends[0]), z=ops.exp(ends[1]))
        return g

    assert not selected("n", 2).diff(selected("m", 2))
    assert len(selected("n", 2).diff(selected("m", 3)).types) == 1


def test_types_within_are_told_where_the_dtype_changes() -> None:
    difference = built().diff(built().astype("float16", keep_io=False))
    assert {(t.before, t.after) for t in difference.types} == {("float32[b, 4]", "float16[b, 4]")}
    assert not difference.nodes
    assert difference.inputs[0].details == ("float32[b, 4] -> float16[b, 4]",)
    assert difference.outputs[0].details == ("float32[b, 4] -> float16[b, 4]",)


def test_inputs_and_outputs_are_told_by_name_type_and_order() -> None:
    def two(*names: str, outputs: str = "ab") -> Graph:
        g = Graph("g", {name: TensorType("float32", [2 + i]) for i, name in enumerate(names)})
        results = [ops.exp(g[0]), ops.tanh(g[1])]
        g.output(**dict(zip(outputs, results, strict=True)))
        return g

    difference = two("x", "y").diff(two("x", "v"))
    assert [(i.kind, i.name, i.details) for i in difference.inputs] == [("~", "y", ("named v",))]
    difference = two("x", "y").diff(two("x", "y", outputs="ac"))
    assert [(o.kind, o.name, o.details) for o in difference.outputs] == [("~", "b", ("named c",))]
    difference = two("x", "y").diff(two("x", "y").with_outputs("b", "a"))
    assert [o.details for o in difference.outputs] == [("a, b -> b, a",)]
    difference = two("x", "y").diff(two("x", "y").with_outputs("a"))
    assert [(o.kind, o.name) for o in difference.outputs] == [("-", "b")]
    assert [(n.kind, n.op_type) for n in difference.nodes] == [("-", "Tanh")]
    difference = two("x", "y").diff(two("x", "y").with_inputs("y", "x"))
    assert [i.details for i in difference.inputs] == [("x, y -> y, x",)]


def test_buffers_and_notes_are_compared() -> None:
    def counter(initial: float, step: float) -> Graph:
        g = Graph("g", {"x": TensorType("float32", []), "n": Buffer("float32", [], initial=initial)})
        g["n"] = g["n"] + g["x"] if step else g["n"] * g["x"]
        g.output(y=g["x"] * 2)
        return g

    assert not counter(0, 1).diff(counter(0, 1))
    assert [i.details for i in counter(0, 1).diff(counter(1, 1)).inputs] == [("another initial value",)]
    assert counter(0, 1).diff(counter(0, 0)).outputs[0].text == "buffer n"
    a, b = built(), built()
    a.metadata["author"], b.metadata["author"] = "A", "B"
    b.metadata["more"] = "1"
    assert [str(m) for m in a.diff(b).metadata] == ["~ metadata author: A -> B", "+ metadata more: 1"]


def test_bodies_and_functions_are_compared() -> None:
    def looped(step: float, act: Callable[[Symbol], Symbol]) -> Graph:
        @gc.function
        def inner(x: Symbol) -> Symbol:
            return ops.exp(act(x))

        g = Graph("g", {"x": TensorType("float32", ["n"])})
        y = ops.for_loop(3, lambda i, s: s * step + g["x"], g["x"])
        g.output(y=inner(y))
        return g

    base = looped(0.5, ops.relu)
    assert not base.diff(looped(0.5, ops.relu))
    (weight,) = base.diff(looped(0.25, ops.relu)).weights
    assert weight.place.startswith("body of ")
    assert weight.largest == 0.25
    nodes = base.diff(looped(0.5, ops.abs)).nodes
    assert {n.place for n in nodes} == {"function inner"}
    assert {(n.kind, n.op_type) for n in nodes} >= {("-", "Relu"), ("+", "Abs")}


def test_records_are_frozen_and_go_to_json() -> None:
    difference = built().diff(built(act=ops.gelu, factor=3.0, dim="n"))
    assert json.loads(json.dumps(difference.as_dict())).keys() == {f.name for f in dataclasses.fields(difference)}
    with pytest.raises(dataclasses.FrozenInstanceError):
        difference.nodes[0].kind = "+"


def test_what_is_not_a_graph_is_an_error_at_the_calling_line() -> None:
    with pytest.raises(GraphError, match="the other graph must be a Graph, got str") as raised:
        built().diff("other.onnx")  # type: ignore[arg-type]
    assert raised.value.line is not None
    assert raised.value.line.path == __file__


def test_both_graphs_stay_as_they_were() -> None:
    a, b = built(), built(act=ops.gelu)
    before = str(a), str(b), len(a.symbols), len(b.symbols)
    a.diff(b)
    assert (str(a), str(b), len(a.symbols), len(b.symbols)) == before


def test_a_trained_model_read_again_is_the_same(trained: Trained) -> None:
    model = trained.graph()
    assert not model.diff(trained.graph())
    assert not model.rename({}).diff(model.rename({}))
    difference = model.diff(Graph.load(model.to_onnx(target="onnx")))
    assert not difference.nodes
    assert all(w.kind == "-" for w in difference.weights)  # weights that nothing reads are not written


def chain(count: int, more: frozenset[int] = frozenset()) -> Graph:
    g = Graph("g", {"x": TensorType("float32", ["b", 4])})
    x = g["x"]
    for i in range(count // 2):
        x = ops.relu(x) + float(i)
        x = ops.abs(x) if i in more else x
    g.output(y=x)
    return g


def test_calls_grow_with_the_nodes() -> None:
    assert growth(lambda size: partial(chain(size).diff, chain(size, frozenset({50, 250, 400}))), 1000) < 2.5
    difference = chain(2000).diff(chain(2000, frozenset({50, 500, 800})))
    assert [n.op_type for n in difference.nodes if n.kind == "+"] == ["Abs"] * 3
    assert [n.op_type for n in difference.nodes if n.kind == "~"] == ["Relu"] * 3
    assert not [n for n in difference.nodes if n.kind == "-"]


def longest(a: list[int], b: list[int]) -> int:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def test_common_subsequences_are_as_long_as_can_be() -> None:
    drawn = random.Random(0)
    for _ in range(500):
        a, b = ([drawn.randrange(3) for _ in range(drawn.randrange(10))] for _ in range(2))
        pairs = common(a, b)
        assert len(pairs) == longest(a, b)
        assert all(a[i] == b[j] for i, j in pairs)
        assert all(p[0] < q[0] and p[1] < q[1] for p, q in itertools.pairwise(pairs))
    assert common(list(range(5000)), list(range(5000, 10_000))) == []


def test_differences_are_escaped_in_notebooks() -> None:
    before, after = (Graph("g", {name: TensorType("float32", [2])}) for name in ("x", "<y>"))
    for graph in (before, after):
        graph.output(z=graph.inputs[0] + 1)
    assert "&lt;y&gt;" in before.diff(after)._repr_html_()
