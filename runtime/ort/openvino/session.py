"""OpenVINO's execution provider: its options, the precision that it computes a graph in, and which graphs it is given.

The provider compiles all nodes that it knows, whatever their dtypes, and computes integers in 32 bits at most. A graph
with a node that it would not get right is run by the CPU provider of the same package instead, and so is a call with an
integer that is too large for it.
"""

from __future__ import annotations

import functools
import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import onnxruntime

from graphcore.errors import GraphError, ModelError
from graphcore.ir.graph import Graph, Precision, TargetName
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite, with_names
from graphcore.ir.transform.walk import bodies, constant_array
from graphcore.passes.merging import prune
from graphcore.runtime.lowering.targets.legality import legality
from graphcore.runtime.lowering.targets.releases import Runtime
from graphcore.runtime.ort.openvino.support import LIMIT, Bound, checked_apart, findings, not_taken, without_checks
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

PROVIDER = "OpenVINOExecutionProvider"

_HINT = "INFERENCE_PRECISION_HINT"


def options(hint: str) -> dict[str, str]:
    """Return the options with which OpenVINO computes floats in a precision: "f32", "bf16" or "f16"."""
    return {"device_type": "CPU", "load_config": json.dumps({"CPU": {_HINT: hint}})}


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a user gives for the provider: `load_config` may be a mapping or JSON. Raises `GraphError`."""
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
            f"InferenceSession: load_config={options['load_config']!r} are no properties of devices",
            help='give a mapping, such as {"CPU": {"INFERENCE_PRECISION_HINT": "bf16"}}',
        )
    held = {device: dict(part) for device, part in config.items()}
    held.setdefault("CPU", {}).setdefault(_HINT, "f32")
    return {**options, "load_config": json.dumps(held)}


def require_options(options: Mapping[str, Any], start: Callable[[Graph], object]) -> None:
    """Raise `GraphError` where OpenVINO takes no graph with options of a user's. start: starts a session of one."""
    graph = Graph("probe", {"x": TensorType(DType.float32, [1])})
    graph.output(graph.inputs[0] + graph.inputs[0])
    try:
        start(graph)
    except ModelError as error:
        raise GraphError(
            f"InferenceSession: OpenVINO takes no graph with provider_options={dict(options)!r:.200}",
            operands={"OpenVINO": str(error).strip().splitlines()[0][:400]},
            help="see the names and values of OpenVINO's properties",
        ) from error


@dataclass(frozen=True, slots=True)
class Plan:
    """The way a graph runs.

    lowered: for OpenVINO, or for the CPU provider where `hint` is "". left, bounds: `findings`.
    """

    lowered: Graph
    hint: str
    left: Mapping[str, str]
    bounds: tuple[Bound, ...] = ()
    checks: tuple[tuple[str, str], ...] = ()
    """Pairs of outputs which must be equal: those of `sizes`, or after those of the graph."""
    sizes: Graph | None = None


def planned(
    graph: Graph,
    lower: Callable[[Graph, TargetName], Graph],
    precision: Precision | None,
    runtime: Runtime,
    *,
    has_buffers: bool = False,
) -> Plan:
    """Return what a session does with a graph: all of it by OpenVINO, or all of it by the CPU provider.

    lower: lowers a graph for a target. Under "fast" a graph of float16 or bfloat16 is computed in that precision.
    """
    if has_buffers:
        return Plan(lower(graph, "cpu"), "", {"buffers": "they are kept in memory that OpenVINO does not write to"})
    narrow = narrowest(graph) if precision == "fast" else None
    source, hint = graph, "f32"
    if narrow is not None and can_widen(graph):
        source, hint = widened(graph), "f16" if narrow is DType.float16 else "bf16"
    foreign = not_taken(source, halves=hint != "f32")
    if foreign is not None:
        return Plan(lower(graph, "cpu"), "", {f"{foreign}": "numbers of that dtype are not OpenVINO's"})
    checked = joined(lower(source, "openvino"))
    lowered, checks = without_checks(checked)
    sizes = None
    if checks:
        plain, sizes = checked_apart(checked)
        lowered = lowered if sizes is None else plain
    found = findings(lowered, legality("openvino", runtime), halves=hint != "f32")
    if found.is_whole:
        return Plan(lowered, hint, {}, found.bounds, checks, sizes)
    return Plan(lower(graph, "cpu"), "", found.left)


def refused(plan: Plan, error: Exception) -> Plan:
    """Return a plan for the CPU provider, where OpenVINO did not take a graph that it should have."""
    reason = str(error).strip().splitlines()[-1][:200]
    return Plan(plan.lowered, "", {"": f"OpenVINO does not take the graph: {reason}"})


