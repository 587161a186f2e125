"""A graph whose values of some dtypes are of another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphcore.build.declare import LIBRARY
from graphcore.errors import DTypeError
from graphcore.ir.buffers import Buffer
from graphcore.ir.definitions import FUNCTIONS, Definition, definition_of, dims_of, new_body, substituted
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.ir.transform.walk import bodies, parts
from graphcore.surgery.copying import finish, replica
from graphcore.surgery.replay import Edit, Replay, placed
from graphcore.surgery.roles import (
    Arrays,
    Keep,
    Roles,
    Sources,
    all_of,
    attributes_of,
    is_plain,
    moved,
    none_of,
    retyped,
    roles_of,
    takes_any,
)
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

_WHAT = "astype"
_TARGETS = (DType.float16, DType.bfloat16, DType.float32, DType.float64)
_OWN = frozenset({"", FUNCTIONS, LIBRARY})


def astype(graph: Graph, dtype: object, source: object, keep: object, keep_io: bool) -> Graph:
    """Return a graph that computes in another dtype. See `Graph.astype`."""
    target = DType.of(dtype)
    if target not in _TARGETS:
        raise DTypeError(
            f"{_WHAT}: {target} is no dtype that graphs compute in",
            help=f"use one of {', '.join(map(str, _TARGETS))}; for fewer bits see gc.quantize",
        )
    graph.verify()
    kept = Keep(graph, keep)
    sources = Sources(_sources(source, target), _may_convert_sequences(graph, kept, keep_io))
    change = Change(sources, kept, Arrays(target), keep_io)
    types, buffers = _inputs(graph, change)
    replay = replica(graph, _WHAT, types=types, buffers=buffers, kind=Retyping, policy=change)
    made = finish(replay)
    change.arrays.report()
    return made


def _sources(source: object, target: DType) -> frozenset[DType]:
    """Return the dtypes that become `target`. Raises `DTypeError`."""
    if source is None:
        narrow = frozenset({DType.float16, DType.bfloat16})
        return narrow if target is DType.float32 else frozenset({DType.float32})
    given = source if isinstance(source, (list, tuple, set, frozenset)) else [source]
    found = frozenset(DType.of(each) for each in given)
    for each in found:
        if not each.is_float:
            raise DTypeError(
                f"{_WHAT}: source is {each}, no dtype of floats", help="name the floats that are to change"
            )
    return found - {target}


def _may_convert_sequences(graph: Graph, keep: Keep, keep_io: bool) -> bool:
    """Return whether no sequence is at an edge of what is converted: there is no cast of one."""
    edges = [*graph.input_symbols, *graph.outputs]
    if keep_io and not all(is_plain(s.type) for s in edges):
        return False
    for part in parts(graph):
        for node in part.nodes:
            symbols = [*node.outputs, *(s for s in node.inputs if s is not None)]
            if not all(is_plain(s.type) for s in symbols) and (node.domain not in _OWN or keep.has_node(node)):
                return False
    return not any(keep.has_value(s) for s in edges if not is_plain(s.type))


def _inputs(graph: Graph, change: Change) -> tuple[dict[int, Type], dict[str, Buffer]]:
    """Return the types of inputs that have another one, by number, and the buffers of another dtype by name."""
    types: dict[int, Type] = {}
    buffers: dict[str, Buffer] = {}
    for symbol in graph.input_symbols:
        held = graph.buffers.get(symbol.given_name or "")
        is_kept = change.keeps_io if held is None else False
        if is_kept or not change.sources.has(symbol.type) or change.keep.has_value(symbol):
            continue
        types[symbol.id] = made = retyped(symbol.type, change.dtype)
        if held is not None:
            assert isinstance(made, TensorType)
            initial = held.buffer.initial
            if initial is not None:
                initial = change.arrays.cast(initial, symbol.dtype, f"buffer {symbol.name!r}", symbol.producer.origin)
            buffers[symbol.name] = Buffer(made.dtype, made.shape, initial=initial, in_place=held.buffer.in_place)
    return types, buffers


class Change(Edit):
    """One change of dtype: from which to which, what stays, and what was made so far.

    keeps_io: inputs and outputs stay.
    """

    def __init__(self, sources: Sources, keep: Keep, arrays: Arrays, keeps_io: bool) -> None:
        self.sources = sources
        self.dtype = arrays.dtype
        self.keep = keep
        self.arrays = arrays
        self.keeps_io = keeps_io
        self._definitions: dict[Definition, Definition] = {}

    def of_definition(self, definition: Definition) -> Definition:
        """Return a function that takes, computes in and gives the new dtype."""
        found = self._definitions.get(definition)
        if found is None:
            old = definition.body
            new = Graph(old.name, promotion=old.promotion, strict=old.strict)
            inner = Retyping(old, new, _WHAT, self)
            for symbol in old.input_symbols:
                type_ = self.type_of(symbol)
                name = None if symbol.given_name is None else new.names.claim(symbol.given_name, "input")
                inner.bind(symbol, new.build.input(type_, name, symbol.producer.origin))
            inner.make_body([self.type_of(s) for s in old.outputs])
            found = Definition(definition.name, new, definition.domain, definition.attributes)
            self._definitions[definition] = found
        return found

    def type_of(self, symbol: Symbol) -> Type:
        """Return the type of a value that is converted, and that of any other as it is."""
        return retyped(symbol.type, self.dtype) if self.sources.has(symbol.type) else symbol.type


class Retyping(Replay):
    """The nodes of a graph, made again in another dtype.

    A value is made in the dtype that its node gives. Nodes that read it in another one read a cast, which is made
    once, so that no value is cast forth and back. keeps_all: no node changes its dtype.
    """

    policy: Change
    _outer: Retyping | None

    def __init__(self, *arguments: Any, keeps_all: bool = False, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._keeps_all = keeps_all
        self._casts: dict[tuple[int, DType], Symbol] = {}
        self._outputs = {name or s.name for name, s in self.old.named_outputs}
        self._ends = {s.id for _, s in self.old.named_outputs}
        self._wanted: dict[int, Type] = {}
        self._kept_moves = self._moves_that_stay() if self.policy.keep and not keeps_all else frozenset()

    # Values

    def _leaf(self, symbol: Symbol) -> Symbol:
        producer, change = symbol.producer, self.policy
        if change.sources.has(symbol.type) and isinstance(producer, Constant):
            is_kept = self._keeps_all or change.keep.has_value(symbol)
            return self.in_dtype(symbol, symbol.dtype if is_kept else change.dtype)
        if change.sources.has(symbol.type) and isinstance(producer, Captured) and is_plain(symbol.type):
            assert self._outer is not None
            return self.in_dtype(symbol, self._outer.of(producer.symbol).dtype)
        return super()._leaf(symbol)

    def in_dtype(self, symbol: Symbol, dtype: DType) -> Symbol:
        """Return a value in a dtype: as it is made, or a cast of it, or an array of that dtype."""
        key = symbol.id, dtype
        found = self._casts.get(key)
        if found is not None:
            return found
        producer = symbol.producer
        if isinstance(producer, Captured):
            assert self._outer is not None
            found = self.captured(self._outer.in_dtype(producer.symbol, dtype))
        elif isinstance(producer, Constant) and not self.is_bound(symbol):
            found = self._array(symbol, producer, dtype)
        else:
            found = self.of(symbol)
            if found.dtype is not dtype:
                found = self.new.build.cast(found, dtype)
        self._casts[key] = found
        return found

    def _array(self, symbol: Symbol, producer: Constant, dtype: DType) -> Symbol:
        """Return a constant or weight in one of its two dtypes."""
        if dtype is symbol.dtype:
            return self._constant(symbol, producer)
        if self.policy.keep.has_value(symbol):
            return self.new.build.cast(self.in_dtype(symbol, symbol.dtype), dtype)
        return self._constant(symbol, self.policy.arrays.constant(symbol, producer), retyped(symbol.type, dtype))

    def result(self, symbol: Symbol, type_: Type | None = None) -> Symbol:
        """Return what an output or a buffer gives. type_: of the buffer."""
        made = self.of(symbol)
        if not self.policy.sources.has(symbol.type) or not is_plain(symbol.type):
            return made
        if isinstance(type_, TensorType):
            return self.in_dtype(symbol, type_.dtype)
        if self.policy.keeps_io:
            return self.in_dtype(symbol, symbol.dtype)
        return made

    # Nodes

    def node(self, node: Node) -> None:
        """Make one node."""
        with placed(self.new, node):  # which casts that it reads have too
            for symbol, made in zip(node.outputs, self._made_of(node), strict=True):
                self.bind(symbol, made)

    def _is_kept(self, node: Node) -> bool:
        return self._keeps_all or self.policy.keep.has_node(node)

    def _made_of(self, node: Node) -> Sequence[Symbol]:
        definition = definition_of(node)
        is_kept = self._is_kept(node)
        if definition is not None:
            return self._call_of(node, definition, is_kept or definition.domain != FUNCTIONS)
        if bodies(node):
            may_change = not node.domain and (node.op_type != "SequenceMap" or self.policy.sources.with_sequences)
            return self._holder_of(node, is_kept or not may_change)
        change = self.policy
        if is_kept or self._stays(node):
            return self._plain(node, none_of(node))
        roles = roles_of(node, change.sources, change.dtype)
        if node.op_type == "Cast" and not node.domain and node.inputs[0] is not None:
            made = self.of(node.inputs[0])
            (type_,) = self._types(node, roles)
            if isinstance(type_, TensorType) and made.dtype is type_.dtype:
                return self._without_cast(node, made)
        return self._plain(node, roles)

    def _plain(self, node: Node, roles: Roles) -> tuple[Symbol, ...]:
        """Return what a node without bodies gives."""
        inputs = self._operands(node, roles)
        types = self._types(node, roles)
        return self.append(node, inputs, types, attributes_of(node, roles, self.policy.sources, self.policy.arrays))

    def _operands(self, node: Node, roles: Roles) -> list[Symbol | None]:
        change = self.policy
        is_any = takes_any(node)
        made: list[Symbol | None] = []
        for symbol, is_new in zip(node.inputs, roles.operands, strict=True):
            if symbol is None:
                made.append(None)
            elif not change.sources.has(symbol.type) or not is_plain(symbol.type) or is_any:
                made.append(self.of(symbol))
            else:
                made.append(self.in_dtype(symbol, change.dtype if is_new else symbol.dtype))
        return made

    def _types(self, node: Node, roles: Roles) -> list[Type]:
        return [
            self.policy.type_of(s) if is_new else s.type for s, is_new in zip(node.outputs, roles.results, strict=True)
        ]

    def _name(self, symbol: Symbol, type_: Type) -> str | None:
        """Return the name of a value; none where a cast of it has the name, being the output."""
        name = symbol.given_name
        is_cast_after = type_ is not symbol.type and name in self._outputs and self._wants_old(symbol)
        return None if is_cast_after else self.free_name(name, self.new)

    def _wants_old(self, symbol: Symbol) -> bool:
        """Return whether an output that a Symbol is stays of the old dtype."""
        wanted = self._wanted.get(symbol.id)
        return self.policy.keeps_io if wanted is None else wanted is symbol.type

    def _without_cast(self, node: Node, made: Symbol) -> tuple[Symbol, ...]:
        """Return what stands for a cast to the dtype that its operand has by now."""
        (symbol,) = node.outputs
        if symbol.id not in self._ends:
            return (made,)
        name = self._name(symbol, made.type)
        return self.new.build.append("Identity", (made,), [made.type], {}, "", node.layer, node.origin, [name])

    # What moves values between nodes that stay

    def _stays(self, node: Node) -> bool:
        """Return whether a node moves a value of the old dtype to nodes that stay in it."""
        return id(node) in self._kept_moves and any(s is not None and self._is_old(s) for s in moved(node))

    def _is_old(self, symbol: Symbol) -> bool:
        """Return whether a value is made in the old dtype, or is a constant that is kept in it."""
        if isinstance(symbol.producer, Constant) and not self.is_bound(symbol):
            return self.policy.sources.has(symbol.type) and self.policy.keep.has_value(symbol)
        return self.policy.sources.has(self.of(symbol).type)

    def _moves_that_stay(self) -> frozenset[int]:
        """Return the moving nodes whose results only nodes that stay read."""
        others: set[int] = set()  # values that a node reads that does not stay
        found: set[int] = set()
        for node in reversed(self.old.nodes):
            is_read_by_others = any(s.id in others and self.policy.sources.has(s.type) for s in node.outputs)
            if moved(node) and not is_read_by_others:
                found.add(id(node))
            elif not self.policy.keep.has_node(node) and not takes_any(node):
                others.update(s.id for s in node.inputs if s is not None)
            for body in bodies(node):
                others.update(
                    c.producer.symbol.id for c in body.scope.captured.values() if type(c.producer) is Captured
                )
        return frozenset(found)

    # Calls and bodies

    def _call_of(self, node: Node, definition: Definition, is_kept: bool) -> Sequence[Symbol]:
        if is_kept:
            return self._plain(node, none_of(node))
        change = self.policy
        made = change.of_definition(definition)
        roles = all_of(node)
        dims = dims_of(node)
        types = [substituted(s.type, dims) for s in made.body.outputs]
        return self.append(node, self._operands(node, roles), types, {**node.attributes, "definition": made})

    def _holder_of(self, node: Node, is_kept: bool) -> Sequence[Symbol]:
        """Return what a node with bodies gives: what goes round in it is of one dtype all the way."""
        roles = none_of(node) if is_kept else all_of(node)
        inputs = self._operands(node, roles)
        attributes = {
            key: self._body_of(value, is_kept) if isinstance(value, Graph) else value
            for key, value in node.attributes.items()
        }
        return self.append(node, inputs, self._types(node, roles), attributes)

    def _body_of(self, old: Graph, is_kept: bool) -> Graph:
        def type_of(symbol: Symbol) -> Type:
            return symbol.type if is_kept else self.policy.type_of(symbol)

        made = new_body(self.new, old.name, [type_of(s) for s in old.input_symbols])
        inner = Retyping(old, made, self.what, self.policy, outer=self, keeps_all=is_kept)
        for symbol, own in zip(old.input_symbols, made.input_symbols, strict=True):
            inner.bind(symbol, own)
            if symbol.given_name is not None:
                made.names.rename(own, symbol.given_name)
        inner.make_body([type_of(s) for s in old.outputs])
        return made

    def make_body(self, types: Sequence[Type]) -> None:
        """Make all nodes of a body, and finish it. types: of its outputs."""
        self._wanted = {s.id: type_ for s, type_ in zip(self.old.outputs, types, strict=True)}
        self.make_all()
        outputs = []
        for (name, symbol), type_ in zip(self.old.named_outputs, types, strict=True):
            is_float = self.policy.sources.has(symbol.type) and isinstance(type_, TensorType)
            outputs.append((name, self.in_dtype(symbol, type_.dtype) if is_float else self.of(symbol)))  # type: ignore[union-attr]
        self.finish(outputs)
        self.new.scope.is_finished = True
