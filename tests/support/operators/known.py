"""The cells of the table that end before "run", and operators that are not compared bit for bit, with reasons."""

from __future__ import annotations

from collections.abc import Mapping

from graphcore import DType

_F4, _E8, _M4, _M5 = DType.float4_e2m1, DType.float8_e8m0, DType.float8_e4m3fnuz, DType.float8_e5m2fnuz
_NARROW = (
    DType.bfloat16, DType.int4, DType.uint4, DType.float8_e4m3fn, DType.float8_e5m2, DType.int2, DType.uint2, _F4, _E8,
    _M4, _M5,
)  # fmt: skip

NOT_LOWERED: Mapping[tuple[str, DType], str] = {
    ("Col2Im", DType.string): "It adds what overlaps, and strings have no sum.",
    ("Loop", DType.string): "onnxruntime loses the strings that each step but the first adds to a result.",
    ("ImageDecoder", DType.uint8): "There is no kernel that decodes images, and graphcore brings no library that does.",
}

NOT_RUN: Mapping[tuple[str, DType], str] = {
    **{
        ("Optional", dtype): (
            "onnxruntime has no optionals of it to give; one that OptionalGetElement and OptionalHasElement look into "
            "is computed without."
        )
        for dtype in _NARROW
    },
    ("SplitToSequence", DType.bfloat16): "onnxruntime has no lists of it.",
}

_ADDED = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 index address float64"
_CACHED = "float16 bfloat16 float32 tensor_float32"

OF_SIZES: Mapping[tuple[str, DType], str] = {
    **{
        (
            "Col2Im",
            DType.of(d),
        ): "How many axes the image has must be known: there is no kernel, and they are added one by one."
        for d in _ADDED.split()
    },
    **{
        ("CausalConvWithState", DType.of(d)): "How many channels the weight has must be known." for d in _CACHED.split()
    },
    ("Det", DType.float64): "The size of the matrices must be known: there is no kernel, and they are taken apart.",
    **{
        (name, DType.float64): "How long the sequence is must be known: there is no kernel, and its steps are unrolled."
        for name in ("GRU", "LSTM", "RNN")
    },
}
"""The cells that are run where sizes are numbers, and not where they are names of dims."""

DRAWN = frozenset(
    "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split(),
)
"""Operators whose numbers are random: their dtypes and shapes are held to ONNX's."""

NEAR = frozenset(
    """Acos Acosh Asin Asinh Atan Atanh Attention BatchNormalization BlackmanWindow CausalConvWithState Celu Cos Cosh
    DFT Det Elu Erf Exp GRU Gelu GlobalLpPool GroupNormalization HammingWindow HannWindow HardSigmoid HardSwish
    InstanceNormalization LRN LSTM LayerNormalization LinearAttention LinearClassifier LinearRegressor Log LogSoftmax
    LpNormalization LpPool MeanVarianceNormalization MelWeightMatrix Mish NegativeLogLikelihoodLoss Normalizer Pow
    RMSNormalization RNN ReduceL2 ReduceLogSum ReduceLogSumExp RotaryEmbedding STFT SVMClassifier SVMRegressor Selu
    Sigmoid Sin Sinh Softmax SoftmaxCrossEntropyLoss Softplus SwiGLU Swish Tan Tanh""".split()
)
"""Operators of transcendental functions, roots and quotients of sums: near, as docs/numbers.md has it."""
