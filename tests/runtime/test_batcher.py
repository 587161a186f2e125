"""Batches of requests: their contents, their results, and the owner of an error."""

from __future__ import annotations

import functools
import gc as collector
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import Buffer, DType, Graph, TensorType, ops
from graphcore.errors import FeedError, GraphError, ModelError, RunError
from graphcore.runtime.calls.results import NamedResults
from graphcore.types.tensor_types import SequenceType
from tests.sampling import drawn
from tests.support.waiting import PATIENCE, until

D = DType
Array = np.ndarray[Any, Any]
LONG = 1e8


class Watched(gc.Model):
    """A Model that notes how many rows each call has, and runs when its gate is open."""

    rows: list[int]
    gate: threading.Event

    def __call__(self, /, *arrays: Any, timeout: Any = None, **named: Any) -> NamedResults:
        self.rows.append(len(arrays[0]))
        self.gate.wait(PATIENCE)
        return super().__call__(*arrays, timeout=timeout, **named)


def watched(graph: Graph) -> Watched:
    return watching(gc.InferenceSession(intra_op_num_threads=1).load(graph))


def watching(model: gc.Model) -> Watched:
    result: Any = model
    result.__class__ = Watched
    result.rows, result.gate = [], threading.Event()
    result.gate.set()
    return result  # type: ignore[no-any-return]


def scaled(rows: int | str = "batch", length: int | str = "length") -> Watched:
    graph = Graph("scaled", {"x": TensorType(D.float32, [rows, length]), "by": TensorType(D.bfloat16, [rows])})
    by = ops.unsqueeze(graph["by"], 1)
    graph.output(y=graph["x"] * by, total=graph["x"].sum(axis=1), more=graph["by"] + 1)
    return watched(graph)


any_model = functools.cache(scaled)


def request(rows: int, length: int, seed: int) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    return (
        random.integers(0, 9, (rows, length)).astype(np.float32),
        random.integers(0, 9, rows).astype(D.bfloat16.numpy),
    )


def is_right(results: list[Array], x: Array, by: Array) -> bool:
    y, total, more = results
    return (
        np.array_equal(y, x * by.astype(np.float32)[:, None])
        and np.array_equal(total, x.sum(axis=1))
        and np.array_equal(more, (by + 1).astype(by.dtype))
    )


def test_requests_are_run_together_and_get_their_own_rows() -> None:
    model = scaled()
    results = [request(1 + i % 3, 4, i) for i in range(8)]  # 15 rows
    with gc.Batcher(model, 15, LONG) as batcher:
        futures = [batcher.submit(*item) for item in results]
        assert all(is_right(f.result(PATIENCE), *item) for f, item in zip(futures, results, strict=True))
    assert model.rows == [15]
    first = futures[0].result()[0]
    first[...] = -1
    assert is_right(futures[1].result(), *results[1])
    assert first.base is None


class Ticking:
    """A clock that goes on by a millisecond whenever it is read."""

    milliseconds = 0

    def monotonic(self) -> float:
        self.milliseconds += 1
        return self.milliseconds / 1000


def test_batch_is_run_when_its_first_request_has_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    model, clock = scaled(), Ticking()
    monkeypatch.setattr("graphcore.runtime.waiting.time", clock)
    with gc.Batcher(model, 100, 20) as batcher:
        assert is_right(batcher(*request(2, 3, 0)), *request(2, 3, 0))
        assert 20 <= clock.milliseconds - 1 <= 21  # since the request came, when the clock was first read
    assert model.rows == [2]


def test_requests_of_other_lengths_are_other_batches() -> None:
    model = scaled()
    results = [request(1, 3 + i % 2, i) for i in range(8)]
    with gc.Batcher(model, 4, LONG) as batcher:
        futures = [batcher.submit(*item) for item in results]
        assert all(is_right(f.result(PATIENCE), *item) for f, item in zip(futures, results, strict=True))
    assert model.rows == [4, 4]


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 2)), min_size=1, max_size=20),
    st.integers(5, 9),
    st.sampled_from([0, 1, 5]),
)
@settings(max_examples=drawn(30), deadline=None)
def test_every_request_gets_what_the_model_gives_it(sizes: list[tuple[int, int]], most: int, patience: int) -> None:
    model = any_model()
    model.rows.clear()
    results = [request(rows, length, i) for i, (rows, length) in enumerate(sizes)]
    with gc.Batcher(model, most, patience) as batcher:
        futures = [batcher.submit(x, by=by) for x, by in results]
    assert all(is_right(f.result(0), *item) for f, item in zip(futures, results, strict=True))
    assert max(model.rows) <= most


