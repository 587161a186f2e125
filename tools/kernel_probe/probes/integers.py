"""Probes of integers: division, sums, powers and the order of 64-bit numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.types.dtypes import DType
from tools.kernel_probe.probes.probe import INTEGERS, LONG, D, Family, Probe, operator, reduction

SMALL, LARGE = 24, 2326880433
"""int64 whose high halves are equal: some vector instructions order the low ones as signed."""

EDGES = [0, 1, -1, 24, SMALL, LARGE, 2**31 - 1, 2**31, 2**32 - 1, 2**32, -(2**31), -(2**31) - 1, -(2**32), 2**63 - 1]
EDGES = [*EDGES, -(2**63), 2**40 + 5, 2**40 + LARGE, -(2**40) + 7, -(2**40) + LARGE]

LENGTHS = (1, 2, 3, 7, 8, 16, 17, 64, 1000)
"""Of vectors: shorter than a vector instruction's, as long, and with a rest."""


def families() -> list[Family]:
    """Return the faults of onnxruntime in integers."""
    return [
        Family("Integer Div and Mod fail on 0, and MIN / -1 ends the process.", [*_divisions()]),
        Family("Sums and products of integers saturate where they should wrap.", [*_sums()]),
        Family("Means and norms of integers wrap or saturate.", [*_means()]),
        Family("Pow of integers goes through float64: it rounds beyond 2^53 and saturates.", _powers()),
        Family("int64 with equal high halves are ordered by their low halves, taken as signed.", [*_orders()]),
        Family("Sign of int64 is -1 from 2^31 to 2^32 - 1.", [*_signs()]),
        Family("Mod of int64 with fmod=1 goes through float64.", [*_truncated()]),
    ]


def _divisions() -> Iterator[Probe]:
    for dtype in INTEGERS:
        yield Probe(dtype, ("Div",), ([7, 9], [0, 2]), operator("Div"), ([0, 4],))
        yield Probe(dtype, ("Mod",), ([7, 9], [0, 2]), operator("Mod"), ([0, 1],))
        yield Probe(dtype, ("Div",), ([7, 9], 0), operator("Div"), ([0, 0],))
        yield Probe(dtype, ("Mod",), ([7, 9], 0), operator("Mod"), ([0, 0],))
        yield Probe(dtype, ("Div",), (7, [0, 2]), operator("Div"), ([0, 3],))
        yield Probe(dtype, ("Mod",), (7, [0, 2]), operator("Mod"), ([0, 1],))
        yield Probe(dtype, ("Mod",), ([7, 9], [0, 2]), operator("Mod", fmod=1), ([0, 1],))
    for dtype in (D.int8, D.int16, D.int32, D.int64):
        least = int(dtype.min)
        for count, x, y in itertools.product((1, 40), (True, False), (True, False)):
            left: Any = [least] * count if x else least
            right: Any = [-1] * count if y else -1
            length = count if x or y else 0
            for op, want in (("Div", least), ("Mod", 0)):
                result: Any = [want] * length if length else want
                dies = dtype in LONG
                yield Probe(dtype, (op,), (left, right), operator(op), (result,), dies=dies)
                if op == "Mod":
                    yield Probe(dtype, (op,), (left, right), operator(op, fmod=1), (result,), dies=dies)


