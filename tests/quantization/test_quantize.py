"""Quantising whole graphs: the weights found, the numbers, the report, the refusals."""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import graphcore as gc
from graphcore import Dim, DType, Graph, Symbol, TensorType, ops
from graphcore.errors import GraphcoreError, GraphError
from graphcore.quantization import encode
from graphcore.quantization.encoders import fit_scales
from graphcore.runtime.quantizer import NOTE, SCHEMES

pytestmark = pytest.mark.releases

Array = np.ndarray[Any, Any]
SESSION = gc.InferenceSession()
ERRORS = {
    "int8_dynamic": 0.02, "int8_dynamic16": 0.01, "int8": 0.015, "int8_split": 2e-4,
    "int4": 0.12, "q4_0": 0.15, "q4_k": 0.15, "q5_k": 0.08, "q6_k": 0.04,
}  # fmt: skip
"""The tolerance of a product against that of floats: the length of the difference over the length."""


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def graph_of(*shape: Any, dtype: str = "float32", **options: Any) -> Graph:
    return Graph("g", {"x": TensorType(dtype, list(shape))}, **options)


def run(graph: Graph, *arrays: Array) -> list[Array]:
    return SESSION.load(graph)(*arrays)


def distance(result: Array, exact: Array) -> float:
    wide = exact.astype(np.float64)
    return float(np.linalg.norm(result.astype(np.float64) - wide) / np.linalg.norm(wide))


def product(k: int = 64, n: int = 32, scale: float = 1.0) -> tuple[Graph, Array]:
    """x @ w, and w."""
    graph, w = graph_of("rows", k), normal(k, n) * np.float32(scale)
    graph.output(y=graph[0] @ graph.weight("w", w))
    return graph, w


def constants(graph: Graph) -> dict[str, Array]:
    """Return the nodes in the file of a graph, those of bodies included."""

    def initializers(proto: onnx.GraphProto) -> Iterator[tuple[str, Array]]:
        yield from ((t.name, onnx.numpy_helper.to_array(t)) for t in proto.initializer)
        for attribute in itertools.chain(*(node.attribute for node in proto.node)):
            if attribute.HasField("g"):
                yield from initializers(attribute.g)

    return dict(initializers(graph.to_onnx().graph))


# What is computed


def dynamic_product(x: Array, w: Array) -> Array:
    """x @ w as ONNX's DynamicQuantizeLinear and MatMulInteger have it, w with a scale a column."""
    low, high = min(x.min(), 0), max(x.max(), 0)
    step = np.float32((high - low) / np.float32(255))
    zero = np.rint(np.clip(-low / step, 0, 255))
    numbers = np.clip(np.rint(x / step) + zero, 0, 255) - zero
    columns = np.abs(w).max(0) / np.float32(127)
    sums = numbers.astype(np.int64) @ np.rint(w / columns).astype(np.int64)
    return np.asarray(sums * (step * columns), np.float32)


@pytest.mark.numbers
def test_product_is_that_of_integers_when_int8_is_dynamic() -> None:
    graph, w = product()
    x = normal(5, 64, seed=1)
    (result,) = run(gc.quantize(graph).graph, x)
    np.testing.assert_allclose(result, dynamic_product(x, w), rtol=1e-6)


@pytest.mark.numbers
@pytest.mark.parametrize("symmetric", [True, False])
def test_product_is_that_of_blocks_when_int4(symmetric: bool) -> None:
    graph, w = product()
    x = normal(5, 64, seed=1)
    (result,) = run(gc.quantize(graph, "int4", symmetric=symmetric, search=False, accuracy_level=0).graph, x)
    blocks = w.T.reshape(32, 2, 32)
    zero: Any
    if symmetric:
        far = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], -1)
        step, zero = far / -8, 8.0
    else:
        low, high = blocks.min(-1, keepdims=True), blocks.max(-1, keepdims=True)
        step = (high - low) / 15
        zero = np.rint(-low / step)
    near = (np.clip(np.rint(blocks / step) + zero, 0, 15) - zero) * step
    np.testing.assert_allclose(result, x @ near.reshape(32, 64).T, rtol=1e-4, atol=1e-4)


@pytest.mark.numbers
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_near_the_product_of_floats(scheme: str) -> None:
    graph, w = product(256, 16)
    x = normal(9, 256, seed=1)
    result, report = gc.quantize(graph, scheme)
    (got,) = run(result, x)
    assert distance(got, x @ w) < ERRORS[scheme]
    assert [row.scheme for row in report] == [scheme]
    plain = onnxruntime.InferenceSession(result.to_onnx(target="onnx").SerializeToString())
    np.testing.assert_allclose(plain.run(None, {"x": x})[0], got, rtol=0.02, atol=0.02 * np.abs(got).max())


