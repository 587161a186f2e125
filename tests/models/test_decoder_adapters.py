"""LoRA adapters of decoders: each request has its own, and gets the tokens of the weights with the adapter merged."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import models
from graphcore.errors import FeedError, ModelError
from graphcore.models import gpt2, llama
from tests.support.decoders import CACHE, GPT2, LLAMA, alone, build_model, drawn, some
from tests.support.graphs import Array
from tests.support.text_folders import folder
from tests.support.waiting import PATIENCE

ENDS = ("q_proj", "v_proj", "down_proj")
RANKS = {"q_proj": 2, "v_proj": 3, "down_proj": 1}


@functools.cache
def adapted() -> Any:
    """Return the decoder of `build_model("llama")` with inputs for adapters."""
    graph = llama.build(LLAMA, some(llama.shapes(LLAMA)), cache=CACHE, last_tokens=True, adapters=ENDS)
    return gc.InferenceSession(intra_op_num_threads=1).load(graph)


@functools.cache
def arrays(seed: int) -> dict[str, Array]:
    """Return an adapter by the names of inputs."""
    random = np.random.default_rng(seed)
    result = {}
    for name, shape in llama.shapes(LLAMA).items():
        module = name.removesuffix(".weight")
        if module.endswith(ENDS):
            rank = RANKS[module.rpartition(".")[2]]
            result[f"{module}.lora_A"] = random.normal(0, 0.4, (shape[1], rank)).astype(np.float32)
            result[f"{module}.lora_B"] = random.normal(0, 0.4, (rank, shape[0])).astype(np.float32)
    return result


@functools.cache
def adapter(seed: int) -> Mapping[str, Array]:
    return dict(adapted().adapter(arrays(seed)))


@functools.cache
def merged(seed: int, prompt: tuple[int, ...], most: int) -> list[int]:
    """Return the tokens of the decoder whose weights have the adapter in them."""
    weights = some(llama.shapes(LLAMA))
    for name in [name for name in arrays(seed) if name.endswith("lora_A")]:
        module = name.removesuffix(".lora_A")
        product = arrays(seed)[name].astype(np.float64) @ arrays(seed)[f"{module}.lora_B"]
        weights[f"{module}.weight"] = (weights[f"{module}.weight"] + product.T).astype(np.float32)
    model = gc.InferenceSession(intra_op_num_threads=1).load(llama.build(LLAMA, weights, cache=CACHE))
    return [int(token) for token in models.generate(model, prompt, most)]


def want(seed: int | None, prompt: tuple[int, ...], most: int) -> list[int]:
    return alone("llama", prompt, most) if seed is None else merged(seed, prompt, most)


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_tokens_are_those_of_merged_weights(seed: int | None) -> None:
    chosen = None if seed is None else adapter(seed)
    for options in ({}, {"lookup": 6}, {"draft": build_model("llama")}):
        for prompt in (drawn(3, 9), drawn(4, 5, words=3) * 4):
            got = models.generate(adapted(), prompt, 20, adapter=chosen, **options)
            assert got.tolist() == want(seed, prompt, 20)
    assert want(1, drawn(3, 9), 20) != want(2, drawn(3, 9), 20) != want(None, drawn(3, 9), 20)


def test_gpt2_has_transposed_weights_and_a_fused_layer() -> None:
    weights, random = some(gpt2.shapes(GPT2)), np.random.default_rng(0)
    graph = gpt2.build(GPT2, weights, cache=CACHE, adapters=["c_attn", "mlp.c_proj"])
    model: Any = gc.InferenceSession().load(graph)
    chosen = {
        name: random.normal(0, 0.4, [int(dim) if dim.is_static else 2 for dim in type_.shape]).astype(np.float32)
        for name, type_ in model.inputs.optional.items()
    }
    assert len(chosen) == 4 * GPT2.layers
    changed = dict(weights)
    for name in [name for name in chosen if name.endswith("lora_A")]:
        module = name.removesuffix(".lora_A")
        changed[f"{module}.weight"] = weights[f"{module}.weight"] + chosen[name] @ chosen[f"{module}.lora_B"]
    merged = gc.InferenceSession().load(gpt2.build(GPT2, changed, cache=CACHE))
    want = models.generate(merged, drawn(3, 9), 20).tolist()
    assert models.generate(model, drawn(3, 9), 20, adapter=model.adapter(chosen)).tolist() == want
    assert models.generate(model, drawn(3, 9), 20).tolist() == alone("gpt2", drawn(3, 9), 20) != want


def test_each_prompt_of_a_list_has_the_adapter() -> None:
    prompts = [drawn(seed, 3 + 5 * seed) for seed in range(3)]
    got = models.generate(adapted(), prompts, 10, adapter=adapter(1))
    assert [tokens.tolist() for tokens in got] == [merged(1, prompt, 10) for prompt in prompts]


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([None, 1, 2]), st.integers(0, 3), st.integers(1, 40)), min_size=1, max_size=10),
    st.integers(1, 5),
)
def test_requests_with_several_adapters_get_what_each_gets_alone(
    plan: list[tuple[int | None, int, int]], slots: int
) -> None:
    with models.Streams(adapted(), slots=slots, piece=16) as streams:
        requests = [
            streams.submit(drawn(seed, length), 12, adapter=None if number is None else adapter(number))
            for number, seed, length in plan
        ]
        got = [request.result(PATIENCE).tolist() for request in requests]
    assert got == [want(number, drawn(seed, length), 12) for number, seed, length in plan]


def test_prefixes_are_shared_by_texts_of_one_adapter() -> None:
    prompt = drawn(7, 40)
    with models.Streams(adapted(), slots=2, prefix_tokens=200) as streams:
        for number, reused in ((1, 0), (2, 0), (None, 0), (1, 39), (2, 39), (None, 39)):
            before = streams.counts.reused
            chosen = None if number is None else adapter(number)
            assert streams.submit(prompt, 6, adapter=chosen).result(PATIENCE).tolist() == want(number, prompt, 6)
            assert streams.counts.reused - before == reused
        requests = [streams.submit(prompt, 6, adapter=adapter(number)) for number in (1, 2)]
        assert [each.result(PATIENCE).tolist() for each in requests] == [want(n, prompt, 6) for n in (1, 2)]


def peft(path: Path, seed: int, **config: Any) -> Path:
    """Write the adapter as PEFT does."""
    path.mkdir()
    tensors = {f"base_model.model.{name}.weight": array.T.copy() for name, array in arrays(seed).items()}
    gc.save_tensors(path / "adapter_model.safetensors", tensors)
    fields = {"peft_type": "LORA", "r": 4, "lora_alpha": 4, "rank_pattern": RANKS, "alpha_pattern": RANKS}
    (path / "adapter_config.json").write_text(json.dumps(fields | {"target_modules": ENDS} | config))
    return path


def test_adapter_of_peft_is_scaled_and_transposed(tmp_path: Path) -> None:
    got = models.generate(adapted(), drawn(3, 9), 20, adapter=adapted().adapter(peft(tmp_path / "one", 1)))
    assert got.tolist() == merged(1, drawn(3, 9), 20)
    double = peft(tmp_path / "two", 1, lora_alpha=8, alpha_pattern={name: 2 * rank for name, rank in RANKS.items()})
    twice = {name: array * (2 if name.endswith("lora_B") else 1) for name, array in arrays(1).items()}
    got = models.generate(adapted(), drawn(3, 9), 20, adapter=adapted().adapter(double))
    assert got.tolist() == models.generate(adapted(), drawn(3, 9), 20, adapter=twice).tolist()


def test_folder_is_loaded_with_adapters_by_name(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    paths = {"one": peft(tmp_path / "one", 1), "two": peft(tmp_path / "two", 2)}
    with models.load(folder(tmp_path / "base"), adapters=paths) as decoder:
        names = [None, "one", "two"]
        texts = [decoder.generate("Hello", max_tokens=20, adapter=name).text for name in names]
        assert len(set(texts)) == 3
        requests = [decoder.submit("Hello", max_tokens=20, adapter=name) for name in names]
        assert [request.result(PATIENCE).text for request in requests] == texts
    peft(tmp_path / "pattern", 1, target_modules=".*_proj")
    with pytest.raises(ModelError, match="not a list of names"):
        models.load(tmp_path / "base", adapters={"pattern": tmp_path / "pattern"})


def test_quantised_decoder_takes_adapters() -> None:
    graph = llama.build(LLAMA, some(llama.shapes(LLAMA)), cache=CACHE, adapters=ENDS)
    model = gc.InferenceSession().load(gc.quantize(graph, "int4", block_size=16).graph)
    plain = models.generate(model, drawn(3, 9), 12).tolist()
    assert models.generate(model, drawn(3, 9), 12, adapter=model.adapter(arrays(1))).tolist() != plain


# Refusals


@pytest.mark.parametrize("ends", [["q_proj", "nothing"], ["proj"], ["embed_tokens"], "q_proj"], ids=repr)
def test_names_without_layers_are_refused(ends: Any) -> None:
    with pytest.raises(ModelError, match="adapters: no layer's name ends with"):
        llama.build(LLAMA, adapters=ends)


@pytest.mark.parametrize("chosen", ["style", 3, {"tokens": np.zeros(3)}, {"other": np.zeros(3)}], ids=repr)
def test_what_is_no_adapter_is_refused(chosen: Any) -> None:
    with pytest.raises(FeedError, match="llama has no adapter"):
        models.generate(adapted(), [1], 5, adapter=chosen)


def test_adapter_of_other_shapes_or_for_a_model_without_adapters_is_refused() -> None:
    name = next(iter(arrays(1)))
    with pytest.raises(FeedError, match="lora_A"):
        models.generate(adapted(), [1], 5, adapter={name: arrays(1)[name].T})
    with models.Streams(build_model("llama")) as streams, pytest.raises(FeedError, match="has no adapter"):
        streams.submit([1], 5, adapter=arrays(1))
    assert models.generate(adapted(), [1], 5, adapter={}).tolist() == alone("llama", (1,), 5)
