"""MiniLM's embeddings of sentences, beside sentence-transformers on the same weights.

    python -m benchmarks.bench_embed

`models.minilm.embed` and `SentenceTransformer.encode` each get strings and give vectors, with what they do by default;
one thread each, processor time. The sentences have 4 to 20 words. Without sentence-transformers there is nothing to
compare.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import sys
import time
from typing import Any
from unittest import mock

import numpy as np

import graphcore as gc
from benchmarks.peers.running import has, package
from benchmarks.timing import Bounds, compare
from graphcore.models import minilm

COUNTS = {1: (15, 1.0), 16: (9, 1.0), 100: (5, 0.85), 160: (5, 0.85), 600: (3, 0.85)}
"""Numbers of sentences: the rounds, and the most that is asked for."""

WORDS = (
    "a the old small river house bread music paper stone runs falls opens keeps finds before after under while and "
    "of with every morning without light letters window garden table quietly never train mountain winter answer"
).split()


def sentences(count: int) -> list[str]:
    drawn = random.Random(count)
    return [" ".join(drawn.choices(WORDS, k=drawn.randint(4, 20))) for _ in range(count)]


def peer() -> Any:
    """Open the model of sentence-transformers, without a network."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    package("torch").set_num_threads(1)
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar
        return package("sentence_transformers").SentenceTransformer(minilm.folder(), device="cpu")


def main() -> int:
    bounds = Bounds()
    if not has("sentence_transformers", "torch"):
        print("sentence-transformers is left out: pip install sentence-transformers")
        return bounds.exit_code()
    theirs = peer()
    weights = gc.load_tensors(os.path.join(minilm.folder(), "model.safetensors"))
    model = gc.InferenceSession(intra_op_num_threads=1).load(minilm.build(weights))
    with mock.patch.object(minilm, "load", return_value=model):  # `embed` itself takes all cores
        for count, (rounds, most) in COUNTS.items():
            given = sentences(count)
            far = np.abs(minilm.embed(given) - theirs.encode(given, normalize_embeddings=True)).max()
            assert far < 1e-5, far
            ratio = compare(
                lambda given=given: minilm.embed(given),  # type: ignore[misc]
                lambda given=given: theirs.encode(given, normalize_embeddings=True),  # type: ignore[misc]
                rounds,
                clock=time.process_time,
            )
            bounds.ratio(f"embed {count} sentences, beside sentence-transformers", ratio, most)
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
