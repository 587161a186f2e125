"""Rewrites: build a new graph from an old one, node by node."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from graphcore.ir.buffers import Buffer, stored, value_of
from graphcore.ir.graph import Graph
from graphcore.ir.names import first_free
from graphcore.ir.state.attaching import Memory
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Captured, Constant, Node, Symbol, present
from graphcore.ir.transform.pickling import copied
from graphcore.ir.transform.walk import bodies, outside, renumbered
from graphcore.support.source_lines import Imported
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type, known_type, tensor_type

Inputs: TypeAlias = "tuple[Symbol | None, ...]"
Results: TypeAlias = "Sequence[Symbol | None]"
R = TypeVar("R", bound="Rewrite")


class Draft(Graph):
    """A graph under construction. New nodes get the origin of the node being rewritten, `site.origin`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.site.is_user = False


def storage_type(type_: Type) -> Type:
    """Return the type that ONNX stores values of a type as."""
    if isinstance(type_, TensorType):
        stays = type_.dtype.storage is type_.dtype and not type_.ambiguous
        return type_ if stays else tensor_type(type_.dtype.storage, type_.shape)
    if isinstance(type_, (SequenceType, OptionalType)):
        return type(type_)(storage_type(type_.element))
    return type_


class Policy(Generic[R]):
    """Decides what replaces the nodes of a graph and of its bodies. By default each node is copied."""

    keeps_types: ClassVar[bool] = False
    """True if ambiguous types and the promotion system are kept, because later passes read them."""

    def retype(self, type_: Type) -> Type:
        """Return the type in the new graph for a type of the old one."""
        return type_ if self.keeps_types else known_type(type_)

    def operands(self, rewrite: R, node: Node) -> Inputs:
        """Return the operands of a node in the new graph. A policy that looks them up itself may return nothing."""
        mapped, of = rewrite._mapped, rewrite.of
        return tuple([s if s is None else of(s) if (new := mapped[s.id]) is None else new for s in node.inputs])

    def replace_node(self, rewrite: R, node: Node, inputs: Inputs) -> Results | None:
        """Return the replacements of the results of a node; None to copy the node onto the new operands.

        A single replacement may be None if the policy has bound the result, or nothing reads it.
        """
        return None

    def body(self, rewrite: R, body: Graph) -> Graph:
        """Return the body of a node, rewritten."""
        return type(rewrite)(body, self, rewrite).run()

    def finish(self, rewrite: R) -> Graph:
        """Set the outputs of the new graph, whose nodes are complete, and return it."""
        return rewrite.finish()


