"""Batches: `Model.map` over rows of several lengths, beside one call of everything.

    python -m benchmarks.bench_batches

Processor time of one thread, both sides in turn. `python -m benchmarks.bench_embed` has sentences.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import graphcore as gc
from benchmarks.timing import Bounds, compare
from graphcore import Graph, TensorType, ops

MAP_BOUND = 1.0


def mapping(bounds: Bounds) -> None:
    random = np.random.default_rng(0)
    graph = Graph(
        "tagger", {"tokens": TensorType("int64", ["batch", "n"]), "mask": TensorType("float32", ["batch", "n"])}
    )
    x = ops.gather(graph.weight("words", random.standard_normal((1000, 256), np.float32)), graph["tokens"])
    for i in range(4):
        x = ops.relu(x @ graph.weight(f"w{i}", random.standard_normal((256, 256), np.float32) / 16))
    graph.output(
        mean=ops.sum(x * ops.unsqueeze(graph["mask"], -1), axis=1) / ops.sum(graph["mask"], axis=1, keepdims=True)
    )
    model = gc.InferenceSession(intra_op_num_threads=1).load(graph)
    lengths = random.integers(5, 200, 500)
    items = [(random.integers(0, 1000, n), np.ones(n, np.float32)) for n in lengths]
    tokens = np.zeros((len(items), lengths.max()), np.int64)
    ones = np.zeros(tokens.shape, np.float32)
    for number, (row, one) in enumerate(items):
        tokens[number, : row.size], ones[number, : row.size] = row, one

    def ours() -> Any:
        return np.stack([mean for (mean,) in model.map(items, pad=0)])

    for _ in range(3):
        assert np.abs(ours() - model(tokens, ones)[0]).max() < 1e-4
    ratio = compare(ours, lambda: model(tokens, ones), 9, clock=time.process_time)
    bounds.ratio("map, 500 rows of 5 to 199, one call of all", ratio, MAP_BOUND)


def main() -> int:
    bounds = Bounds()
    mapping(bounds)
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
