"""The precision of each layer within a budget of error: the report of each layer, and the curve of error against size.

python examples/mixed_precision.py
"""

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops


def classifier() -> Graph:
    """Return a classifier of which one layer overflows float16: it sums squares of large numbers."""
    random = np.random.default_rng(0)
    graph = Graph("classifier", {"x": TensorType(DType.float32, ["batch", 64])})

    def dense(x: Symbol, name: str, outputs: int) -> Symbol:
        shape = int(x.shape[1]), outputs
        return x @ graph.weight(
            f"{name}.weight", (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        )

    x = graph["x"]
    for name in ("first", "second"):
        with graph.layer(name):
            x = ops.gelu(dense(x, name, 128))
    with graph.layer("norm"):
        x = x * 1000.0
        x = x / ops.sqrt(ops.mean(x * x, axis=1, keepdims=True) + 1e-3)
    with graph.layer("head"):
        graph.output(logits=dense(x, "head", 10))
    return graph


if __name__ == "__main__":
    graph = classifier()
    random = np.random.default_rng(1)
    samples = [{"x": random.standard_normal((16, 64)).astype(np.float32)} for _ in range(4)]
    for max_error in (1e-3, 3e-2):
        result = gc.mixed_precision(graph, samples, max_error=max_error, resume="trials.json")
        print(result)
    result.plot("curve.svg")
    x = samples[0]["x"]
    (exact,) = gc.InferenceSession().load(graph)(x)
    (logits,) = gc.InferenceSession().load(result.graph)(x)
    print(f"the same class for {np.mean(exact.argmax(1) == logits.argmax(1)):.0%} of the rows")
