"""The rows of the table of decompositions for models that others wrote, beside images and networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphcore.errors import GraphError
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions import bits, fourier, matmul, random, reductions, strings
from graphcore.runtime.lowering.decompositions.signature import Decomposition, Replacement
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

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


ROWS: list[tuple[Sequence[str], Sequence[DType], Decomposition]] = [
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
