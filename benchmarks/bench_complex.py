"""Complex numbers beside NumPy and PyTorch: matrix products, Fourier transforms, exponentials, arithmetic.

    python -m benchmarks.bench_complex

All are complex64, on one thread, arrays in and arrays out, so that taking the parts apart and putting them together is
in every figure. "fast" is `precision="fast"`, whose matrix products are three real ones. A ratio above 1 means slower
than the peer in the same run. PyTorch is left out where it is not installed.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import graphcore as gc
from benchmarks.timing import Bounds, compare
from graphcore import Graph, TensorType, ops
from graphcore.ir.graph import Precision

THREADS = 1

Array = np.ndarray[Any, Any]
Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Work:
    """shapes: of the operands. ours: of Symbols. numpy: of arrays. torch: of the module and its tensors. bounds: the
    greatest ratios to NumPy and to PyTorch. times: repetitions in a timed run."""

    shapes: tuple[tuple[int, ...], ...]
    ours: Callable[..., Any]
    numpy: Callable[..., Any]
    torch: Callable[..., Any]
    bounds: tuple[float, float]
    times: int = 1
    precision: Precision = "exact"


def _product(side: int, times: int, bounds: tuple[float, float], precision: Precision = "exact") -> Work:
    shape = (side, side)
    return Work(
        (shape, shape), lambda x, y: x @ y, np.matmul, lambda torch, x, y: x @ y, bounds, times, precision
    )  # fmt: skip


LINE = (1 << 18,)

WORK: dict[str, Work] = {
    "matmul 256": _product(256, 10, (2.0, 2.0)),
    "matmul 256, fast": _product(256, 10, (1.6, 1.6), "fast"),
    "matmul 1024": _product(1024, 1, (1.6, 1.6)),
    "matmul 1024, fast": _product(1024, 1, (1.3, 1.3), "fast"),
    "fft 64 x 4096": Work(
        ((64, 4096),), ops.fft, lambda x: np.fft.fft(x).astype(np.complex64), lambda torch, x: torch.fft.fft(x), (6, 12)
    ),
    "x * y": Work((LINE, LINE), lambda x, y: x * y, np.multiply, lambda torch, x, y: x * y, (10.0, 9.0), 10),
    "x / y": Work((LINE, LINE), lambda x, y: x / y, np.divide, lambda torch, x, y: x / y, (6.0, 6.0), 4),
    "abs": Work((LINE,), abs, np.abs, lambda torch, x: abs(x), (14.0, 1.6), 4),
    "exp": Work((LINE,), ops.exp, np.exp, lambda torch, x: torch.exp(x), (1.4, 1.4), 2),
    "log": Work((LINE,), ops.log, np.log, lambda torch, x: torch.log(x), (1.4, 1.4), 2),
    "sqrt": Work((LINE,), ops.sqrt, np.sqrt, lambda torch, x: torch.sqrt(x), (1.8, 1.8), 2),
}


def arrays_of(work: Work) -> list[Array]:
    random = np.random.default_rng(0)
    return [(random.standard_normal(s) + 1j * random.standard_normal(s)).astype(np.complex64) for s in work.shapes]


def runner(work: Work) -> Run:
    """Return a timed run through graphcore."""
    types = {f"x{i}": TensorType("complex64", shape) for i, shape in enumerate(work.shapes)}
    graph = Graph("work", types, promotion="array_api")
    with graph:
        graph.output(work.ours(*graph.inputs))
    model = gc.InferenceSession(precision=work.precision, intra_op_num_threads=THREADS).load(graph)
    return partial(_repeat, partial(model, *arrays_of(work)), work.times)


def torch_runner(work: Work, torch: Any) -> Run:
    """Return a timed run of PyTorch, without gradients."""
    tensors = list(map(torch.from_numpy, arrays_of(work)))

    def run() -> object:
        with torch.inference_mode():
            return work.torch(torch, *tensors)

    return partial(_repeat, run, work.times)


def _repeat(function: Run, times: int) -> None:
    for _ in range(times):
        function()


def main(chosen: list[str]) -> int:
    warnings.simplefilter("ignore")
    torch = None
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed: compared with NumPy alone")
    else:
        torch = importlib.import_module("torch")
        torch.set_num_threads(THREADS)
    bounds = Bounds()
    for name, work in WORK.items():
        if chosen and name not in chosen:
            continue
        ours = runner(work)
        numpy = partial(_repeat, partial(work.numpy, *arrays_of(work)), work.times)
        bounds.ratio(f"{name}, to NumPy", compare(ours, numpy, 9), work.bounds[0], work.times)
        if torch is not None:
            bounds.ratio(f"{name}, to PyTorch", compare(ours, torch_runner(work, torch), 9), work.bounds[1], work.times)
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
