"""Engines that take turns: processes of the worker, and what they answer in each round."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.peers.decoders.worker import Job
from benchmarks.timing import Ratio

Answers = dict[str, list[dict[str, Any]]]
"""By the name of an engine: its answer of each round."""


@functools.cache
def environment() -> dict[str, str]:
    """Return the variables of all engines' processes: bytecode is kept, as installed packages have it, and NumPy starts
    no threads, since one is measured."""
    cache = tempfile.mkdtemp(prefix="bytecode-")
    atexit.register(shutil.rmtree, cache, ignore_errors=True)
    return os.environ | {"PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": "", "OPENBLAS_NUM_THREADS": "1"}


class Process:
    """An engine in a process of its own. An answer raises `RuntimeError` with what it printed last if it has ended."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.peers.decoders.worker", json.dumps(asdict(job))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, text=True, env=environment(),
        )  # fmt: skip

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            self._stderr.seek(0)
            results = [line for line in self._stderr if line[:1].strip()]
            raise RuntimeError(f"{self._job.engine}: {results[-1].strip() if results else 'no answer'}")
        answered: dict[str, Any] = json.loads(line)
        return answered

    def ask(self, **order: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the answer tells why
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        self._process.communicate()


@contextlib.contextmanager
def opened(jobs: Mapping[str, Job]) -> Iterator[dict[str, Process]]:
    """Open all engines of jobs; those that do not open are left out, each with one line."""
    processes: dict[str, Process] = {}
    try:
        for name, job in jobs.items():
            result = Process(job)
            try:
                result.answer()
            except RuntimeError as error:
                print(f"{name} is left out: {error}")
                continue
            processes[name] = result
        yield processes
    finally:
        for process in processes.values():
            process.close()


def in_turns(processes: Mapping[str, Process], order: Mapping[str, object], rounds: int) -> Answers:
    """Return the answers to an order that all get in each round, after one that does not count."""
    names = [*processes]
    answers: Answers = {name: [] for name in names}
    for number in range(rounds + 1):
        for name in names if number % 2 else names[::-1]:
            answered = processes[name].ask(**order)
            if number:
                answers[name].append(answered)
    return answers


def started(jobs: Mapping[str, Job], tokens: int, rounds: int) -> Answers:
    """Return the answers of each engine to a prompt in each round, from the start of its process to the token: the wall
    seconds as `wall`, the processor seconds as `total`."""
    answers: Answers = {name: [] for name in jobs}
    for number in range(rounds + 1):
        for name, job in jobs.items():
            begun = time.perf_counter()
            process = Process(job)
            process.answer()
            answered = process.ask(prefill=tokens)
            answered["wall"] = time.perf_counter() - begun
            process.close()
            if number:
                answers[name].append(answered)
    return answers


def ratio(answers: Answers, ours: str, peer: str, what: str = "processor") -> Ratio:
    """Return one engine's figures beside another's of the same rounds."""
    pairs = [(a[what], b[what]) for a, b in zip(answers[ours], answers[peer], strict=True)]
    values: Sequence[float] = [a / b for a, b in pairs]
    return Ratio(statistics.median(values), *(statistics.median(side) for side in zip(*pairs, strict=True)))
