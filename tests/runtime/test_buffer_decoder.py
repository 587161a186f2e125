"""The greedy decoder with its cache in buffers, a token a call: it gives what the model with loops inside gives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Buffer, DType, Graph, Model, Symbol, TensorType, ops
from tests.support.decoders import (
    END,
    HEAD,
    HEADS,
    LAYERS,
    MAX_LENGTH,
    constants,
    decoder,
    grown,
    step,
    stepwise,
    weights,
)
from tests.support.graphs import Array

D = DType
PROMPTS = (([3], 12), ([1, 5, 9, 2], 20), ([7, 7], 3))


def growing(arrays: dict[str, Array]) -> Graph:
    """Map a token to the next one, with caches that grow by one in each call."""
    cache = Buffer(arrays["words"].dtype, [HEADS, "t", HEAD])
    names = [f"{kind}{layer}" for layer in range(LAYERS) for kind in ("keys", "values")]
    graph = Graph("growing", {"token": TensorType(D.int64, []), **dict.fromkeys(names, cache)})
    token, *flat = graph.inputs
    following, remaining = grown(constants(graph, arrays), token, list(zip(flat[::2], flat[1::2], strict=True)))
    for name, value in zip(names, [s for pair in remaining for s in pair], strict=True):
        graph[name] = value
    graph.output(following)
    return graph


def fixed(arrays: dict[str, Array], in_place: bool = False) -> Graph:
    """The same with caches of a fixed length, of which a row is written in each call, and a count of the rows."""
    cache = Buffer(arrays["words"].dtype, [HEADS, MAX_LENGTH, HEAD], in_place=in_place)
    names = [f"{kind}{layer}" for layer in range(LAYERS) for kind in ("keys", "values")]
    results = {"count": Buffer(D.int64), **dict.fromkeys(names, cache)}
    graph = Graph("fixed", {"token": TensorType(D.int64, []), **results})
    count = ops.buffer_load(graph.buffers["count"])

    def keep(layer: int, key: Symbol, value: Symbol) -> tuple[Symbol, Symbol]:
        for kind, row in (("keys", key), ("values", value)):
            graph.buffers[f"{kind}{layer}"][:, count] = row.reshape(HEADS, HEAD)
        return graph[f"keys{layer}"][:, : count + 1], graph[f"values{layer}"][:, : count + 1]

    following = step(constants(graph, arrays), graph["token"], count, keep)
    graph["count"] += 1
    graph.output(following)
    return graph


def decoded(call: Callable[..., list[Any]], prompt: list[int], most: int) -> list[int]:
    """Return the tokens after a prompt, by one call for each token."""
    for number in prompt:
        (chosen,) = call(np.array(number))
    tokens: list[int] = []
    while chosen != END and len(tokens) < most:
        tokens.append(int(chosen))
        (chosen,) = call(chosen)
    return tokens


def first_keys(buffers: Any) -> Array:
    """The rows of the cache that were written."""
    rows = int(buffers["count"]) if "count" in buffers else None
    result: Array = buffers["keys0"][:, :rows]
    return result


def load(graph: Graph) -> Model:
    return gc.InferenceSession().load(graph)


@functools.cache
def wanted(dtype: DType) -> list[tuple[tuple[list[int], Array], tuple[list[int], Array]]]:
    """The tokens and the first cache for each prompt: of the model with loops inside, and of single steps."""
    arrays = weights(1, dtype)
    whole = load(decoder(arrays))
    results = []
    for prompt, most in PROMPTS:
        tokens, keys = whole(np.array(prompt), np.array(most))
        results.append(((tokens.tolist(), keys), stepwise(arrays, prompt, most)))
    return results


@pytest.mark.parametrize("dtype", [D.float32, D.bfloat16, D.float16], ids=str)
@pytest.mark.parametrize("build", [growing, fixed, lambda arrays: fixed(arrays, in_place=True)])
def test_decoder_with_buffers_gives_tokens_and_caches_of_the_loop_and_of_single_steps(
    build: Callable[[dict[str, Array]], Graph], dtype: DType
) -> None:
    model = load(build(weights(1, dtype)))
    for (prompt, most), (looped, stepped) in zip(PROMPTS, wanted(dtype), strict=True):
        tokens = decoded(model, prompt, most)
        for want, keys in (looped, stepped):
            assert tokens == want
            np.testing.assert_array_equal(first_keys(model.buffers), keys)
        model.buffers.reset()


@pytest.mark.parametrize("build", [growing, fixed, lambda arrays: fixed(arrays, in_place=True)])
def test_streams_of_one_decoder_do_not_disturb_each_other_when_interleaved(
    build: Callable[[dict[str, Array]], Graph],
) -> None:
    arrays = weights(2)
    model = load(build(arrays))
    texts = [[4, 8, 2, 5, 1, 1], [6, 9, 3, 3, 2, 7]]
    streams = [model.state(), model.state()]
    got: list[list[int]] = [[], []]
    for column in zip(*texts, strict=True):
        for stream, token, chosen in zip(streams, column, got, strict=True):
            chosen.append(int(stream(np.array(token))[0]))
    for stream, text, chosen in zip(streams, texts, got, strict=True):
        alone = load(build(arrays))
        assert [int(alone(np.array(token))[0]) for token in text] == chosen
        np.testing.assert_array_equal(first_keys(stream.buffers), first_keys(alone.buffers))
    assert model.buffers["keys0"].sum() == 0


def test_decoder_goes_on_from_a_file_and_from_a_copy_of_its_state() -> None:
    arrays = weights(3)
    graph = fixed(arrays, in_place=True)
    model, again = load(graph), gc.InferenceSession().load(graph.to_onnx())
    assert model.buffers.in_place == again.buffers.in_place == ("keys0", "values0", "keys1", "values1")
    for number in (5, 2, 9):
        assert model(np.array(number)) == again(np.array(number))
    branch = model.state(**dict(again.buffers))
    assert decoded(model.state(**dict(model.buffers)), [4], 9) == decoded(branch, [4], 9) == decoded(model, [4], 9)
