"""Products with quantised weights, beside float32's of the same size.

    python -m benchmarks.bench_qmatmul

CPU time of one thread. For each encoding, the time relative to `x @ weight` in float32, and the bytes of the weight in
the lowered graph relative to float32's. "level 4" is `accuracy_level=4`: x is stored in int8.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import graphcore as gc
from benchmarks.timing import Bounds, compare
from graphcore import DType, Graph, Model, Symbol, TensorType, ops
from graphcore.ir.symbol import Constant
from graphcore.quantization import encode
from graphcore.runtime.lowering import lower

Array = np.ndarray[Any, Any]
Product = Callable[[Symbol, Array], Symbol]

# Rows, the summed axis, columns, and the repetitions in a timed run.
SIZES = ((1, 768, 3072, 100), (128, 384, 1536, 10), (512, 1024, 1024, 2))


def of(encoding: str, block_size: int | None = None, symmetric: bool = True, **options: Any) -> Product:
    """A product with a weight in an encoding."""

    def product(x: Symbol, weight: Array) -> Symbol:
        axis = 0 if encoding.startswith("int8") else None
        value = encode(weight, encoding, axis=axis, block_size=block_size, symmetric=symmetric)
        return ops.qmatmul(encoding, x, value, **options)

    return product


# The greatest ratio to float32 for each size.
PRODUCTS: dict[str, tuple[Product, tuple[float, float, float]]] = {
    "int8 dynamic": (of("int8", dynamic=True), (0.9, 0.8, 0.7)),
    "int8 dynamic, zero points": (of("int8", symmetric=False, dynamic=True), (0.9, 0.8, 0.7)),
    "int8 dynamic, two digits": (of("int8", symmetric=False, dynamic=True, digits=2), (1.3, 0.9, 0.85)),
    "int8_split": (of("int8_split"), (1.6, 1.05, 1.05)),
    "int8": (of("int8"), (1.3, 1.3, 1.3)),
    "int8 level 4": (of("int8", accuracy_level=4), (0.9, 1.4, 1.4)),
    "int4": (of("int4"), (2.5, 1.5, 1.5)),
    "int4 level 4": (of("int4", accuracy_level=4), (0.9, 1.4, 1.4)),
    "int4 of 128 level 4": (of("int4", block_size=128, accuracy_level=4), (0.9, 1.3, 1.3)),
    "q4_0": (of("q4_0"), (2.5, 1.5, 1.5)),
    "q4_k": (of("q4_k"), (3.0, 1.7, 1.6)),
    "q4_k level 4": (of("q4_k", accuracy_level=4), (1.2, 1.6, 1.5)),
    "q5_k": (of("q5_k"), (1.3, 1.3, 1.3)),
    "q5_k level 4": (of("q5_k", accuracy_level=4), (1.2, 1.7, 1.6)),
    "q6_k": (of("q6_k"), (1.3, 1.3, 1.3)),
    "q6_k level 4": (of("q6_k", accuracy_level=4), (1.2, 1.6, 1.5)),
}


def loaded(product: Product, weight: Array) -> tuple[Model, float]:
    """Return a model of one product, and the bits per number of its weight."""
    graph = Graph("product", {"x": TensorType(DType.float32, ["m", weight.shape[1]])})
    graph.output(product(graph[0], weight))
    arrays = {
        id(s.producer.array): s.producer.array.nbytes
        for node in lower(graph, "cpu").nodes
        for s in node.inputs
        if s is not None and isinstance(s.producer, Constant)
    }
    return gc.InferenceSession(intra_op_num_threads=1).load(graph), sum(arrays.values()) * 8 / weight.size


def many(model: Model, x: Array, times: int) -> Callable[[], object]:
    def run() -> None:
        for _ in range(times):
            model(x)

    return run


def main() -> int:
    bounds = Bounds()
    rng = np.random.default_rng(1)
    for position, (rows, inner, columns, times) in enumerate(SIZES):
        x = rng.standard_normal((rows, inner), np.float32)
        weight = rng.standard_normal((columns, inner), np.float32)
        floats, _ = loaded(lambda s, w: s @ w.T.copy(), weight)
        fits = inner % 256 == 0
        for name, (product, most) in PRODUCTS.items():
            if "_k" in name and not fits:
                continue
            model, bits = loaded(product, weight)
            ratio = compare(many(model, x, times), many(floats, x, times), rounds=9, clock=time.thread_time)
            what = f"{rows}x{inner}x{columns}  {name}, {bits:.1f} bits"
            bounds.ratio(what, ratio, most[position], times, "us")
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
