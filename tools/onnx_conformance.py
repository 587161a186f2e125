"""Run onnx-tests, the property-based tests of the ONNX standard, with graphcore as the runtime under test.

    git clone https://github.com/cbourjau/onnx-tests
    pip install spox hypothesis pytest
    python tools/onnx_conformance.py onnx-tests --examples 10
    python tools/onnx_conformance.py onnx-tests --examples 100 --operators Add Split

Tests run in a child process. Where it dies or a test takes longer than `--seconds`, that test is a crash and another
process goes on after it. An example that fails for a reason that conformance_excuses.py proves is excused: its test
goes on with the other examples. Prints one line for each operator and writes a report with each test, the reasons, why
it failed and an example that fails. The exit status is 1 after a crash or a failure;
docs/development/conformance.md has the proofs of the reasons. With `--shrink` hypothesis looks for the smallest example
of each failure, which takes up to minutes.

The module is the pytest plugin of the child and the runtime that it calls, too.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx
    import pytest

ROOT = Path(__file__).resolve().parents[1]

CANDIDATES = {
    "graphcore": "onnx_conformance.run_graphcore",
    "onnxruntime": "onnx_tests.runtime_wrappers.run_ort",
    "reference": "onnx_tests.runtime_wrappers.run_reference",
}
"""By the name on the command line: what the tests call, with a model, for its results by name."""

_LOG, _CHOSEN = "ONNX_CONFORMANCE_LOG", "ONNX_CONFORMANCE_OPERATORS"
_EXAMPLES, _PHASES = "ONNX_CONFORMANCE_EXAMPLES", "ONNX_CONFORMANCE_PHASES"
_CANDIDATE = "ONNX_CONFORMANCE_CANDIDATE"
"""What the child reads from its environment."""


# What runs in the child


def run_graphcore(model: onnx.ModelProto) -> dict[str, Any]:
    """Return the results of a model without inputs, by name."""
    loaded = _session().load(model)
    return dict(zip(loaded.outputs, loaded(), strict=True))


@functools.cache
def _session() -> Any:
    import graphcore

    return graphcore.InferenceSession(precision="exact")  # None leaves float16 to onnxruntime's kernels


if _LOG in os.environ:
    import pytest
    from hypothesis import HealthCheck, Phase, settings
    from onnx.reference import ReferenceEvaluator
    from onnx_tests import runtime_wrappers

    from tools.conformance_excuses import Example, excuse_of

    _running: list[str] = []  # the test
    _last: list[onnx.ModelProto] = []  # the model of its example
    _excused: Counter[str] = Counter()

    def run_candidate(model: onnx.ModelProto) -> dict[str, Any]:
        """Return the results of the candidate, which the tests call by this name."""
        _last[:] = [model]
        module, _, name = os.environ[_CANDIDATE].rpartition(".")
        results: dict[str, Any] = getattr(importlib.import_module(module), name)(model)
        return results

    def _evaluator(model: onnx.ModelProto, optimized: bool) -> ReferenceEvaluator:
        _last[:] = [model]
        has_option = "optimized" in inspect.signature(ReferenceEvaluator).parameters  # until onnx 1.22
        options: dict[str, Any] = {"optimized": optimized} if has_option else {}
        return ReferenceEvaluator(model, **options)

    def _excusing(test: Callable[..., None]) -> Callable[..., None]:
        """Return a test of one example that passes where the example fails for a reason that is proven."""

        @functools.wraps(test)
        def run_example(*args: Any, **kwargs: Any) -> None:
            _last.clear()
            try:
                test(*args, **kwargs)
            except Exception as error:
                reason = _reason(error)
                if reason is None:
                    raise
                _excused[reason] += 1

        return run_example

    def _reason(error: Exception) -> str | None:
        kind, results, operator = kind_of(error), [], operator_of(_running[0])
        for runs, name in ((run_candidate, "candidate"), (runtime_wrappers.run_reference, "reference")):
            results.append(list(runs(_last[0]).values()) if _last and kind != name else [])
        return excuse_of(operator, kind, Example(error, _last[0] if _last else None, *results))

    @pytest.hookimpl(trylast=True)  # after the conftest of onnx-tests, which loads settings of its own
    def pytest_configure() -> None:
        settings.register_profile(
            "conformance",
            max_examples=int(os.environ[_EXAMPLES]),
            phases=[Phase[name] for name in os.environ[_PHASES].split()],
            database=None,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],  # which is of the machine
        )
        settings.load_profile("conformance")
        runtime_wrappers.ReferenceEvaluator = _evaluator

    def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
        chosen, done = set(os.environ[_CHOSEN].split()), {each["test"] for each in _entries(Path(os.environ[_LOG]))}
        wanted = [i for i in items if not chosen or operator_of(i.nodeid) in chosen]
        items[:] = [i for i in wanted if i.nodeid not in done]
        handles = {id(h): h for h in (getattr(getattr(i, "obj", None), "hypothesis", None) for i in items) if h}
        for handle in handles.values():  # one for all dtypes
            handle.inner_test = _excusing(handle.inner_test)
        print(f"{len(items)} tests")

    def pytest_runtest_logstart(nodeid: str) -> None:
        _running[:] = [nodeid]
        _excused.clear()
        _write(test=nodeid)

    def pytest_runtest_makereport(call: pytest.CallInfo[None], item: pytest.Item) -> None:
        if (call.when == "setup" and call.excinfo is None) or call.when == "teardown":
            return
        error = None if call.excinfo is None else call.excinfo.value
        outcome = "passed" if error is None else "skipped" if isinstance(error, pytest.skip.Exception) else "failed"
        causes = causes_of(error) if outcome == "failed" and error is not None else []
        _write(test=item.nodeid, outcome=outcome, seconds=round(call.duration, 2), causes=causes, excused=_excused)


def _write(**entry: Any) -> None:
    with open(os.environ[_LOG], "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def causes_of(error: BaseException) -> list[dict[str, str]]:
    """Return each failure that hypothesis found in a test: its kind, what was said, and an example."""
    if isinstance(error, BaseExceptionGroup):
        return [cause for each in error.exceptions for cause in causes_of(each)]
    message, example = f"{type(error).__name__}: {error}", "\n".join(getattr(error, "__notes__", []))
    shown = (
        message if len(message) <= 2000 else f"{message[:1000]}\n...\n{message[-1000:]}"
    )  # operands, and what differs
    return [{"kind": kind_of(error), "said": shown, "example": example[:4000]}]


def kind_of(error: BaseException) -> str:
    """Return who raised: the "candidate", the "reference", the "test" itself; "differs" for other results."""
    called = {frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)}
    if "run_candidate" in called:
        return "candidate"
    if "run_reference" in called:
        return "reference"
    return "differs" if isinstance(error, AssertionError) or "dtypes do not match" in str(error) else "test"


# What runs the children


def operator_of(test: str) -> str:
    """Return the operator that a test of onnx-tests is of: test_<operator>_<version>."""
    match = re.search(r"::test_(\w+?)_\d+(\[|$)", test)
    return match[1] if match else test


def _entries(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []


def outcomes(log: Path) -> dict[str, dict[str, Any]]:
    """Return by test how it went; "crashed" where it has begun and no more is written."""
    results: dict[str, dict[str, Any]] = {}
    for entry in _entries(log):
        results[entry["test"]] = (
            entry if "outcome" in entry else {**entry, "outcome": "crashed", "causes": [], "excused": {}}
        )
    return results


def run(checkout: Path, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Run the tests in one process after another until all have an outcome; return the outcomes by test."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.jsonl")
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(ROOT), str(checkout)]),
            "RUN_CANDIDATE": "onnx_conformance.run_candidate",
            _CANDIDATE: CANDIDATES.get(options.candidate, options.candidate),
            "HYPOTHESIS_STORAGE_DIRECTORY": folder,
            _LOG: str(log),
            _CHOSEN: " ".join(options.operators),
            _EXAMPLES: str(options.examples),
            _PHASES: "generate shrink" if options.shrink else "generate",
        }
        command = [sys.executable, "-m", "pytest", "tests", "-q", "-p", "onnx_conformance", "-p", "no:cacheprovider"]
        command += ["--tb=no", "--no-header", "--no-summary", f"--hypothesis-seed={options.seed}", "-W", "ignore"]
        while True:
            before = len(outcomes(log))
            with open(Path(folder, "output"), "w+", encoding="utf-8", errors="replace") as output:
                child = subprocess.Popen(command, cwd=checkout, env=env, stdout=output, stderr=subprocess.STDOUT)
                _wait(child, log, options.seconds)
                output.seek(0)
                message = output.read()
            result = outcomes(log)
            crashed = [name for name, entry in list(result.items())[before:] if entry["outcome"] == "crashed"]
            for name in crashed:
                how = f"exit status {child.returncode}\n{message[-2000:]}"
                _add(log, {**result[name], "causes": [{"kind": "crash", "said": how, "example": ""}]})
                print(f"crashed: {name} ({how.splitlines()[0]})", flush=True)
            if not crashed:
                if child.returncode not in (0, 1, 5):
                    raise SystemExit(f"error: pytest ended with {child.returncode}\n{message[-4000:]}")
                return outcomes(log)


def _wait(child: subprocess.Popen[bytes], log: Path, seconds: float) -> None:
    """Wait for a child to end; kill it where no test has ended for some seconds."""
    size, since = -1, time.monotonic()
    while child.poll() is None:
        time.sleep(0.2)
        now = log.stat().st_size if log.exists() else 0
        if now != size:
            size, since = now, time.monotonic()
        elif time.monotonic() - since > seconds:
            child.kill()


def _add(log: Path, entry: Mapping[str, Any]) -> None:
    with open(log, "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def table(result: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of operators: the outcomes of tests, kinds of failures, and excused examples by reason."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    excused: dict[str, Counter[str]] = defaultdict(Counter)
    for test, entry in result.items():
        operator = operator_of(test)
        for name in (operator, "all"):
            counts[name].update([entry["outcome"], *["excused"] * bool(entry["excused"])])
        kinds[operator].update({cause["kind"] for cause in entry["causes"]})
        excused[operator].update(entry["excused"])
    names = ("passed", "excused", "failed", "crashed", "skipped")
    lines = [f"{'operator':24}" + "".join(f"{name:>9}" for name in names)]
    for operator, count in sorted(counts.items(), key=lambda row: (row[0] == "all", row[0])):
        message = ", ".join(f"{kind} {number}" for kind, number in kinds[operator].items())
        lines.append(f"{operator:24}" + "".join(f"{count[name]:9}" for name in names) + f"   {message}".rstrip())
        lines += [f"    {number} examples excused: {reason}" for reason, number in excused[operator].items()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run onnx-tests with graphcore as the runtime under test.")
    parser.add_argument("checkout", type=Path, help="the folder of a checkout of onnx-tests")
    parser.add_argument("--candidate", default="graphcore", help=f"{', '.join(CANDIDATES)} or module.function")
    parser.add_argument("--examples", type=int, default=10, help="examples a test (default: 10)")
    parser.add_argument("--operators", nargs="+", default=[], help="operators (default: all)")
    parser.add_argument("--seconds", type=float, default=600, help="the most that one test may take (default: 600)")
    parser.add_argument("--shrink", action="store_true", help="look for the smallest example of each failure")
    parser.add_argument("--seed", type=int, default=0, help="the seed of hypothesis (default: 0)")
    parser.add_argument("--report", type=Path, default=Path("build/onnx-tests.json"), help="the file of the report")
    options = parser.parse_args(arguments)
    checkout = options.checkout.resolve()
    if not (checkout / "onnx_tests").is_dir():
        parser.error(f"{checkout} is not a checkout of onnx-tests: it has no folder onnx_tests")
    result = run(checkout, options)
    if not result:
        parser.error("no test was run: no operator has one of these names")
    packages = ("onnx", "onnxruntime", "numpy", "spox", "hypothesis")
    versions = {name: metadata.version(name) for name in packages if importlib.util.find_spec(name)}
    report = {"candidate": options.candidate, "examples": options.examples, "versions": versions, "tests": result}
    options.report.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text(json.dumps(report, indent=1), encoding="utf-8")
    print(table(result), f"report: {options.report}", sep="\n")
    return int(any(entry["outcome"] in ("failed", "crashed") for entry in result.values()))


if __name__ == "__main__":
    raise SystemExit(main())
