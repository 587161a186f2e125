"""Inputs with defaults: of built graphs, of files, and of initializers that calls override."""

from __future__ import annotations

import json
import pickle
import re
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphcore as gc
from graphcore import DType, Graph, TensorType, errors, ops
from graphcore.cli import main

X = np.arange(8, dtype=np.float32).reshape(2, 4)
W = np.arange(12, dtype=np.float32).reshape(4, 3)
A, B = np.ones((4, 5), np.float32), np.full((5, 3), 2, np.float32)
EXPECTED = X @ W + X @ A @ B


def lora() -> Graph:
    types: dict[str, list[int | str]] = {"x": ["n", 4], "a": [4, "r"], "b": ["r", 3]}
    defaults = {"a": np.zeros((4, 0), np.float32), "b": np.zeros((0, 3), np.float32)}
    g = Graph("lora", {n: TensorType(DType.float32, dims) for n, dims in types.items()}, defaults=defaults)
    g.output(y=g["x"] @ g.weight("w", W) + g["x"] @ g["a"] @ g["b"])
    return g


def third_party(ir: int = 10, listed: tuple[str, ...] = ("a", "b"), reshape: bool = False) -> onnx.ModelProto:
    """Return x @ w + x @ a @ b, with some of the initializers among the inputs."""
    shapes: dict[str, list[Any]] = {"x": ["n", 4], "w": [4, 3], "a": [4, "r"], "b": ["r", 3], "shape": [2]}
    values = {"w": W, "a": np.zeros((4, 2), np.float32), "b": np.zeros((2, 3), np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"]),
        helper.make_node("MatMul", ["x", "a"], ["xa"]),
        helper.make_node("MatMul", ["xa", "b"], ["xab"]),
        helper.make_node("Add", ["xw", "xab"], ["sum" if reshape else "y"]),
    ]
    if reshape:
        nodes.append(helper.make_node("Reshape", ["sum", "shape"], ["y"]))
        values["shape"] = np.array([-1, 1])
    kind = {"shape": TensorProto.INT64}
    graph = helper.make_graph(
        nodes,
        "other",
        [helper.make_tensor_value_info(n, kind.get(n, TensorProto.FLOAT), shapes[n]) for n in ("x", *listed)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, n) for n, v in values.items()],
    )
    return helper.make_model(graph, ir_version=ir, opset_imports=[helper.make_opsetid("", 21)])


def test_state_of_a_model_takes_inputs_with_defaults() -> None:
    types = {"x": TensorType(DType.float32, ["n", 2]), "a": TensorType(DType.float32, [2, "r"])}
    g = Graph("totals", {**types, "sums": gc.Buffer("float32", ["n"])}, defaults={"a": np.zeros((2, 0), np.float32)})
    sums = g.buffers["sums"] + (g["x"] @ g["a"]).sum(axis=1) + g["x"].sum(axis=1)
    gc.ops.buffer_store(g.buffers["sums"], sums)
    g.output(y=sums)
    state = gc.InferenceSession().load(g).state()
    x = np.ones((3, 2), np.float32)
    assert state(x, a=np.full((2, 4), 2, np.float32))[0].tolist() == [18.0] * 3
    assert state(x)[0].tolist() == [20.0] * 3
    assert state.buffers["sums"].tolist() == [20.0] * 3


def test_omitted_and_given() -> None:
    model = gc.InferenceSession().load(lora())
    np.testing.assert_array_equal(model(X)[0], X @ W)
    np.testing.assert_array_equal(model(X, a=A, b=B)[0], EXPECTED)
    np.testing.assert_array_equal(model({"x": X, "a": A, "b": B})[0], EXPECTED)
    np.testing.assert_array_equal(model({"x": X}, a=A, b=B)[0], EXPECTED)
    np.testing.assert_array_equal(model(X, a=None)[0], X @ W)
    assert list(model.inputs) == ["x"]
    assert model.inputs.optional == {"a": lora()["a"].type, "b": lora()["b"].type}


