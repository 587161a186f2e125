"""Operands made ready for an op: found in one graph, brought to the dtypes that promotion says, cast where needed.

Every implicit cast of the library is inserted here.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphcore.errors import DTypeError, GraphcoreError, GraphError, LossyCastWarning, PromotionError, ShapeError
from graphcore.ir.graph import Graph, _current
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.promotion.system import Key, NoPromotion, Operand, Resolution, Rule, Scalar
from graphcore.support.source_lines import user_line
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import DimLike, Shape, TensorType, _dim, _shape, tensor_type

Roles = Mapping[str, Any]
"""Operands by the names that errors call them: {"lhs": x, "rhs": y}."""

_SCALARS = (bool, int, float)


def graph_of(op: str, values: Iterable[object]) -> Graph:
    """The one graph that the Symbols among `values` belong to, or the current one. Raises `GraphError`."""
    found: Graph | None = None
    for value in values:
        if isinstance(value, Symbol):
            if found is None:
                found = value.graph
                if found._inner is not None:
                    found = found._own(value, op, "an operand").graph
            elif value.graph is not found:
                found._own(value, op, "an operand")
    found = found or _current.get()
    if found is None:
        raise GraphError(
            f"{op}: no operand is a Symbol, so there is no graph to build in",
            help="give a Symbol, or build inside `with graph:`",
        )
    return found if found._inner is None else found._open()


def operand(op: str, value: TensorLike, role: str = "x") -> Symbol:
    """One operand as a Symbol, whatever its dtype. Raises `DTypeError` for what is no tensor."""
    if type(value) is Symbol:
        return value if value.graph._inner is None else value.graph._own(value, op, role)
    return graph_of(op, (value,))._operand(value, op, role)


def promote(op: str, rule: Rule, roles: Roles) -> tuple[list[Symbol], DType]:
    """The operands cast to what the graph's promotion system says, and the dtype of the result.

    roles: operands by role. Raises `PromotionError` or `DTypeError` where they do not go together, `GraphError` where
    they are of different graphs.
    """
    graph = graph_of(op, roles.values())
    symbols, literals = _split(graph, op, roles)
    resolution = resolve(graph, Key(op, rule), roles, symbols, literals)
    return apply(graph, op, roles, symbols, literals, resolution), resolution.result


def promote_one(op: str, rule: Rule, value: TensorLike, role: str = "x") -> tuple[Symbol, DType]:
    """`promote` for a single operand."""
    (symbol,), dtype = promote(op, rule, {role: value})
    return symbol, dtype


def _split(graph: Graph, op: str, roles: Roles) -> tuple[list[Symbol | None], list[Scalar | None]]:
    symbols: list[Symbol | None] = []
    literals: list[Scalar | None] = []
    for role, value in roles.items():
        literal = type(value) in _SCALARS
        if type(value) is str and _are_strings(roles):
            value = np.array(value, object)
        symbols.append(None if literal else graph._operand(value, op, role))
        literals.append(value if literal else None)
    return symbols, literals


def _are_strings(roles: Roles) -> bool:
    """Whether some operand is of strings, so that Python's text is one beside it."""
    types = [value.type for value in roles.values() if isinstance(value, Symbol)]
    return any(isinstance(type_, TensorType) and type_.dtype is DType.string for type_ in types)


def resolve(
    graph: Graph, key: Key, roles: Roles, symbols: Sequence[Symbol | None], literals: Sequence[Scalar | None]
) -> Resolution:
    """Asks the graph's promotion system, and turns its refusal into an error that names the operands."""
    system = graph.promotion
    described = [
        Operand(None, literal=literal) if symbol is None else describe(symbol, system.reads_operands)
        for symbol, literal in zip(symbols, literals, strict=True)
    ]
    try:
        return system.resolve(key, described)
    except NoPromotion as refusal:
        raise refused(key.op, refusal, roles) from None


def describe(symbol: Symbol, reads_shapes: bool) -> Operand:
    """What a promotion system is told of a Symbol."""
    shape = symbol.shape
    if not reads_shapes or not shape.is_ranked:
        return Operand(symbol.dtype, None, symbol.ambiguous)
    length = int(shape[0]) if len(shape) == 1 and shape[0].is_static else None
    return Operand(symbol.dtype, None, symbol.ambiguous, len(shape), length)


def refused(op: str, refusal: NoPromotion, roles: Roles) -> GraphcoreError:
    """A system's refusal as the error that the user sees, which names the operands."""
    shown = {role: repr(value) if type(value) in _SCALARS else value for role, value in roles.items()}
    return refusal.error(f"{op}: {refusal.reason}", operands=shown, help=refusal.help)


def apply(
    graph: Graph,
    op: str,
    roles: Roles,
    symbols: Sequence[Symbol | None],
    literals: Sequence[Scalar | None],
    resolution: Resolution,
) -> list[Symbol]:
    """The operands cast as resolved; literals become constants."""
    given = zip(roles, symbols, resolution.operands, strict=True)
    cast = {r: (s, to) for r, s, to in given if s is not None and to is not None and s.type.dtype is not to}
    if cast:
        report_lossy(graph, op, cast)
    made = []
    for symbol, literal, dtype in zip(symbols, literals, resolution.operands, strict=True):
        if symbol is None:
            assert literal is not None
            made.append(graph._scalar(literal, dtype or resolution.result, resolution.ambiguous))
        else:
            made.append(cast_operand(symbol, dtype, resolution.ambiguous))
    return made


