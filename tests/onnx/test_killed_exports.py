"""Exports that are killed, and exports at once: a model and its weights go together; nothing is left by the next."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest

from graphcore.errors import ExportError
from graphcore.support.atomic_files import replace_files
from tests.support.kills import numbered

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked and killed")

ROOT = Path(__file__).resolve().parents[2]


def locations(path: Path) -> set[str]:
    model = onnx.load(path, load_external_data=False)
    return {entry.value for w in model.graph.initializer for entry in w.external_data if entry.key == "location"}


def test_no_model_is_lost_when_exports_are_killed_and_nothing_is_left_by_the_next() -> None:
    command = [sys.executable, "-m", "tests.support.kills", "--kills", "25"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert len(counts) == 3
    for found in counts.values():
        assert found["kills"] >= 5
        assert (found["lost"], found["left"]) == (0, 0)


def test_what_a_dead_process_left_is_cleared_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    path = tmp_path / "m.txt"
    read, write = os.pipe()

    def stuck() -> Iterator[bytes]:
        yield b"half"
        os.write(write, b".")
        os.read(os.pipe()[0], 1)

    child = os.fork()
    if child == 0:
        replace_files([(str(path), stuck())])
    os.read(read, 1)
    replace_files([(str(path), [b"whole"])])
    assert len(list(tmp_path.iterdir())) == 2
    os.kill(child, 9)
    os.waitpid(child, 0)
    (tmp_path / ".m.txt.part").write_bytes(b"of others")
    replace_files([(str(path), [b"again"])])
    assert sorted(p.name for p in tmp_path.iterdir()) == [".m.txt.part", "m.txt"]
    assert path.read_bytes() == b"again"


def test_weights_have_the_same_name_and_bytes_when_a_model_is_exported_again(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    numbered(1).export(path, external_data=True)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    numbered(2).export(path, external_data=True)
    assert locations(path) == {"m.onnx.data"}
    numbered(1).export(path, external_data=True)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_model_lies_beside_its_weights_at_every_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    numbered(1).export(path, external_data=True)
    seen: list[float] = []
    replace: Callable[[str, str], None] = os.replace

    def watched(source: str, target: str) -> None:
        replace(source, target)
        (first, *_) = onnx.load(path).graph.initializer
        seen.append(onnx.numpy_helper.to_array(first)[0])

    monkeypatch.setattr(os, "replace", watched)
    numbered(2).export(path, external_data=True)
    assert seen == [1, 2, 2, 2]


def test_exports_of_several_threads_to_one_place_leave_one_of_them_whole(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    threads = [
        threading.Thread(target=numbered(number).export, args=(path,), kwargs={"external_data": True})
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    arrays = [onnx.numpy_helper.to_array(w) for w in onnx.load(path).graph.initializer]
    assert len({float(value) for array in arrays for value in array}) == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]


def test_old_pair_is_kept_when_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    numbered(1).export(path, external_data=True)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    real = os.replace
    for allowed in range(2):
        left = [allowed]

        def refused(source: str, target: str, left: list[int] = left) -> None:
            if not left[0]:
                raise OSError(28, "No space left on device")
            left[0] -= 1
            real(source, target)

        monkeypatch.setattr(os, "replace", refused)
        with pytest.raises(ExportError, match="No space left"):
            numbered(2).export(path, external_data=True)
        assert {name: (tmp_path / name).read_bytes() for name in before} == before
    monkeypatch.setattr(os, "replace", real)
    numbered(2).export(path, external_data=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(before)
