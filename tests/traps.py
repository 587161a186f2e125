"""What onnxruntime gets wrong, as small graphs: right as docs/numbers.md promises, and wrong without their detours.

A probe is one operator of ONNX, or a few ops, on values where the kernel fails or gives other numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime

from graphcore import DType, Graph, Symbol, TensorType, ops

Array = np.ndarray[Any, Any]
D = DType
NAN, INF = float("nan"), float("inf")
SIGNED = (D.int8, D.int16, D.int32, D.int64)
UNSIGNED = (D.uint8, D.uint16, D.uint32, D.uint64)
LONG = (D.int32, D.int64)
WIDE = (D.float32, D.float64)


@dataclass(frozen=True, slots=True)
class Probe:
    """Of a dtype: the operands' numbers, what to build with them, and the results that are right.

    rows: the operators whose detour for the dtype it needs. numbers: one list an operand, of the dtype or another.
    """

    dtype: DType
    rows: tuple[str, ...]
    numbers: tuple[Any, ...]
    build: Callable[..., Any]
    want: tuple[Any, ...]
    types: tuple[DType, ...] = ()
    gives: tuple[DType, ...] = ()
    dies: bool = False
    """Without its detour the process ends."""

    def operands(self) -> list[Array]:
        types = self.types or (self.dtype,) * len(self.numbers)
        return [np.array(n, d.numpy) for n, d in zip(self.numbers, types, strict=True)]

    def graph(self) -> Graph:
        types = self.types or (self.dtype,) * len(self.numbers)
        given = {
            f"x{i}": TensorType(d, [f"of_{size}" for size in array.shape])
            for i, (d, array) in enumerate(zip(types, self.operands(), strict=True))
        }
        graph = Graph("probe", given)
        made = self.build(graph, *graph.inputs)
        graph.output(*(made if isinstance(made, (tuple, list)) else (made,)))
        return graph

    def run(self) -> list[Array]:
        """In a plain session with its default optimisations."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        graph = self.graph()
        session = onnxruntime.InferenceSession(
            graph.to_onnx().SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        feed = {s.name: a for s, a in zip(graph.inputs, self.operands(), strict=True)}
        return [np.asarray(r) for r in session.run(None, feed)]

    def is_right(self, results: Sequence[Array]) -> bool:
        gives = self.gives or (self.dtype,) * len(self.want)
        wanted = [np.array(w, d.numpy) for w, d in zip(self.want, gives, strict=True)]
        return len(results) == len(wanted) and all(map(_same, results, wanted))


def _same(got: Array, want: Array) -> bool:
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return False
    if got.dtype.kind != "f":
        return bool((got == want).all())
    with np.errstate(invalid="ignore"):
        near = np.abs(got - want) <= np.abs(want) * (1e-12 if got.dtype == np.float64 else 1e-6)
    alike = (got == want) & (np.signbit(got) == np.signbit(want))
    return bool((alike | (np.isnan(got) & np.isnan(want)) | (near & (want != 0))).all())


def is_wrong(probe: Probe) -> bool:
    """Whether onnxruntime fails, or gives other numbers."""
    try:
        return not probe.is_right(probe.run())
    except Exception:  # its errors have no common class
        return True


def operator(op_type: str, /, *constants: Any, **attributes: Any) -> Any:
    """One operator of ONNX, behind whose operands come constants."""

    def build(graph: Graph, *symbols: Symbol) -> tuple[Symbol, ...]:
        behind = [c if c is None else graph.constant(c) for c in constants]
        return graph.op(op_type, [*symbols, *behind], attributes or None)

    return build


def _integers(dtype: DType) -> list[Probe]:
    least, greatest = int(dtype.min), int(dtype.max)
    return [
        Probe(dtype, ("Div",), ([7, 9], [0, 2]), operator("Div"), ([0, 4],)),
        Probe(dtype, ("Mod",), ([7, 9], [0, 2]), operator("Mod"), ([0, 1],)),
        *(
            [
                Probe(dtype, ("Div",), ([least, 9], [-1, 2]), operator("Div"), ([least, 4],), dies=True),
                Probe(dtype, ("Mod",), ([least, 9], [-1, 2]), operator("Mod"), ([0, 1],), dies=True),
            ]
            if dtype in LONG
            else []
        ),
        *(
            [
                Probe(dtype, ("ReduceSum",), ([[greatest, 2]],), _reduce("ReduceSum"), ([least + 1],)),
                Probe(dtype, ("ReduceProd",), ([[greatest, 3]],), _reduce("ReduceProd"), ([greatest - 2],)),
                Probe(dtype, ("ReduceL1",), ([[greatest, 2]],), _reduce("ReduceL1"), ([least + 1],)),
                Probe(dtype, ("ReduceSumSquare",), ([[greatest, 1]],), _reduce("ReduceSumSquare"), ([2],)),
                Probe(dtype, ("Einsum",), ([[greatest, 2]],), operator("Einsum", equation="ij->i"), ([least + 1],)),
            ]
            if dtype in LONG
            else []
        ),
    ]


def _reduce(op_type: str) -> Any:
    return operator(op_type, np.array([1]), keepdims=0)


def _floats(dtype: DType) -> list[Probe]:
    arg = operator("ArgMax", axis=1, keepdims=0)
    arg_min = operator("ArgMin", axis=1, keepdims=0)
    rows = ([[1, NAN, 2], [3, 1, 2]],)
    pool: dict[str, Any] = {"kernel_shape": [2], "strides": [1]}
    at = np.array([[0], [1]])
    nothing = np.ones((2, 0)), np.ones((3, 0))
    turned = operator("Einsum", equation="ij,kj->ik")
    return [
        Probe(dtype, ("Einsum",), nothing, turned, (np.zeros((2, 3)),), dies=True),
        Probe(dtype, ("ReduceMax",), rows, _reduce("ReduceMax"), ([NAN, 3],)),
        Probe(dtype, ("ReduceMin",), rows, _reduce("ReduceMin"), ([NAN, 1],)),
        Probe(dtype, ("ArgMax",), rows, arg, ([1, 0],), gives=(D.int64,)),
        Probe(dtype, ("ArgMin",), rows, arg_min, ([1, 1],), gives=(D.int64,)),
        Probe(dtype, ("TopK",), rows, _top_k, ([[NAN, 2], [3, 2]], [[1, 2], [0, 2]]), gives=(dtype, D.int64)),
        Probe(dtype, ("MaxPool",), ([[[NAN, 1, 2, NAN, 3]]],), operator("MaxPool", **pool), ([[[NAN, 2, NAN, NAN]]],)),
        Probe(
            dtype,
            ("Where",),
            ([True, False], [-0.0, 1.0], [2.0, -0.0]),
            lambda graph, c, x, y: ops.where(c, x, y),
            ([-0.0, -0.0],),
            types=(D.bool, dtype, dtype),
        ),
        Probe(dtype, ("ScatterElements",), ([NAN, 1], [2, NAN]), _scatter("ScatterElements", at[:, 0]), ([NAN, NAN],)),
        Probe(dtype, ("ScatterND",), ([NAN, 1], [2, NAN]), _scatter("ScatterND", at), ([NAN, NAN],)),
    ]


def _top_k(graph: Graph, x: Symbol) -> Any:
    return graph.op("TopK", [x, graph.vector([2])], {"axis": 1})


def _scatter(op_type: str, at: Array) -> Any:
    def build(graph: Graph, x: Symbol, updates: Symbol) -> Any:
        return graph.op(op_type, [x, graph.constant(at), updates], {"reduction": "max"}, [x.type])

    return build


def _narrow_sum(dtype: DType) -> list[Probe]:
    step = 1 << (11 if dtype is D.float16 else 8)

    def build(op_type: str, at: Array) -> Any:
        def made(graph: Graph, x: Symbol, updates: Symbol) -> Symbol:
            places = graph.constant(at)
            (narrow,) = graph.op(
                op_type, [x.cast(dtype), places, updates.cast(dtype)], {"reduction": "add"}, [x.type.cast(dtype)]
            )
            return narrow.cast(D.float32)

        return made

    at = np.array([[0], [0]])
    numbers = ([step], [1.0, 1.0])
    return [
        Probe(
            dtype,
            (op_type,),
            numbers,
            build(op_type, at if op_type == "ScatterND" else at[:, 0]),
            ([step + 2],),
            types=(D.float32, D.float32),
            gives=(D.float32,),
        )
        for op_type in ("ScatterElements", "ScatterND")
    ]


def _resize(scale: float, **attributes: Any) -> Any:
    return operator("Resize", None, np.array([1, 1, 1, scale], np.float32), mode="linear", **attributes)


def _one_hot(dtype: DType) -> Any:
    return operator("OneHot", np.array(3), np.array([0, 1], dtype.numpy))


def _window(op_type: str, dtype: DType) -> Any:
    def build(graph: Graph, x: Symbol) -> Any:
        length = ops.shape_of(x)[0].cast(dtype)
        return graph.op(op_type, [length], {"output_datatype": int(D.float64.onnx)}, [x.type])

    return build


TURN, TWICE = (np.cos(turns * 2 * np.pi * np.arange(7) / 7) for turns in (1, 2))


def _unpool(graph: Graph, x: Symbol, places: Symbol) -> Any:
    asked = graph.constant(np.array([1, 1, 5, 5]))
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    return graph.op("MaxUnpool", [x, places, asked], attributes, [TensorType(x.dtype, [1, 1, 5, 5])])


def _recurrent(op_type: str, gates: int) -> Any:
    """Two states, all weights 1, the batch before the sequence."""

    def build(graph: Graph, x: Symbol) -> Any:
        given, kept = (graph.constant(np.ones((1, 2 * gates, n), np.float32)) for n in (1, 2))
        attributes = {"hidden_size": 2, "layout": 1}
        return graph.op(op_type, [x, given, kept], attributes, [TensorType(x.dtype, [1, 2, 1, 2])])

    return build


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _steps(step: Callable[[float, float], tuple[float, float]]) -> list[float]:
    """What two steps give whose operand is 1: both states are the same."""
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


def _twice(steps: list[float]) -> Any:
    return [[[[step, step]] for step in steps]]


def _by_vector(dtype: DType) -> Probe:
    nothing = np.zeros((0, 3), dtype.numpy)
    return Probe(dtype, ("MatMul",), (nothing, [1, 2, 3]), operator("MatMul"), ([],))


def _no_columns(dtype: DType) -> Probe:
    left, right = np.zeros((2, 0), dtype.numpy), np.zeros((0, 1), dtype.numpy)
    build = operator("MatMul")
    return Probe(dtype, ("MatMul",), (left, right), build, ([[0], [0]],))


SMALL, LARGE = [24] * 16, [2326880433] * 16
"""int64 whose high halves are equal: some vector instructions order the low ones as signed."""

ALIKE = frozenset({("Sum", D.float64), *((op, d) for op in ("ReduceL2", "ReduceMean") for d in LONG)})
"""Detours of kernels that give the same numbers, in a row with others that do not."""

_BYTES = (D.int8, D.uint8)
_EIGHTHS = (D.float8_e4m3fn, D.float8_e5m2, D.float8_e4m3fnuz, D.float8_e5m2fnuz)
_QUANTIZED = (*_BYTES, D.int16, D.uint16, D.int32, D.int4, D.uint4, D.int2, D.uint2, *_EIGHTHS)
ELSEWHERE = frozenset(
    {
        ("DFT", D.float32), ("DFT", D.float64), ("STFT", D.float32), ("StringNormalizer", D.string),
        *((op, d) for op in ("HannWindow", "MelWeightMatrix") for d in LONG),
        *((op, d) for op in ("BitCast", "ConvInteger") for d in _BYTES),
        *(("DequantizeLinear", d) for d in _QUANTIZED),
        *((op, d) for op in ("ReduceMax", "ReduceMin") for d in (*_BYTES, D.bool, D.int32)),
    }
)  # fmt: skip
"""Detours of what a kernel refuses and ONNX allows: see `test_models_operators` and `test_operator_detours`."""

PROBES: list[Probe] = [
    *(probe for dtype in (*SIGNED, *UNSIGNED) for probe in _integers(dtype)),
    *(probe for dtype in WIDE for probe in _floats(dtype)),
    *(probe for dtype in (D.float16, D.bfloat16) for probe in _narrow_sum(dtype)),
    *map(_by_vector, (D.float32, D.int32, D.int64)),
    *map(_no_columns, (D.uint32, D.uint64)),
    Probe(
        D.float64,
        ("MatMul",),
        ([[1.0]], [[1.0]]),
        lambda graph, x, y: (x * 0.3) @ y,
        ([[0.3]],),
    ),
    Probe(
        D.string,
        ("Gather",),
        ([["a", "b"], ["c", "d"]],),
        operator("Gather", np.array([1]), axis=0),
        ([["c", "d"]],),
    ),
    Probe(
        D.string,
        ("StringSplit",),
        (["", "a"],),
        operator("StringSplit", delimiter=","),
        ([[""], ["a"]], [1, 1]),
        gives=(D.string, D.int64),
    ),
    Probe(D.int64, ("Sign",), ([2326880433, 1 << 32, 0, -5],), operator("Sign"), ([1, 1, 0, -1],)),
    Probe(D.int64, ("Max",), (SMALL, LARGE), operator("Max"), (LARGE,)),
    Probe(D.int64, ("Min",), (SMALL, LARGE), operator("Min"), (SMALL,)),
    Probe(D.int64, ("Clip",), ([24, 5],), operator("Clip", None, np.array(2326880433)), ([24, 5],)),
    Probe(D.int64, ("ReduceMax",), ([SMALL + LARGE],), _reduce("ReduceMax"), (LARGE[:1],)),
    Probe(D.int64, ("ReduceMin",), ([SMALL + LARGE],), _reduce("ReduceMin"), (SMALL[:1],)),
    Probe(D.int64, ("Pow",), ([3, 7, 2], [39, 22, 64]), operator("Pow"), ([3**39, 7**22, 0],)),
    Probe(D.int32, ("Pow",), ([3, 7, -1], [21, 12, -3]), operator("Pow"), ([3**21 % 2**32, 7**12 % 2**32, -1],)),
    Probe(
        D.int64,
        ("Mod",),
        ([2**62 + 1, -(2**62) - 3], [10**9 + 7, 10**9 + 7]),
        operator("Mod", fmod=1),
        ([(2**62 + 1) % (10**9 + 7), -((2**62 + 3) % (10**9 + 7))],),
    ),
    Probe(D.float32, ("Sigmoid",), ([-20.0, 0.0],), operator("Sigmoid"), ([2.0611536e-09, 0.5],)),
    Probe(D.float32, ("GlobalMaxPool",), ([[[1, NAN, 2]]],), operator("GlobalMaxPool"), ([[[NAN]]],)),
    *(
        Probe(dtype, (op_type,), ([[-3, -4]],), _reduce(op_type), ([want],))
        for dtype in LONG
        for op_type, want in (("ReduceLogSum", 0), ("ReduceLogSumExp", -2))
    ),
    Probe(
        D.float32,
        ("Resize",),
        ([[[[1, 2, 3, 4]]]],),
        _resize(0.6, coordinate_transformation_mode="align_corners"),
        ([[[[1, 3.142857]]]],),
    ),
    Probe(D.int32, ("Resize",), ([[[[2**24 + 1] * 2]]],), _resize(2), ([[[[2**24 + 1] * 4]]],)),
    *(
        Probe(dtype, ("OneHot",), ([0, 2],), _one_hot(dtype), ([[1, 0, 0], [0, 0, 1]],), types=(D.uint8,))
        for dtype in (D.float32, D.int64)
    ),
    *(
        Probe(
            dtype,
            (op_type,),
            ([1.0] * 7,),
            _window(op_type, dtype),
            (7 * [a] - b * TURN + c * TWICE,),
            (D.float64,),
            (D.float64,),
        )
        for dtype in LONG
        for op_type, a, b, c in (
            ("HammingWindow", 25 / 46, 21 / 46, 0),
            ("BlackmanWindow", 0.42, 0.5, 0.08),
        )
    ),
    Probe(
        D.float32,
        ("MaxUnpool",),
        ([[[[5, 6], [7, 8]]]], [[[[5, 7], [13, 15]]]]),
        _unpool,
        (np.pad([[0] * 4, [0, 5, 0, 6], [0] * 4, [0, 7, 0, 8]], (0, 1))[None, None],),
        types=(D.float32, D.int64),
    ),
    *(
        Probe(
            dtype,
            ("SpaceToDepth",),
            ([[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]],),
            operator("SpaceToDepth", blocksize=2, mode="CRD"),
            ([[[[n]] for n in range(8)]],),
        )
        for dtype in (D.float32, D.float64, D.int8, D.uint8)
    ),
    *(
        Probe(D.float32, (op_type,), ([[[1.0], [1.0]]],), _recurrent(op_type, gates), (_twice(want),))
        for op_type, gates, want in (
            ("RNN", 1, RNN),
            ("GRU", 3, GRU),
            ("LSTM", 4, LSTM),
        )
    ),
]
