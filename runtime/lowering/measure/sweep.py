"""Measures every operator in every dtype in processes that may die, and makes the table of a provider."""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import signal
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import onnxruntime

from graphcore.dtypes import DType
from graphcore.runtime.installed import newest_opset
from graphcore.runtime.lowering.measure.build import operators, swept_dtypes
from graphcore.runtime.lowering.measure.case import Case
from graphcore.runtime.lowering.measure.cases import CASES
from graphcore.runtime.lowering.measure.judge import Outcome, judge

TIMEOUT = 60.0
"""Seconds after which a case counts as hanging."""


@dataclass(frozen=True, slots=True)
class Job:
    """One case of an operator in one dtype."""

    op_type: str
    dtype: DType
    case: Case


Outcomes: TypeAlias = dict[Job, Outcome]


def jobs(op_types: Iterable[str] | None = None) -> list[Job]:
    """Every case of the operators (default: all of the opset) in every dtype that it is for."""
    return [
        Job(op_type, dtype, case)
        for op_type in (operators() if op_types is None else op_types)
        for dtype in swept_dtypes(op_type)
        for case in CASES[op_type]
        if case.only is None or dtype in case.only
    ]


def sweep(todo: Iterable[Job], provider: str, processes: int = 2, timeout: float = TIMEOUT) -> Outcomes:
    """What becomes of each job. A process that dies or hangs costs its job and is replaced."""
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
    """The dtypes of each operator in which all of its cases ran with a kernel of their own."""
    asked: dict[str, dict[DType, bool]] = {}
    for job, outcome in outcomes.items():
        row = asked.setdefault(job.op_type, {})
        row[job.dtype] = row.get(job.dtype, True) and outcome.state == "kernel"
    return {op: [dtype for dtype in swept_dtypes(op) if row.get(dtype)] for op, row in sorted(asked.items())}


def document(provider: str, found: Mapping[str, Iterable[DType]], version: str = onnxruntime.__version__) -> str:
    """The table as JSON, an operator a line."""
    head = {"provider": provider, "onnxruntime": version, "opset": newest_opset()}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    rows = [f"  {json.dumps(op)}: {json.dumps(' '.join(map(str, found[op])))}" for op in sorted(found)]
    return "\n".join(["{", *lines, ' "kernels": {', ",\n".join(rows), " }", "}"]) + "\n"


def _drive(waiting: queue.SimpleQueue[Job], outcomes: Outcomes, provider: str, timeout: float) -> None:
    worker: _Worker | None = None
    while True:
        try:
            job = waiting.get_nowait()
        except queue.Empty:
            break
        worker = worker or _Worker(provider)
        outcome = worker.ask(job, timeout)
        outcomes[job] = outcome
        if outcome.state == "dies":
            worker = None
    if worker:
        worker.end()


class _Worker:
    """A process that judges one job after another."""

    def __init__(self, provider: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, provider), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self._pipe.recv()
        except EOFError:
            self.end()
            raise RuntimeError(f"measure: a process does not start: exit status {self._process.exitcode}") from None

    def ask(self, job: Job, timeout: float) -> Outcome:
        """The outcome; `dies` where the process did or had to be ended, which it then is."""
        try:
            self._pipe.send((job.op_type, job.case, job.dtype))
            if not self._pipe.poll(timeout):
                self._process.kill()
                self.end()
                return Outcome("dies", f"no answer in {timeout:g} s")
            answer: Outcome | BaseException = self._pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self.end()
            code = self._process.exitcode or 0
            return Outcome("dies", signal.Signals(-code).name if code < 0 else f"exit status {code}")
        if isinstance(answer, BaseException):
            self.end()
            raise answer
        return answer

    def end(self) -> None:
        self._pipe.close()
        self._process.join()


def _serve(pipe: Connection[Any, Any], provider: str) -> None:
    # What dies says so on stderr, at length; the parent reports it.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    pipe.send("ready")
    while True:
        try:
            op_type, case, dtype = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(judge(op_type, case, dtype, provider))
        except Exception as error:
            pipe.send(RuntimeError(f"{op_type} in {dtype}: {error!r}"))
