"""An MLP that classifies points as inside or outside of a circle: layers, weights, export, run.

python examples/mlp.py
"""

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops

random = np.random.default_rng(0)
SIZES = (2, 32, 1)

# The hidden layer stays random; the last one is fitted to it by least squares.
points = random.uniform(-1, 1, (2000, 2)).astype(np.float32)
inside = (np.hypot(*points.T) < 0.7).astype(np.float32)
hidden_weight = random.standard_normal((32, 2)).astype(np.float32) * 2
hidden_bias = random.standard_normal(32).astype(np.float32)
hidden = np.maximum(points @ hidden_weight.T + hidden_bias, 0)
fitted = np.linalg.lstsq(np.column_stack([hidden, np.ones(len(hidden))]), inside - 0.5, rcond=None)[0]

weights = {
    "hidden.weight": hidden_weight,
    "hidden.bias": hidden_bias,
    "out.weight": fitted[None, :-1].astype(np.float32),
    "out.bias": fitted[-1:].astype(np.float32),
}

g = Graph("circle", {"points": TensorType(DType.float32, ["batch", 2])})


def dense(x: Symbol, layer: str) -> Symbol:
    """Add a layer of the network; its node is named after it."""
    with g.layer(layer):
        return ops.linear(x, *(g.weight(f"{layer}.{part}", weights[f"{layer}.{part}"]) for part in ("weight", "bias")))


score = dense(ops.relu(dense(g["points"], "hidden")), "out")
g.output(inside=score.squeeze(-1) > 0)
for node in g.nodes:
    print(f"{node.outputs[0].name:<18} {node.outputs[0].type}")

model = gc.InferenceSession().load(g)
(answers,) = model(points)
print(f"right for {np.mean(answers == (inside > 0)):.0%} of {len(points)} points")

g.export("circle.onnx")
(again,) = gc.InferenceSession().load("circle.onnx")(points)
print(f"the file answers the same: {np.array_equal(answers, again)}")
