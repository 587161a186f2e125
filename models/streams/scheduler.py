"""Streams: requests of many threads, generated in one running batch. See docs/howto/text_generation.md."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import BusyError, RunCancelledError, RunError, RunTimeoutError
from graphcore.models.streams.running import Counts, Running
from graphcore.models.streams.sampling import (
    Constraint,
    Seed,
    Text,
    TokenLogprob,
    choice_of,
    decoder_of,
    prompt_of,
    require_integer,
    start_rules,
    stop_tokens,
)
from graphcore.runtime.metrics import Metrics, Recorder
from graphcore.runtime.stopping.limit import Limit, seconds_of
from graphcore.runtime.waiting import Deadlines, Server

if TYPE_CHECKING:
    from graphcore.runtime import Model


class Request:
    """A text that is being generated, from `Streams.submit`. Thread-safe.

    `for token in request` yields each token as soon as it is generated, from the first on. An error of the request,
    such as its cancellation, is raised after the tokens before it.
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
        """True if no token will follow."""
        return self._text.is_done

    @property
    def tokens(self) -> Array:
        """The tokens so far: int64[tokens]. Does not wait."""
        return np.array(self._text.new_tokens, np.int64)

    @property
    def prompt_logprobs(self) -> list[TokenLogprob]:
        """The log-probabilities of the tokens of the prompt after the first, if they were requested. Does not wait."""
        return self._text.prompt_logprobs[:]

    @property
    def logprobs(self) -> list[TokenLogprob]:
        """The log-probabilities of the tokens so far, if they were requested. Does not wait."""
        return self._text.logprobs[: len(self._text.new_tokens)]

    def __iter__(self) -> Iterator[int]:
        """Yield each token. Raises as `result` does."""
        text, place = self._text, 0
        while not text.is_done or place < len(text.new_tokens):  # in this order: no token follows the end
            if place < len(text.new_tokens):
                yield text.new_tokens[place]
                place += 1
                continue
            with self._changed:
                self._changed.wait_for(lambda at=place: text.is_done or at < len(text.new_tokens))  # type: ignore[misc]
        if text.error is not None:
            raise text.error

    def result(self, timeout: float | None = None) -> Array:
        """Wait for the end of the text, and return all tokens: int64[tokens].

        Args:
            timeout: The maximum number of seconds to wait; None for no limit.

        Raises:
            TimeoutError: `timeout` is over.
            RunCancelledError: The request was cancelled.
            RunTimeoutError: The timeout of the request is over.
            RunError: A call of the model failed.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._text.is_done, timeout):
                raise TimeoutError(
                    f"a request has not ended after {timeout} seconds: {len(self._text.new_tokens)} tokens"
                )
        if self._text.error is not None:
            raise self._text.error
        return self.tokens

    def cancel(self) -> bool:
        """Cancel the request at once.

        A running call is completed, and the slot is free at the next step.

        Returns:
            True if it had not ended before.
        """
        return self._work.cancel(self)

    def __repr__(self) -> str:
        state = "failed" if self._text.error else "done" if self.done else "going on"
        return f"<Request: {len(self._text.new_tokens)} tokens, {state}>"

    def _notify(self, error: BaseException | None = None) -> None:
        """Wake the threads that wait for a token. error: ends the text, unless it has ended."""
        with self._changed:
            if error is not None:
                self._text.fail(error)
            self._changed.notify_all()


class Streams(Server):
    """Generates the texts of many requests in one batch: `streams.submit(prompt, 64)` returns a `Request`.

    Requests join and leave the running batch between steps, each in a slot of one cache, in the order of submission. A
    prompt is read `piece` tokens at a time, and between two pieces each running text gets its next token. A thread runs
    the model.
    """

    def __init__(
        self,
        model: Model,
        slots: int = 8,
        *,
        max_waiting: int = 64,
        piece: int = 128,
        prefix_tokens: int | None = None,
        draft: Model | None = None,
    ) -> None:
        """Start the thread.

        Args:
            model: A decoder, as for `generate`. Its buffers do not change.
            slots: The maximum number of texts in the batch.
            max_waiting: The maximum number of requests that wait for a slot.
            piece: The number of tokens of prompts to read between two steps.
            prefix_tokens: The number of tokens of ended texts whose keys and values are kept for prompts with the same
                prefix; by default the tokens of one slot, 0 to share none.
            draft: A smaller decoder with the same tokens, as for `generate`, for requests that run alone.

        Raises:
            ModelError: The model is not a decoder, or the draft model does not fit it.
            FeedError: A number is invalid.
            ResourceLimitError: There is not enough memory for the slots.
        """
        self._decoder = decoder = decoder_of("Streams", model)
        prefix_tokens = decoder.cache if prefix_tokens is None else prefix_tokens
        max_prefix_tokens = require_integer("Streams", "prefix_tokens", prefix_tokens, 0)
        self._slots = require_integer("Streams", "slots", slots, 1)
        piece_tokens = require_integer("Streams", "piece", piece, 1)
        draft_decoder = decoder.check_draft("Streams", draft)
        running = Running(decoder, self._slots, piece_tokens, max_prefix_tokens, draft_decoder)
        self._work = _Work(model.name, running, require_integer("Streams", "max_waiting", max_waiting, 0))
        # The thread refers to the work, not to the Streams, which can thus be garbage-collected.
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
        logprobs: int = 0,
        prompt_logprobs: bool = False,
        until: Callable[[int], bool] | None = None,
        constraints: Sequence[Constraint] = (),
        adapter: Mapping[str, Array] | None = None,
    ) -> Request:
        """Return a request for the tokens after a prompt. Other options are those of `generate`.

        Args:
            tokens: One prompt.
            max_new_tokens: The maximum number of new tokens.
            seed: The seed of this request. Its tokens do not depend on other requests.
            timeout: The number of seconds after which the request ends with a `RunTimeoutError`, waiting or running. It
                keeps its tokens.
            logprobs: The number of likeliest tokens in `request.logprobs`; 0 for no log-probabilities.
            prompt_logprobs: Compute those of the prompt too, which is then read without a shared prefix, also for no
                new tokens.
            until: A function that gets each new token, in the thread of the model, and returns True to end the text.
            adapter: Arrays of `model.adapter(...)`. Requests share calls and prefixes if they have the same object.

        Raises:
            FeedError: An argument is invalid.
            ModelError: `lookup` or `prompt_logprobs` is given, but the model was not built for it.
            BusyError: `max_waiting` requests wait already.
            RunError: The streams are closed.
        """
        self._check_process()
        prompt = prompt_of("submit", tokens)
        new_token_count = require_integer("submit", "max_new_tokens", max_new_tokens, 0)
        ends = stop_tokens("submit", stop)
        self._decoder.check("submit", [prompt], new_token_count, ends)
        lookup = self._decoder.check_lookup("submit", lookup)
        choice = choice_of("submit", temperature, top_k, top_p, seed)
        seconds = None if timeout is None else seconds_of("submit", timeout)
        top_count = require_integer("submit", "logprobs", logprobs, 0)
        arrays, rules = self._decoder.check_adapter("submit", adapter), start_rules("submit", constraints)
        if prompt_logprobs:
            self._decoder.require_last_tokens("submit: prompt_logprobs=True")
            top_count = max(top_count, 1)
        text = Text(
            prompt, new_token_count, ends, choice, choice.numbers()[0], lookup, top_count, until, rules, arrays,
            prompt_logprobs,
        )  # fmt: skip
        request = Request(text, self._work, seconds)
        self._work.add(request)
        return request

    @property
    def counts(self) -> Counts:
        """The numbers of calls and tokens so far."""
        return replace(self._work.counts)

    def close(self, *, drain: bool = False, timeout: float | None = None) -> bool:
        """Cancel all requests, or wait for them, then free the cache. Later requests are refused.

        Args:
            drain: Wait for the requests.
            timeout: The number of seconds after which remaining requests are cancelled and a running call is stopped;
                None for no limit.

        Returns:
            True if nothing had to be stopped.

        Raises:
            FeedError: The timeout is invalid.
        """
        return self._close(drain, None if timeout is None else seconds_of(f"close: {self._name}", timeout))

    def __repr__(self) -> str:
        running, waiting = self._work.sizes()
        return f"<Streams of {self._decoder.model.name}: {running} of {self._slots} slots, {waiting} waiting>"


class _Work:
    """The requests and their batch. Only its thread uses the batch."""

    def __init__(self, name: str, running: Running, max_waiting: int) -> None:
        self.is_closed = False
        self.counts = running.counts
        self.recorder = Recorder("streams", name)
        self.limit = Limit(name)
        self.deadlines = Deadlines(f"graphcore streams {name}: deadlines", self._expire)
        self._name = name
        self._batch: Running | None = running
        self._max_waiting = max_waiting
        self._capacity = running.free_slots
        self._changed = threading.Condition()
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []

    def sizes(self) -> tuple[int, int]:
        """Return the numbers of running and of waiting requests."""
        with self._changed:
            return len(self._running), len(self._waiting)

    def add(self, request: Request) -> None:
        with self._changed:
            if self.is_closed:
                raise RunError(
                    f"submit: the streams of {self._name} are closed", help="create new ones: Streams(model)"
                )
            ahead = len(self._waiting) + len(self._running)
            if ahead >= self._capacity + self._max_waiting:
                self.recorder.count("busy")
                raise BusyError(
                    f"submit: {len(self._waiting)} requests wait for {self._name} already",
                    help="retry when one has ended, or increase max_waiting=",
                )
            self.recorder.count("submitted")
            if request.done:  # max_new_tokens is 0
                self._count(request)
                return
            if request._seconds is not None:
                self.deadlines.add(request._arrived + request._seconds, request)
            self._waiting.append(request)
            self._changed.notify_all()

    def cancel(self, request: Request) -> bool:
        error = RunCancelledError(
            f"a request was cancelled after {len(request.tokens)} tokens", help="request.tokens has them"
        )
        return self._drop(request, error)

    def metrics(self) -> Metrics:
        running, waiting = self.sizes()
        return self.recorder.read(waiting, running)

    def _expire(self, request: Request) -> None:
        error = RunTimeoutError(
            f"{self._name}: a request has not ended after timeout={request._seconds:g} seconds: "
            f"{len(request.tokens)} tokens",
            help="request.tokens has them; increase timeout=",
        )
        self._drop(request, error)

    def _drop(self, request: Request, error: RunError) -> bool:
        """End a request with an error. Returns True if it had not ended before."""
        with self._changed:
            if request.done:
                return False
            if request in self._waiting:
                self._waiting.remove(request)
            request._notify(error)
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

    def next_batch(self) -> Running | None:
        """Wait for work, add waiting requests to free slots, and return the batch; None after closing."""
        with self._changed:
            while True:
                batch = self._batch
                self._end_late()
                self._leave()
                if batch is None or (self.is_closed and not self._running and not self._waiting):
                    self._batch = None
                    return None
                while self._waiting and batch.free_slots > 0:
                    request = self._waiting.popleft()
                    self._running.append(request)
                    request._joined = time.monotonic()
                    self.recorder.waited(request._joined - request._arrived)
                    batch.join(request._text)
                if self._running or batch.texts:
                    return batch
                self._changed.wait()

    def _end_late(self) -> None:
        """End the requests whose time is over: on a busy machine the thread of the deadlines may run too late."""
        now = time.monotonic()
        for request in [*self._running, *self._waiting]:
            if request._seconds is not None and now >= request._arrived + request._seconds:
                self._expire(request)

    def _leave(self) -> None:
        """Count and remove the requests that have ended."""
        for request in [each for each in self._running if each.done]:
            self._running.remove(request)
            self._count(request)

    def notify(self) -> None:
        """Wake all threads that wait for a token."""
        for request in self._running:
            request._notify()

    def fail(self, error: BaseException) -> None:
        """End all requests with an error of the batch, which is unusable from then on."""
        self._finish(error)
        self._batch = None

    def close(self, drain: bool) -> None:
        """Refuse further requests, and without `drain` end the existing ones."""
        self._finish(None if drain else _closed_error())

    def stop(self) -> None:
        self.limit.end(_closed_error)

    def _finish(self, error: BaseException | None) -> None:
        with self._changed:
            self.is_closed = True
            ended = [] if error is None else [*self._running, *self._waiting]
            if ended:
                self._waiting.clear()
            self._changed.notify_all()
        for request in ended:
            request._notify(error)
            self._count(request)


def _run(work: _Work) -> None:
    while (batch := work.next_batch()) is not None:
        calls = batch.counts.calls
        try:
            with work.limit:
                if batch.read():
                    work.notify()
                rows = len(batch.texts)
                batch.step()
                work.notify()
        except BaseException as error:
            work.fail(error)
            break
        if batch.counts.calls > calls:
            work.recorder.batch(rows)
        del batch
    work.deadlines.close()


def _closed_error() -> RunCancelledError:
    return RunCancelledError(
        "a request was cancelled: its streams were closed", help="close(drain=True) waits for requests"
    )
