"""A Llama-like decoder as a folder of transformers: weights, configuration and a tokenizer without meaning."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.decoders.gguf_file import vocabulary
from graphcore.models import llama


def write(config: llama.Config, weights: Mapping[str, np.ndarray[Any, Any]], folder: Path) -> None:
    """Write the folder."""
    from safetensors.numpy import save_file

    folder.mkdir()
    save_file(dict(weights), folder / "model.safetensors", metadata={"format": "pt"})
    tokens, merges = vocabulary(config.vocabulary)
    end = tokens[-1]
    fields = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocabulary,
        "hidden_size": config.width,
        "intermediate_size": config.inner,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.size,
        "max_position_embeddings": config.positions,
        "rms_norm_eps": config.epsilon,
        "rope_theta": config.theta,
        "tie_word_embeddings": config.tied,
        "hidden_act": "silu",
        "torch_dtype": "float32",
        "bos_token_id": len(tokens) - 1,
        "eos_token_id": len(tokens) - 1,
    }
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {"id": len(tokens) - 1, "content": end, "special": True}
            | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        ],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {token: number for number, token in enumerate(tokens)}, "merges": merges},
    }
    class_ = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": end, "eos_token": end}
    for name, content in (("config", fields), ("tokenizer", tokenizer), ("tokenizer_config", class_)):
        (folder / f"{name}.json").write_text(json.dumps(content))
