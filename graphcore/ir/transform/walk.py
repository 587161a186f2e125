"""Walks over a graph, the bodies of its nodes, and the functions that it calls."""

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
from graphcore.ir.symbol import Captured, Constant, Node, Symbol, source_of
from graphcore.ir.transform.pickling import copied
from graphcore.support.source_lines import Imported, Line


def bodies(node: Node) -> list[Graph]:
    """Return the graphs that are attributes of a node."""
    return [value for value in node.attributes.values() if isinstance(value, Graph)] if node.attributes else []


def outside(body: Graph) -> list[Symbol]:
    """Return the Symbols of outer graphs that a body captures, in the order of its own Symbols for them."""
    producers = [symbol.producer for symbol in body.scope.captured.values()]
    return [producer.symbol for producer in producers if isinstance(producer, Captured)]


def renumbered(body: Graph) -> dict[int, Symbol]:
    """Return the captured Symbols of a body by the present numbers of the outer ones."""
    return {outer.id: symbol for outer, symbol in zip(outside(body), body.scope.captured.values(), strict=True)}


def reads(node: Node) -> list[Symbol]:
    """Return the Symbols that a node reads, including those that its bodies capture."""
    return [*(s for s in node.inputs if s is not None), *(s for body in bodies(node) for s in outside(body))]


def readers(graph: Graph) -> dict[int, list[Node]]:
    """Return the nodes of a graph that read each value, by its number."""
    result: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for symbol in node.inputs:
            if symbol is not None:
                result.setdefault(symbol.id, []).append(node)
    return result


def walk(graph: Graph) -> Iterator[Node]:
    """Yield the nodes of a graph in order; nodes of bodies follow the node that has the body."""
    for node in graph._nodes:
        yield node
        for body in bodies(node):
            yield from walk(body)


def nested(graph: Graph) -> Iterator[Graph]:
    """Yield a graph and its nested bodies, each after the graph that contains it."""
    yield graph
    for node in graph._nodes:
        for body in bodies(node):
            yield from nested(body)


def parts(graph: Graph) -> Iterator[Graph]:
    """Yield a graph, its nested bodies, and the called functions with their bodies, each once."""
    for root in (graph, *(definition.body for definition in definitions(graph))):
        yield from nested(root)


def operators(graph: Graph, seen: set[Definition] | None = None) -> set[tuple[str, str]]:
    """Return operators and their domains, including bodies and called functions. seen: functions to skip."""
    seen = set() if seen is None else seen
    result = {(node.op_type, node.domain) for node in graph._nodes}
    for node in graph._nodes:
        for value in node.attributes.values() if node.attributes else ():
            if isinstance(value, Graph):
                result |= operators(value, seen)
            elif isinstance(value, Definition) and value not in seen:
                seen.add(value)
                result |= operators(value.body, seen)
    return result


# In-place edits of the nodes of a graph.


def edit(
    graph: Graph, before: Mapping[int, Callable[[], object]] = MappingProxyType({}), dropped: Container[int] = ()
) -> None:
    """Insert nodes before others, and remove some. The others keep their order.

    before: functions that add nodes to the graph before a node, in its layer and with its origin, by the id of that
    node. dropped: the ids of nodes to remove, whose results must be unused.
    """
    site, nodes = graph.site, [*graph._nodes]
    place = site.layer, site.origin, site.is_user
    # In place, because views share the list.
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


# Marks on nodes, numbers in place of the origin: new nodes of passes inherit them, and can be traced back.

_PATH = "<node>"


def marked(graph: Graph) -> Graph:
    """Return a copy of a graph whose nodes are marked with their numbers in a walk over it and its bodies."""
    numbers = itertools.count()
    return _marked_as(graph, lambda _: next(numbers), {})


def marked_through(graph: Graph, number_of: Callable[[Node], int]) -> Graph:
    """Return a copy of a graph whose nodes are marked with the number of their original, also in called functions."""
    copies: dict[Definition, Definition] = {}
    for definition in definitions(graph):
        copies[definition] = replace(definition, body=_marked_as(definition.body, number_of, copies))
    return _marked_as(graph, number_of, copies)


def _marked_as(graph: Graph, number_of: Callable[[Node], int], calls: Mapping[Definition, Definition]) -> Graph:
    result = copied(graph)
    for node, original in zip(walk(result), walk(graph), strict=True):
        kind = Imported if type(original.origin) is Imported else Line
        change(node, origin=kind(_PATH, number_of(original)))
        definition = definition_of(original)
        if definition is not None and definition in calls:
            change(node, attributes=Attributes({**node.attributes, "definition": calls[definition]}))
    return result


def mark_of(node: Node) -> int | None:
    """Return the mark of a node, which identifies its original; None if it has none."""
    origin = node.origin
    return origin.number if isinstance(origin, Line) and origin.path == _PATH else None


# Producers of values, and constants


def node_of(symbol: Symbol | None, *op_types: str) -> Node | None:
    """Return the producer of a Symbol if it is one of these operators of ONNX."""
    producer = None if symbol is None else symbol.producer
    if not isinstance(producer, Node) or producer.domain or producer.op_type not in op_types:
        return None
    return producer


def constant_array(symbol: Symbol | None, *, weights: bool = False, outer: bool = False) -> np.ndarray[Any, Any] | None:
    """Return the value of a constant; None for any other Symbol.

    weights: also of weights, whose arrays their owner may change until the graph is exported or loaded. outer: also of
    captured constants of an outer graph.
    """
    if symbol is None:
        return None
    producer = source_of(symbol) if outer else symbol.producer
    return producer.array if isinstance(producer, Constant) and (weights or not producer.is_weight) else None


def constant_scalar(symbol: Symbol | None, *, weights: bool = False, outer: bool = False) -> int | None:
    """Return the value of a constant of rank 0 as an int; None for any other Symbol. See `constant_array`."""
    array = constant_array(symbol, weights=weights, outer=outer)
    return None if array is None or array.ndim else int(array)
