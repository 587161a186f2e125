"""Quantisation, dequantisation, gathers of quantised rows, and operators on quantised numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphcore.custom_ops.custom_op import CustomOp, Types
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops import onnx
from graphcore.ops.activation import sigmoid
from graphcore.ops.gathering import gather, where
from graphcore.ops.joining import repeat_interleave
from graphcore.ops.microsoft._declare import BYTES, contrib, may_be, shape_at
from graphcore.ops.microsoft.products import _unpacked
from graphcore.ops.shape import shape_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

# Numbers of 8 bits that represent scale * (x - zero_point)

_TYPES = {"A A_zero_point B B_zero_point C_zero_point": BYTES, "A_scale B_scale C_scale": "float32"}
_UNARY = {"X X_zero_point Y_zero_point": BYTES, "X_scale Y_scale": "float32"}

_STEP = "kernel and body may differ by one step of the result, where it lies between two"


def _are_scalars(types: Types, positions: tuple[int, ...]) -> bool:
    """Return True if scales and zero points are as the kernel requires: given, and scalars."""
    return all(shape_at(types, i) == () for i in positions)


def _dequantize(x: Symbol, scale: Symbol, zero: Symbol | None) -> Symbol:
    return onnx.DequantizeLinear(x, scale.reshape(()), _zero_of(x, zero))


def _quantize(x: Symbol, scale: Symbol, zero: Symbol | None, like: Symbol) -> Symbol:
    """Round to nearest, ties to even, and saturate."""
    return onnx.QuantizeLinear(x, scale.reshape(()), _zero_of(like, zero))


def _zero_of(x: Symbol, zero: Symbol | None) -> TensorLike:
    """Return a zero point of the dtype of x, explicit even if 0: onnxruntime's fusions take a missing one for uint8."""
    if zero is None:
        return np.zeros((), x.dtype.numpy)
    if zero.dtype is not x.dtype:
        raise TypeError(f"a zero point must be {x.dtype}, as its operand, got {zero.dtype}")
    return zero.reshape(())


def _binary(name: str, sign: str, function: Callable[[Symbol, Symbol], Symbol]) -> CustomOp:
    """Declare an operator on two tensors of quantised numbers."""

    def body(
        A: Symbol,
        A_scale: Symbol,
        A_zero_point: Symbol | None,
        B: Symbol,
        B_scale: Symbol,
        B_zero_point: Symbol | None,
        C_scale: Symbol,
        C_zero_point: Symbol | None = None,
    ) -> Symbol:
        if A.dtype is not B.dtype:
            raise TypeError(f"A and B must have one dtype, got {A.dtype} and {B.dtype}")
        result = function(_dequantize(A, A_scale, A_zero_point), _dequantize(B, B_scale, B_zero_point))
        return _quantize(result, C_scale, C_zero_point, A)

    body.__name__ = body.__qualname__ = name
    body.__doc__ = f"""A {sign} B of quantised numbers.

    Args:
        A: Int8 or uint8, of shapes that broadcast; scales and zero points: scalars.
        B: As `A`.

    Returns:
        The broadcast shape in the dtype of A.
    """
    return contrib(
        dtypes=_TYPES,
        kernels=BYTES,
        when=lambda types, attributes, results: _are_scalars(types, (1, 2, 4, 5, 6, 7)),
        note=_STEP,
    )(body)


QLinearAdd = _binary("QLinearAdd", "+", operator.add)
QLinearMul = _binary("QLinearMul", "*", operator.mul)


@contrib(
    dtypes=_UNARY, kernels=BYTES, when=lambda types, attributes, results: _are_scalars(types, (1, 2, 3, 4)), note=_STEP
)
def QLinearSigmoid(  # noqa: N802
    X: Symbol, X_scale: Symbol, X_zero_point: Symbol | None, Y_scale: Symbol, Y_zero_point: Symbol | None = None
) -> Symbol:
    """sigmoid(X) of quantised numbers.

    Args:
        X: Int8 or uint8; scales and zero points: scalars.

    Returns:
        The type of X.
    """
    return _quantize(sigmoid(_dequantize(X, X_scale, X_zero_point)), Y_scale, Y_zero_point, X)


