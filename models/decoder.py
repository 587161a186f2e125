"""The decoder of all families: layers of attention and dense layers or experts, built from a Config."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from graphcore import ops
from graphcore.arrays.casting import Array
from graphcore.checkpoints import Tensors
from graphcore.errors import GraphError, ModelError
from graphcore.ir.buffers import Buffer
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol, present
from graphcore.models._config import ModelWeights, Source, WeightsSource, arrays_of, renamed
from graphcore.models.families import Config
from graphcore.ops import microsoft
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

DEFAULT_CACHE = 1024
"""The default number of tokens of a cache."""

_INT8 = {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL", "kv_cache_bit_width": 8}
"""Attributes of attention over int8 caches."""


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights by the names in checkpoints."""
    width, layout = config.width, config.layout
    queries, keys = config.heads * config.size, config.kv_heads * config.size
    result: dict[str, tuple[int, ...]] = {}

    def add(name: str, shape: tuple[int, ...], has_bias: bool = False) -> None:
        result[f"{name}.weight"] = shape[::-1] if layout.transposed and f"{layout.layers}." in name else shape
        if has_bias:
            result[f"{name}.bias"] = shape[:1]

    def dense(prefix: str, inner: int, suffix: str = "") -> None:
        if config.gated and not config.fused:
            add(name(prefix, f"ffn_gate{suffix}"), (inner, width), config.mlp_biases)
        rows = 2 * inner if config.gated and config.fused else inner
        add(name(prefix, f"ffn_up{suffix}"), (rows, width), config.mlp_biases)
        add(name(prefix, f"ffn_down{suffix}"), (width, inner), config.mlp_biases)

    def name(prefix: str, part: str) -> str:
        if part not in layout.names:
            raise ModelError(f"Config: the layout has no weight {part!r}", help="keep the fused= of the architecture")
        return prefix + layout.names[part]

    is_layer_norm = config.norm == "layer"
    add(name("", "token_embd"), (config.vocabulary, width))
    if config.learnt_positions:
        add(name("", "position_embd"), (config.positions, width))
    for number in range(config.layers):
        prefix = f"{layout.layers}.{number}."
        add(name(prefix, "attn_norm"), (width,), is_layer_norm)
        rows = {"q": queries, "k": keys, "v": keys}
        for part, out in ({"qkv": sum(rows.values())} if config.fused else rows).items():
            add(name(prefix, f"attn_{part}"), (out, width), part[0] in config.biases)
        if config.head_norms:
            add(name(prefix, "attn_q_norm"), (config.size,))
            add(name(prefix, "attn_k_norm"), (config.size,))
        add(name(prefix, "attn_output"), (width, queries), "o" in config.biases)
        add(name(prefix, "ffn_norm"), (width,), is_layer_norm)
        if config.post_norms:
            add(name(prefix, "post_attention_norm"), (width,))
            add(name(prefix, "post_ffw_norm"), (width,))
        if config.experts is None or number in config.dense_layers:
            dense(prefix, config.inner)
            continue
        add(name(prefix, "ffn_gate_inp"), (config.experts, width))
        for expert in range(config.experts):
            for part, shape in _expert_shapes(config).items():
                add(name(prefix, part).format(expert), shape)
        if config.shared_inner:
            dense(prefix, config.shared_inner, "_shexp")
            add(name(prefix, "ffn_gate_inp_shexp"), (1, width))
    add(name("", "output_norm"), (width,), is_layer_norm)
    if not config.tied:
        add(name("", "output"), (config.vocabulary, width))
    return result


def _expert_shapes(config: Config) -> dict[str, tuple[int, int]]:
    wide = (config.expert_inner, config.width)
    return {"ffn_gate_exps": wide, "ffn_up_exps": wide, "ffn_down_exps": wide[::-1]}