@pytest.mark.parametrize("attributes", [*itertools.product([0, 1], [0, 1], [1.0, 0.5], [1.0, -2.0])])
@pytest.mark.parametrize("bias", [None, (24,), (1, 24), (4, 24), ()])
def test_gemm_keeps_its_attributes(attributes: tuple[Any, ...], bias: tuple[int, ...] | None) -> None:
    trans_a, trans_b, alpha, beta = attributes
    graph = graph_of(*((40, 4) if trans_a else (4, 40)))
    w, x = normal(40, 24), normal(4, 40, seed=1)
    operands = [graph[0], graph.weight("w", np.ascontiguousarray(w.T) if trans_b else w)]
    exact = alpha * (x @ w)
    if bias is not None:
        c = normal(*bias, seed=2) * np.float32(9)
        operands.append(graph.weight("c", np.asarray(c)))
        exact = exact + beta * c
    results = {"transA": trans_a, "transB": trans_b, "alpha": alpha, "beta": beta}
    graph.output(*graph.op("Gemm", operands, results))
    result, report = gc.quantize(graph, min_elements=0)
    assert len(report.quantized) == 1
    (got,) = run(result, np.ascontiguousarray(x.T) if trans_a else x)
    assert distance(got, exact) < 0.02


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_operand_may_have_any_rank(rank: int) -> None:
    graph, w = graph_of(*[2, 3, 4][: rank - 1], 64), normal(64, 32)
    graph.output(y=graph[0] @ graph.weight("w", w))
    x = normal(*[2, 3, 4][: rank - 1], 64, seed=1)
    (got,) = run(gc.quantize(graph).graph, x)
    assert distance(got, x @ w) < 0.02


def test_operand_may_be_of_a_length_that_only_the_run_knows() -> None:
    graph, w = graph_of("rows", Dim.dynamic()), normal(64, 32)
    graph.output(*graph.op("MatMul", [graph[0], graph.weight("w", w)], None, [TensorType("float32", ["rows", 32])]))
    x = normal(5, 64, seed=1)
    for scheme in ("int8_dynamic", "int4"):
        (got,) = run(gc.quantize(graph, scheme).graph, x)
        assert distance(got, x @ w) < ERRORS[scheme]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "tensor_float32"])
@pytest.mark.parametrize("scheme", ["int8_dynamic", "int4"])
def test_dtype_stays_when_floats_are_narrow(dtype: str, scheme: str) -> None:
    value = DType.of(dtype)
    graph, w = graph_of("rows", 64, dtype=dtype), normal(64, 32).astype(value.numpy)
    graph.output(y=graph[0] @ graph.weight("w", w, value))
    result, _ = gc.quantize(graph, scheme)
    assert result.output_types == graph.output_types
    x = normal(5, 64, seed=1).astype(value.numpy)
    (got,) = run(result, x)
    assert distance(got, x.astype(np.float32) @ w.astype(np.float32)) < ERRORS[scheme] + 0.01


@pytest.mark.parametrize(
    "system", ["kernel_float", "anvil", "array_api", "allo_hls", "allo_cpp", "max_published", "numpy", "jax", "torch"]
)
def test_promotion_system_stays(system: str) -> None:
    graph, w = graph_of("rows", 64, promotion=system), normal(64, 32)
    graph.output(y=graph[0] @ graph.weight("w", w))
    result, _ = gc.quantize(graph)
    assert result.promotion is graph.promotion
    assert result.output_types == graph.output_types
    x = normal(5, 64, seed=1) / np.float32(16)
    assert distance(run(result, x)[0], x @ w) < 0.02


def test_weights_have_seven_bits_when_the_range_is_reduced() -> None:
    graph, w = product()
    result, _ = gc.quantize(graph, reduce_range=True)
    (numbers,) = [array for array in constants(result).values() if array.dtype == np.int8]
    assert (numbers.min(), numbers.max()) == (-63, 63)
    x = normal(5, 64, seed=1)
    assert distance(run(result, x)[0], x @ w) < 0.03


