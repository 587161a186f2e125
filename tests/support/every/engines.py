"""Engines that write and run one cell of the score."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import LossyCastWarning
from tests.support.every.score import Cell

Array = np.ndarray[Any, Any]

OPS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow, "lt": operator.lt, "eq": operator.eq,
    "min": ops.minimum, "max": ops.maximum, "matmul": operator.matmul,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "shl": operator.lshift, "shr": operator.rshift,
    "sum": lambda x: ops.sum(x, axis=1), "mean": lambda x: ops.mean(x, axis=1),
    "reduce_max": lambda x: ops.max(x, axis=1),
}  # fmt: skip


def types_of(cell: Cell, arrays: tuple[Array, ...]) -> dict[str, TensorType]:
    """The inputs of the cell in a graph that may hold others."""
    dtypes = [cell.left] if cell.right is None else [cell.left, cell.right]
    first: list[int | str] = [f"n_{cell.op}"]
    made = {}
    for i, (dtype, array) in enumerate(zip(dtypes, arrays, strict=True)):
        shape = first + list(array.shape[1:]) if not (i and cell.op == "matmul") else list(array.shape)
        made[f"{cell.op}_{i}"] = TensorType(dtype, shape)
    return made


def graphcore(cell: Cell, *arrays: Array) -> Array:
    """As a user of the library writes it."""
    graph = Graph("cell", types_of(cell, arrays))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyCastWarning)
        graph.output(y=OPS[cell.op](*graph.inputs))
    (result,) = gc.InferenceSession().load(graph)(*arrays)
    return np.asarray(result)


OPERATORS = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "floordiv": "Div", "mod": "Mod", "pow": "Pow", "lt": "Less",
    "eq": "Equal", "min": "Min", "max": "Max", "matmul": "MatMul", "and": "BitwiseAnd", "or": "BitwiseOr",
    "xor": "BitwiseXor", "shl": "BitShift", "shr": "BitShift",
    "sum": "ReduceSum", "mean": "ReduceMean", "reduce_max": "ReduceMax",
}  # fmt: skip


def onnx_helper(cell: Cell, *arrays: Array) -> Array:
    """The operator of ONNX that has the name of the op, on the operands as they are. Raises what onnxruntime raises."""
    result = DType.bool if cell.op in ("lt", "eq") else cell.common
    attributes: dict[str, Any] = {}
    operator_ = OPERATORS[cell.op]
    if cell.op in ("shl", "shr"):
        attributes["direction"] = "LEFT" if cell.op == "shl" else "RIGHT"
    elif cell.op == "mod" and cell.common.is_float:
        attributes["fmod"] = 1
    elif cell.common is DType.bool and cell.op in ("and", "or", "xor"):
        operator_ = operator_.removeprefix("Bitwise")
    dtypes = [cell.left] if cell.right is None else [cell.left, cell.right]
    given = [
        helper.make_tensor_value_info(f"x{i}", d.onnx, a.shape)
        for i, (d, a) in enumerate(zip(dtypes, arrays, strict=True))
    ]
    names, constants = [v.name for v in given], []
    if cell.right is None:
        attributes["keepdims"] = 0
        constants.append(helper.make_tensor("axes", TensorProto.INT64, [1], [1]))
        names.append("axes")
    shape = ["n", "m"] if cell.op == "matmul" else ["n"]
    made = helper.make_tensor_value_info("y", result.onnx, shape)
    nodes = [helper.make_node(operator_, names, ["y"], **attributes)]
    if cell.op == "floordiv" and cell.common.is_float:
        nodes = [helper.make_node("Div", names, ["q"]), helper.make_node("Floor", ["q"], ["y"])]
    graph = helper.make_graph(nodes, "cell", given, [made], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (value,) = session.run(None, {v.name: a for v, a in zip(given, arrays, strict=True)})
    return np.asarray(value)


ENGINES: dict[str, Callable[..., Array]] = {"graphcore": graphcore, "onnx.helper": onnx_helper}
