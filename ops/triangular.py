"""Triangular matrices: the LU decomposition, and systems of equations."""

from __future__ import annotations

from graphcore.build import primitives as e
from graphcore.build.declare import op
from graphcore.build.operands import operand, promote, promote_one
from graphcore.build.shapes import broadcast_shapes, same_dim
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.axes import squeeze, transpose_matrix, unsqueeze
from graphcore.ops.bands import tril, triu
from graphcore.ops.matrices.loops import count_of, filled, identities, least, rows_of, stack_axes
from graphcore.ops.matrices.substitution import factored, substituted
from graphcore.ops.shape import broadcast_to, cast
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape


@op(onnx="Loop", rule="float")
def lu_factor(x: TensorLike) -> tuple[Symbol, Symbol]:
    """The LU decomposition with partial pivoting, packed in one matrix, and the order of rows that pivoting gave.

    x: [..., m, n], numbers or bools; integers become floats. Returns [..., m, n], whose upper triangle is U and whose
    elements below the diagonal are those of L, which has ones on its diagonal; and int64 [..., m]: row i of L @ U is
    the row of x with that number. Of columns without a pivot U has a 0 on its diagonal, as LAPACK's getrf has it. Of
    floats below 32 bits computed in float32 and rounded once. Raises `ShapeError` below rank 2. ONNX Loop.
    """
    packed, order, dtype = _factored("lu_factor", x)
    return cast(packed, dtype), order


@op(onnx="Loop", rule="float")
def lu(x: TensorLike) -> tuple[Symbol, Symbol, Symbol]:
    """The LU decomposition with partial pivoting: P @ L @ U = x.

    x: [..., m, n], numbers or bools; integers become floats. Returns P of [..., m, m], a permutation of rows; L of
    [..., m, k], lower triangular with ones on its diagonal and nothing greater than 1; and U of [..., k, n], upper
    triangular, k being the lesser of m and n. Rounded as `lu_factor` is. Raises `ShapeError` below rank 2, and for
    sizes of which it is not known which is the lesser. ONNX Loop; SciPy's linalg.lu.
    """
    packed, order, dtype = _factored("lu", x)
    m, n = packed.shape[-2:]
    k = least(m, n)
    if k is None:
        raise ShapeError(
            f"lu: whether there are more rows, {m}, or columns, {n}, must be known",
            operands={"x": operand("lu", x, "x")},
            help="give matrices of known sizes, or of one name for both (ops.rebind); ops.lu_factor takes any sizes",
        )
    lower = tril(packed if k is n else packed[..., : int(k)], -1)
    lower = e.emit("Add", lower, identities(lower, -2, -1))
    upper = triu(packed if k is m else packed[..., : int(k), :])
    zeros = filled(packed, [*stack_axes(packed), -2, -2])
    place = e.equal(rows_of(zeros), unsqueeze(order, -2))
    permutation = e.where(place, e.const(zeros, 1.0), zeros)
    return cast(permutation, dtype), cast(lower, dtype), cast(upper, dtype)


def _factored(name: str, x: TensorLike) -> tuple[Symbol, Symbol, DType]:
    matrices, dtype = promote_one(name, "float", x)
    if matrices.rank < 2:
        raise ShapeError(
            f"{name}: a tensor of rank {matrices.rank} is no matrix", operands={"x": matrices}, help="give [..., m, n]"
        )
    computed = cast(matrices, computing_dtype(dtype))
    k = least(*matrices.shape[-2:])
    if k is None:
        steps = e.emit("Min", count_of(matrices, -2), count_of(matrices, -1))
    else:
        steps = count_of(matrices, -2 if k is matrices.shape[-2] else -1)
    return *factored(computed, steps), dtype


def computing_dtype(dtype: DType) -> DType:
    """The dtype in which floats are decomposed: float32 for narrower ones, which are rounded once at the end."""
    return DType.float32 if dtype.bits < 32 else dtype


@op(onnx="Loop", rule="float")
def triangular_solve(
    a: TensorLike, b: TensorLike, lower: bool = False, transposed: bool = False, unit_diagonal: bool = False
) -> Symbol:
    """The solution of a @ x = b for triangular matrices.

    a: [..., n, n], of which one triangle is read. b: [n], or [..., n, k]. Numbers or bools, which meet in a common
    float; axes in front broadcast. lower: the lower triangle is read, else the upper one. transposed: a.T @ x = b is
    solved. unit_diagonal: the diagonal is taken for ones, and not read. Returns [..., n] or [..., n, k]; infinite or
    NaN where the diagonal has a 0. Of floats below 32 bits computed in float32 and rounded once. Raises `ShapeError`
    for other shapes, `DTypeError` for options that are no bools. ONNX Loop; SciPy's linalg.solve_triangular.
    """
    options = {"lower": lower, "transposed": transposed, "unit_diagonal": unit_diagonal}
    roles = {"a": operand("triangular_solve", a, "a"), "b": operand("triangular_solve", b, "b")}
    for option, value in options.items():
        if not isinstance(value, bool):
            raise DTypeError(f"triangular_solve: {option}={value!r} is no bool", operands=roles, help="give a bool")
    stack = _system(roles)
    (matrices, right), dtype = promote("triangular_solve", "float", roles)
    is_vector = right.rank == 1
    right = unsqueeze(right, -1) if is_vector else right
    matrices, right = (
        cast(x if x.shape[:-2] == stack else broadcast_to(x, stack + x.shape[-2:]), computing_dtype(dtype))
        for x in (matrices, right)
    )
    if transposed:
        matrices = transpose_matrix(matrices)
    x = substituted(matrices, right, lower=lower is not transposed, unit=unit_diagonal)
    return cast(squeeze(x, -1) if is_vector else x, dtype)


def _system(roles: dict[str, Symbol]) -> Shape:
    """Return the axes before the matrices. Raises `ShapeError` for what is no system of equations."""
    a, b = roles.values()
    if a.rank < 2 or not same_dim(*a.shape[-2:]):
        raise ShapeError(
            f"triangular_solve: a is {a.shape}, not [..., n, n]",
            operands=roles,
            help="if the two sizes always agree, say so with ops.rebind or give them one name",
        )
    n = a.shape[-1]
    if not b.rank or not same_dim(n, b.shape[0 if b.rank == 1 else -2]):
        raise ShapeError(
            f"triangular_solve: b is {b.shape}, not [..., {n}, k]",
            operands=roles,
            help=f"b must be [{n}] or [..., {n}, k]",
        )
    try:
        return broadcast_shapes([a.shape[:-2], b.shape[:-2]])
    except ValueError as clash:
        raise ShapeError(
            f"triangular_solve: the axes before the matrices do not broadcast: {clash}",
            operands=roles,
            help="make the dims equal or 1",
        ) from None
