"""`model(x)` and bound calls on graphs of a few nodes, beside `run` of the same onnxruntime session.

    python -m benchmarks.bench_call

Both check the feed; ours also its dims, and the values' byte order and strides. Processor time: calls of arrays with 1
to 16 inputs, of strings, lists and maps, and bound calls, of outputs too whose size only the run knows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import graphcore as gc
from benchmarks.timing import Bounds, compare
from graphcore import DType, Graph, Model, TensorType, ops
from graphcore.types.tensor_types import SequenceType

CALLS = 1_000
BOUND = 1.1
STRINGS_BOUND = 1.15  # each of many is looked at: onnxruntime prints what is none
NUMPY_STRINGS_BOUND = 1.4  # they are copied where onnxruntime would cut them, and it dies of code points that are none
BIND_BOUND = 1.0


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


def session() -> gc.InferenceSession:
    return gc.InferenceSession(intra_op_num_threads=1)


def compared(bounds: Bounds, what: str, ours: Callable[[], object], peer: Callable[[], object], most: float) -> None:
    ratio = compare(many(ours), many(peer), 15, clock=time.process_time)
    bounds.ratio(f"{what}, beside run", ratio, most, CALLS, "us")


def calls(bounds: Bounds) -> None:
    for inputs in (1, 2, 4, 16):
        model = chain(inputs)
        arrays = [np.ones((2, 4), np.float32) for _ in range(inputs)]
        named = dict(zip(model.inputs, arrays, strict=True))
        bound = model.bind(n=2)
        bare = partial(model.session.run, None, named)
        for how, most, ours in (
            ("by position", BOUND, partial(model, *arrays)),
            ("by name", BOUND, partial(model, **named)),
            ("in a dict", BOUND, partial(model, named)),
            ("execute", BOUND, partial(model.execute, *arrays)),
            ("bound", BIND_BOUND, bound),
            ("bound, given", BIND_BOUND, partial(bound, *arrays)),
        ):
            compared(bounds, f"call  {inputs} inputs {how}", ours, bare, most)


def strings(bounds: Bounds) -> None:
    graph = Graph("joined", {"x": TensorType(DType.string, ["n"])})
    graph.output(y=ops.onnx.StringConcat(graph["x"], graph["x"]))
    model = session().load(graph)
    for count in (1, 16, 256):
        objects = np.array([f"word{i}" for i in range(count)], object)
        for kind, x, most in (("str", objects, STRINGS_BOUND), ("NumPy's", objects.astype(str), NUMPY_STRINGS_BOUND)):
            compared(
                bounds,
                f"call  {count} strings, {kind}",
                partial(model, x),
                partial(model.session.run, None, {"x": x}),
                most,
            )


def lists_and_maps(bounds: Bounds) -> None:
    graph = Graph("listed", {"x": SequenceType(TensorType(DType.float32, ["n"]))})
    graph.output(y=ops.onnx.SequenceInsert(graph["x"], graph.constant(np.ones(3, np.float32))))
    listed = session().load(graph)
    for count in (1, 4, 16):
        x = [np.ones(3, np.float32) for _ in range(count)]
        compared(
            bounds,
            f"call  a list of {count}",
            partial(listed, x),
            partial(listed.session.run, None, {"x": x}),
            BOUND,
        )
    floats = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    counts = helper.make_map_type_proto(TensorProto.STRING, floats)
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", string_vocabulary=["a", "b", "c"])
    vectorised = third_party([node], helper.make_value_info("x", counts), ("y", TensorProto.FLOAT, [1, 3]))
    results = {"a": 1.0, "c": 2.0}
    bare = partial(vectorised.session.run, None, {"x": results})
    compared(bounds, "call  a map", partial(vectorised, results), bare, BOUND)


def third_party(nodes: list[Any], x: Any, *outputs: tuple[str, int, list[Any]]) -> Model:
    """Load a model of ai.onnx.ml."""
    graph = helper.make_graph(nodes, "third_party", [x], [helper.make_tensor_value_info(*output) for output in outputs])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    return session().load(helper.make_model(graph, opset_imports=opsets, ir_version=9))


def forest(features: int = 8, trees: int = 20, depth: int = 4) -> Model:
    """Load a forest with labels and probabilities, in the form that scikit-learn's are exported in."""
    random = np.random.default_rng(0)
    inner, leaves = 2**depth - 1, 2**depth
    table: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "modes", "values", "features")}
    table |= {"true": [], "false": [], "class_trees": [], "class_nodes": [], "class_ids": [], "weights": []}
    for tree in range(trees):
        for node in range(inner + leaves):
            is_leaf = node >= inner
            table["treeids"].append(tree)
            table["nodeids"].append(node)
            table["modes"].append("LEAF" if is_leaf else "BRANCH_LEQ")
            table["values"].append(0.0 if is_leaf else float(random.standard_normal()))
            table["features"].append(0 if is_leaf else int(random.integers(features)))
            table["true"].append(0 if is_leaf else 2 * node + 1)
            table["false"].append(0 if is_leaf else 2 * node + 2)
            for label in range(3 if is_leaf else 0):
                table["class_trees"].append(tree)
                table["class_nodes"].append(node)
                table["class_ids"].append(label)
                table["weights"].append(1 / 3 / trees)
    node = helper.make_node(
        "TreeEnsembleClassifier",
        ["x"],
        ["label", "probabilities"],
        domain="ai.onnx.ml",
        nodes_treeids=table["treeids"],
        nodes_nodeids=table["nodeids"],
        nodes_modes=table["modes"],
        nodes_values=table["values"],
        nodes_featureids=table["features"],
        nodes_truenodeids=table["true"],
        nodes_falsenodeids=table["false"],
        class_treeids=table["class_trees"],
        class_nodeids=table["class_nodes"],
        class_ids=table["class_ids"],
        class_weights=table["weights"],
        classlabels_int64s=[0, 1, 2],
        post_transform="NONE",
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, features])
    return third_party([node], x, ("label", TensorProto.INT64, [None]), ("probabilities", TensorProto.FLOAT, [None, 3]))


def unknown_sizes(bounds: Bounds) -> None:
    graph = Graph("found", {"x": TensorType(DType.float32, ["n"])})
    graph.output(at=ops.nonzero(graph["x"]), largest=ops.max(graph["x"]))
    for what, model, x in (
        ("NonZero", session().load(graph), np.array([0, 1, 1], np.float32)),
        ("a forest", forest(), np.ones((4, 8), np.float32)),
    ):
        bound = model.bind(x)
        bare = partial(model.session.run, None, {"x": x})
        for how, ours, most in (
            ("called", partial(model, x), BOUND),
            ("bound", bound, BIND_BOUND),
            ("bound, given", partial(bound, x), BIND_BOUND),
        ):
            compared(bounds, f"call  {what}, {how}", ours, bare, most)


def main() -> int:
    bounds = Bounds()
    calls(bounds)
    strings(bounds)
    lists_and_maps(bounds)
    unknown_sizes(bounds)
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
