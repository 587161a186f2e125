"""Attention on each release of onnxruntime: as a session runs it, beside primitives.

    python -m benchmarks.bench_releases [1.27.0 1.32.0 ...]

A release has the kernel of Attention at some opsets and not at others, or a kernel that is wrong; a session is given
the opset that has it, or primitives. CPU time of one thread, both sides in one process of the release's own environment
(tools/kernel_probe/venvs.py). Without arguments: all measured releases that are supported.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.running import on_onnxruntime
from benchmarks.timing import Bounds, Ratio, compare

LIMIT = 1.1
"""Beside primitives: about 1 and the noise, since releases without a right kernel are given primitives."""
ROOT = Path(__file__).resolve().parents[1]
LENGTH, HEADS, SIZE = 256, 12, 64
ROUNDS = 40


def measure(weights: str) -> dict[str, Any]:
    """Return the ratios of the installed release, and the opset that its session was given.

    weights: the path of MiniLM's, whose package a release's environment does not have; "" leaves MiniLM out.
    """
    import graphcore as gc
    from graphcore import Graph, TensorType, ops
    from graphcore.models import minilm
    from graphcore.runtime.lowering import lower
    from graphcore.runtime.ort.release import runtime

    graph = Graph("attention", {name: TensorType("float32", ["batch", HEADS, LENGTH, SIZE]) for name in "qkv"})
    q, k, v = graph.inputs
    graph.output(ops.scaled_dot_product_attention(q, k, v))
    random = np.random.default_rng(0)
    qkv: list[Any] = [random.standard_normal((1, HEADS, LENGTH, SIZE), np.float32) for _ in range(3)]
    cases: list[tuple[str, Graph, list[Any]]] = [("attention", graph, qkv)]
    if weights:
        ids = random.integers(0, 30000, (1, 128))
        cases.append(("MiniLM", minilm.build(gc.load_tensors(Path(weights))), [ids, np.ones_like(ids)]))
    results: dict[str, Any] = {}
    for name, of, item in cases:
        model = gc.InferenceSession(intra_op_num_threads=1).load(of)
        with tempfile.TemporaryDirectory() as folder:
            of.export(Path(folder) / "primitives.onnx")  # a file for every release has no Attention
            bare = on_onnxruntime(Path(folder) / "primitives.onnx", 1)
        np.testing.assert_allclose(model(*item)[0], bare(*item), rtol=1e-4, atol=1e-5)
        ratio = compare(_call(model, item), _call(bare, item), ROUNDS, clock=time.process_time)
        lowered = lower(of, "cpu", runtime=runtime(), optimize="all")
        kernels = sum(node.op_type == "Attention" for node in lowered.nodes)
        results[name] = {"ratio": astuple(ratio), "kernels": kernels, "opset": lowered.opsets.get("", runtime().opset)}
    return results


def _call(function: Callable[..., object], value: list[Any]) -> Callable[[], object]:
    return lambda: function(*value)


def main() -> int:
    from graphcore.errors import MissingExtraError
    from graphcore.models import minilm
    from graphcore.runtime.lowering.targets.releases import is_supported, table_of
    from tools.kernel_probe.venvs import python_of

    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_releases", description=__doc__)
    supported = [r.version for r in table_of("cpu").releases if is_supported(r.version)]
    parser.add_argument("releases", nargs="*", default=supported)
    bounds = Bounds()
    try:
        weights = str(Path(minilm.folder()) / "model.safetensors")
    except MissingExtraError as error:
        print(f"MiniLM is left out: {error.summary} ({error.help})")
        weights = ""
    for release in parser.parse_args().releases:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [str(python_of(release)), "-m", "benchmarks.bench_releases", "--child", weights]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"onnxruntime {release}: {done.stderr.strip().splitlines()[-1:]}")
            continue
        for name, item in json.loads(done.stdout.splitlines()[-1]).items():
            what = f"onnxruntime {release}, {name}: {item['kernels']} of Attention at opset {item['opset']}"
            bounds.ratio(f"{what}, beside primitives", Ratio(*item["ratio"]), LIMIT)
    return bounds.exit_code()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(measure(sys.argv[2])))
    else:
        sys.exit(main())
