"""kernel_float: its table, forbidden pairs, vectors, constants, and the result of each operation."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, implicit_cast_type, ops
from graphcore.errors import DTypeError, GraphcoreError, GraphError, PromotionError, ShapeError
from graphcore.promotion import Key, NoPromotion, Operand, system
from tests.support import promoted, reference
from tests.support.promoted import DTYPES, FLOAT8, SIGNED, UNSIGNED, Value

Array = np.ndarray[Any, Any]
D = DType
ALL = DTYPES["kernel_float"]
E4M3, E5M2 = FLOAT8
FLOATS = [d for d in ALL if d.is_float]
INTEGERS = [d for d in ALL if d.is_integer]

# The published table; an x is a pair that may not be mixed. f8 is either format.
PUBLISHED = """
     b    i8   i16  i32  i64  u8   u16  u32  u64  f8   f16  bf16 f32  f64
b    b    i8   i16  i32  i64  u8   u16  u32  u64  f8   f16  bf16 f32  f64
i8   i8   i8   i16  i32  i64  x    x    x    x    f8   f16  bf16 f32  f64
i16  i16  i16  i16  i32  i64  x    x    x    x    f8   f16  bf16 f32  f64
i32  i32  i32  i32  i32  i64  x    x    x    x    f8   f16  bf16 f32  f64
i64  i64  i64  i64  i64  i64  x    x    x    x    f8   f16  bf16 f32  f64
u8   u8   x    x    x    x    u8   u16  u32  u64  f8   f16  bf16 f32  f64
u16  u16  x    x    x    x    u16  u16  u32  u64  f8   f16  bf16 f32  f64
u32  u32  x    x    x    x    u32  u32  u32  u64  f8   f16  bf16 f32  f64
u64  u64  x    x    x    x    u64  u64  u64  u64  f8   f16  bf16 f32  f64
f8   f8   f8   f8   f8   f8   f8   f8   f8   f8   f8   f16  bf16 f32  f64
f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f32  f32  f64
bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32  bf16 f32  f64
f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64
f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64
"""
LABELS = dict(
    zip("b i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64".split(), [d for d in ALL if d not in FLOAT8], strict=True)
)


def expected(float8: DType) -> dict[tuple[DType, DType], DType | None]:
    """The table with f8 being one of the formats."""
    labels = {**LABELS, "f8": float8}
    head, *rows = PUBLISHED.strip("\n").split("\n")
    results = {}
    for row in rows:
        left, *cells = row.split()
        for right, cell in zip(head.split(), cells, strict=True):
            results[labels[left], labels[right]] = labels.get(cell)
    return results


TABLE = {**expected(E4M3), **expected(E5M2), (E4M3, E5M2): None, (E5M2, E4M3): None}


def graph_of(*types: DType | TensorType) -> Graph:
    named = {f"x{i}": t if isinstance(t, TensorType) else TensorType(t, ["n"]) for i, t in enumerate(types)}
    return Graph("vectors", named, promotion="kernel_float")


def symbols(*types: DType | TensorType) -> tuple[Symbol, ...]:
    return graph_of(*types).inputs


def run(graph: Graph, outputs: list[Symbol], *arrays: Array) -> list[Array]:
    """Return the graph's results; the exported model is checked."""
    graph.output(*outputs)
    onnx.checker.check_model(graph.to_onnx(), full_check=True)
    results = list(gc.InferenceSession().load(graph)(*arrays))
    assert [r.dtype for r in results] == [np.dtype(s.dtype.numpy) for s in outputs]
    return results


# The table


def test_table_has_all_pairs_of_15_dtypes_when_read() -> None:
    assert len(TABLE) == 15 * 15
    assert sum(cell is None for cell in expected(E4M3).values()) == 32


