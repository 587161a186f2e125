"""Decoding with a Llama-like model of 100 million weights, beside onnxruntime fed by hand.

python -m benchmarks.bench_decode

The peer is a bare session of the file that the decoder exports, whose attention is GroupQueryAttention, with one cache
bound as input and as output, and only the token and the length written between steps. The order in which two sessions
start decides where their weights lie in memory, so a ratio is the mean of both orders. Random weights; an untimed
prompt of half of a cache of 256 and seven eighths of one of 900, after the calls in which a session gathers its memory
in large pages; 8 greedy steps per turn; CPU time of one thread. The row of two threads is wall time, beside the same
with one; the row of memory is the growth of private memory over 100 steps, beside the cache, allocated before. That of
a start with 4 bits is the growth of a process that loads the file and takes four steps of two texts. Steps at 8000
tokens have caches of random numbers, of int8 beside float32.
"""

from __future__ import annotations

import gc as collector
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import graphcore as gc
from benchmarks.bench_running import megabytes
from benchmarks.timing import Bounds, Ratio, child, compare
from graphcore import Graph, models
from graphcore.models import llama

CONFIG = llama.Config(vocabulary=32_000, width=768, inner=2048, layers=12, heads=12, kv_heads=4, size=64)
STEPS, ROUNDS = 8, 7
GATHERING = 70  # calls after which a session has gathered its memory in large pages
SHORT, LONG = 256, 900
PROMPTS = {
    cache: [int(token) for token in np.random.default_rng(0).integers(0, CONFIG.vocabulary, length)]
    for cache, length in ((SHORT, 128), (LONG, 780))
}
CACHE_MB = 2 * CONFIG.layers * CONFIG.kv_heads * CONFIG.size * 4e-6  # for each token


class Ours:
    """Steps of `models.stream`."""

    def __init__(self, graph: Graph, cache: int, threads: int = 1) -> None:
        self.model = gc.InferenceSession(intra_op_num_threads=threads).load(graph)
        assert len(self.model.buffers.in_place) == 2 * CONFIG.layers
        for _ in models.stream(self.model, PROMPTS[cache][:1], GATHERING):
            pass
        self.steps = models.stream(self.model, PROMPTS[cache], cache - len(PROMPTS[cache]) + 1)
        next(self.steps)

    def __call__(self) -> list[int]:
        return [int(next(self.steps)[0]) for _ in range(STEPS)]


class ByHand:
    """The same steps on a session, with everything bound beforehand."""

    def __init__(self, path: Path, cache: int) -> None:
        prompt = PROMPTS[cache]
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = [i.name for i in self.session.get_inputs() if i.name not in ("tokens", "lengths")]
        shape = (1, CONFIG.kv_heads, cache, CONFIG.size)
        caches = {name: onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32)) for name in names}
        logits = self._bind(caches, np.array([prompt]), np.array([len(prompt)]))
        self.token, self.length = np.array([[logits().argmax()]]), np.array([len(prompt) + 1])
        self.step = self._bind(caches, self.token, self.length)

    def _bind(self, caches: dict[str, Any], tokens: Any, lengths: Any) -> Any:
        binding = self.session.io_binding()
        binding.bind_cpu_input("tokens", tokens)
        binding.bind_cpu_input("lengths", lengths)
        for name, cache in caches.items():
            binding.bind_ortvalue_input(name, cache)
            binding.bind_ortvalue_output(f"{name}_out", cache)
        logits = np.empty((1, CONFIG.vocabulary), np.float32)
        value = onnxruntime.OrtValue.ortvalue_from_numpy(logits)
        binding.bind_ortvalue_output("logits", value)

        def run() -> Any:
            self.session.run_with_iobinding(binding)
            return value.numpy()

        return run

    def __call__(self) -> list[int]:
        results = []
        for _ in range(STEPS):
            token = int(self.step().argmax())
            results.append(token)
            self.token[0, 0] = token
            self.length += 1
        return results


def beside_hand(graph: Graph, cache: int, folder: Path, *, is_same: bool = True) -> Ratio:
    """Return the mean of both orders of start.

    is_same: whether both compute the prompt alike; with 4 bits a session multiplies its many rows in int8, and a file
    does not.
    """
    path = folder / "llama.onnx"
    graph.export(path)
    ratios = []
    for is_first in (True, False):
        ours = Ours(graph, cache) if is_first else None
        hand = ByHand(path, cache)
        ours = ours or Ours(graph, cache)
        chosen, by_hand = ours(), hand()
        assert chosen == by_hand or not is_same, "both choose the same tokens"
        ratios.append(compare(ours, hand, ROUNDS, clock=time.process_time))
        del ours, hand
    return Ratio(*(float(np.mean([getattr(r, name) for r in ratios])) for name in ("value", "ours", "peer")))


def narrow(graph: Graph) -> Graph:
    return gc.quantize(graph, "int4", block_size=128).graph


