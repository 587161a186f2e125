"""all-MiniLM-L6-v2 on OpenVINO, in float32, bfloat16 and float16, beside the CPU provider of the same package.

    python -m benchmarks.bench_openvino
    python -m benchmarks.bench_openvino model.onnx ...

The second form compares precision="fast" on files in float32 with the package openvino, in its own default precision.

Does nothing without the package onnxruntime-openvino. Sentences of 128 tokens, processor time on one processor; the two
alternate, with a pause before each in which the other's threads stop waiting for work. The cosines are to float32 on
the CPU provider.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnxruntime

import graphcore as gc
from benchmarks.timing import Bounds, Ratio, compare
from graphcore import DType
from graphcore.errors import MissingExtraError
from graphcore.ir.graph import Precision
from graphcore.models import minilm
from graphcore.runtime.ort.openvino.session import PROVIDER
from graphcore.types.tensor_types import TensorType

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


FILE_ROUNDS = 25


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        return serve(*sys.argv[2:])
    if len(sys.argv) > 1:
        bounds = Bounds()
        for path in sys.argv[1:]:
            beside_package(path, bounds)
        return bounds.exit_code()
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


def beside_package(path: str, bounds: Bounds) -> None:
    """Alternate with the package in processes of their own, since both bring libraries of the same names."""
    command = [sys.executable, "-m", "benchmarks.bench_openvino", "--serve"]
    sides = [
        subprocess.Popen([*command, side, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for side in ("graphcore", "openvino")
    ]
    seconds: tuple[list[float], list[float]] = ([], [])
    errors = [_answer(side) for side in sides]
    for number in range(FILE_ROUNDS + 2):
        for which in (0, 1) if number % 2 else (1, 0):
            time.sleep(_PAUSE)
            taken = _answer(sides[which], "run")
            if number > 1:
                seconds[which].append(taken)
    for side in sides:
        side.communicate()
    name = f"{Path(path).stem}: fast on OpenVINO"
    bounds.ratio(f"{name} beside OpenVINO's own default", Ratio.of(*seconds), 1.05)
    bounds.figure(f"{name}: 1 - cosine", errors[0], 1e-3, "", f"OpenVINO's own: {errors[1]:.1e}")


def _answer(side: subprocess.Popen[str], request: str = "") -> float:
    if request:
        print(request, file=_stream(side.stdin), flush=True)
    return float(_stream(side.stdout).readline())


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def serve(side: str, path: str) -> int:
    """Print 1 - the cosine to float32 on the CPU provider, then the seconds of a call for each line of stdin."""
    exact = gc.InferenceSession("cpu", intra_op_num_threads=1).load(path)
    feeds = [_feed(type_) for type_ in exact.inputs.values()]
    want = np.asarray(exact(*feeds)[0]).ravel()
    run: Callable[[], Any]
    if side == "openvino":
        import openvino

        request = openvino.Core().compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": 1}).create_infer_request()
        run = lambda: next(iter(request.infer(dict(enumerate(feeds))).values()))  # noqa: E731
    else:
        model = gc.InferenceSession("openvino", precision="fast", intra_op_num_threads=1).load(path)
        run = lambda: model(*feeds)[0]  # noqa: E731
    got = np.asarray(run()).ravel()
    print(1 - float(got @ want / np.linalg.norm(got) / np.linalg.norm(want)), flush=True)
    for _ in sys.stdin:
        start = time.process_time()
        run()
        print(time.process_time() - start, flush=True)
    return 0


def _feed(type_: Any) -> np.ndarray[Any, Any]:
    """Return numbers for an input: 1 row, and 128 for each other unknown dim."""
    assert isinstance(type_, TensorType)
    shape = [dim.value or 0 if dim.is_static else (LENGTH if axis else 1) for axis, dim in enumerate(type_.shape)]
    random = np.random.default_rng(0)
    return (random.standard_normal(shape) if type_.dtype.is_float else np.ones(shape)).astype(type_.dtype.numpy)


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):  # OpenVINO starts a thread for each processor
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    sys.exit(main())
