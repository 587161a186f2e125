"""all-MiniLM-L6-v2 on OpenVINO, in float32, bfloat16 and float16, beside the CPU provider of the same package.

    python -m benchmarks.bench_openvino

Where the package onnxruntime-openvino is not installed there is nothing to compare. Ratios are of the medians of calls
that take turns, by the wall clock and by processor time; the cosine is that to float32 on the CPU provider.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime

import graphcore as gc
from graphcore import DType
from graphcore.errors import MissingExtraError
from graphcore.graph import Precision
from graphcore.models import minilm
from graphcore.runtime.openvino import PROVIDER

LENGTH = 128
ROUNDS = {1: 40, 32: 5}
FORMS: tuple[tuple[DType, Precision], ...] = (
    (DType.float32, "exact"),
    (DType.bfloat16, "fast"),
    (DType.float16, "fast"),
)
REACH = 0.35
"""Of bfloat16 and float16, on processors with instructions for them."""


def main() -> int:
    try:
        home = minilm.folder()
    except MissingExtraError as error:
        print(f"no comparison: {error.summary} ({error.help})")
        return 0
    if PROVIDER not in onnxruntime.get_available_providers():
        print("no comparison: onnxruntime-openvino is not installed")
        return 0
    weights = gc.load_tensors(Path(home) / "model.safetensors")
    base = gc.InferenceSession("cpu").load(minilm.build(weights))
    random = np.random.default_rng(0)
    for dtype, precision in FORMS:
        held = {name: np.asarray(w).astype(dtype.numpy) for name, w in weights.items()}
        session = gc.InferenceSession("openvino", precision=precision)
        model = session.load(minilm.build(held))
        for batch, rounds in ROUNDS.items():
            ids = random.integers(0, 30000, (batch, LENGTH))
            mask = np.ones_like(ids)
            want, got = base(ids, mask)[0], np.asarray(model(ids, mask)[0], np.float32)
            cosine = float((want * got).sum(axis=1).mean())
            wall, processor = _ratios(lambda: model(ids, mask), lambda: base(ids, mask), rounds)  # noqa: B023
            reach = (
                "" if dtype is DType.float32 else f"  reach {REACH}: {'holds' if wall <= REACH else 'does not hold'}"
            )
            print(f"{dtype!s:9} b{batch:<3} wall {wall:.2f}  processor {processor:.2f}  cosine {cosine:.6f}{reach}")
    return 0


_PAUSE = 0.05
"""Seconds in which the threads of the one before stop waiting for more, which they do on all processors."""


def _ratios(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Wall and processor time of ours by theirs."""
    times: list[list[tuple[float, float]]] = [[], []]
    for _ in range(rounds):
        for run, kept in zip((ours, theirs), times, strict=True):
            time.sleep(_PAUSE)
            wall, processor = time.perf_counter(), time.process_time()
            run()
            kept.append((time.perf_counter() - wall, time.process_time() - processor))
    (a, b), (c, d) = ([median(column) for column in zip(*kept, strict=True)] for kept in times)
    return a / c, b / d


if __name__ == "__main__":
    sys.exit(main())
