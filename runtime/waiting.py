"""The requests of a Batcher: waiting requests by kind, and how they end."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, Self, TypeAlias

from graphcore.arrays.casting import Array
from graphcore.errors import BusyError, ModelError, RunError, RunTimeoutError
from graphcore.runtime.metrics import Metrics, Recorder
from graphcore.runtime.stopping.limit import Limit

RequestKind: TypeAlias = tuple[tuple[int, ...], ...]
"""The shapes of a request's arrays without the batch axis, and the ids of its options. Requests of one kind can be
batched."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class BatchRequest:
    """A waiting or running request. rows: their number. seconds: its time limit from its arrival on. options: values of
    inputs that have defaults, which its batch shares."""

    feed: dict[str, Array]
    rows: int
    kind: RequestKind
    future: Future[list[Array]] = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)
    seconds: float | None = None
    is_ended: bool = False
    options: dict[str, Array] = field(default_factory=dict)

    @property
    def deadline(self) -> float:
        return math.inf if self.seconds is None else self.arrived + self.seconds


class Waiting:
    """The waiting requests by kind. max_rows: of a batch. patience: seconds that the first request of a batch waits."""

    def __init__(self, model: str, max_rows: int, patience: float, room: int) -> None:
        self.max_rows = max_rows
        self.patience = patience
        self.model = model
        self.recorder = Recorder("batcher", model)
        self.running = 0
        self.limit = Limit(model)
        """The limit that ends the runs when the batcher must end at once."""
        self._deadlines = Deadlines(f"graphcore batcher {model}: deadlines", self._expire)
        self._room = room
        self._changed = threading.Condition()
        self._kinds: dict[RequestKind, deque[BatchRequest]] = {}
        self._rows: dict[RequestKind, int] = {}
        self._count = 0
        self.is_closed = False

    def __len__(self) -> int:
        return self._count

    def metrics(self) -> Metrics:
        return self.recorder.read(self._count, self.running)

    def add(self, request: BatchRequest, waits: bool) -> None:
        with self._changed:
            while self._count >= self._room and waits and not self.is_closed:
                seconds_left = request.deadline - time.monotonic()
                if seconds_left <= 0:
                    break
                self._changed.wait(None if seconds_left == math.inf else seconds_left)
            if self.is_closed:
                raise RunError(f"{self.model}: the batcher is closed", help="create another one")
            if self._count >= self._room:
                self.recorder.count("busy")
                raise BusyError(
                    f"{self.model}: the queue is full: {self._count} requests are waiting",
                    help="try again later, or change max_waiting or when_full",
                )
            self._count += 1
            self.recorder.count("submitted")
            if request.seconds is None:
                request.arrived = time.monotonic()
            else:
                self._deadlines.add(request.deadline, request)
            self._kinds.setdefault(request.kind, deque()).append(request)
            self._rows[request.kind] = self._rows.get(request.kind, 0) + request.rows
            self._changed.notify_all()

    def _expire(self, request: BatchRequest) -> None:
        """End a waiting or running request whose time is over."""
        with self._changed:
            waiting = self._kinds.get(request.kind, deque())
            if any(other is request for other in waiting):
                self._kinds[request.kind] = remaining = deque(other for other in waiting if other is not request)
                self._rows[request.kind] -= request.rows
                self._count -= 1
                if not remaining:
                    del self._kinds[request.kind], self._rows[request.kind]
                self._changed.notify_all()
        self.end(request, timed_out(self.model, request))

    def end(self, request: BatchRequest, result: list[Array] | BaseException) -> None:
        """Set the result or error of a request and count it, unless it has ended."""
        with self._changed:
            if request.is_ended:
                return
            request.is_ended = True
        is_late = isinstance(result, RunTimeoutError)
        self.recorder.count("timed_out" if is_late else "failed" if isinstance(result, BaseException) else "completed")
        with _survived(), suppress(InvalidStateError):
            if isinstance(result, BaseException):
                request.future.set_exception(result)
            else:
                request.future.set_result(result)

    def take(self) -> list[BatchRequest]:
        """Wait for the next batch and return its requests; [] if the batcher is closed and has no more."""
        with self._changed:
            while True:
                if not self._kinds:
                    if self.is_closed:
                        return []
                    self._changed.wait()
                    continue
                kind, seconds = self._next()
                if seconds <= 0:
                    return self._taken(kind)
                self._changed.wait(seconds)

    def close(self, drain: bool) -> None:
        with self._changed:
            self.is_closed = True
            dropped = [] if drain else [request for waiting in self._kinds.values() for request in waiting]
            if not drain:
                self._kinds.clear()
                self._rows.clear()
                self._count = 0
            self._changed.notify_all()
        for request in dropped:
            if request.future.cancel():
                request.future.set_running_or_notify_cancel()  # or `concurrent.futures.wait` would not see it
                self.recorder.count("cancelled")

    def stop(self) -> None:
        self.limit.cancel(f"{self.model}: a run was stopped: the batcher was closed")

    def leave(self) -> None:
        """Note that the thread has no more requests."""
        self._deadlines.close()

    def _next(self) -> tuple[RequestKind, float]:
        """Return the kind of the next batch, and in how many seconds it is due: of those that are, the one that waits
        longest.

        A kind that is full again and again so leaves the others their turn.
        """
        patience = 0.0 if self.is_closed else self.patience
        due = {k: w[0].arrived + (0.0 if self._rows[k] >= self.max_rows else patience) for k, w in self._kinds.items()}
        now = time.monotonic()
        ready = [kind for kind, at in due.items() if at <= now]
        if ready:
            return min(ready, key=lambda k: self._kinds[k][0].arrived), 0
        kind = min(due, key=lambda k: due[k])
        return kind, due[kind] - now

    def _taken(self, kind: RequestKind) -> list[BatchRequest]:
        waiting, taken, rows = self._kinds[kind], [], 0
        while waiting and rows + waiting[0].rows <= self.max_rows:
            rows += waiting[0].rows
            taken.append(waiting.popleft())
        self._rows[kind] -= rows
        if not waiting:
            del self._kinds[kind], self._rows[kind]
        self._count -= len(taken)
        self._changed.notify_all()
        return taken


