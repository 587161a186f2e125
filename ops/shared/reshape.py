"""Reshape with symbolic dims: infer -1, check the element counts, and compute the shape for the runtime."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from graphcore.build.shapes import retype
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.ops.shared.dims import Axis, Size, product, provably_differ, shape_vector
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type

Wanted: TypeAlias = Dim | Axis | Symbol | None
"""A size to reshape to: a dim, that of an axis, an int64 Symbol of shape [1], or None for the one to infer."""


def reshaped(
    op: str,
    x: Symbol,
    wanted: Sequence[Wanted],
    roles: Mapping[str, object],
    *,
    out: Shape | None = None,
    sources: Sequence[Symbol] = (),
) -> Symbol:
    """Return the elements of `x`, in order, under another shape.

    out: the dims of the result, where more of them is known than in `wanted`. sources: as for `shape_vector`, after
    `x`. Raises `ShapeError` where the element counts provably differ.
    """
    dims = [_dim_of(size) for size in wanted]
    before, after = _counts(x, wanted)
    exact = not before.is_dynamic and before is after
    position = next((i for i, size in enumerate(wanted) if size is None), None)
    if position is not None:
        dims[position] = _inferred(op, x, dims, before, after, roles)
        exact = not before.is_dynamic and dims[position] * after is before
    elif provably_differ(before, after):
        raise ShapeError(
            f"{op}: {x.shape} has {before} elements and {_shape(dims)} has {after}",
            operands=roles,
            help="give a shape with as many elements, or -1 for the dim that follows from the others",
        )
    shape = _merged(op, _shape(dims), out, roles)
    if len(shape) == x.rank and all(_stays(x, i, size, dims[i]) for i, size in enumerate(wanted)):
        return x if shape == x.shape else x.graph.build.emit("Identity", (x,), retype(x, shape=shape))
    type_ = retype(x, shape=shape)
    numbers = _as_constant(x, wanted, dims, exact)
    if numbers is not None:
        attributes = {"allowzero": 1} if 0 in dims else None
        return x.graph.build.emit("Reshape", (x, x.graph.build.vector(numbers)), type_, attributes)
    if len(dims) == 2 and x.rank > 1 and exact and _stays(x, 0, wanted[0], dims[0]):
        return x.graph.build.emit("Flatten", (x,), type_, {"axis": 1})
    vector = shape_vector(x.graph, _sizes(op, x, wanted, dims, sources), (x, *sources), op=op)
    return x.graph.build.emit("Reshape", (x, vector), type_, {"allowzero": 1})


def reshaped_by(op: str, x: Symbol, vector: Symbol, shape: Shape, roles: Mapping[str, object]) -> Symbol:
    """Return `x` under the shape in an integer Symbol; `shape`: what is known of its values."""
    before = x.shape.size
    if provably_differ(before, shape.size):
        raise ShapeError(
            f"{op}: {x.shape} has {before} elements and {shape} has {shape.size}",
            operands=roles,
            help="give out_dims with as many elements",
        )
    sizes = x.graph.build.cast(vector, DType.int64)
    return x.graph.build.emit("Reshape", (x, sizes), retype(x, shape=shape), {"allowzero": 1})


def as_size(value: Symbol) -> Symbol:
    """Return an integer scalar as an int64 Symbol of shape [1]."""
    wide = value.graph.build.cast(value, DType.int64)
    return wide.graph.build.emit(
        "Unsqueeze", (wide, wide.graph.build.vector([0])), tensor_type(DType.int64, _shape((Dim(1),)))
    )


def _dim_of(size: Wanted) -> Dim:
    if isinstance(size, Axis):
        return size.dim
    return size if isinstance(size, Dim) else Dim.dynamic()


def _counts(x: Symbol, wanted: Sequence[Wanted]) -> tuple[Dim, Dim]:
    """Return the element counts of `x` and of the wanted shape, without the axes of `x` that stay."""
    kept = {size.axis for size in wanted if isinstance(size, Axis) and size.symbol is x}
    before, after = Dim(1), Dim(1)
    for axis, dim in enumerate(x.shape):
        if axis not in kept:
            before *= dim
    for size in wanted:
        if size is not None and not (isinstance(size, Axis) and size.symbol is x):
            after *= _dim_of(size)
    return before, after


def _inferred(op: str, x: Symbol, dims: Sequence[Dim], before: Dim, after: Dim, roles: Mapping[str, object]) -> Dim:
    if after == 0:
        raise ShapeError(
            f"{op}: -1 cannot be inferred beside a dim of 0", operands=roles, help="write the size in its place"
        )
    if before.is_dynamic or after.is_dynamic:
        return Dim.dynamic()
    rest = before % after
    if rest.is_static and rest != 0:
        raise ShapeError(
            f"{op}: {before} elements do not divide by {after}, the product of the other dims",
            operands=roles,
            help=f"the other dims must multiply to a divisor of {before}",
        )
    return before // after


def _merged(op: str, shape: Shape, out: Shape | None, roles: Mapping[str, object]) -> Shape:
    """Merge the shape with `out`. Raises `ShapeError` where the two provably differ."""
    if out is None:
        return shape
    if len(out) != len(shape):
        raise ShapeError(
            f"{op}: out_dims {out} has {len(out)} dims and the shape {len(shape)}",
            operands=roles,
            help="give one dim for each size of the shape",
        )
    for dim, said in zip(shape, out, strict=True):
        if provably_differ(dim, said):
            raise ShapeError(
                f"{op}: out_dims says {said} where the shape says {dim}",
                operands=roles,
                help="leave out_dims out, or give the dims that the shape has",
            )
    return out


def _stays(x: Symbol, axis: int, size: Wanted, dim: Dim) -> bool:
    """Return whether the size at `axis` is provably that of the axis of `x` there."""
    if axis >= x.rank:
        return False
    return size.is_of(x, axis) if isinstance(size, Axis) else not dim.is_dynamic and dim is x.shape[axis]


def _as_constant(x: Symbol, wanted: Sequence[Wanted], dims: Sequence[Dim], exact: bool) -> list[int] | None:
    """Return the shape in ONNX's numbers, 0 for a kept axis and -1 for an inferred one, if right for all sizes."""
    if 0 in dims:  # then 0 means 0
        return [int(d) for d in dims] if all(d.is_static for d in dims) else None
    numbers = []
    for axis, (size, dim) in enumerate(zip(wanted, dims, strict=True)):
        stays = _stays(x, axis, size, dim)
        numbers.append(int(dim) if dim.is_static else 0 if stays else -1)
    unknown = numbers.count(-1)
    if not unknown:
        return numbers
    position = numbers.index(-1)
    # -1 cannot be inferred where another dim may be 0.
    full = math.prod(max(d.lower_bound or 0, 0) for i, d in enumerate(dims) if i != position) >= 1
    return numbers if unknown == 1 and full and (exact or wanted[position] is None) else None


def _sizes(op: str, x: Symbol, wanted: Sequence[Wanted], dims: Sequence[Dim], sources: Sequence[Symbol]) -> list[Size]:
    """Return what the runtime's shape is made of; a dim that has no name is worked out from the counts."""
    sizes: list[Size] = []
    for size, dim in zip(wanted, dims, strict=True):
        if size is not None:
            sizes.append(size)
        elif not dim.is_dynamic:
            sizes.append(dim)
        else:
            graph = x.graph
            total = product(graph, [Axis(x, i) for i in range(x.rank)], op=op)
            others = product(graph, [s for s in wanted if s is not None], (x, *sources), op=op)
            sizes.append(graph.build.emit("Div", (total, others), total.type))
    return sizes
