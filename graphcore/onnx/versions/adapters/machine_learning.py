"""Operators of domain `ai.onnx.ml`, and of those that ONNX tries out."""

from __future__ import annotations

from graphcore.ir.bodies import outermost
from graphcore.ir.graph import Graph
from graphcore.onnx.versions.functions import expand_function
from graphcore.onnx.versions.node import Made, Read
from graphcore.types.dtypes import DType


def classes(node: Read) -> Made:
    """LabelEncoder had one list, of which strings and integers were each other's index."""
    names = node.attributes.pop("classes_strings", [])
    numbers = list(range(len(names)))
    if node.tensor(0).dtype is DType.string:
        node.attributes |= {"keys_strings": names, "values_int64s": numbers}
    else:
        node.attributes |= {"keys_int64s": numbers, "values_strings": names}
    return None


def trees(node: Read) -> Made:
    """Version 5 replaces these by one operator of all trees: the graph is written with version 4, which has them."""
    outermost(node.graph).opsets["ai.onnx.ml"] = 4
    return None


def flexible(node: Read) -> Made:
    """FlexAttention with what it does to scores and probabilities in place."""
    for name, body in node.attributes.items():
        if isinstance(body, Graph) and body.scope.captured:
            raise node.refusal(f"{name} uses values from outside of it", "make them constants of the body")
    return expand_function(node)


def gradient(node: Read) -> Made:
    raise node.refusal("the derivative of a graph is not computed from its operands", "export the gradient's nodes")
