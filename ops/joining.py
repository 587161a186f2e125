"""Concatenation, splitting and repetition of tensors."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import op
from graphcore.build.operands import operand, promote
from graphcore.build.shapes import axis_of, check_integers, retype
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Constant, Symbol, TensorLike
from graphcore.ops.shared.dims import Axis, dims_of, provably_differ, shape_vector, with_dims
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import DimLike, Shape, _shape, tensor_type


@op(onnx="Concat", rule="join")
def concat(values: Sequence[TensorLike], axis: int = 0, out_dim: DimLike | None = None) -> Symbol:
    """The tensors concatenated along an axis.

    Args:
        values: One or more tensors of one rank >= 1, with equal dims except along that axis; they promote to a common
            dtype.
        out_dim: The size of the axis in the result, by default the sum.

    Raises:
        ShapeError: If the dims differ.

    ONNX Concat.
    """
    symbols, dtype = _promote_list("concat", values)
    roles = _roles(symbols)
    first = symbols[0]
    for position, symbol in enumerate(symbols):
        if symbol.rank != first.rank or not symbol.rank:
            why = "a scalar has no axes" if not symbol.rank else f"ranks differ: {first.rank} and {symbol.rank}"
            raise ShapeError(
                f"concat: value {position} cannot be joined: {why}",
                operands=roles,
                help="use ops.stack to join along a new axis, or add an axis with ops.unsqueeze",
            )
    along = axis_of("concat", axis, first.rank, roles)
    shape = functools.reduce(lambda a, b: _merge_shapes("concat", a, b, roles, but=along), [s.shape for s in symbols])
    total = functools.reduce(lambda a, b: a + b, [s.shape[along] for s in symbols])
    if out_dim is not None:
        (declared,) = dims_of("concat", [out_dim])
        if provably_differ(declared, total):
            raise ShapeError(
                f"concat: out_dim is {declared}, but the sizes of axis {along} add up to {total}",
                operands=roles,
                help="omit out_dim, or give the sum",
            )
        total = declared
    shape = with_dims(shape, along, along + 1, total)
    if len(symbols) == 1 and shape == first.shape:
        return first
    return first.graph.build.emit("Concat", tuple(symbols), tensor_type(dtype, shape), {"axis": along})


@op(onnx="Unsqueeze, Concat", rule="join")
def stack(values: Sequence[TensorLike], axis: int = 0) -> Symbol:
    """The tensors stacked along a new axis.

    Args:
        values: One or more tensors of one shape; they promote to a common dtype.
        axis: The position of the new axis in the result.

    Raises:
        ShapeError: If the shapes differ.

    ONNX Unsqueeze and Concat.
    """
    symbols, dtype = _promote_list("stack", values)
    roles = _roles(symbols)
    first = symbols[0]
    for position, symbol in enumerate(symbols):
        if symbol.rank != first.rank:
            raise ShapeError(
                f"stack: ranks differ: value 0 has {first.rank} and value {position} has {symbol.rank}",
                operands=roles,
                help="give tensors of one shape",
            )
    along = axis_of("stack", axis, first.rank + 1, roles)
    shape = functools.reduce(lambda a, b: _merge_shapes("stack", a, b, roles), [s.shape for s in symbols])
    layers = [e.unsqueeze(symbol, along) for symbol in symbols]
    if len(layers) == 1:
        return layers[0]
    whole = with_dims(shape, along, along, Dim(len(layers)))
    return first.graph.build.emit("Concat", tuple(layers), tensor_type(dtype, whole), {"axis": along})


def _promote_list(name: str, values: Sequence[TensorLike]) -> tuple[list[Symbol], DType]:
    if isinstance(values, (Symbol, str)) or not isinstance(values, Iterable):
        raise ShapeError(f"{name}: values must be a list of tensors", operands={"values": values}, help="give a list")
    listed = list(values)
    if not listed:
        raise ShapeError(f"{name}: values is empty", help="give at least one tensor")
    return promote(name, "join", {f"value {i}": value for i, value in enumerate(listed)})


def _roles(symbols: Sequence[Symbol]) -> dict[str, Symbol]:
    return {f"value {i}": symbol for i, symbol in enumerate(symbols)}


def _merge_shapes(name: str, a: Shape, b: Shape, roles: dict[str, Symbol], *, but: int | None = None) -> Shape:
    """Merge two shapes, with unknown dims taken from the other; the dims at `but` need not agree."""
    dims = []
    for axis, (left, right) in enumerate(zip(a, b, strict=True)):
        if axis != but and left is not right and not left.is_dynamic and not right.is_dynamic:
            raise ShapeError(
                f"{name}: sizes differ at axis {axis}: {left} and {right}",
                operands=roles,
                help="make the shapes equal; if two dims always agree, declare it with ops.rebind",
            )
        dims.append(right if left.is_dynamic else left)
    return _shape(dims)


# Splitting


@op(onnx="Split")
def split(x: TensorLike, sizes: int | Sequence[DimLike], axis: int = 0) -> tuple[Symbol, ...]:
    """The tensor split into pieces along an axis.

    Args:
        x: Rank >= 1, any dtype.
        sizes: Of the pieces, as ints, names or Dims; or the number of equal pieces.

    Raises:
        ShapeError: If the sizes provably do not add up, or the axis is not divisible.

    ONNX Split.
    """
    symbol = operand("split", x)
    roles = {"x": symbol}
    along = axis_of("split", axis, symbol.rank, roles)
    dim = symbol.shape[along]
    if isinstance(sizes, (int, np.integer)):
        count = _count("split", sizes, "sizes", roles)
        rest = dim % count
        if rest.is_static and rest != 0:
            raise ShapeError(
                f"split: axis {along} of size {dim} cannot be split into {count} equal pieces",
                operands=roles,
                help="give a list of sizes, or use ops.chunk",
            )
        return _pieces("split", symbol, [dim // count] * count, along)
    pieces = dims_of("split", sizes)
    if not pieces:
        raise ShapeError("split: sizes is empty", operands=roles, help="give at least one size")
    total = functools.reduce(lambda a, b: a + b, pieces)
    if provably_differ(total, dim):
        raise ShapeError(
            f"split: the sizes add up to {total}, but axis {along} has {dim}",
            operands=roles,
            help="give sizes that add up to the whole axis",
        )
    return _pieces("split", symbol, pieces, along)


@op(onnx="Split")
def chunk(x: TensorLike, chunks: int, axis: int = 0) -> tuple[Symbol, ...]:
    """The tensor split into pieces of nearly equal size: if it is not divisible, the first ones are longer by one.

    Args:
        x: Rank >= 1, any dtype.

    Raises:
        ShapeError: For fewer than one piece.

    ONNX Split, NumPy's array_split.
    """
    symbol = operand("chunk", x)
    roles = {"x": symbol}
    along = axis_of("chunk", axis, symbol.rank, roles)
    count = _count("chunk", chunks, "chunks", roles)
    dim = symbol.shape[along]
    return _pieces("chunk", symbol, [(dim + (count - 1 - i)) // count for i in range(count)], along)


def _count(name: str, value: object, role: str, roles: dict[str, Symbol], least: int = 1) -> int:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        raise ShapeError(
            f"{name}: {role} must be an int >= {least}, got {value!r}", operands=roles, help=f"give {least} or more"
        )
    return int(value)


def _pieces(name: str, x: Symbol, sizes: list[Dim], axis: int) -> tuple[Symbol, ...]:
    if len(sizes) == 1:
        return (x,)
    graph = x.graph
    unknown = x.shape[axis].is_dynamic and all(size.is_dynamic for size in sizes)
    vector = _equal_sizes(x, axis, name, len(sizes)) if unknown else shape_vector(graph, sizes, (x,), op=name)
    types = [retype(x, shape=with_dims(x.shape, axis, axis + 1, size)) for size in sizes]
    return graph.build.emit_many("Split", (x, vector), types, {"axis": axis})


def _equal_sizes(x: Symbol, axis: int, name: str, count: int) -> Symbol:
    """Return the sizes of `count` pieces of an axis of unknown size."""
    graph = x.graph
    type_ = tensor_type(DType.int64, _shape([Dim(count)]))
    extra = [count - 1 - i if name == "chunk" else 0 for i in range(count)]
    longer = graph.build.emit("Add", (shape_vector(graph, [Axis(x, axis)]), graph.build.vector(extra)), type_)
    return graph.build.emit("Div", (longer, graph.build.vector([count])), type_)


# Repetition


@op(onnx="Tile")
def tile(x: TensorLike, repeats: DimLike | Sequence[DimLike]) -> Symbol:
    """The tensor repeated along each axis.

    Args:
        x: Any shape and dtype.
        repeats: The number of repetitions along each axis, ints >= 0, names or Dims; fewer than axes apply to the last
            axes, more add leading axes.

    Raises:
        ShapeError: For negative repeats.

    ONNX Tile, NumPy's tile.
    """
    symbol = operand("tile", x)
    counts = dims_of("tile", repeats, help="repeats are ints >= 0, one for each axis")
    if len(counts) > symbol.rank:
        symbol = e.unsqueeze(symbol, *range(len(counts) - symbol.rank))
    counts = [Dim(1)] * (symbol.rank - len(counts)) + counts
    if all(count == 1 for count in counts):
        return symbol
    shape = _shape([dim * count for dim, count in zip(symbol.shape, counts, strict=True)])
    vector = shape_vector(symbol.graph, counts, (symbol,), op="tile")
    return symbol.graph.build.emit("Tile", (symbol, vector), retype(symbol, shape=shape))


@op(onnx="Tile, Reshape")
def repeat_interleave(
    x: TensorLike, repeats: int | Sequence[int] | TensorLike, axis: int | None = None, out_dim: DimLike | None = None
) -> Symbol:
    """Every element along an axis repeated in place.

    Args:
        x: Any shape and dtype.
        repeats: The number of repetitions, an int >= 0; or one for each element of the axis, as a list, an array or an
            integer Symbol of rank 1.
        axis: None for all elements of the flattened tensor.
        out_dim: The size of the axis in the result, if the repeats are a Symbol.

    Raises:
        ShapeError: For negative repeats and for a wrong number of them.

    ONNX Tile and Reshape, or Gather; NumPy's repeat.
    """
    symbol = operand("repeat_interleave", x)
    roles = {"x": symbol}
    if axis is None:
        symbol, along = symbol.flatten(), 0
    else:
        along = axis_of("repeat_interleave", axis, symbol.rank, roles)
    declared = None if out_dim is None else dims_of("repeat_interleave", [out_dim])[0]
    if isinstance(repeats, Symbol) and isinstance(repeats.producer, Constant) and repeats.dtype.is_integer:
        repeats = repeats.producer.array
    if isinstance(repeats, Symbol):
        return _repeat_by(symbol, repeats, along, declared, {**roles, "repeats": repeats})
    counts = np.asarray(repeats)
    if counts.ndim > 1 or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise ShapeError(
            f"repeat_interleave: repeats must be ints >= 0, got {repeats!r:.60}",
            operands=roles,
            help="give one int, or one for each element of the axis",
        )
    if counts.ndim and counts.size != 1:
        result = _repeat_each(symbol, counts, along, roles)
    else:
        result = _repeat_all(symbol, int(counts.reshape(())), along)
    return result if declared is None else _name_size(result, along, declared, roles)


def _repeat_all(x: Symbol, count: int, axis: int) -> Symbol:
    if count == 1:
        return x
    thin = e.unsqueeze(x, axis + 1)
    copies = [1] * thin.rank
    copies[axis + 1] = count
    shape = with_dims(thin.shape, axis + 1, axis + 2, Dim(count))
    tiled = x.graph.build.emit("Tile", (thin, x.graph.build.vector(copies)), retype(x, shape=shape))
    return tiled.flatten(axis, axis + 1)


def _repeat_each(x: Symbol, counts: np.ndarray[Any, Any], axis: int, roles: dict[str, Symbol]) -> Symbol:
    if provably_differ(x.shape[axis], Dim(counts.size)):
        raise ShapeError(
            f"repeat_interleave: got {counts.size} repeats for an axis of size {x.shape[axis]}",
            operands=roles,
            help="give one for each element of the axis, or one int for all",
        )
    indices = np.repeat(np.arange(counts.size), counts).astype(np.int64)
    return _gather(x, x.graph.build.vector(indices.tolist()), axis, Dim(indices.size))


def _repeat_by(x: Symbol, repeats: Symbol, axis: int, out_dim: Dim | None, roles: dict[str, Symbol]) -> Symbol:
    """Repeat by counts at run time: the source of element j is the number of runs that end at or before j."""
    graph = x.graph
    graph.build.own(repeats, "repeat_interleave", "repeats")
    check_integers("repeat_interleave", "repeats", repeats, roles)
    if repeats.rank != 1 or provably_differ(repeats.shape[0], x.shape[axis]):
        raise ShapeError(
            f"repeat_interleave: got repeats of shape {repeats.shape} for an axis of size {x.shape[axis]}",
            operands=roles,
            help="give one for each element of the axis",
        )
    counts = graph.build.cast(repeats, DType.int64)
    length = Dim.dynamic() if out_dim is None else out_dim
    ends = graph.build.emit("CumSum", (counts, graph.build.scalar(0, DType.int64)), counts.type)
    scalar = tensor_type(DType.int64, _shape(()))
    total = graph.build.emit("ReduceSum", (counts, graph.build.vector([0])), scalar, {"keepdims": 0})
    zero, one = graph.build.scalar(0, DType.int64), graph.build.scalar(1, DType.int64)
    places = graph.build.emit("Range", (zero, total, one), tensor_type(DType.int64, _shape([length])))
    column = e.unsqueeze(places, 1)
    over = tensor_type(DType.bool, _shape([length, counts.shape[0]]))
    # Summed in float64: exact here, and faster than the decomposition of integer sums.
    ended = graph.build.cast(graph.build.emit("LessOrEqual", (ends, column), over), DType.float64)
    count = tensor_type(DType.float64, places.shape)
    indices = graph.build.emit("ReduceSum", (ended, graph.build.vector([1])), count, {"keepdims": 0})
    indices = graph.build.cast(indices, DType.int64)
    return _gather(x, indices, axis, length)


def _gather(x: Symbol, indices: Symbol, axis: int, length: Dim) -> Symbol:
    shape = with_dims(x.shape, axis, axis + 1, length)
    return x.graph.build.emit("Gather", (x, indices), retype(x, shape=shape), {"axis": axis})


def _name_size(x: Symbol, axis: int, declared: Dim, roles: dict[str, Symbol]) -> Symbol:
    """Name the size of the axis as `out_dim` does."""
    if provably_differ(declared, x.shape[axis]):
        raise ShapeError(
            f"repeat_interleave: out_dim is {declared}, but the size of the axis is {x.shape[axis]}",
            operands=roles,
            help="omit out_dim: the size is known",
        )
    if declared is x.shape[axis]:
        return x
    return x.graph.build.emit("Identity", (x,), retype(x, shape=with_dims(x.shape, axis, axis + 1, declared)))
