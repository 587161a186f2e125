"""Print graphs, one line per node, and verify their invariants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.buffers import BufferValue, stored
from graphcore.ir.definitions import Definition, definition_of, definitions
from graphcore.ir.graph import Graph
from graphcore.ir.state.open_expressions import is_swallowed
from graphcore.ir.state.settings import minima, with_minima
from graphcore.ir.symbol import Captured, Constant, Input, Node, Symbol
from graphcore.ir.transform.walk import bodies
from graphcore.support.escaping import escaped, text_of
from graphcore.types.dtypes import DType


def graph_text(graph: Graph) -> str:
    """Return one line per input, weight, node and output: name, type, operator, operands, source line."""
    called = definitions(graph)
    parts = [
        *((f"function {name}", _rows(definition.body, "  ", called)) for definition, name in called.items()),
        (f"graph {graph.name} ({graph.promotion})", _rows(graph, "  ", called)),
    ]
    return "\n".join(escaped(line) for title, rows in parts for line in (f"{title} {{", *_aligned(rows), "}"))


def node_text(node: Node) -> str:
    """Return the line of a node in `graph_text`, without its source line."""
    definition = definition_of(node)
    return escaped(_node_line(node, {} if definition is None else {definition: definition.name}))


def _node_line(node: Node, called: Mapping[Definition, str]) -> str:
    return f"{', '.join(map(str, node.outputs))} = {_call(node, called)}"


def _aligned(rows: list[tuple[str, str]]) -> list[str]:
    width = min(max((len(left) for left, right in rows if right), default=0), 100)
    return [f"{left.ljust(width)}  # {right}" if right else left for left, right in rows]


def _rows(graph: Graph, indent: str, called: Mapping[Definition, str]) -> list[tuple[str, str]]:
    """Return the lines of a graph with their source lines; bodies are indented below their node."""
    buffers = graph._buffers
    bounds = minima(graph.metadata)
    kinds = ["buffer " if s.given_name in buffers else "input  " for s in graph._inputs]
    rows = [
        (f"{indent}{kind} {s.name}: {with_minima(s.type, bounds)}{_default(graph, s)}", str(s.line or ""))
        for kind, s in zip(kinds, graph._inputs, strict=True)
    ]
    rows += [(f"{indent}weight  {s}", str(s.line or "")) for s in graph.weights.values()]
    for node in graph.nodes:
        if graph.memory.expressions and any(map(is_swallowed, node.outputs)):
            continue  # a longer expression has absorbed its terms
        rows.append((f"{indent}{_node_line(node, called)}", str(node.line or "")))
        for key, value in node.attributes.items():
            if isinstance(value, Graph):
                rows += [(f"{indent}  {key}: {{", ""), *_rows(value, f"{indent}    ", called), (f"{indent}  }}", "")]
    rows += [(f"{indent}store   {name} = {_operand(value)}", "") for name, value in stored(graph).items()]
    return rows + [(f"{indent}output  {name}: {type_}", "") for name, type_ in graph.output_types.items()]


def _default(graph: Graph, symbol: Symbol) -> str:
    array = graph._defaults.get(symbol.given_name or "")
    return "" if array is None else f" = {symbol.dtype}{list(array.shape)}"


def _call(node: Node, called: Mapping[Definition, str]) -> str:
    operands = ["_" if s is None else _operand(s) for s in node.inputs]
    definition = definition_of(node)
    if definition is not None:
        return f"{called[definition]}({', '.join(operands)})"
    attributes = [
        f"{key}={_attribute(value)}" for key, value in node.attributes.items() if not isinstance(value, Graph)
    ]
    domain = f"{node.domain}." if node.domain not in ("", "graphcore") else ""
    return f"{domain}{node.op_type}({', '.join([*operands, *attributes])})"


def _operand(symbol: Symbol) -> str:
    producer = symbol.producer
    if isinstance(producer, Constant) and not producer.is_weight and symbol.given_name is None:
        return _array(producer.array, symbol.dtype)
    return symbol.name


def _array(array: np.ndarray[Any, Any], dtype: DType) -> str:
    if array.size <= 8:
        text = text_of(array.tolist()) if dtype.bits > 64 else str(array.tolist())
        return text if dtype is DType.int64 else f"{dtype}({text})"
    return f"{dtype}{list(array.shape)}"


def _attribute(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return _array(value, DType.of(value.dtype))
    if isinstance(value, (list, tuple)) and len(value) > _MAX_ELEMENTS:
        return f"[{', '.join(map(repr, value[:4]))}, ... {len(value)} in all]"
    text = str(value) if isinstance(value, DType) else repr(value)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


_MAX_ELEMENTS, _MAX_TEXT = 16, 200
"""Of attributes that are printed whole."""


# Checks of a whole graph: operands, outputs, names and bodies.


def verify(graph: Graph) -> None:
    """See `Graph.verify`."""
    if not graph.named_outputs and not stored(graph):
        raise GraphError(f"graph {graph.name!r} has no outputs", help="set them: graph.output(y)")
    _verify(graph, graph.name)


def _verify(graph: Graph, place: str) -> None:
    symbols = graph._symbols

    def is_own(symbol: Symbol) -> bool:
        return symbol.graph is graph and symbol.id < len(symbols) and symbols[symbol.id] is symbol

    _symbols(graph, place)
    count = len(symbols)
    for node in graph._nodes:
        outputs = node.outputs
        first = outputs[0].id if outputs else count
        for symbol in node.inputs:
            if symbol is None:
                continue
            value = symbol.value if isinstance(symbol, BufferValue) else symbol
            number = value.id  # a call of `is_own` for each operand takes a third of the time
            if value.graph is not graph or number >= count or symbols[number] is not value:
                raise GraphError(
                    f"{node.op_type}: an operand does not belong to graph {place!r}",
                    operands={"operand": symbol},
                    help="build the node again on Symbols of that graph",
                )
            if number >= first and type(value.producer) is Node:
                raise GraphError(
                    f"{node.op_type}: an operand is used before it is computed", operands={"operand": symbol}
                )
        for symbol in outputs:
            if not is_own(symbol) or symbol.producer is not node:
                raise GraphError(f"{node.op_type}: an output of the node in graph {place!r} has another producer")
        for body in bodies(node) if node.attributes else ():
            if body.scope.outer is not graph:
                raise GraphError(f"{node.op_type}: the outer graph of body {body.name!r} is not {place!r}")
            _verify(body, f"{place}/{node.outputs[0].name}/{body.name}" if node.outputs else place)
    _outputs(graph, place, is_own)


def _symbols(graph: Graph, place: str) -> None:
    """Check the graph, number, name and producer of each Symbol."""
    taken, outer = graph.names.taken, graph.scope.outer
    nodes, inputs = {id(node) for node in graph._nodes}, {id(symbol) for symbol in graph._inputs}
    for number, symbol in enumerate(graph._symbols):
        producer = symbol.producer
        if symbol.graph is not graph or symbol.id != number:
            raise GraphError(f"graph {place!r}: Symbol {number} has number {symbol.id} and belongs to {symbol.graph!r}")
        if symbol.given_name is not None and taken.get(symbol.given_name) is not symbol:
            raise GraphError(f"graph {place!r}: two Symbols are called {symbol.given_name!r}", operands={"one": symbol})
        if type(producer) is Node and id(producer) not in nodes and _is_read(graph, symbol):
            raise GraphError(f"graph {place!r}: the producer of a value is not in it", operands={"value": symbol})
        if type(producer) is Input and id(symbol) not in inputs and _is_read(graph, symbol):
            raise GraphError(f"graph {place!r}: an input is not among its inputs", operands={"input": symbol})
        if type(producer) is Captured and producer.symbol.graph is not outer:
            raise GraphError(
                f"graph {place!r}: a captured value is not from its outer graph", operands={"value": symbol}
            )


def _is_read(graph: Graph, symbol: Symbol) -> bool:
    """Return True if a node or output reads a Symbol. Passes may leave Symbols of removed nodes, which are unused."""
    return any(s is symbol for node in graph._nodes for s in node.inputs) or any(s is symbol for s in graph.outputs)


def _outputs(graph: Graph, place: str, is_own: Callable[[Symbol], bool]) -> None:
    called: set[str] = set()
    for label, value in graph.named_outputs:
        name = label or value.name
        if not is_own(value):
            raise GraphError(
                f"graph {place!r}: output {name!r} does not belong to the graph", operands={"output": value}
            )
        if name in called:
            raise GraphError(f"graph {place!r}: two outputs are called {name!r}", operands={"one": value})
        called.add(name)
