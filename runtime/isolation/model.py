"""A model that runs in worker processes: called as a Model is."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, NoReturn, Self

from graphcore.arrays import big_integers
from graphcore.errors import FeedError, ModelError, RunError
from graphcore.runtime.calls.feeds import Feeds
from graphcore.runtime.calls.named_outputs import requested
from graphcore.runtime.isolation.pool import Pool
from graphcore.runtime.isolation.process import Program
from graphcore.runtime.isolation.timeouts import Timeout
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
