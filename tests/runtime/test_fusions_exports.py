"""Fusions in the primitives that exporters write of models of many kinds, next to what they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Graph, Symbol, TensorType, ops
from graphcore.ir.transform.ranges import range_of
from graphcore.onnx.proto.model_proto import encode, join
from graphcore.runtime.fusions import fuse
from graphcore.runtime.lowering import lower
from graphcore.runtime.lowering.passes import Summary
from graphcore.runtime.lowering.workarounds import empty
from tests.support.graphs import NEWEST

pytestmark = pytest.mark.releases

Array = np.ndarray[Any, Any]
LEAST = float(np.finfo(np.float32).min)
HEADS, SIZE = 4, 6


def operators(graph: Graph) -> list[str]:
    """Of the graph and its bodies."""
    bodies = [value for node in graph.nodes for value in node.attributes.values() if isinstance(value, Graph)]
    return [*(node.op_type for node in graph.nodes), *(name for body in bodies for name in operators(body))]


def same(graph: Graph, *arrays: Array) -> None:
    """Check that the written graph gives what the fusion gives, and a session without fusions too."""
    plain = gc.InferenceSession(optimize="off").load(graph)(*arrays)
    for each in (gc.InferenceSession(optimize="off").load(fuse(graph)), gc.InferenceSession().load(graph)):
        for got, want in zip(each(*arrays), plain, strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def heads(*names: str, kv: int = HEADS, keys: str = "s") -> dict[str, TensorType]:
    q, k = TensorType("float32", ["b", HEADS, "s", SIZE]), TensorType("float32", ["b", kv, keys, SIZE])
    return {"q": q} | dict.fromkeys(names, k)


# Masks


@pytest.mark.parametrize("order", ["scores first", "masks first", "mask in front"])
def test_masks_are_added_up_when_there_are_several(order: str) -> None:
    """A bias by position and a mask, as in T5 and MPNet."""
    types = heads("k", "v") | {"seen": TensorType("bool", ["b", 1, 1, "s"]), "near": TensorType("int64", ["s", "s"])}
    g = Graph("g", types)
    bias = ops.gather(g.constant(normal(8, HEADS)), g["near"], axis=0).permute(2, 0, 1).unsqueeze(0)
    mask = ops.where(g["seen"], 0.0, LEAST)
    scores = g["q"] @ g["k"].permute(0, 1, 3, 2)
    if order == "scores first":
        scores = (scores + bias) + mask
    else:
        scores = mask + (bias + scores) if order == "mask in front" else scores + (bias + mask)
    g.output(ops.softmax(scores) @ g["v"])
    result = operators(fuse(g))
    assert result.count("Attention") == 1
    assert "Softmax" not in result
    seen = np.random.default_rng(0).random((3, 1, 1, 5)) < 0.7
    seen[1] = False
    near = np.random.default_rng(1).integers(0, 8, (5, 5))
    same(g, *(normal(3, HEADS, 5, SIZE, seed=i) for i in range(3)), seen, near)


def test_mask_that_is_not_certainly_finite_stays_a_sum() -> None:
    """One of two masks is the caller's: it may be -inf, of which a softmax makes NaN."""
    g = Graph("g", heads("k", "v") | {"m": TensorType("float32", ["s", "s"]), "n": TensorType("bool", ["s", "s"])})
    scores = g["q"] @ g["k"].permute(0, 1, 3, 2) + g["m"] + ops.where(g["n"], 0.0, -1.0)
    g.output(ops.softmax(scores) @ g["v"])
    assert fuse(g) is g


def test_mask_of_another_shape_than_the_scores_stays() -> None:
    g = Graph("g", heads("k", "v") | {"m": TensorType("bool", ["b", 2, "s", "s"])})
    scores = (g["q"] @ g["k"].permute(0, 1, 3, 2)).reshape("b", 2, 2, "s", "s")
    scores = (scores + ops.where(g["m"], 0.0, -1.0).unsqueeze(2)).reshape("b", HEADS, "s", "s")
    g.output(ops.softmax(scores) @ g["v"])
    assert "Attention" not in operators(fuse(g))


