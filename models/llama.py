"""Decoders like Llama, Mistral and Qwen2: grouped queries, RMSNorm, rotary positions and SwiGLU.

From the shell, with random weights or a checkpoint:

    python -m graphcore.models.llama --random --tokens 64
    python -m graphcore.models.llama --config config.json --weights model.safetensors --prompt "1 15043 3186"
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore import ops
from graphcore.arrays.casting import Array
from graphcore.checkpoints import Tensors
from graphcore.errors import GraphcoreError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.models import _config
from graphcore.models._config import REQUIRED, Given, Schema, Source, Weights, arrays_of, from_gguf, require
from graphcore.models.generation import Attention, Step, stream

KINDS = {"llama": 2048, "mistral": 131_072, "qwen2": 32_768}
"""The families, and the positions that each was made for if a configuration does not say."""

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
"""The fields of Llama's configuration, and of those that differ from it in a default."""

_ROPE = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
"""The ways to scale rotary angles, and what they are told."""


@dataclass(frozen=True, slots=True)
class Config:
    """The shape of a decoder. The defaults are a small one, of 2.5 million weights.

    kv_heads: the number of heads of keys and values, each for heads / kv_heads heads of queries. size: of a head.
    inner: the width inside the dense layers. theta: the base of the rotary angles. scaling: "linear" or "llama3", with
    the fields of `rope_scaling`. tied: the head is the embedding. biases: the dense layers of an attention that have
    one, a subset of "qkvo"; mlp_biases: whether the other dense layers have. permuted: the two features of a rotated
    pair are neighbours in GGUF files, as for all but Qwen2.
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
        """Raise `ModelError` for values that no network has."""
        _config.require_values(self)
        heads, kv_heads = self.heads, self.kv_heads
        require(heads % kv_heads == 0, f"{heads} heads of queries do not share {kv_heads} of keys evenly")
        require(self.size % 2 == 0, f"heads have {self.size} features, which do not turn in pairs")
        require({*self.biases} <= {*"qkvo"}, f"biases is {self.biases!r:.80}, not a part of 'qkvo'")
        _, scaling = _rope({"rope_theta": self.theta, "rope_scaling": self.scaling, "rope_parameters": None})
        object.__setattr__(self, "scaling", scaling)  # in the one spelling that `angles` reads

    @staticmethod
    def read(source: Source, ignore: Collection[str] = ()) -> Config:
        """Read a Config from a `config.json`: a dict of its fields or its path.

        ignore: unknown fields to ignore. Raises `ModelError` with the names of all fields that are missing, unknown or
        of unsupported values.
        """
        content = _config.content_of(source)
        kind = content.get("model_type")
        given = _config.read(content, SCHEMA, ignore)
        _require_layer_types(content.get("layer_types"), ignore)
        heads, width = given["num_attention_heads"], given["hidden_size"]
        kv_heads = given["num_key_value_heads"] or (8 if kind == "mistral" else heads)
        require(heads % kv_heads == 0, f"{heads} heads of queries do not share {kv_heads} of keys evenly")
        require(given["head_dim"] is not None or width % heads == 0, f"hidden_size {width} is no multiple of {heads}")
        layers = given["num_hidden_layers"]
        require(layers <= _config.MOST_LAYERS, f"num_hidden_layers is {layers}, and {_config.MOST_LAYERS} are the most")
        size = given["head_dim"] or width // heads
        require(size % 2 == 0, f"heads have {size} features, which do not turn in pairs")
        positions = given["max_position_embeddings"] or KINDS.get(str(kind), 2048)
        if given["sliding_window"] and _is_windowed(kind, given["use_sliding_window"], content.get("layer_types")):
            positions = min(positions, given["sliding_window"])  # up to that length the window hides no token
        theta, scaling = _rope(given)
        biases = "qkvo" if given["attention_bias"] else "qkv" if kind == "qwen2" else ""
        return Config(
            vocabulary=given["vocab_size"],
            width=width,
            inner=given["intermediate_size"],
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            size=size,
            positions=positions,
            epsilon=float(given["rms_norm_eps"]),
            theta=theta,
            scaling=scaling,
            tied=given["tie_word_embeddings"],
            biases=biases,
            mlp_biases=given["mlp_bias"],
            permuted=kind != "qwen2",
        )


def _require_layer_types(said: object, ignore: Collection[str]) -> None:
    known = ("full_attention", "sliding_attention")
    if said is None or "layer_types" in ignore:
        return
    require(isinstance(said, list), f"layer_types is {said!r:.80}, not a list of names")
    assert isinstance(said, list)
    other = sorted({repr(kind)[:80] for kind in said if kind not in known})
    require(not other, f"layer_types has {', '.join(other[:5])}; computed is {' or '.join(map(repr, known))}")


def _is_windowed(kind: object, asked: bool | None, layer_types: object) -> bool:
    """Return whether some layer has a sliding window. Qwen2 has a switch for it, the others a size or None."""
    if isinstance(layer_types, list) and "sliding_attention" in layer_types:
        return True
    return bool(asked) if kind == "qwen2" else asked is not False


def _rope(given: Mapping[str, Any]) -> tuple[float, dict[str, Any] | None]:
    """Return the base of the angles and their scaling. Newer configurations have both under `rope_parameters`."""
    said = given["rope_parameters"] or given["rope_scaling"] or {}
    require(isinstance(said, Mapping), f"the scaling of rotary angles is {said!r:.80}, not an object of fields")
    said = dict(said)
    theta = said.pop("rope_theta", given["rope_theta"])
    theta = 10000.0 if theta is None else theta
    kind = said.pop("rope_type", None) or said.pop("type", None) or "default"
    said.pop("type", None)
    wanted = _ROPE.get(kind) if isinstance(kind, str) else None
    require(wanted is not None, f"rope_type is {kind!r:.80}; computed is 'default', 'linear' or 'llama3'")
    assert wanted is not None
    require(type(theta) in (int, float) and 1 < theta < math.inf, f"rope_theta is {theta!r:.80}, not a number above 1")
    require({*said} == {*wanted}, f"rope of type {kind!r} has {sorted(said)}, not {sorted(wanted)}")
    fit = all(type(v) in (int, float) and 0 < v < math.inf for v in said.values())
    require(fit, f"rope of type {kind!r} has {said!r:.200}: numbers above 0 are wanted")
    require(kind != "llama3" or said["low_freq_factor"] < said["high_freq_factor"], "low_freq_factor is not the lower")
    return float(theta), {"rope_type": kind, **said} if wanted else None


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights, by the names in checkpoints."""
    width, inner, size = config.width, config.inner, config.size
    queries, keys = config.heads * size, config.kv_heads * size
    made: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocabulary, width)}
    for number in range(config.layers):
        name = f"model.layers.{number}"
        made[f"{name}.input_layernorm.weight"] = (width,)
        for part, out, into in (("q", queries, width), ("k", keys, width), ("v", keys, width), ("o", width, queries)):
            made[f"{name}.self_attn.{part}_proj.weight"] = (out, into)
            if part in config.biases:
                made[f"{name}.self_attn.{part}_proj.bias"] = (out,)
        made[f"{name}.post_attention_layernorm.weight"] = (width,)
        for part, out, into in (("gate", inner, width), ("up", inner, width), ("down", width, inner)):
            made[f"{name}.mlp.{part}_proj.weight"] = (out, into)
            if config.mlp_biases:
                made[f"{name}.mlp.{part}_proj.bias"] = (out,)
    made["model.norm.weight"] = (width,)
    if not config.tied:
        made["lm_head.weight"] = (config.vocabulary, width)
    return made


