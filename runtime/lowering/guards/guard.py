"""The form of a guard: a pass that keeps onnxruntime from taking nodes for something else."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Node
from graphcore.ir.transform.walk import edit
from graphcore.support.source_lines import Imported
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType


@dataclass(frozen=True, slots=True)
class Guard:
    """A pass that keeps onnxruntime from taking nodes for something else.

    trap: by whose name `traps.json` has the releases that do. when: the signs, in words. signs: operators without which
    there is nothing to guard. is_needed: tells of a graph and its bodies. run: edits a new graph and its bodies, and
    returns whether it changed any. is_of_fusions: whether only operators that a fusion made are guarded.
    is_of_processors: whether not a release but a processor has the trap, whose products of bytes saturate.
    in_standard: whether files of standard ONNX are guarded too, which onnxruntime would not load or compute wrongly.
    """

    trap: str
    when: str
    why: str
    signs: frozenset[str]
    is_needed: Callable[[Sequence[Graph]], bool]
    run: Callable[[Sequence[Graph]], bool]
    is_of_fusions: bool = False
    is_of_processors: bool = False
    in_standard: bool = False


def rewriting(
    trap: str,
    when: str,
    why: str,
    signs: Iterable[str],
    found: Callable[[Graph], Iterable[Node]],
    write: Callable[[Graph, Node], None],
    **flags: bool,
) -> Guard:
    """Return the guard that writes single nodes in another way.

    found: the nodes of a graph that are meant, each of them once. write: changes one, after nodes that it adds. flags:
    of the guard.
    """

    def is_needed(parts: Sequence[Graph]) -> bool:
        return any(True for graph in parts for _ in found(graph))

    def run(parts: Sequence[Graph]) -> bool:
        is_changed = False
        for graph in parts:
            meant = list(found(graph))
            with edit(graph) as nodes:
                for node in meant:
                    nodes.insert_before(node, partial(write, graph, node))
            is_changed |= bool(meant)
        return is_changed

    return Guard(trap, when, why, frozenset(signs), is_needed, run, **flags)


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
