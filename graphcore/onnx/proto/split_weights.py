"""A serialised model taken apart: the message without the bytes of its large tensors, and where those lie.

So that weights stay in the mapped file: the protobuf library would copy each of them twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphcore.errors import ModelError
from graphcore.onnx.proto.protobuf import tag, varint

LARGE = 4096
"""Bytes from which on a tensor's content is left where it is."""

_MODEL_GRAPH = 7
_GRAPH_INITIALIZER = 5
_TENSOR_RAW_DATA = 9
_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5


def split(content: memoryview) -> tuple[bytes, dict[int, memoryview]]:
    """The model without its graph's large raw contents, and these by the position of their initializer.

    content: a serialised ModelProto. Raises `ModelError` where it is none.
    """
    kept: list[bytes | memoryview] = []
    outside: dict[int, memoryview] = {}
    for field, start, first, end in _fields(content):
        if field == _MODEL_GRAPH:
            graph = _without_large(content[first:end], outside)
            kept += tag(field, _SIZED), varint(sum(map(len, graph))), *graph
        else:
            kept.append(content[start:end])
    return b"".join(kept), outside


def _without_large(graph: memoryview, outside: dict[int, memoryview]) -> list[bytes | memoryview]:
    kept: list[bytes | memoryview] = []
    untouched = 0
    position = 0
    for field, start, first, end in _fields(graph):
        if field != _GRAPH_INITIALIZER:
            continue
        if end - first >= LARGE:
            found = _raw(graph[first:end])
            if found is not None:
                head, outside[position] = found
                kept += graph[untouched:start], tag(field, _SIZED), varint(sum(map(len, head))), *head
                untouched = end
        position += 1
    kept.append(graph[untouched:])
    return kept


def _raw(tensor: memoryview) -> tuple[list[memoryview], memoryview] | None:
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
        key, position = _varint(message, position)
        kind = key & 7
        if kind == _SIZED:
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