@pytest.mark.numbers
def test_nan_stays_visible() -> None:
    graph, _ = product()
    x = normal(5, 64, seed=1)
    x[2, 7] = np.nan
    for scheme in ("int8_dynamic", "int4"):
        assert np.isnan(run(gc.quantize(graph, scheme).graph, x)[0][2]).all()


# What is found


FORMS = {
    "transposed": lambda g, w: g.weight("w", np.ascontiguousarray(w.T)).T,
    "transposed twice": lambda g, w: g.weight("w", w).T.T,
    "cast": lambda g, w: g.weight("w", w.astype(np.float16)).cast(DType.float32),
    "cast from a wide float": lambda g, w: g.weight("w", w.astype(np.float64)).cast(DType.float32),
    "reshaped": lambda g, w: g.weight("w", w.reshape(4, 16, 32)).reshape(64, 32),
    "with more dims": lambda g, w: g.weight("w", w[None]).squeeze(0),
    "all of it": lambda g, w: (
        g.weight("w", np.ascontiguousarray(w.T).astype(np.float16).reshape(32, 8, 8)).reshape(32, 64).cast("float32").T
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_weight_is_found_when_nodes_reshape_or_cast_it(form: str) -> None:
    graph, w = graph_of("rows", 64), normal(64, 32)
    graph.output(y=graph[0] @ FORMS[form](graph, w))
    result, report = gc.quantize(graph)
    (row,) = report
    assert (row.weight, row.scheme) == ("w", "int8_dynamic")
    assert row.after == 64 * 32 + 4 * 32
    assert {node.op_type for node in result.nodes} == {"QMatMul"}
    assert all(array.itemsize == 1 for array in constants(result).values() if array.size >= 64 * 32)
    x = normal(5, 64, seed=1)
    assert distance(run(result, x)[0], x @ w) < 0.02


def test_weight_is_found_when_its_integers_are_divided_by_a_scale() -> None:
    numbers = np.random.default_rng(0).integers(-100, 100, (64, 32)).astype(np.int8)
    for scale in (np.float32(50), np.linspace(20, 90, 32, dtype=np.float32)):
        graph = graph_of("rows", 64)
        w = graph.weight("w", numbers)
        graph.output(y=graph[0] @ ops.onnx.Div(w.cast("float32"), scale))
        result = gc.quantize(graph).graph
        assert {node.op_type for node in result.nodes} == {"QMatMul"}
        x = normal(5, 64, seed=1)
        assert distance(run(result, x)[0], x @ (numbers / scale)) < 0.02
    graph = graph_of("rows", 64)
    graph.output(y=graph[0] @ ops.onnx.Div(np.float32(50), graph.weight("w", numbers).cast("float32")))
    assert "QMatMul" not in {node.op_type for node in gc.quantize(graph).graph.nodes}


def test_weight_is_encoded_once_when_nodes_share_it() -> None:
    graph, w = graph_of("rows", 64), normal(64, 64)
    value = graph.weight("w", w)
    graph.output(y=(graph[0] @ value) + (ops.tanh(graph[0]) @ value) + ops.linear(graph[0], value.T))
    result, report = gc.quantize(graph)
    assert [(row.before, row.after) for row in report] == [(4 * 64 * 64, 64 * 64 + 4 * 64), (0, 0), (0, 0)]
    assert sum(array.size == 64 * 64 for array in constants(result).values()) == 1
    assert "shared" in str(report)


def test_rows_and_products_share_a_tied_table_when_int8() -> None:
    table = normal(100, 64)
    graph = Graph("tied", {"ids": TensorType("int64", ["n"])})
    value = graph.weight("table", table)
    graph.output(y=ops.tanh(ops.gather(value, graph[0])) @ value.T)
    result, report = gc.quantize(graph, embeddings=True)
    assert [row.operator for row in report.quantized] == ["Gather", "MatMul"]
    assert report.after == 100 * 64 + 4 * 100
    ids = np.array([3, 99, 0])
    assert distance(run(result, ids)[0], np.tanh(table[ids]) @ table.T) < 0.02


def test_float_table_is_counted_when_something_else_reads_it() -> None:
    table = normal(100, 64)
    graph = Graph("tied", {"ids": TensorType("int64", ["n"])})
    value = graph.weight("table", table)
    graph.output(y=ops.gather(value, graph[0]) @ value.T)
    result, report = gc.quantize(graph)
    gather, matmul = report
    assert gather.reason == "it is an embedding table; only embeddings=True quantises those"
    assert gather.after == table.nbytes
    assert matmul.after == 100 * 64 + 4 * 100
    assert "table" in result.weights


@pytest.mark.parametrize("scheme", ["int8_dynamic", "int4", "q4_0"])
def test_tables_are_int8_rows_under_any_scheme(scheme: str) -> None:
    table = normal(50, 32)
    graph = Graph("rows", {"ids": TensorType("int64", ["n", 2])})
    graph.output(y=ops.gather(graph.weight("table", table), graph[0]))
    assert not gc.quantize(graph, scheme).report.quantized
    result, (row,) = gc.quantize(graph, scheme, embeddings=True)
    assert (row.scheme, row.after) == ("int8", 50 * 32 + 4 * 50)
    ids = np.array([[3, 49], [0, -1]])
    step = np.abs(table).max(1, keepdims=True) / 127
    np.testing.assert_allclose(run(result, ids)[0], (np.rint(table / step) * step)[ids], rtol=1e-6)


def in_branches(graph: Graph, w: Symbol) -> Any:
    x = graph[0]
    return ops.cond(ops.sum(x) > 0, lambda: x @ w, lambda: ops.tanh(x) @ w)


def in_loop(graph: Graph, w: Symbol) -> Any:
    return ops.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, h @ w), (0, graph[0]))[1]


