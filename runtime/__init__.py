"""Running graphs: lowering, quantising, sessions and jit, on onnxruntime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphcore.runtime.batcher import Batcher
    from graphcore.runtime.calls.bound import Bound
    from graphcore.runtime.model import Model
    from graphcore.runtime.quantizer import Quantization, quantize
    from graphcore.runtime.session import InferenceSession
    from graphcore.runtime.tracing import jit

__all__ = ["Batcher", "Bound", "InferenceSession", "Model", "Quantization", "jit", "quantize"]

_HOMES = {
    "Batcher": "batcher",
    "Bound": "calls.bound",
    "InferenceSession": "session",
    "Model": "model",
    "Quantization": "quantizer",
    "jit": "tracing",
    "quantize": "quantizer",
}


def __getattr__(name: str) -> Any:
    """What needs onnxruntime, loaded when first used: lowering, exporting and some commands go without."""
    if name not in _HOMES:
        raise AttributeError(f"module 'graphcore.runtime' has no attribute {name!r}")
    from importlib import import_module

    from graphcore.support.gc_pause import settle, uncollected

    with uncollected():
        value = globals()[name] = getattr(import_module(f"graphcore.runtime.{_HOMES[name]}"), name)
        settle()
    return value
