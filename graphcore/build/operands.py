"""Prepares the operands of an op: finds their graph, resolves promotion, inserts casts.

All implicit casts of the library are inserted here.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import cast as typed

import numpy as np

from graphcore import promotion
from graphcore.build.shapes import Roles
from graphcore.errors import DTypeError, GraphcoreError, GraphError, LossyCastWarning, PromotionError
from graphcore.ir.definitions import outermost
from graphcore.ir.graph import Graph, _current
from graphcore.ir.scope import size_of
from graphcore.ir.symbol import Node, Symbol, SymbolTuple, TensorLike, last_shape, present
from graphcore.promotion.rules import Key, NoPromotion, Operand, Resolution, Rule, Scalar
from graphcore.support.escaping import escaped, text_of
from graphcore.support.source_lines import promoted, user_line
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType, real_of
from graphcore.types.tensor_types import TensorType, _shape, tensor_type

_SCALARS = (bool, int, float, complex)

_set_origin = Node.__dict__["origin"].__set__  # assignment is an error, and `change` is slower


def graph_of(op: str, values: Iterable[object]) -> Graph:
    """Return the graph of the Symbols among `values`, the current one, or that of Dims among them.

    Raises `GraphError` for several graphs.
    """
    graph: Graph | None = None
    for value in values:
        if isinstance(value, Symbol):
            if graph is None:
                graph = value.graph
                if not graph.scope.is_open:
                    graph = graph.build.own(value, op, "an operand").graph
            elif value.graph is not graph:
                graph.build.own(value, op, "an operand")
    graph = graph or _current.get() or _graph_of_dims(values)
    if graph is None:
        fix = "pass a Symbol, or build inside `with graph:`"
        if any(hasattr(value, "__array__") for value in values):
            fix += "; gc.tensor(array) computes at once, and gc.jit compiles functions of arrays"
        raise GraphError(f"{op}: no operand is a Symbol, so there is no graph to build in", help=fix)
    return graph if graph.scope.is_open else graph.build.innermost()


def _graph_of_dims(values: Iterable[object]) -> Graph | None:
    """Return the graph under construction that dims were read from last, if one of the values is a Dim."""
    graph = last_shape.graph() if any(type(value) is Dim for value in values) else None
    graph = None if graph is None else outermost(graph)
    return None if graph is None or graph.outputs else graph


def operand(op: str, value: TensorLike, role: str = "x") -> Symbol:
    """Return an operand of any dtype as a Symbol. Raises `DTypeError` if it is not a tensor."""
    if type(value) is Symbol:
        return value if value.graph.scope.is_open else value.graph.build.own(value, op, role)
    return graph_of(op, (value,)).build.operand(value, op, role)


def promote(op: str, rule: Rule, roles: Roles) -> tuple[list[Symbol], DType]:
    """Return the operands cast as the promotion system of their graph requires, and the dtype of the result.

    roles: operands by role. Raises `PromotionError` or `DTypeError` if they have no common dtype, `GraphError` if they
    belong to different graphs.
    """
    graph = graph_of(op, roles.values())
    symbols, literals = _split(graph, op, roles)
    resolution = resolve(graph, Key(op, rule), roles, symbols, literals)
    return apply(graph, op, roles, symbols, literals, resolution), resolution.result


def implicit_cast(lhs: Symbol, rhs: Symbol) -> SymbolTuple:
    """Cast two Symbols to their common dtype in the promotion system of their graph.

    Raises:
        PromotionError: There is no common dtype.
        GraphError: The Symbols belong to different graphs.
    """
    symbols, _ = promote("implicit_cast", "join", {"lhs": lhs, "rhs": rhs})
    return SymbolTuple(*symbols)


setattr(promotion, "implicit_cast", implicit_cast)  # noqa: B010 - promotion cannot import graphs


def promote_one(op: str, rule: Rule, value: TensorLike, role: str = "x") -> tuple[Symbol, DType]:
    """Promote a single operand. See `promote`."""
    (symbol,), dtype = promote(op, rule, {role: value})
    return symbol, dtype


def _split(graph: Graph, op: str, roles: Roles) -> tuple[list[Symbol | None], list[Scalar | None]]:
    symbols: list[Symbol | None] = []
    literals: list[Scalar | None] = []
    for role, value in roles.items():
        if type(value) is Dim:
            value = size_of(value, op, role)
        literal = type(value) in _SCALARS
        if type(value) is str and _are_strings(roles):
            value = np.array(value, object)
        symbols.append(None if literal else graph.build.operand(value, op, role))
        literals.append(value if literal else None)
    return symbols, literals


def graph_and_operands(op: str, roles: Roles) -> tuple[Graph, list[Symbol | Scalar]]:
    """Return the graph that an op is built in, and its operands as Symbols of that graph or as Python numbers.

    Raises `GraphError` for operands of different graphs, `DTypeError` for operands that are not tensors.
    """
    graph = graph_of(op, roles.values())
    symbols, literals = _split(graph, op, roles)
    return graph, [typed(Scalar, v) if s is None else s for s, v in zip(symbols, literals, strict=True)]


def _are_strings(roles: Roles) -> bool:
    """Return True if an operand is a string tensor: then Python text is an operand, too."""
    types = [value.type for value in roles.values() if isinstance(value, Symbol)]
    return any(isinstance(type_, TensorType) and type_.dtype is DType.string for type_ in types)


def resolve(
    graph: Graph, key: Key, roles: Roles, symbols: Sequence[Symbol | None], literals: Sequence[Scalar | None]
) -> Resolution:
    """Resolve promotion by the system of the graph; convert its refusal to an error that shows the operands."""
    system = graph.promotion
    described = [
        Operand(None, literal=literal) if symbol is None else describe(symbol, system.reads_operands)
        for symbol, literal in zip(symbols, literals, strict=True)
    ]
    try:
        return system.resolve(key, described)
    except NoPromotion as refusal:
        raise promotion_error(key.op, refusal, roles) from None


def describe(symbol: Symbol, reads_shapes: bool) -> Operand:
    """Return the description of a Symbol for a promotion system."""
    shape = symbol.shape
    if not reads_shapes or not shape.is_ranked:
        return Operand(symbol.dtype, None, symbol.ambiguous)
    length = int(shape[0]) if len(shape) == 1 and shape[0].is_static else None
    return Operand(symbol.dtype, None, symbol.ambiguous, len(shape), length)


def promotion_error(op: str, refusal: NoPromotion, roles: Roles) -> GraphcoreError:
    """Return the error for the refusal of a promotion system, with the operands."""
    operands = {role: text_of(value) if type(value) in _SCALARS else value for role, value in roles.items()}
    return refusal.error(f"{op}: {refusal.reason}", operands=operands, help=refusal.help)


def apply(
    graph: Graph,
    op: str,
    roles: Roles,
    symbols: Sequence[Symbol | None],
    literals: Sequence[Scalar | None],
    resolution: Resolution,
) -> list[Symbol]:
    """Return the operands cast as resolved, with literals as constants."""
    items = zip(roles, symbols, resolution.operands, strict=True)
    cast = {r: (s, to) for r, s, to in items if s is not None and to is not None and s.type.dtype is not to}
    if cast:
        report_lossy(graph, op, cast)
    values = (literal if s is None else s for s, literal in zip(symbols, literals, strict=True))
    cause = (op, *kinds_of(values)) if cast else ()
    results = []
    for symbol, literal, dtype in zip(symbols, literals, resolution.operands, strict=True):
        if symbol is None:
            results.append(graph.build.scalar(present(literal), dtype or resolution.result, resolution.ambiguous))
        else:
            results.append(cast_operand(symbol, dtype, resolution.ambiguous, cause))
    if op in _FUNCTIONS and makes_vector(graph, op, results):
        results[0] = vector_of_one(results[0])
    return results


_FUNCTIONS = frozenset({"where", "select", "fma", "frexp", "ldexp", "modf", "nextafter"})
"""Ops that make vectors of scalars as element-wise functions do, but are not declared as such."""

VECTOR_OF_ONE = _shape((Dim(1),))


def makes_vector(graph: Graph, op: str, symbols: Sequence[Symbol]) -> bool:
    """Return True if all operands are scalars and the promotion system makes the op return a vector."""
    return graph.promotion.makes_vector(op) and all(s.shape.is_ranked and not len(s.shape) for s in symbols)


def vector_of_one(scalar: Symbol) -> Symbol:
    """Reshape a scalar to a vector of one element."""
    build = scalar.graph.build
    return build.emit(
        "Unsqueeze", (scalar, build.vector([0])), tensor_type(scalar.dtype, VECTOR_OF_ONE, scalar.ambiguous)
    )


def kinds_of(values: Iterable[object]) -> list[object]:
    """Return operands as a cast records them: types of Symbols, `(class, value)` of Python numbers."""
    return [value.type if isinstance(value, Symbol) else (type(value), value) for value in values]


def cast_operand(
    symbol: Symbol, dtype: DType | None, ambiguous: bool = False, cause: tuple[object, ...] = ()
) -> Symbol:
    """Return an operand implicitly cast to `dtype`, or unchanged for None. Errors show the operand without the cast.

    ambiguous: the common dtype is only a default. cause: the op and its operands, which the cast records in
    `PromotedLine.cause`.
    """
    if dtype is None or symbol.type.dtype is dtype:
        return symbol
    graph = symbol.graph
    memory = graph.memory
    result = memory.casts.get((symbol.id, dtype, ambiguous))
    if result is None:
        result = graph.build.cast(symbol, dtype, ambiguous)
        memory.implicit[result.id] = symbol
        node = result.producer
        if type(node) is Node:
            _set_origin(node, promoted(node.origin, cause))
    return result


def as_index(positions: Symbol) -> Symbol:
    """Cast int64 positions or counts to the index dtype of the graph's promotion system."""
    return cast_operand(positions, positions.graph.promotion.index_dtype)


