"""Streams: requests of many threads, generated side by side in a running batch. See docs/howto/text_generation.md."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import BusyError, RunCancelledError, RunError, RunTimeoutError
from graphcore.models.streams.running import Counts, Running
from graphcore.models.streams.sampling import Seed, Text, choice, decoder, prompt_of, stops, whole
from graphcore.runtime.metrics import Metrics, Recorder
from graphcore.runtime.stopping.limit import Limit, seconds_of
from graphcore.runtime.waiting import Deadlines, Server

if TYPE_CHECKING:
    from graphcore.runtime import Model


class Request:
    """A text that is being generated: its tokens, as they are made. Made by `Streams.submit`; any thread may use it.

    `for token in request` gives them from the first on, each as soon as there is one. An error of the request, which a
    cancelled one has too, is raised after the tokens that were made before it.
    """

    def __init__(self, text: Text, work: _Work, seconds: float | None = None) -> None:
        self._text = text
        self._work = work
        self._seconds = seconds
        self._arrived = time.monotonic()
        self._joined: float | None = None
        self._is_counted = False
        self._changed = threading.Condition()

    @property
    def done(self) -> bool:
        """Return whether no token will follow."""
        return self._text.is_done

    @property
    def tokens(self) -> Array:
        """Return the tokens so far, without waiting: int64[made]."""
        return np.array(self._text.made, np.int64)

    def __iter__(self) -> Iterator[int]:
        """Yield each token. Raises what `result` does."""
        text, place = self._text, 0
        while True:
            if place < len(text.made):
                yield text.made[place]
                place += 1
                continue
            with self._changed:
                self._changed.wait_for(lambda at=place: text.is_done or at < len(text.made))  # type: ignore[misc]
            if text.is_done and place >= len(text.made):
                break
        if text.error is not None:
            raise text.error

    def result(self, timeout: float | None = None) -> Array:
        """Return all tokens once the text has ended: int64[made].

        timeout: seconds to wait; None for as long as it takes. Raises `TimeoutError`, `RunCancelledError` where the
        request was cancelled, `RunTimeoutError` where its own time was over, and what its calls raise.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._text.is_done, timeout):
                raise TimeoutError(f"a request has not ended after {timeout} seconds: {len(self._text.made)} tokens")
        if self._text.error is not None:
            raise self._text.error
        return self.tokens

    def cancel(self) -> bool:
        """End the request, at once for whoever waits for it; return whether it had not ended before.

        Its place is free from the next step on, and a call that runs meanwhile comes to its end.
        """
        return self._work.cancel(self)

    def __repr__(self) -> str:
        state = "failed" if self._text.error else "done" if self.done else "going on"
        return f"<Request: {len(self._text.made)} tokens, {state}>"

    def _end(self, error: BaseException) -> None:
        with self._changed:
            if not self._text.is_done:
                self._text.fail(error)
            self._changed.notify_all()

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()


