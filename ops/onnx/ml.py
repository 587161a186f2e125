"""Every operator of the domain ai.onnx.ml as a function, made from its schema at first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphcore.ops.onnx import _schemas


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("_"):
        raise AttributeError(name)
    operator = globals()[name] = _schemas.function(name, "ai.onnx.ml", __name__)
    return operator


def __dir__() -> list[str]:
    return _schemas.names("ai.onnx.ml")
