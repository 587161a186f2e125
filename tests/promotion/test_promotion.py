"""The promotion systems cell by cell and law by law, and their interface."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, PromotionSystem, Symbol, SymbolTuple, TensorType, implicit_cast_type, ops
from graphcore.errors import DTypeError, GraphError, LossyCastWarning, PromotionError
from graphcore.ir.state.frozen import change
from graphcore.promotion import Key, LatticeSystem, NoPromotion, Operand, Resolution, TableSystem, implicit_cast, system
from graphcore.types.tensor_types import tensor_type

D = DType

SHORT = {
    "b1": D.bool, "i8": D.int8, "i16": D.int16, "i32": D.int32, "i64": D.int64,
    "u8": D.uint8, "u16": D.uint16, "u32": D.uint32, "u64": D.uint64, "idx": D.index, "adr": D.address,
    "f16": D.float16, "bf16": D.bfloat16, "f32": D.float32, "tf32": D.tensor_float32, "f64": D.float64,
}  # fmt: skip

JOIN = """
      b1   i8   i16  i32  i64  u8   u16  u32  u64  idx  adr  f16  bf16 f32  tf32 f64
b1    b1   i8   i16  i32  i64  u8   u16  u32  u64  u64  u64  f16  bf16 f32  tf32 f64
i8    i8   i8   i16  i32  i64  i16  i32  i64  f16  f16  f16  f16  bf16 f32  tf32 f64
i16   i16  i16  i16  i32  i64  i16  i32  i64  f16  f16  f16  f16  bf16 f32  tf32 f64
i32   i32  i32  i32  i32  i64  i32  i32  i64  f16  f16  f16  f16  bf16 f32  tf32 f64
i64   i64  i64  i64  i64  i64  i64  i64  i64  f16  f16  f16  f16  bf16 f32  tf32 f64
u8    u8   i16  i16  i32  i64  u8   u16  u32  u64  u64  u64  f16  bf16 f32  tf32 f64
u16   u16  i32  i32  i32  i64  u16  u16  u32  u64  u64  u64  f16  bf16 f32  tf32 f64
u32   u32  i64  i64  i64  i64  u32  u32  u32  u64  u64  u64  f16  bf16 f32  tf32 f64
u64   u64  f16  f16  f16  f16  u64  u64  u64  u64  u64  u64  f16  bf16 f32  tf32 f64
idx   u64  f16  f16  f16  f16  u64  u64  u64  u64  idx  u64  f16  bf16 f32  tf32 f64
adr   u64  f16  f16  f16  f16  u64  u64  u64  u64  u64  adr  f16  bf16 f32  tf32 f64
f16   f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  bf16 f32  tf32 f64
bf16  bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32  tf32 f64
f32   f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  tf32 f64
tf32  tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 f64
f64   f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64
"""

# The left operand chooses the row, the right one the column.
PUBLISHED = """
      b1   i8   i16  i32  i64  u8   u16  u32  u64  idx  adr  f16  bf16 f32  tf32 f64
