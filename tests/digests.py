"""Digests of lowered models: tell whether a change of the code changes what it writes or what sessions run.

    python -m tests.digests write before.txt
    python -m tests.digests compare before.txt

Covers every op and every operator of ONNX in each dtype, models, and the graphs of the examples, for each target.
`compare` prints the models whose bytes differ, and exits with 1 if there are some. `--only ops` takes a part of them,
`--part 1/4` each fourth model.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from graphcore import DType, Graph, TensorType, ops, quantization
from graphcore.errors import GraphcoreError
from graphcore.ir.transform.rewrite import exposed
from graphcore.models import gpt2, llama, resnet, vit
from graphcore.onnx.proto.model_proto import encode, join
from graphcore.runtime.lowering import TARGETS, lower
from graphcore.runtime.lowering.targets.releases import Runtime
from tests.support.every.case import ALL
from tests.support.every_op import CASES
from tests.support.graphs import NEWEST
from tests.support.old_files import calls, lstm, one_op
from tests.support.operators.cases import DTYPES, FURTHER, MAPS, Place, every

EXAMPLES = Path(__file__).parent.parent / "examples"

Named = Iterator[tuple[str, Callable[[], Graph]]]


def every_op() -> Named:
    """Yield each op in each dtype that it takes."""
    for name, case in CASES.items():
        for dtype in ALL:
            if dtype not in case.refused:
                yield f"{name}-{dtype}", partial(_op, name, dtype)


def _op(name: str, dtype: DType) -> Graph:
    return one_op(name, dtype).graph


def operators() -> Named:
    """Yield each operator of ONNX in each dtype."""
    for domain, name in every():
        for dtype in (*DTYPES, *FURTHER) if name not in MAPS else ():
            place = Place(domain, name, dtype)
            for number, case in enumerate(place.cases):
                yield f"{domain}.{name}-{dtype}-{number}", partial(place.graph, case)


def models() -> Named:
    """Yield small models with random weights, products with encoded weights, and expressions of some systems."""
    yield "gpt2", partial(gpt2.build, gpt2.config())
    yield "llama", partial(llama.build, llama.Config())
    yield "resnet", partial(resnet.build, resnet.Config())
    yield "vit", partial(vit.build, vit.Config())
    yield "lstm", lstm
    for encoding in ("int8", "int4", "q4_0", "int8_split"):
        for dynamic in (False, True) if encoding == "int8" else (False,):
            yield f"{encoding}-{dynamic}", partial(quantized, encoding, dynamic)
    for system in ("max", "allo_hls", "allo_cpp", "anvil"):
        for dtype in (DType.int8, DType.int32, DType.int(40), DType.uint(12), DType.int(90)):
            yield f"{system}-{dtype}", partial(expression, system, dtype)


def quantized(encoding: str, dynamic: bool) -> Graph:
    """Return a product with an encoded weight."""
    graph = Graph("quantized", {"x": TensorType(DType.float32, ["m", 256])})
    weight = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    options = {"dynamic": True} if dynamic else {}
    graph.output(y=ops.qmatmul(encoding, graph["x"], quantization.encode(weight, encoding), **options))
    return graph


def expression(system: str, dtype: DType) -> Graph:
    """Return sums, products, quotients and comparisons of one dtype."""
    graph = Graph("expression", {n: TensorType(dtype, ["n", 3]) for n in "xyz"}, promotion=system)
    x, y, z = graph.inputs
    graph.output(a=x + y - z, b=x * y, c=(x + 1) // y, d=x > z, e=ops.where(x == y, x, z))
    return graph


def examples() -> Named:
    """Yield the graphs that examples load."""
    for path in sorted(EXAMPLES.glob("*.py")):
        for number, (graph, *_) in enumerate(calls(path)):
            yield f"{path.stem}-{number}", partial(_itself, graph)


def _itself(graph: Graph) -> Graph:
    return graph


SETS: dict[str, Callable[[], Named]] = {
    "ops": every_op,
    "operators": operators,
    "models": models,
    "examples": examples,
}


def digests_of(build: Callable[[], Graph]) -> Iterator[tuple[str, str]]:
    """Yield each way in which a graph is lowered, and the digest of what comes out."""
    for target in TARGETS:
        yield target, digest(partial(_file, build, target=target))
    yield "fast", digest(partial(_file, build, precision="fast", optimize="off"))
    yield "session", digest(partial(_session, build, NEWEST, optimize="all"))
    for version in ("1.24.4", "1.27.0"):
        yield version, digest(partial(_session, build, replace(NEWEST, version=version)))


def _file(build: Callable[[], Graph], **options: Any) -> bytes:
    model = build().to_onnx(**options)
    return bytes(model.SerializeToString(deterministic=True))


def _session(build: Callable[[], Graph], runtime: Runtime, **options: Any) -> bytes:
    return join(encode(lower(exposed(build()), "cpu", runtime=runtime, **options)))


def digest(make: Callable[[], bytes]) -> str:
    """Return the digest of a model, or the words of the error that refuses it."""
    try:
        return hashlib.sha256(make()).hexdigest()[:24]
    except GraphcoreError as error:
        return " ".join(f"{type(error).__name__}: {error.summary}".split())


def digests(only: list[str], part: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each model and way of lowering, and its digest."""
    first, of = map(int, part.split("/"))
    for name in only:
        for number, (graph, build) in enumerate(SETS[name]()):
            if number % of != first - 1:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    build()
                except GraphcoreError as error:
                    yield f"{name} {graph}", error.summary.splitlines()[0]
                    continue
                for way, item in digests_of(build):
                    yield f"{name} {graph} {way}", item


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.digests", description=__doc__)
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", choices=SETS, action="append", help="a part of them")
    parser.add_argument("--part", default="1/1", help="each so many models, such as 1/4")
    arguments = parser.parse_args()
    after = dict(digests(arguments.only or list(SETS), arguments.part))
    if arguments.action == "write":
        arguments.file.write_text("".join(f"{key}\t{item}\n" for key, item in after.items()))
        print(f"{len(after)} digests")
        return 0
    before = dict(line.split("\t") for line in arguments.file.read_text().splitlines())
    changed = [f"{key}: {before.get(key)} -> {item}" for key, item in after.items() if before.get(key) != item]
    if arguments.part == "1/1":
        taken = tuple(f"{name} " for name in arguments.only or SETS)
        changed += [f"{key}: gone" for key in before if key not in after and key.startswith(taken)]
    print(*changed[:100], sep="\n")
    print(f"{len(after)} digests, {len(changed)} changed")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
