"""ONNX's own tests of single nodes, all of them, through `InferenceSession.load`, at their own tolerances."""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import onnx
import pytest

from tests.support.backend import KNOWN, NEAR, RANDOM

ROOT = Path(__file__).parents[2]
ONNX = "1.23."
"""Whose tests are known; of those of another version it is held that none ends the process."""
CHUNKS = 40
SECONDS = 300.0

pytestmark = pytest.mark.releases


class Runner:
    """A process that runs tests by name, started anew where one killed it.

    The tests of poolings, which take seconds to collect, are collected when their names are read.
    """

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.support.backend"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.names: list[str] = sorted(json.loads(self._line()))
        self._pools: list[str] = []

    @property
    def pools(self) -> list[str]:
        """The names of the tests of poolings, which `names` lacks."""
        if not self._pools:
            self._pools = sorted(json.loads(self._answer("collect pools")))
        return self._pools

    def part(self, chunk: int | str, chunks: int) -> list[str]:
        """Return the names of a chunk: every so many of `names`, or "pools"."""
        return self.pools if isinstance(chunk, str) else self.names[chunk::chunks]

    def _line(self) -> str:
        """The next line, or nothing from a process that ended or took too long."""
        assert self._process.stdout is not None
        timer = threading.Timer(SECONDS, self._process.kill)
        timer.start()
        try:
            return self._process.stdout.readline()
        finally:
            timer.cancel()

    def outcome(self, name: str, way: str = "loaded") -> str:
        """Return the outcome of the test, of the worker's `ways`."""
        had_pools = bool(self._pools)
        line = self._answer(f"{way} {name}")
        if line:
            return str(json.loads(line))
        self.close()
        self._start()
        if had_pools:
            _ = self.pools
        return "crash"

    def _answer(self, request: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{request}\n")
        self._process.stdin.flush()
        return self._line()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        self._process.stdin.close()


@functools.cache
def shared_runner() -> Runner:
    """Return the one process that the modules of tests share: it takes seconds to start."""
    runner = Runner()
    atexit.register(runner.close)
    return runner


@pytest.fixture(scope="module")
def runner() -> Runner:
    return shared_runner()


POOLS = pytest.param("pools", marks=pytest.mark.full)


@pytest.mark.numbers
@pytest.mark.parametrize("chunk", [*range(CHUNKS), POOLS])
def test_node_tests_of_onnx_pass_but_for_those_that_are_known_not_to(runner: Runner, chunk: int | str) -> None:
    outcomes = {name: runner.outcome(name) for name in runner.part(chunk, CHUNKS)}
    assert "crash" not in outcomes.values(), outcomes
    if not onnx.__version__.startswith(ONNX):
        return
    failed = {name: item for name, item in outcomes.items() if item != "ok" and name not in KNOWN}
    assert not {name: item for name, item in failed.items() if not item.startswith(("load:", "run:"))}
    passed = {name for name, item in outcomes.items() if item == "ok" and name in KNOWN} - {*RANDOM, *NEAR}
    # Neither is a wrong number: what is marked `numbers` asserts those alone.
    if failed or passed:
        pytest.fail(f"not in tests/support/backend.py: {failed}; to be taken out of it: {sorted(passed)}")
    drawn = {name: outcomes[name] for name in RANDOM if name in outcomes}
    assert {*drawn.values()} <= {"ok", "values"}, drawn
    close = {name: outcomes[name] for name in NEAR if name in outcomes}
    assert {*close.values()} <= {"ok", "near"}, close


def test_known_failures_are_few_and_each_is_a_test(runner: Runner) -> None:
    if not onnx.__version__.startswith(ONNX):
        return
    assert set(KNOWN) <= set(runner.names)
    assert len(runner.names) - len(KNOWN) >= 1793
    assert all(reason.endswith(".") for reason in KNOWN.values())


@pytest.mark.full
def test_pools_are_tests_too(runner: Runner) -> None:
    if onnx.__version__.startswith(ONNX):
        assert len({*runner.names, *runner.pools}) - len(KNOWN) >= 1840
