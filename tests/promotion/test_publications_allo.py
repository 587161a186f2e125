"""Statements of Allo's document that the tests of its operators do not show: styles, shapes, order and examples."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, implicit_cast_type, ops
from graphcore.errors import PromotionError, ShapeError
from graphcore.promotion import system
from tests.promotion.test_allo import computed, corners, dtype_of, graph_of, wrapped

pytestmark = pytest.mark.filterwarnings("ignore::graphcore.errors.LossyCastWarning")

STYLES = ("hls", "cpp")

# The document's examples of C++ style.
CPP = [
    ("a + b", "i32 i32", "i32"),
    ("a + b", "u32 u32", "u32"),
    ("a + b", "i32 u32", "u32"),
    ("a * b", "i16 i32", "i32"),
    ("a + b", "f32 i32", "f32"),
    ("a + b", "f32 f64", "f64"),
]


@pytest.mark.parametrize(("style", "expected"), [("hls", "i33"), ("cpp", "i32")])
def test_style_is_chosen_by_the_systems_name(style: str, expected: str) -> None:
    a, b = graph_of("i32 i32", style).inputs
    assert (a + b).dtype is dtype_of(expected)
    x = np.array([2**31 - 1], np.int32)
    assert gc.jit(lambda x, y: x + y, promotion=f"allo_{style}")(x, x).tolist() == [wrapped(2**32 - 2, expected)]


@pytest.mark.parametrize(("expression", "types", "expected"), CPP)
def test_example_of_cpp_gives_its_type_and_value(expression: str, types: str, expected: str) -> None:
    graph = graph_of(types, "cpp")
    result = eval(expression, {s.name: s for s in graph.inputs})
    assert result.dtype is dtype_of(expected)
    rows = list(itertools.product(*(corners(t) for t in types.split())))
    if expected[0] == "f":
        rows = [(-3, 5), (0, -3)]
    wanted = [eval(expression, dict(zip("ab", row, strict=True))) for row in rows]
    if expected[0] != "f":
        wanted = [wrapped(v, expected) for v in wanted]
    assert computed(graph, result, list(zip(*rows, strict=True))) == wanted


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("op", ["add", "mul", "floor_div", "maximum", "less", "bitwise_and"])
def test_rules_are_of_elements_whatever_the_shapes_are(style: str, op: str) -> None:
    shapes: list[list[int | str]] = [[], ["n"], [1], [3, "n"], [2, 1, 4]]
    for shape in shapes:
        types = {"a": TensorType("int8", shape), "b": TensorType("uint8", shape)}
        graph = Graph("shaped", types, promotion=f"allo_{style}")
        bare = graph_of("i8 u8", style)
        function: Callable[..., Symbol] = getattr(ops, op)
        assert function(*graph.inputs).dtype is function(*bare.inputs).dtype


@pytest.mark.parametrize("style", STYLES)
def test_shapes_are_checked_apart_from_types(style: str) -> None:
    types = {"a": TensorType("int8", [3]), "b": TensorType("uint8", [4])}
    a, b = Graph("shaped", types, promotion=f"allo_{style}").inputs
    with pytest.raises(ShapeError):
        a + b
    with pytest.raises(ShapeError):
        ops.less(a, b)


def test_cpp_promotes_pairs_in_the_written_order() -> None:
    graph = graph_of("i8 u8 i16 f32", "cpp")
    a, b, c, d = graph.inputs
    total = a + b + c + d
    assert [str(n.outputs[0].dtype) for n in graph.nodes if n.op_type == "Add"] == ["uint8", "int16", "float32"]
    assert total.dtype is DType.float32
    # 200 and 100 are added in 8 bits before the third operand widens them.
    assert computed(graph, total, [[100], [200], [1000], [1]]) == [float((300 % 256) + 1001)]


def test_cpp_lowers_sums_as_they_are_written() -> None:
    graph = graph_of("i32 i32 i32 i32", "cpp")
    a, b, c, d = graph.inputs
    graph.output(a + b + c + d)
    adds = [n for n in graph.nodes if n.op_type == "Add"]
    assert [s.name for s in adds[0].inputs if s is not None] == ["a", "b"]
    assert [n.inputs[0] for n in adds[1:]] == [n.outputs[0] for n in adds[:-1]]


@pytest.mark.parametrize("style", STYLES)
def test_float_with_an_integer_of_any_width_keeps_the_float(style: str) -> None:
    for width, real in itertools.product((1, 8, 32, 64, 100), ("float16", "bfloat16", "float32", "float64")):
        for integer in (DType.int(width), DType.uint(width)):
            for lhs, rhs in ((integer, real), (real, integer)):
                assert implicit_cast_type(lhs, rhs, f"allo_{style}") is DType.of(real)


def test_special_function_of_index_is_float64_in_cpp_and_has_no_rule_in_hls() -> None:
    assert ops.exp(graph_of("index", "cpp")["a"]).dtype is DType.float64
    with pytest.raises(PromotionError, match="No hls type promotion rule for operator 'exp'"):
        ops.exp(graph_of("index", "hls")["a"])


def test_nary_promoter_is_hls_own_and_of_integer_sums_and_products_alone() -> None:
    hls, cpp = (system(f"allo_{style}") for style in STYLES)
    assert {op for op in ("add", "sub", "mul", "div", "maximum", "pow", "less") if hls.flattens(op)} == {
        "add", "sub", "mul",
    }  # fmt: skip
    assert not any(cpp.flattens(op) for op in ("add", "sub", "mul"))
    graph = graph_of("i8 i8 f32", "hls")
    a, b, c = graph.inputs
    results = (a + c + b, a + b + a)
    kinds = {n.outputs[0]: n.op_type for n in graph.nodes}
    assert [kinds[s] for s in results] == ["Add", "SumOfTerms"]  # with a float among the terms: pair by pair


@pytest.mark.parametrize("style", STYLES)
def test_comparisons_and_logic_give_bool_of_operands_in_their_common_type(style: str) -> None:
    graph = graph_of("i8 u8 f32", style)
    a, b, c = graph.inputs
    for item in (a < b, ops.equal(a, c), ops.logical_and(a, c), ops.logical_not(b)):
        assert item.dtype is DType.bool
    # -1 is 255 in u8, in which both meet.
    assert computed(graph, a < b, [[-1, 1], [200, 2], [0, 0]]) == [False, True]
