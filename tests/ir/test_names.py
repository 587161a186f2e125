"""Names: which Symbol one finds by them, and what outputs are called after a Symbol was renamed."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable

import numpy as np
import pytest

import graphcore as gc
from graphcore import Buffer, DType, Graph, TensorType, ops
from graphcore.errors import GraphError
from graphcore.ir.transform.walk import nested

F32 = TensorType(DType.float32, ["n", 4])


def called(graph: Graph) -> list[str]:
    """Return the names of the outputs, which the graph, its text, its file and its Model agree in."""
    names = list(graph.output_types)
    printed = re.findall(r"^  output  (\S+):", str(graph), re.MULTILINE)
    proto = graph.to_onnx()
    again = Graph.load(proto)
    results = {f"{name}_out" for name in graph.buffers}
    assert printed == names
    assert list(again.output_types) == names
    assert [o.name for o in proto.graph.output if o.name not in results] == names
    assert list(gc.InferenceSession().load(graph).outputs) == names
    for name in names:
        assert any(graph[name] is s for s in graph.outputs)
    return names


# Finding


def mixed() -> Graph:
    graph = Graph("mixed", {"x": F32, "cache": Buffer(DType.float32, [4])})
    x = graph["x"]
    with graph.layer("block"):
        hidden = ops.tanh(x @ graph.weight("w", np.ones((4, 4), np.float32)))
    hidden.name = "hidden"
    sums = ops.cond(ops.max(hidden) > 0, lambda: ops.exp(hidden) * 2, lambda: hidden)
    graph["cache"] += 1.0
    graph.output(sums, x, prob=ops.softmax(sums))
    return graph


def test_every_name_of_a_symbol_finds_it() -> None:
    graph = mixed()
    for part in nested(graph):
        for symbol in part.symbols:
            if symbol.name not in graph.buffers:
                assert part[symbol.name] is symbol
    assert graph["prob"].name == "prob"
    assert graph["x_out"] is graph["x"]


def test_every_name_that_printing_shows_is_found() -> None:
    graph = mixed()
    text = re.sub(r"(?m)^ {6,}.*$", "", str(graph))  # without bodies
    shown = re.findall(r"^ {2}(?:input   |weight  |buffer  |output  )?(\S+): ", text, re.MULTILINE)
    assert {"x", "w", "cache", "hidden", "prob", "x_out"} < {*shown}
    assert any(name.startswith("block/mat_mul_") for name in shown)
    for name in shown:
        graph[name]


def test_automatic_names_find_what_has_them_now() -> None:
    graph = Graph("g", {"x": F32})
    first = graph["x"] * 2
    name = first.name
    assert graph[name] is first
    first.name = "twice"
    with pytest.raises(GraphError, match="has that name"):
        graph[name]
    graph.weight("exp_5", np.ones(4, np.float32))
    results = [ops.exp(first) for _ in range(3)]
    assert "exp_5_" in [s.name for s in results]
    assert all(graph[s.name] is s for s in results)
    assert graph["exp_5"].is_constant


@pytest.mark.parametrize("name", ["mul_", "mul_x", "_2", "2", "mul_02", "mul_99999999999999999999", "mul_-2", "mul_0"])
def test_names_that_are_like_automatic_ones_find_nothing(name: str) -> None:
    graph = Graph("g", {"x": F32})
    assert (graph["x"] * 2).name == "mul_2"
    with pytest.raises(GraphError, match=re.escape(f"graph[{name!r}]: nothing in graph 'g' has that name")):
        graph[name]


@pytest.mark.parametrize(
    ("name", "meant"),
    [("wieght", "weight"), ("tokns", "tokens"), ("hiddn", "hidden"), ("mul_3", "mul_2"), ("prbo", "prob")],
)
def test_name_that_nothing_has_is_told_what_is_like_it(name: str, meant: str) -> None:
    graph = Graph("g", {"tokens": F32})
    twice = graph["tokens"] * 2
    hidden = twice + graph.weight("weight", np.ones(4, np.float32))
    hidden.name = "hidden"
    graph.output(prob=hidden)
    with pytest.raises(GraphError, match="nothing in graph 'g' has that name") as raised:
        graph[name]
    assert raised.value.help.startswith("did you mean ")
    assert repr(meant) in raised.value.help


def test_name_of_a_value_in_a_body_says_where_it_is() -> None:
    graph = mixed()
    inner = next(n for part in nested(graph) if part is not graph for n in part.nodes if n.op_type == "Exp").outputs[0]
    graph[graph.outputs[0].name]
    name = inner.name
    with pytest.raises(GraphError, match=re.escape(f"graph[{name!r}]: it is a value inside of a body")) as raised:
        graph[name]
    assert "use the result of cond or of the loop" in raised.value.help


# Renaming outputs


def plain() -> Graph:
    graph = Graph("g", {"x": F32})
    graph.output(graph["x"] * 2)
    return graph


def labelled() -> Graph:
    graph = Graph("g", {"x": F32})
    graph.output(result=graph["x"] * 2)
    return graph


COPIES: list[Callable[[Graph], Graph]] = [
    lambda g: g,
    copy.deepcopy,
    lambda g: pickle.loads(pickle.dumps(g)),
    lambda g: Graph.load(g.to_onnx()),
    lambda g: g.optimize(),
]


@pytest.mark.parametrize("again", COPIES)
@pytest.mark.parametrize("make", [plain, labelled])
def test_renamed_symbol_renames_its_output(make: Callable[[], Graph], again: Callable[[Graph], Graph]) -> None:
    graph = again(make())
    graph.outputs[0].name = "prob"
    assert called(graph) == ["prob"]
    assert called(again(graph)) == ["prob"]
    graph.outputs[0].name = "second"
    assert called(graph) == ["second"]


def test_output_with_a_name_of_its_own_keeps_it() -> None:
    graph = Graph("g", {"x": F32})
    hidden = graph["x"] * 2
    hidden.name = "hidden"
    graph.output(result=hidden)
    hidden.name = "state"
    assert called(graph) == ["result"]
    assert graph["state"] is graph["result"] is hidden
    hidden.name = "result"
    assert called(graph) == ["result"]
    hidden.name = "prob"
    assert called(graph) == ["prob"]


def test_one_symbol_that_is_two_outputs_renames_the_one_that_is_called_so() -> None:
    graph = Graph("g", {"x": F32})
    twice = graph["x"] * 2
    graph.output(twice, twice)
    _, second = graph.output_types
    twice.name = "prob"
    assert called(graph) == ["prob", second]
    with pytest.raises(GraphError, match=f"name: an output already has the name '{second}'"):
        twice.name = second
    assert called(graph) == ["prob", second]


def test_outputs_that_are_inputs_or_constants_keep_their_names() -> None:
    graph = Graph("g", {"x": F32})
    half = graph.constant([0.5])
    graph.output(graph["x"], half, half=half)
    before = called(graph)
    graph["x"].name, half.name = "image", "scale"
    assert called(graph) == before
    assert list(gc.InferenceSession().load(graph).inputs) == ["image"]
    for symbol in (graph["image"], half):
        for name in before:
            with pytest.raises(GraphError, match=f"name: an output already has the name {name!r}"):
                symbol.name = name


def test_symbol_is_not_called_as_an_output_that_is_another_one() -> None:
    graph = Graph("g", {"x": F32})
    twice = graph["x"] * 2
    graph.output(graph["x"], twice)
    with pytest.raises(GraphError, match="name: an output already has the name 'x_out'"):
        twice.name = "x_out"
    with pytest.raises(GraphError, match="the name 'x' is taken"):
        twice.name = "x"
    assert called(graph) == ["x_out", twice.name]


def test_buffers_keep_their_names_and_what_they_hold_is_renamed() -> None:
    graph = Graph("g", {"x": F32, "state": Buffer(DType.float32, [4])})
    graph["state"] += 1.0
    graph.output(graph["x"] + graph["state"], graph["state"])
    for symbol in (graph["state"], graph.input_symbols[1]):
        with pytest.raises(GraphError, match="buffer 'state' cannot be renamed"):
            symbol.name = "cache"
    graph.outputs[1].name = "held"
    graph.outputs[0].name = "total"
    assert called(graph) == ["total", "held"]


def test_outputs_are_renamed_after_an_insertion() -> None:
    graph = Graph("g", {"x": F32})
    last = ops.exp(graph["x"] * 2)
    graph.output(last)
    last.name = "last"
    result = last.insert_transformation(lambda h: h + 1)
    assert called(graph) == ["last"]
    result.name = "prob"
    assert called(graph) == ["prob"]
    last.name = "raw"
    assert called(graph) == ["prob"]


def test_model_that_was_loaded_keeps_its_names() -> None:
    graph = plain()
    loaded = gc.InferenceSession().load(graph)
    before = list(loaded.outputs)
    graph.outputs[0].name = "prob"
    assert list(loaded.outputs) == before