def test_dims_of_defaults() -> None:
    type_ = TensorType(DType.float32, ["n"])
    g = Graph("g", {"x": type_, "a": type_}, defaults={"a": [5.0]})
    g.output(y=g["x"] + g["a"])
    model = gc.InferenceSession().load(g)
    one, two = np.ones(1, np.float32), np.ones(2, np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(model(two, a=two)[0], [2, 2])
        with pytest.raises(errors.FeedError, match="the default of input 'a' must be n, which is 2 in input 'x'"):
            model(two)
        np.testing.assert_array_equal(model(one)[0], [6])
        np.testing.assert_array_equal(model({"x": one})[0], [6])
        np.testing.assert_array_equal(model({"x": one, "a": one})[0], [2])


def test_beside_an_absent_optional() -> None:
    type_ = TensorType(DType.float32, [2])
    g = Graph("g", {"x": type_, "y": gc.OptionalType(type_), "a": type_}, defaults={"a": [1.0, 1.0]})
    (has_y,) = g.op("OptionalHasElement", [g["y"]])
    g.output(sum=g["x"] + g["a"], has_y=has_y)
    model = gc.InferenceSession().load(g)
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(model(x=x)[0], [2, 2])
    np.testing.assert_array_equal(model(x=x, a=3 * x)[0], [4, 4])
    with pytest.raises(errors.FeedError, match="there is no input 'z'"):
        model(x=x, z=x)


def test_not_folded() -> None:
    g = Graph("g", {"x": TensorType(DType.float32, [3]), "a": TensorType(DType.float32, [])}, defaults={"a": 0.0})
    g.output(y=g["x"] * g["a"] + ops.exp(g["a"]))
    model = gc.InferenceSession().load(g.optimize())
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(model(x)[0], np.ones(3))
    np.testing.assert_allclose(model(x, a=np.float32(1))[0], np.full(3, 1 + np.e), rtol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model.run_async(X, a=A, b=B).result()[0],
        lambda model: model.run(["y"], {"x": X, "a": A, "b": B})[0],
        lambda model: model.execute(X, micro_batch=1, a=A, b=B)[0],
        lambda model: model.bind(X, a=A, b=B)(X)[0],
        lambda model: gc.Batcher(model, max_wait_ms=0)(X, a=A, b=B)[0],
        lambda model: model.debug(X, a=A, b=B, watch="y")["y"],
    ],
)
@pytest.mark.parametrize("source", ["graph", "file"])
def test_other_calls(call: Any, source: str) -> None:
    model = gc.InferenceSession().load(lora() if source == "graph" else lora().to_onnx(target="onnx"))
    np.testing.assert_array_equal(call(model), EXPECTED)


def test_batcher_keeps_adapters_apart() -> None:
    model = gc.InferenceSession().load(lora())
    with gc.Batcher(model, max_wait_ms=50) as batcher:
        plain, adapted, same = batcher.submit(X), batcher.submit(X, a=A, b=B), batcher.submit(X[:1], a=A, b=B)
        np.testing.assert_array_equal(plain.result()[0], X @ W)
        np.testing.assert_array_equal(adapted.result()[0], EXPECTED)
        np.testing.assert_array_equal(same.result()[0], EXPECTED[:1])
        assert batcher.metrics.batches == 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "int5", "int100", "complex64", "string"])
@pytest.mark.parametrize("form", ["graph", "onnx", "cpu"])
def test_dtypes(dtype: str, form: Any) -> None:
    type_ = TensorType(dtype, [2])
    if dtype == "int100":
        first, second = np.array([1, 2**70], object), np.array([-5, 2**69], object)
    elif dtype == "string":
        first, second = np.array(["a", "b"], object), np.array(["c", "d"], object)
    else:
        first, second = (np.array(v).astype(type_.dtype.numpy) for v in ([1, 0], [0, 2]))
    g = Graph("g", {"x": type_, "a": type_}, promotion="numpy", defaults={"a": first})
    g.output(y=ops.concat([g["a"], g["x"]], axis=0))
    model = gc.InferenceSession().load(g if form == "graph" else g.to_onnx(target=form))
    for named, expected in (({}, first), ({"a": second}, second)):
        result = model.execute(second, wide="object", **named)[0]
        assert [*result[:2]] == [*expected]


