"""A graph as flat lists, so that pickling and copying need no recursion however deep the graph is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.build import nary
from graphcore.ir.buffers import value_of
from graphcore.ir.symbol import Captured, Constant, Input, Node, Symbol
from graphcore.support.source_lines import line_of

if TYPE_CHECKING:
    from graphcore.ir.graph import Graph


class _Body(dict[str, Any]):
    """The state of a graph that is an attribute of a node."""


def copied(graph: Graph) -> Graph:
    """Return an independent graph of the same nodes and outputs; arrays are shared."""
    made = object.__new__(type(graph))
    restore(made, state_of(graph))
    return made


def state_of(graph: Graph) -> dict[str, Any]:
    """Everything there is to know of a graph, without references between Symbols."""
    from graphcore.ir.graph import Graph

    def attribute_state(value: Any) -> Any:
        return _Body(state_of(value)) if isinstance(value, Graph) else value

    numbers = {id(node): number for number, node in enumerate(graph._nodes)}

    def producer_state(symbol: Symbol) -> tuple[Any, ...]:
        producer = symbol.producer
        if isinstance(producer, Node):
            return ("node", numbers[id(producer)])
        if isinstance(producer, Input):
            return ("input", producer.position, line_of(producer.origin))
        if isinstance(producer, Captured):
            return ("captured", producer.symbol.id)
        return ("constant", producer.array, producer.is_weight, line_of(producer.origin))

    return {
        "name": graph.name,
        "promotion": graph.promotion,
        "strict": graph.strict,
        "symbols": [(s.type, s._name, producer_state(s)) for s in graph._symbols],
        "nodes": [
            (
                n.op_type,
                [None if s is None else s.id for s in n.inputs],
                {key: attribute_state(value) for key, value in n.attributes.items()},
                n.domain,
                n.layer,
                line_of(n.origin),
                [s.id for s in n.outputs],
            )
            for n in graph._nodes
        ],
        "inputs": [s.id for s in graph._inputs],
        "outputs": None if graph._outputs is None else [(name, s.id) for name, s in graph._outputs],
        "casts": [(key, s.id) for key, s in graph._once.casts.items()],
        "expressions": nary.state_of(graph),
        "layers": dict(graph._layers),
        "metadata": dict(graph._metadata),
        "domains": dict(graph._domains),
        "read": graph._read,
        "watched": [(label, s.id) for label, s in graph._watched.items()],
        "buffers": [(name, held.value.id, held.buffer) for name, held in graph._buffers.items()],
    }


def restore(graph: Graph, state: dict[str, Any], outer: Graph | None = None) -> None:
    """Makes `graph`, an empty object, what `state` says. outer: the graph whose node has it as a body."""
    from graphcore.ir.graph import Graph

    Graph.__init__(graph, state["name"], promotion=state["promotion"], strict=state["strict"])
    graph._outer = outer
    nodes = [
        graph._node(op_type, (), dict(attributes), domain, layer, line)
        for op_type, _, attributes, domain, layer, line, _ in state["nodes"]
    ]
    for type_, name, (kind, *rest) in state["symbols"]:
        producer: Node | Constant | Input | Captured
        if kind == "node":
            producer = nodes[rest[0]]
        elif kind == "input":
            producer = Input(rest[0], rest[1])
        elif kind == "captured":
            assert outer is not None, "a body is restored with the graph around it"
            producer = Captured(outer._symbols[rest[0]])
            graph._captured[rest[0]] = graph._symbol(type_, producer, name)
            continue
        else:
            producer = Constant(rest[0], rest[1], rest[2])
        graph._symbol(type_, producer, name)
    symbols = graph._symbols
    for node, (_, inputs, _, _, _, _, outputs) in zip(nodes, state["nodes"], strict=True):
        node.inputs = tuple(None if i is None else symbols[i] for i in inputs)
        node.outputs = tuple(symbols[i] for i in outputs)
        for key, value in node.attributes.items():
            if isinstance(value, _Body):
                body = node.attributes[key] = object.__new__(Graph)
                restore(body, value, graph)
    graph._nodes = nodes
    graph._inputs = tuple(symbols[i] for i in state["inputs"])
    if state["outputs"] is not None:
        graph._outputs = [(name, symbols[i]) for name, i in state["outputs"]]
    graph._once.casts = {key: symbols[i] for key, i in state["casts"]}
    nary.restore(graph, state["expressions"])
    graph._layers = dict(state["layers"])
    graph._metadata = dict(state["metadata"])
    graph._domains = dict(state["domains"])
    graph._read = state["read"]
    graph._watched = {label: symbols[i] for label, i in state["watched"]}
    graph._buffers = {name: value_of(graph, buffer, symbols[i], name) for name, i, buffer in state["buffers"]}
