"""A model with state: the mean of the last three samples of a sensor, for two sensors at once, and from a file.

python examples/buffers.py
"""

import numpy as np
import onnxruntime

import graphcore as gc
from graphcore import Buffer, DType, Graph, TensorType, ops

SAMPLES = [3.0, 6.0, 9.0, 0.0]


def smoother() -> Graph:
    window = Buffer(DType.float32, [3])
    graph = Graph("smoother", {"sample": TensorType(DType.float32), "window": window, "count": Buffer(DType.int64)})
    remaining, sample = graph.buffers["window"], graph["sample"]
    remaining[graph["count"] % 3] = sample
    graph["count"] += 1
    graph.output(mean=remaining.sum() / ops.min(graph["count"], 3).cast(DType.float32))
    return graph


if __name__ == "__main__":
    graph = smoother()
    print(graph)
    model = gc.InferenceSession().load(graph)
    other = model.state(window=np.full(3, 100, np.float32), count=np.array(3))
    for sample in SAMPLES:
        value = np.array(sample, np.float32)
        (mean,), (beside,) = model(value), other(value)
        print(f"{mean:6.2f} {beside:6.2f}")
    print("held", model.buffers["window"], model.buffers["count"])

    graph.export("smoother.onnx")
    session = onnxruntime.InferenceSession("smoother.onnx", providers=["CPUExecutionProvider"])
    state = {"window": np.zeros(3, np.float32), "count": np.array(0)}
    for sample in SAMPLES:  # by hand: an output whose name ends in _out is the next call's input
        mean, window, count = session.run(
            ["mean", "window_out", "count_out"], {"sample": np.array(sample, np.float32), **state}
        )
        state = {"window": window, "count": count}
    print(f"plain onnxruntime {mean:.2f}")
