"""The form of a pass of lowering, and of the workarounds; and the summary of a graph by which passes are chosen.

A pass is added by a row of `pipeline.PIPELINE`, or of `pipeline.WORKAROUNDS` if it works around a fault of
onnxruntime. A `Policy` (`ir/transform/rewrite.py`) says what becomes of each node of a new graph. Fusions and
optimisations are rules, not passes: one walk tries all of them at each node (`passes/sweep.py`), by the tables
`fusions.FUSIONS` and `passes._RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from graphcore.ir.definitions import Definition
from graphcore.ir.graph import Graph, Optimize, Precision
from graphcore.ir.state import settings
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Node
from graphcore.ir.transform.walk import edit
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.support.source_lines import Imported
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

# A summary of a graph, its bodies and the functions that it calls: what the passes of lowering are chosen by.

Kind: TypeAlias = tuple[str, str, Type | None, Type]
"""The facts of a node that legality depends on: operator, domain, types of the first operand and result."""


class Summary:
    """The contents of a graph when the summary is made: make a new one of a changed graph.

    operators: with their domains, those in bodies and in called functions included. op_types: their names. domains:
    theirs but ONNX's own. parts: the graph itself, then the bodies in it. called: the bodies of the functions that are
    called, and the bodies in those. is_marked: whether some node says how accurate it is to be.
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
        """Find the operators of all, the parts and the functions in one walk."""
        seen: set[Definition] = set()
        for own in (self.parts, self.called):
            for graph in own:  # which grows meanwhile
                nodes = graph.nodes
                self.operators |= {(node.op_type, node.domain) for node in nodes}
                for node in [node for node in nodes if node.attributes]:
                    if settings.KEY in node.attributes:
                        self.is_marked = True
                    for value in node.attributes.values():
                        if not isinstance(value, (Graph, Definition)):
                            continue
                        if isinstance(value, Graph):
                            own.append(value)
                        elif value not in seen:
                            seen.add(value)
                            self.called.append(value.body)

    @property
    def has_calls(self) -> bool:
        """Return whether a node of the graph or of a body calls a function."""
        return bool(self.called)

    @property
    def types(self) -> set[Type]:
        """The types of all values of the graph and its bodies: a walk of its own, on first use."""
        if self._types is None:  # functools.cached_property takes a lock
            self._types = {symbol.type for part in self.parts for symbol in part.symbols}
        return self._types

    @property
    def dtypes(self) -> set[DType]:
        """The dtypes of all tensors of the graph and its bodies."""
        return {type_.dtype for type_ in self.types if isinstance(type_, TensorType)}

    @property
    def list_types(self) -> list[Type]:
        """The types of all values of the graph and its bodies that are no tensors."""
        return [type_ for type_ in self.types if not isinstance(type_, TensorType)]

    def kinds(self, op_type: str) -> set[Kind]:
        """Return the kinds of the nodes of one of ONNX's operators in the graph and its bodies."""
        if (op_type, "") not in self.operators:
            return set()
        return {kind for part in self.parts for kind in kinds_of(part, op_type)}


def kinds_of(graph: Graph, op_type: str = "") -> set[Kind]:
    """Return the kinds of a graph's own nodes. op_type: of those of this one of ONNX's operators."""
    return {
        (n.op_type, n.domain, s.type if n.inputs and (s := n.inputs[0]) is not None else None, n.outputs[0].type)
        for n in graph.nodes
        if n.outputs and (not op_type or (n.op_type == op_type and not n.domain))
    }


