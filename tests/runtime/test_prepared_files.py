"""Files that loads write beside decoders, and sessions for calls with many rows."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore.ir.symbol import Constant
from graphcore.models import generate, llama
from graphcore.runtime.lowering.targets.releases import table_of
from graphcore.runtime.ort import optimised_cache
from graphcore.runtime.ort.release import runtime
from graphcore.runtime.sessions import plan
from graphcore.runtime.sessions.warm_start import keys, start
from tests.runtime.test_cache import is_restarted

pytestmark = [pytest.mark.releases, pytest.mark.usefixtures("settled")]

ROWS = 12
PROMPTS = [[3, 4, 5], [7, 8]]
CONFIG = llama.Config(vocabulary=512, width=128, inner=256, layers=2, heads=4, kv_heads=2, positions=64)
TAKES = table_of("cpu").takes("GatherBlockQuantized", 4, ("bits", "block_size"), runtime())
switches = pytest.mark.skipif(not TAKES, reason="this release has no GatherBlockQuantized of bytes")


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take files that were written just now for settled, small decoders for large ones, and 12 rows for many."""
    monkeypatch.setattr(keys, "SETTLED", -1.0)
    monkeypatch.setattr(start, "_MIN_PREPARED_BYTES", 1)
    monkeypatch.setattr(start, "_MIN_REFERRED", 0)
    monkeypatch.setattr(plan, "runtime", lambda: replace(runtime(), many_rows=lambda: ROWS))
    monkeypatch.delenv("GRAPHCORE_PREPARED", raising=False)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the files of two decoders of one shape."""
    folder = tmp_path_factory.mktemp("decoders")
    paths = folder / "0.onnx", folder / "1.onnx"
    for seed, path in enumerate(paths):
        rng = np.random.default_rng(seed)
        weights = {
            n: (rng.standard_normal(shape) * 0.1).astype(np.float32) for n, shape in llama.shapes(CONFIG).items()
        }
        gc.quantize(llama.build(CONFIG, weights, cache=32), "int4").graph.export(path)
    return paths


@pytest.fixture
def path(exported: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copy(exported[0], tmp_path / "decoder.onnx"))


def load(path: Path, **options: Any) -> gc.Model:
    return gc.InferenceSession(intra_op_num_threads=1).load(path, **options)


def beside(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir() if file != path)


def tokens(model: gc.Model) -> list[list[int]]:
    return [text.tolist() for text in generate(model, PROMPTS, 12)]


def logits(model: gc.Model, count: int) -> np.ndarray[Any, Any]:
    """Return the logits after a prompt, in a state of its own."""
    prompt = np.random.default_rng(count).integers(0, CONFIG.vocabulary, (1, count))
    return np.asarray(model.state()(prompt, np.array([count]))[0])


def test_the_second_load_starts_from_the_file_of_the_first(path: Path) -> None:
    first = load(path)
    assert not is_restarted(first)
    assert beside(path) == ["decoder.onnx.prepared"]
    second = load(path)
    assert is_restarted(second)
    assert tokens(second) == tokens(first) == tokens(load(path, prepared=False))
    assert second.buffers.in_place == first.buffers.in_place
    assert (second.inputs, second.outputs) == (first.inputs, first.outputs)


def test_the_file_has_no_weights_of_products(path: Path) -> None:
    load(path)
    content = path.with_name("decoder.onnx.prepared").read_bytes()
    parts = [s.producer.array for s in gc.Graph.load(path).symbols if isinstance(s.producer, Constant)]
    parts = [array for array in parts if array.dtype == np.uint8 and array.nbytes > 1000]
    assert len(parts) >= 7 * CONFIG.layers
    assert not any(array.tobytes() in content for array in parts)


def test_loads_without_it_neither_write_nor_read_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(path, prepared=False)
    monkeypatch.setenv("GRAPHCORE_PREPARED", "0")
    load(path)
    assert not beside(path)
    monkeypatch.delenv("GRAPHCORE_PREPARED")
    load(path)
    assert is_restarted(load(path))
    assert not is_restarted(load(path, prepared=False))
    monkeypatch.setenv("GRAPHCORE_PREPARED", "0")
    assert not is_restarted(load(path))


OTHERS: dict[str, Callable[[Path], gc.Model]] = {
    "bytes": lambda path: load(path.read_bytes()),  # type: ignore[arg-type]
    "a graph": lambda path: load(gc.Graph.load(path)),  # type: ignore[arg-type]
    "limits": lambda path: load(path, limits=gc.Limits(nodes=100_000)),
    "cache_dir": lambda path: load(path, cache_dir=path.parent.with_name("cache")),
    "weights": lambda path: load(path, weights={"model.norm.weight": np.ones(CONFIG.width, np.float32)}),
}


@pytest.mark.parametrize("way", OTHERS)
def test_other_loads_write_none(way: str, path: Path) -> None:
    OTHERS[way](path)
    assert not beside(path)


def test_a_model_without_buffers_in_place_has_none(tmp_path: Path) -> None:
    graph = gc.Graph("plain", {"x": gc.TensorType("float32", ["n", 300])})
    graph.output(y=graph["x"] @ graph.weight("w", np.eye(300, dtype=np.float32)))
    graph.export(tmp_path / "plain.onnx")
    load(tmp_path / "plain.onnx")
    assert not beside(tmp_path / "plain.onnx")


def test_a_file_that_changed_is_loaded_anew_and_prepared_again(path: Path, exported: tuple[Path, Path]) -> None:
    load(path)
    before = path.with_name("decoder.onnx.prepared").read_bytes()
    shutil.copy(exported[1], path)
    model = load(path)
    assert not is_restarted(model)
    assert tokens(model) == tokens(load(exported[1], prepared=False)) == tokens(load(path))
    assert is_restarted(load(path))
    assert path.with_name("decoder.onnx.prepared").read_bytes() != before


def test_a_file_of_other_options_or_of_another_place_is_replaced(path: Path) -> None:
    load(path)
    assert not is_restarted(gc.InferenceSession(intra_op_num_threads=2).load(path))
    assert not is_restarted(load(path))
    assert is_restarted(load(path))
    copy = path.parent / "copy"
    copy.mkdir()
    for name in (path.name, "decoder.onnx.prepared"):
        shutil.copy2(path.with_name(name), copy)
    assert not is_restarted(load(copy / path.name))
    assert is_restarted(load(copy / path.name))


@pytest.mark.parametrize("way", ["cut", "changed", "signed", "empty", "a folder"])
def test_a_damaged_file_is_passed_over(way: str, path: Path) -> None:
    wanted = tokens(load(path))
    file = path.with_name("decoder.onnx.prepared")
    content = file.read_bytes()
    middle = len(content) // 2
    changed = {
        "cut": content[:-1],
        "changed": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "signed": _signed(content[:middle]),
        "empty": b"",
    }
    file.unlink()
    if way == "a folder":
        file.mkdir()
    else:
        file.write_bytes(changed[way])
    model = load(path)
    assert not is_restarted(model)
    assert tokens(model) == wanted
    assert is_restarted(load(path)) == (way != "a folder")


def _signed(content: bytes) -> bytes:
    """Return a part of a file with the right digest."""
    head = len(optimised_cache._MAGIC) + 32
    return content[:head] + hashlib.sha256(content[head + 32 :]).digest() + content[head + 32 :]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners")
def test_a_file_that_others_may_write_is_not_used(path: Path) -> None:
    load(path)
    path.with_name("decoder.onnx.prepared").chmod(0o666)
    assert not is_restarted(load(path))


def test_a_folder_that_cannot_be_written_is_no_fault(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(optimised_cache, "replace_files", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = load(path)
    assert not beside(path)
    assert tokens(model) == tokens(load(path, prepared=False))


def test_a_file_that_was_written_just_now_has_none_yet(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "SETTLED", 1e9)
    load(path)
    assert not beside(path)


def test_sizes_and_debugging_are_those_of_the_graph(path: Path) -> None:
    load(path)
    model = load(path)
    assert is_restarted(model)
    assert str(model.placement())
    assert model.debug(np.array([[1, 2]]), np.array([2]), watch="*")


# Calls with many rows


def pending(model: gc.Model) -> object:
    """Return the calls for which another session starts; None if all calls run in one."""
    assert model._program is not None
    return model._program.growth


@switches
@pytest.mark.parametrize("is_prepared", [False, True])
def test_the_session_for_many_rows_starts_when_it_is_needed(is_prepared: bool, path: Path) -> None:
    wanted = {
        count: logits(gc.InferenceSession(intra_op_num_threads=1).load(gc.Graph.load(path)), count)
        for count in (ROWS - 1, ROWS, 20)
    }
    if is_prepared:
        logits(load(path), ROWS)
        assert beside(path) == ["decoder.onnx.many_rows.prepared", "decoder.onnx.prepared"]
    model = load(path)
    few = model.session
    assert is_restarted(model) is is_prepared
    np.testing.assert_array_equal(logits(model, ROWS - 1), wanted[ROWS - 1])
    assert model.session is few
    np.testing.assert_array_equal(logits(model, ROWS), wanted[ROWS])
    assert model.session is not few
    assert is_restarted(model) is is_prepared
    assert pending(model) is None
    for count, result in wanted.items():
        np.testing.assert_array_equal(logits(model, count), result)


@switches
def test_both_sessions_share_the_buffers(path: Path) -> None:
    model, whole = load(path), load(path, prepared=False)
    whole._grow()
    results = []
    for each in (model, whole):
        state, length, texts = each.state(), 0, []
        for count in (3, 1, ROWS + 2, 1, 2):
            length += count
            prompt = np.random.default_rng(count).integers(0, CONFIG.vocabulary, (1, count))
            texts.append(state(prompt, np.array([length]))[0])
        results.append(texts)
    for mine, other in zip(*results, strict=True):
        np.testing.assert_array_equal(mine, other)


@switches
def test_calls_with_many_rows_run_in_the_first_session_if_the_file_changed(
    path: Path, exported: tuple[Path, Path]
) -> None:
    load(path)
    model = load(path)
    assert is_restarted(model)
    wanted = logits(gc.InferenceSession(optimize="off", intra_op_num_threads=1).load(exported[0]), 20)
    path.unlink()
    shutil.copy(exported[1], path)
    session, result = model.session, logits(model, 20)
    assert model.session is session
    assert np.linalg.norm(result - wanted) < 1e-3 * np.linalg.norm(wanted)


@switches
def test_threads_that_need_it_at_once_get_one_session(path: Path) -> None:
    model = load(path)
    wanted = logits(load(path, prepared=False), 20)
    results: list[Any] = [None] * 6

    def call(number: int) -> None:
        results[number] = logits(model, 20 if number % 2 else 3)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pending(model) is None
    for result in results[1::2]:
        np.testing.assert_array_equal(result, wanted)


@switches
def test_profiles_and_placements_are_of_the_session_for_all_calls(path: Path) -> None:
    prompt, count = np.arange(20)[None], np.array([20])
    assert "MatMulIntegerToFloat" in load(path).profile(prompt, count, runs=1).by_operator()
    assert "MatMulIntegerToFloat" in {placed.operator for placed in load(path).placement().operators}


@switches
def test_a_graph_that_was_edited_keeps_its_first_session() -> None:
    graph = gc.quantize(llama.build(CONFIG, cache=32), "int4").graph
    model = gc.InferenceSession(intra_op_num_threads=1).load(graph)
    graph.edits += 1
    session = model.session
    logits(model, 20)
    assert model.session is session
