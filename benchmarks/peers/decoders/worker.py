"""A process with one engine: an order a line on standard input, its answer a line on standard output, both JSON.

    python -m benchmarks.peers.decoders.worker '{"engine": "llama_cpp", "path": "model.gguf", "cache": 256}'

Orders: {"prefill": 512} reads a prompt of so many tokens, {"fill": [8, 248]} prompts in 8 streams, {"steps": 8} takes
greedy steps after them, the same ones each time, {"logits": 16} gives the logits after a prompt. An answer has the
processor seconds, those of the process since it began, the wall seconds, and what was made.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import time
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Job:
    """A model to open. path: of the model's file or folder. cache: tokens of each stream. vocabulary: of prompts.

    exact: keep keys and values in float32, to compare numbers. entries: the folder of a cache of starts; "" for none.
    start: of ours: "file" from the file only, "first" and "later" with what a first start writes beside it, "prepared"
    from the folder of `InferenceSession.prepare`.
    """

    engine: str
    path: str
    cache: int
    streams: int = 1
    threads: int = 1
    vocabulary: int = 32_000
    exact: bool = False
    entries: str = ""
    start: str = "file"


class Engine(Protocol):
    """A decoder that is open."""

    def prefill(self, prompt: list[int]) -> int:
        """Return the likeliest token after a prompt that is read from its beginning."""

    def fill(self, prompts: list[list[int]]) -> None:
        """Take a prompt for each stream."""

    def rewind(self) -> None:
        """Go to the end of the prompts. It is not measured."""

    def steps(self, count: int) -> list[list[int]]:
        """Return the likeliest tokens of each stream after its prompt, with one call of the engine for each but the
        first."""

    def logits(self, prompt: list[int]) -> list[float]:
        """Return the logits of the token after a prompt."""


def prompt(vocabulary: int, length: int, stream: int = 0) -> list[int]:
    """Return a prompt of ordinary tokens; the 300 first may be control tokens and bytes."""
    drawn = random.Random(stream)
    return [drawn.randrange(300, vocabulary) for _ in range(length)]


def peak() -> float:
    """Return the most memory that the process held so far, in MB; 0 where the system does not say."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) / 1000 for line in status if line.startswith("VmHWM"))
    except OSError:
        return 0.0


def answer(engine: Engine, job: Job, order: dict[str, Any]) -> Any:
    ((what, value),) = order.items()
    if what == "prefill":
        return engine.prefill(prompt(job.vocabulary, value))
    if what == "fill":
        streams, length = value
        return engine.fill([prompt(job.vocabulary, length, stream) for stream in range(streams)])
    if what == "steps":
        return engine.steps(value)
    return engine.logits(prompt(job.vocabulary, value))


def main(described: str) -> int:
    job = Job(**json.loads(described))
    out, sys.stdout = sys.stdout, sys.stderr  # what an engine prints is not an answer
    engine: Engine = importlib.import_module(f"benchmarks.peers.decoders.{job.engine}").open_engine(job)
    print(json.dumps({"ready": job.engine, "peak": peak()}), file=out, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "steps" in order:
            engine.rewind()
        wall, processor = time.perf_counter(), time.process_time()
        result = answer(engine, job, order)
        processor, wall = time.process_time() - processor, time.perf_counter() - wall
        results = {"made": result, "processor": processor, "total": time.process_time(), "wall": wall, "peak": peak()}
        print(json.dumps(results), file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
