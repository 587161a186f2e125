"""A small graph whose parts are replaced, and what tests ask of such graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.ir.symbol import Node

F32 = DType.float32
ROWS = TensorType(F32, ["n", 4])
rng = np.random.default_rng(0)
X = rng.standard_normal((3, 4)).astype(np.float32)
W = rng.standard_normal((4, 4)).astype(np.float32)


def net() -> Graph:
    """Return relu(x @ w), named `hidden`, and what two outputs make of it."""
    g = Graph("net", {"x": ROWS})
    with g.layer("dense"):
        hidden = ops.relu(g["x"] @ g.weight("w", W))
    hidden.name = "hidden"
    g.output(swish=hidden * ops.sigmoid(hidden), shifted=hidden + 1)
    return g


def run(graph: Graph, *arrays: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    return tuple(gc.InferenceSession().load(graph)(*arrays))


def node(symbol: Symbol) -> Node:
    assert isinstance(symbol.producer, Node)
    return symbol.producer


def kinds(graph: Graph) -> list[str]:
    return [n.op_type for n in graph.nodes]


def bytes_of(graph: Graph) -> bytes:
    made: bytes = graph.to_onnx(target="onnx").SerializeToString()
    return made


def swish(x: Any) -> Any:
    return x / (1 + np.exp(-x))
