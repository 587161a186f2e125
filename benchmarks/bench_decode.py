"""Decoding with a Llama-like model of 100 million weights, beside onnxruntime that is fed by hand.

python -m benchmarks.bench_decode

The peer is a bare session on the file that the decoder exports, with one cache bound as input and as output, and only
the token and the length written between steps. The further rows: a longer cache with as much in it, which must not make
a step slower, since no step copies it; and 4-bit weights. Random weights, a prompt of 100 tokens that is read off the
clock, 8 greedy steps a turn, one thread and its time on the processor; the last line is with all cores, by the wall.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import graphcore as gc
from benchmarks.timing import Bounds, Ratio, compare
from graphcore import Graph, models
from graphcore.models import llama

CONFIG = llama.Config(vocabulary=32_000, width=768, inner=2048, layers=12, heads=12, kv_heads=4, size=64)
PROMPT = [int(token) for token in np.random.default_rng(0).integers(0, CONFIG.vocabulary, 100)]
STEPS, ROUNDS = 8, 15
CACHE = 256

HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Measured: without these a step takes 5 to 13 % longer in the session that starts first, whichever that is."""


class Ours:
    """Steps of `models.stream`."""

    def __init__(self, graph: Graph, **options: Any) -> None:
        self.model = gc.InferenceSession(**options).load(graph)
        self.begin()

    def begin(self) -> None:
        self.steps = models.stream(self.model, PROMPT, CACHE - len(PROMPT) + 1)
        next(self.steps)

    def __call__(self) -> list[int]:
        return [int(next(self.steps)[0]) for _ in range(STEPS)]


class ByHand:
    """The same steps on a session, with everything bound beforehand."""

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = [i.name for i in self.session.get_inputs() if i.name not in ("tokens", "lengths")]
        shape = (1, CONFIG.kv_heads, CACHE, CONFIG.size)
        caches = {name: onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32)) for name in names}
        logits = self._bind(caches, np.array([PROMPT]), np.array([len(PROMPT)]))
        self.token, self.length = np.array([[logits().argmax()]]), np.array([len(PROMPT) + 1])
        self.step = self._bind(caches, self.token, self.length)

    def _bind(self, caches: dict[str, Any], tokens: Any, lengths: Any) -> Any:
        binding = self.session.io_binding()
        binding.bind_cpu_input("tokens", tokens)
        binding.bind_cpu_input("lengths", lengths)
        for name, cache in caches.items():
            binding.bind_ortvalue_input(name, cache)
            binding.bind_ortvalue_output(f"{name}_out", cache)
        logits = np.empty((1, CONFIG.vocabulary), np.float32)
        held = onnxruntime.OrtValue.ortvalue_from_numpy(logits)
        binding.bind_ortvalue_output("logits", held)

        def run() -> Any:
            self.session.run_with_iobinding(binding)
            return held.numpy()

        return run

    def __call__(self) -> list[int]:
        made = []
        for _ in range(STEPS):
            token = int(self.step().argmax())
            made.append(token)
            self.token[0, 0] = token
            self.length += 1
        return made


def both(first: Ours, second: Ours | ByHand) -> Ratio:
    """Times the steps of both in turn, from where they are."""
    return compare(first, second, ROUNDS, clock=time.process_time)


def main() -> int:
    bounds = Bounds()
    graph = llama.build(CONFIG, cache=CACHE)
    ours = Ours(graph, intra_op_num_threads=1)
    assert len(ours.model.buffers.in_place) == 2 * CONFIG.layers
    with tempfile.TemporaryDirectory() as folder:
        graph.export(Path(folder) / "llama.onnx")
        hand = ByHand(Path(folder) / "llama.onnx")
        assert ours() == hand(), "both choose the same tokens"
        ratio = both(ours, hand)
        del hand
    weights = sum(int(np.prod(shape)) for shape in llama.shapes(CONFIG).values())
    print(f"{weights / 1e6:.0f}M weights: {STEPS / ratio.ours:.1f} tokens a second, by hand {STEPS / ratio.peer:.1f}")
    bounds.ratio(f"a step, cache {CACHE}, beside by hand", ratio, 1.1, STEPS)
    ours.begin()
    longer = Ours(llama.build(CONFIG, cache=1024), intra_op_num_threads=1)
    bounds.ratio(f"a step, cache 1024, beside cache {CACHE}", both(longer, ours), 1.1, STEPS)
    del longer
    ours.begin()
    fours = Ours(gc.quantize(graph, "int4", block_size=128).graph, intra_op_num_threads=1)
    assert fours.model.buffers.in_place == ours.model.buffers.in_place
    ratio = both(fours, ours)
    bounds.ratio("a step, 4 bits, beside float32", ratio, 0.27, STEPS)
    del ours, fours
    every = Ours(graph)
    started = time.perf_counter()
    made = sum(len(every()) for _ in range(4))
    print(f"all cores: {made / (time.perf_counter() - started):.1f} tokens a second")
    return bounds.exit_code()


if __name__ == "__main__":
    if "GLIBC_TUNABLES" not in os.environ:
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.bench_decode"], {**os.environ, **HUGE_PAGES})
    sys.exit(main())
