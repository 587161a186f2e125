"""The dtypes of widths that ONNX does not have, and the types that store them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from graphcore.arrays.big_integers import count_of
from graphcore.build.declare import LIBRARY
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol, present
from graphcore.ir.transform.walk import bodies
from graphcore.operators import EVERY, ONNX, ROWS, Trait, having
from graphcore.promotion.allo import MOVES
from graphcore.runtime.lowering.dtypes.integers import concerns
from graphcore.runtime.lowering.dtypes.integers.intervals import known_scalar
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.dtypes import is_wide as is_wide_dtype
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type, _shape, tensor_type


def is_wide(symbol: Symbol | None) -> bool:
    """Return True if a Symbol is an integer of more bits than any of ONNX."""
    return symbol is not None and isinstance(symbol.type, TensorType) and is_wide_dtype(symbol.type.dtype)


def stored_type(type_: Type) -> Type:
    """Return the transport type of a value: wide integers become uint32 digits along a last axis."""
    if isinstance(type_, (SequenceType, OptionalType)):
        return type(type_)(stored_type(type_.element))
    if not isinstance(type_, TensorType) or not concerns(type_):
        return type_
    if is_wide_dtype(type_.dtype):
        digits = _shape([*type_.shape, Dim(count_of(type_.dtype.bits))]) if type_.shape.is_ranked else type_.shape
        return tensor_type(DType.uint32, digits)
    return tensor_type(type_.dtype.storage, type_.shape)


# Operands and results of If, Loop and Scan: wide integers enter and leave bodies as digits.

WHOLE_BODIES = having(Trait.BODIES) - {"SequenceMap"}  # only `ops.onnx` builds it
"""Operators with bodies, whose operands and results are within their widths, wide ones as digits."""


def is_count(node: Node, position: int) -> bool:
    """Return True if an operand of If, Loop or Scan is a condition or a number of iterations."""
    return position < {"If": 1, "Loop": 2}.get(node.op_type, 0)


# Operators whose low result bits depend only on the low bits of their operands, and the number of bits used.

LOOKS = (having(Trait.COMPARES) & ONNX) | {"Cast", "NotEqual"}  # graphcore's other comparisons are of bools
"""Operators whose results depend on all bits of wide operands."""

ZEROS = having(Trait.FILLS) & MOVES
"""Moves that may insert zeros."""

_RING = having(Trait.RING) - {"ReduceSumSquare"}  # not supported for wide integers
_ARITHMETIC: Mapping[str, Collection[int]] = {
    **dict.fromkeys(_RING, EVERY),
    **dict.fromkeys(
        (_RING & having(Trait.REDUCES)) | {"ShiftLeft"}, (0,)
    ),  # the other operands are axes and bit counts
}


def low_operands(node: Node) -> Collection[int]:
    """Return the operands of which a node uses no more bits than are used of its result."""
    if node.domain not in ("", LIBRARY):
        return ()
    if node.op_type in MOVES:
        scattered = node.op_type.startswith("Scatter") and node.attributes.get("reduction", "none") not in (
            "none", b"none", "add", b"add", "mul", b"mul",
        )  # fmt: skip
        return () if scattered else ROWS[node.op_type].data
    if node.op_type == "BitShift":
        return (0,) if node.attributes["direction"] in ("LEFT", b"LEFT") else ()
    if node.op_type == "IntegerPow":
        power = known_scalar(node.inputs[1])
        return (0,) if power is not None and power >= 0 else ()
    return _ARITHMETIC.get(node.op_type, ())


def narrowed(graph: Graph) -> frozenset[int]:
    """Return the ids of wide results of which only the low 64 bits are used: they are computed in int64."""
    used: dict[int, int] = {s.id: s.type.dtype.bits for s in graph.outputs if is_wide(s)}
    for node in graph.nodes:
        for body in bodies(node):
            used.update(dict.fromkeys(body.scope.captured, 1 << 62))
    narrow: set[int] = set()
    for node in reversed(graph.nodes):
        if not any(map(is_wide, (*node.inputs, *node.outputs))):
            continue
        max_bits = max(used.get(s.id, 0) for s in node.outputs)
        low = _low_of_wide(node, max_bits)
        if max_bits <= 64 and low is not None:
            narrow.update(s.id for s in node.outputs if is_wide(s))
        for position, symbol in enumerate(node.inputs):
            if symbol is not None and is_wide(symbol):
                bits = max_bits if low is not None and position in low else symbol.type.dtype.bits
                used[symbol.id] = max(used.get(symbol.id, 0), bits)
    return frozenset(narrow)


def _low_of_wide(node: Node, used: int) -> Collection[int] | None:
    """Return the operands of a node on wide integers that need no more bits than its result; None if all bits count."""
    if node.op_type == "Cast" and not node.domain:
        source = present(node.inputs[0])
        from_, to = source.type.dtype, node.outputs[0].type.dtype
        if not to.is_integer or not from_.is_integer:
            return None
        return (0,) if min(used, to.bits) <= from_.bits or not is_wide_dtype(from_) else None
    low = low_operands(node)
    if not low or not is_wide(node.outputs[0]):
        return None
    others = [s for i, s in enumerate(node.inputs) if i not in low and is_wide(s)]
    return low if all(_is_small(s) for s in others) else None


def _is_small(symbol: Symbol | None) -> bool:
    value = known_scalar(symbol)
    return value is not None and abs(value) < 1 << 62
