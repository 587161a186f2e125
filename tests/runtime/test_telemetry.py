"""The telemetry of onnxruntime is off: no files in the user's cache and no look-ups, of the library or its children."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import onnxruntime
import pytest

from graphcore import Graph, TensorType
from graphcore.runtime.doctor.release import TELEMETRY
from graphcore.types.dtypes import DType

ROOT = Path(__file__).resolve().parents[2]

RUN = """
import time
import numpy as np
import graphcore as gc
graph = gc.Graph("g", {"x": gc.TensorType(gc.DType.float32, ["n"])})
graph.output(y=-graph["x"])
assert gc.InferenceSession().load(graph)(np.ones(2, np.float32))[0][0] == -1
"""
"""A graph run by the library."""

CHILD = """
import subprocess, sys
import graphcore
subprocess.run([sys.executable, "-c", "import onnxruntime"], check=True)
"""
"""A child that imports onnxruntime and not graphcore."""

SPAWNED = """
import multiprocessing
import graphcore

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(exec, ("import onnxruntime",))
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="telemetry was seen, and is traced, on Linux")


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return an environment that says nothing about telemetry, with a home of its own."""
    results = {name: value for name, value in os.environ.items() if name not in ("ORT_DISABLE_TELEMETRY", "CI")}
    return {**results, "PYTHONPATH": str(ROOT), "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), **more}


def files_left(home: Path, command: Sequence[str], **more: str) -> list[str]:
    """Run a command in a home of its own; return the files of onnxruntime that are there afterwards."""
    done = subprocess.run(command, cwd=home, env=environment(home, **more), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return sorted(str(file.relative_to(home)) for file in home.rglob("*") if "Microsoft" in file.parts)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n"])})
    graph.output(y=-graph["x"])
    graph.export(tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("code", [RUN, CHILD, SPAWNED], ids=["library", "child", "spawned"])
def test_telemetry_leaves_no_files_when_graphcore_is_imported_first(tmp_path: Path, code: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(code)
    assert files_left(tmp_path, [sys.executable, str(script)]) == []


@pytest.mark.parametrize("words", [["run", "--random"], ["check"], ["doctor"]], ids=" ".join)
def test_telemetry_leaves_no_files_after_a_command(tmp_path: Path, model: Path, words: list[str]) -> None:
    operands = [] if words == ["doctor"] else [str(model)]
    assert files_left(tmp_path, [sys.executable, "-m", "graphcore", *words, *operands]) == []


@pytest.mark.full
def test_telemetry_makes_no_socket_and_reads_no_name_of_a_resolver_under_strace(tmp_path: Path) -> None:
    check_no_network(tmp_path, RUN + "time.sleep(2)")


def test_no_socket_at_start_under_strace(tmp_path: Path) -> None:
    check_no_network(tmp_path, RUN)


def check_no_network(tmp_path: Path, code: str) -> None:
    """Check that a process makes no socket and reads no file of a resolver."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    trace = tmp_path / "trace"
    command = [
        strace,
        "-f",
        "-e",
        "trace=network,openat",
        "-o",
        str(trace),
        sys.executable,
        "-c",
        code,
    ]
    if subprocess.run([strace, "-o", os.devnull, "true"], capture_output=True).returncode:
        pytest.skip("processes cannot be traced here")
    assert files_left(tmp_path, command) == []
    text = trace.read_text()
    assert "onnxruntime_pybind11_state" in text
    assert not [line for line in text.splitlines() if "socket(" in line or "connect(" in line]
    assert not [word for word in ("resolv.conf", "nsswitch", "DeveloperTools", "/ssl/", "ca-bundle") if word in text]


@pytest.mark.parametrize(
    "more", [{"GRAPHCORE_TELEMETRY": "1"}, {"ORT_DISABLE_TELEMETRY": "0"}], ids=["graphcore", "onnxruntime"]
)
def test_telemetry_stays_when_the_environment_asks_for_it(tmp_path: Path, more: dict[str, str]) -> None:
    if not TELEMETRY.includes(onnxruntime.__version__):
        pytest.skip("this release keeps no events")
    remaining = files_left(tmp_path, [sys.executable, "-c", RUN], **more)
    assert any(file.endswith(".db") for file in remaining)


LATE = """
import onnxruntime
stopped = []
onnxruntime.disable_telemetry_events = lambda: stopped.append(True)
import graphcore, os
from graphcore.runtime.doctor import report
print(stopped, os.environ["ORT_DISABLE_TELEMETRY"], *[found.text for found in report().findings])
"""


def test_telemetry_is_stopped_and_noted_when_onnxruntime_was_imported_first(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LATE], env=environment(tmp_path), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[True] 1 ")
    assert ("imported before graphcore" in done.stdout) is TELEMETRY.includes(onnxruntime.__version__)
