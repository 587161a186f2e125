"""Saturation of products of bytes on this processor."""

from __future__ import annotations

import functools

import numpy as np


@functools.cache
def saturates() -> bool:
    """Return whether onnxruntime's products of unsigned with signed bytes saturate here, as far as one tells by trying.

    x86 processors without VNNI add pairs of such products in 16 bits. True where there is no onnxruntime to try.
    """
    try:
        import onnxruntime
    except ImportError:
        return True
    from onnx import TensorProto, helper, numpy_helper

    inner, columns = 64, 16
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "saturation",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [None, inner])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [None, columns])],
        [numpy_helper.from_array(np.full((inner, columns), 127, np.int8), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    sums = [session.run(None, {"x": np.full((rows, inner), 255, np.uint8)})[0] for rows in (1, 8)]
    return any(bool((s != 255 * 127 * inner).any()) for s in sums)