@pytest.mark.parametrize("left", ALL, ids=str)
def test_dtypes_meet_as_the_table_says_when_asked(left: DType) -> None:
    for right in ALL:
        want = TABLE[left, right]
        if want is not None:
            assert implicit_cast_type(left, right, "kernel_float") is want, (left, right)
            continue
        with pytest.raises(PromotionError) as raised:
            implicit_cast_type(left, right, "kernel_float")
        reason = "do not mix in kernel_float" if left.is_float else "is forbidden in kernel_float"
        assert reason in raised.value.summary
        assert f"DType.{right.name}" in raised.value.help


def test_rules_in_words_give_the_table_when_over_all_pairs() -> None:
    def published(left: DType, right: DType) -> DType | None:
        result = promoted.outcome("kernel_float", "+", [Value(np.zeros((), d.numpy), d) for d in (left, right)])
        return result.dtype if isinstance(result, Value) else None

    assert {pair: published(*pair) for pair in TABLE} == TABLE


@pytest.mark.filterwarnings("ignore::graphcore.errors.LossyCastWarning")
def test_symbols_compute_as_the_table_says_when_of_any_two_dtypes() -> None:
    graph = Graph("pairs", {d.name: TensorType(d, ["n"]) for d in ALL}, promotion="kernel_float")
    arrays = {d: reference.samples(d, 12, i) for i, d in enumerate(ALL)}
    items: list[tuple[str, Symbol, Value]] = []
    for (left, right), want in TABLE.items():
        for name in ("+", "*", "max", "<", "=="):
            operands = graph[left.name], graph[right.name]
            if want is None:
                with pytest.raises(PromotionError, match=r"forbidden in kernel_float|do not mix in kernel_float"):
                    promoted.OPS[name](*operands)
                continue
            symbol = promoted.OPS[name](*operands)
            assert symbol.dtype is want, (name, left, right)
            values = [Value(arrays[d], d) for d in (left, right)]
            with np.errstate(all="ignore"):
                items.append((f"{left} {name} {right}", symbol, promoted.compute("kernel_float", name, values)))
    results = run(graph, [symbol for _, symbol, _ in items], *arrays.values())
    assert len(items) == 5 * (15 * 15 - 32 - 2)
    for (what, symbol, want_value), got in zip(items, results, strict=True):
        promoted.assert_value(what, symbol, got, want_value)


def test_dtypes_that_it_has_not_are_refused() -> None:
    for dtype in (D.int4, D.tensor_float32, D.index, D.int(23)):
        (x,) = symbols(dtype)
        with pytest.raises(PromotionError, match=f"kernel_float has no {dtype}"):
            x + x
        assert x.cast(D.float32).dtype is D.float32


def test_forbidden_pair_names_both_operands_and_a_fix() -> None:
    x, y = symbols(D.int32, D.uint16)
    with pytest.raises(PromotionError) as raised:
        x * y
    assert raised.value.summary == (
        "mul: mixing int32 and uint16 is forbidden in kernel_float: one is signed, the other is not"
    )
    assert raised.value.help == (
        "cast one of them: .cast(DType.uint16) or .cast(DType.int32); .cast(DType.int64) holds more of both"
    )
    assert "lhs  x0   int32[n]" in str(raised.value)


# Many operands, folded from the left


def folds(*dtypes: DType) -> DType | None:
    try:
        return system("kernel_float").resolve(Key("fma", "arithmetic"), [Operand(d) for d in dtypes]).result
    except NoPromotion:
        return None


def test_order_of_three_decides_whether_they_meet_for_80_multisets() -> None:
    labels = [d for d in ALL if d is not E5M2]  # the published 14
    answers = {
        chosen: {folds(*order) for order in itertools.permutations(chosen)}
        for chosen in itertools.combinations_with_replacement(labels, 3)
    }
    assert sum(len(item) > 1 for item in answers.values()) == 80
    assert all(len(item - {None}) <= 1 for item in answers.values()), "never two different dtypes"


def test_promotion_is_not_associative_for_320_triples() -> None:
    def meet(lhs: DType | None, rhs: DType | None) -> DType | None:
        return None if lhs is None or rhs is None else TABLE[lhs, rhs]

    triples = itertools.product([d for d in ALL if d is not E5M2], repeat=3)
    assert sum(meet(meet(a, b), c) is not meet(a, meet(b, c)) for a, b, c in triples) == 320


