"""The errors that a user meets most, as text: `messages.txt` is read as a whole when one changes.

    python -m tests.project.test_messages

writes the file again with the messages of today, for review.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import graphcore as gc
from graphcore import Dim, DType, Graph, InferenceSession, TensorType, ops
from graphcore.cli import main
from graphcore.types.tensor_types import Shape

FILE = Path(__file__).with_name("messages.txt")
_SOURCE = "example.py"


def examples() -> list[tuple[str, str, str]]:
    """Return section, code and message of each example of the file."""
    results, section = [], ""
    for block in FILE.read_text(encoding="utf-8").split("\n\n"):
        if block.startswith("# "):
            section = block.removeprefix("# ").strip()
        elif block.startswith(">>> "):
            lines = block.splitlines()
            code = [line[4:] for line in lines if line.startswith((">>> ", "... "))]
            results.append((section, "\n".join(code), "\n".join(lines[len(code) :]).strip("\n")))
    return results


def namespace() -> dict[str, Any]:
    """Return the names that the examples use, beside files in the current folder."""
    types = {
        "x": TensorType("float32", ["n", 4]),
        "i": TensorType("int32", ["n", 4]),
        "b": TensorType("bool", ["n"]),
        "s": TensorType("string", ["n"]),
        "fixed": TensorType("float32", [2, 4]),
        "image": TensorType("float32", [1, 3, 8, 8]),
        "unknown": TensorType("float32", Shape.unknown()),
    }
    graph = Graph("net", types)
    other = Graph("other", {"x": TensorType("float32", ["n", 4])})
    strict = Graph("strict", {"x": TensorType("float32", [2]), "i": TensorType("int32", [2])}, promotion="array_api")
    good = Graph("good", {"x": TensorType("float32", ["n", 4])})
    good.output(y=ops.relu(good["x"] @ good.constant(np.eye(4, dtype=np.float32), name="w")))
    good.export("good.onnx")
    two = Graph("two", {"x": TensorType("float32", ["n", 4]), "y": TensorType("float32", ["n", 4])})
    two.output(z=two["x"] + two["y"])
    reshaping = Graph("reshaping", {"x": TensorType("float32", ["n", 4])})
    reshaping.output(y=ops.rebind(reshaping["x"], [2, 4]))
    indexing = Graph("indexing", {"i": TensorType("int64", [1])})
    indexing.output(y=ops.gather(indexing.constant(np.zeros(3, np.float32)), indexing["i"]))
    load = InferenceSession().load
    _write_files()
    return {
        **{name: graph[name] for name in types},
        "graph": graph,
        "other": other,
        "strict": strict,
        "good": good,
        "load": load,
        "command": command,
        "gc": gc,
        "np": np,
        "ops": ops,
        "DType": DType,
        "Dim": Dim,
        "Graph": Graph,
        "TensorType": TensorType,
        "InferenceSession": InferenceSession,
        "X": np.ones((2, 4), np.float32),
        "model": load(good),
        "two": load(two),
        "reshaping": load(reshaping),
        "indexing": load(indexing),
    }


def _write_files() -> None:
    """Write the files that the examples load."""
    Path("folder").mkdir()
    Path("text.txt").write_text("text")
    Path("empty.onnx").write_bytes(b"")
    Path("cut.onnx").write_bytes(Path("good.onnx").read_bytes()[:-20])
    Path("model.gguf").write_bytes(b"GGUF")

    def node(op_type: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(op_type, inputs, outputs, name=f"node_{outputs[0]}", **attributes)

    def file(name: str, *nodes: onnx.NodeProto, opset: int = 21, ir: int = 10, domain: str = "", **more: Any) -> None:
        value = helper.make_tensor_value_info
        kinds = more.get("kinds", (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT))
        inputs, outputs = [value("x", kinds[0], ["n", 4])], [value("y", kinds[1], more.get("dims", ["n", 4]))]
        graph = helper.make_graph(nodes, "net", inputs, outputs, more.get("weights", []))
        opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
        Path(f"{name}.onnx").write_bytes(
            helper.make_model(graph, opset_imports=opsets, ir_version=ir).SerializeToString()
        )

    file("future", node("Relu", ["x"], ["y"]), opset=99)
    file("ir99", node("Relu", ["x"], ["y"]), ir=99)
    file("unknown_op", node("Rellu", ["x"], ["y"]))
    file("cycle", node("Add", ["x", "z"], ["y"]), node("Relu", ["y"], ["z"]))
    file("missing_input", node("Add", ["x", "z"], ["y"]))
    file("twice", node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"]))
    file("wrong_types", node("Not", ["x"], ["y"]))
    file("wrong_shapes", node("MatMul", ["x", "x"], ["y"]), dims=[2, 4])
    file(
        "own_domain", helper.make_node("Fast", ["x"], ["y"], name="node_y", domain="com.example"), domain="com.example"
    )
    for name, location in (("external", "weights.bin"), ("escape", "../weights.bin")):
        weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[4, 4])
        weight.data_location = onnx.TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=location)
        file(name, node("MatMul", ["x", "w"], ["y"]), weights=[weight])


class CommandFailed(Exception):
    """What a command printed to standard error."""


def command(line: str) -> None:
    """Run a command of the command line. Raises `CommandFailed` where it prints an error."""
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(io.StringIO()):
        try:
            is_wrong = bool(main(line.split()))
        except SystemExit as error:
            is_wrong = bool(error.code)
    if is_wrong:
        raise CommandFailed(stderr.getvalue())


def message_of(code: str, names: dict[str, Any]) -> str:
    """Return the error of code, with its class; "" where there is none."""
    linecache.cache[_SOURCE] = (len(code), None, code.splitlines(keepends=True), _SOURCE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(code, _SOURCE, "exec"), names)
    except Exception as error:
        text = (
            str(error).strip() if isinstance(error, CommandFailed) else f"{type(error).__name__}: {str(error).strip()}"
        )
        return _without_places(text)
    return ""


def _without_places(text: str) -> str:
    """Return a message without lines that this file gives, blank lines and temporary folders."""
    text = re.sub(
        rf"{Path(__file__).name}:\d+", "setup.py", text.replace(f"{os.getcwd()}/", "").replace(os.getcwd(), ".")
    )
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


@contextlib.contextmanager
def in_folder(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the names of the examples, in a folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield namespace()
    finally:
        os.chdir(before)


@pytest.mark.parametrize("section", dict.fromkeys(section for section, *_ in examples()))
def test_messages_are_those_of_the_file(section: str, tmp_path: Path) -> None:
    with in_folder(tmp_path) as names:
        for name, code, text in examples():
            if name == section:
                assert f"{code}\n{message_of(code, {**names})}" == f"{code}\n{text}"


def test_file_has_150_messages_and_no_code_twice() -> None:
    codes = [code for _, code, _ in examples()]
    assert len(codes) >= 150
    assert len({*codes}) == len(codes)


if __name__ == "__main__":
    results, last = [], ""
    with tempfile.TemporaryDirectory() as temporary, in_folder(Path(temporary)) as names:
        for section, code, _ in examples():
            if section != last:
                results.append(f"# {section}")
                last = section
            shown = "\n".join(f"{'...' if i else '>>>'} {line}" for i, line in enumerate(code.splitlines()))
            results.append(f"{shown}\n{message_of(code, {**names}) or 'NO ERROR'}")
    FILE.write_text("\n\n".join(results) + "\n", encoding="utf-8")
    sys.exit(0)
