"""Encode a graph of ONNX operators and dtypes as the bytes of a ModelProto.

Lowering has decided everything about the graph: legal nodes, names of outputs, casts. Weights are chunks of their own
memory, which are joined only on request.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from graphcore._version import __version__
from graphcore.errors import GraphError, ResourceLimitError
from graphcore.ir.definitions import Definition, definition_of, definitions
from graphcore.ir.graph import Graph
from graphcore.ir.literals import stored_default
from graphcore.ir.names import snake
from graphcore.ir.state import settings
from graphcore.ir.state.file_fields import Key, ValueFields
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.ir.transform.walk import bodies, parts
from graphcore.onnx import notes
from graphcore.onnx.notes import DOMAINS, IR_VERSION, LIMIT, ONNX_DOMAINS, OPSET
from graphcore.onnx.proto.value_protos import (
    LARGE,
    SMALL,
    Chunk,
    External,
    block,
    encoded_type,
    fields_of,
    integer,
    integers,
    metadata,
    nested,
    single,
    sized,
    tensor,
    text,
    type_field,
    value_info,
    varint,
)
from graphcore.support.source_lines import Imported, Loaded, NodeFields, OfFile
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OpaqueType, OptionalType, SequenceType, TensorType

_ABSENT = b"\0"  # the name, after its length, of an optional operand left out

# The field numbers are those of onnx.proto; comments name the fields. They are literals because importing onnx takes
# longer than starting most models.

_FLOAT, _INT, _STRING, _TENSOR, _GRAPH, _FLOATS, _INTS, _STRINGS = (integer(20, kind) for kind in range(1, 9))
_TYPE_PROTO = integer(20, 13)
"""The field `type` of an AttributeProto."""

_Number = TypeVar("_Number", int, float)

_FLOAT32_OVERFLOW = 2.0**128 - 2.0**103
"""The smallest number that rounds to infinity in float32."""


def encode(
    graph: Graph,
    external: External | None = None,
    *,
    ir: int | None = None,
    versions: Mapping[str, int] = MappingProxyType({}),
    keeps_fields: bool = False,
    is_legal: bool = False,
) -> list[Chunk]:
    """Return the ModelProto in ordered chunks; large weights are memoryviews of their arrays.

    Args:
        graph: Lowered, so that it has only dtypes of ONNX.
        external: Returns the location of initializers that are stored outside of the model.
        ir: The version of the file format, by default the newest.
        versions: Of domains, where they differ from the graph's.
        keeps_fields: If True, nodes of files have the names and other fields that they were read with. Otherwise each
            node has the name of its first result, by which runs are traced to nodes.
        is_legal: Whether to note that lowering for the CPU leaves the graph unchanged.
    """
    producer = graph.file_fields.model if keeps_fields and graph.file_fields is not None else _PRODUCER
    writer = {} if producer.startswith(_PRODUCER) else {notes.WRITER: __version__}
    noted = {notes.LEGAL: notes.legal(node.op_type for node in graph.nodes)} if is_legal else {}
    properties = notes.entries({notes.PROMOTION: graph.promotion.note, **graph.metadata, **writer, **noted})
    scope = _NameScope(external, noted=notes.value_notes(graph.metadata), keeps_fields=keeps_fields)
    body = _graph(graph, scope)
    versions = {**DOMAINS, "": OPSET, **graph.opsets, **versions}
    called = [block(25, _function(definition, versions)) for definition in definitions(graph)]  # functions
    head = b"".join(
        (
            integer(1, IR_VERSION if ir is None else ir),  # ir_version
            producer,  # producer_name, and what the file has beside it
            _imports(8, graph, versions),
            metadata(14, properties),
        )
    )
    if scope.aligned:
        width = len(nested(7, body)[0])
        _align(body, scope.aligned, len(head) + width)
        if len(nested(7, body)[0]) != width:  # the length of the graph takes a byte more
            _align(body, scope.aligned, len(head) + width + 1)
    return [head, *nested(7, body), *called]


_LINE = 64
"""Contents of large weights begin at multiples of this, so that sessions use them where a file is mapped."""


def _align(body: list[Chunk], aligned: Sequence[int], start: int) -> None:
    """Fill empty chunks before weights so that their contents are aligned. start: the offset of the graph in the file.

    They are values of the field `name`, of which readers take the last: it moves to the end.
    """
    if body[_NAME]:
        body.append(body[_NAME])
    body[_NAME] = b""
    for position, after in pairwise((0, *aligned, len(body))):
        if position:
            body[position] = b""
            content = next(i for i in range(position, after) if isinstance(body[i], memoryview))
            gap = -(start + sum(map(len, body[position:content]))) % _LINE
            body[position] = block(2, b" " * (gap + _LINE - 2 if gap == 1 else gap - 2)) if gap else b""
        start += sum(map(len, body[position:after]))


_NAME = 1
"""The position of the name of a graph among its chunks."""

_PRODUCER = text(2, "graphcore")


def _function(definition: Definition, versions: Mapping[str, int]) -> bytes:
    """Return the FunctionProto of a lowered definition: it has Constant nodes in place of initializers."""
    graph = definition.body
    names = [b""] * len(graph.symbols)
    nodes = _nodes(graph, names, _NameScope(), b"\x3a")  # node: field 7, which is field 1 in a graph
    results = [names[s.id] or _name_symbol(s, names) for s in graph.outputs]
    constants = [
        block(7, b"\x12" + names[s.id] + text(4, "Constant") + block(5, _constant(s.producer.array, s.type.dtype)))
        for s in graph.symbols
        if type(s.producer) is Constant and names[s.id]
    ]
    return b"".join(
        (
            text(1, definition.name),
            *(text(4, s.name) for s in graph.input_symbols),
            *(b"\x2a" + name for name in results),  # output
            *constants,
            *nodes,
            _imports(9, graph, versions),
            *(text(6, name) for name in definition.attributes),
            text(10, definition.domain),
        )
    )


def _imports(field: int, graph: Graph, versions: Mapping[str, int]) -> bytes:
    """Encode the field `opset_import` for the domains of a graph: their names, but for ONNX's own, and versions."""
    others = [text(1, domain) + integer(2, versions.get(domain, 1)) for domain in sorted(_domains(graph) - {""})]
    return b"".join(block(field, entry) for entry in (integer(2, versions[""]), *others))


