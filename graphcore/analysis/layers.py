"""The layers of a graph: groups of nodes by the layers they were built in, by their names, or by the data flow."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node

Path: TypeAlias = "tuple[str, ...]"

_MAX_DEPTH = 12
"""The maximum depth of layers; deeper parts of a name belong to the innermost layer."""

_MAX_NAME_LENGTH = 4000
"""Characters of a name that are searched for layers."""

_MAX_SIDE_BY_SIDE = 300
"""The maximum number of nodes and layers at the top; more are cut into parts."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A group of nodes.

    Attributes:
        path: The full name, parts joined with `/`.
        name: The part after the parent's path.
        parent: The position of the enclosing layer, or -1.
        nodes: The number of nodes, including those of inner layers.
    """

    path: str
    name: str
    parent: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of one graph, each after its enclosing layer.

    Attributes:
        innermost: For each node of the graph, in order, the position of its layer, or -1.
    """

    layers: tuple[Layer, ...]
    innermost: tuple[int, ...]

    def path_of(self, node: int) -> str:
        """Return the path of the layer of the node at a position, or ""."""
        position = self.innermost[node]
        return "" if position < 0 else self.layers[position].path

    def around(self, node: int) -> tuple[str, ...]:
        """Return the paths of the enclosing layers of the node at a position, outermost first."""
        paths: list[str] = []
        position = self.innermost[node]
        while position >= 0:
            paths.append(self.layers[position].path)
            position = self.layers[position].parent
        return tuple(paths[::-1])


def layers(graph: Graph) -> Layers:
    """Return the layers of a graph's own nodes; bodies and functions are graphs with layers of their own.

    A node's layer is the one that it was built in; in imported models the hierarchy in the name of its result
    (`/encoder/layer.0/MatMul_output_0`, `model.layers.0.add`), or else in the name of its weight. A node without either
    is in the common layer of the nodes before and after it. If too many nodes and layers are at the top, they are cut
    into parts where the fewest values flow from one part to the next. Layers of one node, and those of the whole graph,
    are omitted.
    """
    nodes = graph.nodes
    paths = _paths(nodes)
    result = _group(paths)
    top_level = sum(place < 0 for place in result.innermost) + sum(layer.parent < 0 for layer in result.layers)
    if top_level <= _MAX_SIDE_BY_SIDE:
        return result
    return _group([(*part, *path) for part, path in zip(_parts(nodes, paths), paths, strict=True)])


def path_in(name: str) -> Path:
    """Return the layers in a name: the parts before its last `/`, or before its last `.` if it has no slash."""
    name = name[:_MAX_NAME_LENGTH]
    inner = name.split("/") if "/" in name.strip("/") else name.split(".")
    return tuple(filter(None, inner[:-1][:_MAX_DEPTH]))


def _paths(nodes: Sequence[Node]) -> list[Path]:
    by_layer: dict[str, Path] = {}
    paths: list[Path | None] = []
    for node in nodes:
        if node.layer:
            path = by_layer.get(node.layer)
            if path is None:
                path = by_layer[node.layer] = tuple(filter(None, node.layer[:_MAX_NAME_LENGTH].split("/")[:_MAX_DEPTH]))
            paths.append(path)
        else:
            paths.append(_path_in_names(node))
    return _fill_gaps(paths)


def _path_in_names(node: Node) -> Path | None:
    """Return the layers in the names of a node's results or of its weights, or None."""
    for symbol in node.outputs:
        if symbol.given_name is not None and (path := path_in(symbol.given_name)):
            return path
    for operand in node.inputs:
        if operand is not None and type(operand.producer) is Constant and (path := path_in(operand.given_name or "")):
            return path
    return None


def _fill_gaps(paths: list[Path | None]) -> list[Path]:
    """Return paths with unknown ones replaced by the common prefix of the nearest known ones."""
    after: list[Path] = [()] * len(paths)
    following: Path = ()
    for position in range(len(paths) - 1, -1, -1):
        following = paths[position] or following
        after[position] = following
    result: list[Path] = []
    before: Path = ()
    for position, path in enumerate(paths):
        before = path or before
        if path is None:
            common = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, after[position], strict=False))
            path = tuple(part for part, _ in common)
        result.append(path)
    return result


