"""One graph as data of the page: nodes, values and groups, including those of bodies and functions."""

from __future__ import annotations

import bisect
import functools
import inspect
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from graphcore.analysis.casts import casts_of
from graphcore.analysis.layers import layers
from graphcore.analysis.sizes import bytes_of
from graphcore.build.declare import EXPANSIONS, LIBRARY
from graphcore.ir.definitions import Definition, definition_of, definitions
from graphcore.ir.graph import Graph
from graphcore.ir.state.open_expressions import is_swallowed
from graphcore.ir.symbol import Captured, Constant, Input, Node, Symbol
from graphcore.ir.transform.walk import mark_of
from graphcore.onnx.notes import OPSET
from graphcore.onnx.schemas.schemas import operator, schema_of
from graphcore.support.source_lines import Imported, Line, Loaded
from graphcore.types.tensor_types import Type
from graphcore.view.text import array_text, attribute_text, dims_text, dtype_text, first_text, short_name

Json: TypeAlias = "dict[str, Any]"


class GraphData:
    """Collects the data of one graph.

    like: the data of the graph that this one was lowered from, which has the user's lines of marked nodes. nodes,
    values, groups: for the page, in the order of their indices.
    """

    def __init__(self, graph: Graph, like: GraphData | None = None) -> None:
        self.like = like
        self.graph = graph
        self.nodes: list[Json] = []
        self.values: list[Json] = []
        self.groups: list[Json] = []
        self.index_of_node: dict[int, int] = {}
        """The index of each node by its identity."""
        self.source_nodes: list[Node] = []
        """The nodes by index."""
        self.source_values: list[Symbol] = []
        """The values by index."""
        self.lowered: list[Any] = []
        """The `LoweredData` of each target."""
        self._values: dict[tuple[int, int], int] = {}
        self._names: set[str] = set()
        self._places: dict[str, int] | None = None
        self._types: dict[Type, tuple[str, list[str] | None]] = {}
        self._lines: dict[Line, Json | None] = {}
        self._functions: dict[Definition, int] = {}
        for definition, name in definitions(graph).items():
            group = self._functions[definition] = self._group(name, "function", -1, -1)
            inputs, outputs = self._add(definition.body, group, f"{short_name(name)}/")
            self.groups[group].update(inputs=inputs, outputs=outputs)
        self.inputs, self.outputs = self._add(graph, -1, "")

    def as_json(self) -> Json:
        """Return the `Graph` of `model.ts`."""
        return {
            "name": short_name(self.graph.name),
            "nodes": self.nodes,
            "values": self.values,
            "groups": self.groups,
            "inputs": self.inputs,
            "outputs": self.outputs,
        }

    def dtypes(self, of: int = -1) -> Json:
        """Return the overlay of the dtypes of first results. of: the index of a lowered graph, -1 for the original."""
        words = []
        for index, node in enumerate(self.nodes):
            if node["results"]:
                dtype = self.values[node["results"][0]]["dtype"]
                words.append([index, dtype, dtype])
        return {
            "name": "dtype",
            "kind": "dtype",
            "of": of,
            "unit": "",
            "words": words,
            "note": "The dtype of the first result of each node.",
        }

    def place_of(self, name: str) -> int | None:
        """Return the index of a value by its name, output name or label of `Symbol.print`, None if there is none."""
        if self._places is None:
            own = {s.name: i for i, s in enumerate(self.source_values) if s.graph is self.graph}
            ends = {label or s.name: s for label, s in self.graph.named_outputs}
            labels = {**self.graph.watched, **ends}
            self._places = {label: own[s.name] for label, s in labels.items() if s.name in own} | own
        return self._places.get(name)

    # Collecting

    def _add(self, graph: Graph, around: int, prefix: str) -> tuple[list[int], list[int]]:
        """Add a graph within a group, and return the indices of its inputs and outputs."""
        first = len(self.groups)
        layer_tree = layers(graph)
        for layer in layer_tree.layers:
            parent = around if layer.parent < 0 else first + layer.parent
            self._group(layer.name, "layer", parent, -1)
        inputs = [self._value(symbol) for symbol in graph.input_symbols]
        for node, place in zip(graph.nodes, layer_tree.innermost, strict=True):
            if graph.memory.expressions and any(map(is_swallowed, node.outputs)):
                continue  # part of a longer sum or product
            self._node(node, around if place < 0 else first + place, prefix)
        outputs = [self._value(symbol) for symbol in graph.outputs]
        for cast in casts_of(graph):
            self.nodes[self.index_of_node[id(cast.node)]]["cast"] = {
                "implicit": cast.implicit,
                "system": cast.system,
                "pair": None if cast.pair is None else list(cast.pair),
                "result": cast.result,
                "words": cast.words,
            }
        return inputs, outputs

    def _group(self, name: str, kind: str, parent: int, owner: int) -> int:
        self.groups.append({"name": short_name(name), "kind": kind, "parent": parent, "owner": owner, "nodes": 0})
        return len(self.groups) - 1

    def _node(self, node: Node, group: int, prefix: str) -> None:
        index = len(self.nodes)
        self.index_of_node[id(node)] = index
        self.source_nodes.append(node)
        operands = [-1 if s is None else self._value(s) for s in node.inputs]
        definition = definition_of(node)
        record: Json = {
            "name": self._unique(prefix + (short_name(node.outputs[0].name) if node.outputs else f"{node.op_type}")),
            "op": short_name(node.op_type if definition is None else definition.name),
            "domain": short_name(node.domain),
            "group": group,
            "attributes": [
                [short_name(key), attribute_text(value)]
                for key, value in node.attributes.items()
                if not isinstance(value, Graph) and not (definition is not None and key in ("definition", "dims"))
            ],
            "operands": operands,
            "operandNames": operand_names(node, definition),
            "results": [],
            "bodies": [],
        }
        self.nodes.append(record)
        record["results"] = [self._value(s) for s in node.outputs]
        if (source := self._source_of(node)) is not None:
            record["source"] = source
        while group >= 0:
            self.groups[group]["nodes"] += 1
            group = self.groups[group]["parent"]
        if definition is not None:
            record["bodies"].append(self._functions[definition])
        for key, value in node.attributes.items() if node.attributes else ():
            if isinstance(value, Graph):
                body = self._group(key, "body", record["group"], index)
                record["bodies"].append(body)
                inputs, outputs = self._add(value, body, f"{record['name']}/{short_name(key)}/")
                self.groups[body].update(inputs=inputs, outputs=outputs)

    def _unique(self, name: str) -> str:
        unique, count = name, 1
        while unique in self._names:
            count += 1
            unique = f"{name} ({count})"
        self._names.add(unique)
        return unique

    def _source_of(self, node: Node) -> Json | None:
        if self.like is not None:
            mark = mark_of(node)
            is_of_one = mark is not None and mark < len(self.like.nodes)
            return self.like.nodes[mark or 0].get("source") if is_of_one else None
        line = node.line
        return None if line is None else self._source(line)

    def _source(self, line: Line) -> Json | None:
        """Return a line of the user's code, None for the line that loaded a model."""
        if isinstance(line, (Imported, Loaded)):
            return None
        if line not in self._lines:
            path = os.path.relpath(line.path) if line.path.startswith(os.getcwd() + os.sep) else line.path
            self._lines[line] = {"file": path, "line": line.number, "text": line.text}
        return self._lines[line]

    def _value(self, symbol: Symbol) -> int:
        producer = symbol.producer
        while type(producer) is Captured:  # a body reads a value of the graph around it
            symbol, producer = producer.symbol, producer.symbol.producer
        key = id(symbol.graph), symbol.id
        index = self._values.get(key)
        if index is not None:
            return index
        index = self._values[key] = len(self.values)
        texts = self._types.get(symbol.type)
        if texts is None:
            texts = self._types[symbol.type] = dtype_text(symbol.type), dims_text(symbol.type)
        record: Json = {"name": short_name(symbol.name), "kind": "result", "dtype": texts[0], "shape": texts[1]}
        self.values.append(record)
        self.source_values.append(symbol)
        if type(producer) is Input:
            record["kind"] = "buffer" if symbol.given_name in symbol.graph.buffers else "input"
        elif type(producer) is Constant:
            record["kind"] = "weight" if producer.is_weight else "constant"
            record["bytes"] = bytes_of(symbol)
            if text := array_text(producer.array):
                record["text"] = text
            if first := first_text(producer.array):
                record["first"] = first
        if type(producer) in (Input, Constant):
            line = symbol.line
            if line is not None and (source := self._source(line)) is not None:
                record["source"] = source
        return index


