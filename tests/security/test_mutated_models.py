"""2,000 mutated models: none ends the process, hangs or takes more memory than it may, and each that fails does so
with an error of the library."""

from __future__ import annotations

import contextlib
import queue
import selectors
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.support.mutant_seeds import REFUSED, seeds
from tests.support.mutants import outcome

ROOT = Path(__file__).parents[2]
COUNT = 2000
WORKERS = 2
SECONDS = 300.0
MEGABYTES = 2048


@pytest.mark.parametrize("name", seeds())
def test_seed_runs_as_it_is(name: str) -> None:
    assert outcome(seeds()[name]) == ("ModelError" if name in REFUSED else "ran")


@pytest.mark.full
def test_mutants_end_with_results_or_errors_of_the_library() -> None:
    counts = outcomes(COUNT, WORKERS)
    assert counts["ran"] > COUNT // 10  # most mutants are not models: these are what the others hide
    assert counts["ModelError"] > COUNT // 10


def test_mutants_few() -> None:
    counts = outcomes(60, 1)
    assert counts["ran"]
    assert counts["ModelError"]


def outcomes(count: int, workers: int) -> Counter[str]:
    """Return the number of mutants by outcome; fail if one raises, dies or hangs."""
    jobs: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
    names = list(seeds())
    for number in range(count):
        jobs.put((names[number % len(names)], number))
    results: dict[tuple[str, int], str] = {}
    threads = [threading.Thread(target=_work, args=(jobs, results)) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == count
    bad = {job: what for job, what in results.items() if what.startswith(("raised", "died", "hung"))}
    assert not bad, "\n".join(f"{name} {number}: {what}" for (name, number), what in sorted(bad.items()))
    return Counter(results.values())


def _work(jobs: queue.SimpleQueue[tuple[str, int]], result: dict[tuple[str, int], str]) -> None:
    process = _start()
    while not jobs.empty():
        try:
            name, number = jobs.get_nowait()
        except queue.Empty:
            break
        what = _ask(process, name, number)
        result[name, number] = what
        if what.startswith(("died", "hung")):
            process.kill()
            process.wait()
            _close(process)
            process = _start()
    process.kill()
    process.wait()
    _close(process)


def _start() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.mutants", str(MEGABYTES)]
    return subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def _close(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # it died before it read what was asked
        process.stdin.close()
    process.stdout.close()


def _ask(process: subprocess.Popen[str], name: str, number: int) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(f"{name} {number}\n")
        process.stdin.flush()
    except BrokenPipeError:
        return f"died: {process.wait()}"
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(SECONDS):
            return "hung"
    answer = process.stdout.readline().split(maxsplit=2)
    return answer[2].strip() if len(answer) == 3 else f"died: {process.wait()}"
