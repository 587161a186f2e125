"""Integers of any width: random expressions with Python's integers beside them, and graphs of such integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.ir.transform.walk import bodies
from graphcore.promotion import PromotionSystem

Ints = list[int]
Array = np.ndarray[Any, Any]
SIZE = 7


def wrap(value: int, dtype: DType) -> int:
    """An integer modulo 2^bits, in the range of the dtype."""
    low = value & ((1 << dtype.bits) - 1)
    return low - (1 << dtype.bits) if dtype.is_signed and low >> (dtype.bits - 1) else low


@dataclass(frozen=True)
class Known:
    """A Symbol and what it must hold."""

    symbol: Symbol
    values: Ints

    @property
    def dtype(self) -> DType:
        return self.symbol.dtype

    def cast(self, dtype: DType) -> Known:
        return Known(self.symbol.cast(dtype), [wrap(v, dtype) for v in self.values])


def shift_left(x: int, count: int, dtype: DType) -> int:
    return x << count if 0 <= count < dtype.bits else 0


def shift_right(x: int, count: int, dtype: DType) -> int:
    return x >> count if 0 <= count < dtype.bits else (-1 if x < 0 else 0)


def floor_div(x: int, y: int, dtype: DType) -> int:
    return x // y if y else 0


def modulo(x: int, y: int, dtype: DType) -> int:
    return x % y if y else 0


Build = Callable[[Symbol, Symbol], Symbol]
Reference = Callable[[int, int, DType], int]

# The op, and what it gives for two integers before it is wrapped.
BINARY: dict[str, tuple[Build, Reference]] = {
    "add": (lambda x, y: x + y, lambda x, y, d: x + y),
    "sub": (lambda x, y: x - y, lambda x, y, d: x - y),
    "mul": (lambda x, y: x * y, lambda x, y, d: x * y),
    "and": (lambda x, y: x & y, lambda x, y, d: x & y),
    "or": (lambda x, y: x | y, lambda x, y, d: x | y),
    "xor": (lambda x, y: x ^ y, lambda x, y, d: x ^ y),
    "max": (lambda x, y: ops.max(x, y), lambda x, y, d: max(x, y)),
    "min": (lambda x, y: ops.min(x, y), lambda x, y, d: min(x, y)),
    "where": (lambda x, y: ops.where(x < y, x + y, y), lambda x, y, d: x + y if x < y else y),
    "less": (lambda x, y: (x < y).cast(x.dtype), lambda x, y, d: int(x < y)),
    "greater_equal": (lambda x, y: (x >= y).cast(x.dtype), lambda x, y, d: int(x >= y)),
    "equal": (lambda x, y: (x == y).cast(x.dtype), lambda x, y, d: int(x == y)),
    "not_equal": (lambda x, y: (x != y).cast(x.dtype), lambda x, y, d: int(x != y)),
    "concat": (lambda x, y: ops.concat([x, y])[SIZE:] + x, lambda x, y, d: x + y),
    "reversed": (lambda x, y: (x[::-1] + y[::-1])[::-1], lambda x, y, d: x + y),
    "left": (lambda x, y: x << y, shift_left),
    "right": (lambda x, y: x >> y, shift_right),
}
DIVISIONS: dict[str, tuple[Build, Reference]] = {
    "floor_div": (lambda x, y: x // y, floor_div),
    "mod": (lambda x, y: x % y, modulo),
}
UNARY: dict[str, tuple[Callable[[Symbol], Symbol], Callable[[int, DType], int]]] = {
    "neg": (lambda x: -x, lambda x, d: -x),
    "not": (lambda x: ~x, lambda x, d: ~x),
    "abs": (ops.abs, lambda x, d: abs(x)),
    "square": (ops.square, lambda x, d: x * x),
    "cube": (lambda x: x**3, lambda x, d: x**3),
    "left": (lambda x: x << 3, lambda x, d: shift_left(x, 3, d)),
    "right": (lambda x: x >> 5, lambda x, d: shift_right(x, 5, d)),
    "far_left": (lambda x: x << 67, lambda x, d: shift_left(x, 67, d)),
    "far_right": (lambda x: x >> 67, lambda x, d: shift_right(x, 67, d)),
    "far_sum": (lambda x: x + (67 << (x.dtype.bits // 4)), lambda x, d: x + (67 << (d.bits // 4))),
    "far_product": (lambda x: x * (67 << (x.dtype.bits // 4)), lambda x, d: x * (67 << (d.bits // 4))),
    "sign": (ops.sign, lambda x, d: (x > 0) - (x < 0)),
    "flag": (lambda x: x.cast(DType.bool).cast(x.dtype), lambda x, d: int(x != 0)),
}


COUNTED = {"cube": 2, "left": 2, "right": 4, "far_left": 8, "far_right": 8, "far_sum": 12, "far_product": 12}
"""The bits that hold the number which an op meets its operand with."""


def dtypes(least: int, most: int) -> st.SearchStrategy[DType]:
    """Integers of all widths between two, those beside powers of two more often."""
    near = [w for p in range(9) for w in ((1 << p) - 1, 1 << p, (1 << p) + 1) if least <= w <= most]
    widths = st.integers(least, most) | st.sampled_from(near or [least])
    return st.builds(lambda make, bits: make(bits), st.sampled_from([DType.int, DType.uint]), widths)


def values(dtype: DType) -> st.SearchStrategy[int]:
    """Values of a dtype, its limits and those of narrower ones more often."""
    least, greatest = int(dtype.min), int(dtype.max)
    edges = {least, least + 1, -1, 0, 1, 2, greatest - 1, greatest}
    edges |= {edge for p in range(0, dtype.bits, 8) for edge in (1 << p, (1 << p) - 1, -(1 << p))}
    return st.integers(least, greatest) | st.sampled_from(sorted(e for e in edges if least <= e <= greatest))


@st.composite
def trees(draw: st.DrawFn, least: int, most: int, steps: int, divides: bool) -> tuple[Graph, list[Array], list[Known]]:
    """A graph of up to `steps` ops, what to feed it, and its outputs with what they must hold."""
    value = draw(st.lists(dtypes(least, most), min_size=1, max_size=3))
    graph = Graph("tree", {f"x{i}": TensorType(dtype, [SIZE]) for i, dtype in enumerate(value)})
    pool: list[Known] = []
    arrays: list[Array] = []
    for symbol, dtype in zip(graph.inputs, value, strict=True):
        # Up to 64 bits a tensor may hold more than the width: that is wrapped.
        stored = draw(st.lists(values(dtype if dtype.bits > 64 else dtype.storage), min_size=SIZE, max_size=SIZE))
        arrays.append(np.array(stored, dtype.numpy))
        pool.append(Known(symbol, [wrap(v, dtype) for v in stored]))
    binary = {**BINARY, **(DIVISIONS if divides else {})}
    results: list[Known] = []
    for _ in range(draw(st.integers(1, steps))):
        x, y = (draw(st.sampled_from(pool)) for _ in "xy")
        kind = draw(st.sampled_from(["binary", "binary", "unary", "cast"]))
        if kind == "cast":
            step = x.cast(draw(dtypes(least, most)))
        elif kind == "unary":
            # A Python number must fit into the dtype that it meets.
            build, of = UNARY[draw(st.sampled_from([n for n in sorted(UNARY) if x.dtype.bits > COUNTED.get(n, 0)]))]
            step = Known(build(x.symbol), [wrap(of(v, x.dtype), x.dtype) for v in x.values])
        else:
            step = _binary(x, y.cast(x.dtype), *binary[draw(st.sampled_from(sorted(binary)))])
        pool.append(step)
        results.append(step)
    outputs = results[-1:] + draw(st.lists(st.sampled_from(pool), max_size=2))
    graph.output(**{f"out{i}": item.symbol for i, item in enumerate(_unnamed(outputs))})
    return graph, arrays, _unnamed(outputs)


def _binary(x: Known, y: Known, build: Build, of: Reference) -> Known:
    pairs = zip(x.values, y.values, strict=True)
    return Known(build(x.symbol, y.symbol), [wrap(of(a, b, x.dtype), x.dtype) for a, b in pairs])


def _unnamed(outputs: Sequence[Known]) -> list[Known]:
    """The outputs, each value once."""
    return list({item.symbol.id: item for item in outputs}.values())


# Graphs on integers of more than 64 bits, and values of all magnitudes

Function = Callable[..., Symbol | tuple[Symbol, ...]]


def graph_of(function: Function, *types: TensorType | DType, promotion: str | PromotionSystem = "max") -> Graph:
    """Return a graph of a function of tensors, which have one axis where only their dtype is given."""
    full = [t if isinstance(t, TensorType) else TensorType(t, ["n"]) for t in types]
    graph = Graph("test", {f"x{i}": t for i, t in enumerate(full)}, promotion=promotion)
    with graph:
        result = function(*graph.inputs)
    graph.output(*(result if isinstance(result, tuple) else (result,)))
    return graph


def run(function: Function, types: list[Any], *arrays: Array) -> list[Array]:
    graph = graph_of(function, *types)
    results = gc.InferenceSession().load(graph).execute(*arrays, wide="object")
    for symbol, result in zip(graph.outputs, results, strict=True):
        assert result.dtype == symbol.dtype.numpy
        assert result.ndim == symbol.rank
    return list(results)


def samples(dtype: DType, count: int = 40, seed: int = 0) -> Array:
    """Values of all magnitudes that a dtype has, its limits among them."""
    random = np.random.default_rng(seed)
    results = [int(dtype.min), int(dtype.max), 0, 1, int(dtype.min) + 1, int(dtype.max) - 1]
    while len(results) < count:
        bits = int(random.integers(1, dtype.bits + 1))
        value = int.from_bytes(random.bytes(-(-bits // 8)), "little") % (1 << bits)
        results.append(wrap(-value if random.random() < 0.4 else value, dtype))
    return np.array(results, object)


WIDTHS = [make(bits) for bits in (65, 70, 96, 128, 200) for make in (DType.int, DType.uint)]

wrapped = np.frompyfunc(lambda value, dtype: wrap(int(value), dtype), 2, 1)
"""Python ints modulo 2^bits of a dtype."""


def edges(dtype: DType) -> list[int]:
    """Return the ends of a dtype's range, and the numbers around 0."""
    least, greatest = int(dtype.min), int(dtype.max)
    return [least, greatest, 0, 1, 2, greatest - 1, least + 1, -1 if least else 3]


