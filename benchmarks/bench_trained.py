"""Models that others trained, out of packages: load to the first result, the same again with a cache, and running.

    python -m benchmarks.bench_trained [LABEL ...]

The peer is a bare session of the same file, made anew in every turn; the second load is that of a `cache_dir` that an
earlier load has filled. Processor time of one thread. The feeds are made from the types of the inputs, and outputs are
compared bit for bit. The packages are fetched into a cache folder outside of the tree.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import graphcore as gc
from benchmarks.timing import Bounds, Ratio, compare, record
from benchmarks.trained_models import TRAINED, Array, Trained, folder

LONG_LOAD, LONG_RUN = 5e-3, 1e-3
"""Seconds from which on a load and a run are long."""

LOADS, RUNS = (1.2, 2.0), (1.03, 1.1)
"""The most that is asked for, of those that are long and of the others."""

SECOND = 0.5
LOAD_SECONDS, RUN_SECONDS, RUNS_SECONDS, ROUNDS = 0.4, 0.02, 0.5, 15
"""Seconds of all loads, of calls in a turn and of all calls, and rounds; longer ones take fewer rounds."""


@dataclass(frozen=True, slots=True)
class Row:
    """A model's figures. load, second, run: beside bare. bare: its seconds to the first result, and of a run.

    far: the greatest difference of an output, beside its greatest number; 0 if all are equal bit for bit.
    """

    label: str
    nodes: int
    bare_load: float
    bare_run: float
    load: float
    second: float
    run: float
    far: float

    @property
    def most_load(self) -> float:
        return LOADS[self.bare_load < LONG_LOAD]

    @property
    def most_run(self) -> float:
        return RUNS[self.bare_run < LONG_RUN]


def measured(model: Trained, files: Path) -> Row:
    path = model.file(files)
    session = _bare(path)
    feed = model.feed(session)
    ours = gc.InferenceSession(intra_op_num_threads=1)
    loaded = ours.load(path)
    far = _far(session.run(None, feed), [*loaded(**feed)])
    del session, loaded
    rounds = max(3, min(ROUNDS, int(LOAD_SECONDS / _taken(lambda: _bare(path).run(None, feed)))))
    load = compare(
        lambda: ours.load(path)(**feed), lambda: _bare(path).run(None, feed), rounds, clock=time.process_time
    )
    with tempfile.TemporaryDirectory() as remaining:
        second = compare(
            lambda: ours.load(path, cache_dir=remaining)(**feed), lambda: _bare(path).run(None, feed), rounds,
            clock=time.process_time,
        )  # fmt: skip
    run = _run(path, feed)
    if run.value > RUNS[run.peer < LONG_RUN]:  # where weights lie makes 5 %: the middle of three sessions
        run = sorted((run, _run(path, feed), _run(path, feed)), key=lambda result: result.value)[1]
    nodes = _count(onnx.load(path).graph)
    return Row(model.label, nodes, load.peer, run.peer, load.value, second.value, run.value, far)


def _run(path: Path, feed: dict[str, Array]) -> Ratio:
    """Compare calls in sessions of their own."""
    model, session = gc.InferenceSession(intra_op_num_threads=1).load(path), _bare(path)
    taken = _taken(lambda: session.run(None, feed))
    calls, rounds = max(1, int(RUN_SECONDS / taken)), max(5, min(ROUNDS, int(RUNS_SECONDS / taken)))
    result = compare(
        _repeated(lambda: model(**feed), calls), _repeated(lambda: session.run(None, feed), calls), rounds,
        clock=time.process_time,
    )  # fmt: skip
    return Ratio(result.value, result.ours / calls, result.peer / calls)


def _bare(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _taken(function: Callable[[], object]) -> float:
    function()
    begun = time.process_time()
    function()
    return max(time.process_time() - begun, 1e-6)


def _repeated(function: Callable[[], object], calls: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(calls):
            function()

    return run


def _far(bare: list[Array], ours: list[Array]) -> float:
    assert [(a.dtype, a.shape) for a in bare] == [(b.dtype, b.shape) for b in ours]
    different = [(a, b) for a, b in zip(bare, ours, strict=True) if a.tobytes() != b.tobytes()]
    return max((float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30)) for a, b in different), default=0.0)


def _count(graph: Any) -> int:
    """Return the number of nodes of a graph and its bodies."""
    inner = (body for node in graph.node for part in node.attribute for body in (*part.graphs, part.g))
    return len(graph.node) + sum(_count(body) for body in inner)


def show(row: Row) -> None:
    same = "equal" if not row.far else f"{row.far:.1g} off"
    load = f"load {row.load:5.2f}x of {row.bare_load * 1e3:7.2f} ms, second {row.second:5.2f}x"
    print(f"{row.label:<22} {row.nodes:5} nodes  {load}, run {row.run:5.2f}x of {row.bare_run * 1e3:8.3f} ms, {same}")
    record("trained", asdict(row))
    sys.stdout.flush()


def summary(bounds: Bounds, rows: list[Row]) -> None:
    """Check the medians, and that no model is above what is asked for of each."""
    long, short = ([row for row in rows if (row.bare_load >= LONG_LOAD) is is_long] for is_long in (True, False))
    for some, most, what in ((long, LOADS[0], f"over {LONG_LOAD * 1e3:g} ms"), (short, LOADS[1], "below")):
        if some:
            slowest = max(some, key=lambda row: row.load)
            detail = f"{len(some)} models, {slowest.label} {slowest.load:.2f}x"
            median = statistics.median(row.load for row in some)
            bounds.figure(f"load to the first result, {what}, median", median, most, "x", detail)
    bounds.figure("second load with a cache, median", statistics.median(r.second for r in rows), SECOND, "x")
    bounds.figure("run, median", statistics.median(row.run for row in rows), RUNS[0], "x")
    for what, above in (
        ("that are slow to load", [row for row in rows if row.load > row.most_load]),
        ("that are slow to load again", [row for row in rows if row.second > SECOND]),
        ("that are slow to run", [row for row in rows if row.run > row.most_run]),
        ("with other outputs", [row for row in rows if row.far]),
    ):
        bounds.figure(f"models {what}", len(above), 0, "", ", ".join(row.label for row in above))


def main(*labels: str) -> int:
    bounds, files = Bounds(), folder()
    rows: list[Row] = []
    missing: set[str] = set()
    for model in TRAINED:
        if model.package in missing or (labels and model.label not in labels):
            continue
        try:
            model.file(files)
        except OSError as error:
            print(f"left out: {error}")
            missing.add(model.package)
            continue
        rows.append(measured(model, files))
        show(rows[-1])
    if rows:
        summary(bounds, rows)
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
