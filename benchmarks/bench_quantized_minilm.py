"""all-MiniLM-L6-v2 quantised, beside float32 in the same run: seconds, bytes of the file, cosines to the embeddings.

    python -m benchmarks.bench_quantized_minilm

Sentences of 128 tokens, one and 32 at a time, and 32 in batches of four, beside float32 in one batch or in batches of
four. CPU time of one thread. The cosines are those of real sentences to their float32 embeddings.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import graphcore as gc
from benchmarks.timing import Bounds, compare
from graphcore.errors import MissingExtraError
from graphcore.models import minilm
from graphcore.runtime.quantizer import Report

LENGTH = 128
ROUNDS = {1: 21, 32: 3}
SESSIONS = 3
"""Sessions of each file: where the memory of one lies changes its time by up to a tenth."""
PART = 4
"""Sentences that are computed together where a batch is cut: what lies between the products stays in the caches."""

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

SAMPLES = (
    "The museum opens at nine and closes at five.",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "Can you recommend a good book about the history of mathematics?",
    "Le train de nuit arrive à Lyon à six heures du matin.",
    "He forgot his umbrella and came home soaked to the skin.",
    "SELECT name, count(*) FROM orders GROUP BY name HAVING count(*) > 3;",
    "Thanks!",
    "Interest rates were raised by a quarter of a point, which most analysts had expected, while unemployment stayed "
    "where it had been for a year. Exporters complained that the currency was too strong, and builders that loans had "
    "become too dear; shops said that customers bought what they needed and little else. The bank will meet in March.",
)
"""Samples that tell which weights need no second digit. The cosines are those of other sentences."""

FORMS: dict[str, tuple[str, dict[str, Any], float, float]] = {
    "int8_dynamic": ("int8_dynamic", {}, 0.98, 0.45),
    "int8_dynamic, embeddings": ("int8_dynamic", {"embeddings": True}, 0.98, 0.45),
    "int8_dynamic16": ("int8_dynamic16", {}, 0.999, 0.8),
    "int8_split": ("int8_split", {}, 0.9999, 1.0),
    "int8_split, samples": ("int8_split", {"samples": SAMPLES}, 0.9999, 0.9),
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
    session = gc.InferenceSession(intra_op_num_threads=1)
    plain = session.load(graph)
    ids, mask = tokens()
    (exact,) = plain(ids, mask)
    bounds = Bounds()
    random = np.random.default_rng(0)
    size = file_size(graph)
    print(f"float32: {size / 1e6:.1f} MB")
    files(bounds, session, "float32", graph)
    for name, (scheme, options, cosine, most) in FORMS.items():
        if "samples" in options:
            options = {"samples": [tokens(SAMPLES)]}
        result, report = gc.quantize(graph, scheme, **options)
        model = session.load(result)
        (vectors,) = model(ids, mask)
        cosines = (vectors.astype(np.float64) * exact).sum(1)
        detail = f"mean {cosines.mean():.6f}, least {cosines.min():.6f}, weights off by {worst(report):.2%} at most"
        bounds.figure(f"MiniLM, {name}: 1 - mean cosine", 1 - float(cosines.mean()), 1 - cosine, "", detail)
        small = file_size(result)
        bounds.figure(f"MiniLM, {name}: file", small / size, 0.8, "x", f"{small / 1e6:.1f} MB")
        if "embeddings" in options:
            continue
        if name == "int8_dynamic":
            files(bounds, session, name, result)
        for batch, rounds in ROUNDS.items():
            value = random.integers(0, 30000, (batch, LENGTH))
            whole = parts(plain, value, batch)
            ratio = compare(parts(model, value, batch), whole, rounds, clock=time.thread_time)
            case = f"MiniLM, {batch} of {LENGTH} tokens"
            bounds.ratio(f"{case}: {name} beside float32", ratio, most)
            if batch > PART and scheme.startswith(("int8_dynamic", "int8_split")):
                ratio = compare(parts(model, value, PART), whole, rounds, clock=time.thread_time)
                bounds.ratio(f"{case}: {name} by {PART}, beside float32 whole", ratio, most)
                ratio = compare(parts(model, value, PART), parts(plain, value, PART), rounds, clock=time.thread_time)
                bounds.ratio(f"{case}: {name} by {PART}, beside float32 by {PART}", ratio, most)
    return bounds.exit_code()


def files(bounds: Bounds, session: gc.InferenceSession, name: str, graph: gc.Graph) -> None:
    """Compare files of a graph with its Model: as a session loads them, and with onnxruntime alone."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        usual, here = Path(folder) / "usual.onnx", Path(folder) / "here.onnx"
        graph.export(usual)
        graph.export(here, runtime="installed")
        plain = [
            onnxruntime.InferenceSession(here, options, providers=["CPUExecutionProvider"]) for _ in range(SESSIONS)
        ]
        forms: dict[str, list[Callable[..., object]]] = {
            "from a file": [session.load(usual) for _ in range(SESSIONS)],
            "from a file for this processor": [session.load(here) for _ in range(SESSIONS)],
            "from a file for this processor in onnxruntime": [partial(s.run, None) for s in plain],
        }
        models = [session.load(graph) for _ in range(SESSIONS)]
        for batch, rounds in ((1, 41), (8, 15)):
            ids = np.random.default_rng(0).integers(0, 30000, (batch, LENGTH))
            feed = dict(zip(models[0].inputs, (ids, np.ones_like(ids)), strict=True))
            peer = partial(each, models, feed)
            for form, calls in forms.items():
                ratio = compare(partial(each, calls, feed), peer, rounds, clock=time.thread_time)
                case = f"MiniLM, {batch} of {LENGTH} tokens: {name} {form} beside its Graph"
                bounds.ratio(case, ratio, 1.03, SESSIONS)


def each(calls: Sequence[Callable[[Any], object]], feed: dict[str, np.ndarray[Any, Any]]) -> None:
    """Run each of some models."""
    for call in calls:
        call(feed)


def parts(model: gc.Model, ids: np.ndarray[Any, Any], size: int) -> Callable[[], None]:
    """Return a call of the model on consecutive parts of a batch."""
    ones = np.ones_like(ids)

    def run() -> None:
        for start in range(0, len(ids), size):
            model(ids[start : start + size], ones[start : start + size])

    return run


def worst(report: Report) -> float:
    """Return the largest error of a weight."""
    return max(row.error for row in report.quantized)


def tokens(sentences: Sequence[str] = SENTENCES) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return sentences as ids and mask, padded on the right."""
    encoded = minilm._tokenizer().encode_batch(list(sentences))
    ids = np.zeros((len(encoded), max(len(e.ids) for e in encoded)), np.int64)
    mask = np.zeros_like(ids)
    for row, sentence in enumerate(encoded):
        ids[row, : len(sentence.ids)] = sentence.ids
        mask[row, : len(sentence.ids)] = 1
    return ids, mask


def file_size(graph: gc.Graph) -> int:
    """Return the bytes of the exported file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "minilm.onnx"
        graph.export(path)
        return path.stat().st_size


if __name__ == "__main__":
    sys.exit(main())
