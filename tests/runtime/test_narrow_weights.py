"""Weights of float16 and bfloat16 on the CPU provider: narrow in files, and widened once, when a session starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.ir.graph import Precision

pytestmark = pytest.mark.releases

D = DType
WIDTH, WORDS = 64, 300


def weights(dtype: DType) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {"words": (WORDS, WIDTH), "first": (WIDTH, WIDTH), "second": (WIDTH, WIDTH)}
    return {name: rng.standard_normal(shape, np.float32).astype(dtype.numpy) for name, shape in shapes.items()}


def network(value: dict[str, Any], activations: DType) -> Graph:
    """A table of words and two layers, as checkpoints have them."""
    graph = Graph("net", {"ids": TensorType(D.int64, ["n"])})
    x = ops.gather(graph.weight("words", value["words"]), graph["ids"]).cast(activations)
    x = ops.tanh(x @ graph.weight("first", value["first"]).cast(activations))
    graph.output(y=ops.linear(x, graph.weight("second", value["second"]).cast(activations)).cast(D.float32))
    return graph


def source(kind: str, graph: Graph, dtype: DType, folder: Path, activations: DType) -> Any:
    if kind == "file":
        graph.export(folder / "net.onnx")
        return folder / "net.onnx"
    if kind == "safetensors":
        gc.save_tensors(folder / "net.safetensors", weights(dtype))
        return network(dict(gc.load_tensors(folder / "net.safetensors")), activations)
    return graph


@pytest.mark.parametrize("kind", ["graph", "file", "safetensors"])
@pytest.mark.parametrize("prepack", ["auto", "on", "off"])
@pytest.mark.parametrize("precision", ["exact", "fast"])
@pytest.mark.parametrize("dtype", [D.bfloat16, D.float16], ids=str)
@pytest.mark.parametrize("is_wide", [False, True], ids=["narrow activations", "float32 activations"])
def test_run_widens_no_weight(
    tmp_path: Path,
    kind: str,
    prepack: Literal["auto", "on", "off"],
    precision: Precision,
    dtype: DType,
    is_wide: bool,
) -> None:
    activations = D.float32 if is_wide else dtype
    graph = network(weights(dtype), activations)
    shown = tmp_path / "optimised.onnx"
    session = gc.InferenceSession(precision=precision, optimized_model_filepath=str(shown), intra_op_num_threads=1)
    model = session.load(source(kind, graph, dtype, tmp_path, activations), prepack=prepack)
    ran = onnx.load(shown, load_external_data=False).graph
    results = {w.name: w for w in ran.initializer}
    assert not [n for n in ran.node if n.op_type == "Cast" and n.input[0] in results]
    # The table is read row by row and stays as it is.
    assert [w.data_type for w in results.values() if list(w.dims) == [WORDS, WIDTH]] == [dtype.onnx]
    ids = np.array([3, 1, 299])
    arrays = {name: w.astype(np.float64) for name, w in weights(dtype).items()}
    want = np.tanh(arrays["words"][ids] @ arrays["first"]) @ arrays["second"].T
    np.testing.assert_allclose(model(ids)[0], want, atol=0.15 if dtype is D.bfloat16 and not is_wide else 0.02)


@pytest.mark.parametrize("dtype", [D.bfloat16, D.float16], ids=str)
def test_file_has_two_bytes_for_each_weight(tmp_path: Path, dtype: DType) -> None:
    graph = network(weights(dtype), D.float32)
    graph.export(tmp_path / "net.onnx")
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    count = WORDS * WIDTH + 2 * WIDTH * WIDTH
    assert 2 * count <= size < 2 * count + 4096


@pytest.mark.parametrize(("width", "is_kept"), [(64, True), (1600, False)])
def test_cache_keeps_no_entry_when_it_would_have_large_weights_widened(
    tmp_path: Path, width: int, is_kept: bool
) -> None:
    graph = Graph("net", {"x": TensorType(D.float32, ["n", width])})
    weight = graph.weight("w", np.ones((width, width), D.bfloat16.numpy))
    graph.output(graph["x"] @ weight.cast(D.float32))
    x = np.ones((1, width), np.float32)
    for _ in range(2):
        (y,) = gc.InferenceSession().load(graph, cache_dir=tmp_path)(x)
        np.testing.assert_array_equal(y, np.full((1, width), width, np.float32))
    assert any(path.suffix == ".optimised" for path in tmp_path.iterdir()) is is_kept
