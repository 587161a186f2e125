"""GPT-2: learnt position embeddings, LayerNorm before each block, GELU, and a head tied to the embedding."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

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

ACTIVATIONS = {"gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu": "none"}
"""The `approximate` argument of `ops.gelu` by the activation in configurations."""

SCHEMA = Schema(
    ("gpt2",),
    {
        **dict.fromkeys("vocab_size n_positions n_embd n_layer n_head n_inner".split(), int),
        "layer_norm_epsilon": float,
        "activation_function": str,
        "tie_word_embeddings": bool,
    },
    {
        **dict.fromkeys("vocab_size n_positions n_embd n_layer n_head".split(), REQUIRED),
        "n_inner": None,
        "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new",
        "tie_word_embeddings": True,
    },
    {
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
        "is_encoder_decoder": (False,),
    },
    frozenset(
        "n_ctx resid_pdrop embd_pdrop attn_pdrop summary_type summary_use_proj summary_activation "
        "summary_proj_to_labels summary_first_dropout reorder_and_upcast_attn gradient_checkpointing".split()
    ),
)


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of a GPT-2. The defaults are a small model with 3.5 million weights.

    Attributes:
        vocabulary: The number of tokens.
        width: The size of a token's vector.
        inner: The width inside the dense layers.
        layers: The number of layers.
        heads: The number of attention heads.
        positions: The maximum number of tokens of a text.
        epsilon: The epsilon of LayerNorm.
        approximate: The kind of GELU, as in `ops.gelu`.
        tied: The head shares the weights of the embedding.
    """

    vocabulary: int = 1024
    width: int = 256
    inner: int = 1024
    layers: int = 4
    heads: int = 8
    positions: int = 1024
    epsilon: float = 1e-5
    approximate: str = "tanh"
    tied: bool = True

    def __post_init__(self) -> None:
        """Raise `ModelError` for invalid values."""
        _config.require_values(self)
        require(self.width % self.heads == 0, f"width {self.width} is not a multiple of heads {self.heads}")
        kinds = sorted({*ACTIVATIONS.values()})
        require(self.approximate in kinds, f"approximate is {self.approximate!r:.80}, not {' or '.join(kinds)}")

    @staticmethod
    def read(source: Source, ignore: Collection[str] = ()) -> Config:
        """Read a Config from a `config.json`: a dict of its fields, or its path.

        Args:
            ignore: Unknown fields to ignore.

        Raises:
            ModelError: With the names of all fields that are missing, unknown, or have unsupported values.
        """
        fields = _config.read(source, SCHEMA, ignore)
        width, heads, layers = fields["n_embd"], fields["n_head"], fields["n_layer"]
        require(width % heads == 0, f"n_embd {width} is not a multiple of n_head {heads}")
        require(layers <= _config.MAX_LAYERS, f"n_layer is {layers}, but at most {_config.MAX_LAYERS} are supported")
        act = fields["activation_function"]
        require(act in ACTIVATIONS, f"activation_function is {act!r:.80}; supported is {' or '.join(ACTIVATIONS)}")
        return Config(
            vocabulary=fields["vocab_size"],
            width=width,
            inner=fields["n_inner"] or 4 * width,
            layers=layers,
            heads=heads,
            positions=fields["n_positions"],
            epsilon=float(fields["layer_norm_epsilon"]),
            approximate=ACTIVATIONS[act],
            tied=fields["tie_word_embeddings"],
        )


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights by the names in checkpoints. Those of dense layers are [inputs, outputs]."""
    width, inner = config.width, config.inner
    result: dict[str, tuple[int, ...]] = {
        "transformer.wte.weight": (config.vocabulary, width),
        "transformer.wpe.weight": (config.positions, width),
    }
    dense = (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width), ("mlp.c_fc", width, inner))
    for number in range(config.layers):
        name = f"transformer.h.{number}"
        for norm in ("ln_1", "ln_2"):
            result |= {f"{name}.{norm}.weight": (width,), f"{name}.{norm}.bias": (width,)}
        for part, into, out in (*dense, ("mlp.c_proj", inner, width)):
            result |= {f"{name}.{part}.weight": (into, out), f"{name}.{part}.bias": (out,)}
    result |= {"transformer.ln_f.weight": (width,), "transformer.ln_f.bias": (width,)}
    if not config.tied:
        result["lm_head.weight"] = (config.vocabulary, width)
    return result


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

    Arguments, inputs and outputs are those of `llama.build`. Names of weights may lack the prefix `transformer.`.
    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners".
    """
    config = config if isinstance(config, Config) else Config.read(config)
    arrays = arrays_of(
        weights,
        shapes(config),
        seed=seed,
        # files of the model without its head lack the prefix
        rename=lambda name: f"transformer.{name}" if re.match(r"wte\.|wpe\.|h\.\d+\.|ln_f\.", name) else name,
        gguf=named,
        architecture="gpt2",
        tied={"lm_head.weight": "transformer.wte.weight"} if config.tied else None,
        ignored=r"transformer\.h\.\d+\.attn\.(masked_)?bias",  # the causal mask, in older files
    )
    heads = Attention(config.layers, config.heads, config.heads, config.width // config.heads, config.positions)
    return _GPT2Decoder(config, DecoderStep("gpt2", heads, cache, last_tokens), arrays).build(every_token)


class _GPT2Decoder:
    """The layers. Activations are rows of all tokens of all items."""

    def __init__(self, config: Config, step: DecoderStep, arrays: Mapping[str, Array]) -> None:
        self.config = config
        self.step = step
        self.weights = ModelWeights(step.graph, arrays)

    def dense(self, x: Symbol, name: str) -> Symbol:
        return x @ self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def norm(self, x: Symbol, name: str) -> Symbol:
        gamma, beta = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return ops.layer_norm(x, gamma, beta, epsilon=self.config.epsilon)

    def build(self, every_token: bool) -> Graph:
        graph, embedding = self.step.graph, self.weights["transformer.wte.weight"]
        with graph.layer("embeddings"):
            positions = ops.gather(self.weights["transformer.wpe.weight"], self.step.positions())
            rows = self.step.rows(self.step.embed_tokens(embedding) + positions)
        for number in range(self.config.layers):
            with graph.layer(f"layers/{number}"):
                rows = self.layer(rows, number, f"transformer.h.{number}")
        rows = self.norm(rows, "transformer.ln_f")
        return self.step.output(rows, embedding if self.config.tied else self.weights["lm_head.weight"], every_token)

    def layer(self, x: Symbol, number: int, name: str) -> Symbol:
        h = self.dense(self.norm(x, f"{name}.ln_1"), f"{name}.attn.c_attn")
        query, key, value = ops.split(h, [self.config.width] * 3, axis=1)
        x = x + self.dense(self.step.attend(number, query, key, value), f"{name}.attn.c_proj")
        wide = ops.gelu(self.dense(self.norm(x, f"{name}.ln_2"), f"{name}.mlp.c_fc"), self.config.approximate)
        return x + self.dense(wide, f"{name}.mlp.c_proj")


# GGUF has other names, and dense layers as [outputs, inputs].

_GGUF = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
    "attn_norm": "ln_1",
    "ffn_norm": "ln_2",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}


def named(tensors: Tensors[Array]) -> dict[str, Array]:
    """Return the tensors of a GGUF file by the names of the model, with dense layers as [inputs, outputs]."""

    def convert(block: str | None, stem: str, array: Array) -> Array:
        return array.T.copy() if block is not None and array.ndim == 2 else array

    return from_gguf(tensors, _GGUF, "transformer.h", convert)
