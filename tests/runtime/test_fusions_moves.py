"""Fusions of what kernels compute slowly: parts of a transposed tensor, lengths of vectors, means of windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcore import Graph, InferenceSession, Symbol, TensorType, ops
from graphcore.runtime.fusions import fuse
from tests.sampling import drawn

pytestmark = pytest.mark.releases

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def operators(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.nodes]


def both(graph: Graph, x: Array) -> tuple[list[Array], list[Array]]:
    """Return the results with the fusions and without."""
    return [list(InferenceSession(optimize=level).load(graph)(x)) for level in ("all", "exact")]  # type: ignore[return-value]


# Parts of a transposed tensor


def unbound(perm: Sequence[int], axis: int, count: int, dims: Sequence[int | str], others: bool = False) -> Graph:
    """Return a graph that gives each place along an axis of a Transpose, as PyTorch writes `unbind`."""
    g = Graph("unbound", {"x": TensorType("float32", [*dims])})
    turned = ops.onnx.Transpose(g["x"], perm=perm)
    parts = ops.onnx.Split(turned, np.ones(count, np.int64), axis=axis, outputs=count)
    taken = {f"y{i}": ops.onnx.Relu(ops.onnx.Squeeze(part, np.array([axis]))) for i, part in enumerate(parts)}
    g.output(**taken, **({"whole": turned} if others else {}))
    return g


@settings(max_examples=drawn(30), deadline=None)
@given(st.permutations(range(4)), st.integers(0, 3), st.integers(0, 9))
def test_parts_are_taken_before_a_transpose_bit_for_bit(perm: list[int], axis: int, seed: int) -> None:
    sizes = np.random.default_rng(seed).integers(1, 5, 4).tolist()
    graph = unbound(perm, axis, sizes[perm[axis]], sizes)
    x = RNG.standard_normal(sizes).astype(np.float32)
    results, wanted = both(graph, x)
    assert [(m.shape, m.tobytes()) for m in results] == [(w.shape, w.tobytes()) for w in wanted]


def test_parts_of_heads_whose_last_axis_moves_are_gathered() -> None:
    graph = fuse(unbound([2, 0, 3, 4, 1], 0, 3, ["batch", 6, 3, 4, 5]))
    assert operators(graph).count("Gather") == 3
    assert "Split" not in operators(graph)


@pytest.mark.parametrize(
    "graph",
    [
        unbound([2, 0, 3, 1, 4], 0, 3, ["batch", 6, 3, 4, 5]),
        unbound([2, 0, 3, 4, 1], 0, 3, ["batch", 6, 3, 4, 5], others=True),
        unbound([0, 2, 3, 4, 1], 4, 6, ["batch", 6, 3, 4, 5]),
    ],
    ids=["the last axis stays", "the whole is read too", "along the last axis"],
)
def test_parts_stay_where_one_transpose_is_as_fast(graph: Graph) -> None:
    assert "Split" in operators(fuse(graph))


# Lengths of vectors


def length(shape: Sequence[int | str], axes: Sequence[int], keepdims: int = 1, dtype: str = "float32") -> Graph:
    g = Graph("length", {"x": TensorType(dtype, [*shape])})
    g.output(y=ops.onnx.ReduceL2(g["x"], np.array(axes), keepdims=keepdims))
    return g


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [[-1], [2], [2, 1], [1, -1], [0, 1, 2]])
def test_lengths_of_the_last_axes_are_roots_of_sums(axes: list[int], keepdims: int) -> None:
    graph = length([3, 4, 20], axes, keepdims)
    assert "ReduceL2" not in operators(fuse(graph))
    x = (10 * RNG.standard_normal((3, 4, 20))).astype(np.float32)
    x[0, 0, 0], x[1, 1, 1], x[2, 0] = np.nan, -np.inf, 0
    (result,), (wanted,) = both(graph, x)
    assert result.shape == wanted.shape
    np.testing.assert_allclose(result, wanted, rtol=1e-6)


def test_lengths_of_float16_do_not_overflow_in_between() -> None:
    graph = length(["n", 32], [1], dtype="float16")
    assert "ReduceL2" not in operators(fuse(graph))
    x = (300 * RNG.standard_normal((5, 32))).astype(np.float16)
    (result,), (wanted,) = both(graph, x)
    assert result.dtype == np.float16
    assert np.isfinite(result).all()
    assert result.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    "graph",
    [length([3, 32, 20], [1]), length([3, 4, "n"], [2]), length([3, 4, 8], [2]), length([3, 32], [1], dtype="float64")],
    ids=["other axes", "unknown lengths", "short ones", "float64"],
)
def test_lengths_stay_where_the_kernel_is_as_fast(graph: Graph) -> None:
    assert "ReduceL2" in operators(fuse(graph))


# Means of windows


def pooled(shape: Sequence[int | str], **attributes: Any) -> Graph:
    g = Graph("pooled", {"x": TensorType("float32", [*shape])})
    g.output(y=mean(g["x"], **attributes))
    return g


def pairs(least: int, most: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(least, most), st.integers(least, most))


def mean(x: Symbol, **attributes: Any) -> Symbol:
    result = ops.onnx.AveragePool(x, **attributes)
    assert isinstance(result, Symbol)
    return result


@settings(max_examples=drawn(40), deadline=None)
@given(st.integers(1, 20), pairs(4, 9), pairs(1, 3), pairs(1, 3), st.booleans(), st.booleans())
def test_means_of_windows_are_those_of_the_kernel(
    channels: int, sides: tuple[int, int], kernel: tuple[int, int], strides: tuple[int, int], pads: bool, counts: bool
) -> None:
    around = [(k - 1) // 2 for k in kernel] * 2 if pads else [0] * 4
    graph = pooled(
        ["n", channels, *sides], kernel_shape=[*kernel], strides=[*strides], pads=around, count_include_pad=int(counts)
    )
    x = RNG.standard_normal((2, channels, *sides)).astype(np.float32)
    x[0, 0, 0, 0], x[1, 0, 1, 1] = np.nan, np.inf
    (result,), (wanted,) = both(graph, x)
    assert result.shape == wanted.shape
    np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "graph",
    [
        pooled(["n", 24, 9, 9], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        pooled(["n", 24, "h", "w"], kernel_shape=[2, 2], strides=[2, 2]),
        pooled(["n", 24, "h", "w"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
        pooled(["n", 32, 9, 9], kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    ],
    ids=["padded", "of images of any size", "padding counts", "blocks whose padding counts"],
)
def test_means_of_windows_are_convolutions_where_the_kernel_is_slow(graph: Graph) -> None:
    assert operators(fuse(graph)) == ["Conv", "Div"]


@pytest.mark.parametrize(
    "graph",
    [
        pooled(["n", 32, 9, 9], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        pooled(["n", 24, "h", "w"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        pooled(["n", 24, 9, 9], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        pooled(["n", 24, 9, 9], kernel_shape=[3, 3], dilations=[2, 2]),
        pooled(["n", 24, 9], kernel_shape=[3]),
        pooled(["n", 24, 9, 9], kernel_shape=[3, 3], auto_pad="SAME_UPPER"),
    ],
    ids=["in blocks", "of counts that the run knows", "rounded up", "dilated", "one axis", "padded by name"],
)
def test_means_of_windows_stay_where_a_convolution_is_not_a_gain(graph: Graph) -> None:
    assert operators(fuse(graph)) == ["AveragePool"]
