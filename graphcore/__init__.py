"""graphcore: write `x + y` on Symbols of any dtypes; export ONNX; run it with exact numbers.

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
"""

from __future__ import annotations

from os.path import dirname as _dirname
from typing import TYPE_CHECKING, Any

from graphcore._version import FOLDER as _FOLDER
from graphcore._version import PACKAGES as _PACKAGES
from graphcore._version import __version__ as __version__
from graphcore.support import installation as _installation
from graphcore.support import telemetry as _telemetry

# In a checkout that is not installed, the packages are beside this folder.
__path__.extend({_dirname(folder) for folder in _PACKAGES.values()} - {_FOLDER})

_installation.warn_of_conflict()
_telemetry.turn_off()

if TYPE_CHECKING:
    from graphcore import array_api as array_api
    from graphcore import checkpoints as checkpoints
    from graphcore import errors as errors
    from graphcore import models as models
    from graphcore import ops as ops
    from graphcore import promotion as promotion
    from graphcore import runtime as runtime
    from graphcore import scale as scale
    from graphcore.arrays.resource_limits import Limits as Limits
    from graphcore.build.functions import Function as Function
    from graphcore.build.functions import function as function
    from graphcore.build.operands import implicit_cast as implicit_cast
    from graphcore.checkpoints import load_tensors as load_tensors
    from graphcore.checkpoints import save_tensors as save_tensors
    from graphcore.custom_ops.custom_op import CustomOp as CustomOp
    from graphcore.custom_ops.declaration import custom_op as custom_op
    from graphcore.errors import GraphcoreError as GraphcoreError
    from graphcore.errors import LossyCastWarning as LossyCastWarning
    from graphcore.ir.buffers import Buffer as Buffer
    from graphcore.ir.buffers import BufferValue as BufferValue
    from graphcore.ir.graph import Graph as Graph
    from graphcore.ir.state.settings import accuracy as accuracy
    from graphcore.ir.symbol import Symbol as Symbol
    from graphcore.ir.symbol import SymbolTuple as SymbolTuple
    from graphcore.onnx.exporters import from_jax as from_jax
    from graphcore.onnx.exporters import from_torch as from_torch
    from graphcore.promotion import PromotionSystem as PromotionSystem
    from graphcore.promotion import common_dtype as common_dtype
    from graphcore.promotion import implicit_cast_type as implicit_cast_type
    from graphcore.runtime import Batcher as Batcher
    from graphcore.runtime import Bound as Bound
    from graphcore.runtime import InferenceSession as InferenceSession
    from graphcore.runtime import IsolatedModel as IsolatedModel
    from graphcore.runtime import IsolatedSession as IsolatedSession
    from graphcore.runtime import MixedPrecision as MixedPrecision
    from graphcore.runtime import Model as Model
    from graphcore.runtime import Quantization as Quantization
    from graphcore.runtime import Tensor as Tensor
    from graphcore.runtime import jit as jit
    from graphcore.runtime import mixed_precision as mixed_precision
    from graphcore.runtime import quantize as quantize
    from graphcore.runtime import register_provider as register_provider
    from graphcore.runtime import tensor as tensor
    from graphcore.surgery import patterns as patterns
    from graphcore.surgery.copying import compose as compose
    from graphcore.types.dims import Dim as Dim
    from graphcore.types.dtypes import DType as DType
    from graphcore.types.tensor_types import OptionalType as OptionalType
    from graphcore.types.tensor_types import SequenceType as SequenceType
    from graphcore.types.tensor_types import Shape as Shape
    from graphcore.types.tensor_types import TensorType as TensorType

_HOMES = {
    name: module
    for module, names in {
        "arrays.resource_limits": "Limits",
        "build.functions": "Function function",
        "build.operands": "implicit_cast",
        "checkpoints": "load_tensors save_tensors",
        "custom_ops.custom_op": "CustomOp",
        "custom_ops.declaration": "custom_op",
        "errors": "GraphcoreError LossyCastWarning",
        "ir.buffers": "Buffer BufferValue",
        "ir.graph": "Graph",
        "ir.state.settings": "accuracy",
        "ir.symbol": "Symbol SymbolTuple",
        "onnx.exporters": "from_jax from_torch",
        "promotion": "PromotionSystem common_dtype implicit_cast_type",
        "runtime": "Batcher Bound InferenceSession IsolatedModel IsolatedSession MixedPrecision Model Quantization "
        "Tensor jit mixed_precision quantize register_provider tensor",
        "surgery.copying": "compose",
        "types.dims": "Dim",
        "types.dtypes": "DType",
        "types.tensor_types": "OptionalType SequenceType Shape TensorType",
    }.items()
    for name in names.split()
}
"""The module of each public name."""

_ATTACHED = frozenset({"BufferValue", "Symbol", "SymbolTuple"})
"""The classes that other modules attach operators and methods to. Graph attaches its own when one is created."""

_PUBLIC_MODULES = ("array_api", "checkpoints", "errors", "models", "ops", "patterns", "promotion", "runtime", "scale")

_MODULES = {
    **{name: name for name in _PUBLIC_MODULES},
    **{name: name for name in ("arrays", "build", "graph_methods", "ir", "quantization", "support")},
    "patterns": "surgery.patterns",
    "types": "types",
}
"""Modules that are attributes of the package without an explicit import."""

__all__ = sorted({*_HOMES, *_PUBLIC_MODULES})


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
