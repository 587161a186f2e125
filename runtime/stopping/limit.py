"""Limits of runs: whatever a thread runs within one ends with it."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np

from graphcore.errors import FeedError, RunCancelledError, RunTimeoutError
from graphcore.runtime.stopping.watcher import HERE, WATCHER, run_options


class Limit:
    """Ends the runs that are made within it, when its time is over or `cancel` is called.

        with Limit("gpt2", 0.5):
            model(x)

    Raises `RunTimeoutError` or `RunCancelledError` then. What runs within is asked to end between two kernels. Several
    threads may be within one, and one thread may be within it again and again; it begins when it is made.
    """

    def __init__(self, what: str, seconds: float | None = None, deadline: float | None = None) -> None:
        """what: the model, as errors call it. seconds: None for no end. deadline: where it began earlier."""
        self.what = what
        self.seconds = seconds
        self.options = run_options()
        self.deadline = math.inf
        self._ended: Callable[[], Exception] | None = None
        self._threads: list[object] = []  # of those that are within it
        self._within: list[Limit] = []
        if seconds is not None:
            self.deadline = time.monotonic() + seconds if deadline is None else deadline

    def begin(self) -> None:
        """Let its time begin now."""
        if self.seconds is not None:
            self.deadline = time.monotonic() + self.seconds

    @property
    def is_over(self) -> bool:
        """Return True if it has ended what runs within."""
        return self._ended is not None

    def expire(self) -> None:
        """End the runs: the time is over."""
        self.end(self._timed_out)

    def cancel(self, why: str = "", help: str = "") -> None:
        """End the runs. why: what errors say."""
        self.end(lambda: RunCancelledError(why or f"{self.what}: the run was cancelled", help=help))

    def end(self, error: Callable[[], Exception]) -> None:
        """End the runs with an error, if they have not been ended before."""
        if self._ended is None:
            self._ended = error
            self.options.terminate = True
            for inner in [*self._within]:
                inner.end(error)

    def check(self) -> None:
        """Raise what has ended it, if anything has."""
        if self._ended is None and time.monotonic() >= self.deadline:
            self.expire()
        if self._ended is not None:
            raise self._ended() from None

    def _timed_out(self) -> RunTimeoutError:
        return RunTimeoutError(
            f"{self.what}: a run was stopped after timeout={self.seconds:g} seconds",
            help="give it more time; a run is stopped between two kernels, and results of it are lost",
        )

    def __enter__(self) -> Limit:
        self.check()
        state = HERE.state
        outer = state.limit
        state.outer.append((outer, state.options))
        self._threads.append(state)
        if outer is not None:
            outer._within.append(self)
            if outer._ended is not None:
                self.end(outer._ended)
        if self.deadline < math.inf:
            WATCHER.add(self)
        state.limit, state.options = self, self.options
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state = HERE.state
        state.limit, state.options = outer, _ = state.outer.pop()
        self._threads.remove(state)
        if outer is not None:
            outer._within.remove(self)
        if self.deadline < math.inf and not self._threads:
            WATCHER.remove(self)
        if error is None:
            self.check()


def seconds_of(what: str, timeout: object) -> float:
    """Return a time in seconds. what: the call, as errors name it. Raises `FeedError` for what is none."""
    is_number = isinstance(timeout, (int, float, np.integer, np.floating)) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout < math.inf:  # type: ignore[operator]
        raise FeedError(
            f"{what}: timeout={timeout!r:.80} is no time", help="give seconds above 0, or None for no limit"
        )
    return float(timeout)  # type: ignore[arg-type]


def run(call: Callable[..., Any], *given: Any) -> Any:
    """Return what a call of onnxruntime gives, with the options of this thread as its last operand.

    A run that was stopped for a signal is made again where the signal's handler raises nothing. Raises what the call
    raises, what the limit in force does, and what handlers do.
    """
    state = HERE.state
    if time.monotonic() >= state.due_at:
        WATCHER.arm(state)
    try:
        return call(*given, state.options)
    except Exception:
        if not stopped():
            raise
    return run(call, *given)


def run_once(call: Callable[..., Any], *given: Any) -> Any:
    """Return what `run` does, of a call that changes memory in place and is not made again.

    A signal stops it where the handler is known to raise.
    """
    state = HERE.state
    if time.monotonic() >= state.due_at:
        WATCHER.arm(state)
    if not state.is_main or state.options is None:
        return run(call, *given)
    WATCHER.settle()
    if state.limit is None or not state.limit.is_over:
        state.options.terminate = False  # of a signal that came at the end of another run
    state.is_repeatable = False
    try:
        return call(*given, state.options)
    except Exception:
        stopped()
        raise
    finally:
        state.is_repeatable = True


def stopped() -> bool:
    """Return True if the run that has just failed was stopped for a signal whose handler has raised nothing.

    Raises what ended the limit in force, and `asyncio.CancelledError` where the handler has cancelled the task.
    """
    state = HERE.state
    options = state.options
    raised, state.raised = state.raised, None
    if raised is not None:
        raise raised
    if options is None or not options.terminate:
        return False
    if state.limit is not None:
        state.limit.check()
    options.terminate = False
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None:
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no loop is running
            task = None
        # `asyncio.run` cancels its main task, which may be waiting for the one that runs.
        main = getattr(signal.getsignal(signal.SIGINT), "keywords", {}).get("main_task")
        if any(each is not None and each.cancelling() for each in (task, main)):
            raise asyncio.CancelledError
    return True


def keep(error: BaseException) -> None:
    """Keep what a signal's handler raised where Python computes an operator: it is raised when the run has ended."""
    HERE.state.raised = error


def current() -> Limit | None:
    """Return the limit in force in this thread."""
    limit: Limit | None = HERE.state.limit
    return limit
