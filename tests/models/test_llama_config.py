"""Configurations of decoders like Llama."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphcore.errors import ModelError, ResourceLimitError
from graphcore.models import _config, llama
from tests.support.decoders import LLAMA3, SMALL
from tests.support.decoders import LLAMA_FIELDS as FIELDS


def test_config_is_that_of_the_fields() -> None:
    assert llama.Config.read(FIELDS) == replace(SMALL, theta=100.0)


def test_config_is_read_from_a_file_with_the_usual_further_fields(tmp_path: Path) -> None:
    more = {
        "_name_or_path": "",
        "architectures": ["LlamaForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": [2, 3],
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "pretraining_tp": 1,
        "rope_scaling": None,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.43.0",
        "use_cache": True,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(FIELDS | more))
    assert llama.Config.read(path) == llama.Config.read(str(path)) == llama.Config.read(FIELDS)


def test_fields_that_may_be_missing_have_the_defaults_of_the_family() -> None:
    few = {name: FIELDS[name] for name in list(FIELDS)[:6]}
    config = llama.Config.read(few)
    assert (config.kv_heads, config.size, config.positions, config.epsilon) == (4, 8, 2048, 1e-6)
    assert (config.theta, config.scaling, config.tied, config.biases) == (10000.0, None, False, "")
    assert llama.Config.read(few | {"num_attention_heads": 8, "model_type": "mistral"}).kv_heads == 8
    qwen2 = llama.Config.read(few | {"model_type": "qwen2"})
    assert (qwen2.biases, qwen2.layout.permuted) == ("qkv", False)


@pytest.mark.parametrize(
    ("fields", "theta", "scaling"),
    [
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, 5e5, None),
        ({"rope_parameters": {**LLAMA3, "rope_theta": 5e5}}, 5e5, LLAMA3),
        ({"rope_scaling": LLAMA3}, 100.0, LLAMA3),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, 100.0, {"rope_type": "linear", "factor": 2}),
        ({"rope_scaling": LLAMA3 | {"type": "llama3"}}, 100.0, LLAMA3),
    ],
)  # fmt: skip
def test_rotary_angles_are_configured_in_either_spelling(fields: Any, theta: float, scaling: Any) -> None:
    config = llama.Config.read(FIELDS | fields)
    assert (config.theta, config.scaling) == (theta, scaling)


def test_layers_have_the_window_of_the_family() -> None:
    mistral = FIELDS | {"model_type": "mistral", "sliding_window": 32}
    assert llama.Config.read(mistral).windows == (32, 32)
    assert llama.Config.read(mistral | {"sliding_window": None}).windows is None
    qwen2 = FIELDS | {"model_type": "qwen2", "sliding_window": 32, "max_window_layers": 1}
    assert llama.Config.read(qwen2 | {"use_sliding_window": False}).windows is None
    assert llama.Config.read(qwen2 | {"use_sliding_window": True}).windows == (0, 32)


def test_faulty_fields_are_named_all_at_once() -> None:
    wrong: dict[str, Any] = {k: v for k, v in FIELDS.items() if k not in ("vocab_size", "hidden_size")}
    wrong |= {"num_hidden_layers": 0, "qk_norm": True, "logit_scale": 2, "hidden_act": "gelu"}
    with pytest.raises(ModelError) as caught:
        llama.Config.read(wrong | {"rms_norm_eps": "small", "tie_word_embeddings": 1})
    for part in (
        "missing: vocab_size, hidden_size",
        "unknown: logit_scale, qk_norm",
        "hidden_act is 'gelu'; supported is 'silu'",
        "num_hidden_layers is 0, not a whole number above 0",
        "rms_norm_eps is 'small', not a number of 0 or above",
        "tie_word_embeddings is 1, not true or false",
    ):
        assert part in caught.value.summary


def test_unknown_field_is_passed_over_when_asked_to() -> None:
    assert llama.Config.read(FIELDS | {"mystery": 1}, ignore=["mystery"]) == llama.Config.read(FIELDS)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"num_key_value_heads": 3}, "4 query heads are not a multiple of 3 key heads"),
        ({"num_attention_heads": 5, "head_dim": None, "num_key_value_heads": None}, "not a multiple of 5"),
        ({"head_dim": 7}, "heads have 7 features"),
        ({"num_hidden_layers": 10**6}, "but at most 10000 are supported"),
        ({"vocab_size": 2**40}, "vocab_size is"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic'"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "turns": 3}}, "rope of type 'yarn' has"),
        (
            {"rope_scaling": {"rope_type": "longrope", "short_factor": [1], "long_factor": [1] * 8}},
            "must have 8 numbers",
        ),
        ({"rope_parameters": {"full_attention": {}, "sliding_attention": {"factor": 2}}}, "layers with a window are"),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": "9"}},
            "numbers above",
        ),
        ({"model_type": "gemma"}, "model_type is 'gemma'; supported is gemma2, .*qwen3_moe"),
        ({"rope_scaling": {"rope_type": ["linear"]}}, "rope_type is"),
        ({"rope_scaling": {"rope_type": "linear"}}, r"has \[\], not \['factor'\]"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "numbers above 0"),
        ({"rope_scaling": LLAMA3 | {"high_freq_factor": 1.0}}, "low_freq_factor must be less than high_freq_factor"),
        ({"rope_theta": 1}, "not a number above 1"),
        ({"rope_theta": float("nan")}, "rope_theta is nan"),
    ],
)
def test_fields_that_do_not_go_together_are_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        llama.Config.read(FIELDS | fields)


@pytest.mark.parametrize("text", ["", "[1]", "{", "nonsense", "[" * 100_000, '{"a": 1} x', "\udcff"])
def test_file_that_is_not_a_configuration_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ModelError, match=r"is not JSON|must hold a JSON object, got list"):
        llama.Config.read(path)


def test_what_is_not_a_configuration_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (3, None, [1]):
        with pytest.raises(ModelError, match="must be a Config of this model, a dict or a path, got"):
            llama.build(wrong)  # type: ignore[arg-type]
    for path in (tmp_path, tmp_path / "none.json", "nul\0"):
        with pytest.raises(ModelError, match="cannot be read"):
            llama.Config.read(path)
    monkeypatch.setattr(_config, "MAX_FILE_BYTES", 10)
    (tmp_path / "config.json").write_text(json.dumps(FIELDS))
    with pytest.raises(ResourceLimitError, match="more than 10 bytes"):
        llama.Config.read(tmp_path / "config.json")
