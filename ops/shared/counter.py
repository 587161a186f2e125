"""A counter-based random generator: a hash of a key and of each element's position, as ONNX operators on uint32.

The hash is the finaliser of MurmurHash3 (Austin Appleby, public domain), twice, with a key before each. The library's
ops and the random operators of models use it, each through its own `Emitter`: lowering by its builder.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape

F32, F64, U32 = DType.float32, DType.float64, DType.uint32
DIGITS = {
    F64: 53, F32: 24, DType.tensor_float32: 11, DType.float16: 11, DType.bfloat16: 8, DType.float8_e4m3fn: 4,
    DType.float8_e5m2: 3,
}  # fmt: skip
"""Bits of the numbers drawn from [0, 1): all numbers are multiples of the smallest one."""
_GOLDEN = 0x9E3779B9
_APART = 0x85EBCA6B
_ALL = 0xFFFFFFFF


class Emitter(Protocol):
    """The interface that emits operators, into graphs under construction or while they are lowered."""

    def op(
        self,
        op_type: str,
        *inputs: Symbol | None,
        dtype: DType | None = None,
        shape: Shape | None = None,
        **attributes: Any,
    ) -> Symbol:
        """Emit an operator with one output, by default of the first operand's dtype and the operands' shape."""

    def scalar(self, value: bool | int | float, dtype: DType) -> Symbol:
        """Return a scalar constant."""

    def native_cast(self, x: Symbol, dtype: DType) -> Symbol:
        """Cast values that the dtype represents exactly, or integers that it rounds."""


class Places(NamedTuple):
    """The elements to draw. numbers: the uint32 vector 0, 1, ... keys: two uint32 scalars."""

    numbers: Symbol
    keys: tuple[Symbol, Symbol]


def keys_of(low: int, high: int) -> tuple[int, int]:
    """Return the keys of a seed that is two words of 32 bits."""
    start = _mixed(low ^ _mixed(high + _GOLDEN))
    return start, _mixed(start + _GOLDEN)


def built_keys(on: Emitter, low: Symbol, high: Symbol) -> tuple[Symbol, Symbol]:
    """Return the keys of a seed at run time, two uint32 scalars; otherwise like `keys_of`."""
    golden = on.scalar(_GOLDEN, U32)
    start = _scrambled(on, on.op("BitwiseXor", low, _scrambled(on, on.op("Add", high, golden))))
    return start, _scrambled(on, on.op("Add", start, golden))


def bits(on: Emitter, places: Places, stream: int) -> Symbol:
    """Draw 32 random bits for each element. stream: the index of the draw for an element."""
    first, second = places.keys
    if stream:
        first = on.op("Add", first, on.scalar((stream * _GOLDEN) & _ALL, U32))
        second = on.op("Add", second, on.scalar((stream * _APART) & _ALL, U32))
    mixed = _scrambled(on, on.op("BitwiseXor", places.numbers, first, shape=places.numbers.shape))
    return _scrambled(on, on.op("BitwiseXor", mixed, second, shape=mixed.shape))


def unit(on: Emitter, places: Places, dtype: DType, stream: int = 0) -> Symbol:
    """Draw numbers in [0, 1), in steps that `dtype` resolves: a vector of float64 for float64, else of float32."""
    digits = DIGITS[dtype]
    if dtype is not F64:
        whole = on.native_cast(_right(on, bits(on, places, stream), 32 - digits), F32)
        return on.op("Mul", whole, on.scalar(2.0**-digits, F32))
    upper = on.native_cast(_right(on, bits(on, places, stream), 5), F64)
    lower = on.native_cast(_right(on, bits(on, places, stream + 1), 6), F64)
    whole = on.op("Add", on.op("Mul", upper, on.scalar(2.0**26, F64)), lower)
    return on.op("Mul", whole, on.scalar(2.0**-digits, F64))


def normal(on: Emitter, places: Places, own: DType) -> Symbol:
    """Draw numbers of mean 0 and deviation 1, after Box and Muller: a vector. own: float32 or float64."""
    if own is F64:
        positive = on.op("Add", unit(on, places, own), on.scalar(2.0**-54, own))
    else:  # all 32 bits, so that the tails reach far
        whole = on.native_cast(bits(on, places, 0), own)
        positive = on.op("Mul", on.op("Add", whole, on.scalar(0.5, own)), on.scalar(2.0**-32, own))
    radius = on.op("Sqrt", on.op("Mul", on.op("Log", positive), on.scalar(-2.0, own)))
    turn = on.op("Mul", unit(on, places, own, 2), on.scalar(2 * math.pi, own))
    return on.op("Mul", radius, on.op("Cos", turn))


def _mixed(number: int) -> int:
    number &= _ALL
    number = ((number ^ (number >> 16)) * 0x85EBCA6B) & _ALL
    number = ((number ^ (number >> 13)) * 0xC2B2AE35) & _ALL
    return number ^ (number >> 16)


def _scrambled(on: Emitter, x: Symbol) -> Symbol:
    x = on.op("Mul", _folded(on, x, 16), on.scalar(0x85EBCA6B, U32))
    x = on.op("Mul", _folded(on, x, 13), on.scalar(0xC2B2AE35, U32))
    return _folded(on, x, 16)


def _folded(on: Emitter, x: Symbol, count: int) -> Symbol:
    return on.op("BitwiseXor", x, _right(on, x, count))


def _right(on: Emitter, x: Symbol, count: int) -> Symbol:
    return on.op("BitShift", x, on.scalar(count, U32), direction="RIGHT")
