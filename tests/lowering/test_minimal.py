"""Lowered graphs have no removable nodes, and removing nodes changes no bit."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import GraphError
from graphcore.ir.graph import Precision
from graphcore.runtime.lowering import lower
from tests.sampling import drawn
from tests.support import reference
from tests.support.graphs import NEWEST

Array = np.ndarray[Any, Any]
D = DType


def build(function: Callable[..., Any], *dtypes: DType, dims: Sequence[int | str] = ("n",)) -> Graph:
    graph = Graph("minimal", {f"x{i}": TensorType(d, list(dims)) for i, d in enumerate(dtypes)})
    with graph:
        result = function(*graph.inputs)
    graph.output(*(result if isinstance(result, (tuple, list)) else (result,)))
    return graph


def operators(graph: Graph, precision: Precision = "exact") -> str:
    return " ".join(node.op_type for node in lower(graph, "cpu", precision, runtime=NEWEST).nodes)


def run(graph: Graph, *arrays: Array, precision: Precision = "exact") -> list[Array]:
    return list(gc.InferenceSession(precision=precision).load(graph)(*arrays))


def equal(got: Array, want: Array) -> bool:
    """Equal bits, any NaN being equal to any other."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if got.dtype.kind in "iub" or got.dtype.itemsize < 1:
        return bool((got == want).all())
    a, b = reference.exact(got), reference.exact(want)
    alike = (a == b) & (np.signbit(a) == np.signbit(b))
    return bool((alike | (np.isnan(a) & np.isnan(b))).all())


