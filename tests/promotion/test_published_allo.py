"""Allo's operators against a statement of its rules that stands here alone: all classes, styles, revisions and types.

The rules are those of Allo's document "Type promotion rules". A type is written as Allo writes it: `i23`, `u17`,
`f16`, `bf16`, `index`; the unsigned integer of one bit is bool.
"""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from graphcore import DType, Graph, Symbol, TensorType, implicit_cast_type, ops
from graphcore.errors import LossyCastWarning, PromotionError
from graphcore.promotion import system

OPERATORS = {
    kind: names.split()
    for kind, names in json.loads((Path(__file__).parents[1] / "data" / "promotion" / "allo.json").read_text())[
        "operators"
    ].items()
}
INTEGERS = ["i1", "i7", "i8", "i23", "i32", "i33", "i64", "i96", "u1", "u8", "u17", "u32", "u33", "u64", "u100"]
FLOATS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
TYPES = [*INTEGERS, *FLOATS, "index"]
STYLES = [(style, revision) for style in ("hls", "cpp") for revision in ("seed", "latest")]

PYTHON: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "div": lambda x, y: x / y,
    "floordiv": lambda x, y: x // y, "mod": lambda x, y: x % y, "pow": lambda x, y: x**y,
    "max": ops.maximum, "min": ops.minimum,
    "eq": ops.equal, "ne": ops.not_equal, "lt": lambda x, y: x < y, "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y,
    "bitwise_and": lambda x, y: x & y, "bitwise_or": lambda x, y: x | y, "bitwise_xor": lambda x, y: x ^ y,
    "lshift": lambda x, y: x << y, "rshift": lambda x, y: x >> y,
    "neg": lambda x: -x, "invert": lambda x: ~x, "pos": lambda x: +x, "abs": ops.abs,
    "logical_and": ops.logical_and, "logical_or": ops.logical_or, "logical_not": ops.logical_not,
    **{name: getattr(ops, name) for name in OPERATORS["special"]},
}  # fmt: skip
NAMES = {
    "floordiv": "floor_div", "max": "maximum", "min": "minimum", "eq": "equal", "ne": "not_equal", "lt": "less",
    "le": "less_equal", "gt": "greater", "ge": "greater_equal", "lshift": "left_shift", "rshift": "right_shift",
    "neg": "negate", "invert": "bitwise_not", "pos": "positive",
}  # fmt: skip
"""The library's names of ops that Allo calls otherwise."""
BINARY = [
    op for kind in ("sums", "common", "comparisons", "power", "shifts", "bitwise", "logical")
    for op in OPERATORS[kind]
]  # fmt: skip
UNARY = [*OPERATORS["unary"], *OPERATORS["special"]]


# The rules


def bits(t: str) -> int:
    return int(t[1:])


def is_integer(t: str) -> bool:
    return t[0] in "iu" and t != "index"


def common_integer(a: str, b: str, style: str, revision: str) -> str | None:
    if not (is_integer(a) and is_integer(b)):
        return None
    if a[0] == b[0]:
        return f"{a[0]}{max(bits(a), bits(b))}"
    signed, unsigned = (bits(a), bits(b)) if a[0] == "i" else (bits(b), bits(a))
    if style == "hls" and revision == "latest":
        return f"i{max(signed, unsigned + 1)}"
    return f"u{unsigned}" if unsigned >= signed else f"i{signed}"


def common_numeric(a: str, b: str, style: str, revision: str) -> str | None:
    if "index" in (a, b):
        return None if a in FLOATS or b in FLOATS else "index"
    if a in FLOATS and b in FLOATS:
        return b if FLOATS[b] > FLOATS[a] else a
    for t in (a, b):
        if t in FLOATS:
            return t
    return common_integer(a, b, style, revision)


