"""graphcore: write `x + y` on Symbols of any dtypes; export ONNX; run it with exact numbers.

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from graphcore._version import FOLDER as _FOLDER
from graphcore._version import __version__ as __version__
from graphcore.support import telemetry as _telemetry

# In a checkout without symbolic links, the packages are beside this folder.
if not os.path.isdir(os.path.join(_FOLDER, "ops")):
    __path__.append(os.path.dirname(_FOLDER))

_telemetry.turn_off()

if TYPE_CHECKING:
    from graphcore import array_api, checkpoints, errors, models, ops, promotion, runtime, scale
    from graphcore.arrays.resource_limits import Limits
    from graphcore.build.functions import Function, function
    from graphcore.build.operands import implicit_cast
    from graphcore.checkpoints import load_tensors, save_tensors
    from graphcore.custom_ops.custom_op import CustomOp
    from graphcore.custom_ops.declaration import custom_op
    from graphcore.errors import GraphcoreError, LossyCastWarning
    from graphcore.ir.buffers import Buffer, BufferValue
    from graphcore.ir.graph import Graph
    from graphcore.ir.state.settings import accuracy
    from graphcore.ir.symbol import Symbol, SymbolTuple
    from graphcore.promotion import PromotionSystem, common_dtype, implicit_cast_type
    from graphcore.runtime import (
        Batcher,
        Bound,
        InferenceSession,
        IsolatedModel,
        IsolatedSession,
        Model,
        Quantization,
        Tensor,
        jit,
        quantize,
        register_provider,
        tensor,
    )
    from graphcore.surgery import patterns
    from graphcore.surgery.copying import compose
    from graphcore.types.dims import Dim
    from graphcore.types.dtypes import DType
    from graphcore.types.tensor_types import OptionalType, SequenceType, Shape, TensorType

__all__ = [
    "Batcher",
    "Bound",
    "Buffer",
    "BufferValue",
    "CustomOp",
    "DType",
    "Dim",
    "Function",
    "Graph",
    "GraphcoreError",
    "InferenceSession",
    "IsolatedModel",
    "IsolatedSession",
    "Limits",
    "LossyCastWarning",
    "Model",
    "OptionalType",
    "PromotionSystem",
    "Quantization",
    "SequenceType",
    "Shape",
    "Symbol",
    "SymbolTuple",
    "Tensor",
    "TensorType",
    "accuracy",
    "array_api",
    "checkpoints",
    "common_dtype",
    "compose",
    "custom_op",
    "errors",
    "function",
    "implicit_cast",
    "implicit_cast_type",
    "jit",
    "load_tensors",
    "models",
    "ops",
    "patterns",
    "promotion",
    "quantize",
    "register_provider",
    "runtime",
    "save_tensors",
    "scale",
    "tensor",
]

_HOMES = {
    "Batcher": "runtime",
    "Bound": "runtime",
    "Buffer": "ir.buffers",
    "BufferValue": "ir.buffers",
    "CustomOp": "custom_ops.custom_op",
    "DType": "types.dtypes",
    "Dim": "types.dims",
    "Function": "build.functions",
    "Graph": "ir.graph",
    "GraphcoreError": "errors",
    "InferenceSession": "runtime",
    "IsolatedModel": "runtime",
    "IsolatedSession": "runtime",
    "Limits": "arrays.resource_limits",
    "LossyCastWarning": "errors",
    "Model": "runtime",
    "OptionalType": "types.tensor_types",
    "PromotionSystem": "promotion",
    "Quantization": "runtime",
    "SequenceType": "types.tensor_types",
    "Shape": "types.tensor_types",
    "Symbol": "ir.symbol",
    "SymbolTuple": "ir.symbol",
    "Tensor": "runtime",
    "TensorType": "types.tensor_types",
    "accuracy": "ir.state.settings",
    "common_dtype": "promotion",
    "compose": "surgery",
    "custom_op": "custom_ops.declaration",
    "function": "build.functions",
    "implicit_cast": "build.operands",
    "implicit_cast_type": "promotion",
    "jit": "runtime",
    "load_tensors": "checkpoints",
    "quantize": "runtime",
    "register_provider": "runtime",
    "save_tensors": "checkpoints",
    "tensor": "runtime",
}
"""The module of each public name."""

_ATTACHED = frozenset({"BufferValue", "Graph", "Symbol", "SymbolTuple"})
"""The classes that other modules attach operators and methods to."""

_MODULES = {"patterns": "surgery.patterns"} | {
    name: name
    for name in (
        "array_api", "arrays", "build", "checkpoints", "errors", "graph_methods", "ir", "models", "ops", "promotion",
        "quantization", "runtime", "scale", "support", "surgery_methods", "types",
    )
}  # fmt: skip
"""Modules that are attributes of the package without an explicit import."""


if not TYPE_CHECKING:  # type checkers read the imports above, and would accept unknown names

    def __getattr__(name: str) -> Any:
        """Import a public name on first use: the command line and loaded models need only some of them."""
        if name not in _HOMES and name not in _MODULES:
            raise AttributeError(f"module 'graphcore' has no attribute {name!r}")
        from importlib import import_module

        if name in _MODULES:
            value = import_module(f"graphcore.{_MODULES[name]}")
        else:
            if name in _ATTACHED:
                import_module("graphcore.ir.state.attaching").attach()
            value = getattr(import_module(f"graphcore.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
