"""Kernels that older releases of onnxruntime lack or have wrong, replaced by operators that they have right."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.operators import ONNX, Trait, having
from graphcore.runtime.lowering.build import casts_without_bitcast
from graphcore.runtime.lowering.build.builder import Builder, Call, Decomposition, Replacement
from graphcore.runtime.lowering.targets.releases import Runtime
from graphcore.runtime.lowering.targets.traps import met_by_files, of_kernel
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

_I64 = DType.int64
STORED = tuple(d for d in vars(DType).values() if isinstance(d, DType) and d.storage is d and d is not DType.string)


def written(b: Builder, call: Call) -> Replacement:
    """Compute TensorScatter by ScatterElements: each element of the update goes to its index along the axis."""
    past, update, starts = [*call.inputs, None][:3]
    if not past.shape.is_ranked or not update.shape.is_ranked:
        return None
    rank = past.rank
    axis = call.attributes.get("axis", -2) % rank
    count = b.native("Shape", update, dtype=_I64, shape=_shape([Dim(1)]), start=axis, end=axis + 1)
    ends = b.native("Squeeze", count, b.vector([0]), shape=_shape([]))
    length = update.shape[axis]
    places = b.native("Range", b.scalar(0, _I64), ends, b.scalar(1, _I64), dtype=_I64, shape=_shape([length]))
    dims = [Dim(1)] * rank
    dims[axis] = length
    places = b.native("Reshape", places, b.vector([-1 if a == axis else 1 for a in range(rank)]), shape=_shape(dims))
    if starts is not None:
        first = b.cast(starts, _I64)
        firsts = _shape([past.shape[0], *[Dim(1)] * (rank - 1)])
        first = b.native("Reshape", first, b.vector([-1, *[1] * (rank - 1)]), shape=firsts)
        places = b.native("Add", places, first)
    if call.attributes.get("mode", "linear") == "circular":
        whole = b.native("Shape", past, dtype=_I64, shape=_shape([Dim(1)]), start=axis, end=axis + 1)
        places = b.op("Mod", places, whole, shape=places.shape)
    like = b.native("Shape", update, dtype=_I64, shape=_shape([Dim(rank)]))
    places = b.native("Expand", places, like, shape=update.shape)
    return b.op("ScatterElements", past, places, update, shape=call.shape, axis=axis)


# Rows for readers of files: releases that no session runs on, and optimisers that no session has.
#
# They are for what those lack, or have wrong, in the releases that `traps.json` has.

_U64, _F32, _F64, _BOOL = DType.uint64, DType.float32, DType.float64, DType.bool
_FLOAT8 = (DType.float8_e4m3fn, DType.float8_e5m2)
_COMPARISONS = having(Trait.COMPARES) & ONNX


class _Trap(NamedTuple):
    """in_file: whether it is an optimiser's, which sessions switch off."""

    decomposition: Decomposition
    in_file: bool = False


def rows() -> dict[tuple[str, DType], Decomposition]:
    """Return the rows for kernels that releases or opsets lack."""
    made: dict[tuple[str, DType], Decomposition] = {**rows_of_bits(), ("Div", _U64): quotient}
    made.update({(op, _U64): compared for op in _COMPARISONS})
    made.update({(op, dtype): counted for op in ("Shape", "Size") for dtype in _FLOAT8})
    return made


def traps(runtime: Runtime) -> dict[tuple[str, DType], Decomposition]:
    """Return the rows for kernels that are wrong in a release."""
    return {
        key: trap.decomposition
        for key, trap in _TRAPS.items()
        if runtime.in_file >= trap.in_file and met_by_files(of_kernel(*key), runtime)
    }


def counted(b: Builder, call: Call) -> Replacement:
    """Compute Shape and Size of float8 by float32 and a Reshape: an optimiser drops a Cast before them."""
    (x,) = call.inputs
    wide = casts_without_bitcast.barrier(b, b.cast(x, _F32))
    return b.native(call.op, wide, dtype=_I64, shape=call.shape, **call.attributes)


def compared(b: Builder, call: Call) -> Replacement:
    """Compare uint64 as int64 with the highest bit flipped, which keeps the order."""
    x, y = (_turned(b, s) if call.op != "Equal" else b.cast(s, _I64) for s in call.inputs)
    return b.native(call.op, x, y, dtype=_BOOL, shape=call.shape)


def _turned(b: Builder, x: Symbol) -> Symbol:
    return b.native("Add", b.cast(x, _I64), b.scalar(-(1 << 63), _I64))


def quotient(b: Builder, call: Call) -> Replacement:
    """Compute Div of uint64 by signed division of the upper 63 bits, off by one at most: Warren, "Hacker's Delight".

    What is 2^63 or more goes into x once or not at all. A division by 0 gives 0, as docs/numbers.md says.
    """
    x = call.inputs[0]
    dividend, divisor = (b.cast(s, _I64) for s in call.inputs)
    shape = call.shape
    zero, one = b.scalar(0, _I64), b.scalar(1, _I64)
    large = b.native("Less", divisor, zero, dtype=_BOOL)
    nothing = b.native("Equal", divisor, zero, dtype=_BOOL)
    unsafe = b.native("Or", large, nothing)
    upper = b.cast(b.native("BitShift", x, b.scalar(1, _U64), direction="RIGHT"), _I64)
    near = b.native("Div", upper, b.native("Where", unsafe, one, divisor, dtype=_I64), shape=shape)
    near = b.native("Where", unsafe, zero, b.native("Add", near, near), dtype=_I64, shape=shape)
    rest = b.native("Sub", dividend, b.native("Mul", near, divisor), shape=shape)
    highest = b.scalar(-(1 << 63), _I64)
    more = b.native("GreaterOrEqual", b.native("Add", rest, highest), b.native("Add", divisor, highest), dtype=_BOOL)
    more = b.native("And", more, b.native("Not", nothing), shape=shape)
    return b.cast(b.native("Add", near, b.native_cast(more, _I64), shape=shape), _U64)


