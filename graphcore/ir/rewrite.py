"""Making a new graph of an old one, node by node: what both passes of lowering share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from graphcore.ir.buffers import value_of
from graphcore.ir.draft import Draft
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Constant, Input, Node, Symbol
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type, known_type, tensor_type


def storage_type(type_: Type) -> Type:
    """The type that ONNX stores it as."""
    if isinstance(type_, TensorType):
        stays = type_.dtype.storage is type_.dtype and not type_.ambiguous
        return type_ if stays else tensor_type(type_.dtype.storage, type_.shape)
    if isinstance(type_, (SequenceType, OptionalType)):
        return type(type_)(storage_type(type_.element))
    return type_


def bodies(node: Node) -> list[Graph]:
    """The graphs that are attributes of a node."""
    return [value for value in node.attributes.values() if isinstance(value, Graph)]


def walk(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph in order, those in bodies behind the node that has them."""
    for node in graph._nodes:
        yield node
        for body in bodies(node):
            yield from walk(body)


class Rewrite:
    """A new graph in the making, and which of its Symbols stand for those of the old one.

    Every node made while an old one is looked at takes that one's layer and line. outer: the rewrite of the graph
    around, where this one is a body.
    """

    def __init__(self, graph: Graph, retype: Callable[[Type], Type] = known_type, outer: Rewrite | None = None) -> None:
        self.old = graph
        # What was built has its dtypes: the graph's own promotion system has no say in what it is made of.
        self.new = Draft(graph.name)
        self.new._metadata = dict(graph._metadata)
        self.new._domains = dict(graph._domains)
        self.is_read = False
        """Whether the node being looked at is one of a model that others wrote."""
        self._outer = outer
        self._retype = retype
        self._symbols: dict[int, Symbol] = {}
        for symbol in graph._inputs:
            made = self.new._symbol(
                retype(symbol.type), Input(len(self.new._inputs), symbol.producer.origin), symbol._name
            )
            self.new._inputs += (made,)
            self._symbols[symbol.id] = made
        if outer is not None:
            self.new._outer = outer.new

    def nodes(self) -> Iterator[tuple[Node, tuple[Symbol | None, ...]]]:
        """The old graph's nodes in order, each with its operands in the new graph."""
        new, of, read = self.new, self.of, self.old._read
        for position, node in enumerate(self.old._nodes):
            if position == read > 0:
                new._read = len(new._nodes)
            self.is_read = position < read
            new._layer = node.layer
            new._origin = node.origin
            yield node, tuple([None if s is None else of(s) for s in node.inputs])
        if read and read >= len(self.old._nodes):
            new._read = len(new._nodes)
        new._layer = ""
        new._origin = None

    def of(self, symbol: Symbol) -> Symbol:
        """What stands for a Symbol of the old graph."""
        found = self._symbols.get(symbol.id)
        if found is None:
            producer = symbol.producer
            if isinstance(producer, Captured):
                assert self._outer is not None
                captured = self.new._capture(self._outer.of(producer.symbol))
                assert captured is not None
                found = captured
            else:
                assert isinstance(producer, Constant), "nodes come in an order they can run in"
                found = self.new._symbol(self._retype(symbol.type), producer, symbol._name)
            self._symbols[symbol.id] = found
        return found

    def bind(self, symbol: Symbol, made: Symbol) -> None:
        """From now on `made` stands for `symbol`."""
        self._symbols[symbol.id] = made

    def replace(self, node: Node, made: Sequence[Symbol]) -> None:
        """The results of an old node are `made`; they take over its names."""
        for symbol, result in zip(node.outputs, made, strict=True):
            self._symbols[symbol.id] = result
            if symbol._name is not None and result._name is None and isinstance(result.producer, Node):
                self.new._names.rename(result, symbol._name)

    def attributes(self, node: Node, again: Callable[[Graph], Graph]) -> dict[str, Any]:
        """The attributes of a node, its bodies made anew by `again`."""
        if not node.attributes or not bodies(node):
            return node.attributes
        return {key: again(value) if isinstance(value, Graph) else value for key, value in node.attributes.items()}

    def keep(self, node: Node, inputs: tuple[Symbol | None, ...], again: Callable[[Graph], Graph]) -> None:
        """The node as it is, on new operands, its bodies made anew by `again`."""
        types = [self._retype(s.type) for s in node.outputs]
        attributes = self.attributes(node, again)
        self.replace(node, self.new._emit_many(node.op_type, inputs, types, attributes, node.domain))

    def finish(self) -> Graph:
        """The new graph, its outputs and buffers those of the old one."""
        for name, held in self.old._buffers.items():
            self.new._buffers[name] = value_of(self.new, held.buffer, self.of(held.value), name)
        for label, symbol in self.old._watched.items():
            if symbol.id in self._symbols:
                self.new._watched[label] = self._symbols[symbol.id]
        self.new._outputs = [(name or symbol.name, self.of(symbol)) for name, symbol in self.old._outputs or ()]
        return self.new


def with_names(graph: Graph) -> Graph:
    """The new graph itself, each output's value called as the output is."""
    for name, symbol in graph._outputs or ():
        if name is not None and symbol._name is None and isinstance(symbol.producer, Node):
            graph._names.rename(symbol, name)
    return graph
