"""The extension of the standard for linear algebra.

All functions work on stacks of matrices, and on complex numbers wherever they accept floats. Decompositions are ONNX
Loops over the whole stack: Gaussian elimination with partial pivoting (`solve`, `inv`, `det`, `slogdet`), Cholesky,
Householder reflections (`qr`), Jacobi rotations for eigenvalues of symmetric matrices and for singular values, which
for small matrices are as accurate as LAPACK's, and shifted QR steps for other eigenvalues. Where LAPACK reports a
failure, the result is NaN or infinite.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from graphcore import ops
from graphcore.array_api import _linear_algebra
from graphcore.array_api._algorithms import eigen, jacobi
from graphcore.array_api._algorithms import schur as orthogonal
from graphcore.array_api._eager import Array, Tensor, function
from graphcore.array_api._linear_algebra import matmul, tensordot, vecdot
from graphcore.array_api._manipulation import matrix_transpose
from graphcore.array_api._searching import sum as _sum
from graphcore.build.operands import promote
from graphcore.build.shapes import axes_of, same_dim
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.operators.shapes.call import broadcast_shapes
from graphcore.ops.matrices import adjoint, diagonal_of, identities, least
from graphcore.types.dtypes import DType, real_of
from graphcore.types.tensor_types import Shape

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals",
    "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


class EigResult(NamedTuple):
    """The result of `eig`."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EighResult(NamedTuple):
    """The result of `eigh`."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """The result of `qr`."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The result of `slogdet`."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """The result of `svd`."""

    U: Tensor
    S: Tensor
    Vh: Tensor


# Checks of operands


def _require_floats(op: str, x: Symbol) -> None:
    if real_of(x.dtype) not in (DType.float32, DType.float64):
        raise DTypeError(
            f"{op}: {x.dtype} is not a floating dtype of 32 bits or more",
            operands={"x": x},
            help="cast it: astype(x, float64)",
        )


def _require_matrices(op: str, x: Symbol) -> None:
    if x.rank < 2:
        raise ShapeError(f"{op}: x must be matrices, got rank {x.rank}", operands={"x": x}, help="give [..., m, n]")


def _require_square(op: str, x: Symbol) -> None:
    """Raise an error unless x is a stack of square float matrices."""
    _require_floats(op, x)
    _require_matrices(op, x)
    m, n = x.shape[-2:]
    if m is not n or m.is_dynamic:
        raise ShapeError(
            f"{op}: matrices of {m} rows and {n} columns are not square",
            operands={"x": x},
            help="if both sizes are always equal, use ops.rebind or give them the same name",
        )


def _require_known_sizes(op: str, x: Symbol) -> None:
    """Raise an error unless x is a stack of float matrices whose smaller side is known."""
    _require_floats(op, x)
    _require_matrices(op, x)
    if least(*x.shape[-2:]) is None:
        raise ShapeError(
            f"{op}: it must be known which is smaller, the number of rows {x.shape[-2]} or of columns {x.shape[-1]}",
            operands={"x": x},
            help="give matrices of known sizes, or use ops.rebind to give both the same name",
        )


# Products


@function
def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the cross products of vectors of length 3.

    Args:
        x1: Numbers, which broadcast except along `axis`, of size 3 in both.
        x2: As `x1`.
        axis: The axis of the vectors, counted from the end.

    Returns:
        The broadcast shape.

    Raises:
        ShapeError: For an invalid axis or another size.
    """
    return ops.cross(x1, x2, axis)


@function
def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the outer product of two vectors.

    Args:
        x1: [m], x2: [n], numbers.

    Returns:
        [m, n].

    Raises:
        ShapeError: For other ranks.
    """
    return ops.outer(x1, x2)


