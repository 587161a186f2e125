"""The nodes of a user's graph that those of the lowered one were made of, and their shapes in a run that failed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.ir.transform.marks import mark_of, marked
from graphcore.ir.transform.walk import walk
from graphcore.runtime.calls.feeds import summary
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType

_MOST_WATCHED = 20_000
"""Nodes of a graph that is run again, up to the one that failed, for shapes that only a run tells."""


class UserNodes:
    """Finds the node of a graph that failed, by the name that the lowered one has.

    The graph is lowered once more for it, each node with its number in place of its line: passes hand lines on to what
    they make. lower: does what was done before the session was started. run: gives the arrays of values for a feed.
    """

    def __init__(
        self,
        graph: Graph,
        lower: Callable[[Graph], Graph],
        run: Callable[[Sequence[Symbol], Mapping[str, Any]], Sequence[Any]],
    ) -> None:
        self._graph = graph
        self._lower = lower
        self._run = run
        self._found: dict[str, Node] | None = None

    def of(self, name: str) -> Node | None:
        """Return the node of the graph that the node of that name was made of; None where that is not known."""
        if not name:
            return None
        if self._found is None:
            try:
                self._found = _origins(self._graph, self._lower)
            except Exception:  # the run failed, and that is what is to be told
                self._found = {}
        return next((self._found[key] for key in _spellings(name) if key in self._found), None)

    def shapes(self, node: Node, feed: Mapping[str, Any]) -> dict[int, str]:
        """Return the dtype and shape in this run of the operands of a node, by their numbers, as far as known."""
        sizes = sizes_of(self._graph, feed)
        found: dict[int, str] = {}
        unknown: list[Symbol] = []
        for symbol in {s.id: s for s in node.inputs if s is not None}.values():
            text = _in_run(symbol, sizes, feed)
            found[symbol.id] = text
            if "?" in text and symbol.graph is self._graph and isinstance(symbol.producer, Node):
                unknown.append(symbol)
        if unknown and len(self._graph.nodes) <= _MOST_WATCHED:
            try:
                arrays = self._run(unknown, feed)
            except Exception:  # what they are made of may have failed
                return found
            found.update({s.id: summary(array) for s, array in zip(unknown, arrays, strict=True)})
        return found


def _origins(graph: Graph, lower: Callable[[Graph], Graph]) -> dict[str, Node]:
    """Return, by the names of the lowered nodes' first results, the nodes of the graph that they were made of."""
    nodes = [*walk(graph)]
    lowered = lower(marked(graph))
    found: dict[str, Node] = {}
    for node in (*lowered.nodes, *walk(lowered)):
        number = mark_of(node)
        if number is not None:
            found.setdefault(node.outputs[0].name, nodes[number])
    return found


def _spellings(name: str) -> list[str]:
    """Return the names that a node may have had before the runtime renamed it: in a body, or fused with others."""
    parts = re.split(r"/", name)
    ends = ["/".join(parts[i:]) for i in range(len(parts))]
    starts = ["/".join(parts[:i]) for i in range(len(parts) - 1, 0, -1)]
    bare = [re.sub(r"(?:_token_\d+|_\d+|_[A-Z]\w*)$", "", text) for text in (name, *starts)]
    return [*ends, *starts, *bare]


def sizes_of(graph: Graph, feed: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of the dims that have names, in the inputs of a graph."""
    sizes: dict[str, int] = {}
    for symbol in graph.inputs:
        array = feed.get(symbol.name)
        if isinstance(array, np.ndarray) and isinstance(symbol.type, TensorType) and symbol.shape.is_ranked:
            sizes.update({d.name: n for d, n in zip(symbol.shape, array.shape, strict=False) if d.name is not None})
    return sizes


def _in_run(symbol: Symbol, sizes: Mapping[str, int], feed: Mapping[str, Any]) -> str:
    """Return the dtype and shape of a value in a run, with `?` where dims do not tell."""
    while isinstance(symbol.producer, Captured):
        symbol = symbol.producer.symbol
    type_ = symbol.type
    if isinstance(symbol.producer, Constant):
        array = symbol.producer.array
        return f"{type_.dtype}{list(array.shape)}" + (f" {array.tolist()}" if array.size <= 8 and array.ndim else "")
    given = feed.get(symbol.name)
    if isinstance(given, np.ndarray) and not isinstance(symbol.producer, Node):
        return summary(given)
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return f"{type_}" if not isinstance(type_, TensorType) else f"{type_.dtype}[?...]"
    return f"{type_.dtype}[{', '.join(_size(dim, sizes) for dim in type_.shape)}]"


def _size(dim: Dim, sizes: Mapping[str, int]) -> str:
    try:
        return str(dim.evaluate(sizes))
    except (ValueError, TypeError, ZeroDivisionError):
        return "?"
