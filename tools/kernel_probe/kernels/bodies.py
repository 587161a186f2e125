"""Subgraphs that pass values of the swept dtype through, for the operators that have a subgraph."""

from __future__ import annotations

import functools

import numpy as np
import onnx
from onnx import helper

from graphcore.types.dtypes import DType
from tools.kernel_probe.kernels.case import Body, tensor


def passes(name: str) -> Body:
    """Return a branch that gives what `name` is outside."""
    return functools.partial(_branch, name)


def _branch(name: str, dtype: DType) -> onnx.GraphProto:
    node = helper.make_node("Identity", [name], [f"{name}_given"])
    return helper.make_graph([node], "branch", [], [_value(f"{name}_given", dtype)])


def loop(dtype: DType) -> onnx.GraphProto:
    """Carries a value through every iteration, and collects it."""
    nodes = [
        helper.make_node("Identity", ["go"], ["go_on"]),
        helper.make_node("Unsqueeze", ["state", "axis"], ["collected"]),
        helper.make_node("Squeeze", ["collected", "axis"], ["carried"]),
    ]
    inputs = [_value("i", DType.int64, []), _value("go", DType.bool, []), _value("state", dtype)]
    outputs = [_value("go_on", DType.bool, []), _value("carried", dtype), _value("collected", dtype)]
    return helper.make_graph(nodes, "body", inputs, outputs, [_axis()])


def scan(dtype: DType) -> onnx.GraphProto:
    """Carries a state and passes each row on."""
    nodes = [
        helper.make_node("Unsqueeze", ["state", "axis"], ["wide"]),
        helper.make_node("Squeeze", ["wide", "axis"], ["carried"]),
        helper.make_node("Unsqueeze", ["row", "axis"], ["wide_row"]),
        helper.make_node("Squeeze", ["wide_row", "axis"], ["passed"]),
    ]
    inputs = [_value("state", dtype, [3]), _value("row", dtype, [3])]
    outputs = [_value("carried", dtype, [3]), _value("passed", dtype, [3])]
    return helper.make_graph(nodes, "body", inputs, outputs, [_axis()])


def mapped(dtype: DType) -> onnx.GraphProto:
    """Return each item as it is."""
    node = helper.make_node("Identity", ["item"], ["item_given"])
    return helper.make_graph([node], "body", [_value("item", dtype)], [_value("item_given", dtype)])


def _value(name: str, dtype: DType, shape: list[int] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype.onnx, shape)


def _axis() -> onnx.TensorProto:
    return tensor("axis", np.zeros(1, np.int64), DType.int64)
