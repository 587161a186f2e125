"""GPT-2: its numbers, configurations and checkpoints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import onnxruntime
import pytest

import graphcore as gc
from graphcore import Model, save_tensors
from graphcore.errors import ModelError, RunError
from graphcore.models import gpt2
from tests.support.decoders import gpt2_logits, some
from tests.support.graphs import Array

pytestmark = pytest.mark.releases

SMALL = gpt2.config(vocabulary=37, width=32, inner=48, layers=2, heads=2, positions=20)
FORMS = {
    "tied": SMALL,
    "untied": replace(SMALL, tied=False),
    "erf": replace(SMALL, activation="none"),
    "heads that no kernel takes": replace(SMALL, heads=8, kv_heads=8, size=SMALL.width // 8),
}
FIELDS: dict[str, Any] = {
    "model_type": "gpt2",
    "vocab_size": 37,
    "n_positions": 20,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 2,
    "n_inner": 48,
}
TEXT = [3, 17, 36, 0, 5, 5, 29, 11, 8]


def load(graph: gc.Graph) -> Model:
    return gc.InferenceSession(intra_op_num_threads=1).load(graph)


def weights_of(config: gpt2.Config) -> dict[str, Array]:
    return some(gpt2.shapes(config))


def last(model: Model, text: list[int]) -> Array:
    (logits,) = model.state()(np.array([text]), np.array([len(text)]))
    result: Array = logits[0]
    return result


@pytest.mark.numbers
@pytest.mark.parametrize("form", FORMS)
def test_logits_equal_reference_when_a_text_comes_in_parts(form: str) -> None:
    config = FORMS[form]
    arrays = weights_of(config)
    want = gpt2_logits(config, arrays, TEXT)
    state = load(gpt2.build(config, arrays)).state()
    for start, end in ((0, 4), (4, 7), (7, 8), (8, 9)):
        (got,) = state(np.array([TEXT[start:end]]), np.array([end]))
        np.testing.assert_allclose(got[0], want[end - 1], atol=1e-5)


@pytest.mark.numbers
def test_logits_equal_reference_when_texts_of_a_batch_are_padded_on_the_right() -> None:
    arrays = weights_of(SMALL)
    texts = [TEXT[:5], [9, 8, 7], [1]]
    state = load(gpt2.build(SMALL, arrays)).state()
    fed, lengths = np.full((3, 5), 13), np.array([5, 3, 1])
    for row, text in zip(fed, texts, strict=True):
        row[: len(text)] = text
    for step in range(3):
        (got,) = state(fed, lengths)
        for logits, text in zip(got, texts, strict=True):
            np.testing.assert_allclose(logits, gpt2_logits(SMALL, arrays, text)[-1], atol=1e-5)
            text.append(7 * step + 2)
        fed, lengths = np.full((3, 1), 7 * step + 2), lengths + 1


@pytest.mark.numbers
def test_logits_of_every_token_equal_reference() -> None:
    arrays = weights_of(SMALL)
    (got,) = load(gpt2.build(SMALL, arrays, every_token=True))(np.array([TEXT]), np.array([len(TEXT)]))
    np.testing.assert_allclose(got[0], gpt2_logits(SMALL, arrays, TEXT), atol=1e-5)


def test_cache_has_as_many_tokens_as_there_are_positions_and_is_written_in_place() -> None:
    model = load(gpt2.build(SMALL))
    assert model.buffers["keys0"].shape == (0, 2, 20, 16)
    assert model.buffers.in_place == ("keys0", "values0", "keys1", "values1")
    with pytest.raises(ModelError, match="model has 20 positions"):
        gpt2.build(SMALL, cache=21)


def test_text_longer_than_the_cache_fails() -> None:
    with pytest.raises(RunError):
        last(load(gpt2.build(SMALL, cache=8)), TEXT)


def test_exported_decoder_runs_in_plain_onnxruntime(tmp_path: Path) -> None:
    arrays = weights_of(SMALL)
    gpt2.build(SMALL, arrays).export(tmp_path / "gpt2.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "gpt2.onnx")
    remaining = [i.name for i in session.get_inputs()][2:]
    caches = {name: np.zeros((1, 2, 20, 16), np.float32) for name in remaining}
    want = gpt2_logits(SMALL, arrays, TEXT)
    for start, end in ((0, 4), (4, 5), (5, 6)):
        feed = {"tokens": np.array([TEXT[start:end]]), "lengths": np.array([end]), **caches}
        logits, *stored = session.run(["logits", *(f"{name}_out" for name in remaining)], feed)
        caches = dict(zip(remaining, stored, strict=True))
        np.testing.assert_allclose(logits[0], want[end - 1], atol=1e-5)


# Configurations


def test_config_is_that_of_the_fields() -> None:
    assert gpt2.Config.read(FIELDS) == SMALL
    assert gpt2.Config.read(FIELDS | {"activation_function": "gelu", "tie_word_embeddings": False}) == replace(
        SMALL, activation="none", tied=False
    )


def test_config_takes_the_fields_of_the_published_model() -> None:
    published = {
        "activation_function": "gelu_new",
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1,
        "bos_token_id": 50256,
        "embd_pdrop": 0.1,
        "eos_token_id": 50256,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "model_type": "gpt2",
        "n_ctx": 1024,
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_positions": 1024,
        "resid_pdrop": 0.1,
        "summary_activation": None,
        "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True,
        "summary_type": "cls_index",
        "summary_use_proj": True,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
        "vocab_size": 50257,
    }
    assert gpt2.Config.read(published) == gpt2.config(768, 12, 3072, 1024, vocabulary=50257, layers=12)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"n_head": 3}, "a width of 32 is not a multiple of 3 heads"),
        ({"activation_function": "relu"}, "activation_function is 'relu'; supported is gelu_new or"),
        ({"scale_attn_by_inverse_layer_idx": True}, "supported is False"),
        ({"n_layer": 10**6}, "but at most 10000 are supported"),
        ({"model_type": "gpt"}, "model_type is 'gpt'; supported is"),
        ({"rotary_dim": 4}, "unknown: rotary_dim"),
    ],
)
def test_fields_that_are_not_computed_are_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        gpt2.Config.read(FIELDS | fields)


# Weights


def test_names_may_lack_their_beginning_and_masks_are_passed_over(tmp_path: Path) -> None:
    arrays = weights_of(SMALL)
    published = {name.removeprefix("transformer."): array for name, array in arrays.items()}
    published["h.0.attn.bias"] = np.tril(np.ones((1, 1, 20, 20), np.float32))
    published["h.1.attn.masked_bias"] = np.array(-1e4, np.float32)
    save_tensors(tmp_path / "model.safetensors", published)
    model = load(gpt2.build(FIELDS, tmp_path / "model.safetensors"))
    np.testing.assert_allclose(last(model, TEXT), gpt2_logits(SMALL, arrays, TEXT)[-1], atol=1e-5)


def test_weight_is_unexpected_when_it_has_both_names() -> None:
    arrays = weights_of(SMALL)
    arrays["wte.weight"] = arrays["transformer.wte.weight"]
    with pytest.raises(ModelError, match=r"1 unexpected: wte\.weight"):
        gpt2.build(SMALL, arrays)


def test_dense_layers_of_the_other_layout_are_refused_and_not_transposed() -> None:
    arrays = weights_of(SMALL)
    for name in ("attn.c_attn", "mlp.c_fc"):
        arrays[f"transformer.h.0.{name}.weight"] = arrays[f"transformer.h.0.{name}.weight"].T
    with pytest.raises(ModelError, match=r"2 of another shape: transformer\.h\.0\.attn\.c_attn\.weight is \[96, 32\]"):
        gpt2.build(SMALL, arrays)


def test_weights_come_from_a_gguf_file(tmp_path: Path) -> None:
    """As converters write it: other names, dense layers transposed, the head beside the embedding that it is."""
    arrays = weights_of(SMALL)
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "gpt2")
    stems = {
        "wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "ln_1": "attn_norm", "ln_2": "ffn_norm",
        "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
    }  # fmt: skip
    for name, array in arrays.items():
        _, *parts, kind = name.split(".")
        block = f"blk.{parts[1]}." if parts[0] == "h" else ""
        stem = ".".join(parts[2:]) if block else parts[0]
        laid = array.T.copy() if block and array.ndim == 2 else array
        writer.add_tensor(f"{block}{stems[stem]}.{kind}", laid)
    writer.add_tensor("output.weight", arrays["transformer.wte.weight"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = load(gpt2.build(SMALL, tmp_path / "model.gguf"))
    np.testing.assert_allclose(last(model, TEXT), gpt2_logits(SMALL, arrays, TEXT)[-1], atol=1e-5)
