"""Sizes when the graph runs: int64 Symbols that compute dims from the Symbols that have their names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from graphcore.build import primitives as e
from graphcore.errors import ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import DimPlaces
from graphcore.ir.symbol import Symbol
from graphcore.types.dim_polynomial import terms as _terms
from graphcore.types.dims import Dim, _build
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import DimLike, Shape, TensorType, _dim, _shape, tensor_type


class Axis(NamedTuple):
    """The size of one axis of a Symbol, with or without a name."""

    symbol: Symbol
    axis: int

    @property
    def dim(self) -> Dim:
        return self.symbol.shape[self.axis]

    def is_of(self, symbol: Symbol, axis: int) -> bool:
        """Return True if this is axis `axis` of `symbol`. `==` would compare the values of Symbols."""
        return self.symbol is symbol and self.axis == axis


SizeLike: TypeAlias = "DimLike | Symbol"
"""A size of a new tensor: an int, a name, a Dim, or an integer scalar Symbol."""

Size = Dim | Axis | Symbol
"""A size: a dim, the size of an axis, or an int64 Symbol of shape [1]."""


def shape_vector(graph: Graph, dims: Sequence[Size], sources: Sequence[Symbol] = (), *, op: str = "shape") -> Symbol:
    """Return the sizes as one int64 Symbol of shape [len(dims)]; a constant where all are static.

    sources: Symbols to search for the dims before the others of the graph. op: the name of the op in errors. Raises
    `ShapeError` for an unknown dim, and for a name that no Symbol has.
    """
    places: list[Axis | None] = [_place(graph, d, sources) for d in dims]
    parts: list[Symbol] = []
    position = 0
    while position < len(dims):
        here, place = dims[position], places[position]
        length = 1
        if place is not None:
            place, length = _max_run(dims[position:], place, sources)
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
                parts.append(graph.build.vector(constants))
        else:
            assert isinstance(here, Dim)
            parts.append(_size(graph, here, sources, op))
        position += length
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return graph.build.vector([])

    def make() -> Symbol:
        return graph.build.emit("Concat", tuple(parts), _ints(len(dims)), {"axis": 0})

    if any(part.graph is not graph for part in parts):  # some are of an outer graph
        return make()
    return _cached(graph, ("sizes", *[part.id for part in parts]), make)


def dim_value(graph: Graph, dim: DimLike, sources: Sequence[Symbol] = (), *, op: str = "shape") -> Symbol:
    """Return one dim as an int64 scalar; otherwise like `shape_vector`."""
    size = _dim(dim)
    if size.is_static:
        return graph.build.scalar(int(size), DType.int64)
    return _cached(
        graph,
        ("scalar of", size),
        lambda: graph.build.emit(
            "Squeeze",
            (shape_vector(graph, [size], sources, op=op), graph.build.vector([0])),
            tensor_type(DType.int64, _shape(())),
        ),
    )


def product(graph: Graph, sizes: Sequence[Size], sources: Sequence[Symbol] = (), *, op: str = "shape") -> Symbol:
    """Return the product of sizes, an int64 Symbol of shape [1]."""
    named = _shape([s for s in sizes if isinstance(s, Dim)]).size
    others = [shape_vector(graph, [s], sources, op=op) for s in sizes if not isinstance(s, Dim)]
    factors = others if named == 1 and others else [shape_vector(graph, [named], sources, op=op), *others]
    return functools.reduce(lambda a, b: _emit_size("Mul", a, b), factors)


def size_of(x: Symbol, axis: int) -> Size:
    """Return the size of an axis, as its dim if that is static."""
    return x.shape[axis] if x.shape[axis].is_static else Axis(x, axis)


def count_of(x: Symbol, axis: int) -> Symbol:
    """Return the size of an axis as an int64 scalar; a constant if it is static."""
    if x.shape[axis].is_static:
        return x.graph.build.scalar(int(x.shape[axis]), DType.int64)
    return e.squeeze(shape_vector(x.graph, [Axis(x, axis % x.rank)]), 0)


def divided(x: Symbol, axis: int, count: int) -> Size:
    """Return the size of an axis over a number that divides it."""
    if x.shape[axis].is_static:
        return x.shape[axis] // count
    return e.emit("Div", shape_vector(x.graph, [Axis(x, axis)]), x.graph.build.vector([count]))


def places_of(x: Symbol, axis: int) -> Symbol:
    """Return 0, 1, ... along an axis, computed in the graph: int64 [n]."""
    count = count_of(x, axis)
    return e.emit("Range", e.const(count, 0), count, e.const(count, 1), shape=_shape([x.shape[axis]]))


def provably_differ(a: Dim, b: Dim) -> bool:
    """Return True if two dims differ whatever sizes >= 1 their names have."""
    if a is b or a.is_dynamic or b.is_dynamic:
        return False
    apart = a - b
    apart = apart.substitute({name: Dim(name) + 1 for name in apart.parameters})
    return any((side.lower_bound or 0) >= 1 for side in (apart, -apart))


def is_known(graph: Graph, dim: Dim) -> bool:
    """Return True if the size of a dim can be computed at run time from the axes of the graph's Symbols."""
    if dim.is_dynamic:
        return False
    if dim.is_static or _axis_of(graph, dim) is not None:
        return True
    if dim.name is not None:
        return any(_linear_in(named, dim) for named in _all_named_axes(graph))
    return all(is_known(graph, Dim(name)) for name in dim.parameters)


