"""Casts, reshapes, broadcasts, and sizes as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphcore.build import operands
from graphcore.build.declare import op
from graphcore.build.operands import operand
from graphcore.build.shapes import axis_of, check_integers, retype
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Constant, Node, Symbol, TensorLike
from graphcore.ops.shared.dims import (
    Axis,
    Size,
    dims_of,
    in_pieces,
    listed,
    product,
    provably_differ,
    shape_vector,
    with_dims,
)
from graphcore.ops.shared.reshape import (
    TargetSize,
    graph_and_sizes,
    reshaped,
    reshaped_by,
    scalar_size,
)
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType, is_wide
from graphcore.types.tensor_types import DimLike, Shape, _shape


@op(onnx="Cast", method=True)
def cast(x: TensorLike, dtype: object) -> Symbol:
    """The values as another dtype.

    Args:
        x: Any shape, any dtype but string. Floats become integers by truncating and saturating, NaN as 0; integers
            wrap; anything becomes bool as `!= 0`; floats round once, to nearest even.

    Returns:
        `x` itself if it already has the dtype.

    Raises:
        DTypeError: For an unknown dtype and for strings.

    ONNX Cast.
    """
    symbol = operand("cast", x)
    target = operands.dtype_of("cast", dtype, symbol.graph)
    if target is not symbol.dtype and DType.string in (target, symbol.dtype):
        raise DTypeError(
            f"cast: {symbol.dtype} cannot be cast to {target}",
            operands={"x": symbol},
            help="use ops.string_of to write numbers as strings, and ops.string_parse to read them",
        )
    symbol.graph.build.end_expressions((symbol,))
    return symbol.graph.build.cast(symbol, target)


@op(onnx="Shape")
def shape_of(x: TensorLike) -> Symbol:
    """The sizes of the axes, an int64 tensor of shape [rank].

    Args:
        x: Any shape and dtype.

    Returns:
        A constant if the shape is static.

    ONNX Shape.
    """
    symbol = operand("shape_of", x)
    graph = symbol.graph
    return shape_vector(graph, [Axis(symbol, i) for i in range(symbol.rank)]) if symbol.rank else graph.build.vector([])


@op(onnx="Shape, Concat")
def shape_to_tensor(shape: Sequence[DimLike]) -> Symbol:
    """A Shape as an int64 tensor of shape [len(shape)], in the current graph or that of the Dims.

    Args:
        shape: Ints, names, Dims and integer scalar Symbols; each name must be a dim of a Symbol of the graph.

    Raises:
        ShapeError: For an unknown dim or name.

    ONNX Shape, Concat and integer arithmetic.
    """
    graph, sizes = graph_and_sizes("shape_to_tensor", shape)
    return shape_vector(graph, sizes, op="shape_to_tensor")


# Reshaping


@op(onnx="Reshape")
def reshape(x: TensorLike, shape: Any, out_dims: Sequence[DimLike] | None = None) -> Symbol:
    """The same elements, in row-major order, in another shape.

    Args:
        x: Any shape and dtype.
        shape: One dim or a sequence of ints, names, Dims and integer scalar Symbols, at most one of them -1 (inferred);
            or an integer Symbol of shape [rank of the result].
        out_dims: The dims of the result, if the shape consists of Symbols.

    Raises:
        ShapeError: If the element counts provably differ or -1 cannot be inferred.
        DTypeError: For a shape of floats.

    ONNX Reshape.
    """
    symbol = operand("reshape", x)
    out = None if out_dims is None else _shape(dims_of("reshape", out_dims))
    if isinstance(shape, Symbol) and shape.rank == 1:
        return _reshape_by(symbol, shape, out)
    plain = out is None and isinstance(shape, (tuple, list)) and all(type(d) in _PLAIN for d in shape)
    key = (symbol.type, tuple(shape)) if plain else None
    plan = symbol.graph.memory.reshapes.get(key) if plain else None
    if plan is None:
        roles: dict[str, object] = {"x": symbol}
        result = reshaped("reshape", symbol, _target_sizes("reshape", symbol, shape, roles), roles, out=out)
        node = result.producer
        if plain and result is not symbol and isinstance(node, Node) and node.op_type == "Reshape":
            if (sizes := node.inputs[1]) is not None and sizes.is_constant:
                # The next reshape of this type reuses the shape constant and the type.
                symbol.graph.memory.reshapes[key] = node.inputs[1], result.type, node.attributes
        return result
    vector, type_, attributes = plan
    return symbol.graph.build.emit("Reshape", (symbol, vector), type_, attributes)


_PLAIN = frozenset({int, str, Dim})


def _reshape_by(x: Symbol, shape: Symbol, out: Shape | None) -> Symbol:
    roles = {"x": x, "shape": shape}
    check_integers("reshape", "shape", shape, roles)
    length = shape.shape[0]
    if isinstance(shape.producer, Constant):
        numbers = [int(n) for n in shape.producer.array]
        return reshaped("reshape", x, _target_sizes("reshape", x, numbers, roles), roles, out=out)
    if out is None:
        if not length.is_static:
            raise ShapeError(
                f"reshape: the rank of the result is unknown: shape has {length} sizes",
                operands=roles,
                help="give out_dims, one dim for each axis of the result",
            )
        out = _shape([Dim.dynamic()] * int(length))
    elif provably_differ(length, Dim(len(out))):
        raise ShapeError(
            f"reshape: out_dims {out} has {len(out)} dims, but shape has {length} sizes",
            operands=roles,
            help="give one dim for each size",
        )
    return reshaped_by("reshape", x, shape, out, roles)


def _target_sizes(name: str, x: Symbol, shape: Any, roles: dict[str, Any]) -> list[TargetSize]:
    """Parse a shape argument: -1 becomes None, unknown dims become the axes that they mean."""
    target: list[TargetSize] = []
    for size in listed(shape):
        if isinstance(size, Symbol):
            target.append(scalar_size(name, x.graph, size, roles))
        elif isinstance(size, (int, np.integer)) and size == -1:
            target.append(None)
        else:
            target += dims_of(name, [size], help="a dim is a number >= 0, a name, a Dim, or -1 for the inferred one")
    if sum(size is None for size in target) > 1:
        raise ShapeError(f"{name}: more than one dim is -1", operands=roles, help="give the other sizes")
    return _resolve_unknown(name, x, target, roles)


def _resolve_unknown(name: str, x: Symbol, target: list[TargetSize], roles: dict[str, Any]) -> list[TargetSize]:
    """Resolve unknown dims: to the axis of `x` at the same position, or, for the only one, to the inferred size."""
    unknown = [i for i, size in enumerate(target) if isinstance(size, Dim) and size.is_dynamic]
    inferred = any(size is None for size in target)
    if len(unknown) == 1 and not inferred:
        target[unknown[0]] = None
        return target
    for position in unknown:
        if position < x.rank and x.shape[position].is_dynamic:
            target[position] = Axis(x, position)
        elif not inferred:
            target[position], inferred = None, True
        else:
            raise ShapeError(
                f"{name}: more than one dim of the shape is unknown",
                operands=roles,
                help="name the dims, or give their sizes as Symbols: ops.shape_of(x)[axis]",
            )
    return target


@op(onnx="Reshape")
def reshape_like(x: TensorLike, like: TensorLike) -> Symbol:
    """The elements of `x` in the shape of `like`.

    Args:
        x: Any dtypes, with equal numbers of elements.
        like: Any dtypes, with equal numbers of elements.

    Raises:
        ShapeError: If the counts provably differ.

    ONNX Reshape.
    """
    graph = operands.graph_of("reshape_like", (x, like))
    symbol, other = graph.build.operand(x, "reshape_like", "x"), graph.build.operand(like, "reshape_like", "like")
    roles = {"x": symbol, "like": other}
    target: list[TargetSize] = [Axis(other, i) if d.is_dynamic else d for i, d in enumerate(other.shape)]
    return reshaped("reshape_like", symbol, target, roles, sources=(other,))


@op(onnx="Flatten, Reshape", method=True)
def flatten(x: TensorLike, start_dim: int = 0, end_dim: int = -1) -> Symbol:
    """The axes from `start_dim` to `end_dim`, both included, merged into one.

    Args:
        x: Any shape and dtype; a scalar becomes [1].

    Raises:
        ShapeError: For an invalid axis, and for `end_dim` before `start_dim`.

    ONNX Flatten or Reshape.
    """
    symbol = operand("flatten", x)
    roles = {"x": symbol}
    if not symbol.rank:
        axis_of("flatten", start_dim, 1, roles, name="start_dim")
        axis_of("flatten", end_dim, 1, roles, name="end_dim")
        return reshaped("flatten", symbol, [Dim(1)], roles)
    start = axis_of("flatten", start_dim, symbol.rank, roles, name="start_dim")
    end = axis_of("flatten", end_dim, symbol.rank, roles, name="end_dim")
    if end < start:
        raise ShapeError(
            f"flatten: end_dim {end_dim} is before start_dim {start_dim}", operands=roles, help="swap the two"
        )
    if start == end:
        return symbol
    merged = symbol.shape[start : end + 1].size
    split = {(1, symbol.rank - 1): 1, (0, symbol.rank - 2): symbol.rank - 1}.get((start, end))
    if split is not None and not symbol.shape.is_static:
        shape = with_dims(symbol.shape, start, end + 1, merged)
        return symbol.graph.build.emit("Flatten", (symbol,), retype(symbol, shape=shape), {"axis": split})
    dims: list[TargetSize] = [Axis(symbol, i) if d.is_dynamic else d for i, d in enumerate(symbol.shape)]
    merged_size: TargetSize = merged
    if merged.is_dynamic:
        # -1 can be inferred only if no other axis may be empty.
        sizes = [Axis(symbol, i) for i in range(symbol.rank)]
        others = symbol.shape[:start] + symbol.shape[end + 1 :]
        full = all(d.is_static and d != 0 for d in others)
        merged_size = None if full else product(symbol.graph, sizes[start : end + 1])
    return reshaped("flatten", symbol, [*dims[:start], merged_size, *dims[end + 1 :]], roles)


# Broadcasting


@op(onnx="Expand")
def broadcast_to(x: TensorLike, shape: Any, out_dims: Sequence[DimLike] | None = None) -> Symbol:
    """The tensor broadcast to a shape: repeated along axes of size 1 and along new leading axes.

    Args:
        x: Any shape and dtype.
        shape: One dim or a sequence of ints, names and Dims; or an integer Symbol of shape [rank of the result], with
            out_dims for its known sizes.

    Raises:
        ShapeError: If the shapes do not broadcast.
        DTypeError: For a shape of floats.

    ONNX Expand, NumPy's broadcast_to.
    """
    symbol = operand("broadcast_to", x)
    if isinstance(shape, Symbol):
        return _broadcast_by(symbol, shape, out_dims)
    dims = dims_of("broadcast_to", shape)
    _check_broadcasts(symbol, _shape(dims), {"x": symbol})
    if symbol.shape == dims and not symbol.shape.is_dynamic:
        return symbol
    if symbol.dtype.is_number and not is_wide(symbol.dtype) and all(d.is_static for d in dims) and 0 in map(int, dims):
        # onnxruntime removes an Expand of an empty tensor to an empty tensor, and then returns the old shape.
        return symbol.graph.build.constant(np.zeros([int(d) for d in dims], symbol.dtype.numpy), symbol.dtype)
    sizes: list[Size] = []
    for position, dim in enumerate(dims):
        own = symbol.shape[position - len(dims)] if position >= len(dims) - symbol.rank else Dim(1)
        is_unchanged = own is dim or (dim.is_dynamic and own != 1)
        # ONNX keeps an axis whose target is 1, so unchanged axes need no size at run time.
        sizes.append(Dim(1) if is_unchanged and not dim.is_static else dim)
    vector = shape_vector(symbol.graph, sizes, (symbol,), op="broadcast_to")
    out = [
        own if dim.is_dynamic else dim
        for own, dim in zip([*([Dim(1)] * (len(dims) - symbol.rank)), *symbol.shape], dims, strict=True)
    ]
    return symbol.graph.build.emit("Expand", (symbol, vector), retype(symbol, shape=_shape(out)))


def _broadcast_by(x: Symbol, shape: Symbol, out_dims: Sequence[DimLike] | None) -> Symbol:
    roles = {"x": x, "shape": shape}
    x.graph.build.own(shape, "broadcast_to", "shape")
    check_integers("broadcast_to", "shape", shape, roles)
    if shape.rank != 1 or (out_dims is None and not shape.shape[0].is_static):
        raise ShapeError(
            f"broadcast_to: the rank of the result is unknown: shape has type {shape.type}",
            operands=roles,
            help="give the sizes as a Symbol of shape [rank], or give out_dims",
        )
    out = [Dim.dynamic()] * int(shape.shape[0]) if out_dims is None else dims_of("broadcast_to", out_dims)
    if provably_differ(shape.shape[0], Dim(len(out))):
        raise ShapeError(
            f"broadcast_to: out_dims {_shape(out)} has {len(out)} dims, but shape has {shape.shape[0]} sizes",
            operands=roles,
            help="give one dim for each size",
        )
    _check_broadcasts(x, _shape(out), roles)
    return x.graph.build.emit("Expand", (x, x.graph.build.cast(shape, DType.int64)), retype(x, shape=_shape(out)))


def _check_broadcasts(x: Symbol, shape: Shape, roles: dict[str, Symbol]) -> None:
    if len(shape) < x.rank:
        raise ShapeError(
            f"broadcast_to: {shape} has fewer dims than {x.shape}", operands=roles, help="keep every axis of x"
        )
    for own, dim in zip(x.shape[::-1], shape[::-1], strict=False):
        if own != 1 and own is not dim and not own.is_dynamic and not dim.is_dynamic:
            raise ShapeError(
                f"broadcast_to: {x.shape} does not broadcast to {shape}: {own} is neither 1 nor {dim}",
                operands=roles,
                help="only dims of 1 are repeated; if two dims always agree, declare it with ops.rebind",
            )


for _function in (reshape, broadcast_to):
    setattr(Symbol, _function.__name__, in_pieces(_function))