# Which operators are left. The dtype, the expression, and the operators in order.
LEFT: list[tuple[str, DType, Callable[..., Any], str]] = [
    ("a + b * c", D.int8, lambda a, b: a + b * a, "Mul Add"),
    ("a + b * c", D.uint16, lambda a, b: a + b * a, "Mul Add"),
    ("a + b * c", D.int4, lambda a, b: a + b * a, "Cast Cast Mul Add Cast"),
    ("(a + b) * (a - b)", D.uint4, lambda a, b: (a + b) * (a - b), "Cast Cast Add Sub Mul Cast"),
    ("a & ~(a ^ b)", D.int4, lambda a, b: a & ~(a ^ b), "Cast Cast BitwiseXor BitwiseNot BitwiseAnd Cast"),
    ("max(min(a, b), a)", D.int16, lambda a, b: ops.max(ops.min(a, b), a), "Cast Cast Min Max Cast"),
    ("-(-a)", D.uint8, lambda a, b: ops.negate(ops.negate(a)), "BitCast Neg Neg BitCast"),
    ("-(-a)", D.uint64, lambda a, b: ops.negate(ops.negate(a)), "BitCast Neg Neg BitCast"),
    ("a << 3", D.int16, lambda a, b: a << 3, "Mul"),
    ("a // 7", D.uint8, lambda a, b: a // 7, "Div"),
    ("a // 7", D.int32, lambda a, b: a // 7, "Div Mul Sub Less Cast Sub"),
    ("a % 7", D.int32, lambda a, b: a % 7, "Mod"),
    ("a + b", D.bfloat16, lambda a, b: a + b, "Cast Cast Add Cast"),
    ("a + b + a", D.bfloat16, lambda a, b: a + b + a, "Cast Cast Add Cast BitCast Cast Add Cast"),
    ("max(a, b) * a", D.bfloat16, lambda a, b: ops.max(a, b) * a, "Cast Cast Max Mul Cast"),
    ("abs(-a) * a", D.bfloat16, lambda a, b: abs(-a) * a, "Cast Neg Abs Mul Cast"),
    ("a * a + a", D.float16, lambda a, b: a * a + a, "Cast Mul Cast BitCast Cast Add Cast"),
    ("there and back", D.int8, lambda a, b: a.cast(D.int32).cast(D.int8) + b, "Add"),
    ("there and back", D.float16, lambda a, b: a.cast(D.float32).cast(D.float16) + b, "Cast Cast Add Cast"),
    ("constants", D.int32, lambda a, b: (a + folded(a)).cast(D.float64), "Add Cast"),
    ("constants", D.float32, lambda a, b: (a + folded(a)).cast(D.bfloat16), "Add Cast"),
]


def folded(like: Symbol) -> Symbol:
    """An expression of constants."""
    two = like.graph.constant(np.array([[1], [2]]), like.dtype)
    return ops.transpose(two * two + two, 0, 1).reshape(2)[1:]


@pytest.mark.parametrize(
    ("dtype", "function", "want"), [row[1:] for row in LEFT], ids=[f"{d} {n}" for n, d, *_ in LEFT]
)
def test_operators_left_are_the_fewest(dtype: DType, function: Callable[..., Any], want: str) -> None:
    assert sorted(operators(build(function, dtype, dtype)).split()) == sorted(want.split())


@pytest.mark.parametrize(
    ("function", "want"),
    [
        (lambda a, b, c: a + b + c, {"Cast": 4, "Add": 2}),
        (lambda a, b, c: ops.transpose(a * b, 0, 1) + c, {"Cast": 4, "Mul": 1, "Transpose": 1, "Add": 1}),
        (lambda a, b, c: ops.softmax(a + b) * c, {"Cast": 4, "Add": 1, "Softmax": 1, "Mul": 1}),
        (lambda a, b, c: a @ b @ c, {"Cast": 4, "MatMul": 2}),
    ],
)
@pytest.mark.parametrize("dtype", [D.float16, D.bfloat16], ids=str)
def test_fast_precision_stays_in_float32(dtype: DType, function: Callable[..., Any], want: dict[str, int]) -> None:
    graph = build(function, dtype, dtype, dtype, dims=(8, 8))
    assert Counter(operators(graph, "fast").split()) == want


def test_fast_precision_rounds_where_a_cast_was_written() -> None:
    for dtype in (D.float16, D.bfloat16, D.tf32):
        graph = build(lambda a, b: (a * b).cast(D.float32) + 1.0, dtype, dtype)
        random = np.random.default_rng(0)
        x, y = (reference.rounded(random.standard_normal(300), dtype) for _ in "xy")
        (got,) = run(graph, x, y, precision="fast")
        assert equal(got, reference.arithmetic("*", x, y, dtype).astype(np.float32) + np.float32(1))


@pytest.mark.parametrize("dtype", [D.float16, D.bfloat16, D.tf32, D.float8_e4m3fn, D.float8_e5m2], ids=str)
def test_fast_precision_equals_float32_rounded_once(dtype: DType) -> None:
    random = np.random.default_rng(0)
    arrays = [reference.rounded(random.standard_normal((16, 16)), dtype) for _ in range(3)]
    graph = build(lambda a, b, c: (a * b + c) * a - ops.transpose(b, 0, 1), *[dtype] * 3, dims=(16, 16))
    (got,) = run(graph, *arrays, precision="fast")
    a, b, c = (array.astype(np.float32) for array in arrays)
    assert equal(got, reference.rounded(reference.exact((a * b + c) * a - b.T), dtype))


def test_fast_precision_leaves_wide_dtypes_as_they_are() -> None:
    for dtype in (D.int8, D.int64, D.float32, D.float64):
        graph = build(lambda a, b: (a * b + a) // b, dtype, dtype)
        assert operators(graph, "fast") == operators(graph)


def test_precision_that_does_not_exist_is_refused() -> None:
    graph = build(lambda a: a + a, D.float32)
    with pytest.raises(GraphError, match="there is no precision 'sloppy'"):
        graph.to_onnx(precision="sloppy")  # type: ignore[arg-type]


def test_exported_model_is_fast_when_asked(tmp_path: Any) -> None:
    graph = build(lambda a, b: a + b + a, D.float16, D.float16)
    graph.export(tmp_path / "fast.onnx", precision="fast")
    session = onnxruntime.InferenceSession(tmp_path / "fast.onnx", providers=["CPUExecutionProvider"])
    x, y = np.array([1.0], np.float16), np.array([2.0**-11], np.float16)
    (got,) = session.run(None, {"x0": x, "x1": y})
    assert got.tolist() == [2.0]
    assert len(graph.to_onnx(precision="fast").graph.node) < len(graph.to_onnx().graph.node)


# What was tried for every bit pattern of float32 stands here for some: rounding to tensor_float32


def test_tensor_float32_rounds_every_kind_of_number() -> None:
    tails = np.array(
        [0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2FFF, 0x3000, 0x3001, 0x7FE000, 0x7FF000, 0x7FFFFF], np.uint32
    )
    bits = (np.arange(512, dtype=np.uint32)[:, None] << np.uint32(23)) | tails
    x = bits.ravel().view(np.float32)
    (got,) = run(build(lambda a: a.cast(D.tf32), D.float32), x)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        assert equal(got, reference.rounded(reference.exact(x), D.tf32))


# Every bfloat16 through several ops in a row


def test_every_bfloat16_is_rounded_in_a_chain() -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(D.bfloat16.numpy)
    y = np.roll(x, 12345)
    (got,) = run(build(lambda a, b: ops.max(a * b, a) + b - a, D.bfloat16, D.bfloat16), x, y)
    result = reference.arithmetic("max", reference.arithmetic("*", x, y, D.bfloat16), x, D.bfloat16)
    result = reference.arithmetic("-", reference.arithmetic("+", result, y, D.bfloat16), x, D.bfloat16)
    assert equal(got, result)


# Products of bytes

SHAPES = [
    ((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)),
    ((3, 0), (0, 5)), ((0, 4), (4, 5)), ((0, 4), (4,)), ((0, 3, 4), (4,)), ((7, 0), (0,)), ((1, 70_000), (70_000, 1)),
]  # fmt: skip


@pytest.mark.parametrize("is_static", [True, False])
@pytest.mark.parametrize(("left", "right"), SHAPES)
@pytest.mark.parametrize("dtype", [D.int8, D.uint8], ids=str)
def test_products_of_bytes_wrap(dtype: DType, left: tuple[int, ...], right: tuple[int, ...], is_static: bool) -> None:
    random = np.random.default_rng(0)
    x, y = (random.integers(int(dtype.min), int(dtype.max) + 1, shape).astype(dtype.numpy) for shape in (left, right))
    if x.size > 1000:
        x[:], y[:] = (int(dtype.min) or 255), (int(dtype.min) or 255)  # what saturates, or exceeds 32 bits
    dims: list[int | str] = list(left)
    if not is_static and len(left) > 1:
        dims[-2] = "rows"
    graph = Graph("product", {"x": TensorType(dtype, dims), "y": TensorType(dtype, list(right))})
    graph.output(graph["x"] @ graph["y"])
    (got,) = run(graph, x, y)
    assert equal(got, np.asarray(x.astype(np.int64) @ y.astype(np.int64)).astype(dtype.numpy))


# Constants

INTEGERS = (D.int4, D.int8, D.uint8, D.int16, D.uint16, D.int32, D.uint32, D.int64, D.uint64)
FLOATS = (D.float16, D.bfloat16, D.tf32, D.float32, D.float64)


def test_constants_fold_as_the_runtime_computes_them() -> None:
    def expressions(make: Callable[[Any, DType], Symbol]) -> list[Symbol]:
        results: list[Symbol] = []
        for dtype in INTEGERS:
            low, high = int(dtype.min), int(dtype.max)
            x = make([low, high, 0, 5, 7, 3], dtype)
            y = make([high, high, 0, 3, max(low, -1), 2], dtype)
            results += [x + y, x * y, x - y, -x, x // y, x % y, x & y, x ^ y, ~x, x << y, x >> y, x < y, x == y]
            results += [ops.max(x, y), ops.where(x > y, x, y), x**y, ops.abs(x), x[::-2], ops.concat([x, y], axis=0)]
        for dtype in FLOATS:
            x = make([-0.0, np.inf, -np.inf, np.nan, 1.1, 3e4], dtype)
            y = make([0.0, np.inf, 2.0, 1.0, 0.3, 3e4], dtype)
            results += [x + y, x * y, x - y, x / y, -x, x < y, x == y, x // y, x % y, ops.where(x > y, x, y)]
        return results

    def in_memory(values: Any, dtype: DType) -> Array:
        if dtype.is_float:
            return reference.rounded(np.asarray(values, np.float64), dtype)
        return np.asarray(values, object).astype(dtype.numpy)

    fed: list[Array] = []

    def feed(values: Any, dtype: DType) -> Symbol:
        fed.append(in_memory(values, dtype))
        return unknown.inputs[len(fed) - 1]

    graph = Graph("known", {"unused": TensorType(D.float16, [1])})
    unknown = Graph("unknown", [TensorType(d, ["n"]) for d in (*INTEGERS, *FLOATS) for _ in "xy"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph.output(*expressions(lambda values, dtype: graph.constant(in_memory(values, dtype), dtype)))
        unknown.output(*expressions(feed))
    rounding = {"BitCast", "BitwiseAnd", "Clip", "Div", "Cast", "Mul"}
    # Whether Sign of -0.0 is -0.0 is the kernel's choice: remainders of floats wait for it.
    assert set(operators(graph).split()) <= {"Sign", "Mul", "Where", *rounding, "Identity"}
    got = run(graph, np.zeros(1, np.float16))
    want = run(unknown, *fed)
    for symbol, a, b in zip(unknown.outputs, got, want, strict=True):
        assert equal(a, b), symbol


# Random expressions

DTYPES = [
    D.bool, D.int4, D.uint4, D.int8, D.uint8, D.int16, D.uint16, D.int32, D.uint32, D.int64, D.uint64, D.index,
    D.float8_e4m3fn, D.float8_e5m2, D.float16, D.bfloat16, D.tf32, D.float32, D.float64,
]  # fmt: skip
COUNT = 24
Pair = tuple[Symbol, Array]


def _step(kind: str, x: Pair, y: Pair, dtype: DType) -> Pair:
    """An op on two values and what it should give."""
    (a, u), (b, v) = x, y
    if kind == "move":
        return a[::-1], u[::-1]
    if kind == "where":
        condition = reference.compare("<", u, v)
        return ops.where(a < b, a, b), np.where(condition, u, v)
    if kind in ("max", "min"):
        return {"max": ops.max, "min": ops.min}[kind](a, b), reference.arithmetic(kind, u, v, dtype).astype(dtype.numpy)
    if kind in ("&", "|", "^"):
        result = {"&": (a & b, u & v), "|": (a | b, u | v), "^": (a ^ b, u ^ v)}[kind]
        return result[0], np.asarray(result[1]).astype(dtype.numpy)
    if kind == "-1":
        zero = np.zeros_like(u)
        return -a, -u if dtype.is_float else reference.arithmetic("-", zero, u, dtype)
    if kind in ("<<", ">>"):
        return (a << b if kind == "<<" else a >> b), reference.shift(kind, u, v, dtype)
    apply: dict[str, Callable[[], Any]] = {
        "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "//": lambda: a // b, "%": lambda: a % b,
    }  # fmt: skip
    return apply[kind](), reference.arithmetic(kind, u, v, dtype)


def _kinds(dtype: DType) -> list[str]:
    if dtype is D.bool:
        return ["+", "*", "&", "|", "^", "move", "where"]
    if dtype.is_float:
        return ["+", "-", "*", "-1", "move", "where", "max"]
    return ["+", "-", "*", "-1", "move", "where", "max", "min", "&", "|", "^", "//", "%", "<<", ">>"]


@settings(max_examples=drawn(150))
@given(data=st.data(), dtype=st.sampled_from(DTYPES))
def test_random_expressions_equal_reference(data: st.DataObject, dtype: DType) -> None:
    arrays = [reference.samples(dtype, COUNT, seed) for seed in range(3)]
    graph = Graph("random", {f"x{i}": TensorType(dtype, ["n"]) for i in range(3)})
    values: list[Pair] = list(zip(graph.inputs, arrays, strict=True))
    for _ in range(data.draw(st.integers(1, 8), label="steps")):
        kind = data.draw(st.sampled_from(_kinds(dtype)), label="op")
        x, y = (values[data.draw(st.integers(0, len(values) - 1), label="operand")] for _ in "xy")
        values.append(_step(kind, x, y, dtype))
    shown = [values[-1], values[data.draw(st.integers(3, len(values) - 1), label="also")]]
    graph.output(a=shown[0][0], b=shown[1][0])
    for got, (symbol, want) in zip(run(graph, *arrays), shown, strict=True):
        assert_equal_but_zero_signs(got, want, symbol)


def assert_equal_but_zero_signs(got: Array, want: Array, symbol: Symbol) -> None:
    """Max of 0.0 and -0.0 is either, in NumPy as in the runtime."""
    assert got.dtype == want.dtype, symbol
    a, b = reference.exact(got), reference.exact(want)
    assert ((a == b) | (np.isnan(a) & np.isnan(b))).all(), (symbol, got, want)


# What nothing uses


def test_nodes_that_nothing_uses_are_left_out_when_a_graph_is_lowered() -> None:
    def function(a: Symbol) -> Symbol:
        ops.exp(a)
        return a.cast(D.float32) * 2.0

    assert operators(build(function, D.bfloat16)) == "Cast Mul"
