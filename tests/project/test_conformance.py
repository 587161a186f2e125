"""`tools/onnx_conformance.py` on a stand-in for a checkout of onnx-tests: what passes, fails and ends the process."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy import float16, float32, float64, inf, int32, nan
from onnx import helper, numpy_helper

from tools import onnx_conformance
from tools.conformance_excuses import KNOWN, Example, excuse_of

WRAPPERS = """
import numpy
def ReferenceEvaluator(model, optimized): ...
def run_reference(model): raise ValueError("no such shape")
def run_ort(model):
    if model is None: raise TypeError("not a tensor")
    return {"y": numpy.arange(6.0).reshape(2, 3)}
"""
TESTS = """
import numpy, os, pytest
from hypothesis import given, strategies
from onnx import helper, numpy_helper
from onnx_conformance import run_candidate
from onnx_tests.runtime_wrappers import run_reference
def test_Add_14(): pass
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_Sub_14(dtype): assert dtype == "int8"
def test_Gather_13(): run_reference(None)
def test_Where_16(): os.abort()
def test_Xor_7(): run_candidate(None)
def test_Not_1(): pytest.skip("no reason")
@given(strategies.integers())
@pytest.mark.parametrize("axis", [1, 2])
def test_Flatten_13(axis, number):
    node = helper.make_node("Flatten", ["x"], ["y"], axis=axis)
    x = numpy_helper.from_array(numpy.arange(6.0).reshape(2, 3, 1)[:, :, 0], "x")
    model = helper.make_model(helper.make_graph([node], "graph", [], [], [x]))
    run_candidate(model)
    run_reference(model)
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
    result = json.loads(report.read_text())["tests"]
    assert Counter(entry["outcome"] for entry in result.values()) == {
        "passed": 3,
        "failed": 4,
        "crashed": 1,
        "skipped": 1,
    }
    kinds = {onnx_conformance.operator_of(n): e["causes"][0]["kind"] for n, e in result.items() if e["causes"]}
    assert kinds == {
        "Sub": "differs",
        "Gather": "reference",
        "Where": "crash",
        "Xor": "candidate",
        "Flatten": "reference",  # with axis=2
    }
    assert list(result["tests/test_few.py::test_Flatten_13[1]"]["excused"].values()) == [10]
    out = capsys.readouterr().out
    assert "Where                           0        0        0        1        0   crash 1" in out
    assert "    10 examples excused: The reference raises" in out


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


WINDOW = {"strides": [1, 1], "dilations": [2, 1], "auto_pad": "VALID"}
COLUMN, CANCELS, ONES = [[[[1], [2], [3], [4], [5]]]], [[[[1e8], [0], [1], [0], [-1e8]]]], [[[[1], [1], [1]]]]
PLACES = np.array([[0], [1]])
UNIQUE = [np.array(each) for each in ([0, 1], [0, 1, 0], [2, 1])]

