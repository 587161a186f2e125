"""A graph of ONNX operators and dtypes as the bytes of a ModelProto.

Nothing of the graph is decided here: what is legal, what outputs are called and which casts there are was settled by
lowering. Weights are written from their own memory, as chunks that are never joined unless someone asks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from graphcore.errors import GraphError, ResourceLimitError
from graphcore.ir.definitions import Definition, definition_of, definitions
from graphcore.ir.graph import Graph
from graphcore.ir.names import snake
from graphcore.ir.state import settings
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.onnx import notes
from graphcore.onnx.notes import DOMAINS, IR_VERSION, LIMIT, ONNX_DOMAINS, OPSET
from graphcore.onnx.proto.value_protos import (
    SMALL,
    Chunk,
    External,
    block,
    encoded_type,
    integer,
    integers,
    metadata,
    nested,
    single,
    sized,
    tensor,
    text,
    value_info,
    varint,
)
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import ForeignType, OptionalType, SequenceType, TensorType

_NODE = [b"\x0a" + size for size in SMALL]
"""The field `node` of a GraphProto and how long it is, for short ones."""

_ABSENT = b"\0"  # the name, after its length, of an optional operand left out

# The numbers of protobuf's fields are those of onnx.proto; each is named where it is used. They are written out, since
# importing onnx takes longer than starting most models.

_FLOAT, _INT, _STRING, _TENSOR, _GRAPH, _FLOATS, _INTS, _STRINGS = (integer(20, kind) for kind in range(1, 9))
_TYPE_PROTO = integer(20, 13)
"""The field `type` of an AttributeProto."""

_Number = TypeVar("_Number", int, float)

_BEYOND = 2.0**128 - 2.0**103
"""The least number that rounds to more than float32 holds."""


def encode(
    graph: Graph,
    external: External | None = None,
    *,
    ir: int | None = None,
    versions: Mapping[str, int] = MappingProxyType({}),
) -> list[Chunk]:
    """The ModelProto in chunks, in order; large weights are memoryviews of their arrays.

    graph: lowered, so that all its dtypes are ONNX's. external: where initializers lie that are not written inside.
    ir: the version of the file format, where it is not the newest. versions: of domains, where they are not what
    lowering left in the graph.
    """
    properties = notes.entries({notes.PROMOTION: graph.promotion.note, **graph.metadata})
    body = _graph(graph, _Scope(external, noted=notes.value_notes(graph.metadata)))
    domains = sorted(_domains(graph) - {""})
    versions = {**DOMAINS, "": OPSET, **graph.opsets, **versions}
    called = [block(25, _function(definition, versions)) for definition in definitions(graph)]  # functions
    head = b"".join(
        (
            integer(1, IR_VERSION if ir is None else ir),  # ir_version
            text(2, "graphcore"),  # producer_name
            block(8, integer(2, versions[""])),  # opset_import: version
            *(block(8, text(1, domain) + integer(2, versions.get(domain, 1))) for domain in domains),
            metadata(14, properties),
        )
    )
    return [head, *nested(7, body), *called]


def _function(definition: Definition, versions: Mapping[str, int]) -> bytes:
    """The FunctionProto of a definition, which is lowered: it has no initializers but nodes that give constants."""
    graph = definition.body
    names = [b""] * len(graph.symbols)
    nodes = _nodes(graph, names, _Scope())
    results = [names[s.id] or _given(s, names) for s in graph.outputs]
    constants = [
        block(7, b"\x12" + names[s.id] + text(4, "Constant") + block(5, _constant(s.producer.array, s.type.dtype)))
        for s in graph.symbols
        if type(s.producer) is Constant and names[s.id]
    ]
    own = sorted(_domains(graph) - {""})
    return b"".join(
        (
            text(1, definition.name),
            *(text(4, s.name) for s in graph.input_symbols),
            *(b"\x2a" + name for name in results),  # output
            *constants,
            *(b"\x3a" + node[1:] for node in nodes),  # node: the field that a graph has as its first is the seventh
            block(9, integer(2, versions[""])),  # opset_import
            *(block(9, text(1, domain) + integer(2, versions.get(domain, 1))) for domain in own),
            *(text(6, name) for name in definition.attributes),
            text(10, definition.domain),
        )
    )


def _domains(graph: Graph) -> set[str]:
    found = {node.domain for node in graph.nodes}
    for attributes in [node.attributes for node in graph.nodes if node.attributes]:
        for value in attributes.values():
            if isinstance(value, Graph):
                found |= _domains(value)
    return found


@dataclass(frozen=True, slots=True)
class _Scope:
    """The place a graph is written to: the top, or the body of a node, whose names must not be those outside."""

    external: External | None = None
    prefix: str = ""
    """The prefix of the names of a body, unlike any other."""
    outer: list[bytes] = field(default_factory=list)
    """The names, by number, of the Symbols of the graph around a body."""
    bodies: Iterator[int] = field(default_factory=count)
    around: str = ""
    """The prefix of the graph around a body."""
    noted: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The notes of values, by name."""

    def inside(self, graph: Graph, names: list[bytes]) -> _Scope:
        """The scope of a body of a node of `graph`, which has these names."""
        prefix = self.prefix or _unlike(graph.names.taken)
        return _Scope(self.external, f"{prefix}{next(self.bodies)}/", names, self.bodies, self.prefix)


