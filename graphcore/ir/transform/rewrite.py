"""Making a new graph of an old one, node by node."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from graphcore.ir.buffers import Buffer, stored, value_of
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import Memory
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.ir.transform.pickling import copied
from graphcore.ir.transform.walk import bodies
from graphcore.support.source_lines import Imported
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type, known_type, tensor_type


class Draft(Graph):
    """A graph under construction: its nodes belong to `site.origin`, the line of the node that is rewritten."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.site.is_user = False


def storage_type(type_: Type) -> Type:
    """Return the type that ONNX stores it as."""
    if isinstance(type_, TensorType):
        stays = type_.dtype.storage is type_.dtype and not type_.ambiguous
        return type_ if stays else tensor_type(type_.dtype.storage, type_.shape)
    if isinstance(type_, (SequenceType, OptionalType)):
        return type(type_)(storage_type(type_.element))
    return type_


class Rewrite:
    """A graph under construction, and which of its Symbols stand for those of the old one.

    Every node made while an old one is looked at takes that one's layer and line. outer: the rewrite of the outer
    graph, where this one is a body.
    """

    def __init__(self, graph: Graph, retype: Callable[[Type], Type] = known_type, outer: Rewrite | None = None) -> None:
        self.old = graph
        # What was built has its dtypes: the graph's own promotion system has no say in what it is made of.
        self.new = Draft(graph.name)
        self.new.metadata, self.new.folded = dict(graph.metadata), dict(graph.folded)
        self.new.opsets = dict(graph.opsets)
        self.is_read = False
        """True while the current node is one of a model that others wrote."""
        self._outer = outer
        self._retype = retype
        self._symbols: dict[int, Symbol] = {}
        for symbol in graph._inputs:
            made = self.new.build.input(retype(symbol.type), symbol.given_name, symbol.producer.origin)
            self._symbols[symbol.id] = made
        if outer is not None:
            self.new.scope.outer = outer.new

    def nodes(self) -> Iterator[tuple[Node, tuple[Symbol | None, ...]]]:
        """Yield the nodes of the old graph in order, each with its operands in the new graph."""
        of = self.of
        for node in self.steps():
            yield node, tuple([None if s is None else of(s) for s in node.inputs])

    def steps(self) -> Iterator[Node]:
        """Yield the nodes of the old graph in order. Layers and lines move along."""
        site = self.new.site
        for node in self.old._nodes:
            self.is_read = type(node.origin) is Imported
            site.layer = node.layer
            site.origin = node.origin
            yield node
        site.layer = ""
        site.origin = None

    def of(self, symbol: Symbol) -> Symbol:
        """Return what stands for a Symbol of the old graph."""
        found = self._symbols.get(symbol.id)
        if found is None:
            producer = symbol.producer
            if isinstance(producer, Captured):
                assert self._outer is not None
                captured = self.new.build.capture(self._outer.of(producer.symbol))
                assert captured is not None
                found = captured
            else:
                assert isinstance(producer, Constant), "nodes come in an order they can run in"
                found = self.new.build.symbol(self._retype(symbol.type), producer, symbol.given_name)
            self._symbols[symbol.id] = found
        return found

    def bind(self, symbol: Symbol, made: Symbol) -> None:
        """Let `made` stand for `symbol` from now on."""
        self._symbols[symbol.id] = made

    def replace(self, node: Node, made: Sequence[Symbol]) -> None:
        """Let `made` stand for the results of an old node, and take over their names."""
        for symbol, result in zip(node.outputs, made, strict=True):
            self._symbols[symbol.id] = result
            if symbol.given_name is not None and result.given_name is None and isinstance(result.producer, Node):
                self.new.names.rename(result, symbol.given_name)

    def attributes(self, node: Node, again: Callable[[Graph], Graph]) -> Mapping[str, Any]:
        """Return the attributes of a node, its bodies made anew by `again`."""
        if not node.attributes or not bodies(node):
            return node.attributes
        return {key: again(value) if isinstance(value, Graph) else value for key, value in node.attributes.items()}

    def keep(self, node: Node, inputs: tuple[Symbol | None, ...], again: Callable[[Graph], Graph]) -> None:
        """Append the node as it is, on new operands, its bodies made anew by `again`."""
        types = [self._retype(s.type) for s in node.outputs]
        attributes = self.attributes(node, again)
        self.replace(node, self.new.build.emit_many(node.op_type, inputs, types, attributes, node.domain))

    def finish(self) -> Graph:
        """Return the new graph, its outputs and buffers those of the old one."""
        for name, held in self.old._buffers.items():
            self.new.build.buffer(name, held.buffer, self.of(held.value))
        for label, symbol in self.old.watched.items():
            if symbol.id in self._symbols:
                self.new.watched[label] = self._symbols[symbol.id]
        self.new.build.outputs([(name or symbol.name, self.of(symbol)) for name, symbol in self.old.named_outputs])
        return self.new

    def finish_as_built(self) -> Graph:
        """Return the new graph as a program goes on building it: with promotion, strictness and layers of the old."""
        old, new = self.old, self.new
        new.build.promotion(old.promotion)
        new.strict = old.strict
        new.site.layers = dict(old.site.layers)
        made = self.finish()
        new.scope.is_finished = old.scope.is_finished
        return made


