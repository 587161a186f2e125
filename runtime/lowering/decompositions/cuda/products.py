"""Products along an axis, for which there is no exact kernel: of halves, or of what lies a power of two apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions.reductions import _reduced_last
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser


def _part(on: Legaliser, x: Symbol, axis: int, start: int, stop: int) -> Symbol:
    shape = _shape([Dim(stop - start) if a == axis else d for a, d in enumerate(x.shape)])
    return on.native("Slice", x, on.ints([start]), on.ints([stop]), on.ints([axis]), shape=shape)


def _joined(on: Legaliser, parts: list[Symbol], axis: int) -> Symbol:
    size = sum(int(p.shape[axis]) for p in parts)
    shape = _shape([Dim(size) if a == axis else d for a, d in enumerate(parts[0].shape)])
    return on.native("Concat", *parts, shape=shape, axis=axis)


def reduce_product(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Integers: the first half times the second, until one is left. An axis of unknown size is left to the CPU."""
    x = inputs[0]
    if x.dtype.bits < 32:
        return None
    flat, finish = _reduced_last(on, inputs, types, attributes)
    if finish is None:
        return on.op("Identity", x)
    if not flat.shape[-1].is_static:
        return on.on_host(op, inputs, types, attributes)
    axis = flat.rank - 1
    size = int(flat.shape[-1])
    if not size:
        return on.on_host(op, inputs, types, attributes)
    while size > 1:
        half = size // 2
        product = on.native("Mul", _part(on, flat, axis, 0, half), _part(on, flat, axis, half, 2 * half))
        flat = _joined(on, [product, _part(on, flat, axis, 2 * half, size)], axis) if size % 2 else product
        size = half + size % 2
    return finish(on.native("Squeeze", flat, on.ints([axis]), shape=flat.shape[:-1]))


def running_product(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Hillis and Steele's scan: each times the one 1, 2, 4, ... before it. Unknown sizes are left to the CPU."""
    x, where = inputs
    axis = on.known(where)
    if axis is None or any(attributes.values()):
        return on.on_host(op, inputs, types, attributes)
    axis = int(axis.reshape(())) % x.rank
    if not x.shape[axis].is_static:
        return on.on_host(op, inputs, types, attributes)
    size, step = int(x.shape[axis]), 1
    while step < size:
        product = on.native("Mul", _part(on, x, axis, step, size), _part(on, x, axis, 0, size - step))
        x = _joined(on, [_part(on, x, axis, 0, step), product], axis)
        step *= 2
    return x if step > 1 else on.op("Identity", x)


def norm(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """LpNormalization; what has no length stays as it is."""
    (x,) = inputs
    axis = attributes.get("axis", -1) % x.rank
    kept = _shape([Dim(1) if a == axis else d for a, d in enumerate(x.shape)])
    reduce = f"ReduceL{attributes.get('p', 2)}"
    size = on.native(reduce, x, on.ints([axis]), shape=kept, keepdims=1)
    nothing = on.native("Equal", size, on.const(0.0, x.dtype), dtype=DType.bool, shape=kept)
    return on.native("Div", x, on.native("Where", nothing, on.const(1.0, x.dtype), size, dtype=x.dtype, shape=kept))
