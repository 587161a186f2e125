"""Matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser


def matmul_bool(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """*or* of *and*s: whether any product is true."""
    x, y = (on.casts.cast(s, DType.bool, DType.int32) for s in inputs)
    count = on.native("MatMul", x, y, shape=types[0].shape)
    return on.casts.cast(count, DType.int32, DType.bool)


def may_be_of_nothing(x: TensorType, result: TensorType) -> bool:
    """Whether a product may have no rows, or nothing to add up, in one of the forms that kernels get wrong then.

    x: the left one's type. They are products with a vector, and those that repeat what is on the left.
    """
    if not x.shape.is_ranked or not result.shape.is_ranked or not x.rank:
        return False
    adds_nothing = (x.shape[-1].lower_bound or 0) < 1
    if x.rank > result.rank:
        return x.rank > 1 and (adds_nothing or not result.is_static or 0 in result.shape.static_dims)
    return adds_nothing and (result.rank > 1 if x.rank == 1 else x.shape[:-2] != result.shape[:-2])


def matmul(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Products of nothing: the kernels refuse some, and leave the results of others as they find them or too small.

    They get it right for matrices with a column, and for stacks of which each on the left has its own on the right.
    """
    x, y = inputs
    shape = types[0].shape
    if not may_be_of_nothing(x.type, types[0]) or not y.shape.is_ranked:
        return None
    if y.rank == 1:
        column = on.native("Unsqueeze", y, on.ints([1]), shape=_shape([*y.shape, Dim(1)]))
        product = on.op(op, x, column, shape=_shape([*shape, Dim(1)]))
        return on.native("Squeeze", product, on.ints([-1]), shape=shape)
    if x.rank > 1:
        return on.op(op, _repeated(on, x, y, shape[:-2]), y, shape=shape)
    row = on.native("Unsqueeze", x, on.ints([0]), shape=_shape([Dim(1), *x.shape]))
    product = on.op(op, _repeated(on, row, y, shape[:-1]), y, shape=_shape([*shape[:-1], Dim(1), shape[-1]]))
    return on.native("Squeeze", product, on.ints([-2]), shape=shape)


def _repeated(on: Legaliser, x: Symbol, y: Symbol, stacks: Shape) -> Symbol:
    """The matrices on the left, as many as on the right."""
    count = on.native("Shape", y, dtype=DType.int64, shape=Shape([y.rank - 2]), end=-2)
    target = on.native("Concat", count, on.ints([1, 1]), shape=Shape([y.rank]), axis=0)
    return on.op("Expand", x, target, shape=stacks + x.shape[-2:])


def matmul_bytes(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """MatMulInteger of bytes is many times faster than products in int32.

    Signed ones are read as unsigned, 128 above what they are: on some processors products of signed with unsigned bytes
    saturate. Where nothing is summed up the kernel leaves its result as it finds it, so the length must be known.
    """
    x, y = inputs
    if not x.shape.is_ranked or not y.shape.is_ranked or not x.shape[-1].is_static or not int(x.shape[-1]):
        return None
    if 1 == y.rank < x.rank:  # with a vector the kernel refuses rows of which there are none
        return None
    own, bytes_ = x.dtype, DType.uint8
    zeros: list[Symbol] = []
    if own is DType.int8:
        offset = on.const(128, bytes_)
        x, y = (on.native("BitwiseXor", on.viewed(s, bytes_), offset, dtype=bytes_, shape=s.shape) for s in (x, y))
        zeros = [offset, offset]
    wide = on.native("MatMulInteger", x, y, *zeros, dtype=DType.int32, shape=types[0].shape)
    made = on.casts.cast(wide, DType.int32, own)
    on.casts.loose[made.id, DType.int32] = wide
    return made


def matmul_double(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """onnxruntime draws a constant factor before or behind a product into it, as a float32: keep them apart."""
    by_vector = matmul(on, op, inputs, types, attributes)
    if by_vector is not None:
        return by_vector
    x, y = (on.native("BitCast", s, to=s.dtype) if isinstance(s.producer, Node) else s for s in inputs)
    made = on.native(op, x, y, shape=types[0].shape)
    return on.native("BitCast", made, to=made.dtype)


def matmul_unsigned(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The kernels of unsigned integers fail where there is nothing to add up; those of signed ones wrap alike."""
    view = DType.int32 if inputs[0].dtype is DType.uint32 else DType.int64
    return on.through(view, op, inputs, types, attributes, by_bits=True)
