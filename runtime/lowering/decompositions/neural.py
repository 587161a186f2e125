"""Operators of networks that have no kernel but for float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.runtime.lowering.decompositions.shape_arithmetic import count_up, length, reshaped, symbol, vector
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.runtime.lowering.decompositions.windows import Window, reduced, total, unfolded
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser


def mean_of(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Mean and Sum of any number of operands."""
    made = inputs[0]
    for other in inputs[1:]:
        made = on.op("Add", made, other)
    if op == "Mean" and len(inputs) > 1:
        made = on.op("Div", made, on.const(float(len(inputs)), made.dtype))
    return on.op("Identity", made, shape=types[0].shape)


def hardmax(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Hardmax: 1 where the first of the greatest is, 0 elsewhere."""
    (x,) = inputs
    axis = attributes.get("axis", -1) % x.rank
    kept = _shape([Dim(1) if a == axis else d for a, d in enumerate(x.shape)])
    place = on.op("ArgMax", x, dtype=DType.int64, shape=kept, axis=axis, keepdims=1)
    counted = reshaped(on, count_up(on, length(on, x, axis)), [-1, *[1] * (x.rank - 1 - axis)])
    found = on.op("Equal", symbol(on, counted), place, dtype=DType.bool, shape=x.shape)
    return on.casts.plain(found, x.dtype)


def response_normalization(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """LRN: each element by a power of the squares of its neighbours among the channels."""
    (x,) = inputs
    size = attributes["size"]
    before = np.asarray((size - 1) // 2, np.int64)
    after = np.asarray(size - 1 - (size - 1) // 2, np.int64)
    behind = [0] * (x.rank - 2)
    pads = vector(on, [0, before, *behind, 0, after, *behind])
    longer = _shape([x.shape[0], x.shape[1] + (size - 1), *x.shape[2:]])
    squares = on.op("Mul", x, x)
    squares = on.op("Pad", squares, pads, on.const(0.0, x.dtype), shape=longer, mode="constant")
    window = Window(np.asarray(size, np.int64), 1, 1, before, after)
    sums = total(on, unfolded(on, squares, 1, window), 2)
    share = on.op("Mul", sums, on.const(attributes.get("alpha", 1e-4) / size, x.dtype), shape=x.shape)
    base = on.op("Add", share, on.const(float(attributes.get("bias", 1.0)), x.dtype))
    power = on.op("Pow", base, on.const(float(attributes.get("beta", 0.75)), x.dtype))
    return on.op("Div", x, power)


def mean_variance(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """MeanVarianceNormalization, by the deviations from the mean."""
    (x,) = inputs
    axes = [a % x.rank for a in attributes.get("axes") or [0, 2, 3]]
    centred = on.op("Sub", x, reduced(on, "ReduceMean", x, axes, keepdims=True))
    variance = reduced(on, "ReduceMean", on.op("Mul", centred, centred), axes, keepdims=True)
    return on.op("Div", centred, on.op("Add", on.op("Sqrt", variance), on.const(1e-9, x.dtype)))


def one_hot(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """OneHot has kernels for few pairs of dtypes: those of int64 tell where the values go."""
    indices, depth, values = inputs
    whole = DType.int64
    if indices.dtype is whole and depth.dtype is whole and values.dtype in (whole, DType.float32):
        return None
    indices, depth = (on.casts.cast(s, s.dtype, whole) for s in (indices, depth))
    shape = types[0].shape
    marks = on.native(op, indices, depth, on.ints([0, 1]), dtype=whole, shape=shape, **attributes)
    off, there = (
        on.op("Gather", values, on.const(i, whole), dtype=values.dtype, shape=_shape([]), axis=0) for i in (0, 1)
    )
    return on.op("Where", on.casts.plain(marks, DType.bool), there, off, dtype=values.dtype, shape=shape)


def nonzero(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """NonZero: of what is not equal to 0, as NaN is not."""
    (x,) = inputs
    zero = on.op("Equal", x, on.const(0.0 if x.dtype.is_float else 0, x.dtype), dtype=DType.bool)
    return on.native(op, on.native("Not", zero), dtype=DType.int64, shape=types[0].shape)


def relu_integers(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    return on.op("Max", inputs[0], on.const(0, inputs[0].dtype), shape=types[0].shape)


def prelu_integers(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    x, slope = inputs
    below = on.op("Less", x, on.const(0, x.dtype), dtype=DType.bool)
    return on.op("Where", below, on.op("Mul", x, slope), x, dtype=x.dtype, shape=types[0].shape)


def gemm_integers(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Gemm by whole factors. There is no meaning for others."""
    a, b, *c = inputs
    alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
    if not float(alpha).is_integer() or not float(beta).is_integer():
        return None
    turned = [
        on.op("Transpose", s, shape=s.shape[::-1], perm=[1, 0]) if attributes.get(name) else s
        for s, name in ((a, "transA"), (b, "transB"))
    ]
    made = on.op("MatMul", *turned, shape=types[0].shape)
    if alpha != 1:
        made = on.op("Mul", made, on.const(int(alpha), a.dtype))
    if not c or c[0] is None:
        return made
    added = c[0] if beta == 1 else on.op("Mul", c[0], on.const(int(beta), a.dtype))
    return on.op("Add", made, added, shape=types[0].shape)


def sum_of_sizes(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """ReduceL1 and ReduceSumSquare of integers, which the kernels compute as floats."""
    x, *axes = inputs
    if axes and axes[0] is not None and on.known(axes[0]) is None:
        return None  # the sum of integers that wraps needs to know them
    each = on.op("Mul", x, x) if op == "ReduceSumSquare" else on.op("Abs", x)
    return on.op("ReduceSum", each, *axes, shape=types[0].shape, **attributes)


def by_double(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """What of integers is a fraction: computed in float64, and truncated."""
    x, *axes = inputs
    wide = on.casts.cast(x, x.dtype, DType.float64)
    made = on.op(op, wide, *axes, shape=types[0].shape, **attributes)
    return on.casts.cast(made, DType.float64, x.dtype)


def unique_bool(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    return on.through(DType.int8, op, inputs, types, attributes)


def determinant(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Det by elimination with the greatest pivot of each column."""
    (x,) = inputs
    if not x.shape[-1].is_static or not int(x.shape[-1]):
        return None
    front, dtype = x.shape[:-2], x.dtype
    made = None
    one, zero = on.const(1.0, dtype), on.const(0.0, dtype)
    for left in range(int(x.shape[-1]), 0, -1):
        column = on.op("Gather", x, on.const(0, DType.int64), shape=_shape([*front, Dim(left)]), axis=-1)
        single = _shape([*front, Dim(1)])
        place = on.op("ArgMax", on.op("Abs", column), dtype=DType.int64, shape=single, axis=-1, keepdims=1)
        pivot = on.op("GatherElements", column, place, shape=single, axis=-1)
        odd = on.op("Equal", on.op("Mod", place, on.const(2, DType.int64)), on.const(1, DType.int64), dtype=DType.bool)
        factor = on.op("Where", odd, on.op("Neg", pivot), pivot, dtype=dtype)
        made = factor if made is None else on.op("Mul", made, factor)
        if left == 1:
            break
        # The other rows: those before the pivot's stay where they are, the others move up by one.
        rows = symbol(on, np.arange(left - 1, dtype=np.int64))
        moved = on.op("Less", rows, place, dtype=DType.bool, shape=_shape([*front, Dim(left - 1)]))
        rows = on.op("Where", moved, rows, on.op("Add", rows, on.const(1, DType.int64)), dtype=DType.int64)
        others = _rows(on, x, rows, left, left - 1)
        chosen = _rows(on, x, place, left, 1)
        none = on.op("Equal", pivot, zero, dtype=DType.bool)
        divisor = on.op("Where", none, one, pivot, dtype=dtype)
        heads = on.op("Gather", others, on.const(0, DType.int64), shape=_shape([*front, Dim(left - 1)]), axis=-1)
        shares = on.op("Div", heads, divisor)
        shares = on.op("Unsqueeze", shares, on.ints([-1]), shape=_shape([*shares.shape, Dim(1)]))
        rest = on.op("Sub", others, on.op("Mul", shares, chosen))
        ends = (on.ints([1]), on.ints([left]), on.ints([-1]))
        x = on.op("Slice", rest, *ends, shape=_shape([*front, Dim(left - 1), Dim(left - 1)]))
    assert made is not None
    return on.op("Squeeze", made, on.ints([-1]), shape=types[0].shape)


def _rows(on: Legaliser, x: Any, rows: Any, columns: int, count: int) -> Any:
    shape = _shape([*x.shape[:-2], Dim(count), Dim(columns)])
    index = on.op("Unsqueeze", rows, on.ints([-1]), shape=_shape([*rows.shape, Dim(1)]))
    wide = on.op("Mul", on.op("Add", index, on.const(0, DType.int64)), symbol(on, np.ones(columns, np.int64)))
    return on.op("GatherElements", x, wide, shape=shape, axis=-2)
