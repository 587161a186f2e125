"""Products of more than 64 bits, beside the product of as many int64 numbers.

    python -m benchmarks.bench_limbs

Each result is exact and comes out as uint32 digits along a last axis. The peer is one Mul or MatMul of int64, which
wraps; both run through graphcore, in turn, on one thread. A ratio is the cost of a wide product in int64 products.
Matrices are those of Allo's style hls, in which int64 @ int64 is int128.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable
from functools import partial

import numpy as np

import graphcore as gc
from benchmarks.timing import Bounds, compare
from graphcore import DType, Graph, TensorType

ELEMENTS = 1 << 20
THREADS = 1
REPEATS = 8
ROUNDS = 7

Run = Callable[[], object]

# The factors' dtype, their number, the product's dtype, and the greatest ratio to an int64 product.
CASES: tuple[tuple[DType, int, DType, float], ...] = (
    (DType.int32, 3, DType.int(96), 20.0),
    (DType.int(48), 2, DType.int(96), 25.0),
)

SIDE = 256
MATRICES: tuple[tuple[str, tuple[int | str, int | str], float], ...] = (
    (f"int64 @ int64 -> int128, {SIDE} x {SIDE}, to an int64 product", (SIDE, SIDE), 5.0),
    ("the same of lengths that are not known", ("n", "n"), 25.0),
)


def graph_of(factor: DType, count: int, product: DType) -> Graph:
    graph = Graph("product", {f"x{i}": TensorType(factor, [ELEMENTS]) for i in range(count)})
    graph.output(functools.reduce(operator.mul, [x.cast(product) for x in graph.inputs]))
    return graph


def runner(factor: DType, count: int, product: DType) -> Run:
    """Return a timed run."""
    random = np.random.default_rng(0)
    least, greatest = int(factor.min), int(factor.max)
    arrays = [random.integers(least, greatest, ELEMENTS, factor.numpy, endpoint=True) for _ in range(count)]
    session = gc.InferenceSession(intra_op_num_threads=THREADS)
    return partial(_repeat, partial(session.load(graph_of(factor, count, product)), *arrays))


def matrices(promotion: str, shape: tuple[int | str, int | str]) -> Run:
    """Return a timed run of a product of int64 matrices of two numbers that need all bits."""
    graph = Graph("matrices", {name: TensorType(DType.int64, shape) for name in "xy"}, promotion=promotion)
    graph.output(graph["x"] @ graph["y"])
    random = np.random.default_rng(0)
    arrays = [random.integers(-(1 << 63), (1 << 63) - 1, (SIDE, SIDE), np.int64, endpoint=True) for _ in "xy"]
    session = gc.InferenceSession(intra_op_num_threads=THREADS)
    return partial(_repeat, partial(session.load(graph), *arrays))


def _repeat(function: Run) -> None:
    for _ in range(REPEATS):
        function()


def main() -> int:
    bounds = Bounds()
    peer = runner(DType.int64, 2, DType.int64)
    for factor, count, product, most in CASES:
        what = f"{' * '.join([factor.name] * count)} -> {product}, to an int64 product"
        bounds.ratio(what, compare(runner(factor, count, product), peer, ROUNDS), most, REPEATS)
    plain = matrices("max", (SIDE, SIDE))
    for what, shape, most in MATRICES:
        bounds.ratio(what, compare(matrices("allo_hls", shape), plain, ROUNDS), most, REPEATS)
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
