"""Probes of operands without elements: extremes, sorting, networks and attention."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from graphcore import ops
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions import older
from graphcore.runtime.lowering.targets.traps import REVERSED_EMPTY, REVERSED_ONE_AXIS
from graphcore.runtime.lowering.workarounds import empty as empty_kernels
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType
from tools.kernel_probe.probes.floats import top_k
from tools.kernel_probe.probes.probe import (
    INF,
    WIDE,
    Check,
    D,
    Family,
    Probe,
    bare,
    operator,
    reduction,
    written,
)

REDUCED = (D.bool, D.int8, D.uint8, D.int32)
"""Dtypes of which the kernels of extremes are right where there are elements."""
SORTED = (D.int32, D.int64, D.uint64, D.float32, D.float64)
EMPTY = ((2, 0), (0, 3), (0, 0), (2, 0, 3), (0, 3, 2))


_TURNS = "Loop without a number of turns"


def families() -> list[Family]:
    """Return the faults of onnxruntime with tensors without elements."""
    return [
        Family("ReduceMax and ReduceMin refuse to reduce nothing.", [*_refused()]),
        Family("ReduceMax and ReduceMin of integers give 0 for nothing.", [*_extremes()]),
        Family("TopK does not survive empty axes beside the one that it sorts along.", [*_sorted()]),
        Family("Unique does not survive empty axes beside the one that it goes along.", [*_unique()]),
        Family("ReverseSequence ends the process on operands of one axis.", [Check((_ONE,), _one_axis, dies=True)]),
        Family("ReverseSequence leaves a sequence of length 0 unwritten.", [*_reversed()]),
        Family("Reductions along axes below 0 reduce an empty tensor along none.", [*_axes()]),
        Family(
            "Squeeze along no axes removes every axis of size 1.", [Check((empty_kernels.NO_AXES.name,), _unsqueezed)]
        ),
        Family(
            "GRU and LSTM do not survive empty operands, or read what is not written.",
            [*_recurrent()],
        ),
        Family("RNN without steps does not give its first state.", [*_recurrent_steps()]),
        Family("Conv never ends on filters without elements.", [Check((empty_kernels.KERNELS.name,), _kernelless)]),
        Family("Products of integers without terms leave their results unwritten.", [*_products()]),
        Family("Attention fails without queries or keys.", [*_attention()]),
        Family(
            "NonMaxSuppression reads a limit of an operand without elements.",
            [Check((empty_kernels.LIMITS.name,), _unlimited)],
        ),
        Family("Pools refuse images without channels, and planes without elements.", [*_pools()]),
        Family("InstanceNormalization does not survive planes without elements.", [*_images()]),
        Family("A Scan along another axis than the first ends the process without elements.", [*_scans()]),
        Family("A Loop reads its number of turns where there is none.", [Check((_TURNS,), _unturned, dies=True)]),
        Family("FeatureVectorizer ends the process without rows.", [*_vectorizers()]),
    ]


def _unique() -> Iterator[Probe]:
    for dtype in (D.int8, D.int64, *WIDE, D.string):
        for shape, axis, want in (((2, 0), 0, (1, 0)), ((0, 3), 1, (0, 1)), ((2, 0, 3), 2, (2, 0, 1))):
            names = (older.trap("Unique", dtype),)
            build, value, wanted = operator("Unique", axis=axis), (np.zeros(shape),), (np.zeros(want),)
            hiding = (f"Unique {dtype}",) if dtype in WIDE else ()
            yield Probe(dtype, (), value, build, wanted, names=names, beside=hiding, dies=True)


def _reversed() -> Iterator[Probe]:
    """Lengths are 0 for some sequences; the numbers are none that memory holds by chance."""
    for shape, time, batch in (((4, 3), 0, 1), ((3, 4), 1, 0), ((4, 3, 70), 0, 1), ((3, 4, 70), 1, 0)):
        x = np.arange(np.prod(shape)).reshape(shape) % 97 + 7
        want, lengths = x.copy(), [0, 2, 4]
        for sequence, length in enumerate(lengths):
            turned = [slice(None)] * x.ndim
            turned[batch], turned[time] = slice(sequence, sequence + 1), slice(0, length)
            want[tuple(turned)] = np.flip(x[tuple(turned)], time)
        build = operator("ReverseSequence", time_axis=time, batch_axis=batch)
        for dtype in (D.float32, D.int64, D.int8, D.bool):
            value = x % 2 if dtype is D.bool else x
            right = want % 2 if dtype is D.bool else want
            yield Probe(dtype, (), (value, lengths), build, (right,), types=(dtype, D.int64), names=(REVERSED_EMPTY,))


def _end(dtype: DType, op: str) -> float:
    if dtype is D.bool:
        return op == "ReduceMin"
    if dtype.is_float:
        return -INF if op == "ReduceMax" else INF
    return int(dtype.min if op == "ReduceMax" else dtype.max)


def _refused() -> Iterator[Probe]:
    for op in ("ReduceMax", "ReduceMin"):
        for dtype in (*REDUCED, D.int64, *WIDE):
            want = np.full(2, _end(dtype, op), object)
            has_older = dtype in REDUCED and (op, dtype) != ("ReduceMax", D.uint8)  # of which 0 is the least
            older = (f"{op} {dtype} without elements",) if has_older else ()
            build = _typed(op, dtype, (2,), 1)
            yield Probe(dtype, (op,), (np.zeros((2, 0)),), build, (want,), is_known=True, beside=older)
            if dtype in (D.int64, *WIDE):  # what stands in for the kernels where only the run knows
                yield Probe(dtype, (op,), (np.zeros((2, 0)),), reduction(op), (want,))


def _typed(op: str, dtype: DType, shape: tuple[int, ...], axis: int, keepdims: int = 0) -> Any:
    def build(graph: Graph, x: Symbol) -> Any:
        results = [x, graph.constant(np.array([axis]))]
        return graph.op(op, results, {"keepdims": keepdims}, [TensorType(dtype, shape)])

    return build


def _extremes() -> Iterator[Probe]:
    for op in ("ReduceMax", "ReduceMin"):
        for dtype in REDUCED:
            if (op, dtype) == ("ReduceMax", D.uint8):  # of which 0 is the least
                continue
            names = (f"{op} {dtype} without elements",)
            for shape in EMPTY:
                for axis in range(len(shape)):
                    for keepdims in (0, 1):
                        results = [n for a, n in enumerate(shape) if a != axis]
                        results = [*results[:axis], 1, *results[axis:]] if keepdims else results
                        want = np.full(results, _end(dtype, op), object)
                        build = reduction(op, axis, keepdims=keepdims)
                        yield Probe(dtype, (), (np.zeros(shape),), build, (want,), names=names)
            nothing = np.zeros((0, 2))
            yield Probe(dtype, (), (nothing,), reduction(op, 0, 1), (_end(dtype, op),), names=names)


def _sorted() -> Iterator[Probe]:
    for dtype in SORTED:
        names = (f"TopK {dtype} without elements",)
        beside = _HIDING.get(dtype, ())
        for shape in ((0, 3), (2, 0, 3), (0, 2, 3), (0, 0)):
            axis = len(shape) - 1
            for k in {0, min(1, shape[axis]), min(2, shape[axis])}:
                nothing = np.zeros([k if a == axis else n for a, n in enumerate(shape)])
                yield Probe(
                    dtype,
                    (),
                    (np.zeros(shape),),
                    top_k(k, axis),
                    (nothing, nothing),
                    gives=(dtype, D.int64),
                    names=names,
                    beside=beside,
                    dies=True,
                )
        yield Probe(
            dtype, (), (np.zeros((3, 0)),), top_k(2, 0), (np.zeros((2, 0)),) * 2, gives=(dtype, D.int64), names=names,
            beside=beside, dies=True,
        )  # fmt: skip


_HIDING = {
    D.uint64: ("TopK int64 without elements",),
    D.float32: ("TopK float32", "TopK int32 without elements"),
    D.float64: ("TopK float64", "TopK int64 without elements"),
}
"""Traps whose decompositions sort in another dtype, or do what is done there."""

AXES = ((-1,), (-2,), (-3,), (-1, -2), (0, -1), (-1, 0), (-1, -2, -3))

KINDS = {
    "ReduceSum": 0.0, "ReduceProd": 1.0, "ReduceSumSquare": 0.0, "ReduceL1": 0.0, "ReduceL2": 0.0,
    "ReduceLogSum": -INF,
}  # fmt: skip


def _unsqueezed() -> str:
    """Return a description of what is wrong with a Squeeze along no axes: every axis stays."""
    graph = Graph("probe", {"x": TensorType(D.float32, [1, 2, 1])})
    axes = graph.constant(np.zeros(0, np.int64))
    graph.output(*graph.op("Squeeze", [graph["x"], axes], None, [graph["x"].type]))
    result = bare(graph).run(None, {"x": np.zeros((1, 2, 1), np.float32)})[0]
    return "" if result.shape == (1, 2, 1) else f"its shape is {list(result.shape)}"


_ONE = REVERSED_ONE_AXIS


def _one_axis() -> str:
    """Return a description of what is wrong with a ReverseSequence of an operand that turns out to have one axis: it is
    an error."""
    graph = Graph("probe", {"x": TensorType(D.float32, Shape.unknown()), "lengths": TensorType(D.int64, ["n"])})
    results = [graph["x"], graph["lengths"]]
    graph.output(*graph.op("ReverseSequence", results, None, [TensorType(D.float32, Shape.unknown())]))
    session = bare(graph)
    try:
        session.run(None, {"x": np.zeros(0, np.float32), "lengths": np.array([2, 3])})
    except Exception as error:
        return "" if "Gather" in str(error) else str(error)
    return "it is computed"


def _axes() -> Iterator[Probe]:
    names = ("empty reduction along an axis below 0",)
    for op, value in KINDS.items():
        for shape, axes in itertools.product(((3, 0), (0, 4), (2, 0, 3), (2, 3, 0), (0, 3, 4)), AXES):
            if -min(axes) > len(shape) or len({a % len(shape) for a in axes}) < len(axes):
                continue
            for keepdims, dtype in itertools.product((0, 1), WIDE):
                array = np.zeros(shape)
                keeps: Any = bool(keepdims)  # the overloads of NumPy 2.5 take a literal, not bool
                remaining = np.sum(array, axes, keepdims=keeps).shape
                is_reduced = 0 in (shape[a] for a in axes)
                want = np.full(remaining, value) if is_reduced else np.zeros(remaining)
                build = reduction(op, *axes, keepdims=keepdims)
                yield Probe(dtype, (), (array,), build, (want,), names=names)
                yield Probe(dtype, (), (array,), build, (want,), names=names, is_known=True)


def _recurrent() -> Iterator[Probe | Check]:
    for op, gates in (("GRU", 3), ("LSTM", 4)):
        yield _network(op, gates, f"{op} without sequences", (2, 0, 3), (2, 1, 0, 4))
        yield _network(op, gates, f"{op} without steps", (0, 2, 3), (0, 1, 2, 4))
    yield _featureless("GRU", 3)
    yield Check(("LSTM without features",), _unwritten)


def _recurrent_steps() -> Iterator[Probe]:
    yield _network("RNN", 1, "RNN without steps", (0, 2, 3), (0, 1, 2, 4))


def _network(op: str, gates: int, name: str, shape: tuple[int, ...], result: tuple[int, ...]) -> Probe:
    first = np.arange(shape[1] * 4.0).reshape(1, shape[1], 4)

    def build(graph: Graph, x: Symbol, state: Symbol) -> Any:
        w, r = (graph.constant(np.ones((1, 4 * gates, n), np.float32)) for n in (3, 4))
        results: list[Symbol | None] = [x, w, r, None, None, state]
        types = [TensorType(D.float32, ["s", 1, "b", 4]), TensorType(D.float32, [1, "b", 4])]
        types += types[1:] if op == "LSTM" else []
        return graph.op(op, results, {"hidden_size": 4}, types)[:2]

    results, want = (np.zeros(shape), first), (np.zeros(result), first)
    return Probe(D.float32, (op,), results, build, want, names=(name,), dies=True)


def _featureless(op: str, gates: int) -> Probe:
    def build(graph: Graph, x: Symbol, w: Symbol) -> Any:
        r = graph.constant(np.ones((1, 4 * gates, 4), np.float32))
        types = [TensorType(D.float32, ["s", 1, "b", 4]), TensorType(D.float32, [1, "b", 4])]
        return graph.op(op, [x, w, r], {"hidden_size": 4}, [*types, types[1]] if op == "LSTM" else types)[:1]

    value, want = (np.zeros((2, 3, 0)), np.zeros((1, 4 * gates, 0))), np.zeros((2, 1, 3, 4))
    return Probe(D.float32, (op,), value, build, (want,), names=(f"{op} without features",), dies=op == "GRU")


_ATTEMPTS = 60


def _unwritten() -> str:
    """Return a description of what is wrong with an LSTM without features, which adds to memory that nothing was
    written to.
    A session that is gone leaves numbers where the next one may compute.
    """
    probe = _featureless("LSTM", 4)
    graph = probe.graph()
    names = [s.name for s in graph.inputs]
    with_features = [np.full((2, 3, 8), 0.5, np.float32), np.full((1, 16, 8), 0.5, np.float32)]
    for _ in range(_ATTEMPTS):
        session = bare(graph)
        session.run(None, dict(zip(names, with_features, strict=True)))
        del session
        result = bare(graph).run(None, dict(zip(names, probe.operands(), strict=True)))
        if not probe.is_right(result):
            return f"gives {result[0].ravel()[:3]}"
    return ""


_PATIENCE = 8.0
"""Seconds for an onnxruntime to start and run one small node."""
_RUN = """
import sys, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
try:
    session.run(None, {"x": numpy.ones((1, 2, 5), "f"), "w": numpy.ones((2, 2, 0), "f")})
