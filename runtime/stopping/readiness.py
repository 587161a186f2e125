"""Waiting until a descriptor can be read or written, on systems with `select.poll` and without."""

from __future__ import annotations

import math
import select
import selectors
from collections.abc import Callable
from typing import TypeAlias

_LONGEST = 1 << 30
"""Milliseconds of one wait: poll takes 32 bits of them."""

Wait: TypeAlias = Callable[[float | None], bool]
"""Waits for so many seconds at most, None for no end; returns whether the descriptor is ready."""


def wait_to_read(descriptor: int) -> Wait:
    """Return what waits until a descriptor can be read. It may be called as often as it is wanted."""
    return _wait(descriptor, is_read=True)


def wait_to_write(descriptor: int) -> Wait:
    """Return what waits until a descriptor can be written to. It may be called as often as it is wanted."""
    return _wait(descriptor, is_read=False)


def _wait(descriptor: int, is_read: bool) -> Wait:
    if not hasattr(select, "poll"):  # on Windows, and where gevent or eventlet have taken it away
        selector = selectors.DefaultSelector()
        selector.register(descriptor, selectors.EVENT_READ if is_read else selectors.EVENT_WRITE)
        return lambda seconds: bool(selector.select(seconds))
    poll = select.poll()
    poll.register(descriptor, select.POLLIN if is_read else select.POLLOUT)
    return lambda seconds: bool(poll.poll(None if seconds is None else min(math.ceil(seconds * 1000), _LONGEST)))
