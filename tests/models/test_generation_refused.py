"""Arguments that `models.generate` and `models.stream` refuse before the first token, and the reasons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import models
from graphcore.errors import FeedError, ModelError, RunError
from graphcore.models import llama
from tests.models.test_generation import CACHE, LLAMA, WORDS, build_model
from tests.support.decoders import some


@pytest.mark.parametrize("prompt", [[], [[]], [[1], []], np.zeros(0, np.int64), np.zeros((2, 0), np.int64)])
def test_empty_prompts_are_refused(prompt: Any) -> None:
    with pytest.raises(FeedError, match="a prompt is empty"):
        models.generate(build_model("llama")[0], prompt, 5)


@pytest.mark.parametrize(
    "prompt",
    [3, None, "text", b"text", ["text"], [1.5], [[1, 2], 3], [[[1]]], np.ones((1, 1, 1), np.int64), np.array(3), [True],
     [None], [2**70], {1, 2}, {1: 2}, [1, True], [1, np.True_], np.ma.array([1, 2], mask=[False, True]),
     np.array([1.0]), np.zeros((0, 3), np.float32)],
    ids=repr,
)  # fmt: skip
def test_what_is_not_a_prompt_is_refused(prompt: Any) -> None:
    with pytest.raises(FeedError, match=r"is not a prompt|a prompt is empty"):
        models.generate(build_model("llama")[0], prompt, 5)


@pytest.mark.parametrize("token", [-1, WORDS, 2**62])
def test_tokens_that_the_model_does_not_know_are_refused(token: int) -> None:
    model, _ = build_model("llama")
    for prompt in ([1, token], [[1], [1, token]]):
        with pytest.raises(FeedError, match=f"{token} is not a token"):
            models.generate(model, prompt, 5)
    with pytest.raises(FeedError, match=r"is not a token|stop must be"):
        models.generate(model, [1], 5, stop=[token])


def test_texts_longer_than_the_cache_are_refused_before_the_first_token() -> None:
    model, _ = build_model("llama")
    for prompt, most in (([3] * 20, 6), ([3] * (CACHE + 1), 1), ([[1], [3] * 20], 6), ([1], 10**9), ([3] * 26, 0)):
        with pytest.raises(FeedError, match="do not fit into a cache of 24"):
            models.stream(model, prompt, most)


@pytest.mark.parametrize(
    "options",
    [
        {"max_new_tokens": -1}, {"max_new_tokens": 2.0}, {"max_new_tokens": True}, {"temperature": -1.0},
        {"temperature": float("nan")}, {"temperature": float("inf")}, {"temperature": "hot"}, {"temperature": None},
        {"temperature": 1.0, "top_k": 0}, {"temperature": 1.0, "top_k": 2.0}, {"temperature": 1.0, "top_p": 0.0},
        {"temperature": 1.0, "top_p": 1.5}, {"temperature": 1.0, "top_p": float("nan")}, {"top_k": 3}, {"top_p": 0.5},
        {"temperature": 1.0, "seed": -1}, {"temperature": 1.0, "seed": "x"}, {"stop": [1.5]}, {"stop": ["x"]},
        {"seed": "x"}, {"stop": 2}, {"stop": None}, {"stop": "2"}, {"stop": np.array(2)}, {"stop": [True]},
        {"stop": [2**70]}, {"temperature": np.array([1.0])},
    ],
    ids=repr,
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(FeedError, match="generate: "):
        models.generate(build_model("llama")[0], [1], **({"max_new_tokens": 5} | options))


def test_model_that_is_not_a_decoder_is_refused() -> None:
    graph = gc.Graph("scale", {"x": gc.TensorType("float32", [3])})
    graph.output(graph["x"] * 2)
    for wrong in (3, None, "llama", llama.build(LLAMA)):
        with pytest.raises(ModelError, match=r"model must be a Model, got \w+"):
            models.generate(wrong, [1], 4)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="scale is not a decoder"):
        models.generate(gc.InferenceSession().load(graph), [1], 5)
    every = gc.InferenceSession().load(llama.build(LLAMA, cache=8, every_token=True))
    with pytest.raises(ModelError, match="llama is not a decoder"):
        models.generate(every, [1], 5)


def test_model_that_only_looks_like_a_decoder_is_refused() -> None:
    inputs = {"tokens": gc.TensorType("int64", ["batch", 41]), "lengths": gc.TensorType("int64", ["batch"])}
    count, keys = gc.Buffer("int64", initial=0), gc.Buffer("float32", [1, 2, 24, 4])
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "float32"), ({"count": count}, "float32"), ({"keys0": count}, "float32"), ({"keys0": keys}, "int64"),
        ({"keys0": keys, "tokens": gc.TensorType("int64", ["batch", "sequence"])}, "float32"),
        ({"keys0": keys, "lengths": gc.TensorType("int64", ["batch", 1])}, "float32"),
        ({"keys0": keys, "tokens": gc.TensorType("int32", ["batch", 41])}, "float32"),
    ]  # fmt: skip
    for others, dtype in cases:
        graph = gc.Graph("double", {**inputs, **others})
        for buffer in graph.buffers:
            graph[buffer] += 1
        graph.output(logits=(graph["tokens"] * 2).cast(dtype))
        with pytest.raises(ModelError, match="double is not a decoder"):
            models.generate(gc.InferenceSession().load(graph), [1], 5)


def test_weights_that_give_no_numbers_are_an_error_and_no_tokens() -> None:
    arrays = some(llama.shapes(LLAMA))
    arrays["model.norm.weight"][:] = np.nan
    model = gc.InferenceSession().load(llama.build(LLAMA, arrays, cache=8))
    with pytest.raises(RunError, match="logits of the model are not finite"):
        models.generate(model, [1], 5)
