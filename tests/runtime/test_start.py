"""A start imports only what it needs, writes no files, and does not scan all objects."""

from __future__ import annotations

import gc as collector
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore._version import FOLDER
from graphcore.arrays import casting
from graphcore.onnx.proto import model_proto, value_protos
from graphcore.runtime.ort import sessions
from graphcore.support.gc_pause import freeze
from tests.support.calls import touched

ROOT = Path(__file__).resolve().parents[2]

START = """
import gc as collector, json, sys
{before}
import numpy as np, onnxruntime
import graphcore as gc
from graphcore import DType, Graph, TensorType
gc.InferenceSession
for first in (True, False):
    graph = Graph("linear", {{"x": TensorType(DType.float32, ["n", 64])}})
    graph.output(y=graph["x"] @ graph.weight("w", np.eye(64, dtype=np.float32)))
    if first:
        young = len(collector.get_objects(0)) + len(collector.get_objects(1))
    else:
        imported = set(sys.modules)
    model = gc.InferenceSession().load(graph)
    (y,) = model(np.ones((2, 64), np.float32))
    assert (y == 1).all()
print(json.dumps({{
    "late": sorted(set(sys.modules) - imported), "all": sorted(sys.modules), "young": young,
    "old": len(collector.get_objects(2)), "frozen": collector.get_freeze_count(),
}}))
"""


def started(before: str = "") -> dict[str, Any]:
    """Start a model of a graph in a new process; return its report."""
    code = START.format(before=before)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    return data


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return started()


def linear(weight: np.ndarray[Any, Any]) -> Graph:
    graph = Graph("linear", {"x": TensorType(DType.float32, ["n", len(weight)])})
    graph.output(y=graph["x"] @ graph.weight("w", weight))
    return graph


def test_the_second_load_and_call_import_nothing(plain: dict[str, Any]) -> None:
    assert [name for name in plain["late"] if not name.startswith("onnxruntime")] == []


@pytest.mark.parametrize("name", ["onnx", "google.protobuf", "importlib.resources", "concurrent.futures", "tempfile"])
def test_a_graph_runs_without_what_only_files_and_threads_need(name: str, plain: dict[str, Any]) -> None:
    assert name not in plain["all"]


def test_what_the_imports_made_is_with_the_oldest_objects(plain: dict[str, Any]) -> None:
    assert plain["young"] < 0.1 * plain["old"]
    assert plain["frozen"] == 0


def test_what_a_program_has_frozen_stays_so() -> None:
    assert started("collector.freeze()")["frozen"] > 0


def test_settling_moves_objects_and_keeps_them() -> None:
    results = [[i] for i in range(100)]
    freeze()
    oldest = {id(o) for o in collector.get_objects(2)}
    assert all(id(item) in oldest for item in results)
    assert results == [[i] for i in range(100)]


def test_a_session_makes_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a folder is made")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refused)
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    x = np.ones((2, 64), np.float32)
    assert np.allclose(gc.InferenceSession().load(linear(weight))(x)[0], x @ weight, atol=1e-4)


@pytest.mark.parametrize("content", [None, b"not empty"])
def test_a_session_starts_where_the_package_has_no_empty_file(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        (tmp_path / sessions._EMPTY).write_bytes(content)
    monkeypatch.setattr(sessions, "FOLDER", str(tmp_path))
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    x = np.ones((2, 64), np.float32)
    assert np.allclose(gc.InferenceSession().load(linear(weight))(x)[0], x @ weight, atol=1e-4)


def test_the_package_has_the_empty_file() -> None:
    assert (Path(FOLDER) / sessions._EMPTY).read_bytes() == b""


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2, "INT"),
        (0.5, "FLOAT"),
        ("a", "STRING"),
        (b"a", "STRING"),
        (np.ones(2, np.float32), "TENSOR"),
        (TensorType(DType.float32, [2]), "TYPE_PROTO"),
        ([1, 2], "INTS"),
        ([0.5, 1], "FLOATS"),
        (["a", b"b"], "STRINGS"),
    ],
)
def test_the_kinds_of_attributes_are_those_of_onnx(value: Any, kind: str) -> None:
    result = onnx.AttributeProto.FromString(model_proto.attribute("a", value))
    assert onnx.AttributeProto.AttributeType.Name(result.type) == kind


