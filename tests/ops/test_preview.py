"""`ops.onnx.preview`: operators of ONNX's preview domains against NumPy, and Gradient, which does not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphError, ShapeError
from tests.support.graphs import Array, run

RNG = np.random.default_rng(5)
F64 = np.float64


def noise(*shape: int, dtype: Any = np.float32) -> Array:
    return np.asarray(RNG.normal(size=shape), dtype)


def attention(q: Array, k: Array, v: Array, scale: float, change: Any = None, after: Any = None) -> Array:
    """The formula of the standard's text, in float64."""
    groups = q.shape[1] // k.shape[1]
    q, k, v = q.astype(F64), np.repeat(k.astype(F64), groups, 1), np.repeat(v.astype(F64), groups, 1)
    scores = q @ k.swapaxes(-1, -2) * scale
    scores = scores if change is None else change(scores)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    shares = powers / powers.sum(-1, keepdims=True)
    return np.asarray((shares if after is None else after(shares)) @ v)


@pytest.mark.numbers
@pytest.mark.parametrize(("dtype", "near"), [(np.float32, 1e-6), (np.float64, 1e-12), (np.float16, 2e-3)])
def test_flex_attention_computes_the_formula_with_bodies_that_use_outer_values(dtype: Any, near: float) -> None:
    q, k, v = noise(2, 4, 3, 8, dtype=dtype), noise(2, 2, 5, 8, dtype=dtype), noise(2, 2, 5, 6, dtype=dtype)
    mask = np.where(np.tri(3, 5, 1, dtype=bool), 0, -1e4).astype(np.float64 if dtype is np.float64 else np.float32)

    def build(q: Symbol, k: Symbol, v: Symbol, mask: Symbol) -> Symbol:
        total = mask * 1
        return ops.onnx.preview.FlexAttention(
            q, k, v, score_mod=lambda s: s * 2 + total, prob_mod=lambda p: p * p, scale=0.25
        )

    (result,) = run(build, q, k, v, mask, dims=[["b", 4, "n", 8], ["b", 2, "m", 8], ["b", 2, "m", 6], ["n", "m"]])
    assert result.dtype == dtype
    wanted = attention(q, k, v, 0.25, lambda s: s * 2 + mask, np.square)
    np.testing.assert_allclose(result.astype(F64), wanted, atol=near, rtol=near)


def test_flex_attention_without_bodies_has_the_default_scale() -> None:
    q, k, v = noise(1, 2, 3, 4), noise(1, 2, 3, 4), noise(1, 2, 3, 4)
    (result,) = run(ops.onnx.preview.FlexAttention, q, k, v)
    np.testing.assert_allclose(result, attention(q, k, v, 0.5), rtol=1e-5, atol=1e-6)


def test_flex_attention_refuses_ranks_and_bodies_at_the_line() -> None:
    q, m = Graph("g", [TensorType("float32", [1, 2, 3, 4]), TensorType("float32", [3])]).inputs
    with pytest.raises(ShapeError, match=r"(?s)onnx\.preview\.FlexAttention: .*K +\S+ +float32\[3\].*test_preview\.py"):
        ops.onnx.preview.FlexAttention(q, m, q)
    with pytest.raises(GraphError, match=r"score_mod must take 1 Symbols, got a function with the signature \(a, b\)"):
        ops.onnx.preview.FlexAttention(q, q, q, score_mod=lambda a, b: a + b)


# Optimisers, by the pseudo code of the standard in float64.

X, G, S, H = noise(3, 2), noise(3, 2), abs(noise(3, 2)), abs(noise(3, 2))


def adagrad(r: float, t: int, x: Array, g: Array, h: Array) -> tuple[Array, ...]:
    g = 0.1 * x + g
    h = h + g * g
    return x - r / (1 + t * 0.2) * g / (np.sqrt(h) + 1e-3), h


def momentum(r: float, t: int, x: Array, g: Array, v: Array) -> tuple[Array, ...]:
    g = 0.1 * x + g
    v = 0.9 * v + (0.5 if t > 0 else 1) * g
    return x - r * v, v


def nesterov(r: float, t: int, x: Array, g: Array, v: Array) -> tuple[Array, ...]:
    _, v = momentum(r, t, x, g, v)
    return x - r * (0.1 * x + g + 0.9 * v), v