def test_model_of_a_fixed_batch_is_given_the_last_row_again() -> None:
    model = scaled(rows=4)
    with gc.Batcher(model, 64, 0) as batcher:
        for rows in (1, 3, 4):
            assert is_right(batcher(*request(rows, 2, rows)), *request(rows, 2, rows))
        with pytest.raises(FeedError, match="a request of 5 rows, but batches have 1 to 4"):
            batcher(*request(5, 2, 0))
        with pytest.raises(FeedError, match="input 'x' must have rank 2"):
            batcher(np.zeros(3, np.float32), np.zeros(3, D.bfloat16.numpy))
    assert model.rows == [4, 4, 4]


def picked() -> Watched:
    graph = Graph("picked", {"i": TensorType(D.int64, ["n"])})
    graph.output(y=ops.gather(graph.constant(np.arange(4) * 10), graph["i"]))
    return watched(graph)


def test_error_goes_to_the_request_that_made_it() -> None:
    model = picked()
    with gc.Batcher(model, 4, LONG) as batcher:
        futures = [batcher.submit(np.array([i])) for i in (1, 99, 3, 2)]
        assert [futures[i].result(PATIENCE)[0].tolist() for i in (0, 2, 3)] == [[10], [30], [20]]
        with pytest.raises(RunError, match="picked: onnxruntime failed"):
            futures[1].result(PATIENCE)
    assert model.rows == [4, 1, 1, 1, 1]


def test_request_that_does_not_fit_is_an_error_of_its_own() -> None:
    with gc.Batcher(scaled(), 2, LONG) as batcher:
        x, by = request(1, 3, 0)
        right = [batcher.submit(x, by), batcher.submit(x, by)]
        for wrong, message in (
            ((x.astype(np.int32), by), "input 'x' must be float32"),
            ((x,), "no array is given for by"),
            ((x[0], by), "input 'x' must have rank 2"),
            ((x, by[[0, 0]]), "axis 0 of input 'by' must be batch, which is 1 in input 'x'"),
            ((x[:0], by[:0]), "a request of 0 rows, but batches have 1 to 2"),
            ((x[[0, 0, 0]], by[[0, 0, 0]]), "a request of 3 rows"),
        ):
            with pytest.raises(FeedError, match=message):
                batcher.submit(*wrong).result(PATIENCE)
        assert all(is_right(future.result(PATIENCE), x, by) for future in right)


@pytest.fixture
def blocked() -> Iterator[Watched]:
    """A model whose gate is closed."""
    model = picked()
    model.gate.clear()
    yield model
    model.gate.set()


def until_taken(model: Watched) -> None:
    until(lambda: model.rows)


def open_when_closed(batcher: gc.Batcher, model: Watched) -> None:
    """Open the gate of a model once its batcher takes no more requests."""

    def work() -> None:
        until(lambda: batcher._waiting.is_closed)
        model.gate.set()

    threading.Thread(target=work).start()


def test_submit_waits_for_room_or_raises_when_many_wait(blocked: Watched) -> None:
    one = np.array([1])
    with gc.Batcher(blocked, 1, 0, max_waiting=2, when_full="raise") as batcher:
        batcher.submit(one)
        until_taken(blocked)
        futures = [batcher.submit(one), batcher.submit(one)]
        assert repr(batcher) == "<Batcher of picked: 1 rows, 0 ms, 2 waiting>"
        with pytest.raises(RunError, match="picked: the queue is full: 2 requests are waiting"):
            batcher.submit(one)
        blocked.gate.set()
        assert [f.result(PATIENCE)[0].tolist() for f in futures] == [[10], [10]]
    blocked.gate.clear()
    blocked.rows.clear()
    with gc.Batcher(blocked, 1, 0, max_waiting=1) as batcher, ThreadPoolExecutor(4) as pool:
        first = batcher.submit(one)
        until_taken(blocked)
        results = [pool.submit(batcher, np.array([i])) for i in range(4)]
        until(lambda: len(batcher._waiting) == 1)
        assert not any(future.done() for future in results)
        blocked.gate.set()
        assert [future.result(PATIENCE)[0].tolist() for future in results] == [[0], [10], [20], [30]]
        assert first.done()


def test_close_runs_what_waits_and_refuses_more(blocked: Watched) -> None:
    batcher = gc.Batcher(blocked, 8, LONG)
    futures = [batcher.submit(np.array([i])) for i in range(3)]
    blocked.gate.set()
    batcher.close()
    assert [future.result(0)[0].tolist() for future in futures] == [[0], [10], [20]]
    assert blocked.rows == [3]
    with pytest.raises(RunError, match="picked: the batcher is closed"):
        batcher.submit(np.array([1]))
    batcher.close()


