"""Options of loading a file, and models in onnxruntime's own format: what needs no onnx."""

from __future__ import annotations

import os
from collections.abc import Set
from dataclasses import dataclass

from graphcore.arrays.external_data import Links
from graphcore.arrays.resource_limits import USUAL, Limits
from graphcore.errors import GraphError, ModelError
from graphcore.onnx.opset import LIMIT


@dataclass(frozen=True, slots=True)
class Reading:
    """Options of reading a file. links: that are followed to its data. custom_ops: labels of those that it may call."""

    links: Links | None = None
    limits: Limits = USUAL
    custom_ops: Set[str] = frozenset()


def require_format(format: object) -> None:
    """Raise `GraphError` for a format of models that there is not."""
    if format not in (None, "onnx", "ort"):
        raise GraphError(f"load: there is no format {format!r:.40}", help='give "onnx", "ort" or nothing')


def is_compiled(model: object, format: str | None) -> bool:
    """Return whether a model is to be taken for one in onnxruntime's own format, a flatbuffer, which nothing checks.

    The user says so, by format or by the end of the path: the content of a model never does.
    """
    if format is not None:
        return format == "ort"
    return isinstance(model, (str, os.PathLike)) and os.fsdecode(os.fspath(model)).lower().endswith(".ort")


def content_of(model: object) -> tuple[str, bytes | str]:
    """Return what errors call a finished model, and its bytes or its path."""
    import onnx

    if isinstance(model, onnx.ModelProto):
        if model.ByteSize() > LIMIT:
            raise ModelError("load: the model is larger than 2 GiB", help="give its path")
        return model.graph.name or "model", model.SerializeToString()
    if isinstance(model, (bytes, bytearray, memoryview)):
        return "model", bytes(model)
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        path = os.fsdecode(path)
        if not os.path.isfile(path):
            what = "a folder" if os.path.isdir(path) else "no file"
            raise ModelError(f"load: {path} is {what}", help="give the path of an .onnx file")
        return path, path
    raise ModelError(f"load: a {type(model).__name__} is no model", help="give a Graph, a path, bytes or a ModelProto")
