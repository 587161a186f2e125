"""Products of two digits of 8 bits with two: three products of integers in place of one of floats.

x is s (a1 - z) + s2 (a2 - 128), in which s and z are those of DynamicQuantizeLinear, and s2 = s / 254 brings what that
leaves, which is at most s / 2, into 8 bits. A weight is t (256 w1 + w2). The product of the second digits is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graphcore.dtypes import DType
from graphcore.ops import _emit as e
from graphcore.ops._quantized import known, levels
from graphcore.symbol import Symbol
from graphcore.types import _shape

LONGEST = 65_000
"""Numbers of a row: sums of as many products of bytes, and what zero points take from them, are within int32."""

MIDDLE = 128
"""The zero point of second digits of x."""

_F32, _BYTE = DType.float32, DType.uint8
_LEAST = float(np.finfo(np.float32).smallest_subnormal)


def is_summed(values: Symbol) -> bool:
    """Whether products of a weight are sums of integers: not of nothing, nor of rows that int32 does not hold."""
    _, columns, inner = values.shape
    return 0 not in (columns, inner) and not (inner.is_static and int(inner) > LONGEST)


class Digits(NamedTuple):
    """x in two digits. scales: float32 scalars; NaN where x has NaN or infinity. zero: of the first."""

    first: Symbol
    second: Symbol
    scale: Symbol
    scale_of_second: Symbol
    zero: Symbol


def digits(x: Symbol) -> Digits:
    """float32 x taken apart, once for all products that read it."""
    made_once = x.graph._scalars
    keys = [("digits", x.id, name) for name in Digits._fields]
    if keys[0] in made_once:
        return Digits(*(made_once[key] for key in keys))
    first, own, scale, zero = levels(x)
    near = e.emit("DequantizeLinear", first, own, zero, dtype=_F32, shape=x.shape)
    rest = e.emit("Sub", x, near, shape=x.shape)
    # Of numbers near the least of float32 the quotient would be 0.
    finer = e.emit("Max", e.emit("Mul", scale, e.const(x, 1 / 254)), e.const(x, _LEAST))
    middle = e.const(x, MIDDLE, _BYTE)
    second = e.emit("QuantizeLinear", rest, finer, middle, dtype=_BYTE, shape=x.shape)
    found = Digits(first, second, scale, finer, zero)
    made_once.update(zip(keys, found, strict=True))
    return found


def halves(values: Symbol) -> tuple[Symbol, Symbol]:
    """The first digits of a weight and the second: of int8[2, ...]."""
    made_once, keys = values.graph._scalars, [("half", values.id, place) for place in (0, 1)]
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
    """256 times the first digits plus the second, in float32."""
    first, second = (e.cast_within(half, _F32) for half in halves(values))
    return e.emit("Add", e.emit("Mul", first, e.const(first, 256.0)), second)


def split_product(x: Symbol, values: Symbol, scale: Symbol, *, is_unsigned: bool = False) -> Symbol:
    """x @ weight.T of such a weight in ONNX's operators: the three sums times their scales, from the last on.

    is_unsigned: digits of the weight are read as uint8 around 128, for processors on which signed bytes saturate.
    """
    own, x = x.dtype, e.cast(x, _F32)
    a = digits(x)
    coarse, fine = e.emit("Mul", scale, e.const(scale, 256.0)), scale
    middle = e.const(x, MIDDLE, _BYTE)
    parts = [*halves(values)]
    if is_unsigned:
        parts = [e.emit("BitwiseXor", e.bitcast(h, _BYTE), middle, dtype=_BYTE, shape=h.shape) for h in parts]
    first, second = (e.emit("Transpose", h, shape=h.shape[::-1], perm=[1, 0]) for h in parts)
    zeros = (middle,) if is_unsigned else ()

    def product(left: Symbol, right: Symbol, zero: Symbol, *scales: Symbol) -> Symbol:
        shape = left.shape[:-1] + right.shape[1:]
        sums = e.emit("MatMulInteger", left, right, zero, *zeros, dtype=DType.int32, shape=shape)
        return e.emit("Mul", e.cast(sums, _F32), e.emit("Mul", *scales), shape=shape)

    made = product(a.first, first, a.zero, a.scale, coarse)
    rest = product(a.first, second, a.zero, a.scale, fine)
    other = product(a.second, first, middle, a.scale_of_second, coarse)
    return e.cast(e.emit("Add", made, e.emit("Add", rest, other, shape=made.shape), shape=made.shape), own)
