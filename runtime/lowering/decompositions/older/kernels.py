"""What older releases of onnxruntime have no kernel for, or one that is wrong, by operators that they have right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.runtime.lowering.decompositions import pooling
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

_I64 = DType.int64
STORED = tuple(d for d in vars(DType).values() if isinstance(d, DType) and d.storage is d and d is not DType.string)


def written(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """TensorScatter by ScatterElements: each element of the update at its place along the axis."""
    past, update, starts = [*inputs, None][:3]
    if not past.shape.is_ranked or not update.shape.is_ranked:
        return None
    rank = past.rank
    axis = attributes.get("axis", -2) % rank
    count = on.native("Shape", update, dtype=_I64, shape=_shape([Dim(1)]), start=axis, end=axis + 1)
    ends = on.native("Squeeze", count, on.ints([0]), shape=_shape([]))
    length = update.shape[axis]
    places = on.native("Range", on.const(0, _I64), ends, on.const(1, _I64), dtype=_I64, shape=_shape([length]))
    dims = [Dim(1)] * rank
    dims[axis] = length
    places = on.native("Reshape", places, on.ints([-1 if a == axis else 1 for a in range(rank)]), shape=_shape(dims))
    if starts is not None:
        first = on.casts.cast(starts, starts.dtype, _I64)
        firsts = _shape([past.shape[0], *[Dim(1)] * (rank - 1)])
        first = on.native("Reshape", first, on.ints([-1, *[1] * (rank - 1)]), shape=firsts)
        places = on.native("Add", places, first)
    if attributes.get("mode", "linear") == "circular":
        whole = on.native("Shape", past, dtype=_I64, shape=_shape([Dim(1)]), start=axis, end=axis + 1)
        places = on.op("Mod", places, whole, shape=places.shape)
    like = on.native("Shape", update, dtype=_I64, shape=_shape([Dim(rank)]))
    places = on.native("Expand", places, like, shape=update.shape)
    return on.op("ScatterElements", past, places, update, shape=types[0].shape, axis=axis)


def average(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """AveragePool, whose kernel counts wrong what is added behind an axis: the tensor is padded before."""
    (x,) = inputs
    if not attributes.get("count_include_pad"):
        return None
    if attributes.get("ceil_mode") or attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return pooling.average(on, op, inputs, types, attributes)
    pads = [int(n) for n in attributes.get("pads", ())]
    if not any(pads):
        return None
    half = len(pads) // 2
    wide = [d + pads[a - 2] + pads[half + a - 2] if a > 1 else d for a, d in enumerate(x.shape)]
    padded = on.op("Pad", x, on.ints([0, 0, *pads[:half], 0, 0, *pads[half:]]), shape=_shape(wide))
    return on.native(op, padded, shape=types[0].shape, **{k: v for k, v in attributes.items() if k != "pads"})


__all__ = ["STORED", "average", "written"]
