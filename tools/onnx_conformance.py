"""Run onnx-tests, the property-based tests of the ONNX standard, with graphcore as the runtime under test.

    git clone https://github.com/cbourjau/onnx-tests
    pip install spox hypothesis pytest
    python tools/onnx_conformance.py onnx-tests --examples 10
    python tools/onnx_conformance.py onnx-tests --examples 100 --operators Add Split

Tests run in a child process. Where it dies or a test takes longer than `--seconds`, that test is a crash and another
process goes on after it. Prints one line for each operator and writes a report with each test, why it failed and an
example that fails. The exit status is 1 after a crash or a failure that `KNOWN` does not explain;
docs/conformance.md has the proofs of those that it does. With `--shrink` hypothesis looks for the smallest example of
each failure, which takes up to minutes a test.

The module is the pytest plugin of the child and the runtime that it calls, too.
"""

from __future__ import annotations

import argparse
import functools
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
from collections.abc import Mapping, Sequence
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

_CANCELS = "Terms cancel, and the tolerance is relative to the result: sums in another order differ."
_NEAR_0 = "The kernel computes exp(x) - 1, whose absolute error is 1e-7; the tolerance is relative to the result."
_NAN = "The standard does not say where NaN stands; onnxruntime's kernel passes over it."
_RAISES = "The reference raises for operands that the standard allows."
_OVERFLOWS = "The reference overflows in between, where the result itself fits."

KNOWN: Mapping[str, Mapping[str, str]] = {
    "ArgMax": {"differs": _NAN},
    "ArgMin": {"differs": _NAN},
    "AveragePool": {"differs": "The reference leaves dilations out of the size of the result. " + _CANCELS},
    "Celu": {"differs": _NEAR_0},
    "Conv": {"differs": _CANCELS},
    "Det": {"differs": _CANCELS, "reference": _RAISES},
    "Elu": {"differs": _NEAR_0},
    "Erf": {"differs": "The reference gives 0 near 0, where erf(x) is 1.128 x."},
    "Flatten": {"reference": _RAISES},
    "Gather": {"test": "The test draws indices of an axis without elements, and hypothesis refuses the bounds."},
    "GatherElements": {"reference": _RAISES},
    "Gelu": {"differs": "The reference rounds the square root of 2 to float32, and computes float16 in float16."},
    "Hardmax": {"differs": _NAN},
    "LogSoftmax": {"reference": _RAISES},
    "MatMul": {"differs": _CANCELS},
    "Pad": {"differs": "The reference puts the number 0 among strings."},
    "Pow": {"reference": _RAISES, "differs": "Overflow is open: the reference converts by float64, graphcore wraps."},
    "ReduceL2": {"differs": _OVERFLOWS},
    "ReduceLogSum": {"reference": _RAISES},
    "ReduceLogSumExp": {"reference": _RAISES},
    "ReduceMean": {"differs": _OVERFLOWS},
    "ReduceProd": {"differs": "Whether factors overflow in between depends on their order."},
    "ReduceSum": {"differs": _CANCELS},
    "ReduceSumSquare": {"differs": "The reference gives int64 for int32, and the standard the dtype of the operand."},
    "Selu": {"differs": _NEAR_0},
    "Sigmoid": {"differs": "The reference computes float16 in float16."},
    "Split": {"candidate": "The standard has no parts of a negative size: 5 elements make no 4 parts of 2."},
    "Tanh": {"differs": "The kernel of float32 gives 0 for numbers below 1e-38."},
    "Trilu": {"differs": "The reference puts the number 0 among strings."},
    "Unique": {"reference": _RAISES},
}
"""By operator and kind of failure (of `kind_of`): why the test or the reference is wrong, or the difference allowed."""

