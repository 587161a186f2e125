"""Open a session for CUDA of every op, cell, model and fusion: what does not start, and what is left to the CPU.

`python -m tools.cuda_without_gpu` runs this in a process whose onnxruntime is onnxruntime-gpu, on the stubs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import onnxruntime

import graphcore as gc
import graphcore.ops.families
from graphcore import DType, Graph, TensorType
from graphcore.build.declare import REGISTRY
from graphcore.conformance.cells import CELLS, OPS, Cell
from graphcore.models import encoder, gpt2, llama, minilm, resnet, vit
from graphcore.runtime.inspection.placement import RECORD, SIZES, recorded
from graphcore.runtime.ort.release import runtime
from tests.runtime import test_fusions, test_fusions_convolutions, test_fusions_exports, test_fusions_moves
from tests.runtime.test_fusions_norms import norm, rotated
from tests.support.decoders import some
from tests.support.every.case import ALL, Array
from tests.support.every_op import CASES, graph_of

PROVIDER = "CUDAExecutionProvider"
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "howto" / "cuda.md"
_F32 = DType.float32


_SLOW = REGISTRY["random_int"].family
"""The family of ops that onnxruntime's optimisers take longer over in one graph than one by one."""


@dataclass(frozen=True, slots=True)
class Job:
    """Graphs to open as one, or one by one where that fails. kind: what they are counted as. build: by their names."""

    kind: str
    names: tuple[str, ...]
    build: Callable[[tuple[str, ...]], Graph]
    of: str = ""

    def __str__(self) -> str:
        return f"{', '.join(self.names)} {self.of}".strip()


@dataclass(slots=True)
class Outcome:
    """Of some jobs: how many started, by kind; what did not, and why; the operators on the CPU, by reason.

    unexplained: the operators on the CPU that docs/howto/cuda.md does not name, with the job that has one.
    """

    started: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)
    on_cpu: Counter[str] = field(default_factory=Counter)
    unexplained: dict[str, str] = field(default_factory=dict)


def jobs() -> Iterator[Job]:
    for dtype in ALL:
        families: dict[str, list[str]] = {}
        for name, case in CASES.items():
            if dtype not in case.refused:
                families.setdefault(REGISTRY[name].family if name in REGISTRY else "", []).append(name)
        for family, names in families.items():
            for part in [[name] for name in names] if family == _SLOW else [names]:
                yield Job("ops", tuple(part), partial(_of_ops, dtype), str(dtype))
    for item in dict.fromkeys(cell.left for cell in CELLS):
        for op in OPS:
            own = {f"{op} {c.right or ''}": c for c in CELLS if c.left is item and c.op == op}
            if own:
                yield Job("cells", tuple(own), partial(_of_cells, own), str(item))
    for name, model in _MODELS.items():
        for dtype in (_F32, DType.float16, DType.bfloat16):
            yield Job("models", (name,), partial(_of_model, model, dtype), str(dtype))
    for name in _FUSIONS:
        yield Job("fusions", (name,), lambda names: _FUSIONS[names[0]]())


def _of_ops(dtype: DType, names: tuple[str, ...]) -> Graph:
    return graph_of(list(names), dtype)[0]


def _of_model(model: Callable[[DType], Graph], dtype: DType, names: tuple[str, ...]) -> Graph:
    return model(dtype)


def _of_cells(by_name: dict[str, Cell], names: tuple[str, ...]) -> Graph:
    """Return a graph of cells of one operator and one left dtype."""
    cells = [by_name[name] for name in names]
    remaining, op = cells[0].left, OPS[cells[0].op]
    others = [cell.right for cell in cells if cell.right is not None]
    types = {"x": TensorType(remaining, ["n", "n"]), **{f"y_{d}": TensorType(d, ["n", "n"]) for d in others}}
    graph = Graph("cells", types)
    with graph:
        graph.output(*([op(graph["x"], graph[f"y_{d}"]) for d in others] or [op(graph["x"])]))
    return graph


def _weights(shapes: dict[str, tuple[int, ...]], dtype: DType) -> dict[str, Array]:
    return {name: array.astype(dtype.numpy) for name, array in some(shapes).items()}


_LLAMA = llama.Config(vocabulary=32, width=16, inner=24, layers=2, heads=4, kv_heads=2, size=4, positions=32)
_GPT2 = gpt2.config(vocabulary=32, width=16, inner=24, layers=2, heads=4, positions=32)
_MINILM = encoder.Config(layers=2, heads=4, vocabulary=32, width=16, inner=20, positions=24)
_RESNET = resnet.Config(channels=3, stem=4, widths=(8, 16), depths=(2, 2), classes=5)
_VIT = vit.Config(width=16, layers=2, heads=4, inner=24, image=11, patch=4, channels=2, classes=5)