def _domains(graph: Graph) -> set[str]:
    domains = {node.domain for node in graph.nodes}
    for attributes in [node.attributes for node in graph.nodes if node.attributes]:
        for value in attributes.values():
            if isinstance(value, Graph):
                domains |= _domains(value)
    return domains


@dataclass(frozen=True, slots=True)
class _NameScope:
    """Where a graph is written: at the top, or in the body of a node, whose names must differ from outer names."""

    external: External | None = None
    prefix: str = ""
    """The unique prefix of the names of a body."""
    outer: list[bytes] = field(default_factory=list)
    """The names, by number, of the Symbols of the outer graph."""
    bodies: Iterator[int] = field(default_factory=count)
    around: _NameScope | None = None
    """The scope of the outer graph."""
    noted: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The notes of values, by name."""
    is_named: bool = False
    """True if inputs and outputs keep their names, by which an operator of the runtime knows them."""
    keeps_fields: bool = False
    """True if nodes of files have their fields, and values in bodies their names."""
    plain: frozenset[str] = frozenset()
    """The names of a body without the prefix: those of a file that no outer graph has."""
    visible: frozenset[str] = frozenset()
    """The names that values in bodies must differ from: those of the graph and of outer ones."""
    stem: str = ""
    """The start of all prefixes, which no name has."""
    aligned: list[int] = field(default_factory=list)
    """The positions of empty chunks before large weights of the graph of a file."""

    def name_of(self, symbol: Symbol) -> str:
        """Return the name under which a Symbol of the graph is written."""
        name = symbol.name
        return name if name in self.plain else f"{self.prefix}{name}"

    def outside(self, graph: Graph) -> _NameScope:
        """Return the scope with what the bodies in `graph` need."""
        if not any(map(bodies, graph.nodes)):
            return self
        if not self.keeps_fields:
            return replace(self, stem=self.stem or _unused_prefix({*graph.names.taken}))
        own = {self.name_of(s) for s in graph.symbols if type(s.producer) is not Captured}
        stem = self.stem or _unused_prefix(own.union(*(part.names.taken for part in parts(graph))))
        return replace(self, stem=stem, visible=self.visible | own)

    def inside(self, body: Graph, names: list[bytes], domain: str) -> _NameScope:
        """Return the scope of a body of a node of the graph, which has these names. domain: of the node."""
        prefix = f"{self.prefix or self.stem}{next(self.bodies)}/"
        keeps_names = self.keeps_fields and body.file_fields is not None
        plain = body.names.taken.keys() - self.visible if keeps_names else ()
        is_named = domain not in ONNX_DOMAINS
        return replace(
            self, prefix=prefix, outer=names, around=self, noted={}, is_named=is_named, plain=frozenset(plain)
        )


def _unused_prefix(taken: Set[str]) -> str:
    """Return a prefix that no taken name has."""
    stem = "body"
    while any(name.startswith(stem) for name in taken):
        stem += "_"
    return stem


_NO_FIELDS = ValueFields()


def _graph(graph: Graph, scope: _NameScope) -> list[Chunk]:
    prefix, noted = scope.prefix, scope.noted
    names = [b""] * len(graph.symbols)
    for symbol in graph.scope.captured.values():
        assert isinstance(symbol.producer, Captured)
        outer = symbol.producer.symbol  # an outer constant may be used only in bodies
        names[symbol.id] = scope.outer[outer.id] or _name_symbol(outer, scope.outer, scope.around)
    outputs = graph.outputs
    for symbol in (*graph.input_symbols, *outputs) if scope.is_named else ():
        if not isinstance(symbol.producer, (Captured, Constant)):
            _name_symbol(symbol, names)
    chunks: list[Chunk] = [b"".join(_nodes(graph, names, scope)), text(2, graph.name)]
    for symbol in outputs:
        names[symbol.id] or _name_symbol(symbol, names, scope)
    fields = graph.file_fields if scope.keeps_fields else None
    values, tensors = ({}, {}) if fields is None else (fields.values, fields.tensors)
    for symbol in graph.symbols:
        producer = symbol.producer
        if type(producer) is Constant and names[symbol.id]:
            content = tensor(producer.array, symbol.type.dtype, scope.name_of(symbol), scope.external)
            if (properties := noted.get(symbol.given_name or "")) is not None:
                content.insert(0, metadata(16, properties))
            if tensors:
                content.insert(0, tensors.get(symbol.given_name or "", b""))
            if fields is not None:
                content.insert(0, _of_constant(producer))
            if scope.keeps_fields and not prefix and isinstance(content[-1], memoryview) and len(content[-1]) >= LARGE:
                scope.aligned.append(len(chunks))
                chunks.append(b"")
            chunks += nested(5, content)  # initializer
    ends = (11, "input", graph.input_symbols), (12, "output", outputs)
    for number, role, symbols in ends:
        for position, symbol in enumerate(symbols):
            is_plain = scope.is_named or type(symbol.producer) is Captured
            label = symbol.name if is_plain else scope.name_of(symbol)
            key: Key = (role, len(symbols), position) if prefix else label
            chunks.append(block(number, value_info(label, symbol.type, noted, values.get(key, _NO_FIELDS))))
    for symbol in graph.input_symbols:
        if (default := graph.defaults.get(symbol.name)) is not None:  # initializer
            array = stored_default(default, symbol.type)
            chunks += nested(5, tensor(array, symbol.type.dtype, symbol.name, scope.external))
    typed = {symbol.id for symbol in (*graph.input_symbols, *outputs)}
    # ONNX's inference finds the types of other results than those of custom operators.
    custom = [node for node in graph.nodes if node.domain and _is_custom(node)]
    declared = {s.id: (s, _NO_FIELDS) for node in custom for s in node.outputs}
    if fields is not None:
        taken = graph.names.taken
        of_file = ((taken.get(key), own) for key, own in values.items() if isinstance(key, str))
        declared |= {s.id: (s, own) for s, own in of_file if s is not None}
    infos: list[bytes] = []
    for number, (symbol, own) in declared.items():
        name = names[number]
        if name and number not in typed and symbol.graph is graph and (type_ := type_field(symbol.type, own)):
            infos += b"\x6a", varint(len(name) + len(type_) + len(own.rest) + 1), b"\x0a", name, type_, own.rest
    chunks.append(b"".join(infos))  # value_info
    if fields is not None:
        written = scope.plain if prefix else graph.names.taken
        chunks += [fields.graph, *(own for name, own in fields.annotations if name in written)]
    return chunks


def _is_custom(node: Node) -> bool:
    """Return True if ONNX's inference does not know an operator: Gradient, or one of another domain, not a function."""
    return (node.domain not in ONNX_DOMAINS or node.op_type == "Gradient") and definition_of(node) is None


