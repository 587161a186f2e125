"""Probes of what onnxruntime does with several nodes at once, with bodies, and with memory."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from graphcore import ops
from graphcore.arrays.casting import cast_array
from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.targets.legality import legality
from graphcore.runtime.ort import release
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType
from tools.kernel_probe.probes.probe import INF, WIDE, Check, D, Family, Probe, bare

HALVES = (D.float16, D.bfloat16)


def families() -> list[Family]:
    """Return the faults of onnxruntime with several nodes: wrong fusions, and crashes."""
    return [
        Family("A constant zero that is added is left out, though -0.0 + 0.0 is 0.0.", [*_zeros()]),
        Family("A product with weights that a node dequantises rounds the other operand.", [*_dequantised()]),
        Family("Between kernels of narrow floats the rounding is left out, and some round between steps.", _narrow()),
        Family("Optimisers make operators of float64 that have kernels in float32 alone.", [*_optimised()]),
        Family("FuseReluClip fails on a Relu of float64 before a Clip.", [*_clipped()]),
        Family("MatMulScaleFusion multiplies by infinity after the sum, and fails on float64.", [*_endless()]),
        Family("Before a Transpose, bytes without a zero point are quantised to uint8 again.", [*_untold()]),
        Family(
            "QDQPropagationTransformer quantises to int32, for which there is no kernel.",
            [*_moved(np.int32(0), "optimiser QDQPropagationTransformer")],
        ),
        Family("QDQSelectorActionTransformer multiplies integers by scales along any axis.", [*_scaled()]),
        Family("MatmulTransposeFusion ends the process past a Cast.", [*_cast()]),
        Family("TransposeOptimizer moves a Transpose past a cubic Resize.", [*_cubic()]),
        Family("TransposeOptimizer replaces Transposes of parts of bytes by an Identity.", [*_repeated()]),
        Family(
            "Optimisers compute on quantised integers of 2 and 4 bits, which have no kernels.", [*_quantised_parts()]
        ),
        Family("PreShapeNodeElimination drops a Cast before a Shape that has no kernel without.", [*_shaped()]),
        Family(
            "QDQS8ToU8Transformer moves int8 to uint8 beside an attribute that still says int8.",
            [*_moved(np.int8(3), "optimiser QDQS8ToU8Transformer")],
        ),
        Family("NoopElimination takes a constant without elements for a 0 or a 1.", [*_noop()]),
        Family("NoopElimination takes a constant of float64 for the 0 or 1 that float32 rounds it to.", [*_rounded()]),
        Family("A Loop that gathers strings ends the process.", [Check((_LOOP,), _looped, dies=True)]),
        Family(
            "An output that is an input has its memory, and does not keep it alive.",
            [Check((_GIVEN,), _output_of_input)],
        ),
    ]


_LOOP, _GIVEN = "Loop that gathers strings", "output that is an input"


def _zeros() -> Iterator[Probe]:
    names = ("sum with a constant zero",)
    # The sign shows in the infinity. What is the first node of a graph, or its last one, stays.
    builds: list[Callable[..., Any]] = [
        lambda graph, x: 1 / (-x + 0.0),
        lambda graph, x: 1 / (0.0 + -x),
        lambda graph, x: 1 / (-x - -0.0),
        lambda graph, x: 1 / (-x + np.zeros(1, x.dtype.numpy)),
    ]
    for dtype in WIDE:
        for build in builds:
            yield Probe(dtype, (), ([0.0, -1.0],), build, ([INF, 1.0],), names=names)


def _dequantised() -> Iterator[Probe]:
    draw = np.random.default_rng(0)
    weights = draw.integers(-127, 128, (64, 32)).astype(np.int8)
    x = np.round(draw.standard_normal((5, 64)) * 64) / 64
    for _dtype, codes in ((D.int8, weights), (D.uint8, weights.view(np.uint8))):
        want = x @ (codes * 0.25)

        def build(graph: Graph, value: Symbol, codes: Any = codes) -> Any:
            wide = ops.onnx.DequantizeLinear(graph.constant(codes), np.float32(0.25))
            return value @ wide

        def turned(graph: Graph, value: Symbol, codes: Any = codes) -> Any:
            wide = ops.onnx.DequantizeLinear(graph.constant(codes.T.copy()), np.float32(0.25))
            return value @ ops.transpose(wide)

        for each in (build, turned):
            names = ("product with dequantised weights",)
            yield Probe(D.float32, (), (x,), each, (want,), names=names, is_known=True)


def _narrow() -> list[Check]:
    return [Check((f"{dtype} kernels",), functools.partial(_unrounded, dtype)) for dtype in HALVES]


def _unrounded(dtype: DType) -> str:
    """Return a product and a sum of narrow floats, by graphcore where the trap is avoided and as they are where not."""
    draw = np.random.default_rng(0)
    x, y = (cast_array(draw.standard_normal(300), D.float64, dtype) for _ in range(2))
    product = (x.astype(np.float64) * y.astype(np.float64)).astype(np.float32).astype(dtype.numpy)
    want = (product.astype(np.float32) + y.astype(np.float32)).astype(dtype.numpy)
    graph = Graph("narrow", {n: TensorType(D.float32, [300]) for n in "xy"})
    a, b = (s.cast(dtype) for s in graph.inputs)
    graph.output((a * b + b).cast(D.float32))
    if legality("cpu", release.runtime()).has_trap(f"{dtype} kernels"):
        session = bare(graph)
    else:
        model = graph.to_onnx(target="onnx")
        model.ir_version, model.opset_import[0].version = release.runtime().ir, min(release.runtime().opset, 22)
        session = _plain(model)
    (got,) = session.run(None, {n: v.astype(np.float32) for n, v in (("x", x), ("y", y))})
    wrong = int((got != want.astype(np.float32)).sum())
    return f"{wrong} of 300 numbers differ" if wrong else ""


def _plain(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _optimised() -> Iterator[Probe]:
    x, y = np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([[1.0, 4.0], [7.0, 3.0]])
    beside = ("MatMul float64",)
    scaled, turned = ("optimiser MatMulScaleFusion",), ("optimiser MatmulTransposeFusion",)
    scaling: list[Callable[..., Any]] = [lambda graph, a, b: (a * 0.3) @ b, lambda graph, a, b: (a @ b) * 0.3]
    for build in scaling:
        want = (build(None, x, y),)
        yield Probe(D.float64, (), (x, y), build, want, names=scaled, beside=beside, in_session=True)
    products: list[tuple[Callable[..., Any], Any]] = [
        (lambda graph, a, b: ops.transpose(a) @ b, x.T @ y),
        (lambda graph, a, b: a @ ops.transpose(b), x @ y.T),
    ]
    for build, product in products:
        for is_known in (False, True):
            yield Probe(
                D.float64, (), (x, y), build, (product,), names=turned, beside=beside, in_session=True,
                is_known=is_known,
            )  # fmt: skip
    quick = np.linspace(-3, 3, 7)
    for alpha in (1.702, 1.0):
        want = (quick / (1 + np.exp(-alpha * quick)),)
        build = functools.partial(_quick, alpha)
        yield Probe(D.float64, (), (quick,), build, want, names=("optimiser QuickGeluFusion",), in_session=True)


def _clipped() -> Iterator[Probe]:
    x = np.array([-1.0, 0.25, 3.0, INF])
    build: Callable[..., Any] = lambda graph, x: ops.onnx.Clip(ops.onnx.Relu(x), 0.0, 0.5)  # noqa: E731
    yield Probe(D.float64, (), (x,), build, ([0.0, 0.25, 0.5, 0.5],), names=("optimiser FuseReluClip",))


def _endless() -> Iterator[Probe]:
    x, names = np.array([[1.0, -2.0], [3.0, 5.0]]), ("optimiser MatMulScaleFusion of infinity",)
    # Infinities of both signs add up to NaN.
    want = np.array([[np.nan, np.nan], [INF, INF]])
    builds: list[Callable[..., Any]] = [lambda graph, x: (-x * -INF) @ (x * x), lambda graph, x: (-x / -0.0) @ (x * x)]
    for dtype in (D.float32, D.float64):
        for build in builds:
            yield Probe(dtype, (), (x,), build, (want,), names=names, in_session=True)


def _quick(alpha: float, graph: Graph, x: Symbol) -> Symbol:
    return x * ops.onnx.Sigmoid(x if alpha == 1 else x * alpha)


def _moved(zero: np.integer[Any], name: str) -> Iterator[Probe]:
    """Probe a Transpose of what is dequantised, by the dtype of a zero point."""
    x = np.array([[-8, 0, 4], [8, 16, 3]], zero.dtype)
    want = (np.exp((x.T - np.float32(zero)) * np.float32(0.125)),)

    def build(graph: Graph, x: Symbol) -> Symbol:
        return ops.onnx.Exp(ops.transpose(ops.onnx.DequantizeLinear(x, np.float32(0.125), zero)))

    for is_known in (False, True):
        yield Probe(
            DType.of(zero.dtype), (), (x,), build, want, gives=(D.float32,), names=(name,), in_session=True,
            is_known=is_known, near=1e-6,
        )  # fmt: skip


def _scaled() -> Iterator[Probe]:
    x, y = np.array([[0, 1, 4], [8, 16, 3]], np.uint8), np.array([[1, 2], [3, 4], [5, 6]], np.uint8)
    scales = np.array([0.125, 0.5, 1.0], np.float32)

    def build(graph: Graph, x: Symbol, y: Symbol) -> Symbol:
        return ops.onnx.DequantizeLinear(x, scales) @ ops.onnx.DequantizeLinear(y, np.float32(0.5))

    want = ((x * scales) @ (y * np.float32(0.5)),)
    for is_known in (False, True):
        yield Probe(
            D.uint8, (), (x, y), build, want, gives=(D.float32,), names=("optimiser QDQSelectorActionTransformer",),
            in_session=True, is_known=is_known, near=1e-6,
        )  # fmt: skip


def _shaped() -> Iterator[Probe]:
    names = ("optimiser PreShapeNodeElimination",)

    def build(graph: Graph, x: Symbol) -> Symbol:
        (shape,) = graph.op("Shape", [x.cast(D.int8)])
        return shape + shape

    for dtype in (D.int4, D.uint4):
        yield Probe(
            dtype, (), (np.ones((2, 3)),), build, ([4, 6],), gives=(D.int64,), names=names, in_session=True,
            beside=("Cast of parts of bytes",),
        )  # fmt: skip


def _cast() -> Iterator[Probe]:
    x, w = np.arange(24).reshape(2, 3, 4), np.ones((4, 2))
    build: Callable[..., Any] = lambda graph, x, w: ops.permute(x, (1, 0, 2)).cast(D.float32) @ w  # noqa: E731
    yield Probe(
        D.int8, (), (x, w), build, (x.transpose(1, 0, 2) @ w,), types=(D.int8, D.float32), gives=(D.float32,),
        names=("optimiser MatmulTransposeFusion of casts",), dies=True, is_known=True,
    )  # fmt: skip


def _cubic() -> Iterator[Probe]:
    scales = np.array([1, 1, 0.5, 0.5], np.float32)

    def build(graph: Graph, x: Symbol) -> Symbol:
        (result,) = graph.op("Resize", [ops.permute(x, (0, 3, 1, 2)), None, graph.constant(scales)], {"mode": "cubic"})
        return ops.permute(result, (0, 2, 3, 1))

    for is_known in (False, True):
        yield Probe(
            D.float32, (), (np.ones((1, 4, 4, 3)),), build, (np.ones((1, 2, 2, 3)),), is_known=is_known,
            names=("optimiser TransposeOptimizer",), near=1e-6,
        )  # fmt: skip


def _repeated() -> Iterator[Probe]:
    x = np.array([[1, 0, 1], [0, 1, 1]])
    for dtype in (D.int2, D.int4, D.uint2, D.uint4):
        yield Probe(
            dtype, (), (x,), lambda graph, x: ops.transpose(ops.transpose(x)), (x,),
            names=("optimiser TransposeOptimizer of parts of bytes",), in_session=True,
        )  # fmt: skip


def _quantised_parts() -> Iterator[Probe]:
    x, scale = np.array([[1, 0, 1], [0, 1, 1]]), np.float32(0.5)
    for dtype in (D.int2, D.int4, D.uint2, D.uint4):

        def build(graph: Graph, x: Symbol) -> Symbol:
            zero = graph.constant(np.zeros((), x.dtype.numpy))
            return ops.onnx.QuantizeLinear(ops.relu(ops.onnx.DequantizeLinear(x, scale, zero)), scale, zero)

        yield Probe(
            dtype, (), (x,), build, (x,), names=("optimisers of quantised parts of bytes",), in_session=True,
        )  # fmt: skip


def _untold() -> Iterator[Probe]:
    names = ("DequantizeLinear without a zero point",)
    for dtype in (D.int8, D.int16):
        x = np.array([[-8, 0, 4], [8, 16, 3]], dtype.numpy)
        for scale in (np.float32(0.125), np.array([0.125, 0.5, 1.0], np.float32)):

            def build(graph: Graph, x: Symbol, scale: Any = scale) -> Symbol:
                return ops.transpose(ops.onnx.DequantizeLinear(x, scale))

            for is_known in (False, True):
                yield Probe(
                    dtype, (), (x,), build, ((x * scale).T,), gives=(D.float32,), names=names, is_known=is_known
                )  # fmt: skip


def _noop() -> Iterator[Probe]:
    names = ("optimiser NoopElimination",)
    for dtype in WIDE:
        for build in (
            lambda graph, x: -(x * np.zeros(0, x.dtype.numpy)),
            lambda graph, x: -(x + np.zeros(0, x.dtype.numpy)),
            lambda graph, x: x - np.zeros(0, x.dtype.numpy),
            lambda graph, x: x / np.zeros(0, x.dtype.numpy),
        ):
            yield Probe(dtype, (), ([1.0],), build, ([],), names=names, in_session=True, is_known=True)


def _rounded() -> Iterator[Probe]:
    names = ("optimiser NoopElimination float64",)
    factor = 1 + 2.0**-40
    # What is the first node of a graph, or its last one, stays.
    builds: list[tuple[Callable[..., Any], list[float]]] = [
        (lambda graph, x: -(-x + 1e-300), [-1e-300, 1.0]),
        (lambda graph, x: -(-x - 1e-300), [1e-300, 1.0]),
        (lambda graph, x: -(-x * factor), [0.0, factor]),
        (lambda graph, x: -(-x / factor), [0.0, 1 / factor]),
    ]
    for build, want in builds:
        yield Probe(D.float64, (), ([0.0, 1.0],), build, (want,), names=names)


def _looped() -> str:
    """A loop whose steps gather strings: refused in words, or three of them."""
    graph = Graph("loop", {"n": TensorType(D.int64, []), "x": TensorType(D.string, [2])})

    def body(number: Symbol, going: Symbol, text: Symbol) -> Any:
        return going, text, text

    result = ops.onnx.Loop(graph["n"], graph.constant(np.array(True)), [graph["x"]], body=body)
    graph.output(*result)
    text = np.array(["first, long enough to lie elsewhere", "second"], object)
    try:
        session = bare(graph)
    except GraphError:
        return ""
    for _ in range(3):
        _, gathered = session.run(None, {"n": np.array(3), "x": text})
        if gathered.tolist() != [text.tolist()] * 3:
            return f"gives {gathered.tolist()}"
    return ""


def _output_of_input() -> str:
    """Return a description of what is wrong with the memory of an output that is an input."""
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n"])
    more = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n"])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "given", [value], [value, more])
    session = _plain(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    x = np.arange(1000, dtype=np.float32)
    count = sys.getrefcount(x)
    got, _ = release.copying_outputs(session.run, {"x"})(["x", "y"], {"x": x}, None)
    is_kept = sys.getrefcount(x) > count
    return "gives memory that it does not keep alive" if np.shares_memory(got, x) and not is_kept else ""
