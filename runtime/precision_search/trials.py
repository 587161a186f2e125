"""Trials of a search: graphs whose units have chosen precisions, their errors on samples and their costs."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnxruntime

from graphcore._version import __version__
from graphcore.analysis.flops import flops
from graphcore.analysis.layers import layers
from graphcore.analysis.sizes import bytes_of, sizes
from graphcore.arrays.casting import Array
from graphcore.errors import ExportError, GraphError, LossyCastWarning
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, present, root_of
from graphcore.ir.transform.walk import bodies, nested
from graphcore.runtime.export import Options, write_graph
from graphcore.runtime.ort.python_ops import sizes_of
from graphcore.runtime.quantizer import NOTE
from graphcore.runtime.quantizer.layers.replacing import Runs, is_float, is_float32, length, rewritten
from graphcore.runtime.quantizer.mixed_precision import Outputs, check_exact, floats_of, ratio, relative, worst
from graphcore.runtime.quantizer.plan import Encoded, QuantizationPlan, Selection, candidates, mark, planned
from graphcore.runtime.quantizer.weights import choices
from graphcore.runtime.session import InferenceSession
from graphcore.support.atomic_files import replace_files
from graphcore.surgery.astype import narrowed, with_io_dtype
from graphcore.surgery.roles import CastArrays, Keep
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

Metric: TypeAlias = "str | Callable[[Outputs, Outputs], float]"

_TIMED_RUNS = 5
"""The best of this many rounds is the time of a trial: other processes only add to it."""

_MIN_ELEMENTS = 1024  # as `quantize` does


class Precision(NamedTuple):
    """The dtype that a unit computes in, None for its own, and the scheme of its weights, "" for none."""

    dtype: DType | None = None
    scheme: str = ""


WIDE = Precision()

Assignment: TypeAlias = "tuple[Precision, ...]"
"""The precision of each unit."""


class Trial(NamedTuple):
    """The error of an assignment, and its cost."""

    error: float
    cost: float


class Unit(NamedTuple):
    """Nodes that change their precision together: a layer, or the part of one from a weight to the next.

    Only the first node may be a candidate of quantisation.
    """

    name: str
    nodes: tuple[Node, ...]


def units_of(graph: Graph, keep: Keep, weighted: Container[int], outer: str = "") -> list[Unit]:
    """Return the units of a graph and of the bodies in it, in order.

    weighted: the ids of candidates' nodes. outer: the path of the node that has the body.
    """
    graph_layers = layers(graph)
    parts: dict[tuple[str, int], list[Node]] = {}
    starts: dict[str, int] = {}
    inner: list[Unit] = []
    for position, node in enumerate(graph.nodes):
        for key, body in node.attributes.items():
            if isinstance(body, Graph):
                inner += units_of(body, keep, weighted, f"{outer}{_label(node)}.{key}/")
        if keep.has_node(node) or not any(map(is_float32, (*node.inputs, *node.outputs))):
            continue
        path = graph_layers.path_of(position)
        if not path or path not in starts or id(node) in weighted:
            starts[path] = position
        parts.setdefault((path, starts[path]), []).append(node)
    counts = Counter(path for path, _ in parts)
    names = [path if path and counts[path] == 1 else _label(nodes[0]) for (path, _), nodes in parts.items()]
    return [Unit(outer + name, tuple(nodes)) for name, nodes in zip(names, parts.values(), strict=True)] + inner


def _label(node: Node) -> str:
    """Return the name of the first result, after the path of the layer."""
    name = node.outputs[0].name if node.outputs else node.op_type
    return name if name.startswith(node.layer) else f"{node.layer}{name}"


@dataclass(eq=False)
class Trials:
    """The trials of one search, each run once.

    io_dtype: None to keep the dtypes of inputs and outputs. path: of stored trials. count: of graphs that were run.
    """

    source: Graph
    runs: Runs
    keep: Keep
    schemes: Sequence[str]
    metric: Metric
    cost: str
    io_dtype: DType | None
    session: InferenceSession
    path: str | os.PathLike[str] | None
    count: int = 0

    def __post_init__(self) -> None:
        self._arrays = CastArrays(DType.float32)
        self.graph = narrowed(self.source, {}, self.keep, self._arrays)
        self._candidates = candidates(self.graph)
        is_decoder = any(buffer.buffer.in_place for buffer in self.source.buffers.values())
        select = Selection((), (), _MIN_ELEMENTS, True)
        self._encoded: dict[str, dict[int, Encoded]] = {"": {}}
        for name in self.schemes:
            scheme = choices(name, None, True, None, False, None, True, is_decoder)
            plan = planned(self.graph, self._candidates, scheme, select, False)
            self._encoded[name] = {
                number: replace(encoded, key=(name, *encoded.key))
                for number, (candidate, encoded) in plan.chosen.items()
                if not self.keep.has_value(candidate.weight.root)
            }
        self.units = units_of(self.graph, self.keep, {id(candidate.node) for candidate in self._candidates})
        self.wide: Assignment = (WIDE,) * len(self.units)
        if not self.units:
            raise GraphError(
                "mixed_precision: no node that may change computes in float32",
                help="give a graph of float32, such as graph.astype('float32'), or keep less",
            )
        self._files = {} if self.path is None else _read(self.path)
        self.stored = self._files.setdefault(self._digest() if self.path else "", {})
        self._expected, _ = self._run(self.graph)
        self._exact = floats_of(self.graph, self._expected)
        if self._exact or not callable(self.metric):
            fix = "give a function as metric: metric=lambda expected, outputs: ..."
            check_exact("mixed_precision", self._exact, fix)

    def can_have(self, unit: int, narrow: DType | str) -> bool:
        """Return True if a unit can compute in a dtype, or if a scheme applies to its weight."""
        return isinstance(narrow, DType) or id(self.units[unit].nodes[0]) in self._encoded[narrow]

    def bytes_of_units(self, assignment: Assignment) -> list[tuple[int, int]]:
        """Return the bytes of the constants of each unit before and after, each in the unit that reads it first."""
        before: dict[int, tuple[int, int]] = {}
        after: dict[tuple[int, object], tuple[int, int]] = {}
        for number, (unit, precision) in enumerate(zip(self.units, assignment, strict=True)):
            encoded = self._encoded[precision.scheme].get(id(unit.nodes[0]))
            for node in unit.nodes:
                roots = [root_of(present(s)) for s in node.inputs if is_float32(s)]
                for root in (root for root in roots if isinstance(root.producer, Constant)):
                    first, size = before.setdefault(id(root), (number, bytes_of(root)))
                    if encoded is not None and node is unit.nodes[0] and encoded.root is root:
                        after[id(root), encoded.key] = first, encoded.tensor.nbytes
                    else:
                        bits = (precision.dtype or DType.float32).bits
                        after[id(root), precision.dtype] = first, size * bits // 32
        result = [[0, 0] for _ in self.units]
        for column, pairs in enumerate((before.values(), after.values())):
            for number, size in pairs:
                result[number][column] += size
        return [(old, new) for old, new in result]

    def build(self, assignment: Assignment) -> Graph:
        """Return the graph of an assignment. Weights are encoded from float32 once for all trials."""
        graph, precisions = self.narrow(assignment), self.precisions(assignment)
        schemes = {precision.scheme for precision in assignment} - {""}
        if schemes:
            chosen = {
                id(new.node): (new, replace(encoded, root=new.weight.root))
                for old, new in zip(self._candidates, candidates(graph), strict=True)
                if (encoded := self._encoded[precisions.get(id(old.node), WIDE).scheme].get(id(old.node)))
            }
            through = {id(node) for candidate, _ in chosen.values() for node in candidate.weight.through}
            plan = QuantizationPlan(next(iter(chosen.values()))[1].choices, chosen, through=through)
            mark(graph, plan)
            graph = rewritten(graph, plan)
            graph.metadata[NOTE] = ", ".join(sorted(schemes))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LossyCastWarning)
            return graph if self.io_dtype is None else with_io_dtype(graph, self.io_dtype)

    def narrow(self, assignment: Assignment) -> Graph:
        """Return the graph of an assignment, without its schemes."""
        pairs = self.precisions(assignment).items()
        return narrowed(self.graph, {number: p.dtype for number, p in pairs if p.dtype}, self.keep, self._arrays)

    def precisions(self, assignment: Assignment) -> dict[int, Precision]:
        """Return the precisions of nodes, by id."""
        return {id(node): p for unit, p in zip(self.units, assignment, strict=True) for node in unit.nodes}

    def feeds(self) -> list[dict[str, Any]]:
        """Return the samples by the names of inputs."""
        names = [symbol.name for symbol in self.graph.inputs]
        return [{**dict(zip(names, arrays, strict=False)), **named} for arrays, named in self.runs]

    def dims(self) -> dict[str, int]:
        """Return the largest size of each named dim in the samples."""
        tensors = [symbol for symbol in self.graph.inputs if isinstance(symbol.type, TensorType)]
        result: dict[str, int] = {}
        for feed in self.feeds():
            pairs = [(s.type, np.asarray(feed[s.name])) for s in tensors if s.name in feed]
            result |= {name: max(size, result.get(name, 0)) for name, size in sizes_of(pairs).items()}
        return result

    def measure(self, assignment: Assignment) -> Trial:
        """Return the trial of an assignment: from the file, or run."""
        key = hashlib.sha256(" ".join(f"{p.dtype}:{p.scheme}" for p in assignment).encode()).hexdigest()[:32]
        trial = self.stored.get(key)
        if trial is None:
            graph = self.build(assignment)
            outputs, seconds = self._run(graph, self.io_dtype)
            cost = COSTS[self.cost](graph, self.dims(), seconds)
            trial = self.stored[key] = Trial(self._error(outputs), cost)
            self.count += 1
            if self.path is not None:
                write_text(self.path, json.dumps(self._files))
        return trial

    def _run(self, graph: Graph, dtype: DType | None = None) -> tuple[Outputs, float]:
        """Return the outputs of each run, and the seconds of all runs. dtype: of inputs of float32."""
        model = self.session.load(graph)
        runs = [
            ([_cast(a, dtype) for a in args], {k: _cast(a, dtype) for k, a in named.items()})
            for args, named in self.runs
        ]
        seconds, outputs = math.inf, []
        for _ in range(_TIMED_RUNS if self.cost == "time" else 1):
            start = time.perf_counter()
            outputs = [[*model(*arrays, **named)] for arrays, named in runs]
            seconds = min(seconds, time.perf_counter() - start)
        return outputs, seconds

    def _error(self, outputs: Outputs) -> float:
        """Return the error of the outputs; infinite where one is NaN or infinite."""
        if not callable(self.metric):
            return worst(METRICS[self.metric], self._exact, floats_of(self.graph, outputs))
        error = float(self.metric(self._expected, outputs))
        return math.inf if math.isnan(error) else error

    def _digest(self) -> str:
        """Return the hash of the graph, the samples and the options that trials depend on."""
        metric = self.metric
        kind: Any = metric if hasattr(metric, "__qualname__") else type(metric)
        name = metric if isinstance(metric, str) else f"{kind.__module__}.{kind.__qualname__}"
        options = [name, self.cost, str(self.io_dtype), repr(self.session), self.session.optimize]
        options += [__version__, onnxruntime.__version__, *self.schemes, "", *self.keep.patterns]
        digest = hashlib.sha256(json.dumps(options).encode())
        for chunk in write_graph(self.graph, Options("onnx")).encoded():
            digest.update(chunk)
        for name, array in (pair for feed in self.feeds() for pair in sorted(feed.items())):
            value = np.asarray(array)
            digest.update(f"{name} {value.dtype} {value.shape}".encode())
            digest.update(repr(value.tolist()).encode() if value.dtype == object else value.tobytes())
        return digest.hexdigest()


def _cast(array: Any, dtype: DType | None) -> Any:
    value = np.asarray(array)
    return array if dtype is None or value.dtype != np.float32 else value.astype(dtype.numpy)


def _weighted_flops(graph: Graph, dims: Mapping[str, int]) -> float:
    """Return the operations of a graph, each counted by the width of its node's floats over 32 bits."""
    total = 0.0
    for part in nested(graph):
        for entry in flops(part, dims).nodes:
            floats = (present(s) for s in (*entry.node.outputs, *entry.node.inputs) if is_float(s))
            if entry.flops is not None and entry.flops.value is not None and not bodies(entry.node):
                total += entry.flops.value * next((s.dtype.bits for s in floats), 32) / 32
    return total