def timed_out(model: str, request: BatchRequest) -> RunTimeoutError:
    return RunTimeoutError(
        f"{model}: a request was not done after timeout={request.seconds:g} seconds",
        help="give it more time, or make batches smaller",
    )


@contextmanager
def _survived() -> Iterator[None]:
    """Futures log exceptions of callbacks, except SystemExit and similar ones, which would end the thread."""
    try:
        yield
    except BaseException:
        logging.getLogger("concurrent.futures").exception("a callback of a request ended")


# Deadlines of requests: a thread that ends each when its time is over, whether it waits or runs.

_SWEPT = 1024
"""From this number of entries on, those of completed requests are removed."""


class Deadlines:
    """Calls `expire` with each request at its deadline, without keeping requests alive.

    The thread begins with the first request that has a deadline.

    Callbacks of futures run in this thread too.
    """

    def __init__(self, name: str, expire: Callable[[Any], object]) -> None:
        """name: of the thread."""
        self._name = name
        self._expire = expire
        self._changed = threading.Condition()
        self._waiting: list[tuple[float, int, weakref.ref[Any]]] = []
        self._size_to_sweep = _SWEPT
        self._numbers = itertools.count()
        self._begun = False
        self._is_closed = False

    def add(self, deadline: float, request: object) -> None:
        """Note the deadline of a request, in seconds of `time.monotonic`."""
        with self._changed:
            if len(self._waiting) >= self._size_to_sweep:
                self._waiting = [each for each in self._waiting if each[2]() is not None]
                heapq.heapify(self._waiting)
                self._size_to_sweep = max(_SWEPT, 2 * len(self._waiting))
            heapq.heappush(self._waiting, (deadline, next(self._numbers), weakref.ref(request)))
            if not self._begun:
                threading.Thread(target=self._watch, name=self._name, daemon=True).start()
                self._begun = True
            elif self._waiting[0][2]() is request:
                self._changed.notify_all()

    def close(self) -> None:
        """Forget all requests, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def _watch(self) -> None:
        while (request := self._next()) is not None:
            with _survived():
                self._expire(request)
            del request

    def _next(self) -> Any:
        """Wait for the next deadline and return its request; None when closed."""
        with self._changed:
            while not self._is_closed:
                seconds_left = self._waiting[0][0] - time.monotonic() if self._waiting else None
                if seconds_left is None or seconds_left > 0:
                    self._changed.wait(seconds_left)
                elif (request := heapq.heappop(self._waiting)[2]()) is not None:
                    return request
        return None


# The frame of what serves requests in a thread of its own: its end, its metrics, and the processes it is not in.

_LAST = 1.0
"""Seconds that a run may continue when its server was collected, or the program has ended."""


class Queue(Protocol):
    """The requests of a server: its thread refers to them instead of the server."""

    is_closed: bool

    def close(self, drain: bool) -> None:
        """Refuse new requests; end waiting ones, unless they must run."""

    def stop(self) -> None:
        """End running requests."""

    def metrics(self) -> Metrics:
        """Return the current metrics."""


class Server:
    """Serves requests to a model in a thread, until it is closed or collected."""

    def __init__(self, model: str, what: str, queue: Queue, work: Callable[..., None], *args: Any) -> None:
        """what: its name in errors. queue: the requests. work: runs in the thread with `args`."""
        self._name = model
        self._what = what
        self._queue = queue
        self._thread = threading.Thread(target=work, args=args, name=f"graphcore {what} {model}", daemon=True)
        self._end = weakref.finalize(self, _finish, queue, self._thread, False, _LAST)
        self._thread.start()

    @property
    def metrics(self) -> Metrics:
        """The counts of requests so far: `metrics.prometheus()` is text for a monitor."""
        return self._queue.metrics()

    def _close(self, drain: bool, timeout: float | None) -> bool:
        self._end.detach()
        return _finish(self._queue, self._thread, drain, timeout)

    def close(self) -> object:
        """End the thread."""
        return self._close(True, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise ModelError(
            f"{self._name}: a {type(self).__name__} cannot be copied or pickled: its requests wait in this process",
            help=f"make another one: {type(self).__name__}(model)",
        )

    def _check_process(self) -> None:
        """Raise `RunError` in a forked process."""
        if not self._thread.is_alive() and not self._queue.is_closed:
            raise RunError(
                f"submit: the {self._what} of {self._name} was made in another process, and its thread is not in this"
                " one",
                help=f"make a {type(self).__name__} in each process, after the fork",
            )


def _finish(queue: Queue, thread: threading.Thread, drain: bool, timeout: float | None) -> bool:
    """Close a queue and wait for its thread. timeout: seconds after which remaining requests are cancelled and stopped.

    Returns True if none was."""
    queue.close(drain)
    if thread is threading.current_thread():
        return True
    thread.join(timeout)
    if not thread.is_alive():
        return True
    queue.close(False)
    queue.stop()
    thread.join(_LAST)
    return False
