"""Products, quotients and powers: matrices, integers, quantised numbers, and Einsum."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphcore.build.declare import EXPANSIONS
from graphcore.ir.symbol import Node, Symbol
from graphcore.ops.shared.einsum import Equation, parse, spelled
from graphcore.runtime.lowering.build.builder import Builder, OpCall, Replacement
from graphcore.runtime.lowering.build.casts import compute_in
from graphcore.runtime.lowering.decompositions.shape_arithmetic import transpose
from graphcore.runtime.lowering.decompositions.windows import reduced
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, _shape


def may_be_empty(x: TensorType, result: TensorType) -> bool:
    """Return True if a product may have no rows, or empty sums, in a form that kernels compute wrongly then.

    x: the type of the left factor. The forms are products with a vector, and those that repeat the left factor.
    """
    if not x.shape.is_ranked or not result.shape.is_ranked or not x.rank:
        return False
    adds_nothing = (x.shape[-1].lower_bound or 0) < 1
    if x.rank > result.rank:
        return x.rank > 1 and (adds_nothing or not result.is_static or 0 in result.shape.static_dims)
    return adds_nothing and (result.rank > 1 if x.rank == 1 else x.shape[:-2] != result.shape[:-2])


def matmul(b: Builder, call: OpCall) -> Replacement:
    """Compute products of empty operands: the kernels refuse some, and leave other results unwritten or too small.

    They are correct for matrices with a column, and for stacks of which each left matrix has its own right one.
    """
    x, y = call.inputs
    shape = call.shape
    if not may_be_empty(x.type, call.types[0]) or not y.shape.is_ranked:
        return None
    if y.rank == 1:
        column = b.native("Unsqueeze", y, b.vector([1]), shape=_shape([*y.shape, Dim(1)]))
        product = b.op(call.op, x, column, shape=_shape([*shape, Dim(1)]))
        return b.native("Squeeze", product, b.vector([-1]), shape=shape)
    if x.rank > 1:
        return b.op(call.op, _repeat_left(b, x, y, shape[:-2]), y, shape=shape)
    row = b.native("Unsqueeze", x, b.vector([0]), shape=_shape([Dim(1), *x.shape]))
    product = b.op(call.op, _repeat_left(b, row, y, shape[:-1]), y, shape=_shape([*shape[:-1], Dim(1), shape[-1]]))
    return b.native("Squeeze", product, b.vector([-2]), shape=shape)


def _repeat_left(b: Builder, x: Symbol, y: Symbol, stacks: Shape) -> Symbol:
    """Return as many matrices on the left as on the right."""
    count = b.native("Shape", y, dtype=DType.int64, shape=Shape([y.rank - 2]), end=-2)
    target = b.native("Concat", count, b.vector([1, 1]), shape=Shape([y.rank]), axis=0)
    return b.op("Expand", x, target, shape=stacks + x.shape[-2:])


def matmul_bytes(b: Builder, call: OpCall) -> Replacement:
    """Compute MatMul of bytes by MatMulInteger, which is many times faster than products in int32.

    Signed bytes are shifted by 128 and read as unsigned: on some processors products of signed with unsigned bytes
    saturate. The kernel does not write empty sums, so the length must be known.
    """
    x, y = call.inputs
    if not x.shape.is_ranked or not y.shape.is_ranked or not x.shape[-1].is_static or not int(x.shape[-1]):
        return None
    if 1 == y.rank < x.rank:  # the kernel refuses empty rows with a vector
        return None
    dtype, bytes_ = x.dtype, DType.uint8
    zeros: list[Symbol] = []
    if dtype is DType.int8:
        offset = b.scalar(128, bytes_)
        x, y = (b.native("BitwiseXor", b.view(s, bytes_), offset, dtype=bytes_, shape=s.shape) for s in (x, y))
        zeros = [offset, offset]
    wide = b.native("MatMulInteger", x, y, *zeros, dtype=DType.int32, shape=call.shape)
    result = b.cast(wide, dtype)
    b.casts.loose[result.id, DType.int32] = wide
    return result


def matmul_double(b: Builder, call: OpCall) -> Replacement:
    """Compute MatMul of float64 apart from constant factors: onnxruntime fuses one before or after it as a float32."""
    by_vector = matmul(b, call)
    if by_vector is not None:
        return by_vector
    x, y = (b.native("BitCast", s, to=s.dtype) if isinstance(s.producer, Node) else s for s in call.inputs)
    result = b.native(call.op, x, y, shape=call.shape)
    return b.native("BitCast", result, to=result.dtype)


def matmul_unsigned(b: Builder, call: OpCall) -> Replacement:
    """Compute MatMul of unsigned integers as signed ones, which wrap alike: the unsigned kernels fail on empty sums."""
    view = DType.int32 if call.inputs[0].dtype is DType.uint32 else DType.int64
    return compute_in(b, view, call, by_bits=True)


# Operators of integers: division that never fails, and the order of 64-bit numbers.


def divide(b: Builder, call: OpCall) -> Replacement:
    """Compute integer Div and Mod with a divisor of 1 where the kernel fails (0) or crashes (MIN / -1).

    Mod with the sign of the dividend is computed in float64 by the kernel: here it is the remainder of truncated
    division.
    """
    x, y = call.inputs
    truncates = bool(call.attributes.get("fmod"))
    dtype = x.dtype
    divisors = b.array_of(y)
    if divisors is not None and y.producer.is_weight and not b.is_read:
        divisors = None  # a weight can still change
    if divisors is not None and not np.isin(divisors, (0, -1) if dtype.is_signed else (0,)).any():
        if not truncates:
            return None
        return b.native("Sub", x, b.native("Mul", b.native("Div", x, y), y))
    zero, one = b.scalar(0, dtype), b.scalar(1, dtype)
    is_zero = b.native("Equal", y, zero, dtype=DType.bool)
    unsafe = is_zero
    opposite = None
    if dtype.is_signed:
        opposite = b.native("Equal", y, b.scalar(-1, dtype), dtype=DType.bool)
        unsafe = b.native("Or", is_zero, opposite)
    safe = b.op("Where", unsafe, one, y, dtype=dtype)
    if truncates:
        return b.native("Sub", x, b.native("Mul", b.native("Div", x, safe), safe))
    result = b.native(call.op, x, safe, **call.attributes)
    if call.op == "Mod":
        return result  # modulo 1 is 0, the result for both
    if opposite is not None:
        result = b.op("Where", opposite, b.native("Neg", x), result, dtype=dtype)
    return b.op("Where", is_zero, zero, result, dtype=dtype)


def extreme_int64(b: Builder, call: OpCall) -> Replacement:
    """Compute Max and Min of int64: the kernel compares numbers with equal high halves by signed low halves."""
    result = call.inputs[0]
    for other in call.inputs[1:]:
        smaller = b.native("Less", result, other, dtype=DType.bool)
        pair = (other, result) if call.op == "Max" else (result, other)
        result = b.native("Where", smaller, *pair, dtype=DType.int64)
    return result if len(call.inputs) > 1 else None


def sign_int64(b: Builder, call: OpCall) -> Replacement:
    """Compute Sign of int64, for which the kernel returns -1 from 2^31 to 2^32 - 1."""
    (x,) = call.inputs
    zero = b.scalar(0, DType.int64)
    above, below = (b.native_cast(b.native(test, x, zero), DType.int64) for test in ("Greater", "Less"))
    return b.native("Sub", above, below)


def clip_int64(b: Builder, call: OpCall) -> Replacement:
    """Compute Clip of int64, which compares numbers as Max and Min do."""
    result, *bounds = call.inputs
    for name, bound in zip(("Max", "Min"), bounds, strict=False):
        if bound is not None:
            result = b.op(name, result, bound)
    return result if any(bound is not None for bound in bounds) else None


def ordered_view(b: Builder, call: OpCall) -> Replacement:
    """Compute an operator of uint64 on int64 of the same order: flip the top bit and read it as signed."""
    x = call.inputs[0]
    top = b.scalar(1 << 63, DType.uint64)

    def to_signed(symbol: Symbol) -> Symbol:
        flipped = b.native("BitwiseXor", symbol, top)
        return b.native("BitCast", flipped, dtype=DType.int64, to=DType.int64)

    def to_unsigned(symbol: Symbol) -> Symbol:
        bits = b.native("BitCast", symbol, dtype=DType.uint64, to=DType.uint64)
        return b.native("BitwiseXor", bits, top)

    retyped = [t.cast(DType.int64) if t.dtype is DType.uint64 else t for t in call.types]
    results = b.legal(call._replace(inputs=[to_signed(x), *call.inputs[1:]], types=retyped))
    return tuple(to_unsigned(m) if t.dtype is DType.uint64 else m for m, t in zip(results, call.types, strict=True))


# Quantisation and products of quantised numbers for dtypes that ONNX allows and the kernels do not support.

_F32, _I32 = DType.float32, DType.int32


def quantize(b: Builder, call: OpCall) -> Replacement:
    """Compute QuantizeLinear of operands of several dtypes in float32."""
    x, scale, *zero = call.inputs
    if x.dtype is scale.dtype and x.dtype.is_float:
        return None
    wide = (b.cast(x, _F32), b.cast(scale, _F32), *zero)
    attributes = {key: value for key, value in call.attributes.items() if key != "precision"}
    return b.op(call.op, *wide, dtype=call.types[0].dtype, shape=call.shape, **attributes)


def dequantize(b: Builder, call: OpCall) -> Replacement:
    """Compute DequantizeLinear to bfloat16, or to another float than the scale's, in float32, and round once."""
    x, scale, *zero = call.inputs
    dtype = call.types[0].dtype
    if scale.dtype is dtype and dtype is not DType.bfloat16:
        return None
    attributes = {key: value for key, value in call.attributes.items() if key != "output_dtype"}
    wide = b.cast(scale, _F32)
    wide_result = b.op(call.op, x, wide, *zero, dtype=_F32, shape=call.shape, **attributes)
    return b.cast(wide_result, dtype)


