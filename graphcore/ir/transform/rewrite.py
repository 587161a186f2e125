"""Making a new graph of an old one, node by node."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from graphcore.ir.buffers import Buffer, stored, value_of
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import Memory
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.ir.transform.pickling import copied
from graphcore.ir.transform.walk import bodies
from graphcore.support.source_lines import Imported
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type, known_type, tensor_type

Inputs: TypeAlias = "tuple[Symbol | None, ...]"
Results: TypeAlias = "Sequence[Symbol | None]"
R = TypeVar("R", bound="Rewrite")


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


class Policy(Generic[R]):
    """What a rewrite makes of the nodes of a graph and of its bodies. By default each is made again as it is."""

    keeps_types: ClassVar[bool] = False
    """Whether types stay as they were built, and the promotion system with them: later passes look at both."""

    def retype(self, type_: Type) -> Type:
        """Return the type in the new graph of what has a type in the old one."""
        return type_ if self.keeps_types else known_type(type_)

    def operands(self, rewrite: R, node: Node) -> Inputs:
        """Return what a node reads in the new graph: nothing where a policy asks for what stands for it itself."""
        made, of = rewrite._made, rewrite.of
        return tuple([s if s is None else of(s) if (found := made[s.id]) is None else found for s in node.inputs])

    def replace_node(self, rewrite: R, node: Node, inputs: Inputs) -> Results | None:
        """Return what stands for the results of a node; None where it is made again on new operands.

        One that the policy bound itself, or that nothing reads, may be None.
        """
        return None

    def body(self, rewrite: R, body: Graph) -> Graph:
        """Return the body of a node, rewritten."""
        return type(rewrite)(body, self, rewrite).run()

    def finish(self, rewrite: R) -> Graph:
        """Return the new graph, whose nodes are made, with its outputs."""
        return rewrite.finish()


class Rewrite:
    """A graph under construction, and which of its Symbols stand for those of the old one.

    Every node made while an old one is looked at takes that one's layer and line. outer: the rewrite of the outer
    graph, where this one is a body. new: the graph that the nodes go into, where it is not one of their own.
    """

    def __init__(
        self, old: Graph, policy: Policy[Any], outer: Rewrite | None = None, *, new: Graph | None = None
    ) -> None:
        self.old = old
        self.policy = policy
        self.is_read = False
        """True while the current node is one of a model that others wrote."""
        self._outer = outer
        self._made: list[Symbol | None] = [None] * len(old._symbols)
        """By the number of a Symbol of the old graph, what stands for it."""
        self.new = self._begun() if new is None else new

    def _begun(self) -> Graph:
        """Return the new graph with its inputs."""
        new, retype = self._drafted(), self.policy.retype
        for symbol in self.old._inputs:
            made = new.build.input(retype(symbol.type), symbol.given_name, symbol.producer.origin)
            self._made[symbol.id] = made
        if self._outer is not None:
            new.scope.outer = self._outer.new
        return new

    def _drafted(self) -> Graph:
        # What was built has its dtypes: the graph's own promotion system has no say in what it is made of.
        new = like(self.old, Draft(self.old.name))
        if self.policy.keeps_types:
            new.build.promotion(self.old.promotion)
        return new

    # Symbols

    def of(self, symbol: Symbol) -> Symbol:
        """Return what stands for a Symbol of the old graph."""
        found = self._made[symbol.id]
        return self._leaf(symbol) if found is None else found

    def bind(self, symbol: Symbol, made: Symbol) -> None:
        """Let `made` stand for `symbol` from now on."""
        self._made[symbol.id] = made

    def is_bound(self, symbol: Symbol) -> bool:
        """Return whether something stands for a Symbol already."""
        return self._made[symbol.id] is not None

    def _leaf(self, symbol: Symbol) -> Symbol:
        """Make what stands for a constant, or for a Symbol of the outer graph, when it is first asked for."""
        producer = symbol.producer
        if isinstance(producer, Captured):
            assert self._outer is not None
            made = self.captured(self._outer.of(producer.symbol))
        else:
            assert isinstance(producer, Constant), "nodes come in an order they can run in"
            made = self._constant(symbol, producer)
        self._made[symbol.id] = made
        return made

    def captured(self, around: Symbol) -> Symbol:
        """Return a Symbol of the new outer graph in the new one."""
        made = self.new.build.capture(around)
        assert made is not None
        return made

    def _constant(self, symbol: Symbol, producer: Constant) -> Symbol:
        """Return what stands for a constant."""
        return self.new.build.symbol(self.policy.retype(symbol.type), producer, symbol.given_name)

    # Nodes

    def run(self) -> Graph:
        """Return the new graph, its nodes made in the order of the old ones."""
        policy, site, make = self.policy, self.new.site, self.node
        for node in self.old._nodes:
            self.is_read = type(node.origin) is Imported
            site.layer = node.layer
            site.origin = node.origin
            make(node)
        site.layer, site.origin = "", None
        return policy.finish(self)

    def node(self, node: Node) -> None:
        """Make one node."""
        inputs = self.policy.operands(self, node)
        made = self.policy.replace_node(self, node, inputs)
        self.replace(node, self.keep(node, inputs) if made is None else made)

    def replace(self, node: Node, made: Results) -> None:
        """Let `made` stand for the results of an old node, and take over their names."""
        for symbol, result in zip(node.outputs, made, strict=True):
            if result is None:
                continue
            self._made[symbol.id] = result
            if symbol.given_name is not None and result.given_name is None and isinstance(result.producer, Node):
                name = self._called(symbol.given_name)
                if name is not None:
                    self.new.names.rename(result, name)

    def _called(self, name: str) -> str | None:
        """Return the name of what stands for a result of this name."""
        return name

    def keep(self, node: Node, inputs: Inputs) -> tuple[Symbol, ...]:
        """Append the node as it is, on new operands, and return what it gives."""
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
        for name, held in old._buffers.items():
            new.build.buffer(name, held.buffer, self.of(held.value))
        made = {label: self._made[s.id] for label, s in old.watched.items()}  # those of inlined calls are there already
        new.watched.update({label: s for label, s in made.items() if s is not None})
        if outputs is None:
            outputs = [(name or symbol.name, self.of(symbol)) for name, symbol in old.named_outputs]
        new.build.outputs(outputs)
        return new


def like(old: Graph, new: Graph | None = None) -> Graph:
    """Return a graph without nodes that has the notes and the opsets of another one. new: one that was just made."""
    if new is None:
        new = Graph(old.name, promotion=old.promotion, strict=old.strict)
        new.site.layers = dict(old.site.layers)
    new.metadata, new.folded, new.opsets = dict(old.metadata), dict(old.folded), dict(old.opsets)
    return new


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
