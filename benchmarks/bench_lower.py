"""Lowering 10,000 nodes, beside building them; next to no time where every node is legal already.

    python -m benchmarks.bench_lower

The garbage collector is off while lowering and on while building.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.bench_build import NODES
from benchmarks.timing import Bounds, compare
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.runtime.lowering import lower

SECONDS = 0.3
LEGAL = 1.0

Step = Callable[[Symbol, Symbol], Symbol]


def build(dtype: DType, step: Step) -> Graph:
    """Build `x = step(x, y)` repeatedly, in one dtype."""
    graph = Graph("chain", {"x": TensorType(dtype, ["batch", 64]), "y": TensorType(dtype, [64])})
    x, y = graph.inputs
    x = step(x, y)
    for _ in range(NODES // len(graph.nodes) - 1):
        x = step(x, y)
    graph.output(result=x)
    return graph


def _in_turn(x: Symbol, y: Symbol) -> Symbol:
    return (x.cast(DType.float32) + 1.0).cast(x.dtype) + y


def _block(x: Symbol, y: Symbol) -> Symbol:
    """A transformer block: attention with four heads, norms, a feed-forward network, and residual sums."""
    weights, rows = x.graph.weights, x.shape[0]
    w = weights["w"] if "w" in weights else x.graph.weight("w", np.ones((64, 64), x.dtype.numpy))
    hidden = ops.rms_norm(x, y)
    q, k, v = (ops.transpose((hidden @ w + y).reshape([rows, 4, 16]), [1, 0, 2]) for _ in "qkv")
    scores = ops.softmax((q @ ops.transpose(k, [0, 2, 1])) * 0.25)
    x = x + ops.transpose(scores @ v, [1, 0, 2]).reshape([rows, 64]) @ w + y
    return x + ops.gelu(ops.layer_norm(x, y, y) @ w + y) @ w + y


# The name, the graph, and whether it is legal already.
CASES: tuple[tuple[str, DType, Step, bool], ...] = (
    ("float32 x + y", DType.float32, lambda x, y: x + y, True),
    ("int8 x + y", DType.int8, lambda x, y: x + y, True),
    ("bfloat16 x + y", DType.bfloat16, lambda x, y: x + y, False),
    ("bfloat16 transformer blocks", DType.bfloat16, _block, False),
    ("float16 x * y", DType.float16, lambda x, y: x * y, False),
    ("tensor_float32 x * y", DType.tensor_float32, lambda x, y: x * y, False),
    ("int4 x + y", DType.int4, lambda x, y: x + y, False),
    ("bfloat16 and float32 in turn", DType.bfloat16, _in_turn, False),
)  # fmt: skip


def seconds(graph: Graph, rounds: int = 5) -> float:
    """Return the processor seconds of lowering for the CPU, the median of some rounds."""
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        lower(graph, "cpu")
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def main() -> int:
    warnings.simplefilter("ignore")
    bounds = Bounds()
    for what, dtype, step, is_legal in CASES:
        graph = build(dtype, step)
        if is_legal:
            ratio = compare(partial(lower, graph, "cpu"), partial(build, dtype, step))
            bounds.ratio(f"legal    {what}, to building it", ratio, LEGAL)
            continue
        nodes = len(lower(graph, "cpu").nodes)
        bounds.figure(f"lowered  {what}", seconds(graph), SECONDS, " s", f"{len(graph.nodes)} nodes to {nodes}")
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
