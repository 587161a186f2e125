"""The dtypes that replace one without a kernel, by operator: the tables of `legalise`."""

from __future__ import annotations

from graphcore.operators import Trait, having
from graphcore.types.dtypes import DType

# Operators that put values elsewhere and leave them as they are: any dtype that holds them does. The others with these
# traits have decompositions or definitions.
MOVES = having(Trait.MOVES, Trait.FILLS, Trait.JOINS, Trait.SELECTS, Trait.SIGN, Trait.BODIES) - frozenset(
    "CenterCropPad GlobalMaxPool MaxRoiPool OneHot SequenceMap Unique".split()
)

# dtype -> the dtypes to compute in instead, best first. Integers wrap when they come back.
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
    DType.float8_e4m3fn: (DType.float32,),
    DType.float8_e5m2: (DType.float32,),
    DType.float8_e4m3fnuz: (DType.float32,),
    DType.float8_e5m2fnuz: (DType.float32,),
    DType.float8_e8m0: (DType.float32,),
    DType.float16: (DType.float32,),
    DType.bfloat16: (DType.float32,),
}

# Their results hold in any dtype that holds the operands: nothing is rounded or wrapped when they come back.
KEEPS_VALUES = (
    MOVES
    - having(Trait.SIGN, Trait.BODIES)
    - frozenset("Clip MaxPool ReduceMax ReduceMin ScatterElements ScatterND TensorScatter".split())
)
KEEPS_FLOATS = KEEPS_VALUES | {"Abs", "Neg"}

# The low bits of their integer results depend on the low bits of the operands alone.
LOW_BITS = frozenset(
    "Add Sub Mul Neg BitwiseAnd BitwiseOr BitwiseXor BitwiseNot MatMul Einsum ReduceSum ReduceProd CumSum Concat "
    "Expand Flatten Gather GatherElements GatherND Identity Pad Reshape ReverseSequence Slice Split Squeeze Tile "
    "Transpose Trilu Unsqueeze Where DepthToSpace SpaceToDepth".split()
)

# Unsigned numbers read as signed ones, for operators that do not mind.
VIEWS = {DType.uint64: DType.int64, DType.uint32: DType.int32, DType.uint16: DType.int16, DType.uint8: DType.int8}
VIEWED = frozenset(
    "Neg Where CumSum Trilu Gather Compress Einsum MatMul Mul Add Sub Tile Expand Pad Concat Reshape ScatterElements "
    "ScatterND Slice Split Squeeze Transpose Unsqueeze GatherElements GatherND Identity".split()
)