def may_lack_kernel(operand: TensorType, result: TensorType) -> bool:
    """Return True if no kernel may support a DequantizeLinear to this dtype."""
    return result.dtype is not _F32


def qlinear_matmul(b: Builder, call: OpCall) -> Replacement:
    """Compute QLinearMatMul of float8: the product of the dequantised numbers, quantised again."""
    left, left_scale, left_zero, right, right_scale, right_zero, y_scale, y_zero = call.inputs
    factors = []
    for x, scale, zero, is_left in ((left, left_scale, left_zero, True), (right, right_scale, right_zero, False)):
        wide = b.cast(x, _F32)
        if not _is_zero(b, zero):
            wide = b.op("Sub", wide, _as_column(b, b.cast(zero, _F32), is_left))
        factors.append(b.op("Mul", wide, _as_column(b, b.cast(scale, _F32), is_left)))
    result = b.op("MatMul", *factors, shape=call.shape)
    scaled = b.op("Div", result, _as_column(b, b.cast(y_scale, _F32), True))
    if not _is_zero(b, y_zero):
        scaled = b.op("Add", scaled, _as_column(b, b.cast(y_zero, _F32), True))
    return b.op("QuantizeLinear", scaled, b.scalar(1.0, _F32), b.scalar(0.0, y_zero.dtype), dtype=call.types[0].dtype)


