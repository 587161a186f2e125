"""Kernels that older releases of onnxruntime lack or have wrong, replaced by operators that they have right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.operators import ONNX, Trait, having
from graphcore.ops.shared.einsum import parse, spelled
from graphcore.runtime.lowering.build import casts
from graphcore.runtime.lowering.build.builder import Builder, Call, Decomposition, Replacement
from graphcore.runtime.lowering.build.casts import compute_in
from graphcore.runtime.lowering.decompositions.reductions import is_empty
from graphcore.runtime.lowering.targets.releases import Runtime
from graphcore.runtime.lowering.targets.traps import met_by_files, of_kernel
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape

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


# Rows for readers of files: releases that no session runs on, and optimisers that no session has.
#
# They are for what those lack, or have wrong, in the releases that `traps.json` has.

_U64, _F32, _F64, _BOOL = DType.uint64, DType.float32, DType.float64, DType.bool
_FLOAT8 = (DType.float8_e4m3fn, DType.float8_e5m2)
_COMPARISONS = having(Trait.COMPARES) & ONNX


class _Trap(NamedTuple):
    """in_file: whether it is an optimiser's, which sessions switch off."""

    decomposition: Decomposition
    in_file: bool = False


def rows() -> dict[tuple[str, DType], Decomposition]:
    """Return the rows for kernels that releases or opsets lack."""
    made: dict[tuple[str, DType], Decomposition] = {**rows_of_bits(), ("Div", _U64): quotient}
    made.update({(op, _U64): compared for op in _COMPARISONS})
    made.update({(op, dtype): counted for op in ("Shape", "Size") for dtype in _FLOAT8})
    return made


def traps(runtime: Runtime) -> dict[tuple[str, DType], Decomposition]:
    """Return the rows for kernels that are wrong in a release."""
    return {
        key: trap.decomposition
        for key, trap in _TRAPS.items()
        if runtime.in_file >= trap.in_file and met_by_files(of_kernel(*key), runtime)
    }


def counted(b: Builder, call: Call) -> Replacement:
    """Compute Shape and Size of float8 by float32 and a Reshape: an optimiser drops a Cast before them."""
    (x,) = call.inputs
    wide = casts.barrier(b, b.cast(x, _F32))
    return b.native(call.op, wide, dtype=_I64, shape=call.shape, **call.attributes)


def compared(b: Builder, call: Call) -> Replacement:
    """Compare uint64 as int64 with the highest bit flipped, which keeps the order."""
    x, y = (_turned(b, s) if call.op != "Equal" else b.cast(s, _I64) for s in call.inputs)
    return b.native(call.op, x, y, dtype=_BOOL, shape=call.shape)


def _turned(b: Builder, x: Symbol) -> Symbol:
    return b.native("Add", b.cast(x, _I64), b.scalar(-(1 << 63), _I64))


def quotient(b: Builder, call: Call) -> Replacement:
    """Compute Div of uint64 by signed division of the upper 63 bits, off by one at most: Warren, "Hacker's Delight".

    What is 2^63 or more goes into x once or not at all. A division by 0 gives 0, as docs/numbers.md says.
    """
    x = call.inputs[0]
    dividend, divisor = (b.cast(s, _I64) for s in call.inputs)
    shape = call.shape
    zero, one = b.scalar(0, _I64), b.scalar(1, _I64)
    large = b.native("Less", divisor, zero, dtype=_BOOL)
    nothing = b.native("Equal", divisor, zero, dtype=_BOOL)
    unsafe = b.native("Or", large, nothing)
    upper = b.cast(b.native("BitShift", x, b.scalar(1, _U64), direction="RIGHT"), _I64)
    near = b.native("Div", upper, b.native("Where", unsafe, one, divisor, dtype=_I64), shape=shape)
    near = b.native("Where", unsafe, zero, b.native("Add", near, near), dtype=_I64, shape=shape)
    rest = b.native("Sub", dividend, b.native("Mul", near, divisor), shape=shape)
    highest = b.scalar(-(1 << 63), _I64)
    more = b.native("GreaterOrEqual", b.native("Add", rest, highest), b.native("Add", divisor, highest), dtype=_BOOL)
    more = b.native("And", more, b.native("Not", nothing), shape=shape)
    return b.cast(b.native("Add", near, b.native_cast(more, _I64), shape=shape), _U64)


def whole(b: Builder, call: Call) -> Replacement:
    """Compute Floor and Ceil with the sign of zero kept: the kernels give 0.0 for -0.0."""
    (x,) = call.inputs
    return casts.with_sign_of_zero(b, b.native(call.op, x), x)


def logistic(b: Builder, call: Call) -> Replacement:
    """Compute Sigmoid of float64 by Exp: an optimiser makes of x * Sigmoid(x) an operator without a kernel."""
    (x,) = call.inputs
    one = b.scalar(1.0, _F64)
    return b.native("Reciprocal", b.native("Add", b.native("Exp", b.native("Neg", x)), one))


def product(b: Builder, call: Call) -> Replacement:
    """Compute MatMul of float64 by Einsum: an optimiser makes of it and a Transpose an operator without a kernel."""
    x, y = call.inputs
    if not all(s.shape.is_ranked and s.rank > 1 for s in (x, y)):
        return None
    return b.op("Einsum", x, y, shape=call.shape, equation="...ij,...jk->...ik")


