"""`graphcore conform`: suites in a process that may crash, outside suites in their checkouts, and the table."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from graphcore.conformance import conform, suites
from graphcore.conformance.conform import Result, Runtime, run_checkout, run_suite, table
from graphcore.conformance.runtimes import RUNTIMES, WebRuntime
from graphcore.errors import RunError
from graphcore.runtime.ort.web import WEB_FOLDER

CASES = ("add int8 int16", "shr int8 uint8", "mean bfloat16", "floordiv int8 int8")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run no more than four cells."""
    start = conform._Process._start

    def started(self: Any) -> None:
        start(self)
        self.names = list(CASES)

    monkeypatch.setattr(conform._Process, "_start", started)


@pytest.mark.usefixtures("few")
def test_cells_of_graphcore_and_of_onnxruntime(call: Callable[..., Any], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table of conformance -->\n<!-- end table of conformance -->\nafter\n")
    status, out, err = call("conform", "--suite", "dtypes", "--page", str(page))
    assert (status, err) == (0, "")
    lines = [line.rpartition(": ")[2] for line in out.splitlines()]
    assert lines[0] == "4 of 4 pass"  # of onnxruntime: a mixture, no kernel of bfloat16, rounding towards 0
    assert lines[1] == "0 of 4 pass"
    text = page.read_text()
    assert text.startswith("before\n<!-- table")
    assert text.endswith("\nafter\n")
    assert "| graphcore |  | 4 of 4 |  |  |" in text


@pytest.mark.usefixtures("few")
def test_failures_in_json(call: Callable[..., Any]) -> None:
    status, out, _ = call("conform", "--suite", "dtypes", "--engine", "onnxruntime", "--json")
    (result,) = json.loads(out)
    assert status == 0
    assert set(result["failures"]) == set(CASES)
    assert result["failures"]["floordiv int8 int8"] == "values"
    assert result["failures"]["mean bfloat16"].startswith("load: ")


def test_node_tests_are_those_of_ml_too() -> None:
    assert {"add", "ai_onnx_ml.binarizer"} <= {*suites.node_modules()}
    assert [*suites.node_tests("ai_onnx_ml.binarizer")] == ["test_ai_onnx_ml_binarizer"]


def test_crash_fails_one_case(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that ends at one case is started again for the others."""
    fake = tmp_path / "fake.py"
    fake.write_text(
        'import os, sys\nprint(\'["a", "b", "c"]\', flush=True)\n'
        "for line in sys.stdin:\n    if line == 'b\\n': os.abort()\n    print('\"ok\"', flush=True)\n"
    )

    def command(self: Any, suite: str, runtime: Runtime, environment: Any) -> None:
        self._command, self._environment, self._runtime = [sys.executable, str(fake)], environment, runtime
        self._start()

    monkeypatch.setattr(conform._Process, "__init__", command)
    steps: list[tuple[int, int]] = []
    result = run_suite("onnx", Runtime("graphcore"), lambda done, total: steps.append((done, total)))
    assert (result.count, result.passed) == (3, 2)
    assert result.failures["b"].startswith("crash: exit status ")
    assert steps == [(1, 3), (2, 3), (3, 3)]


def test_runtime_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(suites.SUITES, "onnx", lambda runtime: {})
    with pytest.raises(RunError, match=r"conform: missing does not start: KeyError: 'missing'"):
        run_suite("dtypes", Runtime("missing"))


def test_release_that_cannot_be_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(RunError, match=r"conform: onnxruntime==0\.0\.1 cannot be installed: ") as error:
        run_suite("dtypes", Runtime("onnxruntime", "0.0.1"))
    assert "name a release" in str(error.value)
    assert not [*tmp_path.rglob("new")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "onnx-tests"], r"--suite onnx-tests needs a checkout\n.*--onnx-tests FOLDER"),
        (["--suite", "array-api"], r"--suite array-api needs a checkout\n.*--array-api FOLDER"),
        (["--array-api", ".", "--engine", "reference"], r"test graphcore alone\n.*add --engine graphcore"),
    ],
)
def test_outside_suite_that_cannot_run(call: Callable[..., Any], arguments: list[str], message: str) -> None:
    status, out, err = call("conform", *arguments)
    assert (status, out) == (1, "")
    assert re.search(message, err), err


def test_suites_of_each_engine(call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[tuple[str, str]] = []

    def run(suite: str, runtime: Runtime, *arguments: Any) -> Result:
        runs.append((str(runtime), suite))
        return Result(str(runtime), suite, 1, 1)

    monkeypatch.setattr("graphcore.cli.commands.conform.run_suite", run)
    monkeypatch.setattr("graphcore.cli.commands.conform.run_checkout", run)
    assert call("conform", "--onnx-tests", "a", "--array-api", "b")[0] == 0
    plain = ["onnx", "dtypes", "onnx-tests"]
    assert runs == [*(("graphcore", s) for s in (*plain, "array-api")), *(("onnxruntime", s) for s in plain)]
    runs.clear()
    assert call("conform", "--suite", "array-api", "--array-api", "b")[0] == 0
    assert call("conform", "--engine", "openvino", "--runtime", "2026.4.1", "--suite", "dtypes")[0] == 0
    assert runs == [("graphcore", "array-api"), ("openvino 2026.4.1", "dtypes")]


def test_outside_suite_in_its_checkout(tmp_path: Path) -> None:
    package = tmp_path / "onnx_tests"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "runtime_wrappers.py").write_text("from onnx.reference import ReferenceEvaluator\n")
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--hypothesis-max-examples', type=int)\n"
    )
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_add.py").write_text(
        "import os, importlib, onnx, pytest\n"
        "from onnx import TensorProto, helper\n"
        "def run():\n"
        "    module, _, name = os.environ['RUN_CANDIDATE'].rpartition('.')\n"
        "    y = helper.make_tensor_value_info('y', TensorProto.FLOAT, [1])\n"
        "    x = helper.make_node('Constant', [], ['x'], value_floats=[2.0])\n"
        "    graph = helper.make_graph([x, helper.make_node('Neg', ['x'], ['y'])], 'g', [], [y])\n"
        "    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 21)])\n"
        "    return getattr(importlib.import_module(module), name)(model)\n"
        "def test_right(): assert run()['y'].tolist() == [-2.0]\n"
        "def test_wrong(): assert run()['y'].tolist() == [2.0]\n"
        "@pytest.mark.parametrize('i', range(6))\n"
        "def test_crash(i): os.abort()\n"
        "@pytest.mark.skip\n"
        "def test_skipped(): pass\n"
    )
    (tests / "test_other.py").write_text("def test_wrong(): assert False\n")
    for name in ("graphcore", "onnxruntime"):
        result = run_checkout("onnx-tests", Runtime(name), tmp_path)
        assert (result.count, result.passed) == (9, 1), result
        crashes = {f"tests.test_add.test_crash[{i}]" for i in range(6)}
        assert set(result.failures) == {"tests.test_add.test_wrong", "tests.test_other.test_wrong", *crashes}


def test_checkout_that_cannot_be_collected(tmp_path: Path) -> None:
    (tmp_path / "array_api_tests").mkdir()
    (tmp_path / "array_api_tests" / "test_one.py").write_text("import package_that_is_missing\n")
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n"
        "    parser.addoption('--max-examples', type=int)\n"
        "    parser.addoption('--disable-deadline', action='store_true')\n"
    )
    with pytest.raises(RunError, match=r"(?s)pytest does not run in .*package_that_is_missing"):
        run_checkout("array-api", Runtime("graphcore"), tmp_path)


def test_folder_that_is_not_a_checkout(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has no folder array_api_tests"):
        run_checkout("array-api", Runtime("graphcore"), tmp_path)


def test_table_keeps_other_rows_and_cells() -> None:
    first = table([Result("a", "onnx", 2000, 1500), Result("b 1.0", "dtypes", 10, 9)], "text")
    again = table([Result("a", "dtypes", 10, 10), Result("b 1.0", "dtypes", 10, 10)], first)
    assert "| a | 1,500 of 2,000 | 10 of 10 |  |  |" in again
    assert "| b 1.0 |  | 10 of 10 |  |  |" in again
    assert again.count("| runtime |") == 1


@pytest.mark.parametrize(
    ("result", "want", "outcome"),
    [
        (np.array([1, 2], np.float32), np.array([1, 2], np.float32), "ok"),
        (np.array([1, 2], np.float32), np.array([1, 3], np.float32), "values"),
        (np.array([1, np.nan], np.float32), np.array([1, np.nan], np.float32), "ok"),
        (np.array([1], np.float64), np.array([1], np.float32), "type: float64[1] for float32[1]"),
        (np.array([1.001], np.float16), np.array([1], np.float16), "near"),
        ([np.array([1], np.int8)], [np.array([1], np.int8)], "ok"),
        ([np.array([1], np.int8)], [np.array([1], np.int8), np.array([1], np.int8)], "type"),
        (None, None, "ok"),
        (np.array(["a"], object), np.array(["b"], object), "values"),
    ],
)
def test_difference_of_results(result: Any, want: Any, outcome: str) -> None:
    assert suites.difference(result, want, 0, 0).startswith(outcome)


def _negation() -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("name", ["graphcore", "onnxruntime", "reference"])
def test_runtimes_load_and_run(name: str) -> None:
    model = RUNTIMES[name]("cpu")(_negation())
    assert list(model.inputs) == ["x"]
    assert model(x=np.array([1, -2], np.float32))[0].tolist() == [-1, 2]


@pytest.mark.full
@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm and Node.js")
def test_onnxruntime_web_loads_and_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WEB_FOLDER, conform._environment(Runtime("onnxruntime-web", "1.30.0"))[WEB_FOLDER])
    with contextlib.closing(WebRuntime()) as web:
        model = web.load(_negation())
        assert model.inputs == ["x"]
        assert model(x=np.array([1, -2], np.float32))[0].tolist() == [-1, 2]
        with pytest.raises(RuntimeError, match="no tensors of bfloat16"):
            model(x=np.zeros(2, ml_dtypes.bfloat16))
        with pytest.raises(RuntimeError, match="ERROR_CODE"):
            web.load(onnx.ModelProto())


@pytest.mark.full
def test_openvino_loads_and_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs that nothing reads are dropped, and tensors of dtypes that NumPy lacks are passed by their bits."""
    path = conform._environment(Runtime("openvino", "2026.4.1"))["PYTHONPATH"]
    monkeypatch.syspath_prepend(path.split(os.pathsep)[0])
    load = RUNTIMES["openvino"]("cpu")
    assert load(_negation())(x=np.array([1, -2], np.float32))[0].tolist() == [-1, 2]
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4):
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        values = [helper.make_tensor_value_info(name, element, [3]) for name in ("unread", "x")]
        node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
        back = helper.make_node("Cast", ["y"], ["z"], to=element)
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])]
        outputs.append(helper.make_tensor_value_info("z", element, [3]))
        graph = helper.make_graph([node, back], "g", values, outputs)
        model = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
        x = np.array([1, -2, 3], dtype)
        wide, narrow = model(unread=x[::-1], x=x)
        assert (wide.dtype, narrow.dtype) == (np.float32, np.dtype(dtype))
        assert wide.tolist() == narrow.astype(np.float32).tolist() == [1, -2, 3]