def test_fma_works_or_fails_by_the_order_of_its_operands() -> None:
    i, u, f = symbols(D.int32, D.uint32, D.float32)
    with pytest.raises(PromotionError, match="fma: mixing int32 and uint32 is forbidden"):
        ops.fma(i, u, f)
    assert ops.fma(f, i, u).dtype is D.float32


def test_fma_rounds_once_when_the_product_is_not_exact() -> None:
    one = {D.float16: 2.0**-10, D.bfloat16: 2.0**-7, D.float32: 2.0**-23, E4M3: 2.0**-3, E5M2: 2.0**-2}
    for dtype, last in one.items():
        tiny = {E4M3: 2.0**-9, E5M2: 2.0**-16}.get(dtype, 2.0**-24)
        x = np.array([1 + last, 1 + last, 1.0, -1.0, 1 + last, 3.0, 1 + last], np.float64)
        y = np.array([1 + last, 1 - last, last / 2, last / 2, 1 + last, np.inf, (1 - last) * last / 2], np.float64)
        z = np.array([tiny, -1.0, 1.0, 1.0 + last, -1 - 2 * last, -np.inf, 1 + last], np.float64)
        arrays = [v.astype(dtype.numpy) for v in (x, y, z)]
        graph = graph_of(dtype, dtype, dtype)
        (got,) = run(graph, [ops.fma(*graph.inputs)], *arrays)
        want = []
        for a, b, c in zip(*(v.astype(np.float64) for v in arrays), strict=True):
            if not np.isfinite(b):
                want.append(np.nan)
                continue
            true = Fraction(a) * Fraction(b) + Fraction(c)
            near = np.array(float(true), np.float32).astype(dtype.numpy)
            around = {float(near), *_neighbours(near, dtype)}
            best = min(around, key=lambda n: (abs(Fraction(n) - true), _is_odd(n, dtype)))
            want.append(best)
        assert np.array_equal(got.astype(np.float64), np.array(want), equal_nan=True), dtype


def _neighbours(value: Array, dtype: DType) -> list[float]:
    bits = value.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[value.dtype.itemsize])
    around = [np.array(int(bits) + step, bits.dtype).view(dtype.numpy) for step in (-1, 1) if int(bits) + step >= 0]
    return [v for v in (float(a.astype(np.float64)) for a in around) if np.isfinite(v)]


def _is_odd(value: float, dtype: DType) -> int:
    array = np.array(value, np.float32).astype(dtype.numpy)
    return int(array.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[array.dtype.itemsize])) % 2


# Vectors


def test_lengths_are_n_or_one_when_vectors_meet() -> None:
    n, one, scalar = symbols(TensorType(D.float32, [5]), TensorType(D.int32, [1]), TensorType(D.int8, []))
    assert (n + one).shape == (5,)
    assert (one + scalar).shape == (1,)
    assert (scalar + scalar).shape == ()
    assert ops.where(one, n, scalar).shape == (5,)
    assert ops.fma(one, scalar, n).shape == (5,)


def test_other_lengths_are_refused() -> None:
    x, y = symbols(TensorType(D.float32, [5]), TensorType(D.float32, [3]))
    for call in (
        operator.add,
        operator.lt,
        ops.maximum,
        lambda a, b: ops.fma(a, a, b),
        lambda a, b: ops.where(a, a, b),
    ):
        with pytest.raises(ShapeError, match=r"3 and 5|5 and 3"):
            call(x, y)


def test_symbolic_lengths_go_with_themselves_and_one() -> None:
    x, y, m = symbols(TensorType(D.int8, ["n"]), TensorType(D.float16, [1]), TensorType(D.float32, ["m"]))
    assert (x + y).shape == ("n",)
    assert (x * x).shape == ("n",)
    with pytest.raises(ShapeError, match="n and m"):
        x + m