def drawn(dtype: DType, shape: Sequence[int], seed: int = 0) -> Array:
    """Return values of all magnitudes, the ends of the range among them more often."""
    random = np.random.default_rng(seed)
    pool = samples(dtype, 40, seed)
    array = np.empty(int(np.prod(shape)), object)
    for place in range(array.size):
        array[place] = pool[int(random.integers(0, 6 if random.random() < 0.5 else 40))]
    return array.reshape(shape)


def results(graph: Graph, arrays: Sequence[Array], folder: Path | None = None) -> list[list[Array]]:
    """Return the results of a graph: as built, for target "onnx", and from a file where there is a folder for it."""
    fed = [a.astype(s.dtype.numpy) for a, s in zip(arrays, graph.inputs, strict=True)]
    sources: list[Any] = [graph, graph.to_onnx(target="onnx")]
    onnx.checker.check_model(sources[1], full_check=True)
    if folder is not None:
        graph.export(folder / "wide.onnx")
        sources.append(folder / "wide.onnx")
    session = gc.InferenceSession(intra_op_num_threads=1)
    return [list(session.load(source).execute(*fed, wide="object")) for source in sources]


def check(
    function: Function,
    types: Sequence[TensorType | DType],
    arrays: Sequence[Array],
    wanted: Sequence[Any],
    *,
    promotion: str | PromotionSystem = "max",
    folder: Path | None = None,
) -> Graph:
    """Assert that a graph of a function gives what Python's integers give, modulo 2^bits; return the graph."""
    graph = graph_of(function, *types, promotion=promotion)
    for item in results(graph, arrays, folder):
        for symbol, result, value in zip(graph.outputs, item, wanted, strict=True):
            exact = np.asarray(value, object)
            stored = wrapped(exact, symbol.dtype) if symbol.dtype.is_integer and exact.size else exact
            assert result.dtype == symbol.dtype.numpy
            assert result.shape == np.shape(stored)
            assert result.tolist() == np.asarray(stored).tolist(), str(graph)
    return graph


def size(graph: Graph) -> int:
    """Return the number of nodes of a graph, with those of its bodies."""
    return sum(1 + sum(map(size, bodies(node))) for node in graph.nodes)
