"""all-MiniLM-L6-v2 in graphcore and in every peer that is installed, all in turn in one run.

    pip install -r benchmarks/peers/requirements.txt      # as many of them as wanted
    python -m benchmarks.bench_peers                      # --compile for PyTorch's compiler too

Processor time and wall time, medians with quartiles, one thread on one core by default, as parts of graphcore's.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import minilm as peers
from benchmarks.timing import Bounds, record
from graphcore.errors import MissingExtraError

LENGTH = 128
ROUNDS = {1: 41, 32: 5}

BOUNDS = (
    ("graphcore", "PyTorch, eager", 1.0),
    ("graphcore", "onnxruntime on PyTorch's export", 1.0),
    ("graphcore on PyTorch's export", "onnxruntime on PyTorch's export", 0.9),
    ("graphcore, int8_dynamic", "graphcore", 0.38),
    ("graphcore, int8_split", "OpenVINO, float32", 1.0),
)
"""What is to take at most which part of another's processor time."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="PyTorch's compiler too")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # some peers take as many threads as there are cores
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    with tempfile.TemporaryDirectory() as folder:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                found = dict(peers.runs(options.threads, Path(folder)))
                if options.compile:
                    found |= dict(peers.compiled(options.threads))
        except MissingExtraError as error:
            print(f"no comparison: {error.summary} ({error.help})")
            return 0
        bounds = Bounds()
        for batch, rounds in ROUNDS.items():
            medians = _compare(found, batch, rounds)
            for ours, peer, most in BOUNDS:
                if ours in medians and peer in medians:
                    bounds.figure(f"{batch}: {ours} beside {peer}", medians[ours] / medians[peer], most, "x")
    return bounds.exit_code()


def _compare(found: dict[str, peers.Run], batch: int, rounds: int) -> dict[str, float]:
    """Prints a row for each; the median processor seconds of each by name."""
    random = np.random.default_rng(0)
    ids = random.integers(1000, 30000, (batch, LENGTH))
    mask = np.ones_like(ids)
    mask[:, LENGTH - LENGTH // 4 :] = 0
    exact = found["graphcore"](ids, mask)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in found}
    names = list(found)
    for number in range(rounds + 1):
        for name in names if number % 2 else names[::-1]:
            gc.collect()
            start = time.perf_counter(), time.process_time()
            found[name](ids, mask)
            taken = time.perf_counter() - start[0], time.process_time() - start[1]
            if number:
                times[name].append(taken)
    base = statistics.median(cpu for _, cpu in times["graphcore"])
    print(f"MiniLM, {batch} of {LENGTH} tokens, a quarter of them padding")
    for name in sorted(names, key=lambda n: statistics.median(cpu for _, cpu in times[n])):
        wall, cpu = (sorted(column) for column in zip(*times[name], strict=True))
        low, middle, high = statistics.quantiles(cpu, n=4)
        cosine = _cosine(found[name](ids, mask), exact)
        row = {
            "batch": batch, "name": name, "ratio": middle / base, "cpu_ms": middle * 1e3, "wall_ms":
            statistics.median(wall) * 1e3, "quartiles": [low / base, high / base], "cosine": cosine,
        }  # fmt: skip
        record("peers", row)
        print(
            f"  {name:<38}{row['ratio']:6.2f}x ({low / base:.2f} to {high / base:.2f})"
            f"  processor {row['cpu_ms']:8.1f} ms  wall {row['wall_ms']:8.1f} ms  cosine {cosine:.6f}",
            flush=True,
        )
    return {name: statistics.median(cpu for _, cpu in times[name]) for name in names}


def _cosine(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> float:
    lengths = np.linalg.norm(got, axis=1) * np.linalg.norm(want, axis=1)
    return float(((got * want).sum(1) / lengths).mean())


if __name__ == "__main__":
    sys.exit(main())
