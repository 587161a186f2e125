"""Serving text: `graphcore serve` of a folder beside llama.cpp and onnxruntime-genai, tokens a second by HTTP.

    python -m benchmarks.bench_text_serving [threads [streams ...]]

The model of `bench_decode`, 100 million random weights in float32, the same for all. Each server is a process with 16
slots and one thread of its engine, or as many as stated; all take turns. Each of 1, 8 or 16 clients sends a prompt of
64 tokens that no request had before, and takes 32 greedy tokens of POST /v1/completions: the time of a round is that
until the last client has its answer. llama.cpp is node-llama-cpp, which brings no llama-server: its sequences are in
one batch, behind Node's HTTP server, with keys and values in float16. onnxruntime-genai has no server either,
and its engine needs CUDA: it gets all texts of a round in one batch. Peers that are not installed are left out.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks.bench_decode import CONFIG
from benchmarks.bench_serve import running
from benchmarks.peers.decoders import checkpoint, files, gguf_file, llama_cpp
from benchmarks.peers.decoders.asked import SMALL
from benchmarks.peers.decoders.turns import environment
from benchmarks.peers.decoders.worker import prompt
from benchmarks.peers.running import has
from benchmarks.timing import Ratio, record

STREAMS = {1: 6, 8: 6, 16: 4}
"""Numbers of clients, and the rounds of each."""

PROMPT, NEW, CACHE = 64, 32, 256
OURS = "graphcore serve"


def commands(folder: Path, threads: str) -> dict[str, tuple[str, ...]]:
    """Write the model's files; return the commands of the servers that are there, to be completed by a port."""
    shape = replace(files.SHAPES[SMALL], config=replace(CONFIG, positions=CACHE))
    weights, numbers = files.random(shape), (str(max(STREAMS)), str(CACHE), threads)
    results: dict[str, tuple[str, ...]] = {}
    if llama_cpp.folder() is None or not has("gguf") or shutil.which("node") is None:
        print("llama.cpp is left out: npm install --prefix benchmarks/peers; pip install gguf")
    else:
        gguf_file.write(shape.config, weights, folder / "float32.gguf")
        server = str(Path(llama_cpp.__file__).with_name("llama_server.mjs"))
        results["llama.cpp"] = ("node", server, str(folder / "float32.gguf"), "PORT", *numbers)
    if not has("onnxruntime_genai", "torch", "transformers", "onnx_ir"):
        print("onnxruntime-genai is left out: pip install onnxruntime-genai onnx-ir torch transformers")
        checkpoint.write(shape.config, weights, folder / "checkpoint")
    else:
        files.write_genai(shape, weights, folder, ("fp32",))
        server = "benchmarks.peers.decoders.genai_server"
        results["onnxruntime-genai"] = (sys.executable, "-m", server, str(folder / "genai-fp32"), "PORT", *numbers)
    options = (
        "--slots",
        str(max(STREAMS)),
        "--threads",
        threads,
        "--context",
        str(CACHE),
        "--timeout",
        "600",
        "--port",
        "PORT",
    )
    ours = (sys.executable, "-m", "graphcore", "serve", str(folder / "checkpoint"), *options)
    return {OURS: ours, **results}


def processor(pid: int) -> float:
    """Return the processor seconds of a process, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def complete(port: int, tokens: list[int]) -> int:
    """Return the number of tokens that a server adds to a prompt."""
    fields = {"model": "checkpoint", "prompt": tokens, "max_tokens": NEW, "temperature": 0}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(fields).encode())
    with urllib.request.urlopen(request) as answer:
        return int(json.load(answer)["usage"]["completion_tokens"])


def measure(port: int, pid: int, prompts: list[list[int]]) -> tuple[float, float]:
    """Return the wall seconds and the processor seconds of a token, of all clients together."""
    with ThreadPoolExecutor(len(prompts)) as clients:
        used, start = processor(pid), time.perf_counter()
        count = sum(clients.map(lambda tokens: complete(port, tokens), prompts))
        wall = time.perf_counter() - start
    return wall / count, (processor(pid) - used) / count


def beside(ratio: Ratio) -> str:
    """Return the ratio of our tokens to those of a server, with quartiles."""
    low, high = ratio.spread or (ratio.value, ratio.value)
    return f"{ratio.value:.2f} ({low:.2f} to {high:.2f})"


def main(threads: str = "1", *chosen: str) -> int:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        servers = {
            name: stack.enter_context(running(command, environment()))
            for name, command in commands(Path(folder), threads).items()
        }
        print(f"load {os.getloadavg()[0]:.1f} of {os.cpu_count()} processors, {threads} threads of each engine\n")
        print("| streams | server | tokens/s | graphcore's to it | tokens per processor second | graphcore's to it |")
        print("|---|---|---|---|---|---|", flush=True)
        for streams in map(int, chosen or STREAMS):
            rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in servers}
            for number in range(STREAMS[streams] + 1):
                prompts = [prompt(31_000, PROMPT, (streams * 100 + number) * 100 + row) for row in range(streams)]
                for name in servers if number % 2 else [*servers][::-1]:
                    rounds[name].append(measure(*servers[name], prompts))
            seconds = {name: [wall for wall, _ in each[1:]] for name, each in rounds.items()}
            processors = {name: [used for _, used in each[1:]] for name, each in rounds.items()}
            for name in servers:
                by_wall, by_processor = (Ratio.of(taken[name], taken[OURS]) for taken in (seconds, processors))
                low, middle, high = statistics.quantiles([1 / each for each in seconds[name]], n=4, method="inclusive")
                row = [f"{middle:.0f} ({low:.0f} to {high:.0f})", beside(by_wall)]
                row += [f"{1 / by_processor.ours:.0f}", beside(by_processor)]
                print(f"| {streams} | {name} | {' | '.join(row)} |", flush=True)
                record("text_serving", {"streams": streams, "server": name, "row": row})
        print(f"\nload {os.getloadavg()[0]:.1f} at the end")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
