"""Graphs under Allo's styles: types written as Allo writes them, results as Python integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType
from graphcore.promotion import system

SHORT = {"f16": DType.float16, "bf16": DType.bfloat16, "f32": DType.float32, "f64": DType.float64, "u1": DType.bool}


def dtype_of(name: str) -> DType:
    if name in SHORT or name == "index":
        return SHORT.get(name, DType.index)
    return DType.int(int(name[1:])) if name[0] == "i" else DType.uint(int(name[1:]))


def graph_of(types: str | Sequence[str], style: str = "hls", *, strict: bool = False, **options: Any) -> Graph:
    """Inputs a, b, c, ... of these types."""
    names = types.split() if isinstance(types, str) else types
    inputs = {chr(ord("a") + i) if i < 26 else f"x{i}": TensorType(dtype_of(t), ["n"]) for i, t in enumerate(names)}
    return Graph("allo", inputs, promotion=system(f"allo_{style}", **options), strict=strict)


def corners(t: str) -> list[int]:
    if t in SHORT and t != "u1":
        return [-3, 0, 5]
    dtype = dtype_of(t)
    low, high = int(dtype.min), int(dtype.max)
    return sorted({low, low // 2, -1 if low else 1, 0, high // 3, high})


def computed(graph: Graph, made: Symbol, columns: Sequence[Sequence[int]]) -> list[Any]:
    """Return the output of a graph as Python numbers; both of its models must be valid."""
    graph.output(made)
    for target in ("onnx", "cpu"):
        onnx.checker.check_model(graph.to_onnx(target=target), full_check=True)
    arrays = [
        np.array(column, object).astype(np.int64 if s.dtype.bits < 64 else s.dtype.numpy).astype(s.dtype.numpy)
        for s, column in zip(graph.inputs, columns, strict=True)
    ]
    (result,) = gc.InferenceSession().load(graph).execute(*arrays, wide="object")
    return [v.item() if isinstance(v, np.generic) else v for v in result]


def wrapped(value: int, t: str) -> int:
    bits = int(t[1:])
    low = value % (1 << bits)
    return low - (1 << bits) if t[0] == "i" and low >> bits - 1 else low
