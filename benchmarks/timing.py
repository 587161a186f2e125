"""Comparing with a peer: both take turns in one run, since a machine's speed changes from minute to minute."""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Ratio:
    """How long ours takes for each second of the peer's: the median over rounds. ours, peer: median seconds."""

    value: float
    ours: float
    peer: float


def compare(
    ours: Callable[[], object],
    peer: Callable[[], object],
    rounds: int = 15,
    before: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Ratio:
    """Times both in turn, each first in every other round, after one round that does not count.

    before: called ahead of each, off the clock. clock: `time.process_time` counts what the processor did for us, which
    other processes disturb less.
    """
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for which in (0, 1) if number % 2 else (1, 0):
            before()
            taken = _seconds((ours, peer)[which], clock)
            if number:
                seconds[which].append(taken)
    ratios = [a / b for a, b in zip(*seconds, strict=True)]
    return Ratio(statistics.median(ratios), *map(statistics.median, seconds))


def _seconds(function: Callable[[], object], clock: Callable[[], float]) -> float:
    gc.collect()
    start = clock()
    made = function()
    taken = clock() - start
    del made  # after the clock has stopped
    return taken


class Bounds:
    """Prints a row for each figure and remembers whether one was above its bound."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def ratio(self, what: str, ratio: Ratio, most: float, each: int = 1, unit: str = "ms") -> None:
        """A ratio that is to be at most `most`; the seconds are shown divided by `each`."""
        scale = {"us": 1e6, "ms": 1e3}[unit] / each
        detail = f"{ratio.ours * scale:8.2f} {unit} to {ratio.peer * scale:8.2f} {unit}"
        self.figure(what, ratio.value, most, "x", detail)

    def figure(self, what: str, value: float, most: float, unit: str, detail: str = "") -> None:
        """Any figure that is to be at most `most`."""
        held = value <= most
        if not held:
            self.missed.append(what)
        verdict = "ok" if held else "MISSED"
        record("bounds", {"what": what, "value": value, "most": most, "unit": unit, "held": held, "detail": detail})
        print(f"{what:<52} {value:6.2f}{unit}  at most {most:g}{unit}  {verdict:<6}  {detail}".rstrip(), flush=True)

    def exit_code(self) -> int:
        return 1 if self.missed else 0


def record(kind: str, row: dict[str, Any]) -> None:
    """Adds a figure to the file that GRAPHCORE_FIGURES names, a JSON document a line, if it names one."""
    path = os.environ.get("GRAPHCORE_FIGURES")
    if path:
        with open(path, "a") as file:
            file.write(json.dumps({"kind": kind, "program": Path(sys.argv[0]).stem, **row}) + "\n")


def child(module: str, *arguments: str) -> Any:
    """What a fresh interpreter that runs a module prints as its last line, read as JSON."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])