class Rewrite:
    """A graph under construction, and the mapping from Symbols of the old graph to those of the new one.

    New nodes get the layer and origin of the old node being rewritten. outer: the rewrite of the outer graph, for a
    body. new: the graph to add nodes to, by default an empty one.
    """

    def __init__(
        self, old: Graph, policy: Policy[Any], outer: Rewrite | None = None, *, new: Graph | None = None
    ) -> None:
        self.old = old
        self.policy = policy
        self.is_read = False
        """True while the current node comes from an imported model."""
        self._outer = outer
        self._mapped: list[Symbol | None] = [None] * len(old._symbols)
        """The new Symbols, by the numbers of the old ones."""
        self.new = self._start() if new is None else new

    def _start(self) -> Graph:
        """Create the new graph with its inputs."""
        new, retype = self._new_draft(), self.policy.retype
        for symbol in self.old._inputs:
            name = symbol.given_name
            default = self.old._defaults.get(name or "")
            result = new.build.input(retype(symbol.type), name, symbol.producer.origin, default)
            self._mapped[symbol.id] = result
        if self._outer is not None:
            new.scope.outer = self._outer.new
        return new

    def _new_draft(self) -> Graph:
        # Dtypes are resolved already, so the draft does not need the promotion system of the old graph.
        new = like(self.old, Draft(self.old.name))
        if self.policy.keeps_types:
            new.build.promotion(self.old.promotion)
        return new

    # Symbols

    def of(self, symbol: Symbol) -> Symbol:
        """Return the new Symbol for a Symbol of the old graph."""
        result = self._mapped[symbol.id]
        return self._leaf(symbol) if result is None else result

    def bind(self, symbol: Symbol, result: Symbol) -> None:
        """Map `symbol` to `result` from now on."""
        self._mapped[symbol.id] = result

    def is_bound(self, symbol: Symbol) -> bool:
        """Return True if a Symbol is mapped already."""
        return self._mapped[symbol.id] is not None

    def _leaf(self, symbol: Symbol) -> Symbol:
        """Map a constant or a captured Symbol on first use."""
        producer = symbol.producer
        if isinstance(producer, Captured):
            result = self.captured(present(self._outer).of(producer.symbol))
        else:
            assert isinstance(producer, Constant), "nodes must be in topological order"
            result = self._constant(symbol, producer)
        self._mapped[symbol.id] = result
        return result

    def captured(self, outer: Symbol) -> Symbol:
        """Capture a Symbol of the new outer graph in the new graph."""
        result = present(self.new.build.capture(outer))
        return result

    def _constant(self, symbol: Symbol, producer: Constant) -> Symbol:
        """Return the new Symbol of a constant."""
        return self.new.build.symbol(self.policy.retype(symbol.type), producer, symbol.given_name)

    # Nodes

    def run(self) -> Graph:
        """Rewrite all nodes in order and return the new graph."""
        policy, site, make = self.policy, self.new.site, self.node
        for node in self.old._nodes:
            self.is_read = type(node.origin) is Imported
            site.layer = node.layer
            site.origin = node.origin
            make(node)
        site.layer, site.origin = "", None
        return policy.finish(self)

    def node(self, node: Node) -> None:
        """Rewrite one node."""
        inputs = self.policy.operands(self, node)
        results = self.policy.replace_node(self, node, inputs)
        self.replace(node, self.keep(node, inputs) if results is None else results)

    def replace(self, node: Node, results: Results) -> None:
        """Map the results of an old node to new Symbols, which take over their names."""
        for symbol, result in zip(node.outputs, results, strict=True):
            if result is None:
                continue
            self._mapped[symbol.id] = result
            if symbol.given_name is not None and result.given_name is None and isinstance(result.producer, Node):
                name = self._result_name(symbol.given_name)
                if name is not None:
                    self.new.names.rename(result, name)

    def _result_name(self, name: str) -> str | None:
        """Return the new name of a result; None to leave it unnamed."""
        return name

    def keep(self, node: Node, inputs: Inputs) -> tuple[Symbol, ...]:
        """Copy the node onto new operands and return its outputs."""
        retype = self.policy.retype
        types = [retype(s.type) for s in node.outputs]
        return self.new.build.emit_many(node.op_type, inputs, types, self.attributes(node), node.domain)

    def attributes(self, node: Node) -> Mapping[str, Any]:
        """Return the attributes of a node, its bodies rewritten."""
        if not node.attributes or not bodies(node):
            return node.attributes
        body = self.policy.body
        return {key: body(self, value) if isinstance(value, Graph) else value for key, value in node.attributes.items()}

    # The end

    def finish(self, outputs: Sequence[tuple[str | None, Symbol]] | None = None) -> Graph:
        """Return the new graph with buffers, watched values and outputs, by default those of the old one."""
        old, new = self.old, self.new
        for name, buffer in old._buffers.items():
            new.build.buffer(name, buffer.buffer, self.of(buffer.value))
        watched = {label: self._mapped[s.id] for label, s in old.watched.items()}  # inlined calls have added theirs
        new.watched.update({label: s for label, s in watched.items() if s is not None})
        if outputs is None:
            outputs = [(name or symbol.name, self.of(symbol)) for name, symbol in old.named_outputs]
        new.build.outputs(outputs)
        return new


def like(old: Graph, new: Graph | None = None) -> Graph:
    """Return a graph without nodes with the metadata, file fields and opsets of another one. new: the graph to use."""
    if new is None:
        new = Graph(old.name, promotion=old.promotion, strict=old.strict)
        new.site.layers = dict(old.site.layers)
    new.metadata, new.folded, new.opsets = dict(old.metadata), dict(old.folded), dict(old.opsets)
    new.file_fields = old.file_fields
    return new