def _is_zero(b: Builder, point: Symbol) -> bool:
    """Return True if a zero point is known to be 0, as it is for floats."""
    array = b.array_of(point)
    return array is not None and not array.astype(np.float32).any()


def _as_column(b: Builder, scale: Symbol, is_left: bool) -> Symbol:
    """Return scales of the rows of a left factor as a column; those of the columns of a right one broadcast already."""
    if scale.rank != 1 or scale.shape[0] == 1 or not is_left:
        return scale
    return b.op("Unsqueeze", scale, b.vector([-1]))


def convolve(b: Builder, call: OpCall) -> Replacement:
    """Compute ConvInteger with a zero point for each filter, which the kernel lacks, by Conv of int32."""
    x, filters, *zeros = call.inputs
    x_zero, zero = (*zeros, None, None)[:2]
    if zero is None or not zero.rank or zero.shape[0] == 1:
        return None
    column = b.op("Reshape", zero, b.vector([-1] + [1] * (filters.rank - 1)))
    centred = b.op("Sub", b.cast(filters, _I32), b.cast(column, _I32))
    wide = b.cast(x, _I32)
    if x_zero is not None:
        point = b.op("Reshape", x_zero, b.vector([1] * x.rank))
        wide = b.op("Sub", wide, b.cast(point, _I32), shape=x.shape)
    return b.op("Conv", wide, centred, dtype=_I32, shape=call.shape, **call.attributes)


