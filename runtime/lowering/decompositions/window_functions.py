"""Window functions in float64, which the runtime computes in float32, and in floats without a kernel."""

from __future__ import annotations

import math

from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

TERMS = {
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}
"""a, b, c of the window a - b cos(turn) + c cos(2 turn), as ONNX defines it."""


NARROW = (DType.float16, DType.bfloat16)
ROUNDED = ("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix")
"""Operators whose results may be of a narrow float and are chosen by the dtype of a length."""


def rounded(b: Builder, call: Call) -> Replacement:
    """Compute a window function in float32, and round once."""
    own = call.types[0].dtype
    if own not in NARROW:
        return window(b, call) if call.op in TERMS else None
    options = {**call.attributes, "output_datatype": DType.float32}
    made = b.op(call.op, *call.inputs, dtype=DType.float32, shape=call.shape, **options)
    return b.cast(made, own)


def window(b: Builder, call: Call) -> Replacement:
    """Compute a window function by the dtype of its length: the function body is right for float32."""
    if call.types[0].dtype is not DType.float64:
        return None
    (length,) = call.inputs
    f64, scalar = DType.float64, _shape(())
    count = b.cast(length, f64)
    if length.rank:
        count = b.native("Squeeze", count, shape=scalar)
    one, shape = b.scalar(1.0, f64), _shape([Dim.dynamic()])
    places = b.native("Range", b.scalar(0.0, f64), count, one, shape=shape)
    whole = count if call.attributes.get("periodic", 1) else b.native("Sub", count, one)
    turns = b.native("Div", b.native("Mul", places, b.scalar(2 * math.pi, f64)), whole)
    twice = b.native("Mul", turns, b.scalar(2.0, f64))
    mean, once, again = (b.scalar(term, f64) for term in TERMS[call.op])
    made = b.native("Sub", mean, b.native("Mul", once, b.op("Cos", turns)))
    return b.native("Add", made, b.native("Mul", again, b.op("Cos", twice)), shape=call.shape)
