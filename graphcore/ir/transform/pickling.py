"""The state of a graph as flat lists, so that pickling and copying deep graphs need no recursion."""

from __future__ import annotations

from typing import Any

from graphcore.ir.emit import new_node
from graphcore.ir.graph import Graph
from graphcore.ir.state import open_expressions
from graphcore.ir.state.frozen import Attributes
from graphcore.ir.symbol import Captured, Constant, Input, Node, Symbol
from graphcore.support.source_lines import line_of


class _Body(dict[str, Any]):
    """The state of a graph that is an attribute of a node."""


def copied(graph: Graph) -> Graph:
    """Return an independent graph of the same nodes and outputs; arrays are shared.

    Unlike a `Rewrite`, a copy keeps the numbers of Symbols, by which callers find them, and the caches of casts and of
    open expressions.
    """
    result = object.__new__(type(graph))
    restore(result, state_of(graph))
    return result


def state_of(graph: Graph) -> dict[str, Any]:
    """Return the complete state of a graph, without references between Symbols."""

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
        "symbols": [(s.type, s.given_name, producer_state(s)) for s in graph._symbols],
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
        "defaults": dict(graph._defaults),
        "outputs": None if graph._outputs is None else [(name, s.id) for name, s in graph._outputs],
        "casts": [(key, s.id) for key, s in graph.memory.casts.items()],
        "expressions": open_expressions.state_of(graph),
        "layers": dict(graph.site.layers),
        "metadata": dict(graph.metadata),
        "fields": graph.file_fields,
        "folded": dict(graph.folded),
        "domains": dict(graph.opsets),
        "watched": [(label, s.id) for label, s in graph.watched.items()],
        "buffers": [(name, buffer.value.id, buffer.buffer) for name, buffer in graph._buffers.items()],
    }


def restore(graph: Graph, state: dict[str, Any], outer: Graph | None = None) -> None:
    """Initialise `graph`, an empty object, from its state. outer: the graph whose node has it as a body."""
    Graph.__init__(graph, state["name"], promotion=state["promotion"], strict=state["strict"])
    graph.scope.outer = outer
    nodes = [
        new_node(op_type, (), None, domain, layer, line) for op_type, _, _, domain, layer, line, _ in state["nodes"]
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
            graph.scope.captured[rest[0]] = graph.build.symbol(type_, producer, name)
            continue
        else:
            producer = Constant(rest[0], rest[1], rest[2])
        graph.build.symbol(type_, producer, name)
    symbols = graph._symbols

    def attribute(value: Any) -> Any:
        if not isinstance(value, _Body):
            return value
        body = object.__new__(Graph)
        restore(body, value, graph)
        return body

    for node, (_, inputs, attributes, _, _, _, outputs) in zip(nodes, state["nodes"], strict=True):
        node.inputs = tuple(None if i is None else symbols[i] for i in inputs)
        node.outputs = tuple(symbols[i] for i in outputs)
        if attributes:
            node.attributes = Attributes({key: attribute(value) for key, value in attributes.items()})
        node.__class__ = Node
    graph._nodes[:] = nodes
    graph._inputs = tuple(symbols[i] for i in state["inputs"])
    graph._defaults = dict(state.get("defaults", ()))
    if state["outputs"] is not None:
        graph._outputs = [(name, symbols[i]) for name, i in state["outputs"]]
    graph.memory.casts = {key: symbols[i] for key, i in state["casts"]}
    open_expressions.restore(graph, state["expressions"])
    graph.site.layers = dict(state["layers"])
    graph.metadata = dict(state["metadata"])
    graph.file_fields = state.get("fields")
    graph.folded = dict(state.get("folded", ()))
    graph.opsets = dict(state["domains"])
    graph.watched = {label: symbols[i] for label, i in state["watched"]}
    for name, i, buffer in state["buffers"]:
        graph.build.buffer(name, buffer, symbols[i])
