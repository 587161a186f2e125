"""Calls of `ops.onnx` run end to end, on dims that only have names."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, TensorType

Array = np.ndarray[Any, Any]
D = DType


def run(function: Any, *arrays: Array, dtypes: list[DType] | None = None, dims: list[Any] | None = None) -> list[Any]:
    """Return the results of a function of Symbols, by default with named dims."""
    types = {}
    for i, array in enumerate(arrays):
        own = dtypes[i] if dtypes else D.string if array.dtype == object else D.of(array.dtype)
        types[f"x{i}"] = TensorType(own, dims[i] if dims else [f"d{i}_{j}" for j in range(array.ndim)])
    graph = Graph("test", types)
    with graph:
        made = function(*graph.inputs)
    graph.output(*(made if isinstance(made, (list, tuple)) else (made,)))
    return list(gc.InferenceSession().load(graph)(*arrays))
