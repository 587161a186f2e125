"""Shapes and axes of operands: broadcasting, normalised axes, compatible dims."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Node, Symbol
from graphcore.operators.shapes.call import broadcast_shapes
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import DimLike, Shape, _dim, _shape, tensor_type

Roles = Mapping[str, Any]
"""Operands by their names in errors: {"lhs": x, "rhs": y}."""


def broadcast(op: str, roles: Mapping[str, Symbol]) -> Shape:
    """Return the shape that operands broadcast to, as in NumPy. Raises `ShapeError`.

    Two dims that are not provably equal are compatible only if one of them is 1 or unknown.
    """
    shapes = [s.shape for s in roles.values()]
    try:
        return broadcast_shapes(shapes)
    except ValueError as clash:
        raise ShapeError(
            f"{op}: shapes do not broadcast: {clash}",
            operands=roles,
            help="make the dims equal or 1; if they always agree, say so with ops.rebind or give them one name",
        ) from None


def check_axis_from_end(op: str, axis: object, roles: Roles, scalars: str) -> None:
    """Raise `ShapeError` unless `axis` is a negative axis of both tensors. scalars: the help for scalars."""
    rank = min(symbol.rank for symbol in roles.values())
    if not isinstance(axis, int) or isinstance(axis, bool) or not -rank <= axis < 0:
        raise ShapeError(
            f"{op}: there is no axis {axis!r} in both tensors, counted from the end",
            operands=roles,
            help=f"axis must be one of {-rank} to -1" if rank else scalars,
        )


def axis_of(op: str, axis: object, rank: int, roles: Roles, *, name: str = "axis") -> int:
    """Return `axis` counted from 0. Raises `ShapeError` if it is not an axis of a tensor of that rank."""
    if isinstance(axis, (int, np.integer)) and not isinstance(axis, bool) and -rank <= axis < rank:
        return int(axis) % rank
    what = f"{axis!r} is not an axis" if not isinstance(axis, int) else f"there is no axis {axis}"
    valid = f"one of {-rank} to {rank - 1}" if rank else "empty: a scalar has no axes"
    raise ShapeError(f"{op}: {what} of a tensor of rank {rank}", operands=roles, help=f"{name} must be {valid}")


def axes_of(op: str, axis: object, rank: int, roles: Roles, *, name: str = "axis") -> tuple[int, ...]:
    """Return `axis=None | int | tuple` as axes counted from 0, in that order; None is all. Raises `ShapeError`."""
    if axis is None:
        return tuple(range(rank))
    items = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(axis_of(op, a, rank, roles, name=name) for a in items)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{op}: {name}={axis} names an axis twice", operands=roles, help="name each axis once")
    return axes


def check_integers(op: str, role: str, symbol: Symbol, operands: Roles | None = None) -> None:
    """Raise `DTypeError` unless an operand has an integer dtype. operands: for the error, by default this one."""
    if not symbol.dtype.is_integer:
        raise DTypeError(
            f"{op}: {role} must have an integer dtype, got {symbol.dtype}",
            operands=operands or {role: symbol},
            help="cast it: .cast(DType.int64)",
        )


def check_scalar(
    op: str, role: str, symbol: Symbol, operands: Roles | None = None, *, help: str = "give a scalar"
) -> None:
    """Raise `ShapeError` if an operand is known to have axes. operands: for the error, by default this one."""
    if symbol.shape.is_ranked and len(symbol.shape):
        raise ShapeError(
            f"{op}: {role} must be a scalar, got shape {symbol.shape}", operands=operands or {role: symbol}, help=help
        )


def check_least_rank(op: str, role: str, symbol: Symbol, least: int) -> None:
    """Raise `ShapeError` if an operand has fewer axes than an op needs."""
    if symbol.rank < least:
        raise ShapeError(
            f"{op}: {role} must have rank {least} or more, got {symbol.rank}",
            operands={role: symbol},
            help="add axes first: ops.unsqueeze(x, 0)",
        )


def check_shape(op: str, role: str, roles: Roles, expected: Iterable[Dim], help: str) -> None:
    """Raise `ShapeError` unless an operand has dims that can be equal to the expected ones."""
    shape, wanted = roles[role].shape, _shape(list(expected))
    if len(shape) != len(wanted) or not all(map(same_dim, shape, wanted)):
        raise ShapeError(f"{op}: {role} must have shape {wanted}, got {shape}", operands=roles, help=help)


def same_dim(lhs: DimLike, rhs: DimLike) -> bool:
    """Return True if two dims are equal, or one is unknown."""
    left, right = _dim(lhs), _dim(rhs)
    return left is right or left.is_dynamic or right.is_dynamic


def unjoinable(values: Symbol, axis: int | None) -> dict[str, Symbol]:
    """Return two elements of a list that cannot be joined along an axis, as operands of an error; else an empty dict.

    values: a list. Its elements are known only for a SequenceConstruct. axis: None for a new axis.
    """
    node = values.producer
    if not isinstance(node, Node) or node.op_type != "SequenceConstruct" or node.domain:
        return {}
    elements = [s for s in node.inputs if s is not None and s.shape.is_ranked]
    for first, other in itertools.pairwise(elements):
        along = None if axis is None or not first.rank else axis % first.rank
        pairs = [(a, b) for i, (a, b) in enumerate(zip(first.shape, other.shape, strict=False)) if i != along]
        if first.rank != other.rank or any(a.is_static and b.is_static and a is not b for a, b in pairs):
            return {"an element": first, "the next one": other}
    return {}


def retype(symbol: Symbol, dtype: DType | None = None, shape: Shape | None = None) -> Any:
    """Return the TensorType of `symbol` with another dtype or shape."""
    own = symbol.type
    return tensor_type(dtype or own.dtype, own.shape if shape is None else shape)


# The encoding of failed checks of `ops.rebind` in the errors of a runtime: see `ops.shared.rebind`.

SIZE_CHECK = "rebind "
"""The prefix of the name of a check, the only text that a runtime shows."""

AXIS = 10**12
"""A wrong size s of axis a is encoded as -(a + 1) * AXIS - s in the shape that the runtime reports."""

RANK = 2
"""A wrong rank r is encoded as -RANK - r."""
