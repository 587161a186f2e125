"""Kernels whose values are not what docs/numbers.md promises: they are not legal.

The table of a target is measured and has all kernels; this has, by hand and with the reason, those that are not used,
and `traps.json` in which releases. Kernels that are wrong for some operands only (NaN in a maximum, MIN / -1) are not
here: they have a row in `decompositions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from graphcore.types.dtypes import DType

HALVES = frozenset({DType.float16, DType.bfloat16})

UNROUNDED = frozenset(
    "BitCast Cast CastLike Clip Compress Concat ConcatFromSequence Constant ConstantOfShape Expand Flatten Gather "
    "GatherElements GatherND Identity If IsInf IsNaN Loop Max Min Optional OptionalGetElement OptionalHasElement "
    "Reshape ReverseSequence Round Scan ScatterElements ScatterND SequenceAt SequenceConstruct SequenceEmpty "
    "SequenceErase SequenceInsert SequenceLength SequenceMap Shape Size Slice Split SplitToSequence Squeeze "
    "TensorScatter Transpose Unsqueeze".split()
)
"""Operators that give values as they are, whole numbers or bools: there is nothing to round in them."""

CUDA_ONCE = frozenset(
    "Abs Add ArgMax ArgMin Ceil Conv DepthToSpace Div Equal Erf Exp Floor Gemm Greater GreaterOrEqual Less "
    "LessOrEqual Log LogSoftmax MatMul Mul Neg NonZero OneHot Pad Pow Reciprocal ReduceMax ReduceMean ReduceMin "
    "ReduceSum Relu Softmax SpaceToDepth Sqrt Sub Tanh Tile TopK Trilu Where".split()
)
"""Operators whose narrow kernels of the CUDA provider compute in float32, or correctly, and round at the end."""

Incorrect: TypeAlias = Mapping[str, tuple[str, str]]
"""By operator the dtypes, and what is wrong with the values."""

CPU: Incorrect = {
    "Attention": (
        "float32",
        "ignores nonpad_kv_seqlen, and computes masks beside is_causal not as opset 24 says",
    ),
    "GroupNormalization": (
        "float32 float64",
        "a function body in float32 with the variance as mean(x^2) - mean(x)^2, which cancels: 1e-3 off around 100",
    ),
    "Sign": ("float16 bfloat16", "0 for NaN"),
}

CUDA: Incorrect = {
    "Attention": ("float64", "a function body that scales in float32"),
    "GroupNormalization": ("float32 float64", "a function body in float32 whose variance cancels"),
    "LayerNormalization": ("float64", "statistics in float32"),
    "RMSNormalization": ("float64", "statistics in float32"),
    "Pow": ("int32 int64", "through float64, which holds 53 bits"),
    **{
        f"Reduce{name}": ("int32 int64", "through float32, which holds 24 bits")
        for name in ("L1", "L2", "Max", "Mean", "Min", "Prod", "Sum")
    },
}

OPENVINO: Incorrect = {
    "Clip": ("float32", "a bound for NaN"),
    "GroupNormalization": ("float32", "a variance that cancels"),
    "Mod": ("float32", "NaN for an infinite divisor"),
}