def with_names(graph: Graph) -> Graph:
    """Give each output's value the name of the output, and return the graph."""
    for name, symbol in graph.named_outputs:
        if name is not None and symbol.given_name is None and isinstance(symbol.producer, Node):
            graph.names.rename(symbol, name)
    return graph


# Removal of dead nodes, in place.


def prune(graph: Graph) -> None:
    """Remove nodes that no output, buffer or watched value depends on, also in bodies, and unused constants.

    The remaining Symbols are the same objects with new numbers.
    """
    buffered = [buffer.value for buffer in graph._buffers.values()]
    _prune(graph, [*graph.outputs, *buffered, *graph.watched.values()])


def _prune(graph: Graph, results: Iterable[Symbol]) -> None:
    used = {s.id for s in (*graph._inputs, *results) if s.graph is graph}
    nodes = []
    for node in reversed(graph._nodes):
        if node.outputs and not any(s.id in used for s in node.outputs):
            continue
        nodes.append(node)
        used.update(s.id for s in (*node.inputs, *node.outputs) if s is not None)
        for body in bodies(node):
            _prune(body, [*body.outputs, *body.watched.values()])
            used.update(s.id for s in outside(body))
    if len(used) == len(graph._symbols):
        return
    graph._nodes[:] = nodes[::-1]
    graph._symbols[:] = [s for s in graph._symbols if s.id in used]
    graph.scope.captured = {key: s for key, s in graph.scope.captured.items() if s.id in used}
    graph.names.taken = {name: s for name, s in graph.names.taken.items() if s.graph is not graph or s.id in used}
    for number, symbol in enumerate(graph._symbols):
        change(symbol, id=number)
    graph.memory = Memory()
    for node in nodes:
        for body in bodies(node):
            body.scope.captured = renumbered(body)


# Conversion of buffers to inputs and outputs, as models in files have them, and back.

NOTE = "graphcore.buffers"
"""The metadata key of the note that names the inputs that are buffers, and the outputs with their final values."""


def exposed(graph: Graph) -> Graph:
    """Return a copy of the graph whose buffers are inputs and additional outputs, which its metadata names.

    A graph without buffers is returned unchanged.
    """
    if not graph._buffers:
        return graph
    result = copied(graph)
    outputs = [(name, result._symbols[s.id]) for name, s in graph._outputs or ()]
    used = {name or s.name for name, s in outputs}
    notes: dict[str, dict[str, Any]] = {}
    after = stored(graph)
    for name, buffer in graph._buffers.items():
        note = notes[name] = {"in_place": True} if buffer.buffer.in_place else {}
        if name in after:
            symbol = result._symbols[after[name].id]
            label = _unique_label(f"{name}_out", used, result, symbol)
            used.add(label)
            outputs.append((label, symbol))
            note["output"] = label
    result._buffers = {}
    result._outputs = outputs
    result.metadata[NOTE] = json.dumps(notes)
    return result


def _unique_label(label: str, used: set[str], graph: Graph, symbol: Symbol) -> str:
    """Return an unused output name. The result of a node may have the same name as its output."""
    is_made = isinstance(symbol.producer, Node)
    taken = {name for name, s in graph.names.taken.items() if s is not symbol or not is_made}
    return first_free(label, (used | taken).__contains__)


def outputs_of(graph: Graph) -> dict[str, str | None]:
    """Return the buffers of an exposed graph by name, with the outputs of their final values; None without a store."""
    return {name: note.get("output") for name, note in json.loads(graph.metadata.get(NOTE, "{}")).items()}


def attach(graph: Graph, buffers: Mapping[str, Buffer]) -> None:
    """Undo `exposed`: convert the inputs and outputs that the metadata names to buffers."""
    outputs = {name or s.name: s for name, s in graph._outputs or ()}
    inputs = {s.name: s for s in graph._inputs}
    labels = outputs_of(graph)
    del graph.metadata[NOTE]
    for name, buffer in buffers.items():
        label = labels[name]
        value = inputs[name] if label is None else outputs[label]
        graph._buffers[name] = value_of(graph, buffer, value, name)
    graph._outputs = [(name, s) for name, s in graph._outputs or () if (name or s.name) not in labels.values()]
