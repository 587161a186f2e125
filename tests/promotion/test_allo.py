"""Allo's two styles end to end: the publication's examples, its special operators, refusals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, PromotionError, SymbolError
from graphcore.promotion import system
from graphcore.runtime.lowering import lower

SHORT = {"f16": DType.float16, "bf16": DType.bfloat16, "f32": DType.float32, "f64": DType.float64, "u1": DType.bool}


def dtype_of(name: str) -> DType:
    if name in SHORT or name == "index":
        return SHORT.get(name, DType.index)
    return DType.int(int(name[1:])) if name[0] == "i" else DType.uint(int(name[1:]))


def graph_of(types: str | Sequence[str], style: str = "hls", *, strict: bool = False, **options: Any) -> Graph:
    """Inputs a, b, c, ... of these types."""
    names = types.split() if isinstance(types, str) else types
    inputs = {chr(ord("a") + i) if i < 26 else f"x{i}": TensorType(dtype_of(t), ["n"]) for i, t in enumerate(names)}
    return Graph("allo", inputs, promotion=system(f"allo_{style}", **options), strict=strict)


def corners(t: str) -> list[int]:
    if t in SHORT and t != "u1":
        return [-3, 0, 5]
    dtype = dtype_of(t)
    low, high = int(dtype.min), int(dtype.max)
    return sorted({low, low // 2, -1 if low else 1, 0, high // 3, high})


def computed(graph: Graph, value: Symbol, columns: Sequence[Sequence[int]]) -> list[Any]:
    """Return the output of a graph as Python numbers; both of its models must be valid."""
    graph.output(value)
    for target in ("onnx", "cpu"):
        onnx.checker.check_model(graph.to_onnx(target=target), full_check=True)
    arrays = [
        np.array(column, object).astype(np.int64 if s.dtype.bits < 64 else s.dtype.numpy).astype(s.dtype.numpy)
        for s, column in zip(graph.inputs, columns, strict=True)
    ]
    (result,) = gc.InferenceSession().load(graph).execute(*arrays, wide="object")
    return [v.item() if isinstance(v, np.generic) else v for v in result]


def wrapped(value: int, t: str) -> int:
    bits = int(t[1:])
    low = value % (1 << bits)
    return low - (1 << bits) if t[0] == "i" and low >> bits - 1 else low


EXAMPLES = [
    ("hls", "a + b", "i32 i32", "i33"),
    ("hls", "a + b", "u32 u32", "u33"),
    ("hls", "a + b", "u8 i8", "i10"),
    ("hls", "a + b - c", "i32 i32 i32", "i34"),
    ("hls", "a + b + c + d", "u8 u8 u8 u8", "u10"),
    ("hls", "a + b - c + d", "u8 u8 u8 u8", "i11"),
    ("hls", "a - b", "u8 u8", "i10"),
    ("hls", "a + b + c", "u8 u8 u8", "u10"),
    ("hls", "a * b", "i32 i32", "i64"),
    ("hls", "a * b", "u16 u16", "u32"),
    ("hls", "a * b * c", "i32 i32 i32", "i96"),
    ("hls", "a * b * c", "u8 i8 u4", "i20"),
    ("hls", "a + 3", "i32", "i33"),
    ("hls", "-a", "u8", "i9"),
    ("hls", "-a", "i8", "i9"),
    ("hls", "a * b + c * d", "i23 u17 i32 i40", "i73"),
    ("cpp", "a + b", "i32 i32", "i32"),
    ("cpp", "a + b", "u32 u32", "u32"),
    ("cpp", "a * b", "i16 i32", "i32"),
    ("cpp", "a * b", "u17 u17", "u17"),
    ("cpp", "-a", "u8", "u8"),
]


@pytest.mark.parametrize(("style", "expression", "types", "expected"), EXAMPLES)
def test_example_gives_its_type_and_the_integers_of_python(
    style: str, expression: str, types: str, expected: str
) -> None:
    graph = graph_of(types, style)
    result = eval(expression, {s.name: s for s in graph.inputs})
    assert result.dtype is dtype_of(expected)
    rows = list(itertools.product(*(corners(t) for t in types.split())))
    wanted = [wrapped(eval(expression, dict(zip("abcd", row, strict=False))), expected) for row in rows]
    if style == "hls":
        assert wanted == [eval(expression, dict(zip("abcd", row, strict=False))) for row in rows]
    assert computed(graph, result, list(zip(*rows, strict=True))) == wanted


@pytest.mark.parametrize("style", ["hls", "cpp"])
@pytest.mark.parametrize(
    ("types", "expected"), [("i16 i32", "i32"), ("u8 u32", "u32"), ("i32 u32", "u32"), ("i32 u16", "i32")]
)
@pytest.mark.filterwarnings("ignore::graphcore.errors.LossyCastWarning")
def test_common_integer_is_what_operands_are_wrapped_into(style: str, types: str, expected: str) -> None:
    graph = graph_of(types, style)
    result = ops.maximum(graph["a"], graph["b"])
    assert result.dtype is dtype_of(expected)
    rows = list(itertools.product(*(corners(t) for t in types.split())))
    wanted = [max(wrapped(x, expected), wrapped(y, expected)) for x, y in rows]
    assert computed(graph, result, list(zip(*rows, strict=True))) == wanted


@pytest.mark.parametrize(("types", "expected"), [("f32 i32", "f32"), ("f32 f64", "f64"), ("f16 bf16", "f16")])
@pytest.mark.filterwarnings("ignore::graphcore.errors.LossyCastWarning")
def test_floats_meet_in_the_wider_one_or_else_in_the_left(types: str, expected: str) -> None:
    for style in ("hls", "cpp"):
        graph = graph_of(types, style)
        result = graph["a"] + graph["b"]
        assert result.dtype is dtype_of(expected)
        assert computed(graph, result, [[-3, 0, 5], [1, 2, 3]]) == [-2, 2, 8]


BOOLS = [(x, y) for x in (0, 1) for y in (0, 1)]
IN_ONE_BIT: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("+", lambda x, y: x + y),
    ("-", lambda x, y: x - y),
    ("*", lambda x, y: x * y),
    ("neg", lambda x, y: -x),
    ("<<", lambda x, y: x << y),
    (">>", lambda x, y: x >> y),
]


@pytest.mark.parametrize(("name", "apply"), IN_ONE_BIT)
@pytest.mark.parametrize("style", ["hls", "cpp"])
def test_bool_is_an_integer_of_one_bit(style: str, name: str, apply: Callable[[Any, Any], Any]) -> None:
    grown = {"+": "u2", "-": "i3", "*": "u2", "neg": "i2"} if style == "hls" else {}
    expected = grown.get(name, "u1")
    graph = graph_of("u1 u1", style)
    result = apply(graph["a"], graph["b"])
    assert result.dtype is dtype_of(expected)
    wanted = [wrapped(apply(x, y), expected) for x, y in BOOLS]
    assert [int(v) for v in computed(graph, result, list(zip(*BOOLS, strict=True)))] == wanted


def test_sum_of_odd_widths_is_wrapped_once_in_cpp_when_nothing_looks_before() -> None:
    graph = graph_of("i23 i23 i23 i23", "cpp")
    a, b, c, d = graph.inputs
    graph.output((a + b - c) * d + a)
    kinds = [n.op_type for n in lower(graph, "cpu").nodes]
    assert kinds == ["Add", "Sub", "Mul", "Add", "BitwiseAnd", "BitwiseXor", "Sub"]


def test_traced_function_follows_the_style() -> None:
    traced = gc.jit(lambda x, y: x * y + x - 3, promotion="allo_hls")
    x, y = np.array([-128, 127], np.int8), np.array([-128, 127], np.int8)
    result = traced(x, y)
    assert result.dtype == np.int32  # 18 bits
    assert result.tolist() == [16384 - 128 - 3, 16129 + 127 - 3]


@pytest.mark.parametrize("op", [ops.sum, ops.cumsum])
@pytest.mark.parametrize("style", ["hls", "cpp"])
def test_sum_over_an_axis_of_bools_is_refused_because_it_does_not_fit(style: str, op: Callable[..., Symbol]) -> None:
    graph = graph_of("u1", style)
    with pytest.raises(DTypeError, match="bool is an integer of one bit"):
        op(graph["a"])
    assert op(graph["a"].cast(DType.int32)).dtype is DType.int32


@pytest.mark.filterwarnings("ignore::graphcore.errors.LossyCastWarning")
def test_matmul_follows_the_rule_of_products() -> None:
    for style, types, expected in (
        ("hls", "i8 u8", "i16"), ("hls", "u1 u1", "u2"), ("hls", "i7 f32", "f32"), ("cpp", "i8 u17", "u17"),
    ):  # fmt: skip
        graph = graph_of(types, style)
        assert (graph["a"] @ graph["b"]).dtype is dtype_of(expected)
    graph = graph_of("u1 u1", "cpp")
    with pytest.raises(DTypeError, match="bool is an integer of one bit"):
        graph["a"] @ graph["b"]


def test_what_is_added_to_a_product_is_a_term_of_a_sum() -> None:
    for style, types, expected in (("hls", "i8 i8 i8", "i17"), ("hls", "u8 u4 i20", "i21"), ("cpp", "i8 i8 i8", "i8")):
        graph = graph_of(types, style)
        result = ops.fma(*graph.inputs)
        assert result.dtype is dtype_of(expected)
        rows = list(itertools.product(*(corners(t) for t in types.split())))
        wanted = [wrapped(x * y + z, expected) for x, y, z in rows]
        assert computed(graph, result, list(zip(*rows, strict=True))) == wanted
    graph = Graph(
        "layer",
        {"x": TensorType("int8", ["n", 2]), "w": TensorType("int8", [3, 2]), "b": TensorType("int8", [3])},
        promotion="allo_hls",
    )
    assert ops.linear(*graph.inputs).dtype is DType.int(17)


def test_quotients_of_integers_truncate_and_floor() -> None:
    for style in ("hls", "cpp"):
        rows = list(itertools.product(range(-16, 16), range(-16, 16)))
        columns: list[tuple[int, ...]] = list(zip(*rows, strict=True))
        divisions: list[tuple[str, Callable[[int, int], int]]] = [
            ("/", lambda x, y: 0 if not y else abs(x) // abs(y) * (1 if (x < 0) is (y < 0) else -1)),
            ("//", lambda x, y: x // y if y else 0),
            ("%", lambda x, y: x % y if y else 0),
        ]
        for name, apply in divisions:
            graph = graph_of("i5 i5", style)
            result = eval(f"a {name} b", {s.name: s for s in graph.inputs})
            assert result.dtype is dtype_of("i5")
            assert computed(graph, result, columns) == [wrapped(apply(x, y), "i5") for x, y in rows]


def test_special_function_of_integers_is_a_float_of_32_bits_up_to_32() -> None:
    graph = graph_of("i32 i33 u1")
    results = [ops.sqrt(s) for s in graph.inputs]
    assert [s.dtype for s in results] == [DType.float32, DType.float64, DType.float32]
    assert computed(graph, results[1], [[4], [9], [0]]) == [3.0]
    assert ops.floor(graph_of("i8")["a"]).dtype is DType.float32


def test_power_by_a_number_of_the_other_kind_keeps_the_numbers_own_dtype() -> None:
    graph = graph_of("i8 f16 i40")
    a, b, c = graph.inputs
    assert (a**2).dtype is DType.int8
    assert (a**2.0).dtype is DType.float32
    assert (c**2.0).dtype is DType.float32
    assert (b**2).dtype is DType.float16
    assert computed(graph, b**2, [[0], [3], [0]]) == [9.0]


# What is said


def test_growth_loses_nothing_and_so_never_warns() -> None:
    names = ["u1", "i1", "i8", "u8", "i23", "u32", "i64", "u64", "i96", "u100"]
    graph = graph_of(names, strict=True)
    for x, y in itertools.product(graph.inputs, repeat=2):
        for item in (x + y, x - y, x * y, x - y - x, x * y * x, -x):
            assert item.dtype.is_integer


@pytest.mark.parametrize("style", ["hls", "cpp"])
def test_chained_comparison_is_refused_in_the_words_of_the_publication(style: str) -> None:
    a, b, c = graph_of("u1 i8 i8", style).inputs
    with pytest.raises(SymbolError) as raised:
        a < b < c  # noqa: B015
    assert "simultaneous multi-way comparisons are not supported" in raised.value.help
    assert "(a < b) & (b < c)" in raised.value.help


@pytest.mark.parametrize("op", [ops.where, ops.select])
def test_ternary_needs_equal_types_and_a_number_takes_the_other_one(op: Callable[..., Symbol]) -> None:
    a, b, c = graph_of("u1 i23 u8").inputs
    assert op(a, b, 7).dtype is DType.int(23)
    assert op(c, b, b).dtype is DType.int(23)
    with pytest.raises(PromotionError) as raised:
        op(a, b, c)
    assert "ternary expression: int23 vs uint8." in raised.value.summary
    assert raised.value.help == "cast one of them: .cast(DType.uint8) or .cast(DType.int23)"


def test_operator_that_the_publication_has_not_is_called_by_its_own_name() -> None:
    a, b = graph_of("index f32").inputs
    with pytest.raises(PromotionError, match="operator 'concat' with operand types index, float32"):
        ops.concat([a, b])
    with pytest.raises(PromotionError, match="operator 'is_nan' with operand type index"):
        ops.is_nan(a)


@pytest.mark.parametrize("dtype", [DType.tf32, DType.float8_e4m3fn, DType.float8_e5m2, DType.string, DType.address])
@pytest.mark.parametrize("style", ["hls", "cpp"])
def test_dtype_that_allo_has_not_is_refused_by_name(style: str, dtype: DType) -> None:
    graph = Graph("other", {"x": TensorType(dtype, ["n"])}, promotion=f"allo_{style}")
    x = graph["x"]
    uses: list[Callable[[], Symbol]] = [
        lambda: x + x, lambda: ops.exp(x), lambda: ops.concat([x, x]), lambda: ops.equal(x, x),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(PromotionError, match=f"allo_{style} has no {dtype}") as raised:
            use()
        assert "cast it to an integer of any width" in raised.value.help


@pytest.mark.parametrize("bits", [0, -1])
def test_width_below_one_is_refused(bits: int) -> None:
    for item in (DType.int, DType.uint):
        with pytest.raises(DTypeError, match="use a width of 1 or more"):
            item(bits)
