"""The products of vectors and matrices that the standard has in its main namespace.

Arrays without elements take a way of their own: onnxruntime's MatMul does not broadcast axes of length 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphcore import ops
from graphcore.array_api._eager import Tensor, function
from graphcore.build.shapes import same_dim

__all__ = ["matmul", "tensordot", "vecdot"]


@function
def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product. x1: [..., m, k] or [k], x2: [..., k, n] or [k], numbers. Raises `ShapeError` for others."""
    if not _is_empty(x1, x2) or not (x1.ndim and x2.ndim) or not same_dim(x1.shape[-1], x2.shape[-2:][0]):
        return ops.matmul(x1, x2)
    if x2.ndim == 1:
        return ops.sum(ops.mul(x1, x2), axis=-1)
    columns = ops.unsqueeze(x2, -3) if x1.ndim > 1 else x2
    return ops.sum(ops.mul(ops.unsqueeze(x1, -1), columns), axis=-2)


def _is_empty(x1: Tensor, x2: Tensor) -> bool:
    """Return whether one of them is known to have no elements."""
    return any(dim == 0 for x in (x1, x2) for dim in x.shape)


@function
def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """The sum of products over axes: the last of x1 with as many first ones of x2, or those named for both.

    x1, x2: numbers. Raises `ShapeError` for axes that are none or of different sizes.
    """
    return ops.tensordot(x1, x2, axes)


@function
def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The dot products of vectors that lie along an axis, counted from the end; the others broadcast.

    x1, x2: numbers. Raises `ShapeError` for another axis and for shapes that do not go together.
    """
    is_axis = type(axis) is int and -min(x1.ndim, x2.ndim) <= axis < 0
    if not _is_empty(x1, x2) or not is_axis or not same_dim(x1.shape[axis], x2.shape[axis]):
        return ops.vecdot(x1, x2, axis)
    return ops.sum(ops.mul(ops.conj(x1), x2), axis=axis)
