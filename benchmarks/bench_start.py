"""Starts: from imported modules to the first result, each in a new process.

    python -m benchmarks.bench_start

MiniLM is read from its safetensors file, built, loaded and run on one sentence of 12 tokens, without the tokenizer.
Beside it are bare onnxruntime sessions of its exported file, with weights inside and with external weights. The time is
processor time of one thread, the median of the processes; the least wall time is shown too.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import onnxruntime

import graphcore as gc
from benchmarks.timing import Bounds, Ratio, child, compare
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import MissingExtraError
from graphcore.models import minilm
from graphcore.runtime import lowering

START_BOUND = 0.06
PACKED_BOUND = 0.08
SUM_BOUND = 0.02
SCREEN_BOUND = 0.03
FINISHED_BOUND = 1.7  # a warm start of a file lowered before
BARE_BOUND = 1.0
INSIDE_BOUND = 0.5
PACKING_BOUND = 1.0
ROUNDS = 9

IDS = np.arange(1000, 1012).reshape(1, 12)
FEED = {"input_ids": IDS, "attention_mask": np.ones_like(IDS)}


def in_place(folder: Path) -> object:
    return _embedded("off")


def packed(folder: Path) -> object:
    return _embedded("auto")


def _embedded(prepack: Literal["auto", "off"]) -> object:
    weights = gc.load_tensors(Path(minilm.folder()) / "model.safetensors")
    return gc.InferenceSession(intra_op_num_threads=1).load(minilm.build(weights), prepack=prepack)(**FEED)


def inside(folder: Path) -> object:
    return _bare(folder / "inside.onnx", "0")


def beside(folder: Path) -> object:
    return _bare(folder / "beside.onnx", "0")


def beside_in_place(folder: Path) -> object:
    return _bare(folder / "beside.onnx", "1")


def _bare(path: Path, is_unpacked: str) -> object:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_prepacking", is_unpacked)
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, FEED)


def added(folder: Path) -> object:
    graph = Graph("sum", {"x": TensorType(DType.float32, ["n"]), "y": TensorType(DType.float32, ["n"])})
    x, y = graph.inputs
    graph.output(z=x + y)
    return gc.InferenceSession(intra_op_num_threads=1).load(graph)(np.ones(3, np.float32), np.ones(3, np.float32))


def screen(folder: Path) -> object:
    graph = Graph("scale", {"tokens": TensorType(DType.int8, ["batch", 4]), "gain": TensorType(DType.bfloat16, [4])})
    tokens, gain = graph.inputs
    graph.output(prob=ops.softmax(tokens * gain + 1))
    model = gc.InferenceSession(intra_op_num_threads=1).load(graph)
    return str(graph), model(np.ones((1, 4), np.int8), np.ones(4, DType.bfloat16.numpy))


STARTS: dict[str, Callable[[Path], object]] = {
    start.__name__: start for start in (in_place, packed, inside, beside, beside_in_place, added, screen)
}


def start_once(name: str, folder: str) -> dict[str, float]:
    """Return the seconds to the first result in this process: processor time and wall time."""
    _ = gc.InferenceSession, lowering.lower  # imports the runtime, and what lowers graphs
    begun, before = time.process_time(), time.perf_counter()
    STARTS[name](Path(folder))
    return {"first": time.process_time() - begun, "wall": time.perf_counter() - before}


class Starts:
    """The starts of some rounds, each round one of each kind."""

    def __init__(self, names: list[str], folder: str) -> None:
        self._found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for number in range(ROUNDS + 1):
            for name, item in self._found.items():
                result = child("benchmarks.bench_start", name, folder)
                if number:  # the first compiles modules and reads files from the disk
                    item.append(result)

    def median(self, name: str) -> float:
        return statistics.median(run["first"] for run in self._found[name])

    def figure(self, bounds: Bounds, what: str, name: str, most: float) -> None:
        quickest = min(run["wall"] for run in self._found[name])
        detail = f"the quickest {quickest:.3f} s by the clock"
        bounds.figure(what, self.median(name), most, "s", detail)

    def ratio(self, bounds: Bounds, what: str, ours: str, peer: str, most: float) -> None:
        ratios = [a["first"] / b["first"] for a, b in zip(self._found[ours], self._found[peer], strict=True)]
        bounds.ratio(what, Ratio(statistics.median(ratios), self.median(ours), self.median(peer)), most)


def packing(bounds: Bounds, graph: Graph) -> None:
    """Return the gain of the default per call, for its cost at the start."""
    session = gc.InferenceSession(intra_op_num_threads=1)
    models = [session.load(graph, prepack=prepack) for prepack in ("on", "off")]
    for length in (12, 128):
        ids = np.random.default_rng(0).integers(0, 30000, (1, length))
        ours, peer = (functools.partial(model, ids, np.ones_like(ids)) for model in models)
        ratio = compare(ours, peer, 21, clock=time.process_time)
        bounds.ratio(f"MiniLM, {length} tokens: a call, packed beside not", ratio, PACKING_BOUND)


def main() -> int:
    bounds = Bounds()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        os.environ |= {"PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        small = Starts(["added", "screen"], folder)
        small.figure(bounds, "x + y: to the first result", "added", SUM_BOUND)
        small.figure(bounds, "README's first screen: to its last line", "screen", SCREEN_BOUND)
        try:
            graph = minilm.build(gc.load_tensors(Path(minilm.folder()) / "model.safetensors"))
        except MissingExtraError as error:
            print(f"no starts of MiniLM: {error.summary} ({error.help})")
            return bounds.exit_code()
        graph.export(Path(folder) / "inside.onnx")
        graph.export(Path(folder) / "beside.onnx", external_data=True)
        starts = Starts(["in_place", "packed", "inside", "beside", "beside_in_place"], folder)
    starts.figure(bounds, "MiniLM, after imports to the first embedding", "in_place", START_BOUND)
    starts.ratio(bounds, "the same, beside bare on the finished file", "in_place", "beside_in_place", FINISHED_BOUND)
    starts.figure(bounds, "MiniLM, prepacked: to the first embedding", "packed", PACKED_BOUND)
    starts.ratio(bounds, "the same, beside bare, weights beside the file", "packed", "beside", BARE_BOUND)
    starts.ratio(bounds, "the same, beside bare, weights in the file", "packed", "inside", INSIDE_BOUND)
    packing(bounds, graph)
    return bounds.exit_code()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(start_once(sys.argv[1], sys.argv[2])))
        sys.exit()
    sys.exit(main())
