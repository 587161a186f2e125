"""`graphcore extract`, `rename`, `set-dims`, `astype` (docs/howto/edit_model.md) and `mixed-precision` on files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType
from tests.cli.conftest import Call
from tests.support.trained import Trained

Document = Callable[..., Any]


@pytest.fixture
def small(call: Call) -> str:
    """A model with two layers, in the folder of the test."""
    call("doctor")
    graph = Graph("g", {"x": TensorType(DType.float32, ["batch", 16])})
    w = np.linspace(-1, 1, 16 * 64, dtype=np.float32)
    hidden = graph["x"] @ graph.weight("w", w.reshape(16, 64))
    hidden.name = "hidden"
    graph.output(y=hidden @ graph.weight("v", w.reshape(64, 16)))
    graph.export("m.onnx", target="onnx")
    return "m.onnx"


def run(path: str, **feeds: Any) -> list[Any]:
    return gc.InferenceSession().load(path)(**feeds)


def test_extract_writes_a_part(small: str, document: Document) -> None:
    result = document("extract", small, "head.onnx", "--inputs", "h=hidden", "--outputs", "y")
    assert [each["name"] for each in result["inputs"]] == ["h"]
    assert result["nodes"] == 1
    x = np.ones((2, 16), np.float32)
    document("extract", small, "body.onnx", "--outputs", "hidden")
    (hidden,) = run("body.onnx", x=x)
    assert np.array_equal(run("head.onnx", h=hidden)[0], run(small, x=x)[0])


def test_rename_gives_other_names(small: str, document: Document) -> None:
    result = document("rename", small, "o.onnx", "x=image", "y=scores", "batch=n")
    assert result["inputs"] == [{"name": "image", "type": "float32[n, 16]"}]
    assert [each["name"] for each in result["outputs"]] == ["scores"]


def test_set_dims_fixes_and_frees(small: str, document: Document) -> None:
    assert document("set-dims", small, "o.onnx", "batch=4")["inputs"][0]["type"] == "float32[4, 16]"
    assert document("set-dims", "o.onnx", "p.onnx", "x=[rows, 16]")["inputs"][0]["type"] == "float32[rows, 16]"
    assert document("set-dims", small, "q.onnx", "batch=n * 2")["inputs"][0]["type"] == "float32[2 * n, 16]"


def test_astype_computes_in_another_dtype(small: str, document: Document) -> None:
    whole = document("astype", small, "h.onnx", "float16")
    assert whole["inputs"][0]["type"] == "float32[batch, 16]"
    assert document("astype", small, "i.onnx", "float16", "--io")["inputs"][0]["type"] == "float16[batch, 16]"
    dtypes = {i.data_type for i in onnx.load("h.onnx").graph.initializer}
    assert dtypes == {onnx.TensorProto.FLOAT16}


@pytest.fixture
def exported(call: Call) -> str:
    """A file with a dim that is not a name and a dim that is an expression, as exporters write them."""
    call("doctor")
    info = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["past length", "past_length + 1", "batch"])
        for name in ("x", "y")
    ]
    nodes = [onnx.helper.make_node("Relu", ["x"], ["y"])]
    proto = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", info[:1], info[1:]), ir_version=9)
    proto.opset_import[0].version = 18
    onnx.save(proto, "e.onnx")
    return "e.onnx"


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        (["past length=4"], "4, past_length + 1, batch"),
        (["'past length'=4", "past_length=7"], "4, 8, batch"),
        (['"past length"=past', "batch='b'"], "past, past_length + 1, b"),
        (["past_length + 1=5"], "?, 5, batch"),
        (["'x'=['p', \"q\", ?]"], "p, q, ?"),
        (["past length=4", "x=[2, 3, 5]"], "4, 3, 5"),
    ],
)
def test_set_dims_takes_dims_as_the_file_writes_them(
    exported: str, document: Document, dims: list[str], shape: str
) -> None:
    result = document("set-dims", exported, "o.onnx", *dims)
    assert [each["type"] for key in ("inputs", "outputs") for each in result[key]] == [f"float32[{shape}]"] * 2


@pytest.mark.parametrize("dim", ["batch=0", "batch=00", "x=[0, 2, 3]", "batch=n * 0", "'batch'=0", "x=[1, 2, -3]"])
def test_set_dims_refuses_sizes_below_1(call: Call, exported: str, dim: str) -> None:
    status, out, err = call("set-dims", exported, "o.onnx", dim)
    assert (status, out) == (1, "")
    assert err.startswith(f"ShapeError: set-dims: {dim}: a size must be at least 1\n")
    assert not Path("o.onnx").exists()


def test_set_dims_accepts_a_list_with_a_dim_that_is_0(call: Call, document: Document) -> None:
    call("doctor")
    graph = Graph("g", {"x": TensorType(DType.float32, [0, 4])})
    graph.output(y=graph["x"] + 1)
    graph.export("m.onnx", target="onnx")
    assert document("set-dims", "m.onnx", "o.onnx", "x=[0, n]")["inputs"][0]["type"] == "float32[0, n]"


def test_unknown_dims_are_suggested(call: Call, exported: str) -> None:
    err = call("set-dims", exported, "o.onnx", "past lenght=4")[2]
    assert (
        "no input has a dim called 'past lenght'\n  help: did you mean past length or past_length? dims: 'batch', "
        in err
    )
    assert "did you mean batch?" in call("run", exported, "--random", "--dim", "bacth=4")[2]
    with pytest.raises(gc.errors.GraphError, match=r"did you mean batch\? the inputs: x: float32"):
        Graph.load(exported).with_dims(bacth=4)


@pytest.mark.parametrize(
    "argv", [["set-dims", "{}", "o.onnx", "bytes=[3,2048]"], ["astype", "{}", "o.onnx", "float64"]]
)
def test_rewritten_trained_models_run(call: Call, magika: Trained, argv: list[str]) -> None:
    status, out, err = call(*(each.format(magika.file()) for each in argv))
    assert status == 0, err
    assert out.startswith("o.onnx: ")
    feed = np.tile(magika.feeds()["bytes"][:1], (3, 1))
    (wanted,) = run(magika.file(), bytes=feed)
    (result,) = run("o.onnx", bytes=feed)
    assert np.abs(result - wanted).max() < 0.01


def test_weights_stay_beside_the_model_when_they_were(call: Call, document: Document, small: str) -> None:
    Graph.load(small).export("e.onnx", external_data=True, target="onnx")
    result = document("rename", "e.onnx", "o.onnx", "x=image")
    assert result["external_data"] == "o.onnx.data"
    assert Path("o.onnx.data").stat().st_size >= 2 * 16 * 64 * 4
    assert document("rename", small, "p.onnx", "x=image")["external_data"] is None
    assert document("rename", small, "r.onnx", "x=image", "--external-data")["external_data"] == "r.onnx.data"
    x = np.ones((1, 16), np.float32)
    assert np.array_equal(run("o.onnx", image=x)[0], run(small, x=x)[0])


def test_model_is_replaced_when_it_is_written_onto_itself(call: Call, document: Document, small: str) -> None:
    x = np.ones((1, 16), np.float32)
    wanted = run(small, x=x)[0]
    document("rename", small, small, "x=image")
    assert np.array_equal(run(small, image=x)[0], wanted)
    document("rename", small, small, "image=x", "--external-data")
    document("rename", small, small, "x=image")
    assert np.array_equal(run(small, image=x)[0], wanted)
    assert sorted(path.name for path in Path().iterdir()) == ["m.onnx", "m.onnx.data"]


MIXED = ["mixed-precision", "m.onnx", "o.onnx", "--max-error", "1e-3"]
REFUSED = {
    "extract: no such value": (["extract", "m.onnx", "o.onnx", "--outputs", "z"], "'z'"),
    "extract: twice": (["extract", "m.onnx", "o.onnx", "--outputs", "y", "y=hidden"], "two values"),
    "extract: no such model": (["extract", "gone.onnx", "o.onnx", "--outputs", "y"], "gone.onnx is not a file"),
    "extract: nowhere": (["extract", "m.onnx", "no/o.onnx", "--outputs", "y"], "no/o.onnx"),
    "rename: nothing": (["rename", "m.onnx", "o.onnx"], "no name is given"),
    "rename: no such name": (["rename", "m.onnx", "o.onnx", "z=a"], "'z'"),
    "rename: taken": (["rename", "m.onnx", "o.onnx", "x=y"], "'y'"),
    "rename: twice": (["rename", "m.onnx", "o.onnx", "x=a", "x=b"], "two new names"),
    "set-dims: no such dim": (["set-dims", "m.onnx", "o.onnx", "width=3"], "'width'"),
    "set-dims: wrong rank": (["set-dims", "m.onnx", "o.onnx", "x=[1]"], "x"),
    "set-dims: no dim": (["set-dims", "m.onnx", "o.onnx", "batch=*"], "*"),
    "set-dims: negative": (["set-dims", "m.onnx", "o.onnx", "batch=-3"], "-3"),
    "set-dims: twice": (["set-dims", "m.onnx", "o.onnx", "batch=3", "batch=4"], "given twice"),
    "astype: no such dtype": (["astype", "m.onnx", "o.onnx", "float99"], "float99"),
    "astype: no float": (["astype", "m.onnx", "o.onnx", "int8"], "int8"),
    "astype: keeps nothing": (["astype", "m.onnx", "o.onnx", "float16", "--keep", "Zip"], "Zip"),
    "mixed-precision: no samples": ([*MIXED, "--samples", "x.npz"], "x.npz cannot be read: No such file"),
    "mixed-precision: a model as samples": ([*MIXED, "--samples", "m.onnx"], "m.onnx cannot be read"),
    "opset": (["rename", "m.onnx", "o.onnx", "x=a", "--opset", "3"], "opset must be 17 to 28, got 3"),
}


@pytest.mark.parametrize(("argv", "words"), REFUSED.values(), ids=REFUSED)
def test_errors_write_nothing(call: Call, small: str, argv: list[str], words: str) -> None:
    status, out, err = call(*argv)
    assert (status, out) == (1, "")
    assert words in err
    assert "internal error" not in err
    assert [path.name for path in Path().iterdir()] == ["m.onnx"]


# mixed-precision


def samples(path: str, *shape: int, **more: Any) -> str:
    np.savez(path, x=np.random.default_rng(0).standard_normal(shape).astype(np.float32), **more)
    return path


def test_mixed_precision_writes_a_narrow_model_and_the_report(small: str, call: Call, document: Document) -> None:
    files = samples("a.npz", 4, 16), samples("b.npz", 3, 5, 16)  # one sample, and three
    argv = ["mixed-precision", small, "o.onnx", *(each for file in files for each in ("--samples", file))]
    result = document(*argv, "--max-error", "1e-2", "--plot", "c.svg", "--resume", "t.json")
    assert (result["met"], result["plot"], result["bytes"]) == (True, "c.svg", Path("o.onnx").stat().st_size)
    assert result["bytes"] < Path(small).stat().st_size
    assert [row["layer"] for row in result["rows"]] == ["hidden", "y"]
    assert {row["dtype"] for row in result["rows"]} == {"float16"}
    assert result["curve"][-1][0] == 0
    assert Path("c.svg").read_text().startswith("<svg")
    with np.load("a.npz") as arrays:
        ((expected,), (measured,)) = (run(path, x=arrays["x"]) for path in (small, "o.onnx"))
    assert 0 < np.linalg.norm(measured - expected) / np.linalg.norm(expected) <= 1e-2
    status, out, err = call(*argv, "--max-error", "1e-2", "--resume", "t.json")
    assert (status, err) == (0, "")
    assert "2 of 2 layers narrow" in out
    assert "; 0 runs" in out


def test_options_of_mixed_precision(small: str, document: Document) -> None:
    argv = ["mixed-precision", small, "o.onnx", "--samples", samples("a.npz", 4, 16), "--max-error", "0.5"]
    result = document(*argv, "--dtype", "bfloat16", "--metric", "max", "--cost", "flops", "--keep", "hidden", "--io")
    assert [(row["layer"], row["dtype"], row["weights"]) for row in result["rows"]] == [("y", "bfloat16", "")]
    assert Graph.load("o.onnx").inputs[0].dtype is DType.bfloat16
    result = document(*argv, "--dtype", "int8", "--target", "cpu")
    assert {(row["dtype"], row["weights"]) for row in result["rows"]} == {("float32", "int8")}


# set-dims --verify


def hidden(sizes: str) -> str:
    """Write a model whose Reshape has sizes that no type shows: they are computed of floats."""
    text = f"""
    <ir_version: 9, opset_import: ["" : 18]>
    model (float[2, 4] x) => (float[2, 2, 2] y) <float[3] sizes = {{{sizes}}}> {{
        same = Identity(sizes) to = Cast<to=7>(same) y = Reshape(x, to) }}
    """
    onnx.save(onnx.parser.parse_model(text), "h.onnx")
    return "h.onnx"


def test_verify_refuses_a_size_that_is_hidden(call: Call) -> None:
    path = hidden("2, 2, 2")
    assert call("set-dims", path, "plain.onnx", "x=[batch, 4]")[0] == 0
    status, out, err = call("set-dims", path, "o.onnx", "x=[batch, 4]", "--verify")
    assert (status, out) == (1, "")
    assert "set-dims: the result does not run with batch=3" in err
    assert not Path("o.onnx").exists()


@pytest.mark.parametrize(
    ("rows", "factor", "words"),
    [
        ("batch + 1", 1, "output 'y' has the shape [1, 16] with batch=1, but its type is float32[batch + 1, 16]"),
        ("batch", 2, "output 'y' differs from that of the old model with batch=1: 16 of 16 elements differ"),
    ],
)
def test_verify_refuses_other_shapes_and_numbers(
    call: Call, monkeypatch: pytest.MonkeyPatch, rows: str, factor: int, words: str
) -> None:
    def graph(dim: int | str, result: int | str, factor: int) -> Graph:
        graph = Graph("g", {"x": TensorType(DType.float32, [dim, 16])})
        y = graph["x"] * factor + 1
        graph.output(y=graph.build.emit("Identity", (y,), TensorType(DType.float32, [result, 16])))
        return graph

    call("doctor")
    graph(1, 1, 1).export("m.onnx", target="onnx")
    monkeypatch.setattr(Graph, "with_dims", lambda *_, **__: graph("batch", rows, factor))
    status, out, err = call("set-dims", "m.onnx", "o.onnx", "x=[batch, 16]", "--verify")
    assert (status, out) == (1, "")
    assert words in err
    assert not Path("o.onnx").exists()


def test_verify_runs_two_sizes_and_writes(call: Call, small: str) -> None:
    call("set-dims", small, "fixed.onnx", "batch=1")
    status, out, err = call("set-dims", "fixed.onnx", "o.onnx", "x=[rows, 16]", "--verify")
    assert status == 0, err
    assert out.splitlines()[-1] == "verified: it runs with rows=1 and with rows=2"
    assert run("o.onnx", x=np.ones((3, 16), np.float32))[0].shape == (3, 16)
    status, out, err = call("set-dims", "o.onnx", "p.onnx", "rows=2 * n", "--verify")
    assert status == 0, err