# Powers and sums of products of integers, which the kernels compute in float64.


def power(b: Builder, call: OpCall) -> Replacement:
    """Compute Pow of integers by squaring in int64: the kernel rounds beyond 2^53 and saturates."""
    x, y = call.inputs
    if y.dtype.is_float:
        return None
    dtype, whole = x.dtype, DType.int64
    # All operators of the expansion have a correct kernel in int64.
    result: Symbol = EXPANSIONS["IntegerPow"](*(b.cast(s, whole) for s in (x, y)))
    return b.cast(result, dtype)


def einsum(b: Builder, call: OpCall) -> Replacement:
    """Compute Einsum with ReduceSum, which wraps: the kernel saturates in sums over labels of one operand only."""
    equation = parse(call.attributes["equation"], len(call.inputs), {})
    if not any(equation.is_lone(label) for labels in equation.inputs for label in labels):
        return einsum_of_empty(b, call)
    if all(x.shape.is_ranked for x in call.inputs) and any(map(_may_be_empty, call.inputs)):
        equation = spelled(equation, [x.rank for x in call.inputs])
    operands: list[Symbol] = []
    terms = []
    for x, labels in zip(call.inputs, equation.inputs, strict=True):
        lone = [label for label in dict.fromkeys(labels) if equation.is_lone(label)]
        if lone:
            x, labels = _sum_lone_labels(b, x, labels, lone)
        operands.append(x)
        terms.append(labels)
    if len(operands) == 1 and terms[0] == equation.output:
        return operands[0]
    return _product(b, operands, Equation(tuple(terms), equation.output), call.shape)


def einsum_of_empty(b: Builder, call: OpCall) -> Replacement:
    """Compute Einsum of operands that may be empty and that the kernel would transpose: see `_product`."""
    if not any(map(_may_be_empty, call.inputs)):
        return None
    equation = parse(call.attributes["equation"], len(call.inputs), {})
    if len(call.inputs) < 2 and all(len({*labels}) == len(labels) for labels in equation.inputs):  # none occurs twice
        return None
    return _product(b, list(call.inputs), equation, call.shape)


def _may_be_empty(x: Symbol) -> bool:
    """Return True if a Symbol may have no elements, according to its type."""
    return not x.shape.is_ranked or any((dim.lower_bound or 0) < 1 for dim in x.shape)