@pytest.mark.parametrize("build", [in_branches, in_loop])
@pytest.mark.parametrize("scheme", ["int8_dynamic", "int8", "int4"])
def test_products_in_bodies_are_quantised(build: Any, scheme: str) -> None:
    graph, w = graph_of("rows", 64), normal(64, 64) / np.float32(8)
    graph.output(y=build(graph, graph.weight("w", w)))
    result, report = gc.quantize(graph, scheme)
    assert len(report.quantized) == (2 if build is in_branches else 1)
    assert not result.weights
    assert all(array.dtype != np.float32 or array.size < 64 * 64 for array in constants(result).values())
    x = normal(5, 64, seed=1)
    assert distance(run(result, x)[0], run(graph, x)[0]) < 4 * ERRORS[scheme]
    plain = onnxruntime.InferenceSession(result.to_onnx(target="onnx").SerializeToString())
    assert distance(plain.run(None, {"x": x})[0], run(graph, x)[0]) < 4 * ERRORS[scheme]


def stacked() -> Graph:
    @gc.function
    def block(h: Symbol) -> Symbol:
        return ops.relu(h @ Graph.current().weight("w", normal(64, 64) / np.float32(8)))

    graph = graph_of("rows", 64)
    graph.output(y=block(block(graph[0])))
    return graph


def test_products_in_functions_are_quantised_and_the_calls_inlined() -> None:
    graph = stacked()
    result, report = gc.quantize(graph)
    assert [row.layer for row in report.quantized] == ["block", "block_1"]
    assert {node.op_type for node in result.nodes} == {"QMatMul", "Relu"}
    x = normal(5, 64, seed=1)
    assert distance(run(result, x)[0], run(graph, x)[0]) < 0.03


def test_functions_stay_when_nothing_in_them_is_chosen() -> None:
    graph = stacked()
    result, report = gc.quantize(graph, min_elements=10_000)
    assert not report.quantized
    assert [node.op_type for node in result.nodes] == ["block", "block"]


# What is left


def unquantized(build: Any, *shape: Any, dtype: str = "float32", scheme: str = "int8_dynamic", **options: Any) -> str:
    """Return why the one candidate of a graph stays, and check that it computes the same as before."""
    graph = graph_of(*shape, dtype=dtype)
    graph.output(y=build(graph[0]))
    result, report = gc.quantize(graph, scheme, **options)
    (row,) = report
    assert not row.scheme
    assert row.before == row.after > 0
    x = normal(*shape, seed=1).astype(graph[0].dtype.numpy)
    np.testing.assert_array_equal(run(result, x)[0], run(graph, x)[0])
    return row.reason


