"""The values and nodes of a graph that are meant by a name, a Symbol or a node."""

from __future__ import annotations

import difflib
from typing import Any

from graphcore.errors import GraphError
from graphcore.ir.buffers import BufferValue
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.walk import parts
from graphcore.surgery.result_types import described


def target_of(graph: Graph, what: Any) -> Node | Symbol:
    """Return the node or value that is meant. Raises `GraphError` where the graph has none such."""
    if isinstance(what, str):
        return _named(graph, what)
    if isinstance(what, BufferValue):
        what = _named(graph, what.name)
    if isinstance(what, Node):
        if not any(node is what for part in parts(graph) for node in part.nodes):
            raise GraphError(
                f"replace: {described(what)} is no node of graph {graph.name!r}",
                help="nodes are those of graph.nodes, and of bodies and functions in it",
            )
        return what
    if not isinstance(what, Symbol):
        raise GraphError(
            f"replace: a value or a node is replaced, and a {type(what).__name__} is given",
            help="give a value's name, a Symbol or a node: graph.replace(graph['y'].producer, fn)",
        )
    if not any(part is what.graph for part in parts(graph)):
        raise GraphError(
            f"replace: {what.name!r} is no value of graph {graph.name!r}, but of another graph, {what.graph.name!r}",
            operands={"value": what},
            help=f"give it by name, or as graph[{what.name!r}]",
        )
    return what


def _named(graph: Graph, name: str) -> Symbol:
    found = graph.names.find(name, graph.symbols, graph.named_outputs)
    if found is not None and found.graph is graph:
        return found
    everything = [s.name for s in graph.symbols]
    inside = [s for part in parts(graph) if part is not graph for s in part.symbols if s.name == name]
    if inside:
        raise GraphError(
            f"replace: {name!r} is a value in the body {inside[0].graph.name!r}, where names are not unique",
            operands={"value": inside[0]},
            help="give the Symbol or the node: those of node.attributes[...].nodes",
        )
    close = difflib.get_close_matches(name, everything, 3)
    raise GraphError(
        f"replace: nothing in graph {graph.name!r} is called {name!r}",
        help=f"did you mean {' or '.join(map(repr, close))}?" if close else "print(graph) shows the names",
    )
