"""Products of 4 bits for few rows and of bytes for many: the numbers of both, the boundary, and what is in a switch."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, models, ops
from graphcore.ir.transform.walk import bodies
from graphcore.models import llama
from graphcore.quantization import QuantizedTensor, encode
from graphcore.runtime.lowering import lower
from graphcore.runtime.lowering.expansion import row_switch
from graphcore.runtime.lowering.targets.releases import table_of
from graphcore.runtime.ort import release
from graphcore.runtime.ort.release import runtime

Array = np.ndarray[Any, Any]

ROWS, INNER, COLUMNS = 6, 256, 48
HERE = replace(runtime(), many_rows=lambda: ROWS)
TAKES = table_of("cpu").takes("GatherBlockQuantized", 4, ("bits", "block_size"), runtime())
pytestmark = pytest.mark.skipif(not TAKES, reason="this release has no GatherBlockQuantized of bytes")


def loaded(graph: Graph, switches: bool = True) -> gc.Model:
    """Load a graph that switches at `ROWS`, or not at all, whatever this processor is."""
    here = HERE if switches else replace(HERE, many_rows=lambda: None)
    return gc.InferenceSession(optimize="off").load(lower(graph, "cpu", runtime=here, optimize="all"))


def branches(graph: Graph) -> list[Counter[str]]:
    """Return the operators of the branches of the switch: of many rows, and of few; none where there is no switch."""
    changed = lower(graph, "cpu", runtime=HERE, optimize="all")
    results = [node for node in changed.nodes if node.op_type == "If" and bodies(node)[0].name == "many_rows"]
    assert len(results) <= 1
    return [Counter(n.op_type for n in inner.nodes) for node in results for inner in bodies(node)]


def weight(seed: int = 0, columns: int = COLUMNS, inner: int = INNER) -> Array:
    return np.random.default_rng(seed).standard_normal((columns, inner), np.float32)


def product(value: QuantizedTensor, bias: Array | None = None, shape: Any = ("m", INNER), note: str = "int8") -> Graph:
    graph = Graph("product", {"x": TensorType(DType.float32, list(shape))})
    y = ops.qmatmul(value.encoding.lower(), graph[0], value, accuracy_level=4)
    graph.output(y if bias is None else y + bias)
    graph.metadata[row_switch.NOTE] = note
    return graph


def in_bytes(x: Array, value: QuantizedTensor, most: int) -> Array:
    """Compute the product of bytes in NumPy: exact sums, and each rounding in float32."""
    one = np.float32(1)
    step = np.maximum(np.abs(x).max(1, keepdims=True) * np.float32(1 / 127), np.float32(1e-30))
    rows = np.clip(np.rint(x / step), -128, 127).astype(np.int64)
    if value.encoding == "int4":
        assert value.scales is not None
        points = np.full(value.scales.shape, 8) if value.zero_points is None else value.zero_points
        ends = np.maximum(points, 15 - points) if value.zero_points is not None else points
        far = ends.astype(np.float32) * np.abs(value.scales)
    else:
        blocks = np.abs(value.data.reshape(len(value.data), -1, 18)[..., :2].copy().view(np.float16)[..., 0])
        far = np.float32(8) * blocks.astype(np.float32)
    steps = (far.max(1) / np.float32(most)).astype(np.float32)
    steps = np.where(steps > 0, steps, one)
    numbers = np.clip(np.rint(value.dequantize() / steps[:, None]), -128, 127).astype(np.int64)
    return np.asarray(((rows @ numbers.T).astype(np.float32) * (one * steps)) * step)


def most() -> int:
    return 63 if runtime().saturates() else 127


@pytest.mark.parametrize("encoding", ["int4 by 128", "int4 by 32", "int4 by 16", "int4 symmetric", "q4_0"])
def test_many_rows_are_a_product_of_bytes_bit_for_bit(encoding: str) -> None:
    name, _, kind = encoding.partition(" ")
    options: dict[str, Any] = {"block_size": int(kind[3:]), "symmetric": False} if kind.startswith("by") else {}
    value = encode(weight(), name, **options)
    model, x = loaded(product(value)), np.random.default_rng(1).standard_normal((ROWS + 3, INNER), np.float32)
    x[1] *= 1e-6
    x[2] *= 1e6
    np.testing.assert_array_equal(model(x)[0], in_bytes(x, value, most()))


def test_the_switch_is_at_its_number_of_rows() -> None:
    value = encode(weight(), "int4", block_size=128)
    switching, other = loaded(product(value)), loaded(product(value), switches=False)
    x = np.random.default_rng(1).standard_normal((ROWS, INNER), np.float32)
    for rows in (0, 1, ROWS - 1):
        np.testing.assert_array_equal(switching(x[:rows])[0], other(x[:rows])[0])
    assert not np.array_equal(switching(x)[0], other(x)[0])
    np.testing.assert_array_equal(switching(x)[0], in_bytes(x, value, most()))


@pytest.mark.parametrize("bits", ["int4", "q4_0"])
def test_both_forms_are_near_the_product_with_the_weight(bits: str) -> None:
    value = encode(weight(inner=1024), bits)
    x = np.random.default_rng(1).standard_normal((64, 1024), np.float32)
    exact = x.astype(np.float64) @ value.dequantize().astype(np.float64).T
    for switches, far in ((True, 0.02 if most() < 127 else 0.013), (False, 0.01)):
        result = loaded(product(value, shape=("m", 1024)), switches)(x)[0]
        assert np.linalg.norm(result - exact) / np.linalg.norm(exact) < far


def test_a_row_does_not_depend_on_others() -> None:
    model = loaded(product(encode(weight(), "int4", block_size=32)))
    x = np.random.default_rng(1).standard_normal((4 * ROWS, INNER), np.float32)
    alone = model(x[:ROWS])[0]
    x[ROWS:] *= 1e4
    np.testing.assert_array_equal(model(x)[0][:ROWS], alone)


@pytest.mark.parametrize("flaw", [np.nan, np.inf, -np.inf])
def test_a_flaw_makes_its_own_row_nan(flaw: float) -> None:
    model = loaded(product(encode(weight(), "int4", block_size=32), bias=np.ones(COLUMNS, np.float32)))
    x = np.random.default_rng(1).standard_normal((ROWS + 1, INNER), np.float32)
    sound = model(x)[0]
    x[2, 5] = flaw
    result = model(x)[0]
    assert np.isnan(result[2]).all()
    np.testing.assert_array_equal(np.delete(result, 2, 0), np.delete(sound, 2, 0))


def test_rows_and_weights_of_zeros_give_zeros_and_the_bias() -> None:
    bias, matrix = np.arange(COLUMNS, dtype=np.float32), weight()
    matrix[3] = 0
    model = loaded(product(encode(matrix, "int4", block_size=32), bias=bias))
    x = np.random.default_rng(1).standard_normal((ROWS, INNER), np.float32)
    x[1] = 0
    result = model(x)[0]
    np.testing.assert_array_equal(result[1], bias)
    np.testing.assert_array_equal(result[:, 3], np.full(ROWS, bias[3]))


def test_leading_dims_are_rows() -> None:
    value = encode(weight(), "int4", block_size=64)
    x = np.random.default_rng(1).standard_normal((2, ROWS, INNER), np.float32)
    result = loaded(product(value, shape=("a", "b", INNER)))(x)[0]
    np.testing.assert_array_equal(result, in_bytes(x.reshape(-1, INNER), value, most()).reshape(2, ROWS, COLUMNS))


def chain(note: str = "int8") -> Graph:
    """Two products one after the other, with something between, before and after, and a third one of a single row."""
    graph = Graph("chain", {"x": TensorType(DType.float32, ["m", INNER])})
    up = encode(weight(0, 512), "int4", block_size=128)
    down = encode(weight(1, INNER, 512), "int4", block_size=128)
    h = ops.gelu(ops.qmatmul("int4", ops.tanh(graph[0]), up, accuracy_level=4))
    y = ops.qmatmul("int4", h, down, accuracy_level=4) + graph[0]
    head = ops.qmatmul("int4", y[-1:], encode(weight(2), "int4", block_size=128), accuracy_level=4)
    graph.output(h=h, y=y, head=head)
    graph.metadata[row_switch.NOTE] = note
    return graph


def test_what_lies_between_is_in_the_branches_and_what_has_other_rows_is_not() -> None:
    many, few = branches(chain())
    assert many["MatMulIntegerToFloat"] == few["MatMulNBits"] == 2
    assert not many["MatMulNBits"]
    assert not few["MatMulIntegerToFloat"]
    assert "Tanh" not in few
    graph = lower(chain(), "cpu", runtime=HERE, optimize="all")
    assert [n.op_type for n in graph.nodes].count("MatMulNBits") == 1
    assert graph.named_outputs[0][0] == "h"


def test_outputs_inside_of_the_switch_are_those_of_the_graph() -> None:
    x = np.random.default_rng(1).standard_normal((ROWS - 1, INNER), np.float32)
    for item, wanted in zip(loaded(chain())(x), loaded(chain(), switches=False)(x), strict=True):
        np.testing.assert_array_equal(item, wanted)
    x = np.random.default_rng(1).standard_normal((ROWS + 10, INNER), np.float32)
    for item, wanted in zip(loaded(chain())(x), loaded(chain(), switches=False)(x), strict=True):
        assert np.linalg.norm(item - wanted) < 0.05 * np.linalg.norm(wanted)


@pytest.mark.parametrize("why", ["no note", "exact", "another level", "no processor", "another target"])
def test_no_switch(why: str) -> None:
    value = encode(weight(), "int4", block_size=32)
    graph = product(value, note="same" if why == "no note" else "int8")
    if why == "another level":
        graph = Graph("product", {"x": TensorType(DType.float32, ["m", INNER])})
        graph.output(ops.qmatmul("int4", graph[0], value))
        graph.metadata[row_switch.NOTE] = "int8"
    here = replace(HERE, many_rows=lambda: None) if why == "no processor" else HERE
    target = "onnx" if why == "another target" else "cpu"
    changed = lower(graph, target, runtime=here, optimize="exact" if why == "exact" else "all")  # type: ignore[arg-type]
    assert "If" not in [node.op_type for node in changed.nodes]


def test_files_have_no_switch_and_get_one_when_they_are_loaded(tmp_path: Path) -> None:
    graph = chain()
    graph.export(tmp_path / "chain.onnx")
    read = Graph.load(tmp_path / "chain.onnx")
    assert "If" not in [node.op_type for node in read.nodes]
    assert [b["MatMulIntegerToFloat"] for b in branches(read)] == [2, 0]
    x = np.random.default_rng(1).standard_normal((ROWS + 1, INNER), np.float32)
    for item, wanted in zip(loaded(read)(x), loaded(graph)(x), strict=True):
        np.testing.assert_array_equal(item, wanted)


def test_rows_are_known_by_instructions() -> None:
    assert release.rows_of(frozenset({"avx2", "avx512_vnni"})) == release.ROWS["avx512_vnni"]
    assert release.rows_of(frozenset({"avx512_vnni", "amx_int8"})) == release.ROWS["amx_int8"]
    assert release.rows_of(frozenset({"avx2"})) is None
    assert release.many_rows() in (None, *release.ROWS.values())


CONFIG = llama.Config(vocabulary=512, width=128, inner=256, layers=2, heads=4, kv_heads=2, size=32)


def decoder() -> Graph:
    return gc.quantize(llama.build(CONFIG, cache=64), "int4").graph


def test_a_decoder_switches_and_writes_its_cache_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcore.runtime.sessions.plan.runtime", lambda: HERE)
    assert [b["GroupQueryAttention"] for b in branches(decoder())] == [2, 2]
    model = gc.InferenceSession().load(decoder())
    assert len(model.buffers.in_place) == 2 * CONFIG.layers


def test_a_decoder_gives_the_same_tokens_alone_and_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcore.runtime.sessions.plan.runtime", lambda: HERE)
    model = gc.InferenceSession().load(decoder())
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, CONFIG.vocabulary, length).tolist() for length in (ROWS, 17, 30)]  # many rows alone too
    together = models.generate(model, prompts[:2], 20)
    for prompt, item in zip(prompts[:2], together, strict=True):
        np.testing.assert_array_equal(models.generate(model, prompt, 20), item)


def test_a_decoder_takes_prompts_in_both_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = gc.InferenceSession().load(decoder())
    monkeypatch.setattr("graphcore.runtime.sessions.plan.runtime", lambda: HERE)
    model = gc.InferenceSession().load(decoder())
    tokens = np.random.default_rng(0).integers(0, CONFIG.vocabulary, (1, 40))
    few, many = ROWS - 1, 40
    for count in (few, many):
        result, wanted = (m.state()(tokens[:, :count], np.array([count]))[0] for m in (model, plain))
        if count == few:
            np.testing.assert_array_equal(result, wanted)
        assert np.linalg.norm(result - wanted) < 0.1 * np.linalg.norm(wanted)


def test_products_of_many_rows_share_what_they_have_alike() -> None:
    config = llama.Config(vocabulary=512, width=128, inner=256, layers=3, heads=4, kv_heads=2, positions=64)
    many, few = branches(gc.quantize(llama.build(config, cache=32), "int4").graph)
    inputs = 4 * config.layers  # of queries, keys and values; of the output; of gate and up; of down
    assert many["MatMulIntegerToFloat"] == few["MatMulNBits"] == 7 * config.layers
    assert many["Expand"] == 1
    assert many["ReduceMax"] == inputs
    layers_own = 3 * config.layers - 1  # the residuals but the last one, and SiLU's
    rows_of_weights = 5 * config.layers  # once for keys and values, and for gate and up
    assert many["Add"] == inputs + layers_own + rows_of_weights
