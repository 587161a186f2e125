"""Comparison with a peer: both alternate in one run, since a machine's speed changes from minute to minute."""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Ratio:
    """The seconds of ours per second of the peer's: the median over rounds. ours, peer: median seconds.

    spread: the quartiles of the ratio.
    """

    value: float
    ours: float
    peer: float
    spread: tuple[float, float] | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, ours: Sequence[float], peer: Sequence[float]) -> Ratio:
        """Return the ratio of measurements in pairs."""
        ratios = [a / b for a, b in zip(ours, peer, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
        return cls(middle, statistics.median(ours), statistics.median(peer), spread=(low, high))


def compare(
    ours: Callable[[], object],
    peer: Callable[[], object],
    rounds: int = 15,
    before: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.process_time,
) -> Ratio:
    """Time both in turn, each first in every other round, after an untimed round.

    before: called before each, untimed. clock: processor time of all threads, which other processes disturb less than
    wall time, unless a measurement is of several threads beside one.
    """
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for which in (0, 1) if number % 2 else (1, 0):
            before()
            taken = _seconds((ours, peer)[which], clock)
            if number:
                seconds[which].append(taken)
    return Ratio.of(*seconds)


def _seconds(function: Callable[[], object], clock: Callable[[], float]) -> float:
    gc.collect()
    start = clock()
    result = function()
    taken = clock() - start
    del result  # after the timing
    return taken


class Bounds:
    """Prints a row per figure and records whether one was above its bound."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def ratio(self, what: str, ratio: Ratio, most: float, each: int = 1, unit: str = "ms") -> None:
        """Check a ratio that must be at most `most`; the seconds are shown divided by `each`."""
        scale = {"us": 1e6, "ms": 1e3}[unit] / each
        detail = f"{ratio.ours * scale:8.2f} {unit} to {ratio.peer * scale:8.2f} {unit}"
        if ratio.spread is not None:
            detail += f", quartiles {ratio.spread[0]:.2f} to {ratio.spread[1]:.2f}"
        self.figure(what, ratio.value, most, "x", detail)

    def figure(self, what: str, value: float, most: float, unit: str, detail: str = "") -> None:
        """Check a figure that must be at most `most`."""
        stored = value <= most
        if not stored:
            self.missed.append(what)
        verdict = "ok" if stored else "MISSED"
        record("bounds", {"what": what, "value": value, "most": most, "unit": unit, "held": stored, "detail": detail})
        print(f"{what:<52} {value:6.2f}{unit}  at most {most:g}{unit}  {verdict:<6}  {detail}".rstrip(), flush=True)

    def exit_code(self) -> int:
        return 1 if self.missed else 0


def record(kind: str, row: dict[str, Any]) -> None:
    """Append a figure to the file that GRAPHCORE_FIGURES names, if any, as a line of JSON."""
    path = os.environ.get("GRAPHCORE_FIGURES")
    if path:
        with open(path, "a") as file:
            file.write(json.dumps({"kind": kind, "program": Path(sys.argv[0]).stem, **row}) + "\n")


def child(module: str, *arguments: str) -> Any:
    """Run a module in a new interpreter; return the last line that it prints, read as JSON."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])
