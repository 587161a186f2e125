"""The form of a guard: a pass that keeps onnxruntime from taking nodes for something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node
from graphcore.ir.transform.edit import edit


@dataclass(frozen=True, slots=True)
class Guard:
    """A pass that keeps onnxruntime from taking nodes for something else.

    trap: by whose name `traps.json` has the releases that do. when: the signs, in words. signs: operators without which
    there is nothing to guard. is_needed: tells of a graph and its bodies. run: edits a new graph and its bodies, and
    returns whether it changed any. is_of_fusions: whether only operators that a fusion made are guarded.
    """

    trap: str
    when: str
    why: str
    signs: frozenset[str]
    is_needed: Callable[[Sequence[Graph]], bool]
    run: Callable[[Sequence[Graph]], bool]
    is_of_fusions: bool = False


def edit_each(graph: Graph, change: Callable[[Node], bool]) -> bool:
    """Call `change` with each node of a graph; what it makes stands before that node, in its layer and of its origin.

    Return whether any call returned True.
    """
    changed: list[bool] = []
    with edit(graph) as nodes:
        for node in nodes:
            nodes.insert_before(node, partial(_note, changed, change, node))
    return any(changed)


def _note(changed: list[bool], change: Callable[[Node], bool], node: Node) -> None:
    changed.append(change(node))


__all__ = ["Guard", "edit_each"]
