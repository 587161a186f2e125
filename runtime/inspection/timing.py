"""Times of calls."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from graphcore.errors import FeedError


def timed(call: Callable[[], object], runs: int) -> dict[str, float]:
    """Return the seconds that a call takes over some runs after a first one: `median`, `best` and `worst`."""
    call()
    taken = []
    for _ in range(runs):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return {"median": statistics.median(taken), "best": min(taken), "worst": max(taken)}


def count_of(what: str, model: str, runs: object) -> int:
    """Return a number of runs, 1 or more. what, model: for errors. Raises `FeedError` for what is no number."""
    if not isinstance(runs, (int, np.integer)) or isinstance(runs, bool):
        raise FeedError(f"{what}: {model}: runs={runs!r:.80} is no number of calls", help="give 1 or more")
    return max(1, int(runs))
