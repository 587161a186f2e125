"""The text of a graph as Python source: loops, names, layout, edits, and graphs that cannot be written."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphcore as gc
from graphcore import Buffer, DType, Graph, TensorType, ops
from graphcore.errors import GraphError
from graphcore.models import encoder
from tests.cli.conftest import Call
from tests.cli.conftest import call as call  # a fixture
from tests.models.test_encoder import REFERENCES
from tests.support import pytorch_exports
from tests.support.decoders import some
from tests.support.model_fields import decompiled
from tests.support.onnx_models import model, value

BERT = {**REFERENCES["bert"]["config"], "num_hidden_layers": 12}


def bert() -> Graph:
    config = encoder.Config.read(BERT)
    return encoder.build(config, some(encoder.shapes(config)))


def executed(path: Path, text: str | None = None) -> Graph:
    """Return the graph of a module; text: in place of what the file has."""
    space: dict[str, Any] = {"__file__": str(path)}
    exec(compile(text or path.read_text(), str(path), "exec"), space)
    graph = space["graph"]
    assert isinstance(graph, Graph)
    return graph


def again(graph: Graph, tmp_path: Path, edit: Callable[[str], str] = str) -> Graph:
    """Return the graph of the source of a graph, after an edit of the text."""
    path = tmp_path / "model.py"
    text = graph.to_python(path)
    assert path.read_text() == text
    return executed(path, edit(text))


def test_layers_become_a_function_and_a_loop(tmp_path: Path) -> None:
    graph = bert()
    text = graph.to_python(tmp_path / "bert.py")
    assert "for i in range(12):\n    x = layer(x, " in text
    assert 'p = f"encoder.layer.{i}."' in text
    assert 'w(p + "attention.self.query.weight")' in text
    assert len(text.splitlines()) <= 150 < len(graph.nodes)
    assert executed(tmp_path / "bert.py").to_onnx(target="onnx") == graph.to_onnx(target="onnx")


def test_source_is_formatted_and_typed(tmp_path: Path) -> None:
    graphs = {"bert": bert()}
    for name in ("encoder script", "lstm dynamo", "causal attention script", "integers dynamo"):
        graphs[name.replace(" ", "_")] = Graph.load(pytorch_exports.load(name))
    for name, graph in graphs.items():
        graph.to_python(tmp_path / f"{name}.py")
    command = [sys.executable, "-m"]
    for arguments in (["ruff", "format", "--isolated", "--check", "."], ["ruff", "check", "--isolated", "."]):
        subprocess.run([*command, *arguments], cwd=tmp_path, check=True)
    paths = [str(path) for path in tmp_path.glob("*.py")]
    subprocess.run(
        [*command, "mypy", "--config-file=", "--strict", "--follow-imports=silent", *paths], cwd=tmp_path, check=True
    )


def test_bodies_and_functions(tmp_path: Path) -> None:
    @gc.function
    def twice(x: Any) -> Any:
        return x + x

    graph = Graph("bodies", {"x": TensorType(DType.float32, ["n"]), "k": TensorType(DType.int64, [])})
    x, k = graph.inputs
    y = ops.cond(k > 2, lambda: twice(x), lambda: x * 3)
    (last,) = ops.while_loop(lambda v: ops.max(v) < 100, lambda v: (v * 2 + y,), (y + 1,))
    graph.output(last=last)
    other = again(graph, tmp_path)
    run = gc.InferenceSession().load
    feeds = {"x": np.array([1.0, 2.0, 3.0], np.float32), "k": 5}
    np.testing.assert_array_equal(run(graph)(**feeds)[0], run(other)(**feeds)[0])
    assert "graph.subgraph(" in graph.to_python()


@pytest.mark.parametrize(
    "name", ["int4", "uint2", "float4_e2m1", "float6_e2m3fn", "float8_e4m3fn", "bfloat16", "uint64"]
)
def test_wide_and_narrow_dtypes_round_trip(name: str, tmp_path: Path) -> None:
    dtype = getattr(DType, name)
    graph = Graph("narrow", {"x": TensorType(dtype, ["n", 12])})
    weight = graph.weight("w", np.arange(12).astype(np.float32).astype(dtype.numpy))
    graph.output(y=ops.where(graph.constant([True] * 12), graph[0], weight))
    other = again(graph, tmp_path)
    assert not graph.diff(other).nodes
    assert other.outputs[0].dtype is dtype


def test_custom_domains_defaults_and_strings(tmp_path: Path) -> None:
    names = numpy_helper.from_array(np.array(["a", "b'\"", "c\n"] * 5, object), "names")
    nodes = [
        helper.make_node("Own", ["x"], ["h"], domain="org.example", scale=2.0, words=["p", "q"]),
        helper.make_node("Gather", ["names", "at"], ["y"]),
    ]
    inputs = [value("x", TensorProto.FLOAT, [3]), value("at", TensorProto.INT64, [2])]
    outputs = [value("h", TensorProto.FLOAT, [3]), value("y", TensorProto.STRING, [2])]
    at = numpy_helper.from_array(np.array([0, 4]), "at")
    proto = model(nodes, inputs, outputs, [names, at])
    proto.opset_import.add(domain="org.example", version=1)
    graph = Graph.load(proto, defaults=True)
    other = again(graph, tmp_path, lambda text: text.replace("graph = graph.with_fields(tensors)\n", ""))
    assert not [change for change in graph.diff(other).nodes if change.kind in "+-"]
    assert other.defaults["at"].tolist() == [0, 4]


def test_edited_source_keeps_the_names_that_are_still_there(tmp_path: Path) -> None:
    graph = Graph.load(pytorch_exports.load("mlp script"))
    before = {s.name for s in graph.symbols}
    other = again(graph, tmp_path, lambda text: text.replace("ops.relu(", "ops.tanh("))
    assert [n.op_type for n in other.nodes] == [n.op_type.replace("Relu", "Tanh") for n in graph.nodes]
    assert {graph.nodes[0].outputs[0].name, graph.outputs.names[0]} <= {s.name for s in other.symbols} & before


def test_repeated_nodes_that_nothing_reads(tmp_path: Path) -> None:
    graph = Graph("dead", {"x": TensorType(DType.float32, [9])})
    for i in range(9):
        ops.relu(graph["x"] * graph.weight(f"layer.{i}.w", np.full(9, i, np.float32)))
    graph.output(y=graph["x"] + 1)
    assert again(graph, tmp_path).to_onnx(target="onnx") == graph.to_onnx(target="onnx")


def test_items_of_lists_are_read_by_bodies_and_other_loops(tmp_path: Path) -> None:
    graph = Graph("items", {"x": TensorType(DType.float32, [9]), "k": TensorType(DType.int64, [])})
    x, k = graph.inputs
    steps = [x]
    for i in range(6):
        weight = graph.weight(f"layer.{i}.w", np.full(9, i, np.float32))
        steps.append(ops.relu(ops.tanh(steps[-1] * weight) + weight))
    for i in range(6):
        weight = graph.weight(f"head.{i}.w", np.full(9, i, np.float32))
        x = ops.sigmoid(x * steps[2] + weight) - steps[3]
    graph.output(y=x, z=ops.cond(k > 2, lambda: steps[4], lambda: steps[5]))
    text = graph.to_python()
    assert text.count("for ") == 2
    assert again(graph, tmp_path).to_onnx(target="onnx") == graph.to_onnx(target="onnx")


EVIL = 'a"""\n{__import__("os").abort()}\\'


