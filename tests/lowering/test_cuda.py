"""The CUDA target, without a GPU: the placement of its operators, and their results where the CPU can run them.

`runnable` is the target less the kernels that the CPU has none of, so that what it lowers to can be run. Its `Where`
loses the sign of zero, which the CUDA provider's does not, so zeros are compared without.
"""

from __future__ import annotations

import operator
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi import onnxruntime_pybind11_state as state

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.arrays.casting import cast_array, round_tf32
from graphcore.build.declare import REGISTRY
from graphcore.errors import GraphError
from graphcore.ir.symbol import Node
from graphcore.onnx.proto.model_proto import encode, join
from graphcore.runtime.inspection.placement import planned, recorded
from graphcore.runtime.lowering import lower
from graphcore.runtime.lowering.targets import TARGETS
from graphcore.runtime.lowering.targets.legality import Legality, kernels, legality
from graphcore.runtime.lowering.targets.releases import Runtime, table_of
from graphcore.runtime.ort import release
from graphcore.runtime.ort.release import KernelRegistry
from graphcore.runtime.sessions import loading
from tests.ops.test_sweep import assert_near, assert_same
from tests.support import reference
from tests.support.every.case import ALL
from tests.support.every_op import CASES, graph_of
from tests.support.pretended import kernel
from tools.kernel_probe.tables import registered_facts

Array = np.ndarray[Any, Any]
D = DType
SIGNED = [D.int8, D.int16, D.int32, D.int64]
UNSIGNED = [D.uint8, D.uint16, D.uint32, D.uint64]
HALVES = [D.float16, D.bfloat16]
FAMILIES = sorted({op.family for op in REGISTRY.values()})

LEFT = {
    "fft": {"DFT"}, "ifft": {"DFT"}, "rfft": {"DFT"}, "irfft": {"DFT"},
    "fftn": {"DFT"}, "ifftn": {"DFT"}, "rfftn": {"DFT"}, "irfftn": {"DFT"}, "fma": {"BitCast"},
    "dequantize": {"BitCast"}, "stft": {"STFT"}, "unique": {"BitCast"},
    "list_split": {"SplitToSequence"}, "list_unstack": {"SplitToSequence"},
    "copysign": {"BitCast"}, "frexp": {"BitCast"}, "ieee_remainder": {"BitCast"}, "ldexp": {"BitCast"},
    "logb": {"BitCast"}, "nextafter": {"BitCast"}, "round_half_away": {"BitCast"}, "signbit": {"BitCast"},
    "string_of": {"Cast", "RegexFullMatch", "Where"}, "bitcast": {"BitCast"}, "bit_concat": {"Cast"},
}  # fmt: skip
"""Ops of which something is left to the CPU, and what: there are no kernels of DFT, STFT and BitCast, none
that cut tensors into lists, none of strings, and no casts to 2 bits."""


class _OnCPU(gc.InferenceSession):
    """Lowers for CUDA and runs on the CPU."""

    @property
    def target(self) -> Any:
        return "cuda"


@pytest.fixture
def runnable(monkeypatch: pytest.MonkeyPatch) -> _OnCPU:
    cpu, cuda = legality("cpu"), legality("cuda")
    right = {op: (cuda.dtypes(op) or frozenset(), cpu.dtypes(op)) for op in cuda.table}
    table = {op: own if host is None else own & host for op, (own, host) in right.items()}
    rules = Legality(TARGETS["cuda"], table, host=cpu)
    monkeypatch.setattr("graphcore.runtime.lowering.pipeline.legality", lambda target, runtime: rules)
    return _OnCPU()


