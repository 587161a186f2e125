"""Matrix products."""

from __future__ import annotations

from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.build.compute import compute_in
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, _shape


def matmul_bool(b: Builder, call: Call) -> Replacement:
    """Compute MatMul of bools: whether any product is true."""
    x, y = (b.cast(s, DType.int32) for s in call.inputs)
    count = b.native("MatMul", x, y, shape=call.shape)
    return b.cast(count, DType.bool)


def may_be_empty(x: TensorType, result: TensorType) -> bool:
    """Return whether a product may have no rows, or nothing to add up, in one of the forms that kernels get wrong then.

    x: the left one's type. They are products with a vector, and those that repeat what is on the left.
    """
    if not x.shape.is_ranked or not result.shape.is_ranked or not x.rank:
        return False
    adds_nothing = (x.shape[-1].lower_bound or 0) < 1
    if x.rank > result.rank:
        return x.rank > 1 and (adds_nothing or not result.is_static or 0 in result.shape.static_dims)
    return adds_nothing and (result.rank > 1 if x.rank == 1 else x.shape[:-2] != result.shape[:-2])


def matmul(b: Builder, call: Call) -> Replacement:
    """Compute products of empty operands: the kernels refuse some, and leave other results unwritten or too small.

    They get it right for matrices with a column, and for stacks of which each on the left has its own on the right.
    """
    x, y = call.inputs
    shape = call.shape
    if not may_be_empty(x.type, call.types[0]) or not y.shape.is_ranked:
        return None
    if y.rank == 1:
        column = b.native("Unsqueeze", y, b.vector([1]), shape=_shape([*y.shape, Dim(1)]))
        product = b.op(call.op, x, column, shape=_shape([*shape, Dim(1)]))
        return b.native("Squeeze", product, b.vector([-1]), shape=shape)
    if x.rank > 1:
        return b.op(call.op, _repeated(b, x, y, shape[:-2]), y, shape=shape)
    row = b.native("Unsqueeze", x, b.vector([0]), shape=_shape([Dim(1), *x.shape]))
    product = b.op(call.op, _repeated(b, row, y, shape[:-1]), y, shape=_shape([*shape[:-1], Dim(1), shape[-1]]))
    return b.native("Squeeze", product, b.vector([-2]), shape=shape)


def _repeated(b: Builder, x: Symbol, y: Symbol, stacks: Shape) -> Symbol:
    """Return as many matrices on the left as on the right."""
    count = b.native("Shape", y, dtype=DType.int64, shape=Shape([y.rank - 2]), end=-2)
    target = b.native("Concat", count, b.vector([1, 1]), shape=Shape([y.rank]), axis=0)
    return b.op("Expand", x, target, shape=stacks + x.shape[-2:])


def matmul_bytes(b: Builder, call: Call) -> Replacement:
    """Compute MatMul of bytes by MatMulInteger, which is many times faster than products in int32.

    Signed ones are read as unsigned, 128 above what they are: on some processors products of signed with unsigned bytes
    saturate. Where nothing is summed up the kernel leaves its result as it finds it, so the length must be known.
    """
    x, y = call.inputs
    if not x.shape.is_ranked or not y.shape.is_ranked or not x.shape[-1].is_static or not int(x.shape[-1]):
        return None
    if 1 == y.rank < x.rank:  # with a vector the kernel refuses rows of which there are none
        return None
    own, bytes_ = x.dtype, DType.uint8
    zeros: list[Symbol] = []
    if own is DType.int8:
        offset = b.scalar(128, bytes_)
        x, y = (b.native("BitwiseXor", b.view(s, bytes_), offset, dtype=bytes_, shape=s.shape) for s in (x, y))
        zeros = [offset, offset]
    wide = b.native("MatMulInteger", x, y, *zeros, dtype=DType.int32, shape=call.shape)
    made = b.cast(wide, own)
    b.casts.loose[made.id, DType.int32] = wide
    return made


def matmul_double(b: Builder, call: Call) -> Replacement:
    """Compute MatMul of float64 apart from constant factors: onnxruntime fuses one before or after it as a float32."""
    by_vector = matmul(b, call)
    if by_vector is not None:
        return by_vector
    x, y = (b.native("BitCast", s, to=s.dtype) if isinstance(s.producer, Node) else s for s in call.inputs)
    made = b.native(call.op, x, y, shape=call.shape)
    return b.native("BitCast", made, to=made.dtype)


def matmul_unsigned(b: Builder, call: Call) -> Replacement:
    """Compute MatMul of unsigned integers as signed ones, which wrap alike: the unsigned kernels fail on empty sums."""
    view = DType.int32 if call.inputs[0].dtype is DType.uint32 else DType.int64
    return compute_in(b, view, call, by_bits=True)
