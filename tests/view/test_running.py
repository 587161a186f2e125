"""Pages that run their model, as files: what they contain and allow, and graphs that they cannot run."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import graphcore as gc
from graphcore import Buffer, DType, Graph, TensorType, cli, ops
from graphcore.errors import GraphError, MissingExtraError
from graphcore.view import running
from graphcore.view.data import PageOptions, page_data
from graphcore.view.text import short_name
from tests.support.page_schema import dangling, faults
from tests.view.test_hostile import HOSTILE, data_in

WASM = b"\0asm and the rest"


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in for the npm package, which these tests do not run."""
    folder = tmp_path / "npm"
    (folder / "node_modules" / "onnxruntime-web" / "dist").mkdir(parents=True)
    files = {
        "package.json": json.dumps({"version": "1.30.0"}).encode(),
        "dist/ort.wasm.bundle.min.mjs": b"export const x = '</script>';",
        "dist/ort-wasm-simd-threaded.wasm": WASM,
    }
    for name, content in files.items():
        (folder / "node_modules" / "onnxruntime-web" / name).write_bytes(content)
    monkeypatch.setenv("GRAPHCORE_ONNXRUNTIME_WEB", str(folder))
    return folder


def double() -> Graph:
    graph = Graph("double", {"x": TensorType(DType.float32, ["n", 3])})
    graph.output(y=ops.exp(graph["x"]) * 2)
    return graph


def unpacked(text: str) -> bytes:
    return gzip.decompress(base64.b64decode(text))


def policy_of(page: str) -> dict[str, str]:
    (policy,) = re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    return dict(rule.strip().split(" ", 1) for rule in policy.split(";"))


def test_page_contains_the_runtime_and_the_model(tmp_path: Path) -> None:
    graph = double()
    graph.save_html(tmp_path / "page.html", targets=(), run="inline")
    data = data_in((tmp_path / "page.html").read_text(encoding="ascii"))
    assert not faults(data)
    assert not dangling(data)
    run = data["run"]
    assert (run["release"], unpacked(run["wasm"]), run["beside"]) == ("1.30.0", WASM, "")
    assert unpacked(run["engine"]) == b"export const x = '</script>';"
    assert run["inputs"] == [{"name": "x", "value": 0, "dtype": "float32", "own": "float32", "shape": ["n", "3"]}]
    assert [end["name"] for end in run["outputs"]] == ["y", "watched/0"]
    assert [data["graph"]["values"][end["value"]]["name"] for end in run["outputs"]] == ["y", "exp_1"]
    assert run["watched"] == [1, 2]
    model = onnx.ModelProto.FromString(unpacked(run["model"]))
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    y, inner = gc.InferenceSession().load(Graph.load(model))(x)
    np.testing.assert_array_equal(y, gc.InferenceSession().load(graph)(x)[0])
    np.testing.assert_array_equal(inner, np.asarray(y) / 2)


def test_same_graph_gives_the_same_page(tmp_path: Path) -> None:
    for name in ("a", "b"):
        double().save_html(tmp_path / name, targets=(), title="t", run="inline")
    a, b = ((tmp_path / name).read_bytes() for name in ("a", "b"))
    assert re.sub(rb'"line":\d+', b"", a) == re.sub(rb'"line":\d+', b"", b)


def test_policy_allows_webassembly_only_in_a_page_that_runs(tmp_path: Path) -> None:
    policies = []
    for run in (None, "inline", "beside"):
        double().save_html(tmp_path / "page.html", targets=(), run=run)
        policies.append(policy_of((tmp_path / "page.html").read_text(encoding="ascii")))
    drawn, inline, beside = policies
    assert "wasm" not in str(drawn)
    assert "connect-src" not in drawn
    assert inline == drawn | {"script-src": drawn["script-src"].replace(" blob:", " 'wasm-unsafe-eval' blob:")}
    assert beside == inline | {"connect-src": "'self'"}


def test_wasm_beside_the_page_is_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    double().save_html(folder / "page.html", targets=(), run="beside")
    assert sorted(path.name for path in folder.iterdir()) == ["onnxruntime-web-1.30.0.wasm", "page.html"]
    assert (folder / "onnxruntime-web-1.30.0.wasm").read_bytes() == WASM
    run = data_in((folder / "page.html").read_text(encoding="ascii"))["run"]
    assert (run["wasm"], run["beside"]) == ("", "onnxruntime-web-1.30.0.wasm")
    with pytest.raises(GraphError, match="run='beside' needs a path"):
        double().view(open=False, run="beside")


def test_command_writes_a_page_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    double().export(tmp_path / "model.onnx")
    for arguments, beside in ((["--run"], ""), (["--run", "--wasm", "beside"], "onnxruntime-web-1.30.0.wasm")):
        page = tmp_path / "page.html"
        assert cli.main(["view", str(tmp_path / "model.onnx"), "-o", str(page), *arguments]) == 0
        assert data_in(page.read_text(encoding="ascii"))["run"]["beside"] == beside
    capsys.readouterr()


