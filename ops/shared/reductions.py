"""The axes, shapes and nodes of reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type

Axes: TypeAlias = int | Sequence[int] | None
"""The axes to reduce: one, several, or None for all; () reduces none."""


def reduced_shape(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    if keepdims:
        return _shape([Dim(1) if i in axes else d for i, d in enumerate(shape)])
    return _shape([d for i, d in enumerate(shape) if i not in axes])


def emit_reduction(op_type: str, x: Symbol, axes: Sequence[int], keepdims: bool, dtype: DType | None = None) -> Symbol:
    """Emit one of ONNX's reductions; return `x` itself where there is no axis to reduce."""
    if not axes:
        return x
    type_ = tensor_type(dtype or x.dtype, reduced_shape(x.shape, axes, keepdims))
    return x.graph.build.emit(op_type, (x, x.graph.build.vector(sorted(axes))), type_, {"keepdims": int(keepdims)})


def check_not_empty(name: str, x: Symbol, axes: Sequence[int]) -> None:
    for axis in axes:
        if x.shape[axis] == 0:
            raise ShapeError(
                f"{name}: axis {axis} has length 0, and of no elements there is no {name}",
                operands={"x": x},
                help="reduce another axis, or handle the empty case before",
            )
