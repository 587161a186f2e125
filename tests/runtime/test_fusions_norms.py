"""Fusions of normalisations and rotary embeddings that were written as primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import Graph, Symbol, TensorType, ops
from graphcore.runtime.fusions import fuse

pytestmark = pytest.mark.releases

Array = np.ndarray[Any, Any]
EPSILON = 1e-5
ROWS = TensorType("float32", ["batch", "length", 6])
VECTOR = TensorType("float32", [6])


def operators(graph: Graph) -> list[str]:
    """Of the graph and its bodies."""
    bodies = [value for node in graph.nodes for value in node.attributes.values() if isinstance(value, Graph)]
    return [*(node.op_type for node in graph.nodes), *(name for body in bodies for name in operators(body))]


def square(x: Symbol, how: str) -> Symbol:
    return x * x if how == "product" else ops.onnx.Pow(x, np.float32(2))


def mean(x: Symbol) -> Symbol:
    return ops.onnx.ReduceMean(x, np.array([-1]), keepdims=1)


def over(x: Symbol, root: Symbol, how: str) -> Symbol:
    if how == "quotient":
        return x / root
    reciprocal = ops.onnx.Reciprocal(root) if how == "reciprocal" else ops.onnx.Div(np.float32(1), root)
    return x * reciprocal if how == "reciprocal" else reciprocal * x


def norm(squares: str, division: str, centred: bool, scale: bool, bias: bool) -> Graph:
    g = Graph("norm", {"x": ROWS, "w": VECTOR, "b": VECTOR})
    x = g["x"]
    d = x - mean(x) if centred else x
    y = over(d, ops.onnx.Sqrt(mean(square(d, squares)) + np.float32(EPSILON)), division)
    y = g["w"] * y if scale else y
    g.output(y=y + g["b"] if bias else y)
    return g


def reference(x: Array, w: Array | float, b: Array | float, centred: bool) -> Array:
    wide = x.astype(np.float64)
    wide = wide - wide.mean(-1, keepdims=True) if centred else wide
    result: Array = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + EPSILON) * w + b
    return result


@pytest.mark.parametrize("division", ["quotient", "reciprocal", "one over"])
@pytest.mark.parametrize("squares", ["product", "power"])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize(("scale", "bias"), [(False, False), (True, False), (True, True), (False, True)])
def test_norms_of_parts_are_one_operator(squares: str, division: str, centred: bool, scale: bool, bias: bool) -> None:
    graph = norm(squares, division, centred, scale, bias)
    changed = fuse(graph)
    assert operators(changed).count("LayerNormalization" if centred else "RMSNormalization") == 1
    assert not {"ReduceMean", "Sqrt", "Sub"} & {*operators(changed)}
    assert ("Add" in operators(changed)) is (bias and not centred)  # an RMSNormalization has no bias
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 6), 6, 6))
    x[0, 0] = 0
    wanted = reference(x, w if scale else 1.0, b if bias else 0.0, centred)
    for each in (graph, changed):
        np.testing.assert_allclose(gc.InferenceSession().load(each)(x, w, b)[0], wanted, rtol=2e-5, atol=2e-6)


def _other_axis(x: Symbol) -> Symbol:
    return x / ops.onnx.Sqrt(ops.onnx.ReduceMean(x * x, np.array([1]), keepdims=1) + np.float32(EPSILON))


def _other_square(x: Symbol) -> Symbol:
    return x / ops.onnx.Sqrt(mean(x * (x + 1)) + np.float32(EPSILON))


def _no_epsilon(x: Symbol) -> Symbol:
    return x / ops.onnx.Sqrt(mean(x * x))


def _other_numerator(x: Symbol) -> Symbol:
    return (x + 1) / ops.onnx.Sqrt(mean(x * x) + np.float32(EPSILON))


def _turned_quotient(x: Symbol) -> Symbol:
    return ops.onnx.Sqrt(mean(x * x) + np.float32(EPSILON)) / x


@pytest.mark.parametrize("build", [_other_axis, _other_square, _no_epsilon, _other_numerator, _turned_quotient])
def test_what_is_not_a_norm_stays(build: Callable[[Symbol], Symbol]) -> None:
    g = Graph("g", {"x": ROWS})
    g.output(build(g["x"]))
    assert fuse(g) is g


def test_norms_of_narrow_floats_stay() -> None:
    g = Graph("g", {"x": TensorType("bfloat16", ["n", 6])})
    x = g["x"]
    g.output(x / ops.sqrt(mean(x * x) + 1e-5))
    assert fuse(g) is g


def test_scale_of_two_axes_stays_outside() -> None:
    g = Graph("g", {"x": ROWS, "w": TensorType("float32", ["length", 6])})
    x = g["x"]
    g.output(x / ops.onnx.Sqrt(mean(x * x) + np.float32(EPSILON)) * g["w"])
    assert operators(fuse(g)) == ["RMSNormalization", "Mul"]


# Rotary embeddings

SIZE = 8


def tables(g: Graph, kind: str) -> tuple[Symbol, Symbol]:
    """cos and sin [1 or batch, 1, length, size]."""
    if kind == "known":
        expected = np.arange(5)[:, None] / 10.0 ** (np.arange(SIZE // 2) / 2)
        doubled = np.concatenate([expected, expected], -1).astype(np.float32)[None, None]
        return g.constant(np.cos(doubled)), g.constant(np.sin(doubled))
    angles = g["angles"]
    both = ops.concat([angles, angles], axis=-1)
    return (
        (ops.cos(both) * np.float32(1.25)).unsqueeze(1),
        (ops.sin(both) * np.float32(1.25)).unsqueeze(1),
    )


def turned(x: Symbol) -> Symbol:
    half = SIZE // 2
    return ops.concat([-x[..., half:], x[..., :half]], axis=-1)


def turned_back(x: Symbol) -> Symbol:
    half = SIZE // 2
    return ops.concat([x[..., half:], -x[..., :half]], axis=-1)


def rotated(kind: str, turn: Callable[[Symbol], Symbol] = turned) -> Graph:
    length = 5 if kind == "known" else "length"
    g = Graph("rotary", {
        "x": TensorType("float32", ["batch", 2, length, SIZE]),
        "angles": TensorType("float32", [1 if kind == "of one" else "batch", length, SIZE // 2]),
    })  # fmt: skip
    cos, sin = tables(g, kind)
    x = g["x"]
    g.output(y=x * cos + turn(x) * sin)
    return g


@pytest.mark.parametrize("kind", ["known", "of one", "of each"])
def test_turned_halves_are_a_rotary_embedding(kind: str) -> None:
    graph = rotated(kind)
    changed = fuse(graph)
    assert operators(changed).count("RotaryEmbedding") == 1
    assert "Neg" not in operators(changed)
    rng = np.random.default_rng(0)
    x, angles = (
        rng.standard_normal(s).astype(np.float32)
        for s in ((3, 2, 5, SIZE), (1 if kind == "of one" else 3, 5, SIZE // 2))
    )
    before, after = (gc.InferenceSession().load(each)(x, angles)[0] for each in (graph, changed))
    np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-6)


def test_factor_may_come_before_its_table() -> None:
    g = Graph("rotary", {
        "x": TensorType("float32", ["b", 2, "s", SIZE]), "angles": TensorType("float32", ["b", "s", SIZE // 2]),
    })  # fmt: skip
    x, both = g["x"], ops.concat([g["angles"], g["angles"]], axis=-1)
    cos, sin = ((np.float32(1.25) * table).unsqueeze(1) for table in (ops.cos(both), ops.sin(both)))
    g.output(x * cos + turned(x) * sin)
    assert "RotaryEmbedding" in operators(fuse(g))


def test_tables_whose_halves_differ_stay() -> None:
    g = Graph("g", {name: TensorType("float32", ["b", 2, "s", SIZE]) for name in "x"} | {
        name: TensorType("float32", ["b", 1, "s", SIZE]) for name in ("cos", "sin")
    })  # fmt: skip
    g.output(g["x"] * g["cos"] + turned(g["x"]) * g["sin"])
    assert fuse(g) is g


def test_halves_that_are_turned_the_other_way_stay() -> None:
    graph = rotated("of each", turned_back)
    assert fuse(graph) is graph


# Attention with fewer heads of keys, and in the spelling of torch.nn.MultiheadAttention


def test_heads_that_are_repeated_are_read_once() -> None:
    g = Graph("g", {"q": TensorType("float32", ["b", 4, "s", 3]), "k": TensorType("float32", ["b", 2, "s", 3])})

    def repeated(x: Symbol) -> Symbol:
        return x.unsqueeze(2).broadcast_to("b", 2, 2, "s", 3).reshape("b", 4, "s", 3)

    q, k = g["q"], repeated(g["k"])
    g.output(ops.softmax(q @ k.permute(0, 1, 3, 2)) @ repeated(g["k"] * 2.0))
    graph = fuse(g)
    assert "Unsqueeze" not in operators(graph)
    assert "Attention" in operators(graph)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, heads, 5, 3)).astype(np.float32) for heads in (4, 2)]
    before, after = (gc.InferenceSession().load(each)(*arrays)[0] for each in (g, graph))
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


@pytest.mark.numbers
@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 99))
def test_sequence_first_attention_gives_the_same(batch: int, length: int, seed: int) -> None:
    g = Graph("g", {"x": TensorType("float32", ["s", "b", 3, 8])})

    def heads(x: Symbol) -> Symbol:
        return x.reshape("s", g["x"].shape[1] * 2, 4).permute(1, 0, 2)

    q, k, v = (heads(g["x"][:, :, i]) for i in range(3))
    apart = [x.reshape("b", 2, "s", 4) for x in (q, k, v)]
    turned_keys = k.permute(0, 2, 1).reshape("b", 2, 4, "s")
    g.output(ops.softmax(apart[0] @ turned_keys * np.float32(0.5)) @ apart[2])
    graph = fuse(g)
    assert "Attention" in operators(graph)
    x = np.random.default_rng(seed).standard_normal((length, batch, 3, 8)).astype(np.float32)
    before, after = (gc.InferenceSession().load(each)(x)[0] for each in (g, graph))
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)
