"""Tensors, types and named values as the bytes of a TensorProto, a TypeProto and a ValueInfoProto.

The numbers of protobuf's fields are those of onnx.proto.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

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