def _unlike(taken: Iterable[str]) -> str:
    """The beginning of names that none of those taken has."""
    stem = "body"
    while any(name.startswith(stem) for name in taken):
        stem += "_"
    return stem


def _graph(graph: Graph, scope: _Scope) -> list[Chunk]:
    prefix, noted = scope.prefix, scope.noted
    names = [b""] * len(graph.symbols)
    for symbol in graph.scope.captured.values():
        assert isinstance(symbol.producer, Captured)
        held = symbol.producer.symbol  # a constant outside may be used in bodies only
        names[symbol.id] = scope.outer[held.id] or _given(held, scope.outer, scope.around)
    chunks: list[Chunk] = [b"".join(_nodes(graph, names, scope)), text(2, graph.name)]
    outputs = graph.outputs
    for symbol in outputs:
        names[symbol.id] or _given(symbol, names, prefix)
    for symbol in graph.symbols:
        producer = symbol.producer
        if type(producer) is Constant and names[symbol.id]:
            content = tensor(producer.array, symbol.type.dtype, f"{prefix}{symbol.name}", scope.external)
            if (said := noted.get(symbol.given_name or "")) is not None:
                content.insert(0, metadata(16, said))
            chunks += nested(5, content)  # initializer
    chunks += [block(11, value_info(f"{prefix}{symbol.name}", symbol.type, noted)) for symbol in graph.input_symbols]
    for symbol in outputs:
        own = "" if type(symbol.producer) is Captured else prefix
        chunks.append(block(12, value_info(f"{own}{symbol.name}", symbol.type, noted)))
    others = [node for node in graph.nodes if node.domain and _is_of_others(node)]
    if others:  # ONNX's inference tells the types of all else
        told = {symbol.id for symbol in outputs}
        found = [s for node in others for s in node.outputs if s.id not in told and encoded_type(s.type)]
        chunks += [block(13, value_info(f"{prefix}{symbol.name}", symbol.type)) for symbol in found]
    return chunks


def _is_of_others(node: Node) -> bool:
    """Return whether ONNX's inference knows nothing of an operator: it is of another domain, and no function."""
    return node.domain not in ONNX_DOMAINS and definition_of(node) is None


