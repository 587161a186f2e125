"""Models in onnxruntime's own format, as they are given to a load."""

from __future__ import annotations

import os

from graphcore.errors import ModelError
from graphcore.onnx.opset import LIMIT


def is_compiled(model: object) -> bool:
    """Return whether a model is in onnxruntime's own format, a flatbuffer."""
    if isinstance(model, (str, os.PathLike)) and os.path.isfile(model):
        with open(model, "rb") as file:
            head = file.read(8)
    else:
        head = bytes(model[:8]) if isinstance(model, (bytes, bytearray, memoryview)) else b""
    return head[4:8] == b"ORTM"


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


__all__ = ["content_of", "is_compiled"]
