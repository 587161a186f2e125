"""Tries the newest release of every dependency: what fails with it and not with the lock is a warning, or fails CI.

`python .ci/newest.py`, after `make test`. The tests are those marked `releases` of the sample of `make test`, by commit
one quarter or another. CI fails where a number is wrong (a test marked `numbers` fails an assertion) or a process
dies. All else, and a package index that does not answer, is printed as a warning: a release of another package is
not the fault of the change that CI tests.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.sampling import default_seed  # noqa: E402  after the path, which is none of an installed package

LOCKED, NEWEST = ROOT / ".venv", ROOT / ".venv-newest"
BUILD = ROOT / "build"
SECONDS = 1200.0
"""After which the tests are ended: they take half a minute on two cores."""
MAX_SHOWN = 20
"""The most warnings that are printed; the log has all."""

_TOOLS = {"graphcore-engine", "mypy", "pip", "ruff", "setuptools", "uv", "wheel"}
"""Distributions that no test runs with."""
_CRASH = re.compile(r"\bcrashed while running\b|\bnode down\b", re.IGNORECASE)
"""The report of pytest-xdist on a worker that died."""
_ASSERTION = re.compile(r"assert\b|AssertionError\b|(\w+\.)*(ExceptionGroup|FlakyFailure)\b")
"""The beginning of the message of a failed assertion; hypothesis puts several into a group."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A test that failed, as a report has it."""

    test: str
    message: str
    has_numbers: bool = False

    @property
    def fails_ci(self) -> bool:
        return self.has_died or (self.has_numbers and _ASSERTION.match(self.message) is not None)

    @property
    def has_died(self) -> bool:
        return _CRASH.search(self.message) is not None

    def __str__(self) -> str:
        what = "process died" if self.has_died else "wrong number" if self.fails_ci else "fails"
        return f"{self.test}: {what}: {' '.join(self.message.split())[:200]}"


@dataclass(frozen=True, slots=True)
class RunReport:
    """The results of a run, as pytest's --junit-xml has them."""

    tests: int
    failures: tuple[Failure, ...]


def report(xml: str) -> RunReport:
    """Return what a report of pytest says. Raises `ElementTree.ParseError` where it is cut off."""
    cases = list(ElementTree.fromstring(xml).iter("testcase"))
    failures = []
    for case in cases:
        has_numbers = any(p.get("name") == "numbers" for p in case.iter("property"))
        for found in [*case.findall("failure"), *case.findall("error")]:
            # That of a worker that died is "failed on setup with ...", and its text is what xdist says.
            message = found.get("message") or found.text or ""
            failures.append(Failure(f"{case.get('classname')}::{case.get('name')}", message, has_numbers))
    return RunReport(len(cases), tuple(failures))


def only_new(newest: Sequence[Failure], locked: Sequence[Failure]) -> list[Failure]:
    """Return the failures with the newest packages of tests that do not fail with the lock."""
    known = {failure.test for failure in locked}
    return [failure for failure in newest if failure.test not in known]


def differing(locked: Mapping[str, str], newest: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return (package, locked, newest) for each that tests run with and that has another version."""
    return [
        (name, locked.get(name, "-"), version)
        for name, version in sorted(newest.items())
        if name not in _TOOLS and locked.get(name) != version
    ]


def verdict(newest: RunReport | None, locked: RunReport | None, output: str) -> tuple[list[str], list[str]]:
    """Return (errors, warnings) of a run: its report, that of `make test`, and what it printed. None: there is none."""
    if newest is None or not newest.tests:
        said = " ".join(output.split())[-400:]
        if _CRASH.search(output):
            return [f"a process died before any test ended: {said}"], []
        return [], [f"the tests did not run: {said}"]
    new = only_new(newest.failures, locked.failures if locked else ())
    return [str(f) for f in new if f.fails_ci], [str(f) for f in new if not f.fails_ci]


def installed(venv: Path) -> dict[str, str]:
    """Return the version of each distribution of a virtual environment."""
    script = (
        "import importlib.metadata as m, json\n"
        "print(json.dumps({d.metadata['Name'].lower().replace('_', '-'): d.version for d in m.distributions()}))"
    )
    command = [str(venv / "bin" / "python"), "-c", script]
    made: dict[str, str] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return made


def main() -> int:
    command = ["make", "--no-print-directory", "newest"]
    made = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if made.returncode:
        print(f"warning: the newest releases cannot be installed, nothing was tried:\n{made.stdout[-2000:]}")
        return 0
    differences = differing(installed(LOCKED), installed(NEWEST))
    if not differences:
        print("the lock has the newest release of every dependency: nothing to try")
        return 0
    versions = "\n".join(f"  {name:24} {locked:12} {newest}" for name, locked, newest in differences)
    print(f"  {'package':24} {'locked':12} newest\n{versions}", flush=True)
    output, newest = _run()
    errors, warnings = verdict(newest, _read(BUILD / "test.xml"), output)
    print(output[output.rstrip().rfind("\n") + 1 :].strip())  # the summary of pytest
    for text in warnings[:MAX_SHOWN]:
        print(f"warning: {text}")
    if len(warnings) > MAX_SHOWN:
        print(f"warning: and {len(warnings) - MAX_SHOWN} more, in build/newest.log")
    for text in errors:
        print(f"error: {text}")
    if errors or warnings:
        print("these fail with the newest releases above and not with the lock; make test-newest QUICK=1 runs them")
    return 1 if errors else 0


def _run() -> tuple[str, RunReport | None]:
    """Run the quick part of the tests with the newest packages; return what was printed, and the report."""
    written, log = BUILD / "newest.xml", BUILD / "newest.log"
    BUILD.mkdir(exist_ok=True)
    written.unlink(missing_ok=True)
    python = str(NEWEST / "bin" / "python")
    quarter = f"--shard={1 + int(default_seed().partition('.')[0]) % 4}/4"
    command = [python, "-m", "pytest", "-q", "-n", "2", "-m", "releases", quarter, f"--junit-xml={written}"]
    with log.open("w", encoding="utf-8") as file:
        running = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            running.wait(SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)  # the workers of pytest-xdist too
            running.wait()
            print(f"no end after {SECONDS:.0f} s", file=file)
    return log.read_text(encoding="utf-8", errors="replace"), _read(written)


def _read(path: Path) -> RunReport | None:
    try:
        return report(path.read_text(encoding="utf-8"))
    except (OSError, ElementTree.ParseError):
        return None


if __name__ == "__main__":
    sys.exit(main())