def whole(b: Builder, call: Call) -> Replacement:
    """Compute Floor and Ceil with the sign of zero kept: the kernels give 0.0 for -0.0."""
    (x,) = call.inputs
    return casts_without_bitcast.with_sign_of_zero(b, b.native(call.op, x), x)


def logistic(b: Builder, call: Call) -> Replacement:
    """Compute Sigmoid of float64 by Exp: an optimiser makes of x * Sigmoid(x) an operator without a kernel."""
    (x,) = call.inputs
    one = b.scalar(1.0, _F64)
    return b.native("Reciprocal", b.native("Add", b.native("Exp", b.native("Neg", x)), one))


def product(b: Builder, call: Call) -> Replacement:
    """Compute MatMul of float64 by Einsum: an optimiser makes of it and a Transpose an operator without a kernel."""
    x, y = call.inputs
    if not all(s.shape.is_ranked and s.rank > 1 for s in (x, y)):
        return None
    return b.op("Einsum", x, y, shape=call.shape, equation="...ij,...jk->...ik")


_TRAPS: dict[tuple[str, DType], _Trap] = {
    **{(op, dtype): _Trap(whole) for op in ("Floor", "Ceil") for dtype in (_F32, _F64)},
    ("Sigmoid", _F64): _Trap(logistic, in_file=True),
    ("MatMul", _F64): _Trap(product, in_file=True),
}


# Bitwise operators of integers by arithmetic, for opsets before 18, which lack them.

_DTYPES = tuple(map(DType.of, "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()))
_BYTE = 256


def rows_of_bits() -> dict[tuple[str, DType], Decomposition]:
    """Return the rows for an opset without these operators."""
    made: dict[tuple[str, DType], Decomposition] = {}
    for dtype in _DTYPES:
        made["BitwiseNot", dtype] = complement
        made.update({(f"Bitwise{name}", dtype): combined for name in ("And", "Or", "Xor")})
    return made


def complement(b: Builder, call: Call) -> Replacement:
    """Compute BitwiseNot as -1 - x."""
    (x,) = call.inputs
    return b.cast(b.native("Sub", b.scalar(-1, _I64), _wide(b, x)), x.dtype)


def combined(b: Builder, call: Call) -> Replacement:
    """Compute BitwiseAnd, Or and Xor: x | y is x + y - (x & y), and x ^ y is x + y - 2 (x & y)."""
    x, y = call.inputs if b.known(call.inputs[0]) is None else call.inputs[::-1]
    shape, bits = call.shape, x.dtype.bits
    wide, other = _wide(b, x), _wide(b, y)
    mask = b.known(y)
    if call.op == "BitwiseXor" and mask is not None and mask.size and (_unsigned(mask, bits) == 1 << (bits - 1)).all():
        return b.cast(b.native("Add", wide, other, shape=shape), x.dtype)
    low = _low_bits(mask, bits)
    if low is not None and low < 63:
        both = b.native("Mod", wide, b.scalar(1 << low, _I64), dtype=_I64, shape=shape)
    else:
        both = _and_of_bytes(b, wide, other, bits // 8, shape)
    if call.op != "BitwiseAnd":
        sum_ = b.native("Add", wide, other, shape=shape)
        both = b.native("Mul", both, b.scalar(2, _I64)) if call.op == "BitwiseXor" else both
        both = b.native("Sub", sum_, both, shape=shape)
    return b.cast(both, x.dtype)


def _wide(b: Builder, x: Symbol) -> Symbol:
    return x if x.dtype is _I64 else b.cast(x, _I64)


def _unsigned(array: np.ndarray[Any, Any], bits: int) -> Any:
    """Return the bits of integers as Python numbers."""
    return np.asarray(array.astype(object) & ((1 << bits) - 1))


def _low_bits(mask: np.ndarray[Any, Any] | None, bits: int) -> int | None:
    """Return how many of the lowest bits a known mask of one element keeps; None where it is another mask."""
    if mask is None or mask.size != 1:
        return None
    value = int(_unsigned(mask, bits).reshape(-1)[0])
    return value.bit_length() if value & (value + 1) == 0 else None


def _and_of_bytes(b: Builder, x: Symbol, y: Symbol, count: int, shape: Any) -> Symbol:
    """Return x & y byte by byte, each looked up in a table of all pairs."""
    table = _table(b)
    base = b.scalar(_BYTE, _I64)
    made: Symbol | None = None
    for place in range(count):
        low, high = b.native("Mod", x, base, dtype=_I64), b.native("Mod", y, base, dtype=_I64)
        pair = b.native("Add", b.native("Mul", low, base), high, shape=shape)
        byte = b.cast(b.native("Gather", table, pair, shape=shape, axis=0), _I64)
        weight = 1 << 8 * place
        byte = byte if not place else b.native("Mul", byte, b.scalar(weight, _I64))
        made = byte if made is None else b.native("Add", made, byte)
        x = b.native("Div", b.native("Sub", x, low), base)
        y = b.native("Div", b.native("Sub", y, high), base)
    assert made is not None
    return made


def _table(b: Builder) -> Symbol:
    made = b.graph.memory.values.get("bytes & bytes")
    if made is None:
        bytes_ = np.arange(_BYTE, dtype=np.uint8)
        made = b.constant((bytes_[:, None] & bytes_).reshape(-1), DType.uint8)
        b.graph.memory.values["bytes & bytes"] = made
    return made
