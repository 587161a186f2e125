"""References of the models: decoders in NumPy and float64, one text at a time and without a cache."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphcore.models import gpt2, llama
from tests.support.graphs import Array

LLAMA = llama.Config(vocabulary=41, width=32, inner=24, layers=2, heads=4, kv_heads=2, size=16, positions=64, theta=100)
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}

LLAMA_FIELDS: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 41,
    "hidden_size": 32,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100.0,
    "tie_word_embeddings": True,
}
"""The configuration of LLAMA as a file has it."""


def softmax(x: Array) -> Array:
    parts = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(parts / parts.sum(-1, keepdims=True))


def attended(query: Array, key: Array, value: Array) -> Array:
    """Causal attention, head by head and query by query. [tokens, heads, size], with fewer heads of keys and values."""
    tokens, heads, size = query.shape
    share = heads // key.shape[1]
    made = np.zeros((tokens, heads, size))
    for head in range(heads):
        for t in range(tokens):
            scores = key[: t + 1, head // share] @ query[t, head] / math.sqrt(size)
            made[t, head] = softmax(scores) @ value[: t + 1, head // share]
    return made.reshape(tokens, heads * size)


# Llama


def rms(x: Array, weight: Array, epsilon: float) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight)


def speeds(config: llama.Config) -> list[float]:
    """By how much each pair of features turns from one position to the next."""
    made = []
    for pair in range(config.size // 2):
        speed = config.theta ** -(2 * pair / config.size)
        said = config.scaling
        if said is not None and said["rope_type"] == "linear":
            speed /= said["factor"]
        if said is not None and said["rope_type"] == "llama3":
            made_for, wavelength = said["original_max_position_embeddings"], 2 * math.pi / speed
            shortest, longest = made_for / said["high_freq_factor"], made_for / said["low_freq_factor"]
            if wavelength > longest:
                speed /= said["factor"]
            elif wavelength >= shortest:
                range_ = said["high_freq_factor"] - said["low_freq_factor"]
                smooth = (made_for / wavelength - said["low_freq_factor"]) / range_
                speed = (1 - smooth) * speed / said["factor"] + smooth * speed
        made.append(speed)
    return made


def turned(config: llama.Config, x: Array) -> Array:
    """Rotate [tokens, heads, size]: pairs of a feature and the one half a head after it, as complex numbers."""
    half = config.size // 2
    pairs = x[..., :half] + 1j * x[..., half:]
    pairs = pairs * np.exp(1j * np.outer(np.arange(len(x)), speeds(config)))[:, None]
    return np.concatenate([pairs.real, pairs.imag], -1)


def llama_logits(config: llama.Config, arrays: dict[str, Array], tokens: list[int]) -> Array:
    """[tokens, vocabulary]"""
    w = {name: array.astype(np.float64) for name, array in arrays.items()}

    def dense(x: Array, name: str) -> Array:
        return np.asarray(x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", np.zeros(1)))

    x = w["model.embed_tokens.weight"][tokens]
    for number in range(config.layers):
        name = f"model.layers.{number}"
        h = rms(x, w[f"{name}.input_layernorm.weight"], config.epsilon)
        q, k, v = (dense(h, f"{name}.self_attn.{p}_proj").reshape(len(tokens), -1, config.size) for p in "qkv")
        x = x + dense(attended(turned(config, q), turned(config, k), v), f"{name}.self_attn.o_proj")
        h = rms(x, w[f"{name}.post_attention_layernorm.weight"], config.epsilon)
        gate = dense(h, f"{name}.mlp.gate_proj")
        x = x + dense(gate / (1 + np.exp(-gate)) * dense(h, f"{name}.mlp.up_proj"), f"{name}.mlp.down_proj")
    head = w["model.embed_tokens.weight" if config.tied else "lm_head.weight"]
    return np.asarray(rms(x, w["model.norm.weight"], config.epsilon) @ head.T)


# GPT-2


def normalised(x: Array, gamma: Array, beta: Array, epsilon: float) -> Array:
    off = x - x.mean(-1, keepdims=True)
    return np.asarray(off / np.sqrt((off * off).mean(-1, keepdims=True) + epsilon) * gamma + beta)


def gelu(x: Array, approximate: str) -> Array:
    if approximate == "tanh":
        return np.asarray(x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
    return np.asarray(x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))


def gpt2_logits(config: gpt2.Config, arrays: dict[str, Array], tokens: list[int]) -> Array:
    """[tokens, vocabulary]"""
    w = {name.removeprefix("transformer."): array.astype(np.float64) for name, array in arrays.items()}

    def dense(x: Array, name: str) -> Array:
        return np.asarray(x @ w[f"{name}.weight"] + w[f"{name}.bias"])

    def norm(x: Array, name: str) -> Array:
        return normalised(x, w[f"{name}.weight"], w[f"{name}.bias"], config.epsilon)

    x = w["wte.weight"][tokens] + w["wpe.weight"][: len(tokens)]
    for number in range(config.layers):
        name = f"h.{number}"
        both = dense(norm(x, f"{name}.ln_1"), f"{name}.attn.c_attn")
        q, k, v = (part.reshape(len(tokens), config.heads, -1) for part in np.split(both, 3, axis=-1))
        x = x + dense(attended(q, k, v), f"{name}.attn.c_proj")
        wide = gelu(dense(norm(x, f"{name}.ln_2"), f"{name}.mlp.c_fc"), config.approximate)
        x = x + dense(wide, f"{name}.mlp.c_proj")
    return np.asarray(norm(x, "ln_f") @ w["wte.weight" if config.tied else "lm_head.weight"].T)


def some(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, Array]:
    """Weights of which none, bias or not, could be left out unseen."""
    random = np.random.default_rng(seed)
    made = {}
    for name, shape in shapes.items():
        scale, offset = (shape[-1] ** -0.5, 0.0) if len(shape) > 1 else (0.3, float(name.endswith("weight")))
        made[name] = (random.normal(0, scale, shape) + offset).astype(np.float32)
    return made
