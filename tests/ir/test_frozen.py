"""Parts of a graph cannot be assigned: a change would make it run as another than it says."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Buffer, DType, Graph, Symbol, TensorType, ops
from graphcore.errors import GraphError, ImmutableError, PromotionError, SymbolError
from graphcore.ir.state.frozen import CLOSED, change
from graphcore.ir.symbol import Captured, Constant, Input, Node
from graphcore.ir.transform.walk import walk

F32 = TensorType(DType.float32, ["n", 4])


def model() -> Graph:
    graph = Graph("model", {"x": F32, "state": Buffer(DType.float32, [4])})
    x = graph["x"]
    w = graph.weight("w", np.ones((4, 4), np.float32))
    total = ops.sum(x @ w + graph.constant([1.0, 2.0, 3.0, 4.0], name="bias"), axis=1)
    chosen = ops.cond(ops.max(total) > 0, lambda: total * 2, lambda: total)
    graph.output(result=chosen)
    graph["state"] += 1.0
    return graph


def _node(graph: Graph) -> Node:
    return graph.nodes[0]


def _symbol(graph: Graph) -> Symbol:
    return _node(graph).outputs[0]


def _buffer(graph: Graph) -> Symbol:
    return graph["state"]


def _weight(graph: Graph) -> Any:
    return graph["w"].producer


def _input(graph: Graph) -> Any:
    return graph["x"].producer


def _captured(graph: Graph) -> Any:
    return next(s.producer for n in walk(graph) for s in n.inputs if s is not None and type(s.producer) is Captured)


def _self(graph: Graph) -> Graph:
    return graph


FOUND: dict[str, tuple[Callable[[Graph], Any], type]] = {
    "Node": (_node, Node),
    "Symbol": (_symbol, Symbol),
    "Constant": (_weight, Constant),
    "Graph": (_self, Graph),
}
# Each class, the name, the value that is assigned, and a part of the help that names the way.
CASES: list[tuple[str, str, Any, str]] = [
    ("Node", "op_type", "Sub", r"graph.replace\(node, fn\)"),
    ("Node", "inputs", (), r"graph.replace\(node, fn\)"),
    ("Node", "outputs", (), r"graph.replace\(node, fn\)"),
    ("Node", "attributes", {}, r"graph.replace\(node, fn\)"),
    ("Node", "domain", "com.example", r"graph.replace\(node, fn\)"),
    ("Node", "layer", "block/", r"with graph.layer\(name\)"),
    ("Node", "origin", None, "the call that created it"),
    ("Node", "line", None, "the call that created it"),
    ("Symbol", "type", F32, r"x.cast\(dtype\).*x.rebind\(...\).*graph.with_dims"),
    ("Symbol", "dtype", DType.int8, r"x.cast\(dtype\)"),
    ("Symbol", "shape", [4], r"x.reshape\(...\).*x.rebind\(...\).*graph.with_dims"),
    ("Symbol", "rank", 1, r"x.reshape\(...\)"),
    ("Symbol", "ndim", 1, r"x.reshape\(...\)"),
    ("Symbol", "ambiguous", True, r"graph.constant\(value, dtype, ambiguous=True\)"),
    ("Symbol", "producer", None, r"graph.replace\(x, fn\)"),
    ("Symbol", "id", 0, "order of their creation"),
    ("Symbol", "graph", None, "call one graph on Symbols of the other"),
    ("Symbol", "given_name", "y", r"x.name = 'name', or graph.rename"),
    ("Symbol", "is_constant", True, r"graph.with_constants\("),
    ("Symbol", "line", None, "the call that created it"),
    ("Symbol", "buffer", None, r"Buffer\(...\)"),
    ("Constant", "array", np.zeros(4), "graph.with_weights"),
    ("Constant", "is_weight", False, r"graph.weight\(name, array\)"),
    ("Constant", "origin", None, "the call that created it"),
    ("Constant", "position", 1, "order of their declaration"),
    ("Constant", "symbol", None, "return the value from the function"),
    ("Graph", "promotion", "anvil", r"Graph\(name, inputs, promotion=...\)"),
    ("Graph", "inputs", (), r"Graph\(name, \{...\}\); graph.with_inputs.*graph.with_dims.*graph.rename"),
    ("Graph", "outputs", (), r"graph.with_outputs\("),
    ("Graph", "named_outputs", (), r"graph.with_outputs\("),
    ("Graph", "output_types", {}, r"graph.output\(y.cast\(dtype\)\)"),
    ("Graph", "input_symbols", (), r"Graph\(name, \{...\}\)"),
    ("Graph", "buffers", {}, r"Buffer\(...\)"),
    ("Graph", "defaults", {}, r"defaults=\{'a': array\}"),
    ("Graph", "nodes", [], r"graph.replace\(x, fn\)"),
    ("Graph", "symbols", [], r"graph.replace\(x, fn\)"),
    ("Graph", "weights", {}, r"graph.weight\(name, array\) adds one.*graph.with_weights"),
    ("Graph", "current_layer", "block", r"with graph.layer\(name\)"),
]


@pytest.mark.parametrize(("kind", "name", "value", "way"), CASES, ids=[f"{kind}.{name}" for kind, name, *_ in CASES])
def test_assignment_is_refused_and_the_error_names_the_way(kind: str, name: str, value: Any, way: str) -> None:
    graph = model()
    before = str(graph)
    find, type_ = FOUND[kind]
    part = find(graph)
    assert type(part) is type_
    shown = "graph 'model'" if kind == "Graph" else kind
    with pytest.raises(ImmutableError, match=f"{shown}: {name} cannot be assigned") as caught:
        setattr(part, name, value)
    assert pytest.raises(ImmutableError, match=way).matches(caught.value)
    assert caught.value.line is not None
    assert str(graph) == before
    graph.verify()


def test_every_closed_attribute_is_in_the_table() -> None:
    assert {(kind, name) for kind, names in CLOSED.items() for name in names} == {(k, n) for k, n, *_ in CASES}


def test_every_slot_is_closed() -> None:
    slots = {"Node": Node.__slots__, "Constant": (*Constant.__slots__, *Input.__slots__, *Captured.__slots__)}
    for kind, names in {**slots, "Symbol": Symbol.__slots__}.items():
        assert {*names} - {"__weakref__"} <= CLOSED[kind].keys()


@pytest.mark.parametrize(("find", "name"), [(_input, "position"), (_captured, "symbol"), (_buffer, "type")])
def test_other_parts_are_closed_too(find: Callable[[Graph], Any], name: str) -> None:
    with pytest.raises(ImmutableError, match=f"{name} cannot be assigned"):
        setattr(find(model()), name, None)


@pytest.mark.parametrize(("find", "name"), [(_node, "inputs"), (_symbol, "type"), (_weight, "array")])
def test_deletion_is_refused(find: Callable[[Graph], Any], name: str) -> None:
    with pytest.raises(ImmutableError, match=f"{name} cannot be assigned"):
        delattr(find(model()), name)
    with pytest.raises(AttributeError, match="other"):
        delattr(find(model()), "other")


def test_error_of_an_assignment_shows_what_was_to_change() -> None:
    graph = model()
    with pytest.raises(ImmutableError, match=r"x   float32\[n, 4\]   test_frozen.py:"):
        graph["x"].type = F32
    with pytest.raises(ImmutableError, match=r"array  float32\[4, 4\]"):
        _weight(graph).array = np.zeros(4)
    with pytest.raises(ImmutableError, match=r"node  MatMul   node   test_frozen.py:"):
        _node(graph).op_type = "Gemm"


def test_graph_of_a_file_and_copies_are_closed_too() -> None:
    graph = Graph("g", {"x": F32})
    graph.output(y=ops.sum(graph["x"], axis=1))
    results = [Graph.load(graph.to_onnx()), graph.optimize(), pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)]
    for each in [*results, graph.copy()]:
        assert {type(s) for s in each.symbols} == {Symbol}
        assert {type(n) for n in each.nodes} == {Node}
        with pytest.raises(ImmutableError):
            each.nodes[-1].op_type = "ReduceMax"
        with pytest.raises(ImmutableError):
            each.nodes[-1].attributes["keepdims"] = 1


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d.__setitem__("axis", 2),
        lambda d: d.__delitem__("axis"),
        lambda d: d.update(axis=2),
        lambda d: d.pop("axis"),
        lambda d: d.popitem(),
        lambda d: d.setdefault("axis", 2),
        lambda d: d.clear(),
        lambda d: d.__ior__({"axis": 2}),
    ],
)
def test_dicts_of_a_graph_do_not_change(edit: Callable[[Any], object]) -> None:
    graph = Graph("g", {"x": F32})
    graph.output(graph["x"] + 1, ops.softmax(graph["x"], axis=0))
    graph.weight("axis", np.ones(4, np.float32))
    with_some = next(n for n in graph.nodes if n.attributes)
    for item, way in ((with_some.attributes, "graph.replace"), (graph.weights, "graph.with_weights")):
        before = dict(item)
        with pytest.raises(ImmutableError, match="cannot be assigned") as caught:
            edit(item)
        assert way in caught.value.help
        assert dict(item) == before
    with pytest.raises(ImmutableError, match="cannot be assigned"):
        edit(graph.nodes[0].attributes)  # without any, which it shares with others


def test_dicts_of_a_graph_name_the_key_that_was_assigned() -> None:
    graph = model()
    with pytest.raises(ImmutableError, match=r"graph.weights\['w'\] cannot be assigned"):
        graph.weights["w"] = graph["x"]  # type: ignore[index]
    with pytest.raises(ImmutableError, match=r"node.attributes\['axis'\] cannot be assigned"):
        graph.nodes[0].attributes["axis"] = 2  # type: ignore[index]


def test_dicts_of_a_graph_are_copied_into_ones_that_change() -> None:
    value = model().weights
    result = copy.copy(value)
    assert type(result) is dict
    assert result == value
    assert isinstance(value, dict)
    attributes = next(n for n in model().nodes if n.op_type == "ReduceSum").attributes
    assert pickle.loads(pickle.dumps(attributes)) == copy.deepcopy(attributes) == attributes


def test_attributes_are_the_nodes_own_after_the_dict_that_made_them_changes() -> None:
    graph = Graph("g", {"x": F32})
    results: dict[str, Any] = {"axis": 1}
    (result,) = graph.op("Softmax", [graph["x"]], results)
    results["axis"] = 0
    node = result.producer
    assert isinstance(node, Node)
    assert node.attributes == {"axis": 1}


def test_views_of_outputs_do_not_change() -> None:
    graph = model()
    assert isinstance(graph.named_outputs, tuple)
    assert graph.named_outputs[0][0] == "result"


# What can be assigned


def test_name_of_a_graph_is_checked() -> None:
    graph = model()
    graph.name = "other"
    assert graph.to_onnx().graph.name == "other"
    for name in ("", 3, "a\nb"):
        with pytest.raises(GraphError, match="is not a valid name"):
            graph.name = name  # type: ignore[assignment]
    assert graph.name == "other"


@pytest.mark.filterwarnings("ignore::graphcore.errors.LossyCastWarning")
def test_strict_counts_from_its_assignment_on() -> None:
    graph = Graph("g", {"a": TensorType(DType.int64, [2]), "b": TensorType(DType.uint64, [2])})
    a, b = graph.inputs
    assert (a * b).dtype is DType.float16
    graph.strict = True
    with pytest.raises(PromotionError, match="cannot hold the operand's range"):
        a * b
    graph.strict = False
    assert (a * b).dtype is DType.float16
    with pytest.raises(GraphError, match="strict: must be a bool, got 'yes'"):
        graph.strict = "yes"  # type: ignore[assignment]


def test_metadata_is_written() -> None:
    graph = model()
    graph.metadata["author"] = "someone"
    assert {p.key: p.value for p in graph.to_onnx().metadata_props}["author"] == "someone"


def test_array_of_a_weight_stays_the_callers_own() -> None:
    array = np.ones(4, np.float32)
    graph = Graph("g", {"x": F32})
    graph.output(y=graph["x"] + graph.weight("w", array))
    assert _weight(graph).array is array
    array[:] = 3
    (y,) = gc.InferenceSession().load(graph)(np.zeros((1, 4), np.float32))
    assert y.tolist() == [[3, 3, 3, 3]]


# Constructors


def test_symbols_and_nodes_are_not_made_by_their_classes() -> None:
    for arguments in ((), ("x", F32)):
        with pytest.raises(SymbolError, match=r"Symbol\(\): Symbols cannot be created directly") as raised:
            Symbol(*arguments)
        assert "graph.constant(value)" in raised.value.help
        with pytest.raises(GraphError, match=r"Node\(\): nodes cannot be created directly") as refused:
            Node(*arguments)
        assert "graph.op('Relu', [x])" in refused.value.help


# verify


def _broken(edit: Callable[[Graph], object], message: str) -> None:
    graph = model()
    graph.verify()
    edit(graph)
    with pytest.raises(GraphError, match=message):
        graph.verify()


def test_verify_raises_where_an_operand_is_of_another_graph() -> None:
    other = Graph("other", {"x": F32})["x"]
    _broken(lambda g: change(g.nodes[0], inputs=(other, g["w"])), "MatMul: an operand does not belong to graph 'model'")


def test_verify_raises_where_a_body_reads_what_is_not_in_it() -> None:
    def edit(graph: Graph) -> None:
        body = next(n for n in graph.nodes if n.op_type == "If").attributes["then_branch"]
        node = body.nodes[0]
        change(node, inputs=(graph["x"], *node.inputs[1:]))

    _broken(edit, r"an operand does not belong to graph 'model/\w+/then")


def test_verify_raises_where_an_output_is_of_another_graph() -> None:
    other = Graph("other", {"x": F32})["x"]
    _broken(lambda g: g.build.outputs([("y", other)]), "output 'y' does not belong to the graph")


def test_verify_raises_where_two_outputs_have_one_name() -> None:
    _broken(lambda g: g.build.outputs([("y", g["result"]), ("y", g["x"])]), "two outputs are called 'y'")


def test_verify_raises_where_two_symbols_have_one_name() -> None:
    _broken(lambda g: change(g.symbols[-1], given_name="w"), "two Symbols are called 'w'")


def test_verify_raises_where_a_number_is_not_the_symbols_own() -> None:
    _broken(lambda g: change(g.symbols[-1], id=0), "has number 0 and belongs to")


def test_verify_raises_where_an_output_of_a_node_is_not_its_own() -> None:
    _broken(
        lambda g: change(g.nodes[0], outputs=(g["result"],)), "MatMul: an output of the node|used before it is computed"
    )
