"""graphcore: write `x + y` on Symbols of any dtypes; export ONNX; run it with exact numbers.

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from graphcore._version import FOLDER as _FOLDER
from graphcore._version import __version__ as __version__

if not os.path.isdir(os.path.join(_FOLDER, "ops")):  # a checkout without symlinks: the rooms lie beside this folder
    __path__.append(os.path.dirname(_FOLDER))

from graphcore import errors, promotion
from graphcore.build.operands import implicit_cast
from graphcore.errors import GraphcoreError, LossyCastWarning
from graphcore.ir.buffers import Buffer, BufferValue
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol, SymbolTuple
from graphcore.promotion import PromotionSystem, implicit_cast_type
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OptionalType, SequenceType, Shape, TensorType

from graphcore import graph_methods as graph_methods, ops, surgery_methods as surgery_methods  # isort: skip - attach operators and methods to Symbol
from graphcore.build.functions import Function, function  # isort: skip - promotes, with operands

if TYPE_CHECKING:
    from graphcore import array_api, checkpoints, models, runtime
    from graphcore.checkpoints import load_tensors, save_tensors
    from graphcore.custom_ops.declaration import CustomOp, custom_op
    from graphcore.runtime import Batcher, Bound, InferenceSession, Model, Quantization, jit, quantize
    from graphcore.surgery.composing import compose
    from graphcore.surgery.replacement import patterns

from graphcore.support.gc_pause import freeze as _freeze

_freeze()

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
    "LossyCastWarning",
    "Model",
    "OptionalType",
    "PromotionSystem",
    "Quantization",
    "SequenceType",
    "Shape",
    "Symbol",
    "SymbolTuple",
    "TensorType",
    "array_api",
    "checkpoints",
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
    "runtime",
    "save_tensors",
]

_LAZY = {
    "Batcher": "runtime",
    "Bound": "runtime",
    "CustomOp": "custom_ops.declaration",
    "InferenceSession": "runtime",
    "Model": "runtime",
    "Quantization": "runtime",
    "array_api": "",
    "checkpoints": "",
    "compose": "surgery",
    "custom_op": "custom_ops.declaration",
    "jit": "runtime",
    "load_tensors": "checkpoints",
    "models": "",
    "patterns": "surgery.replacement",
    "quantize": "runtime",
    "runtime": "",
    "save_tensors": "checkpoints",
}


if not TYPE_CHECKING:  # checkers know each name from the imports above, and what is no name

    def __getattr__(name: str) -> Any:
        """The runtime, loaded when first used: building and exporting graphs needs no onnxruntime."""
        if name not in _LAZY:
            raise AttributeError(f"module 'graphcore' has no attribute {name!r}")
        from importlib import import_module

        place = _LAZY[name]
        is_module = not place or name == "patterns"
        home = import_module(f"graphcore.{place}.{name}".replace("..", ".") if is_module else f"graphcore.{place}")
        value = home if is_module else getattr(home, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
