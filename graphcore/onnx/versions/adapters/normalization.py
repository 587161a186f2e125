"""Normalisations of older opsets."""

from __future__ import annotations

from typing import Any

from graphcore.onnx.versions.node import Made, Read, unknown
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType


def per_feature(node: Read) -> Made:
    """BatchNormalization could have statistics for every feature instead of every channel."""
    if node.attributes.pop("spatial", 1):
        return None
    if len(node.types) > 1:
        raise node.refusal("its statistics are per feature and it is training", "export the model for inference")
    type_ = node.tensor(0)
    x, scale, bias, mean, variance = (node.operand(i) for i in range(5))
    own = node.tensor(1)
    epsilon = node.scalar(float(node.attributes.get("epsilon", 1e-5)), type_.dtype)
    deviation = node.emit("Sqrt", own, node.emit("Add", own, variance, epsilon))
    centred = node.emit("Sub", type_, x, mean)
    scaled = node.emit("Mul", type_, node.emit("Div", type_, centred, deviation), scale)
    return (node.emit("Add", type_, scaled, bias),)


def training(node: Read) -> Made:
    """More than one result meant training; the statistics of the batch were results too."""
    if len(node.types) == 1:
        return None
    attributes = {**node.attributes, "training_mode": 1}
    statistics = node.tensor(3)
    kinds = (node.types[0], statistics, node.tensor(4))
    made = node.graph.build.emit_many("BatchNormalization", tuple(node.inputs), kinds, attributes)
    if len(node.types) <= 3:
        return made[: len(node.types)]
    rank = node.rank(0)
    if rank is None:
        raise node.refusal("its batch's statistics are wanted and its rank is not known", "declare the operand's shape")
    x, type_ = node.operand(0), node.tensor(0)
    axes = node.graph.build.vector([axis for axis in range(rank) if axis != 1])
    kept = TensorType(type_.dtype, [1 if axis != 1 else type_.shape[1] for axis in range(rank)])
    mean = node.emit("ReduceMean", kept, x, axes)
    centred = node.emit("Sub", type_, x, mean)
    squares = node.emit("Mul", type_, centred, centred)
    variance = node.emit("ReduceMean", statistics, squares, axes, keepdims=0)
    return (*made, node.emit("Squeeze", statistics, mean, axes), variance)[: len(node.types)]


def group(node: Read) -> Made:
    """GroupNormalization had a scale and a bias for every group, and has them for every channel."""
    groups = int(node.attributes["num_groups"])
    shape = node.tensor(0).shape
    channels: Any = shape[1] if shape.is_ranked else "?"
    x = node.operand(0)
    count = node.emit("Div", TensorType(DType.int64, [1]), node.dims(x, 1, 2), node.graph.build.vector([groups]))
    sizes = node.emit("Concat", TensorType(DType.int64, [2]), node.graph.build.vector([groups]), count, axis=0)
    for position in (1, 2):
        dtype = node.tensor(position).dtype
        column = node.emit(
            "Unsqueeze", TensorType(dtype, [groups, 1]), node.operand(position), node.graph.build.vector([1])
        )
        repeated = node.emit("Expand", unknown(dtype, 2), column, sizes)
        node.put(position, node.emit("Reshape", TensorType(dtype, [channels]), repeated, node.graph.build.vector([-1])))
    return None
