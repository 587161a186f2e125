"""A graph as flat lists, so that pickling and copying need no recursion however deep the graph is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.sources import line_of
from graphcore.symbol import Constant, Input, Node, Symbol

if TYPE_CHECKING:
    from graphcore.graph import Graph


def state_of(graph: Graph) -> dict[str, Any]:
    """Everything there is to know of a graph, without references between Symbols."""
    numbers = {id(node): number for number, node in enumerate(graph._nodes)}

    def producer_state(symbol: Symbol) -> tuple[Any, ...]:
        producer = symbol.producer
        if isinstance(producer, Node):
            return ("node", numbers[id(producer)])
        if isinstance(producer, Input):
            return ("input", producer.position, line_of(producer.origin))
        return ("constant", producer.array, producer.is_weight, line_of(producer.origin))

    return {
        "name": graph.name,
        "promotion": graph.promotion,
        "strict": graph.strict,
        "symbols": [(s.type, s._name, s.ambiguous, producer_state(s)) for s in graph._symbols],
        "nodes": [
            (
                n.op_type,
                [None if s is None else s.id for s in n.inputs],
                n.attributes,
                n.domain,
                n.layer,
                line_of(n.origin),
                [s.id for s in n.outputs],
            )
            for n in graph._nodes
        ],
        "inputs": [s.id for s in graph._inputs],
        "outputs": None if graph._outputs is None else [(name, s.id) for name, s in graph._outputs],
        "casts": [(key, s.id) for key, s in graph._casts.items()],
        "layers": dict(graph._layers),
    }


def restore(graph: Graph, state: dict[str, Any]) -> None:
    """Makes `graph`, an empty object, what `state` says."""
    from graphcore.graph import Graph

    Graph.__init__(graph, state["name"], promotion=state["promotion"], strict=state["strict"])
    nodes = [
        graph._node(op_type, (), attributes, domain, layer, line)
        for op_type, _, attributes, domain, layer, line, _ in state["nodes"]
    ]
    for type_, name, ambiguous, (kind, *rest) in state["symbols"]:
        producer: Node | Constant | Input
        if kind == "node":
            producer = nodes[rest[0]]
        elif kind == "input":
            producer = Input(rest[0], rest[1])
        else:
            producer = Constant(rest[0], rest[1], rest[2])
        graph._symbol(type_, producer, name).ambiguous = ambiguous
    symbols = graph._symbols
    for node, (_, inputs, _, _, _, _, outputs) in zip(nodes, state["nodes"], strict=True):
        node.inputs = tuple(None if i is None else symbols[i] for i in inputs)
        node.outputs = tuple(symbols[i] for i in outputs)
    graph._nodes = nodes
    graph._inputs = tuple(symbols[i] for i in state["inputs"])
    if state["outputs"] is not None:
        graph._outputs = [(name, symbols[i]) for name, i in state["outputs"]]
    graph._casts = {key: symbols[i] for key, i in state["casts"]}
    graph._layers = dict(state["layers"])