def memory(bounds: Bounds, graph: Graph) -> None:
    state = gc.InferenceSession().load(graph).state()
    lengths = np.array([len(PROMPTS[SHORT])])
    (logits,) = state(np.array([PROMPTS[SHORT]]), lengths)
    (logits,) = state(logits.argmax(-1)[:, None], lengths + 1)
    collector.collect()
    before = megabytes("/proc/self/smaps_rollup", "Anonymous")
    for number in range(100):
        (logits,) = state(logits.argmax(-1)[:, None], lengths + number + 2)
    collector.collect()
    more, cache = megabytes("/proc/self/smaps_rollup", "Anonymous") - before, SHORT * CACHE_MB
    bounds.figure("memory of 100 steps, beside the cache", more / cache, 1, "x", f"{more:8.2f} MB to {cache:8.2f} MB")


def start(bounds: Bounds, graph: Graph, path: Path, weights: int) -> None:
    """Measure the memory of a process that starts from a file of 4 bits."""
    graph.export(path)
    grown, most = child("benchmarks.bench_decode", str(path)), 2.2 * weights / 1e6 + 40
    bounds.figure("memory of a start with 4 bits", grown, most, "MB", f"{weights / 1e6:.0f}M weights")


def started(path: str) -> int:
    """Print the memory that a start takes, in a process of its own."""
    before = megabytes("/proc/self/status", "VmRSS")
    model = gc.InferenceSession(intra_op_num_threads=1).load(path)
    models.generate(model, [list(range(100)), list(range(7))], 4)
    print(megabytes("/proc/self/status", "VmHWM") - before)
    return 0


def at_length(graph: Graph, length: int) -> Callable[[], None]:
    """Return steps at a length of a loaded decoder, whose caches have random numbers."""
    slots, rng = gc.InferenceSession(intra_op_num_threads=1).load(graph).slots(1), np.random.default_rng(0)
    for array in slots.arrays.values():
        for head in array[0]:
            drawn = rng.standard_normal((length, head.shape[1]), np.float32)
            head[:length] = np.rint(drawn * 30) if array.dtype == np.int8 else drawn
    token, lengths = np.array([[5]]), np.array([length])

    def steps(count: int = STEPS) -> None:
        for _ in range(count):
            slots.run(0, 1, token, lengths)

    steps(GATHERING)
    return steps


def long_texts(bounds: Bounds) -> None:
    """Measure steps at 8,000 tokens with caches of int8, beside those of float32."""
    config = replace(CONFIG, positions=8192)
    names = [f"{kind}{number}" for kind in ("keys", "values") for number in range(config.layers)]
    scales = dict.fromkeys(names, np.full((config.kv_heads, 1, config.size), 4 / 127, np.float32))
    short, wide = (llama.build(config, cache=8192, cache_scales=each) for each in (scales, None))
    for name, form in (("float32", lambda graph: graph), ("4 bits", narrow)):
        ratio = compare(at_length(form(short), 8000), at_length(form(wide), 8000), ROUNDS, clock=time.process_time)
        bounds.ratio(f"a step at 8000 tokens, {name}, int8 caches beside float32", ratio, 0.7, STEPS)


def main(path: str | None = None) -> int:
    if path is not None:
        return started(path)
    bounds = Bounds()
    short, long = (llama.build(CONFIG, cache=cache) for cache in (SHORT, LONG))
    with tempfile.TemporaryDirectory() as folder:
        ratio = beside_hand(short, SHORT, Path(folder))
        weights = sum(int(np.prod(shape)) for shape in llama.shapes(CONFIG).values())
        tokens = f"{STEPS / ratio.ours:.1f} tokens a second, by hand {STEPS / ratio.peer:.1f}"
        print(f"{weights / 1e6:.0f}M weights: {tokens}")
        bounds.ratio(f"a step, cache {SHORT}, beside GroupQueryAttention by hand", ratio, 1, STEPS)
        ratio = beside_hand(long, LONG, Path(folder))
        bounds.ratio(f"a step, cache {LONG}, beside a shared buffer by hand", ratio, 1, STEPS)
        ratio = beside_hand(narrow(long), LONG, Path(folder), is_same=False)
        bounds.ratio(f"a step, 4 bits, cache {LONG}, beside a shared buffer by hand", ratio, 1.1, STEPS)
        start(bounds, narrow(short), Path(folder) / "narrow.onnx", weights)
    del long
    long_texts(bounds)
    memory(bounds, short)
    ratio = compare(Ours(narrow(short), SHORT), Ours(short, SHORT), ROUNDS, clock=time.process_time)
    bounds.ratio("a step, 4 bits, beside float32", ratio, 0.27, STEPS)
    ratio = compare(Ours(short, SHORT, threads=2), Ours(short, SHORT), ROUNDS, clock=time.perf_counter)
    bounds.ratio("a step of two threads, beside one", ratio, 0.7, STEPS)
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
