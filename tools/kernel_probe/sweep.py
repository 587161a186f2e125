"""Measures every operator in every dtype in processes that may die, and makes the table of a provider."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

from graphcore.types.dtypes import DType
from tools.kernel_probe.kernels.build import operators, swept_dtypes
from tools.kernel_probe.kernels.case import Case
from tools.kernel_probe.kernels.cases import CASES
from tools.kernel_probe.kernels.judge import Outcome, judge
from tools.kernel_probe.workers import TIMEOUT, Died, Worker


@dataclass(frozen=True, slots=True)
class Job:
    """One case of an operator in one dtype."""

    op_type: str
    dtype: DType
    case: Case


Outcomes: TypeAlias = dict[Job, Outcome]


def jobs(op_types: Iterable[str] | None = None) -> list[Job]:
    """Return every case of the operators (default: all of the opset) in every dtype that it is for."""
    return [
        Job(op_type, dtype, case)
        for op_type in (operators() if op_types is None else op_types)
        for dtype in swept_dtypes(op_type)
        for case in CASES[op_type]
        if case.only is None or dtype in case.only
    ]


def sweep(todo: Iterable[Job], provider: str, processes: int = 2, timeout: float = TIMEOUT) -> Outcomes:
    """Return what becomes of each job. A process that dies or hangs costs its job and is replaced."""
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in todo:
        waiting.put(job)
    outcomes: Outcomes = {}
    with ThreadPoolExecutor(processes) as pool:
        drivers = [pool.submit(_drive, waiting, outcomes, provider, timeout) for _ in range(processes)]
    for driver in drivers:
        driver.result()
    return outcomes


def kernels(outcomes: Mapping[Job, Outcome]) -> dict[str, list[DType]]:
    """Return the dtypes of each operator in which all of its cases ran with a kernel of their own."""
    asked: dict[str, dict[DType, bool]] = {}
    for job, outcome in outcomes.items():
        row = asked.setdefault(job.op_type, {})
        row[job.dtype] = row.get(job.dtype, True) and outcome.state == "kernel"
    return {op: [dtype for dtype in swept_dtypes(op) if row.get(dtype)] for op, row in sorted(asked.items())}


def _judged(op_type: str, case: Case, dtype: DType, provider: str) -> Outcome:
    try:
        return judge(op_type, case, dtype, provider)
    except Exception as error:
        raise RuntimeError(f"{op_type} in {dtype}: {error!r}") from None


def _drive(waiting: queue.SimpleQueue[Job], outcomes: Outcomes, provider: str, timeout: float) -> None:
    worker: Worker | None = None
    while True:
        try:
            job = waiting.get_nowait()
        except queue.Empty:
            break
        worker = worker or Worker(_judged)
        answer = worker.ask(job.op_type, job.case, job.dtype, provider, timeout=timeout)
        outcomes[job] = Outcome("dies", answer.how) if isinstance(answer, Died) else answer
        if isinstance(answer, Died):
            worker = None
    if worker:
        worker.end()
