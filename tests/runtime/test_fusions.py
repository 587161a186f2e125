"""Attention of primitives, which a fusion makes one operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import Graph, Symbol, TensorType, ops
from graphcore.runtime.fusions import FUSIONS, fuse

pytestmark = pytest.mark.releases

HEADS, SIZE = 2, 3
LEAST = float(np.finfo(np.float32).min)


ADDED = {"infinite": -np.inf, "least": LEAST, "product": -10000.0}


def operators(graph: Graph) -> list[str]:
    """Of the graph and its bodies."""
    bodies = [value for node in graph.nodes for value in node.attributes.values() if isinstance(value, Graph)]
    return [*(node.op_type for node in graph.nodes), *(name for body in bodies for name in operators(body))]


def split(x: Symbol, heads: int = HEADS) -> Symbol:
    """[batch, length, heads * size] with the heads in front of the sequence."""
    return x.reshape(x.shape[0], x.shape[1], heads, SIZE).permute(0, 2, 1, 3)


def merged(x: Symbol) -> Symbol:
    return x.permute(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], HEADS * SIZE)


def plain(scores: Symbol, mask: Symbol | None) -> Symbol:
    return ops.softmax(scores if mask is None else scores + mask)


def guarded(scores: Symbol, mask: Symbol | None) -> Symbol:
    weights = plain(scores, mask)
    return ops.where(ops.is_nan(weights), 0.0, weights)


def written(
    scale: str = "scores", keys: str = "last", mask: str = "none", workaround: Callable[..., Symbol] = plain
) -> Graph:
    """Attention of primitives, one way of many."""
    rows = TensorType("float32", ["batch", "length", HEADS * SIZE])
    types: dict[str, Any] = {"q": rows, "k": rows, "v": rows}
    if mask != "none":
        types["mask"] = TensorType("float32" if mask == "any" else "bool", ["batch", 1, "length", "length"])
    g = Graph("attention", types)
    q, k, v = split(g["q"]), split(g["k"]), split(g["v"])
    half = np.float32(SIZE**-0.25)
    if scale == "both":
        q, k = q * half, k * half
    if scale == "query":
        q = q / np.float32(SIZE**0.5)
    if keys == "at once":
        turned = (g["k"] if scale != "both" else g["k"] * half).reshape("batch", "length", HEADS, SIZE)
        turned = turned.permute(0, 2, 3, 1)
    elif keys == "flat":
        turned = k.reshape(-1, "length", SIZE).permute(0, 2, 1).reshape("batch", HEADS, SIZE, "length")
    else:
        turned = k.permute(0, 1, 3, 2)
    scores = q @ turned
    if scale == "scores":
        scores = scores * np.float32(SIZE**-0.5)
    g.output(y=merged(workaround(scores, _added(g, mask)) @ v))
    return g


def _added(g: Graph, mask: str) -> Symbol | None:
    if mask in ("infinite", "least"):
        return ops.where(g["mask"], 0.0, ADDED[mask])
    if mask == "product":
        return (1.0 - g["mask"].cast("float32")) * ADDED[mask]
    return g["mask"] if mask == "any" else None


def reference(rows: list[Any], added: Any) -> Any:
    q, k, v = rows[:3]

    def heads(x: Any) -> Any:
        return x.astype(np.float64).reshape(*x.shape[:2], HEADS, SIZE).transpose(0, 2, 1, 3)

    scores = heads(q) @ heads(k).swapaxes(-1, -2) / SIZE**0.5
    scores = (scores + added).astype(np.float32).astype(np.float64)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights = np.nan_to_num(weights / weights.sum(-1, keepdims=True))
    return (weights @ heads(v)).transpose(0, 2, 1, 3).reshape(q.shape)


def feeds(mask: str, batch: int = 2, length: int = 5, seed: int = 0) -> tuple[list[Any], Any]:
    rng = np.random.default_rng(seed)
    rows = [rng.standard_normal((batch, length, HEADS * SIZE)).astype(np.float32) for _ in range(3)]
    if mask == "none":
        return rows, 0.0
    keep = rng.random((batch, 1, length, length)) < 0.6
    keep[0, 0, 0] = False  # a query without keys
    if mask == "any":
        added = np.where(keep, rng.standard_normal(keep.shape), -np.inf).astype(np.float32)
        return [*rows, added], added
    return [*rows, keep], np.where(keep, 0, ADDED[mask])


def run(graph: Graph, arrays: list[Any], **options: Any) -> Any:
    return gc.InferenceSession(**options).load(graph)(*arrays)[0]


@pytest.mark.parametrize("keys", ["last", "at once", "flat"])
@pytest.mark.parametrize("scale", ["scores", "both", "query"])
@pytest.mark.parametrize("mask", ["none", "least", "product", "infinite"])
def test_attention_of_primitives_is_one_operator(mask: str, scale: str, keys: str) -> None:
    graph = written(scale, keys, mask, guarded if mask == "infinite" else plain)
    changed = fuse(graph)
    assert operators(changed).count("Attention") == 1
    assert not {"Softmax", "MatMul", "Transpose", "Reshape"} & {*operators(changed)}
    arrays, added = feeds(mask)
    wanted = reference(arrays, added)
    for each in (graph, changed):
        np.testing.assert_allclose(run(each, arrays), wanted, rtol=2e-5, atol=2e-6)


def test_query_without_keys_keeps_what_it_gives() -> None:
    for mask, workaround in (("least", plain), ("infinite", guarded), ("any", guarded)):
        graph = written(mask=mask, workaround=workaround)
        assert "Attention" in operators(fuse(graph))
        arrays, _ = feeds(mask)
        before, after = run(graph, arrays), run(fuse(graph), arrays)
        np.testing.assert_allclose(after[0, 0], before[0, 0], rtol=1e-5, atol=1e-6)
        assert np.isfinite(after).all()


def test_softmax_that_may_give_nan_stays() -> None:
    """A mask of -inf, or one that nothing is known of, with no workaround: a query without keys gives NaN."""
    for mask in ("infinite", "any"):
        graph = written(mask=mask)
        assert fuse(graph) is graph
        arrays, _ = feeds(mask)
        assert np.isnan(run(graph, arrays)[0, 0]).all()


def _three_axes() -> Graph:
    g = Graph("g", {"q": TensorType("float32", ["h", "s", 3])})
    g.output(ops.softmax(g["q"] @ g["q"].permute(0, 2, 1)) @ g["q"])
    return g


def _unknown_dims() -> Graph:
    g = Graph("g", {"q": TensorType("float32", ["?", "?", "?", 3])})
    g.output(ops.softmax(g["q"] @ g["q"].permute(0, 1, 3, 2)) @ g["q"])
    return g


def _other_axis() -> Graph:
    g = Graph("g", {"q": TensorType("float32", ["b", 2, "s", 3])})
    g.output(ops.softmax(g["q"] @ g["q"].permute(0, 1, 3, 2), axis=2) @ g["q"])
    return g


def _negative_scale() -> Graph:
    g = Graph("g", {"q": TensorType("float32", ["b", 2, "s", 3])})
    g.output(ops.softmax(g["q"] @ g["q"].permute(0, 1, 3, 2) * -0.5) @ g["q"])
    return g


def _narrow() -> Graph:
    g = Graph("g", {"q": TensorType("bfloat16", ["b", 2, "s", 3])})
    g.output(ops.softmax(g["q"] @ g["q"].permute(0, 1, 3, 2)) @ g["q"])
    return g


@pytest.mark.parametrize("build", [_three_axes, _unknown_dims, _other_axis, _negative_scale, _narrow])
def test_what_means_something_else_stays(build: Callable[[], Graph]) -> None:
    graph = build()
    assert fuse(graph) is graph


def test_values_that_are_used_elsewhere_stay() -> None:
    g = Graph("g", {"q": TensorType("float32", ["b", 2, "s", 3])})
    scores = g["q"] @ g["q"].permute(0, 1, 3, 2)
    weights = ops.softmax(scores)
    g.output(weights @ g["q"], weights)
    graph = fuse(g)
    assert {"Attention", "Softmax"} <= {*operators(graph)}
    x = np.random.default_rng(0).standard_normal((2, 2, 4, 3)).astype(np.float32)
    for a, b in zip(gc.InferenceSession().load(g)(x), gc.InferenceSession().load(graph)(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_heads_stay_apart_where_they_were_given_so() -> None:
    g = Graph("g", {name: TensorType("float32", [2, 2, 5, 3]) for name in "qkv"})
    g.output(ops.softmax(g["q"] @ g["k"].permute(0, 1, 3, 2) * 0.5) @ g["v"])
    (node,) = fuse(g).nodes
    assert (node.op_type, node.attributes) == ("Attention", {"scale": 0.5})


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("mask_heads", [1, HEADS])
@pytest.mark.parametrize("length", [1, 5])
def test_attention_with_bools_of_each_head_stays_apart_where_heads_do(
    length: int, mask_heads: int, packed: bool
) -> None:
    shape = [2, length, HEADS * SIZE] if packed else [2, HEADS, length, SIZE]
    rows = TensorType("float32", shape)
    g = Graph("g", {"q": rows, "k": rows, "v": rows, "keep": TensorType("bool", [2, mask_heads, length, length])})
    q, k, v = (split(g[name]) if packed else g[name] for name in "qkv")
    scores = q @ ops.onnx.Transpose(k, perm=[0, 1, 3, 2]) * np.float32(0.5)
    added = ops.onnx.Where(g["keep"], np.float32(0), np.float32(-np.inf))
    result = guarded(scores, added) @ v
    g.output(merged(result) if packed else result)
    is_apart = not packed and mask_heads > 1 and length > 1
    graph = fuse(g)
    assert ("Attention" in operators(graph)) is not is_apart
    rng = np.random.default_rng(0)
    arrays = [*(rng.standard_normal(shape).astype(np.float32) for _ in range(3)), rng.random(g["keep"].shape) < 0.6]
    np.testing.assert_allclose(run(graph, arrays), run(g, arrays, optimize="off"), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("mask", "workaround"), [("none", plain), ("least", plain), ("infinite", guarded)])
@pytest.mark.parametrize(("batch", "length"), [(0, 3), (2, 0), (0, 0)])
def test_fused_attention_is_empty_when_its_operands_are_empty(
    mask: str, workaround: Callable[..., Symbol], batch: int, length: int
) -> None:
    graph = written(mask=mask, workaround=workaround)
    rows = np.zeros((batch, length, HEADS * SIZE), np.float32)
    arrays = [rows, rows, rows, *([] if mask == "none" else [np.ones((batch, 1, length, length), bool)])]
    assert run(graph, arrays).shape == run(graph, arrays, optimize="off").shape == rows.shape


def test_queries_without_any_keys_give_zeros() -> None:
    g = Graph("g", {"q": TensorType("float32", ["b", 2, "s", 3]), "k": TensorType("float32", ["b", 2, "t", 3])})
    g.output(ops.softmax(g["q"] @ g["k"].permute(0, 1, 3, 2)) @ g["k"])
    arrays = [np.ones((1, 2, 4, 3), np.float32), np.ones((1, 2, 0, 3), np.float32)]
    assert not run(g, arrays).any()
    assert "Attention" in operators(fuse(g))


def test_masks_are_made_once_for_all_layers() -> None:
    """The kernel takes the least float32 for -inf: the mask has another number, and nothing looks for it again."""
    model = gc.InferenceSession().load(written(mask="least"))
    assert model._lowered is not None
    assert operators(model._lowered).count("Where") == 1


def test_bodies_and_functions_are_looked_into() -> None:
    @gc.function
    def attend(q: Symbol) -> Symbol:
        return ops.softmax(q @ q.permute(0, 1, 3, 2)) @ q

    g = Graph("g", {"q": TensorType("float32", ["b", 2, "s", 3]), "n": TensorType("int64", [])})
    g.output(ops.for_loop(g["n"], lambda i, x: ops.softmax(x @ x.permute(0, 1, 3, 2)) @ x, attend(g["q"])))
    graph = fuse(g)
    loop = next(node for node in graph.nodes if node.op_type == "Loop")
    assert "Attention" in operators(loop.attributes["body"])
    assert "Attention" in operators(next(n for n in graph.nodes if "definition" in n.attributes)
                                    .attributes["definition"].body)  # fmt: skip
    x = np.random.default_rng(0).standard_normal((2, 2, 4, 3)).astype(np.float32)
    np.testing.assert_allclose(run(graph, [x, np.array(2)]), run(g, [x, np.array(2)]), rtol=1e-5, atol=1e-6)


@pytest.mark.numbers
@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["none", "least", "product", "infinite"]),
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(0, 99),
)
def test_attention_gives_what_primitives_give(mask: str, batch: int, length: int, seed: int) -> None:
    graph = written("both", "flat", mask, guarded)
    arrays, added = feeds(mask, batch, length, seed)
    np.testing.assert_allclose(run(fuse(graph), arrays), reference(arrays, added), rtol=2e-5, atol=2e-6)


def test_every_fusion_says_what_was_measured() -> None:
    assert all(fusion.reason and fusion.name for fusion in FUSIONS)
