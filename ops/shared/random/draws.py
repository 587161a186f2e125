"""The expansions of random ops: the generator of `counter`, for each element of a shape that is an operand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import expansion
from graphcore.ir.constants import constant_array
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.ops.shared.random import counter
from graphcore.ops.shared.random.counter import F32, F64, U32, Places
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

BITS, UNIFORM, NORMAL = "CounterBits", "CounterUniform", "CounterNormal"
"""The library's operators: of a shape, an int64 vector, and a seed, an int64 scalar."""

_I64, _U64 = DType.int64, DType.uint64


def numpy_float(dtype: DType) -> Any:
    """Return NumPy's type of the compute dtype of a float."""
    return np.float64 if dtype is F64 else np.float32


@dataclass(frozen=True, slots=True)
class _Built:
    """Emits the generator's operators in a graph that is not lowered yet."""

    graph: Graph

    def op(self, op_type: str, *inputs: Symbol | None, **more: Any) -> Symbol:
        return e.emit(op_type, *inputs, **more)

    def const(self, value: bool | int | float, dtype: DType) -> Symbol:
        return self.graph.build.scalar(value, dtype)

    def plain(self, x: Symbol, dtype: DType) -> Symbol:
        return e.cast_within(x, dtype)


@expansion(UNIFORM)
def _uniform(shape: Symbol, seed: Symbol, *, dtype: DType, low: float, high: float) -> Symbol:
    on = _Built(shape.graph)
    drawn = counter.unit(on, _places(on, shape, seed), dtype)
    if (low, high) == (0.0, 1.0):
        return _shaped(drawn, shape)
    held = drawn.dtype
    drawn = e.emit("Mul", drawn, on.const(float(numpy_float(dtype)(high) - numpy_float(dtype)(low)), held))
    drawn = on.graph.build.cast(e.emit("Add", drawn, on.const(low, held)), dtype)
    # The sum may round up to the limit, which must not be drawn.
    return _shaped(e.emit("Min", drawn, on.const(_below(high, dtype), dtype)), shape)


@expansion(NORMAL)
def _normal(shape: Symbol, seed: Symbol, *, dtype: DType, mean: float, std: float) -> Symbol:
    on = _Built(shape.graph)
    held = F64 if dtype is F64 else F32
    drawn = counter.normal(on, _places(on, shape, seed), held)
    if std != 1.0:
        drawn = e.emit("Mul", drawn, on.const(std, held))
    if mean != 0.0:
        drawn = e.emit("Add", drawn, on.const(mean, held))
    return _shaped(drawn, shape)


@expansion(BITS)
def _bits(shape: Symbol, seed: Symbol) -> Symbol:
    on = _Built(shape.graph)
    places = _places(on, shape, seed)
    low, high = (on.plain(counter.bits(on, places, stream), _U64) for stream in (0, 1))
    high = e.emit("BitShift", high, on.const(32, _U64), direction="LEFT")
    return _shaped(e.emit("BitwiseOr", high, low), shape)


def _places(on: _Built, shape: Symbol, seed: Symbol) -> Places:
    known = constant_array(shape, weights=True)
    length = Dim.dynamic() if known is None else Dim(math.prod(known.tolist()))
    scalar = _shape(())
    if known is None:
        count = e.emit("ReduceProd", shape, shape=scalar, keepdims=0)
    else:
        count = on.const(int(length), _I64)
    numbers = e.emit("Range", on.const(0, _I64), count, on.const(1, _I64), shape=_shape([length]))
    return Places(e.cast_within(numbers, U32), _keys(on, seed))


def _keys(on: _Built, seed: Symbol) -> tuple[Symbol, Symbol]:
    known = constant_array(seed, weights=True)
    if known is not None:
        words = int(known) % (1 << 64)
        first, second = counter.keys_of(words & 0xFFFFFFFF, words >> 32)
        return on.const(first, U32), on.const(second, U32)
    bits = e.cast_within(seed, _U64)
    high = e.cast_within(e.emit("BitShift", bits, on.const(32, _U64), direction="RIGHT"), U32)
    low = e.cast_within(e.emit("BitwiseAnd", bits, on.const(0xFFFFFFFF, _U64)), U32)
    return counter.built_keys(on, low, high)


def _shaped(drawn: Symbol, shape: Symbol) -> Symbol:
    known = constant_array(shape, weights=True)
    rank = shape.shape[0]
    dims = [Dim.dynamic()] * int(rank) if known is None else [Dim(n) for n in known.tolist()]
    return e.emit("Reshape", drawn, shape, shape=_shape(dims), allowzero=1)


def _below(high: float, dtype: DType) -> float:
    """Return the greatest number of the dtype below another."""
    if dtype is not DType.tensor_float32:
        return float(np.nextafter(np.asarray(high, dtype.numpy), np.asarray(dtype.min, dtype.numpy)))
    bits = int(np.float32(high).view(np.int32))
    next_bits = bits - 0x2000 if high > 0 else bits + 0x2000 if high < 0 else np.float32(-(2.0**-136)).view(np.int32)
    return float(np.int32(next_bits).view(np.float32))
