"""Requests of many threads, run together as batches. See docs/howto/serve.md."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, Literal

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, GraphError, ModelError, RunCancelledError, RunError
from graphcore.runtime.calls.batching import Batching, batching
from graphcore.runtime.calls.feeds import Feeds
from graphcore.runtime.model import Model
from graphcore.runtime.stopping.limit import Limit, seconds_of
from graphcore.runtime.waiting import Request, Server, Waiting
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType, Type


class Batcher(Server):
    """Runs requests of a Model together: `batcher.submit(x)` gives a future, `batcher(x)` waits for its result.

    A request is what the model takes, with one row or more; requests whose other dims are the same are put after each
    other until there are `max_batch` rows or the first of them has waited for `max_wait_ms`. A model whose batch is a
    number is given so many rows, the last one repeated. Each request gets the rows that are its own, in arrays of its
    own. Where a batch fails, each of its requests is run by itself, so that an error goes to the request that made it.

    The results are those of the model as long as no row of it depends on another.
    """

    def __init__(
        self,
        model: Model,
        max_batch: int = 32,
        max_wait_ms: float = 2.0,
        *,
        dim: str | Mapping[str, int] | None = None,
        max_waiting: int = 1024,
        when_full: Literal["wait", "raise"] = "wait",
    ) -> None:
        """dim: the name of the batch dim, by default the first dim of the first input; or the axes of the batch by the
        names of inputs and outputs, `{"logits": 0}`. Where an output's dims have other names, the first request tells
        its axis: a row of it is run 2 and 3 times. max_waiting: how many requests wait at most; when_full: what
        `submit` does then: wait for room, or raise `BusyError`.

        Raises `ModelError` for a model whose inputs and outputs do not all carry the batch dim, or that has buffers,
        `GraphError` for numbers that make no sense and axes that are not there. A request raises `ModelError` where an
        output turns out not to carry it.
        """
        if not isinstance(model, Model):
            raise GraphError(
                f"Batcher: a {type(model).__name__} is no Model", help="load it: InferenceSession().load()"
            )
        if not _is_count(max_batch) or not _is_count(max_waiting):
            raise GraphError(
                f"Batcher: max_batch={max_batch!r:.40} and max_waiting={max_waiting!r:.40} are to be numbers from 1 on",
                help="Batcher(model, max_batch=32, max_wait_ms=2)",
            )
        if not _is_number(max_wait_ms) or not 0 <= max_wait_ms < 1e9:
            raise GraphError(
                f"Batcher: max_wait_ms={max_wait_ms!r:.40} is no time", help="give milliseconds, 0 for not to wait"
            )
        if when_full not in ("wait", "raise"):
            raise GraphError(f"Batcher: there is no when_full={when_full!r:.40}", help='give "wait" or "raise"')
        if model._kept:
            raise ModelError(
                f"Batcher: {model.name} has buffers, and what a call stores is another call's",
                help="give each stream of calls a state of its own: model.state()",
            )
        self._batches = batching(model.name, model.inputs, model.outputs, dim)
        most = int(max_batch) if self._batches.size is None else min(int(max_batch), self._batches.size)
        self._feeds = Feeds(model.name, _any_rows(model.inputs, self._batches))
        self._model = model
        self._when_full = when_full
        self._waiting = Waiting(model.name, most, float(max_wait_ms) / 1000, int(max_waiting))
        # The thread knows the Batcher's parts and not the Batcher, which can so be forgotten.
        super().__init__(model.name, "batcher", self._waiting, _work, self._waiting, model, self._batches)

    def submit(self, /, *arrays: Any, timeout: Any = None, **named: Any) -> Future[list[Array]]:
        """Return a future of the outputs. Leave the arrays as they are until it is done.

        timeout: seconds from now on, after which the future has a `RunTimeoutError`, None for no limit; a request that
        waits is not run then, and a batch whose requests have all timed out is stopped. Where an input is called
        `timeout`, that one is meant.

        What does not fit the inputs is an error in the future, the `FeedError` that a call of the model raises, and so
        is what the model raises. Raises `FeedError` for a timeout that is none, `BusyError` where the batcher is full
        and was told to raise or asked by a callback of its own, for which no room would ever be made, and `RunError`
        where it is closed or was made in another process.
        """
        self._check_process()
        seconds = None
        if timeout is not None and "timeout" in self._batches.inputs:
            named["timeout"] = timeout
        elif timeout is not None:
            seconds = seconds_of(self._name, timeout)
        try:
            request = self._request(arrays, named, seconds)
        except FeedError as error:
            refused: Future[list[Array]] = Future()
            refused.set_exception(error)
            return refused
        waits = self._when_full == "wait" and threading.current_thread() is not self._thread
        self._waiting.add(request, waits)
        return request.future

    def __call__(self, /, *arrays: Any, timeout: Any = None, **named: Any) -> list[Array]:
        """Return the outputs of a request, once it was run. Raises what `submit` does, and what the model raises, and
        `RunError` where a callback of a future calls it, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            raise RunError(
                f"{self._model.name}: a callback of a request is run by the thread that runs requests, and cannot wait"
                " for one",
                help="submit it, and add a callback to its future",
            )
        return self.submit(*arrays, timeout=timeout, **named).result()

    def close(self, *, drain: bool = True, timeout: float | None = None) -> bool:
        """Run what waits, or cancel it with drain=False, and end the thread. What is submitted from then on is refused.

        timeout: seconds after which what waits is cancelled, and what runs is stopped; None for as long as it takes.
        Return whether nothing had to be stopped. Raises `FeedError` for a timeout that is none.
        """
        return self._close(drain, None if timeout is None else seconds_of(f"close: {self._name}", timeout))

    def __repr__(self) -> str:
        limits = f"{self._waiting.most} rows, {self._waiting.patience * 1000:g} ms"
        return f"<Batcher of {self._model.name}: {limits}, {len(self._waiting)} waiting>"

    def _request(self, arrays: tuple[Any, ...], named: Mapping[str, Any], seconds: float | None) -> Request:
        feed = self._feeds.take(arrays, named)
        rows = self._batches.rows(feed)
        if not 0 < rows <= self._waiting.most:
            raise FeedError(
                f"{self._model.name}: a request of {rows} rows, and batches have 1 to {self._waiting.most}",
                help="give it in parts, or call the model",
            )
        axes = self._batches.inputs
        kind = tuple(a.shape[: axes[n]] + a.shape[axes[n] + 1 :] for n, a in feed.items())
        return Request(feed, rows, kind, seconds=seconds)


