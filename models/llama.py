"""Decoders like Llama, Mistral and Qwen2: grouped-query attention, RMSNorm, rotary embeddings and SwiGLU."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore import ops
from graphcore.arrays.casting import Array
from graphcore.checkpoints import Tensors
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.models import _config
from graphcore.models._config import (
    REQUIRED,
    ModelWeights,
    Schema,
    Source,
    WeightsSource,
    arrays_of,
    from_gguf,
    require,
)
from graphcore.models.generation import Attention, DecoderStep

KINDS = {"llama": 2048, "mistral": 131_072, "qwen2": 32_768}
"""The families, with the default number of positions."""

_TYPES = {
    **dict.fromkeys(
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim "
        "max_position_embeddings sliding_window".split(),
        int,
    ),
    **dict.fromkeys(("rms_norm_eps", "rope_theta"), float),
    **dict.fromkeys("attention_bias mlp_bias tie_word_embeddings use_sliding_window".split(), bool),
    **dict.fromkeys(("rope_scaling", "rope_parameters"), dict),
}

SCHEMA = Schema(
    tuple(KINDS),
    _TYPES,
    {
        **dict.fromkeys(list(_TYPES)[:5], REQUIRED),
        "num_key_value_heads": None,
        "head_dim": None,
        "max_position_embeddings": None,
        "sliding_window": None,
        "rms_norm_eps": 1e-6,
        "rope_theta": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "use_sliding_window": None,
        "rope_scaling": None,
        "rope_parameters": None,
    },
    {"hidden_act": ("silu",), "pretraining_tp": (1,), "use_mrope": (False,), "rope_interleaved": (False,)},
    frozenset({"layer_types", "max_window_layers", "is_llama_config", "transformers.js_config"}),
)
"""The fields of the configurations of all families."""

_ROPE = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
"""The ways to scale rotary angles, with their parameters."""


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of a decoder. The defaults are a small model with 2.5 million weights.

    Attributes:
        vocabulary: The number of tokens.
        width: The size of a token's vector.
        inner: The width inside the dense layers.
        layers: The number of layers.
        heads: The number of query heads.
        kv_heads: The number of key and value heads, each for heads / kv_heads query heads.
        size: The size of a head.
        positions: The maximum number of tokens of a text.
        epsilon: The epsilon of RMSNorm.
        theta: The base of the rotary angles.
        scaling: The scaling of rotary angles: the fields of `rope_scaling` of the type "linear" or "llama3".
        tied: The head shares the weights of the embedding.
        biases: The dense layers of attention that have a bias, a subset of "qkvo".
        mlp_biases: The other dense layers have a bias.
        permuted: GGUF files have the two features of a rotated pair next to each other, as for all but Qwen2.
    """

    vocabulary: int = 1024
    width: int = 256
    inner: int = 688
    layers: int = 4
    heads: int = 8
    kv_heads: int = 4
    size: int = 32
    positions: int = 2048
    epsilon: float = 1e-5
    theta: float = 10000.0
    scaling: Mapping[str, Any] | None = None
    tied: bool = True
    biases: str = ""
    mlp_biases: bool = False
    permuted: bool = True

    def __post_init__(self) -> None:
        """Raise `ModelError` for invalid values."""
        _config.require_values(self)
        heads, kv_heads = self.heads, self.kv_heads
        require(heads % kv_heads == 0, f"{heads} query heads are not a multiple of {kv_heads} key heads")
        require(self.size % 2 == 0, f"heads have {self.size} features, but rotary embeddings need an even number")
        require({*self.biases} <= {*"qkvo"}, f"biases is {self.biases!r:.80}, not a subset of 'qkvo'")
        _, scaling = _rope({"rope_theta": self.theta, "rope_scaling": self.scaling, "rope_parameters": None})
        object.__setattr__(self, "scaling", scaling)  # normalised for `angles`

    @staticmethod
    def read(source: Source, ignore: Collection[str] = ()) -> Config:
        """Read a Config from a `config.json`: a dict of its fields, or its path.

        Args:
            ignore: Unknown fields to ignore.

        Raises:
            ModelError: With the names of all fields that are missing, unknown, or have unsupported values.
        """
        content = _config.content_of(source)
        kind = content.get("model_type")
        fields = _config.read(content, SCHEMA, ignore)
        _require_layer_types(content.get("layer_types"), ignore)
        heads, width = fields["num_attention_heads"], fields["hidden_size"]
        kv_heads = fields["num_key_value_heads"] or (8 if kind == "mistral" else heads)
        require(heads % kv_heads == 0, f"{heads} query heads are not a multiple of {kv_heads} key heads")
        require(
            fields["head_dim"] is not None or width % heads == 0, f"hidden_size {width} is not a multiple of {heads}"
        )
        layers = fields["num_hidden_layers"]
        require(
            layers <= _config.MAX_LAYERS,
            f"num_hidden_layers is {layers}, but at most {_config.MAX_LAYERS} are supported",
        )
        size = fields["head_dim"] or width // heads
        require(size % 2 == 0, f"heads have {size} features, but rotary embeddings need an even number")
        positions = fields["max_position_embeddings"] or KINDS.get(str(kind), 2048)
        if fields["sliding_window"] and _is_windowed(kind, fields["use_sliding_window"], content.get("layer_types")):
            positions = min(positions, fields["sliding_window"])  # the window has no effect up to that length
        theta, scaling = _rope(fields)
        biases = "qkvo" if fields["attention_bias"] else "qkv" if kind == "qwen2" else ""
        return Config(
            vocabulary=fields["vocab_size"],
            width=width,
            inner=fields["intermediate_size"],
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            size=size,
            positions=positions,
            epsilon=float(fields["rms_norm_eps"]),
            theta=theta,
            scaling=scaling,
            tied=fields["tie_word_embeddings"],
            biases=biases,
            mlp_biases=fields["mlp_bias"],
            permuted=kind != "qwen2",
        )


