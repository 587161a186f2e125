"""Arithmetic of complex numbers by parts: NumPy's formulas, bit for bit, and comparisons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from graphcore.build import primitives as e
from graphcore.ir.symbol import Node, Symbol, present
from graphcore.ops.control import cond
from graphcore.runtime.lowering.dtypes.complex_numbers import parts as r
from graphcore.runtime.lowering.dtypes.complex_numbers.parts import ComplexPair, ComplexPolicy, Result, holds_complex
from graphcore.types.dtypes import DType, Kind
from graphcore.types.tensor_types import Shape, _shape


def operands(on: ComplexPolicy, node: Node) -> list[ComplexPair]:
    """Return the parts of the operands of a node, including real ones."""
    return [on.pair(s) if holds_complex(s) else from_real(on.of(s)) for s in node.inputs if s is not None]


def from_real(x: Symbol) -> ComplexPair:
    """Return a real value as a complex one."""
    return ComplexPair(x, r.zeros(x))


def total(x: ComplexPair, y: ComplexPair) -> ComplexPair:
    return x.each(e.add, y)


def difference(x: ComplexPair, y: ComplexPair) -> ComplexPair:
    return x.each(e.sub, y)


def product(x: ComplexPair, y: ComplexPair) -> ComplexPair:
    real = e.sub(e.mul(x.real, y.real), e.mul(x.imag, y.imag))
    return ComplexPair(real, e.add(e.mul(x.real, y.imag), e.mul(x.imag, y.real)))


def scaled(x: ComplexPair, value: Symbol | float) -> ComplexPair:
    return x.each(lambda part: e.mul(part, value))


def quotient(x: ComplexPair, y: ComplexPair) -> ComplexPair:
    """Divide by Smith's algorithm (Algorithm 116, 1962) as NumPy does; a divisor of 0 gives infinities and NaN.

    Operands for which a step would overflow or vanish are first scaled by a power of 2.
    """
    of_x, of_y = (e.emit("Max", *pair.each(r.magnitude)) for pair in (x, y))
    scale = _scale(e.emit("Max", of_x, of_y), e.emit("Min", of_x, of_y))
    (a, b), (c, d) = scaled(x, scale), scaled(y, scale)
    steep = e.emit("GreaterOrEqual", r.magnitude(c), r.magnitude(d), dtype=DType.bool)
    high, low = e.where(steep, c, d), e.where(steep, d, c)
    first, second = e.where(steep, a, b), e.where(steep, b, a)
    ratio = e.div(low, high)
    inverse = e.div(1.0, e.add(high, e.mul(low, ratio)))
    real = e.mul(e.add(first, e.mul(second, ratio)), inverse)
    crossed = e.mul(first, ratio)
    imag = e.mul(e.where(steep, e.sub(second, crossed), e.sub(crossed, second)), inverse)
    is_zero = r.is_zero(high)
    is_zero = e.both(is_zero, steep)
    size = r.magnitude(y.real)
    return ComplexPair(e.where(is_zero, e.div(x.real, size), real), e.where(is_zero, e.div(x.imag, size), imag))


def _div(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    """Divide tensors of which no number is 0, extreme or NaN, the usual case, by a branch of a third of the nodes."""
    x, y = operands(on, node)
    if not on.branches:
        return (quotient(x, y),)
    is_plain = []
    for largest in (e.emit("Max", *pair.each(r.magnitude)) for pair in (x, y)):
        high, low = _limits(largest)
        ends = (e.emit(op_type, largest, shape=_shape(()), keepdims=0) for op_type in ("ReduceMax", "ReduceMin"))
        is_plain += [e.below(next(ends), high), r.above(next(ends), low)]

    def branch(function: Callable[[ComplexPair, ComplexPair], ComplexPair]) -> tuple[Symbol, ...]:
        capture = on.new.build.innermost().build.capture
        return tuple(function(*(pair.each(lambda part: present(capture(part))) for pair in (x, y))))

    return (ComplexPair(*cond(e.both(*is_plain), lambda: branch(_plain_quotient), lambda: branch(quotient))),)


def _plain_quotient(x: ComplexPair, y: ComplexPair) -> ComplexPair:
    """Return the quotient with the roundings of Smith's algorithm: one of the factors is 1, the other the ratio."""
    (a, b), (c, d) = x, y
    high = e.where(e.emit("GreaterOrEqual", *y.each(r.magnitude), dtype=DType.bool), c, d)
    p, q = e.div(c, high), e.div(d, high)
    inverse = e.div(1.0, e.add(e.mul(c, p), e.mul(d, q)))
    real, imag = e.add(e.mul(a, p), e.mul(b, q)), e.sub(e.mul(b, p), e.mul(a, q))
    return scaled(ComplexPair(real, imag), inverse)


