"""The searches of com.microsoft for tokens: their decoders are graphs that keep the names of values."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import graphcore as gc
from graphcore import Graph, TensorType, ops
from graphcore.errors import GraphError
from graphcore.ops import microsoft
from tests.support.contrib_cases import softmax
from tests.support.graphs import Array

pytestmark = pytest.mark.releases

WORDS, LENGTH = 7, 6
TABLE = np.random.default_rng(1).normal(size=(WORDS, WORDS)).astype(np.float32)
PROMPT = np.array([[1, 2], [3, 4]], np.int32)
TOKENS = {"eos_token_id": WORDS - 1, "pad_token_id": 0, "vocab_size": WORDS}


def decoder() -> Graph:
    """A decoder of onnxruntime's form whose scores depend on the last token alone."""
    ids = TensorType("int32", ["b", "s"])
    graph = Graph(
        "decoder",
        {
            "input_ids": ids,
            "position_ids": ids,
            "attention_mask": TensorType("int32", ["b", "t"]),
            "past_0": TensorType("float32", [2, "b", 1, "p", 2]),
        },
    )
    zeros = ops.gather(np.zeros((WORDS, 2), np.float32), graph[0]).unsqueeze(1)
    present = ops.concat([graph["past_0"], ops.stack([zeros, zeros])], axis=3)
    graph.output(logits=ops.gather(TABLE, graph[0]), present_0=present)
    return graph


def greedy() -> list[list[int]]:
    rows = []
    for row in PROMPT.tolist():
        while len(row) < LENGTH:
            is_done = WORDS - 1 in row
            row.append(0 if is_done else int(TABLE[row[-1]].argmax()))
        rows.append(row)
    return rows


def build(name: str) -> Graph:
    graph = Graph("g", {"input_ids": TensorType("int32", ["b", "s"])})
    x, length = graph[0], np.array([LENGTH], np.int32)
    body: Any = {"decoder": decoder(), **TOKENS}
    if name == "GreedySearch":
        graph.output(y=microsoft.GreedySearch(x, length, **body))
    elif name == "BeamSearch":
        graph.output(y=microsoft.BeamSearch(x, length, [0], [1], [1], [1.0], **body))
    else:
        graph.output(y=microsoft.Sampling(x, length, top_p=0.01, **body))
    return graph


def bare(path: Path) -> Array:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"input_ids": PROMPT})[0])


@pytest.mark.numbers
@pytest.mark.parametrize("name", ["GreedySearch", "BeamSearch", "Sampling"])
def test_search_is_built_written_read_and_run(name: str, tmp_path: Path) -> None:
    graph = build(name)
    path, again = tmp_path / "g.onnx", tmp_path / "again.onnx"
    graph.export(path)
    alone = bare(path)
    if name == "Sampling":  # draws from the few most likely tokens of its own generator
        assert alone.shape == (2, LENGTH)
    else:
        assert alone.reshape(2, LENGTH).tolist() == greedy()
    read = Graph.load(path)
    assert str(read.outputs[0].type) == str(graph.outputs[0].type)
    read.export(again)
    np.testing.assert_array_equal(bare(again), alone)
    for source in (graph, path, read):
        np.testing.assert_array_equal(gc.InferenceSession().load(source).execute(PROMPT)[0], alone)


def test_values_of_a_decoder_keep_their_names_beside_those_of_the_graph(tmp_path: Path) -> None:
    build("GreedySearch").export(tmp_path / "g.onnx")
    Graph.load(tmp_path / "g.onnx").export(tmp_path / "again.onnx")
    for name in ("g.onnx", "again.onnx"):
        (node,) = [n for n in onnx.load(tmp_path / name).graph.node if n.domain]
        (body,) = [a.g for a in node.attribute if a.name == "decoder"]
        assert [i.name for i in body.input] == ["input_ids", "position_ids", "attention_mask", "past_0"]
        assert [o.name for o in body.output] == ["logits", "present_0"]


@pytest.mark.parametrize(
    "change",
    [
        lambda graph: graph.with_dims(b=2),
        lambda graph: graph.extract(outputs=["y"]),
        lambda graph: graph.optimize(),
        lambda graph: pickle.loads(pickle.dumps(graph)),
    ],
)
def test_decoder_keeps_its_names_where_a_graph_is_made_of_another(change: Any, tmp_path: Path) -> None:
    change(build("GreedySearch")).export(tmp_path / "g.onnx")
    assert bare(tmp_path / "g.onnx").tolist() == greedy()


def test_whisper_is_typed_and_written_with_its_graphs(tmp_path: Path) -> None:
    graph = Graph("g", {"features": TensorType("float32", ["b", 80, 3000])})
    more: Any = {"decoder": decoder(), "encoder": decoder(), **TOKENS}
    y = microsoft.WhisperBeamSearch(graph[0], [LENGTH], None, [1], [1], **more)
    assert str(y.type) == "int32[b, ?, ?]"
    graph.output(y=y)
    graph.export(tmp_path / "g.onnx")
    (node,) = [n for n in Graph.load(tmp_path / "g.onnx").nodes if n.domain]
    assert [s.name for s in node.attributes["encoder"].inputs][:2] == ["input_ids", "position_ids"]


