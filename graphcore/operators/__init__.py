"""What is known of operators, one row each: tables of operators are expressions of traits, and say where they differ.

MOVES = having(Trait.MOVES, Trait.FILLS) - {"CenterCropPad"}  # with the reason
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeVar

from graphcore.operators import onnx, traits
from graphcore.operators.shapes.call import Rule, broadcast, same
from graphcore.operators.traits import EVERY as EVERY
from graphcore.operators.traits import Row as Row
from graphcore.operators.traits import Trait as Trait

_T = TypeVar("_T")

ROWS: Mapping[str, Row] = {**onnx.ROWS, **traits.ROWS}
"""The operators of ONNX's own domain and of the library's, whose names differ."""

ONNX = frozenset(onnx.ROWS)
"""The operators of ONNX's own domain."""


@cache
def having(*traits: Trait) -> frozenset[str]:
    """Return the operators of `ROWS` that have any of some traits."""
    bits = sum(trait.value for trait in traits)
    return frozenset(name for name, row in ROWS.items() if row.traits & bits)


def data_of(op_type: str, operands: Sequence[_T]) -> list[_T]:
    """Return the operands whose elements are in the results of an operator. See `Row.data`."""
    data = ROWS[op_type].data
    return [operand for i, operand in enumerate(operands) if i in data]


REDUCTIONS = having(Trait.REDUCES) & having(Trait.SIZED) - {"TopK"}
"""The reductions, along the axes that operand 1 names."""


def _rule(row: Row) -> Rule | None:
    if row.shapes is not None:
        return row.shapes
    if row.traits & Trait.BROADCASTS.value:
        return broadcast
    return same if row.traits & Trait.ELEMENTWISE.value else None


_RULED: Mapping[str, Row] = {**ROWS, **onnx.OTHERS["ai.onnx.ml"]}

SHAPES: Mapping[str, Rule] = {name: rule for name, row in _RULED.items() if (rule := _rule(row)) is not None}
"""The rules of what shapes results have: of rows, and of elementwise operators. Others are left to ONNX's inference."""

BY_TYPES = SHAPES.keys() & ONNX - having(Trait.SIZED)
"""The operators of ONNX whose rules read the types of operands alone, not what they hold."""
