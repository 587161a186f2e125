"""Products of two digits of 8 bits with two: three products of integers in place of one of floats; or with one: two.

x is s (a1 - z) + s / 254 (a2 - 128), in which s and z are those of DynamicQuantizeLinear, which leaves at most s / 2:
that is 127 in the second digit. A weight is t (254 w1 + w2). So the sum of products is
s t (254 (a1 - z) w1 + (a1 - z) w2 + (a2 - 128) w1), three sums that are exact in int32, and the product of the second
digits, which is left out. The result is the first one, in float32, plus the sum of the other two. Where a weight is
t w1 alone, the result is s t (a1 - z) w1 plus s / 254 t (a2 - 128) w1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.ops.shared.quantized.products import known, levels
from graphcore.quantization.tensors import BASE
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

LONGEST = 65_000
"""Numbers of a row: as many of 255 * 127 are within int32."""

MIDDLE = 128
"""The zero point of second digits of x."""

_F32, _BYTE = DType.float32, DType.uint8
_LEAST = float(np.finfo(np.float32).smallest_subnormal)


def is_summed(values: Symbol) -> bool:
    """Whether products of a weight are sums of integers: not of nothing, nor of rows that int32 does not hold."""
    _, columns, inner = values.shape
    return 0 not in (columns, inner) and not (inner.is_static and int(inner) > LONGEST)


class Digits(NamedTuple):
    """x in two digits.

    scale, zero: of the first digit; the scale is NaN where x has NaN or infinity. finer: the scale of the second.
    """

    first: Symbol
    second: Symbol
    scale: Symbol
    zero: Symbol
    finer: Symbol


def digits(x: Symbol) -> Digits:
    """float32 x taken apart, once for all products that read it."""
    made_once = x.graph._once.values
    keys = [("digits", x.id, name) for name in Digits._fields]
    if keys[0] in made_once:
        return Digits(*(made_once[key] for key in keys))
    first, own, scale, zero = levels(x)
    near = e.emit("DequantizeLinear", first, own, zero, dtype=_F32, shape=x.shape)
    rest = e.emit("Sub", x, near, shape=x.shape)
    # Of numbers near the least of float32 the quotient would be 0.
    finer = e.emit("Max", e.emit("Mul", own, e.const(x, 1 / BASE)), e.const(x, _LEAST))
    middle = e.const(x, MIDDLE, _BYTE)
    second = e.emit("QuantizeLinear", rest, finer, middle, dtype=_BYTE, shape=x.shape)
    found = Digits(first, second, scale, zero, finer)
    made_once.update(zip(keys, found, strict=True))
    return found


def halves(values: Symbol) -> tuple[Symbol, Symbol]:
    """The first digits of a weight and the second: of int8[2, ...]."""
    made_once, keys = values.graph._once.values, [("half", values.id, place) for place in (0, 1)]
    if keys[0] not in made_once:
        array = known(values)
        if array is not None:
            found = [values.graph._constant(np.ascontiguousarray(half), DType.int8) for half in array]
        else:
            shape = _shape(values.shape[1:])
            places = [e.const(values, place, DType.int64) for place in (0, 1)]
            found = [e.emit("Gather", values, place, shape=shape, axis=0) for place in places]
        made_once.update(zip(keys, found, strict=True))
    return made_once[keys[0]], made_once[keys[1]]


def whole(values: Symbol) -> Symbol:
    """254 times the first digits plus the second, in float32."""
    first, second = (e.cast_within(half, _F32) for half in halves(values))
    return e.emit("Add", e.emit("Mul", first, e.const(first, float(BASE))), second)


def split_product(x: Symbol, values: Symbol, scale: Symbol, *, is_unsigned: bool = False) -> Symbol:
    """x @ weight.T of such a weight in ONNX's operators.

    is_unsigned: digits of the weight are read as uint8 around 128, for processors on which signed bytes saturate.
    """
    own, x = x.dtype, e.cast(x, _F32)
    a = digits(x)
    middle = e.const(x, MIDDLE, _BYTE)
    parts = [*halves(values)]
    if is_unsigned:
        parts = [e.emit("BitwiseXor", e.bitcast(h, _BYTE), middle, dtype=_BYTE, shape=h.shape) for h in parts]
    first, second = (e.emit("Transpose", h, shape=h.shape[::-1], perm=[1, 0]) for h in parts)
    zeros = (middle,) if is_unsigned else ()

    def product(left: Symbol, zero: Symbol, right: Symbol, of_weight: Symbol) -> Symbol:
        shape = left.shape[:-1] + right.shape[1:]
        sums = e.emit("MatMulInteger", left, right, zero, *zeros, dtype=DType.int32, shape=shape)
        return e.emit("Mul", e.cast(sums, _F32), e.emit("Mul", a.scale, of_weight), shape=shape)

    made = product(a.first, a.zero, first, e.emit("Mul", scale, e.const(scale, float(BASE))))
    rest = product(a.first, a.zero, second, scale), product(a.second, middle, first, scale)
    return e.cast(e.emit("Add", made, e.emit("Add", *rest, shape=made.shape), shape=made.shape), own)


def half_split_product(x: Symbol, values: Symbol, scale: Symbol, *zeros: Symbol) -> Symbol:
    """x in two digits times a weight of one, [n, k]: the sums of both products."""
    own, x = x.dtype, e.cast(x, _F32)
    a = digits(x)
    turned = e.emit("Transpose", values, shape=values.shape[::-1], perm=[1, 0])
    shape = x.shape[:-1] + values.shape[:1]

    def product(left: Symbol, zero: Symbol, of_left: Symbol) -> Symbol:
        sums = e.emit("MatMulInteger", left, turned, zero, *zeros, dtype=DType.int32, shape=shape)
        return e.emit("Mul", e.cast(sums, _F32), e.emit("Mul", of_left, scale), shape=shape)

    coarse, fine = product(a.first, a.zero, a.scale), product(a.second, e.const(x, MIDDLE, _BYTE), a.finer)
    return e.cast(e.emit("Add", coarse, fine, shape=shape), own)
