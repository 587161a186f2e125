"""Files that are started from the cache: known by their stamps, with weights in files that are mapped, and buffers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graphcore as gc
from graphcore import Buffer, DType, Graph, TensorType, ops
from graphcore.errors import ModelError, UnsafePathError
from graphcore.models import generate, llama
from graphcore.runtime.ort import memory, options, sessions
from graphcore.runtime.ort.optimised_cache import CacheFolder, without_repeats
from graphcore.runtime.ort.release import runtime
from graphcore.runtime.sessions import plan
from graphcore.runtime.sessions.warm_start import files, keys
from tests.runtime.test_cache import is_restarted

pytestmark = pytest.mark.releases

ROOT = Path(__file__).resolve().parents[2]
Array = np.ndarray[Any, Any]
D = DType
X = np.random.default_rng(9).standard_normal((2, 300)).astype(np.float32)


def weight(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((300, 300)).astype(np.float32)


def write(path: Path, seed: int = 0, external: bool = False) -> None:
    """Write a model whose weights are large enough for a file of their own."""
    graph = Graph("linear", {"x": TensorType(D.float32, ["n", 300])})
    graph.output(y=ops.relu(graph["x"] @ graph.weight("w", weight(seed))))
    graph.export(path, external_data=external)


def is_right(model: gc.Model, seed: int = 0) -> bool:
    return bool(np.allclose(model(X)[0], np.maximum(X @ weight(seed), 0), atol=1e-3))


def load(path: Path, **options: Any) -> gc.Model:
    return gc.InferenceSession(intra_op_num_threads=1).load(path, cache_dir=path.parent / "cache", **options)


def weights_files(path: Path) -> list[Path]:
    return sorted((path.parent / "cache").glob("*.weights"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take files that were written just now for settled."""
    monkeypatch.setattr(keys, "SETTLED", -1.0)


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make it an error to read a model file from then on."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt("the file was read")  # other errors are taken for those of a damaged file

    return lambda: monkeypatch.setattr(files, "FileSource", refuse)


# Weights in a file of their own


def test_weights_lie_in_one_file_that_later_loads_take(path: Path) -> None:
    write(path)
    assert is_right(load(path))
    (first,) = weights_files(path)
    assert first.stat().st_size >= weight(0).nbytes
    assert first.stat().st_mode & 0o777 == 0o600
    again = load(path)
    assert is_restarted(again)
    assert is_right(again)
    assert weights_files(path) == [first]
    assert not [p for p in (path.parent / "cache").iterdir() if p.is_dir()]