def angles(config: Config, positions: int) -> tuple[Array, Array]:
    """Return cosine and sine of the rotation of feature pairs by position: float32[positions, size / 2].

    Su et al. 2021, arXiv:2104.09864. "linear" divides positions by a factor (Chen et al. 2023, arXiv:2306.15595),
    "llama3" slows the rotation of slow pairs by it and keeps that of fast ones, with a ramp between (Llama 3.1's model
    card).
    """
    speed = config.theta ** (-np.arange(0, config.size, 2, dtype=np.float64) / config.size)
    said = config.scaling or {"rope_type": "default"}
    if said["rope_type"] == "linear":
        speed = speed / said["factor"]
    if said["rope_type"] == "llama3":
        low, high = said["low_freq_factor"], said["high_freq_factor"]
        turns = said["original_max_position_embeddings"] * speed / (2 * math.pi)
        kept = np.clip((turns - low) / (high - low), 0, 1)
        speed = speed * (kept + (1 - kept) / said["factor"])
    turned = np.outer(np.arange(positions), speed)
    return np.cos(turned).astype(np.float32), np.sin(turned).astype(np.float32)


def build(
    config: Config | Source,
    weights: Given = None,
    *,
    cache: int | None = None,
    every_token: bool = False,
    last_tokens: bool = False,
    seed: int = 0,
) -> Graph:
    """Build the decoder as a Graph, for `models.generate` or any onnxruntime session.

    config: a `Config`, or an argument of `Config.read`. weights: arrays by the names of the checkpoint, or the path of
    a safetensors file, of the index of several, or of a GGUF file; float32, float16 or bfloat16; None for random ones
    of `seed`. cache: the most tokens of a text, by default 1024 or the model's own positions if those are fewer.

    The inputs are `tokens` int64[batch, sequence], `lengths` int64[batch], each item's number of tokens after the call,
    and the buffers `keys0`, `values0` and so on, float32[batch, kv_heads, cache, size]; the output is `logits`
    float32[batch, vocabulary] of the last token of each, with every_token float32[batch, sequence, vocabulary] of all.
    With last_tokens there is an input `last_tokens` int64[], and the logits are of so many last tokens of each:
    float32[batch, last_tokens, vocabulary]; `models.generate` with lookup= wants that.
    Raises `ModelError` with the names of all weights that do not match. Touvron et al. 2023, arXiv:2302.13971.
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
    return _Decoder(config, Step("llama", heads, cache, last_tokens), arrays).build(every_token)


class _Decoder:
    """The layers, over rows of all tokens of all items."""

    def __init__(self, config: Config, step: Step, arrays: Mapping[str, Array]) -> None:
        self.config = config
        self.step = step
        self.weights = Weights(step.graph, arrays)
        cos, sin = angles(config, step.cache)
        self.angles = step.graph.constant(cos), step.graph.constant(sin)

    def dense(self, x: Symbol, name: str) -> Symbol:
        return ops.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def norm(self, x: Symbol, name: str) -> Symbol:
        return ops.rms_norm(x, self.weights[f"{name}.weight"], epsilon=self.config.epsilon)

    def build(self, every_token: bool) -> Graph:
        graph, words = self.step.graph, self.weights["model.embed_tokens.weight"]
        with graph.layer("embeddings"):
            rows = self.step.rows(self.step.embedded(words))
        for number in range(self.config.layers):
            with graph.layer(f"layers/{number}"):
                rows = self.layer(rows, number, f"model.layers.{number}")
        rows = self.norm(rows, "model.norm")
        return self.step.output(rows, words if self.config.tied else self.weights["lm_head.weight"], every_token)

    def layer(self, x: Symbol, number: int, name: str) -> Symbol:
        own = f"{name}.self_attn"
        h = self.norm(x, f"{name}.input_layernorm")
        query, key, value = (self.dense(h, f"{own}.{part}_proj") for part in "qkv")
        x = x + self.dense(self.step.attend(number, query, key, value, self.angles), f"{own}.o_proj")
        h = self.norm(x, f"{name}.post_attention_layernorm")
        wide = ops.silu(self.dense(h, f"{name}.mlp.gate_proj")) * self.dense(h, f"{name}.mlp.up_proj")
        return x + self.dense(wide, f"{name}.mlp.down_proj")


# GGUF: other names, and queries and keys whose pairs are neighbours

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
    """Return the tensors of a GGUF file by the names of the model, the features of a rotated pair half a head apart."""

    def brought(block: str | None, stem: str, array: Array) -> Array:
        if not config.permuted or stem not in ("attn_q", "attn_k") or not array.ndim or array.shape[0] % config.size:
            return array
        pairs = array.reshape(-1, config.size // 2, 2, *array.shape[1:])
        return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(array.shape)

    return from_gguf(tensors, _GGUF, "model.layers", brought)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line: print tokens as they are made."""
    parser = argparse.ArgumentParser(prog="python -m graphcore.models.llama", description=main.__doc__)
    parser.add_argument("--random", action="store_true", help="random weights, of a small model without --config")
    parser.add_argument("--config", help="the path of a config.json")
    parser.add_argument("--weights", help="a safetensors file, the index of several, or a GGUF file")
    parser.add_argument("--prompt", default="1", help="token ids, separated by blanks")
    parser.add_argument("--tokens", type=int, default=64, help="how many to make")
    parser.add_argument("--cache", type=int, help="the most tokens of the text; by default as many as it will have")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the likeliest token")
    parser.add_argument("--top-k", type=int, help="draw from the k likeliest")
    parser.add_argument("--top-p", type=float, help="draw from the fewest that have this probability together")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.random == (options.weights is not None) or (options.weights and not options.config):
        parser.error("give --random, or --config and --weights")
    try:
        from graphcore.runtime import InferenceSession  # loads onnxruntime, which building a graph does not need

        prompt = [int(word) for word in options.prompt.split()]
        config = Config() if options.config is None else Config.read(options.config)
        cache = max(len(prompt) + options.tokens, 1) if options.cache is None else options.cache
        model = InferenceSession().load(build(config, options.weights, cache=cache, seed=options.seed))
        drawn = {"temperature": options.temperature, "top_k": options.top_k, "top_p": options.top_p}
        shown = sys.stderr.isatty() and not sys.stdout.isatty()
        for (token,) in stream(model, prompt, options.tokens, **drawn, seed=options.seed, progress=shown):
            print(token, end=" ", flush=True)
        print()
    except KeyboardInterrupt:
        print()
        return 130
    except GraphcoreError as error:
        print(f"{error.summary}: {error.help}" if error.help else error.summary, file=sys.stderr)
        return 1
    except ValueError:
        print(f"--prompt {options.prompt!r:.80}: token ids are wanted, such as '1 15043'", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
