"""Calls that take turns, and the time that each takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

PERCENTILES = (50, 90, 95, 99)

_WARM = 2
_FEWEST = 5
"""Rounds that are measured however long a call takes."""

_MOST = 1_000_000

Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Latency:
    """The seconds that each of some calls took, in their order."""

    seconds: tuple[float, ...]

    def percentile(self, part: float) -> float:
        """Return the seconds that so many of a hundred calls take at most."""
        return float(np.percentile(self.seconds, part))

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def mean(self) -> float:
        return sum(self.seconds) / len(self.seconds)

    def as_dict(self) -> dict[str, float | int]:
        """Return the figures in milliseconds, for JSON."""
        made: dict[str, float | int] = {f"p{part}_ms": self.percentile(part) * 1e3 for part in PERCENTILES}
        return made | {"best_ms": self.best * 1e3, "mean_ms": self.mean * 1e3, "calls": len(self.seconds)}


def in_turns(calls: Sequence[Call], seconds: float, tell: Callable[[float], None]) -> list[Latency]:
    """Return the latency of each call: all are made once a round, the first one first in every other round.

    seconds: for all rounds together, though five are made at least. tell: is told the seconds that have passed.
    """
    for call in calls:
        for _ in range(_WARM):
            call()
    taken: list[list[float]] = [[] for _ in calls]
    order = [*range(len(calls))]
    begun = time.perf_counter()
    for number in range(_MOST):
        for i in order if number % 2 == 0 else reversed(order):
            start = time.perf_counter()
            calls[i]()
            taken[i].append(time.perf_counter() - start)
        passed = time.perf_counter() - begun
        tell(passed)
        if passed >= seconds and number + 1 >= _FEWEST:
            break
    return [Latency(tuple(each)) for each in taken]


def ratio(ours: Latency, other: Latency) -> float:
    """Return the median of the ratios of the two calls of each round."""
    return float(np.median(np.divide(ours.seconds, other.seconds)))
