"""Sessions of an onnxruntime that is older than the one that files are written for.

The installed one is told to be older: what is lowered for it is of opset 25, and the newer release runs that too.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.build.declare import REGISTRY
from graphcore.errors import GraphError, RunError
from graphcore.ir.transform.walk import walk
from graphcore.onnx.notes import OPSET
from graphcore.onnx.proto.model_proto import encode, join
from graphcore.runtime.lowering import lower
from graphcore.runtime.lowering.targets.legality import kernels, legality
from graphcore.runtime.lowering.targets.releases import (
    ANY,
    OLDEST_SUPPORTED,
    Runtime,
    default,
    is_supported,
    ordered,
    table_of,
)
from graphcore.runtime.ort import release, sessions
from graphcore.runtime.sessions import plan
from tests.ops.test_every_op import FAMILIES, _failures
from tests.sampling import drawn
from tests.support.every_op import CASES, graph_of

pytestmark = pytest.mark.releases

D = DType
OLD = Runtime("1.24.1", 25)


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    monkeypatch.setattr(plan, "runtime", lambda: OLD)
    monkeypatch.setattr(sessions, "runtime", lambda: OLD)
    return OLD


def bits_graph(source: DType, target: DType) -> Graph:
    graph = Graph("bits", {"x": TensorType(source, ["n"])})
    graph.output(y=graph.op("BitCast", [graph["x"]], {"to": target.onnx}, [TensorType(target, ["n"])])[0])
    return graph


# Which release, and what is known of it


def test_table_is_that_of_the_newest_release_that_is_not_a_newer() -> None:
    table = table_of("cpu")
    assert table.nearest("99.0") is table.newest
    for version, nearest in {
        "1.24.1": "1.24.4",
        "1.24.5": "1.24.4",
        "1.26.0": "1.24.4",
        "1.27.1": "1.27.0",
        "1.32.0": "1.32.0",
        "1.19.0": "1.20.1",
    }.items():
        assert table.nearest(version).version == nearest
    assert [r.version for r in table.considered(ANY)] == [r.version for r in table.releases if is_supported(r.version)]
    assert [table_of(target).newest.version for target in ("cuda", "openvino")] == ["1.31.1", "1.24.1"]


def test_oldest_supported_release_is_the_one_that_the_package_asks_for() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (requested,) = [d for d in project["dependencies"] if d.startswith("onnxruntime")]
    assert ordered(requested) == ordered(OLDEST_SUPPORTED)[:2]
    assert table_of("cpu").measures(OLDEST_SUPPORTED)


def test_operators_newer_than_the_opset_have_no_kernels() -> None:
    assert kernels("cpu")["BitCast"]
    assert not kernels("cpu", OLD)["BitCast"]
    assert not kernels("cpu", OLD)["CumProd"]
    assert not kernels("cuda", OLD)["CumProd"]
    assert legality("cpu").views_bits
    assert not legality("cpu", OLD).views_bits
    assert not legality("cpu", OLD).dtypes("Attention")


def test_kernels_of_a_version_that_a_release_does_not_know_are_those_of_the_one_before() -> None:
    """The version of Attention for opset 25 came with 1.32, which has no kernel of it."""
    assert D.float32 in kernels("cpu", Runtime("1.31.1", 26))["Attention"]
    assert not kernels("cpu", Runtime("1.32.0", 26))["Attention"]
    assert D.float32 in kernels("cpu", Runtime("1.32.0", 24))["Attention"]


def test_graph_is_lowered_at_an_older_opset_where_only_that_has_the_kernels() -> None:
    graph = Graph("one", {"x": TensorType(D.float32, [1, 2, 4, 8])})
    graph.output(graph.op("Attention", [graph["x"]] * 3)[0])
    for version, opset in {"1.31.1": 26, "1.32.0": 24, "99.0": 24}.items():
        lowered = lower(graph, "cpu", runtime=Runtime(version))
        assert [node.op_type for node in lowered.nodes] == ["Attention"]
        assert onnx.ModelProto.FromString(join(encode(lowered))).opset_import[0].version == opset
        again = lower(lowered, "cpu", runtime=Runtime("1.31.1"))
        assert again.opsets.get("", OPSET) == 26
    assert "Attention" not in {node.op_type for node in lower(graph, "cpu").nodes}


def test_files_are_written_for_the_release_of_their_target() -> None:
    assert default("cpu") is ANY
    assert default("openvino") == Runtime("1.24.1", 25)


@pytest.mark.parametrize(("newest", "opset"), [(26, 26), (25, 25)])
def test_opset_is_what_the_installed_release_takes(monkeypatch: pytest.MonkeyPatch, newest: int, opset: int) -> None:
    monkeypatch.setattr(onnxruntime, "__version__", "1.24.9")
    monkeypatch.setattr(release, "takes", lambda requested, ir=8: requested <= newest and ir <= 12)
    release.runtime.cache_clear()
    try:
        result = release.runtime()
        assert (result.version, result.opset, result.ir) == ("1.24.9", opset, 12)
    finally:
        release.runtime.cache_clear()


def test_release_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "__version__", "1.19.0")
    monkeypatch.setattr(release, "takes", lambda requested, ir=8: False)
    release.runtime.cache_clear()
    try:
        with pytest.raises(RunError, match="does not support opset 24"):
            release.runtime()
    finally:
        release.runtime.cache_clear()


def test_installed_release_is_asked_with_a_model() -> None:
    assert release.takes(release.runtime().opset)
    assert release.takes(17, release.runtime().ir)
    assert not release.takes(99)
    assert not release.takes(17, 99)


def test_installed_release_is_measured_or_asked() -> None:
    result = release.runtime()
    assert result.version == onnxruntime.__version__
    assert (result.registry is None) == (release.measured_release() is not None)


# What is lowered for it


@pytest.mark.parametrize(
    "dtype", [D.int4, D.uint8, D.int64, D.uint64, D.bfloat16, D.float32, D.float64, D.tf32], ids=str
)
def test_every_op_is_of_the_older_opset(dtype: DType) -> None:
    for name, case in CASES.items():
        if dtype in case.refused:
            continue
        graph = lower(graph_of([name], dtype)[0], "cpu", runtime=OLD)
        for node in walk(graph):
            if not node.domain:
                assert onnx.defs.get_schema(node.op_type, OLD.opset).since_version <= OLD.opset, name


@pytest.mark.numbers
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [D.int4, D.uint8, D.uint64, D.float16, D.float32, D.float64, D.tf32], ids=str)
def test_op_gives_what_is_promised_when_lowered_for_an_older_release(old: Runtime, dtype: DType, family: str) -> None:
    failed: list[str] = []
    for name in (name for name, op in REGISTRY.items() if op.family == family and dtype not in CASES[name].refused):
        graph, result, arrays = graph_of([name], dtype)
        failed += _failures(name, dtype, result[name], list(gc.InferenceSession().load(graph)(*arrays)))
    assert not failed, "\n".join(failed)


def test_model_of_a_session_is_of_the_older_opset(old: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[onnx.ModelProto] = []

    def encoded(graph: Graph, *value: Any, **named: Any) -> Any:
        chunks = encode(graph, *value, **named)
        seen.append(onnx.ModelProto.FromString(join(chunks)))
        return chunks

    monkeypatch.setattr(sessions, "encode", encoded)
    graph = Graph("one", {"x": TensorType(D.uint64, ["n"])})
    graph.output(ops.max(graph["x"]), ops.cumsum(graph["x"]))
    greatest, sums = gc.InferenceSession().load(graph)(np.array([1, 1 << 63, 7], np.uint64))
    assert int(greatest) == 1 << 63
    assert sums.tolist() == [1, (1 << 63) + 1, (1 << 63) + 8]
    assert [[o.version for o in model.opset_import] for model in seen] == [[25]]


# Bits without BitCast


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [D.float16, D.bfloat16], ids=str)
def test_bits_of_halves_are_found_for_all_patterns(old: Runtime, dtype: DType) -> None:
    codes = np.arange(1 << 16).astype(np.uint16)
    values = codes.view(dtype.numpy)
    expected = ~np.isnan(values.astype(np.float32))
    (coded,) = gc.InferenceSession().load(bits_graph(dtype, D.uint16))(values)
    np.testing.assert_array_equal(coded[expected], codes[expected])
    assert np.isnan(coded[~expected].view(dtype.numpy).astype(np.float32)).all()
    (decoded,) = gc.InferenceSession().load(bits_graph(D.int16, dtype))(codes.view(np.int16))
    np.testing.assert_array_equal(decoded[expected].view(np.uint16), codes[expected])
    assert np.isnan(decoded[~expected].astype(np.float32)).all()


@pytest.mark.numbers
@settings(max_examples=drawn(30), deadline=None)
@given(st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=50), st.sampled_from([D.float32, D.float64]))
def test_bits_go_there_and_back(numbers: list[int], dtype: DType) -> None:
    code = D.uint32 if dtype is D.float32 else D.uint64
    near = [0, 1, 1 << (code.bits - 1), 0x7F800000, 0x3FF0000000000000, 0x7FEFFFFFFFFFFFFF, 0x000FFFFFFFFFFFFF]
    codes = np.array([n % (1 << code.bits) for n in [*numbers, *near]], code.numpy)
    graph = Graph("both", {"x": TensorType(code, ["n"])})
    (value,) = graph.op("BitCast", [graph["x"]], {"to": dtype.onnx}, [TensorType(dtype, ["n"])])
    (again,) = graph.op("BitCast", [value], {"to": code.onnx}, [TensorType(code, ["n"])])
    graph.output(value, again)
    result = onnx.ModelProto.FromString(join(encode(lower(graph, "cpu", runtime=OLD))))
    assert "BitCast" not in {node.op_type for node in result.graph.node}
    runs = onnxruntime.InferenceSession(result.SerializeToString(), providers=["CPUExecutionProvider"])
    got, back = runs.run(None, {"x": codes})
    want = codes.view(dtype.numpy)
    np.testing.assert_array_equal(got, want)
    expected = ~np.isnan(want)
    np.testing.assert_array_equal(back[expected], codes[expected])


# Running products without CumProd


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [D.int64, D.float64], ids=str)
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_running_product_is_that_of_numpy(dtype: DType, exclusive: bool, reverse: bool, size: int) -> None:
    x = np.random.default_rng(size).integers(-3, 4, (2, size)).astype(dtype.numpy)
    want = x[:, ::-1] if reverse else x
    want = np.concatenate([np.ones((2, min(size, 1)), x.dtype), want[:, :-1]], axis=1) if exclusive else want
    want = np.cumprod(want, axis=1)
    want = want[:, ::-1] if reverse else want
    for dims in ([2, size], ["m", "n"]):
        graph = Graph("products", {"x": TensorType(dtype, dims)})
        attributes = {"exclusive": int(exclusive), "reverse": int(reverse)}
        axis = graph.constant(np.array(1, np.int64))
        graph.output(*graph.op("CumProd", [graph["x"], axis], attributes, [graph["x"].type]))
        lowered = lower(graph, "cpu", runtime=OLD)
        assert "CumProd" not in {node.op_type for node in lowered.nodes}
        (got,) = gc.InferenceSession().load(lowered)(x)
        np.testing.assert_array_equal(got, want)


def test_running_product_raises_when_its_axis_is_not_known() -> None:
    graph = Graph("products", {"x": TensorType(D.float32, ["n"]), "axis": TensorType(D.int64, [])})
    graph.output(*graph.op("CumProd", [graph["x"], graph["axis"]], {}, [graph["x"].type]))
    with pytest.raises(GraphError, match="the axis is not a constant"):
        lower(graph, "cpu", runtime=OLD)
