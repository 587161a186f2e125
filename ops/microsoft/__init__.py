"""Operators of onnxruntime's domain com.microsoft: docs/custom_ops.md.

`ops.microsoft.FusedMatMul(a, b, alpha=0.5)`: names of operators, operands and attributes are those of onnxruntime.
Nodes of loaded models are typed by these declarations. An operator with a body runs in all its dtypes and on every
provider; onnxruntime's kernel is used where it returns the same numbers. Operators that are not declared here are made
from onnxruntime's schemas at first use, as those of `ops.onnx`, and run where onnxruntime has a kernel.
"""

from __future__ import annotations

from graphcore.ops.microsoft.attention import Attention, MultiHeadAttention, RotaryEmbedding
from graphcore.ops.microsoft.experts import MoE, QMoE
from graphcore.ops.microsoft.fused import (
    BiasAdd,
    BiasGelu,
    BiasSoftmax,
    EmbedLayerNormalization,
    FastGelu,
    FusedConv,
    FusedGemm,
    Gelu,
    NhwcMaxPool,
    QuickGelu,
    SkipLayerNormalization,
    SkipSimplifiedLayerNormalization,
    TransposeMatMul,
    Trilu,
)
from graphcore.ops.microsoft.grouped import GroupQueryAttention
from graphcore.ops.microsoft.products import (
    DynamicQuantizeMatMul,
    FusedMatMul,
    Inverse,
    MatMulIntegerToFloat,
    MatMulNBits,
    SparseToDenseMatMul,
)
from graphcore.ops.microsoft.quantized import (
    DequantizeLinear,
    GatherBlockQuantized,
    QLinearAdd,
    QLinearLeakyRelu,
    QLinearMul,
    QLinearSigmoid,
    QuantizeLinear,
)
from graphcore.ops.onnx._schemas import namespace

__all__ = [
    "Attention",
    "BiasAdd",
    "BiasGelu",
    "BiasSoftmax",
    "DequantizeLinear",
    "DynamicQuantizeMatMul",
    "EmbedLayerNormalization",
    "FastGelu",
    "FusedConv",
    "FusedGemm",
    "FusedMatMul",
    "GatherBlockQuantized",
    "Gelu",
    "GroupQueryAttention",
    "Inverse",
    "MatMulIntegerToFloat",
    "MatMulNBits",
    "MoE",
    "MultiHeadAttention",
    "NhwcMaxPool",
    "QLinearAdd",
    "QLinearLeakyRelu",
    "QLinearMul",
    "QLinearSigmoid",
    "QMoE",
    "QuantizeLinear",
    "QuickGelu",
    "RotaryEmbedding",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
    "SparseToDenseMatMul",
    "TransposeMatMul",
    "Trilu",
]

__getattr__, __dir__ = namespace(__name__, "com.microsoft", *__all__)
