"""The values of the cells of `graphcore.conformance.cells` that are extreme, and what NumPy gives for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

import graphcore as gc
from graphcore import DType
from graphcore.conformance.cells import BITWISE, SHIFTS, Cell, graph_of, onnx_model, whole_numbers
from graphcore.conformance.runtimes import OrtModel
from tests.support import reference

Array = np.ndarray[Any, Any]
D = DType

SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**", "lt": "<", "eq": "==",
    "min": "min", "max": "max", "matmul": "@", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>",
}  # fmt: skip


def operands(cell: Cell, count: int = 60) -> tuple[Array, ...]:
    """Extreme and random values; small whole numbers where a sum of floats is to be exact."""
    if cell.right is None:
        tame = cell.op != "reduce_max" and cell.left.is_float
        x = whole_numbers(cell.left, count, 1) if tame else reference.samples(cell.left, count, 1)
        return (x.reshape(6, -1),)
    if cell.op != "matmul":
        return reference.samples(cell.left, count, 1), reference.samples(cell.right, count, 2)
    draw = whole_numbers if cell.common.is_float else reference.samples
    return draw(cell.left, 30, 1).reshape(5, 6), draw(cell.right, 18, 2).reshape(6, 3)


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


def graphcore(cell: Cell, *arrays: Array) -> Array:
    (result,) = gc.InferenceSession().load(graph_of(cell, *arrays))(*arrays)
    return np.asarray(result)


def onnx_helper(cell: Cell, *arrays: Array) -> Array:
    """The operator of ONNX that has the name of the op, on the operands as they are. Raises what onnxruntime raises."""
    model = onnx_model(cell, *arrays)
    onnx.checker.check_model(model)
    (value,) = OrtModel(model.SerializeToString())(**{f"x{i}": array for i, array in enumerate(arrays)})
    return np.asarray(value)


ENGINES: dict[str, Callable[..., Array]] = {"graphcore": graphcore, "onnx.helper": onnx_helper}
