"""`graphcore inspect`: what it says of trained models, and of models with hostile names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from graphcore import DType, Graph, TensorType, ops
from graphcore.arrays.external_data import model_bytes
from graphcore.ir.symbol import Constant
from graphcore.onnx.proto.value_protos import split
from tests.cli.conftest import Call
from tests.support.onnx_models import model, value
from tests.support.trained import Trained

Document = Callable[..., Any]


def test_inspect_tells_what_the_file_says(document: Document, trained: Trained) -> None:
    result = document("inspect", trained.file())
    proto = onnx.ModelProto.FromString(split(model_bytes(trained.file()))[0])
    assert result["ir_version"] == proto.ir_version
    assert result["opsets"] == {o.domain or "ai.onnx": o.version for o in proto.opset_import}
    assert result["producer"].startswith(proto.producer_name)
    assert sum(result["operators"].values()) >= len(proto.graph.node)
    assert result["bytes"] == Path(trained.file()).stat().st_size
    graph = trained.graph()
    assert [each["name"] for each in result["inputs"]] == [s.name for s in graph.inputs]
    assert [each["name"] for each in result["outputs"]] == [*graph.output_types]
    weights = [s for s in graph.symbols if isinstance(s.producer, Constant) and s.given_name and s.dtype.is_float]
    count = sum(s.producer.array.size for s in weights if isinstance(s.producer, Constant))
    assert result["parameters"] >= 0.9 * count
    assert result["lacks"]["error"] == ""


def test_inspect_counts_work_when_dims_have_sizes(document: Document, magika: Trained) -> None:
    one = document("inspect", magika.file())
    four = document("inspect", magika.file(), "--dim", "bytes.0=4")
    assert one["flops"] > 0
    assert four["flops"] == pytest.approx(4 * one["flops"], rel=0.01)
    assert four["sizes"] == {"bytes.0": 4}


def test_inspect_gives_work_as_an_expression_of_named_dims(call: Call, document: Document) -> None:
    call("doctor")
    graph = Graph("g", {"x": TensorType(DType.float32, ["batch", 8])})
    graph.output(y=graph["x"] @ graph.weight("w", np.ones((8, 4), np.float32)))
    graph.export("m.onnx", target="onnx")
    result = document("inspect", "m.onnx", "--dim", "batch=3")
    assert (result["flops"], result["flops_expression"]) == (2 * 3 * 8 * 4, "64 * batch")
    assert result["dims"] == {"batch": ["x"]}
    assert result["parameters"] == 32
    assert result["weight_bytes"] == 128


def test_inspect_counts_no_work_of_a_window_that_does_not_fit(call: Call) -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n", 1, "t"])})
    graph.output(y=ops.onnx.Conv(graph["x"], np.ones((2, 1, 256), np.float32), strides=[128]))
    graph.export("conv.onnx")
    status, out, err = call("inspect", "conv.onnx")
    assert (status, err) == (0, "")
    assert "at least 0 FLOPs with n=1, t=1; not counted: Conv x1: a dim is negative for these sizes\n" in out


def test_inspect_lists_nodes_and_weights_when_asked(document: Document, magika: Trained) -> None:
    result = document("inspect", magika.file(), "--nodes", "--weights")
    graph = magika.graph()
    assert [each["results"][0]["name"] for each in result["node_list"]] == [n.outputs[0].name for n in graph.nodes]
    weights = {each["name"]: each for each in result["weight_list"]}
    for name, symbol in graph.weights.items():
        assert isinstance(symbol.producer, Constant)
        array = symbol.producer.array
        assert weights[name]["shape"] == list(array.shape)
        assert weights[name]["zeros"] == int(np.count_nonzero(array == 0))
        if np.isfinite(array).all():
            assert weights[name]["min"] == pytest.approx(float(array.min()))
            assert weights[name]["mean"] == pytest.approx(float(array.mean()), abs=1e-6)


def test_inspect_names_casts_and_what_a_target_lacks(call: Call, document: Document) -> None:
    call("doctor")
    graph = Graph("g", {"x": TensorType(DType.bfloat16, [2]), "i": TensorType(DType.int32, [2])})
    graph.output(y=graph["x"] + graph["i"])
    graph.export("m.onnx", target="onnx")
    result = document("inspect", "m.onnx")
    (cast,) = result["casts"]
    assert (cast["from"], cast["to"]) == ("int32", "bfloat16")
    assert "the file" in cast["why"]
    assert ("Add", "bfloat16") in [(each["operator"], each["dtype"]) for each in result["lacks"]["changes"]]
    cuda = document("inspect", "m.onnx", "--provider", "cuda")
    assert cuda["lacks"]["target"] == "cuda"
    text = call("inspect", "m.onnx")[1]
    assert "int32 -> bfloat16" in text
    assert "Add bfloat16" in text


def test_inspect_prints_sections_when_there_is_no_json(call: Call, magika: Trained) -> None:
    status, out, err = call("inspect", magika.file(), "--nodes", "--weights")
    assert (status, err) == (0, "")
    for section in ("inputs and outputs", "operators", "dtypes", "layers", "casts", "nodes", "weights"):
        assert f"\n{section}\n" in out
    assert "FLOPs" in out
    assert "\x1b" not in out


def test_inspect_escapes_names_when_they_move_the_cursor(call: Call) -> None:
    evil = "x\x1b]0;owned\x07\r\u202egnp\n"
    node = helper.make_node("Identity", [evil], ["y\x1b[2J"])
    proto = model([node], [value(evil, TensorProto.FLOAT, [2])], [value("y\x1b[2J", TensorProto.FLOAT, [2])])
    proto.producer_name = "\x1b[31mred"
    Path("m.onnx").write_bytes(proto.SerializeToString())
    status, out, err = call("inspect", "m.onnx", "--nodes")
    assert status == 0, err
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(out + err)
    assert "\\x1b]0;owned\\x07\\r\\u202egnp\\n" in out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["gone.onnx"], "gone.onnx is not a file"),
        (["m.onnx", "--dim", "width=3"], "no dim of an input is called 'width'"),
        (["m.onnx", "--provider", "abacus"], "'abacus'"),
        (["text.onnx"], "ModelError"),
        (["half.onnx"], "ModelError"),
    ],
)
def test_inspect_says_what_is_wrong(call: Call, argv: list[str], words: str) -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n"])})
    graph.output(y=-graph["x"])
    graph.export("m.onnx")
    Path("text.onnx").write_text("no model")
    content = Path("m.onnx").read_bytes()
    Path("half.onnx").write_bytes(content[: len(content) // 2])
    status, out, err = call("inspect", *argv)
    assert (status, out) == (1, "")
    assert words in err
    assert "  help: " in err
    assert "Traceback" not in err
