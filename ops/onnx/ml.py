"""Every operator of the domain ai.onnx.ml as a function, made from its schema at first use."""

from __future__ import annotations

from graphcore.ops.onnx import _schemas

__getattr__, __dir__ = _schemas.namespace(__name__, "ai.onnx.ml")