def test_more_than_one_axis_is_refused() -> None:
    x, y = symbols(TensorType(D.float32, [2, 3]), TensorType(D.float32, [3]))
    calls: list[Callable[[], Any]] = [
        lambda: x + y, lambda: y + x, lambda: -x, lambda: ops.exp(x), lambda: ops.where(y, x, y), lambda: x + 1.0,
        lambda: ops.fma(y, y, x), lambda: ops.concat([x, x]), lambda: ops.vec(x),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ShapeError, match="more than one axis") as raised:
            call()
        assert "flatten" in raised.value.help


def test_vec_and_into_vec_make_vectors() -> None:
    graph = graph_of(TensorType(D.int8, []), TensorType(D.float32, [3]), TensorType(D.bool, ["n"]))
    a, b, c = graph.inputs
    assert ops.into_vec(b) is b
    results = [ops.into_vec(a), ops.vec(a, b, c, 2), ops.vec(a), ops.concat([b, c])]
    assert [s.dtype for s in results] == [D.int8, D.float32, D.int8, D.float32]
    assert results[1].shape[0] == c.shape[0] + 5
    got = run(graph, results, np.array(-3, np.int8), np.array([1, 2.5, 3], np.float32), np.array([True, False]))
    assert [g.tolist() for g in got] == [[-3], [-3, 1, 2.5, 3, 1, 0, 2], [-3], [1, 2.5, 3, 1, 0]]


def test_vec_is_refused_when_empty_or_of_matrices_or_of_dtypes_without_a_common_one() -> None:
    graph = graph_of(TensorType(D.int8, [2, 2]), D.uint8, D.int16)
    matrix, u, i = graph.inputs
    with pytest.raises(ShapeError, match="vec: expected one or more values"), graph:
        ops.vec()
    with pytest.raises(ShapeError, match="into_vec: x must be a scalar or a vector, got rank 2"):
        ops.into_vec(matrix)
    with pytest.raises(PromotionError, match="vec: mixing uint8 and int16 is forbidden"):
        ops.vec(u, i)


# Constants and literals


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_constant_takes_the_dtype_of_what_it_meets(dtype: DType) -> None:
    graph = graph_of(dtype)
    (x,) = graph.inputs
    c = graph.constant(3.14, ambiguous=True)
    assert str(c.type) == "float64?[]"
    results = [x + c, c * x, x < c, ops.maximum(c, x), ops.where(x, c, x), ops.fma(c, x, c)]
    assert [(s.dtype, s.ambiguous) for s in results] == [(dtype, False)] * 6
    value = reference.cast(np.array(3.14), D.float64, dtype)
    assert all(np.array_equal(n.producer.array, value) for s in results[:4] for n in _constants_of(s))
    array = reference.samples(dtype, 8, 1)
    got = run(graph, results[:2], array)
    for name, result in zip("+*", got, strict=True):
        with np.errstate(all="ignore"):
            want = promoted.compute("kernel_float", name, [Value(array, dtype), Value(value, dtype)])
        promoted.assert_value(name, x, result, want)


def _constants_of(symbol: Symbol) -> list[Any]:
    node: Any = symbol.producer
    if node.op_type == "Cast":  # of a truth value
        node = node.inputs[0].producer
    return [s for s in node.inputs if s.is_constant]


def test_constant_with_constant_is_a_constant_of_the_promoted_dtype() -> None:
    graph = graph_of(D.int8)
    (x,) = graph.inputs
    c, d = graph.constant(2, ambiguous=True), graph.constant(0.75, D.float32, ambiguous=True)
    assert str((c + d).type) == "float32?[]"
    assert str((-c).type) == "int32?[]"
    assert ops.fma(c, c, d).ambiguous
    assert ops.into_vec(c).ambiguous
    result = x * (c + d)
    assert (result.dtype, result.ambiguous) == (D.int8, False)
    (got,) = run(graph, [result], np.array([3, -4], np.int8))
    assert got.tolist() == [6, -8], "2.75 as int8 is 2"
    with pytest.raises(PromotionError, match="forbidden"):
        c + graph.constant(1, D.uint8, ambiguous=True)


