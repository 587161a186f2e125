"""The rows of the table of decompositions for models that others wrote, beside images and networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphcore.errors import GraphError
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions import (
    bits,
    fourier,
    grid_sample,
    matmul,
    neural,
    pooling,
    random,
    rearranging,
    recurrent,
    reductions,
    resizing,
    strings,
    windows,
)
from graphcore.runtime.lowering.decompositions.signature import Decomposition, Replacement
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape

_F32, _F64 = DType.float32, DType.float64
_FLOATS = (_F32, _F64, DType.float16, DType.bfloat16)
_FLOAT8 = (DType.float8_e4m3fn, DType.float8_e5m2, DType.float8_e4m3fnuz, DType.float8_e5m2fnuz)
_BYTES = (DType.int8, DType.uint8)
_NIBBLES = (DType.int2, DType.uint2, DType.int4, DType.uint4)
_QUANTIZED = (DType.int8, DType.int16, DType.int32, DType.uint8, DType.uint16, *_NIBBLES, *_FLOAT8)
_STORED = tuple(d for d in vars(DType).values() if isinstance(d, DType) and d.storage is d)
_ORDERED = tuple(d for d in _STORED if d is not DType.string and d is not DType.float4_e2m1)

_PLAINLY_REDUCED = (DType.bool, DType.int8, DType.uint8, DType.int32)
"""The dtypes whose extremes the kernels find as they are."""


def _decoder(b: Builder, call: Call) -> Replacement:
    raise GraphError(
        "ImageDecoder: no kernel decodes images, only Pillow in sessions",
        operands={"encoded_stream": str(call.inputs[0].type)},
        help="load it in a session, export it with target='onnx', or decode the image before the model",
    )


_INTEGERS = (DType.int8, DType.int16, DType.int32, DType.int64, DType.uint8, DType.uint16, DType.uint32, DType.uint64)
_WIDE = tuple(d for d in _INTEGERS if d.bits >= 32)

ROWS: list[tuple[Sequence[str], Sequence[DType], Decomposition]] = [
    (("Conv",), (_F64, *_INTEGERS), windows.convolve),
    (("ConvTranspose",), (_F64, *_INTEGERS), windows.convolve_transposed),
    (("Col2Im",), (_F64, *_INTEGERS), windows.col2im),
    (("MaxPool",), (_F32, _F64), pooling.max_floats),
    (("MaxPool",), tuple(d for d in _INTEGERS if d.bits > 8), pooling.max_integers),
    (("AveragePool",), (_F64,), pooling.average),
    (("LpPool",), (_F64,), pooling.norm),
    (("GlobalMaxPool",), (_F32, _F64, *_INTEGERS), pooling.global_pool),
    (("GlobalAveragePool",), (_F64,), pooling.global_pool),
    (("GlobalLpPool",), (_F32, _F64), pooling.global_pool),
    (("MaxUnpool",), (_F32, _F64, *_INTEGERS), pooling.unpool),
    (("Resize",), (_F32,), resizing.resize_wrong),
    (("Resize",), (_F64, *_WIDE), resizing.resize),
    (("GridSample",), (_F64, DType.bool, *_INTEGERS), grid_sample.grid_sample),
    (("DepthToSpace", "SpaceToDepth"), _WIDE, rearranging.depth_and_space),
    (("SpaceToDepth",), (_F32, _F64, DType.int8, DType.uint8), rearranging.space_to_depth),
    (("Mean",), (_F64,), neural.mean_of),
    (("Hardmax",), (_F64,), neural.hardmax),
    (("LRN",), (_F64,), neural.response_normalization),
    (("MeanVarianceNormalization",), (_F64,), neural.mean_variance),
    (("Det",), (_F64,), neural.determinant),
    (("OneHot",), (DType.bool, _F32, _F64, *_INTEGERS), neural.one_hot),
    (("NonZero",), (_F64, DType.uint64), neural.nonzero),
    (("NonZero",), (DType.bool, DType.int32, DType.int64, DType.uint8, _F32), neural.nonzero_places),
    (("Shrink",), (_F64, *_WIDE), neural.shrink),
    (("NonZero",), (DType.string,), rearranging.nonzero),
    (rearranging.ROWS, (DType.string,), rearranging.moved),
    (("Col2Im",), (DType.string,), rearranging.not_added),
    (("Col2Im",), (DType.bool,), windows.col2im_bool),
    (("MaxRoiPool",), (_F32, _F64), grid_sample.max_roi_pool),
    (("Relu",), (DType.int64,), neural.relu_integers),
    (("PRelu",), _WIDE, neural.prelu_integers),
    (("Gemm",), _WIDE, neural.gemm_integers),
    (("ReduceL1", "ReduceSumSquare"), _INTEGERS, neural.sum_of_sizes),
    (("ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean"), _INTEGERS, neural.by_double),
    (("Unique",), (DType.bool,), neural.unique_bool),
    (("Unique",), (DType.uint64,), matmul.ordered_view),
    (("RNN", "GRU", "LSTM"), (_F32,), recurrent.batch_second),
    (("RNN", "GRU", "LSTM"), (_F64,), recurrent.unrolled),
    (("DFT", "STFT"), (_F32,), fourier.in_double),
    (("DFT",), (_F64,), fourier.inverse),
    (("STFT",), (_F64,), fourier.framed),
    (("StringNormalizer",), (DType.string,), strings.normalizer),
    (("StringSplit",), (DType.string,), strings.split),
    (("Gather",), (DType.string,), strings.gather),
    (("BitCast",), tuple(bits.WITHOUT) + _BYTES, bits.bitcast),
    (("BitCast",), _NIBBLES, bits.nibble),
    (("QuantizeLinear",), (DType.int32,), matmul.quantize),
    (("DequantizeLinear",), _QUANTIZED, matmul.dequantize),
    (("QLinearMatMul",), _FLOAT8, matmul.product),
    (("ConvInteger",), _BYTES, matmul.convolve),
    (("ImageDecoder",), (DType.uint8,), _decoder),
    (("RandomUniform",), _FLOATS, random.uniform),
    (("RandomNormal",), _FLOATS, random.normal),
    (("RandomUniformLike",), _STORED, random.uniform_like),
    (("RandomNormalLike",), _STORED, random.normal_like),
    (("Bernoulli",), _FLOATS, random.bernoulli),
    (("Multinomial",), _FLOATS, random.multinomial),
]

EXTREMES = [(op, dtype) for op in ("ReduceMax", "ReduceMin") for dtype in _ORDERED]
"""Operators for which `reductions.over_empty_axes` comes before other decompositions."""

NEEDED: dict[tuple[str, DType], Callable[[TensorType, TensorType], bool]] = {
    **{("DequantizeLinear", dtype): matmul.becomes_other for dtype in _QUANTIZED},
    **{("BitCast", dtype): bits.needed for dtype in _BYTES},
    **{(op, dtype): reductions.is_empty for op, dtype in EXTREMES if dtype in _PLAINLY_REDUCED},
}
"""See `decompositions.NEEDED`."""


# Activations whose kernels are less exact than docs/numbers.md promises.


def sigmoid(b: Builder, call: Call) -> Replacement:
    """Compute Sigmoid by other operators: the kernel gives 0 below -18."""
    (x,) = call.inputs
    one = b.scalar(1.0, x.dtype)
    return b.native("Reciprocal", b.native("Add", one, b.native("Exp", b.native("Neg", x))))


def log_softmax(b: Builder, call: Call) -> Replacement:
    """Compute LogSoftmax with every row of a NaN all NaN: the kernel sees a NaN only where it comes first."""
    (x,) = call.inputs
    made = b.native(call.op, x, shape=call.shape, **call.attributes)
    axis = call.attributes.get("axis", -1)
    row = _shape([Dim(1) if i == axis % x.rank else d for i, d in enumerate(x.shape)])
    unknown = b.native_cast(b.native("IsNaN", x, dtype=DType.bool), DType.int32)
    any_unknown = b.native("ReduceMax", unknown, b.vector([axis]), shape=row, keepdims=1)
    condition = b.native_cast(any_unknown, DType.bool)
    return b.native("Where", condition, b.scalar(float("nan"), x.dtype), made, dtype=x.dtype, shape=call.shape)


# Integers of 2 and 4 bits, and other dtypes that most kernels do not read.


def shape(b: Builder, call: Call) -> Replacement:
    """Compute Shape of the operand in a wider dtype: onnxruntime drops a Cast before Shape, and then has no kernel."""
    (x,) = call.inputs
    wide = b.casts.apart(b.native_cast(x, DType.int8 if x.dtype.is_integer else DType.float32))
    made: tuple[Any, ...] = b.emit_many(call.op, (wide,), call.types, call.attributes)
    return made
