"""Reports what lowering does to a graph and why: the passes that run, and the replacements of operators by dtype.

The graph is lowered with a mark on each of its nodes in place of the user's source line. Nodes built for a node carry
its mark, so the report shows exactly what happens to this graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from graphcore.build.declare import LIBRARY
from graphcore.ir.graph import Graph, Optimize, TargetName
from graphcore.ir.symbol import Node
from graphcore.ir.transform.walk import mark_of, marked, walk
from graphcore.runtime import lowering
from graphcore.runtime.lowering.passes import Pass
from graphcore.runtime.lowering.targets.legality import Legality, kernel_dtype, legality
from graphcore.runtime.lowering.targets.releases import Runtime
from graphcore.support.escaping import escaped
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

_MAX_NAMES = 3
"""Names of nodes, and half the number of replacing operators, that a line shows."""

_ORDINARY = frozenset({"Cast", "Identity", "BitCast", "Constant"})
"""Operators that move values between dtypes around the operators that compute."""


@dataclass(slots=True)
class LoweringChange:
    """Nodes of one operator and dtype that are replaced for the same reason in the same way.

    op_type: with its domain. reason: why the provider's own kernel is not used. action: how the nodes are computed.
    computed_by: the operators that run instead, with their counts. names: the names of the nodes' results.
    """

    op_type: str
    dtype: str
    reason: str
    action: str
    computed_by: Counter[str] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        names = ", ".join(self.names[:_MAX_NAMES])
        more = f" and {len(self.names) - _MAX_NAMES} more" if len(self.names) > _MAX_NAMES else ""
        head = " ".join(part for part in (self.op_type, self.dtype, f"x{len(self.names)}") if part)
        return escaped(f"{head}: {self.reason}; {self.action} ({names}{more})")

    def as_dict(self) -> dict[str, object]:
        """Return the operator, the number of nodes and what happens to them as plain values, for JSON."""
        fields = {"operator": self.op_type, "dtype": self.dtype, "count": len(self.names)}
        return fields | {"reason": self.reason, "action": self.action}


@dataclass(slots=True)
class LoweringReport:
    """What lowering does to the nodes of a graph, including those in bodies.

    unchanged: the number of nodes that run unchanged, by operator and dtype. changes: nodes that onnxruntime alone
    would refuse or compute differently. fused, faster: operators that are not needed or have a faster form, and the
    operators that run instead. added: operators that belong to no node. passes: the passes that ran, in order.
    """

    unchanged: Counter[tuple[str, str]] = field(default_factory=Counter)
    changes: list[LoweringChange] = field(default_factory=list)
    fused: Counter[str] = field(default_factory=Counter)
    faster: Counter[str] = field(default_factory=Counter)
    added: Counter[str] = field(default_factory=Counter)
    passes: list[Pass] = field(default_factory=list)

    @property
    def changed(self) -> int:
        """Return the number of nodes that onnxruntime alone would refuse or compute differently."""
        return sum(len(change.names) for change in self.changes)

    @property
    def count(self) -> int:
        """Return the number of nodes of the graph."""
        return self.unchanged.total() + self.fused.total() + self.changed

    def operators(self) -> Counter[str]:
        """Return the operators of the lowered graph with their counts."""
        counts = self.faster + self.added
        for (op_type, _), count in self.unchanged.items():
            counts[op_type] += count
        for change in self.changes:
            counts += change.computed_by
        return counts


def report(
    graph: Graph, target: TargetName, runtime: Runtime | None = None, optimize: Optimize = "off"
) -> LoweringReport:
    """Report what lowering for `target` does to a graph. Raises `GraphError` as `lower` does.

    runtime: the release to lower for; by default the one that files are written for.
    """
    source = marked(lowering.inlined(graph))
    nodes = [*walk(source)]
    result = LoweringReport()
    lowered = lowering.lower(source, target, runtime=runtime, optimize=optimize, trace=result.passes)
    results, result.added = _by_mark(lowered, len(nodes))
    needed = results
    if optimize != "off":
        needed, _ = _by_mark(lowering.lower(source, target, runtime=runtime), len(nodes))
    rules = legality(target, runtime)
    changes: dict[tuple[str, str, str, str], LoweringChange] = {}
    for number, node in enumerate(nodes):
        replacements = results[number]
        same = _unchanged_node(node, replacements)
        if same is not None:
            result.unchanged[named(node), _dtype_name(node)] += 1
            result.added.update(named(n) for n in replacements if n is not same)
        elif not replacements or _unchanged_node(node, needed[number]) is not None:
            result.fused[named(node)] += 1
            result.faster.update(map(named, replacements))
        else:
            dtype = _dtype(node)
            key = named(node), _pair(node), _reason(node, dtype, rules), _action(node, dtype, replacements)
            change = changes.setdefault(key, LoweringChange(*key))
            change.computed_by.update(map(named, replacements))
            change.names.append(_name(node))
    result.changes = [*changes.values()]
    return result


def detour(node: Node, lowered: list[Node], needed: list[Node], rules: Legality) -> str:
    """Return why a node is replaced and by what; "" if it runs unchanged.

    lowered: the nodes that lowering built for it. needed: the same without fusions.
    """
    if _unchanged_node(node, lowered) is not None:
        return ""
    if not lowered:
        return "folded into its neighbours, or not needed"
    if _unchanged_node(node, needed) is not None:
        return f"in a faster form: {listed(map(named, lowered))}"
    dtype = _dtype(node)
    return f"{_reason(node, dtype, rules)}; {_action(node, dtype, lowered)}"


def listed(counts: Mapping[str, int] | Iterable[str]) -> str:
    """Return operators with their counts as text."""
    return ", ".join(f"{name} x{n}" if n > 1 else name for name, n in Counter(counts).items())


def named(node: Node) -> str:
    """Return the operator of a node, with its domain unless it is ONNX's."""
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _by_mark(lowered: Graph, count: int) -> tuple[list[list[Node]], Counter[str]]:
    """Return the nodes that were built for each node, by its number, and the operators of those that belong to none."""
    nodes: list[list[Node]] = [[] for _ in range(count)]
    others: Counter[str] = Counter()
    for node in walk(lowered):
        number = mark_of(node)
        if number is not None:
            nodes[number].append(node)
        else:
            others[named(node)] += 1
    return nodes, others


