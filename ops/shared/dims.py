"""Sizes when the graph runs: int64 Symbols that compute dims from the Symbols that carry their names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from graphcore.errors import ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.types.dim_polynomial import terms as _terms
from graphcore.types.dims import Dim, _build
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import DimLike, Shape, TensorType, _dim, _shape, tensor_type


class Axis(NamedTuple):
    """The size of one axis of a Symbol, whether or not it has a name."""

    symbol: Symbol
    axis: int

    @property
    def dim(self) -> Dim:
        return self.symbol.shape[self.axis]

    def is_of(self, symbol: Symbol, axis: int) -> bool:
        """Whether it is that axis of that Symbol. Not `==`, which would ask whether the Symbols' values are equal."""
        return self.symbol is symbol and self.axis == axis


Size = Dim | Axis | Symbol
"""A size as a dim, as that of an axis, or as an int64 Symbol of shape [1]."""


def shape_vector(graph: Graph, dims: Sequence[Size], sources: Sequence[Symbol] = (), *, op: str = "shape") -> Symbol:
    """The sizes as one int64 Symbol of shape [len(dims)]; a constant where all are static.

    sources: Symbols to look for the dims in, before all others of the graph. op: whose name errors carry. Raises
    `ShapeError` for a dim that is unknown or whose name no Symbol carries.
    """
    places: list[Axis | None] = [_place(graph, d, sources) for d in dims]
    parts: list[Symbol] = []
    position = 0
    while position < len(dims):
        here, place = dims[position], places[position]
        length = 1
        if place is not None:
            place, length = _longest(dims[position:], place, sources)
            parts.append(_axes(place, length))
        elif isinstance(here, Symbol):
            parts.append(here)
        elif isinstance(here, Dim) and here.is_static:
            constants: list[int] = []
            for dim in dims[position:]:
                if not (isinstance(dim, Dim) and dim.is_static):
                    break
                constants.append(int(dim))
            length = len(constants)
            if length < len(dims) and not parts and (run := _static_run(dims, sources)) is not None:
                place, length = run
                parts.append(_axes(place, length))
            else:
                parts.append(graph._vector(constants))
        else:
            assert isinstance(here, Dim)
            parts.append(_size(graph, here, sources, op))
        position += length
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return graph._vector([])

    def make() -> Symbol:
        return graph._emit("Concat", tuple(parts), _ints(len(dims)), {"axis": 0})

    if any(part.graph is not graph for part in parts):  # some are of the graph around a body, by numbers of its own
        return make()
    return _remembered(graph, ("sizes", *[part.id for part in parts]), make)


def dim_value(graph: Graph, dim: DimLike, sources: Sequence[Symbol] = (), *, op: str = "shape") -> Symbol:
    """One dim as an int64 scalar; otherwise like `shape_vector`."""
    known = _dim(dim)
    if known.is_static:
        return graph._scalar(int(known), DType.int64)
    return _remembered(
        graph,
        ("scalar of", known),
        lambda: graph._emit(
            "Squeeze",
            (shape_vector(graph, [known], sources, op=op), graph._vector([0])),
            tensor_type(DType.int64, _shape(())),
        ),
    )


def product(graph: Graph, sizes: Sequence[Size], sources: Sequence[Symbol] = (), *, op: str = "shape") -> Symbol:
    """The product of sizes, an int64 Symbol of shape [1]."""
    named = _shape([s for s in sizes if isinstance(s, Dim)]).size
    others = [shape_vector(graph, [s], sources, op=op) for s in sizes if not isinstance(s, Dim)]
    factors = others if named == 1 and others else [shape_vector(graph, [named], sources, op=op), *others]
    return functools.reduce(lambda a, b: _calculated("Mul", a, b), factors)


def provably_differ(a: Dim, b: Dim) -> bool:
    """Whether two dims are unequal for all sizes of the names from 1 up."""
    if a is b or a.is_dynamic or b.is_dynamic:
        return False
    apart = a - b
    apart = apart.substitute({name: Dim(name) + 1 for name in apart.parameters})
    return any(bound is not None and bound >= 1 for bound in (apart.lower_bound, (-apart).lower_bound))


def is_known(graph: Graph, dim: Dim) -> bool:
    """Whether its size can be found when the graph runs, from the axes of Symbols made so far."""
    if dim.is_dynamic:
        return False
    if dim.is_static or _carrier(graph, dim) is not None:
        return True
    if dim.name is not None:
        return any(_solves(carrier, dim) for carrier in _all_carriers(graph))
    return all(is_known(graph, Dim(name)) for name in dim.parameters)


