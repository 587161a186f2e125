"""Strings put elsewhere: the operator moves their numbers, by which they are looked up then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions.shape_arithmetic import calculate, count_up, lengths, symbol, times
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

_STRINGS = frozenset({"Pad", "TensorScatter"})
"""Operators of which more operands than the first are strings."""

ROWS = "CenterCropPad DepthToSpace GridSample Pad Resize SpaceToDepth TensorScatter Trilu".split()


def moved(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Number 0 is the empty string, which an operator fills with where it fills with zeros."""
    _check(op, inputs, attributes)
    dtype = DType.int32 if op in ("Resize", "GridSample") else DType.int64
    texts = [on.graph._constant(np.array([""], object), DType.string)]
    seen: Any = np.asarray(1, np.int64)
    given: list[Symbol | None] = []
    for position, operand in enumerate(inputs):
        if operand is None or operand.dtype is not DType.string or (position and op not in _STRINGS):
            given.append(operand)
            continue
        size = times(on, lengths(on, operand, range(operand.rank)))
        numbers = symbol(on, calculate(on, "Add", count_up(on, size), seen))
        like = on.native("Shape", operand, dtype=DType.int64, shape=_shape([Dim(operand.rank)]))
        numbers = on.native("Reshape", numbers, like, shape=operand.shape)
        given.append(on.casts.cast(numbers, DType.int64, dtype))
        texts.append(on.native("Reshape", operand, on.ints([-1]), shape=_shape([Dim.dynamic()])))
        seen = calculate(on, "Add", seen, size)
    held = on.native("Concat", *texts, shape=_shape([Dim.dynamic()]), axis=0)
    places = on.op(op, *given, dtype=dtype, shape=types[0].shape, **attributes)
    return on.native("Gather", held, on.casts.cast(places, dtype, DType.int64), shape=types[0].shape)


def _check(op: str, inputs: Inputs, attributes: dict[str, Any]) -> None:
    mode = attributes.get("mode", "linear" if op == "GridSample" else "nearest")
    if op not in ("Resize", "GridSample") or mode == "nearest":
        return
    raise GraphError(
        f"{op}: mode {mode!r} makes averages, and strings have none",
        operands={"X": str(inputs[0].type)},
        help="use mode='nearest', which takes strings as they are",
    )


def nonzero(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """NonZero of strings: of those that are not empty."""
    empty = on.native("Equal", inputs[0], on.graph._constant(np.array("", object), DType.string), dtype=DType.bool)
    return on.native(op, on.native("Not", empty), dtype=DType.int64, shape=types[0].shape)


def not_added(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    raise GraphError(
        f"{op}: it adds what overlaps, and strings have no sum",
        operands={"input": str(inputs[0].type)},
        help="arrange numbers in place of the strings, and look the strings up by them: ops.gather",
    )
