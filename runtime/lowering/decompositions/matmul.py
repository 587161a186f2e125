"""Products, quotients and powers: matrices, integers, quantised numbers, and Einsum."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphcore.build.declare import EXPANSIONS
from graphcore.ir.symbol import Node, Symbol
from graphcore.ops.shared.einsum import Equation, parse, spelled
from graphcore.runtime.lowering.build.builder import Builder, Call, Replacement
from graphcore.runtime.lowering.build.casts import compute_in
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, _shape


def matmul_bool(b: Builder, call: Call) -> Replacement:
    """Compute MatMul of bools: whether any product is true."""
    x, y = (b.cast(s, DType.int32) for s in call.inputs)
    count = b.native("MatMul", x, y, shape=call.shape)
    return b.cast(count, DType.bool)


def may_be_empty(x: TensorType, result: TensorType) -> bool:
    """Return whether a product may have no rows, or nothing to add up, in one of the forms that kernels get wrong then.

    x: the left one's type. They are products with a vector, and those that repeat what is on the left.
    """
    if not x.shape.is_ranked or not result.shape.is_ranked or not x.rank:
        return False
    adds_nothing = (x.shape[-1].lower_bound or 0) < 1
    if x.rank > result.rank:
        return x.rank > 1 and (adds_nothing or not result.is_static or 0 in result.shape.static_dims)
    return adds_nothing and (result.rank > 1 if x.rank == 1 else x.shape[:-2] != result.shape[:-2])


def matmul(b: Builder, call: Call) -> Replacement:
    """Compute products of empty operands: the kernels refuse some, and leave other results unwritten or too small.

    They get it right for matrices with a column, and for stacks of which each on the left has its own on the right.
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
        return b.op(call.op, _repeated(b, x, y, shape[:-2]), y, shape=shape)
    row = b.native("Unsqueeze", x, b.vector([0]), shape=_shape([Dim(1), *x.shape]))
    product = b.op(call.op, _repeated(b, row, y, shape[:-1]), y, shape=_shape([*shape[:-1], Dim(1), shape[-1]]))
    return b.native("Squeeze", product, b.vector([-2]), shape=shape)


def _repeated(b: Builder, x: Symbol, y: Symbol, stacks: Shape) -> Symbol:
    """Return as many matrices on the left as on the right."""
    count = b.native("Shape", y, dtype=DType.int64, shape=Shape([y.rank - 2]), end=-2)
    target = b.native("Concat", count, b.vector([1, 1]), shape=Shape([y.rank]), axis=0)
    return b.op("Expand", x, target, shape=stacks + x.shape[-2:])


def matmul_bytes(b: Builder, call: Call) -> Replacement:
    """Compute MatMul of bytes by MatMulInteger, which is many times faster than products in int32.

    Signed ones are read as unsigned, 128 above what they are: on some processors products of signed with unsigned bytes
    saturate. Where nothing is summed up the kernel leaves its result as it finds it, so the length must be known.
    """
    x, y = call.inputs
    if not x.shape.is_ranked or not y.shape.is_ranked or not x.shape[-1].is_static or not int(x.shape[-1]):
        return None
    if 1 == y.rank < x.rank:  # with a vector the kernel refuses rows of which there are none
        return None
    own, bytes_ = x.dtype, DType.uint8
    zeros: list[Symbol] = []
    if own is DType.int8:
        offset = b.scalar(128, bytes_)
        x, y = (b.native("BitwiseXor", b.view(s, bytes_), offset, dtype=bytes_, shape=s.shape) for s in (x, y))
        zeros = [offset, offset]
    wide = b.native("MatMulInteger", x, y, *zeros, dtype=DType.int32, shape=call.shape)
    made = b.cast(wide, own)
    b.casts.loose[made.id, DType.int32] = wide
    return made


