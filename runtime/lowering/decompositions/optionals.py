"""Optionals of any dtype that one graph makes and reads: the runtime has them for few dtypes."""

from __future__ import annotations

from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.types.dtypes import DType

OPERATORS = frozenset({"OptionalGetElement", "OptionalHasElement"})


def replaced(b: Builder, call: Call) -> tuple[Symbol, ...] | None:
    """Return what is in an optional, or that there is something; None where the optional comes from elsewhere."""
    operand = call.inputs[0] if call.inputs else None
    made = operand.producer if operand is not None else None
    if not isinstance(made, Node) or made.op_type != "Optional" or made.domain or not made.inputs:
        return None
    (element,) = made.inputs
    assert element is not None
    return (element if call.op == "OptionalGetElement" else b.scalar(True, DType.bool),)
