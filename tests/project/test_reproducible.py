"""The same graph gives the same bytes whatever the seed of Python's hashes.

`python -m tests.project.test_reproducible` prints a digest of each file that many graphs are exported to.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import GraphcoreError
from graphcore.ir.graph import TargetName
from graphcore.runtime.quantizer import SCHEMES
from tests.digests import models

ROOT = Path(__file__).resolve().parents[2]


TARGETS: tuple[TargetName, ...] = ("cpu", "onnx", "cuda")


@gc.function
def block(x: Symbol, params: dict[str, Symbol], scale: float = 1.0) -> Symbol:
    return x + ops.silu(x @ params["w"] + params["b"]) * scale


def layers() -> Graph:
    """Calls of one function, of two scales."""
    graph = Graph("layers", {"x": TensorType(DType.float32, ["n", 64])})
    random = np.random.default_rng(0)
    x = graph["x"]
    for number in range(4):
        w = graph.weight(f"w{number}", random.standard_normal((64, 64)).astype(np.float32))
        x = block(x, {"w": w, "b": graph.weight(f"b{number}", np.ones(64, np.float32))}, scale=1.0 + number % 2)
    graph.output(y=x, norm=ops.sum(x * x))
    return graph


def bodies() -> Graph:
    """Loops, a scan and a choice."""
    graph = Graph("bodies", {"n": TensorType(DType.int64, []), "rows": TensorType(DType.float32, ["k", 3])})
    with graph:
        n, rows = graph.inputs
        a, b, _ = ops.while_loop(lambda a, b, n: n > 0, lambda a, b, n: (b, a + b, n - 1), (0, 1, n))
        state, sums = ops.scan(lambda total, row: (total + row, total + row), np.zeros(3, np.float32), rows)
        graph.output(a=a, b=b, state=state, sums=sums, chosen=ops.cond(n > 0, lambda: rows[0], lambda: rows[0] * 2))
    return graph


def strange() -> Graph:
    """Integers of any width, 4 bits, float8, text, and metadata."""
    types = {"x": TensorType(DType.int(40), ["n"]), "f": TensorType(DType.float32, ["n"])}
    graph = Graph("strange", types)
    x, f = graph.inputs
    graph.output(a=x * x // (x + 1), b=f.cast("int4").cast("float32"), c=f.cast("float8_e4m3fn").cast("float32"))
    graph.metadata.update({"one": "1", "two": "2"})
    return graph


def graphs() -> Iterator[tuple[str, Callable[[], Graph]]]:
    yield "layers", layers
    yield "bodies", bodies
    yield "strange", strange
    yield from models()
    for scheme in SCHEMES:
        yield f"quantised to {scheme}", lambda scheme=scheme: gc.quantize(layers(), scheme).graph  # type: ignore[misc]
    yield "pickled", lambda: pickle.loads(pickle.dumps(layers()))
    yield "read", lambda: Graph.load(bodies().to_onnx(target="onnx").SerializeToString())
    yield "optimised", lambda: Graph.load(strange().to_onnx(optimize="all").SerializeToString())


def digests(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield each way in which a graph is exported, and the digest of its files."""
    ways = [(target, external) for target in TARGETS for external in (False, True)]
    for target, external in ways:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "m.onnx")
            try:
                graph.export(path, target=target, external_data=external)
            except GraphcoreError as error:
                yield f"{target}, {external=}", error.summary
                continue
            content = b"".join(file.read_bytes() for file in sorted(Path(folder).iterdir()))
            yield f"{target}, {external=}", hashlib.sha256(content).hexdigest()


def main() -> None:
    warnings.simplefilter("ignore")
    for name, build in graphs():
        try:
            graph = build()
        except GraphcoreError as error:  # a dtype that a promotion system has not
            print(f"{name}: {error.summary}")
            continue
        for way, digest in digests(graph):
            print(f"{name}, {way}: {digest}")


def test_files_of_graphs_do_not_depend_on_the_seed_of_hashes() -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.project.test_reproducible"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in ("0", "1", "4294967295")
    ]
    said = [(*child.communicate(timeout=300), child.returncode) for child in running]
    assert [status for *_, status in said] == [0, 0, 0], said[0][1]
    first, *others = [out.splitlines() for out, *_ in said]
    assert len(first) > 100
    assert sum(": " in line and len(line.rpartition(": ")[2]) == 64 for line in first) > 100
    for lines in others:
        assert [pair for pair in zip(first, lines, strict=True) if pair[0] != pair[1]] == []


if __name__ == "__main__":
    main()
