"""One graph as data of the page: its nodes, values and groups, those of bodies and of functions included."""

from __future__ import annotations

import os
from typing import Any, TypeAlias

from graphcore.analysis.casts import casts_of
from graphcore.analysis.layers import layers
from graphcore.analysis.sizes import bytes_of
from graphcore.ir.definitions import Definition, definition_of, definitions
from graphcore.ir.graph import Graph
from graphcore.ir.state.open_expressions import is_swallowed
from graphcore.ir.symbol import Captured, Constant, Input, Node, Symbol
from graphcore.ir.transform.marks import mark_of
from graphcore.support.source_lines import Imported, Line, Loaded
from graphcore.types.tensor_types import Type
from graphcore.view import operand_names
from graphcore.view.text import array_text, attribute_text, dims_text, dtype_text, short_name

Json: TypeAlias = "dict[str, Any]"


class GraphData:
    """Collects the data of one graph.

    like: of the graph that this one was lowered from, whose marked nodes have the user's lines. nodes, values, groups:
    as the page has them, in the order of their indices.
    """

    def __init__(self, graph: Graph, like: GraphData | None = None) -> None:
        self.like = like
        self.graph = graph
        self.nodes: list[Json] = []
        self.values: list[Json] = []
        self.groups: list[Json] = []
        self.index_of_node: dict[int, int] = {}
        """The index of each node, by its identity."""
        self.source_nodes: list[Node] = []
        """The nodes, by their indices."""
        self.source_values: list[Symbol] = []
        """The values, by their indices."""
        self.lowered: list[Any] = []
        """The result of its lowering."""
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
        """Return the Graph of the page."""
        return {
            "name": short_name(self.graph.name),
            "nodes": self.nodes,
            "values": self.values,
            "groups": self.groups,
            "inputs": self.inputs,
            "outputs": self.outputs,
        }

    def dtypes(self, of: int = -1) -> Json:
        """Return the overlay of what nodes compute in: the dtype of the first result."""
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
        """Return the index of a value by its name, that of an output, or a label of `Symbol.print`; None for none."""
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
        found = layers(graph)
        for layer in found.layers:
            parent = around if layer.parent < 0 else first + layer.parent
            self._group(layer.name, "layer", parent, -1)
        inputs = [self._value(symbol) for symbol in graph.input_symbols]
        for node, place in zip(graph.nodes, found.innermost, strict=True):
            if graph.memory.expressions and any(map(is_swallowed, node.outputs)):
                continue  # a longer sum or product has its terms
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
        made: Json = {
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
            "operandNames": operand_names.of(node, definition),
            "results": [],
            "bodies": [],
        }
        self.nodes.append(made)
        made["results"] = [self._value(s) for s in node.outputs]
        if (source := self._source_of(node)) is not None:
            made["source"] = source
        while group >= 0:
            self.groups[group]["nodes"] += 1
            group = self.groups[group]["parent"]
        if definition is not None:
            made["bodies"].append(self._functions[definition])
        for key, value in node.attributes.items() if node.attributes else ():
            if isinstance(value, Graph):
                body = self._group(key, "body", made["group"], index)
                made["bodies"].append(body)
                inputs, outputs = self._add(value, body, f"{made['name']}/{short_name(key)}/")
                self.groups[body].update(inputs=inputs, outputs=outputs)

    def _unique(self, name: str) -> str:
        made, count = name, 1
        while made in self._names:
            count += 1
            made = f"{name} ({count})"
        self._names.add(made)
        return made

    def _source_of(self, node: Node) -> Json | None:
        if self.like is not None:
            mark = mark_of(node)
            is_of_one = mark is not None and mark < len(self.like.nodes)
            return self.like.nodes[mark or 0].get("source") if is_of_one else None
        line = node.line
        return None if line is None else self._source(line)

    def _source(self, line: Line) -> Json | None:
        """Return a line of the user's code; None for the line that loaded a model, which says nothing of its nodes."""
        if isinstance(line, (Imported, Loaded)):
            return None
        if line not in self._lines:
            path = os.path.relpath(line.path) if line.path.startswith(os.getcwd() + os.sep) else line.path
            self._lines[line] = {"file": path, "line": line.number, "text": line.text}
        return self._lines[line]

    def _value(self, symbol: Symbol) -> int:
        producer = symbol.producer
        while type(producer) is Captured:  # a body reads the value of the graph around it
            symbol, producer = producer.symbol, producer.symbol.producer
        key = id(symbol.graph), symbol.id
        index = self._values.get(key)
        if index is not None:
            return index
        index = self._values[key] = len(self.values)
        shown = self._types.get(symbol.type)
        if shown is None:
            shown = self._types[symbol.type] = dtype_text(symbol.type), dims_text(symbol.type)
        made: Json = {"name": short_name(symbol.name), "kind": "result", "dtype": shown[0], "shape": shown[1]}
        self.values.append(made)
        self.source_values.append(symbol)
        if type(producer) is Input:
            made["kind"] = "buffer" if symbol.given_name in symbol.graph.buffers else "input"
        elif type(producer) is Constant:
            made["kind"] = "weight" if producer.is_weight else "constant"
            made["bytes"] = bytes_of(symbol)
            if text := array_text(producer.array):
                made["text"] = text
        if type(producer) in (Input, Constant):
            line = symbol.line
            if line is not None and (source := self._source(line)) is not None:
                made["source"] = source
        return index
