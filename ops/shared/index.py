"""Parse the indices of `x[...]`: the kind of each, its axes and the length of its result."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from graphcore.build.shapes import same_dim
from graphcore.errors import DTypeError, GraphcoreError, ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.ops.shared.slice import (
    BEYOND,
    Number,
    Slice,
    check_bounds,
    check_name,
    index_operand,
    number_of,
    refuse_outside,
    slice_of,
    whole,
    whole_axis,
)
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _dim

_ONE = Dim(1)


@dataclass(frozen=True, slots=True, eq=False)
class IntIndex:
    """A single position: drops its axis."""

    axis: int
    position: Number


@dataclass(frozen=True, slots=True, eq=False)
class New:
    """A new axis of size 1."""

    length: Dim = _ONE

    def called(self, name: str, length: Dim) -> New:
        check_name(name, self.length, length)
        return New(length)


@dataclass(frozen=True, slots=True, eq=False)
class Gap:
    """The position of `...`: it separates the index arrays on both sides even if it covers no axis."""


@dataclass(frozen=True, slots=True, eq=False)
class IndexArray:
    """Positions along one axis."""

    axis: int
    positions: Symbol

    @property
    def axes(self) -> tuple[int, ...]:
        return (self.axis,)


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """The positions that are true, along as many axes as the mask has."""

    axes: tuple[int, ...]
    mask: Symbol


Entry: TypeAlias = IntIndex | Slice | New | Gap | IndexArray | Mask


def read(name: str, x: Symbol, items: tuple[Any, ...]) -> list[Entry]:
    """Return the entries for all axes of x, in order. Raises `ShapeError` and `DTypeError` as `getitem` does.

    Entries of indices that are plain numbers are cached for the type of x.
    """
    key = _key(items)
    if key is None:
        return _read(name, x, items)
    cache = x.graph.memory.indices
    entries: list[Entry] | None = cache.get((x.type, key))
    if entries is None:
        entries = _read(name, x, items)
        if not any(isinstance(entry, Slice) and isinstance(entry.stop, Symbol) for entry in entries):
            cache[x.type, key] = entries
    return entries


_PLAIN = (int, type(None))


def _key(items: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return a hashable key for indices that are plain numbers, else None."""
    key: list[Any] = []
    for item in items:
        if type(item) is int or item is None or item is Ellipsis:
            key.append(item)
        elif type(item) is slice:
            parts = item.start, item.stop, item.step
            if type(parts[0]) not in _PLAIN or type(parts[1]) not in _PLAIN or type(parts[2]) not in _PLAIN:
                return None
            key.append(parts)
        else:
            return None
    return tuple(key)


def _read(name: str, x: Symbol, items: tuple[Any, ...]) -> list[Entry]:
    plain = [_normal(name, x, item) for item in items]
    counts = [_axes_taken(item) for item in plain]
    dots = [i for i, item in enumerate(plain) if item is Ellipsis]
    if len(dots) > 1:
        raise ShapeError(
            f"{name}: more than one `...`", operands={"x": x}, help="write one `...` and a `:` for each other axis"
        )
    missing = x.rank - sum(counts)
    if missing < 0:
        raise ShapeError(
            f"{name}: too many indices: {sum(counts)} for a tensor of rank {x.rank}",
            operands={"x": x},
            help="omit some, or add axes with None",
        )
    entries: list[Entry] = []
    axis = 0
    for item, count in zip(plain, counts, strict=True):
        if item is Ellipsis:
            entries.append(Gap())
            entries += [whole_axis(x, axis + i) for i in range(missing)]
            axis += missing
        else:
            entries += _entries(name, x, axis, item)
            axis += count
    return entries + [whole_axis(x, i) for i in range(axis, x.rank)]


@dataclass(frozen=True, slots=True)
class _NamedSlice:
    """A slice with a name for its length."""

    slice: slice
    length: Dim


