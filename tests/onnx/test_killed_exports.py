"""Exports that are killed, and exports at once: a model and its weights go together; nothing is left by the next.

`python -m tests.onnx.test_killed_exports --kills 1000` kills processes that write one model, and prints the counts as
JSON. Each model has a number that all of its weights have. After each kill the file is read: a model is whole where its
weights are those of one number.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from graphcore import DType, Graph, TensorType
from graphcore.errors import ExportError
from graphcore.support.atomic_files import replace_files

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked and killed")

ROOT = Path(__file__).resolve().parents[2]


STEPS = ("chmod", "link", "open", "rename", "replace", "scandir", "unlink")
"""Functions of os that writing calls."""

LAYERS = 3


def numbered(number: int) -> Graph:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n", 1024])})
    y = graph["x"]
    for layer in range(LAYERS):
        y = y + graph.weight(f"w{layer}", np.full(1024, number, np.float32))
    graph.output(y=y)
    return graph


def number_of(path: Path) -> int | None:
    """Return the number that all weights of a file have; None for a file that is not whole."""
    try:
        arrays = [numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer]
    except Exception:  # however it is broken
        return None
    results = {float(value) for array in arrays for value in np.unique(array)}
    return int(results.pop()) if len(arrays) == LAYERS and len(results) == 1 else None


def in_child(work: Callable[[], None]) -> int:
    """Start a process that does some work, and ends without cleaning up."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def die_at(step: int) -> None:
    """End this process before a call of one of `STEPS`, counted from 0."""
    remaining = step

    def watched(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **named: object) -> object:
            nonlocal remaining
            if remaining == 0:
                os._exit(9)
            remaining -= 1
            return real(*args, **named)

        return call

    for name in STEPS:
        setattr(os, name, watched(getattr(os, name)))


def killed_at_each_step(path: Path, *, external: bool, first: int) -> dict[str, int]:
    """Write a model, killed at each step in turn until one export comes to its end. first: the number it has before."""
    counts = {"kills": 0, "lost": 0, "left": 0}
    old, new = numbered(first), numbered(first + 1)
    step = 0
    while True:
        old.export(path, external_data=external)
        counts["left"] += len(left_beside(path, external=external))

        def work(step: int = step) -> None:
            die_at(step)
            new.export(path, external_data=external)

        _, status = os.waitpid(in_child(work), 0)
        counts["lost"] += number_of(path) not in (first, first + 1)
        if os.waitstatus_to_exitcode(status) == 0:
            return counts
        counts["kills"] += 1
        step += 1


def killed_at_random(path: Path, kills: int, seed: int) -> dict[str, int]:
    """Kill processes that write models with and without a file of weights, and export again after some of them."""
    counts = {"kills": 0, "lost": 0, "left": 0, "with leftovers": 0}
    rng = random.Random(seed)
    graphs = [numbered(number) for number in range(8)]
    graphs[0].export(path, external_data=True)
    for _ in range(kills):
        writes_data = rng.random() < 0.8

        def work(external: bool = writes_data) -> None:
            while True:
                for graph in graphs:
                    graph.export(path, external_data=external)

        child = in_child(work)
        time.sleep(rng.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        counts["kills"] += 1
        counts["lost"] += number_of(path) is None
        counts["with leftovers"] += bool(left_beside(path, external=True))
        if rng.random() < 0.5:
            graphs[1].export(path, external_data=writes_data)
            counts["lost"] += number_of(path) != 1
            counts["left"] += len(left_beside(path, external=True))
    return counts


def left_beside(path: Path, *, external: bool) -> list[str]:
    """Return the files that an export should not have left."""
    wanted = {path.name, f"{path.name}.data"} if external else {path.name}
    return sorted({file.name for file in path.parent.iterdir()} - wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    counts = {}
    with tempfile.TemporaryDirectory() as folder:
        for external in (False, True):
            place = Path(folder, str(external))
            place.mkdir()
            counts[f"each step, {external=}"] = killed_at_each_step(place / "m.onnx", external=external, first=1)
        place = Path(folder, "random")
        place.mkdir()
        counts["random"] = killed_at_random(place / "m.onnx", args.kills, args.seed)
    json.dump(counts, sys.stdout)


def locations(path: Path) -> set[str]:
    model = onnx.load(path, load_external_data=False)
    return {entry.value for w in model.graph.initializer for entry in w.external_data if entry.key == "location"}


@pytest.mark.full
def test_no_model_is_lost_when_exports_are_killed_and_nothing_is_left_by_the_next() -> None:
    command = [sys.executable, "-m", "tests.onnx.test_killed_exports", "--kills", "25"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert len(counts) == 3
    for item in counts.values():
        assert item["kills"] >= 5
        assert (item["lost"], item["left"]) == (0, 0)


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
        results = [allowed]

        def refused(source: str, target: str, remaining: list[int] = results) -> None:
            if not remaining[0]:
                raise OSError(28, "No space left on device")
            remaining[0] -= 1
            real(source, target)

        monkeypatch.setattr(os, "replace", refused)
        with pytest.raises(ExportError, match="No space left"):
            numbered(2).export(path, external_data=True)
        assert {name: (tmp_path / name).read_bytes() for name in before} == before
    monkeypatch.setattr(os, "replace", real)
    numbered(2).export(path, external_data=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(before)


if __name__ == "__main__":
    main()