def cast_operand(symbol: Symbol, dtype: DType | None, ambiguous: bool = False) -> Symbol:
    """An operand as promotion wants it; None leaves it as it is. Errors go on showing what the user wrote.

    ambiguous: what the operands meet in is only a default.
    """
    if dtype is None or symbol.type.dtype is dtype:
        return symbol
    graph = symbol.graph
    once = graph._once
    is_written = (symbol.id, dtype, ambiguous) in once.casts
    cast = graph._cast(symbol, dtype, ambiguous)
    if not is_written:
        once.implicit[cast.id] = symbol
    return cast


def as_index(positions: Symbol) -> Symbol:
    """int64 positions or counts in the dtype that the graph's promotion system has for them."""
    return cast_operand(positions, positions.graph.promotion.index_dtype)


def is_lossy(source: DType, target: DType) -> bool:
    """Whether `target` cannot hold the range of `source`."""
    if DType.string in (source, target) or target.kind.value == "bool":
        return False
    if target.is_float:
        # An integer just above the greatest finite value may still round down to it.
        return source.bits - source.is_signed > 1023 or float(source.max) > target.max
    return source.is_float or source.max > target.max or source.min < target.min


def report_lossy(graph: Graph, op: str, operands: Mapping[str, tuple[Symbol, DType]]) -> None:
    """Speaks of implicit casts that lose range: warns once a line, raises `PromotionError` in a strict graph.

    operands: by role, the Symbols and what they are about to be cast to; those that lose nothing are passed over, and
    so are those whose dtype was only a default.
    """
    lossy = {role: (s, to) for role, (s, to) in operands.items() if not s.ambiguous and is_lossy(s.type.dtype, to)}
    if not lossy:
        return
    casts = " and ".join(f"of {role} from {s.type.dtype} to {to}" for role, (s, to) in lossy.items())
    reason = f"{op}: the implicit cast {casts} cannot hold the operand's range"
    fix = "cast the operands yourself to the dtype you mean, such as .cast(DType.float64)"
    if graph.strict:
        raise PromotionError(reason, operands={role: s for role, (s, _) in lossy.items()}, help=fix)
    line = user_line()
    path, number = line or ("<unknown>", 0)
    where = f" at {line}   {line.text}" if line else ""
    registry = _warned.setdefault(path, {})
    warnings.warn_explicit(f"{reason}; {fix}{where}", LossyCastWarning, path, number, registry=registry)


_warned: dict[str, dict[str | tuple[str, type[Warning], int], int]] = {}


# Shapes


def broadcast(op: str, roles: Mapping[str, Symbol]) -> Shape:
    """The shape that operands broadcast to, as NumPy has it. Raises `ShapeError`.

    Two dims that are not provably equal go together only if one of them is 1 or unknown.
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


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    """Like `broadcast`; raises `ValueError` naming the two dims."""
    first = shapes[0]
    for shape in shapes:
        if shape is not first and shape != first:
            break
    else:
        return first
    if not all(s.is_ranked for s in shapes):
        return Shape.unknown()
    rank = max(map(len, shapes))
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
                raise ValueError(f"{chosen} and {dim} at axis {position}")
        assert chosen is not None
        dims.append(chosen)
    return _shape(dims)


def axis_of(op: str, axis: object, rank: int, roles: Roles, *, name: str = "axis") -> int:
    """`axis` counted from 0. Raises `ShapeError` where it is no axis of a tensor of that rank."""
    if isinstance(axis, (int, np.integer)) and not isinstance(axis, bool) and -rank <= axis < rank:
        return int(axis) % rank
    what = f"{axis!r} is no axis" if not isinstance(axis, int) else f"there is no axis {axis}"
    valid = f"one of {-rank} to {rank - 1}" if rank else "nothing: a scalar has no axes"
    raise ShapeError(f"{op}: {what} of a tensor of rank {rank}", operands=roles, help=f"{name} must be {valid}")


def axes_of(op: str, axis: object, rank: int, roles: Roles, *, name: str = "axis") -> tuple[int, ...]:
    """`axis=None | int | tuple` as axes counted from 0, in the order given; None is all. Raises `ShapeError`."""
    if axis is None:
        return tuple(range(rank))
    given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    found = tuple(axis_of(op, a, rank, roles, name=name) for a in given)
    if len(set(found)) != len(found):
        raise ShapeError(f"{op}: {name}={axis} names an axis twice", operands=roles, help="name each axis once")
    return found


def same_dim(lhs: DimLike, rhs: DimLike) -> bool:
    """Whether two dims may be equal: they are, or one is unknown."""
    left, right = _dim(lhs), _dim(rhs)
    return left is right or left.is_dynamic or right.is_dynamic


def dtype_of(op: str, dtype: object) -> DType:
    """`DType.of` for an argument of an op."""
    try:
        return DType.of(dtype)
    except DTypeError as error:
        raise DTypeError(f"{op}: {error.summary}", help=error.help) from None


def retype(symbol: Symbol, dtype: DType | None = None, shape: Shape | None = None) -> Any:
    """The TensorType of `symbol` with another dtype or shape."""
    own = symbol.type
    return tensor_type(dtype or own.dtype, own.shape if shape is None else shape)