def test_close_can_cancel_what_waits(blocked: Watched) -> None:
    batcher = gc.Batcher(blocked, 1, 0)
    running = batcher.submit(np.array([1]))
    until_taken(blocked)
    waiting = [batcher.submit(np.array([i])) for i in range(3)]
    open_when_closed(batcher, blocked)
    batcher.close(drain=False)
    assert running.result(0)[0].tolist() == [10]
    for future in waiting:
        with pytest.raises(CancelledError):
            future.result(0)


def test_who_waits_for_room_is_told_when_the_batcher_closes(blocked: Watched) -> None:
    batcher = gc.Batcher(blocked, 1, 0, max_waiting=1)
    batcher.submit(np.array([1]))
    until_taken(blocked)
    batcher.submit(np.array([1]))
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(batcher.submit, np.array([2]))
        time.sleep(0.02)  # until it waits, as a rule
        open_when_closed(batcher, blocked)
        batcher.close(drain=False)
        with pytest.raises(RunError, match="the batcher is closed"):
            late.result(PATIENCE)


def test_request_that_was_cancelled_is_not_run(blocked: Watched) -> None:
    with gc.Batcher(blocked, 2, LONG) as batcher:
        gone = batcher.submit(np.array([99]))
        assert gone.cancel()
        right = batcher.submit(np.array([3]))
        blocked.gate.set()
        assert right.result(PATIENCE)[0].tolist() == [30]
    assert blocked.rows == [1]