def test_reasons_say_why_a_layer_stays() -> None:
    tall, wide = normal(64, 32), normal(64, 32).astype(np.float64)
    narrow = tall.astype(DType.float8_e5m2.numpy)
    broken = tall.copy()
    broken[3, 3] = np.nan
    assert (
        unquantized(lambda x: x @ normal(8, 8), 5, 8)
        == "its weight is small: it has 64 elements, fewer than min_elements=1024"
    )
    reason = unquantized(lambda x: x @ wide, 5, 64, dtype="float64")
    assert reason == "its weight is float64; only float32, float16, bfloat16, tensor_float32 are quantised"
    reason = unquantized(lambda x: tall @ x, 32, 5)
    assert reason == "its weight is the left operand; only weights that are the right operand are quantised"
    reason = unquantized(lambda x: x @ normal(2, 64, 32), 2, 5, 64)
    assert reason == "its weight has 3 dims; only weights of 2 dims are quantised"
    assert unquantized(lambda x: x @ broken, 5, 64) == "1 of 2048 values are NaN or infinite"
    assert (
        unquantized(lambda x: x @ normal(40, 32), 5, 40, scheme="int4")
        == "blocks of 32 do not divide 40, the last dim of [32, 40]"
    )
    assert (
        unquantized(lambda x: x @ tall, 5, 64, scheme="q4_k")
        == "blocks of 256 do not divide 64, the last dim of [32, 64]"
    )
    larger = "its weight would not get smaller: the scales and zero points take as much memory as is saved"
    assert unquantized(lambda x: x @ normal(1, 2000), 5, 1) == larger
    assert unquantized(lambda x: x @ x.graph.weight("w", narrow).cast("float32"), 5, 64) == larger
    reason = unquantized(lambda x: ops.conv2d(x, normal(3, 3, 4, 64)), 1, 9, 9, 4)
    assert reason == "the ranges of its input and output are unknown: give samples, which measure them"


def test_product_of_constants_is_not_a_candidate() -> None:
    graph = graph_of(32)
    graph.output(y=graph[0] + ops.sum(graph.constant(normal(64, 64)) @ graph.constant(normal(64, 32)), axis=0))
    assert len(gc.quantize(graph).report) == 0


def test_graph_without_weights_gives_an_empty_report() -> None:
    graph = graph_of(4)
    graph.output(y=graph[0] * 2)
    result, report = gc.quantize(graph)
    assert (len(report), report.before, report.after) == (0, 0, 0)
    assert str(report) == "0 of 0 layers quantised to int8_dynamic: no operator has a constant weight of floats"
    assert NOTE not in result.metadata
    np.testing.assert_array_equal(run(result, np.ones(4, np.float32))[0], [2, 2, 2, 2])


# What is chosen


def layered() -> Graph:
    graph = graph_of("rows", 64)
    x = graph[0]
    for number in range(3):
        with graph.layer(f"encoder/{number}"):
            x = ops.relu(ops.linear(x, graph.weight(f"w{number}", normal(64, 64) / np.float32(8))))
    with graph.layer("head"):
        graph.output(logits=ops.linear(x, graph.weight("head.weight", normal(32, 64))))
    return graph


