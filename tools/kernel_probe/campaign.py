"""Measure releases of onnxruntime, each in an environment of its own, and write what was found.

For each release: the kernels that run (`cpu.json`), the traps (`traps.json`), the cells that are right and ONNX's node
tests that pass; `docs/releases.md` shows all. What was found lies beside the environments, so that a later run measures
some releases alone. What fails in one release names it, and the others go on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphcore._version import FOLDER
from graphcore.errors import GraphcoreError
from graphcore.runtime.lowering.targets import traps
from graphcore.runtime.lowering.targets.releases import ordered
from tools.kernel_probe import page, ranges, tables
from tools.kernel_probe.venvs import folder, python_of

ROOT = Path(FOLDER).resolve().parent
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
        asked = [TRAPS] if self.only_probes else [KERNELS, TRAPS]
        if not self.only_probes and (ROOT / "tests").is_dir():
            asked += [CELLS, SUITE]
        elif not self.only_probes:
            print("there is no tests/ beside the package: cells and node tests are left out", file=sys.stderr)
        failures = 0
        for release in sorted(self.releases, key=ordered):
            try:
                python = python_of(release)
            except GraphcoreError as error:
                print(f"{release}: {error}", file=sys.stderr)
                failures += 1
                continue
            failures += sum(not _measured(release, python, what, self.jobs) for what in asked)
        if not self.only_probes:
            failures += _check_old_files()
        self._write()
        return failures

    def _write(self) -> None:
        found = answers()
        states = {r: _states(made[TRAPS]) for r, made in found.items() if TRAPS in made}
        seen = ranges.merged(None if self.is_fresh else traps.seen(), states)
        (_LOWERING / "traps.json").write_text(ranges.document(seen))
        measured = [made[KERNELS] for made in found.values() if KERNELS in made]
        if measured and not self.only_probes:
            kept = tables.facts_of(json.loads((_LOWERING / "cpu.json").read_text()))
            new = {facts["onnxruntime"] for facts in measured}
            everything = [*measured, *(facts for facts in kept if facts["onnxruntime"] not in new)]
            (_LOWERING / "cpu.json").write_text(tables.document(tables.merged(everything)))
        docs = ROOT / "docs"
        if docs.is_dir():
            (docs / "releases.md").write_text(page.page(seen, found))


def answers() -> dict[str, dict[str, Any]]:
    """Return what was found so far, by release and measurement."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((folder() / "measured").glob("*/*.json")):
        found.setdefault(path.parent.name, {})[path.stem] = json.loads(path.read_text())
    return dict(sorted(found.items(), key=lambda item: ordered(item[0])))


def _states(found: Mapping[str, Any]) -> dict[str, str]:
    return {name: state for name, (state, _) in found["traps"].items()}


def _measured(release: str, python: Path, what: str, jobs: int) -> bool:
    """Run one measurement in a release; return whether it answered."""
    output = folder() / "measured" / release / f"{what}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.unlink(missing_ok=True)
    command = [str(python), "-m", *_COMMANDS[what], "--output", str(output), "--jobs", str(jobs)]
    print(f"{release}: {what} ... ", end="", file=sys.stderr, flush=True)
    start = time.perf_counter()
    said, is_done = _ran(command)
    is_done &= output.exists()
    print(f"{said}, {time.perf_counter() - start:.0f} s" if is_done else f"FAILED: {said}", file=sys.stderr)
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
    """Run files in old releases; return how many of those failed. Nothing is done without a checkout."""
    if not (ROOT / "tests").is_dir():
        return 0
    failures = 0
    for release in OLD:
        output = folder() / "measured" / release / f"{FILES}.json"
        output.parent.mkdir(parents=True, exist_ok=True)
        print(f"{release}: {FILES} ... ", end="", file=sys.stderr, flush=True)
        files = output.parent / "files"
        asked = ["--runtime", release, "--folder", str(files), "--python", str(python_of(release))]
        said, is_done = _ran([sys.executable, "-m", _OLD_FILES, *asked])
        output.write_text(json.dumps({"said": said, "is_right": is_done}))
        print(said if is_done else f"FAILED: {said}", file=sys.stderr)
        failures += not is_done
    return failures


__all__ = ["OLD", "Campaign", "answers", "folder"]
