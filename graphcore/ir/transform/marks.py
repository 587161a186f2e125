"""Marks on the nodes of a graph, by which those that passes make of them are found: a number in place of the line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from graphcore.ir.definitions import Definition, definition_of, definitions
from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import Attributes, change
from graphcore.ir.symbol import Node
from graphcore.ir.transform.pickling import copied
from graphcore.ir.transform.walk import walk
from graphcore.support.source_lines import Imported, Line

_PATH = "<node>"


def marked(graph: Graph) -> Graph:
    """Return a copy of a graph, each node marked with its number in a walk over it and its bodies."""
    made = copied(graph)
    for number, node in enumerate(walk(made)):
        kind = Imported if type(node.origin) is Imported else Line
        change(node, origin=kind(_PATH, number))
    return made


def marked_through(graph: Graph, number_of: Callable[[Node], int]) -> Graph:
    """Return a copy of a graph, each node marked with the number that its original has, in called functions too."""
    made: dict[Definition, Definition] = {}
    for definition in definitions(graph):
        made[definition] = replace(definition, body=_marked_as(definition.body, number_of, made))
    return _marked_as(graph, number_of, made)


def _marked_as(graph: Graph, number_of: Callable[[Node], int], calls: Mapping[Definition, Definition]) -> Graph:
    made = copied(graph)
    for node, original in zip(walk(made), walk(graph), strict=True):
        kind = Imported if type(original.origin) is Imported else Line
        change(node, origin=kind(_PATH, number_of(original)))
        definition = definition_of(original)
        if definition is not None:
            change(node, attributes=Attributes({**node.attributes, "definition": calls[definition]}))
    return made


def mark_of(node: Node) -> int | None:
    """Return the number of the node that a node was made of; None where it was made of none."""
    origin = node.origin
    return origin.number if isinstance(origin, Line) and origin.path == _PATH else None
