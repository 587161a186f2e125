"""Properties of operators, one row per operator.

Other tables of operators are expressions of traits, with exceptions:

MOVES = having(Trait.MOVES, Trait.FILLS) - {"CenterCropPad"}  # with the reason
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeVar

from graphcore.operators import onnx, traits
from graphcore.operators.shapes.call import Rule, broadcast, same
from graphcore.operators.traits import EVERY as EVERY
from graphcore.operators.traits import OperatorRow as OperatorRow
from graphcore.operators.traits import Trait as Trait

_T = TypeVar("_T")

ROWS: Mapping[str, OperatorRow] = {**onnx.ROWS, **traits.ROWS}
"""The operators of ONNX's default domain and of the library's domain. Their names are distinct."""

ONNX = frozenset(onnx.ROWS)
"""The operators of ONNX's default domain."""


@cache
def having(*traits: Trait) -> frozenset[str]:
    """Return the operators of `ROWS` that have at least one of the traits."""
    bits = sum(trait.value for trait in traits)
    return frozenset(name for name, row in ROWS.items() if row.traits & bits)


def data_of(op_type: str, operands: Sequence[_T]) -> list[_T]:
    """Return the operands whose elements occur in the results of an operator. See `OperatorRow.data`."""
    data = ROWS[op_type].data
    return [operand for i, operand in enumerate(operands) if i in data]


REDUCTIONS = having(Trait.REDUCES) & having(Trait.SIZED) - {"TopK"}
"""The reductions along the axes in operand 1."""


def _rule(row: OperatorRow) -> Rule | None:
    if row.shapes is not None:
        return row.shapes
    if row.traits & Trait.BROADCASTS.value:
        return broadcast
    return same if row.traits & Trait.ELEMENTWISE.value else None


_RULED: Mapping[str, OperatorRow] = {**ROWS, **onnx.OTHERS["ai.onnx.ml"]}

SHAPES: Mapping[str, Rule] = {name: rule for name, row in _RULED.items() if (rule := _rule(row)) is not None}
"""The shape rules of rows and of elementwise operators. ONNX's inference handles other operators."""

BY_TYPES = SHAPES.keys() & ONNX - having(Trait.SIZED)
"""The operators of ONNX whose shape rules read only the types of operands, not their values."""
