"""Integers of more than 64 bits under Allo: results, and refusals at their lines."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import DTypeError
from graphcore.promotion import allo as wide
from graphcore.runtime.lowering.dtypes.integers.wide.operators import SUPPORTED_WIDE
from tests.promotion.test_allo import corners, dtype_of, graph_of, wrapped


def test_table_of_wide_operators_is_that_of_the_lowering() -> None:
    assert wide.OPERATORS == SUPPORTED_WIDE


REFUSED: list[tuple[str, str, Callable[..., Any], str]] = [
    (
        "LpPool",
        "i96",
        lambda a: a.graph.op("LpPool", [a], {"kernel_shape": [2]}, [a.type]),
        "does not support int96",
    ),
    ("Erf", "u65", lambda a: a.graph.op("Erf", [a], {}, [a.type]), "it does not support uint65"),
]


@pytest.mark.parametrize(("operator", "types", "use", "message"), REFUSED)
@pytest.mark.filterwarnings("ignore::graphcore.errors.LossyCastWarning")
def test_operator_that_nothing_computes_is_refused_at_its_line(
    operator: str, types: str, use: Callable[..., Any], message: str
) -> None:
    graph = graph_of(types)
    with pytest.raises(DTypeError) as raised:
        use(*graph.inputs)
    text = str(raised.value)
    assert raised.value.summary.startswith(f"{operator}: ")
    assert message in text
    own = re.escape(str(graph["a"].type))
    assert re.search(rf"input 0  a +{own}", text)
    assert "help: cast" in text
    assert "at test_allo_wide.py:" in text


@pytest.mark.parametrize(
    ("types", "use", "reference"),
    [
        ("i96 i32", lambda a, b: a // b, lambda a, b: wrapped(a // b, "i96") if b else 0),
        ("i96 i96", lambda a, b: a // b, lambda a, b: wrapped(a // b, "i96") if b else 0),
        ("i200 i70", lambda a, b: a // b, lambda a, b: wrapped(a // b, "i200") if b else 0),
        ("u130 u96", lambda a, b: a % b, lambda a, b: a % b if b else 0),
        ("i96 u32", lambda a, b: a % b, lambda a, b: a % b if b else 0),
        ("i96 i8", lambda a, b: a // 1000, lambda a, b: a // 1000),
        ("i96 i8", lambda a, b: (a**3).cast(DType.int(96)), lambda a, b: wrapped(a**3, "i96")),
    ],
)
def test_division_of_wide_integers_runs_where_it_is_not_refused(
    types: str, use: Callable[..., Any], reference: Callable[[int, int], int]
) -> None:
    graph = graph_of(types)
    output = use(*graph.inputs)
    graph.output(output)
    rows = list(itertools.product(*(corners(t) for t in types.split())))
    a, b = (list(column) for column in zip(*rows, strict=True))
    (result,) = (
        gc.InferenceSession()
        .load(graph)
        .execute(np.array(a, object), np.array(b, graph["b"].dtype.numpy), wide="object")
    )
    assert result.tolist() == [reference(x, y) for x, y in rows]


def test_wide_sum_over_products_runs_where_its_low_bits_are_used_alone() -> None:
    graph = Graph("dot", {n: TensorType(DType.int64, [3]) for n in "ab"}, promotion="allo_hls")
    product = graph["a"] @ graph["b"]
    assert product.dtype is DType.int(128)
    graph.output(product.cast(DType.int64))
    a, b = np.array([2**62, -5, 2**63 - 1]), np.array([8, 2**40 + 3, -7])
    (result,) = gc.InferenceSession().load(graph)(a, b)
    assert result.item() == wrapped(sum(int(x) * int(y) for x, y in zip(a, b, strict=True)), "i64")


def test_wide_sum_over_products_is_exact_where_all_bits_are_used() -> None:
    graph = graph_of("i64")
    graph.output(graph["a"] @ graph["a"])
    (result,) = gc.InferenceSession().load(graph).execute(np.array([-(2**63), 3]), wide="object")
    assert result.item() == wrapped(2**126 + 9, "i128")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a + 2**80", "i97"),
        ("2**80 - a", "i97"),
        ("a * 2**80 - 1", "i193"),
        ("a * -1 * a", "i288"),
        ("a + b * b * b", "i101"),
        ("a - b - (a - b)", "i98"),
        ("2**64 - 1 + a", "i97"),
    ],
)
def test_wide_expression_gives_the_integers_of_python(expression: str, expected: str) -> None:
    graph = graph_of("i96 u33")
    outputs = eval(expression, {s.name: s for s in graph.inputs})
    assert outputs.dtype is dtype_of(expected)
    graph.output(outputs)
    rows = list(itertools.product(corners("i96"), corners("u33")))
    a, b = (list(column) for column in zip(*rows, strict=True))
    (result,) = gc.InferenceSession().load(graph).execute(np.array(a, object), np.array(b, np.uint64), wide="object")
    assert result.tolist() == [eval(expression, {"a": x, "b": y}) for x, y in rows]


def test_wide_integers_move_compare_and_shift() -> None:
    graph = Graph("moves", {n: TensorType(DType.int64, ["n", 2]) for n in "ab"}, promotion="allo_hls")
    a, b = graph.inputs
    product = a * b
    graph.output(
        product.reshape(-1), ops.concat([product, a + b]), product.sum(axis=0), ops.maximum(product, a),
        product > b, ops.shape_of(product), product.cast(DType.float64), a >> product, product >> 70,
        ops.stack([product, product]),
    )  # fmt: skip
    x = np.array([[2**62, -5], [7, 2**63 - 1]])
    y = np.array([[8, 2**62], [-(2**63), -1]])
    results = gc.InferenceSession().load(graph).execute(x, y, wide="object")
    p = x.astype(object) * y.astype(object)
    big_x = x.astype(object)
    down = np.frompyfunc(lambda v, count: v >> count if 0 <= count < 64 else -1 if v < 0 else 0, 2, 1)
    wanted = [
        p.reshape(-1), np.concatenate([p, big_x + y]), p.sum(axis=0), np.maximum(p, big_x), p > y, [2, 2],
        p.astype(np.float64), down(big_x, p), p >> 70, np.stack([p, p]),
    ]  # fmt: skip
    for item, one in zip(results, wanted, strict=True):
        assert item.tolist() == np.asarray(one).tolist()


def test_carry_out_of_64_bits_is_kept_where_all_terms_are_near_a_number() -> None:
    for style, expected in (("hls", "u66"), ("cpp", "u65")):
        graph = graph_of("u4", style)
        total = graph["a"].cast(DType.uint(65)) + (2**64 - 1)
        assert total.dtype is dtype_of(expected)
        graph.output(total, total > 2**64, total.cast(DType.float64))
        a = np.array([0, 1, 2, 15], np.uint8)
        results = gc.InferenceSession().load(graph).execute(a.astype(DType.uint4.numpy), wide="object")
        wanted = [int(v) + 2**64 - 1 for v in a]
        assert results[0].tolist() == wanted
        assert results[1].tolist() == [v > 2**64 for v in wanted]
        assert results[2].tolist() == [float(v) for v in wanted]
