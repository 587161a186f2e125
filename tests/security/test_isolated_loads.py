"""Arguments of loads and calls that an isolated model shares with a Model: limits, weights and timeouts."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType
from graphcore.errors import (
    FeedError,
    GraphcoreError,
    GraphError,
    ModelError,
    ResourceLimitError,
    RunError,
    RunTimeoutError,
)
from tests.security.test_isolation import MEMORY, ONES, START, endless, has_ended, taken_over
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is Linux'")

SESSION = gc.IsolatedSession(memory=MEMORY, load_seconds=START, run_seconds=START)


def weighted() -> Graph:
    """A graph with three weights, one of them of bools."""
    graph = Graph("weighted", {"x": TensorType(DType.float32, ["n", 2])})
    w = graph.weight("w", np.ones((2, 2), np.float32))
    b = graph.weight("b", np.zeros(2, np.float32))
    flag = graph.weight("flag", np.array([True, False]))
    graph.output(y=graph["x"] @ w + b, z=flag & True)
    return graph


OTHERS = {
    "w": np.array([[1, 2], [3, 4]], np.float32),
    "b": np.array([10, 20], np.float32),
    "flag": np.array([False, True]),
}


# Limits


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (gc.Limits(bytes=10), "bytes=10"),
        (gc.Limits(nodes=1), "nodes=1"),
        (gc.Limits(elements=1), "elements=1"),
        (gc.Limits(depth=0), "depth=0"),
        (gc.Limits(seconds=1e-9), "seconds=1e-09"),
        (gc.Limits(strict=["Loop", "Identity"]), "strict does not allow Mul"),
    ],
    ids=["bytes", "nodes", "elements", "depth", "seconds", "strict"],
)
def test_load_is_refused_when_it_is_beyond_a_limit_of_its_own(limits: gc.Limits, words: str) -> None:
    with pytest.raises(GraphcoreError, match=words) as caught:
        SESSION.load(endless(), limits=limits)
    assert type(caught.value) is (ModelError if limits.strict else ResourceLimitError)
    with pytest.raises(type(caught.value)) as of_model:
        gc.InferenceSession().load(endless(), limits=limits)
    assert caught.value.summary == of_model.value.summary


def test_load_keeps_its_limits_when_they_are_wide_enough(tmp_path: Path) -> None:
    (tmp_path / "endless.onnx").write_bytes(endless())
    limits = gc.Limits(nodes=10, strict=["Loop", "Identity", "Mul"])
    with SESSION.load(tmp_path / "endless.onnx", limits=limits) as isolated:
        assert isolated(np.array(False), ONES)[0].tolist() == [1, 1]


def test_load_refuses_limits_and_a_cache_that_it_cannot_have() -> None:
    with pytest.raises(GraphError, match="limits must be a Limits, got dict"):
        SESSION.load(endless(), limits={"nodes": 1})  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="cache_dir is not supported") as caught:
        SESSION.load(endless(), cache_dir="somewhere")  # type: ignore[arg-type]
    assert "InferenceSession" in caught.value.help


# Weights


@pytest.mark.parametrize("kind", ["graph", "path", "bytes"])
def test_weights_are_replaced_as_those_of_a_model(kind: str, tmp_path: Path) -> None:
    graph = weighted()
    value: Any = graph
    if kind != "graph":
        graph.export(tmp_path / "weighted.onnx")
        value = tmp_path / "weighted.onnx" if kind == "path" else (tmp_path / "weighted.onnx").read_bytes()
    x = np.array([[1, 2], [3, 4]], np.float32)
    want = gc.InferenceSession().load(value, OTHERS)(x)
    with SESSION.load(value, OTHERS) as isolated:
        for _ in range(2):
            got = isolated(x)
            assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
            process = isolated.processes[0]
            os.kill(process, signal.SIGKILL)  # the next worker is given them again
            until(lambda process=process: has_ended(process))  # type: ignore[misc]
    assert want[0].tolist() == [[17, 30], [25, 42]]


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1], "weights must be a mapping of names to arrays, got list"),
        ({"w": [1.0]}, "'w' must be an array, got list"),
        ({"w": np.ma.masked_array([1.0])}, "must be an array, got MaskedArray"),
        ({1: np.ones(1)}, "weight 1"),
        ({"v": np.ones((2, 2), np.float32)}, "no weight 'v'"),
        ({"w": np.ones((2, 3), np.float32)}, r"got float32\[2, 3\]"),
        ({"w": np.ones((2, 2), np.longdouble)}, "array of float128"),
    ],
)
def test_weights_are_refused_when_they_are_not_the_models(weights: Any, words: str) -> None:
    with pytest.raises(GraphcoreError, match=words) as caught:
        SESSION.load(weighted(), weights)
    assert caught.value.help


# Timeouts


@pytest.fixture(scope="module")
def isolated() -> Iterator[gc.IsolatedModel]:
    with SESSION.load(endless()) as result:
        yield result


@pytest.mark.full
def test_call_ends_at_its_timeout_and_the_worker_lives(isolated: gc.IsolatedModel) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: isolated(np.array(True), ONES, timeout=0.3),
        lambda: isolated.execute(np.array(True), ONES, timeout=0.3),
        lambda: isolated.run_async(np.array(True), ONES, timeout=0.3).result(),
    ]
    for call in calls:
        with pytest.raises(RunTimeoutError, match=r"timeout=0\.3 seconds") as caught:
            call()
        assert caught.value.help
        assert isolated(np.array(False), ONES, timeout=START)[0].tolist() == [1, 1]


@pytest.mark.full
def test_worker_that_does_not_stop_is_ended_and_the_next_call_runs() -> None:
    with taken_over() as result:
        sleep = np.array("import time; time.sleep(1e6)", object)
        with pytest.raises(RunTimeoutError, match="its worker was ended"):
            result(sleep, timeout=0.3)
        with pytest.raises(RunTimeoutError, match="timeout"):  # while another worker starts
            result(np.array("said = 1", object), timeout=0.01)
        assert result(np.array("said = 1", object), timeout=START)[0] == "1"


def test_timeout_counts_the_wait_for_a_free_worker(isolated: gc.IsolatedModel) -> None:
    assert isolated(np.array(False), ONES)[0].tolist() == [1, 1]  # the worker is there
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(isolated, np.array(True), ONES, timeout=START)
        until(lambda: not isolated._pool()._free)
        with pytest.raises(RunTimeoutError):
            isolated(np.array(False), ONES, timeout=0.2)
        assert not first.done()
        (process,) = isolated.processes
        os.kill(process, signal.SIGKILL)
        with pytest.raises(RunError):
            first.result()


@pytest.mark.full
def test_session_limit_holds_when_the_timeout_is_longer() -> None:
    session = gc.IsolatedSession(run_seconds=1, load_seconds=START)
    with session.load(endless()) as result, pytest.raises(ResourceLimitError, match="run_seconds=1"):
        result(np.array(True), ONES, timeout=START)


@pytest.mark.parametrize("timeout", [0, -1, "1", True, float("inf"), float("nan")])
def test_timeout_is_refused_when_it_is_not_a_time(isolated: gc.IsolatedModel, timeout: Any) -> None:
    for call in (isolated, isolated.execute, isolated.run_async):
        with pytest.raises(FeedError, match="is not a time"):
            call(np.array(False), ONES, timeout=timeout)


def test_input_called_timeout_is_meant_in_a_call() -> None:
    graph = Graph("named", {"timeout": TensorType(DType.float32, [1])})
    graph.output(y=graph["timeout"] + 1)
    with SESSION.load(graph) as result:
        assert result(timeout=np.ones(1, np.float32))[0] == 2
        assert result.run_async(timeout=np.ones(1, np.float32)).result()[0] == 2
        assert result.execute({"timeout": np.ones(1, np.float32)}, timeout=START)[0] == 2


def test_model_runs_and_is_ended_where_there_is_no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("select.poll")
    with SESSION.load(endless()) as result:
        assert result(np.array(False), ONES)[0].tolist() == [1, 1]
        with pytest.raises(RunTimeoutError):
            result(np.array(True), ONES, timeout=0.3)
        assert result(np.array(False), ONES)[0].tolist() == [1, 1]