class Streams(Server):
    """Generates the texts of many requests side by side: `streams.submit(prompt, 64)` gives a `Request`.

    Requests join a running batch and leave it between two steps, each in a slot of one cache. They are served in the
    order of submission; a prompt is read `piece` tokens at a time, and between two pieces each running text gets its
    next token. A thread of its own runs the model.
    """

    def __init__(
        self, model: Model, slots: int = 8, *, max_waiting: int = 64, piece: int = 128, prefix_tokens: int | None = None
    ) -> None:
        """model: a decoder, as `generate` takes it; its own buffers stay as they are. slots: texts at once.
        max_waiting: requests that wait for a slot at most. piece: tokens of prompts between two steps. prefix_tokens:
        tokens of ended texts whose keys and values are kept for prompts that begin with the same, by default as many as
        one slot has; 0 for no sharing.

        Raises `ModelError` for a model that is no decoder, `FeedError` for numbers that make no sense, and
        `ResourceLimitError` where there is no memory for so many slots.
        """
        self._decoder = known = decoder("Streams", model)
        kept = whole("Streams", "prefix_tokens", known.cache if prefix_tokens is None else prefix_tokens, 0)
        count, each = whole("Streams", "slots", slots, 1), whole("Streams", "piece", piece, 1)
        running = Running(known, count, each, kept)
        self._slots = count
        self._work = _Work(model.name, running, whole("Streams", "max_waiting", max_waiting, 0))
        # The thread knows the work and not the Streams, which can so be forgotten.
        super().__init__(model.name, "streams", self._work, _run, self._work)

    def submit(
        self,
        tokens: Any,
        max_new_tokens: int,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: Seed = None,
        stop: Collection[int] | Array = (),
        lookup: int = 0,
        timeout: float | None = None,
    ) -> Request:
        """Return a request for the tokens after a prompt. The options are those of `generate`.

        seed: of this request alone; the tokens of a seed are the same whatever runs beside it. timeout: seconds from
        now on, after which the request ends with a `RunTimeoutError`, whether it waits or runs; its tokens stay. Raises
        `FeedError` for what `generate` refuses, `ModelError` for lookup with a model that was not built for it,
        `BusyError` where `max_waiting` requests wait already, and `RunError` where the streams are closed.
        """
        self._check_process()
        prompt = prompt_of("submit", tokens)
        most = whole("submit", "max_new_tokens", max_new_tokens, 0)
        ends = stops("submit", stop)
        self._decoder.check("submit", [prompt], most, ends)
        lookup = self._decoder.check_lookup("submit", lookup)
        chosen = choice("submit", temperature, top_k, top_p, seed)
        seconds = None if timeout is None else seconds_of("submit", timeout)
        request = Request(Text(prompt, most, ends, chosen, chosen.numbers()[0], lookup), self._work, seconds)
        self._work.add(request)
        return request

    @property
    def counts(self) -> Counts:
        """Return how many calls and tokens there were so far."""
        return replace(self._work.counts)

    def close(self, *, drain: bool = False, timeout: float | None = None) -> bool:
        """Cancel all requests, or with drain=True wait for them; then free the cache. Later requests are refused.

        timeout: seconds after which what is left is cancelled, and a call that runs is stopped; None for as long as it
        takes. Return whether nothing had to be stopped. Raises `FeedError` for a timeout that is none.
        """
        return self._close(drain, None if timeout is None else seconds_of(f"close: {self._name}", timeout))

    def __repr__(self) -> str:
        running, waiting = self._work.sizes()
        return f"<Streams of {self._decoder.model.name}: {running} of {self._slots} slots, {waiting} waiting>"