_TRAPS: dict[tuple[str, DType], _Trap] = {
    **{(op, dtype): _Trap(whole) for op in ("Floor", "Ceil") for dtype in (_F32, _F64)},
    ("Sigmoid", _F64): _Trap(logistic, in_file=True),
    ("MatMul", _F64): _Trap(product, in_file=True),
}


# Bitwise operators of integers by arithmetic, for opsets before 18, which lack them.

_DTYPES = tuple(map(DType.of, "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()))
_BYTE = 256


def rows_of_bits() -> dict[tuple[str, DType], Decomposition]:
    """Return the rows for an opset without these operators."""
    made: dict[tuple[str, DType], Decomposition] = {}
    for dtype in _DTYPES:
        made["BitwiseNot", dtype] = complement
        made.update({(f"Bitwise{name}", dtype): combined for name in ("And", "Or", "Xor")})
    return made


def complement(b: Builder, call: Call) -> Replacement:
    """Compute BitwiseNot as -1 - x."""
    (x,) = call.inputs
    return b.cast(b.native("Sub", b.scalar(-1, _I64), _wide(b, x)), x.dtype)


def combined(b: Builder, call: Call) -> Replacement:
    """Compute BitwiseAnd, Or and Xor: x | y is x + y - (x & y), and x ^ y is x + y - 2 (x & y)."""
    x, y = call.inputs if b.array_of(call.inputs[0]) is None else call.inputs[::-1]
    shape, bits = call.shape, x.dtype.bits
    wide, other = _wide(b, x), _wide(b, y)
    mask = b.array_of(y)
    if call.op == "BitwiseXor" and mask is not None and mask.size and (_unsigned(mask, bits) == 1 << (bits - 1)).all():
        return b.cast(b.native("Add", wide, other, shape=shape), x.dtype)
    low = _low_bits(mask, bits)
    if low is not None and low < 63:
        both = b.native("Mod", wide, b.scalar(1 << low, _I64), dtype=_I64, shape=shape)
    else:
        both = _and_of_bytes(b, wide, other, bits // 8, shape)
    if call.op != "BitwiseAnd":
        sum_ = b.native("Add", wide, other, shape=shape)
        both = b.native("Mul", both, b.scalar(2, _I64)) if call.op == "BitwiseXor" else both
        both = b.native("Sub", sum_, both, shape=shape)
    return b.cast(both, x.dtype)


def _wide(b: Builder, x: Symbol) -> Symbol:
    return x if x.dtype is _I64 else b.cast(x, _I64)


def _unsigned(array: np.ndarray[Any, Any], bits: int) -> Any:
    """Return the bits of integers as Python numbers."""
    return np.asarray(array.astype(object) & ((1 << bits) - 1))


def _low_bits(mask: np.ndarray[Any, Any] | None, bits: int) -> int | None:
    """Return how many of the lowest bits a known mask of one element keeps; None where it is another mask."""
    if mask is None or mask.size != 1:
        return None
    value = int(_unsigned(mask, bits).reshape(-1)[0])
    return value.bit_length() if value & (value + 1) == 0 else None


def _and_of_bytes(b: Builder, x: Symbol, y: Symbol, count: int, shape: Any) -> Symbol:
    """Return x & y byte by byte, each looked up in a table of all pairs."""
    table = _table(b)
    base = b.scalar(_BYTE, _I64)
    made: Symbol | None = None
    for place in range(count):
        low, high = b.native("Mod", x, base, dtype=_I64), b.native("Mod", y, base, dtype=_I64)
        pair = b.native("Add", b.native("Mul", low, base), high, shape=shape)
        byte = b.cast(b.native("Gather", table, pair, shape=shape, axis=0), _I64)
        weight = 1 << 8 * place
        byte = byte if not place else b.native("Mul", byte, b.scalar(weight, _I64))
        made = byte if made is None else b.native("Add", made, byte)
        x = b.native("Div", b.native("Sub", x, low), base)
        y = b.native("Div", b.native("Sub", y, high), base)
    assert made is not None
    return made


def _table(b: Builder) -> Symbol:
    made = b.graph.memory.values.get("bytes & bytes")
    if made is None:
        bytes_ = np.arange(_BYTE, dtype=np.uint8)
        made = b.constant((bytes_[:, None] & bytes_).reshape(-1), DType.uint8)
        b.graph.memory.values["bytes & bytes"] = made
    return made


# Operators whose kernels crash or err on empty operands in some releases.
#
# Einsum, TopK and Unique divide by zero or read what is not there, and ReduceMax and ReduceMin of integers give 0 over
# nothing. An axis that may be empty is made one long, with zeros, and cut off again.

_LONGEST = (1 << 31) - 1
_SORTED = tuple(map(DType.of, "int32 int64 uint64 float32 float64".split()))
_UNIQUE = tuple(map(DType.of, "int8 int64 float32 float64 string".split()))
_MULTIPLIED = tuple(map(DType.of, "int32 int64 float32 float64".split()))
EXTREMES = tuple(map(DType.of, "bool int8 uint8 int32".split()))
"""The dtypes whose kernels of ReduceMax and ReduceMin give 0 for nothing."""


def trap(op_type: str, dtype: DType) -> str:
    """Return the name of the trap of empty operands."""
    return f"{op_type} {dtype} without elements"


def rows_of_empty(table: Mapping[tuple[str, DType], Decomposition]) -> dict[tuple[str, DType], Decomposition]:
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
        known = b.array_of(given)
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
