"""Element-wise ops of one operand, and those of two that the sweep of operators leaves out, in every dtype."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.build.declare import REGISTRY
from graphcore.build.operands import is_lossy
from graphcore.errors import DTypeError, GraphError, LossyCastWarning, RunError, ShapeError
from graphcore.promotion.max import DTYPES
from tests.ops.test_sweep import assert_near, assert_same
from tests.support import reference
from tests.support.graphs import run, run1

Array = np.ndarray[Any, Any]
D = DType
DTYPES_20 = [*DTYPES, D.int4, D.uint4, D.float8_e4m3fn, D.float8_e5m2]
_erf = np.vectorize(math.erf, otypes=[float])

# Functions into the reals, in float64.
REAL: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "log2": np.log2,
    "log10": np.log10, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "sinc": np.sinc, "erf": lambda x: np.where(np.isnan(x), x, _erf(np.nan_to_num(x))),
}  # fmt: skip

# Functions that keep the dtype, exact.
EXACT: dict[str, Callable[[Array], Array]] = {
    "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "sign": np.sign,
    "square": np.square, "negate": np.negative, "positive": np.positive,
}  # fmt: skip

BITWISE: dict[str, Callable[[Array], Array]] = {"bitwise_not": np.invert}
TRUTH: dict[str, Callable[[Array], Array]] = {
    "is_nan": np.isnan, "is_inf": np.isinf, "is_finite": np.isfinite, "logical_not": np.logical_not,
}  # fmt: skip
SWEPT_PAIRS = frozenset(
    "add sub mul div floor_div mod pow maximum minimum equal not_equal less less_equal greater greater_equal "
    "bitwise_and bitwise_or bitwise_xor left_shift right_shift".split()
)
PAIRS: dict[str, Callable[[Array, Array], Array]] = {
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor, "atan2": np.arctan2,
}  # fmt: skip


def test_every_elementwise_op_has_a_reference_here_or_in_the_sweep() -> None:
    tested = {*REAL, *EXACT, *BITWISE, *TRUTH, *PAIRS, *SWEPT_PAIRS}
    elementwise = {n for n, op in REGISTRY.items() if op.family in ("elementwise", "bits")}
    others = {"divmod", "fmod", "modf", "rint", "bit_reverse", "popcount", "leading_zeros", "trailing_zeros"}
    assert elementwise - tested == others  # which test_every_op has


def outcomes(dtype: DType, names: dict[str, Any], x: Array) -> dict[str, Array]:
    """Return the result of each op for `x`, all in one graph, without those that refuse the dtype."""
    graph = Graph("unary", {"x": TensorType(dtype, ["n"])})
    results: dict[str, Symbol] = {}
    for name in names:
        try:
            results[name] = REGISTRY[name].function(graph["x"])
        except DTypeError:
            continue
    graph.output(**{f"out_{name}": symbol for name, symbol in results.items()})
    return dict(zip(results, gc.InferenceSession().load(graph)(x), strict=True))


def smallest_float(dtype: DType) -> DType:
    if dtype.is_float:
        return dtype
    return D.float16 if dtype.bits <= 8 else D.float32 if dtype.bits <= 16 else D.float64


@pytest.mark.parametrize("dtype", DTYPES_20, ids=str)
def test_real_function_is_near_reference_when_of_any_dtype(dtype: DType) -> None:
    x = reference.samples(dtype, 150, 11)
    if dtype.is_float:  # sines of numbers beyond 1e5 lose their digits to the reduction, in any library
        x = np.where(np.abs(x.astype(np.float64)) > 80, np.sign(x), x.astype(np.float64)).astype(dtype.numpy)
    got = outcomes(dtype, REAL, x)
    target = smallest_float(dtype)
    assert set(got) == set(REAL)
    for name, result in got.items():
        argument = reference.exact(reference.cast(x, dtype, target)).astype(np.float64)
        with np.errstate(all="ignore"):
            want = REAL[name](argument)
        if target.bits < 64:
            # The kernel's float32 may be 4 units off before it is rounded on; so may the limit of its range.
            want32 = reference.rounded(want.astype(np.longdouble), D.float32)
            want = reference.rounded(reference.exact(want32), target) if target is not D.float32 else want32
        else:
            large = ~(np.abs(argument) < 1e4)
            if name in ("sin", "cos", "tan", "exp", "exp2", "expm1", "sinh", "cosh"):
                result, want = result[~large], want[~large]
        assert_near(name, result, want.astype(target.numpy), target, 4 if target is D.float32 else 1)


@pytest.mark.parametrize("dtype", DTYPES_20, ids=str)
def test_function_that_keeps_its_dtype_equals_reference(dtype: DType) -> None:
    x = reference.samples(dtype, 150, 12)
    got = outcomes(dtype, EXACT, x)
    refused = {"negate"} if dtype is D.bool else set()
    assert set(EXACT) - set(got) == refused
    for name, result in got.items():
        with np.errstate(all="ignore"):
            if dtype is D.bool or (not dtype.is_float and name in ("floor", "ceil", "round", "trunc", "positive")):
                want = x
            elif dtype.is_float:
                want = reference._float(EXACT[name], dtype, x)
            else:
                want = reference.wrapped([EXACT[name](np.asarray(int(v), object)) for v in x], dtype)
        assert_same(name, result, want, x)


@pytest.mark.parametrize("dtype", DTYPES_20, ids=str)
def test_truth_and_bits_equal_reference_when_of_any_dtype(dtype: DType) -> None:
    x = reference.samples(dtype, 150, 13)
    for name, result in outcomes(dtype, TRUTH, x).items():
        assert_same(name, result, np.asarray(TRUTH[name](reference.exact(x)), bool), x)
    flipped = outcomes(dtype, {**BITWISE, "is_nan": None}, x)
    assert ("bitwise_not" in flipped) == (not dtype.is_float)
    if not dtype.is_float:
        want = ~x if dtype is D.bool else reference.wrapped([~int(v) for v in x], dtype)
        assert_same("bitwise_not", flipped["bitwise_not"], want, x)


@pytest.mark.parametrize("dtype", DTYPES_20, ids=str)
def test_pairs_outside_the_sweep_are_near_reference(dtype: DType) -> None:
    x, y = reference.samples(dtype, 150, 14), reference.samples(dtype, 150, 15)
    results = run(
        lambda a, b: [REGISTRY[name].function(a, b) for name in PAIRS], x, y, dims=[["n"], ["n"]], dtypes=[dtype] * 2
    )
    target = smallest_float(dtype)
    for (name, function), got in zip(PAIRS.items(), results, strict=True):
        if name != "atan2":
            assert_same(name, got, function(reference.exact(x), reference.exact(y)), x, y)
            continue
        a, b = (reference.exact(reference.cast(v, dtype, target)).astype(np.float64) for v in (x, y))
        want = reference.rounded(function(a, b).astype(np.longdouble), target)
        assert_near(name, got, want, target, 4 if target is D.float32 else 1)


def test_extremes_of_bools_equal_numpy() -> None:
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    greater, lesser = run(lambda a, b: [ops.maximum(a, b), ops.minimum(a, b)], x, y, dims=[["n"], ["n"]])
    np.testing.assert_array_equal(greater, np.maximum(x, y), strict=True)
    np.testing.assert_array_equal(lesser, np.minimum(x, y), strict=True)


def test_divmod_gives_quotient_and_remainder_when_dims_are_symbolic() -> None:
    x, y = np.array([7, -7, 7, -7, 5]), np.array([2, 2, -2, -2, 0])
    quotient, rest = run(lambda a, b: divmod(a, b), x, y, dims=[["n"], ["n"]])
    assert quotient.tolist() == [3, -4, -4, 3, 0]
    assert rest.tolist() == [1, 1, -1, -1, 0]


def test_operators_reflect_when_the_left_operand_is_not_a_symbol() -> None:
    x = np.array([1.0, 2.0, 4.0], np.float32)
    result = run(lambda s: [2 - s, 1 / s, 2**s, 7 % s, 7 // s, x - s, s < 3], x, dims=[[3]])
    expected: list[Array] = [2 - x, 1 / x, 2**x, 7 % x, 7 // x, x - x, x < 3]
    for got, want in zip(result, expected, strict=True):
        assert np.array_equal(got, want)


def test_power_of_known_exponent_is_a_chain_of_products() -> None:
    x = np.arange(-9, 9, dtype=np.int64) * 10**9
    graph = Graph("power", {"x": TensorType(D.int64, ["n"])})
    graph.output(graph["x"] ** 5)
    assert [node.op_type for node in graph.to_onnx().graph.node] == ["Mul"] * 3
    with np.errstate(over="ignore"):
        assert np.array_equal(run1(lambda s: s**5, x), x**5)


def test_exact_results_survive_when_broadcasting() -> None:
    x = np.arange(6, dtype=np.int16).reshape(3, 2)
    y = np.array([100, -3], np.int64)
    assert np.array_equal(run1(lambda a, b: a * b, x, y, dims=[["n", 2], [2]]), x * y)


def test_shapes_that_do_not_broadcast_are_refused_when_written() -> None:
    graph = Graph("shapes", {"x": TensorType(D.float32, ["a", 3]), "y": TensorType(D.float32, ["b", 3])})
    with pytest.raises(ShapeError, match="add: shapes do not broadcast: a and b at axis -2"):
        graph["x"] + graph["y"]


def test_lossy_cast_warns_once_a_line_and_is_an_error_when_strict() -> None:
    types = {"x": TensorType(D.int64, ["n"]), "y": TensorType(D.uint64, ["n"])}
    graph = Graph("lossy", types)
    with pytest.warns(
        LossyCastWarning, match="cast of lhs from int64 to float16 and of rhs from uint64 to float16 cannot hold"
    ):
        graph["x"] + graph["y"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            graph["x"] * graph["y"]
    assert len({str(w.message) for w in caught}) == len(caught) == 1
    strict = Graph("strict", types, strict=True)
    with pytest.raises(gc.GraphcoreError, match="the implicit cast of lhs from int64 to float16"):
        strict["x"] + strict["y"]


def test_cast_of_integers_is_lossy_unless_the_range_fits() -> None:
    signed = {d: (-(1 << d.bits - 1), (1 << d.bits - 1) - 1) for d in (D.int4, D.int8, D.int16, D.int32, D.int64)}
    unsigned = {d: (0, (1 << d.bits) - 1) for d in (D.uint4, D.uint8, D.uint16, D.uint32, D.uint64)}
    limits = signed | unsigned
    for source, target in itertools.product(limits, repeat=2):
        least, greatest = limits[target]
        fits = all(least <= limit <= greatest for limit in limits[source])
        assert is_lossy(source, target) is not fits, (source, target)


def test_negative_numbers_cast_to_unsigned_ones_warn() -> None:
    graph = Graph("lossy", {"x": TensorType(D.int8, ["n"]), "y": TensorType(D.uint16, ["n"])}, promotion="allo_cpp")
    with pytest.warns(LossyCastWarning, match="cast of lhs from int8 to uint16 cannot hold"):
        graph["x"] + graph["y"]


def test_round_method_keeps_digits_when_asked() -> None:
    x = np.array([1.2345, -2.5, 0.5], np.float32)
    assert np.allclose(run1(lambda s: round(s, 2), x), np.round(x, 2))
    assert np.array_equal(run1(lambda s: round(s), x), np.round(x))


def test_rounded_ops_are_not_merged_when_consecutive() -> None:
    x = np.array([1.0, 3.0, 1.0078125], D.bfloat16.numpy)
    got = run1(lambda s: (s + 0.00390625) - 1, x, dims=[["n"]])
    once = (x.astype(np.float32) + 0.00390625).astype(x.dtype)
    assert np.array_equal(got, (once.astype(np.float32) - 1).astype(x.dtype))


@pytest.mark.releases
@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["expm1", "log1p"])
def test_expm1_and_log1p_are_within_five_units_over_their_whole_range(name: str, dtype: Any) -> None:
    limits, random = np.finfo(dtype), np.random.default_rng(0)
    small = 10.0 ** random.uniform(-30, 0, 20_000)
    if name == "expm1":
        top = float(np.log(np.longdouble(limits.max)))
        large = random.uniform(-1.3 * top, 0.9999 * top, 50_000)
    else:
        large = 10.0 ** random.uniform(0, np.log10(float(limits.max)) * 0.9999, 50_000)
    x = np.concatenate([small, -small, large]).astype(dtype)
    result = run1(getattr(ops, name), x)
    want = getattr(np, name)(x.astype(np.longdouble))
    unit = np.spacing(np.abs(want.astype(dtype))).astype(np.longdouble)
    assert np.max(np.abs(result.astype(np.longdouble) - want) / unit) < 5
    edges = np.array(
        [np.inf, -np.inf, np.nan, -0.0, 0.0, -1, limits.max, limits.tiny, limits.smallest_subnormal], dtype
    )
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(edges)
    assert np.allclose(run1(getattr(ops, name), edges), wanted, rtol=1e-6, equal_nan=True)
    assert np.signbit(run1(getattr(ops, name), edges)[3])


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [D.int(2), D.uint(2), D.int(3), D.uint(3), D.int(4)], ids=str)
def test_integer_powers_of_few_bits_are_exact_and_wrap(dtype: DType) -> None:
    numbers = range(int(dtype.min), int(dtype.max) + 1)
    pairs = [(x, y) for x in numbers for y in numbers if y >= 0]
    graph = Graph("power", {"x": TensorType(dtype, ["n"]), "y": TensorType(dtype, ["n"])}, promotion="allo_cpp")
    graph.output(graph["x"] ** graph["y"])
    x, y = (np.array(column).astype(dtype.storage.numpy) for column in zip(*pairs, strict=True))
    (result,) = gc.InferenceSession().load(graph).execute(x, y)
    low, size = int(dtype.min), 1 << dtype.bits
    assert result.astype(int).tolist() == [(x**y - low) % size + low for x, y in pairs]


def test_table_that_is_cut_to_a_dim_broadcasts_with_it() -> None:
    graph = Graph("g", {"x": TensorType("float32", ["b", "s", 2])})
    table = graph.weight("positions", np.arange(20, dtype=np.float32).reshape(10, 2))
    y = graph["x"] + table[: graph["x"].shape[1]]
    assert str(y.shape) == "[b, s, 2]"
    graph.output(y=y)
    model = gc.InferenceSession().load(graph)
    for length in (1, 4, 10):
        x = np.ones((3, length, 2), np.float32)
        np.testing.assert_array_equal(model(x)[0], x + np.arange(20, dtype=np.float32).reshape(10, 2)[:length])
    with pytest.raises(RunError, match="shapes do not broadcast"):
        model(np.ones((3, 11, 2), np.float32))


def test_error_of_an_array_alone_names_eager_tensors() -> None:
    with pytest.raises(GraphError, match=r"gc\.tensor\(array\) computes at once, and gc\.jit compiles"):
        ops.relu(np.ones(3, np.float32))
