"""Graphs for people: as text with a line a node, as a table and a drawing for notebooks."""

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
from graphcore.types.dtypes import DType


def graph_text(graph: Graph) -> str:
    """One line each for inputs, weights, nodes and outputs: name, type, operator, operands, source line."""
    called = definitions(graph)
    parts = [
        *((f"function {name}", _rows(definition.body, "  ", called)) for definition, name in called.items()),
        (f"graph {graph.name} ({graph.promotion})", _rows(graph, "  ", called)),
    ]
    return "\n".join(line for title, rows in parts for line in (f"{title} {{", *_aligned(rows), "}"))


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
        return str(array.tolist()) if dtype is DType.int64 else f"{dtype}({array.tolist()})"
    return f"{dtype}{list(array.shape)}"


def _attribute(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return _array(value, DType.of(value.dtype))
    return str(value) if isinstance(value, DType) else repr(value)


def graph_html(graph: Graph) -> str:
    """A table of the nodes."""
    import html

    rows = [("input", str(s.type), s.name, _where(s)) for s in graph._inputs]
    called = definitions(graph)
    for node in _shown(graph):
        types = ", ".join(str(s.type) for s in node.outputs)
        rows.append((_call(node, called), types, ", ".join(s.name for s in node.outputs), str(node.line or "")))
    rows += [("output", str(type_), name, "") for name, type_ in graph.output_types.items()]
    body = "".join("<tr>" + "".join(f"<td><code>{html.escape(c)}</code></td>" for c in row) + "</tr>" for row in rows)
    head = "".join(f"<th>{title}</th>" for title in ("operator", "type", "name", "line"))
    return f"<table><caption>{html.escape(graph.name)}</caption><tr>{head}</tr>{body}</table>"


_ROW, _COLUMN, _BOX = 56, 190, 170
_LARGEST = 400


def graph_svg(graph: Graph) -> str:
    """A drawing: operators in rows by their distance from the inputs. Of a graph of over 400 nodes, the first 400."""
    import html

    depth: dict[int, int] = {s.id: 0 for s in graph._inputs}
    boxes: list[tuple[int, str, str, list[Symbol], list[Symbol]]] = [
        (0, s.name, str(s.type), [], [s]) for s in graph._inputs
    ]
    for node in _shown(graph)[:_LARGEST]:
        operands = [s for s in node.inputs if s is not None and s.id in depth]
        row = 1 + max((depth[s.id] for s in operands), default=0)
        depth.update((s.id, row) for s in node.outputs)
        boxes.append((row, node.op_type, str(node.outputs[0].type), operands, list(node.outputs)))
    columns: dict[int, int] = {}
    places: dict[int, tuple[int, int]] = {}
    shapes: list[str] = []
    for row, title, subtitle, operands, made in boxes:
        column = columns.get(row, 0)
        columns[row] = column + 1
        x, y = 10 + column * _COLUMN, 10 + row * _ROW
        places.update((s.id, (x + _BOX // 2, y + 36)) for s in made)
        for symbol in operands:
            x1, y1 = places[symbol.id]
            shapes.append(f'<path d="M{x1} {y1}L{x + _BOX // 2} {y}" stroke="#888"/>')
        shapes.append(f'<rect x="{x}" y="{y}" width="{_BOX}" height="36" rx="4" fill="#eef" stroke="#558"/>')
        for text, dy, size in ((title, 15, 12), (subtitle, 29, 10)):
            shapes.append(f'<text x="{x + 6}" y="{y + dy}" font-size="{size}">{html.escape(text[:28])}</text>')
    width = 20 + max(columns.values(), default=1) * _COLUMN
    height = 20 + (max(columns, default=0) + 1) * _ROW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="monospace" '
        f'fill="black">{"".join(shapes)}</svg>'
    )
