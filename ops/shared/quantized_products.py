"""Quantising, dequantising and products of quantised weights in ONNX's operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from graphcore.build import primitives as e
from graphcore.ir.symbol import Constant, Node, Symbol, present
from graphcore.ir.transform.walk import constant_array
from graphcore.ops.shared import blocks as _blocks
from graphcore.ops.shared.blocks import halves, whole
from graphcore.quantization.tensors import BASE, nibbles
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type

_F32 = DType.float32
_SCALED_ENCODINGS = ("int8", "int8_split")
Quantised = tuple[Symbol, ...]


# Quantising


def quantized(x: Symbol, encoding: str, symmetric: bool, axis: int | None, block: int) -> Quantised:
    """Quantise float32: return values, scales and, unless symmetric, zero points, with the arithmetic of `encode`."""
    x = e.cast(x, _F32)
    if encoding == "int8":
        others = [a for a in range(x.rank) if a != axis]
        values, *rest = _int8(x, others) if symmetric else _asymmetric(x, others, 255)
        ends = _shape([] if axis is None else [x.shape[axis]])
        return values, *(_reshaped(s, [-1] * len(ends), ends) for s in rest)
    *leading, last = x.shape
    count = int(last) // block
    split = _shape([*leading, Dim(count), Dim(block)])
    blocks = e.emit("Reshape", x, e.ints(x, [*[0] * len(leading), count, block]), shape=split)
    values, *rest = _int4(blocks) if symmetric else _asymmetric(blocks, [x.rank], 15)
    numbers = e.emit("Reshape", values, e.ints(x, [*[0] * len(leading), int(last)]), shape=x.shape)
    results = [numbers, *(e.squeeze(s, -1) for s in rest)]
    return tuple(e.cast(s, DType.uint4) if s.dtype is DType.uint8 else s for s in results)


def _extreme(op_type: str, x: Symbol, axes: Sequence[int]) -> Symbol:
    """Return the maximum along axes, at least 0, or the minimum, at most 0."""
    ends = _shape([Dim(1) if a in axes else d for a, d in enumerate(x.shape)])
    zero = e.const(x, 0.0)
    if not axes:
        extreme = x
    else:
        extreme = e.emit(f"Reduce{op_type}", x, e.ints(x, axes), shape=ends, keepdims=1)
    return e.emit(op_type, extreme, zero, shape=ends)


def _nonzero_scale(scale: Symbol) -> Symbol:
    """Replace scales of 0 by 1."""
    return e.where(e.equal(scale, e.const(scale, 0.0)), e.const(scale, 1.0), scale)


def _clip_and_cast(numbers: Symbol, low: int, high: int, dtype: DType) -> Symbol:
    inside = e.emit("Clip", numbers, e.const(numbers, float(low)), e.const(numbers, float(high)), shape=numbers.shape)
    return e.cast(inside, dtype)


def _rounded(x: Symbol, scale: Symbol) -> Symbol:
    return e.emit("Round", e.emit("Div", x, scale))


def _int8(x: Symbol, axes: Sequence[int]) -> Quantised:
    scale = _nonzero_scale(e.emit("Div", _extreme("Max", e.emit("Abs", x), axes), e.const(x, 127.0)))
    return _clip_and_cast(_rounded(x, scale), -127, 127, DType.int8), scale


def _int4(blocks: Symbol) -> Quantised:
    axes = [blocks.rank - 1]
    greatest, least = _extreme("Max", blocks, axes), _extreme("Min", blocks, axes)
    far = e.where(e.greater(greatest, e.emit("Neg", least)), greatest, least)
    scale = _nonzero_scale(e.emit("Div", far, e.const(blocks, -8.0)))
    numbers = e.emit("Add", _rounded(blocks, scale), e.const(blocks, 8.0))
    return _clip_and_cast(numbers, 0, 15, DType.uint8), scale


def _asymmetric(x: Symbol, axes: Sequence[int], max_level: int) -> Quantised:
    greatest, least = _extreme("Max", x, axes), _extreme("Min", x, axes)
    scale = _nonzero_scale(e.emit("Div", e.emit("Sub", greatest, least), e.const(x, float(max_level))))
    zero = _rounded(e.emit("Neg", least), scale)
    zero = e.emit("Clip", zero, e.const(x, 0.0), e.const(x, float(max_level)), shape=zero.shape)
    numbers = _clip_and_cast(e.emit("Add", _rounded(x, scale), zero), 0, max_level, DType.uint8)
    return numbers, scale, e.cast(zero, DType.uint8)


# Dequantisation


def dequantized(encoding: str, values: Symbol, parts: Sequence[Symbol], axis: int, block: int) -> Symbol:
    """Return the decoded tensor in float32; constants in GGUF blocks are decoded by DequantizeLinear."""
    array = constant_array(values, outer=True)
    if encoding == "int4":
        values, scale, zero = _of_int4(values, parts)
        options = {"axis": values.rank - 1, "block_size": block}
        return e.emit("DequantizeLinear", values, scale, zero, dtype=_F32, shape=values.shape, **options)
    if encoding in _SCALED_ENCODINGS or array is None:
        return computed(encoding, values, parts, axis, block)
    return _blocks.from_known(encoding, values, array)


def computed(encoding: str, values: Symbol, parts: Sequence[Symbol], axis: int, block: int) -> Symbol:
    """Dequantise by arithmetic.

    onnxruntime fuses DequantizeLinear of an int8 weight and a product into one that rounds x to int8, an error of 1 %.
    """
    if encoding not in (*_SCALED_ENCODINGS, "int4"):
        return _blocks.from_bytes(encoding, values)
    shape = values.shape
    if encoding in _SCALED_ENCODINGS:
        scale, *zeros = parts
        numbers = whole(values) if encoding == "int8_split" else e.cast_within(values, _F32)  # files store bytes
        shape = numbers.shape
        ends = [1] * numbers.rank
        if scale.rank:
            ends[axis] = -1
        columns = [
            _reshaped(s, ends, [d if n < 0 else Dim(1) for d, n in zip(shape, ends, strict=True)])
            for s in (e.cast(z, _F32) for z in (scale, *zeros))
        ]
        for zero in columns[1:]:
            numbers = e.emit("Sub", numbers, zero, shape=shape)
        return e.emit("Mul", numbers, columns[0], shape=shape)
    values, scale, zero = _of_int4(values, parts)
    shape = values.shape
    *leading, last = shape
    count = int(last) // block
    blocks = _reshaped(e.cast(values, _F32), [*[0] * len(leading), count, block], [*leading, Dim(count), Dim(block)])
    columns = [e.unsqueeze(e.cast(s, _F32), -1) for s in (scale, zero)]
    scaled = e.emit("Mul", e.emit("Sub", blocks, columns[1]), columns[0])
    return _reshaped(scaled, [*[0] * len(leading), int(last)], shape)


def _reshaped(x: Symbol, target: Sequence[int], shape: Sequence[Dim]) -> Symbol:
    return e.emit("Reshape", x, e.ints(x, target), shape=_shape(shape))


def _of_int4(values: Symbol, parts: Sequence[Symbol]) -> tuple[Symbol, Symbol, Symbol]:
    """Return values, scales and zero points; values and zero points in uint4."""
    scale, *zeros = parts
    if values.dtype is DType.uint8:
        values = _unpacked(values)
    if zeros:
        return values, scale, e.cast(zeros[0], DType.uint4)
    array = constant_array(scale, outer=True)
    if array is not None:
        eights = np.full(array.shape, 8, np.uint8).astype(DType.uint4.numpy)
        return values, scale, values.graph.build.constant(eights, DType.uint4)
    counts = e.emit("Shape", scale, dtype=DType.int64, shape=Shape([scale.rank]))
    wide = e.emit("Expand", e.const(scale, 8, DType.uint8), counts, dtype=DType.uint8, shape=scale.shape)
    return values, scale, e.cast(wide, DType.uint4)


def _unpacked(packed: Symbol) -> Symbol:
    """Unpack uint4, two per byte."""
    *leading, last = packed.shape
    shape = _shape([*leading, Dim(2 * int(last))])
    array = constant_array(packed, outer=True)
    if array is not None:
        return packed.graph.build.constant(nibbles(array).astype(DType.uint4.numpy), DType.uint4)
    low = e.emit("BitwiseAnd", packed, e.const(packed, 15))
    high = e.emit("BitShift", packed, e.const(packed, 4), direction="RIGHT")
    both = e.emit(
        "Concat", e.unsqueeze(low, -1), e.unsqueeze(high, -1), shape=_shape([*leading, last, Dim(2)]), axis=packed.rank
    )
    flat = e.emit("Reshape", both, e.ints(both, [*[0] * len(leading), 2 * int(last)]), shape=shape)
    return e.cast(flat, DType.uint4)


# Products


def product(x: Symbol, weight: Symbol) -> Symbol:
    """Return x @ weight.T in the dtype of x."""
    transposed = e.transpose(weight, [1, 0])
    return e.emit("MatMul", x, e.cast(transposed, x.dtype), shape=x.shape[:-1] + weight.shape[:1])


def dynamic_product(x: Symbol, values: Symbol, scale: Symbol, *zeros: Symbol) -> Symbol:
    """Quantise x as one tensor, multiply the integers, and multiply their sums by both scales."""
    dtype, x = x.dtype, e.cast(x, _F32)
    numbers, _, x_scale, x_zero = levels(x)
    shape = x.shape[:-1] + values.shape[:1]
    transposed = e.transpose(values, [1, 0])
    sums = e.emit("MatMulInteger", numbers, transposed, x_zero, *zeros, dtype=DType.int32, shape=shape)
    both = e.emit("Mul", x_scale, scale)
    return e.cast(e.emit("Mul", e.cast(sums, _F32), both, shape=shape), dtype)


class Levels(NamedTuple):
    """float32 x as one tensor of uint8: (numbers - zero) * exact. scale: exact, or NaN where x has NaN or infinity."""

    numbers: Symbol
    exact: Symbol
    scale: Symbol
    zero: Symbol


def levels(x: Symbol) -> Levels:
    """Quantise x by DynamicQuantizeLinear, once for all products that read it."""
    cache = x.graph.memory.values
    keys = [("levels", x.id, name) for name in Levels._fields]  # products of queries, keys and values share one x
    if keys[0] in cache:
        return Levels(*(cache[key] for key in keys))
    types = [tensor_type(d, s) for d, s in ((DType.uint8, x.shape), (_F32, _shape([])), (DType.uint8, _shape([])))]
    numbers, exact, zero = x.graph.build.emit_many("DynamicQuantizeLinear", (x,), types)
    result = Levels(numbers, exact, e.emit("Add", exact, flaw(x)), zero)
    cache.update(zip(keys, result, strict=True))
    return result


def flaw(x: Symbol) -> Symbol:
    """Return 0, or NaN if x has NaN or infinity, for which DynamicQuantizeLinear returns arbitrary numbers.

    Multiplies a row of zeros by x: kernels read x once in memory order, three times as fast as x times a column.
    """
    *leading, inner = x.shape
    if not leading or (len(leading) > 1 and not inner.is_static):
        return e.emit("ReduceSum", flaws(x, inner), shape=_shape([]), keepdims=0)
    rows = math.prod(leading, start=Dim(1))
    if len(leading) > 1:  # onnxruntime fails on the product of an empty batch with a row
        x = e.emit("Reshape", x, e.ints(x, [-1, int(inner)]), shape=_shape([rows, inner]))
    sums = e.emit("MatMul", _zeros(x, rows), x, shape=_shape([Dim(1), inner]))
    return e.emit("ReduceSum", sums, shape=_shape([]), keepdims=0)


def _zeros(x: Symbol, rows: Dim) -> Symbol:
    """Return zeros [1, rows], cached for all x with as many rows."""
    cache, key = x.graph.memory.values, ("zeros", x.id if rows.is_dynamic else rows)
    if key in cache:
        return cache[key]
    if rows.is_static:
        zeros = x.graph.build.constant(np.zeros((1, int(rows)), np.float32), _F32)
    else:
        count = e.emit("Shape", x, dtype=DType.int64, shape=Shape([1]), start=-2, end=-1)
        both = e.emit("Concat", e.ints(x, [1]), count, shape=Shape([2]), axis=0)
        zeros = e.emit("Expand", e.const(x, 0.0), both, shape=_shape([Dim(1), rows]))
    cache[key] = zeros
    return zeros


def flaws(x: Symbol, inner: Dim, *, has_few_rows: bool = False) -> Symbol:
    """Return 0 for each row of x, or NaN where the row has NaN or infinity: [..., 1]. inner: the length of a row.

    has_few_rows: sum zeros. The product with a column reads 16 columns (2 to 4 % of a step of a decoder of 4 bits), and
    is faster from 1000 rows on.
    """
    cache, key = x.graph.memory.values, ("flaws", x.id, has_few_rows)
    if key in cache:  # products of queries, keys and values share one x
        return cache[key]
    shape = x.shape[:-1] + _shape([Dim(1)])
    if has_few_rows or not inner.is_static:
        zeros = e.emit("Mul", x, e.const(x, 0.0))
        cache[key] = e.emit("ReduceSum", zeros, e.ints(x, [x.rank - 1]), shape=shape, keepdims=1)
    else:
        column = x.graph.build.constant(np.zeros((int(inner), 1), np.float32), _F32)
        cache[key] = e.emit("MatMul", x, column, shape=shape)
    return cache[key]


def is_flaw(symbol: Symbol | None) -> bool:
    """Return True if it is a sum of products with zeros, always 0 or NaN: the order of its sums does not matter."""
    node, op_type = symbol.producer if symbol is not None else None, "MatMul"
    if isinstance(node, Node) and node.op_type == "ReduceSum" and not node.domain:
        node, op_type = present(node.inputs[0]).producer, "Mul"
    if not isinstance(node, Node) or node.op_type != op_type or node.domain:
        return False
    factor = node.inputs[1]
    return factor is not None and type(factor.producer) is Constant and not factor.producer.array.any()


# Products of operands split into digits of 8 bits: three integer products, or two for a weight of one digit.
#
# x is s (a1 - z) + s / 254 (a2 - 128), where s and z are those of DynamicQuantizeLinear, whose error is at most s / 2:
# 127 in the second digit. A weight is t (254 w1 + w2). So the sum of products is s t (254 (a1 - z) w1 + (a1 - z) w2 +
# (a2 - 128) w1), three sums that are exact in int32, and the product of the second digits, which is omitted. The result
# is the first one, in float32, plus the sum of the other two. Where a weight is t w1 alone, the result is
# s t (a1 - z) w1 plus s / 254 t (a2 - 128) w1.

_MAX_ROW_LENGTH = 65_000
"""The sum of this many products of 255 * 127 fits in int32."""

MIDDLE = 128
"""The zero point of second digits of x."""

_BYTE = DType.uint8
_LEAST = float(np.finfo(np.float32).smallest_subnormal)


def is_summed(values: Symbol) -> bool:
    """Return True if products of a weight are integer sums: it is not empty, and the sum of a row fits in int32."""
    _, columns, inner = values.shape
    return 0 not in (columns, inner) and not (inner.is_static and int(inner) > _MAX_ROW_LENGTH)


class ActivationDigits(NamedTuple):
    """x split into two digits.

    scale, zero: of the first digit; the scale is NaN if x has NaN or infinity. finer: the scale of the second.
    """

    first: Symbol
    second: Symbol
    scale: Symbol
    zero: Symbol
    finer: Symbol


def digits(x: Symbol) -> ActivationDigits:
    """Split float32 x into digits, once for all products that read it."""
    cache = x.graph.memory.values
    keys = [("digits", x.id, name) for name in ActivationDigits._fields]
    if keys[0] in cache:
        return ActivationDigits(*(cache[key] for key in keys))
    first, exact, scale, zero = levels(x)
    near = e.emit("DequantizeLinear", first, exact, zero, dtype=_F32, shape=x.shape)
    rest = e.emit("Sub", x, near, shape=x.shape)
    # For numbers near the smallest float32 the quotient would be 0.
    finer = e.emit("Max", e.emit("Mul", exact, e.const(x, 1 / BASE)), e.const(x, _LEAST))
    middle = e.const(x, MIDDLE, _BYTE)
    second = e.emit("QuantizeLinear", rest, finer, middle, dtype=_BYTE, shape=x.shape)
    result = ActivationDigits(first, second, scale, zero, finer)
    cache.update(zip(keys, result, strict=True))
    return result


def split_product(x: Symbol, values: Symbol, scale: Symbol, *, is_unsigned: bool = False) -> Symbol:
    """Return x @ weight.T for a weight of two digits, in ONNX's operators.

    is_unsigned: read the weight's digits as uint8 around 128, for processors on which products of signed bytes
    saturate.
    """
    dtype, x = x.dtype, e.cast(x, _F32)
    a = digits(x)
    middle = e.const(x, MIDDLE, _BYTE)
    parts = [*halves(values)]
    if is_unsigned:
        parts = [e.emit("BitwiseXor", e.bitcast(h, _BYTE), middle, dtype=_BYTE, shape=h.shape) for h in parts]
    first, second = (e.transpose(h, [1, 0]) for h in parts)
    zeros = (middle,) if is_unsigned else ()

    def partial(left: Symbol, zero: Symbol, right: Symbol, of_weight: Symbol) -> Symbol:
        shape = left.shape[:-1] + right.shape[1:]
        sums = e.emit("MatMulInteger", left, right, zero, *zeros, dtype=DType.int32, shape=shape)
        return e.emit("Mul", e.cast(sums, _F32), e.emit("Mul", a.scale, of_weight), shape=shape)

    coarse = partial(a.first, a.zero, first, e.emit("Mul", scale, e.const(scale, float(BASE))))
    rest = partial(a.first, a.zero, second, scale), partial(a.second, middle, first, scale)
    return e.cast(e.emit("Add", coarse, e.emit("Add", *rest, shape=coarse.shape), shape=coarse.shape), dtype)


def half_split_product(x: Symbol, values: Symbol, scale: Symbol, *zeros: Symbol) -> Symbol:
    """Multiply x in two digits by a weight of one, [n, k]: return the sums of both products."""
    dtype, x = x.dtype, e.cast(x, _F32)
    a = digits(x)
    transposed = e.transpose(values, [1, 0])
    shape = x.shape[:-1] + values.shape[:1]

    def partial(digit: Symbol, zero: Symbol, of_digit: Symbol) -> Symbol:
        sums = e.emit("MatMulInteger", digit, transposed, zero, *zeros, dtype=DType.int32, shape=shape)
        return e.emit("Mul", e.cast(sums, _F32), e.emit("Mul", of_digit, scale), shape=shape)

    coarse, fine = partial(a.first, a.zero, a.scale), partial(a.second, e.const(x, MIDDLE, _BYTE), a.finer)
    return e.cast(e.emit("Add", coarse, fine, shape=shape), dtype)


def matmul(
    x: Symbol, values: Symbol, parts: Sequence[Symbol], encoding: str, block_size: int, *, is_dynamic: bool, digits: int
) -> Symbol:
    """Return x @ weight.T of a quantised weight: as integers if `is_dynamic` or the weight is split, else as floats.

    is_dynamic: quantise x when the graph runs, to `digits` digits.
    """
    if is_dynamic and 0 not in (values.shape[0], values.shape[1]):
        multiply = half_split_product if digits == 2 else dynamic_product
        return multiply(x, values, *parts)
    if encoding == "int8_split" and is_summed(values):
        return split_product(x, values, *parts)
    return product(x, dequantized(encoding, values, parts, 0, block_size))