CHOICES = {
    "a layer": ({"include": "encoder/1"}, ["encoder/1"]),
    "layers": ({"include": "encoder/*"}, ["encoder/0", "encoder/1", "encoder/2"]),
    "weights": ({"include": ["w0", "head.weight"]}, ["encoder/0", "head"]),
    "a result": ({"include": "logits"}, ["head"]),
    "all but": ({"exclude": "head"}, ["encoder/0", "encoder/1", "encoder/2"]),
    "both": ({"include": ("encoder/*",), "exclude": ["*/0", "w2"]}, ["encoder/1"]),
    "large ones": ({"min_elements": 4096}, ["encoder/0", "encoder/1", "encoder/2"]),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_patterns_choose_layers(choice: str) -> None:
    options, wanted = CHOICES[choice]
    report = gc.quantize(layered(), **options).report  # type: ignore[arg-type]
    assert [row.layer for row in report.quantized] == wanted
    assert len(report) == 4


def test_graph_can_be_quantised_part_by_part() -> None:
    first, _ = gc.quantize(layered(), "int4", include="encoder/*")
    second, report = gc.quantize(first, "int8_dynamic")
    assert [row.layer for row in report] == ["head"]
    assert second.metadata[NOTE] == "int4, int8_dynamic"
    x = normal(5, 64, seed=1)
    assert distance(run(second, x)[0], run(layered(), x)[0]) < 0.3


def test_names_stay_unique_when_parts_share_a_weight() -> None:
    graph = graph_of("rows", 64)
    value = graph.weight("w", normal(64, 64) / np.float32(8))
    with graph.layer("one"):
        h = graph[0] @ value
    h.name = "w.int8.scale"
    with graph.layer("two"):
        graph.output(y=ops.tanh(h) @ value)
    first, report = gc.quantize(graph, include="one")
    assert [row.after for row in report] == [4 * 64 * 64 + 64 * 64 + 4 * 64, 0]
    second, _ = gc.quantize(first, include="two")
    names = [tensor.name for tensor in second.to_onnx(target="onnx").graph.initializer]
    assert len(set(names)) == len(names)
    x = normal(5, 64, seed=1)
    assert distance(run(second, x)[0], run(graph, x)[0]) < 0.03


# What stays, and what the file is


def test_graph_that_was_given_stays_as_it_is() -> None:
    graph = layered()
    before, weights = str(graph), {name: s.producer for name, s in graph.weights.items()}
    gc.quantize(graph, "int4")
    assert str(graph) == before
    assert {name: s.producer for name, s in graph.weights.items()} == weights


def test_names_types_layers_and_lines_stay() -> None:
    graph = layered()
    result, _ = gc.quantize(graph)
    assert type(result) is Graph
    result.verify()
    assert (result.name, [str(s) for s in result.inputs]) == (graph.name, [str(s) for s in graph.inputs])
    assert result.output_types == graph.output_types
    assert [n.layer for n in graph.nodes if n.op_type == "Relu"] == [
        n.layer for n in result.nodes if n.op_type == "Relu"
    ]
    lines = {node.layer: node.line for node in graph.nodes if node.op_type == "Gemm"}
    assert {n.layer: n.line for n in result.nodes if n.op_type == "QMatMul"} == lines
    assert None not in lines.values()
    assert result["logits"].producer.layer == "head/"  # type: ignore[union-attr]


@pytest.mark.parametrize("build", [in_branches, in_loop])
def test_graph_reads_the_same_when_nothing_is_chosen(build: Any) -> None:
    graph = graph_of("rows", 64)
    with graph.layer("body"):
        graph.output(y=build(graph, graph.weight("w", normal(64, 64))))
    for each in (graph, layered(), stacked()):
        assert str(gc.quantize(each, min_elements=10_000).graph) == str(each)


def test_weights_that_nothing_reads_stay() -> None:
    graph, _ = product()
    graph.weight("spare", normal(3))
    assert [*gc.quantize(graph).graph.weights] == ["spare"]


def test_buffers_stay() -> None:
    graph = Graph("state", {"x": TensorType(DType.float32, [1, 64]), "h": gc.Buffer(DType.float32, [1, 64])})
    graph["h"] = ops.tanh(graph["h"] @ graph.weight("w", normal(64, 64) / np.float32(8))) + graph["x"]
    graph.output(y=graph["h"] * 2)
    result, report = gc.quantize(graph)
    assert len(report.quantized) == 1
    assert [*result.buffers] == ["h"]
    small, exact = SESSION.load(result), SESSION.load(graph)
    for _ in range(3):
        (got,), (wanted,) = small(normal(1, 64, seed=1)), exact(normal(1, 64, seed=1))
    assert distance(got, wanted) < 0.03


def test_result_can_be_built_on_copied_and_pickled() -> None:
    result, _ = gc.quantize(product()[0], "int4")
    x = normal(5, 64, seed=1)
    (exact,) = run(result, x)
    for again in (copy.deepcopy(result), pickle.loads(pickle.dumps(result)), result.optimize()):
        np.testing.assert_array_equal(run(again, x)[0], exact)
    more = result.copy()
    more.output(z=more["y"] * 2)
    np.testing.assert_array_equal(run(more, x)[0], exact * 2)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("target", ["onnx", "cpu"])
def test_file_is_small_and_runs(scheme: str, target: Any, tmp_path: Path) -> None:
    graph, w = product(512, 256)
    result, report = gc.quantize(graph, scheme, accuracy_level=4 if scheme == "int8" or scheme[0] == "q" else None)
    path = tmp_path / "small.onnx"
    result.export(path, target=target)
    assert report.before == w.nbytes
    # Blocks of GGUF are numbers and scales of their own in the file, which ONNX and the kernels have.
    # The file aligns weights to 64 bytes.
    padding = 64 * len(onnx.load(path).graph.initializer)
    assert path.stat().st_size < (report.before / 3 + padding if scheme[0] == "q" else report.after + 6000)
    ratios = {"int8_split": 1.9, "int4": 6.0, "q4_0": 7, "q4_k": 7, "q5_k": 5.5, "q6_k": 4.8}
    assert report.before / report.after > ratios.get(scheme, 3.9)
    x = normal(3, 512, seed=1)
    if target == "onnx":
        onnx.checker.check_model(str(path), full_check=True)
        assert {node.domain for node in onnx.load(path).graph.node} == {""}
    (got,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    assert distance(got, x @ w) < ERRORS[scheme]
    loaded = Graph.load(path)
    assert distance(run(loaded, x)[0], x @ w) < ERRORS[scheme]
    assert loaded.metadata[NOTE] == scheme


def test_encoded_weights_go_into_a_file_of_their_own_when_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphcore.runtime.export.EXTERNAL_ABOVE", 60_000)
    graph, w = product(512, 256)
    x = normal(3, 512, seed=1)
    for scheme in ("int8_dynamic", "int4"):
        path = tmp_path / f"{scheme}.onnx"
        gc.quantize(graph, scheme).graph.export(path)
        assert path.stat().st_size < 5000
        assert Path(f"{path}.data").stat().st_size > 60_000
        assert distance(onnxruntime.InferenceSession(path).run(None, {"x": x})[0], x @ w) < ERRORS[scheme]


# The report


def test_report_is_rows_and_a_table() -> None:
    graph = graph_of("rows", 48)
    with graph.layer("up"):
        h = ops.linear(graph[0], graph.weight("up.weight", normal(64, 48)))
    with graph.layer("down"):
        graph.output(y=h @ graph.weight("down.weight", normal(64, 32)))
    report = gc.quantize(graph, "int4").report
    up, down = report
    assert (up.layer, up.operator, up.weight, up.shape, up.scheme) == ("up", "Gemm", "up.weight", (64, 48), "")
    assert (up.before, up.after, up.error) == (12288, 12288, 0.0)
    assert (down.layer, down.operator, down.shape, down.scheme, down.reason) == ("down", "MatMul", (64, 32), "int4", "")
    assert (down.before, down.after) == (8192, 1024 + 4 * 64 + 64)
    near = fit_scales(normal(64, 32).T, encode(np.ascontiguousarray(normal(64, 32).T), "int4", symmetric=False))
    assert down.error == pytest.approx(distance(near.dequantize(), normal(64, 32).T))
    assert (report.quantized, report.left) == ((down,), (up,))
    assert (report.before, report.after) == (20480, 13632)
    assert str(report).splitlines() == [
        "layer  operator  weight       shape  scheme      before   after  error",
        "up     Gemm      up.weight    64x48  - blocks of 32 do not divide 48, the last dim of [64, 48]",
        f"down   MatMul    down.weight  64x32  int4 by 32  8.2 kB  1.3 kB  {down.error:.2%}",
        f"1 of 2 layers quantised to int4, their weights from 20.5 kB to 13.6 kB, error up to {down.error:.2%}",
    ]
    assert json.loads(json.dumps(report.as_dicts()))[1]["after"] == 1344


def test_page_shows_the_report_of_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "howto" / "quantize.md").read_text()
    code, shown = re.findall(r"```(?:python|text)\n(.*?)```", page, re.DOTALL)[:2]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})
    assert out.getvalue() == shown


