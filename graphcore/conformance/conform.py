"""Run suites against runtimes and releases, and make the table of docs/development/conformance.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from graphcore._version import FOLDER
from graphcore.conformance.packages import cache_folder, installed_in, pip_package
from graphcore.conformance.runtimes import CANDIDATE
from graphcore.errors import RunError
from graphcore.runtime.ort.web import WEB_FOLDER

TITLES = {
    "onnx": "ONNX's node tests",
    "dtypes": "operators and dtypes",
    "onnx-tests": "onnx-tests",
    "array-api": "array-api-tests",
}
"""The titles of the columns, by suite."""

_SECONDS = 300.0
"""The time limit of a case."""

_MARKS = ("<!-- table of conformance -->", "<!-- end table of conformance -->")


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime of `runtimes.RUNTIMES`.

    release: of onnxruntime, onnxruntime-web or openvino, by default the installed one. provider: of onnxruntime; "wasm"
    runs graphcore's files in onnxruntime-web.
    """

    name: str
    release: str = ""
    provider: str = "cpu"

    def __str__(self) -> str:
        if self.name == "graphcore" and self.provider == "wasm":
            return f"graphcore on onnxruntime-web {self.release}".rstrip()
        on = " on onnxruntime" if self.name == "graphcore" and self.release else ""
        return f"{self.name}{on} {self.release}".rstrip() + (f", {self.provider}" if self.provider != "cpu" else "")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a suite on a runtime. failures: by case, what went wrong."""

    runtime: str
    suite: str
    count: int
    passed: int
    failures: Mapping[str, str] = field(default_factory=dict)


def run_suite(suite: str, runtime: Runtime, advance: Callable[[int, int], None] = lambda done, total: None) -> Result:
    """Run the cases of a suite, each in a process that a crash may end.

    Args:
        suite: "onnx" or "dtypes".
        runtime: The runtime under test.
        advance: Called with the number of cases done and their total.

    Raises:
        RunError: The runtime or its release cannot be installed or started.
    """
    environment = _environment(runtime)
    process = _Process(suite, runtime, environment)
    failures = {}
    for done, name in enumerate(process.names):
        result = process.outcome(name)
        if result != "ok":
            failures[name] = result
        advance(done + 1, len(process.names))
    process.close()
    return Result(str(runtime), suite, len(process.names), len(process.names) - len(failures), failures)


class _Process:
    """The process of `suites`, started again after a crash."""

    def __init__(self, suite: str, runtime: Runtime, environment: Mapping[str, str]) -> None:
        self._command = [sys.executable, "-m", "graphcore.conformance.suites", suite, runtime.name, runtime.provider]
        self._environment = environment
        self._runtime = runtime
        self._start()

    def _start(self) -> None:
        with tempfile.TemporaryFile("w+", errors="replace") as errors:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            if not line:
                self.close()
                errors.seek(0)
                reason = (errors.read().strip().splitlines() or [f"exit status {self._process.returncode}"])[-1]
                raise RunError(
                    f"conform: {self._runtime} does not start: {reason}", help="install the package it needs"
                )
        self.names: list[str] = json.loads(line)

    def outcome(self, name: str) -> str:
        """Return the outcome of a case: "ok", what went wrong, or `crash: ...`, also after the time limit."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        timer = threading.Timer(_SECONDS, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if line:
            return str(json.loads(line))[:300]
        self.close()
        status = self._process.returncode
        self._start()
        return f"crash: exit status {status}"

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def run_checkout(suite: str, runtime: Runtime, checkout: Path, examples: int = 10) -> Result:
    """Run an outside suite by pytest in its checkout; pytest-xdist starts another process after a crash.

    Args:
        suite: "onnx-tests" (github.com/cbourjau/onnx-tests) or "array-api" (github.com/data-apis/array-api-tests).
        runtime: The runtime under test. "array-api" tests graphcore only.
        checkout: The folder of the checkout, whose requirements are installed.
        examples: The number of examples of each property test.

    Raises:
        RunError: The folder is not a checkout, or pytest cannot run there.
    """
    package = {"onnx-tests": "onnx_tests", "array-api": "array_api_tests"}[suite]
    if not (checkout / package).is_dir():
        raise RunError(f"conform: {checkout} has no folder {package}", help=f"give the path of a checkout of {suite}")
    environment = _environment(runtime)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"]
        command += ["-n", "1", "--max-worker-restart=100000"]
        command += [f"--junit-xml={report}", "--tb=line", "--hypothesis-seed=0"]
        if suite == "onnx-tests":
            environment |= {"RUN_CANDIDATE": "graphcore.conformance.runtimes.run_candidate"}
            environment |= {CANDIDATE: f"{runtime.name} {runtime.provider}"}
            command += ["-p", "graphcore.conformance.runtimes", "tests", f"--hypothesis-max-examples={examples}"]
        else:
            environment["ARRAY_API_TESTS_MODULE"] = "graphcore.array_api"
            command += ["array_api_tests", f"--max-examples={examples}", "--disable-deadline"]
        environment["HYPOTHESIS_STORAGE_DIRECTORY"] = folder
        environment["PYTHONPATH"] += os.pathsep + str(checkout)
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        is_complete = done.returncode in (0, 1)
        cases = [*ElementTree.parse(report).getroot().iter("testcase")] if is_complete else []
    errors = [error for case in cases for error in case.iterfind("error")]
    broken = [str(error.text) for error in errors if error.get("message") == "collection failure"]
    if broken or not is_complete:
        reason = " ".join((*broken, done.stderr or done.stdout)[0].split())[-300:]
        raise RunError(
            f"conform: pytest does not run in {checkout}: {reason}",
            help="install the suite's requirements and pytest-xdist",
        )
    names, failures = set(), {}
    for case in cases:
        name = f"{case.get('classname')}.{case.get('name')}"
        if case.find("skipped") is None:
            names.add(name)
        for error in (*case.iterfind("failure"), *case.iterfind("error")):
            failures[name] = str(error.get("message"))[:300]
    return Result(str(runtime), suite, len(names), len(names) - len(failures), failures)


