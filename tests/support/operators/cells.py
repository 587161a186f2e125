"""One cell of the table: the state of an operator in a dtype, and its numbers; and the exceptions, with reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import graphcore as gc
from graphcore import DType, Graph
from graphcore.errors import DTypeError, GraphcoreError
from graphcore.onnx.operators.calling import NAMED
from graphcore.runtime.lowering import lower
from graphcore.types.tensor_types import TensorType
from tests.support.every_op import of_graph
from tests.support.operators.cases import Place
from tests.support.operators.wanted import difference, wanted
from tools.kernel_probe.case import Case

_F4, _E8, _M4, _M5 = DType.float4_e2m1, DType.float8_e8m0, DType.float8_e4m3fnuz, DType.float8_e5m2fnuz
_NARROW = (
    DType.bfloat16, DType.int4, DType.uint4, DType.float8_e4m3fn, DType.float8_e5m2, DType.int2, DType.uint2, _F4, _E8,
    _M4, _M5, DType.float6_e2m3fn, DType.float6_e3m2fn,
)  # fmt: skip

NOT_LOWERED: Mapping[tuple[str, DType], str] = {
    **{
        ("Optional", dtype): (
            "Neither onnxruntime nor ONNX before opset 28 has optionals of it to give; one that OptionalGetElement and "
            "OptionalHasElement look into is computed without."
        )
        for dtype in _NARROW
    },
    ("Col2Im", DType.string): "It adds what overlaps, and strings have no sum.",
    ("Loop", DType.string): "onnxruntime loses the strings that each step but the first adds to a result.",
    ("ImageDecoder", DType.uint8): "No kernel decodes images: sessions call Pillow (extra `images`).",
    **{
        ("Gradient", DType.of(name)): "It names values whose derivatives it stands for; no runtime computes it."
        for name in "float16 float32 tensor_float32 float64".split()
    },
}

NOT_RUN: Mapping[tuple[str, DType], str] = {
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
    """Acos Acosh Adagrad Adam Asin Asinh Atan Atanh Attention BatchNormalization BlackmanWindow CausalConvWithState
    Celu Cos Cosh DFT Det Elu Erf Exp FlexAttention GRU Gelu GlobalLpPool GroupNormalization HammingWindow
    HannWindow HardSigmoid HardSwish InstanceNormalization LRN LSTM LayerNormalization LinearAttention
    LinearClassifier LinearRegressor Log LogSoftmax LpNormalization LpPool MeanVarianceNormalization
    MelWeightMatrix Mish NegativeLogLikelihoodLoss Normalizer Pow RMSNormalization RNN ReduceL2 ReduceLogSum
    ReduceLogSumExp RotaryEmbedding STFT SVMClassifier SVMRegressor Selu Sigmoid Sin Sinh Softmax
    SoftmaxCrossEntropyLoss Softplus SwiGLU Swish Tan Tanh""".split()
)
"""Operators of transcendental functions, roots and quotients of sums: near, as docs/numbers.md has it."""


@dataclass(frozen=True, slots=True)
class Cell:
    """state: "-", "built" or "lowered". how: what lowering made of it. why: what refused it, if it is not lowered."""

    state: str
    how: str = ""
    why: str = ""


@cache
def lowered(place: Place) -> Cell:
    """Return the state of the operator without a run: "-", "built" or "lowered"."""
    if not place.cases:
        return Cell("-", why="it takes no such operand")
    ways = []
    for case in place.cases:
        try:
            graph = place.graph(case)
        except DTypeError as error:
            return Cell("-", why=error.summary)
        try:
            changed = lower(graph, "cpu")
        except GraphcoreError as error:
            return Cell("built", why=error.summary)
        ways.append(of_graph(graph, changed, place.dtype))
    return Cell("lowered", _furthest(ways))


_ORDER = ("itself", "native", "expanded")


def _furthest(ways: Sequence[str]) -> str:
    """Of several cases' ways the one that is furthest from the operator itself."""
    return max(ways, key=lambda way: _ORDER.index(way) if way in _ORDER else 1.5)


def ran(place: Place, session: gc.InferenceSession, *, named: bool = False) -> dict[int, str]:
    """For each case what is wrong with its numbers: "", "near", or "unknown" where nothing says what they should be.

    named: whether the graph knows names of the operands' dims in place of sizes.
    """
    return {i: _ran(place, case, session, named) for i, case in enumerate(place.cases)}


def _ran(place: Place, case: Case, session: gc.InferenceSession, named: bool) -> str:
    graph = place.graph(case, named=named)
    feeds = [array for array, _ in place.question(case).feeds.values()]
    try:
        results = list(session.load(graph)(*feeds))
    except GraphcoreError as error:
        return f"fails: {error.summary}"
    typed = _types_differ(graph, results)
    if typed:
        return typed
    values = wanted(place, case)
    if values is None:
        return "" if place.name in DRAWN else "unknown"
    if place.name in DRAWN:
        return next((f"{f.shape}" for f, v in zip(results, values, strict=True) if f.shape != v.shape), "")
    if len(values) != len(results):
        return f"{len(results)} results for {len(values)}"
    dtypes = [s.dtype if isinstance(s.type, TensorType) and s.dtype in NAMED else None for s in graph.outputs]
    return max((difference(*both) for both in zip(results, values, dtypes, strict=True)), key=len, default="")


def _types_differ(graph: Graph, result: Sequence[Any]) -> str:
    """Return the differences of the results' dtypes and shapes from the graph's."""
    for symbol, value in zip(graph.outputs, result, strict=True):
        if not isinstance(symbol.type, TensorType):
            continue
        if symbol.dtype.numpy != value.dtype and symbol.dtype.name != "string":
            return f"{value.dtype} where the graph says {symbol.type}"
        if not symbol.shape.is_ranked:
            continue
        if symbol.rank != np.ndim(value):
            return f"rank {np.ndim(value)} where the graph says {symbol.type}"
        for dim, size in zip(symbol.shape, value.shape, strict=True):
            if dim.is_static and int(dim) != size:
                return f"{value.shape} where the graph says {symbol.type}"
    return ""
