"""Every way to run a model: bound to a shape, asynchronously, in chunks, in batches of many threads, and warm-started.

python examples/running.py
"""

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops


def classifier() -> Graph:
    random = np.random.default_rng(0)
    graph = Graph("classifier", {"x": TensorType(DType.float32, ["batch", 256])})
    hidden = graph["x"]
    for i in range(8):
        hidden = ops.relu(hidden @ graph.weight(f"w{i}", random.standard_normal((256, 256), np.float32) / 16))
    graph.output(probabilities=ops.softmax(hidden))
    return graph


if __name__ == "__main__":
    session = gc.InferenceSession(intra_op_num_threads=1)
    with tempfile.TemporaryDirectory() as folder:
        for start in ("first", "second"):
            began = time.perf_counter()
            model = session.load(classifier(), cache_dir=folder)
            print(f"{start} start {(time.perf_counter() - began) * 1e3:.1f} ms")
    rows = np.random.default_rng(1).standard_normal((64, 256), np.float32)
    (whole,) = model(rows)

    bound = model.bind(batch=1)
    for i in range(3):
        bound.inputs["x"][...] = rows[i]
        bound()
        print("bound", np.allclose(bound.outputs["probabilities"], whole[i], atol=1e-6))

    later = model.run_async(rows)
    (pieces,) = model.execute(rows, micro_batch=16)
    print("later", np.allclose(later.result()[0], whole, atol=1e-6))
    print("pieces", np.allclose(pieces, whole, atol=1e-6))

    with gc.Batcher(model, max_batch=16, max_wait_ms=2) as batcher, ThreadPoolExecutor(16) as pool:
        answers = [*pool.map(lambda i: batcher(rows[i : i + 1]), range(64))]
    print("requests", np.allclose(np.concatenate([probabilities for (probabilities,) in answers]), whole, atol=1e-6))
