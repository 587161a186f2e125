"""Edit a model as source: build one, write it as a module of Python, change the text, and build it again.

python examples/decompile.py
"""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np

import graphcore as gc
from graphcore import Graph, TensorType, ops


def network() -> Graph:
    """Return six residual layers of the same form."""
    random = np.random.default_rng(0)
    graph = Graph("network", {"x": TensorType("float32", ["batch", 16])})
    x = graph["x"]
    for i in range(6):
        weight = graph.weight(f"layer.{i}.weight", random.normal(0, 0.1, (16, 16)).astype(np.float32))
        x = x + ops.relu(x @ weight)
    graph.output(y=x)
    return graph


if __name__ == "__main__":
    before = network()
    text = before.to_python("network.py")  # and the weights to network.safetensors
    print(*(line for line in text.splitlines() if "layer" in line), sep="\n")
    Path("network.py").write_text(text.replace("ops.relu(", "ops.gelu(").replace("range(6)", "range(4)"))
    after = runpy.run_path("network.py")["graph"]
    for graph in (before, after):
        model = gc.InferenceSession().load(graph)
        (y,) = model(np.ones((1, 16), np.float32))
        print(f"{len(graph.nodes)} nodes, the mean is {y.mean():.3f}")