_LOG, _CHOSEN = "ONNX_CONFORMANCE_LOG", "ONNX_CONFORMANCE_OPERATORS"
_EXAMPLES, _PHASES = "ONNX_CONFORMANCE_EXAMPLES", "ONNX_CONFORMANCE_PHASES"
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
        if "optimized" not in inspect.signature(ReferenceEvaluator).parameters:  # which onnx 1.23 has no more
            runtime_wrappers.ReferenceEvaluator = lambda model, optimized: ReferenceEvaluator(model)

    def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
        chosen, done = set(os.environ[_CHOSEN].split()), {each["test"] for each in _entries(Path(os.environ[_LOG]))}
        wanted = [i for i in items if not chosen or operator_of(i.nodeid) in chosen]
        items[:] = [i for i in wanted if i.nodeid not in done]
        print(f"{len(items)} tests")

    def pytest_runtest_logstart(nodeid: str) -> None:
        _write(test=nodeid)

    def pytest_runtest_makereport(call: pytest.CallInfo[None], item: pytest.Item) -> None:
        if (call.when == "setup" and call.excinfo is None) or call.when == "teardown":
            return
        error = None if call.excinfo is None else call.excinfo.value
        outcome = "passed" if error is None else "skipped" if isinstance(error, pytest.skip.Exception) else "failed"
        causes = causes_of(error) if outcome == "failed" and error is not None else []
        _write(test=item.nodeid, outcome=outcome, seconds=round(call.duration, 2), causes=causes)


def _write(**entry: Any) -> None:
    with open(os.environ[_LOG], "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def causes_of(error: BaseException) -> list[dict[str, str]]:
    """Return each failure that hypothesis found in a test: its kind, what was said, and an example."""
    if isinstance(error, BaseExceptionGroup):
        return [cause for each in error.exceptions for cause in causes_of(each)]
    said = f"{type(error).__name__}: {error}"
    return [{"kind": kind_of(error), "said": said[:2000], "example": "\n".join(getattr(error, "__notes__", []))[:4000]}]


def kind_of(error: BaseException) -> str:
    """Return who raised: the "candidate", the "reference", the "test" itself; "differs" for other results."""
    called = {frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)}
    if os.environ["RUN_CANDIDATE"].rpartition(".")[2] in called:
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
    found: dict[str, dict[str, Any]] = {}
    for entry in _entries(log):
        found[entry["test"]] = entry if "outcome" in entry else {**entry, "outcome": "crashed", "causes": []}
    return found


def run(checkout: Path, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Run the tests in one process after another until all have an outcome; return the outcomes by test."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.jsonl")
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(ROOT), str(checkout)]),
            "RUN_CANDIDATE": CANDIDATES.get(options.candidate, options.candidate),
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
                said = output.read()
            found = outcomes(log)
            crashed = [name for name, entry in list(found.items())[before:] if entry["outcome"] == "crashed"]
            for name in crashed:
                how = f"exit status {child.returncode}\n{said[-2000:]}"
                _add(log, {**found[name], "causes": [{"kind": "crash", "said": how, "example": ""}]})
                print(f"crashed: {name} ({how.splitlines()[0]})", flush=True)
            if not crashed:
                if child.returncode not in (0, 1, 5):
                    raise SystemExit(f"error: pytest ended with {child.returncode}\n{said[-4000:]}")
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


def table(found: Mapping[str, Mapping[str, Any]]) -> tuple[str, int]:
    """Return the table of operators, and how many tests crashed or failed in ways that `KNOWN` does not explain."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    unexplained = 0
    for test, entry in found.items():
        operator = operator_of(test)
        counts[operator][entry["outcome"]] += 1
        kinds[operator].update({cause["kind"] for cause in entry["causes"]})
        unexplained += any(cause["kind"] not in KNOWN.get(operator, {}) for cause in entry["causes"])
    names = ("passed", "failed", "crashed", "skipped")
    lines = [f"{'operator':24}" + "".join(f"{name:>9}" for name in names) + "   failures"]
    counts["all"] = sum((Counter(count) for count in counts.values()), Counter())
    for operator, count in sorted(counts.items(), key=lambda row: (row[0] == "all", row[0])):
        said = ", ".join(
            f"{kind} {number}{'' if kind in KNOWN.get(operator, {}) else ' (!)'}"
            for kind, number in kinds[operator].items()
        )
        lines.append(f"{operator:24}" + "".join(f"{count[name]:9}" for name in names) + f"   {said}".rstrip())
    return "\n".join(lines), unexplained


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
    found = run(checkout, options)
    if not found:
        parser.error("no test was run: no operator has one of these names")
    packages = ("onnx", "onnxruntime", "numpy", "spox", "hypothesis")
    versions = {name: metadata.version(name) for name in packages if importlib.util.find_spec(name)}
    report = {"candidate": options.candidate, "examples": options.examples, "versions": versions, "tests": found}
    options.report.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text(json.dumps(report, indent=1), encoding="utf-8")
    text, unexplained = table(found)
    print(text, f"report: {options.report}", sep="\n")
    return int(unexplained > 0)


if __name__ == "__main__":
    raise SystemExit(main())
