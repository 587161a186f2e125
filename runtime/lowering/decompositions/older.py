"""Kernels that older releases of onnxruntime lack or have wrong, replaced by operators that are correct there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.ir.symbol import Symbol, present
from graphcore.operators import ONNX, Trait, having
from graphcore.runtime.lowering.build import casts
from graphcore.runtime.lowering.build.builder import Builder, Decomposition, OpCall, Replacement
from graphcore.runtime.lowering.build.casts import compute_in
from graphcore.runtime.lowering.decompositions.float64_functions import FUNCTIONS
from graphcore.runtime.lowering.decompositions.reductions import is_empty
from graphcore.runtime.lowering.decompositions.shape_arithmetic import places, reshaped, shape_of, symbol
from graphcore.runtime.lowering.targets.releases import Runtime
from graphcore.runtime.lowering.targets.traps import met_by_files, of_kernel
from graphcore.support.lazy import Lazy
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape

if TYPE_CHECKING:
    from graphcore.ops.shared import einsum as notation
else:  # files that run as they are need no ops
    notation = Lazy("graphcore.ops.shared.einsum")

_I64 = DType.int64
STORED = tuple(d for d in vars(DType).values() if isinstance(d, DType) and d.storage is d and d is not DType.string)


def tensor_scatter(b: Builder, call: OpCall) -> Replacement:
    """Compute TensorScatter by ScatterElements: each element of the update goes to its index along the axis."""
    past, update, starts = [*call.inputs, None][:3]
    if not past.shape.is_ranked or not update.shape.is_ranked:
        return None
    rank = past.rank
    axis = call.attributes.get("axis", -2) % rank
    indices = places(b, update, axis)
    if starts is not None:
        first = symbol(b, reshaped(b, b.cast(starts, _I64), [-1, *[1] * (rank - 1)]))
        indices = b.native("Add", indices, first)
    if call.attributes.get("mode", "linear") == "circular":
        indices = b.op("Mod", indices, size_of(b, past, axis), shape=indices.shape)
    indices = b.native("Expand", indices, shape_of(b, update), shape=update.shape)
    return b.op("ScatterElements", past, indices, update, shape=call.shape, axis=axis)


# Rows for files: for releases that no session runs on, and optimisers that sessions disable.
#
# They replace missing or wrong kernels of the releases in `traps.json`.

_U64, _F32, _F64, _BOOL = DType.uint64, DType.float32, DType.float64, DType.bool
_FLOAT8 = (DType.float8_e4m3fn, DType.float8_e5m2)
_COMPARISONS = having(Trait.COMPARES) & ONNX


def rows() -> dict[tuple[str, DType], Decomposition]:
    """Return the rows for kernels that releases or opsets lack."""
    rows_by_key: dict[tuple[str, DType], Decomposition] = {**rows_of_bits(), ("Div", _U64): divide_uint64}
    rows_by_key.update({(op, _U64): compare_uint64 for op in _COMPARISONS})
    rows_by_key.update({(op, dtype): shape_of_float8 for op in ("Shape", "Size") for dtype in _FLOAT8})
    return rows_by_key


def traps(runtime: Runtime) -> dict[tuple[str, DType], Decomposition]:
    """Return the rows for kernels that are wrong in a release, and for optimisers, which sessions disable."""
    rows_by_key = {**_TRAPS, **(_TRAPS_OF_OPTIMISERS if runtime.in_file else {})}
    return {key: d for key, d in rows_by_key.items() if met_by_files(of_kernel(*key), runtime)}


def shape_of_float8(b: Builder, call: OpCall) -> Replacement:
    """Compute Shape and Size of float8 by float32 and a Reshape: an optimiser drops a Cast before them."""
    (x,) = call.inputs
    wide = casts.barrier(b, b.cast(x, _F32))
    return b.native(call.op, wide, dtype=_I64, shape=call.shape, **call.attributes)


def compare_uint64(b: Builder, call: OpCall) -> Replacement:
    """Compare uint64 as int64 with the highest bit flipped, which keeps the order."""
    x, y = (b.cast(s, _I64) for s in call.inputs)
    if call.op != "Equal":
        x, y = (b.native("Add", s, b.scalar(-(1 << 63), _I64)) for s in (x, y))
    return b.native(call.op, x, y, dtype=_BOOL, shape=call.shape)


def divide_uint64(b: Builder, call: OpCall) -> Replacement:
    """Compute Div of uint64 by signed division of the upper 63 bits, off by at most one: Warren, "Hacker's Delight".

    A divisor of 2^63 or more fits into x once or not at all. A division by 0 gives 0, as docs/numbers.md promises.
    """
    x = call.inputs[0]
    dividend, divisor = (b.cast(s, _I64) for s in call.inputs)
    zero, one = b.scalar(0, _I64), b.scalar(1, _I64)
    is_zero = b.native("Equal", divisor, zero)
    unsafe = b.native("Or", b.native("Less", divisor, zero), is_zero)
    upper = b.cast(b.native("BitShift", x, b.scalar(1, _U64), direction="RIGHT"), _I64)
    near = b.native("Div", upper, b.native("Where", unsafe, one, divisor))
    near = b.native("Where", unsafe, zero, b.native("Add", near, near))
    rest = b.native("Sub", dividend, b.native("Mul", near, divisor))
    highest = b.scalar(-(1 << 63), _I64)
    more = b.native("GreaterOrEqual", b.native("Add", rest, highest), b.native("Add", divisor, highest))
    more = b.native("And", more, b.native("Not", is_zero))
    return b.cast(b.native("Add", near, b.native_cast(more, _I64), shape=call.shape), _U64)


def floor_or_ceil(b: Builder, call: OpCall) -> Replacement:
    """Compute Floor and Ceil with the sign of zero: the kernels return 0.0 for -0.0."""
    (x,) = call.inputs
    return casts.with_sign_of_zero(b, b.native(call.op, x), x)


def matmul(b: Builder, call: OpCall) -> Replacement:
    """Compute MatMul of float64 by Einsum: an optimiser fuses it with a Transpose to an operator without a kernel."""
    x, y = call.inputs
    if not all(s.shape.is_ranked and s.rank > 1 for s in (x, y)):
        return None
    return b.op("Einsum", x, y, shape=call.shape, equation="...ij,...jk->...ik")


_TRAPS: dict[tuple[str, DType], Decomposition] = {
    (op, dtype): floor_or_ceil for op in ("Floor", "Ceil") for dtype in (_F32, _F64)
}
_TRAPS_OF_OPTIMISERS: dict[tuple[str, DType], Decomposition] = {
    # An optimiser fuses x * Sigmoid(x) to an operator without a kernel.
    ("Sigmoid", _F64): lambda b, call: FUNCTIONS["Sigmoid"](b, *call.inputs),
    ("MatMul", _F64): matmul,
}


# Bitwise operators of integers by arithmetic, for opsets before 18, which lack them.

INTEGERS = tuple(map(DType.of, "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()))
_BYTE = 256


def rows_of_bits() -> dict[tuple[str, DType], Decomposition]:
    """Return the rows for an opset without these operators."""
    operators = {"BitwiseNot": complement, **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), bitwise)}
    return {(name, dtype): row for name, row in operators.items() for dtype in INTEGERS}


def complement(b: Builder, call: OpCall) -> Replacement:
    """Compute BitwiseNot as -1 - x."""
    (x,) = call.inputs
    return b.cast(b.native("Sub", b.scalar(-1, _I64), _wide(b, x)), x.dtype)


def bitwise(b: Builder, call: OpCall) -> Replacement:
    """Compute BitwiseAnd, Or and Xor: x | y is x + y - (x & y), and x ^ y is x + y - 2 (x & y)."""
    x, y = call.inputs if b.array_of(call.inputs[0]) is None else call.inputs[::-1]
    shape, bits = call.shape, x.dtype.bits
    wide, other = _wide(b, x), _wide(b, y)
    mask = b.array_of(y)
    if call.op == "BitwiseXor" and mask is not None and mask.size and (_unsigned(mask, bits) == 1 << (bits - 1)).all():
        return b.cast(b.native("Add", wide, other, shape=shape), x.dtype)
    low, cleared = _low_bits(mask, bits), _low_bits(None if mask is None else ~mask, bits)
    if low is not None and low < 63:
        both = b.native("Mod", wide, b.scalar(1 << low, _I64), shape=shape)
    elif cleared is not None and cleared < 63:
        both = b.native("Sub", wide, b.native("Mod", wide, b.scalar(1 << cleared, _I64)), shape=shape)
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
    """Return the bits of integers as unsigned Python integers."""
    return np.asarray(array.astype(object) & ((1 << bits) - 1))


def _low_bits(mask: np.ndarray[Any, Any] | None, bits: int) -> int | None:
    """Return the number of lowest bits that a constant scalar mask keeps; None for another mask."""
    if mask is None or mask.size != 1:
        return None
    value = int(_unsigned(mask, bits).reshape(-1)[0])
    return value.bit_length() if value & (value + 1) == 0 else None


def _and_of_bytes(b: Builder, x: Symbol, y: Symbol, count: int, shape: Any) -> Symbol:
    """Return x & y byte by byte, from a table of all pairs."""
    table = _table(b)
    base = b.scalar(_BYTE, _I64)
    result: Symbol | None = None
    for place in range(count):
        low, high = b.native("Mod", x, base, dtype=_I64), b.native("Mod", y, base, dtype=_I64)
        pair = b.native("Add", b.native("Mul", low, base), high, shape=shape)
        byte = b.cast(b.native("Gather", table, pair, shape=shape, axis=0), _I64)
        weight = 1 << 8 * place
        byte = byte if not place else b.native("Mul", byte, b.scalar(weight, _I64))
        result = byte if result is None else b.native("Add", result, byte)
        x = b.native("Div", b.native("Sub", x, low), base)
        y = b.native("Div", b.native("Sub", y, high), base)
    return present(result)


def _table(b: Builder) -> Symbol:
    result = b.graph.memory.values.get("bytes & bytes")
    if result is None:
        bytes_ = np.arange(_BYTE, dtype=np.uint8)
        result = b.constant((bytes_[:, None] & bytes_).reshape(-1), DType.uint8)
        b.graph.memory.values["bytes & bytes"] = result
    return result


# Operators whose kernels crash or fail on empty operands in some releases.
#
# Einsum, TopK and Unique divide by zero or read out of bounds, and ReduceMax and ReduceMin of integers return 0 for
# empty axes. An axis that may be empty is padded to length one with zeros, and the result is cut.

_MAX_LENGTH = (1 << 31) - 1
_SORTED = tuple(map(DType.of, "int32 int64 uint64 float32 float64".split()))
_UNIQUE = tuple(map(DType.of, "int8 int64 float32 float64 string".split()))
_MULTIPLIED = tuple(map(DType.of, "int32 int64 float32 float64".split()))
EXTREMES = tuple(map(DType.of, "bool int8 uint8 int32".split()))
"""The dtypes whose kernels of ReduceMax and ReduceMin return 0 for empty axes."""


def trap(op_type: str, dtype: DType) -> str:
    """Return the name of the trap of empty operands."""
    return f"{op_type} {dtype} without elements"


def rows_of_empty(table: Mapping[tuple[str, DType], Decomposition]) -> dict[tuple[str, DType], Decomposition]:
    """Return the rows for an older release, each wrapped around the row of `table` for a newer one."""
    rows_by_key = einsum_rows(table)
    rows_by_key.update({("TopK", dtype): partial(along_axis, table.get(("TopK", dtype))) for dtype in _SORTED})
    rows_by_key.update({("Unique", d): table.get(("Unique", d), partial(along_axis, None)) for d in _UNIQUE})
    for op in ("ReduceMax", "ReduceMin"):
        dtypes = [d for d in EXTREMES if (op, d) != ("ReduceMax", DType.uint8)]  # 0 is correct there
        rows_by_key.update({(op, dtype): partial(extreme, table.get((op, dtype))) for dtype in dtypes})
    return rows_by_key


def einsum_rows(table: Mapping[tuple[str, DType], Decomposition]) -> dict[tuple[str, DType], Decomposition]:
    """Return the rows of Einsum, whose kernel also crashes OpenVINO."""
    return {("Einsum", dtype): partial(einsum, table.get(("Einsum", dtype))) for dtype in _MULTIPLIED}


def einsum(then: Decomposition | None, b: Builder, call: OpCall) -> Replacement:
    """Compute Einsum of operands that may be empty. then: the decomposition of others."""
    replacement = then(b, call) if then else None
    if not all(x.shape.is_ranked for x in call.inputs) or not any(
        _possibly_empty(x, range(x.rank)) for x in call.inputs
    ):
        return replacement
    parsed = notation.parse(call.attributes["equation"], len(call.inputs), {})
    equation = notation.spelled(parsed, [x.rank for x in call.inputs])
    if any("..." in labels for labels in equation.inputs):  # more axes than letters
        return replacement
    sizes: dict[str, list[Symbol]] = {}
    operands = []
    for x, labels in zip(call.inputs, equation.inputs, strict=True):
        axes = _possibly_empty(x, range(x.rank))
        lengths = {axis: size_of(b, x, axis) for axis in axes}
        for axis, size in lengths.items():
            sizes.setdefault(labels[axis], []).append(size)
        operands.append(padded(b, x, missing_of(b, lengths)))
    shape = _shape([Dim.maximum(d, 1) if a in sizes else d for a, d in zip(equation.output, call.shape, strict=True)])
    inner = {**call.attributes, "equation": str(equation)}
    type_ = TensorType(call.types[0].dtype, list(shape))
    summed_up = then(b, call._replace(inputs=operands, types=[type_], attributes=inner)) if then else None
    result = summed_up if isinstance(summed_up, Symbol) else b.native(call.op, *operands, shape=shape, **inner)
    factors = {label: _one_unless_empty(b, label_sizes) for label, label_sizes in sizes.items()}
    ends = {
        axis: b.op("Mul", factors[label], b.vector([_MAX_LENGTH]))
        for axis, label in enumerate(equation.output)
        if label in factors
    }
    result = cut(b, result, ends, call.types[0])
    summed = [size for label, size in factors.items() if label not in equation.output]
    if not summed:
        return result
    is_empty_sum = b.op("Equal", _one_unless_empty(b, summed), b.vector([0]), dtype=_BOOL)
    if result.rank == 0:
        is_empty_sum = b.op("Squeeze", is_empty_sum, b.vector([0]), shape=_shape([]))
    return b.op("Where", is_empty_sum, b.scalar(0, result.dtype), result, dtype=result.dtype, shape=call.shape)


def along_axis(then: Decomposition | None, b: Builder, call: OpCall) -> Replacement:
    """Compute TopK, or Unique along an axis, if another axis may be empty. then: the decomposition of others.

    Results other than those of TopK do not have the other axes, except the first one. Rows without elements are all
    equal.
    """
    x, *others = call.inputs
    axis = call.attributes.get("axis", -1 if call.op == "TopK" else None)
    is_along = axis is not None and x.shape.is_ranked
    axes = _possibly_empty(x, [a for a in range(x.rank) if a != axis % x.rank]) if is_along else []
    if not axes:
        return then(b, call) if then else None
    sizes = {axis: size_of(b, x, axis) for axis in axes}
    count = len(call.types) if call.op == "TopK" else 1
    types = [*(with_elements(t, axes) for t in call.types[:count]), *call.types[count:]]
    # Do not look the row up again: nothing is known of the length of an axis without a name once it is padded.
    operands = (padded(b, x, missing_of(b, sizes)), *others)
    replaced = then(b, call._replace(inputs=operands, types=types)) if then else None
    results = b.emit_many(call.op, operands, types, call.attributes) if replaced is None else replaced
    cut_results = [cut(b, part, sizes, t) for part, t in zip(results[:count], call.types, strict=False)]
    return (*cut_results, *results[count:])


def extreme(then: Decomposition | None, b: Builder, call: OpCall) -> Replacement:
    """Compute ReduceMax and ReduceMin of integers over axes that may be empty. then: the decomposition of others."""
    x = call.inputs[0]
    replacement = then(b, call) if then else None
    if is_empty(x.type, call.types[0]) or not x.shape.is_ranked or not b.rules.allows(call.op, x.dtype):
        return replacement
    axes_operand = call.inputs[1] if len(call.inputs) > 1 else None
    constant_axes = b.array_of(axes_operand)
    named = set() if constant_axes is None else {int(a) % x.rank for a in constant_axes.ravel()}
    axes = _possibly_empty(x, named or range(x.rank))
    names_none = axes_operand is None or (constant_axes is not None and not named)
    keeps_all = call.attributes.get("noop_with_empty_axes") and names_none
    if not axes or keeps_all or (axes_operand is not None and constant_axes is None):
        return replacement
    if x.dtype is _BOOL:  # newer kernels refuse empty axes of bools, but not of bytes
        return compute_in(b, DType.uint8, call)
    result = replacement
    if not isinstance(result, Symbol):
        result = b.native(call.op, *call.inputs, shape=call.shape, **call.attributes)
    has_no_elements = b.op("Equal", _one_unless_empty(b, [size_of(b, x, axis) for axis in axes]), b.vector([0]))
    has_no_elements = b.op("Squeeze", has_no_elements, b.vector([0]))
    value = b.scalar(x.dtype.min if call.op == "ReduceMax" else x.dtype.max, x.dtype)
    return b.op("Where", has_no_elements, value, result, shape=call.shape)


def _possibly_empty(x: Symbol, axes: Iterable[int]) -> list[int]:
    """Return the axes that may be empty, according to the type."""
    return [axis for axis in axes if (x.shape[axis].lower_bound or 0) < 1]


def size_of(b: Builder, x: Symbol, axis: int) -> Symbol:
    """Return the length of an axis, a vector of one number."""
    return b.op("Shape", x, dtype=_I64, shape=_shape([Dim(1)]), start=axis, end=axis + 1)


def _one_unless_empty(b: Builder, sizes: list[Symbol]) -> Symbol:
    """Return 0 where one of the sizes is 0, else 1."""
    return b.op("Min", *sizes, b.vector([1]), dtype=_I64, shape=_shape([Dim(1)]))


def missing_of(b: Builder, sizes: Mapping[int, Symbol]) -> dict[int, Symbol]:
    """Return 1 for each size of 0, else 0."""
    return {axis: b.op("Sub", b.vector([1]), _one_unless_empty(b, [size])) for axis, size in sizes.items()}


def padded(b: Builder, x: Symbol, missing: Mapping[int, Symbol], rank: int | None = None) -> Symbol:
    """Append zeros to axes, as many as they lack. rank: if that of the type is unknown."""
    if not missing:
        return x
    rank = x.rank if rank is None else rank
    if x.dtype is DType.string:  # Pad has no kernel for strings
        for axis, count in missing.items():
            fill_shape = b.op("ScatterElements", shape_of(b, x), b.vector([axis]), count)
            wide = with_elements(x.type, [axis])
            fill = b.op("Expand", b.constant(np.array([""], object), x.dtype), fill_shape, shape=wide.shape)
            x = b.op("Concat", x, fill, shape=wide.shape, axis=axis)
        return x
    parts = [missing.get(axis, b.vector([0])) for axis in range(rank)]
    pads = b.op("Concat", b.vector([0] * rank), *parts, shape=_shape([Dim(2 * rank)]), axis=0)
    return b.op("Pad", x, pads, shape=with_elements(x.type, missing).shape)


def cut(b: Builder, x: Symbol, sizes: Mapping[int, Symbol], type_: TensorType) -> Symbol:
    """Cut the tensor to a size along each of these axes."""
    if not sizes:
        return x
    ends = [*sizes.values()]
    end = ends[0] if len(ends) == 1 else b.op("Concat", *ends, shape=_shape([Dim(len(ends))]), axis=0)
    return b.op("Slice", x, b.vector([0] * len(ends)), end, b.vector(list(sizes)), shape=type_.shape)


def with_elements(type_: TensorType, axes: Iterable[int]) -> TensorType:
    """Return the type with at least one element along each of these axes."""
    if not type_.shape.is_ranked:
        return type_
    chosen = set(axes)
    return TensorType(type_.dtype, [Dim.maximum(d, 1) if a in chosen else d for a, d in enumerate(type_.shape)])
