"""Powers of integers of more than 64 bits, against Python's."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphcore import DType, Symbol, TensorType
from graphcore.runtime.lowering import lower
from tests.support.wide import WIDTHS, Array, check, drawn, dtypes, edges, graph_of, size, values, wrap


def power(base: int, exponent: int, dtype: DType) -> int:
    """The power modulo 2^bits; the quotient truncated to zero where the exponent is negative."""
    if exponent < 0:
        return {1: 1, -1: -1 if exponent % 2 else 1}.get(base, 0)
    return wrap(pow(base, exponent, 1 << dtype.bits), dtype)


def powers(base: Array, exponent: Array, dtype: DType) -> Array:
    return np.asarray(np.frompyfunc(lambda x, y: power(int(x), int(y), dtype), 2, 1)(base, exponent))


def raised(x: Symbol, y: Symbol) -> Symbol:
    return x**y


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_powers_of_all_edges_are_pythons(dtype: DType, tmp_path: Path) -> None:
    pairs = list(itertools.product([*edges(dtype), 10, 7], [*edges(dtype), 5, 64, 65]))
    x, y = (np.array(column, object) for column in zip(*pairs, strict=True))
    check(raised, [dtype, dtype], [x, y], [powers(x, y, dtype)], folder=tmp_path)


@pytest.mark.numbers
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_powers_of_any_width_are_pythons(data: st.DataObject) -> None:
    dtype = data.draw(dtypes(65, 260))
    x, y = (np.array(data.draw(st.lists(values(dtype), min_size=5, max_size=5)), object) for _ in "xy")
    check(raised, [dtype, dtype], [x, y], [powers(x, y, dtype)])


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_powers_take_fewer_than_60_nodes_for_every_width(dtype: DType) -> None:
    for graph in (
        graph_of(raised, dtype, dtype),
        *(graph_of(lambda x, n=n: x**n, dtype) for n in (0, 1, 2, 3, 5, 100)),
    ):
        for target in ("onnx", "cpu"):
            assert size(lower(graph, target)) < 60


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [DType.int(70), DType.uint(96), DType.int(200)], ids=str)
@pytest.mark.parametrize(
    "shapes",
    [([3, 1], [4]), ([4], [3, 1]), ([], [2, 3]), ([2, 3], []), ([], []), ([0], [0]), ([2, 3], [3]), ([1], [5])],
    ids=str,
)
def test_powers_broadcast(dtype: DType, shapes: tuple[list[int], list[int]]) -> None:
    x, y = (drawn(dtype, shape, seed) for seed, shape in enumerate(shapes))
    y = np.asarray(y % 9, object)
    static = [TensorType(dtype, shape) for shape in shapes]
    dynamic = [
        TensorType(dtype, [f"d{len(shape) - i}" if n != 1 else 1 for i, n in enumerate(shape)]) for shape in shapes
    ]
    for types in (static, dynamic):
        check(raised, types, [x, y], [powers(x, y, dtype)])


@pytest.mark.numbers
@pytest.mark.parametrize("exponent", [0, 1])
@pytest.mark.parametrize("dtype", [DType.int(70), DType.uint(70)], ids=str)
def test_powers_broadcast_when_all_exponents_are_equal(dtype: DType, exponent: int) -> None:
    x, y = np.array([[3], [0], [1 << 40]], object), np.full(4, exponent, object)
    types = [TensorType(dtype, ["n", 1]), TensorType(dtype, ["m"])]
    check(raised, types, [x, y], [powers(x, y, dtype)])


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [DType.int(65), DType.uint(70), DType.int(128)], ids=str)
def test_powers_of_constants_are_pythons_when_they_are_arrays_or_numbers(dtype: DType) -> None:
    x = np.array([-3, -1, 0, 1, 2, 1 << 40] if dtype.is_signed else [3, 1, 0, 1, 2, 1 << 40], object)
    arrays = [[0, 1, 2, 3, 5, 60], [7] * 6, [1 << 60, 2, 1, 0, 3, 4]]
    numbers = [0, 1, 2, 3, 7, 16, 100, 1 << 17, 1 << 62]
    if dtype.is_signed:
        arrays.append([-1, -2, 3, -4, -(1 << 60), 1])
        numbers += [-1, -2, -(1 << 60)]
    for item in arrays:
        exponents = np.array(item, object)
        types = [TensorType(dtype, [6])]
        check(lambda a, e=item: a ** a.graph.constant(e, dtype), types, [x], [powers(x, exponents, dtype)])
    for number in numbers:
        wanted = powers(x, np.array(number, object), dtype)
        check(lambda a, n=number: a**n, [dtype], [x], [wanted])


@pytest.mark.numbers
def test_a_constant_is_raised_to_powers() -> None:
    dtype = DType.int(100)
    y = np.array([0, 1, 5, 99, 100, -1, 1 << 80], object)
    wanted = powers(np.array(3, object), y, dtype)
    check(lambda e: e.graph.constant(3, dtype) ** e, [dtype], [y], [wanted])


@pytest.mark.numbers
@pytest.mark.filterwarnings("ignore::graphcore.errors.LossyCastWarning")
@pytest.mark.parametrize("style", ["hls", "cpp"])
@pytest.mark.parametrize("names", [("i96", "i8"), ("u100", "u8"), ("i64", "u100"), ("i33", "i96"), ("u7", "i70")])
def test_operands_of_other_widths_meet_first(style: str, names: tuple[str, str]) -> None:
    types = [DType.of(name) for name in names]
    x, y = (np.array(edges(t), object) for t in types)
    x, y = (column.ravel() for column in np.meshgrid(x, y))
    graph = graph_of(raised, *types, promotion=f"allo_{style}")
    met = graph.outputs[0].dtype
    base, exponent = (np.array([wrap(int(v), met) for v in column], object) for column in (x, y))
    check(raised, types, [x, y], [powers(base, exponent, met)], promotion=f"allo_{style}")
