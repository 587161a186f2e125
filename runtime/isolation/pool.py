"""Workers of one model: a request is given to one that is free, and waits where none is."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphcore.errors import GraphcoreError, ModelError, RunError
from graphcore.runtime.isolation.process import Ended, Program, Signature, Worker
from graphcore.runtime.isolation.timeouts import Timeout

LOG = logging.getLogger("graphcore")
_TRIES = 3
"""Times that a worker is started for a request, where it is ended by others before it is asked."""


@dataclass(slots=True, eq=False)
class _Place:
    """The place of a worker; None until it is started."""

    worker: Worker | None = None


class Pool:
    """So many workers, started when they are needed. Its methods may be called from several threads at once."""

    def __init__(self, program: Program, workers: int, signature: Signature | None = None) -> None:
        """signature: of the model, where that is known."""
        self.process = os.getpid()
        self._program = program
        self._signature = signature
        self._places = [_Place() for _ in range(workers)]
        self._free = deque(self._places)
        self._changed = threading.Condition(threading.Lock())
        self._waiting = 0
        self._is_closed = False

    def start(self) -> Signature:
        """Start all workers, the first of them now; return what that says of the model. Raises what loading raises."""
        first = self._free.pop()
        try:
            self._signature = self._started(first).signature
        finally:
            self._give_back(first)
        for _ in range(len(self._places) - 1):
            self._start_beside(self._free.popleft())
        return self._signature

    @property
    def processes(self) -> list[int]:
        """Return the ids of the processes that there are now."""
        workers = [place.worker for place in self._places]
        return [worker.process for worker in workers if worker is not None and not worker.is_ended]

    def run(self, values: Sequence[Any], limit: Timeout | None = None) -> list[Any]:
        """Return the outputs of a run, in the first worker that is free. limit: when the call is to end.

        Raises what `Worker.run` raises; `RunError` where the model is closed.
        """
        for attempt in range(_TRIES):
            place = self._taken(limit)
            worker = place.worker
            if limit is not None and not attempt and (worker is None or worker.is_ended):
                self._start_beside(place)  # which may take longer than the call has
                continue
            try:
                if worker is None or worker.is_ended:
                    worker = self._started(place)
                return worker.run(values, limit)
            except Ended:
                LOG.warning("%s: a worker was ended by others while it waited; another is started", self._name)
            finally:
                self._leave(place)
        raise RunError(
            f"run: each worker of {self._name} is ended before it runs", help="see who ends them: out of memory?"
        )

    def _leave(self, place: _Place) -> None:
        """Give a place to the next request, or to a thread that starts its worker where that was ended."""
        worker = place.worker
        if worker is not None and worker.is_ended and not self._is_closed:
            self._start_beside(place)
        else:
            self._give_back(place)

    @property
    def _name(self) -> str:
        return self._program.name if self._signature is None else self._signature.name

    def _taken(self, limit: Timeout | None = None) -> _Place:
        with self._changed:
            while not self._free and not self._is_closed:
                self._waiting += 1
                try:
                    self._changed.wait(None if limit is None else limit.left(self._name))
                finally:
                    self._waiting -= 1
            if self._is_closed:
                raise RunError(f"run: {self._name} is closed", help="load it again")
            return self._free.pop()  # the one that ran last, whose memory is in the caches

    def _give_back(self, place: _Place) -> None:
        with self._changed:
            self._free.append(place)
            if self._waiting or self._is_closed:
                self._changed.notify_all() if self._is_closed else self._changed.notify()

    def _started(self, place: _Place) -> Worker:
        """Start the worker of a place."""
        made = Worker(self._program)
        if self._signature is not None and made.signature != self._signature:
            made.end()
            raise ModelError(f"run: {self._name} was changed since it was loaded", help="load it again")
        place.worker = made
        return made

    def _start_beside(self, place: _Place) -> None:
        """Start the worker of a place in a thread, so that the next request need not wait for all of it."""

        def work() -> None:
            try:
                if not self._is_closed:
                    self._started(place)
            except GraphcoreError as error:  # which the next request raises again, in its own name
                place.worker = None
                LOG.warning("%s: no worker was started: %s", self._name, error.summary)
            finally:
                self._give_back(place)

        threading.Thread(target=work, name=f"graphcore starts {self._name}"[:60], daemon=True).start()

    def close(self) -> None:
        """Take no more requests, wait for those that run, and end the workers."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            while len(self._free) < len(self._places):
                self._changed.wait()
        self.end()

    def end(self) -> None:
        """End the workers, whatever they do; in the process that they were started by."""
        self._is_closed = True
        if self.process != os.getpid():
            return
        for place in self._places:
            if place.worker is not None:
                place.worker.end()
