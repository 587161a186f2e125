"""`gc.mixed_precision`: the dtypes of layers within an error budget, and the reasons of those that stay wide."""

from __future__ import annotations

import json
import math
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, MixedPrecision, Symbol, TensorType, ops
from graphcore.errors import ExportError, FeedError, GraphError
from graphcore.ir.symbol import Constant
from tests.support.graphs import Array

D, F32 = DType.float32, np.float32
FLOATS = ("float16", "bfloat16")


def weight(graph: Graph, name: str, *shape: int) -> Symbol:
    random = np.random.default_rng(len(name) + shape[0])
    return graph.weight(name, (random.standard_normal(shape) / np.sqrt(shape[0])).astype(F32))


def samples(*shape: int, count: int = 3, scale: float = 1.0) -> list[dict[str, Array]]:
    random = np.random.default_rng(7)
    return [{"x": (scale * random.standard_normal(shape)).astype(F32)} for _ in range(count)]


def perceptron(layers: int = 4, width: int = 32) -> Graph:
    graph = Graph("perceptron", {"x": TensorType(D, ["n", width])})
    x = graph[0]
    for i in range(layers):
        with graph.layer(f"layer{i}"):
            x = ops.tanh(x @ weight(graph, f"w{i}", width, width) + weight(graph, f"b{i}", width))
    graph.output(y=x)
    return graph


def planted() -> Graph:
    """A layer that overflows float16, one that underflows, one that cancels, between harmless ones."""
    graph = Graph("planted", {"x": TensorType(D, ["n", 32])})
    with graph.layer("first"):
        h = ops.tanh(graph[0] @ weight(graph, "w1", 32, 64))
    with graph.layer("large"):
        large = ops.log((h * h + 1.0) * 3e5)
    with graph.layer("small"):
        small = ops.sqrt((h * h + 0.5) * 1e-9) * 1e4
    with graph.layer("close"):
        close = ((h * 0.1 + 10.0) - 10.0) * 10.0
    with graph.layer("last"):
        y = ops.concat([large * 0.01, small, close], axis=1) @ weight(graph, "w2", 192, 64)
    graph.output(y=y)
    return graph


def planted_in_float64(graph: Graph, x: Array) -> Array:
    w1, w2 = (array_of(graph, name).astype(np.float64) for name in ("w1", "w2"))
    h = np.tanh(x.astype(np.float64) @ w1)
    parts = [np.log((h * h + 1.0) * 3e5) * 0.01, np.sqrt((h * h + 0.5) * 1e-9) * 1e4, h]
    return np.asarray(np.concatenate(parts, axis=1) @ w2)


def array_of(graph: Graph, name: str) -> Array:
    producer = graph.weights[name].producer
    assert isinstance(producer, Constant)
    return producer.array


def outputs(graph: Graph, feeds: list[dict[str, Array]], **options: Any) -> list[list[Array]]:
    model = gc.InferenceSession(precision="exact", **options).load(graph)
    return [[*model(**feed)] for feed in feeds]


def relative(expected: list[Array], measured: list[Array]) -> float:
    change = sum(float(np.square(b.astype(np.float64) - a).sum()) for a, b in zip(expected, measured, strict=True))
    return math.sqrt(change / sum(float(np.square(a.astype(np.float64)).sum()) for a in expected))


def rows(result: MixedPrecision) -> dict[str, Any]:
    return {row.layer: row for row in result.report}


def text(graph: Graph) -> str:
    """The nodes and weights of a graph, without source lines."""
    return re.sub(r" *#.*", "", str(graph))


# Faults


