"""Walks over a graph and what it holds: bodies of nodes, and bodies of the functions that it calls."""

from __future__ import annotations

from collections.abc import Iterator

from graphcore.ir.definitions import Definition, definitions
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node


def bodies(node: Node) -> list[Graph]:
    """Return the graphs that are attributes of a node."""
    return [value for value in node.attributes.values() if isinstance(value, Graph)] if node.attributes else []


def walk(graph: Graph) -> Iterator[Node]:
    """Yield the nodes of a graph in order, those in bodies after the node that has them."""
    for node in graph._nodes:
        yield node
        for body in bodies(node):
            yield from walk(body)


def nested(graph: Graph) -> Iterator[Graph]:
    """Yield a graph and the bodies in it, each after the graph that it is in."""
    yield graph
    for node in graph._nodes:
        for body in bodies(node):
            yield from nested(body)


def parts(graph: Graph) -> Iterator[Graph]:
    """Yield a graph, the bodies in it, and those of the functions that are called, each once."""
    for root in (graph, *(definition.body for definition in definitions(graph))):
        yield from nested(root)


def operators(graph: Graph, seen: set[Definition] | None = None) -> set[tuple[str, str]]:
    """Return operators and their domains, those in bodies and in called functions included. seen: functions that were
    looked at already."""
    seen = set() if seen is None else seen
    found = {(node.op_type, node.domain) for node in graph._nodes}
    for node in graph._nodes:
        for value in node.attributes.values() if node.attributes else ():
            if isinstance(value, Graph):
                found |= operators(value, seen)
            elif isinstance(value, Definition) and value not in seen:
                seen.add(value)
                found |= operators(value.body, seen)
    return found
