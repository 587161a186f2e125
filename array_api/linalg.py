"""The standard's extension for linear algebra, of real and complex numbers.

Everything works on stacks of matrices; where a function takes floats, it takes complex numbers too. Decompositions are
ONNX Loops over the whole stack: elimination with partial pivoting (`solve`, `inv`, `det`, `slogdet`), Cholesky's,
Householder's reflections (`qr`), Jacobi's rotations for eigenvalues of symmetric matrices and for singular values, of
small matrices as accurate as LAPACK's, and shifted QR steps for the eigenvalues of all others. Where LAPACK reports a
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


# What operands must be


def _floats(op: str, x: Symbol) -> None:
    if real_of(x.dtype) not in (DType.float32, DType.float64):
        raise DTypeError(
            f"{op}: {x.dtype} is no floating dtype of 32 bits or more",
            operands={"x": x},
            help="cast it: astype(x, float64)",
        )


def _matrices(op: str, x: Symbol) -> None:
    if x.rank < 2:
        raise ShapeError(f"{op}: a tensor of rank {x.rank} is no matrix", operands={"x": x}, help="give [..., m, n]")


def _square(op: str, x: Symbol) -> None:
    """Raise an error for anything but a stack of square matrices of floats."""
    _floats(op, x)
    _matrices(op, x)
    m, n = x.shape[-2:]
    if m is not n or m.is_dynamic:
        raise ShapeError(
            f"{op}: matrices of {m} rows and {n} columns are not square",
            operands={"x": x},
            help="if the two sizes always agree, say so with ops.rebind or give them one name",
        )


def _sized(op: str, x: Symbol) -> None:
    """Raise an error for anything but a stack of float matrices whose lesser side is known."""
    _floats(op, x)
    _matrices(op, x)
    if least(*x.shape[-2:]) is None:
        raise ShapeError(
            f"{op}: whether there are more rows, {x.shape[-2]}, or columns, {x.shape[-1]}, must be known",
            operands={"x": x},
            help="give matrices of known sizes, or of one name for both: ops.rebind",
        )


# Products


@function
def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The vector products of vectors of length 3.

    x1, x2: numbers, which broadcast but for `axis`, of size 3 in both. axis: of the vectors, counted from the end.
    Returns the broadcast shape. Raises `ShapeError` for another axis or size.
    """
    return ops.cross(x1, x2, axis)


@function
def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The products of every element of one vector with every element of another.

    x1: [m], x2: [n], numbers. Returns [m, n]. Raises `ShapeError` for other ranks.
    """
    return ops.outer(x1, x2)


@function
def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """A matrix multiplied with itself n times.

    x: [..., m, m], floats. n: 0 gives the identity, numbers below 0 powers of the inverse. Raises `ShapeError` for
    matrices that are not square, `DTypeError` for an n that is no int.
    """
    _square("matrix_power", x)
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool):
        raise DTypeError(f"matrix_power: n={n!r} is no int", operands={"x": x}, help="give an int")
    if n == 0:
        return identities(x, -2, -1)
    power, count = (x if n > 0 else _linear_algebra.inverted(x)), abs(int(n))
    made = power
    for digit in bin(count)[3:]:
        made = ops.matmul(made, made)
        if digit == "1":
            made = ops.matmul(made, power)
    return ops.positive(made)


# Parts


@function
def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """A diagonal of matrices.

    x: [..., m, n] of any dtype. offset: 1 is the diagonal above the main one, -1 that below it. Returns [..., k].
    Raises `ShapeError` below rank 2 and, but for the main diagonal of square matrices, for sizes that are not known.
    """
    _matrices("diagonal", x)
    return diagonal_of(x, offset)


@function
def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """The sum along a diagonal of matrices.

    x: [..., m, n], numbers. offset: as for `diagonal`. dtype: of the sum, by default that of floats, and int64 or
    uint64 for integers. Returns [...]. Raises as `diagonal` does.
    """
    _matrices("trace", x)
    return _sum(diagonal_of(x, offset), axis=-1, dtype=dtype)


# Elimination


@function
def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The lower triangular L with L @ L.mT = x, or its transpose, both conjugated where they are complex.

    x: [..., n, n], floats or complex numbers, symmetric (Hermitian if complex) and positive definite: its lower
    triangle is read. Returns [..., n, n], with NaN for matrices that are not positive definite. Raises `ShapeError` for
    matrices that are not square.
    """
    _square("cholesky", x)
    lower = _linear_algebra.cholesky(x)
    return adjoint(lower) if upper else lower


