"""Text encoders of all families beside transformers, by a file of its vectors: `tests.models.encoder_references`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphcore import InferenceSession, models
from graphcore.errors import DTypeError, FeedError, ModelError
from graphcore.models import encoder
from tests.models.encoder_references import CASES, FILE, FOLDERS, POOLING, QUERY, TEXTS, folder, tokens, weights

Array = np.ndarray[Any, Any]
REFERENCES: dict[str, Any] = json.loads(FILE.read_text())


def _weights(name: str) -> dict[str, Array]:
    return weights(REFERENCES[name]["shapes"], REFERENCES[name]["seed"])


def _vectors(name: str, weights: dict[str, Array] | None = None, **options: Any) -> Array:
    case = REFERENCES[name]
    graph = encoder.build(case["config"], weights or _weights(name), **options)
    result: Array
    (result,) = InferenceSession(intra_op_num_threads=1).load(graph)(*tokens(case["config"]))
    assert result.dtype == np.float32
    return result


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("packed", [False, True])
def test_vectors_agree_with_transformers_to_1e_5(name: str, packed: bool) -> None:
    for pooling, wanted in REFERENCES[name]["vectors"].items():
        assert np.abs(_vectors(name, pooling=pooling, packed=packed) - np.array(wanted)).max() < 1e-5, pooling


@pytest.mark.parametrize("pooling", encoder.POOLINGS)
def test_normalised_vectors_have_length_1(pooling: str) -> None:
    plain, normalised = (_vectors("bert", pooling=pooling, normalize=n) for n in (False, True))
    assert np.abs(plain / np.linalg.norm(plain, axis=1, keepdims=True) - normalised).max() < 1e-6


def _config(kind: str, **fields: Any) -> encoder.Config:
    return encoder.Config.read({**REFERENCES[kind]["config"], **fields})


@pytest.mark.parametrize(
    ("kind", "fields", "why"),
    [
        ("bert", {"local_attention": 8, "other": 1}, "unknown: local_attention, other"),
        ("distilbert", {"type_vocab_size": 2}, "unknown: type_vocab_size"),
        ("bert", {"position_embedding_type": "relative_key"}, "supported is 'absolute'"),
        ("bert", {"is_decoder": True}, "is_decoder is True; supported is False"),
        ("roberta", {"pad_token_id": -1}, "pad_token_id is -1, not 0 or above"),
        ("bert", {"hidden_act": "quick_gelu"}, "activation is 'quick_gelu'; supported is gelu, "),
        ("nomic_bert", {"rope_parameters": {"rope_type": "yarn"}}, "supported is the rope_type 'default'"),
        ("modernbert", {"rope_parameters": [1]}, r"rope_parameters is \[1\], not an object"),
        ("modernbert", {"layer_types": ["sliding_attention"] * 5}, "supported is full_attention in each n-th layer"),
        ("bert", {"model_type": "t5"}, "model_type is 't5', not 'bert' or 'roberta' or .* or 'modernbert' or"),
    ],
)
def test_configuration_that_is_not_supported_is_refused(kind: str, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        _config(kind, **fields)


def test_layers_and_angles_are_read_in_either_spelling() -> None:
    new = {"full_attention": {"rope_theta": 9.0}, "sliding_attention": {"rope_theta": 7.0, "rope_type": "default"}}
    kinds = ["full_attention", "sliding_attention"]
    config = _config("modernbert", rope_parameters=new, layer_types=kinds * 2 + kinds[:1])
    assert (config.theta, config.local_theta, config.every, config.window) == (9.0, 7.0, 2, 4)
    old = {"global_rope_theta": 9.0, "local_rope_theta": 7.0, "global_attn_every_n_layers": 2}
    assert _config("modernbert", rope_parameters=None, layer_types=None, **old) == config
    assert _config("modernbert", layer_types=kinds[:1] * 5).every == 1


def _as_nomic_writes(arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the weights of `nomic_bert` by the names of its authors, who join queries, keys and values."""
    names = {
        "embeddings.LayerNorm": "emb_ln", "self_attn.o_proj": "attn.out_proj", "mlp.up_proj": "mlp.fc11",
        "mlp.gate_proj": "mlp.fc12", "mlp.down_proj": "mlp.fc2", "post_attention_layernorm": "norm1",
        "post_mlp_layernorm": "norm2", "layers": "encoder.layers",
    }  # fmt: skip
    result = {}
    for name, array in arrays.items():
        new = name
        for old, other in names.items():
            new = new.replace(old, other)
        if "self_attn.q_proj" in name:
            parts = [arrays[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            result[new.replace("self_attn.q_proj", "attn.Wqkv")] = np.concatenate(parts)
        elif "self_attn" not in name or "o_proj" in name:
            result[new] = array
    return result


@pytest.mark.parametrize(
    ("name", "rename"),
    [
        ("nomic_bert", _as_nomic_writes),
        ("bert", lambda arrays: {f"bert.{n}": a for n, a in arrays.items()} | {"cls.predictions.bias": np.zeros(61)}),
        (
            "bert",
            lambda arrays: {
                n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): a
                for n, a in arrays.items()
            },
        ),
        ("modernbert", lambda arrays: {f"model.{n}": a for n, a in arrays.items()} | {"head.dense.weight": np.ones(3)}),
    ],
)
def test_weights_by_other_names_give_the_same(name: str, rename: Any) -> None:
    assert np.array_equal(_vectors(name, rename(_weights(name))), _vectors(name))


def test_weights_that_do_not_fit_are_named_as_in_bert() -> None:
    arrays = _weights("modernbert")
    arrays["layers.1.attn.Wqkv.weight"] = np.zeros((97, 32), np.float32)
    arrays["layers.2.mlp.Wi.weight"] = arrays["layers.2.mlp.Wi.weight"][:48]
    arrays["layers.5.mlp_norm.weight"] = np.zeros(32, np.float32)
    del arrays["final_norm.weight"]
    with pytest.raises(ModelError) as caught:
        encoder.build(REFERENCES["modernbert"]["config"], arrays)
    assert caught.value.summary == (
        "weights: 1 missing: final_norm.weight [32]; 1 unexpected: encoder.layer.5.output.LayerNorm.weight;"
        " 5 of another shape: encoder.layer.1.attention.self.query.weight is [97, 32], not [32, 32],"
        " encoder.layer.1.attention.self.key.weight is [97, 32], not [32, 32],"
        " encoder.layer.1.attention.self.value.weight is [97, 32], not [32, 32],"
        " encoder.layer.2.intermediate.dense.weight is [24, 32], not [48, 32],"
        " encoder.layer.2.intermediate.gate.weight is [24, 32], not [48, 32]"
    )


@pytest.mark.parametrize("count", [8, 32, 320])
def test_distances_have_the_buckets_of_t5(count: int) -> None:
    buckets = encoder._buckets(count)
    assert buckets[128] == 0
    assert buckets[0] == count // 2 - 1
    assert buckets[-1] == count - 1
    assert np.array_equal(buckets[129:] - count // 2, buckets[:128][::-1])
    assert (np.diff(buckets[128:], 1)[1:] >= 0).all()


class _Tokenizer:
    """Gives each text the tokens of its characters, and remembers the number of texts of each call."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def encode_batch_fast(self, texts: list[str]) -> list[Any]:
        self.calls.append(len(texts))
        if "!" in "".join(texts):
            raise OSError("gone")
        return [SimpleNamespace(ids=[5 + ord(c) % 50 for c in text]) for text in texts]


@pytest.fixture(scope="module")
def texts() -> encoder.TextEncoder:
    graph = encoder.build(REFERENCES["bert"]["config"], _weights("bert"), packed=True)
    model = InferenceSession(intra_op_num_threads=1).load(graph)
    return encoder.TextEncoder("tiny", _Tokenizer(), model, prompts={"query": "ask: "})  # type: ignore[arg-type]


def test_texts_are_tokenised_one_part_ahead(texts: encoder.TextEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "CHUNK", 4)
    calls: list[int] = texts.tokenizer.calls  # type: ignore[attr-defined]
    calls.clear()
    rows = texts._rows(["abc"] * 14)
    assert not calls
    assert [next(rows)[0].tolist() for _ in range(5)] == [[52, 53, 54]] * 5
    rows.close()  # type: ignore[attr-defined]
    assert 2 <= len(calls) <= 3
    calls.clear()
    assert len([*texts._rows(["abc"] * 14)]) == 14
    assert calls == [4, 4, 4, 2]


def test_error_of_the_tokenizer_is_raised(texts: encoder.TextEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "CHUNK", 2)
    for wrong in (["!"], ["abcd", "abc", "abc", "!"]):
        with pytest.raises(OSError, match="gone"):
            texts.embed(wrong)


def test_options_of_embed(texts: encoder.TextEncoder) -> None:
    plain = texts.embed(["abc", "a"])
    assert np.array_equal(texts.embed(["abc"], prompt="query"), texts.embed(["ask: abc"]))
    assert np.array_equal(dataclasses.replace(texts, prompt="query").embed(["abc"]), texts.embed(["ask: abc"]))
    unit = texts.embed(["abc", "a"], normalize=True)
    assert np.abs(unit * np.linalg.norm(plain, axis=1, keepdims=True) - plain).max() < 1e-6
    always = dataclasses.replace(texts, normalize=True)
    assert np.array_equal(always.embed(["abc", "a"]), unit)
    assert np.array_equal(always.embed(["abc", "a"], normalize=False), plain)
    assert np.abs(texts.embed(["abc", "a"], batch=1) - plain).max() < 1e-6
    with pytest.raises(FeedError, match=r"tiny has no prompt 'other'\n.*its prompts are: 'query'"):
        texts.embed(["abc"], prompt="other")
    with pytest.raises(DTypeError, match="must be a list of strings, got 'abc'"):
        texts.embed("abc")
    assert texts.embed([]).shape == (0, 32)


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_give_the_vectors_of_sentence_transformers(name: str, tmp_path: Path) -> None:
    kind, files = FOLDERS[name]
    folder(tmp_path, REFERENCES[kind], files)
    vectors = models.load(tmp_path).embed(TEXTS)
    assert np.abs(vectors - np.array(REFERENCES[f"folder: {name}"])).max() < 1e-5


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (
            {"modules.json": [{"type": "sentence_transformers.models.Dense", "path": "2"}]},
            "modules.json has Dense; supp",
        ),
        ({"modules.json": {}}, "modules.json is not a list"),
        (
            {POOLING: {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}},
            "pooling is 'cls.max'; supported",
        ),
        ({POOLING: {"pooling_mode": "weightedmean"}}, "pooling is 'weightedmean'; supported is mean, cls, max, last"),
        ({POOLING: {"include_prompt": False}, "config_sentence_transformers.json": QUERY}, "include_prompt is False"),
    ],
)
def test_folder_that_is_not_supported_is_refused(files: dict[str, Any], why: str, tmp_path: Path) -> None:
    folder(tmp_path, REFERENCES["bert"], files)
    with pytest.raises(ModelError, match=why):
        models.load(tmp_path)


def test_adapters_and_drafts_of_encoders_are_refused(tmp_path: Path) -> None:
    folder(tmp_path, REFERENCES["bert"], {})
    refused: list[dict[str, Any]] = [{"adapters": {"style": tmp_path}}, {"draft": object()}, {"cache_scales": {}}]
    for options in refused:
        with pytest.raises(ModelError, match="is an encoder, without adapters and a draft"):
            models.load(tmp_path, **options)


def test_maximum_number_of_tokens_and_dtype_are_options(tmp_path: Path) -> None:
    folder(tmp_path, REFERENCES["bert"], {})
    long = " ".join(["word7"] * 90)
    whole, short = models.load(tmp_path), models.load(tmp_path, cache=4)
    assert len(whole.tokenizer.encode(long).ids) == 40
    assert np.array_equal(short.embed([long]), whole.embed(["word7 word7"]))
    close = models.load(tmp_path, dtype="int8_dynamic").embed(TEXTS)
    assert 0 < np.abs(close - whole.embed(TEXTS)).max() < 0.5
