"""The rewriter of all passes: one walk over a graph in topological order that builds a new graph.

A rewrite rule gets a node whose operands are already in the new graph, and returns the Symbol of the new graph that
replaces its result, or None. Later rules see the results of earlier ones, so one walk does nearly everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from graphcore.arrays.casting import Array
from graphcore.ir.definitions import FUNCTIONS, Definition, definition_of
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Captured, Constant, Node, Symbol, present
from graphcore.ir.transform.rewrite import Inputs, Policy, Rewrite, like
from graphcore.ir.transform.shape_values import DOMAINS, ShapeValues
from graphcore.ir.transform.walk import constant_array
from graphcore.operators.shapes.call import Value
from graphcore.passes.merging import Initializers, Merger, live_nodes, readers, replaced_origins, sliced_alone
from graphcore.support.source_lines import Imported, OfFile
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type, tensor_type

Rule: TypeAlias = "Callable[[Sweep, Node, Inputs], Symbol | None]"

_SIZES = frozenset({DType.int64, DType.int32})

LIMIT = 1 << 20
"""The maximum size of a constant that a pass creates, in bytes."""


@dataclass(frozen=True, slots=True)
class SweepPolicy(Policy["Sweep"]):
    """The policy of a sweep: its rules and passes.

    rules: by operator of ONNX or the library, tried in order. removes_dead: dead code elimination. merges: common
    subexpression elimination. limit: the maximum size of a new constant, in bytes. branches: replace an If of a
    constant condition by the nodes of its branch. simplifies_shapes: record values with sizes. passes: the name of the
    pass of each rule. initializers: of loaded models, which may count as constants.
    """

    rules: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    removes_dead: bool = False
    merges: bool = False
    limit: int = LIMIT
    branches: bool = False
    simplifies_shapes: bool = False
    passes: Mapping[Rule, str] = field(default_factory=dict)
    initializers: Initializers = field(default_factory=Initializers)
    keeps_types: ClassVar[bool] = True

    def body(self, rewrite: Sweep, body: Graph) -> Graph:
        return rewrite.rewrite_body(body)


class Sweep(Rewrite):
    """A rewrite by rules, which merges equal nodes and removes dead ones.

    definitions: functions that are rewritten already, if the graph is in a function. new: the new graph that gets the
    nodes of a body, if they replace the node with the body.
    """

    policy: SweepPolicy
    _outer: Sweep | None

    def __init__(
        self,
        graph: Graph,
        selection: SweepPolicy,
        outer: Sweep | None = None,
        definitions: dict[Definition, Definition] | None = None,
        new: Graph | None = None,
    ) -> None:
        super().__init__(graph, selection, outer, new=new)
        self.changes = 0
        """The number of nodes removed or replaced, including those in bodies."""
        self.used: set[Rule] = set()
        """The rules that were applied."""
        self._is_inlined = new is not None
        self._drops_names = new is not None and graph.file_fields is not None  # which other bodies may have too
        self._labels = {(s.id, label or s.name) for label, s in graph.named_outputs}
        is_body = definitions is not None
        self._definitions = {} if definitions is None else definitions
        self._results = {s.id for _, s in graph.named_outputs} if is_body else set()
        self._result_ids: set[int] = set()  # numbers of a body's results: each needs a node of its own
        self._merger: Merger | None = Merger() if selection.merges else None
        if outer is not None and new is not None:
            self._merger = outer._merger
        self.is_top = outer is None and not is_body
        """True if dims have the same sizes everywhere in the graph; in bodies they can change in each iteration."""
        self.sizes = SweepSizes(selection.initializers)
        self.by_value: dict[object, Symbol] = {}
        """The first Symbol of the new graph with these sizes, by type and sizes."""
        self.ends = {s.id for _, s in graph.named_outputs}
        """The numbers of the old graph's outputs."""
        self._readers: dict[int, int] | None = None  # of each Symbol of the old graph, counted on first use
        self._sliced: set[int] = set()

    def _new_draft(self) -> Graph:
        return like(self.old)

    def run(self) -> Graph:
        """Return the new graph."""
        self._walk([(name or s.name, s) for name, s in self.old.named_outputs])
        new = self.finish()
        for label, symbol in new.named_outputs:
            new.names.taken.setdefault(present(label), symbol)  # so that no unnamed value gets this name
        return new

    def _walk(self, labels: list[tuple[str, Symbol]]) -> None:
        """Build the nodes of the new graph."""
        old, new, at, rules = self.old, self.new, self._mapped, self.policy.rules
        is_live, used = live_nodes(old) if self.policy.removes_dead else (None, None)
        notes_sizes = self.is_top and self.policy.simplifies_shapes
        # An output with an automatic name keeps it.
        named = {s.id: label for label, s in reversed(labels) if s.given_name is None and label == s.name}
        self._add_leaves(used)
        for position, node in enumerate(old.nodes):
            if is_live is not None and not is_live[position]:
                self.changes += 1
                continue
            inputs = tuple([None if s is None else at[s.id] for s in node.inputs])
            is_read = type(node.origin) is Imported
            if node.op_type in rules and node.domain in DOMAINS and self._apply_rules(node, inputs, named, is_read):
                continue
            if node.op_type == "If" and self.policy.branches and not node.domain and self._inline_branch(node, inputs):
                continue
            attributes = self.attributes(node)
            if node.domain == FUNCTIONS and (definition := definition_of(node)) is not None:
                attributes = {**attributes, "definition": self._rewrite_function(definition)}
            key = None
            if self._merger is not None:
                key = self._merger.key(node, inputs, is_read)
                same = self._merger.find(key)
                if same is not None and self._merge(node, same, named, is_read):
                    continue
            names = [None if self._drops_names else s.given_name or named.get(s.id) for s in node.outputs]
            types, place = [s.type for s in node.outputs], (node.domain, node.layer, node.origin)
            results = new.build.append(node.op_type, inputs, types, attributes, *place, names)
            for symbol, result in zip(node.outputs, results, strict=True):
                at[symbol.id] = result
                if notes_sizes and getattr(symbol.type, "dtype", None) in _SIZES:
                    self._remember_sizes(symbol, result)
                if symbol.id in self._results:
                    self._result_ids.add(result.id)
            if self._merger is not None:
                self._merger.remember(key, new.nodes[-1])

    # For rules

    def constant_value(self, symbol: Symbol | None) -> Array | None:
        """Return the value of a constant of the new graph or an outer one, None for anything else.

        None for a weight, which the caller can change until the graph is exported or loaded, and for a constant whose
        dtype is only a default. An initializer of a loaded model is a constant, unless it is kept.
        """
        if symbol is None or symbol.ambiguous:
            return None
        array = constant_array(symbol, outer=True)
        return self.policy.initializers.array(symbol) if array is None else array

    def readers(self, symbol: Symbol) -> int:
        """Return the number of reads of a Symbol of the old graph."""
        if self._readers is None:
            self._readers, self._sliced = readers(self.old), sliced_alone(self.old)
        return self._readers[symbol.id]

    def constant_limit(self, node: Node, size: int) -> int:
        """Return the maximum size in bytes of a constant that replaces `node` and has `size`.

        This is the limit, as long as the model did not grow by too much, or the size of the operands that it frees.
        """
        limit, initializers = self.policy.limit, self.policy.initializers
        if size <= limit and size <= initializers.budget:
            return limit
        freed = self._freed_bytes(node) if initializers.budget < math.inf else 0
        return int(max(min(limit, initializers.budget + freed), freed))

    def _freed_bytes(self, node: Node) -> int:
        """Return the bytes of constants that only `node` reads, and its share of those that are only sliced."""
        total = 0
        for symbol in {s.id: s for s in node.inputs if s is not None}.values():
            count = self.readers(symbol)
            array = self.constant_value(self._mapped[symbol.id]) if count == 1 or symbol.id in self._sliced else None
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
        """Add another node in the place of `node`, and return its result."""
        place = node.layer, node.origin
        return self.new.build.append(op_type, inputs, [type_], attributes or {}, domain, *place)[0]

    def constant(self, node: Node, array: Array, type_: Type | None = None) -> Symbol:
        """Add a constant in the place of `node`. type_: by default that of the array."""
        type_ = type_ or tensor_type(DType.of(array.dtype), Shape(array.shape))
        initializers = self.policy.initializers
        # Small constants do not count beside the size of a node.
        if initializers.budget < math.inf and array.nbytes > self.policy.limit >> 12:
            initializers.budget -= max(0, array.nbytes - self._freed_bytes(node))
        return self.new.build.symbol(type_, Constant(array, False, node.origin))

    # Construction of the new graph

    def _add_leaves(self, used: set[int] | None) -> None:
        """Add inputs, constants and captured Symbols, in order. used: the numbers of live Symbols; None for all."""
        old, new, at = self.old, self.new, self._mapped
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
                constant = constants.get(key) if key is not None else None
                if constant is not None:
                    self.policy.initializers.record_merge(symbol, constant)
                if constant is None:
                    constant = new.build.symbol(symbol.type, producer, None if self._drops_names else symbol.given_name)
                    if key is not None:
                        constants[key] = constant
                at[symbol.id] = constant
            elif type(producer) is Captured and (used is None or symbol.id in used):
                outer_symbol = present(self._outer)._mapped[producer.symbol.id]
                at[symbol.id] = (
                    outer_symbol if outer_symbol is None or self._is_inlined else self.captured(outer_symbol)
                )

    def _is_initializer(self, symbol: Symbol) -> bool:
        return symbol.id not in self.ends and self.policy.initializers.counts(symbol)

    def _inline_branch(self, node: Node, inputs: Inputs) -> bool:
        """Replace an If of a constant condition by the nodes of its branch; return True if that was done."""
        initializers = self.policy.initializers
        initializers.reads.clear()
        condition = self.constant_value(inputs[0])
        if condition is None or condition.size != 1 or self._is_inlined:
            return False
        body = node.attributes["then_branch" if condition.reshape(-1)[0] else "else_branch"]
        chosen = [s for _, s in body.named_outputs]
        for symbol, result in zip(node.outputs, chosen, strict=True):
            has_use = symbol.id in self.ends or (symbol.given_name is not None and type(node.origin) is not Imported)
            if has_use or not isinstance(result.producer, Node):
                return False  # a name or type that the caller uses would change
        branch = Sweep(body, self.policy, self, self._definitions, self.new)
        branch._results.clear()
        branch._walk([])
        for symbol, result in zip(node.outputs, chosen, strict=True):
            self._mapped[symbol.id] = branch.of(result)
        initializers.commit("fold_constants")
        self.changes += branch.changes + 1
        self.used |= branch.used
        return True

    def rewrite_body(self, body: Graph) -> Graph:
        """Return the rewritten body of a node."""
        inner = Sweep(body, self.policy, self, self._definitions)
        rewritten = inner.run()
        rewritten.scope.is_finished = body.scope.is_finished
        self.changes += inner.changes
        self.used |= inner.used
        return rewritten

    def _rewrite_function(self, definition: Definition) -> Definition:
        """Return the rewritten function of `definition`, one for all of its calls."""
        rewritten = self._definitions.get(definition)
        if rewritten is None:
            inner = Sweep(definition.body, self.policy, None, self._definitions)
            body = inner.run()
            body.scope.is_finished = True
            self.used |= inner.used
            rewritten = self._definitions[definition] = (
                Definition(definition.name, body) if inner.changes else definition
            )
        self.changes += rewritten is not definition
        return rewritten

    def _apply_rules(self, node: Node, inputs: Inputs, named: dict[int, str], is_read: bool) -> bool:
        """Apply the first rule that returns a result; return True if there is one."""
        if len(node.outputs) != 1 or not inputs:
            return False
        symbol = node.outputs[0]
        if getattr(symbol.type, "ambiguous", False):
            return False
        initializers = self.policy.initializers
        if initializers.kept_names and self._reads_kept(inputs):
            return False
        for rule in self.policy.rules[node.op_type]:
            if initializers.reads:
                initializers.reads.clear()
            nodes, symbols = len(self.new.nodes), len(self.new.symbols)
            result = rule(self, node, inputs)
            if result is not None and self._replace(symbol, result, named, is_read):
                if type(result.producer) is Node:
                    self._remember_sizes(symbol, result)
                if initializers.reads:
                    initializers.commit(self.policy.passes.get(rule, "optimize"))
                self.changes += 1
                self.used.add(rule)
                if isinstance(node.origin, OfFile) and result.id >= symbols:
                    self._name_sources(node.origin, inputs, result, self.new.nodes[nodes:])
                return True
        return False

    def _name_sources(self, origin: OfFile, inputs: Inputs, result: Symbol, added: Sequence[Node]) -> None:
        """Record in the origin of what a rule added all nodes that it replaced. origin, inputs: of the last of them."""
        new_origin = origin.with_sources(replaced_origins(inputs, added))
        fields = new_origin.fields
        if isinstance(result.producer, Constant):
            change(result, producer=Constant(result.producer.array, result.producer.is_weight, new_origin))
        elif fields is not None and len(fields.sources) > 1:
            for node in added:
                if node.origin is origin:
                    change(node, origin=new_origin)

    def _remember_sizes(self, symbol: Symbol, new_symbol: Symbol) -> None:
        """Record the Symbol of the new graph that has the sizes of a Symbol of the old graph."""
        type_ = symbol.type
        if not self.policy.simplifies_shapes or not isinstance(type_, TensorType) or type_.dtype not in _SIZES:
            return
        value = self.sizes.of(symbol)
        sizes = value if isinstance(value, tuple) else (value,)
        if any(size is None for size in sizes) or symbol.ambiguous or symbol.id in self._results:
            return
        self.by_value.setdefault((id(type_), value), new_symbol)

    def _reads_kept(self, inputs: Inputs) -> bool:
        """Return True if an operand is a weight that the caller keeps, so that its uses are not simplified."""
        initializers = self.policy.initializers
        return bool(initializers.kept_names) and any(s is not None and initializers.keeps(s) for s in inputs)

    def _merge(self, node: Node, same: Node, named: dict[int, str], is_read: bool) -> bool:
        """Replace the results of a node by those of an equal one; return True if their names allow it."""
        pairs = list(zip(node.outputs, same.outputs, strict=True))
        if not all(self._can_replace(s, replacement, named, is_read) for s, replacement in pairs):
            return False
        for symbol, replacement in pairs:
            self._replace(symbol, replacement, named, is_read)
        self.changes += 1
        return True

    def _can_replace(self, symbol: Symbol, replacement: Symbol, named: dict[int, str], is_read: bool) -> bool:
        """Return True if `replacement` has the same type and can get the user's name of the Symbol.

        Names in a loaded model only connect its nodes; outputs have their labels.
        """
        if replacement.type is not symbol.type:
            return False
        if symbol.id in self._results and (
            type(replacement.producer) is not Node or replacement.id in self._result_ids
        ):
            return False
        if symbol.given_name is None or is_read or (symbol.id, symbol.given_name) in self._labels:
            return True
        return replacement.given_name is None and type(replacement.producer) in (Node, Constant)

    def _replace(self, symbol: Symbol, replacement: Symbol, named: dict[int, str], is_read: bool) -> bool:
        if not self._can_replace(symbol, replacement, named, is_read):
            return False
        name = None if self._drops_names else symbol.given_name or named.get(symbol.id)
        # A constant output has only its label: lowering creates a value of that name.
        can_be_called = type(replacement.producer) is Node or (symbol.id, name) not in self._labels
        if (
            name is not None
            and replacement.given_name is None
            and can_be_called
            and type(replacement.producer) in (Node, Constant)
        ):
            change(replacement, given_name=name)
            self.new.names.taken[name] = replacement
        self._mapped[symbol.id] = replacement
        if symbol.id in self._results:
            self._result_ids.add(replacement.id)
        return True


# The values of small integer tensors, for rules; unknown for weights, which their owners can change.


class SweepSizes(ShapeValues):
    """The values of integer tensors of the graph that is swept. initializers: those that count as constants."""

    def __init__(self, initializers: Initializers) -> None:
        super().__init__()
        self._initializers = initializers

    def _read(self, symbol: Symbol, type_: TensorType, depth: int) -> Value:
        producer = symbol.producer
        if isinstance(producer, Constant) and (producer.is_weight or symbol.ambiguous):
            if symbol.ambiguous or not self._initializers.counts(symbol):
                return None
            # The value is cached, so that the rule that used it first is not known.
            if symbol.given_name is not None:
                self._initializers.used.setdefault(symbol.given_name, "simplify_shapes")
        try:
            return super()._read(symbol, type_, depth)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return None  # `Graph.op` accepts operands and attributes that ONNX does not allow
