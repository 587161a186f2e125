"""The table of what users would pick instead, and how graphcore stands beside it in a run; decoders have their own.

python -m benchmarks.beside build/figures.jsonl
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.profiles import section

Figures = Sequence[dict[str, Any]]

MISSING = "not measured"
BARE, RUN = "bare onnxruntime", "`session.run`"


@dataclass(frozen=True, slots=True)
class Row:
    """A row. peer: what graphcore stands beside. limit: the greatest value allowed. result: the figures of the run.

    why: the section of benchmarks/notes.md with the profile of figures above the limit; "" if there are none.
    """

    work: str
    peer: str
    limit: str
    result: str
    why: str = ""


SINGLE = (
    (
        "load a file of 10,000 / 50,000 nodes; 10,000 through a Graph",
        BARE,
        "bench_load",
        ("load 10000 nodes", "load 50000 nodes", "load 10000 nodes through a Graph"),
    ),
    (
        "calls of graphs of a few nodes, 1 / 4 / 16 inputs",
        RUN,
        "bench_call",
        tuple(f"call  {count} inputs by position, beside run" for count in (1, 4, 16)),
    ),
    (
        "casts of floats to int64: after a support vector machine / after trees",
        RUN,
        "bench_third_party",
        ("a support vector machine cast to int64, beside run", "trees cast to int64, beside run"),
    ),
    (
        "float16 of others: products / convolutions",
        RUN,
        "bench_third_party",
        ("float16 products, beside run", "float16 convolutions, beside run"),
    ),
    (
        "1 / 16 / 256 strings",
        RUN,
        "bench_call",
        tuple(f"call  {count} strings, str, beside run" for count in (1, 16, 256)),
    ),
    (
        "encoders in int8_dynamic: MiniLM-L3 / MiniLM-L6 / rxnmap",
        "onnxruntime's own quantisation",
        "bench_quantized_encoders",
        tuple(f"{name}: int8_dynamic beside quantize_dynamic" for name in ("MiniLM-L3", "MiniLM-L6", "rxnmap")),
    ),
    (
        "LSTMs in int8, 256 wide / 384 wide",
        "onnxruntime's own quantisation",
        "bench_quantized_layers",
        ("LSTM 256 to 256, 64 x 1: beside onnxruntime's", "LSTM 384 to 384, 64 x 4: beside onnxruntime's"),
    ),
    ("nodes left by `optimize()`", "onnxslim", "bench_fewer_nodes", ("nodes left beside onnxslim",)),
    (
        "`Model.bind` of a forest: bound / bound, given arrays",
        RUN,
        "bench_call",
        ("call  a forest, bound, beside run", "call  a forest, bound, given, beside run"),
    ),
    (
        "MiniLM, embeddings of 1 / 16 / 100 / 160 / 600 sentences; of 64 long ones",
        "sentence-transformers",
        "bench_embed",
        (
            *(f"embed {count} sentences, beside sentence-transformers" for count in (1, 16, 100, 160, 600)),
            "embed 64 sentences of up to 119 words, beside sentence-transformers",
        ),
    ),
    (
        "`graphcore --help` / `promote`",
        "`import numpy`",
        "bench_cli",
        tuple(f"graphcore {name}, beside importing NumPy" for name in ("--help", "promote")),
    ),
    (
        "build and write 10,000 / 100,000 nodes",
        "onnx.helper",
        "bench_build",
        tuple(f"both   x + y, one dtype, {count} nodes" for count in (10_000, 100_000)),
    ),
)
"""Rows of single figures: work, the peer, the program and the names of the figures."""


def rows(figures: Figures) -> Iterator[Row]:
    """Return the rows. figures: those of `make bench`."""
    yield from _trained([f for f in figures if f["kind"] == "trained"])
    yield _architectures([f for f in figures if f["kind"] == "architectures"])
    single = {(f["program"], f["what"]): (f["value"], f["most"]) for f in figures if f["kind"] == "bounds"}
    for work, peer, program, names in SINGLE:
        results = [single.get((program, name)) for name in names]
        yield _row(work, peer, program, results)


def _trained(result: Figures) -> Iterator[Row]:
    program = "bench_trained"
    for what, bare, bounds, words, shortest in (
        ("load", "bare_load", (1.2, 2.0), ("of 5 ms and more", "below 5 ms"), 5e-3),
        ("run", "bare_run", (1.03, 1.1), ("of 1 ms and more", "below 1 ms"), 1e-3),
    ):
        for is_long, bound, size in zip((True, False), bounds, words, strict=True):
            values = [row[what] for row in result if (row[bare] >= shortest) is is_long]
            work = {"load": "load to the first result", "run": "run"}[what]
            yield _range(f"{work}, third-party models, {size}", BARE, program, values, bound)
    second = [row["second"] for row in result]
    yield _range("load third-party models again, with a cache", BARE, "bench_second_load", second, 0.5)


def _architectures(result: Figures) -> Row:
    work = "run PyTorch's exports of architectures that docs/development/exports.md does not have"
    return _range(work, BARE, "bench_architectures", [row["ratio"] for row in result], 1.03)


def _row(work: str, peer: str, program: str, figures: Sequence[tuple[float, float | None] | None]) -> Row:
    """Return a row of several figures, each with the most that is asked for, None where nothing is."""
    if not any(figures):
        return Row(work, peer, "", MISSING)
    message, requested, is_above = [], [], False
    for figure in figures:
        if figure is None:
            message.append(MISSING)
            requested.append("–")
            continue
        value, bound = figure
        above = bound is not None and float(f"{value:.3g}") > bound
        is_above |= above
        message.append(f"**{value:.2f}**" if above else f"{value:.2f}")
        requested.append("–" if bound is None else f"{bound:g}")
    one = requested[0] if len({*requested}) == 1 else " / ".join(requested)
    return Row(work, peer, one, " / ".join(message), section(program) if is_above else "")


def _range(work: str, peer: str, program: str, values: Sequence[float], bound: float) -> Row:
    """Return a row of many models: their median, the least and the greatest, and how many are above the limit."""
    if not values:
        return Row(work, peer, f"{bound:g}", MISSING)
    above = sum(float(f"{value:.3g}") > bound for value in values)
    spread = f"median {statistics.median(values):.2f}, {min(values):.2f} to {max(values):.2f} of {len(values)}"
    message = f"{spread}; **{above} above**" if above else f"{spread}; none above"
    return Row(work, peer, f"{bound:g}", message, section(program) if above else "")


def main(path: str) -> int:
    for row in rows([json.loads(line) for line in Path(path).read_text().splitlines()]):
        print(f"{row.work}, beside {row.peer}: {row.result}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