def matmul_double(b: Builder, call: Call) -> Replacement:
    """Compute MatMul of float64 apart from constant factors: onnxruntime fuses one before or after it as a float32."""
    by_vector = matmul(b, call)
    if by_vector is not None:
        return by_vector
    x, y = (b.native("BitCast", s, to=s.dtype) if isinstance(s.producer, Node) else s for s in call.inputs)
    made = b.native(call.op, x, y, shape=call.shape)
    return b.native("BitCast", made, to=made.dtype)


def matmul_unsigned(b: Builder, call: Call) -> Replacement:
    """Compute MatMul of unsigned integers as signed ones, which wrap alike: the unsigned kernels fail on empty sums."""
    view = DType.int32 if call.inputs[0].dtype is DType.uint32 else DType.int64
    return compute_in(b, view, call, by_bits=True)


# Operators of integers: division that never fails, and the order of 64-bit numbers.


def divide(b: Builder, call: Call) -> Replacement:
    """Compute integer Div and Mod with a divisor of 1 where the kernel fails (0) or ends the process (MIN / -1).

    Mod with the sign of the dividend goes through float64: it is the remainder of truncated division.
    """
    x, y = call.inputs
    truncates = bool(call.attributes.get("fmod"))
    dtype = x.dtype
    divisors = b.array_of(y)
    if divisors is not None and y.producer.is_weight and not b.is_read:
        divisors = None  # its owner may still change it
    if divisors is not None and not np.isin(divisors, (0, -1) if dtype.is_signed else (0,)).any():
        if not truncates:
            return None
        return b.native("Sub", x, b.native("Mul", b.native("Div", x, y), y))
    zero, one = b.scalar(0, dtype), b.scalar(1, dtype)
    nothing = b.native("Equal", y, zero, dtype=DType.bool)
    unsafe = nothing
    opposite = None
    if dtype.is_signed:
        opposite = b.native("Equal", y, b.scalar(-1, dtype), dtype=DType.bool)
        unsafe = b.native("Or", nothing, opposite)
    safe = b.op("Where", unsafe, one, y, dtype=dtype)
    if truncates:
        return b.native("Sub", x, b.native("Mul", b.native("Div", x, safe), safe))
    made = b.native(call.op, x, safe, **call.attributes)
    if call.op == "Mod":
        return made  # modulo 1 is 0, which is what both have
    if opposite is not None:
        made = b.op("Where", opposite, b.native("Neg", x), made, dtype=dtype)
    return b.op("Where", nothing, zero, made, dtype=dtype)


def extreme_int64(b: Builder, call: Call) -> Replacement:
    """Compute Max and Min of int64: the kernel compares equal high halves by their low halves taken as signed."""
    made = call.inputs[0]
    for other in call.inputs[1:]:
        smaller = b.native("Less", made, other, dtype=DType.bool)
        pair = (other, made) if call.op == "Max" else (made, other)
        made = b.native("Where", smaller, *pair, dtype=DType.int64)
    return made if len(call.inputs) > 1 else None


def sign_int64(b: Builder, call: Call) -> Replacement:
    """Compute Sign of int64, for which the kernel gives -1 from 2^31 to 2^32 - 1."""
    (x,) = call.inputs
    zero = b.scalar(0, DType.int64)
    above, below = (
        b.native_cast(b.native(test, x, zero, dtype=DType.bool), DType.int64) for test in ("Greater", "Less")
    )
    return b.native("Sub", above, below)


def clip_int64(b: Builder, call: Call) -> Replacement:
    """Compute Clip of int64, which orders numbers as Max and Min do."""
    made, *bounds = call.inputs
    for name, bound in zip(("Max", "Min"), bounds, strict=False):
        if bound is not None:
            made = b.op(name, made, bound)
    return made if any(bound is not None for bound in bounds) else None


