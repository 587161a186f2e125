"""Loading an ONNX model of 100 MB, and running it, beside onnxruntime by itself.

    python -m benchmarks.bench_load

A float32 perceptron of 24 layers made with onnx.helper, its weights inside of the file; the same with its weights
beside it; and a graph of 10,000 small nodes, read only.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import graphcore as gc
from benchmarks.timing import Bounds, compare

LAYERS, WIDTH = 24, 1024  # 24 x 4 MiB
NODES = 10_000
LOAD_BOUND = 1.3
RUN_BOUND = 1.1
READ_BOUND = 12  # each node becomes Python objects, which parsing and inference in C++ do not make
START_BOUND = 4


def perceptron() -> onnx.ModelProto:
    random = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for i in range(LAYERS):
        kernel = (random.standard_normal((WIDTH, WIDTH)) / 32).astype(np.float32)
        weights += [numpy_helper.from_array(kernel, f"w{i}"), numpy_helper.from_array(kernel[0], f"b{i}")]
        nodes += [
            helper.make_node("MatMul", [value, f"w{i}"], [f"m{i}"]),
            helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"]),
            helper.make_node("Relu", [f"a{i}"], [f"r{i}"]),
        ]
        value = f"r{i}"
    return model(nodes, ["batch", WIDTH], value, weights)


def chain() -> onnx.ModelProto:
    nodes = [helper.make_node("Add", [f"v{i}", "x"], [f"v{i + 1}"], name=f"n{i}") for i in range(NODES - 1)]
    return model([helper.make_node("Neg", ["x"], ["v0"]), *nodes], ["batch", 4], f"v{NODES - 1}", [])


def model(
    nodes: list[onnx.NodeProto], shape: list[str | int], result: str, weights: list[onnx.TensorProto]
) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info(result, onnx.TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "bench", [x], [y], initializer=weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return made


def main() -> int:
    bounds = Bounds()
    session = gc.InferenceSession()
    with tempfile.TemporaryDirectory() as folder:
        inside, beside, small = (str(Path(folder) / f"{name}.onnx") for name in ("inside", "beside", "small"))
        proto = perceptron()
        onnx.save(proto, inside)
        onnx.save(proto, beside, save_as_external_data=True, location="beside.data", size_threshold=1024)
        onnx.save(chain(), small)
        x = np.ones((8, WIDTH), np.float32)
        for what, path in (("weights inside", inside), ("weights beside", beside)):
            loaded = compare(lambda path=path: session.load(path), lambda path=path: _bare(path), 9)  # type: ignore[misc]
            bounds.ratio(f"load 100 MB, {what}", loaded, LOAD_BOUND)
            ours, peer = session.load(path), _bare(path)
            assert np.array_equal(ours(x)[0], peer.run(None, {"x": x})[0])
            ran = compare(lambda m=ours: m(x), lambda s=peer: s.run(None, {"x": x}), 41)  # type: ignore[misc]
            bounds.ratio(f"run it, {what}", ran, RUN_BOUND)
        read = compare(lambda: gc.Graph.load(small), lambda: _inferred(small), 7)
        bounds.ratio(f"read {NODES} nodes, beside onnx.load and inference", read, READ_BOUND)
        started = compare(lambda: session.load(small), lambda: _bare(small), 5)
        bounds.ratio(f"load {NODES} nodes", started, START_BOUND)
    return bounds.exit_code()


def _bare(path: str) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def _inferred(path: str) -> onnx.ModelProto:
    return onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True)


if __name__ == "__main__":
    sys.exit(main())
