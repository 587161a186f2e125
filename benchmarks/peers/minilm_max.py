"""MiniLM in the MAX Graph API, with the same ops as `graphcore.models.minilm`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.peers.running import Array, Run, package


def run(weights: Mapping[str, Any], layers: int, heads: int, epsilon: float) -> Run:
    """Return a function compiled for the CPU, which takes a minute unless MAX has cached it."""
    session = package("max.engine").InferenceSession(devices=[package("max.driver").CPU()])
    model = session.load(_graph(weights, layers, heads, epsilon))

    def run(ids: Array, mask: Array) -> Array:
        return np.asarray(model.execute(ids, mask)[0].to_numpy())

    return run


def _graph(weights: Mapping[str, Any], layers: int, heads: int, epsilon: float) -> Any:
    graph, ops, dtype = package("max.graph"), package("max.graph.ops"), package("max.dtype").DType
    cpu = graph.DeviceRef.CPU()
    batch, length = graph.Dim("batch"), graph.Dim("length")

    def weight(name: str, turned: bool = False) -> Any:
        array = np.array(weights[name])
        return ops.constant(np.ascontiguousarray(array.T if turned else array), dtype.float32, device=cpu)

    def dense(x: Any, name: str) -> Any:
        return x @ weight(f"{name}.weight", turned=True) + weight(f"{name}.bias")

    def norm(x: Any, name: str) -> Any:
        return ops.layer_norm(x, weight(f"{name}.weight"), weight(f"{name}.bias"), epsilon)

    tokens = graph.TensorType(dtype.int64, [batch, length], cpu)
    with graph.Graph("minilm", input_types=[tokens, tokens]) as result:
        ids, mask = (value.tensor for value in result.inputs)
        seen = mask.cast(dtype.float32)
        hidden = (seen.reshape([batch, 1, 1, length]) - 1.0) * 1e30
        places = ops.range(0, length, 1, out_dim=length, dtype=dtype.int64, device=cpu)
        x = ops.gather(weight("embeddings.word_embeddings.weight"), ids, axis=0)
        x = x + ops.gather(weight("embeddings.position_embeddings.weight"), places, axis=0)
        x = x + weight("embeddings.token_type_embeddings.weight")[0]
        x = norm(x, "embeddings.LayerNorm")
        width = x.shape[-1]
        size = int(width) // heads
        for layer in range(layers):
            name = f"encoder.layer.{layer}"
            parts = [dense(x, f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
            q, k, v = (ops.permute(p.reshape([batch, length, heads, size]), [0, 2, 1, 3]) for p in parts)
            scores = (q @ ops.permute(k, [0, 1, 3, 2])) * size**-0.5 + hidden
            mixed = ops.permute(ops.softmax(scores) @ v, [0, 2, 1, 3]).reshape([batch, length, width])
            x = norm(dense(mixed, f"{name}.attention.output.dense") + x, f"{name}.attention.output.LayerNorm")
            wide = ops.gelu(dense(x, f"{name}.intermediate.dense"))
            x = norm(dense(wide, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")
        counted = seen.reshape([batch, length, 1])
        mean = ops.squeeze(ops.sum(x * counted, axis=1), 1) / ops.squeeze(ops.sum(counted, axis=1), 1)
        result.output(mean * ops.rsqrt(ops.sum(mean * mean, axis=-1)))
    return result
