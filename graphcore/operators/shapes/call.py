"""What a rule of shapes is asked: the operands of a node, as far as they are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from graphcore.errors import ShapeError
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape

Size: TypeAlias = "int | Dim | None"
"""An element: known, known as a dim, or not known."""

Value: TypeAlias = "Size | tuple[Size, ...]"
"""A scalar or a vector."""

UNKNOWN = Dim.dynamic()

NEWEST = 1 << 30


@dataclass(slots=True)
class Call:
    """A node whose results have no shapes yet.

    shapes: of the operands, `Shape.unknown()` for one of unknown rank, None for one that is left out. attributes: of
    the node. count: of its results. value: what is known of the elements of an operand of integers or bools, which is
    a scalar or a short vector. array: the elements of an operand that is a constant. since: the version of ONNX since
    which the operator is what it is to the node.
    """

    shapes: Sequence[Shape | None]
    attributes: Mapping[str, Any]
    count: int = 1
    value: Callable[[int], Value] = lambda position: None
    array: Callable[[int], Any] = lambda position: None
    since: int = NEWEST

    def has(self, position: int) -> bool:
        """Return whether an operand is there."""
        return position < len(self.shapes) and self.shapes[position] is not None

    def dims(self, position: int) -> list[Dim] | None:
        """Return the dims of an operand; None where not even their number is known, or it is left out."""
        shape = self.shapes[position] if position < len(self.shapes) else None
        return None if shape is None or not shape.is_ranked else [*shape]


Rule: TypeAlias = "Callable[[Call], Shape | list[Shape] | None]"
"""A rule gives the shape of all results, or one for each; None where only ONNX's inference tells.

Raises `ShapeError` for operands that the operator does not take. Names of dims that differ may stand for one size: a
file may have them, while ops refuse them.
"""


def shapes_of(rule: Rule, call: Call) -> list[Shape] | None:
    """Return the shape of each result by a rule; None where it does not tell. Raises `ShapeError` as rules do."""
    made = rule(call)
    return made if made is None or isinstance(made, list) else [made] * call.count


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from 0. Raises `ShapeError`."""
    if not -rank <= axis < rank:
        raise ShapeError(f"there is no axis {axis} in an operand of rank {rank}", help="name an axis that there is")
    return axis % rank


def size_of(dim: Dim) -> Size:
    """Return a dim as an element."""
    if dim.is_dynamic:
        return None
    return int(dim) if dim.is_static else dim


def dim_of(size: Size) -> Dim:
    """Return the size of an axis; a number below 0 is none."""
    if size is None or (isinstance(size, int) and size < 0):
        return UNKNOWN
    return Dim(size) if isinstance(size, int) else size