def test_state_of_the_graph_is_kept() -> None:
    g = lora()
    graphs = [pickle.loads(pickle.dumps(g)), g.optimize(), g.rename({"a": "a2"}), g.astype("float16", keep_io=False)]
    for graph in graphs[:2]:
        assert graph.defaults.keys() == {"a", "b"}
    assert graphs[2].defaults.keys() == {"a2", "b"}
    assert {n: v.dtype for n, v in graphs[3].defaults.items()} == dict.fromkeys("ab", np.dtype(np.float16))
    assert "input   a: float32[4, r] = float32[4, 0]" in str(g)
    assert not g.diff(lora())
    types = {s.name: s.type for s in g.inputs}
    one, two, none = (Graph("g", types, defaults=d) for d in ({"a": A}, {"a": 2 * A}, {}))
    for graph in (one, two, none):
        graph.output(y=graph["x"] @ graph["a"])
    assert "another default" in str(one.diff(two))
    assert "another default" in str(one.diff(none))
    outer = Graph("outer", {"x": TensorType(DType.float32, ["n", 4])})
    outer.output(y=g(outer["x"]))
    np.testing.assert_array_equal(gc.InferenceSession().load(outer)(X)[0], X @ W)
    relu = Graph("relu", {"y": TensorType(DType.float32, ["n", 3])})
    relu.output(z=ops.relu(relu["y"]))
    model = gc.InferenceSession().load(gc.compose(g, relu))
    np.testing.assert_array_equal(model(X, a=A, b=-B)[0], np.maximum(X @ W - X @ A @ B, 0))


def test_errors() -> None:
    types = {"a": TensorType(DType.float32, [2])}
    with pytest.raises(errors.ShapeError, match=r"the default of input 'a' has shape \[3\]"):
        Graph("g", types, defaults={"a": np.zeros(3, np.float32)})
    with pytest.raises(errors.DTypeError):
        Graph("g", types, defaults={"a": ["x", "y"]})
    with pytest.raises(errors.GraphError, match="the default 'b' belongs to no input"):
        Graph("g", types, defaults={"b": 1})
    model = gc.InferenceSession().load(lora())
    with pytest.raises(errors.FeedError, match=r"(?s)no input 'c'.*by name, or omitted: a, b"):
        model(X, c=A)
    with pytest.raises(errors.FeedError, match="input 'a' must be float32"):
        model(X, a=A.astype(np.float64))
    with pytest.raises(errors.FeedError, match="must be r, which is 5 in input 'a'"):
        model(X, a=A, b=B[:4])
    with pytest.raises(errors.FeedError, match="must be r, which is 5 in input 'a'"):
        model(X, a=A)
    with pytest.raises(errors.FeedError, match="given twice"):
        model({"x": X, "a": A}, a=A)


@pytest.mark.parametrize("target", ["onnx", "cpu"])
def test_written(tmp_path: Path, target: Any) -> None:
    path = tmp_path / "lora.onnx"
    lora().export(path, target=target)
    proto = onnx.load(path)
    assert [i.name for i in proto.graph.input] == ["x", "a", "b"]
    assert {t.name for t in proto.graph.initializer} == {"w", "a", "b"}
    assert proto.ir_version >= 4
    onnx.checker.check_model(proto, full_check=True)
    assert Graph.load(path).defaults.keys() == {"a", "b"}
    model = gc.InferenceSession().load(path)
    assert [*model.inputs.optional] == ["a", "b"]
    np.testing.assert_array_equal(model(X)[0], X @ W)
    np.testing.assert_array_equal(model(X, a=A, b=B)[0], EXPECTED)


