"""Decompositions of operators for which onnxruntime has no kernel, or a wrong one.

One row per (operator, dtype): the function that builds the replacement. It returns None if the kernel can stay. The
modules with these functions are imported on the first call: most loads call none.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Decomposition, OpCall, Replacement
from graphcore.runtime.lowering.build.casts import in_dtype
from graphcore.runtime.lowering.decompositions import bits, float64_functions, older, reductions
from graphcore.runtime.lowering.targets import traps
from graphcore.runtime.lowering.targets.compute_dtypes import HALVES
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.runtime.lowering.targets.releases import table_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type


def _call(name: str, *operands: Any) -> Any:
    """Call a function of a module of this folder, and import the module."""
    module, _, function = name.rpartition(".")
    return getattr(import_module(f"{__package__}.{module}"), function)(*operands)


def _late(name: str) -> Any:
    return partial(_call, name)


INTEGERS = older.INTEGERS
_F32, _F64 = WIDE_FLOATS = (DType.float32, DType.float64)
_FLOATS = (_F32, _F64, DType.float16, DType.bfloat16)
_FLOAT8 = (DType.float8_e4m3fn, DType.float8_e5m2, DType.float8_e4m3fnuz, DType.float8_e5m2fnuz)
_NIBBLES = (DType.int2, DType.uint2, DType.int4, DType.uint4)
_QUANTIZED = (DType.int8, DType.int16, DType.int32, DType.uint8, DType.uint16, *_NIBBLES, *_FLOAT8)
_STORED = tuple(d for d in vars(DType).values() if isinstance(d, DType) and d.storage is d)
_ORDERED = tuple(d for d in _STORED if d is not DType.string and d is not DType.float4_e2m1)
_WIDE = tuple(d for d in INTEGERS if d.bits >= 32)

_MOVED_AS_NUMBERS = "CenterCropPad DepthToSpace GridSample Pad Resize SpaceToDepth TensorScatter Trilu".split()
"""Operators that move strings by their indices."""

_WINDOWS = ("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix")
"""Operators that are selected by the dtype of a length, and whose result may be of a narrow float."""

_OF_OPTIONALS = frozenset({"OptionalGetElement", "OptionalHasElement"})

_EXTREMES = [(op, dtype) for op in ("ReduceMax", "ReduceMin") for dtype in _ORDERED]
"""Operators for which `reductions.over_empty_axes` comes before other decompositions."""

_PLAINLY_REDUCED = (DType.bool, DType.int8, DType.uint8, DType.int32)
"""The dtypes whose kernels of ReduceMax and ReduceMin are correct."""


def _table() -> dict[tuple[str, DType], Decomposition]:
    rows: list[tuple[Sequence[str], Sequence[DType], str | Decomposition]] = [
        (("Div", "Mod"), INTEGERS, "matmul.divide"),
        (("Pow",), (DType.int32, DType.int64), "matmul.power"),
        (("Einsum",), (DType.int32, DType.int64), "matmul.einsum"),
        (("Einsum",), WIDE_FLOATS, "matmul.einsum_of_empty"),
        (("Where",), (DType.bool,), "rearranging.where_bool"),
        (("Where",), WIDE_FLOATS, "rearranging.where_bits"),
        (("Max", "Min"), (DType.int64,), "matmul.extreme_int64"),
        (("Clip",), (DType.int64,), "matmul.clip_int64"),
        (("Sign",), (DType.int64,), "matmul.sign_int64"),
        (("MatMul", "Col2Im"), (DType.bool,), partial(in_dtype, DType.int32)),  # a sum of bools is a logical or
        (("MatMul",), (DType.float32, DType.int32, DType.int64), "matmul.matmul"),
        (("MatMul",), (DType.int8, DType.uint8), "matmul.matmul_bytes"),
        (("MatMul",), (DType.float64,), "matmul.matmul_double"),
        (("MatMul",), (DType.uint32, DType.uint64), "matmul.matmul_unsigned"),
        (("ReduceSum", "ReduceProd"), tuple(d for d in INTEGERS if d.bits < 32), partial(in_dtype, DType.int32)),
        (("ReduceSum",), _WIDE, reductions.sum_integers),
        (("ReduceProd",), _WIDE, reductions.product_integers),
        (("ReduceMax", "ReduceMin"), WIDE_FLOATS, reductions.extreme_floats),
        (("ReduceMax", "ReduceMin"), (DType.int64,), reductions.extreme_int64_along),
        (("ReduceMax", "ReduceMin"), (DType.int16,), reductions.extreme_int16),
        (("ArgMax", "ArgMin"), WIDE_FLOATS, reductions.argument_floats),
        (("TopK",), WIDE_FLOATS, "rearranging.top_k_floats"),
        (("Unique",), WIDE_FLOATS, "rearranging.unique_floats"),
        (("ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK"), (DType.uint64,), "matmul.ordered_view"),
        (("Sigmoid",), (DType.float32,), "neural.sigmoid"),
        (("LogSoftmax",), (DType.float64,), "neural.log_softmax"),
        (("Shape", "Size"), (DType.int2, DType.uint2, DType.int4, DType.uint4, DType.float8_e8m0), "neural.shape"),
        (_WINDOWS, (DType.int32, DType.int64), "fourier.narrow_window"),
        (("ScatterElements", "ScatterND"), (DType.float16, DType.bfloat16), "rearranging.scatter_narrow"),
        (("ScatterElements", "ScatterND"), WIDE_FLOATS, "rearranging.scatter_with_nan"),
        (("Conv",), (_F64, *INTEGERS), "windows.convolve"),
        (("ConvTranspose",), (_F64, *INTEGERS), "windows.convolve_transposed"),
        (("Col2Im",), (_F64, *INTEGERS), "windows.col2im"),
        (("MaxPool",), (_F32, _F64), "pooling.max_floats"),
        (("MaxPool",), tuple(d for d in INTEGERS if d.bits > 8), "pooling.max_integers"),
        (("AveragePool",), (_F64,), "pooling.average"),
        (("LpPool",), (_F64,), "pooling.norm"),
        (("GlobalMaxPool",), (_F32, _F64, *INTEGERS), "pooling.global_pool"),
        (("GlobalAveragePool",), (_F64,), "pooling.global_pool"),
        (("GlobalLpPool",), (_F32, _F64), "pooling.global_pool"),
        (("MaxUnpool",), (_F32, _F64, *INTEGERS), "pooling.unpool"),
        (("Resize",), (_F32,), "resizing.resize_aligned_corners"),
        (("Resize",), (_F64, *_WIDE), "resizing.resize"),
        (("GridSample",), (_F64, DType.bool, *INTEGERS), "resizing.grid_sample"),
        (("DepthToSpace", "SpaceToDepth"), _WIDE, "rearranging.depth_and_space"),
        (("SpaceToDepth",), (_F32, _F64, DType.int8, DType.uint8), "rearranging.space_to_depth"),
        (("Mean",), (_F64,), "neural.mean_of"),
        (("Hardmax",), (_F64,), "neural.hardmax"),
        (("LRN",), (_F64,), "neural.response_normalization"),
        (("MeanVarianceNormalization",), (_F64,), "neural.mean_variance"),
        (("Det",), (_F64,), "neural.determinant"),
        (("OneHot",), (DType.bool, _F32, _F64, *INTEGERS), "neural.one_hot"),
        (("NonZero",), (_F64, DType.uint64), "neural.nonzero"),
        (("NonZero",), (DType.bool, DType.int32, DType.int64, DType.uint8, _F32), "neural.nonzero_places"),
        (("Shrink",), (_F64, *_WIDE), "neural.shrink"),
        (("NonZero",), (DType.string,), "rearranging.nonzero"),
        (_MOVED_AS_NUMBERS, (DType.string,), "rearranging.move_strings"),
        (("Col2Im",), (DType.string,), "rearranging.refuse_sum_of_strings"),
        (("MaxRoiPool",), (_F32, _F64), "resizing.max_roi_pool"),
        (("Relu",), (DType.int64,), "neural.relu_integers"),
        (("PRelu",), _WIDE, "neural.prelu_integers"),
        (("Gemm",), _WIDE, "neural.gemm_integers"),
        (("ReduceL1", "ReduceSumSquare"), INTEGERS, "neural.sum_of_sizes"),
        (("ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean"), INTEGERS, "neural.by_double"),
        (("Unique",), (DType.bool,), partial(in_dtype, DType.int8)),
        (("Unique",), (DType.uint64,), "matmul.ordered_view"),
        (("RNN", "GRU", "LSTM"), (_F32,), "recurrent.batch_second"),
        (("RNN", "GRU", "LSTM"), (_F64,), "recurrent.unroll"),
        (("DFT", "STFT"), (_F32,), "fourier.in_double"),
        (("DFT",), (_F64,), "fourier.inverse"),
        (("STFT",), (_F64,), "fourier.stft_of_frames"),
        (("StringNormalizer",), (DType.string,), "strings.normalizer"),
        (("StringSplit",), (DType.string,), "strings.split"),
        (("Gather",), (DType.string,), "strings.gather"),
        (("BitCast",), (*bits.WITHOUT, DType.int8, DType.uint8), bits.bitcast),
        (("BitCast",), _NIBBLES, bits.nibble),
        (("QuantizeLinear",), (DType.int32,), "matmul.quantize"),
        (("DequantizeLinear",), _QUANTIZED, "matmul.dequantize"),
        (("QLinearMatMul",), _FLOAT8, "matmul.qlinear_matmul"),
        (("ConvInteger",), (DType.int8, DType.uint8), "matmul.convolve"),
        (("ImageDecoder",), (DType.uint8,), "neural.refuse_image_decoder"),
        (("RandomUniform",), _FLOATS, "random.uniform"),
        (("RandomNormal",), _FLOATS, "random.normal"),
        (("RandomUniformLike",), _STORED, "random.uniform"),
        (("RandomNormalLike",), _STORED, "random.normal"),
        (("Bernoulli",), _FLOATS, "random.bernoulli"),
        (("Multinomial",), _FLOATS, "random.multinomial"),
    ]
    table: dict[tuple[str, DType], Decomposition] = {}
    for ops, dtypes, row in rows:
        table.update(dict.fromkeys(itertools.product(ops, dtypes), _late(row) if isinstance(row, str) else row))
    for op, function in float64_functions.FUNCTIONS.items():
        table[op, _F64] = partial(_of_float64, function)
    table.update({key: partial(reductions.over_empty_axes, table.get(key)) for key in _EXTREMES})
    return table


OLDER_TRAPS: dict[tuple[str, DType], Decomposition] = {
    ("Erf", _F32): bits.keep_nan,
    ("AveragePool", _F32): _late("pooling.average_padded_before"),
}
"""The rows for kernels that are wrong in older releases."""


def _rows_of_older() -> dict[tuple[str, DType], Decomposition]:
    """Return the rows for a runtime without newer operators."""
    return {
        **bits.rows_of_older(),
        **{("LpNormalization", dtype): _late("cuda.networks.norm") for dtype in WIDE_FLOATS},
    }


def _of_float64(function: Callable[..., Symbol], b: Builder, call: OpCall) -> Replacement:
    """Compute a function of float64 that also uses primitives, which do not ask for their kernels."""
    if b.rules.may_lack:  # raise the error for a missing kernel; these nodes have no reader and are dropped
        x = call.inputs[0]
        b.native("Where", b.native("Equal", x, x, dtype=DType.bool), x, x, dtype=DType.float64)
        b.native("Div", x, x)
    return function(b, *call.inputs, **call.attributes)


DECOMPOSITIONS: dict[tuple[str, DType], Decomposition] = _table()


Needed: TypeAlias = Mapping[tuple[str, DType], Callable[[TensorType, TensorType], bool]]

NEEDED: Needed = {
    **{("MatMul", dtype): _late("matmul.may_be_empty") for dtype in (DType.float32, DType.int32, DType.int64)},
    **{("DequantizeLinear", dtype): _late("matmul.may_lack_kernel") for dtype in _QUANTIZED},
    **{("BitCast", dtype): bits.needed for dtype in (DType.int8, DType.uint8)},
    **{(op, dtype): reductions.is_empty for op, dtype in _EXTREMES if dtype in _PLAINLY_REDUCED},
}
"""Tests whether a row is needed, by the types of the first operand and the result, for rows where these decide.