def ordered_view(b: Builder, call: Call) -> Replacement:
    """Return uint64 as int64 in the same order: flip the top bit and read it as signed."""
    x = call.inputs[0]
    top = b.scalar(1 << 63, DType.uint64)

    def there(symbol: Symbol) -> Symbol:
        flipped = b.native("BitwiseXor", symbol, top)
        return b.native("BitCast", flipped, dtype=DType.int64, to=DType.int64)

    def back(symbol: Symbol) -> Symbol:
        bits = b.native("BitCast", symbol, dtype=DType.uint64, to=DType.uint64)
        return b.native("BitwiseXor", bits, top)

    retyped = [t.cast(DType.int64) if t.dtype is DType.uint64 else t for t in call.types]
    made = b.legal(call._replace(inputs=[there(x), *call.inputs[1:]], types=retyped))
    return tuple(back(m) if t.dtype is DType.uint64 else m for m, t in zip(made, call.types, strict=True))


# Quantisation and products of quantised numbers where the kernels take fewer dtypes than ONNX.

_F32, _I32 = DType.float32, DType.int32


def quantize(b: Builder, call: Call) -> Replacement:
    """Compute QuantizeLinear of operands of several dtypes in float32."""
    x, scale, *zero = call.inputs
    if x.dtype is scale.dtype and x.dtype.is_float:
        return None
    wide = (b.cast(x, _F32), b.cast(scale, _F32), *zero)
    kept = {key: value for key, value in call.attributes.items() if key != "precision"}
    return b.op(call.op, *wide, dtype=call.types[0].dtype, shape=call.shape, **kept)


def dequantize(b: Builder, call: Call) -> Replacement:
    """Compute DequantizeLinear to bfloat16, or to another float than the scale's, in float32, and round once."""
    x, scale, *zero = call.inputs
    wanted = call.types[0].dtype
    if scale.dtype is wanted and wanted is not DType.bfloat16:
        return None
    kept = {key: value for key, value in call.attributes.items() if key != "output_dtype"}
    wide = b.cast(scale, _F32)
    made = b.op(call.op, x, wide, *zero, dtype=_F32, shape=call.shape, **kept)
    return b.cast(made, wanted)


def becomes_other(operand: TensorType, result: TensorType) -> bool:
    """Return whether a DequantizeLinear may be one that no kernel takes."""
    return result.dtype is not _F32


def product(b: Builder, call: Call) -> Replacement:
    """Compute QLinearMatMul of float8: the product of the dequantised numbers, quantised again."""
    left, left_scale, left_zero, right, right_scale, right_zero, y_scale, y_zero = call.inputs
    factors = []
    for x, scale, zero, is_left in ((left, left_scale, left_zero, True), (right, right_scale, right_zero, False)):
        wide = b.cast(x, _F32)
        if not _is_zero(b, zero):
            wide = b.op("Sub", wide, _beside(b, b.cast(zero, _F32), is_left))
        factors.append(b.op("Mul", wide, _beside(b, b.cast(scale, _F32), is_left)))
    made = b.op("MatMul", *factors, shape=call.shape)
    scaled = b.op("Div", made, _beside(b, b.cast(y_scale, _F32), True))
    if not _is_zero(b, y_zero):
        scaled = b.op("Add", scaled, _beside(b, b.cast(y_zero, _F32), True))
    return b.op("QuantizeLinear", scaled, b.scalar(1.0, _F32), b.scalar(0.0, y_zero.dtype), dtype=call.types[0].dtype)


def _is_zero(b: Builder, point: Symbol) -> bool:
    """Return whether a zero point is known to be 0, as it is where floats are meant."""
    array = b.array_of(point)
    return array is not None and not array.astype(np.float32).any()


def _beside(b: Builder, scale: Symbol, is_left: bool) -> Symbol:
    """Return scales of the rows of a left factor as a column; those of the columns of a right one broadcast already."""
    if scale.rank != 1 or scale.shape[0] == 1 or not is_left:
        return scale
    return b.op("Unsqueeze", scale, b.vector([-1]), shape=_shape([scale.shape[0], Dim(1)]))