@function
def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Return the n-th power of matrices.

    Args:
        x: [..., m, m], floats.
        n: 0 gives the identity, negative numbers give powers of the inverse.

    Raises:
        ShapeError: For matrices that are not square.
        DTypeError: If n is not an int.
    """
    _require_square("matrix_power", x)
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool):
        raise DTypeError(f"matrix_power: n must be an int, got {n!r}", operands={"x": x}, help="give an int")
    if n == 0:
        return identities(x, -2, -1)
    power, count = (x if n > 0 else _linear_algebra.invert(x)), abs(int(n))
    result = power
    for digit in bin(count)[3:]:
        result = ops.matmul(result, result)
        if digit == "1":
            result = ops.matmul(result, power)
    return ops.positive(result)


# Parts


@function
def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """Return a diagonal of matrices.

    Args:
        x: [..., m, n] of any dtype.
        offset: 1 is the diagonal above the main one, -1 the one below.

    Returns:
        [..., k].

    Raises:
        ShapeError: Below rank 2, and for unknown sizes, except for the main diagonal of square matrices.
    """
    _require_matrices("diagonal", x)
    return diagonal_of(x, offset)


@function
def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """Return the sum along a diagonal of matrices.

    Args:
        x: [..., m, n], numbers.
        offset: As for `diagonal`.
        dtype: Of the sum; by default that of x, and int64 or uint64 for integers.

    Returns:
        [...]. Raises as `diagonal` does.
    """
    _require_matrices("trace", x)
    return _sum(diagonal_of(x, offset), axis=-1, dtype=dtype)


# Elimination


@function
def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """Return the lower triangular L with L @ L.mT = x, or its transpose; transposes are conjugated for complex numbers.

    Args:
        x: [..., n, n], floats or complex numbers, symmetric (Hermitian if complex) and positive definite; only the
            lower triangle is read.

    Returns:
        [..., n, n], with NaN for matrices that are not positive definite.

    Raises:
        ShapeError: For matrices that are not square.
    """
    _require_square("cholesky", x)
    lower = _linear_algebra.cholesky(x)
    return adjoint(lower) if upper else lower


@function
def det(x: Tensor, /) -> Tensor:
    """Return the determinant.

    Args:
        x: [..., n, n], floats or complex numbers.

    Returns:
        [...].

    Raises:
        ShapeError: For matrices that are not square.
    """
    _require_square("det", x)
    pivots, parity = _linear_algebra.pivots(x)
    return ops.prod(pivots, axis=-1) * parity


@function
def slogdet(x: Tensor, /) -> SlogdetResult:
    """Return the sign of the determinant, and the natural logarithm of its magnitude, which does not overflow.

    Args:
        x: [..., n, n], floats.

    Returns:
        Two of [...]; 0 and -infinity for singular matrices.

    Raises:
        ShapeError: For matrices that are not square.
    """
    _require_square("slogdet", x)
    pivots, parity = _linear_algebra.pivots(x)
    sign = ops.prod(ops.sign(pivots), axis=-1) * parity
    return SlogdetResult(sign, ops.sum(ops.log(ops.abs(pivots)), axis=-1))


@function
def inv(x: Tensor, /) -> Tensor:
    """Return the inverse.

    Args:
        x: [..., n, n], floats or complex numbers. The result is infinite or NaN for singular matrices.

    Raises:
        ShapeError: For matrices that are not square.
    """
    _require_square("inv", x)
    return _linear_algebra.invert(x)


@function
def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the solution of x1 @ x = x2.

    Args:
        x1: [..., n, n].
        x2: [n], or [..., n, k]. Floats, whose leading axes broadcast.

    Returns:
        [..., n] or [..., n, k]; infinite or NaN for singular matrices.

    Raises:
        ShapeError: For other shapes.
    """
    roles = {"x1": x1, "x2": x2}
    _require_square("solve", x1)
    _require_floats("solve", x2)
    is_vector = x2.rank == 1
    if not x2.rank or not same_dim(x1.shape[-1], x2.shape[0 if is_vector else -2]):
        raise ShapeError(
            f"solve: x2 is {x2.shape}, not [..., {x1.shape[-1]}, k]",
            operands=roles,
            help=f"x2 must be [{x1.shape[-1]}] or [..., {x1.shape[-1]}, k]",
        )
    (a, b), _ = promote("solve", "arithmetic", roles)
    if is_vector:
        b = ops.unsqueeze(b, -1)
    try:
        stack = broadcast_shapes([a.shape[:-2], b.shape[:-2]])
    except ValueError as clash:
        raise ShapeError(
            f"solve: the leading axes do not broadcast: {clash}",
            operands=roles,
            help="give stacks of equal sizes, or of size 1",
        ) from None
    x = _linear_algebra.solve(_broadcast_stack(a, stack), _broadcast_stack(b, stack))
    return ops.squeeze(x, -1) if is_vector else x


