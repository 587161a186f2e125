"""Compare and fill the fields of models, by the descriptors of their messages."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from google.protobuf import unknown_fields  # type: ignore[import-untyped]

import graphcore as gc

UNKNOWN = bytes([0xF8, 0x7F, 7, 0xFA, 0x7F, 2]) + b"ab"
"""Two fields of the unknown number 2047."""


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Return the paths of the fields that differ, found by the messages' descriptors."""
    paths = [path + "?"] if _unknown(a) != _unknown(b) else []
    for field in a.DESCRIPTOR.fields:
        one, two, where = getattr(a, field.name), getattr(b, field.name), f"{path}.{field.name}"
        if field.is_repeated:
            if len(one) != len(two):
                paths.append(f"{where}: {len(one)} and {len(two)}")
            elif field.message_type is not None:
                for i, (x, y) in enumerate(zip(one, two, strict=True)):
                    paths += differences(x, y, f"{where}[{i}]")
            elif list(map(repr, one)) != list(map(repr, two)):
                paths.append(f"{where}: {list(one)!r:.200} and {list(two)!r:.200}")
        elif a.HasField(field.name) != b.HasField(field.name):
            paths.append(where)
        elif field.message_type is not None:
            paths += differences(one, two, where) if a.HasField(field.name) else []
        elif repr(one) != repr(two):
            paths.append(where)
    return paths


def _unknown(message: Any) -> list[tuple[int, int, object]]:
    return [(f.field_number, f.wire_type, f.data) for f in unknown_fields.UnknownFieldSet(message)]


def decorate(message: Any, count: Iterator[int]) -> None:
    """Fill the fields of a message, and of those in it, that say nothing of its operators and values."""
    if message.DESCRIPTOR.name == "StringStringEntryProto":
        return
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.name in ("doc_string", "denotation") and not value:
            setattr(message, field.name, f"{field.name} {next(count)}")
        elif field.name == "metadata_props":
            value.add(key="key", value=f"{next(count)}")
        elif field.message_type is not None and (field.is_repeated or message.HasField(field.name)):
            for inner in value if field.is_repeated else (value,):
                decorate(inner, count)
    message.MergeFromString(UNKNOWN)


def unchanged(model: onnx.ModelProto) -> str:
    """Return "ok" if a model is written with the fields that it was read with, else the differences."""
    try:
        graph = gc.Graph.load(model)
    except gc.errors.GraphcoreError:
        return "not loaded"
    return "; ".join(differences(model, graph.to_onnx(target="onnx"))) or "ok"


def decompiled(model: onnx.ModelProto) -> str:
    """Return "ok" if the source of a model builds a graph that is written with the same bytes, else what differs.

    Without the fields of the file, too, the graph has the nodes, operands and attributes of the model.
    """
    try:
        graph = gc.Graph.load(model)
    except gc.errors.GraphcoreError:
        return "not loaded"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.py"
        text = graph.to_python(path)
        space: dict[str, Any] = {"__file__": str(path)}
        exec(compile(text, str(path), "exec"), space)
        plain: dict[str, Any] = {"__file__": str(path)}
        exec(compile(text.replace("graph = graph.with_fields(tensors)\n", ""), str(path), "exec"), plain)
    changed = [str(change) for change in graph.diff(plain["graph"]).nodes if change.kind in "+-"]
    changes = [text for text in changed if " = Identity(" not in text]  # of constants that bodies return
    same = graph.to_onnx(target="onnx").SerializeToString() == space["graph"].to_onnx(target="onnx").SerializeToString()
    return "ok" if same and not changes else f"bytes equal: {same}; {changes}"