def test_constant_beside_a_scalar_is_compared_as_cpp_does() -> None:
    # The dtypes that kernel_float's headers (f4e2d65b) give when they are compiled with g++.
    types = {"i": TensorType(D.int32, []), "f": TensorType(D.float32, []), "v": TensorType(D.float32, [2])}
    graph = Graph("scalars", types, promotion="kernel_float")
    i, f, v = graph.inputs
    c, d = graph.constant(2.5, ambiguous=True), graph.constant(1, ambiguous=True)
    plain = [c < i, i < c, c == f, f != d, d < 2, ops.logical_and(c, f), ops.logical_or(c, d), ops.logical_not(c)]
    assert [str(s.type) for s in plain] == ["bool[]"] * 8
    assert [str(s.type) for s in (c < v, v < c, c < d)] == ["float32[2]", "float32[2]", "float64?[]"]
    got = run(graph, plain, np.array(2, np.int32), np.array(2.5, np.float32), np.zeros(2, np.float32))
    assert [value.item() for value in got] == [False, False, True, True, True, True, True, False], "2.5 is 2 beside i"


def test_constant_says_so_when_the_system_has_none() -> None:
    graph = Graph("plain")
    with pytest.raises(GraphError, match="constant: promotion system max has no ambiguous dtypes"):
        graph.constant(1, ambiguous=True)


def test_python_numbers_are_literals_of_c() -> None:
    x, h, u, b = symbols(D.float32, D.float16, D.uint8, D.bool)
    assert (x + 1).dtype is D.float32
    assert (x + 1.0).dtype is D.float64, "a double, which is why there are constants"
    assert (h * 2.5).dtype is D.float64
    assert (h * 2).dtype is D.float16
    assert (b + 1).dtype is D.int32
    assert (b + True).dtype is D.bool
    assert (u + True).dtype is D.uint8
    assert (b + 2**40).dtype is D.int64
    assert (b + 2**63).dtype is D.uint64
    with pytest.raises(PromotionError, match="mixing uint8 and int32 is forbidden"):
        u + 1


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**30])
def test_integers_beyond_all_of_c_are_refused(value: int) -> None:
    x, f = symbols(D.int64, D.float32)
    for literal, symbol in ((value, x), (value, f)):
        with pytest.raises(DTypeError, match=f"{value} cannot be held in uint64"):
            symbol * literal


# What operations return


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_comparisons_and_logic_give_one_and_zero_in_the_dtype(dtype: DType) -> None:
    graph = graph_of(dtype, dtype)
    x, y = graph.inputs
    results = [x == y, x != y, x < y, x <= y, x > y, x >= y]
    results += [ops.logical_and(x, y), ops.logical_or(x, y), ops.logical_xor(x, y), ops.logical_not(x)]
    assert all(s.dtype is dtype for s in results)
    a, b = reference.samples(dtype, 30, 1), reference.samples(dtype, 30, 2)
    wide = [reference.exact(v) for v in (a, b)]
    truth = [v != 0 for v in wide]
    want = [reference.compare(o, a, b) for o in ("==", "!=", "<", "<=", ">", ">=")]
    want += [truth[0] & truth[1], truth[0] | truth[1], truth[0] ^ truth[1], ~truth[0]]
    for got, expected_truth in zip(run(graph, results, a, b), want, strict=True):
        assert np.array_equal(reference.exact(got), expected_truth.astype(np.longdouble))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bitwise_is_logical_and_tests_keep_the_dtype_when_of_floats(dtype: DType) -> None:
    graph = graph_of(dtype, dtype)
    x, y = graph.inputs
    results = [x & y, x | y, x ^ y, ops.is_nan(x), ops.is_inf(x), ops.is_finite(x)]
    assert all(s.dtype is dtype for s in results)
    a, b = reference.samples(dtype, 30, 1), reference.samples(dtype, 30, 2)
    p, q = reference.exact(a) != 0, reference.exact(b) != 0
    wide = reference.exact(a)
    want = [p & q, p | q, p ^ q, np.isnan(wide), np.isinf(wide), np.isfinite(wide)]
    for got, truth in zip(run(graph, results, a, b), want, strict=True):
        assert np.array_equal(reference.exact(got), truth.astype(np.longdouble))
    with pytest.raises(DTypeError, match=f"bitwise_not works on the bits of integers and bools.*{dtype}"):
        operator.invert(x)