def _minilm(dtype: DType, packed: bool = False) -> Graph:
    return minilm.build(_weights(encoder.shapes(_MINILM), dtype), _MINILM, packed=packed)


_MODELS: dict[str, Callable[[DType], Graph]] = {
    "llama": lambda dtype: llama.build(_LLAMA, _weights(llama.shapes(_LLAMA), dtype)),
    "gpt2": lambda dtype: gpt2.build(_GPT2, _weights(gpt2.shapes(_GPT2), dtype)),
    "minilm": _minilm,
    "minilm, packed": partial(_minilm, packed=True),
    "resnet": lambda dtype: resnet.build(_RESNET, _weights(resnet.shapes(_RESNET), dtype)),
    "vit": lambda dtype: vit.build(_VIT, _weights(vit.shapes(_VIT), dtype)),
}

_convolved = test_fusions_convolutions.graph_of

_FUSIONS: dict[str, Callable[[], Graph]] = {
    "Attention": test_fusions.written,
    "Attention with a mask": lambda: test_fusions.written(mask="least"),
    "RMSNormalization": lambda: norm("product", "quotient", False, True, True),
    "LayerNormalization": lambda: norm("product", "quotient", True, True, True),
    "RotaryEmbedding": lambda: rotated("of each"),
    "RotaryEmbedding of neighbours": test_fusions_exports.neighbours,
    "HardSigmoid of a Clip": lambda: _convolved(test_fusions_convolutions.swish),
    "factor and bias of a convolution": lambda: _convolved(test_fusions_convolutions.learned),
    "parts of a Transpose": lambda: test_fusions_moves.unbound([2, 0, 3, 4, 1], 0, 3, ["batch", 6, 3, 4, 5]),
    "sum of squares of a length": lambda: test_fusions_moves.length([3, 4, 20], [-1]),
    "AveragePool as a convolution": lambda: test_fusions_moves.pooled([1, 24, 12, 12], kernel_shape=[3, 3]),
}


def documented() -> frozenset[str]:
    """Return the operators that docs/howto/cuda.md says are left to the CPU."""
    text = re.search(r"^These operators run on the CPU.*?\n\n", DOCUMENT.read_text(encoding="utf-8"), re.M | re.S)
    if text is None:
        raise ValueError(f"{DOCUMENT} has no paragraph that begins with 'These operators run on the CPU'")
    return frozenset(re.findall(r"`([A-Z]\w+)`", text[0]))


def opened(job: Job, session: gc.InferenceSession, on_cpu: frozenset[str], outcome: Outcome) -> None:
    """Open one session, and add to the outcome."""
    try:
        model = session.load(job.build(job.names))
        placement = recorded(model.session, model._lowered, PROVIDER, runtime())
    except Exception as error:
        if len(job.names) == 1:
            outcome.failed[f"{job.kind}: {job}"] = f"{type(error).__name__}: {error}"[:400]
        for name in job.names if len(job.names) > 1 else ():
            opened(replace(job, names=(name,)), session, on_cpu, outcome)
        return
    outcome.started[job.kind] += len(job.names)
    for node in placement.left:
        if node.reason == SIZES:
            outcome.on_cpu["sizes and indices"] += 1
        elif node.operator in on_cpu:
            outcome.on_cpu[node.operator] += 1
        else:
            outcome.unexplained.setdefault(f"{node.operator}: {node.reason}", str(job))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.cuda_without_gpu.sessions", description=__doc__)
    parser.add_argument("--part", default="1/1", help="1/2: every second graph")
    parser.add_argument("--only", default="", help="of graphs, with commas between")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    part, of = map(int, arguments.part.split("/"))
    session = gc.InferenceSession(["cuda", "cpu"], config={RECORD: "1"}, log_severity_level=4)
    expected, outcome = documented(), Outcome()
    for place, job in enumerate(jobs()):
        names = tuple(name for name in job.names if not arguments.only or name in arguments.only.split(","))
        if place % of == part - 1 and names:
            opened(replace(job, names=names), session, expected, outcome)
    results = {"release": onnxruntime.__version__, "started": outcome.started, "failed": outcome.failed}
    more = {"on_cpu": outcome.on_cpu, "unexplained": outcome.unexplained}
    arguments.output.write_text(json.dumps({**results, **more}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
