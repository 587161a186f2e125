"""Random numbers, for which onnxruntime has kernels up to opset 21 only: a hash of a seed and of each element's place.

The hash is the finaliser of MurmurHash3 (Austin Appleby, public domain), twice, with a key before each. With a seed a
model gives the same numbers in every run; without one the keys come from Dropout, the one kernel left that draws.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphcore.dims import Dim
from graphcore.dtypes import DType
from graphcore.errors import GraphError
from graphcore.runtime.lowering.detours.kind import Inputs, Made
from graphcore.symbol import Symbol
from graphcore.types import Shape, _shape, tensor_type

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalise import Legaliser

_F32, _F64, _U32, _I64 = DType.float32, DType.float64, DType.uint32, DType.int64
_DIGITS = {_F64: 53, _F32: 24, DType.float16: 11, DType.bfloat16: 8}
"""Bits of a number in [0, 1) that is drawn: all of them are a multiple of the least."""
_GOLDEN = 0x9E3779B9
_ALL = 0xFFFFFFFF


class _Places(NamedTuple):
    """The elements to draw for. count_up: their numbers, a uint32 vector. shape: an int64 vector."""

    count_up: Symbol
    shape: Symbol
    keys: tuple[Symbol, Symbol]


def uniform(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """RandomUniform: from `low`, and below `high`."""
    return _uniform(on, on.ints(attributes["shape"]), types[0], attributes)


def uniform_like(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    return _uniform(on, _shape_of(on, inputs[0]), types[0], attributes)


def normal(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """RandomNormal, after Box and Muller."""
    return _normal(on, on.ints(attributes["shape"]), types[0], attributes)


def normal_like(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    return _normal(on, _shape_of(on, inputs[0]), types[0], attributes)


def bernoulli(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Bernoulli: 1 with the probability that is given."""
    (x,) = inputs
    own = x.dtype if x.dtype is _F64 else _F32
    chance = on.casts.cast(x, x.dtype, own)
    drawn = _unit(on, _places(on, _shape_of(on, x), attributes), own, 0, x.shape)
    return on.casts.cast(on.op("Less", drawn, chance, dtype=DType.bool), DType.bool, types[0].dtype)