def _nodes(graph: Graph, names: list[bytes], scope: _NameScope, tag: bytes = b"\x0a") -> list[bytes]:
    """Return the node fields in parts, and enter the names of all Symbols that they use: the length, then UTF-8.

    For speed, common parts of an operator's nodes are encoded once, and every Symbol is read once.
    """
    shared: dict[tuple[str, str, str], tuple[str, bytes]] = {}
    written: list[bytes] = []
    taken = graph.names.taken
    prefix, plain = scope.prefix, scope.plain
    scope = scope.outside(graph)
    fields = _FileFields(graph) if scope.keeps_fields else None
    for node in graph.nodes:
        operator = (node.op_type, node.domain, node.layer)
        cached = shared.get(operator)
        if cached is None:
            stem = f"{node.layer}{snake(node.op_type)}_"
            cached = shared[operator] = stem, _tail(*operator)
        stem, tail = cached
        inputs, outputs = node.inputs, node.outputs
        if not 0 < len(inputs) < 3 or len(outputs) != 1 or node.attributes or scope.is_named:
            content = _node(node, names, tail, scope, fields)
        else:  # most nodes: in a third of the time
            (output,) = outputs
            name = output.given_name
            if name is None:  # the rule of Names.automatic, without its calls
                name = f"{stem}{output.id}"
                while name in taken:
                    name += "_"
            encoded = (name if name in plain else f"{prefix}{name}").encode()
            size = len(encoded)
            result = names[output.id] = (SMALL[size] if size < 128 else varint(size)) + encoded
            first = inputs[0]
            operands = b"\x0a" + (_ABSENT if first is None else names[first.id] or _name_symbol(first, names, scope))
            if len(inputs) == 2:
                second = inputs[1]
                operands += b"\x0a"
                operands += _ABSENT if second is None else names[second.id] or _name_symbol(second, names, scope)
            label, rest, _ = _NONE if fields is None else fields.of(node, name)
            if label is None:
                label = b"\x1a" + result
            content = b"".join((operands, b"\x12", result, label, tail, rest))
        size = len(content)
        written += tag, SMALL[size] if size < 128 else varint(size), content
    return written