class _Work:
    """The requests, and the batch that they run in. Its thread alone touches the batch."""

    def __init__(self, name: str, running: Running, most: int) -> None:
        self.is_closed = False
        self.counts = running.counts
        self.recorder = Recorder("streams", name)
        self.limit = Limit(name)
        self._deadlines = Deadlines(f"graphcore streams {name}: deadlines", self._expire)
        self._name = name
        self._batch: Running | None = running
        self._most = most
        self._room = running.room
        self._changed = threading.Condition()
        self._waiting: deque[Request] = deque()
        self._taken: list[Request] = []

    def sizes(self) -> tuple[int, int]:
        """Return how many requests run, and how many wait."""
        with self._changed:
            return len(self._taken), len(self._waiting)

    def add(self, request: Request) -> None:
        with self._changed:
            if self.is_closed:
                raise RunError(f"submit: the streams of {self._name} are closed", help="make others: Streams(model)")
            ahead = len(self._waiting) + len(self._taken)
            if ahead >= self._room + self._most:
                self.recorder.count("busy")
                raise BusyError(
                    f"submit: {len(self._waiting)} requests wait for {self._name} already",
                    help="try again when one has ended, or give max_waiting=",
                )
            self.recorder.count("submitted")
            if request.done:  # no token was asked for
                self._count(request)
                return
            if request._seconds is not None:
                self._deadlines.add(request._arrived + request._seconds, request)
            self._waiting.append(request)
            self._changed.notify_all()

    def cancel(self, request: Request) -> bool:
        return self._drop(request, _cancelled(request))

    def metrics(self) -> Metrics:
        running, waiting = self.sizes()
        return self.recorder.read(waiting, running)

    def _expire(self, request: Request) -> None:
        self._drop(request, _timed_out(self._name, request))

    def _drop(self, request: Request, error: RunError) -> bool:
        """End a request with an error; return whether it had not ended before."""
        with self._changed:
            if request.done:
                return False
            if request in self._waiting:
                self._waiting.remove(request)
            request._end(error)
            self._count(request)
            return True

    def _count(self, request: Request) -> None:
        """Count a request that has ended, once."""
        if request._is_counted:
            return
        request._is_counted = True
        error = request._text.error
        if request._joined is not None:
            self.recorder.ran(time.monotonic() - request._joined)
        if error is None:
            self.recorder.count("completed")
        elif isinstance(error, RunTimeoutError):
            self.recorder.count("timed_out")
        else:
            self.recorder.count("cancelled" if isinstance(error, RunCancelledError) else "failed")

    def take(self) -> Running | None:
        """Return the batch once it has something to do, with the requests for which it has room; None at the end."""
        with self._changed:
            while True:
                batch = self._batch
                self._leave()
                if batch is None or (self.is_closed and not self._taken and not self._waiting):
                    self._batch = None
                    return None
                while self._waiting and batch.room > 0:
                    request = self._waiting.popleft()
                    self._taken.append(request)
                    request._joined = time.monotonic()
                    self.recorder.waited(request._joined - request._arrived)
                    batch.join(request._text)
                if self._taken or batch.texts:
                    return batch
                self._changed.wait()

    def _leave(self) -> None:
        """Count the requests that have ended, and forget them."""
        for request in self._taken:
            if request.done:
                self._count(request)
        self._taken = [request for request in self._taken if not request.done]

    def tell(self) -> None:
        """Wake whoever waits for a token of a request that runs."""
        for request in self._taken:
            request._tell()

    def fail(self, error: BaseException) -> None:
        """End all requests with an error that the batch has raised, which is not to be trusted from then on."""
        self._finish(error)
        self._batch = None

    def close(self, drain: bool) -> None:
        """Refuse further requests, and end those there are unless they are to come to their end."""
        self._finish(None if drain else _closed())

    def stop(self) -> None:
        self.limit.end(_closed)

    def leave(self) -> None:
        """Note that nothing follows."""
        self._deadlines.close()

    def _finish(self, error: BaseException | None) -> None:
        with self._changed:
            self.is_closed = True
            ended = [*self._taken, *self._waiting] if error is not None else []
            if error is not None:
                self._waiting.clear()
            self._changed.notify_all()
        for request in ended:
            assert error is not None
            request._end(error)
            self._count(request)


def _run(work: _Work) -> None:
    while (batch := work.take()) is not None:
        calls = batch.counts.calls
        try:
            with work.limit:
                if batch.read():
                    work.tell()
                rows = len(batch.texts)
                batch.step()
                work.tell()
        except BaseException as error:
            work.fail(error)
            break
        if batch.counts.calls > calls:
            work.recorder.batch(rows)
        del batch
    work.leave()


def _closed() -> RunCancelledError:
    return RunCancelledError(
        "a request was cancelled: its streams were closed", help="close(drain=True) waits for requests"
    )


def _timed_out(name: str, request: Request) -> RunTimeoutError:
    return RunTimeoutError(
        f"{name}: a request has not ended after timeout={request._seconds:g} seconds: {len(request.tokens)} tokens",
        help="request.tokens has these; give it more time",
    )


def _cancelled(request: Request) -> RunCancelledError:
    return RunCancelledError(
        f"a request was cancelled after {len(request.tokens)} tokens", help="request.tokens has these"
    )
