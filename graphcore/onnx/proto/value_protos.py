"""Tensors, types and named values as bytes of protobuf messages, and messages without the bytes of large tensors.

The numbers of protobuf's fields are those of onnx.proto.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as made_of
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from graphcore.errors import ModelError
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import ForeignType, OptionalType, SequenceType, TensorType, Type

# Protobuf's wire format, as far as writing ONNX needs it.
#
# Written by hand because a weight must reach the file from its own memory: the protobuf library would copy it twice.
# https://protobuf.dev/programming-guides/encoding describes the format.

Chunk: TypeAlias = "bytes | memoryview"


def varint(number: int) -> bytes:
    """An integer in base 128, least digit first; negative ones as 64-bit two's complement."""
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
    """A field of an integer or enum type."""
    return tag(field, 0) + varint(number)


def single(field: int, number: float) -> bytes:
    """A field of type float."""
    return tag(field, 5) + struct.pack("<f", number)


def sized(content: bytes) -> bytes:
    """Return bytes after their length."""
    return varint(len(content)) + content


def block(field: int, content: bytes) -> bytes:
    """A field of bytes or of an embedded message."""
    size = len(content)
    return tag(field, 2) + (SMALL[size] if size < 128 else varint(size)) + content


def text(field: int, value: str) -> bytes:
    """A field of type string."""
    return block(field, value.encode())


def integers(field: int, numbers: Sequence[int]) -> bytes:
    """A packed repeated field of integers."""
    made = {number: varint(number) for number in {*numbers}}  # long lists are of few numbers
    return block(field, b"".join(map(made.__getitem__, numbers)))


def nested(field: int, chunks: list[Chunk]) -> list[Chunk]:
    """An embedded message given in chunks, none of which is copied."""
    return [tag(field, 2) + varint(sum(map(len, chunks))), *chunks]


_EXTERNAL = integer(14, 1)
"""The field `data_location` of a TensorProto whose content lies in another file."""

External = Callable[[str, "np.ndarray[Any, Any]"], "tuple[str, int] | None"]
"""(name, array) -> (file, offset) of an initializer that lies outside of the model, or None to write it inside."""


def tensor(array: np.ndarray[Any, Any], dtype: DType, name: str, external: External | None = None) -> list[Chunk]:
    """A TensorProto in chunks: the array itself is the last one, unless it lies elsewhere."""
    head = _typed(array.shape, dtype) + (text(8, name) if name else b"")
    if dtype is DType.string:
        encoded = (item if isinstance(item, bytes) else str(item).encode() for item in array.ravel())
        return [head, *(block(6, item) for item in encoded)]
    place = external(name, array) if external else None
    is_packed = dtype.storage.bits in (2, 4)
    if place is None and array.nbytes <= _COPIED and not is_packed:
        return [head + block(9, array.tobytes())]
    content = raw(array, dtype) if place is None or is_packed else b""
    if place is None:
        return [head, *nested(9, [content])]
    length = len(content) if is_packed else array.nbytes
    return [b"".join((head, _place(*place), _entry("length", str(length)), _EXTERNAL))]


_COPIED = 1024
"""Bytes of a tensor up to which a copy costs less than a view."""


@functools.lru_cache(1024)
def _typed(shape: tuple[int, ...], dtype: DType) -> bytes:
    """The fields of a TensorProto that say its dims and its dtype."""
    return integers(1, shape) + integer(2, dtype.onnx)


@functools.lru_cache(16)
def _place(location: str, offset: int) -> bytes:
    return _entry("location", location) + _entry("offset", str(offset))


def _entry(key: str, value: str) -> bytes:
    return block(13, text(1, key) + text(2, value))  # external_data


