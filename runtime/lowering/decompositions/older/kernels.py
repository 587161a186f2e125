"""Kernels that older releases of onnxruntime lack or have wrong, replaced by operators that they have right."""

from __future__ import annotations

from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions import pooling
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

_I64 = DType.int64
STORED = tuple(d for d in vars(DType).values() if isinstance(d, DType) and d.storage is d and d is not DType.string)


def written(b: Builder, call: Call) -> Replacement:
    """Compute TensorScatter by ScatterElements: each element of the update goes to its index along the axis."""
    past, update, starts = [*call.inputs, None][:3]
    if not past.shape.is_ranked or not update.shape.is_ranked:
        return None
    rank = past.rank
    axis = call.attributes.get("axis", -2) % rank
    count = b.native("Shape", update, dtype=_I64, shape=_shape([Dim(1)]), start=axis, end=axis + 1)
    ends = b.native("Squeeze", count, b.vector([0]), shape=_shape([]))
    length = update.shape[axis]
    places = b.native("Range", b.scalar(0, _I64), ends, b.scalar(1, _I64), dtype=_I64, shape=_shape([length]))
    dims = [Dim(1)] * rank
    dims[axis] = length
    places = b.native("Reshape", places, b.vector([-1 if a == axis else 1 for a in range(rank)]), shape=_shape(dims))
    if starts is not None:
        first = b.cast(starts, _I64)
        firsts = _shape([past.shape[0], *[Dim(1)] * (rank - 1)])
        first = b.native("Reshape", first, b.vector([-1, *[1] * (rank - 1)]), shape=firsts)
        places = b.native("Add", places, first)
    if call.attributes.get("mode", "linear") == "circular":
        whole = b.native("Shape", past, dtype=_I64, shape=_shape([Dim(1)]), start=axis, end=axis + 1)
        places = b.op("Mod", places, whole, shape=places.shape)
    like = b.native("Shape", update, dtype=_I64, shape=_shape([Dim(rank)]))
    places = b.native("Expand", places, like, shape=update.shape)
    return b.op("ScatterElements", past, places, update, shape=call.shape, axis=axis)


COUNTED_PADDING = "AveragePool that counts padding"
"""A trap: see `average`."""


def average(b: Builder, call: Call) -> Replacement:
    """Compute AveragePool of a tensor padded before: the kernel counts wrong the padding after an axis.

    Padding as wide as the kernel, which may be less than a window with dilations, is refused by it.
    """
    (x,) = call.inputs
    sizes = call.attributes.get("kernel_shape", ())
    if any(n >= sizes[i % len(sizes)] for i, n in enumerate(call.attributes.get("pads", ()))):
        return pooling.average(b, call)
    if not call.attributes.get("count_include_pad") or not b.rules.has_trap(COUNTED_PADDING):
        return None
    if call.attributes.get("ceil_mode") or call.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return pooling.average(b, call)
    pads = [int(n) for n in call.attributes.get("pads", ())]
    if not any(pads):
        return None
    half = len(pads) // 2
    wide = [d + pads[a - 2] + pads[half + a - 2] if a > 1 else d for a, d in enumerate(x.shape)]
    padded = b.op("Pad", x, b.vector([0, 0, *pads[:half], 0, 0, *pads[half:]]), shape=_shape(wide))
    return b.native(call.op, padded, shape=call.shape, **{k: v for k, v in call.attributes.items() if k != "pads"})
