"""Measure releases of onnxruntime, each in an environment of its own, and write what was found.

For each release: the kernels that run (`cpu.json`), the traps (`traps.json`), the cells that are right and ONNX's node
tests that pass; `docs/development/releases.md` shows all. What was found lies beside the environments, so that a later
run measures some releases alone. What fails in one release names it, and the others go on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphcore.errors import GraphcoreError
from graphcore.runtime.lowering.targets import traps
from graphcore.runtime.lowering.targets.releases import ReleaseRange, ordered, table_of
from graphcore.runtime.lowering.targets.traps import TrapRanges
from tools.kernel_probe import probing, tables
from tools.kernel_probe.venvs import folder, python_of

ROOT = Path(__file__).resolve().parents[2]
_LOWERING = Path(traps.__file__).resolve().parent
_SECONDS = 1800.0
"""For one measurement of one release."""

_PACKAGE = "tools.kernel_probe"
KERNELS, TRAPS, CELLS, SUITE, FILES = "kernels", "traps", "cells", "suite", "files"
"""The names of the measurements."""

_COMMANDS: Mapping[str, Sequence[str]] = {
    KERNELS: (_PACKAGE,),
    TRAPS: (f"{_PACKAGE}.probing",),
    CELLS: ("tests.support.scoring", "cells"),
    SUITE: ("tests.support.scoring", "suite"),
}
_OLD_FILES = "tests.support.old_files"
"""The check that files written for an old release run there."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """The scope of a measurement. is_fresh: traps that are recorded already are measured again."""

    releases: tuple[str, ...]
    only_probes: bool = False
    is_fresh: bool = False
    jobs: int = 2

    def run(self) -> int:
        """Measure all, and write the data and the page; return how many measurements failed."""
        requested = [TRAPS] if self.only_probes else [KERNELS, TRAPS, CELLS, SUITE]
        failures = 0
        for release in sorted(self.releases, key=ordered):
            try:
                python = python_of(release)
            except GraphcoreError as error:
                print(f"{release}: {error}", file=sys.stderr)
                failures += 1
                continue
            failures += sum(not _measured(release, python, what, self.jobs) for what in requested)
        if not self.only_probes:
            failures += _check_old_files()
        self._write()
        return failures

    def _write(self) -> None:
        result = answers()
        states = {r: _states(item[TRAPS]) for r, item in result.items() if TRAPS in item}
        seen = merged_ranges(None if self.is_fresh else traps.trap_ranges(), states)
        (_LOWERING / "traps.json").write_text(traps_document(seen))
        measured = [item[KERNELS] for item in result.values() if KERNELS in item]
        if measured and not self.only_probes:
            remaining = tables.facts_of(json.loads((_LOWERING / "cpu.json").read_text()))
            new = {facts["onnxruntime"] for facts in measured}
            everything = [*measured, *(facts for facts in remaining if facts["onnxruntime"] not in new)]
            (_LOWERING / "cpu.json").write_text(tables.document(tables.merged(everything)))
        (ROOT / "docs" / "development" / "releases.md").write_text(page(seen, result))


def answers() -> dict[str, dict[str, Any]]:
    """Return the findings so far, by release and measurement."""
    results: dict[str, dict[str, Any]] = {}
    for path in sorted((folder() / "measured").glob("*/*.json")):
        results.setdefault(path.parent.name, {})[path.stem] = json.loads(path.read_text())
    return dict(sorted(results.items(), key=lambda item: ordered(item[0])))


def _states(result: Mapping[str, Any]) -> dict[str, str]:
    return {name: state for name, (state, _) in result["traps"].items()}


def _measured(release: str, python: Path, what: str, jobs: int) -> bool:
    """Run one measurement in a release; return whether it answered."""
    output = folder() / "measured" / release / f"{what}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.unlink(missing_ok=True)
    command = [str(python), "-m", *_COMMANDS[what], "--output", str(output), "--jobs", str(jobs)]
    print(f"{release}: {what} ... ", end="", file=sys.stderr, flush=True)
    start = time.perf_counter()
    message, is_done = _ran(command)
    is_done &= output.exists()
    print(f"{message}, {time.perf_counter() - start:.0f} s" if is_done else f"FAILED: {message}", file=sys.stderr)
    return is_done


def _ran(command: Sequence[str]) -> tuple[str, bool]:
    """Run a command from the checkout; return the last line that it says, and whether it ended well."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ORT_DISABLE_TELEMETRY": "1"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {_SECONDS:g} s", False
    lines = done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or [f"exit status {done.returncode}"]
    return lines[-1], not done.returncode


OLD = ("1.20.1", "1.22.0")
"""Releases that files are written for and sessions are not."""


def _check_old_files() -> int:
    """Run files in old releases; return how many of those failed."""
    failures = 0
    for release in OLD:
        output = folder() / "measured" / release / f"{FILES}.json"
        output.parent.mkdir(parents=True, exist_ok=True)
        print(f"{release}: {FILES} ... ", end="", file=sys.stderr, flush=True)
        files = output.parent / "files"
        results = ["--runtime", release, "--folder", str(files), "--python", str(python_of(release))]
        message, is_done = _ran([sys.executable, "-m", _OLD_FILES, *results])
        output.write_text(json.dumps({"said": message, "is_right": is_done}))
        print(message if is_done else f"FAILED: {message}", file=sys.stderr)
        failures += not is_done
    return failures


# Traps by release

States = Mapping[str, str]
"""The outcome of each trap in one release, by name."""


