"""Checks of a whole graph: operands, outputs, names, and the bodies in it."""

from __future__ import annotations

from collections.abc import Callable

from graphcore.errors import GraphError
from graphcore.ir.buffers import BufferValue, stored
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Input, Node, Symbol
from graphcore.ir.transform.walk import bodies


def verify(graph: Graph) -> None:
    """See `Graph.verify`."""
    if not graph.named_outputs and not stored(graph):
        raise GraphError(f"graph {graph.name!r} has no outputs", help="say what it computes: graph.output(y)")
    _verify(graph, graph.name)


def _verify(graph: Graph, place: str) -> None:
    symbols = graph._symbols

    def is_own(symbol: Symbol) -> bool:
        return symbol.graph is graph and symbol.id < len(symbols) and symbols[symbol.id] is symbol

    _symbols(graph, place)
    count = len(symbols)
    for node in graph._nodes:
        outputs = node.outputs
        made = outputs[0].id if outputs else count
        for symbol in node.inputs:
            if symbol is None:
                continue
            value = symbol.value if isinstance(symbol, BufferValue) else symbol
            number = value.id  # a call of `is_own` for each operand takes a third of the time
            if value.graph is not graph or number >= count or symbols[number] is not value:
                raise GraphError(
                    f"{node.op_type}: an operand is in no graph, or in another one than {place!r}",
                    operands={"operand": symbol},
                    help="build the node again on Symbols of its graph",
                )
            if number >= made and type(value.producer) is Node:
                raise GraphError(f"{node.op_type}: an operand is used before it is made", operands={"operand": symbol})
        for symbol in outputs:
            if not is_own(symbol) or symbol.producer is not node:
                raise GraphError(f"{node.op_type}: an output of the node in graph {place!r} is not the node's own")
        for body in bodies(node) if node.attributes else ():
            if body.scope.outer is not graph:
                raise GraphError(f"{node.op_type}: the body {body.name!r} belongs into another graph than {place!r}")
            _verify(body, f"{place}/{node.outputs[0].name}/{body.name}" if node.outputs else place)
    _outputs(graph, place, is_own)


def _symbols(graph: Graph, place: str) -> None:
    """Check that each Symbol is where it says, and has its name alone."""
    taken, outer = graph.names.taken, graph.scope.outer
    nodes, inputs = {id(node) for node in graph._nodes}, {id(symbol) for symbol in graph._inputs}
    for number, symbol in enumerate(graph._symbols):
        producer = symbol.producer
        if symbol.graph is not graph or symbol.id != number:
            raise GraphError(f"graph {place!r}: Symbol {number} says that it is number {symbol.id} of {symbol.graph!r}")
        if symbol.given_name is not None and taken.get(symbol.given_name) is not symbol:
            raise GraphError(f"graph {place!r}: two Symbols are called {symbol.given_name!r}", operands={"one": symbol})
        if type(producer) is Node and id(producer) not in nodes and _is_read(graph, symbol):
            raise GraphError(f"graph {place!r}: the node that makes a value is not in it", operands={"value": symbol})
        if type(producer) is Input and id(symbol) not in inputs and _is_read(graph, symbol):
            raise GraphError(f"graph {place!r}: an input is not among its inputs", operands={"input": symbol})
        if type(producer) is Captured and producer.symbol.graph is not outer:
            raise GraphError(f"graph {place!r}: a value is captured from no outer graph", operands={"value": symbol})


def _is_read(graph: Graph, symbol: Symbol) -> bool:
    """Return whether anything in the graph asks for a Symbol. Passes may leave others of nodes that they took out."""
    return any(s is symbol for node in graph._nodes for s in node.inputs) or any(s is symbol for s in graph.outputs)


def _outputs(graph: Graph, place: str, is_own: Callable[[Symbol], bool]) -> None:
    called: set[str] = set()
    for label, value in graph.named_outputs:
        name = label or value.name
        if not is_own(value):
            raise GraphError(
                f"graph {place!r}: output {name!r} is in no graph, or in another one", operands={"output": value}
            )
        if name in called:
            raise GraphError(f"graph {place!r}: two outputs are called {name!r}", operands={"one": value})
        called.add(name)
