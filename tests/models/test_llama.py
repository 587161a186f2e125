"""Decoders like Llama: their numbers, checkpoints, files and command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

import graphcore as gc
import graphcore.models.text.__main__ as command_line
from graphcore import Model, models, save_tensors
from graphcore.errors import FeedError, GraphError, ModelError, ResourceLimitError, RunError
from graphcore.models import _config, llama
from tests.support.decoders import LLAMA3, SMALL, llama_logits, some, speeds
from tests.support.decoders import LLAMA_FIELDS as FIELDS
from tests.support.graphs import Array, operators_on_newest

pytestmark = pytest.mark.releases

FORMS = {
    "tied": SMALL,
    "untied": replace(SMALL, tied=False),
    "one head of keys": replace(SMALL, kv_heads=1),
    "as many heads of keys": replace(SMALL, kv_heads=4),
    "qwen2": replace(SMALL, biases="qkv"),
    "all biases": replace(SMALL, biases="qkvo", mlp_biases=True),
    "linear": replace(SMALL, scaling={"rope_type": "linear", "factor": 4.0}),
    "llama3": replace(SMALL, scaling=LLAMA3),
    "heads that no kernel rotates": replace(SMALL, size=8),
    "heads that no kernel takes": replace(SMALL, size=6),
}
TEXT = [3, 17, 40, 0, 5, 5, 29, 11, 8, 23, 2]


def load(graph: gc.Graph) -> Model:
    return gc.InferenceSession(intra_op_num_threads=1).load(graph)


def weights_of(config: llama.Config, seed: int = 0) -> dict[str, Array]:
    return some(llama.shapes(config), seed)


# Numbers


@pytest.mark.numbers
@pytest.mark.parametrize("form", FORMS)
def test_logits_equal_reference_when_a_text_comes_in_parts(form: str) -> None:
    config = FORMS[form]
    arrays = weights_of(config)
    want = llama_logits(config, arrays, TEXT)
    state = load(llama.build(config, arrays, cache=16)).state()
    for start, end in ((0, 4), (4, 7), (7, 8), (8, 9), (9, 10), (10, 11)):
        (got,) = state(np.array([TEXT[start:end]]), np.array([end]))
        np.testing.assert_allclose(got[0], want[end - 1], atol=1e-5)


@pytest.mark.numbers
@pytest.mark.parametrize("form", ["tied", "heads that no kernel takes"])
def test_logits_equal_reference_when_texts_of_a_batch_are_padded_on_the_right(form: str) -> None:
    config = FORMS[form]
    arrays = weights_of(config)
    texts = [TEXT[:5], [9, 8, 7], [1]]
    state = load(llama.build(config, arrays, cache=8)).state()
    fed, lengths = np.full((3, 5), 13), np.array([5, 3, 1])
    for row, text in zip(fed, texts, strict=True):
        row[: len(text)] = text
    for step in range(3):
        (got,) = state(fed, lengths)
        for logits, text in zip(got, texts, strict=True):
            np.testing.assert_allclose(logits, llama_logits(config, arrays, text)[-1], atol=1e-5)
            text.append(7 * step + 2)
        fed, lengths = np.full((3, 1), 7 * step + 2), lengths + 1


@pytest.mark.numbers
def test_logits_of_every_token_equal_reference() -> None:
    arrays = weights_of(SMALL)
    model = load(llama.build(SMALL, arrays, cache=16, every_token=True))
    (got,) = model(np.array([TEXT]), np.array([len(TEXT)]))
    np.testing.assert_allclose(got[0], llama_logits(SMALL, arrays, TEXT), atol=1e-5)


def scales_of(config: llama.Config, seed: int = 0) -> dict[str, Array]:
    """Return steps of int8 caches so wide that few numbers are near the middle between two, and some are clipped."""
    random, shape = np.random.default_rng(seed), (config.kv_heads, 1, config.size)
    names = [f"{kind}{number}" for kind in ("keys", "values") for number in range(config.layers)]
    return {name: random.uniform(0.008, 0.03, shape).astype(np.float32) for name in names}


@pytest.mark.numbers
@pytest.mark.parametrize("form", ["tied", "one head of keys", "qwen2", "llama3"])
def test_logits_of_int8_caches_equal_reference_with_rounded_keys_and_values(form: str, tmp_path: Path) -> None:
    config, arrays = FORMS[form], weights_of(FORMS[form])
    scales = scales_of(config)
    want = llama_logits(config, arrays, TEXT, scales)
    assert abs(want - llama_logits(config, arrays, TEXT)).max() > 1e-3
    graph = llama.build(config, arrays, cache=16, cache_scales=scales)
    graph.export(tmp_path / "decoder.onnx")
    for model in (load(graph), gc.InferenceSession().load(tmp_path / "decoder.onnx")):
        state = model.state()
        for start, end in ((0, 4), (4, 7), (7, 8), (8, 9), (9, 10), (10, 11)):
            (got,) = state(np.array([TEXT[start:end]]), np.array([end]))
            np.testing.assert_allclose(got[0], want[end - 1], atol=1e-5)
        assert state.buffers["keys0"].dtype == np.int8
        assert model.buffers.in_place == ("keys0", "values0", "keys1", "values1")


@pytest.mark.numbers
def test_scales_of_int8_caches_are_those_of_the_greatest_keys_and_values() -> None:
    arrays = weights_of(SMALL)
    for last_tokens in (False, True):
        model = load(llama.build(SMALL, arrays, cache=16, last_tokens=last_tokens))
        scales = models.cache_scales(model, [TEXT, TEXT[:2], [9] * 16])
        for name, array in scales.items():
            texts = [(TEXT, 11), (TEXT[:2], 2), ([9] * 16, 16)]
            peaks = []
            for text, count in texts:
                state = model.state()
                state(np.array([text]), np.array([count]), *[np.array(1)] * last_tokens)
                peaks.append(np.abs(state.buffers[name][0, :, :count]).max(1, keepdims=True))
            assert array.dtype == np.float32
            np.testing.assert_allclose(array, np.max(peaks, 0) / 127, rtol=1e-6)
    got = load(llama.build(SMALL, arrays, cache=16, cache_scales=scales))(np.array([TEXT]), np.array([11]))[0][0]
    want = llama_logits(SMALL, arrays, TEXT)[-1]
    assert np.linalg.norm(got - want) < 0.01 * np.linalg.norm(want)
    zeros = {n: np.zeros_like(a) if n.endswith("v_proj.weight") else a for n, a in arrays.items()}
    model = load(llama.build(SMALL, zeros, cache=16))
    assert all((array > 0).all() for array in models.cache_scales(model, TEXT).values())
    with pytest.raises(FeedError, match="cache_scales: a prompt is empty"):
        models.cache_scales(model, [])


def test_texts_with_int8_caches_share_a_batch_and_its_prefixes() -> None:
    model = load(llama.build(SMALL, weights_of(SMALL), cache=64, cache_scales=scales_of(SMALL)))
    prompts = [TEXT * 2, [*TEXT * 2, 7], [4], TEXT]
    alone = [models.generate(model, prompt, 12) for prompt in prompts]
    with models.Streams(model, slots=2) as streams:
        for got, want in zip([streams.submit(prompt, 12) for prompt in prompts], alone, strict=True):
            np.testing.assert_array_equal(got.result(), want)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda scales: scales.pop("keys1"), r"1 missing: keys1 \[2, 1, 16\]"),
        (lambda scales: scales.update(keys2=scales["keys1"]), "1 unexpected: keys2"),
        (lambda scales: scales.update(keys1=scales["keys1"][:1]), r"1 of another shape: keys1"),
    ],
)
def test_wrong_scales_of_caches_are_refused(change: Any, fault: str) -> None:
    scales = scales_of(SMALL)
    change(scales)
    with pytest.raises(ModelError, match=fault):
        llama.build(SMALL, cache=16, cache_scales=scales)


@pytest.mark.numbers
@pytest.mark.parametrize("form", ["tied", "linear", "llama3"])
def test_angles_equal_formula(form: str) -> None:
    config = replace(FORMS[form], size=64, theta=10000.0)
    cos, sin = llama.angles(config, 50)
    turns = np.outer(np.arange(50), speeds(config))
    assert cos.dtype == sin.dtype == np.float32
    np.testing.assert_allclose(cos, np.cos(turns), atol=1e-6)
    np.testing.assert_allclose(sin, np.sin(turns), atol=1e-6)


def test_scaling_of_llama3_leaves_fast_pairs_and_slows_slow_ones() -> None:
    config = replace(SMALL, size=64, theta=10000.0)
    plain, scaled = speeds(config), speeds(replace(config, scaling=LLAMA3 | {"original_max_position_embeddings": 64}))
    assert plain[0] == scaled[0]
    assert plain[-1] / 8 == scaled[-1]


# Calls that make no sense


@pytest.mark.parametrize("form", ["tied", "heads that no kernel takes"])
def test_lengths_that_do_not_fit_the_tokens_or_the_cache_fail(form: str) -> None:
    model = load(llama.build(FORMS[form], cache=16))
    for length in (0, -1, 17, 2**31, 2**32 + 13, 2**40, -(2**40), -(2**63), 2**63 - 1):
        state = model.state()
        state(np.array([TEXT]), np.array([len(TEXT)]))
        with pytest.raises(RunError):
            state(np.array([[1, 2]]), np.array([length]))
    state = model.state()
    state(np.array([TEXT[:5]] * 2), np.array([5, 5]))
    with pytest.raises(RunError):
        state(np.array([[1, 2]] * 2), np.array([7, 1]))
    with pytest.raises(RunError):
        model(np.array([TEXT * 2]), np.array([5]))


@pytest.mark.parametrize("token", [-1, 41, -41, 2**62])
def test_tokens_that_have_no_row_fail(token: int) -> None:
    with pytest.raises(RunError):
        load(llama.build(SMALL, cache=16))(np.array([[3, token]]), np.array([2]))


def test_text_goes_on_from_a_token_before_its_last_and_begins_anew() -> None:
    arrays = weights_of(SMALL)
    state = load(llama.build(SMALL, arrays, cache=16)).state()
    state(np.array([TEXT]), np.array([len(TEXT)]))
    (got,) = state(np.array([[1, 2]]), np.array([6]))
    np.testing.assert_allclose(got[0], llama_logits(SMALL, arrays, [*TEXT[:4], 1, 2])[-1], atol=1e-5)
    (got,) = state(np.array([[7, 8]]), np.array([2]))
    np.testing.assert_allclose(got[0], llama_logits(SMALL, arrays, [7, 8])[-1], atol=1e-5)


def test_tokens_after_others_in_a_batch_come_one_at_a_time() -> None:
    state = load(llama.build(SMALL, cache=16)).state()
    state(np.array([TEXT[:4]] * 2), np.array([4, 4]))
    with pytest.raises(RunError, match="batch_size must be 1"):
        state(np.array([[1, 2]] * 2), np.array([6, 6]))


# The graph


def test_cache_is_written_in_place() -> None:
    model = load(llama.build(SMALL, cache=16))
    assert model.buffers.in_place == ("keys0", "values0", "keys1", "values1")
    model(np.array([[5]]), np.array([1]))
    assert model.buffers["keys1"].shape == (1, 2, 16, 16)
    assert model.buffers["keys1"][0, :, 0].all()
    assert not model.buffers["keys1"][0, :, 1:].any()


def test_dense_layers_and_attention_are_single_operators() -> None:
    operators = operators_on_newest(llama.build(SMALL, cache=16))
    assert operators.count("Gemm") == 7 * 2 + 1
    assert operators.count("GroupQueryAttention") == 2
    assert operators.count("RMSNormalization") == 2 * 2 + 1


def test_exported_decoder_runs_in_plain_onnxruntime(tmp_path: Path) -> None:
    arrays = weights_of(SMALL)
    path = tmp_path / "llama.onnx"
    llama.build(SMALL, arrays, cache=16).export(path)
    onnx.checker.check_model(str(path))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options)
    remaining = [i.name for i in session.get_inputs()][2:]
    assert remaining == ["keys0", "values0", "keys1", "values1"]
    assert [o.name for o in session.get_outputs()] == ["logits", *(f"{name}_out" for name in remaining)]
    caches = {name: np.zeros((1, 2, 16, 16), np.float32) for name in remaining}
    want = llama_logits(SMALL, arrays, TEXT)
    for start, end in ((0, 4), (4, 5), (5, 6)):
        feed = {"tokens": np.array([TEXT[start:end]]), "lengths": np.array([end]), **caches}
        logits, *stored = session.run(None, feed)
        caches = dict(zip(remaining, stored, strict=True))
        np.testing.assert_allclose(logits[0], want[end - 1], atol=1e-5)


@pytest.mark.parametrize("target", ["cpu", "onnx"])
def test_decoder_from_a_file_generates_what_the_graph_does(tmp_path: Path, target: Any) -> None:
    graph = llama.build(SMALL, weights_of(SMALL), cache=16)
    graph.export(tmp_path / "llama.onnx", target=target)
    onnx.checker.check_model(str(tmp_path / "llama.onnx"), full_check=target == "onnx")
    again = gc.InferenceSession().load(tmp_path / "llama.onnx")
    assert bool(again.buffers.in_place) is (target == "cpu")  # standard ONNX has the operator's body in its place
    np.testing.assert_array_equal(models.generate(again, TEXT[:4], 9), models.generate(load(graph), TEXT[:4], 9))


def test_quantised_decoder_keeps_its_cache_in_place() -> None:
    config = replace(SMALL, width=128, inner=128)
    model = load(gc.quantize(llama.build(config, cache=16), "int4").graph)
    assert len(model.buffers.in_place) == 4
    assert len(models.generate(model, TEXT[:4], 9)) == 9


@pytest.mark.parametrize("cache", [0, -1, 2.5, True, "8"])
def test_cache_that_is_not_a_number_of_tokens_is_refused(cache: Any) -> None:
    with pytest.raises(GraphError, match="cache must be an integer above 0"):
        llama.build(SMALL, cache=cache)


def test_cache_longer_than_the_positions_is_refused() -> None:
    with pytest.raises(ModelError, match="model has 64 positions"):
        llama.build(SMALL, cache=65)


# Weights


def test_faulty_weights_are_named_all_at_once() -> None:
    arrays: dict[str, Any] = weights_of(SMALL)
    del arrays["model.norm.weight"], arrays["model.layers.1.mlp.up_proj.weight"]
    arrays["model.layers.0.self_attn.q_proj.bias"] = np.zeros(64, np.float32)
    arrays["model.layers.0.mlp.gate_proj.weight"] = arrays["model.layers.0.mlp.gate_proj.weight"].T
    arrays["model.layers.0.self_attn.k_proj.weight"] = arrays["model.layers.0.self_attn.k_proj.weight"].astype(
        np.float64
    )
    arrays["model.layers.0.self_attn.v_proj.weight"] = [[1.0]]
    arrays["lm_head.weight"] = arrays["model.embed_tokens.weight"] + 1
    with pytest.raises(ModelError) as caught:
        llama.build(SMALL, arrays)
    for part in (
        "2 missing: model.layers.1.mlp.up_proj.weight [24, 32], model.norm.weight [32]",
        "1 unexpected: model.layers.0.self_attn.q_proj.bias",
        "1 of another shape: model.layers.0.mlp.gate_proj.weight is [32, 24], not [24, 32]",
        "model.layers.0.self_attn.k_proj.weight is float64, model.layers.0.self_attn.v_proj.weight has type list",
        "1 different from the tied weight (model.embed_tokens.weight): lm_head.weight",
    ):
        assert part in caught.value.summary


@pytest.mark.parametrize("dtype", [np.int8, np.int32, bool, ml_dtypes.float8_e4m3fn, np.complex64, object, "M8[s]"])
def test_weights_of_another_dtype_are_refused(dtype: Any) -> None:
    arrays = weights_of(SMALL)
    arrays["model.norm.weight"] = np.ones(32).astype("i8").astype(dtype)
    with pytest.raises(ModelError, match=r"1 of another dtype: model\.norm\.weight is"):
        llama.build(SMALL, arrays)


def test_names_that_checkpoints_have_besides_are_passed_over() -> None:
    arrays = weights_of(SMALL)
    arrays["lm_head.weight"] = arrays["model.embed_tokens.weight"].copy()
    arrays["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(8, np.float32)
    assert len(llama.build(SMALL, arrays).weights) == len(llama.shapes(SMALL))


@pytest.mark.parametrize("wrong", [3, [1], {"a"}])
def test_what_is_not_a_checkpoint_is_refused(wrong: Any) -> None:
    with pytest.raises(ModelError, match="weights must be a path or a dict of arrays, got"):
        llama.build(SMALL, wrong)


def test_random_weights_are_those_of_the_seed_and_not_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    first, again, other = (llama.build(SMALL, seed=seed) for seed in (1, 1, 2))
    arrays = [g["model.embed_tokens.weight"].producer.array for g in (first, again, other)]  # type: ignore[union-attr]
    assert np.array_equal(arrays[0], arrays[1])
    assert not np.array_equal(arrays[0], arrays[2])
    monkeypatch.setattr(_config, "MAX_RANDOM_BYTES", 1000)
    with pytest.raises(ResourceLimitError, match="of random weights"):
        llama.build(SMALL)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=lambda d: d.__name__)
def test_narrow_weights_stay_narrow_in_files_and_are_widened_exactly(tmp_path: Path, dtype: Any) -> None:
    arrays = {name: array.astype(dtype) for name, array in weights_of(SMALL).items()}
    save_tensors(tmp_path / "model.safetensors", arrays)
    graph = llama.build(SMALL, tmp_path / "model.safetensors", cache=16)
    (got,) = load(graph)(np.array([TEXT]), np.array([len(TEXT)]))
    np.testing.assert_allclose(got[0], llama_logits(SMALL, arrays, TEXT)[-1], atol=1e-5)
    elements = sum(array.size for array in arrays.values())
    graph.export(tmp_path / "llama.onnx", external_data=False)
    assert 2 * elements < (tmp_path / "llama.onnx").stat().st_size < 3 * elements + 20_000


def test_weights_come_from_several_files(tmp_path: Path) -> None:
    arrays = weights_of(SMALL)
    names = list(arrays)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in parts.items():
        save_tensors(tmp_path / file, {name: arrays[name] for name in part})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: file for file, part in parts.items() for name in part}}))
    (tmp_path / "config.json").write_text(json.dumps(FIELDS))
    (got,) = load(llama.build(tmp_path / "config.json", index, cache=16))(np.array([TEXT]), np.array([len(TEXT)]))
    np.testing.assert_allclose(got[0], llama_logits(SMALL, arrays, TEXT)[-1], atol=1e-5)


def write_gguf(path: Path, arrays: dict[str, Array], permuted: bool, heads: dict[str, int]) -> None:
    """As converters write a model: other names, and rows of queries and keys with the halves of a head interleaved."""
    writer = gguf.GGUFWriter(path, "llama" if permuted else "qwen2")
    stems = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
        "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    }  # fmt: skip
    for name, array in arrays.items():
        layer = name.removeprefix("model.layers.").split(".")[0] if name.startswith("model.layers.") else None
        stem, kind = name.removeprefix(f"model.layers.{layer}.").rsplit(".", 1)
        if permuted and stems[stem] in heads:
            rows = array.reshape(heads[stems[stem]], 2, -1, *array.shape[1:])
            array = np.stack([rows[:, 0], rows[:, 1]], axis=2).reshape(array.shape)
        writer.add_tensor(
            f"{'' if layer is None else f'blk.{layer}.'}{stems[stem]}.{kind}", np.ascontiguousarray(array)
        )
    if permuted:
        writer.add_tensor("rope_freqs.weight", np.ones(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_weights_come_from_a_gguf_file(tmp_path: Path, kind: str) -> None:
    config = llama.Config.read(FIELDS | {"model_type": kind, "rope_scaling": LLAMA3, "tie_word_embeddings": False})
    arrays = weights_of(config)
    write_gguf(tmp_path / "model.gguf", arrays, kind == "llama", {"attn_q": 4, "attn_k": 2})
    model = load(llama.build(config, tmp_path / "model.gguf", cache=16))
    (got,) = model(np.array([TEXT]), np.array([len(TEXT)]))
    np.testing.assert_allclose(got[0], llama_logits(config, arrays, TEXT)[-1], atol=1e-5)


def test_gguf_file_of_another_architecture_is_refused(tmp_path: Path) -> None:
    config = replace(SMALL, tied=False)
    write_gguf(tmp_path / "model.gguf", weights_of(config), False, {})
    with pytest.raises(ModelError, match="the GGUF file has the architecture 'qwen2', but the configuration 'llama'"):
        llama.build(config, tmp_path / "model.gguf")


def test_frequencies_of_a_gguf_file_are_unexpected_when_angles_are_not_scaled(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", weights_of(SMALL), True, {"attn_q": 4, "attn_k": 2})
    with pytest.raises(ModelError, match=r"1 unexpected: rope_freqs\.weight"):
        llama.build(SMALL, tmp_path / "model.gguf")


# The command line


def test_command_line_streams_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["--random", "--tokens", "6", "--prompt", "5 6"]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.split()) == 6
    assert not shown.err
    drawn = ["--temperature", "2", "--top-k", "50", "--top-p", "0.9", "--seed", "3"]
    assert command_line.main(["--random", "--tokens", "6", "--prompt", "5 6", *drawn]) == 0
    assert len(capsys.readouterr().out.split()) == 6


def test_command_line_runs_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = weights_of(SMALL)
    save_tensors(tmp_path / "model.safetensors", arrays)
    (tmp_path / "config.json").write_text(json.dumps(FIELDS))
    results = ["--config", str(tmp_path / "config.json"), "--weights", str(tmp_path / "model.safetensors")]
    assert command_line.main([*results, "--prompt", "3 17", "--tokens", "5"]) == 0
    want = models.generate(load(llama.build(SMALL, arrays, cache=16)), [3, 17], 5)
    assert capsys.readouterr().out.split() == [str(token) for token in want]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (["--random", "--prompt", ""], "a prompt is empty"),
        (["--random", "--prompt", "a b"], "must be token ids"),
        (["--random", "--prompt", "5000"], "5000 is not a token"),
        (["--random", "--tokens", "9", "--cache", "4"], "do not fit into a cache of 4"),
        (["--random", "--tokens", "9", "--cache", "0"], "cache must be an integer above 0, got 0"),
        (["--random", "--seed", "-1"], "seed must be an integer of at least 0, got -1"),
        (["--random", "--config", "none.json"], "cannot be read"),
    ],
)
def test_command_line_says_what_is_wrong_in_a_line(
    value: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(value) == 1
    shown = capsys.readouterr().err
    assert why in shown
    assert len(shown.splitlines()) == 1


def test_command_line_ends_in_silence_when_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> Iterator[list[int]]:
        yield [7]
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "stream", interrupted)
    assert command_line.main(["--random"]) == 130
    assert capsys.readouterr() == ("7 \n", "")


@pytest.mark.parametrize("value", [[], ["--random", "--weights", "x"], ["--weights", "x"]])
def test_command_line_asks_for_random_weights_or_a_checkpoint(value: list[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.main(value)


def test_module_runs_from_the_shell() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "graphcore.models.text", "--random", "--tokens", "3"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(done.stdout.split()) == 3
    assert not done.stderr
