"""Encode tensors, types and named values as protobuf messages, and split off the bytes of large tensors.

The field numbers are those of onnx.proto.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from graphcore.errors import ModelError
from graphcore.ir.state.file_fields import ValueFields
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OpaqueType, OptionalType, SequenceType, TensorType, Type

# Protobuf's wire format (https://protobuf.dev/programming-guides/encoding), as far as writing ONNX needs it.
#
# Written by hand because a weight must reach the file from its own memory: the protobuf library would copy it twice.

Chunk: TypeAlias = "bytes | memoryview"


@functools.lru_cache(1 << 14)  # sizes of messages repeat
def varint(number: int) -> bytes:
    """Encode an integer in base 128, least digit first; negative ones as 64-bit two's complement."""
    if 0 <= number < 128:
        return SMALL[number]
    number &= (1 << 64) - 1
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


SMALL = [bytes([number]) for number in range(128)]
"""The varints of one byte."""


def tag(field: int, kind: int) -> bytes:
    number = field << 3 | kind
    return SMALL[number] if number < 128 else varint(number)


def integer(field: int, number: int) -> bytes:
    """Encode a field of an integer or enum type."""
    return tag(field, 0) + varint(number)


def single(field: int, number: float) -> bytes:
    """Encode a field of type float."""
    return tag(field, 5) + struct.pack("<f", number)


def sized(content: bytes) -> bytes:
    """Return the length of bytes, then the bytes."""
    return varint(len(content)) + content


def block(field: int, content: bytes) -> bytes:
    """Encode a field of bytes or of an embedded message."""
    size = len(content)
    return tag(field, 2) + (SMALL[size] if size < 128 else varint(size)) + content


def text(field: int, value: str) -> bytes:
    """Encode a field of type string."""
    return block(field, value.encode())


def integers(field: int, numbers: Sequence[int]) -> bytes:
    """Encode a packed repeated field of integers."""
    encoded = {number: varint(number) for number in {*numbers}}  # long lists repeat few numbers
    return block(field, b"".join(map(encoded.__getitem__, numbers)))


def nested(field: int, chunks: list[Chunk]) -> list[Chunk]:
    """Encode an embedded message in chunks, without copying them."""
    return [tag(field, 2) + varint(sum(map(len, chunks))), *chunks]


_EXTERNAL = integer(14, 1)
"""The field `data_location` of a TensorProto with external data."""

External = Callable[[str, "np.ndarray[Any, Any]"], "tuple[str, int] | None"]
"""(name, array) -> (file, offset) of an initializer stored as external data, or None to store it in the model."""


def tensor(array: np.ndarray[Any, Any], dtype: DType, name: str, external: External | None = None) -> list[Chunk]:
    """Encode a TensorProto in chunks: the array itself is the last one, unless it is external."""
    head = _tensor_header(array.shape, dtype) + (text(8, name) if name else b"")
    if dtype is DType.string:
        encoded = (item if isinstance(item, bytes) else str(item).encode() for item in array.ravel())
        return [head, *(block(6, item) for item in encoded)]
    place = external(name, array) if external else None
    is_packed = dtype.storage.bits in (2, 4, 6)
    if place is None and array.nbytes <= _MAX_COPIED_BYTES and not is_packed:
        return [head + block(9, array.tobytes())]
    content = raw(array, dtype) if place is None or is_packed else b""
    if place is None:
        return [head, *nested(9, [content])]
    length = len(content) if is_packed else array.nbytes
    return [head + placed(place, length)]


def placed(place: tuple[str, int], length: int) -> bytes:
    """Encode the fields of a TensorProto for external data of a length at a place: a file and an offset."""
    return b"".join((_place(*place), _entry("length", str(length)), _EXTERNAL))


_MAX_COPIED_BYTES = 1024
"""Up to this many bytes of a tensor, a copy costs less than a view."""


@functools.lru_cache(1024)
def _tensor_header(shape: tuple[int, ...], dtype: DType) -> bytes:
    """Encode the dims and the dtype of a TensorProto."""
    return integers(1, shape) + integer(2, dtype.onnx)


@functools.lru_cache(16)
def _place(location: str, offset: int) -> bytes:
    return _entry("location", location) + _entry("offset", str(offset))


def _entry(key: str, value: str) -> bytes:
    return block(13, text(1, key) + text(2, value))  # external_data


