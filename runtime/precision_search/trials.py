"""Trials of a search: graphs whose units have chosen precisions, their errors on samples and their costs."""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Mapping
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
from graphcore.ir.symbol import Constant, Node, Symbol, present, root_of
from graphcore.ir.transform.walk import bodies, nested
from graphcore.runtime.export import Options, write_graph
from graphcore.runtime.quantizer import NOTE
from graphcore.runtime.quantizer.layers.replacing import Runs, rewritten
from graphcore.runtime.quantizer.plan import QuantizationPlan, candidates, mark, planned, selection
from graphcore.runtime.quantizer.weights import choices
from graphcore.runtime.session import InferenceSession
from graphcore.support.atomic_files import replace_files
from graphcore.surgery.astype import narrowed, with_io_dtype
from graphcore.surgery.roles import CastArrays, Keep
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

Outputs: TypeAlias = "list[list[Array]]"
"""The outputs of each run."""

Metric: TypeAlias = "str | Callable[[Outputs, Outputs], float]"

_TIMED_RUNS = 5
"""The best of this many rounds is the time of a trial: other processes only add to it."""

_MIN_ELEMENTS = 1024  # as `quantize` does
COSTS = ("bytes", "flops", "time")


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


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Nodes that change their precision together: a layer, or the part of one from a weight to the next.

    weights: the positions of its nodes among the candidates of quantisation.
    """

    name: str
    nodes: tuple[Node, ...]
    weights: tuple[int, ...]


def is_wide(symbol: Symbol | None) -> bool:
    """Return True for a tensor of float32."""
    return symbol is not None and isinstance(symbol.type, TensorType) and symbol.dtype is DType.float32


def units_of(graph: Graph, keep: Keep, weights: Mapping[int, int], outer: str = "") -> list[Unit]:
    """Return the units of a graph and of the bodies in it, in order.

    weights: the positions of candidates by the ids of their nodes. outer: the path of the node that has the body.
    """
    graph_layers = layers(graph)
    parts: list[tuple[str, list[Node]]] = []
    latest: dict[str, list[Node]] = {}
    inner: list[Unit] = []
    for position, node in enumerate(graph.nodes):
        path = graph_layers.path_of(position)
        for key, body in node.attributes.items():
            if isinstance(body, Graph):
                inner += units_of(body, keep, weights, f"{outer}{_label(node)}.{key}/")
        if keep.has_node(node) or not any(map(is_wide, (*node.inputs, *node.outputs))):
            continue
        if not path or path not in latest or id(node) in weights:
            latest[path] = []
            parts.append((path, latest[path]))
        latest[path].append(node)
    paths = [path for path, _ in parts]
    units = []
    for path, nodes in parts:
        name = path if path and paths.count(path) == 1 else _label(nodes[0])
        units.append(Unit(outer + name, tuple(nodes), tuple(weights[id(n)] for n in nodes if id(n) in weights)))
    return units + inner


def _label(node: Node) -> str:
    """Return the name of the first result, after the path of the layer."""
    name = node.outputs[0].name if node.outputs else node.op_type
    return name if name.startswith(node.layer) else f"{node.layer}{name}"


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of `mixed_precision`. io_dtype: None to keep the dtypes of inputs and outputs. path: of stored trials."""

    keep: Keep
    schemes: tuple[str, ...]
    metric: Metric
    cost: str
    io_dtype: DType | None
    session: InferenceSession
    path: str | None


