"""Report what lowering does to a graph, and why: the passes that run, and what becomes of each operator on each dtype.

The graph is lowered with a mark on each of its nodes in place of the user's line. What is made for a node carries its
mark, so that what is reported is what happens to this graph, no more and no less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from graphcore.build.declare import LIBRARY
from graphcore.ir.graph import Graph, Optimize, TargetName
from graphcore.ir.symbol import Node
from graphcore.ir.transform.walk import mark_of, marked, walk
from graphcore.runtime.lowering import lower
from graphcore.runtime.lowering.functions import inlined
from graphcore.runtime.lowering.passes import Pass
from graphcore.runtime.lowering.targets.legality import BY_RESULT, PRIMARY, Legality, legality
from graphcore.runtime.lowering.targets.releases import Runtime
from graphcore.support.escaping import escaped
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

_SHOWN = 3
"""Names of nodes, and operators of a replacement, that a line gives."""

_ORDINARY = frozenset({"Cast", "Identity", "BitCast", "Constant"})
"""Operators that carry values from one dtype to another around the ones that compute."""


@dataclass(slots=True)
class Change:
    """Nodes of one operator and dtype that are not run as they stand, for the same reason and in the same way.

    op_type: with its domain. reason: why the provider's own kernel is not used. action: what is run in its place. made:
    the operators that are, and how many in all. names: of the nodes' results.
    """

    op_type: str
    dtype: str
    reason: str
    action: str
    made: Counter[str] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        shown = ", ".join(self.names[:_SHOWN])
        more = f" and {len(self.names) - _SHOWN} more" if len(self.names) > _SHOWN else ""
        head = " ".join(part for part in (self.op_type, self.dtype, f"x{len(self.names)}") if part)
        return escaped(f"{head}: {self.reason}; {self.action} ({shown}{more})")


@dataclass(slots=True)
class Report:
    """The fate of the nodes of a graph, those in bodies included.

    kept: how many nodes run as they stand, by operator and dtype. changes: those that onnxruntime alone would refuse or
    compute otherwise. fused, faster: the operators that give way to faster ones or are not needed, and what runs in
    their place. added: operators that belong to no node. passes: those that ran, in order.
    """

    kept: Counter[tuple[str, str]] = field(default_factory=Counter)
    changes: list[Change] = field(default_factory=list)
    fused: Counter[str] = field(default_factory=Counter)
    faster: Counter[str] = field(default_factory=Counter)
    added: Counter[str] = field(default_factory=Counter)
    passes: list[Pass] = field(default_factory=list)

    @property
    def changed(self) -> int:
        """Return how many nodes onnxruntime alone would refuse or compute otherwise."""
        return sum(len(change.names) for change in self.changes)

    @property
    def count(self) -> int:
        """Return how many nodes the graph has."""
        return self.kept.total() + self.fused.total() + self.changed

    def operators(self) -> Counter[str]:
        """Return the operators of the lowered graph, and how many of each it has."""
        made = self.faster + self.added
        for (op_type, _), count in self.kept.items():
            made[op_type] += count
        for change in self.changes:
            made += change.made
        return made


def report(graph: Graph, target: TargetName, runtime: Runtime | None = None, optimize: Optimize = "off") -> Report:
    """Return what lowering for `target` does to a graph. Raises `GraphError` as `lower` does.

    runtime: the release that is lowered for, where it is not what files are written for.
    """
    source = marked(inlined(graph))
    nodes = [*walk(source)]
    found = Report()
    lowered = lower(source, target, runtime=runtime, optimize=optimize, trace=found.passes)
    results, found.added = _by_mark(lowered, len(nodes))
    needed = results
    if optimize != "off":
        needed, _ = _by_mark(lower(source, target, runtime=runtime), len(nodes))
    rules = legality(target, runtime)
    changes: dict[tuple[str, str, str, str], Change] = {}
    for number, node in enumerate(nodes):
        own = results[number]
        same = _kept(node, own)
        if same is not None:
            found.kept[named(node), _shown(node)] += 1
            found.added.update(named(n) for n in own if n is not same)
        elif not own or _kept(node, needed[number]) is not None:
            found.fused[named(node)] += 1
            found.faster.update(map(named, own))
        else:
            dtype = _dtype(node)
            key = named(node), _pair(node), _reason(node, dtype, rules), _action(node, dtype, own)
            change = changes.setdefault(key, Change(*key))
            change.made.update(map(named, own))
            change.names.append(_name(node))
    found.changes = [*changes.values()]
    return found


def detour(node: Node, made: list[Node], needed: list[Node], rules: Legality) -> str:
    """Return why a node is not run as it stands and what is run in its place; "" where it is.

    made: what lowering made of it. needed: the same of a lowering that looks for nothing faster.
    """
    if _kept(node, made) is not None:
        return ""
    if not made:
        return "folded into its neighbours, or needed by none"
    if _kept(node, needed) is not None:
        return f"in a faster form: {listed(map(named, made))}"
    dtype = _dtype(node)
    return f"{_reason(node, dtype, rules)}; {_action(node, dtype, made)}"


def listed(counts: Mapping[str, int] | Iterable[str]) -> str:
    """Return operators with their counts as a line has them."""
    return ", ".join(f"{name} x{n}" if n > 1 else name for name, n in Counter(counts).items())


def named(node: Node) -> str:
    """Return the operator of a node, with its domain where that is not ONNX's."""
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _by_mark(lowered: Graph, count: int) -> tuple[list[list[Node]], Counter[str]]:
    """Return the nodes that were made for each node, by its number, and the operators of those made for none."""
    made: list[list[Node]] = [[] for _ in range(count)]
    others: Counter[str] = Counter()
    for node in walk(lowered):
        number = mark_of(node)
        if number is not None:
            made[number].append(node)
        else:
            others[named(node)] += 1
    return made, others


