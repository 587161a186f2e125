"""What a rule of shapes is asked: a node's operands as far as they are known; rules of elementwise operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from graphcore.errors import ShapeError
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, _shape

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


# Elementwise operators: those of one operand keep its shape, the others have the shape that operands broadcast to.


def same(call: Call) -> Shape | None:
    """Results have the shape of operand 0."""
    return call.shapes[0]


def pairs(call: Call) -> Shape:
    """ToPairs: a last axis of two comes in."""
    dims = call.dims(0)
    return Shape.unknown() if dims is None else _shape([*dims, Dim(2)])


def of_pairs(call: Call) -> Shape:
    """FromPairs: the last axis goes."""
    dims = call.dims(0)
    return Shape.unknown() if dims is None else _shape(dims[:-1])


def broadcast(call: Call) -> Shape | None:
    """The shape that the operands broadcast to."""
    shapes = [s for s in call.shapes if s is not None]
    if not shapes or "broadcast" in call.attributes:  # by which opset 6 and those before it say where axes go
        return None
    first = shapes[0]
    if all(shape is first or shape == first for shape in shapes):
        return first
    if not all(shape.is_ranked for shape in shapes):
        return Shape.unknown()
    return _shape(joint_dims(shapes))


def joint_dims(shapes: Sequence[Sequence[Dim]]) -> list[Dim]:
    """Return the dims that shapes broadcast to, as far as they are known. Raises `ShapeError`.

    Beside a 1 stands the other dim, beside another number that number; of two dims that may differ it is neither.
    """
    rank = max(map(len, shapes))
    dims: list[Dim] = []
    for position in range(-rank, 0):
        chosen = Dim(1)
        for shape in shapes:
            if len(shape) >= -position:
                chosen = _joint(chosen, shape[position], position)
        dims.append(chosen)
    return dims


def _joint(a: Dim, b: Dim, position: int) -> Dim:
    if a is b or b == 1:
        return a
    if a == 1:
        return b
    if a.is_static and b.is_static:
        raise ShapeError(f"shapes do not broadcast: {a} and {b} at axis {position}", help="make the dims equal or 1")
    for one, other in ((a, b), (b, a)):
        if one.is_static:  # which the other then is, or 1
            return one
        if not one.is_dynamic and not other.is_dynamic and _is_cut(other, one):
            return one
    return UNKNOWN


def _is_cut(dim: Dim, whole: Dim) -> bool:
    """Return whether a dim is another one or a smaller number above 0: if the two broadcast they are equal."""
    return (
        dim._op == "min"
        and any(d == whole for d in dim._args)
        and all(d == whole or (d.lower_bound or 0) > 0 for d in dim._args)
    )


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    """Return the shape that the operands of an op broadcast to. Raises `ValueError` naming the two dims that do not.

    Two dims that are not provably equal go together only if one of them is 1 or unknown: stricter than `broadcast`,
    which takes what a file has.
    """
    first = shapes[0]
    for shape in shapes:
        if shape is not first and shape != first:
            break
    else:
        return first
    if not all(s.is_ranked for s in shapes):
        return Shape.unknown()
    rank = max(map(len, shapes))
    clash = ""  # of dims that may turn out to be equal: two numbers that differ are the better reason
    dims = []
    for position in range(-rank, 0):
        chosen = None
        for shape in shapes:
            if len(shape) < -position:
                continue
            dim = shape[position]
            if chosen is None or chosen is dim or chosen == 1:
                chosen = dim
            elif dim == 1:
                continue
            elif chosen.is_dynamic:
                chosen = dim
            elif not dim.is_dynamic:
                clash = clash or f"{chosen} and {dim} at axis {position}"
                if chosen.is_static and dim.is_static:
                    raise ValueError(f"{chosen} and {dim} at axis {position}")
        assert chosen is not None
        dims.append(chosen)
    if clash:
        raise ValueError(clash)
    return _shape(dims)
