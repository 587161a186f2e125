"""Arithmetic of complex numbers by parts: NumPy's formulas, bit for bit, and comparisons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphcore.build import primitives as e
from graphcore.ir.symbol import Node, Symbol, present
from graphcore.runtime.lowering.dtypes.complex_numbers import parts as r
from graphcore.runtime.lowering.dtypes.complex_numbers.parts import ComplexPair, ComplexPolicy, Result, holds_complex
from graphcore.types.dtypes import DType, Kind
from graphcore.types.tensor_types import Shape


def operands(on: ComplexPolicy, node: Node) -> list[ComplexPair]:
    """Return the parts of the operands of a node, including real ones."""
    return [on.pair(s) if holds_complex(s) else from_real(on.of(s)) for s in node.inputs if s is not None]


def from_real(x: Symbol) -> ComplexPair:
    """Return a real value as a complex one."""
    return ComplexPair(x, r.zeros(x))


def total(x: ComplexPair, y: ComplexPair) -> ComplexPair:
    return ComplexPair(r.add(x.real, y.real), r.add(x.imag, y.imag))


def difference(x: ComplexPair, y: ComplexPair) -> ComplexPair:
    return ComplexPair(r.sub(x.real, y.real), r.sub(x.imag, y.imag))


def product(x: ComplexPair, y: ComplexPair) -> ComplexPair:
    real = r.sub(r.mul(x.real, y.real), r.mul(x.imag, y.imag))
    return ComplexPair(real, r.add(r.mul(x.real, y.imag), r.mul(x.imag, y.real)))


def scaled(x: ComplexPair, value: float) -> ComplexPair:
    return ComplexPair(r.times(x.real, value), r.times(x.imag, value))


def quotient(x: ComplexPair, y: ComplexPair) -> ComplexPair:
    """Divide by Smith's algorithm (Algorithm 116, 1962) as NumPy does; a divisor of 0 gives infinities and NaN.

    Operands for which a step would overflow or vanish are first scaled by a power of 2.
    """
    of_x, of_y = (e.emit("Max", *(r.magnitude(part) for part in pair)) for pair in (x, y))
    scale = _scale(e.emit("Max", of_x, of_y), e.emit("Min", of_x, of_y))
    (a, b), (c, d) = (tuple(r.mul(part, scale) for part in pair) for pair in (x, y))
    steep = e.emit("GreaterOrEqual", r.magnitude(c), r.magnitude(d), dtype=DType.bool)
    high, low = e.where(steep, c, d), e.where(steep, d, c)
    first, second = e.where(steep, a, b), e.where(steep, b, a)
    ratio = r.div(low, high)
    inverse = r.div(r.number(high, 1.0), r.add(high, r.mul(low, ratio)))
    real = r.mul(r.add(first, r.mul(second, ratio)), inverse)
    crossed = r.mul(first, ratio)
    imag = r.mul(e.where(steep, r.sub(second, crossed), r.sub(crossed, second)), inverse)
    is_zero = r.is_zero(high)
    is_zero = e.both(is_zero, steep)
    size = r.magnitude(y.real)
    return ComplexPair(e.where(is_zero, r.div(x.real, size), real), e.where(is_zero, r.div(x.imag, size), imag))


def _scale(largest: Symbol, smallest: Symbol) -> Symbol:
    """Return the power of 2 to scale by: 1 unless the magnitudes are extreme."""
    info = np.finfo(largest.dtype.numpy)
    bits = float(info.nmant + 8)
    is_small = e.less(smallest, r.number(smallest, 2.0 ** (info.minexp + bits)))
    up = e.where(is_small, r.number(smallest, 2.0**bits), r.number(smallest, 1.0))
    return e.where(r.above(largest, 2.0 ** (info.maxexp - bits - 2)), r.number(largest, 2.0**-bits), up)


def inverse(x: ComplexPair) -> ComplexPair:
    """Return 1 / x as NumPy computes it; the largest numbers are first scaled by a power of 2."""
    info = np.finfo(x.real.dtype.numpy)
    largest = e.emit("Max", *(r.magnitude(part) for part in x))
    one = r.number(largest, 1.0)
    scale = e.where(r.above(largest, 2.0 ** (info.maxexp - 3)), r.number(largest, 0.125), one)
    a, b = (r.mul(part, scale) for part in x)
    steep = e.emit("LessOrEqual", r.magnitude(b), r.magnitude(a), dtype=DType.bool)
    high, low = e.where(steep, a, b), e.where(steep, b, a)
    ratio = r.div(low, high)
    below = r.add(high, r.mul(low, ratio))
    one, other = r.div(scale, below), r.div(r.mul(ratio, scale), below)
    return ComplexPair(e.where(steep, one, other), r.neg(e.where(steep, other, one)))


def size(x: ComplexPair) -> Symbol:
    """Return the magnitude, which overflows only beyond the dtype; infinite if either part is."""
    if x.real.dtype is DType.float32:
        wide = [e.cast(part, DType.float64) for part in x]
        result = e.cast(r.sqrt(r.add(*(r.mul(part, part) for part in wide))), DType.float32)
        return _infinite_if_either(x, result)
    return _infinite_if_either(x, _hypot(x.real, x.imag))


def _infinite_if_either(x: ComplexPair, result: Symbol) -> Symbol:
    either = e.either(r.is_infinite(x.real), r.is_infinite(x.imag))
    return e.where(either, r.number(result, float("inf")), result)


def _hypot(x: Symbol, y: Symbol) -> Symbol:
    """Return the root of the sum of squares, by Borges' "An improved algorithm for hypot(a, b)" (2019), scaled."""
    x, y = r.magnitude(x), r.magnitude(y)
    swapped = e.less(x, y)
    x, y = e.where(swapped, y, x), e.where(swapped, x, y)
    large, small = r.above(x, 2.0**500), e.less(y, r.number(y, 2.0**-500))
    one = r.number(x, 1.0)
    scale = e.where(large, r.number(x, 2.0**-600), e.where(small, r.number(x, 2.0**600), one))
    # A small addend beside a number that would overflow when scaled is below its last place.
    apart = e.both(small, r.above(x, 2.0**-400))
    scale = e.where(apart, one, scale)
    a, b = r.mul(x, scale), r.mul(y, scale)
    h = r.sqrt(r.add(r.mul(a, a), r.mul(b, b)))
    near = r.sub(h, a)
    rest = r.add(
        r.mul(r.times(near, 2.0), r.sub(a, r.times(b, 2.0))),
        r.add(r.mul(r.sub(r.times(near, 4.0), b), b), r.mul(near, near)),
    )
    beside = r.sub(h, b)
    other = r.add(
        r.mul(a, r.sub(r.times(beside, 2.0), a)),
        r.mul(r.sub(beside, r.times(r.sub(a, b), 2.0)), beside),
    )
    error = e.where(e.greater(h, r.times(b, 2.0)), rest, other)
    step = r.div(error, r.times(h, 2.0))
    corrected = e.where(r.is_zero(h), h, r.sub(h, step))
    result = r.div(corrected, scale)
    return e.where(e.either(apart, r.is_zero(y)), r.add(x, y), result)