def _normal(name: str, x: Symbol, item: Any) -> Any:
    """Return an index as None, `...`, a slice, an int, or a Symbol: of integers, or of bools and rank >= 1."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], slice):
        return _NamedSlice(item[0], _dim(item[1]))
    if isinstance(item, (bool, np.bool_)):
        raise _bool_scalar(name, x)
    if isinstance(item, Dim):
        return number_of(name, x, item)
    if isinstance(item, (list, tuple)):
        item = _array_of_list(name, x, item)
    if not isinstance(item, (Symbol, np.ndarray)) and not hasattr(type(item), "__dlpack__"):
        try:
            return operator.index(item)
        except TypeError:
            raise DTypeError(
                f"{name}: {item!r} is not an index" + (": positions are integers" if isinstance(item, float) else ""),
                operands={"x": x},
                help="an index is an int, a slice, `...`, None, or an array or Symbol of integers or bools",
            ) from None
    symbol = x.graph.build.operand(item, name, "index")
    if symbol.dtype is DType.bool:
        if not symbol.rank:
            raise _bool_scalar(name, x)
        return symbol
    symbol = index_operand(x.graph, name, symbol, "index")
    array = constant_array(symbol)
    return int(array[()]) if array is not None and not symbol.rank else symbol


def _array_of_list(name: str, x: Symbol, item: Any) -> np.ndarray[Any, Any]:
    try:
        array = np.asarray(item)
    except (ValueError, GraphcoreError):
        raise DTypeError(
            f"{name}: a list of indices must hold numbers, or lists of one length",
            operands={"x": x, "index": item},
            help="give lists of ints; combine Symbols with ops.stack",
        ) from None
    return array if array.size else array.astype(np.int64)


def _axes_taken(item: Any) -> int:
    if item is None or item is Ellipsis:
        return 0
    return item.rank if isinstance(item, Symbol) and item.dtype is DType.bool else 1


def _entries(name: str, x: Symbol, axis: int, item: Any) -> list[Entry]:
    if item is None:
        return [New()]
    if isinstance(item, slice):
        return [slice_of(name, x, axis, item)]
    if isinstance(item, _NamedSlice):
        return [slice_of(name, x, axis, item.slice).called(name, item.length)]
    if isinstance(item, int):
        refuse_outside(name, item, x, axis)
        if abs(item) > BEYOND:
            what = f"{name}: index {item} is out of bounds for any axis"
            raise ShapeError(what, operands={"x": x}, help="count from 0")
        return [IntIndex(axis, item)]
    assert isinstance(item, Symbol)
    if item.dtype is DType.bool:
        return _mask(name, x, axis, item)
    if not item.rank:
        return [IntIndex(axis, whole(item))]
    check_bounds(name, item, x, axis)
    return [IndexArray(axis, item)]


def _mask(name: str, x: Symbol, axis: int, mask: Symbol) -> list[Entry]:
    axes = tuple(range(axis, axis + mask.rank))
    for position, dim in zip(axes, mask.shape, strict=True):
        if not same_dim(dim, x.shape[position]):
            raise ShapeError(
                f"{name}: the mask does not fit: its dims are {mask.shape}, those of x from axis {axis} on are "
                f"{x.shape[axis : axis + mask.rank]}",
                operands={"x": x, "mask": mask},
                help="a mask must have the dims of the axes that it indexes; if they always agree, give them one name",
            )
    array = constant_array(mask)
    if array is None:
        return [Mask(axes, mask)]
    return [
        IndexArray(position, x.graph.build.constant(positions.astype(np.int64), DType.int64))
        for position, positions in zip(axes, np.nonzero(array), strict=True)
    ]


def _bool_scalar(name: str, x: Symbol) -> DTypeError:
    return DTypeError(
        f"{name}: a bool scalar is not an index",
        operands={"x": x},
        help="select with ops.where, or give a mask with the dims of the axes that it indexes",
    )
