"""`python -m tests.support.scoring cells|suite --output path`: how much is right on the installed onnxruntime.

cells: those of `graphcore.conformance.cells`. suite: ONNX's own tests of nodes. No test, but what
`python -m tools.kernel_probe --releases` asks of each release.
"""

from __future__ import annotations

import argparse
import functools
import json
import queue
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from graphcore.conformance.cells import CELLS, DTYPES, OPS, types_of
from graphcore.conformance.suites import outcome
from graphcore.errors import LossyCastWarning
from graphcore.ir.graph import Graph
from graphcore.runtime.session import InferenceSession
from tests.support.backend import collected, ways
from tests.support.every.score import agrees, operands, wanted
from tools.kernel_probe.workers import Died, Worker


def wrong_cells(processes: int = 2) -> tuple[int, dict[str, str]]:
    """Return the number of cells, and a description of each wrong one."""
    groups = [(left.name, None if right is None else right.name) for left in DTYPES for right in (*DTYPES, None)]
    result = _results(_cells, groups, processes)
    wrong: dict[str, str] = {}
    for group, answer in result.items():
        if isinstance(answer, Died):
            wrong[str(group)] = f"the process ends: {answer.how}"
        else:
            wrong.update(answer)
    return len(CELLS), wrong


def _cells(left: str, right: str | None) -> dict[str, str]:
    """Return a description of what is wrong with the cells of two dtypes."""
    wrong = {}
    for cell in CELLS:
        if cell.left.name != left or (None if cell.right is None else cell.right.name) != right:
            continue
        value = operands(cell)
        graph = Graph("score", types_of(cell, value))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LossyCastWarning)
            function: Callable[..., Any] = OPS[cell.op]
            graph.output(function(*(graph[name] for name in types_of(cell, value))))
        name = f"{cell.op} {left}" if right is None else f"{cell.op} {left} {right}"
        try:
            (got,) = InferenceSession().load(graph)(*value)
        except Exception as error:  # of many kinds
            wrong[name] = f"{type(error).__name__}: {error}"[:200]
            continue
        if not agrees(cell, got, wanted(cell, *value)):
            wrong[name] = "values"
    return wrong


def failed_tests(processes: int = 2) -> tuple[int, dict[str, str]]:
    """Return the number of ONNX's node tests, and the outcomes of those that did not pass."""
    names = [(name,) for name in sorted(_tests())]
    result = _results(_outcome, names, processes)
    outcomes = {name: f"crash: {a.how}" if isinstance(a, Died) else str(a) for (name,), a in result.items()}
    return len(names), {name: item[:200] for name, item in outcomes.items() if item != "ok"}


def _outcome(name: str) -> str:
    warnings.simplefilter("ignore")
    return outcome(_tests()[name], _loads())


@functools.cache
def _tests() -> Mapping[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return collected()


@functools.cache
def _loads() -> Callable[[Any], Any]:
    return ways(Path(tempfile.gettempdir()))["loaded"]


def _results(function: Callable[..., Any], todo: list[Any], processes: int) -> dict[Any, Any]:
    """Return the results of a function for each tuple of operands, in processes that may die."""
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for question in todo:
        waiting.put(question)
    results: dict[Any, Any] = {}

    def drive() -> None:
        worker: Worker | None = None
        while not waiting.empty():
            try:
                question = waiting.get_nowait()
            except queue.Empty:
                break
            worker = worker or Worker(function)
            results[question] = worker.ask(*question, timeout=300.0)
            if isinstance(results[question], Died):
                worker = None
        if worker is not None:
            worker.end()

    with ThreadPoolExecutor(processes) as pool:
        for driver in [pool.submit(drive) for _ in range(processes)]:
            driver.result()
    return results


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.scoring", description=__doc__)
    parser.add_argument("what", choices=("cells", "suite"))
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default 2)")
    arguments = parser.parse_args()
    count, wrong = (wrong_cells if arguments.what == "cells" else failed_tests)(arguments.jobs)
    arguments.output.write_text(json.dumps({"count": count, "wrong": dict(sorted(wrong.items()))}, indent=1))
    print(f"{count - len(wrong)} of {count} right", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
