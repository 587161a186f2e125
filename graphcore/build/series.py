"""Arithmetic of Symbols and numbers, and polynomials, of which functions in float64 are made."""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol


def add(x: Symbol, y: Symbol | float) -> Symbol:
    """Return x + y."""
    return e.emit("Add", x, number(x, y))


def sub(x: Symbol, y: Symbol | float) -> Symbol:
    """Return x - y."""
    return e.emit("Sub", x, number(x, y))


def mul(x: Symbol, y: Symbol | float) -> Symbol:
    """Return x * y."""
    return e.emit("Mul", x, number(x, y))


def div(x: Symbol | float, y: Symbol) -> Symbol:
    """Return x / y."""
    return e.emit("Div", number(y, x), y)


def number(like: Symbol, value: Symbol | float) -> Symbol:
    """Return a value as it is, or a number as a constant of the dtype of `like`."""
    return value if isinstance(value, Symbol) else e.const(like, value)


def where(condition: Symbol, x: Symbol | float, y: Symbol | float) -> Symbol:
    """Return x where the condition holds, and y elsewhere; one of both is a Symbol."""
    like = x if isinstance(x, Symbol) else y
    assert isinstance(like, Symbol)
    return e.where(condition, number(like, x), number(like, y))


def below(x: Symbol, bound: float) -> Symbol:
    """Return where x is less than a number."""
    return e.less(x, e.const(x, bound))


def equals(x: Symbol, value: float) -> Symbol:
    """Return where x is a number."""
    return e.equal(x, e.const(x, value))


def polynomial(x: Symbol, coefficients: Sequence[float]) -> Symbol:
    """Return the polynomial by Horner's rule."""
    made = add(mul(x, coefficients[0]), coefficients[1])
    for coefficient in coefficients[2:]:
        made = add(mul(made, x), coefficient)
    return made


def ratio(x: Symbol, k: float) -> Symbol:
    """Return (x - k) / (x + k)."""
    return e.emit("Div", sub(x, k), add(x, k))


def upper(x: Symbol) -> Symbol:
    """Return the upper 26 bits of a float64, whose square is exact (Veltkamp's splitting)."""
    spread = mul(x, 134217729.0)
    return e.emit("Sub", spread, e.emit("Sub", spread, x))


def square(x: Symbol) -> Symbol:
    """Return x * x."""
    return e.emit("Mul", x, x)


def at_most(x: Symbol, bound: float) -> Symbol:
    """Return x, or a bound where that is less."""
    return e.emit("Min", x, e.const(x, bound))


def at_least(x: Symbol, bound: float) -> Symbol:
    """Return x, or a bound where that is greater."""
    return e.emit("Max", x, e.const(x, bound))
