"""The same graph gives the same bytes whatever the seed of Python's hashes.

`python -m tests.project.test_reproducible [NAME...]` prints a digest of each file that graphs are exported to: of these
graphs of `OWN`, by default of many.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import GraphcoreError
from graphcore.ir.graph import TargetName

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


OWN: dict[str, Callable[[], Graph]] = {
    "layers": layers,
    "bodies": bodies,
    "strange": strange,
    "pickled": lambda: pickle.loads(pickle.dumps(layers())),
    "read": lambda: Graph.load(bodies().to_onnx(target="onnx").SerializeToString()),
    "optimised": lambda: Graph.load(strange().to_onnx(optimize="all").SerializeToString()),
}


def graphs() -> Iterator[tuple[str, Callable[[], Graph]]]:
    from graphcore.models import vit  # late, as the two below: named graphs do not need them
    from graphcore.runtime.quantizer import SCHEMES
    from tests.digests import models

    yield from OWN.items()
    small = vit.Config(layers=2)
    yield from {**dict(models()), "vit": lambda: vit.build(small)}.items()
    for scheme in SCHEMES:
        yield f"quantised to {scheme}", lambda scheme=scheme: gc.quantize(layers(), scheme).graph  # type: ignore[misc]


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


def lines(names: Iterable[str]) -> Iterator[str]:
    """Yield a line for each file of these graphs of `OWN`, or of all graphs."""
    chosen = [(name, OWN[name]) for name in names] or graphs()
    for name, build in chosen:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                graph = build()
            except GraphcoreError as error:  # a dtype that a promotion system has not
                yield f"{name}: {error.summary}"
                continue
            yield from [f"{name}, {way}: {digest}" for way, digest in digests(graph)]


def started(seed: str, *names: str) -> subprocess.Popen[str]:
    """Start a process that prints the digests of graphs."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.project.test_reproducible", *names],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> list[str]:
    """Return the lines of a process."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out.splitlines()


def check_same(first: list[str], second: list[str], count: int) -> None:
    """Check that lines are equal, and that more than a number of them are digests."""
    assert [pair for pair in zip(first, second, strict=True) if pair[0] != pair[1]] == []
    assert sum(len(line.rpartition(": ")[2]) == 64 for line in first) > count


@pytest.mark.full
def test_files_of_graphs_do_not_depend_on_the_seed_of_hashes() -> None:
    first, second = [ended(process) for process in [started("1"), started("4294967295")]]
    check_same(first, second, 100)


def test_hash_seed_few_graphs() -> None:
    names = ("layers", "bodies", "strange", "read", "pickled")
    process = started("4294967295", *names)
    check_same([*lines(names)], ended(process), 20)


if __name__ == "__main__":
    print(*lines(sys.argv[1:]), sep="\n")
