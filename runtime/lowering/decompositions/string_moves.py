"""Operators that move strings: they move the strings' numbers, by which the strings are then looked up."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.shape_arithmetic import calculate, count_up, lengths, symbol, times
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

_STRINGS = frozenset({"Pad", "TensorScatter"})
"""Operators of which more operands than the first are strings."""

ROWS = "CenterCropPad DepthToSpace GridSample Pad Resize SpaceToDepth TensorScatter Trilu".split()


def moved(b: Builder, call: Call) -> Replacement:
    """Compute a move of strings by their numbers; 0 is the empty string, since operators fill with zeros."""
    _check(call)
    dtype = DType.int32 if call.op in ("Resize", "GridSample") else DType.int64
    texts = [b.constant(np.array([""], object), DType.string)]
    seen: Any = np.asarray(1, np.int64)
    given: list[Symbol | None] = []
    for position, operand in enumerate(call.inputs):
        if operand is None or operand.dtype is not DType.string or (position and call.op not in _STRINGS):
            given.append(operand)
            continue
        size = times(b, lengths(b, operand, range(operand.rank)))
        numbers = symbol(b, calculate(b, "Add", count_up(b, size), seen))
        like = b.native("Shape", operand, dtype=DType.int64, shape=_shape([Dim(operand.rank)]))
        numbers = b.native("Reshape", numbers, like, shape=operand.shape, allowzero=1)
        given.append(b.cast(numbers, dtype))
        texts.append(b.native("Reshape", operand, b.vector([-1]), shape=_shape([Dim.dynamic()])))
        seen = calculate(b, "Add", seen, size)
    held = b.native("Concat", *texts, shape=_shape([Dim.dynamic()]), axis=0)
    places = b.op(call.op, *given, dtype=dtype, shape=call.shape, **call.attributes)
    return b.native("Gather", held, b.cast(places, DType.int64), shape=call.shape)


def _check(call: Call) -> None:
    mode = call.attributes.get("mode", "linear" if call.op == "GridSample" else "nearest")
    if call.op not in ("Resize", "GridSample") or mode == "nearest":
        return
    raise GraphError(
        f"{call.op}: mode {mode!r} makes averages, and strings have none",
        operands={"X": str(call.inputs[0].type)},
        help="use mode='nearest', which takes strings as they are",
    )


def nonzero(b: Builder, call: Call) -> Replacement:
    """Compute NonZero of strings: of those that are not empty."""
    empty = b.native("Equal", call.inputs[0], b.constant(np.array("", object), DType.string), dtype=DType.bool)
    return b.op("NonZero", b.native("Not", empty), dtype=DType.int64, shape=call.shape)


def not_added(b: Builder, call: Call) -> Replacement:
    raise GraphError(
        f"{call.op}: it adds what overlaps, and strings have no sum",
        operands={"input": str(call.inputs[0].type)},
        help="arrange numbers in place of the strings, and look the strings up by them: ops.gather",
    )
