"""Rows for what files are read by: releases that no session runs on, and optimisers that no session has.

They are for what those lack, or have wrong. Each trap has the releases in which it was seen, up to the last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build import casts_without_bitcast
from graphcore.runtime.lowering.decompositions.older import bitwise
from graphcore.runtime.lowering.decompositions.signature import Detour, Inputs, Made
from graphcore.runtime.lowering.targets.releases import Range, Runtime, table_of
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

_I64, _U64, _F32, _F64, _BOOL = DType.int64, DType.uint64, DType.float32, DType.float64, DType.bool
_FLOAT8 = (DType.float8_e4m3fn, DType.float8_e5m2)
_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")


class _Trap(NamedTuple):
    """seen: the releases. in_file: whether it is an optimiser's, which sessions switch off."""

    seen: Range
    detour: Detour
    in_file: bool = False


def rows() -> dict[tuple[str, DType], Detour]:
    """Return the rows for kernels that releases or opsets lack."""
    made: dict[tuple[str, DType], Detour] = {**bitwise.rows(), ("Div", _U64): quotient}
    made.update({(op, _U64): compared for op in _COMPARISONS})
    made.update({(op, dtype): counted for op in ("Shape", "Size") for dtype in _FLOAT8})
    return made


def traps(runtime: Runtime) -> dict[tuple[str, DType], Detour]:
    """Return the rows for kernels that are wrong in a release."""
    releases = [release.version for release in table_of("cpu").considered(runtime)]
    return {
        key: trap.detour
        for key, trap in _TRAPS.items()
        if runtime.in_file >= trap.in_file and any(map(trap.seen.includes, releases))
    }


def counted(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Shape and Size of float8, by float32: an optimiser leaves out a Cast before them, but no Reshape."""
    (x,) = inputs
    wide = casts_without_bitcast.barrier(on, on.casts.cast(x, x.dtype, _F32))
    return on.native(op, wide, dtype=_I64, shape=types[0].shape, **attributes)


def compared(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Numbers of 64 bits as signed ones, in whose order they are with the highest bit turned."""
    x, y = (_turned(on, s) if op != "Equal" else on.casts.cast(s, _U64, _I64) for s in inputs)
    return on.native(op, x, y, dtype=_BOOL, shape=types[0].shape)


def _turned(on: Legaliser, x: Symbol) -> Symbol:
    return on.native("Add", on.casts.cast(x, _U64, _I64), on.const(-(1 << 63), _I64))


def quotient(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """x / y of 64 bits by signed division of x's upper 63, which is off by one at most: Warren, "Hacker's Delight".

    What is 2^63 or more goes into x once or not at all. A division by 0 gives 0, as docs/numbers.md says.
    """
    x = inputs[0]
    dividend, divisor = (on.casts.cast(s, _U64, _I64) for s in inputs)
    shape = types[0].shape
    zero, one = on.const(0, _I64), on.const(1, _I64)
    large = on.native("Less", divisor, zero, dtype=_BOOL)
    nothing = on.native("Equal", divisor, zero, dtype=_BOOL)
    unsafe = on.native("Or", large, nothing)
    upper = on.casts.cast(on.native("BitShift", x, on.const(1, _U64), direction="RIGHT"), _U64, _I64)
    near = on.native("Div", upper, on.native("Where", unsafe, one, divisor, dtype=_I64), shape=shape)
    near = on.native("Where", unsafe, zero, on.native("Add", near, near), dtype=_I64, shape=shape)
    rest = on.native("Sub", dividend, on.native("Mul", near, divisor), shape=shape)
    highest = on.const(-(1 << 63), _I64)
    more = on.native("GreaterOrEqual", on.native("Add", rest, highest), on.native("Add", divisor, highest), dtype=_BOOL)
    more = on.native("And", more, on.native("Not", nothing), shape=shape)
    return on.casts.cast(on.native("Add", near, on.casts.plain(more, _I64), shape=shape), _I64, _U64)


def whole(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Floor and Ceil, whose kernels give 0.0 for what is -0.0."""
    (x,) = inputs
    return casts_without_bitcast.with_sign_of_zero(on, on.native(op, x), x)


def logistic(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Sigmoid of float64: times its operand, an optimiser makes of it an operator without a kernel."""
    (x,) = inputs
    one = on.const(1.0, _F64)
    return on.native("Reciprocal", on.native("Add", on.native("Exp", on.native("Neg", x)), one))


def product(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """MatMul of float64: behind a Transpose, an optimiser makes of both an operator without a kernel."""
    x, y = inputs
    if not all(s.shape.is_ranked and s.rank > 1 for s in (x, y)):
        return None
    return on.op("Einsum", x, y, shape=types[0].shape, equation="...ij,...jk->...ik")


_OLD = Range.parse("-1.22.0")
_TRAPS: dict[tuple[str, DType], _Trap] = {
    **{(op, dtype): _Trap(_OLD, whole) for op in ("Floor", "Ceil") for dtype in (_F32, _F64)},
    ("Sigmoid", _F64): _Trap(Range.parse("-1.30.0"), logistic, in_file=True),
    ("MatMul", _F64): _Trap(Range.parse("-1.24.4"), product, in_file=True),
}


__all__ = ["rows", "traps"]
