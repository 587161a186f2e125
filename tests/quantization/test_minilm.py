"""all-MiniLM-L6-v2 quantised by one call: accuracy of its embeddings, size of its file, speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import graphcore as gc
from graphcore import Graph, TensorType
from graphcore.analysis.flops import flops
from graphcore.models import minilm
from tests.support.graphs import operators_on_newest

Array = np.ndarray[Any, Any]
REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "minilm_embeddings.json").read_text())
EXACT = np.array(REFERENCE["embeddings"])

COSINES = {
    "int8_dynamic": ({}, 0.988),
    "int8_dynamic16": ({}, 0.9993),
    "int8_split": ({}, 0.99999),
    "int8": ({}, 0.995),
    "int4": ({}, 0.965),
    "int4 without a search": ({"search": False}, 0.962),
    "int4 and embeddings": ({"embeddings": True}, 0.965),
}
"""Options and the least mean cosine to the embeddings of floats."""


@pytest.fixture(scope="module")
def graph() -> Graph:
    return minilm.build(gc.load_tensors(Path(minilm.folder()) / "model.safetensors"))


@pytest.fixture(scope="module")
def tokens() -> tuple[Array, Array]:
    encoded = minilm._tokenizer().encode_batch(REFERENCE["sentences"])
    ids = np.zeros((len(encoded), max(len(e.ids) for e in encoded)), np.int64)
    mask = np.zeros_like(ids)
    for row, sentence in enumerate(encoded):
        ids[row, : len(sentence.ids)] = sentence.ids
        mask[row, : len(sentence.ids)] = 1
    return ids, mask


def cosine(vectors: Array) -> float:
    return float((vectors.astype(np.float64) * EXACT).sum(1).mean())


@pytest.mark.parametrize("case", COSINES)
def test_embeddings_stay_near(case: str, graph: Graph, tokens: tuple[Array, Array]) -> None:
    options, least = COSINES[case]
    result, report = gc.quantize(graph, case.partition(" ")[0], **options)  # type: ignore[arg-type]
    assert len(report.quantized) == (37 if "embeddings" in options else 36)
    (vectors,) = gc.InferenceSession().load(result)(*tokens)
    assert cosine(vectors) > least


@pytest.mark.parametrize(("scheme", "most"), [("int8_dynamic", 0.27), ("int4", 0.225)])
def test_file_is_small_and_runs_in_plain_onnxruntime(
    scheme: str, most: float, graph: Graph, tokens: tuple[Array, Array], tmp_path: Path
) -> None:
    result, report = gc.quantize(graph, scheme, embeddings=True)
    path = tmp_path / "small.onnx"
    result.export(path)
    assert path.stat().st_size < most * report.before
    session = onnxruntime.InferenceSession(path)
    (vectors,) = session.run(None, dict(zip(("input_ids", "attention_mask"), tokens, strict=True)))
    assert cosine(vectors) > (0.98 if scheme == "int8_dynamic" else 0.95)


@pytest.mark.parametrize(("scheme", "least"), [("int8_dynamic", 0.988), ("int8_split", 0.99999)])
def test_standard_onnx_computes_the_same(
    scheme: str, least: float, graph: Graph, tokens: tuple[Array, Array], tmp_path: Path
) -> None:
    result, _ = gc.quantize(graph, scheme)
    path = tmp_path / "standard.onnx"
    result.export(path, target="onnx")
    onnx.checker.check_model(str(path), full_check=True)
    assert {node.domain for node in onnx.load(path).graph.node} == {""}
    (vectors,) = onnxruntime.InferenceSession(path).run(
        None, dict(zip(("input_ids", "attention_mask"), tokens, strict=True))
    )
    assert cosine(vectors) > least


def test_biases_are_added_in_the_kernels(graph: Graph) -> None:
    operators = operators_on_newest(gc.quantize(graph)[0])
    assert operators.count("MatMulIntegerToFloat") == 36
    assert operators.count("DynamicQuantizeLinear") == 24  # queries, keys and values are products of one operand
    assert operators.count("Add") == 14 + 24  # both operands of each of the latter are one number
    assert operators.count("ReduceSum") == 3 + 24
    assert operators.count("Expand") == 1
    operators = operators_on_newest(gc.quantize(graph, "int8_split")[0])
    assert operators.count("MatMulIntegerToFloat") == 3 * 36
    assert operators.count("Add") == 14 + 24 + 2 * 36
    operators = operators_on_newest(gc.quantize(graph, "int8_dynamic16")[0])
    assert operators.count("MatMulIntegerToFloat") == 2 * 36
    assert operators.count("Add") == 14 + 24 + 36


def test_second_digits_are_left_out_of_a_small_graph() -> None:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((64, 64)).astype(np.float32) / 8 for _ in range(2)]
    graph = Graph("small", {"x": TensorType("float32", ["n", 64])})
    graph.output(gc.ops.relu(graph["x"] @ weights[0]) @ weights[1])
    x = rng.standard_normal((16, 64)).astype(np.float32)
    assert [row.scheme for row in gc.quantize(graph, "int8_split")[1].quantized] == ["int8_split"] * 2
    result, report = gc.quantize(graph, "int8_split", samples=[(x,)])
    assert [row.scheme for row in report.quantized] == ["int8_dynamic16"] * 2
    (got,), (want,) = (gc.InferenceSession().load(g)(x) for g in (result, graph))
    np.testing.assert_allclose(got, want, atol=0.02 * np.abs(want).max())


@pytest.mark.full
def test_second_digits_are_left_out_where_samples_say_so(graph: Graph, tokens: tuple[Array, Array]) -> None:
    rng = np.random.default_rng(0)
    samples = [tuple(array[:6] for array in tokens), (rng.integers(1000, 20000, (2, 32)), np.ones((2, 32), np.int64))]
    result, report = gc.quantize(graph, "int8_split", samples=samples)
    schemes = [row.scheme for row in report.quantized]
    assert 12 <= schemes.count("int8_dynamic16") < 36
    assert schemes.count("int8_split") == 36 - schemes.count("int8_dynamic16")
    assert sum(row.before for row in report.quantized) / sum(row.after for row in report.quantized) > 2.2
    (vectors,) = gc.InferenceSession().load(result)(*tokens)
    assert cosine(vectors) > 0.9999


def test_int8_multiplies_in_integers(graph: Graph) -> None:
    result = gc.quantize(graph).graph
    counted = flops(result, {"batch": 1, "sequence": 128})
    quantized = [int(each.flops or 0) for each in counted.nodes if each.node.op_type == "QMatMul"]
    assert sum(quantized) > 0.9 * int(counted.total)
    assert operators_on_newest(result).count("MatMulIntegerToFloat") == len(quantized)
