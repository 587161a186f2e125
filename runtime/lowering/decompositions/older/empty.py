"""Operators whose kernels crash or err on empty operands in some releases of onnxruntime.

Einsum, TopK and Unique divide by zero or read what is not there, and ReduceMax and ReduceMin of integers give 0 over
nothing. An axis that may be empty is made one long, with zeros, and cut off again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.ops.shared.einsum import parse, spelled
from graphcore.runtime.lowering.build.builder import Builder, Call, Decomposition, Replacement
from graphcore.runtime.lowering.build.compute import compute_in
from graphcore.runtime.lowering.decompositions.reductions import is_empty
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape

_I64, _BOOL = DType.int64, DType.bool
_LONGEST = (1 << 31) - 1
_SORTED = tuple(map(DType.of, "int32 int64 uint64 float32 float64".split()))
_UNIQUE = tuple(map(DType.of, "int8 int64 float32 float64 string".split()))
_MULTIPLIED = tuple(map(DType.of, "int32 int64 float32 float64".split()))
EXTREMES = tuple(map(DType.of, "bool int8 uint8 int32".split()))
"""The dtypes whose kernels of ReduceMax and ReduceMin give 0 for nothing."""


def trap(op_type: str, dtype: DType) -> str:
    """Return the name of the trap of empty operands."""
    return f"{op_type} {dtype} without elements"


def rows(table: Mapping[tuple[str, DType], Decomposition]) -> dict[tuple[str, DType], Decomposition]:
    """Return the rows for an older release, each around what `table` has for a newer one."""
    made = sums(table)
    made.update({("TopK", dtype): top_k(table.get(("TopK", dtype))) for dtype in _SORTED})
    made.update({key: table.get(key, unique) for key in (("Unique", dtype) for dtype in _UNIQUE)})
    for op in ("ReduceMax", "ReduceMin"):
        dtypes = [d for d in EXTREMES if (op, d) != ("ReduceMax", DType.uint8)]  # of which 0 is the least
        made.update({(op, dtype): extreme(table.get((op, dtype))) for dtype in dtypes})
    return made


def sums(table: Mapping[tuple[str, DType], Decomposition]) -> dict[tuple[str, DType], Decomposition]:
    """Return the rows of Einsum, whose kernel crashes OpenVINO too."""
    return {("Einsum", dtype): einsum(table.get(("Einsum", dtype))) for dtype in _MULTIPLIED}


def einsum(then: Decomposition | None) -> Decomposition:
    """Compute Einsum of operands that may be empty. then: the decomposition of others."""

    def decomposition(b: Builder, call: Call) -> Replacement:
        found = then(b, call) if then else None
        if not all(x.shape.is_ranked for x in call.inputs) or not any(_open(x, range(x.rank)) for x in call.inputs):
            return found
        equation = spelled(parse(call.attributes["equation"], len(call.inputs), {}), [x.rank for x in call.inputs])
        if any("..." in labels for labels in equation.inputs):  # the letters ran out
            return found
        sizes: dict[str, list[Symbol]] = {}
        given = []
        for x, labels in zip(call.inputs, equation.inputs, strict=True):
            axes = _open(x, range(x.rank))
            own = {axis: _size(b, x, axis) for axis in axes}
            for axis, size in own.items():
                sizes.setdefault(labels[axis], []).append(size)
            given.append(_padded(b, x, own))
        shape = _shape(
            [Dim.maximum(d, 1) if a in sizes else d for a, d in zip(equation.output, call.shape, strict=True)]
        )
        inner = {**call.attributes, "equation": str(equation)}
        type_ = TensorType(call.types[0].dtype, list(shape))
        summed_up = then(b, call._replace(inputs=given, types=[type_], attributes=inner)) if then else None
        made = summed_up if isinstance(summed_up, Symbol) else b.native(call.op, *given, shape=shape, **inner)
        least = {label: _least(b, held) for label, held in sizes.items()}
        ends = {
            axis: b.op("Mul", least[label], b.vector([_LONGEST]))
            for axis, label in enumerate(equation.output)
            if label in least
        }
        made = _cut(b, made, ends, call.types[0]) if ends else made
        summed = [size for label, size in least.items() if label not in equation.output]
        if not summed:
            return made
        nothing = b.op("Equal", _least(b, summed), b.vector([0]), dtype=_BOOL)
        if made.rank == 0:
            nothing = b.op("Squeeze", nothing, b.vector([0]), shape=_shape([]))
        return b.op("Where", nothing, b.scalar(0, made.dtype), made, dtype=made.dtype, shape=call.shape)

    return decomposition


def top_k(then: Decomposition | None) -> Decomposition:
    """Compute TopK where an axis other than the sorted one may be empty. then: the decomposition of others."""

    def decomposition(b: Builder, call: Call) -> Replacement:
        x, k = call.inputs
        if not x.shape.is_ranked:
            return then(b, call) if then else None
        along = call.attributes.get("axis", -1) % x.rank
        axes = _open(x, [axis for axis in range(x.rank) if axis != along])
        if not axes:
            return then(b, call) if then else None
        sizes = {axis: _size(b, x, axis) for axis in axes}
        wide = [_widened(t, axes) for t in call.types]
        # Not the row of this decomposition again: of an axis without a name nothing is known once it is padded.
        given = (_padded(b, x, sizes), k)
        replaced = then(b, call._replace(inputs=given, types=wide)) if then else None
        made = b.emit_many(call.op, given, wide, call.attributes) if replaced is None else replaced
        return tuple(_cut(b, part, sizes, t) for part, t in zip(made, call.types, strict=True))

    return decomposition


def unique(b: Builder, call: Call) -> Replacement:
    """Compute Unique along an axis where another one may be empty: rows without elements are all alike."""
    x = call.inputs[0]
    if "axis" not in call.attributes or not x.shape.is_ranked:
        return None
    along = call.attributes["axis"] % x.rank
    axes = _open(x, [axis for axis in range(x.rank) if axis != along])
    if not axes:
        return None
    sizes = {axis: _size(b, x, axis) for axis in axes}
    types = [_widened(call.types[0], axes), *call.types[1:]]
    made, *others = b.emit_many(call.op, (_padded(b, x, sizes),), types, call.attributes)
    return (_cut(b, made, sizes, call.types[0]), *others)


def extreme(then: Decomposition | None) -> Decomposition:
    """Compute ReduceMax and ReduceMin of integers over axes that may be empty. then: the decomposition of others."""

    def decomposition(b: Builder, call: Call) -> Replacement:
        x = call.inputs[0]
        found = then(b, call) if then else None
        if is_empty(x.type, call.types[0]) or not x.shape.is_ranked or not b.rules.allows(call.op, x.dtype):
            return found
        given = call.inputs[1] if len(call.inputs) > 1 else None
        known = b.known(given)
        along = range(x.rank) if known is None or not known.size else {int(a) % x.rank for a in known.ravel()}
        axes = _open(x, along)
        keeps_all = call.attributes.get("noop_with_empty_axes") and (
            given is None or (known is not None and not known.size)
        )
        if not axes or keeps_all or (given is not None and known is None):
            return found
        if x.dtype is _BOOL:  # of which the newer kernels refuse nothing, and those of bytes do not
            return compute_in(b, DType.uint8, call)
        made = (
            found if isinstance(found, Symbol) else b.native(call.op, *call.inputs, shape=call.shape, **call.attributes)
        )
        nothing = b.op("Equal", _least(b, [_size(b, x, axis) for axis in axes]), b.vector([0]), dtype=_BOOL)
        nothing = b.op("Squeeze", nothing, b.vector([0]), shape=_shape([]))
        value = b.scalar(x.dtype.min if call.op == "ReduceMax" else x.dtype.max, x.dtype)
        return b.op("Where", nothing, value, made, dtype=x.dtype, shape=call.shape)

    return decomposition


def _open(x: Symbol, axes: Iterable[int]) -> list[int]:
    """Return those of the axes that may be empty, as far as the type tells."""
    return [axis for axis in axes if (x.shape[axis].lower_bound or 0) < 1]


def _size(b: Builder, x: Symbol, axis: int) -> Symbol:
    """Return the length of an axis, a vector of one number."""
    return b.op("Shape", x, dtype=_I64, shape=_shape([Dim(1)]), start=axis, end=axis + 1)


def _least(b: Builder, sizes: list[Symbol]) -> Symbol:
    """Return 0 where one of the sizes is 0, else 1."""
    return b.op("Min", *sizes, b.vector([1]), dtype=_I64, shape=_shape([Dim(1)]))


def _padded(b: Builder, x: Symbol, sizes: Mapping[int, Symbol]) -> Symbol:
    """Return the tensor with a zero appended to each of these axes that is empty."""
    if not sizes:
        return x
    one, zero = b.vector([1]), b.vector([0])
    lacking = {axis: b.op("Sub", one, _least(b, [size])) for axis, size in sizes.items()}
    if x.dtype is DType.string:  # of which there is no kernel of Pad
        for axis, count in lacking.items():
            there = b.op("Shape", x, dtype=_I64, shape=_shape([Dim(x.rank)]))
            more = b.op("ScatterElements", there, b.vector([axis]), count)
            wide = _widened(x.type, [axis])
            fill = b.op("Expand", b.constant(np.array([""], object), x.dtype), more, dtype=x.dtype, shape=wide.shape)
            x = b.op("Concat", x, fill, shape=wide.shape, axis=axis)
        return x
    parts = [lacking.get(axis, zero) for axis in range(x.rank)]
    pads = b.op("Concat", b.vector([0] * x.rank), *parts, shape=_shape([Dim(2 * x.rank)]), axis=0)
    return b.op("Pad", x, pads, shape=_widened(x.type, sizes).shape)


def _cut(b: Builder, x: Symbol, sizes: Mapping[int, Symbol], type_: TensorType) -> Symbol:
    """Return the tensor cut to a size along each of these axes."""
    ends = b.op("Concat", *sizes.values(), shape=_shape([Dim(len(sizes))]), axis=0)
    return b.op("Slice", x, b.vector([0] * len(sizes)), ends, b.vector(list(sizes)), shape=type_.shape)


def _widened(type_: TensorType, axes: Iterable[int]) -> TensorType:
    """Return the type where each of these axes has at least one element."""
    chosen = set(axes)
    return TensorType(type_.dtype, [Dim.maximum(d, 1) if a in chosen else d for a, d in enumerate(type_.shape)])
