"""Futures of calls in threads: cancelling a future stops its run, and so does the end of the program."""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from graphcore.runtime.stopping.limit import Limit

_GRACE_SECONDS = 1.0
"""Seconds that calls may continue when the program ends."""


class CallFuture(Future[Any]):
    """A future of a call. `cancel()` removes a waiting call, and stops a running one."""

    def __init__(self, what: str, seconds: float | None = None) -> None:
        super().__init__()
        self._limit = Limit(what, seconds)
        self._runs = False

    def cancel(self) -> bool:
        """Cancel the call; return True if it had not ended before. A run stops between two kernels;
        `concurrent.futures.wait` waits until it has ended."""
        if not super().cancel():
            return False
        self._limit.cancel()
        return True

    def running(self) -> bool:
        """Return True if the call is running."""
        return self._runs and not self.done()

    def run_call(self, call: Callable[..., list[Any]], arrays: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Run the call in the current thread."""
        result, error = None, None
        if not self.cancelled():
            self._runs = True
            try:
                with self._limit:
                    result = call(*arrays, **named)
            except BaseException as raised:
                error = raised
        _PENDING.discard(self)
        if not self.set_running_or_notify_cancel():  # called late, because a running future cannot be cancelled
            return
        if error is None:
            self.set_result(result)
        else:
            self.set_exception(error)


_PENDING: weakref.WeakSet[CallFuture] = weakref.WeakSet()
"""Calls that have not ended."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_PENDING.clear)  # a child has none of the threads


def submit(pool: ThreadPoolExecutor, call: Callable[..., list[Any]], future: CallFuture, *args: Any) -> CallFuture:
    """Submit a call to a pool and return its future. Raises `RuntimeError` if the program is ending."""
    _stop_at_exit()
    _PENDING.add(future)
    try:
        pool.submit(future.run_call, call, *args)
    except RuntimeError:
        _PENDING.discard(future)
        raise
    return future


@functools.cache
def _stop_at_exit() -> None:
    """Register once to stop calls when the program ends, before `concurrent.futures` waits for its threads: it was
    imported earlier, so that its function runs later."""
    threading._register_atexit(_stop_all)  # type: ignore[attr-defined]


def _stop_all() -> None:
    """Let calls continue for a while, then stop them."""
    end = time.monotonic() + _GRACE_SECONDS
    while _PENDING and time.monotonic() < end:
        time.sleep(0.005)
    while _PENDING:
        for call in [*_PENDING]:
            call.cancel()
        time.sleep(0.005)
        if time.monotonic() > end + _GRACE_SECONDS:
            return
