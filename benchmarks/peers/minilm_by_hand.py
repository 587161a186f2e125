"""all-MiniLM-L6-v2 with onnx.helper alone, in onnxruntime's fastest form that was measured.

Dense layers are 2-D Gemm with weights in the layout of the file; the others are Attention, LayerNormalization and Gelu.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, save

LAYERS, HEADS, WIDTH, EPSILON = 6, 12, 384, 1e-12
DISABLED = ("SkipLayerNormFusion", "BiasGeluFusion")
"""onnxruntime's optimisers that make it slower."""


class _Written:
    def __init__(self, weights: Mapping[str, Any]) -> None:
        self.weights = weights
        self.nodes: list[NodeProto] = []
        self.initializers: dict[str, TensorProto] = {}

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def array(self, name: str, array: Any) -> str:
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def weight(self, name: str) -> str:
        return self.array(name, self.weights[name])

    def dense(self, x: str, name: str) -> str:
        return self.node("Gemm", x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"), transB=1)

    def norm(self, x: str, name: str) -> str:
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=EPSILON)

    def embeddings(self) -> str:
        table = "embeddings.{}_embeddings.weight".format
        words = self.node("Gather", self.weight(table("word")), "input_ids")
        kind = np.asarray(self.weights[table("token_type")])[0]
        places = self.array("places", np.asarray(self.weights[table("position")]) + kind)
        length = self.node("Shape", "input_ids", start=1, end=2)
        zero = self.array("zero", np.array([0], np.int64))
        return self.norm(
            self.node("Add", words, self.node("Slice", places, zero, length, zero)), "embeddings.LayerNorm"
        )

    def layer(self, x: str, name: str, wide: str, rows: str, lengths: str) -> str:
        parts = [self.dense(x, f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
        parts = [self.node("Reshape", part, wide) for part in parts]
        mixed = self.node("Attention", *parts, "", "", "", lengths, q_num_heads=HEADS, kv_num_heads=HEADS)
        mixed = self.dense(self.node("Reshape", mixed, rows), f"{name}.attention.output.dense")
        x = self.norm(self.node("Add", mixed, x), f"{name}.attention.output.LayerNorm")
        inner = self.node("Gelu", self.dense(x, f"{name}.intermediate.dense"))
        return self.norm(self.node("Add", self.dense(inner, f"{name}.output.dense"), x), f"{name}.output.LayerNorm")

    def pooled(self, hidden: str) -> str:
        one, two = (self.array(f"axis{axis}", np.array([axis], np.int64)) for axis in (1, 2))
        counted = self.node("Unsqueeze", self.node("Cast", "attention_mask", to=TensorProto.FLOAT), two)
        total = self.node("ReduceSum", self.node("Mul", hidden, counted), one, keepdims=0)
        mean = self.node("Div", total, self.node("ReduceSum", counted, one, keepdims=0))
        return self.node("Div", mean, self.node("ReduceL2", mean, one, keepdims=1))


def model(weights: Mapping[str, Any]) -> ModelProto:
    """Return the model: `input_ids` and `attention_mask`, int64[batch, sequence], to `embedding` of length 1 each."""
    to = _Written(weights)
    lengths = to.node("ReduceSum", "attention_mask", to.array("axis1", np.array([1], np.int64)), keepdims=0)
    width = to.array("width", np.array([WIDTH], np.int64))
    wide = to.node("Concat", to.node("Shape", "input_ids"), width, axis=0)
    rows = to.array("rows", np.array([-1, WIDTH], np.int64))
    x = to.node("Reshape", to.embeddings(), rows)
    for number in range(LAYERS):
        x = to.layer(x, f"encoder.layer.{number}", wide, rows, lengths)
    to.nodes.append(helper.make_node("Identity", [to.pooled(to.node("Reshape", x, wide))], ["embedding"]))
    tokens = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
        for name in ("input_ids", "attention_mask")
    ]
    results = [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", WIDTH])]
    graph = helper.make_graph(to.nodes, "minilm", tokens, results, list(to.initializers.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def write(weights: Mapping[str, Any], path: Path) -> Path:
    save(model(weights), path)
    return path