@dataclass(slots=True)
class Lowering:
    """One run of the pipeline.

    rules: what is legal, at the newest opset at which the runtime has kernels of the graph's operators; newest: the
    same at the runtime's newest opset. trace: the passes that ran, in order; those of bodies of functions are not told.
    is_fused: whether a fusion was found. source: the graph before the passes that make it legal.
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
    """A pass. when: in words. why: what it is for. needed: a quick test of a summary. run: returns the changed graph,
    which may be the given one where that was made by a pass before; None where there turned out to be nothing to do.
    signs: operators, one of which every graph that needs it has; empty where any may."""

    name: str
    when: str
    why: str
    needed: Callable[[Summary, Lowering], bool]
    run: Callable[[Summary, Lowering], Graph | None]
    signs: frozenset[str] = frozenset()


def workaround(
    trap: str,
    when: str,
    why: str,
    signs: Iterable[str],
    is_needed: Callable[[Sequence[Graph]], bool],
    run: Callable[[Sequence[Graph]], bool],
    *,
    is_of_fusions: bool = False,
    is_of_processors: bool = False,
    in_standard: bool = False,
) -> Pass:
    """Return a pass that keeps onnxruntime from taking nodes for something else.

    trap: by whose name `traps.json` has the releases that do. when: the signs, in words. signs: operators without which
    there is nothing to do. is_needed: tells of a graph and its bodies. run: edits a new graph and its bodies, and
    returns True if it changed any. is_of_fusions: True if only operators that a fusion made are affected.
    is_of_processors: whether not a release but a processor has the trap, whose products of bytes saturate.
    in_standard: whether files of standard ONNX are guarded too, which onnxruntime would not load or compute wrongly.
    """

    def is_met(to: Lowering) -> bool:
        rules, row = to.rules, to.rules.target
        if not rules.decomposes and not in_standard:
            return False
        if is_of_processors:
            return (row.is_host or not rules.decomposes) and rules.runtime.saturates()
        if is_of_fusions and not (to.is_fused and row.takes_empty_operands):
            return False
        return not rules.decomposes or rules.has_trap(trap)

    return Pass(
        trap,
        f"{when}; the {'processor' if is_of_processors else 'release'} has this trap",
        why,
        lambda has, to: is_met(to) and is_needed(has.parts),
        lambda has, to: has.graph if run(has.parts) else None,
        frozenset(signs),
    )


def rewriting(
    trap: str,
    when: str,
    why: str,
    signs: Iterable[str],
    found: Callable[[Graph], Iterable[Node]],
    write: Callable[[Graph, Node], None],
    **flags: bool,
) -> Pass:
    """Return the workaround that writes single nodes in another way.

    found: the nodes of a graph that are meant, each of them once. write: changes one, after nodes that it adds. flags:
    of the workaround.
    """

    def is_needed(parts: Sequence[Graph]) -> bool:
        return any(True for graph in parts for _ in found(graph))

    def run(parts: Sequence[Graph]) -> bool:
        is_changed = False
        for graph in parts:
            before = {id(node): partial(write, graph, node) for node in found(graph)}
            if before:
                edit(graph, before)
                is_changed = True
        return is_changed

    return workaround(trap, when, why, signs, is_needed, run, **flags)


def of_onnx(graph: Graph, op_types: Container[str]) -> Iterator[Node]:
    """Yield the nodes of these operators of ONNX."""
    return (n for n in graph.nodes if n.op_type in op_types and not n.domain)


def built_here(graph: Graph, op_types: Container[str]) -> Iterator[Node]:
    """Yield the nodes of these operators of ONNX, less those that were read: their files say what is meant."""
    return (n for n in graph.nodes if n.op_type in op_types and not n.domain and type(n.origin) is not Imported)


def hide(graph: Graph, node: Node, place: int) -> None:
    """Give an operand of floats by a Sum of it alone, which no optimiser leaves out or looks through."""
    inputs = [*node.inputs]
    operand = inputs[place]
    assert operand is not None
    inputs[place] = graph.build.emit("Sum", (operand,), operand.type)
    change(node, inputs=tuple(inputs))


def sizes_type(count: int | Dim) -> TensorType:
    """Return the type of so many sizes of axes."""
    return TensorType(DType.int64, [count])