@pytest.mark.parametrize("listed", [("a", "b"), ("w", "a", "b")])
@pytest.mark.parametrize("by", ["path", "proto", "bytes"])
def test_overridden_constants(tmp_path: Path, listed: tuple[str, ...], by: str) -> None:
    proto = third_party(listed=listed)
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    sources: dict[str, Any] = {"path": path, "proto": proto, "bytes": path.read_bytes()}
    model = gc.InferenceSession().load(sources[by])
    assert [*model.inputs] == ["x"]
    assert [*model.inputs.optional] == [*listed]
    np.testing.assert_array_equal(model(X)[0], X @ W)
    np.testing.assert_array_equal(model(X, a=A, b=B)[0], EXPECTED)
    np.testing.assert_array_equal(model(X)[0], X @ W)
    np.testing.assert_array_equal(model.bind(X, a=A, b=B)(X)[0], EXPECTED)
    if "w" in listed:
        np.testing.assert_array_equal(model(X, w=2 * W, a=A, b=B)[0], EXPECTED + X @ W)


def test_overridden_later_and_with_empty_arrays() -> None:
    model = gc.InferenceSession().load(third_party(), limits=gc.Limits(seconds=30))
    with patch("time.monotonic", lambda clock=time.monotonic: clock() + 60):
        np.testing.assert_array_equal(model(X, a=A, b=B)[0], EXPECTED)
        np.testing.assert_array_equal(model(X, a=A[:, :0], b=B[:0])[0], X @ W)
        np.testing.assert_array_equal(model(X[:0], a=A, b=B)[0], np.zeros((0, 3)))


def test_constants_stay_constants() -> None:
    proto = third_party(listed=("w", "a", "b", "shape"), reshape=True)
    g = Graph.load(proto)
    assert [s.name for s in g.inputs] == ["x"]
    assert str(g.outputs[0].type).endswith(", 1]")
    model = gc.InferenceSession().load(proto)
    assert model(X)[0].shape == (6, 1)
    assert model(X, a=A, b=B, shape=np.array([1, -1]))[0].shape == (1, 6)


def test_old_files_have_no_defaults() -> None:
    model = gc.InferenceSession().load(third_party(ir=3, listed=("w", "a", "b")))
    assert model.inputs.optional == {}
    with pytest.raises(errors.FeedError, match="no input 'a'"):
        model(X, a=A)
    with pytest.raises(errors.ModelError, match="'a' is not an initializer that is also an input"):
        Graph.load(third_party(ir=3, listed=("w", "a", "b")), defaults=["a"])


def test_loaded_defaults() -> None:
    g = Graph.load(third_party(listed=("w", "a", "b")), defaults=["a", "b"])
    assert g.defaults.keys() == {"a", "b"}
    assert g.weights.keys() == {"w"}
    np.testing.assert_array_equal(gc.InferenceSession().load(g)(X, a=A, b=B)[0], EXPECTED)
    proto = third_party()
    proto.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.zeros((5, 2), np.float32), "a"))
    with pytest.raises(errors.ModelError, match=r"is declared as float32\[4, r\], but its default is float32\[5, 2\]"):
        Graph.load(proto, defaults=True)


def test_changed_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(third_party(), path)
    model = gc.InferenceSession().load(path)
    with open(path, "r+b") as file:
        file.write(b"\x08")
    with pytest.raises(errors.ModelError, match="was changed since it was loaded"):
        model(X, a=A, b=B)


