"""The ways of a graph from its Symbols to its numbers: sessions, files, copies, passes and precisions."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import graphcore as gc
from graphcore import DType, Graph
from graphcore.errors import GraphcoreError
from tests.fuzz import eager
from tests.fuzz.limit import limited
from tests.fuzz.meaning import Array, Built, Wrong, built, check
from tests.fuzz.programs import Program
from tests.support import reference

ONE: dict[str, Any] = {"intra_op_num_threads": 1, "inter_op_num_threads": 1}


def _run(graph: Any, arrays: Sequence[Array], **options: Any) -> list[Array]:
    return list(gc.InferenceSession(**ONE, **options).load(graph)(*arrays))


def _exported(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drawn.onnx"
        graph.export(path)
        return _run(path, arrays)


def _external(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drawn.onnx"
        graph.export(path, external_data=True)
        return _run(path, arrays)


def _reloaded(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    return _run(Graph.load(graph.to_onnx(target="onnx").SerializeToString()), arrays)


def _cached(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    with tempfile.TemporaryDirectory() as folder:
        session = gc.InferenceSession(**ONE)
        session.load(graph, cache_dir=folder)
        return list(session.load(graph, cache_dir=folder)(*arrays))


def _isolated(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    with gc.IsolatedSession(load_seconds=600, **ONE).load(graph) as model:
        return [np.array(result) for result in model(*arrays)]


WAYS: dict[str, Callable[[Graph, Sequence[Array]], list[Array]]] = {
    "fused": lambda graph, arrays: _run(graph, arrays, optimize="all"),
    "unoptimised": lambda graph, arrays: _run(graph, arrays, optimize="off"),
    "exported": _exported,
    "external": _external,
    "reloaded": _reloaded,
    "optimised": lambda graph, arrays: _run(graph.optimize(), arrays),
    "pickled": lambda graph, arrays: _run(pickle.loads(pickle.dumps(graph)), arrays),
    "fast": lambda graph, arrays: _run(graph, arrays, precision="fast"),
    "cached": _cached,
    "isolated": _isolated,
}


EAGER = "eager"
"""The way of Tensors, which go through the steps one by one."""


def failure(program: Program) -> str | None:
    """Return a description of what is wrong with the numbers of a program, or None."""
    return tried(program)[0]


def tried(program: Program) -> tuple[str | None, int]:
    """Return a description of what is wrong with the numbers of a program, or None, and the number of results compared
    and are right."""
    try:
        with limited():
            return None, _check(program)
    except Wrong as error:
        return str(error), 0
    except GraphcoreError as error:
        return f"{type(error).__name__}: {error.summary}", 0
    except Exception as error:  # whatever it is, it should not have been
        return f"{type(error).__name__}: {error}", 0


def _check(program: Program) -> int:
    """Return the number of results compared: with the reference, and with those of the detour."""
    of = built(program)
    if not of.results:
        return 0
    results = _run(of.graph, of.arrays, optimize="exact")
    check(program, of, results)
    if not program.way:
        return len(results)
    if program.way == EAGER:
        return len(results) + eager.compared(program, of, results)
    try:
        others = WAYS[program.way](of.graph, of.arrays)
    except Exception as error:
        if program.way == "reloaded" and "the onnx target cannot compute it" in str(error):
            return len(results)  # docs/operators.md says of which dtypes
        raise Wrong(f"{program.way}: {type(error).__name__}: {error}") from error
    return len(results) + _compare(program, of, results, others)


def _compare(program: Program, of: Built, results: Sequence[Array], others: Sequence[Array]) -> int:
    """Check that a way gives the same numbers, as far as it is to: "fast" and sums in another order are near.

    Returns how many results were to be the same.
    """
    count = 0
    narrow = any(s.dtype.is_float and s.dtype.bits < 32 for item in of.results for s in item.results)
    narrow |= any(element.dtype.is_float and element.dtype.bits < 32 for element in program.inputs)
    inexact = of.near or (program.way == "fast" and narrow)
    for symbol, a, b in zip(of.graph.outputs, results, others, strict=True):
        if a.dtype != b.dtype or a.shape != b.shape:
            raise Wrong(f"{program.way}: {symbol} is {b.dtype}{b.shape}, and {a.dtype}{a.shape} without")
        if inexact or a.dtype.kind in "OU":
            continue
        count += 1
        wide_a, wide_b = (reference.exact(v) for v in (a, b))
        with np.errstate(invalid="ignore"):
            same = (wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b))
            if program.way == "fused" and DType.of(a.dtype).is_float:
                same |= np.abs(wide_a - wide_b) <= 1e-6 * np.abs(wide_a) + 1e-6
        if not same.all():
            raise Wrong(f"{program.way}: {symbol} is {wide_b[~same][0]}, and {wide_a[~same][0]} without")
    return count


__all__ = ["EAGER", "WAYS", "failure", "tried"]