def angle(x: ComplexPair) -> Symbol:
    return r.atan2(x.imag, x.real)


def _add(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    result, *rest = operands(on, node)
    for other in rest:
        result = total(result, other)
    return (result,)


def _square(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    (x,) = operands(on, node)
    cross = r.mul(x.real, x.imag)
    return (ComplexPair(r.sub(r.mul(x.real, x.real), r.mul(x.imag, x.imag)), r.add(cross, cross)),)


def _neg(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    (x,) = operands(on, node)
    return (ComplexPair(r.neg(x.real), r.neg(x.imag)),)


def _conjugate(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    (x,) = operands(on, node)
    return (ComplexPair(x.real, r.neg(x.imag)),)


def _complex_of(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    real, imag = (on.of(s) for s in node.inputs if s is not None)
    shape = node.outputs[0].shape
    return (ComplexPair(*(_spread(part, other, shape) for part, other in ((real, imag), (imag, real)))),)


def _spread(part: Symbol, other: Symbol, shape: Shape) -> Symbol:
    """Expand a part to the shape that it and the other broadcast to."""
    if part.shape == shape and not part.shape.is_dynamic:
        return part
    return e.emit("Expand", part, r.shape_of(other), shape=shape)


def _sign(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    """Return z / |z|, and 0 for 0; the sign of one infinite part, NaN for two, as NumPy does."""
    (x,) = operands(on, node)
    info = np.finfo(x.real.dtype.numpy)
    largest = e.emit("Max", *(r.magnitude(part) for part in x))
    bits = float(info.nmant + 8)
    is_small = e.less(largest, r.number(largest, 2.0 ** (info.minexp + bits)))
    up = e.where(is_small, r.number(largest, 2.0**bits), r.number(largest, 1.0))
    scale = e.where(r.above(largest, 2.0 ** (info.maxexp - 3)), r.number(largest, 0.125), up)
    length = size(ComplexPair(*(r.mul(part, scale) for part in x)))
    is_zero = r.is_zero(length)
    unlimited = r.is_infinite(length)
    result = []
    for part in x:
        direction = e.where(r.is_infinite(part), e.emit("Sign", part), r.number(part, 0.0))
        result.append(
            e.where(is_zero, r.number(part, 0.0), e.where(unlimited, direction, r.div(r.mul(part, scale), length)))
        )
    unknown = e.both(r.is_infinite(x.real), r.is_infinite(x.imag))
    unknown = e.either(unknown, r.is_nan(length))
    nan = r.number(x.real, float("nan"))
    return (ComplexPair(*(e.where(unknown, nan, part) for part in result)),)


def _equal(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    x, y = operands(on, node)
    return (e.both(e.equal(x.real, y.real), e.equal(x.imag, y.imag)),)


def _not_equal(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    return (e.opposite(*_equal(on, node)),)  # type: ignore[arg-type]


def _is_nan(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    (x,) = operands(on, node)
    return (e.either(r.is_nan(x.real), r.is_nan(x.imag)),)


def _is_inf(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    (x,) = operands(on, node)
    return (e.either(r.is_infinite(x.real), r.is_infinite(x.imag)),)


def _is_finite(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    (x,) = operands(on, node)
    return (e.both(r.is_finite(x.real), r.is_finite(x.imag)),)


def _cast(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    (source,) = map(present, node.inputs)
    to = node.outputs[0].dtype
    if not to.is_complex:
        assert to.kind is Kind.bool
        x = on.pair(source)
        return (e.opposite(e.both(r.is_zero(x.real), r.is_zero(x.imag))),)
    if not holds_complex(source):
        return (from_real(e.cast(on.of(source), to.storage)),)
    return (ComplexPair(*(e.cast(part, to.storage) for part in on.pair(source))),)


RULES = {
    "Abs": lambda on, node: (size(operands(on, node)[0]),),
    "Add": _add,
    "Angle": lambda on, node: (angle(operands(on, node)[0]),),
    "Cast": _cast,
    "ComplexOf": _complex_of,
    "Conjugate": _conjugate,
    "Div": lambda on, node: (quotient(*operands(on, node)),),
    "Equal": _equal,
    "ImaginaryPart": lambda on, node: (operands(on, node)[0].imag,),
    "IsFinite": _is_finite,
    "IsInf": _is_inf,
    "IsNaN": _is_nan,
    "Mul": lambda on, node: (product(*operands(on, node)),),
    "Neg": _neg,
    "NotEqual": _not_equal,
    "RealPart": lambda on, node: (operands(on, node)[0].real,),
    "Reciprocal": lambda on, node: (inverse(*operands(on, node)),),
    "Sign": _sign,
    "Square": _square,
    "Sub": lambda on, node: (difference(*operands(on, node)),),
    "Sum": _add,
}
