"""`import graphcore`: names are imported when they are first used, and a Graph is whole whatever comes first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import graphcore

ROOT = Path(__file__).resolve().parents[2]


def run(code: str) -> str:
    """Run code in a new process in which warnings are errors; return what it prints."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_of_the_package_imports_no_other() -> None:
    result = run("import sys, graphcore; print([m for m in ('numpy', 'ml_dtypes', 'onnx', 'onnxruntime',"
               " 'graphcore.ir') if m in sys.modules])")  # fmt: skip
    assert result == "[]"


def test_names_are_listed_before_they_are_imported() -> None:
    result = run("import graphcore; print(sorted(set(graphcore.__all__) - set(dir(graphcore))))")
    assert result == "[]"


@pytest.mark.full
def test_every_name_is_imported_from_where_it_stands() -> None:
    result = run("import graphcore as gc; print([n for n in gc.__all__ if getattr(gc, n) is None])")
    assert result == "[]"
    assert run("from graphcore import *; print(Graph, ops.add, InferenceSession, patterns, compose)")


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'graphcore' has no attribute 'grpah'"):
        graphcore.grpah  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    "module",
    [
        "array_api",
        "build.declare",
        "build.functions",
        "custom_ops.declaration",
        "graph_methods",
        "ir.graph",
        "ir.symbol",
        "ir.transform.walk",
        "models.llama",
        "onnx.read.reader",
        "onnx.schemas.catalogue",
        "ops",
        "ops.rebinding",
        "passes",
        "promotion",
        "quantization.tensors",
        "runtime",
        "runtime.lowering",
        "runtime.session",
        "surgery",
        "surgery.replacing",
    ],
)
def test_graph_has_its_methods_whichever_module_is_imported_first(module: str) -> None:
    code = f"""
import graphcore.{module}
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType
graph = Graph("g", [TensorType(DType.float32, [2])])
graph.output((graph[0] + 1).cast(DType.float64))
assert Graph.load and Graph.extract and Graph.optimize and Symbol.__matmul__
print(graph.outputs[0].dtype, len(graph.copy().nodes))
"""
    assert run(code) == "float64 2"


def test_graph_is_unpickled_in_a_process_that_imported_nothing(tmp_path: Path) -> None:
    path = tmp_path / "graph"
    run(f"""
import pickle
from graphcore import DType, Graph, TensorType
graph = Graph("g", [TensorType(DType.float32, [2])])
graph.output(graph[0] * 2)
open({str(path)!r}, "wb").write(pickle.dumps(graph))
""")
    assert run(f"import pickle; print(pickle.load(open({str(path)!r}, 'rb')).nodes[0].op_type)") == "Mul"


@pytest.mark.full
def test_threads_that_import_parts_at_once_all_find_them_whole() -> None:
    code = """
import importlib, threading
names = ["ops", "ir.graph", "build.operands", "graph_methods", "promotion", "onnx.read.reader", "runtime.lowering"]
failed = []
start = threading.Barrier(len(names))
def load(name):
    start.wait()
    try:
        importlib.import_module(f"graphcore.{name}")
        from graphcore import DType, Graph, TensorType
        graph = Graph("g", [TensorType(DType.float32, [2])])
        graph[0] + 1
    except BaseException as error:
        failed.append((name, error))
threads = [threading.Thread(target=load, args=(name,)) for name in names]
[t.start() for t in threads]
[t.join(60) for t in threads]
print(failed, [t.is_alive() for t in threads if t.is_alive()])
"""
    for _ in range(3):
        assert run(code) == "[] []"
