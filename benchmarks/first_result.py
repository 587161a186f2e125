"""A new process to its first result: `python -m benchmarks.first_result graphcore|onnxruntime|graph|helper [FILE]`.

Loads a file, or builds a graph of one node, and calls it; prints the megabytes of its proportional set size, as JSON.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np


def first_result(kind: str, path: str) -> object:
    if kind in ("graphcore", "graph"):
        from graphcore import Graph, InferenceSession, TensorType

        if kind == "graphcore":
            model = InferenceSession(intra_op_num_threads=1).load(path)
        else:
            graph = Graph("g", {"x": TensorType("float32", ["n"])})
            graph.output(y=graph["x"] + 1.0)
            model = InferenceSession(intra_op_num_threads=1).load(graph)
        (type_,) = model.inputs.values()
        assert isinstance(type_, TensorType)
        return model, model(np.ones([dim.value or 4 for dim in type_.shape], np.float32))
    source: str | bytes = path
    if kind == "helper":
        from onnx import TensorProto, helper

        nodes = [helper.make_node("Add", ["x", "one"], ["y"])]
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
        one = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])
        graph = helper.make_graph(nodes, "g", values[:1], values[1:], [one])
        opsets = [helper.make_opsetid("", 17)]
        source = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    (value,) = session.get_inputs()
    shape = [size if isinstance(size, int) else 4 for size in value.shape]
    return session, session.run(None, {value.name: np.ones(shape, np.float32)})


if __name__ == "__main__":
    result = first_result(sys.argv[1], sys.argv[-1])
    rows = Path("/proc/self/smaps_rollup").read_text().splitlines()
    print(next(int(row.split()[1]) for row in rows if row.startswith("Pss:")) * 1.024e-3)
