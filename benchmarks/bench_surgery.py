"""Composing, cutting and fixing graphs: what a composed model costs to run, and the operations beside their peers'.

    python -m benchmarks.bench_surgery
    pip install onnx-graphsurgeon      # or the extra `bench`: one more peer

Peers start from what they work on, models in memory, as graphcore starts from graphs: no file is read or written. What
is compared:

- run: preprocessing, a model and postprocessing composed of three graphs, beside the same built in one.
- call, compose: `onnx.compose.merge_models`.
- extract: `onnx.utils.Extractor`, and onnx-graphsurgeon's cleanup of a copy.
- with_dims: `onnx.tools.update_model_dims` and shape inference, since graphcore types all values again.
- rename: `onnx.compose.add_prefix` for all names.
- diff: nothing; its seconds are bounded.
"""

from __future__ import annotations

import importlib
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import onnx
from onnx import compose, shape_inference, utils
from onnx.tools import update_model_dims

import graphcore as gc
from benchmarks.timing import Bounds, compare
from graphcore import DType, Graph, Symbol, TensorType, ops

SIZES = (300, 1000, 3000)
F32 = DType.float32


def chain(nodes: int, name: str = "chain") -> Graph:
    """Build a model of so many nodes with a weight for every third."""
    graph = Graph(name, {"x": TensorType(F32, ["batch", 16])})
    weights = [graph.weight(f"w{i}", np.full(16, i, np.float32)) for i in range(nodes // 3)]
    x = graph["x"]
    for weight in weights:
        x = ops.tanh(ops.relu(x + weight))
    graph.output(y=x)
    return graph


# The run


def preprocess(image: Symbol) -> Symbol:
    pixels = (image.cast(F32) / 255 - np.array([0.5, 0.4, 0.3], np.float32)) / np.array([0.2, 0.3, 0.4], np.float32)
    return pixels.permute(0, 3, 1, 2)


def network(pixels: Symbol, weights: Sequence[np.ndarray]) -> Symbol:
    x = pixels
    for number, array in enumerate(weights):
        filters = x.graph.weight(f"filters{number}", array)
        y = ops.relu(
            ops.conv2d(x, filters, stride=(2, 2) if number == 0 else (1, 1), padding=(1, 1, 1, 1), input_layout="NCHW",
                       filter_layout="FCRS")
        )  # fmt: skip
        x = y if number == 0 else y + x
    return ops.mean(x, axis=(2, 3))


def postprocess(features: Symbol) -> tuple[Symbol, Symbol]:
    return ops.top_k(ops.softmax(features), 5)


def weights() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal((64, 3 if i == 0 else 64, 3, 3), np.float32) / 24 for i in range(9)]


def whole() -> Graph:
    graph = Graph("whole", {"image": TensorType(DType.uint8, ["batch", 128, 128, 3])})
    scores, classes = postprocess(network(preprocess(graph["image"]), weights()))
    graph.output(scores=scores, classes=classes)
    return graph


def composed() -> Graph:
    before = Graph("before", {"image": TensorType(DType.uint8, ["batch", 128, 128, 3])})
    before.output(pixels=preprocess(before["image"]))
    model = Graph("model", {"pixels": TensorType(F32, ["batch", 3, 128, 128])})
    model.output(features=network(model["pixels"], weights()))
    after = Graph("after", {"features": TensorType(F32, ["batch", 64])})
    scores, classes = postprocess(after["features"])
    after.output(scores=scores, classes=classes)
    return gc.compose(gc.compose(before, model), after)


def run(bounds: Bounds) -> None:
    graphs = {"whole": whole(), "composed": composed(), "folded": composed().fold_preprocessing()}
    counts = {name: len(graph.to_onnx().graph.node) for name, graph in graphs.items()}
    bounds.figure("nodes of a file, composed beside whole", counts["composed"] / counts["whole"], 1.0, "x", str(counts))
    session = gc.InferenceSession(intra_op_num_threads=1)
    models = {name: session.load(graph) for name, graph in graphs.items()}
    image = np.random.default_rng(0).integers(0, 256, (2, 128, 128, 3)).astype(np.uint8)
    for a, b in zip(models["composed"](image), models["whole"](image), strict=True):
        np.testing.assert_array_equal(a, b)
    for name in ("composed", "folded"):
        model = models[name]
        ratio = compare(partial(model, image), partial(models["whole"], image), 25)
        bounds.ratio(f"run, {name} beside whole", ratio, 1.05)


# The operations


def _call(model: Graph) -> Graph:
    graph = Graph("caller", {"x": TensorType(F32, ["batch", 16])})
    graph.output(y=model(graph["x"]))
    return graph


def operations(bounds: Bounds, nodes: int) -> None:
    model, second = chain(nodes), chain(nodes, "second").rename({"y": "z"})
    proto, other = model.to_onnx(optimize="off"), second.to_onnx(optimize="off")
    head = chain(3, "head")
    short = head.to_onnx(optimize="off")
    middle = next(node.outputs[0] for node in model.nodes[len(model.nodes) // 2 :] if node.op_type == "Relu")
    inferred = shape_inference.infer_shapes(proto)  # the extractor asks for the types of what it cuts at
    inner = proto.graph.node[len(proto.graph.node) // 2].output[0]

    def typed() -> onnx.ModelProto:
        model = onnx.ModelProto()
        model.CopyFrom(proto)
        model = update_model_dims.update_inputs_outputs_dims(model, {"x": [4, 16]}, {"y": [4, 16]})
        del model.graph.value_info[:]
        return shape_inference.infer_shapes(model)

    # Bounds catch regressions: what the peers of onnx do is C++ that copies protobufs, ours types each value again.
    cases: tuple[tuple[str, Callable[[], object], str, Callable[[], object], float], ...] = (
        ("call", lambda: _call(model), "onnx.compose", lambda: merged(short, proto), 1.1),
        ("compose", lambda: gc.compose(model, second, {"y": "x"}), "onnx.compose", lambda: merged(proto, other), 1.3),
        ("extract", lambda: model.extract([middle], ["y"]), "onnx.utils",
         lambda: utils.Extractor(inferred).extract_model([inner], ["y"]), 1.5),
        ("with_dims", lambda: model.with_dims(batch=4), "onnx.shape_inference", typed, 4.5),
        ("rename", lambda: model.rename({"x": "images", "y": "logits"}), "onnx.compose.add_prefix",
         lambda: compose.add_prefix(proto, "a/"), 2.5),
    )  # fmt: skip
    for name, ours, peer, theirs, most in cases:
        bounds.ratio(f"{nodes} nodes: {name} beside {peer}", compare(ours, theirs, 7), most)
    graphsurgeon(bounds, nodes, model, proto, middle, inner)


def merged(first: onnx.ModelProto, then: onnx.ModelProto) -> onnx.ModelProto:
    """Merge two models; names must be of one of them alone."""
    return compose.merge_models(first, then, [("y", "x")], prefix1="a/", prefix2="b/")


def graphsurgeon(bounds: Bounds, nodes: int, model: Graph, proto: onnx.ModelProto, middle: Symbol, inner: str) -> None:
    try:
        peer = importlib.import_module("onnx_graphsurgeon")
    except ImportError:
        print(f"{nodes} nodes: extract beside onnx-graphsurgeon: not measured, it is not installed")
        return
    base = peer.import_onnx(proto)

    def extract() -> object:
        graph = base.copy()
        graph.inputs = [graph.tensors()[inner].to_variable(dtype=np.float32, shape=["batch", 16])]
        return graph.cleanup().toposort()

    ratio = compare(lambda: model.extract([middle], ["y"]), extract, 7)
    bounds.ratio(f"{nodes} nodes: extract beside onnx-graphsurgeon", ratio, 0.5)


def heavy(bounds: Bounds) -> None:
    """Compose two models of 32 MB: weights are shared here, and copied there."""
    models = []
    for name in ("first", "second"):
        graph = Graph(name, {"x": TensorType(F32, ["batch", 1024])})
        x = graph["x"]
        for i in range(8):
            x = ops.relu(x @ graph.weight(f"w{i}", np.full((1024, 1024), i, np.float32)))
        graph.output(**{"y" if name == "first" else "z": x})
        models.append(graph)
    protos = [model.to_onnx(optimize="off") for model in models]
    ratio = compare(lambda: gc.compose(models[0], models[1], {"y": "x"}), lambda: merged(*protos), 7)
    bounds.ratio("64 MB of weights: compose beside onnx.compose", ratio, 0.2)


def difference(bounds: Bounds) -> None:
    """Compare two models of some 10,000 nodes, which differ at the end."""
    before, after = chain(9_900), chain(10_200)
    start = time.process_time()
    before.diff(after)
    bounds.figure("10,000 nodes: diff", time.process_time() - start, 10, "s")


def main() -> int:
    warnings.simplefilter("ignore")
    bounds = Bounds()
    run(bounds)
    for nodes in SIZES:
        operations(bounds, nodes)
    heavy(bounds)
    difference(bounds)
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
