"""A classifier with quantised weights: the weights, the sizes of the files, and the errors.

python examples/quantize.py
"""

import tempfile
from pathlib import Path

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops


def classifier() -> Graph:
    random = np.random.default_rng(0)
    graph = Graph("classifier", {"x": TensorType(DType.float32, ["batch", 256])})
    x = graph["x"]
    for name, inputs, outputs in (("wide", 256, 1024), ("deep", 1024, 256), ("head", 256, 10)):
        with graph.layer(name):
            w = graph.weight(f"{name}.weight", (random.standard_normal((outputs, inputs)) / 16).astype(np.float32))
            x = ops.linear(x, w) if name == "head" else ops.gelu(ops.linear(x, w))
    graph.output(logits=x)
    return graph


def size(graph: Graph) -> int:
    """Return the size of a graph's file in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        graph.export(path)
        return path.stat().st_size


if __name__ == "__main__":
    graph = classifier()
    x = np.random.default_rng(1).standard_normal((100, 256)).astype(np.float32)
    (exact,) = gc.InferenceSession().load(graph)(x)
    print(f"float32       {size(graph)} bytes")
    for scheme in ("int8_dynamic", "int4"):
        small, report = gc.quantize(graph, scheme, exclude="head")
        (logits,) = gc.InferenceSession().load(small)(x)
        off = np.linalg.norm(logits - exact) / np.linalg.norm(exact)
        print(f"{scheme:13} {size(small)} bytes, the logits {off:.1%} off")
    print(report)
