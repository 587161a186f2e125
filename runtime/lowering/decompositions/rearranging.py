"""Operators that move elements: by Gather, Reshape and Transpose."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.build.builder import Builder, OpCall, Replacement
from graphcore.runtime.lowering.build.casts import compute_in
from graphcore.runtime.lowering.decompositions import older
from graphcore.runtime.lowering.decompositions.shape_arithmetic import (
    calculate,
    count_up,
    lengths,
    reshape,
    shape_of,
    symbol,
    times,
    transpose,
)
from graphcore.runtime.lowering.targets.traps import REVERSED_EMPTY, REVERSED_ONE_AXIS
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape, tensor_type


def where_bool(b: Builder, call: OpCall) -> Replacement:
    condition, x, y = call.inputs
    return b.native("Or", b.native("And", condition, x), b.native("And", b.native("Not", condition), y))


def where_bits(b: Builder, call: OpCall) -> Replacement:
    """Compute Where on the bits of floats as integers: the float kernel uses a -0.0 of x even where it is not chosen.

    A constant without zeros can be x. If y is such a constant, the operands swap; with Not onnxruntime would undo that.
    """
    condition, x, y = call.inputs
    dtype = x.dtype
    if _has_no_zeros(b, x):
        return None
    if _has_no_zeros(b, y):
        opposite = b.native("Xor", condition, b.scalar(True, DType.bool))
        return b.native(call.op, opposite, y, x, dtype=dtype, shape=call.shape)
    if not b.rules.views_bits:
        return _where_signed(b, condition, x, y, call.types)
    bits = DType.int32 if dtype is DType.float32 else DType.int64
    x, y = b.view(x, bits), b.view(y, bits)
    if _compares_values(b, condition) and b.rules.allows("BitwiseXor", bits):
        # The kernel branches for each element: where that is unpredictable it takes three times as long as these four.
        first, second = sorted((x, y), key=lambda symbol: symbol.id)  # as in the Where of the exchanged operands
        mask = b.native("Neg", b.native_cast(condition, bits))
        difference = b.native("BitwiseAnd", b.native("BitwiseXor", first, second), mask)
        result = b.native("BitwiseXor", y, difference, shape=call.shape)
    else:
        result = b.native(call.op, condition, x, y, dtype=bits, shape=call.shape)
    return b.native("BitCast", result, dtype=dtype, to=dtype)


def _compares_values(b: Builder, condition: Symbol) -> bool:
    """Return True for a comparison of floats of which none is a constant."""
    node = condition.producer
    if not isinstance(node, Node) or node.op_type not in ("Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
        return False
    return all(s is not None and s.dtype.is_float and b.array_of(s) is None for s in node.inputs)


def _where_signed(b: Builder, condition: Symbol, x: Symbol, y: Symbol, types: Any) -> Symbol:
    """Return the kernel's result, negated where a -0.0 of x lost its sign: for targets without BitCast."""
    dtype = x.dtype
    zero, one = b.scalar(0.0, dtype), b.scalar(1.0, dtype)
    below = b.native("Less", b.native("Reciprocal", x), zero, dtype=DType.bool)
    lost = b.native("And", b.native("Equal", x, zero, dtype=DType.bool), below)
    lost = b.native("And", condition, lost)
    chosen = b.native("Where", condition, x, y, dtype=dtype, shape=types[0].shape)
    # For a condition of one element the kernel is correct: then the sign is there already.
    above = b.native("Greater", b.native("Reciprocal", chosen), zero, dtype=DType.bool)
    sign = b.native("Where", b.native("And", lost, above), b.scalar(-1.0, dtype), one, dtype=dtype)
    return b.native("Mul", chosen, sign, shape=types[0].shape)


def _has_no_zeros(b: Builder, symbol: Symbol) -> bool:
    array = b.array_of(symbol)
    return array is not None and bool(array.size) and not (array == 0).any()


def top_k_floats(b: Builder, call: OpCall) -> Replacement:
    """Compute TopK of floats on integers of the same order, with NaN as the maximum, which the kernel misplaces."""
    x, k = call.inputs
    keys = _in_order(b, x)
    types = [t.cast(keys.dtype) if t.dtype is x.dtype else t for t in call.types]
    _, positions = b.legal(call._replace(inputs=[keys, k], types=types))
    axis = call.attributes.get("axis", -1)
    return b.native("GatherElements", x, positions, shape=call.shape, axis=axis), positions


