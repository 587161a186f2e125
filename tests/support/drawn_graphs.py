"""Graphs of the kinds that are looked at: casts, skips, functions, bodies, and flat ones with names of a hierarchy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops


def mixed() -> Graph:
    """Return a graph of nine nodes with a cast that promotion inserts and one that is written."""
    x, q = TensorType(DType.bfloat16, ["batch", 64]), TensorType(DType.int8, ["batch", 64])
    graph = Graph("mixed", {"x": x, "q": q})
    w = graph.weight("w", np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32))
    with graph.layer("scale"):
        y = graph["x"] * graph["q"]
        y = ops.exp(y) + 1
    with graph.layer("head"):
        z = ops.relu(y.cast(DType.float32) @ w)
        z = z / ops.sum(z, axis=-1, keepdims=True)
    graph.output(z)
    return graph


def unet() -> Graph:
    """Return a network whose three skips go around what lies between."""
    graph = Graph("unet", {"image": TensorType(DType.float32, ["batch", 3, 32, 32])})
    count = 0

    def conv(x: Symbol, channels: int) -> Symbol:
        nonlocal count
        count += 1
        w = graph.weight(f"conv{count}.weight", np.full((channels, int(x.shape[1]), 3, 3), 0.1, np.float32))
        (result,) = graph.op("Conv", [x, w], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]})
        return ops.relu(result)

    x, skips = graph["image"], []
    for i in range(3):
        with graph.layer(f"down{i}"):
            x = conv(x, 4 << i)
            skips.append(x)
            (x,) = graph.op("MaxPool", [x], {"kernel_shape": [2, 2], "strides": [2, 2]})
    for i in reversed(range(3)):
        with graph.layer(f"up{i}"):
            scales = graph.constant(np.array([1, 1, 2, 2], np.float32))
            (x,) = graph.op("Resize", [x, None, scales], {"mode": "nearest"})
            x = conv(ops.concat([x, skips[i]], axis=1), 4 << i)
    graph.output(mask=ops.sigmoid(x))
    return graph


@gc.function
def dense(x: Symbol, w: Symbol) -> Symbol:
    """Return a product."""
    return ops.relu(x @ w)


def called() -> Graph:
    """Return a graph that calls one function four times."""
    graph = Graph("called", {"x": TensorType(DType.float32, ["n", 8])})
    x = graph["x"]
    for i in range(4):
        with graph.layer(f"block{i}"):
            x = dense(x, graph.weight(f"w{i}", np.eye(8, dtype=np.float32)))
    graph.output(x)
    return graph


def branching() -> Graph:
    """Return a graph with a Loop whose trips the run tells, nested Ifs, and a Loop of three trips."""
    types = {"x": TensorType(DType.float32, ["n"]), "limit": TensorType(DType.float32, [])}
    graph = Graph("branching", types)
    x, limit = graph.inputs
    with graph.layer("grow"):
        y = ops.while_loop(lambda v: ops.sum(v) < limit, lambda v: v * 1.5 + 1, x)
    with graph.layer("choose"):
        z = ops.cond(
            ops.max(y) > 10,
            lambda: ops.exp(y - ops.max(y)),
            lambda: ops.cond(ops.min(y) < 0, lambda: ops.abs(y) * 2, lambda: y + limit),
        )
    graph.output(z, ops.for_loop(3, lambda i, v: v + i.cast(DType.float32), z))
    return graph


def exported(layers: int) -> Graph:
    """Return a flat model as PyTorch exports them, 12 nodes a layer: `/encoder/layer.3/attention/MatMul_output_0`."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    weights: list[Any] = []
    x = "x"
    for i in range(layers):
        stem = f"/encoder/layer.{i}"

        def add(scope: str, op: str, operands: list[str], stem: str = stem) -> str:
            result = f"{stem}/{scope}/{op}_output_{len(nodes)}"
            nodes.append(helper.make_node(op, operands, [result]))
            return result

        def weight(name: str, i: int = i) -> str:
            weights.append(numpy_helper.from_array(np.eye(8, dtype=np.float32), f"encoder.layer.{i}.{name}.weight"))
            return f"encoder.layer.{i}.{name}.weight"

        query = add("attention/query", "MatMul", [x, weight("query")])
        key = add("attention/key", "MatMul", [x, weight("key")])
        mixed = add("attention", "Softmax", [add("attention", "Mul", [query, key])])
        x = add("attention/norm", "Sub", [add("attention", "Add", [mixed, x]), mixed])
        wide = add("mlp", "Relu", [add("mlp/up", "MatMul", [x, weight("up")])])
        down = add("mlp/down", "MatMul", [wide, weight("down")])
        x = add("mlp", "Tanh", [add("mlp", "Exp", [add("mlp", "Add", [down, x])])])
    nodes.append(helper.make_node("Identity", [x], ["y"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 8]) for name in ("x", "y")]
    output = helper.make_graph(nodes, "main_graph", ends[:1], ends[1:], weights)
    model = helper.make_model(output, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    assert isinstance(model, onnx.ModelProto)
    return Graph.load(model)


ALL: dict[str, Callable[[], Graph]] = {
    "mixed": mixed,
    "unet": unet,
    "called": called,
    "branching": branching,
    "exported": lambda: exported(4),
}
"""Each by name."""
