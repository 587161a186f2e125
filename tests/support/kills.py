"""Exports that are killed: `python -m tests.support.kills --kills 1000` kills processes that write one model.

Each model has a number that all of its weights have. After each kill the file is read: a model is whole where its
weights are those of one number. It prints the counts as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from graphcore import DType, Graph, TensorType

STEPS = ("chmod", "link", "open", "rename", "replace", "scandir", "unlink")
"""Functions of os that writing calls."""

LAYERS = 3


def numbered(number: int) -> Graph:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n", 1024])})
    y = graph["x"]
    for layer in range(LAYERS):
        y = y + graph.weight(f"w{layer}", np.full(1024, number, np.float32))
    graph.output(y=y)
    return graph


def number_of(path: Path) -> int | None:
    """Return the number that all weights of a file have; None for a file that is not whole."""
    try:
        arrays = [numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer]
    except Exception:  # however it is broken
        return None
    found = {float(value) for array in arrays for value in np.unique(array)}
    return int(found.pop()) if len(arrays) == LAYERS and len(found) == 1 else None


def in_child(work: Callable[[], None]) -> int:
    """Start a process that does some work, and ends without cleaning up."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def die_at(step: int) -> None:
    """End this process before a call of one of `STEPS`, counted from 0."""
    left = step

    def watched(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **named: object) -> object:
            nonlocal left
            if left == 0:
                os._exit(9)
            left -= 1
            return real(*args, **named)

        return call

    for name in STEPS:
        setattr(os, name, watched(getattr(os, name)))


def killed_at_each_step(path: Path, *, external: bool, first: int) -> dict[str, int]:
    """Write a model, killed at each step in turn until one export comes to its end. first: the number it has before."""
    counts = {"kills": 0, "lost": 0, "left": 0}
    old, new = numbered(first), numbered(first + 1)
    step = 0
    while True:
        old.export(path, external_data=external)
        counts["left"] += len(left_beside(path, external=external))

        def work(step: int = step) -> None:
            die_at(step)
            new.export(path, external_data=external)

        _, status = os.waitpid(in_child(work), 0)
        counts["lost"] += number_of(path) not in (first, first + 1)
        if os.waitstatus_to_exitcode(status) == 0:
            return counts
        counts["kills"] += 1
        step += 1


def killed_at_random(path: Path, kills: int, seed: int) -> dict[str, int]:
    """Kill processes that write models with and without a file of weights, and export again after some of them."""
    counts = {"kills": 0, "lost": 0, "left": 0, "with leftovers": 0}
    rng = random.Random(seed)
    graphs = [numbered(number) for number in range(8)]
    graphs[0].export(path, external_data=True)
    for _ in range(kills):
        writes_data = rng.random() < 0.8

        def work(external: bool = writes_data) -> None:
            while True:
                for graph in graphs:
                    graph.export(path, external_data=external)

        child = in_child(work)
        time.sleep(rng.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        counts["kills"] += 1
        counts["lost"] += number_of(path) is None
        counts["with leftovers"] += bool(left_beside(path, external=True))
        if rng.random() < 0.5:
            graphs[1].export(path, external_data=writes_data)
            counts["lost"] += number_of(path) != 1
            counts["left"] += len(left_beside(path, external=True))
    return counts


def left_beside(path: Path, *, external: bool) -> list[str]:
    """Return the files that an export should not have left."""
    wanted = {path.name, f"{path.name}.data"} if external else {path.name}
    return sorted({file.name for file in path.parent.iterdir()} - wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    counts = {}
    with tempfile.TemporaryDirectory() as folder:
        for external in (False, True):
            place = Path(folder, str(external))
            place.mkdir()
            counts[f"each step, {external=}"] = killed_at_each_step(place / "m.onnx", external=external, first=1)
        place = Path(folder, "random")
        place.mkdir()
        counts["random"] = killed_at_random(place / "m.onnx", args.kills, args.seed)
    json.dump(counts, sys.stdout)


if __name__ == "__main__":
    main()
