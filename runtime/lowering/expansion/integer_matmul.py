"""Products of quantised x with weights that are known: onnxruntime's MatMulIntegerToFloat.

It sums products of bytes and multiplies each sum with both scales, so that the numbers are those of ONNX's
MatMulInteger, Cast and Mul bit for bit. DynamicQuantizeMatMul would quantise x once for each product that reads it, and
takes as long where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.ops.shared.quantized_products import (
    MIDDLE,
    digits,
    dynamic_product,
    half_split_product,
    levels,
    split_product,
)
from graphcore.quantization.tensors import BASE, Array
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import tensor_type

MICROSOFT = "com.microsoft"
_F32, _BYTE = DType.float32, DType.uint8

Key = tuple[Any, ...]
Saturates = Callable[[], bool]
Packed = dict[Key, tuple[Symbol, ...]]
"""The weights that were packed, by the arrays they were made of: a weight that several nodes share is packed once."""


def dynamic(x: Symbol, arrays: Sequence[Array], key: Key, done: Packed, saturates: Saturates) -> Symbol:
    """x as one tensor of uint8, with a weight of int8 or uint8."""
    values, scales, *zeros = arrays
    own, x = x.dtype, e.cast(x, _F32)
    weight = _once((*key, "dynamic"), done, lambda: _turned(x, saturates, values, scales, *zeros))
    a = levels(x)
    return e.cast(_product(a.numbers, a.scale, a.zero, weight), own)


def half_split(x: Symbol, arrays: Sequence[Array], key: Key, done: Packed, saturates: Saturates) -> Symbol:
    """x in two digits, with a weight of int8 or uint8: both products read the same weight."""
    values, scales, *zeros = arrays
    own, x = x.dtype, e.cast(x, _F32)
    weight = _once((*key, "dynamic"), done, lambda: _turned(x, saturates, values, scales, *zeros))
    a = digits(x)
    coarse = _product(a.first, a.scale, a.zero, weight)
    fine = _product(a.second, a.finer, e.const(x, MIDDLE, _BYTE), weight)
    return e.cast(e.emit("Add", coarse, fine, shape=coarse.shape), own)


def split(x: Symbol, arrays: Sequence[Array], key: Key, done: Packed, saturates: Saturates) -> Symbol:
    """x in two digits, with the two of a weight: all but the product of the second ones."""
    values, scales = arrays
    own, x = x.dtype, e.cast(x, _F32)
    most, *zeros = _once((*key, "first"), done, lambda: _turned(x, saturates, values[0], scales * np.float32(BASE)))
    least = _once((*key, "second"), done, lambda: _turned(x, saturates, values[1], scales))
    a = digits(x)
    made = _product(a.first, a.scale, a.zero, (most, *zeros))
    rest = _product(a.first, a.scale, a.zero, least)
    # The second digits of x count 1/254 of the scale, and the first ones of the weight 254 times the scale.
    other = _product(a.second, a.scale, e.const(x, MIDDLE, _BYTE), (most, least[1], *zeros[1:]))
    rest = e.emit("Add", rest, other, shape=made.shape)
    return e.cast(e.emit("Add", made, rest, shape=made.shape), own)


def _once(key: Key, done: Packed, make: Callable[[], tuple[Symbol, ...]]) -> tuple[Symbol, ...]:
    if key not in done:
        done[key] = make()
    return done[key]


def _turned(x: Symbol, saturates: Saturates, values: Array, scales: Array, *zeros: Array) -> tuple[Symbol, ...]:
    """A weight [n, k] as the kernel takes it: [k, n], scales, and zero points if it has them.

    Products with signed bytes take half of the time of those with unsigned ones, and a zero point of each column none.
    """
    graph = x.graph
    if values.dtype == np.int8 and _may_saturate(values, saturates):
        values, zeros = _flipped(values), (np.full((), 128, np.uint8),)
    elif values.dtype == np.uint8 and not _may_saturate(_flipped(values), saturates):
        values, zeros = _flipped(values), tuple(map(_flipped, zeros))
    turned = graph.build.constant(np.ascontiguousarray(values.T), DType.of(values.dtype))
    return turned, graph.build.constant(scales, _F32), *(graph.build.constant(z, DType.of(z.dtype)) for z in zeros)


def _flipped(values: Array) -> Array:
    """Signed bytes for unsigned ones that are 128 more, and the other way round."""
    other = np.uint8 if values.dtype == np.int8 else np.int8
    return np.asarray((values.view(np.uint8) ^ np.uint8(128)).view(other))


def _product(x: Symbol, scale: Symbol, zero: Symbol, weight: tuple[Symbol, ...]) -> Symbol:
    values, scales, *zeros = weight
    type_ = tensor_type(_F32, x.shape[:-1] + values.shape[1:])
    return x.graph.build.emit("MatMulIntegerToFloat", (x, values, scale, scales, zero, *zeros), type_, None, MICROSOFT)


def _may_saturate(values: Array, saturates: Saturates) -> bool:
    """Return whether two products of neighbours with 255 may leave 16 bits, on a processor that adds them there."""
    return bool(values.max() > 64 or values.min() < -64) and saturates()


def unsaturated(
    x: Symbol, values: Symbol, parts: Sequence[Symbol], saturates: Saturates, count: int = 1
) -> Symbol | None:
    """A dynamic product with a weight that comes when the graph runs: unsigned, where signed bytes saturate.

    count: the digits of x.
    """
    if values.dtype is not DType.int8 or not saturates():
        return None
    if values.rank == 3:
        return split_product(x, values, parts[0], is_unsigned=True)
    flipped = e.emit("BitwiseXor", e.bitcast(values, _BYTE), e.const(values, 128, _BYTE), dtype=_BYTE)
    product = half_split_product if count == 2 else dynamic_product
    return product(x, flipped, parts[0], e.const(values, 128, _BYTE))
