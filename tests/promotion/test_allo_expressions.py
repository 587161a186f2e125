"""Random expressions of Allo's two styles: each type and each value against Python's integers.

The rules are stated here once more, from the publication: a type is a sign and a width, a value an array of Python
ints.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError
from graphcore.promotion import system
from tests.support.graphs import Array

pytestmark = pytest.mark.filterwarnings("ignore::graphcore.errors.LossyCastWarning")


class T(NamedTuple):
    """An integer type."""

    signed: bool
    bits: int

    @property
    def dtype(self) -> DType:
        if self == (False, 1):
            return DType.bool
        return DType.int(self.bits) if self.signed else DType.uint(self.bits)

    @property
    def least(self) -> int:
        return -(1 << self.bits - 1) if self.signed else 0

    @property
    def greatest(self) -> int:
        return (1 << self.bits - self.signed) - 1

    def wrap(self, value: int) -> int:
        low = value % (1 << self.bits)
        return low - (1 << self.bits) if self.signed and low >> self.bits - 1 else low


TRUTH = T(False, 1)


@dataclass
class Value:
    """The result of a step, and the terms of its Symbol as long as only the same operator has used it."""

    type: T
    numbers: Array
    symbol: Symbol
    operator: str = ""
    terms: tuple[tuple[T | None, Array, bool], ...] = ()
    """Type (None for a Python number), numbers and whether subtracted."""


def each(function: Callable[..., int], *arrays: Array) -> Array:
    return np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), object)


@dataclass
class Rules:
    """The types and values of a style."""

    style: str
    revision: str

    def common(self, x: T, y: T) -> T:
        if x.signed == y.signed:
            return T(x.signed, max(x.bits, y.bits))
        signed, unsigned = (x.bits, y.bits) if x.signed else (y.bits, x.bits)
        if self.style == "hls" and self.revision == "latest":
            return T(True, max(signed, unsigned + 1))
        return T(False, unsigned) if unsigned >= signed else T(True, signed)

    def sum_type(self, terms: Sequence[tuple[T, bool]]) -> T:
        signed = any(t.signed or minus for t, minus in terms)
        widest = max(t.bits + (1 if signed and not t.signed else 0) for t, _ in terms)
        return T(signed, widest + math.ceil(math.log2(len(terms))))

    def product_type(self, types: Sequence[T]) -> T:
        return T(any(t.signed for t in types), sum(t.bits for t in types))


def divided(x: int, y: int) -> int:
    return 0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def raised(x: int, y: int, bits: int) -> int:
    """The power modulo 2^bits; the quotient truncated to zero where the exponent is negative."""
    if y < 0:
        return {1: 1, -1: -1 if y % 2 else 1}.get(x, 0)
    return pow(x, y, 1 << bits)


def shifted(x: int, count: int, bits: int, remaining: bool) -> int:
    if not 0 <= count < bits:
        return 0 if remaining or x >= 0 else -1
    return x << count if remaining else x >> count


BITWISE = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
COMPARISONS = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
DIVISIONS: dict[str, Callable[[int, int], int]] = {
    "/": divided,
    "//": lambda x, y: x // y if y else 0,
    "%": lambda x, y: x % y if y else 0,
}
PYTHON: dict[str, Callable[..., Any]] = {
    **BITWISE, **COMPARISONS, "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "<<": operator.lshift, ">>": operator.rshift,
    "max": ops.maximum, "min": ops.minimum, "logical and": ops.logical_and, "logical or": ops.logical_or,
    "**": operator.pow,
    "neg": operator.neg, "invert": operator.invert, "abs": abs, "pos": operator.pos, "logical not": ops.logical_not,
}  # fmt: skip
SUMS = ("+", "-", "*")
TWO = (
    *SUMS,
    *SUMS,
    *SUMS,
    *BITWISE,
    *COMPARISONS,
    *DIVISIONS,
    "<<",
    ">>",
    "**",
    "max",
    "min",
    "logical and",
    "logical or",
)
ONE = ("neg", "invert", "abs", "pos", "logical not", "cast", "power", "number", "where")
WIDEST = 200


class Expressions:
    """Builds a graph and evaluates it beside."""

    def __init__(self, style: str, revision: str, draw: random.Random) -> None:
        self.rules = Rules(style, revision)
        self.draw = draw
        self.wide = draw.random() < 0.5  # such that sums and products pass 64 bits
        self.values: list[Value] = []
        self.arrays: list[Array] = []
        types: dict[str, TensorType] = {}
        results: list[tuple[T, Array]] = []
        for i in range(draw.randint(1, 4)):
            bits = [draw.randint(25, 60)] if self.wide else [1, 2, 4, 7, 8, draw.randint(1, 40), draw.randint(1, 40)]
            t = T(draw.random() < 0.5, draw.choice(bits))
            dims: list[str | int] = draw.choice([["n"], ["n"], ["n"], [1], []])
            shape = [5 if d == "n" else 1 for d in dims]
            numbers = np.array([self.number(t) for _ in range(math.prod(shape))], object).reshape(shape)
            types[f"x{i}"] = TensorType(t.dtype, dims)
            results.append((t, numbers))
            self.arrays.append(numbers.astype(np.int64).astype(t.dtype.numpy))
        self.graph = Graph("drawn", types, promotion=system(f"allo_{style}", revision=revision))
        for symbol, (t, numbers) in zip(self.graph.inputs, results, strict=True):
            self.values.append(Value(t, numbers, symbol))

    def number(self, t: T) -> int:
        near = [t.least, t.greatest, 0, 1, -1, t.greatest // 2, t.greatest - 1]
        value = self.draw.choice([*near, *[self.draw.randint(t.least, t.greatest)] * 6])
        return value if t.least <= value <= t.greatest else t.greatest

    def value(self) -> Value:
        return self.values[-1] if self.draw.random() < 0.5 else self.draw.choice(self.values)

    def step(self) -> None:
        if self.wide and self.draw.random() < 0.3:
            self.two("*", self.value(), self.value())
        elif self.draw.random() < 0.3:
            self.one(self.draw.choice(ONE))
        else:
            self.two(self.draw.choice(TWO), self.value(), self.value())

    def record(self, type_: T, numbers: Array, symbol: Symbol, *read: Value) -> None:
        for value in read:
            value.operator, value.terms = "", ()
        assert symbol.dtype is type_.dtype
        self.values.append(Value(type_, numbers, symbol))

    def one(self, op: str) -> None:
        x = self.value()
        t = x.type
        if op == "pos":  # gives the Symbol itself
            assert PYTHON[op](x.symbol) is x.symbol
        elif op == "neg":
            grown = T(True, t.bits + 1) if self.rules.style == "hls" else t
            self.record(grown, each(lambda a: grown.wrap(-a), x.numbers), -x.symbol, x)
        elif op == "invert":
            self.record(t, each(lambda a: t.wrap(~a), x.numbers), ~x.symbol, x)
        elif op == "abs":
            if t.signed:
                self.record(t, each(lambda a: t.wrap(abs(a)), x.numbers), abs(x.symbol), x)
        elif op == "logical not":
            self.record(TRUTH, each(lambda a: int(not a), x.numbers), PYTHON[op](x.symbol), x)
        elif op == "cast":
            to = T(self.draw.random() < 0.5, self.draw.choice([8, 16, 33, 64, 65, self.draw.randint(1, 90)]))
            numbers = each(lambda a: int(a != 0) if to == TRUTH else to.wrap(a), x.numbers)
            self.record(to, numbers, x.symbol.cast(to.dtype), x)
        elif op == "power":
            power = self.draw.randint(0, min(5, t.greatest))
            self.record(t, each(lambda a: t.wrap(a**power), x.numbers), x.symbol**power, x)
        elif op == "number":
            self.with_number(self.draw.choice(SUMS), x)
        else:
            self.where(x)

    def where(self, x: Value) -> None:
        condition, other = self.value(), self.value()
        truth = condition.symbol if condition.type == TRUTH else condition.symbol.cast(DType.bool)
        to = x.type
        numbers = each(
            lambda c, a, b: a if c else int(b != 0) if to == TRUTH else to.wrap(b),
            condition.numbers, x.numbers, other.numbers,
        )  # fmt: skip
        symbol = ops.where(truth, x.symbol, other.symbol.cast(to.dtype))
        self.record(to, numbers, symbol, condition, x, other)

    def with_number(self, op: str, x: Value) -> None:
        """A Python number on either side of a sum or product; it takes the type of the first typed term."""
        is_left = self.draw.random() < 0.5
        anchor = next((t for t, _, _ in x.terms if t is not None), x.type) if self.joins(op, x) else x.type
        number = self.number(anchor)
        symbol = PYTHON[op](number, x.symbol) if is_left else PYTHON[op](x.symbol, number)
        plain = Value(anchor, each(lambda a: number, np.zeros((), object)), x.symbol)
        terms = ((None, plain.numbers, False),)
        self.combine(op, (plain, x) if is_left else (x, plain), symbol, terms, is_left)

    @staticmethod
    def joins(op: str, value: Value) -> bool:
        return value.operator == ("*" if op == "*" else "+") and bool(value.terms)

    def parts(self, op: str, value: Value) -> tuple[tuple[T | None, Array, bool], ...]:
        return value.terms if self.joins(op, value) else ((value.type, value.numbers, False),)

    def two(self, op: str, x: Value, y: Value) -> None:
        if op in SUMS:
            self.summed(op, x, y)
            return
        common = self.rules.common(x.type, y.type)
        if op in DIVISIONS and common.bits > 1000:
            return  # nothing divides such wide integers by others than these
        if op in ("<<", ">>"):
            t = x.type
            numbers = each(lambda a, c: t.wrap(shifted(a, c, t.bits, op == "<<")), x.numbers, y.numbers)
            self.record(t, numbers, PYTHON[op](x.symbol, y.symbol), x, y)
            return
        a, b = each(common.wrap, x.numbers), each(common.wrap, y.numbers)
        if op.startswith("logical"):
            choose = all if op == "logical and" else any
            numbers, common = each(lambda p, q: int(choose([p, q])), x.numbers, y.numbers), TRUTH
        elif op in COMPARISONS:
            numbers, common = each(lambda p, q: int(COMPARISONS[op](p, q)), a, b), TRUTH
        elif op in BITWISE:
            numbers = each(BITWISE[op], a, b)
        elif op == "**":
            power = common
            numbers = each(lambda p, q: power.wrap(raised(p, q, power.bits)), a, b)
        elif op in DIVISIONS:
            whole = common
            numbers = each(lambda p, q: whole.wrap(DIVISIONS[op](p, q)), a, b)
        else:
            numbers = each(max if op == "max" else min, a, b)
        self.record(common, numbers, PYTHON[op](x.symbol, y.symbol), x, y)

    def summed(self, op: str, x: Value, y: Value) -> None:
        terms = [*self.parts(op, x), *self.parts(op, y)]
        anchor = next(t for t, _, _ in terms if t is not None)
        if not all(anchor.least <= n.item() <= anchor.greatest for t, n, _ in terms if t is None):
            with pytest.raises(DTypeError, match="cannot be held in"):
                PYTHON[op](x.symbol, y.symbol)
        elif self.grown(op, terms).bits <= WIDEST:
            self.combine(op, (x, y), PYTHON[op](x.symbol, y.symbol))

    def grown(self, op: str, terms: Sequence[tuple[T | None, Array, bool]]) -> T:
        anchor = next(t for t, _, _ in terms if t is not None)
        types = [t or anchor for t, _, _ in terms]
        if op == "*":
            return self.rules.product_type(types)
        return self.rules.sum_type([(t, minus) for t, (_, _, minus) in zip(types, terms, strict=True)])

    def combine(
        self,
        op: str,
        sides: tuple[Value, Value],
        symbol: Symbol,
        number: tuple[tuple[T | None, Array, bool], ...] | None = None,
        is_left: bool = False,
    ) -> None:
        """A sum or product: of all terms under hls, of the pair under cpp."""
        x, y = sides
        if self.rules.style == "cpp":
            t = self.rules.common(x.type, y.type)
            apply = PYTHON[op]
            numbers = each(lambda a, b: t.wrap(apply(t.wrap(a), t.wrap(b))), x.numbers, y.numbers)
            self.record(t, numbers, symbol)
            return
        left = number if number is not None and is_left else self.parts(op, x)
        right = number if number is not None and not is_left else self.parts(op, y)
        terms = (*left, *((t, n, minus != (op == "-")) for t, n, minus in right))
        for value in sides:
            if not self.joins(op, value):
                value.operator, value.terms = "", ()
        t = self.grown(op, terms)
        total = terms[0][1] * (-1 if terms[0][2] else 1)
        for _, numbers, minus in terms[1:]:
            total = total * numbers if op == "*" else total - numbers if minus else total + numbers
        total = np.asarray(total, object)
        assert all(t.least <= v <= t.greatest for v in total.ravel()), "a sum or product of hls never wraps"
        self.record(t, total, symbol)
        self.values[-1].operator = "*" if op == "*" else "+"
        self.values[-1].terms = terms

    def run(self, outputs: Sequence[Value], *, check: bool) -> None:
        self.graph.output(*(v.symbol for v in outputs))
        if check:
            for target in ("onnx", "cpu"):
                onnx.checker.check_model(self.graph.to_onnx(target=target), full_check=True)
        results = gc.InferenceSession().load(self.graph).execute(*self.arrays, wide="object")
        for value, result in zip(outputs, results, strict=True):
            match = result if result.dtype == object else result.astype(np.int64).astype(object)
            if value.type.bits == 64 and not value.type.signed:
                match = result.astype(object)
            assert match.shape == value.numbers.shape, f"{value.symbol}\n{self.graph}"
            assert (match == value.numbers).all(), f"{value.symbol}: {match} {value.numbers}\n{self.graph}"


def check_drawn(style: str, revision: str, seed: int, operators: int) -> None:
    draw = random.Random(seed)
    drawn = Expressions(style, revision, draw)
    for _ in range(operators):
        drawn.step()
    result = drawn.values[len(drawn.arrays) :]
    if not result:
        return
    # All of them, or the last one alone, of which often only the low bits are used.
    if draw.random() < 0.5:
        outputs = result[-12:]
    elif draw.random() < 0.5:
        outputs = result[-1:]
    else:
        last = result[-1]
        to = T(True, draw.choice([8, 20, 64]))
        drawn.record(to, each(to.wrap, last.numbers), last.symbol.cast(to.dtype), last)
        outputs = drawn.values[-1:]
    drawn.run(outputs, check=draw.random() < 0.2)


SYSTEMS = [("hls", "seed"), ("hls", "latest"), ("cpp", "seed")]


@pytest.mark.parametrize(("style", "revision"), SYSTEMS)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), operators=st.integers(1, 12))
def test_expression_is_typed_and_computed_as_with_python_integers(
    style: str, revision: str, seed: int, operators: int
) -> None:
    check_drawn(style, revision, seed, operators)


@pytest.mark.parametrize("first", range(0, 400, 25))
@pytest.mark.parametrize(("style", "revision"), SYSTEMS)
def test_many_expressions_are_typed_and_computed_as_with_python_integers(style: str, revision: str, first: int) -> None:
    for seed in range(first, first + 25):
        check_drawn(style, revision, seed, 1 + seed % 12)