b1    b1   i8   i16  i32  i64  u8   u16  u32  u64  i64  i64  f16  bf16 f32  tf32 f64
i8    i8   i8   i16  i32  i64  i16  i32  i64  f16  idx  adr  f16  bf16 f32  tf32 f64
i16   i16  i16  i16  i32  i64  i16  i32  i64  f16  f16  f16  f16  bf16 f32  tf32 f64
i32   i32  i32  i32  i32  i64  i32  i32  i64  f16  f16  f16  f16  bf16 f32  tf32 f64
i64   i64  i64  i64  i64  i64  i64  i64  i64  f16  f16  f16  f16  bf16 f32  tf32 f64
u8    u8   i16  i16  i32  i64  u8   u16  u32  u64  u64  u64  f16  bf16 f32  tf32 f64
u16   u16  i32  i32  i32  i64  u16  u16  u32  u64  u64  u64  f16  bf16 f32  tf32 f64
u32   u32  i64  i64  i64  i64  u32  u32  u32  u64  u64  u64  f16  bf16 f32  tf32 f64
u64   u64  f16  f16  f16  f16  u64  u64  u64  u64  u64  u64  f16  bf16 f32  tf32 f64
idx   u64  f16  f16  f16  f16  u64  u64  u64  u64  idx  u64  f16  bf16 f32  tf32 f64
adr   u64  f16  f16  f16  f16  u64  u64  u64  u64  u64  adr  f16  bf16 f32  tf32 f64
f16   f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  bf16 f32  tf32 f64
bf16  bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32  tf32 f64
f32   f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  tf32 f64
tf32  tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 f64
f64   f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64
"""


def cells(table: str) -> dict[tuple[DType, DType], DType]:
    head, *rows = table.strip("\n").split("\n")
    results = {}
    for row in rows:
        left, *answers = row.split()
        for right, answer in zip(head.split(), answers, strict=True):
            results[SHORT[left], SHORT[right]] = SHORT[answer]
    return results


TABLES = {"max": cells(JOIN), "max_published": cells(PUBLISHED)}
LATTICE = list(SHORT.values())


def symbols(*dtypes: DType, promotion: str | PromotionSystem = "max", strict: bool = False) -> tuple[Symbol, ...]:
    graph = Graph(
        "mix", {f"x{i}": TensorType(d, ["n"]) for i, d in enumerate(dtypes)}, promotion=promotion, strict=strict
    )
    return graph.inputs


# The tables


@pytest.mark.parametrize("name", TABLES)
def test_table_is_whole_when_read(name: str) -> None:
    assert len(TABLES[name]) == 16 * 16


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("left", LATTICE, ids=str)
def test_dtypes_meet_as_the_table_says_when_asked(name: str, left: DType) -> None:
    for right in LATTICE:
        assert implicit_cast_type(left, right, name) is TABLES[name][left, right], (left, right)


@pytest.mark.parametrize("name", TABLES)
def test_symbols_meet_as_the_table_says_when_added(name: str) -> None:
    graph = Graph("all", {d.name: TensorType(d, ["n"]) for d in LATTICE}, promotion=name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyCastWarning)
        for left, right in itertools.product(LATTICE, LATTICE):
            result = graph[left.name] + graph[right.name]
            assert result.dtype is TABLES[name][left, right], (left, right)
            assert all(s is not None and s.dtype is result.dtype for s in graph.nodes[-1].inputs)


def test_published_table_differs_from_the_join_when_four_cells_are_compared() -> None:
    join, published = TABLES["max"], TABLES["max_published"]
    differing = {pair: (published[pair], join[pair]) for pair in join if join[pair] is not published[pair]}
    assert differing == {
        (D.bool, D.index): (D.int64, D.uint64),
        (D.bool, D.address): (D.int64, D.uint64),
        (D.int8, D.index): (D.index, D.float16),
        (D.int8, D.address): (D.address, D.float16),
    }
    for left, right in differing:
        assert implicit_cast_type(right, left, "max_published") is join[right, left]
        assert implicit_cast_type(left, right, "max_published") is not implicit_cast_type(right, left, "max_published")


# The laws


def test_max_is_idempotent_and_commutative_when_over_all_pairs() -> None:
    for left, right in itertools.product(LATTICE, LATTICE):
        assert implicit_cast_type(left, right) is implicit_cast_type(right, left)
    assert all(implicit_cast_type(d, d) is d for d in LATTICE)


def _broken_triples(name: str) -> int:
    meet = {pair: implicit_cast_type(*pair, name) for pair in itertools.product(LATTICE, LATTICE)}
    return sum(meet[meet[a, b], c] is not meet[a, meet[b, c]] for a, b, c in itertools.product(LATTICE, repeat=3))


def test_max_is_associative_when_over_all_triples() -> None:
    assert _broken_triples("max") == 0


def test_published_table_breaks_associativity_when_over_all_triples() -> None:
    assert _broken_triples("max_published") == 68


def test_max_gives_the_least_upper_bound_when_over_all_pairs() -> None:
    def below(x: DType, y: DType) -> bool:
        return implicit_cast_type(x, y) is y

    for left, right in itertools.product(LATTICE, LATTICE):
        joined = implicit_cast_type(left, right)
        bounds = [d for d in LATTICE if below(left, d) and below(right, d)]
        assert joined in bounds
        assert all(below(joined, d) for d in bounds)


# Asking


def test_implicit_cast_type_reads_anything_that_names_a_dtype() -> None:
    assert implicit_cast_type("int8", np.float32) is D.float32
    assert implicit_cast_type(np.dtype("u1"), ml_dtypes.bfloat16) is D.bfloat16
    assert implicit_cast_type(D.index, D.index.onnx) is D.uint64
    assert implicit_cast_type("tf32", "double", "max_published") is D.float64
    assert implicit_cast_type(D.int8, D.uint8, system("max")) is D.int16


def test_implicit_cast_type_raises_when_there_is_no_such_dtype() -> None:
    with pytest.raises(DTypeError, match="no dtype is called 'int7x'"):
        implicit_cast_type("int7x", D.int8)


def test_system_returns_a_system_as_it_is_when_given_one() -> None:
    chosen = system("max")
    assert system(chosen) is chosen
    assert chosen.name == "max"


@pytest.mark.parametrize("name", ["tensorflow", "", 3])
def test_system_raises_when_there_is_none_of_that_name(name: str) -> None:
    with pytest.raises(PromotionError, match=f"no promotion system is called {re.escape(repr(name))}") as raised:
        system(name)
    assert "max, max_published" in raised.value.help


@pytest.mark.parametrize("outside", [D.int4, D.uint4, D.float8_e4m3fn, D.float8_e5m2, D.string, D.int(7)], ids=str)
def test_dtypes_outside_the_lattice_go_only_with_themselves(outside: DType) -> None:
    x, y = symbols(outside, outside)
    assert (x == y).dtype is D.bool
    for name in ("max", "max_published"):
        with pytest.raises(PromotionError) as raised:
            implicit_cast_type(outside, outside, name)
        assert raised.value.summary == f"implicit_cast_type: {outside} isn't supported by promotion in {name}"
    for other in LATTICE:
        for pair in ((outside, other), (other, outside)):
            with pytest.raises(PromotionError) as raised:
                implicit_cast_type(*pair)
            why = f"{pair[0]} and {pair[1]} have no common dtype in max: {outside} only goes with itself"
            assert raised.value.summary == f"implicit_cast_type: {why}"


def test_mixing_float8_names_dtypes_system_op_and_a_fix() -> None:
    x, y = symbols(D.float8_e4m3fn, D.int8)
    with pytest.raises(PromotionError) as raised:
        x * y
    error = raised.value
    assert (
        error.summary == "mul: float8_e4m3fn and int8 have no common dtype in max: float8_e4m3fn only goes with itself"
    )
    assert error.help == "cast one of them: .cast(DType.int8) or .cast(DType.float8_e4m3fn)"
    assert re.search(r"\n    lhs  x0   float8_e4m3fn\[n\] .*\n    rhs  x1   int8\[n\] ", str(error))


def test_float8_formats_do_not_meet_each_other() -> None:
    x, y = symbols(D.float8_e4m3fn, D.float8_e5m2)
    with pytest.raises(PromotionError, match="float8_e4m3fn and float8_e5m2 have no common dtype"):
        x + y


def test_int4_computes_in_itself_when_both_are_int4() -> None:
    x, y = symbols(D.int4, D.int4)
    assert (x + y).dtype is D.int4
    assert (x + 7).dtype is D.int4
    with pytest.raises(DTypeError, match="add: 8 cannot be held in int4"):
        x + 8


def test_implicit_cast_returns_both_symbols_when_cast() -> None:
    x, y = symbols(D.int8, D.float32)
    result = implicit_cast(x, y)
    assert isinstance(result, SymbolTuple)
    assert result.lhs.dtype is D.float32
    assert result.rhs is y
    assert result.lhs is (x + y).graph.nodes[-1].inputs[0], "the same cast is made once"


def test_implicit_cast_returns_the_symbols_themselves_when_equal() -> None:
    x, y = symbols(D.int8, D.int8)
    result = implicit_cast(x, y)
    assert result.lhs is x
    assert result.rhs is y
    assert not x.graph.nodes


def test_implicit_cast_raises_when_they_do_not_meet_or_are_of_two_graphs() -> None:
    x, y = symbols(D.int4, D.int8)
    with pytest.raises(PromotionError, match="implicit_cast: int4 and int8 have no common dtype in max"):
        implicit_cast(x, y)
    (other,) = symbols(D.int8)
    with pytest.raises(GraphError, match="Symbols of two graphs never mix"):
        implicit_cast(y, other)


# Literals

HELD: list[tuple[DType, bool | int | float]] = [
    (D.bool, True), (D.bool, 1), (D.bool, 0), (D.int8, 127), (D.int8, -128), (D.int8, True), (D.uint8, 255),
    (D.uint64, 2**64 - 1), (D.int64, -(2**63)), (D.index, 2**64 - 1), (D.int4, -8), (D.uint4, 15), (D.int(7), 63),
    (D.float16, 2048), (D.float16, 0.1), (D.float16, 65504.0), (D.float16, 65519.9), (D.float16, float("inf")),
    (D.float16, float("nan")), (D.float16, 1e-30), (D.bfloat16, 256), (D.bfloat16, 3.3e38), (D.float32, 2**24),
    (D.float32, 0.1), (D.tensor_float32, 2048), (D.tensor_float32, 0.1), (D.float64, 2**53), (D.float64, 1e308),
    (D.float8_e4m3fn, 448.0), (D.float8_e4m3fn, 460.0), (D.float8_e5m2, 57344.0), (D.float32, 2**100),
]  # fmt: skip

REFUSED: list[tuple[DType, int | float]] = [
    (D.bool, 2), (D.bool, -1), (D.int8, 300), (D.int8, -129), (D.uint8, -1), (D.uint8, 256), (D.uint64, 2**64),
    (D.int64, 2**63), (D.int32, 2.5), (D.int32, 2.0), (D.bool, 1.0), (D.int8, float("nan")), (D.int64, float("inf")),
    (D.index, -1), (D.int4, 8), (D.uint4, 16), (D.int(7), 64), (D.float16, 2049), (D.float16, 70000.0),
    (D.float16, -70000.0), (D.float16, 65520.0), (D.bfloat16, 257), (D.float32, 2**24 + 1), (D.float32, 1e39),
    (D.tensor_float32, 2049), (D.float64, 2**53 + 1), (D.float64, 10**400), (D.float8_e4m3fn, 480.0),
    (D.float8_e5m2, 65536.0), (D.float8_e4m3fn, 17),
]  # fmt: skip


def _id(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)[:24]


@pytest.mark.parametrize(("dtype", "value"), HELD, ids=_id)
def test_literal_takes_the_symbols_dtype_when_it_can_be_held(dtype: DType, value: bool | int | float) -> None:
    (x,) = symbols(dtype)
    for item in (x + value, value + x):
        assert item.dtype is dtype
        assert all(s is not None and s.dtype is dtype for s in item.graph.nodes[-1].inputs)


@pytest.mark.parametrize(("dtype", "value"), REFUSED, ids=_id)
def test_literal_is_refused_when_it_cannot_be_held(dtype: DType, value: int | float) -> None:
    (x,) = symbols(dtype)
    for function, operands in ((ops.add, (x, value)), (ops.add, (value, x)), (ops.maximum, (x, value))):
        with pytest.raises(DTypeError, match=f"{re.escape(repr(value))} cannot be held in {dtype}"):
            function(*operands)
    assert not x.graph.nodes


def test_refused_literals_say_what_to_write_instead() -> None:
    i8, i32, u8, f16 = symbols(D.int8, D.int32, D.uint8, D.float16)
    with pytest.raises(DTypeError) as raised:
        i8 + 300
    assert raised.value.help == "int8 holds -128 to 127; cast the Symbol to a wider dtype first"
    with pytest.raises(DTypeError) as raised:
        i32 * 2.5
    assert raised.value.help == "cast the Symbol first: .cast(DType.float32), or write 2"
    with pytest.raises(DTypeError) as raised:
        f16 + 2049
    assert raised.value.help == "write 2049.0 if rounding is meant, or cast the Symbol to a wider float"
    with pytest.raises(DTypeError) as raised:
        f16 + 70000.0
    assert raised.value.help == "cast the Symbol to a wider float: .cast(DType.float32)"
    with pytest.raises(DTypeError) as raised:
        f16 + 70000
    assert raised.value.help == "cast the Symbol to a wider float: .cast(DType.float32)"
    with pytest.raises(DTypeError) as raised:
        f16 + 1e200
    assert raised.value.help == "cast the Symbol to a wider float: .cast(DType.float64)"
    with pytest.raises(DTypeError) as raised:
        u8 + -1
    assert raised.value.help == "uint8 holds 0 to 255; cast the Symbol to a wider dtype first"


def test_equal_literals_of_other_types_are_other_constants() -> None:
    (x,) = symbols(D.float32)
    results = [x * 0.0, x * -0.0, x * 1, x * True, x * 1.0]
    values = [s.producer.inputs[1].producer.array for s in results]  # type: ignore[union-attr]
    assert np.signbit(values[0]) != np.signbit(values[1])
    assert [float(v) for v in values[2:]] == [1.0, 1.0, 1.0]


def test_numpy_scalars_and_arrays_keep_their_own_dtype() -> None:
    (x,) = symbols(D.int8)
    assert (x + np.float32(1)).dtype is D.float32
    result: Any = np.ones((3, 1), np.int16) + x  # NumPy's annotations take every operand for an array
    assert result.dtype is D.int16
    assert (x + np.int64(1)).dtype is D.int64


# The rules


def test_rules_choose_the_result_when_operands_have_met() -> None:
    b, i8, u16, f16, f32 = symbols(D.bool, D.int8, D.uint16, D.float16, D.float32)
    assert (i8 / i8).dtype is D.float64
    assert (b / b).dtype is D.float64
    assert (i8 / 2).dtype is D.float64
    assert (f16 / i8).dtype is D.float16
    assert (i8 < f32).dtype is D.bool
    assert (i8 & b).dtype is D.int8
    assert (i8 << u16).dtype is D.int8
    assert (u16 >> 3).dtype is D.uint16
    assert ops.exp(i8).dtype is D.float16
    assert ops.exp(u16).dtype is D.float32
    assert ops.exp(b).dtype is D.float16
    assert ops.abs(i8).dtype is D.int8
    assert ops.logical_and(i8, f32).dtype is D.bool


def test_rules_refuse_what_has_no_meaning() -> None:
    b, i8, f32, text = symbols(D.bool, D.int8, D.float32, D.string)
    with pytest.raises(DTypeError, match="sub has no meaning for bool"):
        b - b
    with pytest.raises(DTypeError, match="negate has no meaning for bool"):
        -b  # noqa: B018 - the operator is what is tested
    with pytest.raises(
        DTypeError, match="bitwise_and works on the bits of integers and bools; the operands meet in float32"
    ):
        i8 & f32
    with pytest.raises(DTypeError, match="float32 cannot be shifted"):
        f32 << 1
    with pytest.raises(DTypeError, match="float32 cannot be shifted"):
        i8 << f32
    with pytest.raises(DTypeError, match=r"the number of bits to shift must be an int, got 1\.5"):
        i8 << 1.5
    with pytest.raises(DTypeError, match="add has no meaning for string"):
        text + text


# Lossy casts


def test_lossy_cast_warns_once_a_line() -> None:
    x, y = symbols(D.int64, D.uint64)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(3):
            x + y
        x * y
    assert [w.category for w in seen] == [LossyCastWarning, LossyCastWarning]
    text = str(seen[0].message)
    assert text.startswith(
        "add: the implicit cast of lhs from int64 to float16 and of rhs from uint64 to float16 "
        "cannot hold the operand's range; "
        "cast the operands yourself to the dtype you mean, such as .cast(DType.float64)"
    )
    assert re.search(r"at test_promotion\.py:\d+   x \+ y$", text)
    assert seen[0].filename.endswith("test_promotion.py")


def test_lossy_cast_warns_when_the_plan_is_known_already() -> None:
    x, y = symbols(D.int64, D.uint64)
    with pytest.warns(LossyCastWarning, match="add: "):
        x + y
    with pytest.warns(LossyCastWarning, match="add: "):
        x + y


def test_lossy_cast_does_not_warn_when_the_range_fits() -> None:
    b, i8, u8, f16, bf16 = symbols(D.bool, D.int8, D.uint8, D.float16, D.bfloat16)
    assert [(x + y).dtype for x, y in ((b, i8), (i8, u8), (u8, f16), (f16, bf16))]
    assert (u8.cast(D.int64) / 3).dtype is D.float64


def test_explicit_cast_does_not_warn() -> None:
    x, y = symbols(D.int64, D.uint64)
    assert (x.cast(D.float64) + y.cast(D.float64)).dtype is D.float64


def test_lossy_cast_is_an_error_when_the_graph_is_strict() -> None:
    x, y = symbols(D.int64, D.uint64, strict=True)
    with pytest.raises(PromotionError) as raised:
        x + y
    assert raised.value.summary == (
        "add: the implicit cast of lhs from int64 to float16 and of rhs from uint64 to float16 "
        "cannot hold the operand's range"
    )
    assert "cast the operands yourself" in raised.value.help
    assert not x.graph.nodes
    assert (x + 1).dtype is D.int64


# Systems of one's own


def test_lattice_system_promotes_as_its_edges_say() -> None:
    small = LatticeSystem("small", {D.int8: [D.int32], D.uint8: [D.int32], D.int32: [D.float32]})
    assert implicit_cast_type(D.int8, D.uint8, small) is D.int32
    assert implicit_cast_type(D.uint8, D.float32, small) is D.float32
    with pytest.raises(PromotionError, match="int8 and bool have no common dtype in small: bool only goes with itself"):
        implicit_cast_type(D.int8, D.bool, small)
    x, y = symbols(D.int8, D.uint8, promotion=small)
    assert (x + y).dtype is D.int32


def test_lattice_system_refuses_a_pair_when_nothing_is_above_both() -> None:
    split = LatticeSystem("split", {D.int8: [D.int16], D.uint8: [D.uint16]})
    with pytest.raises(PromotionError, match="int16 and uint16 have no common dtype in split"):
        implicit_cast_type(D.int16, D.uint16, split)


def test_lattice_system_is_refused_when_a_pair_has_two_least_bounds() -> None:
    edges = {D.int8: [D.int32, D.float32], D.uint8: [D.int32, D.float32]}
    with pytest.raises(DTypeError) as raised:
        LatticeSystem("bad", edges)
    assert re.fullmatch(r"bad: u?int8 and u?int8 have no least upper bound", raised.value.summary)
    assert raised.value.help == "add an edge between float32 and int32"


def test_lattice_system_is_refused_when_its_edges_go_in_a_circle() -> None:
    with pytest.raises(DTypeError, match=r"circle: .* have no least upper bound"):
        LatticeSystem("circle", {D.int8: [D.int16], D.int16: [D.int8]})


def test_table_system_answers_in_the_order_written() -> None:
    rows = {
        (D.int8, D.int8): D.int8,
        (D.int8, D.uint8): D.int8,
        (D.uint8, D.int8): D.uint8,
        (D.uint8, D.uint8): D.uint8,
    }
    remaining = TableSystem("left", rows)
    assert implicit_cast_type(D.int8, D.uint8, remaining) is D.int8
    assert implicit_cast_type(D.uint8, D.int8, remaining) is D.uint8


class Toy(PromotionSystem):
    """A system with the features that `max` lacks: ambiguity, shapes, and undefined cases."""

    name = "toy"
    dtypes = frozenset({D.int8, D.int32, D.float32})
    reads_operands = True
    remembered = False

    def __init__(self) -> None:
        self.requests: list[tuple[Key, tuple[Operand, ...]]] = []

    def resolve(self, key: Key, operands: Sequence[Operand]) -> Resolution:
        self.requests.append((key, tuple(operands)))
        if key.rule != "arithmetic":
            return super().resolve(key, operands)
        lengths = {o.length for o in operands if o.length not in (None, 1)}
        if len(lengths) > 1:
            raise NoPromotion("vectors of two lengths", help="give one length", error=DTypeError)
        results = [o.dtype for o in operands if o.dtype is not None and not o.ambiguous]
        if not results:
            return Resolution((D.int32,) * len(operands), D.int32, ambiguous=True)
        if D.int8 in results and D.float32 in results:
            raise NoPromotion(f"{results[0]} with {results[1]} is undefined", undefined=True)
        return Resolution((results[0],) * len(operands), results[0])

    def common(self, lhs: DType, rhs: DType) -> DType:
        return D.float32


def test_toy_system_sees_rank_length_and_literals() -> None:
    toy = Toy()
    graph = Graph("g", {"v": TensorType(D.int8, [4]), "m": TensorType(D.int8, ["n", 4])}, promotion=toy)
    graph["v"] + graph["m"]
    (_, (left, right)) = toy.requests[-1]
    assert (left.dtype, left.rank, left.length, left.literal) == (D.int8, 1, 4, None)
    assert (right.dtype, right.rank, right.length) == (D.int8, 2, None)
    graph["v"] * 3
    (key, (_, literal)) = toy.requests[-1]
    assert key == Key("mul", "arithmetic", elementwise=True)
    assert (literal.dtype, literal.literal) == (None, 3)


def test_toy_system_is_asked_anew_each_time() -> None:
    toy = Toy()
    x, y = symbols(D.int8, D.int8, promotion=toy)
    for count in (1, 2, 3):
        x + y
        assert len(toy.requests) == count
    change(x, type=tensor_type(x.dtype, x.shape, ambiguous=True))
    assert (x + y).dtype is D.int8
    assert toy.requests[-1][1][0].ambiguous


def test_toy_system_makes_ambiguous_results_that_travel_and_print() -> None:
    x, y, expected = symbols(D.int8, D.int32, D.float32, promotion=Toy())
    for s in (x, y):
        change(s, type=tensor_type(s.dtype, s.shape, ambiguous=True))
    total = x + y
    assert total.ambiguous
    assert str(total).endswith("int32?[n]")
    assert not (total + expected).ambiguous
    assert (total + expected).dtype is D.float32
    assert (total * 2).ambiguous
    assert "int32?[n]" in str(x.graph)


def test_toy_system_refuses_with_its_own_error_class_and_words() -> None:
    graph = Graph("g", {"v": TensorType(D.int8, [4]), "w": TensorType(D.int8, [3])}, promotion=Toy())
    with pytest.raises(DTypeError, match="add: vectors of two lengths") as raised:
        graph["v"] + graph["w"]
    assert raised.value.help == "give one length"


def test_toy_system_says_undefined_when_its_publication_does() -> None:
    x, y = symbols(D.int8, D.float32, promotion=Toy())
    with pytest.raises(PromotionError, match="add: int8 with float32 is undefined"):
        x + y


def test_graphs_keep_their_own_system_when_there_are_several() -> None:
    bool_max, index_max = symbols(D.bool, D.index)
    bool_pub, index_pub = symbols(D.bool, D.index, promotion="max_published")
    assert (bool_max + index_max).dtype is D.uint64
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyCastWarning)
        assert (bool_pub + index_pub).dtype is D.int64
    assert bool_pub.graph.promotion is system("max_published")
    assert gc.promotion.system("max") is bool_max.graph.promotion
