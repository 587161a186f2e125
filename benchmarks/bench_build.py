"""Building and writing 10,000 element-wise nodes and more, beside the same as protobufs made by onnx.helper.

    python -m benchmarks.bench_build

onnx.helper checks nothing and infers nothing; here every node has its dtype, its shape and the line that made it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import onnx
from onnx import helper

from benchmarks.timing import Bounds, compare
from graphcore import DType, Graph, Symbol, TensorType
from graphcore.onnx.notes import OPSET
from graphcore.onnx.proto.model_proto import encode, join
from graphcore.runtime.export import lowered

NODES, MANY = 10_000, 100_000
BUILD_BOUND = 2.0
WRITE_BOUND = 1.5
BOTH_BOUND = 2.5

Step = Callable[[Symbol, Symbol], Symbol]


def build(other: DType, step: Step, steps: int) -> Graph:
    """Build `x = step(x, y)` repeatedly; x is float32, y of dtype `other`."""
    graph = Graph("chain", {"x": TensorType(DType.float32, ["batch", 64]), "y": TensorType(other, [64])})
    x, y = graph.inputs
    for _ in range(steps):
        x = step(x, y)
    graph.output(result=x)
    return graph


# The name, the dtype of y, the step, and the nodes that a step makes.
CASES: tuple[tuple[str, DType, Step, int], ...] = (
    ("x + y, one dtype", DType.float32, lambda x, y: x + y, 1),
    ("x * 2.0, a Python number", DType.float32, lambda x, y: x * 2.0, 1),
    ("x + y, promoted: y is cast once", DType.int8, lambda x, y: x + y, 1),
    ("y + x.cast(float16), promoted: a cast each", DType.float32, lambda x, y: y + x.cast(DType.float16), 3),
)


def peer_nodes(graph: Graph) -> tuple[list[onnx.NodeProto], Callable[[], list[onnx.NodeProto]]]:
    """Return the nodes of a graph as protobufs, and a function that makes them with onnx.helper as a user would."""
    wanted: list[tuple[str, list[str], list[str], dict[str, Any]]] = [
        (
            node.op_type,
            [s.name for s in node.inputs if s is not None],
            [s.name for s in node.outputs],
            {key: value.onnx if isinstance(value, DType) else value for key, value in node.attributes.items()},
        )
        for node in graph.nodes
    ]

    def make() -> list[onnx.NodeProto]:
        return [
            helper.make_node(op_type, inputs, outputs, name=outputs[0], **attributes)
            for op_type, inputs, outputs, attributes in wanted
        ]

    return make(), make


def peer_writer(graph: Graph) -> Callable[[list[onnx.NodeProto]], bytes]:
    """Return a function that makes a model of nodes and writes it, with the constants of the graph's own model."""
    model = onnx.ModelProto.FromString(join(encode(lowered(graph, "cpu"))))
    inputs, outputs = list(model.graph.input), list(model.graph.output)
    initializers, opset = list(model.graph.initializer), helper.make_opsetid("", OPSET)

    def write(nodes: list[onnx.NodeProto]) -> bytes:
        model = helper.make_model(
            helper.make_graph(nodes, graph.name, inputs, outputs, initializers), opset_imports=[opset]
        )
        written: bytes = model.SerializeToString()
        return written

    return write


def main() -> int:
    bounds = Bounds()
    warnings.simplefilter("ignore")
    for what, other, step, nodes_a_step in CASES:
        steps = NODES // nodes_a_step
        graph = build(other, step, steps)
        nodes, make = peer_nodes(graph)

        def ours(other: DType = other, step: Step = step, steps: int = steps) -> Graph:
            return build(other, step, steps)

        bounds.ratio(f"build  {what}", compare(ours, make), BUILD_BOUND, each=len(nodes), unit="us")
        if any(node.op_type == "Cast" for node in graph.nodes):
            continue  # lowering rewrites casts; onnx.helper has no counterpart

        def write(graph: Graph = graph) -> bytes:
            return join(encode(lowered(graph, "cpu")))

        ratio = compare(write, partial(peer_writer(graph), nodes))
        bounds.ratio(f"write  {what}", ratio, WRITE_BOUND, len(nodes), "us")
    for count, rounds in ((NODES, 7), (MANY, 1)):
        both(bounds, count, rounds)
    return bounds.exit_code()


def both(bounds: Bounds, count: int, rounds: int) -> None:
    """Compare building and writing together, of `x + y` so many times."""
    what, other, step, _ = CASES[0]
    graph = build(other, step, count)
    _, make = peer_nodes(graph)
    write = peer_writer(graph)
    del graph

    def ours() -> bytes:
        return join(encode(lowered(build(other, step, count), "cpu")))

    ratio = compare(ours, lambda: write(make()), rounds)
    bounds.ratio(f"both   {what}, {count} nodes", ratio, BOTH_BOUND, count, "us")


if __name__ == "__main__":
    sys.exit(main())