class _FileFields:
    """The fields that nodes of files have beside what they compute: those of the file, or the name of their source."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._owners: dict[int, Node] | None = None
        """The nodes that are still those of a file, by the identity of their origin."""
        self._names_in_use: set[str] = set()
        """The names they have in the file."""

    def of(self, node: Node, result: str | None) -> tuple[bytes | None, bytes, Sequence[tuple[str, bytes]]]:
        """Return the encoded name, None for the usual one, and the other fields of the node and of its attributes.

        result: name of the first result.
        """
        origin: Any = node.origin
        if type(origin) not in _OF_FILE or len(origin) == 2:
            return self._unnamed(result, b"")
        op_type, domain, output, name, rest, attributes = origin[2:8]  # faster than its `fields`
        if len(origin) > 8:  # a pass made it of several
            rest = _derived(origin.fields, is_whole=True)
        if op_type == node.op_type and domain == node.domain:
            if output == result:
                return name, rest, attributes
            if self._owners is None:
                self._owners = self._find_owners()
            if self._owners[id(origin)] is node:
                return name, rest, attributes
        return self._unnamed(result, _derived(origin.fields))

    def _unnamed(self, result: str | None, rest: bytes) -> tuple[bytes | None, bytes, Sequence[tuple[str, bytes]]]:
        """Return the fields of a new node. Its usual name can be that which a node of the file has kept."""
        if self._owners is None:
            self._owners = self._find_owners()
        return (text(3, f"{result}_") if result in self._names_in_use else None), rest, ()

    def _find_owners(self) -> dict[int, Node]:
        owners: dict[int, Node] = {}
        for node in self._graph.nodes:
            origin = node.origin
            fields = origin.fields if isinstance(origin, OfFile) else None
            if fields is not None and (node.op_type, node.domain) == fields[:2]:
                is_first = id(origin) not in owners
                if is_first or (node.outputs and node.outputs[0].given_name == fields.output):
                    owners[id(origin)] = node
                    self._names_in_use.add(fields.label)
        return owners


_NONE: tuple[bytes | None, bytes, Sequence[tuple[str, bytes]]] = (None, b"", ())
_OF_FILE = frozenset({Imported, Loaded})
_SOURCE = notes.NODE_SOURCE.encode()
_GROUPS = frozenset({b"namespace", b"pkg.torch.onnx.class_hierarchy", b"pkg.torch.onnx.name_scopes"})
"""The keys of PyTorch's metadata by which viewers and profilers group nodes."""


