"""Loads of files with `cache_dir`, after the first, beside onnxruntime's own load: processor time of one thread.

    python -m benchmarks.bench_second_load                 models of random weights that are written for it
    python -m benchmarks.bench_second_load a.onnx b.onnx   these files

Files that bare onnxruntime loads in less than 5 ms have no bound: most of such a load is onnxruntime's session.
"""

from __future__ import annotations

import functools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import onnxruntime

import graphcore as gc
from benchmarks.timing import Bounds, compare
from graphcore.errors import GraphcoreError
from graphcore.models import gpt2, llama, resnet, vit
from graphcore.runtime.sessions.warm_start.prepared import SETTLED

BOUND = 0.5
SMALL = 0.005  # seconds
ROUNDS = 15


def written(folder: Path) -> Iterator[Path]:
    """Write models of the library; yield their files."""
    decoder = llama.build(llama.Config(positions=512))
    graphs = {
        "resnet": resnet.build(resnet.Config()),
        "vit": vit.build(vit.Config()),
        "gpt2": gpt2.build(gpt2.config()),
        "llama": decoder,
        "llama-int4": gc.quantize(decoder, "int4").graph,
    }
    for name, graph in graphs.items():
        graph.export(folder / f"{name}.onnx")
        yield folder / f"{name}.onnx"


def bare(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def main(*values: str) -> int:
    bounds = Bounds()
    session = gc.InferenceSession(intra_op_num_threads=1)
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(path) for path in values] or [*written(Path(folder))]
        if not values:
            time.sleep(SETTLED + 0.1)  # a file that was written just now is read in each load
        for path in paths:
            load = functools.partial(session.load, path, cache_dir=os.path.join(folder, "cache"))
            try:
                peer = functools.partial(bare, path)
                peer()
                load()
            except (GraphcoreError, RuntimeError, OSError) as error:
                print(f"{path.name} is left out: {str(error).splitlines()[0]:.100}")
                continue
            ratio = compare(load, peer, ROUNDS, clock=time.process_time)
            ratios.append(ratio.value)
            most = BOUND if ratio.peer > SMALL else float("inf")
            bounds.ratio(f"{path.name}: second load", ratio, most)
    if ratios:
        bounds.figure("second loads, median", statistics.median(ratios), BOUND if not values else float("inf"), "x")
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
