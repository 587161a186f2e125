"""A Llama-like decoder of 100 million random weights in the peers: a prompt, and a token after one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import graphcore as gc
from benchmarks.bench_decode import CONFIG
from benchmarks.peers.running import (
    Array,
    Case,
    Run,
    Subject,
    export,
    has,
    on_files,
    on_openvino,
    package,
    saved,
)
from graphcore.models import llama

PROMPT, BEFORE, CACHE = 128, 200, 256
"""Tokens of the prompt that is read, those in front of the token that is, and those that a cache has room for."""

BOUNDS = (
    ("graphcore", "PyTorch, eager", 1.0),
    ("graphcore", "onnxruntime on PyTorch's export", 1.0),
)


def cases() -> tuple[Case, ...]:
    return (
        Case(f"Llama-like 100M, 1 token after {BEFORE}", 1, (tokens(BEFORE + 1)[:, BEFORE:],), 15),
        Case(f"Llama-like 100M, a prompt of {PROMPT} tokens", 1, (tokens(PROMPT),), 4),
    )


def tokens(count: int) -> Array:
    return np.random.default_rng(0).integers(0, CONFIG.vocabulary, (1, CACHE))[:, :count]


def runs(threads: int, folder: Path, compiles: bool) -> Iterator[tuple[str, Run]]:
    """Return each installed peer and its function; nothing without PyTorch.

    Its compiler is left out: it compiles again for each length of the cache.
    """
    if not has("torch", "transformers", "onnxscript"):
        return
    module = _torch_module()
    graph = llama.build(*saved(module, folder), cache=CACHE)
    session = gc.InferenceSession(intra_op_num_threads=threads)
    yield "graphcore", _ours(session.load(graph))
    yield "graphcore, int8_dynamic", _ours(session.load(gc.quantize(graph, "int8_dynamic").graph))
    yield "graphcore, int4", _ours(session.load(gc.quantize(graph, "int4", block_size=128).graph))
    past = _past(module)
    yield "PyTorch, eager", _on_torch(module, past, threads)
    yield "PyTorch, eager, StaticCache", _on_torch_static(module)
    path = _exported(module, folder)
    for name, run in (*on_files(path, session, threads), *on_openvino(path, threads)):
        yield name, _with_past(run, past)


def _ours(model: gc.Model) -> Run:
    """Return a run of the same token at the same position in every turn; later rows of the cache have no meaning."""
    decoding, prompt = model.state(), model.state()
    decoding(tokens(BEFORE), np.array([BEFORE]))

    def run(fed: Array) -> Array:
        state, length = (prompt, fed.shape[1]) if fed.shape[1] > 1 else (decoding, BEFORE + 1)
        result: Array = state(fed, np.array([length]))[0]
        return result

    return run


def _torch_module() -> Any:
    package("torch").manual_seed(0)
    transformers = package("transformers")
    result = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=CONFIG.vocabulary, hidden_size=CONFIG.width, intermediate_size=CONFIG.inner,
            num_hidden_layers=CONFIG.layers, num_attention_heads=CONFIG.heads, num_key_value_heads=CONFIG.kv_heads,
            head_dim=CONFIG.size, max_position_embeddings=CONFIG.positions, rms_norm_eps=CONFIG.epsilon,
            tie_word_embeddings=True,
        )
    )  # fmt: skip
    return result.eval()


def _cache(module: Any, past: list[Any]) -> Any:
    """Return a cache that grows. past: keys and values of each layer in turn."""
    result = package("transformers").DynamicCache(config=module.config)
    for layer, keys, values in zip(result.layers, past[::2], past[1::2], strict=True):
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
    return result


def _past(module: Any) -> list[Array]:
    """Return keys and values of the tokens before."""
    torch = package("torch")
    cache = package("transformers").DynamicCache(config=module.config)
    with torch.inference_mode():
        module(input_ids=torch.from_numpy(tokens(BEFORE)), past_key_values=cache)
    return [part.numpy() for layer in cache.layers for part in (layer.keys, layer.values)]


def _empty(past: list[Array]) -> list[Array]:
    return [part[:, :, :0] for part in past]


def _with_past(run: Run, past: list[Array]) -> Run:
    """Run a peer that takes keys and values as arrays and returns them longer; none does so in place."""
    return lambda fed: run(fed, *(_empty(past) if fed.shape[1] > 1 else past))


def _on_torch(module: Any, past: list[Array], threads: int) -> Run:
    torch = package("torch")
    torch.set_num_threads(threads)
    results = [torch.from_numpy(part) for part in past]

    def run(fed: Array) -> Array:
        with torch.inference_mode():
            cache = _cache(module, results if fed.shape[1] == 1 else [part[:, :, :0] for part in results])
            logits = module(input_ids=torch.from_numpy(fed), past_key_values=cache, logits_to_keep=1).logits
            result: Array = logits[:, -1].numpy()
        return result

    return run


def _on_torch_static(module: Any) -> Run:
    torch = package("torch")

    def filled(before: int) -> Callable[[Array], Any]:
        def again() -> None:
            for layer in cache.layers:
                if hasattr(layer, "cumulative_length"):
                    layer.cumulative_length.fill_(before)

        def run(fed: Array) -> Any:
            again()
            return module(input_ids=torch.from_numpy(fed), past_key_values=cache, logits_to_keep=1).logits

        cache = package("transformers").StaticCache(config=module.config, max_cache_len=CACHE)
        with torch.inference_mode():
            module(input_ids=torch.from_numpy(tokens(max(before, 1))), past_key_values=cache)
        return run

    decoding, prompt = filled(BEFORE), filled(0)

    def run(fed: Array) -> Array:
        with torch.inference_mode():
            result: Array = (decoding if fed.shape[1] == 1 else prompt)(fed)[:, -1].numpy()
        return result

    return run


def _exported(module: Any, folder: Path) -> Path:
    import torch

    class Step(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.own = module

        def forward(self, fed: Any, *past: Any) -> Any:
            cache = _cache(self.own, list(past))
            before, count = past[0].shape[2], fed.shape[1]
            places = torch.arange(count) + before
            hidden = torch.arange(before + count)[None, :] > places[:, None]
            mask = torch.where(hidden, torch.finfo(torch.float32).min, 0.0)[None, None]
            result = self.own(
                input_ids=fed, attention_mask=mask, position_ids=places[None], past_key_values=cache, logits_to_keep=1
            )
            return result.logits[:, -1], *(part for layer in cache.layers for part in (layer.keys, layer.values))

    count, before = torch.export.Dim("sequence"), torch.export.Dim("before")
    shape = (1, CONFIG.kv_heads, 24, CONFIG.size)
    past = tuple(torch.zeros(shape) for _ in range(2 * CONFIG.layers))
    names = ["tokens", *(f"{kind}{i}" for i in range(CONFIG.layers) for kind in ("keys", "values"))]
    dims = ({1: count}, tuple({2: before} for _ in past))
    fed = torch.ones((1, 16), dtype=torch.int64)
    with torch.no_grad():
        return export(Step().eval(), (fed, *past), names, dims, folder / "exported.onnx")


SUBJECT = Subject("llama", cases, runs, BOUNDS)
