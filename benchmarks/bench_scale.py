"""Batches on Ray beside one process, and requests to Ray Serve beside a Batcher: docs/howto/batch_jobs.md.

    python -m benchmarks.bench_scale                       all
    python -m benchmarks.bench_scale batch --sentences 20000
    python -m benchmarks.bench_scale memory|models|blocks|serve

Wall time, since several processes work: let nothing else run. Times of batch jobs are those from the start of the first
block to the end of the last, which workers note: the start of workers is not in them, and is printed beside.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import importlib.util
import os
import re
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import graphcore as gc
from benchmarks.scale_model import throughput
from benchmarks.timing import Bounds
from graphcore import DType, TensorType
from graphcore.arrays.casting import Array
from graphcore.models import encoder, minilm


def sentences(count: int) -> list[str]:
    """Return sentences of 6 to 30 words out of the 20,000 that the tokenizer has whole."""
    words = sorted(word for word in minilm._tokenizer().get_vocab() if word.isascii() and word.isalpha())
    rng = np.random.default_rng(0)
    return [" ".join(words[i] for i in rng.integers(0, len(words), int(rng.integers(6, 31)))) for _ in range(count)]


@dataclass(frozen=True, slots=True)
class Timed:
    """The recipe of embeddings, which notes when each block ran, in which process, and the memory of that.

    is_idle: the model is a small one, and nothing is computed: what a worker takes without a model.
    """

    is_idle: bool = False
    sleeps: float = 0
    """Seconds that a block takes which computes nothing."""

    @property
    def inputs(self) -> dict[str, TensorType]:
        return minilm.Embedding().inputs

    @property
    def outputs(self) -> dict[str, TensorType]:
        return {"times": TensorType(DType.float64, ["batch", 6])}

    def graph(self) -> gc.Graph:
        return _small() if self.is_idle else minilm.Embedding().graph()

    def run(self, model: gc.Model, rows: Sequence[Mapping[str, Array]]) -> list[list[Array]]:
        began, cpu = time.time(), time.process_time()
        if not self.is_idle:
            minilm.Embedding().run(model, rows)
        time.sleep(self.sleeps)
        whole, own = memory(os.getpid())
        return [[np.array([began, time.time(), os.getpid(), whole, own, time.process_time() - cpu])]] * len(rows)


def _small() -> gc.Graph:
    graph = gc.Graph("small", {"x": TensorType("float32", ["batch"])})
    graph.output(y=graph["x"] + graph["x"])
    return graph


def memory(process: int) -> tuple[float, float]:
    """Return the bytes of a process in memory, its share of shared pages counted (PSS), and those of its own."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    pss, clean, dirty = (
        int(re.search(rf"^{name}:\s+(\d+)", text, re.M)[1]) * 1024.0  # type: ignore[index]
        for name in ("Pss", "Private_Clean", "Private_Dirty")
    )
    return pss, clean + dirty


@dataclass(frozen=True, slots=True)
class Job:
    """seconds: from the start of the first block to the end of the last. cpu: of the workers' blocks. other: processor
    time of the driver and of Ray's own processes. times: a row for each row."""

    seconds: float
    cpu: float
    other: float
    times: Array


def job(texts: Sequence[str], workers: int, batch_size: int, is_idle: bool = False) -> Job:
    """Run a job with so many workers of one thread."""
    import ray.data

    dataset = ray.data.from_items([{"text": text} for text in texts], override_num_blocks=workers * 4)
    started, other = time.perf_counter(), _of_ray()
    result = gc.scale.map_batches(dataset, Timed(is_idle), batch_size=batch_size, workers=workers, threads=1)
    times = np.array([row["times"] for row in result.take_all()])
    whole = time.perf_counter() - started
    seconds = float(times[:, 1].max() - times[:, 0].min())
    cpu = float(np.unique(times[:, [0, 2, 5]], axis=0)[:, 2].sum())
    print(f"  {workers} workers: {seconds:.1f} s, {whole - seconds:.1f} s more with start and end", flush=True)
    return Job(seconds, cpu, _of_ray() - other, times)