@contrib(
    dtypes=_UNARY, kernels=BYTES, when=lambda types, attributes, results: _are_scalars(types, (1, 2, 3, 4)), note=_STEP
)
def QLinearLeakyRelu(  # noqa: N802
    X: Symbol,
    X_scale: Symbol,
    X_zero_point: Symbol | None,
    Y_scale: Symbol,
    Y_zero_point: Symbol | None = None,
    *,
    alpha: float = 0.01,
) -> Symbol:
    """X where it is positive, else alpha * X, of quantised numbers.

    Args:
        X: Int8 or uint8; scales and zero points: scalars.

    Returns:
        The type of X.
    """
    real = _dequantize(X, X_scale, X_zero_point)
    return _quantize(where(real >= 0, real, real * alpha), Y_scale, Y_zero_point, X)


# Quantisation, dequantisation, and gathers of rows

_STORED = "int8 uint8 int16 uint16 int4 uint4"


@contrib(
    dtypes={"x x_zero_point": f"{_STORED} int32", "x_scale": "float32 float16"},
    kernels=f"{_STORED} int32",
    when=lambda types, attributes, results: _is_per_tensor(types, attributes) and _is_single(types[1]),
    note="with one scale",
)
def DequantizeLinear(  # noqa: N802
    x: Symbol, x_scale: Symbol, x_zero_point: Symbol | None = None, *, axis: int | None = None
) -> Symbol:
    """(x - x_zero_point) * x_scale.

    Args:
        x: Integers of any shape.
        x_scale: A scalar, or one for each position of axis.
        x_zero_point: A scalar, or one for each position of axis.

    Returns:
        The shape of x in the dtype of x_scale.

    ONNX DequantizeLinear, for more dtypes.
    """
    scale, zero, settings = _along(x, x_scale, x_zero_point, axis)
    if zero is not None and zero.dtype is not x.dtype:
        raise TypeError(f"x_zero_point is {zero.dtype}, but x is {x.dtype}")
    return onnx.DequantizeLinear(x, scale, zero, **settings)


@contrib(
    promote={"x y_scale": "float"},
    dtypes={"x y_scale": "float32 float16", "y_zero_point": _STORED},
    kernels="float32",
    when=lambda types, attributes, results: _is_per_tensor(types, attributes),
    note="with one scale",
    rounded=False,
)
def QuantizeLinear(  # noqa: N802
    x: Symbol, y_scale: Symbol, y_zero_point: Symbol | None = None, *, axis: int | None = None
) -> Symbol:
    """x / y_scale + y_zero_point, rounded to nearest, ties to even, and saturated.

    Args:
        x: Floats of any shape.
        y_scale: A scalar, or one for each position of axis.
        y_zero_point: A scalar, or one for each position of axis.

    Returns:
        The shape of x in the dtype of y_zero_point, by default uint8.

    ONNX QuantizeLinear, for more dtypes.
    """
    scale, zero, settings = _along(x, y_scale, y_zero_point, axis)
    if zero is None:
        settings["output_dtype"] = DType.uint8
    return onnx.QuantizeLinear(x, scale, zero, **settings)


def _along(
    x: Symbol, scale: Symbol, zero: Symbol | None, axis: int | None
) -> tuple[Symbol, Symbol | None, dict[str, Any]]:
    if zero is not None and zero.shape != scale.shape:
        raise ValueError(f"scale and zero point must have one shape, got {scale.shape} and {zero.shape}")
    if axis is None:
        return scale.reshape(()), None if zero is None else zero.reshape(()), {}
    if scale.rank == 0:
        return scale, zero, {}
    return scale, zero, {"axis": axis}


