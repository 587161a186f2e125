"""The form of a pass of lowering, and of the guards: passes that write single nodes in another way.

A pass is added by a row of `pipeline.PIPELINE`, or of `pipeline.GUARDS` if it keeps onnxruntime from taking nodes for
something else. What becomes of each node of a new graph is said by a `Policy` (`ir/transform/rewrite.py`). Fusions and
optimisations are rules, not passes: one walk tries all of them at each node (`passes/sweep.py`), by the tables
`fusions.FUSIONS` and `passes._RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from graphcore.ir.graph import Graph, Optimize, Precision
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Node
from graphcore.ir.transform.walk import edit
from graphcore.runtime.lowering.summary import Summary
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.support.source_lines import Imported
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType


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


def guard(
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
    there is nothing to guard. is_needed: tells of a graph and its bodies. run: edits a new graph and its bodies, and
    returns whether it changed any. is_of_fusions: whether only operators that a fusion made are guarded.
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
    """Return the guard that writes single nodes in another way.

    found: the nodes of a graph that are meant, each of them once. write: changes one, after nodes that it adds. flags:
    of the guard.
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

    return guard(trap, when, why, signs, is_needed, run, **flags)


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
