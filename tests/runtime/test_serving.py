"""Deadlines of requests, the end of what serves them, and metrics."""

from __future__ import annotations

import dataclasses
import gc as garbage
import weakref
from concurrent.futures import CancelledError, wait
from typing import Any

import pytest

import graphcore as gc
from graphcore import models
from graphcore.errors import BusyError, FeedError, RunCancelledError, RunTimeoutError
from graphcore.runtime.metrics import Recorder
from graphcore.runtime.waiting import BatchRequest, Deadlines, Waiting
from tests.runtime.test_batcher import LONG, until_taken, watching
from tests.runtime.test_stopping import ENDLESS, FIVE, counting
from tests.support.decoders import build_model
from tests.support.waiting import PATIENCE, until


def test_request_that_waits_beyond_its_time_is_not_run() -> None:
    model = watching(counting())
    model.gate.clear()
    with gc.Batcher(model, 1, LONG, when_full="raise", max_waiting=2) as batcher:
        running = batcher.submit(FIVE)
        until_taken(model)
        late = batcher.submit(FIVE, timeout=0.1)
        with pytest.raises(RunTimeoutError, match=r"a request was not done after timeout=0\.1 seconds"):
            late.result(PATIENCE)
        waiting = [batcher.submit(FIVE), batcher.submit(FIVE)]
        with pytest.raises(BusyError, match="spin: the queue is full: 2 requests are waiting"):
            batcher.submit(FIVE)
        model.gate.set()
        assert [future.result(PATIENCE)[0].tolist() for future in (running, *waiting)] == [[5]] * 3
        with pytest.raises(RunTimeoutError):
            batcher(ENDLESS, timeout=0.1)
        assert batcher(FIVE, timeout=PATIENCE)[0].tolist() == [5]
    assert len(model.rows) == 5  # without the late one
    result = batcher.metrics
    assert (result.submitted, result.completed, result.timed_out, result.busy) == (6, 4, 2, 1)
    assert (result.failed, result.cancelled, result.waiting, result.running) == (0, 0, 0, 0)
    assert result.waiting_seconds.count == 5


def test_rows_of_a_request_beyond_its_time_do_not_fill_a_batch() -> None:
    waiting = Waiting("rows", 4, LONG, 2)
    late = BatchRequest({}, 3, (), seconds=0.01)
    waiting.add(BatchRequest({}, 2, ()), waits=False)
    waiting.add(late, waits=False)
    assert isinstance(late.future.exception(PATIENCE), RunTimeoutError)
    assert waiting._rows == {(): 2}
    assert waiting._next()[1] > 0
    waiting.leave()


def test_batcher_keeps_no_completed_request_until_its_timeout() -> None:
    with gc.Batcher(counting(), 1, 0) as batcher:
        futures = [batcher.submit(FIVE, timeout=3600) for _ in range(20)]
        references = [weakref.ref(future) for future in futures]
        for future in futures:
            future.result(PATIENCE)
        del futures, future
        batcher.submit(FIVE, timeout=3600).result(PATIENCE)  # the thread has let go of the last of them
        garbage.collect()
        assert sum(reference() is not None for reference in references) == 0


def test_deadlines_forget_completed_requests() -> None:
    class Held:
        pass

    deadlines = Deadlines("deadlines of a test", lambda request: None)
    remaining, far = Held(), 1e9
    deadlines.add(far, remaining)
    for _ in range(5000):
        deadlines.add(far, Held())
    assert len(deadlines._waiting) <= 1025
    assert any(reference() is remaining for _, _, reference in deadlines._waiting)
    deadlines.close()


def test_close_stops_what_runs_when_its_time_is_over() -> None:
    batcher = gc.Batcher(counting(), 1, 0)
    running, waiting = batcher.submit(ENDLESS), batcher.submit(FIVE)
    until(running.running)
    assert not batcher.close(timeout=0.1)
    assert not wait([running, waiting], PATIENCE).not_done
    with pytest.raises(RunCancelledError, match="the batcher was closed"):
        running.result(0)
    with pytest.raises(CancelledError):
        waiting.result(0)
    assert gc.Batcher(counting()).close(timeout=PATIENCE)


@pytest.mark.parametrize("timeout", [0, -1, "1", float("nan")])
def test_times_that_are_none_are_refused(timeout: Any) -> None:
    with gc.Batcher(counting()) as batcher:
        for call in (lambda: batcher.submit(FIVE, timeout=timeout), lambda: batcher.close(timeout=timeout)):
            with pytest.raises(FeedError, match="is not a time"):
                call()


def test_metrics_are_text_for_prometheus() -> None:
    recorder = Recorder("batcher", 'a "model"\n')
    recorder.count("submitted")
    recorder.batch(3)
    recorder.batch(5000)
    recorder.waited(0.003)
    result = recorder.read(2, 1)
    lines = result.prometheus().split("\n")
    label = r'model="a \"model\"\n"'
    assert f"graphcore_batcher_requests_submitted_total{{{label}}} 1" in lines
    assert f"graphcore_batcher_requests_waiting{{{label}}} 2" in lines
    assert f"graphcore_batcher_batches_total{{{label}}} 2" in lines
    assert f'graphcore_batcher_batch_rows_bucket{{{label},le="4"}} 1' in lines
    assert f'graphcore_batcher_batch_rows_bucket{{{label},le="1024"}} 1' in lines
    assert f'graphcore_batcher_batch_rows_bucket{{{label},le="+Inf"}} 2' in lines
    assert f"graphcore_batcher_batch_rows_sum{{{label}}} 5003.0" in lines
    assert f"graphcore_batcher_waiting_seconds_count{{{label}}} 1" in lines
    assert lines[-1] == ""
    assert result.batch_rows.mean == 2501.5
    assert sum(line.startswith("# TYPE") for line in lines) == 12
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.waiting = 3  # type: ignore[misc]


def test_text_beyond_its_time_ends_and_leaves_the_others() -> None:
    model = build_model("llama")
    with pytest.raises(RunTimeoutError):
        models.generate(model, [1, 2], 50, timeout=1e-4)
    whole = models.generate(model, [1, 2], 20, timeout=PATIENCE)
    with models.Streams(model) as streams:
        right, late = streams.submit([1, 2], 20), streams.submit([1, 2], 60, timeout=1e-4)
        with pytest.raises(RunTimeoutError, match="a request has not ended after"):
            late.result(PATIENCE)
        assert right.result(PATIENCE).tolist() == whole.tolist()
        with pytest.raises(FeedError, match="is not a time"):
            streams.submit([1], 2, timeout=0)
        assert streams.close(drain=True, timeout=PATIENCE)
        result = streams.metrics
    assert (result.submitted, result.completed, result.timed_out, result.cancelled) == (2, 1, 1, 0)
    assert result.batches >= 19
    assert "graphcore_streams_requests_completed_total" in result.prometheus()


def test_requests_end_in_time_when_the_thread_of_the_deadlines_gets_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deadlines, "_watch", lambda deadlines: None)
    with models.Streams(build_model("llama"), slots=1) as streams:
        right, late = streams.submit([1, 2], 3), streams.submit([1, 2], 60, timeout=1e-4)
        running = streams.submit([1, 2], 60, timeout=1e-4)
        for request in (late, running):
            with pytest.raises(RunTimeoutError, match="a request has not ended after"):
                request.result(PATIENCE)
        assert len(right.result(PATIENCE)) == 3
