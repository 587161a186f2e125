"""The values of integers of more than 64 bits, in limbs or in 64 bits where no more are used."""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.arrays import big_integers
from graphcore.errors import DTypeError, FeedError
from graphcore.ir.graph import TargetName
from graphcore.runtime.lowering import lower
from graphcore.runtime.lowering.dtypes.integers.wide.operators import SUPPORTED_WIDE
from graphcore.types.tensor_types import Type
from tests.sampling import drawn
from tests.support.wide import Array, Known, dtypes, graph_of, run, samples, trees, values, wrap

pytestmark = pytest.mark.releases

I96, U96, I200 = DType.int(96), DType.uint(96), DType.int(200)


def operators(graph: Graph, target: TargetName = "cpu") -> Counter[str]:
    return Counter(node.op_type for node in lower(graph, target).nodes)


@pytest.mark.numbers
@settings(max_examples=drawn(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(trees(1, 200, 8, divides=True))
def test_trees_agree_with_python_integers(tree: tuple[Graph, list[Array], list[Known]]) -> None:
    graph, arrays, outputs = tree
    results = gc.InferenceSession(intra_op_num_threads=1).load(graph).execute(*arrays, wide="object")
    for item, result in zip(outputs, results, strict=True):
        assert result.dtype == item.dtype.numpy
        assert result.tolist() == item.values, f"{item.symbol}\n{graph}"


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(trees(60, 140, 6, divides=True))
def test_trees_are_valid_onnx_on_every_target(tree: tuple[Graph, list[Array], list[Known]]) -> None:
    graph = tree[0]
    targets: tuple[TargetName, ...] = ("onnx", "cpu")
    for target in targets:
        onnx.checker.check_model(graph.to_onnx(target=target), full_check=True)
    lower(graph, "cuda")


# Products and quotients


@pytest.mark.numbers
@pytest.mark.parametrize("factors", [[DType.int32] * 3, [DType.int(48)] * 2, [DType.uint32] * 3, [DType.int64] * 4])
def test_products_are_exact_when_their_dtype_holds_them(factors: list[DType]) -> None:
    product = DType.int(sum(d.bits for d in factors) + 1)
    arrays = [samples(d, seed=i).astype(d.numpy) for i, d in enumerate(factors)]

    def multiplied(*xs: Symbol) -> Symbol:
        return functools.reduce(operator.mul, [x.cast(product) for x in xs])

    (result,) = run(multiplied, factors, *arrays)
    assert result.tolist() == [math.prod(map(int, row)) for row in zip(*arrays, strict=True)]


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [DType.int(65), I96, U96, DType.uint(130), I200], ids=str)
def test_quotients_follow_python_when_both_operands_are_wide(dtype: DType) -> None:
    x, y = samples(dtype, 150, 1), samples(dtype, 150, 2)
    y[20:30] = [0, 1, 2, 3, 1 << 31, 1 << 32, (1 << 32) - 1, 7, 1 << 60, 10]
    x[0], y[0] = int(dtype.min), -1 if dtype.is_signed else 1

    def all_of(a: Symbol, b: Symbol) -> tuple[Symbol, ...]:
        truncated = a.graph.build.emit("Div", (a, b), a.type)
        rest = a.graph.build.emit("Mod", (a, b), a.type, {"fmod": 1})
        return a // b, a % b, truncated, rest, a // 7, a % 1000000007

    floor, mod, quotient, rest, by7, mod_prime = (r.tolist() for r in run(all_of, [dtype, dtype], x, y))
    pairs = list(zip(map(int, x), map(int, y), strict=True))
    assert floor == [wrap(a // b, dtype) if b else 0 for a, b in pairs]
    assert mod == [a % b if b else 0 for a, b in pairs]
    truncated = [(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1) if b else 0 for a, b in pairs]
    assert quotient == [wrap(q, dtype) for q in truncated]
    assert rest == [a - q * b if b else 0 for q, (a, b) in zip(truncated, pairs, strict=True)]
    assert by7 == [a // 7 for a, _ in pairs]
    assert mod_prime == [a % 1000000007 for a, _ in pairs]


@pytest.mark.numbers
def test_differences_wrap_when_their_upper_limbs_have_wrapped_before() -> None:
    dtype = DType.int(97)
    x = samples(dtype)
    results = [r.tolist() for r in run(lambda a: (a - (a + a**3), ~(a**3), -(a**5 + a)), [dtype], x)]
    exact = [int(v) for v in x]
    assert results[0] == [wrap(-(v**3), dtype) for v in exact]
    assert results[1] == [wrap(~(v**3), dtype) for v in exact]
    assert results[2] == [wrap(-(v**5 + v), dtype) for v in exact]


# Casts


@pytest.mark.numbers
@settings(max_examples=drawn(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_casts_wrap_when_they_narrow_and_keep_when_they_widen(data: st.DataObject) -> None:
    source, target = data.draw(dtypes(1, 260)), data.draw(dtypes(1, 260))
    array = np.array(data.draw(st.lists(values(source), min_size=5, max_size=5)), source.numpy)
    (result,) = run(lambda x: x.cast(target), [source], array)
    assert result.tolist() == [wrap(int(v), target) for v in array]


def nearest(value: int, dtype: DType) -> float:
    """The float of a dtype nearest to an integer, ties to even; found among the neighbours of a first guess."""
    with np.errstate(over="ignore"):
        array = np.array(value, np.float64).astype(dtype.numpy)
    bits = array.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[array.dtype.itemsize])
    near = [(bits + np.array(step).astype(bits.dtype)).astype(bits.dtype) for step in (-2, -1, 0, 1, 2)]
    results = [(b, float(b.view(dtype.numpy))) for b in near]
    if any(not math.isfinite(f) for _, f in results):
        return float(array)
    return min(results, key=lambda pair: (abs(Fraction(pair[1]) - value), int(pair[0]) & 1))[1]


@pytest.mark.numbers
@pytest.mark.parametrize("target", [DType.float64, DType.float32, DType.float16, DType.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", [DType.int(66), I96, DType.uint(97), I200], ids=str)
def test_casts_to_floats_round_once_when_integers_are_wide(dtype: DType, target: DType) -> None:
    results = [int(v) for v in samples(dtype, 200)]
    for bits in range(8, dtype.bits - 1):  # midpoints, and what is just beside them
        for odd in (3, 5, (1 << 24) + 1, (1 << 25) + 3, (1 << 53) + 1, (1 << 54) + 6, (1 << 8) + 1, (1 << 11) + 1):
            results += [odd << bits, (odd << bits) + 1, (odd << bits) - 1]
    results = [v for v in results if int(dtype.min) <= v <= int(dtype.max)]
    if dtype.is_signed:
        results += [-v for v in results if v != int(dtype.min)]
    (result,) = run(lambda x: x.cast(target), [dtype], np.array(results, object))
    assert result.astype(np.float64).tolist() == [nearest(v, target) for v in results]


@pytest.mark.numbers
@pytest.mark.parametrize("source", [DType.float64, DType.float32, DType.float16, DType.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", [DType.int(65), I96, U96, DType.uint(77), I200], ids=str)
def test_casts_of_floats_truncate_and_saturate_when_integers_are_wide(dtype: DType, source: DType) -> None:
    random = np.random.default_rng(0)
    floats = [0.0, -0.0, 0.99, -0.99, 1.5, -1.5, np.inf, -np.inf, np.nan, 1e300, -1e300]
    floats += [sign * 2.0**p * f for p in range(50, 210, 3) for f in (1, 1.3, 1.99999) for sign in (1, -1)]
    floats += (random.standard_normal(50) * 2.0 ** random.integers(0, 120, 50)).tolist()
    with np.errstate(over="ignore"):
        array = np.array(floats).astype(source.numpy)
    (result,) = run(lambda x: x.cast(dtype), [source], array)
    least, greatest = int(dtype.min), int(dtype.max)
    exact = array.astype(np.float64).tolist()
    assert result.tolist() == [
        0 if math.isnan(v) else greatest if v >= greatest else least if v <= least else int(v) for v in exact
    ]


@pytest.mark.numbers
def test_casts_to_bool_ask_every_digit() -> None:
    array = np.array([0, 1, 1 << 40, 1 << 95, 1 << 64], object)
    (result,) = run(lambda x: x.cast(DType.bool), [U96], array)
    assert result.tolist() == [False, True, True, True, True]


# Movement and shapes


@pytest.mark.numbers
def test_movement_keeps_values_when_they_are_wide() -> None:
    x = samples(I96, 12).reshape(3, 4)
    places = np.array([2, 0], np.int64)

    def moved(a: Symbol) -> tuple[Symbol, ...]:
        return (
            ops.transpose(a, 0, 1), ops.reshape(a, [12]), a[1:, ::-1], ops.gather(a, ops.constant(places), axis=0),
            ops.concat([a, a * a], axis=1), ops.unsqueeze(a, 1), ops.pad(a, [1, 0, 0, 2]), ops.tile(a, [2, 1]),
            *ops.split(a, [1, 3], axis=1), ops.broadcast_to(a[:1], [5, 4]),
        )  # fmt: skip

    results = run(moved, [TensorType(I96, [3, 4])], x)
    squared = np.array([[wrap(int(v) ** 2, I96) for v in row] for row in x], object)
    wanted = [
        x.T, x.reshape(12), x[1:, ::-1], x[places], np.concatenate([x, squared], 1), x[:, None],
        np.pad(x, ((1, 0), (0, 2))), np.tile(x, (2, 1)), x[:, :1], x[:, 1:], np.broadcast_to(x[:1], (5, 4)),
    ]  # fmt: skip
    for result, expected in zip(results, wanted, strict=True):
        assert result.tolist() == expected.tolist()


@pytest.mark.numbers
@pytest.mark.parametrize("shapes", [([3, 1], [1, 4]), ([], [3]), ([2, 3], [3]), ([0], [1])], ids=str)
def test_operands_broadcast_when_they_are_wide(shapes: tuple[list[int], list[int]]) -> None:
    x, y = (samples(I96, 20, i)[: math.prod(s)].reshape(s) for i, s in enumerate(shapes))
    small = np.array(range(math.prod(shapes[1])), np.int32).reshape(shapes[1])

    def all_of(a: Symbol, b: Symbol, c: Symbol) -> tuple[Symbol, ...]:
        wide = c.cast(I96)
        return (
            a + b, a * b, a - wide, a < b, a == wide, ops.max(a, b), ops.where(a < b, a, b), a & b, a << wide,
            a >> c, wide + (1 << 80), ops.where(c > 1, a, 1 << 90), a + 5,
        )  # fmt: skip

    types = [TensorType(I96, shapes[0]), TensorType(I96, shapes[1]), TensorType(DType.int32, shapes[1])]
    results = run(all_of, types, x, y, small)
    a, b = np.broadcast_arrays(x, y)
    c = np.broadcast_to(small, a.shape).astype(object)

    def each(function: Callable[[int, int, int], int]) -> Any:
        results = [wrap(function(*map(int, row)), I96) for row in zip(a.flat, b.flat, c.flat, strict=True)]
        return np.array(results, object).reshape(a.shape).tolist()

    wanted = [
        each(lambda p, q, r: p + q), each(lambda p, q, r: p * q), each(lambda p, q, r: p - r),
        each(lambda p, q, r: p < q), each(lambda p, q, r: p == r), each(lambda p, q, r: max(p, q)),
        each(lambda p, q, r: min(p, q)), each(lambda p, q, r: p & q), each(lambda p, q, r: p << r),
        each(lambda p, q, r: p >> r), (small.astype(object) + (1 << 80)).tolist(),
        each(lambda p, q, r: p if r > 1 else 1 << 90), [v + 5 for v in x.reshape(-1).tolist()],
    ]  # fmt: skip
    wanted[-1] = np.array([wrap(v, I96) for v in wanted[-1]], object).reshape(x.shape).tolist()
    for position, (result, expected) in enumerate(zip(results, wanted, strict=True)):
        assert result.tolist() == expected, position


def test_limbs_have_one_shape_when_some_of_them_are_constant() -> None:
    dtype = DType.int(160)
    x = samples(DType.int(40), 12).reshape(3, 4)

    def all_of(a: Symbol) -> tuple[Symbol, ...]:
        wide = a.cast(dtype)
        upper, mixed = wide << 64, wide + (5 << 96)
        return (
            ~upper, -upper, upper & (7 << 70), upper | 1, upper ^ upper, mixed // 7, mixed % 7,
            mixed // (3 << 64), upper * 0, ops.transpose(~upper, 0, 1), ops.sum(upper | 5, axis=0),
            ops.where(wide > 3, upper, 5 << 100), upper >> 64,
            upper < mixed, upper == 0, ops.max(upper, 1 << 80), upper - upper, wide * 0 + 9, ~(wide * 0),
        )  # fmt: skip

    results = run(all_of, [TensorType(DType.int(40), [3, 4])], x.astype(np.int64))
    high, both = x << 64, x + (5 << 96)
    wanted = [
        ~high, -high, high & (7 << 70), high | 1, x * 0, both // 7, both % 7, both // (3 << 64), x * 0,
        (~high).T, np.sum(high | 5, axis=0), np.where(x > 3, high, 5 << 100), x,
        high < both, high == 0, np.maximum(high, 1 << 80), x * 0, x * 0 + 9, x * 0 - 1,
    ]  # fmt: skip
    for position, (result, expected) in enumerate(zip(results, wanted, strict=True)):
        assert result.tolist() == expected.tolist(), position


@pytest.mark.numbers
def test_sums_over_axes_wrap_when_they_leave_the_width() -> None:
    x = samples(I96, 60).reshape(5, 12)
    static = run(lambda a: (ops.sum(a, axis=1), ops.sum(a)), [TensorType(I96, [5, 12])], x)
    dynamic = run(lambda a: (ops.sum(a, axis=1), ops.sum(a)), [TensorType(I96, ["n", "m"])], x)
    wanted = [[wrap(sum(map(int, row)), I96) for row in x], wrap(sum(map(int, x.flat)), I96)]
    assert [r.tolist() for r in static] == wanted
    assert [r.tolist() for r in dynamic] == wanted


@pytest.mark.numbers
def test_powers_of_constants_wrap() -> None:
    x = samples(I96)
    results = run(lambda a: (a**0, a**1, a**2, a**5), [I96], x)
    for power, result in zip((0, 1, 2, 5), results, strict=True):
        assert result.tolist() == [wrap(int(v) ** power, I96) for v in x]


@pytest.mark.numbers
def test_clip_keeps_the_order_when_integers_are_wide() -> None:
    x = samples(I96)
    least, greatest = -(1 << 70), 1 << 90
    (result,) = run(lambda a: ops.min(ops.max(a, least), greatest), [I96], x)
    assert result.tolist() == [min(max(int(v), least), greatest) for v in x]


# Where limbs are not needed


def test_sums_stay_in_one_tensor_when_they_fit_64_bits() -> None:
    def total(x: Symbol, y: Symbol) -> Symbol:
        return (x.cast(I96) + y.cast(I96)).cast(I96) < y.cast(I96)

    assert operators(graph_of(total, DType.int32, DType.int32))["BitShift"] <= 1


def test_products_stay_in_64_bits_when_only_low_bits_are_used() -> None:
    def low(x: Symbol, y: Symbol) -> Symbol:
        product = x.cast(I200) * y.cast(I200) * x.cast(I200) * y.cast(I200)
        return ((product << 3) - product).cast(DType.int(50))

    graph = graph_of(low, DType.int64, DType.int64)
    counts = operators(graph)
    assert counts["Mul"] <= 4
    assert counts["BitShift"] == 0
    x, y = (samples(DType.int64, seed=i).astype(np.int64) for i in (0, 1))
    (result,) = gc.InferenceSession().load(graph)(x, y)
    assert result.tolist() == [wrap(7 * (int(a) * int(b)) ** 2, DType.int(50)) for a, b in zip(x, y, strict=True)]


def test_a_wide_product_takes_as_few_operators_as_the_benchmark_counts_on() -> None:
    def product(x: Symbol, y: Symbol, z: Symbol) -> Symbol:
        return x.cast(I96) * y.cast(I96) * z.cast(I96)

    counts = operators(graph_of(product, DType.int32, DType.int32, DType.int32))
    assert counts["Mul"] == 3
    assert sum(counts.values()) <= 28


# Feeds and results


def test_limbs_and_objects_hold_the_same_when_either_is_fed() -> None:
    for dtype in (DType.int(65), I96, U96, DType.uint(127), I200):
        x = samples(dtype)
        digits = big_integers.to_digits(x, dtype)
        assert digits.dtype == np.uint32
        assert digits.shape == (len(x), -(-dtype.bits // 32))
        model = gc.InferenceSession().load(graph_of(lambda a: a + 1, dtype))
        assert [t.dtype for t in model.outputs.values()] == [dtype]  # type: ignore[union-attr]
        wanted = [wrap(int(v) + 1, dtype) for v in x]
        for fed in (x, digits, x.tolist() and np.array(x.tolist(), object)):
            (limbs,) = model(fed)
            assert limbs.dtype == np.uint32
            assert limbs.tolist() == big_integers.to_digits(np.array(wanted, object), dtype).tolist()
            (again,) = model.execute(fed, wide="limbs")
            assert again.tolist() == limbs.tolist()
            (whole,) = model.execute(fed, wide="object")
            assert whole.tolist() == wanted
            assert all(type(v) is int for v in whole.tolist())


def test_small_arrays_are_fed_as_they_are_when_the_input_is_wide() -> None:
    model = gc.InferenceSession().load(graph_of(lambda a: a * a, I96))
    (result,) = model.execute(np.array([-(1 << 63), 3], np.int64), wide="object")
    assert result.tolist() == [wrap(1 << 126, I96), 9]


def test_digits_beyond_the_width_are_wrapped_when_they_are_fed() -> None:
    model = gc.InferenceSession().load(graph_of(lambda a: a, DType.uint(70)))
    (result,) = model.execute(np.array([[1, 2, 0xFFFFFFFF]], np.uint32), wide="object")
    assert result.tolist() == [1 + (2 << 32) + (0x3F << 64)]


@pytest.mark.parametrize(
    ("fed", "says"),
    [
        (np.array([1 << 95], object), "cannot hold 39614081257132168796771975168"),
        (np.array([-1 - (1 << 95)], object), "cannot hold -39614081257132168796771975169"),
        (np.array([1.5]), "input 'x0' must be int96"),
        (np.array(["1"], object), "input 'x0' must be int96"),
        (np.array([True], object), "input 'x0' must be int96"),
        (np.zeros([2, 4], np.uint32), "must have rank 1, or 2 as digits"),
        (np.zeros([2, 3], np.int32), "must have rank 1, or 2 as digits"),
        (np.array(3, object), "must have rank 1, or 2 as digits"),
    ],
)
def test_feeds_are_refused_when_no_digits_hold_them(fed: Array, says: str) -> None:
    model = gc.InferenceSession().load(graph_of(lambda a: a + 1, I96))
    with pytest.raises(FeedError, match=says):
        model(fed)


def test_execute_refuses_when_the_form_of_wide_integers_is_unknown() -> None:
    model = gc.InferenceSession().load(graph_of(lambda a: a + 1, I96))
    with pytest.raises(FeedError, match="is not a form of integers of more than 64 bits"):
        model.execute(np.array([1], object), wide="bytes")


def test_an_input_called_wide_is_fed_by_position_or_in_a_call() -> None:
    graph = Graph("test", {"wide": TensorType(I96, ["n"])})
    graph.output(graph[0] + 1)
    model, one = gc.InferenceSession().load(graph), np.array([1], object)
    assert model(wide=one)[0].tolist() == [[2, 0, 0]]
    assert model.execute(one, wide="object")[0].tolist() == [2]
    with pytest.raises(FeedError, match="is not a form of integers"):
        model.execute(wide=one)


def test_constants_are_refused_when_the_width_does_not_hold_them() -> None:
    graph = Graph("test", {"x": TensorType(I96, ["n"])})
    with pytest.raises(DTypeError, match="cannot be held in int96"):
        graph.constant([0, 1 << 95], I96)
    with pytest.raises(DTypeError, match="cannot be held in int96"):
        graph[0] + (1 << 100)
    with pytest.raises(DTypeError, match="has more than 64 bits, and no default dtype"):
        graph.constant(1 << 70)


def test_constants_and_weights_are_whole_when_they_are_wide() -> None:
    graph = Graph("test", {"x": TensorType(I96, [3])})
    items = [-(1 << 95), (1 << 90) + 7, -1]
    constant, weight = graph.constant(items, I96), graph.weight("w", np.array(items, object), I96)
    filled = graph.full(-(1 << 80), [2], I96)
    graph.output(graph[0] + constant, graph[0] - weight, filled, constant)
    x = np.array([1, 2, 3], object)
    results = gc.InferenceSession().load(graph).execute(x, wide="object")
    assert results[0].tolist() == [wrap(a + b, I96) for a, b in zip(items, (1, 2, 3), strict=True)]
    assert results[1].tolist() == [wrap(b - a, I96) for a, b in zip(items, (1, 2, 3), strict=True)]
    assert results[2].tolist() == [-(1 << 80)] * 2
    assert results[3].tolist() == items


# Files


def test_wide_dtypes_are_noted_when_a_file_is_loaded(tmp_path: Path) -> None:
    graph = graph_of(lambda a: (a * a, a.cast(DType.int32)), I96)
    graph.export(tmp_path / "wide.onnx")
    stored: dict[str, Type] = Graph.load(tmp_path / "wide.onnx").output_types
    first = next(iter(stored.values()))
    assert isinstance(first, TensorType)
    assert str(first) == "uint32[n, 3]"
    Graph.load(tmp_path / "wide.onnx").export(tmp_path / "again.onnx")
    for name in ("wide.onnx", "again.onnx"):
        model = gc.InferenceSession().load(tmp_path / name)
        assert [str(t) for t in model.inputs.values()] == ["int96[n]"]
        assert [str(t) for t in model.outputs.values()] == ["int96[n]", "int32[n]"]
        result, low = model.execute(np.array([-(1 << 70), 12345678901], object), wide="object")
        assert result.tolist() == [wrap(1 << 140, I96), 12345678901**2]
        assert low.tolist() == [0, wrap(12345678901, DType.int32)]


# What is refused


def test_supported_operators_are_listed() -> None:
    assert {"Add", "Mul", "Cast", "FloorDiv", "Reshape", "Where", "MatMul", "Loop"} <= SUPPORTED_WIDE
    assert "Conv" not in SUPPORTED_WIDE


@pytest.mark.numbers
def test_casts_of_constants_agree_with_those_of_tensors() -> None:
    items = [int(v) for v in samples(I200, 60)]
    graph = Graph("test", {"x": TensorType(I200, [len(items)])})
    constant = graph.constant(items, I200)
    targets = [
        DType.float64,
        DType.float32,
        DType.float16,
        DType.bfloat16,
        DType.bool,
        DType.int32,
        U96,
        DType.uint(70),
    ]
    graph.output(*[graph[0].cast(t) for t in targets], *[constant.cast(t) for t in targets])
    results = gc.InferenceSession().load(graph).execute(np.array(items, object), wide="object")
    for dtype, dynamic, static in zip(targets, results, results[len(targets) :], strict=False):
        assert dynamic.tolist() == static.tolist(), dtype
    assert results[3].dtype == ml_dtypes.bfloat16


def test_low_bits_that_are_known_have_the_shape_of_the_result() -> None:
    graph = Graph("g", {"x": TensorType(DType.int(68), [3])})
    far = graph["x"] << 67
    graph.output(low=far.cast(DType.int(1)), wide=far.cast(DType.int64), same=(graph["x"] == far).cast(DType.int8))
    x = np.array([0, 1, -5], object)
    low, wide, same = gc.InferenceSession().load(graph).execute(x, wide="object")
    assert low.tolist() == wide.tolist() == [0, 0, 0]
    assert same.tolist() == [1, 0, 0]