def _sums() -> Iterator[Probe]:
    for dtype in LONG:
        least, greatest = int(dtype.min), int(dtype.max)
        yield Probe(dtype, ("ReduceSum",), ([[greatest, 2]],), reduction("ReduceSum"), ([least + 1],))
        yield Probe(dtype, ("ReduceSum",), ([[greatest], [2]],), reduction("ReduceSum", 0), ([least + 1],))
        for op, x in itertools.product(("ReduceSum", "ReduceL1", "ReduceSumSquare", "ReduceProd"), _LARGE):
            yield from _wrapping(dtype, op, np.full(x, greatest - 5))
        yield Probe(dtype, ("ReduceProd",), ([[greatest, 3]],), reduction("ReduceProd"), ([greatest - 2],))
        yield Probe(dtype, ("ReduceProd",), ([[greatest], [3]],), reduction("ReduceProd", 0), ([greatest - 2],))
        yield Probe(dtype, ("ReduceL1",), ([[greatest, 2]],), reduction("ReduceL1"), ([least + 1],))
        yield Probe(dtype, ("ReduceSumSquare",), ([[greatest, 1]],), reduction("ReduceSumSquare"), ([2],))
        yield Probe(dtype, ("Einsum",), ([[greatest, 2]],), operator("Einsum", equation="ij->i"), ([least + 1],))
        yield Probe(dtype, ("ReduceLogSum",), ([[-3, -4]],), reduction("ReduceLogSum"), ([0],))
        yield Probe(dtype, ("ReduceLogSumExp",), ([[-3, -4]],), reduction("ReduceLogSumExp"), ([-2],))


_LARGE = ((2, 3), (3, 40), (1000, 2), (2, 3, 4))
"""Shapes of numbers whose sums wrap."""


def _wrapping(dtype: DType, op: str, x: Array) -> Iterator[Probe]:
    exact = x.astype(object)
    exact = abs(exact) if op == "ReduceL1" else exact**2 if op == "ReduceSumSquare" else exact
    for axes in {(0,), (x.ndim - 1,), tuple(range(x.ndim)), (0, x.ndim - 1)}:
        result = exact
        for axis in sorted(axes, reverse=True):
            result = np.multiply.reduce(result, axis) if op == "ReduceProd" else np.add.reduce(result, axis)
        want = np.vectorize(lambda number: _wrapped(int(number), dtype.bits), otypes=[np.int64])(result)
        yield Probe(dtype, (op,), (x,), reduction(op, *axes), (want,))


def _means() -> Iterator[Probe]:
    for dtype in LONG:
        most = int(dtype.max)
        for item in ([[most, most]], [[most, most - 2]], [[-5, 2]], [[1, 2]], [[7, 7, 6]], [[2**24 + 1] * 3]):
            numbers = np.array(item)
            mean = int(numbers.astype(object).sum()) / numbers.shape[1]
            want = [int(mean)] if abs(mean) < 2**53 else [most]
            yield Probe(dtype, ("ReduceMean",), (numbers,), reduction("ReduceMean"), (want,))
            yield Probe(dtype, ("ReduceMean",), (numbers.T,), reduction("ReduceMean", 0), (want,))
        for op in ("ReduceMean", "ReduceL2"):
            for axes, none in (((1,), [0, 0]), ((0, 1), 0)):
                yield Probe(dtype, (op,), (np.zeros((2, 0)),), reduction(op, *axes), (none,), dies=True)
        for item in ([[3, 4]], [[-3, 4]], [[1, 1]], [[30000, 40000]], [[2**30, 0]], [[46341, 46341]], [[-5, 2]]):
            numbers = np.array(item)
            want = [int(np.sqrt(float((numbers.astype(object) ** 2).sum())))]
            yield Probe(dtype, ("ReduceL2",), (numbers,), reduction("ReduceL2"), (want,))
            yield Probe(dtype, ("ReduceL2",), (numbers.T,), reduction("ReduceL2", 0), (want,))


def _powers() -> list[Probe]:
    return [
        Probe(D.int64, ("Pow",), ([3, 7, 2], [39, 22, 64]), operator("Pow"), ([3**39, 7**22, 0],)),
        Probe(D.int64, ("Pow",), ([3, 7], 33), operator("Pow"), ([3**33, _wrapped(7**33, 64)],)),
        Probe(D.int64, ("Pow",), (3, [39, 22]), operator("Pow"), ([3**39, 3**22],)),
        Probe(D.int32, ("Pow",), ([3, 7, -1], [21, 12, -3]), operator("Pow"), ([3**21 % 2**32, 7**12 % 2**32, -1],)),
        Probe(D.int32, ("Pow",), ([3, 7], 12), operator("Pow"), ([3**12, 7**12 % 2**32],)),
    ]


