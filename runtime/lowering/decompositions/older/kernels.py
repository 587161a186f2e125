"""Kernels that older releases of onnxruntime lack or have wrong, replaced by operators that they have right."""

from __future__ import annotations

from typing import NamedTuple

from graphcore.ir.symbol import Symbol
from graphcore.operators import ONNX, Trait, having
from graphcore.runtime.lowering.build import casts_without_bitcast
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.older import bitwise
from graphcore.runtime.lowering.decompositions.signature import Decomposition, Replacement
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
    made: dict[tuple[str, DType], Decomposition] = {**bitwise.rows(), ("Div", _U64): quotient}
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
