"""Small decoders for tests, texts that run in batches of them, and references in NumPy without a cache."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, Model, Symbol, TensorType, models, ops
from graphcore.models import gpt2, llama
from graphcore.models.streams import sampling
from graphcore.models.streams.running import Running
from graphcore.models.streams.sampling import Text, choice_of
from tests.support.graphs import Array

D = DType
WIDTH, HEADS, LAYERS, _WORDS, MAX_LENGTH = 16, 2, 2, 23, 40
HEAD = WIDTH // HEADS
END = 0

Caches = list[tuple[Symbol, Symbol]]
Keep = Callable[[int, Symbol, Symbol], tuple[Symbol, Symbol]]
"""Takes the key and value of a token in a layer, and gives all keys and values so far, those included."""


def weights(seed: int, dtype: DType = D.float32) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"words": (_WORDS, WIDTH), "places": (MAX_LENGTH, WIDTH)}
    for layer in range(LAYERS):
        shapes |= {f"{layer}/{name}": (WIDTH, WIDTH) for name in ("query", "key", "value", "out")}
        shapes |= {f"{layer}/wide": (WIDTH, 4 * WIDTH), f"{layer}/narrow": (4 * WIDTH, WIDTH)}
    return {name: random.normal(0, 0.6, shape).astype(dtype.numpy) for name, shape in shapes.items()}


# One step, over Symbols


def step(w: dict[str, Symbol], token: Symbol, place: Symbol, keep: Keep) -> Symbol:
    """Return the next token. place: the number of tokens before this one."""
    x = w["words"][token] + w["places"][place]
    for layer in range(LAYERS):
        h = _normalised(x)
        query, key, value = ((h @ w[f"{layer}/{n}"]).reshape(HEADS, 1, HEAD) for n in ("query", "key", "value"))
        keys, values = keep(layer, key, value)
        scores = ops.softmax(query @ keys.transpose(0, 2, 1) * HEAD**-0.5, axis=-1)
        x = x + (scores @ values).reshape(WIDTH) @ w[f"{layer}/out"]
        x = x + ops.relu(_normalised(x) @ w[f"{layer}/wide"]) @ w[f"{layer}/narrow"]
    return (_normalised(x) @ w["words"].T).argmax()


def grown(w: dict[str, Symbol], token: Symbol, caches: Caches) -> tuple[Symbol, Caches]:
    """Return the next token, and the caches with this one in them."""
    results: Caches = []

    def keep(layer: int, key: Symbol, value: Symbol) -> tuple[Symbol, Symbol]:
        keys, values = caches[layer]
        results.append((ops.concat([keys, key], 1), ops.concat([values, value], 1)))
        return results[-1]

    return step(w, token, ops.shape_of(caches[0][0])[1], keep), results


def _normalised(x: Symbol) -> Symbol:
    return x / ops.sqrt((x * x).mean() + 1e-5)


def constants(graph: Graph, arrays: dict[str, Array]) -> dict[str, Symbol]:
    return {name: graph.weight(name, array) for name, array in arrays.items()}


def decoder(arrays: dict[str, Array]) -> Graph:
    """From a prompt and the most tokens to give to those tokens, up to the one that ends the text."""
    graph = Graph("decoder", {"prompt": TensorType(D.int64, ["p"]), "most": TensorType(D.int64, [])})
    prompt, most = graph.inputs
    w = constants(graph, arrays)
    nothing = graph.constant(np.zeros((HEADS, 0, HEAD), arrays["words"].dtype))
    begin = {"token": graph.constant(0, D.int64), "caches": [(nothing, nothing)] * LAYERS}

    def read(i: Symbol, token: Symbol, caches: Caches) -> dict[str, object]:
        with graph.layer("read"):
            following, caches = grown(w, prompt[i], caches)
        return {"token": following, "caches": caches}

    def write(tokens: Symbol, token: Symbol, caches: Caches) -> dict[str, object]:
        with graph.layer("write"):
            following, caches = grown(w, token, caches)
        return {"tokens": ops.concat([tokens, token.reshape(1)]), "token": following, "caches": caches}

    def goes_on(tokens: Symbol, token: Symbol, caches: Caches) -> Symbol:
        return (token != END) & (ops.shape_of(tokens)[0] < most)

    state = ops.for_loop(ops.shape_of(prompt)[0], read, begin)
    state = ops.while_loop(goes_on, write, {"tokens": graph.constant(np.zeros(0, np.int64)), **state})
    graph.output(tokens=state["tokens"], keys=state["caches"][0][0])
    return graph


# References


def stepwise(arrays: dict[str, Array], prompt: list[int], most: int) -> tuple[list[int], Array]:
    """The same with a model of one step, called from Python with the caches that it gave before; and one of those."""
    dtype = arrays["words"].dtype
    cache = TensorType(dtype, [HEADS, "t", HEAD])
    types = {"token": TensorType(D.int64, [])} | {f"cache{i}": cache for i in range(2 * LAYERS)}
    graph = Graph("step", types)
    token, *flat = graph.inputs
    following, remaining = grown(constants(graph, arrays), token, list(zip(flat[::2], flat[1::2], strict=True)))
    graph.output(following, *[s for pair in remaining for s in pair])
    model = gc.InferenceSession().load(graph)
    caches = [np.zeros((HEADS, 0, HEAD), dtype)] * (2 * LAYERS)
    for number in prompt:
        chosen, *caches = model(np.array(number), *caches)
    tokens: list[int] = []
    while chosen != END and len(tokens) < most:
        tokens.append(int(chosen))
        chosen, *caches = model(chosen, *caches)
    return tokens, caches[0]


def recomputed(arrays: dict[str, Array], text: list[int]) -> int:
    """Return the token after a text, by NumPy and without a cache."""
    w = {name: array.astype(np.float64) for name, array in arrays.items()}
    x = w["words"][text] + w["places"][: len(text)]
    hidden = np.triu(np.full((len(text),) * 2, -np.inf), 1)

    def norm(x: Array) -> Array:
        return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5))

    for layer in range(LAYERS):
        query, key, value = (
            (norm(x) @ w[f"{layer}/{n}"]).reshape(-1, HEADS, HEAD).swapaxes(0, 1) for n in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(1, 2) * HEAD**-0.5 + hidden
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        x = x + (scores @ value).swapaxes(0, 1).reshape(-1, WIDTH) @ w[f"{layer}/out"]
        x = x + np.maximum(norm(x) @ w[f"{layer}/wide"], 0) @ w[f"{layer}/narrow"]
    return int((norm(x[-1]) @ w["words"].T).argmax())


# Decoders for running batches, and what each prompt gives alone


WORDS, CACHE = 41, 96
LLAMA = llama.Config(vocabulary=WORDS, width=32, inner=24, layers=2, heads=4, kv_heads=2, size=16, positions=128)
BODY = llama.Config(vocabulary=WORDS, width=32, inner=24, layers=1, heads=4, kv_heads=2, size=8, positions=128)
GPT2 = gpt2.config(vocabulary=WORDS, width=32, inner=48, layers=2, heads=2, positions=128)
KINDS = ("llama", "gpt2", "llama, int4", "gpt2, int4", "llama that no kernel takes")

_ROUNDING = 0.15


@functools.cache
def build_model(kind: str) -> Model:
    """Return a decoder with logits of the last tokens."""
    if kind.startswith("gpt2"):
        graph = gpt2.build(GPT2, some(gpt2.shapes(GPT2)), cache=CACHE, last_tokens=True)
    else:
        config = BODY if "no kernel" in kind else LLAMA
        graph = llama.build(config, some(llama.shapes(config)), cache=CACHE, last_tokens=True)
    if kind.endswith("int4"):
        graph = gc.quantize(graph, "int4", block_size=16).graph
    return gc.InferenceSession(intra_op_num_threads=1).load(graph)


@functools.cache
def alone(kind: str, prompt: tuple[int, ...], most: int, temperature: float = 0.0, seed: int = 0) -> list[int]:
    """Return the tokens after a prompt that nothing runs beside."""
    options: dict[str, Any] = {"temperature": temperature, "seed": seed} if temperature else {}
    return [int(token) for token in models.generate(build_model(kind), prompt, most, **options)]


def is_alone(kind: str, prompt: tuple[int, ...], got: list[int], most: int) -> bool:
    """Return True if these are the first tokens after a prompt that nothing runs beside: the same ones, or with 4 bits
    such as the model finds as likely but for its rounding. The kernel rounds what it multiplies to 8 bits, where a last
    bit, which another number of rows may change, can become one of those steps."""
    if not kind.endswith("int4"):
        return got == alone(kind, prompt, most)[: len(got)]
    if not got:
        return True
    whole = np.array([[*prompt, *got[:-1]]])
    (logits,) = build_model(kind).state()(whole, np.array([whole.size]), np.array(len(got)))
    chosen = logits[0][np.arange(len(got)), got]
    return bool((logits[0].max(-1) - chosen <= _ROUNDING * logits[0].std()).all())


def drawn(seed: int, length: int, words: int = WORDS) -> tuple[int, ...]:
    """Return a prompt."""
    return tuple(int(token) for token in np.random.default_rng(seed).integers(0, words, length))


def text(
    prompt: Sequence[int], most: int, stop: Sequence[int] = (), temperature: float = 0.0, seed: int = 0, lookup: int = 0
) -> Text:
    chosen = choice_of("test", temperature, None, None, seed)
    return Text(np.array(prompt, np.int64), most, stop, chosen, chosen.numbers()[0], lookup)


def batch(kind: str, slots: int, piece: int | None = 8, prefix_tokens: int = 0) -> Running:
    return Running(sampling.decoder_of("test", build_model(kind)), slots, piece, prefix_tokens)


def run(running: Running, texts: Sequence[Text]) -> list[list[int]]:
    """Run texts, as far as there is room in their order, until all have ended; return their tokens."""
    waiting = list(texts)
    while waiting or running.texts:
        while waiting and running.free_slots:
            running.join(waiting.pop(0))
        running.read()
        running.step()
    return [each.new_tokens for each in texts]


# References: decoders in NumPy and float64, one text at a time and without a cache

SMALL = llama.Config(vocabulary=41, width=32, inner=24, layers=2, heads=4, kv_heads=2, size=16, positions=64, theta=100)
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
"""The configuration of SMALL as a file has it."""


def softmax(x: Array) -> Array:
    parts = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(parts / parts.sum(-1, keepdims=True))


def attended(query: Array, key: Array, value: Array) -> Array:
    """Causal attention, head by head and query by query. [tokens, heads, size], with fewer heads of keys and values."""
    tokens, heads, size = query.shape
    share = heads // key.shape[1]
    array = np.zeros((tokens, heads, size))
    for head in range(heads):
        for t in range(tokens):
            scores = key[: t + 1, head // share] @ query[t, head] / math.sqrt(size)
            array[t, head] = softmax(scores) @ value[: t + 1, head // share]
    return array.reshape(tokens, heads * size)


# Llama


def rms(x: Array, weight: Array, epsilon: float) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight)


def speeds(config: llama.Config) -> list[float]:
    """By how much each pair of features turns from one position to the next."""
    results = []
    for pair in range(config.size // 2):
        speed = config.theta ** -(2 * pair / config.size)
        message = config.scaling
        if message is not None and message["rope_type"] == "linear":
            speed /= message["factor"]
        if message is not None and message["rope_type"] == "llama3":
            made_for, wavelength = message["original_max_position_embeddings"], 2 * math.pi / speed
            shortest, longest = made_for / message["high_freq_factor"], made_for / message["low_freq_factor"]
            if wavelength > longest:
                speed /= message["factor"]
            elif wavelength >= shortest:
                range_ = message["high_freq_factor"] - message["low_freq_factor"]
                smooth = (made_for / wavelength - message["low_freq_factor"]) / range_
                speed = (1 - smooth) * speed / message["factor"] + smooth * speed
        results.append(speed)
    return results


def turned(config: llama.Config, x: Array) -> Array:
    """Rotate [tokens, heads, size]: pairs of a feature and the one half a head after it, as complex numbers."""
    half = config.size // 2
    pairs = x[..., :half] + 1j * x[..., half:]
    pairs = pairs * np.exp(1j * np.outer(np.arange(len(x)), speeds(config)))[:, None]
    return np.concatenate([pairs.real, pairs.imag], -1)


def llama_logits(
    config: llama.Config, arrays: dict[str, Array], tokens: list[int], scales: dict[str, Array] | None = None
) -> Array:
    """[tokens, vocabulary]. scales: of keys and values, which are rounded to int8."""

    def stored(x: Array, name: str) -> Array:
        if scales is None:
            return x
        step = scales[name].astype(np.float64).reshape(x.shape[1:])
        return np.asarray(np.clip(np.rint(x / step), -128, 127) * step)

    w = {name: array.astype(np.float64) for name, array in arrays.items()}

    def dense(x: Array, name: str) -> Array:
        return np.asarray(x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", np.zeros(1)))

    x = w["model.embed_tokens.weight"][tokens]
    for number in range(config.layers):
        name = f"model.layers.{number}"
        h = rms(x, w[f"{name}.input_layernorm.weight"], config.epsilon)
        q, k, v = (dense(h, f"{name}.self_attn.{p}_proj").reshape(len(tokens), -1, config.size) for p in "qkv")
        keys, values = stored(turned(config, k), f"keys{number}"), stored(v, f"values{number}")
        x = x + dense(attended(turned(config, q), keys, values), f"{name}.self_attn.o_proj")
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
        wide = gelu(dense(norm(x, f"{name}.ln_2"), f"{name}.mlp.c_fc"), config.activation)
        x = x + dense(wide, f"{name}.mlp.c_proj")
    return np.asarray(norm(x, "ln_f") @ w["wte.weight" if config.tied else "lm_head.weight"].T)


def some(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, Array]:
    """Weights of which none, bias or not, could be left out unseen."""
    random = np.random.default_rng(seed)
    results = {}
    for name, shape in shapes.items():
        scale, offset = (shape[-1] ** -0.5, 0.0) if len(shape) > 1 else (0.3, float(name.endswith("weight")))
        results[name] = (random.normal(0, scale, shape) + offset).astype(np.float32)
    return results