COSTS: Mapping[str, Callable[[Graph, Mapping[str, int], float], float]] = {
    "bytes": lambda graph, dims, seconds: sizes(graph).bytes,
    "flops": lambda graph, dims, seconds: _weighted_flops(graph, dims),
    "time": lambda graph, dims, seconds: seconds,
}
"""Of a graph, the sizes of its dims, and the seconds that its runs took."""

METRICS: Mapping[str, Callable[[Array, Array], float]] = {
    "relative": relative,
    "max": lambda a, b: float(np.abs(b - a).max(initial=0)),
    "cosine": lambda a, b: ratio(length(a) * length(b) - float(a @ b), length(a) * length(b)),
}
"""Of the numbers of one output over all samples, expected and measured."""


# Files.


def _read(path: str | os.PathLike[str]) -> dict[str, dict[str, Trial]]:
    """Return stored trials, by the digest of their search and by assignment. Raises `GraphError`."""
    try:
        with open(path, encoding="utf-8") as file:
            stored = json.load(file)
        return {
            digest: {key: Trial(float(error), float(cost)) for key, (error, cost) in trials.items()}
            for digest, trials in stored.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        problem = f"mixed_precision: {path} has no trials: {' '.join(str(error).split())}"
        raise GraphError(problem, help="choose a new path, or remove the file") from None


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file, whole or not at all. Raises `ExportError`."""
    try:
        replace_files([(os.fspath(path), [text.encode()])])
    except OSError as error:
        raise ExportError(
            f"mixed_precision: {path} cannot be written: {error.strerror or error}",
            help="choose an existing folder with write permission",
        ) from None
