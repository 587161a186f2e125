"""Notes in the metadata of a model: the promotion system, the target, dtypes that ONNX does not have, buffers.

Tools that merge models reject two models with different values under one key. The key of a note therefore ends with a
checksum of its value: equal keys have equal values, and a merged model has all notes. Older files have plain keys.

Notes about inputs, outputs and weights are also in the metadata of these values, where they survive tools that add a
prefix to names; they take precedence. Formats that keep only the model's metadata have the model's notes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping

from graphcore.ir.transform import rewrite

PREFIX = "graphcore."
"""The prefix of the keys of notes."""

PROMOTION = "graphcore.promotion"
TARGET = "graphcore.target"
"""The key for the target that a model was lowered for."""

LEGAL = "graphcore.legal"
"""The key for a checksum of the operators of a model that lowering for the CPU leaves unchanged: see `legal`."""

DTYPES = "graphcore.dtypes"
"""The key for the dtypes of values that are stored in another dtype."""

BUFFERS = rewrite.NOTE
"""The key for the inputs that are buffers and the outputs with their new values."""

WRITER = "graphcore.writer"
"""The key for the version of this package that wrote a model of another producer."""

NODE_ACCURACY = "graphcore.accuracy"
"""The key of a node that may be less accurate."""

NODE_LAYER = "graphcore.layer"
"""The key of a node for its layer."""

NODE_SOURCE = "graphcore.from"
"""The key of a node or an initializer that a pass made of nodes of a file: the names of these nodes, or of their first
results, joined by ", "."""

VALUE_DTYPE = "graphcore.dtype"
VALUE_BUFFER = "graphcore.buffer"
"""The keys of a value for its own dtype, and for its being a buffer."""

WRITTEN_ANEW = frozenset({NODE_ACCURACY, NODE_LAYER, VALUE_DTYPE, VALUE_BUFFER})
"""The keys of nodes and values that the Graph has: they are not kept as fields of the file."""


def entries(notes: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of a model with these notes; keys without our prefix are unchanged."""
    return {f"{key}#{_checksum(text)}" if key.startswith(PREFIX) else key: text for key, text in notes.items()}


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def legal(op_types: Iterable[str]) -> str:
    """Return the value of the note `LEGAL` for the operators of the nodes, in order: it does not outlive an edit."""
    return _checksum(" ".join(op_types))


def read(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the notes in the metadata of a model, merged where it was merged from several."""
    texts_by_name: dict[str, list[str]] = {}
    for key, text in metadata.items():
        name = key.partition("#")[0] if key.startswith(PREFIX) else key
        texts_by_name.setdefault(name, []).append(text)
    return {
        name: texts[0] if len(texts) == 1 else _MERGE.get(name, ", ".join)(texts)
        for name, texts in texts_by_name.items()
    }


def _merge_mappings(texts: list[str]) -> str:
    """Merge JSON mappings, the first value of a key first; skip what is not a mapping."""
    merged: dict[str, object] = {}
    for text in texts:
        try:
            mapping = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(mapping, dict):
            merged = {**mapping, **merged}
    return json.dumps(merged)


_MERGE: Mapping[str, Callable[[list[str]], str]] = {
    PROMOTION: lambda texts: "max",  # a graph merged from two promotion systems gets the default one
    # A model of which a part is lowered for a target counts as lowered for that target.
    TARGET: lambda texts: next(text for text in texts if text != "onnx"),
    DTYPES: _merge_mappings,
    BUFFERS: _merge_mappings,
}
"""The function that merges several notes of a name."""


def value_notes(notes: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the metadata of each value by name, for a model with these notes."""
    by_value: dict[str, dict[str, str]] = {}
    for name, dtype in json.loads(notes.get(DTYPES, "{}")).items():
        by_value.setdefault(name, {})[VALUE_DTYPE] = dtype
    for name, note in json.loads(notes.get(BUFFERS, "{}")).items():
        by_value.setdefault(name, {})[VALUE_BUFFER] = json.dumps({"name": name, **note})
    return by_value


def with_value_notes(notes: Mapping[str, str], values: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the notes of a model, replaced by those in the metadata of its values where there are any.

    values: metadata by the current names of values.
    """
    merged = dict(notes)
    if dtypes := {name: metadata[VALUE_DTYPE] for name, metadata in values.items() if VALUE_DTYPE in metadata}:
        merged[DTYPES] = json.dumps(dtypes)
    if buffers := {
        name: _buffer(name, metadata[VALUE_BUFFER]) for name, metadata in values.items() if VALUE_BUFFER in metadata
    }:
        merged[BUFFERS] = json.dumps(buffers)
    return merged


def _buffer(name: str, text: str) -> object:
    """Return a value's note about its buffer, with the current name of its output."""
    try:
        note = json.loads(text)
        prefix = name.removesuffix(note.pop("name"))
        if "output" in note:
            note["output"] = prefix + note["output"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # the note is untrusted
        return None
    return note


# The versions of ONNX that files are written in, and their maximum size.

OPSET = 26
"""The opset of Graphs, and the newest that files have unless a newer one is requested."""
IR_VERSION = 13
"""The newest IR version that onnxruntime 1.31 reads; `onnx` writes newer ones."""

NEWEST_OPSET = 28
"""The newest opset of files. The operators of Graphs have the same meaning in it."""

DOMAINS = {"ai.onnx.ml": 5}
"""The versions of other domains, where they are not 1."""

ONNX_DOMAINS = frozenset({"", *DOMAINS, "ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.training"})
"""The domains whose operators ONNX defines. "ai.onnx.contrib" belongs to onnxruntime-extensions."""

LIMIT = (1 << 31) - 1
"""The maximum size of a protobuf message, in bytes."""
