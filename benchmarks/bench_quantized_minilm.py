"""all-MiniLM-L6-v2 quantised, beside float32 in the same run: seconds, bytes of the file, cosines to the embeddings.

    python -m benchmarks.bench_quantized_minilm

Sentences of 128 tokens, one and 32 at a time. The cosines are those of real sentences to their float32 embeddings.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import graphcore as gc
from benchmarks.timing import Bounds, compare
from graphcore.errors import MissingExtraError
from graphcore.models import minilm
from graphcore.runtime.quantizing import Report

LENGTH = 128
ROUNDS = {1: 60, 32: 5}
SENTENCES = (
    *minilm.SENTENCES,
    "The recipe needs two eggs, some flour and a pinch of salt.",
    "She has lived in the old house by the river since she was born.",
    "Gradient descent follows the slope of the loss.",
    "Trains to the coast leave every half hour until midnight.",
    "Wer den Pfennig nicht ehrt, ist des Talers nicht wert.",
    "Error: connection refused (is the server running on port 5432?)",
    "The court found that the contract had been void from the beginning.",
)

FORMS: dict[str, tuple[str, dict[str, Any], float, float]] = {
    "int8_dynamic": ("int8_dynamic", {}, 0.98, 0.7),
    "int8_dynamic, embeddings": ("int8_dynamic", {"embeddings": True}, 0.98, 0.7),
    "int8": ("int8", {}, 0.99, 1.5),
    "int4": ("int4", {}, 0.95, 1.5),
    "int4, embeddings": ("int4", {"embeddings": True}, 0.95, 1.5),
}
"""The scheme and its options, the least mean cosine, and the most time for each second of float32."""


def main() -> int:
    try:
        home = minilm.folder()
    except MissingExtraError as error:
        print(f"no comparison: {error.summary} ({error.help})")
        return 0
    graph = minilm.build(gc.load_tensors(Path(home) / "model.safetensors"))
    plain = gc.InferenceSession().load(graph)
    ids, mask = tokens()
    (exact,) = plain(ids, mask)
    bounds = Bounds()
    random = np.random.default_rng(0)
    size = file_size(graph)
    print(f"float32: {size / 1e6:.1f} MB")
    for name, (scheme, options, cosine, most) in FORMS.items():
        made, report = gc.quantize(graph, scheme, **options)
        model = gc.InferenceSession().load(made)
        (vectors,) = model(ids, mask)
        cosines = (vectors * exact).sum(1)
        detail = f"mean {cosines.mean():.4f}, least {cosines.min():.4f}, weights off by {worst(report):.1%} at most"
        bounds.figure(f"{name}: 1 - mean cosine", 1 - float(cosines.mean()), 1 - cosine, "", detail)
        small = file_size(made)
        bounds.figure(f"{name}: file", small / size, 0.7, "x", f"{small / 1e6:.1f} MB")
        if options:
            continue
        for batch, rounds in ROUNDS.items():
            given = random.integers(0, 30000, (batch, LENGTH))
            ones = np.ones_like(given)
            ratio = compare(lambda m=model, g=given, o=ones: m(g, o), lambda g=given, o=ones: plain(g, o), rounds)  # type: ignore[misc]
            bounds.ratio(f"{name}: {batch} of {LENGTH} tokens", ratio, most)
    return bounds.exit_code()


def worst(report: Report) -> float:
    """The largest error of a weight."""
    return max(row.error for row in report.quantized)


def tokens() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The sentences as ids and mask, padded on the right."""
    encoded = minilm._tokenizer().encode_batch(list(SENTENCES))
    ids = np.zeros((len(encoded), max(len(e.ids) for e in encoded)), np.int64)
    mask = np.zeros_like(ids)
    for row, sentence in enumerate(encoded):
        ids[row, : len(sentence.ids)] = sentence.ids
        mask[row, : len(sentence.ids)] = 1
    return ids, mask


def file_size(graph: gc.Graph) -> int:
    """Bytes of the exported file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "minilm.onnx"
        graph.export(path)
        return path.stat().st_size


if __name__ == "__main__":
    sys.exit(main())
