"""OpenVINO's execution provider: its options, the precision of its graphs, and which graphs it runs.

The provider compiles all operators that it supports, whatever their dtypes, and computes integers in 32 bits at most.
The CPU provider of the same package runs a graph with a node that OpenVINO would compute wrong, and a call with an
integer that is too large for it.
"""

from __future__ import annotations

import functools
import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime

from graphcore.errors import GraphError, ModelError
from graphcore.ir.graph import Graph, Precision, TargetName
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.match import Pattern, either, op
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite, with_names
from graphcore.ir.transform.walk import bodies, constant_array
from graphcore.passes.merging import prune
from graphcore.runtime.fusions.matching import is_float32
from graphcore.runtime.lowering.targets.legality import legality
from graphcore.runtime.lowering.targets.releases import Runtime
from graphcore.runtime.ort.openvino.support import (
    LIMIT,
    IntegerBound,
    checked_apart,
    findings,
    not_taken,
)
from graphcore.runtime.ort.release import processor_flags
from graphcore.surgery.astype import astype
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

PROVIDER = "OpenVINOExecutionProvider"

_HINT = "INFERENCE_PRECISION_HINT"


def options(hint: str, threads: int = 0) -> dict[str, str]:
    """Return the options with which OpenVINO computes floats in a precision: "f32", "bf16" or "f16".

    threads: 0 for one for each processor.
    """
    limit = {"INFERENCE_NUM_THREADS": threads} if threads else {}
    return {"device_type": "CPU", "load_config": json.dumps({"CPU": {_HINT: hint, **limit}})}


def provider_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's options for the provider; `load_config` is a mapping or JSON. Raises `GraphError`."""
    config = options.get("load_config")
    if config is None:
        return dict(options)
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except ValueError:
            config = None
    if not isinstance(config, Mapping) or not all(isinstance(part, Mapping) for part in config.values()):
        raise GraphError(
            f"InferenceSession: load_config must map devices to properties, got {options['load_config']!r}",
            help='give a mapping, such as {"CPU": {"INFERENCE_PRECISION_HINT": "bf16"}}',
        )
    devices = {device: dict(part) for device, part in config.items()}
    devices.setdefault("CPU", {}).setdefault(_HINT, "f32")
    return {**options, "load_config": json.dumps(devices)}


def require_options(options: Mapping[str, Any], start: Callable[[Graph], object]) -> None:
    """Raise `GraphError` if OpenVINO refuses all graphs with the user's options. start: starts a session of a graph."""
    graph = Graph("probe", {"x": TensorType(DType.float32, [1])})
    graph.output(graph.inputs[0] + graph.inputs[0])
    try:
        start(graph)
    except ModelError as error:
        raise GraphError(
            f"InferenceSession: OpenVINO refuses provider_options={dict(options)!r:.200}",
            operands={"OpenVINO": str(error).strip().splitlines()[0][:400]},
            help="see the names and values of OpenVINO's properties",
        ) from error


@dataclass(frozen=True, slots=True)
class Plan:
    """How a graph runs.

    lowered: for OpenVINO, or for the CPU provider if `hint` is "". unsupported, bounds: see `Findings`.
    """

    lowered: Graph
    hint: str
    unsupported: Mapping[str, str]
    bounds: tuple[IntegerBound, ...] = ()
    checks: tuple[tuple[str, str], ...] = ()
    """Pairs of outputs that must be equal: of `sizes`, or after the outputs of the graph."""
    sizes: Graph | None = None


def planned(
    graph: Graph,
    lower: Callable[[Graph, TargetName], Graph],
    precision: Precision | None,
    runtime: Runtime,
    *,
    has_buffers: bool = False,
) -> Plan:
    """Return the plan of a graph: OpenVINO runs all of it, or the CPU provider does.

    lower: lowers a graph for a target. With "fast", a graph of float16 or bfloat16 is computed in that precision, and
    one of float32 in bfloat16 if the processor multiplies it, which is OpenVINO's own default.
    """
    if has_buffers:
        return Plan(lower(graph, "cpu"), "", {"buffers": "OpenVINO does not write to their memory"})
    source, hint = graph, "f32"
    narrow = narrowest(graph) if precision == "fast" else None
    if narrow is not None and can_widen(graph):
        source = astype(graph, DType.float32, source=HALVES)
        hint = "f16" if narrow is DType.float16 else "bf16"
    elif narrow is None and precision == "fast" and "avx512_bf16" in processor_flags():
        hint = "bf16"
    unsupported = not_taken(source, halves=hint != "f32")
    if unsupported is not None:
        return Plan(lower(graph, "cpu"), "", {f"{unsupported}": "OpenVINO does not support the dtype"})
    lowered, checks, sizes = checked_apart(joined(lower(source, "openvino")))
    report = findings(lowered, legality("openvino", runtime), halves=hint != "f32")
    if not report.unsupported:
        return Plan(lowered, hint, {}, report.bounds, checks, sizes)
    return Plan(lower(graph, "cpu"), "", report.unsupported)