def _wrapped(number: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (number + half) % (1 << bits) - half


def _orders() -> Iterator[Probe]:
    draw = np.random.default_rng(0)
    edges = np.array(EDGES, np.int64)
    for count in LENGTHS:
        small, large = np.full(count, SMALL), np.full(count, LARGE)
        x, y = (draw.choice(edges, count) for _ in range(2))
        for op, function in (("Max", np.maximum), ("Min", np.minimum)):
            for left, right in ((small, large), (large, small), (x, y)):
                yield Probe(D.int64, (op,), (left, right), operator(op), (function(left, right),))
                for a, b in ((left, right[0]), (left[0], right)):
                    yield Probe(D.int64, (op,), (a, b), operator(op), (function(a, b),))
            column = y.reshape(-1, 1)
            yield Probe(D.int64, (op,), (x, column), operator(op), (function(x, column),))
            yield Probe(D.int64, (op,), (x, y, small), operator(op), (function(function(x, y), small),))
        for low, high in ((None, LARGE), (SMALL, None), (SMALL, LARGE), (LARGE, 2**40), (-(2**40), -1)):
            results = [None if n is None else np.array(n) for n in (low, high)]
            for array in (small, large, x):
                want = np.clip(array, low, high)
                yield Probe(D.int64, ("Clip",), (array,), operator("Clip", *results), (want,))
        for rows in ([[*small, *large]], [[*large, *small]], [[*x, *y]], [x, y, x]):
            yield from _reduced(np.array(rows))
    everything = np.array(list(itertools.product(EDGES, EDGES)))
    yield Probe(D.int64, ("Max",), (*everything.T,), operator("Max"), (everything.max(1),))
    yield Probe(D.int64, ("Min",), (*everything.T,), operator("Min"), (everything.min(1),))
    yield from _reduced(everything)
    yield from _reduced(everything.reshape(19, 19, 2))


def _reduced(x: Array) -> Iterator[Probe]:
    for op, function in (("ReduceMax", np.max), ("ReduceMin", np.min)):
        for axes in ((0,), (x.ndim - 1,), tuple(range(x.ndim))):
            yield Probe(D.int64, (op,), (x,), reduction(op, *axes), (function(x, axis=axes),))
        want = function(x, axis=1, keepdims=True)
        yield Probe(D.int64, (op,), (x,), reduction(op, keepdims=1), (want,))


def _signs() -> Iterator[Probe]:
    yield Probe(D.int64, ("Sign",), ([LARGE, 1 << 32, 0, -5],), operator("Sign"), ([1, 1, 0, -1],))
    yield Probe(D.int64, ("Sign",), (LARGE,), operator("Sign"), (1,))
    for count in LENGTHS:
        for numbers in ([LARGE], [2**31], [2**32 - 1], EDGES):
            x = np.resize(np.array(numbers), count)
            yield Probe(D.int64, ("Sign",), (x,), operator("Sign"), (np.sign(x),))


def _truncated() -> Iterator[Probe]:
    big, prime = 2**62 + 1, 10**9 + 7
    pairs = [(big, prime), (-big - 2, prime), (big, -prime), (2**53 + 1, 3), (2**63 - 1, 2**62), (-(2**63), 10)]
    for count in (1, 2, len(pairs), 40, 1000):
        x, y = (np.resize(np.array(side), count) for side in zip(*pairs, strict=True))
        yield _remainders(x, y)
        yield _remainders(x, y[0])
        yield _remainders(x[0], y)
        yield _remainders(x.reshape(-1, 1)[:7], y[:7])
        array = np.array(prime)
        want = np.fmod(x, array)
        yield Probe(D.int64, ("Mod",), (x,), operator("Mod", array, fmod=1), (want,))
    yield _remainders(np.array(big), np.array(prime))


def _remainders(x: Array, y: Array) -> Probe:
    return Probe(D.int64, ("Mod",), (x, y), operator("Mod", fmod=1), (np.fmod(x, y),))