def test_faults_are_named_with_their_ranges() -> None:
    feeds = samples(4, 32)
    result = gc.mixed_precision(planted(), feeds, max_error=1e-3, dtypes=["float16"])
    by_layer = rows(result)
    h = np.tanh(np.concatenate([f["x"] for f in feeds]).astype(np.float64) @ array_of(planted(), "w1"))
    assert {name: row.reason.partition(":")[0] for name, row in by_layer.items() if row.reason} == {
        "large": "overflow", "small": "underflow", "close": "cancellation",
    }  # fmt: skip
    assert [row.dtype for row in result.report] == ["float16", *["float32"] * 3, "float16", "float16"]
    (high,) = re.findall(r"gives large/mul_\d+ up to (\S+), float16 ends at 65504", by_layer["large"].reason)
    assert float(high) == pytest.approx(((h * h + 1.0) * 3e5).max(), rel=0.01)
    (low,) = re.findall(r"gives small/mul_\d+ down to (\S+), 100% of it becomes 0", by_layer["small"].reason)
    assert float(low) == pytest.approx(((h * h + 0.5) * 1e-9).min(), rel=0.01)
    (rest,) = re.findall(r"Sub of numbers up to 10.1 gives close/sub_\d+ up to (\S+)", by_layer["close"].reason)
    assert float(rest) == pytest.approx(np.abs(h * 0.1).max(), rel=0.01)
    assert by_layer["large"].error == math.inf
    assert by_layer["first"].range in ("measured", "proved")


def test_ranges_are_proved_by_bounds() -> None:
    feeds = samples(4, 32)
    result = gc.mixed_precision(planted(), feeds, max_error=1e-2, dtypes=FLOATS)
    ranges = {row.layer: row.range for row in result.report}
    # The sums of the magnitudes of w1, times those of x, are far below 65504; a logarithm of 0 is not excluded.
    assert (ranges["first"], ranges["large"], ranges["close"]) == ("proved", "measured", "")
    quantized = gc.mixed_precision(planted(), feeds, max_error=1e-1)
    assert rows(quantized)["first"].weights  # its weights are not those that bounds know
    assert "proved" not in {row.range for row in quantized.report}


def test_another_dtype_of_floats_takes_what_the_first_cannot() -> None:
    result = gc.mixed_precision(planted(), samples(4, 32), max_error=5e-3, dtypes=FLOATS)
    by_layer = rows(result)
    assert (by_layer["large"].dtype, by_layer["small"].dtype, by_layer["close"].dtype) == (
        "bfloat16", "bfloat16", "float32",
    )  # fmt: skip
    assert by_layer["large"].reason.startswith("overflow")
    assert {s.dtype for s in result.graph.symbols} == {DType.float32, DType.float16, DType.bfloat16}


@pytest.mark.parametrize("max_error", [1e-1, 1e-2, 2e-3, 1e-4])
def test_the_error_is_within_the_budget_beside_float64(max_error: float) -> None:
    graph, feeds = planted(), samples(4, 32)
    result = gc.mixed_precision(graph, feeds, max_error=max_error)
    exact = [planted_in_float64(graph, feed["x"]) for feed in feeds]
    error = relative(exact, [each for (each,) in outputs(result.graph, feeds)])
    assert result.met
    assert result.error <= max_error
    assert error == pytest.approx(result.error, rel=0.05, abs=1e-5)  # the rest is the error of float32


