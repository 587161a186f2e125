"""Graphs and files loaded and run: providers, options, weights by reference, errors."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import GraphError, ModelError, RunError

Array = np.ndarray[Any, Any]


def linear(weight: Array, name: str = "w") -> Graph:
    graph = Graph("linear", {"x": TensorType(DType.float32, ["n", weight.shape[0]])})
    graph.output(y=graph["x"] @ graph.weight(name, weight))
    return graph


def weight(seed: int = 0, shape: tuple[int, int] = (32, 64)) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X = np.ones((2, 32), np.float32)


def test_model_says_what_it_takes_and_gives() -> None:
    model = gc.InferenceSession().load(linear(weight()))
    assert model.name == "linear"
    assert model.inputs == {"x": TensorType(DType.float32, ["n", 32])}
    assert model.outputs == {"y": TensorType(DType.float32, ["n", 64])}
    assert repr(model) == "<Model linear(x: float32[n, 32]) -> y: float32[n, 64]>"


def test_semantic_dtypes_are_reported_when_loaded_and_when_read_back(tmp_path: Path) -> None:
    graph = Graph("semantic", {"i": TensorType(DType.index, [2]), "t": TensorType(DType.tf32, [2])})
    graph.output(a=graph["i"] + 1, b=graph["t"] * 2)
    graph.export(tmp_path / "semantic.onnx")
    for model in (gc.InferenceSession().load(graph), gc.InferenceSession().load(tmp_path / "semantic.onnx")):
        assert [t.dtype for t in model.inputs.values()] == [DType.index, DType.tf32]
        assert [t.dtype for t in model.outputs.values()] == [DType.index, DType.tf32]


@pytest.mark.parametrize("kind", ["path", "text", "bytes", "proto", "external"])
def test_finished_model_is_run_as_it_is(kind: str, tmp_path: Path) -> None:
    w = weight()
    graph = linear(w)
    path = tmp_path / "linear.onnx"
    graph.export(path, external_data=kind == "external")
    given: Any = {
        "path": path, "text": str(path), "external": path, "bytes": path.read_bytes(), "proto": graph.to_onnx(),
    }[kind]  # fmt: skip
    model = gc.InferenceSession().load(given)
    assert str(model.inputs["x"]) == "float32[n, 32]"
    assert np.allclose(model(X)[0], X @ w, atol=1e-5)


def test_weights_are_the_callers_memory_when_loaded() -> None:
    w = weight(shape=(512, 512))
    graph = Graph("rows", {"i": TensorType(DType.int64, ["n"])})
    graph.output(y=ops.gather(graph.weight("w", w), graph["i"]))
    model = gc.InferenceSession().load(graph)
    w[3] = 7
    assert (model(np.array([3]))[0] == 7).all()


@pytest.mark.parametrize("dtype", [DType.float16, DType.bfloat16, DType.int8, DType.uint64, DType.int4], ids=str)
def test_weights_of_any_dtype_are_right_when_the_session_reads_them_early(dtype: DType) -> None:
    w = (np.arange(4096) % 7).reshape(64, 64).astype(dtype.numpy)
    graph = Graph("early", {"x": TensorType(DType.float32, ["n", 64])})
    symbol = graph.weight("w", w)
    # Casts, transposes and sums of constants are folded while the session is made.
    graph.output(graph["x"] @ symbol.cast(DType.float32).T, ops.sum(symbol.cast(DType.int64)), symbol)
    x = np.eye(64, dtype=np.float32)
    product, total, same = gc.InferenceSession().load(graph)(x)
    assert np.array_equal(product, w.astype(np.float32).T)
    assert total == w.astype(np.int64).sum()
    assert same.tobytes() == w.tobytes()


def test_convolution_weights_are_right_when_the_session_reorders_them() -> None:
    w = np.random.default_rng(1).standard_normal((16, 8, 3, 3)).astype(np.float32)
    x = np.random.default_rng(2).standard_normal((1, 8, 5, 5)).astype(np.float32)
    graph = Graph("conv", {"x": TensorType(DType.float32, ["n", 8, 5, 5])})
    graph.output(ops.conv2d(graph["x"], graph.weight("w", w), input_layout="NCHW", filter_layout="FCRS"))
    (got,) = gc.InferenceSession().load(graph)(x)
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(1, 2))
    assert np.allclose(got[0], np.einsum("cijkl,fckl->fij", windows, w), atol=1e-4)


def test_given_weights_take_the_place_of_the_graphs() -> None:
    graph = linear(weight(0))
    other = weight(1)
    assert np.allclose(gc.InferenceSession().load(graph, weights={"w": other})(X)[0], X @ other, atol=1e-5)
    with pytest.raises(ModelError, match="the graph has no weight 'v'"):
        gc.InferenceSession().load(graph, weights={"v": other})
    with pytest.raises(ModelError, match=r"weight 'w' is float32\[32, 64\], and float32\[31, 64\] is given"):
        gc.InferenceSession().load(graph, weights={"w": other[1:]})


def test_provider_is_refused_when_not_installed() -> None:
    missing = "TensorrtExecutionProvider"
    assert missing not in onnxruntime.get_available_providers()
    with pytest.raises(RunError, match=f"provider '{missing}' is not installed; installed are "):
        gc.InferenceSession(missing)
    with pytest.raises(RunError, match="provider 'gpu' is not installed"):
        gc.InferenceSession(["gpu", "cpu"])


def test_provider_is_found_by_either_name() -> None:
    for name in ("cpu", ["cpu"], "CPUExecutionProvider", None):
        assert gc.InferenceSession(name).providers == ("CPUExecutionProvider",)


def test_session_options_reach_onnxruntime() -> None:
    model = gc.InferenceSession(intra_op_num_threads=1, enable_mem_pattern=False).load(linear(weight()))
    assert model.session.get_session_options().intra_op_num_threads == 1
    with pytest.raises(GraphError, match="onnxruntime has no session option 'threads'"):
        gc.InferenceSession(threads=1)
    with pytest.raises(GraphError, match="intra_op_num_threads='two'"):
        gc.InferenceSession(intra_op_num_threads="two").load(linear(weight()))


def test_precision_that_does_not_exist_is_refused() -> None:
    with pytest.raises(GraphError, match="there is no precision 'sloppy'"):
        gc.InferenceSession(precision="sloppy")  # type: ignore[arg-type]


def test_graph_without_outputs_is_refused() -> None:
    with pytest.raises(GraphError, match="graph 'empty' has no outputs"):
        gc.InferenceSession().load(Graph("empty", {"x": TensorType(DType.float32, [])}))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nowhere.onnx", "load: nowhere.onnx is no file"),
        (".", r"load: \. is a folder"),
        (b"garbage that is no model", "onnxruntime does not take model"),
        (b"", "onnxruntime does not take model"),
        (3, "load: a int is no model"),
        (None, "load: a NoneType is no model"),
    ],
)
def test_model_is_refused_when_it_cannot_be_read(model: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        gc.InferenceSession().load(model)


def test_file_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    linear(weight()).export(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match="onnxruntime does not take"):
        gc.InferenceSession().load(path)


def test_run_error_shows_what_was_fed() -> None:
    graph = Graph("reshaped", {"x": TensorType(DType.float32, ["n"])})
    graph.output(*graph.op("Reshape", [graph["x"], graph.constant([2, 3])], out_types=[TensorType("float32", [2, 3])]))
    with pytest.raises(RunError, match=r"reshaped: onnxruntime failed(.|\n)*x  float32\[5\]|x +float32\[5\]"):
        gc.InferenceSession().load(graph)(np.ones(5, np.float32))


def test_model_is_right_when_eight_threads_call_it() -> None:
    model = gc.InferenceSession().load(linear(weight()))
    wrong: list[int] = []

    def call(i: int) -> None:
        results = [model(X * i)[0] for _ in range(20)]
        wrong.extend(i for result in results if not np.allclose(result, i * (X @ weight()), atol=1e-4))

    threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_benchmark_gives_seconds() -> None:
    taken = gc.InferenceSession().load(linear(weight())).benchmark(X, runs=5)
    assert 0 < taken["best"] <= taken["median"] <= taken["worst"]


def test_bfloat16_goes_in_and_out_when_mixed_with_float32() -> None:
    graph = Graph("mixed", {"x": TensorType(DType.bfloat16, ["n"]), "y": TensorType(DType.float32, ["n"])})
    x, y = graph.inputs
    graph.output(a=x + y, b=x + x)
    a, b = gc.InferenceSession().load(graph)(np.ones(3, ml_dtypes.bfloat16), np.ones(3, np.float32))
    assert a.dtype == np.float32
    assert b.dtype == ml_dtypes.bfloat16
    assert (b == 2).all()
