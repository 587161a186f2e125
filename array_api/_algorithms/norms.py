"""Norms of vectors and matrices, of elements too great and too small for their squares as well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphcore import ops
from graphcore.array_api._algorithms.jacobi import singular_values
from graphcore.build import primitives as e
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.ops.matrices import binary_scale

SPECTRAL = ("nuc", 2, -2)
"""The norms that are of singular values."""

MATRIX_NORMS = ("fro", *SPECTRAL, 1, -1, math.inf, -math.inf)


def vector_norm(x: Symbol, axes: Sequence[int], ord: float, *, keepdims: bool) -> Symbol:
    """The norm of order `ord` over axes counted from 0; 0 over none but for orders below 0."""
    size = ops.abs(x)
    if any(x.shape[axis] == 0 for axis in axes):
        if ord < 0:
            raise ShapeError(f"vector_norm: there is no norm of order {ord} of no numbers", operands={"x": x})
        return ops.sum(size, axes, keepdims)
    if ord == math.inf:
        return ops.max(size, axis=axes, keepdims=keepdims)
    if ord == -math.inf:
        return ops.min(size, axis=axes, keepdims=keepdims)
    if ord == 0:
        return ops.cast(ops.count_nonzero(x, axes, keepdims), size.dtype)
    if ord == 1:
        return ops.sum(size, axes, keepdims)
    if ord == 2:
        return euclidean(size, axes, keepdims=keepdims)
    # Divided by the greatest, for orders below 0 the least, all powers are of at most 1.
    reference = (ops.max if ord > 0 else ops.min)(size, axis=axes, keepdims=True)
    usual = e.both(reference > 0.0, e.less(reference, e.const(size, math.inf)))
    reference = e.where(usual, reference, e.const(size, 1.0))
    power, root = (
        e.const(size, float(np.float64(value).astype(size.dtype.numpy))) for value in (ord, _reciprocal(ord))
    )
    total = ops.sum(e.emit("Pow", size / reference, power), axes, keepdims)
    return e.emit("Pow", total, root) * _kept(reference, axes, keepdims)


def _reciprocal(ord: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float64(1.0) / np.float64(ord))


def euclidean(size: Symbol, axes: Sequence[int], *, keepdims: bool) -> Symbol:
    """The root of the sum of squares of numbers that are not negative, over axes that are not empty."""
    if not axes:
        return size
    scale = binary_scale(ops.max(size, axis=axes, keepdims=True))
    scaled = size / scale
    return ops.sqrt(ops.sum(scaled * scaled, axes, keepdims)) * _kept(scale, axes, keepdims)


def _kept(x: Symbol, axes: Sequence[int], keepdims: bool) -> Symbol:
    return x if keepdims or not axes else ops.squeeze(x, tuple(axes))


def matrix_norm(x: Symbol, ord: Any, *, keepdims: bool) -> Symbol:
    """The norm of matrices: one of `MATRIX_NORMS`. Those of empty matrices are 0; of least values there are none."""
    axes = (x.rank - 2, x.rank - 1)
    if any(x.shape[axis] == 0 for axis in axes):
        if ord in (-1, -2, -math.inf):
            raise ShapeError(f"matrix_norm: there is no norm of order {ord} of an empty matrix", operands={"x": x})
        return ops.sum(ops.abs(x), axes, keepdims)
    if ord == "fro":
        return euclidean(ops.abs(x), axes, keepdims=keepdims)
    if ord in SPECTRAL:
        values = singular_values(x)
        norm = ops.sum(values, axis=-1) if ord == "nuc" else values[..., 0 if ord == 2 else -1]
        return ops.unsqueeze(norm, (-2, -1)) if keepdims else norm
    summed, compared = (-2, -1) if abs(ord) == 1 else (-1, -2)
    sums = ops.sum(ops.abs(x), summed, keepdims=True)
    norm = (ops.max if ord > 0 else ops.min)(sums, axis=compared, keepdims=True)
    return norm if keepdims else ops.squeeze(norm, axes)
