"""An encoder block written once and called six times: a function of the ONNX model, or inlined.

python examples/function.py
"""

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops

random = np.random.default_rng(0)
WIDTH, LAYERS = 16, 6


def weight(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return (random.standard_normal(shape) / WIDTH).astype(np.float32)


@gc.function
def block(x: Symbol, params: dict[str, Symbol], heads: int) -> Symbol:
    """Compute attention and a gated unit: params are operands, `heads` is a plain number."""
    batch, length, width = x.shape
    q, k, v = (
        part.reshape(batch, length, heads, width // heads).permute(0, 2, 1, 3)
        for part in ops.split(x @ params["qkv"], [WIDTH] * 3, axis=-1)
    )
    scores = ops.softmax(q @ k.permute(0, 1, 3, 2) * (WIDTH // heads) ** -0.5)
    scores.name = "scores"
    x = x + (scores @ v).permute(0, 2, 1, 3).reshape(batch, length, width)
    return x + ops.silu(x @ params["gate"])


if __name__ == "__main__":
    graph = Graph("encoder", {"x": TensorType(DType.float32, ["batch", "length", WIDTH])})
    x = graph[0]
    for layer in range(LAYERS):
        arrays = {"qkv": weight(WIDTH, 3 * WIDTH), "gate": weight(WIDTH, WIDTH)}
        x = block(x, {name: graph.weight(f"{layer}.{name}", array) for name, array in arrays.items()}, heads=4)
    graph.output(y=x)
    calls = [line for line in str(graph).splitlines() if "= block(" in line]
    print(len(calls), "calls, the last:", calls[-1].partition("#")[0].strip())

    model = graph.to_onnx()
    print("kept:", len(model.graph.node), "nodes and a function of", len(model.functions[0].node))
    print("inlined:", len(graph.to_onnx(inline=True).graph.node), "nodes")
    feed = random.standard_normal((2, 5, WIDTH)).astype(np.float32)
    (y,), (again,) = (gc.InferenceSession().load(source)(feed) for source in (graph, model))
    print(y.shape, "the same from the file:", np.array_equal(y, again))
