"""Walks over a graph and what it holds: bodies of nodes, and bodies of the functions that it calls."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from graphcore.ir.definitions import Definition, definition_of, definitions
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import Attributes, change
from graphcore.ir.symbol import Constant, Node, Symbol, source_of
from graphcore.ir.transform.pickling import copied
from graphcore.support.source_lines import Imported, Line


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


# Editing the nodes of a graph in place.


def edit(
    graph: Graph, before: Mapping[int, Callable[[], object]] = MappingProxyType({}), dropped: Container[int] = ()
) -> None:
    """Add nodes in front of others, and remove some. The others keep their order.

    before: by the id of a node, what adds nodes to the graph in front of it, in its layer and for its line. dropped:
    the ids of those that go. Nothing may read what they make.
    """
    site, nodes = graph.site, [*graph._nodes]
    place = site.layer, site.origin, site.is_user
    # In place: views of the nodes show the list itself.
    graph._nodes.clear()
    site.is_user = False
    for node in nodes:
        make = before.get(id(node))
        if make is not None:
            site.layer, site.origin = node.layer, node.origin
            make()
        if id(node) not in dropped:
            graph._nodes.append(node)
    site.layer, site.origin, site.is_user = place


# Marks on the nodes of a graph, by which those that passes make of them are found: a number in place of the line.

_PATH = "<node>"


def marked(graph: Graph) -> Graph:
    """Return a copy of a graph, each node marked with its number in a walk over it and its bodies."""
    numbers = itertools.count()
    return _marked_as(graph, lambda _: next(numbers), {})


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
        if definition is not None and definition in calls:
            change(node, attributes=Attributes({**node.attributes, "definition": calls[definition]}))
    return made


def mark_of(node: Node) -> int | None:
    """Return the number of the node that a node was made of; None where it was made of none."""
    origin = node.origin
    return origin.number if isinstance(origin, Line) and origin.path == _PATH else None


# Reading constants: the value of a Symbol that is one, and None for any other.


def constant_array(symbol: Symbol | None, *, weights: bool = False, outer: bool = False) -> np.ndarray[Any, Any] | None:
    """Return the value of a constant; None for anything else.

    weights: of a weight too, whose array its owner may change until the graph is exported or loaded. outer: of what
    stands in a body for a constant of an outer graph, too.
    """
    if symbol is None:
        return None
    producer = source_of(symbol) if outer else symbol.producer
    return producer.array if isinstance(producer, Constant) and (weights or not producer.is_weight) else None


def constant_scalar(symbol: Symbol | None, *, weights: bool = False, outer: bool = False) -> int | None:
    """Return the value of a constant of rank 0 as an int; None for anything else. See `constant_array`."""
    array = constant_array(symbol, weights=weights, outer=outer)
    return None if array is None or array.ndim else int(array)