@function
def det(x: Tensor, /) -> Tensor:
    """The determinant.

    x: [..., n, n], floats or complex numbers. Returns [...]. Raises `ShapeError` for matrices that are not square.
    """
    _square("det", x)
    pivots, parity = _linear_algebra.pivots(x)
    return ops.prod(pivots, axis=-1) * parity


@function
def slogdet(x: Tensor, /) -> SlogdetResult:
    """The sign of the determinant, and the natural logarithm of its magnitude, which does not overflow.

    x: [..., n, n], floats. Returns two of [...]; 0 and -infinity for singular matrices. Raises `ShapeError` for
    matrices that are not square.
    """
    _square("slogdet", x)
    pivots, parity = _linear_algebra.pivots(x)
    sign = ops.prod(ops.sign(pivots), axis=-1) * parity
    return SlogdetResult(sign, ops.sum(ops.log(ops.abs(pivots)), axis=-1))


@function
def inv(x: Tensor, /) -> Tensor:
    """The inverse.

    x: [..., n, n], floats or complex numbers. Infinite or NaN for singular matrices. Raises `ShapeError` for matrices
    that are not square.
    """
    _square("inv", x)
    return _linear_algebra.inverted(x)


@function
def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The solution of x1 @ x = x2.

    x1: [..., n, n]. x2: [n], or [..., n, k]. Floats, whose axes in front broadcast. Returns [..., n] or [..., n, k];
    infinite or NaN for singular matrices. Raises `ShapeError` for other shapes.
    """
    roles = {"x1": x1, "x2": x2}
    _square("solve", x1)
    _floats("solve", x2)
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
        raise ShapeError(f"solve: the axes before the matrices do not broadcast: {clash}", operands=roles) from None
    x = _linear_algebra.solved(_stacked(a, stack), _stacked(b, stack))
    return ops.squeeze(x, -1) if is_vector else x


def _stacked(x: Symbol, stack: Shape) -> Symbol:
    return x if x.shape[:-2] == stack else ops.broadcast_to(x, stack + x.shape[-2:])


# Reflections and rotations


@function
def qr(x: Tensor, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """Q with orthonormal columns and upper triangular R whose product is x.

    x: [..., m, n], floats. mode: Q is [..., m, k] and R [..., k, n], k being the lesser of m and n, or m for
    "complete". Raises `ShapeError` for sizes that are not known, `DTypeError` for another mode.
    """
    _sized("qr", x)
    if mode not in ("reduced", "complete"):
        raise DTypeError(f"qr: there is no mode {mode!r}", operands={"x": x}, help='"reduced" or "complete"')
    return QRResult(*orthogonal.qr(x, complete=mode == "complete"))


@function
def eig(x: Tensor, /) -> EigResult:
    """The eigenvalues of square matrices, and eigenvectors of length 1 whose greatest elements are real.

    x: [..., n, n], floats or complex. Returns complex [..., n], and [..., n, n] with the vectors as columns. Of real
    matrices complex eigenvalues are pairs of conjugates, the positive imaginary part first; all others are real to the
    bit, with real vectors. NaN where x is not finite, and for matrices for which 30 n steps of QR are too few. Raises
    `ShapeError` for matrices that are not square.
    """
    _square("eig", x)
    return EigResult(*eigen.eig(x, vectors=True))


@function
def eigvals(x: Tensor, /) -> Tensor:
    """The eigenvalues of square matrices, complex. See `eig`."""
    _square("eigvals", x)
    return eigen.eig(x, vectors=False)[0]


@function
def eigh(x: Tensor, /) -> EighResult:
    """The eigenvalues of symmetric (Hermitian) matrices in ascending order, and orthonormal eigenvectors.

    x: [..., n, n], floats or complex numbers, of which the lower triangle is read. Returns floats of [..., n], and
    [..., n, n] with the vectors as columns. Raises `ShapeError` for matrices that are not square.
    """
    _square("eigh", x)
    return EighResult(*jacobi.eigh(x, vectors=True))


@function
def eigvalsh(x: Tensor, /) -> Tensor:
    """The eigenvalues of symmetric (Hermitian) matrices in ascending order. See `eigh`."""
    _square("eigvalsh", x)
    return jacobi.eigh(x, vectors=False)[0]


@function
def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """U with orthonormal columns, S in descending order and Vh with orthonormal rows: x = (U * S) @ Vh.

    x: [..., m, n], floats. Returns U of [..., m, k], S of [..., k] and Vh of [..., k, n], k being the lesser of m and
    n; full_matrices: U of [..., m, m] and Vh of [..., n, n]. NaN where x is not finite. Raises `ShapeError` for sizes
    that are not known.
    """
    _sized("svd", x)
    return SVDResult(*jacobi.svd(x, full=bool(full_matrices)))


@function
def svdvals(x: Tensor, /) -> Tensor:
    """The singular values of matrices in descending order. See `svd`."""
    _sized("svdvals", x)
    return jacobi.singular_values(x)


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The number of singular values above rtol times the greatest.

    x: [..., m, n], floats. rtol: a number, or one for each matrix, which broadcasts with [...]; by default the greater
    of m and n times the dtype's epsilon. Returns int64 of [...]. Raises `ShapeError` for sizes that are not known.
    """
    return _matrix_rank(x, _as_array("matrix_rank", x, rtol))


