"""Convert the values of some dtypes in a graph to another dtype."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphcore.build.declare import LIBRARY
from graphcore.errors import DTypeError
from graphcore.ir.buffers import Buffer
from graphcore.ir.definitions import FUNCTIONS, Definition, definition_of, dims_of, substituted
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import method
from graphcore.ir.symbol import Captured, Constant, Node, Symbol, present
from graphcore.ir.transform.walk import bodies, outside, parts
from graphcore.surgery.copying import finish, replica
from graphcore.surgery.replay import Edit, Replay, at_node
from graphcore.surgery.roles import (
    CastArrays,
    Keep,
    Roles,
    Sources,
    all_of,
    attributes_of,
    is_plain,
    moved_operands,
    none_of,
    roles_of,
    takes_any,
    with_dtype,
)
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

_WHAT = "astype"
_TARGETS = (DType.float16, DType.bfloat16, DType.float32, DType.float64)
_OWN = frozenset({"", FUNCTIONS, LIBRARY})


@method(Graph)
def astype(
    self: Graph, dtype: object, *, source: object = None, keep: str | Iterable[str] = (), keep_io: bool = True
) -> Graph:
    """Return a new graph that computes in another float dtype.

    Weights and constants are cast once; those of other dtypes are the same arrays. Operands that an operator accepts
    only in float32 are not converted: sizes of Resize, scales of QuantizeLinear, classical models, operators of other
    domains. Bodies and functions are converted, sequences are not. Finite weights beyond the range of `dtype` become
    its largest finite value; a `LossyCastWarning` names them, and counts those that become 0.

    Args:
        dtype: "float16", "bfloat16", "float32" or "float64".
        source: The dtypes to convert, by default float32, and for "float32" float16 and bfloat16.
        keep: Shell patterns of operators ("Softmax"), layers ("encoder/*"), results, inputs and weights to keep in
            their dtype, with casts around them. A pattern that matches nothing of the converted dtypes is a warning.
        keep_io: If True, inputs and outputs keep their dtypes, with casts after and before them. Otherwise they are
            converted, except results of nodes in `keep`. Buffers are always converted.

    Raises:
        DTypeError: The dtype is not supported.
        GraphError: A pattern matches nothing.

    Source: the float16 conversion of onnxconverter-common.

    Example:
        half = model.astype("float16", keep=["Softmax", "head/*"])
    """
    target = _target(self, _WHAT, dtype)
    self.verify()
    dtypes = _sources(self, source, target)
    patterns = Keep(self, keep, dtypes)
    sources = Sources(dtypes, _may_convert_sequences(self, patterns, bool(keep_io)))
    change = DTypeChange(sources, patterns, CastArrays(target), bool(keep_io))
    types, buffers = _inputs(self, change)
    replay = replica(self, _WHAT, types=types, buffers=buffers, kind=Retyping, policy=change)
    result = finish(replay)
    change.arrays.report()
    return result


def narrowed(graph: Graph, dtypes: Mapping[int, DType], keep: Keep, arrays: CastArrays) -> Graph:
    """Return a graph whose nodes compute floats in dtypes of their own. Inputs, outputs and buffers keep theirs.

    dtypes: by the ids of nodes, those of bodies included; other nodes keep float32. keep: the values that keep it too.
    arrays: of float32, which several graphs may share.
    """
    change = DTypeChange(Sources(frozenset({DType.float32}), False), keep, arrays, True, dtypes)
    return finish(replica(graph, _WHAT, kind=Retyping, policy=change))


def with_io_dtype(graph: Graph, dtype: object) -> Graph:
    """Return a graph with float inputs, outputs and buffers in another dtype, cast to and from their own."""
    target = _target(graph, "io_dtype", dtype)
    graph.verify()
    edges = [s.type for s in (*graph.input_symbols, *graph.outputs)]
    floats = {t.dtype for t in edges if isinstance(t, TensorType) and t.dtype.is_float} - {target}
    if not floats:
        return graph
    change = DTypeChange(Sources(frozenset(floats), False), Keep(graph, ()), CastArrays(target), False)
    types, buffers = _inputs(graph, change)
    result = finish(replica(graph, "io_dtype", types=types, buffers=buffers, kind=_Interface, policy=change))
    change.arrays.report("io_dtype", "choose a wider dtype")
    return result


def _target(graph: Graph, what: str, dtype: object) -> DType:
    """Return the dtype to convert to. Raises `DTypeError`."""
    target = graph.promotion.dtype_of(dtype)
    if target not in _TARGETS:
        raise DTypeError(
            f"{what}: {target} is not a dtype that graphs compute in",
            help=f"use one of {', '.join(map(str, _TARGETS))}; for fewer bits see gc.quantize",
        )
    return target


def _sources(graph: Graph, source: object, target: DType) -> frozenset[DType]:
    """Return the dtypes that become `target`. Raises `DTypeError`."""
    if source is None:
        narrow = frozenset({DType.float16, DType.bfloat16})
        return narrow if target is DType.float32 else frozenset({DType.float32})
    values = source if isinstance(source, (list, tuple, set, frozenset)) else [source]
    dtypes = frozenset(graph.promotion.dtype_of(each) for each in values)
    for each in dtypes:
        if not each.is_float:
            raise DTypeError(
                f"{_WHAT}: source must be floating-point dtypes, got {each}", help="name the float dtypes to convert"
            )
    return dtypes - {target}


def _may_convert_sequences(graph: Graph, keep: Keep, keep_io: bool) -> bool:
    """Return True if no sequence crosses the edge of the converted part: sequences cannot be cast."""
    edges = [*graph.input_symbols, *graph.outputs]
    if keep_io and not all(is_plain(s.type) for s in edges):
        return False
    for part in parts(graph):
        for node in part.nodes:
            symbols = [*node.outputs, *(s for s in node.inputs if s is not None)]
            if not all(is_plain(s.type) for s in symbols) and (node.domain not in _OWN or keep.has_node(node)):
                return False
    return not any(keep.has_value(s) for s in edges if not is_plain(s.type))


def _inputs(graph: Graph, change: DTypeChange) -> tuple[dict[int, Type], dict[str, Buffer]]:
    """Return the new types of converted inputs by symbol id, and the converted buffers by name."""
    types: dict[int, Type] = {}
    buffers: dict[str, Buffer] = {}
    for symbol in graph.input_symbols:
        buffer_value = graph.buffers.get(symbol.given_name or "")
        is_kept = change.keeps_io if buffer_value is None else False
        if is_kept or not change.sources.has(symbol.type) or change.keep.has_value(symbol):
            continue
        types[symbol.id] = new_type = with_dtype(symbol.type, change.dtype)
        if buffer_value is not None:
            assert isinstance(new_type, TensorType)
            initial = buffer_value.buffer.initial
            if initial is not None:
                initial = change.arrays.cast(initial, symbol.dtype, f"buffer {symbol.name!r}", symbol.producer.origin)
            buffers[symbol.name] = Buffer(
                new_type.dtype, new_type.shape, initial=initial, in_place=buffer_value.buffer.in_place
            )
    return types, buffers


class DTypeChange(Edit):
    """A conversion to another dtype: the source dtypes, the parts to keep, and the converted arrays and functions.

    keeps_io: inputs and outputs keep their dtype. dtypes: see `narrowed`; None for one dtype throughout, in which nodes
    keep their own together with their bodies.
    """

    def __init__(
        self,
        sources: Sources,
        keep: Keep,
        arrays: CastArrays,
        keeps_io: bool,
        dtypes: Mapping[int, DType] | None = None,
    ) -> None:
        self.sources = sources
        self.dtype = arrays.dtype
        self.keep = keep
        self.arrays = arrays
        self.keeps_io = keeps_io
        self.dtypes = dtypes
        self._definitions: dict[Definition, Definition] = {}

    def of_definition(self, definition: Definition) -> Definition:
        """Return the function converted to the new dtype."""
        new_definition = self._definitions.get(definition)
        if new_definition is None:
            old = definition.body
            new = Graph(old.name, promotion=old.promotion, strict=old.strict)
            inner = Retyping(old, new, _WHAT, self)
            for symbol in old.input_symbols:
                type_ = self.type_of(symbol)
                name = None if symbol.given_name is None else new.names.claim(symbol.given_name, "input")
                inner.bind(symbol, new.build.input(type_, name, symbol.producer.origin))
            inner.make_body([self.type_of(s) for s in old.outputs])
            new_definition = Definition(definition.name, new, definition.domain, definition.attributes)
            self._definitions[definition] = new_definition
        return new_definition

    def type_of(self, symbol: Symbol, dtype: DType | None = None) -> Type:
        """Return the new type of a converted value, by default in the new dtype; the unchanged type of any other."""
        return with_dtype(symbol.type, dtype or self.dtype) if self.sources.has(symbol.type) else symbol.type

    def dtype_of(self, node: Node) -> DType | None:
        """Return the dtype that a node is converted to, None if it keeps its own."""
        if self.dtypes is not None:
            return self.dtypes.get(id(node))
        return None if self.keep.has_node(node) else self.dtype


class Retyping(Replay):
    """A replay that converts nodes to another dtype.

    A value has the dtype in which its node computes it. Nodes that need another dtype share one cast of it, so that no
    value is cast forth and back. keeps_all: no node changes its dtype.
    """

    policy: DTypeChange
    _outer: Retyping | None

    def __init__(self, *arguments: Any, keeps_all: bool = False, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._keeps_all = keeps_all
        self._casts: dict[tuple[int, DType], Symbol] = {}
        self._output_names = frozenset(self.old.outputs.names)
        self._output_ids = {s.id for s in self.old.outputs}
        self._output_types: dict[int, Type] = {}
        may_keep = not keeps_all and (bool(self.policy.keep) or self.policy.dtypes is not None)
        self._unchanged_moves = self._find_unchanged_moves() if may_keep else frozenset()

    # Values

    def _leaf(self, symbol: Symbol) -> Symbol:
        producer, change = symbol.producer, self.policy
        if change.sources.has(symbol.type) and isinstance(producer, Constant):
            is_kept = self._keeps_all or change.keep.has_value(symbol)
            return self.in_dtype(symbol, symbol.dtype if is_kept else change.dtype)
        if change.sources.has(symbol.type) and isinstance(producer, Captured) and is_plain(symbol.type):
            return self.in_dtype(symbol, present(self._outer).of(producer.symbol).dtype)
        return super()._leaf(symbol)

    def in_dtype(self, symbol: Symbol, dtype: DType) -> Symbol:
        """Return a value in a dtype: the value itself, a cast of it, or a converted constant."""
        key = symbol.id, dtype
        result = self._casts.get(key)
        if result is not None:
            return result
        producer = symbol.producer
        if isinstance(producer, Captured):
            result = self.captured(present(self._outer).in_dtype(producer.symbol, dtype))
        elif isinstance(producer, Constant) and not self.is_bound(symbol):
            result = self._array(symbol, producer, dtype)
        else:
            result = self.of(symbol)
            if result.dtype is not dtype:
                result = self.new.build.cast(result, dtype)
        self._casts[key] = result
        return result

    def _array(self, symbol: Symbol, producer: Constant, dtype: DType) -> Symbol:
        """Return a constant or weight in one of its two dtypes."""
        if dtype is symbol.dtype:
            return self._constant(symbol, producer)
        if self.policy.keep.has_value(symbol):
            return self.new.build.cast(self.in_dtype(symbol, symbol.dtype), dtype)
        new_producer = self.policy.arrays.of(dtype).constant(symbol, producer)
        return self._constant(symbol, new_producer, with_dtype(symbol.type, dtype))

    def result(self, symbol: Symbol, type_: Type | None = None) -> Symbol:
        """Return the value of an output or a buffer. type_: of the buffer."""
        value = self.of(symbol)
        if not self.policy.sources.has(symbol.type) or not is_plain(symbol.type):
            return value
        if isinstance(type_, TensorType):
            return self.in_dtype(symbol, type_.dtype)
        if self.policy.keeps_io:
            return self.in_dtype(symbol, symbol.dtype)
        return value

    # Nodes

    def node(self, node: Node) -> None:
        """Append one node."""
        with at_node(self.new, node):  # casts of its operands get its layer and line too
            for symbol, result in zip(node.outputs, self._retype_node(node), strict=True):
                self.bind(symbol, result)

    def _retype_node(self, node: Node) -> Sequence[Symbol]:
        definition = definition_of(node)
        dtype = None if self._keeps_all else self.policy.dtype_of(node)
        if definition is not None:
            return self._append_call(node, definition, dtype is None or definition.domain != FUNCTIONS)
        if bodies(node):
            may_change = not node.domain and (node.op_type != "SequenceMap" or self.policy.sources.with_sequences)
            return self._append_with_bodies(node, dtype if may_change else None)
        change = self.policy
        if dtype is None or self._stays(node):
            return self._append_plain(node, none_of(node), change.dtype)
        roles = roles_of(node, change.sources, dtype)
        if node.op_type == "Cast" and not node.domain and node.inputs[0] is not None:
            value = self.of(node.inputs[0])
            (type_,) = self._types(node, roles, dtype)
            if isinstance(type_, TensorType) and value.dtype is type_.dtype:
                return self._without_cast(node, value)
        return self._append_plain(node, roles, dtype)

    def _append_plain(self, node: Node, roles: Roles, dtype: DType) -> tuple[Symbol, ...]:
        """Append a node without bodies. dtype: of the operands and results that are converted."""
        change = self.policy
        inputs = self._operands(node, roles, dtype)
        types = self._types(node, roles, dtype)
        return self.append(node, inputs, types, attributes_of(node, roles, change.sources, change.arrays.of(dtype)))

    def _operands(self, node: Node, roles: Roles, dtype: DType) -> list[Symbol | None]:
        change = self.policy
        is_any = takes_any(node)
        operands: list[Symbol | None] = []
        for symbol, is_new in zip(node.inputs, roles.operands, strict=True):
            if symbol is None:
                operands.append(None)
            elif not change.sources.has(symbol.type) or not is_plain(symbol.type) or is_any:
                operands.append(self.of(symbol))
            else:
                operands.append(self.in_dtype(symbol, dtype if is_new else symbol.dtype))
        return operands

    def _types(self, node: Node, roles: Roles, dtype: DType) -> list[Type]:
        return [
            self.policy.type_of(s, dtype) if is_new else s.type
            for s, is_new in zip(node.outputs, roles.results, strict=True)
        ]

    def _name(self, symbol: Symbol, type_: Type) -> str | None:
        """Return the name of a value, None if a cast of it is the output and takes the name."""
        name = symbol.given_name
        is_cast_after = type_ is not symbol.type and name in self._output_names and self._wants_old(symbol)
        return None if is_cast_after else self.free_name(name, self.new)

    def _wants_old(self, symbol: Symbol) -> bool:
        """Return True if a Symbol is an output that keeps the old dtype."""
        wanted = self._output_types.get(symbol.id)
        return self.policy.keeps_io if wanted is None else wanted is symbol.type

    def _without_cast(self, node: Node, value: Symbol) -> tuple[Symbol, ...]:
        """Return the replacement of a cast whose operand now has the target dtype."""
        (symbol,) = node.outputs
        if symbol.id not in self._output_ids:
            return (value,)
        name = self._name(symbol, value.type)
        return self.new.build.append("Identity", (value,), [value.type], {}, "", node.layer, node.origin, [name])

    # Nodes that move values between nodes that keep their dtype

    def _stays(self, node: Node) -> bool:
        """Return True if a node moves a value of the old dtype to nodes that keep it."""
        return id(node) in self._unchanged_moves and any(
            s is not None and self._is_old(s) for s in moved_operands(node)
        )

    def _is_old(self, symbol: Symbol) -> bool:
        """Return True if a value is computed in the old dtype, or is a constant that keeps it."""
        if isinstance(symbol.producer, Constant) and not self.is_bound(symbol):
            return self.policy.sources.has(symbol.type) and self.policy.keep.has_value(symbol)
        return self.policy.sources.has(self.of(symbol).type)

    def _find_unchanged_moves(self) -> frozenset[int]:
        """Return the ids of the nodes that move values which only nodes that keep their dtype read."""
        others: set[int] = set()  # values read by nodes that change their dtype
        moves: set[int] = set()
        for node in reversed(self.old.nodes):
            is_read_by_others = any(s.id in others and self.policy.sources.has(s.type) for s in node.outputs)
            if moved_operands(node) and not is_read_by_others:
                moves.add(id(node))
            elif self.policy.dtype_of(node) is not None and not takes_any(node):
                others.update(s.id for s in node.inputs if s is not None)
            for body in bodies(node):
                others.update(s.id for s in outside(body))
        return frozenset(moves)

    # Calls and bodies

    def _append_call(self, node: Node, definition: Definition, is_kept: bool) -> Sequence[Symbol]:
        if is_kept:
            return self._append_plain(node, none_of(node), self.policy.dtype)
        change = self.policy
        new_definition = change.of_definition(definition)
        roles = all_of(node)
        dims = dims_of(node)
        types = [substituted(s.type, dims) for s in new_definition.body.outputs]
        return self.append(
            node, self._operands(node, roles, change.dtype), types, {**node.attributes, "definition": new_definition}
        )

    def _append_with_bodies(self, node: Node, dtype: DType | None) -> Sequence[Symbol]:
        """Append a node with bodies: values carried around a loop have one dtype throughout. dtype: None to keep it."""
        roles, chosen = (none_of(node), self.policy.dtype) if dtype is None else (all_of(node), dtype)
        inputs = self._operands(node, roles, chosen)
        attributes = {
            key: self._retype_body(value, dtype) if isinstance(value, Graph) else value
            for key, value in node.attributes.items()
        }
        return self.append(node, inputs, self._types(node, roles, chosen), attributes)

    def _retype_body(self, old: Graph, dtype: DType | None) -> Graph:
        def type_of(symbol: Symbol) -> Type:
            return symbol.type if dtype is None else self.policy.type_of(symbol, dtype)

        keeps_all = self._keeps_all or (dtype is None and self.policy.dtypes is None)
        inner = self.inner(Retyping, old, [type_of(s) for s in old.input_symbols], keeps_all=keeps_all)
        inner.make_body([type_of(s) for s in old.outputs])
        return inner.new

    def make_body(self, types: Sequence[Type]) -> None:
        """Append all nodes of a body, and finish it. types: of its outputs."""
        self._output_types = {s.id: type_ for s, type_ in zip(self.old.outputs, types, strict=True)}
        self.make_all()
        outputs = []
        for (name, symbol), type_ in zip(self.old.named_outputs, types, strict=True):
            is_float = self.policy.sources.has(symbol.type) and isinstance(type_, TensorType)
            outputs.append((name, self.in_dtype(symbol, type_.dtype) if is_float else self.of(symbol)))  # type: ignore[union-attr]
        self.finish(outputs)
        self.new.scope.is_finished = True


class _Interface(Retyping):
    """A replay that converts inputs, outputs and buffers, and keeps the dtypes of all nodes."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, keeps_all=True, **named)

    def result(self, symbol: Symbol, type_: Type | None = None) -> Symbol:
        """Return the value of an output or a buffer, rounded to its own dtype before the cast."""
        if not self.policy.sources.has(symbol.type):
            return self.of(symbol)
        return self.new.build.cast(self.in_dtype(symbol, symbol.dtype), self.policy.dtype)
