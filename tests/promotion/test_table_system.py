"""Systems of a user's own table, which need not have all pairs."""

from __future__ import annotations

import pytest

from graphcore import DType, Graph, TensorType
from graphcore.errors import PromotionError
from graphcore.promotion import TableSystem, implicit_cast_type

MINE = TableSystem("mine", {(DType.float32, DType.int8): DType.float32, (DType.int8, DType.int16): DType.int16})


def test_pair_of_the_table_meets_as_it_says() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, [2]), "y": TensorType(DType.int8, [2])}, promotion=MINE)
    assert (graph["x"] + graph["y"]).dtype is DType.float32
    assert implicit_cast_type("int8", "int16", MINE) is DType.int16


@pytest.mark.parametrize(
    ("lhs", "rhs"), [(DType.int8, DType.float32), (DType.int16, DType.int8), (DType.float32, DType.int16)]
)
def test_pair_that_the_table_has_not_is_refused_in_words(lhs: DType, rhs: DType) -> None:
    message = f"{lhs} and {rhs} have no common dtype in mine: its table has no row for {lhs} with {rhs}"
    with pytest.raises(PromotionError, match=message):
        implicit_cast_type(lhs, rhs, MINE)
    graph = Graph("g", {"x": TensorType(lhs, [2]), "y": TensorType(rhs, [2])}, promotion=MINE)
    with pytest.raises(PromotionError, match=f"add: {message}") as error:
        graph["x"] + graph["y"]
    assert error.value.help == f"cast one of them: .cast(DType.{rhs}) or .cast(DType.{lhs})"


def test_dtype_that_the_table_has_not_only_goes_with_itself() -> None:
    with pytest.raises(PromotionError, match="float64 only goes with itself"):
        implicit_cast_type("float64", "int8", MINE)
