"""`model(x)` on graphs of two and five nodes, beside `run` of the same onnxruntime session.

python -m benchmarks.bench_call

Both check the feed; ours also its dims, and the values' byte order and strides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import graphcore as gc
from benchmarks.timing import Bounds, compare
from graphcore import DType, Graph, Model, TensorType

CALLS = 2_000
BOUND = 1.3


def chain(inputs: int) -> Model:
    """Build `(sum + sum) * sum` of the inputs: two nodes for one input, and one for each further input."""
    graph = Graph("chain", {f"x{i}": TensorType(DType.float32, ["n", 4]) for i in range(inputs)})
    total = graph.inputs[0]
    for symbol in graph.inputs[1:]:
        total = total + symbol
    graph.output(y=(total + total) * total)
    return gc.InferenceSession(intra_op_num_threads=1).load(graph)


def many(call: Callable[[], object]) -> Callable[[], None]:
    def calls() -> None:
        for _ in range(CALLS):
            call()

    return calls


def main() -> int:
    bounds = Bounds()
    for inputs in (1, 4):
        model = chain(inputs)
        session = model.session
        arrays = [np.ones((2, 4), np.float32) for _ in range(inputs)]
        named = dict(zip(model.inputs, arrays, strict=True))

        def bare(session: Any = session, named: Any = named) -> object:
            return session.run(None, {**named})

        def by_position(model: Model = model, arrays: Any = arrays) -> object:
            return model(*arrays)

        def by_name(model: Model = model, named: Any = named) -> object:
            return model(**named)

        for how, ours in (("position", by_position), ("name", by_name)):
            ratio = compare(many(ours), many(bare))
            bounds.ratio(f"call  {inputs} inputs by {how}, beside run", ratio, BOUND, CALLS, "us")
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
