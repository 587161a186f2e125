"""Batches: `minilm.embed` beside sentence-transformers, and `Model.map` beside one call of everything.

    python -m benchmarks.bench_batches

Processor time of one thread on one processor, both sides in turn. Sentences of 4 to 17 words, and of 4 to 119; the
weights are the same, and so are the vectors to 1e-5. sentence-transformers is left out where it is not installed
(pip install sentence-transformers).
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from typing import Any

import numpy as np

import graphcore as gc
from benchmarks.timing import Bounds, compare
from graphcore import Graph, TensorType, ops
from graphcore.errors import MissingExtraError
from graphcore.models import minilm

EMBED_BOUND = 0.85
MAP_BOUND = 1.0
WORDS = (
    "the cat sat on a mat while stocks fell sharply in afternoon trading and the engineer exported models to a file"
).split()


def sentences(count: int, most: int) -> list[str]:
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS, random.integers(4, most))) for _ in range(count)]


def transformer(home: str) -> Any:
    """Return the model in sentence-transformers, of one thread; None where that is not installed."""
    try:
        torch: Any = importlib.import_module("torch")
        sentence_transformers: Any = importlib.import_module("sentence_transformers")
    except ImportError:
        print("no comparison: sentence-transformers is not installed")
        return None
    torch.set_num_threads(1)
    return sentence_transformers.SentenceTransformer(home, device="cpu")


def embedding(bounds: Bounds) -> None:
    try:
        peer = transformer(minilm.folder())
    except MissingExtraError as error:
        print(f"no comparison: {error.summary} ({error.help})")
        return
    if peer is None:
        return
    for count, most, rounds in ((100, 18, 7), (160, 18, 7), (600, 18, 3), (200, 120, 3)):
        given = sentences(count, most)

        def theirs(given: Any = given) -> Any:
            return peer.encode(given, show_progress_bar=False, normalize_embeddings=True)

        def ours(given: Any = given) -> Any:
            return minilm.embed(given)

        for _ in range(3):  # the numbers of rows are measured in the first calls
            assert np.abs(ours() - theirs()).max() < 1e-5
        ratio = compare(ours, theirs, rounds, clock=time.process_time)
        bounds.ratio(f"embed, {count} of 4 to {most - 1} words, sentence-transformers", ratio, EMBED_BOUND)


def mapping(bounds: Bounds) -> None:
    random = np.random.default_rng(0)
    graph = Graph(
        "tagger", {"tokens": TensorType("int64", ["batch", "n"]), "mask": TensorType("float32", ["batch", "n"])}
    )
    x = ops.gather(graph.weight("words", random.standard_normal((1000, 256), np.float32)), graph["tokens"])
    for i in range(4):
        x = ops.relu(x @ graph.weight(f"w{i}", random.standard_normal((256, 256), np.float32) / 16))
    graph.output(
        mean=ops.sum(x * ops.unsqueeze(graph["mask"], -1), axis=1) / ops.sum(graph["mask"], axis=1, keepdims=True)
    )
    model = gc.InferenceSession(intra_op_num_threads=1).load(graph)
    lengths = random.integers(5, 200, 500)
    items = [(random.integers(0, 1000, n), np.ones(n, np.float32)) for n in lengths]
    tokens = np.zeros((len(items), lengths.max()), np.int64)
    ones = np.zeros(tokens.shape, np.float32)
    for number, (row, one) in enumerate(items):
        tokens[number, : row.size], ones[number, : row.size] = row, one

    def ours() -> Any:
        return np.stack([mean for (mean,) in model.map(items, pad=0)])

    for _ in range(3):
        assert np.abs(ours() - model(tokens, ones)[0]).max() < 1e-4
    ratio = compare(ours, lambda: model(tokens, ones), 9, clock=time.process_time)
    bounds.ratio("map, 500 rows of 5 to 199, one call of all", ratio, MAP_BOUND)


def main() -> int:
    bounds = Bounds()
    mapping(bounds)
    embedding(bounds)
    return bounds.exit_code()


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    sys.exit(main())