def dims_of(op: str, shape: Any, *, help: str = "") -> list[Dim]:
    """A shape given by a user, one dim or a sequence of them, as dims. Raises `ShapeError`."""
    if isinstance(shape, Symbol):
        raise ShapeError(
            f"{op}: a Symbol is no shape here", operands={"shape": shape}, help=help or "give ints, names or Dims"
        )
    given = [shape] if isinstance(shape, (str, Dim)) or not isinstance(shape, Iterable) else list(shape)
    dims = []
    for dim in given:
        try:
            dims.append(_dim(dim))
        except ShapeError as error:
            raise ShapeError(f"{op}: {error.summary}", help=help or error.help) from None
    return dims


def with_dims(shape: Shape, start: int, stop: int, *dims: Dim) -> Shape:
    """The shape with other dims in place of those from `start` up to `stop`."""
    return _shape([*shape[:start], *dims, *shape[stop:]])


def in_pieces(function: Callable[..., Symbol]) -> Callable[..., Symbol]:
    """A function of a Symbol and a sequence as a method that takes it in pieces too: `x.reshape(2, 3)`."""

    def method(self: Symbol, *shape: Any, **options: Any) -> Symbol:
        whole = len(shape) == 1 and (
            (isinstance(shape[0], Iterable) and not isinstance(shape[0], str)) or isinstance(shape[0], Symbol)
        )
        return function(self, shape[0] if whole else shape, **options)

    method.__name__ = method.__qualname__ = function.__name__
    method.__doc__ = function.__doc__
    return method


def _ints(length: int) -> TensorType:
    return tensor_type(DType.int64, _shape((Dim(length),)))


def _remembered(graph: Graph, key: tuple[object, ...], make: Callable[[], Symbol]) -> Symbol:
    """What was made for `key` in the graph before: a name has one size in all of a graph."""
    found: Symbol | None = graph._plans.get(key)
    if found is None:
        found = graph._plans[key] = make()
    return found


# Where a dim is found


def _place(graph: Graph, dim: Size, sources: Sequence[Symbol]) -> Axis | None:
    """An axis of exactly this size, if there is one."""
    if isinstance(dim, Axis):
        return dim
    if not isinstance(dim, Dim) or not dim.is_symbolic:
        return None
    for source in sources:
        if isinstance(source.type, TensorType) and source.type.shape.is_ranked and not source.is_constant:
            for axis, found in enumerate(source.type.shape):
                if found is dim:
                    return Axis(source, axis)
    return _carrier(graph, dim)


class _Carriers(dict[Dim, Axis]):
    """For every symbolic dim of a graph the first axis that has it; inputs are a graph's first Symbols."""

    seen = 0


def _carrier(graph: Graph, dim: Dim) -> Axis | None:
    """An axis of this size in the graph, or else in those around it."""
    found = _carriers(graph).get(dim)
    if found is not None or graph._outer is None:
        return found
    around = _carrier(graph._outer, dim)
    return None if around is None else _captured(graph, around)


def _captured(graph: Graph, place: Axis) -> Axis:
    symbol = graph._capture(place.symbol)
    assert symbol is not None, "it is of a graph around"
    return Axis(symbol, place.axis)


def _carriers(graph: Graph) -> _Carriers:
    index: _Carriers = graph._plans.setdefault("carriers of dims", _Carriers())
    symbols = graph._symbols
    while index.seen < len(symbols):
        symbol = symbols[index.seen]
        index.seen += 1
        if isinstance(symbol.type, TensorType) and symbol.type.shape.is_ranked:
            for axis, dim in enumerate(symbol.type.shape):
                if dim.is_symbolic:
                    index.setdefault(dim, Axis(symbol, axis))
    return index


def _longest(dims: Sequence[Size], place: Axis, sources: Sequence[Symbol]) -> tuple[Axis, int]:
    """An axis of the first size from which on the most of the sizes that follow are found."""
    candidates = [place]
    if not isinstance(dims[0], Axis):
        candidates += [Axis(s, a) for s in sources for a, d in enumerate(s.shape) if d is dims[0]]
    return max(((c, _run(dims, c)) for c in candidates), key=lambda found: found[1])


def _run(dims: Sequence[Size], place: Axis) -> int:
    """How many sizes from the first on are those of the axes from `place` on."""
    symbol, first = place
    length = 0
    for dim, axis in zip(dims, range(first, symbol.rank), strict=False):
        same = dim.is_of(symbol, axis) if isinstance(dim, Axis) else _is_axis(dim, symbol, axis)
        if not same:
            break
        length += 1
    return length


def _is_axis(size: Dim | Symbol, symbol: Symbol, axis: int) -> bool:
    return isinstance(size, Dim) and not size.is_dynamic and symbol.shape[axis] is size


