"""Running: bound calls, warm starts, a model of 1 GB from its file, batches in chunks and requests in batches.

    python -m benchmarks.bench_running

Everything is measured beside its peer in one run. The 1 GB model is 16 float32 matrices of random numbers, multiplied
with one row; each start is a new process, whose memory the system reports: anonymous pages are the process's own, those
of a mapped file can be dropped.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import graphcore as gc
from benchmarks.bench_call import CALLS, chain, many
from benchmarks.timing import Bounds, Ratio, child, compare
from graphcore import DType, Graph, Symbol, TensorType, ops

BIND_BOUND = 1.2
START_BOUND = 0.5
PIECES_BOUND = 1.05
BATCHER_BOUND = 0.9

LAYERS, WIDTH = 16, 4096  # 16 x 64 MiB
SECONDS, MEGABYTES = 0.15, 150
PEAK, TIME = 2.1, 1.2

Array = np.ndarray[Any, Any]


def encoder(layers: int = 43, width: int = 64, heads: int = 4) -> Graph:
    """Build an encoder of 2,000 primitive nodes, with a symbolic batch and length."""
    random = np.random.default_rng(0)
    graph = Graph("encoder", {"x": TensorType(DType.float32, ["batch", "length", width])})

    def weight(*shape: int) -> Symbol:
        name = f"w{len(graph.weights)}"
        return graph.weight(name, (random.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32))

    def norm(x: Symbol) -> Symbol:
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        spread = ops.sqrt(ops.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)
        return centred / spread * weight(width) + weight(width)

    def dense(x: Symbol, wide: int, out: int) -> Symbol:
        return x @ weight(wide, out) + weight(out)

    h = graph["x"]
    batch, length = h.shape[0], h.shape[1]
    for _ in range(layers):
        q, k, v = (
            ops.permute(dense(h, width, width).reshape([batch, length, heads, width // heads]), [0, 2, 1, 3])
            for _ in range(3)
        )
        scores = ops.softmax(q @ ops.permute(k, [0, 1, 3, 2]) * 0.25)
        mixed = ops.permute(scores @ v, [0, 2, 1, 3]).reshape([batch, length, width])
        h = norm(h + dense(mixed, width, width))
        h = norm(h + dense(ops.relu(dense(h, width, 2 * width)), 2 * width, width))
    graph.output(y=h)
    return graph


def large(path: str, weights: dict[str, Array]) -> Graph:
    graph = Graph("large", {"x": TensorType(DType.float32, [1, WIDTH])})
    h = graph["x"]
    for name, array in weights.items():
        h = h @ graph.weight(name, array)
    graph.output(y=h)
    if path:
        graph.export(path, external_data=True)
    return graph


def bound_calls(bounds: Bounds) -> None:
    for inputs in (1, 4):
        model = chain(inputs)
        bound, session = model.bind(n=2), model.session
        binding = session.io_binding()
        results = [np.ones((2, 4), np.float32) for _ in range(inputs + 1)]
        for i in range(inputs):
            binding.bind_ortvalue_input(f"x{i}", onnxruntime.OrtValue.ortvalue_from_numpy(results[i]))
        binding.bind_ortvalue_output("y", onnxruntime.OrtValue.ortvalue_from_numpy(results[inputs]))

        def bare(session: Any = session, binding: Any = binding) -> None:
            session.run_with_iobinding(binding)

        def ours(bound: gc.Bound = bound) -> object:
            return bound()

        ratio = compare(many(ours), many(bare), 31)
        bounds.ratio(f"bound call, {inputs} inputs, beside I/O binding", ratio, BIND_BOUND, CALLS, "us")


def second_starts(bounds: Bounds, folder: Path) -> None:
    graph = encoder()
    path = folder / "encoder.onnx"
    graph.export(path)
    nodes = len(graph.nodes)
    session = gc.InferenceSession(intra_op_num_threads=1)
    for what, model in (("file", path), ("Graph", graph)):
        session.load(model, cache_dir=folder / "warm")
        fresh = iter(folder / f"cold{i}" / what for i in range(1000))

        def first(model: Any = model, fresh: Any = fresh) -> object:
            return session.load(model, cache_dir=next(fresh))

        def second(model: Any = model) -> object:
            return session.load(model, cache_dir=folder / "warm")

        bounds.ratio(f"second start, {what} of {nodes} nodes, beside first", compare(second, first, 11), START_BOUND)


def gigabyte(bounds: Bounds, folder: Path) -> None:
    random = np.random.default_rng(0)
    matrix = random.standard_normal((WIDTH, WIDTH), np.float32) / WIDTH**0.5
    weights = {f"w{i}": matrix + np.float32(i * 1e-6) for i in range(LAYERS)}
    path, stored = str(folder / "large.onnx"), str(folder / "large.safetensors")
    large(path, weights)
    gc.save_tensors(stored, weights)
    size = sum(array.nbytes for array in weights.values()) / 1e6
    del weights
    runs: dict[str, list[dict[str, float]]] = {how: [] for how in ("export", "safetensors", "packed", "bare")}
    for number in range(4):
        for how, item in runs.items():
            result = child("benchmarks.bench_running", how, stored if how == "safetensors" else path)
            if number:  # the first reads the file from the disk
                item.append(result)

    def median(how: str, what: str) -> float:
        return statistics.median(run[what] for run in runs[how])

    for how, what in (("export", "own export"), ("safetensors", "safetensors")):
        quickest = min(run["first"] for run in runs[how])  # other load on the machine disturbs so short a time
        bounds.figure(f"1 GB, {what}: to the first result", quickest, SECONDS, "s")
        bounds.figure(f"1 GB, {what}: memory of its own", median(how, "own"), MEGABYTES, "MB")
    bounds.figure("1 GB, prepacked: peak, of the weights", median("packed", "peak") / size, PEAK, "x")
    ratio = Ratio(
        median("packed", "first") / median("bare", "first"), median("packed", "first"), median("bare", "first")
    )
    bounds.ratio("1 GB, prepacked: to the first result, beside bare", ratio, TIME)


def start_once(how: str, path: str) -> dict[str, float]:
    """Return processor seconds from a file to the first result, and MB of memory, in this process."""
    x = np.ones((1, WIDTH), np.float32)
    session = gc.InferenceSession(intra_op_num_threads=1)
    warm = Graph("warm", {"x": TensorType(DType.float32, [1])})
    warm.output(warm["x"] + 1)
    session.load(warm.to_onnx())  # late imports at the first use and at reading files
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    start = time.process_time()
    if how == "bare":
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    elif how == "safetensors":
        session.load(large("", dict(gc.load_tensors(path))))(x)
    else:
        session.load(path, prepack="on" if how == "packed" else "auto")(x)
    first = time.process_time() - start
    own = megabytes("/proc/self/smaps_rollup", "Anonymous")
    return {"first": first, "own": own, "peak": megabytes("/proc/self/status", "VmHWM")}


def megabytes(file: str, row: str) -> float:
    return next(int(line.split()[1]) for line in Path(file).read_text().splitlines() if line.startswith(row)) * 1.024e-3


def pieces(bounds: Bounds) -> None:
    from graphcore.models import minilm

    try:
        graph = minilm.build(gc.load_tensors(Path(minilm.folder()) / "model.safetensors"))
    except gc.errors.MissingExtraError as error:
        print(f"no comparison of batches in pieces: {error.summary}")
        return
    whole, single = gc.InferenceSession().load(graph), gc.InferenceSession(intra_op_num_threads=1).load(graph)
    ids = np.random.default_rng(0).integers(0, 30000, (32, 128))
    mask = np.ones_like(ids)
    ratio = compare(
        lambda: single.execute(ids, mask, micro_batch=4), lambda: whole(ids, mask), 7, clock=time.perf_counter
    )
    bounds.ratio("MiniLM, 32 of 128 in pieces of 4, beside whole", ratio, PIECES_BOUND)


def requests(bounds: Bounds) -> None:
    graph = Graph("dense", {"x": TensorType(DType.float32, ["batch", 2048])})
    random = np.random.default_rng(0)
    h = graph["x"]
    for i in range(4):
        h = ops.relu(h @ graph.weight(f"w{i}", random.standard_normal((2048, 2048), np.float32) / 45))
    graph.output(y=h)
    model = gc.InferenceSession(intra_op_num_threads=1).load(graph)
    x = np.ones((1, 2048), np.float32)
    with ThreadPoolExecutor(16) as pool, gc.Batcher(model, 16, 2) as batcher:

        def ask(call: Callable[[Array], object]) -> Callable[[], object]:
            return lambda: [*pool.map(call, [x] * 160)]

        ratio = compare(ask(batcher), ask(model), 9, clock=time.perf_counter)
    bounds.ratio("16 threads, a row each: Batcher, beside calls", ratio, BATCHER_BOUND, 160, "us")


def main() -> int:
    bounds = Bounds()
    bound_calls(bounds)
    requests(bounds)
    with tempfile.TemporaryDirectory() as folder:
        second_starts(bounds, Path(folder))
        gigabyte(bounds, Path(folder))
    pieces(bounds)
    return bounds.exit_code()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(start_once(sys.argv[1], sys.argv[2])))
        sys.exit()
    sys.exit(main())
