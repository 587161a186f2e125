"""Products of matrices, with scales drawn in, and of weights that are quantised; mixtures of experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphcore.custom_ops.custom_op import Types
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops import onnx
from graphcore.ops.gathering import gather
from graphcore.ops.joining import stack
from graphcore.ops.linalg import matmul
from graphcore.ops.microsoft._declare import BYTES, FLOATS, SINGLES, check_row, contrib, rounded_once, shape_at
from graphcore.ops.rearranging import permute
from graphcore.ops.shape import cast
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType


@contrib(
    promote="float",
    dtypes={"A B": FLOATS},
    kernels="float32 float64",
    when=lambda types, attributes, results: _is_batched_alike(types, attributes),
)
@rounded_once()
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
    """alpha * A @ B, as NumPy's matmul. A, B: [..., m, k] and [..., k, n]; transA, transB: their last two axes are
    swapped before. transBatchA, transBatchB: their first axis is put before the last one, before that. Returns
    [..., m, n]."""
    product = matmul(_turned(A, transA, transBatchA), _turned(B, transB, transBatchB))
    return product if alpha == 1 else product * alpha


def _is_batched_alike(types: Types, attributes: Mapping[str, Any]) -> bool:
    """Return whether the kernel turns the batch: it does for operands of one rank, 3 or more."""
    if not attributes["transBatchA"] and not attributes["transBatchB"]:
        return True
    a, b = shape_at(types, 0), shape_at(types, 1)
    return a is not None and b is not None and len(a) == len(b) >= 3


def _turned(x: Symbol, swaps: bool, from_first: bool) -> Symbol:
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
@rounded_once()
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

    A: [..., K]. B: [N, blocks, block_size * bits / 8], whole numbers of 2, 4 or 8 bits, the first in the lowest bits of
    a byte; blocks is K / block_size, rounded up. scales: [N, blocks]. zero_points: [N, blocks * bits / 8] packed as B
    is, or [N, blocks] of floats; half the range where it is left out. g_idx: [K], the block whose scale each column
    has. bias: [N]. accuracy_level: 4 lets the kernel hold A in int8; the body ignores it. Returns [..., N].
    """
    if weight_prepacked:
        raise ValueError("weights in the layout of a provider have no body")
    if bits not in (2, 4, 8):
        raise ValueError(f"bits is {bits}: there are 2, 4 and 8")
    if block_size < 16 or block_size & (block_size - 1):
        raise ValueError(f"block_size is {block_size}: it is a power of two, 16 at least")
    if K < 1 or N < 1:
        raise ValueError(f"K and N are {K} and {N}: a weight has rows and columns")
    if A.rank < 1 or (A.shape[-1].is_static and A.shape[-1] != K):
        raise ValueError(f"A has shape {A.shape}, and K is {K}")
    blocks = -(-K // block_size)
    _count("B", B, N * blocks * block_size * bits // 8)
    _count("scales", scales, N * blocks)
    whole = _unpacked(B.reshape(N, blocks, block_size * bits // 8), bits).cast(DType.float32)
    zero = _zeros(zero_points, N, blocks, bits)
    scale = scales.reshape(N, blocks)
    if g_idx is None:
        by_block = (whole - (zero if isinstance(zero, float) else zero.reshape(N, blocks, 1))) * scale.reshape(
            N, blocks, 1
        )
        weight = by_block.reshape(N, blocks * block_size)[:, :K]
    else:
        flat = whole.reshape(N, blocks * block_size)[:, :K]
        here = zero if isinstance(zero, float) else gather(zero, g_idx, axis=1)
        weight = (flat - here) * gather(scale, g_idx, axis=1)
    check_row("bias", bias, N)
    product = matmul(A, permute(weight, [1, 0]))
    return product if bias is None else product + bias


def _is_packed_form(types: Types, attributes: Mapping[str, Any]) -> bool:
    """Return whether the kernel computes it: with zero points in bytes, and without an order of columns."""
    zero = types[3] if len(types) > 3 else None
    packed = zero is None or (isinstance(zero, TensorType) and zero.dtype is DType.uint8)
    weight = shape_at(types, 1)
    is_whole = weight is not None and len(weight) == 3 and attributes["block_size"] <= 256
    return packed and is_whole and (len(types) < 5 or types[4] is None)


def _unpacked(x: Symbol, bits: int) -> Symbol:
    """The whole numbers that bytes hold along the last axis, the first in the lowest bits."""
    if bits == 8:
        return x
    parts = [(x >> (shift if shift else 0)) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return stack(parts, axis=-1).reshape(*x.shape[:-1], x.shape[-1] * (8 // bits))


def _zeros(zero_points: Symbol | None, n: int, blocks: int, bits: int) -> Symbol | float:
    if zero_points is None:
        return float(1 << (bits - 1))
    if zero_points.dtype is not DType.uint8:
        _count("zero_points", zero_points, n * blocks)
        return zero_points.reshape(n, blocks)
    row = -(-blocks * bits // 8)
    _count("zero_points", zero_points, n * row)
    return _unpacked(zero_points.reshape(n, row), bits)[:, :blocks].cast(DType.float32)


def _count(name: str, x: Symbol, wanted: int) -> None:
    size = x.shape.size
    if size.is_static and size != wanted:
        raise ValueError(f"{name} has {size} elements, and {wanted} are wanted")


@contrib(
    dtypes={"A b_scale bias": "float32", "B b_zero_point": BYTES},
    kernels="float32",
)
def DynamicQuantizeMatMul(  # noqa: N802
    A: Symbol, B: Symbol, b_scale: Symbol, b_zero_point: Symbol | None = None, bias: Symbol | None = None
) -> Symbol:
    """A @ (B - b_zero_point) * b_scale + bias, with A quantised to uint8 by its least and greatest number.

    A: [..., m, k] of float32. B: [k, n] of int8 or uint8. b_scale, b_zero_point: one, or [n]. bias: [n]. Returns
    [..., m, n].
    """
    whole, scale, zero = onnx.DynamicQuantizeLinear(A)
    return _scaled(whole, B, zero, b_zero_point, scale * _one_or_row(b_scale), bias)


@contrib(
    dtypes={"A a_zero_point B b_zero_point": BYTES, "a_scale b_scale bias": "float32 float16"},
    promote={"a_scale b_scale bias": "float"},
    kernels=BYTES,
    when=lambda types, attributes, results: _has_kernel(types),
    note="not int8 with uint8",
)
@rounded_once()
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

    A: [..., m, k] and B: [..., k, n] of int8 or uint8. a_scale, a_zero_point: one. b_scale, b_zero_point: one, or [n].
    bias: [n]. Returns [..., m, n] of the dtype of the scales.
    """
    return _scaled(A, B, a_zero_point, b_zero_point, _one_or_row(a_scale) * _one_or_row(b_scale), bias)


def _has_kernel(types: Types) -> bool:
    """Return whether the kernel takes these dtypes; it has one zero point for A."""
    a, b, scale = (t.dtype for t in types[:3] if isinstance(t, TensorType))
    return scale is DType.float32 and (a is DType.uint8 or b is DType.int8)


def _scaled(
    a: Symbol, b: Symbol, a_zero: Symbol | None, b_zero: Symbol | None, scale: Symbol, bias: Symbol | None
) -> Symbol:
    for name, zero, x in (("a_zero_point", a_zero, a), ("b_zero_point", b_zero, b)):
        if zero is not None and zero.dtype is not x.dtype:
            raise TypeError(f"{name} is {zero.dtype}, and what it belongs to is {x.dtype}")
    if bias is not None:
        check_row("bias", bias, b.shape[-1])
    a_zero = None if a_zero is None else a_zero.reshape(())
    if a.dtype is DType.int8 and b.dtype is DType.uint8:  # of which onnxruntime has no product with a scale
        a = _moved(a)
        a_zero = _moved(np.zeros((), np.int8) if a_zero is None else a_zero)
    product: Any = onnx.MatMulInteger(a, b, a_zero, None if b_zero is None else _one_or_row(b_zero))
    made: Symbol = product.cast(DType.float32) * scale
    return made if bias is None else made + bias


def _moved(x: TensorLike) -> Symbol:
    """int8 as uint8, 128 higher."""
    return (cast(x, DType.int16) + 128).cast(DType.uint8)


def _one_or_row(x: Symbol) -> Symbol:
    if x.rank > 1:
        raise ValueError(f"a scale or zero point is one number or a row of them, not {x.shape}")
    return x.reshape(()) if x.rank == 1 and x.shape[0] == 1 else x


# Operators without a body: what the kernels take, and what they give

_ONE = "float32"


@contrib(dtypes={"X": "float16 float32 float64"}, kernels="float16 float32 float64", typed=True, note="typed only")
def Inverse(X: TensorType) -> TensorType:  # noqa: N802
    """The inverse of square matrices. X: [..., size, size]. Returns its type."""
    if X.shape.rank < 2 or (X.shape[-1].is_static and X.shape[-2].is_static and X.shape[-1] != X.shape[-2]):
        raise ValueError(f"{X.shape} is no shape of square matrices")
    return X


@contrib(
    dtypes={"input router_probs fc1_experts_weights fc1_experts_bias fc2_experts_weights fc2_experts_bias": _ONE},
    kernels=_ONE,
    typed=True,
    note="typed only",
)
def MoE(  # noqa: N802
    input: TensorType,
    router_probs: TensorType,
    fc1_experts_weights: TensorType,
    fc1_experts_bias: TensorType | None,
    fc2_experts_weights: TensorType,
    fc2_experts_bias: TensorType | None = None,
    fc3_experts_weights: TensorType | None = None,
    fc3_experts_bias: TensorType | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: bool = False,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    use_sparse_mixer: bool = False,
) -> TensorType:
    """A mixture of experts. input: [tokens, size] or [batch, positions, size]; router_probs: [tokens, experts]. Returns
    the type of input."""
    _check_router(input, router_probs)
    return input


@contrib(
    dtypes={"input router_probs": "float16 float32", "fc1_experts_weights fc2_experts_weights": "uint8"},
    kernels="float16 float32",
    typed=True,
    note="typed only",
)
def QMoE(  # noqa: N802
    input: TensorType,
    router_probs: TensorType,
    fc1_experts_weights: TensorType,
    fc1_scales: TensorType | None,
    fc1_experts_bias: TensorType | None,
    fc2_experts_weights: TensorType,
    fc2_scales: TensorType | None = None,
    fc2_experts_bias: TensorType | None = None,
    fc3_experts_weights: TensorType | None = None,
    fc3_scales: TensorType | None = None,
    fc3_experts_bias: TensorType | None = None,
    fc1_zero_points: TensorType | None = None,
    fc2_zero_points: TensorType | None = None,
    fc3_zero_points: TensorType | None = None,
    router_weights: TensorType | None = None,
    *,
    accuracy_level: int = 0,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    block_size: int | None = None,
    expert_weight_bits: int = 4,
    k: int = 1,
    normalize_routing_weights: bool = False,
    quant_type: str = "int",
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    use_sparse_mixer: bool = False,
    weights_prepacked: int = -1,
) -> TensorType:
    """A mixture of experts with quantised weights. input: [tokens, size] or [batch, positions, size]; router_probs:
    [tokens, experts]. Returns the type of input."""
    _check_router(input, router_probs)
    return input


def _check_router(x: TensorType, router: TensorType) -> None:
    if x.shape.rank not in (2, 3) or router.shape.rank != 2:
        raise ValueError(f"input and router_probs have shapes {x.shape} and {router.shape}")
    tokens = x.shape[0] if x.shape.rank == 2 else x.shape[0] * x.shape[1]
    rows: Dim = router.shape[0]
    if tokens.is_static and rows.is_static and tokens != rows:
        raise ValueError(f"router_probs has {rows} rows for {tokens} tokens")
