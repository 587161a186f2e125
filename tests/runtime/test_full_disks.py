"""Folders of a file system that is full or read-only: a real one, in a namespace of mounts of a child's own."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

_BEGIN = """
import os, subprocess, sys, warnings
import numpy as np
import graphcore as gc
from graphcore import Graph, TensorType
from graphcore.errors import ExportError, ModelError

folder = sys.argv[1]

def graph(value, size=64):
    made = Graph("g", {"x": TensorType("float32", ["n", size])})
    made.output(y=made["x"] @ made.weight("w", np.full((size, size), value, np.float32)) + 1)
    return made

def run(model, size=64):
    return float(model(np.ones((1, size), np.float32))[0][0, 0])

def files(path=folder):
    return {name: os.path.getsize(os.path.join(path, name)) for name in sorted(os.listdir(path))}
"""

_FULL = f"""{_BEGIN}
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], check=True)
with open(os.path.join(folder, "filler"), "wb") as file:
    file.write(bytes(100 << 10))
"""

_READ_ONLY = "subprocess.run(['mount', '-o', 'remount,ro', folder], check=True)"


@cache
def may_mount() -> bool:
    """Return True if a child may have mounts of its own."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        done = subprocess.run(
            ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/tmp"], capture_output=True, timeout=300
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return not done.returncode


def mounted(code: str, folder: Path) -> None:
    """Run code in a child with mounts of its own."""
    if not may_mount():
        pytest.skip("no process may mount here")
    command = ["unshare", "-rm", sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_cache_says_that_the_disk_is_full_and_the_model_runs(tmp_path: Path) -> None:
    mounted(
        f"""{_FULL}
session = gc.InferenceSession()
with open(os.path.join(folder, "filler"), "ab", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
before = files()
for _ in range(2):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert run(session.load(graph(2.0), cache_dir=folder)) == 129
    said = [str(w.message) for w in caught]
    assert said, "nothing was said"
    assert all(f"cannot be written to {{folder}}: No space left on device" in each for each in said), said
    assert files() == before, files()
os.unlink(os.path.join(folder, "filler"))
with warnings.catch_warnings():
    warnings.simplefilter("error")
    assert run(session.load(graph(2.0), cache_dir=folder)) == 129  # there is room for a small one
assert files()
""",
        tmp_path,
    )


def test_export_keeps_the_old_model_and_leaves_nothing_when_the_disk_is_full(tmp_path: Path) -> None:
    mounted(
        f"""{_FULL}
path = os.path.join(folder, "model.onnx")
for external in (False, True):
    graph(1.0).export(path, external_data=external)
    before = files()
    try:
        graph(2.0, 512).export(path, external_data=external)
    except ExportError as error:
        assert "No space left on device" in str(error), error
        assert error.help
    else:
        raise AssertionError("it was written")
    assert files() == before, files()
    assert run(gc.InferenceSession().load(path)) == 65
    for name in before.keys() - {{"filler"}}:
        os.unlink(os.path.join(folder, name))
""",
        tmp_path,
    )


def test_folder_that_is_read_only_is_refused_by_name_and_the_model_in_it_runs(tmp_path: Path) -> None:
    mounted(
        f"""{_FULL}
path = os.path.join(folder, "model.onnx")
graph(1.0).export(path, external_data=True)
before = files()
{_READ_ONLY}
for given in (folder, os.path.join(folder, "inner")):
    try:
        gc.InferenceSession().load(graph(2.0), cache_dir=given)
    except ModelError as error:
        assert f"cache_dir={{given!r}} cannot be created or written to: Read-only file system" in str(error), error
    else:
        raise AssertionError("it was taken")
try:
    graph(2.0).export(path)
except ExportError as error:
    assert "Read-only file system" in str(error), error
else:
    raise AssertionError("it was written")
assert files() == before
assert run(gc.InferenceSession().load(path)) == 65
""",
        tmp_path,
    )


def test_cache_says_that_its_folder_became_read_only(tmp_path: Path) -> None:
    mounted(
        f"""{_FULL}
import graphcore.runtime.ort.optimised_cache as cache
session = gc.InferenceSession()
session.load(graph(1.0), cache_dir=folder)
before = files()
save = cache.CacheFolder.save
def read_only_by_then(self, *given):
    {_READ_ONLY}
    save(self, *given)
cache.CacheFolder.save = read_only_by_then
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert run(session.load(graph(2.0), cache_dir=folder)) == 129
assert any("cannot be written to" in str(w.message) and "Read-only file system" in str(w.message) for w in caught)
assert files() == before
""",
        tmp_path,
    )
