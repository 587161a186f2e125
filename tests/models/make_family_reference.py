"""Write the reference of tests/models/test_families.py: tokens and logits of the transformers package.

    PYTHONPATH=. python tests/models/make_family_reference.py

Each case is a tiny model whose weights are drawn by NumPy from a seed, under the names of its checkpoints. transformers
reads them from a file, with no name left over, and computes in float32. The release is in the file.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch
import transformers

from graphcore import save_tensors
from graphcore.models.decoder import shapes
from graphcore.models.families import Config
from tests.support.decoders import some

DATA = Path(__file__).parents[1] / "data" / "families.json"
VOCABULARY, LENGTH, NEW_TOKENS, STRIDE = 61, 40, 20, 5
MIN_MARGIN = 1e-3
"""The least distance of the likeliest token from the next: 10 times the tolerance of the test."""

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128,
}  # fmt: skip
NO_HEAD_DIM = {name: value for name, value in SIZES.items() if name != "head_dim"}
NEOX = {name: value for name, value in NO_HEAD_DIM.items() if name != "num_key_value_heads"} | {"hidden_size": 64}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 24,
    "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.0, 1.6, 2.5, 4.0],
}  # fmt: skip
MOE = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
WINDOWS = {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 3}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", SIZES | {"attention_bias": True, "mlp_bias": True}),
    "llama, llama3": ("llama", SIZES | {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "llama, yarn": ("llama", SIZES | {"rope_parameters": YARN}),
    "mistral": ("mistral", SIZES | {"sliding_window": 16}),
    "qwen2": ("qwen2", NO_HEAD_DIM | {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 2}),
    "qwen3": ("qwen3", SIZES | {"tie_word_embeddings": True}),
    "gemma2": ("gemma2", SIZES | {"sliding_window": 12, "query_pre_attn_scalar": 20}),
    "gemma3": ("gemma3_text", SIZES | {"sliding_window": 12, "query_pre_attn_scalar": 20, "num_hidden_layers": 7}),
    "phi3": ("phi3", NO_HEAD_DIM | {"sliding_window": 16, "pad_token_id": 0}),
    "phi3, longrope": (
        "phi3", NO_HEAD_DIM | {
            "pad_token_id": 0, "original_max_position_embeddings": 24, "hidden_size": 64,
            "rope_parameters": LONGROPE | {"partial_rotary_factor": 0.5},
        },
    ),
    "phi3, longrope for a short cache": (
        "phi3", NO_HEAD_DIM | {
            "pad_token_id": 0, "original_max_position_embeddings": 64,
            "rope_parameters": LONGROPE | {"original_max_position_embeddings": 64},
        },
    ),
    "gpt2": ("gpt2", {"vocab_size": VOCABULARY, "n_positions": 64, "n_embd": 32, "n_layer": 3, "n_head": 4}),
    "gpt_neox": ("gpt_neox", NEOX | {"num_hidden_layers": 3}),
    "gpt_neox, sequential": ("gpt_neox", NEOX | {"use_parallel_residual": False, "attention_bias": False}),
    "mixtral": ("mixtral", SIZES | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2_moe": ("qwen2_moe", NO_HEAD_DIM | MOE | {"shared_expert_intermediate_size": 40, "decoder_sparse_step": 2}),
    "qwen2_moe, windows": (
        "qwen2_moe", NO_HEAD_DIM | MOE | WINDOWS | {"shared_expert_intermediate_size": 40, "mlp_only_layers": [1]},
    ),
    "qwen3_moe": ("qwen3_moe", SIZES | MOE | {"norm_topk_prob": True}),
    "qwen3_moe, windows": ("qwen3_moe", SIZES | MOE | WINDOWS | {"mlp_only_layers": [0], "sliding_window": 10}),
}  # fmt: skip


def weights(config: dict[str, Any], is_narrow: bool) -> dict[str, Any]:
    """Return the weights of a case by the names of its checkpoints."""
    arrays = some(shapes(Config.read(config)))
    return {name: a.astype(ml_dtypes.bfloat16) for name, a in arrays.items()} if is_narrow else arrays


def prompt() -> list[int]:
    return [int(token) for token in np.random.default_rng(5).integers(1, VOCABULARY, LENGTH)]


def reference(config: dict[str, Any], is_narrow: bool) -> dict[str, Any]:
    """Return the greedy tokens after the prompt, and the logits of some of its positions."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config))
        save_tensors(Path(folder, "model.safetensors"), weights(config, is_narrow), {"format": "pt"})
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
    assert not any(report.values()), report
    tokens = torch.tensor([prompt()])
    with torch.no_grad():
        logits = model.eval()(tokens).logits[0, ::STRIDE].double().numpy()
        options = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "do_sample": False}
        options |= {"output_logits": True, "return_dict_in_generate": True, "pad_token_id": 0}
        generated = model.generate(tokens, **options)
    two = torch.stack(generated.logits)[:, 0].topk(2).values
    margin = float((two[:, 0] - two[:, 1]).min())
    assert margin > MIN_MARGIN, margin
    rows = [[float(f"{value:.7g}") for value in row] for row in logits]
    return {"tokens": generated.sequences[0, LENGTH:].tolist(), "logits": rows}


def main() -> None:
    cases = {}
    for name, (kind, fields) in CASES.items():
        config = transformers.AutoConfig.for_model(kind, bos_token_id=None, eos_token_id=None, **fields).to_diff_dict()
        config.pop("transformers_version", None)
        print(name, flush=True)
        cases[name] = {"config": config, "float32": reference(config, False)}
        narrow = reference(config, True)
        cases[name]["bfloat16"] = {"tokens": narrow["tokens"], "logits": narrow["logits"][-1:]}
    content = {"transformers": transformers.__version__, "cases": cases}
    DATA.write_text(json.dumps(content, separators=(",", ":")).replace('"float32"', '\n"float32"') + "\n")


if __name__ == "__main__":
    main()
