"""Futures of calls that run in threads: cancelling one stops its run, and so does the end of the program."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from graphcore.runtime.stopping.limit import Limit

_LAST = 1.0
"""Seconds that calls may take when the program has ended."""


class Call(Future[list[Any]]):
    """A future of a call. `cancel()` takes a call back that waits, and stops one that runs."""

    def __init__(self, what: str, seconds: float | None = None) -> None:
        super().__init__()
        self._limit = Limit(what, seconds)
        self._runs = False

    def cancel(self) -> bool:
        """Cancel the call; return whether it had not ended before. A run is stopped between two kernels: that it has
        ended `concurrent.futures.wait` tells."""
        if not super().cancel():
            return False
        self._limit.cancel()
        return True

    def running(self) -> bool:
        """Return True if the call is under way."""
        return self._runs and not self.done()

    def make(self, call: Callable[..., list[Any]], arrays: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Make the call, in the thread that this runs in."""
        result, error = None, None
        if not self.cancelled():
            self._runs = True
            try:
                with self._limit:
                    result = call(*arrays, **named)
            except BaseException as raised:
                error = raised
        _LEFT.discard(self)
        if not self.set_running_or_notify_cancel():  # it could not be cancelled while it ran, had it been called before
            return
        if error is None:
            self.set_result(result)  # type: ignore[arg-type]
        else:
            self.set_exception(error)


_LEFT: weakref.WeakSet[Call] = weakref.WeakSet()
"""The calls that have not ended."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LEFT.clear)  # which has none of the threads


def submitted(pool: ThreadPoolExecutor, call: Callable[..., list[Any]], future: Call, *given: Any) -> Call:
    """Return the future of a call that was handed to a pool. Raises `RuntimeError` where the program is ending."""
    _end_with_the_program()
    _LEFT.add(future)
    try:
        pool.submit(future.make, call, *given)
    except RuntimeError:
        _LEFT.discard(future)
        raise
    return future


def _end_with_the_program() -> None:
    """Stop calls when the program ends, once: before `concurrent.futures` waits for its threads, which was imported
    before and is so told after."""
    global _is_registered
    if not _is_registered:
        _is_registered = True
        threading._register_atexit(_stop_all)  # type: ignore[attr-defined]


_is_registered = False


def _stop_all() -> None:
    """Let calls come to their end for a while, then stop them."""
    end = time.monotonic() + _LAST
    while _LEFT and time.monotonic() < end:
        time.sleep(0.005)
    while _LEFT:
        for call in [*_LEFT]:
            call.cancel()
        time.sleep(0.005)
        if time.monotonic() > end + _LAST:
            return
