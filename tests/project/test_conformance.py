"""`tools/onnx_conformance.py` on a stand-in for a checkout of onnx-tests: what passes, fails and ends the process."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tools import onnx_conformance

WRAPPERS = """
def ReferenceEvaluator(model, optimized): ...
def run_reference(): raise ValueError("no such shape")
def run_ort(): raise TypeError("not a tensor")
"""
TESTS = """
import os, pytest
from onnx_tests.runtime_wrappers import run_ort, run_reference
def test_Add_14(): pass
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_Sub_14(dtype): assert dtype == "int8"
def test_Gather_13(): run_reference()
def test_Where_16(): os.abort()
def test_Xor_7(): run_ort()
def test_Not_1(): pytest.skip("no reason")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("onnx_tests", "tests"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    (tmp_path / "onnx_tests" / "runtime_wrappers.py").write_text(WRAPPERS)
    (tmp_path / "tests" / "test_few.py").write_text(TESTS)
    return tmp_path


@pytest.mark.full
def test_tests_after_a_crash_run_too(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = checkout / "report.json"
    assert onnx_conformance.main([str(checkout), "--candidate", "onnxruntime", "--report", str(report)]) == 1
    found = json.loads(report.read_text())["tests"]
    assert Counter(entry["outcome"] for entry in found.values()) == {
        "passed": 2,
        "failed": 3,
        "crashed": 1,
        "skipped": 1,
    }
    kinds = {onnx_conformance.operator_of(n): e["causes"][0]["kind"] for n, e in found.items() if e["causes"]}
    assert kinds == {"Sub": "differs", "Gather": "reference", "Where": "crash", "Xor": "candidate"}
    assert "Where                           0        0        1        0   crash 1 (!)" in capsys.readouterr().out


def test_folder_without_onnx_tests_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        onnx_conformance.main([str(tmp_path)])
    assert "is not a checkout of onnx-tests" in capsys.readouterr().err


def test_outcomes_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"test": "a"}\n{"test": "a", "outcome": "passed", "causes": []}\n{"test": "b"}\n')
    assert {name: entry["outcome"] for name, entry in onnx_conformance.outcomes(log).items()} == {
        "a": "passed",
        "b": "crashed",
    }


@pytest.mark.parametrize(("kind", "unexplained"), [("reference", 0), ("candidate", 1)])
def test_known_failures_are_explained(kind: str, unexplained: int) -> None:
    entry = {"outcome": "failed", "causes": [{"kind": kind}]}
    text, count = onnx_conformance.table({"tests/t.py::test_Flatten_13[int8]": entry})
    assert count == unexplained
    assert ("(!)" in text) is bool(unexplained)


def test_operators_that_are_known_to_fail_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text(encoding="utf-8")
    assert not [operator for operator in onnx_conformance.KNOWN if f"`{operator}`" not in page]
