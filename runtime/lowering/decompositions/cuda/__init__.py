"""Decompositions for operators that have no kernel, or an inexact one, in the CUDA provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from graphcore.runtime.lowering.build.builder import Decomposition
from graphcore.runtime.lowering.build.casts import in_dtype
from graphcore.runtime.lowering.decompositions import bits, float64_functions, neural, older, pooling
from graphcore.runtime.lowering.decompositions.cuda import networks, order
from graphcore.types.dtypes import DType

INTEGERS = older.INTEGERS
UNSIGNED = tuple(dtype for dtype in INTEGERS if dtype.is_unsigned)
F16, BF16, F32, F64 = DType.float16, DType.bfloat16, DType.float32, DType.float64
FLOATS = (F16, BF16, F32, F64)
VIEWABLE = (*INTEGERS, *FLOATS)

ROWS: list[tuple[Sequence[str], Sequence[DType], Decomposition]] = [
    (("BitCast",), VIEWABLE, order.bitcast),
    (("BitwiseAnd", "BitwiseOr", "BitwiseXor"), INTEGERS, older.bitwise),
    (("BitwiseNot",), INTEGERS, older.complement),
    (("BitShift",), UNSIGNED, order.shift),
    (("Abs",), FLOATS, order.absolute),
    (("Sign",), (F32, F64), bits.keep_nan),
    (("Relu",), FLOATS, neural.relu),
    (("Tan", "Sinh", "Cosh", "Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh"), (F32,), partial(in_dtype, F64)),
    (("Conv",), (F16, BF16), order.convolve_narrow),
    (("ReduceSum",), INTEGERS, networks.sum_integers),
    (("MatMul",), INTEGERS, networks.matmul),
    (("Einsum",), INTEGERS, networks.einsum),
    (("ReduceProd",), INTEGERS, networks.reduce_product),
    (("CumProd",), (DType.int32, DType.int64, DType.uint32, DType.uint64, F32, F64), networks.running_product),
    (("LpNormalization",), (F64,), networks.norm),
    (("Pad",), (DType.int64,), networks.pad),
    (("ReduceMax", "ReduceMin"), (F16,), order.bits_extreme),
    (("ReduceMax", "ReduceMin"), (DType.int64,), order.extreme),
    (("ArgMax", "ArgMin"), (*VIEWABLE,), order.argument),
    (("TopK",), (DType.int8, DType.int16, DType.int32, DType.uint8, DType.uint16, DType.uint32), order.top_k_integers),
    (("TopK",), (DType.int64,), order.top_k_int64),
    (("TopK",), FLOATS, order.top_k_floats),
    (("MaxPool",), (F32, F64, DType.int8, DType.uint8), pooling.max_integers),
    (("ConvTranspose",), (F32, F64), networks.convolve_evenly),
    (("RNN", "GRU", "LSTM"), (F32, F64), networks.run_recurrent),
]

STAY: list[tuple[Sequence[str], Sequence[DType]]] = [
    (("Where",), (F32, F64)),
    (("Conv", "ConvTranspose", "AveragePool", "GlobalAveragePool", "Sum", "LRN", "Erf", "Softplus"), (F64,)),
    (float64_functions.WITH_KERNELS, (F64,)),
]
"""Operators whose kernels are wrong or missing in the CPU provider but correct in the CUDA provider."""

AS_DOUBLE = ("Hardmax", "MeanVarianceNormalization", "Det", "Col2Im", "LpPool", "Mean")
"""Operators without a kernel even for float32, whose float64 rows work for any float."""


def rows(others: Mapping[tuple[str, DType], Decomposition]) -> dict[tuple[str, DType], Decomposition | None]:
    """Return the rows of the CUDA target; None for rows of `others` that it does not need."""
    table: dict[tuple[str, DType], Decomposition | None] = {}
    table.update({(op, dtype): None for ops, dtypes in STAY for op in ops for dtype in dtypes})
    table.update({(op, F32): others[op, F64] for op in AS_DOUBLE})
    table.update({(op, dtype): decomposition for ops, dtypes, decomposition in ROWS for op in ops for dtype in dtypes})
    return table
