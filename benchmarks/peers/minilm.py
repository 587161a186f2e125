"""all-MiniLM-L6-v2 in the peers: functions from token ids and mask to embeddings, of the same weights."""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import graphcore as gc
from benchmarks.peers import minilm_by_hand, minilm_max
from benchmarks.peers.running import (
    Array,
    Case,
    Run,
    Subject,
    compiled,
    export,
    has,
    on_files,
    on_graphcore,
    on_onnxruntime,
    on_openvino,
    on_torch,
)
from graphcore.models import minilm
from graphcore.runtime.quantizer import SCHEMES

LAYERS, HEADS, EPSILON = 6, 12, 1e-12
LENGTH = 128
BY_HAND = "onnxruntime, best form by hand"

BOUNDS = (
    ("graphcore", BY_HAND, 1.05),
    ("graphcore", "PyTorch, eager", 1.0),
    ("graphcore", "onnxruntime on PyTorch's export", 1.0),
    ("graphcore on PyTorch's export", "onnxruntime on PyTorch's export", 0.9),
    ("graphcore, int8_split", "OpenVINO, float32", 1.0),
    ("graphcore, int8_split", "PyTorch, compile", 1.0),
)


def cases() -> tuple[Case, ...]:
    """Return sentences of which a quarter is padding."""
    results = []
    for batch, rounds in ((1, 15), (32, 3)):
        ids = np.random.default_rng(0).integers(1000, 30000, (batch, LENGTH))
        mask = np.ones_like(ids)
        mask[:, LENGTH - LENGTH // 4 :] = 0
        results.append(Case(f"MiniLM, {batch} of {LENGTH} tokens", batch, (ids, mask), rounds))
    return tuple(results)


def runs(threads: int, folder: Path, compiles: bool) -> Iterator[tuple[str, Run]]:
    """Return each installed peer and its function."""
    weights = gc.load_tensors(Path(minilm.folder()) / "model.safetensors")
    session = gc.InferenceSession(intra_op_num_threads=threads)
    graph = minilm.build(weights)
    yield "graphcore", on_graphcore(session.load(graph))
    for scheme in ("int8_dynamic", "int8_split", "int4"):
        if scheme in SCHEMES:
            yield f"graphcore, {scheme}", on_graphcore(session.load(gc.quantize(graph, scheme).graph))
    hand = minilm_by_hand.write(weights, folder / "by_hand.onnx")
    yield BY_HAND, on_onnxruntime(hand, threads, minilm_by_hand.DISABLED)
    if has("torch", "transformers"):
        yield from _pytorch(_torch_module(weights), session, threads, folder, compiles)
    if has("jax"):  # after PyTorch's compiler, which forks
        yield "JAX, jit", _jax(weights)
    if has("max", "mojo"):
        yield "MAX", minilm_max.run(weights, LAYERS, HEADS, EPSILON)


def _pytorch(
    module: Any, session: gc.InferenceSession, threads: int, folder: Path, compiles: bool
) -> Iterator[tuple[str, Run]]:
    yield "PyTorch, eager", on_torch(module, threads)
    if compiles:
        yield "PyTorch, compile", compiled(module, threads)
    if has("onnxscript"):
        path = _exported(module, folder)
        yield from on_files(path, session, threads)
        yield "onnxruntime.transformers' optimizer", on_onnxruntime(_optimised(path, folder), threads)
        yield from on_openvino(path, threads)


def _torch_module(weights: Any) -> Any:
    import torch
    from transformers import BertConfig, BertModel

    with open(Path(minilm.folder()) / "config.json") as file:
        data = json.load(file)
    own = {k: v for k, v in data.items() if k not in ("architectures", "transformers_version", "_name_or_path")}

    class Encoder(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel(BertConfig(**own), add_pooling_layer=False)
            tensors = {k: torch.from_numpy(np.array(v)) for k, v in weights.items() if not k.startswith("pooler")}
            self.bert.load_state_dict(tensors, strict=False)

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            counted = attention_mask.unsqueeze(-1).float()
            mean = (hidden * counted).sum(1) / counted.sum(1)
            return torch.nn.functional.normalize(mean, dim=1)

    return Encoder().eval()


def _exported(module: Any, folder: Path) -> Path:
    import torch

    ids, mask = (torch.ones((2, 16), dtype=torch.int64) for _ in range(2))  # the exporter merges equal inputs
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence", max=512)}
    names = ["input_ids", "attention_mask"]
    return export(module, (ids, mask), names, dict.fromkeys(names, dims), folder / "exported.onnx")


def _optimised(path: Path, folder: Path) -> Path:
    from onnxruntime.transformers import optimizer

    logging.getLogger("onnxruntime.transformers").setLevel(logging.ERROR)
    result = folder / "optimised.onnx"
    with contextlib.redirect_stdout(io.StringIO()):
        match = optimizer.optimize_model(str(path), "bert", num_heads=HEADS, hidden_size=384)
        match.save_model_to_file(str(result))
    return result


def _jax(weights: Any) -> Run:
    import jax
    from jax import numpy as jnp

    results = {name: jnp.asarray(np.array(array)) for name, array in weights.items()}

    def dense(x: Any, name: str) -> Any:
        return x @ results[f"{name}.weight"].T + results[f"{name}.bias"]

    def norm(x: Any, name: str) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + EPSILON)
        return centred * scale * results[f"{name}.weight"] + results[f"{name}.bias"]

    @jax.jit  # type: ignore[untyped-decorator, unused-ignore]
    def encode(ids: Any, mask: Any) -> Any:
        batch, length = ids.shape
        x = results["embeddings.word_embeddings.weight"][ids]
        x = x + results["embeddings.position_embeddings.weight"][:length]
        x = norm(x + results["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        added = jnp.where(mask[:, None, None, :] == 1, 0.0, -jnp.inf)
        for layer in range(LAYERS):
            name = f"encoder.layer.{layer}"
            parts = [dense(x, f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
            q, k, v = (p.reshape(batch, length, HEADS, -1).transpose(0, 2, 1, 3) for p in parts)
            scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1]).astype(np.float32) + added
            mixed = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(batch, length, -1)
            x = norm(dense(mixed, f"{name}.attention.output.dense") + x, f"{name}.attention.output.LayerNorm")
            wide = jax.nn.gelu(dense(x, f"{name}.intermediate.dense"), approximate=False)
            x = norm(dense(wide, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")
        counted = mask[..., None].astype(jnp.float32)
        mean = (x * counted).sum(1) / counted.sum(1)
        return mean / jnp.linalg.norm(mean, axis=1, keepdims=True)

    def run(ids: Array, mask: Array) -> Array:
        return np.asarray(encode(ids, mask))

    return run


SUBJECT = Subject("minilm", cases, runs, BOUNDS)
