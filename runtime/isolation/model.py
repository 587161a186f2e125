"""A model that runs in worker processes: called as a Model is."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn, Self

from graphcore.arrays import big_integers
from graphcore.errors import FeedError, GraphcoreError, ModelError, RunError
from graphcore.runtime.calls.conversion import requested
from graphcore.runtime.calls.feeds import Feeds
from graphcore.runtime.isolation.process import Ended, Program, Signature, Worker
from graphcore.runtime.isolation.spawning import Timeout
from graphcore.runtime.stopping.limit import seconds_of
from graphcore.types.tensor_types import TensorType, Type


class IsolatedModel:
    """A model in worker processes: `model(x, y)`, `model(x=..., y=...)` or `model({"x": ...})`, as a Model is called.

    Made by `IsolatedSession.load`. Calls from several threads at once are safe: as many run as there are workers, and
    the others wait. What ends a worker is an error of the call that it happened in, and another worker is started.
    Close it, or use it in `with`; what is not closed ends with the last reference, or with the program.
    """

    def __init__(self, program: Program, workers: int) -> None:
        self._program = program
        self._workers = workers
        pool = Pool(program, workers)
        self._pools = {pool.process: pool}
        self._end = weakref.finalize(self, _end, self._pools)
        self._signature = pool.start()
        if self._signature.has_buffers and workers > 1:
            pool.end()
            raise ModelError(
                f"load: {self._signature.name} has buffers, which {workers} workers would each have their own of",
                help="IsolatedSession(workers=1)",
            )
        self.name = self._signature.name
        self._feeds = Feeds(self.name, self._signature.inputs)
        typed = [(i, t.dtype) for i, t in enumerate(self._signature.outputs.values()) if isinstance(t, TensorType)]
        self._wide = [(i, dtype) for i, dtype in typed if big_integers.is_wide(dtype)]
        self._threads: tuple[int, ThreadPoolExecutor] | None = None

    @property
    def inputs(self) -> dict[str, Type]:
        """Return the inputs' types by name, in order."""
        return dict(self._signature.inputs)

    @property
    def outputs(self) -> dict[str, Type]:
        """Return the outputs' types by name, in order."""
        return dict(self._signature.outputs)

    @property
    def processes(self) -> list[int]:
        """Return the ids of the worker processes that there are now."""
        return self._pool().processes

    def __call__(self, /, *arrays: Any, timeout: Any = None, **named: Any) -> list[Any]:
        """Run the model on one value for each input, given by position, by name, or all in one dict.

        Takes and returns what a Model does. Large results lie in memory that the worker shares: they stay valid after
        other calls, after the worker's end and after `close`. timeout: seconds that the call may take, the wait for a
        free worker included, None for no limit but the session's run_seconds; the worker stops between two kernels,
        and is ended where it does not. Where an input is called `timeout` that one is meant: `execute` has both.

        Raises `FeedError` for what does not fit the inputs, `RunError` where the run fails or ends its process,
        `RunTimeoutError` where the time is over, and `ResourceLimitError` for a run that is beyond the session's limits
        of memory or time, or that asks for more memory than there is.
        """
        return self._run(arrays, named, self._limit(timeout, named))

    def _limit(self, timeout: Any, named: dict[str, Any]) -> Timeout | None:
        """Return the limit of a call. named: its operands, to which `timeout` goes where an input is called so."""
        if timeout is not None and "timeout" in self._signature.inputs:
            named["timeout"] = timeout
            return None
        return None if timeout is None else Timeout(seconds_of(self.name, timeout))

    def _run(self, arrays: Sequence[Any], named: Mapping[str, Any], limit: Timeout | None) -> list[Any]:
        feed = self._feeds.take(arrays, named)
        return self._pool().run([*feed.values()], limit)

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: None = None
    ) -> list[Any]:
        """Return the named outputs of a call, as `onnxruntime.InferenceSession.run` does: `model.run(["y"], {"x": x})`.

        output_names: in the order wanted, or None for all. input_feed: a value for each input, by name. run_options:
        None. Raises `FeedError` for names that are no outputs and for run_options, and what a call raises.
        """
        known = self._signature.outputs
        names = requested(self.name, known, output_names, input_feed, run_options, "gc.IsolatedSession")
        results = dict(zip(known, self(dict(input_feed)), strict=True))
        return [results[name] for name in names]

    def execute(self, /, *arrays: Any, wide: Any = "limbs", timeout: Any = None, **named: Any) -> list[Any]:
        """Run as calling the model does; wide: what outputs of more than 64 bits come as; timeout: seconds.

        "limbs" gives uint32 digits along one more axis, the last one, the lowest first; "object" gives arrays of Python
        ints. Raises what a call does, and `FeedError` for any other `wide`.
        """
        limit = None if timeout is None else Timeout(seconds_of(self.name, timeout))
        if not isinstance(wide, str) or wide not in ("limbs", "object"):
            raise FeedError(
                f"{self.name}: wide={wide!r:.80} is no form of integers of more than 64 bits",
                help="give wide='limbs' for uint32 digits, or wide='object' for Python integers",
            )
        results = self._run(arrays, named, limit)
        if wide == "object":
            for position, dtype in self._wide:
                results[position] = big_integers.from_digits(results[position], dtype)
        return results

    def run_async(self, /, *arrays: Any, timeout: Any = None, **named: Any) -> Future[list[Any]]:
        """Return a future of what a call gives: `model.run_async(x).result()`.

        Leave the arrays as they are until it is done. timeout: seconds from the asking on, as of a call. The future has
        what a call raises. Raises `RunError` where the program is ending, and `FeedError` for a timeout that is none.
        """
        limit = self._limit(timeout, named)
        here = os.getpid()
        if self._threads is None or self._threads[0] != here:  # a fork has none of the threads
            self._threads = here, ThreadPoolExecutor(self._workers, thread_name_prefix="graphcore waits for workers")
        try:
            return self._threads[1].submit(self._run, arrays, named, limit)
        except RuntimeError as error:
            raise RunError(f"{self.name}: run_async: {error}", help="load the model again") from None

    def close(self) -> None:
        """Take no more calls, wait for those that run or were asked for by `run_async`, and end the workers."""
        if self._threads is not None and self._threads[0] == os.getpid():
            self._threads[1].shutdown()
        self._pool().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _pool(self) -> Pool:
        """Return the workers of this process: a fork starts its own when it needs them."""
        here = os.getpid()
        return self._pools.get(here) or self._pools.setdefault(
            here, Pool(self._program, self._workers, self._signature)
        )

    def __reduce__(self) -> NoReturn:
        raise ModelError(
            f"{self.name}: an IsolatedModel belongs to the process that loaded it, and is not copied or pickled",
            help="give the path of the file, and load it there",
        )

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {type_}" for name, type_ in self._signature.inputs.items())
        outputs = ", ".join(f"{name}: {type_}" for name, type_ in self._signature.outputs.items())
        return f"<IsolatedModel {self.name}({inputs}) -> {outputs}, {self._workers} workers>"


def _end(pools: dict[int, Pool]) -> None:
    pool = pools.get(os.getpid())
    if pool is not None:
        pool.end()


# Workers of one model: a request is given to one that is free, and waits where none is.

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
