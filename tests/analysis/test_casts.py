"""Tests of casts and their reasons: of each promotion system, through passes, pickling and files."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from graphcore import DType, Graph, TensorType, ops
from graphcore.analysis.casts import Cast, casts
from graphcore.ir.transform.pickling import copied
from graphcore.promotion.explanations import explain
from tests.support.drawn_graphs import mixed

MAX = "bfloat16 and int8 meet in bfloat16: bfloat16 > float16 > int64 > int32 > int16 > int8"


def of(build: Any, *dtypes: DType, promotion: str = "max") -> list[Cast]:
    graph = Graph("g", [TensorType(dtype, [4]) for dtype in dtypes], promotion=promotion)
    result = build(*graph.inputs)
    graph.output(*(result if isinstance(result, tuple) else (result,)))
    return casts(graph)


def test_inserted_and_written_casts_have_their_reasons() -> None:
    first, second = casts(mixed())
    assert (first.name, first.implicit, first.op, first.pair) == ("scale/cast_3", True, "mul", ("bfloat16", "int8"))
    assert (first.source, first.result, first.system) == ("int8", "bfloat16", "max")
    assert first.words == f"{MAX} (`mul`: numbers and bools meet in a common dtype)"
    assert first.line is not None
    assert "graph[" in first.line.text
    assert (second.implicit, second.op, second.pair) == (False, "", None)
    assert second.words == f"written at {second.line}"


@pytest.mark.parametrize(
    ("promotion", "lhs", "rhs"),
    [
        ("max", DType.int8, DType.float32),
        ("max_published", DType.int8, DType.float16),
        ("kernel_float", DType.int16, DType.float32),
        ("anvil", DType.uint8, DType.int8),
        ("array_api", DType.uint8, DType.int16),
        ("allo_cpp", DType.int8, DType.int32),
    ],
)
def test_reason_is_the_one_that_explain_has(promotion: str, lhs: DType, rhs: DType) -> None:
    results = of(lambda x, y: ops.maximum(x, y), lhs, rhs, promotion=promotion)
    assert results
    answer = explain(lhs, rhs, promotion)
    for cast in results:
        assert (cast.implicit, cast.op, cast.pair) == (True, "maximum", (lhs.name, rhs.name))
        assert cast.result == answer.result
        assert f"meet in {cast.result}: {answer.reason}" in cast.words


@pytest.mark.parametrize(
    ("build", "dtypes", "expected"),
    [
        (lambda x: ops.exp(x), (DType.int32,), "int32 is computed in float64 (`exp`: floats meet; integers become"),
        (lambda x: x / 2, (DType.int32,), "(`div`: floats meet in a common dtype; integers and bools become float64)"),
        (lambda x, y: ops.where(x > 0, x, y), (DType.int8, DType.int16), "int8 and int16 meet in int16: int8 < int16"),
        (lambda x, y: ops.concat([x, y]), (DType.int8, DType.int16), "int8 and int16 meet in int16: int8 < int16"),
    ],
)
def test_words_say_what_the_op_needed(build: Any, dtypes: tuple[DType, ...], expected: str) -> None:
    (result,) = of(build, *dtypes)
    assert result.implicit
    assert expected in result.words


def test_number_that_an_operand_met_is_told() -> None:
    (result,) = of(lambda x: x + 0.5, DType.int32, promotion="anvil")
    assert (result.pair, result.result) == (("int32", "0.5"), "float32?")
    assert result.words.startswith("int32 with 0.5 is computed in float32? (`add`: ")


def test_cast_that_an_op_makes_for_itself_is_not_promotions() -> None:
    (result,) = of(lambda x, y: ops.gather(x, y), DType.float32, DType.uint8)
    assert (result.implicit, result.words) == (False, f"inserted by the op at {result.line}")


def test_cast_between_branches_says_what_both_give() -> None:
    graph = Graph("g", {"x": TensorType(DType.int8, [4]), "p": TensorType(DType.bool, [])})
    x, p = graph.inputs
    graph.output(ops.cond(p, lambda: x, lambda: x.cast(DType.float32) * 2))
    implicit = [cast for cast in casts(graph) if cast.implicit]
    assert [(cast.op, cast.pair) for cast in implicit] == [("cond", ("int8", "float32"))]


@pytest.mark.parametrize(
    "changed",
    [
        copied,
        lambda graph: pickle.loads(pickle.dumps(graph)),
        lambda graph: graph.optimize(),
        lambda graph: graph.rename({"x": "z"}),
        lambda graph: graph.with_dims(batch=3),
    ],
    ids=["copied", "pickled", "optimised", "renamed", "sized"],
)
def test_reasons_survive_what_makes_new_graphs(changed: Any) -> None:
    graph = mixed()
    before = [(c.implicit, c.op, c.pair, c.words, str(c.line)) for c in casts(graph)]
    assert [(c.implicit, c.op, c.pair, c.words, str(c.line)) for c in casts(changed(graph))] == before


def test_cast_that_a_user_wrote_first_stays_the_users() -> None:
    (result,) = of(lambda x, y: x.cast(DType.float32) * y + x * y, DType.int8, DType.float32)
    assert not result.implicit


def test_cast_of_a_file_says_whether_promotion_would_insert_it() -> None:
    loaded = Graph.load(mixed().to_onnx(target="onnx"))
    first, second = casts(loaded)
    assert (first.implicit, first.pair) == (False, ("int8", "bfloat16"))
    assert first.words.startswith("a Cast of the file; max inserts the same for `Mul`: ")
    assert (second.op, second.words.partition(";")[0]) == ("MatMul", "a Cast of the file")
    lone = Graph("g", {"x": TensorType(DType.float32, [4])})
    lone.output(lone["x"].cast(DType.int8))
    assert [c.words for c in casts(Graph.load(lone.to_onnx(target="onnx")))] == ["a Cast of the file"]


def test_casts_that_loading_inserts_are_implicit() -> None:
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(n, t, [4]) for n, t in (("a", TensorProto.INT8), ("b", TensorProto.INT16))]
    result = helper.make_tensor_value_info("c", TensorProto.INT16, [4])
    output = helper.make_graph([helper.make_node("Add", ["a", "b"], ["c"])], "g", ends, [result])
    model = helper.make_model(output, opset_imports=[helper.make_opsetid("", 18)])
    (match,) = casts(Graph.load(model, implicit_casts=True))
    assert match.implicit
    assert (match.source, match.result) == ("int8", "int16")


def test_casts_of_bodies_and_functions_are_told() -> None:
    graph = Graph("g", {"x": TensorType(DType.int8, [4])})
    y = ops.for_loop(3, lambda i, v: v + ops.exp(graph["x"]), graph.constant(np.zeros(4, np.float32)))
    graph.output(y)
    assert [(c.op, c.source, c.result) for c in casts(graph)] == [
        ("exp", "int8", "float16"),
        ("add", "float16", "float32"),
    ]


def test_errors_still_show_what_the_user_wrote() -> None:
    graph = Graph("g", {"x": TensorType(DType.int8, [4]), "y": TensorType(DType.float32, [4])})
    x, y = graph.inputs
    product: Any = (x * y).producer
    assert product.inputs[0]._describe() == x._describe()
