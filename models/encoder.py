"""Text encoders: BERT, RoBERTa, DistilBERT, MPNet, ModernBERT and Nomic BERT, and the vectors of texts."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore import ops
from graphcore.arrays.casting import Array
from graphcore.checkpoints import load_tensors
from graphcore.errors import DTypeError, FeedError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.models import _config
from graphcore.models._config import BaseConfig, ModelWeights, Source, WeightsSource, arrays_of, from_file, require
from graphcore.models.decoder import rotations
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from graphcore.runtime import Model

CHUNK = 256
"""Number of texts to tokenise at once, and to group into batches by length."""

PADDING = 0.5
"""Maximum fraction of padding in a batch. Only attention computes padding."""

POOLINGS = ("mean", "cls", "max", "lasttoken")
"""The vector of a text: the mean or the maximum over its tokens, or the vector of its first or last token."""

FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {"types": 2},
    **{kind: {"types": 2, "first": 2} for kind in ("roberta", "xlm-roberta", "camembert")},
    "distilbert": {"types": None},
    "mpnet": {"types": None, "first": 2, "buckets": 32},
    "modernbert": {
        "types": None, "epsilon": 1e-5, "biases": "", "gated": True, "pre_norm": True,
        "theta": 160_000.0, "local_theta": 10_000.0, "window": 64, "every": 3,
    },
    "nomic_bert": {"types": 2, "activation": "silu", "biases": "n", "gated": True, "theta": 1000.0},
}  # fmt: skip
"""The values of Config by which a family differs from the others, by `model_type`."""

_GELUS = {"gelu": "none", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """The configuration of an encoder. The defaults are all-MiniLM-L6-v2.

    Attributes:
        layers: The number of layers.
        heads: The number of attention heads.
        epsilon: The epsilon of LayerNorm.
        vocabulary: The number of tokens.
        width: The size of a token's vector.
        inner: The width inside the dense layers.
        positions: The number of positions.
        first: The position of the first token; None for 0.
        types: The number of token types; None for a model without them.
        activation: "gelu", "gelu_new", "gelu_pytorch_tanh", "relu" or "silu".
        biases: The parts that have biases, a subset of "anm": attention, norms and the MLP.
        gated: The MLP multiplies its activations by a second dense layer.
        pre_norm: Norms stand before attention and the MLP, not after the sums.
        buckets: The number of distances of tokens with a bias in attention; None for no bias.
        theta: The base of rotary angles; 0 for position embeddings.
        local_theta: The base of the rotary angles of layers with local attention.
        window: The maximum distance of tokens in local attention; None if all layers are global.
        every: Each layer whose number is a multiple of this is global.
    """

    layers: int = from_file("num_hidden_layers n_layers", 6)
    heads: int = from_file("num_attention_heads n_heads", 12)
    epsilon: float = from_file("layer_norm_eps norm_eps", 1e-12, None)
    vocabulary: int = from_file("vocab_size", 30522)
    width: int = from_file("hidden_size dim", 384)
    inner: int = from_file("intermediate_size hidden_dim", 1536)
    positions: int = from_file("max_position_embeddings", 512)
    first: int | None = None
    types: int | None = from_file("type_vocab_size", 2, None)
    activation: str = from_file("hidden_act activation hidden_activation", "gelu", None)
    biases: str = "anm"
    gated: bool = False
    pre_norm: bool = False
    buckets: int | None = from_file("relative_attention_num_buckets", None, None)
    theta: float = from_file("global_rope_theta", 0.0, None)
    local_theta: float = from_file("local_rope_theta", 0.0, None)
    window: int | None = from_file("local_attention", None, None)
    every: int = from_file("global_attn_every_n_layers", 1, None)

    def __post_init__(self) -> None:
        """Raise `ModelError` for invalid values."""
        _config.require_values(self)
        kinds = [*_GELUS, "relu", "silu"]
        require(self.activation in kinds, f"activation is {self.activation!r:.80}; supported is {', '.join(kinds)}")
        require({*self.biases} <= {*"anm"}, f"biases is {self.biases!r:.80}, not a subset of 'anm'")
        require(self.max_tokens > 0, f"{self.positions} positions end before the first one, {self.first}")
        require(self.buckets in (None, *range(8, 512, 4)), f"buckets is {self.buckets}, not a multiple of 4 below 512")
        require(not self.theta or self.positions <= 1 << 20, f"{self.positions} positions have too many rotary angles")

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens of a text."""
        return self.positions - (self.first or 0)

    @classmethod
    def _values(cls, content: dict[str, Any], ignore: Collection[str]) -> dict[str, Any]:
        content = _flat({_ALIASES.get(name, name): value for name, value in content.items()})
        values = dict(FAMILIES.get(str(content.get("model_type")), FAMILIES["bert"]))
        absent = {name for name, attribute in _OF_SOME_FAMILIES.items() if not values.get(attribute)}
        supported = {name: default for name, default in SCHEMA.fields.items() if name not in absent}
        fields = _config.read(content, dataclasses.replace(SCHEMA, fields=supported), ignore)
        if "biases" in values:
            values["biases"] += "".join(name[0] for name, value in fields.items() if value is True)
        if "first" in values and content.get("pad_token_id") is not None:
            padding = content["pad_token_id"]
            require(type(padding) is int and padding >= 0, f"pad_token_id is {padding!r:.80}, not 0 or above")
            values["first"] = padding + 1
        window = {} if fields.get("local_attention") is None else {"window": fields["local_attention"] // 2}
        return values | _config.values_of(cls, fields) | window


_BIASES = ("attention_bias", "norm_bias", "mlp_bias")
_OF_SOME_FAMILIES = {
    "type_vocab_size": "types", "relative_attention_num_buckets": "buckets", "global_rope_theta": "theta",
    "local_rope_theta": "local_theta", "global_attn_every_n_layers": "every",
    **dict.fromkeys(("local_attention", *_BIASES), "window"),
}  # fmt: skip
"""Fields of some families, and the attribute of Config that has a value in these families."""

_ALIASES = {alias: entry.metadata["names"][0] for alias, entry in _config.fields_of(Config).items()}
SCHEMA = _config.schema_of(
    Config,
    FAMILIES,
    {
        "position_embedding_type": ("absolute",),
        **dict.fromkeys(("is_decoder", "add_cross_attention", "is_encoder_decoder"), (False,)),
    },
    "attention_probs_dropout_prob classifier_activation classifier_bias classifier_dropout classifier_pooling "
    "cls_token_id decoder_bias deterministic_flash_attn directionality dropout embedding_dropout "
    "gradient_checkpointing head_dim hidden_dropout_prob initializer_cutoff_factor layer_types mlp_dropout "
    "output_past pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type "
    "qa_dropout reference_compile repad_logits_with_grad sep_token_id seq_classif_dropout sinusoidal_pos_embds "
    "sparse_pred_ignore_index sparse_prediction tie_weights_ tie_word_embeddings",
    **dict.fromkeys(_BIASES, bool),
)
"""The fields of the configurations of all families."""


def _flat(content: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with the bases of rotary angles and the kinds of layers as older ones have them."""
    rope, kinds = content.pop("rope_parameters", None) or {}, content.get("layer_types") or ["full_attention"]
    require(isinstance(rope, Mapping), f"rope_parameters is {rope!r:.80}, not an object of fields")
    places = {"global_rope_theta": ("full_attention", rope), "local_rope_theta": ("sliding_attention", {})}
    for name, part in ((name, rope.get(*place)) for name, place in places.items()):
        is_plain = isinstance(part, Mapping) and part.get("rope_type", "default") == "default"
        require(is_plain, f"rope_parameters has {part!r:.80}; supported is the rope_type 'default'")
        content |= {name: part["rope_theta"]} if "rope_theta" in part else {}
    require(isinstance(kinds, list), f"layer_types is {kinds!r:.80}, not a list of names")
    every = [*kinds, "full_attention"].index("full_attention", 1)
    wanted = ["sliding_attention" if number % every else "full_attention" for number in range(len(kinds))]
    require(kinds == wanted, f"layer_types is {kinds!r:.80}; supported is full_attention in each n-th layer")
    return content | ({"global_attn_every_n_layers": every} if content.get("layer_types") else {})


# Weights, by the names in checkpoints of BERT.


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights by the names in checkpoints of BERT."""
    width, inner = config.width, config.inner
    tables = {
        "embeddings.word_embeddings.weight": (config.vocabulary, width),
        "embeddings.position_embeddings.weight": (None if config.theta else config.positions, width),
        "embeddings.token_type_embeddings.weight": (config.types, width),
        "relative_attention_bias.weight": (config.buckets, config.heads),
    }
    result: dict[str, tuple[int, ...]] = {name: (size, w) for name, (size, w) in tables.items() if size is not None}
    norms = ["embeddings.LayerNorm"]
    for name in (f"encoder.layer.{number}" for number in range(config.layers)):
        norms += [f"{name}.attention.output.LayerNorm", f"{name}.output.LayerNorm"]
        for part, out, into in (
            *((f"attention.self.{part}", width, width) for part in ("query", "key", "value")),
            ("attention.output.dense", width, width),
            ("intermediate.dense", inner, width),
            *([("intermediate.gate", inner, width)] if config.gated else []),
            ("output.dense", width, inner),
        ):
            result[f"{name}.{part}.weight"] = (out, into)
            if ("a" if part.startswith("a") else "m") in config.biases:
                result[f"{name}.{part}.bias"] = (out,)
    if config.pre_norm:  # the first layer has the norm of the embeddings
        norms = [norm for norm in norms if norm != "encoder.layer.0.attention.output.LayerNorm"] + ["final_norm"]
    kinds = ("weight", "bias") if "n" in config.biases else ("weight",)
    return result | {f"{name}.{kind}": (width,) for name in norms for kind in kinds}


_NAME = re.compile(
    r"(?:(?:bert|roberta|distilbert|mpnet|model|nomic_bert)\.)?(?:(?:encoder|transformer)\.)?"
    r"(?:layers?\.(\d+)\.)?(.+)\.(weight|bias|gamma|beta)"
)
_IGNORED = (
    r"(?:.*\.)?(?:position_ids|inv_freq)"
    r"|(?:pooler|cls|lm_head|head|decoder|classifier|pre_classifier|qa_outputs|vocab_\w+)\..*"
)
_PARTS = {
    "embeddings.word_embeddings": "embeddings.tok_embeddings",
    "embeddings.LayerNorm": "embeddings.norm emb_ln",
    "attention.self.query": "attention.q_lin attention.attn.q self_attn.q_proj",
    "attention.self.key": "attention.k_lin attention.attn.k self_attn.k_proj",
    "attention.self.value": "attention.v_lin attention.attn.v self_attn.v_proj",
    "attention.output.dense": "attention.out_lin attention.attn.o self_attn.o_proj attn.Wo attn.out_proj",
    "attention.output.LayerNorm": "sa_layer_norm attention.LayerNorm attn_norm norm1 post_attention_layernorm",
    "intermediate.dense": "ffn.lin1 mlp.fc12 mlp.gate_proj",
    "intermediate.gate": "mlp.fc11 mlp.up_proj",
    "output.dense": "ffn.lin2 mlp.Wo mlp.fc2 mlp.down_proj",
    "output.LayerNorm": "output_layer_norm mlp_norm norm2 post_mlp_layernorm",
}
"""Parts of a model in checkpoints of BERT, and in those of other families."""

_BERT_PARTS = {name: (part,) for part, names in _PARTS.items() for name in names.split()} | {
    "attn.Wqkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "mlp.Wi": ("intermediate.dense", "intermediate.gate"),
}
"""The parts in checkpoints of BERT by their names in others. Some weights are several, joined."""


def _named(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return weights by the names of BERT, joined ones as their parts. A name that another tensor has is unchanged."""
    result: dict[str, Array] = {}
    for name in tensors:
        array = tensors[name]
        match = _NAME.fullmatch(name) if isinstance(name, str) else None
        number, part, kind = match.groups() if match else (None, str(name), "")
        parts = _BERT_PARTS.get(part, (part,))
        is_divisible = isinstance(array, np.ndarray) and array.ndim > 0 and len(array) % len(parts) == 0
        pieces = np.split(array, len(parts)) if len(parts) > 1 and is_divisible else [array] * len(parts)
        for part, piece in zip(parts, pieces, strict=True):
            new = f"encoder.layer.{number}.{part}" if number else part
            new += f".{'weight' if kind == 'gamma' else 'bias' if kind == 'beta' else kind}" if kind else ""
            result[name if new in result or (new != name and new in tensors) else new] = piece
    return result


def build(
    config: Config | Source, weights: WeightsSource = None, *, pooling: str = "mean", normalize: bool = False,
    packed: bool = False, seed: int = 0, name: str = "encoder",
) -> Graph:  # fmt: skip
    """Build an encoder and its pooling as a Graph.

    The inputs are `input_ids` int64[batch, sequence], padded on the right, and `attention_mask` int64[batch, sequence],
    1 for tokens and 0 for padding. The output is `embedding` float32[batch, width].

    Args:
        config: A `Config`, or an argument of `Config.read`.
        weights: Arrays by the names of the checkpoint, or the path of a safetensors file or of the index of several;
            float32, float16 or bfloat16, which is the compute dtype. None for random weights.
        pooling: "mean", "cls", "max" or "lasttoken".
        normalize: Divide each vector by its length.
        packed: Dense layers compute only tokens, not padding. Useful for texts of different lengths in a batch.
        seed: The seed of random weights.
        name: The name of the graph.

    Raises:
        ModelError: Weights are missing, unexpected, or do not match.

    Source: Devlin et al. 2018, arXiv:1810.04805; Liu et al. 2019, arXiv:1907.11692; Sanh et al. 2019, arXiv:1910.01108;
    Song et al. 2020, arXiv:2004.09297; Warner et al. 2024, arXiv:2412.13663; Nussbaum et al. 2024, arXiv:2402.01613.
    """
    config = config if isinstance(config, Config) else Config.read(config)
    require(pooling in POOLINGS, f"pooling is {pooling!r:.80}; supported is {', '.join(POOLINGS)}")
    tensors = load_tensors(weights) if isinstance(weights, (str, os.PathLike)) else weights
    named = _named(tensors) if isinstance(tensors, Mapping) else tensors
    arrays = arrays_of(named, shapes(config), seed=seed, ignored=_IGNORED)
    width, heads = config.width, config.heads
    require(width % heads == 0, f"{heads} heads do not divide the {width} features of a token")
    require(not config.theta or width // heads % 2 == 0, f"heads have {width // heads} features, not an even number")
    tokens = TensorType(DType.int64, ["batch", "sequence"])
    graph = Graph(name, {"input_ids": tokens, "attention_mask": tokens})
    ids, mask = graph.inputs
    hidden = _Encoder(graph, arrays, config, packed).encode(ids, mask)
    with graph.layer("pooling"):
        graph.output(embedding=_pool(hidden, mask, pooling, normalize))
    return graph


class _Encoder:
    """The layers. Activations are rows of all tokens of all texts, so that dense layers are matrix products."""

    def __init__(self, graph: Graph, weights: dict[str, Array], config: Config, is_packed: bool) -> None:
        self.graph = graph
        self.weights = ModelWeights(graph, weights, None)
        self.config = config
        self.is_packed = is_packed
        self.angles: dict[float, tuple[Symbol, Symbol]] = {}
        size = config.width // config.heads
        for theta in (config.theta, config.local_theta) if config.theta else ():
            if theta:
                cos, sin = rotations(theta ** (-np.arange(0, size, 2) / size), config.positions)
                self.angles[theta] = graph.constant(cos), graph.constant(sin)

    def norm(self, x: Symbol, name: str) -> Symbol:
        is_there = f"{name}.weight" in self.weights.arrays
        return self.weights.layer_norm(x, name, self.config.epsilon) if is_there else x

    def encode(self, ids: Symbol, mask: Symbol) -> Symbol:
        """Return a vector for each token: float32[batch, sequence, width]."""
        self.lengths = ops.sum(mask, axis=1)
        with self.graph.layer("embeddings"):
            x = self.embed(ids)
        self.shape = batch, sequence, width = x.shape
        rows = x.reshape(batch * sequence, width)
        self.places = None
        if self.is_packed:
            with self.graph.layer("packing"):
                flat = mask.reshape(batch * sequence)
                self.tokens = ops.nonzero(flat).reshape(-1)
                rows = ops.gather(rows, self.tokens)
                # The row of each token. Padding gets the row of a token before it, which attention ignores.
                self.places = ops.maximum(ops.cumsum(flat, axis=0) - 1, 0)
        with self.graph.layer("positions"):
            if self.angles:
                self.turns = ops.maximum(ops.cumsum(mask, axis=1) - 1, 0).reshape(batch * sequence, 1)
                if self.is_packed:
                    self.turns = ops.gather(self.turns, self.tokens)
            self.masks = self.attention_masks(sequence)
        for number in range(self.config.layers):
            with self.graph.layer(f"encoder/{number}"):
                rows = self.layer(rows, f"encoder.layer.{number}", number % self.config.every != 0)
        rows = self.norm(rows, "final_norm")
        if self.places is not None:
            rows = ops.gather(rows, self.places)
        return rows.reshape(batch, sequence, width)

    def embed(self, ids: Symbol) -> Symbol:
        x = ops.gather(self.weights["embeddings.word_embeddings.weight"], ids)
        name = "embeddings.position_embeddings.weight"
        if not self.config.theta:
            places = self.graph.weight(name, self.weights.arrays[name][self.config.first or 0 :])[: ids.shape[1]]
            # A text has at most as many tokens as the model has positions.
            x = x + places.rebind(ids.shape[1], places.shape[1])
        if self.config.types is not None:
            x = x + self.weights["embeddings.token_type_embeddings.weight"][0]
        return self.norm(x, "embeddings.LayerNorm")

    def attention_masks(self, sequence: Any) -> tuple[Symbol | None, Symbol | None]:
        """Return the masks of layers with global and with local attention, beside that of padding."""
        window, buckets = self.config.window, self.config.buckets
        if window is None and buckets is None:
            return None, None
        place = ops.range(sequence)
        distance = place.unsqueeze(0) - place.unsqueeze(1)
        bias = None
        if buckets is not None:
            name = "relative_attention_bias.weight"
            table = self.graph.weight(name, np.ascontiguousarray(self.weights.arrays[name][_buckets(buckets)].T))
            bias = ops.gather(table, ops.clip(distance, -_FARTHEST, _FARTHEST) + _FARTHEST, axis=1).unsqueeze(0)
        return bias, bias if window is None else ops.abs(distance) <= window

    def layer(self, x: Symbol, name: str, is_local: bool) -> Symbol:
        config, heads = self.config, self.config.heads
        attention_norm, norm = f"{name}.attention.output.LayerNorm", f"{name}.output.LayerNorm"
        h = self.norm(x, attention_norm) if config.pre_norm else x
        rows = [self.weights.dense(h, f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
        if self.angles:
            angles = self.angles[(is_local and config.local_theta) or config.theta]
            # Each token is a batch: the kernel takes no sequences longer than the table of angles.
            turned = (ops.rotary_embedding(r.unsqueeze(1), *angles, self.turns, num_heads=heads) for r in rows[:2])
            rows = [*(r.reshape(*x.shape) for r in turned), rows[2]]
        if self.places is not None:
            rows = [ops.gather(r, self.places) for r in rows]
        query, key, value = (r.reshape(*self.shape) for r in rows)
        mixed = ops.scaled_dot_product_attention(
            query, key, value, self.masks[is_local],
            nonpad_kv_seqlen=self.lengths, q_num_heads=heads, kv_num_heads=heads,
        )  # fmt: skip
        if self.places is None:
            mixed = mixed.reshape(*x.shape)
        else:
            mixed = ops.gather(mixed.reshape(self.shape[0] * self.shape[1], self.shape[2]), self.tokens)
        x = self.weights.dense(mixed, f"{name}.attention.output.dense") + x
        h = self.norm(x, norm if config.pre_norm else attention_norm)
        wide = self.weights.dense(h, f"{name}.intermediate.dense")
        gelu = _GELUS.get(config.activation)
        wide = ops.gelu(wide, gelu) if gelu else ops.silu(wide) if config.activation == "silu" else ops.relu(wide)
        if config.gated:
            wide = wide * self.weights.dense(h, f"{name}.intermediate.gate")
        wide = self.weights.dense(wide, f"{name}.output.dense")
        return wide + x if config.pre_norm else self.norm(wide + h, norm)


_FARTHEST = 128
"""The distance from which on all tokens have the bias of one bucket."""


def _buckets(count: int) -> Array:
    """Return the bucket of each distance from -128 to 128, in float32 as published: half are of keys after the query.

    Source: Raffel et al. 2019, arXiv:1910.10683.
    """
    half, exact = count // 2, count // 4
    distance = np.arange(-_FARTHEST, _FARTHEST + 1)
    near = np.abs(distance)
    logarithms = np.log(np.maximum(near, 1).astype(np.float32) / np.float32(exact))
    far = exact + (logarithms / np.float32(np.log(_FARTHEST / exact)) * np.float32(half - exact)).astype(np.int64)
    return (distance > 0) * half + np.where(near < exact, near, np.minimum(far, half - 1))


def _pool(hidden: Symbol, mask: Symbol, pooling: str, normalize: bool) -> Symbol:
    """Return the vector of each text, of length 1 if normalised."""
    if pooling == "cls":
        pooled = hidden[:, 0]
    elif pooling == "lasttoken":
        pooled = ops.gather_nd(hidden, (ops.sum(mask, axis=1) - 1).unsqueeze(-1), batch_dims=1)
    elif pooling == "max":
        pooled = ops.max(ops.where(mask.unsqueeze(-1) > 0, hidden, -np.inf), axis=1)
    else:
        token_mask = mask.cast(DType.float32).unsqueeze(-1)
        pooled = ops.sum(hidden * token_mask, axis=1) / ops.sum(token_mask, axis=1)
    pooled = pooled.cast(DType.float32)
    return pooled / ops.sqrt(ops.sum(pooled * pooled, axis=1, keepdims=True)) if normalize else pooled


@dataclass(frozen=True, slots=True)
class TextEncoder:
    """An encoder with its tokenizer: the vectors of texts.

    Attributes:
        name: The name of the model.
        tokenizer: The `tokenizers.Tokenizer`, which truncates texts and does not pad them.
        model: The loaded graph of `build`.
        normalize: `embed` divides each vector by its length.
        prompts: Texts to put before others, by name.
        prompt: The name of the prompt that `embed` uses by default.
    """

    name: str
    tokenizer: Tokenizer
    model: Model
    normalize: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    prompt: str | None = None

    def embed(
        self, texts: Sequence[str], *, prompt: str | None = None, normalize: bool | None = None,
        batch: int | None = None,
    ) -> Array:  # fmt: skip
        """Return the vectors of texts: float32[len(texts), width].

        Args:
            texts: Strings; what exceeds the maximum number of tokens is dropped.
            prompt: The name of the prompt to put before each text.
            normalize: Divide each vector by its length; by default as the checkpoint says.
            batch: The number of texts of a run; None for an automatic choice.

        Raises:
            DTypeError: For anything but a sequence of strings.
            FeedError: The model has no such prompt.
        """
        is_list = isinstance(texts, Sequence) and not isinstance(texts, (str, bytes))
        if not is_list or not all(isinstance(text, str) for text in texts):
            raise DTypeError(
                f"embed: sentences must be a list of strings, got {texts!r:.80}", help="give ['a sentence', ...]"
            )
        prompt = self.prompt if prompt is None else prompt
        if prompt is not None and prompt not in self.prompts:
            names = ", ".join(map(repr, self.prompts)) or "none"
            raise FeedError(f"embed: {self.name} has no prompt {prompt!r:.80}", help=f"its prompts are: {names}")
        before = "" if prompt is None else self.prompts[prompt]
        # Texts of similar length are neighbours, for little padding; the longest come first.
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        output: Any = self.model.outputs["embedding"]
        vectors = np.empty((len(order), output.shape[1]), np.float32)
        rows = self._rows([before + texts[i] for i in order])
        results = self.model.map(rows, batch=batch, pad=0, padding=PADDING, window=CHUNK)
        for i, (vector,) in zip(order, results, strict=True):
            vectors[i] = vector
        if self.normalize if normalize is None else normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    def _rows(self, texts: Sequence[str]) -> Iterator[tuple[Array, Array]]:
        """Yield the tokens and the mask of each text. The next ones are computed while the model runs."""
        parts = [texts[start : start + CHUNK] for start in range(0, len(texts), CHUNK)]
        with ThreadPoolExecutor(1, "graphcore ahead") as pool:
            encoded = self.tokenizer.encode_batch_fast(parts[0]) if parts else ()
            for following in [*parts[1:], ()]:
                result = pool.submit(self.tokenizer.encode_batch_fast, following) if following else None
                for text in encoded:
                    ids = np.array(text.ids, np.int64)
                    yield ids, np.ones_like(ids)
                encoded = result.result() if result else ()