def multinomial(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Multinomial: how many of the running sums of the weights are not above what is drawn."""
    (x,) = inputs
    count = attributes.get("sample_size", 1)
    if count < 1:
        raise GraphError(f"Multinomial: it draws {count} samples", help="give a sample_size of 1 or more")
    rows, classes = x.shape if x.shape.is_ranked else (Dim.dynamic(), Dim.dynamic())
    logs = on.casts.cast(x, x.dtype, _F64)
    greatest = on.op("ReduceMax", logs, on.ints([1]), shape=_shape([rows, Dim(1)]), keepdims=1)
    weights = on.op("Exp", on.op("Sub", logs, greatest))
    sums = on.op("CumSum", weights, on.const(1, _I64))
    total = on.op("Slice", sums, on.ints([-1]), on.ints([1 << 62]), on.ints([1]), shape=_shape([rows, Dim(1)]))
    fewer = _shape([rows, classes - 1 if classes.is_static and int(classes) else Dim.dynamic()])
    sums = on.op("Slice", sums, on.ints([0]), on.ints([-1]), on.ints([1]), shape=fewer)
    drawn_shape = _shape([rows, Dim(count)])
    batch = on.op("Slice", _shape_of(on, x), on.ints([0]), on.ints([1]), dtype=_I64, shape=_shape([Dim(1)]))
    wanted = on.op("Concat", batch, on.ints([count]), dtype=_I64, shape=_shape([Dim(2)]), axis=0)
    drawn = on.op("Mul", _unit(on, _places(on, wanted, attributes), _F64, 0, drawn_shape), total, shape=drawn_shape)
    drawn = on.op("Unsqueeze", drawn, on.ints([2]), shape=_shape([*drawn_shape, Dim(1)]))
    sums = on.op("Unsqueeze", sums, on.ints([1]), shape=_shape([rows, Dim(1), fewer[1]]))
    whole = _shape([*drawn_shape, fewer[1]])
    passed = on.op("LessOrEqual", sums, drawn, dtype=DType.bool, shape=whole)
    ones = on.casts.cast(passed, DType.bool, _F64)
    made = on.op("ReduceSum", ones, on.ints([2]), shape=drawn_shape, keepdims=0)
    return on.casts.cast(made, _F64, types[0].dtype)


def _uniform(on: Legaliser, shape: Symbol, type_: Any, attributes: dict[str, Any]) -> Symbol:
    dtype = type_.dtype
    low, high = float(attributes.get("low", 0.0)), float(attributes.get("high", 1.0))
    places = _places(on, shape, attributes)
    drawn = _unit(on, places, dtype, 0, type_.shape)
    if (low, high) != (0.0, 1.0):
        own = drawn.dtype
        drawn = on.op("Add", on.op("Mul", drawn, on.const(high - low, own)), on.const(low, own))
        narrow = on.casts.cast(drawn, own, dtype)
        if low < high:  # the sum may round up to the limit, which is not among what is drawn
            below = float(np.nextafter(np.asarray(high, dtype.numpy), np.asarray(low, dtype.numpy)))
            narrow = on.op("Min", narrow, on.const(below, dtype))
        return narrow
    return on.casts.cast(drawn, drawn.dtype, dtype)


def _normal(on: Legaliser, shape: Symbol, type_: Any, attributes: dict[str, Any]) -> Symbol:
    dtype = type_.dtype
    mean, scale = float(attributes.get("mean", 0.0)), float(attributes.get("scale", 1.0))
    own = _F64 if dtype is _F64 else _F32
    places = _places(on, shape, attributes)
    if own is _F64:
        positive = on.op("Add", _unit(on, places, own, 0, type_.shape), on.const(2.0**-54, own))
    else:  # all 32 bits, for the sake of the tails
        whole = on.casts.plain(_shaped(on, _hash(on, places, 0), places, type_.shape), own)
        positive = on.op("Mul", on.op("Add", whole, on.const(0.5, own)), on.const(2.0**-32, own))
    radius = on.op("Sqrt", on.op("Mul", on.op("Log", positive), on.const(-2.0, own)))
    turn = on.op("Mul", _unit(on, places, own, 2, type_.shape), on.const(2 * np.pi, own))
    drawn = on.op("Mul", radius, on.op("Cos", turn))
    drawn = on.op("Add", on.op("Mul", drawn, on.const(scale, own)), on.const(mean, own))
    return on.casts.cast(drawn, own, dtype)


def _shape_of(on: Legaliser, x: Symbol) -> Symbol:
    rank = Dim(x.rank) if x.shape.is_ranked else Dim.dynamic()
    return on.op("Shape", x, dtype=_I64, shape=_shape([rank]))


def _places(on: Legaliser, shape: Symbol, attributes: dict[str, Any]) -> _Places:
    known = on.known(shape)
    if known is not None:
        count, line = on.const(int(np.prod(known)), _I64), _shape([Dim(int(np.prod(known)))])
    else:
        count = on.native("ReduceProd", shape, dtype=_I64, shape=_shape([]), keepdims=0)
        line = _shape([Dim.dynamic()])
    place = on.op("Range", on.const(0, _I64), count, on.const(1, _I64), dtype=_I64, shape=line)
    return _Places(on.casts.cast(place, _I64, _U32), shape, _keys(on, attributes.get("seed")))


def _keys(on: Legaliser, seed: float | None) -> tuple[Symbol, Symbol]:
    """Two uint32 scalars."""
    if seed is not None:
        low, high = struct.unpack("<2I", struct.pack("<d", float(seed)))
        start = _mixed(low ^ _mixed(high + _GOLDEN))
        return on.const(start, _U32), on.const(_mixed(start + _GOLDEN), _U32)
    ones = on.graph._constant(np.ones(64, np.float32), _F32)
    types = [ones.type, tensor_type(DType.bool, ones.shape)]
    operands = (ones, on.const(0.5, _F32), on.const(True, DType.bool))
    _, drawn = on.graph._emit_many("Dropout", operands, types)
    pairs = on.native("Reshape", drawn, on.ints([2, 32]), shape=_shape([Dim(2), Dim(32)]))
    values = on.graph._constant(np.array([1 << i for i in range(32)], np.float64), _F64)
    worth = on.native("Mul", on.casts.plain(pairs, _F64), values, shape=_shape([Dim(2), Dim(32)]))
    sums = on.native("ReduceSum", worth, on.ints([1]), shape=_shape([Dim(2)]), keepdims=0)
    keys = on.casts.plain(on.casts.plain(sums, _I64), _U32)
    first, second = (on.native("Gather", keys, on.const(i, _I64), dtype=_U32, shape=_shape([]), axis=0) for i in (0, 1))
    return first, second


def _mixed(number: int) -> int:
    number &= _ALL
    number = ((number ^ (number >> 16)) * 0x85EBCA6B) & _ALL
    number = ((number ^ (number >> 13)) * 0xC2B2AE35) & _ALL
    return number ^ (number >> 16)


def _hash(on: Legaliser, places: _Places, stream: int) -> Symbol:
    """32 random bits for each place. stream: which of several for the same place."""
    first, second = places.keys
    key = on.op("Add", first, on.const((stream * _GOLDEN) & _ALL, _U32))
    made = _scrambled(on, on.op("BitwiseXor", places.count_up, key, shape=places.count_up.shape))
    return _scrambled(on, on.op("BitwiseXor", made, second, shape=made.shape))


def _scrambled(on: Legaliser, x: Symbol) -> Symbol:
    x = on.op("Mul", _folded(on, x, 16), on.const(0x85EBCA6B, _U32))
    x = on.op("Mul", _folded(on, x, 13), on.const(0xC2B2AE35, _U32))
    return _folded(on, x, 16)


def _folded(on: Legaliser, x: Symbol, count: int) -> Symbol:
    return on.op("BitwiseXor", x, _right(on, x, count))


def _right(on: Legaliser, x: Symbol, count: int) -> Symbol:
    return on.op("BitShift", x, on.const(count, _U32), direction="RIGHT")


def _unit(on: Legaliser, places: _Places, dtype: DType, stream: int, shape: Shape) -> Symbol:
    """Numbers in [0, 1), as many as `dtype` tells apart: in float64 for it, else in float32."""
    digits = _DIGITS[dtype]
    own = _F64 if dtype is _F64 else _F32
    if own is _F32:
        whole = on.casts.plain(_right(on, _hash(on, places, stream), 32 - digits), own)
    else:
        upper = on.casts.plain(_right(on, _hash(on, places, stream), 5), own)
        lower = on.casts.plain(_right(on, _hash(on, places, stream + 1), 6), own)
        whole = on.op("Add", on.op("Mul", upper, on.const(2.0**26, own)), lower)
    return _shaped(on, on.op("Mul", whole, on.const(2.0**-digits, own)), places, shape)


def _shaped(on: Legaliser, x: Symbol, places: _Places, shape: Shape) -> Symbol:
    return on.native("Reshape", x, places.shape, shape=shape, allowzero=1)