class Trials:
    """The trials of one search, each run once. runs: the samples. stored: trials by assignment, also earlier ones."""

    def __init__(self, graph: Graph, runs: Runs, options: SearchOptions) -> None:
        self.options = options
        self.runs = runs
        self.count = 0
        self._arrays = {dtype: CastArrays(dtype) for dtype in (DType.float16, DType.bfloat16)}
        self.graph = narrowed(graph, {}, options.keep, self._arrays)
        self._candidates = candidates(self.graph)
        is_decoder = any(buffer.buffer.in_place for buffer in graph.buffers.values())
        select = selection(self._candidates, (), (), _MIN_ELEMENTS, True)
        self._plans = {}
        for name in options.schemes:
            scheme = choices(name, None, True, None, False, None, True, is_decoder)
            plan = self._plans[name] = planned(self.graph, self._candidates, scheme, select, False)
            for candidate in self._candidates:
                if options.keep.has_value(candidate.weight.root):
                    plan.chosen.pop(id(candidate.node), None)
        self.units = units_of(self.graph, options.keep, {id(c.node): i for i, c in enumerate(self._candidates)})
        self.wide: Assignment = (WIDE,) * len(self.units)
        if not self.units:
            raise GraphError(
                "mixed_precision: no node that may change computes in float32",
                help="give a graph of float32, such as graph.astype('float32'), or keep less",
            )
        self._files = {} if options.path is None else _read(options.path)
        self.stored = self._files.setdefault(self._digest() if options.path else "", {})
        self._expected, _ = self._run(self.graph)
        floats = self._floats(self._expected)
        if not callable(options.metric) and not floats:
            raise GraphError(
                "mixed_precision: the graph has no output of floats, by which samples are compared",
                help="give a function as metric: metric=lambda expected, outputs: ...",
            )
        if not all(np.isfinite(array).all() for array in floats):
            raise GraphError(
                "mixed_precision: the outputs of the graph for the samples have NaN or infinity",
                help="give samples of the data that the graph is meant for",
            )

    def can_quantize(self, unit: int, scheme: str) -> bool:
        """Return True if a scheme applies to a weight of a unit."""
        return any(id(self._candidates[i].node) in self._plans[scheme].chosen for i in self.units[unit].weights)

    def bytes_of_units(self, assignment: Assignment) -> list[tuple[int, int]]:
        """Return the bytes of the constants of each unit before and after, each in the unit that reads it first."""
        result = [[0, 0] for _ in self.units]
        first: dict[int, int] = {}
        forms: set[tuple[int, object]] = set()
        for number, (unit, precision) in enumerate(zip(self.units, assignment, strict=True)):
            chosen = self._plans[precision.scheme].chosen if precision.scheme else {}
            encoded = {
                id(node): chosen[id(c.node)][1]
                for c in (self._candidates[i] for i in unit.weights)
                if id(c.node) in chosen
                for node in (c.node, *c.weight.through)
            }
            for node in unit.nodes:
                for root in (root_of(present(s)) for s in node.inputs if is_wide(s)):
                    if not isinstance(root.producer, Constant):
                        continue
                    if id(root) not in first:
                        first[id(root)] = number
                        result[number][0] += bytes_of(root)
                    own = encoded.get(id(node))
                    form: object = precision.dtype
                    size = bytes_of(root) * (precision.dtype or DType.float32).bits // 32
                    if own is not None and own.root is root:
                        form, size = (precision.scheme, own.key), own.tensor.nbytes
                    if (id(root), form) not in forms:
                        forms.add((id(root), form))
                        result[first[id(root)]][1] += size
        return [(before, after) for before, after in result]

    def build(self, assignment: Assignment) -> Graph:
        """Return the graph of an assignment."""
        graph = self.narrow(assignment)
        pairs = zip(self.units, assignment, strict=True)
        schemes = {i: precision.scheme for unit, precision in pairs if precision.scheme for i in unit.weights}
        if schemes:
            graph = self._quantized(graph, schemes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LossyCastWarning)
            return graph if self.options.io_dtype is None else with_io_dtype(graph, self.options.io_dtype)

    def narrow(self, assignment: Assignment) -> Graph:
        """Return the graph of an assignment, without its schemes."""
        pairs = zip(self.units, assignment, strict=True)
        dtypes = {id(node): p.dtype for unit, p in pairs if p.dtype is not None for node in unit.nodes}
        return narrowed(self.graph, dtypes, self.options.keep, self._arrays)

    def feeds(self) -> list[dict[str, Any]]:
        """Return the samples by the names of inputs."""
        names = [symbol.name for symbol in self.graph.inputs]
        return [{**dict(zip(names, arrays, strict=False)), **named} for arrays, named in self.runs]

    def dims(self) -> dict[str, int]:
        """Return the largest size of each named dim in the samples."""
        types = {s.name: s.type for s in self.graph.inputs if isinstance(s.type, TensorType) and s.type.shape.is_ranked}
        result: dict[str, int] = {}
        for name, array in (pair for feeds in self.feeds() for pair in feeds.items() if pair[0] in types):
            for dim, size in zip(types[name].shape, np.shape(array), strict=False):
                if dim.name:
                    result[dim.name] = max(size, result.get(dim.name, 0))
        return result

    def _quantized(self, graph: Graph, schemes: Mapping[int, str]) -> Graph:
        """Return a narrowed graph with encoded weights, which are encoded from float32 once for all trials."""
        plan = QuantizationPlan(next(iter(self._plans.values())).choices)
        for place, (old, new) in enumerate(zip(self._candidates, candidates(graph), strict=True)):
            pair = self._plans[schemes[place]].chosen.get(id(old.node)) if place in schemes else None
            if pair is not None:
                key = (schemes[place], *pair[1].key)
                plan.chosen[id(new.node)] = new, replace(pair[1], key=key, root=new.weight.root)
                plan.through.update(map(id, new.weight.through))
        mark(graph, plan)
        result = rewritten(graph, plan)
        result.metadata[NOTE] = ", ".join(sorted({*schemes.values()}))
        return result

    def measure(self, assignment: Assignment) -> Trial:
        """Return the trial of an assignment: from the file, or run."""
        key = hashlib.sha256(" ".join(f"{p.dtype}:{p.scheme}" for p in assignment).encode()).hexdigest()[:32]
        trial = self.stored.get(key)
        if trial is None:
            graph = self.build(assignment)
            outputs, seconds = self._run(graph, self.options.io_dtype)
            cost = seconds
            if self.options.cost != "time":
                cost = sizes(graph).bytes if self.options.cost == "bytes" else _weighted_flops(graph, self.dims())
            trial = self.stored[key] = Trial(self._error(outputs), cost)
            self.count += 1
            if self.options.path is not None:
                _write(self.options.path, self._files)
        return trial

    def _run(self, graph: Graph, dtype: DType | None = None) -> tuple[Outputs, float]:
        """Return the outputs of each run, and the seconds of all runs. dtype: of inputs of float32."""
        model = self.options.session.load(graph)
        runs = [
            ([_cast(a, dtype) for a in args], {k: _cast(a, dtype) for k, a in named.items()})
            for args, named in self.runs
        ]
        seconds, outputs = math.inf, []
        for _ in range(_TIMED_RUNS if self.options.cost == "time" else 1):
            start = time.perf_counter()
            outputs = [[*model(*arrays, **named)] for arrays, named in runs]
            seconds = min(seconds, time.perf_counter() - start)
        return outputs, seconds

    def _floats(self, outputs: Outputs) -> list[Array]:
        """Return the numbers of each output of floats over all samples."""
        places = [i for i, symbol in enumerate(self.graph.outputs) if is_float(symbol)]
        return [np.concatenate([np.asarray(run[i], np.float64).reshape(-1) for run in outputs]) for i in places]

    def _error(self, outputs: Outputs) -> float:
        """Return the error of the outputs; infinite where one is NaN or infinite."""
        metric = self.options.metric
        if callable(metric):
            error = float(metric(self._expected, outputs))
            return math.inf if math.isnan(error) else error
        pairs = [*zip(self._floats(self._expected), self._floats(outputs), strict=True)]
        if not all(np.isfinite(b).all() for _, b in pairs):
            return math.inf
        return max(METRICS[metric](a, b) for a, b in pairs)

    def _digest(self) -> str:
        """Return the hash of the graph, the samples and the options that trials depend on."""
        chosen, metric = self.options, self.options.metric
        kind: Any = metric if hasattr(metric, "__qualname__") else type(metric)
        name = metric if isinstance(metric, str) else f"{kind.__module__}.{kind.__qualname__}"
        options = [name, chosen.cost, str(chosen.io_dtype), repr(chosen.session), chosen.session.optimize]
        options += [__version__, onnxruntime.__version__, *self._plans, "", *chosen.keep.patterns]
        digest = hashlib.sha256(json.dumps(options).encode())
        for chunk in write_graph(self.graph, Options("onnx")).encoded():
            digest.update(chunk)
        for arrays, named in self.runs:
            for name, array in [*((str(i), a) for i, a in enumerate(arrays)), *sorted(named.items())]:
                value = np.asarray(array)
                digest.update(f"{name} {value.dtype} {value.shape}".encode())
                digest.update(repr(value.tolist()).encode() if value.dtype == object else value.tobytes())
        return digest.hexdigest()