# Fitting


@given(
    hnp.arrays(
        np.float32, st.tuples(st.integers(1, 3), st.sampled_from([16, 32])), elements=st.floats(-4, 4, width=16)
    ),
    st.booleans(),
)
def test_fitted_blocks_are_not_further_away(array: Array, symmetric: bool) -> None:
    plain = encode(array, "int4", block_size=16, symmetric=symmetric)
    near = fit_scales(array, plain)
    assert (near.shape, near.nbytes, near.data.dtype) == (plain.shape, plain.nbytes, plain.data.dtype)

    def squares(tensor: Any) -> Array:
        return np.asarray(np.square((tensor.dequantize() - array).astype(np.float64)).reshape(-1, 16).sum(-1))

    length = np.square(array.astype(np.float64)).reshape(-1, 16).sum(-1)
    assert (squares(near) <= squares(plain) + 1e-6 * length).all()


def test_fitting_makes_normal_weights_nearer() -> None:
    w = normal(64, 256)
    plain = encode(w, "int4", symmetric=False)
    assert distance(fit_scales(w, plain).dequantize(), w) < 0.97 * distance(plain.dequantize(), w)


def test_fitting_takes_int4_alone() -> None:
    with pytest.raises(GraphcoreError, match="must be encoded as int4, got int8"):
        fit_scales(normal(2, 32), encode(normal(2, 32), "int8"))


