"""The argument of shape rules, a node with the known properties of its operands; rules of elementwise operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from graphcore.errors import ShapeError
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, _shape

Size: TypeAlias = "int | Dim | None"
"""An element: a number, a dim, or None if it is unknown."""

Value: TypeAlias = "Size | tuple[Size, ...]"
"""A scalar or a vector."""

UNKNOWN = Dim.dynamic()

NEWEST = 1 << 30


@dataclass(slots=True)
class OperatorCall:
    """A node whose results have no shapes yet.

    shapes: the shapes of the operands, `Shape.unknown()` for unknown rank, None for omitted operands. attributes: those
    of the node. count: the number of results. value: returns the known elements of an integer or bool operand that is a
    scalar or a short vector. array: returns the elements of a constant operand. since: the opset version that
    introduced this version of the operator.
    """

    shapes: Sequence[Shape | None]
    attributes: Mapping[str, Any]
    count: int = 1
    value: Callable[[int], Value] = lambda position: None
    array: Callable[[int], Any] = lambda position: None
    since: int = NEWEST

    def has(self, position: int) -> bool:
        """Return True if an operand is present."""
        return position < len(self.shapes) and self.shapes[position] is not None

    def dims(self, position: int) -> list[Dim] | None:
        """Return the dims of an operand; None if its rank is unknown, or it is omitted."""
        shape = self.shapes[position] if position < len(self.shapes) else None
        return None if shape is None or not shape.is_ranked else [*shape]

    def ranked(self, position: int) -> list[Dim]:
        """Return the dims of an operand. Raises `UnknownRank` if there are none: then no result has a known rank."""
        dims = self.dims(position)
        if dims is None:
            raise UnknownRank
        return dims


class UnknownRank(Exception):
    """The rank of an operand that decides the ranks of all results is unknown."""


Rule: TypeAlias = "Callable[[OperatorCall], Shape | list[Shape] | None]"
"""A rule returns the shape of all results, or one shape per result; None to leave it to ONNX's inference.

Raises `ShapeError` for invalid operands. Different names of dims may have the same size, as in imported models; ops are
stricter.
"""


def shapes_of(rule: Rule, call: OperatorCall) -> list[Shape] | None:
    """Return the shape of each result by a rule; None if the rule cannot determine it. Raises `ShapeError`."""
    try:
        result = rule(call)
    except UnknownRank:
        return [Shape.unknown()] * call.count
    return result if result is None or isinstance(result, list) else [result] * call.count


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from 0. Raises `ShapeError`."""
    if not -rank <= axis < rank:
        raise ShapeError(f"there is no axis {axis} in an operand of rank {rank}", help="use an existing axis")
    return axis % rank


def size_of(dim: Dim) -> Size:
    """Return a dim as an element."""
    if dim.is_dynamic:
        return None
    return int(dim) if dim.is_static else dim


def dim_of(size: Size) -> Dim:
    """Return an element as the size of an axis; a negative number is unknown."""
    if size is None or (isinstance(size, int) and size < 0):
        return UNKNOWN
    return Dim(size) if isinstance(size, int) else size


# Elementwise operators: the shape of one operand is kept, several operands broadcast.


def same(call: OperatorCall) -> Shape | None:
    """Return the shape of operand 0."""
    return call.shapes[0]


def pairs(call: OperatorCall) -> Shape:
    """ToPairs: adds a last axis of size 2."""
    return _shape([*call.ranked(0), Dim(2)])


def of_pairs(call: OperatorCall) -> Shape:
    """FromPairs: removes the last axis."""
    return _shape(call.ranked(0)[:-1])


def broadcast(call: OperatorCall) -> Shape | None:
    """Return the shape that the operands broadcast to."""
    shapes = [s for s in call.shapes if s is not None]
    if not shapes or "broadcast" in call.attributes:  # explicit axes of opset 6 and before
        return None
    first = shapes[0]
    if all(shape is first or shape == first for shape in shapes):
        return first
    if not all(shape.is_ranked for shape in shapes):
        return Shape.unknown()
    return _shape(joint_dims(shapes))


def joint_dims(shapes: Sequence[Sequence[Dim]]) -> list[Dim]:
    """Return the dims that shapes broadcast to, as far as they are known. Raises `ShapeError`.

    A dim and 1 give the dim; a dim and another number give the number; two dims that may differ give an unknown dim.
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
        if one.is_static:  # the other must be equal or 1
            return one
        if not one.is_dynamic and not other.is_dynamic and _is_cut(other, one):
            return one
    return UNKNOWN


def _is_cut(dim: Dim, whole: Dim) -> bool:
    """Return True if a dim is `whole` or a smaller positive number: the two can broadcast only if they are equal."""
    return (
        dim._op == "min"
        and any(d == whole for d in dim._args)
        and all(d == whole or (d.lower_bound or 0) > 0 for d in dim._args)
    )


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    """Return the shape that the operands of an op broadcast to. Raises `ValueError` that names two conflicting dims.

    Two dims that are not provably equal are compatible only if one of them is 1, unknown, or the minimum of the other
    one and more: a table cut to that length, which fails in the run if it is shorter. `broadcast` is less strict, for
    imported models.
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
    clash = ""  # of symbolic dims; a conflict of two numbers is the better reason
    dims = []
    for position in range(-rank, 0):
        chosen = None
        for shape in shapes:
            if len(shape) < -position:
                continue
            dim = shape[position]
            if chosen is None or chosen is dim or chosen == 1:
                chosen = dim
            elif dim == 1 or dim.is_part_of(chosen):
                continue
            elif chosen.is_dynamic or chosen.is_part_of(dim):
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