def test_cached(tmp_path: Path) -> None:
    path, cache = tmp_path / "m.onnx", tmp_path / "cache"
    g = Graph("g", {"x": TensorType(DType.float32, [2, 4]), "a": TensorType(DType.float32, [4, 3])}, defaults={"a": W})
    g.output(y=g["x"] @ g["a"] + g.weight("large", np.ones((1000, 3), np.float32))[:2])
    g.export(path, target="onnx")
    session = gc.InferenceSession()
    for source in (path, g, g.with_dims(), path):
        for _ in range(2):
            model = session.load(source, cache_dir=cache)
            assert [*model.inputs.optional] == ["a"]
            np.testing.assert_array_equal(model(X)[0], X @ W + 1)
            np.testing.assert_array_equal(model(X, a=2 * W)[0], 2 * X @ W + 1)
        assert model._load_full is not None  # from an entry
    other = Graph("g", {s.name: s.type for s in g.inputs}, defaults={"a": 3 * W})
    other.output(y=other["x"] @ other["a"] + other.weight("large", np.ones((1000, 3), np.float32))[:2])
    np.testing.assert_array_equal(session.load(other, cache_dir=cache)(X)[0], 3 * X @ W + 1)


def test_prepared(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    lora().export(path, target="onnx")
    session = gc.InferenceSession()
    with patch("time.sleep", lambda seconds: None):
        session.prepare(path)
    model = session.load(path, prepared=True)
    np.testing.assert_array_equal(model(X)[0], X @ W)
    np.testing.assert_array_equal(model(X, a=A, b=B)[0], EXPECTED)


def test_buffers() -> None:
    type_ = TensorType(DType.float32, [2])
    g = Graph("g", {"x": type_, "a": type_, "sum": gc.Buffer(DType.float32, [2])}, defaults={"a": [1.0, 2.0]})
    g["sum"] = g["sum"] + g["x"] * g["a"]
    g.output(y=g["sum"])
    model = gc.InferenceSession().load(g)
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(model(x)[0], [1, 2])
    np.testing.assert_array_equal(model(x, a=np.full(2, 10, np.float32))[0], [11, 12])
    np.testing.assert_array_equal(model(x)[0], [12, 14])


@pytest.mark.parametrize("source", ["graph", "constants"])
def test_isolated(source: str) -> None:
    model = lora() if source == "graph" else third_party().SerializeToString()
    with gc.IsolatedSession(workers=1).load(model) as isolated:
        assert [*isolated.inputs.optional] == ["a", "b"]
        np.testing.assert_array_equal(isolated(X)[0], X @ W)
        np.testing.assert_array_equal(isolated(X, a=A, b=B)[0], EXPECTED)


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lora().export("m.onnx")
    for name, array in {"x": X, "a": A, "b": B}.items():
        np.save(f"{name}.npy", array)
    assert main(["run", "m.onnx", "--input", "x.npy"]) == 0
    assert main(["run", "m.onnx", "--input", "x=x.npy", "--input", "a=a.npy", "--input", "b=b.npy"]) == 0
    assert main(["inspect", "m.onnx"]) == 0
    plain, adapted, inspected = re.split(r"(?<=\])\n", capsys.readouterr().out, maxsplit=2)
    assert f"min {(X @ W).min():g}  max {(X @ W).max():g}" in plain
    assert f"min {EXPECTED.min():g}  max {EXPECTED.max():g}" in adapted
    assert re.search(r"input +a +float32\[4, r\] = default", inspected)


def test_served() -> None:
    infer = pytest.importorskip("graphcore.scale.protocol.endpoint", reason="the extra serve is not installed")
    from graphcore.scale.serving.served import Serving

    def ask(**arrays: Any) -> Any:
        inputs = [
            {"name": n, "datatype": "FP32", "shape": list(v.shape), "data": v.ravel().tolist()}
            for n, v in arrays.items()
        ]
        body = json.dumps({"inputs": inputs}).encode()
        return json.loads(endpoint.respond("POST", "/v2/models/m/infer", {}, body).result().body)

    serving = Serving({"m": gc.InferenceSession().load(lora())})
    try:
        endpoint = infer.Endpoint(serving.models)
        assert ask(x=X)["outputs"][0]["data"] == (X @ W).ravel().tolist()
        assert ask(x=X, a=A, b=B)["outputs"][0]["data"] == EXPECTED.ravel().tolist()
        assert "input 'x' is missing" in ask(a=A)["error"]
    finally:
        serving.close()