def _nodes(graph: Graph, names: list[bytes], scope: _Scope) -> list[bytes]:
    """The node fields. Fills in the names, by number, of all Symbols that they use: in UTF-8 after their length.

    What is the same for every node of an operator is encoded once, and every Symbol is looked at once: most of the
    time goes into fetching them.
    """
    shared: dict[tuple[str, str, str], tuple[str, bytes]] = {}
    written = []
    taken = graph.names.taken
    prefix = scope.prefix
    for node in graph.nodes:
        operator = (node.op_type, node.domain, node.layer)
        known = shared.get(operator)
        if known is None:
            stem = f"{node.layer}{snake(node.op_type)}_"
            known = shared[operator] = stem, _tail(*operator)
        stem, tail = known
        inputs, outputs = node.inputs, node.outputs
        if len(inputs) != 2 or len(outputs) != 1 or node.attributes:
            content = _node(node, names, tail, scope)
        else:  # what most nodes are, in a third of the time
            (lhs, rhs), (made,) = inputs, outputs
            name = made.given_name
            if name is None:  # the rule of Names.automatic, without its calls
                name = f"{stem}{made.id}"
                while name in taken:
                    name += "_"
            encoded = f"{prefix}{name}".encode()
            size = len(encoded)
            result = names[made.id] = (SMALL[size] if size < 128 else varint(size)) + encoded
            first = _ABSENT if lhs is None else names[lhs.id] or _given(lhs, names, prefix)
            second = _ABSENT if rhs is None else names[rhs.id] or _given(rhs, names, prefix)
            content = b"".join((b"\x0a", first, b"\x0a", second, b"\x12", result, b"\x1a", result, tail))
        size = len(content)
        written.append((_NODE[size] if size < 128 else b"\x0a" + varint(size)) + content)
    return written


def _node(node: Node, names: list[bytes], tail: bytes, scope: _Scope) -> bytes:
    parts: list[bytes] = []
    prefix = scope.prefix
    for symbol in node.inputs:
        parts += b"\x0a", _ABSENT if symbol is None else names[symbol.id] or _given(symbol, names, prefix)  # input
    for symbol in node.outputs:
        parts += b"\x12", _given(symbol, names, prefix)  # output
    if node.outputs:
        parts += b"\x1a", names[node.outputs[0].id]  # name
    parts.append(tail)
    definition = definition_of(node)
    for key, value in node.attributes.items() if definition is None or definition.attributes else ():
        if definition is not None and key not in definition.attributes:
            continue
        if key == settings.KEY and value == settings.FAST and node.op_type in settings.OPERATORS:
            parts.append(metadata(9, {notes.NODE_ACCURACY: value}))
            continue
        if isinstance(value, Graph):
            parts.append(block(5, _body(key, value, scope.inside(node.outputs[0].graph, names))))
        else:
            parts.append(block(5, attribute(key, value)))
    return b"".join(parts)


def _constant(array: np.ndarray[Any, Any], dtype: DType) -> bytes:
    """The attribute of a node that gives a constant."""
    return text(1, "value") + block(5, b"".join(tensor(array, dtype, ""))) + _TENSOR


def _given(symbol: Symbol, names: list[bytes], prefix: str = "") -> bytes:
    """The name of a Symbol, entered into `names`."""
    name = names[symbol.id] = sized(f"{prefix}{symbol.name}".encode())
    return name


def _body(name: str, graph: Graph, scope: _Scope) -> bytes:
    """The AttributeProto of a graph."""
    return text(1, name) + block(6, b"".join(_graph(graph, scope))) + _GRAPH


def _tail(op_type: str, domain: str, layer: str) -> bytes:
    named = text(4, op_type) + (text(7, domain) if domain else b"")
    return named + (metadata(9, {"graphcore.layer": layer.rstrip("/")}) if layer else b"")


def attribute(name: str, value: Any) -> bytes:
    """An AttributeProto. Raises `GraphError` for a value that no attribute holds."""
    kind = type(value)
    if kind is int or (kind is str and len(value) <= _SHORT):
        return _plain(name, value)
    if kind is list and len(value) <= _SHORT and {*map(type, value)} == {int}:
        return _ints(name, *value)
    return _encoded(name, value)


