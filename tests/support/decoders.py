"""A small transformer that decodes greedily, with a cache of keys and values, for the tests of decoders."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from tests.support.graphs import Array

D = DType
WIDTH, HEADS, LAYERS, WORDS, LONGEST = 16, 2, 2, 23, 40
HEAD = WIDTH // HEADS
END = 0

Caches = list[tuple[Symbol, Symbol]]
Keep = Callable[[int, Symbol, Symbol], tuple[Symbol, Symbol]]
"""Takes the key and value of a token in a layer, and gives all keys and values so far, those included."""


def weights(seed: int, dtype: DType = D.float32) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"words": (WORDS, WIDTH), "places": (LONGEST, WIDTH)}
    for layer in range(LAYERS):
        shapes |= {f"{layer}/{name}": (WIDTH, WIDTH) for name in ("query", "key", "value", "out")}
        shapes |= {f"{layer}/wide": (WIDTH, 4 * WIDTH), f"{layer}/narrow": (4 * WIDTH, WIDTH)}
    return {name: random.normal(0, 0.6, shape).astype(dtype.numpy) for name, shape in shapes.items()}


# One step, over Symbols


def step(w: dict[str, Symbol], token: Symbol, place: Symbol, keep: Keep) -> Symbol:
    """Return the next token. place: the number of tokens before this one."""
    x = w["words"][token] + w["places"][place]
    for layer in range(LAYERS):
        h = normalised(x)
        query, key, value = ((h @ w[f"{layer}/{n}"]).reshape(HEADS, 1, HEAD) for n in ("query", "key", "value"))
        keys, values = keep(layer, key, value)
        scores = ops.softmax(query @ keys.transpose(0, 2, 1) * HEAD**-0.5, axis=-1)
        x = x + (scores @ values).reshape(WIDTH) @ w[f"{layer}/out"]
        x = x + ops.relu(normalised(x) @ w[f"{layer}/wide"]) @ w[f"{layer}/narrow"]
    return (normalised(x) @ w["words"].T).argmax()


def grown(w: dict[str, Symbol], token: Symbol, caches: Caches) -> tuple[Symbol, Caches]:
    """Return the next token, and the caches with this one in them."""
    kept: Caches = []

    def keep(layer: int, key: Symbol, value: Symbol) -> tuple[Symbol, Symbol]:
        keys, values = caches[layer]
        kept.append((ops.concat([keys, key], 1), ops.concat([values, value], 1)))
        return kept[-1]

    return step(w, token, ops.shape_of(caches[0][0])[1], keep), kept


def normalised(x: Symbol) -> Symbol:
    return x / ops.sqrt((x * x).mean() + 1e-5)


def held(graph: Graph, arrays: dict[str, Array]) -> dict[str, Symbol]:
    return {name: graph.weight(name, array) for name, array in arrays.items()}


def decoder(arrays: dict[str, Array]) -> Graph:
    """From a prompt and the most tokens to give to those tokens, up to the one that ends the text."""
    graph = Graph("decoder", {"prompt": TensorType(D.int64, ["p"]), "most": TensorType(D.int64, [])})
    prompt, most = graph.inputs
    w = held(graph, arrays)
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
    following, kept = grown(held(graph, arrays), token, list(zip(flat[::2], flat[1::2], strict=True)))
    graph.output(following, *[s for pair in kept for s in pair])
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
