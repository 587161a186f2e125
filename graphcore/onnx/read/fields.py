"""Fields of a file that do not say what it computes, encoded so that they can be written back."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

from graphcore.onnx.notes import WRITTEN_ANEW
from graphcore.onnx.proto.value_protos import SMALL, block, integer, tag, varint
from graphcore.onnx.read.statements import Statement
from graphcore.support.source_lines import OfFile

_NAME = [b"\x1a" + size for size in SMALL]
"""The tag of the field `name` of a NodeProto and the length, for short names."""
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
        output = outputs[0] if outputs else ""
        add(new(kind, (path, number, statement.op_type, statement.domain, output, name_field, rest)))
    return results


def remaining(message: Any, names: Iterable[str]) -> bytes:
    """Return fields of a message, and those of unknown numbers, without the notes of this package."""
    result = type(message)()
    for name in names:
        value = getattr(message, name)
        if name == "metadata_props":
            result.metadata_props.extend([p for p in value if p.key.partition("#")[0] not in WRITTEN_ANEW])
        elif message.DESCRIPTOR.fields_by_name[name].is_repeated:
            getattr(result, name).extend(value)
        elif message.HasField(name):
            setattr(result, name, value)
    encoded: bytes = result.SerializePartialToString()
    return encoded + _unknown(UnknownFieldSet(message))


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