def sum_of(terms: Sequence[str], negated: Sequence[bool]) -> str:
    """hls: the type of a sum of integers, some subtracted."""
    is_signed = any(negated) or any(t[0] == "i" for t in terms)
    widths = [bits(t) + (is_signed and t[0] == "u") for t in terms]
    return f"{'i' if is_signed else 'u'}{max(widths) + math.ceil(math.log2(len(terms)))}"


def product_of(factors: Sequence[str]) -> str:
    return f"{'i' if any(t[0] == 'i' for t in factors) else 'u'}{sum(map(bits, factors))}"


def binary(op: str, a: str, b: str, style: str, revision: str) -> str | None:
    """The type of the value; None where there is no rule."""
    both_integers = is_integer(a) and is_integer(b)
    if style == "hls" and both_integers and op in ("add", "sub"):
        return sum_of((a, b), (False, op == "sub"))
    if style == "hls" and both_integers and op == "mul":
        return product_of((a, b))
    if op in OPERATORS["sums"] or op in OPERATORS["common"]:
        return common_numeric(a, b, style, revision)
    if op in OPERATORS["comparisons"]:
        return "u1" if common_numeric(a, b, style, revision) else None
    if op == "pow":
        return None if style == "hls" and "index" in (a, b) else common_numeric(a, b, style, revision)
    if op in OPERATORS["bitwise"]:
        return "index" if a == b == "index" else common_integer(a, b, style, revision)
    if op in OPERATORS["shifts"]:
        if a == "index":
            return "index" if b == "index" and revision == "seed" else None
        return a if is_integer(a) and (is_integer(b) or b == "index") else None
    assert op in OPERATORS["logical"]
    return "u1" if (a == "index") is (b == "index") else None


def unary(op: str, t: str, style: str, revision: str) -> str | None:
    is_hls = style == "hls"
    if op == "neg":
        return t if not is_hls else f"i{bits(t) + 1}" if is_integer(t) else None if t == "index" else t
    if op == "invert":
        return t if is_integer(t) or (t == "index" and revision == "seed") else None
    if op == "pos":
        return t
    if op == "abs":
        return None if t == "index" else t
    if op == "logical_not":
        return "u1"
    if t == "index":
        return None if is_hls else "f64"
    return ("f32" if bits(t) <= 32 else "f64") if is_integer(t) else t


# What they are held against


def dtype_of(t: str) -> DType:
    if t in FLOATS:
        return {"f16": DType.float16, "bf16": DType.bfloat16, "f32": DType.float32, "f64": DType.float64}[t]
    if t == "index":
        return DType.index
    if t == "u1":
        return DType.bool
    return DType.int(bits(t)) if t[0] == "i" else DType.uint(bits(t))


def long_name(t: str) -> str:
    """A type as Allo prints it in errors."""
    return "uint1" if t == "u1" else dtype_of(t).name


def symbols(style: str, revision: str, types: Sequence[str] = TYPES) -> dict[str, Symbol]:
    rules = system(f"allo_{style}", revision=revision)
    graph = Graph("all", {t: TensorType(dtype_of(t), ["n"]) for t in types}, promotion=rules)
    return {t: graph[t] for t in types}


def check(op: str, style: str, operands: Sequence[Symbol], types: Sequence[str], expected: str | None) -> None:
    if expected is not None:
        assert PYTHON[op](*operands).dtype is dtype_of(expected), (op, types)
        return
    names = ", ".join(map(long_name, types))
    plural = "s" if len(types) > 1 else ""
    with pytest.raises(PromotionError) as raised:
        PYTHON[op](*operands)
    text = f"No {style} type promotion rule for operator '{op}' with operand type{plural} {names}"
    assert raised.value.summary.partition(": ")[2] == text


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize(("style", "revision"), STYLES)
def test_operator_of_two_follows_its_rule_over_all_pairs(style: str, revision: str, op: str) -> None:
    result = symbols(style, revision)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyCastWarning)
        for a, b in itertools.product(TYPES, repeat=2):
            check(op, style, (result[a], result[b]), (a, b), binary(op, a, b, style, revision))


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize(("style", "revision"), STYLES)
def test_operator_of_one_follows_its_rule_over_all_types(style: str, revision: str, op: str) -> None:
    result = symbols(style, revision)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyCastWarning)
        for t in TYPES:
            check(op, style, (result[t],), (t,), unary(op, t, style, revision))


