"""all-MiniLM-L6-v2 on OpenVINO, in float32, bfloat16 and float16, beside the CPU provider of the same package.

    python -m benchmarks.bench_openvino

Does nothing without the package onnxruntime-openvino. Sentences of 128 tokens, processor time on one processor; the two
alternate, with a pause before each in which the other's threads stop waiting for work. The cosines are to float32 on
the CPU provider.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime

import graphcore as gc
from benchmarks.timing import Bounds, compare
from graphcore import DType
from graphcore.errors import MissingExtraError
from graphcore.ir.graph import Precision
from graphcore.models import minilm
from graphcore.runtime.ort.openvino.session import PROVIDER

LENGTH = 128
ROUNDS = {1: 21, 32: 5}
FORMS: tuple[tuple[DType, Precision, float, float], ...] = (
    (DType.float32, "exact", 1.1, 1e-6),
    (DType.bfloat16, "fast", 0.65, 1e-3),
    (DType.float16, "fast", 0.65, 1e-3),
)
"""The most time for each second of the CPU provider, on processors without AMX, and the most that a mean cosine may be
below 1."""

_PAUSE = 0.05
"""Seconds in which threads that wait for work stop."""


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
    base = gc.InferenceSession("cpu", intra_op_num_threads=1).load(minilm.build(weights))
    bounds = Bounds()
    random = np.random.default_rng(0)
    for dtype, precision, most, distance in FORMS:
        results = {name: np.asarray(w).astype(dtype.numpy) for name, w in weights.items()}
        model = gc.InferenceSession("openvino", precision=precision, intra_op_num_threads=1).load(minilm.build(results))
        for batch, rounds in ROUNDS.items():
            ids = random.integers(0, 30000, (batch, LENGTH))
            mask = np.ones_like(ids)
            ours, peer = (functools.partial(m, ids, mask) for m in (model, base))
            ratio = compare(ours, peer, rounds, functools.partial(time.sleep, _PAUSE))
            case = f"MiniLM, {batch} of {LENGTH} tokens"
            bounds.ratio(f"{case}: {dtype} on OpenVINO beside CPU", ratio, most)
        cosine = float((base(ids, mask)[0] * np.asarray(model(ids, mask)[0], np.float32)).sum(axis=1).mean())
        bounds.figure(f"MiniLM, {dtype} on OpenVINO: 1 - mean cosine", 1 - cosine, distance, "", f"mean {cosine:.6f}")
    return bounds.exit_code()


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):  # OpenVINO starts a thread for each processor
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    sys.exit(main())
