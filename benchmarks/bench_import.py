"""New processes, modules compiled already: imports, and the first result of a file, of a graph, and of a command.

    python -m benchmarks.bench_import

All of graphcore that builds graphs is beside the import of onnx; a file of one node that graphcore or onnx.helper
wrote, and commands on it, beside onnxruntime alone; a graph of one node beside onnx.helper with onnxruntime. Processor
time of the whole process.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import TensorProto, helper

import graphcore as gc
from benchmarks.bench_cli import processor
from benchmarks.timing import Bounds, Ratio

BOUND = 1.2
ROUNDS = 21


def main() -> int:
    bounds = Bounds()
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        first_results(bounds, Path(cache), environment)
    return bounds.exit_code()


def first_results(bounds: Bounds, folder: Path, environment: Mapping[str, str]) -> None:
    own, other = folder / "own.onnx", folder / "other.onnx"
    graph = gc.Graph("g", {"x": gc.TensorType("float32", ["n"])})
    graph.output(y=graph["x"] + 1.0)
    graph.export(own)
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    parts = [helper.make_node("Neg", ["x"], ["y"])], "g", value[:1], value[1:]
    onnx.save(
        helper.make_model(helper.make_graph(*parts), opset_imports=[helper.make_opsetid("", 17)], ir_version=8), other
    )
    first = ("-m", "benchmarks.first_result")
    alone, built = (*first, "onnxruntime", own), (*first, "helper")
    importing = ("-c", "import graphcore; graphcore.Graph"), ("-c", "import onnx")
    for what, arguments, peer, most in (
        ("import what builds graphs, beside import onnx", *importing, BOUND),
        ("a file of graphcore", (*first, "graphcore", own), alone, 1.7),
        ("a file of onnx.helper", (*first, "graphcore", other), alone, 1.7),
        ("a graph, beside onnx.helper", (*first, "graph"), built, 1.3),
        ("graphcore inspect", ("-m", "graphcore", "inspect", own), alone, 2.9),
        ("graphcore check", ("-m", "graphcore", "check", own), alone, 2.9),
    ):
        commands = [[*map(str, command)] for command in (arguments, peer)]
        pairs = [[processor(command, environment) for command in commands] for _ in range(ROUNDS + 1)]
        ours, theirs = zip(*pairs[1:], strict=True)
        bounds.ratio(f"new process: {what}", Ratio.of(ours, theirs), most)


if __name__ == "__main__":
    sys.exit(main())
