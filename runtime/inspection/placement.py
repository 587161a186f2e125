"""Placement of the operators of a model: on the device or on the CPU, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import TypeAlias

import onnxruntime

from graphcore.ir.graph import Graph, TargetName
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.ir.transform.walk import walk
from graphcore.operators import Trait, having
from graphcore.runtime.lowering.decompositions.cuda.networks import lack_of_recurrent, lack_of_transposed
from graphcore.runtime.lowering.targets import TARGETS
from graphcore.runtime.lowering.targets.legality import kernel_dtype, kernels
from graphcore.runtime.lowering.targets.releases import Runtime, default, table_of
from graphcore.support.markup import table
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

Conditions: TypeAlias = Mapping[str, Callable[[Node, frozenset[DType]], str]]

RECORD = "session.record_ep_graph_assignment_info"
"""The config entry that makes a session record its placement."""

SIZES = "onnxruntime computes sizes and indices there"
"""The reason for operators with a kernel on the device whose results onnxruntime needs on the CPU."""

_REFUSED = "the provider refused it: log_severity_level=1 makes onnxruntime print why"

_HOST = "CPUExecutionProvider"


@dataclass(frozen=True, slots=True)
class Placed:
    """An operator. provider: of the operator. reason: why the first provider does not run it; "" if it does."""

    name: str
    operator: str
    provider: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Placement:
    """The operators of a model in the order in which the session runs them."""

    operators: tuple[Placed, ...]

    @property
    def left(self) -> tuple[Placed, ...]:
        """The operators that another provider than the first runs."""
        return tuple(o for o in self.operators if o.reason)

    def __str__(self) -> str:
        lines = [f"{count:>6} {op:<24} {provider}: {why}" for count, op, provider, why in self._rows()]
        return "\n".join([self._total(), *lines])

    def _repr_html_(self) -> str:
        return table(("nodes", "operator", "provider", "reason"), self._rows(), self._total())

    def _total(self) -> str:
        counts = Counter(o.provider for o in self.operators)
        return ", ".join(f"{count} on {provider}" for provider, count in counts.most_common())

    def _rows(self) -> list[tuple[str, str, str, str]]:
        """Return the operators of other providers, by operator and reason."""
        reasons = Counter((o.operator, o.provider, o.reason) for o in self.left)
        return [(str(count), op, provider, why) for (op, provider, why), count in sorted(reasons.items())]


def planned(graph: Graph, target: TargetName, runtime: Runtime | None = None) -> Placement:
    """Return the placement of a lowered graph and its bodies by the target's table.

    runtime: the release that it was lowered for, if it is not the default of files.
    """
    row = TARGETS[target]
    device = table_of(target).device if row.is_web else None
    table = kernels(target, runtime) if device is None else device.kernels(runtime or default(target))
    has_device = device is not None or (row.host is not None and not row.runs_whole_graphs)
    host = "wasm" if row.is_web else _HOST
    name = row.provider if has_device else host
    conditions = _CONDITIONS if device is None else _CONDITIONS_OF_WEB
    placed = []
    for node in walk(graph):
        why = lack(node, table, conditions) if has_device else ""
        placed.append(Placed(node.outputs[0].given_name or "", node.op_type, host if why else name, why))
    return Placement(tuple(placed))


def recorded(
    session: onnxruntime.InferenceSession, graph: Graph | None, provider: str, runtime: Runtime | None = None
) -> Placement:
    """Return the placement that a session with `RECORD` reports. The reasons come from the table of kernels.

    graph: the lowered one; None for a model in onnxruntime's own format. provider: the preferred one. runtime: the
    release that the graph was lowered for.
    """
    whole: Mapping[str, str] | None = getattr(session, "unsupported", None)  # of a provider that runs whole graphs only
    nodes = {} if graph is None else {(node.outputs[0].name, node.op_type): node for node in walk(graph)}
    table = kernels("cuda", runtime) if provider != _HOST and whole is None else {}
    of_sizes = _of_sizes(nodes.values())
    placed = []
    for part in session.get_provider_graph_assignment_info():
        for assigned in part.get_nodes():
            node = nodes.get((assigned.name, assigned.op_type))
            reason = "" if part.ep_name == provider else _reason(node, table, of_sizes)
            if reason and whole:
                reason = whole.get(assigned.op_type) or "it runs whole graphs, and no graph with " + ", ".join(whole)
            placed.append(Placed(assigned.name, assigned.op_type, part.ep_name, reason))
    return Placement(tuple(placed))


def _reason(node: Node | None, table: dict[str, frozenset[DType]], of_sizes: Set[Node]) -> str:
    """Return why a node is on the CPU. node: None for a node that onnxruntime created, for example for shapes."""
    if node is None:
        return SIZES
    return lack(node, table) or (SIZES if node in of_sizes else _REFUSED)


def _of_sizes(nodes: Iterable[Node]) -> Set[Node]:
    """Return the nodes that compute integers, or values from integers and constants only."""
    size_nodes: set[Node] = set()
    for node in nodes:
        operands = (s for s in node.inputs if s is not None)
        if all(map(_is_count, node.outputs)) or all(
            _is_count(s) or isinstance(s.producer, Constant) or s.producer in size_nodes for s in operands
        ):
            size_nodes.add(node)
    return size_nodes


def _is_count(symbol: Symbol) -> bool:
    return isinstance(symbol.type, TensorType) and (symbol.dtype.is_integer or symbol.dtype is DType.bool)


def lack(node: Node, table: dict[str, frozenset[DType]], conditions: Conditions | None = None) -> str:
    """Return why a provider does not run a node; "" if it does. conditions: of kernels, by default those of CUDA."""
    if node.domain:
        return ""
    row = table.get(node.op_type)
    if row is None:
        return "no kernel"
    dtype = kernel_dtype(node.op_type, node.inputs, [node.outputs[0].type])
    if dtype is not None and dtype.storage not in row:
        return f"no kernel for {dtype}" if row else "no kernel"
    condition = (_CONDITIONS if conditions is None else conditions).get(node.op_type)
    return "" if condition is None else condition(node, row)


def _to(node: Node, row: frozenset[DType]) -> str:
    dtype = node.outputs[0].dtype
    return "" if dtype in row else f"no kernel that gives {dtype}"


def _quantized(node: Node, row: frozenset[DType]) -> str:
    x, scale = node.inputs[:2]
    dtype = node.outputs[0].dtype
    if x is None or scale is None or x.dtype is not scale.dtype:
        return "no kernel for a scale of another dtype"
    return "" if dtype in _QUANTIZED else f"no kernel that gives {dtype}"


def _unless_of(dtypes: tuple[DType, ...], place: int, otherwise: str) -> Callable[[Node, frozenset[DType]], str]:
    """Return the condition that an operand has one of these dtypes."""

    def condition(node: Node, row: frozenset[DType]) -> str:
        operand = node.inputs[place]
        return "" if operand is not None and operand.dtype in dtypes else otherwise

    return condition


def _first(node: Node, row: frozenset[DType]) -> str:
    return "no kernel that takes the last of equals" if node.attributes.get("select_last_index") else ""


_QUANTIZED = frozenset({DType.int8, DType.uint8, DType.int4, DType.uint4, DType.float8_e4m3fn, DType.float8_e5m2})
_CONDITIONS: Conditions = {
    "Cast": _to,
    "QuantizeLinear": _quantized,
    "DequantizeLinear": _unless_of((DType.float16, DType.float32), 1, "no kernel for a scale of that dtype"),
    "MatMulInteger": _unless_of((DType.int8,), 1, "no kernel for unsigned bytes"),
    "ArgMax": _first,
    "ArgMin": _first,
    "OneHot": _unless_of((DType.int64,), 0, "no kernel for such indices"),
    "ConvTranspose": lambda node, row: lack_of_transposed(node.attributes),
    **dict.fromkeys(
        having(Trait.RECURRENT), lambda node, row: lack_of_recurrent(node.op_type, node.inputs, node.attributes)
    ),
}
"""Operators whose kernels depend on more than the dtype of one operand."""

_CONDITIONS_OF_WEB: Conditions = {"Cast": lambda node, row: _to(node, row | {DType.int64})}
