"""anvil's own tests (github.com/r-xla/anvil, tests/testthat/ at ef9f93a), check by check: promotion and ambiguity.

Those of its files are counted that are of types: test-promotion-rules.R, test-promotion.R, test-literals.R,
test-ambiguity.R and test-autoconvert.R. A check that a helper of the suite repeats counts once a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType
from graphcore import ops as functions
from graphcore.promotion import common_dtype

D = DType
ops: Any = functions

# test-promotion-rules.R: two dtypes, whether each is ambiguous, what they meet in, and whether that is ambiguous.
TWO = """
    i32  ?  i32  ?  i32  ?
    i32  ?  f32  ?  f32  ?
    f32  ?  i32  -  f32  ?
    i32  ?  f32  -  f32  -
    i32  ?  i32  -  i32  -
    f32  -  i32  -  f32  -
    f32  -  f64  -  f64  -
    ui32 -  i32  -  i64  -
"""
KNOWN = """
    f64 f64 f64, i32 i32 i32, bool bool bool, f64 f32 f64, f64 i32 f64, f32 i32 f32, f32 bool f32, i32 i16 i32,
    i64 i32 i64, i64 i16 i64, i64 bool i64, i32 ui8 i32, i32 ui32 i64, i64 ui64 i64, ui64 ui32 ui64
"""
AMBIGUOUS = "i32 i32 i32, f32 f32 f32, bool bool bool, i32 f32 f32, bool f32 f32, bool i32 i32"
WITH_KNOWN = """
    i32 i32 i32, bool bool bool, f32 f32 f32, i32 i8 i8, i32 i64 i64, i32 bool i32, i64 f32 f32, f32 f64 f64,
    f64 f32 f32, f32 i32 f32, bool f32 f32, bool i32 i32
