"""Loading an ONNX model of 100 MB, and running it, beside onnxruntime by itself.

    python -m benchmarks.bench_load

A float32 perceptron of 24 layers made with onnx.helper, its weights inside of the file; the same with external weights;
and graphs of 20, 10,000 and 50,000 small nodes: loaded as they are; but for the last read, beside what the onnx package
takes to parse, check and infer them, and loaded through a Graph, as models are that have to be lowered. The 20 tell
what a load costs whatever the model. Memory is the proportional set size of a process after the first result.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import graphcore as gc
from benchmarks.timing import Bounds, Ratio, child, compare

LAYERS, WIDTH, LARGE = 24, 1024, 3328  # 24 x 4 MiB, or x 42 MiB
FEW, NODES, MANY = 20, 10_000, 50_000
ROUNDS, LOADS = 5, 5
KINDS = ("graphcore", "onnxruntime")
MEMORY_BOUND = 1.3
LOAD_BOUND = 1.3
RUN_BOUND = 1.1
READ_BOUNDS = {FEW: 2.6, NODES: 3.3}  # each node becomes Python objects, unlike in the C++ parser
START_BOUNDS = {FEW: 2.5, NODES: 1.9}
DIRECT_BOUNDS = {FEW: 2.0, NODES: 1.2, MANY: 1.2}


def perceptron(width: int = WIDTH) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for i in range(LAYERS):
        kernel = (random.standard_normal((width, width)) / 32).astype(np.float32)
        weights += [numpy_helper.from_array(kernel, f"w{i}"), numpy_helper.from_array(kernel[0], f"b{i}")]
        nodes += [
            helper.make_node("MatMul", [value, f"w{i}"], [f"m{i}"]),
            helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"]),
            helper.make_node("Relu", [f"a{i}"], [f"r{i}"]),
        ]
        value = f"r{i}"
    return model(nodes, ["batch", width], value, weights)


def chain(count: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Add", [f"v{i}", "x"], [f"v{i + 1}"], name=f"n{i}") for i in range(count - 1)]
    return model([helper.make_node("Neg", ["x"], ["v0"]), *nodes], ["batch", 4], f"v{count - 1}", [])


def model(
    nodes: list[onnx.NodeProto], shape: list[str | int], result: str, weights: list[onnx.TensorProto]
) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info(result, onnx.TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "bench", [x], [y], initializer=weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def main() -> int:
    bounds = Bounds()
    session = gc.InferenceSession(intra_op_num_threads=1)
    with tempfile.TemporaryDirectory() as folder:
        inside, beside, small = (str(Path(folder) / f"{name}.onnx") for name in ("inside", "beside", "small"))
        proto = perceptron()
        onnx.save(proto, inside)
        onnx.save(proto, beside, save_as_external_data=True, location="beside.data", size_threshold=1024)
        x = np.ones((8, WIDTH), np.float32)
        for what, path in (("weights inside", inside), ("weights beside", beside)):
            bounds.ratio(f"load 100 MB, {what}", _alone(path), LOAD_BOUND)
            ours, peer = gc.InferenceSession(intra_op_num_threads=1).load(path), _bare(path)
            assert np.array_equal(ours(x)[0], peer.run(None, {"x": x})[0])
            ran = compare(lambda m=ours: m(x), lambda s=peer: s.run(None, {"x": x}), 41)  # type: ignore[misc]
            bounds.ratio(f"run it, {what}", ran, RUN_BOUND)
        exported = str(Path(folder) / "exported.onnx")
        for size, width in (("", WIDTH), (" of 1 GB", LARGE)):
            onnx.save(perceptron(width), inside)
            gc.Graph.load(inside).export(exported)
            for what, path in (("a third-party file", inside), ("a file of graphcore", exported)):
                sizes = [[child("benchmarks.first_result", kind, path) for _ in range(ROUNDS)] for kind in KINDS]
                ratio = Ratio.of(*sizes)
                bounds.figure(
                    f"memory of {what}{size}",
                    ratio.value,
                    MEMORY_BOUND,
                    "x",
                    f"{ratio.ours:.0f} MB to {ratio.peer:.0f}",
                )
        for count, rounds in ((FEW, 51), (NODES, 5), (MANY, 2)):
            onnx.save(chain(count), small)
            direct = compare(lambda: session.load(small), lambda: _bare(small), rounds, clock=time.process_time)
            bounds.ratio(f"load {count} nodes", direct, DIRECT_BOUNDS[count])
            if count == MANY:
                continue
            read = compare(lambda: gc.Graph.load(small), lambda: _inferred(small), rounds, clock=time.process_time)
            bounds.ratio(f"read {count} nodes, onnx.load, check, inference", read, READ_BOUNDS[count])
            started = compare(
                lambda: session.load(gc.Graph.load(small)),
                lambda: _bare(small),
                rounds,
                clock=time.process_time,
            )
            bounds.ratio(f"load {count} nodes through a Graph", started, START_BOUNDS[count])
    return bounds.exit_code()


def _alone(path: str) -> Ratio:
    """Return the seconds of a load in a new process: in one process, a load would reuse memory that another freed."""
    seconds: dict[str, list[float]] = {"ours": [], "peer": []}
    for number in range(ROUNDS):
        for which in ("ours", "peer") if number % 2 else ("peer", "ours"):
            seconds[which].append(child("benchmarks.bench_load", which, path))
    ours, peer = (statistics.median(seconds[which]) for which in ("ours", "peer"))
    return Ratio(ours / peer, ours, peer)


def load_once(which: str, path: str) -> float:
    """Return the processor seconds of the fastest of a few loads: the first includes libraries and new memory."""
    session = gc.InferenceSession(intra_op_num_threads=1)
    load: Callable[[str], object] = session.load if which == "ours" else _bare
    taken = []
    for _ in range(LOADS):
        start = time.process_time()
        result = load(path)
        taken.append(time.process_time() - start)
        del result
    return min(taken)


def _bare(path: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # waiting threads of two sessions disturb each other
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _inferred(path: str) -> onnx.ModelProto:
    proto = onnx.load(path)
    onnx.checker.check_model(proto)
    return onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(load_once(sys.argv[1], sys.argv[2])))
        sys.exit()
    sys.exit(main())
