"""The plan of a load: all decisions about a graph before its session starts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.arrays.casting import Array, is_masked, native
from graphcore.arrays.external_data import Links
from graphcore.arrays.resource_limits import USUAL, Limits
from graphcore.errors import ModelError
from graphcore.ir.graph import Graph, Optimize, Precision, TargetName
from graphcore.ir.state.frozen import change
from graphcore.ir.state.settings import minima, with_minima
from graphcore.ir.symbol import Constant, Symbol
from graphcore.ir.transform.pickling import copied
from graphcore.ir.transform.rewrite import exposed, outputs_of
from graphcore.ir.transform.walk import operators
from graphcore.runtime import lowering
from graphcore.runtime.buffers.state import ModelBuffer, model_buffers
from graphcore.runtime.lowering import TARGETS
from graphcore.runtime.lowering.targets.releases import on_no_processor
from graphcore.runtime.ort import memory as session_memory
from graphcore.runtime.ort import openvino, python_ops, sessions, transport_dtypes
from graphcore.runtime.ort.memory import Prepack
from graphcore.runtime.ort.options import EXACT, SLOWER, TENSOR_CORES, SessionStarter, multiplies_in_tf32, target_of
from graphcore.runtime.ort.release import memory, runtime
from graphcore.support.lazy import Lazy
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Type

if TYPE_CHECKING:
    from graphcore.runtime.ort import optimisers as optimisers
else:  # a model that was optimised before needs none
    optimisers = Lazy("graphcore.runtime.ort.optimisers")


@dataclass(frozen=True, slots=True)
class Engine:
    """The options that all loads of an `InferenceSession` share. starter: starts onnxruntime's sessions."""

    starter: SessionStarter
    precision: Precision | None
    optimize: Optimize

    @property
    def target(self) -> TargetName:
        """The target that graphs are lowered for."""
        return target_of(self.starter.providers[0])

    @property
    def is_cpu(self) -> bool:
        """True if only the CPU provider runs loaded models."""
        return self.starter.providers == ("CPUExecutionProvider",)

    def lower(self, graph: Graph, target: TargetName | None = None, *, for_few_rows: bool = False) -> Graph:
        """Return the graph lowered for a target, by default that of the session. for_few_rows: with one form only."""
        release = replace(runtime(), many_rows=on_no_processor) if for_few_rows else runtime()
        return lowering.lower(graph, target or self.target, self.precision, runtime=release, optimize=self.optimize)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The options of a load: see `InferenceSession.load`.

    links: links to a file's data that are followed. custom_ops: labels of the custom ops that the model may call.
    defaults: names of initializers that calls override. has_all_rows: whether one session runs all calls.
    """

    weights: Mapping[str, Array] = field(default_factory=dict)
    prepack: Prepack = "auto"
    cache_dir: str | os.PathLike[str] | None = None
    prepared: bool | None = None
    links: Links | None = None
    limits: Limits = USUAL
    custom_ops: Set[str] = frozenset()
    format: str | None = None
    defaults: frozenset[str] = frozenset()
    has_all_rows: bool = False


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """How a graph runs.

    whole: the graph with its buffers as inputs and outputs and its functions inlined. source: the graph to lower, with
    Python's operators and outputs of unusual dtypes replaced. sites: the nodes that Python computes, which live as long
    as the session. inputs, outputs: types by name, with the known minimum sizes of their dims. openvino: the plan of
    that provider; None for others. defaults: provider options, which the user's override. disabled: optimisers to
    disable. config: attributes and entries of the session's options. is_packed: whether kernels prepack weights.
    runs_often: whether huge pages pay. many: the rows of a call, and the number of them from which on another session
    runs it; None if this one runs all calls.
    """

    whole: Graph
    source: Graph
    sites: list[python_ops.PythonNode]
    inputs: dict[str, Type]
    outputs: dict[str, Type]
    uses_transport: bool
    openvino: openvino.Plan | None
    lowered: Graph
    buffers: tuple[ModelBuffer, ...]
    defaults: Mapping[str, Mapping[str, str]]
    disabled: tuple[str, ...]
    config: dict[str, Any]
    is_packed: bool
    runs_often: bool
    many: tuple[Dim, int] | None


def plan_load(graph: Graph, engine: Engine, options: LoadOptions) -> LoadPlan:
    """Plan how an engine runs a graph. Raises `GraphError` for an operator without an implementation."""
    graph_with_buffers = exposed(graph)
    whole = lowering.inlined(lowering.resolved(graph_with_buffers, engine.target, runtime()))
    source, sites = python_ops.prepared(whole)
    least_sizes = minima(source.metadata)
    inputs = {
        name: type_ if name in graph.buffers else with_minima(type_, least_sizes)
        for name, type_ in transport_dtypes.noted({s.name: s.type for s in source.inputs}, source.metadata).items()
    }
    outputs = transport_dtypes.noted(source.output_types, source.metadata)
    uses_transport = transport_dtypes.is_needed(inputs, outputs)
    if uses_transport:
        source = transport_dtypes.with_transport_outputs(source)
    provider = None
    if engine.target == "openvino":
        provider = openvino.planned(source, engine.lower, engine.precision, runtime(), has_buffers=bool(graph.buffers))
    target = TARGETS[engine.target]
    runs_often = target.is_host and any(declared.buffer.in_place for declared in graph.buffers.values())
    grows = runs_often and engine.is_cpu and engine.optimize == "all" and not options.has_all_rows
    lowered = engine.lower(source, for_few_rows=grows) if provider is None else provider.lowered
    packing = session_memory.entries(lowered, options.prepack)
    config: dict[str, Any] = {**packing, **memory(lowered)}
    if runs_often and "enable_mem_pattern" not in engine.starter.attributes:
        # onnxruntime would store a memory plan for each length of a prompt, and use it once.
        config["enable_mem_pattern"] = False
    return LoadPlan(
        whole,
        source,
        sites,
        inputs,
        outputs,
        uses_transport,
        provider,
        lowered,
        model_buffers(
            {n: declared.buffer for n, declared in graph.buffers.items()},
            outputs_of(graph_with_buffers),
            inputs,
            outputs,
            lowered,
        ),
        TENSOR_CORES if target.tensor_cores and multiplies_in_tf32(source, lowered) else EXACT,
        _disabled(lowered, engine),
        config,
        packing != session_memory.OFF,
        runs_often,
        lowering.rows_of(lowered, runtime()) if grows else None,
    )


def _disabled(lowered: Graph, engine: Engine) -> tuple[str, ...]:
    """Return the optimisers that are slow, unsafe or idle for a lowered graph."""
    constants = [s for s in lowered.symbols if isinstance(s.producer, Constant)]
    slow = sessions.quadratic(len(constants), lambda: sessions.different(constants))
    op_types = operators(lowered)
    idle = optimisers.idle_among(op_types) if engine.is_cpu else ()
    return (*SLOWER, *slow, *optimisers.unsafe(lowered, op_types), *idle)


# Replace the weights of a graph.

_MAX_LISTED = 20


def with_weights(graph: Graph, arrays: Mapping[str, Array]) -> Graph:
    """Return a copy of the graph with some weights replaced.

    arrays: by the weights' names, of their dtypes and shapes. Raises `ModelError` that lists all arrays with another
    name, dtype or shape.
    """
    weights = graph.weights
    folded = [f"{name!r}, by the pass {graph.folded[name]}" for name in arrays if name in graph.folded]
    if folded:
        raise ModelError(
            f"load: weights that optimize folded cannot be replaced: {'; '.join(folded[:_MAX_LISTED])}",
            help="replace them before, or keep them: graph.optimize(keep=[...])",
        )
    faults = [fault for name, array in arrays.items() if (fault := _fault(weights, name, array))]
    if faults:
        more = f"; and {len(faults) - _MAX_LISTED} more" if len(faults) > _MAX_LISTED else ""
        names = ", ".join([*weights][:_MAX_LISTED]) + (", ..." if len(weights) > _MAX_LISTED else "")
        raise ModelError(
            f"load: {'; '.join(faults[:_MAX_LISTED])}{more}",
            help=f"give arrays of the types of the graph's weights, which are {names or 'none'}",
        )
    new = copied(graph)
    for name, array in arrays.items():
        symbol = new.symbols[weights[name].id]
        change(symbol, producer=Constant(native(array), True, symbol.producer.origin))
    return new


def _fault(weights: Mapping[str, Symbol], name: object, array: Any) -> str:
    """Return the mistake in an array for a weight; "" if there is none."""
    if not isinstance(name, str) or name not in weights:
        return f"the graph has no weight {name!r:.200}"
    wanted = weights[name].tensor_type
    if not isinstance(array, np.ndarray) or is_masked(array):
        return f"weight {name!r:.200} must be {wanted}, got {type(array).__name__}"
    if array.dtype.newbyteorder("=") != wanted.dtype.numpy or array.shape != tuple(wanted.shape.static_dims):
        return f"weight {name!r:.200} must be {wanted}, got {array.dtype}{list(array.shape)}"
    return ""
