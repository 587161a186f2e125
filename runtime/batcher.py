"""Requests of many threads, run together as batches. See docs/howto/serve.md."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, GraphError, ModelError, RunCancelledError, RunError
from graphcore.runtime.calls.batching import Batching, batching
from graphcore.runtime.calls.feeds import Feeds
from graphcore.runtime.calls.rows import row_types
from graphcore.runtime.model import Model
from graphcore.runtime.stopping.limit import Limit, is_count, is_number, seconds_of
from graphcore.runtime.waiting import BatchRequest, Server, Waiting
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Type


class Batcher(Server):
    """Runs requests to a Model in batches: `batcher.submit(x)` returns a future, `batcher(x)` waits for its result.

    A request has the model's inputs with one or more rows. Requests with equal other dims and the same arrays for
    inputs that have defaults are concatenated until there are `max_batch` rows, or the first request has waited for
    `max_wait_ms`. A batch of static size is filled up with its last row. Each request gets copies of its own rows. If a
    batch fails, each of its requests runs separately, so that only the request with the mistake gets the error.

    The results are those of the model if its rows do not depend on each other.
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
        """Start the thread of the batcher.

        Args:
            model: The Model that runs the batches.
            max_batch: Maximum number of rows of a batch.
            max_wait_ms: Milliseconds that a request waits for others at most.
            dim: The name of the batch dim, by default the first dim of the first input; or the axes of the batch by
                inputs and outputs, `{"logits": 0}`. If an output has only dims of other names, the first request shows
                its axis: one of its rows runs 2 and 3 times.
            max_waiting: Maximum number of waiting requests.
            when_full: What `submit` does then: "wait", or "raise" a `BusyError`.

        Raises:
            ModelError: If an input or output does not have the batch dim, or the model has buffers. For outputs with
                other dims, requests raise it.
            GraphError: For invalid numbers and axes.
        """
        if not isinstance(model, Model):
            raise GraphError(
                f"Batcher: model must be a Model, got {type(model).__name__}", help="load it: InferenceSession().load()"
            )
        if not is_count(max_batch) or not is_count(max_waiting):
            raise GraphError(
                f"Batcher: max_batch={max_batch!r:.40} and max_waiting={max_waiting!r:.40} are to be numbers from 1 on",
                help="Batcher(model, max_batch=32, max_wait_ms=2)",
            )
        if not is_number(max_wait_ms) or not 0 <= max_wait_ms < 1e9:
            raise GraphError(
                f"Batcher: max_wait_ms={max_wait_ms!r:.40} is not a time", help="give milliseconds, 0 for not to wait"
            )
        if when_full not in ("wait", "raise"):
            raise GraphError(f"Batcher: there is no when_full={when_full!r:.40}", help='give "wait" or "raise"')
        if model._model_buffers:
            raise ModelError(
                f"Batcher: {model.name} has buffers, which its calls cannot share",
                help="use a state for each stream of calls: model.state()",
            )
        self._batches = batching(model.name, model.inputs, model.outputs, dim)
        max_rows = int(max_batch) if self._batches.size is None else min(int(max_batch), self._batches.size)
        types: Mapping[str, Type] = model.inputs
        if self._batches.size is not None:  # a request has fewer rows than a batch
            types = row_types(types, self._batches.inputs, Dim.dynamic())
        self._feeds = Feeds(model.name, types, optional=model.inputs.optional)
        self._model = model
        self._when_full = when_full
        self._waiting = Waiting(model.name, max_rows, float(max_wait_ms) / 1000, int(max_waiting))
        # The thread refers to parts of the Batcher and not to the Batcher, which can be collected then.
        super().__init__(model.name, "batcher", self._waiting, _work, self._waiting, model, self._batches)

    def submit(self, /, *arrays: Any, timeout: Any = None, **named: Any) -> Future[list[Array]]:
        """Submit a request and return a future of the outputs. Do not change the arrays until it is done.

        Errors of the request, such as the `FeedError` of a call, are in the future.

        Args:
            arrays: Values of the inputs, as in a call.
            timeout: Seconds from now on, after which the future has a `RunTimeoutError`; None for no limit. A waiting
                request is not run then, and a batch is stopped when all of its requests have timed out. If an input is
                called `timeout`, this argument is the input.
            named: Values of inputs by name, as in a call.

        Raises:
            FeedError: For an invalid timeout.
            BusyError: If the batcher is full, and `when_full` is "raise" or a callback of the batcher calls `submit`.
            RunError: If the batcher is closed, or was created in another process.
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
        """Submit a request and wait for its outputs. Raises as `submit` and as the model, and `RunError` in a callback
        of a future, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            raise RunError(
                f"{self._model.name}: a callback of a request runs in the thread that runs requests, and cannot wait"
                " for one",
                help="submit it, and add a callback to its future",
            )
        return self.submit(*arrays, timeout=timeout, **named).result()

    def close(self, *, drain: bool = True, timeout: float | None = None) -> bool:
        """Run waiting requests, or cancel them with drain=False, and end the thread.

        New requests are refused.

        Args:
            timeout: Seconds after which waiting requests are cancelled and running ones stopped; None for no limit.

        Returns:
            True if nothing had to be stopped.

        Raises:
            FeedError: For an invalid timeout.
        """
        return self._close(drain, None if timeout is None else seconds_of(f"close: {self._name}", timeout))

    def __repr__(self) -> str:
        limits = f"{self._waiting.max_rows} rows, {self._waiting.patience * 1000:g} ms"
        return f"<Batcher of {self._model.name}: {limits}, {len(self._waiting)} waiting>"

    def _request(self, arrays: tuple[Any, ...], named: Mapping[str, Any], seconds: float | None) -> BatchRequest:
        feed = self._feeds.take(arrays, named)
        options = {name: feed.pop(name) for name in self._feeds.optional if name in feed}
        rows = self._batches.rows(feed)
        if not 0 < rows <= self._waiting.max_rows:
            raise FeedError(
                f"{self._model.name}: a request of {rows} rows, but batches have 1 to {self._waiting.max_rows}",
                help="split it, or call the model",
            )
        axes = self._batches.inputs
        kind = tuple(a.shape[: axes[n]] + a.shape[axes[n] + 1 :] for n, a in feed.items())
        same = tuple((i, id(options[n])) for i, n in enumerate(self._feeds.optional) if n in options)
        return BatchRequest(feed, rows, (*kind, *same), seconds=seconds, options=options)