_SHORT = 64
"""Characters or numbers up to which a written attribute is remembered."""


@functools.lru_cache(4096)
def _plain(name: str, value: int | str) -> bytes:
    return _encoded(name, value)


@functools.lru_cache(4096)
def _ints(name: str, *values: int) -> bytes:
    return _encoded(name, values)


def _encoded(name: str, value: Any) -> bytes:
    head = text(1, name)
    if isinstance(value, DType):
        value = value.onnx
    if isinstance(value, (bool, int, np.integer)):
        return head + integer(3, _held(name, int(value))) + _INT
    if isinstance(value, (float, np.floating)):
        return head + single(2, _held(name, float(value))) + _FLOAT
    if isinstance(value, str):
        return head + text(4, value) + _STRING
    if isinstance(value, bytes):
        return head + block(4, value) + _STRING
    if isinstance(value, np.ndarray):
        return head + block(5, b"".join(tensor(value, DType.of(value.dtype), ""))) + _TENSOR
    if isinstance(value, Graph):
        return _body(name, value, _Scope())
    if isinstance(value, (TensorType, SequenceType, OptionalType, ForeignType)):
        return head + block(14, encoded_type(value)) + _TYPE_PROTO
    if isinstance(value, (list, tuple)):
        return head + _list(name, value)
    raise GraphError(
        f"attribute {name!r}: {value!r} is of no type that ONNX attributes have",
        help="give an int, float, str, array, Graph, or a list of them",
    )


def _list(name: str, values: list[Any] | tuple[Any, ...]) -> bytes:
    kinds = {*map(type, values)}
    if all(issubclass(kind, (bool, int, np.integer)) for kind in kinds):
        numbers = [*map(int, values)]
        if numbers:
            _held(name, min(numbers))
            _held(name, max(numbers))
        return integers(8, numbers) + _INTS
    if all(issubclass(kind, (int, float, np.integer, np.floating)) for kind in kinds):
        floats = np.array(values, np.float64)
        for beyond in floats[np.isfinite(floats) & (np.abs(floats) >= _BEYOND)]:
            _held(name, float(beyond))
        return block(7, floats.astype("<f4").tobytes()) + _FLOATS
    if all(issubclass(kind, (str, bytes)) for kind in kinds):
        # Trees say one of a few words for each of thousands of nodes.
        made = {v: block(9, v.encode() if isinstance(v, str) else v) for v in {*values}}
        return b"".join(map(made.__getitem__, values)) + _STRINGS
    raise GraphError(
        f"attribute {name!r}: {values!r:.80} is of no type that ONNX attributes have",
        help="give a list of ints, of floats or of strings",
    )


def _held(name: str, number: _Number) -> _Number:
    """A number that an attribute holds: int64 or float32. Raises `GraphError` for one beyond."""
    if isinstance(number, int):
        if -(1 << 63) <= number < 1 << 63:
            return number
        what = f"an int of {number.bit_length()} bits is beyond int64"
    else:
        if abs(number) < _BEYOND or not math.isfinite(number):
            return number
        what = f"{number!r} is beyond float32"
    raise GraphError(
        f"attribute {name!r}: {what}, which attributes of ONNX are", help="give a number that is not so large"
    )


def join(chunks: list[Chunk]) -> bytes:
    """The chunks as one. Raises `ResourceLimitError` where protobuf could not read them."""
    return b"".join(within_limit(chunks))


def within_limit(chunks: list[Chunk]) -> list[Chunk]:
    """The chunks themselves. Raises `ResourceLimitError` where protobuf could not read them."""
    size = sum(map(len, chunks))
    if size > LIMIT:
        raise ResourceLimitError(
            f"the model has {size} bytes, and one protobuf message at most {LIMIT}",
            help="use graph.export(path, external_data=True)",
        )
    return chunks
