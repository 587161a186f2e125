"""A plan for a batch job: rows a block, threads a worker and workers, from the cores and a short measurement."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SAMPLE = 64
"""Rows that are measured."""

_SECONDS = 2.0
"""Seconds of work of a block: what Ray does for each, some 10 ms, is then under 1 %, and a block has so many rows that
those of similar length lie beside each other with next to no padding."""

_FEWEST, _MOST = 16, 4096
_ROOM = 0.8
"""The part of a node's memory that workers may take."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node: its processors, and its memory in bytes."""

    cpus: float
    memory: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The cost of a sample. seconds: of a row. memory: bytes that are a worker's own."""

    seconds: float
    memory: float


@dataclass(frozen=True, slots=True)
class Plan:
    """batch_size: rows of a block. cpus: what Ray counts for a worker."""

    batch_size: int
    threads: int
    workers: int
    cpus: float


def plan(
    nodes: Sequence[Node],
    measured: Measured | None,
    batch_size: int | None = None,
    threads: int | None = None,
    workers: int | None = None,
) -> Plan:
    """Return a plan, with the numbers that were given.

    A thread a worker is the least work where there is memory for a worker a processor, as no thread waits for another;
    with less memory fewer workers get more threads each. What Ray counts for the workers leaves a whole processor
    of some node, or tasks that read files would wait for one for ever.
    """
    usual = [node for node in nodes if node.cpus >= 1] or [Node(1, math.inf)]
    own = measured.memory if measured is not None else 0.0
    fitting = [max(1, min(int(n.cpus), int(_ROOM * n.memory / own) if own > 0 else int(n.cpus))) for n in usual]
    each = threads or min(max(1, int(n.cpus) // count) for n, count in zip(usual, fitting, strict=True))
    count = workers or sum(max(1, min(most, int(n.cpus) // each)) for n, most in zip(usual, fitting, strict=True))
    total = sum(n.cpus for n in usual)
    # Wherever Ray puts the workers, some node then has a whole processor left: if each had less, all had less than one
    # a node.
    cpus = min(float(each), max(0.0, (total - len(usual)) / count))
    size = batch_size
    if size is None:
        seconds = measured.seconds if measured is not None else _SECONDS / _MOST
        wanted = _SECONDS / seconds if seconds > 0 else _MOST
        size = 1 << round(math.log2(min(max(wanted, _FEWEST), _MOST)))
    return Plan(size, each, count, math.floor(cpus * 100) / 100)


def measure(run: Callable[[], object], rows: int, before: float) -> Measured:
    """Return what rows cost. run: runs all of them. before: `own_memory` before the model was loaded."""
    run()  # the first run of a shape makes its memory
    started = time.perf_counter()
    run()
    return Measured((time.perf_counter() - started) / max(rows, 1), max(0.0, own_memory() - before))


def own_memory() -> float:
    """Return the bytes that are of this process alone; 0 where the system does not tell."""
    try:
        with open(f"/proc/{os.getpid()}/statm") as file:
            _, resident, shared = map(int, file.read().split()[:3])
    except (OSError, ValueError):
        return 0.0
    return float(resident - shared) * os.sysconf("SC_PAGESIZE")