@function
def _matrix_rank(x: Tensor, rtol: Tensor | None) -> Tensor:
    _sized("matrix_rank", x)
    return jacobi.rank(x, _rtol("matrix_rank", rtol))


def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The pseudo-inverse of Moore and Penrose.

    x: [..., m, n], floats. rtol: as for `matrix_rank`: what is not above is taken for 0. Returns [..., n, m]. Raises
    `ShapeError` for sizes that are not known.
    """
    return _pinv(x, _as_array("pinv", x, rtol))


@function
def _pinv(x: Tensor, rtol: Tensor | None) -> Tensor:
    _sized("pinv", x)
    return jacobi.pseudo_inverse(x, _rtol("pinv", rtol))


def _as_array(op: str, x: Tensor, rtol: Any) -> Any:
    """A number as an Array beside an Array: one graph serves all of them."""
    if rtol is None or isinstance(rtol, (Symbol, Array, np.ndarray)):
        return rtol
    if isinstance(rtol, bool) or not isinstance(rtol, (int, float)):
        raise DTypeError(f"{op}: rtol={rtol!r} is no number", operands={"x": x}, help="give a number, or floats")
    return Array(np.asarray(rtol, np.float64)) if isinstance(x, Array) else float(rtol)


def _rtol(op: str, rtol: Symbol | float | None) -> Symbol | float | None:
    """rtol as it broadcasts with rows of singular values."""
    if not isinstance(rtol, Symbol):
        return rtol
    _floats(op, rtol)
    return ops.unsqueeze(rtol, -1) if rtol.rank else rtol


# Norms


@function
def matrix_norm(
    x: Tensor, /, *, keepdims: bool = False, ord: int | float | Literal["fro", "nuc"] | None = "fro"
) -> Tensor:
    """The norm of matrices.

    x: [..., m, n], floats. ord: "fro" for the root of the sum of squares, "nuc" for the sum of singular values, 2 and
    -2 for the greatest and least of them, 1 and -1 for the greatest and least sum of magnitudes in a column, infinity
    and -infinity in a row. keepdims: leave the two axes in, with length 1. Raises `ShapeError` for least values of
    empty matrices, `DTypeError` for another ord.
    """
    _floats("matrix_norm", x)
    _matrices("matrix_norm", x)
    if ord not in _linear_algebra.MATRIX_NORMS:
        raise DTypeError(
            f"matrix_norm: there is no norm {ord!r}",
            operands={"x": x},
            help=f"ord is one of {', '.join(map(repr, _linear_algebra.MATRIX_NORMS))}",
        )
    if ord in _linear_algebra.SPECTRAL:
        _sized("matrix_norm", x)
    return _linear_algebra.matrix_norm(x, ord, keepdims=bool(keepdims))


@function
def vector_norm(
    x: Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: int | float = 2
) -> Tensor:
    """The norm of vectors: the sum of the magnitudes to the power of ord, to the power of 1 / ord.

    x: floats. axis: one, several, or None for all. keepdims: leave the axes in, with length 1. ord: any number; 0
    counts what is not 0, infinity and -infinity give the greatest and least magnitude. Raises `ShapeError` for what is
    no axis and for orders below 0 of no numbers, `DTypeError` for an ord that is no number.
    """
    _floats("vector_norm", x)
    if isinstance(ord, bool) or not isinstance(ord, (int, float)) or math.isnan(ord):
        raise DTypeError(f"vector_norm: ord={ord!r} is no number", operands={"x": x}, help="give a number: ord=2")
    axes = axes_of("vector_norm", axis, x.rank, {"x": x})
    return _linear_algebra.vector_norm(x, axes, float(ord), keepdims=bool(keepdims))