def merged_ranges(recorded: TrapRanges | None, measured: Mapping[str, States]) -> TrapRanges:
    """Return the ranges of all traps that were ever seen. measured: by release, on this machine.

    Some traps depend on the processor. So what is recorded stays, and a release without a trap ends its range only
    where another release has it here: a processor that does not show a trap at all tells nothing of it.
    """
    old = recorded or TrapRanges((), {})
    releases = tuple(sorted({*old.releases, *measured}, key=ordered))
    ranges = {}
    for name in sorted({*old.ranges, *(name for states in measured.values() for name in states)}):
        before = old.ranges.get(name)
        here = {release for release, states in measured.items() if states.get(name) == probing.WRONG}
        seen = here | {r for r in old.releases if before is not None and before.includes(r)}
        free = {release for release, states in measured.items() if here and states.get(name) == probing.RIGHT} - seen
        free |= {r for r in old.releases if before is not None} - seen
        if seen:
            ranges[name] = _range(releases, seen, free)
    return TrapRanges(releases, ranges, old.files)


def _range(releases: tuple[str, ...], seen: set[str], free: set[str]) -> ReleaseRange:
    """Return the range from the first to the last release that has it, and on to the next that certainly has not."""
    places = [releases.index(release) for release in seen]
    before = [p for p in map(releases.index, free) if p < min(places)]
    after = [p for p in map(releases.index, free) if p > max(places)]
    return ReleaseRange(releases[max(before) + 1] if before else "", releases[min(after) - 1] if after else "")


def traps_document(seen: TrapRanges) -> str:
    """Return the JSON of traps.json, a trap a line."""
    releases = json.dumps(list(seen.releases))
    return f'{{\n "releases": {releases},\n "files": {_lines(seen.files)},\n "traps": {_lines(seen.ranges)}\n}}\n'


def _lines(ranges: Mapping[str, ReleaseRange]) -> str:
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(str(item))}" for name, item in sorted(ranges.items()))
    return f"{{\n{lines}\n }}"


# The page

Answers = Mapping[str, Mapping[str, Any]]
"""The findings, by release and measurement."""

_HEAD = """\
# Releases of onnxruntime

Made by `python -m tools.kernel_probe --releases ...`, which runs every probe of
`tools/kernel_probe/probes`, the 2,397 cells of `graphcore/conformance/cells.py` and ONNX's own tests of nodes in an
environment of each release. What lowering goes by is `runtime/lowering/targets/cpu.json` and `traps.json`.

A release that was not measured is lowered for by the kernels that it lists and the nearest measured table. It has the
traps of both measured releases next to it; a newer one than all has every trap of the newest.

## Correct results by release

"right" counts cells, and node tests that pass through a session of graphcore at ONNX's own tolerances. opset and IR are
the newest that graphcore writes for the release.

"""

_TRAPS = """\

## Traps

A trap is a kernel that gives other numbers than docs/numbers.md promises, that refuses what ONNX allows or that ends
the process, or an optimiser that changes numbers. Lowering does something about each in the releases that have it:
**x**. With that, all probes are right in all of these releases{but}.

"""


def page(seen: TrapRanges, result: Answers) -> str:
    """Return the page."""
    parts = [
        _HEAD,
        "\n".join(_scores(result)),
        "\n",
        _TRAPS.format(but=_broken(seen, result)),
        "\n".join(trap_rows(seen)),
        "\n",
    ]
    return "".join(parts)


def _broken(seen: TrapRanges, result: Answers) -> str:
    """Return in which releases some probes are wrong all the same."""
    results = []
    for release in seen.releases:
        wrong = result.get(release, {}).get("traps", {}).get("broken", {})
        names = sorted({place.rpartition(", probe")[0] for place in wrong})
        if names:
            results.append(f"{_joined(names)} in {release}")
    return f", but for some of {' and '.join(results)}" if results else ""


def _scores(value: Answers) -> Iterable[str]:
    yield "| onnxruntime | opset | IR | cells right | of | node tests right | of | files written for it |"
    yield "|---|---|---|---|---|---|---|---|"
    for release in table_of("cpu").releases:
        result = value.get(release.version, {})
        scores = [cell for what in ("cells", "suite") for cell in _score(result.get(what))]
        files = result.get("files")
        message = "" if files is None else "all run" if files["is_right"] else files["said"]
        yield f"| {release.version} | {release.opset} | {release.ir} | {' | '.join(scores)} | {message} |"


def _score(result: Mapping[str, Any] | None) -> tuple[str, str]:
    if result is None:
        return "", ""
    return f"{result['count'] - len(result['wrong']):,}", f"{result['count']:,}"


def trap_rows(seen: TrapRanges) -> Iterable[str]:
    yield f"| trap | {' | '.join(seen.releases)} | what is wrong |"
    yield f"|---|{'---|' * len(seen.releases)}---|"
    groups: dict[tuple[str, str], list[str]] = {}
    for name, trap in probing.traps().items():
        if name in seen.ranges:
            groups.setdefault((" ".join(trap.what), str(seen.ranges[name])), []).append(name)
    for (what, text), names in sorted(groups.items(), key=lambda item: item[1]):
        tree = ReleaseRange.parse(text)
        marks = " | ".join("**x**" if tree.includes(release) else "" for release in seen.releases)
        yield f"| {_joined(names)} | {marks} | {what} |"


def _joined(names: Iterable[str]) -> str:
    """Return names of kernels with an operator's dtypes after it: "Div int8 int16, Mod int8"."""
    results: dict[str, list[str]] = {}
    for name in names:
        operator, _, dtype = name.partition(" ")
        if dtype and " " not in dtype and operator[:1].isupper():
            results.setdefault(operator, []).append(dtype)
        else:
            results.setdefault(name, [])
    return ", ".join(" ".join([f"`{head}`", *dtypes]) for head, dtypes in results.items())
