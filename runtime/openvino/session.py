"""OpenVINO's execution provider: its options, the precision that it computes a graph in, and which graphs it is given.

The provider compiles all nodes that it knows, whatever their dtypes, and computes integers in 32 bits at most. A graph
with a node that it would not get right is run by the CPU provider of the same package instead, and so is a call with an
integer that is too large for it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime

from graphcore.errors import GraphError, ModelError
from graphcore.ir.graph import Graph, Precision, TargetName
from graphcore.runtime.lowering.targets.legality import legality
from graphcore.runtime.lowering.targets.releases import Runtime
from graphcore.runtime.openvino.halves import can_widen, narrowest, widened
from graphcore.runtime.openvino.softmax import joined
from graphcore.runtime.openvino.support import LIMIT, Bound, checked_apart, findings, not_taken, unguarded
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

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
    guards: tuple[tuple[str, str], ...] = ()
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
    guarded = joined(lower(source, "openvino"))
    lowered, guards = unguarded(guarded)
    sizes = None
    if guards:
        plain, sizes = checked_apart(guarded)
        lowered = lowered if sizes is None else plain
    found = findings(lowered, legality("openvino", runtime), halves=hint != "f32")
    if found.is_whole:
        return Plan(lowered, hint, {}, found.bounds, guards, sizes)
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
        self._guards = plan.guards
        self._sizes = sizes
        self._compared = [name for pair in plan.guards for name in pair if sizes is None]
        self._names = [o.name for o in session.get_outputs() if o.name not in self._compared]
        self._is_device = bool(plan.hint)
        self._is_checked = bool(plan.bounds or plan.guards)
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
                if not self._guards:
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
