"""Products of operands split into digits of 8 bits: three products of integers, or two for a weight of one digit.

x is s (a1 - z) + s / 254 (a2 - 128), where s and z are those of DynamicQuantizeLinear, whose error is at most s / 2:
127 in the second digit. A weight is t (254 w1 + w2). So the sum of products is s t (254 (a1 - z) w1 + (a1 - z) w2 + (a2
- 128) w1), three sums that are exact in int32, and the product of the second digits, which is omitted. The result is
the first one, in float32, plus the sum of the other two. Where a weight is t w1 alone, the result is s t (a1 - z) w1
plus s / 254 t (a2 - 128) w1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.ops.shared.quantized.products import dequantized, dynamic_product, levels, product
from graphcore.ops.shared.quantized.weights import halves
from graphcore.quantization.tensors import BASE
from graphcore.types.dtypes import DType

LONGEST = 65_000
"""Numbers of a row: as many of 255 * 127 are within int32."""

MIDDLE = 128
"""The zero point of second digits of x."""

_F32, _BYTE = DType.float32, DType.uint8
_LEAST = float(np.finfo(np.float32).smallest_subnormal)


def is_summed(values: Symbol) -> bool:
    """Return whether products of a weight are sums of integers: not of empty ones, nor of rows beyond int32."""
    _, columns, inner = values.shape
    return 0 not in (columns, inner) and not (inner.is_static and int(inner) > LONGEST)


class Digits(NamedTuple):
    """x split into two digits.

    scale, zero: of the first digit; the scale is NaN where x has NaN or infinity. finer: the scale of the second.
    """

    first: Symbol
    second: Symbol
    scale: Symbol
    zero: Symbol
    finer: Symbol


def digits(x: Symbol) -> Digits:
    """Split float32 x into digits, once for all products that read it."""
    made_once = x.graph.memory.values
    keys = [("digits", x.id, name) for name in Digits._fields]
    if keys[0] in made_once:
        return Digits(*(made_once[key] for key in keys))
    first, own, scale, zero = levels(x)
    near = e.emit("DequantizeLinear", first, own, zero, dtype=_F32, shape=x.shape)
    rest = e.emit("Sub", x, near, shape=x.shape)
    # For numbers near the least float32 the quotient would be 0.
    finer = e.emit("Max", e.emit("Mul", own, e.const(x, 1 / BASE)), e.const(x, _LEAST))
    middle = e.const(x, MIDDLE, _BYTE)
    second = e.emit("QuantizeLinear", rest, finer, middle, dtype=_BYTE, shape=x.shape)
    found = Digits(first, second, scale, zero, finer)
    made_once.update(zip(keys, found, strict=True))
    return found


def split_product(x: Symbol, values: Symbol, scale: Symbol, *, is_unsigned: bool = False) -> Symbol:
    """Return x @ weight.T for a weight of two digits, in ONNX's operators.

    is_unsigned: read the weight's digits as uint8 around 128, for processors on which products of signed bytes
    saturate.
    """
    own, x = x.dtype, e.cast(x, _F32)
    a = digits(x)
    middle = e.const(x, MIDDLE, _BYTE)
    parts = [*halves(values)]
    if is_unsigned:
        parts = [e.emit("BitwiseXor", e.bitcast(h, _BYTE), middle, dtype=_BYTE, shape=h.shape) for h in parts]
    first, second = (e.emit("Transpose", h, shape=h.shape[::-1], perm=[1, 0]) for h in parts)
    zeros = (middle,) if is_unsigned else ()

    def partial(left: Symbol, zero: Symbol, right: Symbol, of_weight: Symbol) -> Symbol:
        shape = left.shape[:-1] + right.shape[1:]
        sums = e.emit("MatMulInteger", left, right, zero, *zeros, dtype=DType.int32, shape=shape)
        return e.emit("Mul", e.cast(sums, _F32), e.emit("Mul", a.scale, of_weight), shape=shape)

    made = partial(a.first, a.zero, first, e.emit("Mul", scale, e.const(scale, float(BASE))))
    rest = partial(a.first, a.zero, second, scale), partial(a.second, middle, first, scale)
    return e.cast(e.emit("Add", made, e.emit("Add", *rest, shape=made.shape), shape=made.shape), own)


def half_split_product(x: Symbol, values: Symbol, scale: Symbol, *zeros: Symbol) -> Symbol:
    """Multiply x in two digits by a weight of one, [n, k]: return the sums of both products."""
    own, x = x.dtype, e.cast(x, _F32)
    a = digits(x)
    turned = e.emit("Transpose", values, shape=values.shape[::-1], perm=[1, 0])
    shape = x.shape[:-1] + values.shape[:1]

    def partial(left: Symbol, zero: Symbol, of_left: Symbol) -> Symbol:
        sums = e.emit("MatMulInteger", left, turned, zero, *zeros, dtype=DType.int32, shape=shape)
        return e.emit("Mul", e.cast(sums, _F32), e.emit("Mul", of_left, scale), shape=shape)

    coarse, fine = partial(a.first, a.zero, a.scale), partial(a.second, e.const(x, MIDDLE, _BYTE), a.finer)
    return e.cast(e.emit("Add", coarse, fine, shape=shape), own)


def matmul(
    x: Symbol, values: Symbol, parts: Sequence[Symbol], encoding: str, block_size: int, *, is_dynamic: bool, digits: int
) -> Symbol:
    """Return x @ weight.T of a quantised weight, by integers where that is asked for, else of the weight in floats.

    is_dynamic: x is quantised when the graph runs, to this many digits.
    """
    if is_dynamic and 0 not in (values.shape[0], values.shape[1]):
        made = half_split_product if digits == 2 else dynamic_product
        return made(x, values, *parts)
    if encoding == "int8_split" and is_summed(values):
        return split_product(x, values, *parts)
    return product(x, dequantized(encoding, values, parts, 0, block_size))
