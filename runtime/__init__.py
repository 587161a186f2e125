"""Running graphs: lowering, sessions and jit, on onnxruntime."""

from graphcore.runtime.model import Model
from graphcore.runtime.session import InferenceSession
from graphcore.runtime.tracing import jit

__all__ = ["InferenceSession", "Model", "jit"]
