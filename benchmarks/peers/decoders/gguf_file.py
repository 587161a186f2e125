"""A Llama-like decoder as a GGUF file, with a vocabulary that has no meaning."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphcore.models import llama

_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write(config: llama.Config, weights: Mapping[str, np.ndarray[Any, Any]], path: Path) -> None:
    """Write weights that have the names and the layout of checkpoints."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.positions)
    writer.add_embedding_length(config.width)
    writer.add_block_count(config.layers)
    writer.add_feed_forward_length(config.inner)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_key_length(config.size)
    writer.add_value_length(config.size)
    writer.add_rope_dimension_count(config.size)
    writer.add_rope_freq_base(config.theta)
    writer.add_layer_norm_rms_eps(config.epsilon)
    writer.add_vocab_size(config.vocabulary)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    tokens, merges = vocabulary(config.vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * (len(tokens) - 1) + [gguf.TokenType.CONTROL])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(len(tokens) - 1)
    writer.add_eos_token_id(len(tokens) - 1)
    for name, array in weights.items():
        writer.add_tensor(_renamed(name), _turned(name, array, config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def vocabulary(size: int) -> tuple[list[str], list[str]]:
    """Return tokens and the merges that make them: bytes, pairs of bytes, and the one that begins and ends texts."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    letters = [chr(code if code in plain else next(others)) for code in range(256)]
    pairs = [*itertools.islice(itertools.product(letters, letters), size - len(letters) - 1)]
    return [*letters, *(a + b for a, b in pairs), "<|end|>"], [f"{a} {b}" for a, b in pairs]


def _renamed(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in _WHOLE:
        return f"{_WHOLE[stem]}.weight"
    number, part = stem.removeprefix("model.layers.").split(".", 1)
    return f"blk.{number}.{_NAMES[part]}.weight"


def _turned(name: str, array: np.ndarray[Any, Any], config: llama.Config) -> np.ndarray[Any, Any]:
    """Return queries and keys with the two features of a rotated pair side by side."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return array
    halves = array.reshape(-1, 2, config.size // 2, config.width)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)