def _of_ray() -> float:
    """Return the processor seconds of this process and of those that it started: the raylet and the server of state."""
    ticks = 0
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = place.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid() and "python" not in place.with_name("comm").read_text():
                ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def alone(texts: Sequence[str]) -> tuple[float, float]:
    """Return the seconds of `embed` with one thread, and its processor time."""
    began, cpu = time.perf_counter(), time.process_time()
    _embed(_single(), texts)
    return time.perf_counter() - began, time.process_time() - cpu


def _embed(model: gc.Model, texts: Sequence[str]) -> None:
    encoder.TextEncoder(minilm.NAME, minilm._tokenizer(), model).embed(texts)


_LOADED: list[gc.Model] = []


def _single() -> gc.Model:
    if not _LOADED:
        session = gc.InferenceSession(config={"session.intra_op.allow_spinning": False}, intra_op_num_threads=1)
        _LOADED.append(session.load(minilm.Embedding().graph()))
        _embed(_LOADED[0], sentences(64))
    return _LOADED[0]


def batch(bounds: Bounds, count: int, rounds: int) -> None:
    """Compare one process, one worker and two: by the clock, and by processor time, which others disturb less."""
    texts = sentences(count)
    size = 512  # what `plan` chooses for these sentences
    results: dict[str, list[float]] = {"overhead": [], "cpu": [], "scaling": [], "scaling cpu": []}
    for _ in range(rounds):
        seconds, cpu = alone(texts)
        one, two = job(texts, 1, size), job(texts, 2, size)
        results["overhead"].append(one.seconds / seconds - 1)
        results["cpu"].append((one.cpu + one.other) / cpu - 1)
        results["scaling"].append(2 * two.seconds / one.seconds)
        results["scaling cpu"].append(two.cpu / one.cpu)
        rates = (f"{count / each:.0f}/s" for each in (seconds, one.seconds, two.seconds))
        print("  {} sentences: alone {}, a worker {}, two {}".format(count, *rates), flush=True)
        spent = f"{cpu:.1f}; {one.cpu:.1f} and {one.other:.1f} of Ray; {two.cpu:.1f} and {two.other:.1f}"
        print(f"  processor seconds: {spent}", flush=True)
    middle = {name: statistics.median(values) for name, values in results.items()}
    bounds.figure("a worker on Ray beside one process, more time", 100 * middle["overhead"], 8, "%")
    bounds.figure("the same in processor time, with Ray's own", 100 * middle["cpu"], 8, "%")
    bounds.figure("two workers beside half of one's time", middle["scaling"], 1 / 0.85, "x")
    bounds.figure("processor time of two workers' blocks beside one's", middle["scaling cpu"], 1 / 0.85, "x")


def shared(bounds: Bounds) -> None:
    """Compare what the model adds to the memory of two workers with what it adds to that of one.

    Pages that processes share count for each in part (PSS), so that sums are what the machine has to have.
    """
    sums = {}
    for workers in (1, 2):
        for is_idle in (True, False):
            times = job(sentences(1536), workers, 64, is_idle).times
            last = [times[times[:, 2] == process][-1] for process in np.unique(times[:, 2])]
            sums[workers, is_idle] = sum(row[3] for row in last) / len(last) * workers
    first = sums[1, False] - sums[1, True]
    both = sums[2, False] - sums[2, True]
    print(
        f"  a worker without a model {sums[1, True] / 1e6:.0f} MB; one model {first / 1e6:.0f} MB, two {both / 1e6:.0f}"
    )
    bounds.figure("memory that the second worker's model adds, of the first's", 100 * (both / first - 1), 30, "%")


