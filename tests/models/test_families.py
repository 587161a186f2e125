"""Each family of decoders beside transformers: tests/models/make_family_reference.py wrote tokens and logits."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
from graphcore import Model, models
from graphcore.errors import ModelError
from graphcore.models import decoder
from graphcore.models.families import Config
from tests.support.decoders import some
from tests.support.graphs import Array

pytestmark = pytest.mark.releases

DATA = json.loads((Path(__file__).parents[1] / "data" / "families.json").read_text())
CASES: dict[str, Any] = DATA["cases"]
TOLERANCE = 1e-4
LENGTH, NEW_TOKENS, STRIDE, VOCABULARY = 40, 20, 5, 61
PROMPT = [int(token) for token in np.random.default_rng(5).integers(1, VOCABULARY, LENGTH)]


def config_of(name: str) -> Config:
    return Config.read(CASES[name]["config"])


def weights(name: str, dtype: str = "float32") -> dict[str, Array]:
    arrays = some(decoder.shapes(config_of(name)))
    return {n: a.astype(ml_dtypes.bfloat16) for n, a in arrays.items()} if dtype == "bfloat16" else arrays


@functools.cache
def model_of(name: str, dtype: str = "float32") -> Model:
    cache = 64 if "short cache" in name else None
    graph = decoder.build(config_of(name), weights(name, dtype), cache=cache, last_tokens=True)
    return gc.InferenceSession(intra_op_num_threads=1).load(graph)


@pytest.mark.numbers
@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_transformers(name: str) -> None:
    (logits,) = model_of(name).state()(np.array([PROMPT]), np.array([LENGTH]), np.array(LENGTH))
    want = np.array(CASES[name]["float32"]["logits"])
    np.testing.assert_allclose(logits[0, ::STRIDE], want, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.numbers
@pytest.mark.parametrize("name", CASES)
def test_greedy_tokens_are_those_of_transformers(name: str) -> None:
    assert models.generate(model_of(name), PROMPT, NEW_TOKENS).tolist() == CASES[name]["float32"]["tokens"]


@pytest.mark.numbers
@pytest.mark.parametrize("name", CASES)
def test_bfloat16_weights_give_what_transformers_computes_with_them_in_float32(name: str) -> None:
    model, want = model_of(name, "bfloat16"), CASES[name]["bfloat16"]
    (logits,) = model.state()(np.array([PROMPT]), np.array([LENGTH]), np.array(LENGTH))
    np.testing.assert_allclose(logits[0, ::STRIDE][-1:], want["logits"], atol=TOLERANCE, rtol=TOLERANCE)
    assert models.generate(model, PROMPT, NEW_TOKENS).tolist() == want["tokens"]


@pytest.mark.parametrize("name", CASES)
def test_texts_that_run_together_equal_those_alone(name: str) -> None:
    prompts = [PROMPT[:1], PROMPT, PROMPT[3:20], PROMPT[10:38]]
    with models.Streams(model_of(name), slots=3, piece=16) as streams:
        requests = [streams.submit(prompt, 12) for prompt in prompts]
        tokens = [request.result().tolist() for request in requests]
    assert tokens == [models.generate(model_of(name), prompt, 12).tolist() for prompt in prompts]


# Published configurations

USUAL = {
    "architectures": ["X"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 2,
    "eos_token_id": [1, 106],
    "initializer_range": 0.02, "pad_token_id": 0, "torch_dtype": "bfloat16", "transformers_version": "4.50.0",
    "use_cache": True, "rms_norm_eps": 1e-6,
}  # fmt: skip
QWEN = USUAL | {
    "hidden_act": "silu", "max_window_layers": 28, "rope_theta": 1_000_000, "sliding_window": None,
    "use_sliding_window": False, "vocab_size": 151_936, "tie_word_embeddings": True,
}  # fmt: skip
PUBLISHED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gemma3_text": (
        USUAL | {
            "attn_logit_softcapping": None, "cache_implementation": "hybrid", "final_logit_softcapping": None,
            "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "intermediate_size": 6912,
            "max_position_embeddings": 32768, "num_attention_heads": 4, "num_hidden_layers": 26,
            "num_key_value_heads": 1, "query_pre_attn_scalar": 256, "rope_local_base_freq": 10000,
            "rope_scaling": None, "rope_theta": 1_000_000, "sliding_window": 512, "sliding_window_pattern": 6,
            "vocab_size": 262_144,
        },
        {
            "windows": tuple(0 if number % 6 == 5 else 512 for number in range(26)), "theta": 1e6,
            "local_theta": 10000, "scale": 1 / 16, "softcap": 0.0, "tied": True, "embedding_scale": 1152**0.5,
        },
    ),
    "gemma2": (
        USUAL | {
            "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid", "final_logit_softcapping": 30.0,
            "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
            "hidden_size": 2304, "intermediate_size": 9216, "max_position_embeddings": 8192, "num_attention_heads": 8,
            "num_hidden_layers": 2, "num_key_value_heads": 4, "query_pre_attn_scalar": 256, "rope_theta": 10000.0,
            "sliding_window": 4096, "vocab_size": 256_000,
        },
        {"windows": (4096, 0), "softcap": 50.0, "logit_softcap": 30.0, "tied": True, "local_theta": None},
    ),
    "phi3": (
        USUAL | {
            "auto_map": {}, "embd_pdrop": 0.0, "full_attn_mod": 1, "hidden_act": "silu", "hidden_size": 3072,
            "interpolate_factor": 1, "intermediate_size": 8192, "lm_head_bias": False, "mlp_bias": False,
            "max_position_embeddings": 131_072, "num_attention_heads": 24, "num_hidden_layers": 32,
            "num_key_value_heads": 8, "original_max_position_embeddings": 4096, "partial_rotary_factor": 0.75,
            "resid_pdrop": 0.0, "rope_theta": 10000.0, "sliding_window": 262_144, "tie_word_embeddings": True,
            "rope_scaling": {"long_factor": [2.0] * 48, "short_factor": [1.0] * 48, "type": "longrope"},
            "vocab_size": 200_064,
        },
        {"rotary": 96, "size": 128, "windows": (262_144,) * 32, "tied": True},
    ),
    "gpt_neox": (
        {n: v for n, v in USUAL.items() if n not in ("attention_bias", "rms_norm_eps")} | {
            "hidden_act": "gelu", "hidden_size": 512, "intermediate_size": 2048, "layer_norm_eps": 1e-5,
            "max_position_embeddings": 2048, "num_attention_heads": 8, "num_hidden_layers": 6, "rotary_emb_base": 20000,
            "rotary_pct": 0.25, "tie_word_embeddings": False, "use_parallel_residual": True, "vocab_size": 50304,
        },
        {"rotary": 16, "parallel": True, "biases": "qkvo", "activation": "none", "theta": 20000.0, "epsilon": 1e-5},
    ),
    "qwen3_moe": (
        QWEN | {
            "decoder_sparse_step": 1, "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144,
            "max_position_embeddings": 40960, "mlp_only_layers": [], "moe_intermediate_size": 768,
            "norm_topk_prob": True, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
            "num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": False,
            "router_aux_loss_coef": 0.001, "rope_scaling": None,
        },
        {"experts": 128, "top_k": 8, "expert_inner": 768, "normalised": True, "shared_inner": None, "windows": None},
    ),
    "qwen2_moe": (
        QWEN | {
            "decoder_sparse_step": 1, "hidden_size": 2048, "intermediate_size": 5632, "moe_intermediate_size": 1408,
            "max_position_embeddings": 8192, "norm_topk_prob": False, "num_attention_heads": 16, "num_experts": 60,
            "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 16, "output_router_logits": False,
            "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 5632, "sliding_window": 32768,
        },
        {"experts": 60, "shared_inner": 5632, "normalised": False, "windows": None, "biases": "qkv"},
    ),
    "mixtral": (
        USUAL | {
            "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
            "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
            "num_local_experts": 8, "output_router_logits": False, "rope_theta": 1_000_000.0,
            "router_aux_loss_coef": 0.02, "sliding_window": None, "tie_word_embeddings": False, "vocab_size": 32000,
        },
        {"experts": 8, "top_k": 2, "expert_inner": 14336, "normalised": True, "windows": None, "theta": 1e6},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", PUBLISHED)
def test_published_configurations_are_read(kind: str) -> None:
    fields, want = PUBLISHED[kind]
    config = Config.read(fields | {"model_type": kind})
    assert {name: getattr(config, name) for name in want} == want


def test_layers_of_mixtures_with_windows_and_without_experts() -> None:
    fields = {"use_sliding_window": True, "sliding_window": 64, "num_hidden_layers": 6, "mlp_only_layers": [0, 3]}
    configs = {
        kind: Config.read(PUBLISHED[kind][0] | fields | {"model_type": kind, "max_window_layers": 3} | more)
        for kind, more in (("qwen2_moe", {"decoder_sparse_step": 2}), ("qwen3_moe", {}))
    }
    assert configs["qwen2_moe"].windows == (64, 0, 64, 0, 0, 0)  # every other one of the first three
    assert configs["qwen3_moe"].windows == (64,) * 6
    assert configs["qwen2_moe"].dense_layers == {0, 2, 3, 4}
    assert configs["qwen3_moe"].dense_layers == {0, 3}
    for wrong in (3, [-1], ["0"]):
        with pytest.raises(ModelError, match=r"mlp_only_layers is .*, not a list of numbers of layers"):
            Config.read(PUBLISHED["qwen2_moe"][0] | {"model_type": "qwen2_moe", "mlp_only_layers": wrong})


def test_angles_scale_attention_as_longrope_says() -> None:
    config = Config.read(PUBLISHED["phi3"][0] | {"model_type": "phi3"})
    short, long = (decoder.angles(config, positions)[0] for positions in (4096, 4097))
    assert short.shape == (4096, 48)
    np.testing.assert_allclose([short[0, 0], long[0, 0]], [np.sqrt(1 + 5 / 12)] * 2)  # log(32) / log(4096)
    np.testing.assert_allclose(long[2:4096:2], short[1:2048], atol=1e-4)  # twice as slow


# GGUF


def part_of(config: Config, name: str) -> tuple[str, str]:
    """Return the block and the name in llama.cpp of a weight."""
    layout, stem = config.layout, name.rpartition(".")[0]
    if not stem.startswith(f"{layout.layers}."):
        block = ""
    else:
        number, _, stem = stem.removeprefix(f"{layout.layers}.").partition(".")
        block = f"blk.{number}."
    stem = re.sub(r"experts\.\d+\.", "experts.{}.", stem)
    return block, next(part for part, other in layout.names.items() if other == stem)


def to_gguf(path: Path, name: str) -> None:
    """Write the weights of a case under the names and in the layout of llama.cpp."""
    config = config_of(name)
    layout, size = config.layout, config.size
    writer = gguf.GGUFWriter(path, layout.architecture)
    stacks: dict[str, list[Array]] = {}
    for full, array in weights(name).items():
        block, part = part_of(config, full)
        if "norm" in part and config.norm == "rms1":
            array = array + 1
        if layout.transposed and block and array.ndim == 2:
            array = array.T
        if layout.permuted and part in ("attn_q", "attn_k"):
            array = array.reshape(-1, 2, size // 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
        if layout.interleaved and part == "attn_qkv":
            array = array.reshape(-1, 3, size, *array.shape[1:]).swapaxes(0, 1).reshape(array.shape)
        stacks.setdefault(f"{block}{part}.{full.rpartition('.')[2]}", []).append(array)
    for full, parts in stacks.items():
        writer.add_tensor(full, np.stack(parts) if "_exps" in full else np.ascontiguousarray(parts[0]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("name", CASES)
def test_names_are_those_of_gguf_files(name: str) -> None:
    """The package gguf has the names of llama.cpp by architecture."""
    config = config_of(name)
    (architecture,) = [a for a, text in gguf.MODEL_ARCH_NAMES.items() if text == config.layout.architecture]
    published = {gguf.TENSOR_NAMES[tensor].replace("blk.{bid}.", "") for tensor in gguf.MODEL_TENSORS[architecture]}
    if config.dense_layers:  # llama.cpp has experts in all layers
        published |= {"ffn_gate", "ffn_up", "ffn_down"}
    assert {part_of(config, full)[1] for full in decoder.shapes(config)} <= published


@pytest.mark.numbers
@pytest.mark.parametrize("name", CASES)
def test_gguf_file_gives_the_same_logits(name: str, tmp_path: Path) -> None:
    to_gguf(tmp_path / "model.gguf", name)
    graph = decoder.build(config_of(name), tmp_path / "model.gguf", cache=model_of(name).buffers["keys0"].shape[2])
    (logits,) = gc.InferenceSession().load(graph)(np.array([PROMPT]), np.array([LENGTH]))
    (want,) = model_of(name).state()(np.array([PROMPT]), np.array([LENGTH]), np.array(1))
    np.testing.assert_allclose(logits, want[:, 0], atol=1e-5, rtol=1e-5)
