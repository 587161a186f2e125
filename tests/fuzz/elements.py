"""Single ops of elements on every value that their dtype has: all of 8 and 16 bits, all pairs of 8 bits, and edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, TensorType
from graphcore.build.declare import REGISTRY
from graphcore.errors import GraphcoreError
from tests.fuzz.meaning import assert_promised
from tests.support import reference
from tests.support.every.case import ALL, Array
from tests.support.every_op import CASES

FAMILIES = ("elementwise", "special", "bits", "bitfields", "activation")
EDGES = 4096


@dataclass(frozen=True, slots=True)
class Element:
    """An op on a dtype: one thing to check."""

    name: str
    dtype: DType


def elements() -> Iterator[Element]:
    """Give the ops of one or two operands of one dtype that compute element by element."""
    for name, case in CASES.items():
        if REGISTRY[name].family not in FAMILIES or len(case.operands) > 2:
            continue
        if all(o.dims == "n 4" and o.dtype is None and o.values in ("any", "tame") for o in case.operands):
            yield from (Element(name, dtype) for dtype in ALL if dtype not in case.refused)


def values(dtype: DType) -> Array:
    """Return all values of a dtype of up to 16 bits, and edges and random ones of another."""
    if dtype is DType.bool:
        return np.array([False, True])
    if dtype.bits > 16:
        return reference.samples(dtype, EDGES, 11)
    if dtype.bits < 8:
        return np.arange(int(dtype.min), int(dtype.max) + 1).astype(dtype.numpy)
    kind = np.uint8 if dtype.bits == 8 else np.uint16
    return np.arange(1 << dtype.bits).astype(kind).view(dtype.numpy)


def operands(element: Element) -> list[Array]:
    """Return the arrays that an op is tried on, of shape [n, 4]."""
    every = values(element.dtype)
    case = CASES[element.name]
    if any(o.values == "tame" for o in case.operands) and element.dtype.is_float:
        wide = reference.exact(every)
        every = every[~(np.isfinite(wide) & (np.abs(wide) > 80))]
    if element.name == "pow" and element.dtype.is_float:  # of a signalling NaN, C's pow(x, 0) is NaN, and NumPy's 1
        every = every[np.isfinite(reference.exact(every))]
    if len(case.operands) == 1:
        return [_rows(every)]
    if element.dtype.bits <= 8:
        return [_rows(np.repeat(every, len(every))), _rows(np.tile(every, len(every)))]
    random = np.random.default_rng(5)
    return [
        _rows(random.permutation(every)[:EDGES]),
        _rows(reference.samples(element.dtype, min(EDGES, len(every)), 12)),
    ]


def _rows(flat: Array) -> Array:
    return np.resize(flat, -(-len(flat) // 4) * 4).reshape(-1, 4)


def failure(element: Element) -> tuple[str | None, int]:
    """Return a description of what is wrong with an op on a dtype, or None, and the number of results compared."""
    case, dtype = CASES[element.name], element.dtype
    arrays = operands(element)
    if len(arrays) == 2:
        least = min(len(a) for a in arrays)
        arrays = [a[:least] for a in arrays]
    graph = Graph("element", {f"x{i}": TensorType(dtype, ["n", 4]) for i in range(len(arrays))})
    with graph:
        result = case.results(list(graph.inputs))
    graph.output(*result)
    count = 0
    try:
        results = gc.InferenceSession(intra_op_num_threads=1).load(graph)(*arrays)
        for symbol, got, want in zip(result, results, case.wanted(dtype, arrays), strict=True):
            count += got.size
            assert_promised(element.name, symbol.dtype, got, want, arrays)
    except KeyboardInterrupt:
        raise
    except GraphcoreError as error:
        return f"{element.name} of {dtype}: {error.summary}", count
    except BaseException as error:  # pytest's failures are not Exceptions
        return f"{element.name} of {dtype}: {type(error).__name__}: {error}", count
    return None, count
