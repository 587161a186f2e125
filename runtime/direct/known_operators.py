"""The operators of a scan at the opset of its model: what their schemas ask, and which dtypes a target runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphcore.onnx.proto.ranges import CHECKED, INDEXED
from graphcore.onnx.schemas.schemas import Operator, operator, schema_of
from graphcore.runtime.direct.attributes import LIMITED
from graphcore.runtime.direct.fusible import BEGINS, TAKES
from graphcore.runtime.direct.ml_operators import ML_ROWS
from graphcore.runtime.direct.operators import ROWS, Row
from graphcore.runtime.lowering.decompositions import keeps_half, keeps_kernel, rows_of
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.runtime.memory.prepacking import PACKED
from graphcore.types.dtypes import DType

SIZED = frozenset({"ConstantOfShape", "Expand", "Pad", "Range", "Reshape", "Resize", "Tile"})
"""Operators whose operands say sizes, and some the factors of sizes."""

_GUARDED = frozenset({"Div", "GRU", "LSTM", "MatMul", "Mod", "Resize"})
"""Operators of whose decompositions the rows leave nothing to do: they leave what needs them to a Graph."""

VARIADIC = 1 << 30
"""Results that only an operator with any number of them has."""

_ONNX = ("", "ai.onnx")

_ROWS_STAY = frozenset(
    "Add Sub Mul Div Relu LeakyRelu Sigmoid Tanh Softmax LogSoftmax MatMul Gemm Identity Cast Clip Elu Abs Exp Log"
    " Sqrt Neg Softplus Constant BatchNormalization LayerNormalization".split()
)
"""Operators that leave the rows of a matrix as many as they are: not one where their first operand has several."""

_BROADCASTS = frozenset(("Add", "Sub", "Mul", "Div"))


_LOOKED_AT = frozenset({*LIMITED, *INDEXED, *CHECKED, *SIZED})
"""Operators of which attributes or operands are looked at."""


_READ_APART = frozenset({*INDEXED, *CHECKED, *SIZED, *PACKED, "Constant", "Gemm", "MatMul"})
"""Operators of which more is noted than the dtypes of their results."""


@dataclass(frozen=True, slots=True)
class Known:
    """An operator at the opset of a model.

    begins: whether it sets first marks. takes: whether marks of its operands may mark its results. rows: how many
    operands, from the first on, give its result as many rows as they have; 0 where it may have others. is_plain:
    whether the dtypes of its operands, and its attributes where it is limited, tell all there is to tell of a node.
    """

    row: Row
    schema: Operator
    domains: tuple[str, ...]
    is_looked_at: bool
    begins: bool
    takes: bool
    rows: int
    is_plain: bool
    is_limited: bool


def known_operator(op_type: str, versions: Mapping[str, int]) -> Known | None:
    """Return what is known of an operator at a model's opsets; None where it has no row."""
    row = ROWS.get(op_type) or ML_ROWS.get(op_type)
    schema = None if row is None else schema_of(op_type, row.domain, versions.get(row.domain, 0))
    if row is None or schema is None or schema.deprecated:
        return None
    return Known(
        row=row,
        schema=operator(schema),
        domains=(row.domain,) if row.domain else _ONNX,
        is_looked_at=op_type in _LOOKED_AT,
        begins=op_type in BEGINS,
        takes=op_type in TAKES,
        is_limited=op_type in LIMITED,
        is_plain=row.results is None and not row.gives_map and op_type not in _READ_APART,
        rows=(2 if op_type in _BROADCASTS else 1) if op_type in _ROWS_STAY else 0,
    )


def is_legal(rules: Legality, op_type: str, dtype: DType) -> bool:
    """Return whether a target's kernel of an operator gives the numbers of a Graph for a dtype."""
    if op_type in ("Cast", "If", "Constant"):
        return True
    if dtype is DType.float16:
        return keeps_half(rules, op_type, dtype) or (op_type in _GUARDED and rules.runs_half(op_type, dtype))
    if not rules.allows(op_type, dtype):
        return False
    is_guarded = op_type in _GUARDED
    return is_guarded or keeps_kernel(op_type, dtype, None) or (op_type, dtype) not in rows_of(rules).rows
