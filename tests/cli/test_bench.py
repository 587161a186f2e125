"""`graphcore bench` and `graphcore compare` on trained models."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from graphcore import DType, Graph, TensorType
from graphcore.cli import arrays
from graphcore.cli.arguments.options import LinkArguments
from graphcore.cli.commands import bench
from graphcore.cli.commands.bench import BenchRow, Latency, MemoryRequest, in_turns, peak, ratio, svg
from tests.cli.conftest import Call
from tests.support.trained import Trained

Document = Callable[..., Any]

QUICK = ("--seconds", "0.02", "--no-memory")


@pytest.mark.full
def test_bench_measures_both_sides_by_threads_and_batch(document: Document, magika: Trained) -> None:
    result = document("bench", magika.file(), *QUICK, "--threads", "1,2", "--batch", "1,3", "--plot", "b.svg")
    assert [(row["threads"], row["batch"]) for row in result["rows"]] == [(1, 1), (1, 3), (2, 1), (2, 3)]
    for row in result["rows"]:
        for side in ("graphcore", "onnxruntime"):
            figures = row[side]
            assert 0 < figures["best_ms"] <= figures["p50_ms"] <= figures["p90_ms"] <= figures["p99_ms"]
            assert figures["calls"] >= 5
            assert figures["rows_per_second"] == pytest.approx(row["batch"] / figures["mean_ms"] * 1e3)
        assert row["graphcore"]["calls"] == row["onnxruntime"]["calls"]
        assert row["ratio"] > 0
    assert result["memory"] is None
    picture = ElementTree.parse("b.svg").getroot()
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    texts = "".join(picture.itertext())
    assert "2 threads, batch 3" in texts
    assert "onnxruntime alone" in texts


def test_bench_prints_a_table(call: Call, magika: Trained) -> None:
    status, out, err = call("bench", magika.file(), *QUICK)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["side", "p50", "ms", "p90", "p95", "p99", "best", "rows/s", "ratio"]
    assert [line.split()[2 if i == 0 else 0] for i, line in enumerate(lines[1:3])] == ["graphcore", "onnxruntime"]


@pytest.mark.parametrize(
    ("flags", "seconds", "shape", "recommends"),
    [
        ({"avx512_bf16"}, 0.02, [4, 4], True),
        (set(), 0.02, [4, 4], False),
        ({"avx512_bf16"}, 0.001, [4, 4], False),
        ({"avx512_bf16"}, 0.02, [4], False),
    ],
)
def test_bench_recommends_openvino_for_slow_products_where_the_processor_multiplies_bfloat16(
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    flags: set[str],
    seconds: float,
    shape: list[int],
    recommends: bool,
) -> None:
    graph = Graph("model", {"x": TensorType(DType.float32, shape)})
    x = graph["x"]
    graph.output(x @ (x + 1) if len(shape) == 2 else x + 1)
    graph.export(tmp_path / "model.onnx")
    monkeypatch.setattr(bench, "processor_flags", lambda: frozenset(flags))
    monkeypatch.setattr(bench, "in_turns", lambda calls, *_: [Latency((seconds,) * 3) for _ in calls])
    status, out, _ = call("bench", str(tmp_path / "model.onnx"), *QUICK)
    assert status == 0
    assert ("--provider openvino --precision fast" in out) == recommends


@pytest.mark.full
def test_bench_measures_memory_in_processes_of_their_own(document: Document, magika: Trained) -> None:
    result = document("bench", magika.file(), "--seconds", "0.01")
    weights = 3_000_000
    assert result["memory"]["graphcore"] is None or weights / 2 < result["memory"]["graphcore"] < 1 << 30
    assert result["memory"]["onnxruntime"] is None or weights / 2 < result["memory"]["onnxruntime"] < 1 << 30


def test_bench_memory_sides(document: Document, magika: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "peak", lambda request: 1 if request.alone else 2)
    result = document("bench", magika.file(), "--seconds", "0.01")
    assert result["memory"] == {"graphcore": 2, "onnxruntime": 1}


def test_peak_of_a_small_model(tmp_path: Path) -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, [4])})
    graph.output(y=-graph["x"])
    graph.export(tmp_path / "m.onnx")
    arrays.write(str(tmp_path / "feeds.npz"), {"x": np.ones(4, np.float32)})
    links: LinkArguments = {"external_data": "plain", "external_data_root": None}
    request = MemoryRequest(str(tmp_path / "m.onnx"), str(tmp_path / "feeds.npz"), True, "cpu", "exact", 1, links)
    result = peak(request)
    assert result is None or 0 <= result < 1 << 30


def test_bench_goes_on_alone_when_onnxruntime_refuses_the_file(call: Call, document: Document) -> None:
    call("doctor")
    graph = Graph("g", {"x": TensorType(DType.bfloat16, [4])})
    graph.output(y=graph["x"] * graph["x"])
    graph.export("m.onnx", target="onnx")
    (row,) = document("bench", "m.onnx", *QUICK)["rows"]
    assert row["onnxruntime"] is None
    assert row["ratio"] is None
    assert row["reason"]
    assert "onnxruntime alone does not run it: " in call("bench", "m.onnx", *QUICK, "--plot", "p.svg")[1]
    assert "refused" in Path("p.svg").read_text()


def test_bench_refuses_a_batch_when_the_dim_is_fixed(call: Call) -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, [4])})
    graph.output(y=-graph["x"])
    graph.export("m.onnx")
    status, out, err = call("bench", "m.onnx", *QUICK, "--batch", "2")
    assert (status, out) == (1, "")
    assert "the first dim of the first input is 4, not a name" in err
    assert "graphcore set-dims" in err


def test_bench_writes_no_picture_when_the_folder_is_missing(call: Call, magika: Trained) -> None:
    status, _, err = call("bench", magika.file(), *QUICK, "--plot", "no/b.svg")
    assert status == 1
    assert "no/b.svg cannot be written" in err


def test_calls_take_turns() -> None:
    order: list[str] = []
    results = in_turns([lambda: order.append("a"), lambda: order.append("b")], 1e-9, lambda passed: None)
    assert "".join(order) == "aabb" + "ab" + "ba" + "ab" + "ba" + "ab"
    assert [len(each.seconds) for each in results] == [5, 5]


def test_percentiles_are_of_the_calls() -> None:
    latency = Latency(tuple(i / 1000 for i in range(101)))
    assert latency.as_dict() == pytest.approx(
        {"p50_ms": 50, "p90_ms": 90, "p95_ms": 95, "p99_ms": 99, "best_ms": 0, "mean_ms": 50, "calls": 101}
    )
    assert ratio(Latency((2.0, 4.0, 9.0)), Latency((1.0, 2.0, 3.0))) == 2.0


def test_picture_escapes_names() -> None:
    latency = Latency((0.001, 0.002))
    text = svg("<script>\x1b", [BenchRow(1, 1, False, latency, None, "")])
    assert "<script>" not in text
    assert "\\x1b" in "".join(ElementTree.fromstring(text).itertext())


# compare


@pytest.mark.full
def test_compare_measures_forms_beside_the_exact_model(document: Document, magika: Trained) -> None:
    result = document("compare", magika.file(), "--seconds", "0.02", "--provider", "cpu")
    forms = {(each["kind"], each["name"]): each for each in result["forms"]}
    assert [*forms] == [
        ("precision", "exact"), ("precision", "fast"), ("dtype", "float16"), ("dtype", "bfloat16"),
        ("scheme", "int8_dynamic"), ("scheme", "int8"), ("scheme", "int4"),
    ]  # fmt: skip
    assert forms["precision", "exact"]["absolute"] == 0.0
    for each in forms.values():
        assert each["reason"] == ""
        assert each["cosine"] > 0.9
        assert each["ratio"] > 0
        assert set(each["outputs"]) == {"target_label"}
    assert 0 < forms["dtype", "float16"]["absolute"] < forms["dtype", "bfloat16"]["absolute"]
    assert forms["dtype", "float16"]["weights"] < 0.6 * result["weights"]
    assert forms["scheme", "int8"]["weights"] < result["weights"]


def test_compare_makes_only_the_forms_that_are_named(document: Document, magika: Trained) -> None:
    result = document("compare", magika.file(), "--seconds", "0.01", "--provider", "cpu", "--dtype", "float64")
    assert [each["name"] for each in result["forms"]] == ["exact", "float64"]


def test_compare_gives_the_reason_when_a_form_cannot_be_made(call: Call, document: Document, silero: Trained) -> None:
    argv = (
        "compare",
        silero.file(),
        "--seconds",
        "0.01",
        "--input",
        "sr=16000",
        "--dim",
        "sequence=576",
        "--provider",
        "abacus",
    )
    result = document(*argv, "--provider", "cpu", "--scheme", "int3", "--dtype", "float99")
    reasons = {(each["provider"], each["name"]): each["reason"] for each in result["forms"]}
    assert "abacus" in reasons["abacus", "exact"]
    assert "int3" in reasons["cpu", "int3"]
    assert "float99" in reasons["cpu", "float99"]
    assert reasons["cpu", "exact"] == ""
    out = call(*argv, "--scheme", "int3")[1]
    assert "abacus int3: " in out


def test_compare_counts_what_differs_in_integers(call: Call, document: Document) -> None:
    call("doctor")
    graph = Graph("g", {"x": TensorType(DType.float32, [64, 64])})
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    graph.output(y=(graph["x"] @ graph.weight("w", w)).argmax(axis=1))
    graph.export("m.onnx", target="onnx")
    result = document("compare", "m.onnx", "--seconds", "0.01", "--provider", "cpu", "--scheme", "int4")
    distance = result["forms"][1]["outputs"]["y"]
    assert distance["size"] == 64
    assert not math.isnan(distance["absolute"])
