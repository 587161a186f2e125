"""The dtypes of widths that ONNX lacks, and the types that store them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from graphcore.arrays.big_integers import count_of
from graphcore.build.declare import LIBRARY
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, Symbol
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
    """Return whether a Symbol is an integer of more bits than any that ONNX has."""
    return symbol is not None and isinstance(symbol.type, TensorType) and is_wide_dtype(symbol.type.dtype)


def stored_type(type_: Type) -> Type:
    """The type that carries it outside of the graph: wide integers as uint32 digits along a last axis."""
    if isinstance(type_, (SequenceType, OptionalType)):
        return type(type_)(stored_type(type_.element))
    if not isinstance(type_, TensorType) or not concerns(type_):
        return type_
    if is_wide_dtype(type_.dtype):
        digits = _shape([*type_.shape, Dim(count_of(type_.dtype.bits))]) if type_.shape.is_ranked else type_.shape
        return tensor_type(DType.uint32, digits)
    return tensor_type(type_.dtype.storage, type_.shape)


# Operands and results of If, Loop and Scan: wide integers go into bodies and out of them as digits.

WHOLE_BODIES = having(Trait.BODIES) - {"SequenceMap"}  # which `ops.onnx` alone builds
"""Operators whose results are those of bodies, which take and give them within their widths, wide ones as digits."""


def is_count(node: Node, position: int) -> bool:
    """Return whether an operand of If, Loop or Scan is a condition or a number of iterations."""
    return position < {"If": 1, "Loop": 2}.get(node.op_type, 0)


def with_axes_of_digits(node: Node, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attributes of a Scan whose wide operands have one more axis, the last: axes are counted before it."""
    made = dict(attributes)
    scanned = node.inputs[len(node.inputs) - int(made["num_scan_inputs"]) :]
    stacked = node.outputs[len(node.inputs) - int(made["num_scan_inputs"]) :]
    for key, symbols in (("scan_input_axes", scanned), ("scan_output_axes", stacked)):
        if key in made:
            made[key] = [axis - (axis < 0 and is_wide(s)) for axis, s in zip(made[key], symbols, strict=True)]
    return made


# Operators the low bits of whose results depend on the low bits of their operands alone; how many bits are used.

LOOKS = (having(Trait.COMPARES) & ONNX) | {"Cast", "NotEqual"}  # the library's other comparisons are those of bools
"""Operators that take wide operands and give other results."""

ZEROS = having(Trait.FILLS) & MOVES
"""Moves that may put zeros among the values."""

_RING = having(Trait.RING) - {"ReduceSumSquare"}  # which takes no wide integers
_ARITHMETIC: Mapping[str, Collection[int]] = {
    **dict.fromkeys(_RING, EVERY),
    **dict.fromkeys((_RING & having(Trait.REDUCES)) | {"ShiftLeft"}, (0,)),  # the others are axes and counts of bits
}


def low_operands(node: Node) -> Collection[int]:
    """The operands of which a node uses no more bits than there are used of its result."""
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
    """The numbers of the wide results of which nothing uses more than the low 64 bits: they are computed in int64."""
    used: dict[int, int] = {s.id: s.type.dtype.bits for s in graph.outputs if is_wide(s)}
    for node in graph.nodes:
        for body in bodies(node):
            used.update(dict.fromkeys(body.scope.captured, 1 << 62))
    found: set[int] = set()
    for node in reversed(graph.nodes):
        if not any(map(is_wide, (*node.inputs, *node.outputs))):
            continue
        most = max(used.get(s.id, 0) for s in node.outputs)
        low = _low_of_wide(node, most)
        if most <= 64 and low is not None:
            found.update(s.id for s in node.outputs if is_wide(s))
        for position, symbol in enumerate(node.inputs):
            if symbol is not None and is_wide(symbol):
                bits = most if low is not None and position in low else symbol.type.dtype.bits
                used[symbol.id] = max(used.get(symbol.id, 0), bits)
    return frozenset(found)


def _low_of_wide(node: Node, used: int) -> Collection[int] | None:
    """The operands of a node on wide integers that need no more bits than its result; None where all bits count."""
    if node.op_type == "Cast" and not node.domain:
        source = node.inputs[0]
        assert source is not None
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
    return (
        value is not None
        and isinstance(symbol, Symbol)
        and isinstance(symbol.producer, Constant)
        and abs(value) < 1 << 62
    )