class Compiled:
    """A session of OpenVINO that runs calls whose integers are too large for it on the CPU provider.

    It stands for the session of a Model: what is not here is the session's own.
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        plan: Plan,
        host: Callable[[], onnxruntime.InferenceSession],
        sizes: onnxruntime.InferenceSession | None = None,
    ) -> None:
        """host: starts a session of the CPU provider on the same graph. sizes: one of that of the plan's."""
        self._session = session
        self._bounds = plan.bounds
        self._norms = {norm for bound in plan.bounds for norm in bound.norms}
        self._checks = plan.checks
        self._sizes = sizes
        self._compared = [name for pair in plan.checks for name in pair if sizes is None]
        self._names = [o.name for o in session.get_outputs() if o.name not in self._compared]
        self._is_device = bool(plan.hint)
        self._is_checked = bool(plan.bounds or plan.checks)
        self._start = host
        self._host: onnxruntime.InferenceSession | None = None
        self._lock = threading.Lock()
        self.left = plan.left if not plan.hint else {}

    @property
    def _sess(self) -> Compiled:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def get_providers(self) -> list[str]:
        """Return the providers that were asked for: OpenVINO is the first, whoever runs the graph."""
        return list(dict.fromkeys([PROVIDER, *self._session.get_providers()]))

    def get_outputs(self) -> list[Any]:
        """Return those of the graph."""
        return [o for o in self._session.get_outputs() if o.name not in self._compared]

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Any], options: Any = None) -> list[Any]:
        """Run as the session does; on the CPU where an operand has no elements, where an integer is too large, and
        where sizes are not what was stated."""
        if self._is_device and not all(array.size for array in feed.values()):
            # Some of OpenVINO's kernels refuse operands without elements, others do not survive them.
            return list(self._cpu().run(self._names if names is None else list(names), feed, options))
        if not self._is_checked:
            return list(self._session._sess.run(self._names if names is None else names, feed, options))
        wanted = self._names if names is None else list(names)
        if self._fits(feed) and self._agree(feed):
            try:
                made = list(self._session._sess.run([*wanted, *self._compared], feed, options))
            except Exception:
                if not self._checks:
                    raise
            else:
                if _pairwise(made[len(wanted) :]):
                    return made[: len(wanted)]
        return list(self._cpu().run(wanted, feed, options))

    def run_with_ort_values(self, names: Sequence[str] | None, feed: Mapping[str, Any], options: Any = None) -> Any:
        """Run as the session does; on the CPU where anything must be looked at."""
        session = self._cpu() if self._is_checked else self._session
        return session.run_with_ort_values(names, feed, options)

    def io_binding(self) -> Any:
        """Return a binding to the CPU provider's session where something must be looked at in a call."""
        return (self._cpu() if self._is_checked else self._session).io_binding()

    def run_with_iobinding(self, binding: Any, options: Any = None) -> None:
        """Run what `io_binding` gave."""
        session = self._cpu() if self._is_checked else self._session
        plain = getattr(binding, "_iobinding", binding)
        session._sess.run_with_iobinding(plain, options)

    def _agree(self, feed: Mapping[str, Any]) -> bool:
        """Return whether sizes are as stated, as far as a session beside can tell."""
        return self._sizes is None or _pairwise(self._sizes.run(None, feed))

    def _fits(self, feed: Mapping[str, Any]) -> bool:
        if not self._bounds:
            return True
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
    if not array.size:
        return 0.0
    if kind == "greatest":
        return float(max(int(array.max()), -int(array.min())))
    return float(np.abs(array.astype(np.float64)).sum())


# A graph of float16 or bfloat16 in float32, for a runtime that picks the precision of all floats at once.

HALVES = frozenset({DType.float16, DType.bfloat16})


def narrowest(graph: Graph) -> DType | None:
    """Return the narrow float that a graph computes in: float16 where it has both; None where it has neither."""
    found = {s.type.dtype for s in graph.symbols if isinstance(s.type, TensorType)} & HALVES
    return DType.float16 if DType.float16 in found else next(iter(found), None)


def can_widen(graph: Graph) -> bool:
    """Return whether the graph has no bodies, and takes and gives no bfloat16, which NumPy and so most runtimes
    lack."""
    ends = [s.type for s in (*graph.input_symbols, *graph.outputs)]
    return not any(isinstance(t, TensorType) and t.dtype is DType.bfloat16 for t in ends) and not any(
        bodies(node) for node in graph.nodes
    )


def widened(graph: Graph) -> Graph:
    """Return a graph that computes in float32 what this one does in narrower floats, with the same inputs and outputs.

    Weights are widened once, into arrays of their own; casts to narrower floats round nothing.
    """
    rewrite = _Wide(graph, _Widening())
    for symbol, fed in zip(graph.input_symbols, rewrite.new.input_symbols, strict=True):
        if _is_half(symbol.type):
            change(fed, type=symbol.type)
            rewrite.bind(symbol, rewrite.new.build.cast(fed, DType.float32))
    return rewrite.run()


class _Wide(Rewrite):
    def _constant(self, symbol: Symbol, producer: Constant) -> Symbol:
        if symbol.dtype in HALVES:
            producer = Constant(producer.array.astype(np.float32), producer.is_weight, producer.origin)
        return super()._constant(symbol, producer)

    def attributes(self, node: Node) -> Mapping[str, Any]:
        return {key: _held(value) for key, value in node.attributes.items()}


