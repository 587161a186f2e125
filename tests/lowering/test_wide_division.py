"""Quotients of integers of thousands of bits, and floats made of them, beside Python's integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops

pytestmark = pytest.mark.numbers

Array = np.ndarray[Any, Any]
D = DType
DTYPES = [D.int(1001), D.uint(1024), D.int(1100), D.uint(2048), D.int(3001)]


def numbers(dtype: DType, count: int, seed: int) -> list[int]:
    """Numbers of all lengths: drawn ones, powers of two, the greatest of a length, 0."""
    random = np.random.default_rng(seed)
    results = []
    for _ in range(count):
        bits = int(random.choice([1, 5, 16, 17, 33, dtype.bits // 3, dtype.bits // 2, dtype.bits - dtype.is_signed]))
        drawn = int.from_bytes(random.bytes(-(-bits // 8)), "little") % (1 << bits)
        words = int("".join(random.choice(["0000", "ffff", "8000", "7fff"], -(-bits // 16))), 16) % (1 << bits)
        value = [drawn, words, 1 << (bits - 1), (1 << bits) - 1, 0][random.integers(5)]
        results.append(-value if dtype.is_signed and random.integers(2) else value)
    return results


def truncated(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def wrapped(value: int, dtype: DType) -> int:
    return (value - int(dtype.min)) % (1 << dtype.bits) + int(dtype.min)


def executed(graph: Graph, *arrays: Any) -> list[Array]:
    results = [np.array(a, object) if isinstance(a, list) else a for a in arrays]
    return list(gc.InferenceSession().load(graph).execute(*results, wide="object"))


QUOTIENTS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[int, int], int]]] = {
    "/": (lambda x, y: x / y, truncated),
    "//": (lambda x, y: x // y, lambda x, y: x // y),
    "%": (lambda x, y: x % y, lambda x, y: x % y),
    "fmod": (ops.fmod, lambda x, y: x - truncated(x, y) * y),
}


@pytest.mark.parametrize("dtype", [*DTYPES, *map(D.int, (990, 991, 992, 993, 1000)), D.uint(991), D.uint(992)], ids=str)
def test_quotients_are_those_of_python_when_of_thousands_of_bits(dtype: DType) -> None:
    graph = Graph("divide", {"x": TensorType(dtype, ["n"]), "y": TensorType(dtype, ["n"])}, promotion="allo_cpp")
    graph.output(*(call(*graph.inputs) for call, _ in QUOTIENTS.values()))
    x, y = numbers(dtype, 80, 1), numbers(dtype, 80, 2)
    x[:2], y[:2] = [int(dtype.min), int(dtype.max)], [-1 if dtype.is_signed else 1, int(dtype.max)]
    for got, (_, formula) in zip(executed(graph, x, y), QUOTIENTS.values(), strict=True):
        want = [wrapped(formula(a, b), dtype) if b else 0 for a, b in zip(x, y, strict=True)]
        assert got.tolist() == want


def test_quotients_broadcast_and_take_narrower_operands() -> None:
    types = {"x": TensorType("int1500", ["m", 1]), "y": TensorType("int40", [3]), "z": TensorType("int1500", [])}
    graph = Graph("broadcast", types, promotion="allo_cpp")
    x, y, z = graph.inputs
    graph.output(x // y, z % x, (x // y).cast("int8"))
    a, b, c = [[7**500], [-(3**900)]], np.array([5, -7, 10**11]), np.array(-(11**400), object)
    first, second, low = executed(graph, a, b, c)
    assert first.tolist() == [[row[0] // int(v) for v in b] for row in a]
    assert second.tolist() == [[int(c[()]) % row[0]] for row in a]
    assert low.tolist() == [[wrapped(row[0] // int(v), D.int8) for v in b] for row in a]


def test_quotient_by_a_constant_and_of_no_elements() -> None:
    graph = Graph("constant", {"x": TensorType("uint1200", ["n"])}, promotion="allo_cpp")
    graph.output(graph["x"] // graph.constant(10**300, "uint1200"))
    model = gc.InferenceSession().load(graph)
    (got,) = model.execute(np.array([10**355 + 7, 3], object), wide="object")
    assert got.tolist() == [10**55, 0]
    assert model.execute(np.array([], object), wide="object")[0].shape == (0,)


def test_one_hot_of_wide_values_is_a_choice_of_them() -> None:
    on, off = 3**200, -(5**150)
    graph = Graph("hot", {"i": TensorType("int64", ["n"])})
    with graph:
        values = [graph.constant(v, "int500") for v in (on, off)]
        graph.output(ops.one_hot(graph["i"], 3, on_value=values[0], off_value=values[1]))
    (got,) = executed(graph, np.array([2, -3, 9]))
    assert got.tolist() == [[off, off, on], [on, off, off], [off, off, off]]


def test_division_has_as_many_nodes_for_every_width() -> None:
    counts = set()
    for bits in (1001, 4096, 65_536):
        dtype = D.uint(bits)
        graph = Graph("size", {"x": TensorType(dtype, ["n"]), "y": TensorType(dtype, ["n"])}, promotion="allo_cpp")
        graph.output(graph["x"] // graph["y"])
        counts.add(sum(1 for _ in gc.runtime.lowering.lower(graph, "cpu").nodes))
    assert max(counts) - min(counts) <= 3
    assert max(counts) < 150


@pytest.mark.parametrize("dtype", [*DTYPES, D.uint(1023), D.int(1024), D.int(1025), D.uint(1056), D.int(5000)], ids=str)
def test_integers_and_floats_become_each_other_when_of_any_width(dtype: DType) -> None:
    graph = Graph("floats", {"x": TensorType(dtype, ["n"]), "f": TensorType("float64", ["m"])}, promotion="allo_cpp")
    x, f = graph.inputs
    graph.output(x.cast("float64"), x.cast("float32"), f.cast(dtype))
    steps = [(k, d) for k in (53, 63, 900, 1000) for d in (-1, 0, 1, 2 ** max(k - 53, 0), 3 * 2 ** max(k - 54, 0))]
    near = [sign * (2**k + d) for k, d in steps for sign in (1, -1)] + [2**1024 - 2**970 - 1, 2**1024 - 2**970]
    results = [v for v in (*numbers(dtype, 60, 3), *near) if dtype.min <= v <= dtype.max]
    floats = np.array([0.5, -1.5, 1e300, -1e300, 1.7e308, -1.7e308, np.inf, -np.inf, np.nan, 2.0**1000, 123456789.9])
    double, single, whole = executed(graph, results, floats)
    assert double.tolist() == [_float(v) for v in results]
    with np.errstate(over="ignore"):
        assert [v for v in single.tolist() if math.isinf(v)] == [
            math.inf if v > 0 else -math.inf for v in results if abs(v) >= 2**128 - 2**103
        ]
    assert whole.tolist() == [_rounded(v, dtype) for v in floats.tolist()]


def _float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _rounded(value: float, dtype: DType) -> int:
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return int(dtype.max if value > 0 else dtype.min)
    return min(max(int(value), int(dtype.min)), int(dtype.max))


EXTREMES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[int, int], int]]] = {
    "+": (lambda x, y: x + y, lambda x, y: x + y),
    "*": (lambda x, y: x * y, lambda x, y: x * y),
    "//": (lambda x, y: x // y, lambda x, y: x // y if y else 0),
    "%": (lambda x, y: x % y, lambda x, y: x % y if y else 0),
    "<": (lambda x, y: x < y, lambda x, y: x < y),
    "max": (ops.max, max),
    "min": (ops.min, min),
    ">>": (lambda x, y: x >> (y & 1), lambda x, y: x >> (y & 1)),
}


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("bits", [2, 3, 7, 9, 31, 33, 63, 64, 65, 95, 96, 97, 129])
def test_extremes_of_each_width_give_what_python_gives(bits: int, is_signed: bool) -> None:
    dtype = D.int(bits) if is_signed else D.uint(bits)
    graph = Graph("ends", {"x": TensorType(dtype, ["n"]), "y": TensorType(dtype, ["n"])})
    with graph:
        x, y = graph.inputs
        graph.output(*(call(x, y) for call, _ in EXTREMES.values()))
    ends = sorted({int(dtype.min), int(dtype.min) + 1, max(int(dtype.min), -1), 0, 1, int(dtype.max)})
    pairs = [(a, b) for a in ends for b in ends]
    value = object if bits > 64 else dtype.storage.numpy
    results = [np.array(column, np.int8 if bits < 5 else value).astype(value) for column in zip(*pairs, strict=True)]
    for got, (name, (_, formula)) in zip(executed(graph, *results), EXTREMES.items(), strict=True):
        want = [formula(a, b) if name == "<" else wrapped(formula(a, b), dtype) for a, b in pairs]
        assert [int(v) for v in got] == want, name


def _or_0(formula: Callable[[int, int], int]) -> Callable[[int, int], int]:
    return lambda x, y: formula(x, y) if y else 0


LIMBED: dict[str, tuple[Callable[[Any, Any], Any], Callable[[int, int], int]]] = {
    "+": EXTREMES["+"],
    "*": EXTREMES["*"],
    "<": EXTREMES["<"],
    **{name: (call, _or_0(formula)) for name, (call, formula) in QUOTIENTS.items()},
    "<< 33": (lambda x, y: x << 33, lambda x, y: x << 33),
    ">> 33": (lambda x, y: x >> 33, lambda x, y: x >> 33),
    "a limb less": (lambda x, y: x.cast(D.int(x.dtype.bits - 32)), lambda x, y: x),
    "a bit more": (lambda x, y: x.cast(D.int(x.dtype.bits + 1)), lambda x, y: x),
}
LIMBS = [*range(9, 36, 2), *range(36, 129, 4)]
WIDTHS = sorted({32 * limbs + beside for limbs in LIMBS for beside in (-1, 0, 1)} | {*range(257, 1101, 31)})


@pytest.mark.parametrize("bits", WIDTHS)
def test_widths_beside_each_limb_give_what_python_gives(bits: int) -> None:
    dtype = D.int(bits) if bits % 2 else D.uint(bits)
    graph = Graph("limbs", {"x": TensorType(dtype, ["n"]), "y": TensorType(dtype, ["n"])}, promotion="allo_cpp")
    graph.output(*(call(*graph.inputs) for call, _ in LIMBED.values()))
    ends = [int(dtype.min), int(dtype.max), 0, 1, int(dtype.min) + 1, -1 if dtype.is_signed else 2]
    x = [*ends, int(dtype.max), int(dtype.max), *numbers(dtype, 24, 1)]
    y = [*ends[::-1], int(dtype.max), 1 << 32, *numbers(dtype, 24, 2)]
    for symbol, got, (name, (_, formula)) in zip(graph.outputs, executed(graph, x, y), LIMBED.items(), strict=True):
        values = [formula(a, b) for a, b in zip(x, y, strict=True)]
        want = values if symbol.dtype is D.bool else [wrapped(v, symbol.dtype) for v in values]
        assert got.tolist() == want, name
