"""The verdict of `.ci/newest.py` on a run with the newest releases: failures of CI, and warnings."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.sax.saxutils import quoteattr

import pytest


@pytest.fixture(scope="module")
def newest() -> ModuleType:
    spec = importlib.util.spec_from_file_location("newest", Path(__file__).parents[2] / ".ci" / "newest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["newest"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def case(name: str, message: str | None = None, *, kind: str = "failure", numbers: bool = False) -> str:
    marks = '<properties><property name="numbers" value="true" /></properties>' if numbers else ""
    failed = "" if message is None else f"<{kind} message={quoteattr(message)}>the text</{kind}>"
    return f'<testcase classname="tests.test_a" name={quoteattr(name)} time="0.1">{marks}{failed}</testcase>'


def junit(*cases: str) -> str:
    return f'<testsuites name="pytest tests"><testsuite name="pytest">{"".join(cases)}</testsuite></testsuites>'


CRASH = "failed on setup with \"worker 'gw0' crashed while running 'tests/test_a.py::test_dies'\""


@pytest.mark.parametrize(
    "message",
    [
        "assert 2 == 3",
        "AssertionError: assert 'a' == 'b'",
        "AssertionError: \nArrays are not equal",
        "ExceptionGroup: Hypothesis found 2 distinct failures. (2 sub-exceptions)",
        "hypothesis.errors.FlakyFailure: Hypothesis test produces unreliable results (1 sub-exception)",
    ],
)
def test_wrong_number_fails_ci(newest: Any, message: str) -> None:
    result = newest.report(junit(case("test_x[1-a b]", message, numbers=True), case("test_y", numbers=True)))
    assert result.tests == 2
    errors, warnings = newest.verdict(result, None, "")
    assert errors == [f"tests.test_a::test_x[1-a b]: wrong number: {' '.join(message.split())}"]
    assert warnings == []


def test_failure_of_another_test_is_a_warning(newest: Any) -> None:
    result = newest.report(junit(case("test_x", "assert 2 == 3"), case("test_y", "ValueError: z", kind="error")))
    errors, warnings = newest.verdict(result, None, "")
    assert errors == []
    assert warnings == ["tests.test_a::test_x: fails: assert 2 == 3", "tests.test_a::test_y: fails: ValueError: z"]


@pytest.mark.parametrize(
    "message",
    [
        "Failed: not in tests/support/backend/known.py",
        "graphcore.errors.RunError: InferenceSession: NOT_IMPLEMENTED",
        "AttributeError: module 'numpy' has no attribute 'x'",
        'failed on setup with "AttributeError: x"',
    ],
)
def test_error_is_a_warning_where_numbers_are_compared(newest: Any, message: str) -> None:
    errors, warnings = newest.verdict(newest.report(junit(case("test_x", message, numbers=True))), None, "")
    assert errors == []
    assert len(warnings) == 1


def test_process_that_dies_fails_ci_whatever_it_ran(newest: Any) -> None:
    errors, warnings = newest.verdict(newest.report(junit(case("test_dies", CRASH, kind="error"))), None, "")
    assert len(errors) == 1
    assert errors[0].startswith("tests.test_a::test_dies: process died: ")
    assert warnings == []


def test_what_fails_with_the_lock_too_counts_for_nothing(newest: Any) -> None:
    locked = newest.report(junit(case("test_x", "assert 1 == 2", numbers=True), case("test_y")))
    result = newest.report(
        junit(case("test_x", "assert 1 == 3", numbers=True), case("test_y", "assert 0", numbers=True))
    )
    errors, warnings = newest.verdict(result, locked, "")
    assert errors == ["tests.test_a::test_y: wrong number: assert 0"]
    assert warnings == []


def test_run_without_a_report_is_a_warning_unless_a_process_died(newest: Any) -> None:
    empty = newest.report(junit())
    for item in (None, empty):
        errors, warnings = newest.verdict(item, None, "ERROR: no such option\n")
        assert (errors, warnings) == ([], ["the tests did not run: ERROR: no such option"])
        errors, warnings = newest.verdict(item, None, "[gw0] node down: Not properly terminated\n\nno tests ran")
        assert warnings == []
        assert len(errors) == 1
        assert "died before any test ended" in errors[0]


def test_report_that_is_cut_off_is_none(newest: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    assert newest._read(path) is None
    path.write_text(junit(case("test_x"))[:-20])
    assert newest._read(path) is None
    path.write_text(junit(case("test_x")))
    assert newest._read(path) == newest.RunReport(1, ())


def test_packages_that_differ_are_those_that_tests_run_with(newest: Any) -> None:
    locked = {
        "numpy": "2.4.6",
        "onnx": "1.23.2",
        "ruff": "0.17.6",
        "graphcore-engine": "0.1.0",
        "gone": "1",
        "pip": "1",
    }
    results = {"numpy": "2.5.0", "onnx": "1.23.2", "ruff": "0.18.0", "graphcore-engine": "0.2.0", "added": "3"}
    assert newest.differing(locked, results) == [("added", "-", "3"), ("numpy", "2.4.6", "2.5.0")]


def test_versions_are_asked_of_the_environment(newest: Any) -> None:
    assert newest.installed(Path(sys.prefix))["numpy"] == importlib.metadata.version("numpy")


class Steps:
    """The steps of `main`, without a venv and without tests."""

    def __init__(self, newest: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.status, self.versions, self.xml = 0, "1.33.0", junit(case("test_x"))
        self.ran = False
        monkeypatch.setattr(newest, "BUILD", tmp_path)
        monkeypatch.setattr(newest.subprocess, "run", self._make)
        monkeypatch.setattr(newest, "installed", self._installed)
        monkeypatch.setattr(newest, "_run", self._run)
        self.newest = newest

    def _make(self, command: list[str], **_: object) -> Any:
        assert command[0] == "make"
        return self.newest.subprocess.CompletedProcess(command, self.status, "no route to the index\n")

    def _installed(self, venv: Path) -> dict[str, str]:
        return {"onnxruntime": self.versions if venv.name == ".venv-newest" else "1.32.0"}

    def _run(self) -> tuple[str, Any]:
        self.ran = True
        return "..F\n1 failed, 2 passed in 0.1s\n", self.newest.report(self.xml)


@pytest.fixture
def steps(newest: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Steps:
    return Steps(newest, monkeypatch, tmp_path)


def test_ci_passes_when_nothing_can_be_installed(steps: Steps, capsys: pytest.CaptureFixture[str]) -> None:
    steps.status = 2
    assert steps.newest.main() == 0
    assert not steps.ran
    assert "warning: the newest releases cannot be installed" in (message := capsys.readouterr().out)
    assert "no route to the index" in message


def test_ci_runs_nothing_when_the_lock_is_the_newest(steps: Steps, capsys: pytest.CaptureFixture[str]) -> None:
    steps.versions = "1.32.0"
    assert steps.newest.main() == 0
    assert not steps.ran
    assert "nothing to try" in capsys.readouterr().out


def test_ci_passes_with_warnings_and_says_which_versions_differ(
    steps: Steps, capsys: pytest.CaptureFixture[str]
) -> None:
    steps.xml = junit(*(case(f"test_{i}", "assert 1 == 2") for i in range(30)))
    assert steps.newest.main() == 0
    message = capsys.readouterr().out
    assert "  onnxruntime              1.32.0       1.33.0\n" in message
    assert "\n1 failed, 2 passed in 0.1s\n" in message
    assert message.count("warning: tests.test_a::test_") == steps.newest.MAX_SHOWN
    assert "warning: and 10 more" in message
    assert "error" not in message


def test_ci_fails_when_a_number_is_wrong(steps: Steps, capsys: pytest.CaptureFixture[str]) -> None:
    steps.xml = junit(case("test_x", "assert 1 == 2", numbers=True), case("test_y", "assert 1 == 2"))
    assert steps.newest.main() == 1
    message = capsys.readouterr().out
    assert "error: tests.test_a::test_x: wrong number: assert 1 == 2\n" in message
    assert "warning: tests.test_a::test_y: fails: assert 1 == 2\n" in message


def test_tests_of_numbers_are_noted_in_reports(request: pytest.FixtureRequest) -> None:
    marked = {item.name for item in request.session.items if ("numbers", "true") in item.user_properties}
    assert marked == {item.name for item in request.session.items if item.get_closest_marker("numbers")}