def is_lossy(source: DType, target: DType) -> bool:
    """Return True if `target` cannot hold the range of `source`."""
    if DType.string in (source, target) or target.kind.value == "bool":
        return False
    source, target = real_of(source), real_of(target)
    if target.is_float:
        # An integer just above the largest finite value may still round down to it.
        return source.bits - source.is_signed > 1023 or float(source.max) > target.max
    return source.is_float or source.max > target.max or source.min < target.min


def report_lossy(graph: Graph, op: str, operands: Mapping[str, tuple[Symbol, DType]]) -> None:
    """Report implicit casts that lose range: warn once per line, raise `PromotionError` in a strict graph.

    operands: the Symbols and their new dtypes by role. Casts that lose nothing, and ambiguous operands, are ignored.
    """
    lossy = {role: (s, to) for role, (s, to) in operands.items() if not s.ambiguous and is_lossy(s.type.dtype, to)}
    if not lossy:
        return
    casts = " and ".join(f"of {role} from {s.type.dtype} to {to}" for role, (s, to) in lossy.items())
    reason = f"{op}: the implicit cast {casts} cannot hold the operand's range"
    fix = f"cast the operands yourself to the dtype you mean, such as .cast({_holds_all(operands)})"
    if graph.strict:
        raise PromotionError(reason, operands={role: s for role, (s, _) in lossy.items()}, help=fix)
    line = user_line()
    path, number = line or ("<unknown>", 0)
    where = f" at {line}   {line.excerpt}" if line else ""
    registry = _warned.setdefault(path, {})
    text = escaped(f"{reason}; {fix}{where}")
    warnings.warn_explicit(text, LossyCastWarning, path, number, registry=registry)


def _holds_all(operands: Mapping[str, tuple[Symbol, DType]]) -> str:
    """Return the text of a dtype that holds all operands: an integer if promotion gives one, else float64."""
    dtypes = [symbol.type.dtype for symbol, _ in operands.values()]
    if not all(dtype.is_integer for dtype in (*dtypes, *(to for _, to in operands.values()))):
        return "DType.float64"
    bits = max(dtype.bits + (not dtype.is_signed) for dtype in dtypes)
    return f"DType.int({bits})" if bits not in (8, 16, 32, 64) else f"DType.int{bits}"


_warned: dict[str, dict[str | tuple[str, type[Warning], int], int]] = {}


def dtype_of(op: str, dtype: object, graph: Graph | None = None) -> DType:
    """Return the DType of an argument of an op, in the spelling of the graph's promotion system."""
    graph = graph or _current.get()
    try:
        return DType.of(dtype) if graph is None else graph.promotion.dtype_of(dtype)
    except DTypeError as error:
        raise DTypeError(f"{op}: {error.summary}", help=error.help) from None