except Exception as error:
    print(error)
"""


def _kernelless() -> str:
    """Return a description of what is wrong with a Conv of filters without elements, in a process that can be
    stopped."""
    types = {"x": TensorType(D.float32, [1, 2, 5]), "w": TensorType(D.float32, [2, 2, "k"])}
    graph = Graph("probe", types)
    graph.output(*graph.op("Conv", list(graph.inputs), None, [TensorType(D.float32, [1, 2, "left"])]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe.onnx"
        path.write_bytes(written(graph))
        try:
            done = subprocess.run(
                [sys.executable, "-c", _RUN, str(path)], capture_output=True, text=True, timeout=_PATIENCE
            )
        except subprocess.TimeoutExpired:
            return "it never ends"
    return "" if "Reshape" in done.stdout else f"ends with {done.returncode}: {done.stdout[:100]}"


def _attention() -> Iterator[Probe]:
    """Of primitives, which a session brings into the form of the kernel."""
    names = ("Attention without elements",)
    for queries, keys in ((0, 4), (3, 0), (0, 0)):
        q, k, nothing = np.ones((2, 2, queries, 8)), np.ones((2, 2, keys, 8)), np.zeros((2, 2, queries, 8))
        dims = tuple(("batch", 2, length, 8) for length in ("queries", "keys", "keys"))
        yield Probe(
            D.float32, (), (q, k, k), attend, (nothing,), names=names, in_session=True, needs="Attention", dims=dims
        )


def _products() -> Iterator[Probe]:
    """Of factors without terms, after some that leave numbers in the memory."""
    names, byte, real = (empty_kernels.TERMS.name,), D.uint8, D.float32
    for op, left, right, shape in (("MatMul", (8, 0), (0, 9), (8, 9)), ("Conv", (2, 0, 8), (9, 0, 1), (2, 9, 8))):
        factors, result = (np.zeros(left), np.zeros(right)), np.zeros(shape)
        one: dict[str, Any] = {"kernel_shape": [1]} if op == "Conv" else {}
        before = tuple([np.full([n or 5 for n in dims], 77) for dims in (left, right)])
        yield Probe(
            byte, (), factors, operator(f"{op}Integer", **one), (result,), gives=(D.int32,), names=names, before=before
        )
        numbers = (factors[0], 0.5, 3, factors[1], 0.25, 4, 0.125, 7)
        older = (before[0], *numbers[1:3], before[1], *numbers[4:])
        types = (byte, real, byte, byte, real, byte, real, byte)
        build = operator(f"QLinear{op}", **one)
        yield Probe(byte, (), numbers, build, (result + 7,), types=types, names=names, before=older)


def _unlimited() -> str:
    """Return a description of what is wrong with a NonMaxSuppression whose limit turns out to have no elements: it is
    an error."""
    types = {"boxes": TensorType(D.float32, [1, 3, 4]), "scores": TensorType(D.float32, [1, 2, 3])}
    graph = Graph("probe", {**types, "most": TensorType(D.int64, ["n"])})
    graph.output(*graph.op("NonMaxSuppression", list(graph.inputs)))
    boxes, scores = np.ones((1, 3, 4), np.float32), np.ones((1, 2, 3), np.float32)
    session = bare(graph)
    try:
        session.run(None, {"boxes": boxes, "scores": scores, "most": np.zeros(0, np.int64)})
    except Exception as error:
        return "" if "Reshape" in str(error) else str(error)
    return "it is computed"


def _pools() -> Iterator[Probe]:
    """Of images without channels, known or not when the graph is lowered, and of planes without elements."""
    names, image = (empty_kernels.POOLS.name,), np.zeros((2, 0, 4, 4))
    for op in ("AveragePool", "LpPool", "MaxPool", "GlobalAveragePool", "GlobalMaxPool"):
        is_whole = op.startswith("Global")
        build = operator(op) if is_whole else operator(op, kernel_shape=[2, 2])
        want = np.zeros((2, 0, 1, 1) if is_whole else (2, 0, 3, 3))
        for dtype, is_known in itertools.product(WIDE, (False, True)):
            yield Probe(dtype, (), (image,), build, (want,), names=names, is_known=is_known)
        if is_whole:
            least = np.full((2, 3, 1, 1), -INF if op == "GlobalMaxPool" else 0.0)
            yield Probe(D.float32, (), (np.zeros((2, 3, 0, 4)),), build, (least,), names=names, is_known=True)


def _images() -> Iterator[Probe]:
    """Images that a node gives: of those that are fed the kernel gives no elements."""
    names = (empty_kernels.IMAGES.name,)

    def build(graph: Graph, x: Symbol) -> Any:
        (computed,), two = graph.op("Neg", [x], {}, [x.type]), np.ones(2, x.dtype.numpy)
        return graph.op("InstanceNormalization", [computed, two, two], {}, [x.type])

    for dtype, shape in itertools.product((D.float16, D.float32), ((1, 2, 0), (3, 2, 0, 4))):
        yield Probe(dtype, (), (np.zeros(shape),), build, (np.zeros(shape),), names=names, dies=True)


def _scans() -> Iterator[Probe]:
    """Rows, columns or both of what is empty, taken along an axis and put together along an axis."""
    names = ("Scan along other axes without elements",)
    for shape, axis, end in (((0, 3), 1, 1), ((3, 0), 0, 1), ((2, 0, 3), 0, 1), ((2, 3, 0), 2, 0), ((2, 0, 3), 2, -2)):
        if not shape[axis]:
            continue  # which onnxruntime refuses in words

        def build(graph: Graph, x: Symbol, axis: int = axis, end: int = end) -> Any:
            dims = list(x.shape)
            length = dims.pop(axis)
            body = Graph("body", {"row": TensorType(x.dtype, dims)})
            body.output(-body["row"])
            dims.insert(end % (len(dims) + 1), length)
            attributes = {"body": body, "num_scan_inputs": 1, "scan_input_axes": [axis], "scan_output_axes": [end]}
            return graph.op("Scan", [x], attributes, [TensorType(x.dtype, dims)])

        want = np.moveaxis(np.zeros(shape), axis, end)
        yield Probe(D.float32, (), (np.zeros(shape),), build, (want,), names=names, dies=True)


def _unturned() -> str:
    """Return a description of what is wrong with a Loop whose number of turns has no elements: it is refused in
    words."""
    graph = Graph("loop", {"n": TensorType(D.int64, ["k"]), "x": TensorType(D.float32, [2])})

    def body(number: Symbol, going: Symbol, x: Symbol) -> Any:
        return going, -x

    turns = ops.concat([graph["n"], graph["n"]], axis=0)
    graph.output(ops.onnx.Loop(turns, graph.constant(np.array(True)), [graph["x"]], body=body))
    session = bare(graph)
    try:
        session.run(None, {"n": np.zeros(0, np.int64), "x": np.ones(2, np.float32)})
    except Exception:  # its errors have no common class
        return ""
    return "gives results"


def _vectorizers() -> Iterator[Probe]:
    names = ("FeatureVectorizer without rows",)

    def build(graph: Graph, x: Symbol) -> Any:
        counts = {"inputdimensions": [2, 3]}
        return graph.op("FeatureVectorizer", [x, x], counts, [TensorType(D.float32, ["?", 5])], domain="ai.onnx.ml")

    yield Probe(D.float32, (), (np.zeros((0, 3)),), build, (np.zeros((0, 5)),), names=names, dies=True)


def attend(graph: Graph, q: Symbol, k: Symbol, v: Symbol) -> Symbol:
    """Attention by primitives."""
    return ops.matmul(ops.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * 8**-0.5, axis=-1), v)
