"""Every operator of the domain ai.onnx.preview.training as a function, made from its schema at first use."""

from __future__ import annotations

from graphcore.ops.onnx import _schemas

__getattr__, __dir__ = _schemas.namespace(__name__, "ai.onnx.preview.training")