def unique_floats(b: Builder, call: OpCall) -> Replacement:
    """Compute Unique of floats on integers of the same order, with all NaN equal; the kernel loses NaN."""
    (x,) = call.inputs
    keys = _in_order(b, x)
    first = call.types[1] if len(call.types) > 1 else tensor_type(DType.int64, _shape([Dim.dynamic()]))
    types = [call.types[0].cast(keys.dtype), first, *call.types[2:]]
    _, places, *others = b.legal(call._replace(inputs=[keys], types=types))
    if "axis" not in call.attributes:
        x = b.native("Reshape", x, b.vector([-1]), shape=_shape([x.shape.size]))
    y = b.native("Gather", x, places, shape=call.shape, axis=call.attributes.get("axis", 0))
    return (y, places, *others)[: len(call.types)]


def _in_order(b: Builder, x: Symbol) -> Symbol:
    """Return integers in the order of floats: equal for both zeros, and the largest for NaN."""
    whole = DType.int32 if x.dtype is DType.float32 else DType.int64
    least = -(1 << (whole.bits - 1))
    bits = b.view(x, whole)
    below = b.native("Less", bits, b.scalar(0, whole), dtype=DType.bool)
    keys = b.native("Where", below, b.native("Sub", b.scalar(least, whole), bits), bits, dtype=whole)
    unknown = b.native("IsNaN", x, dtype=DType.bool)
    return b.native("Where", unknown, b.scalar(-least - 1, whole), keys, dtype=whole)


# Operators that move elements, by operators that have a kernel for every dtype.


def depth_and_space(b: Builder, call: OpCall) -> Replacement:
    """Compute DepthToSpace and SpaceToDepth: move the axes of a block out of the channels or into them."""
    (x,) = call.inputs
    block = call.attributes["blocksize"]
    columns_first = call.attributes.get("mode", "DCR") == "CRD"
    batch, channels, height, width = lengths(b, x, range(4))
    if call.op == "DepthToSpace":
        depth = calculate(b, "Div", channels, block * block)
        split = [depth, block, block] if columns_first else [block, block, depth]
        order = [0, 1, 4, 2, 5, 3] if columns_first else [0, 3, 4, 1, 5, 2]
        result = transpose(b, reshape(b, x, [batch, *split, height, width]), order)
        sizes = [batch, depth, calculate(b, "Mul", height, block), calculate(b, "Mul", width, block)]
    else:
        height, width = calculate(b, "Div", height, block), calculate(b, "Div", width, block)
        order = [0, 1, 3, 5, 2, 4] if columns_first else [0, 3, 5, 1, 2, 4]
        result = transpose(b, reshape(b, x, [batch, channels, height, block, width, block]), order)
        sizes = [batch, calculate(b, "Mul", channels, block * block), height, width]
    return b.op("Identity", reshape(b, result, sizes), shape=call.shape)


def space_to_depth(b: Builder, call: OpCall) -> Replacement:
    """Compute SpaceToDepth with a mode, which the kernel does not support."""
    return depth_and_space(b, call) if "mode" in call.attributes else None


# Operators that move strings: move their indices, and look the strings up.

_SEVERAL_STRINGS = frozenset({"Pad", "TensorScatter"})
"""Operators with more than one operand of strings."""


def move_strings(b: Builder, call: OpCall) -> Replacement:
    """Compute a move of strings by their indices; index 0 is the empty string, because operators pad with zeros."""
    _check(call)
    dtype = DType.int32 if call.op in ("Resize", "GridSample") else DType.int64
    texts = [b.constant(np.array([""], object), DType.string)]
    seen: Any = np.asarray(1, np.int64)
    operands: list[Symbol | None] = []
    for position, operand in enumerate(call.inputs):
        if operand is None or operand.dtype is not DType.string or (position and call.op not in _SEVERAL_STRINGS):
            operands.append(operand)
            continue
        size = times(b, lengths(b, operand, range(operand.rank)))
        numbers = symbol(b, calculate(b, "Add", count_up(b, size), seen))
        numbers = b.native("Reshape", numbers, shape_of(b, operand), shape=operand.shape, allowzero=1)
        operands.append(b.cast(numbers, dtype))
        texts.append(b.native("Reshape", operand, b.vector([-1]), shape=_shape([Dim.dynamic()])))
        seen = calculate(b, "Add", seen, size)
    all_texts = b.native("Concat", *texts, shape=_shape([Dim.dynamic()]), axis=0)
    places = b.op(call.op, *operands, dtype=dtype, shape=call.shape, **call.attributes)
    return b.native("Gather", all_texts, b.cast(places, DType.int64), shape=call.shape)