def _is_per_tensor(types: Types, attributes: Mapping[str, Any]) -> bool:
    zero = types[2] if len(types) > 2 else None
    return attributes["axis"] is None and shape_at(types, 1) == () and (zero is None or shape_at(types, 2) == ())


@contrib(
    dtypes={
        "data zero_points": "int4 uint4 uint8",
        "indices": "int32 int64",
        "scales": "float32 float16 bfloat16",
    },
    kernels="int4 uint4 uint8",
    when=lambda types, attributes, results: _is_single(types[2]),
)
def GatherBlockQuantized(  # noqa: N802
    data: Symbol,
    indices: Symbol,
    scales: Symbol,
    zero_points: Symbol | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Symbol:
    """Rows of a table that is quantised by blocks: (data - zero_points) * scales at the indices, 0 out of range.

    Args:
        data: Int4 or uint4, or bytes with numbers of 2, 4 or 8 bits along the last axis, the first in the lowest bits.
        indices: Of any shape.
        scales: As data, with quantize_axis in blocks of block_size; zero_points are 0 by default, for bytes half the
            range.
        zero_points: As `scales`.

    Returns:
        The shape of data with that of indices in place of gather_axis, in the dtype of scales.
    """
    if block_size < 16 or block_size & (block_size - 1):
        raise ValueError(f"block_size must be a power of two, at least 16, got {block_size}")
    for name, axis in (("gather_axis", gather_axis), ("quantize_axis", quantize_axis)):
        if not -data.rank <= axis < data.rank:
            raise ValueError(f"{name} is {axis}, but data has {data.rank} axes")
    across, along = gather_axis % data.rank, quantize_axis % data.rank
    is_bytes = data.dtype is DType.uint8
    if across == along or (is_bytes and (bits not in (2, 4, 8) or across)):
        raise ValueError(f"{bits} bits gathered along axis {across} and quantised along {along} are not supported")
    if scales.rank != data.rank or (zero_points is not None and zero_points.dtype is not data.dtype):
        raise ValueError(f"data {data.type} does not match scales {scales.type} and the zero points")
    sizes = [*data.shape]
    if is_bytes:
        sizes[-1] = sizes[-1] * (8 // bits)
    expected = [*sizes[:along], sizes[along].ceildiv(block_size), *sizes[along + 1 :]]
    if not all(map(may_be, scales.shape, expected)):
        raise ValueError(f"scales must have shape {list(map(str, expected))}, got {scales.shape}")
    count = shape_of(data)[across]
    at = indices.cast(DType.int64)
    at = where(at < 0, at + count, at)
    inside = (at >= 0) & (at < count)
    at = where(inside, at, 0)
    place = along if along < across else along - 1 + indices.rank

    def taken(x: Symbol) -> Symbol:
        """Gather rows, with bytes unpacked."""
        picked = gather(x, at, axis=across)
        return _unpacked(picked, bits) if x.dtype is DType.uint8 else picked

    rows = taken(data).cast(DType.float32)

    def spread(x: Symbol) -> Symbol:
        wide = repeat_interleave(x.cast(DType.float32), block_size, axis=place)
        keep: list[Any] = [slice(None)] * wide.rank
        keep[place] = slice(0, shape_of(rows)[place] if not rows.shape[place].is_static else int(rows.shape[place]))
        return wide[tuple(keep)]

    zero: Any = np.float32(1 << (bits - 1) if is_bytes else 0)
    if zero_points is not None:
        points = taken(zero_points)
        zero = spread(points[_first(scales)] if is_bytes else points)
    result = (rows - zero) * spread(gather(scales, at, axis=across))
    trailing = [1] * (data.rank - 1 - across)
    mask = inside.reshape(*indices.shape, *trailing)
    return where(mask, result, 0.0)


def _is_single(scales: Type | None) -> bool:
    return isinstance(scales, TensorType) and scales.dtype is DType.float32


def _first(scales: Symbol) -> Any:
    """Return the index of zero points that belong to a block: bytes may hold more."""
    last = scales.shape[-1]
    return (..., slice(0, int(last))) if last.is_static else ...
