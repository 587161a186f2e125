"""Custom operators: made of ops, computed by a Python function, and those of onnxruntime.

python examples/custom_op.py
"""

from typing import Any

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops


@gc.custom_op("acme::Gate", promote="float")
def gate(x: TensorType, w: TensorType, *, steep: float = 1.0) -> TensorType:
    """Return the operator's result type; the parameters are the operator's."""
    if x.shape[-1] != w.shape[0]:
        raise ValueError(f"{x.shape[-1]} features meet {w.shape[0]} rows")
    return TensorType(x.dtype, [*x.shape[:-1], w.shape[1]])


@gate.body
def _(x: Symbol, w: Symbol, *, steep: float) -> Symbol:
    product = x @ w
    return product * ops.sigmoid(product * steep)


@gc.custom_op("acme::Median")
def median(x: TensorType) -> TensorType:
    return TensorType(x.dtype, x.shape[:-1])


@median.python
def _median(x: np.ndarray[Any, Any]) -> Any:
    return np.median(x.astype(np.float64), axis=-1).astype(x.dtype)


if __name__ == "__main__":
    graph = Graph("gated", {"x": TensorType(DType.bfloat16, ["n", 4])})
    weight = (np.eye(4) * 2).astype(DType.bfloat16.numpy)
    y = gate(graph["x"], weight, steep=1.5)
    z = ops.microsoft.FusedMatMul(y, y, alpha=0.5, transB=True)
    graph.output(median=median(y), z=z)

    x = np.arange(12).reshape(3, 4).astype(DType.bfloat16.numpy)
    middle, product = gc.InferenceSession().load(graph)(x)
    print("medians", middle.tolist(), "product", product.dtype, product.shape)

    model = graph.to_onnx(target="onnx")
    print("nodes", [f"{node.domain}::{node.op_type}" for node in model.graph.node if node.domain])
    print("functions", [f"{function.domain}::{function.name}" for function in model.functions])
    print("read again", Graph.load(model, custom_ops=[median]).outputs[0].type)
    try:
        gate(graph["x"], np.ones((3, 3), np.float32))
    except gc.errors.ShapeError as error:
        print(error.summary)
