"""A cache of 64 MB in a buffer of a Model, beside one that is fed and fetched by hand in each call.

python -m benchmarks.bench_buffers

Each call stores one row and reads eight. By hand onnxruntime allocates the fetched array in each call; a buffer has two
arrays that alternate, or, where it is declared `in_place`, one array of which a row is written. The last rows are a
small model: the cost of state beside `run` where the state is tiny.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import graphcore as gc
from benchmarks.bench_call import many
from benchmarks.timing import Bounds, compare
from graphcore import Buffer, DType, Graph, Model, TensorType

ROWS, WIDTH = 1024, 16 * 1024
CALLS = 2_000


def with_buffer(rows: int, width: int, in_place: bool) -> Model:
    cache = Buffer(DType.float32, [rows, width], in_place=in_place)
    graph = Graph("kept", {"at": TensorType(DType.int64), "row": TensorType(DType.float32, [width]), "cache": cache})
    graph.buffers["cache"][graph["at"]] = graph["row"]
    graph.output(total=graph["cache"][:8].sum(axis=0))
    return gc.InferenceSession(intra_op_num_threads=1).load(graph)


def by_hand(rows: int, width: int) -> Any:
    """Return a session of the same model, exported with one more input and output."""
    return with_buffer(rows, width, False).session


class Hand:
    """A cache that is fed and fetched."""

    def __init__(self, rows: int, width: int) -> None:
        self.session = by_hand(rows, width)
        self.cache = np.zeros((rows, width), np.float32)

    def __call__(self, at: Any, row: Any) -> Any:
        total, self.cache = self.session.run(None, {"at": at, "row": row, "cache": self.cache})
        return total


def main() -> int:
    bounds = Bounds()
    for rows, width, calls, most in ((ROWS, WIDTH, 1, (1.3, 0.1)), (8, 4, CALLS, (3.5, 3.5))):
        at, row, hand = np.array(3), np.ones(width, np.float32), Hand(rows, width)
        size = f"{rows * width * 4 / 1e6:.0f} MB" if calls == 1 else "tiny"
        for in_place, bound in zip((False, True), most, strict=True):
            model = with_buffer(rows, width, in_place)
            assert bool(model.buffers.in_place) is in_place
            ours, peer = (lambda: model(at, row)), (lambda: hand(at, row))  # noqa: B023 - called at once
            ratio = compare(ours, peer) if calls == 1 else compare(many(ours), many(peer))
            how = "in place" if in_place else "two arrays"
            bounds.ratio(f"buffer  {size}, {how}, beside by hand", ratio, bound, calls, "us" if calls > 1 else "ms")
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