def _static_run(dims: Sequence[Size], sources: Sequence[Symbol]) -> tuple[Axis, int] | None:
    """A source whose whole shape begins the sizes, static dims in front: one Shape node for all of them."""
    for source in sources:
        if source.rank and _run(dims, Axis(source, 0)) == source.rank and not source.shape.is_static:
            return Axis(source, 0), source.rank
    return None


# What a dim is computed from


def _axes(place: Axis, length: int) -> Symbol:
    symbol, start = place
    graph = symbol.graph
    attributes = {} if length == symbol.rank else {"start": start, "end": start + length}

    def make() -> Symbol:
        return graph._emit("Shape", (symbol,), _ints(length), attributes)

    return _remembered(graph, ("sizes of", symbol.id, start, length), make)


def _size(graph: Graph, dim: Dim, sources: Sequence[Symbol], op: str) -> Symbol:
    """One dim, an int64 Symbol of shape [1]."""
    if dim.is_static:
        return graph._vector([int(dim)])
    place = _place(graph, dim, sources)
    if place is not None:
        return _axes(place, 1)
    return _remembered(graph, ("size of", dim), lambda: _computed(graph, dim, sources, op))


def _computed(graph: Graph, dim: Dim, sources: Sequence[Symbol], op: str) -> Symbol:
    if dim.is_dynamic:
        raise ShapeError(
            f"{op}: the size of an unknown dim (?) cannot be found when the graph runs",
            help="name the dim where it comes from, or give its size as a Symbol: ops.shape_of(x)[axis]",
        )
    if dim.name is not None:
        return _solved(graph, dim, op)
    if dim._op:
        args = [_size(graph, arg, sources, op) for arg in dim._args]
        return _quotient(dim, *args) if dim._op == "//" else _calculated({"max": "Max", "min": "Min"}[dim._op], *args)
    total: Symbol | None = None
    for atoms, factor in sorted(_terms(dim), key=lambda term: term[1] < 0):
        # A first term that is negative has nothing to be taken from.
        scale = abs(factor) if total is not None else factor
        term = _monomial(graph, atoms, sources, op) if atoms else graph._vector([scale])
        if atoms and scale != 1:
            term = _calculated("Mul", term, graph._vector([scale]))
        total = term if total is None else _calculated("Add" if factor > 0 else "Sub", total, term)
    assert total is not None, "a dim of no terms is static"
    return total


def _monomial(graph: Graph, atoms: tuple[Dim, ...], sources: Sequence[Symbol], op: str) -> Symbol:
    whole = _build({atoms: 1})
    if len(atoms) < 2 or _place(graph, whole, sources) is not None:
        return _size(graph, whole, sources, op)
    factors = [_size(graph, atom, sources, op) for atom in atoms]
    return functools.reduce(lambda a, b: _calculated("Mul", a, b), factors)


def _quotient(dim: Dim, above: Symbol, below: Symbol) -> Symbol:
    """A floor division; that of the kernel truncates."""
    bounds = [arg.lower_bound for arg in dim._args]
    if any(bound is None or bound < 0 for bound in bounds):
        above = _calculated("Sub", above, _calculated("Mod", above, below))
    return _calculated("Div", above, below)


def _all_carriers(graph: Graph) -> dict[Dim, Axis]:
    """The axes of every symbolic dim of the graph and of those around it."""
    carriers: dict[Dim, Axis] = {}
    around: Graph | None = graph
    while around is not None:
        carriers = {**_carriers(around), **carriers}
        around = around._outer
    return carriers


def _solves(dim: Dim, name: Dim) -> tuple[int, int] | None:
    """The factor and the offset, where the dim is a multiple of the name plus a number."""
    terms = dict(_terms(dim))
    factor, offset = terms.pop((name,), 0), terms.pop((), 0)
    return (factor, offset) if factor and not terms else None


def _solved(graph: Graph, name: Dim, op: str) -> Symbol:
    """A name that no axis has by itself, from an axis that has a multiple of it plus a number."""
    carriers = _all_carriers(graph)
    for dim, place in carriers.items():
        found = _solves(dim, name)
        if found is not None:
            factor, offset = found
            size = _axes(_captured(graph, place), 1)
            if offset:
                size = _calculated("Sub", size, graph._vector([offset]))
            return size if factor == 1 else _calculated("Div", size, graph._vector([factor]))
    known = sorted({p for dim in carriers for p in dim.parameters})
    raise ShapeError(
        f"{op}: no Symbol has a dim {str(name)!r}, so its size cannot be found when the graph runs",
        operands={f"input {i}": s for i, s in enumerate(graph.inputs)},
        help=f"use the names of this graph: {', '.join(known)}" if known else "the dims of this graph have no names",
    )


def _calculated(op_type: str, *operands: Symbol) -> Symbol:
    return operands[0].graph._emit(op_type, operands, _ints(1))
