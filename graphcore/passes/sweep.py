"""The rewriter of all passes: one walk over a graph in topological order that makes a new one.

A rewrite rule is given a node whose operands are in the new graph already, and returns the Symbol of the new graph that
its result is, or None. Later rules see what earlier ones made, so that one walk does nearly all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from graphcore.arrays.casting import Array
from graphcore.ir.constants import constant_array
from graphcore.ir.definitions import FUNCTIONS, Definition, definition_of
from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.passes.liveness import live_nodes
from graphcore.passes.merging import Merger
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, Type, tensor_type

Inputs: TypeAlias = "tuple[Symbol | None, ...]"
Rule: TypeAlias = "Callable[[Sweep, Node, Inputs], Symbol | None]"

LIMIT = 1 << 20
"""Bytes of the largest constant that a pass makes."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The rules and passes of a walk. rules: by operator of ONNX's own domain, tried in order.

    removes_dead: dead code elimination. merges: common subexpression elimination. limit: bytes of the largest constant.
    """

    rules: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    removes_dead: bool = False
    merges: bool = False
    limit: int = LIMIT


class Sweep:
    """A graph, the new one under construction, and the Symbols of the new one by those of the old one.

    outer: the walk over the outer graph, where this one is a body. definitions: those of functions that were rewritten
    already, where the graph is a function's body or that of a node in it.
    """

    def __init__(
        self,
        graph: Graph,
        selection: Selection,
        outer: Sweep | None = None,
        definitions: dict[Definition, Definition] | None = None,
    ) -> None:
        self.old = graph
        self.selection = selection
        self.changes = 0
        """Nodes left out or replaced, those in bodies included."""
        self.used: set[Rule] = set()
        """The rules that were applied."""
        self.new = Graph(graph.name, promotion=graph.promotion, strict=graph.strict)
        self.new.metadata = dict(graph.metadata)
        self.new.opsets = dict(graph.opsets)
        self.new.site.layers = dict(graph.site.layers)
        self._outer = outer
        if outer is not None:
            self.new.scope.outer = outer.new
        self._at: list[Symbol | None] = [None] * len(graph.symbols)
        self._labels = {(s.id, label or s.name) for label, s in graph.named_outputs}
        is_body = definitions is not None
        self._definitions = {} if definitions is None else definitions
        self._results = {s.id for _, s in graph.named_outputs} if is_body else set()
        self._given: set[int] = set()  # by number, what a body gives: each result is made by a node of its own
        self._merger = Merger() if selection.merges else None

    def run(self) -> Graph:
        """Return the new graph."""
        old, new, at, rules = self.old, self.new, self._at, self.selection.rules
        live = live_nodes(old) if self.selection.removes_dead else None
        labels: list[tuple[str, Symbol]] = [(name or s.name, s) for name, s in old.named_outputs]
        # A value that was called after its number keeps that name where it is an output.
        named = {s.id: label for label, s in reversed(labels) if s.given_name is None and label == s.name}
        self._leaves(None if live is None else live.symbols)
        for position, node in enumerate(old.nodes):
            if live is not None and not live.nodes[position]:
                self.changes += 1
                continue
            inputs = tuple([None if s is None else at[s.id] for s in node.inputs])
            is_read = type(node.origin) is Imported
            if not node.domain and node.op_type in rules and self._ruled(node, inputs, named, is_read):
                continue
            attributes = node.attributes
            if attributes and any(isinstance(value, Graph) for value in attributes.values()):
                attributes = {k: self._body(v) if isinstance(v, Graph) else v for k, v in attributes.items()}
            if node.domain == FUNCTIONS and (definition := definition_of(node)) is not None:
                attributes = {**attributes, "definition": self._defined(definition)}
            key = None
            if self._merger is not None:
                key = self._merger.key(node, inputs, is_read)
                same = self._merger.found(key)
                if same is not None and self._merge(node, same, named, is_read):
                    continue
            types = [s.type for s in node.outputs]
            names = [s.given_name or named.get(s.id) for s in node.outputs]
            results = new.build.append(
                node.op_type, inputs, types, attributes, node.domain, node.layer, node.origin, names
            )
            for symbol, result in zip(node.outputs, results, strict=True):
                at[symbol.id] = result
                if symbol.id in self._results:
                    self._given.add(result.id)
            if self._merger is not None:
                self._merger.remember(key, new.nodes[-1])
        new.watched = {label: found for label, s in old.watched.items() if (found := at[s.id]) is not None}
        outputs = [(label, self.of(s)) for label, s in labels]
        new.build.outputs(outputs)
        for name, held in old.buffers.items():
            new.build.buffer(name, held.buffer, self.of(held.value))
        for label, symbol in outputs:
            new.names.taken.setdefault(label, symbol)  # so that nothing without a name is called so
        return new

    # For rules

    def of(self, symbol: Symbol) -> Symbol:
        """Return the Symbol of the new graph that stands for one of the old graph."""
        found = self._at[symbol.id]
        assert found is not None, "nodes come in topological order"
        return found

    def known(self, symbol: Symbol | None) -> Array | None:
        """Return the value of a constant of the new graph or an outer one, None for anything else.

        None for a weight, which is the caller's own array until the graph is exported or loaded, and for a constant
        whose dtype is only a default.
        """
        return None if symbol is None or symbol.ambiguous else constant_array(symbol, outer=True)

    def emit(self, node: Node, inputs: Inputs) -> Symbol:
        """Add a node like `node` on other operands, and return its result."""
        return self.add(node, node.op_type, inputs, node.outputs[0].type, node.attributes, node.domain)

    def add(
        self,
        node: Node,
        op_type: str,
        inputs: Inputs,
        type_: Type,
        attributes: Mapping[str, Any] | None = None,
        domain: str = "",
    ) -> Symbol:
        """Another node in the place of `node`."""
        place = node.layer, node.origin
        return self.new.build.append(op_type, inputs, [type_], attributes or {}, domain, *place)[0]

    def constant(self, node: Node, array: Array, type_: Type | None = None) -> Symbol:
        """Return a constant in the place of `node`. type_: by default that of the array."""
        type_ = type_ or tensor_type(DType.of(array.dtype), Shape(array.shape))
        return self.new.build.symbol(type_, Constant(array, False, node.origin))

    # Construction of the new graph

    def _leaves(self, used: set[int] | None) -> None:
        """Add inputs, constants and captured Symbols, in order. used: the numbers of those that are live, or all."""
        old, new, at = self.old, self.new, self._at
        for symbol in old.input_symbols:
            at[symbol.id] = new.build.input(symbol.type, symbol.given_name, symbol.producer.origin)
        constants: dict[object, Symbol] = {}
        for symbol in old.symbols:
            producer = symbol.producer
            if type(producer) is Constant:
                if (
                    used is not None
                    and symbol.id not in used
                    and (symbol.given_name is None or type(producer.origin) is Imported)
                ):
                    continue
                key = self._merger.constant(symbol) if self._merger is not None else None
                found = constants.get(key) if key is not None else None
                if found is None:
                    found = new.build.symbol(symbol.type, producer, symbol.given_name)
                    if key is not None:
                        constants[key] = found
                at[symbol.id] = found
            elif type(producer) is Captured and (used is None or symbol.id in used):
                assert self._outer is not None
                around = self._outer._at[producer.symbol.id]
                at[symbol.id] = None if around is None else new.build.capture(around)

    def _body(self, body: Graph) -> Graph:
        inside = Sweep(body, self.selection, self, self._definitions)
        made = inside.run()
        made.scope.is_finished = body.scope.is_finished
        self.changes += inside.changes
        self.used |= inside.used
        return made

    def _defined(self, definition: Definition) -> Definition:
        """Return the rewritten function that calls of `definition` call: one for all of them."""
        found = self._definitions.get(definition)
        if found is None:
            inside = Sweep(definition.body, self.selection, None, self._definitions)
            body = inside.run()
            body.scope.is_finished = True
            self.used |= inside.used
            found = self._definitions[definition] = Definition(definition.name, body) if inside.changes else definition
        self.changes += found is not definition
        return found

    def _ruled(self, node: Node, inputs: Inputs, named: dict[int, str], is_read: bool) -> bool:
        """Apply the first rule that gives the node's result; return whether there is one."""
        if len(node.outputs) != 1 or not inputs:
            return False
        symbol = node.outputs[0]
        if getattr(symbol.type, "ambiguous", False):
            return False
        for rule in self.selection.rules[node.op_type]:
            made = rule(self, node, inputs)
            if made is not None and self._stands_in(symbol, made, named, is_read):
                self.changes += 1
                self.used.add(rule)
                return True
        return False

    def _merge(self, node: Node, same: Node, named: dict[int, str], is_read: bool) -> bool:
        """Replace the results of a node by those of an equal one; return whether their names allow it."""
        pairs = list(zip(node.outputs, same.outputs, strict=True))
        if not all(self._may_stand_in(s, made, named, is_read) for s, made in pairs):
            return False
        for symbol, made in pairs:
            self._stands_in(symbol, made, named, is_read)
        self.changes += 1
        return True

    def _may_stand_in(self, symbol: Symbol, made: Symbol, named: dict[int, str], is_read: bool) -> bool:
        """Return whether `made` has the same type and can take the name that a user gave.

        Names in a model that was read only connect its nodes; outputs have their labels.
        """
        if made.type is not symbol.type:
            return False
        if symbol.id in self._results and (type(made.producer) is not Node or made.id in self._given):
            return False
        if symbol.given_name is None or is_read or (symbol.id, symbol.given_name) in self._labels:
            return True
        return made.given_name is None and type(made.producer) in (Node, Constant)

    def _stands_in(self, symbol: Symbol, made: Symbol, named: dict[int, str], is_read: bool) -> bool:
        if not self._may_stand_in(symbol, made, named, is_read):
            return False
        name = symbol.given_name or named.get(symbol.id)
        # An output that is a constant has its label alone: lowering makes a value of that name.
        can_be_called = type(made.producer) is Node or (symbol.id, name) not in self._labels
        if name is not None and made.given_name is None and can_be_called and type(made.producer) in (Node, Constant):
            change(made, given_name=name)
            self.new.names.taken[name] = made
        self._at[symbol.id] = made
        if symbol.id in self._results:
            self._given.add(made.id)
        return True