def raw(array: np.ndarray[Any, Any], dtype: DType) -> memoryview:
    """Return the little-endian bytes of an array, packed for 2, 4 and 6 bits; without a copy where possible."""
    flat = np.ascontiguousarray(array).reshape(-1)
    bits = dtype.storage.bits
    if bits in (2, 4):
        padded = np.zeros(-(-flat.size * bits // 8) * (8 // bits), np.uint8)
        padded[: flat.size] = flat.view(np.uint8) & np.uint8((1 << bits) - 1)
        places = (padded[i :: 8 // bits] << np.uint8(i * bits) for i in range(8 // bits))
        flat = functools.reduce(np.bitwise_or, places)
    elif bits == 6:
        flat = np.packbits(np.unpackbits(flat.view(np.uint8)[:, None], 1, 6, "little"), bitorder="little")
    return flat.view(np.uint8).data


def value_info(
    name: str,
    type_: Type,
    noted: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    fields: ValueFields = ValueFields(),  # noqa: B008 - it is frozen
) -> bytes:
    """Encode a ValueInfoProto. noted: notes by name. fields: those of the file, with its form of the type."""
    properties = metadata(4, noted[name]) if name in noted else b""
    return b"".join((text(1, name), type_field(type_, fields), properties, fields.rest))


def type_field(type_: Type, fields: ValueFields) -> bytes:
    """Encode the type of a ValueInfoProto, in the file's form if it is the same; empty for an unknown type."""
    return fields.encoded if fields.type == type_ else _type_field(type_)


@functools.lru_cache(1024)
def _type_field(type_: Type) -> bytes:
    """Encode the type of a ValueInfoProto; empty for an unknown type."""
    encoded = encoded_type(type_)
    return block(2, encoded) if encoded else b""


def metadata(field: int, properties: Mapping[str, str]) -> bytes:
    """Encode the metadata_props of a message, with its number of that field."""
    return b"".join([block(field, text(1, key) + text(2, value)) for key, value in properties.items()])


def encoded_type(type_: Type) -> bytes:
    """Encode a TypeProto; empty for an unknown type."""
    if isinstance(type_, TensorType):
        if not type_.shape.is_ranked:
            return block(1, integer(1, type_.dtype.onnx))
        dims = b"".join(block(1, _dim(dim)) for dim in type_.shape)
        return block(1, integer(1, type_.dtype.onnx) + block(2, dims))
    if isinstance(type_, OpaqueType):
        return type_.onnx
    field = {SequenceType: 4, OptionalType: 9}[type(type_)]
    return block(field, block(1, encoded_type(type_.element)))


def _dim(dim: Dim) -> bytes:
    if dim.is_static:
        return integer(1, int(dim)) if int(dim) < 1 << 63 else b""  # larger than the field
    return b"" if dim.is_dynamic else text(2, str(dim))


# Split a serialised model into the message without its large tensors, and views of their bytes.
#
# Weights stay in the mapped file: the protobuf library would copy each of them twice.

LARGE = 4096
"""Contents of tensors with at least this many bytes stay in place."""

_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INITIALIZER = 1, 5
_NODE_OPERATOR, _NODE_ATTRIBUTE, _NODE_DOMAIN = 4, 5, 7
_ATTRIBUTE_NAME, _ATTRIBUTE_TENSOR = 1, 5
_TENSOR_DTYPE, _TENSOR_RAW_DATA = 2, 9
_VARINT, _FIXED64, SIZED, _FIXED32 = 0, 1, 2, 5


_UNREAD = frozenset({1, 2, 3, 10, 11, 16})
"""ONNX's numbers of dtypes whose values are never needed for inference: floats and bytes."""


@dataclass(frozen=True, slots=True)
class Large:
    """The raw contents of a graph's large tensors, by the position of their initializer, or of their Constant node."""

    initializers: dict[int, memoryview] = dataclass_field(default_factory=dict)
    nodes: dict[int, memoryview] = dataclass_field(default_factory=dict)

    @property
    def contents(self) -> list[memoryview]:
        """All contents, those of initializers first."""
        return [*self.initializers.values(), *self.nodes.values()]


def split(content: memoryview) -> tuple[bytes, Large]:
    """Return the model without its graph's large raw contents, and these.

    content: a serialised ModelProto. Raises `ModelError` if it is malformed.
    """
    parts: list[bytes | memoryview] = []
    outside = Large()
    counts = {_GRAPH_NODE: 0, _GRAPH_INITIALIZER: 0}  # of all parts of a graph, which protobuf joins
    for field, start, first, end in fields_of(content):
        if field == _MODEL_GRAPH:
            graph = _without_large(content[first:end], outside, counts)
            parts += tag(field, SIZED), varint(sum(map(len, graph))), *graph
        else:
            parts.append(content[start:end])
    return b"".join(parts), outside


def _without_large(graph: memoryview, outside: Large, counts: dict[int, int]) -> list[bytes | memoryview]:
    parts: list[bytes | memoryview] = []
    untouched = 0
    for field, start, first, end in fields_of(graph):
        number = counts.get(field)
        if number is None:
            continue
        counts[field] = number + 1
        if end - first < LARGE:
            continue
        separated = (_raw if field == _GRAPH_INITIALIZER else _constant)(graph[first:end])
        if separated is not None:
            head, content = separated
            (outside.initializers if field == _GRAPH_INITIALIZER else outside.nodes)[number] = content
            parts += graph[untouched:start], tag(field, SIZED), varint(sum(map(len, head))), *head
            untouched = end
    parts.append(graph[untouched:])
    return parts


def _constant(node: memoryview) -> tuple[list[bytes | memoryview], memoryview] | None:
    """Return the NodeProto of a Constant without raw_data, and the raw_data; None for another node."""
    fields = list(fields_of(node))
    attributes = [(start, first, end) for field, start, first, end in fields if field == _NODE_ATTRIBUTE]
    operators = [node[first:end] for field, _, first, end in fields if field == _NODE_OPERATOR]
    is_other = any(field == _NODE_DOMAIN and first != end for field, _, first, end in fields)
    if len(attributes) != 1 or operators != [b"Constant"] or is_other:
        return None
    ((start, first, end),) = attributes
    attribute = node[first:end]
    parts = list(fields_of(attribute))
    names = [attribute[a:b] for field, _, a, b in parts if field == _ATTRIBUTE_NAME]
    values = [(at, a, b) for field, at, a, b in parts if field == _ATTRIBUTE_TENSOR]
    if names != [b"value"] or len(values) != 1:
        return None
    ((at, a, b),) = values
    tensor = attribute[a:b]
    dtypes = [varint_at(tensor, first)[0] for field, _, first, _ in fields_of(tensor) if field == _TENSOR_DTYPE]
    separated = _raw(tensor) if len(dtypes) == 1 and dtypes[0] in _UNREAD else None
    if separated is None:
        return None
    head, content = separated
    inner = [attribute[:at], tag(_ATTRIBUTE_TENSOR, SIZED), varint(sum(map(len, head))), *head, attribute[b:]]
    outer = [node[:start], tag(_NODE_ATTRIBUTE, SIZED), varint(sum(map(len, inner))), *inner, node[end:]]
    return outer, content


def _raw(tensor: memoryview) -> tuple[list[bytes | memoryview], memoryview] | None:
    """Return a TensorProto without raw_data, and the raw_data; None if it is short or absent."""
    for field, start, first, end in fields_of(tensor):
        if field == _TENSOR_RAW_DATA and end - first >= LARGE:
            return [tensor[:start], tensor[end:]], tensor[first:end]
    return None


def fields_of(message: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Yield for each field its number, its start, the start of its content, and its end."""
    position, size = 0, len(message)
    while position < size:
        start = position
        key = message[position]
        if key < 128:  # most fields: in half the time
            position += 1
        else:
            key, position = varint_at(message, position)
        if key < 8:  # field numbers start at 1: a preallocated file that was never written is all zeros
            raise _format_error()
        kind = key & 7
        if kind == SIZED:
            if position < size and (length := message[position]) < 128:
                position += 1
            else:
                length, position = varint_at(message, position)
            first, position = position, position + length
        elif kind == _VARINT:
            first = position
            _, position = varint_at(message, position)
        elif kind in (_FIXED32, _FIXED64):
            first, position = position, position + (8 if kind == _FIXED64 else 4)
        else:
            raise _format_error()
        if position > size:
            raise _format_error()
        yield key >> 3, start, first, position


def varint_at(message: memoryview, position: int) -> tuple[int, int]:
    number = shift = 0
    size = len(message)
    while position < size and shift < 64:
        byte = message[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position
        shift += 7
    raise _format_error()


def _format_error() -> ModelError:
    return ModelError("load: the bytes are not an ONNX model", help="check that the file is a complete .onnx file")
