"""One cell of the table: the state of an operator in a dtype, and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import graphcore as gc
from graphcore import Graph
from graphcore.errors import DTypeError, GraphcoreError
from graphcore.onnx.operators.calling import NAMED
from graphcore.runtime.kernel_probe.kernels.case import Case
from graphcore.runtime.lowering import lower
from graphcore.types.tensor_types import TensorType
from tests.support.every_op import of_graph
from tests.support.operators.building import Place
from tests.support.operators.known import DRAWN
from tests.support.operators.wanted import difference, wanted

STATES = ("-", "built", "lowered")


@dataclass(frozen=True, slots=True)
class Cell:
    """state: of `STATES`. how: what lowering made of it. why: what refused it, where it is not lowered."""

    state: str
    how: str = ""
    why: str = ""


@cache
def lowered(place: Place) -> Cell:
    """Return the state of the operator without a run: "-", "built" or "lowered"."""
    if not place.cases:
        return Cell("-", why="it takes no such operand")
    ways = []
    for case in place.cases:
        try:
            graph = place.graph(case)
        except DTypeError as error:
            return Cell("-", why=error.summary)
        try:
            made = lower(graph, "cpu")
        except GraphcoreError as error:
            return Cell("built", why=error.summary)
        ways.append(of_graph(graph, made, place.dtype))
    return Cell("lowered", _furthest(ways))


_ORDER = ("itself", "native", "expanded")


def _furthest(ways: Sequence[str]) -> str:
    """Of several cases' ways the one that is furthest from the operator itself."""
    return max(ways, key=lambda way: _ORDER.index(way) if way in _ORDER else 1.5)


def ran(place: Place, session: gc.InferenceSession, *, named: bool = False) -> dict[int, str]:
    """For each case what is wrong with its numbers: "", "near", or "unknown" where nothing says what they should be.

    named: whether the graph knows names of the operands' dims in place of sizes.
    """
    return {i: _ran(place, case, session, named) for i, case in enumerate(place.cases)}


def _ran(place: Place, case: Case, session: gc.InferenceSession, named: bool) -> str:
    graph = place.graph(case, named=named)
    feeds = [array for array, _ in place.question(case).feeds.values()]
    try:
        found = list(session.load(graph)(*feeds))
    except GraphcoreError as error:
        return f"fails: {error.summary}"
    typed = _types_differ(graph, found)
    if typed:
        return typed
    values = wanted(place, case)
    if values is None:
        return "" if place.name in DRAWN else "unknown"
    if place.name in DRAWN:
        return next((f"{f.shape}" for f, v in zip(found, values, strict=True) if f.shape != v.shape), "")
    if len(values) != len(found):
        return f"{len(found)} results for {len(values)}"
    dtypes = [s.dtype if isinstance(s.type, TensorType) and s.dtype in NAMED else None for s in graph.outputs]
    return max((difference(*both) for both in zip(found, values, dtypes, strict=True)), key=len, default="")


def _types_differ(graph: Graph, found: Sequence[Any]) -> str:
    """Return the differences of the results' dtypes and shapes from the graph's."""
    for symbol, value in zip(graph.outputs, found, strict=True):
        if not isinstance(symbol.type, TensorType):
            continue
        if symbol.dtype.numpy != value.dtype and symbol.dtype.name != "string":
            return f"{value.dtype} where the graph says {symbol.type}"
        if not symbol.shape.is_ranked:
            continue
        if symbol.rank != np.ndim(value):
            return f"rank {np.ndim(value)} where the graph says {symbol.type}"
        for dim, size in zip(symbol.shape, value.shape, strict=True):
            if dim.is_static and int(dim) != size:
                return f"{value.shape} where the graph says {symbol.type}"
    return ""