def test_names_of_files_are_never_code(tmp_path: Path) -> None:
    weights = [numpy_helper.from_array(np.eye(9, dtype=np.float32), f"{EVIL}.{i}.w}}") for i in range(9)]
    values = [EVIL, *(f"{EVIL}{i}" for i in range(9))]
    nodes = [
        helper.make_node("MatMul", [values[i], f"{EVIL}.{i}.w}}"], [values[i + 1]], name=f"n{EVIL}{i}")
        for i in range(9)
    ]
    values[0], values[9] = (name.replace("\n", "") for name in (values[0], values[9]))
    nodes[0].input[0], nodes[8].output[0] = values[0], values[9]
    start, end = ([value(values[i], TensorProto.FLOAT, [f"d{EVIL}", 9])] for i in (0, 9))
    proto = model(nodes, start, end, weights)
    proto.graph.name = EVIL
    graph = Graph.load(proto)
    assert graph.to_onnx(target="onnx") == again(graph, tmp_path).to_onnx(target="onnx")


def test_graphs_that_have_no_source() -> None:
    graph = Graph("state", {"x": TensorType(DType.float32, [2]), "total": Buffer(DType.float32, [2])})
    graph.output(y=graph["x"])
    with pytest.raises(GraphError, match=r"to_python: graph 'state' has no expression: it has buffers\n.*help: "):
        graph.to_python()


