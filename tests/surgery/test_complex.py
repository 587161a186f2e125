"""Surgery of graphs of complex numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops

Array = np.ndarray[Any, Any]
WEIGHT = np.array([[1, 2j], [-1j, 0.5]], np.complex64)


def drawn(*shape: int, dtype: Any = np.complex64) -> Array:
    rng = np.random.default_rng(shape)
    graph: Array = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return graph


def built(rows: int | str = "n") -> Graph:
    graph = Graph("g", {"x": TensorType("complex64", [rows, 2])}, promotion="array_api")
    with graph:
        x = graph["x"]
        y = ops.exp(x) @ graph.weight("w", WEIGHT) + 1j
        spectrum = ops.ifft(ops.fft(x, axis=0) * 2, axis=0)
        parts = ops.complex(ops.imag(x), ops.real(x))
        graph.output(y=y, size=abs(y), turn=ops.angle(y), spectrum=spectrum, swapped=parts, long=ops.mag(x, axis=1))
    return graph


def wanted(x: Array) -> list[Array]:
    y = np.exp(x) @ WEIGHT + 1j
    return [y, abs(y), np.angle(y), x * 2, x.imag + 1j * x.real, np.linalg.norm(x, axis=1)]


def ran(graph: Graph, *arrays: Array) -> list[Array]:
    return [np.asarray(result) for result in gc.InferenceSession().load(graph)(*arrays)]


def check(graph: Graph, want: list[Array], *arrays: Array) -> None:
    results = ran(graph, *arrays)
    for symbol, got, one in zip(graph.outputs, results, want, strict=True):
        assert got.dtype == symbol.dtype.numpy
        np.testing.assert_allclose(got, one, rtol=2e-5, atol=1e-5)


X = drawn(5, 2)


@pytest.mark.parametrize(
    "changed",
    [
        lambda: built().with_dims(n=5),
        lambda: built(5),
        lambda: built().rename({"x": "z"}),
        lambda: built().extract(outputs=["y", "size", "turn", "spectrum", "swapped", "long"]),
    ],
    ids=["dims", "static", "renamed", "extracted"],
)
def test_graphs_that_are_changed_give_what_they_gave(changed: Any) -> None:
    check(changed(), wanted(X), X)


def test_constants_and_weights_are_put_in() -> None:
    check(built().with_constants(x=X), wanted(X))
    y = np.exp(X) + 1j
    check(built().with_weights({"w": np.eye(2, dtype=np.complex64)}), [y, abs(y), np.angle(y), *wanted(X)[3:]], X)


def test_graphs_are_called_on_symbols_of_other_shapes_and_cut_inside() -> None:
    outer = Graph("outer", {"q": TensorType("complex64", [5, 2])}, promotion="array_api")
    with outer:
        result = built()(outer["q"] * 2)
        outer.output(*result)
    assert [s.dtype for s in outer.outputs] == [s.dtype for s in built().outputs]
    check(outer, wanted(X * 2), X)
    inner = built().extract(inputs=["y"], outputs=["size", "turn"])
    assert inner.inputs[0].type == TensorType("complex64", ["n", 2])
    check(inner, [abs(X), np.angle(X)], X)


def test_values_are_replaced_by_complex_ones() -> None:
    graph = Graph("g", {"x": TensorType("complex64", ["n"])}, promotion="array_api")
    with graph:
        power = ops.exp(graph["x"])
        graph.output(size=abs(power), y=ops.real(graph["x"]))
    changed = graph.replace(power, lambda z: ops.conj(z) * 1j)
    check(changed, [abs(np.exp(X[0])), X[0].real], X[0])


@pytest.mark.parametrize("target", ["onnx", "cpu", "cuda", "openvino"])
def test_files_for_every_target_take_complex_arrays_again(target: Any, tmp_path: Path) -> None:
    graph = Graph("g", {"x": TensorType("complex64", ["n", 2])}, promotion="array_api")
    with graph:
        y = graph["x"] * graph["x"] + graph.constant([1j, 2], DType.complex64)
        graph.output(y=y, parts=ops.real(y))
    path = tmp_path / "m.onnx"
    graph.export(path, target=target)
    model = gc.InferenceSession().load(path)
    assert model.inputs["x"] == TensorType("complex64", ["n", 2])
    want = X * X + [1j, 2]
    for item in (model, gc.InferenceSession().load(Graph.load(path))):
        y, parts = item(X)
        np.testing.assert_allclose(y, want, rtol=1e-5)
        np.testing.assert_allclose(parts, want.real, rtol=1e-5)


def test_quantising_leaves_complex_layers_as_they_are() -> None:
    weight = drawn(64, 64)
    graph = Graph("g", {"x": TensorType("complex64", ["n", 64])}, promotion="array_api")
    with graph:
        graph.output(
            y=graph["x"] @ graph.weight("w", weight), z=graph["x"].real @ graph.weight("v", weight.real.copy())
        )
    x = drawn(2, 64)
    changed = gc.quantize(graph)
    np.testing.assert_allclose(ran(changed.graph, x)[0], x @ weight, rtol=1e-4, atol=1e-4)
    assert "v" in str(changed.report)
