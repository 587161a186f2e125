"""Optionals that are made and looked into in one graph, of any dtype: the runtime has them of few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphcore.ir.symbol import Node, Symbol
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

OPERATORS = frozenset({"OptionalGetElement", "OptionalHasElement"})


def replaced(on: Legaliser, op_type: str, inputs: Sequence[Symbol | None]) -> tuple[Symbol, ...] | None:
    """What is in the optional, or that there is something; None where the optional comes from elsewhere."""
    operand = inputs[0] if inputs else None
    made = operand.producer if operand is not None else None
    if not isinstance(made, Node) or made.op_type != "Optional" or made.domain or not made.inputs:
        return None
    (element,) = made.inputs
    assert element is not None
    return (element if op_type == "OptionalGetElement" else on.const(True, DType.bool),)