def lowered(function: Callable[..., Any], *dtypes: DType, dims: list[int | str] | None = None) -> Graph:
    graph = Graph("one", {f"x{i}": TensorType(d, dims or ["n"]) for i, d in enumerate(dtypes)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = function(*graph.inputs)
    graph.output(*(result if isinstance(result, (tuple, list)) else (result,)))
    return lower(graph, "cuda")


def operators(graph: Graph) -> Counter[str]:
    return Counter(node.op_type for node in graph.nodes)


# Where operators run


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_op_runs_on_the_device_when_of_any_dtype(dtype: DType) -> None:
    results: dict[str, set[str]] = {}
    for name, case in CASES.items():
        if dtype in case.refused:
            continue
        graph = lower(graph_of([name], dtype)[0], "cuda")
        names = {o.operator for o in planned(graph, "cuda").left}
        if names:
            results[name] = names
        for node in graph.nodes:
            if node.op_type == "Cast" and isinstance(node.inputs[0], gc.Symbol):
                before = node.inputs[0].producer
                merged = isinstance(before, Node) and before.op_type == "Cast"
                assert not merged or node.inputs[0].dtype in (D.bool, D.uint2, D.float8_e4m3fn, D.float8_e5m2), name
    assert {name: names for name, names in results.items() if not names <= LEFT.get(name, set())} == {}


def test_table_of_what_is_left_names_ops_of_the_library() -> None:
    assert {name for name in LEFT if name in CASES} >= {"fft", "ifft", "rfft", "irfft"}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_narrow_arithmetic_is_native_on_the_device(dtype: DType) -> None:
    graph = lowered(lambda x, y: ops.sqrt((x + y) * x - y / x), dtype, dtype)
    assert operators(graph) == {"Add": 1, "Mul": 1, "Div": 1, "Sub": 1, "Sqrt": 1}
    matrix = lowered(lambda x: x @ x.T, dtype, dims=["n", 4])
    assert operators(matrix) == {"Transpose": 1, "MatMul": 1}


def test_narrow_activations_round_once() -> None:
    for function in (ops.gelu, ops.sigmoid, ops.softplus, ops.tan):
        graph = lowered(function, D.float16)
        assert operators(graph)["Cast"] >= 2
        assert all(n.op_type in ("Cast", "Reshape") for n in graph.nodes if n.inputs[0].dtype is D.float16)  # type: ignore[union-attr]


def test_what_stays_as_it_is_for_float32() -> None:
    graph = lowered(lambda x, y: ops.where(x > y, ops.exp(x) + y, ops.tanh(y)), D.float32, D.float32)
    assert operators(graph) == {"Greater": 1, "Where": 1, "Exp": 1, "Add": 1, "Tanh": 1}


def test_no_bits_are_viewed_when_integers_change_sign() -> None:
    graph = lowered(lambda x: [ops.max(x), ops.cumsum(x), ops.argmax(x), x >> 3], D.uint64)
    assert "BitCast" not in operators(graph)
    assert "BitShift" not in operators(graph)


def test_bits_of_floats_are_left_to_the_cpu_with_the_reason() -> None:
    graph = Graph("bits", {"x": TensorType(D.float32, ["n"])})
    (result,) = graph.op("BitCast", [graph["x"]], {"to": D.int32.onnx}, [TensorType(D.int32, ["n"])])
    graph.output(result)
    (remaining,) = planned(lower(graph, "cuda"), "cuda").left
    assert (remaining.operator, remaining.provider, remaining.reason) == (
        "BitCast",
        "CPUExecutionProvider",
        "no kernel",
    )


@pytest.mark.parametrize("dtype", [D.float16, D.float32, D.float64], ids=str)
def test_bits_that_a_long_axis_is_sorted_by_are_left_to_the_cpu(dtype: DType) -> None:
    short = planned(lowered(lambda x: ops.sort(x), dtype, dims=[512]), "cuda")
    assert not short.left
    long = planned(lowered(lambda x: ops.sort(x), dtype, dims=["n"]), "cuda")
    assert {o.operator for o in long.left} == {"BitCast"}


# Values, where the CPU can run them


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_op_gives_what_is_promised_when_lowered_for_the_device(runnable: _OnCPU, family: str, dtype: DType) -> None:
    names = [name for name, op in REGISTRY.items() if op.family == family and dtype not in CASES[name].refused]
    if not names:
        return
    graph, output, arrays = graph_of(names, dtype)
    results = list(runnable.load(graph)(*arrays))
    for name in names:
        symbols, case = output[name], CASES[name]
        got, results = results[: len(symbols)], results[len(symbols) :]
        own = case.arrays(dtype)
        if dtype is D.tf32:  # of what is fed, too, the sign of zero is lost
            own = [a + np.float32(0) if a.dtype == np.float32 else a for a in own]
        for symbol, result, want in zip(symbols, got, case.wanted(dtype, own), strict=True):
            if case.near and symbol.dtype.is_float:
                assert_near(name, result, want, symbol.dtype, 4 if symbol.dtype is D.float32 else 1)
            else:
                assert_same("max", result, want, *own)


@pytest.mark.parametrize("source", ALL, ids=str)
def test_cast_equals_reference_when_lowered_for_the_device(runnable: _OnCPU, source: DType) -> None:
    x = reference.samples(source, 400, 5)
    graph = Graph("casts", {"x": TensorType(source, ["n"])})
    graph.output(**{f"out{i}": ops.cast(graph["x"], target) for i, target in enumerate(ALL)})
    for target, got in zip(ALL, runnable.load(graph)(x), strict=True):
        assert_same("max", got, reference.cast(x, source, target), x)


@pytest.mark.parametrize("dtype", [D.int8, D.uint8], ids=str)
def test_bitwise_equals_numpy_for_all_pairs_of_bytes(runnable: _OnCPU, dtype: DType) -> None:
    every = np.arange(256).astype(dtype.numpy)
    x, y = np.repeat(every, 256), np.tile(every, 256)
    check_bitwise(runnable, x, y, dtype)
    check_shifts(runnable, x, y, dtype)


@pytest.mark.parametrize("dtype", [d for d in (*SIGNED, *UNSIGNED) if d.bits > 8], ids=str)
def test_bitwise_equals_numpy_for_wide_integers(runnable: _OnCPU, dtype: DType) -> None:
    edges = [0, 1, 2, 255, 256, int(dtype.max), int(dtype.max) - 1, int(dtype.min), int(dtype.min) + 1]
    edges += [1 << i for i in range(dtype.bits - 1)]
    edges += [-1, -2, -256] if dtype.is_signed else []
    ends = np.array(edges, dtype.numpy)
    raw = np.random.default_rng(3).integers(0, 1 << 64, 5000, np.uint64, endpoint=False)
    x = np.concatenate([np.repeat(ends, len(ends)), raw.astype(dtype.numpy)])
    y = np.concatenate([np.tile(ends, len(ends)), raw[::-1].astype(dtype.numpy)])
    check_bitwise(runnable, x, y, dtype)
    check_shifts(runnable, x, y, dtype)
    counts = np.arange(-3 if dtype.is_signed else 0, 70)
    check_shifts(runnable, x, np.resize(counts, len(x)).astype(dtype.numpy), dtype)


def check_bitwise(session: _OnCPU, x: Array, y: Array, dtype: DType) -> None:
    graph = Graph("bits", {"x": TensorType(dtype, ["n"]), "y": TensorType(dtype, ["n"])})
    a, b = graph.inputs
    masks = [0, 1, 15, 127, int(dtype.max), int(dtype.min), int(dtype.max) - 7, 85]
    graph.output(a & b, a | b, a ^ b, ~a, *(a & m for m in masks), *(a ^ m for m in masks))
    changed = lower(graph, "cuda")
    assert not any(op.startswith("Bit") for op in operators(changed))
    got = session.load(graph)(x, y)
    numbers = [np.array(m, dtype.numpy) for m in masks]
    want = [x & y, x | y, x ^ y, ~x, *(x & m for m in numbers), *(x ^ m for m in numbers)]
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)


def check_shifts(session: _OnCPU, x: Array, count: Array, dtype: DType) -> None:
    graph = Graph("shifts", {"x": TensorType(dtype, ["n"]), "y": TensorType(dtype, ["n"])})
    a, b = graph.inputs
    graph.output(a << b, a >> b, a << 3, a >> 3)
    left, right, by_three, from_three = session.load(graph)(x, count)
    np.testing.assert_array_equal(left, reference.shift("<<", x, count, dtype))
    np.testing.assert_array_equal(right, reference.shift(">>", x, count, dtype))
    np.testing.assert_array_equal(by_three, x << np.array(3, dtype.numpy))
    np.testing.assert_array_equal(from_three, x >> np.array(3, dtype.numpy))


@pytest.mark.parametrize("dtype", [D.int32, D.int64, D.uint32, D.uint64], ids=str)
def test_sums_and_products_wrap_when_computed_in_float64(runnable: _OnCPU, dtype: DType) -> None:
    random = np.random.default_rng(7)
    x = random.integers(0, 1 << 64, (40, 300), np.uint64, endpoint=False).astype(dtype.numpy)
    x[:3] = np.array([[dtype.max], [dtype.min], [dtype.max]], dtype.numpy)
    for dims in (["n", "m"], [40, 300]):
        graph = Graph("sums", {"x": TensorType(dtype, dims)})
        a = graph["x"]
        graph.output(
            ops.sum(a, axis=1), ops.sum(a), a @ a.T, ops.max(a, axis=1), ops.argmin(a, axis=0), ops.prod(a, axis=1)
        )  # fmt: skip
        total, everything, product, greatest, least, folded = runnable.load(graph)(x)
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(total, x.sum(axis=1, dtype=x.dtype))
            np.testing.assert_array_equal(everything, x.sum(dtype=x.dtype))
            np.testing.assert_array_equal(product, x @ x.T)
            np.testing.assert_array_equal(folded, x.prod(axis=1, dtype=x.dtype))
        np.testing.assert_array_equal(greatest, x.max(axis=1))
        np.testing.assert_array_equal(least, x.argmin(axis=0))


@pytest.mark.parametrize("dtype", [d for d in ALL if d is not D.bool], ids=str)
def test_sorting_keeps_the_order_of_equal_numbers_when_an_axis_is_long(runnable: _OnCPU, dtype: DType) -> None:
    x = np.resize(reference.samples(dtype, 90, 4), (2, 700))
    keys = reference.exact(x) if dtype.is_float else x  # NumPy, too, puts NaN last
    graph = Graph("sorts", {"x": TensorType(dtype, [2, "n"]), "s": TensorType(dtype, [2, 90])})
    graph.output(ops.argsort(graph["x"]), ops.argsort(graph["s"]), ops.top_k(graph["x"], 9)[1])
    long, short, first = runnable.load(graph)(x, x[:, :90])
    np.testing.assert_array_equal(long, np.argsort(keys + 0, axis=1, kind="stable"))
    np.testing.assert_array_equal(short, np.argsort(keys[:, :90] + 0, axis=1, kind="stable"))
    backwards = np.argsort(keys[:, ::-1] + 0, axis=1, kind="stable")[:, ::-1]
    np.testing.assert_array_equal(first, (x.shape[1] - 1 - backwards)[:, :9])


def patterns() -> Array:
    """float32 of all signs and exponents, whose mantissas lie at, and on both sides of, what rounds and ties."""
    heads = np.concatenate([np.arange(8), np.array([511, 512, 513, 1021, 1022, 1023])]).astype(np.uint32) << 13
    tails = np.array([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF], np.uint32)
    exponents = np.arange(512, dtype=np.uint32) << 23
    return (exponents[:, None, None] | heads[:, None] | tails).reshape(-1).view(np.float32)


def test_tf32_rounds_all_patterns_without_their_bits(runnable: _OnCPU) -> None:
    x = np.concatenate([patterns(), np.random.default_rng(1).integers(0, 1 << 32, 500_000, np.uint32).view(np.float32)])
    graph = Graph("tf32", {"x": TensorType(D.float32, ["n"])})
    graph.output(graph["x"].cast(D.tf32))
    (got,) = runnable.load(graph)(x)
    np.testing.assert_array_equal(got, round_tf32(x))


@pytest.mark.parametrize("target", [D.tf32, *HALVES, D.float8_e4m3fn, D.float8_e5m2], ids=str)
def test_float64_rounds_once_without_its_bits(runnable: _OnCPU, target: DType) -> None:
    bits = {D.tf32: 10, D.float16: 10, D.bfloat16: 7, D.float8_e4m3fn: 3, D.float8_e5m2: 2}[target]
    heads = (1 + np.arange(2 << bits) / (2 << bits))[:: max(1, (2 << bits) // 64)]
    ties = np.concatenate([heads, 1 + (2 * np.arange(1 << bits)[:: max(1, (1 << bits) // 64)] + 1) / (2 << bits)])
    scaled = np.ldexp(ties, np.arange(-160, 135)[:, None]).reshape(-1)
    near = np.concatenate([scaled, np.nextafter(scaled, 0), np.nextafter(scaled, np.inf)])
    rest = [0.0, np.inf, np.nan, 1e300, 5e-324, 65519.999999, 65520.0, 464.0, 464.0000001, 61439.9999999, 61440.0]
    x = np.concatenate([near, -near, rest])
    graph = Graph("once", {"x": TensorType(D.float64, ["n"])})
    graph.output(graph["x"].cast(target))
    (got,) = runnable.load(graph)(x)
    assert_same("max", got, cast_array(x, D.float64, target), x)


def test_sign_of_zero_is_kept_when_rounding_without_bits() -> None:
    x = np.array([0.0, -0.0, 1e-40, -1e-40, 1e-45, -1e-45, 1.0, -1.0], np.float32)
    for source, target in ((D.float32, D.tf32), (D.float64, D.float16), (D.float64, D.tf32)):
        graph = Graph("zeros", {"x": TensorType(source, ["n"])})
        graph.output(y=graph["x"].cast(target))
        model = graph.to_onnx(target="cuda")
        (got,) = ReferenceEvaluator(model).run(None, {"x": x.astype(source.numpy)})
        want = cast_array(x.astype(source.numpy), source, target)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.parametrize("dtype", [D.int4, D.uint4], ids=str)
def test_nibbles_are_cast_by_quantisation(runnable: _OnCPU, dtype: DType) -> None:
    graph = Graph("nibbles", {"x": TensorType(D.int64, ["n"])})
    small = graph["x"].cast(dtype)
    graph.output(small, small.cast(D.int32))
    assert not planned(lower(graph, "cuda"), "cuda").left
    x = np.array([*range(-40, 40), 1 << 40, -(1 << 63), (1 << 63) - 1])
    got, wide = runnable.load(graph)(x)
    want = cast_array(x, D.int64, dtype)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(wide, want.astype(np.int32))


# Sessions


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, dict[str, str]]]:
    """As if the CUDA provider were installed: the options that each session is started with. The CPU runs it."""
    results: list[dict[str, dict[str, str]]] = []
    real = onnxruntime.InferenceSession

    def start(model: Any, options: Any, *, providers: list[str], provider_options: list[Any], **rest: Any) -> Any:
        results.append(dict(zip(providers, provider_options, strict=True)))
        return real(model, options, providers=["CPUExecutionProvider"], **rest)

    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: both)
    monkeypatch.setattr(onnxruntime, "InferenceSession", start)
    monkeypatch.setattr(loading, "require_started", lambda *_: None)
    return results


def product(*dtypes: DType) -> Graph:
    graph = Graph("products", {f"x{i}": TensorType(d, [3, 3]) for i, d in enumerate(dtypes)})
    graph.output(*(x @ x for x in graph.inputs))
    return graph


@pytest.mark.parametrize(
    ("dtypes", "use_tf32"),
    [
        ([D.float32], "0"), ([D.tf32], "1"), ([D.tf32, D.tf32], "1"), ([D.tf32, D.float32], "0"),
        ([D.tf32, D.int32], "1"), ([D.tf32, D.float64], "1"), ([D.tf32, D.float8_e5m2], "0"),
    ],
)  # fmt: skip
def test_tensor_cores_multiply_float32_when_all_of_it_is_rounded(
    started: list[dict[str, dict[str, str]]], dtypes: list[DType], use_tf32: str
) -> None:
    gc.InferenceSession("cuda").load(product(*dtypes))
    assert started == [{"CUDAExecutionProvider": {"use_tf32": use_tf32}}]


def test_tensor_cores_round_nothing_else_when_an_op_multiplies_in_float32(
    started: list[dict[str, dict[str, str]]],
) -> None:
    graph = Graph("mixed", {"x": TensorType(D.tf32, [3, 3]), "h": TensorType(D.bfloat16, [1, 4, 4, 2])})
    filters = np.ones((2, 2, 1, 2), np.float32)
    out = ops.conv2d_transpose(graph["h"], graph.constant(filters, D.float32).cast(D.bfloat16))
    graph.output(graph["x"] @ graph["x"], out)
    gc.InferenceSession("cuda").load(graph)
    assert started[0]["CUDAExecutionProvider"]["use_tf32"] == "0"


def test_provider_options_are_handed_on(started: list[dict[str, dict[str, str]]]) -> None:
    options = {"cuda": {"enable_cuda_graph": True, "device_id": 1, "use_tf32": 1}}
    gc.InferenceSession(["cuda", "cpu"], provider_options=options).load(product(D.float32))
    assert started == [
        {
            "CUDAExecutionProvider": {"use_tf32": "1", "enable_cuda_graph": "1", "device_id": "1"},
            "CPUExecutionProvider": {},
        }
    ]


def test_provider_options_are_refused_when_for_no_provider() -> None:
    with pytest.raises(GraphError, match="'cuda' is not among the providers"):
        gc.InferenceSession(provider_options={"cuda": {"device_id": 0}})
    with pytest.raises(GraphError, match="provider_options for 'cpu' must be a mapping, got 1"):
        gc.InferenceSession(provider_options={"cpu": 1})  # type: ignore[dict-item]


def test_placement_tells_what_the_session_recorded() -> None:
    graph = Graph("placed", {"x": TensorType(D.float32, ["n"])})
    with graph.layer("block"):
        result = ops.exp(graph["x"]) + 1
    graph.output(y=result)
    placement = gc.InferenceSession().load(graph).placement()
    assert Counter(o.operator for o in placement.operators) == {"Exp": 1, "Add": 1}
    assert {o.provider for o in placement.operators} == {"CPUExecutionProvider"}
    assert not placement.left
    assert str(placement) == "2 on CPUExecutionProvider"


def test_placement_shows_what_is_left_to_the_cpu_and_why() -> None:
    placement = planned(lowered(lambda x: ops.rfft(x.cast(D.float32)) + 1, D.int8, dims=[8]), "cuda")
    assert {o.operator for o in placement.left} == {"DFT"}
    assert str(placement).splitlines()[-1].split() == ["1", "DFT", "CPUExecutionProvider:", "no", "kernel"]


# The table


def test_table_is_made_of_the_kernels_of_a_registry() -> None:
    every = (1, (1 << 31) - 1)
    listed = [
        kernel("Abs", ["tensor(float)", "tensor(complex64)"], (6, 12), provider="CUDAExecutionProvider"),
        kernel("Abs", ["tensor(float)", "tensor(bfloat16)"], (13, every[1]), provider="CUDAExecutionProvider"),
        kernel("Abs", ["tensor(int8)"], (13, every[1])),
        kernel("SequenceAt", ["seq(tensor(float16))"], (11, every[1]), provider="CUDAExecutionProvider"),
        kernel("Size", [], (13, every[1]), provider="CUDAExecutionProvider", type_constraints={}),
    ]
    listed[3].type_constraints = {"S": ["seq(tensor(float16))"]}
    schemas = [s for s in state.get_all_operator_schema() if s.name in ("Abs", "SequenceAt", "Size", "Sin", "Constant")]
    rows = registered_facts(listed, schemas)["kernels"]
    assert rows["Abs"] == {"13": "bfloat16 float32"}
    assert rows["SequenceAt"] == {"11": "float16"}
    assert set(rows["Sin"].values()) == {""}
    assert "float32" in rows["Size"]["13"]  # a kernel of any dtype
    assert "string" in rows["Constant"]["13"]  # needs none


def test_table_has_no_kernel_for_bits_and_some_for_halves() -> None:
    rules = legality("cuda")
    table = {op: rules.dtypes(op) or frozenset() for op in rules.table}
    assert not any(table[op] for op in ("BitCast", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"))
    for op in ("Add", "Sub", "Mul", "Div", "Sqrt", "MatMul"):
        assert set(HALVES) <= table[op]
    assert operator.contains(table["CumSum"], D.float32)
    assert D.float16 not in table["CumSum"]


# What cuDNN takes


def uneven(dtype: DType, **attributes: Any) -> Graph:
    graph = Graph("uneven", {"x": TensorType(dtype, ["n", 2, 5, 4]), "w": TensorType(dtype, [2, 3, 3, 2])})
    graph.output(y=graph.op("ConvTranspose", list(graph.inputs), attributes)[0])
    return graph


UNEVEN: dict[str, dict[str, Any]] = {
    "pads": {"pads": [0, 1, 1, 0]},
    "pads and strides": {"pads": [1, 0, 2, 0], "strides": [2, 3], "output_padding": [1, 0]},
    "same": {"auto_pad": "SAME_UPPER", "strides": [2, 1]},
    "same before": {"auto_pad": "SAME_LOWER", "strides": [2, 1], "dilations": [1, 2]},
}


@pytest.mark.parametrize("dtype", [D.float32, D.float64, D.float16], ids=str)
@pytest.mark.parametrize("attributes", UNEVEN.values(), ids=[*UNEVEN])
def test_uneven_transposed_convolution_stays_on_the_device(attributes: dict[str, Any], dtype: DType) -> None:
    graph = uneven(dtype, **attributes)
    changed = lower(graph, "cuda")
    assert not planned(changed, "cuda").left
    (node,) = (n for n in changed.nodes if n.op_type == "ConvTranspose")
    pads = node.attributes["pads"]
    assert pads[:2] == pads[2:]
    assert "auto_pad" not in node.attributes
    rng = np.random.default_rng(1)
    x, w = (rng.integers(-3, 4, shape).astype(dtype.numpy) for shape in ((2, 2, 5, 4), (2, 3, 3, 2)))
    model = graph.to_onnx(target="cuda")
    got: Any
    (got,) = ReferenceEvaluator(model).run(None, {"x": x, "w": w})
    want = transposed_by_hand(x, w, got.shape, attributes)
    np.testing.assert_array_equal(got, want)


def transposed_by_hand(x: Array, w: Array, shape: tuple[int, ...], attributes: dict[str, Any]) -> Array:
    """Add each element times the filter where it belongs, and cut off the padding."""
    (sy, sx), (dy, dx) = (attributes.get(name, [1, 1]) for name in ("strides", "dilations"))
    rows, columns = x.shape[2:]
    whole = np.zeros((len(x), w.shape[1], 40, 40))
    for i, j, k, m in np.ndindex(rows, columns, *w.shape[2:]):
        whole[:, :, i * sy + k * dy, j * sx + m * dx] += x[:, :, i, j].astype(float) @ w[:, :, k, m].astype(float)
    if "pads" in attributes:
        top, remaining = attributes["pads"][:2]
    else:
        both = [(w.shape[2] - 1) * dy + 1 - sy, (w.shape[3] - 1) * dx + 1 - sx]
        first = [n // 2 for n in both]
        top, remaining = (
            first if attributes["auto_pad"] == "SAME_UPPER" else [n - h for n, h in zip(both, first, strict=True)]
        )
    return whole[:, :, top : top + shape[2], remaining : remaining + shape[3]].astype(x.dtype)


def recurrent(op_type: str, dtype: DType = D.float32, **attributes: Any) -> Graph:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op_type]
    shapes: dict[str, list[int | str]] = {"x": ["t", 2, 4], "w": [1, 3 * gates, 4], "r": [1, 3 * gates, 3]}
    graph = Graph("recurrent", {name: TensorType(dtype, shape) for name, shape in shapes.items()})
    graph.output(y=graph.op(op_type, list(graph.inputs), {"hidden_size": 3, **attributes})[0])
    return graph


@pytest.mark.parametrize(
    ("op_type", "attributes", "reason"),
    [
        ("GRU", {"linear_before_reset": 1}, ""),
        ("GRU", {}, "no kernel without linear_before_reset"),
        ("LSTM", {}, ""),
        ("LSTM", {"clip": 3.0}, "no kernel that takes clip"),
        ("LSTM", {"input_forget": 1}, "no kernel that couples input and forget gates"),
        ("RNN", {"activations": ["Tanh"]}, ""),
        ("RNN", {"activations": ["Relu"]}, "no kernel with other activations"),
    ],
)
def test_recurrent_network_that_cudnn_lacks_is_left_to_the_cpu(
    op_type: str, attributes: dict[str, Any], reason: str
) -> None:
    graph = lower(recurrent(op_type, **attributes), "cuda")
    (node,) = (n for n in graph.nodes if n.op_type == op_type)
    assert {o.reason for o in planned(graph, "cuda").left if o.operator == op_type} == ({reason} - {""})
    if op_type == "GRU":  # the provider takes one without the attribute, and computes it as with 1
        assert node.attributes["linear_before_reset"] == len(attributes)


# Releases

RELEASES = [r.version for r in table_of("cuda").releases]


def test_table_has_a_row_for_each_release() -> None:
    assert RELEASES == ["1.27.0", "1.28.0", "1.29.0", "1.30.0", "1.31.1"]
    table = table_of("cuda")
    assert [table.nearest(v).version for v in ("1.27.3", "1.30.9", "1.31.0", "1.33.0", "1.26.0")] == [
        "1.27.0", "1.30.0", "1.31.1", "1.31.1", "1.27.0",
    ]  # fmt: skip


@pytest.mark.parametrize(("version", "has"), [("1.27.0", False), ("1.29.0", False), ("1.30.0", True), ("1.31.1", True)])
def test_kernels_are_those_of_the_release(version: str, has: bool) -> None:
    result = kernels("cuda", Runtime(version, 26))
    assert (D.bfloat16 in result["ReduceMean"]) is has
    assert (D.float32 in result["Softplus"]) is (version != "1.27.0")
    assert D.float32 in kernels("cuda", Runtime(version, 21))["Softplus"]
    assert not result["Shape"] & {D.int2, D.uint2, D.int4, D.uint4, D.float8_e8m0}
    assert D.float32 in result["GRU"]


def test_files_use_the_kernels_that_all_releases_have() -> None:
    graph = lowered(lambda x: ops.mean(x, axis=0), D.bfloat16)
    assert {n.inputs[0].dtype for n in graph.nodes if n.op_type == "ReduceMean"} == {D.float32}  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("version", RELEASES)
def test_every_op_runs_on_the_device_of_each_release(version: str, dtype: DType) -> None:
    runtime = Runtime(version, 26)
    names = [name for name, case in CASES.items() if dtype not in case.refused and name not in LEFT]
    graph = lower(graph_of(names, dtype)[0], "cuda", runtime=runtime)
    assert not planned(graph, "cuda", runtime).left


@pytest.mark.parametrize("version", ["1.27.0", "1.31.1"])
def test_softplus_and_softsign_do_not_overflow_without_a_kernel(version: str) -> None:
    graph = Graph("soft", {"x": TensorType(D.float32, ["n"])})
    graph.output(plus=ops.softplus(graph["x"]), sign=ops.softsign(graph["x"]))
    changed = lower(graph, "cuda", runtime=Runtime(version, 26))
    assert ("Softplus" in operators(changed)) is (version != "1.27.0")
    x = np.array([-1000, -1, 0, 1, 90, 1000, 3e38], np.float32)
    model = onnx.ModelProto.FromString(join(encode(changed)))
    plus: Any
    sign: Any
    with np.errstate(all="ignore"):
        plus, sign = ReferenceEvaluator(model).run(None, {"x": x})
    wide = x.astype(np.float64)
    np.testing.assert_allclose(plus, np.logaddexp(0, wide), rtol=1e-6)
    np.testing.assert_allclose(sign, wide / (1 + abs(wide)), rtol=1e-6)


@pytest.mark.parametrize("dtype", [D.int4, D.uint4, D.int2, D.uint2], ids=str)
def test_shape_of_parts_of_bytes_is_that_of_whole_ones(dtype: DType) -> None:
    graph = Graph("shape", {"x": TensorType(dtype, ["n", 3])})
    graph.output(y=graph.op("Shape", [graph["x"]])[0])
    changed = lower(graph, "cuda")
    assert {n.inputs[0].dtype.bits for n in changed.nodes if n.op_type == "Shape"} == {8}  # type: ignore[union-attr]


# What a session says


def placed(graph: Graph, *nodes: tuple[str, str]) -> dict[str, str]:
    """The reasons for operators that a session says it put on the CPU, by operator."""
    part = SimpleNamespace(
        ep_name="CPUExecutionProvider", get_nodes=lambda: [SimpleNamespace(name=n, op_type=o) for n, o in nodes]
    )
    session: Any = SimpleNamespace(get_provider_graph_assignment_info=lambda: [part])
    return {o.operator: o.reason for o in recorded(session, graph, "CUDAExecutionProvider").left}


def test_placement_tells_sizes_from_what_the_provider_refuses() -> None:
    graph = Graph("one", {"x": TensorType(D.float32, ["n", 3])})
    graph.output(size=ops.shape_of(graph["x"]), exp=ops.exp(graph["x"]))
    result = placed(lower(graph, "cuda"), ("size", "Shape"), ("exp", "Exp"))
    assert result["Shape"] == "onnxruntime computes sizes and indices there"
    assert result["Exp"].startswith("the provider refused it")
    assert placed(uneven(D.float32, pads=[0, 1, 1, 0]), ("y", "ConvTranspose"), ("Gather", "Gather")) == {
        "ConvTranspose": "no kernel for padding that may differ at both ends",
        "Gather": "onnxruntime computes sizes and indices there",  # one that it made
    }


# The list of kernels of an installed build


def test_build_with_cuda_is_asked_in_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain = KernelRegistry.installed()
    monkeypatch.setattr(release, "is_safe", lambda: False)
    monkeypatch.setattr(release, "has_cuda", lambda: True)
    apart = KernelRegistry.installed()
    assert plain is not None
    assert apart is not None
    for op_type in ("MatMul", "Where", "GRU", "SequenceAt"):
        assert apart.dtypes("CPUExecutionProvider", op_type, 26) == plain.dtypes("CPUExecutionProvider", op_type, 26)
    monkeypatch.setattr(release, "_LIST_KERNELS", "import os; os.abort()")
    with caplog.at_level("INFO", "graphcore"):
        assert KernelRegistry.installed() is None
    assert "the process that lists them exited with status" in caplog.messages[0]


def test_release_counts_as_measured_when_both_tables_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "build_commit", lambda: "")
    for version, has_cuda, wanted in (("1.32.0", False, True), ("1.32.0", True, False), ("9.9", True, False)):
        monkeypatch.setattr(onnxruntime, "__version__", version)
        monkeypatch.setattr(release, "has_cuda", lambda has=has_cuda: has)
        rows = {t: replace(table_of(t), releases=tuple(replace(r, commit="") for r in table_of(t).releases))
                for t in ("cpu", "cuda")}  # fmt: skip
        monkeypatch.setattr(release, "table_of", rows.__getitem__)
        assert (release.measured_release() is not None) is wanted
        monkeypatch.undo()
        monkeypatch.setattr(release, "build_commit", lambda: "")
