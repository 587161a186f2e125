"""`graphcore check`: what it says of a model is what is done to that model, no more and no less."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.cli import main
from graphcore.cli.distances import random_feeds
from graphcore.errors import ModelError, RunError
from graphcore.ir.transform.walk import walk
from graphcore.runtime.isolation import process
from graphcore.runtime.lowering.report import named, report
from graphcore.runtime.ort.release import runtime
from tests.support.onnx_models import model, value
from tests.support.trained import PACKAGES, models

Check = Callable[..., tuple[int, str, str]]


@pytest.fixture
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    """The command with its defaults: it starts a worker for each model."""
    monkeypatch.chdir(tmp_path)

    def run(*argv: str) -> tuple[int, str, str]:
        status = main(["check", *argv])
        return (status, *capsys.readouterr())

    return run


@pytest.fixture
def check(isolated: Check) -> Check:
    """The command without a worker, whose report is the same."""
    return lambda *argv: isolated(*argv, "--no-isolated")


def saved(types: dict[str, TensorType], make: Callable[..., dict[str, Any]], path: str = "m.onnx") -> None:
    """Write a graph as it was built."""
    graph = Graph("made", types)
    graph.output(**make(*graph.inputs))
    graph.export(path, target="onnx")


FLOATS = {"x": TensorType(DType.float32, ["n", 4])}


@pytest.mark.parametrize("options", [[], ["--no-isolated"]], ids=["default", "no worker"])
def test_nothing_but_what_is_kept_is_said_when_all_is_native(isolated: Check, options: list[str]) -> None:
    saved(FLOATS, lambda x: {"y": x * 2})
    assert isolated("m.onnx", *options) == (
        0,
        "kept: Mul float32\nloads through a Graph: graphcore wrote it\n"
        "m.onnx: runs on CPUExecutionProvider; 0 of 1 nodes are computed otherwise\n",
        "",
    )


def test_strict_fails_where_faster_forms_run(check: Check) -> None:
    saved(FLOATS, lambda x: {"y": x * 2})
    assert check("m.onnx", "--strict")[0] == 0
    saved(FLOATS, lambda x: {"y": x * ops.clip(x + 3, 0, 6) / 6})
    loose, strict = check("m.onnx"), check("m.onnx", "--strict")
    assert loose[1] == strict[1]
    assert "fused, folded or left out" in loose[1] or "added: " in loose[1]
    assert (loose[0], strict[0]) == (0, 1)


def test_what_is_computed_otherwise_is_said_with_reason_and_passes(check: Check) -> None:
    types = {"x": TensorType(DType.bfloat16, ["n"]), "i": TensorType(DType.int32, ["n"])}
    saved(types, lambda x, i: {"y": (x + x) + x, "q": i % i})
    status, out, err = check("m.onnx")
    assert (status, err) == (1, "")
    lines = out.splitlines()
    assert lines[0].startswith("Add bfloat16 x2: no kernel; computed in float32 and rounded (")
    passes = lines[lines.index("passes:") + 1 : -2]
    assert "  legalise: every node legal, computed in another dtype, or decomposed" in passes
    assert [line.split(":")[0].strip() for line in passes] == ["legalise", "notes"]
    assert lines[-1].startswith("m.onnx: runs on CPUExecutionProvider; ")


def test_why_a_file_is_loaded_through_a_graph_is_said(check: Check) -> None:
    remaining = "loads through a Graph: NonZero of opset 17"
    for op_type, dtype, item in (
        ("Neg", TensorProto.FLOAT, "loads as it is"),
        ("NonZero", TensorProto.INT64, remaining),
    ):
        result = model([helper.make_node(op_type, ["x"], ["y"])], [value("x")], [value("y", dtype, None)], opset=17)
        Path("m.onnx").write_bytes(result.SerializeToString())
        assert item in check("m.onnx")[1].splitlines()
    assert json.loads(check("m.onnx", "--json")[1])["needs_graph"] == "NonZero of opset 17"


def test_nodes_that_are_lowered_alone_are_told(check: Check) -> None:
    node = helper.make_node("InstanceNormalization", ["x", "scale", "bias"], ["y"])
    inputs = [
        value("x", TensorProto.FLOAT, ["n", 3, "h"]),
        *(value(name, TensorProto.FLOAT, [3]) for name in ("scale", "bias")),
    ]
    result = model([node], inputs, [value("y", TensorProto.FLOAT, None)], opset=17)
    Path("m.onnx").write_bytes(result.SerializeToString())
    lines = check("m.onnx")[1].splitlines()
    assert lines[0].startswith("InstanceNormalization float32 x1: ")
    assert lines[-2] == "loads as it is, but for nodes that are lowered alone"
    assert json.loads(check("m.onnx", "--json")[1])["needs_graph"] is None


def test_version_that_is_newer_than_the_runtime_is_said(check: Check) -> None:
    newest = onnx.defs.onnx_opset_version()
    proto = model([helper.make_node("Neg", ["x"], ["y"])], opset=newest)
    proto.ir_version = onnx.IR_VERSION
    Path("m.onnx").write_bytes(proto.SerializeToString())
    status, out, _ = check("m.onnx")
    is_newer = onnx.IR_VERSION > 13
    assert status == (1 if is_newer or newest > 26 else 0)
    assert (f"IR version {onnx.IR_VERSION}: written anew as 13" in out) == is_newer
    assert (f"opset {newest}: converted to 26" in out) == (newest > 26)


def test_nodes_in_bodies_are_told(check: Check) -> None:
    halves = TensorProto.BFLOAT16
    branch = helper.make_graph([helper.make_node("Add", ["x", "x"], ["o"])], "b", [], [value("o", halves)])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    inputs = [value("x", halves), value("c", TensorProto.BOOL, [])]
    Path("m.onnx").write_bytes(model([node], inputs, [value("y", halves)]).SerializeToString())
    status, out, _ = check("m.onnx")
    assert status == 1
    assert "Add bfloat16 x2: no kernel; computed in float32 and rounded" in out


def test_operators_of_ai_onnx_ml_are_not_custom_ones(check: Check) -> None:
    node = helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[1.0], scale=[2.0])
    proto = model([node], [value("x", TensorProto.FLOAT, [2, 1])], [value("y", TensorProto.FLOAT, [2, 1])])
    proto.opset_import.add(domain="ai.onnx.ml", version=3)
    Path("m.onnx").write_bytes(proto.SerializeToString())
    _, out, _ = check("m.onnx")
    assert "custom" not in out
    assert "ai.onnx.ml.Scaler" in out


@pytest.mark.parametrize("answer", [None, {}, {"status": "0"}, {"status": 0, "lines": "x"}])
def test_answer_of_another_form_is_refused(isolated: Check, monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    monkeypatch.setattr(process, "call", lambda *_: answer)
    status, _, err = isolated("m.onnx")
    assert status == 2
    assert "answered no report" in err


FAILURES = {
    "no such model": (["gone.onnx"], "ModelError: load: gone.onnx is not a file"),
    "no model": (["text.onnx"], "not an ONNX model"),
    "an operator that nothing knows": (["custom.onnx"], "acme"),
    "no such provider": (["m.onnx", "--provider", "abacus"], "RunError"),
}


@pytest.mark.parametrize(("argv", "word"), FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("as_json", [False, True])
def test_status_is_2_when_a_model_cannot_be_read_or_run(
    isolated: Check, argv: list[str], word: str, as_json: bool
) -> None:
    saved(FLOATS, lambda x: {"y": x * 2})
    Path("text.onnx").write_text("no model")
    node = helper.make_node("Frobnicate", ["x"], ["y"], domain="acme")
    Path("custom.onnx").write_bytes(model([node], acme=1).SerializeToString())
    status, out, err = isolated(*argv, *(["--json"] if as_json else []))
    assert status == 2
    assert word in " ".join(map(str, json.loads(out).values())) if as_json else out == ""
    assert word in err
    assert "Traceback" not in err


def test_json_has_what_the_lines_say(check: Check) -> None:
    saved({"x": TensorType(DType.bfloat16, ["n"])}, lambda x: {"y": x + x, "z": ops.reshape(x, [-1, 1])})
    status, out, _ = check("m.onnx", "--json")
    data = json.loads(out)
    assert (status, data["status"], data["model"], data["stamps"]) == (1, 1, "m.onnx", [])
    (change,) = data["changes"]
    assert change["operator"] == "Add"
    assert (change["dtype"], change["count"], change["action"]) == ("bfloat16", 1, "computed in float32 and rounded")
    assert change["made"] == {"Cast": 2, "Add": 1} or change["made"]["Add"] == 1
    assert change["names"] == ["y"]
    assert data["nodes"] == 1 + sum(row["count"] for row in data["kept"])
    assert [step["name"] for step in data["passes"]] == ["legalise", "notes"]


# The report against the graph that runs


def accounted(path: Path) -> None:
    """Check that a report gives each node of a model and each operator of the graph that runs once."""
    session = gc.InferenceSession()
    graph = Graph.load(path)
    lowered = session.load(graph)._lowered
    assert lowered is not None
    result = report(graph, session.target, runtime(), session.optimize)
    read, runs = Counter(map(named, walk(graph))), Counter(map(named, walk(lowered)))
    counts = Counter(result.fused)
    for (op_type, _), count in result.unchanged.items():
        counts[op_type] += count
    for change in result.changes:
        counts[change.op_type] += len(change.names)
        assert change.computed_by, change
        gone = not runs[change.op_type]
        assert not gone or change.op_type not in change.computed_by, change
    assert counts == read
    assert result.count == sum(read.values())
    assert result.operators() == runs


MADE: dict[str, tuple[dict[str, TensorType], Callable[..., dict[str, Any]], int]] = {
    "sigmoid": (FLOATS, lambda x: {"y": ops.sigmoid(x)}, 1),
    "relu": (FLOATS, lambda x: {"y": ops.relu(x)}, 0),
    "softmax": (FLOATS, lambda x: {"y": ops.softmax(x)}, 0),
    "product": (FLOATS, lambda x: {"y": x @ x.graph.constant(np.ones((4, 3), np.float32)) + 1}, 0),
    "shifts": ({"x": TensorType(DType.uint8, [4])}, lambda x: {"y": x >> 9}, 0),
    "narrow": ({"x": TensorType(DType.float8_e4m3fn, [4])}, lambda x: {"y": x + x}, 1),
    "wide": ({"x": TensorType(DType.float64, [4])}, lambda x: {"y": ops.tan(x)}, 1),
    "division": ({"x": TensorType(DType.int32, [4])}, lambda x: {"y": x // (x + 1)}, 1),
    "odd": ({"x": TensorType(DType.int16, [4])}, lambda x: {"y": x * x, "z": ops.abs(x)}, 0),
    "sum": ({"x": TensorType(DType.int8, [4, 2])}, lambda x: {"y": x.sum(axis=0)}, 1),
    "gelu": (FLOATS, lambda x: {"y": x * 0.5 * (1 + ops.erf(x * 0.7071067690849304))}, 0),
}


@pytest.mark.parametrize("name", MADE)
def test_report_accounts_for_all_that_runs(check: Check, name: str) -> None:
    types, make, expected = MADE[name]
    saved(types, make)
    accounted(Path("m.onnx"))
    status, out, _ = check("m.onnx")
    assert status == expected, out


@pytest.mark.parametrize("name", [name for name, (_, _, status) in MADE.items() if status == 0])
def test_numbers_are_onnxruntimes_own_when_the_status_is_0(check: Check, name: str) -> None:
    types, make, _ = MADE[name]
    saved(types, make)
    size = 4 if types["x"].rank == 1 else 12
    x = np.linspace(0, 3, size).astype(types["x"].dtype.numpy).reshape(-1, 4)[0 if size == 4 else ...]
    alone = onnxruntime.InferenceSession("m.onnx", providers=["CPUExecutionProvider"]).run(None, {"x": x})
    for ours, theirs in zip(gc.InferenceSession(optimize="off").load("m.onnx")(x), alone, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("package", PACKAGES)
def test_report_accounts_for_all_that_runs_of_models_of_a_package(package: str) -> None:
    read = []
    for path in models(package, 8 << 20):
        with contextlib.suppress(ModelError):  # what is not read is not checked
            read.append((path, Graph.load(path)))
    for path, _ in read:
        accounted(path)
    assert read


@pytest.mark.parametrize(
    "package", [pytest.param(name, marks=pytest.mark.full) if name == "speechmos" else name for name in PACKAGES]
)
def test_numbers_of_models_of_a_package_are_onnxruntimes_own_when_the_status_is_0(package: str) -> None:
    for path in models(package, 3 << 20):
        with contextlib.suppress(ModelError, RunError):  # not read, or not run on what random sizes make
            graph = Graph.load(path)
            if report(graph, "cpu", runtime()).changes:
                continue
            loaded = gc.InferenceSession(optimize="off").load(graph)
            feeds = random_feeds(loaded.inputs, {}, 0)
            ours = loaded(**feeds)
            alone = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            for mine, theirs in zip(ours, alone.run(list(loaded.outputs), feeds), strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6, err_msg=str(path))
