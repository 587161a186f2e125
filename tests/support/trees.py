"""Random expressions on integers of any width: built as graphs, and evaluated with Python's integers beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from graphcore import DType, Graph, Symbol, TensorType, ops

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
    given = draw(st.lists(dtypes(least, most), min_size=1, max_size=3))
    graph = Graph("tree", {f"x{i}": TensorType(dtype, [SIZE]) for i, dtype in enumerate(given)})
    pool: list[Known] = []
    arrays: list[Array] = []
    for symbol, dtype in zip(graph.inputs, given, strict=True):
        # Up to 64 bits a tensor may hold more than the width: that is wrapped.
        held = draw(st.lists(values(dtype if dtype.bits > 64 else dtype.storage), min_size=SIZE, max_size=SIZE))
        arrays.append(np.array(held, dtype.numpy))
        pool.append(Known(symbol, [wrap(v, dtype) for v in held]))
    binary = {**BINARY, **(DIVISIONS if divides else {})}
    made: list[Known] = []
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
        made.append(step)
    outputs = made[-1:] + draw(st.lists(st.sampled_from(pool), max_size=2))
    graph.output(**{f"out{i}": known.symbol for i, known in enumerate(_unnamed(outputs))})
    return graph, arrays, _unnamed(outputs)


def _binary(x: Known, y: Known, build: Build, of: Reference) -> Known:
    pairs = zip(x.values, y.values, strict=True)
    return Known(build(x.symbol, y.symbol), [wrap(of(a, b, x.dtype), x.dtype) for a, b in pairs])


def _unnamed(outputs: Sequence[Known]) -> list[Known]:
    """The outputs, each value once."""
    return list({known.symbol.id: known for known in outputs}.values())