def is_float(symbol: Symbol | None) -> bool:
    return symbol is not None and isinstance(symbol.type, TensorType) and symbol.dtype.is_float


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


# Metrics: of the numbers of one output over all samples, expected and measured.


def _length(numbers: Array) -> float:
    return float(np.linalg.norm(numbers))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.inf if part else 0.0


METRICS: Mapping[str, Callable[[Array, Array], float]] = {
    "relative": lambda a, b: _share(_length(b - a), _length(a)),
    "max": lambda a, b: float(np.abs(b - a).max(initial=0)),
    "cosine": lambda a, b: _share(_length(a) * _length(b) - float(a @ b), _length(a) * _length(b)),
}


# Files.


def _read(path: str) -> dict[str, dict[str, Trial]]:
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
        reason = " ".join(str(error).split())
        raise GraphError(
            f"mixed_precision: {path} has no trials: {reason}", help="choose a new path, or remove the file"
        ) from None


def _write(path: str, stored: Mapping[str, Mapping[str, Trial]]) -> None:
    searches = {digest: {k: (str(t.error), t.cost) for k, t in ts.items()} for digest, ts in stored.items()}
    write_text(path, json.dumps(searches))


def write_text(path: str, text: str) -> None:
    """Write a file, whole or not at all. Raises `ExportError`."""
    try:
        replace_files([(path, [text.encode()])])
    except OSError as error:
        raise ExportError(
            f"mixed_precision: {path} cannot be written: {error.strerror or error}",
            help="choose an existing folder with write permission",
        ) from None
