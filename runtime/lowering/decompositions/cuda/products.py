"""Products along an axis, for which there is no exact kernel: by halves, or by doubling distances."""

from __future__ import annotations

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.reductions import reduced_last
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape


def _part(b: Builder, x: Symbol, axis: int, start: int, stop: int) -> Symbol:
    shape = _shape([Dim(stop - start) if a == axis else d for a, d in enumerate(x.shape)])
    return b.native("Slice", x, b.vector([start]), b.vector([stop]), b.vector([axis]), shape=shape)


def _joined(b: Builder, parts: list[Symbol], axis: int) -> Symbol:
    size = sum(int(p.shape[axis]) for p in parts)
    shape = _shape([Dim(size) if a == axis else d for a, d in enumerate(parts[0].shape)])
    return b.native("Concat", *parts, shape=shape, axis=axis)


def reduce_product(b: Builder, call: Call) -> Replacement:
    """Compute ReduceProd of integers by multiplying halves until one is left. Unknown sizes are left to the CPU."""
    x = call.inputs[0]
    if x.dtype.bits < 32:
        return None
    flat, finish = reduced_last(b, call)
    if finish is None:
        return b.op("Identity", x)
    if not flat.shape[-1].is_static:
        return b.on_host(call)
    axis = flat.rank - 1
    size = int(flat.shape[-1])
    if not size:
        return b.on_host(call)
    while size > 1:
        half = size // 2
        product = b.native("Mul", _part(b, flat, axis, 0, half), _part(b, flat, axis, half, 2 * half))
        flat = _joined(b, [product, _part(b, flat, axis, 2 * half, size)], axis) if size % 2 else product
        size = half + size % 2
    return finish(b.native("Squeeze", flat, b.vector([axis]), shape=flat.shape[:-1]))


def running_product(b: Builder, call: Call) -> Replacement:
    """Compute CumProd by the scan of Hillis and Steele, at distances 1, 2, 4, ... Unknown sizes are left to the CPU."""
    x, where = call.inputs
    axis = b.known(where)
    if axis is None or any(call.attributes.values()):
        return b.on_host(call)
    axis = int(axis.reshape(())) % x.rank
    if not x.shape[axis].is_static:
        return b.on_host(call)
    size, step = int(x.shape[axis]), 1
    while step < size:
        product = b.native("Mul", _part(b, x, axis, step, size), _part(b, x, axis, 0, size - step))
        x = _joined(b, [_part(b, x, axis, 0, step), product], axis)
        step *= 2
    return x if step > 1 else b.op("Identity", x)


def norm(b: Builder, call: Call) -> Replacement:
    """Compute LpNormalization; a vector without length stays as it is."""
    (x,) = call.inputs
    axis = call.attributes.get("axis", -1) % x.rank
    kept = _shape([Dim(1) if a == axis else d for a, d in enumerate(x.shape)])
    reduce = f"ReduceL{call.attributes.get('p', 2)}"
    size = b.native(reduce, x, b.vector([axis]), shape=kept, keepdims=1)
    nothing = b.native("Equal", size, b.scalar(0.0, x.dtype), dtype=DType.bool, shape=kept)
    return b.native("Div", x, b.native("Where", nothing, b.scalar(1.0, x.dtype), size, dtype=x.dtype, shape=kept))
