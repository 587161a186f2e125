"""all-MiniLM-L6-v2 through a Model, beside onnxruntime on the fastest form of it that was measured.

    python -m benchmarks.bench_minilm

Sentences of 128 tokens, one and 32 at a time, CPU time of one thread. The form is written with onnx.helper alone
(benchmarks/peers/minilm_by_hand.py). The other row is the file that graphcore exports, in a bare session with its own
options: Model adds checks of its feeds, and chooses the session's options.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime

import graphcore as gc
from benchmarks.peers import minilm_by_hand
from benchmarks.peers.running import on_onnxruntime
from benchmarks.timing import Bounds, compare
from graphcore.errors import MissingExtraError
from graphcore.models import minilm

BY_HAND, EXPORTED = 1.02, 1.1  # about 1: the noise of the ratio is up to a tenth
LENGTH = 128
ROUNDS = {1: 60, 32: 9}


def main() -> int:
    try:
        home = minilm.folder()
    except MissingExtraError as error:
        print(f"no comparison: {error.summary} ({error.help})")
        return 0
    weights = gc.load_tensors(Path(home) / "model.safetensors")
    graph = minilm.build(weights)
    model = gc.InferenceSession(intra_op_num_threads=1).load(graph)
    with tempfile.TemporaryDirectory() as folder:
        graph.export(Path(folder) / "minilm.onnx", runtime=onnxruntime.__version__)
        bare = on_onnxruntime(Path(folder) / "minilm.onnx", 1)
        hand = on_onnxruntime(minilm_by_hand.write(weights, Path(folder) / "hand.onnx"), 1, minilm_by_hand.DISABLED)
    bounds = Bounds()
    random = np.random.default_rng(0)
    for batch, rounds in ROUNDS.items():
        ids = random.integers(0, 30000, (batch, LENGTH))
        mask = np.ones_like(ids)
        (ours,) = model(ids, mask)
        assert np.abs(ours - bare(ids, mask)).max() < 1e-5
        assert np.abs(ours - hand(ids, mask)).max() < 1e-5

        def calling(function: Callable[..., object], ids: object = ids, mask: object = mask) -> Callable[[], object]:
            return lambda: function(ids, mask)

        case = f"MiniLM, {batch} of {LENGTH} tokens"
        for peer, what, most in ((hand, "the best form by hand", BY_HAND), (bare, "its export", EXPORTED)):
            ratio = compare(calling(model), calling(peer), rounds, clock=time.process_time)
            bounds.ratio(f"{case}: beside {what}", ratio, most)
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
