"""Random numbers: onnxruntime has kernels up to opset 21 only, so they come from counters (`ops/shared/random`).

With a seed a model returns the same numbers in every run; without one the keys come from Dropout, the only remaining
kernel that draws random numbers.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
from graphcore.ops.shared import counter
from graphcore.ops.shared.counter import F32, F64, U32, Places
from graphcore.runtime.lowering.build.builder import Builder, OpCall, Replacement
from graphcore.runtime.lowering.decompositions.shape_arithmetic import shape_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type

_I64 = DType.int64


def uniform(b: Builder, call: OpCall) -> Replacement:
    """Compute RandomUniform and RandomUniformLike: in [`low`, `high`)."""
    dtype, attributes = call.types[0].dtype, call.attributes
    low, high = float(attributes.get("low", 0.0)), float(attributes.get("high", 1.0))
    drawn = _unit(b, _sizes(b, call), attributes, dtype, call.shape)
    if (low, high) == (0.0, 1.0):
        return b.cast(drawn, dtype)
    drawn = b.op("Add", b.op("Mul", drawn, b.scalar(high - low, drawn.dtype)), b.scalar(low, drawn.dtype))
    narrow = b.cast(drawn, dtype)
    if low < high:  # the sum may round up to the limit, which is excluded
        below = float(np.nextafter(np.asarray(high, dtype.numpy), np.asarray(low, dtype.numpy)))
        narrow = b.op("Min", narrow, b.scalar(below, dtype))
    return narrow


def normal(b: Builder, call: OpCall) -> Replacement:
    """Compute RandomNormal and RandomNormalLike by the method of Box and Muller."""
    dtype, attributes, sizes = call.types[0].dtype, call.attributes, _sizes(b, call)
    mean, scale = float(attributes.get("mean", 0.0)), float(attributes.get("scale", 1.0))
    drawn_dtype = F64 if dtype is F64 else F32
    drawn = counter.normal(b, _places(b, sizes, attributes), drawn_dtype)
    drawn = b.native("Reshape", drawn, sizes, shape=call.shape, allowzero=1)
    drawn = b.op("Add", b.op("Mul", drawn, b.scalar(scale, drawn_dtype)), b.scalar(mean, drawn_dtype))
    return b.cast(drawn, dtype)


def _sizes(b: Builder, call: OpCall) -> Symbol:
    """Return the sizes of the result: those of an operand, or an attribute."""
    return shape_of(b, call.inputs[0]) if call.inputs else b.vector(call.attributes["shape"])


def bernoulli(b: Builder, call: OpCall) -> Replacement:
    """Compute Bernoulli: 1 with the given probability."""
    (x,) = call.inputs
    float_dtype = x.dtype if x.dtype is F64 else F32
    chance = b.cast(x, float_dtype)
    drawn = _unit(b, shape_of(b, x), call.attributes, float_dtype, x.shape)
    return b.cast(b.op("Less", drawn, chance, dtype=DType.bool), call.types[0].dtype)


def multinomial(b: Builder, call: OpCall) -> Replacement:
    """Compute Multinomial: count the running sums of the weights that do not exceed the drawn number."""
    (x,) = call.inputs
    count = call.attributes.get("sample_size", 1)
    if count < 1:
        raise GraphError(
            f"Multinomial: sample_size must be at least 1, got {count}", help="pass a sample_size of 1 or more"
        )
    rows, classes = x.shape if x.shape.is_ranked else (Dim.dynamic(), Dim.dynamic())
    logs = b.cast(x, F64)
    greatest = b.op("ReduceMax", logs, b.vector([1]), shape=_shape([rows, Dim(1)]), keepdims=1)
    weights = b.op("Exp", b.op("Sub", logs, greatest))
    sums = b.op("CumSum", weights, b.scalar(1, _I64))
    total = b.op("Slice", sums, b.vector([-1]), b.vector([1 << 62]), b.vector([1]), shape=_shape([rows, Dim(1)]))
    fewer = _shape([rows, classes - 1 if classes.is_static and int(classes) else Dim.dynamic()])
    sums = b.op("Slice", sums, b.vector([0]), b.vector([-1]), b.vector([1]), shape=fewer)
    drawn_shape = _shape([rows, Dim(count)])
    batch = b.op("Slice", shape_of(b, x), b.vector([0]), b.vector([1]), dtype=_I64, shape=_shape([Dim(1)]))
    drawn_sizes = b.op("Concat", batch, b.vector([count]), dtype=_I64, shape=_shape([Dim(2)]), axis=0)
    drawn = b.op("Mul", _unit(b, drawn_sizes, call.attributes, F64, drawn_shape), total, shape=drawn_shape)
    drawn = b.op("Unsqueeze", drawn, b.vector([2]), shape=_shape([*drawn_shape, Dim(1)]))
    sums = b.op("Unsqueeze", sums, b.vector([1]), shape=_shape([rows, Dim(1), fewer[1]]))
    ones = b.cast(b.op("LessOrEqual", sums, drawn), F64)
    indices = b.op("ReduceSum", ones, b.vector([2]), shape=drawn_shape, keepdims=0)
    return b.cast(indices, call.types[0].dtype)


def _places(b: Builder, shape: Symbol, attributes: dict[str, Any]) -> Places:
    sizes = b.array_of(shape)
    count = b.native("ReduceProd", shape, keepdims=0) if sizes is None else b.scalar(int(np.prod(sizes)), _I64)
    place = b.op("Range", b.scalar(0, _I64), count, b.scalar(1, _I64))
    return Places(b.cast(place, U32), _keys(b, attributes.get("seed")))


def _keys(b: Builder, seed: float | None) -> tuple[Symbol, Symbol]:
    """Return the key, two uint32 scalars."""
    if seed is not None:
        low, high = struct.unpack("<2I", struct.pack("<d", float(seed)))
        start, then = counter.keys_of(low, high)
        return b.scalar(start, U32), b.scalar(then, U32)
    ones = b.constant(np.ones(64, np.float32), F32)
    types = [ones.type, tensor_type(DType.bool, ones.shape)]
    operands = (ones, b.scalar(0.5, F32), b.scalar(True, DType.bool))
    _, drawn = b.emit_many("Dropout", operands, types)
    pairs = b.native("Reshape", drawn, b.vector([2, 32]))
    values = b.constant(np.array([1 << i for i in range(32)], np.float64), F64)
    sums = b.native("ReduceSum", b.native("Mul", b.native_cast(pairs, F64), values), b.vector([1]), keepdims=0)
    keys = b.native_cast(b.native_cast(sums, _I64), U32)
    first, second = (b.native("Gather", keys, b.scalar(i, _I64), axis=0) for i in (0, 1))
    return first, second


def _unit(b: Builder, shape: Symbol, attributes: dict[str, Any], dtype: DType, type_shape: Shape) -> Symbol:
    """Return numbers in [0, 1) for a tensor of `shape`, an int64 vector."""
    drawn = counter.unit(b, _places(b, shape, attributes), dtype)
    return b.native("Reshape", drawn, shape, shape=type_shape, allowzero=1)