def _scale(largest: Symbol, smallest: Symbol) -> Symbol:
    """Return the power of 2 to scale by: 1 unless the magnitudes are extreme."""
    factor = 2.0 ** float(np.finfo(largest.dtype.numpy).nmant + 8)
    high, low = _limits(largest)
    up = e.where(e.below(smallest, low), e.const(smallest, factor), e.const(smallest, 1.0))
    return e.where(r.above(largest, high), e.const(largest, 1 / factor), up)


def _limits(x: Symbol) -> tuple[float, float]:
    """Return the magnitudes between which Smith's algorithm neither overflows nor vanishes."""
    info = np.finfo(x.dtype.numpy)
    bits = float(info.nmant + 8)
    return 2.0 ** (info.maxexp - bits - 2), 2.0 ** (info.minexp + bits)


def inverse(x: ComplexPair) -> ComplexPair:
    """Return 1 / x as NumPy computes it; the largest numbers are first scaled by a power of 2."""
    info = np.finfo(x.real.dtype.numpy)
    largest = e.emit("Max", *x.each(r.magnitude))
    one = e.const(largest, 1.0)
    scale = e.where(r.above(largest, 2.0 ** (info.maxexp - 3)), e.const(largest, 0.125), one)
    a, b = scaled(x, scale)
    steep = e.emit("LessOrEqual", r.magnitude(b), r.magnitude(a), dtype=DType.bool)
    high, low = e.where(steep, a, b), e.where(steep, b, a)
    ratio = e.div(low, high)
    below = e.add(high, e.mul(low, ratio))
    one, other = e.div(scale, below), e.div(e.mul(ratio, scale), below)
    return ComplexPair(e.where(steep, one, other), r.neg(e.where(steep, other, one)))


def size(x: ComplexPair) -> Symbol:
    """Return the magnitude, which overflows only beyond the dtype; infinite if either part is."""
    if x.real.dtype is DType.float32:
        wide = [e.cast(part, DType.float64) for part in x]
        result = e.cast(r.sqrt(e.add(*(e.mul(part, part) for part in wide))), DType.float32)
        return _infinite_if_either(x, result)
    return _infinite_if_either(x, _hypot(x.real, x.imag))


def _infinite_if_either(x: ComplexPair, result: Symbol) -> Symbol:
    either = e.either(r.is_infinite(x.real), r.is_infinite(x.imag))
    return e.where(either, e.const(result, float("inf")), result)


def _hypot(x: Symbol, y: Symbol) -> Symbol:
    """Return the root of the sum of squares, by Borges' "An improved algorithm for hypot(a, b)" (2019), scaled."""
    x, y = r.magnitude(x), r.magnitude(y)
    swapped = e.less(x, y)
    x, y = e.where(swapped, y, x), e.where(swapped, x, y)
    large, small = r.above(x, 2.0**500), e.below(y, 2.0**-500)
    one = e.const(x, 1.0)
    scale = e.where(large, e.const(x, 2.0**-600), e.where(small, e.const(x, 2.0**600), one))
    # A small addend beside a number that would overflow when scaled is below its last place.
    apart = e.both(small, r.above(x, 2.0**-400))
    scale = e.where(apart, one, scale)
    a, b = e.mul(x, scale), e.mul(y, scale)
    h = r.sqrt(e.add(e.mul(a, a), e.mul(b, b)))
    near = e.sub(h, a)
    rest = e.add(
        e.mul(e.mul(near, 2.0), e.sub(a, e.mul(b, 2.0))),
        e.add(e.mul(e.sub(e.mul(near, 4.0), b), b), e.mul(near, near)),
    )
    beside = e.sub(h, b)
    other = e.add(
        e.mul(a, e.sub(e.mul(beside, 2.0), a)),
        e.mul(e.sub(beside, e.mul(e.sub(a, b), 2.0)), beside),
    )
    error = e.where(e.greater(h, e.mul(b, 2.0)), rest, other)
    step = e.div(error, e.mul(h, 2.0))
    corrected = e.where(r.is_zero(h), h, e.sub(h, step))
    result = e.div(corrected, scale)
    return e.where(e.either(apart, r.is_zero(y)), e.add(x, y), result)


