"""`model(x)` beside `session.run` of a bare onnxruntime session, on a graph of two nodes: what checking feeds costs.

python -m benchmarks.bench_call
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import onnxruntime

from benchmarks.timing import Bounds, compare
from graphcore import DType, Graph, InferenceSession, TensorType

CALLS = 5_000
BOUND = 1.3


def main() -> int:
    bounds = Bounds()
    graph = Graph("two", {"x": TensorType(DType.float32, ["n"]), "y": TensorType(DType.float32, ["n"])})
    x, y = graph.inputs
    graph.output(z=(x + y) * 2)
    model = InferenceSession().load(graph)
    bare = onnxruntime.InferenceSession(graph.to_onnx().SerializeToString())
    a, b = np.ones(4, np.float32), np.ones(4, np.float32)

    def repeated(call: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(CALLS):
                call()

        return run

    ratio = compare(repeated(lambda: model(a, b)), repeated(lambda: bare.run(None, {"x": a, "y": b})))
    bounds.ratio("model(x, y), beside session.run", ratio, BOUND, CALLS, "us")
    named = compare(repeated(lambda: model(x=a, y=b)), repeated(lambda: bare.run(None, {"x": a, "y": b})))
    print(f"{'model(x=x, y=y), beside session.run':<52} {named.value:6.2f}x")
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
