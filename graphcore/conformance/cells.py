"""The 2,397 cells by which runtimes are compared: 13 dtypes in ordered pairs through 20 operators.

13 x 13 = 169 pairs, in each: add sub mul div floordiv mod pow lt eq min max matmul, except subtraction of bools: 2,027
cells. 73 pairs of integers and bools have a common dtype of that kind: and or xor, 219 cells. 56 of those are of
integers alone: shl shr, 112 cells. 13 dtypes by themselves: sum mean max, 39 cells.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from graphcore import ops
from graphcore.arrays.casting import Array
from graphcore.errors import LossyCastWarning
from graphcore.ir.graph import Graph
from graphcore.promotion import implicit_cast_type
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

D = DType

DTYPES = (
    D.bool, D.int8, D.int16, D.int32, D.int64, D.uint8, D.uint16, D.uint32, D.uint64,
    D.float16, D.bfloat16, D.float32, D.float64,
)  # fmt: skip
BITWISE, SHIFTS, REDUCTIONS = ("and", "or", "xor"), ("shl", "shr"), ("sum", "mean", "reduce_max")

OPS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow, "lt": operator.lt, "eq": operator.eq,
    "min": ops.minimum, "max": ops.maximum, "matmul": operator.matmul,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "shl": operator.lshift, "shr": operator.rshift,
    "sum": lambda x: ops.sum(x, axis=1), "mean": lambda x: ops.mean(x, axis=1),
    "reduce_max": lambda x: ops.max(x, axis=1),
}  # fmt: skip
"""The operators as a user of graphcore writes them."""

ONNX_OPERATORS = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "floordiv": "Div", "mod": "Mod", "pow": "Pow", "lt": "Less",
    "eq": "Equal", "min": "Min", "max": "Max", "matmul": "MatMul", "and": "BitwiseAnd", "or": "BitwiseOr",
    "xor": "BitwiseXor", "shl": "BitShift", "shr": "BitShift",
    "sum": "ReduceSum", "mean": "ReduceMean", "reduce_max": "ReduceMax",
}  # fmt: skip
"""The operators of ONNX with that meaning."""


@dataclass(frozen=True, slots=True)
class Cell:
    """An operator on operands of one or two dtypes."""

    op: str
    left: DType
    right: DType | None = None

    @property
    def common(self) -> DType:
        """The common dtype of the operands."""
        return self.left if self.right is None else implicit_cast_type(self.left, self.right)


def _cells() -> list[Cell]:
    results = [Cell(op, dtype) for op in REDUCTIONS for dtype in DTYPES]
    for left in DTYPES:
        for right in DTYPES:
            for op in (name for name in OPS if name not in REDUCTIONS):
                cell = Cell(op, left, right)
                if op in BITWISE + SHIFTS and cell.common.is_float:
                    continue
                if op in SHIFTS and D.bool in (left, right):
                    continue
                if op == "sub" and cell.common is D.bool:
                    continue
                results.append(cell)
    return results


CELLS = _cells()


def operands(cell: Cell, count: int = 60) -> tuple[Array, ...]:
    """Return small whole numbers other than 0, on which every runtime that computes at all agrees."""
    results = [whole_numbers(cell.left, count, 1)]
    results += [] if cell.right is None else [whole_numbers(cell.right, count, 2)]
    results = [np.where(x == 0, np.ones((), x.dtype), x) for x in results]
    if cell.right is None:
        return (results[0].reshape(6, -1),)
    return tuple(results) if cell.op != "matmul" else (results[0][:30].reshape(5, 6), results[1][:18].reshape(6, 3))


def whole_numbers(dtype: DType, count: int, seed: int) -> Array:
    """Return whole numbers from -4 to 4, or from 0 to 4."""
    low = 0 if dtype.is_unsigned or dtype is D.bool else -4
    return np.random.default_rng(seed).integers(low, 5, count).astype(np.float32).astype(dtype.numpy)


_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power, "lt": np.less, "eq": np.equal, "min": np.minimum, "max": np.maximum,
    "matmul": np.matmul, "sum": lambda x: x.sum(1), "mean": lambda x: x.mean(1), "reduce_max": lambda x: x.max(1),
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
}  # fmt: skip


def expected(cell: Cell, *arrays: Array) -> Array:
    """Return the result for such numbers, which float64 has exactly: integers wrap in the common dtype."""
    wide = [x.astype(np.float64) for x in arrays]
    if cell.op in BITWISE + SHIFTS:
        wide = [x.astype(np.int64) for x in wide]
    if cell.op in SHIFTS:
        x, by = wide
        past = np.where((cell.op == "shr") & (x < 0), -1, 0)  # a negative count shifts every bit out
        result = np.where(by < 0, past, _FUNCTIONS[cell.op](x, np.maximum(by, 0)))
    else:
        result = _FUNCTIONS[cell.op](*wide)
    dtype = cell.left if cell.op in SHIFTS else cell.common
    if cell.op in ("lt", "eq"):
        return result
    if cell.op in ("div", "mean") and not dtype.is_float:
        dtype = D.float64
    if cell.op == "sum" and dtype is D.bool:
        dtype = D.int64
    if dtype.is_float:
        return result if dtype is D.float64 else result.astype(np.float32).astype(dtype.numpy)
    return result != 0 if dtype is D.bool else np.trunc(result).astype(np.int64).astype(dtype.numpy)


def types_of(cell: Cell, arrays: tuple[Array, ...]) -> dict[str, TensorType]:
    """Return the inputs of a cell, by names that differ between cells of one graph."""
    dtypes = [cell.left] if cell.right is None else [cell.left, cell.right]
    first: list[int | str] = [f"n_{cell.op}"]
    results = {}
    for i, (dtype, array) in enumerate(zip(dtypes, arrays, strict=True)):
        shape = first + list(array.shape[1:]) if not (i and cell.op == "matmul") else list(array.shape)
        results[f"{cell.op}_{i}"] = TensorType(dtype, shape)
    return results


def graph_of(cell: Cell, *arrays: Array) -> Graph:
    """Return the graph of a cell as a user of graphcore writes it."""
    graph = Graph("cell", types_of(cell, arrays))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyCastWarning)
        graph.output(y=OPS[cell.op](*graph.inputs))
    return graph


def onnx_model(cell: Cell, *arrays: Array) -> onnx.ModelProto:
    """Return a model with ONNX's operator of that meaning on the operands without casts, whatever their dtypes."""
    result = D.bool if cell.op in ("lt", "eq") else cell.common
    attributes: dict[str, Any] = {}
    name = ONNX_OPERATORS[cell.op]
    if cell.op in SHIFTS:
        attributes["direction"] = "LEFT" if cell.op == "shl" else "RIGHT"
    elif cell.op == "mod" and cell.common.is_float:
        attributes["fmod"] = 1
    elif cell.common is D.bool and cell.op in BITWISE:
        name = name.removeprefix("Bitwise")
    types = types_of(cell, arrays)
    inputs = [helper.make_tensor_value_info(f"x{i}", t.dtype.onnx, a.shape)
              for i, (t, a) in enumerate(zip(types.values(), arrays, strict=True))]  # fmt: skip
    names, constants = [v.name for v in inputs], []
    if cell.right is None:
        attributes["keepdims"] = 0
        constants.append(helper.make_tensor("axes", TensorProto.INT64, [1], [1]))
        names.append("axes")
    output = helper.make_tensor_value_info("y", result.onnx, ["n", "m"] if cell.op == "matmul" else ["n"])
    nodes = [helper.make_node(name, names, ["y"], **attributes)]
    if cell.op == "floordiv" and cell.common.is_float:
        nodes = [helper.make_node("Div", names, ["q"]), helper.make_node("Floor", ["q"], ["y"])]
    graph = helper.make_graph(nodes, "cell", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