def cut(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def longer(file: Path) -> None:
    with open(file, "ab") as end:
        end.write(b"\0")


def other(file: Path) -> None:
    time.sleep(0.02)  # a tick of the clock of files
    file.write_bytes(bytes(file.stat().st_size))


def copied(file: Path) -> None:
    shutil.copy2(file, file.with_suffix(".copy"))
    os.replace(file.with_suffix(".copy"), file)


def writable(file: Path) -> None:
    file.chmod(0o666)


def linked(file: Path) -> None:
    file.rename(file.with_suffix(".moved"))
    file.symlink_to(file.with_suffix(".moved"))


@pytest.mark.parametrize("damage", [cut, longer, other, copied, writable, linked, Path.unlink])
@pytest.mark.usefixtures("settled")
def test_entry_is_made_anew_when_its_weights_are_others(damage: Callable[[Path], None], path: Path) -> None:
    write(path)
    load(path)
    (first,) = weights_files(path)
    damage(first)
    result = load(path)
    assert not is_restarted(result)
    assert is_right(result)
    (second,) = weights_files(path)  # the one before is no longer there
    assert second != first
    assert is_restarted(load(path))
    assert is_right(load(path))


def test_folders_of_stopped_processes_are_removed_after_a_day(path: Path) -> None:
    write(path)
    for name, age in (("making-new", 0), ("making-old", 25 * 3600)):
        folder = path.parent / "cache" / name
        folder.mkdir(parents=True)
        (folder / "part").write_bytes(b"half")
        os.utime(folder, (time.time() - age,) * 2)
    load(path)
    assert [p.name for p in (path.parent / "cache").iterdir() if p.is_dir()] == ["making-new"]


def test_large_pages_are_gathered_where_kernels_hold_weights(
    decoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copy(decoder, tmp_path))
    load(path)
    results: list[bool] = []

    def noted(is_wanted: bool) -> AbstractContextManager[memory.Later | None]:
        results.append(is_wanted)
        return memory.gathered_later(is_wanted)

    monkeypatch.setattr(options, "gathered_later", noted)
    assert is_restarted(load(path))
    assert results == [True]


def test_model_runs_on_after_its_weights_were_replaced(path: Path) -> None:
    write(path)
    load(path)
    model = load(path)
    weights_files(path)[0].unlink()
    load(path)
    assert is_right(model)


def test_small_models_have_no_file_of_weights(path: Path) -> None:
    graph = Graph("small", {"x": TensorType(D.float32, ["n", 4])})
    graph.output(y=graph["x"] @ graph.weight("w", np.eye(4, dtype=np.float32)))
    graph.export(path)
    for restarted in (False, True):
        model = load(path)
        assert is_restarted(model) is restarted
        assert (model(np.ones((1, 4), np.float32))[0] == 1).all()
    assert weights_files(path) == []


def test_model_runs_when_there_is_no_room_for_its_weights(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path)

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.warns(RuntimeWarning, match=r"cannot be written to .*: No space left on device"):
            assert is_right(load(path))
    assert is_right(load(path))
    assert is_restarted(load(path))


CHILD = """
import sys
from pathlib import Path
from tests.runtime.test_cached_files import is_right, load
for _ in range(8):
    assert is_right(load(Path(sys.argv[1])))
"""


@pytest.mark.full
def test_two_processes_that_load_one_file_at_once_are_both_right(path: Path) -> None:
    write(path)
    command = [sys.executable, "-c", CHILD, str(path)]
    running = [subprocess.Popen(command, cwd=ROOT) for _ in range(2)]
    assert [process.wait(300) for process in running] == [0, 0]
    assert len(weights_files(path)) == 1
    assert is_restarted(load(path))


# Stamps


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.usefixtures("settled")
def test_file_that_was_loaded_is_not_opened(external: bool, path: Path, unread: Callable[[], None]) -> None:
    write(path, external=external)
    first = load(path)
    unread()
    second = load(path)
    assert is_restarted(second)
    assert (second.name, second.inputs, second.outputs) == (first.name, first.inputs, first.outputs)
    assert is_right(second)


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.usefixtures("settled")
def test_file_of_other_weights_is_another_model(external: bool, path: Path) -> None:
    for seed in (0, 1, 0):
        write(path, seed, external)
        for _ in range(2):
            assert is_right(load(path), seed)


@pytest.mark.usefixtures("settled")
def test_data_of_other_weights_is_another_model(path: Path) -> None:
    write(path, 0, external=True)
    load(path)
    data = path.parent / f"{path.name}.data"
    assert data.exists()
    data.write_bytes(weight(1).tobytes().ljust(data.stat().st_size, b"\0"))
    assert is_right(load(path), 1)


def test_file_that_was_written_just_now_is_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "SETTLED", 3600.0)
    write(path)
    load(path)
    read: list[object] = []
    result = files.FileSource

    def noted(*value: Any) -> files.FileSource:
        read.append(value)
        return result(*value)

    monkeypatch.setattr(files, "FileSource", noted)
    assert is_restarted(load(path))
    assert read


@pytest.mark.usefixtures("settled")
def test_file_of_another_time_is_known_by_its_content(path: Path, unread: Callable[[], None]) -> None:
    write(path)
    load(path)
    os.utime(path, (1, 1))
    assert is_restarted(load(path))
    unread()
    assert is_restarted(load(path))


@pytest.mark.usefixtures("settled")
def test_links_are_followed_only_where_they_may_be(path: Path) -> None:
    write(path, external=True)
    data = path.parent / f"{path.name}.data"
    data.rename(path.parent / "elsewhere")
    data.symlink_to(path.parent / "elsewhere")
    for _ in range(2):
        assert is_right(load(path, external_data="links"))
        with pytest.raises(UnsafePathError, match="a symbolic link is on the way"):
            load(path)


@pytest.mark.usefixtures("settled")
def test_graph_of_a_file_that_changed_is_refused(path: Path) -> None:
    write(path)
    load(path)
    model = load(path)
    assert str(model.placement())
    model = load(path)
    write(path, 1)
    with pytest.raises(ModelError, match="the file of linear was changed since it was loaded"):
        model.placement()
    assert is_right(model)


# Buffers


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = llama.Config(vocabulary=512, width=128, inner=256, layers=2, heads=4, kv_heads=2, positions=64)
    path = tmp_path_factory.mktemp("decoder") / "model.onnx"
    gc.quantize(llama.build(config, cache=32), "int4").graph.export(path)
    return path


def test_decoder_generates_the_same_from_its_entry(
    decoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_MIN_SEPARATE_BYTES", 1)  # this decoder is small
    monkeypatch.setattr(plan, "runtime", lambda: replace(runtime(), many_rows=lambda: 224))  # on any processor
    decoder = Path(shutil.copy(decoder, tmp_path))
    plain = gc.InferenceSession(intra_op_num_threads=1).load(decoder)
    prompts = [[3, 4, 5], [7, 8]]
    wanted = [text.tolist() for text in generate(plain, prompts, 12)]
    for restarted in (False, True, True):
        model = load(decoder)
        assert is_restarted(model) is restarted
        assert [text.tolist() for text in generate(model, prompts, 12)] == wanted
        assert model.buffers.keys() == plain.buffers.keys()
        assert model.buffers.in_place == plain.buffers.in_place
        assert (model.inputs, model.outputs) == (plain.inputs, plain.outputs)
    assert str(model.placement())
    assert weights_files(decoder)[0].stat().st_size < 2 * decoder.stat().st_size


def test_optimised_models_have_initializers_once() -> None:
    def weight(name: str, value: float) -> onnx.TensorProto:
        return onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, [], [value])

    body = onnx.helper.make_graph([], "body", [], [], [weight("a", 1), weight("b", 2), weight("a", 3), weight("a", 4)])
    choice = onnx.helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    model = onnx.helper.make_model(onnx.helper.make_graph([choice], "g", [], [], [weight("a", 5)]))
    result = onnx.ModelProto.FromString(without_repeats(model.SerializeToString()))
    bodies = [[(t.name, t.float_data[0]) for t in a.g.initializer] for a in result.graph.node[0].attribute]
    assert bodies == [[("a", 1), ("b", 2)]] * 2
    assert [t.float_data[0] for t in result.graph.initializer] == [5]
    once = result.SerializeToString()
    assert without_repeats(once) is once


