"""A serialised model taken apart: the message without the bytes of its large tensors, and where those lie.

So that weights stay in the mapped file: the protobuf library would copy each of them twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field as made_of

from graphcore.errors import ModelError
from graphcore.onnx.proto.value_protos import tag, varint

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
