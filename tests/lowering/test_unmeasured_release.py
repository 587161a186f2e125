"""Sessions of a release without a table: its kernels are listed, and graphs run right whatever the list is.

The installed one is told to be 99.0, and to list fewer kernels than it has, more, or nothing that can be read.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as state

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import GraphError, RunError
from graphcore.runtime.lowering.targets.releases import Release, ordered, table_of
from graphcore.runtime.ort import release
from graphcore.runtime.ort.release import KernelRegistry
from tests.ops.test_every_op import _failures
from tests.support.every_op import CASES, graph_of
from tests.support.pretended import CPU, Pretend, kernel, lacking, listed, lost_kernels, names_with, pretended

IS_NEWEST = ordered(onnxruntime.__version__) >= ordered(table_of("cpu").newest.version)
pytestmark = [
    pytest.mark.releases,
    pytest.mark.skipif(
        not IS_NEWEST, reason="what is pretended to be newer than all has the kernels of an older release"
    ),
]


D = DType
Array = np.ndarray[Any, Any]
DTYPES = (D.int8, D.int32, D.int64, D.uint64, D.bool, D.bfloat16, D.float32, D.float64)
NO_WAY = "cannot compute it"


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pretend]:
    yield from pretended(monkeypatch)


def total() -> Graph:
    graph = Graph("total", {"x": TensorType(D.int32, ["n"]), "y": TensorType(D.int64, ["n"])})
    graph.output(z=graph["x"] // graph["y"])
    return graph


def assert_divides() -> None:
    x, y = np.array([-7, 7, 9], np.int32), np.array([2, -2, 4])
    (z,) = gc.InferenceSession().load(total())(x, y)
    np.testing.assert_array_equal(z, x // y)


def failures(names: Sequence[str], dtype: DType, may_refuse: bool = False) -> list[str]:
    """Return the wrong results of ops, each of one dtype, and the errors that they raise."""
    if not names:
        return []
    try:
        graph, result, arrays = graph_of(list(names), dtype)
        remaining = lost_kernels(graph)
        results = list(gc.InferenceSession().load(graph)(*arrays))
    except Exception as error:  # of one of them: of which?
        if len(names) > 1:
            half = len(names) // 2
            return failures(names[:half], dtype, may_refuse) + failures(names[half:], dtype, may_refuse)
        text = str(error)
        is_documented = isinstance(error, GraphError) and NO_WAY in text and "lists no kernel for it" in text
        return [] if may_refuse and is_documented else [f"{names[0]} of {dtype}: {error!r}"]
    match = [f"{names} of {dtype} lowered to {remaining}"] if remaining else []
    for name in names:
        got, results = results[: len(result[name])], results[len(result[name]) :]
        match += _failures(name, dtype, result[name], got)
    return match


# What is said


def test_session_logs_one_line_and_warns_of_nothing_when_its_release_was_not_measured(
    pretend: Pretend, caplog: pytest.LogCaptureFixture
) -> None:
    pretend()
    with caplog.at_level(logging.DEBUG, "graphcore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_divides()
        assert_divides()
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("graphcore", logging.INFO)
    assert record.getMessage() == (
        f"onnxruntime 99.0 was not measured: graphs are lowered by the table of {table_of('cpu').newest.version} "
        "and the kernels that the build lists, with every trap of it"
    )


def test_session_logs_nothing_when_its_release_was_measured(
    pretend: Pretend, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend()
    monkeypatch.setattr(release, "measured_release", lambda: Release("99.0", release.newest_opset(), 13))
    with caplog.at_level(logging.DEBUG, "graphcore"):
        assert_divides()
    assert not caplog.records


def test_session_says_that_a_build_was_not_measured_when_its_release_was(
    pretend: Pretend, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = table_of("cpu").newest.version
    pretend(version=newest)
    monkeypatch.setattr(onnxruntime, "get_build_info", lambda: "ORT Build Info: git-commit-id=0123456789, mine")
    with caplog.at_level(logging.INFO, "graphcore"):
        assert_divides()
    assert caplog.messages[0].startswith(f"this build of onnxruntime {newest} was not measured")


@pytest.mark.parametrize(("version", "nearest"), [("1.28.7", "1.28.0"), ("1.29.0.dev20260101", "1.29.0")])
def test_table_is_that_of_the_newest_older_release_when_one_is_between_two(
    pretend: Pretend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str, nearest: str
) -> None:
    monkeypatch.setattr(release, "measured_release", lambda: None)
    pretend(version=version)
    with caplog.at_level(logging.INFO, "graphcore"):
        assert_divides()
    assert f"by the table of {nearest} " in caplog.messages[0]


def test_session_raises_when_the_release_takes_no_opset_that_graphs_have(
    pretend: Pretend, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(version="1.5.0")
    monkeypatch.setattr(release, "takes", lambda opset, ir=8: opset <= 12)
    with pytest.raises(RunError, match=r"onnxruntime 1\.5\.0 does not support opset 24"):
        gc.InferenceSession().load(total())


# A list that cannot be read


def raises() -> Any:
    raise RuntimeError("no list in this build")


UNREADABLE: dict[str, Any] = {
    "raises": raises,
    "gives nothing": lambda: None,
    "is empty": [],
    "of numbers": [1, 2, 3],
    "of other entries": [SimpleNamespace(name="Identity")],
    "without types": [kernel("Identity", []), kernel("Div", [])],
    "of other types": [kernel("Identity", ["TensorFloat", "TensorInt64"])],
    "of other versions": lambda: [kernel("Identity", ["tensor(float)"], ("13", "25"))],  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_table_stands_and_a_line_says_so_when_the_list_cannot_be_read(
    pretend: Pretend, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    pretend(UNREADABLE[what])
    with caplog.at_level(logging.INFO, "graphcore"):
        assert_divides()
    assert release.runtime().registry is None
    assert [r.levelno for r in caplog.records] == [logging.INFO] * 2
    assert caplog.messages[0].startswith("the kernels of the installed onnxruntime cannot be read: ")
    assert "and the kernels that the build lists" not in caplog.messages[1]
    assert not failures(["add", "floor_div", "softmax", "where", "sort"], D.float32)


@pytest.mark.parametrize("name", ["get_all_opkernel_def", "get_all_operator_schema"])
def test_table_stands_when_the_build_has_no_list(pretend: Pretend, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pretend()
    monkeypatch.delattr(state, name)
    assert_divides()
    assert release.runtime().registry is None


def test_build_that_would_not_survive_it_is_not_asked(
    pretend: Pretend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pretend(lambda: pytest.fail("asked"))
    providers = ["OpenVINOExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(state, "get_available_providers", lambda: providers)
    with caplog.at_level(logging.INFO, "graphcore"):
        assert_divides()
    assert release.runtime().registry is None
    assert len(caplog.records) == 1


@pytest.mark.parametrize("constraints", [None, ["tensor(float)"], {"T": [1]}, {"T": None}, {1: 2}])
def test_table_stands_when_some_entries_cannot_be_read(
    pretend: Pretend, caplog: pytest.LogCaptureFixture, constraints: Any
) -> None:
    broken = [
        k if k.op_name == "Identity" else SimpleNamespace(**{**vars(k), "type_constraints": constraints})
        for k in listed()
    ]
    pretend(broken)
    with caplog.at_level(logging.INFO, "graphcore"):
        assert_divides()
    assert not failures(["add", "floor_div", "softmax", "where", "sort"], D.float32)
    assert len(caplog.records) <= 2  # one of the release, and one of the first entry


# A list that has more


def test_graphs_run_right_when_the_list_has_unknown_kernels(pretend: Pretend) -> None:
    every = ["tensor(float)", "tensor(float128)", "tensor(int3)", "seq(tensor(string))", "opaque(mine)", "", "tensor("]
    more = [
        kernel("Hyper", every),
        kernel("Add", every),
        kernel("Where", [f"tensor({d})" for d in ("bool", "bfloat16", "int4", "float8e4m3fn")]),
        kernel("Identity", every, (99, 120)),
        kernel("Mul", every, domain="mine"),
        kernel("Softmax", every, provider="MineExecutionProvider"),
        *(kernel(op, ["tensor(float16)", "tensor(bfloat16)", "tensor(int64)"]) for op in ("MatMul", "Sin", "Erf")),
    ]
    pretend([*listed(), *more])
    assert release.runtime().registry is not None
    names = ["add", "where", "softmax", "matmul", "sin", "erf", "mul", "floor_div"]
    for dtype in (D.bfloat16, D.float32, D.int64, D.bool):
        assert not failures([n for n in names if dtype not in CASES[n].refused], dtype)


# A list that lacks kernels

REPLACED: list[tuple[str, ...]] = [
    ("Attention",),
    ("LayerNormalization", "RMSNormalization"),
    ("Softmax", "LogSoftmax", "Gelu", "RotaryEmbedding"),
    ("Gelu", "Erf", "BitCast"),
    ("BitCast",),
    ("Clip",),
    ("GreaterOrEqual", "LessOrEqual", "Mean", "LpNormalization"),
    ("MatMul int32",),
    ("Where bool", "Where int8", "Where uint32"),
    ("Where float32", "Max float32", "Min float32"),
    ("Cos float64",),
    ("Tanh float32", "Sigmoid float32", "Exp float32"),
    ("TensorScatter", "CumProd"),
]
"""The kernels that have a substitute wherever they are missing."""

NEEDED: list[tuple[str, ...]] = [
    ("Where",),
    ("TopK",),
    ("Gemm", "MatMul", "MatMulInteger"),
    ("ReduceMax", "ReduceSum"),
    ("CumSum", "ScatterND", "GatherElements"),
    ("Mod", "Div"),
    ("Where", "BitCast", "Erf", "TopK", "Attention"),
    ("Sin", "Cos", "Pow", "Trilu", "Sign", "IsNaN", "Resize"),
]
"""The kernels that some ops need: such ops are refused when they are loaded, the others run right."""


@pytest.mark.parametrize("lost", REPLACED, ids=" ".join)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_graphs_run_right_when_kernels_are_missing(pretend: Pretend, dtype: DType, lost: tuple[str, ...]) -> None:
    names = names_with(dtype, lost)
    pretend(lacking(*lost))
    assert not failures(names, dtype)


@pytest.mark.parametrize("lost", NEEDED, ids=" ".join)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_graphs_run_right_or_are_refused_when_kernels_are_missing(
    pretend: Pretend, dtype: DType, lost: tuple[str, ...]
) -> None:
    names = names_with(dtype, lost)
    pretend(lacking(*lost))
    assert not failures(names, dtype, may_refuse=True)


CHUNKS = 4


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_op_gives_what_is_promised_when_the_release_was_not_measured(
    pretend: Pretend, dtype: DType, chunk: int
) -> None:
    pretend()
    names = [name for name, case in CASES.items() if dtype not in case.refused]
    assert not failures(names[chunk::CHUNKS], dtype)


def test_error_names_the_kernel_and_a_release_that_has_it_when_there_is_no_way(pretend: Pretend) -> None:
    pretend(lacking("TopK"))
    graph = Graph("sorted", {"x": TensorType(D.float32, ["n", 4])})
    graph.output(y=ops.sort(graph["x"]))
    with pytest.raises(GraphError) as raised:
        gc.InferenceSession().load(graph)
    newest = table_of("cpu").newest.version
    assert raised.value.summary.startswith("TopK: the cpu target cannot compute it in int")
    assert raised.value.help == f"onnxruntime 99.0 lists no kernel for it: pip install onnxruntime=={newest}"


# A layer of a text encoder


LENGTH = 5


def layer(width: int = 8, heads: int = 2) -> tuple[Graph, dict[str, Array]]:
    rng = np.random.default_rng(5)
    weights = {n: rng.normal(0, 0.4, (width, width)).astype(np.float32) for n in ("q", "k", "v", "o", "up", "down")}
    graph = Graph(
        "layer", {"x": TensorType(D.float32, ["batch", LENGTH, width]), "mask": TensorType(D.int64, [LENGTH])}
    )
    x, mask = graph.inputs
    with graph:

        def split(symbol: Any) -> Any:
            return ops.transpose(ops.reshape(symbol, [-1, LENGTH, heads, width // heads]), [0, 2, 1, 3])

        q, k, v = (split(x @ weights[n]) for n in "qkv")
        scores = q @ ops.transpose(k, [0, 1, 3, 2]) / np.float32((width // heads) ** 0.5)
        scores = ops.where(mask == 1, scores, np.float32(-1e9))
        mixed = ops.transpose(ops.softmax(scores) @ v, [0, 2, 1, 3])
        x = ops.layer_norm(x + ops.reshape(mixed, [-1, LENGTH, width]) @ weights["o"], np.ones(width, np.float32))
        x = ops.layer_norm(x + ops.gelu(x @ weights["up"]) @ weights["down"], np.ones(width, np.float32))
    graph.output(y=x)
    return graph, weights


def layer_in_numpy(weights: dict[str, Array], x: Array, mask: Array, heads: int = 2) -> Array:
    width = x.shape[-1]
    w = {name: array.astype(np.float64) for name, array in weights.items()}

    def split(a: Array) -> Array:
        return a.reshape(*a.shape[:2], heads, width // heads).transpose(0, 2, 1, 3)

    def normal(a: Array) -> Any:
        return (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5)

    x = x.astype(np.float64)
    q, k, v = (split(x @ w[n]) for n in "qkv")
    scores = np.where(mask == 1, q @ k.transpose(0, 1, 3, 2) / (width // heads) ** 0.5, -1e9)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = (shares / shares.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(x.shape)
    x = normal(x + mixed @ w["o"])
    up = x @ w["up"]
    result: Array = normal(x + up * 0.5 * (1 + np.vectorize(math.erf)(up / 2**0.5)) @ w["down"])
    return result


@pytest.mark.parametrize(
    "lost",
    [
        (),
        ("Attention",),
        ("LayerNormalization",),
        ("Softmax",),
        ("Gelu", "Erf"),
        ("Where float32",),
        ("Attention", "LayerNormalization", "Softmax", "Gelu", "Erf", "BitCast", "Gemm"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("optimize", ["off", "exact", "all"])
def test_layer_of_an_encoder_is_right_when_kernels_are_missing(
    pretend: Pretend, lost: tuple[str, ...], optimize: Any
) -> None:
    graph, weights = layer()
    pretend(lacking(*lost))
    rng = np.random.default_rng(6)
    x, mask = rng.normal(size=(2, LENGTH, 8)).astype(np.float32), np.array([1, 1, 0, 1, 1])
    (y,) = gc.InferenceSession(optimize=optimize).load(graph)(x, mask)
    assert not lost_kernels(graph)
    np.testing.assert_allclose(y, layer_in_numpy(weights, x, mask), rtol=2e-4, atol=2e-5)


# What is read of a list


def schema(name: str, *versions: int, inputs: int = 1) -> list[SimpleNamespace]:
    parameter = SimpleNamespace(typeStr="T")
    return [
        SimpleNamespace(name=name, domain="", since_version=v, inputs=[parameter] * inputs, outputs=[parameter])
        for v in versions
    ]


def test_kernels_hold_for_their_versions_alone() -> None:
    kernels = [
        kernel("Abs", ["tensor(float)"], (6, 12)),
        kernel("Abs", ["tensor(float)", "tensor(int8)"], (13, 1 << 31)),
    ]
    registry = KernelRegistry([*kernels, kernel("Old", ["tensor(float)"], (7, (1 << 31) - 1))], [
        *schema("Abs", 6, 13), *schema("Old", 7, 22)
    ])  # fmt: skip
    assert registry.dtypes(CPU, "Abs", 12) == frozenset({D.float32})
    assert registry.dtypes(CPU, "Abs", 26) == frozenset({D.float32, D.int8})
    assert registry.dtypes(CPU, "Old", 21) == frozenset({D.float32})
    assert registry.dtypes(CPU, "Old", 22) == frozenset()  # a new version, for which the kernel does not hold
    assert registry.dtypes(CPU, "Abs", 5) == frozenset()


def test_list_tells_nothing_of_functions_and_of_providers_without_entries() -> None:
    registry = KernelRegistry([kernel("Abs", ["tensor(float)"])], schema("Abs", 1))
    assert registry.dtypes(CPU, "Mish", 26) is None
    assert registry.dtypes("CUDAExecutionProvider", "Abs", 26) is None
    assert registry.dtypes(CPU, "Neg", 26) == frozenset()


def test_version_of_an_operator_without_a_kernel_has_none_at_its_opset() -> None:
    """onnxruntime 1.32 came with a version of Attention for opset 25 that it had no kernel of."""
    kernel = SimpleNamespace(
        op_name="Softmax",
        domain="",
        provider="CPUExecutionProvider",
        version_range=(13, (1 << 31) - 1),
        type_constraints={"T": ["tensor(float)"]},
    )
    parameter = SimpleNamespace(typeStr="T")
    schemas = [SimpleNamespace(name="Softmax", domain="", since_version=v, inputs=[parameter]) for v in (13, 25)]
    registry = KernelRegistry([kernel], schemas)
    assert registry.dtypes("CPUExecutionProvider", "Softmax", 24) == frozenset({DType.float32})
    assert registry.dtypes("CPUExecutionProvider", "Softmax", 26) == frozenset()