# What is refused


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no such scheme": ({"scheme": "int3"}, "there is no scheme 'int3'.*one of int8_dynamic, int8_dynamic16, int8, int"),
    "no name of a scheme": ({"scheme": 8}, "there is no scheme 8"),
    "nothing included": (
        {"include": "decoder/*"},
        "no layer, result or weight .* matches 'decoder/\\*'.*some names are 'encoder/",
    ),
    "nothing excluded": (
        {"exclude": ["head", "tail"]},
        "no layer, result or weight that can be quantised matches 'tail'",
    ),
    "no pattern": ({"include": 3}, "include must be a pattern or a list of patterns, got 3.*give one"),
    "no patterns": ({"exclude": [None]}, "exclude must be a pattern or a list of patterns, got \\[None\\]"),
    "no size of a block": ({"scheme": "int4", "block_size": 48}, "block_size must be a power of two .* got 48"),
    "bool as a size": ({"scheme": "int4", "block_size": True}, "block_size must be a power of two .* got True"),
    "blocks of int8": ({"block_size": 32}, "scheme 'int8_dynamic' does not take block_size"),
    "channels of blocks": (
        {"scheme": "int4", "per_channel": False},
        "a scale for each block, and takes no per_channel",
    ),
    "minima of q4_0": ({"scheme": "q4_0", "symmetric": False}, "scheme 'q4_0' takes no symmetric"),
    "seven bits of four": (
        {"scheme": "int4", "reduce_range": True},
        "reduce_range applies to symmetric int8, not to 'int4' with symmetric=False",
    ),
    "no level": ({"scheme": "int4", "accuracy_level": 3}, "scheme 'int4' does not take accuracy_level=3"),
    "level of dynamic": ({"accuracy_level": 4}, "scheme 'int8_dynamic' does not take accuracy_level=4"),
    "no number": ({"min_elements": -1}, "min_elements must be an integer of at least 0, got -1"),
    "blocks that do not divide": (
        {"scheme": "int4", "block_size": 128, "strict": True},
        "Gemm '.*' cannot be quantised: blocks of 128 do not divide 64",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_choices_are_refused(case: str) -> None:
    options, words = REFUSED[case]
    with pytest.raises(GraphError, match=f"(?s)quantize: .*{words}"):
        gc.quantize(layered(), **options)


def test_strict_refuses_products_that_have_no_quantised_form() -> None:
    graph = graph_of(64, 5)
    graph.output(y=graph.weight("w", normal(32, 64)) @ graph[0])
    with pytest.raises(GraphError, match="MatMul 'y' cannot be quantised: its weight is the left operand"):
        gc.quantize(graph, strict=True)
    graph = graph_of(1, 9, 9, 4)
    graph.output(y=ops.conv2d(graph[0], graph.weight("w", normal(3, 3, 4, 64))))
    assert not gc.quantize(graph, strict=True).report.quantized


def test_strict_takes_what_was_not_chosen() -> None:
    graph = layered()
    assert not gc.quantize(graph, "int4", block_size=128, strict=True, min_elements=10_000).report.quantized


def test_unfinished_graphs_are_refused() -> None:
    with pytest.raises(GraphError, match="has no outputs"):
        gc.quantize(graph_of(4))
    with pytest.raises(GraphError, match="graph must be a Graph, got ModelProto"):
        gc.quantize(layered().to_onnx())


@pytest.mark.parametrize("target", ["onnx", "cpu"])
@pytest.mark.parametrize("scheme", ["int8_dynamic", "int4"])
def test_graph_that_is_quantised_is_not_quantised_again(target: Any, scheme: str) -> None:
    result, _ = gc.quantize(layered(), scheme, min_elements=0)
    with pytest.raises(
        GraphError, match=f"is already quantised, and none of the chosen layers is left: it has {scheme}"
    ):
        gc.quantize(result, "int4")
    loaded = Graph.load(result.to_onnx(target=target))
    with pytest.raises(GraphError, match=f"is already quantised.*: it has {scheme}"):
        gc.quantize(loaded, min_elements=0)


def test_progress_is_told_the_layers(capsys: pytest.CaptureFixture[str]) -> None:
    graph = graph_of("n", 64)
    x = graph["x"]
    for number in range(3):
        x = ops.relu(x @ graph.weight(f"w{number}", normal(64, 64)))
    graph.output(y=x)
    results: list[tuple[int, int | None]] = []
    gc.quantize(graph, "int4", progress=lambda done, most: results.append((done, most)))
    assert results == [(1, 3), (2, 3), (3, 3)]
    assert capsys.readouterr().err == ""
    gc.quantize(graph, "int4", progress=True)
    assert "3/3 layers, " in capsys.readouterr().err
