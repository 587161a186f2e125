"""FLOPs of a graph, node by node: numbers for static shapes, else expressions of the names of dims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from graphcore.analysis.flop_rules import NEGATIVE_DIM, RULES, Rule, Shapes, Size, UnknownShapeError
from graphcore.analysis.layers import layers
from graphcore.build.declare import LIBRARY
from graphcore.errors import ShapeError
from graphcore.ir.definitions import Definition, definition_of, dims_of
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Input, Node, Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.onnx.schemas.other_domains import BLOCKED
from graphcore.onnx.schemas.schemas import MICROSOFT
from graphcore.types.dims import Dim

_MICROSOFT = frozenset({MICROSOFT, BLOCKED})

Functions: TypeAlias = "dict[Definition, Size | str]"
"""The operations of functions that are already counted, or the reason why they cannot be counted."""


@dataclass(frozen=True, slots=True)
class NodeFlops:
    """The operations of one node, including those of its bodies and its function.

    Attributes:
        node: The node.
        name: The name of its result.
        operator: The operator, with its domain.
        layer: The path of its layer, or "".
        flops: A static dim or an expression; None if they are unknown.
        reason: Why they are unknown, or "".
    """

    node: Node
    name: str
    operator: str
    layer: str
    flops: Dim | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Flops:
    """The operations of a graph.

    Attributes:
        nodes: One entry for each node, in order.
        total: The sum of those that are known.
    """

    nodes: tuple[NodeFlops, ...]
    total: Dim

    @property
    def unknown(self) -> tuple[NodeFlops, ...]:
        """The nodes with unknown operations, which are not in the total."""
        return tuple(entry for entry in self.nodes if entry.flops is None)

    def by_layer(self) -> dict[str, Dim]:
        """Return the known operations by the innermost layer of nodes, "" for nodes outside of layers."""
        sums: dict[str, Dim] = {}
        for entry in self.nodes:
            if entry.flops is not None:
                sums[entry.layer] = sums.get(entry.layer, Dim(0)) + entry.flops
        return sums


def flops(graph: Graph, dims: Mapping[str, int | str | Dim] | None = None) -> Flops:
    """Return the floating-point operations of one run of a graph; a multiplication and an addition count as two.

    Matrix products, convolutions, Einsum, recurrent networks and attention count by their sizes, normalisations and
    Softmax by their steps. Reductions count by the elements that they read, element-wise operators by the elements of
    their results. Moving data and casts count as none. An If counts as its more expensive branch, a Loop as its body
    times a constant trip count.

    Args:
        graph: The graph.
        dims: Sizes or other names of named dims, `{"batch": 1}`; other names remain in the results.

    Raises:
        ShapeError: A value of `dims` is neither a size nor a name.
    """
    substitutions = {} if dims is None else dict(dims)
    for name, size in substitutions.items():
        try:
            Dim(name).substitute({name: size})
        except (ValueError, TypeError) as error:
            raise ShapeError(
                f"flops: {name!r:.80}: {size!r:.80}: {error}", help="a dim is a number >= 0 or a name"
            ) from None
    return _Counter(substitutions, {}).graph(graph)


class _Counter:
    def __init__(self, dims: Mapping[str, int | str | Dim], functions: Functions) -> None:
        self.dims = dims
        self.functions = functions
        self.sizes: dict[Dim, Size] = {}

    def graph(self, graph: Graph) -> Flops:
        graph_layers = layers(graph)
        entries, total = [], Dim(0)
        for position, node in enumerate(graph.nodes):
            counted = self.node(node)
            name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            value = None if isinstance(counted, str) else (counted if isinstance(counted, Dim) else Dim(counted))
            reason = counted if isinstance(counted, str) else ""
            result = node.outputs[0].name if node.outputs else ""
            entries.append(NodeFlops(node, result, name, graph_layers.path_of(position), value, reason))
            if value is not None:
                total = total + value
        return Flops(tuple(entries), total)

    def size(self, dim: Dim) -> Size:
        size = self.sizes.get(dim)
        if size is None:
            substituted = dim.substitute(self.dims)
            size = self.sizes[dim] = substituted if substituted.value is None else substituted.value
        return size

    def node(self, node: Node) -> Size | str:
        """Return the operations of a node, or the reason why they are unknown."""
        definition = definition_of(node)
        if definition is not None:
            return self.call(node, definition)
        if any(isinstance(value, Graph) for value in node.attributes.values()) and not node.domain:
            return self.with_bodies(node)
        rule = _rule_of(node)
        if rule is None:
            return "no rule for this operator"
        try:
            return rule(Shapes(node, self.size))
        except UnknownShapeError as error:
            return str(error)
        except (ZeroDivisionError, TypeError):
            return "the dims of its operands do not match"

    def total(self, graph: Graph) -> Size | str:
        """Return the operations of all nodes of a graph, or the reason why they are unknown."""
        total: Size = 0
        for node in graph.nodes:
            counted = self.node(node)
            if isinstance(counted, str):
                return f"{node.op_type} in it: {counted}"
            total = counted + total
        return total

    def call(self, node: Node, definition: Definition) -> Size | str:
        counted = self.functions.get(definition)
        if counted is None:
            # Names of dims are local to a body: a call substitutes them.
            counted = self.functions[definition] = _Counter({}, self.functions).total(definition.body)
        if isinstance(counted, (str, int)):
            return counted
        size = counted.substitute(dims_of(node)).substitute(self.dims)
        if size.is_dynamic:
            return "a dim is not known"
        return size if size.value is None or size.value >= 0 else NEGATIVE_DIM

    def with_bodies(self, node: Node) -> Size | str:
        counted = [self.total(value) for value in node.attributes.values() if isinstance(value, Graph)]
        sizes = [c for c in counted if not isinstance(c, str)]
        if len(sizes) < len(counted):
            return next(c for c in counted if isinstance(c, str))
        if node.op_type == "If" and len(sizes) == 2:
            return Dim.maximum(*sizes)
        trips = _trips(node, self) if len(sizes) == 1 else None
        return "its trip count is not constant" if trips is None else sizes[0] * trips


def _rule_of(node: Node) -> Rule | None:
    if node.domain in _MICROSOFT:
        return RULES.get((MICROSOFT, node.op_type)) or RULES.get(("", node.op_type))
    return RULES.get(("" if node.domain == LIBRARY else node.domain, node.op_type))


def _trips(node: Node, counter: _Counter) -> Size | None:
    """Return the trip count of a loop, or None if it is not constant."""
    if node.op_type == "Scan":
        count = node.attributes.get("num_scan_inputs")
        axes = node.attributes.get("scan_input_axes") or (0,)
        scanned = node.inputs[-count] if isinstance(count, int) and 0 < count <= len(node.inputs) else None
        try:
            return Shapes(node, counter.size).of(scanned)[int(axes[0])]
        except (UnknownShapeError, IndexError):
            return None
    if node.op_type != "Loop" or not _always_continues(node):
        return None
    count = constant_array(node.inputs[0] if node.inputs else None, weights=True, outer=True)
    return None if count is None or count.size != 1 else max(int(count.reshape(-1)[0]), 0)


def _always_continues(node: Node) -> bool:
    """Return True if the condition of a Loop is always true."""
    body = node.attributes.get("body")
    start = node.inputs[1] if len(node.inputs) > 1 else None
    if not isinstance(body, Graph) or not body.outputs or len(body.input_symbols) < 2:
        return False
    if start is not None and not _is_true(start):
        return False
    condition: Symbol = body.outputs[0]
    while isinstance(condition.producer, Node) and condition.producer.op_type == "Identity":
        (operand,) = condition.producer.inputs
        if operand is None:
            return False
        condition = operand
    return _is_true(condition) or (isinstance(condition.producer, Input) and condition is body.input_symbols[1])


def _is_true(symbol: Symbol) -> bool:
    array = constant_array(symbol, weights=True, outer=True)
    return array is not None and array.size == 1 and bool(array.reshape(-1)[0])
