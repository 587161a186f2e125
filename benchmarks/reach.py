"""The speed targets of graphcore: each figure, the program that measures it, and whether a run reaches it.

    python -m benchmarks.reach build/figures.jsonl

A program's own bound catches regressions; this table has the targets. The two are equal where a target is reached with
room for noise. Figures that need a package that is not installed are reported as not measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import profiles
from benchmarks.peers.decoders.asked import LARGE, LIMIT, SMALL, figure, pairs

PEERS = "benchmarks/peers/requirements.txt"
PROVIDER = "onnxruntime-openvino"
LIBRARIES = "npm install in benchmarks/peers"


@dataclass(frozen=True, slots=True)
class Target:
    """A target. figure: its name in the program. most: in `unit`. needs: the packages to measure it.

    why: the section of benchmarks/notes.md that explains a missed target, if it is not that of the program.
    """

    program: str
    figure: str
    most: float
    unit: str = "x"
    needs: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class TargetFigure:
    """A target and its figure in a run, None if not measured."""

    request: Target
    value: float | None

    @property
    def holds(self) -> bool | None:
        """Return True if the target is reached in three digits, as shown: further digits are noise."""
        return None if self.value is None else float(f"{self.value:.3g}") <= self.request.most

    @property
    def why(self) -> str:
        """Return the section of the notes with the profile, "" if there is none."""
        return profiles.section(self.request.program, self.request.why)

    @property
    def verdict(self) -> str:
        if self.value is None:
            return (
                f"not measured in this run; it needs {self.request.needs}"
                if self.request.needs
                else "not measured in this run"
            )
        return "holds" if self.holds else "does not hold"


def compare(figures: Sequence[dict[str, Any]]) -> list[TargetFigure]:
    """Return every target with its figure of a run. figures: the file of `make bench`."""
    results = {(row["program"], row["what"]): float(row["value"]) for row in figures if row["kind"] == "bounds"}
    return [TargetFigure(item, results.get((item.program, item.figure))) for item in ROWS]


def lines(rows: Sequence[TargetFigure]) -> Iterator[str]:
    """Return the table as text."""
    wide = max(len(row.request.figure) for row in rows)
    for row in rows:
        requested = row.request
        value = " " * 9 if row.value is None else f"{row.value:7.3g}{requested.unit:<2}"
        yield f"{requested.figure:<{wide}}  at most {requested.most:>6g}{requested.unit:<2}  {value}  {row.verdict}"
    yield summary(rows)


def summary(rows: Sequence[TargetFigure]) -> str:
    holds = [row.holds for row in rows]
    return f"{holds.count(True)} hold, {holds.count(False)} do not, {holds.count(None)} were not measured"


def _minilm() -> Iterator[Target]:
    ours, bare = "graphcore on PyTorch's export", "onnxruntime on PyTorch's export"
    for case in ("MiniLM, 1 of 128 tokens", "MiniLM, 32 of 128 tokens"):
        yield Target("bench_minilm", f"{case}: beside the best form by hand", 1.02)
        yield Target("bench_peers", f"{case}: graphcore beside PyTorch, eager", 1, needs=PEERS)
        yield Target("bench_peers", f"{case}: graphcore beside {bare}", 1, needs=PEERS)
        yield Target("bench_peers", f"{case}: {ours} beside {bare}", 0.9, needs=PEERS)
        yield Target("bench_quantized_minilm", f"{case}: int8_dynamic beside float32", 0.38, why="int8")
        yield Target(
            "bench_peers", f"{case}: graphcore, int8_split beside OpenVINO, float32", 1, needs=PEERS, why="int8_split"
        )
        yield Target(
            "bench_peers", f"{case}: graphcore, int8_split beside PyTorch, compile", 1, needs=PEERS, why="int8_split"
        )
        for dtype in ("bfloat16", "float16"):
            yield Target(
                "bench_openvino", f"{case}: {dtype} on OpenVINO beside CPU", 0.35, needs=PROVIDER, why="OpenVINO"
            )
    quantized, one, many = "bench_quantized_minilm", "MiniLM, 1 of 128 tokens", "MiniLM, 32 of 128 tokens"
    yield Target(quantized, "MiniLM, int8_dynamic: 1 - mean cosine", 0.02, "")
    for split in ("int8_split", "int8_split, samples"):
        yield Target(quantized, f"{one}: {split} beside float32", 0.75)
        yield Target(quantized, f"{many}: {split} by 4, beside float32 whole", 0.7)
        yield Target(quantized, f"MiniLM, {split}: 1 - mean cosine", 1e-4, "")
    yield Target("bench_start", "MiniLM, after imports to the first embedding", 0.06, "s")


def _decoders() -> Iterator[Target]:
    for shape in (SMALL, LARGE):
        for ours, peer in pairs(shape):
            needs = LIBRARIES if peer.startswith("llama.cpp") else PEERS
            for kind, most in LIMIT.get(peer, {}).items():
                yield Target(
                    "bench_decoders",
                    figure(shape, kind, ours, peer),
                    most,
                    needs=needs,
                )


def _trained() -> Iterator[Target]:
    """Of third-party models: medians, and how many are above what is asked of each."""
    for name, most in (
        ("load to the first result, over 5 ms, median", 1.2),
        ("load to the first result, below, median", 2),
        ("run, median", 1.03),
    ):
        yield Target("bench_trained", name, most)
    yield Target("bench_trained", "second load with a cache, median", 0.5, why="Second loads")
    for what in ("that are slow to load", "that are slow to load again", "that are slow to run", "with other outputs"):
        yield Target("bench_trained", f"models {what}", 0, "")


_RESNET = "ResNet-50, 1 of 224x224"

ROWS = (
    *_minilm(),
    Target("bench_decode", "a step, cache 256, beside GroupQueryAttention by hand", 1),
    Target("bench_decode", "a step, cache 900, beside a shared buffer by hand", 1),
    Target("bench_decode", "a step, 4 bits, beside float32", 0.27),
    Target("bench_decode", "a step of two threads, beside one", 0.7),
    Target("bench_decode", "memory of 100 steps, beside the cache", 1),
    Target("bench_peers", f"{_RESNET}: graphcore beside onnxruntime on PyTorch's folded export", 1, needs=PEERS),
    Target("bench_running", "bound call, 1 inputs, beside I/O binding", 1.2),
    Target("bench_running", "bound call, 4 inputs, beside I/O binding", 1.2),
    Target("bench_running", "second start, file of 1978 nodes, beside first", 0.5),
    Target("bench_running", "second start, Graph of 1978 nodes, beside first", 0.5),
    Target("bench_running", "1 GB, own export: to the first result", 0.15, "s"),
    Target("bench_running", "1 GB, own export: memory of its own", 150, "MB"),
    Target("bench_running", "1 GB, safetensors: to the first result", 0.15, "s"),
    Target("bench_running", "1 GB, safetensors: memory of its own", 150, "MB"),
    Target("bench_running", "1 GB, prepacked: peak, of the weights", 2.1),
    Target("bench_running", "1 GB, prepacked: to the first result, beside bare", 1.2),
    *_decoders(),
    *_trained(),
    *(
        Target("bench_embed", f"embed {count} sentences, beside sentence-transformers", 0.85, needs=PEERS)
        for count in (100, 160, 600)
    ),
    *(Target("bench_cli", f"graphcore {name}, beside importing NumPy", 1.2) for name in ("--help", "promote")),
    Target("bench_fewer_nodes", "nodes left beside onnxslim", 1, needs="onnxslim"),
)  # fmt: skip


def main(path: str) -> int:
    figures = [json.loads(line) for line in Path(path).read_text().splitlines()]
    print(*lines(compare(figures)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
