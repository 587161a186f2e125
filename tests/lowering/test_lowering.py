"""The traps of onnxruntime, one test each, and the nodes that lowering keeps.

Models run in a plain onnxruntime session with its default optimisations: an exported file must give the same numbers.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

from graphcore import DType, Graph, InferenceSession, TensorType, ops
from graphcore.arrays.casting import cast_array
from graphcore.errors import GraphError
from graphcore.ir.graph import TargetName
from graphcore.runtime.lowering import lower
from tests.support import reference
from tests.support.graphs import operators_on_newest

pytestmark = pytest.mark.releases

Array = np.ndarray[Any, Any]
D = DType
SIGNED = [D.int8, D.int16, D.int32, D.int64]
UNSIGNED = [D.uint8, D.uint16, D.uint32, D.uint64]
BF16, F16 = ml_dtypes.bfloat16, np.float16


def build(function: Callable[..., Any], *dtypes: DType, rank: int = 1) -> Graph:
    graph = Graph("trap", {f"x{i}": TensorType(d, [f"n{j}" for j in range(rank)]) for i, d in enumerate(dtypes)})
    result = function(*graph.inputs)
    graph.output(*(result if isinstance(result, (tuple, list)) else (result,)))
    return graph


def run(graph: Graph, *arrays: Array, optimised: bool = True, target: TargetName = "cpu") -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = graph.to_onnx(target=target).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    results: list[Array] = session.run(None, {s.name: a for s, a in zip(graph.inputs, arrays, strict=True)})
    return results


def run1(graph: Graph, *arrays: Array, optimised: bool = True) -> Array:
    (result,) = run(graph, *arrays, optimised=optimised)
    return result


def operators(graph: Graph) -> Counter[str]:
    return Counter(node.op_type for node in graph.nodes)


def same(got: Array, want: Array) -> bool:
    """Equal bits, any NaN being equal to any other."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if got.dtype.kind == "f":
        bits = f"u{got.dtype.itemsize}"
        return bool(((got.view(bits) == want.view(bits)) | (np.isnan(got) & np.isnan(want))).all())
    return bool((got == want).all())


