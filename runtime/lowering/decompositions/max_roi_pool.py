"""MaxRoiPool, for which the runtime has a kernel only in models of opset 21 and older."""

from __future__ import annotations

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.shape_arithmetic import cast, count_up, length, symbol
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

F64 = DType.float64
_ONE = Dim(1)


def max_roi_pool(b: Builder, call: Call) -> Replacement:
    """Compute MaxRoiPool: the greatest of each part of each region; 0 where a part has no pixel.

    A region is from one whole pixel to another: its corners, times `spatial_scale`, rounded, halves away from zero.
    """
    x, regions = call.inputs
    own = x.dtype
    rows, columns = (Dim(n) for n in call.attributes["pooled_shape"])
    count, channels, width = regions.shape[0], x.shape[1], x.shape[3]
    corners = b.cast(regions, F64)
    batch = b.native("Gather", corners, b.scalar(0, DType.int64), shape=_shape([count]), axis=1)
    made = b.op("Gather", x, b.cast(batch, DType.int64), shape=_shape([count, *x.shape[1:]]), axis=0)
    scaled = b.native("Mul", corners, b.scalar(call.attributes.get("spatial_scale", 1.0), F64))
    size = b.native("Add", b.native("Abs", scaled), b.scalar(0.5, F64))
    whole = b.native("Mul", b.native("Sign", scaled), b.native("Floor", size))
    low = b.scalar(-np.inf, own)

    inside = _inside(b, whole, 2, int(rows), x, 2)
    mask = b.native("Unsqueeze", inside, b.vector([1, 4]), shape=_shape([count, _ONE, rows, x.shape[2], _ONE]))
    wide = b.op("Unsqueeze", made, b.vector([2]), shape=_shape([count, channels, _ONE, *x.shape[2:]]))
    wide = b.op("Where", mask, wide, low, dtype=own)
    made = b.op("ReduceMax", wide, b.vector([3]), shape=_shape([count, channels, rows, width]), keepdims=0)
    filled = _any(b, mask, 3, [count, _ONE, rows, _ONE])

    inside = _inside(b, whole, 1, int(columns), x, 3)
    mask = b.native("Unsqueeze", inside, b.vector([1, 2]), shape=_shape([count, _ONE, _ONE, columns, width]))
    wide = b.op("Unsqueeze", made, b.vector([3]), shape=_shape([count, channels, rows, _ONE, width]))
    wide = b.op("Where", mask, wide, low, dtype=own)
    made = b.op("ReduceMax", wide, b.vector([4]), shape=_shape([count, channels, rows, columns]), keepdims=0)
    filled = b.native("And", filled, _any(b, mask, 4, [count, _ONE, _ONE, columns]))
    return b.op("Where", filled, made, b.scalar(0.0, own), dtype=own, shape=call.shape)


def _inside(b: Builder, corners: Symbol, column: int, parts: int, x: Symbol, axis: int) -> Symbol:
    """Return which pixels along the axis are in which part of each region: [regions, parts, pixels]."""
    count, size = corners.shape[0], length(b, x, axis)
    shape = _shape([count, _ONE, _ONE])
    begin, end = (
        b.native("Unsqueeze", b.native("Gather", corners, b.vector([c]), shape=shape[:2], axis=1), b.vector([2]),
                  shape=shape)
        for c in (column, column + 2)
    )  # fmt: skip
    one = b.scalar(1.0, F64)
    part = b.native("Max", b.native("Add", b.native("Sub", end, begin), one), one)
    part = b.native("Div", part, b.scalar(float(parts), F64))
    numbers = np.arange(parts, dtype=np.float64).reshape(1, -1, 1)
    first = b.native("Add", b.native("Floor", b.native("Mul", part, symbol(b, numbers))), begin)
    last = b.native("Add", b.native("Ceil", b.native("Mul", part, symbol(b, numbers + 1))), begin)
    pixels = symbol(b, cast(b, count_up(b, size), F64))
    before = b.native("Less", pixels, first, dtype=DType.bool)
    shape = _shape([count, Dim(parts), x.shape[axis]])
    not_after = b.native("Less", pixels, last, dtype=DType.bool, shape=shape)
    return b.native("And", b.native("Not", before), not_after, shape=shape)


def _any(b: Builder, mask: Symbol, axis: int, shape: list[Dim]) -> Symbol:
    """Return whether any element is true along the axis."""
    most = b.op("ReduceMax", b.cast(mask, DType.uint8), b.vector([axis]), shape=_shape(shape),
                 keepdims=0)  # fmt: skip
    return b.cast(most, DType.bool)
