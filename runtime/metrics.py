"""Metrics of a server of requests: counts and histograms, and their text in Prometheus' format.

https://prometheus.io/docs/instrumenting/exposition_formats/

prometheus_client is not used: Batcher and Streams have metrics without an extra, and workers of a server sum texts. Its
parser reads them in tests.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

Outcome: TypeAlias = Literal["completed", "failed", "cancelled", "timed_out"]

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of values by interval.

    bounds: the upper bounds of the ranges, rising. counts: how many values lie at or below each bound and above the one
    before; the last one counts those above all. total: the sum of all values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """The mean of the values; 0 if there are none."""
        return self.total / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Metrics:
    """Counts of requests by outcome.

    kind, model: what served them. submitted: requests that were taken in; busy: those that were refused, as the queue
    was full. completed, failed, cancelled, timed_out: those that have ended, by how. waiting, running: those that have
    not. batches: calls of the model; batch_rows: the rows of each. waiting_seconds: from a request's arrival to its
    run, running_seconds: the time of a run.
    """

    kind: str
    model: str
    submitted: int
    busy: int
    completed: int
    failed: int
    cancelled: int
    timed_out: int
    waiting: int
    running: int
    batches: int
    batch_rows: Histogram
    waiting_seconds: Histogram
    running_seconds: Histogram

    def prometheus(self, model: str | None = None) -> str:
        """Return the metrics in Prometheus' text format, each with the label `model`: its name, or another one."""
        return "\n".join([*self._lines(self.model if model is None else model), ""])

    def _lines(self, model: str) -> Iterator[str]:
        label = f'model="{_escaped(model)}"'
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in _HELP:
                continue
            ending = "" if isinstance(value, Histogram) or field.name in _GAUGES else "_total"
            subject = "" if field.name == "batches" or isinstance(value, Histogram) else "requests_"
            name = f"graphcore_{self.kind}_{subject}{field.name}{ending}"
            yield f"# HELP {name} {_HELP[field.name]}"
            if not isinstance(value, Histogram):
                yield f"# TYPE {name} {'gauge' if field.name in _GAUGES else 'counter'}"
                yield f"{name}{{{label}}} {value}"
                continue
            yield f"# TYPE {name} histogram"
            below = 0
            for bound, count in zip((*value.bounds, float("inf")), value.counts, strict=True):
                below += count
                yield f'{name}_bucket{{{label},le="{"+Inf" if bound == float("inf") else f"{bound:g}"}"}} {below}'
            yield f"{name}_sum{{{label}}} {value.total!r}"
            yield f"{name}_count{{{label}}} {below}"


_GAUGES = frozenset({"waiting", "running"})

_HELP = {
    "submitted": "Requests that were taken in.",
    "busy": "Requests that were refused because the queue was full.",
    "completed": "Requests that got their result.",
    "failed": "Requests that ended with an error.",
    "cancelled": "Requests that were cancelled.",
    "timed_out": "Requests whose time was over.",
    "waiting": "Requests that wait for their run.",
    "running": "Requests that run.",
    "batches": "Calls of the model.",
    "batch_rows": "Rows of a call of the model.",
    "waiting_seconds": "Seconds from the arrival of a request to its run.",
    "running_seconds": "Seconds of a run.",
}


class Recorder:
    """Counts the outcomes of requests. Thread-safe."""

    def __init__(self, kind: str, model: str) -> None:
        self._kind, self._model = kind, model
        self._lock = threading.Lock()
        self._counts = {"submitted": 0, "busy": 0, "completed": 0, "failed": 0, "cancelled": 0, "timed_out": 0}
        self._batches = 0
        self._rows, self._waited, self._ran = _Values(_ROWS), _Values(_SECONDS), _Values(_SECONDS)

    def count(self, what: Outcome | Literal["submitted", "busy"]) -> None:
        """Count a request that was taken in or refused, or has ended."""
        with self._lock:
            self._counts[what] += 1

    def waited(self, seconds: float) -> None:
        """Note how long a request has waited for its run."""
        with self._lock:
            self._waited.add(seconds)

    def batch(self, rows: int) -> None:
        """Note a call of the model and its number of rows."""
        with self._lock:
            self._batches += 1
            self._rows.add(rows)

    def ran(self, seconds: float) -> None:
        """Note how long a run took."""
        with self._lock:
            self._ran.add(seconds)

    def read(self, waiting: int, running: int) -> Metrics:
        """Return the metrics now."""
        with self._lock:
            return Metrics(
                self._kind, self._model, **self._counts, waiting=waiting, running=running, batches=self._batches,
                batch_rows=self._rows.read(), waiting_seconds=self._waited.read(), running_seconds=self._ran.read(),
            )  # fmt: skip


class _Values:
    """A histogram that grows."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def read(self) -> Histogram:
        return Histogram(self._bounds, tuple(self._counts), self._total)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
