"""Operators on numbers of 8 bits that stand for scale * (x - zero_point)."""

from __future__ import annotations

import numpy as np

from graphcore.custom_ops.custom_op import Types
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops import onnx
from graphcore.ops.activation import sigmoid
from graphcore.ops.gathering import where
from graphcore.ops.microsoft._declare import BYTES, contrib, shape_at

_TYPES = {"A A_zero_point B B_zero_point C_zero_point": BYTES, "A_scale B_scale C_scale": "float32"}
_UNARY = {"X X_zero_point Y_zero_point": BYTES, "X_scale Y_scale": "float32"}

_STEP = "kernel and body may differ by one step of the result, where it lies between two"


def _are_scalars(types: Types, positions: tuple[int, ...]) -> bool:
    """Return whether scales and zero points are as the kernel takes them: said, and without axes."""
    return all(shape_at(types, i) == () for i in positions)


def _real(x: Symbol, scale: Symbol, zero: Symbol | None) -> Symbol:
    made: Symbol = onnx.DequantizeLinear(x, scale.reshape(()), _same(x, zero))
    return made


def _stored(x: Symbol, scale: Symbol, zero: Symbol | None, like: Symbol) -> Symbol:
    """Rounded to nearest, ties to even, and saturated."""
    made: Symbol = onnx.QuantizeLinear(x, scale.reshape(()), _same(like, zero))
    return made


def _same(x: Symbol, zero: Symbol | None) -> TensorLike:
    """A zero point of the dtype of x, said even where it is 0: fusions of the runtime take none for uint8's."""
    if zero is None:
        return np.zeros((), x.dtype.numpy)
    if zero.dtype is not x.dtype:
        raise TypeError(f"a zero point of {zero.dtype} goes with numbers of {x.dtype}")
    return zero.reshape(())


@contrib(
    dtypes=_TYPES,
    kernels=BYTES,
    when=lambda types, attributes, results: _are_scalars(types, (1, 2, 4, 5, 6, 7)),
    note=_STEP,
)
def QLinearAdd(  # noqa: N802
    A: Symbol,
    A_scale: Symbol,
    A_zero_point: Symbol | None,
    B: Symbol,
    B_scale: Symbol,
    B_zero_point: Symbol | None,
    C_scale: Symbol,
    C_zero_point: Symbol | None = None,
) -> Symbol:
    """A + B of quantised numbers. A, B: int8 or uint8, of shapes that broadcast; scales and zero points: one. Returns
    the broadcast shape in the dtype of A."""
    total = _real(A, A_scale, A_zero_point) + _real(_alike(A, B), B_scale, B_zero_point)
    return _stored(total, C_scale, C_zero_point, A)


@contrib(
    dtypes=_TYPES,
    kernels=BYTES,
    when=lambda types, attributes, results: _are_scalars(types, (1, 2, 4, 5, 6, 7)),
    note=_STEP,
)
def QLinearMul(  # noqa: N802
    A: Symbol,
    A_scale: Symbol,
    A_zero_point: Symbol | None,
    B: Symbol,
    B_scale: Symbol,
    B_zero_point: Symbol | None,
    C_scale: Symbol,
    C_zero_point: Symbol | None = None,
) -> Symbol:
    """A * B of quantised numbers. A, B: int8 or uint8, of shapes that broadcast; scales and zero points: one. Returns
    the broadcast shape in the dtype of A."""
    product = _real(A, A_scale, A_zero_point) * _real(_alike(A, B), B_scale, B_zero_point)
    return _stored(product, C_scale, C_zero_point, A)


@contrib(
    dtypes=_UNARY, kernels=BYTES, when=lambda types, attributes, results: _are_scalars(types, (1, 2, 3, 4)), note=_STEP
)
def QLinearSigmoid(  # noqa: N802
    X: Symbol, X_scale: Symbol, X_zero_point: Symbol | None, Y_scale: Symbol, Y_zero_point: Symbol | None = None
) -> Symbol:
    """sigmoid(X) of quantised numbers. X: int8 or uint8; scales and zero points: one. Returns the type of X."""
    return _stored(sigmoid(_real(X, X_scale, X_zero_point)), Y_scale, Y_zero_point, X)


@contrib(
    dtypes=_UNARY, kernels=BYTES, when=lambda types, attributes, results: _are_scalars(types, (1, 2, 3, 4)), note=_STEP
)
def QLinearLeakyRelu(  # noqa: N802
    X: Symbol,
    X_scale: Symbol,
    X_zero_point: Symbol | None,
    Y_scale: Symbol,
    Y_zero_point: Symbol | None = None,
    *,
    alpha: float = 0.01,
) -> Symbol:
    """X where it is positive, else alpha * X, of quantised numbers. X: int8 or uint8; scales and zero points: one.
    Returns the type of X."""
    real = _real(X, X_scale, X_zero_point)
    return _stored(where(real >= 0, real, real * alpha), Y_scale, Y_zero_point, X)


def _alike(a: Symbol, b: Symbol) -> Symbol:
    if a.dtype is not b.dtype:
        raise TypeError(f"A is {a.dtype} and B is {b.dtype}")
    return b