def with_names(graph: Graph) -> Graph:
    """Give each output's value the name of the output, and return the graph."""
    for name, symbol in graph.named_outputs:
        if name is not None and symbol.given_name is None and isinstance(symbol.producer, Node):
            graph.names.rename(symbol, name)
    return graph


# Removing what leads nowhere from a graph, in place.


def prune(graph: Graph) -> None:
    """Remove nodes that lead to no output, buffer or watched value, those in bodies included, and unused constants.

    The Symbols that stay are the same objects with other numbers.
    """
    held = [buffer.value for buffer in graph._buffers.values()]
    _prune(graph, [*graph.outputs, *held, *graph.watched.values()])


def _prune(graph: Graph, results: Iterable[Symbol]) -> None:
    used = {s.id for s in (*graph._inputs, *results) if s.graph is graph}
    kept = []
    for node in reversed(graph._nodes):
        if node.outputs and not any(s.id in used for s in node.outputs):
            continue
        kept.append(node)
        used.update(s.id for s in (*node.inputs, *node.outputs) if s is not None)
        for body in bodies(node):
            _prune(body, [*body.outputs, *body.watched.values()])
            used.update(_outside(s).id for s in body.scope.captured.values())
    if len(used) == len(graph._symbols):
        return
    graph._nodes[:] = kept[::-1]
    graph._symbols[:] = [s for s in graph._symbols if s.id in used]
    graph.scope.captured = {key: s for key, s in graph.scope.captured.items() if s.id in used}
    graph.names.taken = {name: s for name, s in graph.names.taken.items() if s.graph is not graph or s.id in used}
    for number, symbol in enumerate(graph._symbols):
        change(symbol, id=number)
    graph.memory = Memory()
    for node in kept:
        for body in bodies(node):
            body.scope.captured = {_outside(s).id: s for s in body.scope.captured.values()}


def _outside(captured: Symbol) -> Symbol:
    assert isinstance(captured.producer, Captured)
    return captured.producer.symbol


# Buffers as inputs and outputs, which is what a model in a file has, and the way back.

NOTE = "graphcore.buffers"
"""The key of the metadata that says which inputs are buffers, and which outputs are what they hold afterwards."""


def exposed(graph: Graph) -> Graph:
    """Return a graph of the same nodes whose buffers are inputs and further outputs, as its metadata says.

    A graph without buffers is returned as it is.
    """
    if not graph._buffers:
        return graph
    made = copied(graph)
    outputs = [(name, made._symbols[s.id]) for name, s in graph._outputs or ()]
    used = {name or s.name for name, s in outputs}
    noted: dict[str, dict[str, Any]] = {}
    after = stored(graph)
    for name, held in graph._buffers.items():
        note = noted[name] = {"in_place": True} if held.buffer.in_place else {}
        if name in after:
            symbol = made._symbols[after[name].id]
            label = _free(f"{name}_out", used, made, symbol)
            used.add(label)
            outputs.append((label, symbol))
            note["output"] = label
    made._buffers = {}
    made._outputs = outputs
    made.metadata[NOTE] = json.dumps(noted)
    return made


def _free(label: str, used: set[str], graph: Graph, symbol: Symbol) -> str:
    """Return a name that no other output or Symbol has. The name of what a node makes may be that of its output."""
    is_made = isinstance(symbol.producer, Node)
    taken = {name for name, s in graph.names.taken.items() if s is not symbol or not is_made}
    found, count = label, 0
    while found in used or found in taken:
        count += 1
        found = f"{label}_{count}"
    return found


def outputs_of(graph: Graph) -> dict[str, str | None]:
    """Return the buffers of an exposed graph by name, with the outputs that are what they hold afterwards, if any."""
    return {name: note.get("output") for name, note in json.loads(graph.metadata.get(NOTE, "{}")).items()}


def attach(graph: Graph, buffers: Mapping[str, Buffer]) -> None:
    """Undo `exposed`: inputs and outputs that the metadata names are buffers again."""
    outputs = {name or s.name: s for name, s in graph._outputs or ()}
    inputs = {s.name: s for s in graph._inputs}
    labels = outputs_of(graph)
    del graph.metadata[NOTE]
    for name, buffer in buffers.items():
        label = labels[name]
        held = inputs[name] if label is None else outputs[label]
        graph._buffers[name] = value_of(graph, buffer, held, name)
    graph._outputs = [(name, s) for name, s in graph._outputs or () if (name or s.name) not in labels.values()]