EXCUSED: list[tuple[str, str, Any, list[Any], dict[str, Any], list[Any], list[Any], list[Any]]] = [
    # operator, kind, dtype, operands, attributes, results that are excused, those of the reference, those that are not
    ("ArgMax", "differs", float32, [[[1, nan], [4, 6]]], {"axis": 1}, [PLACES], [1 + 0 * PLACES], [0 * PLACES]),
    ("ArgMin", "differs", float32, [[[nan, 1], [6, 4]]], {"axis": 1}, [1 + 0 * PLACES], [PLACES], [0 * PLACES]),
    ("AveragePool", "differs", float32, [COLUMN], {**WINDOW, "kernel_shape": [2, 1]},
        [[[[[2], [3], [4]]]]], [[[[[2], [3], [4], [0]]]]], [[[[[2], [3], [5]]]]]),
    ("Celu", "differs", float32, [[-1e-9]], {"alpha": 1.0}, [[0]], [[-1e-9]], [[-1e-6]]),
    ("Clip", "differs", float64, [[2, nan], 1, nan], {}, [[2, nan]], [[nan, nan]], [[1, nan]]),
    ("Conv", "differs", float32, [CANCELS, ONES, None], {**WINDOW, "kernel_shape": [3, 1]},
        [[[[[0]]]]], [[[[[1]]]]], [[[[[1e4]]]]]),
    ("Det", "differs", float64, [[[1, nan], [1, 1]]], {}, [nan], [0], [0]),
    ("Det", "reference", float16, [[[2, 0], [0, 1]]], {}, [2], [], [1]),
    ("Elu", "differs", float32, [[-1e-9]], {"alpha": 1.0}, [[0]], [[-1e-9]], [[-1e-6]]),
    ("Erf", "differs", float64, [[1e-300]], {}, [[1.1283791670955126e-300]], [[0]], [[0]]),
    ("Flatten", "reference", int32, [np.zeros((0, 2))], {"axis": 1}, [np.zeros((0, 2))], [], [np.zeros((2, 0))]),
    ("GatherElements", "reference", int32, [[5, 6, 7], [1]], {"axis": -1}, [[6]], [], [[5]]),
    ("Gelu", "differs", float64, [[-1.9]], {}, [[-0.05456146365040341]], [[-0.05456147193908691]], [[-0.0545614719]]),
    ("Hardmax", "differs", float32, [[[1, nan], [4, 6]]], {}, [[[1, 0], [0, 1]]], [[[0, 1]] * 2], [[[1, 0]] * 2]),
    ("LogSoftmax", "differs", float32, [[0, -200]], {}, [[0, -200]], [[0, -inf]], [[0, -104]]),
    ("LogSoftmax", "reference", float32, [np.zeros((2, 0))], {}, [np.zeros((2, 0))], [], [np.zeros((0, 2))]),
    ("MatMul", "differs", float32, [[[1e8, 1, -1e8]], [[1]] * 3], {}, [[[0]]], [[[1]]], [[[1e4]]]),
    ("Pad", "differs", object, [["0"], np.array([1, 0])], {}, [["", "0"]], [[0, "0"]], [["0", "0"]]),
    ("Pow", "differs", int32, [[3], np.array([40], "uint64")], {}, [[689956897]], [[-(2**31)]], [[2**31 - 1]]),
    ("Pow", "reference", int32, [[2, -1, 3], [-1, -3, 2]], {}, [[0, -1, 9]], [], [[0, 1, 9]]),
    ("ReduceL2", "differs", int32, [[3, 60000]], {"keepdims": 0}, [60000], [-(2**31)], [60003]),
    ("ReduceLogSum", "reference", int32, [[9, 11]], {"keepdims": 0}, [2], [], [5]),
    ("ReduceLogSumExp", "reference", int32, [[9, 11]], {"keepdims": 0}, [11], [], [20]),
    ("ReduceMax", "differs", float32, [[[1, nan], [4, 6]], np.array([1])], {"keepdims": 0}, [[1, 6]], [[nan, 6]],
        [[1, 4]]),
    ("ReduceMean", "differs", int32, [[2147483646, 4]], {}, [[1073741825]], [[-1073741823]], [[-1073741823]]),
    ("ReduceMin", "differs", float32, [[[1, nan], [4, 6]], np.array([1])], {"keepdims": 0}, [[1, 4]], [[nan, 4]],
        [[1, 6]]),
    ("ReduceProd", "differs", float32, [[1e-30, 1e-30, 1e30]], {}, [[0]], [[1e-30]], [[1e-3]]),
    ("ReduceSum", "differs", float32, [[1e8, 1, -1e8]], {}, [[0]], [[1]], [[1e4]]),
    ("ReduceSumSquare", "differs", int32, [[3]], {}, [[9]], [np.array([9])], [[8]]),
    ("ReduceSumSquare", "differs", float16, [[0.03949] * 15], {}, [[0.02339]], [[0.02336]], [[0.02336]]),
    ("Selu", "differs", float32, [[-1e-9]], {"alpha": 1.5, "gamma": 0.5}, [[0]], [[-7.5e-10]], [[-1e-6]]),
    ("Sigmoid", "differs", float16, [[-3.771]], {}, [[0.0225]], [[0.02248]], [[0.0226]]),
    ("Split", "candidate", int32, [[1]], {"num_outputs": 3}, [], [[1], [], []], []),
    ("Tanh", "differs", float32, [[3e-42]], {}, [[2.8643e-42]], [[3e-42]], [[2.5e-42]]),
    ("Trilu", "differs", object, [[["a", "0"]]], {"upper": 0}, [[["a", ""]]], [[["a", 0]]], [[["a", "0"]]]),
    ("Unique", "differs", int32, [[[1, 2, 1]]], {"axis": 1, "sorted": 0},
        [[[1, 2]], *UNIQUE], [[[1, 2, 1]], *UNIQUE], [[[2, 1]], *UNIQUE]),
    ("Unique", "reference", int32, [[[5], [3], [5]]], {"sorted": 0}, [[5, 3], *UNIQUE], [], [[3, 5], *UNIQUE]),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "kind", *"of operands attributes right expected wrong".split()), EXCUSED)
def test_failure_is_excused_by_its_cause_alone(
    operator: str,
    kind: str,
    of: Any,
    operands: list[Any],
    attributes: dict[str, Any],
    right: list[Any],
    expected: list[Any],
    wrong: list[Any],
) -> None:
    groups: list[list[Any]] = [
        [each if each is None or (isinstance(each, np.ndarray) and each.size) else np.array(each, of) for each in group]
        for group in (operands, right, expected, wrong)
    ]
    arrays, right, expected, wrong = groups
    names = [f"x{index}" if array is not None else "" for index, array in enumerate(arrays)]
    initializers = [numpy_helper.from_array(array, name) for array, name in zip(arrays, names, strict=True) if name]
    node = helper.make_node(operator, names, [], **attributes)
    model = helper.make_model(helper.make_graph([node], "graph", [], [], initializers))
    reason = excuse_of(operator, kind, Example(AssertionError(), model, right, expected))
    assert reason == KNOWN[operator][kind][0]
    assert excuse_of(operator, "crash", Example(AssertionError(), model, right, expected)) is None
    if wrong:
        assert excuse_of(operator, kind, Example(AssertionError(), model, wrong, expected)) is None


def test_operand_tells_whether_an_error_is_excused() -> None:
    node = helper.make_node("Split", ["x"], [], num_outputs=3)
    graph = helper.make_graph([node], "graph", [], [], [numpy_helper.from_array(np.zeros(5), "x")])  # 2, 2 and 1
    assert excuse_of("Split", "candidate", Example(ValueError(), helper.make_model(graph))) is None
    assert excuse_of("Gather", "test", Example(ValueError("Cannot have max_value=-1 < min_value=0"))) is not None
    assert excuse_of("Gather", "test", Example(ValueError("no such axis"))) is None


def test_each_excuse_is_tested_and_documented() -> None:
    results = {(operator, kind) for operator in KNOWN for kind in KNOWN[operator]}
    assert results == {(operator, kind) for operator, kind, *_ in EXCUSED} | {("Gather", "test")}
    page = (Path(__file__).parents[2] / "docs" / "development" / "conformance.md").read_text(encoding="utf-8")
    assert not [operator for operator in KNOWN if f"`{operator}`" not in page]
