"""Comparisons: exact in the dtype in which the operands meet; the result is bool."""

from __future__ import annotations

from graphcore.build import primitives as e
from graphcore.build.declare import expansion
from graphcore.build.elementwise import binary
from graphcore.ir.symbol import Symbol


@expansion("BoolLess")
def _bool_less(x: Symbol, y: Symbol) -> Symbol:
    return e.both(e.opposite(x), y)


@expansion("BoolLessEqual")
def _bool_less_equal(x: Symbol, y: Symbol) -> Symbol:
    return e.either(e.opposite(x), y)


@expansion("BoolGreater")
def _bool_greater(x: Symbol, y: Symbol) -> Symbol:
    return e.both(x, e.opposite(y))


@expansion("BoolGreaterEqual")
def _bool_greater_equal(x: Symbol, y: Symbol) -> Symbol:
    return e.either(x, e.opposite(y))


equal = binary("equal", "Equal", "compare", "True where both are equal. ONNX Equal.", dunder="eq")
not_equal = binary(
    "not_equal",
    "NotEqual",
    "compare",
    "True where the two differ; NaN differs from itself. ONNX Not of Equal.",
    dunder="ne",
    body=lambda x, y: e.opposite(e.equal(x, y)),
    for_bool="Xor",
)
less = binary("less", "Less", "compare", "True where the first is less. ONNX Less.", dunder="lt", for_bool="BoolLess")
less_equal = binary(
    "less_equal", "LessOrEqual", "compare", "True where the first is not greater. ONNX LessOrEqual.",
    dunder="le", for_bool="BoolLessEqual",
)  # fmt: skip
greater = binary(
    "greater",
    "Greater",
    "compare",
    "True where the first is greater. ONNX Greater.",
    dunder="gt",
    for_bool="BoolGreater",
)
greater_equal = binary(
    "greater_equal", "GreaterOrEqual", "compare", "True where the first is not less. ONNX GreaterOrEqual.",
    dunder="ge", for_bool="BoolGreaterEqual",
)  # fmt: skip