def test_bits_are_combined_when_of_integers_and_bools() -> None:
    for dtype in (*INTEGERS, D.bool):
        graph = graph_of(dtype, dtype)
        x, y = graph.inputs
        a, b = reference.samples(dtype, 20, 1), reference.samples(dtype, 20, 2)
        got = run(graph, [x & y, x | y, x ^ y, ~x], a, b)
        assert all(np.array_equal(g, w) for g, w in zip(got, [a & b, a | b, a ^ b, ~a], strict=True))


MATH: list[Callable[..., Symbol]] = [
    ops.sin, ops.cos, ops.tan, ops.sqrt, ops.exp, ops.log, ops.erf, ops.abs, ops.floor, ops.ceil, ops.round, ops.trunc,
    ops.rsqrt, ops.is_nan, ops.is_inf, ops.is_finite, ops.tanh,
]  # fmt: skip


def test_math_takes_floats_and_keeps_them() -> None:
    for dtype in FLOATS:
        (x,) = symbols(dtype)
        assert [f(x).dtype for f in MATH] == [dtype] * len(MATH)
        assert (x**x).dtype is dtype
        assert ops.atan2(x, x).dtype is dtype


def test_math_refuses_integers_and_bools() -> None:
    for dtype in (*INTEGERS, D.bool):
        (x,) = symbols(dtype)
        powers: list[Callable[[Symbol], Symbol]] = [lambda v: v**v, lambda v: ops.atan2(v, v)]
        for function in (*MATH, *powers):
            with pytest.raises(DTypeError, match=f"takes only floating types in kernel_float, got {dtype}"):
                function(x)


def test_math_computes_what_numpy_does() -> None:
    graph = graph_of(D.float32, D.float16)
    x, h = graph.inputs
    values = np.array([0.25, 1.0, 2.5, 9.0], np.float32)
    got = run(graph, [ops.sqrt(x), ops.sqrt(h), ops.floor(h), x**h], values, values.astype(np.float16))
    assert np.array_equal(got[0], np.sqrt(values))
    assert np.array_equal(got[1], np.sqrt(values).astype(np.float16))
    assert np.array_equal(got[2], np.floor(values).astype(np.float16))
    np.testing.assert_allclose(got[3], values**values, rtol=4 * 2.0**-23)


def test_negation_is_refused_when_of_float8() -> None:
    for dtype in ALL:
        (x,) = symbols(dtype)
        if dtype in FLOAT8:
            with pytest.raises(DTypeError, match=f"negate has no meaning for {dtype}"):
                operator.neg(x)
            continue
        assert (-x).dtype is dtype
    x, y = symbols(E4M3, E4M3)
    assert (x - y).dtype is E4M3


def test_quotients_of_integers_truncate() -> None:
    for dtype in INTEGERS:
        graph = graph_of(dtype, dtype)
        x, y = graph.inputs
        pairs = [(7, 2), (7, 3), (5, 0), (0, 3), (100, 7)]
        if dtype.is_signed:
            pairs += [(-7, 2), (7, -2), (-7, -2), (int(dtype.min), -1), (-1, 2), (int(dtype.min), 3)]
        a, b = (np.array(v, dtype.numpy) for v in zip(*pairs, strict=True))
        (got,) = run(graph, [x / y], a, b)
        want = [0 if q == 0 else abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1) for p, q in pairs]
        assert got.tolist() == reference.wrapped(want, dtype).tolist(), dtype