def angle(x: ComplexPair) -> Symbol:
    return r.atan2(x.imag, x.real)


def _square(x: ComplexPair) -> ComplexPair:
    cross = e.mul(x.real, x.imag)
    return ComplexPair(e.sub(e.mul(x.real, x.real), e.mul(x.imag, x.imag)), e.add(cross, cross))


def _complex_of(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    real, imag = (on.of(s) for s in node.inputs if s is not None)
    shape = node.outputs[0].shape
    return (ComplexPair(*(_spread(part, other, shape) for part, other in ((real, imag), (imag, real)))),)


def _spread(part: Symbol, other: Symbol, shape: Shape) -> Symbol:
    """Expand a part to the shape that it and the other broadcast to."""
    if part.shape == shape and not part.shape.is_dynamic:
        return part
    return e.emit("Expand", part, r.shape_of(other), shape=shape)


def _sign(x: ComplexPair) -> ComplexPair:
    """Return z / |z|, and 0 for 0; the sign of one infinite part, NaN for two, as NumPy does."""
    info = np.finfo(x.real.dtype.numpy)
    largest = e.emit("Max", *x.each(r.magnitude))
    bits = float(info.nmant + 8)
    is_small = e.below(largest, 2.0 ** (info.minexp + bits))
    up = e.where(is_small, e.const(largest, 2.0**bits), e.const(largest, 1.0))
    scale = e.where(r.above(largest, 2.0 ** (info.maxexp - 3)), e.const(largest, 0.125), up)
    length = size(scaled(x, scale))
    is_zero = r.is_zero(length)
    unlimited = r.is_infinite(length)
    unknown = e.either(e.both(r.is_infinite(x.real), r.is_infinite(x.imag)), r.is_nan(length))

    def sign(part: Symbol) -> Symbol:
        direction = e.where_number(r.is_infinite(part), e.emit("Sign", part), 0.0)
        finite = e.where(unlimited, direction, e.div(e.mul(part, scale), length))
        return e.where_number(unknown, float("nan"), e.where_number(is_zero, 0.0, finite))

    return x.each(sign)


def _equal(x: ComplexPair, y: ComplexPair) -> Symbol:
    return e.both(*x.each(e.equal, y))


def _cast(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    (source,) = map(present, node.inputs)
    to = node.outputs[0].dtype
    if not to.is_complex:
        assert to.kind is Kind.bool
        x = on.pair(source)
        return (e.opposite(e.both(*x.each(r.is_zero))),)
    if not holds_complex(source):
        return (from_real(e.cast(on.of(source), to.storage)),)
    return (on.pair(source).each(lambda part: e.cast(part, to.storage)),)


def rule(function: Callable[..., Result]) -> Callable[[ComplexPolicy, Node], Sequence[Result]]:
    """Return the rule of an operator whose result is a function of the parts of its operands."""
    return lambda on, node: (function(*operands(on, node)),)


RULES = {
    "Abs": rule(size),
    **dict.fromkeys(("Add", "Sum"), rule(lambda *terms: reduce(total, terms))),
    "Angle": rule(angle),
    "Cast": _cast,
    "ComplexOf": _complex_of,
    "Conjugate": rule(lambda x: ComplexPair(x.real, r.neg(x.imag))),
    "Div": _div,
    "Equal": rule(_equal),
    "ImaginaryPart": rule(lambda x: x.imag),
    "IsFinite": rule(lambda x: e.both(*x.each(r.is_finite))),
    "IsInf": rule(lambda x: e.either(*x.each(r.is_infinite))),
    "IsNaN": rule(lambda x: e.either(*x.each(r.is_nan))),
    "Mul": rule(product),
    "Neg": rule(lambda x: x.each(r.neg)),
    "NotEqual": rule(lambda x, y: e.opposite(_equal(x, y))),
    "RealPart": rule(lambda x: x.real),
    "Reciprocal": rule(inverse),
    "Sign": rule(_sign),
    "Square": rule(_square),
    "Sub": rule(difference),
}