def _work(waiting: Waiting, model: Model, batches: Batching) -> None:
    """Run batches in a thread."""
    while requests := waiting.take():
        live = [request for request in requests if _begun(waiting, request)]
        if live:
            waiting.running = len(live)
            started = time.monotonic()
            with suppress(RunCancelledError), waiting.limit:
                batches = _settled(model, batches, live)
                _run(waiting, model, batches, live)
            for request in live:
                if not request.future.done():
                    waiting.end(request, RunCancelledError(f"{model.name}: the batcher was closed"))
            waiting.recorder.ran(time.monotonic() - started)
            waiting.running = 0
        del requests, live
    waiting.leave()


def _begun(waiting: Waiting, request: Request) -> bool:
    """Return whether a request is to be run, which has neither been cancelled nor timed out."""
    if request.future.done() and not request.future.cancelled():
        return False
    try:
        is_live = request.future.set_running_or_notify_cancel()
    except InvalidStateError:  # it has timed out just now
        return False
    if is_live:
        waiting.recorder.waited(time.monotonic() - request.arrived)
    else:
        waiting.recorder.count("cancelled")
    return is_live


def _settled(model: Model, batches: Batching, requests: Sequence[Request]) -> Batching:
    """Return the axes as the first of these requests that can be run tells; as they are where none can."""
    for request in requests if batches.open else ():
        with suppress(Exception):  # running it raises it again, for the request
            return batches.settled(model, request.feed)
    return batches


def _run(waiting: Waiting, model: Model, batches: Batching, requests: Sequence[Request]) -> None:
    counts = [request.rows for request in requests]
    deadline = max(request.deadline for request in requests)
    seconds = None if deadline == math.inf else max(request.seconds or 0 for request in requests)
    try:
        with Limit(model.name, seconds, deadline):
            batches = batches.settled(model, requests[0].feed)
            waiting.recorder.batch(sum(counts))
            shares = batches.run(model, batches.joined([request.feed for request in requests]), counts)
    except BaseException as error:
        if len(requests) == 1 or not isinstance(error, Exception):
            for request in requests:
                waiting.end(request, error)
            return
        for request in requests:
            _run(waiting, model, batches, [request])
        return
    for request, share in zip(requests, shares, strict=True):
        waiting.end(request, share)


def _any_rows(types: Mapping[str, Type], batches: Batching) -> dict[str, Type]:
    """Return the types of inputs for any number of rows, where a batch has a number."""
    if batches.size is None:
        return dict(types)
    made: dict[str, Type] = {}
    for name, type_ in types.items():
        assert isinstance(type_, TensorType)
        dims = list(type_.shape) if type_.shape.is_ranked else None
        if dims is None:
            made[name] = type_
            continue
        dims[batches.inputs[name]] = Dim.dynamic()
        made[name] = TensorType(type_.dtype, dims)
    return made


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 1)
