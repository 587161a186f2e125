"""The modules that each command imports: no more than it uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import graphcore as gc
from graphcore.cli.arguments import options
from graphcore.ir.graph import Precision, TargetName
from graphcore.runtime.lowering import PRECISIONS, TARGETS

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = ("numpy", "ml_dtypes", "onnx", "onnxruntime", "rich", "shtab")

COMMANDS = (
    "run", "check", "convert", "quantize", "doctor", "promote", "inspect", "view", "bench", "compare", "diff",
    "extract", "rename", "set-dims", "astype", "mixed-precision", "completion", "conform",
)  # fmt: skip

CODE = """
import contextlib, io, json, sys
from graphcore.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    status = main(sys.argv[1:])
print(json.dumps([status, sorted(sys.modules)]))
"""


def imported(*argv: str) -> tuple[int, list[str]]:
    """Run a command in a new process; return its exit status and the modules that it had at the end."""
    done = subprocess.run([sys.executable, "-c", CODE, *argv], cwd=ROOT, capture_output=True, text=True, check=True)
    status, modules = json.loads(done.stdout)
    return status, modules


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        ("--help", 0),
        ("--version", 0),
        ("", 0),
        ("nothing", 2),
        *((f"{command} --help", 0) for command in COMMANDS),
        ("run", 2),
        ("convert a b --target gpu", 2),
    ],
)
def test_help_and_refusal_import_no_package(argv: str, status: int) -> None:
    got, modules = imported(*argv.split())
    assert got == status
    assert not set(PACKAGES) & set(modules)
    assert not [name for name in modules if name.startswith(("graphcore.ir", "graphcore.ops", "graphcore.promotion"))]


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        ("int8 uint64", 0),
        ("float8 bfloat16 --system max", 0),
        ("int23 tf32 --system allo_hls", 0),
        ("i8 i8 --system x", 1),
    ],
)
def test_promote_imports_no_package_and_no_graphs(argv: str, status: int) -> None:
    got, modules = imported("promote", *argv.split())
    assert got == status
    assert not set(PACKAGES) & set(modules)
    assert not [name for name in modules if name.startswith(("graphcore.ir", "graphcore.ops", "graphcore.runtime.ort"))]


@pytest.mark.skipif(os.name != "posix", reason="the command reads files in this process elsewhere")
def test_check_imports_no_package_where_a_worker_reads_the_file(tmp_path: Path) -> None:
    graph = gc.Graph("g", {"x": gc.TensorType("float32", ["n"])})
    graph.output(y=graph["x"] + 1.0)
    graph.export(tmp_path / "m.onnx")
    got, modules = imported("check", str(tmp_path / "m.onnx"))
    assert got == 0
    assert not set(PACKAGES) & set(modules)
    assert not [name for name in modules if name.startswith(("graphcore.ir", "graphcore.ops", "graphcore.onnx"))]


def test_choices_are_those_of_the_runtime() -> None:
    targets: tuple[TargetName, ...] = tuple(TARGETS)
    precisions: tuple[Precision, ...] = PRECISIONS
    assert (targets, precisions) == (options.TARGETS, options.PRECISIONS)
