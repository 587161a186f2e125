"""Models in graphcore and in every installed peer, alternating in one run.

    pip install -r benchmarks/peers/requirements.txt      # or some of them python -m benchmarks.bench_peers python -m
    benchmarks.bench_peers --models minilm resnet --compile minilm resnet

PyTorch's compiler takes a minute per model and needs a C++ compiler: where there is one, MiniLM is compiled. CPU time
and wall time, medians with quartiles, one thread on one core by default, as ratios to graphcore's.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.peers import llama, minilm, resnet, vit
from benchmarks.peers.running import Array, Case, Run, Subject
from benchmarks.timing import Bounds, record
from graphcore.errors import MissingExtraError

SUBJECTS = {module.SUBJECT.model: module.SUBJECT for module in (minilm, resnet, vit, llama)}

PAUSE = 0.05
"""Seconds ahead of each turn: the threads of some runtimes spin for a while, and slow down who is next."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="+", choices=[*SUBJECTS], default=[*SUBJECTS], help="by default all")
    parser.add_argument("--threads", type=int, default=1)
    compiled = ["minilm"] if shutil.which("c++") or shutil.which("g++") else []
    parser.add_argument("--compile", nargs="*", choices=[*SUBJECTS], default=compiled, help="by PyTorch's compiler too")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # some peers start a thread per core
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    bounds = Bounds()
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            try:
                results = dict(SUBJECTS[model].runs(options.threads, Path(folder), model in options.compile))
            except MissingExtraError as error:
                print(f"{model}: no comparison: {error.summary} ({error.help})")
                continue
            if not results:
                print(f"{model}: no comparison: no peer is installed")
                continue
            for case in SUBJECTS[model].cases():
                _compare(SUBJECTS[model], case, results, bounds)
            del results
        gc.collect()
    return bounds.exit_code()


def _compare(subject: Subject, case: Case, result: dict[str, Run], bounds: Bounds) -> None:
    """Print and record a row for each, and the bounded figures."""
    results: dict[str, Array] = {}
    times = _times(case, result, results)
    medians = {name: statistics.median(cpu for _, cpu in taken) for name, taken in times.items()}
    base = medians["graphcore"]
    print(case.name)
    for name in sorted(result, key=lambda name: medians[name]):
        wall, cpu = (sorted(column) for column in zip(*times[name], strict=True))
        low, _, high = statistics.quantiles(cpu, n=4)
        row = {
            "model": subject.model, "case": case.name, "batch": case.batch, "name": name, "ratio": medians[name] / base,
            "quartiles": [low / base, high / base], "cpu_ms": medians[name] * 1e3, "wall_ms":
            statistics.median(wall) * 1e3, "cosine": _cosine(results[name], results["graphcore"]),
        }  # fmt: skip
        record("peers", row)
        print(
            f"  {name:<38}{row['ratio']:6.2f}x ({low / base:.2f} to {high / base:.2f})"
            f"  processor {row['cpu_ms']:8.1f} ms  wall {row['wall_ms']:8.1f} ms  cosine {row['cosine']:.6f}",
            flush=True,
        )
    for ours, peer, most in subject.bounds:
        if ours in medians and peer in medians:
            pairs = zip(times[ours], times[peer], strict=True)  # by round, since a machine's speed changes
            ratio = statistics.median(first / second for (_, first), (_, second) in pairs)
            bounds.figure(f"{case.name}: {ours} beside {peer}", ratio, most, "x")


def _times(case: Case, runs: dict[str, Run], results: dict[str, Array]) -> dict[str, list[tuple[float, float]]]:
    """Return wall and CPU seconds of each in every round, after an untimed one. results: receives the results."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    names = list(runs)
    gc.collect()
    gc.freeze()  # a scan of all objects of the packages takes longer than a turn
    for number in range(case.rounds + 1):
        for name in names if number % 2 else names[::-1]:
            gc.collect()
            time.sleep(PAUSE)
            start = time.perf_counter(), time.process_time()
            results[name] = runs[name](*case.feed)
            taken = time.perf_counter() - start[0], time.process_time() - start[1]
            if number:
                times[name].append(taken)
    gc.unfreeze()
    return times


def _cosine(got: Array, want: Array) -> float:
    got, want = (array.reshape(len(array), -1).astype(np.float64) for array in (got, want))
    lengths = np.linalg.norm(got, axis=1) * np.linalg.norm(want, axis=1)
    return float(((got * want).sum(1) / lengths).mean())


if __name__ == "__main__":
    sys.exit(main())