So a graph that needs no row is found to be legal without building any."""


@dataclass(frozen=True, slots=True)
class TargetRows:
    """The operators that a target computes by decompositions.

    rows: by operator and dtype. own: rows that stand for a kernel that the target lacks, and build with other
    operators. needed: tests whether a row is needed, for rows where types decide.
    """

    rows: Mapping[tuple[str, DType], Decomposition]
    own: Mapping[tuple[str, DType], Decomposition]
    needed: Needed

    def spares(self, key: tuple[str, DType], operand: Type | None, result: Type | None) -> bool:
        """Return True if a row is not needed, by the types of the first operand and the result."""
        needed = self.needed.get(key)
        if needed is None or not isinstance(operand, TensorType) or not isinstance(result, TensorType):
            return False
        return not needed(operand, result)


@functools.cache
def rows_of(rules: Legality) -> TargetRows:
    """Return the rows of a target: for kernels that it lacks, and for the traps of the releases in use."""
    if not rules.decomposes:  # standard ONNX of an opset without an operator
        late = {key: d for key, d in _rows_of_older().items() if key[0] in bits.LATE}
        return TargetRows(
            {}, {key: d for key, d in {**late, **older.rows_of_bits()}.items() if not rules.allows(*key)}, {}
        )
    rows = {
        key: decomposition
        for key, decomposition in DECOMPOSITIONS.items()
        if not rules.allows(*key) or rules.has_trap(traps.of_kernel(*key))
    }
    device = table_of(rules.target.name).device
    if device is not None:  # its float32 is not that of docs/numbers.md: nodes for NaN and far tails would not help
        rows = {k: d for k, d in rows.items() if k[1] is not _F32 or k[0] not in AS_WRITTEN}
    if rules.target.name == "cuda":
        return _with_own(rows, _call("cuda.rows", rows))
    if rules.target.name == "openvino":
        return _with_own(rows, {**_rows_of_older(), **older.einsum_rows(rows), **_call("openvino.rows")})
    substitutes = {
        key: decomposition
        for key, decomposition in _rows_of_older().items()
        if not rules.allows(*key) and rules.has_lost(*key)
    }
    substitutes.update({key: d for key, d in older.rows().items() if not rules.allows(*key)})
    rows.update(older.traps(rules.runtime))
    # Rows for traps build on the kernel that they fix.
    fixed = {k: d for k, d in OLDER_TRAPS.items() if rules.has_trap(traps.of_kernel(*k)) and not rules.has_lost(*k)}
    own_rows = {**substitutes, **fixed}
    if rules.has_trap(traps.REVERSED_EMPTY) or rules.has_trap(traps.REVERSED_ONE_AXIS):
        reverse = _late("rearranging.reverse")
        own_rows.update({("ReverseSequence", d): reverse for d in rules.dtypes("ReverseSequence") or ()})
    workarounds = older.rows_of_empty({**rows, **own_rows})
    own_rows.update({key: workaround for key, workaround in workarounds.items() if rules.has_trap(older.trap(*key))})
    undecided = {"DequantizeLinear"} if rules.has_trap(traps.NARROW_SCALES) else set()
    needed = {key: test for key, test in NEEDED.items() if key not in own_rows and key[0] not in undecided}
    return TargetRows({**rows, **own_rows}, own_rows, needed)


def _with_own(
    rows: Mapping[tuple[str, DType], Decomposition], own: Mapping[tuple[str, DType], Decomposition | None]
) -> TargetRows:
    """Return the rows of a target whose own rows come before others. None: it needs no row."""
    all_rows = {key: decomposition for key, decomposition in {**rows, **own}.items() if decomposition is not None}
    return TargetRows(all_rows, {key: all_rows[key] for key in own if key in all_rows}, NEEDED)


AS_WRITTEN = frozenset(
    "ArgMax ArgMin GlobalMaxPool MaxPool ReduceMax ReduceMin ScatterElements ScatterND Sigmoid TopK Where".split()
)
"""Operators whose float32 kernels differ from docs/numbers.md only in NaN, the sign of zero or far tails.

