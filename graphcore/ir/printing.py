"""Graphs for people, as text with a line a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphcore.ir.buffers import stored
from graphcore.ir.definitions import Definition, definition_of, definitions
from graphcore.ir.graph import Graph
from graphcore.ir.state.dim_minima import minima, with_minima
from graphcore.ir.state.open_expressions import is_swallowed
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.support.escaping import escaped, text_of
from graphcore.types.dtypes import DType


def graph_text(graph: Graph) -> str:
    """One line each for inputs, weights, nodes and outputs: name, type, operator, operands, source line."""
    called = definitions(graph)
    parts = [
        *((f"function {name}", _rows(definition.body, "  ", called)) for definition, name in called.items()),
        (f"graph {graph.name} ({graph.promotion})", _rows(graph, "  ", called)),
    ]
    return "\n".join(escaped(line) for title, rows in parts for line in (f"{title} {{", *_aligned(rows), "}"))


def _aligned(rows: list[tuple[str, str]]) -> list[str]:
    width = min(max((len(left) for left, right in rows if right), default=0), 100)
    return [f"{left.ljust(width)}  # {right}" if right else left for left, right in rows]


def _rows(graph: Graph, indent: str, called: Mapping[Definition, str]) -> list[tuple[str, str]]:
    """The lines of a graph, and the source lines beside them; bodies stand below their node, further in."""
    buffers = graph._buffers
    known = minima(graph.metadata)
    kinds = ["buffer " if s.given_name in buffers else "input  " for s in graph._inputs]
    rows = [
        (f"{indent}{kind} {s.name}: {with_minima(s.type, known)}", _where(s))
        for kind, s in zip(kinds, graph._inputs, strict=True)
    ]
    rows += [(f"{indent}weight  {s}", _where(s)) for s in graph.weights.values()]
    for node in _shown(graph):
        made = ", ".join(map(str, node.outputs))
        rows.append((f"{indent}{made} = {_call(node, called)}", str(node.line or "")))
        for key, value in node.attributes.items():
            if _is_body(value):
                rows += [(f"{indent}  {key}: {{", ""), *_rows(value, f"{indent}    ", called), (f"{indent}  }}", "")]
    rows += [(f"{indent}store   {name} = {_operand(value)}", "") for name, value in stored(graph).items()]
    return rows + [(f"{indent}output  {name}: {type_}", "") for name, type_ in graph.output_types.items()]


def _shown(graph: Graph) -> list[Node]:
    """The nodes, without sums and products that a longer one has taken the terms of."""
    return (
        [n for n in graph.nodes if not any(map(is_swallowed, n.outputs))]
        if graph.memory.expressions
        else [*graph.nodes]
    )


def _is_body(value: object) -> bool:
    return isinstance(value, Graph)


def _where(symbol: Symbol) -> str:
    return str(symbol.line or "")


def _call(node: Node, called: Mapping[Definition, str]) -> str:
    operands = ["_" if s is None else _operand(s) for s in node.inputs]
    definition = definition_of(node)
    if definition is not None:
        return f"{called[definition]}({', '.join(operands)})"
    attributes = [f"{key}={_attribute(value)}" for key, value in node.attributes.items() if not _is_body(value)]
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
    return str(value) if isinstance(value, DType) else repr(value)
