"""The plan of a batch job: block size, threads and workers, from the cores of the cluster and a short measurement."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SAMPLE = 64
"""The number of rows to measure."""

_BLOCK_SECONDS = 2.0
"""Seconds of work of a block. Ray's overhead of about 10 ms is then under 1 %, and a block has enough rows to group
those of similar length with little padding."""

_MIN_ROWS, _MAX_ROWS = 16, 4096
_MAX_MEMORY = 0.8
"""The fraction of a node's memory that workers may use."""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node: its processors, and its memory in bytes."""

    cpus: float
    memory: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """The cost of a sample. seconds: per row. memory: bytes that a worker does not share."""

    seconds: float
    memory: float


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """batch_size: rows of a block. cpus: the number that Ray reserves for a worker."""

    batch_size: int
    threads: int
    workers: int
    cpus: float


def plan(
    nodes: Sequence[ClusterNode],
    measurement: Measurement | None,
    batch_size: int | None = None,
    threads: int | None = None,
    workers: int | None = None,
) -> BatchPlan:
    """Return a plan; numbers that are given are used.

    One thread per worker is the most efficient, as no thread waits for another, if there is memory for a worker per
    processor. With less memory there are fewer workers with more threads. The plan leaves a whole processor of some
    node to tasks that read files, also after the loss of a node: they would otherwise wait forever.
    """
    cpu_nodes = [node for node in nodes if node.cpus >= 1] or [ClusterNode(1, math.inf)]
    worker_memory = measurement.memory if measurement is not None else 0.0
    max_workers = [
        max(1, min(int(n.cpus), int(_MAX_MEMORY * n.memory / worker_memory) if worker_memory > 0 else int(n.cpus)))
        for n in cpu_nodes
    ]
    threads_each = threads or min(max(1, int(n.cpus) // count) for n, count in zip(cpu_nodes, max_workers, strict=True))
    count = workers or sum(
        max(1, min(limit, int(n.cpus) // threads_each)) for n, limit in zip(cpu_nodes, max_workers, strict=True)
    )
    # Wherever Ray puts the workers, some node has a whole processor free, even after it lost the largest node, whose
    # workers start again on the others: otherwise those nodes together would have less than one per node.
    remaining = sorted(n.cpus for n in cpu_nodes)[: max(1, len(cpu_nodes) - 1)]
    cpus = min(float(threads_each), max(0.0, (sum(remaining) - len(remaining)) / count))
    size = batch_size
    if size is None:
        seconds = measurement.seconds if measurement is not None else _BLOCK_SECONDS / _MAX_ROWS
        target_rows = _BLOCK_SECONDS / seconds if seconds > 0 else _MAX_ROWS
        size = 1 << round(math.log2(min(max(target_rows, _MIN_ROWS), _MAX_ROWS)))
    return BatchPlan(size, threads_each, count, math.floor(cpus * 100) / 100)


def measure(run: Callable[[], object], rows: int, before: float) -> Measurement:
    """Measure the cost of rows. run: runs all of them. before: `own_memory` before the model was loaded."""
    run()  # the first run of a shape allocates its memory
    started = time.perf_counter()
    run()
    return Measurement((time.perf_counter() - started) / max(rows, 1), max(0.0, own_memory() - before))


def own_memory() -> float:
    """Return the unshared memory of this process in bytes; 0 if the system does not report it."""
    try:
        with open(f"/proc/{os.getpid()}/statm") as file:
            _, resident, shared = map(int, file.read().split()[:3])
    except (OSError, ValueError):
        return 0.0
    return float(resident - shared) * os.sysconf("SC_PAGESIZE")