def test_bodies_of_other_operators_are_an_error() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, [2])})
    body = Graph("body", {"y": TensorType(DType.float32, [2])})
    body.output(z=-body["y"])
    types = [TensorType(DType.float32, [2])]
    graph.output(y=graph.op("org.example::Each", [graph["x"]], {"body": body}, types)[0])
    why = r"to_python: node 'y' \(Each\) has bodies, and an operator or attributes that are not ONNX's\n +help: "
    with pytest.raises(GraphError, match=why):
        graph.to_python()


def test_a_name_that_no_graph_can_have_is_an_error() -> None:
    proto = model(
        [helper.make_node("Neg", ["a\nb"], ["y"])],
        [value("a\nb", TensorProto.FLOAT, [2])],
        [value("y", TensorProto.FLOAT, [2])],
    )
    why = r"cannot be built again: input: 'a\\nb' is not a valid name\n +help: graph.rename"
    with pytest.raises(GraphError, match=why):
        Graph.load(proto).to_python()


def test_notebooks_show_highlighted_source() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, [2])})
    graph.output(y=graph["x"] * 2)
    text = graph.to_python()
    html = text._repr_html_()
    assert "<span" in html
    assert "graph" in html


def test_command_writes_the_module_and_its_arrays(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    graph = Graph("g", {"x": TensorType(DType.float32, ["n", 9])})
    graph.output(y=graph["x"] @ graph.weight("w", np.eye(9, dtype=np.float32)))
    graph.export(path, target="onnx")
    status, out, err = call("decompile", str(path), "-o", "model.py")
    assert (status, out, err) == (0, "wrote model.py: 21 lines\n", "")
    assert executed(tmp_path / "model.py").to_onnx(target="onnx") == Graph.load(path).to_onnx(target="onnx")
    _, out, _ = call("decompile", str(path))
    assert 'tensors = load_tensors("g.safetensors")' in out


@pytest.mark.parametrize("name", ["int4", "uint4", "float4_e2m1fn", "float8_e4m3fn", "bfloat16"])
def test_narrow_weights_of_a_file_round_trip(name: str) -> None:
    weight = numpy_helper.from_array((np.arange(33) % 6).astype(getattr(ml_dtypes, name)), "w")
    nodes = [helper.make_node("Cast", ["w"], ["d"], to=TensorProto.FLOAT), helper.make_node("Add", ["x", "d"], ["y"])]
    x, y = (value(end, TensorProto.FLOAT, [33]) for end in "xy")
    assert decompiled(model(nodes, [x], [y], [weight], opset=23)) == "ok"


def test_narrow_weights_are_read_as_bits(tmp_path: Path) -> None:
    graph = Graph("bits", {"x": TensorType(DType.float32, [16])})
    weight = graph.weight("w", np.arange(-8, 8).astype(ml_dtypes.int4))
    graph.output(y=graph["x"] * weight.cast(DType.float32))
    other = again(graph, tmp_path)
    feeds = np.ones(16, np.float32)
    assert gc.InferenceSession().load(other)(feeds)[0].tolist() == [float(i) for i in range(-8, 8)]
