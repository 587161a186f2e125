"""all-MiniLM-L6-v2 through a Model, beside its exported file in a bare onnxruntime session.

    python -m benchmarks.bench_minilm

Sentences of 128 tokens, one and 32 at a time. Model adds its checks of what is fed, and chooses the session's options.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

import graphcore as gc
from benchmarks.timing import Bounds, compare
from graphcore.errors import MissingExtraError
from graphcore.models import minilm

BOUND = 1.1  # about 1: the noise of such a ratio is up to a tenth
LENGTH = 128
ROUNDS = {1: 100, 32: 9}


def main() -> int:
    try:
        home = minilm.folder()
    except MissingExtraError as error:
        print(f"no comparison: {error.summary} ({error.help})")
        return 0
    graph = minilm.build(gc.load_tensors(Path(home) / "model.safetensors"))
    model = gc.InferenceSession().load(graph)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "minilm.onnx"
        graph.export(path)
        bare = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    bounds = Bounds()
    random = np.random.default_rng(0)
    for batch, rounds in ROUNDS.items():
        ids = random.integers(0, 30000, (batch, LENGTH))
        mask = np.ones_like(ids)
        feed = {"input_ids": ids, "attention_mask": mask}
        (ours,), (peer,) = model(ids, mask), bare.run(None, feed)
        assert np.abs(ours - peer).max() < 1e-5

        def run(feed: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = feed) -> object:
            return model(**feed)

        def run_bare(feed: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = feed) -> object:
            return bare.run(None, feed)

        bounds.ratio(f"MiniLM, {batch} of {LENGTH} tokens", compare(run, run_bare, rounds), BOUND)
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
