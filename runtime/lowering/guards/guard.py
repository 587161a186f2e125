"""The form of a guard: a pass that keeps onnxruntime from taking nodes for something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphcore.ir.graph import Graph


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


__all__ = ["Guard"]
