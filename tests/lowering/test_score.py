"""The score of `tests.support.every.score`: every cell is built, run on the CPU provider, and has NumPy's values."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType
from graphcore.conformance.cells import CELLS, DTYPES, OPS, Cell, expected, types_of
from graphcore.conformance.cells import operands as whole_operands
from graphcore.errors import LossyCastWarning
from tests.support.every.score import Array, agrees, operands, wanted

pytestmark = pytest.mark.releases


def test_cells_are_those_of_the_score() -> None:
    assert len(CELLS) == len(set(CELLS)) == 2397
    counts = Counter(cell.op for cell in CELLS)
    assert len(counts) == 20
    assert (counts["add"], counts["sub"], counts["xor"], counts["shl"], counts["sum"]) == (169, 168, 73, 56, 13)


@pytest.mark.numbers
@pytest.mark.parametrize("left", DTYPES, ids=str)
def test_every_cell_has_the_values_of_numpy(left: DType) -> None:
    wrong = []
    for right in (*DTYPES, None):
        cells = [cell for cell in CELLS if cell.left is left and cell.right is right]
        types: dict[str, TensorType] = {}
        arrays: list[Array] = []
        for cell in cells:
            value = operands(cell)
            arrays += value
            types.update(types_of(cell, value))
        graph = Graph("score", types)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LossyCastWarning)
            graph.output(**{f"out_{cell.op}": _built(cell, graph) for cell in cells})
        results = gc.InferenceSession().load(graph)(*arrays)
        for cell, got in zip(cells, results, strict=True):
            if not agrees(cell, got, wanted(cell, *operands(cell))):
                wrong.append(cell)
    assert not wrong


def _built(cell: Cell, graph: Graph) -> Any:
    function: Callable[..., Any] = OPS[cell.op]
    return function(*(graph[name] for name in types_of(cell, operands(cell))))


@pytest.mark.numbers
def test_expected_results_of_whole_numbers_are_those_of_numpy() -> None:
    for cell in CELLS:
        arrays = whole_operands(cell)
        result = expected(cell, *arrays)
        assert agrees(cell, result, wanted(cell, *arrays)), (cell, result, wanted(cell, *arrays))