def _work(waiting: Waiting, model: Model, batches: Batching) -> None:
    """Run batches in a thread."""
    while requests := waiting.take():
        live = [request for request in requests if _start_request(waiting, request)]
        if live:
            waiting.running = len(live)
            started = time.monotonic()
            with suppress(RunCancelledError), waiting.limit:
                batches = _settle(model, batches, live)
                _run(waiting, model, batches, live)
            for request in live:
                if not request.future.done():
                    help = "close(drain=True) waits for requests"
                    waiting.end(request, RunCancelledError(f"{model.name}: the batcher was closed", help=help))
            waiting.recorder.ran(time.monotonic() - started)
            waiting.running = 0
        del requests, live
    waiting.leave()


def _start_request(waiting: Waiting, request: BatchRequest) -> bool:
    """Mark a request as running; return False if it was cancelled or has timed out."""
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


def _settle(model: Model, batches: Batching, requests: Sequence[BatchRequest]) -> Batching:
    """Return the axes of the batch that the first valid request shows; the same axes if none is valid."""
    for request in requests if batches.open else ():
        with suppress(Exception):  # running the request raises the error again
            return batches.settled(partial(model, **request.options), request.feed)
    return batches


def _run(waiting: Waiting, model: Model, batches: Batching, requests: Sequence[BatchRequest]) -> None:
    counts = [request.rows for request in requests]
    deadline = max(request.deadline for request in requests)
    seconds = None if deadline == math.inf else max(request.seconds or 0 for request in requests)
    try:
        with Limit(model.name, seconds, deadline):
            call = partial(model, **requests[0].options)
            batches = batches.settled(call, requests[0].feed)
            waiting.recorder.batch(sum(counts))
            shares = batches.run(call, batches.joined([request.feed for request in requests]), counts)
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
