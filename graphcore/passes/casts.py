"""Cast simplification: casts to the dtype of the operand, and casts of a lossless cast."""

from __future__ import annotations

import functools

from graphcore.ir.symbol import Node, Symbol
from graphcore.passes.sweep import Inputs, Rule, Sweep
from graphcore.types.dtypes import DType, is_carried
from graphcore.types.tensor_types import TensorType

# The bits of a significand, the leading one included.
_PRECISION: dict[DType, int] = {
    DType.float8_e5m2: 3,
    DType.float8_e4m3fn: 4,
    DType.bfloat16: 8,
    DType.float16: 11,
    DType.tensor_float32: 11,
    DType.float32: 24,
    DType.float64: 53,
}

# Which float dtypes hold every value of a narrower one: precision, range, subnormal numbers, infinities and NaN.
_WIDER: dict[DType, frozenset[DType]] = {
    DType.float8_e5m2: frozenset(set(_PRECISION) - {DType.float8_e5m2, DType.float8_e4m3fn}),
    DType.float8_e4m3fn: frozenset(set(_PRECISION) - {DType.float8_e5m2, DType.float8_e4m3fn}),
    DType.float16: frozenset({DType.tensor_float32, DType.float32, DType.float64}),
    DType.bfloat16: frozenset({DType.tensor_float32, DType.float32, DType.float64}),
    DType.tensor_float32: frozenset({DType.float32, DType.float64}),
    DType.float32: frozenset({DType.float64}),
}


@functools.cache
def holds(wide: DType, narrow: DType) -> bool:
    """Return whether every value of `narrow` is one of `wide`, signed zeros, infinities and NaN included."""
    if DType.string in (wide, narrow) or max(wide.bits, narrow.bits) > 64:
        return False
    if wide is narrow or narrow.kind == "bool":
        return wide is narrow or wide.is_integer or wide in _PRECISION
    if wide.is_float:
        if narrow.is_float:
            return wide in _WIDER.get(narrow, ())
        # The greatest exponent of each of these dtypes is above what its precision lets through.
        return wide in _PRECISION and narrow.bits - narrow.is_signed <= _PRECISION[wide]
    if not (wide.is_integer and narrow.is_integer):
        return False
    return wide.min <= narrow.min and narrow.max <= wide.max


@functools.cache
def passes_through(source: DType, between: DType, target: DType) -> bool:
    """Return whether a cast by way of `between` equals the cast from `source` to `target`, for every value."""
    if not holds(between, source) or is_carried(target) or (target.is_float and target not in _PRECISION):
        return False
    if target is DType.string:
        return False
    if not between.is_float or source.is_float or not target.is_integer:
        return True
    return holds(target, source)  # an integer that is a float saturates, where it would have wrapped


def cast(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Remove a Cast to the dtype that the operand has; skip the inner Cast of two where that is lossless."""
    operand = inputs[0]
    if operand is None or node.attributes.keys() != {"to"} or not _is_known(operand):
        return None
    target = node.attributes["to"]
    if target is operand.dtype:
        return operand
    inner = operand.producer
    if type(inner) is not Node or inner.op_type != "Cast" or inner.domain or inner.attributes.keys() != {"to"}:
        return None
    source = inner.inputs[0]
    if source is None or not _is_known(source) or not passes_through(source.dtype, operand.dtype, target):
        return None
    if source.dtype is target:
        return source if target.storage is target else None  # others may come in with more than they hold
    return sweep.emit(node, (source,))


def _is_known(symbol: Symbol) -> bool:
    """Return whether it is a tensor whose dtype is more than a default."""
    return isinstance(symbol.type, TensorType) and not symbol.type.ambiguous


CASTS: dict[str, tuple[Rule, ...]] = {"Cast": (cast,)}
