"""Editing the nodes of a graph in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node


class Nodes:
    """The nodes of a graph that is edited: iterate over them, and say what becomes of each.

    The nodes keep their order. A node that is inserted has the origin of the one that it stands before.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._before: dict[int, list[Callable[[], object]]] = {}
        self._instead: dict[int, Sequence[Node]] = {}

    def __iter__(self) -> Iterator[Node]:
        return iter(tuple(self._graph._nodes))

    def __len__(self) -> int:
        return len(self._graph._nodes)

    def insert_before(self, node: Node, make: Callable[[], object]) -> None:
        """Let `make` add nodes to the graph, in the layer and for the line of the node, in front of it."""
        self._before.setdefault(id(node), []).append(make)

    def replace(self, node: Node, *others: Node) -> None:
        """Put other nodes, which are in no graph, in the place of one."""
        self._instead[id(node)] = others

    def drop(self, node: Node) -> None:
        """Remove a node. Nothing may read what it makes."""
        self._instead[id(node)] = ()

    def apply(self) -> None:
        """Do what was said."""
        if not self._before and not self._instead:
            return
        graph, site = self._graph, self._graph.site
        nodes, place = [*graph._nodes], (site.layer, site.origin, site.is_user)
        # In place: views of the nodes show the list itself.
        graph._nodes.clear()
        site.is_user = False
        for node in nodes:
            for make in self._before.get(id(node), ()):
                site.layer, site.origin = node.layer, node.origin
                make()
            graph._nodes.extend(self._instead.get(id(node), (node,)))
        site.layer, site.origin, site.is_user = place


@contextmanager
def edit(graph: Graph) -> Iterator[Nodes]:
    """Yield the nodes of a graph to be edited; what was said of them is done at the end.

    with edit(graph) as nodes:
        for node in nodes:
            if node.op_type == "Dropout":
                nodes.drop(node)
    """
    nodes = Nodes(graph)
    yield nodes
    nodes.apply()
