"""Probes of operands that turn out to have fewer axes than an operator takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from graphcore.arrays.casting import Array
from graphcore.errors import GraphcoreError
from graphcore.ir.graph import Graph
from graphcore.runtime.lowering.decompositions import recurrent
from graphcore.runtime.lowering.workarounds import sizes
from graphcore.runtime.session import InferenceSession
from graphcore.types.tensor_types import Shape, TensorType
from tools.kernel_probe.probes.probe import Check, D, Family, bare


def families() -> list[Family]:
    """Return the operators that end the process on operands of fewer axes."""
    return [
        Family(
            "GRU, LSTM and RNN end the process on operands of fewer than three axes.",
            [Check((recurrent.FLAT,), _flat, dies=True)],
        ),
        Family(
            "DFT, GridSample and STFT end the process on operands of fewer axes than they take.",
            [Check((sizes.FEW_AXES.name,), _few_axes, dies=True)],
        ),
        Family(
            "AffineGrid, Attention, Conv and Einsum end the process on operands of fewer axes than they take.",
            [Check((sizes.OLD.name,), _older_few_axes, dies=True)],
        ),
        Family(
            "Concat and ConcatFromSequence end the process on an empty operand of fewer axes than others.",
            [Check((sizes.RANKS.name,), _joined, dies=True)],
        ),
        Family(
            "Resize to sizes of a tensor of unknown rank is refused.",
            [Check((sizes.RESIZED.name,), _resized)],
        ),
    ]


def _flat() -> str:
    """Return a description of what is wrong with networks that run as they are, on operands that turn out to have fewer
    axes."""
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        results = {"w": np.ones((1, 4 * gates, 3), np.float32), "r": np.ones((1, 4 * gates, 4), np.float32)}
        node = helper.make_node(op, ["x", *results], ["y"], hidden_size=4)
        if wrong := _computed(node, results, ((3,), (2, 3), ())):
            return wrong
    return ""


def _few_axes() -> str:
    """Return a description of what is wrong with operators on operands that turn out to have fewer axes than they
    take."""
    results = {"step": np.array(1), "length": np.array(2)}
    operands = {"DFT": ["x"], "GridSample": ["x", "grid"], "STFT": ["x", "step", "", "length"]}
    items = (_computed(helper.make_node(op, item, ["y"]), results, ((), (1,))) for op, item in operands.items())
    return next(filter(None, items), "")


def _older_few_axes() -> str:
    """Return a description of what is wrong with operators that newer kernels refuse such operands of."""
    nodes: dict[str, dict[str, str]] = {"Conv": {}, "Einsum": {"equation": "ij,jk->ik"}}
    results = (_computed(helper.make_node(op, ["x", "y"], ["z"], **more), {}, ((), (1,))) for op, more in nodes.items())
    return next(filter(None, results), "")


def _joined() -> str:
    """Return a description of what is wrong with operands that turn out to have fewer axes than those that they are
    joined with."""
    unknown = TensorType(D.float32, Shape.unknown())
    for is_list in (False, True):
        graph = Graph("probe", {"x": unknown, "y": unknown})
        value = graph.op("SequenceConstruct", list(graph.inputs)) if is_list else tuple(graph.inputs)
        result = graph.op("ConcatFromSequence" if is_list else "Concat", list(value), {"axis": 0}, [unknown])
        graph.output(*result)
        session, full = bare(graph), np.ones((2, 3), np.float32)
        if session.run(None, {"x": full, "y": full})[0].shape != (4, 3):
            return "two alike are not joined"
        for empty_first in (False, True):
            pair = [np.zeros(0, np.float32), full][:: 1 if empty_first else -1]
            try:
                session.run(None, dict(zip("xy", pair, strict=True)))
            except Exception:  # its errors have no common class
                continue
            return "it is computed"
    return ""


def _computed(node: onnx.NodeProto, arrays: Mapping[str, Array], shapes: Sequence[tuple[int, ...]]) -> str:
    """Return the first shape of inputs of unknown rank for which a model of one node computes a result; "" for none.
    arrays: its operands that are constants.
    """
    fed = [name for name in node.input if name and name not in arrays]
    inputs, outputs = (
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in names] for names in (fed, node.output)
    )
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items() if name in node.input]
    graph = helper.make_graph([node], "flat", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    loaded = InferenceSession().load(model.SerializeToString())
    for shape in shapes:
        try:
            loaded(*[np.ones(shape, np.float32)] * len(fed))
        except GraphcoreError:
            continue
        return f"{node.op_type} of {shape} is computed"
    return ""


def _resized() -> str:
    """Return the error of a Resize whose sizes come from a tensor of a rank that inference does not know."""
    value = helper.make_tensor_value_info
    kinds = {"i": onnx.TensorProto.INT64, "on": onnx.TensorProto.BOOL, "v": onnx.TensorProto.FLOAT}
    ends = [helper.make_node("Identity", ["on"], ["still"]), helper.make_node("Neg", ["v"], ["w"])]
    outputs = [value("still", kinds["on"], []), value("w", kinds["v"], None)]
    body = helper.make_graph(ends, "body", [value(name, kind, None) for name, kind in kinds.items()], outputs)
    nodes = [
        helper.make_node("Loop", ["turns", "", "x"], ["unknown"], body=body),
        helper.make_node("Shape", ["unknown"], ["rows"], start=0, end=1),
        helper.make_node("Concat", ["rows", "columns"], ["sizes"], axis=0),
        helper.make_node("Reshape", ["unknown", "same"], ["image"]),
        helper.make_node("Resize", ["image", "", "", "sizes"], ["y"], mode="nearest"),
    ]
    vectors = {"turns": 2, "columns": [6], "same": [0, 0]}
    weights = [numpy_helper.from_array(np.array(values), name) for name, values in vectors.items()]
    inputs, results = [value("x", kinds["v"], [None, 3])], [value("y", kinds["v"], None)]
    graph = helper.make_graph(nodes, "probe", inputs, results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    try:
        (y,) = bare(Graph.load(model)).run(None, {"x": np.ones((2, 3), np.float32)})
    except Exception as error:  # of onnxruntime, which has one class for each code
        return str(error)
    return "" if y.shape == (2, 6) else f"shape {y.shape}"
