"""The 2,397 cells by which engines are compared: 13 dtypes in ordered pairs through 20 operators, and their values.

13 x 13 = 169 pairs, in each: add sub mul div floordiv mod pow lt eq min max matmul, but no subtraction of bools: 2,027
cells. 73 pairs of integers and bools meet in one (8 of a signed integer and uint64 do not): and or xor, 219 cells.
56 of those are of integers alone: shl shr, 112 cells. 13 dtypes by themselves: sum mean max, 39 cells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore import DType, implicit_cast_type
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
    made = [Cell(op, dtype) for op in REDUCTIONS for dtype in DTYPES]
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
                made.append(cell)
    return made


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
    made = [_whole(cell.left, count, 1)] + ([] if cell.right is None else [_whole(cell.right, count, 2)])
    made = [np.where(x == 0, np.ones((), x.dtype), x) for x in made]
    if cell.right is None:
        return (made[0].reshape(6, -1),)
    return tuple(made) if cell.op != "matmul" else (made[0][:30].reshape(5, 6), made[1][:18].reshape(6, 3))


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
        made: Callable[..., Array] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[cell.op]
        return made(a, b)
    return reference.arithmetic(symbol, a, b, common)


def agrees(cell: Cell, got: Array, want: Array) -> bool:
    """Return whether values of one dtype are equal; powers of floats, and means, within docs/numbers.md, point 6."""
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