Nodes of imported models keep them, and with them their speed."""


def keeps_half(
    rules: Legality, op_type: str, dtype: DType, operand: Type | None = None, result: Type | None = None
) -> bool:
    """Return True if a node of an imported model is left to the runtime in float16 or bfloat16.

    It is not if the float32 kernel, which the runtime may put casts around, needs a replacement. operand, result: the
    types of the first operand and result, if they are known.
    """
    if dtype not in HALVES or not rules.runs_half(op_type, dtype):
        return False
    target_rows = rows_of(rules)
    wide = op_type, DType.float32
    if (op_type, dtype) in target_rows.rows:
        return False
    return wide not in target_rows.rows or op_type in AS_WRITTEN or target_rows.spares(wide, operand, result)


def keeps_kernel(rules: Legality, op_type: str, dtype: DType, operand: Type | None) -> bool:
    """Return True if a node of an imported model keeps its kernel. operand: the type of its first operand."""
    key = op_type, dtype
    if dtype is DType.float64 and op_type in float64_functions.WITH_KERNELS:
        return rules.allows(*key) and rows_of(rules).rows.get(key) is DECOMPOSITIONS[key]  # not another trap's row
    if dtype is not DType.float32 or op_type not in AS_WRITTEN:
        return False
    shape = operand.shape if isinstance(operand, TensorType) else None
    return shape is None or not shape.is_ranked or 0 not in shape.static_dims  # some fail on empty operands


def may_be_replaced(op_type: str, domain: str, operand: Type | None, result: Type | None) -> bool:
    """Return True if an operator of another domain of ONNX, or one of optionals, may be replaced regardless of kernels.

    operand, result: the types of the first ones.
    """
    if domain:
        is_needed = domain == "ai.onnx.ml" and bool(_call("ml_operators.needs_replacement", op_type, operand, result))
        return is_needed or domain == "ai.onnx.preview.training"
    return op_type in _OF_OPTIONALS


def replace_call(b: Builder, call: OpCall) -> tuple[Symbol, ...] | None:
    """Return the results that replace those of such an operator; None if its kernel stays."""
    if not call.domain and call.op not in _OF_OPTIONALS:
        return None
    module = "ml_operators" if call.domain else "strings"
    results: tuple[Symbol, ...] | None = _call(f"{module}.replace_call", b, call)
    return results