def test_a_narrow_layer_has_the_bits_of_its_dtype() -> None:
    graph = Graph("product", {"x": TensorType(D, ["n", 32])})
    graph.output(y=ops.maximum(graph[0] * 3.3, graph[0]))
    (feed,) = samples(5, 32, count=1)
    for dtype, kind in (("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)):
        result = gc.mixed_precision(graph, [feed], max_error=1, dtypes=[dtype])
        x = feed["x"].astype(kind)
        product = (x.astype(F32) * kind(3.3).astype(F32)).astype(kind)
        np.testing.assert_array_equal(outputs(result.graph, [feed])[0][0], np.maximum(product, x).astype(F32))


# The search


def test_a_larger_budget_never_costs_more_and_zero_changes_nothing() -> None:
    graph, feeds = perceptron(), samples(4, 32)
    results = [gc.mixed_precision(graph, feeds, max_error=e) for e in (0, 1e-3, 1e-2, 3e-1)]
    after = [sum(row.after for row in result.report) for result in results]
    assert after == sorted(after, reverse=True)
    assert after[0] == sum(row.before for row in results[0].report) == 4 * (32 * 32 + 32) * 4
    assert results[0].error == 0
    assert text(results[0].graph) == text(graph)
    assert {row.weights for row in results[-1].report} == {"int4"}
    assert after[-1] < after[0] / 5


def test_the_bytes_of_rows_are_those_of_the_graph() -> None:
    for max_error in (1e-3, 1e-1):
        result = gc.mixed_precision(perceptron(), samples(4, 32), max_error=max_error)
        arrays = [s.producer.array for s in result.graph.symbols if isinstance(s.producer, Constant)]
        assert sum(row.before for row in result.report) == 16896
        assert sum(row.after for row in result.report) == sum(array.nbytes for array in arrays)


def test_shared_weights_count_once_in_each_form() -> None:
    graph = Graph("tied", {"x": TensorType(D, ["n", 32])})
    x, w = graph[0], weight(graph, "w", 32, 32)
    for i in range(3):
        with graph.layer(f"layer{i}"):
            x = ops.tanh(x @ w) if i != 1 else ops.log(ops.exp(x @ w) * 1e6)
    graph.output(y=x)
    for dtypes, forms in ((["float16"], {"float16", "float32"}), (["float16", "int8"], {"", "int8"})):
        result = gc.mixed_precision(graph, samples(4, 32), max_error=2e-3 if len(dtypes) == 1 else 3e-2, dtypes=dtypes)
        assert {row.dtype if len(dtypes) == 1 else row.weights for row in result.report} <= {*forms, "float32"}
        arrays = [s.producer.array for s in result.graph.symbols if isinstance(s.producer, Constant)]
        assert sum(row.after for row in result.report) == sum(array.nbytes for array in arrays)
        assert [row.before for row in result.report if row.before > 8] == [4096]


def test_a_budget_that_nothing_meets_gives_the_best() -> None:
    graph, feeds = perceptron(), samples(4, 32)
    result = gc.mixed_precision(graph, feeds, max_error=0.1, metric=lambda expected, outputs: 1.0)
    assert (result.met, result.error) == (False, 1.0)
    assert text(result.graph) == text(graph)
    assert "NOT within 0.1" in str(result)


def test_results_are_the_same_every_time() -> None:
    first, second = (gc.mixed_precision(perceptron(), samples(4, 32), max_error=2e-3) for _ in range(2))
    assert first.report == second.report
    assert (first.curve, first.runs, first.error) == (second.curve, second.runs, second.error)
    assert text(first.graph) == text(second.graph)


@pytest.mark.parametrize("layers", [1, 6])
@pytest.mark.parametrize("max_error", [1e-5, 1e-2])
def test_the_number_of_runs_is_linear(layers: int, max_error: float) -> None:
    result = gc.mixed_precision(perceptron(layers), samples(2, 32), max_error=max_error)
    assert result.runs <= 5 * layers * 4 + 3


def test_one_bad_layer_of_many_takes_a_logarithm_of_runs() -> None:
    graph = Graph("many", {"x": TensorType(D, ["n", 8])})
    x = graph[0]
    for i in range(32):
        with graph.layer(f"layer{i}"):
            x = ops.log(ops.exp(x) * 1e6) - math.log(1e6) if i == 19 else ops.maximum(x * 1.0, -100.0)
    graph.output(y=x)
    trials: list[int] = []
    result = gc.mixed_precision(
        graph,
        samples(2, 8),
        max_error=5e-3,
        dtypes=["float16"],
        metric=lambda a, b: trials.append(1) or _first(a, b),  # type: ignore[func-returns-value]
    )
    assert [row.layer for row in result.report if row.dtype == "float32"] == ["layer19"]
    assert result.runs - 32 <= 5 * 6  # without the errors of layers alone


def _first(expected: list[list[Array]], measured: list[list[Array]]) -> float:
    error = relative([run[0] for run in expected], [run[0] for run in measured])
    return math.inf if math.isnan(error) else error


def test_the_curve_is_of_the_best_trials() -> None:
    result = gc.mixed_precision(perceptron(), samples(4, 32), max_error=2e-3)
    errors, costs = zip(*result.curve, strict=True)
    assert list(costs) == sorted({*costs})
    assert list(errors) == sorted({*errors}, reverse=True)
    assert errors[-1] == 0
    assert costs[-1] == sum(row.before for row in result.report)


# Resuming


class Stopping:
    """A metric that stops the search after some trials."""

    def __init__(self, after: float) -> None:
        self.after = after

    def __call__(self, expected: list[list[Array]], measured: list[list[Array]]) -> float:
        self.after -= 1
        if self.after < 0:
            raise KeyboardInterrupt
        return _first(expected, measured)


@pytest.mark.parametrize("after", [1, 5, 12])
def test_a_search_that_was_stopped_continues(after: int, tmp_path: Path) -> None:
    graph, feeds, path = perceptron(), samples(4, 32), tmp_path / "trials.json"
    whole = gc.mixed_precision(graph, feeds, max_error=1e-3, metric=Stopping(math.inf))
    with pytest.raises(KeyboardInterrupt):
        gc.mixed_precision(graph, feeds, max_error=1e-3, metric=Stopping(after), resume=path)
    rest = gc.mixed_precision(graph, feeds, max_error=1e-3, metric=Stopping(math.inf), resume=path)
    assert rest.runs == whole.runs - after
    assert rest.report == whole.report
    assert (rest.curve, text(rest.graph)) == (whole.curve, text(whole.graph))
    again = gc.mixed_precision(graph, feeds, max_error=1e-3, metric=Stopping(0), resume=path)
    assert (again.runs, again.report) == (0, whole.report)
    assert [p.name for p in tmp_path.iterdir()] == ["trials.json"]


def test_trials_are_those_of_one_graph_its_samples_and_options(tmp_path: Path) -> None:
    path, feeds = tmp_path / "trials.json", samples(4, 32)
    first = gc.mixed_precision(perceptron(2), feeds, max_error=1e-3, resume=path)
    assert gc.mixed_precision(perceptron(2), feeds, max_error=1e-3, resume=path).runs == 0
    others: list[Callable[[], MixedPrecision]] = [
        lambda: gc.mixed_precision(perceptron(3), feeds, max_error=1e-3, resume=path),
        lambda: gc.mixed_precision(perceptron(2), feeds[1:], max_error=1e-3, resume=path),
        lambda: gc.mixed_precision(perceptron(2), feeds, max_error=1e-3, metric="max", resume=path),
        lambda: gc.mixed_precision(perceptron(2), feeds, max_error=1e-3, keep_io=False, resume=path),
        lambda: gc.mixed_precision(perceptron(2), feeds, max_error=1e-3, keep="w1", resume=path),
    ]
    assert all(other().runs > 0 for other in others)
    assert len(json.loads(path.read_text())) == 6
    assert gc.mixed_precision(perceptron(2), feeds, max_error=1e-3, resume=path).report == first.report


def test_a_file_without_trials_is_an_error_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    for text in ("{", "[1]", '{"a": {"b": 1}}'):
        path.write_text(text)
        with pytest.raises(GraphError, match="has no trials"):
            gc.mixed_precision(perceptron(1), samples(4, 32), max_error=1e-3, resume=path)
        assert path.read_text() == text
    with pytest.raises(ExportError, match="cannot be written"):
        gc.mixed_precision(perceptron(1), samples(4, 32), max_error=1e-3, resume=tmp_path / "no" / "t.json")


# Bodies and functions


def with_loop() -> Graph:
    graph = Graph("loop", {"x": TensorType(D, [4, 32]), "flag": TensorType(DType.bool, [])})
    w = weight(graph, "w", 32, 32)

    def body(i: Symbol, state: Symbol) -> Symbol:
        with i.graph.layer("step"):
            return ops.tanh(state @ w)

    def large(x: Symbol) -> Symbol:
        return ops.log(ops.exp(x) * 1e6)

    looped = ops.for_loop(3, body, graph[0])
    graph.output(y=ops.cond(graph["flag"], lambda: large(looped), lambda: looped * 2.0))
    return graph


def test_layers_in_bodies_are_found() -> None:
    graph = with_loop()
    feeds = [{**feed, "flag": np.array(flag)} for feed in samples(4, 32) for flag in (True, False)]
    result = gc.mixed_precision(graph, feeds, max_error=5e-3)
    by_layer = rows(result)
    inner = {name: row for name, row in by_layer.items() if "/" in name}
    assert any("MatMul" in row.operators and row.dtype == "float16" for row in inner.values())
    assert any(row.dtype in ("float32", "bfloat16") for row in inner.values() if {"Mul", "Log"} & {*row.operators})
    assert {row.reason for row in inner.values() if row.error == math.inf or row.dtype == "bfloat16"} == {
        "its values are in a body, and not measured"
    }
    assert result.met
    expected, measured = outputs(graph, feeds), outputs(result.graph, feeds)
    assert relative([e for (e,) in expected], [m for (m,) in measured]) == pytest.approx(result.error, rel=1e-5)


def test_functions_are_inlined() -> None:
    @gc.function
    def block(x: Symbol, w: Symbol) -> Symbol:
        return ops.tanh(x @ w)

    graph = Graph("functions", {"x": TensorType(D, ["n", 32])})
    x = graph[0]
    for i in range(3):
        with graph.layer(f"block{i}"):
            x = block(x, weight(graph, f"w{i}", 32, 32))
    graph.output(y=x)
    result = gc.mixed_precision(graph, samples(4, 32), max_error=2e-3)
    assert {row.dtype for row in result.report} == {"float16"}
    assert [row.before for row in result.report if row.before] == [4096] * 3


def test_buffers_keep_their_dtype_and_samples_are_one_sequence_of_calls() -> None:
    graph = Graph("sums", {"x": TensorType(D, [4, 32]), "total": gc.Buffer(D, [4, 32])})
    graph["total"] += ops.tanh(graph["x"] @ weight(graph, "w", 32, 32))
    graph.output(y=graph["total"] * 0.5)
    feeds = samples(4, 32)
    result = gc.mixed_precision(graph, feeds, max_error=1e-2)
    assert result.graph.buffers["total"].buffer.type.dtype is D
    assert "float16" in {row.dtype for row in result.report}
    expected, measured = ([each for (each,) in outputs(g, feeds)] for g in (graph, result.graph))
    assert relative(expected, measured) == pytest.approx(result.error, rel=1e-6)
    w = array_of(graph, "w").astype(np.float64)
    exact = np.cumsum([np.tanh(feed["x"] @ w) for feed in feeds], axis=0) * 0.5
    np.testing.assert_allclose(measured, exact, atol=2e-2)


def test_imported_models_are_measured_with_exact_numbers(tmp_path: Path) -> None:
    """By default a session leaves float16 of imported models to kernels, which may keep more digits."""
    perceptron().export(tmp_path / "m.onnx", target="onnx")
    graph, feeds = Graph.load(tmp_path / "m.onnx"), samples(4, 32)
    result = gc.mixed_precision(graph, feeds, max_error=1e-2)
    built = gc.mixed_precision(perceptron(), feeds, max_error=1e-2)
    assert result.error == pytest.approx(built.error, rel=1e-6)
    assert [row.dtype for row in result.report] == [row.dtype for row in built.report]


# Metrics, costs, inputs and outputs


@pytest.mark.parametrize("metric", ["relative", "max", "cosine"])
def test_metrics_beside_numpy(metric: str) -> None:
    graph = Graph("two", {"x": TensorType(D, ["n", 32])})
    w = weight(graph, "w", 32, 32)
    graph.output(y=graph[0] @ w, z=ops.exp(graph[0] @ w), i=ops.argmax(graph[0], axis=1))
    feeds = samples(4, 32)
    result = gc.mixed_precision(graph, feeds, max_error=9.0, metric=metric)
    assert {row.weights for row in result.report if row.before} == {"int4"}
    places = []
    for i in range(2):
        a, b = ([run[i].astype(np.float64) for run in outputs(g, feeds)] for g in (graph, result.graph))
        p, q = (np.concatenate(each).reshape(-1) for each in (a, b))
        places.append(
            {
                "relative": relative(a, b),
                "max": np.abs(p - q).max(),
                "cosine": 1 - p @ q / np.linalg.norm(p) / np.linalg.norm(q),
            }[metric]
        )
    assert result.error == pytest.approx(max(places), rel=1e-4)


def test_a_function_as_metric_gets_all_outputs_of_each_sample() -> None:
    graph = Graph("labels", {"x": TensorType(D, ["n", 32])})
    graph.output(label=ops.argmax(graph[0] @ weight(graph, "w", 32, 32), axis=1))
    seen: list[tuple[int, int]] = []

    def disagreement(expected: list[list[Array]], measured: list[list[Array]]) -> float:
        seen.append((len(expected), len(expected[0])))
        return float(np.mean([a[0] != b[0] for a, b in zip(expected, measured, strict=True)]))

    result = gc.mixed_precision(graph, samples(16, 32), max_error=0.02, metric=disagreement)
    assert result.met
    assert {*seen} == {(3, 1)}
    with pytest.raises(GraphError, match="no output of floats"):
        gc.mixed_precision(graph, samples(16, 32), max_error=0.02)


def test_the_cost_may_be_flops_or_time() -> None:
    graph, feeds = perceptron(2), samples(4, 32)
    flops = gc.mixed_precision(graph, feeds, max_error=1e-2, cost="flops")
    assert {(row.dtype, row.weights) for row in flops.report} == {("float16", "")}  # weights alone save no operations
    assert flops.curve[0][1] == flops.curve[-1][1] / 2
    assert flops.curve[-1][1] >= 2 * (2 * 4 * 32 * 32)
    timed = gc.mixed_precision(graph, feeds, max_error=1e-2, cost="time")
    assert timed.error <= 1e-2
    assert all(cost > 0 for _, cost in timed.curve)


def test_inputs_and_outputs_keep_their_dtypes_unless_told() -> None:
    graph, feeds = perceptron(2), samples(4, 32)
    same = gc.mixed_precision(graph, feeds, max_error=1e-2)
    assert [s.dtype for s in (*same.graph.inputs, *same.graph.outputs)] == [D, D]
    assert same.graph.outputs.names == graph.outputs.names
    moved = gc.mixed_precision(graph, feeds, max_error=1e-2, keep_io=False)
    assert [s.dtype for s in (*moved.graph.inputs, *moved.graph.outputs)] == [DType.float16] * 2
    halves = [{"x": feed["x"].astype(np.float16)} for feed in feeds]
    measured = [m for (m,) in outputs(moved.graph, halves)]
    assert relative([e for (e,) in outputs(graph, feeds)], measured) == pytest.approx(moved.error, rel=1e-6)
    with pytest.raises(GraphError, match="keep_io=False needs a dtype of floats"):
        gc.mixed_precision(graph, feeds, max_error=1e-2, keep_io=False, dtypes=["int8"])


def test_patterns_stay_wide() -> None:
    result = gc.mixed_precision(perceptron(3), samples(4, 32), max_error=1, keep=["layer1", "w2"])
    assert [row.layer for row in result.report] == ["layer0", "layer2"]
    assert [row.weights for row in result.report] == ["int4", ""]
    assert result.graph.weights["w2"].dtype is D
    with pytest.raises(GraphError, match="no operator, layer or value matches 'layer9'"):
        gc.mixed_precision(perceptron(3), samples(4, 32), max_error=1, keep="layer9")


def test_a_session_and_progress(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[tuple[int, int | None]] = []
    session = gc.InferenceSession(precision="exact", intra_op_num_threads=1)
    graph, feeds = perceptron(2), samples(4, 32)
    gc.mixed_precision(graph, feeds, max_error=1e-4, session=session, progress=lambda *each: calls.append(each))
    assert calls == [(i, 10) for i in range(1, 11)]
    gc.mixed_precision(graph, feeds, max_error=9, progress=lambda *each: calls.append(each))  # all fits at once
    assert calls[10:] == calls[:10]
    gc.mixed_precision(graph, feeds, max_error=1e-4, progress=True)
    assert "10/10 decisions" in capsys.readouterr().err


# Reports


def test_the_report_as_text_html_json_and_svg(tmp_path: Path) -> None:
    result = gc.mixed_precision(planted(), samples(4, 32), max_error=5e-3)
    lines = str(result).split("\n")
    assert len(lines) == 2 + len(result.report)
    assert lines[0].split()[:3] == ["layer", "operators", "dtype"]
    assert re.fullmatch(r"5 of 6 layers narrow, 57.4 kB to \S+ kB, error 0.00\d+, within 0.005; \d+ runs", lines[-1])
    assert "<td><code>close</code></td>" in result._repr_html_()
    assert json.loads(json.dumps(result.as_dicts()))[3]["reason"].startswith("cancellation")
    result.plot(tmp_path / "curve.svg")
    root = ET.parse(tmp_path / "curve.svg").getroot()
    circles = [*root.iter("{http://www.w3.org/2000/svg}circle")]
    assert len(circles) == len(result.curve)
    heights = [float(circle.attrib["cy"]) for circle in circles]
    assert heights == sorted(heights)
    with pytest.raises(ExportError, match="cannot be written"):
        result.plot(tmp_path / "no" / "curve.svg")


def test_a_plot_of_a_single_point_and_of_no_budget(tmp_path: Path) -> None:
    graph = Graph("relu", {"x": TensorType(D, [4])})
    graph.output(y=ops.relu(graph[0]))
    ones = [{"x": np.array([1, 2, 3, 4], F32)}] * 2
    result = gc.mixed_precision(graph, ones, max_error=0, dtypes=["float16"])
    assert (result.curve[-1][0], [row.dtype for row in result.report]) == (0, ["float16"])
    result.plot(tmp_path / "point.svg")
    assert ET.parse(tmp_path / "point.svg").getroot() is not None


# Invalid arguments and samples


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_error": -1}, "max_error must be a number of at least 0, got -1"),
        ({"max_error": float("nan")}, "max_error must be a number of at least 0, got nan"),
        ({"max_error": True}, "max_error must be"),
        ({"dtypes": ["float8"]}, "there is no dtype 'float8'"),
        ({"dtypes": []}, r"there is no dtype '\[\]'"),
        ({"dtypes": ["int8_dynamic"]}, "there is no dtype 'int8_dynamic'"),
        ({"metric": "relativ"}, "there is no metric 'relativ'"),
        ({"cost": "size"}, "there is no cost 'size'"),
    ],
)
def test_invalid_arguments(options: dict[str, Any], words: str) -> None:
    with pytest.raises(GraphError, match=f"^mixed_precision: {words}") as caught:
        gc.mixed_precision(perceptron(1), samples(4, 32), **{"max_error": 1e-3, **options})
    assert caught.value.help


def test_invalid_samples() -> None:
    graph = perceptron(1)
    with pytest.raises(GraphError, match=r"mixed_precision: samples must be a list .* got \[\]"):
        gc.mixed_precision(graph, [], max_error=1e-3)
    with pytest.raises(FeedError):
        gc.mixed_precision(graph, [{"z": feed["x"]} for feed in samples(4, 32)], max_error=1e-3)
    bad = samples(4, 32)
    bad[0]["x"][0, 0] = np.nan
    with pytest.raises(GraphError, match="have NaN or infinity"):
        gc.mixed_precision(graph, bad, max_error=1e-3)
    with pytest.raises(GraphError, match="graph must be a Graph and not the body of a node, got dict"):
        gc.mixed_precision({}, samples(4, 32), max_error=1e-3)  # type: ignore[arg-type]
    wide = graph.astype("float64", keep_io=False)
    with pytest.raises(GraphError, match="no node that may change computes in float32"):
        gc.mixed_precision(wide, [{"x": feed["x"].astype(np.float64)} for feed in samples(4, 32)], max_error=1e-3)


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ([{"x": np.ones((4, 32), F32)}, {"x": np.zeros((4, 32), F32)}], "the samples are constant"),
        (samples(1, 32, count=1), "there is only one sample"),
    ],
)
def test_samples_that_say_little_are_a_warning(feeds: list[dict[str, Array]], words: str) -> None:
    with pytest.warns(UserWarning, match=words) as caught:
        gc.mixed_precision(perceptron(1), feeds, max_error=1e-3)
    assert caught[0].filename == __file__


def test_good_samples_are_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.mixed_precision(perceptron(1), iter(samples(1, 32, count=2)), max_error=1e-3)


def test_the_graph_is_exported(tmp_path: Path) -> None:
    graph, feeds = perceptron(), samples(4, 32)
    result = gc.mixed_precision(graph, feeds, max_error=2e-2)
    result.graph.export(tmp_path / "mixed.onnx")
    graph.export(tmp_path / "wide.onnx")
    assert (tmp_path / "mixed.onnx").stat().st_size < (tmp_path / "wide.onnx").stat().st_size
    model = gc.InferenceSession().load(tmp_path / "mixed.onnx")
    expected = [e for (e,) in outputs(graph, feeds)]
    assert relative(expected, [model(**feed)[0] for feed in feeds]) <= 2e-2
    with pytest.raises(GraphError, match="is already quantised"):
        gc.quantize(Graph.load(tmp_path / "mixed.onnx"), "int8")