def test_batcher_that_is_forgotten_ends_its_thread() -> None:
    model = picked()
    batcher = gc.Batcher(model, 1, 0)
    thread = batcher._thread
    batcher(np.array([1]))
    del batcher
    collector.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_process_ends_when_a_batcher_was_not_closed() -> None:
    code = """
import numpy as np
import graphcore as gc
from tests.runtime.test_batcher import picked
batcher = gc.Batcher(picked(), 4, 60_000)
print(batcher.submit(np.array([1])))
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, timeout=2 * PATIENCE, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "pending" in done.stdout


def test_threads_get_their_own_results() -> None:
    model = scaled()
    with gc.Batcher(model, 16, 1) as batcher:

        def ask(seed: int) -> bool:
            value = request(1 + seed % 4, 1 + seed % 2, seed)
            return is_right(batcher(*value), *value)

        model.gate.clear()
        with ThreadPoolExecutor(8) as pool:
            answers = pool.map(ask, range(200))
            until(lambda: len(batcher._waiting) >= 4)  # of two kinds, so that some are run together
            model.gate.set()
            assert all(answers)
    assert len(model.rows) < 200


def test_callback_that_raises_or_asks_again_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    model = picked()
    more: list[Future[list[Array]]] = []
    with gc.Batcher(model, 1, 0) as batcher:

        def again(future: Future[list[Array]]) -> None:
            more.append(batcher.submit(np.array([2])))
            raise ValueError("a callback of the user's")

        first = batcher.submit(np.array([1]))
        first.add_done_callback(again)
        assert first.result(PATIENCE)[0].tolist() == [10]
        assert batcher(np.array([3]))[0].tolist() == [30]
    assert more[0].result(PATIENCE)[0].tolist() == [20]


def test_models_without_a_batch_are_refused() -> None:
    n = gc.Dim("n")
    cases: list[tuple[list[Any], Any, str]] = [
        ([[n, 2]], lambda x: x.sum(axis=0), "output '.*' does not have the batch dim 'n'"),
        ([[n, 2], [2]], lambda x, y: x + y, "input 'x1' does not have the batch dim 'n'"),
        ([[n, 2], [n * 2]], lambda x, y: x + 1, "input 'x1' does not have the batch dim 'n'"),
        ([[n, n]], lambda x: x + 1, "input 'x0' does not have the batch dim 'n' in one axis"),
        ([[n, n * 2]], lambda x: x + 1, "input 'x0' does not have the batch dim 'n' in one axis"),
        ([[4, 2], [5]], lambda x, y: x + 1, "input 'x1' does not have the batch dim of 4 rows"),
        ([[]], lambda x: x + 1, "input 'x0' has no axes"),
        ([[0, 2]], lambda x: x + 1, "the batch dim is 0, so a batch has no rows"),
    ]
    for shapes, function, message in cases:
        graph = Graph("g", {f"x{i}": TensorType(D.float32, shape) for i, shape in enumerate(shapes)})
        graph.output(function(*graph.inputs))
        with pytest.raises(ModelError, match=message):
            gc.Batcher(gc.InferenceSession().load(graph))
    lists = Graph("lists", {"x": SequenceType(TensorType(D.float32, [2]))})
    lists.output(y=ops.onnx.SequenceLength(lists["x"]))
    changed = Graph("kept", {"x": TensorType(D.float32, ["n"]), "b": Buffer(D.float32, [1])})
    changed.output(y=changed["x"] + changed["b"])
    for graph, message in ((lists, "which cannot be batched"), (changed, "kept has buffers")):
        with pytest.raises(ModelError, match=message):
            gc.Batcher(gc.InferenceSession().load(graph))
    with pytest.raises(ModelError, match="does not have the batch dim 'rows'"):
        gc.Batcher(scaled(), dim="rows")


def test_output_without_the_rows_is_an_error_where_its_type_does_not_tell() -> None:
    graph = Graph("found", {"x": TensorType(D.float32, ["n"])})
    graph.output(y=graph["x"][graph["x"] > 0])
    with gc.Batcher(gc.InferenceSession().load(graph), 2, LONG) as batcher:
        right, wrong = batcher.submit(np.ones(1, np.float32)), batcher.submit(np.zeros(1, np.float32))
        assert right.result(PATIENCE)[0].tolist() == [1]
        with pytest.raises(RunError, match=r"output 'y' of a batch of 1 rows has the shape \[0\]"):
            wrong.result(PATIENCE)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"max_batch": 0}, "max_batch=0"),
        ({"max_batch": 2.5}, "max_batch=2.5"),
        ({"max_batch": True}, "max_batch=True"),
        ({"max_waiting": 0}, "max_waiting=0"),
        ({"max_wait_ms": -1}, "max_wait_ms=-1 is not a time"),
        ({"max_wait_ms": float("nan")}, "max_wait_ms=nan is not a time"),
        ({"max_wait_ms": "2"}, "max_wait_ms='2' is not a time"),
        ({"when_full": "drop"}, "there is no when_full='drop'"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(named: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        gc.Batcher(any_model(), **named)
    with pytest.raises(GraphError, match="model must be a Model, got Graph"):
        gc.Batcher(Graph("g", []))  # type: ignore[arg-type]


@pytest.mark.parametrize("full", [False, True])
def test_kinds_that_are_full_again_and_again_leave_others_their_turn(full: bool) -> None:
    model = scaled()
    model.gate.clear()
    order: list[int] = []
    with gc.Batcher(model, 2, 0) as batcher:
        batcher.submit(*request(1, 1, 0))
        until_taken(model)
        lengths = [4, 4, 7, 4, 4, 4] if full else [4, 7, 4, 7]
        for length in lengths:
            future = batcher.submit(*request(2 if length == 4 and full else 1, length, 1))
            future.add_done_callback(lambda _, length=length: order.append(length))  # type: ignore[misc]
        model.gate.set()
    assert order == (lengths if full else [4, 4, 7, 7])


def test_callback_that_would_wait_for_itself_is_refused() -> None:
    model = picked()
    results: list[str] = []
    with gc.Batcher(model, 1, 0, max_waiting=1) as batcher:

        def asks(_: Future[list[Array]]) -> None:
            for ask in (batcher.submit, batcher.submit, batcher):
                try:
                    ask(np.array([2]))
                except RunError as error:
                    results.append(error.summary)

        model.gate.clear()
        first = batcher.submit(np.array([1]))
        first.add_done_callback(asks)
        model.gate.set()
        until(lambda: len(results) == 2)  # the callback runs after the result is there
        assert first.result(PATIENCE)
    assert results[0] == "picked: the queue is full: 1 requests are waiting"
    assert "picked: a callback of a request runs in the thread that runs requests" in results[1]


def test_callback_that_ends_its_thread_does_not_end_the_batcher(caplog: pytest.LogCaptureFixture) -> None:
    def ends(_: Future[list[Array]]) -> None:
        raise SystemExit

    model = picked()
    model.gate.clear()
    with gc.Batcher(model, 2, LONG) as batcher:
        futures = [batcher.submit(np.array([1])), batcher.submit(np.array([2]))]
        for future in futures:
            future.add_done_callback(ends)
        model.gate.set()
        assert [future.result(PATIENCE)[0].tolist() for future in futures] == [[10], [20]]
        wrong = batcher.submit(np.array([99, 98]))
        wrong.add_done_callback(ends)
        with pytest.raises(RunError):
            wrong.result(PATIENCE)
        assert batcher(np.array([3, 3]))[0].tolist() == [30, 30]
    assert caplog.text.count("a callback of a request ended") == 3


@pytest.mark.parametrize("wait", [np.int64(3), np.float32(0.5), 3, 0.0])
def test_time_is_any_number(wait: Any) -> None:
    with gc.Batcher(picked(), 1, wait) as batcher:
        assert batcher(np.array([3]))[0].tolist() == [30]
