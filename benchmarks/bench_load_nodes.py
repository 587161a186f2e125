"""Loading models of 1,000 to 100,000 small nodes, as they are and through a Graph, beside onnxruntime by itself.

    python -m benchmarks.bench_load_nodes [COUNT ...]

Two models: a chain of sums, and, up to 10,000 nodes, layers of a product, a sum, Relu, Reshape and two Transposes on
shared weights. Processor time of a load up to the session; of the ratios of turns the lower quartile and the median.
"""

from __future__ import annotations

import gc as collector
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import graphcore as gc
from benchmarks.bench_load import chain, model
from benchmarks.timing import Bounds, Ratio

ROUNDS = {1_000: 21, 10_000: 7, 40_000: 2, 100_000: 1}
"""Turns by number of nodes."""

MAX_LAYERS = 10_000

DIRECT = 1.15
THROUGH = {"sums": {1_000: 1.8}, "layers": {1_000: 3.5, 10_000: 2.0}}
"""The most that is asked for. Through a Graph 1.6 where nothing else is said."""


def layers(count: int) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(random.standard_normal((4, 4)).astype(np.float32), "w"),
        numpy_helper.from_array(random.standard_normal(4).astype(np.float32), "b"),
        numpy_helper.from_array(np.array([-1, 4], np.int64), "s"),
    ]
    nodes: list[onnx.NodeProto] = []
    value = "x"
    for i in range(count // 6):
        steps: list[tuple[str, list[str], dict[str, Any]]] = [
            ("MatMul", [value, "w"], {}), ("Add", [f"p{i}", "b"], {}), ("Relu", [f"a{i}"], {}),
            ("Reshape", [f"r{i}", "s"], {}), ("Transpose", [f"f{i}"], {"perm": [1, 0]}),
            ("Transpose", [f"t{i}"], {"perm": [1, 0]}),
        ]  # fmt: skip
        results = [f"{letter}{i}" for letter in "parfty"]
        for (op_type, names, attributes), result in zip(steps, results, strict=True):
            nodes.append(helper.make_node(op_type, names, [result], name=f"n_{result}", **attributes))
        value = f"y{i}"
    return model(nodes, ["batch", 4], value, weights)


def turns(ours: Callable[[], object], peer: Callable[[], object], rounds: int) -> tuple[Ratio, float]:
    """Return the lower quartile of the ratios of turns, with the median seconds, and the median of the ratios."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for which in (0, 1) if number % 2 else (1, 0):
            collector.collect()
            begun = time.process_time()
            result = (ours, peer)[which]()
            taken = time.process_time() - begun
            del result
            if number:
                seconds[which].append(taken)
    ratios = sorted(a / b for a, b in zip(*seconds, strict=True))
    return Ratio(ratios[len(ratios) // 4], *map(statistics.median, seconds)), statistics.median(ratios)


def main(*counts: str) -> int:
    bounds = Bounds()
    session = gc.InferenceSession(intra_op_num_threads=1)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.onnx")
        for count in map(int, counts or ROUNDS):
            for what, item in (("sums", chain), ("layers", layers)):
                if what == "layers" and count > MAX_LAYERS:  # onnxruntime takes minutes
                    continue
                onnx.save(item(count), path)
                rounds = ROUNDS.get(count, 5)
                for way, load, most in (
                    ("as they are", lambda: session.load(path), DIRECT),
                    ("through a Graph", lambda: session.load(gc.Graph.load(path)), THROUGH[what].get(count, 1.6)),
                ):
                    ratio, median = turns(load, lambda: _bare(path), rounds)
                    bounds.ratio(f"{count} {what} {way} (median {median:.2f})", ratio, most)
    return bounds.exit_code()


def _bare(path: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