def whisper(table: Array) -> onnx.ModelProto:
    """Return a model that searches 3 beams of 4 tokens after two, whose logits are the rows of a table."""
    value, node, tensor = onnx.helper.make_tensor_value_info, onnx.helper.make_node, onnx.numpy_helper.from_array
    caches = {f"{part}_{kind}": ["b", 1, kind, 2] for kind in ("self", "cross") for part in ("key", "value")}
    starts = {"key_self": "rows", "value_self": "rows", "key_cross": "sound", "value_cross": "sound"}
    encoder = onnx.helper.make_graph(
        [
            node("Gather", ["table", "decoder_input_ids"], ["logits"]),
            node("ReduceMean", ["encoder_input_ids"], ["encoder_hidden_states"], axes=[1], keepdims=1),
            node("Unsqueeze", ["encoder_hidden_states", "one"], ["sound"]),
            node("Gather", ["vectors", "decoder_input_ids"], ["found"]),
            node("Unsqueeze", ["found", "one"], ["rows"]),
            *(node("Identity", [start], [f"present_{name}_0"]) for name, start in starts.items()),
        ],
        "encoder",
        [value("encoder_input_ids", 1, ["b", 4, 2]), value("decoder_input_ids", 6, ["b", "s"])],
        [
            value("logits", 1, ["b", "s", 6]),
            value("encoder_hidden_states", 1, ["b", 1, 2]),
            *(value(f"present_{name}_0", 1, shape) for name, shape in caches.items()),
        ],
        [tensor(table, "table"), tensor(np.ones((6, 2), np.float32), "vectors"), tensor(np.array([1]), "one")],
    )
    parts = ("key_self", "value_self")
    decoder = onnx.helper.make_graph(
        [
            node("Gather", ["table", "input_ids"], ["logits"]),
            node("Gather", ["vectors", "input_ids"], ["found"]),
            node("Unsqueeze", ["found", "one"], ["row"]),
            *(node("Concat", [f"past_{name}_0", "row"], [f"present_{name}_0"], axis=2) for name in parts),
        ],
        "decoder",
        [value("input_ids", 6, ["b", 1]), *(value(f"past_{name}_0", 1, shape) for name, shape in caches.items())],
        [value("logits", 1, ["b", 1, 6]), *(value(f"present_{name}_0", 1, ["b", 1, "more", 2]) for name in parts)],
        encoder.initializer,
    )
    operands = {"most": np.array([6], np.int32), "least": np.zeros(1, np.int32), "beams": np.array([3], np.int32)}
    operands["kept"], penalty = np.ones(1, np.int32), np.ones(1, np.float32)
    penalties = {"length": penalty, "repetition": penalty}
    search = node(
        "WhisperBeamSearch", ["features", *operands, *penalties, "", "", "", "start"], ["y"], domain="com.microsoft",
        encoder=encoder, decoder=decoder, model_type=2, eos_token_id=5, pad_token_id=5, decoder_start_token_id=0,
    )  # fmt: skip
    graph = onnx.helper.make_graph(
        [search],
        "whisper",
        [value("features", 1, ["b", 4, 2]), value("start", 6, ["b", "s"])],
        [onnx.ValueInfoProto(name="y")],
        [tensor(np.asarray(array), name) for name, array in (operands | penalties).items()],
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.numbers
def test_whisper_finds_the_likeliest_tokens(tmp_path: Path) -> None:
    table = np.random.default_rng(1).normal(0, 2, (6, 6)).astype(np.float32)
    table[:, 5] = -60  # the end, which never comes
    chances = np.log(softmax(table.astype(np.float64)))
    starts, expected = np.array([[0, 1], [2, 3]], np.int32), []
    for start in starts.tolist():
        ways = [[*start, *tokens] for tokens in itertools.product(range(5), repeat=4)]
        expected.append(max(ways, key=lambda way: sum(chances[a, b] for a, b in itertools.pairwise(way[1:]))))
    Graph.load(whisper(table)).export(tmp_path / "g.onnx")
    for source in (whisper(table), tmp_path / "g.onnx"):
        (result,) = gc.InferenceSession().load(source)(np.zeros((2, 4, 2), np.float32), starts)
        assert result.reshape(2, 6).tolist() == expected


def test_decoder_must_be_a_graph() -> None:
    graph = Graph("g", {"x": TensorType("int32", ["b", "s"])})
    body: Any = {"decoder": lambda ids: ids, **TOKENS}
    with pytest.raises(GraphError, match=r"com.microsoft::GreedySearch: decoder must be a Graph, got function"):
        microsoft.GreedySearch(graph[0], [LENGTH], **body)