def convolve(b: Builder, call: Call) -> Replacement:
    """Compute ConvInteger with a zero point for each filter, which the kernel lacks, by Conv of int32."""
    x, filters, *zeros = call.inputs
    x_zero, zero = (*zeros, None, None)[:2]
    if zero is None or not zero.rank or zero.shape[0] == 1:
        return None
    column = b.op("Reshape", zero, b.vector([-1] + [1] * (filters.rank - 1)), shape=_column(zero, filters))
    centred = b.op("Sub", b.cast(filters, _I32), b.cast(column, _I32))
    wide = b.cast(x, _I32)
    if x_zero is not None:
        point = b.op("Reshape", x_zero, b.vector([1] * x.rank), shape=_shape([Dim(1)] * x.rank))
        wide = b.op("Sub", wide, b.cast(point, _I32), shape=x.shape)
    return b.op("Conv", wide, centred, dtype=_I32, shape=call.shape, **call.attributes)


def _column(zero: Symbol, filters: Symbol) -> Any:
    return _shape([zero.shape[0], *[Dim(1)] * (filters.rank - 1)])


# Powers and sums of products of integers, which the kernels compute as doubles.


def power(b: Builder, call: Call) -> Replacement:
    """Compute Pow of integers by squaring in int64: the kernel rounds beyond 2^53 and saturates."""
    x, y = call.inputs
    if y.dtype.is_float:
        return None
    own, whole = x.dtype, DType.int64
    # All that it is made of has a right kernel in int64.
    made: Symbol = EXPANSIONS["IntegerPow"](*(b.cast(s, whole) for s in (x, y)))
    return b.cast(made, own)


def einsum(b: Builder, call: Call) -> Replacement:
    """Compute Einsum with ReduceSum, which wraps: the kernel saturates in sums over letters of one operand alone."""
    equation = parse(call.attributes["equation"], len(call.inputs), {})
    if not any(equation.is_lone(label) for labels in equation.inputs for label in labels):
        return turned(b, call)
    if all(x.shape.is_ranked for x in call.inputs) and any(map(_may_be_empty, call.inputs)):
        equation = spelled(equation, [x.rank for x in call.inputs])
    made: list[Symbol] = []
    left = []
    for x, labels in zip(call.inputs, equation.inputs, strict=True):
        lone = [label for label in dict.fromkeys(labels) if equation.is_lone(label)]
        if lone:
            x, labels = _summed(b, x, labels, lone)
        made.append(x)
        left.append(labels)
    if len(made) == 1 and left[0] == equation.output:
        return made[0]
    return _product(b, made, Equation(tuple(left), equation.output), call.shape)


def turned(b: Builder, call: Call) -> Replacement:
    """Compute Einsum of operands that may be empty and that the kernel would transpose: see `_product`."""
    if not any(map(_may_be_empty, call.inputs)):
        return None
    equation = parse(call.attributes["equation"], len(call.inputs), {})
    if len(call.inputs) < 2 and _is_plain(equation):
        return None
    return _product(b, list(call.inputs), equation, call.shape)


def _may_be_empty(x: Symbol) -> bool:
    """Return whether a Symbol may have no elements, as far as its type tells."""
    return not x.shape.is_ranked or any((dim.lower_bound or 0) < 1 for dim in x.shape)