# Releases: each in a folder of its own, which comes first on the path of the process


def _environment(runtime: Runtime) -> dict[str, str]:
    """Return the environment of a process with the release of a runtime. Raises `RunError`."""
    path = [str(Path(FOLDER).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}
    cache = cache_folder("conform")
    if runtime.provider == "wasm" and runtime.name not in ("graphcore", "onnxruntime-web"):
        raise RunError(f"conform: {runtime.name} does not run in wasm", help="add --engine graphcore")
    if runtime.name == "onnxruntime-web" or runtime.provider == "wasm":
        package = f"onnxruntime-web@{runtime.release or 'latest'}"
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", package, "--prefix"]
        place = cache / package.replace("@", "-")
        environment[WEB_FOLDER] = str(installed_in(place, package, lambda new: [*command, str(new)]))
    elif runtime.release:
        version = f"py{sys.version_info.major}.{sys.version_info.minor}"
        name = "openvino" if runtime.name == "openvino" else "onnxruntime"
        place = cache / f"{name}-{runtime.release}-{version}"
        path.insert(0, str(pip_package(f"{name}=={runtime.release}", place)))
    environment["PYTHONPATH"] = os.pathsep.join(path)
    return environment


# The table


def table(results: Iterable[Result], text: str = "") -> str:
    """Return a page with a table in Markdown: a row for each runtime, a column for each suite.

    text: of the page. If it has such a table, its other rows and cells are kept.
    """
    rows: dict[str, dict[str, str]] = {}
    before, _, rest = text.partition(_MARKS[0])
    old, _, after = rest.partition(_MARKS[1])
    titles = list(TITLES.values())
    for line in old.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == len(titles) + 1 and cells[0] not in ("runtime", "---"):
            rows[cells[0]] = dict(zip(titles, cells[1:], strict=True))
    for result in results:
        rows.setdefault(result.runtime, {})[TITLES[result.suite]] = f"{result.passed:,} of {result.count:,}"
    lines = [f"| runtime | {' | '.join(titles)} |", "|---" * (len(titles) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(rows[name].get(title, '') for title in titles)} |" for name in sorted(rows)]
    new = "\n".join(lines)
    end = after or "\n"
    return f"{before}{_MARKS[0]}\n{new}\n{_MARKS[1]}{end}"