def raw(array: np.ndarray[Any, Any], dtype: DType) -> memoryview:
    """The little-endian bytes of an array, several elements a byte for 2 and 4 bits: its own memory where it can be."""
    flat = np.ascontiguousarray(array).reshape(-1)
    bits = dtype.storage.bits
    if bits in (2, 4):
        padded = np.zeros(-(-flat.size * bits // 8) * (8 // bits), np.uint8)
        padded[: flat.size] = flat.view(np.uint8) & np.uint8((1 << bits) - 1)
        places = (padded[i :: 8 // bits] << np.uint8(i * bits) for i in range(8 // bits))
        flat = functools.reduce(np.bitwise_or, places)
    return flat.view(np.uint8).data


def value_info(name: str, type_: Type, noted: Mapping[str, Mapping[str, str]] = MappingProxyType({})) -> bytes:
    encoded = encoded_type(type_)
    return text(1, name) + (block(2, encoded) if encoded else b"") + metadata(4, noted.get(name, {}))


def metadata(field: int, said: Mapping[str, str]) -> bytes:
    """The metadata_props of a message, in which they are the field of this number."""
    return b"".join([block(field, text(1, key) + text(2, value)) for key, value in said.items()])


def encoded_type(type_: Type) -> bytes:
    """A TypeProto; nothing for a type that is not known."""
    if isinstance(type_, TensorType):
        if not type_.shape.is_ranked:
            return block(1, integer(1, type_.dtype.onnx))
        dims = b"".join(block(1, _dim(dim)) for dim in type_.shape)
        return block(1, integer(1, type_.dtype.onnx) + block(2, dims))
    if isinstance(type_, ForeignType):
        return type_.onnx
    field = {SequenceType: 4, OptionalType: 9}[type(type_)]
    return block(field, block(1, encoded_type(type_.element)))


def _dim(dim: Dim) -> bytes:
    if dim.is_static:
        return integer(1, int(dim)) if int(dim) < 1 << 63 else b""  # no file says more, and no machine holds it
    return b"" if dim.is_dynamic else text(2, str(dim))


# A serialised model taken apart: the message without the bytes of its large tensors, and where those lie.
#
# So that weights stay in the mapped file: the protobuf library would copy each of them twice.

LARGE = 4096
"""Bytes from which on a tensor's content is left where it is."""

_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INITIALIZER = 1, 5
_NODE_OPERATOR, _NODE_ATTRIBUTE, _NODE_DOMAIN = 4, 5, 7
_ATTRIBUTE_NAME, _ATTRIBUTE_TENSOR = 1, 5
_TENSOR_DTYPE, _TENSOR_RAW_DATA = 2, 9
_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5


_UNREAD = frozenset({1, 2, 3, 10, 11, 16})
"""ONNX's numbers of dtypes whose values inference of other operators never reads: floats and bytes."""


@dataclass(frozen=True, slots=True)
class Large:
    """The raw contents of a graph's large tensors, by the position of their initializer, or of their Constant node."""

    initializers: dict[int, memoryview] = made_of(default_factory=dict)
    nodes: dict[int, memoryview] = made_of(default_factory=dict)

    @property
    def contents(self) -> list[memoryview]:
        """Return all contents, those of initializers first."""
        return [*self.initializers.values(), *self.nodes.values()]


def split(content: memoryview) -> tuple[bytes, Large]:
    """The model without its graph's large raw contents, and these.

    content: a serialised ModelProto. Raises `ModelError` where it is none.
    """
    kept: list[bytes | memoryview] = []
    outside = Large()
    counts = {_GRAPH_NODE: 0, _GRAPH_INITIALIZER: 0}  # of all parts of a graph, which protobuf joins
    for field, start, first, end in _fields(content):
        if field == _MODEL_GRAPH:
            graph = _without_large(content[first:end], outside, counts)
            kept += tag(field, _SIZED), varint(sum(map(len, graph))), *graph
        else:
            kept.append(content[start:end])
    return b"".join(kept), outside


def _without_large(graph: memoryview, outside: Large, counts: dict[int, int]) -> list[bytes | memoryview]:
    kept: list[bytes | memoryview] = []
    untouched = 0
    for field, start, first, end in _fields(graph):
        number = counts.get(field)
        if number is None:
            continue
        counts[field] = number + 1
        if end - first < LARGE:
            continue
        found = (_raw if field == _GRAPH_INITIALIZER else _constant)(graph[first:end])
        if found is not None:
            head, content = found
            (outside.initializers if field == _GRAPH_INITIALIZER else outside.nodes)[number] = content
            kept += graph[untouched:start], tag(field, _SIZED), varint(sum(map(len, head))), *head
            untouched = end
    kept.append(graph[untouched:])
    return kept


def _constant(node: memoryview) -> tuple[list[bytes | memoryview], memoryview] | None:
    """A NodeProto of a Constant without the raw_data of its value, and that; None for what is no such node."""
    said = list(_fields(node))
    attributes = [(start, first, end) for field, start, first, end in said if field == _NODE_ATTRIBUTE]
    operators = [node[first:end] for field, _, first, end in said if field == _NODE_OPERATOR]
    is_other = any(field == _NODE_DOMAIN and first != end for field, _, first, end in said)
    if len(attributes) != 1 or operators != [b"Constant"] or is_other:
        return None
    ((start, first, end),) = attributes
    attribute = node[first:end]
    parts = list(_fields(attribute))
    names = [attribute[a:b] for field, _, a, b in parts if field == _ATTRIBUTE_NAME]
    values = [(at, a, b) for field, at, a, b in parts if field == _ATTRIBUTE_TENSOR]
    if names != [b"value"] or len(values) != 1:
        return None
    ((at, a, b),) = values
    tensor = attribute[a:b]
    dtypes = [_varint(tensor, first)[0] for field, _, first, _ in _fields(tensor) if field == _TENSOR_DTYPE]
    found = _raw(tensor) if len(dtypes) == 1 and dtypes[0] in _UNREAD else None
    if found is None:
        return None
    head, content = found
    inner = [attribute[:at], tag(_ATTRIBUTE_TENSOR, _SIZED), varint(sum(map(len, head))), *head, attribute[b:]]
    outer = [node[:start], tag(_NODE_ATTRIBUTE, _SIZED), varint(sum(map(len, inner))), *inner, node[end:]]
    return outer, content


def _raw(tensor: memoryview) -> tuple[list[bytes | memoryview], memoryview] | None:
    """A TensorProto without its raw_data, and that; None where it is short or there is none."""
    for field, start, first, end in _fields(tensor):
        if field == _TENSOR_RAW_DATA and end - first >= LARGE:
            return [tensor[:start], tensor[end:]], tensor[first:end]
    return None


def _fields(message: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """For each field its number, and where it starts, where its content starts and where it ends."""
    position, size = 0, len(message)
    while position < size:
        start = position
        key = message[position]
        if key < 128:  # what most are, in half the time
            position += 1
        else:
            key, position = _varint(message, position)
        if key < 8:  # fields count from 1: files that were reserved and never written are zeros
            raise _broken()
        kind = key & 7
        if kind == _SIZED:
            if position < size and (length := message[position]) < 128:
                position += 1
            else:
                length, position = _varint(message, position)
            first, position = position, position + length
        elif kind == _VARINT:
            first = position
            _, position = _varint(message, position)
        elif kind in (_FIXED32, _FIXED64):
            first, position = position, position + (8 if kind == _FIXED64 else 4)
        else:
            raise _broken()
        if position > size:
            raise _broken()
        yield key >> 3, start, first, position


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    number = shift = 0
    size = len(message)
    while position < size and shift < 64:
        byte = message[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position
        shift += 7
    raise _broken()


def _broken() -> ModelError:
    return ModelError("load: the bytes are no ONNX model", help="check that the file is whole and is an .onnx file")
