"""The families of decoders: a Config for each `config.json`, by declarations of blocks and names of weights."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphcore.errors import ModelError
from graphcore.models import _config
from graphcore.models._config import REQUIRED, BaseConfig, Schema, from_file, require

ACTIVATIONS = {"silu": "silu", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu": "none"}
"""The activation of a Config, "silu" or the `approximate` argument of `ops.gelu`, by its name in configurations."""

_LLAMA_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The names of weights in files, and how they are stored.

    Attributes:
        names: The names in checkpoints, inside and outside of layers, by those in GGUF files.
        layers: The prefix of layers in checkpoints.
        architecture: The name of the family in GGUF files.
        transposed: Dense layers are [inputs, outputs] in checkpoints.
        permuted: GGUF files have the two features of a rotated pair next to each other.
        interleaved: Queries, keys and values are by heads in checkpoints, in GGUF files one after the other.
    """

    names: Mapping[str, str] = field(default_factory=lambda: _LLAMA_NAMES)
    layers: str = "model.layers"
    architecture: str = "llama"
    transposed: bool = False
    permuted: bool = False
    interleaved: bool = False


LLAMA = Layout(permuted=True)


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """The configuration of a decoder. The defaults are a small Llama with 2.5 million weights.

    Attributes:
        vocabulary: The number of tokens.
        width: The size of a token's vector.
        inner: The width inside the dense layers.
        layers: The number of layers.
        heads: The number of query heads.
        kv_heads: The number of key and value heads, each for heads / kv_heads query heads.
        size: The size of a head.
        positions: The maximum number of tokens of a text.
        epsilon: The epsilon of norms.
        theta: The base of the rotary angles.
        scaling: The scaling of rotary angles: the fields of `rope_scaling`.
        tied: The head shares the weights of the embedding.
        biases: The dense layers of attention that have a bias, a subset of "qkvo".
        mlp_biases: The other dense layers have a bias.
        layout: The names of weights.
        norm: "rms", "rms1" for RMSNorm with weights stored as their difference from 1, or "layer" for LayerNorm.
        activation: "silu", or the `approximate` argument of `ops.gelu`.
        gated: The dense layers multiply the activation by another product.
        fused: One weight has queries, keys and values, and one both products of a gate.
        parallel: Attention and dense layers read the same input.
        post_norms: Norms after attention and dense layers too.
        head_norms: Norms of each head of queries and keys.
        learnt_positions: Positions are embeddings, without rotary angles.
        rotary: The number of rotated features of a head; None for all.
        windows: The number of last tokens that each layer attends to; 0 for all, none for all in every layer.
        local_theta: The base of the rotary angles of layers with a window, which are not scaled; None for the same.
        softcap: The limit of attention scores, by tanh; 0 for none.
        logit_softcap: The limit of logits.
        scale: The factor of attention scores; None for 1 / sqrt(size).
        embedding_scale: The factor of embeddings.
        experts: The number of experts of each layer; 0 for none.
        top_k: The number of experts of a token.
        expert_inner: The width inside an expert.
        shared_inner: The width inside the expert of all tokens; 0 for none.
        normalised: The weights of the experts of a token have the sum 1.
        dense_layers: The layers without experts.
    """

    vocabulary: int = from_file("vocab_size", 1024)
    width: int = from_file("hidden_size n_embd", 256)
    inner: int = from_file("intermediate_size n_inner", 688)
    layers: int = from_file("num_hidden_layers n_layer", 4)
    heads: int = from_file("num_attention_heads n_head", 8)
    kv_heads: int = from_file("num_key_value_heads", 4)
    size: int = from_file("head_dim", 32)
    positions: int = from_file("max_position_embeddings n_positions", 2048)
    epsilon: float = from_file("rms_norm_eps layer_norm_epsilon layer_norm_eps", 1e-5)
    theta: float = from_file("rope_theta rotary_emb_base", 10000.0)
    scaling: Mapping[str, Any] | None = None
    tied: bool = from_file("tie_word_embeddings", True)
    biases: str = ""
    mlp_biases: bool = from_file("mlp_bias", False)
    layout: Layout = LLAMA
    norm: str = "rms"
    activation: str = "silu"
    gated: bool = True
    fused: bool = False
    parallel: bool = False
    post_norms: bool = False
    head_norms: bool = False
    learnt_positions: bool = False
    rotary: int | None = None
    windows: Sequence[int] | None = None
    local_theta: float | None = from_file("rope_local_base_freq", None)
    softcap: float = from_file("attn_logit_softcapping", 0.0)
    logit_softcap: float = from_file("final_logit_softcapping", 0.0)
    scale: float | None = None
    embedding_scale: float = 1.0
    experts: int | None = from_file("num_experts num_local_experts", None)
    top_k: int = from_file("num_experts_per_tok", 2)
    expert_inner: int = from_file("moe_intermediate_size", 688)
    shared_inner: int | None = from_file("shared_expert_intermediate_size", None)
    normalised: bool = from_file("norm_topk_prob", True)
    dense_layers: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        """Raise `ModelError` for invalid values."""
        _config.require_values(self)
        heads, kv_heads, rotary = self.heads, self.kv_heads, self.rotated
        require(heads % kv_heads == 0, f"{heads} query heads are not a multiple of {kv_heads} key heads")
        require(rotary % 2 == 0, f"heads have {rotary} features, but rotary embeddings need an even number")
        require(rotary <= self.size, f"{rotary} features are rotated, but heads have {self.size}")
        require({*self.biases} <= {*"qkvo"}, f"biases is {self.biases!r:.80}, not a subset of 'qkvo'")
        require(self.norm in ("rms", "rms1", "layer"), f"norm is {self.norm!r:.80}, not rms, rms1 or layer")
        kinds = sorted({*ACTIVATIONS.values()})
        require(self.activation in kinds, f"activation is {self.activation!r:.80}, not {', '.join(kinds)}")
        windows = self.windows
        is_list = isinstance(windows, (list, tuple)) and all(type(w) is int and w >= 0 for w in windows)
        require(
            windows is None or (is_list and len(windows) == self.layers),
            f"windows is {windows!r:.80}, not a number of at least 0 for each of {self.layers} layers",
        )
        require(isinstance(self.layout, Layout), f"layout is {self.layout!r:.80}, not a Layout")
        require(isinstance(self.dense_layers, frozenset), f"dense_layers is {self.dense_layers!r:.80}, not a frozenset")
        experts = self.experts or self.top_k
        require(self.top_k <= experts, f"{self.top_k} experts of a token, but {experts} experts")
        _, scaling = _rope({"rope_theta": self.theta, "rope_scaling": self.scaling}, self.positions, rotary)
        object.__setattr__(self, "scaling", scaling)  # normalised for `angles`

    @property
    def rotated(self) -> int:
        """The number of rotated features of a head."""
        return 0 if self.learnt_positions else self.rotary or self.size

    @classmethod
    def _values(cls, content: dict[str, Any], ignore: Collection[str]) -> dict[str, Any]:
        kind = content.get("model_type")
        family = FAMILIES.get(kind) if isinstance(kind, str) else None
        if family is None:
            raise unknown_type("config", kind, FAMILIES)
        if content.get("sliding_window") == 0:  # as some files write that there is none
            content["sliding_window"] = None
        fields = _config.read({**family.defaults, **content}, family.schema, ignore)
        values = {"tied": False, "positions": 2048, "epsilon": 1e-6} | _config.values_of(Config, fields)
        width, heads, layers, positions = (values[name] for name in ("width", "heads", "layers", "positions"))
        require("size" in values or width % heads == 0, f"a width of {width} is not a multiple of {heads} heads")
        size = values.setdefault("size", width // heads)
        rope = fields.get("rope_parameters")
        if isinstance(rope, Mapping) and "full_attention" in rope:  # for each kind of layers
            windowed, rope = rope.get("sliding_attention"), rope["full_attention"]
            is_plain = isinstance(windowed, Mapping) and {*windowed} <= {"rope_theta", "rope_type"}
            require(is_plain, f"rope_parameters of layers with a window are {windowed!r:.200}, not a rope_theta")
            values["local_theta"], fields["rope_parameters"] = dict(windowed or ()).get("rope_theta"), rope
        partial = rope.get("partial_rotary_factor") if isinstance(rope, Mapping) else None
        for name in ("partial_rotary_factor", "rotary_pct"):
            partial = fields.get(name) if partial is None else partial
        is_part = partial is None or (type(partial) in (int, float) and 2 / size <= partial <= 1)
        require(is_part, f"partial_rotary_factor is {partial!r:.80}, not a part of {size} features")
        rotary = None if partial in (None, 1) else int(size * partial)
        fields["rope_theta"] = values.get("theta")
        theta, scaling = _rope(fields, positions, size if rotary is None else rotary)
        others = {
            "inner": 4 * width,
            "kv_heads": heads,
            "biases": "qkvo" if fields.get("attention_bias") else "",
            "rotary": rotary,
            "windows": _windows(fields, content.get("layer_types"), layers, ignore),
        }
        return {**others, **values, "theta": theta, "scaling": scaling, **family.blocks, **family.more(fields)}


def unknown_type(caller: str, kind: object, supported: Collection[str]) -> ModelError:
    """Return the error for a `model_type` that is unknown."""
    close = difflib.get_close_matches(str(kind), supported, 1)
    return ModelError(
        f"{caller}: model_type is {kind!r:.80}; supported is {', '.join(sorted(supported))}",
        help=f"did you mean {close[0]!r}?" if close else "give the configuration of a model of a supported type",
    )


# Declarations

_TYPES: dict[str, type] = {
    **dict.fromkeys(
        "original_max_position_embeddings sliding_window sliding_window_pattern max_window_layers "
        "query_pre_attn_scalar decoder_sparse_step".split(),
        int,
    ),
    **dict.fromkeys(("partial_rotary_factor", "rotary_pct"), float),
    **dict.fromkeys("attention_bias use_sliding_window use_parallel_residual qkv_bias".split(), bool),
    **dict.fromkeys(("hidden_act", "activation_function"), str),
    **dict.fromkeys(("rope_scaling", "rope_parameters"), dict),
    "mlp_only_layers": tuple,
}
"""The types of fields that are not attributes of a Config."""

_BASIC = "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads"
_USUAL = (
    "num_key_value_heads head_dim max_position_embeddings rms_norm_eps rope_theta attention_bias tie_word_embeddings "
    "rope_scaling rope_parameters"
)


@dataclass(frozen=True, slots=True)
class Family:
    """A family of decoders.

    Attributes:
        schema: The fields of its configurations.
        defaults: The values of fields that are missing.
        blocks: Values of a Config that all its models share.
        more: Further values of a Config by the fields.
    """

    schema: Schema
    defaults: Mapping[str, Any]
    blocks: Mapping[str, Any]
    more: Callable[[Mapping[str, Any]], Mapping[str, Any]]


def _family(
    kind: str,
    blocks: Mapping[str, Any] | None = None,
    more: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda fields: {},
    *,
    required: str = _BASIC,
    optional: str = _USUAL,
    also: str = "",
    fixed: Mapping[str, tuple[Any, ...]] | None = None,
    ignored: str = "",
    **defaults: Any,
) -> Family:
    fixed = {"hidden_act": ("silu",)} if fixed is None else fixed
    names = [*f"{required} {optional} {also}".split(), *defaults]
    fields = {name: REQUIRED if name in required.split() else None for name in names}
    ignored += " layer_types transformers.js_config is_decoder"
    schema = dataclasses.replace(_config.schema_of(Config, [kind], fixed, ignored, **_TYPES), fields=fields)
    return Family(schema, defaults, blocks or {}, more)


def _layout(architecture: str, **names: str) -> Layout:
    return Layout(_LLAMA_NAMES | names, architecture=architecture)


def _gemma(fields: Mapping[str, Any]) -> dict[str, Any]:
    scale = (fields["query_pre_attn_scalar"] or 256) ** -0.5
    return {"embedding_scale": math.sqrt(fields["hidden_size"]), "scale": scale}


def _moe(fields: Mapping[str, Any]) -> dict[str, Any]:
    step, dense = fields.get("decoder_sparse_step") or 1, fields.get("mlp_only_layers") or []
    return {
        "top_k": fields["num_experts_per_tok"],
        "expert_inner": fields.get("moe_intermediate_size") or fields["intermediate_size"],
        "normalised": fields.get("norm_topk_prob", True) is True,
        "dense_layers": frozenset(n for n in range(fields["num_hidden_layers"]) if (n + 1) % step or n in dense),
    }


def _neox(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "parallel": fields["use_parallel_residual"] is not False,
        "biases": "qkvo" if fields["attention_bias"] else "",
        **_activation(fields, "hidden_act"),
    }


def _activation(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    supported = [each for each in ACTIVATIONS if each != "silu"]
    value = fields[name]
    require(value in supported, f"{name} is {value!r:.80}; supported is {' or '.join(supported)}")
    return {"activation": ACTIVATIONS[value]}


_GEMMA = {"norm": "rms1", "activation": "tanh", "post_norms": True}
_GEMMA_NAMES = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_GEMMA_USUAL: dict[str, Any] = {
    "also": "attn_logit_softcapping final_logit_softcapping",
    "fixed": {
        "hidden_activation": ("gelu_pytorch_tanh",), "hidden_act": ("gelu_pytorch_tanh",),
        "use_bidirectional_attention": (False, None),
    },
    "ignored": "cache_implementation",
    "num_key_value_heads": 4, "head_dim": 256, "tie_word_embeddings": True, "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}  # fmt: skip
_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_MOE_NAMES = {
    "ffn_gate_inp": "mlp.gate",
    **{f"ffn_{part}_exps": f"mlp.experts.{{}}.{part}_proj" for part in ("gate", "up", "down")},
    **{f"ffn_{part}_shexp": f"mlp.shared_expert.{part}_proj" for part in ("gate", "up", "down")},
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}
_MOE_FIELDS = "num_experts decoder_sparse_step mlp_only_layers"
_MOE_IGNORED = "router_aux_loss_coef output_router_logits router_jitter_noise max_window_layers"

GPT2 = {
    "norm": "layer", "gated": False, "fused": True, "learnt_positions": True, "biases": "qkvo", "mlp_biases": True,
    "activation": "tanh",
    "layout": Layout(
        {
            "token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output_norm": "transformer.ln_f",
            "output": "lm_head", "attn_norm": "ln_1", "ffn_norm": "ln_2", "attn_qkv": "attn.c_attn",
            "attn_output": "attn.c_proj", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj",
        },
        "transformer.h", "gpt2", transposed=True,
    ),
}  # fmt: skip
"""The blocks of GPT-2."""

FAMILIES = {
    "llama": _family(
        "llama", also="mlp_bias", ignored="is_llama_config max_window_layers",
        fixed={
            "hidden_act": ("silu",), "pretraining_tp": (1,), "use_mrope": (False,), "rope_interleaved": (False,),
            "sliding_window": (None,), "use_sliding_window": (False,),
        },
    ),
    "mistral": _family(
        "mistral", also="use_sliding_window max_window_layers", num_key_value_heads=8, max_position_embeddings=131_072,
        sliding_window=4096,
    ),
    "qwen2": _family(
        "qwen2", {"biases": "qkv", "layout": _layout("qwen2")}, max_position_embeddings=32_768,
        fixed={"hidden_act": ("silu",), "use_mrope": (False,)}, max_window_layers=28, use_sliding_window=False,
        sliding_window=4096,
    ),
    "qwen3": _family(
        "qwen3", {"head_norms": True, "layout": _layout("qwen3", **_NORMS)}, head_dim=128,
        max_position_embeddings=32_768, max_window_layers=28, use_sliding_window=False, sliding_window=4096,
    ),
    "gemma2": _family(
        "gemma2", {**_GEMMA, "layout": _layout("gemma2", **_GEMMA_NAMES)}, _gemma, **_GEMMA_USUAL,
        max_position_embeddings=8192, sliding_window_pattern=2, attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
    ),
    "gemma3_text": _family(
        "gemma3_text", {**_GEMMA, "head_norms": True, "layout": _layout("gemma3", **_GEMMA_NAMES, **_NORMS)}, _gemma,
        **_GEMMA_USUAL, max_position_embeddings=131_072, sliding_window_pattern=6, rope_theta=1_000_000.0,
        rope_local_base_freq=10_000.0,
    ),
    "phi3": _family(
        "phi3",
        {"fused": True, "layout": _layout("phi3", attn_qkv="self_attn.qkv_proj", ffn_up="mlp.gate_up_proj")},
        also="sliding_window partial_rotary_factor", ignored="embd_pdrop resid_pdrop",
        fixed={
            "hidden_act": ("silu",), "full_attn_mod": (1,), "interpolate_factor": (1,), "lm_head_bias": (False,),
            "mlp_bias": (False,),
        },
        max_position_embeddings=4096, original_max_position_embeddings=4096, rms_norm_eps=1e-5,
    ),
    "gpt2": _family(
        "gpt2", GPT2, lambda fields: _activation(fields, "activation_function"),
        required="vocab_size n_positions n_embd n_layer n_head",
        optional="n_inner layer_norm_epsilon activation_function tie_word_embeddings",
        fixed={
            "scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,),
            "add_cross_attention": (False,), "is_encoder_decoder": (False,),
        },
        ignored="n_ctx resid_pdrop embd_pdrop attn_pdrop summary_type summary_use_proj summary_activation "
        "summary_proj_to_labels summary_first_dropout reorder_and_upcast_attn gradient_checkpointing",
        layer_norm_epsilon=1e-5, activation_function="gelu_new", tie_word_embeddings=True,
    ),
    "gpt_neox": _family(
        "gpt_neox",
        {
            "norm": "layer", "gated": False, "fused": True, "mlp_biases": True,
            "layout": Layout(
                {
                    "token_embd": "gpt_neox.embed_in", "output_norm": "gpt_neox.final_layer_norm",
                    "output": "embed_out", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
                    "attn_qkv": "attention.query_key_value", "attn_output": "attention.dense",
                    "ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h",
                },
                "gpt_neox.layers", "gptneox", interleaved=True,
            ),
        },
        _neox,
        optional="max_position_embeddings layer_norm_eps hidden_act rope_theta rotary_emb_base rotary_pct "
        "attention_bias tie_word_embeddings use_parallel_residual rope_scaling rope_parameters",
        fixed={}, ignored="hidden_dropout classifier_dropout",
        layer_norm_eps=1e-5, hidden_act="gelu", attention_bias=True, rotary_pct=0.25,
    ),
    "mixtral": _family(
        "mixtral",
        {
            "layout": Layout(
                _LLAMA_NAMES
                | {"ffn_gate_inp": "block_sparse_moe.gate"}
                | {
                    f"ffn_{part}_exps": f"block_sparse_moe.experts.{{}}.{name}"
                    for part, name in (("gate", "w1"), ("up", "w3"), ("down", "w2"))
                },
                permuted=True,
            )
        },
        _moe, also="sliding_window", ignored=_MOE_IGNORED,
        num_key_value_heads=8, max_position_embeddings=131_072, rms_norm_eps=1e-5, rope_theta=1_000_000.0,
        num_local_experts=8, num_experts_per_tok=2,
    ),
    "qwen2_moe": _family(
        "qwen2_moe", {"biases": "qkv", "layout": _layout("qwen2moe", **_MOE_NAMES)}, _moe,
        also=_MOE_FIELDS, fixed={"hidden_act": ("silu",), "qkv_bias": (True,)}, ignored=_MOE_IGNORED,
        max_position_embeddings=32_768, num_experts_per_tok=4, moe_intermediate_size=1408,
        num_local_experts=60, shared_expert_intermediate_size=5632, norm_topk_prob=False, max_window_layers=28,
        use_sliding_window=False, sliding_window=4096, sliding_window_pattern=2,
    ),
    "qwen3_moe": _family(
        "qwen3_moe", {"head_norms": True, "layout": _layout("qwen3moe", **_NORMS, **_MOE_NAMES)}, _moe,
        also=_MOE_FIELDS, ignored=_MOE_IGNORED, num_key_value_heads=4, num_local_experts=128,
        max_position_embeddings=32_768, num_experts_per_tok=8, moe_intermediate_size=768, norm_topk_prob=False,
        use_sliding_window=False, sliding_window=4096,
    ),
}  # fmt: skip
"""The families by `model_type`."""


# From fields to a Config


def _windows(fields: Mapping[str, Any], kinds: Any, layers: int, ignore: Collection[str]) -> tuple[int, ...] | None:
    """Return the window of each layer, by `layer_types` or as older configurations have it."""
    window = fields.get("sliding_window")
    if "layer_types" in ignore:
        kinds = None
    if kinds is not None:
        require(isinstance(kinds, list), f"layer_types is {kinds!r:.80}, not a list of names")
        supported = ("full_attention", "sliding_attention")
        unsupported = sorted({repr(kind)[:80] for kind in kinds if kind not in supported})
        require(
            not unsupported,
            f"layer_types has {', '.join(unsupported[:5])}; supported is {' or '.join(map(repr, supported))}",
        )
        require(len(kinds) == layers, f"layer_types has {len(kinds)} names, but there are {layers} layers")
        is_local = [kind == "sliding_attention" for kind in kinds]
    elif pattern := fields.get("sliding_window_pattern"):
        end = fields.get("max_window_layers") or layers
        is_local = [(number + 1) % pattern != 0 and number < end for number in range(layers)]
    else:
        is_local = [number >= (fields.get("max_window_layers") or 0) for number in range(layers)]
    if not window or fields.get("use_sliding_window", True) is False or not any(is_local):
        return None
    return tuple(window if local else 0 for local in is_local)


_ROPE = {
    "default": ((), ()),
    "linear": (("factor",), ()),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"), ()),
    "yarn": (
        ("factor", "original_max_position_embeddings"),
        ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
    ),
    "longrope": (
        ("short_factor", "long_factor", "original_max_position_embeddings"), ("factor", "attention_factor")
    ),
}  # fmt: skip
"""The ways to scale rotary angles, with their parameters: those that are needed, and others."""


def _rope(fields: Mapping[str, Any], positions: int, rotated: int) -> tuple[float, dict[str, Any] | None]:
    """Return the base of the rotary angles and their scaling. Newer configurations have both in `rope_parameters`."""
    rope = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    require(isinstance(rope, Mapping), f"the scaling of rotary angles is {rope!r:.80}, not an object of fields")
    rope = {name: value for name, value in rope.items() if name != "partial_rotary_factor"}
    theta = rope.pop("rope_theta", fields.get("rope_theta"))
    theta = 10000.0 if theta is None else theta
    old = rope.pop("type", None)
    kind = rope.pop("rope_type", None) or old or "default"
    kind = "longrope" if kind == "su" else kind
    require(kind in [*_ROPE], f"rope_type is {kind!r:.80}; supported is {', '.join(map(repr, _ROPE))}")
    require(type(theta) in (int, float) and 1 < theta < math.inf, f"rope_theta is {theta!r:.80}, not a number above 1")
    names, others = _ROPE[kind]
    if kind in ("yarn", "longrope"):
        rope.setdefault("original_max_position_embeddings", fields.get("original_max_position_embeddings") or positions)
        rope = {name: value for name, value in rope.items() if value is not None}
    require({*names} <= {*rope} <= {*names, *others}, f"rope of type {kind!r} has {sorted(rope)}, not {sorted(names)}")
    numbers = [value for name, value in rope.items() if name not in ("short_factor", "long_factor", "truncate")]
    factors = [rope[name] for name in ("short_factor", "long_factor") if name in rope]
    is_valid = all(isinstance(each, (list, tuple)) and len(each) == rotated // 2 for each in factors)
    require(is_valid, f"short_factor and long_factor must have {rotated // 2} numbers each")
    numbers += [value for each in factors for value in each]
    is_valid = all(type(value) in (int, float) and 0 < value < math.inf for value in numbers)
    require(is_valid, f"rope of type {kind!r} has {rope!r:.200}, not numbers above 0")
    require(rope.get("original_max_position_embeddings", 2) >= 2, "original_max_position_embeddings must be 2 or more")
    require(
        kind != "llama3" or rope["low_freq_factor"] < rope["high_freq_factor"],
        "low_freq_factor must be less than high_freq_factor",
    )
    return float(theta), {"rope_type": kind, **rope} if kind != "default" else None
