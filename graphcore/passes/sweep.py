"""The rewriter of all passes: one walk over a graph in topological order that makes a new one.

A rewrite rule is given a node whose operands are in the new graph already, and returns the Symbol of the new graph that
its result is, or None. Later rules see what earlier ones made, so that one walk does nearly all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from graphcore.arrays.casting import Array
from graphcore.ir.definitions import FUNCTIONS, Definition, definition_of
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.ir.transform.rewrite import Inputs, Policy, Rewrite, like
from graphcore.ir.transform.shape_values import DOMAINS, ShapeValues
from graphcore.ir.transform.walk import constant_array
from graphcore.operators.shapes.call import Value
from graphcore.passes.merging import Initializers, Merger, live_nodes, readers, sliced_alone
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type, tensor_type

Rule: TypeAlias = "Callable[[Sweep, Node, Inputs], Symbol | None]"

_SIZES = frozenset({DType.int64, DType.int32})

LIMIT = 1 << 20
"""Bytes of the largest constant that a pass makes."""


@dataclass(frozen=True, slots=True)
class Selection(Policy["Sweep"]):
    """The policy of a walk: its rules and passes. rules: by operator of ONNX or the library, tried in order.

    removes_dead: dead code elimination. merges: common subexpression elimination. limit: bytes of the largest constant.
    branches: the nodes of a branch for an If of a known condition. simplifies_shapes: what holds sizes is noted.
    passes: the pass of each rule by name. initializers: those of models that were read, where they are constants; None
    where they stay weights.
    """

    rules: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    removes_dead: bool = False
    merges: bool = False
    limit: int = LIMIT
    branches: bool = False
    simplifies_shapes: bool = False
    passes: Mapping[Rule, str] = field(default_factory=dict)
    initializers: Initializers | None = None
    keeps_types: ClassVar[bool] = True

    def body(self, rewrite: Sweep, body: Graph) -> Graph:
        return rewrite.swept(body)


class Sweep(Rewrite):
    """A rewrite by rules, with one node for equal ones, and without those that lead nowhere.

    definitions: those of functions that were rewritten already, where the graph is a function's body or that of a node
    in it. new: the new graph that gets the nodes of a body, where they stand in for the node that has it.
    """

    policy: Selection
    _outer: Sweep | None

    def __init__(
        self,
        graph: Graph,
        selection: Selection,
        outer: Sweep | None = None,
        definitions: dict[Definition, Definition] | None = None,
        new: Graph | None = None,
    ) -> None:
        super().__init__(graph, selection, outer, new=new)
        self.changes = 0
        """Nodes left out or replaced, those in bodies included."""
        self.used: set[Rule] = set()
        """The rules that were applied."""
        self._is_inlined = new is not None
        self._labels = {(s.id, label or s.name) for label, s in graph.named_outputs}
        is_body = definitions is not None
        self._definitions = {} if definitions is None else definitions
        self._results = {s.id for _, s in graph.named_outputs} if is_body else set()
        self._given: set[int] = set()  # by number, what a body gives: each result is made by a node of its own
        self._merger: Merger | None = Merger() if selection.merges else None
        if outer is not None and new is not None:
            self._merger = outer._merger
        self.is_top = outer is None and not is_body
        """True where dims stand for the same sizes in all of the graph; those of bodies change from run to run."""
        self.sizes = Sizes(selection.initializers)
        self.by_value: dict[object, Symbol] = {}
        """The first Symbol of the new graph that holds these sizes, by type and sizes."""
        self.ends = {s.id for _, s in graph.named_outputs}
        """The numbers of the old graph's outputs."""
        self._readers: dict[int, int] | None = None  # of each Symbol of the old graph, counted once it is asked for
        self._sliced: set[int] = set()

    def _new_draft(self) -> Graph:
        return like(self.old)

    def run(self) -> Graph:
        """Return the new graph."""
        self._walk([(name or s.name, s) for name, s in self.old.named_outputs])
        new = self.finish()
        for label, symbol in new.named_outputs:
            assert label is not None
            new.names.taken.setdefault(label, symbol)  # so that nothing without a name is called so
        return new

    def _walk(self, labels: list[tuple[str, Symbol]]) -> None:
        """Make the nodes of the new graph."""
        old, new, at, rules = self.old, self.new, self._mapped, self.policy.rules
        live = live_nodes(old) if self.policy.removes_dead else None
        notes_sizes = self.is_top and self.policy.simplifies_shapes
        # A value that was called after its number keeps that name where it is an output.
        named = {s.id: label for label, s in reversed(labels) if s.given_name is None and label == s.name}
        self._leaves(None if live is None else live.symbols)
        for position, node in enumerate(old.nodes):
            if live is not None and not live.nodes[position]:
                self.changes += 1
                continue
            inputs = tuple([None if s is None else at[s.id] for s in node.inputs])
            is_read = type(node.origin) is Imported
            if node.op_type in rules and node.domain in DOMAINS and self._ruled(node, inputs, named, is_read):
                continue
            if node.op_type == "If" and self.policy.branches and not node.domain and self._branched(node, inputs):
                continue
            attributes = self.attributes(node)
            if node.domain == FUNCTIONS and (definition := definition_of(node)) is not None:
                attributes = {**attributes, "definition": self._defined(definition)}
            key = None
            if self._merger is not None:
                key = self._merger.key(node, inputs, is_read)
                same = self._merger.found(key)
                if same is not None and self._merge(node, same, named, is_read):
                    continue
            names = [s.given_name or named.get(s.id) for s in node.outputs]
            types, place = [s.type for s in node.outputs], (node.domain, node.layer, node.origin)
            results = new.build.append(node.op_type, inputs, types, attributes, *place, names)
            for symbol, result in zip(node.outputs, results, strict=True):
                at[symbol.id] = result
                if notes_sizes and getattr(symbol.type, "dtype", None) in _SIZES:
                    self._remember_sizes(symbol, result)
                if symbol.id in self._results:
                    self._given.add(result.id)
            if self._merger is not None:
                self._merger.remember(key, new.nodes[-1])

    # For rules

    def known(self, symbol: Symbol | None) -> Array | None:
        """Return the value of a constant of the new graph or an outer one, None for anything else.

        None for a weight, which is the caller's own array until the graph is exported or loaded, and for a constant
        whose dtype is only a default. An initializer of a model that was read is a constant, unless it is kept.
        """
        if symbol is None or symbol.ambiguous:
            return None
        found = constant_array(symbol, outer=True)
        initializers = self.policy.initializers
        return found if found is not None or initializers is None else initializers.array(symbol)

    def readers(self, symbol: Symbol) -> int:
        """Return how often a Symbol of the old graph is read."""
        if self._readers is None:
            self._readers, self._sliced = readers(self.old), sliced_alone(self.old)
        return self._readers[symbol.id]

    def room(self, node: Node, size: int) -> int:
        """Return the bytes that a constant in the place of `node` may have, which will have `size`.

        That is the limit, as long as the model did not grow by too much, or what the operands take that go with it.
        """
        limit, initializers = self.policy.limit, self.policy.initializers
        if initializers is None or (size <= limit and size <= initializers.room):
            return limit
        freed = self._freed(node)
        return max(min(limit, initializers.room + freed), freed)

    def _freed(self, node: Node) -> int:
        """Return the bytes of the constants that `node` alone reads, and its part of those that are only sliced."""
        total = 0
        for symbol in {s.id: s for s in node.inputs if s is not None}.values():
            count = self.readers(symbol)
            array = self.known(self._mapped[symbol.id]) if count == 1 or symbol.id in self._sliced else None
            if array is not None:
                total += array.nbytes // count
        return total

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
        initializers = self.policy.initializers
        if initializers is not None and array.nbytes > self.policy.limit >> 12:  # few bytes beside those of a node
            initializers.room -= max(0, array.nbytes - self._freed(node))
        return self.new.build.symbol(type_, Constant(array, False, node.origin))

    # Construction of the new graph

    def _leaves(self, used: set[int] | None) -> None:
        """Add inputs, constants and captured Symbols, in order. used: the numbers of those that are live, or all."""
        old, new, at = self.old, self.new, self._mapped
        initializers = self.policy.initializers
        constants: dict[object, Symbol] = {}
        for symbol in old.symbols:
            producer = symbol.producer
            if type(producer) is Constant:
                if (
                    used is not None
                    and symbol.id not in used
                    and not self._reads_kept((symbol,))
                    and (symbol.given_name is None or type(producer.origin) is Imported)
                ):
                    continue
                key = self._merger.constant(symbol, self._is_initializer(symbol)) if self._merger is not None else None
                found = constants.get(key) if key is not None else None
                if found is not None and initializers is not None:
                    initializers.merged(symbol, found)
                if found is None:
                    found = new.build.symbol(symbol.type, producer, symbol.given_name)
                    if key is not None:
                        constants[key] = found
                at[symbol.id] = found
            elif type(producer) is Captured and (used is None or symbol.id in used):
                assert self._outer is not None
                around = self._outer._mapped[producer.symbol.id]
                at[symbol.id] = around if around is None or self._is_inlined else self.captured(around)

    def _is_initializer(self, symbol: Symbol) -> bool:
        initializers = self.policy.initializers
        return initializers is not None and symbol.id not in self.ends and initializers.is_one(symbol)

    def _branched(self, node: Node, inputs: Inputs) -> bool:
        """Put the nodes of a branch in the place of an If whose condition is known; return whether that was done."""
        initializers = self.policy.initializers
        if initializers is not None:
            initializers.reads.clear()
        known = self.known(inputs[0])
        if known is None or known.size != 1 or self._is_inlined:
            return False
        body = node.attributes["then_branch" if known.reshape(-1)[0] else "else_branch"]
        chosen = [s for _, s in body.named_outputs]
        for symbol, result in zip(node.outputs, chosen, strict=True):
            has_use = symbol.id in self.ends or (symbol.given_name is not None and type(node.origin) is not Imported)
            if has_use or not isinstance(result.producer, Node):
                return False  # a name or type of a value that the caller knows would be another one
        inside = Sweep(body, self.policy, self, self._definitions, self.new)
        inside._results.clear()
        inside._walk([])
        for symbol, result in zip(node.outputs, chosen, strict=True):
            self._mapped[symbol.id] = inside.of(result)
        if initializers is not None:
            initializers.commit("fold_constants")
        self.changes += inside.changes + 1
        self.used |= inside.used
        return True

    def swept(self, body: Graph) -> Graph:
        """Return the body of a node, rewritten."""
        inside = Sweep(body, self.policy, self, self._definitions)
        made = inside.run()
        made.scope.is_finished = body.scope.is_finished
        self.changes += inside.changes
        self.used |= inside.used
        return made

    def _defined(self, definition: Definition) -> Definition:
        """Return the rewritten function that calls of `definition` call: one for all of them."""
        found = self._definitions.get(definition)
        if found is None:
            inside = Sweep(definition.body, self.policy, None, self._definitions)
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
        initializers = self.policy.initializers
        if initializers is not None and initializers.kept and self._reads_kept(inputs):
            return False
        for rule in self.policy.rules[node.op_type]:
            if initializers is not None and initializers.reads:
                initializers.reads.clear()
            made = rule(self, node, inputs)
            if made is not None and self._stands_in(symbol, made, named, is_read):
                if type(made.producer) is Node:
                    self._remember_sizes(symbol, made)
                if initializers is not None and initializers.reads:
                    initializers.commit(self.policy.passes.get(rule, "optimize"))
                self.changes += 1
                self.used.add(rule)
                return True
        return False

    def _remember_sizes(self, symbol: Symbol, made: Symbol) -> None:
        """Note which Symbol of the new graph holds the sizes that one of the old graph does."""
        type_ = symbol.type
        if not self.policy.simplifies_shapes or not isinstance(type_, TensorType) or type_.dtype not in _SIZES:
            return
        value = self.sizes.of(symbol)
        sizes = value if isinstance(value, tuple) else (value,)
        if any(size is None for size in sizes) or symbol.ambiguous or symbol.id in self._results:
            return
        self.by_value.setdefault((id(type_), value), made)

    def _reads_kept(self, inputs: Inputs) -> bool:
        """Return whether an operand is a weight that the caller keeps: what follows from it is left to each run."""
        initializers = self.policy.initializers
        return (
            initializers is not None
            and bool(initializers.kept)
            and any(s is not None and initializers.keeps(s) for s in inputs)
        )

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
        self._mapped[symbol.id] = made
        if symbol.id in self._results:
            self._given.add(made.id)
        return True


# The values of small integer tensors, for rules: weights that their owners may change have none.


class Sizes(ShapeValues):
    """The values of the integer tensors of the graph that a walk is over.

    initializers: those that count as constants, if any do.
    """

    def __init__(self, initializers: Initializers | None) -> None:
        super().__init__()
        self._initializers = initializers

    def _read(self, symbol: Symbol, type_: TensorType, depth: int) -> Value:
        producer = symbol.producer
        if isinstance(producer, Constant) and (producer.is_weight or symbol.ambiguous):
            initializers = self._initializers
            if symbol.ambiguous or initializers is None or not initializers.is_one(symbol):
                return None
            # What is found is remembered, so that it is not told which rule used it first.
            if symbol.given_name is not None:
                initializers.used.setdefault(symbol.given_name, "simplify_shapes")
        try:
            return super()._read(symbol, type_, depth)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return None  # `Graph.op` takes operands and attributes that ONNX refuses