@pytest.mark.parametrize(("style", "revision"), STYLES)
def test_common_type_is_where_operands_meet_when_asked(style: str, revision: str) -> None:
    rules = system(f"allo_{style}", revision=revision)
    for a, b in itertools.product(TYPES, repeat=2):
        common = common_numeric(a, b, style, revision)
        if common is not None:
            assert implicit_cast_type(dtype_of(a), dtype_of(b), system=rules) is dtype_of(common), (a, b)
            continue
        with pytest.raises(PromotionError, match=f"No {style} type promotion rule for operator 'max'"):
            implicit_cast_type(dtype_of(a), dtype_of(b), system=rules)


def test_float16_and_bfloat16_meet_in_the_left_one() -> None:
    for style in ("hls", "cpp"):
        assert implicit_cast_type("float16", "bfloat16", system=f"allo_{style}") is DType.float16
        assert implicit_cast_type("bfloat16", "float16", system=f"allo_{style}") is DType.bfloat16


# Whole expressions

FEW = ["u1", "i8", "u8", "u17", "i23", "u64"]


@pytest.mark.parametrize("signs", list(itertools.product("+-", repeat=2)), ids="".join)
def test_hls_sum_of_three_is_promoted_as_one(signs: tuple[str, str]) -> None:
    result = symbols("hls", "seed", FEW)
    for terms in itertools.product(FEW, repeat=3):
        x, y, z = (result[t] for t in terms)
        negated = (False, signs[0] == "-", signs[1] == "-")
        flat = x - y if negated[1] else x + y
        flat = flat - z if negated[2] else flat + z
        assert flat.dtype is dtype_of(sum_of(terms, negated)), terms
        inner = y - z if negated[2] else y + z
        nested = x - inner if negated[1] else x + inner
        assert nested.dtype is dtype_of(sum_of(terms, (False, negated[1], negated[1] is not negated[2]))), terms


def test_hls_product_of_three_is_promoted_as_one() -> None:
    result = symbols("hls", "seed", FEW)
    for factors in itertools.product(FEW, repeat=3):
        x, y, z = (result[t] for t in factors)
        assert ((x * y) * z).dtype is (x * (y * z)).dtype is dtype_of(product_of(factors)), factors


def test_hls_sum_of_many_grows_by_the_logarithm_of_their_number() -> None:
    for count in range(2, 70):
        graph = Graph("many", {f"x{i}": TensorType("uint8", ["n"]) for i in range(count)}, promotion="allo_hls")
        total = graph.inputs[0]
        for x in graph.inputs[1:]:
            total = total + x
        assert total.dtype is DType.uint(8 + math.ceil(math.log2(count)))


@pytest.mark.parametrize("style", ["hls", "cpp"])
def test_floats_meet_pair_by_pair_when_an_expression_has_one(style: str) -> None:
    result = symbols(style, "seed", ["i8", "i7", "f16", "f32"])
    total = (result["i8"] + result["i7"]) + result["f16"]
    assert total.dtype is DType.float16
    assert (total * result["f32"]).dtype is DType.float32


@pytest.mark.parametrize("style", ["hls", "cpp"])
def test_ternary_needs_one_type(style: str) -> None:
    result = symbols(style, "seed", ["u1", "i8", "u17"])
    assert ops.where(result["u1"], result["i8"], result["i8"]).dtype is DType.int8
    with pytest.raises(PromotionError) as raised:
        ops.where(result["u1"], result["u17"], result["u1"])
    assert raised.value.summary == (
        "where: Type mismatch between then vs else branches of ternary expression: uint17 vs uint1."
    )
