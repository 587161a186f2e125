"""Fusion of biases into the kernels of quantised products, and cases in which it must not happen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops

pytestmark = pytest.mark.releases

Array = np.ndarray[Any, Any]
KERNELS = {"int8_dynamic": "MatMulIntegerToFloat", "int8_split": "MatMulIntegerToFloat", "int4": "MatMulNBits"}
POSITIONS = {"MatMulIntegerToFloat": 6, "MatMulNBits": 5}
COUNTS = {"int8_dynamic": 1, "int8_split": 3, "int4": 1}
"""Kernels of a product."""


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def built(build: Any, scheme: str, n: int = 32) -> tuple[Graph, Graph]:
    """A graph of x @ w, and it quantised."""
    graph = Graph("g", {"x": TensorType(DType.float32, ["rows", 64])})
    w = graph.weight("w", normal(64, n))
    graph.output(y=build(graph[0] @ w))
    return graph, gc.quantize(graph, scheme).graph


def has_bias(graph: Graph, scheme: str) -> list[bool]:
    nodes = graph.to_onnx().graph.node
    kernels = [node for node in nodes if node.op_type == KERNELS[scheme]]
    assert len(kernels) % COUNTS[scheme] == 0
    biased = [len(node.input) > POSITIONS[node.op_type] for node in kernels]
    assert sum(biased) <= len(biased) // COUNTS[scheme]
    return biased[:: COUNTS[scheme]]  # the product of first digits is the first one


BIASES: dict[str, tuple[Any, bool]] = {
    "a vector": (lambda y: y + normal(32, seed=2), True),
    "a vector in front": (lambda y: y.graph.constant(normal(32, seed=2)) + y, True),
    "two vectors": (lambda y: y + normal(32, seed=2) + normal(32, seed=3), True),
    "a row": (lambda y: y + normal(1, 32, seed=2), False),
    "a number": (lambda y: y + 2.5, False),
    "a residual": (lambda y: y + ops.tanh(y.graph["x"][:, :32]), False),
    "a vector after a residual": (lambda y: y + ops.tanh(y.graph["x"][:, :32]) + normal(32, seed=2), False),
    "a product that is read twice": (lambda y: (y + normal(32, seed=2)) * y, False),
    "a vector that is computed": (lambda y: y + ops.sum(y.graph["x"][:, :32], axis=0), False),
    "nothing": (lambda y: ops.relu(y), False),
}


@pytest.mark.parametrize("scheme", KERNELS)
@pytest.mark.parametrize("case", BIASES)
def test_bias_is_fused_where_the_result_stays(case: str, scheme: str) -> None:
    build, is_fused = BIASES[case]
    graph, result = built(build, scheme)
    assert has_bias(result, scheme) == [is_fused]
    x = normal(5, 64, seed=1)
    (got,), (exact,) = (gc.InferenceSession().load(g)(x) for g in (result, graph))
    assert np.linalg.norm(got - exact) < (0.03 if scheme != "int4" else 0.2) * np.linalg.norm(exact)
    plain, _ = built(lambda y: y, scheme)
    (product,) = gc.InferenceSession().load(gc.quantize(plain, scheme).graph)(x)
    if case == "a vector":
        np.testing.assert_allclose(got, product + normal(32, seed=2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scheme", KERNELS)
def test_product_that_is_an_output_stays(scheme: str) -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["rows", 64])})
    y = graph[0] @ graph.weight("w", normal(64, 32))
    graph.output(product=y, biased=y + normal(32, seed=2))
    result = gc.quantize(graph, scheme).graph
    assert has_bias(result, scheme) == [False]
    product, biased = gc.InferenceSession().load(result)(normal(5, 64, seed=1))
    np.testing.assert_array_equal(biased, product + normal(32, seed=2))


@pytest.mark.parametrize("scheme", KERNELS)
def test_bias_is_fused_in_bodies(scheme: str) -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["rows", 64])})
    w, b = graph.weight("w", normal(64, 64) / np.float32(8)), graph.weight("b", normal(64, seed=2))

    def step(h: Symbol) -> Symbol:
        return ops.tanh(h @ w + b)

    graph.output(y=ops.for_loop(3, lambda i, h: step(h), graph[0]))
    result = gc.quantize(graph, scheme).graph
    body = next(node for node in result.to_onnx().graph.node if node.op_type == "Loop").attribute[0].g
    kernel, *_ = [node for node in body.node if node.op_type == KERNELS[scheme]]
    assert kernel.input[-1] == "b"
    x = normal(5, 64, seed=1)
    (got,), (exact,) = (gc.InferenceSession().load(g)(x) for g in (result, graph))
    assert np.linalg.norm(got - exact) < 0.3 * np.linalg.norm(exact)


@pytest.mark.numbers
def test_nan_of_a_row_stays_when_a_bias_is_fused() -> None:
    x = normal(5, 64, seed=1)
    x[2, 7] = np.nan
    _, result = built(lambda y: y + normal(32, seed=2), "int4")
    (got,) = gc.InferenceSession().load(result)(x)
    assert np.isnan(got[2]).all()
    assert np.isfinite(got[[0, 1, 3, 4]]).all()


@pytest.mark.parametrize("scheme", KERNELS)
def test_nan_is_looked_for_once_when_products_share_an_operand(scheme: str) -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["rows", 64])})
    parts = [graph[0] @ graph.weight(name, normal(64, 32, seed=i)) for i, name in enumerate("qkv")]
    graph.output(y=ops.concat(parts, axis=-1))
    operators = [node.op_type for node in gc.quantize(graph, scheme).graph.to_onnx().graph.node]
    assert operators.count(KERNELS[scheme]) == 3 * COUNTS[scheme]
    assert operators.count("ReduceSum") == 1