@pytest.mark.parametrize("length", [1, 5])
def test_mask_whose_keys_are_not_counted_is_made_whole(length: int) -> None:
    """The mask of a model whose inputs were given dims of their own, as in exports with dims that all change."""
    g = Graph("g", heads("k", "v") | {"seen": TensorType("bool", ["b", 1, 1, "?"])})
    g.output(ops.softmax(g["q"] @ g["k"].permute(0, 1, 3, 2) + ops.where(g["seen"], 0.0, -50.0)) @ g["v"])
    assert operators(fuse(g)).count("Attention") == 1
    arrays = [normal(2, HEADS, 5, SIZE, seed=i) for i in range(3)]
    same(g, *arrays, np.random.default_rng(0).random((2, 1, 1, length)) < 0.7)


def test_softcap_stays_as_it_is_written() -> None:
    """Gemma 2: scores * scale / cap, tanh, * cap. The operator's attribute takes longer."""
    g = Graph("g", heads("k", "v") | {"seen": TensorType("bool", ["s", "s"])})
    scores = g["q"] @ g["k"].permute(0, 1, 3, 2) * np.float32(SIZE**-0.5)
    scores = ops.tanh(scores / np.float32(50)) * np.float32(50)
    g.output(ops.softmax(scores + ops.where(g["seen"], 0.0, LEAST)) @ g["v"])
    assert fuse(g) is g


@pytest.mark.parametrize("turned", [(0, 1, 3, 2), "flat"])
def test_keys_of_one_head_are_shared_by_all(turned: object) -> None:
    """Falcon: queries of many heads times keys of one."""
    g = Graph("g", heads("k", "v", kv=1))
    k = g["k"].permute(0, 1, 3, 2)
    if turned == "flat":
        k = g["k"].reshape(-1, "s", SIZE).permute(0, 2, 1).reshape("b", 1, SIZE, "s")
    g.output(ops.softmax(g["q"] @ k * 0.5) @ g["v"])
    assert "Attention" in operators(fuse(g))
    same(g, normal(2, HEADS, 5, SIZE), normal(2, 1, 5, SIZE, seed=1), normal(2, 1, 5, SIZE, seed=2))


def test_keys_of_one_head_and_values_of_all_stay() -> None:
    g = Graph("g", {**heads("k", kv=1), "v": heads("v")["v"]})
    g.output(ops.softmax(g["q"] @ g["k"].permute(0, 1, 3, 2)) @ g["v"])
    assert fuse(g) is g


def test_all_layers_ask_once_whether_there_is_anything() -> None:
    g = Graph("g", {"x": TensorType("float32", ["b", "s", HEADS * SIZE])})
    x = g["x"]
    for layer in range(3):
        rows = x @ g.constant(normal(HEADS * SIZE, HEADS * SIZE, seed=layer) / 5)
        apart = rows.reshape("b", "s", HEADS, SIZE).permute(0, 2, 1, 3)
        mixed = ops.softmax(apart @ apart.permute(0, 1, 3, 2)) @ apart
        x = x + mixed.permute(0, 2, 1, 3).reshape("b", "s", HEADS * SIZE)
    g.output(x)
    result = operators(lower(g, "cpu", runtime=NEWEST, optimize="all"))
    assert (result.count("Attention"), result.count("Size")) == (3, 1)
    model, plain = (gc.InferenceSession(optimize=level).load(g) for level in ("all", "off"))
    for shape in ((2, 5), (1, 1), (0, 3), (2, 0)):
        value = normal(*shape, HEADS * SIZE)
        np.testing.assert_allclose(model(value)[0], plain(value)[0], rtol=2e-5, atol=2e-6)


def test_guarded_attention_is_guarded_once_when_it_is_lowered_again() -> None:
    g = Graph("g", {"q": TensorType("float32", ["b", 2, "s", 3]), "k": TensorType("float32", ["b", 2, "t", 3])})
    q, k = g["q"], g["k"]
    g.output(ops.softmax(q @ k.permute(0, 1, 3, 2)) @ k)
    lowered = lower(g, "cpu", runtime=NEWEST, optimize="all")
    once = operators(lowered)
    assert (once.count("If"), once.count("Attention")) == (1, 1)
    read = Graph.load(join(encode(lowered)))
    assert not any(node for part in Summary(read).parts for node in empty._untested(part))
    assert operators(read) == once