"""
SEVERAL = [("i32 f32 f64", "f64"), ("f64 f32 i32", "f64"), ("i32 i32 i32", "i32"), ("i32? i64", "i64")]
"""More than two; each is two checks, of the dtype and of the flag."""

NOT_STATED = {
    "promotion-rules: no dtypes at all": (1, "an op of no operands cannot be written"),
    "promotion: prim_convert reverse": (1, "there are no gradients"),
    "literals: in a gradient": (1, "there are no gradients"),
    "ambiguity: print with a question mark": (0, "the vignette prints none; the repr of a Tensor has it"),
    "ambiguity: of abstract arrays": (2, "a TensorType says it: TensorType('float32', [], ambiguous=True).ambiguous"),
    "autoconvert: matrices and arrays of R are ambiguous": (3, "R's have no dtype; NumPy's have, and are known"),
    "autoconvert: bare vectors, text and paths in errors": (
        7,
        "R's vectors are not arrays; text is refused here too",
    ),
    "autoconvert: static arguments": (2, "a Python value that decides what is built is an argument of the builder"),
    "autoconvert: xla, quickr, nested jit and jit_eval": (17, "other compilers of anvil's; one runtime computes here"),
}
"""Checks that cannot be stated: how many, and why."""

Build = Callable[[Any], Any]


def triples(text: str) -> list[tuple[str, str, str]]:
    words = [row.split() for row in text.replace("\n", " ").split(",")]
    return [(a, b, c) for a, b, c in words]


def tensor(value: Any, dtype: str | None = None, *, ambiguous: bool = False) -> Any:
    return gc.tensor(value, dtype, promotion="anvil", ambiguous=ambiguous)


def shown(result: Any) -> str:
    """A result as its type, with a question mark if ambiguous, and its values."""
    return f"{result.type} {np.asarray(result).tolist()}"


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return gc.jit(function, promotion="anvil")


@pytest.mark.parametrize("row", TWO.strip().splitlines())
def test_two_types_meet_as_in_the_suite(row: str) -> None:
    left, flag, right, other, wanted, result = row.split()
    flags = flag == "?", other == "?"
    assert common_dtype(left, right, *flags) == (DType.of(wanted), result == "?")
    assert common_dtype(right, left, *flags[::-1])[0] is DType.of(wanted)


@pytest.mark.parametrize(("left", "right", "wanted"), triples(KNOWN))
def test_known_types_meet_as_in_the_suite(left: str, right: str, wanted: str) -> None:
    assert common_dtype(left, right) == common_dtype(right, left) == (DType.of(wanted), False)


@pytest.mark.parametrize(("left", "right", "wanted"), triples(AMBIGUOUS))
def test_ambiguous_types_meet_as_in_the_suite(left: str, right: str, wanted: str) -> None:
    assert common_dtype(left, right, True, True) == common_dtype(right, left, True, True) == (DType.of(wanted), True)


@pytest.mark.parametrize(("left", "right", "wanted"), triples(WITH_KNOWN))
def test_ambiguous_type_meets_a_known_one_as_in_the_suite(left: str, right: str, wanted: str) -> None:
    assert common_dtype(left, right, True, False)[0] is common_dtype(right, left, False, True)[0] is DType.of(wanted)


@pytest.mark.parametrize(("value", "wanted"), SEVERAL)
def test_several_types_meet_as_in_the_suite(value: str, wanted: str) -> None:
    names = value.split()
    types = [TensorType(DType.of(n.rstrip("?")), [], ambiguous=n.endswith("?")) for n in names]
    total, *rest = Graph("several", types, promotion="anvil").inputs
    for symbol in rest:
        total = total + symbol
    assert (total.dtype, total.type.ambiguous) == (DType.of(wanted), False)


@pytest.mark.parametrize("ambiguous", [False, True])
def test_one_type_stays_what_it_is(ambiguous: bool) -> None:
    for name in ("int32", "float32"):
        (x,) = Graph("one", [TensorType(name, [2], ambiguous=ambiguous)], promotion="anvil").inputs
        y = ops.positive(x)
        assert (y.dtype.name, y.type.ambiguous) == (name, ambiguous)


CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    # test-promotion.R
    "a product with 1L is known beside an i16": (
        lambda x, y: (x * 1) + y,
        (tensor(True), tensor(2, "i16")),
        "int16[] 3",
    ),
    "a negated 1L gives way to an i16": (
        lambda x: ops.negate(ops.constant(1, ambiguous=True)) + x,
        (tensor(2, "i16"),),
        "int16[] 1",
    ),
    "a condition passes ambiguity on": (
        lambda p, x: ops.cond(p, lambda: x * 2, lambda: (x * 2) * (x * 2)) * ops.constant(3, "int16"),
        (tensor(True), tensor(True)),
        "int16[] 6",
    ),
    "a loop passes ambiguity on": (
        lambda n: (
            ops.while_loop(lambda i: i <= n, lambda i: (i + 1,), (0 * ops.constant(True),))[0]
            * ops.constant(3, "int16")
        ),
        (tensor(10),),
        "int16[] 33",
    ),
    "a logical literal is known": (lambda x: x * True, (tensor(1),), "int32[] 1"),
    # test-literals.R
    "2L becomes an i16": (lambda x: x * 2, (tensor(1, "i16"),), "int16[] 2"),
    "2 times 3": (lambda: ops.mul(2.0, 3.0), (), "float32?[] 6.0"),
    "2 times 3L": (lambda: ops.mul(2.0, 3), (), "float32?[] 6.0"),
    "2 becomes an f64": (lambda x: ops.mul(2.0, x), (tensor(3, "f64"),), "float64[] 6.0"),
    "1 alone": (lambda: 1.0, (), "float32?[] 1.0"),
    "an f32 times 2": (lambda x: x * 2.0, (tensor(1.0),), "float32[] 2.0"),
    "2 plus an f32": (lambda x: 2.0 + x, (tensor(1.0),), "float32[] 3.0"),
    "an i32 times 2L": (lambda x: x * 2, (tensor(1),), "int32[] 2"),
    "TRUE equals TRUE": (lambda x: x == True, (tensor(True),), "bool[] True"),  # noqa: E712 - the literal is meant
    "FALSE does not": (lambda x: x == True, (tensor(False),), "bool[] False"),  # noqa: E712
    # test-ambiguity.R
    "two ambiguous ones": (
        lambda x, y: x + y,
        (tensor(1.0, ambiguous=True), tensor(2.0, ambiguous=True)),
        "float32?[] 3.0",
    ),
    "one known and one ambiguous": (
        lambda x, y: x + y,
        (tensor(1.0, "f32"), tensor(2.0, ambiguous=True)),
        "float32[] 3.0",
    ),
    "two known ones": (lambda x, y: x + y, (tensor(1.0, "f32"), tensor(2.0, "f32")), "float32[] 3.0"),
    "an ambiguous one negated": (lambda x: -x, (tensor(1.0, ambiguous=True),), "float32?[] -1.0"),
    "a known one negated": (lambda x: -x, (tensor(1.0, "f32"),), "float32[] -1.0"),
    "an ambiguous one with a constant": (
        lambda x: x + ops.constant(10.0, "f32"),
        (tensor(1.0, ambiguous=True),),
        "float32[] 11.0",
    ),
    "a known one with a constant": (lambda x: x + ops.constant(10.0, "f32"), (tensor(1.0, "f32"),), "float32[] 11.0"),
    "any of ambiguous bools": (
        lambda x: ops.any(x, axis=0),
        (tensor([True, False], ambiguous=True),),
        "bool[] True",
    ),
    "all of ambiguous bools": (
        lambda x: ops.all(x, axis=0),
        (tensor([True, False], ambiguous=True),),
        "bool[] False",
    ),
    # test-autoconvert.R
    "a double as an argument": (lambda x: x, (1.0,), "float32?[] 1.0"),
    "a double as an argument plus 1": (lambda x: x + 1.0, (1.0,), "float32?[] 2.0"),
    "an integer as an argument": (lambda x: x, (1,), "int32?[] 1"),
    "a logical as an argument": (lambda x: x, (True,), "bool?[] True"),
    "a double beside an f64": (lambda x, y: x + y, (1.0, tensor(2, "f64")), "float64[] 3.0"),
    "a list of doubles": (lambda pair: pair[0] + pair[1], ([1.0, 2.0],), "float32?[] 3.0"),
}


@pytest.mark.parametrize("name", CALLS)
def test_call_gives_what_the_suite_says(name: str) -> None:
    function, arguments, wanted = CALLS[name]
    assert shown(compiled(function)(*arguments)) == wanted


VALUES = {
    "a double": (tensor(1.0), "float32[] 1.0"),
    "an integer": (tensor(1), "int32[] 1"),
    "a logical": (tensor(True), "bool[] True"),
    "a double said to be an f32": (tensor(1.0, "f32"), "float32[] 1.0"),
    "an integer said to be an i32": (tensor(1, "i32"), "int32[] 1"),
    "a double said to be an f64": (tensor(1.0, "f64"), "float64[] 1.0"),
    "several integers": (tensor([1, 2]), "int32[2] [1, 2]"),
    "several doubles": (tensor([1.0, 2.0]), "float32[2] [1.0, 2.0]"),
    "a double said to be ambiguous": (tensor(1.0, ambiguous=True), "float32?[] 1.0"),
}
"""test-ambiguity.R: what is made of a value is known unless it is said to be ambiguous."""


@pytest.mark.parametrize("name", VALUES)
def test_value_is_known_unless_it_is_said_to_be_ambiguous(name: str) -> None:
    result, wanted = VALUES[name]
    assert shown(result) == wanted
    assert ("?" in repr(result)) is ("?" in wanted)


def test_counts_are_those_of_the_page() -> None:
    rules = len(TWO.strip().splitlines()) + sum(map(len, map(triples, (KNOWN, AMBIGUOUS, WITH_KNOWN))))
    assert rules + 2 * len(SEVERAL) + 4 == 53, "of 54 in test-promotion-rules.R"
    assert len(CALLS) + len(VALUES) == 39
    assert sum(count for count, _ in NOT_STATED.values()) == 34