def test_bools_add_by_or_and_multiply_by_and() -> None:
    graph = graph_of(D.bool, D.bool)
    x, y = graph.inputs
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    results = [x + y, x * y, x / y, ops.maximum(x, y), ops.fma(x, y, x), x - y, -x]
    assert all(s.dtype is D.bool for s in results)
    got = run(graph, results, a, b)
    assert [g.tolist() for g in got] == [v.tolist() for v in (a | b, a & b, a & b, a | b, a, a ^ b, a)]


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_reductions_keep_the_element_type(dtype: DType) -> None:
    graph = graph_of(dtype)
    (x,) = graph.inputs
    results = [ops.sum(x), ops.prod(x), ops.min(x), ops.max(x), ops.any(x), ops.all(x), ops.count_nonzero(x)]
    assert [s.dtype for s in results] == [*[dtype] * 4, D.bool, D.bool, D.int32]
    values = np.array([1, 0, 2, 3, 1], np.float32).astype(dtype.numpy)
    got = run(graph, results, values)
    if dtype is D.bool:
        assert [g.item() for g in got] == [True, False, False, True, True, False, 4]
    else:
        assert [float(g) for g in got] == [7, 0, 0, 3, 1, 0, 4]


def test_dot_products_have_the_promoted_dtype() -> None:
    for left, right in [(D.int8, D.int32), (D.bool, D.uint8), (D.int8, D.float16), (D.float16, D.bfloat16)]:
        graph = graph_of(left, right)
        x, y = graph.inputs
        result = ops.vecdot(x, y)
        assert result.dtype is TABLE[left, right]
        a, b = (np.array([1, 0, 1, 3], np.float32).astype(d.numpy) for d in (left, right))
        (got,) = run(graph, [result], a, b)
        assert float(got) == float(a.astype(np.float64) @ b.astype(np.float64))
    i, u = symbols(D.int8, D.uint8)
    with pytest.raises(PromotionError, match="vecdot: mixing int8 and uint8 is forbidden"):
        ops.vecdot(i, u)


def test_condition_is_cast_to_bool_and_takes_no_part() -> None:
    for condition in ALL:
        graph = graph_of(condition, D.int8, D.float16)
        c, x, y = graph.inputs
        result = ops.where(c, x, y)
        assert result.dtype is D.float16, condition
        a = np.array([0, 1, 0, 3], np.float32).astype(condition.numpy)
        (got,) = run(graph, [result], a, np.arange(4, dtype=np.int8), np.full(4, 9, np.float16))
        assert got.tolist() == [9, 1, 9, 3]


def test_casts_go_anywhere() -> None:
    for source in ALL:
        graph = graph_of(source)
        a = reference.samples(source, 12, 3)
        results = [graph.inputs[0].cast(target) for target in ALL]
        for target, symbol, got in zip(ALL, results, _identities(graph, results, a), strict=True):
            want = Value(reference.cast(a, source, target), target)
            promoted.assert_value(f"{source} as {target}", symbol, got, want)


def _identities(graph: Graph, result: list[Symbol], *arrays: Array) -> list[Array]:
    graph.output(**{f"out{i}": s for i, s in enumerate(result)})
    return list(gc.InferenceSession().load(graph)(*arrays))


def test_system_survives_the_exported_file(tmp_path: Any) -> None:
    graph = graph_of(D.int16, D.float16)
    x, y = graph.inputs
    graph.output(z=(x < y) + x)
    graph.export(tmp_path / "vectors.onnx")
    again = Graph.load(tmp_path / "vectors.onnx")
    assert again.promotion is system("kernel_float")
    with pytest.raises(GraphcoreError, match="more than one axis"):
        again["x0"] + np.zeros((2, 2), ml_dtypes.bfloat16)


def test_signed_meets_unsigned_when_one_is_cast() -> None:
    graph = graph_of(*SIGNED, *UNSIGNED)
    results = [s + u.cast(s.dtype) for s, u in zip(graph.inputs[:4], graph.inputs[4:], strict=True)]
    arrays = [reference.samples(s.dtype, 9, 4) for s in graph.inputs]
    for symbol, got, a, b in zip(results, run(graph, results, *arrays), arrays[:4], arrays[4:], strict=True):
        want = reference.wrapped(a.astype(object) + b.astype(object), symbol.dtype)
        assert np.array_equal(got, want)