# A layered layout: vertices in ranks, ordered so that few edges cross; long edges go around the ranks between.
#
# Ranks by longest paths, dummy vertices along long edges, orders by barycentres, and positions by isotonic regression
# towards neighbours. Sugiyama, Tagawa and Toda 1981, doi:10.1109/TSMC.1981.4308636.

_SWEEPS = 12
_DUMMY_WIDTH = 14.0
_GAP = 22.0
_DUMMY_WEIGHT = 8.0
"""The weight of a dummy relative to a vertex: long edges should be straight."""


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """The positions of vertices and edges.

    ranks: of each vertex, from 0. centres: of each vertex along its rank. routes: the positions of each edge in the
    ranks between its ends, in order. width: of the drawing.
    """

    ranks: tuple[int, ...]
    centres: tuple[float, ...]
    routes: tuple[tuple[float, ...], ...]
    width: float


@dataclass(slots=True)
class _RankedGraph:
    """Vertices and dummies: their ranks, widths, predecessors and successors, and the order in each rank."""

    ranks: list[int]
    widths: list[float]
    before: list[list[int]]
    after: list[list[int]]
    orders: list[list[int]] = field(default_factory=list)


def layout(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> GraphLayout:
    """Return the layout of vertices of these widths. edges: from a vertex to one of a greater index."""
    ranks = _ranks(len(widths), edges)
    ranked = _RankedGraph(ranks, [*widths], [[] for _ in widths], [[] for _ in widths])
    chains = [_chain(ranked, start, end) for start, end in edges]
    ranked.orders = [[] for _ in range(max(ranked.ranks, default=-1) + 1)]
    for vertex, rank in enumerate(ranked.ranks):
        ranked.orders[rank].append(vertex)
    _reduce_crossings(ranked)
    centres = _centres(ranked)
    leftmost = min((c - w / 2 for c, w in zip(centres, ranked.widths, strict=True)), default=0.0)
    centres = [centre - leftmost for centre in centres]
    width = max((c + w / 2 for c, w in zip(centres, ranked.widths, strict=True)), default=0.0)
    routes = tuple(tuple(centres[dummy] for dummy in chain) for chain in chains)
    return GraphLayout(tuple(ranks[: len(widths)]), tuple(centres[: len(widths)]), routes, width)


def _ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return ranks by the longest path to each vertex; a vertex without predecessors is just before its successors."""
    ranks = [0] * count
    before: list[list[int]] = [[] for _ in range(count)]
    for start, end in edges:
        before[end].append(start)
    for vertex in range(count):
        ranks[vertex] = 1 + max((ranks[other] for other in before[vertex]), default=-1)
    nearest: dict[int, int] = {}
    for start, end in edges:
        nearest[start] = min(nearest.get(start, ranks[end]), ranks[end])
    return [nearest[v] - 1 if not before[v] and v in nearest else rank for v, rank in enumerate(ranks)]


def _chain(ranked: _RankedGraph, start: int, end: int) -> list[int]:
    """Connect two vertices by a dummy in each rank between them, and return the dummies."""
    dummies: list[int] = []
    last = start
    for rank in range(ranked.ranks[start] + 1, ranked.ranks[end]):
        dummy = len(ranked.ranks)
        ranked.ranks.append(rank)
        ranked.widths.append(_DUMMY_WIDTH)
        ranked.before.append([last])
        ranked.after.append([])
        ranked.after[last].append(dummy)
        dummies.append(dummy)
        last = dummy
    ranked.after[last].append(end)
    ranked.before[end].append(last)
    return dummies


def _reduce_crossings(ranked: _RankedGraph) -> None:
    """Order each rank by the mean positions of neighbours, down and up, and keep the order of fewest crossings."""
    best = [[*order] for order in ranked.orders]
    best_count = _crossings(ranked)
    for sweep in range(_SWEEPS):
        if not best_count:
            break
        down = sweep % 2 == 0
        ranks = range(1, len(ranked.orders)) if down else range(len(ranked.orders) - 2, -1, -1)
        for rank in ranks:
            beside = ranked.orders[rank - 1 if down else rank + 1]
            places = {vertex: place for place, vertex in enumerate(beside)}
            _sort(ranked.orders[rank], ranked.before if down else ranked.after, places)
        count = _crossings(ranked)
        if count < best_count:
            best_count, best = count, [[*order] for order in ranked.orders]
    ranked.orders = best


def _sort(order: list[int], neighbours: Sequence[Sequence[int]], places: dict[int, int]) -> None:
    """Sort a rank by the mean positions of neighbours; a vertex without neighbours follows the one before it."""
    keys: dict[int, float] = {}
    last = -1.0
    for vertex in order:
        beside = [places[other] for other in neighbours[vertex]]
        last = sum(beside) / len(beside) if beside else last
        keys[vertex] = last
    order.sort(key=keys.__getitem__)


def _crossings(ranked: _RankedGraph) -> int:
    """Return the number of pairs of edges between neighbouring ranks that cross."""
    total = 0
    for upper, lower in zip(ranked.orders, ranked.orders[1:], strict=False):
        places = {vertex: place for place, vertex in enumerate(lower)}
        before: list[int] = []  # the ends of edges from vertices on the left, sorted
        for vertex in upper:
            ends = [places[other] for other in ranked.after[vertex]]
            total += sum(len(before) - bisect.bisect_right(before, end) for end in ends)
            before = sorted(before + ends)
    return total


def _centres(ranked: _RankedGraph) -> list[float]:
    centres = [0.0] * len(ranked.ranks)
    for order in ranked.orders:
        place = 0.0
        for vertex in order:
            centres[vertex] = place + ranked.widths[vertex] / 2
            place += ranked.widths[vertex] + _GAP
    for sweep in range(2 * _SWEEPS):
        down = sweep % 2 == 0
        for order in ranked.orders if down else ranked.orders[::-1]:
            _pull(ranked, order, ranked.before if down else ranked.after, centres)
    return centres


def _pull(
    ranked: _RankedGraph, order: Sequence[int], neighbours: Sequence[Sequence[int]], centres: list[float]
) -> None:
    """Move a rank as near to its neighbours as its order and gaps allow: least squares, by pooling."""
    offsets, offset = [], 0.0
    for position, vertex in enumerate(order):
        if position:
            offset += (ranked.widths[order[position - 1]] + ranked.widths[vertex]) / 2 + _GAP
        offsets.append(offset)
    pools: list[list[float]] = []  # weighted sum, weight, vertices
    for vertex, own in zip(order, offsets, strict=True):
        beside = [centres[other] for other in neighbours[vertex]]
        wanted = sum(beside) / len(beside) if beside else centres[vertex]
        weight = _DUMMY_WEIGHT if ranked.widths[vertex] == _DUMMY_WIDTH else 1.0 if beside else 0.1
        pools.append([(wanted - own) * weight, weight, 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] >= pools[-1][0] / pools[-1][1]:
            total, weight, count = pools.pop()
            pools[-1] = [pools[-1][0] + total, pools[-1][1] + weight, pools[-1][2] + count]
    moved = (total / weight for total, weight, count in pools for _ in range(int(count)))
    for vertex, own, place in zip(order, offsets, moved, strict=True):
        centres[vertex] = place + own


# The names of the operands of nodes: from the ONNX schema, or the parameters of the function that is called.


def operand_names(node: Node, definition: Definition | None) -> list[str]:
    """Return a name for each operand of a node, "" for an unknown operator."""
    count = len(node.inputs)
    if definition is not None:
        names = [short_name(s.name) for s in definition.body.input_symbols]
        return [*names[:count], *[""] * (count - len(names))]
    return list(_cached_operand_names(node.op_type, node.domain, count))


@functools.lru_cache(4096)  # bounded, because models may name any number of operators
def _cached_operand_names(op_type: str, domain: str, count: int) -> tuple[str, ...]:
    if domain == LIBRARY:
        return _library_operand_names(op_type, count)
    schema = schema_of(op_type, domain, OPSET) if domain in ("", "ai.onnx.ml") else None
    if schema is None:
        return ("",) * count
    inputs = operator(schema).inputs
    names = [parameter.name for parameter in inputs if not parameter.is_variadic]
    if inputs and inputs[-1].is_variadic:
        names += [f"{inputs[-1].name}[{i}]" for i in range(count - len(names))]
    return (*names[:count], *[""] * (count - len(names)))


def _library_operand_names(op_type: str, count: int) -> tuple[str, ...]:
    expansion = EXPANSIONS.get(op_type)
    if expansion is None:
        return ("",) * count
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in inspect.signature(expansion).parameters.values() if p.kind in kinds]
    return (*names[:count], *[""] * (count - len(names)))
