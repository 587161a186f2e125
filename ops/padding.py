"""Padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from graphcore.build.declare import op
from graphcore.build.operands import operand, promote
from graphcore.build.shapes import retype
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shared.dims import dims_of, shape_vector
from graphcore.promotion.rules import holds
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

PadMode: TypeAlias = Literal["constant", "reflect", "edge", "wrap"]


@op(onnx="Pad")
def pad(
    x: TensorLike,
    paddings: int | Sequence[Any],
    mode: PadMode = "constant",
    value: TensorLike = 0,
) -> Symbol:
    """The tensor with elements added before and after it along its axes.

    x: any shape and dtype. paddings: sizes >= 0 as [before 0, after 0, before 1, after 1, ...], as a pair for each
    axis, or one int for all. mode: "constant" (`value`, a scalar), "reflect" (mirrored, the outermost element not
    repeated), "edge" (the outermost element), "wrap" (from the other end). Raises `ShapeError` for negative or too
    large paddings, and for another number of them than the axes need; `DTypeError` for a value that the dtype of `x`
    cannot hold. ONNX Pad, NumPy's pad.
    """
    symbol = operand("pad", x)
    roles = {"x": symbol}
    if symbol.dtype is DType.string and mode == "constant":
        raise DTypeError(
            "pad: there is no number to put beside strings",
            operands=roles,
            help="use mode='edge', or concat constants: ops.concat([x, graph.constant(['', ''])])",
        )
    if mode not in get_args(PadMode):
        raise ShapeError(f"pad: there is no mode {mode!r}", operands=roles, help=f"use one of {get_args(PadMode)}")
    before, after = _paddings(symbol, paddings, roles)
    if all(size == 0 for size in (*before, *after)):
        return symbol
    shape = _shape([b + dim + a for b, dim, a in zip(before, symbol.shape, after, strict=True)])
    _check_paddings(symbol, before, after, mode, roles)
    vector = shape_vector(symbol.graph, [*before, *after], (symbol,), op="pad")
    inputs = (symbol, vector, _pad_value(symbol, value)) if mode == "constant" else (symbol, vector)
    return symbol.graph.build.emit("Pad", inputs, retype(symbol, shape=shape), {"mode": mode})


def _paddings(x: Symbol, paddings: Any, roles: dict[str, Symbol]) -> tuple[list[Dim], list[Dim]]:
    if isinstance(paddings, (int, np.integer)):
        paddings = [paddings] * (2 * x.rank)
    if isinstance(paddings, Symbol) or not isinstance(paddings, Iterable):
        raise ShapeError(f"pad: {paddings!r:.60} are no paddings", operands=roles, help="give ints")
    flat: list[Any] = []
    for item in paddings.tolist() if isinstance(paddings, np.ndarray) else paddings:
        if isinstance(item, (tuple, list)):
            if len(item) != 2:
                raise ShapeError(f"pad: {item!r} is no pair", operands=roles, help="give (before, after) for each axis")
            flat += item
        else:
            flat.append(item)
    dims = dims_of("pad", flat, help="paddings are ints of 0 or more; a slice takes elements away")
    if len(dims) != 2 * x.rank:
        raise ShapeError(
            f"pad: {len(dims)} paddings are given for {x.rank} axes",
            operands=roles,
            help="give two for each axis: before and after",
        )
    return dims[0::2], dims[1::2]


def _check_paddings(x: Symbol, before: list[Dim], after: list[Dim], mode: str, roles: dict[str, Symbol]) -> None:
    """Raise `ShapeError` where a reflection or wrap needs more elements than the axis has."""
    if mode == "constant":
        return
    for axis, dim in enumerate(x.shape):
        most = {"reflect": dim - 1, "edge": dim, "wrap": dim}[mode]
        for size in (before[axis], after[axis]):
            too_much = size != 0 and dim == 0 if mode == "edge" else _exceeds(size, most)
            if too_much:
                raise ShapeError(
                    f"pad: axis {axis} of size {dim} cannot be padded by {size} in mode {mode!r}",
                    operands=roles,
                    help=f"pad by {most} at most, or use mode='edge'"
                    if mode != "edge"
                    else "an empty axis has no edge",
                )


def _exceeds(size: Dim, most: Dim) -> bool:
    bound = (size - most).lower_bound
    return bound is not None and bound >= 1


def _pad_value(x: Symbol, value: TensorLike) -> Symbol:
    if isinstance(value, (bool, int, float)):
        (_, scalar), _ = promote("pad", "join", {"x": x, "value": value})
        if scalar.dtype is x.dtype:
            return scalar
        # In some systems a number makes a wider dtype of some; the padding is of x's all the same.
        if holds(value, x.dtype):
            return x.graph.build.scalar(value, x.dtype)
        raise DTypeError(
            f"pad: {value!r} cannot be held in {x.dtype}", operands={"x": x}, help=f"cast x: .cast({scalar.dtype!r})"
        )
    found = x.graph.build.operand(value, "pad", "value")
    roles = {"x": x, "value": found}
    if found.rank:
        raise ShapeError(f"pad: value has shape {found.shape}", operands=roles, help="give a scalar")
    if found.dtype is not x.dtype:
        raise DTypeError(
            f"pad: value is of {found.dtype} and x of {x.dtype}", operands=roles, help=f"cast it: .cast({x.dtype!r})"
        )
    return found
