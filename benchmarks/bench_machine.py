"""The speed of one thread of the machine: bytes read a second in small and large pages, products of floats a second.

python -m benchmarks.bench_machine

A decoder's step reads each weight once, so that its time is at least that of its bytes. Beside the rates of the
machine: bytes of weights a second of onnxruntime's products with float32 and with 4 bits in blocks, weights in large
pages, of a row of numbers. Its kernel of 4 bits has two float32 numbers for each block, the scale and its product with
the zero point. Processor time, the fastest of nine.
"""

from __future__ import annotations

import functools
import mmap
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import graphcore as gc
from benchmarks.timing import record
from graphcore import DType, Graph, TensorType, ops
from graphcore.quantization import encode

ROUNDS, BYTES, WIDTH = 9, 1 << 28, 2048


def fastest(call: Callable[[], Any]) -> float:
    """Return the processor seconds of the fastest of several calls."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.thread_time()
        call()
        seconds.append(time.thread_time() - start)
    return min(seconds)


def numbers(advice: int) -> np.ndarray[Any, Any]:
    pages = mmap.mmap(-1, BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(advice)
    array = np.frombuffer(pages, np.float32)
    array[:] = 1
    return array


def show(name: str, value: float, unit: str) -> None:
    print(f"{name:<44} {value:8.1f} {unit}", flush=True)
    record("machine", {"what": name, "value": value, "unit": unit})


def product(encoding: str | None, block: int | None, rows: int) -> float:
    """Return the seconds of a product with WIDTH x (4 WIDTH) weights, four of them in turn."""
    graph = Graph("product", {"x": TensorType(DType.float32, [rows, WIDTH])})
    rng = np.random.default_rng(0)
    outputs = {}
    for number in range(4):
        weight = rng.standard_normal((4 * WIDTH, WIDTH), np.float32)
        if encoding is None:
            outputs[f"y{number}"] = graph[0] @ weight.T.copy()
        else:
            outputs[f"y{number}"] = ops.qmatmul(
                encoding, graph[0], encode(weight, encoding, block_size=block), accuracy_level=4
            )
    graph.output(**outputs)
    model = gc.InferenceSession(intra_op_num_threads=1, huge_pages=True).load(graph, prepack="on")
    x = rng.standard_normal((rows, WIDTH), np.float32)
    return fastest(lambda: model(x))


def main() -> int:
    for name, advice in (("4 KB", mmap.MADV_NOHUGEPAGE), ("2 MB", mmap.MADV_HUGEPAGE)):
        array = numbers(advice)
        show(f"read, pages of {name}", BYTES / 1e9 / fastest(functools.partial(np.dot, array, array)), "GB/s")
    square = np.ones((WIDTH, WIDTH), np.float32)
    show("products of floats", 2 * WIDTH**3 / 1e9 / fastest(lambda: square @ square), "GFLOP/s")
    weights = 16 * WIDTH * WIDTH
    for name, encoding, block, size in (
        ("float32", None, None, 4.0),
        ("int4 by 128", "int4", 128, 0.5 + 8 / 128),
        ("q4_0", "q4_0", None, 0.5 + 8 / 32),
    ):
        show(f"weights of {name}, one row", weights * size / 1e9 / product(encoding, block, 1), "GB/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