def _unchanged_node(node: Node, lowered: list[Node]) -> Node | None:
    """Return the node that runs a node unchanged; None if others replace it."""
    computing = [n for n in lowered if n.op_type != "Identity"] if node.op_type != "Identity" else lowered
    if len(computing) != 1:
        return None
    (other,) = computing
    is_same = (
        (other.op_type, other.domain) == (node.op_type, node.domain)
        and _attribute_texts(other) == _attribute_texts(node)
        and _types(other) == _types(node)
    )
    return other if is_same else None


def _attribute_texts(node: Node) -> dict[str, str]:
    return {key: str(value) for key, value in node.attributes.items() if not isinstance(value, Graph)}


def _types(node: Node) -> list[object]:
    """Return the dtypes of operands and results, and the classes of types other than tensors."""
    types = [None if s is None else s.type for s in (*node.inputs, *node.outputs)]
    return [t.dtype if isinstance(t, TensorType) else type(t) for t in types]


def _name(node: Node) -> str:
    return f"{node.layer}{node.outputs[0].name}" if node.outputs[0].given_name is None else node.outputs[0].name


def _dtype_name(node: Node) -> str:
    dtype = _dtype(node)
    return "" if dtype is None else dtype.name


def _pair(node: Node) -> str:
    """Return the dtypes of a cast, or the dtype of another node."""
    result = node.outputs[0].type
    name = _dtype_name(node)
    return f"{name} -> {result.dtype.name}" if node.op_type == "Cast" and isinstance(result, TensorType) else name


def _dtype(node: Node) -> DType | None:
    return kernel_dtype(node.op_type, node.inputs, [node.outputs[0].type])


def _reason(node: Node, dtype: DType | None, rules: Legality) -> str:
    if node.domain == LIBRARY:
        return "an operator of the graphcore domain"
    if node.domain and not node.domain.startswith("ai.onnx"):
        return "a custom operator"
    if dtype is not None and dtype.storage is not dtype:
        return f"ONNX has no {dtype.name}"
    row = rules.table.get(node.op_type)
    if row is None or (dtype is not None and dtype not in row):
        return "no kernel"
    return "onnxruntime computes some values wrongly, or fails"


def _action(node: Node, dtype: DType | None, lowered: list[Node]) -> str:
    same = [n for n in lowered if n.op_type == node.op_type]
    computing = [n for n in lowered if n.op_type not in _ORDINARY]
    if same and len(computing) == len(same) and node.op_type not in _ORDINARY:
        wide = _dtype(same[0])
        if wide is None or wide is dtype:
            return "with its operands prepared"
        if dtype is not None and wide.bits == dtype.bits:
            return f"computed on the same bits as {wide.name}"
        return f"computed in {wide.name} and {'rounded' if dtype is not None and dtype.is_float else 'brought back'}"
    counts = Counter(map(named, computing or lowered))
    more = f" and {len(counts) - 2 * _MAX_NAMES} more" if len(counts) > 2 * _MAX_NAMES else ""
    return f"computed by {listed(dict([*counts.items()][: 2 * _MAX_NAMES]))}{more}"