# What values may be


def bounds(symbol: Symbol) -> tuple[float, float] | None:
    values = range_of(symbol, weights=True)
    return None if values is None else (values.low, values.high)


MODES = ("linear", "nearest", "cubic")


def test_bounds_go_through_what_tables_are_made_of() -> None:
    g = Graph("g", {
        "i": TensorType("int64", ["n"]), "small": TensorType("int8", ["n"]), "x": TensorType("float32", [3]),
    })  # fmt: skip
    table = g.constant(np.array([[-2, 1], [0, 3]], np.float32))
    assert bounds(ops.concat([table, table * np.float32(2)], axis=0)) == (-4, 6)
    assert bounds(ops.gather(table, g["i"], axis=0)) == (-2, 3)
    assert bounds(ops.onnx.Neg(table)) == (-3, 2)
    assert bounds(g["small"]) == (-128, 127)
    assert bounds((g["small"].cast("float32") + 1.0) * -2.0) == (-256, 254)
    assert bounds(g["i"].cast("float32")) == (-(2.0**63), 2.0**63)
    assert bounds(g["x"]) is None
    assert bounds(ops.concat([table[0], g["x"]], axis=0)) is None
    image = table.reshape(1, 1, 2, 2)
    resized = {mode: ops.onnx.Resize(image, None, None, np.array([1, 1, 5, 5]), mode=mode) for mode in MODES}
    assert bounds(resized["nearest"]) == (-2, 3)
    assert bounds(resized["cubic"]) is None
    least, largest = bounds(resized["linear"]) or (0, 0)  # weights that are rounded may add up to more than 1
    assert -2.00001 < least < -2 < 3 < largest < 3.00001


def test_nothing_is_known_of_what_a_dtype_cannot_hold() -> None:
    """The least float32 is -inf in float16, and stays it."""
    g = Graph("g", {"seen": TensorType("bool", ["s", "s"])})
    mask = ops.where(g["seen"], np.float32(0), np.float32(LEAST))
    assert bounds(mask) == (LEAST, 0)
    assert bounds(mask.cast("float16").cast("float32")) is None
    assert bounds(mask + mask) is None
    assert bounds(g["seen"].cast("int8") * np.int8(100) * np.int8(100)) == (-128, 127)  # which wraps


@pytest.mark.parametrize("kind", ["joined", "resized", "zeros", "counted"])
def test_bias_that_is_made_of_known_numbers_is_a_mask(kind: str) -> None:
    """Tables that are joined and gathered (BEiT), resized (SAM), all zeros (T5's decoder), slopes times places."""
    g = Graph("g", heads("k", "v") | {"at": TensorType("int64", ["s", "s"]), "place": TensorType("int64", ["s"])})
    if kind == "joined":
        table = ops.concat([g.constant(normal(5, HEADS)), g.constant(normal(3, HEADS, seed=1))], axis=0)
        bias = ops.gather(table, g["at"], axis=0).permute(2, 0, 1).unsqueeze(0)
    elif kind == "resized":
        image = g.constant(normal(1, HEADS, 2, 4))
        flat = ops.onnx.Resize(image, None, None, np.array([1, HEADS, 2, 8]), mode="linear")[:, :, 0]
        bias = ops.gather(flat, g["at"], axis=2)
    elif kind == "zeros":
        bias = ops.onnx.ConstantOfShape(ops.onnx.Shape(g["at"])).broadcast_to(1, HEADS, "s", "s")
    else:
        bias = (g.constant(normal(HEADS, 1, 1)) * g["place"].cast("float32").reshape(1, 1, "s")).unsqueeze(0)
    g.output(ops.softmax(g["q"] @ g["k"].permute(0, 1, 3, 2) + bias) @ g["v"])
    assert "Attention" in operators(fuse(g))
    at = np.random.default_rng(3).integers(0, 8, (5, 5))
    same(g, *(normal(2, HEADS, 5, SIZE, seed=i) for i in range(3)), at, np.arange(5))


# Shapes that are known in part


