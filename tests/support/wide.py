"""Graphs on integers of more than 64 bits, and values of all magnitudes to feed them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType
from graphcore.ir.transform.walk import bodies
from graphcore.promotion import PromotionSystem
from tests.support.trees import Array, wrap

Function = Callable[..., Symbol | tuple[Symbol, ...]]


def graph_of(function: Function, *types: TensorType | DType, promotion: str | PromotionSystem = "max") -> Graph:
    """Return a graph of a function of tensors, which have one axis where only their dtype is given."""
    full = [t if isinstance(t, TensorType) else TensorType(t, ["n"]) for t in types]
    graph = Graph("test", {f"x{i}": t for i, t in enumerate(full)}, promotion=promotion)
    with graph:
        made = function(*graph.inputs)
    graph.output(*(made if isinstance(made, tuple) else (made,)))
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
    made = [int(dtype.min), int(dtype.max), 0, 1, int(dtype.min) + 1, int(dtype.max) - 1]
    while len(made) < count:
        bits = int(random.integers(1, dtype.bits + 1))
        value = int.from_bytes(random.bytes(-(-bits // 8)), "little") % (1 << bits)
        made.append(wrap(-value if random.random() < 0.4 else value, dtype))
    return np.array(made, object)


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
    made = np.empty(int(np.prod(shape)), object)
    for place in range(made.size):
        made[place] = pool[int(random.integers(0, 6 if random.random() < 0.5 else 40))]
    return made.reshape(shape)


def results(graph: Graph, arrays: Sequence[Array], folder: Path | None = None) -> list[list[Array]]:
    """Return what a graph gives: as it is, for target "onnx", and from a file where there is a folder for it."""
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
    for found in results(graph, arrays, folder):
        for symbol, result, value in zip(graph.outputs, found, wanted, strict=True):
            exact = np.asarray(value, object)
            held = wrapped(exact, symbol.dtype) if symbol.dtype.is_integer and exact.size else exact
            assert result.dtype == symbol.dtype.numpy
            assert result.shape == np.shape(held)
            assert result.tolist() == np.asarray(held).tolist(), str(graph)
    return graph


def size(graph: Graph) -> int:
    """Return how many nodes a graph has, those of bodies among them."""
    return sum(1 + sum(map(size, bodies(node))) for node in graph.nodes)
