"""Matrix products fused with scales, products of quantised weights, and inverses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphcore.build import primitives as e
from graphcore.custom_ops.custom_op import Types
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops import onnx
from graphcore.ops.gathering import gather
from graphcore.ops.joining import stack
from graphcore.ops.linalg import matmul
from graphcore.ops.matrices import columns_of, filled, stack_axes, substituted
from graphcore.ops.microsoft._declare import BYTES, FLOATS, SINGLES, check_bias, contrib, may_be, shape_at
from graphcore.ops.rearranging import permute
from graphcore.ops.shape import cast
from graphcore.ops.triangular import lu_factor
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType


@contrib(
    promote="float",
    dtypes={"A B": FLOATS},
    kernels="float32 float64",
    when=lambda types, attributes, results: _is_batched_alike(types, attributes),
)
def FusedMatMul(  # noqa: N802
    A: Symbol,
    B: Symbol,
    *,
    alpha: float = 1.0,
    transA: bool = False,
    transB: bool = False,
    transBatchA: bool = False,
    transBatchB: bool = False,
) -> Symbol:
    """alpha * A @ B, as NumPy's matmul.

    Args:
        A: [..., m, k] and [..., k, n]; transA, transB: swap their last two axes first.
        B: As `A`.
        transBatchA: Move their first axis before the last one, before that swap.
        transBatchB: Move their first axis before the last one, before that swap.

    Returns:
        [..., m, n].
    """
    product = matmul(_transpose_operand(A, transA, transBatchA), _transpose_operand(B, transB, transBatchB))
    return product if alpha == 1 else product * alpha


def _is_batched_alike(types: Types, attributes: Mapping[str, Any]) -> bool:
    """Return True if the kernel can transpose the batch: for operands of one rank, 3 or more."""
    if not attributes["transBatchA"] and not attributes["transBatchB"]:
        return True
    a, b = shape_at(types, 0), shape_at(types, 1)
    return a is not None and b is not None and len(a) == len(b) >= 3


def _transpose_operand(x: Symbol, swaps: bool, from_first: bool) -> Symbol:
    if from_first and x.rank > 2:
        x = permute(x, [*range(1, x.rank - 1), 0, x.rank - 1])
    if swaps and x.rank > 1:
        x = permute(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])
    return x


@contrib(
    promote={"A scales bias": "float", "zero_points": "none"},
    dtypes={"A scales bias": SINGLES, "B": "uint8", "zero_points": f"uint8 {SINGLES}", "g_idx": "int32"},
    kernels="float32",
    when=lambda types, attributes, results: _is_packed_form(types, attributes),
    note="with zero points in bytes or none, without g_idx",
)
def MatMulNBits(  # noqa: N802
    A: Symbol,
    B: Symbol,
    scales: Symbol,
    zero_points: Symbol | None = None,
    g_idx: Symbol | None = None,
    bias: Symbol | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    bits: int = 4,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Symbol:
    """A @ W^T + bias of a weight that is quantised by blocks along its rows.

    Args:
        A: [..., K].
        B: [N, blocks, block_size * bits / 8], integers of 2, 4 or 8 bits, the first in the lowest bits of a byte;
            blocks is K / block_size, rounded up.
        scales: [N, blocks].
        zero_points: [N, blocks * bits / 8] packed as B is, or [N, blocks] of floats; by default half the range.
        g_idx: [K], the block whose scale each column uses.
        bias: [N].
        accuracy_level: 4 lets the kernel round A to int8; the body ignores it.

    Returns:
        [..., N].
    """
    if weight_prepacked:
        raise ValueError("weights in the layout of a provider are not supported: the operator has no body for them")
    if bits not in (2, 4, 8):
        raise ValueError(f"bits must be 2, 4 or 8, got {bits}")
    if block_size < 16 or block_size & (block_size - 1):
        raise ValueError(f"block_size must be a power of two, at least 16, got {block_size}")
    if K < 1 or N < 1:
        raise ValueError(f"K and N must be at least 1, got {K} and {N}")
    if A.rank < 1 or (A.shape[-1].is_static and A.shape[-1] != K):
        raise ValueError(f"A has shape {A.shape}, but K is {K}")
    blocks = -(-K // block_size)
    _check_count("B", B, N * blocks * block_size * bits // 8)
    _check_count("scales", scales, N * blocks)
    unpacked = _unpacked(B.reshape(N, blocks, block_size * bits // 8), bits).cast(DType.float32)
    zero = _zeros(zero_points, N, blocks, bits)
    scale = scales.reshape(N, blocks)
    if g_idx is None:
        by_block = (unpacked - (zero if isinstance(zero, float) else zero.reshape(N, blocks, 1))) * scale.reshape(
            N, blocks, 1
        )
        weight = by_block.reshape(N, blocks * block_size)[:, :K]
    else:
        flat = unpacked.reshape(N, blocks * block_size)[:, :K]
        here = zero if isinstance(zero, float) else gather(zero, g_idx, axis=1)
        weight = (flat - here) * gather(scale, g_idx, axis=1)
    check_bias(bias, N)
    product = matmul(A, permute(weight, [1, 0]))
    return product if bias is None else product + bias


def _is_packed_form(types: Types, attributes: Mapping[str, Any]) -> bool:
    """Return True if the kernel computes it: with zero points in bytes, and without an order of columns."""
    zero = types[3] if len(types) > 3 else None
    packed = zero is None or (isinstance(zero, TensorType) and zero.dtype is DType.uint8)
    weight = shape_at(types, 1)
    is_whole = weight is not None and len(weight) == 3 and attributes["block_size"] <= 256
    return packed and is_whole and (len(types) < 5 or types[4] is None)


def _unpacked(x: Symbol, bits: int) -> Symbol:
    """Unpack integers from bytes along the last axis, the first in the lowest bits."""
    if bits == 8:
        return x
    parts = [(x >> (shift if shift else 0)) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return stack(parts, axis=-1).reshape(*x.shape[:-1], x.shape[-1] * (8 // bits))


def _zeros(zero_points: Symbol | None, n: int, blocks: int, bits: int) -> Symbol | float:
    if zero_points is None:
        return float(1 << (bits - 1))
    if zero_points.dtype is not DType.uint8:
        _check_count("zero_points", zero_points, n * blocks)
        return zero_points.reshape(n, blocks)
    row = -(-blocks * bits // 8)
    _check_count("zero_points", zero_points, n * row)
    return _unpacked(zero_points.reshape(n, row), bits)[:, :blocks].cast(DType.float32)


def _check_count(name: str, x: Symbol, expected: int) -> None:
    size = x.shape.size
    if size.is_static and size != expected:
        raise ValueError(f"{name} must have {expected} elements, got {size}")


@contrib(
    dtypes={"A b_scale bias": "float32", "B b_zero_point": BYTES},
    kernels="float32",
)
def DynamicQuantizeMatMul(  # noqa: N802
    A: Symbol, B: Symbol, b_scale: Symbol, b_zero_point: Symbol | None = None, bias: Symbol | None = None
) -> Symbol:
    """A @ (B - b_zero_point) * b_scale + bias, with A quantised to uint8 by its minimum and maximum.

    Args:
        A: [..., m, k] of float32.
        B: [k, n] of int8 or uint8.
        b_scale: One, or [n].
        b_zero_point: One, or [n].
        bias: [n].

    Returns:
        [..., m, n].
    """
    quantised, scale, zero = onnx.DynamicQuantizeLinear(A)
    return _scaled(quantised, B, zero, b_zero_point, scale * _one_or_row(b_scale), bias)


@contrib(
    dtypes={"A a_zero_point B b_zero_point": BYTES, "a_scale b_scale bias": "float32 float16"},
    promote={"a_scale b_scale bias": "float"},
    kernels=BYTES,
    when=lambda types, attributes, results: _has_kernel(types),
    note="not int8 with uint8",
)
def MatMulIntegerToFloat(  # noqa: N802
    A: Symbol,
    B: Symbol,
    a_scale: Symbol,
    b_scale: Symbol,
    a_zero_point: Symbol | None = None,
    b_zero_point: Symbol | None = None,
    bias: Symbol | None = None,
) -> Symbol:
    """(A - a_zero_point) @ (B - b_zero_point) * a_scale * b_scale + bias.

    Args:
        A: [..., m, k] and B: [..., k, n] of int8 or uint8.
        a_scale: One.
        b_scale: One, or [n].
        a_zero_point: One.
        b_zero_point: One, or [n].
        bias: [n].

    Returns:
        [..., m, n] of the dtype of the scales.
    """
    return _scaled(A, B, a_zero_point, b_zero_point, _one_or_row(a_scale) * _one_or_row(b_scale), bias)


def _has_kernel(types: Types) -> bool:
    """Return True if the kernel supports these dtypes; it has one zero point for A."""
    a, b, scale = (t.dtype for t in types[:3] if isinstance(t, TensorType))
    return scale is DType.float32 and (a is DType.uint8 or b is DType.int8)


def _scaled(
    a: Symbol, b: Symbol, a_zero: Symbol | None, b_zero: Symbol | None, scale: Symbol, bias: Symbol | None
) -> Symbol:
    for name, zero, x in (("a_zero_point", a_zero, a), ("b_zero_point", b_zero, b)):
        if zero is not None and zero.dtype is not x.dtype:
            raise TypeError(f"{name} must be {x.dtype}, as its operand, got {zero.dtype}")
    if bias is not None:
        check_bias(bias, b.shape[-1])
    a_zero = None if a_zero is None else a_zero.reshape(())
    if a.dtype is DType.int8 and b.dtype is DType.uint8:  # onnxruntime has no product of these with a scale
        a = _as_uint8(a)
        a_zero = _as_uint8(np.zeros((), np.int8) if a_zero is None else a_zero)
    product: Any = onnx.MatMulInteger(a, b, a_zero, None if b_zero is None else _one_or_row(b_zero))
    result: Symbol = product.cast(DType.float32) * scale
    return result if bias is None else result + bias


def _as_uint8(x: TensorLike) -> Symbol:
    """Convert int8 to uint8 by adding 128."""
    return (cast(x, DType.int16) + 128).cast(DType.uint8)


def _one_or_row(x: Symbol) -> Symbol:
    if x.rank > 1:
        raise ValueError(f"a scale or zero point must be a scalar or a vector, got shape {x.shape}")
    return x.reshape(()) if x.rank == 1 and x.shape[0] == 1 else x


@contrib(dtypes={"A B": "float32 float64 int32 int64 uint32 uint64"})
def SparseToDenseMatMul(  # noqa: N802
    A: Symbol, B: Symbol, *, alpha: float = 1.0, transA: bool = False, transB: bool = False
) -> Symbol:
    """alpha * A @ B of a sparse A, which is dense here.

    Args:
        A: [m, k], and B: [k, n]; transA, transB: swap their axes first.

    Returns:
        [m, n].
    """
    product = matmul(_transpose_operand(A, transA, False), _transpose_operand(B, transB, False))
    return product if alpha == 1 else product * cast(alpha, product.dtype)


@contrib(promote="float", dtypes={"X": FLOATS}, kernels="float32 float64", note="float16 is rounded once")
def Inverse(X: Symbol) -> Symbol:  # noqa: N802
    """The inverse of square matrices.

    Args:
        X: [..., size, size].

    Returns:
        Its type.
    """
    if X.rank < 2 or not may_be(X.shape[-1], X.shape[-2]):
        raise ValueError(f"X must be square matrices, got shape {X.shape}")
    factors, order = lu_factor(X)
    zeros = filled(factors, [*stack_axes(factors), -2, -1])
    permutation = e.where(e.equal(columns_of(factors), order.unsqueeze(-1)), e.const(zeros, 1.0), zeros)
    return substituted(factors, substituted(factors, permutation, lower=True, unit=True))
