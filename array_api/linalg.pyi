# Made by docs/make_stubs.py from the functions.
# fmt: off
# ruff: noqa: E501

from collections.abc import Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, overload

import numpy as np

from graphcore.array_api._eager import Array
from graphcore.ir.symbol import Symbol
from graphcore.runtime.tracing.tensor import Tensor as EagerTensor
from graphcore.types.dtypes import DType

_T = TypeVar("_T", Symbol, Array, EagerTensor)
_A: TypeAlias = Array | np.ndarray[Any, Any] | np.generic | bool | int | float | complex  # an operand among Arrays
_E: TypeAlias = EagerTensor | _A  # an operand among which is a Tensor
_S: TypeAlias = Symbol | _E  # an operand among which is a Symbol

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals",
    "tensordot", "trace", "vecdot", "vector_norm"
]

class EigResult(NamedTuple, Generic[_T]):
    eigenvalues: _T
    eigenvectors: _T
class EighResult(NamedTuple, Generic[_T]):
    eigenvalues: _T
    eigenvectors: _T
class QRResult(NamedTuple, Generic[_T]):
    Q: _T
    R: _T
class SVDResult(NamedTuple, Generic[_T]):
    U: _T
    S: _T
    Vh: _T
class SlogdetResult(NamedTuple, Generic[_T]):
    sign: _T
    logabsdet: _T
def cholesky(x: _T, /, *, upper: bool = False) -> _T:
    """Return the lower triangular L with L @ L.mT = x, or its transpose; transposes are conjugated for complex numbers."""
@overload
def cross(x1: _A, x2: _A, /, *, axis: int = -1) -> Array:  # type: ignore[overload-overlap]
    """Return the cross products of vectors of length 3."""
@overload
def cross(x1: _E, x2: _E, /, *, axis: int = -1) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def cross(x1: _S, x2: _S, /, *, axis: int = -1) -> Symbol: ...
def det(x: _T, /) -> _T:
    """Return the determinant."""
def diagonal(x: _T, /, *, offset: int = 0) -> _T:
    """Return a diagonal of matrices."""
def eig(x: _T, /) -> EigResult[_T]:
    """Return the eigenvalues of square matrices, and eigenvectors of length 1 whose largest elements are real."""
def eigh(x: _T, /) -> EighResult[_T]:
    """Return the eigenvalues of symmetric (Hermitian) matrices in ascending order, and orthonormal eigenvectors."""
def eigvals(x: _T, /) -> _T:
    """Return the eigenvalues of square matrices, as complex numbers. See `eig`."""
def eigvalsh(x: _T, /) -> _T:
    """Return the eigenvalues of symmetric (Hermitian) matrices in ascending order. See `eigh`."""
def inv(x: _T, /) -> _T:
    """Return the inverse."""
@overload
def matmul(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """Return the matrix product. x1: [..., m, k] or [k], x2: [..., k, n] or [k], numbers. Raises `ShapeError`."""
@overload
def matmul(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def matmul(x1: _S, x2: _S, /) -> Symbol: ...
def matrix_norm(x: _T, /, *, keepdims: bool = False, ord: int | float | Literal['fro', 'nuc'] | None = 'fro') -> _T:
    """Return the norm of matrices."""
def matrix_power(x: _T, n: int, /) -> _T:
    """Return the n-th power of matrices."""
@overload
def matrix_rank(x: _A, /, *, rtol: float | _A | None = None) -> Array:  # type: ignore[overload-overlap]
    """Return the number of singular values above rtol times the largest."""
@overload
def matrix_rank(x: _E, /, *, rtol: float | _E | None = None) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def matrix_rank(x: _S, /, *, rtol: float | _S | None = None) -> Symbol: ...
def matrix_transpose(x: _T, /) -> _T:
    """Transpose matrices."""
@overload
def outer(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """Return the outer product of two vectors."""
@overload
def outer(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def outer(x1: _S, x2: _S, /) -> Symbol: ...
@overload
def pinv(x: _A, /, *, rtol: float | _A | None = None) -> Array:  # type: ignore[overload-overlap]
    """Return the Moore-Penrose pseudo-inverse."""
@overload
def pinv(x: _E, /, *, rtol: float | _E | None = None) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def pinv(x: _S, /, *, rtol: float | _S | None = None) -> Symbol: ...
def qr(x: _T, /, *, mode: Literal['reduced', 'complete'] = 'reduced') -> QRResult[_T]:
    """Return Q with orthonormal columns and upper triangular R with Q @ R = x."""
def slogdet(x: _T, /) -> SlogdetResult[_T]:
    """Return the sign of the determinant, and the natural logarithm of its magnitude, which does not overflow."""
@overload
def solve(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """Return the solution of x1 @ x = x2."""
@overload
def solve(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def solve(x1: _S, x2: _S, /) -> Symbol: ...
def svd(x: _T, /, *, full_matrices: bool = True) -> SVDResult[_T]:
    """Return U with orthonormal columns, S in descending order, and Vh with orthonormal rows: x = (U * S) @ Vh."""
def svdvals(x: _T, /) -> _T:
    """Return the singular values of matrices in descending order. See `svd`."""
@overload
def tensordot(x1: _A, x2: _A, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Array:  # type: ignore[overload-overlap]
    """Return the sum of products over axes: the last ones of x1 with the first ones of x2, or the given ones of both."""
@overload
def tensordot(x1: _E, x2: _E, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def tensordot(x1: _S, x2: _S, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Symbol: ...
def trace(x: _T, /, *, offset: int = 0, dtype: DType | None = None) -> _T:
    """Return the sum along a diagonal of matrices."""
@overload
def vecdot(x1: _A, x2: _A, /, *, axis: int = -1) -> Array:  # type: ignore[overload-overlap]
    """Return the dot products of vectors along an axis, counted from the end; the other axes broadcast."""
@overload
def vecdot(x1: _E, x2: _E, /, *, axis: int = -1) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def vecdot(x1: _S, x2: _S, /, *, axis: int = -1) -> Symbol: ...
def vector_norm(x: _T, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: int | float = 2) -> _T:
    """Return the norm of vectors: sum(abs(x) ** ord) ** (1 / ord)."""
