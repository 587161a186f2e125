"""Messages of small models, decoded without the package onnx, with the fields that a direct load reads.

A model with anything unusual is left to onnx: a message twice, text that is not valid UTF-8, numbers out of range.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from graphcore.errors import ModelError
from graphcore.onnx.proto.value_protos import LARGE, fields_of, varint_at

if TYPE_CHECKING:
    import onnx

_FIELDS = {
    "Model": "1 ir_version i, 7 graph Graph, 8 opset_import* Opset, 14 metadata_props* Entry, 20 training_info* b,"
    " 25 functions* b",
    "Opset": "1 domain s, 2 version i",
    "Entry": "1 key s, 2 value s",
    "Graph": "1 node* Node, 2 name s, 5 initializer* Tensor, 11 input* Value, 12 output* Value,"
    " 15 sparse_initializer* b",
    "Node": "1 input* s, 2 output* s, 3 name s, 4 op_type s, 5 attribute* Attribute, 7 domain s",
    "Attribute": "1 name s, 2 f f, 3 i i, 4 s b, 5 t Tensor, 6 g Graph, 7 floats* f, 8 ints* i, 9 strings* b,"
    " 20 type k, 21 ref_attr_name s",
    "Value": "1 name s, 2 type Type",
    "Type": "1 tensor_type TensorType, 4 other x, 5 other x, 7 other x, 8 other x, 9 other x",
    "TensorType": "1 elem_type n, 2 shape Shape",
    "Shape": "1 dim* Dim",
    "Dim": "1 dim_value i, 2 dim_param s",
    "Tensor": "1 dims* i, 2 data_type n, 4 float_data* f, 5 int32_data* n, 6 string_data* b, 7 int64_data* i, 8 name s,"
    " 9 raw_data b, 10 double_data* d, 14 data_location l",
}
"""The fields of each message: number, name (with * if repeated), and kind: a message, or a key of `_KINDS`."""

_KINDS: dict[str, tuple[int, Any]] = {
    "i": (0, 0), "n": (0, 0), "k": (0, 0), "l": (0, 0), "f": (5, 0.0), "d": (1, 0.0), "s": (2, ""), "b": (2, b""),
    "x": (-1, None),
}  # fmt: skip
"""The wire type and default of int64, int32, the kind of an attribute, the place of data, float, double, string and
bytes; x leaves the model to onnx."""

FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS = range(1, 9)
"""ONNX's numbers of the kinds of attributes."""

_RANGES = {"i": range(-1 << 63, 1 << 63), "n": range(-1 << 31, 1 << 31), "k": range(15), "l": range(2)}
_SIZED = 2

_MAX_NODE_BYTES = 1 << 16
"""More bytes of nodes take longer to decode than importing onnx."""


class Message:
    """A message. Fields that it lacks are attributes of its class."""

    content: memoryview | bytes = b""

    def HasField(self, name: str) -> bool:  # noqa: N802 - the methods have the names of protobuf
        return name in self.__dict__

    def WhichOneof(self, group: str) -> str | None:  # noqa: N802
        return next((name for name in self.__dict__ if name != "content"), None)

    def SerializeToString(self) -> bytes:  # noqa: N802
        return bytes(self.content)


_CLASSES: dict[str, type[Message]] = {name: type(name, (Message,), {}) for name in _FIELDS}
_ROWS: dict[str, dict[int, tuple[str, str, bool]]] = {name: {} for name in _FIELDS}
for _name, _text in _FIELDS.items():
    for _field in _text.split(", "):
        _number, _label, _kind = _field.split()
        _own = _label.rstrip("*")
        _ROWS[_name][int(_number)] = _own, _kind, _own != _label
        _default = _CLASSES[_kind]() if _kind in _CLASSES else _KINDS[_kind][1]
        setattr(_CLASSES[_name], _own, () if _own != _label else _default)


def decoded(content: memoryview) -> onnx.ModelProto | None:
    """Return the message of a small model; None to leave it to onnx."""
    try:
        model = cast("onnx.ModelProto", _decode("Model", content))
        return model if {opset.domain for opset in model.opset_import} <= {"", "ai.onnx"} else None
    except (ModelError, ValueError, RecursionError, struct.error):
        return None


def nested(graph: Any) -> Iterator[onnx.GraphProto]:
    """Yield a graph, or a function, and the graphs in attributes of its nodes. Messages of `decoded` have no lists of
    graphs."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in [attribute.g] if attribute.HasField("g") else getattr(attribute, "graphs", ()):
                yield from nested(body)


def tensor(**fields: Any) -> onnx.TensorProto:
    """Return a tensor with these fields."""
    message = _CLASSES["Tensor"]()
    message.__dict__.update(fields)
    return cast("onnx.TensorProto", message)


def _decode(kind: str, content: memoryview) -> Message:
    message, rows, node_bytes = _CLASSES[kind](), _ROWS[kind], 0
    values = message.__dict__
    for number, start, first, end in fields_of(content):
        if number not in rows:
            continue
        name, field_kind, is_repeated = rows[number]
        wire = content[start] & 7
        if name == "node":
            node_bytes += end - first
        if (name in values and field_kind in _CLASSES and not is_repeated) or node_bytes > _MAX_NODE_BYTES:
            raise ValueError
        if not is_repeated:
            values[name] = _value(field_kind, wire, content, first, end)
        elif wire == _SIZED and field_kind in "infd":
            packed = _packed(field_kind, content[first:end])
            values.setdefault(name, packed[:0]).extend(packed)
        else:
            values.setdefault(name, []).append(_value(field_kind, wire, content, first, end))
    if kind == "Dim" and len(values) > 1:
        raise ValueError
    message.content = content
    return message


def _value(kind: str, wire: int, content: memoryview, first: int, end: int) -> Any:
    if wire != (_KINDS[kind][0] if kind in _KINDS else _SIZED):
        raise ValueError
    if kind in _RANGES:
        return _bounded(kind, varint_at(content, first)[0])
    if kind == "s":
        return str(content[first:end], "utf-8")
    if kind == "b":
        return bytes(content[first:end]) if end - first < LARGE else content[first:end]
    if kind in _KINDS:
        return struct.unpack("<" + kind, content[first:end])[0]
    return _decode(kind, content[first:end])


def _packed(kind: str, content: memoryview) -> list[int] | array[Any]:
    if kind not in _RANGES:
        floats: array[Any] = array(kind)
        floats.frombytes(content)
        if sys.byteorder == "big":
            floats.byteswap()
        return floats
    numbers: list[int] = []
    position = 0
    while position < len(content):
        number, position = varint_at(content, position)
        numbers.append(_bounded(kind, number))
    return numbers


def _bounded(kind: str, number: int) -> int:
    number -= number >> 63 << 64
    if number not in _RANGES[kind]:
        raise ValueError
    return number