def _product(b: Builder, inputs: Sequence[Symbol], equation: Equation, shape: Shape) -> Symbol:
    """Compute Einsum after a Transpose: the kernel divides by zero as it transposes an operand without elements.

    It takes two operands at a time, as the kernel does, each with its axes in the order in which they are multiplied.
    """
    if not any(map(_may_be_empty, inputs)) or not all(x.shape.is_ranked for x in inputs):
        return b.native("Einsum", *inputs, shape=shape, equation=str(equation))
    equation = spelled(equation, [x.rank for x in inputs])
    if any("..." in labels for labels in equation.inputs):  # the letters ran out
        return b.native("Einsum", *inputs, shape=shape, equation=str(equation))
    unique = [_diagonal(b, x, labels) for x, labels in zip(inputs, equation.inputs, strict=True)]
    inputs, terms = [x for x, _ in unique], tuple(labels for _, labels in unique)
    if len(inputs) < 2:
        return b.native("Einsum", *inputs, shape=shape, equation=str(Equation(terms, equation.output)))
    made, labels = inputs[0], terms[0]
    for i, (x, others) in enumerate(zip(inputs[1:], terms[1:], strict=True), 2):
        later = {label for term in (*terms[i:], equation.output) for label in term}
        order = [label for label in (*equation.output, *labels, *others) if label in later]
        kept = [label for label in dict.fromkeys(order) if label in labels or label in others]
        both = [label for label in kept if label in labels and label in others]
        mine, theirs = ([a for a in kept if a in term and a not in both] for term in (labels, others))
        met = [label for label in labels if label in others and label not in both]
        lone = [[a for a in term if a not in kept and a not in met] for term in (labels, others)]
        left, right = (*both, *mine, *met, *lone[0]), (*both, *met, *theirs, *lone[1])
        operands = _transposed(b, made, labels, left), _transposed(b, x, others, right)
        sizes = dict(zip(left, operands[0].shape, strict=True))
        sizes |= {a: d for a, d in zip(right, operands[1].shape, strict=True) if d != 1 or a not in sizes}
        labels = (*both, *mine, *theirs)
        made = b.native(
            "Einsum",
            *operands,
            shape=_shape(sizes[label] for label in labels),
            equation=str(Equation((left, right), labels)),
        )
    return _transposed(b, made, labels, equation.output)


def _is_plain(equation: Equation) -> bool:
    """Return whether no letter stands twice in a term."""
    return all(len(set(labels)) == len(labels) for labels in equation.inputs)


def _diagonal(b: Builder, x: Symbol, labels: tuple[str, ...]) -> tuple[Symbol, tuple[str, ...]]:
    """Return an operand with one axis in place of two of one letter: the kernel takes these at the end alone."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            rest = [a for a in range(len(labels)) if a not in (first, second)]
            order = [*rest, first, second]
            turned = x
            if order != list(range(len(labels))):
                turned = b.op("Transpose", x, shape=_shape([x.shape[a] for a in order]), perm=order)
            kept = tuple(labels[a] for a in rest)
            plain = tuple(string.ascii_letters[: len(rest) + 1])
            taken = str(Equation(((*plain, plain[-1]),), plain))
            x = b.native("Einsum", turned, shape=_shape([x.shape[a] for a in (*rest, first)]), equation=taken)
            labels = (*kept, label)
    return x, labels


def _transposed(b: Builder, x: Symbol, labels: tuple[str, ...], order: tuple[str, ...]) -> Symbol:
    if labels == order:
        return x
    perm = [labels.index(label) for label in order]
    return b.op("Transpose", x, shape=_shape([x.shape[a] for a in perm]), perm=perm)


def _summed(b: Builder, x: Symbol, labels: tuple[str, ...], lone: list[str]) -> tuple[Symbol, tuple[str, ...]]:
    if _may_be_empty(x) and "..." not in labels:
        x, labels = _diagonal(b, x, labels)
    order = tuple(dict.fromkeys(labels))
    dots = order.index("...") if "..." in order else len(order)
    if order != labels:
        diagonal = str(Equation((labels,), order))
        kept = [_axis(labels, label, x.rank) for label in order if label != "..."]
        shape = [x.shape[a] for a in kept[:dots]] + _dotted(x, labels) + [x.shape[a] for a in kept[dots:]]
        x = b.native("Einsum", x, shape=_shape(shape), equation=diagonal)
    axes = [_axis(order, label, x.rank) for label in lone]
    shape = [d for axis, d in enumerate(x.shape) if axis not in axes]
    made = b.op("ReduceSum", x, b.vector(axes), shape=_shape(shape), keepdims=0)
    return made, tuple(label for label in order if label not in lone)


def _axis(labels: tuple[str, ...], label: str, rank: int) -> int:
    """Return the axis of a label, counted from the end for those after the dots."""
    place = labels.index(label)
    return place if "..." not in labels[:place] else place - len(labels) + rank


def _dotted(x: Symbol, labels: tuple[str, ...]) -> list[Any]:
    """Return the dims that the dots stand for."""
    if "..." not in labels:
        return []
    start = labels.index("...")
    return list(x.shape[start : x.rank - (len(labels) - 1 - start)])
