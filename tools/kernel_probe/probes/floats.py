"""Probes of floats: NaN, -0.0, tails, and what rounds too often."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from graphcore import ops
from graphcore.arrays.casting import Array
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType
from tools.kernel_probe.probes.probe import INF, NAN, WIDE, D, Family, Probe, operator, reduction

ROWS = ([[1, NAN, 2], [3, 1, 2]],)
COLUMNS = ([[1, 3], [NAN, 1], [2, 2]],)
AT = np.array([[0], [1]])


def families() -> list[Family]:
    """Return the faults of onnxruntime in floats."""
    return [
        Family("Extremes see a NaN only in some places, and lose it in others.", [*_extremes()]),
        Family("TopK puts a NaN where it does not belong.", [*_sorted()]),
        Family("Unique takes a NaN for some other number.", [*_unique()]),
        Family("Where loses the sign of a -0.0.", [*_chosen()]),
        Family("Scattered maxima and minima lose NaN.", [*_scattered()]),
        Family("Scattered sums of narrow floats round after each step, or have no kernel.", [*_scattered_sums()]),
        Family("Sigmoid is 0 below -18.", [*_logistic()]),
        Family("Functions of float64 lose digits near zeros, limits and in tails.", [*_inaccurate()]),
        Family("LogSoftmax of float64 loses a NaN that is not first.", [*_log_softmax()]),
        Family("Erf of NaN is 1.", [*_error_functions()]),
        Family("Sign of NaN in narrow floats is 0.", [*_signs()]),
        Family("GroupNormalization is a function body whose variance cancels.", [*_normalised()]),
    ]


def _extremes() -> Iterator[Probe]:
    pool: dict[str, Any] = {"kernel_shape": [2], "strides": [1]}
    for dtype in WIDE:
        for op, want in (("ReduceMax", [NAN, 3]), ("ReduceMin", [NAN, 1])):
            yield Probe(dtype, (op,), ROWS, reduction(op), (want,))
            yield Probe(dtype, (op,), COLUMNS, reduction(op, 0), (want,))
            yield Probe(dtype, (op,), ([1.0] * 40 + [NAN] + [2.0] * 40,), reduction(op, 0), (NAN,))
        for op, places in (("ArgMax", [1, 0]), ("ArgMin", [1, 1])):
            yield Probe(dtype, (op,), ROWS, operator(op, axis=1, keepdims=0), (places,), gives=(D.int64,))
            yield Probe(dtype, (op,), COLUMNS, operator(op, axis=0, keepdims=0), (places,), gives=(D.int64,))
        line = [[[NAN, 1, 2, NAN, 3]]]
        yield Probe(dtype, ("MaxPool",), (line,), operator("MaxPool", **pool), ([[[NAN, 2, NAN, NAN]]],))
        image = np.arange(16.0).reshape(1, 1, 4, 4)
        image[0, 0, 1, 2] = NAN
        pooled = [[[[5, NAN], [13, 15]]]]
        squares = operator("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
        yield Probe(dtype, ("MaxPool",), (image,), squares, (pooled,))
    yield Probe(D.float32, ("GlobalMaxPool",), ([[[1, NAN, 2]]],), operator("GlobalMaxPool"), ([[[NAN]]],))


def _sorted() -> Iterator[Probe]:
    draw = np.random.default_rng(0)
    for dtype in WIDE:
        want = ([[NAN, 2], [3, 2]], [[1, 2], [0, 2]])
        yield Probe(dtype, ("TopK",), ROWS, top_k(2), want, gives=(dtype, D.int64))
        for size in (1, 3, 9, 40, 300, 2000):
            x = np.round(draw.standard_normal((3, size)), 1)
            for place in {0, size // 2, size - 1}:
                x[1, place] = NAN
            x[2, draw.integers(0, size, max(size // 3, 1))] = NAN
            x[0, 0] = -INF
            for k in sorted({1, 2, 5, size // 2, size} & {*range(1, size + 1)}):
                for largest in (1, 0):
                    yield _best(dtype, x, k, largest, 1)
                    yield _best(dtype, x.T, k, largest, 0)
        cube = np.round(draw.standard_normal((3, 20, 4)), 1)
        cube[1, 3::5, 2] = NAN
        for largest in (1, 0):
            yield _best(dtype, cube, 7, largest, 1)
            yield _best(dtype, np.array([NAN, 1.0, NAN, -1.0]), 3, largest, 0)
            yield _best(dtype, np.full((2, 50), NAN), 30, largest, 1)
            negative = np.where(
                np.arange(60) % 7 == 3, np.copysign(NAN, -1), np.arange(60) % 5 * -0.0 + np.arange(60) % 2
            )
            yield _best(dtype, np.stack([negative, -negative]), 40, largest, 1)
            yield _best(dtype, np.where(np.arange(60) % 9 == 4, NAN, INF).reshape(2, 30), 20, largest, 1)
            many = np.round(draw.standard_normal((400, 64)), 1)  # rows enough for several threads
            many[::3, 5] = NAN
            many[::7, 60] = NAN
            for k in (1, 3, 40):
                yield _best(dtype, many, k, largest, 1)


def _unique() -> Iterator[Probe]:
    for dtype in WIDE:
        for x, want in (([3, NAN, 5, -INF], [-INF, 3, 5, NAN]), ([NAN, 2, 1], [1, 2, NAN]), ([1, NAN, NAN], [1, NAN])):
            yield Probe(dtype, ("Unique",), (x,), operator("Unique"), (want,))


def _best(dtype: DType, x: Array, k: int, largest: int, axis: int) -> Probe:
    """A NaN is greater than any number, and of equals the first comes first."""
    keys = x.astype(dtype.numpy).astype(np.float64)
    keys = np.where(np.isnan(x), np.inf, np.where(np.isposinf(keys), 1e300, keys))
    places = np.argsort(-keys if largest else keys, axis=axis, kind="stable").take(range(k), axis)
    want = np.take_along_axis(x, places, axis), places
    return Probe(dtype, ("TopK",), (x,), top_k(k, axis=axis, largest=largest), want, gives=(dtype, D.int64))


def top_k(k: int, axis: int = 1, largest: int = 1) -> Any:
    """Return the first k along an axis."""

    def build(graph: Graph, x: Symbol) -> Any:
        return graph.op("TopK", [x, graph.vector([k])], {"axis": axis, "largest": largest})

    return build


def _chosen() -> Iterator[Probe]:
    for dtype in WIDE:
        types = (D.bool, dtype, dtype)
        for item, want in (
            (([True, False], [-0.0, 1.0], [2.0, -0.0]), [-0.0, -0.0]),
            (([True, False], -0.0, [2.0, -0.0]), [-0.0, -0.0]),
            ((True, [-0.0, 1.0], 2.0), [-0.0, 1.0]),
        ):
            build = lambda graph, c, x, y: ops.where(c, x, y)  # noqa: E731
            yield Probe(dtype, ("Where",), item, build, (want,), types=types)


def _scattered() -> Iterator[Probe]:
    for dtype in WIDE:
        for op, at in (("ScatterElements", AT[:, 0]), ("ScatterND", AT)):
            for kind in ("max", "min"):
                yield Probe(dtype, (op,), ([NAN, 1], [2, NAN]), _scatter(op, at, kind), ([NAN, NAN],))


def _scatter(op_type: str, at: Array, reduction_: str) -> Any:
    def build(graph: Graph, x: Symbol, updates: Symbol) -> Any:
        return graph.op(op_type, [x, graph.constant(at), updates], {"reduction": reduction_}, [x.type])

    return build


def _scattered_sums() -> Iterator[Probe]:
    at = np.array([[0], [0]])
    for dtype, step in ((D.float16, 1 << 11), (D.bfloat16, 1 << 8)):
        for op_type, places in (("ScatterElements", at[:, 0]), ("ScatterND", at)):
            yield Probe(
                dtype,
                (op_type,),
                ([step], [1.0, 1.0]),
                _narrow_sum(dtype, op_type, places),
                ([step + 2],),
                types=(D.float32, D.float32),
                gives=(D.float32,),
            )


def _narrow_sum(dtype: DType, op_type: str, at: Array) -> Any:
    def build(graph: Graph, x: Symbol, updates: Symbol) -> Symbol:
        results = [x.cast(dtype), graph.constant(at), updates.cast(dtype)]
        (narrow,) = graph.op(op_type, results, {"reduction": "add"}, [x.type.cast(dtype)])
        return narrow.cast(D.float32)

    return build


def _logistic() -> Iterator[Probe]:
    yield Probe(D.float32, ("Sigmoid",), ([-20.0, 0.0],), operator("Sigmoid"), ([2.0611536e-09, 0.5],))
    for count in (1, 4, 16, 33):
        want = [1 / (1 + math.exp(20))] * count
        yield Probe(D.float32, ("Sigmoid",), ([-20.0] * count,), operator("Sigmoid"), (want,))


def _inaccurate() -> Iterator[Probe]:
    for op_type, x, want, near in (
        ("Sin", 6.283185307179586, -2.4492935982947064e-16, 1e-9),
        ("Cos", 4.71238898038469, -1.8369701987210297e-16, 1e-9),
        ("Tanh", 17.9, 0.9999999999999994, 2.5e-16),
        ("Sigmoid", -576.7, 3.4863604515388815e-251, 1e-6),
    ):
        yield Probe(D.float64, (op_type,), ([x] * 4,), operator(op_type), ([want] * 4,), near=near)


def _log_softmax() -> Iterator[Probe]:
    for row in ([1.0, NAN, 2.0], [1.0, 2.0, NAN], [NAN, 1.0, 2.0]):
        yield Probe(D.float64, ("LogSoftmax",), ([row],), operator("LogSoftmax"), ([[NAN] * 3],))


def _error_functions() -> Iterator[Probe]:
    for count in (1, 2, 4, 8, 16, 33):
        for place in {0, count - 1}:
            x = np.zeros(count)
            x[place] = NAN
            yield Probe(D.float32, ("Erf",), (x,), operator("Erf"), (x,))
        yield Probe(D.float32, ("Erf",), ([INF] * count,), operator("Erf"), ([1.0] * count,))
    yield Probe(D.float32, ("Erf",), (NAN,), operator("Erf"), (NAN,))
    yield Probe(D.float32, ("Erf",), ([[NAN, -INF]],), operator("Erf"), ([[NAN, -1.0]],))


def _signs() -> Iterator[Probe]:
    for dtype in (D.float16, D.bfloat16):
        for count in (2, 16, 33):
            numbers = np.resize([NAN, -2.0], count)
            build = lambda graph, x, d=dtype: ops.sign(x.cast(d)).cast(D.float32)  # noqa: E731
            want = (np.sign(numbers),)
            yield Probe(
                dtype,
                ("Sign",),
                (numbers,),
                build,
                want,
                types=(D.float32,),
                gives=(D.float32,),
                beside=(f"{dtype} kernels",),
            )


def _normalised() -> Iterator[Probe]:
    spread = 1e4 + np.arange(4) / 4
    even = (spread - spread.mean()) / np.sqrt(spread.var() + 1e-5)
    for dtype in WIDE:
        yield Probe(dtype, ("GroupNormalization",), ([[spread, spread]],), _group_norm, ([[even, even]],))


def _group_norm(graph: Graph, x: Symbol) -> Any:
    one, zero = (graph.constant(np.full(2, v, x.dtype.numpy)) for v in (1, 0))
    result = [TensorType(x.dtype, x.shape)]
    return graph.op("GroupNormalization", [x, one, zero], {"num_groups": 2, "epsilon": 1e-5}, result)