def dims_of(op: str, shape: Any, *, help: str = "") -> list[Dim]:
    """Return the dims of a shape argument, one dim or a sequence of them. Raises `ShapeError`."""
    if isinstance(shape, Symbol):
        raise ShapeError(
            f"{op}: a shape must be static here, got a Symbol",
            operands={"shape": shape},
            help=help or "give ints, names or Dims",
        )
    dims = []
    for dim in listed(shape):
        try:
            dims.append(_dim(dim))
        except ShapeError as error:
            raise ShapeError(f"{op}: {error.summary}", help=help or error.help) from None
    return dims


def listed(shape: Any) -> list[Any]:
    """Return the sizes of a shape argument, one size or a sequence of them, unchecked."""
    single = isinstance(shape, (str, Dim, Symbol)) or not isinstance(shape, Iterable)
    return [shape] if single else list(shape)


def with_dims(shape: Shape, start: int, stop: int, *dims: Dim) -> Shape:
    """Replace the dims of a shape from `start` up to `stop`."""
    return _shape([*shape[:start], *dims, *shape[stop:]])


def in_pieces(function: Callable[..., Symbol]) -> Callable[..., Symbol]:
    """Turn a function of a Symbol and a sequence into a method that also takes separate items: `x.reshape(2, 3)`."""

    def method(self: Symbol, *shape: Any, **options: Any) -> Symbol:
        is_one_argument = len(shape) == 1 and (
            (isinstance(shape[0], Iterable) and not isinstance(shape[0], str)) or isinstance(shape[0], Symbol)
        )
        return function(self, shape[0] if is_one_argument else shape, **options)

    method.__name__ = method.__qualname__ = function.__name__
    method.__doc__ = function.__doc__
    return method


def _ints(length: int) -> TensorType:
    return tensor_type(DType.int64, _shape((Dim(length),)))


def _cached(graph: Graph, key: tuple[object, ...], make: Callable[[], Symbol]) -> Symbol:
    """Return the cached Symbol of `key`, made at the first call: a name has one size in all of a graph."""
    sizes = graph.memory.sizes
    symbol = sizes.get(key)
    if symbol is None:
        symbol = sizes[key] = make()
    return symbol


# Axes that have a dim


def _place(graph: Graph, dim: Size, sources: Sequence[Symbol]) -> Axis | None:
    """Return an axis of exactly this size, if there is one."""
    if isinstance(dim, Axis):
        return dim
    if not isinstance(dim, Dim) or not dim.is_symbolic:
        return None
    for source in sources:
        if isinstance(source.type, TensorType) and source.type.shape.is_ranked and not source.is_constant:
            for axis, axis_dim in enumerate(source.type.shape):
                if axis_dim is dim:
                    return Axis(source, axis)
    return _axis_of(graph, dim)


def _axis_of(graph: Graph, dim: Dim) -> Axis | None:
    """Return an axis of this size in the graph, or else in its outer graphs."""
    local = _named_axes(graph).get(dim)
    if local is not None:
        return Axis(*local)
    outer = graph.scope.outer
    place = None if outer is None else _axis_of(outer, dim)
    return None if place is None else _captured(graph, place)


def _captured(graph: Graph, place: Axis) -> Axis:
    symbol = graph.build.capture(place.symbol)
    assert symbol is not None, "the axis is of an outer graph"
    return Axis(symbol, place.axis)


def _named_axes(graph: Graph) -> DimPlaces[Symbol]:
    """Return the first axis of each symbolic dim; inputs are a graph's first Symbols."""
    index, symbols = graph.memory.dim_places, graph.symbols
    while index.seen < len(symbols):
        symbol = symbols[index.seen]
        index.seen += 1
        if isinstance(symbol.type, TensorType) and symbol.type.shape.is_ranked:
            for axis, dim in enumerate(symbol.type.shape):
                if dim.is_symbolic:
                    index.setdefault(dim, (symbol, axis))
    return index


def _max_run(dims: Sequence[Size], place: Axis, sources: Sequence[Symbol]) -> tuple[Axis, int]:
    """Return the axis from which the most leading sizes are consecutive axes of one Symbol, and their number."""
    candidates = [place]
    if not isinstance(dims[0], Axis):
        candidates += [Axis(s, a) for s in sources for a, d in enumerate(s.shape) if d is dims[0]]
    return max(((c, _run(dims, c)) for c in candidates), key=lambda run: run[1])


def _run(dims: Sequence[Size], place: Axis) -> int:
    """Return the number of leading sizes that equal consecutive axes from `place` on."""
    symbol, first = place
    length = 0
    for dim, axis in zip(dims, range(first, symbol.rank), strict=False):
        if isinstance(dim, Axis):
            same = dim.is_of(symbol, axis)
        else:
            same = isinstance(dim, Dim) and not dim.is_dynamic and symbol.shape[axis] is dim
        if not same:
            break
        length += 1
    return length


