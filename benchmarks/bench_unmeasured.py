"""The extra cost of the first session of a process on a release of onnxruntime that was not measured.

    python -m benchmarks.bench_unmeasured

In every other process the installed release is declared to be 99.0: its opset, format and kernels are then probed. Each
process builds x + y, or README's first example, loads and runs it, with everything imported beforehand. Processor time;
the wall time is shown too.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import onnxruntime

import graphcore as gc
from benchmarks.bench_start import STARTS
from benchmarks.timing import Bounds, child
from graphcore.runtime.lowering.targets.releases import Release
from graphcore.runtime.ort import release as installed

BOUND = 30.0
ROUNDS = 9
GRAPHS = {"added": "x + y", "screen": "README's first screen"}
KINDS = ("measured", "unmeasured")


def start_once(name: str, kind: str) -> list[float]:
    """Return the milliseconds to the first result in this process: wall time and CPU time."""
    _ = gc.InferenceSession  # imports the runtime
    if kind == "unmeasured":
        onnxruntime.__version__ = "99.0"
    elif installed.measured_release() is None:  # told to be one
        release = Release(onnxruntime.__version__, installed.newest_opset(), installed.newest_ir())
        installed.measured_release = lambda: release
    before, begun = time.perf_counter(), time.process_time()
    STARTS[name](Path())
    return [(time.perf_counter() - before) * 1e3, (time.process_time() - begun) * 1e3]


def _more(result: dict[str, list[list[float]]], which: int) -> float:
    """Return the extra cost of an unmeasured release: the median over rounds."""
    return float(statistics.median(b[which] - a[which] for a, b in zip(*result.values(), strict=True)))


def main() -> int:
    bounds = Bounds()
    for name, shown in GRAPHS.items():
        results: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
        for number in range(ROUNDS + 1):
            for kind in KINDS if number % 2 else reversed(KINDS):
                taken = child("benchmarks.bench_unmeasured", name, kind)
                if number:  # the first compiles modules and reads files from the disk
                    results[kind].append(taken)
        more, wall = (_more(results, which) for which in (1, 0))
        usual, requested = (statistics.median(run[1] for run in runs) for runs in results.values())
        detail = f"{requested:.1f} ms to {usual:.1f} ms; {wall:.1f} ms more by the clock"
        bounds.figure(f"{shown}: first session, not measured", more, BOUND, "ms", detail)
    return bounds.exit_code()


if __name__ == "__main__":
    if sys.argv[1:]:
        print(start_once(*sys.argv[1:]))
        sys.exit()
    sys.exit(main())
