"""Waiting for something that happens in another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 120
"""Seconds after which what is waited for does not come any more, on a busy machine either."""


def until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true. Raises `TimeoutError` if it does not come true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not true after {PATIENCE} s")
        time.sleep(0.005)