def refused(plan: Plan, error: Exception) -> Plan:
    """Return a plan for the CPU provider after OpenVINO refused a graph that it should support."""
    reason = str(error).strip().splitlines()[-1][:200]
    return Plan(plan.lowered, "", {"": f"OpenVINO refused the graph: {reason}"})


class Compiled:
    """A session of OpenVINO that runs calls with too large integers on the CPU provider.

    It has all other attributes of the onnxruntime session that it wraps.
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        plan: Plan,
        host: Callable[[], onnxruntime.InferenceSession],
        sizes: onnxruntime.InferenceSession | None = None,
    ) -> None:
        """host: starts a session of the CPU provider for the same graph. sizes: the session of `plan.sizes`."""
        self._session = session
        self._bounds = plan.bounds
        self._norms = {norm for bound in plan.bounds for norm in bound.norms}
        self._checks = plan.checks
        self._defaults = plan.lowered.defaults
        self._sizes = sizes
        self._compared = [name for pair in plan.checks for name in pair if sizes is None]
        self._names = [o.name for o in session.get_outputs() if o.name not in self._compared]
        self._is_device = bool(plan.hint)
        self._is_checked = bool(plan.bounds or plan.checks)
        self._start = host
        self._host: onnxruntime.InferenceSession | None = None
        self._lock = threading.Lock()
        self.unsupported = plan.unsupported if not plan.hint else {}

    @property
    def _sess(self) -> Compiled:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def get_providers(self) -> list[str]:
        """Return the requested providers: OpenVINO is the first, whichever provider runs the graph."""
        return list(dict.fromkeys([PROVIDER, *self._session.get_providers()]))

    def get_outputs(self) -> list[Any]:
        """Return the outputs of the graph, without those of checks."""
        return [o for o in self._session.get_outputs() if o.name not in self._compared]

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Any], options: Any = None) -> list[Any]:
        """Run as the session does; on the CPU if an operand is empty, an integer is too large, or sizes differ from the
        stated ones."""
        values = {**self._defaults, **feed}
        requested = self._names if names is None else list(names)
        # Some of OpenVINO's kernels refuse operands without elements, others crash.
        is_empty = self._is_device and not all(array.size for array in values.values())
        if not is_empty and self._fits(values) and self._agree(values):
            try:
                results = list(self._session._sess.run([*requested, *self._compared], feed, options))
            except Exception:
                if not self._checks:
                    raise
            else:
                if _pairwise(results[len(requested) :]):
                    return results[: len(requested)]
        return list(self._cpu().run(requested, feed, options))

    def run_with_ort_values(self, names: Sequence[str] | None, feed: Mapping[str, Any], options: Any = None) -> Any:
        """Run as the session does; on the CPU if calls must be checked."""
        session = self._cpu() if self._is_checked else self._session
        return session.run_with_ort_values(names, feed, options)

    def io_binding(self) -> Any:
        """Return a binding; to the CPU provider's session if calls must be checked."""
        return (self._cpu() if self._is_checked else self._session).io_binding()

    def run_with_iobinding(self, binding: Any, options: Any = None) -> None:
        """Run a binding of `io_binding`."""
        session = self._cpu() if self._is_checked else self._session
        plain = getattr(binding, "_iobinding", binding)
        session._sess.run_with_iobinding(plain, options)

    def _agree(self, feed: Mapping[str, Any]) -> bool:
        """Return True if sizes are as stated, as far as the session of sizes can compute them."""
        return self._sizes is None or _pairwise(self._sizes.run(None, feed))

    def _fits(self, feed: Mapping[str, Any]) -> bool:
        sizes = {norm: _size(norm[0], feed[norm[1]]) for norm in self._norms}
        return all(
            bound.constant + sum(factor * sizes[norm] for norm, factor in bound.norms.items()) <= LIMIT
            for bound in self._bounds
        )

    def _cpu(self) -> onnxruntime.InferenceSession:
        with self._lock:
            if self._host is None:
                self._host = self._start()
            return self._host


