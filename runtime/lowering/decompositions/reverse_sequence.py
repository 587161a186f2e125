"""ReverseSequence of what its kernel does not survive, or leaves unwritten."""

from __future__ import annotations

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

EMPTY = "ReverseSequence of no elements"
ONE_AXIS = "ReverseSequence of one axis"


def reverse(b: Builder, call: Call) -> Replacement:
    """Compute ReverseSequence of lengths that may be 0, and of operands whose rank only the run knows.

    The kernel leaves a sequence of length 0 unwritten: the first element alone, turned around, is itself, and an axis
    without elements has none. It does not survive operands of one axis: a Gather of the second one's length fails.
    """
    x, lengths = call.inputs
    held = lengths
    if not x.type.shape.is_ranked and b.rules.has_trap(ONE_AXIS):
        second = b.op("Gather", b.op("Shape", x, dtype=DType.int64), b.vector([1]), dtype=DType.int64)
        held = b.op("Add", held, b.op("Mul", second, b.vector([0]), shape=_shape([Dim(1)])), shape=lengths.shape)
    known = b.known(lengths)
    if b.rules.has_trap(EMPTY) and (known is None or not (known > 0).all()):
        axis = call.attributes.get("time_axis", 0)
        size: Symbol = b.op("Shape", x, dtype=DType.int64, shape=_shape([Dim(1)]), start=axis, end=axis + 1)
        least = b.op("Min", b.vector([1]), size, dtype=DType.int64, shape=_shape([Dim(1)]))
        held = b.op("Max", held, least, dtype=DType.int64, shape=lengths.shape)
    if held is lengths:
        return None
    (made,) = b.emit_many(call.op, (x, held), call.types, call.attributes)
    return made
