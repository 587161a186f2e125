"""Decoders of random weights in the engines that run them: a prompt, a step, eight streams, memory and start.

    python -m benchmarks.bench_decoders [100M] [1B]

The weights are the same for all; each engine is a process of its own, and all take turns. A prompt of 512 tokens, steps
that end at 256 tokens of one stream, and of 8 streams that end at 128: processor time of one thread. Memory is the
greatest of a process that reads prompts of 8 streams, each with room for 1024 tokens, and takes steps; a start is the
processor time of a new process to its first token, with its wall time beside it. Ours is measured from the file, with
what the first start writes beside it, from one that was prepared, and with a cache of starts. Steps are measured when
memory has been gathered in large pages. Peers that are not installed are left out.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

import graphcore as gc
from benchmarks.peers.decoders import files
from benchmarks.peers.decoders.asked import (
    AGAIN,
    LATER,
    MEMORY,
    MEMORY_AGAIN,
    PREFILL,
    PREPARED,
    START,
    STEP,
    STREAMS,
    figure,
    most,
    pairs,
)
from benchmarks.peers.decoders.files import SHAPES, Shape
from benchmarks.peers.decoders.turns import Answers, Process, in_turns, opened, ratio, started
from benchmarks.peers.decoders.worker import Job
from benchmarks.timing import Bounds, record

PROMPT, COUNT, MANY = 512, 8, 8
"""Tokens of the prompt that is measured, steps of a turn, streams."""

ONE, EACH = 256 - COUNT, 128 - COUNT
"""Tokens of the prompts before steps: of one stream, and of each of several."""

FIRST = 16
"""Tokens of the prompt at a start."""

BEFORE = 10
"""Turns of steps before those that are measured: sessions gather their memory in large pages meanwhile."""

SETTLED = 2
"""Seconds after which a file that was written counts as one that stays."""


def show(bounds: Bounds, shape: str, kind: str, answers: Answers, each: int = 1) -> None:
    """Print and record a figure of all pairs that are there; check those of which something is asked."""
    is_memory, is_start = kind in (MEMORY, MEMORY_AGAIN), kind in (START, LATER, PREPARED, AGAIN)
    measured = "peak" if is_memory else "total" if is_start else "processor"
    unit, scale = ("MB", 1.0) if is_memory else ("ms", 1e3 / each)
    for ours, peer in pairs(shape):
        if ours not in answers or peer not in answers:
            continue
        result = ratio(answers, ours, peer, measured)
        sides = [f"{side * scale:.{1 if side * scale < 100 else 0}f} {unit}" for side in (result.ours, result.peer)]
        if is_start:
            wall, value = (ratio(answers, ours, peer, what) for what in ("wall", "peak"))
            more = zip(sides, (wall.ours, wall.peer), (value.ours, value.peer), strict=True)
            sides = [f"{side}, {by_clock * 1e3:.0f} by the clock, {peak:.0f} MB" for side, by_clock, peak in more]
        row = {"shape": shape, "what": kind, "ours": ours, "peer": peer, "value": result.value, "sides": sides}
        record("decoders", row)
        detail = " to ".join(sides)
        name, bound = figure(shape, kind, ours, peer), most(kind, peer)
        if bound is None:
            print(f"{name:<52} {result.value:6.2f}x  {detail}", flush=True)
        else:
            bounds.figure(name, result.value, bound, "x", detail)


def agreement(shape: str, jobs: dict[str, Job]) -> None:
    """Print how far the logits and the tokens of all are from the first's, with a cache of float32 everywhere.

    The first is graphcore in float32. Raises `RuntimeError` if another computes something else in float32.
    """
    with opened({name: replace(job, streams=MANY, exact=True) for name, job in jobs.items()}) as processes:
        results = {}
        for name, process in processes.items():
            logits = np.array(process.ask(logits=PROMPT // 2)["made"])
            process.ask(fill=(MANY, EACH))
            results[name] = logits, np.array(process.ask(steps=COUNT)["made"])
    first = next(iter(results))
    for name, (logits, tokens) in results.items():
        same = float((tokens == results[first][1]).mean())
        far = (
            float(np.linalg.norm(logits - results[first][0]) / np.linalg.norm(results[first][0]))
            if logits.size
            else None
        )
        message = "gives no logits" if far is None else f"logits {far:.2g} of their length away"
        print(f"{shape}, {name} from {first}: {message}, {same:.0%} of tokens the same")
        record("agreement", {"shape": shape, "name": name, "from": first, "far": far, "same": same})
        if "float32" in name and (far is None or far > 1e-4 or same < 1):
            raise RuntimeError(f"{name} and {first} compute different things")


def settle(processes: Mapping[str, Process], jobs: Mapping[str, Job]) -> None:
    """Take the steps after which a session of ours has gathered its memory."""
    for name, process in processes.items():
        for _ in range(BEFORE if jobs[name].engine == "ours" else 0):
            process.ask(steps=COUNT)


def measure(bounds: Bounds, shape: Shape, folder: Path) -> None:
    jobs = files.jobs(shape, folder)
    if shape.is_wide:
        agreement(shape.name, jobs)
    with opened(jobs) as processes:
        show(bounds, shape.name, PREFILL, in_turns(processes, {"prefill": PROMPT}, shape.rounds))
        for process in processes.values():
            process.ask(fill=(1, ONE))
        settle(processes, jobs)
        show(bounds, shape.name, STEP, in_turns(processes, {"steps": COUNT}, 2 * shape.rounds), COUNT)
    with opened({name: replace(job, streams=MANY) for name, job in jobs.items()}) as processes:
        for process in processes.values():
            process.ask(fill=(MANY, EACH))
        settle(processes, jobs)
        answers = in_turns(processes, {"steps": COUNT}, shape.rounds)
    show(bounds, shape.name, STREAMS, answers, COUNT)
    memory = {name: answered[-1:] for name, answered in answers.items()}
    show(bounds, shape.name, MEMORY, memory)
    present = {name: jobs[name] for name in answers}
    time.sleep(SETTLED)  # the first start writes a file beside those that stay
    for kind, start in ((START, "first"), (LATER, "later")):
        of_kind = {name: replace(job, start=start) for name, job in present.items()}
        show(bounds, shape.name, kind, started(of_kind, FIRST, shape.rounds))
    for job in present.values():
        if job.engine == "ours":
            gc.InferenceSession(intra_op_num_threads=job.threads).prepare(job.path)
    of_kind = {name: replace(job, start="prepared") for name, job in present.items()}
    show(bounds, shape.name, PREPARED, started(of_kind, FIRST, shape.rounds))
    with tempfile.TemporaryDirectory() as entries:
        cached = {name: replace(job, entries=entries) for name, job in present.items() if job.engine == "ours"}
        time.sleep(SETTLED)
        # The peers take turns again: figures are of one run. The first round, which fills the cache, does not count.
        show(bounds, shape.name, AGAIN, started(present | cached, FIRST, shape.rounds))
        with opened({name: replace(job, streams=MANY) for name, job in cached.items()}) as processes:
            for process in processes.values():
                process.ask(fill=(MANY, EACH))
            again = in_turns(processes, {"steps": COUNT}, 1)
        show(bounds, shape.name, MEMORY_AGAIN, memory | again)


def main(*names: str) -> int:
    bounds = Bounds()
    for name in names or SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            if not files.write(SHAPES[name], Path(folder)):
                return bounds.exit_code()
            measure(bounds, SHAPES[name], Path(folder))
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