def several(bounds: Bounds) -> None:
    """Compare the memory of replicas of Serve that serve one model, three with equal weights, and of two such."""
    from ray import serve

    weights = gc.load_tensors(os.path.join(minilm.folder(), "model.safetensors"))
    graphs = {f"m{number}": _times(minilm.build(weights), number + 1) for number in range(3)}
    feed = {"input_ids": np.ones((8, 48), np.int64), "attention_mask": np.ones((8, 48), np.int64)}
    port = _port()
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    sums = {}
    for name, models, replicas in (("none", 0, 1), ("one", 1, 1), ("three", 3, 1), ("twice three", 3, 2)):
        chosen = dict(list(graphs.items())[:models]) or {"m0": _small()}
        app = gc.scale.deployment(chosen, share_weights=True, replicas=replicas, max_batch=8)
        serve.run(app)
        for model in chosen if models else ():
            call = _over_http(port, model)()
            for _ in range(8 * replicas):
                call(feed)
        sums[name] = _together(_replicas())
        print(f"  replicas with {name}: {sums[name] / 1e6:.0f} MB", flush=True)
        serve.delete("default")
    first = sums["one"] - sums["none"]
    bounds.figure(
        "memory that two more models with equal weights add, of the first's",
        100 * (sums["three"] - sums["one"]) / first, 60, "%", f"{first / 1e6:.0f} MB",
    )  # fmt: skip
    second = sums["twice three"] - sums["three"] - sums["none"]
    bounds.figure("memory that a second replica of three adds, of one model's", 100 * second / first, 90, "%")
    serve.shutdown()


def _times(graph: gc.Graph, by: int) -> gc.Graph:
    """Return a graph of its own with the weights of another."""
    changed = gc.Graph(f"{graph.name} {by}", {symbol.name: symbol.type for symbol in graph.inputs})
    result = graph(*changed.inputs)
    value = result if isinstance(result, gc.Symbol) else next(iter(result))
    changed.output(embedding=value * np.float32(by))
    return changed


def _replicas() -> list[int]:
    results = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if place.read_bytes().startswith(b"ray::ServeReplica:"):
                results.append(int(place.parent.name))
    return results


def _together(processes: Sequence[int]) -> float:
    """Return the bytes that processes have in memory, files of weights once, whoever else maps them."""
    files: dict[str, float] = {}
    other, path = 0.0, ""
    for process in processes:
        for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                path = line.split(" ", 5)[-1].strip()
            elif "/weights/" in path and line.startswith("Rss:"):
                files[path] = max(files.get(path, 0.0), int(line.split()[1]) * 1024.0)
            elif "/weights/" not in path and line.startswith("Pss:"):
                other += int(line.split()[1]) * 1024.0
    return other + sum(files.values())


def _port() -> int:
    with socket.socket() as result:
        result.bind(("127.0.0.1", 0))
        return int(result.getsockname()[1])


def blocks(bounds: Bounds, seconds: float = 0.25) -> None:
    """Compare the model of a cluster with blocks that sleep, for which this machine has processors enough.

    The driver's time for a block is that of blocks which take none, with so many workers that none is waited for.
    """
    rates = {}
    for each, workers in ((0.0, 4), (seconds, 1), (seconds, 2), (seconds, 4)):
        times = _blocks(workers, each, 240 if not each else 24 * workers)
        rates[each, workers] = times
    driver = 1 / rates[0.0, 4]
    print(f"  the driver: {driver * 1e3:.1f} ms a block", flush=True)
    for workers in (1, 2, 4):
        foreseen = throughput(workers, seconds, [driver])
        what = f"{workers} workers: blocks a second by the model, beside what was measured"
        bounds.figure(what, foreseen / rates[seconds, workers], 1.1, "x", f"{rates[seconds, workers]:.2f}/s")


def _blocks(workers: int, seconds: float, count: int) -> float:
    """Return the number of blocks a second, between the first and the last end of one."""
    import ray.data

    rows = ray.data.from_items([{"text": "a"} for _ in range(count)], override_num_blocks=count)
    result = gc.scale.map_batches(rows, Timed(True, seconds), batch_size=1, workers=workers, threads=1)
    times = np.array([row["times"] for row in result.take_all()])
    began = max(times[times[:, 2] == process, 0].min() for process in np.unique(times[:, 2]))
    ends = np.sort(times[times[:, 1] > began, 1])
    ends = ends[: -workers or None]  # the last ones run beside idle workers
    return float((len(ends) - 1) / (ends[-1] - ends[0]))


def tokens(count: int) -> list[dict[str, Array]]:
    """Return requests of one sentence of 48 tokens each."""
    rng = np.random.default_rng(1)
    results = (rng.integers(1000, 20000, (1, 48)) for _ in range(count))
    return [{"input_ids": ids, "attention_mask": np.ones_like(ids)} for ids in results]


