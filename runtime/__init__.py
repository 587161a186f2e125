"""Run graphs on onnxruntime: lowering, quantisation, sessions and jit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphcore.support.lazy import attributes

if TYPE_CHECKING:
    from graphcore.runtime.batcher import Batcher as Batcher
    from graphcore.runtime.calls.bound import Bound as Bound
    from graphcore.runtime.isolation.model import IsolatedModel as IsolatedModel
    from graphcore.runtime.isolation.session import IsolatedSession as IsolatedSession
    from graphcore.runtime.model import Model as Model
    from graphcore.runtime.ort.devices import register_provider as register_provider
    from graphcore.runtime.precision_search import mixed_precision as mixed_precision
    from graphcore.runtime.precision_search.report import MixedPrecision as MixedPrecision
    from graphcore.runtime.quantizer import Quantization as Quantization
    from graphcore.runtime.quantizer import quantize as quantize
    from graphcore.runtime.session import InferenceSession as InferenceSession
    from graphcore.runtime.tracing.jit import jit as jit
    from graphcore.runtime.tracing.tensor import Tensor as Tensor
    from graphcore.runtime.tracing.tensor import tensor as tensor

_HOMES = {
    "Batcher": "batcher",
    "Bound": "calls.bound",
    "InferenceSession": "session",
    "IsolatedModel": "isolation.model",
    "IsolatedSession": "isolation.session",
    "MixedPrecision": "precision_search",
    "Model": "model",
    "Quantization": "quantizer",
    "Tensor": "tracing.tensor",
    "jit": "tracing.jit",
    "mixed_precision": "precision_search",
    "quantize": "quantizer",
    "register_provider": "ort.devices",
    "tensor": "tracing.tensor",
}

__all__ = sorted(_HOMES)

__getattr__ = attributes(__name__, _HOMES)  # lowering, export and some commands do not need onnxruntime
