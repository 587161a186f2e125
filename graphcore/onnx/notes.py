"""Notes in the metadata of a model: the promotion system, the target, dtypes that ONNX has not, buffers.

Tools that merge models refuse two that have other values under one key. A note therefore has a checksum of its value in
its key: equal keys have equal values, and a merged model has the notes of all. Files of before have the keys alone.

What is noted of inputs, outputs and weights is in their own metadata too, which stays with them where a tool puts a
prefix before their names; where there is some, it counts. Formats that keep the model's metadata alone have those.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping

from graphcore.ir.transform import rewrite

PREFIX = "graphcore."
"""The prefix of the keys of notes."""

PROMOTION = "graphcore.promotion"
TARGET = "graphcore.target"
"""The key under which a model notes what it was lowered for."""

DTYPES = "graphcore.dtypes"
"""The key under which it notes the dtypes of values that are stored as another one."""

BUFFERS = rewrite.NOTE
"""The key under which it notes which inputs are buffers, and which outputs are what they hold afterwards."""

NODE_ACCURACY = "graphcore.accuracy"
"""The key under which a node notes that it may be less accurate."""

VALUE_DTYPE = "graphcore.dtype"
VALUE_BUFFER = "graphcore.buffer"
"""The keys under which a value notes its own dtype, and that it is a buffer."""


def entries(notes: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of a model that has these notes; keys that are not ours stay as they are."""
    return {f"{key}#{_checksum(text)}" if key.startswith(PREFIX) else key: text for key, text in notes.items()}


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def read(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the notes in the metadata of a model, those of all that were merged in one."""
    found: dict[str, list[str]] = {}
    for key, text in metadata.items():
        name = key.partition("#")[0] if key.startswith(PREFIX) else key
        found.setdefault(name, []).append(text)
    return {name: texts[0] if len(texts) == 1 else _MERGED.get(name, ", ".join)(texts) for name, texts in found.items()}


def _default(texts: list[str]) -> str:
    """Return what a graph of two promotion systems is built on by: the one that graphs have by default."""
    return "max"


def _lowered_for(texts: list[str]) -> str:
    """Return what was lowered for a target is not as it was built, whatever it was merged with."""
    return next(text for text in texts if text != "onnx")


def _together(texts: list[str]) -> str:
    """One mapping of several, as far as they are mappings."""
    made: dict[str, object] = {}
    for text in texts:
        try:
            noted = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(noted, dict):
            made = {**noted, **made}
    return json.dumps(made)


_MERGED: Mapping[str, Callable[[list[str]], str]] = {
    PROMOTION: _default,
    TARGET: _lowered_for,
    DTYPES: _together,
    BUFFERS: _together,
}
"""The function for each name that merges several notes of it."""


def of_values(notes: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return for each value by name the metadata that it has itself in a model of these notes."""
    found: dict[str, dict[str, str]] = {}
    for name, dtype in json.loads(notes.get(DTYPES, "{}")).items():
        found.setdefault(name, {})[VALUE_DTYPE] = dtype
    for name, note in json.loads(notes.get(BUFFERS, "{}")).items():
        found.setdefault(name, {})[VALUE_BUFFER] = json.dumps({"name": name, **note})
    return found


def gathered(notes: Mapping[str, str], values: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the notes of a model, with what values note of themselves where there is some.

    values: their metadata, by the names that they have now.
    """
    made = dict(notes)
    if dtypes := {name: said[VALUE_DTYPE] for name, said in values.items() if VALUE_DTYPE in said}:
        made[DTYPES] = json.dumps(dtypes)
    if buffers := {name: _buffer(name, said[VALUE_BUFFER]) for name, said in values.items() if VALUE_BUFFER in said}:
        made[BUFFERS] = json.dumps(buffers)
    return made


def _buffer(name: str, text: str) -> object:
    """Return what a value notes of the buffer that it is, its output called as it is now."""
    try:
        note = json.loads(text)
        prefix = name.removesuffix(note.pop("name"))
        if "output" in note:
            note["output"] = prefix + note["output"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # the note is untrusted
        return None
    return note


# The versions of ONNX that files are written in, and the size that one may have.

OPSET = 26
IR_VERSION = 13
"""The newest that onnxruntime 1.31 reads; `onnx` writes newer ones."""

DOMAINS = {"ai.onnx.ml": 5}
"""The versions of other domains, where they are not 1."""

ONNX_DOMAINS = frozenset({"", *DOMAINS, "ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.training"})
"""The domains whose operators ONNX defines. "ai.onnx.contrib" is onnxruntime-extensions'."""

LIMIT = (1 << 31) - 1
"""Bytes of the largest protobuf message."""
