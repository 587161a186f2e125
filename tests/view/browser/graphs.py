"""Graphs to look at: one of each thing that the page shows."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.view.data import PageOptions, page_data

Data = dict[str, Any]


def small(*, longer: bool = False) -> Graph:
    """Return a graph with a cast that promotion inserts, one that is written, and a detour for bfloat16."""
    graph = Graph("small", {"x": TensorType(DType.bfloat16, ["batch", 64]), "q": TensorType(DType.int8, ["batch", 64])})
    weight = graph.weight("w", np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32))
    with graph.layer("scale"):
        y = graph["x"] * graph["q"]
        y = ops.exp(y) + 1
    with graph.layer("head"):
        z = ops.relu(y.cast(DType.float32) @ weight)
        z = z / ops.sum(z, axis=-1, keepdims=True)
        if longer:
            z = ops.tanh(z)
    graph.output(z)
    return graph


def unet() -> Graph:
    """Return a U-Net: three skips over layers within layers."""
    graph = Graph("unet", {"image": TensorType(DType.float32, ["batch", 3, 64, 64])})
    rng = np.random.default_rng(0)

    def convolved(x: gc.Symbol, channels: int) -> gc.Symbol:
        number = len(graph.weights)
        shape = (channels, int(x.shape[1]), 3, 3)
        weight = graph.weight(f"conv{number}.weight", rng.standard_normal(shape, np.float32))
        (result,) = graph.op("Conv", [x, weight], {"pads": [1, 1, 1, 1]})
        return ops.relu(result)

    x = graph["image"]
    skips = []
    for depth, channels in enumerate((8, 16, 32)):
        with graph.layer(f"down{depth}"):
            x = convolved(convolved(x, channels), channels)
            skips.append(x)
            (x,) = graph.op("MaxPool", [x], {"kernel_shape": [2, 2], "strides": [2, 2]})
    with graph.layer("middle"):
        x = convolved(x, 64)
    for depth, channels in reversed([*enumerate((8, 16, 32))]):
        with graph.layer(f"up{depth}"):
            scales = graph.constant(np.array([1, 1, 2, 2], np.float32))
            (x,) = graph.op("Resize", [x, None, scales], {"mode": "nearest"})
            x = convolved(ops.concat([x, skips[depth]], axis=1), channels)
    with graph.layer("head"):
        graph.output(mask=ops.sigmoid(convolved(x, 1)))
    return graph


def bodies() -> Graph:
    """Return a graph with a loop, and a branch within a branch; bodies capture values from around them."""
    graph = Graph("bodies", {"x": TensorType(DType.float32, ["n"]), "limit": TensorType(DType.float32, [])})
    x, limit = graph["x"], graph["limit"]
    with graph.layer("grow"):
        y = ops.while_loop(lambda value: ops.sum(value) < limit, lambda value: value * 1.5 + 1, x)
    with graph.layer("choose"):
        z = ops.cond(
            ops.max(y) > 10,
            lambda: ops.exp(y - ops.max(y)),
            lambda: ops.cond(ops.min(y) < 0, lambda: ops.abs(y) * 2, lambda: y + limit),
        )
    graph.output(z)
    return graph


def large(nodes: int, *, layers: bool) -> Graph:
    """Return a model as exporters write it: residual blocks, in layers by their names or without a hierarchy."""
    results: list[onnx.NodeProto] = []

    def add(op: str, *operands: str) -> str:
        block = len(results) // 24
        result = (
            f"/encoder/layer.{block}/part.{len(results) % 24 // 8}/{op}_{len(results)}"
            if layers
            else f"{op}_{len(results)}"
        )
        results.append(helper.make_node(op, operands, [result], name=result))
        return result

    x = "x"
    while len(results) + 24 <= nodes:
        skip = x
        a, b, c = (add("Tanh", add("MatMul", x, "w")) for _ in range(3))
        x = add("MatMul", add("Softmax", add("MatMul", a, b)), c)
        for _ in range(7):
            x = add("Sigmoid", add("Add", x, skip))
        x = add("Add", x, skip)
    while len(results) < nodes - 1:
        x = add("Relu", x)
    results.append(helper.make_node("Identity", [x], ["y"], name="last"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 8]) for name in "xy"]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [8, 8], np.zeros(64, np.float32))
    graph = helper.make_graph(results, "large", ends[:1], ends[1:], [weight])
    return Graph.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9))


@functools.cache
def small_data() -> Data:
    graph = small()
    model = gc.InferenceSession().load(graph)
    feeds = np.ones((7, 64), DType.bfloat16.numpy), np.ones((7, 64), np.int8)
    return page_data(graph, PageOptions(profile=model.profile(*feeds, runs=2), placement=model.placement()))


@functools.cache
def unet_data() -> Data:
    return page_data(unet(), PageOptions(targets=[]))


@functools.cache
def bodies_data() -> Data:
    return page_data(bodies(), PageOptions(targets=[]))


@functools.cache
def large_data(*, layers: bool) -> Data:
    return page_data(large(20_000, layers=layers), PageOptions(targets=[], statistics=False))


def stacked(layers: int) -> Graph:
    """Return layers `mol_layer_1`, ... between an embedding and a head, and blocks that alternate with pooling."""
    graph = Graph("stacked", {"x": TensorType(DType.float32, ["n", 4]), "mask": TensorType(DType.float32, ["n", 1])})
    x, mask = graph["x"], graph["mask"]
    with graph.layer("embed"):
        x = ops.tanh(ops.exp(x))
    for number in range(1, layers + 1):
        with graph.layer(f"mol_layer_{number}"):
            x = ops.add(ops.mul(x, mask), ops.relu(x))
    for number in range(3):
        with graph.layer(f"block.{number}"):
            x = ops.tanh(ops.abs(x))
        with graph.layer(f"pool{number}"):
            x = ops.sin(ops.abs(x))
    with graph.layer("head"):
        graph.output(ops.sigmoid(ops.relu(x)))
    return graph
