"""Calls of functions: replaced by the bodies they call, or kept, with the bodies lowered by themselves.

A pass before the others, which meet no calls but those that stay in the model. A body stays a function where its
operands and results are of dtypes that ONNX carries as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from graphcore.ir.definitions import Definition, Dims, definition_of, definitions, dims_of, substituted
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.ir.transform.rewrite import Rewrite
from graphcore.runtime.lowering.dtypes import complex_numbers, float4, integers, sequences
from graphcore.runtime.lowering.summary import Summary
from graphcore.types.tensor_types import Type

_NONE: Dims = {}


def inlined(graph: Graph) -> Graph:
    """Return the graph with the nodes of functions in place of calls, in the layers of the calls."""
    return _inlined(graph, None) if Summary(graph).has_calls else graph


def kept(graph: Graph, lower: Callable[[Graph], Graph]) -> Graph | None:
    """The graph with calls of lowered bodies, each under a name of its own; None where they cannot be functions."""
    called = definitions(graph)
    for has in map(Summary, (graph, *(definition.body for definition in called))):
        if complex_numbers.needed(has) or integers.needed(has) or float4.needed(has) or sequences.are_held(has):
            return None
    made: dict[Definition, Definition] = {}
    for definition, name in called.items():
        made[definition] = replace(definition, name=name, body=lower(_calling(definition.body, made, None)))
    return _calling(graph, made, None)


def _copy_of(graph: Graph, outer: Rewrite | None, around: Dims = _NONE) -> Rewrite:
    """A rewrite whose types and system stay as the graph was built with: later passes look at them."""
    rewrite = Rewrite(graph, lambda type_: substituted(type_, around), outer)
    rewrite.new.build.promotion(graph.promotion)
    return rewrite


def _calling(graph: Graph, made: dict[Definition, Definition], outer: Rewrite | None) -> Graph:
    """The graph with calls of other definitions."""
    if outer is None and not Summary(graph).has_calls:
        return graph  # a body is made anew in any case: the values around it are
    rewrite = _copy_of(graph, outer)
    for node, inputs in rewrite.nodes():
        definition = definition_of(node)
        if definition is None:
            rewrite.keep(node, inputs, lambda body: _calling(body, made, rewrite))
            continue
        lowered = made[definition]
        types = [s.type for s in node.outputs]
        attributes = {**node.attributes, "definition": lowered}
        rewrite.replace(node, rewrite.new.build.emit_many(lowered.name, inputs, types, attributes, node.domain))
    return rewrite.finish()


def _inlined(graph: Graph, outer: Rewrite | None, around: Dims = _NONE) -> Graph:
    """around: what names of dims stand for, where the graph is a body within a function."""
    rewrite = _copy_of(graph, outer, around)
    constants: dict[tuple[Definition, int], Symbol] = {}
    for node, inputs in rewrite.nodes():
        definition = definition_of(node)
        if definition is None:
            rewrite.keep(node, inputs, lambda body: _inlined(body, rewrite, around))
        else:
            dims = {name: dim.substitute(around) for name, dim in dims_of(node).items()}
            rewrite.replace(node, _Call(rewrite.new, definition, inputs, node.layer, dims, constants).results())
        if outer is None:
            _keep_names(rewrite, node)
    return rewrite.finish()


def _keep_names(rewrite: Rewrite, node: Node) -> None:
    """Values are called what the graph with calls calls them, though their numbers are others now."""
    names = rewrite.new.names
    for old in node.outputs:
        made = rewrite.of(old)
        if made.given_name is None and isinstance(made.producer, Node) and old.name not in names.taken:
            names.rename(made, old.name)


class _Call(Rewrite):
    """The nodes of one call, made in the graph that calls."""

    def __init__(
        self,
        new: Any,
        definition: Definition,
        inputs: Sequence[Symbol | None],
        layer: str,
        dims: Dims,
        constants: dict[tuple[Definition, int], Symbol],
    ) -> None:
        self.old = definition.body
        self.new = new
        self.is_read = False
        self._outer = None
        self._retype = self._of_call
        self._symbols = {s.id: made for s, made in zip(self.old.input_symbols, inputs, strict=True) if made is not None}
        self._definition = definition
        self._layer = layer
        self._dims = dims
        self._constants = constants
        self._types: dict[Type, Type] = {}

    def results(self) -> list[Symbol]:
        """Return the results of the call."""
        for node in self.old.nodes:
            layer = f"{self._layer}{node.layer}"
            self.new.site.layer = layer
            self.new.site.origin = node.origin
            inputs = tuple([None if s is None else self.of(s) for s in node.inputs])
            definition = definition_of(node)
            if definition is None:
                self.keep(node, inputs, self._body)
                continue
            dims = {name: dim.substitute(self._dims) for name, dim in dims_of(node).items()}
            self.replace(node, _Call(self.new, definition, inputs, layer, dims, self._constants).results())
        for label, symbol in self.old.watched.items():
            self.new.watched[f"{self._layer}{label}"] = self.of(symbol)
        return [self.of(symbol) for symbol in self.old.outputs]

    def of(self, symbol: Symbol) -> Symbol:
        """Return the new Symbol for one of the body; all calls of the definition share a constant."""
        found = self._symbols.get(symbol.id)
        if found is None:
            assert isinstance(symbol.producer, Constant), "nodes come in an order they can run in"
            key = self._definition, symbol.id
            found = self._constants.get(key)
            if found is None:
                found = self._constants[key] = self.new.build.symbol(symbol.type, symbol.producer)
            self._symbols[symbol.id] = found
        return found

    def replace(self, node: Node, made: Sequence[Symbol]) -> None:
        """Bind the results of a node of the body to `made`; names that they were given follow the layer."""
        for symbol, result in zip(node.outputs, made, strict=True):
            self._symbols[symbol.id] = result
            name = f"{self._layer}{symbol.given_name}"
            is_free = symbol.given_name is not None and name not in self.new.names.taken
            if is_free and result.given_name is None and isinstance(result.producer, Node):
                self.new.names.rename(result, name)

    def _of_call(self, type_: Type) -> Type:
        found = self._types.get(type_)
        if found is None:
            found = self._types[type_] = substituted(type_, self._dims)
        return found

    def _body(self, graph: Graph) -> Graph:
        """A body of If, Loop or Scan within the function."""
        return _inlined(graph, self, self._dims)
