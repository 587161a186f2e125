"""Rebuild the nodes of a graph in another graph, on operands that may have other types.

A node whose operands have their old types is copied. Any other is typed again, with the checks of building: operands
that do not match are an error that names the node.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.ir.definitions import (
    Definition,
    bound,
    definition_of,
    dims_of,
    names_of,
    new_body,
    outermost,
    substituted,
)
from graphcore.ir.graph import Graph
from graphcore.ir.names import first_free
from graphcore.ir.symbol import Captured, Constant, Node, Symbol, present
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.ir.transform.shape_values import ShapeValues
from graphcore.ir.transform.walk import bodies, reads
from graphcore.onnx.notes import OPSET
from graphcore.onnx.read import bodies as body_types
from graphcore.onnx.read.bodies import is_open
from graphcore.onnx.schemas.node_inference import fill_dims
from graphcore.support.escaping import escaped
from graphcore.support.gc_pause import uncollected
from graphcore.surgery.result_types import (
    OperandChange,
    check_condition,
    describe_node,
    labelled_operands,
    literals,
    may_decide_shapes,
    result_types,
)
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, TensorType, Type, known_type, tensor_type

R = TypeVar("R", bound="Replay")


class Edit(Policy["Replay"]):
    """The policy of an edit: what replaces the nodes of a graph, its bodies, and functions that are inlined."""

    replaces_values: ClassVar[bool] = False
    """Whether `replace_value` is called."""

    def replace_value(self, replay: Replay, symbol: Symbol, new: Symbol) -> Symbol:
        """Return the replacement of a Symbol that was just rebuilt as `new`."""
        return new

    def definition(self, definition: Definition) -> Definition:
        """Return the function to call instead of one that a node calls."""
        return definition

    def is_dropped(self, node: Node) -> bool:
        """Return True if nothing needs a node any more."""
        return False


class Replay(Rewrite):
    """A rewrite that rebuilds the nodes of one graph in another.

    what: the edit, named in errors. prefix: of the names and layers in the new graph. names: replacements for names of
    values. dims: replacements for dim names in types. Symbols that are bound before `make` are not rebuilt, and neither
    is what only they need.
    """

    policy: Edit
    _outer: Replay | None

    def __init__(
        self,
        old: Graph,
        new: Graph,
        what: str,
        policy: Edit | None = None,
        *,
        prefix: str = "",
        names: Mapping[str, str] | None = None,
        dims: Mapping[str, Dim] | None = None,
        outer: Replay | None = None,
    ) -> None:
        super().__init__(old, policy or Edit(), outer, new=new)
        self.what = what
        self._prefix = prefix
        self._names = names or {}
        self._dims = dims or {}
        self._altered: set[int] = set()
        self._retyped: dict[Type, Type] = {}
        self._sizes: ShapeValues = ShapeValues() if outer is None else outer._sizes

    # Symbols

    def bind(self, symbol: Symbol, new: Symbol, *, is_altered: bool = True) -> None:
        """Replace a Symbol of the old graph by `new`. is_altered: its value may differ from the old one."""
        self._mapped[symbol.id] = new
        if is_altered:
            self._altered.add(new.id)

    def _leaf(self, symbol: Symbol) -> Symbol:
        producer = symbol.producer
        if type(producer) is Constant:  # first, because there are many weights
            result = self._mapped[symbol.id] = self._constant(symbol, producer)
        elif type(producer) is Captured:
            result = super()._leaf(symbol)
            assert self._outer is not None
            if self._outer.of(producer.symbol).id in self._outer._altered:
                self._altered.add(result.id)
        else:
            raise GraphError(
                f"{self.what}: the outputs depend on {symbol.name!r}, and nothing computes it",
                operands={"value": symbol},
                help="make it an input",
            )
        return self.settle(symbol) if self.policy.replaces_values else result

    def settle(self, symbol: Symbol) -> Symbol:
        """Let the policy replace the value of a bound Symbol, and return the replacement."""
        current = present(self._mapped[symbol.id])
        result = self.policy.replace_value(self, symbol, current) if self.policy.replaces_values else current
        if result is not current:
            self.bind(symbol, result)
        return result

    def type_of(self, symbol: Symbol) -> Type:
        """Return the type of a Symbol of the old graph in the dims of the new one."""
        type_ = symbol.type
        new_type = self._retyped.get(type_)
        if new_type is None:
            base = type_ if self.new.promotion is self.old.promotion else known_type(type_)
            new_type = self._retyped[type_] = substituted(base, self._dims)
        return new_type

    def result(self, symbol: Symbol, type_: Type | None = None) -> Symbol:
        """Return the value of an output of the new graph, or of a store to a buffer. type_: of the buffer."""
        return self.of(symbol)

    def _constant(self, symbol: Symbol, producer: Constant, type_: Type | None = None) -> Symbol:
        """Return a copy of a constant or weight in the new graph. type_: its type if that changes."""
        type_ = self.type_of(symbol) if type_ is None else type_
        if not producer.is_weight or symbol.given_name is None or self._outer is not None:
            return self.new.build.symbol(type_, producer, self.free_name(symbol.given_name, self.new))
        root = outermost(self.new)
        # Two calls of a graph share its weights.
        key = ("weight", id(producer))
        weight = root.memory.values.get(key)
        if weight is None:
            name = present(self.free_name(symbol.given_name, root, numbered=True))
            if type(root).weight is Graph.weight:
                weight = root.build.symbol(type_, producer, name)
            else:
                weight = root.weight(escaped(name), producer.array, getattr(type_, "dtype", None))
            root.memory.values[key] = weight
        return self.captured(weight)

    def free_name(self, name: str | None, graph: Graph, *, numbered: bool = False) -> str | None:
        """Return the name with the prefix; if it is in use, None, or the name with a number if `numbered`."""
        if name is None:
            return None
        wanted = f"{self._prefix}{self._names.get(name, name)}"
        if numbered:
            return first_free(wanted, graph.names.taken.__contains__)
        return None if wanted in graph.names.taken else wanted

    # Nodes

    def make(self, results: Iterable[Symbol]) -> None:
        """Rebuild the nodes that Symbols of the old graph depend on and that are not bound, in order."""
        with uncollected():
            for node in self.needed(results):
                self.node(node)

    def needed(self, results: Iterable[Symbol]) -> list[Node]:
        """Return the nodes that Symbols depend on, up to bound Symbols, and nodes without results."""
        new_symbols = self._mapped
        used = {s.id for s in results if new_symbols[s.id] is None}
        nodes = []
        for node in reversed(self.old.nodes):
            if node.outputs and not any(s.id in used for s in node.outputs):
                continue
            nodes.append(node)
            used.update(s.id for s in reads(node) if new_symbols[s.id] is None)
        return nodes[::-1]

    def make_all(self) -> None:
        """Rebuild all nodes except those that the policy drops."""
        for node in self.old.nodes:
            if not self.policy.is_dropped(node):
                self.node(node)

    def node(self, node: Node) -> None:
        """Rebuild one node."""
        inputs = self._with_literals(node, self.policy.operands(self, node))
        results = self.policy.replace_node(self, node, inputs)
        for symbol, result in zip(node.outputs, self.keep(node, inputs) if results is None else results, strict=True):
            if result is not None:
                is_altered = result.type != self.type_of(symbol) or self._is_altered(node, inputs)
                self.bind(symbol, result, is_altered=is_altered)
                if self.policy.replaces_values:
                    self.settle(symbol)

    def put(self, node: Node, results: Results) -> Results:
        """Bind the results of a node to other values. A policy's `replace_node` returns the result of this method."""
        for symbol, result in zip(node.outputs, results, strict=True):
            if result is not None:
                self.bind(symbol, result)
                self.settle(symbol)
        return [None] * len(results)

    def keep(self, node: Node, inputs: Inputs) -> tuple[Symbol, ...]:
        """Rebuild a node on operands, which may have other types."""
        if node.attributes:
            definition = definition_of(node)
            if definition is not None:
                return self._call(node, self.policy.definition(definition), inputs)
            if bodies(node):
                return self._with_bodies(node, inputs)
        return self.append(node, inputs, self.results(node, inputs), node.attributes)

    def _with_literals(self, node: Node, inputs: Inputs) -> Inputs:
        """Return the operands with literals in the new dtype of the other operands, as in `x + 1`."""
        if not any(s is not None and s.is_constant for s in inputs) or not self._has_other_types(node, inputs):
            return inputs
        operands = list(inputs)
        for position, dtype in literals(node, inputs).items():
            symbol = present(inputs[position])
            assert isinstance(symbol.producer, Constant)
            try:
                operands[position] = self.new.constant(symbol.producer.array, dtype)
            except DTypeError:
                continue  # not representable: the check of the node raises
        return tuple(operands)

    def append(
        self, node: Node, inputs: Sequence[Symbol | None], types: Sequence[Type], attributes: Mapping[str, Any]
    ) -> tuple[Symbol, ...]:
        """Append a copy of a node, and return its results."""
        pairs = zip(node.outputs, types, strict=True)
        names = [None if s.given_name is None else self._name(s, type_) for s, type_ in pairs]
        layer = f"{self._prefix}{node.layer}"
        return self.new.build.append(
            node.op_type, tuple(inputs), types, attributes, node.domain, layer, node.origin, names
        )

    def _name(self, symbol: Symbol, type_: Type) -> str | None:
        """Return the name for the replacement of a result, which has this type now."""
        return self.free_name(symbol.given_name, self.new)

    def _is_altered(self, node: Node, inputs: Sequence[Symbol | None]) -> bool:
        """Return True if the results of a node may have other values, even of the same types."""
        if node.op_type in ("Shape", "Size"):
            return self._has_other_types(node, inputs)
        return bool(self._altered) and any(s is not None and s.id in self._altered for s in inputs)

    def _has_other_types(self, node: Node, inputs: Sequence[Symbol | None]) -> bool:
        pairs = zip(node.inputs, inputs, strict=True)
        return any(old is not None and new is not None and new.type != self.type_of(old) for old, new in pairs)

    def _has_other_sizes(self, node: Node, inputs: Sequence[Symbol | None]) -> bool:
        altered = self._altered
        return bool(altered) and any(s is not None and s.id in altered and may_decide_shapes(node, s) for s in inputs)

    def results(self, node: Node, inputs: Sequence[Symbol | None]) -> list[Type]:
        """Return the types of the results of a node without bodies."""
        types = [self.type_of(s) for s in node.outputs]
        has_other_sizes = self._has_other_sizes(node, inputs)
        is_changed = has_other_sizes or self._has_other_types(node, inputs)
        if not is_changed and not (self._has_renamed_dims(node, inputs) and any(map(self._is_open, types))):
            return types
        before = [None if s is None else self.type_of(s) for s in node.inputs]
        change = OperandChange(self.what, node, before, types, inputs, has_other_sizes or not is_changed)
        new_types = result_types(change, self._sizes)
        return new_types if is_changed else [self._close_type(a, b) for a, b in zip(types, new_types, strict=True)]

    def _is_open(self, type_: Type) -> bool:
        """Return True if dims are unknown, or have names that no input has."""
        return is_open(type_) or not self._own_names.isdisjoint(names_of([type_]))

    def _close_type(self, old: Type, new: Type) -> Type:
        """Return `old` with the sizes of `new` where its dims are unknown, or have names that no input has."""
        if not isinstance(old, TensorType) or not old.shape.is_ranked:
            return fill_dims(old, new)
        loose = [dim for dim in old.shape if dim.parameters & self._own_names]
        if not loose or not isinstance(new, TensorType) or not new.shape.is_ranked or len(new.shape) != len(old.shape):
            return fill_dims(old, new)
        pairs = zip(old.shape, new.shape, strict=True)
        dims = [b if b.is_static and a.parameters & self._own_names else a for a, b in pairs]
        return fill_dims(tensor_type(old.dtype, Shape(dims), old.ambiguous), new)

    @functools.cached_property
    def _own_names(self) -> frozenset[str]:
        """The dim names of the new graph that no input has."""
        if self._outer is not None:
            return self._outer._own_names
        inputs = names_of(s.type for s in self.old.input_symbols)
        own = {*names_of(s.type for s in self.old.symbols)}.difference(inputs)
        return frozenset(name for old in own for name in self._dims.get(old, Dim(old)).parameters)

    def _has_renamed_dims(self, node: Node, inputs: Sequence[Symbol | None]) -> bool:
        """Return True if dim names in the types of operands have become other dims."""
        pairs = zip(node.inputs, inputs, strict=True)
        return any(old is not None and new is not None and new.type != old.type for old, new in pairs)

    # Calls of functions

    def _call(self, node: Node, definition: Definition, inputs: Inputs) -> tuple[Symbol, ...]:
        dims = {name: dim.substitute(self._dims) for name, dim in dims_of(node).items()}
        if self._has_other_types(node, inputs) or self._is_altered(node, inputs):
            operands = [s for s in inputs if s is not None]
            declared = definition.body.input_symbols
            labels = [s.name for s in declared]
            try:
                if len(operands) != len(declared) or any(
                    isinstance(a.type, TensorType) and isinstance(b.type, TensorType) and a.dtype is not b.dtype
                    for a, b in zip(declared, operands, strict=True)
                ):
                    return self._inline(node, definition, inputs, dims)
                dims = {
                    **dims,
                    **bound(describe_node(node), labels, [s.type for s in declared], [s.type for s in operands]),
                }
            except ShapeError:
                return self._inline(node, definition, inputs, dims)
        types = [substituted(s.type, dims) for s in definition.body.outputs]
        own = {"definition": definition, "dims": tuple(dims.items())}
        return self.append(node, inputs, types, {**node.attributes, **own})

    def _inline(self, node: Node, definition: Definition, inputs: Inputs, dims: dict[str, Dim]) -> tuple[Symbol, ...]:
        """Inline a function that was not traced for the operand types of a call."""
        body = definition.body
        prefix = f"{self._prefix}{node.layer}"
        inner = Replay(body, self.new, self.what, self.policy, prefix=prefix, dims=dims)
        for symbol, operand in zip(body.input_symbols, inputs, strict=True):
            if operand is not None:
                inner.bind(symbol, operand)
        inner.make(body.outputs)
        return tuple([inner.of(s) for s in body.outputs])

    # Bodies

    def _with_bodies(self, node: Node, inputs: Inputs) -> tuple[Symbol, ...]:
        own = {key: value for key, value in node.attributes.items() if isinstance(value, Graph)}
        rest = {key: value for key, value in node.attributes.items() if not isinstance(value, Graph)}
        if not self._has_other_types(node, inputs) and not self._has_other_sizes(node, inputs):
            new_bodies = {
                key: self._body(body, [self.type_of(s) for s in body.input_symbols]) for key, body in own.items()
            }
            if all(
                new.type == self.type_of(old)
                for key, body in own.items()
                for old, new in zip(body.outputs, new_bodies[key].outputs, strict=True)
            ):
                return self.append(node, inputs, [self.type_of(s) for s in node.outputs], {**rest, **new_bodies})

        def again(name: str, _: Any, types: Sequence[Type]) -> Graph:
            return self._body(own[name], types)

        place = f"{self.what}: {describe_node(node)}"
        check_condition(place, node, inputs)
        protos: Any = own  # `again` builds the bodies
        types, remade = body_types.read(again, node.op_type, protos, inputs, rest, len(node.outputs), OPSET, place)
        if types is None:
            raise GraphError(
                f"{place}: the types of its results cannot be inferred for the new operands",
                operands=labelled_operands(inputs),
                help="replace the node and its bodies",
            )
        return self.append(node, inputs, types, {**rest, **remade})

    def _body(self, old: Graph, types: Sequence[Type]) -> Graph:
        """Return a body rebuilt for inputs of other types."""
        inner = self.inner(Replay, old, types)
        for symbol in old.input_symbols:
            inner.settle(symbol)
        inner.make_all()
        results = inner.own_results([s for _, s in old.named_outputs])
        inner.new.scope.is_finished = True
        return inner.finish([(name, s) for (name, _), s in zip(old.named_outputs, results, strict=True)])

    def inner(self, kind: type[R], old: Graph, types: Sequence[Type], **options: Any) -> R:
        """Return the replay of a body into one whose inputs have other types, and no nodes yet."""
        new = new_body(self.new, old.name, types)
        new.file_fields = old.file_fields
        inner = kind(old, new, self.what, self.policy, dims=self._dims, outer=self, **options)
        for symbol, new_input in zip(old.input_symbols, new.input_symbols, strict=True):
            inner.bind(symbol, new_input, is_altered=new_input.type != self.type_of(symbol))
            if symbol.given_name is not None:
                new.names.rename(new_input, symbol.given_name)
        return inner

    def own_results(self, results: Sequence[Symbol]) -> list[Symbol]:
        """Return the new results of a body or function, each computed by a node of its own, as ONNX requires."""
        new_results: list[Symbol] = []
        for position, symbol in enumerate(results):
            result = self.of(symbol)
            is_node = isinstance(result.producer, Node) or not isinstance(symbol.producer, Node)
            before = zip(results[:position], new_results, strict=True)
            if not is_node or any(result is other and symbol is not old for old, other in before):
                result = self.new.build.emit("Identity", (result,), result.type)
            new_results.append(result)
        return new_results


@contextmanager
def at_node(graph: Graph, node: Node) -> Iterator[None]:
    """Build nodes with the layer and the source line of a node."""
    site = graph.site
    before = site.layer, site.origin, site.is_user
    site.layer, site.origin, site.is_user = node.layer, node.origin, False
    try:
        yield
    finally:
        site.layer, site.origin, site.is_user = before
