"""Dtypes to compute an operator in if a target has no kernel, or one that docs/numbers.md does not allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from graphcore.operators import Trait, having
from graphcore.types.dtypes import DType

# Operators that only move values: any dtype that represents the values can be used. The other operators with these
# traits have decompositions or definitions.
MOVES = having(Trait.MOVES, Trait.FILLS, Trait.JOINS, Trait.SELECTS, Trait.SIGN, Trait.BODIES) - frozenset(
    "CenterCropPad GlobalMaxPool MaxRoiPool OneHot SequenceMap Unique".split()
)

_NARROW_FLOATS = "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0 float4_e2m1 float16 bfloat16"

# dtype -> the dtypes to compute in instead, best first. Integers wrap when they are cast back.
PROMOTIONS: dict[DType, tuple[DType, ...]] = {
    DType.bool: (DType.uint8, DType.int32, DType.float32),
    DType.int4: (DType.int8, DType.int32, DType.int64, DType.float32),
    DType.uint4: (DType.uint8, DType.int32, DType.int64, DType.float32),
    DType.int2: (DType.int8, DType.int32, DType.int64, DType.float32),
    DType.uint2: (DType.uint8, DType.int32, DType.int64, DType.float32),
    DType.int8: (DType.int32, DType.int64, DType.float32),
    DType.int16: (DType.int32, DType.int64, DType.float32),
    DType.uint8: (DType.int32, DType.int64, DType.float32),
    DType.uint16: (DType.int32, DType.int64, DType.uint32, DType.float32),
    DType.int32: (DType.int64, DType.float64),
    DType.uint32: (DType.int64, DType.float64),
    **dict.fromkeys(map(DType.of, _NARROW_FLOATS.split()), (DType.float32,)),
}

# Their results fit any dtype that represents the operands: casting back does not round or wrap.
KEEPS_VALUES = (
    MOVES
    - having(Trait.SIGN, Trait.BODIES)
    - frozenset("Clip MaxPool ReduceMax ReduceMin ScatterElements ScatterND TensorScatter".split())
)
KEEPS_FLOATS = KEEPS_VALUES | {"Abs", "Neg"}

# The low bits of their integer results depend only on the low bits of the operands.
LOW_BITS = frozenset(
    "Add Sub Mul Neg BitwiseAnd BitwiseOr BitwiseXor BitwiseNot MatMul Einsum ReduceSum ReduceProd CumSum Concat "
    "Expand Flatten Gather GatherElements GatherND Identity Pad Reshape ReverseSequence Slice Split Squeeze Tile "
    "Transpose Trilu Unsqueeze Where DepthToSpace SpaceToDepth".split()
)

# Unsigned dtypes with the signed dtype of the same size, for operators that compute the same bits for both.
VIEWS = {DType.uint64: DType.int64, DType.uint32: DType.int32, DType.uint16: DType.int16, DType.uint8: DType.int8}
VIEWED = frozenset(
    "Neg Where CumSum Trilu Gather Compress Einsum MatMul Mul Add Sub Tile Expand Pad Concat Reshape ScatterElements "
    "ScatterND Slice Split Squeeze Transpose Unsqueeze GatherElements GatherND Identity".split()
)


# Kernels whose values are not what docs/numbers.md promises: they are not legal.
#
# The table of a target is measured and has all kernels; this table is written by hand and has those that are not used,
# with the reason; `traps.json` has the releases. Kernels that are wrong for some operands only (NaN in a maximum,
# MIN / -1) have a row in `decompositions` instead.

HALVES = frozenset({DType.float16, DType.bfloat16})

UNROUNDED = frozenset(
    "BitCast Cast CastLike Clip Compress Concat ConcatFromSequence Constant ConstantOfShape Expand Flatten Gather "
    "GatherElements GatherND Identity If IsInf IsNaN Loop Max Min Optional OptionalGetElement OptionalHasElement "
    "Reshape ReverseSequence Round Scan ScatterElements ScatterND SequenceAt SequenceConstruct SequenceEmpty "
    "SequenceErase SequenceInsert SequenceLength SequenceMap Shape Size Slice Split SplitToSequence Squeeze "
    "TensorScatter Transpose Unsqueeze".split()
)
"""Operators whose results are unchanged values, whole numbers or bools: nothing can be rounded."""

CUDA_ONCE = frozenset(
    "Abs Add ArgMax ArgMin Ceil Conv DepthToSpace Div Equal Erf Exp Floor Gemm Greater GreaterOrEqual Less "
    "LessOrEqual Log LogSoftmax MatMul Mul Neg NonZero OneHot Pad Pow Reciprocal ReduceMax ReduceMean ReduceMin "
    "ReduceSum Relu Softmax SpaceToDepth Sqrt Sub Tanh Tile TopK Trilu Where".split()
)
"""Operators whose narrow kernels of the CUDA provider compute in float32, or exactly, and round at the end."""

Incorrect: TypeAlias = Mapping[str, tuple[str, str]]
"""By operator: the dtypes, and what is wrong with the values."""

CPU: Incorrect = {
    "Attention": (
        "float32",
        "ignores nonpad_kv_seqlen, and does not combine masks with is_causal as opset 24 defines",
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
