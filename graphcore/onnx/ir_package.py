"""The package onnx-ir: imported where it is needed, and models for it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from graphcore.errors import ModelError


def onnx_ir(what: str) -> Any:
    """Return the module onnx_ir. Raises `ModelError` if it is not installed."""
    try:
        return importlib.import_module("onnx_ir")
    except ImportError as error:
        raise ModelError(
            f"{what}: the package onnx-ir cannot be imported: {error}", help="pip install 'graphcore-engine[ir]'"
        ) from None


def to_ir(proto: onnx.ModelProto, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    """Return a model as an `onnx_ir.Model`. arrays: of the initializers whose content the message lacks."""
    ir = onnx_ir("to_ir")
    model = ir.from_proto(proto)
    for name, array in arrays.items():
        value = model.graph.initializers[name]
        dtype, metadata = value.const_value.dtype, dict(value.const_value.metadata_props)
        value.const_value = ir.Tensor(array, dtype=dtype, name=name, metadata_props=metadata)
    return model