def _clients(
    count: int, seconds: float, start: Callable[[], Callable[[dict[str, Array]], int]]
) -> tuple[float, list[float], int]:
    """Run clients side by side; return answers a second, the time of each, and how many were refused."""
    requests = tokens(64)
    times: list[list[float]] = [[] for _ in range(count)]
    refused = [0] * count
    until = time.perf_counter() + seconds + 1
    steady = until - seconds

    def client(number: int) -> None:
        call = start()
        turn = number
        while (began := time.perf_counter()) < until:
            status = call(requests[turn % len(requests)])
            turn += 1
            if status == 200 and began > steady:
                times[number].append(time.perf_counter() - began)
            elif status == 503:
                refused[number] += 1
                time.sleep(0.05)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = [each for mine in times for each in mine]
    return len(done) / seconds, sorted(done), sum(refused)


def _over_http(port: int, model: str = "minilm") -> Callable[[], Callable[[dict[str, Array]], int]]:
    """Return a function that makes a client: requests as bytes, over a connection that stays."""
    import json

    def start() -> Callable[[dict[str, Array]], int]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

        def call(feed: dict[str, Array]) -> int:
            listed = [
                {"name": n, "datatype": "INT64", "shape": list(a.shape), "parameters": {"binary_data_size": a.nbytes}}
                for n, a in feed.items()
            ]
            head = json.dumps({"inputs": listed, "parameters": {"binary_data_output": True}}).encode()
            body = head + b"".join(a.tobytes() for a in feed.values())
            headers = {"Inference-Header-Content-Length": str(len(head))}
            connection.request("POST", f"/v2/models/{model}/infer", body, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status

        return call

    return start


def served(bounds: Bounds, seconds: float) -> None:
    """Compare 64 clients of Serve with 64 threads of a Batcher."""
    from ray import serve

    graph = minilm.build(gc.load_tensors(os.path.join(minilm.folder(), "model.safetensors")))
    port = _port()
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(gc.scale.deployment({"minilm": graph}, max_batch=32, max_wait_ms=5, max_waiting=128))
    session = gc.InferenceSession(config={"session.intra_op.allow_spinning": False}, intra_op_num_threads=1)
    model = session.load(graph)
    ratios, tails = [], []
    for _ in range(3):
        with gc.Batcher(model, 32, 5) as batcher:
            own, _, _ = _clients(64, seconds, lambda: lambda feed: 200 if batcher(feed) else 500)
        rate, times, _ = _clients(64, seconds, _over_http(port))
        half, last = times[len(times) // 2], times[int(len(times) * 0.99)]
        shown = f"p50 {half * 1e3:.0f} ms, p99 {last * 1e3:.0f} ms"
        print(f"  Batcher {own:.0f}/s, Serve {rate:.0f}/s, {shown}", flush=True)
        ratios.append(own / rate)
        tails.append(last / half)
    bounds.figure("a Batcher beside Serve at 64 clients, answers a second", statistics.median(ratios), 1 / 0.9, "x")
    bounds.figure("p99 beside p50 at 64 clients", statistics.median(tails), 3, "x")
    rate, _, refused = _clients(300, seconds, _over_http(port))
    print(f"  300 clients: {rate:.0f} answers a second, {refused} of 503", flush=True)
    if not refused:
        bounds.missed.append("503 above saturation")
    serve.shutdown()


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help="batch, memory, models, blocks, serve")
    parser.add_argument("--sentences", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    if importlib.util.find_spec("ray") is None:
        print("ray is not installed: pip install 'graphcore-engine[ray]'")
        return 0
    import ray
    import ray.data

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_worker_niceness"] = "-10" if os.nice(0) < 0 else "0"  # it is 15, below what else runs  # noqa: SIM112
    bounds = Bounds()
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=300 << 20, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    what = options.what or ["batch", "memory", "models", "blocks", "serve"]
    if "batch" in what:
        batch(bounds, options.sentences, options.rounds)
    if "memory" in what:
        shared(bounds)
    if "models" in what:
        several(bounds)
    if "blocks" in what:
        blocks(bounds)
    if "serve" in what:
        served(bounds, options.seconds)
    ray.shutdown()
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