def _broadcast_stack(x: Symbol, stack: Shape) -> Symbol:
    return x if x.shape[:-2] == stack else ops.broadcast_to(x, stack + x.shape[-2:])


# Reflections and rotations


@function
def qr(x: Tensor, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """Return Q with orthonormal columns and upper triangular R with Q @ R = x.

    Args:
        x: [..., m, n], floats.
        mode: Q is [..., m, k] and R [..., k, n]; k is min(m, n), or m for "complete".

    Raises:
        ShapeError: For unknown sizes.
        DTypeError: For another mode.
    """
    _require_known_sizes("qr", x)
    if mode not in ("reduced", "complete"):
        raise DTypeError(f"qr: unknown mode {mode!r}", operands={"x": x}, help='use "reduced" or "complete"')
    return QRResult(*orthogonal.qr(x, complete=mode == "complete"))


@function
def eig(x: Tensor, /) -> EigResult:
    """Return the eigenvalues of square matrices, and eigenvectors of length 1 whose largest elements are real.

    Args:
        x: [..., n, n], floats or complex.

    Returns:
        Complex [..., n], and [..., n, n] with the vectors as columns. Complex eigenvalues of real matrices are pairs of
        conjugates, with the positive imaginary part first; others are exactly real, with real vectors. NaN if x is not
        finite, or if 30 n QR steps do not converge.

    Raises:
        ShapeError: For matrices that are not square.
    """
    _require_square("eig", x)
    return EigResult(*eigen.eig(x, vectors=True))


@function
def eigvals(x: Tensor, /) -> Tensor:
    """Return the eigenvalues of square matrices, as complex numbers. See `eig`."""
    _require_square("eigvals", x)
    return eigen.eig(x, vectors=False)[0]


@function
def eigh(x: Tensor, /) -> EighResult:
    """Return the eigenvalues of symmetric (Hermitian) matrices in ascending order, and orthonormal eigenvectors.

    Args:
        x: [..., n, n], floats or complex numbers; only the lower triangle is read.

    Returns:
        Floats of [..., n], and [..., n, n] with the vectors as columns.

    Raises:
        ShapeError: For matrices that are not square.
    """
    _require_square("eigh", x)
    return EighResult(*jacobi.eigh(x, vectors=True))


@function
def eigvalsh(x: Tensor, /) -> Tensor:
    """Return the eigenvalues of symmetric (Hermitian) matrices in ascending order. See `eigh`."""
    _require_square("eigvalsh", x)
    return jacobi.eigh(x, vectors=False)[0]


@function
def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """Return U with orthonormal columns, S in descending order, and Vh with orthonormal rows: x = (U * S) @ Vh.

    Args:
        x: [..., m, n], floats.
        full_matrices: U is [..., m, m] and Vh [..., n, n].

    Returns:
        U of [..., m, k], S of [..., k] and Vh of [..., k, n] with k = min(m, n). NaN if x is not finite.

    Raises:
        ShapeError: For unknown sizes.
    """
    _require_known_sizes("svd", x)
    return SVDResult(*jacobi.svd(x, full=bool(full_matrices)))


@function
def svdvals(x: Tensor, /) -> Tensor:
    """Return the singular values of matrices in descending order. See `svd`."""
    _require_known_sizes("svdvals", x)
    return jacobi.singular_values(x)


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """Return the number of singular values above rtol times the largest.

    Args:
        x: [..., m, n], floats.
        rtol: A number, or one for each matrix, which broadcasts with [...]; by default max(m, n) times the epsilon of
            the dtype.

    Returns:
        Int64 of [...].

    Raises:
        ShapeError: For unknown sizes.
    """
    return _matrix_rank(x, _as_array("matrix_rank", x, rtol))


@function
def _matrix_rank(x: Tensor, rtol: Tensor | None) -> Tensor:
    _require_known_sizes("matrix_rank", x)
    return jacobi.rank(x, _rtol("matrix_rank", rtol))


def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """Return the Moore-Penrose pseudo-inverse.

    Args:
        x: [..., m, n], floats.
        rtol: As for `matrix_rank`; smaller singular values count as 0.

    Returns:
        [..., n, m].

    Raises:
        ShapeError: For unknown sizes.
    """
    return _pinv(x, _as_array("pinv", x, rtol))


@function
def _pinv(x: Tensor, rtol: Tensor | None) -> Tensor:
    _require_known_sizes("pinv", x)
    return jacobi.pseudo_inverse(x, _rtol("pinv", rtol))


def _as_array(op: str, x: Tensor, rtol: Any) -> Any:
    """Convert a number to an Array if x is an Array, so that one graph serves all numbers."""
    if rtol is None or isinstance(rtol, (Symbol, Array, np.ndarray)):
        return rtol
    if isinstance(rtol, bool) or not isinstance(rtol, (int, float)):
        raise DTypeError(
            f"{op}: rtol must be a number or floats, got {rtol!r}", operands={"x": x}, help="give rtol=1e-6"
        )
    return Array(np.asarray(rtol, np.float64)) if isinstance(x, Array) else float(rtol)


def _rtol(op: str, rtol: Symbol | float | None) -> Symbol | float | None:
    """Return rtol in a shape that broadcasts with rows of singular values."""
    if not isinstance(rtol, Symbol):
        return rtol
    _require_floats(op, rtol)
    return ops.unsqueeze(rtol, -1) if rtol.rank else rtol


# Norms


@function
def matrix_norm(
    x: Tensor, /, *, keepdims: bool = False, ord: int | float | Literal["fro", "nuc"] | None = "fro"
) -> Tensor:
    """Return the norm of matrices.

    Args:
        x: [..., m, n], floats.
        keepdims: Keep both axes with length 1.
        ord: "fro" for the root of the sum of squares, "nuc" for the sum of singular values, 2 and -2 for the largest
            and smallest of them, 1 and -1 for the largest and smallest sum of magnitudes in a column, infinity and
            -infinity in a row.

    Raises:
        ShapeError: For the smallest value of empty matrices.
        DTypeError: For another ord.
    """
    _require_floats("matrix_norm", x)
    _require_matrices("matrix_norm", x)
    if ord not in _linear_algebra.MATRIX_NORMS:
        raise DTypeError(
            f"matrix_norm: unknown ord={ord!r}",
            operands={"x": x},
            help=f"use one of {', '.join(map(repr, _linear_algebra.MATRIX_NORMS))}",
        )
    if ord in _linear_algebra.SPECTRAL:
        _require_known_sizes("matrix_norm", x)
    return _linear_algebra.matrix_norm(x, ord, keepdims=bool(keepdims))


@function
def vector_norm(
    x: Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: int | float = 2
) -> Tensor:
    """Return the norm of vectors: sum(abs(x) ** ord) ** (1 / ord).

    Args:
        x: Floats.
        axis: One, several, or None for all.
        keepdims: Keep the axes with length 1.
        ord: Any number; 0 counts nonzero elements, infinity and -infinity give the largest and smallest magnitude.

    Raises:
        ShapeError: For an invalid axis and for negative orders of empty vectors.
        DTypeError: If ord is not a number.
    """
    _require_floats("vector_norm", x)
    if isinstance(ord, bool) or not isinstance(ord, (int, float)) or math.isnan(ord):
        raise DTypeError(f"vector_norm: ord must be a number, got {ord!r}", operands={"x": x}, help="give ord=2")
    axes = axes_of("vector_norm", axis, x.rank, {"x": x})
    return _linear_algebra.vector_norm(x, axes, float(ord), keepdims=bool(keepdims))
