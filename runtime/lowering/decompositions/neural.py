"""Operators of networks that have kernels only for float32."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, OpCall, Replacement
from graphcore.runtime.lowering.decompositions.reductions import nan_along
from graphcore.runtime.lowering.decompositions.shape_arithmetic import places, symbol, vector
from graphcore.runtime.lowering.decompositions.windows import Window, reduced, total, unfolded
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape


def mean_of(b: Builder, call: OpCall) -> Replacement:
    """Compute Mean and Sum of any number of operands."""
    result = reduce(partial(b.op, "Add"), call.inputs)
    if call.op == "Mean" and len(call.inputs) > 1:
        result = b.op("Div", result, b.scalar(float(len(call.inputs)), result.dtype))
    return b.op("Identity", result, shape=call.shape)


def hardmax(b: Builder, call: OpCall) -> Replacement:
    """Compute Hardmax: 1 at the first maximum, 0 elsewhere.

    ArgMax needs an element: if the axis may be empty, one is added that is never chosen.
    """
    (x,) = call.inputs
    axis = call.attributes.get("axis", -1) % x.rank
    filled = x
    if not x.shape[axis].is_static or not int(x.shape[axis]):
        pads = b.vector([*[0] * x.rank, *[int(a == axis) for a in range(x.rank)]])
        filled = b.op("Pad", x, pads, b.scalar(float("-inf"), x.dtype), mode="constant")
    place = b.op("ArgMax", filled, axis=axis, keepdims=1)
    is_maximum = b.op("Equal", places(b, x, axis), place, shape=x.shape)
    return b.native_cast(is_maximum, x.dtype)


def response_normalization(b: Builder, call: OpCall) -> Replacement:
    """Compute LRN: divide each element by a power of the squares of its neighbours among the channels."""
    (x,) = call.inputs
    size = call.attributes["size"]
    before = np.asarray((size - 1) // 2, np.int64)
    after = np.asarray(size - 1 - (size - 1) // 2, np.int64)
    unpadded = [0] * (x.rank - 2)
    pads = vector(b, [0, before, *unpadded, 0, after, *unpadded])
    squares = b.op("Pad", b.op("Mul", x, x), pads, b.scalar(0.0, x.dtype), mode="constant")
    window = Window(np.asarray(size, np.int64), 1, 1, before, after)
    sums = total(b, unfolded(b, squares, 1, window), 2)
    share = b.op("Mul", sums, b.scalar(call.attributes.get("alpha", 1e-4) / size, x.dtype), shape=x.shape)
    base = b.op("Add", share, b.scalar(float(call.attributes.get("bias", 1.0)), x.dtype))
    power = b.op("Pow", base, b.scalar(float(call.attributes.get("beta", 0.75)), x.dtype))
    return b.op("Div", x, power)


def mean_variance(b: Builder, call: OpCall) -> Replacement:
    """Compute MeanVarianceNormalization from the deviations from the mean."""
    (x,) = call.inputs
    axes = [a % x.rank for a in call.attributes.get("axes") or [0, 2, 3]]
    centred = b.op("Sub", x, reduced(b, "ReduceMean", x, axes, keepdims=True))
    variance = reduced(b, "ReduceMean", b.op("Mul", centred, centred), axes, keepdims=True)
    return b.op("Div", centred, b.op("Add", b.op("Sqrt", variance), b.scalar(1e-9, x.dtype)))


def one_hot(b: Builder, call: OpCall) -> Replacement:
    """Compute OneHot by its int64 kernel, which marks the positions: few pairs of dtypes have kernels."""
    indices, depth, values = call.inputs
    whole = DType.int64
    if indices.dtype is whole and depth.dtype is whole and values.dtype in (whole, DType.float32):
        return None
    indices, depth = (b.cast(s, whole) for s in (indices, depth))
    marks = b.native(call.op, indices, depth, b.vector([0, 1]), shape=call.shape, **call.attributes)
    off, on = (b.op("Gather", values, b.scalar(i, whole), axis=0) for i in (0, 1))
    return b.op("Where", b.native_cast(marks, DType.bool), on, off, shape=call.shape)


def shrink(b: Builder, call: OpCall) -> Replacement:
    """Compute Shrink in float64: the kernel computes in float32, in which 1e300 is infinite and 2^24 + 1 is rounded.

    Integers of 8 and 16 bits keep their kernel: NumPy and ONNX's reference compute these in float32 too.
    """
    (x,) = call.inputs
    wide = b.cast(x, DType.float64)
    bias, bound = (b.scalar(float(call.attributes.get(n, d)), wide.dtype) for n, d in (("bias", 0.0), ("lambd", 0.5)))
    below = b.op("Less", wide, b.scalar(-float(call.attributes.get("lambd", 0.5)), wide.dtype), dtype=DType.bool)
    above = b.op("Greater", wide, bound, dtype=DType.bool)
    result = b.op("Where", above, b.op("Sub", wide, bias), b.scalar(0.0, wide.dtype), dtype=wide.dtype, shape=x.shape)
    result = b.op("Where", below, b.op("Add", wide, bias), result, dtype=wide.dtype, shape=x.shape)
    return b.native_cast(result, x.dtype)


def nonzero_places(b: Builder, call: OpCall) -> Replacement:
    """Compute NonZero of a scalar: it has no axes, so its positions have no coordinates; the kernel returns one."""
    (x,) = call.inputs
    if not x.shape.is_ranked or x.rank:
        return None
    count = call.shape[1] if call.shape.is_ranked else Dim.dynamic()
    places = b.native("NonZero", x, dtype=DType.int64, shape=_shape([Dim(1), count]))
    none = b.vector([0])
    return b.op("Slice", places, none, none, none, dtype=DType.int64, shape=call.shape)


def nonzero(b: Builder, call: OpCall) -> Replacement:
    """Compute NonZero of all elements that are not equal to 0, including NaN."""
    (x,) = call.inputs
    zero = b.op("Equal", x, b.scalar(0.0 if x.dtype.is_float else 0, x.dtype), dtype=DType.bool)
    return b.op(call.op, b.native("Not", zero), dtype=DType.int64, shape=call.shape)


def relu(b: Builder, call: OpCall) -> Replacement:
    """Compute Relu with NaN preserved: some kernels return 0 for all numbers that are not above 0."""
    (x,) = call.inputs
    zero = b.scalar(0.0, x.dtype)
    return b.native("Where", b.native("Less", x, zero, dtype=DType.bool), zero, x, dtype=x.dtype)


def relu_integers(b: Builder, call: OpCall) -> Replacement:
    return b.op("Max", call.inputs[0], b.scalar(0, call.inputs[0].dtype), shape=call.shape)


def prelu_integers(b: Builder, call: OpCall) -> Replacement:
    x, slope = call.inputs
    below = b.op("Less", x, b.scalar(0, x.dtype), dtype=DType.bool)
    return b.op("Where", below, b.op("Mul", x, slope), x, dtype=x.dtype, shape=call.shape)


def gemm_integers(b: Builder, call: OpCall) -> Replacement:
    """Compute Gemm of integers with integer alpha and beta. Others are not defined."""
    left, right, *added = call.inputs
    alpha, beta = call.attributes.get("alpha", 1.0), call.attributes.get("beta", 1.0)
    if not float(alpha).is_integer() or not float(beta).is_integer():
        return None
    factors = [
        b.op("Transpose", s, shape=s.shape[::-1], perm=[1, 0]) if call.attributes.get(name) else s
        for s, name in ((left, "transA"), (right, "transB"))
    ]
    result = b.op("MatMul", *factors, shape=call.shape)
    if alpha != 1:
        result = b.op("Mul", result, b.scalar(int(alpha), left.dtype))
    if not added or added[0] is None:
        return result
    bias = added[0] if beta == 1 else b.op("Mul", added[0], b.scalar(int(beta), left.dtype))
    return b.op("Add", result, bias, shape=call.shape)


def sum_of_sizes(b: Builder, call: OpCall) -> Replacement:
    """Compute ReduceL1 and ReduceSumSquare of integers, which the kernels compute as floats."""
    x, *axes = call.inputs
    if axes and axes[0] is not None and b.array_of(axes[0]) is None:
        return None  # a wrapping sum of integers needs constant axes
    each = b.op("Mul", x, x) if call.op == "ReduceSumSquare" else b.op("Abs", x)
    return b.op("ReduceSum", each, *axes, shape=call.shape, **call.attributes)


def by_double(b: Builder, call: OpCall) -> Replacement:
    """Compute an operator of integers with a fractional result in float64, which may round up to 2^63, and truncate."""
    x, *axes = call.inputs
    wide = b.cast(x, DType.float64)
    result = b.op(call.op, wide, *axes, shape=call.shape, **call.attributes)
    return b.saturated(result, x.dtype)


def determinant(b: Builder, call: OpCall) -> Replacement:
    """Compute Det by elimination with the largest pivot of each column."""
    (x,) = call.inputs
    if not x.shape[-1].is_static or not int(x.shape[-1]):
        return None
    product = None
    one, zero = b.scalar(1.0, x.dtype), b.scalar(0.0, x.dtype)
    for rows_left in range(int(x.shape[-1]), 0, -1):
        column = b.op("Gather", x, b.scalar(0, DType.int64), axis=-1)
        place = b.op("ArgMax", b.op("Abs", column), axis=-1, keepdims=1)
        pivot = b.op("GatherElements", column, place, axis=-1)
        odd = b.op("Equal", b.op("Mod", place, b.scalar(2, DType.int64)), b.scalar(1, DType.int64))
        factor = b.op("Where", odd, b.op("Neg", pivot), pivot)
        product = factor if product is None else b.op("Mul", product, factor)
        if rows_left == 1:
            break
        # The other rows: those before the pivot's stay, the others move up by one.
        rows = symbol(b, np.arange(rows_left - 1, dtype=np.int64))
        rows = b.op("Where", b.op("Less", rows, place), rows, b.op("Add", rows, b.scalar(1, DType.int64)))
        others, chosen = (_rows(b, x, at, rows_left) for at in (rows, place))
        divisor = b.op("Where", b.op("Equal", pivot, zero), one, pivot)
        heads = b.op("Gather", others, b.scalar(0, DType.int64), axis=-1)
        shares = b.op("Unsqueeze", b.op("Div", heads, divisor), b.vector([-1]))
        rest = b.op("Sub", others, b.op("Mul", shares, chosen))
        x = b.op("Slice", rest, b.vector([1]), b.vector([rows_left]), b.vector([-1]))
    assert product is not None
    return b.op("Squeeze", product, b.vector([-1]), shape=call.shape)


def _rows(b: Builder, x: Symbol, rows: Symbol, columns: int) -> Symbol:
    index = b.op("Unsqueeze", rows, b.vector([-1]))
    wide = b.op("Mul", b.op("Add", index, b.scalar(0, DType.int64)), symbol(b, np.ones(columns, np.int64)))
    return b.op("GatherElements", x, wide, axis=-2)


# Activations whose kernels are less accurate than docs/numbers.md promises.


def sigmoid(b: Builder, call: OpCall) -> Replacement:
    """Compute Sigmoid by other operators: the kernel returns 0 below -18."""
    (x,) = call.inputs
    one = b.scalar(1.0, x.dtype)
    return b.native("Reciprocal", b.native("Add", one, b.native("Exp", b.native("Neg", x))))


def log_softmax(b: Builder, call: OpCall) -> Replacement:
    """Compute LogSoftmax with NaN in every row that has a NaN: the kernel notices a NaN only in the first place."""
    (x,) = call.inputs
    result = b.native(call.op, x, shape=call.shape, **call.attributes)
    axis = call.attributes.get("axis", -1)
    row = _shape([Dim(1) if i == axis % x.rank else d for i, d in enumerate(x.shape)])
    _, has_nan = nan_along(b, x, axis, row, keepdims=1)
    return b.native("Where", has_nan, b.scalar(float("nan"), x.dtype), result, dtype=x.dtype, shape=call.shape)


# Integers of 2 and 4 bits, and other dtypes that most kernels do not support.


def shape(b: Builder, call: OpCall) -> Replacement:
    """Compute Shape of the operand in a wider dtype: onnxruntime drops a Cast before Shape, and then has no kernel."""
    (x,) = call.inputs
    wide = b.casts.apart(b.native_cast(x, DType.int8 if x.dtype.is_integer else DType.float32))
    results: tuple[Any, ...] = b.emit_many(call.op, (wide,), call.types, call.attributes)
    return results


def refuse_image_decoder(b: Builder, call: OpCall) -> Replacement:
    """Refuse ImageDecoder."""
    raise GraphError(
        "ImageDecoder: no kernel decodes images, only Pillow in sessions",
        operands={"encoded_stream": str(call.inputs[0].type)},
        help="load it in a session, export it with target='onnx', or decode the image before the model",
    )