def angles(config: Config, positions: int, *, is_local: bool = False) -> tuple[Array, Array]:
    """Return cosine and sine of the rotation of feature pairs by position: float32[positions, rotated / 2].

    Args:
        is_local: Of layers with a window, where these have a base of their own.

    Source: Su et al. 2021, arXiv:2104.09864. "linear" divides positions by a factor (Chen et al. 2023,
    arXiv:2306.15595). "llama3" divides low frequencies by a factor and keeps high ones, with a ramp between (model card
    of Llama 3.1). "yarn" has the ramp by the number of turns, and scales attention (Peng et al. 2023,
    arXiv:2309.00071). "longrope" divides each frequency by its factor: the long ones for caches of more positions than
    the model was first trained for (Ding et al. 2024, arXiv:2402.13753).
    """
    theta, attention = config.theta, 1.0
    scaling: Mapping[str, Any] = config.scaling or {}
    if is_local and config.local_theta is not None:
        theta, scaling = config.local_theta, {}
    size = config.rotated
    frequencies = theta ** (-np.arange(0, size, 2, dtype=np.float64) / size)
    kind: Any
    factor: Any
    original: Any
    kind, factor, original = (scaling.get(n) for n in ("rope_type", "factor", "original_max_position_embeddings"))
    if kind == "linear":
        frequencies = frequencies / factor
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        turns = original * frequencies / (2 * math.pi)
        blend = np.clip((turns - low) / (high - low), 0, 1)
        frequencies = frequencies * (blend + (1 - blend) / factor)
    if kind == "yarn":
        low, high = (
            size * math.log(original / (scaling.get(name, turns) * 2 * math.pi)) / (2 * math.log(theta))
            for name, turns in (("beta_fast", 32), ("beta_slow", 1))
        )
        if scaling.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, size - 1)
        high = high + 0.001 if low == high else high
        blend = 1 - np.clip((np.arange(size // 2) - low) / (high - low), 0, 1)
        frequencies = frequencies * (blend + (1 - blend) / factor)
        if factor > 1:
            scales = [0.1 * scaling.get(name, 0) * math.log(factor) + 1 for name in ("mscale", "mscale_all_dim")]
            has_scales = "mscale" in scaling and "mscale_all_dim" in scaling
            attention = scales[0] / scales[1] if has_scales else 0.1 * math.log(factor) + 1
    if kind == "longrope":
        factor = factor or config.positions / original
        frequencies = frequencies / np.array(scaling["long_factor" if positions > original else "short_factor"])
        attention = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    attention = scaling.get("attention_factor", attention)
    return rotations(frequencies, positions, attention)


def rotations(frequencies: Array, positions: int, scale: float = 1.0) -> tuple[Array, Array]:
    """Return cosine and sine of the angles of all positions, times a scale. frequencies: the angles of position 1."""
    angles = np.outer(np.arange(positions), frequencies)
    return (np.cos(angles) * scale).astype(np.float32), (np.sin(angles) * scale).astype(np.float32)


def build(
    config: Config | Source,
    weights: WeightsSource = None,
    *,
    cache: int | None = None,
    every_token: bool = False,
    last_tokens: bool = False,
    adapters: Collection[str] = (),
    seed: int = 0,
    cache_scales: Mapping[str, Array] | None = None,
) -> Graph:
    """Build a decoder as a Graph, for `models.generate` or any onnxruntime session.

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
        adapters: The ends of names of dense layers that take a LoRA adapter, such as ["q_proj", "v_proj"]: optional
            inputs for `model.adapter(...)`.
        seed: The seed of random weights.
        cache_scales: The result of `models.cache_scales`, for int8 buffers: each key and value is rounded to the
            nearest of 256 steps, and nothing else is. None for float32.

    Raises:
        ModelError: Weights or scales are missing, unexpected, or do not match, or no layer is named so.
    """
    config = config if isinstance(config, Config) else Config.read(config)
    layout, by_name = config.layout, shapes(config)
    base = layout.layers.partition(".")[0]
    arrays = arrays_of(
        weights,
        by_name,
        seed=seed,
        # files of the model without its head lack the prefix
        rename=lambda name: f"{base}.{name}" if f"{base}.{name}" in by_name else name,
        gguf=lambda tensors: named(tensors, config),
        architecture=layout.architecture,
        tied={f"{layout.names['output']}.weight": f"{layout.names['token_embd']}.weight"} if config.tied else None,
        ignored=r".*\.(rotary_emb\.inv_freq|(attn|attention)\.(masked_)?bias)"  # constants, in older files
        + (r"|rope_(freqs|factors_(long|short))\.weight" if config.scaling else ""),
    )
    low_rank = _adapted_layers(by_name, adapters, layout.transposed)
    return _Decoder(config, arrays, cache, last_tokens, low_rank, cache_scales).build(every_token)


def _adapted_layers(
    shapes: Mapping[str, tuple[int, ...]], ends: Collection[str], is_transposed: bool
) -> dict[str, tuple[int, ...]]:
    """Return the numbers of inputs and outputs of the dense layers whose names end so. Raises `ModelError` if none do.

    shapes: of weights by name, [outputs, inputs]; the other way if `is_transposed`.
    """
    dense = {
        name.removesuffix(".weight"): shape if is_transposed else shape[::-1]
        for name, shape in shapes.items()
        if len(shape) == 2
        and re.search(r"\.\d+\.", name)
        and ".experts." not in name  # no embeddings and stacked weights
    }
    unknown = [end for end in ends if not any(name.endswith(f".{end}") for name in dense)]
    if unknown or isinstance(ends, str):
        names = sorted({name.rpartition(".")[2] for name in dense})
        raise ModelError(f"adapters: no layer's name ends with {ends!r:.80}", help=f"the ends are {', '.join(names)}")
    return {name: shape for name, shape in dense.items() if name.endswith(tuple(f".{end}" for end in ends))}


class _Decoder:
    """A call of the layers, on the tokens after those in the cache. Activations are rows of all tokens of all items.

    The cache of a layer is two buffers, such as `keys0` and `values0`, of [batch, kv_heads, cache, size]. `lengths` has
    the number of tokens of each item after the call; rows of the cache beyond are undefined. A call is the first one,
    on prompts padded on the right, if the longest item has as many tokens as the call.
    """

    def __init__(
        self,
        config: Config,
        arrays: Mapping[str, Array],
        cache: int | None,
        has_last_tokens: bool,
        low_rank: Mapping[str, tuple[int, ...]],
        scales: Mapping[str, Array] | None,
    ) -> None:
        """Create the graph. low_rank: the numbers of inputs and outputs of dense layers that take a LoRA adapter.
        scales: of int8 caches."""
        name, positions = config.layout.architecture, config.positions
        cache = min(DEFAULT_CACHE, positions) if cache is None else cache
        if type(cache) is not int or cache < 1:
            raise GraphError(
                f"{name}: cache must be an integer above 0, got {cache!r:.80}",
                help="give a number of tokens: cache=1024",
            )
        if cache > positions:
            raise ModelError(
                f"{name}: cache={cache} tokens, but the model has {positions} positions",
                help=f"give cache={positions} or less",
            )
        names = [f"{kind}{number}" for number in range(config.layers) for kind in ("keys", "values")]
        steps = dict.fromkeys(names, (config.kv_heads, 1, config.size))
        self.scales = None if scales is None else arrays_of(scales, steps)
        dtype = DType.float32 if scales is None else DType.int8
        buffer = Buffer(dtype, ["batch", config.kv_heads, cache, config.size], in_place=True)
        inputs: dict[str, Any] = {
            "tokens": TensorType(DType.int64, ["batch", "sequence"]),
            "lengths": TensorType(DType.int64, ["batch"]),
        }
        if has_last_tokens:
            inputs["last_tokens"] = TensorType(DType.int64, [])
        inputs |= dict.fromkeys(names, buffer)
        defaults = {}
        for number, (module, (into, out)) in enumerate(low_rank.items()):
            inputs[f"{module}.lora_A"] = TensorType(DType.float32, [into, f"rank{number}"])
            inputs[f"{module}.lora_B"] = TensorType(DType.float32, [f"rank{number}", out])
            defaults[f"{module}.lora_A"] = np.zeros((into, 0), np.float32)
            defaults[f"{module}.lora_B"] = np.zeros((0, out), np.float32)
        self.graph = graph = Graph(name, inputs, defaults=defaults)
        self.config = config
        self.low_rank = low_rank
        self.weights = ModelWeights(graph, _with_stacked_experts(config, arrays))
        self.prefix = ""
        self.angles: dict[bool, tuple[Symbol, ...]] = {False: (), True: ()}
        for is_local in {bool(window) for window in config.windows or (0,)} if config.rotated else ():
            self.angles[is_local] = tuple(map(graph.constant, angles(config, cache, is_local=is_local)))
        self.tokens, self.lengths = graph.inputs[:2]
        self.last_tokens = graph["last_tokens"] if has_last_tokens else None
        with graph.layer("lengths"):
            self.count = ops.shape_of(self.tokens)[1]
            total = ops.max(ops.max(self.lengths, axis=0), self.count)
            self.before = ops.where(total == self.count, 0, self.lengths - self.count)
            # A length outside the cache becomes an index out of range, so that the run fails.
            is_outside = (self.lengths < 1) | (self.before < 0)
            rows = graph.constant(np.arange(-1, cache, dtype=np.int32))
            self.last_keys = ops.gather(rows, ops.where(is_outside, cache + 1, self.lengths))
            self.total = total.cast(DType.int32)

    def build(self, every_token: bool) -> Graph:
        graph, config = self.graph, self.config
        batch, sequence = self.tokens.shape
        embedding = self.weight("token_embd")
        with graph.layer("embeddings"):
            # Gather would count a negative token from the end; any invalid one makes the run fail.
            x = ops.gather(embedding, ops.where(self.tokens < 0, config.vocabulary, self.tokens))
            if config.learnt_positions:
                positions = self.before.unsqueeze(-1) + ops.range(0, sequence, dtype=DType.int64, out_dim=sequence)
                x = x + ops.gather(self.weight("position_embd"), positions)
            if config.embedding_scale != 1:
                x = x * config.embedding_scale
            rows = x.reshape(batch * sequence, config.width)
        for number in range(config.layers):
            self.prefix = f"{config.layout.layers}.{number}."
            with graph.layer(f"layers/{number}"):
                rows = self.layer(rows, number)
        self.prefix = ""
        rows = self.norm(rows, "output_norm")
        head = embedding if config.tied else self.weight("output")
        with graph.layer("head"):
            logits = self.logits(rows, head, every_token)
            cap = config.logit_softcap
            graph.output(logits=ops.tanh(logits / cap) * cap if cap else logits)
        return graph

    def logits(self, rows: Symbol, head: Symbol, every_token: bool) -> Symbol:
        """Return the logits of the last token of each item, of several last tokens, or of all."""
        batch, sequence = self.tokens.shape
        width, vocabulary = self.config.width, self.config.vocabulary
        if every_token:
            return ops.linear(rows, head).reshape(batch, sequence, vocabulary)
        items, count = rows.reshape(batch, sequence, width), self.last_tokens
        if count is None:
            at = self.lengths - self.before - 1
            return ops.linear(ops.gather_nd(items, at.unsqueeze(-1), batch_dims=1), head)
        each = ops.range(0, count, dtype=DType.int64, out_dim="last_tokens")
        at = (self.lengths - self.before - count).unsqueeze(-1) + each
        at = ops.where(at < 0, self.count, at)  # GatherND would count from the end; the run fails for too few tokens
        last = ops.gather_nd(items, at.unsqueeze(-1), batch_dims=1).reshape(batch * Dim("last_tokens"), width)
        return ops.linear(last, head).reshape(batch, "last_tokens", vocabulary)

    def weight(self, part: str) -> Symbol:
        return self.weights[f"{self.prefix}{self.config.layout.names[part]}.weight"]

    def dense(self, x: Symbol, part: str) -> Symbol:
        name = self.prefix + self.config.layout.names[part]
        weight, bias = self.weight(part), self.weights.get(f"{name}.bias")
        if not self.config.layout.transposed:
            y = ops.linear(x, weight, bias)
        else:
            y = x @ weight if bias is None else x @ weight + bias
        if name in self.low_rank:  # the default of rank 0 adds zeros
            y = y + x @ self.graph[f"{name}.lora_A"] @ self.graph[f"{name}.lora_B"]
        return y

    def norm(self, x: Symbol, part: str) -> Symbol:
        gamma, epsilon = self.weight(part), self.config.epsilon
        if self.config.norm == "layer":
            beta = self.weights[f"{self.prefix}{self.config.layout.names[part]}.bias"]
            return ops.layer_norm(x, gamma, beta, epsilon=epsilon)
        return ops.rms_norm(x, gamma, epsilon=epsilon, weight_offset=float(self.config.norm == "rms1"))

    def activation(self, x: Symbol) -> Symbol:
        return ops.silu(x) if self.config.activation == "silu" else ops.gelu(x, self.config.activation)

    def layer(self, x: Symbol, number: int) -> Symbol:
        config = self.config
        attended = self.attention(self.norm(x, "attn_norm"), number)
        if config.post_norms:
            attended = self.norm(attended, "post_attention_norm")
        attended = x + attended
        h = self.norm(x if config.parallel else attended, "ffn_norm")
        is_dense = config.experts is None or number in config.dense_layers
        wide = self.feed_forward(h) if is_dense else self.experts(h)
        return attended + (self.norm(wide, "post_ffw_norm") if config.post_norms else wide)

    def attention(self, h: Symbol, number: int) -> Symbol:
        config = self.config
        rows = [config.heads * config.size, *[config.kv_heads * config.size] * 2]
        if config.fused:
            joined = self.dense(h, "attn_qkv")
            if config.layout.interleaved:
                parts = ops.split(joined.reshape(h.shape[0], config.heads, 3 * config.size), [config.size] * 3, axis=2)
                query, key, value = (part.reshape(h.shape[0], rows[0]) for part in parts)
            else:
                query, key, value = ops.split(joined, rows, axis=1)
        else:
            query, key, value = (self.dense(h, f"attn_{part}") for part in "qkv")
        if config.head_norms:
            query, key = (
                self.norm(x.reshape(h.shape[0], count, config.size), f"attn_{part}_norm").reshape(x.shape)
                for x, count, part in ((query, config.heads, "q"), (key, config.kv_heads, "k"))
            )
        batch, sequence = self.tokens.shape
        q, k, v = (x.reshape(batch, sequence, x.shape[-1]) for x in (query, key, value))
        window = config.windows[number] if config.windows else 0
        names = f"keys{number}", f"values{number}"
        past = [self.graph.buffers[name] for name in names]
        rotation = self.angles[bool(window)]
        steps: tuple[Symbol | None, ...] = ()
        if self.scales is not None:
            arrays = [self.scales[name].astype(np.float32) for name in names]
            steps = (*(None,) * (5 - len(rotation)), *map(self.graph.constant, arrays))
        # The kernel appends to the cache, reads only its valid rows, and rotates queries and keys itself.
        mixed, *present = self.graph.op(
            "GroupQueryAttention",
            (q, k, v, *past, self.last_keys, self.total, *rotation, *steps),
            {"num_heads": config.heads, "kv_num_heads": config.kv_heads, "do_rotary": int(bool(rotation))}
            | ({"local_window_size": window} if window else {})
            | ({"softcap": config.softcap} if config.softcap else {})
            | (_INT8 if steps else {})
            | ({} if config.scale is None else {"scale": config.scale}),
            [q.type, past[0].type, past[1].type],
            domain="com.microsoft",
        )
        for buffer, value_now in zip(past, present, strict=True):
            ops.buffer_store(buffer, value_now)
        return self.dense(mixed.reshape(*query.shape), "attn_output")

    def feed_forward(self, h: Symbol, suffix: str = "") -> Symbol:
        if not self.config.gated:
            wide = self.activation(self.dense(h, "ffn_up"))
        elif self.config.fused:
            joined = self.dense(h, "ffn_up")
            gate, up = ops.split(joined, [self.config.inner] * 2, axis=1)
            wide = self.activation(gate) * up
        else:
            wide = self.activation(self.dense(h, f"ffn_gate{suffix}")) * self.dense(h, f"ffn_up{suffix}")
        return self.dense(wide, f"ffn_down{suffix}")

    def experts(self, h: Symbol) -> Symbol:
        """Return the mixture of the experts of each token, and the expert of all tokens."""
        config = self.config
        gates, down = (
            self.weights[f"{self.prefix}{part}"] for part in ("experts.gate_up.weight", "experts.down.weight")
        )
        mixed: Symbol = microsoft.MoE(
            h, self.dense(h, "ffn_gate_inp"), gates, None, down, k=config.top_k, activation_type="swiglu",
            swiglu_fusion=1, normalize_routing_weights=config.normalised,
        )  # fmt: skip
        if config.shared_inner is None:
            return mixed
        return mixed + ops.sigmoid(self.dense(h, "ffn_gate_inp_shexp")) * self.feed_forward(h, "_shexp")


def _with_stacked_experts(config: Config, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the weights with one array for all experts of a layer. Rows of gates and their factors alternate."""
    result = dict(arrays)
    for number in [n for n in range(config.layers) if n not in config.dense_layers] if config.experts else ():
        prefix = f"{config.layout.layers}.{number}."
        gates, ups, downs = (
            [result.pop(f"{prefix}{config.layout.names[part].format(e)}.weight") for e in range(config.experts or 0)]
            for part in _expert_shapes(config)
        )
        pairs = [np.stack(pair, 1).reshape(-1, config.width) for pair in zip(gates, ups, strict=True)]
        result |= {f"{prefix}experts.gate_up.weight": np.stack(pairs), f"{prefix}experts.down.weight": np.stack(downs)}
    return result


_GGUF_NAME = re.compile(r"(?:blk\.(?P<block>\d+)\.)?(?P<stem>.*?)(?P<kind>\.\w+)?", re.DOTALL)
"""`blk.3.attn_q.weight`; there is no block outside of the layers."""


def named(tensors: Tensors[Array], config: Config) -> dict[str, Array]:
    """Return the tensors of a GGUF file by the names and in the layout of checkpoints.

    Unknown tensors, and those that would get the name of another, keep their names.
    """
    layout = config.layout

    def rename(name: str) -> str:
        block, stem, kind = present(_GGUF_NAME.fullmatch(name)).groups(default="")
        prefix = f"{layout.layers}.{block}." if block else ""
        return f"{prefix}{layout.names[stem]}{kind}" if stem in layout.names else name

    def convert(name: str, array: Array) -> Array:
        block, stem, _ = present(_GGUF_NAME.fullmatch(name)).groups()
        if layout.transposed and block is not None and array.ndim == 2:
            return array.T.copy()
        if config.norm == "rms1" and stem.endswith("norm"):
            return array - 1
        is_rotated = layout.permuted and stem in ("attn_q", "attn_k") and array.ndim
        if is_rotated and not array.shape[0] % config.size:
            pairs = array.reshape(-1, config.size // 2, 2, *array.shape[1:])
            return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(array.shape)
        if layout.interleaved and stem == "attn_qkv" and array.ndim and not array.shape[0] % (3 * config.size):
            heads = array.reshape(3, -1, config.size, *array.shape[1:])
            return np.ascontiguousarray(heads.swapaxes(0, 1)).reshape(array.shape)
        return array

    result: dict[str, Array] = {}
    for name, array in renamed({name: convert(name, tensors[name]) for name in tensors}, rename).items():
        if "{}" in name and isinstance(array, np.ndarray) and array.ndim == 3:  # all experts of a layer
            result |= {name.format(number): expert for number, expert in enumerate(array)}
        else:
            result[name] = array
    return result