def test_parts_of_a_shape_are_folded_when_they_are_known() -> None:
    g = Graph("g", {"x": TensorType("float32", ["b", "s", 6])})
    shape = ops.onnx.Shape(g["x"])
    half = ops.onnx.Div(ops.onnx.Gather(shape, np.array(2)), np.array(2))
    last, first = ops.onnx.Slice(shape, np.array([2]), np.array([3])), ops.onnx.Gather(shape, np.array(0))
    g.output(half=half, last=last, first=first)
    graph = g.optimize()
    assert sorted({node.op_type for node in graph.nodes}) == ["Gather", "Shape"]
    cut, end, batch = gc.InferenceSession().load(graph)(np.zeros((2, 3, 6), np.float32))
    assert (int(cut), end.tolist(), int(batch)) == (3, [6], 2)


def test_halves_are_turned_when_they_are_cut_at_a_place_that_is_computed() -> None:
    """x[..., : x.shape[-1] // 2], which the older exporter writes with Shape, Gather and Div."""
    g = Graph("g", {
        "x": TensorType("float32", ["b", 2, "s", SIZE]), "angles": TensorType("float32", ["b", "s", SIZE // 2]),
    })  # fmt: skip
    x, end, axis = g["x"], np.array([2**63 - 1]), np.array([3])
    half = ops.onnx.Unsqueeze(ops.onnx.Div(ops.onnx.Gather(ops.onnx.Shape(x), np.array(3)), np.array(2)), np.array([0]))
    back = ops.onnx.Slice(x, half, end, axis)
    front = ops.onnx.Slice(x, np.array([0]), half, axis)
    both = ops.concat([g["angles"], g["angles"]], axis=-1).unsqueeze(1)
    g.output(x * ops.cos(both) + ops.onnx.Concat(-back, front, axis=-1).rebind(["b", 2, "s", SIZE]) * ops.sin(both))
    assert "RotaryEmbedding" in operators(fuse(g))
    same(g, normal(3, 2, 5, SIZE), normal(3, 5, SIZE // 2))


# Rotary embeddings of neighbours


def twice(table: Symbol) -> Symbol:
    """Each number of [n, sequence, size / 2] two times in a row."""
    n, length, half = table.shape
    return table.unsqueeze(2).unsqueeze(-1).broadcast_to(n, length, 1, half, 2).reshape(n, length, 1, half * 2)


def pairs(x: Symbol) -> Symbol:
    apart = [(-x[..., 1::2]).unsqueeze(-1), x[..., 0::2].unsqueeze(-1)]
    return ops.concat(apart, axis=-1).reshape(*x.shape)


def pairs_back(x: Symbol) -> Symbol:
    apart = [x[..., 1::2].unsqueeze(-1), (-x[..., 0::2]).unsqueeze(-1)]
    return ops.concat(apart, axis=-1).reshape(*x.shape)


def halves(table: Symbol) -> Symbol:
    return ops.concat([table, table], axis=-1).unsqueeze(2)


def neighbours(
    batch: int | str = 1, turn: Callable[[Symbol], Symbol] = pairs, spread: Callable[[Symbol], Symbol] = twice
) -> Graph:
    g = Graph("g", {
        "x": TensorType("float32", ["b", "s", 3, SIZE]), "angles": TensorType("float32", [batch, "s", SIZE // 2]),
    })  # fmt: skip
    g.output(g["x"] * spread(ops.cos(g["angles"])) + turn(g["x"]) * spread(ops.sin(g["angles"])))
    return g


@pytest.mark.parametrize("batch", [1, "b"])
@pytest.mark.parametrize("shape", [(2, 5), (1, 1), (0, 5)])
def test_turned_neighbours_are_a_rotary_embedding(batch: int | str, shape: tuple[int, int]) -> None:
    g = neighbours(batch)
    result = operators(fuse(g))
    assert result.count("RotaryEmbedding") == 1
    assert "Neg" not in result
    same(g, normal(*shape, 3, SIZE), normal(1 if batch == 1 else shape[0], shape[1], SIZE // 2))


def test_neighbours_that_are_turned_otherwise_stay() -> None:
    for graph in (neighbours(turn=pairs_back), neighbours(spread=halves)):
        assert fuse(graph) is graph
