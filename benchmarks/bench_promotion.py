"""The cost of promotion by each system in building a node.

    python -m benchmarks.bench_promotion

Graphs of 5,000 ops of two operands. The peer is the same in the default system on operands of one dtype, where there is
no promotion: a node's extra cost is its system's. A graph caches the answer for a pair of types. kernel_float makes two
nodes of a comparison, the second one a cast.
"""

from __future__ import annotations

import gc
import sys
import time
import warnings
from collections.abc import Callable

from benchmarks.timing import Bounds
from graphcore import DType, Graph, Symbol, TensorType
from graphcore.promotion import NAMES, Key, Operand, system

NODES = 5_000
ROUNDS = 12
ADDED_BOUND = 1.0
"""Microseconds a node."""
ASKED_BOUND = 20.0
"""Microseconds for a pair of dtypes that a graph has not met."""

Step = Callable[[Symbol, Symbol], Symbol]


def chain(name: str, left: DType, right: DType, step: Step) -> Callable[[], Graph]:
    """Build `step(x, y)` repeatedly from the same operands: one or two nodes each."""

    def build() -> Graph:
        types = {"x": TensorType(left, [64]), "y": TensorType(right, [64])}
        graph = Graph("chain", types, promotion=name)
        x, y = graph.inputs
        step(x, y)  # casts are made once
        for _ in range(NODES):
            result = step(x, y)
        graph.output(result=result)
        return graph

    return build


def add(x: Symbol, y: Symbol) -> Symbol:
    return x + y


# The name, the dtypes of x and y (every system but the one of strict kinds promotes them), the step.
CASES: tuple[tuple[str, DType, DType, Step], ...] = (
    ("x + y, one dtype", DType.float32, DType.float32, add),
    ("x + y, int8 and int32", DType.int8, DType.int32, add),
    ("x * 2, a Python number", DType.float32, DType.float32, lambda x, y: x * 2),
    ("x < y", DType.int32, DType.int8, lambda x, y: x < y),
)


def least(*functions: Callable[[], object]) -> list[float]:
    """Return the least seconds of each, alternating: the time of the work itself, as differences are reported."""
    taken = [float("inf")] * len(functions)
    for _ in range(ROUNDS):
        for i, function in enumerate(functions):
            gc.collect()
            start = time.process_time()
            result = function()
            taken[i] = min(taken[i], time.process_time() - start)
            del result  # after the timing
    return taken


def main() -> int:
    bounds = Bounds()
    warnings.simplefilter("ignore")
    plain = chain("max", DType.float32, DType.float32, add)
    for what, left, right, step in CASES:
        for name in NAMES:
            build = chain(name, left, right, step)
            nodes = len(build().nodes)
            ours, peer = least(build, plain)
            each, node = ours / nodes * 1e6, peer / len(plain().nodes) * 1e6
            detail = f"{each / node:5.2f}x  {each:.2f} us to {node:.2f} us"
            bounds.figure(f"{what}  {name}", each - node, ADDED_BOUND, "us", detail)
    for name in NAMES:
        rules = system(name)
        key, operands = Key("add", "arithmetic", True), [Operand(DType.int8), Operand(DType.int32)]

        def ask() -> None:
            for _ in range(NODES):
                rules.resolve(key, operands)  # noqa: B023 - called before the loop goes on

        requested = least(ask)[0] / NODES * 1e6
        bounds.figure(f"asked for a pair  {name}", requested, ASKED_BOUND, "us")
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
