"""Making the nodes of a graph again, in another graph, on operands that may have other types.

A node whose operands are as they were is taken over as it is. Any other is typed again, with the checks of building:
what does not go together is an error that names the node.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

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
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.ir.transform.shape_values import ShapeValues
from graphcore.ir.transform.walk import bodies
from graphcore.onnx.notes import OPSET
from graphcore.onnx.read import bodies as body_types
from graphcore.onnx.read.bodies import is_open
from graphcore.onnx.schemas.node_inference import fill_dims
from graphcore.support.escaping import escaped
from graphcore.support.gc_pause import uncollected
from graphcore.surgery.result_types import (
    Change,
    check_condition,
    described,
    literals,
    may_decide_shapes,
    result_types,
    roles,
)
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, TensorType, Type, known_type, tensor_type


class Edit(Policy["Replay"]):
    """What a change makes of the nodes of a graph, of its bodies, and of functions that it inlines."""

    replaces_values: ClassVar[bool] = False
    """Whether `replace_value` is asked."""

    def replace_value(self, replay: Replay, symbol: Symbol, made: Symbol) -> Symbol:
        """Return what stands for a Symbol from here on, for which `made` was just made."""
        return made

    def definition(self, definition: Definition) -> Definition:
        """Return the function to call instead of one that a node calls."""
        return definition

    def is_dropped(self, node: Node) -> bool:
        """Return whether nothing needs a node any more."""
        return False


class Replay(Rewrite):
    """The nodes of one graph, made again in another.

    what: the change that is made, for errors. prefix: of the names and the layers of what is made. names: others for
    names of values. dims: the dims that stand for names in types. Symbols that are bound before `make` are not made;
    what only they need is not either.
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

    def bind(self, symbol: Symbol, made: Symbol, *, is_altered: bool = True) -> None:
        """Let `made` stand for a Symbol of the old graph. is_altered: its value may be another one than so far."""
        self._made[symbol.id] = made
        if is_altered:
            self._altered.add(made.id)

    def _leaf(self, symbol: Symbol) -> Symbol:
        producer = symbol.producer
        if type(producer) is Constant:  # of weights there are many
            made = self._made[symbol.id] = self._constant(symbol, producer)
        elif type(producer) is Captured:
            made = super()._leaf(symbol)
            assert self._outer is not None
            if self._outer.of(producer.symbol).id in self._outer._altered:
                self._altered.add(made.id)
        else:
            raise GraphError(
                f"{self.what}: nothing gives {symbol.name!r}, which is needed",
                operands={"value": symbol},
                help="give it as an input",
            )
        return self.settle(symbol) if self.policy.replaces_values else made

    def settle(self, symbol: Symbol) -> Symbol:
        """Ask the policy what stands for a Symbol, which is bound, from here on, and return that."""
        made = self._made[symbol.id]
        assert made is not None
        found = self.policy.replace_value(self, symbol, made) if self.policy.replaces_values else made
        if found is not made:
            self.bind(symbol, found)
        return found

    def type_of(self, symbol: Symbol) -> Type:
        """Return the type of a Symbol of the old graph in the dims of the new one."""
        type_ = symbol.type
        found = self._retyped.get(type_)
        if found is None:
            known = type_ if self.new.promotion is self.old.promotion else known_type(type_)
            found = self._retyped[type_] = substituted(known, self._dims)
        return found

    def result(self, symbol: Symbol, type_: Type | None = None) -> Symbol:
        """Return what an output of the new graph gives, or a buffer at its end. type_: of the buffer."""
        return self.of(symbol)

    def _constant(self, symbol: Symbol, producer: Constant, type_: Type | None = None) -> Symbol:
        """Return a constant or weight like another one. type_: another one than that has."""
        type_ = self.type_of(symbol) if type_ is None else type_
        if not producer.is_weight or symbol.given_name is None:
            return self.new.build.symbol(type_, producer, self.free_name(symbol.given_name, self.new))
        root = outermost(self.new)
        # A graph that is called twice has its weights once.
        key = ("weight", id(producer))
        found = root.memory.values.get(key)
        if found is None:
            name = self.free_name(symbol.given_name, root, numbered=True)
            assert name is not None
            if type(root).weight is Graph.weight:
                found = root.build.symbol(type_, producer, name)
            else:
                found = root.weight(escaped(name), producer.array, getattr(type_, "dtype", None))
            root.memory.values[key] = found
        return self.captured(found)

    def free_name(self, name: str | None, graph: Graph, *, numbered: bool = False) -> str | None:
        """Return the name under the prefix; where it is taken None, or the name with a number."""
        if name is None:
            return None
        wanted = made = f"{self._prefix}{self._names.get(name, name)}"
        count = 0
        while made in graph.names.taken:
            if not numbered:
                return None
            count += 1
            made = f"{wanted}_{count}"
        return made

    # Nodes

    def make(self, results: Iterable[Symbol]) -> None:
        """Make the nodes that Symbols of the old graph need and that nothing stands for yet, in their order."""
        with uncollected():
            for node in self.needed(results):
                self.node(node)

    def needed(self, results: Iterable[Symbol]) -> list[Node]:
        """Return the nodes that lead to Symbols, back to what is bound, and nodes without results."""
        made = self._made
        used = {s.id for s in results if made[s.id] is None}
        found = []
        for node in reversed(self.old.nodes):
            if node.outputs and not any(s.id in used for s in node.outputs):
                continue
            found.append(node)
            used.update(s.id for s in reads(node) if made[s.id] is None)
        return found[::-1]

    def make_all(self) -> None:
        """Make all nodes but those that the policy drops."""
        for node in self.old.nodes:
            if not self.policy.is_dropped(node):
                self.node(node)

    def node(self, node: Node) -> None:
        """Make one node."""
        inputs = self._with_literals(node, self.policy.operands(self, node))
        made = self.policy.replace_node(self, node, inputs)
        for symbol, result in zip(node.outputs, self.keep(node, inputs) if made is None else made, strict=True):
            if result is not None:
                is_altered = result.type != self.type_of(symbol) or self._is_altered(node, inputs)
                self.bind(symbol, result, is_altered=is_altered)
                if self.policy.replaces_values:
                    self.settle(symbol)

    def put(self, node: Node, made: Results) -> Results:
        """Let `made` stand for the results of a node, with other values than so far; what policies return then."""
        for symbol, result in zip(node.outputs, made, strict=True):
            if result is not None:
                self.bind(symbol, result)
                self.settle(symbol)
        return [None] * len(made)

    def keep(self, node: Node, inputs: Inputs) -> tuple[Symbol, ...]:
        """Make a node again on operands, which may have other types."""
        if node.attributes:
            definition = definition_of(node)
            if definition is not None:
                return self._call(node, self.policy.definition(definition), inputs)
            if bodies(node):
                return self._with_bodies(node, inputs)
        return self.append(node, inputs, self.results(node, inputs), node.attributes)

    def _with_literals(self, node: Node, inputs: Inputs) -> Inputs:
        """Return the operands with numbers in the dtype that the others have now, as `x + 1` has them."""
        if not any(s is not None and s.is_constant for s in inputs) or not self._has_other_types(node, inputs):
            return inputs
        made = list(inputs)
        for position, dtype in literals(node, inputs).items():
            symbol = inputs[position]
            assert symbol is not None
            assert isinstance(symbol.producer, Constant)
            try:
                made[position] = self.new.constant(symbol.producer.array, dtype)
            except DTypeError:
                continue  # the dtype cannot hold it, which the check of the node says
        return tuple(made)

    def append(
        self, node: Node, inputs: Sequence[Symbol | None], types: Sequence[Type], attributes: Mapping[str, Any]
    ) -> tuple[Symbol, ...]:
        """Append a node like another one, and return what it gives."""
        pairs = zip(node.outputs, types, strict=True)
        names = [None if s.given_name is None else self._name(s, type_) for s, type_ in pairs]
        layer = f"{self._prefix}{node.layer}"
        return self.new.build.append(
            node.op_type, tuple(inputs), types, attributes, node.domain, layer, node.origin, names
        )

    def _name(self, symbol: Symbol, type_: Type) -> str | None:
        """Return the name of what stands for a result, which is of this type now."""
        return self.free_name(symbol.given_name, self.new)

    def _is_altered(self, node: Node, inputs: Sequence[Symbol | None]) -> bool:
        """Return whether what a node gives may have another value, its type being the same."""
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
        """Return the types of what a node without bodies gives on operands."""
        types = [self.type_of(s) for s in node.outputs]
        has_other_sizes = self._has_other_sizes(node, inputs)
        is_changed = has_other_sizes or self._has_other_types(node, inputs)
        if not is_changed and not (self._tells_more(node, inputs) and any(map(self._is_open, types))):
            return types
        before = [None if s is None else self.type_of(s) for s in node.inputs]
        change = Change(self.what, node, before, types, inputs, has_other_sizes or not is_changed)
        made = result_types(change, self._sizes)
        return made if is_changed else [self._closed(a, b) for a, b in zip(types, made, strict=True)]

    def _is_open(self, type_: Type) -> bool:
        """Return whether dims are not known, or have names that no input has."""
        return is_open(type_) or not self._own_names.isdisjoint(names_of([type_]))

    def _closed(self, old: Type, new: Type) -> Type:
        """Return a type with the sizes of another one where its own dims are not known, or have names of their own."""
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
        """The names of dims that only values within the graph have, in the new graph."""
        if self._outer is not None:
            return self._outer._own_names
        inputs = names_of(s.type for s in self.old.input_symbols)
        own = {*names_of(dict.fromkeys(s.type for s in self.old.symbols))}.difference(inputs)
        return frozenset(name for old in own for name in self._dims.get(old, Dim(old)).parameters)

    def _tells_more(self, node: Node, inputs: Sequence[Symbol | None]) -> bool:
        """Return whether names of dims in the types of operands have become other dims."""
        pairs = zip(node.inputs, inputs, strict=True)
        return any(old is not None and new is not None and new.type != old.type for old, new in pairs)

    # Calls of functions

    def _call(self, node: Node, definition: Definition, inputs: Inputs) -> tuple[Symbol, ...]:
        dims = {name: dim.substitute(self._dims) for name, dim in dims_of(node).items()}
        if self._has_other_types(node, inputs) or self._is_altered(node, inputs):
            given = [s for s in inputs if s is not None]
            declared = definition.body.input_symbols
            labels = [s.name for s in declared]
            try:
                if len(given) != len(declared) or any(
                    isinstance(a.type, TensorType) and isinstance(b.type, TensorType) and a.dtype is not b.dtype
                    for a, b in zip(declared, given, strict=True)
                ):
                    return self._inline(node, definition, inputs, dims)
                dims = {**dims, **bound(described(node), labels, [s.type for s in declared], [s.type for s in given])}
            except ShapeError:
                return self._inline(node, definition, inputs, dims)
        types = [substituted(s.type, dims) for s in definition.body.outputs]
        own = {"definition": definition, "dims": tuple(dims.items())}
        return self.append(node, inputs, types, {**node.attributes, **own})

    def _inline(self, node: Node, definition: Definition, inputs: Inputs, dims: dict[str, Dim]) -> tuple[Symbol, ...]:
        """Make the nodes of a function in place of a call with operands that it was not traced for."""
        body = definition.body
        prefix = f"{self._prefix}{node.layer}"
        inner = Replay(body, self.new, self.what, self.policy, prefix=prefix, dims=dims)
        for symbol, given in zip(body.input_symbols, inputs, strict=True):
            if given is not None:
                inner.bind(symbol, given)
        inner.make(body.outputs)
        return tuple([inner.of(s) for s in body.outputs])

    # Bodies

    def _with_bodies(self, node: Node, inputs: Inputs) -> tuple[Symbol, ...]:
        own = {key: value for key, value in node.attributes.items() if isinstance(value, Graph)}
        rest = {key: value for key, value in node.attributes.items() if not isinstance(value, Graph)}
        if not self._has_other_types(node, inputs) and not self._has_other_sizes(node, inputs):
            made = {key: self._body(body, [self.type_of(s) for s in body.input_symbols]) for key, body in own.items()}
            if all(
                new.type == self.type_of(old)
                for key, body in own.items()
                for old, new in zip(body.outputs, made[key].outputs, strict=True)
            ):
                return self.append(node, inputs, [self.type_of(s) for s in node.outputs], {**rest, **made})

        def again(name: str, _: Any, types: Sequence[Type]) -> Graph:
            return self._body(own[name], types)

        place = f"{self.what}: {described(node)}"
        check_condition(place, node, inputs)
        protos: Any = own  # only named here: `again` makes the bodies
        types, remade = body_types.read(again, node.op_type, protos, inputs, rest, len(node.outputs), OPSET, place)
        if types is None:
            raise GraphError(
                f"{place} cannot be typed again", operands=roles(inputs), help="replace the node and what it holds"
            )
        return self.append(node, inputs, types, {**rest, **remade})

    def _body(self, old: Graph, types: Sequence[Type]) -> Graph:
        """Return a body made again for inputs of other types."""
        made = new_body(self.new, old.name, types)
        inner = Replay(old, made, self.what, self.policy, dims=self._dims, outer=self)
        for symbol, own in zip(old.input_symbols, made.input_symbols, strict=True):
            inner.bind(symbol, own, is_altered=own.type != self.type_of(symbol))
        for symbol in old.input_symbols:
            inner.settle(symbol)
        inner.make_all()
        results = inner.own_results([s for _, s in old.named_outputs])
        made.scope.is_finished = True
        return inner.finish([(name, s) for (name, _), s in zip(old.named_outputs, results, strict=True)])

    def own_results(self, results: Sequence[Symbol]) -> list[Symbol]:
        """Return what stands for the results of a body or function, each made by a node of its own, as ONNX has it."""
        found: list[Symbol] = []
        for position, symbol in enumerate(results):
            made = self.of(symbol)
            is_node = isinstance(made.producer, Node) or not isinstance(symbol.producer, Node)
            before = zip(results[:position], found, strict=True)
            if not is_node or any(made is other and symbol is not old for old, other in before):
                made = self.new.build.emit("Identity", (made,), made.type)
            found.append(made)
        return found


@contextmanager
def placed(graph: Graph, node: Node) -> Iterator[None]:
    """Give what is built inside the layer and the line of a node."""
    site = graph.site
    before = site.layer, site.origin, site.is_user
    site.layer, site.origin, site.is_user = node.layer, node.origin, False
    try:
        yield
    finally:
        site.layer, site.origin, site.is_user = before


def reads(node: Node) -> list[Symbol]:
    """Return the Symbols that a node reads, those that its bodies capture included."""
    found = [s for s in node.inputs if s is not None]
    for body in bodies(node):
        found += [s.producer.symbol for s in body.scope.captured.values() if isinstance(s.producer, Captured)]
    return found
