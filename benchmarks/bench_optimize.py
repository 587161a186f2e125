"""Optimising 10,000 nodes with all passes: where no node is removed, and where nearly all are.

python -m benchmarks.bench_optimize
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections.abc import Callable

from benchmarks.bench_build import NODES
from benchmarks.timing import Bounds
from graphcore import DType, Graph, Symbol, TensorType, ops

SECONDS = 0.3

Step = Callable[[Symbol, Symbol], Symbol]


def _unchanged(x: Symbol) -> Symbol:
    opposite = -x
    return -opposite


def _foldable(x: Symbol, y: Symbol) -> Symbol:
    two = x.graph.constant([2.0] * 64)
    return x + (two * two - y.cast(DType.float64).cast(DType.float32))


# The name and the step of x = step(x, y), built repeatedly.
CASES: tuple[tuple[str, Step], ...] = (
    ("x + y: nothing goes", lambda x, y: x + y),
    ("exp(y) + x: one exp stays", lambda x, y: ops.exp(y) + x),
    ("x negated twice, times 1: all goes", lambda x, y: _unchanged(x) * 1.0),
    ("casts there and back", lambda x, y: x.cast(DType.float64).cast(DType.float32) + y),
    ("constants of 64 elements", _foldable),
    ("transposed twice", lambda x, y: x.permute(1, 0).permute(1, 0) + y),
    ("what nothing uses", lambda x, y: (ops.sin(x), ops.tanh(y), x + y)[2]),
)


def build(step: Step) -> Graph:
    """Build a graph of 10,000 nodes, or a few less."""
    graph = Graph("chain", {"x": TensorType(DType.float32, ["batch", 64]), "y": TensorType(DType.float32, [64])})
    start, y = graph.inputs
    x = start
    while len(graph.nodes) < NODES:
        before = len(graph.nodes)
        for _ in range(100):
            x = step(x, y)
        if len(graph.nodes) + (len(graph.nodes) - before) > NODES:
            break
    graph.output(result=x)
    return graph


def seconds(graph: Graph, rounds: int = 5) -> float:
    """Return the seconds of processor time of optimising, the median of some rounds."""
    taken = []
    for _ in range(rounds):
        start = time.thread_time()
        graph.optimize()
        taken.append(time.thread_time() - start)
    return statistics.median(taken)


def main() -> int:
    warnings.simplefilter("ignore")
    bounds = Bounds()
    for what, step in CASES:
        graph = build(step)
        detail = f"{len(graph.nodes)} nodes to {len(graph.optimize().nodes)}"
        bounds.figure(f"optimised  {what}", seconds(graph), SECONDS, " s", detail)
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
