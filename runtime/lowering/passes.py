"""The form of a pass of lowering and of a workaround, and the summary of a graph that decides which passes run.

To add a pass, add a row to `pipeline.PIPELINE`, or to `pipeline.WORKAROUNDS` if it avoids a bug of onnxruntime. A
`Policy` (`ir/transform/rewrite.py`) replaces each node while a new graph is built. Fusions and optimisations are rules,
not passes: one walk tries all of them at each node (`passes/sweep.py`), from the tables `fusions.FUSIONS` and
`passes._RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from graphcore.ir.definitions import Definition
from graphcore.ir.graph import Graph, Optimize, Precision
from graphcore.ir.state import settings
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Node, Symbol, present
from graphcore.ir.transform.walk import edit
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.support.source_lines import Imported
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

# The summary of a graph, its bodies and the functions that it calls.

NodeKind: TypeAlias = tuple[str, str, Type | None, Type]
"""The facts of a node that legality depends on: operator, domain, types of the first operand and of the result."""


class Summary:
    """The contents of a graph when the summary is created: create a new one for a changed graph.

    operators: with their domains, including those in bodies and in called functions. op_types: their names. domains:
    their domains except ONNX's own. parts: the graph itself, then its bodies. called: the bodies of the called
    functions, and the bodies in those. is_marked: whether some node has an accuracy setting.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.operators: set[tuple[str, str]] = set()
        self.parts = [graph]
        self.called: list[Graph] = []
        self.is_marked = False
        self._types: set[Type] | None = None
        self._walk()
        self.op_types = frozenset([op_type for op_type, _ in self.operators])
        self.domains = frozenset([domain for _, domain in self.operators if domain])

    def _walk(self) -> None:
        """Collect the operators, the parts and the called functions in one walk."""
        seen: set[Definition] = set()
        for graphs in (self.parts, self.called):
            for graph in graphs:  # which grows meanwhile
                nodes = graph.nodes
                self.operators |= {(node.op_type, node.domain) for node in nodes}
                for node in [node for node in nodes if node.attributes]:
                    if settings.KEY in node.attributes:
                        self.is_marked = True
                    for value in node.attributes.values():
                        if not isinstance(value, (Graph, Definition)):
                            continue
                        if isinstance(value, Graph):
                            graphs.append(value)
                        elif value not in seen:
                            seen.add(value)
                            self.called.append(value.body)

    @property
    def has_calls(self) -> bool:
        """True if a node of the graph or of a body calls a function."""
        return bool(self.called)

    @property
    def types(self) -> set[Type]:
        """The types of all values of the graph and its bodies, collected on first use."""
        if self._types is None:  # functools.cached_property takes a lock
            self._types = {symbol.type for part in self.parts for symbol in part.symbols}
        return self._types

    @property
    def dtypes(self) -> set[DType]:
        """The dtypes of all tensors of the graph and its bodies."""
        return {type_.dtype for type_ in self.types if isinstance(type_, TensorType)}

    @property
    def list_types(self) -> list[Type]:
        """The types of all values of the graph and its bodies that are not tensors."""
        return [type_ for type_ in self.types if not isinstance(type_, TensorType)]

    def nodes(self, op_types: Set[str]) -> Iterator[Node]:
        """Return the nodes of these ONNX operators in the graph and its bodies."""
        parts = () if self.op_types.isdisjoint(op_types) else self.parts
        return (node for part in parts for node in of_onnx(part, op_types))

    def kinds(self, op_type: str) -> set[NodeKind]:
        """Return the kinds of the nodes of one of ONNX's operators in the graph and its bodies."""
        if (op_type, "") not in self.operators:
            return set()
        return {kind for part in self.parts for kind in kinds_of(part, op_type)}


def kinds_of(graph: Graph, op_type: str = "") -> set[NodeKind]:
    """Return the kinds of a graph's own nodes. op_type: only nodes of this ONNX operator."""
    return {
        (n.op_type, n.domain, s.type if n.inputs and (s := n.inputs[0]) is not None else None, n.outputs[0].type)
        for n in graph.nodes
        if n.outputs and (not op_type or (n.op_type == op_type and not n.domain))
    }


