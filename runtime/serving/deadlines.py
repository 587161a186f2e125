"""Deadlines of requests: a thread that ends each when its time is over, whether it waits or runs."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

_SWEPT = 1024
"""The number of entries from which those of completed requests are removed."""


class Deadlines:
    """Calls `expire` with each request at its deadline, unless nothing else refers to it: requests are not kept alive.

    The thread begins with the first request that has a deadline.

    Callbacks of futures run in it, which is why it is no other thread.
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
            try:
                self._expire(request)
            except BaseException:
                logging.getLogger("concurrent.futures").exception("a callback of a request ended")
            del request

    def _next(self) -> Any:
        """Return the next request that is due, once it is; None when closed."""
        with self._changed:
            while not self._is_closed:
                left = self._waiting[0][0] - time.monotonic() if self._waiting else None
                if left is None or left > 0:
                    self._changed.wait(left)
                elif (request := heapq.heappop(self._waiting)[2]()) is not None:
                    return request
        return None
