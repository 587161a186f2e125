"""Windows in float64, which the runtime computes in float32, and in floats that it has no kernel for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

TERMS = {
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}
"""a, b, c of the window a - b cos(turn) + c cos(2 turn), as ONNX defines it."""


NARROW = (DType.float16, DType.bfloat16)
ROUNDED = ("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix")
"""Operators whose results may be of a narrow float and are chosen by the dtype of a length."""


def rounded(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """In float32, rounded once."""
    own = types[0].dtype
    if own not in NARROW:
        return window(on, op, inputs, types, attributes) if op in TERMS else None
    attributes = {**attributes, "output_datatype": DType.float32}
    made = on.op(op, *inputs, dtype=DType.float32, shape=types[0].shape, **attributes)
    return on.casts.cast(made, DType.float32, own)


def window(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Chosen by the dtype of the length, so that float32, whose function body is right, is told apart here."""
    if types[0].dtype is not DType.float64:
        return None
    (length,) = inputs
    f64, scalar = DType.float64, _shape(())
    count = on.casts.cast(length, length.dtype, f64)
    if length.rank:
        count = on.native("Squeeze", count, shape=scalar)
    one, shape = on.const(1.0, f64), _shape([Dim.dynamic()])
    places = on.native("Range", on.const(0.0, f64), count, one, shape=shape)
    whole = count if attributes.get("periodic", 1) else on.native("Sub", count, one)
    turns = on.native("Div", on.native("Mul", places, on.const(2 * math.pi, f64)), whole)
    twice = on.native("Mul", turns, on.const(2.0, f64))
    a, b, c = (on.const(term, f64) for term in TERMS[op])
    made = on.native("Sub", a, on.native("Mul", b, on.op("Cos", turns)))
    return on.native("Add", made, on.native("Mul", c, on.op("Cos", twice)), shape=types[0].shape)
