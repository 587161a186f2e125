"""Products of integers of thousands of bits, against Python's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphcore import DType, Symbol, TensorType, ops
from graphcore.runtime.lowering import lower
from tests.lowering.test_wide_products import SHAPES
from tests.support.wide import Function, check, drawn, graph_of, size

WIDTHS = [DType.int(1025), DType.uint(1040), DType.int(1056), DType.uint(2000), DType.int(4100)]

# The function, and the shapes of its operands as they are declared and as they are fed.
FUNCTIONS: list[tuple[Function, list[list[Any]], list[list[int]]]] = [
    (lambda x, y: x * y, [["n"], ["n"]], [[3], [3]]),
    (lambda x, y: x * y, [[2, 1], ["n"]], [[2, 1], [3]]),
    (lambda x, y: x * y, [[], [2, 2]], [[], [2, 2]]),
    (lambda x, y: x * y + x, [["n"], ["n"]], [[0], [0]]),
    (lambda x: x * x - x, [["n"]], [[4]]),
    (lambda x, y, z: x * y + z, [["n"], [1], [3, 1]], [[2], [1], [3, 1]]),
]


def fused(x: Symbol, y: Symbol, z: Symbol) -> Symbol:
    return ops.fma(x, y, z)


@pytest.mark.numbers
@pytest.mark.parametrize("system", ["max", "allo_hls", "allo_cpp"])
@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
@pytest.mark.parametrize(("function", "dims", "fed"), FUNCTIONS)
def test_products_are_pythons(
    function: Function, dims: list[list[Any]], fed: list[list[int]], dtype: DType, system: str
) -> None:
    arrays = [drawn(dtype, shape, i) for i, shape in enumerate(fed)]
    check(function, [TensorType(dtype, s) for s in dims], arrays, [function(*arrays)], promotion=system)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_squares_and_fused_products_are_pythons(dtype: DType) -> None:
    x, y, z = drawn(dtype, [2, 3], 1), drawn(dtype, [3], 2), drawn(dtype, [2, 1, 1], 3)
    check(ops.square, [TensorType(dtype, ["m", 3])], [x], [x * x])
    check(fused, [TensorType(dtype, a.shape) for a in (x, y, z)], [x, y, z], [x * y + z])


@pytest.mark.numbers
@pytest.mark.parametrize("system", ["max", "allo_hls"])
@pytest.mark.parametrize("dtype", [DType.int(1025), DType.uint(1500)], ids=str)
def test_matrix_products_are_pythons(dtype: DType, system: str) -> None:
    for left, right, fed, other in SHAPES:
        x, y = drawn(dtype, fed, 1), drawn(dtype, other, 2)
        wanted = x @ y if fed[-1] else np.zeros((fed[0], other[-1]), object)
        check(
            lambda x, y: x @ y, [TensorType(dtype, left), TensorType(dtype, right)], [x, y], [wanted], promotion=system
        )


@pytest.mark.numbers
def test_products_of_the_longest_integers_are_pythons() -> None:
    dtype = DType.int(65_536)
    x = drawn(dtype, [2], 5)
    check(lambda x: x * x, [TensorType(dtype, [2])], [x], [x * x])


@pytest.mark.parametrize("function", [lambda x: x * x, ops.square, lambda x: ops.fma(x, x, x), lambda x: x @ x])
def test_products_take_as_many_nodes_for_every_width(function: Function) -> None:
    counts = {size(lower(graph_of(function, TensorType(DType.int(bits), [3, 3])), "cpu")) for bits in (1088, 9600)}
    assert len(counts) == 1
    assert counts.pop() < 80
