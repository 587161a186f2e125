"""Streams: requests of many threads, generated side by side in a running batch. See docs/models.md."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import ModelError, RunError
from graphcore.models.streams.arguments import decoder, prompt_of, stops, whole
from graphcore.models.streams.running import Counts, Running
from graphcore.models.streams.sampling import Seed, choice
from graphcore.models.streams.text import Text

if TYPE_CHECKING:
    from graphcore.runtime import Model


class Request:
    """A text that is being generated: its tokens, as they are made. Made by `Streams.submit`; any thread may use it.

    `for token in request` gives them from the first on, each as soon as there is one. An error of the request, which a
    cancelled one has too, is raised after the tokens that were made before it.
    """

    def __init__(self, text: Text, work: _Work) -> None:
        self._text = text
        self._work = work
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
        """Yield each token. Raises `RunError` where the request was cancelled, and what its calls raise."""
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

        timeout: seconds to wait; None for as long as it takes. Raises `TimeoutError`, `RunError` where the request was
        cancelled, and what its calls raise.
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
            self._text.fail(error)
            self._changed.notify_all()

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()


class Streams:
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
        self._thread = threading.Thread(
            target=_run, args=(self._work,), name=f"graphcore streams {model.name}", daemon=True
        )
        # The thread knows the work and not the Streams, which can so be forgotten.
        self._ended = weakref.finalize(self, _finish, self._work, self._thread, True)
        self._thread.start()

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
    ) -> Request:
        """Return a request for the tokens after a prompt. The options are those of `generate`.

        seed: of this request alone; the tokens of a seed are the same whatever runs beside it. Raises `FeedError` for
        what `generate` refuses, `ModelError` for lookup with a model that was not built for it, and `RunError` where
        `max_waiting` requests wait already, or the streams are closed.
        """
        if not self._thread.is_alive() and not self._work.is_closed:
            raise RunError(
                f"submit: the streams of {self._decoder.model.name} were made in another process, and their thread is"
                " not in this one",
                help="make Streams in each process, after the fork",
            )
        prompt = prompt_of("submit", tokens)
        most = whole("submit", "max_new_tokens", max_new_tokens, 0)
        ends = stops("submit", stop)
        self._decoder.check("submit", [prompt], most, ends)
        lookup = self._decoder.check_lookup("submit", lookup)
        chosen = choice("submit", temperature, top_k, top_p, seed)
        request = Request(Text(prompt, most, ends, chosen, chosen.numbers()[0], lookup), self._work)
        self._work.add(request)
        return request

    @property
    def counts(self) -> Counts:
        """Return how many calls and tokens there were so far."""
        return replace(self._work.counts)

    def close(self, *, cancel: bool = True) -> None:
        """Cancel all requests, or with cancel=False wait for them; then free the cache. Later requests are refused."""
        self._ended.detach()
        _finish(self._work, self._thread, cancel)

    def __enter__(self) -> Streams:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise ModelError(
            f"{self._decoder.model.name}: Streams are not copied or pickled: their requests run in this process",
            help="make others: Streams(model)",
        )

    def __repr__(self) -> str:
        running, waiting = self._work.sizes()
        return f"<Streams of {self._decoder.model.name}: {running} of {self._slots} slots, {waiting} waiting>"


class _Work:
    """The requests, and the batch that they run in. Its thread alone touches the batch."""

    def __init__(self, name: str, running: Running, most: int) -> None:
        self.is_closed = False
        self.counts = running.counts
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
                raise RunError(
                    f"submit: {len(self._waiting)} requests wait for {self._name} already",
                    help="try again when one has ended, or give max_waiting=",
                )
            if request.done:  # no token was asked for
                return
            self._waiting.append(request)
            self._changed.notify_all()

    def cancel(self, request: Request) -> bool:
        with self._changed:
            if request.done:
                return False
            if request in self._waiting:
                self._waiting.remove(request)
            request._end(_cancelled(request))
            return True

    def take(self) -> Running | None:
        """Return the batch once it has something to do, with the requests for which it has room; None at the end."""
        with self._changed:
            while True:
                batch = self._batch
                self._taken = [request for request in self._taken if not request.done]
                if batch is None or (self.is_closed and not self._taken and not self._waiting):
                    self._batch = None
                    return None
                while self._waiting and batch.room > 0:
                    request = self._waiting.popleft()
                    self._taken.append(request)
                    batch.join(request._text)
                if self._taken or batch.texts:
                    return batch
                self._changed.wait()

    def tell(self) -> None:
        """Wake whoever waits for a token of a request that runs."""
        for request in self._taken:
            request._tell()

    def fail(self, error: BaseException) -> None:
        """End all requests with an error that the batch has raised, which is not to be trusted from then on."""
        self.close(error)
        self._batch = None

    def close(self, error: BaseException | None) -> None:
        """Refuse further requests, and with an error end those there are."""
        with self._changed:
            self.is_closed = True
            ended = [*self._taken, *self._waiting] if error is not None else []
            if error is not None:
                self._waiting.clear()
            self._changed.notify_all()
        for request in ended:
            assert error is not None
            request._end(error)


def _run(work: _Work) -> None:
    while (batch := work.take()) is not None:
        try:
            if batch.read():
                work.tell()
            batch.step()
            work.tell()
        except BaseException as error:
            work.fail(error)
            return
        del batch


def _finish(work: _Work, thread: threading.Thread, cancel: bool) -> None:
    closed = RunError("a request was cancelled: its streams were closed", help="close(cancel=False) waits for requests")
    work.close(closed if cancel else None)
    if thread is not threading.current_thread():
        thread.join()


def _cancelled(request: Request) -> RunError:
    return RunError(f"a request was cancelled after {len(request.tokens)} tokens", help="request.tokens has these")


__all__ = ["Request", "Streams"]