def _static_run(dims: Sequence[Size], sources: Sequence[Symbol]) -> tuple[Axis, int] | None:
    """Return a source whose whole shape equals the first sizes, and its rank: one Shape node returns them all."""
    for source in sources:
        if source.rank and _run(dims, Axis(source, 0)) == source.rank and not source.shape.is_static:
            return Axis(source, 0), source.rank
    return None


# Computation of a dim


def _axes(place: Axis, length: int) -> Symbol:
    symbol, start = place
    graph = symbol.graph
    attributes = {} if length == symbol.rank else {"start": start, "end": start + length}

    def make() -> Symbol:
        return graph.build.emit("Shape", (symbol,), _ints(length), attributes)

    return _cached(graph, ("sizes of", symbol.id, start, length), make)


def _size(graph: Graph, dim: Dim, sources: Sequence[Symbol], op: str) -> Symbol:
    """Compute one dim, an int64 Symbol of shape [1]."""
    if dim.is_static:
        return graph.build.vector([int(dim)])
    place = _place(graph, dim, sources)
    if place is not None:
        return _axes(place, 1)
    return _cached(graph, ("size of", dim), lambda: _compute_dim(graph, dim, sources, op))


def _compute_dim(graph: Graph, dim: Dim, sources: Sequence[Symbol], op: str) -> Symbol:
    if dim.is_dynamic:
        raise ShapeError(
            f"{op}: the size of an unknown dim (?) cannot be computed when the graph runs",
            help="name the dim where it is declared, or give its size as a Symbol: ops.shape_of(x)[axis]",
        )
    if dim.name is not None:
        return _solve_name(graph, dim, op)
    if dim._op:
        args = [_size(graph, arg, sources, op) for arg in dim._args]
        return _quotient(dim, *args) if dim._op == "//" else _emit_size({"max": "Max", "min": "Min"}[dim._op], *args)
    total: Symbol | None = None
    for atoms, factor in sorted(_terms(dim), key=lambda term: term[1] < 0):
        # Nothing precedes a negative first term to subtract it from.
        scale = abs(factor) if total is not None else factor
        term = _monomial(graph, atoms, sources, op) if atoms else graph.build.vector([scale])
        if atoms and scale != 1:
            term = _emit_size("Mul", term, graph.build.vector([scale]))
        total = term if total is None else _emit_size("Add" if factor > 0 else "Sub", total, term)
    assert total is not None, "a dim without terms is static"
    return total


def _monomial(graph: Graph, atoms: tuple[Dim, ...], sources: Sequence[Symbol], op: str) -> Symbol:
    monomial = _build({atoms: 1})
    if len(atoms) < 2 or _place(graph, monomial, sources) is not None:
        return _size(graph, monomial, sources, op)
    factors = [_size(graph, atom, sources, op) for atom in atoms]
    return functools.reduce(lambda a, b: _emit_size("Mul", a, b), factors)


def _quotient(dim: Dim, above: Symbol, below: Symbol) -> Symbol:
    """Emit a floor division; the kernel's division truncates."""
    bounds = [arg.lower_bound for arg in dim._args]
    if any(bound is None or bound < 0 for bound in bounds):
        above = _emit_size("Sub", above, _emit_size("Mod", above, below))
    return _emit_size("Div", above, below)


def _all_named_axes(graph: Graph) -> dict[Dim, Axis]:
    """Return the axes of every symbolic dim of the graph and of its outer graphs."""
    axes: dict[Dim, Axis] = {}
    scope: Graph | None = graph
    while scope is not None:
        axes = {**{dim: Axis(*place) for dim, place in _named_axes(scope).items()}, **axes}
        scope = scope.scope.outer
    return axes


def _linear_in(dim: Dim, name: Dim) -> tuple[int, int] | None:
    """Return (factor, offset) of a dim that is factor * name + offset, else None."""
    terms = dict(_terms(dim))
    factor, offset = terms.pop((name,), 0), terms.pop((), 0)
    return (factor, offset) if factor and not terms else None


def _solve_name(graph: Graph, name: Dim, op: str) -> Symbol:
    """Compute a name that no axis has alone from an axis that is a multiple of it plus a number."""
    axes = _all_named_axes(graph)
    for dim, place in axes.items():
        solution = _linear_in(dim, name)
        if solution is not None:
            factor, offset = solution
            size = _axes(_captured(graph, place), 1)
            if offset:
                size = _emit_size("Sub", size, graph.build.vector([offset]))
            return size if factor == 1 else _emit_size("Div", size, graph.build.vector([factor]))
    names = sorted({p for dim in axes for p in dim.parameters})
    raise ShapeError(
        f"{op}: no Symbol has a dim {str(name)!r}, so its size cannot be computed when the graph runs",
        operands={f"input {i}": s for i, s in enumerate(graph.inputs)},
        help=f"use the names of this graph: {', '.join(names)}" if names else "the dims of this graph have no names",
    )


def _emit_size(op_type: str, *operands: Symbol) -> Symbol:
    return operands[0].graph.build.emit(op_type, operands, _ints(1))
