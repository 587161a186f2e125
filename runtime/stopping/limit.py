"""Limits of runs: a limit ends all runs that a thread starts within it."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

from graphcore.errors import FeedError, RunCancelledError, RunTimeoutError
from graphcore.runtime.stopping.watcher import THREAD, WATCHER, run_options


class Limit:
    """Ends the runs within it when its time is over or `cancel` is called.

        with Limit("gpt2", 0.5):
            model(x)

    Then it raises `RunTimeoutError` or `RunCancelledError`. Runs stop between two kernels. Several threads may enter a
    limit, and a thread may enter it repeatedly. Its time starts when it is created.
    """

    def __init__(self, what: str, seconds: float | None = None, deadline: float | None = None) -> None:
        """what: the model's name in errors. seconds: None for no limit. deadline: if it started earlier."""
        self.what = what
        self.seconds = seconds
        self.options = run_options()
        self.deadline = math.inf
        self._ended: Callable[[], Exception] | None = None
        self._threads: list[object] = []  # states of the threads that are within it
        self._within: list[Limit] = []
        if seconds is not None:
            self.deadline = time.monotonic() + seconds if deadline is None else deadline

    def restart(self) -> None:
        """Restart its time."""
        if self.seconds is not None:
            self.deadline = time.monotonic() + self.seconds

    @property
    def is_over(self) -> bool:
        """Whether it has ended its runs."""
        return self._ended is not None

    def expire(self) -> None:
        """End the runs because the time is over."""
        self.end(self._timed_out)

    def cancel(self, why: str = "") -> None:
        """End the runs. why: the message of their errors."""
        self.end(lambda: RunCancelledError(why or f"{self.what}: the run was cancelled"))

    def end(self, error: Callable[[], Exception]) -> None:
        """End the runs with an error, unless they have ended."""
        if self._ended is None:
            self._ended = error
            self.options.terminate = True
            for inner in [*self._within]:
                inner.end(error)

    def check(self) -> None:
        """Raise the error that has ended it, if there is one."""
        if self._ended is None and time.monotonic() >= self.deadline:
            self.expire()
        if self._ended is not None:
            raise self._ended() from None

    def _timed_out(self) -> RunTimeoutError:
        return RunTimeoutError(
            f"{self.what}: a run was stopped after timeout={self.seconds:g} seconds",
            help="give it more time; a run stops between two kernels, and its results are lost",
        )

    def __enter__(self) -> Limit:
        self.check()
        state = THREAD.state
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

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        state = THREAD.state
        state.limit, state.options = outer, _ = state.outer.pop()
        self._threads.remove(state)
        if outer is not None:
            outer._within.remove(self)
        if self.deadline < math.inf and not self._threads:
            WATCHER.remove(self)
        if error is None:
            self.check()


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def is_count(value: object, least: int = 1) -> TypeGuard[int]:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= least)


def seconds_of(what: str, timeout: object) -> float:
    """Return a time in seconds. what: the name of the call in errors. Raises `FeedError` for an invalid time."""
    if not is_number(timeout) or not 0 < timeout < math.inf:
        raise FeedError(
            f"{what}: timeout={timeout!r:.80} is not a time", help="give seconds above 0, or None for no limit"
        )
    return float(timeout)


def run(call: Callable[..., Any], *args: Any) -> Any:
    """Call onnxruntime with the run options of this thread as the last argument, and return its result.

    A run that was stopped for a signal runs again if the signal's handler does not raise. Raises errors of the call, of
    the active limit, and of handlers.
    """
    state = THREAD.state
    if time.monotonic() >= state.due_at:
        WATCHER.arm(state)
    try:
        return call(*args, state.options)
    except Exception:
        if not was_stopped():
            raise
    return run(call, *args)


def run_once(call: Callable[..., Any], *args: Any) -> Any:
    """Run a call that changes memory in place, and is not repeated. Otherwise as `run`.

    A signal stops it only if the handler is known to raise.
    """
    state = THREAD.state
    if time.monotonic() >= state.due_at:
        WATCHER.arm(state)
    if not state.is_main or state.options is None:
        return run(call, *args)
    WATCHER.settle()
    if state.limit is None or not state.limit.is_over:
        state.options.terminate = False  # set by a signal at the end of another run
    state.is_repeatable = False
    try:
        return call(*args, state.options)
    except Exception:
        was_stopped()
        raise
    finally:
        state.is_repeatable = True


def was_stopped() -> bool:
    """Return True if the failed run was stopped for a signal whose handler did not raise.

    Raises the error that ended the active limit, and `asyncio.CancelledError` if the handler has cancelled the task.
    """
    state = THREAD.state
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
        # `asyncio.run` cancels its main task, which may be waiting for the running one.
        main = getattr(signal.getsignal(signal.SIGINT), "keywords", {}).get("main_task")
        if any(each is not None and each.cancelling() for each in (task, main)):
            raise asyncio.CancelledError
    return True


def store_exception(error: BaseException) -> None:
    """Store an exception of a signal handler during a Python operator: it is raised when the run has ended."""
    THREAD.state.raised = error


def current() -> Limit | None:
    """Return the active limit of this thread."""
    limit: Limit | None = THREAD.state.limit
    return limit
