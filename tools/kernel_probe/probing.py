"""`python -m tools.kernel_probe.probing --output path`: which traps the installed onnxruntime has.

A trap is a kernel or an optimiser that is wrong. A release has it where a probe of it is wrong with the trap's
decompositions switched off. Each probe is run with them too: what is wrong then is wrong for a user.
"""

from __future__ import annotations

import argparse
import functools
import json
import queue
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphcore.runtime.lowering.targets.traps import switched_off
from tools.kernel_probe.probes import conversions, empties, few_axes, floats, graphs, integers, networks, products
from tools.kernel_probe.probes.probe import AnyProbe, Family, outcome
from tools.kernel_probe.workers import Died, Worker


@dataclass(frozen=True, slots=True)
class Trap:
    """A trap of onnxruntime. what: the sentences that say what is wrong."""

    name: str
    what: tuple[str, ...]
    probes: tuple[AnyProbe, ...]


@functools.cache
def families() -> tuple[Family, ...]:
    """Return every family of traps."""
    modules = (integers, floats, products, empties, few_axes, networks, conversions, graphs)
    return tuple(family for module in modules for family in module.families())


@functools.cache
def traps() -> Mapping[str, Trap]:
    """Return every trap by its name."""
    results: dict[str, tuple[dict[str, None], list[AnyProbe]]] = {}
    for family in families():
        for probe in family.probes:
            for name in probe.traps:
                what, probes = results.setdefault(name, ({}, []))
                what[family.what] = None
                probes.append(probe)
    return {name: Trap(name, tuple(what), tuple(probes)) for name, (what, probes) in sorted(results.items())}


def probes() -> tuple[AnyProbe, ...]:
    """Return every probe."""
    return tuple(probe for family in families() for probe in family.probes)


WRONG, RIGHT, NONE = "wrong", "right", "no kernel"
"""States of a trap: seen, not seen, or there is nothing to tell it by."""


def ask(place: int, is_off: bool) -> tuple[str, str]:
    """Return the outcome of a probe, and a description of what is wrong, with its decompositions switched off or as
    things are."""
    probe = probes()[place]
    with switched_off(*probe.traps, *probe.beside) if is_off else nullcontext():
        if is_off and not probe.has_kernel:
            return NONE, ""
        detail = outcome(probe)
    return (WRONG, detail) if detail else (RIGHT, "")


@dataclass(slots=True)
class ProbeResults:
    """traps: what becomes of each, and how it shows. broken: the probes that are wrong as things are."""

    traps: dict[str, tuple[str, str]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)


def probed(names: Sequence[str] = (), processes: int = 2) -> ProbeResults:
    """Return the traps of the installed onnxruntime. names: of the traps; by default all."""
    requested = [traps()[name] for name in names] if names else [*traps().values()]
    places = {id(probe): place for place, probe in enumerate(probes())}
    waiting: queue.SimpleQueue[Trap] = queue.SimpleQueue()
    for trap in requested:
        waiting.put(trap)
    result, done, lock = ProbeResults(), set[int](), threading.Lock()

    def drive() -> None:
        asker = _Asker()
        while not waiting.empty():
            try:
                trap = waiting.get_nowait()
            except queue.Empty:
                break
            mine = [places[id(probe)] for probe in trap.probes]
            result.traps[trap.name] = _state(asker, mine)
            for place in mine:
                with lock:
                    is_done = place in done
                    done.add(place)
                if not is_done and (wrong := asker.ask(place, False))[0] == WRONG:
                    result.broken[f"{trap.name}, probe {place}"] = wrong[1]
        asker.end()

    with ThreadPoolExecutor(processes) as pool:
        for driver in [pool.submit(drive) for _ in range(processes)]:
            driver.result()
    result.traps = dict(sorted(result.traps.items()))
    return result


class _Asker:
    """A worker, and the next one where it died."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def ask(self, place: int, is_off: bool) -> tuple[str, str]:
        self._worker = self._worker or Worker(ask)
        answer: Any = self._worker.ask(place, is_off)
        if not isinstance(answer, Died):
            return answer[0], answer[1]
        self._worker = None
        return WRONG, f"the process ends: {answer.how}"

    def end(self) -> None:
        if self._worker is not None:
            self._worker.end()


def _state(asker: _Asker, places: list[int]) -> tuple[str, str]:
    """Return the state of a trap: it is present if one of its probes is wrong."""
    has_any = False
    for place in sorted(places, key=lambda place: probes()[place].dies):
        state, detail = asker.ask(place, True)
        if state == WRONG:
            return state, detail
        has_any |= state == RIGHT
    return (RIGHT, "") if has_any else (NONE, "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="where the answer goes")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default 2)")
    parser.add_argument("names", nargs="*", help="of traps; by default all")
    arguments = parser.parse_args()
    start = time.perf_counter()
    result = probed(arguments.names, arguments.jobs)
    arguments.output.write_text(json.dumps({"traps": result.traps, "broken": result.broken}, indent=1))
    counts = {state: sum(s == state for s, _ in result.traps.values()) for state in (WRONG, RIGHT, NONE)}
    text = ", ".join(f"{count} {state}" for state, count in counts.items())
    seconds = time.perf_counter() - start
    print(f"{len(result.traps)} traps ({text}), {len(result.broken)} broken, in {seconds:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
