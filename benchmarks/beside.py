"""The table of what users would pick instead, and how graphcore stands beside it in a run.

python -m benchmarks.beside build/figures.jsonl
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.decoders.asked import (
    AGAIN,
    KINDS,
    LARGE,
    MEMORY,
    MEMORY_AGAIN,
    PREPARED,
    SHORT,
    SMALL,
    START,
    pairs,
)

Figures = Sequence[dict[str, Any]]
Row = tuple[str, str, str]
"""Work, what graphcore stands beside, and its figures."""

MISSING = "not measured"
ONE_BY_ONE = (
    ("load a file of 10,000 nodes", "bare onnxruntime", "bench_load", ("load 10000 nodes through a Graph",)),
    (
        "MiniLM, embeddings of 1 / 16 / 100 / 160 / 600 sentences",
        "sentence-transformers",
        "bench_embed",
        tuple(f"embed {count} sentences, beside sentence-transformers" for count in (1, 16, 100, 160, 600)),
    ),
    (
        "graphcore --help / promote",
        "import numpy",
        "bench_cli",
        tuple(f"graphcore {name}, beside importing NumPy" for name in ("--help", "promote")),
    ),
    ("nodes left by optimize()", "onnxslim", "bench_fewer_nodes", ("nodes left beside onnxslim",)),
)
"""Rows of single figures: work, the peer, the program and the names of the figures."""


def rows(figures: Figures) -> Iterator[Row]:
    """Return the rows. figures: those of `make bench`."""
    decoders = {(f["shape"], f["what"], f["ours"], f["peer"]): f for f in figures if f["kind"] == "decoders"}
    yield from _decoders(decoders)
    yield from _trained([f for f in figures if f["kind"] == "trained"])
    single = {(f["program"], f["what"]): f["value"] for f in figures if f["kind"] == "bounds"}
    for work, peer, program, names in ONE_BY_ONE:
        yield work, peer, _all([single.get((program, name)) for name in names])
    built = [(name, value) for (program, name), value in single.items() if program == "bench_build"]
    for what in ("build", "write"):
        made = [value for name, value in built if name.startswith(what)]
        yield f"{what} 10,000 nodes", "onnx.helper", _range(made)


def _decoders(found: dict[tuple[str, str, str, str], dict[str, Any]]) -> Iterator[Row]:
    for shape in (SMALL, LARGE):
        for ours, peer in pairs(shape):
            made = [found.get((shape, kind, ours, peer), {}) for kind in KINDS]
            yield f"{shape} Llama-like, {ours}: {SHORT}", peer, _all([row.get("value") for row in made])
    for kind, shape in itertools.product((MEMORY, START, PREPARED, MEMORY_AGAIN, AGAIN), (SMALL, LARGE)):
        sides: dict[str, str] = {}
        for (where, what, ours, peer), row in found.items():
            if (where, what) == (shape, kind):
                sides |= dict(zip((ours, peer), row["sides"], strict=True))
        if sides:
            said = "; ".join(f"{name} {side}" for name, side in sorted(sides.items()))
            yield f"{shape} Llama-like: {kind}", "each other", said


def _trained(found: Figures) -> Iterator[Row]:
    count, peer = len(found) or "", "bare onnxruntime"
    yield f"{count} models of others, load to the first result", peer, _range([row["load"] for row in found])
    yield f"{count} models of others, a second load with a cache", peer, _range([row["second"] for row in found])
    long, short = ([row["run"] for row in found if (row["bare_run"] >= 1e-3) is is_long] for is_long in (True, False))
    yield "running them, of over 1 ms", peer, _range(long)
    yield "running them, below 1 ms", peer, _range(short)


def _all(values: Sequence[float | None]) -> str:
    if not any(values):
        return MISSING
    return " / ".join(MISSING if value is None else f"{value:.2f}" for value in values)


def _range(values: Sequence[float]) -> str:
    if not values:
        return MISSING
    return f"{min(values):.2f} to {max(values):.2f}, median {statistics.median(values):.2f}"


def main(path: str) -> int:
    for work, peer, said in rows([json.loads(line) for line in Path(path).read_text().splitlines()]):
        print(f"{work}, beside {peer}: {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
