"""Each family of decoders beside transformers: tests/models/make_family_reference.py wrote tokens and logits."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
from graphcore import Model, models
from graphcore.models import decoder
from graphcore.models.families import Config
from tests.support.decoders import some
from tests.support.graphs import Array

DATA = json.loads((Path(__file__).parents[1] / "data" / "families.json").read_text())
CASES: dict[str, Any] = DATA["cases"]
TOLERANCE = 1e-4
LENGTH, NEW_TOKENS, STRIDE, VOCABULARY = 40, 20, 5, 61
PROMPT = [int(token) for token in np.random.default_rng(5).integers(1, VOCABULARY, LENGTH)]


def config_of(name: str) -> Config:
    return Config.read(CASES[name]["config"])


def weights(name: str, dtype: str = "float32") -> dict[str, Array]:
    arrays = some(decoder.shapes(config_of(name)))
    return {n: a.astype(ml_dtypes.bfloat16) for n, a in arrays.items()} if dtype == "bfloat16" else arrays


@functools.cache
def model_of(name: str, dtype: str = "float32") -> Model:
    cache = 64 if "short cache" in name else None
    graph = decoder.build(config_of(name), weights(name, dtype), cache=cache, last_tokens=True)
    return gc.InferenceSession(intra_op_num_threads=1).load(graph)


@pytest.mark.numbers
@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_transformers(name: str) -> None:
    (logits,) = model_of(name).state()(np.array([PROMPT]), np.array([LENGTH]), np.array(LENGTH))
    want = np.array(CASES[name]["float32"]["logits"])
    np.testing.assert_allclose(logits[0, ::STRIDE], want, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.numbers
@pytest.mark.parametrize("name", CASES)
def test_greedy_tokens_are_those_of_transformers(name: str) -> None:
    assert models.generate(model_of(name), PROMPT, NEW_TOKENS).tolist() == CASES[name]["float32"]["tokens"]


@pytest.mark.numbers
@pytest.mark.parametrize("name", CASES)
def test_bfloat16_weights_give_what_transformers_computes_with_them_in_float32(name: str) -> None:
    model, want = model_of(name, "bfloat16"), CASES[name]["bfloat16"]
    (logits,) = model.state()(np.array([PROMPT]), np.array([LENGTH]), np.array(LENGTH))
    np.testing.assert_allclose(logits[0, ::STRIDE][-1:], want["logits"], atol=TOLERANCE, rtol=TOLERANCE)
    assert models.generate(model, PROMPT, NEW_TOKENS).tolist() == want["tokens"]


@pytest.mark.parametrize("name", CASES)
def test_texts_that_run_together_equal_those_alone(name: str) -> None:
    prompts = [PROMPT[:1], PROMPT, PROMPT[3:20], PROMPT[10:38]]
    with models.Streams(model_of(name), slots=3, piece=16) as streams:
        requests = [streams.submit(prompt, 12) for prompt in prompts]
        tokens = [request.result().tolist() for request in requests]
    assert tokens == [models.generate(model_of(name), prompt, 12).tolist() for prompt in prompts]


# GGUF


def part_of(config: Config, name: str) -> tuple[str, str]:
    """Return the block and the name in llama.cpp of a weight."""
    layout, stem = config.layout, name.rpartition(".")[0]
    if not stem.startswith(f"{layout.layers}."):
        block = ""
    else:
        number, _, stem = stem.removeprefix(f"{layout.layers}.").partition(".")
        block = f"blk.{number}."
    stem = re.sub(r"experts\.\d+\.", "experts.{}.", stem)
    return block, next(part for part, other in layout.names.items() if other == stem)


def to_gguf(path: Path, name: str) -> None:
    """Write the weights of a case under the names and in the layout of llama.cpp."""
    config = config_of(name)
    layout, size = config.layout, config.size
    writer = gguf.GGUFWriter(path, layout.architecture)
    stacks: dict[str, list[Array]] = {}
    for full, array in weights(name).items():
        block, part = part_of(config, full)
        if "norm" in part and config.norm == "rms1":
            array = array + 1
        if layout.transposed and block and array.ndim == 2:
            array = array.T
        if layout.permuted and part in ("attn_q", "attn_k"):
            array = array.reshape(-1, 2, size // 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
        if layout.interleaved and part == "attn_qkv":
            array = array.reshape(-1, 3, size, *array.shape[1:]).swapaxes(0, 1).reshape(array.shape)
        stacks.setdefault(f"{block}{part}.{full.rpartition('.')[2]}", []).append(array)
    for full, parts in stacks.items():
        writer.add_tensor(full, np.stack(parts) if "_exps" in full else np.ascontiguousarray(parts[0]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("name", CASES)
def test_names_are_those_of_gguf_files(name: str) -> None:
    """The package gguf has the names of llama.cpp by architecture."""
    config = config_of(name)
    (architecture,) = [a for a, text in gguf.MODEL_ARCH_NAMES.items() if text == config.layout.architecture]
    published = {gguf.TENSOR_NAMES[tensor].replace("blk.{bid}.", "") for tensor in gguf.MODEL_TENSORS[architecture]}
    if config.dense_layers:  # llama.cpp has experts in all layers
        published |= {"ffn_gate", "ffn_up", "ffn_down"}
    assert {part_of(config, full)[1] for full in decoder.shapes(config)} <= published


@pytest.mark.numbers
@pytest.mark.parametrize("name", CASES)
def test_gguf_file_gives_the_same_logits(name: str, tmp_path: Path) -> None:
    to_gguf(tmp_path / "model.gguf", name)
    graph = decoder.build(config_of(name), tmp_path / "model.gguf", cache=model_of(name).buffers["keys0"].shape[2])
    (logits,) = gc.InferenceSession().load(graph)(np.array([PROMPT]), np.array([LENGTH]))
    (want,) = model_of(name).state()(np.array([PROMPT]), np.array([LENGTH]), np.array(1))
    np.testing.assert_allclose(logits, want[:, 0], atol=1e-5, rtol=1e-5)
