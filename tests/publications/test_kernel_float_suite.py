"""kernel_float's own tests, stated again: see `kernel_float`."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from graphcore import DType, Graph, TensorType
from graphcore.errors import PromotionError
from tests.publications import kernel_float as suite
from tests.publications.rows import Row, cells, computed

HEAD, *LINES = [line.split() for line in suite.PROMOTION.strip().splitlines()]
PAIRS = [(line[0], column, cell) for line in LINES for column, cell in zip(HEAD, line[1:], strict=True)]


def test_every_check_of_the_suite_has_a_row() -> None:
    counts = Counter({row.file: 0 for row in suite.ROWS})
    for row in suite.ROWS:
        counts[row.file] += row.checks
    counts["promotion.cu"] = sum(cell != "-" for _, _, cell in PAIRS)
    assert counts == suite.CHECKS
    assert sum(counts.values()) == 432
    assert sum(row.checks for row in suite.ROWS if row.reason) == 3 + 8 + 50 + 42


@pytest.mark.filterwarnings("ignore::graphcore.errors.LossyCastWarning")
@pytest.mark.parametrize(("left", "right", "wanted"), [pair for pair in PAIRS if pair[2] not in "-x"])
def test_sum_of_two_vectors_is_of_the_suites_type(left: str, right: str, wanted: str) -> None:
    types = [TensorType(suite.NAMES[name], [2]) for name in (left, right)]
    x, y = Graph("sum", types, promotion="kernel_float").inputs
    assert (x + y).dtype is suite.NAMES[wanted]


@pytest.mark.parametrize(("left", "right"), [pair[:2] for pair in PAIRS if pair[2] == "-" and "char" not in pair[:2]])
def test_sum_that_the_suite_leaves_out_is_refused(left: str, right: str) -> None:
    types = [TensorType(suite.NAMES[name], [2]) for name in (left, right)]
    x, y = Graph("sum", types, promotion="kernel_float").inputs
    with pytest.raises(PromotionError):
        x + y


@pytest.mark.numbers
@pytest.mark.parametrize(
    ("row", "dtype"), [pytest.param(*cell, id=f"{cell[0].name}, {cell[1]}") for cell in cells(suite.ROWS)]
)
def test_check_holds_here(row: Row, dtype: DType) -> None:
    got, want = computed(row, dtype, "kernel_float")
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    close = max(row.near, 2.0**-8) if want.dtype.itemsize == 2 else row.near
    if DType.of(want.dtype).is_float:
        got, want = got.astype(np.float64), want.astype(np.float64)
    if not row.near:
        np.testing.assert_array_equal(got, want)
        return
    np.testing.assert_allclose(got, want, rtol=close, atol=row.near)
