"""Prepared starts: a folder beside a model's file, from which loads start without reading it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import graphcore as gc
from graphcore.errors import ModelError
from graphcore.models import generate, llama
from graphcore.runtime.sessions.warm_start import keys, prepared
from tests.runtime.test_cache import is_restarted
from tests.runtime.test_cached_files import is_right, write

pytestmark = [pytest.mark.releases, pytest.mark.usefixtures("settled")]


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take files that were written just now for settled."""
    for module in (keys, prepared):
        monkeypatch.setattr(module, "SETTLED", -1.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def session(**options: Any) -> gc.InferenceSession:
    return gc.InferenceSession(intra_op_num_threads=1, **options)


def folder(path: Path) -> Path:
    return path.with_name(path.name + ".start")


def contents(path: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in folder(path).iterdir()}


def test_prepared_model_starts_from_its_folder(path: Path) -> None:
    assert not is_restarted(session().load(path, prepared=True))
    session().prepare(path)
    before = contents(path)
    for model in (session().load(path, prepared=True), session().load(str(path), prepared=True)):
        assert is_restarted(model)
        assert is_right(model)
        assert str(model.placement())  # which reads the file
    assert contents(path) == before


@pytest.mark.parametrize("way", ["options", "prepack", "precision", "weights", "cache_dir", "bytes", "unasked"])
def test_other_loads_do_not_start_from_it(way: str, path: Path, tmp_path: Path) -> None:
    session().prepare(path)
    before = contents(path)
    loads = {
        "options": lambda: gc.InferenceSession(intra_op_num_threads=2).load(path, prepared=True),
        "prepack": lambda: session().load(path, prepack="off", prepared=True),
        "precision": lambda: session(precision="fast").load(path, prepared=True),
        "weights": lambda: session().load(path, {"w": np.zeros((300, 300), np.float32)}, prepared=True),
        "cache_dir": lambda: session().load(path, cache_dir=tmp_path / "cache", prepared=True),
        "bytes": lambda: session().load(path.read_bytes(), prepared=True),
        "unasked": lambda: session().load(path),
    }
    assert not is_restarted(loads[way]())
    assert contents(path) == before


def test_changed_file_is_loaded_anew(path: Path) -> None:
    session().prepare(path)
    write(path, 1)
    model = session().load(path, prepared=True)
    assert not is_restarted(model)
    assert is_right(model, 1)
    session().prepare(path)
    model = session().load(path, prepared=True)
    assert is_restarted(model)
    assert is_right(model, 1)


@pytest.mark.parametrize("ending", ["*.optimised", "*.start", "*"])
def test_damaged_folder_is_passed_over(ending: str, path: Path) -> None:
    session().prepare(path)
    for file in folder(path).glob(ending):
        file.write_bytes(file.read_bytes()[:-1])
    model = session().load(path, prepared=True)
    assert not is_restarted(model)
    assert is_right(model)


def test_folder_of_others_is_passed_over(path: Path) -> None:
    folder(path).mkdir()
    (folder(path) / "notes.txt").write_text("mine")
    assert is_right(session().load(path, prepared=True))
    assert [file.name for file in folder(path).iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("value", [None, b"model", 3])
def test_what_is_not_a_path_is_refused(value: Any) -> None:
    with pytest.raises(ModelError, match=r"prepare: path must be a path, got"):
        session().prepare(value)


def test_failed_preparation_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a file"):
        session().prepare(tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(ModelError):
        session().prepare(tmp_path / "bad.onnx")
    assert [file.name for file in tmp_path.iterdir()] == ["bad.onnx"]


def test_model_of_which_nothing_can_be_kept_is_refused(path: Path) -> None:
    large = np.arange(4000, dtype=np.float32)
    graph = gc.Graph("large", {"b": gc.Buffer("float32", [4000], initial=large), "x": gc.TensorType("float32", [])})
    graph["b"] = graph["b"] + graph["x"]
    graph.output(y=graph["b"].sum())
    graph.export(path)
    with pytest.raises(ModelError, match="cannot be cached"):
        session().prepare(path)
    assert np.array_equal(session().load(path, prepared=True).buffers["b"], large)


@pytest.fixture
def decoder(tmp_path: Path) -> Path:
    config = llama.Config(vocabulary=512, width=128, inner=256, layers=2, heads=4, kv_heads=2, positions=64)
    result = tmp_path / "decoder.onnx"
    gc.quantize(llama.build(config, cache=32), "int4").graph.export(result)
    return result


def test_decoder_generates_the_same_from_its_folder(decoder: Path) -> None:
    prompts = [[3, 4, 5], [7, 8]]
    wanted = [text.tolist() for text in generate(session().load(decoder, prepared=True), prompts, 12)]
    session().prepare(decoder)
    model = session().load(decoder, prepared=True)
    assert is_restarted(model)
    assert [text.tolist() for text in generate(model, prompts, 12)] == wanted


@pytest.mark.full
def test_another_process_starts_from_a_file_that_was_written_just_now(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (keys, prepared):
        monkeypatch.setattr(module, "SETTLED", 2.0)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        time.sleep(seconds)

    monkeypatch.setattr(prepared, "time", SimpleNamespace(time=time.time, sleep=sleep))
    write(path)
    session().prepare(path)
    assert sum(waits) <= 2.1  # once
    code = (
        "import sys, graphcore as gc; gc.InferenceSession(intra_op_num_threads=1).load(sys.argv[1], prepared=True);"
        "print('onnx' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("False", 0), done.stderr


def test_copied_folder_starts_a_small_file_by_its_content(path: Path, tmp_path: Path) -> None:
    session().prepare(path)
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(path, other)
    shutil.copytree(folder(path), folder(other / path.name), copy_function=shutil.copy)
    model = session().load(other / path.name, prepared=True)
    assert is_right(model)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_cannot_be_written_to_is_read(path: Path) -> None:
    session().prepare(path)
    folder(path).chmod(0o500)
    assert is_restarted(session().load(path, prepared=True))


def test_compiled_model_of_the_cpu_provider(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as failed:
        session().prepare(path, compiled=tmp_path / "compiled.onnx")
    assert failed.value.summary.startswith("prepare: CPUExecutionProvider: ")
    assert "is not compiled: " in failed.value.summary
    assert "EPContext" in str(failed.value)
    assert not (tmp_path / "compiled.onnx").exists()
    assert not folder(path).exists()


def test_compiled_model_of_a_provider(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Compiler:
        """A provider that compiles a graph to itself."""

        def __init__(self, options: onnxruntime.SessionOptions, model: bytes, **arguments: Any) -> None:
            seen.append((options.intra_op_num_threads, options.has_providers(), arguments))
            self.model = model

        def compile_to_bytes(self) -> bytes:
            return self.model

    seen: list[Any] = []
    monkeypatch.setattr(onnxruntime, "ModelCompiler", Compiler)
    session().prepare(path, compiled=tmp_path / "compiled.onnx")
    flags = onnxruntime.OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED
    assert seen == [(1, True, {"embed_compiled_data_into_model": True, "flags": flags})]
    assert is_right(session().load(tmp_path / "compiled.onnx"))
    assert not folder(path).exists()


def test_compiled_nodes_are_read_and_written(tmp_path: Path) -> None:
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node(
        "EPContext", ["x"], ["y"], domain="com.microsoft", main_context=1, ep_cache_context=b"\xff\x00", source="other"
    )
    graph = onnx.helper.make_graph([node], "compiled", [value("x", 1, [2])], [value("y", 1, [2])])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    written = gc.Graph.load(model, promotion="max").optimize().to_onnx(target="cpu")
    assert written.graph.node[0].attribute == node.attribute
    with pytest.raises(ModelError, match=r"(?s)refused compiled: .*EPContext"):
        session().load(model)
