"""Triangles and bands of matrices, LU decomposition, and triangular systems of equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphcore.build import primitives as e
from graphcore.build.declare import op
from graphcore.build.operands import operand, promote, promote_one
from graphcore.build.shapes import check_integers, check_least_rank, check_scalar, retype, same_dim
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.operators.shapes.call import broadcast_shapes
from graphcore.ops.matrices import factored, filled, identities, least, rows_of, stack_axes, substituted
from graphcore.ops.shared.dims import count_of, places_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape


def _triangle(name: str, side: str, zeros: str, end: str, neighbour: str) -> Callable[..., Symbol]:
    """Declare the lower or upper triangle."""
    doc = f"""The {side} triangle of matrices, with 0 {zeros} it.

    Args:
        x: [..., m, n], numbers or bools.
        k: The {end} diagonal to keep, 0 for the main one, {neighbour} for the one {zeros} it.

    Raises:
        ShapeError: Below rank 2.
        DTypeError: For a k that is not an int.

    ONNX Trilu.
    """

    @op(onnx="Trilu", rule="number", name=name, doc=doc)
    def triangle(x: TensorLike, k: int = 0) -> Symbol:
        symbol = _matrix_operand(name, x)
        if not isinstance(k, int) or isinstance(k, bool):
            raise DTypeError(
                f"{name}: k must be an int, got {k!r}", operands={"x": symbol}, help="give the number of a diagonal"
            )
        return _trilu(symbol, k, upper=side == "upper")

    return triangle


tril = _triangle("tril", "lower", "above", "last", "1")
triu = _triangle("triu", "upper", "below", "first", "-1")


def _trilu(x: Symbol, k: int, *, upper: bool) -> Symbol:
    return e.emit("Trilu", x, x.graph.build.scalar(k, DType.int64), shape=x.shape, upper=int(upper))


def _matrix_operand(name: str, x: TensorLike) -> Symbol:
    symbol, _ = promote_one(name, "number", x)
    check_least_rank(name, "x", symbol, 2)
    return symbol


@op(onnx="Trilu, Where", rule="number")
def band_part(
    x: TensorLike, num_lower: int | Symbol | None, num_upper: int | Symbol | None, exclude: bool = False
) -> Symbol:
    """A band of matrices around the main diagonal, with 0 outside of it.

    Args:
        x: [..., m, n], numbers or bools.
        num_lower: The number of diagonals below and above the main one in the band, -1 or None for all; ints or integer
            scalar Symbols.
        num_upper: As `num_lower`.
        exclude: Keep the elements outside of the band.

    Raises:
        ShapeError: Below rank 2 and for numbers below -1.
        DTypeError: For bounds that are not integers.

    ONNX Trilu; Where on a mask of positions for Symbols and `exclude`.
    """
    symbol = _matrix_operand("band_part", x)
    roles: dict[str, Any] = {"x": symbol}
    lower = _bound("num_lower", num_lower, roles)
    upper = _bound("num_upper", num_upper, roles)
    if isinstance(lower, int) and isinstance(upper, int):
        if not exclude:
            if upper >= 0:
                symbol = _trilu(symbol, upper, upper=False)
            return _trilu(symbol, -lower, upper=True) if lower >= 0 else symbol
        # If a band is open on one side, all elements outside of it are on the other side.
        if lower < 0 <= upper:
            return _trilu(symbol, upper + 1, upper=True)
        if upper < 0 <= lower:
            return _trilu(symbol, -lower - 1, upper=False)
    zero = e.const(symbol, False if symbol.dtype is DType.bool else 0)
    inside = _band_mask(symbol, lower, upper)
    pair = (zero, symbol) if exclude else (symbol, zero)
    return symbol.graph.build.emit("Where", (inside, *pair), retype(symbol))


def _bound(role: str, value: Any, roles: dict[str, Any]) -> int | Symbol:
    """Return a bound as an int, -1 for none, or as an int64 scalar."""
    if value is None:
        return -1
    if isinstance(value, Symbol):
        check_integers("band_part", role, value, {**roles, role: value})
        check_scalar("band_part", role, value, {**roles, role: value})
        return value.graph.build.cast(value, DType.int64)
    if not isinstance(value, int) or isinstance(value, bool):
        raise DTypeError(f"band_part: {role}={value!r} is not a count", operands=roles, help="give an int or a Symbol")
    if value < -1:
        raise ShapeError(
            f"band_part: {role} must be >= -1, got {value}",
            operands=roles,
            help="give a count, or -1 for all diagonals",
        )
    return value


def _band_mask(x: Symbol, lower: int | Symbol, upper: int | Symbol) -> Symbol:
    """Return a mask that is true in the band, bool [m, n]."""
    graph = x.graph
    rows, columns = (places_of(x, x.rank - 2 + i) for i in (0, 1))
    diagonals = e.emit("Sub", columns, e.unsqueeze(rows, 1))  # positive above the main diagonal
    zero = graph.build.scalar(0, DType.int64)
    low, high = (s if isinstance(s, Symbol) else graph.build.scalar(s, DType.int64) for s in (lower, upper))
    inside_low = e.emit("LessOrEqual", e.emit("Neg", diagonals), low, dtype=DType.bool)
    inside_high = e.emit("LessOrEqual", diagonals, high, dtype=DType.bool)
    return e.both(e.either(e.less(low, zero), inside_low), e.either(e.less(high, zero), inside_high))


# Triangular factors


@op(onnx="Loop", rule="float")
def lu_factor(x: TensorLike) -> tuple[Symbol, Symbol]:
    """The LU decomposition with partial pivoting, packed in one matrix, and the permutation of rows.

    Args:
        x: [..., m, n], numbers or bools; integers become floats.

    Returns:
        [..., m, n], whose upper triangle is U and whose elements below the diagonal are those of L, which has ones on
        its diagonal; and int64 [..., m]: element i is the row of x that is row i of L @ U. For columns without a pivot
        U has a 0 on its diagonal, as in LAPACK's getrf. Floats below 32 bits are computed in float32 and rounded once.

    Raises:
        ShapeError: Below rank 2.

    ONNX Loop.
    """
    packed, order, dtype = _factor("lu_factor", x)
    return packed.cast(dtype), order


@op(onnx="Loop", rule="float")
def lu(x: TensorLike) -> tuple[Symbol, Symbol, Symbol]:
    """The LU decomposition with partial pivoting: P @ L @ U = x.

    Args:
        x: [..., m, n], numbers or bools; integers become floats.

    Returns:
        P of [..., m, m], a permutation of rows; L of [..., m, k], lower triangular with ones on its diagonal and
        nothing greater than 1; and U of [..., k, n], upper triangular, where k is min(m, n). Rounded as `lu_factor` is.

    Raises:
        ShapeError: Below rank 2, and if it is unknown which of m and n is smaller.

    ONNX Loop; SciPy's linalg.lu.
    """
    packed, order, dtype = _factor("lu", x)
    m, n = packed.shape[-2:]
    k = least(m, n)
    if k is None:
        raise ShapeError(
            f"lu: it must be known which is smaller, the number of rows, {m}, or of columns, {n}",
            operands={"x": operand("lu", x, "x")},
            help="give matrices of static sizes, or one name for both (ops.rebind); ops.lu_factor takes any sizes",
        )
    lower = tril(packed if k is n else packed[..., : int(k)], -1)
    lower = e.emit("Add", lower, identities(lower, -2, -1))
    upper = triu(packed if k is m else packed[..., : int(k), :])
    zeros = filled(packed, [*stack_axes(packed), -2, -2])
    place = e.equal(rows_of(zeros), order.unsqueeze(-2))
    permutation = e.where(place, e.const(zeros, 1.0), zeros)
    return permutation.cast(dtype), lower.cast(dtype), upper.cast(dtype)


def _factor(name: str, x: TensorLike) -> tuple[Symbol, Symbol, DType]:
    matrices, dtype = promote_one(name, "float", x)
    check_least_rank(name, "x", matrices, 2)
    computed = matrices.cast(computing_dtype(dtype))
    k = least(*matrices.shape[-2:])
    if k is None:
        steps = e.emit("Min", count_of(matrices, -2), count_of(matrices, -1))
    else:
        steps = count_of(matrices, -2 if k is matrices.shape[-2] else -1)
    return *factored(computed, steps), dtype


def computing_dtype(dtype: DType) -> DType:
    """Return the dtype in which floats are decomposed: float32 for narrower floats, rounded once at the end."""
    return DType.float32 if dtype.bits < 32 else dtype


@op(onnx="Loop", rule="float")
def triangular_solve(
    a: TensorLike, b: TensorLike, lower: bool = False, transposed: bool = False, unit_diagonal: bool = False
) -> Symbol:
    """The solution of a @ x = b for triangular matrices.

    Args:
        a: [..., n, n], of which one triangle is read.
        b: [n], or [..., n, k]. Both are numbers or bools, promoted to a common float; batch axes broadcast.
        lower: Read the lower triangle, else the upper one.
        transposed: Solve a.T @ x = b.
        unit_diagonal: Assume ones on the diagonal, and do not read it.

    Returns:
        [..., n] or [..., n, k]; infinite or NaN if the diagonal has a 0. Floats below 32 bits are computed in float32
        and rounded once.

    Raises:
        ShapeError: For other shapes.
        DTypeError: For options that are not bools.

    ONNX Loop; SciPy's linalg.solve_triangular.
    """
    options = {"lower": lower, "transposed": transposed, "unit_diagonal": unit_diagonal}
    roles = {"a": operand("triangular_solve", a, "a"), "b": operand("triangular_solve", b, "b")}
    for option, value in options.items():
        if not isinstance(value, bool):
            raise DTypeError(
                f"triangular_solve: {option} must be a bool, got {value!r}", operands=roles, help="give a bool"
            )
    stack = _system(roles)
    (matrices, right), dtype = promote("triangular_solve", "float", roles)
    is_vector = right.rank == 1
    right = right.unsqueeze(-1) if is_vector else right
    matrices, right = (
        (x if x.shape[:-2] == stack else x.broadcast_to(stack + x.shape[-2:])).cast(computing_dtype(dtype))
        for x in (matrices, right)
    )
    if transposed:
        matrices = matrices.mT
    x = substituted(matrices, right, lower=lower is not transposed, unit=unit_diagonal)
    return (x.squeeze(-1) if is_vector else x).cast(dtype)


def _system(roles: dict[str, Symbol]) -> Shape:
    """Return the batch axes. Raises `ShapeError` for shapes that are not a system of equations."""
    a, b = roles.values()
    if a.rank < 2 or not same_dim(*a.shape[-2:]):
        raise ShapeError(
            f"triangular_solve: a must be [..., n, n], got {a.shape}",
            operands=roles,
            help="if the two sizes always agree, give them one name, or declare it with ops.rebind",
        )
    n = a.shape[-1]
    if not b.rank or not same_dim(n, b.shape[0 if b.rank == 1 else -2]):
        raise ShapeError(
            f"triangular_solve: b must be [{n}] or [..., {n}, k], got {b.shape}",
            operands=roles,
            help="give as many rows as a has",
        )
    try:
        return broadcast_shapes([a.shape[:-2], b.shape[:-2]])
    except ValueError as clash:
        raise ShapeError(
            f"triangular_solve: the batch axes do not broadcast: {clash}",
            operands=roles,
            help="make the dims equal or 1",
        ) from None
