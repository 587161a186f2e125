"""A model that onnxruntime refuses for three reasons (opset too new, mixed dtypes, no kernels), loaded and run.

python examples/fix_model.py
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import graphcore as gc
from graphcore.errors import ModelError


def gated(path: str) -> None:
    """Return a model with SwiGLU of opset 28, bfloat16 operands, and an int8 one added to the result."""
    x, gate, y = (
        helper.make_tensor_value_info(name, TensorProto.BFLOAT16, ["batch", 2]) for name in ("x", "gate", "y")
    )
    bias = helper.make_tensor_value_info("bias", TensorProto.INT8, [2])
    nodes = [helper.make_node("SwiGLU", ["x", "gate"], ["gated"]), helper.make_node("Add", ["gated", "bias"], ["y"])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "gated", [x, gate, bias], [y])), path)


if __name__ == "__main__":
    gated("gated.onnx")
    try:
        onnxruntime.InferenceSession("gated.onnx", providers=["CPUExecutionProvider"])
    except Exception as error:
        print("onnxruntime:", str(error).splitlines()[0][:60])
    try:
        gc.Graph.load("gated.onnx")
    except ModelError as error:
        print("graphcore:", error.summary)
    graph = gc.Graph.load("gated.onnx", implicit_casts=True)
    for node in graph.nodes:
        print(node.op_type, *(str(s.type) for s in node.outputs))
    model = gc.InferenceSession().load(graph)
    x, gate = np.array([[[1, 2]], [[3, 4]]], ml_dtypes.bfloat16)
    (y,) = model(x, gate, np.array([10, -10], np.int8))
    print(y.dtype, y.tolist())
    graph.export("fixed.onnx")  # runs in a plain onnxruntime