def test_package_that_is_missing_is_named(package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (package / "node_modules" / "onnxruntime-web" / "dist" / "ort-wasm-simd-threaded.wasm").unlink()
    with pytest.raises(MissingExtraError, match="npm install onnxruntime-web@") as raised:
        double().save_html(tmp_path / "page.html", run="inline")
    assert "ort-wasm-simd-threaded.wasm" in raised.value.summary
    monkeypatch.delenv("GRAPHCORE_ONNXRUNTIME_WEB")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingExtraError, match="GRAPHCORE_ONNXRUNTIME_WEB"):
        double().save_html(tmp_path / "page.html", run="inline")
    monkeypatch.chdir(package)  # where npm installed it, if the error was obeyed
    (package / "node_modules" / "onnxruntime-web" / "dist" / "ort-wasm-simd-threaded.wasm").write_bytes(WASM)
    double().save_html(tmp_path / "page.html", targets=(), run="inline")


def test_release_that_was_not_measured_is_named(package: Path) -> None:
    file = package / "node_modules" / "onnxruntime-web" / "package.json"
    file.write_text('{"version": "1.22.0"}', encoding="ascii")
    with pytest.raises(GraphError, match=r"(?s)unknown release 'web-1\.22\.0' of onnxruntime-web.*web-1\.30"):
        page_data(double(), PageOptions(targets=(), run="inline"))


@pytest.mark.parametrize("dtype", [DType.complex64, DType.int4, DType.of("int23"), DType.of("uint128")])
def test_dtypes_without_arrays_in_javascript_are_told(dtype: DType) -> None:
    graph = Graph("g", {"x": TensorType(dtype, ["n"])}, promotion="numpy")
    graph.output(graph.op("Identity", [graph["x"]])[0])
    with pytest.raises(GraphError, match=rf"a page cannot run graph 'g': input 'x' is {dtype}\[n\]"):
        page_data(graph, PageOptions(targets=(), run="inline"))


def test_lists_are_told() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n"])})
    graph.output(parts=ops.onnx.SplitToSequence(graph["x"]))
    with pytest.raises(GraphError, match="output 'parts' is"):
        page_data(graph, PageOptions(targets=(), run="inline"))


def test_values_that_cannot_be_shown_are_left_out() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n"])}, promotion="numpy")
    graph.output(ops.abs(ops.exp(graph["x"].cast("complex64"))))
    run = page_data(graph, PageOptions(targets=(), run="inline"))["run"]
    assert [(end["own"], end["dtype"]) for end in run["outputs"]] == [("float32", "float32")]


@pytest.mark.parametrize(
    ("dtypes", "border"),
    [(["bfloat16"], "float32"), (["float16", "float8_e5m2"], "float32"), (["float16", "float64"], "float64")],
)
def test_narrow_floats_cross_in_wider_ones(dtypes: list[str], border: str) -> None:
    graph = Graph("g", {dtype: TensorType(DType.of(dtype), ["n"]) for dtype in dtypes})
    graph.output(**{f"of_{dtype}": graph.op("Identity", [graph[dtype]])[0] for dtype in dtypes})
    run = page_data(graph, PageOptions(targets=(), run="inline"))["run"]
    for ends in (run["inputs"], run["outputs"]):
        assert [(end["own"], end["dtype"]) for end in ends] == [(dtype, border) for dtype in dtypes]


def test_large_graphs_show_their_outputs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_MAX_WATCHED", 0)
    run = page_data(double(), PageOptions(targets=(), run="inline"))["run"]
    assert (len(run["outputs"]), run["watched"]) == (1, [1, 1])
    monkeypatch.setattr(running, "_MAX_BYTES", 10)
    with pytest.raises(GraphError, match="a page can contain 256 MiB"):
        page_data(double(), PageOptions(targets=(), run="inline"))


def test_outputs_named_as_values_are_kept() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n"])})
    inner = ops.exp(graph["x"])
    graph.output(**{"watched/0": inner * 2})
    run = page_data(graph, PageOptions(targets=(), run="inline"))["run"]
    assert [end["name"] for end in run["outputs"]] == ["watched/0", "watched//0"]


def test_buffers_are_inputs_and_outputs() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, [2]), "sum": Buffer(DType.float32, [2])})
    graph["sum"] += graph["x"]
    graph.output(y=graph["sum"] * 2)
    run = page_data(graph, PageOptions(targets=(), run="inline"))["run"]
    assert [end["name"] for end in run["inputs"]] == ["x", "sum"]
    model = onnx.ModelProto.FromString(unpacked(run["model"]))
    names = [end["name"] for end in run["outputs"]]
    assert names == [output.name for output in model.graph.output]
    assert {"y", "sum_out"} <= {*names}


# A file has no half of a character.
@pytest.mark.parametrize("name", [name for name in HOSTILE if name != "\ud800"], ids=lambda name: ascii(name)[:24])
def test_hostile_names_are_data(name: str, tmp_path: Path) -> None:
    graph = Graph(name, {name: TensorType(DType.float32, ["n"])})
    graph.output(**{f"{name}y": graph[name] * graph.weight(f"{name}w", np.ones(1, np.float32)) + 1})
    graph.save_html(tmp_path / "page.html", targets=(), run="inline")
    page = (tmp_path / "page.html").read_text(encoding="ascii")
    run = data_in(page)["run"]
    assert run["inputs"][0]["name"] == short_name(name)
    assert page.count("<script") == 2
    onnx.ModelProto.FromString(unpacked(run["model"]))
