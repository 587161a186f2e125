"""Every operator of the domain ai.onnx.preview as a function, made from its schema at first use."""

from __future__ import annotations

from graphcore.ops.onnx import _schemas
from graphcore.ops.onnx.preview import training as training

__getattr__, __dir__ = _schemas.namespace(__name__, "ai.onnx.preview", "training")
