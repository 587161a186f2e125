"""Random numbers: onnxruntime has kernels up to opset 21 only, so the library counts (`ops/shared/random`).

With a seed a model gives the same numbers in every run; without one the keys come from Dropout, the one kernel left
that draws.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
from graphcore.ops.shared.random import counter
from graphcore.ops.shared.random.counter import F32, F64, U32, Places
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

_I64 = DType.int64


@dataclass(frozen=True, slots=True)
class _Lowered:
    """Makes the generator's operators legal."""

    on: Legaliser

    def op(self, op_type: str, *inputs: Symbol | None, **more: Any) -> Symbol:
        return self.on.op(op_type, *inputs, **more)

    def const(self, value: bool | int | float, dtype: DType) -> Symbol:
        return self.on.const(value, dtype)

    def plain(self, x: Symbol, dtype: DType) -> Symbol:
        return self.on.casts.plain(x, dtype)


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
    own = x.dtype if x.dtype is F64 else F32
    chance = on.casts.cast(x, x.dtype, own)
    drawn = _unit(on, _shape_of(on, x), attributes, own, x.shape)
    return on.casts.cast(on.op("Less", drawn, chance, dtype=DType.bool), DType.bool, types[0].dtype)


def multinomial(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Multinomial: how many of the running sums of the weights are not above what is drawn."""
    (x,) = inputs
    count = attributes.get("sample_size", 1)
    if count < 1:
        raise GraphError(f"Multinomial: it draws {count} samples", help="give a sample_size of 1 or more")
    rows, classes = x.shape if x.shape.is_ranked else (Dim.dynamic(), Dim.dynamic())
    logs = on.casts.cast(x, x.dtype, F64)
    greatest = on.op("ReduceMax", logs, on.ints([1]), shape=_shape([rows, Dim(1)]), keepdims=1)
    weights = on.op("Exp", on.op("Sub", logs, greatest))
    sums = on.op("CumSum", weights, on.const(1, _I64))
    total = on.op("Slice", sums, on.ints([-1]), on.ints([1 << 62]), on.ints([1]), shape=_shape([rows, Dim(1)]))
    fewer = _shape([rows, classes - 1 if classes.is_static and int(classes) else Dim.dynamic()])
    sums = on.op("Slice", sums, on.ints([0]), on.ints([-1]), on.ints([1]), shape=fewer)
    drawn_shape = _shape([rows, Dim(count)])
    batch = on.op("Slice", _shape_of(on, x), on.ints([0]), on.ints([1]), dtype=_I64, shape=_shape([Dim(1)]))
    wanted = on.op("Concat", batch, on.ints([count]), dtype=_I64, shape=_shape([Dim(2)]), axis=0)
    drawn = on.op("Mul", _unit(on, wanted, attributes, F64, drawn_shape), total, shape=drawn_shape)
    drawn = on.op("Unsqueeze", drawn, on.ints([2]), shape=_shape([*drawn_shape, Dim(1)]))
    sums = on.op("Unsqueeze", sums, on.ints([1]), shape=_shape([rows, Dim(1), fewer[1]]))
    whole = _shape([*drawn_shape, fewer[1]])
    passed = on.op("LessOrEqual", sums, drawn, dtype=DType.bool, shape=whole)
    ones = on.casts.cast(passed, DType.bool, F64)
    made = on.op("ReduceSum", ones, on.ints([2]), shape=drawn_shape, keepdims=0)
    return on.casts.cast(made, F64, types[0].dtype)


def _uniform(on: Legaliser, shape: Symbol, type_: Any, attributes: dict[str, Any]) -> Symbol:
    dtype = type_.dtype
    low, high = float(attributes.get("low", 0.0)), float(attributes.get("high", 1.0))
    drawn = _unit(on, shape, attributes, dtype, type_.shape)
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
    own = F64 if dtype is F64 else F32
    drawn = counter.normal(_Lowered(on), _places(on, shape, attributes), own)
    drawn = on.native("Reshape", drawn, shape, shape=type_.shape, allowzero=1)
    drawn = on.op("Add", on.op("Mul", drawn, on.const(scale, own)), on.const(mean, own))
    return on.casts.cast(drawn, own, dtype)


def _shape_of(on: Legaliser, x: Symbol) -> Symbol:
    rank = Dim(x.rank) if x.shape.is_ranked else Dim.dynamic()
    return on.op("Shape", x, dtype=_I64, shape=_shape([rank]))


def _places(on: Legaliser, shape: Symbol, attributes: dict[str, Any]) -> Places:
    known = on.known(shape)
    if known is not None:
        count, line = on.const(int(np.prod(known)), _I64), _shape([Dim(int(np.prod(known)))])
    else:
        count = on.native("ReduceProd", shape, dtype=_I64, shape=_shape([]), keepdims=0)
        line = _shape([Dim.dynamic()])
    place = on.op("Range", on.const(0, _I64), count, on.const(1, _I64), dtype=_I64, shape=line)
    return Places(on.casts.cast(place, _I64, U32), _keys(on, attributes.get("seed")))


def _keys(on: Legaliser, seed: float | None) -> tuple[Symbol, Symbol]:
    """Two uint32 scalars."""
    if seed is not None:
        low, high = struct.unpack("<2I", struct.pack("<d", float(seed)))
        start, then = counter.keys_of(low, high)
        return on.const(start, U32), on.const(then, U32)
    ones = on.graph._constant(np.ones(64, np.float32), F32)
    types = [ones.type, tensor_type(DType.bool, ones.shape)]
    operands = (ones, on.const(0.5, F32), on.const(True, DType.bool))
    _, drawn = on.graph._emit_many("Dropout", operands, types)
    pairs = on.native("Reshape", drawn, on.ints([2, 32]), shape=_shape([Dim(2), Dim(32)]))
    values = on.graph._constant(np.array([1 << i for i in range(32)], np.float64), F64)
    worth = on.native("Mul", on.casts.plain(pairs, F64), values, shape=_shape([Dim(2), Dim(32)]))
    sums = on.native("ReduceSum", worth, on.ints([1]), shape=_shape([Dim(2)]), keepdims=0)
    keys = on.casts.plain(on.casts.plain(sums, _I64), U32)
    first, second = (on.native("Gather", keys, on.const(i, _I64), dtype=U32, shape=_shape([]), axis=0) for i in (0, 1))
    return first, second


def _unit(on: Legaliser, shape: Symbol, attributes: dict[str, Any], dtype: DType, type_shape: Shape) -> Symbol:
    """Numbers in [0, 1) for a tensor of `shape`, an int64 vector."""
    drawn = counter.unit(_Lowered(on), _places(on, shape, attributes), dtype)
    return on.native("Reshape", drawn, shape, shape=type_shape, allowzero=1)
