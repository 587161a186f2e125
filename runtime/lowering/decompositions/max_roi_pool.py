"""MaxRoiPool, which the runtime has a kernel for in models of opset 21 and older only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions.shape_arithmetic import cast, count_up, length, symbol
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

F64 = DType.float64
_ONE = Dim(1)


def max_roi_pool(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The greatest of each part of each region; 0 where a part has no pixel.

    A region is from one whole pixel to another: its corners, times `spatial_scale`, rounded, halves away from zero.
    """
    x, regions = inputs
    own = x.dtype
    rows, columns = (Dim(n) for n in attributes["pooled_shape"])
    count, channels, width = regions.shape[0], x.shape[1], x.shape[3]
    corners = on.casts.cast(regions, own, F64)
    batch = on.native("Gather", corners, on.const(0, DType.int64), shape=_shape([count]), axis=1)
    made = on.op("Gather", x, on.casts.cast(batch, F64, DType.int64), shape=_shape([count, *x.shape[1:]]), axis=0)
    scaled = on.native("Mul", corners, on.const(attributes.get("spatial_scale", 1.0), F64))
    size = on.native("Add", on.native("Abs", scaled), on.const(0.5, F64))
    whole = on.native("Mul", on.native("Sign", scaled), on.native("Floor", size))
    low = on.const(-np.inf, own)

    inside = _inside(on, whole, 2, int(rows), x, 2)
    mask = on.native("Unsqueeze", inside, on.ints([1, 4]), shape=_shape([count, _ONE, rows, x.shape[2], _ONE]))
    wide = on.op("Unsqueeze", made, on.ints([2]), shape=_shape([count, channels, _ONE, *x.shape[2:]]))
    wide = on.op("Where", mask, wide, low, dtype=own)
    made = on.op("ReduceMax", wide, on.ints([3]), shape=_shape([count, channels, rows, width]), keepdims=0)
    filled = _any(on, mask, 3, [count, _ONE, rows, _ONE])

    inside = _inside(on, whole, 1, int(columns), x, 3)
    mask = on.native("Unsqueeze", inside, on.ints([1, 2]), shape=_shape([count, _ONE, _ONE, columns, width]))
    wide = on.op("Unsqueeze", made, on.ints([3]), shape=_shape([count, channels, rows, _ONE, width]))
    wide = on.op("Where", mask, wide, low, dtype=own)
    made = on.op("ReduceMax", wide, on.ints([4]), shape=_shape([count, channels, rows, columns]), keepdims=0)
    filled = on.native("And", filled, _any(on, mask, 4, [count, _ONE, _ONE, columns]))
    return on.op("Where", filled, made, on.const(0.0, own), dtype=own, shape=types[0].shape)


def _inside(on: Legaliser, corners: Symbol, column: int, parts: int, x: Symbol, axis: int) -> Symbol:
    """Which pixels along the axis are in which part of each region: [regions, parts, pixels]."""
    count, size = corners.shape[0], length(on, x, axis)
    shape = _shape([count, _ONE, _ONE])
    begin, end = (
        on.native("Unsqueeze", on.native("Gather", corners, on.ints([c]), shape=shape[:2], axis=1), on.ints([2]),
                  shape=shape)
        for c in (column, column + 2)
    )  # fmt: skip
    one = on.const(1.0, F64)
    part = on.native("Max", on.native("Add", on.native("Sub", end, begin), one), one)
    part = on.native("Div", part, on.const(float(parts), F64))
    numbers = np.arange(parts, dtype=np.float64).reshape(1, -1, 1)
    first = on.native("Add", on.native("Floor", on.native("Mul", part, symbol(on, numbers))), begin)
    last = on.native("Add", on.native("Ceil", on.native("Mul", part, symbol(on, numbers + 1))), begin)
    pixels = symbol(on, cast(on, count_up(on, size), F64))
    before = on.native("Less", pixels, first, dtype=DType.bool)
    shape = _shape([count, Dim(parts), x.shape[axis]])
    behind = on.native("Less", pixels, last, dtype=DType.bool, shape=shape)
    return on.native("And", on.native("Not", before), behind, shape=shape)


def _any(on: Legaliser, mask: Symbol, axis: int, shape: list[Dim]) -> Symbol:
    """Whether any is true along the axis."""
    most = on.op("ReduceMax", on.casts.cast(mask, DType.bool, DType.uint8), on.ints([axis]), shape=_shape(shape),
                 keepdims=0)  # fmt: skip
    return on.casts.cast(most, DType.uint8, DType.bool)
