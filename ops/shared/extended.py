"""Arithmetic of float64 beyond its precision: numbers as sums of two (pairs) or three, for results that cancel."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from graphcore.build import primitives as e
from graphcore.ir.definitions import body, finish
from graphcore.ir.symbol import Symbol
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

VECTOR = _shape([Dim.dynamic()])
_ROWS = _shape([Dim.dynamic(), Dim.dynamic()])
Pair: TypeAlias = "tuple[Symbol, Symbol]"


def where_any(condition: Symbol, values: Callable[..., Symbol], other: Symbol, *operands: Symbol) -> Symbol:
    """Return `values(*operands)` where the condition is True, else `other`, of one shape. The values are vectors.

    An If skips the computation where no element needs it.
    """
    graph = other.graph
    count = e.emit("ReduceSum", e.where_number(condition, 1.0, e.const(other, 0)), keepdims=0, shape=_shape([]))
    with body(graph, "near") as near:
        needed, result, *parts = [near.build.own(s, "If", "an operand") for s in (condition, other, *operands)]
        flat = e.ints(result, [-1])
        needed, everywhere, *parts = (e.emit("Reshape", s, flat, shape=VECTOR) for s in (needed, result, *parts))
        places = e.emit("Reshape", e.emit("NonZero", needed, dtype=DType.int64, shape=_ROWS), flat, shape=VECTOR)
        chosen = values(*[e.emit("Compress", s, needed, shape=VECTOR) for s in parts])
        everywhere = e.emit("ScatterElements", everywhere, places, chosen, shape=VECTOR, axis=0)
        sizes = e.emit("Shape", result, dtype=DType.int64, shape=VECTOR)
        finish(near, [e.emit("Reshape", everywhere, sizes, shape=other.shape, allowzero=1)])
    with body(graph, "far") as far:
        finish(far, [other])
    branches = {"then_branch": near, "else_branch": far}
    return graph.build.emit_many("If", (e.greater(count, e.const(other, 0)),), [other.type], branches)[0]


def rows(table: Sequence[Any], place: Symbol) -> list[Symbol]:
    """Return the numbers at these places of each row."""
    constants = [place.graph.build.constant(row, DType.float64) for row in table]
    # GatherElements is faster than Gather.
    return [e.emit("GatherElements", row, place, dtype=DType.float64, shape=VECTOR, axis=0) for row in constants]


def total(*terms: Symbol) -> tuple[Symbol, Symbol, Symbol]:
    """Return the sum of terms in three parts, of which the first two do not cancel."""
    high, middle, low = terms[0], e.const(terms[0], 0), e.const(terms[0], 0)
    for term in terms[1:]:
        high, lost = e.sum_of(high, term)
        middle, lost = e.sum_of(middle, lost)
        low = e.add(low, lost)
    return *e.sum_of(high, middle), low


def product(x: Pair, y: Pair) -> Pair:
    """Return the product of two pairs."""
    high, low = e.product_of(x[0], y[0])
    return high, e.add(low, e.add(e.mul(x[0], y[1]), e.mul(x[1], y[0])))


def quotient(x: Pair, y: Pair) -> Pair:
    """Return x / y."""
    high = e.emit("Div", x[0], y[0])
    near, lost = e.product_of(high, y[0])
    rest = e.sub(e.add(e.sub(e.sub(x[0], near), lost), x[1]), e.mul(high, y[1]))
    return high, e.emit("Div", rest, y[0])


def polynomial(x: Pair, coefficients: Sequence[Fraction]) -> Pair:
    """Evaluate a polynomial of a pair by Horner's rule: coefficients with the highest power first."""
    build = x[0].graph.build
    high = np.array([float(c) for c in coefficients])
    low = np.array([float(c - Fraction(h)) for c, h in zip(coefficients, high.tolist(), strict=True)])
    zero = e.mul(x[0], 0.0)
    scalar, vector = e.const(zero, 0).type, zero.type
    with body(zero.graph, "horner", [vector, vector, scalar, scalar]) as step:
        high_sum, low_sum, c, rest = step.inputs
        factor = step.build.own(x[0], "Scan", "x"), step.build.own(x[1], "Scan", "x")
        result, lost = product((high_sum, low_sum), factor)
        result, wrong = e.sum_of(result, c)
        finish(step, e.sum_of(result, e.add(e.add(wrong, lost), rest)))
    operands = (zero, zero, build.constant(high, DType.float64), build.constant(low, DType.float64))
    first, second = build.emit_many("Scan", operands, [vector, vector], {"body": step, "num_scan_inputs": 2})
    return first, second


# log(2) in three parts, whose products with whole numbers up to 1074 are exact, but for the last one.
_LOG_2 = 0.6931471805598903, 5.49792301870721e-14, 1.1612227229362532e-26


@functools.cache
def _tables() -> tuple[Any, list[Any]]:
    """Return the powers of 1 / 2; and numbers of 12 bits near e^(i / 64), with their logarithms in three parts."""
    with localcontext() as context:
        context.prec = 60
        table = [[math.floor(math.exp(i / 64) * 4096) / 4096] for i in range(-24, 25)]
        for row in table:
            rest = Decimal(row[0]).ln()
            for _ in range(3):
                row.append(float(rest))
                rest -= Decimal(row[-1])
    return np.exp2(-np.arange(1075.0)), list(np.array(table).T.copy())


def near_exp(x: Symbol) -> tuple[Symbol, Symbol, tuple[Symbol, Symbol, Symbol]]:
    """Return, for x from -744 to 0, factors of a number near e^x (12 bits, a power of 2), and x less its logarithm."""
    powers, table = _tables()
    k = e.emit("Round", e.mul(x, -1 / math.log(2)))
    rest = e.add(x, e.mul(k, _LOG_2[0]))
    place = e.cast_within(e.add(e.emit("Round", e.mul(rest, 64.0)), 24.0), DType.int32)
    number, high, middle, low = rows(table, place)
    (power,) = rows([powers], e.cast_within(k, DType.int32))
    terms = e.sub(rest, high), e.mul(k, _LOG_2[1]), e.emit("Neg", middle), e.sub(e.mul(k, _LOG_2[2]), low)
    return number, power, total(*terms)