def _check(call: OpCall) -> None:
    mode = call.attributes.get("mode", "linear" if call.op == "GridSample" else "nearest")
    if call.op not in ("Resize", "GridSample") or mode == "nearest":
        return
    raise GraphError(
        f"{call.op}: mode {mode!r} averages elements, and strings have no average",
        operands={"X": str(call.inputs[0].type)},
        help="use mode='nearest', which supports strings",
    )


def nonzero(b: Builder, call: OpCall) -> Replacement:
    """Compute NonZero of strings: the positions of strings that are not empty."""
    empty = b.native("Equal", call.inputs[0], b.constant(np.array("", object), DType.string), dtype=DType.bool)
    return b.op("NonZero", b.native("Not", empty), dtype=DType.int64, shape=call.shape)


def refuse_sum_of_strings(b: Builder, call: OpCall) -> Replacement:
    raise GraphError(
        f"{call.op}: it adds overlapping elements, and strings have no sum",
        operands={"input": str(call.inputs[0].type)},
        help="use indices in place of the strings, and look the strings up afterwards: ops.gather",
    )


# ReverseSequence of operands on which its kernel crashes, or leaves the result unwritten.


def reverse(b: Builder, call: OpCall) -> Replacement:
    """Compute ReverseSequence of lengths that may be 0, and of operands whose rank is known at run time only.

    The kernel does not write a sequence of length 0: reversing only the first element writes it unchanged, and an axis
    without elements has none. It crashes on operands of one axis: here a Gather of the length of the second one fails.
    """
    x, lengths = call.inputs
    safe_lengths = lengths
    if not x.type.shape.is_ranked and b.rules.has_trap(REVERSED_ONE_AXIS):
        second = b.op("Gather", shape_of(b, x), b.vector([1]), axis=0)
        safe_lengths = b.op("Add", lengths, b.op("Mul", second, b.vector([0])), shape=lengths.shape)
    array = b.array_of(lengths)
    if b.rules.has_trap(REVERSED_EMPTY) and (array is None or not (array > 0).all()):
        size = older.size_of(b, x, call.attributes.get("time_axis", 0))
        least = b.op("Min", b.vector([1]), size, dtype=DType.int64, shape=_shape([Dim(1)]))
        safe_lengths = b.op("Max", safe_lengths, least, dtype=DType.int64, shape=lengths.shape)
    if safe_lengths is lengths:
        return None
    return b.emit_many(call.op, (x, safe_lengths), call.types, call.attributes)


# Scatters that combine floats: onnxruntime has none for narrow floats, and their maxima and minima lose NaN.


def scatter_narrow(b: Builder, call: OpCall) -> Any:
    """Compute a scatter of narrow floats in float32: several updates of one element are rounded once."""
    if call.attributes.get("reduction", "none") == "none":
        return None
    return compute_in(b, DType.float32, call)


def scatter_with_nan(b: Builder, call: OpCall) -> Symbol | None:
    """Compute a scatter with NaN preserved: the kernels keep the operand that is not NaN, or the later one."""
    if call.attributes.get("reduction") not in ("max", "min"):
        return None
    x, indices, updates = call.inputs
    result = b.native(call.op, x, indices, updates, shape=call.shape, **call.attributes)
    marks = [b.native("IsNaN", s, dtype=DType.bool) for s in (x, updates)]
    # The sum of bools is a logical or: true wherever a NaN is or arrives. Devices have no kernel that combines bools.
    reduction = "add"
    if not b.rules.target.is_host:
        marks, reduction = [b.native_cast(s, DType.int32) for s in marks], "max"
    options = {**call.attributes, "reduction": reduction}
    has_nan = b.native(call.op, marks[0], indices, marks[1], shape=call.shape, **options)
    any_unknown = has_nan if b.rules.target.is_host else b.native_cast(has_nan, DType.bool)
    return b.native("Where", any_unknown, b.scalar(float("nan"), x.dtype), result, dtype=x.dtype, shape=call.shape)
