"""Models that run in worker processes, and are called as a Model."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn, Self

from graphcore.arrays import big_integers
from graphcore.errors import GraphcoreError, ModelError, RunError
from graphcore.runtime.calls.conversion import check_wide, requested
from graphcore.runtime.calls.feeds import Feeds, Inputs
from graphcore.runtime.calls.results import NamedResults, results_of
from graphcore.runtime.isolation.process import Worker, WorkerEnded, WorkerProgram, WorkerSignature
from graphcore.runtime.isolation.spawning import Timeout
from graphcore.runtime.stopping.limit import seconds_of
from graphcore.types.tensor_types import TensorType, Type


class IsolatedModel:
    """A model in worker processes: `model(x, y)`, `model(x=..., y=...)` or `model({"x": ...})`, as a Model is called.

    Made by `IsolatedSession.load`. Calls from several threads are safe: one runs in each worker, and the others wait.
    If a worker ends during a call, the call raises an error, and another worker starts. Close the model, or use it in
    `with`; otherwise the workers end with the last reference, or with the program.
    """

    def __init__(self, program: WorkerProgram, workers: int) -> None:
        self._program = program
        self._workers = workers
        pool = Pool(program, workers)
        self._pools = {pool.process: pool}
        self._end = weakref.finalize(self, _end, self._pools)
        self._signature = pool.start()
        if self._signature.has_buffers and workers > 1:
            pool.end()
            raise ModelError(
                f"load: {self._signature.name} has buffers, which {workers} workers cannot share",
                help="IsolatedSession(workers=1)",
            )
        self.name = self._signature.name
        self._feeds = Feeds(self.name, self._signature.inputs, optional=self._signature.optional)
        typed = [(i, t.dtype) for i, t in enumerate(self._signature.outputs.values()) if isinstance(t, TensorType)]
        self._wide = [(i, dtype) for i, dtype in typed if big_integers.is_wide(dtype)]
        self._threads: tuple[int, ThreadPoolExecutor] | None = None

    @property
    def inputs(self) -> Inputs:
        """The types of the inputs by name, in order; `inputs.optional` has those that a call may omit."""
        return Inputs(self._signature.inputs, self._signature.optional)

    @property
    def outputs(self) -> dict[str, Type]:
        """The types of the outputs by name, in order."""
        return dict(self._signature.outputs)

    @property
    def processes(self) -> list[int]:
        """The ids of the current worker processes."""
        return self._pool().processes

    def __call__(self, /, *arrays: Any, timeout: Any = None, **named: Any) -> NamedResults:
        """Run the model on one value for each input, by position, by name, or in one dict, as a Model.

        Large results are in memory that the worker shares: they stay valid after other calls, after the worker's end
        and after `close`.

        Args:
            arrays: Values of the first inputs, or one dict of all inputs.
            timeout: Seconds that the call may take, including the wait for a free worker; None for no limit other than
                the session's run_seconds. The worker stops between two kernels, or is ended. If an input is called
                `timeout`, this argument is the input; `execute` has both.
            named: Values of inputs by name.

        Raises:
            FeedError: If a value does not fit its input.
            RunError: If the run fails or ends its process.
            RunTimeoutError: If the time is over.
            ResourceLimitError: If the run exceeds the session's limits of memory or time, or the memory of the machine.
        """
        return self._run(arrays, named, self._limit(timeout, named))

    def _limit(self, timeout: Any, named: dict[str, Any]) -> Timeout | None:
        """Return the limit of a call. named: its arguments, which get `timeout` if an input has that name."""
        if timeout is not None and "timeout" in self._signature.inputs:
            named["timeout"] = timeout
            return None
        return None if timeout is None else Timeout(seconds_of(self.name, timeout))

    def _run(self, arrays: Sequence[Any], named: Mapping[str, Any], limit: Timeout | None) -> NamedResults:
        feed = self._feeds.take(arrays, named)
        values = [feed.get(name) for name in (*self._feeds.names, *self._feeds.optional)]
        return results_of(tuple(self._signature.outputs))(self._pool().run(values, limit))

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: None = None
    ) -> list[Any]:
        """Return the named outputs of a call, as `onnxruntime.InferenceSession.run` does: `model.run(["y"], {"x": x})`.

        Args:
            output_names: The outputs to return, in this order; None for all.
            input_feed: A value for each input, by name.
            run_options: Must be None.

        Raises:
            FeedError: For unknown outputs and for run_options. Other errors are those of a call.
        """
        outputs = self._signature.outputs
        names = requested(self.name, outputs, output_names, input_feed, run_options, "gc.IsolatedSession")
        results = dict(zip(outputs, self(dict(input_feed)), strict=True))
        return [results[name] for name in names]

    def execute(self, /, *arrays: Any, wide: Any = "limbs", timeout: Any = None, **named: Any) -> NamedResults:
        """Run as calling the model does, with more options.

        Args:
            arrays: Values of the inputs, as in a call.
            wide: The form of integers of more than 64 bits: "limbs" for uint32 digits along an additional last axis,
                the lowest first; "object" for arrays of Python ints.
            timeout: Seconds that the call may take.
            named: Values of inputs by name, as in a call.

        Raises:
            FeedError: For another `wide`. Other errors are those of a call.
        """
        limit = None if timeout is None else Timeout(seconds_of(self.name, timeout))
        check_wide(self.name, wide)
        results = self._run(arrays, named, limit)
        if wide == "object":
            for position, dtype in self._wide:
                results[position] = big_integers.from_digits(results[position], dtype)
        return results

    def run_async(self, /, *arrays: Any, timeout: Any = None, **named: Any) -> Future[NamedResults]:
        """Start a call in a thread and return its future: `model.run_async(x).result()`.

        Do not change the arrays until it is done. The future has the error of a failed call.

        Args:
            timeout: Seconds from now on, as in a call.

        Raises:
            RunError: If the program is ending.
            FeedError: For an invalid timeout.
        """
        limit = self._limit(timeout, named)
        process = os.getpid()
        if self._threads is None or self._threads[0] != process:  # a forked process has none of the threads
            self._threads = process, ThreadPoolExecutor(self._workers, thread_name_prefix="graphcore waits for workers")
        try:
            return self._threads[1].submit(self._run, arrays, named, limit)
        except RuntimeError as error:
            raise RunError(f"{self.name}: run_async: {error}", help="load the model again") from None

    def close(self) -> None:
        """Refuse new calls, wait for running calls and those of `run_async`, and end the workers."""
        if self._threads is not None and self._threads[0] == os.getpid():
            self._threads[1].shutdown()
        self._pool().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _pool(self) -> Pool:
        """Return the workers of this process: a forked process starts its own when it needs them."""
        process = os.getpid()
        return self._pools.get(process) or self._pools.setdefault(
            process, Pool(self._program, self._workers, self._signature)
        )

    def __reduce__(self) -> NoReturn:
        raise ModelError(
            f"{self.name}: an IsolatedModel belongs to the process that loaded it, and cannot be copied or pickled",
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


# Workers of a model: a request runs in a free worker, or waits for one.

LOG = logging.getLogger("graphcore")
_TRIES = 3
"""Number of attempts to start a worker for a request, if other programs end it before the request is sent."""


@dataclass(slots=True, eq=False)
class _Place:
    """The place of a worker; None until it is started."""

    worker: Worker | None = None


class Pool:
    """A fixed number of workers, started when they are needed. Thread-safe."""

    def __init__(self, program: WorkerProgram, workers: int, signature: WorkerSignature | None = None) -> None:
        """
        Args:
            signature: Of the model, if it is known.
        """
        self.process = os.getpid()
        self._program = program
        self._signature = signature
        self._places = [_Place() for _ in range(workers)]
        self._free = deque(self._places)
        self._changed = threading.Condition(threading.Lock())
        self._waiting = 0
        self._is_closed = False

    def start(self) -> WorkerSignature:
        """Start the first worker now and the others in threads; return the model's signature. Raises errors of
        loading."""
        first = self._free.pop()
        try:
            self._signature = self._started(first).signature
        finally:
            self._return(first)
        for _ in range(len(self._places) - 1):
            self._start_in_thread(self._free.popleft())
        return self._signature

    @property
    def processes(self) -> list[int]:
        """The ids of the current processes."""
        workers = [place.worker for place in self._places]
        return [worker.process for worker in workers if worker is not None and not worker.is_ended]

    def run(self, values: Sequence[Any], limit: Timeout | None = None) -> list[Any]:
        """Run in the first free worker and return the outputs.

        Raises errors of `Worker.run`; `RunError` if the model is closed.

        Args:
            limit: Of the call.
        """
        for attempt in range(_TRIES):
            place = self._take(limit)
            worker = place.worker
            if limit is not None and not attempt and (worker is None or worker.is_ended):
                self._start_in_thread(place)  # starting may take longer than the limit of the call
                continue
            try:
                if worker is None or worker.is_ended:
                    worker = self._started(place)
                return worker.run(values, limit)
            except WorkerEnded:
                LOG.warning("%s: another program ended a waiting worker; starting a new worker", self._name)
            finally:
                self._release(place)
        raise RunError(
            f"run: each worker of {self._name} was ended before its run",
            help="check which program ends them: out of memory?",
        )

    def _release(self, place: _Place) -> None:
        """Release a place for the next request, or to a thread that restarts its worker if it has ended."""
        worker = place.worker
        if worker is not None and worker.is_ended and not self._is_closed:
            self._start_in_thread(place)
        else:
            self._return(place)

    @property
    def _name(self) -> str:
        return self._program.name if self._signature is None else self._signature.name

    def _take(self, limit: Timeout | None = None) -> _Place:
        with self._changed:
            while not self._free and not self._is_closed:
                self._waiting += 1
                try:
                    self._changed.wait(None if limit is None else limit.remaining(self._name))
                finally:
                    self._waiting -= 1
            if self._is_closed:
                raise RunError(f"run: {self._name} is closed", help="load it again")
            return self._free.pop()  # the last used one, whose memory is in the processor's caches

    def _return(self, place: _Place) -> None:
        with self._changed:
            self._free.append(place)
            if self._waiting or self._is_closed:
                self._changed.notify_all() if self._is_closed else self._changed.notify()

    def _started(self, place: _Place) -> Worker:
        """Start the worker of a place."""
        worker = Worker(self._program)
        if self._signature is not None and worker.signature != self._signature:
            worker.end()
            raise ModelError(f"run: {self._name} was changed since it was loaded", help="load it again")
        place.worker = worker
        return worker

    def _start_in_thread(self, place: _Place) -> None:
        """Start the worker of a place in a thread, so that the next request waits less."""

        def work() -> None:
            try:
                if not self._is_closed:
                    self._started(place)
            except GraphcoreError as error:  # the next request raises it again
                place.worker = None
                LOG.warning("%s: no worker was started: %s", self._name, error.summary)
            finally:
                self._return(place)

        threading.Thread(target=work, name=f"graphcore starts {self._name}"[:60], daemon=True).start()

    def close(self) -> None:
        """Refuse new requests, wait for running ones, and end the workers."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            while len(self._free) < len(self._places):
                self._changed.wait()
        self.end()

    def end(self) -> None:
        """End the workers immediately, in the process that started them."""
        self._is_closed = True
        if self.process != os.getpid():
            return
        for place in self._places:
            if place.worker is not None:
                place.worker.end()