# Integer division


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED], ids=str)
def test_integer_division_never_kills_the_process(dtype: DType) -> None:
    least = int(dtype.min)
    pairs = [(least, -1), (least, 0), (0, 0), (5, 0), (-5, 0), (least, 1), (7, -2), (-7, 2), (-7, -2), (7, 2), (0, -1)]
    results = [(x, y) for x, y in pairs if min(x, y) >= least]
    x, y = (np.array(column, dtype.numpy) for column in zip(*results, strict=True))
    quotient, rest = run(build(lambda a, b: [a // b, a % b], dtype, dtype), x, y)
    assert same(quotient, reference.arithmetic("//", x, y, dtype))
    assert same(rest, reference.arithmetic("%", x, y, dtype))


@pytest.mark.numbers
@pytest.mark.parametrize("optimised", [True, False])
@pytest.mark.parametrize("dtype", [D.int32, D.int64], ids=str)
def test_integer_division_of_constants_never_kills_the_process(dtype: DType, optimised: bool) -> None:
    least = int(dtype.min)
    graph = Graph("folded", {"x": TensorType(dtype, ["n"])})
    numbers = graph.constant([least, 9, 0], dtype)
    results = []
    for divisor in ([-1, 0, 0], -1, 0):
        y = graph.constant(divisor, dtype)
        results += [numbers // y, numbers % y]
    graph.output(*results, graph["x"] // -1, graph["x"] % 0, graph["x"] // 0)
    x = np.array([least, 3], dtype.numpy)
    got = [r.tolist() for r in run(graph, x, optimised=optimised)]
    assert got == [
        [least, 0, 0], [0, 0, 0], [least, -9, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [least, -3], [0, 0], [0, 0],
    ]  # fmt: skip


@pytest.mark.numbers
def test_integer_division_is_empty_when_operands_are_empty() -> None:
    graph = build(lambda a, b: [a // b, a % b], D.int32, D.int32)
    empty = np.zeros(0, np.int32)
    assert [r.shape for r in run(graph, empty, empty)] == [(0,), (0,)]


def test_division_by_a_harmless_constant_has_no_workaround() -> None:
    plain = lower(build(lambda a: [a // 3, a % np.array([[2], [5]], np.int32)], D.int32), "cpu")
    assert not operators(plain).keys() & {"Where", "Or"}
    unsigned = lower(build(lambda a: a // 3, D.uint32), "cpu")
    assert operators(unsigned) == {"Div": 1}
    guarded = lower(build(lambda a: [a // -1, a % np.array([[2], [0]], np.int32)], D.int32), "cpu")
    assert operators(guarded)["Where"] >= 2


# Casts that onnxruntime merges

MERGED: list[tuple[DType, DType, DType]] = [
    (D.float32, D.bfloat16, D.int8), (D.float32, D.bfloat16, D.float32), (D.float32, D.float16, D.float32),
    (D.float32, D.float8_e4m3fn, D.float32), (D.float32, D.float8_e5m2, D.float16), (D.int64, D.float64, D.int32),
    (D.int64, D.int8, D.int64), (D.int32, D.uint8, D.float32), (D.float32, D.int8, D.float32),
    (D.int64, D.bool, D.int64),
    (D.float64, D.float32, D.float64), (D.int32, D.int4, D.int32), (D.float32, D.uint4, D.int32),
    (D.int64, D.float32, D.int64), (D.float32, D.tf32, D.float32), (D.float64, D.float16, D.float64),
    (D.int32, D.float16, D.int32), (D.float32, D.bool, D.int32), (D.int32, D.int16, D.float64),
]  # fmt: skip


@pytest.mark.numbers
@pytest.mark.parametrize("optimised", [True, False])
@pytest.mark.parametrize(("first", "middle", "last"), MERGED, ids=str)
def test_cast_after_cast_keeps_what_the_first_one_did(
    first: DType, middle: DType, last: DType, optimised: bool
) -> None:
    values = reference.samples(first, 400, 3)
    graph = build(lambda x: x.cast(middle).cast(last), first)
    want = reference.cast(reference.cast(values, first, middle), middle, last)
    assert same(run1(graph, values, optimised=optimised), want)


@pytest.mark.numbers
@pytest.mark.parametrize("narrow", [D.float16, D.bfloat16, D.float8_e4m3fn, D.tf32], ids=str)
def test_chain_of_three_casts_keeps_each(narrow: DType) -> None:
    values = reference.samples(D.float64, 300, 4)
    graph = build(lambda x: x.cast(narrow).cast(D.float32).cast(D.int16).cast(D.float64), D.float64)
    want = values
    for source, target in ((D.float64, narrow), (narrow, D.float32), (D.float32, D.int16), (D.int16, D.float64)):
        want = cast_array(want, source, target)
    assert same(run1(graph, values), want)


# Rounding between ops


@pytest.mark.numbers
@pytest.mark.parametrize("optimised", [True, False])
@pytest.mark.parametrize("dtype", [D.float16, D.bfloat16, D.tf32, D.float8_e4m3fn, D.float8_e5m2], ids=str)
def test_every_op_rounds_when_several_follow_each_other(dtype: DType, optimised: bool) -> None:
    random = np.random.default_rng(0)
    x, y, z = (random.standard_normal(500).astype(np.float32) for _ in range(3))
    graph = build(lambda a, b, c: ((a.cast(dtype) * b.cast(dtype) + c.cast(dtype)) - b.cast(dtype)).cast(D.float32),
                  D.float32, D.float32, D.float32)  # fmt: skip
    a, b, c = (reference.cast(v, D.float32, dtype) for v in (x, y, z))
    result = reference.arithmetic("+", reference._float(np.multiply, dtype, a, b), c, dtype)
    want = reference.cast(reference.arithmetic("-", result, b, dtype), dtype, D.float32)
    assert same(run1(graph, x, y, z, optimised=optimised), want)


@pytest.mark.numbers
def test_float16_operands_and_results_round_when_fed_as_they_are() -> None:
    random = np.random.default_rng(0)
    x, y = (random.standard_normal(500).astype(F16) for _ in range(2))
    graph = build(lambda a, b: (a * b + b) / a, D.float16, D.float16)
    want = reference._float(
        np.divide, D.float16, reference.arithmetic("+", reference._float(np.multiply, D.float16, x, y), y, D.float16), x
    )
    assert same(run1(graph, x, y), want)


@pytest.mark.numbers
def test_movement_of_narrow_floats_keeps_their_bits() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
    for dtype in (D.bfloat16, D.float16):
        graph = Graph("move", {"x": TensorType(D.uint16, [256, 256])})
        (narrow,) = graph.op("BitCast", [graph["x"]], {"to": dtype}, [TensorType(dtype, [256, 256])])
        moved = ops.transpose(narrow, 0, 1)
        chosen = ops.where(graph["x"] < 40000, moved, narrow)
        (back,) = graph.op("BitCast", [chosen], {"to": D.uint16}, [TensorType(D.uint16, [256, 256])])
        graph.output(back)
        got = run1(graph, bits)
        want = np.where(bits < 40000, bits.T, bits)
        numbers = ~np.isnan(want.view(dtype.numpy).astype(np.float32))
        assert (got == want)[numbers].all()
        assert np.isnan(got.view(dtype.numpy).astype(np.float32))[~numbers].all()


# Casts to integers


@pytest.mark.numbers
@pytest.mark.parametrize("target", [D.int4, D.uint4, *SIGNED, *UNSIGNED, D.index], ids=str)
@pytest.mark.parametrize("source", [D.float16, D.float32, D.float64], ids=str)
def test_float_to_integer_truncates_and_saturates(source: DType, target: DType) -> None:
    least, greatest = float(target.min), float(target.max)
    edges = [0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 7.5, -8.9, np.nan, np.inf, -np.inf, greatest, least, 2.0**31, 2.0**32]
    edges += [2.0**63, 2.0**64, -(2.0**63), 1e30, -1e30, greatest / 2, 255.5, -128.5, 2.0**31 - 1, 2.0**24 + 1]
    with np.errstate(over="ignore"):
        values = np.array(edges, np.float64).astype(source.numpy)
    graph = build(lambda x: x.cast(target).cast(D.int64 if target is not D.index else D.uint64), source)
    want = reference.cast(values, source, target).astype(target.numpy)
    wide = D.uint64 if target is D.index else D.int64
    assert same(run1(graph, values), reference.cast(want, target, wide))


def test_float_constants_saturate_when_folded() -> None:
    values = np.array([1e30, -1e30, np.nan, 3.7], np.float32)
    graph = Graph("folded", {"x": TensorType(D.int32, [1])})
    large = graph.weight("large", np.tile(values, 400))
    graph.output(graph.constant(values).cast(D.int32) + graph["x"], large.cast(D.int32) + graph["x"])
    small, tiled = run(graph, np.zeros(1, np.int32))
    assert small.tolist() == [2**31 - 1, -(2**31), 0, 3]
    assert (tiled == np.tile(small, 400)).all()


@pytest.mark.numbers
@pytest.mark.parametrize("target", [D.float16, D.bfloat16, D.tf32, D.float8_e4m3fn, D.float8_e5m2], ids=str)
@pytest.mark.parametrize("source", [D.float64, D.int32, D.int64, D.uint32, D.uint64], ids=str)
def test_wide_numbers_are_rounded_once(source: DType, target: DType) -> None:
    mantissa = reference.FORMATS[target][0]
    if source is D.float64:
        ties = [(1 + odd * 2.0 ** -(mantissa + 1)) * 2.0**e for e in (-9, -3, 0, 4, 7) for odd in (1, 3)]
        values = np.array([f * (t + d * 2.0**-50) for t in ties for d in (-1, 0, 1) for f in (1, -1)])
    else:
        bits = source.bits - 1
        numbers = [(1 << e) + (1 << max(e - mantissa - 1, 0)) + d for e in range(2, bits) for d in (-1, 0, 1)]
        values = np.array(numbers, source.numpy)
        if source.is_signed:
            values = np.concatenate([values, -values, np.array([source.min], source.numpy)])
        else:
            values = np.concatenate([values, np.array([source.max], source.numpy)])
    graph = build(lambda x: x.cast(target).cast(D.float32), source)
    assert same(run1(graph, values), reference.cast(values, source, target).astype(np.float32))


@pytest.mark.numbers
@pytest.mark.parametrize("target", [D.float8_e4m3fn, D.float8_e5m2], ids=str)
def test_float8_overflows_to_nan_or_infinity(target: DType) -> None:
    values = np.array([440, 448, 463.9, 464, 464.1, 480, 1e9, 57344, 61439, 61440, 65536, np.inf, np.nan], np.float32)
    values = np.concatenate([values, -values])
    graph = build(lambda x: x.cast(target).cast(D.float32), D.float32)
    assert same(run1(graph, values), reference.cast(values, D.float32, target).astype(np.float32))


@pytest.mark.parametrize("source", [D.float8_e4m3fn, D.float8_e5m2, D.float16, D.bfloat16, D.float32], ids=str)
def test_minus_zero_is_false(source: DType) -> None:
    values = np.array([-0.0, 0.0, 1.0, np.nan, -1e-3], np.float32)
    graph = build(lambda x: x.cast(source).cast(D.bool), D.float32)
    assert run1(graph, values).tolist() == [False, False, True, True, True]


# tensor_float32

SPECIAL = np.array(
    [0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F800001, 0x7F801FFF, 0x7FFFFFFF,
     0xFFFFFFFF, 0x7FBFFFFF, 0x00000001, 0x00000FFF, 0x00001000, 0x00001001, 0x00003000, 0x7F7FFFFF, 0x7F7FF000,
     0x7F7FEFFF, 0xFF7FFFFF, 0x3F801000, 0x3F803000, 0x3F800FFF, 0x3F801001, 0x007FFFFF, 0x00800000],
    np.uint32,
).view(np.float32)  # fmt: skip


@pytest.mark.numbers
def test_tf32_rounds_every_special_pattern_when_fed() -> None:
    graph = Graph("tf32", {"x": TensorType(D.tf32, ["n"])})
    graph.output(graph["x"].cast(D.float32))
    with np.errstate(invalid="ignore"):
        want = reference.rounded(SPECIAL.astype(np.longdouble), D.tf32)
    assert same(run1(graph, SPECIAL), want)


@pytest.mark.numbers
def test_tf32_rounds_after_every_op() -> None:
    random = np.random.default_rng(2)
    x, y = (random.standard_normal(300).astype(np.float32) for _ in range(2))
    graph = build(lambda a, b: [a + b, a * b, ops.sqrt(ops.abs(a)), a.cast(D.float64).cast(D.tf32)], D.tf32, D.tf32)
    a, b = (reference.cast(v, D.float32, D.tf32) for v in (x, y))
    want = [reference._float(f, D.tf32, a, b) for f in (np.add, np.multiply)]
    want += [reference._float(np.sqrt, D.tf32, np.abs(a)), a]
    for got, wanted in zip(run(graph, x, y), want, strict=True):
        assert same(got, wanted)


# Kernels that give other numbers

LOW_WORDS = [
    ([24, 5], [2326880433, 3]),
    ([2**32 + 1, -1], [2**32 + 2**31, -(2**31) - 5]),
    ([-(2**63), 2**63 - 1], [-(2**63) + 2**31, 2**63 - 2**31 - 7]),
]


@pytest.mark.numbers
@pytest.mark.parametrize(("lhs", "rhs"), LOW_WORDS)
def test_int64_max_and_min_compare_whole_numbers(lhs: list[int], rhs: list[int]) -> None:
    x, y = np.array(lhs), np.array(rhs)
    greater, less = run(build(lambda a, b: [ops.maximum(a, b), ops.minimum(a, b)], D.int64, D.int64), x, y)
    assert same(greater, np.maximum(x, y))
    assert same(less, np.minimum(x, y))


@pytest.mark.numbers
def test_int64_clip_compares_whole_numbers() -> None:
    graph = Graph("clip", {"x": TensorType(D.int64, ["n"])})
    x = graph["x"]
    both = graph.op("Clip", [x, graph.constant(24), graph.constant(2326880433)])
    low = graph.op("Clip", [x, graph.constant(2326880433)])
    high = graph.op("Clip", [x, None, graph.constant(24)])
    graph.output(*both, *low, *high, *graph.op("Clip", [x]))
    values = np.array([5, 24, 3000000000, 2326880433, -1, 2**40])
    got = run(graph, values)
    want = [np.clip(values, 24, 2326880433), np.maximum(values, 2326880433), np.minimum(values, 24), values]
    assert all(same(g, w) for g, w in zip(got, want, strict=True))


@pytest.mark.numbers
def test_uint64_is_compared_above_2_63() -> None:
    x = np.array([2**63, 2**64 - 1, 5, 2**63 - 1, 0], np.uint64)
    y = np.array([2**63 - 1, 2**63, 2**63 + 5, 2**63 - 1, 2**64 - 1], np.uint64)
    comparisons: list[Callable[..., Any]] = [
        operator.lt,
        operator.le,
        operator.gt,
        operator.ge,
        operator.eq,
        operator.ne,
    ]
    extremes = [ops.maximum, ops.minimum]
    graph = build(lambda a, b: [f(a, b) for f in (*comparisons, *extremes)], D.uint64, D.uint64)
    functions: list[Callable[..., Any]] = [*comparisons, np.maximum, np.minimum]
    want = [f(x, y) for f in functions]
    assert all(same(g, w) for g, w in zip(run(graph, x, y), want, strict=True))


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [D.float16, D.bfloat16, D.float32, D.float64], ids=str)
def test_where_keeps_the_sign_of_zero(dtype: DType) -> None:
    graph = Graph("where", {"c": TensorType(D.bool, ["n"]), "x": TensorType(D.float32, ["n"])})
    condition, x = graph["c"], graph["x"].cast(dtype)
    chosen = [ops.where(condition, x, -x), ops.where(condition, x, -0.0), ops.where(condition, 0.0, x)]
    chosen += [ops.where(condition, x, 0.5), ops.where(condition, 0.5, x)]
    graph.output(*[c.cast(D.float32) for c in chosen])
    x_values = np.array([0.0, -0.0, 0.0, -0.0, 1.0, np.nan], np.float32)
    c_values = np.array([True, True, False, False, True, False])
    got = run(graph, c_values, x_values)
    want = [
        np.where(c_values, x_values, -x_values),
        np.where(c_values, x_values, -0.0),
        np.where(c_values, 0.0, x_values),
        np.where(c_values, x_values, 0.5),
        np.where(c_values, 0.5, x_values),
    ]
    assert all(same(g, w.astype(np.float32)) for g, w in zip(got, want, strict=True))


@pytest.mark.numbers
def test_where_of_bools_and_narrow_integers_chooses() -> None:
    values = {d: reference.samples(d, 60, 7) for d in (D.bool, D.int4, *SIGNED, *UNSIGNED)}
    condition = np.arange(60) % 3 == 0
    for dtype, x in values.items():
        graph = Graph(
            "where", {"c": TensorType(D.bool, ["n"]), "x": TensorType(D.int8 if dtype is D.int4 else dtype, ["n"])}
        )
        narrow = graph["x"].cast(dtype)
        (flipped,) = graph.op("Identity", [ops.where(graph["c"], narrow, ~narrow)])
        graph.output(flipped.cast(graph["x"].dtype))
        fed = x.astype(np.int8) if dtype is D.int4 else x
        assert same(run1(graph, condition, fed), np.where(condition, fed, ~fed)), dtype


@pytest.mark.numbers
def test_sigmoid_is_right_below_minus_18() -> None:
    x = np.array([-17.0, -18.0, -18.5, -30.0, -80.0, -88.0, -100.0, 0.0, 20.0, np.inf, -np.inf, np.nan], np.float32)
    graph = Graph("sigmoid", {"x": TensorType(D.float32, ["n"])})
    graph.output(*graph.op("Sigmoid", [graph["x"]]))
    with np.errstate(over="ignore"):
        want = 1 / (1 + np.exp(-x.astype(np.float64)))
    got = run1(graph, x).astype(np.float64)
    near = np.abs(got - want) <= np.maximum(4 * 2.0**-23 * want, 1e-30)
    assert (near | (np.isnan(got) & np.isnan(want)) | (got == want)).all()


@pytest.mark.numbers
def test_integer_power_is_exact_above_2_53() -> None:
    x = np.array([3, -3, 2**31 - 1, 7, 10, -1, 2], np.int64)
    y = np.array([39, 39, 2, 22, 18, -3, 63], np.int64)
    got = run1(build(operator.pow, D.int64, D.int64), x, y)
    assert same(got, reference.arithmetic("**", x, y, D.int64))


@pytest.mark.numbers
def test_unsigned_negation_wraps() -> None:
    for dtype in UNSIGNED:
        x = reference.samples(dtype, 40, 1)
        assert same(run1(build(operator.neg, dtype), x), reference.wrapped([-int(v) for v in x], dtype))


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", SIGNED, ids=str)
def test_right_shift_of_signed_is_arithmetic(dtype: DType) -> None:
    x = reference.samples(dtype, 120, 1)
    count = np.resize(np.array([0, 1, 2, 7, 8, 31, 63, 64, -1, 100], dtype.numpy), 120)
    right, left = run(build(lambda a, n: [a >> n, a << n], dtype, dtype), x, count)
    assert same(right, reference.shift(">>", x, count, dtype))
    assert same(left, reference.shift("<<", x, count, dtype))


# Reductions


def reduced(op_type: str, dtype: DType, keepdims: int = 0) -> Graph:
    graph = Graph("reduced", {"x": TensorType(dtype, ["n", "m"])})
    shape: list[int | str] = ["n", 1] if keepdims else ["n"]
    if op_type.startswith("Arg"):
        attributes = {"axis": 1, "keepdims": keepdims}
        result = graph.op(op_type, [graph["x"]], attributes, [TensorType(D.int64, shape)])
    else:
        operands = [graph["x"], graph.vector([1])]
        result = graph.op(op_type, operands, {"keepdims": keepdims}, [TensorType(dtype, shape)])
    graph.output(*result)
    return graph


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED], ids=str)
def test_integer_sums_and_products_wrap(dtype: DType) -> None:
    x = reference.samples(dtype, 60, 9).reshape(6, 10)
    assert same(run1(reduced("ReduceSum", dtype), x), reference.wrapped(x.astype(object).sum(axis=1), dtype))
    assert same(run1(reduced("ReduceProd", dtype), x), reference.wrapped(x.astype(object).prod(axis=1), dtype))
    nothing = np.zeros((2, 0), dtype.numpy)
    assert run1(reduced("ReduceSum", dtype), nothing).tolist() == [0, 0]
    assert run1(reduced("ReduceProd", dtype), nothing).tolist() == [1, 1]


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [D.float16, D.float32, D.float64], ids=str)
def test_reductions_see_nan_wherever_it_is(dtype: DType) -> None:
    x = np.array([[np.nan, 1, 2], [1, np.nan, 2], [1, 2, np.nan], [3, 1, 3], [-1, -np.inf, np.inf]], dtype.numpy)
    assert same(run1(reduced("ReduceMax", dtype), x), x.max(axis=1))
    assert same(run1(reduced("ReduceMin", dtype, 1), x), x.min(axis=1, keepdims=True))
    assert same(run1(reduced("ArgMax", dtype), x), x.argmax(axis=1))
    assert same(run1(reduced("ArgMin", dtype, 1), x), x.argmin(axis=1, keepdims=True))


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED], ids=str)
def test_extremes_of_integers_are_exact(dtype: DType) -> None:
    x = reference.samples(dtype, 60, 9).reshape(6, 10)
    assert same(run1(reduced("ReduceMax", dtype), x), x.max(axis=1))
    assert same(run1(reduced("ReduceMin", dtype), x), x.min(axis=1))
    assert same(run1(reduced("ArgMax", dtype), x), x.argmax(axis=1))
    assert same(run1(reduced("ArgMin", dtype), x), x.argmin(axis=1))


@pytest.mark.numbers
def test_top_k_of_uint64_counts_above_2_63() -> None:
    graph = Graph("top", {"x": TensorType(D.uint64, ["n"])})
    graph.output(*graph.op("TopK", [graph["x"], graph.vector([3])]))
    values, places = run(graph, np.array([5, 2**64 - 1, 0, 2**63, 2**63 - 1], np.uint64))
    assert values.tolist() == [2**64 - 1, 2**63, 2**63 - 1]
    assert places.tolist() == [1, 3, 4]


@pytest.mark.numbers
def test_product_of_bool_matrices_is_or_of_ands() -> None:
    random = np.random.default_rng(0)
    x, y = random.random((5, 300)) < 0.1, random.random((300, 4)) < 0.1
    graph = Graph("matmul", {"x": TensorType(D.bool, [5, "k"]), "y": TensorType(D.bool, ["k", 4])})
    graph.output(*graph.op("MatMul", [graph["x"], graph["y"]], None, [TensorType(D.bool, [5, 4])]))
    assert same(run1(graph, x, y), reference.product(x, y, D.bool))


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [D.int8, D.int32, D.uint8, D.uint32, D.uint64, D.float32, D.bfloat16], ids=str)
def test_product_of_matrices_without_columns_is_zero(dtype: DType) -> None:
    graph = Graph("matmul", {"x": TensorType(D.int32, [2, "k"]), "y": TensorType(D.int32, ["k", 3])})
    graph.output((graph["x"].cast(dtype) @ graph["y"].cast(dtype)).cast(D.int32))
    assert run1(graph, np.zeros((2, 0), np.int32), np.zeros((0, 3), np.int32)).tolist() == [[0] * 3] * 2
    assert run1(graph, np.ones((2, 4), np.int32), np.ones((4, 3), np.int32)).tolist() == [[4] * 3] * 2


# What lowering leaves alone


def test_legal_graph_is_returned_as_it_is() -> None:
    graph = Graph("legal", {"x": TensorType(D.float32, ["n", 4])})
    graph.output(y=ops.exp(graph["x"] @ graph.weight("w", np.ones((4, 3), np.float32)) + 1.5))
    for target in ("onnx", "cpu", "cuda"):
        assert lower(graph, target) is graph


def test_graph_is_not_touched_when_it_is_lowered() -> None:
    graph = build(lambda a, b: (a * b) // 2, D.int8, D.bfloat16)
    before = str(graph)
    assert lower(graph, "cpu") is not graph
    assert str(graph) == before
    assert graph.to_onnx() == graph.to_onnx()


def test_onnx_target_keeps_ops_as_they_are_built() -> None:
    graph = build(lambda a, b: [a + b, ops.exp(a), a < b], D.float16, D.float16)
    assert lower(graph, "onnx") is graph
    assert operators(lower(build(operator.add, D.bfloat16, D.bfloat16), "onnx")) == {"Add": 1}
    assert operators(lower(build(operator.add, D.float16, D.float16), "cpu"))["Cast"] == 3


def test_onnx_target_rewrites_only_what_onnx_has_no_type_for() -> None:
    graph = build(lambda a, b: [a + a, b * b], D.index, D.tf32)
    changed = lower(graph, "onnx")
    assert [s.dtype for s in changed.inputs] == [D.uint64, D.float32]
    assert [s.dtype for s in changed.outputs] == [D.uint64, D.float32]
    assert operators(changed)["Add"] >= 1
    onnx.checker.check_model(graph.to_onnx(target="onnx"), full_check=True)


def test_lowered_nodes_keep_layer_and_line() -> None:
    graph = Graph("g", {"x": TensorType(D.int8, ["n"]), "y": TensorType(D.bfloat16, ["n"])})
    with graph.layer("first"):
        x = graph["x"] // 3 + graph["y"]
    with graph.layer("second"):
        y = ops.exp(x)
    graph.output(made=y)
    lines: dict[str, set[str]] = {node.layer: set() for node in graph.nodes}
    for node in graph.nodes:
        lines[node.layer].add(str(node.line))
    changed = lower(graph, "cpu")
    assert {n.layer for n in changed.nodes} == {"first/", "second/"}
    for node in changed.nodes:
        assert str(node.line) in lines[node.layer]


def test_names_of_inputs_outputs_and_values_are_kept() -> None:
    graph = Graph("g", {"a": TensorType(D.bfloat16, ["n"]), "b": TensorType(D.index, ["n"])})
    hidden = graph["a"] * 2
    hidden.name = "hidden"
    graph.output(hidden, cast=hidden.cast(D.float32), same=graph["b"], again=hidden)
    changed = lower(graph, "cpu")
    assert [s.name for s in changed.inputs] == ["a", "b"]
    assert list(changed.output_types) == ["hidden", "cast", "same", "again"]
    assert [t.dtype for t in changed.output_types.values()] == [D.bfloat16, D.float32, D.uint64, D.bfloat16]  # type: ignore[union-attr]
    assert [o.name for o in graph.to_onnx().graph.output] == ["hidden", "cast", "same", "again"]


def test_weights_are_not_copied_when_lowered() -> None:
    weight = np.ones((64, 64), BF16)
    graph = Graph("g", {"x": TensorType(D.bfloat16, ["n", 64])})
    graph.output(graph["x"] @ graph.weight("w", weight))
    remaining = lower(graph, "cpu").weights["w"].producer
    assert remaining.array is weight  # type: ignore[union-attr]


def test_casts_are_shared_when_an_operand_is_used_twice() -> None:
    graph = lower(build(lambda a: [a + a, a * a, ops.exp(a)], D.bfloat16), "cpu")
    widened = [n for n in graph.nodes if n.op_type == "Cast" and n.inputs[0] is graph.inputs[0]]
    assert len(widened) == 1


def test_op_without_a_way_names_the_target_and_a_fix() -> None:
    graph = Graph("g", {"x": TensorType(D.int32, ["n", "n"])})
    (result,) = graph.op("Gemm", [graph["x"], graph["x"]], {"alpha": 0.5}, [TensorType(D.int32, ["n", "n"])])
    graph.output(result)
    with pytest.raises(GraphError) as raised:
        graph.to_onnx(target="cpu")
    assert raised.value.summary == "Gemm: the cpu target cannot compute it in int32"
    assert raised.value.help == "cast the operands to float32 first: .cast(DType.float32)"
    assert "input 0" in str(raised.value)


def test_integer_sum_is_refused_when_its_axes_are_not_known() -> None:
    graph = Graph("axes", {"x": TensorType(DType.int32, ["n", 3]), "axes": TensorType(DType.int64, [1])})
    x, axes = graph.inputs
    graph.output(*graph.op("ReduceSum", [x, axes], {"keepdims": 0}, [TensorType(DType.int32, ["?"])]))
    with pytest.raises(GraphError, match="a reduction of integers needs axes that are known"):
        graph.to_onnx()


@pytest.mark.numbers
@pytest.mark.parametrize("place", ["before", "after", "divided"])
def test_factor_of_a_float64_product_keeps_its_digits(place: str) -> None:
    a, b = np.random.default_rng(0).standard_normal((2, 4, 4))
    graph = Graph("scaled", {"a": TensorType(DType.float64, ["n", 4]), "b": TensorType(DType.float64, [4, "m"])})
    x, y = graph.inputs
    graph.output(
        {"before": lambda: (x * 0.3) @ y, "after": lambda: (x @ y) * 0.3, "divided": lambda: (x @ y) / 0.3}[place]()
    )
    want = {"before": (a * 0.3) @ b, "after": (a @ b) * 0.3, "divided": (a @ b) / 0.3}[place]
    (got,) = onnxruntime.InferenceSession(graph.to_onnx().SerializeToString()).run(None, {"a": a, "b": b})
    assert np.abs(got - want).max() < 1e-14


def test_product_with_a_vector_is_detoured_only_where_there_may_be_no_rows() -> None:
    def operators(rows: str | int, right: list[str | int], target: TargetName) -> list[str]:
        types = {"x": TensorType(DType.float32, [rows, 4]), "y": TensorType(DType.float32, right)}
        graph = Graph("product", types)
        graph.output(graph["x"] @ graph["y"])
        return [node.op_type for node in lower(graph, target).nodes]

    assert operators("n", [4], "cpu") == ["Unsqueeze", "MatMul", "Squeeze"]
    assert operators("n", [4], "onnx") == operators(3, [4], "cpu") == operators("n", [4, 5], "cpu") == ["MatMul"]


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [D.float16, D.bfloat16, D.tensor_float32, D.float32, D.float64], ids=str)
def test_sum_with_zero_takes_the_sign_of_zero_away(dtype: DType) -> None:
    graph = Graph("zero", {"x": TensorType(dtype, ["n"])})
    negative = -graph["x"]
    zero = graph.constant([0.0], dtype)
    results = [
        negative + 0,
        0.0 + negative,
        negative + zero,
        negative - graph.constant([-0.0], dtype),
        negative + -0.0,
        negative - 0.0,
    ]
    graph.output(*[m.cast(D.float32) for m in results])
    got = InferenceSession().load(graph)(np.array([0.0, -0.0, 1.0], dtype.numpy))
    for result in got[:4]:
        assert np.signbit(result).tolist() == [False, False, True]
    for result in got[4:]:
        assert np.signbit(result).tolist() == [True, False, True]


@pytest.mark.parametrize("dtype", [DType.float32, DType.float64])
@pytest.mark.parametrize("shape", [(14, 14), (1, 14), (14,)])
def test_where_of_compared_numbers_chooses_bits_without_branches(dtype: DType, shape: tuple[int, ...]) -> None:
    special = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 1e-40, -3.5, 2.0**-126]
    values = np.array([*special, *-np.array(special[5:9])], dtype.numpy)
    unknown = np.full(1, np.nan, dtype.numpy).view(f"u{dtype.bits // 8}") | 12345  # a NaN with other bits
    values[3] = unknown.view(dtype.numpy)[0]
    types = {n: TensorType(dtype, s) for n, s in (("a", shape), ("b", (14,)), ("x", (14, 14)), ("y", (14,)))}
    graph = Graph("g", types)
    with graph:
        condition = graph["a"] > graph["b"]
        chosen: list[tuple[Any, Any]] = [(graph["x"], graph["y"]), (graph["y"], graph["x"]), (graph["x"], 0.0)]
        graph.output(*(ops.where(condition, *operands) for operands in chosen))
    random = np.random.default_rng(0)
    a, b, x, y = (random.choice(values, t.shape) for t in types.values())
    results = InferenceSession(intra_op_num_threads=1).load(graph)(a, b, x, y)
    for result, wanted in zip(
        results, (np.where(a > b, x, y), np.where(a > b, y, x), np.where(a > b, x, 0)), strict=True
    ):
        assert result.tobytes() == wanted.astype(dtype.numpy).tobytes()
    assert "Where" not in operators_on_newest(graph)