def _parts(nodes: Sequence[Node], paths: Sequence[Path]) -> list[Path]:
    """Return parts of about equal size, nested if there are many, cut where the fewest values are live.

    paths: of the nodes; layers are not cut if possible.
    """
    live = _live(nodes)
    for position in range(1, len(nodes)):
        if paths[position] and paths[position][:1] == paths[position - 1][:1]:
            live[position] += len(nodes)
    size = max(20, round(math.sqrt(len(nodes))))
    inner = _cuts(live, 0, len(nodes), size)
    if len(inner) <= 30:
        return [(f"part {i + 1}",) for i, (a, b) in enumerate(inner) for _ in range(a, b)]
    chunk = max(2, round(math.sqrt(len(inner))))
    return [
        (f"part {i // chunk + 1}", f"part {i // chunk + 1}.{i % chunk + 1}")
        for i, (a, b) in enumerate(inner)
        for _ in range(a, b)
    ]


def _live(nodes: Sequence[Node]) -> list[int]:
    """Return for each position the number of results of earlier nodes that are read there or later."""
    last: dict[int, int] = {}
    first: dict[int, int] = {}
    for position, node in enumerate(nodes):
        for symbol in node.outputs:
            first[symbol.id] = position + 1
        for operand in node.inputs:
            if operand is not None and operand.id in first:
                last[operand.id] = position
    change = [0] * (len(nodes) + 2)
    for symbol_id, position in last.items():
        change[first[symbol_id]] += 1
        change[position + 1] -= 1
    live, count = [], 0
    for step in change[: len(nodes) + 1]:
        count += step
        live.append(count)
    return live


def _cuts(live: Sequence[int], start: int, end: int, size: int) -> list[tuple[int, int]]:
    """Return ranges of 0.5 to 1.5 times a size that end where the fewest values are live."""
    ranges = []
    while end - start > size * 3 // 2:
        cut = min(range(start + size // 2, start + size * 3 // 2), key=lambda i: (live[i], abs(i - start - size)))
        ranges.append((start, cut))
        start = cut
    return [*ranges, (start, end)]


def _group(paths: Sequence[Path]) -> Layers:
    counts: dict[Path, int] = {}
    children: dict[Path, set[Path]] = {}
    for path in paths:
        for depth in range(1, len(path) + 1):
            prefix = path[:depth]
            counts[prefix] = counts.get(prefix, 0) + 1
            if prefix not in children:
                children[prefix] = set()
                if depth > 1:
                    children[path[: depth - 1]].add(prefix)
    is_kept = {
        path: 1 < count < len(paths) and not any(counts[child] == counts[path] for child in children[path])
        for path, count in counts.items()
    }
    numbers: dict[Path, int] = {}
    groups: list[Layer] = []

    def number(path: Path) -> int:
        position = numbers.get(path)
        if position is not None:
            return position
        outer = path[:-1]
        while outer and not is_kept[outer]:
            outer = outer[:-1]
        parent = number(outer) if outer else -1
        numbers[path] = len(groups)
        groups.append(Layer("/".join(path), "/".join(path[len(outer) :]), parent, counts[path]))
        return numbers[path]

    innermost = []
    nearest: dict[Path, int] = {}
    for path in paths:
        place = nearest.get(path)
        if place is None:
            prefix = path
            while prefix and not is_kept[prefix]:
                prefix = prefix[:-1]
            place = nearest[path] = number(prefix) if prefix else -1
        innermost.append(place)
    return Layers(tuple(groups), tuple(innermost))


def totals(layers: Layers, values: Iterable[float]) -> list[float]:
    """Return for each layer the sum over its nodes, including those of inner layers.

    Args:
        values: One for each node.
    """
    sums = [0.0] * len(layers.layers)
    for place, value in zip(layers.innermost, values, strict=True):
        if place >= 0:
            sums[place] += value
    for position in range(len(sums) - 1, -1, -1):
        parent = layers.layers[position].parent
        if parent >= 0:
            sums[parent] += sums[position]
    return sums