def _require_layer_types(layer_types: object, ignore: Collection[str]) -> None:
    supported = ("full_attention", "sliding_attention")
    if layer_types is None or "layer_types" in ignore:
        return
    require(isinstance(layer_types, list), f"layer_types is {layer_types!r:.80}, not a list of names")
    assert isinstance(layer_types, list)
    unsupported = sorted({repr(kind)[:80] for kind in layer_types if kind not in supported})
    require(
        not unsupported,
        f"layer_types has {', '.join(unsupported[:5])}; supported is {' or '.join(map(repr, supported))}",
    )


def _is_windowed(kind: object, use_sliding_window: bool | None, layer_types: object) -> bool:
    """Return True if some layer has a sliding window. Qwen2 has a switch for it, the others a size or None."""
    if isinstance(layer_types, list) and "sliding_attention" in layer_types:
        return True
    return bool(use_sliding_window) if kind == "qwen2" else use_sliding_window is not False


def _rope(fields: Mapping[str, Any]) -> tuple[float, dict[str, Any] | None]:
    """Return the base of the rotary angles and their scaling. Newer configurations have both in `rope_parameters`."""
    rope = fields["rope_parameters"] or fields["rope_scaling"] or {}
    require(isinstance(rope, Mapping), f"the scaling of rotary angles is {rope!r:.80}, not an object of fields")
    rope = dict(rope)
    theta = rope.pop("rope_theta", fields["rope_theta"])
    theta = 10000.0 if theta is None else theta
    kind = rope.pop("rope_type", None) or rope.pop("type", None) or "default"
    rope.pop("type", None)
    names = _ROPE.get(kind) if isinstance(kind, str) else None
    require(names is not None, f"rope_type is {kind!r:.80}; supported is 'default', 'linear' or 'llama3'")
    assert names is not None
    require(type(theta) in (int, float) and 1 < theta < math.inf, f"rope_theta is {theta!r:.80}, not a number above 1")
    require({*rope} == {*names}, f"rope of type {kind!r} has {sorted(rope)}, not {sorted(names)}")
    is_valid = all(type(v) in (int, float) and 0 < v < math.inf for v in rope.values())
    require(is_valid, f"rope of type {kind!r} has {rope!r:.200}, not numbers above 0")
    require(
        kind != "llama3" or rope["low_freq_factor"] < rope["high_freq_factor"],
        "low_freq_factor must be less than high_freq_factor",
    )
    return float(theta), {"rope_type": kind, **rope} if names else None


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights by the names in checkpoints."""
    width, inner, size = config.width, config.inner, config.size
    queries, keys = config.heads * size, config.kv_heads * size
    result: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocabulary, width)}
    for number in range(config.layers):
        name = f"model.layers.{number}"
        result[f"{name}.input_layernorm.weight"] = (width,)
        for part, out, into in (("q", queries, width), ("k", keys, width), ("v", keys, width), ("o", width, queries)):
            result[f"{name}.self_attn.{part}_proj.weight"] = (out, into)
            if part in config.biases:
                result[f"{name}.self_attn.{part}_proj.bias"] = (out,)
        result[f"{name}.post_attention_layernorm.weight"] = (width,)
        for part, out, into in (("gate", inner, width), ("up", inner, width), ("down", width, inner)):
            result[f"{name}.mlp.{part}_proj.weight"] = (out, into)
            if config.mlp_biases:
                result[f"{name}.mlp.{part}_proj.bias"] = (out,)
    result["model.norm.weight"] = (width,)
    if not config.tied:
        result["lm_head.weight"] = (config.vocabulary, width)
    return result


def angles(config: Config, positions: int) -> tuple[Array, Array]:
    """Return cosine and sine of the rotation of feature pairs by position: float32[positions, size / 2].

    Source: Su et al. 2021, arXiv:2104.09864. "linear" divides positions by a factor (Chen et al. 2023,
    arXiv:2306.15595). "llama3" divides low frequencies by a factor and keeps high ones, with a ramp between (model card
    of Llama 3.1).
    """
    frequencies = config.theta ** (-np.arange(0, config.size, 2, dtype=np.float64) / config.size)
    scaling = config.scaling or {"rope_type": "default"}
    if scaling["rope_type"] == "linear":
        frequencies = frequencies / scaling["factor"]
    if scaling["rope_type"] == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        turns = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
        blend = np.clip((turns - low) / (high - low), 0, 1)
        frequencies = frequencies * (blend + (1 - blend) / scaling["factor"])
    rotations = np.outer(np.arange(positions), frequencies)
    return np.cos(rotations).astype(np.float32), np.sin(rotations).astype(np.float32)


def build(
    config: Config | Source,
    weights: WeightsSource = None,
    *,
    cache: int | None = None,
    every_token: bool = False,
    last_tokens: bool = False,
    seed: int = 0,
) -> Graph:
    """Build the decoder as a Graph, for `models.generate` or any onnxruntime session.

    The inputs are `tokens` int64[batch, sequence], `lengths` int64[batch], the number of tokens of each item after the
    call, and the buffers `keys0`, `values0`, ..., float32[batch, kv_heads, cache, size]. The output is `logits`
    float32[batch, vocabulary] of the last token of each item.

    Args:
        config: A `Config`, or an argument of `Config.read`.
        weights: Arrays by the names of the checkpoint, or the path of a safetensors file, of the index of several, or
            of a GGUF file; float32, float16 or bfloat16. None for random weights.
        cache: The maximum number of tokens of a text; by default 1024, or `positions` if that is less.
        every_token: Output the logits of all tokens: float32[batch, sequence, vocabulary].
        last_tokens: Add an input `last_tokens` int64[], and output the logits of that many last tokens of each item:
            float32[batch, last_tokens, vocabulary]. Needed for `lookup=` of `models.generate`.
        seed: The seed of random weights.

    Raises:
        ModelError: Weights are missing, unexpected, or do not match.

    Source: Touvron et al. 2023, arXiv:2302.13971.
    """
    config = config if isinstance(config, Config) else Config.read(config)
    arrays = arrays_of(
        weights,
        shapes(config),
        seed=seed,
        gguf=lambda tensors: named(tensors, config),
        architecture="llama" if config.permuted else "qwen2",
        tied={"lm_head.weight": "model.embed_tokens.weight"} if config.tied else None,
        ignored=r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq"
        + (r"|rope_freqs\.weight" if config.scaling else ""),
    )
    heads = Attention(config.layers, config.heads, config.kv_heads, config.size, config.positions)
    return _LlamaDecoder(config, DecoderStep("llama", heads, cache, last_tokens), arrays).build(every_token)


class _LlamaDecoder:
    """The layers. Activations are rows of all tokens of all items."""

    def __init__(self, config: Config, step: DecoderStep, arrays: Mapping[str, Array]) -> None:
        self.config = config
        self.step = step
        self.weights = ModelWeights(step.graph, arrays)
        cos, sin = angles(config, step.cache)
        self.angles = step.graph.constant(cos), step.graph.constant(sin)

    def dense(self, x: Symbol, name: str) -> Symbol:
        return ops.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def norm(self, x: Symbol, name: str) -> Symbol:
        return ops.rms_norm(x, self.weights[f"{name}.weight"], epsilon=self.config.epsilon)

    def build(self, every_token: bool) -> Graph:
        graph, embedding = self.step.graph, self.weights["model.embed_tokens.weight"]
        with graph.layer("embeddings"):
            rows = self.step.rows(self.step.embed_tokens(embedding))
        for number in range(self.config.layers):
            with graph.layer(f"layers/{number}"):
                rows = self.layer(rows, number, f"model.layers.{number}")
        rows = self.norm(rows, "model.norm")
        return self.step.output(rows, embedding if self.config.tied else self.weights["lm_head.weight"], every_token)

    def layer(self, x: Symbol, number: int, name: str) -> Symbol:
        prefix = f"{name}.self_attn"
        h = self.norm(x, f"{name}.input_layernorm")
        query, key, value = (self.dense(h, f"{prefix}.{part}_proj") for part in "qkv")
        x = x + self.dense(self.step.attend(number, query, key, value, self.angles), f"{prefix}.o_proj")
        h = self.norm(x, f"{name}.post_attention_layernorm")
        wide = ops.silu(self.dense(h, f"{name}.mlp.gate_proj")) * self.dense(h, f"{name}.mlp.up_proj")
        return x + self.dense(wide, f"{name}.mlp.down_proj")


# GGUF has other names, and the two features of a rotated pair of queries and keys next to each other.

_GGUF = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def named(tensors: Tensors[Array], config: Config) -> dict[str, Array]:
    """Return the tensors of a GGUF file by the names of the model, with rotated pairs half a head apart."""

    def convert(block: str | None, stem: str, array: Array) -> Array:
        if not config.permuted or stem not in ("attn_q", "attn_k") or not array.ndim or array.shape[0] % config.size:
            return array
        pairs = array.reshape(-1, config.size // 2, 2, *array.shape[1:])
        return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(array.shape)

    return from_gguf(tensors, _GGUF, "model.layers", convert)
