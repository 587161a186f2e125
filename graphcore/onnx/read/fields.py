"""Fields of a file that do not say what it computes, encoded so that they can be written back."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import onnx
from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

from graphcore.ir.state.file_fields import FileFields, Key, ValueFields
from graphcore.onnx.notes import WRITTEN_ANEW
from graphcore.onnx.proto.value_protos import SMALL, block, integer, tag, varint
from graphcore.onnx.read.model import ModelContext
from graphcore.onnx.read.statements import Statement
from graphcore.support.source_lines import OfFile

_NAME = [b"\x1a" + size for size in SMALL]
"""The tag of the field `name` of a NodeProto and the length, for short names."""
_PLAIN = ValueFields()
_MODEL = (
    "producer_name", "producer_version", "domain", "model_version", "doc_string", "training_info", "configuration",
)  # fmt: skip
_REPEATED = frozenset({"configuration", "device_configurations", "metadata_props", "training_info"})
_VALUE = ("doc_string", "metadata_props")
_ATTRIBUTE = ("doc_string",)
_NODE = ("doc_string", "metadata_props", "device_configurations", "overload")


def origins(statements: Sequence[Statement], line: OfFile, prefix: str, has_devices: bool) -> list[OfFile]:
    """Return the origins of nodes, each with its `NodeFields`.

    line: what they share. prefix: of names. has_devices: True if nodes are assigned to devices.
    """
    kind, new, (path, number) = type(line), tuple.__new__, line
    results: list[OfFile] = []
    add = results.append
    for statement in statements:
        proto, name, outputs = statement.proto, statement.name, statement.outputs
        if name:
            encoded = f"{prefix}{name}".encode() if prefix else name.encode()
            size = len(encoded)
            name_field = (_NAME[size] if size < 128 else b"\x1a" + varint(size)) + encoded
        else:
            name_field = b""
        rest = b""
        if statement.is_noted or has_devices or proto.HasField("doc_string") or len(UnknownFieldSet(proto)):
            rest = remaining(proto, _NODE)
        if not statement.domain and proto.HasField("domain") and not proto.domain:
            rest += b"\x3a\x00"  # an empty domain, which says the same as none
        output = outputs[0] if outputs else ""
        attributes: tuple[tuple[str, bytes], ...] = ()
        for attribute in proto.attribute:
            if attribute.HasField("doc_string") or len(UnknownFieldSet(attribute)):
                attributes += ((attribute.name, remaining(attribute, _ATTRIBUTE)),)
        add(new(kind, (path, number, statement.op_type, statement.domain, output, name_field, rest, attributes)))
    return results


def graph_fields(model: ModelContext, proto: onnx.GraphProto, is_top: bool) -> FileFields:
    """Return the fields of a graph that is read. is_top: False for a body."""
    values: dict[Key, ValueFields] = {value.name: _value(value, None) for value in proto.value_info}
    for role, infos in (("input", proto.input), ("output", proto.output)):
        for position, value in enumerate(infos):
            key: Key = value.name if is_top else (role, len(infos), position)
            values[key] = _value(value, model)
    weights = (*proto.initializer, *(sparse.values for sparse in proto.sparse_initializer))
    tensors = {tensor.name: rest for tensor in weights if (rest := _rest(tensor))}
    annotations = [(own.tensor_name, block(14, own.SerializeToString())) for own in proto.quantization_annotation]
    return FileFields(
        remaining(model.proto, _MODEL) if is_top else b"",
        remaining(proto, _VALUE),
        values,
        tensors,
        tuple(annotations),
    )


def _value(proto: onnx.ValueInfoProto, model: ModelContext | None) -> ValueFields:
    """Return the fields of a value. model: None to leave out its type."""
    rest = _rest(proto)
    if model is None or not proto.HasField("type"):
        return ValueFields(None, b"", rest) if rest else _PLAIN
    return ValueFields(model.type_of(proto.type), block(2, proto.type.SerializeToString()), rest)


def _rest(proto: Any) -> bytes:
    """Return the fields of a value or a tensor beside its type and content."""
    is_plain = not proto.metadata_props and not proto.HasField("doc_string") and not len(UnknownFieldSet(proto))
    return b"" if is_plain else remaining(proto, _VALUE)


def remaining(message: Any, names: Collection[str]) -> bytes:
    """Return fields of a message, and those of unknown numbers, without the notes of this package."""
    result = type(message)()
    parts: list[bytes] = []
    for name in names:
        if name in _REPEATED:
            getattr(result, name).MergeFrom(getattr(message, name))
        elif message.HasField(name):
            value = getattr(message, name)
            if isinstance(value, bytes):  # text that is not valid UTF-8
                parts.append(block(message.DESCRIPTOR.fields_by_name[name].number, value))
            else:
                setattr(result, name, value)
    encoded: bytes = result.SerializePartialToString()
    if b"graphcore." in encoded and "metadata_props" in names:  # perhaps in a key
        for position in reversed(range(len(result.metadata_props))):
            if result.metadata_props[position].key in WRITTEN_ANEW:
                del result.metadata_props[position]
        encoded = result.SerializePartialToString()
    return b"".join((encoded, *parts, _unknown(UnknownFieldSet(message))))


def _unknown(fields: Iterable[Any]) -> bytes:
    return b"".join(map(_unknown_field, fields))


def _unknown_field(field: Any) -> bytes:
    number, kind, data = field.field_number, field.wire_type, field.data
    if kind == 0:
        return integer(number, data)
    if kind == 2:
        return block(number, data)
    if kind == 3:  # a group
        return tag(number, 3) + _unknown(data) + tag(number, 4)
    return tag(number, kind) + struct.pack("<Q" if kind == 1 else "<I", data)
