"""The command line, and importing the package: processor time of a process, beside one that imports NumPy.

    python -m benchmarks.bench_cli

Modules are compiled already: the first round is not counted. Of `graphcore doctor` and of the page of `graphcore view`
for 20,000 nodes the seconds are bounded; the first paint and a search are measured where there is a browser.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.timing import Bounds, Ratio
from graphcore.view.data import PageOptions, page_data
from tests.support import browser
from tests.support.drawn_graphs import exported
from tests.view.browser.graphs import large_data

LIMIT = 1.2
ROUNDS = 15
COMMANDS = {
    "graphcore --help": ("-m", "graphcore", "--help"),
    "graphcore promote": ("-m", "graphcore", "promote", "int8", "uint64"),
    "import graphcore": ("-c", "import graphcore"),
}
SEARCH = """query => {
  graphcore.search.search.find(query);
  const start = performance.now();
  graphcore.search.search.find(query);
  return performance.now() - start;
}"""
PEER = ("-c", "import numpy")


def processor(arguments: Sequence[str], environment: Mapping[str, str]) -> float:
    """Return the processor seconds of a process, of its user and the system."""
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    process = os.posix_spawn(sys.executable, [sys.executable, *arguments], environment, file_actions=silent)
    _, status, used = os.wait4(process, 0)
    if status:
        raise RuntimeError(f"{' '.join(arguments)} ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime


def doctor(bounds: Bounds, environment: Mapping[str, str]) -> None:
    seconds = min(processor(("-m", "graphcore", "doctor"), environment) for _ in range(4))
    bounds.figure("graphcore doctor", seconds, 2, "s")


def page(bounds: Bounds) -> None:
    graph = exported(1_600)
    start = time.process_time()
    page_data(graph, PageOptions(targets=()))
    bounds.figure("page of 20,000 nodes: its data", time.process_time() - start, 3, "s")
    why = browser.missing()
    if why is not None:
        print(f"page of 20,000 nodes: first paint and search: not measured, {why}")
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        browser.started() as chromium,
        browser.opened(chromium, Path(folder), large_data(layers=True)) as opened,
    ):
        paint = min(opened.first_paint, opened.processor_time)
        search = min(opened.page.evaluate(SEARCH, query) for query in ("layer.400/", "op:softmax", "dim:8"))
    bounds.figure("page of 20,000 nodes: first paint", paint / 1000, 3, "s")
    bounds.figure("page of 20,000 nodes: a search", search / 1000, 0.5, "s")


def main() -> int:
    bounds = Bounds()
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        results: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
        for number in range(ROUNDS + 1):
            for name, arguments in COMMANDS.items():
                pair = processor(arguments, environment), processor(PEER, environment)
                if number:
                    results[name].append(pair)
        doctor(bounds, environment)
    page(bounds)
    for name, pairs in results.items():
        ours, peer = zip(*pairs, strict=True)
        ratio = statistics.median(a / b for a, b in pairs)
        bounds.ratio(f"{name}, beside importing NumPy", Ratio(ratio, *map(statistics.median, (ours, peer))), LIMIT)
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
