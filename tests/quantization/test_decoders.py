"""Quantised decoders: what is chosen where nothing is asked for, tied tables, and the memory that they take."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.numpy_helper import to_array

import graphcore as gc
from graphcore import DType, Graph, TensorType, models, ops
from graphcore.errors import GraphError, RunError
from graphcore.ir.symbol import Constant, Symbol
from graphcore.models import gpt2, llama
from graphcore.quantization import encode
from graphcore.runtime.lowering.expansion import row_switch
from graphcore.runtime.ort import memory

Array = np.ndarray[Any, Any]

CONFIG = llama.Config(vocabulary=512, width=256, inner=512, layers=2, heads=4, kv_heads=2, size=64)


def array_of(symbol: Symbol) -> Array:
    assert isinstance(symbol.producer, Constant)
    return symbol.producer.array


def one_layer(array: Array) -> Graph:
    graph = Graph("layer", {"x": TensorType(DType.float32, ["m", array.shape[0]])})
    graph.output(graph[0] @ graph.weight("w", array))
    return graph


def test_a_decoder_has_blocks_of_128_a_tied_table_and_two_forms() -> None:
    graph, report = gc.quantize(llama.build(CONFIG, cache=32), "int4")
    assert {row.block_size for row in report} == {128}
    assert {row.scheme for row in report} == {"int4"}
    assert max(row.error for row in report) <= 0.11
    table, *_, head = report
    assert (table.operator, table.weight, head.weight) == ("Gather", *2 * ["model.embed_tokens.weight"])
    assert (head.before, head.after) == (0, 0)
    assert graph.metadata[row_switch.NOTE] == "int8"
    arrays = [s.producer.array for s in graph.symbols if isinstance(s.producer, Constant)]
    results = {id(array): array.nbytes for array in arrays}
    weights = sum(int(np.prod(shape)) for shape in llama.shapes(CONFIG).values())
    assert sum(results.values()) < 0.75 * weights  # bytes: 4 bits, scales, and the angles


def test_other_graphs_have_blocks_of_32_and_one_form() -> None:
    graph, (row,) = gc.quantize(one_layer(np.random.default_rng(0).standard_normal((128, 64), np.float32)), "int4")
    assert row.block_size == 32
    assert row_switch.NOTE not in graph.metadata
    graph, _ = gc.quantize(
        one_layer(np.random.default_rng(0).standard_normal((128, 64), np.float32)), "int4", many_rows="int8"
    )
    assert graph.metadata[row_switch.NOTE] == "int8"


@pytest.mark.parametrize(("power", "size"), [(1.0, 128), (1.3, 64), (1.75, 32)])
def test_blocks_are_smaller_where_a_weight_has_far_numbers(power: float, size: int) -> None:
    weights = llama.build(CONFIG, cache=32).weights
    drawn = {name: np.array(array_of(s)) for name, s in weights.items()}
    name = "model.layers.1.mlp.up_proj.weight"
    drawn[name] = np.sign(drawn[name]) * np.abs(drawn[name]) ** power
    report = gc.quantize(llama.build(CONFIG, drawn, cache=32), "int4").report
    assert {row.weight: row.block_size for row in report}[name] == size
    error = {row.weight: row.error for row in report}[name]
    assert error <= 0.11 or size == 32


def test_an_own_head_leaves_the_table_in_8_bits() -> None:
    config = llama.Config(vocabulary=512, width=256, inner=512, layers=1, heads=4, kv_heads=2, size=64, tied=False)
    report = gc.quantize(llama.build(config, cache=32), "int4").report
    assert [row.scheme for row in report if row.operator == "Gather"] == ["int8"]


def test_rows_of_a_table_of_4_bits_are_those_of_the_weight() -> None:
    built = llama.build(CONFIG, cache=32)
    table = array_of(built.weights["model.embed_tokens.weight"])
    value = encode(table, "int4", block_size=128, symmetric=False, search=True).dequantize()
    graph = Graph("rows", {"tokens": TensorType(DType.int64, ["n"])})
    rows = ops.gather(graph.weight("table", table), graph[0])
    graph.output(rows=rows, logits=ops.linear(rows, graph.weights["table"]))
    result = gc.quantize(graph, "int4", block_size=128, embeddings=True, accuracy_level=0).graph
    tokens = np.array([0, 5, 511, -1])
    (rows_made, logits) = gc.InferenceSession().load(result)(tokens)
    np.testing.assert_array_equal(rows_made, value[tokens])
    np.testing.assert_allclose(logits, value[tokens] @ value.T, rtol=1e-4, atol=1e-4)


def test_a_token_without_a_row_fails() -> None:
    model = gc.InferenceSession().load(gc.quantize(llama.build(CONFIG, cache=32), "int4").graph)
    for token in (CONFIG.vocabulary, -1):
        with pytest.raises(RunError, match="Gather"):
            model.state()(np.array([[token]]), np.array([1]))


@pytest.mark.parametrize("build", [lambda: llama.build(CONFIG, cache=64), lambda: gpt2.build(gpt2.config(), cache=64)])
def test_files_give_the_tokens_of_the_graph(build: Any, tmp_path: Path) -> None:
    graph = gc.quantize(build(), "int4").graph
    graph.export(tmp_path / "decoder.onnx")
    prompts = [[1, 5, 9], [7]]
    model, read = gc.InferenceSession().load(graph), gc.InferenceSession().load(tmp_path / "decoder.onnx")
    for item, wanted in zip(models.generate(read, prompts, 12), models.generate(model, prompts, 12), strict=True):
        np.testing.assert_array_equal(item, wanted)
    np.testing.assert_array_equal(models.generate(read, prompts[0], 12), models.generate(model, prompts, 12)[0])


@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        ("int4", {"many_rows": "int4"}),
        ("int8", {"many_rows": "int8"}),
        ("int4", {"many_rows": "int8", "accuracy_level": 0}),
    ],
)
def test_forms_that_a_scheme_has_not_are_refused(scheme: str, options: dict[str, Any]) -> None:
    with pytest.raises(GraphError, match=f"scheme '{scheme}' does not take many_rows='int.'"):
        gc.quantize(llama.build(CONFIG, cache=32), scheme, **options)


def test_mapped_memory_is_let_go_and_stays_as_it_is(tmp_path: Path) -> None:
    graph = gc.quantize(llama.build(CONFIG, cache=32), "int4").graph
    graph.export(tmp_path / "decoder.onnx")
    arrays = [array_of(s) for s in Graph.load(tmp_path / "decoder.onnx").weights.values()]
    large = [a for a in arrays if a.nbytes > 1 << 15]
    before = [a.copy() for a in large]
    assert memory.release(large) > 0
    for array, copy in zip(large, before, strict=True):
        np.testing.assert_array_equal(array, copy)
    own = np.arange(1 << 16)
    assert memory.release([own, own[::2], own.reshape(2, -1)]) == 0
    np.testing.assert_array_equal(own, np.arange(1 << 16))


@pytest.mark.full
def test_memory_is_that_of_4_bits(tmp_path: Path) -> None:
    config = llama.Config(vocabulary=16_000, width=1024, inner=2816, layers=2, heads=16, kv_heads=4, size=64)
    weights = sum(int(np.prod(shape)) for shape in llama.shapes(config).values())
    path = tmp_path / "decoder.onnx"
    gc.quantize(llama.build(config, cache=128), "int4", search=False).graph.export(path)
    assert path.stat().st_size < 0.9 * weights  # 4 bits, their scales, and the table a second time
    tensors = constants(Graph.load(path).to_onnx(target="cpu").graph)
    assert sum(to_array(tensor).nbytes for tensor in tensors) < 0.9 * weights
    tracemalloc.start()
    model = gc.InferenceSession(intra_op_num_threads=1).load(path)
    models.generate(model, [list(range(100)), list(range(7))], 4)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.5 * weights  # arrays of Python; float32 has 4 bytes a weight


def constants(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield the tensors of a graph and of the bodies in it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == onnx.AttributeProto.GRAPH:
                yield from constants(attribute.g)