@pytest.mark.parametrize("initial", [None, 3, "array"])
@pytest.mark.parametrize("dtype", [D.float32, D.int8, D.bfloat16])
def test_buffers_are_those_of_the_graph(initial: Any, dtype: DType, path: Path) -> None:
    value = np.arange(2).astype(dtype.numpy) if initial == "array" else initial
    graph = Graph("counter", {"x": TensorType(dtype, [2]), "total": Buffer(dtype, [2], initial=value)})
    graph["total"] = graph["total"] + graph["x"]
    graph.output(y=graph["total"] + graph["x"])
    graph.export(path)
    ones = np.ones(2).astype(dtype.numpy)
    results = []
    for restarted in (False, True):
        model = load(path)
        assert is_restarted(model) is restarted
        first, second = model(ones)[0], model(ones)[0]
        now = model.buffers["total"]
        model.buffers.reset()
        results.append((first.tolist(), second.tolist(), now.tolist(), model.buffers["total"].tolist(), now.dtype))
    assert results[0] == results[1]


def test_large_initial_values_are_in_no_entry(path: Path) -> None:
    large = np.arange(4000, dtype=np.float32)
    graph = Graph("large", {"b": Buffer(D.float32, [4000], initial=large), "x": TensorType(D.float32, [])})
    graph["b"] = graph["b"] + graph["x"]
    graph.output(y=graph["b"].sum())
    graph.export(path)
    for _ in range(3):
        assert np.array_equal(load(path).buffers["b"], large)


# Imports


STARTED = """
import json, sys
import numpy as np
import graphcore as gc
model = gc.InferenceSession(intra_op_num_threads=1).load(sys.argv[1], cache_dir=sys.argv[2])
if "lengths" in model.inputs:
    model.state()(np.array([[3, 4]]), np.array([2]))
else:
    model(np.ones((1, 300), np.float32))
print(json.dumps(sorted(sys.modules)))
"""

LEFT = (
    "onnx", "google.protobuf", "graphcore.ops", "graphcore.graph_methods", "graphcore.runtime.lowering.pipeline",
    "graphcore.runtime.fusions", "graphcore.passes", "graphcore.runtime.ort.openvino.session", "graphcore.quantization",
    "graphcore.custom_ops.custom_op", "graphcore.runtime.inspection.placement", "graphcore.models", "tempfile",
    "subprocess", "shutil", "ml_dtypes",
)  # fmt: skip
"""Modules that a start from an entry leaves alone."""


def imported(path: Path) -> Iterator[str]:
    command = [sys.executable, "-c", STARTED, str(path), str(path.parent / "cache")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    yield from json.loads(done.stdout)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["decoder", "linear"])
@pytest.mark.usefixtures("settled")
def test_start_from_an_entry_imports_what_it_runs(kind: str, path: Path, decoder: Path) -> None:
    if kind == "linear":
        write(path)
    else:
        shutil.copy2(decoder, path)
    time.sleep(2.1)  # until another process takes the file for settled
    load(path)
    results = {*imported(path)}
    assert "onnxruntime" in results
    assert not [name for name in LEFT if name in results]


@pytest.mark.usefixtures("settled")
def test_domains_that_no_node_is_of_are_passed_over(path: Path, unread: Callable[[], None]) -> None:
    write(path)
    model = onnx.load(path)
    model.opset_import.add(domain="Paddle", version=1)
    onnx.save(model, path)
    load(path)
    unread()
    assert is_right(load(path))


@pytest.mark.parametrize("within", ["graph", "body"])
def test_operators_that_a_program_declares_are_read_in_each_load(within: str, path: Path) -> None:
    call = onnx.helper.make_node("Unknown", ["x"], ["y"], domain="mine")
    if within == "body":
        body = onnx.helper.make_graph([call], "body", [], [onnx.ValueInfoProto(name="y")])
        call = onnx.helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    model = onnx.helper.make_model(onnx.helper.make_graph([call], "g", [], []))
    model.opset_import.add(domain="mine", version=1)
    onnx.save(model, path)
    cache = CacheFolder(path.parent / "cache", ())
    assert keys.source_of(files.FileSource, cache, path, None) is None