@functools.lru_cache(4096)
def _derived(fields: NodeFields, is_whole: bool = False) -> bytes:
    """Return the fields of a node that a pass made of nodes of a file. is_whole: with all those of the last node."""
    content = memoryview(fields.rest)
    groups = []
    for number, start, first, end in fields_of(content):
        properties = fields_of(content[first:end]) if number == 9 else ()
        keys = {bytes(content[first + a : first + b]) for own, _, a, b in properties if own == 1}
        if keys & _GROUPS or (is_whole and _SOURCE not in keys):
            groups.append(content[start:end])
    return b"".join((*groups, metadata(9, _sources(fields))))


def _sources(fields: NodeFields) -> dict[str, str]:
    """Return the metadata that names the nodes of a file that a pass made one of."""
    return {notes.NODE_SOURCE: ", ".join(fields.sources or (fields.label,))}


def _of_constant(producer: Constant) -> bytes:
    """Return the fields of a TensorProto that was a Constant node of a file, or was folded: the names of the nodes."""
    fields = producer.origin.fields if isinstance(producer.origin, OfFile) else None
    if fields is not None and fields.sources:
        return metadata(16, _sources(fields))
    if fields is None or (fields.op_type, fields.domain) != ("Constant", "") or not (fields.name or fields.rest):
        return b""
    content = memoryview(fields.rest)
    numbers = {6: 12, 9: 16}  # doc_string, metadata_props
    parts = [block(numbers[own], bytes(content[a:b])) for own, _, a, b in fields_of(content) if own in numbers]
    return b"".join((*parts, metadata(16, _sources(fields))))


def _node(node: Node, names: list[bytes], tail: bytes, scope: _NameScope, fields: _FileFields | None) -> bytes:
    parts: list[bytes] = []
    for symbol in node.inputs:
        # input
        parts += b"\x0a", _ABSENT if symbol is None else names[symbol.id] or _name_symbol(symbol, names, scope)
    for symbol in node.outputs:
        parts += b"\x12", names[symbol.id] or _name_symbol(symbol, names, scope)  # output
    result = node.outputs[0].given_name if node.outputs else ""
    label, rest, described = _NONE if fields is None else fields.of(node, result)
    if label is not None:
        parts.append(label)
    elif node.outputs:
        parts += b"\x1a", names[node.outputs[0].id]  # name
    parts += tail, rest
    definition = definition_of(node)
    for key, value in node.attributes.items() if definition is None or definition.attributes else ():
        if definition is not None and key not in definition.attributes:
            continue
        if key == settings.KEY and value == settings.FAST and node.op_type in settings.OPERATORS:
            parts.append(metadata(9, {notes.NODE_ACCURACY: value}))
            continue
        if isinstance(value, Graph):
            content = _body(key, value, scope.inside(value, names, node.domain))
        else:
            content = attribute(key, value)
        parts.append(block(5, content + dict(described).get(key, b"") if described else content))
    return b"".join(parts)


def _constant(array: np.ndarray[Any, Any], dtype: DType) -> bytes:
    """Return the attribute of a Constant node."""
    return text(1, "value") + block(5, b"".join(tensor(array, dtype, ""))) + _TENSOR


def _name_symbol(symbol: Symbol, names: list[bytes], scope: _NameScope | None = None) -> bytes:
    """Enter the name of a Symbol into `names`, and return it."""
    name = names[symbol.id] = sized((symbol.name if scope is None else scope.name_of(symbol)).encode())
    return name


def _body(name: str, graph: Graph, scope: _NameScope) -> bytes:
    """Return the AttributeProto of a graph."""
    return text(1, name) + block(6, b"".join(_graph(graph, scope))) + _GRAPH


def _tail(op_type: str, domain: str, layer: str) -> bytes:
    head = text(4, op_type) + (text(7, domain) if domain else b"")
    return head + (metadata(9, {notes.NODE_LAYER: layer.rstrip("/")}) if layer else b"")


