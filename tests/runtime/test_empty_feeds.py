"""Calls with arrays of no elements: nothing is given back for nothing, and zeros where nothing is summed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import graphcore as gc
from graphcore import Graph, TensorType, ops
from graphcore.errors import RunError

F32 = np.float32
SIZES = [sizes for sizes in itertools.product((0, 2), repeat=3) if 0 in sizes]


def attention(dtype: str = "float32", causal: bool = False) -> Graph:
    lengths = {"q": "queries", "k": "keys", "v": "keys"}
    graph = Graph("attention", {n: TensorType(dtype, ["batch", 2, size, 4]) for n, size in lengths.items()})
    with graph:
        y = ops.scaled_dot_product_attention(graph["q"], graph["k"], graph["v"], is_causal=causal)
    graph.output(made=y, shifted=y + 1)
    return graph


def heads() -> Graph:
    """Attention of heads that are split and joined, as encoders have it."""
    graph = Graph("heads", {"x": TensorType("float32", ["batch", "length", 8])})
    with graph:
        q, k, v = (ops.reshape(graph["x"] * n, ["batch", "length", 2, -1]).transpose((0, 2, 1, 3)) for n in (1, 2, 3))
        result = ops.scaled_dot_product_attention(q, k, v).transpose((0, 2, 1, 3))
        joined = ops.reshape(result, ["batch", "length", -1])
    graph.output(joined=joined, total=ops.sum(joined, axis=1))
    return graph


@pytest.mark.parametrize("optimize", ["all", "off"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("batch", "queries", "keys"), SIZES)
def test_attention_gives_zeros_or_nothing_when_operands_are_empty(
    batch: int, queries: int, keys: int, causal: bool, dtype: str, optimize: Any
) -> None:
    model = gc.InferenceSession(optimize=optimize).load(attention(dtype, causal))
    q, k = (np.ones((batch, 2, n, 4), dtype) for n in (queries, keys))
    result, shifted = model(q, k, k)
    assert result.shape == shifted.shape == (batch, 2, queries, 4)
    assert result.dtype == shifted.dtype == np.dtype(dtype)
    if not keys:
        assert np.all(result == 0)
        assert np.all(shifted == 1)
    full = model(np.ones((1, 2, 3, 4), dtype), *[np.ones((1, 2, 3, 4), dtype)] * 2)[0]
    assert np.all(full == 1)


@pytest.mark.parametrize(("batch", "length"), [(0, 3), (2, 0), (0, 0)])
def test_encoder_gives_nothing_back_when_nothing_is_fed(batch: int, length: int, tmp_path: Path) -> None:
    graph = heads()
    graph.export(tmp_path / "model.onnx")
    for source in (graph, tmp_path / "model.onnx"):
        joined, total = gc.InferenceSession().load(source)(np.ones((batch, length, 8), F32))
        assert joined.shape == (batch, length, 8)
        assert total.shape == (batch, 8)
        assert np.all(total == 0)


def test_model_of_another_tool_gives_nothing_back_when_its_reshapes_cannot_say() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[batch, seq, 12] x) => (float[batch, m] y) {
        s = Shape(x) zero = Constant<value = int64 {0}>() b = Gather<axis = 0>(s, zero)
        ax = Constant<value = int64[1] {0}>() bs = Unsqueeze(b, ax) rest = Constant<value = int64[2] {-1, 4}>()
        to = Concat<axis = 0>(bs, rest) z = Reshape(x, to) axes = Constant<value = int64[1] {2}>()
        y = ReduceSum<keepdims = 0>(z, axes) }"""
    model = gc.InferenceSession().load(gc.Graph.load(onnx.parser.parse_model(text)))
    assert model(np.ones((0, 5, 12), F32))[0].shape == (0, 15)
    assert model(np.ones((2, 5, 12), F32))[0].shape == (2, 15)


def test_bound_call_gives_what_the_model_does_when_operands_are_empty() -> None:
    model = gc.InferenceSession().load(attention())
    result, shifted = model.bind(batch=2, queries=3, keys=0)()
    assert result.shape == (2, 2, 3, 4)
    assert np.all(result == 0)
    assert np.all(shifted == 1)
    assert model.bind(batch=0, queries=3, keys=2)()[0].shape == (0, 2, 3, 4)


def test_other_inputs_are_still_read_when_one_is_empty() -> None:
    graph = Graph("g", {n: TensorType("float32", [1, 1, n, 4]) for n in "qk"} | {"y": TensorType("float32", [2])})
    with graph:
        result = ops.sum(ops.scaled_dot_product_attention(graph["q"], graph["k"], graph["k"])) + graph["y"]
    graph.output(made=result)
    model = gc.InferenceSession().load(graph)
    for value in (1, 2):  # the second session is kept
        (match,) = model(np.ones((1, 1, 2, 4), F32), np.ones((1, 1, 0, 4), F32), np.full(2, value, F32))
        assert match.tolist() == [value, value]
    assert model._empty_models is not None
    assert len(model._empty_models) == 1


@pytest.mark.parametrize(
    "build",
    [
        lambda x: ops.gather(x, x.graph.constant(np.array([9])), 1),
        lambda x: ops.rebind(x, [4, 3], message="four rows"),
    ],
)
def test_mistakes_stay_errors_when_there_is_nothing_in_the_feed(build: Callable[[Any], Any]) -> None:
    graph = Graph("g", {"x": TensorType("float32", ["n", "m"])})
    with graph:
        result = build(graph["x"])
    graph.output(made=result)
    with pytest.raises(RunError):
        gc.InferenceSession().load(graph)(np.ones((0, 3), F32))