def _product(b: Builder, inputs: Sequence[Symbol], equation: Equation, shape: Shape) -> Symbol:
    """Compute Einsum after a Transpose: the kernel divides by zero when it transposes an operand without elements.

    Two operands at a time, as in the kernel, each with its axes in the order in which they are multiplied.
    """
    if not any(map(_may_be_empty, inputs)) or not all(x.shape.is_ranked for x in inputs):
        return b.native("Einsum", *inputs, shape=shape, equation=str(equation))
    equation = spelled(equation, [x.rank for x in inputs])
    if any("..." in labels for labels in equation.inputs):  # more axes than letters
        return b.native("Einsum", *inputs, shape=shape, equation=str(equation))
    unique = [_diagonal(b, x, labels) for x, labels in zip(inputs, equation.inputs, strict=True)]
    inputs, terms = [x for x, _ in unique], tuple(labels for _, labels in unique)
    if len(inputs) < 2:
        return b.native("Einsum", *inputs, shape=shape, equation=str(Equation(terms, equation.output)))
    current, labels = inputs[0], terms[0]
    for i, (x, others) in enumerate(zip(inputs[1:], terms[1:], strict=True), 2):
        later = {label for term in (*terms[i:], equation.output) for label in term}
        order = [label for label in (*equation.output, *labels, *others) if label in later]
        used = [label for label in dict.fromkeys(order) if label in labels or label in others]
        both = [label for label in used if label in labels and label in others]
        left_only, right_only = ([a for a in used if a in term and a not in both] for term in (labels, others))
        summed = [label for label in labels if label in others and label not in both]
        lone = [[a for a in term if a not in used and a not in summed] for term in (labels, others)]
        left_labels, right_labels = (*both, *left_only, *summed, *lone[0]), (*both, *summed, *right_only, *lone[1])
        operands = _transposed(b, current, labels, left_labels), _transposed(b, x, others, right_labels)
        sizes = dict(zip(left_labels, operands[0].shape, strict=True))
        sizes |= {a: d for a, d in zip(right_labels, operands[1].shape, strict=True) if d != 1 or a not in sizes}
        labels = (*both, *left_only, *right_only)
        current = b.native(
            "Einsum",
            *operands,
            shape=_shape(sizes[label] for label in labels),
            equation=str(Equation((left_labels, right_labels), labels)),
        )
    return _transposed(b, current, labels, equation.output)


def _diagonal(b: Builder, x: Symbol, labels: tuple[str, ...]) -> tuple[Symbol, tuple[str, ...]]:
    """Return an operand with two axes of one label merged: the kernel supports these only at the end."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            rest = [a for a in range(len(labels)) if a not in (first, second)]
            order = [*rest, first, second]
            transposed = transpose(b, x, order)
            others = tuple(labels[a] for a in rest)
            plain = tuple(string.ascii_letters[: len(rest) + 1])
            equation = str(Equation(((*plain, plain[-1]),), plain))
            x = b.native("Einsum", transposed, shape=_shape([x.shape[a] for a in (*rest, first)]), equation=equation)
            labels = (*others, label)
    return x, labels


def _transposed(b: Builder, x: Symbol, labels: tuple[str, ...], order: tuple[str, ...]) -> Symbol:
    return transpose(b, x, [labels.index(label) for label in order])


def _sum_lone_labels(b: Builder, x: Symbol, labels: tuple[str, ...], lone: list[str]) -> tuple[Symbol, tuple[str, ...]]:
    if _may_be_empty(x) and "..." not in labels:
        x, labels = _diagonal(b, x, labels)
    order = tuple(dict.fromkeys(labels))
    dots = order.index("...") if "..." in order else len(order)
    if order != labels:
        diagonal = str(Equation((labels,), order))
        axes_in_order = [_axis(labels, label, x.rank) for label in order if label != "..."]
        shape = (
            [x.shape[a] for a in axes_in_order[:dots]]
            + _ellipsis_dims(x, labels)
            + [x.shape[a] for a in axes_in_order[dots:]]
        )
        x = b.native("Einsum", x, shape=_shape(shape), equation=diagonal)
    axes = [_axis(order, label, x.rank) for label in lone]
    return reduced(b, "ReduceSum", x, axes), tuple(label for label in order if label not in lone)


def _axis(labels: tuple[str, ...], label: str, rank: int) -> int:
    """Return the axis of a label, counted from the end for those after the dots."""
    place = labels.index(label)
    return place if "..." not in labels[:place] else place - len(labels) + rank


def _ellipsis_dims(x: Symbol, labels: tuple[str, ...]) -> list[Any]:
    """Return the dims that the dots stand for."""
    if "..." not in labels:
        return []
    start = labels.index("...")
    return list(x.shape[start : x.rank - (len(labels) - 1 - start)])
