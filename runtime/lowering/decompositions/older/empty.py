"""Operators of which older releases of onnxruntime do not survive, or get wrong, operands without elements.

Their Einsum and TopK divide by zero or read what is not there, and ReduceMax and ReduceMin of integers give 0 over
nothing. An axis that may be empty is made one long, with zeros, and cut off again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from graphcore.ir.symbol import Symbol
from graphcore.ops.shared.einsum import parse
from graphcore.runtime.lowering.decompositions.einsum_pow import spelled
from graphcore.runtime.lowering.decompositions.reductions import is_empty
from graphcore.runtime.lowering.decompositions.signature import Detour, Inputs, Made
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

_I64, _BOOL = DType.int64, DType.bool
_LONGEST = (1 << 31) - 1
_SORTED = tuple(map(DType.of, "int32 int64 uint64 float32 float64".split()))
_MULTIPLIED = tuple(map(DType.of, "int32 int64 float32 float64".split()))
EXTREMES = tuple(map(DType.of, "bool int8 uint8 int32".split()))
"""The dtypes whose kernels of ReduceMax and ReduceMin give 0 for nothing."""

REVERSED = "ReverseSequence of no elements"
"""A trap: what is left unwritten is what the memory held before."""


def trap(op_type: str, dtype: DType) -> str:
    """The name of the trap that operands without elements are."""
    return f"{op_type} {dtype} without elements"


def rows(table: Mapping[tuple[str, DType], Detour]) -> dict[tuple[str, DType], Detour]:
    """The rows for an older release, each around what `table` has for a newer one."""
    made = sums(table)
    made.update({("TopK", dtype): top_k(table.get(("TopK", dtype))) for dtype in _SORTED})
    for op in ("ReduceMax", "ReduceMin"):
        dtypes = [d for d in EXTREMES if (op, d) != ("ReduceMax", DType.uint8)]  # of which 0 is the least
        made.update({(op, dtype): extreme(table.get((op, dtype))) for dtype in dtypes})
    return made


def sums(table: Mapping[tuple[str, DType], Detour]) -> dict[tuple[str, DType], Detour]:
    """Those of Einsum, which OpenVINO does not survive either."""
    return {("Einsum", dtype): einsum(table.get(("Einsum", dtype))) for dtype in _MULTIPLIED}


def einsum(then: Detour | None) -> Detour:
    """Einsum of operands that may be empty. then: what is done with others."""

    def detour(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
        found = then(on, op, inputs, types, attributes) if then else None
        if not all(x.shape.is_ranked for x in inputs) or not any(_open(x, range(x.rank)) for x in inputs):
            return found
        equation = spelled(parse(attributes["equation"], len(inputs), {}), [x.rank for x in inputs])
        if any("..." in labels for labels in equation.inputs):  # the letters ran out
            return found
        sizes: dict[str, list[Symbol]] = {}
        given = []
        for x, labels in zip(inputs, equation.inputs, strict=True):
            axes = _open(x, range(x.rank))
            own = {axis: _size(on, x, axis) for axis in axes}
            for axis, size in own.items():
                sizes.setdefault(labels[axis], []).append(size)
            given.append(_padded(on, x, own))
        shape = _shape(
            [Dim.maximum(d, 1) if a in sizes else d for a, d in zip(equation.output, types[0].shape, strict=True)]
        )
        inner = {**attributes, "equation": str(equation)}
        summed_up = then(on, op, tuple(given), [TensorType(types[0].dtype, list(shape))], inner) if then else None
        made = summed_up if isinstance(summed_up, Symbol) else on.native(op, *given, shape=shape, **inner)
        least = {label: _least(on, held) for label, held in sizes.items()}
        ends = {
            axis: on.op("Mul", least[label], on.ints([_LONGEST]))
            for axis, label in enumerate(equation.output)
            if label in least
        }
        made = _cut(on, made, ends, types[0]) if ends else made
        summed = [size for label, size in least.items() if label not in equation.output]
        if not summed:
            return made
        nothing = on.op("Equal", _least(on, summed), on.ints([0]), dtype=_BOOL)
        if made.rank == 0:
            nothing = on.op("Squeeze", nothing, on.ints([0]), shape=_shape([]))
        return on.op("Where", nothing, on.const(0, made.dtype), made, dtype=made.dtype, shape=types[0].shape)

    return detour


def top_k(then: Detour | None) -> Detour:
    """TopK where another axis than the one that is sorted along may be empty. then: what is done with others."""

    def detour(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
        x, k = inputs
        if not x.shape.is_ranked:
            return then(on, op, inputs, types, attributes) if then else None
        along = attributes.get("axis", -1) % x.rank
        axes = _open(x, [axis for axis in range(x.rank) if axis != along])
        if not axes:
            return then(on, op, inputs, types, attributes) if then else None
        sizes = {axis: _size(on, x, axis) for axis in axes}
        wide = [_widened(t, axes) for t in types]
        made = on.legal(op, (_padded(on, x, sizes), k), wide, attributes, "")
        return tuple(_cut(on, part, sizes, t) for part, t in zip(made, types, strict=True))

    return detour


def extreme(then: Detour | None) -> Detour:
    """ReduceMax and ReduceMin of integers over what may be nothing. then: what is done where it is not."""

    def detour(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
        x = inputs[0]
        found = then(on, op, inputs, types, attributes) if then else None
        if is_empty(x.type, types[0]) or not x.shape.is_ranked or not on.rules.allows(op, x.dtype):
            return found
        given = inputs[1] if len(inputs) > 1 else None
        known = on.known(given)
        along = range(x.rank) if known is None or not known.size else {int(a) % x.rank for a in known.ravel()}
        axes = _open(x, along)
        keeps_all = attributes.get("noop_with_empty_axes") and (given is None or (known is not None and not known.size))
        if not axes or keeps_all or (given is not None and known is None):
            return found
        if x.dtype is _BOOL:  # of which the newer kernels refuse nothing, and those of bytes do not
            return on.through(DType.uint8, op, inputs, types, attributes)
        made = found if isinstance(found, Symbol) else on.native(op, *inputs, shape=types[0].shape, **attributes)
        nothing = on.op("Equal", _least(on, [_size(on, x, axis) for axis in axes]), on.ints([0]), dtype=_BOOL)
        nothing = on.op("Squeeze", nothing, on.ints([0]), shape=_shape([]))
        value = on.const(x.dtype.min if op == "ReduceMax" else x.dtype.max, x.dtype)
        return on.op("Where", nothing, value, made, dtype=x.dtype, shape=types[0].shape)

    return detour


def reverse(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """ReverseSequence of lengths that may be 0: the kernel leaves such a sequence unwritten.

    The first element alone, turned around, is itself; an axis without elements has none.
    """
    x, lengths = inputs
    known = on.known(lengths)
    if known is not None and (known > 0).all():
        return None
    axis = attributes.get("time_axis", 0)
    least = on.op("Min", on.ints([1]), _size(on, x, axis), dtype=_I64, shape=_shape([Dim(1)]))
    held = on.op("Max", lengths, least, dtype=_I64, shape=lengths.shape)
    (made,) = on.graph._emit_many(op, (x, held), types, attributes)
    return made


def _open(x: Symbol, axes: Iterable[int]) -> list[int]:
    """Those of the axes that may be empty, as far as the type tells."""
    return [axis for axis in axes if (x.shape[axis].lower_bound or 0) < 1]


def _size(on: Legaliser, x: Symbol, axis: int) -> Symbol:
    """The length of an axis, a vector of one number."""
    return on.op("Shape", x, dtype=_I64, shape=_shape([Dim(1)]), start=axis, end=axis + 1)


def _least(on: Legaliser, sizes: list[Symbol]) -> Symbol:
    """0 where one of the sizes is, and 1 where none is."""
    return on.op("Min", *sizes, on.ints([1]), dtype=_I64, shape=_shape([Dim(1)]))


def _padded(on: Legaliser, x: Symbol, sizes: Mapping[int, Symbol]) -> Symbol:
    """The tensor with a zero behind each of these axes that is empty."""
    if not sizes:
        return x
    one, zero = on.ints([1]), on.ints([0])
    lacking = {axis: on.op("Sub", one, _least(on, [size])) for axis, size in sizes.items()}
    parts = [lacking.get(axis, zero) for axis in range(x.rank)]
    pads = on.op("Concat", on.ints([0] * x.rank), *parts, shape=_shape([Dim(2 * x.rank)]), axis=0)
    return on.op("Pad", x, pads, shape=_widened(x.type, sizes).shape)


def _cut(on: Legaliser, x: Symbol, sizes: Mapping[int, Symbol], type_: TensorType) -> Symbol:
    """The tensor up to a size along each of these axes."""
    ends = on.op("Concat", *sizes.values(), shape=_shape([Dim(len(sizes))]), axis=0)
    return on.op("Slice", x, on.ints([0] * len(sizes)), ends, on.ints(list(sizes)), shape=type_.shape)


def _widened(type_: TensorType, axes: Iterable[int]) -> TensorType:
    """The type where each of these axes has one element at least."""
    chosen = set(axes)
    return TensorType(type_.dtype, [Dim.maximum(d, 1) if a in chosen else d for a, d in enumerate(type_.shape)])


__all__ = ["EXTREMES", "REVERSED", "einsum", "extreme", "reverse", "rows", "sums", "top_k", "trap"]
