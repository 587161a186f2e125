"""Ctrl-C in a real process: the exit status is 130, and no file is left half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from graphcore import DType, Graph, TensorType

ROOT = Path(__file__).resolve().parents[2]
MAX_LENGTH = 300  # seconds


def model(size: int) -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, [1, 64])})
    w = np.zeros((64, size // 64 // 4), np.float32)
    graph.output(y=graph["x"] @ graph.weight("w", w))
    graph.export("m.onnx", target="onnx")


def interrupted(
    argv: list[str], is_time: Callable[[], bool], start: Sequence[str] = ("-m", "graphcore")
) -> tuple[int, str]:
    """Start the command, send SIGINT as soon as `is_time`; return its status and what it wrote to stderr.

    start: arguments of Python that start the command line.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    process = subprocess.Popen(
        [sys.executable, *start, *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    end = time.monotonic() + MAX_LENGTH
    while not is_time() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.0005)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=MAX_LENGTH)
    # Python ends itself by the signal where it came inside of an `eval`, as those of imports; shells say 130 of both.
    status = 128 + signal.SIGINT if process.returncode == -signal.SIGINT else process.returncode
    return status, err


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_interrupt_while_a_model_is_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model(256 << 20)

    def is_writing() -> bool:
        return any(name.startswith(".o.onnx") for name in os.listdir())

    for _ in range(8):
        status, err = interrupted(["rename", "m.onnx", "o.onnx", "x=image", "--external-data"], is_writing)
        assert err == ""
        assert status in (0, 130)
        remaining = {path.name for path in Path().iterdir()} - {"m.onnx"}
        assert remaining in (set(), {"o.onnx", "o.onnx.data"})
        if not remaining:
            assert status == 130
            return
        for name in remaining:
            os.unlink(name)
    pytest.skip("every file was written before the signal came")


MEASURING = """
import sys
from pathlib import Path
from graphcore.cli import main
from graphcore.cli.commands import bench
in_turns = bench.in_turns
def measured(calls, seconds, tell):
    def report(passed):
        Path("measures").touch()
        tell(passed)
    return in_turns(calls, seconds, report)
bench.in_turns = measured
sys.exit(main())
"""
"""The command line, which writes a file once `bench` has measured a call."""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_interrupt_while_measuring_ends_with_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model(1 << 16)
    argv = ["bench", "m.onnx", "--seconds", "10000", "--plot", "p.svg"]
    assert interrupted(argv, Path("measures").exists, ("-c", MEASURING)) == (130, "")
    assert not Path("p.svg").exists()
