"""Calls of PyTorch's exports that docs/development/exports.md does not have, beside bare onnxruntime.

    python -m benchmarks.bench_architectures [NAME ...]
    pip install torch torchvision timm transformers      # without them there is nothing to compare

Models of few layers with random weights (`benchmarks.peers.architectures`), written by the exporter that follows a run
(`dynamo=False`) into a cache folder outside of the tree, where they are found again. Processor time of one thread; by
how much outputs differ at several sizes, as a part of the greatest number. `python -m benchmarks.exports --beyond` runs
all of them, with both exporters and both forms of attention.
"""

from __future__ import annotations

import contextlib
import io
import logging
import statistics
import sys
from pathlib import Path
from typing import Any

import onnx

from benchmarks.exports import measured
from benchmarks.peers import architectures
from benchmarks.peers.exported import Case, export
from benchmarks.peers.running import has
from benchmarks.timing import Bounds, record
from benchmarks.trained_models import folder

NAMES = (
    "AST", "BigBird", "BioGPT", "CodeGen", "ConvBERT", "ConvNeXt V2", "CSPNet", "CvT", "DaViT", "DeBERTa", "DenseNet",
    "DLA", "DPT", "EdgeNeXt", "EfficientViT", "ERNIE", "ESM", "EVA-02", "FastViT", "FocalNet", "Funnel", "Gemma",
    "GhostNet", "GLPN", "GoogLeNet", "GPT BigCode", "GPT-Neo", "Granite", "HRNet", "HuBERT", "I-BERT", "Inception v3",
    "LayoutLM", "LayoutLMv3", "LeViT", "Longformer", "M2M-100", "MNASNet", "MobileBERT", "MobileNetV3", "MobileNetV4",
    "MobileOne", "MobileViT", "MPT", "Nemotron", "NomicBERT", "Nystromformer", "RepVGG", "ShuffleNet v2", "SqueezeNet",
)  # fmt: skip
EXPORTER, ATTENTION = "script", "sdpa"
ROUNDS = 9
SHORT, LIMIT, LIMIT_SHORT = 1.0, 1.03, 1.1
"""Milliseconds below which a call is short, and the most that is asked for of the others and of short ones."""

NEAR = 1e-3
"""The greatest difference that other orders of sums make, as a part of the greatest number."""


def file(case: Case) -> Path:
    """Return the path of a model's file, exported where the cache folder lacks it. Raises the exporter's errors."""
    result = folder() / f"{case.name.replace(' ', '_')}.{EXPORTER}.onnx"
    if not result.exists():
        part = result.with_suffix(".part")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            export(case, EXPORTER, ATTENTION, part)
        part.rename(result)
    return result


def rows(names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return a row of each model that is exported and runs."""
    results = []
    for case in architectures.CASES:
        if case.name not in names:
            continue
        try:
            path = file(case)
            row = settled(case, path)
        except Exception as error:  # any error of an exporter
            print(f"{case.name} is left out: {type(error).__name__}", flush=True)
            continue
        if row.get("ratio") is None:
            print(f"{case.name} is left out: {row.get('not loaded') or '; '.join(row['odd'])}", flush=True)
            continue
        far = f"differs by {row['difference']:.0e}"
        print(f"{case.name:<20} {row['ratio']:5.2f}x of {row['ms']:8.3f} ms, {far}", flush=True)
        torch = onnx.load(path, load_external_data=False).producer_version
        results.append({"name": case.name, "torch": torch, **{key: row[key] for key in ("ratio", "ms", "difference")}})
        record("architectures", results[-1])
    return results


def settled(case: Case, path: Path) -> dict[str, Any]:
    """Measure a file; one that is slow in three sessions, of which the middle counts: where weights lie makes 5 %."""
    row = measured(case, path, ROUNDS)
    if row.get("ratio") is None or not is_slow(row):
        return row
    return sorted((row, *(measured(case, path, ROUNDS) for _ in range(2))), key=lambda result: result["ratio"])[1]


def is_slow(row: dict[str, Any]) -> bool:
    return bool(row["ratio"] > (LIMIT_SHORT if row["ms"] < SHORT else LIMIT))


def main(*names: str) -> int:
    logging.disable(logging.WARNING)
    bounds = Bounds()
    if not has("torch", "torchvision", "timm", "transformers"):
        print("architectures are left out: pip install torch torchvision timm transformers")
        return bounds.exit_code()
    results = rows(names or NAMES)
    if not results:
        return bounds.exit_code()
    bounds.figure(
        "architectures, median", statistics.median(row["ratio"] for row in results), LIMIT, "x", f"{len(results)}"
    )
    slow = [f"{row['name']} {row['ratio']:.2f}" for row in results if is_slow(row)]
    bounds.figure("architectures that are slower than the file", len(slow), 0, "", ", ".join(slow))
    far = [f"{row['name']} {row['difference']:.0e}" for row in results if row["difference"] > NEAR]
    bounds.figure("architectures with other outputs", len(far), 0, "", ", ".join(far))
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
