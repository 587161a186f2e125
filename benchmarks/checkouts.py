"""Two checkouts beside each other: first result, building, writing, lowering and loading, in processes that alternate.

    python -m benchmarks.checkouts OLD NEW [ROUNDS]

OLD, NEW: folders of checkouts. Each figure is the ratio of NEW to OLD in processor time of one process, the median of
the rounds; below 1 NEW is faster. Imported models are the .onnx files of packages in the environment: their loads stand
beside those of onnxruntime alone, in the same process.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

_WORK = r"""
import json, sys, time
from pathlib import Path
clock = time.process_time
import numpy as np
import graphcore as gc
from graphcore import Graph, TensorType, ops

def small():
    graph = Graph("small", {"x": TensorType("float32", ["batch", 4]), "gain": TensorType("float32", [4])})
    x, gain = graph.inputs
    graph.output(y=ops.exp(ops.relu(x * gain + 1.0)) - x)
    return graph

session = gc.InferenceSession(intra_op_num_threads=1)
session.load(small())(np.ones((2, 4), np.float32), np.ones(4, np.float32))
found = {"import and first result": clock()}

def took(work):
    begin = clock()
    result = work()
    return result, clock() - begin

def long(dtype):
    graph = Graph("long", {"x": TensorType(dtype, ["batch", 64]), "y": TensorType(dtype, [64])})
    x, y = graph.inputs
    for _ in range(2000):
        x = ops.relu(x * y + x)
    graph.output(x)
    return graph

took(lambda: long("float32"))
graph, found["build a node"] = took(lambda: long("float32"))
_, found["write a node"] = took(lambda: graph.to_onnx(target="onnx"))
narrow = long("bfloat16")
_, found["lower and write a node of bfloat16"] = took(lambda: narrow.to_onnx())
graphs = [small() for _ in range(200)]
_, found["load a graph of 5 nodes"] = took(lambda: [session.load(graph) for graph in graphs])
_, found["export a graph of 5 nodes"] = took(lambda: [graph.to_onnx() for graph in graphs])
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.log_severity_level = 4
bare = []
for path in json.loads(sys.argv[1]):
    alone = lambda: onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    try:
        session.load(path), alone()
    except Exception:
        continue
    bare.append(min(took(lambda: session.load(path))[1] for _ in range(3)) / min(took(alone)[1] for _ in range(3)))
found["imported"] = bare
print(json.dumps(found))
"""


def main() -> None:
    old, new = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    site = Path(sys.prefix, "lib").glob("python*/site-packages/*/**/*.onnx")
    models = json.dumps(sorted(str(path) for path in site if "backend" not in path.parts))
    results: dict[str, list[dict[str, float]]] = {old: [], new: []}
    for _ in range(rounds):
        for folder in (old, new):
            environment = {**os.environ, "PYTHONPATH": str(Path(folder).resolve()), "ORT_DISABLE_TELEMETRY": "1"}
            command = [sys.executable, "-P", "-c", _WORK, models]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd="/")
            if done.returncode:
                sys.exit(f"{folder}: {done.stderr[-2000:]}")
            results[folder].append(json.loads(done.stdout.splitlines()[-1]))
    for what in results[new][0]:
        if what != "imported":
            pairs = [after[what] / before[what] for before, after in zip(results[old], results[new], strict=True)]
            print(f"{what:36} {statistics.median(pairs):.2f}  ({min(pairs):.2f} to {max(pairs):.2f})")
    for label, folder in (("OLD", old), ("NEW", new)):
        ratios = [statistics.median(each) for each in zip(*(row["imported"] for row in results[folder]), strict=True)]
        text = f"{statistics.median(ratios):.2f}, at most {max(ratios):.2f}, of {len(ratios)}"
        print(f"load of imported models beside bare onnxruntime, {label}: median {text}")


if __name__ == "__main__":
    main()