def _kept(node: Node, made: list[Node]) -> Node | None:
    """Return the node that runs a node as it stands; None where others do, or none does."""
    computing = [n for n in made if n.op_type != "Identity"] if node.op_type != "Identity" else made
    if len(computing) != 1:
        return None
    (other,) = computing
    is_same = (
        (other.op_type, other.domain) == (node.op_type, node.domain)
        and _said(other) == _said(node)
        and _types(other) == _types(node)
    )
    return other if is_same else None


def _said(node: Node) -> dict[str, str]:
    return {key: str(value) for key, value in node.attributes.items() if not isinstance(value, Graph)}


def _types(node: Node) -> list[object]:
    """Return the dtypes of operands and results, and of what is no tensor its kind."""
    types = [None if s is None else s.type for s in (*node.inputs, *node.outputs)]
    return [t.dtype if isinstance(t, TensorType) else type(t) for t in types]


def _name(node: Node) -> str:
    return f"{node.layer}{node.outputs[0].name}" if node.outputs[0].given_name is None else node.outputs[0].name


def _shown(node: Node) -> str:
    dtype = _dtype(node)
    return "" if dtype is None else dtype.name


def _pair(node: Node) -> str:
    """Return the dtypes of a cast, else the one."""
    result = node.outputs[0].type
    shown = _shown(node)
    return f"{shown} -> {result.dtype.name}" if node.op_type == "Cast" and isinstance(result, TensorType) else shown


def _dtype(node: Node) -> DType | None:
    """Return the dtype that kernels are chosen by."""
    position = PRIMARY.get(node.op_type, 0)
    operand = node.inputs[position] if position < len(node.inputs) else None
    symbol = node.outputs[0] if operand is None or node.op_type in BY_RESULT else operand
    return symbol.type.dtype if isinstance(symbol.type, TensorType) else None


def _reason(node: Node, dtype: DType | None, rules: Legality) -> str:
    if node.domain == LIBRARY:
        return "an operator of graphcore's own"
    if node.domain and not node.domain.startswith("ai.onnx"):
        return "a custom operator"
    if dtype is not None and dtype.storage is not dtype:
        return f"ONNX has no {dtype.name}"
    row = rules.table.get(node.op_type)
    if row is None or (dtype is not None and dtype not in row):
        return "no kernel"
    return "onnxruntime gives other numbers, or fails, for some values"


def _action(node: Node, dtype: DType | None, made: list[Node]) -> str:
    same = [n for n in made if n.op_type == node.op_type]
    computing = [n for n in made if n.op_type not in _ORDINARY]
    if same and len(computing) == len(same) and node.op_type not in _ORDINARY:
        wide = _dtype(same[0])
        if wide is None or wide is dtype:
            return "with its operands prepared"
        if dtype is not None and wide.bits == dtype.bits:
            return f"computed on the same bits as {wide.name}"
        return f"computed in {wide.name} and {'rounded' if dtype is not None and dtype.is_float else 'brought back'}"
    counts = Counter(map(named, computing or made))
    more = f" and {len(counts) - 2 * _SHOWN} more" if len(counts) > 2 * _SHOWN else ""
    return f"computed by {listed(dict([*counts.items()][: 2 * _SHOWN]))}{more}"