@dataclass(slots=True)
class LoweringRun:
    """One run of the pipeline.

    rules: what is legal, at the newest opset at which the runtime has kernels of the graph's operators; newest: the
    same at the runtime's newest opset. trace: the passes that ran, in order, except those on bodies of functions.
    is_fused: whether a fusion matched. source: the graph before the passes that legalise it.
    """

    newest: Legality
    rules: Legality
    precision: Precision | None
    optimize: Optimize
    inline: bool
    trace: list[Pass]
    is_fused: bool = False
    source: Graph | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """A pass. when: the condition, in words. why: its purpose. needed: a quick test of a summary. run: returns the
    changed graph, which can be the same object if an earlier pass created it; None if nothing changed. signs: operators
    of which every graph that needs the pass has one; empty if any graph can."""

    name: str
    when: str
    why: str
    needed: Callable[[Summary, LoweringRun], bool]
    run: Callable[[Summary, LoweringRun], Graph | None]
    signs: frozenset[str] = frozenset()


def node_workaround(
    trap: str,
    why: str,
    signs: Iterable[str],
    find: Callable[[Graph], Iterable[Node]],
    write: Callable[[Graph, Node], None],
    *,
    when: str = "",
    is_of_fusions: bool = False,
    is_of_processors: bool = False,
    in_standard: bool = False,
) -> Pass:
    """Return a pass that works around a bug of onnxruntime by rewriting single nodes.

    trap: the name in `traps.json`, which has the affected releases. signs: operators without which there is nothing to
    do. when: the signs, in words, by default their names. find: yields the affected nodes of a graph or of a body, each
    of them once. write: changes one, after nodes that it adds. is_of_fusions: only operators that a fusion creates are
    affected. is_of_processors: a processor has the bug, not a release: its products of bytes saturate. in_standard:
    apply the workaround to files of standard ONNX too, which onnxruntime would not load or would compute wrongly.
    """

    def is_met(lowering: LoweringRun) -> bool:
        rules, row = lowering.rules, lowering.rules.target
        if not rules.decomposes and not in_standard:
            return False
        if is_of_processors:
            return (row.is_host or not rules.decomposes) and rules.runtime.saturates()
        if is_of_fusions and not (lowering.is_fused and row.takes_empty_operands):
            return False
        return not rules.decomposes or rules.has_trap(trap)

    def run(summary: Summary, lowering: LoweringRun) -> Graph | None:
        is_changed = False
        for graph in summary.parts:
            before = {id(node): partial(write, graph, node) for node in find(graph)}
            if before:
                edit(graph, before)
                is_changed = True
        return summary.graph if is_changed else None

    return Pass(
        trap,
        f"{when or ', '.join(signs)}; the {'processor' if is_of_processors else 'release'} has this trap",
        why,
        lambda summary, lowering: is_met(lowering) and any(True for graph in summary.parts for _ in find(graph)),
        run,
        frozenset(signs),
    )


def operand_workaround(
    trap: str,
    why: str,
    signs: Iterable[str],
    find: Callable[[Graph], Iterable[Node]],
    places: Callable[[Node], Iterable[int]],
    write: Callable[[Graph, Node, int], Symbol],
    **options: Any,
) -> Pass:
    """Return a workaround that replaces single operands.

    find: yields the nodes of a graph that may be affected. places: the positions of affected operands of one of them.
    write: returns another value for the operand at a position, after nodes that it adds. options: those of
    `node_workaround`.
    """

    def write_node(graph: Graph, node: Node) -> None:
        replaced = {place: write(graph, node, place) for place in places(node)}
        change(node, inputs=tuple([replaced.get(place, symbol) for place, symbol in enumerate(node.inputs)]))

    def affected(graph: Graph) -> Iterator[Node]:
        return (node for node in find(graph) if any(True for _ in places(node)))

    return node_workaround(trap, why, signs, affected, write_node, **options)


def of_onnx(graph: Graph, op_types: Container[str]) -> Iterator[Node]:
    """Yield the nodes of these ONNX operators."""
    return (n for n in graph.nodes if n.op_type in op_types and not n.domain)


def matching(is_affected: Callable[[Node], bool], op_types: Container[str]) -> Callable[[Graph], Iterator[Node]]:
    """Return the function that finds such nodes of these ONNX operators in a graph."""
    return lambda graph: filter(is_affected, of_onnx(graph, op_types))


def built_here(graph: Graph, op_types: Container[str]) -> Iterator[Node]:
    """Yield the nodes of these ONNX operators except imported ones, whose files define their meaning."""
    return (n for n in graph.nodes if n.op_type in op_types and not n.domain and type(n.origin) is not Imported)


def hidden(graph: Graph, node: Node, place: int) -> Symbol:
    """Return an operand of floats by way of a Sum of one term, which no optimiser removes or looks through."""
    operand = present(node.inputs[place])
    return graph.build.emit("Sum", (operand,), operand.type)


def sizes_type(count: int | Dim) -> TensorType:
    """Return the type of a vector of axis sizes."""
    return TensorType(DType.int64, [count])
