"""The 2,397 cells by which engines are compared: 13 dtypes in ordered pairs through 20 operators, and their values.

13 x 13 = 169 pairs, in each: add sub mul div floordiv mod pow lt eq min max matmul, but no subtraction of bools: 2,027
cells. 73 pairs of integers and bools meet in one (8 of a signed integer and uint64 do not): and or xor, 219 cells.
56 of those are of integers alone: shl shr, 112 cells. 13 dtypes by themselves: sum mean max, 39 cells.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import graphcore as gc
from graphcore import DType, Graph, TensorType, implicit_cast_type, ops
from graphcore.errors import LossyCastWarning
from tests.support import reference

Array = np.ndarray[Any, Any]
D = DType

DTYPES = (
    D.bool, D.int8, D.int16, D.int32, D.int64, D.uint8, D.uint16, D.uint32, D.uint64,
    D.float16, D.bfloat16, D.float32, D.float64,
)  # fmt: skip
SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**", "lt": "<", "eq": "==",
    "min": "min", "max": "max", "matmul": "@", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>",
}  # fmt: skip
BITWISE, SHIFTS, REDUCTIONS = ("and", "or", "xor"), ("shl", "shr"), ("sum", "mean", "reduce_max")


@dataclass(frozen=True, slots=True)
class Cell:
    op: str
    left: DType
    right: DType | None = None

    @property
    def common(self) -> DType:
        """The dtype in which the operands meet."""
        return self.left if self.right is None else implicit_cast_type(self.left, self.right)


def _cells() -> list[Cell]:
    results = [Cell(op, dtype) for op in REDUCTIONS for dtype in DTYPES]
    for left in DTYPES:
        for right in DTYPES:
            for op in SYMBOLS:
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
    """Extreme and random values; small whole numbers where a sum of floats is to be exact."""
    if cell.right is None:
        tame = cell.op != "reduce_max" and cell.left.is_float
        x = _whole(cell.left, count, 1) if tame else reference.samples(cell.left, count, 1)
        return (x.reshape(6, -1),)
    if cell.op != "matmul":
        return reference.samples(cell.left, count, 1), reference.samples(cell.right, count, 2)
    draw = _whole if cell.common.is_float else reference.samples
    return draw(cell.left, 30, 1).reshape(5, 6), draw(cell.right, 18, 2).reshape(6, 3)


def gentle(cell: Cell, count: int = 60) -> tuple[Array, ...]:
    """Small whole numbers, none of them 0, on which every engine that computes at all agrees, and none dies."""
    results = [_whole(cell.left, count, 1)] + ([] if cell.right is None else [_whole(cell.right, count, 2)])
    results = [np.where(x == 0, np.ones((), x.dtype), x) for x in results]
    if cell.right is None:
        return (results[0].reshape(6, -1),)
    return tuple(results) if cell.op != "matmul" else (results[0][:30].reshape(5, 6), results[1][:18].reshape(6, 3))


def _whole(dtype: DType, count: int, seed: int) -> Array:
    low = 0 if dtype.is_unsigned or dtype is D.bool else -4
    return np.random.default_rng(seed).integers(low, 5, count).astype(np.float32).astype(dtype.numpy)


def wanted(cell: Cell, *arrays: Array) -> Array:
    """Return NumPy's result for operands of the common dtype, but for the exceptions in docs/numbers.md."""
    x = arrays[0]
    if cell.right is None:
        if cell.op == "reduce_max":
            wide = x.astype(np.float32) if cell.left.is_float and cell.left.bits < 32 else x
            return np.asarray(wide.max(axis=1).astype(x.dtype))
        return (reference.total if cell.op == "sum" else reference.mean)(x, cell.left)
    y, common, symbol = arrays[1], cell.common, SYMBOLS[cell.op]
    if cell.op in SHIFTS:
        return reference.shift(symbol, x, y, cell.left)
    if cell.op == "div" and not common.is_float:
        common = D.float64
    a, b = reference.cast(x, cell.left, common), reference.cast(y, cell.right, common)
    if cell.op == "div":
        return reference._float(np.divide, common, a, b)
    if cell.op == "matmul":
        return reference.product(a, b, common)
    if cell.op in ("lt", "eq"):
        return reference.compare(symbol, a, b)
    if cell.op in BITWISE:
        result: Callable[..., Array] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[cell.op]
        return result(a, b)
    return reference.arithmetic(symbol, a, b, common)


def agrees(cell: Cell, got: Array, want: Array) -> bool:
    """Return True if values of one dtype are equal; powers of floats, and means, within docs/numbers.md, point 6."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    a, b = reference.exact(got), reference.exact(want)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if cell.op in ("pow", "mean") and want.dtype.kind not in "iub":
        mantissa = reference.FORMATS.get(DType.of(want.dtype), (40,))[0]
        relative = np.longdouble(2.0) ** -mantissa * (4 if mantissa == 23 else 1)
        with np.errstate(invalid="ignore"):
            same |= np.abs(a - b) <= np.maximum(np.abs(b) * relative, 1e-12 if mantissa == 40 else 1e-6)
    return bool(same.all())


# Engines that write and run one cell

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
    results = {}
    for i, (dtype, array) in enumerate(zip(dtypes, arrays, strict=True)):
        shape = first + list(array.shape[1:]) if not (i and cell.op == "matmul") else list(array.shape)
        results[f"{cell.op}_{i}"] = TensorType(dtype, shape)
    return results


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
    results = [
        helper.make_tensor_value_info(f"x{i}", d.onnx, a.shape)
        for i, (d, a) in enumerate(zip(dtypes, arrays, strict=True))
    ]
    names, constants = [v.name for v in results], []
    if cell.right is None:
        attributes["keepdims"] = 0
        constants.append(helper.make_tensor("axes", TensorProto.INT64, [1], [1]))
        names.append("axes")
    shape = ["n", "m"] if cell.op == "matmul" else ["n"]
    output = helper.make_tensor_value_info("y", result.onnx, shape)
    nodes = [helper.make_node(operator_, names, ["y"], **attributes)]
    if cell.op == "floordiv" and cell.common.is_float:
        nodes = [helper.make_node("Div", names, ["q"]), helper.make_node("Floor", ["q"], ["y"])]
    graph = helper.make_graph(nodes, "cell", results, [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (value,) = session.run(None, {v.name: a for v, a in zip(results, arrays, strict=True)})
    return np.asarray(value)


ENGINES: dict[str, Callable[..., Array]] = {"graphcore": graphcore, "onnx.helper": onnx_helper}