class _Widening(Policy[Rewrite]):
    keeps_types = True

    def retype(self, type_: Type) -> Type:
        return _wide(type_)

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        is_cast = node.op_type == "Cast" and not node.domain and inputs[0] is not None
        return inputs if is_cast and inputs[0].type == _wide(node.outputs[0].type) else None  # type: ignore[union-attr]

    def finish(self, rewrite: Rewrite) -> Graph:
        new = rewrite.new
        for symbol in rewrite.old.outputs:
            value = rewrite.of(symbol)
            if _is_half(symbol.type) and isinstance(value.producer, Node):
                if value.given_name is not None and value.given_name == symbol.given_name:
                    new.names.release(value)  # the cast after it has that name
                rewrite.bind(symbol, new.build.cast(value, symbol.dtype))
        return rewrite.finish()


def _is_half(type_: Type) -> bool:
    return isinstance(type_, TensorType) and type_.dtype in HALVES


def _wide(type_: Type) -> Type:
    return type_.cast(DType.float32) if isinstance(type_, TensorType) and type_.dtype in HALVES else type_


def _held(value: Any) -> Any:
    if isinstance(value, DType):
        return DType.float32 if value in HALVES else value
    if isinstance(value, np.ndarray) and DType.of(value.dtype) in HALVES:
        return value.astype(np.float32)
    return value


# Softmax in place of what attention spells it out with, for a provider that runs the operator several times as fast.
#
# Rows of which all are masked are 0 there, where Softmax gives NaN, as it does for a NaN or an infinity somewhere in a
# row; the sum of a row tells these apart.


class _Found(NamedTuple):
    """scores: what the softmax is of, along its last axis. total: the sum of the exponentials, for its type."""

    scores: Symbol
    total: Symbol


def joined(graph: Graph) -> Graph:
    """Return the graph with Softmax wherever it is spelt out; itself where it is not."""
    found = {n.outputs[0].id: made for n in graph.nodes if n.op_type == "Div" and (made := _found(n)) is not None}
    if not found:
        return graph
    new = with_names(Rewrite(graph, _Joining(found)).run())
    prune(new)
    return new


@dataclass(eq=False)
class _Joining(Policy[Rewrite]):
    found: Mapping[int, _Found]

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        softmax = self.found.get(node.outputs[0].id)
        return None if softmax is None else (_softmax(rewrite.new, rewrite.of(softmax.scores), softmax.total),)


def _softmax(graph: Graph, scores: Symbol, total: Symbol) -> Symbol:
    emit, type_ = graph.build.emit, total.type
    axes = graph.build.vector([scores.rank - 1])
    number = functools.partial(graph.build.scalar, dtype=DType.float32)
    made = emit("Softmax", (scores,), scores.type, {"axis": -1})
    whole = emit("ReduceSum", (made, axes), type_, {"keepdims": 1})
    known = emit("Equal", (whole, whole), type_.cast(DType.bool))
    below = emit("ReduceSum", (scores, axes), type_, {"keepdims": 1})
    masked = emit("Equal", (below, number(-math.inf)), type_.cast(DType.bool))
    rest = emit("Where", (masked, number(0.0), number(math.nan)), type_)
    return emit("Where", (known, made, rest), scores.type)


def _found(div: Node) -> _Found | None:
    exponentials, divisor = div.inputs
    if div.domain or exponentials is None or exponentials.type.dtype is not DType.float32:
        return None
    chosen = _made(divisor, "Where")
    total = None if chosen is None else _made(chosen.inputs[2], "ReduceSum")
    if chosen is None or total is None or total.inputs[0] is not exponentials or not _is(chosen.inputs[1], 1.0):
        return None
    known = _made(exponentials, "Where")  # NaN beside the kernel that loses it
    power = _made(exponentials if known is None else known.inputs[1], "Exp")
    less = None if power is None else _made(power.inputs[0], "Sub")
    greatest = None if less is None else _made(less.inputs[1], "Where")
    if (
        less is None
        or greatest is None
        or greatest.inputs[0] is not chosen.inputs[0]
        or not _is(greatest.inputs[1], 0.0)
    ):
        return None
    equal = _made(chosen.inputs[0], "Equal")
    scores = less.inputs[0]
    if equal is None or scores is None or not _is(equal.inputs[1], -math.inf) or not scores.shape.is_ranked:
        return None
    axes = total.inputs[1].producer if len(total.inputs) > 1 and total.inputs[1] is not None else None
    along_last = isinstance(axes, Constant) and axes.array.tolist() in ([scores.rank - 1], [-1])
    if not along_last or equal.inputs[0] is not greatest.inputs[2] or total.attributes.get("keepdims", 1) != 1:
        return None
    return _Found(scores, total.outputs[0])


def _made(symbol: Symbol | None, op_type: str) -> Node | None:
    """Return the node of an operator that made a Symbol."""
    producer = None if symbol is None else symbol.producer
    return producer if isinstance(producer, Node) and producer.op_type == op_type and not producer.domain else None


def _is(symbol: Symbol | None, number: float) -> bool:
    """Return whether it is one number, known now."""
    array = constant_array(symbol, weights=True)
    return array is not None and array.size == 1 and float(array.reshape(())) == number
