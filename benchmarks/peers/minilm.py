"""all-MiniLM-L6-v2 in the peers: functions from token ids and mask to embeddings, of the same weights."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnxruntime

import graphcore as gc
from graphcore.models import minilm
from graphcore.runtime.quantizing import SCHEMES

Run: TypeAlias = Callable[[np.ndarray[Any, Any], np.ndarray[Any, Any]], np.ndarray[Any, Any]]

LAYERS, HEADS, EPSILON = 6, 12, 1e-12


def has(*packages: str) -> bool:
    return all(importlib.util.find_spec(package) is not None for package in packages)


def runs(threads: int, folder: Path) -> Iterator[tuple[str, Run]]:
    """Each peer that is installed and its function. folder: where models may be written."""
    weights = gc.load_tensors(Path(minilm.folder()) / "model.safetensors")
    session = gc.InferenceSession(intra_op_num_threads=threads)
    graph = minilm.build(weights)
    yield "graphcore", _model(session.load(graph))
    for scheme in ("int8_dynamic", "int8_split", "int4"):
        if scheme in SCHEMES:
            yield f"graphcore, {scheme}", _model(session.load(gc.quantize(graph, scheme).graph))
    if not has("torch", "transformers", "onnxscript"):
        return
    module = _torch_module(weights)
    yield "PyTorch, eager", _torch_run(module, threads)
    path = _exported(module, folder)
    yield "graphcore on PyTorch's export", _model(session.load(path))
    yield "onnxruntime on PyTorch's export", _onnxruntime(path, threads)
    yield "onnxruntime.transformers' optimizer", _onnxruntime(_optimised(path, folder), threads)
    if has("openvino"):
        yield "OpenVINO, float32", _openvino(path, threads, "f32")
        yield "OpenVINO, bfloat16", _openvino(path, threads, "bf16")
    if has("jax"):
        yield "JAX, jit", _jax(weights)


def compiled(threads: int) -> Iterator[tuple[str, Run]]:
    """PyTorch's compiler, which takes minutes and a C++ compiler."""
    if has("torch", "transformers"):
        import torch

        weights = gc.load_tensors(Path(minilm.folder()) / "model.safetensors")
        yield "PyTorch, compile", _torch_run(torch.compile(_torch_module(weights)), threads)


def _model(model: gc.Model) -> Run:
    def run(ids: np.ndarray[Any, Any], mask: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        made: np.ndarray[Any, Any] = model(ids, mask)[0]
        return made

    return run


def _onnxruntime(path: Path, threads: int) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]

    def run(ids: np.ndarray[Any, Any], mask: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        made: np.ndarray[Any, Any] = session.run(None, dict(zip(names, (ids, mask), strict=True)))[0]
        return made

    return run


def _torch_module(weights: Any) -> Any:
    import torch
    from transformers import BertConfig, BertModel

    with open(Path(minilm.folder()) / "config.json") as file:
        held = json.load(file)
    own = {k: v for k, v in held.items() if k not in ("architectures", "transformers_version", "_name_or_path")}

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


def _torch_run(module: Any, threads: int) -> Run:
    import torch

    torch.set_num_threads(threads)

    def run(ids: np.ndarray[Any, Any], mask: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with torch.inference_mode():
            made: np.ndarray[Any, Any] = module(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()
        return made

    return run


def _exported(module: Any, folder: Path) -> Path:
    import torch

    path = folder / "exported.onnx"
    ids, mask = (torch.ones((2, 16), dtype=torch.int64) for _ in range(2))  # of one tensor the exporter makes one input
    batch, sequence = torch.export.Dim("batch"), torch.export.Dim("sequence", max=512)
    dims = {0: batch, 1: sequence}
    torch.onnx.export(
        module, (ids, mask), path, input_names=["input_ids", "attention_mask"], output_names=["result"],
        dynamic_shapes={"input_ids": dims, "attention_mask": dims}, dynamo=True, external_data=False, verbose=False,
    )  # fmt: skip
    return path


def _optimised(path: Path, folder: Path) -> Path:
    from onnxruntime.transformers import optimizer

    made = folder / "optimised.onnx"
    optimizer.optimize_model(str(path), "bert", num_heads=HEADS, hidden_size=384).save_model_to_file(str(made))
    return made


def _openvino(path: Path, threads: int, precision: str) -> Run:
    import openvino

    options = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    request = openvino.Core().compile_model(str(path), "CPU", options).create_infer_request()

    def run(ids: np.ndarray[Any, Any], mask: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.array(next(iter(request.infer([ids, mask]).values())))

    return run


def _jax(weights: Any) -> Run:
    import jax
    from jax import numpy as jnp

    held = {name: jnp.asarray(np.array(array)) for name, array in weights.items()}

    def dense(x: Any, name: str) -> Any:
        return x @ held[f"{name}.weight"].T + held[f"{name}.bias"]

    def norm(x: Any, name: str) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + EPSILON)
        return centred * scale * held[f"{name}.weight"] + held[f"{name}.bias"]

    @jax.jit  # type: ignore[untyped-decorator, unused-ignore]
    def encode(ids: Any, mask: Any) -> Any:
        batch, length = ids.shape
        x = held["embeddings.word_embeddings.weight"][ids]
        x = x + held["embeddings.position_embeddings.weight"][:length]
        x = norm(x + held["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
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

    def run(ids: np.ndarray[Any, Any], mask: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.asarray(encode(ids, mask))

    return run
