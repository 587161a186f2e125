"""Passes that simplify single nodes: casts, algebraic identities, and padding merged into convolutions."""

from __future__ import annotations

import functools

import numpy as np

from graphcore.arrays.casting import Array, cast_array
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.rewrite import Inputs
from graphcore.ir.transform.walk import node_of
from graphcore.passes.sweep import Rule, Sweep
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType, has_storage_axis
from graphcore.types.tensor_types import TensorType


def merge_pad(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Merge the zeros of a Pad into a Conv."""
    x, type_ = inputs[0], node.outputs[0].type
    pad = node_of(x, "Pad")
    if x is None or pad is None or not isinstance(type_, TensorType):
        return None
    source = pad.inputs[0]
    if x.dtype is not DType.float32 or source is None or not x.shape.is_ranked:
        return None
    if node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", b"NOTSET"):
        return None
    spatial = len(x.shape) - 2
    zeros = _added_zeros(sweep, pad, len(x.shape))
    filters = sweep.constant_value(inputs[1])
    if zeros is None or any(a or b for a, b in zeros[:2]) or filters is None or not np.isfinite(filters).all():
        return None
    pads = list(node.attributes.get("pads", [0] * (2 * spatial)))
    begins = [pads[i] + zeros[2 + i][0] for i in range(spatial)]
    ends = [pads[spatial + i] + zeros[2 + i][1] for i in range(spatial)]
    attributes = {**node.attributes, "pads": [*begins, *ends]}
    return sweep.add(node, "Conv", (source, *inputs[1:]), type_, attributes)


def _added_zeros(sweep: Sweep, pad: Node, rank: int) -> list[tuple[int, int]] | None:
    """Return the numbers of zeros that a Pad adds before and after each axis; None if it adds other values."""
    _, amounts, value, axes = (*pad.inputs, None, None)[:4]
    if pad.attributes.get("mode", "constant") not in ("constant", b"constant"):
        return None
    numbers, filled, places = sweep.constant_value(amounts), sweep.constant_value(value), sweep.constant_value(axes)
    if numbers is None or (value is not None and filled is None) or (axes is not None and places is None):
        return None
    if filled is not None and (filled.size != 1 or filled.reshape(-1)[0] != 0 or np.signbit(filled).any()):
        return None
    at = [*range(rank)] if places is None else [int(axis) % rank for axis in places]
    if len(numbers) != 2 * len(at) or (numbers < 0).any() or len({*at}) != len(at):
        return None
    counts = [(0, 0)] * rank
    for i, axis in enumerate(at):
        counts[axis] = int(numbers[i]), int(numbers[len(at) + i])
    return counts


PADDING: dict[str, tuple[Rule, ...]] = {"Conv": (merge_pad,)}


# Cast simplification: casts to the dtype of the operand, and casts of a lossless cast.

# The bits of a significand, including the leading one.
_PRECISION: dict[DType, int] = {
    DType.float8_e5m2: 3,
    DType.float8_e4m3fn: 4,
    DType.bfloat16: 8,
    DType.float16: 11,
    DType.tensor_float32: 11,
    DType.float32: 24,
    DType.float64: 53,
}

# The float dtypes with every value of a narrower one: precision, range, subnormal numbers, infinities and NaN.
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
    """Return True if `wide` has every value of `narrow`, including signed zeros, infinities and NaN."""
    if DType.string in (wide, narrow) or max(wide.bits, narrow.bits) > 64:
        return False
    if wide is narrow or narrow.kind == "bool":
        return wide is narrow or wide.is_integer or wide in _PRECISION
    if wide.is_float:
        if narrow.is_float:
            return wide in _WIDER.get(narrow, ())
        # The precision limits the integers, not the greatest exponent.
        return wide in _PRECISION and narrow.bits - narrow.is_signed <= _PRECISION[wide]
    if not (wide.is_integer and narrow.is_integer):
        return False
    return wide.min <= narrow.min and narrow.max <= wide.max


@functools.cache
def passes_through(source: DType, between: DType, target: DType) -> bool:
    """Return True if casting through `between` equals the cast from `source` to `target` for every value."""
    if not holds(between, source) or has_storage_axis(target) or (target.is_float and target not in _PRECISION):
        return False
    if target is DType.string:
        return False
    if not between.is_float or source.is_float or not target.is_integer:
        return True
    return holds(target, source)  # as a float, an integer saturates in place of wrapping


def cast(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Remove a Cast to the dtype of the operand; skip the inner Cast of two if it is lossless."""
    operand = inputs[0]
    if operand is None or node.attributes.keys() != {"to"} or not _is_known(operand):
        return None
    target = node.attributes["to"]
    if target is operand.dtype:
        return operand
    inner = node_of(operand, "Cast")
    source = None if inner is None or inner.attributes.keys() != {"to"} else inner.inputs[0]
    if source is None or not _is_known(source) or not passes_through(source.dtype, operand.dtype, target):
        return None
    if source.dtype is target:
        return source if target.storage is target else None  # feeds of other dtypes can have excess precision
    return sweep.emit(node, (source,))


def _is_known(symbol: Symbol) -> bool:
    """Return True for a tensor whose dtype is not only a default."""
    return isinstance(symbol.type, TensorType) and not symbol.type.ambiguous


CASTS: dict[str, tuple[Rule, ...]] = {"Cast": (cast,)}


# Algebraic simplification: nodes whose result is an operand, bit for bit and for every value.

_LAST = (1 << 63) - 1  # the end of a slice to the end


def remove_identity(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Remove Identity, and Concat of one operand."""
    return inputs[0] if len(inputs) == 1 else None


def remove_single_operand(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Remove Sum, Mean, Max and Min of one operand, except a Sum in a loaded model, which stops other optimisers."""
    if node.op_type == "Sum" and type(node.origin) is Imported:
        return None
    (operand, *rest) = inputs
    return operand if not rest and operand is not None and _is_plain(operand) else None


def remove_split(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Remove a Split into one part of static shape."""
    return inputs[0] if len(inputs) == 1 or _is_static(node.outputs[0].type) else None


def remove_tile_or_pad(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Remove a Tile by 1 and a Pad by 0."""
    counts = sweep.constant_value(inputs[1]) if len(inputs) > 1 else None
    return inputs[0] if counts is not None and (counts == (node.op_type == "Tile")).all() else None


def remove_reshape(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Remove Reshape, Flatten, Squeeze, Unsqueeze and Expand to the operand's own static shape."""
    (operand, type_) = inputs[0], node.outputs[0].type
    return operand if operand is not None and operand.type is type_ and _is_static(type_) else None


def remove_transpose(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Remove a Transpose that permutes nothing, and two inverse ones."""
    operand = inputs[0]
    if operand is None or not isinstance(operand.type, TensorType) or not operand.shape.is_ranked:
        return None
    axes = _axes(node, operand.rank)
    in_order = list(range(operand.rank))
    if axes == in_order:
        return operand
    inner = node_of(operand, "Transpose")
    if inner is None:
        return None
    before = _axes(inner, operand.rank)
    if sorted(axes) != in_order or sorted(before) != in_order:
        return None
    return inner.inputs[0] if [before[axis] for axis in axes] == in_order else None


def _axes(node: Node, rank: int) -> list[int]:
    return list(node.attributes.get("perm", range(rank - 1, -1, -1)))


def remove_slice(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Remove a forward Slice of all elements."""
    if len(inputs) < 3:
        return None
    operand, starts, ends, _, steps = (*inputs, None, None)[:5]
    if operand is None or operand.type is not node.outputs[0].type:
        return None
    step = sweep.constant_value(steps)
    if steps is not None and (step is None or (step < 1).any()):
        return None
    if _is_static(operand.type):
        return operand  # forward, with all elements
    start, end = sweep.constant_value(starts), sweep.constant_value(ends)
    if start is None or end is None or (step is not None and (step != 1).any()):
        return None
    return operand if not start.any() and (end == _LAST).all() else None


def remove_involution(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Remove pairs of involutions: Not, Neg or BitwiseNot of itself."""
    inner = node_of(inputs[0], node.op_type)
    operand = inner.inputs[0] if inner is not None and len(inner.inputs) == 1 else None
    return operand if operand is not None and _is_plain(operand) else None


# The neutral elements on the right-hand side. x + 0.0 is not x where x is -0.0, and x - (-0.0) neither.
_NEUTRAL: dict[str, dict[str, float | int]] = {
    "Add": {"float": -0.0, "integer": 0},
    "Sub": {"float": 0.0, "integer": 0},
    "Mul": {"float": 1.0, "integer": 1},
    "Div": {"float": 1.0, "integer": 1},
    "And": {"bool": 1},
    **{op: {"bool": 0} for op in ("Or", "Xor")},
    "BitwiseAnd": {"integer": -1},
    "FloorDiv": {"integer": 1},
    **{op: {"integer": 0} for op in ("BitwiseOr", "BitwiseXor", "BitShift", "ShiftLeft", "ShiftRight")},
}
_ONE_SIDED = frozenset({"BitShift", "Div", "FloorDiv", "ShiftLeft", "ShiftRight", "Sub"})


def remove_neutral(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Remove arithmetic with a neutral element."""
    left, right = inputs if len(inputs) == 2 else (None, None)
    if left is None or right is None:
        return None
    if _is_neutral(sweep, node, right, left):
        return left
    if node.op_type not in _ONE_SIDED and _is_neutral(sweep, node, left, right):
        return right
    return None


def _is_neutral(sweep: Sweep, node: Node, symbol: Symbol, other: Symbol) -> bool:
    array = sweep.constant_value(symbol)
    if array is None or not _is_plain(other) or symbol.dtype is not other.dtype:
        return False
    if array.size != 1 and not _is_static(other.type):
        return False
    dtype = other.dtype
    kind = "float" if dtype.is_float else "integer" if dtype.is_integer else dtype.kind.value
    number = _NEUTRAL[node.op_type].get(kind)
    if number is None or not array.size or other.type is not node.outputs[0].type:
        return False
    value = _neutral_value(number, array)
    if array.flat[0] != value or not (array == value).all():  # the first element decides for most
        return False
    return kind != "float" or bool((np.signbit(array.astype(np.float64)) == np.signbit(number)).all())


def _neutral_value(value: float | int, array: Array) -> object:
    if value == -1:
        return cast_array(np.array(-1, np.int64), DType.int64, DType.of(array.dtype))[()]
    return array.dtype.type(value)


def _is_plain(symbol: Symbol) -> bool:
    """Return True if a value has a dtype of ONNX: feeds of other dtypes can have excess precision, and are rounded."""
    type_ = symbol.type
    return isinstance(type_, TensorType) and type_.dtype.storage is type_.dtype and not type_.ambiguous


def _is_static(type_: object) -> bool:
    return isinstance(type_, TensorType) and type_.shape.is_static


IDENTITIES: dict[str, tuple[Rule, ...]] = {
    "Identity": (remove_identity,),
    "Concat": (remove_identity,),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), (remove_single_operand,)),
    "Split": (remove_split,),
    **dict.fromkeys(("Pad", "Tile"), (remove_tile_or_pad,)),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand"), (remove_reshape,)),
    "Transpose": (remove_transpose,),
    "Slice": (remove_slice,),
    **dict.fromkeys(("Not", "Neg", "BitwiseNot"), (remove_involution,)),
    **dict.fromkeys(_NEUTRAL, (remove_neutral,)),
}
