"""MiniLM's embeddings of sentences, beside sentence-transformers on the same weights.

    python -m benchmarks.bench_embed

`models.minilm.embed` and `SentenceTransformer.encode` each get strings and give vectors, with what they do by default;
processor time on one processor, where each takes one thread. The sentences have 4 to 20 words, 64 of them up to 119.
Without sentence-transformers there is nothing to compare.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import sys
import time
from typing import Any

import numpy as np

from benchmarks.peers.running import has, package
from benchmarks.timing import Bounds, compare
from graphcore.models import minilm

COUNTS = {1: (15, 1.0), 16: (7, 1.0), 100: (5, 0.85), 160: (4, 0.85), 600: (2, 0.85)}
"""Numbers of sentences: the rounds, and the most that is asked for."""

LONG = 64, 119
"""Sentences of up to so many words."""

WORDS = (
    "a the old small river house bread music paper stone runs falls opens keeps finds before after under while and "
    "of with every morning without light letters window garden table quietly never train mountain winter answer"
).split()


def sentences(count: int, most: int = 20) -> list[str]:
    drawn = random.Random(count)
    return [" ".join(drawn.choices(WORDS, k=drawn.randint(4, most))) for _ in range(count)]


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
    count, most = LONG
    cases = {f"embed {count} sentences of up to {most} words": (sentences(count, most), 3, 1.0)}
    cases |= {f"embed {count} sentences": (sentences(count), *element) for count, element in COUNTS.items()}
    for name, (item, rounds, bound) in cases.items():
        wanted = theirs.encode(item, normalize_embeddings=True)
        for _ in range(3):  # the numbers of rows are measured in the first calls
            far = np.abs(minilm.embed(item) - wanted).max()
            assert far < 1e-5, far
        ratio = compare(
            lambda value=item: minilm.embed(value),  # type: ignore[misc]
            lambda value=item: theirs.encode(value, normalize_embeddings=True),  # type: ignore[misc]
            rounds,
            clock=time.process_time,
        )
        bounds.ratio(f"{name}, beside sentence-transformers", ratio, bound)
    return bounds.exit_code()


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    sys.exit(main())