def adam(r: float, t: int, x: Array, g: Array, v: Array, h: Array) -> tuple[Array, ...]:
    g = 0.1 * x + g
    v, h = 0.9 * v + 0.1 * g, 0.999 * h + 0.001 * g * g
    rate = r * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) if t > 0 else r
    return 0.8 * (x - rate * v / (np.sqrt(h) + 1e-3)), v, h


TRAINING = ops.onnx.preview.training
MOMENTUM = {"alpha": 0.9, "beta": 0.5, "norm_coefficient": 0.1}
STEPS: dict[str, tuple[Any, Any, dict[str, Any], list[Array]]] = {
    "Adagrad": (
        TRAINING.Adagrad, adagrad, {"norm_coefficient": 0.1, "epsilon": 1e-3, "decay_factor": 0.2}, [X, G, S]
    ),
    "Momentum": (TRAINING.Momentum, momentum, {**MOMENTUM, "mode": "standard"}, [X, G, S]),
    "Momentum of Nesterov": (TRAINING.Momentum, nesterov, {**MOMENTUM, "mode": "nesterov"}, [X, G, S]),
    "Adam": (
        TRAINING.Adam,
        adam,
        {"norm_coefficient": 0.1, "norm_coefficient_post": 0.2, "epsilon": 1e-3},
        [X, G, S, H],
    ),
    "Adagrad with the default epsilon": (
        TRAINING.Adagrad, lambda r, t, x, g, h: (x - r * g / (np.sqrt(h + g * g) + 1e-6), h + g * g), {},
        [X, G * 0 + np.float32(1e-6), S * 0],
    ),
}  # fmt: skip


@pytest.mark.numbers
@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("name", STEPS)
def test_optimizer_updates_tensors_as_the_standard_writes(name: str, count: int) -> None:
    op, step, attributes, parts = STEPS[name]
    both = [array for part in parts for array in (part, part[:1] * 2)]  # two tensors, all parts of which are adjacent
    results = run(lambda *tensors: op(0.1, count, *tensors, **attributes), *both)
    wanted = zip(step(0.1, count, *parts), step(0.1, count, *(part[:1] * 2 for part in parts)), strict=True)
    expected = [array for pair in wanted for array in pair]
    assert len(results) == len(expected)
    for result, array in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, array, rtol=2e-5, atol=2e-6)


def test_optimizer_refuses_tensors_without_their_state() -> None:
    (x,) = Graph("g", [TensorType("float32", [3])]).inputs
    with pytest.raises(GraphError, match=r"(?s)training\.Adam: .*3 tensors cannot be grouped by 4.*inputs\[1\]"):
        TRAINING.Adam(0.1, 0, x, x, x)


# Gradient


def test_gradient_is_built_read_and_written_but_not_run(tmp_path: Path) -> None:
    graph = Graph("g", {"x": TensorType("float32", [3]), "z": TensorType("float64", ["n"])})
    x, z = graph.inputs
    y = x * 2
    dx, dz = TRAINING.Gradient(x, z, xs=["x", "z"], y="y")
    assert [str(s.type) for s in (dx, dz)] == ["float32[3]", "float64[n]"]
    graph.output(y=y, dx=dx, dz=dz)
    graph.export(tmp_path / "g.onnx", target="onnx")
    read = Graph.load(tmp_path / "g.onnx")
    node = read.nodes[-1]
    assert (node.domain, node.op_type) == ("ai.onnx.preview.training", "Gradient")
    assert (list(node.attributes["xs"]), node.attributes["y"]) == (["x", "z"], "y")
    assert [str(s.type) for s in node.outputs] == ["float32[3]", "float64[n]"]
    expected = r"(?s)Gradient: no runtime computes it.*between x, z and y.*target='onnx'"
    for unrunnable in (graph, read):
        with pytest.raises(GraphError, match=expected):
            gc.InferenceSession().load(unrunnable)


def test_gradient_is_of_floats() -> None:
    (x,) = Graph("g", [TensorType("int64", [3])]).inputs
    with pytest.raises(DTypeError, match=r"(?s)training\.Gradient: it does not take an x of int64\[3\]"):
        TRAINING.Gradient(x, xs=["x"], y="y")


def test_flex_attention_of_bfloat16_has_scores_of_float32() -> None:
    seen: list[DType] = []
    (q,) = Graph("g", [TensorType("bfloat16", [1, 2, 3, 4])]).inputs

    def note(scores: Symbol) -> Symbol:
        seen.append(scores.dtype)
        return scores

    result = ops.onnx.preview.FlexAttention(q, q, q, score_mod=note)
    assert (seen, result.dtype) == ([DType.float32], DType.bfloat16)