def attribute(name: str, value: Any) -> bytes:
    """Return an AttributeProto. Raises `GraphError` for a value that an attribute cannot have."""
    kind = type(value)
    if kind is list and len(value) <= _SHORT and {*map(type, value)} == {int}:
        return _remembered(name, tuple(value))
    return (_remembered if kind is int or (kind is str and len(value) <= _SHORT) else _encoded)(name, value)


_SHORT = 64
"""Attributes with at most this many characters or numbers are cached."""


def _encoded(name: str, value: Any) -> bytes:
    head = text(1, name)
    if isinstance(value, DType):
        value = value.onnx
    if isinstance(value, (bool, int, np.integer)):
        return head + integer(3, _check_range(name, int(value))) + _INT
    if isinstance(value, (float, np.floating)):
        return head + single(2, _check_range(name, float(value))) + _FLOAT
    if isinstance(value, str):
        return head + text(4, value) + _STRING
    if isinstance(value, bytes):
        return head + block(4, value) + _STRING
    if isinstance(value, np.ndarray):
        return head + block(5, b"".join(tensor(value, DType.of(value.dtype), ""))) + _TENSOR
    if isinstance(value, Graph):
        outer = value.scope.outer
        numbers = range(0 if outer is None else len(outer.symbols))
        return _body(name, value, _NameScope(outer=[sized(outer_name(i).encode()) for i in numbers]))
    if isinstance(value, (TensorType, SequenceType, OptionalType, OpaqueType)):
        return head + block(14, encoded_type(value)) + _TYPE_PROTO
    if isinstance(value, (list, tuple)):
        return head + _list(name, value)
    raise GraphError(
        f"attribute {name!r}: {value!r} has a type that ONNX attributes cannot have",
        help="give an int, float, str, array, Graph, or a list of them",
    )


_remembered = functools.lru_cache(8192)(_encoded)


def outer_name(number: int) -> str:
    """Return the name that a value of the outer graph, by its number, has in a body that is written alone."""
    return f"outer/{number}"


def _list(name: str, values: list[Any] | tuple[Any, ...]) -> bytes:
    kinds = {*map(type, values)}
    if all(issubclass(kind, (bool, int, np.integer)) for kind in kinds):
        numbers = [*map(int, values)]
        if numbers:
            _check_range(name, min(numbers))
            _check_range(name, max(numbers))
        return integers(8, numbers) + _INTS
    if all(issubclass(kind, (int, float, np.integer, np.floating)) for kind in kinds):
        floats = np.array(values, np.float64)
        for beyond in floats[np.isfinite(floats) & (np.abs(floats) >= _FLOAT32_OVERFLOW)]:
            _check_range(name, float(beyond))
        return block(7, floats.astype("<f4").tobytes()) + _FLOATS
    if all(issubclass(kind, (str, bytes)) for kind in kinds):
        # Attributes of trees repeat a few words for thousands of nodes.
        encoded = {v: block(9, v.encode() if isinstance(v, str) else v) for v in {*values}}
        return b"".join(map(encoded.__getitem__, values)) + _STRINGS
    raise GraphError(
        f"attribute {name!r}: {values!r:.80} has a type that ONNX attributes cannot have",
        help="give a list of ints, of floats or of strings",
    )


def _check_range(name: str, number: _Number) -> _Number:
    """Return a number if it is in the range of int64 or float32. Raises `GraphError` otherwise."""
    if isinstance(number, int):
        if -(1 << 63) <= number < 1 << 63:
            return number
        what = f"an int of {number.bit_length()} bits is beyond int64"
    else:
        if abs(number) < _FLOAT32_OVERFLOW or not math.isfinite(number):
            return number
        what = f"{number!r} is beyond float32"
    raise GraphError(f"attribute {name!r}: {what}, the type of the attribute", help="give a smaller number")


def join(chunks: list[Chunk]) -> bytes:
    """Return the joined chunks. Raises `ResourceLimitError` if protobuf could not read them."""
    return b"".join(within_limit(chunks))


def within_limit(chunks: list[Chunk]) -> list[Chunk]:
    """Return the chunks. Raises `ResourceLimitError` if protobuf could not read them."""
    size = sum(map(len, chunks))
    if size > LIMIT:
        raise ResourceLimitError(
            f"the model has {size} bytes, the limit of a protobuf message is {LIMIT}",
            help="use graph.export(path, external_data=True)",
        )
    return chunks
