"""Element-wise chains and products in narrow dtypes, beside the same in float32.

    python -m benchmarks.bench_dtypes

int8, bfloat16, float16 and tensor_float32 give the numbers of docs/numbers.md, rounded after every op; "fast" is
`precision="fast"`. "raw float16" is onnxruntime's own float16 path, which does not round after every op: the same model
without graphcore's lowering. A ratio above 1 means slower than float32 in the same run.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnxruntime

import graphcore as gc
from benchmarks.timing import Bounds, compare
from graphcore import DType, Graph, Symbol, TensorType
from graphcore.ir.graph import Precision
from graphcore.onnx.proto.model_proto import encode, join

ELEMENTS = 1 << 20
SIDE = 512
THREADS = 1

Array = np.ndarray[Any, Any]
Run = Callable[[], object]


def chain(x: Symbol, y: Symbol) -> Symbol:
    """Eight element-wise ops."""
    for _ in range(4):
        x = x * y + y
    return x


def product(x: Symbol, y: Symbol) -> Symbol:
    return x @ y


def two_products(x: Symbol, y: Symbol) -> Symbol:
    return x @ y @ y


# The name, the function, the shape of x and y, and the repetitions in a timed run.
Function = Callable[[Symbol, Symbol], Symbol]
WORK: dict[str, tuple[Function, list[int], int]] = {
    "chain of 8": (chain, [ELEMENTS], 8),
    "matmul": (product, [SIDE, SIDE], 8),
    "matmul of matmul": (two_products, [SIDE, SIDE], 4),
}

# The dtype, its precision, and the greatest ratio to float32 for each computation.
CASES: tuple[tuple[DType, Precision, tuple[float, float, float]], ...] = (
    (DType.int8, "exact", (0.6, 1.5, 1.5)),
    (DType.bfloat16, "exact", (8.0, 1.7, 1.7)),
    (DType.bfloat16, "fast", (3.0, 1.7, 1.7)),
    (DType.float16, "exact", (3.5, 1.6, 1.6)),
    (DType.float16, "fast", (2.0, 1.6, 1.6)),
    (DType.tensor_float32, "exact", (20.0, 2.5, 2.5)),
    (DType.tensor_float32, "fast", (8.0, 2.5, 2.5)),
)


def graph_of(work: str, dtype: DType) -> Graph:
    function, shape, _ = WORK[work]
    graph = Graph("work", {name: TensorType(dtype, shape) for name in "xy"})
    graph.output(function(*graph.inputs))
    return graph


def arrays_of(work: str, dtype: DType) -> tuple[Array, Array]:
    random = np.random.default_rng(0)
    shape = WORK[work][1]
    if dtype.is_integer:
        return tuple(random.integers(-9, 9, shape).astype(dtype.numpy) for _ in "xy")  # type: ignore[return-value]
    return tuple((random.random(shape) - 0.5).astype(np.float32).astype(dtype.numpy) for _ in "xy")  # type: ignore[return-value]


def runner(work: str, dtype: DType, precision: Precision) -> Run:
    """Return a timed run through graphcore."""
    model = gc.InferenceSession(precision=precision, intra_op_num_threads=THREADS).load(graph_of(work, dtype))
    return partial(_repeat, partial(model, *arrays_of(work, dtype)), WORK[work][2])


def raw_runner(work: str) -> Run:
    """Return a timed run of onnxruntime's own float16 path."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.log_severity_level = 4
    content = join(encode(graph_of(work, DType.float16)))
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    feeds = dict(zip("xy", arrays_of(work, DType.float16), strict=True))
    return partial(_repeat, partial(session.run, None, feeds), WORK[work][2])


def _repeat(function: Run, times: int) -> None:
    for _ in range(times):
        function()


def main() -> int:
    warnings.simplefilter("ignore")
    bounds = Bounds()
    for position, work in enumerate(WORK):
        peer = runner(work, DType.float32, "exact")
        each = WORK[work][2]
        for dtype, precision, most in CASES:
            ours = runner(work, dtype, precision)
            bounds.ratio(f"{work}: {dtype} {precision}, to float32", compare(ours, peer, 7), most[position], each)
        raw = raw_runner(work)
        for precision, most_of_raw in RAW[work].items():
            ours = runner(work, DType.float16, precision)
            bounds.ratio(f"{work}: float16 {precision}, to raw float16", compare(ours, raw, 7), most_of_raw, each)
    return bounds.exit_code()


RAW: dict[str, dict[Precision, float]] = {
    "chain of 8": {"exact": 4.0, "fast": 1.6},
    "matmul": {"exact": 1.6, "fast": 1.6},
    "matmul of matmul": {"exact": 1.6, "fast": 1.6},
}

if __name__ == "__main__":
    sys.exit(main())