def test_weights_outside_are_told_as_onnx_tells_them() -> None:
    places = {"v": ("there", 0), "w": ("there", 64), "x": ("elsewhere", 64)}
    for name, (location, offset) in places.items():
        parts = value_protos.tensor(np.ones(3, np.float32), DType.float32, name, lambda name, array: places[name])
        result = onnx.TensorProto.FromString(b"".join(parts))
        assert result.data_location == onnx.TensorProto.EXTERNAL
        results = {entry.key: entry.value for entry in result.external_data}
        assert results == {"location": location, "offset": str(offset), "length": "12"}


class Own(np.ndarray[Any, Any]):
    pass


@pytest.mark.parametrize(
    ("value", "is_masked"),
    [
        (np.ones(2), False),
        (np.float32(1), False),
        (np.ones(2).view(Own), False),
        ([1], False),
        (None, False),
        (np.ma.masked_array([1.0, 2.0], [False, True]), True),
        (np.ma.masked, True),
    ],
)
def test_masked_arrays_are_told_from_others(value: object, is_masked: bool) -> None:
    assert casting.is_masked(value) is is_masked


def test_the_sizes_of_a_shape_are_put_together_once() -> None:
    graph = Graph("twice", {"x": TensorType(DType.float32, ["batch", "length", 8])})
    x = graph["x"]
    batch, length, _ = x.shape
    rows = [(x * k).reshape(batch * length, 8) for k in (1.0, 2.0, 3.0)]
    wide = [part.reshape(batch, length, 2, 4) for part in rows] + [part.reshape(batch, length, 8, 1) for part in rows]
    graph.output(y=ops.concat([part.reshape(batch, length, 8) for part in wide[:3]], axis=-1), z=wide[3])
    joined = [node for node in graph.nodes if node.op_type == "Concat" and node.outputs[0].dtype is DType.int64]
    assert len({str(node.inputs) for node in joined}) == len(joined) > 1
    value = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32)
    y, z = gc.InferenceSession().load(graph)(value)
    assert np.array_equal(z, value[..., None])
    assert np.array_equal(y, np.concatenate([value, value * 2, value * 3], axis=-1))


def test_sizes_in_a_body_are_those_of_the_body_and_of_the_graph_around() -> None:
    graph = Graph("bodies", {"x": TensorType(DType.float32, ["n", "m"]), "c": TensorType(DType.bool, [])})
    x, chosen = graph.inputs
    n, m = x.shape

    def wide(value: Symbol) -> Symbol:
        return value.reshape(n * m).reshape(n, m, 1, 1)

    graph.output(ops.cond(chosen, lambda: wide(x * 2) + wide(x), lambda: wide(x) * 5), wide(x))
    model = gc.InferenceSession().load(graph)
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    for flag, factor in ((True, 3), (False, 5)):
        inner, outer = model(value, np.array(flag))
        assert np.array_equal(inner[..., 0, 0], value * factor)
        assert np.array_equal(outer[..., 0, 0], value)


@pytest.mark.parametrize("name", ["a\x1f", "\0", "\n", ""])
def test_names_with_control_characters_are_refused(name: str) -> None:
    with pytest.raises(gc.GraphcoreError, match="is not a valid name"):
        Graph("g", {name: TensorType(DType.float32, [1])})


def test_a_small_graph_is_loaded_and_exported_in_few_calls(tmp_path: Path) -> None:
    def small() -> Graph:
        graph = Graph("small", {"x": TensorType(DType.float32, ["batch", 4]), "gain": TensorType(DType.float32, [4])})
        x, gain = graph.inputs
        graph.output(prob=ops.exp(ops.relu(x * gain + 1.0)) - x)
        return graph

    session = gc.InferenceSession()
    session.load(small())  # imports, and what is kept of each release
    small().export(tmp_path / "small.onnx")
    graph = small()
    calls, files = touched(lambda: session.load(graph))
    assert calls <= 720
    assert files <= 50
    calls, files = touched(lambda: graph.export(tmp_path / "small.onnx"))
    assert calls <= 700
    assert files <= 40