def _pairwise(arrays: Sequence[Any]) -> bool:
    return all(map(np.array_equal, arrays[::2], arrays[1::2]))


def _size(kind: str, array: Any) -> float:
    if kind == "greatest":
        return float(max(int(array.max()), -int(array.min())))
    return float(np.abs(array.astype(np.float64)).sum())


# A graph of float16 or bfloat16 is converted to float32, for a runtime with one precision for all floats.

HALVES = frozenset({DType.float16, DType.bfloat16})


def narrowest(graph: Graph) -> DType | None:
    """Return the narrow float of a graph: float16 if it has both, None if it has neither."""
    dtypes = {s.type.dtype for s in graph.symbols if isinstance(s.type, TensorType)} & HALVES
    return DType.float16 if DType.float16 in dtypes else next(iter(dtypes), None)


def can_widen(graph: Graph) -> bool:
    """Return True if the graph has no bodies, and no bfloat16 inputs or outputs, which NumPy lacks."""
    ends = [s.type for s in (*graph.input_symbols, *graph.outputs)]
    return not any(isinstance(t, TensorType) and t.dtype is DType.bfloat16 for t in ends) and not any(
        bodies(node) for node in graph.nodes
    )


# Softmax instead of the nodes that attention expands it to, for a provider that runs Softmax several times as fast.
#
# Attention gives 0 for fully masked rows, where Softmax gives NaN, as it does for a row with a NaN or an infinity; the
# sum of the scores of a row tells these apart.


def _softmax_in_parts(scores: Symbol, largest: Symbol, axes: Symbol, keep: Symbol, other: Symbol) -> tuple[Symbol, ...]:
    none = op("Equal", largest, -math.inf)
    power = op("Exp", op("Sub", scores, op("Where", none, 0.0, largest)))
    powers = either(power, op("Where", keep, power, other))  # a Where that keeps NaN, which the kernel loses
    total = op("ReduceSum", powers, axes, keepdims=1)
    return op("Div", powers, op("Where", none, 1.0, total)), total


_SOFTMAX = Pattern(_softmax_in_parts, scores=is_float32)


def joined(graph: Graph) -> Graph:
    """Return the graph with Softmax instead of its expansions; the graph itself if it has none."""
    matches = {n.outputs[0].id: m for n in graph.nodes if n.op_type == "Div" and (m := _match_softmax(n)) is not None}
    if not matches:
        return graph
    new = with_names(Rewrite(graph, _Joining(matches)).run())
    prune(new)
    return new


@dataclass(eq=False)
class _Joining(Policy[Rewrite]):
    matches: Mapping[int, tuple[Symbol, Symbol]]

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        scores, total = self.matches.get(node.outputs[0].id, (None, None))
        return None if scores is None or total is None else (_softmax(rewrite.new, rewrite.of(scores), total),)


def _softmax(graph: Graph, scores: Symbol, total: Symbol) -> Symbol:
    emit, type_ = graph.build.emit, total.type
    axes = graph.build.vector([scores.rank - 1])
    number = functools.partial(graph.build.scalar, dtype=DType.float32)
    softmax = emit("Softmax", (scores,), scores.type, {"axis": -1})
    # A row has no NaN, or only NaN.
    first = emit("Slice", (softmax, *map(graph.build.vector, ([0], [1])), axes), type_)
    is_number = emit("Equal", (first, first), type_.cast(DType.bool))
    below = emit("ReduceSum", (scores, axes), type_, {"keepdims": 1})
    masked = emit("Equal", (below, number(-math.inf)), type_.cast(DType.bool))
    rest = emit("Where", (masked, number(0.0), number(math.nan)), type_)
    return emit("Where", (is_number, softmax, rest), scores.type)


def _match_softmax(div: Node) -> tuple[Symbol, Symbol] | None:
    """Return the operand of a softmax along the last axis, and the sum of the exponentials, for its type."""
    match = _SOFTMAX.match(div.outputs[0])
    if match is None:
        return None
    scores, _, axes, _, _, total = match
    array = constant_array(axes)
    return (scores, total) if array is not None and array.tolist() in ([scores.rank - 1], [-1]) else None
