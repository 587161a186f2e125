"""Probes of operators of networks: pooling, resizing, windows, recurrent layers, and what third-party models hold."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from graphcore import ops
from graphcore.arrays.casting import Array
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.functions import STATISTICS
from graphcore.runtime.lowering.targets.traps import COUNTED_PADDING
from graphcore.runtime.lowering.workarounds import sizes
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType
from tools.kernel_probe.probes.probe import (
    LONG,
    WIDE,
    Check,
    D,
    Family,
    Probe,
    bare,
    operator,
)


def families() -> list[Family]:
    """Return the faults of onnxruntime in these operators, and what it refuses although ONNX allows it."""
    return [
        Family("AveragePool counts wrong what is added after an axis.", [*_averages()]),
        Family("Windows with dilations are padded as if there were none where auto_pad says SAME.", [*_dilated()]),
        Family("AveragePool refuses padding as wide as the kernel.", [*_wide_padding()]),
        Family("Resize is off in some modes, and integers go through float32.", _resized()),
        Family("OneHot refuses indices of 8 bits, and gives 1 for those that are out of range.", [*_one_hot()]),
        Family("Windows of float64 are computed in float32.", [*_windows()]),
        Family("MaxUnpool takes places of the size that is asked for as places of another.", _unpooled()),
        Family("SpaceToDepth knows no mode CRD.", [*_depths()]),
        Family("Shrink of wide integers and float64 is computed in float32.", [*_shrunk()]),
        Family("NonZero of a scalar gives a coordinate.", [*_places()]),
        Family("Recurrent networks refuse layout=1.", [*_recurrent()]),
        Family("SkipSimplifiedLayerNormalization does not give the mean that is asked for.", [*_means()]),
        Family("DFT and STFT of float32 lose digits where the length is not a power of two.", [*_fourier()]),
        Family("DFT of float64 has no inverse of one side.", [*_inverse()]),
        Family("STFT divides by zero where frames have no samples.", [Check(("STFT float64",), _unframed, dies=True)]),
    ]


def _dilated() -> Iterator[Probe]:
    """Maxima and norms of windows of which each element but one is 0, and a convolution with gaps."""
    x = np.zeros((1, 1, 5, 8))
    x[0, 0, 2, 3] = 4
    for mode, step in itertools.product(("SAME_UPPER", "SAME_LOWER"), (1, 2)):
        want = np.zeros((1, 1, -(-5 // step), -(-8 // step)))
        total = [(size - 1) * step + 5 - there for size, there in zip(want.shape[2:], x.shape[2:], strict=True)]
        before = [n // 2 if mode == "SAME_UPPER" else n - n // 2 for n in total]
        for i, j in np.ndindex(*want.shape[2:]):
            places = itertools.product(
                *(range(k * step - b, k * step - b + 5, 2) for k, b in zip((i, j), before, strict=True))
            )
            want[0, 0, i, j] = 4 if (2, 3) in places else 0
        shared = {"kernel_shape": [3, 3], "dilations": [2, 2], "strides": [step, step], "auto_pad": mode}
        for op in ("MaxPool", "LpPool"):
            build = operator(op, **shared)
            yield Probe(D.float32, (), (x,), build, (want,), names=(sizes.SAME_PADS.name,), is_known=True)
    build = operator("Conv", strides=[4], auto_pad="SAME_UPPER")  # with gaps of three elements
    value = ([[[1.0, 2, 3, 4]]], [[[1.0]]])
    yield Probe(D.float32, (), value, build, ([[[1.0]]],), names=(sizes.SAME_PADS.name,), is_known=True)


def _wide_padding() -> Iterator[Probe]:
    for counted, want in ((0, [2.0, 1, 1, 1]), (1, [1.0, 0.5, 1, 0.5])):
        build = operator("AveragePool", kernel_shape=[2], dilations=[2], pads=[2, 1], count_include_pad=counted)
        yield Probe(D.float32, ("AveragePool",), ([[[2.0, 1, 0]]],), build, ([[want]],))


def _shrunk() -> Iterator[Probe]:
    shrink = operator("Shrink", bias=2.0**-20, lambd=1.5)
    most = (1 << 30) - 1
    for dtype in (*LONG, D.uint32, D.uint64):
        yield Probe(dtype, ("Shrink",), ([most, 1],), shrink, ([most - 1, 0],))
    yield Probe(D.float64, ("Shrink",), ([1e300, 0.5],), shrink, ([1e300, 0.0],))


def _places() -> Iterator[Probe]:
    for dtype in (D.bool, D.int32, D.int64, D.uint8, D.float32):
        yield Probe(dtype, ("NonZero",), (1,), operator("NonZero"), (np.zeros((0, 1)),), gives=(D.int64,))


def _averages() -> Iterator[Probe]:
    draw = np.random.default_rng(0)
    for size, kernel in (((8, 9), (3, 2)), ((7,), (3,)), ((5, 6, 7), (2, 3, 2)), ((17, 33), (5, 4))):
        x = draw.integers(-8, 9, (2, 3, *size)).astype(np.float64)
        axes = len(size)
        for strides, before, after in itertools.product((1, 2, 3), (0, 1), (0, 1, 2)):
            pads = [min(before, kernel[0] - 1)] * axes, [min(after, k - 1) for k in kernel]
            for ceil, counted in ((0, 1), (1, 1), (1, 0), (0, 0)):
                want = _averaged(x, kernel, strides, *pads, ceil=bool(ceil), counted=bool(counted))
                if want is None:
                    continue
                attributes = {"kernel_shape": [*kernel], "strides": [strides] * axes, "pads": [*pads[0], *pads[1]]}
                build = operator("AveragePool", **attributes, ceil_mode=ceil, count_include_pad=counted)
                yield Probe(D.float32, (), (x,), build, (want,), names=(COUNTED_PADDING,))
    x = draw.integers(-8, 9, (1, 2, 7, 8)).astype(np.float64)
    total = [_same_padding(n, 2, 2) for n in (7, 8)]
    for mode, counted in itertools.product(("SAME_UPPER", "SAME_LOWER"), (0, 1)):
        less, more = [n // 2 for n in total], [n - n // 2 for n in total]
        ends = (less, more) if mode == "SAME_UPPER" else (more, less)
        want = _averaged(x, (2, 2), 2, *ends, ceil=False, counted=bool(counted))
        build = operator("AveragePool", kernel_shape=[2, 2], strides=[2, 2], auto_pad=mode, count_include_pad=counted)
        yield Probe(D.float32, (), (x,), build, (want,), names=(COUNTED_PADDING,))


def _same_padding(size: int, kernel: int, stride: int) -> int:
    return max((-(-size // stride) - 1) * stride + kernel - size, 0)


def _averaged(
    x: Array, kernel: tuple[int, ...], stride: int, before: list[int], after: list[int], *, ceil: bool, counted: bool
) -> Array | None:
    """AveragePool by its definition; what ceil adds to the padding counts for nothing. None where a window is empty."""
    sizes = x.shape[2:]
    rounded: Callable[[float], int] = math.ceil if ceil else math.floor
    counts = [rounded((n + b + a - k) / stride) + 1 for n, k, b, a in zip(sizes, kernel, before, after, strict=True)]
    counts = [c - 1 if ceil and (c - 1) * stride >= n + b else c for c, n, b in zip(counts, sizes, before, strict=True)]
    array = np.zeros((*x.shape[:2], *counts))
    for place in itertools.product(*map(range, counts)):
        starts = [p * stride - b for p, b in zip(place, before, strict=True)]
        padded = [min(s + k, n + a) - s for s, k, n, a in zip(starts, kernel, sizes, after, strict=True)]
        cuts: tuple[Any, ...] = (..., *(slice(max(s, 0), s + k) for s, k in zip(starts, kernel, strict=True)))
        window = x[cuts]
        count = math.prod(padded) if counted else math.prod(window.shape[2:])
        if not count:
            return None
        at: tuple[Any, ...] = (..., *place)
        array[at] = window.sum(axis=tuple(range(2, x.ndim))) / count
    return array


def _resized() -> list[Probe]:
    corners = _resize(0.6, coordinate_transformation_mode="align_corners")
    return [
        Probe(D.float32, ("Resize",), ([[[[1, 2, 3, 4]]]],), corners, ([[[[1, 3.142857]]]],)),
        Probe(D.int32, ("Resize",), ([[[[2**24 + 1] * 2]]],), _resize(2), ([[[[2**24 + 1] * 4]]],)),
    ]


def _resize(scale: float, **attributes: Any) -> Any:
    return operator("Resize", None, np.array([1, 1, 1, scale], np.float32), mode="linear", **attributes)


def _one_hot() -> Iterator[Probe]:
    for dtype in (D.float32, D.int64):
        build = operator("OneHot", np.array(3), np.array([0, 1], dtype.numpy))
        yield Probe(dtype, ("OneHot",), ([0, 2],), build, ([[1, 0, 0], [0, 0, 1]],), types=(D.uint8,))


TURN, TWICE = (np.cos(turns * 2 * np.pi * np.arange(7) / 7) for turns in (1, 2))


def _windows() -> Iterator[Probe | Check]:
    for dtype in LONG:
        for op_type, a, b, c in (("HammingWindow", 25 / 46, 21 / 46, 0), ("BlackmanWindow", 0.42, 0.5, 0.08)):
            want = (7 * [a] - b * TURN + c * TWICE,)
            yield Probe(dtype, (op_type,), ([1.0] * 7,), _window(op_type, dtype), want, (D.float64,), (D.float64,))
        turned = 0.5 - 0.5 * TURN
        narrow = _window("HannWindow", dtype, D.float16)
        want = (turned.astype(np.float16),)
        yield Probe(dtype, ("HannWindow",), ([1.0] * 7,), narrow, want, (D.float64,), (D.float16,))
        yield Check((f"MelWeightMatrix {dtype}",), functools.partial(_mel_differs, dtype))


def _window(op_type: str, dtype: DType, gives: DType = D.float64) -> Any:
    def build(graph: Graph, x: Symbol) -> Any:
        length = ops.shape_of(x)[0].cast(dtype)
        return graph.op(op_type, [length], {"output_datatype": int(gives.onnx)}, [x.type.cast(gives)])

    return build


def _mel_differs(dtype: DType) -> str:
    """Return a description of what is wrong with a MelWeightMatrix of float16, which is that of float32, rounded."""
    (wide,), (narrow,) = _mel(dtype, D.float32).run(), _mel(dtype, D.float16).run()
    return "" if (wide.astype(np.float16) == narrow).all() else f"gives {narrow.ravel()[:6].tolist()}"


def _mel(dtype: DType, gives: DType) -> Probe:
    def build(graph: Graph, count: Symbol, length: Symbol, rate: Symbol) -> Any:
        edges = [graph.constant(np.array(n, np.float32)) for n in (0.0, 4096.0)]
        result = TensorType(gives, ["f", "b"])
        results = [count, length, rate, *edges]
        return graph.op("MelWeightMatrix", results, {"output_datatype": int(gives.onnx)}, [result])

    return Probe(dtype, (), (8, 16, 8192), build, ())


def _unpooled() -> list[Probe]:
    def build(graph: Graph, x: Symbol, places: Symbol) -> Any:
        requested = graph.constant(np.array([1, 1, 5, 5]))
        attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
        return graph.op("MaxUnpool", [x, places, requested], attributes, [TensorType(x.dtype, [1, 1, 5, 5])])

    value = ([[[[5, 6], [7, 8]]]], [[[[5, 7], [13, 15]]]])
    want = np.pad([[0] * 4, [0, 5, 0, 6], [0] * 4, [0, 7, 0, 8]], (0, 1))[None, None]
    return [Probe(D.float32, ("MaxUnpool",), value, build, (want,), types=(D.float32, D.int64))]


def _depths() -> Iterator[Probe]:
    for dtype in (*WIDE, D.int8, D.uint8):
        value = ([[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]],)
        build = operator("SpaceToDepth", blocksize=2, mode="CRD")
        yield Probe(dtype, ("SpaceToDepth",), value, build, ([[[[n]] for n in range(8)]],))


def _recurrent() -> Iterator[Probe]:
    for op_type, gates, want in (("RNN", 1, RNN), ("GRU", 3, GRU), ("LSTM", 4, LSTM)):
        result = [[[[step, step]] for step in want]]
        yield Probe(D.float32, (op_type,), ([[[1.0], [1.0]]],), _layer(op_type, gates), (result,))


def _layer(op_type: str, gates: int) -> Any:
    """Two states, all weights 1, the batch before the sequence."""

    def build(graph: Graph, x: Symbol) -> Any:
        value, remaining = (graph.constant(np.ones((1, 2 * gates, n), np.float32)) for n in (1, 2))
        attributes = {"hidden_size": 2, "layout": 1}
        return graph.op(op_type, [x, value, remaining], attributes, [TensorType(x.dtype, [1, 2, 1, 2])])

    return build


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _steps(step: Callable[[float, float], tuple[float, float]]) -> list[float]:
    """Return the states of two steps whose operand is 1: both states are the same."""
    first, memory = step(0.0, 0.0)
    return [first, step(first, memory)[0]]


def _gru(state: float, memory: float) -> tuple[float, float]:
    gate = _logistic(1 + 2 * state)
    return (1 - gate) * math.tanh(1 + 2 * gate * state) + gate * state, memory


def _lstm(state: float, memory: float) -> tuple[float, float]:
    gate = _logistic(1 + 2 * state)
    memory = gate * memory + gate * math.tanh(1 + 2 * state)
    return gate * math.tanh(memory), memory


RNN = _steps(lambda state, memory: (math.tanh(1 + 2 * state), memory))
GRU, LSTM = _steps(_gru), _steps(_lstm)


def _means() -> Iterator[Probe]:
    x, skip = (np.random.default_rng(i).standard_normal((1, 2, 8)) for i in range(2))

    def build(graph: Graph, a: Symbol, b: Symbol) -> Any:
        gamma = graph.constant(np.ones(8, np.float32))
        return ops.microsoft.SkipSimplifiedLayerNormalization(a, b, gamma, epsilon=0.0, outputs=4)[1:]

    total = x + skip
    want = (np.zeros((1, 2, 1)), 1 / np.sqrt((total**2).mean(-1, keepdims=True)), total)
    yield Probe(D.float32, (), (x, skip), build, want, names=(STATISTICS,), is_known=True, near=1e-6)


def _fourier() -> Iterator[Probe]:
    x = np.random.default_rng(0).standard_normal((1, 1021, 1)).astype(np.float32)
    result = np.fft.fft(x[..., 0].astype(np.float64), axis=1)
    want = np.stack([result.real, result.imag], -1)
    yield Probe(D.float32, ("DFT",), (x,), _transform("DFT"), (want,), near=2e-7)
    frame = x[:, :1000]
    parts = np.fft.rfft(np.stack([frame[0, i : i + 499, 0] for i in range(0, 501, 100)]).astype(np.float64), axis=1)
    want = np.stack([parts.real, parts.imag], -1)[None]
    yield Probe(D.float32, ("STFT",), (frame,), _frames, (want,), near=2e-7)


def _transform(op_type: str, **attributes: int) -> Any:
    def build(graph: Graph, x: Symbol) -> Any:
        axis = graph.constant(np.array(1))
        return graph.op(op_type, [x, None, axis], attributes, [TensorType(x.dtype, [1, "n", 2])])

    return build


def _frames(graph: Graph, x: Symbol) -> Any:
    results = [x, graph.constant(np.array(100)), None, graph.constant(np.array(499))]
    return graph.op("STFT", results, {"onesided": 1}, [TensorType(x.dtype, [1, "f", "b", 2])])


def _unframed() -> str:
    """Return a description of what is wrong with an STFT whose window has no elements: it is refused in words."""
    graph = Graph("frames", {"x": TensorType(D.float64, [1, 8, 1]), "w": TensorType(D.float64, ["k"])})
    results = [graph["x"], graph.constant(np.array(2)), graph["w"]]
    graph.output(*graph.op("STFT", results, {"onesided": 1}, [TensorType(D.float64, [1, "f", "b", 2])]))
    session = bare(graph)
    try:
        session.run(None, {"x": np.ones((1, 8, 1)), "w": np.ones(0)})
    except Exception:  # its errors have no common class
        return ""
    return "gives results"


def _inverse() -> Iterator[Probe]:
    x = np.random.default_rng(0).standard_normal(10)
    result = np.fft.rfft(x)

    def build(graph: Graph, value: Symbol) -> Any:
        attributes = {"inverse": 1, "onesided": 1}
        operands = [value, graph.constant(np.array(10)), graph.constant(np.array(1))]
        return graph.op("DFT", operands, attributes, [TensorType(value.dtype, [1, 10, 1])])

    yield Probe(D.float64, ("DFT",), (np.stack([result.real, result.imag], -1)[None],), build, (x.reshape(1, 10, 1),))
